"""Where the candidates of a ladder stand: what low ranks, samples of rows and full matrices say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from everyfold.evaluate.data import Outcome
from everyfold.evaluate.rounds import History, mean_score
from everyfold.evaluate.views import Curve
from everyfold.types import Array

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge."""

CAPTURED, TELLING = 0.01, 1000.0
"""A kernel is captured where the residual trace is at most this share of its trace.

And a score that fell still tells something where that is at most so many times the ridge.
"""

OUT_OF_REACH = 0.5
"""Where the residual trace is more than this share, the next rank will not capture it either."""

CONVERGED, NEARLY = 1e-3, 5e-3
"""A score has converged where twice the rank moves it by less than this share of their spread.

And by less than so much of the error of the best, which is all that counts where fits are good.
"""

PROMISE, SETBACK = 2.0, 1.0
"""A score may still rise by these multiples of what the last doubling of the rank gave or took."""

CONTENDERS = 3
"""How many candidates are evaluated on the full matrix at first; so many need no ladder."""

_ROUNDING = 1e-9

MOST_EXACT = 12

NEAR = 10.0
"""Ridges of two kernels within this factor are compared."""

SIMILAR, SHARED = 10.0, 0.25
"""Kernels whose residual traces differ by less than this factor share this power of a mistake."""

THE_SAME, ABOUT_AS_GOOD = 1.1, 1.5
"""Factors between the errors of two ridges of a kernel that are called so."""


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
    sampled: float = np.nan
    """The score on the last sample of rows."""
    promise: float | None = None
    """What samples of rows promise, where low rank says nothing."""
    ceiling: float = np.inf
    """What they leave possible, where low rank has not settled."""
    width: float = np.inf
    """The share that the first rank left out, by which kernels are ordered from wide to narrow."""

    @property
    def is_sampled(self) -> bool:
        """Whether a sample of rows has a score of it."""
        return bool(np.isfinite(self.sampled))

    @property
    def hoped(self) -> float:
        """What samples of rows leave possible."""
        return self.ceiling if self.promise is None else self.promise

    def hope(self, score: float) -> None:
        """Take back or add to what samples leave possible."""
        if self.promise is None:
            self.ceiling = score
        else:
            self.promise = score

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
    def is_out_of_reach(self) -> bool:
        """Whether no rank that is affordable will say something."""
        return not self.is_captured and self.residual > OUT_OF_REACH * self.trace

    @property
    def potential(self) -> float:
        """What the score may still turn out to be."""
        if self.is_full or self.is_certified:
            return self.score
        if self.promise is not None:
            return self.promise
        rise = PROMISE * self.gain if self.gain >= 0.0 else -SETBACK * self.gain
        return max(self.score, min(self.score + rise, self.ceiling))

    def may_reach(self, score: float) -> bool:
        """Whether ranks do not exclude so good a score; samples of rows are not asked.

        A score that fell with the rank says little where the ridge is far below what that left out.
        """
        if self.is_full or self.is_certified or not np.isfinite(self.score):
            return False
        is_falling = self.gain < 0.0 and self.residual > TELLING * self.rho
        return not self.is_captured or is_falling or self.score + PROMISE * abs(self.gain) >= score


