"""What compiled code needs of LLVM and numba does not offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

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
    """A call of the function at an address; see :class:`everyfold.svm.leaps.Leaps`."""

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
