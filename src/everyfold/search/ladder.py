"""Low rank for the whole grid, more where it matters, and the exact kernel for the last few.

A kernel matrix of rank r costs n r² instead of n³. Whether that is enough differs between kernels
and ridges, and is seen only afterwards, so that a search climbs: all candidates at a low rank,
those that are not certain and could still win at twice the rank, and so on. Kernels that low rank
does not capture are looked at on a sample of rows instead. The best are evaluated on the full
matrix, which decides. Every candidate says how far it got.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold.execute import map_unordered
from everyfold.kernels import Linear
from everyfold.operators import Iterative, Nystrom
from everyfold.operators.base import Rows
from everyfold.plan import available_memory
from everyfold.search.candidates import Options
from everyfold.search.setup import Setup
from everyfold.search.views import Curve, draw, look, perfect_scores, ridge_of, sample_size
from everyfold.units import Candidate, Unit, Verdict, run

LADDER_ROWS = 2500
"""From this many rows on a factorisation of the full matrix for every kernel is too slow."""

FIRST_RANK = 128

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge."""

CAPTURED = 0.01
"""A kernel is captured where the residual trace is at most this share of its trace."""

OUT_OF_REACH = 0.5
"""Where the residual trace is more than this share, the next rank will not capture it either."""

CONVERGED = 1e-3
"""A score has converged where twice the rank moves it by less than this share of their spread."""

PROMISE = 2.0
"""A score may still rise by this multiple of what the last doubling of the rank gave."""

CONTENDERS = 3
"""How many candidates are evaluated on the full matrix at first."""

MOST_EXACT = 12

THE_SAME, ABOUT_AS_GOOD = 1.1, 1.5
"""Factors between the errors of two ridges of a kernel that are called so."""

ITERATIVE_ROWS = 10_000
"""From this many rows on the full matrix is iterated with and not factorised."""

ITERATIVE_RANK = 1000


@dataclass
class _Standing:
    """Where one candidate stands."""

    candidate: Candidate
    unit: Unit
    rho: float
    trace: float
    score: float = -np.inf
    gain: float = np.inf
    residual: float = np.inf
    is_full: bool = False
    is_exact: bool = False
    promise: float | None = None
    """What samples of rows promise, where low rank says nothing."""
    is_weighed: bool = False
    """Whether the promises of the same kernel have been compared with this full score."""

    @property
    def is_certified(self) -> bool:
        return not self.is_full and self.residual <= CERTAIN * self.rho

    @property
    def is_captured(self) -> bool:
        return self.is_full or self.is_certified or self.residual <= CAPTURED * self.trace

    @property
    def is_out_of_reach(self) -> bool:
        return not self.is_captured and self.residual > OUT_OF_REACH * self.trace

    @property
    def potential(self) -> float:
        if self.is_full or self.is_certified:
            return self.score
        if self.promise is not None:
            return self.promise
        return self.score + PROMISE * abs(self.gain)


@dataclass(frozen=True)
class LadderSetup(Setup):
    """Rows in memory, too many to factorise the full matrix of every kernel."""

    metric: Any = "score"

    def work(self, n_jobs: int | None) -> Iterator[list[Verdict]]:
        """See base class; later verdicts of a candidate replace earlier ones."""
        n = self.data.n
        climb = _Climb([_stand(c, unit) for unit in self.units for c in _members(unit)])
        rank, standings = FIRST_RANK, climb.standings
        while standings and rank <= n // 4:
            structure = Nystrom(rank, random_state=0)
            for verdicts in map_unordered(run, _units(standings, structure), n_jobs, n):
                climb.read(verdicts, self.metric)
                yield climb.marked(verdicts)
            standings, rank = climb.uncertain(), 2 * rank
        _look_again(climb, self.metric, n_jobs)
        while True:
            chosen = climb.contenders()
            if not chosen:
                return
            for verdicts in map_unordered(run, _units(chosen, _full(n)), n_jobs, n):
                climb.read(verdicts, self.metric, is_full=True)
                yield climb.marked(verdicts)


def climbs(setup: Setup, options: Options) -> bool:
    """Whether a search may begin with low ranks: its kernels are large, and nobody asked otherwise.

    Training scores and folds that do not just remove rows need the full matrix of every fold.
    """
    if options.order not in ("auto", np.inf) or setup.n < LADDER_ROWS:
        return False
    if setup.has_steps and setup.is_per_fold:
        return False
    trial = setup.units[0].trial
    if trial.train is not None or not trial.bench.folds.are_removable:
        return False
    candidates = [candidate for unit in setup.units for candidate in _members(unit)]
    return len(candidates) > CONTENDERS and all(_is_plain(c) for c in candidates)


