"""Scores of held-out distributions and their gradients, against refits and finite differences."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.model_selection import KFold, LeaveOneOut, RepeatedKFold, TimeSeriesSplit

from everyfold.adapters.process_kernels import read_process
from everyfold.folds import Folds
from everyfold.gaussian_process.held_out_gaussians import SCORES, HeldOutScore, crps
from everyfold.linalg.symmetric import NotPositiveDefiniteError

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2.0, 2.0, size=(31, 2))
Y = np.column_stack([np.sin(2.0 * X[:, 0]), 7.0 * X[:, 1] + 100.0])
Y += RANDOM.normal(size=Y.shape) * [0.2, 1.0]
KERNELS = {
    "rbf": ConstantKernel(2.0) * RBF([0.7, 3.0]) + WhiteKernel(0.1),
    "matern": Matern(1.0, nu=1.5) + DotProduct(0.5, "fixed") + WhiteKernel(0.2),
}
FOLDS = {
    "one": LeaveOneOut(),
    "five": KFold(5, shuffle=True, random_state=0),
    "repeated": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    "time": TimeSeriesSplit(3),
}


def scored(name, y, mean, std):
    if name == "squared":
        return -((y - mean) ** 2)
    return norm.logpdf(y, mean, std) if name == "log_density" else -crps(y, mean, std)


def by_refits(model, y, name, cv):
    scores = []
    for train, test in cv.split(X):
        own = clone(model)
        if np.ndim(model.alpha):
            own.set_params(alpha=model.alpha[train])
        own.fit(X[train], y[train])
        mean, std = own.predict(X[test], return_std=True)
        noise = model.alpha[test, None] if np.ndim(model.alpha) else model.alpha
        noise = noise * np.square(own._y_train_std)
        std = np.sqrt(std.reshape(len(test), -1) ** 2 + noise)
        scores.append(scored(name, y[test], mean.reshape(std.shape), std).mean())
    return np.mean(scores)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("noise", [0.05, "rows"])
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_score_is_that_of_refits_and_its_gradient_that_of_differences(
    kernel, folds, name, noise, normalize
):
    cv, kernel = FOLDS[folds], KERNELS[kernel]
    alpha = RANDOM.uniform(0.05, 0.3, 31) if noise == "rows" else noise
    model = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None, normalize_y=normalize)
    score = HeldOutScore(read_process(model), X, Y, Folds.from_splits(cv.split(X), 31), name)
    value, gradient = score(kernel.theta)
    np.testing.assert_allclose(value, by_refits(model, Y, name, cv), rtol=1e-8)
    steps = 1e-5 * np.eye(len(kernel.theta))
    differences = [
        (score(kernel.theta + step)[0] - score(kernel.theta - step)[0]) / 2e-5 for step in steps
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6 * abs(value))


def test_a_matrix_that_is_not_definite_is_refused():
    process = read_process(GaussianProcessRegressor(RBF(1e9), alpha=0.0, optimizer=None))
    score = HeldOutScore(process, X, Y, Folds.leave_one_out(31))
    with pytest.raises(NotPositiveDefiniteError):
        score(np.log([1e9]))
