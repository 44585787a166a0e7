"""Pair steps along conjugate directions, on the rows of one problem."""

from __future__ import annotations

import numpy as np

from everyfold.svm.core.compiling import (
    HIGHEST,
    LOWEST,
    NONE,
    ONE,
    TWO,
    ZERO,
    Float32,
    Pointer,
    compiled,
    maximum,
    merged,
    minimum,
    onward,
    whole,
)
from everyfold.svm.core.state import SolverRows, open_sides
from everyfold.svm.core.workspace import DIRECTION, SIZE

# The vectors in D, of a number for each row that has entered the direction: its part of the
# direction, its coefficient, the ends of its box, its number, and the coefficient it must stop at.
_SPEED, _AT, _START, _END, _ROW, _AHEAD = range(0, DIRECTION * SIZE, SIZE)

# Rows of a conjugate direction; one that would grow beyond is begun anew.
_MEMBERS = 16

# Rows a step when the place of a maximum is searched.
_BLOCK = 256

# The curvature of a pair of equal rows, which divides: libsvm's TAU.
_TAU = np.float32(1e-12)


@compiled
def _move(s: SolverRows, i: int, j: int, theta: Float32, d: Float32) -> tuple[Float32, Float32]:
    """Turn the direction, go d along it; return the highest up and the lowest low score."""
    g, up, low, Kp = s.g, s.up, s.low, s.Kp
    Ki = onward(s.K, i * s.width)
    Kj = onward(s.K, j * s.width)
    highest = LOWEST
    lowest = HIGHEST
    for k in range(s.width):
        turned = (Ki[k] - Kj[k]) + theta * Kp[k]
        value = g[k] + d * turned
        Kp[k] = turned
        g[k] = value
        highest = maximum(highest, up[k] - value)
        lowest = minimum(lowest, low[k] - value)
    return highest, lowest


@compiled
def _gains(s: SolverRows, i: int, top: Float32) -> Float32:
    """Second-order gain of pairing row i with every row; return the largest."""
    g, low, diag, gain = s.g, s.low, s.diag, s.gain
    Ki = onward(s.K, i * s.width)
    kii = diag[i]
    best = -ONE
    for k in range(s.width):
        gap = maximum(top - (low[k] - g[k]), ZERO)
        curvature = maximum(kii + diag[k] - TWO * Ki[k], _TAU)
        value = gap * gap / curvature
        gain[k] = value
        best = maximum(best, value)
    return best


@compiled
def locate(n: int, a: Pointer, b: Pointer, number: Pointer, value: Float32) -> int:
    """First k with a[k] - b[k] >= value, by blocks so that the search is vectorised."""
    for start in range(0, n, _BLOCK):
        end = start + _BLOCK if start + _BLOCK < n else n
        first = HIGHEST
        for k in range(start, end):
            first = minimum(first, number[k] if a[k] - b[k] >= value else HIGHEST)
        if first < HIGHEST:
            return whole(first)
    return -1


@compiled
def _enter(s: SolverRows, count: int, k: int, sign: float) -> int:
    """Add a unit of row k to the direction; return its number of rows.

    A row may have come to stand still, on a kernel of whole numbers: it does not enter twice.
    """
    D = s.D
    a = whole(s.place[k])
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


@compiled
def _turn(s: SolverRows, count: int, theta: float, i: int, j: int) -> tuple[int, float]:
    """Make the direction e_i - e_j + theta times itself.

    Returns its number of rows, and how far it may be followed until one of them must stop.
    """
    D = s.D
    for a in range(SIZE):
        D[_SPEED + a] *= theta
    count = _enter(s, count, i, 1.0)
    count = _enter(s, count, j, -1.0)
    slack = np.inf
    for a in range(SIZE):
        speed, at = D[_SPEED + a], D[_AT + a]
        # A row must stop at its bound, or at zero, where the slope of the one-norm changes.
        start, end = D[_START + a], D[_END + a]
        above = 0.0 if at < 0.0 else end
        below = 0.0 if at > 0.0 else start
        ahead = above if speed > 0.0 else below
        way = (ahead - at) / speed
        D[_AHEAD + a] = ahead
        slack = minimum(slack, way if speed != 0.0 else np.inf)
    return count, slack


