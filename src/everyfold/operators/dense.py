r"""The full kernel matrix: n×n numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh, get_blas_funcs, lapack

from everyfold.kernels import Kernel
from everyfold.operators.base import (
    Differentiates,
    Expansion,
    Outline,
    Quadratic,
    Responds,
    RidgeModels,
)
from everyfold.operators.denseresponse import DenseResponse, scatter, split_intercept
from everyfold.operators.products import product
from everyfold.operators.structure import Structure
from everyfold.operators.systems import factorise
from everyfold.operators.truncated import SINGLE, ridge_solutions
from everyfold.types import AnyArray, Array, Index, Matrix, Route


@dataclass(frozen=True)
class Dense(Structure):
    """Represent the kernel matrix in full.

    **Cost** 8 n² bytes for the matrix, and two to three times that during its factorisation.

    Examples
    --------
    >>> from everyfold.kernels import Linear
    >>> Dense().bind(Linear(), np.array([[1.0], [2.0]])).diagonal()
    array([1., 4.])
    """

    needs_base = True

    def bind(self, kernel: Kernel, X: Matrix) -> DenseMatrix:
        """See base class."""
        return DenseMatrix(kernel(X), kernel, X)

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> DenseMatrix:
        """See base class."""
        return DenseMatrix(None, kernel, X, base)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows


_ROWS = 64  # at a time, when all of K is looked at
_NOTHING = float(np.sqrt(np.finfo(np.float64).eps))
_SINGLE = float(np.finfo(np.float32).eps)


class DenseMatrix(Responds, Differentiates):
    """A symmetric matrix held in memory.

    Given the base matrix of its kernel in place of K, it makes K when that is first asked for: an
    SVM reads its rows in float32 and never does.
    """

    def __init__(
        self,
        K: Array | None,
        kernel: Kernel | None = None,
        X: Matrix = None,
        base: Array | None = None,
        *,
        is_semidefinite: bool = False,
    ) -> None:
        self._kernel = kernel
        self._X = X
        self._base = base
        self._is_semidefinite = is_semidefinite
        if K is not None:
            self.K = K
        self.n = len(self._made)

    @cached_property
    def K(self) -> Array:
        """All entries, in float64."""
        return self._entries(self._made)

    @property
    def is_made(self) -> bool:
        """Whether K is held, and not only its base matrix."""
        return "K" in self.__dict__

    @property
    def _made(self) -> Array:
        """K, or the base matrix where there is only that."""
        made: Array | None = self.__dict__.get("K", self._base)
        assert made is not None
        return made

    def _entries(self, some: Array, out: AnyArray | None = None) -> Array:
        """Entries of K from those of what there is, written to ``out`` in its type."""
        if not self.is_made:
            assert self._kernel is not None
            return self._kernel.from_base(some, out=out)
        if out is not None:
            np.copyto(out, some, casting="same_kind")
        return some

    def write_rows(self, rows: slice, out: AnyArray) -> None:
        """Some rows of K into an array, in its type."""
        self._entries(self._made[rows], out)

    @property
    def outline(self) -> Outline:
        """See base class; with a basis to begin from it is for iterations."""
        return Outline(self.n, None if self.basis is None else ("conjugate",))

    @property
    def words(self) -> str:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        return "dense" if self.basis is None else type(self).__name__

    @cached_property
    def hollow(self) -> Array:
        """K without its diagonal."""
        hollow = self.K.copy()
        np.fill_diagonal(hollow, 0.0)
        return hollow

    def isolated(self, tolerance: float) -> NDArray[np.bool_]:
        """The rows whose entries off the diagonal sum up to no more than this share of it.

        None, if there are none among some rows: the others are not looked at then.
        """
        diagonal = np.abs(self.diagonal())
        limit = (1.0 + tolerance) * diagonal
        some = np.linspace(0, self.n - 1, min(_ROWS, self.n)).astype(np.intp)
        if np.all(np.abs(self.K[some]).sum(axis=1) > limit[some]):
            return np.zeros(self.n, dtype=bool)
        sums = np.empty(self.n)
        for i in range(0, self.n, _ROWS):
            np.sum(np.abs(self.K[i : i + _ROWS]), axis=1, out=sums[i : i + _ROWS])
        return np.asarray(sums <= limit) & (diagonal > 0.0)

    @cached_property
    def is_identity(self) -> bool:  # type: ignore[override]  # a constant elsewhere
        """See base class. One row tells for most kernels; only an identity is read as a whole."""
        if self.n < 2:
            return False
        scale = np.sqrt(np.abs(self.diagonal()))
        for i in range(self.n):
            apart = np.abs(self._entries(self._made[i]))
            apart[i] = 0.0
            if np.any(apart > _NOTHING * scale[i] * scale):
                return False
        return True

    @cached_property
    def typical_similarity(self) -> float:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        if self.n < 2:
            return np.inf
        scale = np.sqrt(np.abs(self.diagonal()))
        largest = np.empty(self.n)
        for i in range(0, self.n, _ROWS):
            apart = np.abs(self._entries(self._made[i : i + _ROWS]))
            apart[np.arange(len(apart)), np.arange(i, i + len(apart))] = 0.0
            limit = scale[i : i + _ROWS, None] * scale
            apart /= np.where(limit > 0.0, limit, 1.0)
            largest[i : i + _ROWS] = apart.max(axis=1)
        return float(np.median(largest))

    @property
    def is_semidefinite(self) -> bool:
        """Whether K is known to have no negative eigenvalue, as kernels by name have none."""
        is_by_name = self._kernel is not None and self._kernel.is_semidefinite
        return self._is_semidefinite or is_by_name

    @cached_property
    def is_indefinite(self) -> bool:
        """Whether K has a negative eigenvalue that is more than the rounding of float32.

        Where it is not known it costs n³/3 flops and a copy of K.
        """
        if self.is_semidefinite:
            return False
        shifted = self.K.copy()
        largest = float(np.abs(self.diagonal()).max())
        shifted[np.diag_indices(self.n)] += _SINGLE * np.sqrt(self.n) * largest
        _, failed = lapack.dpotrf(shifted.T, lower=1, overwrite_a=1, clean=0)
        return bool(failed)

    def matmat(self, B: Array) -> Array:
        """K B, 2 n² flops a column."""
        return product(self.K, B)

    def evaluate(self, coef: Array) -> Array:
        """See base class: K a."""
        return self.matmat(coef)

    def diagonal(self) -> Array:
        """See base class."""
        return self._entries(self._made.diagonal())

    def eigenvalues(self) -> Array:
        """All eigenvalues, ascending; 4/3 n³ flops."""
        return np.asarray(eigvalsh(self.K), dtype=np.float64)

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[DenseResponse]:
        """See base class; the routes and their costs are those of ``operators.systems``."""
        hat, wanted = self._system(quadratic)
        for system, solved in factorise(hat, route).path(rhos, wanted):
            yield DenseResponse(self, quadratic, system, solved)

    def solutions(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route, precision: float = 0.0
    ) -> RidgeModels:
        """See base class."""
        if route == "tridiagonal" and self.is_semidefinite and not quadratic.pull:
            rough = self._roughly(quadratic, rhos) if precision else None
            # A copy, without turning what is symmetric.
            hat = np.array(self._system(quadratic)[0].T, order="F") if rough is None else rough.T
            C_z, b, condition = _centred_solutions(quadratic, hat, rhos, precision)
        else:
            hat, wanted = self._system(quadratic)
            solved, condition = factorise(hat, route).solutions(rhos, wanted)
            C_z, b = split_intercept(quadratic, solved, np.array(rhos))
        inner = quadratic.s[quadratic.active][:, None] * C_z
        return RidgeModels(scatter(inner, quadratic.active, self.n, axis=1), b, condition)

    def _roughly(self, quadratic: Quadratic, rhos: Sequence[float]) -> AnyArray | None:
        """The matrix in single precision, if its rows count alike and the ridges can do with it."""
        if quadratic.active.size < self.n or not np.all(quadratic.s == 1.0):
            return None
        rough = np.empty((self.n, self.n), dtype=np.float32)
        self._entries(self._made, rough)
        # The norm of all entries together is an upper bound, which is all that is asked for.
        entries = rough.ravel()
        return rough if min(rhos) >= SINGLE * float(np.sqrt(entries @ entries)) else None

    def _system(self, quadratic: Quadratic) -> tuple[Array, Array]:
        """The matrix of the active rows, and the right-hand sides for z and the intercept."""
        active = quadratic.active
        s = quadratic.s[active]
        hat = self.K if active.size == self.n else self.K.take(active, 0).take(active, 1)
        if not np.all(s == 1.0):
            hat = np.multiply(hat, s, out=None if hat is self.K else hat)
            hat *= s[:, None]
        wanted = s[:, None] * quadratic.z[active]
        return hat, np.column_stack([wanted, s]) if quadratic.intercept else wanted

    def restrict(self, rows: Index) -> DenseMatrix:
        """See base class; copies the sub-matrix."""
        return DenseMatrix(_part(self.K, rows, rows), is_semidefinite=self.is_semidefinite)

    def cross(self, new: Index, rows: Index) -> Array:
        """See base class: the rows of K between the two sets."""
        return _part(self.K, new, rows)

    def link(self, X: Matrix) -> Array:
        """See base class: the kernel between the new rows and these."""
        return self.expand(np.empty((self.n, 0))).link(X)

    def slopes(self, left: Array, right: Array) -> Array:
        """See base class; n² flops for each column and each feature, and 16 n² bytes."""
        if self._kernel is None:
            raise TypeError("a bare matrix has no gamma; bind it to a kernel and data")
        # Sums over symmetric matrices: the transpose, in the order of K, has the same.
        return self._kernel.slopes(self._X, None, product(left, right.T).T, self.K)

    def expand(self, coef: Array) -> KernelExpansion:
        """See base class."""
        if self._kernel is None:
            raise TypeError("a bare matrix cannot predict new rows; bind it to a kernel and data")
        return KernelExpansion(self._kernel, self._X, coef)


def _part(K: Array, rows: Index, columns: Index) -> Array:
    """Some rows and columns of a matrix; some rows at a time, so that no second matrix is made."""
    part = np.empty((len(rows), len(columns)))
    for i in range(0, len(rows), _ROWS):
        some = K.take(rows[i : i + _ROWS], 0)
        some.take(columns, 1, out=part[i : i + _ROWS], mode="clip")  # else it is copied twice
    return part


def _centred_solutions(
    quadratic: Quadratic, A: AnyArray, rhos: Sequence[float], precision: float
) -> tuple[Array, Array, Array]:
    r"""The residual coefficients :math:`\hat C z` of all ridges, b, and the condition numbers.

    The matrix of the system, in Fortran order, is lost.

    With an intercept, coefficients are orthogonal to s: in that subspace they solve a system
    without one, so that a single target has a single right-hand side. The matrix is taken apart
    into that subspace and s itself, whose eigenvalue lies among the others.
    """
    s = quadratic.s[quadratic.active]
    wanted = s[:, None] * quadratic.z[quadratic.active]
    if not (quadratic.intercept and s.size):
        solved, condition = ridge_solutions(A, rhos, wanted, overwrite=True, precision=precision)
        return solved, np.zeros((len(rhos), wanted.shape[1])), condition
    size = float(np.sqrt(s @ s))
    unit = s / size
    symv, syr2 = get_blas_funcs(("symv", "syr2"), dtype=A.dtype)
    image = symv(1.0, A, unit, lower=1).astype(np.float64)
    w = image - float(image @ unit) * unit
    A = syr2(-1.0, unit, w, a=A, lower=1, overwrite_a=1)
    mean = unit @ wanted
    wanted -= np.outer(unit, mean)
    solved, condition = ridge_solutions(A, rhos, wanted, overwrite=True, precision=precision)
    solved -= unit[:, None] * (unit @ solved)[:, None, :]
    return solved, (mean - image @ solved) / size, condition


@dataclass(frozen=True)
class KernelExpansion(Expansion):
    """f(x) = Σ a_i k(x, x_i)."""

    kernel: Kernel
    X: Matrix
    coef: Array

    def link(self, X: Matrix) -> Array:
        """See base class: the kernel between the new rows and those of the fit."""
        return self.kernel(X, self.X)

    @property
    def width(self) -> int:
        """See base class."""
        return len(self.coef)
