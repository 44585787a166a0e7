"""Where the candidates of a ladder stand: what low ranks, a look and full matrices say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from everyfold.evaluate.data import Outcome
from everyfold.evaluate.rounds import History, mean_score
from everyfold.evaluate.views import Scale
from everyfold.types import Array

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge.

And of its trace: a ridge beyond that leaves values so small that what is left out of the kernel may
be most of them, which scores that do not depend on their size would show.
"""

CAPTURED, TELLING = 0.01, 1000.0
"""A kernel is captured where the residual trace is at most this share of its trace.

And a score that fell still tells something where that is at most so many times the ridge.
"""

UNTOLD = 5.0
"""So many times the ridge left out make a score that says less than a look."""

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

NEAR = 10.0
"""Ridges of two kernels within this factor are compared."""


@dataclass(frozen=True)
class Look:
    """The score on the split of a look, and the errors of its parts, where they are known."""

    score: float
    errors: Array | None = None


@dataclass(slots=True)
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
    looks: dict[int, Look] = field(default_factory=dict)
    """What was seen on the splits that were looked at, by their number."""
    expected: float | None = None
    """What looks say of the score, given what they say of candidates that are known."""
    promise: float | None = None
    """The best that they leave possible."""
    hope: float | None = None
    """The same for a neighbour of the best."""
    width: float = np.inf
    """The share that the first rank left out, by which kernels are ordered from wide to narrow."""

    @property
    def look(self) -> float:
        """The mean score of all looks; NaN without any."""
        scores = [look.score for look in self.looks.values()]
        return sum(scores) / len(scores) if scores else math.nan

    @property
    def share(self) -> float:
        """What the last rank left out of the kernel, as a share of it."""
        return self.residual / self.trace if self.trace > 0.0 else 0.0

    @property
    def is_certified(self) -> bool:
        """Whether low rank is as good as the full kernel for this ridge."""
        return not self.is_full and self.residual <= CERTAIN * min(self.rho, self.trace)

    @property
    def is_captured(self) -> bool:
        """Whether the score says something about the full kernel."""
        return self.is_full or self.is_certified or self.residual <= CAPTURED * self.trace

    @property
    def is_untold(self) -> bool:
        """Whether a low rank is all there is, and it leaves out far more than the ridge."""
        return not self.is_full and self.residual > UNTOLD * self.rho

    @property
    def potential(self) -> float:
        """What the score may still turn out to be."""
        if self.is_full or self.is_certified:
            return self.score
        if self.promise is not None:
            return self.promise
        rise = PROMISE * self.gain if self.gain >= 0.0 else -SETBACK * self.gain
        return self.score + rise

    @property
    def prospect(self) -> float:
        """What the score is likely to turn out to be, as far as anything tells."""
        if self.is_full or self.is_certified or self.expected is None:
            return self.potential
        return self.expected

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


@dataclass(frozen=True)
class Pair:
    """Two candidates on the same looks: how many, their mean scores, the errors of all parts."""

    looks: int
    here: float
    there: float
    errors: Array | None
    others: Array | None

    @property
    def likeness(self) -> float:
        """From 0 to 1: whether the errors of the first rise with those of the second, in shares.

        1 if nothing tells.
        """
        if self.errors is None or self.others is None:
            return 1.0
        apart = self.others - self.others.mean()
        spread = float(apart @ apart) * self.errors.mean()
        if spread <= 0.0:
            return 1.0
        return float(np.clip(self.others.mean() * float(apart @ self.errors) / spread, 0.0, 1.0))


