r"""Kernels of low rank, K = V Vᵀ: linear models in their primal form are the simplest case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from everyfold.kernels import Kernel, Linear
from everyfold.operators.base import (
    Array,
    Expansion,
    KernelOperator,
    Quadratic,
    Response,
    Route,
    Rows,
    Solution,
    Structure,
)
from everyfold.operators.dense import product
from everyfold.operators.systems import EPS, refuse


@dataclass(frozen=True)
class Primal(Structure):
    """Represent a linear kernel by the features themselves.

    **Cost** n d² flops and d² memory where the dense kernel takes n³ and n²; worth it when
    features are fewer than rows.
    """

    def bind(self, kernel: Kernel, X: Any) -> LowRank:
        """See base class."""
        if not isinstance(kernel, Linear):
            raise ValueError(f"a primal form exists for the linear kernel only, not for {kernel}")
        return LowRank(_features(X))

    def rank(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return min(n_rows, n_features)


def _features(X: Any) -> Array:
    V: Any = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(V, dtype=np.float64)


class LowRank(KernelOperator):
    """K = V Vᵀ for an (n, c) matrix V. Coefficients are those of the c columns."""

    def __init__(self, V: Array) -> None:
        self.V = V
        self.n = len(V)

    @property
    def rank(self) -> int:
        """The number of columns of V, or of rows if that is smaller."""
        return int(min(self.V.shape))

    def matmat(self, B: Array) -> Array:
        """K B, 4 n c flops a column."""
        return product(self.V, product(np.ascontiguousarray(self.V.T), B))

    def evaluate(self, coef: Array) -> Array:
        """See base class: V times the coefficients."""
        return product(self.V, coef)

    def coefficients(self, a: Array) -> Array:
        """See base class: Vᵀ a."""
        return product(np.ascontiguousarray(self.V.T), a)

    def inherit(self, coef: Array, rows: Rows) -> Array:
        """See base class: all of them."""
        return coef

    def inner(self, coef: Array, other: Array, values: Array) -> float:
        """See base class: the coefficients are coordinates."""
        return float(np.vdot(coef, other))

    def diagonal(self) -> Array:
        """See base class."""
        diagonal: Array = np.einsum("ij,ij->i", self.V, self.V)
        return diagonal

    def eigenvalues(self) -> Array:
        """All n eigenvalues, ascending: the squared singular values of V and zeros."""
        values = np.zeros(self.n)
        spectrum = np.linalg.svd(self.V, compute_uv=False) ** 2
        values[self.n - len(spectrum) :] = spectrum[::-1]
        return values

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[LowRankResponse]:
        """See base class. One c×c eigendecomposition serves every ridge, whatever the route."""
        basis = Basis.of(self.V, quadratic)
        for rho in rhos:
            yield LowRankResponse(basis, quadratic, rho)

    def restrict(self, rows: Rows) -> LowRank:
        """See base class."""
        return LowRank(self.V[rows])

    def cross(self, new: Rows, rows: Rows) -> Array:
        """See base class: the rows of V."""
        return self.V[new]

    def expand(self, coef: Array) -> LinearExpansion:
        """See base class."""
        return LinearExpansion(coef)


@dataclass(frozen=True)
class LinearExpansion(Expansion):
    """f(x) = xᵀ coef."""

    coef: Array

    def link(self, X: Any) -> Array:
        """See base class: the features themselves."""
        return _features(X)

    @property
    def width(self) -> int:
        """See base class."""
        return len(self.coef)


@dataclass(frozen=True)
class Basis:
    r"""Columns that diagonalise the quadratic problem: :math:`Z = S(V - 1\bar v^\top)P`.

    An unpenalised intercept is the same as centring the columns at their weighted means
    :math:`\bar v`, which also keeps the Gram matrix well conditioned when the data sit far from
    the origin; P are the eigenvectors of the centred Gram matrix.
    """

    centre: Array
    P: Array
    values: Array
    free: Array
    """(V − 1 v̄ᵀ) P for all rows, active or not."""

    @classmethod
    def of(cls, V: Array, quadratic: Quadratic) -> Basis:
        """Decompose; n c² + 9 c³ flops."""
        s = quadratic.s
        weight = s @ s
        centre = np.zeros(V.shape[1])
        if quadratic.intercept and weight > 0.0:
            centre = (s**2 @ V) / weight
        centred = V - centre
        Z = centred * s[:, None]
        gram = product(np.ascontiguousarray(Z.T), Z)
        values, P, info = lapack.dsyevd(gram, lower=1, overwrite_a=1)
        if info:
            raise np.linalg.LinAlgError(f"dsyevd did not converge (info={info})")
        return cls(centre, P, values, product(centred, P))


class LowRankResponse(Response):
    r"""M and R of K = V Vᵀ: :math:`2M = F(\Lambda + \rho)^{-1}F^\top + 11^\top/\sum s^2`.

    F are the rotated features of :class:`Basis`. ``scale`` is 1: R stays finite at ridge 0
    (ordinary least squares).
    """

    def __init__(self, basis: Basis, quadratic: Quadratic, rho: float) -> None:
        spectrum = np.maximum(basis.values, 0.0) + rho
        smallest, largest = float(spectrum.min(initial=np.inf)), float(spectrum.max(initial=0.0))
        if smallest <= EPS * largest:
            raise refuse(smallest, rho)
        self.rho = rho
        self.condition = largest / smallest if spectrum.size else 1.0
        self._basis = basis
        self._quadratic = quadratic
        self._inverse = 1.0 / spectrum
        weight = float(quadratic.s @ quadratic.s)
        self._mean = 1.0 / weight if quadratic.intercept and weight > 0.0 else 0.0

    @property
    def scale(self) -> float:
        """One."""
        return 1.0

    def _hat(self, rows: Rows | slice, B: Array) -> Array:
        """2 M_{rows,:} B."""
        F = self._basis.free
        inner = product(np.ascontiguousarray(F.T), B) * self._inverse[:, None]
        u: Array = product(F[rows], inner) + self._mean * B.sum(axis=0)
        return u

    def solution(self) -> Solution:
        """See base class; ``coef`` belong to the columns of V."""
        B = self._quadratic.z * (self._quadratic.s**2)[:, None]
        F, P = self._basis.free, self._basis.P
        pull = 0.5 * self._quadratic.pull
        # b follows the mean of f, so that a force on b is one on f too.
        force = product(np.ascontiguousarray(F.T), B) + pull * (P.T @ self._basis.centre)[:, None]
        coef = P @ (self._inverse[:, None] * force)
        b = self._mean * (B.sum(axis=0) - pull) - self._basis.centre @ coef
        return Solution(coef, b)

    def reduced(self) -> Array:
        """See base class."""
        s, z = self._quadratic.s[:, None], self._quadratic.z
        made: Array = s * (z - self._hat(slice(None), s**2 * z))
        return made

    def residual_blocks(self, rows: Rows) -> Array:
        """See base class; c m² flops each."""
        s = self._quadratic.s[rows]
        F = self._basis.free[rows] * (s[:, :, None] * np.sqrt(self._inverse))
        blocks: Array = -(F @ F.transpose(0, 2, 1))
        blocks -= self._mean * (s[:, :, None] * s[:, None, :])
        steps = np.arange(rows.shape[1])
        blocks[:, steps, steps] += 1.0
        return blocks

    def residual_diagonal(self) -> Array:
        """See base class."""
        diagonal: Array = 1.0 - 2.0 * self._quadratic.s**2 * self.diagonal()
        return diagonal

    @property
    def curvature(self) -> Array:
        """See base class."""
        D: Array = 2.0 * self._quadratic.s**2
        return D

    def matmat(self, B: Array) -> Array:
        """See base class."""
        return 0.5 * self._hat(slice(None), B)

    def block(self, rows: Rows, columns: Rows) -> Array:
        """See base class."""
        F = self._basis.free
        M_SS: Array = 0.5 * (product(F[rows] * self._inverse, F[columns].T) + self._mean)
        return M_SS

    def diagonal(self) -> Array:
        """See base class; 2 n c flops."""
        F = self._basis.free
        diagonal: Array = 0.5 * (np.einsum("ij,ij,j->i", F, F, self._inverse) + self._mean)
        return diagonal
