"""Where floating point hurts: the result equals the refit's or is flagged, never silently wrong."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.kernels import RBF
from everyfold.linalg.ridge_systems import ROUTES
from everyfold.losses import Squared
from everyfold.operators import Dense
from everyfold.solvers import Problem
from tests import cases

mp = pytest.importorskip("mpmath", reason="mpmath gives the reference beyond double precision")


def exact(K, y, rho, intercept, folds):
    """Held-out values of a refit with 60 digits."""
    with mp.workdps(60):
        values = []
        for fold in folds:
            T = fold.train
            n = len(T)
            A = mp.zeros(n + 1)
            for i in range(n):
                for j in range(n):
                    A[i, j] = mp.mpf(float(K[T[i], T[j]]))
                A[i, i] += mp.mpf(rho)
                A[i, n] = A[n, i] = 1 if intercept else 0
            A[n, n] = 0 if intercept else 1
            right = mp.matrix([mp.mpf(float(v)) for v in y[T]] + [0])
            a = mp.lu_solve(A, right)
            for i in fold.test:
                u = a[n] + mp.fsum(mp.mpf(float(K[i, T[j]])) * a[j] for j in range(n))
                values.append(float(u))
        return np.array(values)


def duplicated():
    X = cases.features(15)
    return np.vstack([X, X[:6]])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("criterion", [ClosedFormCV, Refit])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-10, 1e-4])
@pytest.mark.parametrize("gamma", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("fold", ["k", "loo"])
def test_equal_to_the_refit_or_flagged(route, criterion, intercept, alpha, gamma, fold):
    X = duplicated()
    y = np.sin(np.arange(len(X)))
    n = len(X)
    folds = (
        Folds.leave_one_out(n)
        if fold == "loo"
        else Folds.from_splits(KFold(5, shuffle=True, random_state=0).split(X), n)
    )
    operator = Dense().bind(RBF(gamma), X)
    problem = Problem(y[:, None], np.ones(n), Squared(), intercept)
    (result,) = criterion(route=route).evaluate(problem, operator, [alpha], folds)
    truth = exact(operator.K, y, alpha, intercept, folds)
    error = np.abs(result.values[:, 0] - truth) / np.abs(truth).max()
    trusted = np.concatenate(
        [np.full(len(test), e) for test, e in zip(folds.tests, result.is_exact, strict=True)]
    )
    assert error[trusted].max(initial=0.0) < 1e-6
    if alpha == 1e-4 and gamma > 1e-6:
        assert trusted.all()  # the flag is not simply always up


def test_narrow_kernels_keep_their_digits():
    """Held-out values of 1e-9 keep digits and sign although the fitted ones are near 1."""
    X = np.linspace(0.0, 1.0, 12)[:, None]
    operator = Dense().bind(RBF(2500.0), X)
    off = operator.K - np.eye(12)
    assert 0 < np.abs(off).max() < 1e-8
    y = np.where(np.arange(12) % 3 == 0, 1.0, -1.0)
    folds = Folds.leave_one_out(12)
    problem = Problem(y[:, None], np.ones(12), Squared(), intercept=False)
    (result,) = ClosedFormCV(route="eigen").evaluate(problem, operator, [1e-3], folds)
    truth = exact(operator.K, y, 1e-3, False, folds)
    visible = np.abs(truth) > 1e-12
    assert 3 < visible.sum() < 12
    np.testing.assert_allclose(result.values[visible, 0], truth[visible], rtol=1e-5)
    assert np.abs(result.values[~visible]).max() < 1e-14


def test_an_identity_kernel_predicts_exactly_zero():
    operator = Dense().bind(RBF(1e6), cases.features(12))
    problem = Problem(np.ones((12, 1)), np.ones(12), Squared(), intercept=False)
    (result,) = ClosedFormCV().evaluate(problem, operator, [1e-3], Folds.leave_one_out(12))
    assert np.abs(result.values).max() < 1e-15
