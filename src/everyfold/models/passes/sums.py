r"""One pass: the sums over every fold's rows, for any number of kernels.

The Gram matrix of the raw kernel block C is summed and mapped to the features V = C T afterwards,
at c×c size: that saves two thirds of the flops. Where T magnifies what rounding does to the sum
beyond ``TRUSTED``, the features themselves are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from everyfold.kernels import Kernel
from everyfold.models.passes.reader import Reader
from everyfold.operators.base import Array, Rows
from everyfold.operators.dense import product
from everyfold.operators.lowrank import Features
from everyfold.operators.moments import (
    Centred,
    RidgeModels,
    RunningSums,
    Sums,
    bring_together,
    merge,
)
from everyfold.operators.nystrom import LandmarkFeatures
from everyfold.operators.systems import EPS
from everyfold.rows import RowSource
from everyfold.rows.rules import FoldRule

BLOCK_BYTES = 32_000_000
"""Of the kernel between the rows of a block and the landmarks."""

LOST = 1e-12
"""What rounding may do to what a fold leaves, relative to it, before parts are added up instead."""

TRUSTED = 1e-8
"""What rounding may do to a sum, relative to it; scores move by a hundredth of that or less."""


_PROBE = 1000
"""Rows that the decision is made by."""


@dataclass(frozen=True)
class Request:
    """A kernel that takes part in a pass: its features, and the smallest ridge they are for."""

    features: Features
    rho: float
    intercept: bool


@dataclass(frozen=True)
class Summed:
    """What a pass leaves of one kernel.

    Attributes
    ----------
    total : Centred
    parts : tuple of Centred
        Of each fold's rows.
    others : tuple of Centred
        Of the rows that are in no fold.
    intercept : bool
    is_subtracted : bool
        Whether folds are taken out of the total by subtraction; all parts have its origin then.
    folds : list of int
        The numbers of the folds, ascending.
    rows : int array of shape (t,)
        How many rows each fold has.
    spreads : array of shape (t, q)
        The weighted sums of squares of each fold's targets around their mean; NaN where rounding
        leaves too little of them.
    is_weighted : bool
        Whether the source has weights.
    is_flat : bool
        Whether its y has one axis.
    """

    total: Centred
    parts: tuple[Centred, ...]
    others: tuple[Centred, ...]
    intercept: bool
    is_subtracted: bool
    folds: list[int]
    rows: Rows
    spreads: Array
    is_weighted: bool
    is_flat: bool

    @property
    def weights(self) -> Array:
        """The weight of each fold's rows."""
        return np.array([part.sums.weight for part in self.parts])

    def rest(self, k: int) -> Centred:
        """The sums over all rows but those of one fold."""
        if self.is_subtracted:
            return replace(self.total, sums=self.total.sums - self.parts[k].sums)
        pieces = [*self.others, *self.parts[:k], *self.parts[k + 1 :]]
        return merge(bring_together(pieces, intercept=self.intercept))

    def without(self, k: int, rhos: Sequence[float]) -> RidgeModels:
        """The models of all rows but those of one fold."""
        return self.rest(k).solve(rhos, intercept=self.intercept)


@dataclass
class _Running:
    """The sums over one fold's rows so far, about the mean of the first of them."""

    sums: RunningSums
    origin: Array
    target_origin: Array
    middle: Array
    rows: int = 0

    @classmethod
    def begin(cls, V: Array, z: Array, intercept: bool) -> _Running:
        sums, middle = RunningSums.empty(V.shape[1], z.shape[1]), z.mean(axis=0)
        if not intercept:
            return cls(sums, np.zeros(V.shape[1]), np.zeros(z.shape[1]), middle)
        return cls(sums, V.mean(axis=0), middle, middle)

    def add(self, V: Array, w: Array | None, z: Array) -> None:
        """Add rows; V is written to."""
        V -= self.origin
        self.sums.add(V, w, z - self.target_origin)
        self.sums.spread_by(w, z - self.middle)
        self.rows += len(V)

    def centred(self) -> Centred:
        return Centred(self.sums.sums(), self.origin, self.target_origin)


@dataclass
class _Accumulator:
    """The sums of one kernel, fold by fold."""

    request: Request
    is_raw: bool
    parts: dict[int, _Running] = field(default_factory=dict)

    @classmethod
    def begin(cls, request: Request, C: Array, share: float) -> _Accumulator:
        """Decide what is summed by the first block, which is that share of all rows."""
        return cls(request, _is_raw(request, C, share))

    def add(self, C: Array, w: Array | None, z: Array, folds: Sequence[tuple[int, slice]]) -> None:
        V = _features(self.request.features, C, self.is_raw)
        for fold, rows in folds:
            if fold not in self.parts:
                self.parts[fold] = _Running.begin(V[rows], z[rows], self.request.intercept)
            self.parts[fold].add(V[rows], None if w is None else w[rows], z[rows])

    def summed(self, is_weighted: bool, is_flat: bool) -> Summed:
        """The sums in terms of the features; ends the accumulation."""
        numbers, intercept = sorted(k for k in self.parts if k >= 0), self.request.intercept
        rows = np.array([self.parts[k].rows for k in numbers], dtype=np.intp)
        spreads = np.array([self.parts[k].sums.spread() for k in numbers])
        parts = tuple(self._centred(k) for k in numbers)
        others = tuple(self._centred(k) for k in list(self.parts))
        moved = bring_together([*parts, *others], intercept=intercept)
        total, near = merge(moved), tuple(moved[: len(parts)])
        is_safe = not any(_loses(total.sums, part.sums, self.request.rho) for part in near)
        kept = near if is_safe else parts
        about = rows, spreads, is_weighted, is_flat
        return Summed(total, kept, others, intercept, is_safe, numbers, *about)

    def _centred(self, fold: int) -> Centred:
        part, features = self.parts.pop(fold).centred(), self.request.features
        is_to_map = self.is_raw and isinstance(features, LandmarkFeatures)
        return part.mapped(features.T) if is_to_map else part  # type: ignore[attr-defined]


