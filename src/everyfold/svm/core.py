r"""Compiled core of :mod:`everyfold.svm.paths`; imported only when used, since numba is slow.

One problem covers hinge and :math:`\varepsilon`-insensitive loss, in signed coefficients,

.. math:: \min_\beta \tfrac12 \beta^\top K \beta - p^\top\beta + \varepsilon\|\beta\|_1,
          \quad \mathbf 1^\top\beta = 0, \quad C\,l \le \beta \le C\,h,

with :math:`p = y` always; the hinge has :math:`\varepsilon = 0` and :math:`l_i = 0` or
:math:`h_i = 0` by the sign of :math:`y_i`. ``G = K beta - p`` is the gradient without the
:math:`\varepsilon` term. A row may go up with score ``up - G`` and down with ``low - G``, where
``up`` and ``low`` hold :math:`\pm\varepsilon` by the side of zero the row would move on, or an
infinity where it may not move. The stopping quantity is ``max(up - G) - min(low - G)``; a row
held out has both infinities, so it never moves and its ``G + p + b`` is its held-out value.

Layout: float32 for what every iteration streams through, float64 for what accumulates; see
:class:`Rows`. All vectors are padded to the row length of K, which the caller makes a multiple of
the vector width, so that no loop has a scalar tail. The few rows of a direction stand together in
``D``, where loops over them become vectors, too. The rounding of the float32 gradient is bounded as
it grows, and the gradient computed anew in float64 before the bound could matter to the answer.

Short code compiles soon. Entries take arrays, so that types are checked, and at once go over to
pointers, which are shorter to handle; memory is made by the caller. numba optimises a function once
by itself and again within each that calls it. So the larger ones are merged into the entry that
calls them, and only those that have several callers, or a loop over rows, are compiled by
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit

from everyfold.operators.compiled import Entry
from everyfold.svm.intrinsics import ask as _ask
from everyfold.svm.intrinsics import first as _first
from everyfold.svm.intrinsics import maximum as _max
from everyfold.svm.intrinsics import minimum as _min
from everyfold.svm.intrinsics import onward as _onward
from everyfold.svm.workspace import (
    ACTIVE,
    DIRECTION,
    DOUBLES,
    FLOATS,
    LANES,
    PROBLEMS,
    SIZE,
    STAGGER,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Array = Any  # inside compiled code the types are numba's, fixed by the one caller

_SPEED, _AT, _START, _END, _ROW, _AHEAD = range(0, DIRECTION * SIZE, SIZE)
_BLOCK = 256  # rows a step when looking for the place of a maximum
_SLICE = 4096  # iterations between two looks at the stop flag
_MEMBERS = 16  # rows of a conjugate direction
_TAU = np.float32(1e-12)  # curvature of a pair with equal rows
_OWN_SIDE, _OTHER_SIDE = 0.2, 1.5  # violations that a value must exceed to keep its sign
_AT_BOUND = 1e-9  # of its box: what rounding may leave between a coefficient and its bound
_EPS32 = 6e-8
_LEAP = 256  # pair steps before the first leap
_DRIFT = 0.01  # of the tolerance: rounding of the gradient that is not worth computing it anew
_LOWEST = np.float32(-np.inf)
_HIGHEST = np.float32(np.inf)
_ZERO = np.float32(0.0)
_NONE = cast(int, np.int64(0))  # for a literal 0 functions would be compiled once more
_ALL, _ACTIVE, _KEPT = cast(tuple[int, int, int], tuple(np.arange(3)))  # places of vectors
_whole = cast(Callable[[_Array], int], np.int64)  # as int, which would be compiled, too
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)
_TWO = np.float32(2.0)

# No reassociation: a score must round the same in the pass that finds the maximum and in the one
# that looks for its place. Infinities are data here, so "ninf" is left out too.
_FLAGS = {"nnan", "nsz", "contract", "arcp"}


_njit: Any = njit  # numba's stubs leave out the options that drop wrappers
_OPTIONS = {"nogil": True, "fastmath": _FLAGS, "error_model": "numpy"}


def _entry(function: _Function) -> _Function:
    """Compile on first call, to the disk cache where there is a place for one."""
    return cast(_Function, Entry(function, {**_OPTIONS, "no_cfunc_wrapper": True}))


def _compiled(function: _Function) -> _Function:
    """Compile as a part of an entry; wrappers for Python would double the compile time.

    There are no expressions of whole arrays, which numba would look for to rewrite them.
    """
    without = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "no_rewrites": True}
    return cast(_Function, _njit(**without, **_OPTIONS)(function))


def _merged(function: _Function) -> _Function:
    """Compile as lines of the function that calls it, the only one, or one of few."""
    return cast(_Function, _njit(inline="always", **_OPTIONS)(function))


class Memory(NamedTuple):
    """Pointers into a :class:`everyfold.svm.workspace.Workspace`; see there."""

    widest: int
    floats: _Array
    doubles: _Array
    integers: _Array


class Rows(NamedTuple):
    """A problem: its rows' kernel K, linear term p and vectors, by pointers.

    ``g`` (the gradient), ``up``, ``low``, ``diag`` (the diagonal of K), ``gain``, ``null`` (zeros),
    ``Kp`` (K times the direction) and ``number`` (row numbers) are float32, ``stride`` numbers
    apart. ``beta``, ``lo``, ``hi``, ``exact`` (the gradient) and ``place`` (where a row stands in
    the direction D) are float64, ``width`` numbers apart. ``support`` and ``active`` are lists.
    """

    n: int
    width: int
    stride: int
    eps: float
    K: _Array
    p: _Array
    D: _Array
    support: _Array
    active: _Array
    g: _Array
    up: _Array
    low: _Array
    diag: _Array
    gain: _Array
    null: _Array
    Kp: _Array
    number: _Array
    beta: _Array
    lo: _Array
    hi: _Array
    exact: _Array
    place: _Array


@_compiled
def _blank(
    place: int, K: _Array, p: _Array, n: int, width: int, eps: float, memory: Memory
) -> Rows:
    """A problem without coefficients, whose rows cannot move yet; the padding never can."""
    stride = width + (STAGGER - width) % 1024  # as in :func:`everyfold.svm.workspace.apart`
    longest = memory.widest + (STAGGER - memory.widest) % 1024
    W = _onward(memory.floats, place * FLOATS * longest)
    V = _onward(memory.doubles, place * DOUBLES * memory.widest)
    up, low, number = _onward(W, stride), _onward(W, 2 * stride), _onward(W, 7 * stride)
    for k in range(FLOATS * stride):
        W[k] = _ZERO
    for k in range(DOUBLES * width):
        V[k] = 0.0
    for k in range(width):
        up[k] = _LOWEST
        low[k] = _HIGHEST
        number[k] = k
    return Rows(
        n,
        width,
        stride,
        eps,
        K,
        p,
        _onward(memory.doubles, PROBLEMS * DOUBLES * memory.widest),
        memory.integers,
        _onward(memory.integers, n + 3),
        W,
        up,
        low,
        _onward(W, 3 * stride),
        _onward(W, 4 * stride),
        _onward(W, 5 * stride),
        _onward(W, 6 * stride),
        number,
        V,
        _onward(V, width),
        _onward(V, 2 * width),
        _onward(V, 3 * width),
        _onward(V, 4 * width),
    )


@_compiled
def _prepare(s: Rows) -> float:
    """Fill the vectors of a problem without coefficients; return the largest of the diagonal."""
    largest = _ZERO
    for k in range(s.n):
        s.diag[k] = s.K[k * s.width + k]
        s.exact[k] = -s.p[k]
        largest = _max(largest, s.diag[k])
    for a in range(DIRECTION * SIZE):
        s.D[a] = 0.0
    return np.float64(largest)


@_compiled
def _move(s: Rows, i: int, j: int, theta: _Array, d: _Array) -> _Array:
    """Turn the direction, go d along it; return the highest up and the lowest low score."""
    g, up, low, Kp = s.g, s.up, s.low, s.Kp
    Ki = _onward(s.K, i * s.width)
    Kj = _onward(s.K, j * s.width)
    highest = _LOWEST
    lowest = _HIGHEST
    for k in range(s.width):
        turned = (Ki[k] - Kj[k]) + theta * Kp[k]
        value = g[k] + d * turned
        Kp[k] = turned
        g[k] = value
        highest = _max(highest, up[k] - value)
        lowest = _min(lowest, low[k] - value)
    return highest, lowest


@_compiled
def _gains(s: Rows, i: int, top: _Array) -> _Array:
    """Second-order gain of pairing row i with every row; return the largest."""
    g, low, diag, gain = s.g, s.low, s.diag, s.gain
    Ki = _onward(s.K, i * s.width)
    kii = diag[i]
    best = -_ONE
    for k in range(s.width):
        gap = _max(top - (low[k] - g[k]), _ZERO)
        curvature = _max(kii + diag[k] - _TWO * Ki[k], _TAU)
        value = gap * gap / curvature
        gain[k] = value
        best = _max(best, value)
    return best


@_compiled
def _place(n: int, a: _Array, b: _Array, number: _Array, value: _Array) -> int:
    """First k with a[k] - b[k] >= value, by blocks so that the search is vectorised."""
    for start in range(0, n, _BLOCK):
        end = start + _BLOCK if start + _BLOCK < n else n
        first = _HIGHEST
        for k in range(start, end):
            first = _min(first, number[k] if a[k] - b[k] >= value else _HIGHEST)
        if first < _HIGHEST:
            return _whole(first)
    return -1


@_compiled
def _open_sides(s: Rows, k: int) -> None:
    """Set the sides of row k from where its coefficient is in its box."""
    beta, eps = s.beta[k], s.eps
    if beta < 0.0:
        s.up[k] = eps
    elif beta < s.hi[k]:
        s.up[k] = -eps
    else:
        s.up[k] = _LOWEST
    if beta > 0.0:
        s.low[k] = -eps
    elif beta > s.lo[k]:
        s.low[k] = eps
    else:
        s.low[k] = _HIGHEST


@_compiled
def _enter(s: Rows, count: int, k: int, sign: float) -> int:
    """Add a unit of row k to the direction; return its number of rows.

    A row may have come to stand still, on a kernel of whole numbers: it does not enter twice.
    """
    D = s.D
    a = _whole(s.place[k])
    if a == 0:
        count += 1
        a = count
        s.place[k] = a
        D[_SPEED + a - 1] = 0.0
        D[_AT + a - 1] = s.beta[k]
        D[_START + a - 1] = s.lo[k]
        D[_END + a - 1] = s.hi[k]
        D[_ROW + a - 1] = k
    D[_SPEED + a - 1] += sign
    return count


@_compiled
def _turn(s: Rows, count: int, theta: float, i: int, j: int) -> _Array:
    """Make the direction e_i - e_j + theta times itself.

    Returns its number of rows, and how far it may be followed until one of them must stop.
    """
    D = s.D
    for a in range(SIZE):
        D[_SPEED + a] *= theta
    count = _enter(s, count, i, 1.0)
    count = _enter(s, count, j, -1.0)
    room = np.inf
    for a in range(SIZE):
        speed, at = D[_SPEED + a], D[_AT + a]
        # A row must stop at its bound, or at zero, where the slope of the one-norm changes.
        start, end = D[_START + a], D[_END + a]
        above = 0.0 if at < 0.0 else end
        below = 0.0 if at > 0.0 else start
        ahead = above if speed > 0.0 else below
        way = (ahead - at) / speed
        D[_AHEAD + a] = ahead
        room = _min(room, way if speed != 0.0 else np.inf)
    return count, room


@_compiled
def _go(D: _Array, d: float, is_blocked: bool) -> float:
    """Move the coefficients d along the direction; return the longest way of one of them."""
    longest = 0.0
    for a in range(SIZE):
        speed, at, ahead = D[_SPEED + a], D[_AT + a], D[_AHEAD + a]
        longest = _max(longest, abs(speed))
        at += d * speed
        # Bounds and zero are met exactly, whatever the rounding: sides are told by comparison.
        is_there = abs(at - ahead) <= 1e-14 * (D[_END + a] - D[_START + a])
        D[_AT + a] = ahead if is_blocked and is_there else at
    return d * longest


@_compiled
def _forget(s: Rows, count: int) -> None:
    """End the direction: write its coefficients back."""
    D = s.D
    for a in range(count):
        k = _whole(D[_ROW + a])
        s.beta[k] = D[_AT + a]
        s.place[k] = 0.0
    for a in range(SIZE):
        D[_SPEED + a] = 0.0
        D[_AT + a] = 0.0


@_compiled
def _open_moved(s: Rows, k: int) -> None:
    """Set the sides of a row that has entered the direction and moved."""
    s.beta[k] = s.D[_AT + _whole(s.place[k]) - 1]
    _open_sides(s, k)


@_merged
def _descend(s: Rows, tol: float, budget: int) -> _Array:
    """SMO with second-order selection and conjugate directions.

    A step along e_i - e_j mostly undoes part of the last one where the kernel is ill-conditioned.
    Made conjugate to it, and through it to those before, it does not; that costs one more vector
    in the pass over the gradient. The direction starts anew when a bound stops it or when it has
    too many rows to follow cheaply. Returns iterations, violation and the way gone.
    """
    count, iterations = _NONE, 0
    travel, violation = 0.0, 0.0
    i, j, curvature, theta, d = _NONE, _NONE, 1.0, 0.0, 0.0
    while True:
        top, bottom = _move(s, i, j, np.float32(theta), np.float32(d))
        violation = np.float64(top - bottom)
        if not violation > tol or iterations >= budget:
            break
        i = _place(s.width, s.up, s.g, s.number, top)
        best = _gains(s, i, top)
        j = _place(s.width, s.gain, s.null, s.number, best)
        if i < 0 or j < 0:  # only a kernel with NaN comes here
            violation, iterations = np.inf, budget
            break
        slope = np.float64(top - (s.low[j] - s.g[j]))
        alone = np.float64(s.diag[i]) + s.diag[j] - 2.0 * s.K[i * s.width + j]
        alone = _max(alone, 1e-12)
        coupling = np.float64(s.Kp[i]) - s.Kp[j]
        theta = -coupling / curvature
        curvature = alone + theta * coupling
        room = 0.0
        # Almost conjugate already: a plain step is as good, and breeds no subnormal numbers.
        is_conjugate = abs(theta) > 1e-3 and curvature > 0.01 * alone and 0 < count <= _MEMBERS
        if is_conjugate:
            count, room = _turn(s, count, theta, i, j)
            d = _min(slope / curvature, room)
            is_conjugate = d > 0.5 * slope / alone
        if not is_conjugate:
            theta, curvature = 0.0, alone
            _forget(s, count)
            count, room = _turn(s, _NONE, 0.0, i, j)
            d = _min(slope / curvature, room)
        is_blocked = d == room
        travel += _go(s.D, d, is_blocked)
        if is_blocked:
            _forget(s, count)
            for a in range(count):
                _open_sides(s, _whole(s.D[_ROW + a]))
            count = _NONE
        else:
            _open_moved(s, i)
            _open_moved(s, j)
        iterations += 1
    _forget(s, count)
    return iterations, violation, travel


@_compiled
def _gradient(s: Rows) -> int:
    """Compute K beta - p anew in float64, four support rows a pass; return their number."""
    beta, exact, support = s.beta, s.exact, s.support
    count = 0
    for k in range(s.n):
        exact[k] = -s.p[k]
        if beta[k] != 0.0:
            support[count] = k
            count += 1
    for k in range(3):  # zero weights fill the last pass
        support[count + k] = support[0] if count else 0
    for a in range(0, count, 4):
        i0, i1, i2, i3 = support[a], support[a + 1], support[a + 2], support[a + 3]
        b0 = beta[i0]
        b1 = beta[i1] if a + 1 < count else 0.0
        b2 = beta[i2] if a + 2 < count else 0.0
        b3 = beta[i3] if a + 3 < count else 0.0
        K0, K1 = _onward(s.K, i0 * s.width), _onward(s.K, i1 * s.width)
        K2, K3 = _onward(s.K, i2 * s.width), _onward(s.K, i3 * s.width)
        for k in range(s.width):
            exact[k] += (b0 * K0[k] + b1 * K1[k]) + (b2 * K2[k] + b3 * K3[k])
    return count


@_compiled
def _extremes(s: Rows) -> _Array:
    """Highest up and lowest low score of the float64 gradient."""
    up, low, exact = s.up, s.low, s.exact
    top, bottom = -np.inf, np.inf
    for k in range(s.width):
        top = _max(top, up[k] - exact[k])
        bottom = _min(bottom, low[k] - exact[k])
    return top, bottom


@_compiled
def _centre(s: Rows) -> _Array:
    """Round the gradient to float32 around the bias: what decides is then small and precise.

    Returns the shift, the violation in float64 and the largest magnitude.
    """
    top, bottom = _extremes(s)
    shift = 0.5 * (top + bottom) if top > -np.inf and bottom < np.inf else 0.0
    g, exact = s.g, s.exact
    size = _ZERO
    for k in range(s.width):
        g[k] = exact[k] + shift
        size = _max(size, abs(g[k]))
    return shift, top - bottom, np.float64(size)


@_compiled
def _active_rows(s: Rows) -> int:
    """List rows that are free or might still move; return their number."""
    g, up, low = s.g, s.up, s.low
    top, bottom = _LOWEST, _HIGHEST
    count = 0
    for k in range(s.n):
        top = _max(top, up[k] - g[k])
        bottom = _min(bottom, low[k] - g[k])
    for k in range(s.n):
        # An infinite side never passes, so held-out rows go, and bound rows by their other side.
        if (up[k] - g[k] >= bottom and up[k] > _LOWEST) or (
            low[k] - g[k] <= top and low[k] < _HIGHEST
        ):
            s.active[count] = k
            count += 1
    return count


@_compiled
def _take(s: Rows, small: Rows) -> None:
    """Copy the vectors of the active rows."""
    for a in range(small.n):
        k = s.active[a]
        small.g[a] = s.g[k]
        small.up[a] = s.up[k]
        small.low[a] = s.low[k]
        small.diag[a] = s.diag[k]
        small.beta[a] = s.beta[k]
        small.lo[a] = s.lo[k]
        small.hi[a] = s.hi[k]


@_compiled
def _submatrix(K: _Array, width: int, rows: _Array, count: int, small: _Array, narrow: int) -> None:
    """Copy the kernel of some rows into a padded, contiguous matrix."""
    for a in range(count):
        Ka, row = _onward(K, rows[a] * width), _onward(small, a * narrow)
        end = _onward(row, narrow - LANES)
        for c in range(LANES):  # the padding is among them; their number is the same for each row
            end[c] = _ZERO
        for c in range(count):
            row[c] = Ka[rows[c]]


@_compiled
def _return(s: Rows, small: Rows) -> None:
    """Write the coefficients of the active rows back."""
    for a in range(small.n):
        k = s.active[a]
        s.beta[k] = small.beta[a]
        _open_sides(s, k)


@_merged
def _solve(
    s: Rows,
    memory: Memory,
    room: _Array,
    scale: float,
    drift: float,
    tol: float,
    max_iter: int,
    patience: int,
    stop: _Array,
    leaps: int,
) -> _Array:
    """Solve one C from the coefficients and their gradient; keep both up to date.

    ``scale`` is the largest entry of the diagonal.
    Works on all rows first. A long run copies the kernel of the rows that can still move to
    ``room`` and goes on there; every convergence on that part is checked on all rows in float64. It
    asks for leaps if there is an address to ask at. Returns pair steps, violation, and a bound of
    the rounding of the gradient.
    """
    shift, violation, size = _centre(s)
    rounding = _EPS32 * size
    drift += rounding
    small = s
    is_full = True
    spent, since_refresh, since_shrink = 0, 0, 0
    support = s.n
    aim = tol
    since_leap, until_leap = 0, _LEAP
    while True:
        budget = max_iter - spent if max_iter - spent < _SLICE else _SLICE
        if leaps != 0 and budget > until_leap - since_leap:
            budget = until_leap - since_leap if until_leap > since_leap else 1
        if is_full and budget > patience - since_shrink:
            budget = patience - since_shrink if patience > since_shrink else 1
        done, violation, travel = _descend(small, aim, budget)
        spent += done
        since_refresh += done
        since_shrink += done
        since_leap += done
        drift += rounding * done + _EPS32 * scale * travel
        is_over = not violation > aim or spent >= max_iter or stop[0] != 0
        if is_full and is_over and drift <= _DRIFT * tol:
            _uncentre(s, shift)
            break
        if is_over or (drift > 0.25 * tol and since_refresh > support):
            if not is_full:
                _return(s, small)
            support = _gradient(s)
            shift, violation, size = _centre(s)
            drift = rounding
            if since_refresh == 0:  # float32 sees no violation where float64 does
                aim *= 0.5
            is_stuck = aim < 1e-3 * tol
            if not violation > tol or is_stuck or spent >= max_iter or stop[0] != 0:
                drift = 0.0
                break
            since_refresh = 0
            if is_over:
                small = s
                is_full = True
                since_shrink = 0
            elif not is_full:
                _take(s, small)
        elif is_full and since_shrink >= patience:
            since_shrink = 0
            patience = s.n
            count = _active_rows(s)
            if count < ACTIVE * s.n:
                width = (count + LANES - 1) // LANES * LANES
                _submatrix(s.K, s.width, s.active, count, room, width)
                small = _blank(_ACTIVE, room, s.p, count, width, s.eps, memory)
                _take(s, small)
                is_full = False
        elif leaps != 0 and since_leap >= until_leap:
            until_leap = _ask(
                leaps,
                small.K,
                small.n,
                small.width,
                small.g,
                small.stride,
                small.beta,
                since_leap,
            )
            if until_leap == 0:
                since_leap, until_leap = 0, _LEAP
                drift += rounding
                for k in range(small.n):
                    _open_sides(small, k)
    return spent, violation, drift


@_compiled
def _uncentre(s: Rows, shift: float) -> None:
    """Take over the gradient that the steps have kept up to date."""
    g, exact = s.g, s.exact
    for k in range(s.width):
        exact[k] = np.float64(g[k]) - shift


@_compiled
def _stretch(s: Rows, ratio: float) -> float:
    """Scale the coefficients, to start the next C; return the factor.

    By the ratio of the Cs, which keeps bounds, if most support vectors are there; otherwise by the
    best factor up to it. It is 0, and nothing is scaled, if no coefficient is at its outer bound:
    a larger C changes nothing then.
    """
    beta, exact, p = s.beta, s.exact, s.p
    slope, curvature, bound, free = 0.0, 0.0, 0, 0
    for k in range(s.n):
        slope += p[k] * beta[k] - s.eps * abs(beta[k])
        curvature += beta[k] * (exact[k] + p[k])
        if s.lo[k] < beta[k] < s.hi[k]:
            free += 1 if beta[k] != 0.0 else 0
        elif beta[k] != 0.0:
            bound += 1
    if bound == 0:
        return 0.0
    factor = ratio if bound > free else 1.0
    if factor == 1.0 and curvature > 0.0:
        factor = _min(_max(slope / curvature, 1.0), ratio)
    for k in range(s.n):
        beta[k] *= factor
        exact[k] = factor * (exact[k] + p[k]) - p[k]
    return factor


@_compiled
def _set_box(s: Rows, C: float, lower: _Array, upper: _Array) -> None:
    """Bounds of this C; coefficients within rounding of a bound are put on it."""
    for k in range(s.n):
        lo = C * lower[k]
        hi = C * upper[k]
        s.lo[k] = lo
        s.hi[k] = hi
        if hi > 0.0 and s.beta[k] >= hi * (1.0 - 1e-12):
            s.beta[k] = hi
        elif lo < 0.0 and s.beta[k] <= lo * (1.0 - 1e-12):
            s.beta[k] = lo
        _open_sides(s, k)


@_compiled
def _bias(s: Rows) -> _Array:
    """Mean over the free support vectors, else the middle of what the bounds allow."""
    total = 0.0
    free = 0
    for k in range(s.width):
        beta = s.beta[k]
        if beta != 0.0 and s.lo[k] < beta < s.hi[k]:
            total += s.up[k] - s.exact[k]
            free += 1
    if free:
        return total / free
    top, bottom = _extremes(s)
    return 0.5 * (top + bottom)


@_compiled
def _play(s: Rows) -> _Array:
    """How far the bias may move without leaving the minimum; not positive where it may not.

    A coefficient that only rounding keeps from its bound or from zero counts as being there.
    """
    top, bottom, eps = -np.inf, np.inf, s.eps
    for k in range(s.n):
        beta, lo, hi = s.beta[k], s.lo[k], s.hi[k]
        near = _AT_BOUND * (hi - lo)
        if beta < hi - near:
            top = _max(top, (eps if beta < -near else -eps) - s.exact[k])
        if beta > lo + near:
            bottom = _min(bottom, (-eps if beta > near else eps) - s.exact[k])
    return bottom - top


@_compiled
def _copy(source: _Array, target: _Array, count: int) -> None:
    for k in range(count):
        target[k] = source[k]


@_entry
def fold_paths(
    K: _Array,
    rows: _Array,
    starts: _Array,
    p: _Array,
    unit: _Array,
    Cs: _Array,
    eps: float,
    tol: float,
    max_iter: int,
    stop: _Array,
    start: _Array,
    decision: _Array,
    coef: _Array,
    summary: _Array,
    leaps: int,
    widest: int,
    floats: _Array,
    doubles: _Array,
    integers: _Array,
    kernel: _Array,
    active: _Array,
) -> None:
    """Go up the sorted Cs for some problems on one kernel, one after the other.

    Problem s has the entries from ``starts[s]`` to ``starts[s + 1]`` of ``rows``, its rows of the
    kernel, and of the last axis of all other arrays. Without any ``rows`` there is one, on all.
    ``unit`` holds the bounds l and h for C = 1. ``start``, ``decision`` and ``coef`` have a row for
    each C, or none: for starting from the former C, and for what is not asked for. ``summary`` has
    the columns intercept, iterations, violation, play of the intercept. ``leaps`` is the address of
    :class:`everyfold.svm.leaps.Leaps`. The last arguments are a workspace for rows of the kernel up
    to ``widest``.
    """
    memory = Memory(widest, _first(floats), _first(doubles), _first(integers))
    every, part, room, halt = _first(K), _first(kernel), _first(active), _first(stop)
    starting, held, kept, told = _first(start), _first(decision), _first(coef), _first(summary)
    begins, grid, labels, lower = _first(starts), _first(Cs), _first(p), _first(unit)
    n_sets, n_C, total = starts.shape[0] - 1, Cs.shape[0], p.shape[0]
    is_started, is_held, is_kept = start.shape[0] > 0, decision.shape[0] > 0, coef.shape[0] > 0
    for problem in range(n_sets):
        first = begins[problem]
        n = begins[problem + 1] - first
        own, width = every, K.shape[1]
        if rows.shape[0] > 0:
            own, width = part, -(-n // LANES) * LANES
            _submatrix(every, K.shape[1], _onward(_first(rows), first), n, own, width)
        s = _blank(_ALL, own, _onward(labels, first), n, width, eps, memory)
        scale = _prepare(s)
        drift, spent, violation, b, play = 0.0, 0, 0.0, 0.0, 0.0
        for c in range(n_C):
            at, factor = c * total + first, 1.0
            if is_started:
                _copy(_onward(starting, at), s.beta, n)
                drift = np.inf
            elif c > 0:
                factor = _stretch(s, grid[c] / grid[c - 1])
            if factor == 0.0:
                spent = 0
            else:
                drift *= factor
                _set_box(s, grid[c], _onward(lower, first), _onward(lower, total + first))
                if drift > _DRIFT * tol:  # a large factor has magnified the rounding
                    _gradient(s)
                    drift = 0.0
                patience = n if spent < n else n // 8
                spent, violation, drift = _solve(
                    s, memory, room, scale, drift, tol, max_iter, patience, halt, leaps
                )
                b, play = _bias(s), _play(s)
            if is_held:
                for k in range(n):
                    held[at + k] = s.exact[k] + s.p[k] + b
            if is_kept:
                _copy(s.beta, _onward(kept, at), n)
            report = _onward(told, 4 * (problem * n_C + c))
            report[0], report[1], report[2], report[3] = b, spent, violation, play
            if halt[0] != 0:
                return


@_entry
def gather(K: _Array, rows: _Array, small: _Array) -> None:
    """Copy the kernel of some rows into a padded matrix."""
    count, narrow = rows.shape[0], small.shape[1]
    _submatrix(_first(K), K.shape[1], _first(rows), count, _first(small), narrow)


@_entry
def smallest_magnitude(K: _Array) -> _Array:
    """The smallest nonzero magnitude in K, to tell whether :func:`flush` has anything to do."""
    lowest, entries = _HIGHEST, _first(K)
    for k in range(K.shape[0] * K.shape[1]):
        lowest = _min(lowest, abs(entries[k]) if entries[k] != _ZERO else _HIGHEST)
    return np.float64(lowest)


@_entry
def flush(K: _Array, tiny: float) -> None:
    """Set to zero what is below `tiny`: subnormal numbers cost ten times the arithmetic."""
    threshold, entries = np.float32(tiny), _first(K)
    for k in range(K.shape[0] * K.shape[1]):
        entries[k] = entries[k] if abs(entries[k]) >= threshold else _ZERO


@_compiled
def _costs(s: Rows, i: int, sign: float, end: _Array) -> _Array:
    """What it costs each row to take of row i's coefficient all it has room for; the least."""
    g, diag, cost, beta, Ki = s.g, s.diag, s.gain, s.beta, _onward(s.K, i * s.width)
    kii, gi, side = diag[i], g[i], np.float32(sign)
    whole = np.float32(sign * beta[i])
    least = _HIGHEST
    for k in range(s.width):
        room = _min(np.float32(sign * (end[k] - beta[k])), whole)
        bend = kii + diag[k] - _TWO * Ki[k]
        value = side * (g[k] - gi) + _HALF * room * bend
        value = value if room > _ZERO else _HIGHEST
        cost[k] = value
        least = _min(least, value)
    return least


