"""Bouligand influence functions of order r, in the block forms that the papers print."""

from math import factorial

import numpy as np
import pytest
from sklearn.model_selection import KFold

from everyfold import (
    LSSVR,
    FastGridSearchCV,
    HuberSVC,
    InexactWarning,
    QuadraticSVR,
    choose_granularity,
    cross_val_predict,
    cross_val_score,
    granularity_bound,
)
from tests import reference
from tests.cases import rbf
from tests.unit.crossval.test_influence import huber

N, T, GAMMA = 60, 5, 0.3
M = N // T
ORDERS = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(2)
    X = random.standard_normal((N, 3))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.2 * random.standard_normal(N)
    return X, y, rbf(X, X, GAMMA)


def taylor(u, first, more, order):
    """Held-out values: the Taylor series in −1/(t − 1) of the influence functions of each fold."""
    values = np.empty(N)
    for _, S in KFold(T).split(u):
        S_i = np.zeros((N, N))
        S_i[:, S] = 1.0
        b_k, total = first(S_i), u.copy()
        for s in range(1, order + 1):
            total = total + (-1 / (T - 1)) ** s / factorial(s) * b_k
            b_k = (s + 1) * more(S_i, b_k)
        values[S] = total[S]
    return values


def predicted(model, X, y, order, **options):
    with pytest.warns(InexactWarning, match="BIF"):
        return cross_val_predict(
            model, X, y, cv=KFold(T), order=order, ridge_scaling="mean", **options
        )


@pytest.mark.parametrize("order", ORDERS)
def test_ls_svm_with_bias_as_printed_in_2014(table, order):
    X, y, K = table
    lam, one = 0.02, np.ones(N)
    A = np.block([[K + N * lam * np.eye(N), one[:, None]], [one, np.zeros(1)]])
    solved = np.linalg.solve(A, np.append(y, 0.0))
    f, b = K @ solved[:N], solved[N]
    L = np.block([[lam * np.eye(N) + K / N, (K @ one / N)[:, None]], [one / N, np.ones(1)]])
    g = y - f - b

    def first(S_i):
        right = np.append((K * S_i) @ g / M - lam * f, S_i[0] @ g / M)
        solved = np.linalg.solve(L, right)
        return solved[:N] + solved[N]

    def more(S_i, b_k):
        right = np.append(K @ b_k / N - (K * S_i) @ b_k / M, one @ b_k / N - S_i[0] @ b_k / M)
        solved = np.linalg.solve(L, right)
        return solved[:N] + solved[N]

    expected = taylor(f + b, first, more, order)
    values = predicted(LSSVR(alpha=lam, gamma=GAMMA), X, y, order)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", ORDERS)
def test_quadratic_svr_in_the_corrected_form_of_2014(table, order):
    X, y, K = table
    lam, tube = 0.01, 0.2

    def forces(u):
        r = u - y
        return 2 * np.sign(r) * np.maximum(np.abs(r) - tube, 0.0), 2.0 * (np.abs(r) > tube)

    at = reference.minimise(K, forces, N * lam, intercept=True)
    g, v = forces(at)
    f = K @ (-g / (2 * N * lam))
    B = np.tile(v, (N, 1))
    assert 0 < np.count_nonzero(v) < N
    L = np.block(
        [[2 * lam * np.eye(N) + K * B / N, ((K * B).sum(1) / N)[:, None]], [v / N, v.sum() / N]]
    )

    def first(S_i):  # u = V'(y − f − b) has the sign of the residual, and the fit pulls by 2 λ f
        right = np.append((K * S_i) @ -g / M - 2 * lam * f, S_i[0] @ -g / M)
        solved = np.linalg.solve(L, right)
        return solved[:N] + solved[N]

    def more(S_i, b_k):
        top = (K * B) @ b_k / N - (K * B * S_i) @ b_k / M
        right = np.append(top, v @ b_k / N - (v * S_i[0]) @ b_k / M)
        solved = np.linalg.solve(L, right)
        return solved[:N] + solved[N]

    expected = taylor(at, first, more, order)
    values = predicted(QuadraticSVR(C=1 / (2 * lam), epsilon=tube, gamma=GAMMA), X, y, order)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def hinge_bif(K, y, lam, h, order):
    """(3) of the 2017 paper, with 1/(2δ) in both terms of B_{k+1} and 1/l in the first."""
    f = reference.minimise(K, lambda u: huber(y, u, h), N * lam, intercept=False)
    slope, bend = huber(y, f, h)
    I0 = np.diag((bend > 0).astype(float))
    assert 0 < np.trace(I0) < N
    L = 2 * lam * np.eye(N) + K @ I0 / (2 * h * N)

    def first(S_i):
        return -np.linalg.solve(L, (K * S_i) @ slope / M + 2 * lam * f)

    def more(S_i, B_k):
        right = K @ I0 @ B_k / (2 * h * N) - ((K @ I0) * S_i) @ B_k / (2 * h * M)
        return np.linalg.solve(L, right)

    return taylor(f, first, more, order)


