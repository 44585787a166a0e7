"""Generalised linear models with a log link: the minima that tight refits find."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, PoissonRegressor, Ridge, TweedieRegressor
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, UnsupportedWarning
from everyfold import cross_val_predict as everyfold_predict
from everyfold.losses import Tweedie

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 5)) + 0.3
MEANS = np.exp(X @ RNG.normal(size=5) * 0.5 + 1.5)
COUNTS = RNG.poisson(MEANS).astype(float)
SIZES = RNG.gamma(2.0, MEANS / 2.0)
WEIGHTS = RNG.uniform(0.2, 3.0, 120)
GROUPS = np.arange(120) % 6
ALPHAS = {"alpha": [1e-3, 0.1, 10.0]}
TIGHT = {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 1000}
MODELS = [
    (PoissonRegressor(), COUNTS),
    (GammaRegressor(), SIZES),
    (TweedieRegressor(power=1.5), COUNTS),
]


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
def test_slopes_and_curvatures_are_derivatives(power):
    loss, u, y, step = Tweedie(power), np.linspace(-2.0, 3.0, 11), 1.7, 1e-5
    known = (loss.value(y, u + step) - loss.value(y, u - step)) / (2 * step)
    assert_allclose(loss.slope(y, u), known, rtol=1e-7, atol=1e-8)
    known = (loss.slope(y, u + step) - loss.slope(y, u - step)) / (2 * step)
    assert_allclose(loss.curvature(y, u), known, rtol=1e-7, atol=1e-8)
    assert np.isfinite(loss.slope(y, [-1e4, 1e4])).all()


def check(model, y, cv=4, scoring=None, rows=X, grid=ALPHAS, **fit):
    asked = {"cv": cv, "scoring": scoring}
    prefix = next(iter(grid)).rpartition("alpha")[0]
    tight = clone(model).set_params(**{prefix + name: value for name, value in TIGHT.items()})
    ours = FastGridSearchCV(model, grid, **asked).fit(rows, y, **fit)
    theirs = GridSearchCV(tight, grid, **asked).fit(rows, y, **fit)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6, atol=1e-7)
    assert ours.cv_results_["is_exact"].all()
    assert "columns" in str(ours.plan_)
    return ours


@pytest.mark.parametrize(("model", "y"), MODELS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("has_weights", [True, False])
def test_own_scores_are_shares_of_the_deviance(model, y, fit_intercept, has_weights):
    fit = {"sample_weight": WEIGHTS} if has_weights else {}
    search = check(clone(model).set_params(fit_intercept=fit_intercept), y, **fit)
    assert type(search.best_estimator_) is type(model)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_poisson_deviance", "neg_mean_absolute_error"])
def test_other_scores_are_those_of_predictions(scoring):
    check(PoissonRegressor(), COUNTS, scoring=scoring)
    pipeline = make_pipeline(StandardScaler(), PoissonRegressor())
    grid = {"poissonregressor__alpha": [0.01, 1.0]}
    check(pipeline, COUNTS, scoring=scoring, grid=grid)


@pytest.mark.parametrize("cv", [LeaveOneGroupOut(), ShuffleSplit(3, random_state=0), KFold(8)])
def test_other_folds(cv):
    fit = {"groups": GROUPS} if isinstance(cv, LeaveOneGroupOut) else {}
    check(PoissonRegressor(), COUNTS, cv=cv, **fit)


def test_more_columns_than_rows():
    wide = RNG.standard_normal((40, 60))
    check(PoissonRegressor(), COUNTS[:40], rows=wide, grid={"alpha": [0.1, 1.0]})


@pytest.mark.parametrize(
    "y",
    [np.ones(120), COUNTS * 1e4, np.where(np.arange(120) % 12 < 1, COUNTS, 0.0)],
    ids=["constant", "large", "mostly zero"],
)
def test_targets_of_any_size(y):
    known = cross_val_predict(PoissonRegressor(alpha=0.01, **TIGHT), X, y, cv=KFold(4))
    found = everyfold_predict(PoissonRegressor(alpha=0.01), X, y, cv=KFold(4))
    assert_allclose(found, known, rtol=1e-5, atol=1e-7 * y.max())


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (GammaRegressor(), COUNTS),
        (PoissonRegressor(alpha=0.0), COUNTS),
        (TweedieRegressor(power=0.0), COUNTS),
        (TweedieRegressor(power=1.5, link="identity"), COUNTS),
    ],
    ids=["zeros", "no ridge", "normal", "identity"],
)
def test_what_is_left_to_refits(model, y):
    y = y + (not isinstance(model, GammaRegressor))
    model = clone(model).set_params(max_iter=1000)
    options = {"cv": 3, "refit": False}
    if isinstance(model, GammaRegressor):
        assert (y == 0.0).any()
        with (
            pytest.warns(UnsupportedWarning, match="y must be > 0"),
            pytest.raises(ValueError, match="out of the valid range"),
        ):
            FastGridSearchCV(model, {"max_iter": [100]}, error_score="raise", **options).fit(X, y)
        return
    with pytest.warns(UnsupportedWarning):
        FastGridSearchCV(model, {"fit_intercept": [True]}, **options).fit(X, y)


def test_grids_over_models_with_other_scores():
    pipeline = make_pipeline(StandardScaler(), PoissonRegressor(**TIGHT))
    grid = {"poissonregressor": [PoissonRegressor(**TIGHT), Ridge()]}
    with pytest.warns(UnsupportedWarning, match="score"):
        ours = FastGridSearchCV(pipeline, grid, cv=3).fit(X, COUNTS)
    theirs = GridSearchCV(pipeline, grid, cv=3).fit(X, COUNTS)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)


def test_steps_are_refused():
    with pytest.raises(ValueError, match="method='exact'"):
        FastGridSearchCV(PoissonRegressor(), ALPHAS, method="fast").fit(X, COUNTS)
