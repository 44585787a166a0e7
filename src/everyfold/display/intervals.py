"""Predicted against true values, with prediction intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from everyfold.display.table import Axes, new_axes
from everyfold.types import Array, Estimator, Mask, Matrix, Targets


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalDisplay:
    """Predictions with their intervals against the true values.

    Create it with :meth:`from_estimator`.

    Parameters
    ----------
    measured, predicted : arrays of shape (n_samples,)
    intervals : array of shape (n_samples, 2)
        Lower and upper bounds.
    confidence : float
        The share of rows that the intervals should cover.

    Attributes
    ----------
    coverage_ : float
        The share of rows that the intervals do cover.
    ax_, figure_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import FastCrossConformalRegressor, IntervalDisplay, LSSVR
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> conformal = FastCrossConformalRegressor(LSSVR(gamma=1.0)).fit_conformalize(X[:300], y[:300])
    >>> display = IntervalDisplay.from_estimator(conformal, X[300:], y[300:])  # doctest: +SKIP
    """

    measured: Array
    predicted: Array
    intervals: Array
    confidence: float

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: Matrix, y: Targets, *, level: int = 0, ax: Axes = None
    ) -> IntervalDisplay:
        """Draw intervals of rows that the estimator was not fitted to.

        Parameters
        ----------
        estimator : fitted FastCrossConformalRegressor
        X, y
            New rows and their true values.
        level : int, default=0
            The index of the confidence level, if there are several.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : IntervalDisplay
        """
        check_is_fitted(estimator, "conformity_scores_")
        measured = column_or_1d(y, dtype=np.float64)
        points, intervals = estimator.predict_interval(X)
        if len(points) != len(measured):
            raise ValueError(
                f"y has {len(measured)} entries, but X has {len(points)} rows; pass one true "
                "value for each row"
            )
        levels = np.atleast_1d(estimator.confidence_level)
        known = {"measured": measured, "predicted": points, "intervals": intervals[:, :, level]}
        return cls(**known, confidence=float(levels[level])).plot(ax=ax)

    @property
    def is_covered(self) -> Mask:
        """The rows whose true value lies in its interval."""
        low, high = self.intervals.T
        covered: Mask = (low <= self.measured) & (self.measured <= high)
        return covered

    def plot(self, *, ax: Axes = None) -> IntervalDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        inside = self.is_covered
        self.coverage_ = float(inside.mean())
        low, high = self.intervals.T
        ax.vlines(self.predicted, low, high, color="C0", alpha=0.25, linewidth=1.5, zorder=1)
        for chosen, colour, word in ((inside, "C0", "inside"), (~inside, "C3", "outside")):
            label = f"{word} its interval ({np.count_nonzero(chosen)})"
            ax.scatter(
                self.predicted[chosen], self.measured[chosen], s=14, color=colour, label=label
            )
        ends = [float(self.predicted.min()), float(self.predicted.max())]
        ax.plot(ends, ends, color="black", linestyle="--", linewidth=1.0, zorder=2)
        asked = f"asked for {self.confidence:.0%}"
        ax.set(xlabel="predicted", ylabel="measured, and its interval")
        ax.legend(title=f"{self.coverage_:.1%} covered, {asked}", loc="upper left", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self
