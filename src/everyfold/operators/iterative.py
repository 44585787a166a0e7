"""The full kernel matrix for methods that only multiply: conjugate gradients.

:class:`Preconditioner` makes their systems well conditioned by a low-rank approximation of the
kernel; :class:`Blockwise` evaluates the kernel anew for every product, where n² numbers do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import blas

from everyfold._typing import Array, Index, Matrix, RandomState
from everyfold.kernels import Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.symmetric import CHUNK, spectrum
from everyfold.operators.base import Structure, SupportsMatmul
from everyfold.operators.dense import Dense
from everyfold.operators.nystrom import Nystrom

# -- A low-rank approximation of the kernel as a preconditioner of every fold's ridge system ------


@dataclass(frozen=True)
class Preconditioner:
    r"""Approximate inverses of :math:`A_k = S_k K S_k + \rho I` from :math:`K \approx V V^\top`.

    What V leaves of the kernel is replaced by its mean on the diagonal, :math:`\mu`. With the
    eigenvectors U and eigenvalues Λ of :math:`S_k V V^\top S_k`,

    .. math:: P^{-1} = (\mu + \rho)\, U (\Lambda + \mu + \rho)^{-1} U^\top + (I - U U^\top)

    is the inverse of :math:`S_k V V^\top S_k + (\mu + \rho) I` up to a factor. The level
    :math:`\mu` is what makes a basis harmless where the spectrum is flat and V has caught little
    of it: with the smallest eigenvalue in Λ in its place, iterations would grow several times.

    The roots of the weights :math:`S_k`, 0 for the rows that fold k holds out, are part of the
    inverse: rows and columns of one for all rows would precondition hardly at all, since the
    inverse of a sub-matrix is not a sub-matrix of the inverse. U is not formed. Products with V
    serve all folds at once, and only the rotations, of the size of the rank c, differ.

    **Cost** n c² + 9 c³ flops a fold to make, 8 c² bytes a fold to keep; 4 n c + 4 c² flops a
    column to apply.
    **Exact?** A preconditioner changes how many iterations are needed, not where they end.

    Examples
    --------
    >>> one = np.ones((2, 1))
    >>> inverse = Preconditioner.of(np.array([[3.0], [0.0]]), one, np.array([9.0, 2.0]))
    >>> inverse.level  # nothing is left of the first row, and 2 of the second
    array([1.])
    >>> inverse.apply(np.eye(2), one, np.array([0, 0]), np.array([2.0, 2.0]))
    array([[0.25, 0.  ],
           [0.  , 1.  ]])
    """

    V: Array
    Q: Array
    """The eigenvectors of each fold's Gram matrix VᵀS²V, (t, c, c)."""
    values: Array
    """Its eigenvalues, ascending, (t, c)."""
    level: Array
    """The mean of what V leaves of the diagonal of S K S on each fold's training rows, (t,)."""
    largest: Array
    """About the largest eigenvalue of each fold's S K S, and no more than its trace, (t,)."""

    @classmethod
    def of(cls, V: Array, s: Array, diagonal: Array) -> Preconditioner:
        """Decompose VᵀS²V for every column of ``s``, (n, t), the roots of the folds' weights.

        ``diagonal`` is that of K.
        """
        V = np.asfortranarray(V, dtype=np.float64)
        t, c = s.shape[1], V.shape[1]
        Q, values = np.empty((t, c, c)), np.empty((t, c))
        for k in range(t if c else 0):
            gram = blas.dsyrk(1.0, np.asfortranarray(V * s[:, [k]]), trans=1, lower=1)
            values[k], Q[k] = spectrum(gram, overwrite=True)
        rest = np.maximum(diagonal - np.einsum("ij,ij->i", V, V), 0.0)
        level = (rest @ s**2) / np.maximum(1, np.count_nonzero(s, axis=0))
        values = np.maximum(values, 0.0)
        largest = np.minimum(values.max(axis=1, initial=0.0) + level, diagonal @ s**2)
        return cls(V, Q, values, level, largest)

    def apply(self, R: Array, s: Array, folds: Index, rhos: Array) -> Array:
        """P⁻¹ R, column by column: ``folds`` (ascending), ``rhos`` and ``s`` are the columns'."""
        if self.V.shape[1] == 0:
            return R.copy(order="F")
        B = blas.dgemm(1.0, self.V, np.asfortranarray(s * R), trans_a=1)
        for k in np.unique(folds):
            own = slice(*np.searchsorted(folds, [k, k + 1]))
            turned = blas.dgemm(1.0, self.Q[k].T, B[:, own])
            turned /= self.values[k][:, None] + (self.level[k] + rhos[own])
            B[:, own] = blas.dgemm(1.0, self.Q[k].T, turned, trans_a=1)
        Z: Array = blas.dgemm(-1.0, self.V, B)
        Z *= s
        Z += R
        return Z


# -- A kernel matrix that is never held: its rows are computed anew for every product -------------


@dataclass(frozen=True)
class Blockwise(Structure):
    """Evaluate the kernel in blocks of rows for every product, where n² numbers do not fit.

    It serves methods that only multiply, such as
    :class:`~everyfold.crossval.conjugate_gradient.ConjugateGradient`; nothing can be factorised.

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

    is_in_memory = False

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


class BlockwiseMatrix(SupportsMatmul):
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
    is_in_memory: bool = True
    random_state: RandomState = 0

    methods: ClassVar[tuple[str, ...] | None] = ("conjugate",)

    def bind(self, kernel: Kernel, X: Matrix) -> SupportsMatmul:
        """See base class."""
        return self._prepared(
            (Dense() if self.is_in_memory else Blockwise()).bind(kernel, X), kernel, X
        )

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> SupportsMatmul:
        """See base class."""
        return self._prepared(Dense().bind_shared(kernel, X, base), kernel, X)

    def _prepared(self, operator: SupportsMatmul, kernel: Kernel, X: Matrix) -> SupportsMatmul:
        rank = min(self.rank, X.shape[0])
        operator.basis = Nystrom(rank, random_state=self.random_state).landmarks(kernel, X).V
        return operator

    def rank_for(self, n_rows: int, n_features: int) -> int:
        """See base class."""
        return n_rows
