"""The algorithms of the 2012 paper on LS-SVMs with Nyström kernels, written down by hand."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    HuberSVC,
    KernelClassifier,
    Nystrom,
    cross_val_predict,
)
from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.kernels import RBF
from everyfold.losses import Squared
from everyfold.solvers import Problem
from tests.cases import rbf
from tests.unit.crossval.test_influence import fit

N, GAMMA, MU, SEED = 80, 0.3, 0.5, 5
PAPER = Nystrom(
    0.2, 0.5, sampling="uniform", per_fold=True, predicts_with="kernel", random_state=SEED
)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(1)
    X = random.standard_normal((N, 3))
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 + 0.4 * random.standard_normal(N))
    return X, y, random.standard_normal((9, 3))


def nystrom(K, c, k):
    """V of steps 1 and 2: the k leading eigenvectors of the kernel between c rows."""
    columns = np.random.RandomState(SEED).permutation(len(K))[:c]
    values, U = np.linalg.eigh(K[np.ix_(columns, columns)])
    return K[:, columns] @ U[:, -k:] / np.sqrt(values[-k:])


def algorithm_1(K, y, mu, share=0.2):
    """Dual coefficients and offset; b = 1ᵀν / 1ᵀρ, where step 5 prints y for ν."""
    n = len(K)
    c = round(share * n)
    V = nystrom(K, c, round(0.5 * c))
    z = np.column_stack([np.ones(n), y])
    t = np.linalg.solve(mu * np.eye(V.shape[1]) + V.T @ V, V.T @ z)
    rho, nu = ((z - V @ t) / mu).T
    b = nu.sum() / rho.sum()
    return nu - rho * b, b


def held_out(X, y, splits, solve):
    values = np.empty(len(y))
    for train, test in splits:
        a, b = solve(rbf(X[train], X[train], GAMMA), y[train])
        values[test] = rbf(X[test], X[train], GAMMA) @ a + b
    return values


@pytest.mark.parametrize("cv", [KFold(5), LeaveOneOut()], ids=["5", "press"])
def test_folds_are_algorithm_1_of_each_training_set(table, cv):
    X, y, _ = table
    expected = held_out(X, y, cv.split(X), lambda K, y: algorithm_1(K, y, MU))
    values = cross_val_predict(
        LSSVC(alpha=MU, gamma=GAMMA), X, y, cv=cv, operator=PAPER, method="decision_function"
    )
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def test_what_is_fitted_is_algorithm_1(table):
    X, y, new = table
    a, b = algorithm_1(rbf(X, X, GAMMA), y, MU)
    model = LSSVC(alpha=MU, gamma=GAMMA, operator=PAPER).fit(X, y)
    np.testing.assert_allclose(model.dual_coef_[:, 0], a, rtol=0, atol=1e-10)
    expected = rbf(new, X, GAMMA) @ a + b
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=0, atol=1e-10)


def test_a_search_selects_and_keeps_algorithm_1(table):
    X, y, new = table
    grid = {"gamma": [GAMMA], "alpha": [0.05, MU, 5.0]}
    search = FastGridSearchCV(LSSVC(), grid, cv=5, operator=PAPER).fit(X, y)
    splits = list(StratifiedKFold(5).split(X, y))
    for i, mu in enumerate(grid["alpha"]):
        held = held_out(X, y, splits, lambda K, y, mu=mu: algorithm_1(K, y, mu))
        right = np.mean([np.mean(np.sign(held[test]) == y[test]) for _, test in splits])
        assert search.cv_results_["mean_test_score"][i] == pytest.approx(right, abs=1e-12)
    assert search.cv_results_["is_exact"].all()
    a, b = algorithm_1(rbf(X, X, GAMMA), y, search.best_params_["alpha"])
    expected = rbf(new, X, GAMMA) @ a + b
    np.testing.assert_allclose(search.decision_function(new), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("predicts_with", ["features", "kernel"])
def test_the_winner_predicts_as_it_was_scored(table, predicts_with):
    X, y, new = table
    structure = Nystrom(12, predicts_with=predicts_with)
    search = FastGridSearchCV(
        LSSVR(gamma=GAMMA), {"alpha": [MU]}, cv=4, operator=structure, random_state=7
    ).fit(X, y)
    same = LSSVR(gamma=GAMMA, alpha=MU, operator=structure.with_params(random_state=7)).fit(X, y)
    np.testing.assert_array_equal(search.predict(new), same.predict(new))


def test_an_estimator_without_a_place_for_the_operator_is_another_model(table):
    X, y, _ = table
    grid, structure = {"alpha": [MU]}, Nystrom(12, per_fold=True)
    ridge = KernelRidge(kernel="rbf", gamma=GAMMA)
    search = FastGridSearchCV(ridge, grid, cv=4, operator=structure).fit(X, y)
    assert not search.cv_results_["is_exact"].any()


@pytest.mark.parametrize("predicts_with", ["features", "kernel"])
@pytest.mark.parametrize(
    "model",
    [LSSVC(), LSSVR(), HuberSVC(h=0.3), KernelClassifier(loss="logistic", alpha=0.3)],
    ids=["lssvc", "lssvr", "huber", "logistic"],
)
def test_landmarks_of_each_fold_are_those_of_refits(table, model, predicts_with):
    X, y, _ = table
    structure = Nystrom(12, 6, per_fold=True, predicts_with=predicts_with, random_state=0)
    model.set_params(operator=structure)
    name = "C" if model.C is not None else "alpha"
    grid = {"gamma": [0.1, 0.5], name: [0.1, 1.0]}
    ours, theirs = (S(model, grid, cv=4).fit(X, y) for S in (FastGridSearchCV, GridSearchCV))
    key = "mean_test_score"
    np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-7)
    assert ours.cv_results_["is_exact"].all()
    assert "each fold" in ours.plan_.operator


def test_in_a_pipeline_and_with_a_precomputed_kernel(table):
    X, y, _ = table
    pipeline = make_pipeline(StandardScaler(), LSSVC(alpha=MU, gamma=GAMMA, operator=PAPER))
    values = cross_val_predict(pipeline, X, y, cv=5, method="decision_function")
    expected = np.empty(N)
    for train, test in StratifiedKFold(5).split(X, y):
        expected[test] = pipeline.fit(X[train], y[train]).decision_function(X[test])
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
    rows, given = (
        cross_val_predict(
            LSSVC(kernel=kernel, alpha=MU, gamma=GAMMA),
            Z,
            y,
            cv=5,
            operator=PAPER,
            method="predict",
        )
        for kernel, Z in (("rbf", X), ("precomputed", rbf(X, X, GAMMA)))
    )
    np.testing.assert_allclose(rows, given, rtol=0, atol=1e-12)


def test_huber_hinge_with_the_true_kernel_at_the_minimum_of_the_low_rank_model(table):
    X, y, new = table
    h, C = 0.3, 2.0
    K = rbf(X, X, GAMMA)
    V = nystrom(K, 16, 8)
    rho = 1 / (2 * C)
    u = fit(V @ V.T, y, rho, h, intercept=False)
    m = y * u
    slope = y * np.where(m > 1 + h, 0.0, np.where(m < 1 - h, -1.0, -(1 + h - m) / (2 * h)))
    model = HuberSVC(C=C, gamma=GAMMA, h=h, fit_intercept=False, operator=PAPER).fit(X, y)
    expected = rbf(new, X, GAMMA) @ (-slope / (2 * rho))
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=0, atol=1e-9)


# -- landmarks of all rows, the true kernel ----------------------------------------------------


def test_shared_landmarks_with_the_true_kernel(table):
    X, y, _ = table
    V = nystrom(rbf(X, X, GAMMA), 16, 8)
    expected = np.empty(N)
    for train, test in KFold(6).split(X):
        V_T, n = V[train], len(train)
        A = np.block(
            [[V_T @ V_T.T + MU * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
        )
        solved = np.linalg.solve(A, np.append(y[train], 0.0))
        expected[test] = rbf(X[test], X[train], GAMMA) @ solved[:-1] + solved[-1]
    structure = Nystrom(16, 8, sampling="uniform", predicts_with="kernel", random_state=SEED)
    search = FastGridSearchCV(
        LSSVR(gamma=GAMMA, operator=structure), {"alpha": [MU, 1.0]}, cv=KFold(6), scoring="r2"
    ).fit(X, y)
    assert not search.cv_results_["is_exact"].any()
    model = LSSVR(alpha=MU, gamma=GAMMA, operator=structure)
    values = cross_val_predict(model, X, y, cv=KFold(6))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def test_single_fits_do_not_tell_what_the_true_kernel_predicts(table):
    X, y, _ = table
    operator = Nystrom(16, predicts_with="kernel", random_state=0).bind(RBF(GAMMA), X)
    problem = Problem(y[:, None], np.ones(N), Squared(), True)
    folds = Folds.from_splits(KFold(5).split(X), N)
    with pytest.raises(ValueError, match=r"predicts_with='kernel'.*use Refit"):
        list(ClosedFormCV().evaluate(problem, operator, [1.0], folds))
    assert np.isfinite(next(Refit().evaluate(problem, operator, [1.0], folds)).values).all()


def test_press_of_algorithm_2_is_leave_one_out_of_the_low_rank_model(table):
    """PRESS: residuals α_i / (C⁻¹)_ii of the bordered system of K̃ (Cawley & Talbot 2004)."""
    X, y, _ = table
    V = nystrom(rbf(X, X, GAMMA), 16, 8)
    border = np.ones((N, 1))
    C = np.block([[V @ V.T + MU * np.eye(N), border], [border.T, np.zeros((1, 1))]])
    inverse = np.linalg.inv(C)
    a = (inverse @ np.append(y, 0.0))[:N]
    expected = y - a / np.diag(inverse)[:N]
    structure = Nystrom(16, 8, sampling="uniform", random_state=SEED)
    values = cross_val_predict(
        LSSVR(alpha=MU, gamma=GAMMA), X, y, cv=LeaveOneOut(), operator=structure
    )
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


# -- what it does not go with ------------------------------------------------------------------


@pytest.mark.parametrize(
    "structure", [PAPER, Nystrom(9, predicts_with="kernel")], ids=["per fold", "kernel"]
)
def test_series_are_refused(table, structure):
    X, y, _ = table
    with pytest.raises(ValueError, match="order=2 expands the fit on all rows"):
        cross_val_predict(LSSVC(), X, y, operator=structure, order=2)


@pytest.mark.parametrize("cv", [4, LeaveOneOut()], ids=["4", "loo"])
def test_duals_of_libsvm_need_the_full_kernel(table, cv):
    X, y, _ = table
    for structure in (Nystrom(20), Nystrom(20, per_fold=True)):
        with pytest.raises(ValueError, match=r"full kernel matrix.* use operator='dense'"):
            FastGridSearchCV(SVC(gamma=GAMMA), {"C": [1.0]}, cv=cv, operator=structure).fit(X, y)
