"""Plots of out-of-fold predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from sklearn.base import is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
    roc_auc_score,
)

from everyfold.display.table import Axes, new_axes, plain
from everyfold.display.worst import known_rows
from everyfold.types import AnyArray, Search

MOST_NUMBERS = 20
"""With more classes than that the confusion matrix is colours without numbers."""

MOST_CURVES = 10
"""Of more classes than that the hardest have an ROC curve."""

Kind = Literal["predicted", "confusion", "roc", "calibration"]

_METHODS = {
    "predicted": "predict",
    "confusion": "predict",
    "roc": "decision_function",
    "calibration": "predict_proba",
}


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
        """Draw the held-out values that a fitted search has kept (``keep_predictions``).

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
        is_long = len(names) * max(map(len, names)) > 40
        shown = ConfusionMatrixDisplay.from_predictions(
            self.truth,
            self.values,
            labels=labels,
            display_labels=names,
            include_values=len(names) <= MOST_NUMBERS,
            xticks_rotation="vertical" if is_long else "horizontal",
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
