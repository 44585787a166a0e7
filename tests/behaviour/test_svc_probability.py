"""SVC(probability=True) has values of its own beside probabilities, which few scores ask for."""

import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import average_precision_score, log_loss, make_scorer, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import FastGridSearchCV, cross_val_predict, cross_val_score

X, y = make_classification(90, 5, n_informative=3, flip_y=0.2, random_state=0)
FLOWERS, KINDS = load_iris(return_X_y=True)
MODEL = SVC(probability=True, random_state=0)
GRID = {"C": [0.1, 1.0], "gamma": [0.1]}
VALUES_FIRST = make_scorer(
    average_precision_score, response_method=("decision_function", "predict_proba")
)
PROBABILITIES_FIRST = make_scorer(
    roc_auc_score, response_method=("predict_proba", "decision_function")
)


def own_log_loss(model, X, y):
    return -log_loss(y, model.predict_proba(X))


def either(model, X, y):
    return float(hasattr(model, "predict_proba"))


def both(model, grid, rows, target, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the parameter is being removed
        theirs = ms.GridSearchCV(model, grid, cv=4, **options).fit(rows, target)
        ours = FastGridSearchCV(model, grid, cv=4, fallback="refit", **options).fit(rows, target)
    for name in (name for name in theirs.cv_results_ if name.startswith("split")):
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], atol=1e-10)
    assert ours.best_index_ == theirs.best_index_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows))
    return set(ours.cv_results_["status"])


@pytest.mark.parametrize("scoring", [None, "accuracy", "roc_auc", ["f1", "roc_auc"], VALUES_FIRST])
def test_scores_of_predictions_and_values_are_sped_up(scoring):
    refit = "f1" if isinstance(scoring, list) else True
    assert both(MODEL, GRID, X, y, scoring=scoring, refit=refit) == {"exact"}


def test_more_classes_and_pipelines_are_sped_up():
    model = make_pipeline(StandardScaler(), MODEL)
    assert both(model, {"svc__C": [0.1, 1.0]}, FLOWERS, KINDS) == {"exact"}


@pytest.mark.parametrize(
    "scoring",
    [
        "neg_log_loss",
        "neg_brier_score",
        PROBABILITIES_FIRST,
        own_log_loss,
        either,
        ["f1", "neg_log_loss"],
    ],
)
def test_scores_of_probabilities_refit(scoring):
    refit = "f1" if isinstance(scoring, list) else True
    assert both(MODEL, GRID, X, y, scoring=scoring, refit=refit) == {"refitted"}


def test_only_candidates_with_probabilities_refit():
    grid = {"probability": [False, True], "C": [0.1, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = FastGridSearchCV(SVC(random_state=0), grid, cv=4, fallback="refit", scoring=either)
        ours.fit(X, y)
    status = ours.cv_results_["status"]
    asked = np.array([params["probability"] for params in ours.cv_results_["params"]])
    assert (status[asked] == "refitted").all()


def test_functions_follow():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        found = cross_val_score(MODEL, X, y, cv=4, scoring="roc_auc", fallback="refuse")
        assert_allclose(found, ms.cross_val_score(MODEL, X, y, cv=4, scoring="roc_auc"))
        options = {"cv": 4, "method": "predict_proba"}
        found = cross_val_predict(MODEL, X, y, fallback="refit", **options)
        assert_allclose(found, ms.cross_val_predict(MODEL, X, y, **options))
