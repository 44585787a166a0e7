"""The width of a kernel by held-out scores, without a grid: a bounded search in one dimension.

All ridges of a gamma follow from one factorisation, so that gamma alone has to be searched; for
many rows by landmarks, whose kernel takes a few hundredths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.kernels import Kernel
from everyfold.kernels.pairwise import is_sparse

# Gammas that are tried first, in powers of 10 of the gamma at which typical rows are at distance 1,
# and how far beyond them the search may go where the last one is the best.
COARSE = (-3.0, -2.0, -1.0, 0.0, 1.0)
FARTHEST = (-6.0, 3.0)

# The step, in powers of 10, of the climb that follows, whose end is the peak of a parabola.
STEP = 0.5

# Ridges in powers of 10 of the trace of the kernel matrix. Below the first, held-out values of a
# wide kernel are rounding; above the last, nothing is learnt. A step of a third of a power costs
# less than 0.1 % of the error at its optimum.
RIDGES = np.logspace(-9.6, 0.0, 33)

# The shares of rows below the lowest and the highest value that count in the spread of a column.
# With quartiles, columns that are nearly constant (pixels at the edge, rare events) count too much.
_SHARES = (0.05, 0.95)

# Rows of which typical distances are taken.
_SAMPLE = 500

# Powers of 10 that make no difference to the score, and the share of what is left to a perfect
# score (0 for losses, 1 for others) that makes none between kernels.
_NEAR, _ALIKE = 0.05, 1e-3


Score = Callable[[float], float]


def best_gamma(rough: Score, score: Score, centre: float) -> float:
    """The gamma with the best score: among powers of ten by a rough one, then by small steps.

    Parameters
    ----------
    rough, score : callable
        The score of a gamma; more is better, NaN or -inf where there is none.
    centre : float
        Where the search begins.

    Examples
    --------
    >>> round(best_gamma(lambda g: -abs(np.log10(g)), lambda g: -(np.log10(g / 2.0) ** 2), 1.0), 6)
    2.0
    """
    middle = math.log10(centre)
    climb = _Climb(middle + FARTHEST[0], middle + FARTHEST[1])
    found = climb.run(rough, [middle + step for step in COARSE], 1.0)
    top = climb.top(found)
    found = climb.run(score, [top - STEP, top, top + STEP], STEP)
    top, powers = climb.top(found), sorted(found)
    k = powers.index(top)
    beside = [found[power] for power in powers[max(k - 1, 0) : k + 2]]
    power = top + (peak(*beside)[0] * STEP if len(beside) == 3 else 0.0)
    if abs(power - top) > _NEAR and score(10.0**power) > found[top]:
        top = power
    return float(10.0**top)


@dataclass(frozen=True)
class _Climb:
    """Scores along powers of 10 between two ends."""

    lowest: float
    highest: float

    def run(self, score: Score, powers: list[float], step: float) -> dict[float, float]:
        """The scores of some powers, and of further ones while the first or last is the best."""
        found: dict[float, float] = {}
        while powers:
            for power in powers:
                value = float(score(10.0**power))
                found[power] = value if math.isfinite(value) else -math.inf
            top = self.top(found)
            further = {min(found): top - step, max(found): top + step}.get(top, math.inf)
            powers = [further] if self.lowest <= further <= self.highest else []
        return found

    def top(self, found: dict[float, float]) -> float:
        """The best power; of those that are as good, the one that is nearest to the start.

        Wide kernels are all alike in the end, but for rounding.
        """
        best = max(found.values())
        room = -best if best < 0.0 else max(1.0 - best, 0.0)
        good = [power for power, value in found.items() if value >= best - _ALIKE * room]
        middle = self.lowest - FARTHEST[0]
        return min(good, key=lambda power: abs(power - middle))


def peak(before: float, top: float, after: float) -> tuple[float, float]:
    """Where the parabola through three scores has its peak, in steps from the middle, and how high.

    Where a neighbour is a cliff, the parabola says more of the cliff than of the peak: it is never
    higher than the middle is above the better neighbour.
    """
    curvature = after - 2.0 * top + before
    if not (math.isfinite(curvature) and curvature < 0.0):
        return 0.0, top
    slope = 0.5 * (after - before)
    shift = min(0.5, max(-0.5, -slope / curvature))
    return shift, top + min(0.5 * slope * shift, top - max(before, after))


def typical_gamma(
    kernel: Kernel, X: Matrix, weights: Array, random: np.random.RandomState
) -> float:
    """The gamma at which typical rows are at distance 1, or have the inner product 1."""
    rows = random.choice(X.shape[0], min(X.shape[0], _SAMPLE), replace=False)
    rows.sort()
    base, w = np.abs(kernel.base_matrix(X[rows])), weights[rows]
    pairs = np.triu_indices(len(rows), 1)
    between, weight = base[pairs], w[pairs[0]] * w[pairs[1]]
    is_apart = (between > 0.0) & (weight > 0.0)
    if not is_apart.any():
        return 1.0
    return 1.0 / float(_quantiles(between[is_apart, None], weight[is_apart], (0.5,))[0, 0])


def spread_of_columns(X: Matrix, weights: Array) -> Array:
    """A robust measure of the spread of every column, > 0.

    The range of all values but the 5 % largest and the 5 % smallest; the whole range of columns
    where that is 0, so that values which are rare do not count for more than others. A row of
    weight 2 counts as two rows, and one of weight 0 as none.
    """
    seen = X if (weights > 0.0).all() else X[weights > 0.0]
    if is_sparse(X):
        spread = (seen.max(axis=0) - seen.min(axis=0)).toarray().ravel()
    else:
        low, high = _quantiles(X, weights, _SHARES)
        spread = np.where(high > low, high - low, np.ptp(seen, axis=0))
    return np.where(spread > 0.0, spread, 1.0)


def _quantiles(X: Array, weights: Array, shares: tuple[float, ...]) -> Array:
    """Weighted quantiles of each column, (shares, columns): values that occur in it."""
    order = np.argsort(X, axis=0, kind="stable")
    below = np.cumsum(weights[order], axis=0)
    ranks = [np.argmax(below >= share * below[-1], axis=0) for share in shares]
    return np.stack([np.take_along_axis(X, order, 0)[k, np.arange(X.shape[1])] for k in ranks])
