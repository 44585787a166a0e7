"""Compiled: gather blocks of a matrix, factorise them, solve. Imported only where numba is.

Gathering by NumPy's fancy indexing costs more than LAPACK's Cholesky of the block that it makes,
and neither can be shared out over threads from Python. Here both happen in one place in cache,
without the interpreter's lock.

A block is kept in *panels* of ``LANES`` rows, one vector register high: entry (i, k) of the block
is lane i % LANES of the k-th vector of panel i // LANES. All arithmetic on panels then is one kind
of step, a vector less a multiple of another, without sums across lanes. Compilers do not find this
form by themselves, so the inner loops are written down as vector instructions.

**Cost** m³/3 flops a block of m rows at two thirds of the processor's peak, and a gather bound by
the transfer of the lines of G that the block touches.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from everyfold.operators.compiled import Entry
from everyfold.operators.threads import thread_budget

_Array = Any
_Function = TypeVar("_Function", bound=Callable[..., Any])
_njit: Any = njit
_intrinsic: Any = intrinsic
_make_array: Any = arrayobj.make_array
_function_named: Any = cgutils.get_or_insert_function
_OPTIONS = {"nogil": True, "fastmath": True, "error_model": "numpy"}

LANES = 8 if binding.get_host_cpu_features().get("avx512f") else 4
"""Numbers in a vector register, and rows in a panel."""

AHEAD = 32
"""How many columns before their use a gather asks for numbers that are not in cache."""

TALL = 3
"""Panels handled together: 3 × LANES sums fit the registers, fewer would wait for one another."""


def _compiled(function: _Function) -> _Function:
    """Compile as a part of the entry below."""
    return cast(_Function, _njit(**_OPTIONS)(function))


def _written(function: Callable[..., Any]) -> Any:
    """Let a function give the instructions that stand for a call of it."""
    return _intrinsic(function)


# -- vector instructions --------------------------------------------------------------------------

_INT, _FLOAT = ir.IntType(64), ir.DoubleType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_SHORT = ir.IntType(32)


class _Writer:
    """Writes vector instructions; addresses are counted in numbers from the start of an array."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context = context
        self.builder = builder

    def start(self, kind: Any, array: Any) -> Any:
        """The address of an array's first number."""
        return _make_array(kind)(self.context, self.builder, array).data

    def after(self, address: Any, vectors: Any, lanes: int = 0) -> Any:
        """An address so many vectors and lanes further on."""
        b = self.builder
        step = b.add(b.mul(vectors, _INT(LANES)), _INT(lanes))
        return b.gep(address, [step])

    def load(self, address: Any) -> Any:
        """The vector at an address."""
        where = self.builder.bitcast(address, _VECTOR.as_pointer())
        return self.builder.load(where, align=8)

    def store(self, vector: Any, address: Any) -> None:
        """Put a vector at an address."""
        where = self.builder.bitcast(address, _VECTOR.as_pointer())
        self.builder.store(vector, where, align=8)

    def spread(self, number: Any) -> Any:
        """A vector of equal numbers."""
        b, nothing = self.builder, ir.Constant(_VECTOR, ir.Undefined)
        first = ir.Constant(ir.VectorType(_SHORT, LANES), None)
        return b.shuffle_vector(b.insert_element(nothing, number, _SHORT(0)), nothing, first)

    def less(self, c: Any, a: Any, b: Any) -> Any:
        """The vector c - a b."""
        flags = ("contract",)
        return self.builder.fsub(c, self.builder.fmul(a, b, flags=flags), flags=flags)

    def call(self, name: str, result: Any, *values: Any, flags: tuple[str, ...] = ()) -> Any:
        """One of LLVM's own functions."""
        kind = ir.FunctionType(result, [value.type for value in values])
        function = _function_named(self.builder.module, kind, name)
        return self.builder.call(function, values, fastmath=flags)


