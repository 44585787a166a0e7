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

Layout: float32 for what every iteration streams through (``W``: gradient, the two sides, diagonal
of K, gains, zeros, K times the direction, row numbers), float64 for what accumulates (``V``:
coefficients, bounds, gradient, places in the direction). All vectors are padded to the row length
of K, which the caller makes a multiple of the vector width, so that no loop has a scalar tail. The
few rows of a direction stand together in ``D``, where loops over them become vectors, too. The
rounding of the float32 gradient is bounded as it grows, and the gradient computed anew in float64
before the bound could matter to the answer.

numba optimises a function once by itself and again within each that calls it, which is most of the
time it takes to compile. So the larger ones are merged into the entry that calls them, and only
those that have several callers, or a loop over rows, are compiled by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from everyfold.operators.compiled import Entry
from everyfold.svm.intrinsics import ask as _ask
from everyfold.svm.intrinsics import maximum as _max
from everyfold.svm.intrinsics import minimum as _min

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Array = Any  # inside compiled code the types are numba's, fixed by the one caller

G, UP, LOW, DIAG, GAIN, NULL, KP, NUMBER = range(8)
BETA, LO, HI, EXACT, PLACE = range(5)
SPEED, AT, START, END, ROW = range(5)
LANES = 32  # rows are padded to this many float32: four AVX2 or two AVX-512 registers
_BLOCK = 256  # rows a step when looking for the place of a maximum
_SLICE = 4096  # iterations between two looks at the stop flag
_MEMBERS = 16  # rows of a conjugate direction
_STAGGER = 144  # numbers that a row of W is longer than a multiple of 4096 bytes
_SIZE = 24  # room for them and two more, in whole vectors
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
    return cast(_Function, Entry(function, _OPTIONS))


def _compiled(function: _Function) -> _Function:
    """Compile as a part of an entry; wrappers for Python would double the compile time."""
    return cast(
        _Function, _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)
    )


def _merged(function: _Function) -> _Function:
    """Compile as lines of the function that calls it, the only one, or one of few."""
    return cast(_Function, _njit(inline="always", **_OPTIONS)(function))


@_merged
def _apart(width: int) -> int:
    """A row length of W at which no two rows are a multiple of 4096 bytes apart.

    The processor takes such addresses for the same, and streams that it reads together for one.
    """
    return width + (_STAGGER - width) % 1024


@_compiled
def _move(
    g: _Array,
    up: _Array,
    low: _Array,
    Kp: _Array,
    K: _Array,
    i: int,
    j: int,
    theta: _Array,
    d: _Array,
) -> _Array:
    """Turn the direction, go d along it; return the highest up and the lowest low score."""
    Ki = K[i]
    Kj = K[j]
    highest = _LOWEST
    lowest = _HIGHEST
    for k in range(g.shape[0]):
        turned = (Ki[k] - Kj[k]) + theta * Kp[k]
        value = g[k] + d * turned
        Kp[k] = turned
        g[k] = value
        highest = _max(highest, up[k] - value)
        lowest = _min(lowest, low[k] - value)
    return highest, lowest


@_compiled
def _gains(
    g: _Array, low: _Array, diag: _Array, gain: _Array, K: _Array, i: int, top: _Array
) -> _Array:
    """Second-order gain of pairing row i with every row; return the largest."""
    Ki = K[i]
    kii = diag[i]
    best = -_ONE
    for k in range(g.shape[0]):
        gap = _max(top - (low[k] - g[k]), _ZERO)
        curvature = _max(kii + diag[k] - _TWO * Ki[k], _TAU)
        value = gap * gap / curvature
        gain[k] = value
        best = _max(best, value)
    return best


@_compiled
def _place(a: _Array, b: _Array, number: _Array, value: _Array) -> int:
    """First k with a[k] - b[k] >= value, by blocks so that the search is vectorised."""
    n = a.shape[0]
    for start in range(0, n, _BLOCK):
        end = start + _BLOCK if start + _BLOCK < n else n
        a_block = a[start:end]
        b_block = b[start:end]
        c_block = number[start:end]
        first = _HIGHEST
        for k in range(a_block.shape[0]):
            first = _min(first, c_block[k] if a_block[k] - b_block[k] >= value else _HIGHEST)
        if first < _HIGHEST:
            return _whole(first)
    return -1


