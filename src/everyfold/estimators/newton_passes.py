r"""Models of smooth losses on rows in blocks: all folds and ridges at once, pass by pass.

One pass reads a sample of the rows and counts those of every fold. The minimum of the sample is
where all folds of a ridge start, and its Hessian is what their steps begin with
(:mod:`everyfold.solvers.block_newton`). Every further pass gives the gradients of all models, by
two products of a block of features with as many columns as there are models, and what is wanted of
the held-out rows: their values come with those of the other rows. Where the features of all rows
fit in memory in single precision, they are made once and held from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from operator import add
from typing import TypeAlias

import numpy as np

from everyfold._progress import report_share, reporting_share_of, reporting_to
from everyfold._typing import Array, Index, Mask
from everyfold.estimators.sources import FoldedBlocks, reduced
from everyfold.estimators.targets import Target
from everyfold.io import RowSource
from everyfold.io.blocks import by_fold
from everyfold.linalg.blas import lone_blas, product
from everyfold.linalg.memory import SHARE_OF_LIMIT, memory_limit
from everyfold.linalg.preconditioner import GramPreconditioner
from everyfold.losses import Loss
from everyfold.operators import FeatureMap
from everyfold.operators.response import RidgeModels
from everyfold.solvers.block_newton import ROUGH, BlockNewton

# Rows of the sample for each feature. The Hessian of a sample of m rows is off by about
# 2 sqrt(c / m): twenty rows a feature diverge at small ridges, a hundred cost a fifth of a pass of
# 160 models over 200,000 rows.
SAMPLED = 100

# At least as many rows are a sample, as few features need few.
LEAST_SAMPLED = 5000

# How near the minimum of the sample models start: it is off by more from that of all rows.
_NEAR = 1e-2

# Steps on the sample, and those after which its Hessian is made anew.
_STEPS, _ANEW = 200, frozenset({2, 5, 10, 20, 40, 80, 140})

# Passes with gradients at most.
MOST_PASSES = 300

# Passes to reckon with. The logistic loss and the squared hinge took 6 to 8 for 160 models of 4000
# to 200,000 rows, Huber's hinge 16 to 21.
_USUAL, _USUAL_OF_KINKS = 8, 20

# The curvature of rows where a loss with kinks has none: a step to where rows have some is not
# endless then. With 0.01 Huber's hinge took 29 passes instead of 19 (20,000 rows, 100 landmarks).
_FLAT = 0.1

# Values of rows and models at a time, 8 MB: larger ones leave the caches of processors.
VALUES_AT_A_TIME = 1_000_000

# The share of all memory that there could be which features of all rows may take. They then cost
# one pass instead of one in each, and products half as much: 200,000 rows, 300 landmarks and 160
# models took 12.6 s without and 6.5 s with them.
_HELD_SHARE = 0.25

# Passes over features that are held, as multiples of the usual number. Single precision is enough
# for most; models that are not done by then need the digits of the rows themselves.
_HELD_PASSES = 3

# Relative decrements from which on scores are taken: a pass does not make models that are further
# off converge, and scores of all models in all passes took a tenth of the time.
_NEAR_ENOUGH = 1e-3

# A column whose spread is less than this share of its mean is constant.
_CONSTANT = 1e-7

# What a score of a metric adds up to over rows, from their target and held-out values.
RowSums: TypeAlias = Callable[[Target, Array], float]

# What a pass found, kept under its number: that of a search which went on, or a new one.
Keep: TypeAlias = Callable[[int, Callable[[], list[list[Array]]]], list[list[Array]]]


@dataclass(frozen=True)
class Setting:
    """What models have in common: their loss, and how their ridges are read."""

    loss: Loss
    intercept: bool
    is_mean: bool = False
    """Whether a ridge is multiplied by the number of rows."""

    @property
    def usual_passes(self) -> int:
        """How many passes to reckon with, that of the sample included."""
        return usual_passes(self.loss)

    def slope(self, z: Array, F: Array) -> Array:
        """The derivatives of the losses of rows, (rows, models, q)."""
        return self.loss.slope(z[:, None, :], F)

    def curvature(self, z: Array, F: Array, least: float) -> Array:
        """The second derivatives, at least a little where the loss has kinks."""
        found = self.loss.curvature(z[:, None, :], F)
        return np.maximum(found, least) if self.loss.is_piecewise_quadratic else found


def usual_passes(loss: Loss) -> int:
    """How many passes to reckon with, that of the sample included."""
    is_kinked = loss.is_piecewise_quadratic and not loss.name.startswith("squared")
    return 1 + (_USUAL_OF_KINKS if is_kinked else _USUAL)


# -- the first pass: a sample of the rows, and the sizes of the folds ------------------------------


@dataclass
class FirstPass:
    """Rows of a sample with targets and weights, and what the rows of each fold add up to."""

    parts: list[tuple[Array, Array, Array]]
    counts: dict[int, Array]
    """Rows, rows with positive weight, weight, and weight by column of the target above 0."""
    is_weighted: bool = False
    is_flat: bool = True

    def __add__(self, other: FirstPass) -> FirstPass:
        counts = dict(self.counts)
        for fold, found in other.counts.items():
            counts[fold] = counts[fold] + found if fold in counts else found
        return FirstPass(self.parts + other.parts, counts, self.is_weighted, self.is_flat)

    @property
    def folds(self) -> list[int]:
        """The folds that hold rows out, ascending."""
        return sorted(fold for fold in self.counts if fold >= 0)

    @property
    def total(self) -> Array:
        """The counts of all rows."""
        found: Array = np.sum(list(self.counts.values()), axis=0)
        return found

    def rest(self, fold: int | None) -> Array:
        """The counts of the rows outside a fold."""
        return self.total if fold is None else self.total - self.counts[fold]

    @property
    def sample(self) -> tuple[Array, Array, Array]:
        """The rows of the sample, their targets and weights."""
        X, z, w = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        return X, z, w


@dataclass(frozen=True)
class Sampling(FoldedBlocks):
    """A pass that takes every row of the given numbers, ascending, and counts all of them."""

    rows: Index

    def over(self, source: RowSource, threads: int = 1) -> FirstPass:
        """What one pass finds."""
        found: FirstPass = reduced(source, self, add, threads)
        if not found.total[1]:
            raise ValueError(
                "the weight (sample_weight, times class_weight) is zero for every row of the "
                "source; at least one must be positive"
            )
        return found

    def __call__(self, source: RowSource) -> FirstPass:
        """What the rows that are here give."""
        found = FirstPass([], {})
        for block, numbers in self.folded(source):
            target = self.reader.target(block.y)
            weight = self.reader.weights(block, target)
            w = np.ones(len(block)) if weight is None else weight
            z = target.columns
            first, last = np.searchsorted(self.rows, (block.start, block.start + len(block)))
            own = self.rows[first:last] - block.start
            found.parts.append((block.X[own], z[own], w[own]))
            for fold in np.unique(numbers).tolist():
                held = numbers == fold
                present = (z[held] > 0.0).T @ w[held]
                sizes = np.array([held.sum(), np.count_nonzero(w[held]), w[held].sum()])
                counts = np.concatenate([sizes.astype(np.float64), present])
                found.counts[fold] = found.counts.get(fold, 0.0) + counts
            found.is_weighted = block.sample_weight is not None
            found.is_flat = block.y.ndim == 1
        return found


def sampled_rows(n: int, width: int) -> int:
    """How many rows are a sample for so many features, as long as there is memory for it."""
    wanted = max(LEAST_SAMPLED, SAMPLED * width)
    # The share is of all memory that there could be: a search that goes on has the same sample.
    fitting = int(SHARE_OF_LIMIT * memory_limit() / (4 * (width + 1)))
    return min(n, max(2 * width, min(wanted, fitting)))


def choose_sample(n: int, width: int) -> Index:
    """The numbers of the rows of a sample, ascending; the same every time."""
    count = sampled_rows(n, width)
    if count >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, count, replace=False))


# -- a sample's features, its minimum and its Hessians ---------------------------------------------


class _Sample:
    """The features of a sample, centred and scaled, in single precision: A.

    Coefficients are those of A, whose last column are ones if there is an intercept.
    """

    def __init__(
        self, features: FeatureMap, rows: tuple[Array, Array, Array], setting: Setting
    ) -> None:
        X, self.z, self.w = rows
        self.setting, self.q = setting, self.z.shape[1]
        V = features(X)
        c = V.shape[1]
        self.centre = self.w @ V / self.w.sum() if setting.intercept else np.zeros(c)
        V -= self.centre
        scale = np.sqrt(np.einsum("ij,ij->j", V, V) / len(V))
        # What rounding leaves of a constant column is as good as nothing.
        self.scale = np.where(scale > _CONSTANT * np.abs(self.centre), scale, 1.0)
        self.A = np.ones((len(V), c + setting.intercept), dtype=np.float32)
        np.divide(V, self.scale, out=self.A[:, :c], casting="same_kind")
        self.penalised = np.zeros(c + setting.intercept)
        self.penalised[:c] = self.scale**-2.0

    def values(self, coef: Array) -> Array:
        """Values of models, (rows, models, q)."""
        F = self.A @ coef.astype(np.float32)
        return F.astype(np.float64).reshape(len(F), -1, self.q)

    def slopes(self, F: Array) -> Array:
        """Gradients of the loss, (c, models · q)."""
        L = self.setting.slope(self.z, F) * self.w[:, None, None]
        found: Array = self.A.T @ L.reshape(len(L), -1).astype(np.float32)
        return found.astype(np.float64)

    def hessians(self, F: Array | None, ridges: int) -> list[GramPreconditioner]:
        """Gram matrices with the curvatures of every ridge and column.

        None for values are those of models that are 0, which share one.
        """
        if F is None:
            zero = np.zeros((len(self.z), 1, self.q))
            D = self.setting.curvature(self.z, zero, 0.0).mean(axis=(1, 2))
            # The hinges are flat at 0: their models start where squared errors are least.
            made = GramPreconditioner(self.A, np.where(D > 0.0, D, 1.0) * self.w)
            return [made.copy() for _ in range(ridges * self.q)]
        D = self.setting.curvature(self.z, F, _FLAT) * self.w[:, None, None]
        return [
            GramPreconditioner(self.A, D[:, j, k]) for j in range(ridges) for k in range(self.q)
        ]

    def minimum(self, rho: Array) -> tuple[Array, list[GramPreconditioner]]:
        """Coefficients near the minima at some ridges, (c, ridges · q), and the Hessians there."""
        ridges, q = len(rho), self.q
        penalty = np.outer(self.penalised, 2.0 * rho)
        wide, ones, each = np.repeat(penalty, q, axis=1), np.ones(ridges), np.arange(ridges)

        def metric(F: Array | None) -> _Metric:
            return _Metric(self.hessians(F, ridges), penalty, ones, each, q)

        newton = BlockNewton(np.zeros_like(wide), wide, metric(None), q, _NEAR)
        for step in range(_STEPS):
            if step in _ANEW:
                newton.restart(metric(self.values(newton.reached)))
            F = self.values(newton.coef[:, newton.columns(newton.live)])
            newton.take(self.slopes(F))
            if newton.is_done:
                break
        found = newton.reached
        return found, self.hessians(self.values(found), ridges)


class _Metric:
    """The Hessians of a sample as those of models, which share that of their ridge."""

    def __init__(
        self,
        hessians: Sequence[GramPreconditioner],
        penalty: Array,
        share: Array,
        ridge_of: Index,
        q: int,
    ) -> None:
        """``penalty`` is that of a ridge, (c, ridges), and ``share`` rows for one of the sample."""
        self._hessians, self._share, self._ridge_of, self._q = hessians, share, ridge_of, q
        self._is_penalised: Array = np.asarray(penalty.any(axis=1), dtype=np.float64)
        for j in range(penalty.shape[1]):
            for k in range(q):
                hessians[j * q + k].add(penalty[:, j] / share[j])

    def _groups(self, models: Index) -> Iterator[tuple[GramPreconditioner, float, Index]]:
        """Every Hessian with the columns that it is for."""
        ridges = self._ridge_of[models]
        for j in np.unique(ridges).tolist():
            mine = np.flatnonzero(ridges == j) * self._q
            for k in range(self._q):
                yield self._hessians[j * self._q + k], float(self._share[j]), mine + k

    def solve(self, B: Array, models: Index) -> Array:
        """See `Metric`."""
        found = np.empty_like(B)
        for hessian, share, own in self._groups(models):
            found[:, own] = hessian.solve(B[:, own]) / share
        return found

    def squares(self, B: Array, models: Index) -> Array:
        """See `Metric`."""
        found, inside = np.empty(B.shape[1]), self._is_penalised[:, None] * B
        for hessian, share, own in self._groups(models):
            found[own] = hessian.squares(inside[:, own]) * share
        return found


# -- passes with gradients -------------------------------------------------------------------------


@dataclass(frozen=True)
class LiveModels:
    """Models whose gradients a pass takes, by coefficients of raw columns: plain data.

    Models of a fold stand together; ``places`` has where. Those that no row is held out from are
    in none of them. Without ``features`` rows are features themselves. ``scored`` are those whose
    scores are wanted.
    """

    features: FeatureMap | None
    setting: Setting
    coef: Array
    intercept: Array
    places: dict[int, slice]
    scored: Mask


@dataclass(frozen=True)
class _SortedRows:
    """Rows of a block, or their features, with targets and weights, sorted by fold."""

    start: int
    X: Array
    target: Target
    w: Array | None
    numbers: Index


def _sorted_rows(pattern: FoldedBlocks, source: RowSource) -> Iterator[_SortedRows]:
    """The rows of a source, block by block."""
    for block, numbers in pattern.folded(source):
        order, _ = by_fold(numbers)
        X, numbers = block.X, np.asarray(numbers)
        target = pattern.reader.target(block.y)
        w = pattern.reader.weights(block, target)
        if order is not None:
            X, numbers, target = X[order], numbers[order], target.restrict(order)
            w = None if w is None else w[order]
        yield _SortedRows(block.start, X, target, w, numbers)


class HeldRows:
    """The features of all rows, centred, scaled and in single precision, in place of a source."""

    def __init__(self, blocks: list[_SortedRows]) -> None:
        self._blocks = sorted(blocks, key=lambda block: block.start)

    def __add__(self, other: HeldRows) -> HeldRows:
        return HeldRows(self._blocks + other._blocks)

    def __iter__(self) -> Iterator[_SortedRows]:
        for k, block in enumerate(self._blocks):
            yield block
            report_share((k + 1) / len(self._blocks))

    def reduce(self, work: SlopePass, threads: int) -> _Sums:
        """What a pass makes of the rows; each of the threads has blocks of its own."""
        threads = min(threads, len(self._blocks))
        if threads < 2:
            return work(self)
        shares = [HeldRows(self._blocks[k::threads]) for k in range(threads)]
        with lone_blas(threads), ThreadPoolExecutor(threads - 1) as pool:
            others = [pool.submit(work, share) for share in shares[1:]]
            found = work(shares[0])
            for other in others:
                found += other.result()
        return found


@dataclass(frozen=True)
class _Holding(FoldedBlocks):
    """A pass that makes the features of all rows."""

    features: FeatureMap
    centre: Array
    scale: Array

    def __call__(self, source: RowSource) -> HeldRows:
        """Those of the rows that are here."""
        return HeldRows(
            [
                replace(block, X=_standardised(self.features(block.X), self.centre, self.scale))
                for block in _sorted_rows(self, source)
            ]
        )


def _standardised(V: Array, centre: Array, scale: Array) -> Array:
    """Features centred and scaled, in single precision."""
    A: Array = np.empty(V.shape, dtype=np.float32)
    for i in range(0, len(V), VALUES_AT_A_TIME // max(1, V.shape[1]) + 1):
        part = slice(i, i + VALUES_AT_A_TIME // max(1, V.shape[1]) + 1)
        np.divide(V[part] - centre, scale, out=A[part], casting="same_kind")
    return A


# What gives the features of all rows, which it makes once; None if they are not held.
Held: TypeAlias = Callable[[], HeldRows] | None


def holding(source: RowSource, fit: MapFit, pattern: FoldedBlocks, threads: int) -> Held:
    """The features of all rows of a source by the map of some models, made once."""

    @cache
    def held() -> HeldRows:
        with reporting_to(None):
            found: HeldRows = reduced(source, fit.holding(pattern), add, threads)
        return found

    return held


def holds_features(source: RowSource, n: int, width: int, kernels: int = 1) -> bool:
    """Whether the features of all rows are held, for kernels that may be at work together."""
    is_here = source.workers() is None
    return is_here and held_bytes(n, width) * kernels <= _HELD_SHARE * memory_limit()


def held_bytes(n: int, width: int) -> int:
    """What the features of all rows take."""
    return 4 * n * (width + 1)


@dataclass(frozen=True)
class SlopePass(FoldedBlocks):
    """One pass over the rows: the gradients of models, and sums of scores of held-out rows."""

    maps: Sequence[LiveModels]
    scores: Sequence[RowSums] = ()

    def __call__(self, source: RowSource | HeldRows) -> _Sums:
        """Those of the rows that are here: of every map products, sums, and sums of scores."""
        found = _Sums()
        rows = source if isinstance(source, HeldRows) else _sorted_rows(self, source)
        for block in rows:
            for m, live in enumerate(self.maps):
                if live.coef.shape[1]:
                    found.add(m, self._of_rows(live, block))
        return found

    def nothing(self, m: int) -> list[Array]:
        """What no rows give of a map."""
        coef = self.maps[m].coef
        return [np.zeros_like(coef), np.zeros(coef.shape[1]), np.zeros((len(self.scores), 0))]

    def _of_rows(self, live: LiveModels, block: _SortedRows) -> list[Array]:
        """Those of one map for some rows."""
        X, target, w = block.X, block.target, block.w
        q, total = target.columns.shape[1], live.coef.shape[1]
        G, sums = np.zeros(live.coef.shape), np.zeros(total)
        scores = np.zeros((len(self.scores), total // q))
        step = max(256, VALUES_AT_A_TIME // total)
        for start in range(0, len(X), step):
            part = slice(start, start + step)
            z = target.columns[part]
            if live.features is None:
                C, F, z = X[part], *_single_values(live, X[part], z)
            else:
                C = live.features.raw(X[part])
                F = product(C, live.coef)
                F += live.intercept
            F = np.asarray(F).reshape(len(C), -1, q)
            L = live.setting.slope(z, F)
            if w is not None:
                L *= w[part, None, None]
            _, sets = by_fold(block.numbers[part])
            for fold, rows in sets:
                if (place := live.places.get(fold)) is None:
                    continue
                assert isinstance(rows, slice)  # they are sorted by fold
                L[rows, place] = 0.0
                if self.scores and live.scored[place].any():
                    own = np.arange(start + rows.start, start + rows.stop)
                    held = target.restrict(own)
                    for k in place.start + np.flatnonzero(live.scored[place]):
                        for s, score in enumerate(self.scores):
                            scores[s, k] += score(held, F[rows, k])
            flat = L.reshape(len(C), -1)
            if live.features is None:
                G += C.T @ flat.astype(np.float32, copy=False)
            else:
                G += product(C.T, flat)
            sums += flat.sum(axis=0, dtype=np.float64)
        return [G, sums, scores]


def _single_values(live: LiveModels, A: Array, z: Array) -> tuple[Array, Array]:
    """Values of models from features in single precision, and the targets.

    Numbers may lie far from 0, where single precision does not tell their differences.
    """
    F = A @ live.coef
    kind = np.float32 if live.setting.loss.is_margin else np.float64
    F = F.astype(kind, copy=False)
    F += live.intercept.astype(kind)
    return F, z.astype(kind, copy=False)


class _Sums(dict[int, list[Array]]):
    """What passes add up, by the number of the map."""

    def add(self, m: int, found: list[Array]) -> None:
        self[m] = [a + b for a, b in zip(self[m], found, strict=True)] if m in self else found

    def __add__(self, other: _Sums) -> _Sums:
        both = _Sums(self)
        for m, found in other.items():
            both.add(m, found)
        return both


@dataclass(frozen=True)
class _Frame:
    """How features are centred and scaled for the models of a map, and the Hessians of a sample."""

    features: FeatureMap
    setting: Setting
    centre: Array
    scale: Array
    penalised: Array
    hessians: Sequence[GramPreconditioner]
    """Of every ridge and column of the target."""
    weight: float
    """That of the sample."""
    q: int

    @classmethod
    def of(cls, features: FeatureMap, setting: Setting, first: FirstPass, rho: Array) -> _Start:
        """From the sample, whose minima at the ridges are where models start."""
        sample = _Sample(features, first.sample, setting)
        start, hessians = sample.minimum(rho * float(sample.w.sum()) / first.total[2])
        parts = sample.centre, sample.scale, sample.penalised
        return cls(features, setting, *parts, hessians, float(sample.w.sum()), sample.q), start

    def metric(self, rho: Array, weights: Array) -> _Metric:
        """The Hessians as those of models of folds and ridges, by the weights of training sets."""
        penalty = np.outer(self.penalised, 2.0 * rho.mean(axis=0))
        share = np.full(rho.shape[1], weights.mean() / self.weight)
        ridge_of = np.tile(np.arange(rho.shape[1]), len(rho))
        return _Metric(self.hessians, penalty, share, ridge_of, self.q)

    def standard(self, coef: Array) -> tuple[Array, Array]:
        """Coefficients of the features, and intercepts."""
        own = coef[: len(self.scale)] / self.scale[:, None]
        none = np.zeros(coef.shape[1])
        return own, coef[-1] - self.centre @ own if self.setting.intercept else none

    def raw(self, coef: Array) -> tuple[Array, Array]:
        """The same for raw columns."""
        own, intercept = self.standard(coef)
        T = self.features.T
        return np.asfortranarray(own if T is None else product(T, own)), intercept

    def slopes(self, G: Array, sums: Array, *, is_held: bool) -> Array:
        """Gradients, from those of coefficients of raw columns and of intercepts."""
        if not is_held:
            T = self.features.T
            G = G if T is None else product(T.T, G)
            G = (G - np.outer(self.centre, sums)) / self.scale[:, None]
        return np.vstack([G, sums]) if self.setting.intercept else G

    def of_ridge(self, j: int) -> _Frame:
        """The same for one of the ridges."""
        own = self.hessians[j * self.q : (j + 1) * self.q]
        return replace(self, hessians=[hessian.copy() for hessian in own])


_Start: TypeAlias = tuple[_Frame, Array]


class MapFit:
    """The models of some folds and all ridges in the features of one map.

    Attributes
    ----------
    scores : array of shape (scores, folds, ridges)
        Sums of the scores of held-out rows by models that are done.
    """

    def __init__(
        self, frame: _Frame, start: Array, folds: Sequence[int | None], rho: Array, weights: Array
    ) -> None:
        """``start`` has coefficients by ridge, (c, ridges · q); ``rho`` is (folds, ridges)."""
        self._frame, self.folds, self.rho = frame, folds, rho
        self.setting = frame.setting
        self.scores = np.full((0, *rho.shape), np.nan)
        wide = np.repeat(np.outer(frame.penalised, 2.0 * rho.ravel()), frame.q, axis=1)
        self._newton = BlockNewton(
            np.tile(start, (1, len(folds))), wide, frame.metric(rho, weights), frame.q
        )

    @classmethod
    def of(
        cls,
        features: FeatureMap,
        setting: Setting,
        first: FirstPass,
        ridges: Sequence[float],
        folds: Sequence[int | None],
    ) -> MapFit:
        """The models of folds; None in the place of a fold is for all rows."""
        rests = np.array([first.rest(fold) for fold in folds])
        counts = rests[:, 1] if setting.is_mean else np.ones(len(folds))
        rho = np.outer(counts, ridges)
        frame, start = _Frame.of(features, setting, first, rho.mean(axis=0))
        return cls(frame, start, folds, rho, rests[:, 2])

    def whole(self, j: int, first: FirstPass, ridge: float) -> MapFit:
        """That of all rows at one of the ridges, from the mean of the models of the folds."""
        coef, (t, r), q = self._newton.reached, self.rho.shape, self._frame.q
        start = coef.reshape(len(coef), t, r, q)[:, :, j].mean(axis=1)
        rho = np.array([[ridge * (first.total[1] if self._frame.setting.is_mean else 1.0)]])
        return MapFit(self._frame.of_ridge(j), start, [None], rho, first.total[2:3])

    @property
    def is_done(self) -> bool:
        """Whether all models are at their minima, or get no nearer."""
        return self._newton.is_done

    @property
    def errors(self) -> Array:
        """The relative decrements of all models, (folds, ridges); infinite if passes ran out."""
        found = self._newton.errors.copy()
        found[self._newton.live] = np.inf
        return found.reshape(self.rho.shape)

    def holding(self, pattern: FoldedBlocks) -> _Holding:
        """The pass that makes the features of all rows."""
        frame, parts = self._frame, (pattern.reader, pattern.rule, pattern.height)
        return _Holding(*parts, frame.features, frame.centre, frame.scale)

    def live(self, *, is_held: bool) -> LiveModels:
        """The models whose gradients the next pass is to take."""
        newton, frame = self._newton, self._frame
        own = newton.coef[:, newton.columns(newton.live)]
        if is_held:
            c = len(frame.scale)
            intercept = own[-1] if self.setting.intercept else np.zeros(own.shape[1])
            coef: Array = np.asarray(own[:c], dtype=np.float32)
        else:
            coef, intercept = frame.raw(own)
        owner, places = newton.live // self.rho.shape[1], {}
        for i in np.unique(owner).tolist():
            fold = self.folds[i]
            if fold is not None:
                places[fold] = slice(*np.searchsorted(owner, (i, i + 1)).tolist())
        scored = newton.errors[newton.live] <= _NEAR_ENOUGH
        features = None if is_held else frame.features
        return LiveModels(features, self.setting, coef, intercept, places, scored)

    def slopes(self, found: list[Array], *, is_held: bool) -> list[Array]:
        """Gradients and scores, from what a pass found."""
        G, sums, scores = found
        return [self._frame.slopes(G, sums, is_held=is_held), scores]

    def take(self, found: list[Array]) -> None:
        """Go on from the gradients and scores of a pass."""
        slopes, scores = found
        before = self._newton.live
        scored = self._newton.errors[before] <= _NEAR_ENOUGH
        done = self._newton.take(slopes, scored if len(scores) else None)
        if len(self.scores) < len(scores):
            self.scores = np.full((len(scores), *self.rho.shape), np.nan)
        for own, of_pass in zip(self.scores, scores, strict=True):
            own.reshape(-1)[done] = of_pass[np.isin(before, done)]

    def models(self) -> dict[int | None, RidgeModels]:
        """The models of every fold, by coefficients of the features."""
        coef, intercept = self._frame.standard(self._newton.coef)
        (t, r), q = self.rho.shape, self._frame.q
        coef = coef.reshape(len(coef), t, r, q).transpose(1, 2, 0, 3)
        intercept = intercept.reshape(t, r, q)
        ones = np.ones(r)
        return {fold: RidgeModels(coef[i], intercept[i], ones) for i, fold in enumerate(self.folds)}


def minimise(
    source: RowSource,
    fits: Sequence[MapFit],
    pattern: FoldedBlocks,
    scores: Sequence[RowSums] = (),
    threads: int = 1,
    keep: Keep = lambda number, work: work(),
    held: Held = None,
) -> int:
    """Lead the models of all maps to their minima; the number of passes.

    ``keep`` is asked for what the pass of a number found, and does it if it does not know. ``held``
    gives the features of all rows by the only map, if they are held.
    """
    number, usual = 0, fits[0].setting.usual_passes
    while not all(fit.is_done for fit in fits) and number < MOST_PASSES:
        late = held if number < _HELD_PASSES * usual else None
        live = [fit.live(is_held=late is not None) for fit in fits]
        work = SlopePass(pattern.reader, pattern.rule, pattern.height, live, scores)

        def run(work: SlopePass = work, late: Held = late) -> list[list[Array]]:
            if late is None:
                found: _Sums = reduced(source, work, add, threads)
            else:
                found = late().reduce(work, threads)
            parts = [found[m] if m in found else work.nothing(m) for m in range(len(fits))]
            return [
                fit.slopes(part, is_held=late is not None)
                for fit, part in zip(fits, parts, strict=True)
            ]

        with _pass_share(number, usual):
            found = keep(number, run)
        for fit, own in zip(fits, found, strict=True):
            if not fit.is_done:
                fit.take(own)
        number += 1
    return number


@contextmanager
def _pass_share(number: int, usual: int) -> Iterator[None]:
    """Report a pass as its share of the work: of as many passes as usual, then of what is left."""
    if number < usual - 1:
        low, high = number / usual, (number + 1) / usual
    else:
        low = 1.0 - 0.5 ** (number - usual + 1) / usual
        high = 0.5 * (1.0 + low)
    with reporting_share_of(low, high):
        yield


def are_minima(errors: Array) -> bool:
    """Whether models are near enough to their minima to be scored."""
    return bool((errors <= ROUGH).all())
