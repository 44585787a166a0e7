"""The two sides of a case: its call of either library, and the values behind its scores."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sklearn.model_selection as refitting
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR
from sklearn.utils.metaestimators import available_if

import everyfold
from everyfold import InexactWarning
from everyfold.engine.scoring.metrics import may_ask_for_probabilities
from tests.guards.fuzz_cases import Case

ROUNDING = 1e-8
"""By how much scores may differ before the values behind them are looked at, relative to 1."""
FASTER = {
    "grid": everyfold.FastGridSearchCV,
    "random": everyfold.FastRandomizedSearchCV,
    "score": everyfold.cross_val_score,
    "predict": everyfold.cross_val_predict,
}
SLOWER = {
    "grid": refitting.GridSearchCV,
    "random": refitting.RandomizedSearchCV,
    "score": refitting.cross_val_score,
    "predict": refitting.cross_val_predict,
}


def final_step(estimator: Any) -> Any:
    """The model at the end of a Pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


# -- what one side gives -------------------------------------------------------------------------


@dataclass
class Side:
    """The outcome of one library: a result or an error, and the warnings on the way."""

    result: Any = None
    error: Exception | None = None
    trace: str = ""
    warned: list[Any] = field(default_factory=list)

    @property
    def is_flagged(self) -> bool:
        """Whether a function said that its values are not exact."""
        return any(issubclass(warning.category, InexactWarning) for warning in self.warned)


def call(case: Case, functions: dict[str, Any], **changes: Any) -> Side:
    """Make the call of a case."""
    side = Side()
    with (
        warnings.catch_warnings(record=True) as side.warned,
        config_context(enable_metadata_routing=case.routing),
    ):
        warnings.simplefilter("always")
        try:
            side.result = _call(case, functions, **changes)
        except Exception as error:
            side.error, side.trace = error, traceback.format_exc()
    return side


def _call(case: Case, functions: dict[str, Any], **changes: Any) -> Any:
    function, ours = functions[case.call], functions is FASTER
    estimator = clone(changes.pop("estimator", case.estimator))
    if not case.is_search:
        options: dict[str, Any] = {"cv": case.cv, "groups": case.groups, "params": case.weights}
        if case.routing and case.groups is not None:
            options |= {"params": case.weights | {"groups": options.pop("groups")}}
        if case.call == "predict":
            options["method"] = case.method
        else:
            options |= {"scoring": case.scoring, "error_score": case.error_score}
            if ours:
                options["pooled"] = False  # scikit-learn never does
        return function(estimator, case.X, case.y, **(options | changes))
    options = {
        "cv": case.cv,
        "scoring": case.scoring,
        "refit": case.refit,
        "return_train_score": case.with_train,
        "error_score": case.error_score,
        "n_jobs": case.n_jobs,
    }
    if case.call == "random":
        options |= {"n_iter": case.n_iter, "random_state": case.seed}
    if ours:
        options |= {"order": case.order, "pooled": False}
        if case.honest:
            options["keep_predictions"] = "all"
    fit_params = dict(case.weights)
    if case.groups is not None:
        fit_params["groups"] = case.groups
    grid = changes.pop("grid", case.grid)
    return function(estimator, grid, **(options | changes)).fit(case.X, case.y, **fit_params)


# -- the values behind the scores ----------------------------------------------------------------


@dataclass
class Shown:
    """What a scorer could see of a model on the rows of a fold."""

    X: Any
    y: Any
    labels: Any
    values: Any = None
    probabilities: Any = None
    pairs: Any = None
    classes: Any = None
    weights: Any = None
    size: float = 1.0

    def reordered(self, order: Any) -> Shown:
        """The same rows in another order."""
        names = ("y", "labels", "values", "probabilities", "pairs")
        found = {name: getattr(self, name) for name in names}
        known = {name: value for name, value in found.items() if value is not None}
        return replace(self, **{name: np.asarray(value)[order] for name, value in known.items()})


