"""Functions of BLAS and LAPACK by their address, in the library that SciPy's own calls use.

SciPy's wrappers keep all other threads of Python waiting, copy every part of a matrix that is not
contiguous, and leave out some functions. The functions themselves do none of that.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_void_p
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import blas, cython_blas, cython_lapack
from threadpoolctl import ThreadpoolController

from everyfold._typing import AnyArray, Array

# What numbers are, by the first letter of a function.
_PRECISIONS = {"s": ("float *", c_float), "d": ("double *", c_double)}

# Of each function: words, whole numbers and single numbers, and addresses of arrays.
_ARGUMENTS = {
    "syrk": "word word whole whole number matrix whole number matrix whole",
    "syr2k": "word word whole whole number matrix whole matrix whole number matrix whole",
    "latrd": "word whole whole matrix whole matrix matrix matrix whole",
}


@cache
def by_address(name: str) -> Callable[..., None] | None:
    """A function of BLAS or LAPACK; None if this SciPy has it not, or with other arguments.

    Arrays are passed as addresses (``array.ctypes.data``), numbers as ``c_int``, and by the first
    letter of the name as ``c_double`` or ``c_float``.
    """
    kinds, (number, type_) = _ARGUMENTS[name[1:]].split(), _PRECISIONS[name[0]]
    words_of = {"word": "char *", "whole": "int *", "number": number, "matrix": number}
    types_of = {
        "word": c_char_p,
        "whole": POINTER(c_int),
        "number": POINTER(type_),
        "matrix": c_void_p,
    }
    capsule = _capsule(cython_blas, name) or _capsule(cython_lapack, name)
    if capsule is None:
        return None
    words = _name(capsule)
    if _plain(words) != f"void ({', '.join(words_of[kind] for kind in kinds)})":
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    types = [types_of[kind] for kind in kinds]
    made = ctypes.CFUNCTYPE(None, *types)  # type: ignore[arg-type]  # kinds of one base class
    return made(pointer(capsule, words))


def _capsule(module: ModuleType, name: str) -> object | None:
    found: object | None = module.__pyx_capi__.get(name)
    return found


def _name(capsule: object) -> bytes:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = c_char_p, [ctypes.py_object]
    words: bytes = name(capsule)
    return words


def _plain(words: bytes) -> str:
    """The arguments of a function, with Cython's names of numbers by their own."""
    plain = re.sub(r"__pyx_t_\w+_d \*", "double *", words.decode())
    return re.sub(r"__pyx_t_\w+_s \*", "float *", plain)


# -- Products of matrices in either order of memory, and sums of them that free other threads -----


def product(A: Array, B: Array) -> Array:
    """A B through the BLAS that also factorises, without a copy of ``A`` in C or Fortran order.

    In single precision if both are.
    """
    gemm: Any = blas.sgemm if A.dtype.char == B.dtype.char == "f" else blas.dgemm
    right, trans = (B, 0) if B.flags.f_contiguous else (B.T, 1)
    AB: Array
    if A.flags.f_contiguous and not A.flags.c_contiguous:
        AB = gemm(1.0, A, right, trans_b=trans)
    else:
        AB = gemm(1.0, A.T, right, trans_a=1, trans_b=trans)
    return AB


def dots(A: AnyArray, B: AnyArray) -> Array:
    """The inner products of the columns of A with those of B, in double precision."""
    found: Array = np.einsum("ij,ij->j", A, B).astype(np.float64, copy=False)
    return found


def add_gram(V: Array, gram: Array) -> Array:
    """The lower triangle of ``gram`` + Vᵀ V, c² flops a row; overwrites ``gram``, in Fortran order.

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


# -- How many BLAS threads a piece of work deserves -----------------------------------------------
# NumPy and SciPy ship separate OpenBLAS pools whose idle threads spin; below a few hundred rows
# the spinning costs far more than a second core gives. One place decides, everything else asks.


# Below this size one BLAS thread is faster than two (measured by ``benchmarks/constants.py``).
SINGLE_THREAD_ROWS = 600


@cache
def _controller() -> Any:
    # Listing the loaded libraries costs milliseconds; they do not change once SciPy is imported.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")


def thread_budget() -> int:
    """How many threads BLAS may use now: what other threaded work should keep to as well."""
    counts = (pool.get_num_threads() for pool in _controller().lib_controllers)
    return max((count for count in counts if count), default=1)


@contextmanager
def lone_blas(threads: int) -> Iterator[None]:
    """Limit BLAS to one thread in each of several threads of ours."""
    if threads < 2:
        yield
        return
    with _controller().limit(limits=1):
        yield


@contextmanager
def blas_threads(n_rows: int) -> Iterator[None]:
    """Limit BLAS to one thread while matrices of ``n_rows`` rows are at work, if they are small."""
    if n_rows >= SINGLE_THREAD_ROWS or thread_budget() == 1:
        yield
        return
    with _controller().limit(limits=1):
        yield