def _is_plain(candidate: Candidate) -> bool:
    model = candidate.model
    if not model.loss.has_constant_curvature or model.operator != "auto":
        return False
    if model.choice.depends_on_rows or model.choice.is_precomputed:
        return False
    if len(model.ridges) > 1 or model.chooses_ridge or model.ridges[0] <= 0.0:
        return False
    is_linear = isinstance(model.choice.resolve(np.eye(2)), Linear)
    return not is_linear and model.class_weight != "balanced"


def ladder(setup: Setup, metric: Any) -> LadderSetup:
    """The same work, climbing."""
    note = (
        f"with {setup.n} rows all candidates were evaluated at low rank first and the best on the "
        "full kernel matrix; cv_results_['status'] says which, and operator='dense' evaluates all"
    )
    return LadderSetup(
        setup.data,
        setup.folds,
        setup.units,
        setup.is_per_fold,
        setup.has_steps,
        (*setup.notes, note),
        metric,
    )


def _members(unit: Unit) -> list[Candidate]:
    return [candidate for group in unit.groups for candidate in group]


def _stand(candidate: Candidate, unit: Unit) -> _Standing:
    return _Standing(candidate, unit, ridge_of(candidate, unit.trial), unit.trace())


def _full(n: int) -> Any:
    """The full matrix: factorised while that is quick, else iterated with, held if it fits."""
    if n < ITERATIVE_ROWS:
        return "dense"
    return Iterative(rank=ITERATIVE_RANK, is_held=2 * 8 * n * n < available_memory())


def _by_unit(standings: Sequence[_Standing]) -> list[list[_Standing]]:
    found: dict[int, list[_Standing]] = {}
    for standing in standings:
        found.setdefault(id(standing.unit), []).append(standing)
    return list(found.values())


def _units(standings: Sequence[_Standing], structure: Any) -> list[Unit]:
    """Units of some candidates with a structure; low rank stops where the last is certain."""
    made = []
    for members in _by_unit(standings):
        unit = members[0].unit
        chosen = {standing.candidate.number for standing in members}
        operator = structure
        if isinstance(structure, Nystrom):
            trace = members[0].trace
            tol = CERTAIN * min(s.rho for s in members) / trace if trace > 0.0 else 0.0
            operator = replace(structure, tol=min(0.5, tol))
        groups = [
            tuple(
                replace(candidate, model=replace(candidate.model, operator=operator))
                for candidate in group
                if candidate.number in chosen
            )
            for group in unit.groups
        ]
        made.append(replace(unit, groups=tuple(group for group in groups if group)))
    return made


