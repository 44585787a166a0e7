"""cross_validate against scikit-learn's."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import LSSVC, LSSVR, cross_val_score, cross_validate

X, y = make_regression(n_samples=60, n_features=4, noise=5.0, random_state=0)
X, y = X / 2.0, y / 50.0
LABELS = np.where(y > np.median(y), "yes", "no")
GROUPS = np.arange(60) % 6
IRIS, KINDS = load_iris(return_X_y=True)

NUMBERS = ["r2", "neg_mean_squared_error", "neg_max_error"]
CLASSES = {"hits": "accuracy", "balance": "balanced_accuracy", "f": "f1_macro"}
SPLITTERS = [
    None,
    ms.KFold(4, shuffle=True, random_state=0),
    ms.GroupKFold(3),
    ms.RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    ms.ShuffleSplit(3, test_size=0.2, train_size=0.4, random_state=0),
    ms.TimeSeriesSplit(3),
]


def compare(model, X, target, tolerance=1e-7, **arguments):
    ours = cross_validate(model, X, target, **arguments)
    theirs = ms.cross_validate(model, X, target, **arguments)
    assert list(ours) == list(theirs)
    for name in theirs:
        if name in ("fit_time", "score_time"):
            assert ours[name].shape == theirs[name].shape
        elif "score" in name or name.startswith(("test_", "train_")):
            assert_allclose(ours[name], theirs[name], rtol=tolerance, atol=tolerance)
    return ours, theirs


@pytest.mark.parametrize("scoring", [None, "neg_root_mean_squared_error", NUMBERS], ids=str)
@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
@pytest.mark.parametrize(
    "model",
    [
        KernelRidge(alpha=0.1, kernel="rbf", gamma=0.3),
        LSSVR(alpha=0.1, gamma="scale"),
        make_pipeline(StandardScaler(), Ridge(alpha=0.7)),
        SVR(C=2.0, gamma=0.2, tol=1e-8),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scores_of_regressors(model, cv, scoring):
    tolerance = 1e-4 if isinstance(model, SVR) else 1e-7
    compare(
        model,
        X,
        y,
        tolerance,
        cv=cv,
        groups=GROUPS if isinstance(cv, ms.GroupKFold) else None,
        scoring=scoring,
        return_train_score=True,
    )


@pytest.mark.parametrize("scoring", [None, CLASSES, ("accuracy", "f1_weighted")], ids=str)
@pytest.mark.parametrize("cv", [3, ms.ShuffleSplit(3, test_size=0.3, random_state=1)], ids=str)
@pytest.mark.parametrize("model", [RidgeClassifier(), SVC(tol=1e-6), LSSVC(gamma=0.2)], ids=str)
def test_scores_of_classifiers(model, cv, scoring):
    compare(model, IRIS, KINDS, 1e-6, cv=cv, scoring=scoring)


def test_a_function_of_several_scores():
    def both(model, X, y):
        error = get_scorer("neg_mean_squared_error")(model, X, y)
        return {"squared": error, "root": np.sqrt(-error)}

    compare(Ridge(), X, y, cv=3, scoring=both, return_train_score=True)


def test_indices_and_estimators():
    cv = ms.ShuffleSplit(3, test_size=0.2, random_state=0)
    arguments = {"cv": cv, "return_indices": True, "return_estimator": True}
    ours, theirs = compare(KernelRidge(alpha=0.1), X, y, **arguments)
    for side in ("train", "test"):
        for mine, other in zip(ours["indices"][side], theirs["indices"][side], strict=True):
            assert_array_equal(mine, other)
    for mine, other in zip(ours["estimator"], theirs["estimator"], strict=True):
        assert_allclose(mine.predict(X), other.predict(X), rtol=1e-9)


def test_weights_reach_fits_and_estimators():
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    arguments = {"cv": 3, "params": {"sample_weight": weights}, "return_estimator": True}
    ours, theirs = compare(Ridge(), X, y, **arguments)
    assert_allclose(ours["estimator"][1].coef_, theirs["estimator"][1].coef_, rtol=1e-9)


def test_a_number_is_the_weight_of_every_row():
    arguments = {"cv": 3, "params": {"sample_weight": 2.0}, "return_estimator": True}
    ours, theirs = compare(Ridge(), X, y, **arguments)
    assert_allclose(ours["estimator"][1].coef_, theirs["estimator"][1].coef_, rtol=1e-9)
    found = cross_validate(SVC(), X, y > 0, cv=3, params={"sample_weight": np.float64(2.0)})
    expected = ms.cross_validate(SVC(C=2.0), X, y > 0, cv=3)
    assert_allclose(found["test_score"], expected["test_score"])


def test_routed_weights_reach_the_scorer():
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    with config_context(enable_metadata_routing=True):
        scorer = get_scorer("neg_mean_squared_error").set_score_request(sample_weight=True)
        model = Ridge().set_fit_request(sample_weight=True)
        compare(
            model,
            X,
            y,
            cv=ms.GroupKFold(3),
            scoring={"error": scorer},
            params={"sample_weight": weights, "groups": GROUPS},
        )


def test_a_fold_that_fails():
    cv = [(np.arange(6), np.arange(6, 20)), (np.arange(4, 60), np.arange(4))]
    labels = np.where(np.arange(60) < 8, "no", "yes")
    arguments = {"cv": cv, "scoring": ["accuracy", "f1_macro"], "error_score": -1.0}
    with pytest.warns(FitFailedWarning, match="1 fits failed out of a total of 2"):
        ours = cross_validate(LSSVC(), X, labels, **arguments, return_train_score=True)
    with pytest.warns(FitFailedWarning):
        theirs = ms.cross_validate(LSSVC(), X, labels, **arguments, return_train_score=True)
    for name in ("test_accuracy", "test_f1_macro", "train_accuracy"):
        assert_allclose(ours[name], theirs[name])
    with pytest.raises(ValueError, match="one class"):
        cross_validate(LSSVC(), X, labels, cv=cv, error_score="raise")


def test_the_score_is_that_of_cross_val_score():
    model = KernelRidge(alpha=0.1, kernel="rbf")
    assert_array_equal(
        cross_validate(model, X, y, cv=4)["test_score"], cross_val_score(model, X, y, cv=4)
    )
