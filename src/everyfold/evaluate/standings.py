"""Where the candidates of a ladder stand: what low ranks, a look and full matrices say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from everyfold.evaluate.data import Outcome
from everyfold.evaluate.rounds import History, mean_score
from everyfold.evaluate.views import Scale
from everyfold.types import Array

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge."""

CAPTURED, TELLING = 0.01, 1000.0
"""A kernel is captured where the residual trace is at most this share of its trace.

And a score that fell still tells something where that is at most so many times the ridge.
"""

CONVERGED, NEARLY = 1e-3, 5e-3
"""A score has converged where twice the rank moves it by less than this share of their spread.

And by less than so much of the error of the best, which is all that counts where fits are good.
"""

PROMISE, SETBACK = 2.0, 1.0
"""A score may still rise by these multiples of what the last doubling of the rank gave or took."""

CONTENDERS = 3
"""How many candidates are evaluated on the full matrix at a time; so many need no ladder."""

_ROUNDING = 1e-9

MOST_EXACT, MOST_LARGE = 12, 4
"""How many are evaluated there because of what they promise.

And how many of very many rows, where each takes long, or of few candidates.
"""

SHARE_OF_ALL = 10
"""Candidates are few if there are not so many times as many."""

NEAR, NEIGHBOURLY = 10.0, 4.0
"""Ridges of two kernels within this factor are compared, where a look leaves so much more doubt."""


@dataclass
class Standing:
    """Where one candidate stands."""

    number: int
    rho: float
    kernel: int
    trace: float
    score: float = -np.inf
    gain: float = np.inf
    residual: float = np.inf
    is_full: bool = False
    is_exact: bool = False
    look: float = np.nan
    """The score on the split that was looked at."""
    promise: float | None = None
    """What the look promises, given what it says of candidates that are known."""
    hope: float | None = None
    """What it leaves possible for a neighbour of the best."""
    width: float = np.inf
    """The share that the first rank left out, by which kernels are ordered from wide to narrow."""

    @property
    def share(self) -> float:
        """What the last rank left out of the kernel, as a share of it."""
        return self.residual / self.trace if self.trace > 0.0 else 0.0

    @property
    def is_certified(self) -> bool:
        """Whether low rank is as good as the full kernel for this ridge."""
        return not self.is_full and self.residual <= CERTAIN * self.rho

    @property
    def is_captured(self) -> bool:
        """Whether the score says something about the full kernel."""
        return self.is_full or self.is_certified or self.residual <= CAPTURED * self.trace

    @property
    def potential(self) -> float:
        """What the score may still turn out to be."""
        if self.is_full or self.is_certified:
            return self.score
        if self.promise is not None:
            return self.promise
        rise = PROMISE * self.gain if self.gain >= 0.0 else -SETBACK * self.gain
        return self.score + rise

    def may_reach(self, score: float) -> bool:
        """Whether neither a look nor ranks exclude so good a score.

        A score that fell with the rank says little where the ridge is far below what that left out.
        """
        if self.is_full or self.is_certified or not np.isfinite(self.score):
            return False
        if self.hope is not None and self.hope < score:
            return False
        is_falling = self.gain < 0.0 and self.residual > TELLING * self.rho
        return not self.is_captured or is_falling or self.score + PROMISE * abs(self.gain) >= score


