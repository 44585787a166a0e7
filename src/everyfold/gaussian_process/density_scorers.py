r"""Scores of predicted normal distributions: log density, CRPS, coverage of intervals.

Each is a scorer for estimators whose ``predict`` has ``return_std``. In :func:`cross_val_score` the
distributions of all folds of a Gaussian process come from one factorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy.stats import norm

from everyfold._sklearn_private import safe_indexing
from everyfold._typing import Array, Estimator, Index, Matrix, Targets
from everyfold.adapters.pipelines import final_step
from everyfold.gaussian_process.held_out_gaussians import DistributionFolds, is_shared


def log_density(y: Array, mean: Array, std: Array) -> Array:
    """The logarithm of the density of each observation under its normal distribution.

    Examples
    --------
    >>> log_density(np.array([0.0]), np.array([0.0]), np.array([1.0])).round(3)
    array([-0.919])
    """
    return np.asarray(norm.logpdf(y, mean, std))


def crps(y: Array, mean: Array, std: Array) -> Array:
    r"""The continuous ranked probability score of normal distributions, in the unit of y.

    :math:`\int (F(t) - 1[t \ge y])^2\,dt`, the absolute error of a distribution: less is better.

    Examples
    --------
    >>> crps(np.array([0.0, 3.0]), np.zeros(2), np.ones(2)).round(3)
    array([0.234, 2.437])
    """
    z = (y - mean) / std
    inner: Array = z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi)
    return std * inner


def quantile_of(y: Array, mean: Array, std: Array) -> Array:
    """The share of each predicted distribution below its observation: uniform if calibrated.

    Examples
    --------
    >>> quantile_of(np.array([0.0, 1.0]), np.zeros(2), np.ones(2)).round(2)
    array([0.5 , 0.84])
    """
    return np.asarray(norm.cdf(y, mean, std))


@dataclass(frozen=True)
class DensityScorer:
    """A scorer of predicted normal distributions; more is better.

    Attributes
    ----------
    metric : callable
        ``metric(y, mean, std)``, a number for each observation.
    sign : float
    """

    metric: Callable[[Array, Array, Array], Array]
    sign: float = 1.0

    def __call__(self, estimator: Estimator, X: Matrix, y: Targets) -> float:
        """The score of a fitted estimator.

        The noise ``alpha`` of a Gaussian process is part of what is predicted of observations.
        """
        mean, std = estimator.predict(X, return_std=True)
        estimator = final_step(estimator)
        noise = getattr(estimator, "alpha", 0.0)
        if hasattr(estimator, "X_train_"):
            if not isinstance(noise, Real):
                raise ValueError(
                    "alpha with a number for each training row says nothing of the noise of new "
                    "rows; use a WhiteKernel, or cross_val_score on the rows themselves"
                )
            std = np.sqrt(std**2 + noise * np.square(np.ravel(estimator._y_train_std)))
        return self._of(np.asarray(y), mean, std)

    def shares_folds(self, estimator: Estimator) -> bool:
        """Whether folds that leave rows out need no refits of an estimator."""
        return is_shared(estimator)

    def distributions(
        self, estimator: Estimator, X: Matrix, y: Targets, splits: Sequence[tuple[Index, Index]]
    ) -> DistributionFolds:
        """What :meth:`of_folds` of any such scorer takes; raises if folds share nothing."""
        folds = DistributionFolds(estimator, X, y, None, splits, None)
        folds.check_shared()
        return folds

    def of_folds(self, folds: DistributionFolds) -> Array:
        """The scores of all folds."""
        found, scores = folds.shared, []
        if found is None:
            for model, test in folds.refits():
                rows, truth = safe_indexing(folds.X, test), safe_indexing(folds.y, test)
                scores.append(self(model, rows, truth))
            return np.array(scores)
        y = np.reshape(folds.y, (len(folds.y), -1))[found.folds.test_rows]
        each = self.metric(y, found.mean, found.spread).mean(axis=1)
        bounds = found.folds.bounds
        return self.sign * np.add.reduceat(each, bounds[:-1]) / np.diff(bounds)

    def _of(self, y: Array, mean: Array, std: Array) -> float:
        return self.sign * float(np.mean(self.metric(y, mean, std)))


@dataclass(frozen=True)
class IntervalCoverage:
    """The share of observations in their central intervals of this level."""

    level: float

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level!r} is not allowed; use a number between 0 and 1")

    def __call__(self, y: Array, mean: Array, std: Array) -> Array:
        """1 for observations inside, 0 for those outside."""
        half = float(norm.ppf(0.5 + 0.5 * self.level))
        return (np.abs(y - mean) <= half * std).astype(np.float64)


log_density_scorer = DensityScorer(log_density)
neg_crps_scorer = DensityScorer(crps, -1.0)


def coverage_scorer(level: float = 0.9) -> DensityScorer:
    """A scorer for the share of observations in their central intervals of a level.

    It is to be near the level, so that it says how well intervals are calibrated, and is no score
    to select by.

    Examples
    --------
    >>> coverage_scorer(0.5).metric(np.array([0.1, 2.0]), np.zeros(2), np.ones(2))
    array([1., 0.])
    """
    return DensityScorer(IntervalCoverage(level))