@_compiled
def _open_sides(k: int, eps: float, W: _Array, V: _Array) -> None:
    """Set UP and LOW of row k from where its coefficient is in its box."""
    beta = V[BETA, k]
    if beta < 0.0:
        W[UP, k] = eps
    elif beta < V[HI, k]:
        W[UP, k] = -eps
    else:
        W[UP, k] = _LOWEST
    if beta > 0.0:
        W[LOW, k] = -eps
    elif beta > V[LO, k]:
        W[LOW, k] = eps
    else:
        W[LOW, k] = _HIGHEST


@_compiled
def _enter(V: _Array, D: _Array, count: int, k: int, sign: float) -> int:
    """Add a unit of row k to the direction; return its number of rows.

    A row may have come to stand still, on a kernel of whole numbers: it does not enter twice.
    """
    a = _whole(V[PLACE, k])
    if a == 0:
        count += 1
        a = count
        V[PLACE, k] = a
        D[SPEED, a - 1] = 0.0
        D[AT, a - 1] = V[BETA, k]
        D[START, a - 1] = V[LO, k]
        D[END, a - 1] = V[HI, k]
        D[ROW, a - 1] = k
    D[SPEED, a - 1] += sign
    return count


@_compiled
def _turn(V: _Array, D: _Array, count: int, theta: float, i: int, j: int) -> _Array:
    """Make the direction e_i - e_j + theta times itself.

    Returns its number of rows, and how far it may be followed until one of them must stop.
    """
    for a in range(_SIZE):
        D[SPEED, a] *= theta
    count = _enter(V, D, count, i, 1.0)
    count = _enter(V, D, count, j, -1.0)
    room = np.inf
    for a in range(_SIZE):
        speed, at = D[SPEED, a], D[AT, a]
        way = (_ahead(speed, at, D[START, a], D[END, a]) - at) / speed
        room = _min(room, way if speed != 0.0 else np.inf)
    return count, room


@_merged
def _ahead(speed: float, at: float, start: float, end: float) -> float:
    """Where a row must stop: at its bound, or at zero, where the slope of the one-norm changes."""
    above = 0.0 if at < 0.0 else end
    below = 0.0 if at > 0.0 else start
    return above if speed > 0.0 else below


@_compiled
def _go(D: _Array, d: float, is_blocked: bool) -> float:
    """Move the coefficients d along the direction; return the longest way of one of them."""
    longest = 0.0
    for a in range(_SIZE):
        speed, at = D[SPEED, a], D[AT, a]
        ahead = _ahead(speed, at, D[START, a], D[END, a])
        longest = _max(longest, abs(speed))
        at += d * speed
        # Bounds and zero are met exactly, whatever the rounding: sides are told by comparison.
        is_there = abs(at - ahead) <= 1e-14 * (D[END, a] - D[START, a])
        D[AT, a] = ahead if is_blocked and is_there else at
    return d * longest


@_compiled
def _forget(V: _Array, D: _Array, count: int) -> None:
    """End the direction: write its coefficients back."""
    for a in range(count):
        k = _whole(D[ROW, a])
        V[BETA, k] = D[AT, a]
        V[PLACE, k] = 0.0
    for a in range(_SIZE):
        D[SPEED, a] = 0.0
        D[AT, a] = 0.0


@_compiled
def _open_moved(V: _Array, D: _Array, k: int, eps: float, W: _Array) -> None:
    """Set the sides of a row that has entered the direction and moved."""
    V[BETA, k] = D[AT, _whole(V[PLACE, k]) - 1]
    _open_sides(k, eps, W, V)


