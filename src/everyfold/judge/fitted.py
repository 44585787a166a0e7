"""What judgements read of a fitted search: scores of folds, sizes of folds, a decision threshold.

The search is one of this library or one of scikit-learn's own. The latter keep less: what cannot be
read from ``cv_results_`` is computed from ``X`` and ``y`` if they are passed, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    check_cv,
)
from sklearn.utils.validation import check_is_fitted

from everyfold._sklearn_private import num_samples, safe_indexing
from everyfold._typing import AnyArray, Array, Index, Matrix, Params, Scorer, Search, Targets
from everyfold.engine.records import REFITTED
from everyfold.engine.results import read_fold
from everyfold.engine.scoring.metrics import asks_for_predictions, positive_label
from everyfold.functions.cross_val import cross_val_predict, takes_groups

# What is drawn or held out as a whole.
Unit = Literal["row", "group"]

# Splitters that hold every row out once.
_OF_GROUPS = (GroupKFold, LeaveOneGroupOut, StratifiedGroupKFold)
_PARTITIONS = (KFold, LeaveOneOut, StratifiedKFold, *_OF_GROUPS)

NO_SCORE = (
    "no candidate has a score on every fold, so that none is the best; the warnings of the search "
    "say why: use another scoring, other folds, or other parameters"
)


def check_table(search: Search) -> None:
    """Refuse what has no table of candidates."""
    if hasattr(search, "best_estimator_") and not hasattr(search, "cv_results_"):
        raise ValueError(
            f"{type(search).__name__} has no cv_results_, so that there are no candidates to "
            "judge; use score_interval(search, X, y), or a grid search"
        )
    check_is_fitted(search, "cv_results_")


def is_ours(search: Search) -> bool:
    """Whether a fitted search is one of this library, which keeps more than ``cv_results_``."""
    return hasattr(search, "plan_")


def index_of(search: Search, candidate: int | None) -> int:
    """A candidate's place in the table; that of the best for None."""
    check_table(search)
    if candidate is None and not hasattr(search, "best_index_"):
        raise ValueError("the search has no best candidate; name one: candidate=0, 1, ...")
    if candidate is None:
        return int(search.best_index_)
    count = len(search.cv_results_["params"])
    if not -count <= candidate < count:
        raise ValueError(
            f"candidate {candidate} is not in cv_results_, which has {count}; use 0 to {count - 1}"
        )
    return range(count)[candidate]


def fold_scores(search: Search, candidate: int | None = None, name: str | None = None) -> Array:
    """The scores of all folds of a candidate.

    Parameters
    ----------
    search : fitted search
        One of this library, or scikit-learn's own.
    candidate : int, optional
        Its index in ``cv_results_``; the best if None.
    name : str, optional
        The name of a column of ``cv_results_`` without the split: "test_score", "train_score",
        "test_r2". None means the score that decided.

    Returns
    -------
    scores : array of shape (n_splits,)

    Examples
    --------
    >>> from everyfold.judge import fold_scores
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = GridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}, cv=3).fit(X, y - y.mean())
    >>> fold_scores(search).round(2)
    array([0.46, 0.5 , 0.51])
    """
    index = index_of(search, candidate)
    if name is None:
        is_named = search.multimetric_ and isinstance(search.refit, str)
        name = f"test_{search.refit if is_named else 'score'}"
    return read_fold(search.cv_results_, getattr(search, "_by_fold", {}), name, index)


