"""The formulas of the five papers: as printed, as corrected, and what refits say of both.

An influence function is a derivative: that of the fit with respect to the mass that is moved from
all rows to those of a fold. Refits with weights give it by differences, without the formulas.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import KFold

from everyfold import LSSVC, cross_val_predict
from tests import reference
from tests.cases import rbf
from tests.unit.crossval import test_series as test_bif

N, T, GAMMA = 30, 5, 0.4
M = N // T
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 2))
NUMBERS = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
SIGNS = np.where(NUMBERS > 0.1, 1.0, -1.0)
K = rbf(X, X, GAMMA)
SPLITS = list(KFold(T, shuffle=True, random_state=2).split(X))
FOLDS = [test for _, test in SPLITS]
I = np.eye(N)
ONES = np.ones(N)


# -- losses by u, and refits with any weights ---------------------------------------------------


def squared(y, u):
    return 2.0 * (u - y), np.full(N, 2.0)


def quadratic(epsilon):
    def loss(y, u):
        r = u - y
        is_out = np.abs(r) > epsilon
        return 2.0 * np.sign(r) * np.maximum(0.0, np.abs(r) - epsilon), 2.0 * is_out

    return loss


def huber(h):
    def loss(y, u):
        m = y * u
        slope = np.where(m > 1 + h, 0.0, np.where(m < 1 - h, -1.0, -(1 + h - m) / (2 * h)))
        return y * slope, np.where(np.abs(1 - m) <= h, 1 / (2 * h), 0.0)

    return loss


def refit(y, p, lam, loss, *, bias):
    """Values f and b that minimise Σ p V(y, f + b) + λ‖f‖²."""
    u = reference.minimise(K, lambda u: [p * part for part in loss(y, u)], lam, bias)
    f = K @ (-p * loss(y, u)[0] / (2 * lam))
    return f, float((u - f).mean())


def moved(S, epsilon):
    """The weights of (1 − ε) P + ε Δ_S."""
    return (1.0 - epsilon) / N + epsilon / M * np.isin(np.arange(N), S)


def derivatives(y, S, lam, loss, *, bias):
    """The first and the second derivative of f + b in ε at 0, by differences of refits."""
    e = 2e-3

    def u(epsilon):
        return sum(refit(y, moved(S, epsilon), lam, loss, bias=bias))

    at = {k: u(k * e) for k in (-2, -1, 0, 1, 2)}
    bends = [loss(y, values)[1] for values in at.values()]
    assert all(np.array_equal(bend, bends[0]) for bend in bends)  # no row changes sides
    first = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * e)
    second = (16 * (at[1] + at[-1]) - (at[2] + at[-2]) - 30 * at[0]) / (12 * e**2)
    return first, second


def only(S):
    """S_i or C_i: ones in the columns of a fold."""
    return np.tile(np.isin(np.arange(N), S), (N, 1)).astype(float)


def is_off(found, expected):
    """Whether a form is wrong beyond any rounding."""
    return np.abs(found - expected).max() > 0.02 * np.abs(expected).max()


# -- 2014: least squares and quadratic ε-SVR, with bias -----------------------------------------


LAM = 0.05


def lssvm_bif(S, order, first_factor=1.0):
    """The block form of 2014, 4.2.1; ``first_factor`` is the 2 that Theorem 2 prints before E_P."""
    f, b = refit(NUMBERS, ONES / N, LAM, squared, bias=True)
    g, in_fold = NUMBERS - f - b, np.isin(np.arange(N), S)
    L = np.block([[LAM * I + K / N, (K @ ONES / N)[:, None]], [ONES / N, 1.0]])
    KS = K * only(S)
    x = np.linalg.solve(L, np.append(KS @ g / M - LAM * f, g[in_fold].sum() / M))
    terms = [x[:N] + x[N]]
    for k in range(1, order):
        last = terms[-1]
        top = first_factor * K @ last / N - KS @ last / M
        x = (k + 1) * np.linalg.solve(L, np.append(top, last.mean() - last[in_fold].sum() / M))
        terms.append(x[:N] + x[N])
    return terms


def test_2014_theorem_2_has_no_2_before_the_expectation():
    S = FOLDS[0]
    first, second = derivatives(NUMBERS, S, LAM, squared, bias=True)
    assert_allclose(lssvm_bif(S, 1)[0], first, rtol=0, atol=1e-6)
    assert_allclose(lssvm_bif(S, 2)[1], second, rtol=0, atol=1e-4 * np.abs(second).max())
    assert is_off(lssvm_bif(S, 2, first_factor=2.0)[1], second)


EPS = 0.25


def svr_bif(S, order, corner=1 / N, ridge=2.0, slope=None):
    """2014, 4.2.2, with what is printed otherwise as parameters."""
    f, b = refit(NUMBERS, ONES / N, LAM, quadratic(EPS), bias=True)
    u, v = quadratic(EPS)(NUMBERS, f + b)
    u = -u if slope is None else slope(NUMBERS - f - b)  # V' by r = y − f − b
    in_fold = np.isin(np.arange(N), S)
    KB, KS = K * v, K * only(S)
    L = np.block([[2 * LAM * I + KB / N, (KB @ ONES * corner)[:, None]], [v / N, v.sum() * corner]])
    x = np.linalg.solve(L, np.append(KS @ u / M - ridge * LAM * f, u[in_fold].sum() / M))
    terms = [x[:N] + x[N]]
    for k in range(1, order):
        last = terms[-1]
        top = KB @ last / N - (KB * only(S)) @ last / M
        x = (k + 1) * np.linalg.solve(L, np.append(top, v @ last / N - (v * in_fold) @ last / M))
        terms.append(x[:N] + x[N])
    return terms


def test_2014_quadratic_svr_as_printed_is_off():
    S = FOLDS[1]
    first, second = derivatives(NUMBERS, S, LAM, quadratic(EPS), bias=True)
    assert_allclose(svr_bif(S, 1)[0], first, rtol=0, atol=1e-6)
    assert_allclose(svr_bif(S, 2)[1], second, rtol=0, atol=1e-4 * np.abs(second).max())
    assert is_off(svr_bif(S, 1, corner=1.0)[0], first)
    assert is_off(svr_bif(S, 1, ridge=1.0)[0], first)


def test_2014_the_slope_of_the_quadratic_loss_has_a_sign():
    r = np.linspace(-1.0, 1.0, 41)
    r = r[np.abs(np.abs(r) - EPS) > 1e-3]

    def value(r):
        return np.maximum(0.0, np.abs(r) - EPS) ** 2

    def printed(r):
        return np.where(np.abs(r) > EPS, 2 * (r - EPS), 0.0)

    true = (value(r + 1e-6) - value(r - 1e-6)) / 2e-6
    assert_allclose(2 * np.sign(r) * np.maximum(0.0, np.abs(r) - EPS), true, atol=1e-6)
    assert is_off(printed(r), true)
    first, _ = derivatives(NUMBERS, FOLDS[1], LAM, quadratic(EPS), bias=True)
    assert is_off(svr_bif(FOLDS[1], 1, slope=printed)[0], first)


# -- 2017 and 2018: the Huberised hinge, without bias -------------------------------------------


H = 0.3


def hinge_bif(S, order, *, scale=1 / (2 * H), sign=-1.0, keeps_active=True):
    """2017, (3), and 2018, before (7), with what is printed otherwise as parameters."""
    f, _ = refit(SIGNS, ONES / N, LAM, huber(H), bias=False)
    slope, bend = huber(H)(SIGNS, f)
    active = (bend > 0).astype(float)
    assert 3 < active.sum() < N - 3
    K0 = K * (active if keeps_active else ONES)
    L = 2 * LAM * I + K0 / (2 * H * N)
    terms = [np.linalg.solve(L, sign * (K * only(S)) @ slope / M - 2 * LAM * f)]
    for k in range(1, order):
        last = terms[-1]
        right = scale * K0 @ last / N - (K0 * only(S)) @ last / (2 * H * M)
        terms.append((k + 1) * np.linalg.solve(L, right))
    return terms


def test_2017_the_recursion_lacks_a_factor_in_print():
    S = FOLDS[3]
    first, second = derivatives(SIGNS, S, LAM, huber(H), bias=False)
    assert_allclose(hinge_bif(S, 1)[0], first, rtol=0, atol=1e-6)
    assert_allclose(hinge_bif(S, 2)[1], second, rtol=0, atol=1e-4 * np.abs(second).max())
    assert is_off(hinge_bif(S, 2, scale=1.0)[1], second)


def test_2018_the_slope_has_a_minus_and_the_active_set_stays():
    S = FOLDS[3]
    first, _ = derivatives(SIGNS, S, LAM, huber(H), bias=False)
    assert_allclose(hinge_bif(S, 1)[0], first, rtol=0, atol=1e-6)
    assert is_off(hinge_bif(S, 1, sign=1.0)[0], first)
    assert is_off(hinge_bif(S, 1, keeps_active=False)[0], first)


# -- 2013 and 2012 ------------------------------------------------------------------------------


def lssvm(A, y, mu):
    """α and b of (4) in the paper of 2012: the bordered system of a kernel matrix."""
    n = len(y)
    ones = np.ones((n, 1))
    x = np.linalg.solve(np.block([[A + mu * np.eye(n), ones], [ones.T, 0.0]]), np.append(y, 0.0))
    return x[:n], x[n]


@pytest.mark.parametrize(("sign", "is_right"), [(-1.0, True), (1.0, False)])
def test_2013_the_intercept_terms_have_a_minus(sign, is_right):
    """Algorithm 2: C and α with +, as printed, or with −, against refits of every fold."""
    gamma = 4.0  # that of K + I/γ
    G = np.linalg.inv(K + I / gamma)
    d, row = ONES @ G @ ONES, G @ ONES
    C = G + sign * np.outer(row, row) / d
    alpha = G @ SIGNS + sign * row * (row @ SIGNS) / d
    held, refitted = np.empty(N), np.empty(N)
    for train, S in SPLITS:
        held[S] = SIGNS[S] - np.linalg.solve(C[np.ix_(S, S)], alpha[S])
        a, b = lssvm(K[np.ix_(train, train)], SIGNS[train], 1 / gamma)
        refitted[S] = K[np.ix_(S, train)] @ a + b
    if not is_right:
        assert is_off(held, refitted)
        return
    assert_allclose(held, refitted, rtol=0, atol=1e-10)
    model = LSSVC(alpha=1 / gamma, gamma=GAMMA)
    found = cross_val_predict(model, X, SIGNS, cv=SPLITS, method="decision_function")
    assert_allclose(found, refitted, rtol=0, atol=1e-10)


def test_2012_the_offset_divides_what_was_solved_for():
    """Algorithm 1, step 5: b = 1ᵀν / 1ᵀρ, not 1ᵀy / 1ᵀρ."""
    mu, c, k = 0.5, 10, 5
    columns = np.random.default_rng(0).permutation(N)[:c]
    values, U = np.linalg.eigh(K[np.ix_(columns, columns)])
    V = K[:, columns] @ U[:, -k:] / np.sqrt(values[-k:])
    z = np.column_stack([ONES, SIGNS])
    t = np.linalg.solve(mu * np.eye(k) + V.T @ V, V.T @ z)
    rho, nu = ((z - V @ t) / mu).T
    a, b = lssvm(V @ V.T, SIGNS, mu)
    assert_allclose(nu.sum() / rho.sum(), b, rtol=1e-10)
    assert_allclose(nu - rho * nu.sum() / rho.sum(), a, rtol=0, atol=1e-10)
    assert is_off(np.array([SIGNS.sum() / rho.sum()]), np.array([b]))


# -- the page -----------------------------------------------------------------------------------


def test_every_erratum_on_the_page_names_a_test():
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", page.partition("\n## Errata\n")[2]))
    assert len(named) == 8
    assert named <= {*globals(), *vars(test_bif)}