class Climb:
    """The standings of all candidates."""

    def __init__(self, standings: Iterable[Standing], metric: str, curve: Curve | None) -> None:
        self._curve, self._metric = curve, metric
        self._recent: set[int] = set()
        self._known_margin: float | None = None
        self.standings = {standing.number: standing for standing in standings}

    @classmethod
    def replay(
        cls, standings: Iterable[Standing], metric: str, curve: Curve | None, history: History
    ) -> Climb:
        """What all outcomes so far amount to."""
        climb = cls(standings, metric, curve)
        for outcomes in history:
            for outcome in outcomes:
                if outcome.sample:
                    climb._read_sample(outcome)
                else:
                    climb._read(outcome)
            climb._recent = {outcome.number for outcome in outcomes}
            if outcomes and len(outcomes[0].sample) == 1:
                climb._calibrate()
            climb._weigh()
        return climb

    @classmethod
    def scored(
        cls, standings: Iterable[Standing], metric: str, curve: Curve | None, history: History
    ) -> Climb:
        """The same without what samples promise, which is all that a status needs."""
        climb = cls(standings, metric, curve)
        for outcomes in history:
            for outcome in outcomes:
                if not outcome.sample:
                    climb._read(outcome)
        return climb

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

    def _read_sample(self, outcome: Outcome) -> None:
        assert self._curve is not None
        standing, score = self.standings[outcome.number], mean_score(outcome, self._metric)
        if not np.isfinite(score):
            return
        m, before = outcome.sample[-1], standing.sampled
        standing.sampled = score
        if len(outcome.sample) > 2:  # a quarter says nothing by itself
            return
        found = self._curve.bound(score, m)
        # Two small samples dismiss kernels that are far too narrow; others may still need rows.
        is_telling = len(outcome.sample) == 1 or standing.is_out_of_reach
        if np.isfinite(before) and is_telling:
            found = self._curve.promise(before, score, m)
        if standing.is_captured:
            standing.ceiling = found
        else:
            standing.promise = found

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
            if self._curve is not None and scores.size:
                error = max(self._curve.best - best, _ROUNDING * spread)
                margin = min(margin, NEARLY * error)
            self._known_margin = margin
        return self._known_margin

    @property
    def _trusted(self) -> float:
        """The best score that says something."""
        scores = [s.score for s in self.standings.values() if s.is_captured]
        return max(scores, default=-np.inf)

    def uncertain(self) -> list[int]:
        """Those whose score is not certain and may still turn out to be the best."""
        floor = float(np.max(self._scores)) - self._margin
        return [
            number
            for number, standing in self.standings.items()
            if self.status(standing) == "estimated"
            and not standing.is_out_of_reach
            and standing.potential >= floor
        ]

    def suspects(self) -> list[int]:
        """Those whose kernel no rank has captured, or whose scores may still rise to the best."""
        unsettled = set(self.uncertain())
        return [k for k, s in self.standings.items() if k in unsettled or not s.is_captured]

    def hopeful(self) -> list[int]:
        """Those of them that the last sample leaves a chance."""
        seen = [s for s in map(self.standings.__getitem__, self.suspects()) if s.is_sampled]
        trusted = self._trusted
        return [s.number for s in seen if s.potential >= trusted]

    def beside_known(self, numbers: list[int]) -> list[int]:
        """The same and, to compare them with, the best candidate whose score is known."""
        known = [s for s in self.standings.values() if self._is_known(s)]
        if not numbers or not known:
            return numbers
        return [*numbers, max(known, key=lambda s: (s.score, -s.number)).number]

    def _is_known(self, standing: Standing) -> bool:
        is_low = not standing.is_full and np.isfinite(standing.score)
        return is_low and self.status(standing) in ("certified", "converged")

    def _calibrate(self) -> None:
        """Correct what samples promise by what they promised for a candidate that is known.

        Chance makes all candidates on the same few rows look better or worse together.
        """
        sampled = [self.standings[number] for number in self._recent]
        known = [s for s in sampled if self._is_known(s) and np.isfinite(s.ceiling)]
        if not known or self._curve is None:
            return
        factor = max(1.0, max(self._curve.ratio(s.score, s.ceiling) for s in known))
        best = max(known, key=lambda s: s.sampled)
        for standing in sampled:
            if standing.promise is not None:
                # Whatever is better on the same rows has as good a chance on all of them.
                share = min(1.0, self._curve.ratio(standing.sampled, best.sampled))
                beside = self._curve.better(best.score, share) if share < 1.0 else -np.inf
                standing.promise = max(self._curve.better(standing.promise, factor), beside)
            standing.ceiling = self._curve.better(standing.ceiling, factor)

    def contenders(self) -> list[int]:
        """The next to be evaluated on the full matrix: the best, until none can be much better.

        Whatever has the best score of all is evaluated in any case.
        """
        full = [standing for standing in self.standings.values() if standing.is_full]
        if not full:
            return self._first()
        recent = [standing for standing in full if standing.number in self._recent]
        alike = [other.number for standing in recent for other in self._alike(standing)]
        if alike:
            return alike
        order = sorted(self.standings.values(), key=lambda s: (-s.potential, s.number))
        known = max(standing.score for standing in full)
        is_settled = order[0].potential <= known + self._margin
        if not is_settled and len(full) < MOST_EXACT:
            return [self._spokesman(order[0]).number]
        leader = max(self.standings.values(), key=lambda s: (s.score, -s.number))
        return self._beside(leader) if leader.is_full else [leader.number]

    def _beside(self, leader: Standing) -> list[int]:
        """The neighbours of the leader that may be better: the next ridges, the next kernels.

        Errors are smooth in ridge and width of a kernel: whatever ranks and samples were mistaken
        about, the winner is better than all around it.
        """
        same = [s for s in self.standings.values() if s.kernel == leader.kernel]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        around = {s.number: s for s in (below, above, *self._in_next_kernels(leader))}
        return [s.number for s in around.values() if s.may_reach(leader.score)]

    def _in_next_kernels(self, leader: Standing) -> Iterator[Standing]:
        """The candidate with the most similar ridge of the next wider and narrower kernel."""
        widths = {s.kernel: s.width for s in self.standings.values()}
        order = sorted(widths, key=lambda kernel: (widths[kernel], kernel))
        place = order.index(leader.kernel)
        for kernel in (*order[max(place - 1, 0) : place], *order[place + 1 : place + 2]):
            own = [s for s in self.standings.values() if s.kernel == kernel]
            nearest = min(own, key=lambda s: (abs(math.log(s.rho / leader.rho)), s.number))
            if max(nearest.rho, leader.rho) <= NEAR * min(nearest.rho, leader.rho):
                yield nearest

    def _first(self) -> list[int]:
        """The most promising, and of kernels that only samples speak for one ridge each."""
        chosen: list[Standing] = []
        for standing in sorted(self.standings.values(), key=lambda s: (-s.potential, s.number)):
            is_repeated = standing.promise is not None and any(
                other.kernel == standing.kernel for other in chosen
            )
            if np.isfinite(standing.score) and not is_repeated:
                chosen.append(standing)
        return [self._spokesman(standing).number for standing in chosen[:CONTENDERS]]

    def _spokesman(self, best: Standing) -> Standing:
        """Of the ridges of a kernel that promise the same, the largest.

        It is the least likely to disappoint: samples have fewer rows that are nearly alike.
        """
        if best.promise is None or self._curve is None:
            return best
        bar = self._curve.better(best.promise, THE_SAME)
        equals = [other for other in self._unknown(best) if other.potential >= bar]
        return max([best, *equals], key=lambda s: s.rho)

    def _unknown(self, standing: Standing) -> list[Standing]:
        """The other ridges of a kernel that only samples speak for."""
        return [
            other
            for other in self.standings.values()
            if other.kernel == standing.kernel
            and other is not standing
            and not other.is_full
            and other.promise is not None
        ]

    def _alike(self, standing: Standing) -> list[Standing]:
        """The other ridges of a kernel that one has confirmed, if they promise about as much."""
        if standing.promise is None or self._curve is None:
            return []
        if standing.score < self._curve.better(self._trusted, ABOUT_AS_GOOD):
            return []
        bar = self._curve.better(self._trusted, THE_SAME)
        return [other for other in self._unknown(standing) if other.potential >= bar]

    def _weigh(self) -> None:
        """Correct what samples promise by what the full matrix has disappointed.

        They are mistaken together: for the ridges of one kernel, and less so for those of others
        that low rank captures about as well or better.
        """
        seen = [self.standings[number] for number in self._recent]
        seen = [s for s in seen if s.is_full and np.isfinite(s.hoped)]
        if self._curve is None or not seen:
            return
        for other in self.standings.values():
            if not other.is_full:
                other.hope(self._curve.better(other.hoped, self._mistake(other, seen)))

    def _mistake(self, standing: Standing, seen: list[Standing]) -> float:
        """How many times its error is likely to be what was hoped for, by some that are known."""
        assert self._curve is not None
        own = [s for s in seen if s.kernel == standing.kernel]
        like = own or [s for s in seen if standing.share <= SIMILAR * s.share]
        factors = [max(1.0, self._curve.ratio(s.score, s.hoped)) for s in like]
        return float(min(factors, default=1.0) ** (1.0 if own else SHARED))
