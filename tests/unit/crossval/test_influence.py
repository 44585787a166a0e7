"""t-FBIF: exact fit and push, low-rank inverse, against the formulas of the 2018 paper."""

import contextlib

import numpy as np
import pytest
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    HuberSVC,
    InexactWarning,
    KernelClassifier,
    KernelRegressor,
    Nystrom,
    cross_val_predict,
)
from everyfold.crossval import ClosedFormCV, Folds
from everyfold.io.arrays import ArrayRows
from everyfold.kernels import RBF
from everyfold.losses import HuberHinge, Squared
from everyfold.operators import lowrank
from everyfold.papers import influence
from everyfold.papers.influence import InfluenceMatrix
from everyfold.solvers import Problem
from tests import reference
from tests.cases import rbf

N, GAMMA, SEED = 60, 0.3, 3


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.standard_normal((N, 4))
    y = np.sign(X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.4 + 0.5 * random.standard_normal(N))
    return X, y, rbf(X, X, GAMMA)


def low_rank(K, c):
    """V = C U Σ^{-1/2} of c columns drawn uniformly without replacement."""
    columns = np.random.RandomState(SEED).permutation(len(K))[:c]
    values, U = np.linalg.eigh(K[np.ix_(columns, columns)])
    return K[:, columns] @ U / np.sqrt(values)


def fast(c, **params):
    return Nystrom(c, sampling="uniform", random_state=SEED, replaces="response", **params)


def huber(y, u, h):
    """V' and V'' of the Huberised hinge."""
    m = y * u
    slope = np.where(m > 1 + h, 0.0, np.where(m < 1 - h, -1.0, -(1 + h - m) / (2 * h)))
    return y * slope, np.where(np.abs(1 - m) <= h, 1 / (2 * h), 0.0)


def fit(K, y, rho, h, intercept):
    """Fitted values of the Huberised hinge."""
    return reference.minimise(K, lambda u: huber(y, u, h), rho, intercept)


def splits(t):
    return list(KFold(t, shuffle=True, random_state=1).split(np.zeros(N)))


# -- the printed formulas ----------------------------------------------------------------------


@pytest.mark.parametrize("c", [6, 15, 30])
@pytest.mark.parametrize("t", [5, 10])
def test_squared_loss_as_printed(table, c, t):
    X, y, K = table
    lam, V = 0.02, low_rank(K, c)
    f = K @ np.linalg.solve(K + N * lam * np.eye(N), y)
    woodbury = np.linalg.inv(N * lam * np.eye(c) + V.T @ V)
    inverse = (np.eye(N) - V @ woodbury @ V.T) / lam
    expected = np.empty(N)
    for _, S in splits(t):
        C_i = np.zeros((N, N))
        C_i[:, S] = 1.0
        B_i = inverse @ ((K * C_i) @ (y - f) / len(S) - lam * f)
        expected[S] = f[S] + B_i[S] / (1 - t)
    model = KernelRegressor(alpha=lam, gamma=GAMMA, fit_intercept=False)
    with pytest.warns(InexactWarning, match="t-FBIF"):
        values = cross_val_predict(
            model, X, y, cv=splits(t), operator=fast(c), order=1, ridge_scaling="mean"
        )
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("c", [6, 15, 30])
@pytest.mark.parametrize("t", [5, 10])
def test_huber_hinge_as_printed_with_its_active_set(table, c, t):
    X, y, K = table
    lam, h, V = 0.01, 0.2, low_rank(K, c)
    f = fit(K, y, N * lam, h, intercept=False)
    slope, bend = huber(y, f, h)
    I0 = np.diag((bend > 0).astype(float))
    assert 5 < np.trace(I0) < N - 5
    # Woodbury on the rows of the active set: V I⁰ in place of V on the right.
    inner = np.linalg.inv(4 * N * lam * h * np.eye(c) + V.T @ I0 @ V)
    inverse = (np.eye(N) - V @ inner @ V.T @ I0) / (2 * lam)
    expected = np.empty(N)
    for _, S in splits(t):
        C_i = np.zeros((N, N))
        C_i[:, S] = 1.0
        B_i = inverse @ (-(K * C_i) @ slope / len(S) - 2 * lam * f)
        expected[S] = f[S] + B_i[S] / (1 - t)
    model = HuberSVC(C=1 / (2 * lam), gamma=GAMMA, h=h, fit_intercept=False)
    with pytest.warns(InexactWarning, match="t-FBIF"):
        values = cross_val_predict(
            model,
            *(X, y),
            cv=splits(t),
            operator=fast(c),
            order=1,
            ridge_scaling="mean",
            method="decision_function",
        )
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


