"""Functions of BLAS and LAPACK by their address, in the library that SciPy's own calls use.

SciPy's wrappers keep all other threads of Python waiting, copy every part of a matrix that is not
contiguous, and leave out some functions. The functions themselves do none of that.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_void_p
from functools import cache
from types import ModuleType

from scipy.linalg import cython_blas, cython_lapack

_PRECISIONS = {"s": ("float *", c_float), "d": ("double *", c_double)}
"""What numbers are, by the first letter of a function."""

_ARGUMENTS = {
    "syrk": "word word whole whole number matrix whole number matrix whole",
    "syr2k": "word word whole whole number matrix whole matrix whole number matrix whole",
    "latrd": "word whole whole matrix whole matrix matrix matrix whole",
}
"""Of each function: words, whole numbers and single numbers, and addresses of arrays."""


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
