"""Compiled by numba: gather many blocks of one matrix, factorise each of them, and solve.

Gathering by NumPy's fancy indexing costs more than LAPACK's Cholesky of the block that it makes,
and neither can be shared out over threads from Python. Here both happen in one place in cache,
without the interpreter's lock.

A block of m rows, with its right-hand sides as further columns, is the matrix (A | B). Of its
factorisation A = Uᵀ U the upper triangle is stored in *strips* of 16 columns: entry (i, j) is
number 16 i + j % 16 of strip j // 16. A strip is worked on in *panels* of 8 rows, each of 8 · 16
numbers in a row. Loops over the 16 columns have a fixed length and become vector instructions.

**Cost** m³/3 flops a block at half of the processor's peak, and a gather bound by the transfer of
the lines of G that the block touches.

**Exact?** Yes, a Cholesky factorisation in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from everyfold.linalg.blas import thread_budget
from everyfold.linalg.jit import Entry

_Array = Any  # inside compiled code the types are numba's, fixed by the one caller
_Function = TypeVar("_Function", bound=Callable[..., Any])
_njit: Any = njit
# Sums may be reordered, but NaN must stay what it is: it marks a block that is not definite.
_OPTIONS = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}

# Rows of a panel and columns of a strip; a strip of 8 columns would not become vectors.
PANEL, STRIP = 8, 16

# Sets that a thread solves at a time: few, so that an interrupt is noticed while they run.
_PIECE = 16


def _compiled(function: _Function) -> _Function:
    """Compile as a part of the entry below."""
    return cast(_Function, _njit(**_OPTIONS)(function))


def _inlined(function: _Function) -> _Function:
    """Compile into the loop that calls: passing arrays costs as much as 64 products."""
    return cast(_Function, _njit(forceinline=True, **_OPTIONS)(function))


@_compiled
def _gather(G: _Array, h: _Array, S: _Array, start: int, strip: _Array) -> None:
    """Columns start, start + 1, … of (G - h hᵀ)_SS; ``h`` has the entries of S only.

    Four rows of G are read together, so that the processor waits for several lines at a time.
    """
    last = len(S) - 1
    for c in range(0, STRIP, 4):
        j = start + c
        j0, j1, j2, j3 = min(j, last), min(j + 1, last), min(j + 2, last), min(j + 3, last)
        G0, G1, G2, G3 = G[S[j0]], G[S[j1]], G[S[j2]], G[S[j3]]
        h0, h1, h2, h3 = h[j0], h[j1], h[j2], h[j3]
        for i in range(min(j + 4, len(S))):
            k, own, at = S[i], h[i], i * STRIP + c
            strip[at] = G0[k] - h0 * own
            strip[at + 1] = G1[k] - h1 * own
            strip[at + 2] = G2[k] - h2 * own
            strip[at + 3] = G3[k] - h3 * own
    for i in range(start, min(start + STRIP, len(S))):  # below the diagonal: what G has is not read
        strip[i * STRIP : i * STRIP + i - start] = 0.0


@_compiled
def _append(B: _Array, start: int, strip: _Array) -> None:
    """Put the columns of B after those of the block, and zeros after them."""
    m, q = B.shape
    for c in range(max(0, m - start), STRIP):
        target = start + c - m
        for i in range(m):
            strip[i * STRIP + c] = B[i, target] if target < q else 0.0


@_inlined
def _subtract(Y: _Array, A: _Array, X: _Array) -> None:
    """Subtract Aᵀ X from the panel Y, for the panel X and the 8 columns A of another one."""
    for r in range(0, PANEL, 2):
        for c in range(STRIP):
            y0, y1 = Y[r * STRIP + c], Y[(r + 1) * STRIP + c]
            for k in range(PANEL):
                x = X[k * STRIP + c]
                y0 -= A[k * STRIP + r] * x
                y1 -= A[k * STRIP + r + 1] * x
            Y[r * STRIP + c], Y[(r + 1) * STRIP + c] = y0, y1


@_compiled
def _factorise(A: _Array, U: _Array, size: int) -> bool:
    """Factorise the 8 columns A of a panel; U gets the reciprocals of its diagonal there.

    Rows from ``size`` on only fill up the panel. False if A is not positive definite.
    """
    is_definite, n = True, PANEL
    for i in range(n):
        for j in range(i, n):
            U[i * n + j] = A[i * STRIP + j]
    for k in range(n):
        pivot = U[k * n + k] if k < size else 1.0
        is_definite &= pivot > 0.0
        U[k * n + k] = 1.0 / np.sqrt(pivot)
        for j in range(k + 1, n):
            U[k * n + j] *= U[k * n + k]
        for i in range(k + 1, n):
            for j in range(i, n):
                U[i * n + j] -= U[k * n + i] * U[k * n + j]
    return is_definite


@_compiled
def _divide(Y: _Array, u: _Array) -> None:
    """Solve Uᵀ X = Y in place for a panel: written out, since only so it becomes vectors."""
    w = STRIP
    for c in range(STRIP):
        y0 = Y[c] * u[0]
        y1 = (Y[w + c] - u[1] * y0) * u[9]
        y2 = (Y[2 * w + c] - u[2] * y0 - u[10] * y1) * u[18]
        y3 = (Y[3 * w + c] - u[3] * y0 - u[11] * y1 - u[19] * y2) * u[27]
        y4 = Y[4 * w + c] - u[4] * y0 - u[12] * y1 - u[20] * y2 - u[28] * y3
        y5 = Y[5 * w + c] - u[5] * y0 - u[13] * y1 - u[21] * y2 - u[29] * y3
        y6 = Y[6 * w + c] - u[6] * y0 - u[14] * y1 - u[22] * y2 - u[30] * y3
        y7 = Y[7 * w + c] - u[7] * y0 - u[15] * y1 - u[23] * y2 - u[31] * y3
        y4 *= u[36]
        y5 = (y5 - u[37] * y4) * u[45]
        y6 = (y6 - u[38] * y4 - u[46] * y5) * u[54]
        y7 = (y7 - u[39] * y4 - u[47] * y5 - u[55] * y6) * u[63]
        Y[c], Y[w + c], Y[2 * w + c], Y[3 * w + c] = y0, y1, y2, y3
        Y[4 * w + c], Y[5 * w + c], Y[6 * w + c], Y[7 * w + c] = y4, y5, y6, y7


@_compiled
def _eliminate(strips: _Array, s: int, corners: _Array, m: int) -> bool:
    """Turn strip s of (A | B) into that of (U | U⁻ᵀ B), from the strips before it."""
    size, is_definite = PANEL * STRIP, True
    strip = strips[s]
    for p in range(min((s + 1) * STRIP // PANEL, len(corners))):
        Y = strip[p * size : (p + 1) * size]
        home, column = p * PANEL // STRIP, p * PANEL % STRIP  # where the columns of panel p are
        others = strips[home][column:]
        for k in range(p):
            _subtract(Y, others[k * size :], strip[k * size :])
        if home == s:
            is_definite &= _factorise(Y[column:], corners[p], m - p * PANEL)
        _divide(Y, corners[p])
    return is_definite


@_compiled
def _substitute(strips: _Array, corners: _Array, m: int, y: _Array, x: _Array) -> None:
    """Solve U x = y for m rows; y is a column of a strip, x is padded by zeros."""
    x[:] = 0.0
    for i in range(m - 1, -1, -1):
        total = y[i * STRIP]
        for s in range(i // STRIP, (m + STRIP - 1) // STRIP):
            U = strips[s][i * STRIP : (i + 1) * STRIP]
            for c in range(STRIP):
                total -= U[c] * x[s * STRIP + c]
        x[i] = total * corners[i // PANEL, i % PANEL * (PANEL + 1)]


def _solve_gathered(G: _Array, h: _Array, rows: _Array, B: _Array, out: _Array) -> None:
    """Solve (G - h hᵀ)_SS x = B for every set S in ``rows``; NaN where it is not definite.

    Every S ascends, so that the lower triangle of G is enough.
    """
    t, m = rows.shape
    q = B.shape[2]
    n_panels, n_strips = (m + PANEL - 1) // PANEL, (m + q + STRIP - 1) // STRIP
    strips = np.zeros((n_strips, n_panels * PANEL * STRIP))
    corners = np.zeros((n_panels, PANEL * PANEL))
    x = np.zeros(n_strips * STRIP)
    for f in range(t):
        S, is_definite = rows[f], True
        h_S = h[S]
        for s in range(n_strips):
            if s * STRIP < m:
                _gather(G, h_S, S, s * STRIP, strips[s])
            if (s + 1) * STRIP > m:
                _append(B[f], s * STRIP, strips[s])
            is_definite &= _eliminate(strips, s, corners, m)
        for c in range(q):
            y = strips[(m + c) // STRIP][(m + c) % STRIP :]
            _substitute(strips, corners, m, y, x)
            for i in range(m):
                out[f, i, c] = x[i] if is_definite else np.nan


solve_gathered = Entry(_solve_gathered, _OPTIONS)


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
