"""Every shortcut against the brute-force loop."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.crossval.closed_form import InnerLeaveOneOut
from everyfold.kernels import RBF
from everyfold.linalg.ridge_systems import ROUTES
from everyfold.losses import HuberHinge, Squared
from everyfold.operators import DenseMatrix
from everyfold.operators.lowrank import LowRank
from everyfold.papers import GCV
from everyfold.solvers import Problem
from tests import cases, reference

RIDGES = [0.03, 1.0]


def expected(problem, K, folds, ridge):
    return reference.held_out(
        K, problem.y, problem.w, ridge, problem.intercept, folds, problem.ridge_scaling
    )


@pytest.mark.parametrize("operator", cases.OPERATORS)
@pytest.mark.parametrize("fold", cases.FOLDS)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("intercept", [True, False])
def test_resummed_equals_refit(operator, fold, q, scaling, weight, intercept):
    problem = cases.problem(q, weight, intercept, scaling)
    bound, K = cases.operator(operator)
    folds = cases.folds(fold)
    results = list(ClosedFormCV().evaluate(problem, bound, RIDGES, folds))
    assert len(results) == len(RIDGES)
    for ridge, result in zip(RIDGES, results, strict=True):
        truth = expected(problem, K, folds, ridge)
        assert_allclose(result.values, truth, rtol=1e-8, atol=1e-8 * np.abs(truth).max())
        assert result.is_exact.all()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("criterion", [ClosedFormCV, Refit])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("operator", ["rbf", "primal"])
def test_every_route_gives_the_same_answer(route, criterion, weight, intercept, operator):
    problem = cases.problem(2, weight, intercept)
    bound, K = cases.operator(operator)
    for fold in ("unequal", "loo", "pairs"):
        folds = cases.folds(fold)
        results = criterion(route=route).evaluate(problem, bound, RIDGES, folds)
        for ridge, result in zip(RIDGES, results, strict=True):
            truth = expected(problem, K, folds, ridge)
            assert_allclose(result.values, truth, rtol=1e-8, atol=1e-8 * np.abs(truth).max())


@pytest.mark.parametrize("order", [1, 2, 3, 7])
@pytest.mark.parametrize("fold", ["unequal", "loo", "repeated", "groups"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("operator", ["rbf", "primal"])
def test_finite_orders_equal_the_naive_series(order, fold, scaling, weight, intercept, operator):
    problem = cases.problem(2, weight, intercept, scaling)
    bound, K = cases.operator(operator)
    folds = cases.folds(fold)
    (result,) = ClosedFormCV(order=order).evaluate(problem, bound, [0.3], folds)
    truth = reference.series(
        K, problem.y, problem.w, 0.3, intercept, folds, order, problem.ridge_scaling
    )
    assert_allclose(result.values, truth, rtol=1e-8, atol=1e-8 * np.abs(truth).max())
    assert not result.is_exact.any()


@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_series_converges_at_the_rate_of_the_spectral_radius(scaling, intercept):
    problem = cases.problem(1, "none", intercept, scaling)
    bound, _ = cases.operator("rbf")
    folds = cases.folds("equal")
    ridge = 2.0 if scaling == "sum" else 2.0 / problem.n
    (limit,) = ClosedFormCV().evaluate(problem, bound, [ridge], folds)
    errors, radius = [], None
    for order in (1, 5, 10, 20):
        (result,) = ClosedFormCV(order=order).evaluate(problem, bound, [ridge], folds)
        errors.append(np.abs(result.values - limit.values).max())
        radius = result.spectral_radius
    assert (radius < 1.0).all()
    assert (radius > 0.0).all()
    assert errors[-1] < 1e-6 < errors[0]
    # Between orders 10 and 20 little but the slowest mode is left, and rounding is far away.
    slowest = (errors[3] / errors[2]) ** (1 / 10)
    assert slowest == pytest.approx(radius.max(), rel=0.1)


def test_the_spectral_radius_is_that_of_the_block():
    problem = cases.problem(1, "random", True)
    bound, K = cases.operator("rbf")
    folds = cases.folds("unequal")
    criteria = [ClosedFormCV(order=1), ClosedFormCV(with_radius=True)]
    M = reference.response(K, problem.w, 0.1, True)
    truth = [
        np.abs(np.linalg.eigvals(M[np.ix_(S, S)] * (2.0 * problem.w[S]))).max() for S in folds.helds
    ]
    for criterion in criteria:
        (result,) = criterion.evaluate(problem, bound, [0.1], folds)
        assert_allclose(result.spectral_radius, truth, rtol=1e-8)
    (silent,) = ClosedFormCV().evaluate(problem, bound, [0.1], folds)
    assert np.isnan(silent.spectral_radius).all()


def test_finite_orders_collapse_to_the_training_error_where_the_ridge_is_small():
    problem = cases.problem(1, "none", False)
    bound, _ = cases.operator("rbf")
    folds = cases.folds("equal")
    (first,) = ClosedFormCV(order=1).evaluate(problem, bound, [1e-6], folds)
    (exact,) = ClosedFormCV().evaluate(problem, bound, [1e-6], folds)
    y = problem.y[np.concatenate(folds.tests)]
    assert np.abs(first.values - y).max() < 1e-2 < np.abs(exact.values - y).max()
    assert first.spectral_radius.max() > 0.999


@pytest.mark.parametrize("order", [0, -1, 1.5, float("nan")])
def test_an_order_must_be_a_positive_integer_or_inf(order):
    with pytest.raises(ValueError, match="order="):
        ClosedFormCV(order=order)


def test_folds_that_are_not_removals_are_refused_with_the_reason():
    folds = cases.Folds.from_splits([(np.arange(20), np.arange(15, 30))], 30)
    bound, _ = cases.operator("rbf")
    with pytest.raises(ValueError, match=r"split 0 is not a removal of rows.*use Refit"):
        next(ClosedFormCV().evaluate(cases.problem(), bound, [1.0], folds))


@pytest.mark.parametrize("weight", ["none", "random"])
def test_refit_serves_any_split(weight):
    """Bootstrap rows, test rows inside the training set, time series."""
    rng = np.random.default_rng(0)
    splits = [
        (rng.integers(0, 30, 30), np.arange(10)),
        (np.arange(20), np.arange(15, 30)),
        (np.arange(10), np.arange(10, 12)),
    ]
    folds = cases.Folds.from_splits(splits, 30)
    problem = cases.problem(2, weight)
    bound, K = cases.operator("rbf")
    (result,) = Refit(route="tridiagonal").evaluate(problem, bound, [0.5], folds)
    assert_allclose(result.values, expected(problem, K, folds, 0.5), rtol=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("operator", ["rbf", "primal"])
def test_gcv_is_its_definition(intercept, operator):
    problem = cases.problem(2, "none", intercept)
    bound, K = cases.operator(operator)
    for ridge, value in zip(RIDGES, GCV().evaluate(problem, bound, RIDGES), strict=True):
        H = 2.0 * reference.response(K, problem.w, ridge, intercept)
        residual = problem.y - H @ problem.y
        truth = problem.n * (residual**2).sum(axis=0) / (problem.n - np.trace(H)) ** 2
        assert_allclose(value, truth, rtol=1e-8)


def test_order_infinity_is_the_default():
    assert ClosedFormCV().order == math.inf


# -- ties --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, np.inf, "exact"])
def test_rows_that_are_like_no_other_are_ties(order):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([-1.0, 1.0], 10))
    problem = Problem(y[:, None], np.ones(20), HuberHinge(0.1), intercept=False)
    folds = Folds.leave_one_out(20)
    (record,) = ClosedFormCV(order=order).evaluate(problem, DenseMatrix(np.eye(20)), [0.1], folds)
    if order == 1:  # the series is cut before the row's own term is gone
        assert np.all(record.values[:, 0] * y > 0.0)
    else:
        assert np.abs(record.values).max() < 1e-13


def test_tiny_values_that_are_known_well_are_no_ties():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)), rng.permutation(np.repeat([-1.0, 1.0], 30))
    K = RBF(100.0)(X)
    problem = Problem(y[:, None], np.ones(60), Squared(), intercept=False)
    folds = Folds.leave_one_out(60)
    (record,) = ClosedFormCV().evaluate(problem, DenseMatrix(K), [0.1], folds)
    assert np.median(np.abs(record.values)) < 1e-6
    true = np.empty(60)
    for i in range(60):
        rest = np.delete(np.arange(60), i)
        true[i] = K[i, rest] @ np.linalg.solve(K[np.ix_(rest, rest)] + 0.1 * np.eye(59), y[rest])
    is_clear = np.abs(true) > 1e-14 * np.abs(true).max()
    assert is_clear.sum() > 30
    assert (~is_clear).sum() > 5
    values = record.values[:, 0]
    assert_array_equal(np.sign(values[is_clear]), np.sign(true[is_clear]))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("some", [1.0, 0.0], ids=["weights", "zeros"])
def test_ridges_are_chosen_from_the_columns_as_from_the_blocks_of_rows(some, intercept):
    """Leave-one-out of a few columns takes one spectrum; refits without each row are the truth."""
    rng = np.random.default_rng(0)
    V, y = rng.normal(size=(30, 4)) + 3.0, rng.normal(size=(30, 2))
    y += V @ rng.normal(size=(4, 2)) * np.array([1.0, 0.1])
    w = rng.uniform(0.5, 2.0, 30)
    w[::7] *= some
    problem, ridges = Problem(y, w, Squared(), intercept), (0.01, 1.0, 30.0, 1e3)
    found = LowRank(V).leave_one_out(problem.quadratic, ridges)
    dense, singles = DenseMatrix(V @ V.T), Folds.leave_one_out(30)
    truth = list(Refit().evaluate(problem, dense, ridges, singles))
    for (left, _, _), record in zip(found, truth, strict=True):
        assert_allclose((y - left)[w > 0.0], record.values[w > 0.0], rtol=1e-8)
    rows, solver = np.arange(30), InnerLeaveOneOut(ridges)
    for k in range(3):
        held = [
            solver.solve(
                [problem], operator.split(rows[rows % 3 != k], rows[k::3]), [1.0], None
            ).values
            for operator in (LowRank(V), dense)
        ]
        assert_allclose(held[0], held[1], rtol=1e-8)
