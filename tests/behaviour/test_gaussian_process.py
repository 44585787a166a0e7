"""Held-out distributions of Gaussian processes against refits of every fold."""

import warnings

import numpy as np
import pytest
from scipy.integrate import trapezoid
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
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RandomizedSearchCV,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.model_selection import cross_val_score as their_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    FastGridSearchCV,
    FastRandomizedSearchCV,
    InexactWarning,
    UnsupportedWarning,
    cross_val_predict,
    cross_val_score,
)
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
    assert crps(y, mean, std) == pytest.approx(trapezoid(integrand, t), rel=1e-4)
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


# -- searches by scores of distributions -----------------------------------------------------------


def _agree(ours, theirs, rtol=1e-7):
    for name, column in theirs.cv_results_.items():
        if name.startswith(("split", "mean_test", "std_test", "rank")):
            np.testing.assert_allclose(ours.cv_results_[name], column, rtol=rtol, err_msg=name)
    assert ours.best_params_ == theirs.best_params_


@pytest.mark.parametrize("cv", [KFold(4), ShuffleSplit(3, random_state=0), GroupKFold(4)])
@pytest.mark.parametrize(
    "scoring",
    [log_density_scorer, {"density": log_density_scorer, "crps": neg_crps_scorer}],
    ids=["one", "several"],
)
def test_a_search_by_density_needs_no_refits(scoring, cv, monkeypatch):
    grid = [
        {"kernel": [KERNELS["matern"], KERNELS["noise that grows"]], "alpha": [0.01, 0.3]},
        {"kernel": [2.0 * RBF(1.0)], "kernel__k1__constant_value": [0.5, 3.0]}
        | {"kernel__k2__length_scale": [0.3, 2.0], "normalize_y": [True, False]},
    ]
    given = {"cv": cv, "scoring": scoring, "refit": "crps" if isinstance(scoring, dict) else True}
    groups = GROUPS if isinstance(cv, GroupKFold) else None
    theirs = GridSearchCV(process(None, alpha=0.01), grid, **given).fit(X, Y[:, 0], groups=groups)
    fits = count_fits(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedWarning)
        ours = FastGridSearchCV(process(None, alpha=0.01), grid, **given).fit(
            X, Y[:, 0], groups=groups
        )
    assert len(fits) == 1  # the winner
    _agree(ours, theirs)
    assert set(ours.cv_results_["status"]) == {"exact"}
    assert ours.cv_results_["is_exact"].all()
    assert "one factorisation" in str(ours.plan_)


def count_fits(monkeypatch):
    fits, fit = [], GaussianProcessRegressor.fit
    monkeypatch.setattr(
        GaussianProcessRegressor, "fit", lambda self, *data: fits.append(1) or fit(self, *data)
    )
    return fits


def test_a_search_by_error_over_parts_of_a_kernel_needs_no_refits(monkeypatch):
    grid = {"kernel__k1__k2__length_scale": [0.3, 1.0], "kernel__k2__noise_level": [0.1, 1.0]}
    model, cv = process(2.0 * RBF(1.0) + WhiteKernel(0.1)), KFold(4)
    scoring = "neg_mean_squared_error"
    theirs = GridSearchCV(model, grid, cv=cv, scoring=scoring).fit(X, Y[:, 0])
    fits = count_fits(monkeypatch)
    ours = FastGridSearchCV(model, grid, cv=cv, scoring=scoring).fit(X, Y[:, 0])
    assert len(fits) == 1
    _agree(ours, theirs)


def test_a_random_search_by_density_in_several_processes():
    given = {"n_iter": 4, "random_state": 0, "cv": 3, "scoring": log_density_scorer}
    values = {"alpha": [0.01, 0.1, 1.0], "kernel__length_scale": [0.5, 1.0, 2.0]}
    ours = FastRandomizedSearchCV(process(RBF(1.0)), values, n_jobs=2, **given).fit(X, Y[:, 0])
    _agree(ours, RandomizedSearchCV(process(RBF(1.0)), values, **given).fit(X, Y[:, 0]))


def test_what_is_not_shared_is_refitted_as_before():
    forget_warnings()
    pipeline = make_pipeline(StandardScaler(), process(RBF(1.0)))
    cases = [
        (pipeline, {"gaussianprocessregressor__alpha": [0.01, 0.3]}, 3),
        (GaussianProcessRegressor(RBF(1.0)), {"alpha": [0.01, 0.3]}, 3),
        (process(RBF(1.0)), {"alpha": [0.01, -1.0]}, 3),
    ]
    for model, grid, cv in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {"cv": cv, "scoring": log_density_scorer}
            ours = FastGridSearchCV(model, grid, **given).fit(X, Y[:, 0])
            theirs = GridSearchCV(model, grid, **given).fit(X, Y[:, 0])
        _agree(ours, theirs)


