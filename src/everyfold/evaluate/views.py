"""A look at candidates: the exact kernel on one split that holds a few of the folds out together.

A low-rank matrix that leaves much of a kernel out says nothing about that kernel, however little
its score moves with the rank. One split of the full kernel does: all ridges of a kernel share one
reduction, and what is better than another candidate on the same rows is most often better on all.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from everyfold.evaluate.cache import Cache
from everyfold.evaluate.data import Candidate, Data, Task
from everyfold.models.private import safe_indexing
from everyfold.rows.folds import Folds, chosen, joined
from everyfold.types import Index

ROWS_TO_TEST, LARGEST_SHARE = 1000, 0.2
"""Folds are held out together until they have so many rows, or this share of all."""

MOST_ROWS = 2000
"""Of a larger training set so many rows are drawn."""

DOUBT = 3.0
"""Errors on m rows may be too large by this share of them over the root of m."""


def look_at(folds: Folds, seed: int) -> tuple[Index, Index]:
    """The training rows and the test rows of the split that candidates are looked at on.

    Examples
    --------
    >>> train, test = look_at(Folds.leave_one_out(2000), seed=0)
    >>> len(train), len(test)
    (1600, 400)
    """
    t = len(folds)
    # From the middle outwards in large steps: rows may have an order.
    step = next(k for k in range(max(1, int(0.38 * t)), t + 2) if math.gcd(k, t) == 1)
    order = (t // 2 + step * np.arange(t)) % t
    wanted = min(ROWS_TO_TEST, LARGEST_SHARE * folds.n)
    ends = np.cumsum(np.diff(folds.bounds)[order])
    some = order[: 1 + int(np.searchsorted(ends, wanted))].tolist()
    test = np.unique(joined(chosen(folds.tests, some)))
    train = np.setdiff1d(np.arange(folds.n), joined(chosen(folds.helds, some)))
    if len(train) > MOST_ROWS:
        train = np.sort(np.random.default_rng(seed).permutation(train)[:MOST_ROWS])
    return train, test


def looked_at(data: Data) -> Data:
    """The same data with one split, on the rows that it needs, and with the same ridges.

    A ridge is kept as it is in the sum over rows: what it does to a row that is like no other does
    not depend on how many there are.
    """
    kept = data.cache.get("look")
    if kept is None:
        seed = data.candidates[min(data.candidates)].model.seed
        train, test = look_at(removals(data.tasks[0]), seed)
        rows = np.union1d(train, test)
        split = np.searchsorted(rows, train), np.searchsorted(rows, test)
        kept = (_among(data, rows, Folds.from_splits([split], len(rows))),)
        data.cache.put("look", *kept)
    found: Data = kept[0]
    return found


def _among(data: Data, rows: Index, folds: Folds) -> Data:
    X, y = data.X, data.y
    X = safe_indexing(X, rows) if data.is_raw else X[rows]
    y = None if y is None else safe_indexing(y, rows)
    candidates = {k: _in_sum(c, data.tasks[c.task]) for k, c in data.candidates.items()}
    tasks = tuple(_task_among(task, rows, folds) for task in data.tasks)
    return Data(X, y, len(rows), tasks, candidates, is_raw=data.is_raw, cache=Cache())


def _task_among(task: Task, rows: Index, folds: Folds) -> Task:
    target = task.target.among(rows)
    judge = None if task.judge is None else task.judge.among(rows, target)
    return Task(target, task.weights[rows], folds, judge)


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
class Scale:
    """How scores compare: by their errors where the score of perfect predictions is known.

    Attributes
    ----------
    best : float
        That score; NaN if there is none.
    rows : int
        The rows that a look tests.
    """

    best: float
    rows: int

    @property
    def has_errors(self) -> bool:
        """Whether the perfect score is known."""
        return math.isfinite(self.best)

    def promise(self, score: float, look: float, other: float, doubts: float = 1.0) -> float:
        """What a look promises at best, given what it says of another candidate with a known score.

        Where errors are known, chance may have made its own larger than it is; ``doubts`` says how
        many times more than usual is held possible.
        """
        if not (self.has_errors and other < self.best):
            return score + look - other
        share = max(0.5, 1.0 - doubts * DOUBT / math.sqrt(max(1, self.rows)))
        return self.best - share * (self.best - score) * (self.best - look) / (self.best - other)
