"""Products of matrices in either order of memory, and sums of them that free other threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_void_p
from functools import cache

from scipy.linalg import blas, cython_blas

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
    found = _dsyrk()
    (m, c), step = V.shape, V.itemsize
    if found is None or V.strides[1] != step or not gram.flags.f_contiguous:
        summed: Array = blas.dsyrk(1.0, V.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        return summed
    one, stride = c_double(1.0), c_int(max(c, V.strides[0] // step))
    sizes = c_int(c), c_int(m)
    found(b"L", b"N", *sizes, one, V.ctypes.data, stride, one, gram.ctypes.data, sizes[0])
    return gram


@cache
def _dsyrk() -> Callable[..., None] | None:
    """BLAS's function, of the library that factorises; None if its arguments are others."""
    capsule = cython_blas.__pyx_capi__["dsyrk"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = c_char_p, [ctypes.py_object]
    words = name(capsule)
    if not words.startswith(b"void (char *, char *, int *, int *, "):
        return None
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    whole, number = POINTER(c_int), POINTER(c_double)
    matrix = c_void_p, whole
    kind = ctypes.CFUNCTYPE(
        None, c_char_p, c_char_p, whole, whole, number, *matrix, number, *matrix
    )
    return kind(address(capsule, words))