class AnswersOfFold(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for the classifier of a fold: it knows what that said of its test rows only.

    They are all of them in order, or some of ``rows``, which are found by what is in them.
    """

    def __init__(self, classes: AnyArray, labels: AnyArray, values: AnyArray, rows: Matrix) -> None:
        self.classes = classes
        self.labels = labels
        self.values = values
        self.rows = rows

    @property
    def classes_(self) -> AnyArray:
        """The labels, in order."""
        return self.classes

    def fit(self, X: Matrix, y: Targets = None) -> NoReturn:
        """Refuse: scikit-learn knows estimators by this method."""
        raise ValueError("held-out values of a fold cannot be fitted; fit search.best_estimator_")

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _known(self, X: Matrix, answers: AnyArray) -> AnyArray:
        if num_samples(X) == len(answers):
            return answers
        places = {key: k for k, key in enumerate(_keys(self.rows))}
        found = [places.get(key, -1) for key in _keys(X)]
        if -1 in found:
            raise ValueError(
                f"X has {num_samples(X)} rows, but only the values of the {len(answers)} test "
                "rows of a fold are known; use search.best_estimator_ for other rows"
            )
        return answers[found]

    def predict(self, X: Matrix) -> AnyArray:
        """The labels of the test rows."""
        return self._known(X, self.labels)

    def decision_function(self, X: Matrix) -> AnyArray:
        """The decision values of the test rows."""
        return self._known(X, self.values)


def _keys(X: Matrix) -> list[object]:
    """What is in each row."""
    rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    if rows.dtype.kind == "O":
        return [tuple(map(str, row)) for row in rows.tolist()]
    return [row.tobytes() for row in rows]


def fold_results(search: Search, X: Matrix, y: Targets, *, groups: Targets = None) -> Params:
    """The results of a cross-validation as scikit-learn's displays read them, from held-out values.

    Nothing is fitted: each estimator stands in for that of a fold, and can only predict the test
    rows of its fold.

    Parameters
    ----------
    search : fitted search
        Of a classifier, one of this library, with folds that test every row once.
    X, y, groups
        The data of ``fit``.

    Returns
    -------
    results : dict
        As that of :func:`cross_validate` with ``return_estimator=True`` and
        ``return_indices=True``: "estimator", "indices" and "test_score".

    Examples
    --------
    >>> from everyfold import FastGridSearchCV
    >>> from everyfold.judge import fold_results
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.svm import SVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = FastGridSearchCV(SVC(), {"C": [1.0, 10.0]}, cv=3).fit(X, y)
    >>> results = fold_results(search, X, y)
    >>> len(results["estimator"]), len(results["indices"]["test"][0])
    (3, 190)
    """
    check_table(search)
    if not (is_ours(search) and is_classifier(search)):
        raise ValueError(
            f"{type(search).__name__}: results of folds need the held-out values of a classifier "
            "of this library; use scikit-learn's cross_validate with return_estimator=True"
        )
    labels, values = search.out_of_fold(), search.out_of_fold(method="decision_function")
    if np.any(labels.repeats != 1):
        raise ValueError(
            "cv holds rows out several times or never, so that the values of folds are not known "
            "apart; use a cv that tests every row once"
        )
    splitter = check_cv(search.cv, y, classifier=True)
    given = groups if groups is not None else given_params(search).get("groups")
    splits = list(splitter.split(X, y, given if takes_groups(splitter) else None))
    classes = np.unique(labels.truth)
    models = [
        AnswersOfFold(classes, labels.values[b], values.values[b], safe_indexing(X, b))
        for _, b in splits
    ]
    indices = {"train": tuple(a for a, _ in splits), "test": tuple(b for _, b in splits)}
    return {"estimator": models, "indices": indices, "test_score": fold_scores(search)}


def score_table(search: Search, metric: str | None) -> Array:
    """The scores of folds and candidates by one metric, (t, candidates)."""
    check_table(search)
    if metric is None:
        metric = search.refit if search.multimetric_ and isinstance(search.refit, str) else "score"
    prefix = "mean_test_"
    known = [key.removeprefix(prefix) for key in search.cv_results_ if key.startswith(prefix)]
    if metric not in known:
        raise ValueError(f"metric={metric!r} is not one of the search; use one of {known}")
    if is_ours(search) and search.plan_.pooled:
        raise ValueError(
            "scores are pooled over all rows, so that their variation over folds is not "
            "known; use folds of several rows, or scoring=everyfold.scorers.pooled(..., False)"
        )
    if search.n_splits_ < 2:
        raise ValueError("a test of candidates needs scores of at least 2 folds; use another cv")
    count = len(search.cv_results_["params"])
    return np.stack([fold_scores(search, k, f"test_{metric}") for k in range(count)], axis=1)


def statuses(search: Search) -> tuple[Array, Array]:
    """Which candidates are exact, and how certain the scores of each are in words."""
    results = search.cv_results_
    if is_ours(search):
        return results["is_exact"], results["status"]
    count = len(results["params"])
    return np.ones(count, dtype=bool), np.full(count, REFITTED, dtype=object)


def given_params(search: Search) -> Params:
    """Groups, weights, … that ``fit`` was called with, as far as the search has kept them."""
    return (search._given.params or {}) if is_ours(search) else {}


# -- test rows for each training row ---------------------------------------------------------------


def ratio_of(
    search: Search, X: Matrix = None, y: Targets = None, groups: Targets = None
) -> tuple[float, Unit]:
    """How many test rows (or whole groups) the folds of a search have for each training row.

    scikit-learn's searches do not keep that. It follows from most splitters; others are asked once
    more.
    """
    if is_ours(search):
        return search._ratio, search._unit
    cv = search.cv
    if isinstance(cv, list | tuple):
        return ratio_of_splits(cv, groups_of(groups))
    if X is not None:
        splitter = check_cv(cv, y, classifier=is_classifier(search))
        return ratio_of_splits(list(splitter.split(X, y, groups)), groups_of(groups))
    if isinstance(cv, RepeatedKFold | RepeatedStratifiedKFold):
        return 1.0 / (cv.cvargs["n_splits"] - 1), "row"
    if cv is None or isinstance(cv, int | np.integer) or type(cv) in _PARTITIONS:
        unit: Unit = "group" if isinstance(cv, _OF_GROUPS) else "row"
        return 1.0 / (search.n_splits_ - 1), unit
    raise ValueError(
        f"{type(search).__name__} does not keep the sizes of its folds, and "
        f"{type(cv).__name__} as cv does not tell them; pass the data as well: X=..., y=... "
        "(and groups=...)"
    )


def ratio_of_splits(
    splits: Sequence[tuple[Index, Index]], groups: Index | None
) -> tuple[float, Unit]:
    """Test rows for each training row; whole groups if no fold divides one of them."""
    ratio = None if groups is None else _ratio_of_groups(splits, groups)
    if ratio is not None:
        return ratio, "group"
    return sum(len(test) for _, test in splits) / sum(len(train) for train, _ in splits), "row"


def _ratio_of_groups(splits: Sequence[tuple[Index, Index]], groups: Index) -> float | None:
    """How many test groups there are for each training group; None if a fold divides a group."""
    counts = np.zeros(2, dtype=np.intp)
    for train, test in splits:
        first, second = np.unique(groups[train]), np.unique(groups[test])
        if len(np.intersect1d(first, second, assume_unique=True)):
            return None
        counts += len(first), len(second)
    return float(counts[1] / counts[0])


def groups_of(labels: Targets) -> Index | None:
    """The number of the group of each row; None without groups, or if every row has its own."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    try:
        codes = np.unique(labels, return_inverse=True)[1]
    except TypeError:  # labels of several types have no order
        known: dict[object, int] = {}
        codes = np.array([known.setdefault(label, len(known)) for label in labels.tolist()])
    return None if codes.max() + 1 == len(codes) else codes


# -- The decision threshold of a classifier --------------------------------------------------------


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
