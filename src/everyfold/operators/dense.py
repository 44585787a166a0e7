"""The full kernel matrix: n×n numbers, and the response of everything that is computed from it.

:class:`Dense` is what users ask for, :class:`DenseMatrix` the matrix of some rows, and
:class:`DenseResponse` what a change of the targets does to the fitted values of a ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from everyfold._typing import AnyArray, Array, Index, Matrix, Route
from everyfold.kernels import Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.ridge_systems import RidgeSystem, factorise
from everyfold.linalg.symmetric import eigenvalues, is_definite
from everyfold.linalg.tridiagonal import SINGLE, ridge_solutions
from everyfold.operators.base import (
    Expansion,
    OperatorSpec,
    Structure,
    SupportsGradient,
    SupportsResponse,
)
from everyfold.operators.response import DualModel, Quadratic, Response, RidgeModels, Solution


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


# Rows at a time, when all of K is read: no second matrix is made.
_ROWS = 64

# Entries below this share of (K_ii K_jj)^½ are nothing beside the diagonal: where all are, K is
# called an identity.
_NOTHING = float(np.sqrt(np.finfo(np.float64).eps))

# The rounding of float32, in which users may have made a kernel: a negative eigenvalue as small as
# it leaves is no reason to call K indefinite.
_SINGLE = float(np.finfo(np.float32).eps)


class DenseMatrix(SupportsResponse, SupportsGradient):
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
        if "K" not in self.__dict__:
            assert self._kernel is not None
            return self._kernel.from_base(some, out=out)
        if out is not None:
            np.copyto(out, some, casting="same_kind")
        return some

    def write_rows(self, rows: slice, out: AnyArray) -> None:
        """Some rows of K into an array, in its type."""
        self._entries(self._made[rows], out)

    @property
    def outline(self) -> OperatorSpec:
        """See base class; with a basis to begin from it is for iterations."""
        return OperatorSpec(self.n, None if self.basis is None else ("conjugate",))

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

        None, if there are none in a sample of the rows: the others are not read then.
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
        """See base class. One row decides for most kernels; only an identity is read as a whole."""
        if self.n < 2:
            return False
        scale = np.sqrt(np.abs(self.diagonal()))
        for i in range(self.n):
            sizes = np.abs(self._entries(self._made[i]))
            sizes[i] = 0.0
            if np.any(sizes > _NOTHING * scale[i] * scale):
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
            sizes = np.abs(self._entries(self._made[i : i + _ROWS]))
            sizes[np.arange(len(sizes)), np.arange(i, i + len(sizes))] = 0.0
            limit = scale[i : i + _ROWS, None] * scale
            sizes /= np.where(limit > 0.0, limit, 1.0)
            largest[i : i + _ROWS] = sizes.max(axis=1)
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
        return not is_definite(shifted)

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
        return eigenvalues(self.K)

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[DenseResponse]:
        """See base class; costs of the routes: :mod:`everyfold.linalg.ridge_systems`."""
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

    The matrix of the system, in Fortran order, is overwritten.

    With an intercept, coefficients are orthogonal to s: in that subspace they solve a system
    without one, so that a single target has a single right-hand side. The matrix is split
    into that subspace and s itself, whose eigenvalue lies between the others.
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


# -- The response of a kernel matrix that is held in full -----------------------------------------


# Sets of rows are many if there are a quarter as many as rows: the inverse is then formed once.
_MANY_SETS = 4


def split_intercept(quadratic: Quadratic, solved: Array, rho: float | Array) -> tuple[Array, Array]:
    r"""The residual coefficients :math:`\hat C z` and b from solutions for z and, last, for s.

    ``solved`` is (…, active rows, columns), with an axis before for several ridges ``rho``.
    """
    q = quadratic.z.shape[1]
    C_z, s = solved[..., :q], quadratic.s[quadratic.active]
    if not (quadratic.intercept and s.size):
        return C_z, np.zeros((*solved.shape[:-2], q))
    h = solved[..., q]
    kappa = (h @ s)[..., None]
    b = (h @ (s[:, None] * quadratic.z[quadratic.active])) / kappa
    if quadratic.pull:  # never with a ridge of 0, which only the closed form allows
        b -= quadratic.pull / (2.0 * np.asarray(rho)[..., None] * kappa)
    return C_z - h[..., :, None] * b[..., None, :], b


def scatter(inner: Array, active: Index, n: int, axis: int = 0) -> Array:
    """An array with the active rows along an axis as one with all rows, 0 elsewhere."""
    if active.size == n:
        return inner
    full = np.zeros((*inner.shape[:axis], n, *inner.shape[axis + 1 :]))
    full[(slice(None),) * axis + (active,)] = inner
    return full


class DenseResponse(Response):
    r"""M and R of a dense kernel: :math:`\hat G = (\hat K + \rho I)^{-1}`, :math:`\hat K = SKS`.

    With A the active rows, :math:`S = \mathrm{diag}(s_A)` and, for the intercept,
    :math:`\hat h = \hat G s`, :math:`\kappa = s^\top \hat h`:

    .. math:: R_{AA} = \hat C = \hat G - \hat h \hat h^\top / \kappa, \qquad \text{scale} = \rho .

    **Exact?** Yes, in exact arithmetic; rounding grows with ``condition``.
    """

    def __init__(
        self, operator: DenseMatrix, quadratic: Quadratic, system: RidgeSystem, solved: Array
    ) -> None:
        self._operator = operator
        self._K = operator.K
        self._active = quadratic.active
        self._s = quadratic.s[self._active]
        self._system = system
        self.rho = system.rho
        self.condition = system.condition
        self._wants_intercept = quadratic.intercept
        self._has_intercept = quadratic.intercept and self._active.size > 0
        q = quadratic.z.shape[1]
        self._C_z, self._b = split_intercept(quadratic, solved, self.rho)
        if self._has_intercept:
            self._h = solved[:, q]
            self._kappa = float(self._s @ self._h)

    def _scatter(self, inner: Array) -> Array:
        """An array over the active rows as one over all, 0 elsewhere."""
        return scatter(inner, self._active, len(self._K))

    def solution(self) -> Solution:
        """See base class. ``coef`` are the dual coefficients a, zero outside the active rows."""
        return Solution(self._scatter(self._s[:, None] * self._C_z), self._b)

    def moved(self, rows: Index, dz: Array) -> Solution:
        """See base class; 2 n² flops a set, or G once, 2/3 n³ flops, if there are many."""
        position = self._positions(rows)
        B = self._s[position] * dz
        if _MANY_SETS * len(rows) < len(self._s):
            B_all = np.zeros((len(self._s), len(rows)))
            B_all[position, np.arange(len(rows))[:, None]] = B
            C_B = self._system.solve(B_all)
        elif rows.shape[1] == 1:
            lone, C_B = position[:, 0], self._system.inverse()
            if len(lone) < len(C_B) or (np.diff(lone) != 1).any():
                C_B = C_B[:, lone]
            C_B *= B[:, 0]
        else:
            C_B = np.einsum("itm,tm->it", self._system.inverse()[:, position], B)
        b = np.zeros(len(rows))
        if self._has_intercept:
            b = np.einsum("tm,tm->t", self._h[position], B) / self._kappa
            C_B -= np.outer(self._h, b)
        C_B *= self._s[:, None]
        return Solution(self._scatter(C_B), b)

    def slopes(self, link: Array) -> Array:
        """See base class; 2 n² flops a row."""
        found = self._residual(self._s[:, None] * link.T[self._active])
        if self._has_intercept:
            found += (self._h / self._kappa)[:, None]
        found *= self._s[:, None]
        return self._scatter(found).T

    # -- R -----------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """The ridge."""
        return self.rho

    def reduced(self) -> Array:
        """See base class."""
        return scatter(self._C_z, self._active, len(self._K))

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        """See base class."""
        if rows.size == 0:
            return B.copy()
        position = self._positions(rows)
        h = self._h / np.sqrt(self._kappa) if self._has_intercept else None
        return self._system.solve_blocks(position, B, h)

    def residual_matrix(self) -> Array:
        """See base class; 2/3 n³ flops."""
        R = self._system.inverse()
        if self._has_intercept:
            for i in range(0, len(R), _ROWS):  # no second matrix
                R[i : i + _ROWS] -= np.outer(self._h[i : i + _ROWS], self._h / self._kappa)
        return R

    def residual_matmat(self, B: Array) -> Array:
        """See base class; 2 n² flops a column."""
        return self._scatter(self._residual(B[self._active]))

    def residual_blocks(self, rows: Index) -> Array:
        """See base class."""
        position = self._positions(rows)
        blocks = self._system.blocks(position)
        if self._has_intercept:
            h = self._h[position]
            blocks -= h[:, :, None] * (h[:, None, :] / self._kappa)
        return blocks

    def residual_diagonal(self) -> Array:
        """See base class."""
        diagonal = np.full(len(self._K), 1.0 / self.rho if self.rho else np.inf)
        diagonal[self._active] = self._active_residuals
        return diagonal

    @cached_property
    def _active_residuals(self) -> Array:
        """The diagonal of R on the active rows."""
        inner = self._system.diagonal()
        if self._has_intercept:
            inner = inner - self._h**2 / self._kappa
        return inner

    def _positions(self, rows: Index) -> Index:
        """Where the (active) rows stand among the active ones."""
        if self._active.size == len(self._K):
            return rows
        return np.searchsorted(self._active, rows)

    # -- M -----------------------------------------------------------------------------------------

    @cached_property
    def _passive(self) -> Index:
        """The rows without curvature."""
        return np.setdiff1d(np.arange(len(self._K)), self._active)

    @cached_property
    def _K_active(self) -> Array:
        return self._K if self._active.size == len(self._K) else self._K[:, self._active]

    def _residual(self, B: Array) -> Array:
        """C B on the active rows."""
        C_B = self._system.solve(B)
        if self._has_intercept:
            C_B = C_B - np.outer(self._h, (self._h @ B) / self._kappa)
        return C_B

    def matmat(self, B: Array) -> Array:
        r"""See base class.

        On active rows the change enters as a working response ``z = D⁻¹ B``; a row without
        curvature only pushes, through its own column of the kernel:
        M B = [K − K_{:A} G K_{A:}] B / 2ρ, plus the intercept's rank-one term.
        """
        passive = self._passive
        inner = B[self._active] / (2.0 * self._s[:, None])
        b = self._h @ inner / self._kappa if self._has_intercept else np.zeros(B.shape[1])
        M_B = product(self._K_active, self._s[:, None] * self._residual(inner)) + b
        if passive.size and np.any(B[passive]):
            M_B += self._push(passive, B[passive])
        return M_B

    def _push(self, passive: Index, B: Array) -> Array:
        """M_{:F} B for rows F without curvature."""
        pushed = product(self._K[:, passive], B)
        inner = self._s[:, None] * pushed[self._active]
        G_inner = self._system.solve(inner)
        pushed -= product(self._K_active, self._s[:, None] * G_inner)
        if self._has_intercept:
            free = self._one_minus_fit
            pushed += free[:, None] * ((free[passive] @ B) / self._kappa)
        M_F: Array = pushed / (2.0 * self.rho)
        return M_F

    @cached_property
    def _one_minus_fit(self) -> Array:
        """1 - K_{:A} G 1, the z of the intercept's rank-one term."""
        fit = product(self._K_active, (self._s * self._h)[:, None])[:, 0]
        free: Array = 1.0 - fit
        return free

    def diagonal(self) -> Array:
        """See base class; |A|² flops for each row without curvature beyond those of R."""
        return self._diagonal_of(np.ones(len(self._K), dtype=bool))

    def _diagonal_of(self, wanted: NDArray[np.bool_]) -> Array:
        r"""The diagonal of M where ``wanted``, 0 elsewhere.

        Rows with curvature take it from R; one without has
        :math:`[K_{ii} - k^\top G k + (1 - k^\top h)^2/\kappa]/2\rho` with :math:`k = K_{Ai}`.
        """
        diagonal = np.zeros(len(self._K))
        active = self._active
        diagonal[active] = (1.0 - self.rho * self._active_residuals) / (2.0 * self._s**2)
        passive = wanted.copy()
        passive[active] = False
        rows = np.flatnonzero(passive)
        inner = self._K.diagonal()[rows].copy()
        if active.size and rows.size:
            k, crossed = self._crossed(rows)
            inner -= crossed
            if self._has_intercept:
                inner += (1.0 - k @ self._h) ** 2 / self._kappa
        diagonal[rows] = inner / (2.0 * self.rho)
        return np.where(wanted, diagonal, 0.0)

    # -- leaving rows out of a Newton step ---------------------------------------------------------

    @property
    def curvature(self) -> Array:
        """See base class."""
        return self._scatter(2.0 * self._s**2)

    @cached_property
    def _transfer(self) -> Array:
        r""":math:`T = D M_{A:} = C K_{A:} + h 1^\top/\kappa`, (|A|, n); 2 n|A|² flops, once."""
        K_active = np.ascontiguousarray(self._K_active.T)
        hat = self._system.solve(self._s[:, None] * K_active)
        if self._has_intercept:
            hat += np.outer(self._h, self._one_minus_fit / self._kappa)
        T: Array = self._s[:, None] * hat
        return T

    @cached_property
    def _beta(self) -> Array:
        """How the intercept answers to a force on each row."""
        if not self._has_intercept:
            return np.zeros(len(self._K))
        beta: Array = self._one_minus_fit / (2.0 * self.rho * self._kappa)
        return beta

    def _is_inside(self, rows: Index) -> Index:
        """The active rows among ``rows``, as positions in the active set."""
        member = np.zeros(len(self._K), dtype=bool)
        member[rows] = True
        return np.flatnonzero(member[self._active])

    def block(self, rows: Index, columns: Index) -> Array:
        """See base class; 2 |A| flops an entry once T is known."""
        K_SA = self._K_active[rows]
        inner = self._K[np.ix_(rows, columns)] - K_SA @ self._transfer[:, columns]
        M_SS: Array = inner / (2.0 * self.rho) + self._beta[columns]
        return M_SS

    def removal_forces(self, rows: Index, g: Array) -> Array:
        """See base class; by the symmetric block of R for rows with curvature."""
        inside = self._is_inside(rows)
        v = g[rows].copy()
        if inside.size == 0:
            return v
        is_active = np.zeros(len(self._K), dtype=bool)
        is_active[self._active] = True
        passive = rows[~is_active[rows]]
        order = self._active[inside]
        s = self._s[inside]
        push = g[order] + self._transfer[np.ix_(inside, passive)] @ g[passive]
        solved = (
            self.solve_residual_blocks(order[None], (push / s)[None, :, None])[0, :, 0] / self.rho
        )
        position = {row: i for i, row in enumerate(rows)}
        v[[position[row] for row in order]] = s * solved
        return v

    def held_out_values(self, rows: Index, v: Array, model: DualModel) -> Array:
        """See base class: K_{S,T} a_T + b from the coefficients that are left."""
        outside = np.setdiff1d(np.arange(len(self._active)), self._is_inside(rows))
        rest = model.a.copy()
        rest[rows] = 0.0
        rest[self._active[outside]] -= self._transfer[np.ix_(outside, rows)] @ v / (2.0 * self.rho)
        held: Array = self._K[rows] @ rest + model.b + self._beta[rows] @ v
        return held

    def held_out_values_each(self, v: Array, model: DualModel) -> Array:
        """See base class; |A|² flops for each row with a force, and |A|³ without an intercept.

        With an intercept, leaving one row out moves all values by about 1/n, and u + M v is as good
        as it gets. Without one, the value of a row that is far from all others may be smaller than
        the rounding of u, and is summed up from the others' terms alone.
        """
        if self._wants_intercept:
            return np.asarray(model.u + self._diagonal_of(v != 0.0) * v)
        # Row i itself is no longer there to answer: its own terms are left out of every sum.
        moved = np.zeros(len(self._K))
        moved[self._active] = self._answers_of_active()
        passive = np.setdiff1d(np.flatnonzero(v), self._active)
        moved[passive] = self._answers_of_passive(passive)
        held: Array = self._operator.hollow @ model.a + model.b + moved * v
        return held

    def _answers_of_active(self) -> Array:
        r""":math:`D_i^{-1}\sum_{j \ne i} K_{ij} G_{ij}`: the others' answer to row i."""
        C = self._system.inverse() * self._s[:, None]
        C *= self._s
        hollow = self._operator.hollow
        if self._active.size < len(self._K):
            hollow = hollow[np.ix_(self._active, self._active)]
        answers: Array = np.einsum("ij,ij->i", hollow, C) / (2.0 * self._s**2)
        return answers

    def _answers_of_passive(self, rows: Index) -> Array:
        r""":math:`-k^\top G k/2\rho` with :math:`k = K_{Ai}`."""
        if rows.size == 0 or self._active.size == 0:
            return np.zeros(rows.size)
        answers: Array = -self._crossed(rows)[1] / (2.0 * self.rho)
        return answers

    def _crossed(self, rows: Index) -> tuple[Array, Array]:
        """The rows k of K between ``rows`` and the active ones, and each one's kᵀGk."""
        # Rows of memory are taken first, and most often fewer of them are active.
        k = self._K.take(self._active, 0).take(rows, 1).T
        k *= self._s
        return k, self._system.forms(k)
