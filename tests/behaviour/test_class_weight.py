"""``class_weight="balanced"`` beside sample weights: every estimator has a formula of its own."""

import numpy as np
import pytest
import sklearn
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import SVC
from sklearn.utils.fixes import parse_version

from everyfold import (
    FastGridSearchCV,
    KernelClassifier,
    KernelLogisticClassifier,
    cross_val_predict,
    cross_val_score,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 4))
LABELS = np.where(X[:, 0] + RNG.normal(0.0, 1.5, 90) > 0.8, "rare", "usual")
# Heavy where the class is rare: counting the weights and counting the rows differ by a factor.
WEIGHTS = RNG.uniform(0.2, 2.0, 90) * np.where(LABELS == "rare", 3.0, 1.0)
WEIGHTS[::11] = 0.0

TIGHT = LogisticRegression(C=0.7, tol=1e-10, max_iter=10_000)
CLASSIFIERS = [
    TIGHT,
    LogisticRegression(C=3.0, fit_intercept=False, tol=1e-10, max_iter=10_000),
    RidgeClassifier(alpha=2.0),
    SVC(kernel="linear", C=0.5, tol=1e-7),
    SVC(gamma=0.2, C=5.0, tol=1e-7),
    KernelLogisticClassifier(gamma=0.2, C=1.5),
]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_the_balance_is_that_of_refits(model):
    model = type(model)(**{**model.get_params(), "class_weight": "balanced"})
    arguments = {"cv": 5, "params": {"sample_weight": WEIGHTS}, "method": "decision_function"}
    ours = cross_val_predict(model, X, LABELS, **arguments)
    theirs = ms.cross_val_predict(model, X, LABELS, **arguments)
    assert_allclose(ours, theirs, atol=2e-5)


def test_the_balance_of_pairs_is_that_of_all_classes():
    three = np.where(X[:, 1] > 0.9, "third", LABELS)
    model = SVC(gamma=0.2, C=5.0, tol=1e-7, class_weight="balanced", decision_function_shape="ovo")
    arguments = {"cv": 5, "params": {"sample_weight": WEIGHTS}, "method": "decision_function"}
    ours = cross_val_predict(model, X, three, **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, X, three, **arguments), atol=2e-5)


def test_searches_balance_as_scikit_learn_does():
    grid = {"C": [0.01, 0.1, 1.0], "class_weight": [None, "balanced", {"rare": 2.0}]}
    arguments = {"scoring": ["neg_log_loss", "accuracy"], "refit": False, "cv": 4}
    ours = FastGridSearchCV(TIGHT, grid, **arguments).fit(X, LABELS, sample_weight=WEIGHTS)
    theirs = ms.GridSearchCV(TIGHT, grid, **arguments).fit(X, LABELS, sample_weight=WEIGHTS)
    for name in ("neg_log_loss", "accuracy"):
        key = f"mean_test_{name}"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.7"), reason="counts rows before 1.7"
)
def test_a_class_without_weight_cannot_be_balanced():
    weights = np.where(LABELS == "rare", 0.0, 1.0)
    model = LogisticRegression(class_weight="balanced", fit_intercept=False)
    with pytest.raises(ValueError, match="class_weight='balanced' divides by the weight"):
        cross_val_score(
            model, X, LABELS, params={"sample_weight": weights}, error_score="raise", cv=3
        )


def test_weights_of_a_class_that_a_training_set_lacks_are_no_error():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    y = np.repeat([0, 1, 2], 10)
    model = KernelClassifier(class_weight={0: 1.0, 1: 2.0, 2: 3.0}, gamma=0.5)
    folds = [(np.arange(20), np.arange(20, 30)), (np.arange(30)[::2], np.arange(30)[1::2])]
    ours = cross_val_score(model, rows, y, cv=folds, error_score="raise")
    theirs = ms.cross_val_score(model, rows, y, cv=folds, error_score="raise")
    assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="class_weight names"):
        model.set_params(class_weight={0: 1.0, 1: 2.0, "2": 3.0}).fit(rows, y)
