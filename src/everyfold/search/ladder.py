"""Low rank for the whole grid, more where it matters, and the exact kernel for the last few.

A kernel matrix of rank r costs n r² instead of n³. Whether that is enough differs between kernels
and ridges, and is seen only afterwards, so that a search climbs: all candidates at a low rank,
those that are not certain and could still win at twice the rank, and so on; the best are evaluated
on the full matrix, which decides. Every candidate says how far it got.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics._scorer import _BaseScorer, _MultimetricScorer, _PassthroughScorer

from everyfold.execute import map_unordered
from everyfold.kernels import Linear
from everyfold.metrics import Side
from everyfold.operators import Iterative, Nystrom
from everyfold.plan import available_memory
from everyfold.search.candidates import Options
from everyfold.search.setup import Setup
from everyfold.units import Candidate, Trial, Unit, Verdict, run

LADDER_ROWS = 2500
"""From this many rows on a factorisation of the full matrix for every kernel is too slow."""

FIRST_RANK = 128

CERTAIN = 0.03
"""A candidate is certified where the residual trace is at most this share of its ridge."""

CONVERGED = 1e-3
"""A score has converged where twice the rank moves it by less than this share of their spread."""

PROMISE = 2.0
"""A score may still rise by this multiple of what the last doubling of the rank gave."""

CONTENDERS = 3
"""How many candidates are evaluated on the full matrix at first."""

MOST_EXACT = 12

ITERATIVE_ROWS = 10_000
"""From this many rows on the full matrix is iterated with and not factorised."""

ITERATIVE_RANK = 1000


@dataclass
class _Standing:
    """Where one candidate stands."""

    candidate: Candidate
    unit: Unit
    rho: float
    score: float = -np.inf
    gain: float = np.inf
    residual: float = np.inf
    is_full: bool = False
    is_exact: bool = False

    @property
    def is_certified(self) -> bool:
        return not self.is_full and self.residual <= CERTAIN * self.rho

    @property
    def potential(self) -> float:
        is_known = self.is_full or self.is_certified
        return self.score if is_known else self.score + PROMISE * abs(self.gain)


@dataclass(frozen=True)
class LadderSetup(Setup):
    """Rows in memory, too many to factorise the full matrix of every kernel."""

    metric: Any = "score"

    @property
    def seed(self) -> int:
        """Of the landmarks."""
        return _members(self.units[0])[0].model.seed

    def work(self, n_jobs: int | None) -> Iterator[list[Verdict]]:
        """See base class; later verdicts of a candidate replace earlier ones."""
        n = self.data.n
        climb = _Climb([_stand(c, unit) for unit in self.units for c in _members(unit)])
        rank, standings = FIRST_RANK, climb.standings
        while standings and rank <= n // 4:
            structure = Nystrom(rank, random_state=self.seed)
            for verdicts in map_unordered(run, _units(standings, structure), n_jobs, n):
                climb.read(verdicts, self.metric)
                yield climb.marked(verdicts)
            standings, rank = climb.uncertain(), 2 * rank
        while True:
            chosen = climb.contenders()
            if not chosen:
                return
            for verdicts in map_unordered(run, _units(chosen, _full(n, self.seed)), n_jobs, n):
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


def deciding_metric(setup: Setup, scorers: Any, refit: Any) -> str | None:
    """The name of the metric that decides between candidates; None if no single one does.

    A callable of the user's own may give one score or several, which only a call can tell.
    """
    if isinstance(scorers, _MultimetricScorer):
        names = set(scorers._scorers)
    elif isinstance(scorers, _BaseScorer | _PassthroughScorer):
        return "score"
    else:
        sample = _sample_score(setup.units[0].trial)
        if not isinstance(sample, dict):
            return "score"
        names = set(sample)
    return refit if isinstance(refit, str) and refit in names else None


def _sample_score(trial: Trial) -> Any:
    """The score of the true values of one fold; None if there is none."""
    assert trial.judge is not None
    try:
        assert trial.test is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = Side(trial.bench.target, trial.test.parts[:1])
            return trial.judge.score(part.y, part, {})[0]
    except Exception:
        return None  # whatever is wrong will be met again, and told, in the search itself


def ladder(setup: Setup, metric: str | None) -> Setup:
    """The same work, climbing by a metric; as it was, with a note, if there is none to climb by."""
    if metric is None:
        note = (
            "no single metric decides between the candidates (there are several, and refit names "
            "none of them), so that none was set aside at low rank and all were evaluated on the "
            f"full kernel matrix of {setup.n} rows; refit='<metric>' is quicker"
        )
        return replace(setup, notes=(*setup.notes, note))
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
    problem = candidate.model.problem(unit.trial.bench.target, unit.trial.bench.weights)
    return _Standing(candidate, unit, problem.rho(candidate.model.ridges[0], problem.n_active))


def _full(n: int, seed: int) -> Any:
    """The full matrix: factorised while that is quick, else iterated with, held if it fits."""
    if n < ITERATIVE_ROWS:
        return "dense"
    is_held = 2 * 8 * n * n < available_memory()
    return Iterative(rank=ITERATIVE_RANK, is_held=is_held, random_state=seed)


def _units(standings: Sequence[_Standing], structure: Any) -> list[Unit]:
    """Units of some candidates with a structure; low rank stops where the last is certain."""
    by_unit: dict[int, list[_Standing]] = {}
    for standing in standings:
        by_unit.setdefault(id(standing.unit), []).append(standing)
    made = []
    for members in by_unit.values():
        unit = members[0].unit
        chosen = {standing.candidate.number for standing in members}
        operator = structure
        if isinstance(structure, Nystrom):
            trace = unit.trace()
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
        return "converged" if abs(standing.gain) <= CONVERGED * self._spread else "estimated"

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
            if self._status(standing) == "estimated" and standing.potential >= floor
        ]

    def contenders(self) -> list[_Standing]:
        """The next to be evaluated on the full matrix: the best, until none can be much better."""
        done = sum(standing.is_full for standing in self.standings)
        order = sorted(self.standings, key=lambda s: s.potential, reverse=True)
        if done == 0:
            return [standing for standing in order[:CONTENDERS] if np.isfinite(standing.score)]
        known = max(standing.score for standing in self.standings if standing.is_full)
        best = max(self.standings, key=lambda s: s.potential)
        is_settled = best.potential <= known + CONVERGED * self._spread
        return [] if is_settled or done >= MOST_EXACT else [best]


def _mean(verdict: Verdict, metric: Any) -> float:
    scores = [s[metric] if isinstance(s, dict) else s for s in verdict.test]
    known = [float(score) for score in scores if score is not None]
    mean = float(np.mean(known)) if len(known) == len(scores) and known else -np.inf
    return mean if np.isfinite(mean) else -np.inf
