"""Entry of fold paths: ascending Cs, each solved from the solution of the one before."""

from __future__ import annotations

import numpy as np

from everyfold.svm.core.compiling import Array, compiled, entry
from everyfold.svm.core.intrinsics import maximum, minimum, onward, pointer
from everyfold.svm.core.matrices import submatrix
from everyfold.svm.core.solver import DRIFT, solve
from everyfold.svm.core.state import (
    ON_ALL,
    Memory,
    Rows,
    bias,
    blank,
    copy,
    gradient,
    play_of_bias,
    prepare,
    set_box,
    spread,
)
from everyfold.svm.core.workspace import LANES


@compiled
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
        factor = minimum(maximum(slope / curvature, 1.0), ratio)
    for k in range(s.n):
        beta[k] *= factor
        exact[k] = factor * (exact[k] + p[k]) - p[k]
    return factor


@entry
def fold_paths(
    K: Array,
    rows: Array,
    starts: Array,
    p: Array,
    unit: Array,
    Cs: Array,
    eps: float,
    tol: float,
    max_iter: int,
    stop: Array,
    start: Array,
    decision: Array,
    coef: Array,
    summary: Array,
    leaps: int,
    widest: int,
    floats: Array,
    doubles: Array,
    integers: Array,
    kernel: Array,
    active: Array,
) -> None:
    """Go up the sorted Cs for some problems on one kernel, one after the other.

    Problem s has the entries from ``starts[s]`` to ``starts[s + 1]`` of ``rows``, its rows of the
    kernel, and of the last axis of all other arrays. Without any ``rows`` there is one, on all.
    ``unit`` holds the bounds l and h for C = 1. ``start``, ``decision`` and ``coef`` have a row for
    each C, or none: for starting from the former C, and for what is not asked for. ``summary`` has
    the columns intercept, iterations, violation, play of the intercept, spread of the values of
    training rows. ``leaps`` is the address of :class:`everyfold.svm.leaps.Leaps`. The last
    arguments are a workspace for rows of the kernel up to ``widest``.
    """
    memory = Memory(widest, pointer(floats), pointer(doubles), pointer(integers))
    every, part, room, halt = pointer(K), pointer(kernel), pointer(active), pointer(stop)
    starting, held, kept, told = pointer(start), pointer(decision), pointer(coef), pointer(summary)
    begins, grid, labels, lower = pointer(starts), pointer(Cs), pointer(p), pointer(unit)
    n_sets, n_C, total = starts.shape[0] - 1, Cs.shape[0], p.shape[0]
    is_started, is_held, is_kept = start.shape[0] > 0, decision.shape[0] > 0, coef.shape[0] > 0
    for problem in range(n_sets):
        first = begins[problem]
        n = begins[problem + 1] - first
        own, width = every, K.shape[1]
        if rows.shape[0] > 0:
            own, width = part, -(-n // LANES) * LANES
            submatrix(every, K.shape[1], onward(pointer(rows), first), n, own, width)
        s = blank(ON_ALL, own, onward(labels, first), n, width, eps, memory)
        scale = prepare(s)
        drift, spent, violation, b, play, differ = 0.0, 0, 0.0, 0.0, 0.0, 0.0
        for c in range(n_C):
            at, factor = c * total + first, 1.0
            if is_started:
                copy(onward(starting, at), s.beta, n)
                drift = np.inf
            elif c > 0:
                factor = _stretch(s, grid[c] / grid[c - 1])
            if factor == 0.0:
                spent = 0
            else:
                drift *= factor
                set_box(s, grid[c], onward(lower, first), onward(lower, total + first))
                if drift > DRIFT * tol:  # a large factor has magnified the rounding
                    gradient(s)
                    drift = 0.0
                patience = n if spent < n else n // 8
                spent, violation, drift = solve(
                    s, memory, room, scale, drift, tol, max_iter, patience, halt, leaps
                )
                b, play, differ = bias(s), play_of_bias(s), spread(s)
            if is_held:
                for k in range(n):
                    held[at + k] = s.exact[k] + s.p[k] + b
            if is_kept:
                copy(s.beta, onward(kept, at), n)
            report = onward(told, 5 * (problem * n_C + c))
            report[0], report[1], report[2], report[3] = b, spent, violation, play
            report[4] = differ
            if halt[0] != 0:
                return
