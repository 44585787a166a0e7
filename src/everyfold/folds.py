"""Which rows are left out together: any cross-validation, as its methods see it.

:class:`Folds` reads the splits of any splitter. Most folds are removals, whose training rows are
all rows but those left out; only these follow from a single fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everyfold._typing import Array, Index


@dataclass(frozen=True)
class Fold:
    """One split: fit on ``train``, predict ``test``.

    ``held`` are the rows outside ``train``, in the order of ``test`` where the two are the same
    set. ``is_removable`` says that the split is a removal: no training row repeats and every test
    row is held out. Only then can its predictions come from the fit on all rows.
    """

    train: Index
    test: Index
    held: Index
    is_removable: bool


@dataclass(frozen=True)
class Stack:
    """Folds that leave out the same number of (active) rows, handled as one array.

    Attributes
    ----------
    folds : array of shape (t,)
        Their numbers.
    rows : array of shape (t, m)
        The rows each leaves out.
    slots : array of shape (t, m)
        Where those rows stand in the concatenation of all held-out sets.
    """

    folds: Index
    rows: Index
    slots: Index


@dataclass(frozen=True)
class EqualSets(Sequence[Index]):
    """Sets of equally many rows, held as one array (t, m): a million folds are not as many arrays.

    Examples
    --------
    >>> pairs = EqualSets(np.array([[0, 1], [0, 2]]))
    >>> pairs[1]
    array([0, 2])
    """

    rows: Index

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        return EqualSets(self.rows[i]) if isinstance(i, slice) else self.rows[i]


def joined(sets: Sequence[Index]) -> Index:
    """The rows of all sets, one set after the other."""
    if isinstance(sets, EqualSets):
        return sets.rows.ravel()
    return np.concatenate([np.empty(0, dtype=np.intp), *sets])


def lengths(sets: Sequence[Index]) -> Index:
    """The number of rows of every set."""
    if isinstance(sets, EqualSets):
        return np.full(len(sets), sets.rows.shape[1], dtype=np.intp)
    return np.array([len(rows) for rows in sets], dtype=np.intp)


def chosen(sets: Sequence[Index], numbers: Sequence[int]) -> Sequence[Index]:
    """Some of the sets."""
    if isinstance(sets, EqualSets):
        return EqualSets(sets.rows[np.asarray(numbers, dtype=np.intp)])
    return tuple(sets[i] for i in numbers)


@dataclass(frozen=True)
class Folds:
    """All splits of a cross-validation of ``n`` rows.

    Folds may be unequal, overlap (repeated k-fold, shuffle split), or leave rows out of both
    sides (time series).

    Examples
    --------
    >>> folds = Folds.from_splits([([0, 1], [2, 3]), ([2, 3], [0, 1])], n=4)
    >>> folds.tests
    (array([2, 3]), array([0, 1]))
    >>> folds.are_removable
    True
    """

    n: int
    tests: Sequence[Index]
    helds: Sequence[Index]
    odd: dict[int, Fold] = field(default_factory=dict)
    """The folds that are not removals, by number."""
    orders: dict[int, Index] = field(default_factory=dict)
    """The training rows of removals that do not have them in rising order."""

    @classmethod
    def leave_one_out(cls, n: int) -> Folds:
        """The n folds of leave-one-out, as one array of n rows."""
        if n < 2:
            raise ValueError(f"leave-one-out needs at least 2 rows, got n_samples={n}")
        singles = EqualSets(np.arange(n)[:, None])
        return cls(n, singles, singles)

    @classmethod
    def whole(cls, n: int) -> Folds:
        """One fold that trains on all rows and tests none."""
        none = np.empty(0, dtype=np.intp)
        return cls(n, (none,), (none,), {0: Fold(np.arange(n), none, none, False)})

    @classmethod
    def from_splits(
        cls, splits: Iterable[tuple[ArrayLike, ArrayLike]], n: int, *, literal: bool = False
    ) -> Folds:
        """Read (train, test) pairs of row numbers; ``literal`` keeps the order of training rows."""
        tests, helds = [], []
        odd: dict[int, Fold] = {}
        orders: dict[int, Index] = {}
        for i, (train, test) in enumerate(splits):  # one at a time: training rows are many
            fold = _read(i, train, test, n)
            tests.append(fold.test)
            helds.append(fold.held)
            if literal or not fold.is_removable:
                odd[i] = replace(fold, is_removable=False)
            elif (np.diff(fold.train) < 0).any():
                orders[i] = fold.train
        if not tests:
            raise ValueError("cv yields no split; pass a splitter or an iterable with at least one")
        return cls(n, tuple(tests), tuple(helds), odd, orders)

    def __len__(self) -> int:
        return len(self.tests)

    def __getitem__(self, i: int) -> Fold:
        if i in self.odd:
            return self.odd[i]
        if i in self.orders:
            return Fold(self.orders[i], self.tests[i], self.helds[i], True)
        inside = np.ones(self.n, dtype=bool)
        inside[self.helds[i]] = False
        return Fold(np.flatnonzero(inside), self.tests[i], self.helds[i], True)

    def __iter__(self) -> Iterator[Fold]:
        return (self[i] for i in range(len(self)))

    def subset(self, numbers: Iterable[int]) -> Folds:
        """Some of the folds, renumbered."""
        own = list(numbers)
        tests = chosen(self.tests, own)
        return Folds(
            self.n,
            tests,
            tests if self.helds is self.tests else chosen(self.helds, own),
            {j: self.odd[i] for j, i in enumerate(own) if i in self.odd},
            {j: self.orders[i] for j, i in enumerate(own) if i in self.orders},
        )

    def restrict(self, rows: Index) -> Folds:
        """The same folds of some of the rows (no row twice); without those that test none of them.

        All folds must be removals.
        """
        place = np.full(self.n, -1, dtype=np.intp)
        place[rows] = np.arange(len(rows))
        tests, helds = [], []
        for test, held in zip(self.tests, self.helds, strict=True):
            kept = place[test][place[test] >= 0]
            if len(kept):
                tests.append(kept)
                helds.append(kept if held is test else place[held][place[held] >= 0])
        return Folds(len(rows), tuple(tests), tuple(helds))

    @cached_property
    def merged(self) -> Merged | None:
        """Folds that train on the same rows as one each; None if there are none.

        Those of nested cross-validations are such: a pair of folds is left out twice, and each of
        the two is tested once. Folds that test all rows that they leave out are not compared.
        """
        if (self.sizes == np.diff(self.bounds)).all():
            return None
        numbers: dict[bytes, list[int]] = {}
        for i, (test, held) in enumerate(zip(self.tests, self.helds, strict=True)):
            own = i in self.odd or i in self.orders or len(test) == len(held)
            name = str(i).encode() if own else np.sort(held).tobytes()
            numbers.setdefault(name, []).append(i)
        return Merged.of(self, list(numbers.values())) if len(numbers) < len(self) else None

    @property
    def are_removable(self) -> bool:
        """Whether every fold is a removal of rows."""
        return not self.odd

    @cached_property
    def are_singles(self) -> bool:
        """Whether the folds are those of leave-one-out, in the order of the rows."""
        rows = np.arange(self.n)
        is_each = self.are_removable and len(self) == self.n and bool((self.sizes == 1).all())
        return is_each and all(np.array_equal(k, rows) for k in (self.held_rows, self.test_rows))

    @cached_property
    def sizes(self) -> Index:
        """How many rows each fold leaves out of training."""
        return lengths(self.helds)

    @cached_property
    def test_rows(self) -> Index:
        """The test rows of all folds, one fold after the other."""
        return joined(self.tests)

    @cached_property
    def held_rows(self) -> Index:
        """The held-out rows of all folds, one fold after the other."""
        return joined(self.helds)

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """The sizes of the held-out sets, each with the number of folds that have it."""
        sizes, counts = np.unique(self.sizes, return_counts=True)
        return tuple(zip(sizes.tolist(), counts.tolist(), strict=True))

    @cached_property
    def bounds(self) -> Index:
        """Fold i's predictions are ``values[bounds[i]:bounds[i + 1]]`` of an out-of-fold array."""
        return np.concatenate([[0], np.cumsum(lengths(self.tests))]).astype(np.intp)

    def split(self, values: Array) -> list[Array]:
        """An array over all test rows of all folds, cut into the folds'."""
        return np.split(values, self.bounds[1:-1])

    @cached_property
    def pick(self) -> Index:
        """Which entries of the concatenated held-out sets are the test rows of the folds."""
        starts = np.cumsum(self.sizes) - self.sizes
        is_same = self.tests is self.helds
        if is_same or all(test is held for test, held in zip(self.tests, self.helds, strict=True)):
            return np.arange(int(self.sizes.sum()))
        if isinstance(self.tests, EqualSets) and isinstance(self.helds, EqualSets):
            places = self.tests.rows[:, :, None] == self.helds.rows[:, None, :]
            return np.asarray((starts[:, None] + places.argmax(axis=2)).ravel())
        triples = zip(starts, self.tests, self.helds, strict=True)
        return np.concatenate([start + positions(held, test) for start, test, held in triples])

    @cached_property
    def shares(self) -> Array:
        """The share of each held-out row in a mean score: folds count alike, and tested rows do."""
        counts = np.diff(self.bounds)
        share = np.zeros(int(self.sizes.sum()))
        np.add.at(share, self.pick, np.repeat(1.0 / (len(self) * counts), counts))
        return share

    def stacks(self, is_active: NDArray[np.bool_]) -> Iterator[Stack]:
        """The held-out rows with ``is_active``, folds of equal size together."""
        all_active = bool(is_active.all())
        if all_active and self.sizes.min() == self.sizes.max():
            sets = self.held_rows.reshape(len(self), int(self.sizes[0]))
            yield Stack(np.arange(len(self)), sets, np.arange(sets.size).reshape(sets.shape))
            return
        starts = np.cumsum(self.sizes) - self.sizes
        by_size: dict[int, list[tuple[int, Index, Index]]] = {}
        for i, held in enumerate(self.helds):
            kept = np.arange(len(held)) if all_active else np.flatnonzero(is_active[held])
            by_size.setdefault(len(kept), []).append((i, held[kept], starts[i] + kept))
        for group in by_size.values():
            folds, rows, slots = zip(*group, strict=True)
            yield Stack(np.array(folds, dtype=np.intp), np.stack(rows), np.stack(slots))


