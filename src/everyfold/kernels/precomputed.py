"""Checks of kernel matrices that users bring.

A matrix must be square, finite and symmetric up to rounding; it is made exactly symmetric.
"""

from __future__ import annotations

import math

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.kernels.pairwise import dense, row_blocks

# Largest asymmetry of a kernel matrix, relative to its largest entry, that passes for rounding.
SYMMETRY_TOLERANCE = 1e-8

# The same, relative to the largest entry of a matrix that K is a difference from.
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)


def check_precomputed(K: Matrix, before: float = 0.0) -> Array:
    """A kernel matrix given by the user, checked and exactly symmetric.

    Parameters
    ----------
    K : {ndarray, CSR} of shape (n, n)
        Kernel matrix of the training rows.
    before : float, default=0.0
        The largest entry of the matrix that K was made from, if it was, as by a ``KernelCenterer``:
        of one that is nearly constant little is left besides rounding, which may be asymmetric.

    Returns
    -------
    ndarray of shape (n, n)
        K itself where it is exactly symmetric and float64 already, else (K + Kᵀ)/2.

    Raises
    ------
    ValueError
        If K is not square, not finite, or asymmetric by more than 1e-8 of its largest entry and
        by more than what rounding leaves of ``before``.

    Notes
    -----
    Negative eigenvalues are not searched for here. Cost: O(n²) time, no further n × n memory where
    nothing is to be averaged.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import check_precomputed
    >>> check_precomputed(np.array([[1.0, 2.0], [0.0, 1.0]]))
    Traceback (most recent call last):
    ValueError: X with kernel='precomputed' is not symmetric: ...
    """
    owner = "X with kernel='precomputed'"
    K = np.asarray(dense(K), dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or K.size == 0:
        raise ValueError(
            f"{owner} must be the square matrix of all pairs of training rows, got shape "
            f"{K.shape}; pass k(X, X), or choose a kernel by name to pass features."
        )
    return symmetrised(K, owner, before)


def largest_entry(K: Matrix) -> float:
    """The largest absolute value of a kernel matrix that a user may have given in any container."""
    return _largest(np.asarray(dense(K), dtype=np.float64))


def noise_of(K: Array) -> float:
    """The asymmetry of K relative to its largest entry, where it is more than passes for rounding.

    So much is not known of its entries: who reads one triangle has other ones than who averages.
    """
    asymmetry, largest = _asymmetry(K), _largest(K)
    return asymmetry / largest if asymmetry > SYMMETRY_TOLERANCE * largest else 0.0


def finite(K: Array, owner: str) -> Array:
    """K itself; refused if an entry is not finite."""
    if K.size and not math.isfinite(_largest(K)):
        raise ValueError(
            f"{owner} has entries that are NaN or infinite; check the features it was computed "
            "from, and that it does not overflow on them."
        )
    return K


def symmetrised(K: Array, owner: str, before: float = 0.0) -> Array:
    """K made exactly symmetric; refused if it is far from that."""
    finite(K, owner)
    asymmetry = _asymmetry(K)
    if asymmetry == 0.0:
        return K
    if asymmetry > max(SYMMETRY_TOLERANCE * _largest(K), _ROUNDING * before):
        raise ValueError(
            f"{owner} is not symmetric: the largest |K[i, j] - K[j, i]| is {asymmetry:.3g}, with "
            f"entries up to {_largest(K):.3g}. A kernel needs k(x, x') = k(x', x); if the "
            "difference is meant to be ignored, pass (K + K.T) / 2."
        )
    return 0.5 * K + 0.5 * K.T


def _asymmetry(K: Array) -> float:
    blocks = (K[rows, rows.start :] - K[rows.start :, rows].T for rows in row_blocks(K))
    return max((float(np.abs(block).max()) for block in blocks), default=0.0)


def _largest(K: Array) -> float:
    # Extremes instead of an n × n array of absolute values; NaN shows in both.
    return max(float(K.max()), -float(K.min())) if K.size else 0.0
