"""Compiled: gather a block of a matrix, factorise it, solve. Imported only where numba is.

Gathering by NumPy's fancy indexing costs more than LAPACK's Cholesky of the block that it makes
(blocks of 200 rows: three quarters of the time), and neither can be shared out over threads from
Python. Here both happen in one place in cache, without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

_Array = Any
_Function = TypeVar("_Function", bound=Callable[..., Any])
_njit: Any = njit
_OPTIONS = {"nogil": True, "fastmath": True, "error_model": "numpy"}


def _compiled(function: _Function) -> _Function:
    """Compile as a part of the entry below."""
    return cast(_Function, _njit(**_OPTIONS)(function))


@_compiled
def _corner(A: _Array, j: int) -> bool:
    """Factorise the 4×4 diagonal block at j; False if it is not positive definite."""
    for p in range(j, j + 4):
        d = A[p, p]
        for k in range(j, p):
            d -= A[p, k] * A[p, k]
        if not d > 0.0:
            return False
        d = np.sqrt(d)
        A[p, p] = d
        for u in range(p + 1, j + 4):
            s = A[u, p]
            for k in range(j, p):
                s -= A[u, k] * A[p, k]
            A[u, p] = s / d
    return True


@_compiled
def _panel(A: _Array, i: int, j: int) -> None:
    """Solve four rows below the diagonal block at j against it."""
    for u in range(i, i + 4):
        for p in range(j, j + 4):
            s = A[u, p]
            for k in range(j, p):
                s -= A[u, k] * A[p, k]
            A[u, p] = s / A[p, p]


@_compiled
def _subtract(A: _Array, i: int, j: int) -> None:
    """Subtract the products of rows i.. and j.. over the columns before j, sixteen at a time."""
    b0, b1, b2, b3 = A[j], A[j + 1], A[j + 2], A[j + 3]
    a0, a1, a2, a3 = A[i], A[i + 1], A[i + 2], A[i + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
    for k in range(j):
        c0, c1, c2, c3 = b0[k], b1[k], b2[k], b3[k]
        v = a0[k]
        s00 += v * c0
        s01 += v * c1
        s02 += v * c2
        s03 += v * c3
        v = a1[k]
        s10 += v * c0
        s11 += v * c1
        s12 += v * c2
        s13 += v * c3
        v = a2[k]
        s20 += v * c0
        s21 += v * c1
        s22 += v * c2
        s23 += v * c3
        v = a3[k]
        s30 += v * c0
        s31 += v * c1
        s32 += v * c2
        s33 += v * c3
    a0[j] -= s00
    a0[j + 1] -= s01
    a0[j + 2] -= s02
    a0[j + 3] -= s03
    a1[j] -= s10
    a1[j + 1] -= s11
    a1[j + 2] -= s12
    a1[j + 3] -= s13
    a2[j] -= s20
    a2[j + 1] -= s21
    a2[j + 2] -= s22
    a2[j + 3] -= s23
    a3[j] -= s30
    a3[j + 1] -= s31
    a3[j + 2] -= s32
    a3[j + 3] -= s33


@_compiled
def _cholesky(A: _Array) -> bool:
    """Replace the lower triangle of A, whose size is a multiple of 4, by its Cholesky factor."""
    n = len(A)
    for j in range(0, n, 4):
        _subtract(A, j, j)
        if not _corner(A, j):
            return False
        for i in range(j + 4, n, 4):
            _subtract(A, i, j)
            _panel(A, i, j)
    return True


@_compiled
def _gather(G: _Array, h: _Array, rows: _Array, A: _Array) -> None:
    """The lower triangle of (G - h hᵀ) on ``rows``, padded by the identity."""
    m = len(rows)
    for i in range(m):
        G_i, A_i, h_i = G[rows[i]], A[i], h[rows[i]]
        if h_i == 0.0:
            for j in range(i + 1):
                A_i[j] = G_i[rows[j]]
        else:
            for j in range(i + 1):
                A_i[j] = G_i[rows[j]] - h_i * h[rows[j]]
    for i in range(m, len(A)):
        A[i] = 0.0
        A[i, i] = 1.0


@_compiled
def _substitute(L: _Array, x: _Array) -> None:
    """Replace x by (L Lᵀ)⁻¹ x."""
    for i in range(len(x)):
        s = x[i]
        for k in range(i):
            s -= L[i, k] * x[k]
        x[i] = s / L[i, i]
    for i in range(len(x) - 1, -1, -1):
        v = x[i] / L[i, i]
        x[i] = v
        for k in range(i):
            x[k] -= v * L[i, k]


def _solve_gathered(G: _Array, h: _Array, rows: _Array, B: _Array, out: _Array) -> None:
    """Solve (G - h hᵀ)_SS x = B for every set S in ``rows``; NaN where it is not definite."""
    t, m = rows.shape
    size = (m + 3) // 4 * 4
    A = np.empty((size, size))
    x = np.zeros(size)
    for f in range(t):
        _gather(G, h, rows[f], A)
        is_definite = _cholesky(A)
        for c in range(B.shape[2]):
            x[m:] = 0.0
            for i in range(m):
                x[i] = B[f, i, c]
            if is_definite:
                _substitute(A, x)
            for i in range(m):
                out[f, i, c] = x[i] if is_definite else np.nan


try:
    solve_gathered: Any = _njit(cache=True, **_OPTIONS)(_solve_gathered)
except RuntimeError:  # a read-only installation without a place for a cache
    solve_gathered = _njit(**_OPTIONS)(_solve_gathered)
