"""The response: how the fitted values of one quadratic problem and one ridge answer to the data.

A :class:`Response` is the linear map from changed targets to changed fitted values, and its inverse
on the rows of a fold: leaving rows out is a change of their targets to what the other rows predict.
The letters are those of ``docs/mathematics.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from everyfold._typing import Array, Index
from everyfold.linalg.blas import product
from everyfold.linalg.symmetric import (
    CHUNK,
    FactoredStack,
    largest_eigenvalues,
    solve_general,
    solve_stack,
)

# -- The influence series, of which the hold-out formula (★) is the limit -------------------------


def influence_series(first: Array, step: Callable[[Array], Array], order: int) -> Array:
    r"""The sum of ``order`` terms, each the ``step`` of the one before it.

    With :math:`\delta_1 = M_{SS}\,g_S` and the step :math:`\delta \mapsto M_{SS} D_S\,\delta` it is
    the Bouligand influence function (BIF) of that order. It converges to (★) where the spectral
    radius of :math:`M_{SS} D_S` is below 1.

    **Cost** ``order`` - 1 steps. **Exact?** No: the terms that are left out decay like the powers
    of the spectral radius.

    Examples
    --------
    >>> import numpy as np
    >>> influence_series(np.array([1.0]), lambda term: 0.5 * term, 3)
    array([1.75])
    """
    total, term = first.copy(), first
    for _ in range(order - 1):
        term = step(term)
        total += term
    return total


# Steps of power iteration for a spectral radius, of a product each.
_POWER_STEPS = 30

# A linear map.
Linear: TypeAlias = Callable[[Array], Array]


class StructureError(ValueError):
    """A structure cannot do what is asked, for any fold or ridge: nothing is gained by retrying."""


@dataclass(frozen=True)
class Quadratic:
    r"""The quadratic problem a response answers: :math:`\sum_i s_i^2 (z_i - u_i)^2 + \rho\|f\|^2`.

    Squared loss is this problem with ``s = sqrt(w)`` and ``z = y``; a Newton step of any other loss
    is it with ``s = sqrt(w V'' / 2)`` and a working response z. ``s = 0`` takes a row out.

    Attributes
    ----------
    s : array of shape (n,)
        Square roots of the weights; ``D = 2 s²`` is the curvature.
    z : array of shape (n, q)
        What u should be near to, one column a target.
    intercept : bool
        Whether u = f + b with a free constant b, or u = f.
    pull : float, default=0
        A constant force on the intercept, a term ``pull · b``: what rows without curvature
        contribute to a Newton step.
    drift : array of shape (c,), optional
        A constant force on the coefficients, for operators with coordinates of their own.
    """

    s: Array
    z: Array
    intercept: bool
    pull: float = 0.0
    drift: Array | None = None

    @cached_property
    def active(self) -> Index:
        """The rows with positive weight."""
        return np.flatnonzero(self.s > 0.0)


@dataclass(frozen=True)
class Solution:
    """Coefficients of f in the operator's own coordinates, and the intercept.

    ``operator.cross(new, rows) @ coef + intercept`` predicts.
    """

    coef: Array
    intercept: Array

    def raised(self, level: Array) -> Solution:
        """The solution for targets that are higher by a constant, (q,)."""
        return replace(self, intercept=self.intercept + level)


@dataclass(frozen=True)
class RidgeModels:
    """Coefficients (ridges, c, q), intercepts (ridges, q) and condition numbers (ridges,)."""

    coef: Array
    intercept: Array
    condition: Array

    @property
    def flat(self) -> Array:
        """All coefficients side by side, (c, ridges · q)."""
        k, c, q = self.coef.shape
        return self.coef.transpose(1, 0, 2).reshape(c, k * q)

    def values(self, V: Array) -> Array:
        """Predictions of rows with features V, (ridges, rows, q), by one product."""
        k, _, q = self.coef.shape
        flat = product(V, self.flat) if V.size else np.zeros((len(V), k * q))
        return flat.reshape(len(V), k, q).transpose(1, 0, 2) + self.intercept[:, None, :]

    def of_raw(self, T: Array | None) -> RidgeModels:
        """The same models by coefficients of the raw columns of a map."""
        return self if T is None else replace(self, coef=T @ self.coef)


@dataclass(frozen=True)
class DualModel:
    """A fitted model by its values on the rows and its dual coefficients: u = K a + b."""

    u: Array
    a: Array
    b: float


class Response(ABC):
    r"""How fitted values answer to the data: the matrix M of one quadratic problem and one ridge.

    .. math:: M = (D + 2\rho K^{-1})^{-1}, \qquad
              R = \bigl(I - D^{1/2} M D^{1/2}\bigr) / \text{scale}

    M maps a change of the loss gradient to the change of the fitted values; R makes residuals:
    ``D^{1/2}(z - u) = scale · R D^{1/2} z``. Both say the same thing; R is there because
    ``I - M D`` loses all digits by subtraction when the ridge is small. With an intercept both
    include it. The scale is a common factor that no criterion needs to know (it cancels), free
    for the operator to choose so that R stays finite as the ridge goes to 0.
    """

    rho: float
    condition: float
    """Estimated condition number of the factorised system."""
    is_exact: bool = True
    """Whether M belongs to the problem that ``solution`` solves, and does not stand in for it."""

    @abstractmethod
    def solution(self) -> Solution:
        """The minimiser."""

    @abstractmethod
    def reduced(self) -> Array:
        """R D^{1/2} z: the residuals of the fit, (n, q), up to the scale; 0 outside the problem."""

    @abstractmethod
    def matmat(self, B: Array) -> Array:
        """M B for an (n, k) matrix."""

    @abstractmethod
    def block(self, rows: Index, columns: Index) -> Array:
        """The sub-matrix of M with these rows and columns."""

    @abstractmethod
    def diagonal(self) -> Array:
        """The diagonal of M."""

    @abstractmethod
    def residual_blocks(self, rows: Index) -> Array:
        """The blocks R_SS, (t, m, m), of t sets of m *active* rows given as an array (t, m)."""

    def residual_matrix(self) -> Array:
        """R itself, n² numbers; every row must be active."""
        R: Array = self.residual_blocks(np.arange(len(self.curvature))[None])[0]
        return R

    def residual_matmat(self, B: Array) -> Array:
        """R B on the active rows for an (n, k) matrix, 0 elsewhere.

        By default through M, which loses digits as the ridge goes to 0.
        """
        root = np.sqrt(self.curvature)[:, None]
        return (np.where(root > 0.0, B, 0.0) - root * self.matmat(root * B)) / self.scale

    @abstractmethod
    def residual_diagonal(self) -> Array:
        """The diagonal of R; rows outside the problem have 1 / scale."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The factor between R and I - D^{1/2} M D^{1/2}."""

    def trace(self) -> float:
        """The trace of M."""
        return float(self.diagonal().sum())

    def reduced_norm(self) -> Array:
        """The squared norms of the columns of ``reduced``, (q,)."""
        reduced = self.reduced()
        return np.asarray(np.einsum("ij,ij->j", reduced, reduced), dtype=np.float64)

    def residual_trace(self, rows: Index) -> float:
        """The sum of the diagonal of R over ``rows``."""
        return float(self.residual_diagonal()[rows].sum())

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        r"""Solve :math:`R_{SS}\,e_S = B_S` for t sets S of m active rows: (t, m), (t, m, k).

        With ``B = R D^{1/2} z`` the solution e is the held-out residual of the sets, in units of
        :math:`D^{1/2}u`: the block form of the hold-out formula. Sets whose block is not positive
        definite to working precision come back as NaN.

        **Cost** that of the blocks, and m³/3 flops a set. Memory stays below about 64 MB.
        """
        if rows.size == 0:
            return B.copy()
        chunk = max(1, CHUNK // max(1, rows.shape[1] ** 2))
        pieces = [
            solve_stack(self.residual_blocks(rows[i : i + chunk]), B[i : i + chunk])
            for i in range(0, len(rows), chunk)
        ]
        return np.concatenate(pieces)

    def factored_residual_blocks(self, rows: Index) -> FactoredStack:
        """The systems of ``solve_residual_blocks``, for several right-hand sides in turn.

        **Cost** of the blocks, and m³/3 flops a set. Memory 8 m² bytes a set.
        """
        return FactoredStack(self.residual_blocks(rows))

    def moved(self, rows: Index, dz: Array) -> Solution:
        """How the solution moves if the targets of sets of active rows do: (t, m), (t, m).

        One column for each of the t sets. With ``dz`` what their held-out values are above their
        targets, the solution that is moved so is that of the rows outside the set.
        """
        raise StructureError(
            f"{type(self).__name__} cannot compute its coefficients for other targets; fit the "
            "training rows of each fold instead"
        )

    def slopes(self, link: Array) -> Array | None:
        """How values at new rows answer to the targets, (m, n); None if that is not known.

        ``link`` turns coefficients into these values (``Expansion.link``).
        """
        return None

    def removal_forces(self, rows: Index, g: Array) -> Array:
        r"""The forces :math:`v_S = (I - D_S M_{SS})^{-1} g_S` that undo the rows of one set.

        Applied to the model of all rows they leave the one that never saw S:
        :math:`\delta = M_{:S}\,v_S`. Rows without curvature keep their force.
        """
        D = self.curvature
        M_SS = self.block(rows, rows)
        system = np.eye(len(rows)) - D[rows, None] * M_SS
        return solve_general(system, g[rows])

    def removal_forces_each(self, g: Array) -> Array:
        """``removal_forces`` of every single row."""
        v: Array = g / (self.scale * self.residual_diagonal())
        return np.where(self.curvature > 0.0, v, g)

    @property
    @abstractmethod
    def curvature(self) -> Array:
        """The diagonal of D."""

    def held_out_values(self, rows: Index, v: Array, model: DualModel) -> Array:
        """Held-out values of one set, given the model of all rows and v from ``removal_forces``.

        An operator that can computes them from the rows outside the set alone, so that tiny values
        are not the difference of large ones.
        """
        return model.u[rows] + self.block(rows, rows) @ v

    def held_out_values_each(self, v: Array, model: DualModel) -> Array:
        """``held_out_values`` of every single row."""
        return model.u + self.diagonal() * v

    def influence(self, sets: Sequence[Index], elsewhere: Array, g: Array) -> Array:
        r""":math:`M(\theta_i \circ g)` for t sets of rows and forces g of shape (n, q): (n, t, q).

        :math:`\theta_i` is 1 on the i-th set and ``elsewhere[i]`` on all other rows: the first
        term of an influence series.
        """
        theta = weights_of_sets(sets, elsewhere, len(g))
        B = theta[:, :, None] * g[:, None, :]
        return self.matmat(B.reshape(len(g), -1)).reshape(B.shape)

    def block_products(self, rows: Index) -> Linear:
        """The map B → M_SS B for t sets S of m rows: (t, m), and B of shape (t, m, k)."""
        if rows.shape[1] == 1:
            M = self.diagonal()[rows][:, :, None]
        else:
            M = np.stack([self.block(S, S) for S in rows])
        return lambda B: M @ B

    def rates(self, theta: Array, seed: int) -> Array:
        r"""Spectral radii of :math:`M D \Theta`, one a column of ``theta``, by power iteration."""
        x = np.random.default_rng(seed).standard_normal(theta.shape)
        norm, D = np.ones(theta.shape[1]), self.curvature[:, None]
        for _ in range(_POWER_STEPS):
            x /= np.maximum(np.linalg.norm(x, axis=0), np.finfo(float).tiny)
            x = self.matmat(D * theta * x)
            norm = np.linalg.norm(x, axis=0)
        return norm

    def hat_series(self, rows: Index, B: Array, order: int) -> Array:
        r""":math:`\sum_{j=1}^{r} H_{SS}^j B_S` with :math:`H = D^{1/2} M D^{1/2}`, set by set."""
        if rows.size == 0 or order == 0:
            return np.zeros_like(B)
        H = self._hat_blocks(rows)
        return influence_series(H @ B, lambda term: H @ term, order)

    def radius(self, rows: Index) -> Array:
        """The spectral radius of M_SS D_S for each set: the rate of ``hat_series``."""
        if rows.shape[1] == 0:
            return np.zeros(len(rows))
        if rows.shape[1] == 1:
            return self._hat_blocks(rows)[:, 0, 0]
        return largest_eigenvalues(self._hat_blocks(rows))

    def _hat_blocks(self, rows: Index) -> Array:
        H = -self.scale * self.residual_blocks(rows)
        steps = np.arange(rows.shape[1])
        H[:, steps, steps] += 1.0
        return H


def weights_of_sets(sets: Sequence[Index], elsewhere: Array, n: int) -> Array:
    """A column for each set, (n, t): 1 on its rows, and ``elsewhere`` on all others."""
    theta = np.tile(elsewhere, (n, 1))
    for i, rows in enumerate(sets):
        theta[rows, i] = 1.0
    return theta
