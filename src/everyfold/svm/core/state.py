"""The rows of a problem: coefficients, their bounds, the gradient, and what follows from them."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np

from everyfold.svm.core.compiling import (
    HIGHEST,
    LOWEST,
    ZERO,
    Array,
    Pointer,
    compiled,
    entry,
    maximum,
    minimum,
    onward,
    pointer,
)
from everyfold.svm.core.workspace import DIRECTION, DOUBLES, FLOATS, LANES, PROBLEMS, SIZE, STAGGER

# -- Kernel matrices in float32 with padded rows: parts of them, and their smallest numbers -------


@compiled
def submatrix(
    K: Pointer, width: int, rows: Pointer, count: int, small: Pointer, narrow: int
) -> None:
    """Copy the kernel of some rows from a matrix of one row length to a matrix of another."""
    for a in range(count):
        Ka, row = onward(K, rows[a] * width), onward(small, a * narrow)
        end = onward(row, narrow - LANES)
        for c in range(LANES):  # with all of the padding; a fixed number makes short code
            end[c] = ZERO
        for c in range(count):
            row[c] = Ka[rows[c]]


@entry
def gather(K: Array, rows: Array, small: Array) -> None:
    """Copy the kernel of some rows into a padded matrix."""
    count, narrow = rows.shape[0], small.shape[1]
    submatrix(pointer(K), K.shape[1], pointer(rows), count, pointer(small), narrow)


@entry
def smallest_magnitude(K: Array) -> float:
    """The smallest nonzero magnitude in K, to know whether :func:`flush` has anything to do."""
    lowest, entries = HIGHEST, pointer(K)
    for k in range(K.shape[0] * K.shape[1]):
        lowest = minimum(lowest, abs(entries[k]) if entries[k] != ZERO else HIGHEST)
    return np.float64(lowest)


@entry
def flush(K: Array, tiny: float) -> None:
    """Set to zero what is below `tiny`: subnormal numbers cost ten times the arithmetic."""
    threshold, entries = np.float32(tiny), pointer(K)
    for k in range(K.shape[0] * K.shape[1]):
        entries[k] = entries[k] if abs(entries[k]) >= threshold else ZERO


# Where in the memory the vectors of a problem are: one on all rows, one on its active rows, and
# what is kept of the former. Numbers of NumPy, as functions are compiled for each literal.
ON_ALL, ON_ACTIVE, KEPT = cast(tuple[int, int, int], tuple(np.arange(PROBLEMS)))

_AT_BOUND = 1e-9  # of its box: what rounding may leave between a coefficient and its bound


class Memory(NamedTuple):
    """Pointers into a :class:`everyfold.svm.core.workspace.Workspace`, and the width it is for."""

    widest: int
    floats: Pointer
    doubles: Pointer
    integers: Pointer


class SolverRows(NamedTuple):
    """A problem: its size, and pointers to its kernel, its targets and its vectors.

    Vectors of float32 begin every ``stride`` numbers, those of float64 every ``width`` numbers.
    """

    n: int
    width: int  # of a row of K, with its padding
    stride: int
    eps: float
    K: Pointer
    p: Pointer
    D: Pointer  # the direction; see `steps`
    support: Pointer  # list of rows with a coefficient
    active: Pointer  # list of rows that may still move

    # float32
    g: Pointer  # gradient, which every step keeps up to date
    up: Pointer
    low: Pointer
    diag: Pointer  # of K
    gain: Pointer  # of a pair step with each row
    null: Pointer  # zeros
    Kp: Pointer  # K times the direction
    number: Pointer  # 0, 1, 2, …

    # float64
    beta: Pointer
    lo: Pointer
    hi: Pointer
    exact: Pointer  # gradient
    place: Pointer  # of the row in the direction, from 1 on; 0 if it is not there


@compiled
def blank(
    place: int, K: Pointer, p: Pointer, n: int, width: int, eps: float, memory: Memory
) -> SolverRows:
    """A problem without coefficients, whose rows cannot move yet; the padding never can."""
    stride = width + (STAGGER - width) % 1024  # as `workspace.vector_stride`
    longest = memory.widest + (STAGGER - memory.widest) % 1024
    W = onward(memory.floats, place * FLOATS * longest)
    V = onward(memory.doubles, place * DOUBLES * memory.widest)
    up, low, number = onward(W, stride), onward(W, 2 * stride), onward(W, 7 * stride)
    for k in range(FLOATS * stride):
        W[k] = ZERO
    for k in range(DOUBLES * width):
        V[k] = 0.0
    for k in range(width):
        up[k] = LOWEST
        low[k] = HIGHEST
        number[k] = k
    return SolverRows(
        n,
        width,
        stride,
        eps,
        K,
        p,
        onward(memory.doubles, PROBLEMS * DOUBLES * memory.widest),
        memory.integers,
        onward(memory.integers, n + 3),
        W,
        up,
        low,
        onward(W, 3 * stride),
        onward(W, 4 * stride),
        onward(W, 5 * stride),
        onward(W, 6 * stride),
        number,
        V,
        onward(V, width),
        onward(V, 2 * width),
        onward(V, 3 * width),
        onward(V, 4 * width),
    )


@compiled
def prepare(s: SolverRows) -> float:
    """Fill the vectors of a problem without coefficients; return the largest of the diagonal."""
    largest = ZERO
    for k in range(s.n):
        s.diag[k] = s.K[k * s.width + k]
        s.exact[k] = -s.p[k]
        largest = maximum(largest, s.diag[k])
    for a in range(DIRECTION * SIZE):
        s.D[a] = 0.0
    return np.float64(largest)


@compiled
def open_sides(s: SolverRows, k: int) -> None:
    """Set the sides of row k from where its coefficient is in its box."""
    beta, eps = s.beta[k], s.eps
    if beta < 0.0:
        s.up[k] = eps
    elif beta < s.hi[k]:
        s.up[k] = -eps
    else:
        s.up[k] = LOWEST
    if beta > 0.0:
        s.low[k] = -eps
    elif beta > s.lo[k]:
        s.low[k] = eps
    else:
        s.low[k] = HIGHEST


@compiled
def set_box(s: SolverRows, C: float, lower: Pointer, upper: Pointer) -> None:
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
        open_sides(s, k)


@compiled
def copy(source: Pointer, target: Pointer, count: int) -> None:
    """Copy that many numbers."""
    for k in range(count):
        target[k] = source[k]


@compiled
def gradient(s: SolverRows) -> int:
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
        K0, K1 = onward(s.K, i0 * s.width), onward(s.K, i1 * s.width)
        K2, K3 = onward(s.K, i2 * s.width), onward(s.K, i3 * s.width)
        for k in range(s.width):
            exact[k] += (b0 * K0[k] + b1 * K1[k]) + (b2 * K2[k] + b3 * K3[k])
    return count


@compiled
def extremes(s: SolverRows) -> tuple[float, float]:
    """Highest up and lowest low score of the float64 gradient."""
    up, low, exact = s.up, s.low, s.exact
    top, bottom = -np.inf, np.inf
    for k in range(s.width):
        top = maximum(top, up[k] - exact[k])
        bottom = minimum(bottom, low[k] - exact[k])
    return top, bottom


@compiled
def centre(s: SolverRows) -> tuple[float, float, float]:
    """Round the gradient to float32 around the bias: what decides is then small and precise.

    Returns the shift, the violation in float64 and the largest magnitude.
    """
    top, bottom = extremes(s)
    shift = 0.5 * (top + bottom) if top > -np.inf and bottom < np.inf else 0.0
    g, exact = s.g, s.exact
    size = ZERO
    for k in range(s.width):
        g[k] = exact[k] + shift
        size = maximum(size, abs(g[k]))
    return shift, top - bottom, np.float64(size)


@compiled
def uncentre(s: SolverRows, shift: float) -> None:
    """Take over the gradient that the steps have kept up to date."""
    g, exact = s.g, s.exact
    for k in range(s.width):
        exact[k] = np.float64(g[k]) - shift


@compiled
def bias(s: SolverRows) -> float:
    """The bias: the mean over free support vectors, else the middle of what the bounds allow."""
    total = 0.0
    free = 0
    for k in range(s.width):
        beta = s.beta[k]
        if beta != 0.0 and s.lo[k] < beta < s.hi[k]:
            total += s.up[k] - s.exact[k]
            free += 1
    if free:
        return total / free
    top, bottom = extremes(s)
    return 0.5 * (top + bottom)


@compiled
def play_of_bias(s: SolverRows) -> float:
    """How far the bias may move without leaving the minimum; not positive where it may not.

    A coefficient that only rounding keeps from its bound or from zero counts as being there.
    """
    top, bottom, eps = -np.inf, np.inf, s.eps
    for k in range(s.n):
        beta, lo, hi = s.beta[k], s.lo[k], s.hi[k]
        near = _AT_BOUND * (hi - lo)
        if beta < hi - near:
            top = maximum(top, (eps if beta < -near else -eps) - s.exact[k])
        if beta > lo + near:
            bottom = minimum(bottom, (-eps if beta > near else eps) - s.exact[k])
    return bottom - top


@compiled
def spread(s: SolverRows) -> float:
    """The standard deviation of the values of rows that may have a coefficient."""
    count, first, total, square = 0, 0.0, 0.0, 0.0
    for k in range(s.n):
        if s.lo[k] < s.hi[k]:
            value = s.exact[k] + s.p[k]
            first = value if count == 0 else first  # near the mean, where these are all alike
            count += 1
            total += value - first
            square += (value - first) ** 2
    return math.sqrt(maximum(square / count - (total / count) ** 2, 0.0))