@_compiled
def _hand_over(s: Rows, i: int) -> bool:
    """Give the coefficient of row i to others, piece by piece; False if they cannot take it.

    The row that takes it at the least cost comes first, and takes all that it has room for.
    """
    beta, g, width = s.beta, s.g, s.width
    sign = 1.0 if beta[i] > 0.0 else -1.0
    end = s.hi if sign > 0.0 else s.lo
    while beta[i] != 0.0:
        least = _costs(s, i, sign, end)
        if least == _HIGHEST:
            return False
        # The first place where null - cost >= -least: no cost is smaller.
        j = _place(width, s.null, s.gain, s.number, -least)
        room = end[j] - beta[j]
        # What rounding adds to the room, or takes from it, neither frees a row nor is handed on.
        is_just_enough = abs(room - beta[i]) <= 1e-12 * (s.hi[j] - s.lo[j])
        d = beta[i] if is_just_enough or abs(room) > abs(beta[i]) else room
        beta[j] = end[j] if is_just_enough or d == room else beta[j] + d
        beta[i] = 0.0 if d == beta[i] else beta[i] - d
        _open_sides(s, j)
        step = np.float32(d)
        Ki, Kj = _onward(s.K, i * width), _onward(s.K, j * width)
        for k in range(width):
            g[k] += step * (Kj[k] - Ki[k])
    _open_sides(s, i)
    return True


