"""Criteria in closed form against their definitions, and the granularity table of the paper."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from everyfold import choose_granularity
from everyfold.criteria import (
    GACV,
    EigenvaluePerturbation,
    EigenvalueRatio,
    Folds,
    HeldOut,
    SpanRule,
)
from everyfold.kernels import RBF
from everyfold.losses import HuberHinge
from everyfold.operators import DenseMatrix
from everyfold.solve import Problem, solve
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
    (loo,) = HeldOut().evaluate(problem, DenseMatrix(K), [0.5], Folds.leave_one_out(50))
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


def test_a_fit_that_does_not_converge_is_infinitely_bad(machine, monkeypatch):
    problem, K, *_ = machine
    monkeypatch.setattr("everyfold.solve.MAX_STEPS", 1)
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
