"""Held-out distributions of Gaussian processes against refits of every fold."""

import warnings

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.model_selection import cross_val_score as their_score

from everyfold import FastGridSearchCV, UnsupportedWarning, cross_val_predict, cross_val_score
from everyfold.engine.reading.reader import forget_warnings
from everyfold.scorers import (
    coverage_scorer,
    crps,
    log_density,
    log_density_scorer,
    neg_crps_scorer,
    quantile_of,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2.0, 2.0, size=(50, 2))
Y = np.column_stack([np.sin(2.0 * X[:, 0]) + 0.2 * RANDOM.normal(size=50), 7.0 * X[:, 1] + 100.0])
GROUPS = np.arange(50) // 4
NOISES = RANDOM.uniform(0.05, 0.5, 50)

KERNELS = {
    "rbf": RBF(0.8),
    "anisotropic": ConstantKernel(2.0) * RBF([0.7, 3.0]),
    "matern": Matern(1.0, nu=1.5) + WhiteKernel(0.1),
    "rational": RationalQuadratic(0.5, 2.0) * ConstantKernel(3.0) + DotProduct(0.5),
    "noise of its own": 1.5 * WhiteKernel(0.2) + ExpSineSquared(1.0, 3.0) * RBF(2.0),
    "power": Exponentiation(DotProduct(1.0), 2) + WhiteKernel(0.3),
    "noise that grows": RBF(1.0) + DotProduct(0.1) * WhiteKernel(0.2),
}
FOLDS = {
    "one": LeaveOneOut(),
    "ten": KFold(10, shuffle=True, random_state=0),
    "unequal": PredefinedSplit(np.minimum(np.arange(50) // 3, 5)),
    "groups": GroupKFold(4),
}


def process(kernel, **given):
    return GaussianProcessRegressor(kernel, optimizer=None, **given)


def refitted(model, y, splits):
    """Means and standard deviations by refits; rows keep their noise."""
    mean, std = np.empty(y.shape), np.empty(y.shape)
    for train, test in splits:
        own = clone(model)
        if np.ndim(model.alpha):
            own.set_params(alpha=model.alpha[train])
        mean[test], std[test] = own.fit(X[train], y[train]).predict(X[test], return_std=True)
    return mean, std


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("alpha", [0.01, "rows"])
@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_means_and_deviations_are_those_of_refits(kernel, folds, alpha, normalize):
    noise = NOISES if alpha == "rows" else alpha
    model = process(KERNELS[kernel], alpha=noise, normalize_y=normalize)
    cv, groups = FOLDS[folds], GROUPS if folds == "groups" else None
    for y in (Y[:, 0], Y):
        mean, std = cross_val_predict(model, X, y, cv=cv, groups=groups, return_std=True)
        expected = refitted(model, y, cv.split(X, y, groups))
        np.testing.assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(std, expected[1], rtol=1e-8, atol=1e-8)


def test_the_default_kernel_and_constant_targets():
    model = process(None, alpha=0.1, normalize_y=True)
    y = np.full(50, 3.0)
    mean, std = cross_val_predict(model, X, y, cv=5, return_std=True)
    np.testing.assert_allclose(mean, 3.0)
    np.testing.assert_allclose(std, refitted(model, y, KFold(5).split(X))[1], rtol=1e-9)


def test_refits_where_hyper_parameters_are_fitted_and_for_others():
    forget_warnings()
    for model in (GaussianProcessRegressor(RBF(1.0), alpha=0.1), BayesianRidge()):
        with pytest.warns(UnsupportedWarning, match="refitted on every fold"):
            mean, std = cross_val_predict(model, X, Y[:, 0], cv=3, return_std=True)
        expected = refitted_plainly(model, Y[:, 0], KFold(3).split(X))
        np.testing.assert_array_equal((mean, std), expected)


def refitted_plainly(model, y, splits):
    mean, std = np.empty(y.shape), np.empty(y.shape)
    for train, test in splits:
        own = clone(model).fit(X[train], y[train])
        mean[test], std[test] = own.predict(X[test], return_std=True)
    return mean, std


# -- scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [KFold(4), ShuffleSplit(3, random_state=0), TimeSeriesSplit(4)])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("scorer", [log_density_scorer, neg_crps_scorer, coverage_scorer(0.5)])
def test_scores_of_distributions_are_those_of_refits(scorer, normalize, cv):
    model = process(KERNELS["matern"], alpha=0.05, normalize_y=normalize)
    for y in (Y[:, 0], 10.0 * Y[:, 0] + 3.0):
        ours = cross_val_score(model, X, y, cv=cv, scoring=scorer)
        np.testing.assert_allclose(ours, their_score(model, X, y, cv=cv, scoring=scorer), rtol=1e-8)


def test_noise_of_rows_is_part_of_what_is_observed():
    model = process(RBF(0.8), alpha=NOISES)
    mean, std = refitted(model, Y[:, 0], LeaveOneOut().split(X))
    expected = norm.logpdf(Y[:, 0], mean, np.sqrt(std**2 + NOISES))
    ours = cross_val_score(model, X, Y[:, 0], cv=LeaveOneOut(), scoring=log_density_scorer)
    np.testing.assert_allclose(ours, expected, rtol=1e-8)
    with pytest.raises(ValueError, match="says nothing of the noise of new rows"):
        log_density_scorer(model.fit(X, Y[:, 0]), X, Y[:, 0])


def test_metrics_by_their_definitions():
    y, mean, std = 0.7, 0.2, 1.3
    t = np.linspace(-30.0, 30.0, 600_001)
    integrand = (norm.cdf(t, mean, std) - (t >= y)) ** 2
    assert crps(y, mean, std) == pytest.approx(np.trapezoid(integrand, t), rel=1e-4)
    assert log_density(y, mean, std) == pytest.approx(np.log(norm.pdf(y, mean, std)))
    assert quantile_of(y, mean, std) == pytest.approx(norm.cdf(y, mean, std))
    inside = coverage_scorer(0.8).metric(np.array([1.2815, 1.2817]), np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(inside, [1.0, 0.0])
    with pytest.raises(ValueError, match="between 0 and 1"):
        coverage_scorer(90)


# -- means in searches -----------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [False, True])
def test_a_search_over_processes_is_that_of_scikit_learn(normalize):
    model = process(RBF(1.0), normalize_y=normalize)
    grid = {
        "kernel": [RBF(0.5), 2.0 * RBF(1.5) + WhiteKernel(0.1), Matern(1.0)],
        "alpha": [0.01, 0.3],
    }
    cv = KFold(4, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedWarning)
        ours = FastGridSearchCV(model, grid, cv=cv, return_train_score=True).fit(X, Y)
    theirs = GridSearchCV(model, grid, cv=cv, return_train_score=True).fit(X, Y)
    for name in ("mean_test_score", "mean_train_score"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-7)
    assert ours.best_params_ == theirs.best_params_
    ours, theirs = (s.predict(X[:5], return_std=True) for s in (_best(ours), _best(theirs)))
    np.testing.assert_allclose(ours, theirs)


def _best(search):
    assert type(search.best_estimator_) is GaussianProcessRegressor
    return search.best_estimator_


def test_a_kernel_with_noise_that_differs_between_rows_is_refitted():
    forget_warnings()
    with pytest.warns(UnsupportedWarning, match="multiplies the noise"):
        ours = cross_val_score(process(KERNELS["noise that grows"], alpha=0.1), X, Y[:, 0], cv=3)
    model = process(KERNELS["noise that grows"], alpha=0.1)
    np.testing.assert_allclose(ours, their_score(model, X, Y[:, 0], cv=3))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "cv", "words"),
    [
        ({"alpha": np.ones(3)}, 3, "one for each of the 50 rows"),
        ({"alpha": -1.0}, 3, "finite numbers >= 0"),
        ({"alpha": 0.1}, ShuffleSplit(2), "partitions"),
        ({"alpha": 0.0, "kernel": RBF(1e9)}, 3, "not positive definite"),
    ],
)
def test_what_makes_no_sense_is_refused(given, cv, words):
    model = process(**{"kernel": RBF(0.8)} | given)
    with pytest.raises(ValueError, match=words):
        cross_val_predict(model, X, Y[:, 0], cv=cv, return_std=True)