@_merged
def _descend(
    K: _Array, W: _Array, V: _Array, D: _Array, eps: float, tol: float, budget: int
) -> _Array:
    """SMO with second-order selection and conjugate directions.

    A step along e_i - e_j mostly undoes part of the last one where the kernel is ill-conditioned.
    Made conjugate to it, and through it to those before, it does not; that costs one more vector
    in the pass over the gradient. The direction starts anew when a bound stops it or when it has
    too many rows to follow cheaply. Returns iterations, violation and the way gone.
    """
    width = K.shape[1]
    g, up, low, diag = W[G, :width], W[UP, :width], W[LOW, :width], W[DIAG, :width]
    gain, null, Kp, number = W[GAIN, :width], W[NULL, :width], W[KP, :width], W[NUMBER, :width]
    count, iterations = _NONE, 0
    travel, violation = 0.0, 0.0
    i, j, curvature, theta, d = _NONE, _NONE, 1.0, 0.0, 0.0
    while True:
        top, bottom = _move(g, up, low, Kp, K, i, j, np.float32(theta), np.float32(d))
        violation = np.float64(top - bottom)
        if not violation > tol or iterations >= budget:
            break
        i = _place(up, g, number, top)
        best = _gains(g, low, diag, gain, K, i, top)
        j = _place(gain, null, number, best)
        if i < 0 or j < 0:  # only a kernel with NaN comes here
            violation, iterations = np.inf, budget
            break
        slope = np.float64(top - (low[j] - g[j]))
        alone = _max(np.float64(diag[i]) + diag[j] - 2.0 * K[i, j], 1e-12)
        coupling = np.float64(Kp[i]) - Kp[j]
        theta = -coupling / curvature
        curvature = alone + theta * coupling
        room = 0.0
        # Almost conjugate already: a plain step is as good, and breeds no subnormal numbers.
        is_conjugate = abs(theta) > 1e-3 and curvature > 0.01 * alone and 0 < count <= _MEMBERS
        if is_conjugate:
            count, room = _turn(V, D, count, theta, i, j)
            d = _min(slope / curvature, room)
            is_conjugate = d > 0.5 * slope / alone
        if not is_conjugate:
            theta, curvature = 0.0, alone
            _forget(V, D, count)
            count, room = _turn(V, D, _NONE, 0.0, i, j)
            d = _min(slope / curvature, room)
        is_blocked = d == room
        travel += _go(D, d, is_blocked)
        if is_blocked:
            _forget(V, D, count)
            for a in range(count):
                _open_sides(_whole(D[ROW, a]), eps, W, V)
            count = _NONE
        else:
            _open_moved(V, D, i, eps, W)
            _open_moved(V, D, j, eps, W)
        iterations += 1
    _forget(V, D, count)
    return iterations, violation, travel


@_compiled
def _gradient(K: _Array, V: _Array, p: _Array) -> int:
    """Compute K beta - p anew in float64, four support rows a pass; return their number."""
    n = p.shape[0]
    beta, exact = V[BETA], V[EXACT]
    support = np.empty(n + 3, np.int64)
    count = 0
    for k in range(n):
        exact[k] = -p[k]
        if beta[k] != 0.0:
            support[count] = k
            count += 1
    for k in range(3):  # zero weights fill the last pass
        support[count + k] = support[0] if count else 0
    for s in range(0, count, 4):
        i0, i1, i2, i3 = support[s], support[s + 1], support[s + 2], support[s + 3]
        b0 = beta[i0]
        b1 = beta[i1] if s + 1 < count else 0.0
        b2 = beta[i2] if s + 2 < count else 0.0
        b3 = beta[i3] if s + 3 < count else 0.0
        K0, K1, K2, K3 = K[i0], K[i1], K[i2], K[i3]
        for k in range(exact.shape[0]):
            exact[k] += (b0 * K0[k] + b1 * K1[k]) + (b2 * K2[k] + b3 * K3[k])
    return count


@_compiled
def _extremes(W: _Array, V: _Array) -> _Array:
    """Highest up and lowest low score of the float64 gradient."""
    up, low, exact = W[UP], W[LOW], V[EXACT]
    top, bottom = -np.inf, np.inf
    for k in range(exact.shape[0]):
        top = _max(top, up[k] - exact[k])
        bottom = _min(bottom, low[k] - exact[k])
    return top, bottom