@_compiled
def _restore(kept: Rows, s: Rows) -> None:
    """Put gradient, sides and coefficients of the model of all rows back."""
    for k in range(s.width):
        s.g[k] = kept.g[k]
        s.up[k] = kept.up[k]
        s.low[k] = kept.low[k]
        s.Kp[k] = _ZERO
        s.beta[k] = kept.beta[k]


@_merged
def _settle(s: Rows, i: int, beta: _Array, base: float, tols: _Array, max_iter: int) -> _Array:
    """Minimise without row i until the sign of its value is certain; return both.

    ``base`` is the value at the coefficients ``beta`` of the model of all rows, without i and b.
    Without the row's own term the value starts too low, on the side of the other class, and rises
    as the other rows make up for it. Once it has risen past zero it rarely falls back, so the sign
    of the row's own class is certain well before that of the other class.
    """
    value = base
    spent = 0
    own = 1.0 if beta[i] > 0.0 else -1.0
    Ki = _onward(s.K, i * s.width)
    for t in range(tols.shape[0]):
        done, violation, _ = _descend(s, tols[t], max_iter - spent)
        spent += done
        _uncentre(s, 0.0)
        value = base + _bias(s)
        for k in range(s.n):
            if k != i:
                value += Ki[k] * (s.beta[k] - beta[k])
        is_sure = own * value > _OWN_SIDE * violation or -own * value > _OTHER_SIDE * violation
        if is_sure or spent >= max_iter:
            return value, is_sure
    return value, True


