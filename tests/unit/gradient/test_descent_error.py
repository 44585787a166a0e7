"""Gradients of the cross-validation error, against complex steps through a loop of refits."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import KFold, LeavePOut, RepeatedKFold, ShuffleSplit, cross_val_score

from everyfold import LSSVR, Dense, KernelRegressor, Nystrom, RandomFourier
from everyfold.crossval import Folds
from everyfold.gradient.descent import HeldOutError
from everyfold.kernels import Linear, find_kernel
from everyfold.losses import Squared, find_loss
from everyfold.operators import FixedLandmarks
from everyfold.operators.dense import DenseMatrix
from everyfold.solvers import Problem

STEP = 1e-30
random = np.random.default_rng(3)
N, D = 26, 3
X = random.normal(size=(N, D))
Y = np.column_stack([np.sin(2.0 * X[:, 0]) + X[:, 1], X[:, 1] * X[:, 2]])
Y += 0.1 * random.normal(size=Y.shape)
LANDMARKS = np.array([1, 4, 9, 12, 20, 23, 25])
GAMMA, RIDGE = np.array([0.8, 0.3, 0.05]), 0.2
W = random.uniform(0.5, 2.0, N)
WEIGHTS = {
    "ones": np.ones(N),
    "some": W,
    "zeros": np.where(np.arange(N) % 6 == 2, 0.0, W),
}

FOLDS = {
    "loo": Folds.leave_one_out(N),
    "k": Folds.from_splits(KFold(4, shuffle=True, random_state=0).split(X), N),
    "uneven": Folds.from_splits(KFold(5).split(X), N),
    "repeated": Folds.from_splits(
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0).split(X), N
    ),
    "random": Folds.from_splits(ShuffleSplit(3, test_size=0.2, random_state=0).split(X), N),
    "part": Folds.from_splits(
        ShuffleSplit(3, test_size=0.2, train_size=0.5, random_state=0).split(X), N
    ),
    "pairs": Folds.from_splits(list(LeavePOut(2).split(X))[::40], N),
}


def matrix(kernel, gamma):
    """The kernel matrix by its definition, for complex gamma as well."""
    apart = X[:, None] - X[None]
    if kernel == "rbf":
        return np.exp(-(apart**2) @ gamma)
    if kernel == "laplacian":
        return np.exp(-np.abs(apart) @ gamma)
    return ((X * gamma) @ X.T + 1.0) ** 3


def of_landmarks(kernel, gamma):
    """The Nyström approximation of the matrix by its definition, C W^-1 C^T."""
    K = matrix(kernel, gamma)
    C, W = K[:, LANDMARKS], K[np.ix_(LANDMARKS, LANDMARKS)]
    return C @ np.linalg.solve(W, C.T)


def refits(kernel, gamma, ridge, Y, w, intercept, folds, matrix=matrix):
    """The mean over the folds of the mean squared errors of refits."""
    K, errors = matrix(kernel, gamma), []
    for fold in folds:
        T = fold.train[w[fold.train] > 0.0]
        A = np.zeros((len(T) + 1, len(T) + 1), dtype=complex)
        A[:-1, :-1] = K[np.ix_(T, T)] + ridge * np.diag(1.0 / w[T])
        A[:-1, -1] = A[-1, :-1] = float(intercept)
        A[-1, -1] = float(not intercept)
        solved = np.linalg.solve(A, np.vstack([Y[T], np.zeros((1, Y.shape[1]))]))
        values = K[np.ix_(fold.test, T)] @ solved[:-1] + intercept * solved[-1]
        errors.append(np.mean((Y[fold.test] - values) ** 2))
    return np.mean(errors)


def brute(kernel, *rest, **how):
    """Value and derivatives in the logarithms of all gammas and the ridge, by complex steps."""
    at = np.log(np.append(GAMMA, RIDGE)).astype(complex)
    slopes = []
    for j in range(D + 1):
        moved = at.copy()
        moved[j] += STEP * 1j
        moved = np.exp(moved)
        slopes.append(refits(kernel, moved[:-1], moved[-1], *rest, **how).imag / STEP)
    return refits(kernel, GAMMA, RIDGE, *rest, **how).real, slopes


def ours(kernel, Y, w, intercept, folds, structure=Dense()):  # noqa: B008  # immutable
    problem = Problem(Y, w, Squared(), intercept)
    operator = structure.bind(find_kernel(kernel, gamma=GAMMA, X=X), X)
    return HeldOutError(problem, folds).evaluate(operator, RIDGE)


@pytest.mark.parametrize(
    ("name", "intercept", "w", "q"),
    list(product(FOLDS, [True, False], WEIGHTS, [1, 2])),
)
def test_gradient_is_that_of_refits(name, intercept, w, q):
    rest = (Y[:, :q], WEIGHTS[w], intercept, FOLDS[name])
    found = ours("rbf", *rest)
    value, slopes = brute("rbf", *rest)
    assert_allclose(found.value, value, rtol=1e-9)
    assert_allclose(np.append(found.log_gamma, found.log_ridge), slopes, rtol=1e-7, atol=1e-10)
    assert_allclose(found.fold_errors.mean(), value, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "intercept", "w", "q"),
    [*product(FOLDS, [True, False], ["some", "zeros"], [2]), *product(["k"], [True], WEIGHTS, [1])],
)
def test_gradient_with_landmarks_that_stay(name, intercept, w, q):
    rest = (Y[:, :q], WEIGHTS[w], intercept, FOLDS[name])
    found = ours("rbf", *rest, structure=FixedLandmarks(X[LANDMARKS]))
    value, slopes = brute("rbf", *rest, matrix=of_landmarks)
    assert_allclose(found.value, value, rtol=1e-8)
    assert_allclose(np.append(found.log_gamma, found.log_ridge), slopes, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial"])
def test_landmarks_of_other_kernels(kernel):
    rest = (Y, W, True, FOLDS["uneven"])
    found = ours(kernel, *rest, structure=FixedLandmarks(X[LANDMARKS]))
    value, slopes = brute(kernel, *rest, matrix=of_landmarks)
    assert_allclose(found.value, value, rtol=1e-7)
    assert_allclose(np.append(found.log_gamma, found.log_ridge), slopes, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("sampling", ["rpcholesky", "uniform", "kmeans"])
def test_drawn_landmarks_are_those_that_stay(sampling):
    drawn = Nystrom(7, sampling=sampling, random_state=0)
    kernel = find_kernel("rbf", gamma=GAMMA)
    landmarks = drawn.landmarks(kernel, X).features.landmarks
    rest = ("rbf", Y, W, True, FOLDS["k"])
    one, other = (ours(*rest, structure=s) for s in (drawn, FixedLandmarks(landmarks)))
    assert_allclose(one.value, other.value, rtol=1e-8)
    assert_allclose(one.log_gamma, other.log_gamma, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial"])
@pytest.mark.parametrize(("name", "intercept"), list(product(FOLDS, [True, False])))
def test_other_kernels(kernel, name, intercept):
    rest = (Y, WEIGHTS["zeros"], intercept, FOLDS[name])
    found, (value, slopes) = ours(kernel, *rest), brute(kernel, *rest)
    assert_allclose(found.value, value, rtol=1e-8)
    assert_allclose(np.append(found.log_gamma, found.log_ridge), slopes, rtol=1e-6, atol=1e-10)


def test_value_is_the_score_of_scikit_learn():
    cv = KFold(5)
    model = LSSVR(gamma=GAMMA, alpha=RIDGE)
    scores = cross_val_score(model, X, Y, cv=cv, scoring="neg_mean_squared_error")
    assert_allclose(ours("rbf", Y, np.ones(N), True, FOLDS["uneven"]).fold_errors, -scores)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
@pytest.mark.parametrize("machine", [LSSVR(), KernelRegressor(fit_intercept=False)])
@pytest.mark.parametrize("cv", [KFold(5), RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)])
def test_finite_differences_of_scikit_learn(kernel, machine, cv):
    machine = clone(machine).set_params(kernel=kernel)
    if kernel == "polynomial":
        machine.set_params(degree=3, coef0=1.0)

    def error(z):
        machine.set_params(gamma=np.exp(z[:-1]), alpha=np.exp(z[-1]))
        scores = cross_val_score(machine, X, Y, cv=cv, scoring="neg_mean_squared_error")
        return -scores.mean()

    at, steps = np.log(np.append(GAMMA, RIDGE)), 1e-4 * np.eye(D + 1)
    slopes = [(error(at + step) - error(at - step)) / 2e-4 for step in steps]
    folds = Folds.from_splits(cv.split(X), N)
    found = ours(kernel, Y, np.ones(N), isinstance(machine, LSSVR), folds)
    assert_allclose(found.value, error(at), rtol=1e-8)
    assert_allclose(np.append(found.log_gamma, found.log_ridge), slopes, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("route", ["eigen", "explicit", "tridiagonal"])
def test_routes_agree(route):
    problem = Problem(Y, W, Squared(), True)
    operator = Dense().bind(find_kernel("rbf", gamma=GAMMA), X)
    one = HeldOutError(problem, FOLDS["k"], route).evaluate(operator, RIDGE)
    other = HeldOutError(problem, FOLDS["k"]).evaluate(operator, RIDGE)
    assert_allclose(one.log_gamma, other.log_gamma, rtol=1e-8)
    assert_allclose(one.log_ridge, other.log_ridge, rtol=1e-8)


def test_single_gamma_has_the_sum():
    problem = Problem(Y, W, Squared(), True)
    one = find_kernel("rbf", gamma=0.3)
    many = find_kernel("rbf", gamma=[0.3] * D)
    found = [
        HeldOutError(problem, FOLDS["k"]).evaluate(Dense().bind(kernel, X), RIDGE)
        for kernel in (one, many)
    ]
    assert_allclose(found[0].log_gamma, found[1].log_gamma, rtol=1e-9)
    up, down = (
        refits("rbf", np.full(D, 0.3 * np.exp(h)), RIDGE, Y, W, True, FOLDS["k"]).real
        for h in (1e-5, -1e-5)
    )
    assert_allclose(found[0].log_gamma.sum(), (up - down) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": find_loss("logistic")}, "no closed form"),
        ({"ridge_scaling": "mean"}, "ridge_scaling='mean'"),
        ({"ridge": 0.0}, "the ridge is 0"),
        (
            {"folds": Folds.from_splits([(np.arange(20), np.arange(18, 26))], N)},
            "a test row in the training set",
        ),
        ({"operator": DenseMatrix(np.eye(N))}, "bare matrix"),
        ({"operator": Dense().bind(Linear(), X)}, "has no gamma"),
        ({"operator": Nystrom(8, 4).bind(find_kernel("rbf", gamma=GAMMA), X)}, "use rank=None"),
        (
            {"operator": Nystrom(8, predicts_with="kernel").bind(find_kernel("rbf", gamma=1.0), X)},
            "predicts_with='kernel'",
        ),
        ({"operator": RandomFourier(8).bind(find_kernel("rbf", gamma=1.0), X)}, "does not say"),
    ],
)
def test_what_has_no_gradient_is_refused(change, words):
    parts = {"loss": Squared(), "ridge_scaling": "sum", "ridge": RIDGE, "folds": FOLDS["k"]}
    parts["operator"] = Dense().bind(find_kernel("rbf", gamma=GAMMA), X)
    parts |= change
    problem = Problem(Y, W, parts["loss"], True, parts["ridge_scaling"])
    with pytest.raises((ValueError, TypeError), match=words):
        HeldOutError(problem, parts["folds"]).evaluate(parts["operator"], parts["ridge"])
