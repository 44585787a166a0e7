"""Products of matrices in either order of memory, and sums of them that free other threads."""

from __future__ import annotations

from ctypes import c_double, c_int

from scipy.linalg import blas

from everyfold.operators.addresses import by_address
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


def add_gram(V: Array, gram: Array) -> Array:
    """The lower triangle of ``gram`` + Vᵀ V, c² flops a row; ``gram``, in Fortran order, is lost.

    SciPy's own call of BLAS keeps all other threads of Python waiting; the same function by its
    address does not.
    """
    found = by_address("dsyrk")
    (m, c), step = V.shape, V.itemsize
    if found is None or V.strides[1] != step or not gram.flags.f_contiguous:
        summed: Array = blas.dsyrk(1.0, V.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        return summed
    one, stride = c_double(1.0), c_int(max(c, V.strides[0] // step))
    sizes = c_int(c), c_int(m)
    found(b"L", b"N", *sizes, one, V.ctypes.data, stride, one, gram.ctypes.data, sizes[0])
    return gram
