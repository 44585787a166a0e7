r"""A kernel matrix that is never held: its rows are computed anew for every product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everyfold.kernels import Kernel
from everyfold.operators.base import Multiplies
from everyfold.operators.products import product
from everyfold.operators.structure import Structure
from everyfold.operators.symmetric import CHUNK
from everyfold.types import Array, Matrix


@dataclass(frozen=True)
class Blockwise(Structure):
    """Evaluate the kernel in blocks of rows for every product, where n² numbers do not fit.

    It serves methods that only multiply, such as
    :class:`~everyfold.criteria.conjugate.ConjugateGradient`; nothing can be factorised.

    **Cost** about 64 MB; each product takes n² kernel values beside its 2 n² flops a column.
    **Exact?** It is the same matrix as with ``Dense()``, up to rounding.

    Examples
    --------
    >>> from everyfold.kernels import Linear
    >>> K = Blockwise().bind(Linear(), np.array([[1.0], [2.0]]))
    >>> K.matmat(np.eye(2))
    array([[1., 2.],
           [2., 4.]])
    """

    is_held = False

    def bind(self, kernel: Kernel, X: Matrix) -> BlockwiseMatrix:
        """See base class."""
        if kernel.base == "precomputed":
            raise ValueError(
                "operator=Blockwise() evaluates a kernel on rows, but kernel='precomputed' has its "
                "matrix already; use operator=Dense()"
            )
        return BlockwiseMatrix(kernel, X)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows


class BlockwiseMatrix(Multiplies):
    """The kernel matrix of the rows of X, by products only."""

    words = "BlockwiseMatrix"

    def __init__(self, kernel: Kernel, X: Matrix) -> None:
        self.n = X.shape[0]
        self._kernel = kernel
        self._X = X
        self.lacks = (
            f"a kernel matrix of {self.n} rows that is evaluated block by block cannot be "
            "factorised; use the criterion ConjugateGradient, which only multiplies, or "
            f"operator=Dense() if {24e-9 * self.n**2:.1f} GB fit in memory"
        )

    def matmat(self, B: Array) -> Array:
        """K B, one block of rows after the other."""
        K_B = np.empty((self.n, B.shape[1]), order="F")
        step = max(1, CHUNK // max(1, self.n))
        for i in range(0, self.n, step):
            K_B[i : i + step] = product(self._kernel(self._X[i : i + step], self._X), B)
        return K_B

    def diagonal(self) -> Array:
        """See base class."""
        return self._kernel.diagonal(self._X)
