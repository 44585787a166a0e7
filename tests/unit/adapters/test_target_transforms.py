"""Targets that are transformed, by the rule of each training set, against refits."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, QuantileTransformer, StandardScaler
from sklearn.svm import SVR

from everyfold import (
    LSSVR,
    FastGridSearchCV,
    KernelRegressor,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)

X, Y = load_diabetes(return_X_y=True)
X, Y = X[:90] * 20.0, Y[:90]
BOTH = np.column_stack([Y, Y[::-1] + X[:, 2]])
LOG = {"func": np.log, "inverse_func": np.exp}


def wrapped(regressor, **rule):
    return TransformedTargetRegressor(regressor, **rule)


QUANTILES = QuantileTransformer(n_quantiles=15, output_distribution="normal")
CASES = {
    "log": wrapped(KernelRidge(kernel="rbf", gamma=0.1, alpha=0.1), **LOG),
    "scaled": wrapped(LSSVR(gamma=0.1), transformer=StandardScaler()),
    "power": wrapped(Ridge(), transformer=PowerTransformer()),
    "quantiles": wrapped(KernelRidge(kernel="rbf", gamma=0.1), transformer=QUANTILES),
    "svr": wrapped(SVR(gamma=0.1, tol=1e-8), **LOG),
    "newton": wrapped(KernelRegressor("quadratic_epsilon", gamma=0.1), **LOG),
    "steps": wrapped(
        make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=0.1)),
        transformer=PowerTransformer(),
    ),
    "last step": make_pipeline(StandardScaler(), wrapped(Ridge(), transformer=PowerTransformer())),
    "nothing": wrapped(Ridge()),
    "ridgecv": wrapped(RidgeCV(), **LOG),
}
SPLITTERS = {
    "five": ms.KFold(5),
    "shuffle": ms.ShuffleSplit(4, test_size=0.3, random_state=0),
    "time": ms.TimeSeriesSplit(4),
    "loo": ms.LeaveOneOut(),
}


@pytest.mark.parametrize("cv", SPLITTERS)
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_refits(name, cv):
    if cv == "loo" and ("step" in name or name in ("svr", "newton", "quantiles")):
        pytest.skip("beyond 20 folds steps and losses other than the squared one approximate")
    options = {"cv": SPLITTERS[cv], "scoring": "neg_mean_absolute_error"}
    ours = cross_val_score(CASES[name], X, Y, fallback="refuse", **options)
    assert_allclose(ours, ms.cross_val_score(CASES[name], X, Y, **options), rtol=1e-5)


@pytest.mark.parametrize("y", [Y, Y[:, None], BOTH])
def test_predictions_have_scikit_learns_shape(y):
    model = CASES["power"]
    ours = cross_val_predict(model, X, y, cv=4, fallback="refuse")
    theirs = ms.cross_val_predict(model, X, y, cv=4)
    assert ours.shape == theirs.shape
    assert_allclose(ours, theirs, rtol=1e-6)


def test_a_search_with_weights_training_scores_and_a_winner():
    grid = {"regressor__alpha": [0.01, 1.0], "transformer": [StandardScaler(), PowerTransformer()]}
    model = wrapped(KernelRidge(kernel="rbf", gamma=0.1))
    options = {"cv": 4, "return_train_score": True, "scoring": ["r2", "neg_mean_squared_error"]}
    weights = {"sample_weight": np.random.default_rng(0).uniform(0.5, 2.0, len(Y))}
    ours = FastGridSearchCV(model, grid, refit="r2", fallback="refuse", **options)
    ours.fit(X, Y, **weights)
    theirs = ms.GridSearchCV(model, grid, refit="r2", **options).fit(X, Y, **weights)
    for key in ("mean_test_r2", "mean_train_r2", "mean_test_neg_mean_squared_error"):
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)
    assert_allclose(ours.predict(X), theirs.predict(X))
    assert ours.cv_results_["is_exact"].all()
    values = ours.out_of_fold().values
    assert_allclose(values, ms.cross_val_predict(ours.best_estimator_, X, Y, cv=4, params=weights))


def test_a_fold_whose_targets_cannot_be_transformed_fails_alone():
    y = Y.copy()
    y[:20] = -1.0  # no logarithm, but for the fold that leaves these rows out
    model = wrapped(Ridge(), transformer=PowerTransformer(method="box-cox"))
    cv = [(np.arange(20, 90), np.arange(20, 40)), (np.arange(60), np.arange(60, 90))]
    with pytest.warns(Warning, match="could not be fitted"):
        ours = cross_val_score(model, X, y, cv=cv, fallback="refuse")
    with pytest.warns(Warning, match="fits failed"):
        theirs = ms.cross_val_score(model, X, y, cv=cv)
    assert_allclose(ours, theirs)
    assert np.isnan(ours).tolist() == [False, True]


def test_permutations_of_a_transformed_target():
    options = {"cv": 3, "n_permutations": 8, "random_state": 0}
    ours = permutation_test_score(CASES["power"], X, Y, fallback="refuse", **options)
    theirs = ms.permutation_test_score(CASES["power"], X, Y, **options)
    for found, expected in zip(ours, theirs, strict=True):
        assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        wrapped(SVR(), transformer=StandardScaler()),
        wrapped(wrapped(Ridge())),
        wrapped(make_pipeline(SelectKBest(f_regression, k=3), Ridge()), **LOG),
    ],
)
def test_what_shares_nothing_is_refitted(model):
    with pytest.raises((TypeError, ValueError)):
        cross_val_score(model, X, Y, cv=3, fallback="refuse")
    ours = cross_val_score(model, X, Y, cv=3, fallback="refit")
    assert_allclose(ours, ms.cross_val_score(model, X, Y, cv=3))
