"""The radius-margin criterion against its definition, solved by a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from everyfold import LSSVC, LSSVR, FastGridSearchCV, HuberSVC, KernelClassifier, Nystrom
from everyfold.papers.closed_criteria import squared_radius
from tests import reference
from tests.cases import rbf

N, GAMMA = 24, 0.3


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    X = random.standard_normal((N, 3))
    return X, np.sign(X[:, 0] + 0.4 * random.standard_normal(N))


def sphere(K):
    """R² of the smallest sphere around the rows, by SLSQP on the weights."""
    d = K.diagonal()
    found = minimize(
        lambda b: b @ K @ b - b @ d,
        np.full(len(K), 1 / len(K)),
        jac=lambda b: 2 * K @ b - d,
        bounds=[(0, 1)] * len(K),
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1, "jac": lambda b: np.ones(len(K))},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert found.success
    return -found.fun


@pytest.mark.parametrize("gamma", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_sphere_is_the_smallest(table, gamma, ridge):
    K = rbf(table[0], table[0], gamma) + ridge * np.eye(N)
    assert squared_radius(K) == pytest.approx(sphere(K), rel=1e-6)


def test_two_points_and_one():
    points = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 1.0]])
    assert squared_radius(points @ points.T) == pytest.approx(4.0, rel=1e-9)
    assert squared_radius(np.array([[3.0]])) == 0.0


@pytest.mark.parametrize("intercept", [True, False])
def test_ls_svm(table, intercept):
    X, y = table
    model = LSSVC(gamma=GAMMA, fit_intercept=intercept)
    grid = {"alpha": [0.1, 1.0]}
    search = FastGridSearchCV(model, grid, criterion="radius_margin", refit=False).fit(X, y)
    K = rbf(X, X, GAMMA)
    for i, mu in enumerate(grid["alpha"]):
        a, _ = reference.fit(K, y, np.ones(N), mu, intercept)
        inside = K + mu * np.eye(N)
        expected = sphere(inside) * (a @ inside @ a) / N
        assert search.cv_results_["mean_test_score"][i] == pytest.approx(-expected, rel=1e-6)


def test_of_the_low_rank_model(table):
    X, y = table
    structure = Nystrom(8, 4, sampling="uniform", random_state=0)
    search = FastGridSearchCV(
        LSSVC(gamma=GAMMA), {"alpha": [0.5]}, criterion="radius_margin", operator=structure
    ).fit(X, y)
    K = rbf(X, X, GAMMA)
    columns = np.random.RandomState(0).permutation(N)[:8]
    values, U = np.linalg.eigh(K[np.ix_(columns, columns)])
    V = K[:, columns] @ U[:, -4:] / np.sqrt(values[-4:])
    inside = V @ V.T + 0.5 * np.eye(N)
    a, _ = reference.fit(V @ V.T, y, np.ones(N), 0.5, True)
    expected = sphere(inside) * (a @ inside @ a) / N
    assert search.best_score_ == pytest.approx(-expected, rel=1e-6)


def test_squared_hinge(table):
    X, y = table
    model = KernelClassifier(loss="squared_hinge", alpha=0.3, gamma=GAMMA)
    search = FastGridSearchCV(model, {"alpha": [0.3]}, criterion="radius_margin").fit(X, y)
    K, rho = rbf(X, X, GAMMA), 0.3

    def forces(u):
        return -2 * y * np.maximum(0, 1 - y * u), 2.0 * (y * u < 1)

    u = reference.minimise(K, forces, rho, intercept=True)
    a = -forces(u)[0] / (2 * rho)
    inside = K + rho * np.eye(N)
    expected = sphere(inside) * (a @ inside @ a) / N
    assert search.best_score_ == pytest.approx(-expected, rel=1e-6)


def test_numbers_have_no_margin(table):
    X, _ = table
    with pytest.raises(ValueError, match="RadiusMargin is for classification"):
        FastGridSearchCV(
            LSSVR(), {"alpha": [1.0]}, criterion="radius_margin", error_score="raise"
        ).fit(X, X[:, 0])


def test_other_losses_are_refused(table):
    X, y = table
    with pytest.raises(ValueError, match="slack must be squared; use LSSVC"):
        FastGridSearchCV(HuberSVC(), {"C": [1.0]}, criterion="radius_margin").fit(X, y)