class Climb:
    """The standings of all candidates."""

    def __init__(
        self, standings: Iterable[Standing], metric: str, scale: Scale, most: int = MOST_EXACT
    ) -> None:
        self._scale, self._metric, self._most = scale, metric, most
        self._known_margin: float | None = None
        self.standings = {standing.number: standing for standing in standings}

    def replay(self, history: History) -> Climb:
        """The same after all outcomes so far; what they promise is another question."""
        for outcomes in history:
            for outcome in outcomes:
                if outcome.look:
                    look = Look(mean_score(outcome, self._metric), outcome.errors)
                    self.standings[outcome.number].looks[outcome.look] = look
                else:
                    self._read(outcome)
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

    @property
    def _seen(self) -> list[Standing]:
        """Those that were looked at."""
        return [s for s in self.standings.values() if np.isfinite(s.look)]

    def weigh(self) -> Climb:
        """Say what looks promise, by what they say of a candidate that is known.

        Without any that is known, looks speak for themselves.
        """
        known = self._best_known
        for standing in self._seen:
            if known is None:
                standing.expected = standing.promise = standing.look
            else:
                standing.expected, standing.promise = self._compared(standing, known, known.score)
        return self

    @property
    def _best_known(self) -> Standing | None:
        """The best of those that were looked at and are known: the full matrix tells most.

        Chance makes all candidates on the same rows look better or worse together.
        """
        seen = self._seen
        known = [s for s in seen if s.is_full] or [s for s in seen if s.is_certified]
        return max(known, key=lambda s: (s.score, -s.number), default=None)

    def _compared(
        self, one: Standing, other: Standing, score: float, *, is_wide: bool = False
    ) -> tuple[float, float]:
        """What looks say of a candidate if another has this score: likely, and possible at best.

        Only splits on which both were looked at are compared.
        """
        both = self._on_both(one, other)
        doubt = self._scale.doubt(both.errors, both.others, both.looks, is_wide=is_wide)
        promise = partial(self._scale.promise, score, both.here, both.there)
        return promise(), promise(doubt)

    def corrections(self, cap: float = np.inf) -> dict[int, float]:
        """What looks add to scores that ranks do not tell, so that none gets to a cap."""
        known, found = self._best_known, {}
        # Means over folds round: estimates have to stay behind the best by more than that.
        most = cap - _ROUNDING * abs(cap) - 1e-6 * self._margin
        for s in self._seen:
            if s.is_untold and self.status(s) == "estimated":
                shift = min(s.look if known is None else self._told(s, known), most) - s.score
                if np.isfinite(shift):
                    found[s.number] = shift
        return found

    def _told(self, one: Standing, other: Standing) -> float:
        """The score that looks tell of a candidate, by that of another that is known.

        By which factor they flatter the other counts as far as the errors of both go together.
        """
        both = self._on_both(one, other)
        return self._scale.told(other.score, both.here, both.there, both.likeness)

    def _on_both(self, one: Standing, other: Standing) -> Pair:
        """What two candidates did on the splits that both were looked at on."""
        both = [number for number in one.looks if number in other.looks]
        ours, theirs = ([s.looks[number] for number in both] for s in (one, other))
        here, there = (sum(look.score for look in looks) / len(both) for looks in (ours, theirs))
        return Pair(len(both), here, there, _together(ours), _together(theirs))

    def rivals(self) -> list[int]:
        """Those that may be the best, as far as the last look tells, whose best leads."""
        seen = self._seen
        most = max((len(s.looks) for s in seen), default=0)
        last = [s for s in seen if len(s.looks) == most]
        if not last:
            return []
        leader = max(last, key=lambda s: (s.look, -s.number))
        bar = leader.look
        return [s.number for s in last if self._compared(s, leader, bar)[1] >= bar]

    def hopeful(self) -> list[int]:
        """All that may be better than the best on the full matrix, the likeliest first.

        Those that promise more, while there are few on the full matrix; then the neighbours of the
        best. Whatever has the best score of all is among them in any case.
        """
        full = [s for s in self.standings.values() if s.is_full]
        order = sorted(self.standings.values(), key=lambda s: (-s.prospect, s.number))
        if not full:
            rivals = self.rivals() or list(self.standings)
            return [s.number for s in order if np.isfinite(s.score) and s.number in rivals]
        bar = max(standing.score for standing in full) + self._margin
        left = [s.number for s in order if not s.is_full and s.potential > bar]
        if left and len(full) < self._most:
            return left
        leader = max(self.standings.values(), key=lambda s: (s.score, -s.number))
        return self._beside(leader) if leader.is_full else [leader.number]

    def doubtful(self, looks: int) -> tuple[list[int], int]:
        """Those that a further look may tell apart, and its number; none after so many looks.

        A look costs less than the full matrix, which is for those that are left.
        """
        hopeful = [self.standings[number] for number in self.hopeful()]
        unsure = [s for s in hopeful if not s.is_certified and 0 < len(s.looks) < looks]
        if len(hopeful) < 2 and not self.has_full:
            return [], 0
        turn = 1 + min((len(s.looks) for s in unsure), default=0)
        return [s.number for s in unsure if len(s.looks) < turn], turn

    def contenders(self) -> list[int]:
        """The next to be evaluated on the full matrix, a few at a time."""
        done = sum(standing.is_full for standing in self.standings.values())
        left = self._most - done
        return self.hopeful()[: min(CONTENDERS, left) if left > 0 else CONTENDERS]

    def _beside(self, leader: Standing) -> list[int]:
        """The neighbours of the leader that may be better: the next ridges, the next kernels.

        Errors are smooth in ridge and width of a kernel: whatever ranks and the look were mistaken
        about, the winner is better than all around it.
        """
        same = [s for s in self.standings.values() if s.kernel == leader.kernel]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        around = {s.number: s for s in (below, above, *self._in_next_kernels(leader))}
        known = self._best_known
        for s in around.values():
            if known is not None and s.looks:
                s.hope = self._compared(s, known, known.score, is_wide=True)[1]
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


def _together(looks: Sequence[Look]) -> Array | None:
    """The errors of the parts of all looks, if all of them are known."""
    known = [look.errors for look in looks if look.errors is not None]
    return np.concatenate(known) if len(known) == len(looks) else None