def _tile_of(height: int, solve: bool) -> Any:
    """Write ``tile(A, row, stride, column, first, last, at)``.

    On ``height`` panels, at ``row`` and every ``stride`` numbers further on: subtract from the
    columns at, at + 1, … the products with the rows of the panel at ``column``, summed over the
    columns k of [first, last). If ``solve``, divide by the factor of that panel's diagonal block.
    """

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        w = _Writer(context, b)
        data = w.start(signature.args[0], values[0])
        row, stride, column, first, last, at = values[1:]
        panels = [b.gep(data, [b.add(row, b.mul(stride, _INT(r)))]) for r in range(height)]
        source = b.gep(data, [column])
        places = [w.after(panel, at, LANES * c) for panel in panels for c in range(LANES)]
        old = [w.load(place) for place in places]
        before, loop, after = b.block, b.append_basic_block(), b.append_basic_block()
        b.cbranch(b.icmp_signed("<", first, last), loop, after)

        b.position_at_end(loop)
        k, sums = b.phi(_INT), [b.phi(_VECTOR) for _ in old]
        own, new = [w.load(w.after(panel, k)) for panel in panels], list(sums)
        for c in range(LANES):  # one factor at a time: there is no register for a second
            factor = w.spread(b.load(w.after(source, k, c)))
            for r in range(height):
                i = r * LANES + c
                new[i] = w.less(sums[i], own[r], factor)
        following = b.add(k, _INT(1))
        b.cbranch(b.icmp_signed("<", following, last), loop, after)
        for phi, start, again in zip([k, *sums], [first, *old], [following, *new], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)

        b.position_at_end(after)
        x = [b.phi(_VECTOR) for _ in old]
        for phi, start, again in zip(x, old, new, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        for c in range(LANES if solve else 0):
            for d in range(c + 1):
                factor = w.spread(b.load(w.after(source, b.add(at, _INT(d)), c)))
                for i in range(0, len(x), LANES):
                    if d < c:
                        x[i + c] = w.less(x[i + c], x[i + d], factor)
                    else:  # pivots are kept as their reciprocals
                        x[i + c] = b.fmul(x[i + c], factor)
        for vector, place in zip(x, places, strict=True):
            w.store(vector, place)
        return context.get_dummy_value()

    @_written
    def tile(
        _: Any, A: Any, row: Any, stride: Any, column: Any, first: Any, last: Any, at: Any
    ) -> Any:
        return types.void(A, *[types.intp] * 6), generate

    return tile


@_written
def _corner(_: Any, A: Any, place: Any) -> Any:
    """Factorise the block of LANES rows and columns; the pivots become their reciprocals."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        w = _Writer(context, b)
        start = b.gep(w.start(signature.args[0], values[0]), [values[1]])
        columns = [w.load(w.after(start, _INT(c))) for c in range(LANES)]
        is_definite = ir.IntType(1)(1)
        for c in range(LANES):
            pivot = b.extract_element(columns[c], _SHORT(c))
            is_definite = b.and_(is_definite, b.fcmp_ordered(">", pivot, _FLOAT(0.0)))
            reciprocal = b.fdiv(_FLOAT(1.0), w.call("llvm.sqrt.f64", _FLOAT, pivot))
            column = b.fmul(columns[c], w.spread(reciprocal))
            for d in range(c + 1, LANES):
                factor = w.spread(b.extract_element(column, _SHORT(d)))
                columns[d] = w.less(columns[d], column, factor)
            w.store(b.insert_element(column, reciprocal, _SHORT(c)), w.after(start, _INT(c)))
        return is_definite

    return types.boolean(A, types.intp), generate


@_written
def _carry_back(_: Any, A: Any, panel: Any, size: Any, x: Any) -> Any:
    """Subtract from x[:size] the products of a panel with its own x, which follow."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        w = _Writer(context, b)
        start = b.gep(w.start(signature.args[0], values[0]), [values[1]])
        x = w.start(signature.args[3], values[3])
        own = w.load(b.gep(x, [values[2]]))
        add = f"llvm.vector.reduce.fadd.v{LANES}f64"
        with cgutils.for_range(b, values[2]) as loop:
            products = b.fmul(w.load(w.after(start, loop.index)), own)
            total = w.call(add, _FLOAT, _FLOAT(0.0), products, flags=("reassoc",))
            place = b.gep(x, [loop.index])
            b.store(b.fsub(b.load(place), total), place)
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp, x), generate


@_written
def _ask_for(_: Any, G: Any, place: Any) -> Any:
    """Start to bring a number of G into the cache."""

    def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
        w = _Writer(context, b)
        start = b.gep(w.start(signature.args[0], values[0]), [values[1]])
        address = b.bitcast(start, ir.IntType(8).as_pointer())
        read, near, data = _SHORT(0), _SHORT(3), _SHORT(1)
        w.call("llvm.prefetch.p0", ir.VoidType(), address, read, near, data)
        return context.get_dummy_value()

    return types.void(G, types.intp), generate


_subtract_one, _solve_one = _tile_of(1, False), _tile_of(1, True)
_subtract_tall, _solve_tall = _tile_of(TALL, False), _tile_of(TALL, True)

# -- blocks ---------------------------------------------------------------------------------------


@_compiled
def _gather(G: _Array, h: _Array, rows: _Array, start: int, A: _Array) -> None:
    """Rows start, start + 1, … of (G - h hᵀ)_SS as a panel, padded by the identity."""
    m, n = len(rows), len(h)
    end = min(start + LANES, m)
    begin, own = np.empty(LANES, np.intp), np.empty(LANES)
    for r in range(LANES):
        i = rows[min(start + r, m - 1)]
        begin[r], own[r] = i * n, h[i]
    for k in range(end):
        column, h_k = rows[k], h[rows[k]]
        if k + AHEAD < end:
            for r in range(LANES):
                _ask_for(G, begin[r] + rows[k + AHEAD])
        for r in range(LANES):
            A[k * LANES + r] = G[begin[r] + column] - own[r] * h_k
    for k in range(start + LANES):
        for r in range(0 if k >= end else end - start, LANES):
            A[k * LANES + r] = 1.0 if start + r == k else 0.0


