"""The full kernel matrix for methods that only multiply, with a low-rank basis to begin from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from everyfold.kernels import Kernel
from everyfold.operators.base import Multiplies
from everyfold.operators.blockwise import Blockwise
from everyfold.operators.dense import Dense
from everyfold.operators.nystrom import Nystrom
from everyfold.operators.structure import Structure
from everyfold.types import Array, Matrix, RandomState


@dataclass(frozen=True)
class Iterative(Structure):
    """Solve with the full kernel matrix by conjugate gradients instead of factorising it.

    Use it for many rows if the kernel is too narrow for a low-rank approximation. All folds and
    ridges are columns of one iteration, preconditioned by a low-rank kernel.

    Parameters
    ----------
    rank : int, default=500
        The rank of the preconditioner.
    is_held : bool, default=True
        Whether the matrix is kept in memory (8 n² bytes), or computed anew for every product.
    random_state : int, RandomState or None, default=0
        Seed of the landmarks of the preconditioner.

    Notes
    -----
    **Cost** 2 n² flops per column and iteration; 3 to 200 iterations, more for a smaller ridge.
    **Exact?** Yes, if the residual got small enough; folds for which it did not are flagged.
    """

    rank: int = 500
    is_held: bool = True
    random_state: RandomState = 0

    methods: ClassVar[tuple[str, ...] | None] = ("conjugate",)

    def bind(self, kernel: Kernel, X: Matrix) -> Multiplies:
        """See base class."""
        return self._prepared((Dense() if self.is_held else Blockwise()).bind(kernel, X), kernel, X)

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> Multiplies:
        """See base class."""
        return self._prepared(Dense().bind_shared(kernel, X, base), kernel, X)

    def _prepared(self, operator: Multiplies, kernel: Kernel, X: Matrix) -> Multiplies:
        rank = min(self.rank, X.shape[0])
        operator.basis = Nystrom(rank, random_state=self.random_state).landmarks(kernel, X).V
        return operator

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows
