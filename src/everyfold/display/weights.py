"""Weights of the features, on all rows and in each outer fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.display.table import Axes, pyplot
from everyfold.types import Array, Search


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureWeightsDisplay:
    """The share of every feature in the kernel, as bars, and that of each outer fold as points.

    Create it with :meth:`from_search`. If the points lie close together, the weight does not depend
    on a few rows; if they are scattered, do not rely on it.

    Parameters
    ----------
    names : sequence of str
        Names of the features, the largest weight first.
    weights : array of shape (features,)
    folds : array of shape (outer folds, features)
    left_out : int, default=0
        The number of features with smaller weights that are not shown.

    Attributes
    ----------
    ax_, figure_, bars_, points_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import FastGradientSearchCV, FeatureWeightsDisplay, LSSVR
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(80, random_state=0)
    >>> search = FastGradientSearchCV(LSSVR(), cv=3, max_iter=5)
    >>> display = FeatureWeightsDisplay.from_search(search.fit(X, y))  # doctest: +SKIP
    """

    names: Sequence[str]
    weights: Array
    folds: Array
    left_out: int = 0

    @classmethod
    def from_search(
        cls, search: Search, *, most: int = 20, ax: Axes = None
    ) -> FeatureWeightsDisplay:
        """Draw the weights of a fitted FastGradientSearchCV.

        Parameters
        ----------
        search : fitted FastGradientSearchCV
        most : int, default=20
            The maximum number of features to show, those with the largest weights.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : FeatureWeightsDisplay
        """
        if not hasattr(search, "feature_weights_"):
            raise ValueError(
                f"{type(search).__name__} has no feature_weights_; fit a FastGradientSearchCV first"
            )
        weights = np.array(list(search.feature_weights_.values()))
        order = np.argsort(-weights, kind="stable")[:most]
        every = [str(name) for name in search.feature_weights_]
        display = cls(
            names=[every[j] for j in order],
            weights=weights[order],
            folds=search.fold_weights_[:, order],
            left_out=len(weights) - len(order),
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> FeatureWeightsDisplay:
        """Draw the plot and return the display."""
        if ax is None:
            height = max(2.0, 0.8 + 0.28 * len(self.names))
            _, ax = pyplot().subplots(figsize=(6.0, height), layout="constrained")
        places = np.arange(len(self.names))
        self.bars_ = ax.barh(places, self.weights, color="C0", alpha=0.6, label="all rows")
        spread = np.tile(places, (len(self.folds), 1))
        jitter = np.linspace(-0.22, 0.22, len(self.folds))[:, None] if len(self.folds) > 1 else 0.0
        self.points_ = ax.scatter(
            self.folds, spread + jitter, s=12, color="C1", zorder=3, label="without an outer fold"
        )
        ax.set_yticks(places, self.names)
        ax.invert_yaxis()
        more = f" ({self.left_out} smaller ones left out)" if self.left_out else ""
        ax.set(xlabel=f"share in the kernel{more}", xlim=(0.0, None))
        ax.legend(frameon=False, fontsize="small", loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self