@_compiled
def _centre(W: _Array, V: _Array) -> _Array:
    """Round the gradient to float32 around the bias: what decides is then small and precise.

    Returns the shift, the violation in float64 and the largest magnitude.
    """
    top, bottom = _extremes(W, V)
    shift = 0.5 * (top + bottom)
    if not np.isfinite(shift):
        shift = 0.0
    g, exact = W[G], V[EXACT]
    size = _ZERO
    for k in range(exact.shape[0]):
        g[k] = exact[k] + shift
        size = _max(size, abs(g[k]))
    return shift, top - bottom, np.float64(size)


@_compiled
def _active_rows(W: _Array, rows: _Array) -> int:
    """Rows that are free or might still move; return their number."""
    g, up, low = W[G], W[UP], W[LOW]
    top, bottom = _LOWEST, _HIGHEST
    n, count = rows.shape[0], 0
    for k in range(n):
        top = _max(top, up[k] - g[k])
        bottom = _min(bottom, low[k] - g[k])
    for k in range(n):
        # An infinite side never passes, so held-out rows go, and bound rows by their other side.
        if (up[k] - g[k] >= bottom and up[k] > _LOWEST) or (
            low[k] - g[k] <= top and low[k] < _HIGHEST
        ):
            rows[count] = k
            count += 1
    return count


@_compiled
def _blank(W: _Array, V: _Array, start: int) -> None:
    """Make rows immovable from ``start`` on: the padding, or all before they are filled."""
    for k in range(start, V.shape[1]):
        for r in range(W.shape[0]):
            W[r, k] = _ZERO
        for r in range(V.shape[0]):
            V[r, k] = 0.0
        W[UP, k] = _LOWEST
        W[LOW, k] = _HIGHEST
        W[NUMBER, k] = k


@_compiled
def _take(rows: _Array, W: _Array, V: _Array, small_W: _Array, small_V: _Array) -> None:
    """Copy the vectors of the active rows."""
    for a in range(rows.shape[0]):
        k = rows[a]
        for r in range(W.shape[0]):
            small_W[r, a] = W[r, k]
        small_W[NUMBER, a] = a
        for r in range(V.shape[0]):
            small_V[r, a] = V[r, k]


@_compiled
def _submatrix(K: _Array, rows: _Array, small: _Array) -> None:
    """Copy the kernel of the active rows into a padded, contiguous matrix."""
    count = rows.shape[0]
    for a in range(count):
        Ka = K[rows[a]]
        row = small[a]
        for c in range(count):
            row[c] = Ka[np.uint64(rows[c])]  # unsigned: no sign to look at
        for c in range(count, row.shape[0]):
            row[c] = _ZERO


@_compiled
def _return(rows: _Array, eps: float, small_V: _Array, W: _Array, V: _Array) -> None:
    """Write the coefficients of the active rows back."""
    for a in range(rows.shape[0]):
        k = rows[a]
        V[BETA, k] = small_V[BETA, a]
        _open_sides(k, eps, W, V)


