"""Leaps over all free coefficients: boxed quadratics, and paths with many of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification, make_regression
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.svm import SVC, SVR

from everyfold.linalg.box_constrained import boxed_step
from everyfold.svm import joint_steps
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import PairProblems, pair_paths
from tests.cases import svm_paths_of_folds as svm_paths

pytestmark = pytest.mark.xdist_group("numba")

CS = np.array([1.0, 30.0, 1000.0])


@pytest.fixture(scope="module")
def classes():
    X, y = make_classification(240, 8, n_informative=4, flip_y=0.1, random_state=1)
    return X, 2.0 * y - 1.0


@pytest.fixture(scope="module")
def numbers():
    X, y = make_regression(200, 5, noise=20.0, random_state=5)
    return X, y / y.std() + 3.0


@pytest.fixture
def shares(monkeypatch):
    """How far each joint step went; they come early and often."""
    found, step = [], joint_steps._joint_step

    def counted(*args):
        found.append(step(*args))
        return found[-1]

    monkeypatch.setattr(joint_steps, "_joint_step", counted)
    monkeypatch.setattr(joint_steps, "FIXED", 0.0)
    return found


def refit(model, X, y, w):
    return model.fit(X[w > 0], y[w > 0])


def folds(n):
    bounds = np.ones((2, n))
    bounds[0, ::4] = bounds[1, 1::4] = 0.0
    return bounds


# --- the quadratic ------------------------------------------------------------------------------


def given_up_in_turn(K, slope, low, high):
    """The same, one system of equations a round."""
    m = len(slope)
    step, kept = np.zeros(m), np.ones(m, dtype=bool)
    while True:
        size = kept.sum()
        system = np.zeros((size + 1, size + 1))
        system[:size, :size] = K[np.ix_(kept, kept)]
        system[size, :size] = system[:size, size] = 1.0
        pull = -slope[kept] - K[np.ix_(kept, ~kept)] @ step[~kept]
        step[kept] = np.linalg.solve(system, np.append(pull, -step[~kept].sum()))[:size]
        is_out = kept & ((step < low) | (step > high))
        if not is_out.any():
            return step, size
        step = np.clip(step, low, high)
        kept &= ~is_out


@pytest.mark.parametrize("room", [3.0, 6.0, 10.0, 100.0])
def test_a_step_stays_in_its_box(room):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 80))
    K, slope = Z @ Z.T / 80, rng.normal(size=60)
    low, high = -room * rng.uniform(0.1, 1.0, 60), room * rng.uniform(0.1, 1.0, 60)
    expected, size = given_up_in_turn(K, slope, low, high)
    assert_allclose(boxed_step(K, slope, (low, high), least=int(0.8 * size)), expected, atol=1e-10)
    assert boxed_step(K, slope, (low, high), least=61) is None


def test_there_is_no_step_on_an_indefinite_kernel():
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert boxed_step(K, np.array([1.0, -1.0]), (np.full(2, -9.0), np.full(2, 9.0))) is None


# --- paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.002, 0.02, 0.2])
def test_paths_with_joint_steps_equal_svc(classes, shares, gamma):
    X, y = classes
    bounds = folds(len(y))
    paths = svm_paths(rbf_kernel(X, gamma=gamma), y, CS, bounds, tol=1e-6)
    assert max(shares) > 0.9
    assert paths.converged.all()
    for w, found in zip(bounds, paths.decision, strict=True):
        for C, decision in zip(CS, found, strict=True):
            model = refit(SVC(C=C, gamma=gamma, tol=1e-6), X, y, w)
            assert_allclose(decision, model.decision_function(X), atol=1e-3)


def test_paths_with_joint_steps_equal_svr(numbers, shares):
    X, y = numbers
    bounds = folds(len(y))
    paths = svm_paths(rbf_kernel(X, gamma=0.02), y, CS, bounds, epsilon=0.2, tol=1e-6)
    assert max(shares) > 0.9
    for w, found in zip(bounds, paths.decision, strict=True):
        for C, decision in zip(CS, found, strict=True):
            model = refit(SVR(C=C, gamma=0.02, epsilon=0.2, tol=1e-6), X, y, w)
            assert_allclose(decision, model.predict(X), atol=2e-4)


def test_joint_steps_save_steps(classes, shares, monkeypatch):
    X, y = classes
    kernels = [rbf_kernel(X, gamma=0.02), linear_kernel(X), rbf_kernel(X.round(), gamma=0.02)]
    for K in kernels:
        bounds = np.ones((1, len(y)))
        quick = svm_paths(K, y, CS, bounds)
        with monkeypatch.context() as patch:
            patch.setattr(joint_steps, "FIXED", 1e12)
            slow = svm_paths(K, y, CS, bounds)
        assert quick.converged.all()
        assert 1.2 * quick.iterations.sum() < slow.iterations.sum()
        assert_allclose(quick.coef.sum(axis=2), 0.0, atol=1e-8)
        assert ((quick.coef * y >= 0.0) & (np.abs(quick.coef) <= CS[:, None])).all()
        for a, b in zip(quick.coef[0], slow.coef[0], strict=True):
            value = [0.5 * x @ K @ x - y @ x for x in (a, b)]
            assert value[0] == pytest.approx(value[1], rel=1e-3)
    assert max(shares) > 0.9


def test_pairs_leap_too(classes, shares):
    X, y = classes
    K = Kernel32(rbf_kernel(X, gamma=0.01))
    rows = np.arange(0, len(y), 2)
    pair = PairProblems(np.array([0, len(rows)]), rows, y[rows], np.ones(len(rows)))
    found = pair_paths(K, pair, CS)
    assert max(shares) > 0.9
    assert found.converged.all()


@pytest.mark.parametrize("stop", [None, np.zeros(1, dtype=np.int64)], ids=["threads", "here"])
def test_an_error_in_a_leap_is_raised(classes, shares, monkeypatch, stop):
    def fail(*args):
        raise MemoryError("no room for a leap")

    monkeypatch.setattr(joint_steps, "_joint_step", fail)
    X, y = classes
    with pytest.raises(MemoryError, match="no room"):
        svm_paths(rbf_kernel(X, gamma=0.02), y, CS, np.ones((1, len(y))), stop=stop)
