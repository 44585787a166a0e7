"""Metrics of the papers that scikit-learn does not have, and scorers made of them.

Each metric has a second form that scores all folds of a search at once, which is entered in
``everyfold._extensions``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import make_scorer
from sklearn.utils.validation import check_consistent_length, column_or_1d

from everyfold._extensions import METRICS, MetricFacts
from everyfold._typing import AnyArray, Array, Label, Mask, Scorer
from everyfold.estimators.targets import Target
from everyfold.losses import HuberHinge

# From the scored rows of all folds and their values: the scores, and which of them are known.
# Rows with their target and folds, as the engine scores them.
_Rows: TypeAlias = Any
FastMetric = Callable[[_Rows, Array], tuple[Array, Mask]]


def huber_hinge_loss(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    h: float = 0.05,
    pos_label: Label | None = None,
    sample_weight: AnyArray | None = None,
) -> float:
    r"""The mean Huberised hinge loss of decision values: V in t-BIF (Liu & Liao 2017, 2018).

    .. math:: V(m) = 0 \text{ if } m > 1 + h,\quad (1 + h - m)^2 / 4h \text{ if } |1 - m| \le h,
              \quad 1 - m \text{ if } m < 1 - h

    with the margin m = ±u. It lies between the hinge loss and the hinge loss plus h/4.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        Labels of two classes.
    y_score : array of shape (n_samples,)
        Decision values; positive values mean ``pos_label``.
    h : float, default=0.05
        Half the width over which the hinge is smoothed; δ in the paper of 2017.
    pos_label : label, default=None
        By default the larger of two labels; if there is only one class, 1 if the labels are among 0
        and 1 or -1 and 1.
    sample_weight : array of shape (n_samples,), optional

    Examples
    --------
    >>> huber_hinge_loss([1, -1], [0.5, -1.0], h=0.1)
    0.2625
    """
    labels = column_or_1d(y_true)
    y = np.where(labels == _positive(labels, pos_label), 1.0, -1.0)
    u = column_or_1d(y_score).astype(np.float64)
    check_consistent_length(y, u)
    return float(np.average(HuberHinge(h).value(y, u), weights=sample_weight))


def _positive(labels: AnyArray, pos_label: Label | None) -> Label:
    """The label of positive decision values."""
    if pos_label is not None:
        return pos_label
    present = np.unique(labels).tolist()
    if len(present) == 2:
        return present[1]  # type: ignore[no-any-return]
    if len(present) == 1 and present[0] in (-1, 0, 1):
        return 1
    raise ValueError(
        f"y_true has the labels {present}, of which none is known to be positive; the Huberised "
        "hinge is for two classes, and pos_label names one of them where a test set has one only"
    )


def huber_hinge_scorer(h: float = 0.05, pos_label: Label | None = None) -> Scorer:
    """Make a scorer: minus :func:`huber_hinge_loss` of the decision function.

    Examples
    --------
    >>> from everyfold import HuberSVC, cross_val_score
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = HuberSVC(gamma=1e-5, h=0.05)
    >>> cross_val_score(model, X[:200], y[:200], cv=2, scoring=huber_hinge_scorer(0.05)).round(2)
    array([-0.22, -0.24])
    """
    HuberHinge(h)  # checks h
    options: dict[str, Any] = {"h": h} if pos_label is None else {"h": h, "pos_label": pos_label}
    return make_scorer(
        huber_hinge_loss, response_method="decision_function", greater_is_better=False, **options
    )


def coefficient_of_variation(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: AnyArray | None = None
) -> float:
    r"""CoV: the root mean squared error as a share of the mean of y (Edwards et al. 2013).

    .. math:: \sqrt{\tfrac1n\sum_i (y_i - \hat y_i)^2} \,/\, |\bar y|

    The energy experiments of the paper print it in per cent. It is for targets with a natural zero,
    such as consumption. For several targets it is the mean of theirs.

    Examples
    --------
    >>> coefficient_of_variation([1.0, 3.0], [2.0, 2.0])
    0.5
    """
    y, values = np.asarray(y_true, dtype=np.float64), np.asarray(y_pred, dtype=np.float64)
    if y.shape != values.shape:
        raise ValueError(f"y_true has shape {y.shape}, but y_pred {values.shape}")
    mean: Array = np.average(y, axis=0, weights=sample_weight)
    if np.any(mean == 0.0):
        raise ValueError(
            "the coefficient of variation is a share of the mean of y, which is 0 here; use "
            "root_mean_squared_error"
        )
    squared = np.average((y - values) ** 2, axis=0, weights=sample_weight)
    return float(np.mean(np.sqrt(squared) / np.abs(mean)))


# A scorer: minus :func:`coefficient_of_variation` of the predictions.
neg_coefficient_of_variation: Scorer = make_scorer(
    coefficient_of_variation, greater_is_better=False
)


# -- The same for all folds at once, for the scoring of searches ----------------------------------


def _fast_variation(scorer: Scorer, target: Target) -> FastMetric | None:
    """For scorers of predictions without options, such as :data:`neg_coefficient_of_variation`."""
    is_usual = scorer._kwargs == {} and scorer._response_method == "predict"
    return _variation_of_folds if is_usual and target.classes is None else None


def _variation_of_folds(rows: _Rows, values: Array) -> tuple[Array, Mask]:
    mean = np.abs(rows.mean(rows.y))
    root = np.sqrt(rows.mean((rows.y - values) ** 2))
    # Where the mean is 0, the metric itself is called, and raises the error.
    is_known = np.asarray((mean > 0.0).all(axis=1))
    return (root / np.where(mean > 0.0, mean, 1.0)).mean(axis=1), is_known


def _fast_huber_hinge(scorer: Scorer, target: Target) -> FastMetric | None:
    """For the decision function, where the target has two classes."""
    options = dict(scorer._kwargs)
    loss, label = HuberHinge(options.pop("h", 0.05)), options.pop("pos_label", None)
    is_usual = not options and scorer._response_method == "decision_function"
    if not is_usual or target.classes is None or len(target.classes) != 2:
        return None
    if label is not None and label not in target.classes.tolist():
        return None
    return HuberHinged(loss)


@dataclass(frozen=True)
class HuberHinged:
    """The mean Huberised hinge loss of the decision values of two classes."""

    loss: HuberHinge

    def __call__(self, rows: _Rows, values: Array) -> tuple[Array, Mask]:
        """The losses of all folds; scikit-learn is asked where one class is all there is."""
        signs = np.where(rows.codes == 1, 1.0, -1.0)
        losses = self.loss.value(signs, rows.target.decide(values))
        return rows.mean(losses), np.asarray((rows.class_counts > 0).all(axis=1))


METRICS[huber_hinge_loss] = MetricFacts(_fast_huber_hinge)
METRICS[coefficient_of_variation] = MetricFacts(
    _fast_variation,
    alone="the mean absolute percentage error",
    instead="'neg_mean_squared_error', which orders candidates as that of all rows would",
)