@_merged
def _solve(
    K: _Array,
    W: _Array,
    V: _Array,
    D: _Array,
    p: _Array,
    drift: float,
    eps: float,
    tol: float,
    max_iter: int,
    patience: int,
    stop: _Array,
    leaps: int,
) -> _Array:
    """Solve one C from the coefficients in V and their gradient; keep both up to date.

    Works on all rows first. A long run copies the kernel of the rows that can still move and goes
    on there; every convergence on that part is checked on all rows in float64. It asks for leaps
    if there is an address to ask at. Returns pair steps, violation, and a bound of the rounding of
    the gradient.
    """
    n = p.shape[0]
    shift, violation, size = _centre(W, V)
    rounding, scale = _EPS32 * size, _largest(W[DIAG, :n])
    drift += rounding
    every = np.empty(n, np.int64)
    rows = every
    small_K, small_W, small_V = K, W, V
    is_full = True
    spent, since_refresh, since_shrink = 0, 0, 0
    support = n
    aim = tol
    since_leap, until_leap = 0, _LEAP
    while True:
        budget = max_iter - spent if max_iter - spent < _SLICE else _SLICE
        if leaps != 0 and budget > until_leap - since_leap:
            budget = until_leap - since_leap if until_leap > since_leap else 1
        if is_full and budget > patience - since_shrink:
            budget = patience - since_shrink if patience > since_shrink else 1
        done, violation, travel = _descend(small_K, small_W, small_V, D, eps, aim, budget)
        spent += done
        since_refresh += done
        since_shrink += done
        since_leap += done
        drift += rounding * done + _EPS32 * scale * travel
        is_over = not violation > aim or spent >= max_iter or stop[0] != 0
        if is_full and is_over and drift <= _DRIFT * tol:
            _uncentre(W, V, shift)
            break
        if is_over or (drift > 0.25 * tol and since_refresh > support):
            if not is_full:
                _return(rows, eps, small_V, W, V)
            support = _gradient(K, V, p)
            shift, violation, size = _centre(W, V)
            drift = rounding
            if since_refresh == 0:  # float32 sees no violation where float64 does
                aim *= 0.5
            is_stuck = aim < 1e-3 * tol
            if not violation > tol or is_stuck or spent >= max_iter or stop[0] != 0:
                drift = 0.0
                break
            since_refresh = 0
            if is_over:
                small_K, small_W, small_V = K, W, V
                is_full = True
                since_shrink = 0
            elif not is_full:
                _take(rows, W, V, small_W, small_V)
        elif is_full and since_shrink >= patience:
            since_shrink = 0
            patience = n
            count = _active_rows(W, every)
            if count < 0.7 * n:
                rows = every[:count]
                width = (count + LANES - 1) // LANES * LANES
                small_K = np.empty((count, width), np.float32)
                small_W = np.empty((W.shape[0], _apart(width)), np.float32)
                small_V = np.empty((V.shape[0], width), np.float64)
                _submatrix(K, rows, small_K)
                _blank(small_W, small_V, count)
                _take(rows, W, V, small_W, small_V)
                is_full = False
        elif leaps != 0 and since_leap >= until_leap:
            until_leap = _ask(leaps, small_K, small_W, small_V, since_leap)
            if until_leap == 0:
                since_leap, until_leap = 0, _LEAP
                drift += rounding
                for k in range(small_K.shape[0]):
                    _open_sides(k, eps, small_W, small_V)
    return spent, violation, drift


@_compiled
def _largest(values: _Array) -> float:
    largest = _ZERO
    for k in range(values.shape[0]):
        largest = _max(largest, values[k])
    return np.float64(largest)


@_compiled
def _uncentre(W: _Array, V: _Array, shift: float) -> None:
    """Take over the gradient that the steps have kept up to date."""
    g, exact = W[G], V[EXACT]
    for k in range(exact.shape[0]):
        exact[k] = np.float64(g[k]) - shift


@_compiled
def _stretch(ratio: float, p: _Array, eps: float, V: _Array) -> float:
    """Scale the coefficients, to start the next C.

    By the ratio of the Cs, which keeps bounds, if most support vectors are there; otherwise by the
    best factor up to it.
    """
    beta, exact = V[BETA], V[EXACT]
    slope, curvature, bound, free = 0.0, 0.0, 0, 0
    for k in range(p.shape[0]):
        slope += p[k] * beta[k] - eps * abs(beta[k])
        curvature += beta[k] * (exact[k] + p[k])
        if V[LO, k] < beta[k] < V[HI, k]:
            free += 1 if beta[k] != 0.0 else 0
        elif beta[k] != 0.0:
            bound += 1
    factor = ratio if bound > free else 1.0
    if factor == 1.0 and curvature > 0.0:
        factor = _min(_max(slope / curvature, 1.0), ratio)
    for k in range(p.shape[0]):
        beta[k] *= factor
        exact[k] = factor * (exact[k] + p[k]) - p[k]
    return factor


@_compiled
def _set_box(C: float, unit: _Array, eps: float, W: _Array, V: _Array) -> None:
    """Bounds of this C; coefficients within rounding of a bound are put on it."""
    for k in range(unit.shape[1]):
        lo = C * unit[0, k]
        hi = C * unit[1, k]
        V[LO, k] = lo
        V[HI, k] = hi
        if hi > 0.0 and V[BETA, k] >= hi * (1.0 - 1e-12):
            V[BETA, k] = hi
        elif lo < 0.0 and V[BETA, k] <= lo * (1.0 - 1e-12):
            V[BETA, k] = lo
        _open_sides(k, eps, W, V)


