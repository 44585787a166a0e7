"""The reduction that ends early: the solutions of a factorisation a ridge, from fewer columns."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from sklearn.datasets import make_friedman1
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

import everyfold.linalg.tridiagonal as truncated
from everyfold.crossval.refit import Refit
from everyfold.folds import Folds
from everyfold.kernels import RBF
from everyfold.linalg.blas import by_address
from everyfold.linalg.symmetric import NotPositiveDefiniteError
from everyfold.linalg.tridiagonal import SMALLEST, ridge_solutions
from everyfold.losses import Squared
from everyfold.operators import Dense
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Quadratic
from everyfold.solvers import Problem

RIDGES = np.logspace(-4, 2, 7)
GAMMAS = (1e-4, 3e-3, 0.05, 0.3, 2.0, 50.0)
EPS = np.finfo(np.float64).eps


def rows(n, seed=0):
    X, y = make_friedman1(n, 10, noise=1.0, random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def columns_of(A, b, rhos):
    """How many columns the reduction took."""
    reduction = truncated._Reduction(np.array(A, order="F"), b)
    reduction.solve(rhos)
    return reduction.k


@pytest.mark.parametrize("n", [SMALLEST + 1, 130, 257, 400])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_residuals_are_rounding(n, gamma):
    X, y = rows(n)
    K = rbf_kernel(X, gamma=gamma)
    solved, condition = ridge_solutions(K, RIDGES, y[:, None])
    largest = np.linalg.norm(K, 2)
    for x, rho, bound in zip(solved[:, :, 0], RIDGES, condition, strict=True):
        residual = np.linalg.norm(K @ x + rho * x - y)
        assert residual <= 20.0 * n**0.5 * EPS * (largest + rho) * np.linalg.norm(x)
        assert bound >= np.linalg.cond(K + rho * np.eye(n)) * (1.0 - 1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_models_of_all_ridges_equal_those_of_a_factorisation_each(gamma, intercept, is_weighted):
    X, y = rows(300)
    w = np.random.default_rng(0).uniform(0.2, 2.0, 300) if is_weighted else np.ones(300)
    w[:4] *= not is_weighted  # rows of weight 0 are not there
    K, k_new = rbf_kernel(X[:250], gamma=gamma), rbf_kernel(X[250:], X[:250], gamma=gamma)
    quadratic = Quadratic(np.sqrt(w[:250]), y[:250, None], intercept)
    found = DenseMatrix(K, is_semidefinite=True).solutions(quadratic, RIDGES, "tridiagonal")
    expected = DenseMatrix(K).solutions(quadratic, RIDGES, "cholesky")
    for k, rho in enumerate(RIDGES):
        limit = 1e-13 + 50.0 * EPS * K.sum(axis=1).max() / rho
        scale = np.abs(y).max()
        assert np.abs(found.values(k_new)[k] - expected.values(k_new)[k]).max() <= limit * scale


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("precision", [0.1, 1e-3, 1e-6])
def test_predictions_are_as_precise_as_asked_for(gamma, precision, intercept):
    X, y = rows(400)
    K, k_new = rbf_kernel(X[:300], gamma=gamma), rbf_kernel(X[300:], X[:300], gamma=gamma)
    quadratic = Quadratic(np.ones(300), y[:300, None], intercept)
    operator = DenseMatrix(K, is_semidefinite=True)
    exact = operator.solutions(quadratic, RIDGES, "tridiagonal").values(k_new)
    found = operator.solutions(quadratic, RIDGES, "tridiagonal", precision).values(k_new)
    spread = y[:300].std() if intercept else np.sqrt(np.mean(y[:300] ** 2))
    # The intercept moves by the mean of the errors, which are no larger.
    assert np.abs(found - exact).max() <= (2.0 if intercept else 1.0) * precision * spread + 1e-7


def test_less_precision_takes_fewer_columns():
    X, y = rows(600)
    K = rbf_kernel(X, gamma=0.03)

    def columns(precision):
        reduction = truncated._Reduction(np.array(K, order="F"), y, precision)
        reduction.solve([1e-3, 1.0])
        return reduction.k

    assert columns(0.1) < columns(1e-3) < columns(1e-8) < columns(0.0)


def test_what_is_not_precise_is_not_called_exact():
    X, y = rows(150)
    folds = Folds.from_splits(KFold(3).split(X), 150)
    problem = Problem(y[:, None], np.ones(150), Squared(), intercept=True)
    operator = Dense().bind(RBF(0.1), X)
    for precision, is_exact in ((0.0, True), (1e-3, False)):
        criterion = Refit(route="tridiagonal", precision=precision)
        (record,) = criterion.evaluate(problem, operator, [0.1], folds)
        assert (record.is_exact == is_exact).all()


def test_columns_are_few_where_few_suffice():
    X, y = rows(600)
    wide, narrow, middle = (rbf_kernel(X, gamma=gamma) for gamma in (1e-3, 3.0, 0.03))
    assert columns_of(wide, y, [1e-2, 1.0]) <= 128
    assert columns_of(narrow, y, [1e-2, 1.0]) <= 64
    assert columns_of(middle, y, [1e-2, 1.0]) < 300
    assert columns_of(middle, y, [1.0]) < columns_of(middle, y, [1e-3, 1.0])


def test_columns_are_all_where_ridges_are_too_small_to_be_trusted():
    X, y = rows(200)
    K = rbf_kernel(X, gamma=0.01)
    solved, condition = ridge_solutions(K, [1e-10, 1e-2], y[:, None])
    exact = np.linalg.eigvalsh(K)
    assert condition[1] == pytest.approx((exact[-1] + 1e-2) / (exact[0] + 1e-2), rel=1e-6)
    np.testing.assert_allclose(solved[1, :, 0], cho_solve(cho_factor(K + 1e-2 * np.eye(200)), y))


def test_several_targets_share_the_whole_reduction():
    X, y = rows(150)
    B = np.column_stack([y, y**2, np.ones(150)])
    K = rbf_kernel(X, gamma=0.1)
    solved, _ = ridge_solutions(K, RIDGES, B)
    for k, rho in enumerate(RIDGES):
        np.testing.assert_allclose(K @ solved[k] + rho * solved[k], B, atol=1e-8)


@pytest.mark.parametrize("b", [np.zeros(120), np.eye(120)[0], -np.eye(120)[0], np.eye(120)[7]])
def test_right_hand_sides_that_are_unit_vectors_or_nothing(b):
    K = rbf_kernel(rows(120)[0], gamma=0.1)
    solved, _ = ridge_solutions(K, [0.5], b[:, None])
    np.testing.assert_allclose(K @ solved[0] + 0.5 * solved[0], b[:, None], atol=1e-13)


def test_identity_and_one_are_solved_in_a_panel():
    y = rows(200)[1]
    for K in (np.eye(200), np.ones((200, 200)), np.zeros((200, 200))):
        solved, _ = ridge_solutions(K, [0.5, 2.0], y[:, None])
        for x, rho in zip(solved[:, :, 0], (0.5, 2.0), strict=True):
            np.testing.assert_allclose(K @ x + rho * x, y, atol=1e-11)
        assert columns_of(K, y, [0.5, 2.0]) == truncated.PANEL


def test_rows_that_repeat():
    X, y = rows(40)
    X, y = np.tile(X, (6, 1)), np.tile(y, 6) + np.arange(240) / 100.0
    K = rbf_kernel(X, gamma=0.1)
    solved, _ = ridge_solutions(K, RIDGES, y[:, None])
    for x, rho in zip(solved[:, :, 0], RIDGES, strict=True):
        np.testing.assert_allclose(x, cho_solve(cho_factor(K + rho * np.eye(240)), y), atol=1e-7)


def test_matrix_is_left_untouched_unless_it_may_be_overwritten():
    X, y = rows(150)
    K = rbf_kernel(X, gamma=0.1)
    before = K.copy()
    plain, _ = ridge_solutions(K, RIDGES, y[:, None])
    np.testing.assert_array_equal(K, before)
    lower, _ = ridge_solutions(np.asfortranarray(np.tril(K)), RIDGES, y[:, None], overwrite=True)
    np.testing.assert_allclose(lower, plain, atol=1e-11)


@pytest.mark.parametrize("n", [90, 150])
def test_without_lapacks_own_function_the_reduction_is_whole(n, monkeypatch):
    X, y = rows(n)
    K = rbf_kernel(X, gamma=0.1)
    expected, _ = ridge_solutions(K, RIDGES, y[:, None])
    monkeypatch.setattr(truncated, "by_address", lambda name: None)
    monkeypatch.setattr(truncated, "_Reduction", None)
    found, _ = ridge_solutions(K, RIDGES, y[:, None])
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_indefinite_matrices_are_not_taken_for_semidefinite():
    K = np.diag(np.r_[np.ones(199), -0.5])
    quadratic = Quadratic(np.ones(200), rows(200)[1][:, None], intercept=False)
    with pytest.raises(NotPositiveDefiniteError):
        DenseMatrix(K).solutions(quadratic, [0.1], "tridiagonal")
    K[-1, -1], K[0, 0] = 1.0, -50.0
    with pytest.raises(NotPositiveDefiniteError):  # what rounding never makes of a kernel
        DenseMatrix(K, is_semidefinite=True).solutions(quadratic, [0.1], "tridiagonal")


def test_functions_are_found_by_their_arguments():
    for letter in "sd":
        assert by_address(letter + "latrd") is not None
        assert by_address(letter + "syr2k") is not None
    with pytest.raises(KeyError):
        by_address("dgemm")


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_single_precision_tells_values_to_a_share_of_their_spread(gamma, intercept):
    X, y = rows(700)
    kernel, rhos = RBF(gamma), [0.01, 1.0, 100.0]
    train, new = X[:600], X[600:]
    quadratic = Quadratic(np.ones(600), y[:600, None], intercept)
    operator = Dense().bind_shared(kernel, train, kernel.base_matrix(train))
    asked = {precision: operator.solutions(quadratic, rhos, "tridiagonal", precision)
             for precision in (0.0, 1e-3)}  # fmt: skip
    exact, found = (asked[precision].values(kernel(new, train)) for precision in (0.0, 1e-3))
    assert np.abs(found - exact).max() <= 3e-3 * y[:600].std()
    assert operator._roughly(quadratic, rhos).dtype == np.float32
    assert operator._roughly(quadratic, [1e-9]) is None  # too small a ridge for so few digits


def test_all_columns_in_single_precision_are_as_good_as_in_double():
    X, y = rows(SMALLEST + 9)
    K = rbf_kernel(X, gamma=0.2)
    single = np.array(K, dtype=np.float32, order="F")
    reduction = truncated._Reduction(single, y)
    solved, _ = reduction._whole([0.5])
    np.testing.assert_allclose(K @ solved[0, :, 0] + 0.5 * solved[0, :, 0], y, atol=1e-4)