@compiled
def _go(D: Pointer, d: float, is_blocked: bool) -> float:
    """Move the coefficients d along the direction; return the longest way of one of them."""
    longest = 0.0
    for a in range(SIZE):
        speed, at, ahead = D[_SPEED + a], D[_AT + a], D[_AHEAD + a]
        longest = maximum(longest, abs(speed))
        at += d * speed
        # Bounds and zero are met exactly, whatever the rounding: sides are compared for equality.
        is_there = abs(at - ahead) <= 1e-14 * (D[_END + a] - D[_START + a])
        D[_AT + a] = ahead if is_blocked and is_there else at
    return d * longest


@compiled
def _forget(s: SolverRows, count: int) -> None:
    """End the direction: write its coefficients back."""
    D = s.D
    for a in range(count):
        k = whole(D[_ROW + a])
        s.beta[k] = D[_AT + a]
        s.place[k] = 0.0
    for a in range(SIZE):
        D[_SPEED + a] = 0.0
        D[_AT + a] = 0.0


@compiled
def _open_moved(s: SolverRows, k: int) -> None:
    """Set the sides of a row that has entered the direction and moved."""
    s.beta[k] = s.D[_AT + whole(s.place[k]) - 1]
    open_sides(s, k)


@merged
def descend(s: SolverRows, tol: float, budget: int) -> tuple[int, float, float]:
    """SMO with second-order selection and conjugate directions.

    A step along e_i - e_j mostly undoes part of the last one where the kernel is ill-conditioned.
    Made conjugate to it, and through it to those before, it does not; that costs one more vector
    in the pass over the gradient. The direction starts anew when a bound stops it or when it has
    too many rows to follow cheaply. Returns iterations, violation and the way gone.
    """
    count, iterations = NONE, 0
    travel, violation = 0.0, 0.0
    i, j, curvature, theta, d = NONE, NONE, 1.0, 0.0, 0.0
    while True:
        top, bottom = _move(s, i, j, np.float32(theta), np.float32(d))
        violation = np.float64(top - bottom)
        if not violation > tol or iterations >= budget:
            break
        i = locate(s.width, s.up, s.g, s.number, top)
        best = _gains(s, i, top)
        j = locate(s.width, s.gain, s.null, s.number, best)
        if i < 0 or j < 0:  # only a kernel with NaN comes here
            violation, iterations = np.inf, budget
            break
        slope = np.float64(top - (s.low[j] - s.g[j]))
        alone = np.float64(s.diag[i]) + s.diag[j] - 2.0 * s.K[i * s.width + j]
        alone = maximum(alone, 1e-12)
        coupling = np.float64(s.Kp[i]) - s.Kp[j]
        theta = -coupling / curvature
        curvature = alone + theta * coupling
        slack = 0.0
        # Almost conjugate already: a plain step is as good, and breeds no subnormal numbers.
        is_conjugate = abs(theta) > 1e-3 and curvature > 0.01 * alone and 0 < count <= _MEMBERS
        if is_conjugate:
            count, slack = _turn(s, count, theta, i, j)
            d = minimum(slope / curvature, slack)
            is_conjugate = d > 0.5 * slope / alone
        if not is_conjugate:
            theta, curvature = 0.0, alone
            _forget(s, count)
            count, slack = _turn(s, NONE, 0.0, i, j)
            d = minimum(slope / curvature, slack)
        is_blocked = d == slack
        travel += _go(s.D, d, is_blocked)
        if is_blocked:
            _forget(s, count)
            for a in range(count):
                open_sides(s, whole(s.D[_ROW + a]))
            count = NONE
        else:
            _open_moved(s, i)
            _open_moved(s, j)
        iterations += 1
    _forget(s, count)
    return iterations, violation, travel
