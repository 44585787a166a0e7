r"""The kernel matrix in full, whose responses are of low rank: t-FBIF (Liu et al. 2018).

A Bouligand influence function (BIF) solves :math:`L\,\delta = K p` with :math:`L = 2\rho I + K D`
for what the forces p of a fold do to the fitted values. The fast form keeps the fit f and the push
K p exact, and replaces K in L alone by :math:`\tilde K = V V^\top`, so that L is inverted at c×c
size (Woodbury). With N the response of :math:`\tilde K`, which has an intercept where the problem
has one, its response is

.. math:: \tilde M = \tilde L^{-1} K
          = N + (I - N D)\,\frac{K - \tilde K}{2\rho} .

It is not symmetric, and it is not the response of the low-rank model, which would be N.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from everyfold._extensions import OPERATORS
from everyfold._typing import Array, Index, Matrix, Route
from everyfold.kernels import Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.symmetric import CHUNK, solve_general
from everyfold.operators.base import OperatorSpec
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.lowrank import LowRank, LowRankResponse
from everyfold.operators.response import Linear, Quadratic, Response, Solution, influence_series


class InfluenceMatrix(DenseMatrix):
    """A kernel matrix that fits in full and responds at low rank."""

    def __init__(self, K: Array, low: LowRank, kernel: Kernel | None = None, X: Matrix = None):
        super().__init__(K, kernel, X)
        self.low = low

    @property
    def outline(self) -> OperatorSpec:
        """See base class."""
        return OperatorSpec(self.n, response_rank=self.low.rank)

    @property
    def words(self) -> str:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        return f"dense, responses of rank {self.low.rank}"

    def respond_path(  # type: ignore[override]  # it solves as the dense one does
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[InfluenceResponse]:
        """See base class."""
        for exact in super().respond_path(quadratic, rhos, route):
            yield InfluenceResponse(exact, self, quadratic)


class InfluenceResponse(Response):
    r"""The solution of the full kernel, and the response :math:`\tilde M` described above.

    **Cost** beyond the fit c³ + n c², made when first asked for. The first term of an influence
    series takes 2 n² flops for all folds of a partition together, and 4 n c for each of them; each
    further term as much where a fold answers to its own rows only, and 2 n² for each fold where all
    rows answer (the "mean" convention). Order ∞ takes the blocks of the folds, 2 n² c flops.
    **Exact?** Never: it stands in for the response of the fit.
    """

    is_exact = False

    def __init__(self, exact: Response, operator: InfluenceMatrix, quadratic: Quadratic) -> None:
        self._exact = exact
        self._K = operator.K
        self._low = operator.low
        self._quadratic = quadratic
        self.rho = exact.rho
        self.condition = exact.condition

    @cached_property
    def _low_response(self) -> LowRankResponse:
        """N, the response of the low-rank kernel."""
        (response,) = self._low.respond_path(self._quadratic, [self.rho], "cholesky")
        return response

    # -- the fit -----------------------------------------------------------------------------------

    def solution(self) -> Solution:
        """See base class: that of the full kernel."""
        return self._exact.solution()

    def reduced(self) -> Array:
        """See base class: likewise."""
        return self._exact.reduced()

    @property
    def scale(self) -> float:
        """See base class: likewise."""
        return self._exact.scale

    @cached_property
    def curvature(self) -> Array:
        """See base class."""
        return self._exact.curvature

    # -- the response ------------------------------------------------------------------------------

    def _answer(self, KB: Array, B: Array) -> Array:
        """M̃ B, given the products K B with the full kernel; about 8 n c flops a column."""
        difference = (KB - self._low.matmat(B)) / (2.0 * self.rho)
        return difference + self._low_response.matmat(B - self.curvature[:, None] * difference)

    def matmat(self, B: Array) -> Array:
        """See base class; 2 n² flops a column."""
        return self._answer(product(self._K, B), B)

    def influence(self, sets: Sequence[Index], elsewhere: Array, g: Array) -> Array:
        """See base class; sums over the rows of each set serve all of them, 4 n² flops together."""
        n, q = g.shape
        B = np.empty((n, len(sets), q))
        KB = np.empty_like(B)
        K_g = product(self._K, g)
        for i, (rows, share) in enumerate(zip(sets, elsewhere, strict=True)):
            own = (1.0 - share) * g[rows]
            B[:, i], KB[:, i] = share * g, share * K_g + product(self._K[rows].T, own)
            B[rows, i] = g[rows]
        return self._answer(KB.reshape(n, -1), B.reshape(n, -1)).reshape(B.shape)

    def block_products(self, rows: Index) -> Linear:
        """See base class; no block is formed."""

        def step(B: Array) -> Array:
            pairs = zip(rows, B, strict=True)
            return np.stack([self._own_answer(S, B_S) for S, B_S in pairs])

        return step

    def hat_series(self, rows: Index, B: Array, order: int) -> Array:
        """See base class; no block is formed."""
        if rows.size == 0 or order == 0:
            return np.zeros_like(B)
        s, step = self._quadratic.s[rows][:, :, None], self.block_products(rows)
        return influence_series(2.0 * s * step(s * B), lambda H_B: 2.0 * s * step(s * H_B), order)

    def _own_answer(self, rows: Index, B: Array) -> Array:
        """M̃_SS B; 2 n m flops and 6 n c a column."""
        G, V = self._low_response.G, self._low.V
        difference = (product(self._K[rows].T, B) - product(V, product(V[rows].T, B))) / (
            2 * self.rho
        )
        inner = product(G[rows].T, B) - product(G.T, self.curvature[:, None] * difference)
        return difference[rows] + 0.5 * product(G[rows], inner)

    @cached_property
    def _transfer(self) -> Array:
        r"""What the c coordinates of N make of every row, (c, n); 2 n² c flops, once.

        :math:`\tilde M_{RS} = (K - \tilde K)_{RS}/2\rho + \tfrac12 G_R T_S`.
        """
        G, V = self._low_response.G, self._low.V
        pulled = self.curvature[:, None] * G
        difference = product(self._K, pulled).T - product(product(pulled.T, V), V.T)
        return G.T - difference / (2.0 * self.rho)

    def block(self, rows: Index, columns: Index) -> Array:
        """See base class; 4 c flops an entry."""
        V = self._low.V
        difference = (self._K[np.ix_(rows, columns)] - V[rows] @ V[columns].T) / (2.0 * self.rho)
        return difference + 0.5 * self._low_response.G[rows] @ self._transfer[:, columns]

    def diagonal(self) -> Array:
        """See base class."""
        difference = (self._K.diagonal() - self._low.diagonal()) / (2.0 * self.rho)
        diagonal: Array = difference + 0.5 * np.einsum(
            "ij,ji->i", self._low_response.G, self._transfer
        )
        return diagonal

    def residual_blocks(self, rows: Index) -> Array:
        """See base class; they are not symmetric."""
        blocks = np.stack([self.block(S, S) for S in rows])
        s = self._quadratic.s[rows]
        blocks *= -2.0 * s[:, :, None] * s[:, None, :]
        steps = np.arange(rows.shape[1])
        blocks[:, steps, steps] += 1.0
        blocks /= self.scale
        return blocks

    def residual_diagonal(self) -> Array:
        """See base class."""
        return (1.0 - self.curvature * self.diagonal()) / self.scale

    def solve_residual_blocks(self, rows: Index, B: Array) -> Array:
        """See base class; 2 m³/3 flops a set."""
        if rows.size == 0:
            return B.copy()
        chunk = max(1, CHUNK // rows.shape[1] ** 2)
        starts = range(0, len(rows), chunk)
        solved = [
            solve_general(self.residual_blocks(rows[i : i + chunk]), B[i : i + chunk])
            for i in starts
        ]
        return np.concatenate(solved)

    def radius(self, rows: Index) -> Array:
        """See base class: that of the low-rank kernel, at most 3 n c² flops for a partition."""
        return self._low_response.radius(rows)

    def rates(self, theta: Array, seed: int) -> Array:
        """See base class: likewise, 4 n c flops a column and step."""
        return self._low_response.rates(theta, seed)


OPERATORS["t-FBIF"] = InfluenceMatrix
