"""Which kernel and which ridges a model gets: the search behind ``KernelRidgeCV``.

Every kernel is scored with all its ridges (:mod:`everyfold.kernel_ridge.ridge_scores`). Gammas are
those of a list, or are searched (:mod:`everyfold.kernel_ridge.gamma_search`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.estimators.model import Model
from everyfold.kernel_ridge.gamma_search import RIDGES, GammaSearch, typical_gamma
from everyfold.kernel_ridge.ridge_scores import Judge, RidgeScores, score_ridges
from everyfold.kernels import Kernel
from everyfold.operators import FixedLandmarks, Nystrom, Structure
from everyfold.operators.base import SupportsResponse, require
from everyfold.solvers import Problem

# Rows from which gamma is searched by landmarks, and how many of them there are. With 250 the fit
# took about two thirds of the time, and the error was 1.3 to 1.7 times as large on sets that need
# many (image, cpusmall; benchmarks/kernel_ridge_cv.py).
MANY_ROWS, LANDMARKS = 600, 400

# Landmarks are drawn with a narrower kernel than that of the first gamma, which needs more of them.
NARROWER = 10.0

# Targets that gamma is searched by, where there are more.
SOME_TARGETS = 300

# Rows up to which a tuned ridge is the best of all by one eigendecomposition, some thirty times as
# much work as the Cholesky factorisation of the one ridge that landmarks have found.
ALL_RIDGES_ROWS = 1500


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
    """

    kernel: Kernel
    operator: SupportsResponse
    gamma: float | None
    ridges: Array
    scores: Array
    is_exact: bool
    tables: dict[float | None, RidgeScores]


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
        for gamma in gammas:
            tables[gamma] = self._table(self._bound(self._kernel(gamma)), tuned)
            best[gamma] = self._best(tables[gamma])
        gamma = max(gammas, key=lambda own: float(np.mean(best[own][1])))
        ridges, scores, is_exact = best[gamma]
        kernel = self._kernel(gamma)
        return Chosen(kernel, self._bound(kernel), gamma, ridges, scores, is_exact, tables)

    def tuned(self, random: np.random.RandomState) -> Tuned:
        """The best gamma by a search in one dimension, with its best ridge."""
        centre = typical_gamma(self._kernel(1.0), self.X, self.problem.w, random)
        part = self._for_search(centre, random)
        ridges: dict[float, float] = {}

        def score(gamma: float) -> float:
            operator = part._bound(part._kernel(gamma))
            found = part._scores(operator, part._ridges(operator, RIDGES[::4]))
            ridges[gamma], best = _peak(found, self.per_target)
            return best

        gamma = GammaSearch(score, centre).run()
        return Tuned(gamma, ridges[gamma])

    def _for_search(self, centre: float, random: np.random.RandomState) -> Selection:
        """The same with landmarks in place of many rows, and with some of many targets."""
        model, problem, judge = self.model, self.problem, self.judge
        q = problem.y.shape[1]
        if q > SOME_TARGETS and judge.splits_targets:
            some = np.sort(random.choice(q, SOME_TARGETS, replace=False))
            problem, judge = replace(problem, y=problem.y[:, some]), judge.among(some)
        n = self.X.shape[0]
        if n > MANY_ROWS and not isinstance(model.operator, Structure):
            drawn = Nystrom(LANDMARKS, random_state=random.randint(2**31 - 1))
            narrow = self._kernel(NARROWER * centre)
            landmarks = drawn.landmarks(narrow, self.X).features.landmarks
            model = replace(model, operator=FixedLandmarks(landmarks))
        return Selection(model, self.X, problem, judge, self.alphas, self.per_target)

    # -- one kernel --------------------------------------------------------------------------------

    def _kernel(self, gamma: float | None) -> Kernel:
        choice = self.model.choice
        return replace(choice, gamma=gamma).resolve(self.X)

    def _bound(self, kernel: Kernel) -> SupportsResponse:
        """The matrix of a kernel; distances are computed once for all gammas."""
        structure = self.model.structure_to_fit(kernel, self.X.shape)
        if not structure.needs_base or kernel.base is None:
            return require(structure.bind(kernel, self.X), SupportsResponse)
        if kernel.base not in self._bases:
            self._bases[kernel.base] = kernel.base_matrix(self.X)
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
        """The scores of all ridges, or of the one that landmarks have found."""
        is_one = tuned is not None and self.alphas is None and not self.per_target
        if tuned is not None and is_one and operator.rank > ALL_RIDGES_ROWS:
            return self._scores(operator, np.array([tuned.ridge]))
        return self._scores(operator, self._ridges(operator, RIDGES))

    def _best(self, found: RidgeScores) -> tuple[Array, Array, bool]:
        """The best ridges and their scores, of each target or of all; of equal ones the first."""
        table = found.scores if self.per_target else found.scores.mean(axis=1, keepdims=True)
        if np.isnan(table).all(axis=0).any():
            raise ValueError(
                "no alpha has a score: the kernel matrix is not positive definite with any of them "
                f"({found.ridges.min():.3g} to {found.ridges.max():.3g}), or the scorer gave NaN; "
                "use larger alphas, or another scoring"
            )
        k = np.nanargmax(table, axis=0)
        scores: Array = table[k, np.arange(table.shape[1])]
        return found.ridges[k], scores, bool(found.is_exact[k].all())


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
    top, x = means[k], np.log(found.ridges)
    near = means[k - 1 : k + 2]
    if not 0 < k < len(means) - 1 or np.isnan(near).any() or (near < top).sum() < 2:
        return float(found.ridges[k]), float(top)
    slope, curvature = 0.5 * (near[2] - near[0]), near[2] - 2.0 * near[1] + near[0]
    shift = -slope / curvature
    step = x[k + 1] - x[k] if shift > 0 else x[k] - x[k - 1]
    # Where a neighbour is a cliff, a parabola says more of the cliff than of the peak.
    gain = min(-0.5 * slope**2 / curvature, top - max(near[0], near[2]))
    return float(np.exp(x[k] + shift * step)), float(top + gain)
