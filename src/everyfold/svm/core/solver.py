"""The solution for one C: pair steps, first on all rows, then on those that can still move.

:func:`solve` decides when to go on with fewer rows, when to compute the gradient anew in float64,
and when to ask for a joint step; :mod:`everyfold.svm.core.steps` has the pair steps themselves.
"""

from __future__ import annotations

from everyfold.svm.core.compiling import (
    HIGHEST,
    LOWEST,
    Pointer,
    ask,
    compiled,
    maximum,
    merged,
    minimum,
)
from everyfold.svm.core.state import (
    ON_ACTIVE,
    Memory,
    SolverRows,
    blank,
    centre,
    gradient,
    open_sides,
    submatrix,
    uncentre,
)
from everyfold.svm.core.steps import descend
from everyfold.svm.core.workspace import ACTIVE, LANES

# The share of the tolerance up to which the rounding of the gradient is not worth computing it
# anew, which costs a pass over the kernel in float64.
DRIFT = 0.01

# What rounding to float32 may change, relative to a number.
_EPS32 = 6e-8

# Pair steps between two checks of the stop flag: an interrupt waits for no more than these.
_SLICE = 4096

# Pair steps before the first joint step; how many there are to the next is the callback's answer.
_FIRST_JOINT_STEP = 256


@compiled
def _active_rows(s: SolverRows) -> int:
    """List rows that are free or might still move; return their number."""
    g, up, low = s.g, s.up, s.low
    top, bottom = LOWEST, HIGHEST
    count = 0
    for k in range(s.n):
        top = maximum(top, up[k] - g[k])
        bottom = minimum(bottom, low[k] - g[k])
    for k in range(s.n):
        # An infinite side never passes, so held-out rows go, and bound rows by their other side.
        if (up[k] - g[k] >= bottom and up[k] > LOWEST) or (
            low[k] - g[k] <= top and low[k] < HIGHEST
        ):
            s.active[count] = k
            count += 1
    return count


@compiled
def _take(s: SolverRows, small: SolverRows) -> None:
    """Copy the vectors of the active rows to the problem that has only these."""
    for a in range(small.n):
        k = s.active[a]
        small.g[a] = s.g[k]
        small.up[a] = s.up[k]
        small.low[a] = s.low[k]
        small.diag[a] = s.diag[k]
        small.beta[a] = s.beta[k]
        small.lo[a] = s.lo[k]
        small.hi[a] = s.hi[k]


@compiled
def _put_back(s: SolverRows, small: SolverRows) -> None:
    """Write the coefficients of the active rows back."""
    for a in range(small.n):
        k = s.active[a]
        s.beta[k] = small.beta[a]
        open_sides(s, k)


@merged
def solve(
    s: SolverRows,
    memory: Memory,
    spare: Pointer,
    scale: float,
    drift: float,
    tol: float,
    max_iter: int,
    patience: int,
    stop: Pointer,
    joint_steps: int,
) -> tuple[int, float, float]:
    """Solve one C from the coefficients and their gradient; keep both up to date.

    Works on all rows first. After ``patience`` pair steps it copies the kernel of the rows that can
    still move (the active rows) to ``spare`` and goes on there; every convergence on that part is
    checked on all rows in float64. ``scale`` is the largest entry of the diagonal of K, and
    ``drift`` bounds the rounding of the gradient so far. It ends soon after ``stop[0]`` is set, and
    asks for joint steps at the address ``joint_steps`` unless that is 0. Returns pair steps,
    violation, drift.
    """
    shift, violation, size = centre(s)
    rounding = _EPS32 * size
    drift += rounding
    small = s
    is_full = True
    spent, since_refresh, since_shrink = 0, 0, 0
    support = s.n
    aim = tol
    since_joint, until_joint = 0, _FIRST_JOINT_STEP
    while True:
        budget = max_iter - spent if max_iter - spent < _SLICE else _SLICE
        if joint_steps != 0 and budget > until_joint - since_joint:
            budget = until_joint - since_joint if until_joint > since_joint else 1
        if is_full and budget > patience - since_shrink:
            budget = patience - since_shrink if patience > since_shrink else 1
        done, violation, travel = descend(small, aim, budget)
        spent += done
        since_refresh += done
        since_shrink += done
        since_joint += done
        drift += rounding * done + _EPS32 * scale * travel
        # The violation in float32 is below what is aimed at, or steps or patience have run out.
        is_over = not violation > aim or spent >= max_iter or stop[0] != 0
        # On all rows, with a gradient that has hardly drifted, float32 is enough to stop.
        if is_full and is_over and drift <= DRIFT * tol:
            uncentre(s, shift)
            break
        # Otherwise compute the gradient anew in float64: to check that the end is reached, or
        # because it has drifted by a quarter of the tolerance and as many steps as it costs are
        # behind.
        if is_over or (drift > 0.25 * tol and since_refresh > support):
            if not is_full:
                _put_back(s, small)
            support = gradient(s)
            shift, violation, size = centre(s)
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
        # Go on with the rows that can still move, on a copy of their kernel.
        elif is_full and since_shrink >= patience:
            since_shrink = 0
            patience = s.n
            count = _active_rows(s)
            if count < ACTIVE * s.n:
                width = (count + LANES - 1) // LANES * LANES
                submatrix(s.K, s.width, s.active, count, spare, width)
                small = blank(ON_ACTIVE, spare, s.p, count, width, s.eps, memory)
                _take(s, small)
                is_full = False
        elif joint_steps != 0 and since_joint >= until_joint:
            until_joint = ask(
                joint_steps,
                small.K,
                small.n,
                small.width,
                small.g,
                small.stride,
                small.beta,
                since_joint,
            )
            if until_joint == 0:
                since_joint, until_joint = 0, _FIRST_JOINT_STEP
                drift += rounding
                for k in range(small.n):
                    open_sides(small, k)
    return spent, violation, drift
