r"""Derivatives of kernels in the logarithm of each feature's gamma, summed with given weights.

With :math:`\gamma_j` the gamma of feature j, each function gives the numbers
:math:`\sum_{ik} H_{ik}\,t_j(x_i, y_k)` for all features j, where :math:`t_j` is the share of
feature j in a distance or an inner product. H need not be symmetric. **Cost** 2 n m d flops for n
and m rows, in matrix products; Manhattan distances are taken in blocks of rows.
"""

from __future__ import annotations

import numpy as np

from everyfold.kernels.distances import BLOCK_SIZE
from everyfold.types import Array


def sum_products(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik x_ij y_kj for all j.

    Examples
    --------
    >>> sum_products(np.ones((1, 2)), np.array([[2.0]]), np.array([[3.0], [4.0]]))
    array([14.])
    """
    return np.asarray(np.einsum("ij,ij->j", X, H @ Y), dtype=np.float64)


def sum_squares(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik (x_ij − y_kj)² for all j."""
    centre = Y.mean(axis=0)  # differences do not change, and less cancels
    X, Y = X - centre, Y - centre
    squares: Array = H.sum(axis=1) @ X**2 + H.sum(axis=0) @ Y**2
    return squares - 2.0 * sum_products(H, X, Y)


def sum_manhattan(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik |x_ij − y_kj| for all j, in blocks of rows that fit the second-level cache."""
    step = max(1, BLOCK_SIZE // max(1, Y.size))
    sums = np.zeros(X.shape[1])
    for i in range(0, len(X), step):
        apart = X[i : i + step, None, :] - Y
        np.abs(apart, out=apart)
        sums += H[i : i + step].reshape(-1) @ apart.reshape(-1, X.shape[1])
    return sums