def _loses(total: Sums, part: Sums, rho: float) -> bool:
    """Whether taking a part out of a total leaves so little that rounding shows."""
    weight = total.weight - part.weight
    if EPS * total.weight >= LOST * weight:
        return True
    pairs = (
        (total.gram.diagonal(), part.gram.diagonal(), total.features - part.features, rho),
        (total.squares, part.squares, total.targets - part.targets, 0.0),
    )
    for whole, taken, sums, floor in pairs:
        left = whole - taken - sums**2 / weight + floor
        if (EPS * whole > LOST * left).any():
            return True
    return False


def _features(features: Features, C: Array, is_raw: bool) -> Array:
    if is_raw or not isinstance(features, LandmarkFeatures):
        return C
    return np.ascontiguousarray(product(C, features.T))


def _is_raw(request: Request, C: Array, share: float) -> bool:
    """Whether mapping the sum of CᵀC to the features keeps its digits.

    Rounding leaves errors of about EPS times its entries in a Gram matrix, of either sign, which
    the map multiplies by the squared norms of its columns.
    """
    features = request.features
    if not isinstance(features, LandmarkFeatures):
        return True
    probe = C[:_PROBE]
    V = probe @ features.T
    mapped = np.einsum("ij,ij->j", V, V) + share * len(probe) / len(C) * request.rho
    largest = float(np.einsum("ij,ij->j", probe, probe).max())
    rounding = EPS * largest * np.einsum("ij,ij->j", features.T, features.T)
    return bool((rounding <= TRUSTED * mapped).all())


def sum_rows(
    source: RowSource,
    reader: Reader,
    rule: FoldRule,
    requests: Sequence[Request],
    block_rows: int | None = None,
) -> list[Summed]:
    """The sums of every kernel, from one pass.

    **Cost** n c kernel evaluations and n c² flops a kernel; distances to the same landmarks are
    shared. Memory for a block of all kernels and c² a fold and kernel.
    """
    size = block_rows or block_height(requests, source.n_features)
    running: list[_Accumulator] = []
    owners = _owners(requests)
    is_weighted, is_flat = False, True
    for block in source.blocks(size):
        target = reader.target(block.y)
        is_weighted, is_flat = block.sample_weight is not None, block.y.ndim == 1
        order, folds = _by_fold(rule.numbers(block))
        X, z, w = block.X, target.columns, reader.weights(block, target)
        if order is not None:
            X, z, w = X[order], z[order], None if w is None else w[order]
        shared: dict[int, Array] = {}
        for i, request in enumerate(requests):
            C = _block(request.features, X, shared, owners[i])
            if i == len(running):
                n = source.n_rows or 0
                running.append(_Accumulator.begin(request, C, len(X) / n if n else 0.0))
            running[i].add(C, w, z, folds)
    summed = [accumulator.summed(is_weighted, is_flat) for accumulator in running]
    if summed[0].total.sums.count == 0:
        raise ValueError(
            "the weight (sample_weight, times class_weight) is zero for every row of the source; "
            "at least one must be positive"
        )
    return summed


def block_height(requests: Sequence[Request], n_features: int) -> int:
    """How many rows to read at a time."""
    widest = max(width_of(request, n_features) for request in requests)
    return max(256, BLOCK_BYTES // (8 * widest))


def width_of(request: Request, n_features: int) -> int:
    """How many numbers are summed of a row: its kernel with the landmarks, or its columns."""
    features = request.features
    return len(features.T) if isinstance(features, LandmarkFeatures) else n_features


def _by_fold(numbers: Rows) -> tuple[Rows | None, list[tuple[int, slice]]]:
    """An order that puts the rows of a fold together, None if they are, and where each begins."""
    order = None
    if len(numbers) > 1 and (np.diff(numbers) < 0).any():
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    ends = [*starts[1:].tolist(), len(numbers)]
    return order, [
        (int(numbers[i]), slice(i, j)) for i, j in zip(starts.tolist(), ends, strict=True)
    ]


def _block(features: Features, X: Array, shared: dict[int, Array], owner: int | None) -> Array:
    """What is summed of a block: the kernel with the landmarks, or the columns; a new array.

    Kernels with the same owner share a base matrix; one without is alone.
    """
    if not isinstance(features, LandmarkFeatures):
        return X.copy()
    kernel: Kernel = features.kernel
    if owner is None:
        return kernel(X, features.landmarks)
    if owner not in shared:
        shared[owner] = kernel.base_matrix(X, features.landmarks)
    return kernel.from_base(shared[owner])


def _owners(requests: Sequence[Request]) -> list[int | None]:
    """For each kernel the first with the same landmarks and base, None if it shares with none."""
    first = [
        next(j for j in range(i + 1) if j == i or _are_alike(requests[j], requests[i]))
        for i in range(len(requests))
    ]
    return [owner if first.count(owner) > 1 else None for owner in first]


def _are_alike(request: Request, other: Request) -> bool:
    one, two = request.features, other.features
    return (
        isinstance(one, LandmarkFeatures)
        and isinstance(two, LandmarkFeatures)
        and one.kernel.base is not None
        and one.kernel.base == two.kernel.base
        and np.array_equal(one.landmarks, two.landmarks)
    )
