"""Entries of the compiled solver: paths of ascending Cs, and rows left out of a model.

:func:`fold_paths` goes up in C, each solution starting from the one before. :func:`hold_out_rows`
and :func:`refit_rows` leave single rows out of a model that is fitted on all of them.
"""

from __future__ import annotations

import numpy as np

from everyfold.svm.core.compiling import (
    HALF,
    HIGHEST,
    TWO,
    ZERO,
    Array,
    Float32,
    Pointer,
    compiled,
    entry,
    maximum,
    merged,
    minimum,
    onward,
    pointer,
)
from everyfold.svm.core.solver import DRIFT, solve
from everyfold.svm.core.state import (
    KEPT,
    ON_ALL,
    Memory,
    SolverRows,
    bias,
    blank,
    centre,
    copy,
    gradient,
    open_sides,
    play_of_bias,
    prepare,
    set_box,
    spread,
    submatrix,
    uncentre,
)
from everyfold.svm.core.steps import descend, locate
from everyfold.svm.core.workspace import LANES


@compiled
def _stretch(s: SolverRows, ratio: float) -> float:
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
    joint_steps: int,
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
    training rows. ``joint_steps`` is the address of :class:`everyfold.svm.joint_steps.JointSteps`.
    The last arguments are a workspace for rows of the kernel up to ``widest``.
    """
    memory = Memory(widest, pointer(floats), pointer(doubles), pointer(integers))
    every, part, spare, halt = pointer(K), pointer(kernel), pointer(active), pointer(stop)
    starting, held, kept = pointer(start), pointer(decision), pointer(coef)
    reports = pointer(summary)
    begins, grid, labels, lower = pointer(starts), pointer(Cs), pointer(p), pointer(unit)
    n_sets, n_C, total = starts.shape[0] - 1, Cs.shape[0], p.shape[0]
    is_started, is_in_memory, is_kept = start.shape[0] > 0, decision.shape[0] > 0, coef.shape[0] > 0
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
            # No coefficient is at its bound: the solution of the C before is that of this one.
            if factor == 0.0:
                spent = 0
            else:
                drift *= factor
                set_box(s, grid[c], onward(lower, first), onward(lower, total + first))
                if drift > DRIFT * tol:  # a large factor has magnified the rounding
                    gradient(s)
                    drift = 0.0
                # After a C that took long, search early for the rows that can still move.
                patience = n if spent < n else n // 8
                spent, violation, drift = solve(
                    s, memory, spare, scale, drift, tol, max_iter, patience, halt, joint_steps
                )
                b, play, differ = bias(s), play_of_bias(s), spread(s)
            if is_in_memory:
                for k in range(n):
                    held[at + k] = s.exact[k] + s.p[k] + b
            if is_kept:
                copy(s.beta, onward(kept, at), n)
            report = onward(reports, 5 * (problem * n_C + c))
            report[0], report[1], report[2], report[3] = b, spent, violation, play
            report[4] = differ
            if halt[0] != 0:
                return


# Violations by which a held-out value must exceed 0 for its sign to be certain: few of them on the
# side of the row's own class, where values rarely fall back, and more on the other; see
# `_value_until_sure` and docs/mathematics.md, §7.
_OWN_SIDE, _OTHER_SIDE = 0.2, 1.5


@compiled
def _costs(s: SolverRows, i: int, sign: float, end: Pointer) -> Float32:
    """What it costs each row to take as much of row i's coefficient as it can; the least."""
    g, diag, cost, beta, Ki = s.g, s.diag, s.gain, s.beta, onward(s.K, i * s.width)
    kii, gi, side = diag[i], g[i], np.float32(sign)
    whole = np.float32(sign * beta[i])
    least = HIGHEST
    for k in range(s.width):
        slack = minimum(np.float32(sign * (end[k] - beta[k])), whole)
        bend = kii + diag[k] - TWO * Ki[k]
        value = side * (g[k] - gi) + HALF * slack * bend
        value = value if slack > ZERO else HIGHEST
        cost[k] = value
        least = minimum(least, value)
    return least


@compiled
def _hand_over(s: SolverRows, i: int) -> bool:
    """Give the coefficient of row i to others, piece by piece; False if they cannot take it.

    The row that takes it at the least cost comes first, and takes all that its bound allows.
    """
    beta, g, width = s.beta, s.g, s.width
    sign = 1.0 if beta[i] > 0.0 else -1.0
    end = s.hi if sign > 0.0 else s.lo
    while beta[i] != 0.0:
        least = _costs(s, i, sign, end)
        if least == HIGHEST:
            return False
        # The first place where null - cost >= -least: no cost is smaller.
        j = locate(width, s.null, s.gain, s.number, -least)
        slack = end[j] - beta[j]
        # What rounding adds to the slack, or takes from it, neither frees a row nor is handed on.
        is_just_enough = abs(slack - beta[i]) <= 1e-12 * (s.hi[j] - s.lo[j])
        d = beta[i] if is_just_enough or abs(slack) > abs(beta[i]) else slack
        beta[j] = end[j] if is_just_enough or d == slack else beta[j] + d
        beta[i] = 0.0 if d == beta[i] else beta[i] - d
        open_sides(s, j)
        step = np.float32(d)
        Ki, Kj = onward(s.K, i * width), onward(s.K, j * width)
        for k in range(width):
            g[k] += step * (Kj[k] - Ki[k])
    open_sides(s, i)
    return True


