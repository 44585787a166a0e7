"""What compiled code needs of LLVM and numba does not offer; imported only with the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_Array = Any


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
    typingctx: Any, address: Any, K: Any, W: Any, V: Any, steps: Any
) -> tuple[Any, Callable[..., Any]]:
    """A call of the function at an address; see :class:`everyfold.svm.leaps.Leaps`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, numbers = ir.IntType(64), []
        for k in (1, 2, 3):
            array = context.make_array(signature.args[k])(context, builder, args[k])
            shape = [builder.extract_value(array.shape, axis) for axis in (0, 1)]
            numbers += [builder.ptrtoint(array.data, kind), *shape]
        numbers.append(args[4])
        function = ir.FunctionType(kind, [kind] * len(numbers)).as_pointer()
        return builder.call(builder.inttoptr(args[0], function), numbers)

    return types.int64(address, K, W, V, steps), generate


ask = cast(Callable[..., int], intrinsic(_callback))
maximum = _vector_intrinsic("llvm.maxnum")
minimum = _vector_intrinsic("llvm.minnum")
