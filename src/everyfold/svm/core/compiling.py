"""How the solver is compiled: options of numba, and numbers whose type must not be guessed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from everyfold.operators.compiled import Entry, stamp_of

_Function = TypeVar("_Function", bound=Callable[..., Any])

# For readers only: numba finds the types itself, from those that the one caller of an entry passes.
Array = Any  # of NumPy; an argument of an entry
Pointer = Any  # to some numbers of an array
Float32 = Any

ZERO, HALF, ONE, TWO = (cast(Float32, np.float32(number)) for number in (0.0, 0.5, 1.0, 2.0))
LOWEST, HIGHEST = cast(Float32, np.float32(-np.inf)), cast(Float32, np.float32(np.inf))
NONE = cast(int, np.int64(0))  # for a literal 0 functions would be compiled once more
whole = cast(Callable[[Any], int], np.int64)  # as int, which would be compiled, too

# No reassociation: a score must round the same in the pass that finds the maximum and in the one
# that looks for its place. Infinities are data here, so "ninf" is left out too.
_FLAGS = {"nnan", "nsz", "contract", "arcp"}
_OPTIONS = {"nogil": True, "fastmath": _FLAGS, "error_model": "numpy"}
_STAMP = stamp_of(resources.files(__package__))

_njit: Any = njit  # numba's stubs leave out the options that drop wrappers


def entry(function: _Function) -> _Function:
    """Compile on first call from Python, to the disk cache where there is a place for one."""
    return cast(_Function, Entry(function, {**_OPTIONS, "no_cfunc_wrapper": True}, _STAMP))


def compiled(function: _Function) -> _Function:
    """Compile as a part of an entry; wrappers for Python would double the compile time.

    There are no expressions of whole arrays, which numba would look for to rewrite them.
    """
    without = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "no_rewrites": True}
    return cast(_Function, _njit(**without, **_OPTIONS)(function))


def merged(function: _Function) -> _Function:
    """Compile as lines of the function that calls it, the only one, or one of few."""
    return cast(_Function, _njit(inline="always", **_OPTIONS)(function))
