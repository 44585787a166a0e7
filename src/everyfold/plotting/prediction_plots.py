"""Plots of out-of-fold predictions, intervals, distributions, feature weights and influences.

Out-of-fold predictions are drawn by scikit-learn's own displays, with labels of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm
from sklearn.base import is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
    roc_auc_score,
)
from sklearn.utils.validation import check_is_fitted, column_or_1d

from everyfold._progress import rounded
from everyfold._typing import AnyArray, Array, Estimator, Index, Mask, Matrix, Search, Targets
from everyfold.plotting.score_table import Axes, new_axes, plain, pyplot

# With more classes than that the confusion matrix is colours without numbers, which would overlap.
MOST_NUMBERS = 20

# Of more classes than that only the hardest have an ROC curve: there are ten colours.
MOST_CURVES = 10

Kind = Literal["predicted", "confusion", "roc", "calibration"]

_METHODS = {
    "predicted": "predict",
    "confusion": "predict",
    "roc": "decision_function",
    "calibration": "predict_proba",
}


def known_rows(spread: Array) -> Index:
    """The rows that have an out-of-fold prediction, by how much the folds of each disagree."""
    return np.flatnonzero(~np.isnan(spread).reshape(len(spread), -1).any(axis=1))


@dataclass(kw_only=True, eq=False, repr=False)
class OutOfFoldDisplay:
    """Out-of-fold predictions of a candidate against the true values.

    Create it with :meth:`from_search`. It is drawn by scikit-learn's own displays.

    Parameters
    ----------
    kind : {"predicted", "confusion", "roc", "calibration"}
    truth, values : arrays
        The true values and the out-of-fold predictions of the held-out rows.

    Attributes
    ----------
    ax_, figure_
        Objects of matplotlib, available after plotting.
    displays_ : list
        scikit-learn's displays: one, or for "roc" with several classes one per class.

    Examples
    --------
    >>> from everyfold import FastGridSearchCV, LSSVR, OutOfFoldDisplay
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = FastGridSearchCV(LSSVR(gamma=1.0), {"alpha": [0.01, 0.1]}).fit(X, y)
    >>> display = OutOfFoldDisplay.from_search(search)  # doctest: +SKIP
    """

    kind: Kind
    truth: AnyArray
    values: AnyArray

    @classmethod
    def from_search(
        cls,
        search: Search,
        *,
        kind: Kind | None = None,
        candidate: int | None = None,
        ax: Axes = None,
    ) -> OutOfFoldDisplay:
        """Draw the held-out values that a fitted search has kept.

        Parameters
        ----------
        search : fitted FastGridSearchCV or FastRandomizedSearchCV
        kind : {"predicted", "confusion", "roc", "calibration"}, optional
            For numbers "predicted" against true values. For labels the "confusion" matrix, the
            "roc" curve (of each class against the others if there are several), or the
            "calibration" curve of probabilities (two classes and logistic loss). By default
            "predicted" or "confusion".
        candidate : int, optional
            Its index in ``cv_results_``; None means the best.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : OutOfFoldDisplay
        """
        labels = search.out_of_fold(candidate)
        is_number = not is_classifier(search)
        kind = ("predicted" if is_number else "confusion") if kind is None else kind
        if kind not in get_args(Kind):
            raise ValueError(f"kind={kind!r} is not known; use one of {list(get_args(Kind))}")
        if (kind == "predicted") != is_number or labels.truth.ndim > 1:
            raise ValueError(
                f"kind={kind!r} is not available for this target; use 'predicted' for one column "
                "of numbers, and 'confusion', 'roc' or 'calibration' for labels"
            )
        values = search.out_of_fold(candidate, _METHODS[kind]).values
        known = known_rows(labels.spread)
        truth, values = labels.truth[known], values[known]
        if kind == "confusion":  # labels are as the true ones again where all are known
            values = values.astype(truth.dtype)
        display = cls(kind=kind, truth=truth, values=values)
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> OutOfFoldDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        self.displays_ = list(getattr(self, f"_{self.kind}")(ax))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _predicted(self, ax: Axes) -> list[Any]:
        how = {"kind": "actual_vs_predicted", "ax": ax, "subsample": None}
        shown = PredictionErrorDisplay.from_predictions(self.truth, self.values, **how)
        ax.set(xlabel="out-of-fold prediction", ylabel="measured")
        return [shown]

    def _confusion(self, ax: Axes) -> list[Any]:
        labels = np.union1d(self.truth, self.values)
        names = [plain(label, 20) for label in labels]
        needs_blocks = len(names) * max(map(len, names)) > 40
        shown = ConfusionMatrixDisplay.from_predictions(
            self.truth,
            self.values,
            labels=labels,
            display_labels=names,
            include_values=len(names) <= MOST_NUMBERS,
            xticks_rotation="vertical" if needs_blocks else "horizontal",
            ax=ax,
            cmap="Blues",
            colorbar=False,
        )
        ax.set(xlabel="out-of-fold prediction", ylabel="true label")
        return [shown]

    def _roc(self, ax: Axes) -> list[Any]:
        classes = np.unique(self.truth)
        columns = self.values if self.values.ndim > 1 else self.values[:, None]
        each = classes[1:] if columns.shape[1] == 1 else classes
        if columns.shape[1] != len(each):
            raise ValueError(
                "kind='roc' needs one decision value per class, but the decision values are "
                f"those of pairs of {len(classes)} classes; use decision_function_shape='ovr'"
            )
        areas = [roc_auc_score(self.truth == label, columns[:, k]) for k, label in enumerate(each)]
        chosen = np.sort(np.argsort(areas, kind="stable")[:MOST_CURVES])
        shown = [
            RocCurveDisplay.from_predictions(
                self.truth == each[k],
                columns[:, k],
                name=plain(each[k], 20),
                ax=ax,
                plot_chance_level=k == chosen[-1],
            )
            for k in chosen
        ]
        for k, display in zip(chosen, shown, strict=True):
            # scikit-learn writes two decimals, with which an area of 0.996 would be 1.00.
            label = f"{plain(each[k], 20)} (AUC = {rounded(areas[k], 2)})"
            np.ravel(display.line_)[0].set_label(label)
        ax.legend(loc="lower right")
        positive = f" (positive: {plain(each[0], 20)})" if len(each) == 1 else " of each class"
        if len(chosen) < len(each):
            positive = f" of the {len(chosen)} hardest classes of {len(each)}"
        ax.set(xlabel="false positive rate", ylabel=f"true positive rate{positive}")
        return shown

    def _calibration(self, ax: Axes) -> list[Any]:
        classes = np.unique(self.truth)
        if len(classes) != 2:
            raise ValueError(
                f"kind='calibration' is for two classes, but there are {len(classes)}; use "
                "'confusion' or 'roc'"
            )
        how = {"n_bins": 10, "strategy": "quantile", "name": "out of fold", "ax": ax}
        truth = self.truth == classes[1]
        shown = CalibrationDisplay.from_predictions(truth, self.values[:, 1], **how)
        name = plain(classes[1], 20)
        ax.set(xlabel=f"mean out-of-fold probability of {name}", ylabel=f"share of {name}")
        return [shown]


# -- Predicted against true values, with prediction intervals -------------------------------------


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
        asked = f"asked for {rounded(self.confidence, 0, '%')}"
        ax.set(xlabel="predicted", ylabel="measured, and its interval")
        ax.legend(
            title=f"{rounded(self.coverage_, 1, '%')} covered, {asked}",
            loc="upper left",
            frameon=False,
        )
        self.ax_, self.figure_ = ax, ax.figure
        return self


# -- Weights of the features, on all rows and in each outer fold ----------------------------------


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


# -- Calibration of predicted normal distributions -------------------------------------------------

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


# -- The largest effects of deleting rows, groups or columns, as bars ------------------------------

_NAMES = {"rows": "row", "columns": "column", "permutations": "permuted column"}
# The result of ``everyfold.influence``, whose class is in a package above.
Influence: TypeAlias = Any


@dataclass(kw_only=True, eq=False, repr=False)
class InfluenceDisplay:
    """The rows, groups or columns whose deletion changes the score most.

    Create it with :meth:`from_influence`.

    Parameters
    ----------
    effect : array of shape (n_units,)
    labels : array of shape (n_units,)
    name : str
        What is deleted.
    n_shown : int

    Attributes
    ----------
    ax_, figure_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import LSSVR, influence
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> display = influence(LSSVR(gamma=1.0), X, y).plot()  # doctest: +SKIP
    """

    effect: Array
    labels: AnyArray
    name: str
    n_shown: int = 20

    @classmethod
    def from_influence(
        cls, influence: Influence, *, n_shown: int = 20, ax: Axes = None
    ) -> InfluenceDisplay:
        """Draw the result of :func:`everyfold.influence`.

        Parameters
        ----------
        influence : Influence
        n_shown : int, default=20
            The largest number of bars, which are those of the largest effects in either direction.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : InfluenceDisplay
        """
        if n_shown < 1:
            raise ValueError(f"n_shown={n_shown} is not allowed; use a number from 1 on")
        effect, labels = influence.effect, influence.labels
        name = _NAMES[influence.of]
        return cls(effect=effect, labels=labels, name=name, n_shown=n_shown).plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> InfluenceDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        known = np.flatnonzero(np.nan_to_num(self.effect))  # no bars of what changes nothing
        largest = known[np.argsort(-np.abs(self.effect[known]), kind="stable")[: self.n_shown]]
        shown = largest[np.argsort(self.effect[largest], kind="stable")]
        effect = self.effect[shown]
        colours = np.where(effect > 0.0, "C3", "C0")
        ax.barh(np.arange(len(shown)), effect, color=colours.tolist())
        ax.set_yticks(np.arange(len(shown)), [plain(label, 20) for label in self.labels[shown]])
        ax.axvline(0.0, color="black", linewidth=1.0)
        ax.set(xlabel=f"score without the {self.name} - score with it", ylabel=self.name)
        self.ax_, self.figure_ = ax, ax.figure
        return self