class Recorder:
    """A scorer that keeps what it is shown, and scores by the number of the record."""

    def __init__(self) -> None:
        self.records: list[Shown] = []

    def _accept_sample_weight(self) -> bool:
        return True  # searches give their weights to scorers that say so

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        shown = Shown(X, y, np.asarray(estimator.predict(X)), weights=sample_weight)
        if hasattr(estimator, "decision_function"):
            shown.values = np.asarray(estimator.decision_function(X))
            shown.classes = estimator.classes_
        else:
            shown.values = shown.labels
        if hasattr(estimator, "predict_proba"):
            shown.probabilities = np.asarray(estimator.predict_proba(X))
        final = final_step(estimator)
        if isinstance(final, SVC | SVR):
            shown.size = float(np.abs(final.dual_coef_).sum() * _largest(final))
            if isinstance(final, SVC) and len(final.classes_) > 2:
                shape, ties = final.decision_function_shape, final.break_ties
                final.set_params(decision_function_shape="ovo", break_ties=False)
                shown.pairs = estimator.decision_function(X)
                final.set_params(decision_function_shape=shape, break_ties=ties)
        is_ours = isinstance(final, everyfold.KernelClassifier)  # a stand-in has no parameters
        if is_ours and final.multi_class == "ovo" and len(final.classes_) > 2:
            rows = estimator[:-1].transform(X) if isinstance(estimator, Pipeline) else X
            shown.pairs = final._values(rows)
        self.records.append(shown)
        return float(len(self.records) - 1)


def _largest(svm: Any) -> float:
    """About the largest entry of the kernel matrix of a fitted machine."""
    rows = svm.support_vectors_
    if not isinstance(svm.kernel, str) or svm.kernel in ("rbf", "precomputed") or not rows.size:
        return 1.0
    square = rows.multiply(rows) if sparse.issparse(rows) else rows**2
    norm = float(np.max(square.sum(axis=1)))
    return norm if svm.kernel == "linear" else (svm._gamma * norm + svm.coef0) ** svm.degree


class Replay(BaseEstimator):
    """A model that gives the answers that were recorded."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown

    def predict(self, X: Any) -> Any:
        return self.shown.labels

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ReplayRegressor(RegressorMixin, Replay):
    """Of a regressor."""


class ReplayClassifier(ClassifierMixin, Replay):
    """Of a classifier."""

    @property
    def classes_(self) -> Any:
        return self.shown.classes

    def decision_function(self, X: Any) -> Any:
        return self.shown.values

    @available_if(lambda model: model.shown.probabilities is not None)
    def predict_proba(self, X: Any) -> Any:
        return self.shown.probabilities


def rescored(scoring: Any, shown: Shown, name: str) -> float:
    """The score of recorded answers, by scikit-learn's metric."""
    model = (ReplayRegressor if shown.classes is None else ReplayClassifier)(shown)
    if isinstance(scoring, dict):
        scoring = scoring[name]
    elif isinstance(scoring, list):
        scoring = name
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    if scorer is None:
        return float(model.score(shown.X, shown.y, sample_weight=shown.weights))
    takes_weights = getattr(scorer, "_accept_sample_weight", lambda: False)()
    weights = {} if shown.weights is None or not takes_weights else {"sample_weight": shown.weights}
    found = scorer(model, shown.X, shown.y, **weights)
    return float(found[name] if isinstance(found, dict) else found)


# -- tolerances ----------------------------------------------------------------------------------

_TIGHT = {
    SVC: {"tol": 1e-8},
    SVR: {"tol": 1e-8},
    LogisticRegression: {"tol": 1e-12},
    Ridge: {"tol": 1e-14},
    RidgeClassifier: {"tol": 1e-14},
}


def tightened(estimator: Any) -> Any:
    """The same estimator, solved to a small tolerance."""
    estimator = clone(estimator)
    final = final_step(estimator)
    final.set_params(**_TIGHT.get(type(final), {}))
    return estimator