@_entry
def hold_out_rows(
    K: _Array,
    box: _Array,
    beta: _Array,
    exact: _Array,
    near: _Array,
    eps: float,
    tols: _Array,
    max_iter: int,
    stop: _Array,
    held: _Array,
    is_sure: _Array,
    widest: int,
    floats: _Array,
    doubles: _Array,
    integers: _Array,
    kernel: _Array,
    active: _Array,
) -> None:
    """Values of the first rows of ``near``, each under the model that is fitted without the row.

    Only coefficients of rows in ``near`` change. ``exact`` is the gradient K beta - p of the model
    of all rows, and ``held`` comes with the sums of K_ij beta_j over j != i. It is not finite for a
    row without which nothing can be fitted. The last arguments are a workspace.
    """
    count = near.shape[0]
    own = _first(kernel)
    _submatrix(_first(K), K.shape[1], _first(near), count, own, widest)
    memory = Memory(widest, _first(floats), _first(doubles), _first(integers))
    kept = _blank(_KEPT, own, _first(exact), count, widest, eps, memory)
    s = _blank(_ALL, own, _first(exact), count, widest, eps, memory)
    _prepare(s)
    for a in range(count):
        k = near[a]
        s.lo[a] = box[0, k]
        s.hi[a] = box[1, k]
        s.beta[a] = beta[k]
        s.exact[a] = exact[k]
        _open_sides(s, a)
    shift, _, _ = _centre(s)
    _restore(s, kept)
    for a in range(held.shape[0]):
        lo, hi = s.lo[a], s.hi[a]
        _restore(kept, s)
        s.lo[a] = 0.0
        s.hi[a] = 0.0
        base = held[a] + shift
        held[a] = np.nan
        if _hand_over(s, a):
            held[a], is_sure[a] = _settle(s, a, kept.beta, base, tols, max_iter)
        s.lo[a] = lo
        s.hi[a] = hi
        if stop[0] != 0:
            return


