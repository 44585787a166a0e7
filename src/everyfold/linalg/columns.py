r"""Ridge systems from the columns themselves, where their Gram matrix has too few digits left.

A Gram matrix squares the condition number of its columns. Reflections do not: with

.. math:: \begin{pmatrix} Z \\ \sqrt\rho\, I \end{pmatrix} = Q_\rho R_\rho, \qquad
          (Z^\top Z + \rho I)^{-1} = R_\rho^{-1} R_\rho^{-\top}

every column is known to rounding relative to its own length, so that neither columns of very
different size nor a small ridge do harm; what counts is how nearly dependent they are.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, solve_triangular, svd

from everyfold._typing import Array
from everyfold.linalg.symmetric import EPS


def compress_columns(Y: Array) -> Array:
    """At most n columns with the same Y Yᵀ, n rows; 2 n² flops for each column of Y.

    Examples
    --------
    >>> Y = np.arange(8.0).reshape(2, 4)
    >>> few = compress_columns(Y)
    >>> few.shape, bool(np.allclose(few @ few.T, Y @ Y.T))
    ((2, 2), True)
    """
    if Y.shape[1] <= len(Y):
        return Y
    return np.asarray(np.linalg.qr(Y.T, mode="r"), dtype=np.float64).T


def singular_values(V: Array) -> Array:
    """The singular values of a matrix, descending."""
    return np.asarray(np.linalg.svd(V, compute_uv=False))


def orthonormal_basis(V: Array) -> Array:
    """Orthonormal columns that span those of V."""
    return np.asarray(np.linalg.qr(V)[0])


def basis_of_rows(M: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """A few rows, their sizes relative to the largest, and the combinations (r, k) that give M.

    The principal components of some columns, drawn at random: what makes up the rows there makes
    them up everywhere, unless the columns are of different kinds.

    Examples
    --------
    >>> M = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    >>> basis, sizes, C = basis_of_rows(M, 1e-10)
    >>> sizes, (C @ basis).round(12)[1]
    (array([1.]), array([2., 4., 6.]))
    """
    r, c = M.shape
    drawn = np.random.default_rng(0).choice(c, min(c, _DRAWN * r), replace=False)
    U, sizes, _ = svd(M[:, drawn], full_matrices=False, check_finite=False)
    k = max(1, int(np.count_nonzero(sizes > tolerance * sizes[0])))
    combine = np.ascontiguousarray(U[:, :k])
    return np.ascontiguousarray(combine.T @ M), sizes[:k] / (sizes[0] or 1.0), combine


# Columns that are drawn for each row.
_DRAWN = 200


def inverse_of_lower(L: Array) -> Array:
    """L⁻¹ of a lower triangle, by substitution."""
    return np.asarray(solve_triangular(L, np.eye(len(L)), lower=True))


def right_singular_vectors_of_inverse(T: Array) -> Array:
    """The right singular vectors of T⁻ᵀ as rows, those of its largest singular value first."""
    _, _, Vt = np.linalg.svd(np.linalg.inv(T).T)
    return np.asarray(Vt)


class Columns:
    """Z = Q R of which R is kept; good for every ridge.

    **Cost** 2 n c² flops, and about 4 c³ a ridge. **Exact?** Yes, to rounding times the condition
    number of columns of length 1, which is not squared.
    """

    def __init__(self, Z: Array) -> None:
        """Reduce (n, c) columns, which are overwritten if they are in Fortran order."""
        self._R = _triangle(np.asfortranarray(Z))

    def at(self, rho: float) -> tuple[Array, float]:
        """P with (ZᵀZ + ρ)⁻¹ = P Pᵀ, and the condition number of the columns at this ridge.

        Without a ridge dependent columns leave P the pseudo-inverse's, with fewer columns.
        """
        R, c = self._R, self._R.shape[1]
        if rho > 0.0:
            R = _triangle(np.asfortranarray(np.vstack([R, np.sqrt(rho) * np.eye(c)])))
        elif len(R) < c:
            R = np.vstack([R, np.zeros((c - len(R), c))])
        length = np.sqrt(np.einsum("ij,ij->j", R, R))
        length[length == 0.0] = 1.0
        R = np.asfortranarray(R / length)
        # A triangle is its own factorisation, L = 1; dtrcon is not in the oldest SciPy allowed.
        reciprocal = float(lapack.dgecon(R, np.abs(R).sum(axis=0).max(initial=0.0))[0])
        if reciprocal > EPS or (rho > 0.0 and R.diagonal().all()):
            P, _ = lapack.dtrtri(R)
        else:
            P = _pseudo_inverse(R)
            reciprocal = 0.0
        condition = 1.0 / reciprocal if reciprocal > 0.0 else np.inf
        return np.asfortranarray(P / length[:, None]), condition


def _triangle(Z: Array) -> Array:
    """R of Z = Q R, in Fortran order; Z is overwritten."""
    work, _ = lapack.dgeqrf_lwork(*Z.shape)
    reduced, _, _, _ = lapack.dgeqrf(Z, lwork=max(1, int(work)), overwrite_a=1)
    rows = min(Z.shape)
    return np.asfortranarray(np.triu(reduced[:rows]))


def _pseudo_inverse(R: Array) -> Array:
    """P with P Pᵀ the pseudo-inverse of RᵀR, for columns of length 1."""
    _, sigma, W = np.linalg.svd(R)
    kept = sigma > len(R) * EPS * sigma.max(initial=0.0)
    P: Array = W[kept].T / sigma[kept]
    return P
