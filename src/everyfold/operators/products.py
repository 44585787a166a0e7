"""Products of matrices in either order of memory."""

from __future__ import annotations

from scipy.linalg import blas

from everyfold.types import Array


def product(A: Array, B: Array) -> Array:
    """A B through the BLAS that also factorises, without a copy of ``A`` in C or Fortran order."""
    right, trans = (B, 0) if B.flags.f_contiguous else (B.T, 1)
    AB: Array
    if A.flags.f_contiguous and not A.flags.c_contiguous:
        AB = blas.dgemm(1.0, A, right, trans_b=trans)
    else:
        AB = blas.dgemm(1.0, A.T, right, trans_a=1, trans_b=trans)
    return AB
