"""A look at candidates: the exact kernel on one split that holds a few of the folds out together.

A low-rank matrix that leaves much of a kernel out says nothing about that kernel, however little
its score moves with the rank. One split of the full kernel does: all ridges of a kernel share one
reduction, and what is better than another candidate on the same rows is most often better on all.
How much of a difference is chance is told by the parts of these rows: errors of two candidates go
up and down together, so that far smaller differences than their own spread are seen.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from everyfold.evaluate.cache import Cache
from everyfold.evaluate.data import Candidate, Data, Outcome, Task
from everyfold.models.private import safe_indexing
from everyfold.rows.folds import Folds, chosen, joined
from everyfold.types import Array, Index

ROWS_TO_TEST, LARGEST_SHARE = 1000, 0.2
"""Folds are held out together until they have so many rows, or this share of all."""

MOST_ROWS = 2000
"""Of a larger training set so many rows are drawn."""

MOST_LOOKS = 5
"""So many splits are looked at, those after the first by the candidates that are left."""

PARTS = 20
"""Of the test rows, whose errors are compared between candidates."""

ROUGH = 0.003
"""By which share of themselves errors of a look may be off by rounding."""

NEIGHBOURLY, WIDE = 4.0, 2.0
"""Of a neighbour of the best so many times more is held possible, by rows or by their parts."""

DOUBT, PAIRED = 3.0, 3.0
"""Errors on m rows may be too large by this share of them over the root of m.