@dataclass(frozen=True)
class Merged:
    """Folds without those that train on the same rows as others, and the way back.

    Attributes
    ----------
    folds : Folds
        They test what any of their originals does.
    numbers : array of shape (originals,)
        The fold that stands for each original.
    places : array
        Where the values of the test rows of all originals are among those of the folds.
    """

    folds: Folds
    numbers: Index
    places: Index

    @classmethod
    def of(cls, folds: Folds, sets: Sequence[Sequence[int]]) -> Merged:
        """From the numbers of the originals that train on the same rows."""
        first = folds.subset([own[0] for own in sets])
        unions = [
            folds.tests[own[0]]
            if len(own) == 1
            else np.unique(np.concatenate([folds.tests[i] for i in own]))
            for own in sets
        ]
        merged = replace(first, tests=tuple(unions), helds=tuple(first.helds))
        numbers = np.empty(len(folds), dtype=np.intp)
        for k, own in enumerate(sets):
            numbers[own] = k
        places = [
            merged.bounds[k] + positions(merged.tests[k], test)
            for k, test in zip(numbers.tolist(), folds.tests, strict=True)
        ]
        return cls(merged, numbers, np.concatenate(places))


def positions(rows: Index, wanted: Index) -> Index:
    """The positions of some rows in others."""
    order = np.argsort(rows, kind="stable")
    found: Index = order[np.searchsorted(rows, wanted, sorter=order)]
    return found


