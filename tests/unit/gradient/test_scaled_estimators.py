"""A gamma for each feature: everywhere what scaling the columns by hand gives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    LSSVR,
    Circulant,
    FastGridSearchCV,
    HuberSVC,
    KernelRegressor,
    Nystrom,
    QuadraticSVR,
    RandomFourier,
    cross_val_predict,
)
from everyfold.io.arrays import ArrayRows
from everyfold.kernels import Scaled, find_kernel

GAMMA = np.array([0.7, 0.05, 0.0, 0.2])
random = np.random.default_rng(0)
X = random.normal(size=(60, 4))
y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * random.normal(size=60)
LABELS = np.where(y > 0.0, "up", "down")
BY_HAND = {"rbf": np.sqrt(GAMMA), "laplacian": GAMMA, "polynomial": np.sqrt(GAMMA)}
NAMES = pytest.mark.parametrize("kernel", BY_HAND)


def hand(kernel, rows):
    return rows * BY_HAND[kernel]


@NAMES
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_matrices_are_those_of_scaled_columns(kernel, form):
    scaled, plain = find_kernel(kernel, gamma=GAMMA, X=X), find_kernel(kernel, gamma=1.0)
    Z = hand(kernel, X)
    assert_allclose(scaled(form(X)), plain(Z), rtol=1e-12)
    assert_allclose(scaled(form(X), form(X[:7])), plain(Z, Z[:7]), rtol=1e-12)
    assert_allclose(scaled.diagonal(form(X)), plain.diagonal(Z), rtol=1e-12)
    assert (scaled(form(X)) == scaled(form(X)).T).all()


@NAMES
@pytest.mark.parametrize("given", [np.array, list, tuple])
def test_fit_and_predict(kernel, given):
    model = LSSVR(kernel=kernel, gamma=given(GAMMA), alpha=0.3).fit(X[:40], y[:40])
    Z = hand(kernel, X)
    plain = LSSVR(kernel=kernel, gamma=1.0, alpha=0.3).fit(Z[:40], y[:40])
    assert_allclose(model.predict(X[40:]), plain.predict(Z[40:]), rtol=1e-9)
    assert isinstance(model.kernel_, Scaled)
    assert_allclose(clone(model).gamma, GAMMA)


@pytest.mark.parametrize("model", [LSSVC(), HuberSVC(), QuadraticSVR(C=2.0)])
def test_every_machine(model):
    target = y if isinstance(model, QuadraticSVR) else LABELS
    method = "predict" if isinstance(model, QuadraticSVR) else "decision_function"
    ours = clone(model).set_params(gamma=GAMMA)
    plain = clone(model).set_params(gamma=1.0)
    Z = hand("rbf", X)
    found = cross_val_predict(ours, X, target, cv=4, method=method)
    expected = cross_val_predict(plain, Z, target, cv=4, method=method)
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "operator",
    [
        Nystrom(15, random_state=0),
        Nystrom(15, random_state=0, per_fold=True, predicts_with="kernel"),
        RandomFourier(40, random_state=0),
    ],
    ids=["nystrom", "per fold", "waves"],
)
def test_low_rank(operator):
    ours = LSSVR(gamma=GAMMA, alpha=0.3, operator=operator)
    plain = LSSVR(gamma=1.0, alpha=0.3, operator=operator)
    Z = hand("rbf", X)
    found, expected = cross_val_predict(ours, X, y, cv=4), cross_val_predict(plain, Z, y, cv=4)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    found, expected = ours.fit(X, y).predict(X), plain.fit(Z, y).predict(Z)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_search_tells_arrays_apart():
    gammas = [GAMMA, GAMMA[::-1].copy(), 0.3, list(GAMMA)]
    grid = {"gamma": gammas, "alpha": [0.1, 1.0]}
    folds = KFold(4)
    ours = FastGridSearchCV(LSSVR(), grid, cv=folds, fallback="refuse").fit(X, y)
    theirs = GridSearchCV(LSSVR(), grid, cv=folds).fit(X, y)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-8)
    assert ours.best_index_ == theirs.best_index_
    assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)
    assert ours.plan_.kernels == 3  # the list has the numbers of the first array


def test_pipeline_and_training_scores():
    machine = make_pipeline(StandardScaler(), LSSVR())
    grid = {"lssvr__gamma": [GAMMA, 0.1], "lssvr__alpha": [0.1, 1.0]}
    ours = FastGridSearchCV(machine, grid, cv=3, return_train_score=True).fit(X, y)
    theirs = GridSearchCV(machine, grid, cv=3, return_train_score=True).fit(X, y)
    for key in ("mean_test_score", "mean_train_score"):
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-8)


@pytest.mark.parametrize(
    "operator", [Nystrom(15, random_state=0), RandomFourier(40, random_state=0)]
)
def test_source_of_rows(operator):
    ours = KernelRegressor(gamma=GAMMA, alpha=0.3, operator=operator)
    grid = {"gamma": [GAMMA, 0.3 * GAMMA], "alpha": [0.1, 1.0]}
    blocks = FastGridSearchCV(ours, grid, cv=4).fit(ArrayRows(X, y)).cv_results_
    plain = clone(ours).set_params(gamma=1.0)
    for gamma in grid["gamma"]:
        rows = ArrayRows(X * np.sqrt(gamma), y)
        one = FastGridSearchCV(plain, {"alpha": grid["alpha"]}, cv=4).fit(rows)
        where = [np.array_equal(params["gamma"], gamma) for params in blocks["params"]]
        assert sum(where) == 2
        expected = one.cv_results_["mean_test_score"]
        assert_allclose(blocks["mean_test_score"][where], expected, rtol=1e-6)
    found = ours.fit(ArrayRows(X, y)).predict(X)
    Z = hand("rbf", X)
    assert_allclose(found, plain.set_params(alpha=0.3).fit(ArrayRows(Z, y)).predict(Z), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "cosine", "precomputed", np.dot])
def test_kernels_without_gamma_refuse_arrays(kernel):
    with pytest.raises(ValueError, match="has no gamma"):
        LSSVR(kernel=kernel, gamma=GAMMA).fit(X, y)


@pytest.mark.parametrize(
    ("gamma", "words"),
    [
        ([0.1, 0.2], "gamma has 2 entries, but X has 4 features"),
        ([[0.1, 0.2]], r"gamma has shape \(1, 2\)"),
        ([], r"gamma has shape \(0,\)"),
        ([0.1, -0.2, 1.0, 1.0], "gamma=-0.2 is not allowed"),
        ([0.1, np.nan, 1.0, 1.0], "gamma=nan is not allowed"),
        (["a", "b", "c", "d"], "gamma='a' is not allowed"),
    ],
)
def test_wrong_arrays_are_refused_before_work(gamma, words):
    with pytest.raises(ValueError, match=words):
        LSSVR(gamma=gamma).fit(X, y)
    with pytest.raises(ValueError, match=words):
        FastGridSearchCV(LSSVR(), {"gamma": [gamma]}, cv=3).fit(X, y)


@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), SVC()])
def test_estimators_of_scikit_learn_refuse_as_they_do(model):
    target = y if isinstance(model, KernelRidge) else LABELS
    with pytest.raises(ValueError, match="The 'gamma' parameter of"):
        FastGridSearchCV(model, {"gamma": [GAMMA]}, cv=3).fit(X, target)


def test_circulant_matrices_refuse():
    with pytest.raises(ValueError, match="Scaled"):
        cross_val_predict(LSSVR(gamma=GAMMA, operator=Circulant((6, 10))), X, y, cv=6)
