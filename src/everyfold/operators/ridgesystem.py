r"""What a factorisation is: a symmetric matrix once, then a system for each ridge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from everyfold.operators.symmetric import CHUNK, solve_stack
from everyfold.types import Array, Index

_COLUMNS = 64
"""How many right-hand sides are rotated back together."""


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
