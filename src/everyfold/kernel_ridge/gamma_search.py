"""The width of a kernel by held-out scores, without a grid: a bounded search in one dimension.

All ridges of a gamma follow from one factorisation, so that gamma alone has to be searched; for
many rows by landmarks, whose kernel takes a few hundredths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize_scalar

from everyfold._typing import Array, Matrix
from everyfold.kernels import Kernel
from everyfold.kernels.pairwise import is_sparse

# Gammas that are tried first, in powers of 10 of the gamma at which typical rows are at distance 1,
# and how far beyond them the search may go where the last one is the best.
COARSE = (-3.0, -2.0, -1.0, 0.0, 1.0)
FARTHEST = (-6.0, 3.0)

# Gammas that are tried between the neighbours of the best of these.
FINE = 7

# Ridges in powers of 10 of the trace of the kernel matrix. Below the first, held-out values of a
# wide kernel are rounding; above the last, nothing is learnt. A step of a third of a power costs
# less than 0.1 % of the error at its optimum.
RIDGES = np.logspace(-9.6, 0.0, 33)

# The shares of rows below the lowest and the highest value that count in the spread of a column.
# With quartiles, columns that are nearly constant (pixels at the edge, rare events) count too much.
_SHARES = (0.05, 0.95)

# Rows of which typical distances are taken.
_SAMPLE = 500


@dataclass
class GammaSearch:
    """The best of the gammas that were tried, and what was tried.

    Attributes
    ----------
    score : callable
        The score of a gamma; more is better, NaN or -inf where there is none.
    centre : float
        Where the search begins.
    tried : dict
        The scores by the logarithm of gamma to base 10.
    """

    score: Callable[[float], float]
    centre: float
    tried: dict[float, float] = field(default_factory=dict)

    def run(self) -> float:
        """The best gamma: that of a coarse grid first, then between its neighbours."""
        middle = math.log10(self.centre)
        for step in COARSE:
            self._loss(middle + step)
        best = self._best
        for farthest, sign in zip(FARTHEST, (-1.0, 1.0), strict=True):
            is_edge = best in (min(self.tried), max(self.tried))
            while is_edge and sign * (best - middle) > 0 and abs(best - middle) < abs(farthest):
                self._loss(best + sign)
                is_edge = self._best != best
                best = self._best
        bounds = best - 0.9, best + 0.9
        minimize_scalar(
            self._loss, bounds=bounds, method="bounded", options={"maxiter": FINE, "xatol": 0.05}
        )
        return float(10.0**self._best)

    def _loss(self, power: float) -> float:
        """What is minimised; remembered."""
        power = float(power)
        if power not in self.tried:
            self.tried[power] = float(np.nan_to_num(self.score(10.0**power), nan=-np.inf))
        found = self.tried[power]
        return -found if np.isfinite(found) else float(np.finfo(np.float64).max)

    @property
    def _best(self) -> float:
        return max(self.tried, key=lambda power: self.tried[power])


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
