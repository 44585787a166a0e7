"""Candidates that scikit-learn's own fit refuses fail here as well, alone and with its words."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_iris, make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV, HuberSVC, KernelRegressor, cross_val_score
from everyfold.adapters import sklearn as adapters

NUMBERS = make_regression(60, 4, noise=5.0, random_state=0)
LABELS = load_iris(return_X_y=True)
TWO = LABELS[0][:100], LABELS[1][:100]
SPARSE = sp.coo_matrix(LABELS[0]), LABELS[1]
TARGETS = NUMBERS[0], np.column_stack([NUMBERS[1], NUMBERS[1] ** 2])


def scores(kind, estimator, grid, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = kind(estimator, grid, cv=3).fit(X, y)
    return search.cv_results_["mean_test_score"], search


@pytest.mark.parametrize(
    ("estimator", "grid", "data"),
    [
        (SVR(), {"gamma": [None, 0.1, -1.0, "silverman", np.inf]}, NUMBERS),
        (SVR(), {"epsilon": [0.1, -0.1, None], "tol": [1e-3, 0.0]}, NUMBERS),
        (SVC(), {"kernel": ["laplacian", "rbf", "cosine", "polynomial", None]}, LABELS),
        (SVC(), {"C": [1.0, 0.0, -1.0, np.nan, "1", True]}, LABELS),
        (SVC(kernel="poly"), {"degree": [2, 2.5, -1, 3.0], "coef0": [0.0, np.nan]}, LABELS),
        (SVC(), {"shrinking": [True, "yes"], "decision_function_shape": ["ovr", "ova"]}, LABELS),
        (SVC(), {"class_weight": [None, {7: 1.0}, {0: -1.0}, {0: 0.0}, "equal"]}, LABELS),
        (SVC(), {"class_weight": [None, {0: "1"}, [1.0, 2.0, 1.0]]}, LABELS),
        (KernelRidge(kernel="rbf"), {"gamma": ["scale", "auto", None, 0.1]}, NUMBERS),
        (KernelRidge(), {"kernel": ["rbf", "gaussian"], "alpha": [1.0, -1.0]}, NUMBERS),
        (KernelRidge(), {"kernel_params": [None, [1]]}, NUMBERS),
        (Ridge(), {"alpha": [1.0, np.array([1.0, 2.0]), -1.0, None, "1"]}, NUMBERS),
        (Ridge(), {"alpha": [1.0, np.array([1.0, 2.0]), np.array([1.0, -2.0])]}, TARGETS),
        (Ridge(), {"solver": ["auto", "lbfgs", "sgd"], "fit_intercept": [True, 1]}, NUMBERS),
        (Ridge(), {"positive": [False, True], "solver": ["auto", "svd"]}, NUMBERS),
        (RidgeClassifier(), {"solver": ["auto", "cholesky", "svd", "lsqr"]}, LABELS),
        (
            RidgeClassifier(),
            {"solver": ["auto", "cholesky", "svd", "sparse_cg"], "fit_intercept": [True, False]},
            SPARSE,
        ),
        (
            make_pipeline(MaxAbsScaler(), RidgeClassifier()),
            {"ridgeclassifier__solver": ["auto", "cholesky", "svd"]},
            SPARSE,
        ),
        (
            make_pipeline(FunctionTransformer(sp.csr_matrix), RidgeClassifier()),
            {"ridgeclassifier__solver": ["auto", "cholesky"]},
            LABELS,
        ),
        (RidgeCV(), {"alphas": [[0.0, 1.0], [1.0], (1.0, -1.0)]}, NUMBERS),
        (LogisticRegression(), {"dual": [True, False], "solver": ["lbfgs", "liblinear"]}, TWO),
        (LogisticRegression(), {"solver": ["lbfgs", "bfgs"], "C": [1.0, -1.0]}, TWO),
        (LogisticRegression(), {"tol": [1e-4, -1.0], "max_iter": [100, -1, 1.5]}, TWO),
        (
            TransformedTargetRegressor(Ridge(), func=np.cbrt, inverse_func=np.negative),
            {"check_inverse": [False, "no"], "regressor__alpha": [1.0, -1.0]},
            NUMBERS,
        ),
        (make_pipeline(MaxAbsScaler(), Ridge()), {"verbose": [False, "no"]}, NUMBERS),
    ],
)
def test_what_scikit_learn_refuses_fails_alone(estimator, grid, data):
    expected, _ = scores(GridSearchCV, estimator, grid, *data)
    found, search = scores(FastGridSearchCV, estimator, grid, *data)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, atol=0.008)
    assert not np.isnan(found[search.best_index_])


def test_words_of_scikit_learn():
    with pytest.warns(FitFailedWarning, match="The 'gamma' parameter of SVR must be"):
        FastGridSearchCV(SVR(), {"gamma": [None, 0.1]}, cv=3, error_score=-7.0).fit(*NUMBERS)
    with pytest.raises(ValueError, match="The 'kernel' parameter of SVC must be"):
        cross_val_score(SVC(kernel="laplacian"), *LABELS)
    with pytest.raises(ValueError, match="does not support fitting the intercept on sparse"):
        cross_val_score(RidgeClassifier(solver="cholesky"), *SPARSE)


def test_kernel_matrices_that_are_none():
    X, y = LABELS
    grid = {"kernel": ["rbf", "precomputed"]}
    found, _ = scores(FastGridSearchCV, SVC(), grid, X, y)
    expected, _ = scores(GridSearchCV, SVC(), {"kernel": ["rbf"]}, X, y)
    assert found[0] == expected[0]
    assert np.isnan(found[1])
    with pytest.raises(ValueError, match="must be the square matrix"):
        scores(FastGridSearchCV, SVC(), {"kernel": ["precomputed"]}, X, y)
    K = sp.csr_matrix(X @ X.T)
    found, _ = scores(FastGridSearchCV, SVC(), grid, K, y)
    expected, _ = scores(GridSearchCV, SVC(), grid, K, y)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[1])


def test_skewed_kernel_matrices_fail_alone():
    X, y = LABELS
    K = X @ X.T + np.random.default_rng(0).uniform(0.0, 0.1, (150, 150))
    found, _ = scores(FastGridSearchCV, SVC(), {"kernel": ["precomputed", "linear"]}, K, y)
    expected, _ = scores(GridSearchCV, SVC(), {"kernel": ["linear"]}, K, y)
    assert np.isnan(found[0])
    assert abs(found[1] - expected[0]) < 0.007


def test_settings_of_scikit_learn_are_respected():
    from sklearn import config_context

    with config_context(skip_parameter_validation=True):
        found, _ = scores(FastGridSearchCV, Ridge(), {"fit_intercept": [1, True]}, *NUMBERS)
    assert found[0] == found[1]


def test_values_are_checked_once(monkeypatch):
    calls = []

    def count(constraints, params, caller_name):
        calls.extend(params)

    monkeypatch.setattr(adapters, "validate_parameter_constraints", count)
    monkeypatch.setattr(adapters, "VALID", set())
    grid = {"alpha": np.geomspace(0.1, 10.0, 20), "gamma": np.geomspace(0.1, 10.0, 20)}
    FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3).fit(*NUMBERS)
    assert calls.count("alpha") == calls.count("gamma") == 20
    assert calls.count("kernel") == 1
    FastGridSearchCV(KernelRidge(kernel="rbf"), {"alpha": [0.1]}, cv=3).fit(*NUMBERS)
    assert calls.count("kernel") == 1


def test_what_is_known_to_be_valid_is_limited(monkeypatch):
    monkeypatch.setattr(adapters, "VALID", set(range(20_000)))
    found, _ = scores(FastGridSearchCV, Ridge(), {"alpha": [0.1, -1.0]}, *NUMBERS)
    np.testing.assert_array_equal(np.isnan(found), [False, True])
    assert 0 < len(adapters.VALID) < 100


def test_kernel_matrices_are_checked_once(monkeypatch):
    calls = []
    monkeypatch.setattr(adapters, "check_precomputed", calls.append)
    X, y = NUMBERS
    grid = {"alpha": np.geomspace(0.1, 10.0, 20)}
    FastGridSearchCV(KernelRidge(kernel="precomputed"), grid, cv=3).fit(X @ X.T, y)
    assert len(calls) == 1


def test_estimators_of_the_library_fail_alone():
    grid = {"alpha": [1.0, -1.0], "gamma": [0.1, -1.0]}
    found, _ = scores(FastGridSearchCV, KernelRegressor(), grid, *NUMBERS)
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, True])


# -- extreme values ------------------------------------------------------------------------------

CANCER = load_breast_cancer(return_X_y=True)
SCALED = StandardScaler().fit_transform(CANCER[0][:80]), CANCER[1][:80]


@pytest.mark.parametrize(
    ("estimator", "grid", "data"),
    [
        (SVC(), {"C": [1.0, 1e-310]}, LABELS),
        (SVC(gamma=0.1), {"C": [1e-320, 1.0, 1e300]}, SCALED),
        (SVC(), {"gamma": [0.1, 1e39]}, SCALED),
        (SVC(), {"gamma": [1e200, 0.1, 1e-310, 1e308]}, SCALED),
        (SVC(), {"class_weight": [None, {0: 1e300}, {0: 1e-300, 1: 1.0}, {0: np.inf}]}, SCALED),
        (SVR(gamma=0.1), {"epsilon": [0.1, 1e-310, 1e300]}, NUMBERS),
        (KernelRidge(kernel="rbf"), {"gamma": [0.1, 1e300, 1e-310]}, NUMBERS),
        (KernelRidge(kernel="rbf", gamma=0.1), {"alpha": [1.0, 1e300, 1e-310]}, NUMBERS),
        (KernelRidge(kernel="poly"), {"degree": [3, 60, 300]}, NUMBERS),
        (KernelRidge(kernel="poly"), {"coef0": [1.0, 1e6, 1e12], "gamma": [0.1, 1e9]}, NUMBERS),
        (Ridge(), {"alpha": [1.0, 1e300, 1e-310]}, NUMBERS),
        (LogisticRegression(max_iter=1000), {"C": [1.0, 1e-320, 1e-300]}, TWO),
        (LogisticRegression(max_iter=1000), {"class_weight": [None, {0: 1e300}]}, SCALED),
        (LogisticRegression(max_iter=1000), {"class_weight": [None, {0: 1e10}]}, SCALED),
    ],
)
def test_extreme_candidates_leave_the_others_alone(estimator, grid, data):
    expected, _ = scores(GridSearchCV, estimator, grid, *data)
    found, _ = scores(FastGridSearchCV, estimator, grid, *data)
    np.testing.assert_allclose(found, expected, atol=0.008)


def test_a_ridge_that_fails_leaves_the_others_their_scores():
    X, y = SCALED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = FastGridSearchCV(LogisticRegression(), {"C": [1.0, 1e30]}, cv=4).fit(X, y)
    alone = cross_val_score(LogisticRegression(), X, y, cv=4)
    assert search.cv_results_["mean_test_score"][0] == alone.mean()


def test_penalties_whose_ridge_is_infinite_fail_alone():
    found, _ = scores(FastGridSearchCV, HuberSVC(gamma=0.1), {"C": [1.0, 1e-310]}, *SCALED)
    assert np.isnan(found).tolist() == [False, True]


def test_kernels_that_fail_on_all_rows_fail_alone(monkeypatch):
    from everyfold.crossval.svm import FoldPaths

    begin = FoldPaths.begin

    def broken(self, problems, operator, ridges):
        if len(ridges) > 1 or ridges[0] == 0.5:
            raise ValueError("no such kernel")
        return begin(self, problems, operator, ridges)

    monkeypatch.setattr(FoldPaths, "begin", broken)
    found, _ = scores(FastGridSearchCV, SVC(gamma=0.1), {"C": [0.1, 1.0, 10.0]}, *SCALED)
    assert np.isnan(found).tolist() == [False, True, False]
