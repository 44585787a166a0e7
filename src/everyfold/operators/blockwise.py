r"""A kernel matrix that is never held: its rows are computed anew for every product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from everyfold.kernels import Kernel, Precomputed
from everyfold.operators.base import KernelOperator, Quadratic, Response, StructureError
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.products import product
from everyfold.operators.structure import Structure
from everyfold.operators.systems import CHUNK
from everyfold.types import Array, Index, Matrix, Route


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
        if isinstance(kernel, Precomputed):
            raise ValueError(
                "operator=Blockwise() evaluates a kernel on rows, but kernel='precomputed' has its "
                "matrix already; use operator=Dense()"
            )
        return BlockwiseMatrix(kernel, X)

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows


class BlockwiseMatrix(KernelOperator):
    """The kernel matrix of the rows of X, by products only."""

    def __init__(self, kernel: Kernel, X: Matrix) -> None:
        self.n = X.shape[0]
        self._kernel = kernel
        self._X = X

    @property
    def rank(self) -> int:
        """No structure: n."""
        return self.n

    def matmat(self, B: Array) -> Array:
        """K B, one block of rows after the other."""
        K_B = np.empty((self.n, B.shape[1]), order="F")
        step = max(1, CHUNK // max(1, self.n))
        for i in range(0, self.n, step):
            K_B[i : i + step] = product(self._kernel(self._X[i : i + step], self._X), B)
        return K_B

    def evaluate(self, coef: Array) -> Array:
        """See base class: K a."""
        return self.matmat(coef)

    def diagonal(self) -> Array:
        """See base class."""
        return self._kernel.diagonal(self._X)

    def restrict(self, rows: Index) -> BlockwiseMatrix:
        """See base class."""
        return BlockwiseMatrix(self._kernel, self._X[rows])

    def cross(self, new: Index, rows: Index) -> Array:
        """See base class: the kernel between the two sets."""
        return self._kernel(self._X[new], self._X[rows])

    def link(self, X: Matrix) -> Array:
        """See base class: the kernel between the new rows and these."""
        return self._kernel(X, self._X)

    def expand(self, coef: Array) -> KernelExpansion:
        """See base class."""
        return KernelExpansion(self._kernel, self._X, coef)

    def eigenvalues(self) -> Array:
        """Not available."""
        self._no_matrix("has no eigenvalues")

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[Response]:
        """Not available."""
        self._no_matrix("cannot be factorised")

    def _no_matrix(self, lack: str) -> NoReturn:
        raise StructureError(
            f"a kernel matrix of {self.n} rows that is evaluated block by block {lack}; use the "
            "criterion ConjugateGradient, which only multiplies, or operator=Dense() if "
            f"{24e-9 * self.n**2:.1f} GB fit in memory"
        )