def test_the_noise_of_a_process_in_a_pipeline_counts():
    pipeline = make_pipeline(StandardScaler(), process(RBF(1.0), alpha=0.3)).fit(X, Y[:, 0])
    alone = process(RBF(1.0), alpha=0.3).fit(pipeline[0].transform(X), Y[:, 0])
    expected = log_density_scorer(alone, pipeline[0].transform(X), Y[:, 0])
    assert log_density_scorer(pipeline, X, Y[:, 0]) == pytest.approx(expected)


# -- held-out distributions of searches, and shared hyper-parameters -------------------------------


@pytest.mark.parametrize("scoring", [log_density_scorer, "r2"])
@pytest.mark.parametrize("cv", [KFold(4), ShuffleSplit(5, random_state=0)])
def test_held_out_distributions_of_a_search_are_those_of_refits(scoring, cv):
    model = process(2.0 * RBF(1.0) + WhiteKernel(0.1), normalize_y=True)
    search = FastGridSearchCV(model, {"kernel__k2__noise_level": [0.05, 0.2]}, cv=cv)
    found = search.set_params(scoring=scoring).fit(X, Y[:, 0]).out_of_fold()
    means, variances = np.full((5, 50), np.nan), np.full((5, 50), np.nan)
    for k, (train, test) in enumerate(cv.split(X)):
        own = clone(model).set_params(**search.best_params_).fit(X[train], Y[train, 0])
        means[k, test], std = own.predict(X[test], return_std=True)
        variances[k, test] = std**2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows that no fold held out
        np.testing.assert_allclose(found.values, np.nanmean(means, axis=0), atol=1e-9)
        np.testing.assert_allclose(found.std, np.sqrt(np.nanmean(variances, axis=0)), rtol=1e-8)
    assert found.is_exact
    np.testing.assert_array_equal(found.repeats, (~np.isnan(means)).sum(axis=0))


def test_other_searches_have_no_deviations():
    search = FastGridSearchCV(KernelRidge(), {"alpha": [1.0]}, cv=3).fit(X, Y[:, 0])
    assert search.out_of_fold().std is None


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_folds_can_share_the_hyper_parameters_of_the_full_fit(in_pipeline):
    model = GaussianProcessRegressor(2.0 * RBF(1.0) + WhiteKernel(0.1), normalize_y=True)
    given = make_pipeline(StandardScaler(), model) if in_pipeline else model
    shared = clone(given)
    fitted = clone(given).fit(X, Y[:, 0])
    kernel = (fitted[-1] if in_pipeline else fitted).kernel_
    (shared[-1] if in_pipeline else shared).set_params(kernel=kernel, optimizer=None)
    asked = {"cv": 4, "hyperparameters": "of the full fit"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedWarning)
        expected = cross_val_predict(shared, X, Y[:, 0], cv=4, return_std=True)
        with pytest.warns(InexactWarning, match="has seen the held-out rows"):
            ours = cross_val_predict(given, X, Y[:, 0], return_std=True, **asked)
        np.testing.assert_array_equal(ours, expected)
        with pytest.warns(InexactWarning, match="has seen the held-out rows"):
            scores = cross_val_score(given, X, Y[:, 0], scoring=log_density_scorer, **asked)
        np.testing.assert_array_equal(
            scores, cross_val_score(shared, X, Y[:, 0], cv=4, scoring=log_density_scorer)
        )
        with pytest.warns(InexactWarning, match="has seen the held-out rows"):
            ours = cross_val_predict(given, X, Y[:, 0], **asked)
        np.testing.assert_allclose(ours, expected[0], atol=1e-9)


def test_fixed_hyper_parameters_are_shared_anyway():
    ours = cross_val_score(process(RBF(1.0)), X, Y, cv=3, hyperparameters="of the full fit")
    np.testing.assert_array_equal(ours, cross_val_score(process(RBF(1.0)), X, Y, cv=3))
    with pytest.raises(ValueError, match="is for GaussianProcessRegressor, not KernelRidge"):
        cross_val_predict(KernelRidge(), X, Y, hyperparameters="of the full fit")
    with pytest.raises(ValueError, match="use None or 'of the full fit'"):
        cross_val_score(process(RBF(1.0)), X, Y, hyperparameters="shared")
