"""Smooth losses: all folds at once equal a loop of refits, and take one factorisation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, RepeatedKFold
from sklearn.model_selection import cross_val_predict as by_refits

from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    Nystrom,
    QuadraticSVR,
    cross_val_predict,
)
from everyfold.linalg.ridge_systems import CholeskySystem

LOSSES = {
    "logistic": KernelLogisticClassifier(),
    "huber": HuberSVC(h=0.3),
    "narrow huber": HuberSVC(h=0.02),
    "squared hinge": KernelClassifier("squared_hinge"),
    "tube": QuadraticSVR(epsilon=0.1),
    "smooth tube": KernelRegressor("smooth_epsilon"),
}
FOLDS = {"few": KFold(4), "many": KFold(25), "single rows": LeaveOneOut()}


def rows(n, *, is_classifier):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)
    return X, (f > 0).astype(int) if is_classifier else f


@pytest.mark.parametrize("cv", FOLDS)
@pytest.mark.parametrize("ridge", [3.0, 0.1, 0.002])
@pytest.mark.parametrize("loss", LOSSES)
def test_all_folds_equal_refits(loss, ridge, cv):
    estimator, cv = clone(LOSSES[loss]), FOLDS[cv]
    is_by_c = "C" in estimator.get_params()
    estimator.set_params(gamma=0.2, **({"C": 0.5 / ridge} if is_by_c else {"alpha": ridge}))
    X, y = rows(48, is_classifier=is_classifier(estimator))
    how = "decision_function" if is_classifier(estimator) else "predict"
    found = cross_val_predict(estimator, X, y, cv=cv, method=how, order="exact")
    wanted = by_refits(estimator, X, y, cv=cv, method=how)
    assert_allclose(found, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": False}, {"gamma": 30.0}, {"gamma": 1e-3}]
)
def test_leave_one_out_of_logistic_regression_with_weights_and_three_classes(options):
    X, f = rows(45, is_classifier=False)
    y = np.digitize(f, [-0.5, 0.7])
    w = np.random.default_rng(1).uniform(0.0, 3.0, 45)
    w[[3, 30]] = 0.0
    estimator = KernelLogisticClassifier(**{"gamma": 0.3, "C": 20.0} | options)
    how, params = "decision_function", {"sample_weight": w}
    found = cross_val_predict(
        estimator, X, y, cv=LeaveOneOut(), method=how, order="exact", params=params
    )
    wanted = by_refits(estimator, X, y, cv=LeaveOneOut(), method=how, params=params)
    assert_allclose(found, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("C", [0.01, 1.0, 1e3])
def test_leave_one_out_of_few_columns(C):
    X, y = rows(60, is_classifier=True)
    how, cv = "decision_function", LeaveOneOut()
    found = cross_val_predict(
        LogisticRegression(C=C), X, y, cv=cv, method=how, order="exact", fallback="refuse"
    )
    own = KernelLogisticClassifier(C=C, kernel="linear")
    wanted = by_refits(own, X, y, cv=cv, method=how)
    assert_allclose(found, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())
    low = KernelLogisticClassifier(C=C, gamma=0.2, operator=Nystrom(20, random_state=0))
    found = cross_val_predict(low, X, y, cv=cv, method=how, order="exact")
    assert found.shape == (60,)
    assert np.isfinite(found).all()


def factorisations(monkeypatch, estimator, X, y, cv):
    count = 0
    begin = CholeskySystem.__init__

    def counted(self, *args, **options):
        nonlocal count
        count += 1
        begin(self, *args, **options)

    monkeypatch.setattr(CholeskySystem, "__init__", counted)
    search = FastGridSearchCV(estimator, {"C": [0.1, 1.0]}, cv=cv, order="exact", refit=False)
    search.fit(X, y)
    monkeypatch.setattr(CholeskySystem, "__init__", begin)
    assert search.cv_results_["is_exact"].all()
    return count


@pytest.mark.parametrize("estimator", [KernelLogisticClassifier(gamma=0.2), HuberSVC(gamma=0.2)])
def test_folds_share_the_factorisations_of_the_fit_on_all_rows(estimator, monkeypatch):
    X, y = rows(60, is_classifier=True)
    few = factorisations(monkeypatch, KernelLogisticClassifier(gamma=0.2), X, y, KFold(3))
    many = factorisations(monkeypatch, estimator, X, y, LeaveOneOut())
    repeated = factorisations(
        monkeypatch, estimator, X, y, RepeatedKFold(n_splits=5, n_repeats=6, random_state=0)
    )
    assert few <= 25
    assert many <= 45  # a fold here and there may be fitted by itself
    assert repeated <= 150  # one by one they take more than 250


@pytest.mark.parametrize("C", [1e6, 1e10, 1e14])
def test_nothing_of_the_held_out_rows_is_left_at_a_large_penalty(C):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 25))
    y = (X[:, 0] + rng.normal(size=60) > 0.0).astype(int)
    # Training rows are separable, so that forces at the minimum are tiny beside those at f = 0.
    estimator = KernelLogisticClassifier(kernel="linear", C=C)
    how = "decision_function"
    found = cross_val_predict(estimator, X, y, cv=KFold(4), method=how)
    wanted = by_refits(estimator, X, y, cv=KFold(4), method=how)
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    assert np.mean((found > 0.0) == y) < 0.9


def test_extreme_penalties_of_logistic_regression_are_its_own():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 25))
    y = (X[:, 0] + rng.normal(size=60) > 0.4).astype(int)
    grid = [{"C": [1e-20, 1.0, 1e15]}, {"class_weight": [{0: 1e12}, {1: 1e-14}]}]
    options = {"cv": KFold(4), "refit": False, "scoring": "neg_log_loss"}
    fast = FastGridSearchCV(LogisticRegression(tol=1e-8), grid, fallback="refit", **options)
    fast.fit(X, y)
    slow = GridSearchCV(LogisticRegression(tol=1e-8), grid, **options).fit(X, y)
    scores = "mean_test_score"
    assert_allclose(fast.cv_results_[scores], slow.cv_results_[scores], rtol=1e-4)
