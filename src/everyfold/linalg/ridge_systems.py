r"""Ridge systems: the factorisations behind every dense response.

A symmetric matrix :math:`\hat K` is factorised once; each ridge then gives a ``RidgeSystem``, the
matrix :math:`\hat G = (\hat K + \rho I)^{-1}` in whatever form the factorisation makes cheapest.
Nothing outside :mod:`everyfold.linalg` factorises anything.

=============  ======================  ===========================  =============================
route          once, flops             a further ridge, flops       gives cheaply
=============  ======================  ===========================  =============================
tridiagonal    4/3 n³                  n² (apply Q)                 solutions only
eigen          ~ 9 n³                  n Σ m² for the blocks        solutions, diagonal, blocks
explicit       ~ 9 n³                  n³ (form G)                  any number of blocks
cholesky       0                       n³/3, + n³/3 for the blocks  solutions, diagonal, blocks
=============  ======================  ===========================  =============================

All products go through :mod:`scipy.linalg`: NumPy carries a second BLAS whose idle threads would
spin against this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from scipy.linalg import blas, eigvalsh_tridiagonal, lapack

from everyfold._typing import Array, Index, Route
from everyfold.linalg.symmetric import (
    CHUNK,
    EPS,
    SMALL_BLOCK,
    condition_at,
    gram_of_rows,
    invert_lower,
    mirror,
    reciprocal_condition,
    refuse,
    solve_stack,
    spectrum,
)

# How many right-hand sides are rotated back together: a matrix product in place of many passes over
# the matrix, and no more than so many columns of memory.
_COLUMNS = 64


class RidgeSystem(ABC):
    r""":math:`\hat G = (\hat K + \rho I)^{-1}` for one ridge."""

    rho: float
    condition: float
    """Estimated condition number of K + rho I; rounding errors grow with it."""

    @abstractmethod
    def solve(self, B: Array) -> Array:
        """G B for an (n, k) matrix."""

    @abstractmethod
    def diagonal(self) -> Array:
        """The diagonal of G."""

    @abstractmethod
    def blocks(self, rows: Index) -> Array:
        """The diagonal blocks G_SS, (t, m, m), of t row sets of equal size m given as (t, m)."""

    def inverse(self) -> Array:
        """G itself, n² numbers; a new array."""
        return self.solve(np.eye(len(self.diagonal())))

    def forms(self, k: Array) -> Array:
        """The quadratic forms kᵢᵀ G kᵢ of the rows of an (m, n) matrix."""
        forms: Array = np.einsum("ij,ij->i", k, self.solve(k.T).T)
        return forms

    def solve_blocks(self, rows: Index, B: Array, h: Array | None) -> Array:
        """Solve (G - h hᵀ)_SS x = B for t sets of m rows, (t, m) and (t, m, k).

        No more than about 64 MB of blocks exist at a time.
        """
        step = max(1, CHUNK // rows.shape[1] ** 2)
        solved = np.empty(B.shape)
        for part in (slice(i, i + step) for i in range(0, len(rows), step)):
            A = self.blocks(rows[part])
            if h is not None:
                own = h[rows[part]]
                A -= own[:, :, None] * own[:, None, :]
            solved[part] = solve_stack(A, B[part])
        return solved


class Factorisation(ABC):
    """A symmetric matrix factorised once for any number of ridges."""

    @abstractmethod
    def at(self, rho: float) -> RidgeSystem:
        """The system of one ridge."""

    def path(self, rhos: Sequence[float], B: Array) -> Iterator[tuple[RidgeSystem, Array]]:
        """Each ridge's system, and its solution G B for a right-hand side common to all."""
        for rho in rhos:
            system = self.at(rho)
            yield system, system.solve(B)

    def solutions(self, rhos: Sequence[float], B: Array) -> tuple[Array, Array]:
        """The solutions alone, (ridges, n, columns), and the condition numbers."""
        found = [(system.condition, solved) for system, solved in self.path(rhos, B)]
        return np.stack([solved for _, solved in found]), np.array([c for c, _ in found])


