"""Which kernel and which ridges a model gets: the search behind ``KernelRidgeCV``.

Every kernel is scored with all its ridges (:mod:`everyfold.kernel_ridge.ridge_scores`). Gammas are
those of a list, or are searched without a grid: all ridges of a gamma follow from one
factorisation, so that gamma alone has to be searched, for many rows by low-rank kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.estimators.model import Model
from everyfold.kernel_ridge.ridge_scores import Judge, RidgeScores, score_ridges
from everyfold.kernels import Kernel
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators import FixedLandmarks, Nystrom, Structure
from everyfold.operators.base import SupportsResponse, require
from everyfold.operators.response import Solution
from everyfold.solvers import Problem

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

# Differences of scores near 1 that are rounding: of rows that occur several times, say, which their
# copies predict with any kernel.
_ROUNDING = 1e-9


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
    least = found[top] + _rounding(found[top])
    if abs(power - top) > _NEAR and score(10.0**power) > least:
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
        margin = max(_ALIKE * room, _rounding(best))
        good = [power for power, value in found.items() if value >= best - margin]
        middle = self.lowest - FARTHEST[0]
        return min(good, key=lambda power: abs(power - middle))


def _rounding(score: float) -> float:
    """What makes no difference to a score; nothing of a loss, whose unit is not known."""
    return _ROUNDING if score > 0.0 else 0.0


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


# Rows from which gamma is searched by landmarks, and how many of them there are: some for powers of
# ten, more for the steps between them. With 250 of these the error was 1.3 to 1.7 times as large on
# sets that need many (image, cpusmall; benchmarks/kernel_ridge_cv.py).
FEW_LANDMARKS, LANDMARKS = 100, 400

# Landmarks are drawn with a narrower kernel than that of the first gamma, which needs more of them.
NARROWER = 10.0

# Targets that gamma is searched by, where there are more.
SOME_TARGETS = 300

# Rows up to which a tuned ridge is the best of all by one eigendecomposition, some thirty times as
# much work as the Cholesky factorisation of one ridge; and up to which the ridge that landmarks
# have found is compared with those beside it.
ALL_RIDGES_ROWS, NEXT_RIDGES_ROWS = 600, 1500


@dataclass(frozen=True)
class Chosen:
    """The winner, and all scores.

    Attributes
    ----------
    kernel : Kernel
    operator : SupportsResponse
        The kernel matrix of all rows.
    gamma : float or None
    ridges, scores : arrays of shape (targets,), or (1,) where targets share their ridge
    is_exact : bool
        Whether the scores are those of refits, up to rounding.
    tables : dict
        The scores of all ridges by gamma.
    solution : Solution or None
        The fit to all rows, where it is known.
    """

    kernel: Kernel
    operator: SupportsResponse
    gamma: float | None
    ridges: Array
    scores: Array
    is_exact: bool
    tables: dict[float | None, RidgeScores]
    solution: Solution | None


@dataclass(frozen=True)
class Tuned:
    """The best gamma of a search, and the best ridge with it."""

    gamma: float
    ridge: float


@dataclass
class Selection:
    """What is chosen from, and by what.

    Attributes
    ----------
    model : Model
        Kernel and operator; its gamma and its ridges are not used.
    X : {array, CSR matrix}
        Scaled rows.
    problem : Problem
    judge : Judge
    alphas : tuple of float or None
        None tunes the ridge.
    per_target : bool
        Whether every target has a ridge of its own.
    keeps_values : bool, default=False
        Whether the held-out values of all ridges are kept.
    """

    model: Model
    X: Matrix
    problem: Problem
    judge: Judge
    alphas: tuple[float, ...] | None
    per_target: bool
    keeps_values: bool = False

    def __post_init__(self) -> None:
        self._bases: dict[str, Array] = {}

    def among(self, gammas: tuple[float | None, ...], tuned: Tuned | None = None) -> Chosen:
        """The best of some gammas and of all ridges."""
        tables, best = {}, {}
        operator: SupportsResponse | None = None
        for gamma in gammas:
            operator = self._bound(self._kernel(gamma))
            tables[gamma] = self._table(operator, tuned)
            best[gamma] = self._best(tables[gamma])
        gamma = max(gammas, key=lambda own: float(np.mean(best[own][1])))
        ridges, scores, is_exact, solution = best[gamma]
        kernel = self._kernel(gamma)
        if operator is None or gamma != gammas[-1]:
            operator = self._bound(kernel)
        return Chosen(kernel, operator, gamma, ridges, scores, is_exact, tables, solution)

    def tuned(self, random: np.random.RandomState) -> Tuned:
        """The best gamma by a search in one dimension, with its best ridge."""
        centre = typical_gamma(self._kernel(1.0), self.X, self.problem.w, random)
        part = self._of_some_targets(random)
        seeds = random.randint(2**31 - 1, size=2)
        ridges: dict[float, float] = {}

        def score_by(count: int) -> Callable[[float], float]:
            few = part._by_landmarks(count, centre, int(seeds[int(count == LANDMARKS)]))

            def score(gamma: float) -> float:
                operator = few._bound(few._kernel(gamma))
                found = few._scores(operator, few._ridges(operator, RIDGES[::2]))
                ridges[gamma], best = _peak(found, self.per_target)
                return best

            return score

        gamma = best_gamma(score_by(FEW_LANDMARKS), score_by(LANDMARKS), centre)
        return Tuned(gamma, ridges[gamma])

    def _of_some_targets(self, random: np.random.RandomState) -> Selection:
        """The same with some of many targets."""
        q = self.problem.y.shape[1]
        if q <= SOME_TARGETS or not self.judge.splits_targets:
            return self
        some = np.sort(random.choice(q, SOME_TARGETS, replace=False))
        problem = replace(self.problem, y=self.problem.y[:, some])
        return Selection(
            self.model, self.X, problem, self.judge.among(some), self.alphas, self.per_target
        )

    def _by_landmarks(self, count: int, centre: float, seed: int) -> Selection:
        """The same with some rows for landmarks, where there are enough others."""
        if 3 * count > 2 * self.X.shape[0] or isinstance(self.model.operator, Structure):
            return replace(self, keeps_values=False)
        drawn = Nystrom(count, random_state=seed)
        narrow = self._kernel(NARROWER * centre)
        landmarks = drawn.landmarks(narrow, self.X).features.landmarks
        model = replace(self.model, operator=FixedLandmarks(landmarks))
        return replace(self, model=model, keeps_values=False)

    # -- one kernel --------------------------------------------------------------------------------

    def _kernel(self, gamma: float | None) -> Kernel:
        choice = self.model.choice
        return replace(choice, gamma=gamma).resolve(self.X)

    def _bound(self, kernel: Kernel) -> SupportsResponse:
        """The matrix of a kernel; distances are computed once for all gammas."""
        structure = self.model.structure_to_fit(kernel, self.X.shape)
        anchors = structure.landmarks if isinstance(structure, FixedLandmarks) else None
        if kernel.base is None or not (structure.needs_base or anchors is not None):
            return require(structure.bind(kernel, self.X), SupportsResponse)
        if kernel.base not in self._bases:
            self._bases[kernel.base] = kernel.base_matrix(self.X, anchors)
        shared = structure.bind_shared(kernel, self.X, self._bases[kernel.base])
        return require(shared, SupportsResponse)

    def _ridges(self, operator: SupportsResponse, shares: Array) -> Array:
        """The ridges to choose from: those that were passed, or shares of the trace."""
        if self.alphas is not None:
            return np.array(self.alphas)
        return shares * (float(operator.diagonal() @ self.problem.w) or 1.0)

    def _scores(self, operator: SupportsResponse, ridges: Array) -> RidgeScores:
        """The scores of some ridges; tuned ones only where they are more than rounding."""
        found = score_ridges(
            self.problem, operator, ridges.tolist(), self.judge, keeps_values=self.keeps_values
        )
        if self.alphas is not None or not found.is_exact.any():
            return found
        return replace(found, scores=np.where(found.is_exact[:, None], found.scores, np.nan))

    def _table(self, operator: SupportsResponse, tuned: Tuned | None) -> RidgeScores:
        """The scores of all ridges, or of the one that landmarks have found and those beside it."""
        is_one = tuned is not None and self.alphas is None and not self.per_target
        if tuned is None or not is_one or operator.rank <= ALL_RIDGES_ROWS:
            return self._scores(operator, self._ridges(operator, RIDGES))
        found: dict[int, RidgeScores] = {}
        means: dict[int, float] = {}
        missing = [0]
        while missing:
            k = missing[0]
            ridge = tuned.ridge * (RIDGES[1] / RIDGES[0]) ** k
            found[k] = self._scores(operator, np.array([ridge]))
            is_known = found[k].is_exact.all() and np.isfinite(found[k].scores).all()
            means[k] = float(found[k].scores.mean()) if is_known else -np.inf
            top = max(means, key=means.__getitem__)
            if means[top] == -np.inf:  # rounding: a larger ridge is needed
                missing = [max(means) + 1] if len(means) < len(RIDGES) else []
            elif operator.rank <= NEXT_RIDGES_ROWS:
                missing = [k for k in (top + 1, top - 1) if k not in found]
            else:
                missing = []
        known = [k for k in sorted(found) if means[k] > -np.inf] or [0]
        return RidgeScores.joined([found[k] for k in known])

    def _best(self, found: RidgeScores) -> tuple[Array, Array, bool, Solution | None]:
        """The best ridges, of each target or of all, with scores and fit; the first of equals."""
        table = found.scores if self.per_target else found.scores.mean(axis=1, keepdims=True)
        if np.isnan(table).all(axis=0).any():
            raise ValueError(
                "no alpha has a score: the kernel matrix is not positive definite with any of them "
                f"({found.ridges.min():.3g} to {found.ridges.max():.3g}), or the scorer gave NaN; "
                "use larger alphas, or another scoring"
            )
        k = np.nanargmax(table, axis=0)
        scores: Array = table[k, np.arange(table.shape[1])]
        fit = found.solutions[int(k[0])] if len(k) == 1 else None
        return found.ridges[k], scores, bool(found.is_exact[k].all()), fit


def _peak(found: RidgeScores, per_target: bool) -> tuple[float, float]:
    """The ridge and the score at the peak of a parabola through the best ridge and those beside it.

    The score is then smooth in gamma. Targets that have ridges of their own have a mean score.
    """
    if np.isnan(found.scores).all():
        return float(found.ridges.max()), -np.inf
    if per_target:
        best = np.nanmax(found.scores, axis=0)
        return float(np.median(found.ridges)), float(np.mean(best))
    means = found.scores.mean(axis=1)
    k = int(np.nanargmax(means))
    if not 0 < k < len(means) - 1:
        return float(found.ridges[k]), float(means[k])
    shift, score = peak(*means[k - 1 : k + 2].tolist())
    beside = found.ridges[k + (1 if shift > 0.0 else -1)]
    return float(found.ridges[k] * (beside / found.ridges[k]) ** abs(shift)), score