@_compiled
def _bias(W: _Array, V: _Array) -> _Array:
    """Mean over the free support vectors, else the middle of what the bounds allow."""
    total = 0.0
    free = 0
    for k in range(V.shape[1]):
        beta = V[BETA, k]
        if beta != 0.0 and V[LO, k] < beta < V[HI, k]:
            total += W[UP, k] - V[EXACT, k]
            free += 1
    if free:
        return total / free
    top, bottom = _extremes(W, V)
    return 0.5 * (top + bottom)


@_compiled
def _play(V: _Array, n: int, eps: float) -> _Array:
    """How far the bias may move without leaving the minimum; not positive where it may not.

    A coefficient that only rounding keeps from its bound or from zero counts as being there.
    """
    top, bottom = -np.inf, np.inf
    for k in range(n):
        beta, lo, hi = V[BETA, k], V[LO, k], V[HI, k]
        near = _AT_BOUND * (hi - lo)
        if beta < hi - near:
            top = _max(top, (eps if beta < -near else -eps) - V[EXACT, k])
        if beta > lo + near:
            bottom = _min(bottom, (-eps if beta > near else eps) - V[EXACT, k])
    return bottom - top


@_compiled
def _is_inside(V: _Array, n: int) -> bool:
    """Whether no coefficient is at its outer bound, so that a larger C changes nothing."""
    for k in range(n):
        beta = V[BETA, k]
        if beta != 0.0 and (beta == V[LO, k] or beta == V[HI, k]):
            return False
    return True


@_compiled
def _prepare(K: _Array, W: _Array, V: _Array, D: _Array, p: _Array) -> None:
    """Fill the vectors of a problem without coefficients."""
    _blank(W, V, _NONE)
    for k in range(p.shape[0]):
        W[DIAG, k] = K[k, k]
        V[EXACT, k] = -p[k]
    for a in range(D.shape[1]):
        for r in range(D.shape[0]):
            D[r, a] = 0.0


