"""Criteria in closed form against their definitions, and the granularity table of the paper."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.svm import SVC, SVR

from everyfold import choose_granularity
from everyfold.crossval import ClosedFormCV, Folds
from everyfold.kernels import RBF
from everyfold.losses import EpsilonInsensitive, Hinge, HuberHinge
from everyfold.operators import DenseMatrix, LowRank
from everyfold.papers import GACV, EigenvaluePerturbation, EigenvalueRatio, SpanRule
from everyfold.solvers import Problem, solve
from tests import cases


@pytest.fixture
def machine():
    X = cases.features(50, 3, 2)
    y = np.where(
        np.sin(X[:, 0] * 2) + 0.5 * np.random.default_rng(0).normal(size=50) > 0, 1.0, -1.0
    )
    K = RBF(0.5)(X)
    problem = Problem(y[:, None], np.ones(50), HuberHinge(0.01), intercept=True)
    fit = solve(problem, DenseMatrix(K), 0.5)
    u = K @ fit.solution.coef[:, 0] + fit.solution.intercept[0]
    return problem, K, y, u, fit.solution.coef[:, 0]


def test_gacv(machine):
    problem, K, y, u, a = machine
    (value,) = GACV().evaluate(problem, DenseMatrix(K), [0.5])
    total = 0.0
    for i in range(50):
        m = y[i] * u[i]
        total += max(0.0, 1.0 - m)
        if m < -1:
            total += 2 * abs(a[i]) * K[i, i]
        elif m <= 1.01:  # the kink is rounded over 0.01
            total += abs(a[i]) * K[i, i]
    assert_allclose(value, [total / 50], rtol=1e-8)


def test_gacv_needs_labels():
    problem = Problem(np.arange(5.0)[:, None], np.ones(5), HuberHinge(0.1), intercept=False)
    with pytest.raises(ValueError, match="y must be -1 and"):
        next(GACV().evaluate(problem, DenseMatrix(np.eye(5)), [1.0]))


def test_the_span_is_the_distance_to_the_other_support_vectors(machine):
    """S² of a row in the bend: its squared distance to the affine span of the others there."""
    problem, K, y, u, a = machine
    curved = np.flatnonzero(HuberHinge(0.01).curvature(y, u) > 0)
    assert len(curved) > 3
    held = u.copy()
    bordered = np.block(
        [[K[np.ix_(curved, curved)], np.ones((len(curved), 1))], [np.ones(len(curved)), 0.0]]
    )
    inverse = np.linalg.inv(bordered)
    for p, i in enumerate(curved):
        held[i] = u[i] - a[i] / inverse[p, p]
    for i in np.setdiff1d(np.arange(50), curved):
        v = np.append(K[i, curved], 1.0)
        held[i] = u[i] - a[i] * (K[i, i] - v @ inverse @ v)
    expected = np.mean(y * held < 0)
    (value,) = SpanRule().evaluate(problem, DenseMatrix(K), [0.5])
    assert_allclose(value, [expected], atol=1e-12)
    assert 0 < expected < 1


def test_the_span_rule_is_near_leave_one_out(machine):
    problem, K, y, *_ = machine
    (value,) = SpanRule().evaluate(problem, DenseMatrix(K), [0.5])
    (loo,) = ClosedFormCV().evaluate(problem, DenseMatrix(K), [0.5], Folds.leave_one_out(50))
    assert abs(value[0] - np.mean(y * loo.values[:, 0] < 0)) <= 0.04


def test_eigenvalue_criteria(machine):
    problem, K, y, u, _ = machine
    loss = HuberHinge(0.01).value(y, u).mean()
    values = np.sort(np.linalg.eigvalsh(K))[::-1]
    (ratio,) = EigenvalueRatio(eta=2.0, leading=0.2).evaluate(problem, DenseMatrix(K), [0.5])
    assert_allclose(ratio, [loss + 2.0 * values[10:].sum() / values[:10].sum()], rtol=1e-8)
    (moved,) = EigenvaluePerturbation(eta=3.0).evaluate(problem, DenseMatrix(K), [0.5])
    even, odd = (np.sort(np.linalg.eigvalsh(K[s::2, s::2]))[::-1] / 25 for s in (0, 1))
    assert_allclose(moved, [loss + 3.0 * np.linalg.norm(even - odd)], rtol=1e-8)


def hinge(X, y, C, weighting):
    """The problem of the hinge, its kernel, and libsvm's own solution of it by scikit-learn."""
    w = np.ones(len(y))
    if weighting == "random":
        w = np.random.default_rng(4).uniform(0.3, 2.0, len(y))
        w[::7] = 0.0
    rows = np.flatnonzero(w)
    svc = SVC(C=C, gamma=0.5).fit(X[rows], y[rows], sample_weight=w[rows])
    a = np.zeros(len(y))
    a[rows[svc.support_]] = svc.dual_coef_[0]
    return Problem(y[:, None], w, Hinge(), intercept=True), RBF(0.5)(X), a, svc.decision_function(X)


HINGES = pytest.mark.parametrize(
    ("C", "weighting"), [(1e-3, "none"), (1.0, "none"), (1.0, "random"), (100.0, "random")]
)


@pytest.fixture
def table():
    X = cases.features(50, 3, 2)
    noise = np.random.default_rng(0).normal(size=50)
    score = np.sin(X[:, 0] * 2) + 0.5 * noise
    return X, np.where(score > np.median(score), 1.0, -1.0), score