class Rotation(Factorisation):
    """A factorisation K = Q T Qᵀ whose core T is trivial to solve for every ridge.

    A common right-hand side is rotated once for all ridges, and their solutions are rotated back
    together: matrix products in place of one pass over the matrix a ridge.
    """

    @abstractmethod
    def rotate(self, B: Array, *, back: bool = False) -> Array:
        """Qᵀ B, or Q B if ``back``."""

    @abstractmethod
    def at(self, rho: float) -> RotatedSystem:
        """See base class."""

    def path(self, rhos: Sequence[float], B: Array) -> Iterator[tuple[RidgeSystem, Array]]:
        """See base class."""
        rotated = self.rotate(B)
        step = max(1, _COLUMNS // max(1, B.shape[1]))
        for i in range(0, len(rhos), step):
            systems = [self.at(rho) for rho in rhos[i : i + step]]
            core = np.concatenate([system.solve_core(rotated) for system in systems], axis=1)
            solved, width = self.rotate(core, back=True), B.shape[1]
            for k, system in enumerate(systems):
                yield system, solved[:, k * width : (k + 1) * width]


class RotatedSystem(RidgeSystem):
    """One ridge of a :class:`Rotation`."""

    _factor: Rotation

    @abstractmethod
    def solve_core(self, B: Array) -> Array:
        """(T + rho I)⁻¹ B: O(n) a column."""

    def solve(self, B: Array) -> Array:
        """See base class."""
        return self._factor.rotate(self.solve_core(self._factor.rotate(B)), back=True)


ROUTES: tuple[Route, ...] = ("eigen", "explicit", "cholesky", "tridiagonal")


def factorise(K: Array, route: Route) -> Factorisation:
    """Factorise the symmetric matrix ``K`` (left untouched) by the named route.

    Examples
    --------
    >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> factorise(K, "eigen").at(1.0).diagonal()
    array([0.375, 0.375])
    """
    if K.size == 0:
        return Cholesky(K)
    if route == "eigen":
        return Eigen.of(K)
    if route == "explicit":
        return Explicit.of(K)
    if route == "tridiagonal":
        return Tridiagonal.of(K)
    if route == "cholesky":
        return Cholesky(K)
    raise ValueError(f"route={route!r} is not one of {ROUTES}")


# Entries of all blocks together from which a compiled loop is worth loading: importing numba and
# reading its cache takes longer than smaller ones do.
COMPILED_FROM = 2_000_000

# Inverses that exist at a time; with what they are made of, six n×n arrays.
_TOGETHER = 3

# -- eigendecomposition ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Eigen(Rotation):
    r""":math:`\hat K = c I + U\,\mathrm{diag}(\mu)\,U^\top`, good for every ridge.

    A constant diagonal ``c`` is taken off first: for narrow kernels the off-diagonal part is tiny,
    and its eigenvalues ``mu`` are then accurate relative to *it*, not to 1.

    **Cost** about 9 n³ flops (divide and conquer), two n×n arrays.
    """

    shift: float
    mu: Array
    U: Array

    @classmethod
    def of(cls, K: Array) -> Eigen:
        """Decompose ``K``."""
        E = np.array(K, dtype=np.float64, order="F")
        diagonal = E.diagonal()
        shift = float(diagonal[0]) if diagonal.size and np.ptp(diagonal) == 0.0 else 0.0
        E.flat[:: len(E) + 1] -= shift
        mu, U = spectrum(E, overwrite=True)
        # Rows of U are what every block needs: store them contiguously.
        return cls(shift, mu, np.ascontiguousarray(U))

    def at(self, rho: float) -> EigenSystem:
        """See base class."""
        return EigenSystem(self, rho)

    @property
    def values(self) -> Array:
        """The eigenvalues of K, ascending."""
        return self.mu + self.shift

    @cached_property
    def squares(self) -> Array:
        """U², whose rows weigh the diagonal of G."""
        return self.U**2

    def rotate(self, B: Array, *, back: bool = False) -> Array:
        """Uᵀ B or U B, 2 n² flops a column."""
        rotated: Array = blas.dgemm(1.0, self.U.T, np.asfortranarray(B), trans_a=back)
        return rotated


class EigenSystem(RotatedSystem):
    """One ridge of :class:`Eigen`."""

    def __init__(self, eigen: Eigen, rho: float) -> None:
        self._factor: Eigen = eigen
        self.rho = rho
        values = eigen.values
        self.condition = condition_at(values, rho, abs(eigen.shift))
        self._inverse = 1.0 / (values + rho)

    def solve_core(self, B: Array) -> Array:
        """See base class."""
        return self._inverse[:, None] * B

    def diagonal(self) -> Array:
        """Row sums of U² / (lambda + rho): 2 n² flops."""
        diagonal: Array = blas.dgemv(1.0, self._factor.squares.T, self._inverse, trans=1)
        return diagonal

    def blocks(self, rows: Index) -> Array:
        """See base class; n m² flops each."""
        if rows.shape[1] == 1:
            return self.diagonal()[rows][:, :, None]
        root = np.sqrt(self._inverse)
        return np.stack([gram_of_rows(self._factor.U[S] * root) for S in rows])


class Explicit(Eigen):
    """:class:`Eigen`, with G formed in full for each ridge: blocks become gathers.

    **Cost** n³ flops a ridge, and four more n×n arrays in all; worth it when the folds overlap so
    often (repeated k-fold, shuffle split) that their blocks together exceed the matrix.
    """

    def at(self, rho: float) -> ExplicitSystem:
        """See base class."""
        return ExplicitSystem(self, rho)

    def path(self, rhos: Sequence[float], B: Array) -> Iterator[tuple[RidgeSystem, Array]]:
        """See base class."""
        pairs: Iterator[tuple[Any, Array]] = super().path(rhos, B)
        while batch := list(islice(pairs, _TOGETHER)):
            self.inverses.coming = [system for system, _ in batch]
            yield from batch

    @cached_property
    def inverses(self) -> _Inverses:
        """The memory that the ridges share: new pages would cost as much as the products."""
        return _Inverses(self.U)


class _Inverses:
    """Inverses of a few ridges, formed together.

    After a product BLAS keeps its threads spinning for a while, at the expense of those that solve
    the blocks: the fewer changes between the two, the better.
    """

    def __init__(self, U: Array) -> None:
        self.coming: list[EigenSystem] = []
        self._U, self._scaled = U, np.empty(U.shape)
        self._inverses: dict[EigenSystem, Array] = {}

    def lower(self, system: EigenSystem) -> Array:
        """The lower triangle of G; what is above it may be anything."""
        if system not in self._inverses:
            free, self._inverses = list(self._inverses.values()), {}
            for one in self.coming if system in self.coming else [system]:
                np.multiply(self._U, np.sqrt(one._inverse), out=self._scaled)
                A, C = self._scaled.T, free.pop().T if free else None
                # The upper triangle in Fortran order is the lower one here.
                G = blas.dsyrk(1.0, A, beta=0.0, c=C, trans=1, lower=0, overwrite_c=1)
                self._inverses[one] = G.T
        return self._inverses[system]


class ExplicitSystem(EigenSystem):
    """One ridge of :class:`Explicit`."""

    _factor: Explicit

    def blocks(self, rows: Index) -> Array:
        """See base class; a gather."""
        if rows.shape[1] == 1:
            return super().blocks(rows)
        gathered: Array = mirror(self._factor.inverses.lower(self))[
            rows[:, :, None], rows[:, None, :]
        ]
        return gathered

    def solve_blocks(self, rows: Index, B: Array, h: Array | None) -> Array:
        """See base class; compiled and shared out over threads where that pays."""
        if rows.size * rows.shape[1] < COMPILED_FROM:
            return super().solve_blocks(rows, B, h)
        from everyfold.linalg.batched import solve_sets

        G = self._factor.inverses.lower(self)
        solved: Array = solve_sets(G, np.zeros(len(G)) if h is None else h, rows, B)
        return solved


# -- Cholesky -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cholesky(Factorisation):
    """Nothing shared: a Cholesky factorisation a ridge, the cheapest for one to four of them."""

    K: Array

    def at(self, rho: float) -> CholeskySystem:
        """See base class."""
        return CholeskySystem(self.K, rho)


class CholeskySystem(RidgeSystem):
    r""":math:`\hat K + \rho I = L L^\top`; blocks from :math:`L^{-1}`.

    **Cost** n³/3 flops, n³/3 more once a diagonal or a block is asked for.

    ``is_rough`` takes a lower bound for the condition number, for systems that are known to be well
    conditioned: of a hundred rows its estimate takes as long as the factorisation.
    """

    def __init__(
        self, K: Array, rho: float, *, overwrite: bool = False, is_rough: bool = False
    ) -> None:
        self.rho = rho
        self.condition = 1.0
        self._L = np.zeros((0, 0))
        self._inverse: Array | None = None
        if K.size == 0:  # a Newton step in which no row has curvature
            return
        # K is symmetric: a copy without turning. A C-ordered one may be overwritten.
        A = K.T if overwrite else np.array(K.T, dtype=np.float64, order="F")
        A.ravel(order="K")[:: len(A) + 1] += rho
        # Sums over rows, which are those over columns here, take LAPACK half the time.
        norm = 1.0 if is_rough else float(lapack.dlange("I", A))  # type: ignore[call-arg]
        L, info = lapack.dpotrf(A, lower=1, clean=1, overwrite_a=1)
        if info:
            raise refuse(0.0, rho)
        self._L = L
        if is_rough:  # the condition of the diagonal, which is no more than that of the matrix
            pivots = L.diagonal()
            norm = float(pivots.max()) ** 2
            reciprocal = float(pivots.min()) ** 2 / norm
        else:
            reciprocal = reciprocal_condition(L, norm)
        if reciprocal <= EPS:
            raise refuse(reciprocal * norm, rho)
        self.condition = 1.0 / reciprocal

    def solve(self, B: Array) -> Array:
        """G B in 2 n² flops a column."""
        if B.size == 0:
            return B
        G_B, _ = lapack.dpotrs(self._L, np.asfortranarray(B), lower=1)
        return np.asarray(G_B)

    def inverse(self) -> Array:
        """See base class; 2/3 n³ flops, or half of them if L⁻¹ is there."""
        if self._L.size == 0:
            return self._L.copy()
        if "columns" in vars(self):
            half, _ = lapack.dlauum(self.columns.T, lower=1)
        else:
            half, _ = lapack.dpotri(self._L, lower=1)
        return mirror(half)

    @cached_property
    def columns(self) -> Array:
        """Row i is column i of L⁻¹, so that G_SS is the Gram matrix of the rows S."""
        if self._L.size == 0:
            return self._L
        columns: Array = invert_lower(self._L).T  # Fortran order transposed: rows contiguous
        return columns

    def diagonal(self) -> Array:
        """Squared norms of the columns of L⁻¹."""
        diagonal: Array = np.einsum("ij,ij->i", self.columns, self.columns)
        return diagonal

    @property
    def factor(self) -> Array:
        """L."""
        return self._L

    def halves(self, k: Array) -> Array:
        """L⁻¹ kᵢ for each row of an (m, n) matrix: a product, 4 times as fast as solves."""
        if k.size == 0:
            return np.zeros(k.shape)
        return np.asarray(blas.dtrmm(1.0, self.columns.T, k, side=1, lower=1, trans_a=1))

    def forms(self, k: Array) -> Array:
        """See base class: |L⁻¹ kᵢ|², n² flops each."""
        halves = self.halves(k)
        forms: Array = np.einsum("ij,ij->i", halves, halves)
        return forms

    def blocks(self, rows: Index) -> Array:
        """See base class; at most n m² flops each."""
        if rows.shape[1] == 1:
            return self.diagonal()[rows][:, :, None]
        if rows.size > len(self._L) or self._inverse is not None:
            # Sets that overlap, as pairs do, are taken from G.
            self._inverse = self.inverse() if self._inverse is None else self._inverse
            gathered: Array = self._inverse[rows[:, :, None], rows[:, None, :]]
            return gathered
        if rows.shape[1] <= 2 * SMALL_BLOCK:
            wide = self.columns[rows]
            products: Array = wide @ wide.transpose(0, 2, 1)
            return products
        # Column i of L⁻¹ starts at row i: nothing before the first row of S contributes.
        return np.stack([gram_of_rows(self.columns[S, int(S.min()) :]) for S in rows])


# -- tridiagonal reduction ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tridiagonal(Rotation):
    r""":math:`\hat K = Q T Q^\top` with T tridiagonal and Q kept as its n reflectors.

    **Cost** 4/3 n³ flops, a third of an eigendecomposition; each ridge is then an O(n)
    tridiagonal solve between two applications of Q. It yields solutions and nothing else, which
    is all a model fitted on the training rows of a fold needs.
    """

    diagonal: Array
    off_diagonal: Array
    reflectors: Array
    tau: Array

    @classmethod
    def of(cls, K: Array) -> Tridiagonal:
        """Reduce ``K``."""
        n = len(K)
        work, _ = lapack.dsytrd_lwork(n, lower=1)
        A, d, e, tau, info = lapack.dsytrd(
            np.array(K.T, dtype=np.float64, order="F"),  # symmetric: a copy without turning
            lower=1,
            lwork=int(work),
            overwrite_a=1,
        )
        if info:
            raise np.linalg.LinAlgError(f"dsytrd failed (info={info})")
        # The reflectors stand below the first sub-diagonal, just as those of a QR of A[1:, :-1].
        return cls(d, e, np.asfortranarray(A[1:, : n - 1]), tau)

    def at(self, rho: float) -> TridiagonalSystem:
        """See base class."""
        return TridiagonalSystem(self, rho)

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of K, by bisection: O(n).

        LAPACK's bisection may find none where nearly all are the same; all of them are O(n²).
        """
        d, e = self.diagonal, self.off_diagonal
        if len(d) == 1:  # SciPy before 1.13 takes no empty e
            return float(d[0]), float(d[0])
        found = []
        for i in (1, len(d)):  # LAPACK itself: the checks around it take longer than it does
            _, values, _, _, failed = lapack.dstebz(d, e, 2, 0.0, 1.0, i, i, 0.0, "E")
            found.append(float(values[0]))
            if failed:
                all_of_them = eigvalsh_tridiagonal(d, e)
                return float(all_of_them[0]), float(all_of_them[-1])
        return found[0], found[1]

    def rotate(self, B: Array, *, back: bool = False) -> Array:
        """Qᵀ B, or Q B if ``back``; 4 n² flops a column."""
        rotated = np.array(B, dtype=np.float64, order="F")
        if len(B) > 1:
            tail = np.asfortranarray(rotated[1:])
            trans = "N" if back else "T"
            work = 64 * max(B.shape[1], 1)
            tail, _, _ = lapack.dormqr(
                "L", trans, self.reflectors, self.tau, tail, work, overwrite_c=1
            )
            rotated[1:] = tail
        return rotated


class TridiagonalSystem(RotatedSystem):
    """One ridge of :class:`Tridiagonal`."""

    def __init__(self, reduced: Tridiagonal, rho: float) -> None:
        self._factor: Tridiagonal = reduced
        self.rho = rho
        # LAPACK's wrapper wants one off-diagonal entry even where there is none (n = 1).
        e = reduced.off_diagonal if len(reduced.diagonal) > 1 else np.zeros(1)
        d, e, info = lapack.dpttrf(reduced.diagonal + rho, e)
        smallest, largest = (value + rho for value in reduced.extremes)
        if info or smallest <= EPS * largest:
            raise refuse(smallest, rho)
        self._pivots, self._multipliers = d, e
        self.condition = largest / smallest

    def solve_core(self, B: Array) -> Array:
        """See base class."""
        solved, _ = lapack.dpttrs(self._pivots, self._multipliers, np.asfortranarray(B))
        return np.asarray(solved)

    def diagonal(self) -> Array:
        """See base class; n³ flops: use another route if this is what you need."""
        diagonal: Array = self.solve(np.eye(len(self._pivots))).diagonal().copy()
        return diagonal

    def blocks(self, rows: Index) -> Array:
        """See base class; n³ flops: use another route if this is what you need."""
        G = self.solve(np.eye(len(self._pivots)))
        gathered: Array = G[rows[:, :, None], rows[:, None, :]]
        return gathered
