"""The decision threshold of a classifier, tuned on values of held-out rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import get_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

from everyfold._typing import AnyArray, Array, Scorer
from everyfold.engine.scoring.metrics import asks_for_predictions, positive_label


class TunedThreshold(NamedTuple):
    """A threshold of decision values: rows at or above it get the positive class.

    That is the second of the two, unless the scorer names another (``pos_label``).

    Attributes
    ----------
    best_threshold : float
        Of decision values for the positive class: of those with the other sign if it is the first.
    best_score : float
        The score of all held-out rows with this threshold. As the threshold was chosen by this
        score, it is slightly too optimistic.
    """

    best_threshold: float
    best_score: float


class _Known(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decision values are given as its rows."""

    def __init__(self, classes: AnyArray | None = None) -> None:
        self.classes = classes
        self.classes_ = classes

    def fit(self, X: Array, y: AnyArray) -> _Known:
        return self

    def decision_function(self, X: Array) -> Array:
        return X[:, 0]

    def predict(self, X: Array) -> AnyArray:
        assert self.classes is not None
        return self.classes[(X[:, 0] > 0.0).astype(np.intp)]


def tune(
    values: Array, labels: AnyArray, classes: AnyArray, scoring: Scorer, thresholds: int | ArrayLike
) -> TunedThreshold:
    """The best of the thresholds for all values together, by scikit-learn's own search."""
    if len(classes) != 2:
        raise ValueError(
            f"tune_threshold is for two classes, but y has {len(classes)}; for more classes use "
            "FastCalibratedClassifierCV"
        )
    if not asks_for_predictions(get_scorer(scoring)):
        raise ValueError(
            f"scoring={scoring!r} does not score predicted labels, but a threshold changes only "
            "labels; use 'balanced_accuracy', 'f1' or another such scorer, or make_scorer for "
            "your own function"
        )
    _check_label(scoring, classes)
    if not np.isfinite(values).all():
        raise ValueError(
            "tune_threshold: a fold failed and has no held-out values; cv_results_ shows which, "
            "and error_score='raise' why"
        )
    if np.ptp(values) <= np.finfo(np.float64).eps * np.abs(values).max():
        raise ValueError(
            "tune_threshold: all held-out values are the same, so that no threshold separates "
            "the classes; search other parameters"
        )
    tuned = TunedThresholdClassifierCV(
        _Known(classes),
        scoring=scoring,
        response_method="decision_function",
        thresholds=thresholds,
        cv="prefit",
        refit=False,
    ).fit(values[:, None], labels)
    return TunedThreshold(float(tuned.best_threshold_), float(tuned.best_score_))


def _check_label(scoring: Scorer, classes: AnyArray) -> None:
    """Refuse a scorer of one class that is none of the two, and say how one of them is named."""
    scorer = get_scorer(scoring)
    label, labels = positive_label(scorer), classes.tolist()
    if label is None or label in labels:
        return
    options = {**scorer._kwargs, "pos_label": labels[1]}
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    raise ValueError(
        f"scoring={scoring!r} is a score of the class {label!r}, and y has {labels}; say which "
        f"class it is to be a score of: make_scorer({scorer._score_func.__name__}, {given})"
    )