class _Climb:
    """The standings of all candidates."""

    def __init__(self, standings: list[_Standing]) -> None:
        self.standings = standings
        self.curve: Curve | None = None
        self._by_number = {standing.candidate.number: standing for standing in standings}

    def read(self, verdicts: Sequence[Verdict], metric: Any, *, is_full: bool = False) -> None:
        """Take note of new scores."""
        for verdict in verdicts:
            standing = self._by_number[verdict.number]
            score = _mean(verdict, metric)
            is_first = not np.isfinite(standing.score)
            standing.gain = np.inf if is_first else score - standing.score
            standing.score = score
            standing.residual = 0.0 if is_full else verdict.residual_trace
            standing.is_full = is_full
            record = verdict.record
            standing.is_exact = is_full and record is not None and bool(record.is_exact.all())

    def marked(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts with what is known about each."""
        return [replace(v, status=self._status(self._by_number[v.number])) for v in verdicts]

    def _status(self, standing: _Standing) -> str:
        if standing.is_exact:
            return "exact"
        if standing.is_certified:
            return "certified"
        has_settled = abs(standing.gain) <= CONVERGED * self._spread
        return "converged" if has_settled and standing.is_captured else "estimated"

    @property
    def _scores(self) -> Any:
        return np.array([standing.score for standing in self.standings])

    @property
    def _best(self) -> float:
        return float(np.max(self._scores))

    @property
    def _spread(self) -> float:
        """From the median to the best score: a unit that suits any scorer."""
        scores = self._scores[np.isfinite(self._scores)]
        return float(scores.max() - np.median(scores)) if scores.size else 0.0

    def uncertain(self) -> list[_Standing]:
        """Those whose score is not certain and may still turn out to be the best."""
        floor = self._best - CONVERGED * self._spread
        return [
            standing
            for standing in self.standings
            if self._status(standing) == "estimated"
            and not standing.is_out_of_reach
            and standing.potential >= floor
        ]

    def suspects(self) -> list[_Standing]:
        """Those whose kernel no rank has captured: their scores say nothing."""
        return [standing for standing in self.standings if not standing.is_captured]

    @property
    def trusted(self) -> float:
        """The best score that says something."""
        scores = [standing.score for standing in self.standings if standing.is_captured]
        return max(scores, default=-np.inf)

    def contenders(self) -> list[_Standing]:
        """The next to be evaluated on the full matrix: the best, until none can be much better.

        Whatever has the best score of all is evaluated in any case.
        """
        full = [standing for standing in self.standings if standing.is_full]
        if not full:
            return self._first()
        alike = [other for standing in full for other in self._alike(standing)]
        if alike:
            return alike
        known = max(standing.score for standing in full)
        best = max(self.standings, key=lambda s: s.potential)
        is_settled = best.potential <= known + CONVERGED * self._spread
        if not is_settled and len(full) < MOST_EXACT:
            return [self._spokesman(best)]
        leader = max(self.standings, key=lambda s: s.score)
        return self._beside(leader) if leader.is_full else [leader]

    def _beside(self, leader: _Standing) -> list[_Standing]:
        """The next smaller and larger ridge, where only samples spoke for the leader's kernel."""
        if leader.promise is None:
            return []
        same = [s for s in self.standings if s.unit is leader.unit]
        below = max((s for s in same if s.rho < leader.rho), key=lambda s: s.rho, default=leader)
        above = min((s for s in same if s.rho > leader.rho), key=lambda s: s.rho, default=leader)
        return [standing for standing in (below, above) if not standing.is_full]

    def _first(self) -> list[_Standing]:
        """The most promising, and of kernels that only samples speak for one ridge each."""
        chosen: list[_Standing] = []
        for standing in sorted(self.standings, key=lambda s: s.potential, reverse=True):
            is_repeated = standing.promise is not None and any(
                other.unit is standing.unit for other in chosen
            )
            if np.isfinite(standing.score) and not is_repeated:
                chosen.append(standing)
        return [self._spokesman(standing) for standing in chosen[:CONTENDERS]]

    def _unknown(self, standing: _Standing) -> list[_Standing]:
        """The other ridges of a kernel that only samples speak for."""
        return [
            other
            for other in self.standings
            if other.unit is standing.unit
            and other is not standing
            and not other.is_full
            and other.promise is not None
        ]

    def _spokesman(self, best: _Standing) -> _Standing:
        """Of the ridges of a kernel that promise the same, the largest.

        It is the least likely to disappoint: samples have fewer rows that are nearly alike.
        """
        if best.promise is None or self.curve is None:
            return best
        bar = self.curve.better(best.promise, THE_SAME)
        equals = [other for other in self._unknown(best) if other.potential >= bar]
        return max([best, *equals], key=lambda s: s.rho)

    def _alike(self, standing: _Standing) -> list[_Standing]:
        """The other ridges of a kernel that one ridge has confirmed, if they promise about as much.

        What samples promise for the ridges of one kernel is mistaken together: where the full
        matrix disappoints, the others are trusted as much less.
        """
        if standing.promise is None or standing.is_weighed or self.curve is None:
            return []
        standing.is_weighed = True
        unknown = self._unknown(standing)
        bar = self.curve.better(self.trusted, ABOUT_AS_GOOD)
        if standing.score >= bar:
            return [other for other in unknown if other.potential >= bar]
        factor = self.curve.ratio(standing.score, standing.promise)
        for other in unknown:
            other.promise = self.curve.better(other.potential, max(1.0, factor))
        return []


def _look_again(climb: _Climb, metric: Any, n_jobs: int | None) -> None:
    """Look at kernels that low rank does not capture on two samples of rows."""
    suspects = climb.suspects()
    if not suspects:
        return
    trial = suspects[0].unit.trial
    n = trial.bench.folds.n
    best = _mean_of(perfect_scores(trial), metric)
    if not np.isfinite(best):
        return
    curve, m = Curve(best, n), sample_size(n)
    climb.curve = curve
    rows = draw(trial.bench.folds, m, 0)
    half = draw(trial.bench.folds.among(rows), m // 2, 0)
    before = _views(suspects, rows[half], metric, n_jobs)
    seen = [standing for standing in suspects if standing.candidate.number in before]
    for standing in seen:
        standing.promise = curve.bound(before[standing.candidate.number], len(half))
    hopeful = [standing for standing in seen if standing.potential >= climb.trusted]
    after = _views(hopeful, rows, metric, n_jobs)
    for standing in hopeful:
        number = standing.candidate.number
        if number in after:
            standing.promise = curve.promise(before[number], after[number], len(rows))


def _views(
    standings: Sequence[_Standing], rows: Rows, metric: Any, n_jobs: int | None
) -> dict[int, float]:
    """The scores of some candidates on some rows, by number; without those that have none."""
    verdicts = look(_units(standings, "dense"), rows, n_jobs) if standings else []
    scores = {verdict.number: _mean(verdict, metric) for verdict in verdicts}
    return {number: score for number, score in scores.items() if np.isfinite(score)}


def _mean(verdict: Verdict, metric: Any) -> float:
    return _mean_of(verdict.test, metric)


def _mean_of(test: Sequence[Any], metric: Any) -> float:
    scores = [s[metric] if isinstance(s, dict) else s for s in test]
    known = [float(score) for score in scores if score is not None]
    mean = float(np.mean(known)) if len(known) == len(scores) and known else -np.inf
    return mean if np.isfinite(mean) else -np.inf