# -- every order, both conventions, with and without intercept ---------------------------------


def stand_in(K, V, D, rho, intercept):
    """The bordered system of f and b with K̃ for K on its left, solved for every push."""
    n = len(K)
    L = np.zeros((n + 1, n + 1))
    L[:n, :n] = 2 * rho * np.eye(n) + V @ V.T @ np.diag(D)
    L[n, n] = 1.0
    push = np.vstack([K, np.zeros(n)])
    if intercept:
        L[:n, n], L[n, :n], L[n, n] = V @ V.T @ D, D, D.sum()
        push[n] = 1.0
    solved = np.linalg.solve(L, push)
    return solved[:n] + solved[n]


def brute(K, V, fitted, forces, ridge, sets, order, scaling, intercept):
    """û of all sets by the definitions: `fitted(rho)` are values, `forces(u)` slope and bend."""
    n = len(K)
    values = np.empty(n)
    for S in sets:
        m = len(S)
        full = ridge * (n if scaling == "mean" else 1)
        rho = ridge * (n - m) if scaling == "mean" and order == np.inf else full
        # The limit is a step from the fit at the ridge that the fold sees.
        u = fitted(rho if scaling == "mean" else full)
        g, D = forces(u)
        M = stand_in(K, V, D, rho, intercept)
        M_SS, D_S = M[np.ix_(S, S)], np.diag(D[S])
        if order == np.inf:
            values[S] = u[S] + np.linalg.solve(np.eye(m) - M_SS @ D_S, M_SS @ g[S])
        elif scaling == "sum":
            powers = [np.linalg.matrix_power(M_SS @ D_S, j) for j in range(order)]
            values[S] = u[S] + sum(powers) @ M_SS @ g[S]
        else:
            theta = np.full(n, -m / (n - m))
            theta[S] = 1.0
            delta = M @ (theta * g)
            total = delta
            for _ in range(order - 1):
                delta = M @ (theta * D * delta)
                total = total + delta
            values[S] = u[S] + total[S]
    return values


@pytest.mark.parametrize("order", [1, 2, 5, np.inf])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("cv", [KFold(7), LeaveOneOut()], ids=["7", "loo"])
def test_squared_loss_of_every_order(table, order, scaling, intercept, cv):
    X, y, K = table
    ridge, V = 1.5 / (N if scaling == "mean" else 1), low_rank(K, 12)

    def fitted(rho):
        border = np.ones(N) if intercept else np.zeros(N)
        A = np.block(
            [[K + rho * np.eye(N), border[:, None]], [border, np.eye(1) * (not intercept)]]
        )
        solved = np.linalg.solve(A, np.append(y, 0.0))
        return K @ solved[:N] + solved[N]

    sets = [S for _, S in cv.split(X)]
    expected = brute(
        K,
        V,
        fitted,
        lambda u: (2 * (u - y), np.full(N, 2.0)),
        ridge,
        sets,
        order,
        scaling,
        intercept,
    )
    problem = Problem(y[:, None], np.ones(N), Squared(), intercept, scaling)
    folds = Folds.from_splits(cv.split(X), N)
    for route in ("cholesky", "eigen"):
        operator = fast(12).bind(RBF(GAMMA), X)
        criterion = ClosedFormCV(order=order, route=route)
        records = criterion.evaluate(problem, operator, [2 * ridge, ridge], folds)
        record = list(records)[1]
        values = np.empty(N)
        values[np.concatenate(folds.tests)] = record.values[:, 0]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
        assert not record.is_exact.any()


