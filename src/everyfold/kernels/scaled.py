r"""Kernels with a gamma for every feature: columns are multiplied before an ordinary kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import RandomState

from everyfold.kernels.distances import is_sparse
from everyfold.kernels.kernels import Kernel
from everyfold.types import AnyArray, Array, Matrix


@dataclass(frozen=True)
class Scaled(Kernel):
    """A kernel of rows whose columns are multiplied by a factor each: k(f ∘ x, f ∘ x').

    An rbf or polynomial kernel with gamma_j for feature j has the factors √gamma_j, a Laplacian one
    gamma_j itself.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the scaled rows.
    factors : tuple of float
        One for each column, >= 0; 0 leaves the column out.

    Notes
    -----
    **Cost** a scaled copy of the rows for each matrix. Other factors have other distances, so that
    no base matrix is shared.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import RBF, Scaled
    >>> X = np.array([[0.0, 5.0], [1.0, 9.0]])
    >>> Scaled(RBF(0.5), (1.0, 0.0))(X).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    kernel: Kernel
    factors: tuple[float, ...]

    base: ClassVar[str | None] = None

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """That of the kernel, between scaled rows."""
        return self.kernel.base_matrix(self.scale(X), None if Y is None else self.scale(Y))

    def base_diagonal(self, X: Matrix) -> Array:
        """See base class."""
        return self.kernel.base_diagonal(self.scale(X))

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """See base class: the kernel's own."""
        return self.kernel.from_base(B, out)

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        """See base class."""
        rows, others = self.scale(X), None if Y is None else self.scale(Y)
        return self.kernel.slopes(rows, others, weights, K)

    def waves(self, random: RandomState, size: tuple[int, int]) -> tuple[Array, float] | None:
        """See base class: directions are scaled as rows are."""
        found = self.kernel.waves(random, size)
        return None if found is None else (found[0] * np.array(self.factors)[:, None], found[1])

    def scale(self, X: Matrix) -> Matrix:
        """A copy of the rows with scaled columns."""
        factors = np.array(self.factors)
        check_width(len(factors), X)
        if not is_sparse(X):
            return np.asarray(X, dtype=np.float64) * factors
        scaled = X.tocsr().astype(np.float64)
        scaled.data *= factors[scaled.indices]
        return scaled


def check_width(n_gammas: int, X: Matrix) -> None:
    """Raise unless there is a gamma for each column."""
    n_features = np.shape(X)[1]
    if n_gammas != n_features:
        raise ValueError(
            f"gamma has {n_gammas} entries, but X has {n_features} features; pass one for each "
            "feature, in the order of the columns, or one number"
        )
