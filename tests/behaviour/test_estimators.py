"""scikit-learn's own checks, and the answers of scikit-learn's own estimators."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.model_selection as refitting
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
    cross_val_predict,
)
from everyfold.losses import HuberHinge
from tests import cases

X = cases.features(60)
y = cases.targets(X)[:, 0]
LABELS = np.where(y > np.median(y), "yes", "no")


@parametrize_with_checks(
    [
        KernelRegressor(),
        KernelClassifier(),
        LSSVR(),
        LSSVC(),
        QuadraticSVR(),
        HuberSVC(),
        KernelLogisticClassifier(),
        KernelRegressor(loss="smooth_epsilon"),
        KernelRegressor(kernel="linear"),
        KernelClassifier(loss="squared_hinge", multi_class="ovo"),
        LSSVC(kernel="linear", operator="dense"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_kernel_ridge_is_a_regressor_without_intercept():
    ours = KernelRegressor(gamma=0.3, alpha=0.2, fit_intercept=False).fit(X, y)
    theirs = KernelRidge(kernel="rbf", gamma=0.3, alpha=0.2).fit(X, y)
    assert_allclose(ours.predict(X + 0.1), theirs.predict(X + 0.1), rtol=1e-9)
    assert_allclose(ours.dual_coef_[:, 0], theirs.dual_coef_, rtol=1e-7)


@pytest.mark.parametrize("operator", ["auto", "dense"])
def test_ridge_is_a_linear_kernel_with_intercept(operator):
    ours = LSSVR(kernel="linear", alpha=0.7, operator=operator).fit(X, y)
    theirs = Ridge(alpha=0.7).fit(X, y)
    assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)
    assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8)


def test_c_is_the_ridge_the_other_way_round():
    ours = KernelRegressor(C=2.0).fit(X, y)
    assert_allclose(ours.predict(X), KernelRegressor(alpha=0.25).fit(X, y).predict(X))


def test_the_support_vector_machines_tend_to_libsvm():
    huber = HuberSVC(C=2.0, gamma=0.5, h=1e-5).fit(X, LABELS)
    svc = SVC(C=2.0, gamma=0.5, tol=1e-9).fit(X, LABELS)
    assert_allclose(huber.decision_function(X), svc.decision_function(X), atol=1e-3)
    tube = KernelRegressor("smooth_epsilon", C=2.0, gamma=0.5, epsilon=0.2, h=1e-5).fit(X, y)
    svr = SVR(C=2.0, gamma=0.5, epsilon=0.2, tol=1e-9).fit(X, y)
    assert_allclose(tube.predict(X), svr.predict(X), atol=1e-3)


def test_logistic_regression_is_a_linear_kernel():
    ours = KernelLogisticClassifier(kernel="linear", C=0.5).fit(X, LABELS)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(X, LABELS)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert_allclose(np.exp(ours.predict_log_proba(X)), ours.predict_proba(X))


def test_probabilities_of_many_classes_sum_to_one():
    X, y = load_iris(return_X_y=True)
    model = KernelLogisticClassifier(gamma=0.5).fit(X, y)
    far = np.vstack([X, 1e3 + X[:1]])
    probabilities = model.predict_proba(far)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_array_equal(model.classes_[probabilities[:-1].argmax(axis=1)], model.predict(X))
    assert not hasattr(KernelLogisticClassifier(multi_class="ovo").fit(X, y), "predict_proba")


@pytest.mark.parametrize("loss", ["squared", "huber_hinge", "squared_hinge", "logistic"])
def test_one_versus_one_is_a_machine_for_each_pair(loss):
    X, y = load_iris(return_X_y=True)
    ours = KernelClassifier(loss, gamma=0.5, C=1.0, multi_class="ovo").fit(X, y)
    pairs = OneVsOneClassifier(KernelClassifier(loss, gamma=0.5, C=1.0)).fit(X, y)
    assert_array_equal(ours.predict(X), pairs.predict(X))
    assert_allclose(ours.decision_function(X), pairs.decision_function(X), atol=1e-8)


def test_one_versus_one_votes_as_libsvm_does():
    X, y = load_iris(return_X_y=True)
    ours = HuberSVC(gamma=0.5, C=1.0, h=1e-4, multi_class="ovo").fit(X, y)
    theirs = SVC(gamma=0.5, C=1.0, tol=1e-8).fit(X, y)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)
    assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 3.0}])
def test_class_weights(class_weight):
    ours = LSSVC(kernel="linear", alpha=1.0, class_weight=class_weight).fit(X[:50], LABELS[:50])
    theirs = RidgeClassifier(alpha=1.0, class_weight=class_weight).fit(X[:50], LABELS[:50])
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-8)


@pytest.mark.parametrize("model", [LSSVC(), HuberSVC(), QuadraticSVR(), KernelLogisticClassifier()])
def test_weight_zero_is_removal_and_weight_two_is_a_copy(model):
    target = y if isinstance(model, QuadraticSVR) else LABELS
    w = np.ones(60)
    w[:7], w[7:12] = 0.0, 2.0
    weighted = clone(model).fit(X, target, sample_weight=w)
    rows = np.r_[7:60, 7:12]
    plain = clone(model).fit(X[rows], target[rows])
    assert_allclose(weighted._values(X), plain._values(X), atol=1e-7)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame):
    names = ["a", "b", "c"]
    data = frame({name: X[:, i] for i, name in enumerate(names)})
    model = LSSVR().fit(data, y)
    assert model.n_features_in_ == 3
    assert_array_equal(model.feature_names_in_, names)
    assert_allclose(model.predict(data), LSSVR().fit(X, y).predict(X))


def test_pickling_keeps_the_answers():
    for model in (LSSVC().fit(X, LABELS), QuadraticSVR().fit(X, y)):
        again = pickle.loads(pickle.dumps(model))
        assert_allclose(again._values(X), model._values(X), rtol=1e-10)
        assert again.get_params() == model.get_params()


def test_many_rows_are_predicted_in_blocks(monkeypatch):
    model = LSSVR().fit(X, y)
    whole = model.predict(X)
    monkeypatch.setattr("everyfold.operators.base.CHUNK", 60 * 7)
    assert_allclose(model.predict(X), whole)


def test_losses_belong_to_their_kind():
    with pytest.raises(ValueError, match=r"KernelRegressor; use 'squared', .* or 'smooth_epsilon'"):
        KernelRegressor(loss="logistic").fit(X, y)
    with pytest.raises(ValueError, match=r"KernelClassifier; use 'squared', .* or 'logistic'"):
        KernelClassifier(loss="quadratic_epsilon").fit(X, LABELS)
    with pytest.raises(ValueError, match="multi_class='all' is not known"):
        KernelClassifier(multi_class="all").fit(X, LABELS)
    assert KernelClassifier(loss=HuberHinge(0.2)).fit(X, LABELS).score(X, LABELS) > 0.8


@pytest.mark.parametrize(("name", "value"), [("h", 0.0), ("h", -1.0), ("epsilon", -0.1)])
def test_parameters_of_losses(name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        KernelRegressor(loss="smooth_epsilon", **{name: value}).fit(X, y)


def test_a_fit_that_does_not_converge_warns(monkeypatch):
    monkeypatch.setattr("everyfold.solvers.newton.MAX_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        HuberSVC(C=1e4).fit(X, LABELS)


def test_separable_data_with_a_huge_penalty_give_a_finite_answer():
    labels = np.where(X[:, 0] > 0, 1, -1)
    for model in (HuberSVC(C=1e8), KernelLogisticClassifier(C=1e8), LSSVC(alpha=1e-8)):
        values = model.fit(X, labels).decision_function(X)
        assert np.isfinite(values).all()
        assert (np.sign(values) == labels).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_by_its_logistic_loss_has_probabilities(n_classes):
    """Cross-validation gave them, and scored log-losses, where the refitted winner had none."""
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes][::3], y[y < n_classes][::3]
    by_loss, by_name = KernelClassifier("logistic", C=2.0), KernelLogisticClassifier(C=2.0)
    expected = by_name.fit(X, y).predict_proba(X)
    assert_allclose(by_loss.fit(X, y).predict_proba(X), expected)
    theirs = refitting.cross_val_predict(by_loss, X, y, cv=4, method="predict_proba")
    ours = cross_val_predict(by_loss, X, y, cv=4, method="predict_proba")
    assert_allclose(ours, theirs, atol=1e-8)
    assert not hasattr(KernelClassifier("squared_hinge").fit(X, y), "predict_proba")
