"""Splitters whose training sets lack more than the rows they test.

Leave-one-out takes a row of one class out of the training set, so that the model leans towards the
other classes exactly where that is wrong; :class:`LeavePairOut` and :class:`RebalancedLeaveOneOut`
avoid this. Rows near a tested one, in space or in time, tell its value;
:class:`BufferedLeaveOneOut` and :class:`PurgedTimeSeriesSplit` leave them out as well. All of them
are splitters of scikit-learn, and can be passed as ``cv=`` there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_random_state, column_or_1d, indexable
from sklearn.utils.multiclass import type_of_target

from everyfold._progress import warn
from everyfold._sklearn_private import num_samples
from everyfold._typing import AnyArray, Array, Index, Matrix, RandomState, Targets
from everyfold.folds import EqualSets

# The rows that each split tests, and those that it leaves out of training.
TestedAndHeld: TypeAlias = tuple[Sequence[Index], Sequence[Index]]


class HeldOutSets(BaseCrossValidator):  # type: ignore[misc]
    """A splitter that says which rows are tested, and which more are left out of training."""

    @abstractmethod
    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """The rows that each split tests, and those that it leaves out of training.

        Both at once are all that this library needs of n² splits, whose training sets would be n³
        numbers.
        """

    def split(
        self, X: Matrix, y: Targets = None, groups: Targets = None
    ) -> Iterator[tuple[Index, Index]]:
        """Generate indices of training and test rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
        groups : object
            Ignored, with a warning.

        Yields
        ------
        train, test : int arrays
        """
        self._ignore(groups)
        X, y = indexable(X, y)
        inside = np.ones(num_samples(X), dtype=bool)
        for test, held in zip(*self.held_out_sets(X, y), strict=True):
            inside[held] = False
            yield np.flatnonzero(inside), np.array(test)
            inside[held] = True

    def get_n_splits(self, X: Matrix = None, y: Targets = None, groups: Targets = None) -> int:
        """The number of splits.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
        groups : object
            Ignored.
        """
        if X is None:
            raise ValueError("The 'X' parameter should not be None.")  # scikit-learn's words
        return int(num_samples(X))

    def _ignore(self, groups: Targets) -> None:
        if groups is not None:
            warn(f"The groups parameter is ignored by {type(self).__name__}")


def _class_codes(y: Targets, who: str, advice: str = "") -> tuple[Index, Index]:
    """The number of the class of each row, and the rows of each class."""
    if y is None:
        raise ValueError(f"{who} needs y, the class of each row; pass y to split")
    labels = column_or_1d(y)
    kind = type_of_target(labels)
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"{who} needs classes, but y is {kind}{advice}")
    codes, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    if len(counts) < 2:
        raise ValueError(f"{who} needs rows of two classes, but y has one class only")
    return codes, counts


def _check_count(name: str, value: object, least: int, advice: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}={value!r} is not allowed; use {advice}")
    return int(value)


class LeavePairOut(HeldOutSets):
    """Leave out pairs of rows of unlike classes: the unbiased way to the area under the ROC curve.

    Each split tests two rows and trains on all others. The area under the ROC curve of a split is 1
    if the row of the positive class gets the larger decision value, and 0 if not (1/2 for a tie):
    the mean of ``scoring="roc_auc"`` over all splits estimates the area without the bias that
    leave-one-out has (Airola et al. 2011).

    Parameters
    ----------
    n_pairs : int, optional
        The number of pairs, drawn without replacement; by default all of them.
    random_state : int, RandomState or None, default=None
        Seed of the pairs that are drawn.

    Notes
    -----
    **Cost** with squared loss: one factorisation, and O(1) for each pair. Other losses need a fit
    for each pair; ``n_pairs`` limits them.

    References
    ----------
    A. Airola, T. Pahikkala, W. Waegeman, B. De Baets, T. Salakoski (2011). An experimental
    comparison of cross-validation techniques for estimating the area under the ROC curve.
    Computational Statistics & Data Analysis 55.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold import LeavePairOut
    >>> X, y = np.zeros((4, 1)), np.array([0, 0, 0, 1])
    >>> [test.tolist() for _, test in LeavePairOut().split(X, y)]
    [[0, 3], [1, 3], [2, 3]]
    """

    def __init__(self, n_pairs: int | None = None, *, random_state: RandomState = None) -> None:
        self.n_pairs = n_pairs
        self.random_state = random_state

    def get_n_splits(self, X: Matrix = None, y: Targets = None, groups: Targets = None) -> int:
        """See base class; ``y`` has the classes."""
        _, counts = _class_codes(y, type(self).__name__)
        total = int(counts.sum() ** 2 - counts @ counts) // 2
        return total if self.n_pairs is None else min(total, self._count())

    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """See base class."""
        advice = "; use RebalancedLeaveOneOut for numbers"
        codes, counts = _class_codes(y, type(self).__name__, advice)
        order = np.argsort(codes, kind="stable")
        # The i-th row in this order is paired with all rows of later classes.
        ends = np.cumsum(counts)[codes[order]]
        later = len(order) - ends
        starts = np.cumsum(later) - later
        numbers = np.arange(int(later.sum()))
        if self.n_pairs is not None and self._count() < len(numbers):
            random = check_random_state(self.random_state)
            numbers = np.sort(random.choice(len(numbers), self._count(), replace=False))
        first = np.searchsorted(starts, numbers, side="right") - 1
        second = ends[first] + numbers - starts[first]
        pairs = EqualSets(np.column_stack([order[first], order[second]]))
        return pairs, pairs

    def _count(self) -> int:
        return _check_count("n_pairs", self.n_pairs, 1, "a number of pairs, or None for all")


class RebalancedLeaveOneOut(HeldOutSets):
    """Leave-one-out whose training sets are equally balanced, whichever row is tested.

    Together with the tested row each split leaves out one row of every other class, so that the
    training set does not give away the class of the tested row (Austin and Korem 2024). For numbers
    it leaves out the row whose deviation from the mean is closest to the opposite one, so that the
    mean of the training rows is about the same for all splits.

    Parameters
    ----------
    n_repeats : int, default=1
        How often each row is tested, with other rows left out beside it. With 1 the test sets are a
        partition, as ``cross_val_predict`` needs it.
    random_state : int, RandomState or None, default=None
        Seed of the choice of rows of other classes.

    Notes
    -----
    **Cost** with squared loss: that of leave-one-out. Accuracies have no bias. The area under the
    ROC curve of all rows together compares rows by models that were each fitted to the other row,
    so that it is up to 0.05 too small for models of few columns: use :class:`LeavePairOut`.

    References
    ----------
    G. I. Austin, T. Korem (2024). Rebalanced leave-one-out cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold import RebalancedLeaveOneOut
    >>> X, y = np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 1])
    >>> splits = RebalancedLeaveOneOut(random_state=0).split(X, y)
    >>> [(int(test[0]), np.bincount(y[train]).tolist()) for train, test in splits][2:4]
    [(2, [2, 2]), (3, [2, 2])]
    """

    def __init__(self, n_repeats: int = 1, *, random_state: RandomState = None) -> None:
        self.n_repeats = n_repeats
        self.random_state = random_state

    def get_n_splits(self, X: Matrix = None, y: Targets = None, groups: Targets = None) -> int:
        """See base class."""
        return super().get_n_splits(X) * self._count()

    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """See base class."""
        if y is None:
            raise ValueError("RebalancedLeaveOneOut needs y; pass y to split")
        labels = column_or_1d(y)
        is_numbers = type_of_target(labels).startswith("continuous")
        others = self._opposite(labels) if is_numbers else self._of_other_classes(labels)
        repeats = len(others)
        tests = np.tile(np.arange(len(labels)), repeats)[:, None]
        helds = np.column_stack([tests, others.reshape(repeats * len(labels), -1)])
        return EqualSets(tests), EqualSets(helds)

    def _count(self) -> int:
        return _check_count("n_repeats", self.n_repeats, 1, "a number from 1 on")

    def _of_other_classes(self, labels: Array) -> Index:
        """A row of each other class for every repetition and row, (repeats, n, classes - 1)."""
        codes, counts = _class_codes(labels, type(self).__name__)
        repeats, n = self._count(), len(codes)
        if repeats > counts.min():
            raise ValueError(
                f"n_repeats={repeats}, but a class has {counts.min()} rows, and each repetition "
                "leaves out another of them; use a smaller number, or LeavePairOut"
            )
        random = check_random_state(self.random_state)
        others = np.empty((repeats, n, len(counts) - 1), dtype=np.intp)
        for label in range(len(counts)):
            own = random.permutation(np.flatnonzero(codes == label))
            rest = random.permutation(np.flatnonzero(codes != label))
            # In turn, so that all rows of a class are left out equally often.
            turns = np.arange(len(rest)) + np.arange(repeats)[:, None]
            column = label - (label > codes[rest])
            others[:, rest, column] = own[turns % len(own)]
        return others

    def _opposite(self, y: Array) -> Index:
        """The rows with the deviations closest to the opposite one, (repeats, n, 1)."""
        repeats, n = self._count(), len(y)
        if repeats >= n:
            raise ValueError(f"n_repeats={repeats} needs more than {n} rows; use a smaller number")
        order = np.argsort(y, kind="stable")
        ordered = y[order].astype(np.float64)
        wanted = 2.0 * ordered.mean() - ordered
        # The nearest ones are consecutive in this order: a window of them, without the row itself.
        width = min(n, 2 * repeats + 3)
        first = np.clip(np.searchsorted(ordered, wanted) - repeats - 1, 0, n - width)
        window = first[:, None] + np.arange(width)
        distance = np.abs(ordered[window] - wanted[:, None])
        distance[window == np.arange(n)[:, None]] = np.inf
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :repeats]
        found = np.empty((n, repeats), dtype=np.intp)
        found[order] = order[np.take_along_axis(window, nearest, axis=1)]
        return found.T[:, :, None]


class BufferedLeaveOneOut(HeldOutSets):
    """Leave-one-out that also leaves out all rows within a radius of the tested one.

    Rows close to each other resemble each other for reasons that do not help at a new place. If the
    radius is the distance over which residuals are correlated, the scores are those at places far
    from all training rows.

    Parameters
    ----------
    coords : array of shape (n_samples, n_dimensions) or (n_samples,), or list of str
        The place (or the time) of each row; or the names of columns of X, a data frame, that have
        it. Only names work where some of the rows are split, as by the inner folds of a nested
        cross-validation.
    radius : float
        Rows at this distance or closer are left out.
    metric : str or callable, default="euclidean"
        As in :class:`sklearn.neighbors.NearestNeighbors`. For "haversine" coordinates are latitude
        and longitude in radians, and the radius is in radians as well: kilometres divided by 6371.

    Notes
    -----
    **Cost** with squared loss: one factorisation, and n m² + m³/3 flops for each row with m rows in
    its buffer.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold import BufferedLeaveOneOut
    >>> splitter = BufferedLeaveOneOut([0.0, 1.0, 2.0, 3.0], radius=1.0)
    >>> [(train.tolist(), test.tolist()) for train, test in splitter.split(np.zeros((4, 1)))][:2]
    [([2, 3], [0]), ([3], [1])]
    """

    def __init__(
        self, coords: ArrayLike | list[str], radius: float, *, metric: str = "euclidean"
    ) -> None:
        self.coords = coords
        self.radius = radius
        self.metric = metric

    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """See base class."""
        n = num_samples(X)
        coords = np.asarray(_column_of(X, self.coords, "coords"))
        coords = check_array(coords[:, None] if coords.ndim == 1 else coords, input_name="coords")
        _check_rows("coords", len(coords), n)
        _check_distance("radius", self.radius)
        nearest = NearestNeighbors(radius=float(self.radius), metric=self.metric).fit(coords)
        helds = nearest.radius_neighbors(coords, return_distance=False)
        sizes = np.array([len(held) for held in helds])
        if sizes.max() == n:
            raise ValueError(
                f"radius={self.radius} leaves no training rows for row {int(sizes.argmax())}; use "
                "a smaller radius"
            )
        return EqualSets(np.arange(n)[:, None]), tuple(helds)


class PurgedTimeSeriesSplit(HeldOutSets):
    """Consecutive blocks of time, without the rows around each in its training set.

    Each split tests one block and trains on the rows before and after it, except those whose time
    is within ``purge`` of the block, and those up to ``embargo`` later (López de Prado 2018). For
    training rows of the past only use :class:`sklearn.model_selection.TimeSeriesSplit`, whose
    ``gap`` is such a purge.

    Parameters
    ----------
    n_splits : int, default=5
        The number of blocks.
    purge : number or timedelta, default=0
        How close to the block a row may not be, on both sides: as far as a target or a feature
        looks ahead or back.
    embargo : number or timedelta, default=0
        How much more is left out after the block.
    times : array of shape (n_samples,) or str, optional
        The time of each row, as numbers or dates, or the name of the column of X that has it, as
        for :class:`BufferedLeaveOneOut`; rows need not be in order. By default rows are one unit of
        time apart.

    References
    ----------
    M. López de Prado (2018). Advances in Financial Machine Learning, chapter 7.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold import PurgedTimeSeriesSplit
    >>> splitter = PurgedTimeSeriesSplit(3, purge=1, embargo=1)
    >>> [(train.tolist(), test.tolist()) for train, test in splitter.split(np.zeros((9, 1)))][1]
    ([0, 1, 8], [3, 4, 5])
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        purge: object = 0,
        embargo: object = 0,
        times: ArrayLike | str | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.purge = purge
        self.embargo = embargo
        self.times = times

    def get_n_splits(self, X: Matrix = None, y: Targets = None, groups: Targets = None) -> int:
        """See base class."""
        return _check_count("n_splits", self.n_splits, 2, "a number from 2 on")

    def held_out_sets(self, X: Matrix, y: Targets = None) -> TestedAndHeld:
        """See base class."""
        n, count = num_samples(X), self.get_n_splits()
        if count > n:
            raise ValueError(f"n_splits={count} is more than the {n} rows; use a smaller number")
        own = np.arange(n) if self.times is None else _column_of(X, self.times, "times")
        times = column_or_1d(own)
        _check_rows("times", len(times), n)
        purge, embargo = self._read("purge", times), self._read("embargo", times)
        order = np.argsort(times, kind="stable")
        tests = np.array_split(order, count)
        helds = []
        for k, test in enumerate(tests):
            first, last = times[test[0]] - purge, times[test[-1]] + purge + embargo
            held = np.flatnonzero((times >= first) & (times <= last))
            if len(held) == n:
                raise ValueError(
                    f"purge={self.purge!r} and embargo={self.embargo!r} leave no training rows for "
                    f"block {k}; use smaller ones, or fewer splits"
                )
            helds.append(test if len(held) == len(test) else held)
        return tuple(tests), tuple(helds)

    def _read(self, name: str, times: Array) -> object:
        """A distance in time, in units of the times."""
        value = getattr(self, name)
        if times.dtype.kind != "M":
            return _check_distance(name, value)
        found = np.timedelta64(value)
        if found < np.timedelta64(0):
            raise ValueError(f"{name}={value!r} is negative; use a timedelta from 0 on")
        return found


def _column_of(X: Matrix, given: ArrayLike | str | list[str], name: str) -> AnyArray:
    """Places or times of the rows of X: as given, or from the columns of X that are named."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(own, str) for own in names):
        return np.asarray(given)
    missing = [own for own in names if own not in getattr(X, "columns", ())]
    if missing:
        raise ValueError(
            f"{name}={given!r}: X has no column {missing[0]!r}; pass a data frame with it, or an "
            "array with an entry for each row"
        )
    found = np.column_stack([np.asarray(X[own]) for own in names])
    return found[:, 0] if isinstance(given, str) else found


def _check_rows(name: str, found: int, n: int) -> None:
    """Refuse places or times of other rows than those that are split."""
    if found != n:
        raise ValueError(
            f"{name} has {found} entries, but {n} rows are split; pass those of these rows. Where "
            "only some of the rows are split, as inside a nested cross-validation, pass the names "
            f"of columns of X in place of an array of {name}"
        )


def _check_distance(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0.0:
        raise ValueError(f"{name}={value!r} is not allowed; use a number from 0 on")
    return float(value)