@compiled
def _restore(kept: SolverRows, s: SolverRows) -> None:
    """Put gradient, sides and coefficients of the model of all rows back."""
    for k in range(s.width):
        s.g[k] = kept.g[k]
        s.up[k] = kept.up[k]
        s.low[k] = kept.low[k]
        s.Kp[k] = ZERO
        s.beta[k] = kept.beta[k]


@merged
def _value_until_sure(
    s: SolverRows, i: int, beta: Pointer, base: float, tols: Array, max_iter: int
) -> tuple[float, bool]:
    """Minimise without row i until the sign of its value is certain; return both.

    ``base`` is the value at the coefficients ``beta`` of the model of all rows, without i and b.
    Without the row's own term the value starts too low, on the side of the other class, and rises
    as the other rows make up for it. Once it has risen past zero it rarely falls back, so the sign
    of the row's own class is certain well before that of the other class.
    """
    value = base
    spent = 0
    own = 1.0 if beta[i] > 0.0 else -1.0
    Ki = onward(s.K, i * s.width)
    for t in range(tols.shape[0]):
        done, violation, _ = descend(s, tols[t], max_iter - spent)
        spent += done
        uncentre(s, 0.0)
        value = base + bias(s)
        for k in range(s.n):
            if k != i:
                value += Ki[k] * (s.beta[k] - beta[k])
        is_sure = own * value > _OWN_SIDE * violation or -own * value > _OTHER_SIDE * violation
        if is_sure or spent >= max_iter:
            return value, is_sure
    return value, True


@entry
def hold_out_rows(
    K: Array,
    box: Array,
    beta: Array,
    exact: Array,
    near: Array,
    eps: float,
    tols: Array,
    max_iter: int,
    stop: Array,
    held: Array,
    is_sure: Array,
    widest: int,
    floats: Array,
    doubles: Array,
    integers: Array,
    kernel: Array,
    active: Array,
) -> None:
    """Values of the first rows of ``near``, each under the model that is fitted without the row.

    Only coefficients of rows in ``near`` change. ``exact`` is the gradient K beta - p of the model
    of all rows, and ``held`` comes with the sums of K_ij beta_j over j != i. It is not finite for a
    row without which nothing can be fitted. The last arguments are a workspace.
    """
    count = near.shape[0]
    own = pointer(kernel)
    submatrix(pointer(K), K.shape[1], pointer(near), count, own, widest)
    memory = Memory(widest, pointer(floats), pointer(doubles), pointer(integers))
    kept = blank(KEPT, own, pointer(exact), count, widest, eps, memory)
    s = blank(ON_ALL, own, pointer(exact), count, widest, eps, memory)
    prepare(s)
    for a in range(count):
        k = near[a]
        s.lo[a] = box[0, k]
        s.hi[a] = box[1, k]
        s.beta[a] = beta[k]
        s.exact[a] = exact[k]
        open_sides(s, a)
    shift, _, _ = centre(s)
    _restore(s, kept)
    for a in range(held.shape[0]):
        lo, hi = s.lo[a], s.hi[a]
        _restore(kept, s)
        s.lo[a] = 0.0
        s.hi[a] = 0.0
        base = held[a] + shift
        held[a] = np.nan
        if _hand_over(s, a):
            held[a], is_sure[a] = _value_until_sure(s, a, kept.beta, base, tols, max_iter)
        s.lo[a] = lo
        s.hi[a] = hi
        if stop[0] != 0:
            return


@entry
def refit_rows(
    K: Array,
    box: Array,
    beta: Array,
    p: Array,
    rows: Array,
    eps: float,
    tol: float,
    max_iter: int,
    stop: Array,
    held: Array,
    violation: Array,
    widest: int,
    floats: Array,
    doubles: Array,
    integers: Array,
    kernel: Array,
    active: Array,
) -> None:
    """Values of ``rows``, each by the model that is fitted without it, to ``tol``.

    Like :func:`hold_out_rows`, but every row may move, and the solution is checked in float64 as
    that of a fold is. Rows without which nothing can be fitted are left as they come.
    """
    n = p.shape[0]
    memory = Memory(widest, pointer(floats), pointer(doubles), pointer(integers))
    kept = blank(KEPT, pointer(K), pointer(p), n, widest, eps, memory)
    s = blank(ON_ALL, pointer(K), pointer(p), n, widest, eps, memory)
    spare, halt = pointer(active), pointer(stop)
    scale = prepare(s)
    for k in range(n):
        s.lo[k] = box[0, k]
        s.hi[k] = box[1, k]
        s.beta[k] = beta[k]
        open_sides(s, k)
    gradient(s)
    centre(s)
    _restore(s, kept)
    for a in range(rows.shape[0]):
        i = rows[a]
        lo, hi = s.lo[i], s.hi[i]
        _restore(kept, s)
        s.lo[i] = 0.0
        s.hi[i] = 0.0
        if _hand_over(s, i):
            gradient(s)
            _, violation[a], _ = solve(s, memory, spare, scale, 0.0, tol, max_iter, n, halt, 0)
            held[a] = s.exact[i] + s.p[i] + bias(s)
        s.lo[i] = lo
        s.hi[i] = hi
        if stop[0] != 0:
            return
