"""Pipelines of a StandardScaler with many folds, each of which scales its own training rows."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_classification, make_friedman1
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV
from everyfold.adapters.pipelines import plain_numbers, prepare_fold, scale_fold, split_steps

rng = np.random.default_rng(0)
TRAIN, TEST = np.arange(5, 40), np.arange(5)


def odd_columns():
    """Columns that are constant, constant up to rounding, far from 0, tiny and huge."""
    X = rng.normal(size=(40, 7))
    X[:, 1] = 0.1
    X[:, 2] = 1e8 + 1e-9 * X[:, 2]
    X[:, 3] += 1e6
    X[:, 4] *= 1e-150
    X[:, 5] *= 1e100
    X[:5, 6] = 3.0
    return X


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
@pytest.mark.parametrize("kind", ["odd", "whole", "frame", "one row"])
def test_a_fold_is_scaled_as_by_the_scaler_itself(with_mean, with_std, kind):
    X, train = odd_columns(), TRAIN
    if kind == "whole":
        X = rng.integers(-5, 5, size=(40, 3))
    if kind == "frame":
        X = pd.DataFrame({"a": rng.integers(0, 9, 40), "b": rng.normal(size=40)})
    if kind == "one row":
        train = train[:1]
    scaler = StandardScaler(with_mean=with_mean, with_std=with_std)
    parts = split_steps(make_pipeline(scaler, Ridge()), {})
    found = scale_fold(parts.lone_scaler, plain_numbers(X), train, TEST)
    expected = prepare_fold(parts.steps, X, np.zeros(40), train, TEST)
    size = np.maximum(np.abs(expected[0]).max(axis=0), np.abs(expected[1]).max(axis=0))
    for ours, theirs in zip(found, expected, strict=True):
        if with_mean and with_std and kind == "odd":
            # Of 1e8 + 1e-9 x, only what rounding leaves of the mean remains, one way or another.
            assert_allclose(ours[:, 2], theirs[:, 2], atol=1e-7)
            ours, theirs = np.delete(ours, 2, 1), np.delete(theirs, 2, 1)
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * size.min())


def test_what_the_scaler_itself_has_to_read():
    X = rng.normal(size=(10, 2))
    for other in (
        np.where(X > 1.0, np.nan, X),
        X.astype(np.float32),
        sparse.csr_matrix(X),
        X[:, 0],
        np.array([["a", "b"]] * 10),
    ):
        assert plain_numbers(other) is None
    huge = np.full((10, 2), 1e308) * np.sign(X)
    assert scale_fold(StandardScaler(), huge, np.arange(8), np.arange(8, 10)) is None


def test_only_the_scaler_itself_is_known():
    class Own(StandardScaler):
        pass

    for steps in ([Own()], [StandardScaler(), StandardScaler()], [StandardScaler(with_mean=1)]):
        assert split_steps(make_pipeline(*steps, Ridge()), {}).lone_scaler is None
    weighted = {"standardscaler__sample_weight": np.ones(40)}
    assert split_steps(make_pipeline(StandardScaler(), Ridge()), weighted).lone_scaler is None
    assert split_steps(make_pipeline(StandardScaler(), Ridge()), {}).lone_scaler is not None


# -- against scikit-learn ------------------------------------------------------------------------

X, y = make_friedman1(n_samples=60, n_features=6, noise=0.5, random_state=0)
X = X * [1.0, 10.0, 0.1, 1e3, 1.0, 1.0] + [0.0, 1e3, 0.0, 0.0, 5.0, 0.0]
FLOWERS, KINDS = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
FLOWERS = FLOWERS * [1.0, 10.0, 0.1, 1.0, 1.0, 3.0]
GROUPS = np.arange(60) % 25
FOLDS = {
    "one out": LeaveOneOut(),
    "repeated": RepeatedKFold(n_splits=5, n_repeats=5, random_state=0),
    "drawn": ShuffleSplit(30, test_size=0.2, random_state=0),
    "groups": LeaveOneGroupOut(),
}
GAMMAS = {"gamma": [0.01, 0.1, "scale"]}
MODELS = {
    "svc": (SVC(tol=1e-6), {"C": [0.1, 10.0], **GAMMAS}, KINDS, "accuracy"),
    "two": (SVC(tol=1e-6, kernel="linear"), {"C": [0.1, 1.0]}, KINDS == 0, "accuracy"),
    "svr": (SVR(tol=1e-7), {"C": [1.0, 10.0], **GAMMAS}, y, "neg_mean_squared_error"),
    "ridge": (Ridge(), {"alpha": [0.1, 10.0]}, y, "neg_mean_squared_error"),
    "kernel": (
        KernelRidge(kernel="rbf"),
        {"alpha": [0.01, 1.0], "gamma": [0.01, 0.1, 1.0]},
        y,
        "neg_mean_squared_error",
    ),
}


@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("name", MODELS)
def test_many_folds_equal_refits(name, folds):
    model, grid, target, scoring = MODELS[name]
    rows = X if target is y else FLOWERS
    pipeline = make_pipeline(StandardScaler(), model)
    grid = {f"{type(model).__name__.lower()}__{key}": values for key, values in grid.items()}
    how = {"cv": FOLDS[folds], "scoring": scoring, "refit": False}
    groups = GROUPS if folds == "groups" else None
    theirs = GridSearchCV(pipeline, grid, **how).fit(rows, target, groups=groups)
    ours = FastGridSearchCV(pipeline, grid, order="exact", **how).fit(rows, target, groups=groups)
    for k in range(ours.n_splits_):
        key = f"split{k}_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-4, atol=1e-6)
    assert ours.cv_results_["is_exact"].all()


class Failing(TransformerMixin, BaseEstimator):
    """Fails where it is not given the row of the largest number."""

    def __init__(self, largest=0.0):
        self.largest = largest

    def fit(self, X, y=None):
        if X[:, 0].max() < self.largest:
            raise ValueError("the largest is missing")
        return self

    def transform(self, X):
        return X


@pytest.mark.filterwarnings("ignore")
def test_a_fold_that_fails_takes_no_other_of_its_unit_with_it():
    largest = int(X[:, 0].argmax())
    pipeline = make_pipeline(Failing(X[largest, 0]), KernelRidge(kernel="rbf"))
    grid = {"kernelridge__alpha": [0.1, 1.0], "kernelridge__gamma": [0.1, 1.0]}
    how = {"cv": LeaveOneOut(), "scoring": "neg_mean_squared_error", "refit": False}
    ours = FastGridSearchCV(pipeline, grid, **how).fit(X, y)
    theirs = GridSearchCV(pipeline, grid, **how).fit(X, y)
    for k in range(60):
        key = f"split{k}_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-7)
        assert_array_equal(np.isnan(ours.cv_results_[key]), k == largest)


def test_a_long_plan_says_what_would_be_quicker():
    """Nothing is computed, and nothing is said of a few folds, or where a step uses y."""
    rows, target = make_friedman1(n_samples=1200, noise=0.5, random_state=0)
    grid = {"kernelridge__alpha": [0.1, 1.0], "kernelridge__gamma": [0.1, 1.0]}
    how = {"scoring": "neg_mean_squared_error"}
    scaled = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    chosen = make_pipeline(SelectKBest(f_regression, k=5), KernelRidge(kernel="rbf"))
    for pipeline, cv, is_said in (
        (scaled, LeaveOneOut(), True),
        (scaled, KFold(5), False),
        (chosen, LeaveOneOut(), False),
    ):
        plan = FastGridSearchCV(pipeline, grid, cv=cv, **how).plan(rows, target)
        assert any("preprocessing='once'" in note for note in plan.notes) == is_said
        assert plan.kind == "per_fold"


def test_many_folds_are_few_units():
    pipeline = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    grid = {"kernelridge__gamma": [0.1, 1.0]}
    how = {"scoring": "neg_mean_squared_error", "refit": False}
    for folds, count in ((5, 5), (16, 16), (60, 15)):
        units = FastGridSearchCV(pipeline, grid, cv=KFold(folds), **how).fit(X, y).plan_.units
        assert [fold for unit in units for fold in unit.folds] == list(range(folds))
        assert len(units) == count
