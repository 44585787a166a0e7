"""Linear models on columns whose Gram matrix has too few digits: from the columns themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from everyfold import FastGridSearchCV, cross_val_predict
from everyfold.linalg.columns import Columns

ALPHAS = [1e-6, 1e-4, 1e-2, 1.0, 10.0, 100.0]
pytestmark = pytest.mark.filterwarnings(
    "ignore:the best alpha", "ignore:.*not known to equal a refit"
)
FOLDS = {"few": KFold(3), "many": KFold(15), "single rows": LeaveOneOut()}


def ill_conditioned(n, condition, rng):
    U = np.linalg.qr(rng.normal(size=(n, 9)))[0]
    W = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    return (U * np.logspace(0, -np.log10(condition), 9)) @ W * 1e5 * np.sqrt(n)


def of_sizes(n, _, rng):
    """Columns of very different size, one of them constant, and one the sum of two others."""
    X = rng.normal(size=(n, 8)) * np.logspace(-5, 6, 8)
    X[:, 3] = 7e4
    X[:, 5] = X[:, 4] + X[:, 6]
    return X


def least_squares(A, b):
    """By reflections in extended precision."""
    A, b = A.astype(np.longdouble), b.astype(np.longdouble)
    for j in range(A.shape[1]):
        v = A[j:, j].copy()
        v[0] += np.copysign(np.sqrt(v @ v), v[0])
        if v @ v > 0:
            A[j:] -= np.outer(v, 2 * (v @ A[j:]) / (v @ v))
            b[j:] -= v * (2 * (v @ b[j:]) / (v @ v))
    x = np.zeros(A.shape[1], np.longdouble)
    for j in reversed(range(len(x))):
        x[j] = (b[j] - A[j, j + 1 :] @ x[j + 1 :]) / A[j, j]
    return x


def held_out(X, y, w, alpha, splits):
    """Predictions of ridge regressions in extended precision."""
    X, y, w = (part.astype(np.longdouble) for part in (X, y, w))
    found = np.empty(len(y))
    for train, test in splits:
        s = np.sqrt(w[train])
        centre, level = w[train] @ X[train] / w[train].sum(), w[train] @ y[train] / w[train].sum()
        A = np.vstack([(X[train] - centre) * s[:, None], np.sqrt(alpha) * np.eye(X.shape[1])])
        b = np.concatenate([(y[train] - level) * s, np.zeros(X.shape[1])])
        found[test] = (X[test] - centre) @ least_squares(A, b) + level
    return found


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("cv", FOLDS)
@pytest.mark.parametrize(
    ("make", "condition"), [(ill_conditioned, 1e8), (ill_conditioned, 1e12), (of_sizes, 0)]
)
def test_ridge_has_the_scores_of_extended_precision(make, condition, cv, is_weighted):
    rng = np.random.default_rng(3)
    n, cv = 60, FOLDS[cv]
    X = make(n, condition, rng)
    y = X @ rng.normal(size=X.shape[1]) / np.abs(X).max() + 0.1 * rng.normal(size=n)
    w = rng.uniform(0.3, 3.0, n) if is_weighted else np.ones(n)
    search = FastGridSearchCV(
        Ridge(),
        {"alpha": ALPHAS},
        cv=cv,
        scoring="neg_mean_squared_error",
        refit=False,
        n_confirm=0,
    ).fit(X, y, **({"sample_weight": w} if is_weighted else {}))
    splits = list(cv.split(X))
    for k, alpha in enumerate(ALPHAS):
        values = held_out(X, y, w, alpha, splits)
        wanted = [-np.average((y[t] - values[t]) ** 2, weights=w[t]) for _, t in splits]
        found = search.cv_results_["mean_test_score"][k]
        # κ ε is all that rounding may do; where that is much, the flag says so.
        assert_allclose(
            found, np.mean(wanted), rtol=1e-5 if search.cv_results_["is_exact"][k] else 1e-3
        )
    assert search.cv_results_["is_exact"][ALPHAS.index(1.0) :].all()


def test_columns_of_a_condition_beyond_rounding_are_scored_and_flagged():
    rng = np.random.default_rng(0)
    X = ill_conditioned(300, 1e16, rng)
    y = X @ rng.normal(size=9) / np.abs(X).max() + 0.1 * rng.normal(size=300)
    search = FastGridSearchCV(
        Ridge(), {"alpha": [1e-12, 1e-9, 1e6]}, cv=5, refit=False, n_confirm=0
    ).fit(X, y)
    wanted = [
        cross_val_score(Ridge(alpha, solver="svd"), X, y).mean() for alpha in (1e-12, 1e-9, 1e6)
    ]
    assert_allclose(search.cv_results_["mean_test_score"], wanted, rtol=1e-3)
    assert search.cv_results_["is_exact"].tolist() == [False, False, True]


@pytest.mark.parametrize("estimator", [Ridge(), RidgeClassifier()])
def test_polynomials_of_columns_of_different_size_are_scored(estimator):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 4)) * [1.0, 30.0, 1e3, 1e-2]
    y = X[:, 0] ** 2 + X[:, 1] * X[:, 0] / 30 + 0.3 * rng.normal(size=240)
    if isinstance(estimator, RidgeClassifier):
        y = np.where(y > 0.5, "up", "down")
    pipeline = make_pipeline(PolynomialFeatures(3), estimator)
    name = f"{type(estimator).__name__.lower()}__alpha"
    search = FastGridSearchCV(pipeline, {name: [0.1, 1.0, 10.0]}, cv=5, refit=False).fit(X, y)
    for found, alpha in zip(search.cv_results_["mean_test_score"], [0.1, 1.0, 10.0], strict=True):
        pipeline.set_params(**{name: alpha, f"{name[:-7]}__solver": "svd"})
        assert_allclose(found, cross_val_score(pipeline, X, y).mean(), rtol=1e-6)


@pytest.mark.parametrize("is_in_pipeline", [False, True])
@pytest.mark.parametrize("cv", [KFold(3), LeaveOneOut()])
def test_more_columns_than_rows_are_scored_where_their_products_have_no_digits(cv, is_in_pipeline):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(40, 4)) * [1.0, 30.0, 1e3, 1e-2]
    P, y, splits = PolynomialFeatures(4).fit_transform(X), rng.normal(size=40), list(cv.split(X))
    estimator = make_pipeline(PolynomialFeatures(4), Ridge()) if is_in_pipeline else Ridge()
    grid = {"ridge__" * is_in_pipeline + "alpha": [1e-3, 1.0]}
    search = FastGridSearchCV(
        estimator, grid, cv=cv, scoring="neg_mean_squared_error", refit=False, n_confirm=0
    ).fit(X if is_in_pipeline else P, y)
    for k, alpha in enumerate([1e-3, 1.0]):
        values = held_out(P, y, np.ones(40), alpha, splits)
        wanted = -np.mean([np.mean((y[test] - values[test]) ** 2) for _, test in splits])
        assert_allclose(search.cv_results_["mean_test_score"][k], wanted, rtol=1e-6)


def test_dependent_columns_without_a_ridge_predict_as_the_smallest_coefficients_do():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 5))
    X[:, 4] = X[:, 0] - X[:, 1]
    y = X @ np.arange(5.0) + rng.normal(size=40)
    found = cross_val_predict(Ridge(alpha=0.0), X, y, cv=4)
    wanted = np.empty(40)
    for train, test in KFold(4).split(X):
        centre = X[train].mean(axis=0)
        coef = np.linalg.lstsq(X[train] - centre, y[train] - y[train].mean(), rcond=1e-10)[0]
        wanted[test] = (X[test] - centre) @ coef + y[train].mean()
    assert_allclose(found, wanted, atol=1e-8)


def test_columns_give_the_inverse_of_their_gram_matrix():
    Z = np.random.default_rng(4).normal(size=(12, 4))
    for rho in (0.0, 0.5):
        P, condition = Columns(Z).at(rho)
        assert_allclose(P @ P.T, np.linalg.inv(Z.T @ Z + rho * np.eye(4)), atol=1e-12)
        assert 1.0 <= condition < 100.0
    P, condition = Columns(Z[:3]).at(0.5)
    assert_allclose(P @ P.T, np.linalg.inv(Z[:3].T @ Z[:3] + 0.5 * np.eye(4)), atol=1e-12)