Or, where the parts of the rows are known, by so many standard errors of the comparison.
"""


def _turns(folds: Folds) -> list[list[int]]:
    """The folds that are held out together, for one look after the other; at least for one."""
    t = len(folds)
    # From the middle outwards in large steps: rows may have an order.
    step = next(k for k in range(max(1, int(0.38 * t)), t + 2) if math.gcd(k, t) == 1)
    order = (t // 2 + step * np.arange(t)) % t
    wanted = min(ROWS_TO_TEST, LARGEST_SHARE * folds.n)
    sizes = np.diff(folds.bounds)
    turns: list[list[int]] = []
    while len(order) and len(turns) < MOST_LOOKS:
        count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), wanted))
        turns.append(order[:count].tolist())
        order = order[count:]
    return turns


def number_of_looks(folds: Folds) -> int:
    """How many splits are worth a look.

    Where some of the training rows are drawn, others of them would say the same once more.

    Examples
    --------
    >>> number_of_looks(Folds.leave_one_out(2000)), number_of_looks(Folds.leave_one_out(9000))
    (5, 1)
    """
    return len(_turns(folds)) if looks_are_whole(folds) else 1


def looks_are_whole(folds: Folds) -> bool:
    """Whether looks train on all rows that they do not hold out."""
    held = min(sum(int(folds.sizes[i]) for i in some) for some in _turns(folds))
    return folds.n - held <= MOST_ROWS


def looks_are_folds(folds: Folds) -> bool:
    """Whether looks are folds as they are, so that all of them leave nothing to chance."""
    return looks_are_whole(folds) and len(_turns(folds)) == len(folds)


def look_at(folds: Folds, seed: int, number: int = 1) -> tuple[Index, Index]:
    """The training rows and the test rows of a split that candidates are looked at on.

    Looks have numbers from 1 on.

    Examples
    --------
    >>> train, test = look_at(Folds.leave_one_out(2000), seed=0)
    >>> len(train), len(test)
    (1600, 400)
    """
    some = _turns(folds)[number - 1]
    test = np.unique(joined(chosen(folds.tests, some)))
    train = np.setdiff1d(np.arange(folds.n), joined(chosen(folds.helds, some)))
    if len(train) > MOST_ROWS:
        train = np.sort(np.random.default_rng(seed).permutation(train)[:MOST_ROWS])
    return train, test


def looked_at(data: Data, number: int = 1) -> Data:
    """The same data with the split of a look, on the rows that it needs, and with the same ridges.

    A ridge is kept as it is in the sum over rows: what it does to a row that is like no other does
    not depend on how many there are.
    """
    kept = data.cache.get(("look", number))
    if kept is None:
        seed = data.candidates[min(data.candidates)].model.seed
        train, test = look_at(removals(data.tasks[0]), seed, number)
        rows = np.union1d(train, test)
        split = np.searchsorted(rows, train), np.searchsorted(rows, test)
        kept = (_among(data, rows, Folds.from_splits([split], len(rows))),)
        data.cache.put(("look", number), *kept)
    found: Data = kept[0]
    return found


def _among(data: Data, rows: Index, folds: Folds) -> Data:
    X, y = data.X, data.y
    X = safe_indexing(X, rows) if data.is_raw else X[rows]
    y = None if y is None else safe_indexing(y, rows)
    kept = data.cache.get("candidates of looks")
    if kept is None:
        kept = ({k: _in_sum(c, data.tasks[c.task]) for k, c in data.candidates.items()},)
        data.cache.put("candidates of looks", *kept)
    tasks = tuple(_task_among(task, rows, folds) for task in data.tasks)
    return Data(X, y, len(rows), tasks, kept[0], is_raw=data.is_raw, cache=Cache())


def _task_among(task: Task, rows: Index, folds: Folds) -> Task:
    target = task.target.among(rows)
    judge = None if task.judge is None else task.judge.among(rows, target)
    return Task(target, task.weights[rows], folds, judge, keeps_values=True)


def errors_of(outcome: Outcome, seen: Data) -> Array | None:
    """The errors of a look on each part of its rows; None where scores are no sums over rows."""
    task = seen.tasks[seen.candidates[outcome.number].task]
    side, judge = task.whole.test, task.judge
    if judge is None or outcome.values is None or len(side.y) < 2 * PARTS:
        return None
    perfect, found = (judge.by_row(values, side) for values in (side.y, outcome.values))
    if perfect is None or found is None:
        return None
    parts = np.arange(len(found)) % PARTS
    return np.asarray(np.bincount(parts, perfect - found, PARTS))


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
    looks : int
        How many looks are all folds; 0 if they never are.
    """

    best: float
    rows: int
    looks: int = 0

    @property
    def has_errors(self) -> bool:
        """Whether the perfect score is known."""
        return math.isfinite(self.best)

    def promise(self, score: float, look: float, other: float, doubt: float = 0.0) -> float:
        """What a look promises, given what it says of another candidate with a known score.

        Where errors are known, chance may have made its own larger by ``doubt``, a share of it.
        """
        if not (self.has_errors and other < self.best):
            return score + look - other
        share = max(0.5, 1.0 - doubt)
        return self.best - share * (self.best - score) * (self.best - look) / (self.best - other)

    def told(self, score: float, look: float, other: float, likeness: float) -> float:
        """What a look tells, if only a part of what it says of another is said of all alike.

        Examples
        --------
        >>> [round(Scale(1.0, 400).told(0.9, 0.2, 0.8, part), 2) for part in (0.0, 0.5, 1.0)]
        [0.2, 0.43, 0.6]
        """
        if not (self.has_errors and max(look, other) < self.best and score <= self.best):
            return self.promise(score, look, other)
        factor = (self.best - score) / (self.best - other)
        return float(self.best - (self.best - look) * factor**likeness)

    def doubt(
        self,
        errors: Array | None,
        others: Array | None,
        looks: int = 1,
        *,
        is_wide: bool = False,
    ) -> float:
        """By which share of itself an error may be too large, compared with that of another.

        Parts of the rows tell, where they are known of both; else the number of rows. A wide doubt
        holds more possible. Once all folds have been looked at, values are off by rounding only.

        Examples
        --------
        >>> errors = np.arange(1.0, 21.0)
        >>> Scale(0.0, 400).doubt(errors, 2.0 * errors), Scale(0.0, 400).doubt(None, None)
        (0.003, 0.153)
        """
        left = math.sqrt(max(0.0, 1.0 - looks / self.looks)) if self.looks else 1.0
        if errors is None or others is None or not (errors.sum() > 0.0 and others.sum() > 0.0):
            rows = max(1, looks * self.rows)
            return ROUGH + (NEIGHBOURLY if is_wide else 1.0) * left * DOUBT / math.sqrt(rows)
        apart = errors / errors.sum() - others / others.sum()
        noise = math.sqrt(len(apart) / (len(apart) - 1) * float(apart @ apart))
        return ROUGH + (WIDE if is_wide else 1.0) * left * PAIRED * noise