def _read(number: int, train: ArrayLike, test: ArrayLike, n: int) -> Fold:
    train_rows = _rows(number, "train", train, n)
    test_rows = _rows(number, "test", test, n)
    if train_rows.size == 0:
        raise ValueError(
            f"cv: split {number} leaves no training rows (n_samples={n}); use fewer folds or "
            "groups, or a smaller test set"
        )
    if test_rows.size == 0:
        raise ValueError(f"cv: split {number} has no test rows; use fewer folds or a larger test")
    count = np.bincount(train_rows, minlength=n)
    held = np.flatnonzero(count == 0)
    is_removable = bool(count.max(initial=0) == 1) and not count[test_rows].any()
    # Same set: keep the order of the test rows, so that held-out values need no reordering.
    if is_removable and len(held) == len(test_rows) == len(np.unique(test_rows)):
        held = test_rows
    return Fold(train_rows, test_rows, held, is_removable)


def _rows(number: int, name: str, rows: ArrayLike, n: int) -> Index:
    indices = np.asarray(rows)
    if indices.dtype == bool and indices.shape == (n,):
        indices = np.flatnonzero(indices)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ValueError(f"cv: the {name} rows of split {number} are not an array of row numbers")
    indices = indices.astype(np.intp, copy=False)
    least = indices.min(initial=0)
    if least < -n or indices.max(initial=0) >= n:
        raise ValueError(
            f"cv: split {number} names {name} row {indices.max()}, but there are n_samples={n}"
        )
    return np.where(indices < 0, indices + n, indices) if least < 0 else indices
