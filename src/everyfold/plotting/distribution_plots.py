"""Whether predicted normal distributions are calibrated, in two pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm

from everyfold._typing import Array
from everyfold.plotting.score_table import Axes, pyplot

# Of the counts of a histogram, or the share inside an interval, that calibrated distributions give.
_BAND = 0.95

_LEVELS = np.linspace(0.02, 0.98, 49)


@dataclass(kw_only=True, eq=False, repr=False)
class DistributionCalibrationDisplay:
    """The calibration of predicted normal distributions: quantiles, and coverage against level.

    Left: the share of each distribution below its observation (the probability integral transform),
    as a histogram; calibrated distributions give a flat one. It is like a U where deviations are
    too small, a hill where they are too large, and slopes where means are biased. Right: the share
    of observations inside central intervals, against their level; on the diagonal if calibrated.
    The grey bands contain 95 % of what calibrated distributions of independent rows give.

    Create it with :meth:`from_predictions`.

    Parameters
    ----------
    quantiles : array of shape (n_samples,)
    name : str, optional

    Attributes
    ----------
    coverage : array of shape (49,)
        The shares inside the central intervals of the levels .02, .04, …, .98.
    axes_, figure_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold.plotting import DistributionCalibrationDisplay
    >>> y = np.random.default_rng(0).normal(size=200)
    >>> display = DistributionCalibrationDisplay.from_predictions(
    ...     y, np.zeros(200), np.ones(200)
    ... )  # doctest: +SKIP
    """

    quantiles: Array
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        name: str | None = None,
        bins: int = 10,
        axes: Axes = None,
    ) -> DistributionCalibrationDisplay:
        """Draw the calibration of distributions of held-out observations.

        Parameters
        ----------
        y_true : array of shape (n_samples,) or (n_samples, n_targets)
        mean, std : arrays of the same shape
            As :func:`everyfold.cross_val_predict` returns them with ``return_std=True``. ``std``
            has to include all noise: that of a ``WhiteKernel`` is in it, ``alpha`` is not.
        name : str, optional
            Of the model, for the legend.
        bins : int, default=10
        axes : pair of matplotlib Axes, optional

        Returns
        -------
        display : DistributionCalibrationDisplay
        """
        y, mu, sigma = (np.asarray(part, dtype=np.float64) for part in (y_true, mean, std))
        if not y.shape == mu.shape == sigma.shape:
            raise ValueError(
                f"y_true, mean and std have shapes {y.shape}, {mu.shape} and {sigma.shape}; pass "
                "three arrays of the same shape"
            )
        known = np.isfinite(mu) & np.isfinite(sigma)
        if not (sigma[known] > 0.0).all() or not known.any():
            raise ValueError("std must be > 0: a distribution of deviation 0 has no density")
        found = np.asarray(norm.cdf(y[known], mu[known], sigma[known]))
        return cls(quantiles=found, name=name).plot(bins=bins, axes=axes)

    @property
    def coverage(self) -> Array:
        """The share of observations inside the central intervals of all levels."""
        from_middle = 2.0 * np.abs(self.quantiles - 0.5)
        return np.asarray((from_middle[:, None] <= _LEVELS).mean(axis=0))

    def plot(self, *, bins: int = 10, axes: Axes = None) -> DistributionCalibrationDisplay:
        """Draw both pictures and return the display."""
        is_new = axes is None
        if is_new:
            _, axes = pyplot().subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
        left, right = axes
        n = len(self.quantiles)
        edges = np.linspace(0.0, 1.0, bins + 1)
        tail = (1.0 - _BAND) / 2.0
        if is_new:
            low, high = np.asarray(binom.ppf([tail, 1.0 - tail], n, 1.0 / bins)) * bins / n
            left.axhspan(low, high, color="0.85")
            left.axhline(1.0, color="black", linewidth=0.8)
            below, above = (np.asarray(binom.ppf(p, n, _LEVELS)) / n for p in (tail, 1.0 - tail))
            right.fill_between(_LEVELS, below, above, color="0.85")
            right.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=0.8)
        left.hist(self.quantiles, bins=edges, density=True, alpha=0.6, label=self.name)
        right.plot(_LEVELS, self.coverage, label=self.name)
        left.set(xlabel="share of the distribution below y", ylabel="density", xlim=(0.0, 1.0))
        right.set(xlabel="level of the interval", ylabel="observations inside")
        if self.name is not None:
            right.legend()
        self.axes_, self.figure_ = axes, left.figure
        return self
