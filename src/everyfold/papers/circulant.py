r"""p-level circulant kernel matrices: cross-validation in O(n log n), for a million rows.

The kernel matrix is replaced by one that depends on the data through n and a few distances only.
Its rows are read as points of a periodic grid with spacings h_s,

.. math:: T_j = k(0, (j_0 h_0, \ldots, j_{p-1} h_{p-1})), \qquad U_j = \sum_{l \in D_j} T_l, \qquad
          D_{j,s} = \{0\} \text{ or } \{j_s, n_s - j_s\},

and U is the first column of :math:`\tilde K` (Song & Xu 2010; Edwards, Zhang, Parker & New 2013,
Algorithm 1). The rbf and the laplacian kernel are products over the levels, so that U and its
eigenvalues are outer products of p vectors: O(n) work and p short transforms for a whole matrix.
The grid comes first here, then the matrix and its response, and last :class:`Circulant`, which
users pass as ``operator=``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from sklearn.utils import check_random_state

from everyfold._progress import warn
from everyfold._typing import Array, Index, Matrix, RandomState, Route
from everyfold.folds import lengths
from everyfold.kernels import RBF, Kernel, Laplacian
from everyfold.kernels.pairwise import dense, is_sparse
from everyfold.linalg.symmetric import EPS, refuse, spectrum
from everyfold.operators.base import OperatorSpec, Structure, SupportsResponse
from everyfold.operators.dense import Dense, DenseMatrix
from everyfold.operators.response import (
    Quadratic,
    Response,
    Solution,
    StructureError,
    influence_series,
)

# -- Rows read as the points of a periodic grid, and Fourier transforms over it -------------------
# Row i of n = n_0 · … · n_{p−1} stands at the multi-index (j_0, …, j_{p−1}) with i in C order. A
# p-level circulant matrix depends on the difference of two multi-indices only, each component
# modulo its factor, so the Fourier transform over the grid diagonalises it.


Spectrum = NDArray[np.complex128]

# Factors whose largest is at most this many times the smallest count as balanced: a smaller number
# drops more rows, a larger one allows levels with few points.
BALANCED = 4.0


@dataclass(frozen=True)
class Grid:
    """A periodic grid of ``factors``, with the real transforms over it.

    Real transforms have the half spectrum n_{p−1}//2 + 1 in the last axis; ``count`` says how many
    of the n frequencies each of its entries stands for. How many threads a transform takes is left
    to :func:`scipy.fft.set_workers`.

    Examples
    --------
    >>> grid = Grid((2, 3))
    >>> grid.n, grid.half, grid.count
    (6, (2, 2), array([1., 2.]))
    >>> grid.column(np.ones(grid.half))
    array([1., 0., 0., 0., 0., 0.])
    """

    factors: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of points."""
        return math.prod(self.factors)

    @property
    def levels(self) -> int:
        """The number of axes."""
        return len(self.factors)

    @property
    def half(self) -> tuple[int, ...]:
        """The shape of a half spectrum."""
        return (*self.factors[:-1], self.factors[-1] // 2 + 1)

    @cached_property
    def count(self) -> Array:
        """How many frequencies an entry of the half spectrum stands for, along the last axis."""
        last = self.factors[-1]
        count = np.full(last // 2 + 1, 2.0)
        count[0] = 1.0
        if last % 2 == 0:
            count[-1] = 1.0
        return count

    @cached_property
    def counts(self) -> Array:
        """``count`` for every entry of the half spectrum, flat."""
        return np.tile(self.count, math.prod(self.half[:-1]))

    def tail(self, lead: int) -> Grid:
        """The grid of the levels after the first ``lead``: the block where those are fixed."""
        return Grid(self.factors[lead:])

    # -- transforms --------------------------------------------------------------------------------

    def transform(self, B: Array) -> Spectrum:
        """The half spectra of (…, n) signals: (…, half); O(n log n) each."""
        axes = tuple(range(-self.levels, 0))
        shaped = B.reshape(*B.shape[:-1], *self.factors)
        return np.asarray(fft.rfftn(shaped, axes=axes), dtype=np.complex128)

    def invert(self, spectra: Spectrum | Array) -> Array:
        """The (…, n) signals of half spectra: the inverse of ``transform``."""
        axes = tuple(range(-self.levels, 0))
        shaped = fft.irfftn(spectra, s=self.factors, axes=axes)
        return np.asarray(shaped, dtype=np.float64).reshape(*shaped.shape[: -self.levels], self.n)

    def filter(self, values: Array, B: Array) -> Array:
        """The circulant with eigenvalues ``values`` (half spectrum) times an (n, k) matrix."""
        spectra = self.transform(np.ascontiguousarray(B.T))
        spectra *= values
        return self.invert(spectra).T

    # -- circulant matrices by their eigenvalues (half spectra) ------------------------------------

    def total(self, values: Array) -> float:
        """The sum over all n frequencies: the trace."""
        return float(values.reshape(-1, len(self.count)).sum(axis=0) @ self.count)

    def column(self, values: Array) -> Array:
        """The first column."""
        return self.invert(values)

    def block_values(self, values: Array, lead: int) -> Array:
        """The eigenvalues of every diagonal block where the first ``lead`` indices are fixed.

        They are the means over the leading frequencies; all blocks are the same matrix.
        """
        if lead == self.levels:
            return np.asarray(self.total(values) / self.n)
        return np.asarray(values.mean(axis=tuple(range(lead))))

    def gather(self, column: Array, rows: Index, columns: Index) -> Array:
        """Entries of the matrix with this first column, at broadcast row and column numbers."""
        flat = np.zeros(np.broadcast_shapes(rows.shape, columns.shape), dtype=np.intp)
        i, j = np.unravel_index(rows, self.factors), np.unravel_index(columns, self.factors)
        for i_s, j_s, factor in zip(i, j, self.factors, strict=True):
            flat *= factor
            flat += (i_s - j_s) % factor
        return column[flat]

    # -- which sets of rows are blocks -------------------------------------------------------------

    @property
    def fold_counts(self) -> tuple[int, ...]:
        """The numbers of folds that align: products of leading factors."""
        counts = np.cumprod(self.factors).tolist()
        return tuple(sorted({count for count in counts if count > 1}))

    def lead_of(self, m: int) -> int | None:
        """How many leading indices are fixed in an aligned block of m rows; None if none has m."""
        sizes = [math.prod(self.factors[lead:]) for lead in range(self.levels + 1)]
        return sizes.index(m) if m in sizes else None

    def is_aligned(self, rows: Index) -> bool:
        """Whether all t sets of m rows are blocks of consecutive rows with fixed indices."""
        m = rows.shape[1]
        if m == 1:
            return True
        if self.lead_of(m) is None:
            return False
        starts = rows[:, :1]
        return not (starts % m).any() and bool((rows == starts + np.arange(m)).all())


# -- factorisations -------------------------------------------------------------------------------


def primes_of(n: int) -> list[int]:
    """The prime factors of n, ascending, with multiplicity.

    Examples
    --------
    >>> primes_of(360)
    [2, 2, 2, 3, 3, 5]
    """
    primes, d = [], 2
    while d * d <= n:
        while n % d == 0:
            primes.append(d)
            n //= d
        d += 1
    return [*primes, n] if n > 1 else primes


def divisors_of(n: int) -> list[int]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def balance(n: int, levels: int) -> tuple[int, ...]:
    """Factor n into ``levels`` factors > 1 of similar size; fewer if it has too few primes.

    Examples
    --------
    >>> balance(1024, 2), balance(1000, 3), balance(1300, 2), balance(13, 2)
    ((32, 32), (10, 10, 10), (26, 50), (13,))
    """
    levels = max(1, min(levels, len(primes_of(n))))
    if levels == 1:
        return (n,)
    wanted = math.log(n) / levels
    fitting = [d for d in divisors_of(n) if d > 1 and len(primes_of(n // d)) >= levels - 1]
    first = min(fitting, key=lambda d: abs(math.log(d) - wanted))
    return tuple(sorted((first, *balance(n // first, levels - 1))))


def nearest_factors(n: int, levels: int, n_folds: int | None = None) -> tuple[int, ...]:
    """Factors of the largest number up to n that aligns with ``n_folds`` and is balanced otherwise.

    Examples
    --------
    >>> nearest_factors(1009, 2), nearest_factors(1009, 2, n_folds=10)
    ((28, 36), (10, 100))
    """
    if n_folds is not None:
        rest = nearest_factors(n // n_folds, max(1, levels - 1))
        return (n_folds, *rest)
    for m in range(n, 1, -1):
        factors = balance(m, levels)
        if len(factors) == levels and max(factors) <= BALANCED * min(factors):
            return factors
    raise ValueError(f"n_samples={n} is too small for {levels} levels; use fewer levels")


# Clipping more than this share of the spectrum is worth a warning.
CLIPPED_SHARE = 0.01

# How many frequencies are handled at a time where the result is a sum, so that they stay in cache.
_PIECE = 1 << 14


class CirculantWarning(UserWarning):
    """A circulant matrix differs from what was asked for: clipped eigenvalues, fewer levels."""


NO_NEW_ROWS = (
    "a circulant matrix depends on the rows through their number only and knows nothing about "
    "new ones, so it cannot predict them; use Circulant(refit=Dense()), with which fit uses "
    "the same gamma and ridge in an exact model. In a cross-validation use a gamma that is a "
    "number, not 'scale', and no preprocessing by fold"
)


class CirculantMatrix(SupportsResponse):
    r"""The p-level circulant :math:`\tilde K`, held as its eigenvalues.

    Attributes
    ----------
    grid : Grid
    steps : tuple of float
        The spacings, one a level.
    values : array of shape ``grid.half``
        The eigenvalues, none negative.
    clipped_share : float
        What was clipped to make it so: Σ|negative| / Σ|all|. Where the kernel has not decayed over
        half a period of the grid it is not small, and the matrix is far from its definition.
    """

    lacks = NO_NEW_ROWS

    def __init__(self, grid: Grid, steps: tuple[float, ...], kernel: RBF | Laplacian) -> None:
        self.grid = grid
        self.n = grid.n
        self.steps = steps
        values = _eigenvalues(grid, steps, kernel)
        size = grid.total(np.abs(values))
        self.clipped_share = grid.total(np.maximum(-values, 0.0)) / size
        self.values = np.maximum(values, 0.0, out=values)
        if self.clipped_share > CLIPPED_SHARE:
            warn(
                f"{self.clipped_share:.1%} of the spectrum of the circulant matrix is negative and "
                f"was clipped at 0: {kernel} has not decayed over half a period of the grid "
                f"{grid.factors} with steps {steps}. Scores of this candidate mean little; use a "
                "larger gamma or larger steps",
                CirculantWarning,
            )

    @property
    def outline(self) -> OperatorSpec:
        """See base class."""
        return OperatorSpec(self.n, ("fourier",), is_approximate=True)

    @cached_property
    def column(self) -> Array:
        """The first column of the matrix."""
        return self.grid.column(self.values)

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue."""
        return float(self.values.min()), float(self.values.max())

    def matmat(self, B: Array) -> Array:
        """K B, two transforms a column."""
        return self.grid.filter(self.values, B)

    def evaluate(self, coef: Array) -> Array:
        """See base class: K a."""
        return self.matmat(coef)

    def diagonal(self) -> Array:
        """See base class: one number n times."""
        return np.full(self.n, self.grid.total(self.values) / self.n)

    def eigenvalues(self) -> Array:
        """All n eigenvalues, ascending."""
        count = np.broadcast_to(self.grid.count.astype(np.intp), self.values.shape)
        return np.sort(np.repeat(self.values.ravel(), count.ravel()))

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[CirculantResponse]:
        """See base class. One transform of z serves every ridge, whatever the route."""
        data = Transformed(self.grid, quadratic, _common(quadratic.s))
        return (CirculantResponse(self, data, rho) for rho in rhos)

    def check(self, weights: Array, sets: Sequence[Index]) -> None:
        """See base class: equal weights, and blocks of rows with fixed leading indices."""
        check_sets(self.grid, weights, sets)

    def restrict(self, rows: Index) -> DenseMatrix:
        """See base class; some rows of a circulant are no circulant: an array of their number²."""
        return DenseMatrix(self.cross(rows, rows))

    def cross(self, new: Index, rows: Index) -> Array:
        """See base class: the entries of the matrix between the two sets."""
        return self.grid.gather(self.column, new[:, None], rows[None, :])

    def check_varying(self, loss: str) -> None:
        """See base class: it is."""
        raise StructureError(
            f"{loss} has a curvature that differs between rows, which is not possible with a "
            "circulant matrix; use loss='squared' or operator='dense'"
        )


def check_sets(grid: Grid, weights: Array, sets: Sequence[Index]) -> None:
    """Raise unless weights are equal and sets are blocks of rows with fixed leading indices."""
    _common(np.sqrt(weights))
    sizes = lengths(sets)
    for m in np.unique(sizes):
        if m > 1:
            rows = np.stack([rows for rows in sets if len(rows) == m])
            if not grid.is_aligned(rows):
                is_partition = sizes.sum() == grid.n
                raise _unaligned(grid, int(m), len(sets) if is_partition else None)


def _eigenvalues(grid: Grid, steps: Sequence[float], kernel: RBF | Laplacian) -> Array:
    """The half spectrum of U, an outer product; its last level by a real transform."""
    columns = [_level(kernel, n_s, h) for n_s, h in zip(grid.factors, steps, strict=True)]
    spectra = [np.real(fft.fft(u)) for u in columns[:-1]] + [np.real(fft.rfft(columns[-1]))]
    return np.asarray(reduce(np.multiply.outer, spectra), dtype=np.float64)


def _level(kernel: RBF | Laplacian, n_s: int, h: float) -> Array:
    """One level of U: the kernel at j h, and at (n_s − j) h where that is another point."""
    distance = np.arange(n_s, dtype=np.float64) * h
    t = kernel.from_base(np.square(distance) if kernel.base == "squared_distance" else distance)
    u: Array = t.copy()
    u[1:] += t[:0:-1]
    if n_s % 2 == 0:
        u[n_s // 2] = t[n_s // 2]
    return u


def _common(s: Array) -> float:
    """The one weight of all rows; several destroy the structure."""
    if s.min() < s.max() or s[0] == 0.0:
        raise StructureError(
            "a circulant matrix needs the same weight and the same curvature of the loss in "
            "every row: sample_weight, class_weight and losses other than 'squared' make rows "
            "differ; use squared loss without weights, or Dense()"
        )
    return float(s[0])


class Transformed:
    """The targets in the Fourier domain, transformed once for all ridges."""

    def __init__(self, grid: Grid, quadratic: Quadratic, s: float) -> None:
        self.grid = grid
        self.s = s
        self.z = quadratic.z
        self.intercept = quadratic.intercept

    @cached_property
    def spectra(self) -> Spectrum:
        """The half spectra of s z, (q, half)."""
        spectra = self.grid.transform(np.ascontiguousarray(self.z.T))
        if self.s != 1.0:
            spectra *= self.s
        return spectra

    @cached_property
    def power(self) -> Array:
        """|spectra|² by frequency, (q, frequencies), such that rows sum to the norms of s z."""
        q = self.z.shape[1]
        power: Array = np.square(self.spectra.real)
        power += np.square(self.spectra.imag)
        power *= self.grid.count / self.grid.n
        return power.reshape(q, -1)


class CirculantResponse(Response):
    r"""M and R of a circulant kernel by their eigenvalues.

    With λ those of :math:`\tilde K`, and in every row the same weight s²,

    .. math:: R = \frac{1}{s^2\lambda + \rho}, \qquad M = \frac{\lambda / 2}{s^2\lambda + \rho},
              \qquad \text{scale} = \rho,

    except that an intercept makes R = 0 and M = 1/(2 s²) at frequency 0.

    **Cost** two transforms for a solution, two over the trailing levels to hold out every fold.
    **Exact?** Yes, for the circulant matrix.
    """

    def __init__(self, matrix: CirculantMatrix, data: Transformed, rho: float) -> None:
        smallest, largest = (data.s**2 * value + rho for value in matrix.extremes)
        if smallest <= EPS * largest:
            raise refuse(smallest, rho)
        self.rho = rho
        self.condition = largest / smallest
        self._grid = matrix.grid
        self._values = matrix.values
        self._data = data

    @property
    def curvature(self) -> Array:
        """See base class; the same for every row."""
        return np.full(self._grid.n, 2.0 * self._data.s**2)

    @cached_property
    def _R(self) -> Array:
        """The eigenvalues of R."""
        R = self._values * self._data.s**2
        R += self.rho
        np.reciprocal(R, out=R)
        if self._data.intercept:
            R.flat[0] = 0.0
        return R

    @cached_property
    def _H(self) -> Array:
        """The eigenvalues of D^{1/2} M D^{1/2} = s² λ / (s² λ + ρ); 1 at 0 with an intercept."""
        H = self._values * self._data.s**2
        H /= H + self.rho
        if self._data.intercept:
            H.flat[0] = 1.0
        return H

    @property
    def _M(self) -> Array:
        return self._H / (2.0 * self._data.s**2)

    def solution(self) -> Solution:
        """See base class. ``coef`` are the dual coefficients, the intercept is the mean of z."""
        q = self._data.z.shape[1]
        b = self._data.z.mean(axis=0) if self._data.intercept else np.zeros(q)
        return Solution(self._data.s * self.reduced(), b)

    # -- R -----------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """The ridge."""
        return self.rho

    @cached_property
    def _reduced(self) -> Array:
        return self._grid.invert(self._data.spectra * self._R).T

    def reduced(self) -> Array:
        """See base class; one inverse transform."""
        return self._reduced

    def reduced_norm(self) -> Array:
        """See base class; by Parseval's identity, without a transform."""
        return self._sums[0]

    def residual_blocks(self, rows: Index) -> Array:
        """See base class; gathered from the first column of R."""
        column = self._grid.column(self._R)
        return self._grid.gather(column, rows[:, :, None], rows[:, None, :])

    def residual_diagonal(self) -> Array:
        """See base class: one number n times."""
        return np.full(self._grid.n, self._grid.total(self._R) / self._grid.n)

    def residual_trace(self, rows: Index) -> float:
        """See base class; without a transform."""
        return len(rows) * self._sums[1] / self._grid.n

    @cached_property
    def _sums(self) -> tuple[Array, float]:
        """The squared norms of R s z and the trace of R: one pass, in pieces that stay in cache."""
        norm, trace, weight = np.zeros(self._data.z.shape[1]), 0.0, self._data.s**2
        values, count, power = self._values.ravel(), self._grid.counts, self._data.power
        for i in range(0, values.size, _PIECE):
            piece = slice(i, i + _PIECE)
            R = values[piece] + self.rho / weight
            np.reciprocal(R, out=R)
            if i == 0 and self._data.intercept:
                R[0] = 0.0
            # einsum and not BLAS, whose threads cost more here than the sums do.
            trace += float(np.einsum("i,i->", count[piece], R))
            R *= R
            norm += np.einsum("qi,i->q", power[:, piece], R)
        return norm / weight**2, trace / weight

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        """See base class. The sets must be blocks with fixed leading indices.

        **Cost** two transforms of each set, O(n log n) for all; memory O(n) a column.
        """
        lead = self._lead(rows)
        return self._filter_blocks(1.0 / self._grid.block_values(self._R, lead), lead, B)

    def hat_series(self, rows: Index, B: Array, order: int) -> Array:
        """See base class; as ``solve_residual_blocks``."""
        lead = self._lead(rows)
        H = self._grid.block_values(self._H, lead)
        powers = influence_series(H, lambda term: H * term, order) if order else 0.0 * H
        return self._filter_blocks(powers, lead, B)

    def radius(self, rows: Index) -> Array:
        """See base class; the same for every set."""
        H = self._grid.block_values(self._H, self._lead(rows))
        return np.full(len(rows), float(H.max()))

    def _lead(self, rows: Index) -> int:
        """How many leading indices are fixed in these sets; refuses sets that are no blocks."""
        m = rows.shape[1]
        lead = self._grid.lead_of(m)
        if lead is None or not self._grid.is_aligned(rows):
            raise _unaligned(self._grid, m)
        return lead

    def _filter_blocks(self, values: Array, lead: int, B: Array) -> Array:
        """The circulant blocks with these eigenvalues times (t, m, k): one batch of transforms."""
        if lead == self._grid.levels:
            return B * values
        tail = self._grid.tail(lead)
        spectra = tail.transform(np.ascontiguousarray(np.moveaxis(B, 2, 0)))
        spectra *= values
        return np.moveaxis(tail.invert(spectra), 0, 2)

    # -- M -----------------------------------------------------------------------------------------

    def matmat(self, B: Array) -> Array:
        """See base class; two transforms a column."""
        return self._grid.filter(self._M, B)

    def block(self, rows: Index, columns: Index) -> Array:
        """See base class; gathered from the first column of M."""
        return self._grid.gather(self._grid.column(self._M), rows[:, None], columns[None, :])

    def diagonal(self) -> Array:
        """See base class: one number n times."""
        return np.full(self._grid.n, self.trace() / self._grid.n)

    def trace(self) -> float:
        """See base class; O(n)."""
        return self._grid.total(self._M)


# -- what is refused, and what to do instead -------------------------------------------------------


def spell_counts(grid: Grid) -> str:
    """The numbers of folds that align, in words."""
    return " or ".join(str(count) for count in grid.fold_counts)


def _unaligned(grid: Grid, m: int, n_folds: int | None = None) -> StructureError:
    """The error for folds that are no blocks, with the nearest partition that is one."""
    wanted = n_folds or max(2, round(grid.n / m))
    nearest = min(grid.fold_counts, key=lambda count: abs(math.log(count / wanted)))
    message = (
        f"cv: a fold of {m} rows does not align with the factors {grid.factors} of the circulant "
        f"matrix: folds must be blocks of consecutive rows, {spell_counts(grid)} in number. The "
        f"nearest is cv=KFold(n_splits={nearest}) without shuffling"
    )
    possible = min(divisors_of(grid.n)[1:], key=lambda count: abs(math.log(count / wanted)))
    if possible not in grid.fold_counts:
        rest = balance(grid.n // possible, max(1, grid.levels - 1))
        factors = (possible, *rest) if grid.n > possible else (possible,)
        message += f"; with Circulant(factors={factors}) it is cv=KFold(n_splits={possible})"
    if possible != wanted:
        message += f"; for {wanted} folds drop rows: Circulant().sample({grid.n}, n_folds={wanted})"
    return StructureError(message)


# How many pairs of rows a distance is measured on: it is the median of a sample, so that binding
# takes O(1) of them for any number of rows.
_PAIRS = 1000

# Neighbours at this share of the distance of random rows or more are no neighbours. Benchmark sets
# in random order have 0.97 to 1.05 on average over the levels, arranged ones at most 0.88.
_AS_FAR_AS_ANY = 0.95


@dataclass(frozen=True)
class Circulant(Structure):
    r"""Replace the kernel matrix by a p-level circulant matrix: the fastest and crudest structure.

    Cross-validation of the model with this matrix is exact and takes O(n log n), including
    leave-one-out. How well its scores agree with those of the exact model depends on the order of
    the rows. They agree if the rows are the points of a regular grid in C order (a field, an image,
    a time series), and often if ``arrange`` has put the rows in order. For rows in random order the
    scores are noise. A warning says if neighbouring rows are as far apart as any others.

    Parameters
    ----------
    factors : "auto" or tuple of int, default="auto"
        The factors n_0, …, n_{p−1} of the number of rows; "auto" uses ``levels`` factors of similar
        size. Folds must be blocks of consecutive rows, and their number must be a product of
        leading factors: for l-fold cross-validation let the first factor be l.
    steps : "auto", float or tuple of float, default="auto"
        The spacings h_s > 0 of the grid, in the units of X; one number is used for all levels.
        "auto" is the median distance between rows that are neighbours in the level. Scaling all
        steps by c has the same effect as scaling the gamma of an rbf by c².
    levels : int, default=2
        The number of factors for "auto".
    refit : Structure or None, default=Dense()
        The structure that an estimator's ``fit`` uses with the selected gamma and ridge. A
        circulant matrix cannot predict new rows, so by default the final model is the exact one.
        With None, ``fit`` raises an error.

    Notes
    -----
    **Cost** O(n log n) time and O(n) memory for all computations.
    **Exact?** Folds are exact for the circulant matrix; the matrix is an approximation.

    Examples
    --------
    >>> from everyfold.kernels import RBF
    >>> X = np.stack(np.meshgrid(np.arange(8.0), np.arange(6.0), indexing="ij"), -1).reshape(48, 2)
    >>> K = Circulant(factors=(8, 6)).bind(RBF(gamma=2.0), X)
    >>> K.steps, K.grid.fold_counts
    ((1.0, 1.0), (8, 48))
    """

    factors: Literal["auto"] | tuple[int, ...] = "auto"
    steps: Literal["auto"] | float | tuple[float, ...] = "auto"
    levels: int = 2
    refit: Structure | None = field(default_factory=Dense)

    methods: ClassVar[tuple[str, ...] | None] = ("fourier",)
    is_approximate: ClassVar[bool] = True

    RANGE: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0, 5.0, 10.0)
    """Steps that ``candidates`` tries; the literature has values from 1 to 11."""

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"levels={self.levels!r} is not allowed; use 1, 2, 3, …")
        if self.factors != "auto" and not _are_counts(self.factors):
            raise ValueError(
                f"factors={self.factors!r} is not allowed; use 'auto' or integers >= 1 whose "
                "product is the number of rows"
            )
        if self.steps != "auto" and not _are_positive(self.steps):
            raise ValueError(
                f"steps={self.steps!r} is not allowed; use 'auto', a finite number > 0, or one for "
                "each level"
            )

    def bind(self, kernel: Kernel, X: Matrix) -> CirculantMatrix:
        """See base class."""
        if not isinstance(kernel, (RBF, Laplacian)):
            raise StructureError(
                f"a circulant matrix needs a kernel that is a function of distances and a product "
                f"over features: 'rbf' or 'laplacian', not {kernel}; use Dense() or 'auto'"
            )
        grid = self._grid(X.shape[0])
        measured = [_neighbour_distance(grid, level, kernel, X) for level in range(grid.levels)]
        _check_order(measured, kernel, X)
        return CirculantMatrix(grid, self._steps(grid, measured), kernel)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows

    def check(self, n: int, weights: Array, sets: Sequence[Index]) -> None:
        """See base class: equal weights, and blocks of rows with fixed leading indices."""
        with warnings.catch_warnings(action="ignore", category=CirculantWarning):  # binding says it
            grid = self._grid(n)
        check_sets(grid, weights, sets)

    def to_fit(self) -> Structure:
        """See base class: the structure of ``refit``."""
        if self.refit is None:
            raise StructureError(NO_NEW_ROWS)
        return self.refit.to_fit()

    @classmethod
    def candidates(cls, levels: Sequence[int] = (1, 2), **params: Any) -> list[Circulant]:
        """Structures for a search: every number of levels with "auto" and all steps of ``RANGE``.

        Examples
        --------
        >>> grid = {"operator": Circulant.candidates(), "alpha": [0.1, 1.0], "gamma": [0.5]}
        >>> len(grid["operator"])
        12
        """
        steps: list[Literal["auto"] | float] = ["auto", *cls.RANGE]
        return [cls(steps=h, levels=p, **params) for p in levels for h in steps]

    def arrange(self, X: Matrix) -> Index:
        """Return an order of the rows in which neighbours are similar; apply it to X and y.

        Rows are sorted by their first principal component into n_0 groups, each of these by the
        second into n_1, and so on. Leave-one-out needs nothing else; other folds then leave out
        blocks of similar rows together, which is harder than leaving out random rows.

        **Cost** n d² + d³ flops for d features, and p sorts.

        Examples
        --------
        >>> X = np.array([[3.0, 0.0], [0.0, 1.0], [3.0, 1.0], [0.0, 0.0]])
        >>> X[Circulant(factors=(2, 2)).arrange(X)]
        array([[0., 0.],
               [0., 1.],
               [3., 0.],
               [3., 1.]])
        """
        grid = self._grid(X.shape[0])
        keys = _components(X, grid.levels)
        rows = np.arange(grid.n)[None, :]
        for level, factor in enumerate(grid.factors):
            key = keys[:, min(level, keys.shape[1] - 1)]
            order = np.argsort(key[rows], axis=1, kind="stable")
            rows = np.take_along_axis(rows, order, axis=1).reshape(len(rows) * factor, -1)
        return rows.ravel()

    def sample(
        self, n_rows: int, n_folds: int | None = None, random_state: RandomState = 0
    ) -> tuple[Index, tuple[int, ...]]:
        """Return the rows of the nearest sub-sample whose number has factors, and these factors.

        Use it if the number of rows has no useful factors, above all if it is prime. As few rows as
        possible are dropped at random; the order of the others is kept.

        Examples
        --------
        >>> rows, factors = Circulant().sample(1009, n_folds=8)
        >>> len(rows), factors
        (1008, (8, 126))
        """
        factors = nearest_factors(n_rows, self.levels, n_folds)
        random = check_random_state(random_state)
        kept = random.choice(n_rows, math.prod(factors), replace=False)
        return np.sort(kept), factors

    def _grid(self, n: int) -> Grid:
        if self.factors == "auto":
            factors = balance(n, self.levels)
            if len(factors) < self.levels:
                warn(
                    f"n_samples={n} is not a product of {self.levels} numbers above 1, so that the "
                    f"circulant matrix has the factors {factors} and fits only "
                    f"{spell_counts(Grid(factors))} folds. For another number of folds, leave a "
                    f"few rows out: Circulant(levels={self.levels}).sample({n}, n_folds=...)",
                    CirculantWarning,
                )
            return Grid(factors)
        grid = Grid(tuple(int(factor) for factor in self.factors))
        if grid.n != n:
            raise ValueError(
                f"factors={self.factors!r} have the product {grid.n}, but there are n_samples={n}; "
                f"use 'auto' or, for example, factors={balance(n, len(self.factors))}"
            )
        return grid

    def _steps(self, grid: Grid, measured: Sequence[float]) -> tuple[float, ...]:
        if self.steps == "auto":
            return tuple(distance or 1.0 for distance in measured)
        if isinstance(self.steps, (int, float)):
            return (float(self.steps),) * grid.levels
        if len(self.steps) != grid.levels:
            raise ValueError(
                f"steps={self.steps!r} are {len(self.steps)} numbers, but the factors "
                f"{grid.factors} make {grid.levels} levels; pass one number or one for each level"
            )
        return tuple(float(h) for h in self.steps)


def _are_counts(factors: Sequence[object]) -> bool:
    n = np.asarray(factors)
    return n.ndim == 1 and n.size > 0 and n.dtype.kind in "iu" and bool((n >= 1).all())


def _are_positive(steps: float | tuple[float, ...]) -> bool:
    h = np.asarray(steps)
    if h.ndim > 1 or h.size == 0 or h.dtype.kind not in "iuf":
        return False
    return bool(np.isfinite(h).all() and (h > 0.0).all())


def _neighbour_distance(grid: Grid, level: int, kernel: Kernel, X: Matrix) -> float:
    """The median distance between neighbours in one level, or the mean where that is 0."""
    stride = math.prod(grid.factors[level + 1 :])
    starts = np.arange(grid.n).reshape(*grid.factors[: level + 1], stride)[..., :-1, :].ravel()
    if starts.size == 0:
        return 0.0
    chosen = starts[np.linspace(0, starts.size - 1, min(_PAIRS, starts.size)).astype(np.intp)]
    return _typical_distance(X, chosen, chosen + stride, kernel)


def _typical_distance(X: Matrix, rows: Index, others: Index, kernel: Kernel) -> float:
    """The median distance of pairs of rows in the kernel's metric, or the mean where that is 0."""
    difference = abs(X[others] - X[rows])
    is_squared = kernel.base == "squared_distance"
    if is_squared:
        difference = difference.multiply(difference) if is_sparse(difference) else difference**2
    sums = np.asarray(difference.sum(axis=1), dtype=np.float64).ravel()
    distances = np.sqrt(sums) if is_squared else sums
    return float(np.median(distances)) or float(distances.mean())


def _check_order(measured: Sequence[float], kernel: Kernel, X: Matrix) -> None:
    """Warn if neighbours in the grid are as far apart as rows at random."""
    pairs = np.random.default_rng(0).integers(0, X.shape[0], size=(2, _PAIRS))
    rows, others = pairs[:, pairs[0] != pairs[1]]
    if rows.size == 0:
        return
    anywhere = _typical_distance(X, rows, others, kernel)
    if anywhere > 0.0 and float(np.mean(measured)) >= _AS_FAR_AS_ANY * anywhere:
        warn(
            "neighbouring rows are as far apart as any others, so that a circulant matrix, "
            "which uses only their order, does not approximate the kernel matrix, and its "
            "scores are noise; put X and y in order first: rows = Circulant().arrange(X)",
            CirculantWarning,
        )


def _components(X: Matrix, count: int) -> Array:
    """The coordinates of the rows along their leading principal directions, largest first."""
    n, d = X.shape
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    scatter = np.asarray(dense(X.T @ X), dtype=np.float64) - n * np.outer(mean, mean)
    directions = spectrum(scatter)[1][:, max(0, d - count) :]
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
    directions = directions * np.sign(largest)  # a sign that does not depend on the library
    return np.asarray(X @ directions[:, ::-1], dtype=np.float64)
