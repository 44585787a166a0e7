"""Permuted targets: further columns of one task where that is possible, else further tasks.

For squared loss all permutations share every factorisation. Where the splitter gives each of them
the same folds, they are columns of one target; where it looks at y (stratified folds), every fold
has columns of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from numbers import Integral
from typing import Self

import numpy as np
from sklearn import model_selection as splitters

from everyfold._typing import AnyArray, Array, Index, Score, Splitter, Targets
from everyfold.engine.records import Candidate, Task
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scorers import FoldScorer, take
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.targets import Target
from everyfold.folds import Folds

# Held-out values of a task: more permutations are several tasks.
_MOST_VALUES = 1 << 24

# Values that are scored at a time: more need more memory, and fewer more calls. From 2**14 on 1,000
# permutations of 200 labels take the same time; areas under ROC curves need many folds at a time.
_MOST_SCORED = 1 << 20

_BLIND_TO_Y = (
    splitters.GroupKFold,
    splitters.GroupShuffleSplit,
    splitters.KFold,
    splitters.LeaveOneGroupOut,
    splitters.LeaveOneOut,
    splitters.LeavePGroupsOut,
    splitters.LeavePOut,
    splitters.PredefinedSplit,
    splitters.RepeatedKFold,
    splitters.ShuffleSplit,
    splitters.TimeSeriesSplit,
)


@dataclass(frozen=True)
class PermutedTarget(Target):
    """A target in several orders of its rows, as for permutation tests: columns beside each other.

    Attributes
    ----------
    base : Target
    orders : int array of shape (versions, n)
    """

    base: Target
    orders: Index
    classes = None

    @cached_property
    def columns(self) -> Array:  # type: ignore[override]  # an attribute of other targets
        """Those of all versions, one version after the other."""
        return self.base.columns[self.orders.T].reshape(self.orders.shape[1], -1)

    def __len__(self) -> int:
        return len(self.orders)

    def __getitem__(self, i: int) -> Target:
        return self.base.permuted(self.orders[i])

    def predict(self, values: Array) -> AnyArray:
        """See base class; versions are asked one by one."""
        raise TypeError("several versions of a target predict one by one: versions[i].predict")

    decide = predict

    def restrict(self, rows: Index) -> Self:
        """See base class."""
        raise TypeError("a permuted target has no rows of its own to choose from")


def permuted(
    request: Request, candidate: Candidate, task: Task, split: Callable[[Targets], Folds]
) -> tuple[tuple[Task, ...], list[Candidate]]:
    """The tasks of all orders of y, and a candidate for each; ``task`` is the one of y itself."""
    orders = np.stack(list(request.orders))
    folds = [task.folds]
    if not _gives_the_same(request.cv, task.target):
        folds += [split(take(request.y, order)) for order in orders[1:]]
    _check_numbers(folds)
    versions = PermutedTarget(task.target, orders)
    if _shares_all(candidate, task, versions, folds):
        tasks = tuple(_together(task, versions, folds))
    else:
        each = folds if len(folds) > 1 else folds * len(orders)
        tasks = tuple(_alone(task, versions, i, own) for i, own in enumerate(each))
    return tasks, [replace(candidate, number=i, task=i) for i in range(len(tasks))]


def _gives_the_same(cv: Splitter, target: Target) -> bool:
    """Whether a splitter gives the same folds for every order of y."""
    if cv is None or isinstance(cv, Integral):
        return target.classes is None  # stratified for labels
    if not hasattr(cv, "split"):
        return True  # an iterable of splits
    draws = getattr(cv, "shuffle", hasattr(cv, "random_state"))
    return type(cv) in _BLIND_TO_Y and (not draws or isinstance(cv.random_state, Integral))


def _check_numbers(folds: Sequence[Folds]) -> None:
    counts = sorted({len(own) for own in folds})
    if len(counts) > 1:
        raise ValueError(f"cv gives between {counts[0]} and {counts[-1]} splits for permuted y")


def _shares_all(
    candidate: Candidate, task: Task, versions: PermutedTarget, folds: Sequence[Folds]
) -> bool:
    """Whether one factorisation serves all orders, with folds in common or each with its own."""
    model, target = candidate.model, task.target
    is_plain = model.loss.has_constant_curvature and not model.chooses_ridge and not model.warp
    if not is_plain or len(model.ridges) > 1 or model.class_weight is not None or target.has_pairs:
        return False
    if not all(map(target.is_complete_in_any_order, folds)):
        each = chain(folds, (folds[0] for _ in range(len(versions) - len(folds))))
        if any(versions[i].incomplete(own) for i, own in enumerate(each)):
            return False
    return len(folds) == 1 or _has_one_kernel(candidate, task, folds)


def _has_one_kernel(candidate: Candidate, task: Task, folds: Sequence[Folds]) -> bool:
    """Whether folds of any kind are read from the response of all rows, which always exists."""
    model = candidate.model
    is_own = model.choice.depends_on_rows or model.choice.is_precomputed or candidate.parts.steps
    is_definite = model.choice.resolve_for_any().is_semidefinite and model.ridges[0] > 0.0
    if is_own or not is_definite or model.operator not in ("auto", "dense"):
        return False
    is_removal = all(own.are_removable for own in folds) and not task.with_train
    return is_removal and model.ridge_scaling == "sum" and bool((task.weights > 0.0).all())


def _alone(task: Task, versions: PermutedTarget, i: int, folds: Folds) -> Task:
    """The task of one order."""
    assert task.judge is not None
    versions[i].check_weights(task.weights, folds)
    judge = task.judge.ordered(versions.orders[i], versions[i])
    return replace(task, target=versions[i], folds=folds, judge=judge)


def _together(task: Task, versions: PermutedTarget, folds: Sequence[Folds]) -> Iterator[Task]:
    """The orders as columns, as many a task as there is room for."""
    assert task.judge is not None
    count = max(1, _MOST_VALUES // max(1, int(task.folds.bounds[-1]) * task.width))
    for start in range(0, len(versions), count):
        part = PermutedTarget(versions.base, versions.orders[start : start + count])
        own = folds[start : start + count] if len(folds) > 1 else folds
        judge = OrderedJudge(task.judge, part, len(task.folds) if len(folds) > 1 else None)
        owners = None
        if len(folds) > 1:
            owners = tuple(i for i, item in enumerate(own) for _ in range(len(item)))
        yield replace(task, target=part, folds=_joined(own), judge=judge, owners=owners)


def _joined(folds: Sequence[Folds]) -> Folds:
    """The folds of all, one after the other; all are removals if there are several."""
    if len(folds) == 1:
        return folds[0]
    tests = tuple(chain.from_iterable(own.tests for own in folds))
    return Folds(folds[0].n, tests, tuple(chain.from_iterable(own.helds for own in folds)))


class OrderedJudge(FoldScorer):
    """Scores every order of y: an array of them for each fold, or one where folds are their own.

    Parameters
    ----------
    judge : FoldScorer
        Of y itself.
    versions : PermutedTarget
    n_folds : int, optional
        The number of folds of every order, where each has its own, one after the other.
    """

    def __init__(self, judge: FoldScorer, versions: PermutedTarget, n_folds: int | None) -> None:
        self.__dict__.update(judge.__dict__)
        self._base, self._versions, self._n_folds = judge, versions, n_folds
        self.needs_errors_only = False  # scores are needed by column

    def pooled(self, names: Collection[str]) -> FoldScorer:
        """See base class."""
        return OrderedJudge(self._base.pooled(names), self._versions, self._n_folds)

    def score(self, values: Array, side: ScoredRows, trains: object) -> list[Score]:
        """See base class; no fold lacks a class."""
        if self._n_folds is not None:
            return self._score_own(values, side, self._n_folds)
        count = len(self._versions)
        table = self._base.by_column(values, side)
        if table is not None:
            return list(table.reshape(len(table), count, -1).mean(axis=2))
        parts = np.split(values, count, axis=1)
        known = self._together(parts, [side.parts] * count)
        if known is None:
            known = [self._score_one(i, part, side.parts) for i, part in enumerate(parts)]
        return list(np.array(known, dtype=np.float64).T)

    def _score_own(self, values: Array, side: ScoredRows, n_folds: int) -> list[Score]:
        count = len(self._versions)
        known = self._together(
            np.split(values, side.bounds[n_folds:-1:n_folds]),
            [side.parts[i * n_folds : (i + 1) * n_folds] for i in range(count)],
        )
        if known is not None:
            return list(chain.from_iterable(known))
        scores: list[Score] = []
        for i in range(count):
            first, last = side.bounds[[i * n_folds, (i + 1) * n_folds]]
            parts = side.parts[i * n_folds : (i + 1) * n_folds]
            scores += self._score_one(i, values[first:last], parts)
        return scores

    def _together(
        self, values: Sequence[Array], parts: Sequence[Sequence[Index]]
    ) -> Sequence[Sequence[Score]] | None:
        """The scores of all versions as if they were further folds of one long target.

        None if one of them is not known: roundings of scikit-learn's are for all or for none.
        """
        orders, n = self._versions.orders, self._versions.orders.shape[1]
        count = max(1, len(values) * values[0].size // _MOST_SCORED)
        found: list[Sequence[Score]] = []
        for some in np.array_split(np.arange(len(values)), count):
            target = self._versions.base.restrict(orders[some].ravel())
            rows = [part + n * k for k, i in enumerate(some.tolist()) for part in parts[i]]
            own = np.concatenate([values[i] for i in some.tolist()])
            scores = self._base.known_scores(own, ScoredRows(target, rows))
            if scores is None:
                return None
            found += list(scores.reshape(len(some), -1))
        return found

    def _score_one(self, i: int, values: Array, parts: Sequence[Index]) -> Sequence[Score]:
        target = self._versions[i]
        judge = self._base.ordered(self._versions.orders[i], target)
        return judge.score(values, ScoredRows(target, parts), {})