@pytest.mark.parametrize("order", ORDERS)
def test_huber_hinge_in_the_corrected_form_of_2017(table, order):
    X, y, K = table
    labels, lam, h = np.sign(y - 0.3), 0.01, 0.2
    expected = hinge_bif(K, labels, lam, h, order)
    model = HuberSVC(C=1 / (2 * lam), gamma=GAMMA, h=h, fit_intercept=False)
    values = predicted(model, X, labels, order, method="decision_function")
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("intercept", [True, False])
def test_scores_and_searches_are_those_of_the_predictions(table, scaling, intercept):
    X, y, _ = table
    model = LSSVR(alpha=0.1, gamma=GAMMA, fit_intercept=intercept)
    options = {"cv": KFold(T), "order": 2, "ridge_scaling": scaling}
    with pytest.warns(InexactWarning):
        values = cross_val_predict(model, X, y, **options)
    with pytest.warns(InexactWarning):
        scores = cross_val_score(model, X, y, scoring="neg_mean_squared_error", **options)
    search = FastGridSearchCV(
        model, {"alpha": [0.1]}, scoring="neg_mean_squared_error", **options
    ).fit(X, y)
    expected = [-np.mean((y[S] - values[S]) ** 2) for _, S in KFold(T).split(X)]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    found = [search.cv_results_[f"split{i}_test_score"][0] for i in range(T)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# -- granularity -------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [0.9, 0.2, 0.1, 0.05, 0.01, 0.0055])
@pytest.mark.parametrize("ridge", [1.0, 0.3, 20.0])
def test_the_smallest_granularity_is_found_by_trying_all(tolerance, ridge):
    chosen = choose_granularity(tolerance, ridge=ridge, smoothing=0.01, rule="smallest")

    def bound(t, r):
        return 0.01 / 2 + 1 / (ridge * (r + 1) * (t - 1))

    steps = range(1, 150)
    best = min(t + r for t in steps[1:] for r in steps if bound(t, r) <= tolerance + 1e-15)
    assert chosen.folds + chosen.order == best
    assert chosen.bound == pytest.approx(bound(chosen.folds, chosen.order), rel=1e-14)
    assert chosen.bound <= tolerance + 1e-12
    printed = choose_granularity(tolerance, ridge=ridge, smoothing=0.01)
    assert printed.folds + printed.order >= best


@pytest.mark.parametrize(("tolerance", "total"), [(0.2, 5), (0.1, 7), (0.01, 29)])
def test_the_printed_rule_is_not_the_smallest(tolerance, total):
    smallest = choose_granularity(tolerance, ridge=1.0, smoothing=0.01, rule="smallest")
    assert smallest.folds + smallest.order == total
    printed = choose_granularity(tolerance, ridge=1.0, smoothing=0.01)
    assert printed.folds + printed.order > total


def test_the_bound_is_that_of_the_paper():
    assert granularity_bound(5, 3, ridge=0.5, smoothing=0.1, kappa=2.0) == 0.05 + 2 / (0.5 * 16)


@pytest.mark.parametrize(
    ("folds", "order", "message"),
    [(1, 1, "folds=1"), (3, 0, "order=0"), (2.5, 1, "folds=2.5"), (3, True, "order=True")],
)
def test_folds_and_orders_that_there_are_not(folds, order, message):
    with pytest.raises(ValueError, match=f"{message} is not allowed"):
        granularity_bound(folds, order, ridge=1.0, smoothing=0.1)


def test_a_rule_that_is_not_known():
    with pytest.raises(ValueError, match="rule='finest' is not known; use 'paper' or 'smallest'"):
        choose_granularity(0.1, ridge=1.0, smoothing=0.01, rule="finest")


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_a_granularity_sets_folds_and_order(table):
    X, y, _ = table
    chosen = choose_granularity(0.1, ridge=1.0, smoothing=0.01)
    model, key = LSSVR(alpha=0.1, gamma=GAMMA), "mean_test_score"
    found = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, order=chosen).fit(X, y)
    same = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, order=3, cv=5).fit(X, y)
    assert found.n_splits_ == 5
    np.testing.assert_array_equal(found.cv_results_[key], same.cv_results_[key])
    assert "order 3" in str(found.plan_)
    for function in (cross_val_predict, cross_val_score):
        with pytest.warns(InexactWarning, match="order 3"):
            one = function(model, X, y, order=chosen)
        with pytest.warns(InexactWarning, match="order 3"):
            other = function(model, X, y, order=3, cv=5)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cv", [4, KFold(10), list(KFold(3).split(np.zeros(N)))])
def test_other_folds_than_those_of_the_granularity_are_refused(table, cv):
    X, y, _ = table
    chosen = choose_granularity(0.1, ridge=1.0, smoothing=0.01)
    with pytest.raises(ValueError, match=r"folds, but order=Granularity.* is for 5; leave cv out"):
        FastGridSearchCV(LSSVR(), {"alpha": [1.0]}, order=chosen, cv=cv).fit(X, y)
    with pytest.raises(ValueError, match="or pass order=3"):
        cross_val_score(LSSVR(), X, y, order=chosen, cv=cv)