@_compiled
def _append(B: _Array, start: int, A: _Array) -> None:
    """Columns start, start + 1, … of B as the rows of a panel, padded by zeros."""
    m, q = B.shape
    for k in range(len(A) // LANES):
        for r in range(LANES):
            A[k * LANES + r] = B[k, start + r] if k < m and start + r < q else 0.0


@_compiled
def _reduce(A: _Array, stride: int, p: int, n_square: int) -> None:
    """Take TALL panels from p on through the columns that are factorised already.

    Entries above the diagonal are computed as well, and not used.
    """
    for j in range(min(p + TALL, n_square)):
        if j < p:
            _solve_tall(A, p * stride, stride, j * stride, 0, j * LANES, j * LANES)
        else:
            _subtract_tall(A, p * stride, stride, j * stride, 0, p * LANES, j * LANES)


@_compiled
def _finish(A: _Array, stride: int, p: int, end: int, n_square: int) -> bool:
    """Factorise the columns of panels p to end; False if they are not positive definite."""
    is_definite = True
    for j in range(p, min(end, n_square)):
        at = j * LANES
        _subtract_one(A, j * stride, 0, j * stride, p * LANES, at, at)
        is_definite &= _corner(A, j * stride + at * LANES)
        for i in range(j + 1, end):
            _solve_one(A, i * stride, 0, j * stride, p * LANES, at, at)
    return is_definite


@_compiled
def _substitute(A: _Array, stride: int, y: _Array, x: _Array) -> None:
    """Solve Lᵀ x = y, where y is a lane of a panel below L."""
    for k in range(len(x)):
        x[k] = y[k * LANES]
    for start in range(len(x) - LANES, -1, -LANES):
        panel = start // LANES * stride
        for c in range(LANES - 1, -1, -1):
            column = panel + (start + c) * LANES
            s = x[start + c]
            for r in range(c + 1, LANES):
                s -= A[column + r] * x[start + r]
            x[start + c] = s * A[column + c]
        _carry_back(A, panel, start, x)


def _solve_gathered(G: _Array, h: _Array, rows: _Array, B: _Array, out: _Array) -> None:
    """Solve (G - h hᵀ)_SS x = B for every set S in ``rows``; NaN where it is not definite.

    Every S ascends, so that the lower triangle of G is enough. The columns of B are further rows
    of the block: factorising it takes them through the forward substitution.
    """
    t, m = rows.shape
    q = B.shape[2]
    G_flat = G.reshape(-1)
    n_square = (m + LANES - 1) // LANES
    n_panels = n_square + (q + LANES - 1) // LANES
    stride = n_square * LANES * LANES
    A, x = np.zeros(n_panels * stride), np.empty(n_square * LANES)
    for f in range(t):
        is_definite = True
        p, end = 0, (n_panels - 1) % TALL + 1
        while p < n_panels:
            for i in range(p, end):
                panel = A[i * stride : (i + 1) * stride]
                if i < n_square:
                    _gather(G_flat, h, rows[f], i * LANES, panel)
                else:
                    _append(B[f], (i - n_square) * LANES, panel)
            if p > 0:
                _reduce(A, stride, p, n_square)
            is_definite &= _finish(A, stride, p, end, n_square)
            p, end = end, end + TALL
        for c in range(q):
            y = A[(n_square + c // LANES) * stride + c % LANES :]
            _substitute(A, stride, y, x)
            for i in range(m):
                out[f, i, c] = x[i] if is_definite else np.nan


solve_gathered = Entry(_solve_gathered, _OPTIONS)


_PIECE = 16
"""Sets that a thread solves at a time: few, so that an interrupt is noticed while they run."""


def solve_sets(G: _Array, h: _Array, rows: _Array, B: _Array) -> Any:
    """Solve (G - h hᵀ)_SS x = B for t sets of m rows in any order, shared out over threads.

    Of G, C-ordered, the lower triangle is read. NaN stands where a block is not positive definite.
    """
    if np.any(rows[:, 1:] < rows[:, :-1]):
        order = np.argsort(rows, axis=1)
        rows, B = np.take_along_axis(rows, order, 1), np.take_along_axis(B, order[:, :, None], 1)
        solved = np.empty(B.shape)
        np.put_along_axis(solved, order[:, :, None], solve_sets(G, h, rows, B), 1)
        return solved
    h, rows, B = (np.ascontiguousarray(array) for array in (h, rows, B))
    out = np.empty(B.shape)
    pieces = [slice(i, i + _PIECE) for i in range(0, len(rows), _PIECE)]
    with ThreadPoolExecutor(thread_budget()) as pool:
        list(pool.map(lambda part: solve_gathered(G, h, rows[part], B[part], out[part]), pieces))
    return out