@_entry
def refit_rows(
    K: _Array,
    box: _Array,
    beta: _Array,
    p: _Array,
    rows: _Array,
    eps: float,
    tol: float,
    max_iter: int,
    stop: _Array,
    held: _Array,
    violation: _Array,
    widest: int,
    floats: _Array,
    doubles: _Array,
    integers: _Array,
    kernel: _Array,
    active: _Array,
) -> None:
    """Values of ``rows``, each by the model that is fitted without it, to ``tol``.

    Like :func:`hold_out_rows`, but every row may move, and the solution is checked in float64 as
    that of a fold is. Rows without which nothing can be fitted are left as they come.
    """
    n = p.shape[0]
    memory = Memory(widest, _first(floats), _first(doubles), _first(integers))
    kept = _blank(_KEPT, _first(K), _first(p), n, widest, eps, memory)
    s = _blank(_ALL, _first(K), _first(p), n, widest, eps, memory)
    room, halt = _first(active), _first(stop)
    scale = _prepare(s)
    for k in range(n):
        s.lo[k] = box[0, k]
        s.hi[k] = box[1, k]
        s.beta[k] = beta[k]
        _open_sides(s, k)
    _gradient(s)
    _centre(s)
    _restore(s, kept)
    for a in range(rows.shape[0]):
        i = rows[a]
        lo, hi = s.lo[i], s.hi[i]
        _restore(kept, s)
        s.lo[i] = 0.0
        s.hi[i] = 0.0
        if _hand_over(s, i):
            _gradient(s)
            _, violation[a], _ = _solve(s, memory, room, scale, 0.0, tol, max_iter, n, halt, 0)
            held[a] = s.exact[i] + s.p[i] + _bias(s)
        s.lo[i] = lo
        s.hi[i] = hi
        if stop[0] != 0:
            return
