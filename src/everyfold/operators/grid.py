r"""Rows read as the points of a periodic grid, and Fourier transforms over it.

Row i of n = n_0 · … · n_{p−1} stands at the multi-index (j_0, …, j_{p−1}) with i in C order. A
p-level circulant matrix depends on the difference of two multi-indices only, each component modulo
its factor, so the Fourier transform over the grid diagonalises it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from everyfold.types import Array, Index

Spectrum = NDArray[np.complex128]

BALANCED = 4.0
"""Factors whose largest is at most this many times the smallest count as balanced."""


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


def is_balanced(factors: Sequence[int], levels: int) -> bool:
    """Whether there are as many factors as asked for, and of similar size."""
    return len(factors) == levels and max(factors) <= BALANCED * min(factors)


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
        if is_balanced(factors, levels):
            return factors
    raise ValueError(f"n_samples={n} is too small for {levels} levels; use fewer levels")
