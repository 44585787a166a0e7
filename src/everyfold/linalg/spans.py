r"""Spans S² of single rows with respect to nested sets of rows: one factorisation for all sets.

Let A be the free rows, those whose coefficients change when another row is removed, and
:math:`\delta` what is added to their diagonal. Then
:math:`G = (K_{AA} + \mathrm{diag}\,\delta)^{-1} = X^\top X`, where :math:`X = L^{-1}` is the
inverse of the Cholesky factor. L and X are triangular, so their first k rows depend on the first k
rows of A only. With A ordered so that smaller sets come first, a sum over the first k entries gives
the result for a set of k rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index
from everyfold.linalg.ridge_systems import CholeskySystem


class NestedSpans:
    r"""Spans :math:`S_i^2`: the drop of :math:`f(x_i)` per unit of :math:`a_i` without row i.

    The model has an intercept. The coefficients of the set change, all others stay. For a row of
    the set

    .. math:: S_i^2 = 1/C_{ii} - \delta_i , \qquad C = G - h h^\top/\kappa, \; h = G 1, \;
              \kappa = 1^\top h ,

    and for any other row, with :math:`k = K_{Ai}`,

    .. math:: S_i^2 = K_{ii} - k^\top G k + (1 - k^\top h)^2/\kappa .

    As :math:`\delta \to 0` this is the squared distance of row i, in feature space, from the affine
    span of the other rows of the set (Chapelle & Vapnik 2000).

    Parameters
    ----------
    K : array of shape (n, n)
    order : int array of shape (m,)
        The rows of the largest set; those of smaller ones come first.
    softness : array of shape (m,)
        :math:`\delta` of each of them, positive.
    counts : sequence of int
        How many rows each of the sets has, ascending, from 1 to m.
    isolated : bool array of shape (n,)
        Rows of K that are zero except on the diagonal. They affect other rows through the intercept
        only, and are left out of the factorisation.

    Notes
    -----
    **Cost** 2/3 m³ flops for all sets together, and m² for each other row, m without the isolated
    rows.

    **Exact?** Yes, in exact arithmetic; rounding grows with ``condition``, which is a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> K, soft, none = np.eye(3) * 2.0, np.array([1.0, 1.0]), np.zeros(3, dtype=bool)
    >>> NestedSpans(K, np.array([0, 1]), soft, [1, 2], none).of(np.array([2]))  # on one, on two
    array([[5. ],
           [3.5]])
    """

    def __init__(
        self,
        K: Array,
        order: Index,
        softness: Array,
        counts: Sequence[int],
        isolated: NDArray[np.bool_],
    ) -> None:
        m = len(order)
        self._K, self._diagonal, self._counts = K, K.diagonal(), np.array(counts)[:, None]
        self._place = np.full(len(K), m, dtype=np.intp)
        self._place[order] = np.arange(m)
        self._softness = np.zeros(len(K))
        self._softness[order] = softness
        self._isolated, self._ends, lonely = isolated, list(counts), np.zeros(0)
        self._coupled, self._position = order, self._place
        is_lonely = isolated[order]
        if is_lonely.any():
            self._coupled = order[~is_lonely]
            ends = np.cumsum(~is_lonely)
            self._ends = ends[self._counts[:, 0] - 1].tolist()
            self._position = np.append(ends - 1, 0)[self._place]
            lonely = np.cumsum(is_lonely / (self._diagonal[order] + softness))
        own = self._softness[self._coupled]
        least = float(own.min(initial=np.inf))
        self._rows = K.take(self._coupled, 0)
        A = self._rows.take(self._coupled, 1)
        A.ravel()[:: len(A) + 1] += own - least
        self._system = CholeskySystem(A, least, overwrite=True, is_rough=True)
        self.condition = self._system.condition
        # X 1, whose first k entries are those of each smaller set.
        self._z = np.add.reduce(self._system.columns, 0)
        self._kappa = np.array([[self._z[:end] @ self._z[:end]] for end in self._ends])
        if len(lonely):
            self._kappa += lonely[self._counts - 1]

    def of(self, rows: Index) -> Array:
        """S² of some rows with respect to every set, (sets, rows)."""
        spans = np.empty((len(self._ends), len(rows)))
        is_coupled, is_lonely = self._place[rows] < self._counts[-1], self._isolated[rows]
        is_other = ~is_coupled
        if is_lonely.any():
            spans[:, is_lonely] = self._of_isolated(rows[is_lonely])
            is_coupled &= ~is_lonely
            is_other &= ~is_lonely
        others = rows[is_other]
        if len(others):
            halves = self._system.halves(self._rows.take(others, 1).T)
            spans[:, is_other] = self._outside(others, halves)
        spans[:, is_coupled] = self._of_coupled()[:, self._position[rows[is_coupled]]]
        return spans

    def _of_isolated(self, rows: Index) -> Array:
        diagonal, softness = self._diagonal[rows], self._softness[rows]
        own = 1.0 / (diagonal + softness)
        inside = self._left(own, own, rows)
        is_inside = self._place[rows] < self._counts
        return np.where(is_inside, inside, diagonal + 1.0 / self._kappa)

    def _left(self, own: Array, h: Array, rows: Index) -> Array:
        """S² of rows of the sets, from their G_ii and h_i."""
        C_ii = own - h**2 / self._kappa
        # If the row is the only one of its set, the others do not fix the intercept: keep it.
        is_alone = C_ii <= 0.0
        spans: Array = 1.0 / np.where(is_alone, 1.0, C_ii) - self._softness[rows]
        return np.where(is_alone, self._diagonal[rows], spans) if is_alone.any() else spans

    def _of_coupled(self) -> Array:
        """S² of the coupled rows of the largest set, with respect to every set."""
        own, h = self._sums(self._system.columns)
        smallest = self._ends[0]
        spans = self._left(own, h, self._coupled)
        if smallest == len(self._coupled):
            return spans
        # L Lᵀ = K + δ: where a set ends before a row, the row of L is X times that of K.
        before = self._outside(self._coupled[smallest:], self._system.factor[smallest:])
        for end, inside, outside in zip(self._ends, spans, before, strict=True):
            inside[end:] = outside[end - smallest :]
        return spans

    def _outside(self, rows: Index, halves: Array) -> Array:
        """S² of rows that are in none of the sets, from X K_{Ai} of each."""
        size, fit = self._sums(halves)
        spans: Array = self._diagonal[rows] - size + (1.0 - fit) ** 2 / self._kappa
        return spans

    def _sums(self, rows: Array) -> tuple[Array, Array]:
        """Over the first entries of each row, as many as each set has: squares, products with z."""
        squares, products = np.empty((2, len(self._ends), len(rows)))
        start = 0
        for k, end in enumerate(self._ends):
            part = rows[:, start:end]
            np.einsum("ij,ij->i", part, part, out=squares[k])
            products[k] = part @ self._z[start:end]
            start = end
        if len(self._ends) > 1:
            np.cumsum(squares, axis=0, out=squares)
            np.cumsum(products, axis=0, out=products)
        return squares, products