@HINGES
def test_gacv_of_the_hinge_is_that_of_libsvm(table, C, weighting):
    X, y, _ = table
    problem, K, a, u = hinge(X, y, C, weighting)
    m = y * u
    terms = np.maximum(0.0, 1.0 - m) + np.where(m < -1.0, 2.0, 1.0) * np.abs(a) * np.diag(K)
    (value,) = GACV().evaluate(problem, DenseMatrix(K), [1 / (2 * C)])
    assert_allclose(value, [np.average(terms, weights=problem.w)], rtol=5e-3)


@HINGES
def test_the_span_rule_of_the_hinge_is_that_of_libsvm(table, C, weighting):
    """Spans of the free support vectors, by the definition; K_ii where there are none."""
    X, y, _ = table
    problem, K, a, u = hinge(X, y, C, weighting)
    free = np.flatnonzero((a != 0.0) & (np.abs(a) < C * problem.w * (1 - 1e-9)))
    assert (len(free) == 0) == (C < 0.01)
    bordered = np.block([[K[np.ix_(free, free)], np.ones((len(free), 1))], [np.ones(len(free)), 0]])
    S = np.diag(K).copy()
    if len(free):
        inverse = np.linalg.inv(bordered)
        V = np.column_stack([K[:, free], np.ones(50)])
        S -= np.einsum("ij,jk,ik->i", V, inverse, V)
        S[free] = 1.0 / np.diag(inverse)[:-1]
    held = y * (u - a * S)
    # No sign hangs on libsvm's tolerance, which does not matter if all rows are at their bounds.
    assert np.abs(held).min() > (1e-3 if len(free) else 1e-6)
    (value,) = SpanRule().evaluate(problem, DenseMatrix(K), [1 / (2 * C)])
    assert_allclose(value, [np.average(held < 0, weights=problem.w)], atol=1e-12)
    assert 0 < value[0] < 1


def test_the_eigenvalue_criteria_of_libsvms_losses(table):
    X, y, score = table
    K = RBF(0.5)(X)
    tail = np.sort(np.linalg.eigvalsh(K))[::-1]
    ratio = tail[5:].sum() / tail[:5].sum()
    _, _, _, u = hinge(X, y, 2.0, "none")
    svr = SVR(C=2.0, gamma=0.5, epsilon=0.2).fit(X, score).predict(X)
    for loss, target, values in (
        (Hinge(), y, np.maximum(0.0, 1.0 - y * u)),
        (EpsilonInsensitive(0.2), score, np.maximum(0.0, np.abs(score - svr) - 0.2)),
    ):
        problem = Problem(target[:, None], np.ones(50), loss, intercept=True)
        (value,) = EigenvalueRatio().evaluate(problem, DenseMatrix(K), [0.25])
        assert_allclose(value, [values.mean() + ratio], atol=2e-3)
        (value,) = EigenvaluePerturbation(eta=0.0).evaluate(problem, DenseMatrix(K), [0.25])
        assert_allclose(value, [values.mean()], atol=2e-3)


def test_a_kink_on_features_is_that_of_their_matrix(table):
    X, y, _ = table
    problem = Problem(y[:, None], np.ones(50), Hinge(), intercept=True)
    for criterion in (GACV(), SpanRule()):
        values = [
            list(criterion.evaluate(problem, operator, [0.5, 0.05]))
            for operator in (LowRank(X), DenseMatrix(X @ X.T))
        ]
        assert_allclose(*values, rtol=1e-6)
        assert np.isfinite(values).all()


def test_kinks_that_libsvm_does_not_know_are_refused(table):
    X, y, _ = table
    K = DenseMatrix(RBF(0.5)(X))
    problem = Problem(y[:, None], np.ones(50), Hinge(), intercept=False)
    with pytest.raises(ValueError, match="intercept=False is not available"):
        next(GACV().evaluate(problem, K, [1.0]))
    problem = Problem((y[:, None] + 1.0) / 2.0, np.ones(50), Hinge(), intercept=True)
    with pytest.raises(ValueError, match="y must be -1 and"):
        next(EigenvalueRatio().evaluate(problem, K, [1.0]))


def test_a_fit_that_does_not_converge_is_infinitely_bad(machine, monkeypatch):
    problem, K, *_ = machine
    monkeypatch.setattr("everyfold.solvers.newton.MAX_STEPS", 1)
    (value,) = GACV().evaluate(problem, DenseMatrix(K), [1e-4])
    assert np.isinf(value).all()


@pytest.mark.parametrize(
    ("tolerance", "folds", "order"), [(0.2, 4, 2), (0.1, 5, 3), (0.05, 6, 4), (0.01, 16, 14)]
)
def test_granularity_table(tolerance, folds, order):
    chosen = choose_granularity(tolerance, ridge=1.0, smoothing=0.01)
    assert (chosen.folds, chosen.order) == (folds, order)
    assert chosen.bound <= tolerance


@pytest.mark.parametrize("tolerance", [0.005, 0.001])
def test_a_tolerance_below_the_smoothing_cannot_be_reached(tolerance):
    with pytest.raises(ValueError, match="cannot be reached"):
        choose_granularity(tolerance, ridge=1.0, smoothing=0.01)


@pytest.mark.parametrize("name", ["tolerance", "ridge", "smoothing", "kappa"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_granularity_arguments(name, value):
    arguments = {"tolerance": 0.1, "ridge": 1.0, "smoothing": 0.01, "kappa": 1.0, name: value}
    with pytest.raises(ValueError, match=f"{name}="):
        choose_granularity(arguments.pop("tolerance"), **arguments)
