r"""p-level circulant kernel matrices: cross-validation in O(n log n), for a million rows.

The kernel matrix is replaced by one that depends on the data through n and a few distances only.
Its rows are read as points of a periodic grid (:mod:`everyfold.papers.circulant_response`)
with spacings h_s,

.. math:: T_j = k(0, (j_0 h_0, \ldots, j_{p-1} h_{p-1})), \qquad U_j = \sum_{l \in D_j} T_l, \qquad
          D_{j,s} = \{0\} \text{ or } \{j_s, n_s - j_s\},

and U is the first column of :math:`\tilde K` (Song & Xu 2010; Edwards, Zhang, Parker & New 2013,
Algorithm 1). The rbf and the laplacian kernel are products over the levels, so that U and its
eigenvalues are outer products of p vectors: O(n) work and p short transforms for a whole matrix.
The matrix itself and its response are in :mod:`everyfold.papers.circulant_response`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils import check_random_state

from everyfold._progress import warn
from everyfold._typing import Array, Index, Matrix, RandomState
from everyfold.kernels import RBF, Kernel, Laplacian
from everyfold.kernels.pairwise import dense, is_sparse
from everyfold.linalg.symmetric import spectrum
from everyfold.operators.base import Structure
from everyfold.operators.dense import Dense
from everyfold.operators.response import StructureError
from everyfold.papers.circulant_response import (
    NO_NEW_ROWS,
    CirculantMatrix,
    CirculantWarning,
    Grid,
    balance,
    check_sets,
    nearest_factors,
    spell_counts,
)

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CirculantWarning)  # binding says it
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
                    f"{spell_counts(Grid(factors))} folds. For another number of folds, leave a few "
                    f"rows out: Circulant(levels={self.levels}).sample({n}, n_folds=...)",
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
