"""A second look at candidates: the exact kernel of all folds on a sample of the rows.

A low-rank matrix that leaves much of a kernel out says nothing about that kernel, however little
its score moves with the rank. A sample of rows does: the error of a model falls with the number of
rows about as a power of it, so that two samples tell where it is heading.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold.criteria import Folds
from everyfold.execute import map_unordered
from everyfold.operators.base import Rows
from everyfold.units import Candidate, Trial, Unit, Verdict, run, set_up

FEWEST_ROWS, MOST_ROWS = 1000, 2500
"""How many rows the larger sample has, if a quarter of all rows is not in between."""

LARGEST_SHARE = 0.4

FEW_TO_TEST = 20
"""A fold that would keep fewer test rows than this is taken as a whole, or not at all."""

HOPE = 0.25
"""Twice the rows hardly ever leave less than this share of a candidate's error."""

OPTIMISM = 1.5
"""The power at which the error falls from one sample to the next may be this much larger later."""

CHANCE = 4.0
"""The error of m rows that is promised may be smaller by this share of it over the root of m."""


def sample_size(n: int) -> int:
    """The rows of the larger sample of n; the smaller one has half of them.

    Examples
    --------
    >>> [sample_size(n) for n in (400, 2600, 6000, 100_000)]
    [160, 1000, 1500, 2500]
    """
    return min(max(n // 4, min(FEWEST_ROWS, int(LARGEST_SHARE * n))), MOST_ROWS)


def draw(folds: Folds, count: int, seed: int) -> Rows:
    """About ``count`` rows at random, in order; whole folds of them where folds are small."""
    rng = np.random.default_rng(seed)
    mean = float(np.mean([len(test) for test in folds.tests]))
    if mean * count / folds.n >= FEW_TO_TEST:
        return np.sort(rng.permutation(folds.n)[:count])
    order = rng.permutation(len(folds))
    ends = np.cumsum([len(folds.helds[i]) for i in order])
    chosen = order[: 1 + int(np.searchsorted(ends, count))]
    return np.unique(np.concatenate([folds.helds[i] for i in chosen]))[:count]


def on_sample(units: Sequence[Unit], rows: Rows) -> list[Unit]:
    """The same units on some of the rows, with the full matrix of these and the same ridges.

    A ridge is kept as it is in the sum over rows: what it does to a row that is like no other does
    not depend on how many there are.
    """
    trials: dict[int, Trial] = {}
    materials: dict[int, Any] = {}
    made = []
    for unit in units:
        key, stock = id(unit.trial), id(unit.material)
        if key not in trials:
            trials[key] = _trial_on(unit.trial, rows)
        if stock not in materials:
            materials[stock] = unit.material.among(rows)
        groups = tuple(tuple(_in_sum(c, unit.trial) for c in group) for group in unit.groups)
        made.append(Unit(materials[stock], groups, trials[key]))
    return made


def _trial_on(trial: Trial, rows: Rows) -> Trial:
    bench = trial.bench
    target = bench.target.among(rows)
    smaller = replace(
        bench, target=target, weights=bench.weights[rows], folds=bench.folds.among(rows)
    )
    return set_up(smaller, None if trial.judge is None else trial.judge.among(rows, target))


def ridge_of(candidate: Candidate, trial: Trial) -> float:
    """The candidate's ridge of the sum over all rows."""
    problem = candidate.model.problem(trial.bench.target, trial.bench.weights)
    return problem.rho(candidate.model.ridges[0], problem.n_active)


def _in_sum(candidate: Candidate, trial: Trial) -> Candidate:
    ridges = (ridge_of(candidate, trial),)
    model = replace(candidate.model, ridges=ridges, ridge_scaling="sum", operator="dense")
    return replace(candidate, model=model)


def look(units: Sequence[Unit], rows: Rows, n_jobs: int | None) -> list[Verdict]:
    """The verdicts of all candidates on a sample; what a scorer says about so few rows is quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = map_unordered(run, on_sample(units, rows), n_jobs, len(rows))
        return [verdict for verdicts in found for verdict in verdicts]


def perfect_scores(trial: Trial) -> list[Any]:
    """The scores, fold by fold, of predictions that are all right."""
    if trial.judge is None or trial.test is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trial.judge.score(trial.test.y, trial.test, trial.lacking)


@dataclass(frozen=True)
class Curve:
    """What is known of a score as a function of the number of rows.

    Attributes
    ----------
    best : float
        The score of perfect predictions.
    n : int
        The number of all rows.
    """

    best: float
    n: int

    def bound(self, score: float, m: int) -> float:
        """What a score on m rows can hardly exceed on all."""
        return self._continued(score, HOPE, m)

    def promise(self, half: float, score: float, m: int) -> float:
        """What scores on m/2 and m rows promise for all: the error falls on, and a bit faster."""
        error, before = self.best - score, self.best - half
        is_falling = 0.0 < error < before
        ratio = max(HOPE, (error / before) ** OPTIMISM) if is_falling else 1.0
        share = max(0.5, 1.0 - CHANCE / math.sqrt(m))
        return self.better(self._continued(score, ratio, m), share)

    def better(self, score: float, share: float) -> float:
        """The score whose error is this share of another's."""
        return self.best - share * (self.best - score)

    def ratio(self, score: float, other: float) -> float:
        """The error of a score as a share of another's."""
        return (self.best - score) / (self.best - other) if other < self.best else 1.0

    def _continued(self, score: float, ratio: float, m: int) -> float:
        return self.best - (self.best - score) * float(ratio ** math.log2(self.n / m))
