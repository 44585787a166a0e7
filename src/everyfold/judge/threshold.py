"""The decision threshold of a classifier, tuned on values of held-out rows.

Nothing is fitted: scikit-learn's own search of a threshold gets a classifier whose decision values
are known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

from everyfold._typing import AnyArray, Array, Matrix, Scorer, Search, Targets
from everyfold.engine.scoring.metrics import asks_for_predictions, positive_label
from everyfold.functions.cross_val import cross_val_predict
from everyfold.judge.fitted import index_of, is_ours


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


def tune_threshold(
    search: Search,
    scoring: Scorer = "balanced_accuracy",
    X: Matrix = None,
    y: Targets = None,
    *,
    candidate: int | None = None,
    thresholds: int | ArrayLike = 100,
    groups: ArrayLike | None = None,
) -> TunedThreshold:
    """Find the threshold of decision values with the best score of held-out rows (two classes).

    This is what :class:`sklearn.model_selection.TunedThresholdClassifierCV` does, with one
    difference: that class averages the score curves of the folds, whereas here all held-out
    values give one curve, so that small folds are no problem. To predict with the threshold, use
    ``FixedThresholdClassifier(search.best_estimator_, threshold=...,
    response_method="decision_function")``, and ``pos_label`` if the scorer has one.

    Parameters
    ----------
    search : fitted search
        One of this library, which has held-out values, so that nothing is fitted; or scikit-learn's
        own, whose candidate is cross-validated once more with ``cv`` of the search.
    scoring : str or scorer, default="balanced_accuracy"
        The score to maximise; it must need predicted labels only. "f1", "precision" and similar
        scores are those of class 1; for other labels, name the positive class:
        ``make_scorer(f1_score, pos_label="yes")``.
    X, y, groups
        The data of ``fit``, for scikit-learn's searches.
    candidate : int, optional
        Its index in ``cv_results_``; None means the best. Other candidates of this library's
        searches need ``MethodOptions(keeps="all")``.
    thresholds : int or array, default=100
        The number of thresholds to try between the smallest and the largest value, or the
        thresholds themselves.

    Returns
    -------
    tuned : TunedThreshold
        ``best_threshold`` and ``best_score``, which can be unpacked.

    Examples
    --------
    >>> from everyfold.judge import tune_threshold
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = GridSearchCV(RidgeClassifier(), {"alpha": [0.1, 1.0]}).fit(X, y)
    >>> threshold, score = tune_threshold(search, X=X, y=y)
    >>> round(threshold, 2), round(score, 2)
    (0.22, 0.97)
    """
    index = index_of(search, candidate)
    if is_ours(search):
        values, labels, classes = search._keeper.labelled(search._numbers[index])
        return _tune(values, labels, classes, scoring, thresholds)
    if not is_classifier(search):
        raise ValueError(NOT_A_CLASSIFIER)
    if X is None or y is None:
        raise ValueError(
            f"{type(search).__name__} keeps no held-out values; pass the data, X=... and y=..., to "
            "cross-validate its candidate once more, or use everyfold.FastGridSearchCV"
        )
    params = clone(search.cv_results_["params"][index], safe=False)
    model = clone(search.estimator).set_params(**params)
    values = cross_val_predict(model, X, y, groups=groups, cv=search.cv, method="decision_function")
    labels = np.asarray(y)
    return _tune(values, labels, np.unique(labels), scoring, thresholds)


NOT_A_CLASSIFIER = (
    "tune_threshold is for classifiers, but the estimator of the search is a regressor"
)


class KnownDecisions(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decision values are given as its rows."""

    def __init__(self, classes: AnyArray) -> None:
        self.classes = classes
        self.classes_ = classes

    def fit(self, X: Array, y: AnyArray) -> KnownDecisions:
        """Nothing: scikit-learn knows classifiers by this method."""
        return self

    def decision_function(self, X: Array) -> Array:
        """The rows, a single column as a vector."""
        return X[:, 0] if X.ndim == 2 and X.shape[1] == 1 else X


def _tune(
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
        KnownDecisions(classes),
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
