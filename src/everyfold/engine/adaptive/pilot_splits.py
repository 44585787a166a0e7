"""Pilot splits: the exact kernel on one split, which holds out a few folds together.

A low-rank matrix that leaves much of a kernel out says little about that kernel, even if its score
hardly changes with the rank. One split with the exact kernel says more: all ridges of a kernel
share one tridiagonal reduction, and a candidate that is better than another on the same test rows
is most often better on all folds. How much of a difference may be chance is estimated as in a
paired test: the test rows are divided into parts, and the errors of two candidates on these parts
are compared. They rise and fall together, so that differences far below their own spread show.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from everyfold._sklearn_private import safe_indexing
from everyfold._typing import Array, Index
from everyfold.engine.records import Cache, Candidate, Data, Outcome, Task
from everyfold.folds import Folds, chosen, joined

# A pilot split holds out folds together until they have so many rows, or this share of all rows.
ROWS_TO_TEST, LARGEST_SHARE = 1000, 0.2

# The largest number of training rows of a pilot split; if there are more, so many are drawn.
MOST_ROWS = 2000

# The largest number of pilot splits; later ones evaluate only the candidates that may still win.
MOST_PILOTS = 5

# The number of parts of the test rows on which errors are compared.
PARTS = 20

# The relative accuracy to which the errors of a pilot split are computed.
ROUGH = 0.003

# Factors of DOUBT and of PAIRED for neighbours of the best.
NEIGHBOURLY, WIDE = 4.0, 2.0

# By chance, an error on m rows may be too large by a share of DOUBT / √m. If the errors on parts of
# the rows are known, it may be too large by PAIRED standard errors of the paired comparison.
DOUBT, PAIRED = 3.0, 3.0


def _turns(folds: Folds) -> list[list[int]]:
    """The folds that each pilot split holds out together; there is at least one split."""
    t = len(folds)
    # From the middle outwards in large steps: rows may have an order.
    step = next(k for k in range(max(1, int(0.38 * t)), t + 2) if math.gcd(k, t) == 1)
    order = (t // 2 + step * np.arange(t)) % t
    wanted = min(ROWS_TO_TEST, LARGEST_SHARE * folds.n)
    sizes = np.diff(folds.bounds)
    turns: list[list[int]] = []
    while len(order) and len(turns) < MOST_PILOTS:
        count = 1 + int(np.searchsorted(np.cumsum(sizes[order]), wanted))
        turns.append(order[:count].tolist())
        order = order[count:]
    return turns


def number_of_pilots(folds: Folds) -> int:
    """How many splits are worth evaluating.

    Where some of the training rows are drawn, others of them would say the same once more.

    Examples
    --------
    >>> number_of_pilots(Folds.leave_one_out(2000)), number_of_pilots(Folds.leave_one_out(9000))
    (5, 1)
    """
    return len(_turns(folds)) if pilots_are_whole(folds) else 1


def pilots_are_whole(folds: Folds) -> bool:
    """Whether pilot splits train on all rows that they do not hold out."""
    held = min(sum(int(folds.sizes[i]) for i in some) for some in _turns(folds))
    return folds.n - held <= MOST_ROWS


def pilots_are_folds(folds: Folds) -> bool:
    """Whether pilot splits are folds as they are, so that all of them leave nothing to chance."""
    return pilots_are_whole(folds) and len(_turns(folds)) == len(folds)


def pilot_split(folds: Folds, seed: int, number: int = 1) -> tuple[Index, Index]:
    """The training rows and the test rows of a split that candidates are compared on.

    Pilot splits have numbers from 1 on.

    Examples
    --------
    >>> train, test = pilot_split(Folds.leave_one_out(2000), seed=0)
    >>> len(train), len(test)
    (1600, 400)
    """
    some = _turns(folds)[number - 1]
    test = np.unique(joined(chosen(folds.tests, some)))
    train = np.setdiff1d(np.arange(folds.n), joined(chosen(folds.helds, some)))
    if len(train) > MOST_ROWS:
        train = np.sort(np.random.default_rng(seed).permutation(train)[:MOST_ROWS])
    return train, test


def on_pilot_split(data: Data, number: int = 1) -> Data:
    """The same data with a pilot split, on the rows that it needs, and with the same ridges.

    A ridge is kept as it is in the sum over rows: what it does to a row that is like no other does
    not depend on how many there are.
    """
    kept = data.cache.get(("pilot split", number))
    if kept is None:
        seed = data.candidates[min(data.candidates)].model.seed
        train, test = pilot_split(removals(data.tasks[0]), seed, number)
        rows = np.union1d(train, test)
        split = np.searchsorted(rows, train), np.searchsorted(rows, test)
        kept = (_restrict(data, rows, Folds.from_splits([split], len(rows))),)
        data.cache.put(("pilot split", number), *kept)
    found: Data = kept[0]
    return found


def _restrict(data: Data, rows: Index, folds: Folds) -> Data:
    X, y = data.X, data.y
    X = safe_indexing(X, rows) if data.is_raw else X[rows]
    y = None if y is None else safe_indexing(y, rows)
    kept = data.cache.get("candidates of pilots")
    if kept is None:
        kept = ({k: _in_sum(c, data.tasks[c.task]) for k, c in data.candidates.items()},)
        data.cache.put("candidates of pilots", *kept)
    tasks = tuple(_restrict_task(task, rows, folds) for task in data.tasks)
    return Data(X, y, len(rows), tasks, kept[0], is_raw=data.is_raw, cache=Cache())


def _restrict_task(task: Task, rows: Index, folds: Folds) -> Task:
    target = task.target.restrict(rows)
    judge = None if task.judge is None else task.judge.restrict(rows, target)
    return Task(target, task.weights[rows], folds, judge, keeps_values=True)


def errors_of(outcome: Outcome, seen: Data) -> Array | None:
    """The errors on each part of the rows of a pilot split; None where scores are no sums."""
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
    """How scores are compared: by errors, i.e. perfect score − score, if the perfect one is known.

    Attributes
    ----------
    best : float
        That score; NaN if there is none.
    rows : int
        The rows that a pilot split tests.
    pilots : int
        How many pilot splits are all folds; 0 if they never are.
    """

    best: float
    rows: int
    pilots: int = 0

    @property
    def has_errors(self) -> bool:
        """Whether the perfect score is known."""
        return math.isfinite(self.best)

    def predict(
        self, score: float, pilot: Array, other: float, doubt: Array | float = 0.0
    ) -> Array:
        """Scores from pilot splits, given another candidate with a known ``score``.

        The ratio of their errors is taken to be that of the pilot split (the difference of the
        scores if there is no perfect score). With a ``doubt`` it is an upper limit: the
        candidate's error may be too large by that share.
        """
        if not (self.has_errors and other < self.best):
            return score + pilot - other
        share = np.maximum(0.5, 1.0 - np.asarray(doubt))
        error: Array = share * (self.best - score) * (self.best - pilot) / (self.best - other)
        return self.best - error

    def blended(self, score: float, pilot: float, other: float, likeness: float) -> float:
        """The score of a candidate from its pilot split, which was off for another by some factor.

        That factor counts to the power of ``likeness``: not at all for 0, in full for 1.

        Examples
        --------
        >>> [round(Scale(1.0, 400).blended(0.9, 0.2, 0.8, part), 2) for part in (0.0, 0.5, 1.0)]
        [0.2, 0.43, 0.6]
        """
        if not (self.has_errors and max(pilot, other) < self.best and score <= self.best):
            return float(self.predict(score, np.asarray(pilot), other))
        factor = (self.best - score) / (self.best - other)
        return float(self.best - (self.best - pilot) * factor**likeness)

    def doubt(
        self,
        errors: Array | None,
        others: Array | None,
        pilots: int = 1,
        *,
        is_wide: bool = False,
    ) -> Array | float:
        """By which share of itself an error may be too large by chance, compared with another's.

        From the parts of the test rows if both have errors there, (..., parts), else from the
        number of rows. Pilot splits at all folds leave nothing to chance. ``is_wide`` is for
        neighbours of the best.

        Examples
        --------
        >>> errors = np.arange(1.0, 21.0)
        >>> float(Scale(0.0, 400).doubt(errors, 2.0 * errors)), Scale(0.0, 400).doubt(None, None)
        (0.003, 0.153)
        """
        left = math.sqrt(max(0.0, 1.0 - pilots / self.pilots)) if self.pilots else 1.0
        rows = max(1, pilots * self.rows)
        by_rows = ROUGH + (NEIGHBOURLY if is_wide else 1.0) * left * DOUBT / math.sqrt(rows)
        if errors is None or others is None or not others.sum() > 0.0:
            return by_rows
        total = errors.sum(axis=-1, keepdims=True)
        has_errors = total > 0.0
        apart = errors / np.where(has_errors, total, 1.0) - others / others.sum()
        parts = len(others)
        noise = np.sqrt(parts / (parts - 1) * (apart * apart).sum(axis=-1))
        by_parts = ROUGH + (WIDE if is_wide else 1.0) * left * PAIRED * noise
        return np.where(has_errors[..., 0], by_parts, by_rows)