@pytest.mark.parametrize("order", [1, 3, np.inf])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("cv", [KFold(6), LeaveOneOut()], ids=["6", "loo"])
def test_huber_hinge_of_every_order(table, order, scaling, intercept, cv):
    X, y, K = table
    h, V = 0.2, low_rank(K, 12)
    ridge = 0.6 / (N if scaling == "mean" else 1)
    sets = [S for _, S in cv.split(X)]

    def forces(u):
        return huber(y, u, h)

    def fitted(rho):
        if rho == full:
            return at_full
        # At another ridge: the minimum of the quadratic model around the fit on all rows.
        g, D = forces(at_full)
        H, one = np.diag(D), np.ones(N)
        J = np.zeros((N + 1, N + 1))
        J[:N, :N], J[N, N] = 2 * rho * np.eye(N) + H @ K, 1.0
        right = np.append(H @ at_full - g, 0.0)
        if intercept:
            J[:N, N], J[N, :N], J[N, N] = D, one @ H @ K, D.sum()
            right[N] = D @ at_full - g.sum()
        solved = np.linalg.solve(J, right)
        return K @ solved[:N] + solved[N]

    full = ridge * (N if scaling == "mean" else 1)
    at_full = fit(K, y, full, h, intercept)

    def around(u):  # the model keeps its curvature
        g, D = forces(at_full)
        return g + D * (u - at_full), D

    expected = brute(K, V, fitted, around, ridge, sets, order, scaling, intercept)
    problem = Problem(y[:, None], np.ones(N), HuberHinge(h), intercept, scaling)
    folds = Folds.from_splits(cv.split(X), N)
    operator = fast(12).bind(RBF(GAMMA), X)
    (record,) = ClosedFormCV(order=order).evaluate(problem, operator, [ridge], folds)
    values = np.empty(N)
    values[np.concatenate(folds.tests)] = record.values[:, 0]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)
    assert not record.is_exact.any()


def test_it_is_neither_the_dense_series_nor_that_of_the_low_rank_model(table):
    X, y, _ = table
    model = KernelRegressor(alpha=0.02, gamma=GAMMA, fit_intercept=False)
    structures = ("dense", fast(6), Nystrom(6, sampling="uniform", random_state=SEED))
    found = []
    for operator in structures:
        with pytest.warns(InexactWarning):
            found.append(
                cross_val_predict(
                    model, X, y, cv=5, operator=operator, order=1, ridge_scaling="mean"
                )
            )
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(found[a] - found[b]).max() > 0.01


@pytest.mark.parametrize("order", [1, 3, np.inf])
def test_with_all_rows_for_landmarks_it_is_the_dense_series(table, order):
    X, y, _ = table
    model = LSSVC(alpha=0.02, gamma=GAMMA)
    values = []
    for operator in ("dense", fast(N)):
        with (
            pytest.warns(InexactWarning)
            if order < 9 or operator != "dense"
            else contextlib.nullcontext()
        ):
            values.append(
                cross_val_predict(
                    model,
                    *(X, y),
                    cv=5,
                    operator=operator,
                    order=order,
                    ridge_scaling="mean",
                    method="decision_function",
                )
            )
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-6)


# -- what it costs -----------------------------------------------------------------------------


class Counted:
    """Multiplications of every matrix product that the response makes."""

    def __init__(self, monkeypatch):
        self.flops = 0
        for module in (influence, lowrank):
            monkeypatch.setattr(module, "product", self._product(module.product))
        gram = lowrank.weighted_gram
        monkeypatch.setattr(lowrank, "weighted_gram", lambda V, *rest: self._gram(gram, V, *rest))

    def _product(self, product):
        def counted(A, B):
            self.flops += A.shape[0] * A.shape[1] * B.shape[1]
            return product(A, B)

        return counted

    def _gram(self, gram, V, *rest):
        self.flops += V.shape[0] * V.shape[1] ** 2
        return gram(V, *rest)


