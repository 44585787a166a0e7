"""Grids whose candidates differ in more than numbers: how y is read, and what metadata they get."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelLogisticClassifier,
)
from tests.test_search import both, compare

X, LABELS = make_classification(
    60, n_features=4, n_informative=3, n_redundant=0, class_sep=0.6, random_state=1
)
Y = X @ [1.0, -2.0, 0.5, 0.0] + np.sin(3.0 * X[:, 0])
W = np.random.default_rng(0).uniform(0.1, 4.0, len(Y))
FLOWERS, SPECIES = (data[::2] for data in load_iris(return_X_y=True))
EXACT = LogisticRegression(tol=1e-10, max_iter=1000)


def pipeline(model):
    return Pipeline([("scaler", StandardScaler()), ("model", model)])


def close_votes():
    """Rows of which many have as many votes for one class as for another."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(90, 2)), rng.integers(0, 5, size=90)


# -- how y is read -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_way_to_vote_keeps_its_own_with_threads(n_jobs):
    data, labels = close_votes()
    grid = {"break_ties": [False, True], "C": [0.3, 3.0]}
    options = {"cv": ms.StratifiedKFold(3), "n_jobs": n_jobs}
    svc = SVC(gamma=0.5, tol=1e-9)
    slow = ms.GridSearchCV(svc, grid, **options).fit(data, labels)
    compare(FastGridSearchCV(svc, grid, **options).fit(data, labels), slow)
    truth = slow.cv_results_["mean_test_score"]
    assert (truth[:2] != truth[2:]).any()  # breaking ties makes a difference here


@pytest.mark.parametrize("first", [0, 1])
def test_probabilities_belong_to_the_models_that_have_them(first):
    models = [RidgeClassifier(), EXACT]
    models = models[first:] + models[:first]
    options = {"cv": ms.StratifiedKFold(3), "scoring": "neg_log_loss", "error_score": -9.0}
    with pytest.warns(UserWarning, match="Scoring failed"):
        slow = ms.GridSearchCV(pipeline(EXACT), {"model": models}, **options).fit(X, LABELS)
    with pytest.warns(UserWarning, match="Scoring failed"):
        fast = FastGridSearchCV(pipeline(EXACT), {"model": models}, **options).fit(X, LABELS)
    ours, theirs = (s.cv_results_["mean_test_score"] for s in (fast, slow))
    assert_allclose(ours, theirs, rtol=1e-6)
    assert_array_equal(ours == -9.0, [model is not EXACT for model in models])


def test_both_kinds_of_models_are_scored_as_refits_score_them():
    models = [RidgeClassifier(), EXACT, SVC(tol=1e-9), LSSVC(gamma=0.2)]
    both(pipeline(EXACT), {"model": models}, LABELS, X, cv=3, scoring="roc_auc")


@pytest.mark.parametrize("first", [0, 1])
def test_a_joint_fit_of_many_classes_is_refused_wherever_it_stands(first):
    models = [RidgeClassifier(), LogisticRegression()]
    search = FastGridSearchCV(pipeline(Ridge()), {"model": models[first:] + models[:first]})
    with pytest.raises(ValueError, match="KernelLogisticClassifier"):
        search.set_params(estimator=pipeline(RidgeClassifier())).fit(FLOWERS, SPECIES)


def test_one_versus_rest_and_one_versus_one_logistic_models_have_their_own_probabilities():
    model = KernelLogisticClassifier(gamma=0.3)
    grid = {"multi_class": ["ovo", "ovr"]}
    options = {"scoring": "neg_log_loss", "cv": 3, "error_score": -9.0}
    with pytest.warns(UserWarning, match="Scoring failed"):
        slow = ms.GridSearchCV(model, grid, **options).fit(FLOWERS, SPECIES)
    with pytest.warns(UserWarning, match="Scoring failed"):
        fast = FastGridSearchCV(model, grid, **options).fit(FLOWERS, SPECIES)
    ours, theirs = (s.cv_results_["mean_test_score"] for s in (fast, slow))
    assert_array_equal(ours == -9.0, [True, False])
    assert_allclose(ours, theirs, rtol=1e-5)