class Climb:
    """The standings of all candidates."""

    def __init__(
        self, standings: Iterable[Standing], metric: str, scale: Scale, most: int = MOST_EXACT
    ) -> None:
        self._scale, self._metric, self._most = scale, metric, most
        self._known_margin: float | None = None
        self.standings = {standing.number: standing for standing in standings}

    def replay(self, history: History) -> Climb:
        """The same after all outcomes so far."""
        for outcomes in history:
            for outcome in outcomes:
                if outcome.is_look:
                    look = mean_score(outcome, self._metric)
                    self.standings[outcome.number].look = look
                else:
                    self._read(outcome)
        self._weigh()
        return self

    def _read(self, outcome: Outcome) -> None:
        self._known_margin = None
        standing = self.standings[outcome.number]
        score = mean_score(outcome, self._metric)
        is_first = not np.isfinite(standing.score)
        standing.gain = np.inf if is_first else score - standing.score
        standing.score = score
        standing.is_full = not outcome.is_of_another_model
        if not standing.is_full:
            standing.residual = outcome.residual_trace
            standing.width = standing.share if is_first else standing.width
        standing.is_exact = standing.is_full and bool(outcome.is_exact.all())

    @property
    def has_full(self) -> bool:
        """Whether full matrices have begun."""
        return any(standing.is_full for standing in self.standings.values())

    def status(self, standing: Standing) -> str:
        """How certain a score is, in a word."""
        if standing.is_exact:
            return "exact"
        if standing.is_certified:
            return "certified"
        has_settled = abs(standing.gain) <= self._margin
        return "converged" if has_settled and standing.is_captured else "estimated"

    @property
    def _scores(self) -> Array:
        return np.array([standing.score for standing in self.standings.values()])

    @property
    def _margin(self) -> float:
        """A difference between two scores that does not count.

        The unit is from the median to the best score, which suits any scorer, or the error of the
        best, where perfect scores are known and it is less.
        """
        if self._known_margin is None:
            scores = self._scores[np.isfinite(self._scores)]
            best = float(scores.max(initial=-np.inf))
            spread = best - float(np.median(scores)) if scores.size else 0.0
            margin = CONVERGED * spread
            if self._scale.has_errors and scores.size:
                error = max(self._scale.best - best, _ROUNDING * spread)
                margin = min(margin, NEARLY * error)
            self._known_margin = margin
        return self._known_margin

    def uncertain(self) -> list[int]:
        """Those whose score is not certain and may still turn out to be the best."""
        floor = float(np.max(self._scores)) - self._margin
        return [
            number
            for number, standing in self.standings.items()
            if self.status(standing) == "estimated" and standing.potential >= floor
        ]

    def suspects(self) -> list[int]:
        """All that are not certain and, to compare them with, the best whose score is known.

        All ridges of a kernel cost a look little more than one.
        """
        numbers = [number for number, s in self.standings.items() if not s.is_certified]
        known = [s for s in self.standings.values() if s.is_certified]
        if not numbers or not known:
            return numbers
        return [*numbers, max(known, key=lambda s: (s.score, -s.number)).number]

    def _weigh(self) -> None:
        """Say what the look promises, by what it says of a candidate that is known.

        Chance makes all candidates on the same rows look better or worse together. Of those that
        are known, one on the full matrix tells most; without any, the look speaks for itself.
        """
        seen = [s for s in self.standings.values() if np.isfinite(s.look)]
        known = [s for s in seen if s.is_full] or [s for s in seen if s.is_certified]
        other = max(known, key=lambda s: (s.score, -s.number), default=None)
        for standing in seen:
            if other is None:
                standing.promise = standing.look
            else:
                found = other.score, standing.look, other.look
                standing.promise = self._scale.promise(*found)
                standing.hope = self._scale.promise(*found, doubts=NEIGHBOURLY)

    def contenders(self) -> list[int]:
        """The next to be evaluated on the full matrix: the best, until none can be much better.

        Whatever has the best score of all is evaluated in any case.
        """
        full = [standing for standing in self.standings.values() if standing.is_full]
        order = sorted(self.standings.values(), key=lambda s: (-s.potential, s.number))
        if not full:
            return [s.number for s in order if np.isfinite(s.score)][:CONTENDERS]
        bar = max(standing.score for standing in full) + self._margin
        left = [s.number for s in order if not s.is_full and s.potential > bar]
        if left and len(full) < self._most:
            return left[: min(CONTENDERS, self._most - len(full))]
        leader = max(self.standings.values(), key=lambda s: (s.score, -s.number))
        return self._beside(leader) if leader.is_full else [leader.number]

    def _beside(self, leader: Standing) -> list[int]:
        """The neighbours of the leader that may be better: the next ridges, the next kernels.

        Errors are smooth in ridge and width of a kernel: whatever ranks and the look were mistaken
        about, the winner is better than all around it.
        """
        same = [s for s in self.standings.values() if s.kernel == leader.kernel]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        around = {s.number: s for s in (below, above, *self._in_next_kernels(leader))}
        return [s.number for s in around.values() if s.may_reach(leader.score)]

    def _in_next_kernels(self, leader: Standing) -> Iterator[Standing]:
        """Of the next wider and narrower kernel the most similar ridge, and the best by a look."""
        widths = {s.kernel: s.width for s in self.standings.values()}
        order = sorted(widths, key=lambda kernel: (widths[kernel], kernel))
        place = order.index(leader.kernel)
        for kernel in (*order[max(place - 1, 0) : place], *order[place + 1 : place + 2]):
            own = [s for s in self.standings.values() if s.kernel == kernel]
            nearest = min(own, key=lambda s: (abs(math.log(s.rho / leader.rho)), s.number))
            if max(nearest.rho, leader.rho) <= NEAR * min(nearest.rho, leader.rho):
                yield nearest
            seen = [s for s in own if np.isfinite(s.look)]
            if seen:
                yield max(seen, key=lambda s: (s.look, -s.number))