def counted(monkeypatch, n, c, t, loss, scaling):
    """Multiplications beyond the fit, those of the c×c system apart."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, 3))
    y = np.sign(X[:, 0] + 0.3 * random.standard_normal(n))
    operator = fast(c).bind(RBF(0.1), X)
    problem = Problem(y[:, None], np.ones(n), loss, True, scaling)
    folds = Folds.from_splits(KFold(t).split(X), n)
    ridge = 1.0 / (n if scaling == "mean" else 1)
    with monkeypatch.context() as patched:
        count = Counted(patched)
        criterion = ClosedFormCV(order=1, route="cholesky", with_radius=False)
        list(criterion.evaluate(problem, operator, [ridge], folds))
    return count.flops


@pytest.mark.parametrize("loss", [Squared(), HuberHinge(0.3)], ids=["squared", "huber"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_the_first_order_costs_what_the_paper_says(monkeypatch, loss, scaling):
    for n, c, t in ((200, 20, 5), (400, 20, 5), (400, 40, 5), (400, 20, 40)):
        count = counted(monkeypatch, n, c, t, loss, scaling)
        assert count <= 2 * n**2 + 2 * n * c**2 + 6 * t * n * (c + 1) + 20 * n
        # A product of the kernel with a column for each fold would be more than all of that.
        assert n < 400 or t < 40 or count < t * n**2 / 2


def test_more_folds_cost_no_more_products_with_the_kernel(monkeypatch):
    few, many = (counted(monkeypatch, 400, 20, t, Squared(), "mean") for t in (10, 20))
    assert many - few <= 6 * 10 * 400 * 21


# -- through the front door --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
@pytest.mark.parametrize("estimator", [HuberSVC(h=0.2), LSSVC(), SVC()], ids=["huber", "ls", "svc"])
def test_search(table, estimator):
    X, y, _ = table
    ridges = {"alpha": [0.01, 0.1]} if isinstance(estimator, LSSVC) else {"C": [30.0, 100.0]}
    grid = {"gamma": [0.1, 0.3], **ridges}
    structure = Nystrom(0.1, sampling="uniform", replaces="response")
    search = FastGridSearchCV(
        estimator, grid, cv=5, operator=structure, order=1, ridge_scaling="mean", random_state=0
    ).fit(X, y)
    assert not search.cv_results_["is_exact"].any()
    assert "t-FBIF" in str(search.plan_)
    assert "responses of rank 6" in search.plan_.operator
    assert np.isfinite(search.cv_results_["spectral_radius"]).all()
    assert search.score(X, y) > 0.5
    again = FastGridSearchCV(
        estimator, grid, cv=5, operator=structure, order=1, ridge_scaling="mean", random_state=0
    ).fit(X, y)
    key = "mean_test_score"
    np.testing.assert_array_equal(again.cv_results_[key], search.cv_results_[key])


def test_the_estimator_that_has_it_is_the_exact_one(table):
    X, y, _ = table
    model = KernelClassifier(alpha=0.5, gamma=GAMMA, operator=fast(6)).fit(X, y)
    exact = KernelClassifier(alpha=0.5, gamma=GAMMA).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), exact.decision_function(X), rtol=0, atol=1e-12
    )


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_refits_may_confirm_it(table):
    X, y, _ = table
    search = FastGridSearchCV(
        LSSVC(gamma=GAMMA), {"alpha": [0.1, 1.0]}, cv=5, operator=fast(6), order=1, n_confirm=2
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["confirmed_test_score"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "exact"}, "order='exact' refits every fold.*order=1"),
        ({"order": 1, "return_train_score": True}, "training scores"),
        ({"estimator": LSSVC(class_weight="balanced")}, "balanced.*pass a dict"),
        ({"estimator": LSSVC(gamma="scale")}, "a gamma"),
    ],
)
def test_what_it_does_not_go_with_is_refused(table, options, message):
    X, y, _ = table
    given = {"estimator": LSSVC(), "operator": fast(6), "cv": 5} | options
    with pytest.raises(ValueError, match=message):
        FastGridSearchCV(param_grid={"alpha": [1.0]}, **given).fit(X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"replaces": "both"}, "replaces='both' is not known; use 'kernel' or 'response'"),
        ({"replaces": "response", "per_fold": True}, "cannot be combined with per_fold"),
        ({"predicts_with": "rows"}, "predicts_with='rows' is not known"),
    ],
)
def test_forms_that_are_not_known_or_contradict_each_other(params, message):
    with pytest.raises(ValueError, match=message):
        Nystrom(10, **params)


def test_a_source_of_rows_has_no_full_kernel(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="needs all rows at once"):
        FastGridSearchCV(KernelRegressor(operator=fast(6)), {"alpha": [1.0]}).fit(ArrayRows(X, y))


def test_the_operator_is_the_matrix_itself(table):
    X, _, K = table
    operator = fast(6).bind(RBF(GAMMA), X)
    assert isinstance(operator, InfluenceMatrix)
    assert (operator.rank, operator.outline.response_rank) == (N, 6)
    np.testing.assert_allclose(operator.matmat(np.eye(N)), K, rtol=0, atol=1e-14)
