"""How the solver is compiled: options of numba, and numbers whose type must not be guessed.

Compiling takes a quarter of a minute, once; every choice here keeps that short, or the compiled
loops fast.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from everyfold.linalg.jit import Entry, stamp_of

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

    There are no expressions of whole arrays, which numba would search to rewrite them.
    """
    without = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "no_rewrites": True}
    return cast(_Function, _njit(**without, **_OPTIONS)(function))


def merged(function: _Function) -> _Function:
    """Compile as lines of the function that calls it, the only one, or one of few."""
    return cast(_Function, _njit(inline="always", **_OPTIONS)(function))


# -- What compiled code needs of LLVM and numba does not offer ------------------------------------


_Array = Any
_Pointer: Any = types.CPointer  # numba's stubs leave it without types


def _vector_intrinsic(name: str) -> Callable[[_Array, _Array], _Array]:
    """LLVM's own min or max: numba's builtins compile to selects that no reduction recognises."""

    def typed(typingctx: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = args[0].type
            function_type = ir.FunctionType(kind, [kind, kind])
            function = builder.module.declare_intrinsic(name, [kind], function_type)
            return builder.call(function, args, fastmath=("nnan", "nsz"))

        return a(a, a), generate

    return cast(Callable[[_Array, _Array], _Array], intrinsic(typed))


def _callback(
    typingctx: Any,
    address: Any,
    K: Any,
    n: Any,
    width: Any,
    W: Any,
    stride: Any,
    V: Any,
    steps: Any,
) -> tuple[Any, Callable[..., Any]]:
    """A call of the function at an address; see :class:`everyfold.svm.joint_steps.JointSteps`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.IntType(64)
        numbers = [
            builder.ptrtoint(arg, kind) if isinstance(arg.type, ir.PointerType) else arg
            for arg in args[1:]
        ]
        function = ir.FunctionType(kind, [kind] * len(numbers)).as_pointer()
        return builder.call(builder.inttoptr(args[0], function), numbers)

    return types.int64(address, K, n, width, W, stride, V, steps), generate


def _pointer(typingctx: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """A pointer to the first number of a contiguous array.

    Arrays are counted by who holds them, and know shapes and steps; code that passes them on is
    several times as long, and takes so much longer to compile.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return _Pointer(array.dtype)(array), generate


def _onward(typingctx: Any, pointer: Any, count: Any) -> tuple[Any, Callable[..., Any]]:
    """The pointer that many numbers further on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), generate


ask = cast(Callable[..., int], intrinsic(_callback))
onward = cast(Callable[[_Array, int], _Array], intrinsic(_onward))
pointer = cast(Callable[[_Array], _Array], intrinsic(_pointer))
maximum = _vector_intrinsic("llvm.maxnum")
minimum = _vector_intrinsic("llvm.minnum")