def without_unused_probabilities(case: Case) -> Any:
    """The estimator of a case, an SVC without probabilities unless the score may ask for them.

    A scorer that keeps what it sees looks at probabilities wherever there are any. The library
    leaves an SVC whose probabilities are asked for to refits: its own decision values, of which
    the score was, would not be among what is kept.
    """
    scorers = case.scoring if isinstance(case.scoring, list) else [case.scoring]
    scorers = list(case.scoring.values()) if isinstance(case.scoring, dict) else scorers
    read = [get_scorer(one) if isinstance(one, str) else one for one in scorers]
    final = final_step(case.estimator)
    if not getattr(final, "probability", False) or any(map(may_ask_for_probabilities, read)):
        return case.estimator
    estimator = clone(case.estimator)
    final_step(estimator).set_params(probability=False)
    return estimator


def in_double(X: Any) -> Any:
    """The same rows, in double precision if they are an array in single precision."""
    return X.astype(float) if getattr(X, "dtype", None) == np.float32 else X


def tightened_grid(grid: Any) -> Any:
    """A grid with the estimators in it solved to a small tolerance."""
    if isinstance(grid, list):
        return [tightened_grid(part) for part in grid]
    return {
        name: [tightened(value) if hasattr(value, "predict") else value for value in values]
        if isinstance(values, list)
        else values
        for name, values in grid.items()
    }


def tolerance(case: Case, estimator: Any, truth: Shown, theirs: Shown | None) -> float:
    """By how much values of a fold may differ from those of refits.

    Squared loss: rounding. SVC and SVR: the order of ``tol`` where libsvm stops, and what a kernel
    in single precision can hold; no closer to the truth than scikit-learn itself is. Other losses:
    where Newton's method stops. Rows in single precision: no closer to refits in double precision
    than scikit-learn, which keeps some kernels in single precision, is.
    """
    final = final_step(estimator)
    values = clipped(truth.values)
    # Rounding errors go with the size of all targets, also where one held-out value is small.
    size = 0.0 if case.facts.get("classes") else float(np.abs(np.asarray(case.y)).max())
    scale = max(1.0, size, float(np.abs(values).max(initial=0.0)))
    off = 0.0
    if theirs is not None and np.shape(theirs.values) == np.shape(truth.values):
        off = float(np.abs(clipped(theirs.values) - values).max(initial=0.0))
    single = max(2e-3 * scale, off) if case.container == "float32" else 0.0
    if isinstance(final, SVC | SVR | LogisticRegression):
        if isinstance(final, LogisticRegression):
            return max(1e-5 * scale, 5.0 * off, single)
        return max(20.0 * final.tol, 5.0 * off, single) + 1e-6 * (scale + truth.size)
    if single:
        return single
    if isinstance(final, Ridge | RidgeClassifier) and sparse.issparse(case.X):
        return 1e-5 * scale  # scikit-learn iterates, to a tolerance
    if getattr(final, "loss", "squared") == "squared":
        is_steep = "poly" in str(getattr(final, "kernel", ""))
        return (1e-6 if is_steep else ROUNDING) * scale
    return 1e-5 * scale


def clipped(values: Any) -> Any:
    """Without the huge numbers that stand for classes that were never seen."""
    return np.clip(np.asarray(values, dtype=float), -1e6, 1e6)


def in_doubt(shown: Shown, delta: float) -> Any:
    """The rows whose label a change of the values by ``delta`` may change."""
    values = shown.values if shown.pairs is None else shown.pairs
    if shown.classes is None:
        return np.zeros(len(values), dtype=bool)
    if values.ndim == 1:
        return np.abs(values) <= delta
    if shown.pairs is not None:
        if np.array_equal(shown.values, values):  # of which labels read the signs alone
            return (np.abs(values) <= delta).any(axis=1)
        ordered = np.sort(shown.values, axis=1)
        tied = ordered[:, -1] - ordered[:, -2] <= delta
        return (np.abs(values) <= delta).any(axis=1) | tied
    ordered = np.sort(values, axis=1)
    return ordered[:, -1] - ordered[:, -2] <= 2.0 * delta
