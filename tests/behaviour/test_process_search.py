"""Kernels of Gaussian processes that are selected by held-out scores, against refits."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, ShuffleSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import FastGradientSearchCV
from everyfold.scorers import log_density_scorer, neg_crps_scorer

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2.0, 2.0, size=(60, 2))
Y = np.column_stack([np.sin(2.0 * X[:, 0]), X[:, 1]]) + 0.2 * RANDOM.normal(size=(60, 2))
KERNEL = ConstantKernel(2.0) * RBF([1.0, 1.0]) + WhiteKernel(0.5)
MODEL = GaussianProcessRegressor(KERNEL, alpha=1e-6, normalize_y=True)
CV = KFold(5, shuffle=True, random_state=0)


def score_of(kernel, scorer, cv=CV, y=Y[:, 0], groups=None):
    model = clone(MODEL).set_params(kernel=kernel, optimizer=None)
    splits = cv.split(X, y, groups)
    return np.mean([scorer(model.fit(X[a], y[a]), X[b], y[b]) for a, b in splits])


@pytest.mark.parametrize("cv", [CV, LeaveOneOut(), GroupKFold(4)], ids=["k", "one", "groups"])
@pytest.mark.parametrize(
    ("loss", "scorer"),
    [
        ("auto", log_density_scorer),
        ("crps", neg_crps_scorer),
        ("squared", lambda model, X, y: -np.mean((model.predict(X) - y) ** 2)),
    ],
    ids=["density", "crps", "squared"],
)
def test_the_kernel_is_an_optimum_of_the_scores_of_refits(loss, scorer, cv):
    groups = np.arange(60) // 5 if isinstance(cv, GroupKFold) else None
    search = FastGradientSearchCV(MODEL, loss=loss, cv=cv).fit(X, Y[:, 0], groups=groups)
    best = search.best_params_["kernel"]
    assert_allclose(search.best_score_, score_of(best, scorer, cv, groups=groups), rtol=1e-7)
    assert search.best_score_ > score_of(KERNEL, scorer, cv, groups=groups)
    for step in 0.3 * np.vstack([np.eye(4), -np.eye(4)]):
        near = np.clip(best.theta + step, *best.bounds.T)
        near = score_of(best.clone_with_theta(near), scorer, cv, groups=groups)
        assert search.best_score_ > near - 1e-4 * abs(near)


def test_the_winner_is_fitted_with_that_kernel():
    search = FastGradientSearchCV(MODEL, cv=CV).fit(pd.DataFrame(X, columns=list("ab")), Y)
    best = search.best_estimator_
    assert best.optimizer is None
    assert best.kernel == search.best_params_["kernel"]
    mean, std = search.predict(pd.DataFrame(X, columns=list("ab")), return_std=True)
    expected = clone(best).fit(X, Y).predict(X, return_std=True)
    assert_allclose((mean, std), expected)
    assert search.feature_names_in_.tolist() == ["a", "b"]
    (path,) = search.path_
    assert path["start_score"] < path["score"] == search.best_score_
    assert search.n_iter_ == path["steps"]
    assert str(best.kernel) in search.summary_


@pytest.mark.parametrize("loss", ["squared", "crps", "log_density"])
def test_the_kernel_does_not_depend_on_the_unit_of_y(loss):
    found = [
        FastGradientSearchCV(MODEL, loss=loss, cv=CV).fit(X, unit * Y[:, 0]) for unit in (1.0, 1e-4)
    ]
    first, second = (search.best_params_["kernel"].theta for search in found)
    assert_allclose(first, second, rtol=1e-3, atol=1e-3)
    assert min(search.n_iter_ for search in found) > 2


def test_bounds_and_fixed_parameters_stay():
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, (0.9, 1.1)) + WhiteKernel(0.5, (0.3, 2.0))
    search = FastGradientSearchCV(clone(MODEL).set_params(kernel=kernel), cv=CV).fit(X, Y[:, 0])
    found = search.best_params_["kernel"]
    assert found.k1.k1.constant_value == 2.0
    assert 0.9 <= found.k1.k2.length_scale <= 1.1
    assert_allclose(found.k2.noise_level, 0.3)  # the noise is less


def test_restarts_are_those_of_scikit_learn_and_the_best_wins():
    bad = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(50.0, (1e-2, 1e2)) + WhiteKernel(1.0, (1e-3, 10))
    model = GaussianProcessRegressor(bad, n_restarts_optimizer=3, random_state=0)
    search = FastGradientSearchCV(model, cv=CV).fit(X, Y[:, 0])
    random = np.random.RandomState(0)
    drawn = [random.uniform(*bad.bounds.T) for _ in range(3)]
    starts = [path["start"].theta for path in search.path_]
    assert_allclose(starts, [bad.theta, *drawn])
    assert search.best_score_ == max(path["score"] for path in search.path_)


def test_noise_of_rows_and_overlapping_folds():
    noise = RANDOM.uniform(0.01, 0.2, 60)
    model = GaussianProcessRegressor(ConstantKernel() * Matern(1.0, nu=2.5), alpha=noise)
    cv = ShuffleSplit(3, random_state=0)
    search = FastGradientSearchCV(model, cv=cv, refit=False).fit(X, Y[:, 0])
    scores = []
    for train, test in cv.split(X):
        own = clone(model).set_params(
            alpha=noise[train], kernel=search.best_params_["kernel"], optimizer=None
        )
        mean, std = own.fit(X[train], Y[train, 0]).predict(X[test], return_std=True)
        scores.append(norm.logpdf(Y[test, 0], mean, np.sqrt(std**2 + noise[test])).mean())
    assert_allclose(search.best_score_, np.mean(scores), rtol=1e-8)


@pytest.mark.parametrize(
    ("given", "fit", "words"),
    [
        ({"start": {"gamma": 1.0}}, {}, "start=.* has no effect on a GaussianProcessRegressor"),
        ({"per_feature": False}, {}, "per_feature=False has no effect"),
        ({"loss": "absolute"}, {}, "use 'auto' or one of"),
        ({"max_iter": 0}, {}, "use None or an integer >= 1"),
        ({"estimator": GaussianProcessRegressor(RBF(1.0, "fixed"))}, {}, "no hyper-parameters"),
        ({"estimator": GaussianProcessRegressor(RBF(1e9), alpha=0.0)}, {}, "not positive definite"),
        ({"cv": [(np.arange(60), np.arange(5))]}, {}, "test row in the training set"),
        ({}, {"sample_weight": np.ones(60)}, "takes no sample_weight"),
    ],
)
def test_what_makes_no_sense_is_refused(given, fit, words):
    search = FastGradientSearchCV(**{"estimator": MODEL, "cv": CV} | given)
    with pytest.raises(ValueError, match=words):
        search.fit(X, Y[:, 0], **fit)
    with pytest.raises(ValueError, match="no plan for a Gaussian"):
        search.plan(X, Y[:, 0])


# fit has sample_weight for other estimators, and refuses it for these.
WEIGHTS = "a Gaussian process takes no weights"


@parametrize_with_checks(
    [FastGradientSearchCV(GaussianProcessRegressor(RBF() + WhiteKernel()), cv=3, max_iter=1)],
    expected_failed_checks=lambda _: dict.fromkeys(
        (
            "check_sample_weights_pandas_series",
            "check_sample_weights_not_an_array",
            "check_sample_weights_list",
            "check_all_zero_sample_weights_error",
            "check_sample_weights_shape",
            "check_sample_weights_not_overwritten",
            "check_sample_weight_equivalence_on_dense_data",
        ),
        WEIGHTS,
    ),
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