@_compiled
def _copy(source: _Array, target: _Array) -> None:
    for k in range(source.shape[0]):
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
) -> None:
    """Go up the sorted Cs for some problems on one kernel, one after the other.

    Problem s has the entries from ``starts[s]`` to ``starts[s + 1]`` of ``rows``, its rows of the
    kernel, and of the last axis of all other arrays. Without any ``rows`` there is one, on all.
    ``unit`` holds the bounds l and h for C = 1. ``start``, ``decision`` and ``coef`` have a row for
    each C, or none: for starting from the former C, and for what is not asked for. ``summary`` has
    the columns intercept, iterations, violation, play of the intercept. ``leaps`` is the address of
    :class:`everyfold.svm.leaps.Leaps`.
    """
    for s in range(starts.shape[0] - 1):
        first, last = starts[s], starts[s + 1]
        part = K
        if rows.shape[0] > 0:
            part = np.empty((last - first, -(-(last - first) // LANES) * LANES), np.float32)
            _submatrix(K, rows[first:last], part)
        W = np.empty((8, _apart(part.shape[1])), np.float32)
        V = np.empty((5, part.shape[1]), np.float64)
        D = np.empty((5, _SIZE), np.float64)
        own, box, n = p[first:last], unit[:, first:last], last - first
        _prepare(part, W, V, D, own)
        drift, spent, violation, b, play = 0.0, 0, 0.0, 0.0, 0.0
        for c in range(Cs.shape[0]):
            if c > 0 and start.shape[0] == 0 and _is_inside(V, n):
                spent = 0
            else:
                if start.shape[0] > 0:
                    _copy(start[c, first:last], V[BETA])
                    drift = np.inf
                elif c > 0:
                    drift *= _stretch(Cs[c] / Cs[c - 1], own, eps, V)
                _set_box(Cs[c], box, eps, W, V)
                if drift > _DRIFT * tol:  # a large factor has magnified the rounding
                    _gradient(part, V, own)
                    drift = 0.0
                patience = n if spent < n else n // 8
                spent, violation, drift = _solve(
                    part, W, V, D, own, drift, eps, tol, max_iter, patience, stop, leaps
                )
                b, play = _bias(W, V), _play(V, n, eps)
            if decision.shape[0] > 0:
                for k in range(n):
                    decision[c, first + k] = V[EXACT, k] + own[k] + b
            if coef.shape[0] > 0:
                _copy(V[BETA, :n], coef[c, first:last])
            report = summary[s, c]
            report[0], report[1], report[2], report[3] = b, spent, violation, play
            if stop[0] != 0:
                return


@_entry
def gather(K: _Array, rows: _Array, small: _Array) -> None:
    """Copy the kernel of some rows into a padded matrix."""
    _submatrix(K, rows, small)


@_entry
def smallest_magnitude(K: _Array) -> _Array:
    """The smallest nonzero magnitude in K, to tell whether :func:`flush` has anything to do."""
    lowest = _HIGHEST
    for i in range(K.shape[0]):
        Ki = K[i]
        for k in range(Ki.shape[0]):
            lowest = _min(lowest, abs(Ki[k]) if Ki[k] != _ZERO else _HIGHEST)
    return np.float64(lowest)


@_entry
def flush(K: _Array, tiny: float) -> None:
    """Set to zero what is below `tiny`: subnormal numbers cost ten times the arithmetic."""
    threshold = np.float32(tiny)
    for i in range(K.shape[0]):
        Ki = K[i]
        for k in range(Ki.shape[0]):
            Ki[k] = Ki[k] if abs(Ki[k]) >= threshold else _ZERO


@_compiled
def _costs(W: _Array, V: _Array, Ki: _Array, i: int, sign: float, end: _Array) -> _Array:
    """What it costs each row to take of row i's coefficient all it has room for; the least."""
    g, diag, cost, beta = W[G], W[DIAG], W[GAIN], V[BETA]
    kii, gi, side = diag[i], g[i], np.float32(sign)
    whole = np.float32(sign * beta[i])
    least = _HIGHEST
    for k in range(Ki.shape[0]):
        room = _min(np.float32(sign * (end[k] - beta[k])), whole)
        bend = kii + diag[k] - _TWO * Ki[k]
        value = side * (g[k] - gi) + _HALF * room * bend
        value = value if room > _ZERO else _HIGHEST
        cost[k] = value
        least = _min(least, value)
    return least


@_compiled
def _hand_over(K: _Array, W: _Array, V: _Array, i: int, eps: float) -> bool:
    """Give the coefficient of row i to others, piece by piece; False if they cannot take it.

    The row that takes it at the least cost comes first, and takes all that it has room for.
    """
    width = K.shape[1]
    sign = 1.0 if V[BETA, i] > 0.0 else -1.0
    end = V[HI] if sign > 0.0 else V[LO]
    while V[BETA, i] != 0.0:
        least = _costs(W, V, K[i], i, sign, end)
        if least == _HIGHEST:
            return False
        # The first place where null - cost >= -least: no cost is smaller.
        j = _place(W[NULL, :width], W[GAIN, :width], W[NUMBER, :width], -least)
        room = end[j] - V[BETA, j]
        d = V[BETA, i] if abs(room) > abs(V[BETA, i]) else room
        V[BETA, j] = end[j] if d == room else V[BETA, j] + d
        V[BETA, i] = 0.0 if d == V[BETA, i] else V[BETA, i] - d
        _open_sides(j, eps, W, V)
        step = np.float32(d)
        g, Ki, Kj = W[G], K[i], K[j]
        for k in range(width):
            g[k] += step * (Kj[k] - Ki[k])
    _open_sides(i, eps, W, V)
    return True


@_compiled
def _restore(full: _Array, beta: _Array, W: _Array, V: _Array) -> None:
    """Put gradient, sides and coefficients of the model of all rows back."""
    for k in range(V.shape[1]):
        W[G, k] = full[G, k]
        W[UP, k] = full[UP, k]
        W[LOW, k] = full[LOW, k]
        W[KP, k] = _ZERO
        V[BETA, k] = beta[k]


@_merged
def _settle(
    K: _Array,
    W: _Array,
    V: _Array,
    D: _Array,
    i: int,
    beta: _Array,
    base: float,
    eps: float,
    tols: _Array,
    max_iter: int,
) -> _Array:
    """Minimise without row i until the sign of its value is certain; return both.

    ``base`` is the value at the coefficients ``beta`` of the model of all rows, without i and b.
    Without the row's own term the value starts too low, on the side of the other class, and rises
    as the other rows make up for it. Once it has risen past zero it rarely falls back, so the sign
    of the row's own class is certain well before that of the other class.
    """
    value = base
    spent = 0
    own = 1.0 if beta[i] > 0.0 else -1.0
    Ki = K[i]
    for t in range(tols.shape[0]):
        done, violation, _ = _descend(K, W, V, D, eps, tols[t], max_iter - spent)
        spent += done
        _uncentre(W, V, 0.0)
        value = base + _bias(W, V)
        for k in range(K.shape[0]):
            if k != i:
                value += Ki[k] * (V[BETA, k] - beta[k])
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
) -> None:
    """Values of the first rows of ``near``, each under the model that is fitted without the row.

    Only coefficients of rows in ``near`` change. ``exact`` is the gradient K beta - p of the model
    of all rows, and ``held`` comes with the sums of K_ij beta_j over j != i. It is not finite for a
    row without which nothing can be fitted.
    """
    count = near.shape[0]
    width = -(-count // LANES) * LANES
    small_K = np.empty((count, width), np.float32)
    _submatrix(K, near, small_K)
    W = np.empty((8, _apart(width)), np.float32)
    V = np.empty((5, width), np.float64)
    D = np.empty((5, _SIZE), np.float64)
    _prepare(small_K, W, V, D, exact[:count])
    for a in range(count):
        k = near[a]
        V[LO, a] = box[0, k]
        V[HI, a] = box[1, k]
        V[BETA, a] = beta[k]
        V[EXACT, a] = exact[k]
        _open_sides(a, eps, W, V)
    start = V[BETA].copy()
    shift, _, _ = _centre(W, V)
    full = W[:3].copy()
    for a in range(held.shape[0]):
        lo, hi = V[LO, a], V[HI, a]
        _restore(full, start, W, V)
        V[LO, a] = 0.0
        V[HI, a] = 0.0
        base = held[a] + shift
        held[a] = np.nan
        if _hand_over(small_K, W, V, a, eps):
            held[a], is_sure[a] = _settle(small_K, W, V, D, a, start, base, eps, tols, max_iter)
        V[LO, a] = lo
        V[HI, a] = hi
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
) -> None:
    """Values of ``rows``, each by the model that is fitted without it, to ``tol``.

    Like :func:`hold_out_rows`, but every row may move, and the solution is checked in float64 as
    that of a fold is. Rows without which nothing can be fitted are left as they come.
    """
    n = p.shape[0]
    W = np.empty((8, _apart(K.shape[1])), np.float32)
    V = np.empty((5, K.shape[1]), np.float64)
    D = np.empty((5, _SIZE), np.float64)
    _prepare(K, W, V, D, p)
    for k in range(n):
        V[LO, k] = box[0, k]
        V[HI, k] = box[1, k]
        V[BETA, k] = beta[k]
        _open_sides(k, eps, W, V)
    start = V[BETA].copy()
    _gradient(K, V, p)
    _centre(W, V)
    full = W[:3].copy()
    for a in range(rows.shape[0]):
        i = rows[a]
        lo, hi = V[LO, i], V[HI, i]
        _restore(full, start, W, V)
        V[LO, i] = 0.0
        V[HI, i] = 0.0
        if _hand_over(K, W, V, i, eps):
            _gradient(K, V, p)
            _, violation[a], _ = _solve(K, W, V, D, p, 0.0, eps, tol, max_iter, n, stop, 0)
            held[a] = V[EXACT, i] + p[i] + _bias(W, V)
        V[LO, i] = lo
        V[HI, i] = hi
        if stop[0] != 0:
            return
