"""A second look at candidates: the exact kernel of all folds on a sample of the rows.

A low-rank matrix that leaves much of a kernel out says nothing about that kernel, however little
its score moves with the rank. A sample of rows does: the error of a model falls with the number of
rows about as a power of it, so that two samples tell where it is heading.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from everyfold.evaluate.cache import Cache
from everyfold.evaluate.data import Candidate, Data, Task
from everyfold.models.private import safe_indexing
from everyfold.rows.folds import Folds
from everyfold.types import Index

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


def draw(folds: Folds, count: int, seed: int) -> Index:
    """About ``count`` rows at random, in order; whole folds of them where folds are small."""
    rng = np.random.default_rng(seed)
    mean = float(np.mean([len(test) for test in folds.tests]))
    if mean * count / folds.n >= FEW_TO_TEST:
        return np.sort(rng.permutation(folds.n)[:count])
    order = rng.permutation(len(folds))
    ends = np.cumsum([len(folds.helds[i]) for i in order])
    chosen = order[: 1 + int(np.searchsorted(ends, count))]
    return np.unique(np.concatenate([folds.helds[i] for i in chosen]))[:count]


def sampled(data: Data, sizes: tuple[int, ...], seed: int) -> Data:
    """The same data on samples of the rows, each of the one before, with the same ridges.

    A ridge is kept as it is in the sum over rows: what it does to a row that is like no other does
    not depend on how many there are.
    """
    if not sizes:
        return data
    kept = data.cache.get(("sample", sizes, seed))
    if kept is None:
        larger = sampled(data, sizes[:-1], seed)
        kept = (_among(larger, draw(larger.tasks[0].folds, sizes[-1], seed)),)
        data.cache.put(("sample", sizes, seed), *kept)
    found: Data = kept[0]
    return found


def _among(data: Data, rows: Index) -> Data:
    X, y = data.X, data.y
    X = safe_indexing(X, rows) if data.is_raw else X[rows]
    y = None if y is None else safe_indexing(y, rows)
    candidates = {k: _in_sum(c, data.tasks[c.task]) for k, c in data.candidates.items()}
    tasks = tuple(_task_among(task, rows) for task in data.tasks)
    return Data(X, y, len(rows), tasks, candidates, is_raw=data.is_raw, cache=Cache())


def _task_among(task: Task, rows: Index) -> Task:
    target = task.target.among(rows)
    judge = None if task.judge is None else task.judge.among(rows, target)
    return Task(target, task.weights[rows], removals(task).among(rows), judge)


def removals(task: Task) -> Folds:
    """The folds of a task as removals of rows; those of Pipelines are taken literally else."""
    return task.folds if task.folds.are_removable else task.as_removals().folds


def ridge_of(candidate: Candidate, task: Task) -> float:
    """The candidate's ridge of the sum over all rows."""
    problem = candidate.model.problems(task.target, task.weights)[0]
    return problem.rho(candidate.model.ridges[0], problem.n_counted)


def _in_sum(candidate: Candidate, task: Task) -> Candidate:
    model = candidate.model
    if model.ridge_scaling == "sum" and model.operator == "dense":
        return candidate
    ridges = (ridge_of(candidate, task),)
    model = replace(model, ridges=ridges, ridge_scaling="sum", operator="dense")
    return replace(candidate, model=model)


def perfect_score(task: Task, metric: str) -> float:
    """The mean score of predictions that are all right; NaN if there is none."""
    if task.judge is None:
        return math.nan
    side = task.whole.test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scores = task.judge.score(side.y, side, task.whole.lacking)
        except Exception:
            return math.nan
    return float(np.mean([s[metric] if isinstance(s, dict) else s for s in scores]))


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
