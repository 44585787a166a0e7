r"""The response of a kernel matrix that is held in full."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from everyfold.operators.products import product
from everyfold.operators.response import DualModel, Quadratic, Response, Solution
from everyfold.operators.ridgesystem import RidgeSystem
from everyfold.types import Array, Index

_MANY_SETS = 4  # sets of rows are many if there are a quarter as many as rows


class HeldMatrix(Protocol):
    """A kernel matrix K in memory, with and without its diagonal."""

    @property
    def K(self) -> Array: ...  # noqa: D102

    @property
    def hollow(self) -> Array: ...  # noqa: D102


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
        self, operator: HeldMatrix, quadratic: Quadratic, system: RidgeSystem, solved: Array
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
            apart = np.zeros((len(self._s), len(rows)))
            apart[position, np.arange(len(rows))[:, None]] = B
            C_B = self._system.solve(apart)
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

    # -- R -----------------------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """The ridge."""
        return self.rho

    def reduced(self) -> Array:
        """See base class."""
        return self._scatter(self._C_z)

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        """See base class."""
        if rows.size == 0:
            return B.copy()
        position = self._positions(rows)
        h = self._h / np.sqrt(self._kappa) if self._has_intercept else None
        return self._system.solve_blocks(position, B, h)

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

    def _lift(self, B: Array) -> Array:
        """Fitted values of all rows for a working response z of the active ones, ``B = S z``."""
        b = self._h @ B / self._kappa if self._has_intercept else np.zeros(B.shape[1])
        return product(self._K_active, self._s[:, None] * self._residual(B)) + b

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
        M_B = self._lift(B[self._active] / (2.0 * self._s[:, None]))
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
