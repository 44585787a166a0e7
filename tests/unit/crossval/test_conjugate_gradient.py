"""Conjugate gradients over all folds and ridges against refits."""

from copy import copy
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import KFold, TimeSeriesSplit

from everyfold import KernelRegressor
from everyfold.crossval import ConjugateGradient, Folds, Refit
from everyfold.crossval import conjugate_gradient as conjugate
from everyfold.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed
from everyfold.linalg.symmetric import NotPositiveDefiniteError
from everyfold.losses import Logistic, Squared
from everyfold.operators import Dense, DenseMatrix, Iterative, StructureError, SupportsResponse
from everyfold.operators import iterative as blockwise
from everyfold.operators.base import SupportsMatmul, SupportsSplit, require
from everyfold.operators.iterative import Blockwise, Preconditioner
from everyfold.solvers import Classes, Problem
from tests import cases

RIDGES = [1e-2, 0.3, 10.0]


def pivoted(K, rank):
    """V of K ≈ V Vᵀ by Cholesky steps on the largest remaining diagonal entry."""
    V, left = np.zeros((len(K), rank)), K.diagonal().copy()
    for j in range(rank):
        i = int(np.argmax(left))
        V[:, j] = (K[:, i] - V[:, :j] @ V[i, :j]) / np.sqrt(left[i])
        left = left - V[:, j] ** 2
    return V


@cache
def folds(name):
    rng = np.random.default_rng(0)
    if name == "series":
        return Folds.from_splits(TimeSeriesSplit(4).split(np.empty(30)), 30)
    if name == "odd":  # bootstrap rows, and test rows among the training rows
        tests = np.array([9, 2, 2, 5]), np.arange(29, 14, -1)
        splits = [(rng.integers(0, 30, 30), tests[0]), (np.arange(20), tests[1])]
        return Folds.from_splits(splits, 30)
    return cases.folds(name)


def with_basis(operator, basis):
    """The same operator with V of K ≈ V Vᵀ, from which iterations begin."""
    found = copy(operator)
    found.basis = basis
    return found


def agree(problem, operator, split, ridges=RIDGES, rtol=1e-7, basis=None):
    """Compare with refits, all of which must be called exact; the results."""
    begun = operator if basis is None else with_basis(operator, basis)
    results = list(ConjugateGradient().evaluate(problem, begun, ridges, split))
    truth = list(Refit().evaluate(problem, operator, ridges, split))
    assert len(results) == len(ridges)
    for ours, theirs in zip(results, truth, strict=True):
        assert_allclose(ours.values, theirs.values, rtol=0, atol=rtol * np.abs(theirs.values).max())
        assert ours.is_exact.all()
        assert (ours.residual <= 1e-8).all()
        assert (ours.error <= 1e-6).all()
    return results


@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize(
    "fold", ["equal", "unequal", "groups", "repeated", "shuffle", "loo", "series", "odd"]
)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("intercept", [True, False])
def test_equals_refit(rank, fold, q, scaling, weight, intercept):
    problem = cases.problem(q, weight, intercept, scaling)
    bound, K = cases.operator("rbf")
    agree(problem, bound, folds(fold), basis=pivoted(K, rank) if rank else None)


@pytest.mark.parametrize("operator", cases.OPERATORS)
@pytest.mark.parametrize("intercept", [True, False])
def test_any_operator_will_do(operator, intercept):
    bound, _ = cases.operator(operator)
    agree(cases.problem(2, "zeros", intercept), bound, folds("unequal"))


@pytest.mark.parametrize("fold", ["unequal", "odd"])
def test_balanced_weights_follow_the_training_rows(fold):
    classes = Classes(np.repeat([0, 1, 2], [4, 10, 16]), balance="rows")
    problem = Problem(cases.targets(cases.features()), np.ones(30), Squared(), True, "sum", classes)
    agree(problem, cases.operator("rbf")[0], folds(fold))


# -- what it costs --------------------------------------------------------------------------------


class Counted(DenseMatrix):
    """A matrix that remembers how many columns it was multiplied with."""

    def matmat(self, B):
        self.widths = [*getattr(self, "widths", []), B.shape[1]]
        return super().matmat(B)


def smooth(n=300, gamma=0.02, noise=0.1):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    y = np.sin(X[:, :2].sum(axis=1)) + noise * rng.normal(size=n)
    problem = Problem(y[:, None], np.ones(n), Squared(), True)
    split = Folds.from_splits(KFold(5, shuffle=True, random_state=0).split(X), n)
    return problem, Counted(RBF(gamma=gamma)(X)), split


def test_one_product_an_iteration_serves_all_columns_that_still_run():
    problem, K, split = smooth()
    results = agree(problem, K, split, ridges=[0.01, 0.1, 1.0])
    slowest = max(result.iterations.max() for result in results)
    assert len(K.widths) == slowest
    assert K.widths[0] == 15
    assert sum(K.widths) == sum(result.iterations.sum() for result in results)
    assert K.widths == sorted(K.widths, reverse=True)


@pytest.mark.parametrize("weight", ["none", "random"])
def test_a_basis_saves_most_iterations_of_a_smooth_kernel(weight):
    problem, K, split = smooth()
    w = cases.weights(weight, 300)
    problem = Problem(problem.y, w, Squared(), True)
    (plain,) = agree(problem, K, split, ridges=[1e-3])
    (helped,) = agree(problem, K, split, ridges=[1e-3], basis=pivoted(K.K, 60))
    assert (10 * helped.iterations < plain.iterations).all()


def test_a_basis_does_no_harm_to_a_flat_spectrum():
    problem, K, split = smooth(gamma=3.0)
    (plain,) = agree(problem, K, split, ridges=[1e-2])
    (helped,) = agree(problem, K, split, ridges=[1e-2], basis=pivoted(K.K, 60))
    assert (helped.iterations <= plain.iterations + 2).all()


def test_the_preconditioner_is_an_inverse():
    rng = np.random.default_rng(0)
    V, s, R = rng.normal(size=(20, 4)), rng.uniform(size=(20, 2)), rng.normal(size=(20, 3))
    s[:5, 0] = s[15:, 1] = 0.0
    rest = rng.uniform(size=20)
    which, rhos = np.array([0, 1, 1]), np.array([0.5, 0.5, 2.0])
    inverse = Preconditioner.of(V, s, (V**2).sum(axis=1) + rest)
    Z = inverse.apply(R, s[:, which], which, rhos)
    for j, (k, rho) in enumerate(zip(which, rhos, strict=True)):
        level = (rest * s[:, k] ** 2).sum() / 15
        A = (s[:, [k]] * V) @ (s[:, [k]] * V).T + (level + rho) * np.eye(20)
        assert_allclose(Z[:, j], (level + rho) * np.linalg.solve(A, R[:, j]), rtol=1e-10)


@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize("columns", [1, 7, 20])
def test_little_memory_means_more_groups_and_the_same_values(columns, rank, monkeypatch):
    problem = cases.problem(3, "zeros")
    _, K = cases.operator("rbf")
    basis = pivoted(K, rank) if rank else None
    together = agree(problem, DenseMatrix(K), folds("unequal"), basis=basis)
    monkeypatch.setattr(conjugate, "MEMORY", 8.0 * conjugate._BLOCKS * 30 * columns)
    counted = with_basis(Counted(K), basis)
    apart = agree(problem, counted, folds("unequal"))
    assert max(counted.widths) <= max(3, columns)
    for one, other in zip(together, apart, strict=True):
        assert_allclose(one.values, other.values, atol=1e-7)


def test_the_estimated_condition_is_about_that_of_the_system():
    problem, K, split = smooth(gamma=0.3)
    problem = Problem(problem.y, problem.sample_weight, Squared(), False)
    for basis in (None, pivoted(K.K, 20)):
        operator = with_basis(K, basis)
        (result,) = ConjugateGradient().evaluate(problem, operator, [0.1], split)
        T = split[0].train
        truth = np.linalg.cond(K.K[np.ix_(T, T)] + 0.1 * np.eye(len(T)))
        assert 0.3 * truth < result.condition[0] < 1.5 * truth


# -- what is not exact says so --------------------------------------------------------------------


def test_columns_that_ran_out_of_iterations_are_flagged_and_others_are_not():
    problem, K, split = smooth()
    hard, easy = ConjugateGradient(max_iter=25).evaluate(problem, K, [1e-3, 30.0], split)
    assert not hard.is_exact.any()
    assert (hard.residual > 1e-8).all()
    assert (hard.iterations == 25).all()
    assert np.isfinite(hard.values).all()
    assert easy.is_exact.all()
    assert (easy.iterations < 25).all()
    (truth,) = Refit().evaluate(problem, K, [1e-3], split)
    assert np.abs(hard.values - truth.values).max() > 1e-6


def test_one_target_that_is_not_done_makes_its_fold_inexact():
    problem, K, split = smooth()
    y = np.column_stack([np.ones(300), problem.y])
    problem = Problem(y, problem.sample_weight, Squared(), True)
    (result,) = ConjugateGradient(max_iter=20).evaluate(problem, K, [1e-3], split)
    assert not result.is_exact.any()


def test_a_loose_tolerance_is_quicker_and_not_called_exact():
    problem, K, split = smooth()
    (loose,) = ConjugateGradient(tol=1e-3).evaluate(problem, K, [0.1], split)
    (tight,) = ConjugateGradient().evaluate(problem, K, [0.1], split)
    assert (loose.iterations < tight.iterations).all()
    assert not loose.is_exact.any()
    assert (loose.residual <= 1e-3).all()
    assert (loose.error <= 1e-3).all()
    error = np.abs(loose.values - tight.values).max() / np.abs(tight.values).max()
    assert 1e-8 < error < 1e-3


def test_a_small_residual_is_not_enough():
    """Where the model fits to 1e-4, a residual of 1e-8 leaves an error of 1e-4 in what remains."""
    _, K, split = smooth()
    y = K.K @ np.cos(np.arange(300))[:, None]
    problem = Problem(y, np.ones(300), Squared(), False)
    (result,) = agree(problem, K, split, ridges=[1e-3])
    assert (result.residual < 1e-9).all()
    (few,) = ConjugateGradient(max_iter=int(0.85 * result.iterations.min())).evaluate(
        problem, K, [1e-3], split
    )
    assert (few.residual <= 1e-8).any()
    assert (few.error > 1e-6).all()
    assert not few.is_exact.any()


@pytest.mark.parametrize("rank", [0, 12])
def test_what_rounding_leaves_unknown_is_not_called_exact(rank):
    problem, K, split = smooth(n=200, gamma=1e-3, noise=0.0)
    basis = pivoted(K.K, rank) if rank else None
    operator = with_basis(K, basis)
    (result,) = ConjugateGradient(max_iter=400).evaluate(problem, operator, [1e-13], split)
    assert not result.is_exact.any()
    assert np.isfinite(result.values).all()


def test_the_residual_is_measured_and_not_the_updated_one():
    """A matrix that changes after some products: the recurrence does not notice, the check does."""

    class Moving(Counted):
        def matmat(self, B):
            K_B = super().matmat(B)
            return K_B if len(self.widths) < 8 else 1.5 * K_B

    problem, K, split = smooth()
    (result,) = ConjugateGradient(max_iter=9).evaluate(problem, Moving(K.K), [10.0], split)
    assert (result.residual > 1e-4).all()
    assert not result.is_exact.any()


def test_a_residual_that_proves_wrong_begins_again():
    """One product is off: the updated residuals drift from the true ones, and are put right."""

    class Slipped(Counted):
        def matmat(self, B):
            K_B = super().matmat(B)
            return 1.1 * K_B if len(self.widths) == 4 else K_B

    problem, K, split = smooth()
    agree(problem, K, split, ridges=[1.0])
    (result,) = ConjugateGradient().evaluate(problem, Slipped(K.K), [1.0], split)
    (truth,) = Refit().evaluate(problem, K, [1.0], split)
    assert_allclose(result.values, truth.values, atol=1e-7)
    assert result.is_exact.all()


def test_a_tolerance_below_rounding_ends_where_rounding_does():
    problem, K, split = smooth()
    (result,) = ConjugateGradient(tol=1e-17).evaluate(problem, K, [1.0], split)
    assert (result.iterations < 200).all()
    assert (result.error < 1e-12).all()
    assert not result.is_exact.any()  # 1e-17 was asked for


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_stay_in_their_values(value):
    problem = cases.problem(2)
    K = cases.operator("rbf")[1].copy()
    K[3, 4] = K[4, 3] = value
    (result,) = ConjugateGradient().evaluate(problem, DenseMatrix(K), [1.0], folds("equal"))
    assert not result.is_exact.any()
    assert np.isnan(result.values).all()
    assert (result.iterations == 2).all()


# -- borders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
def test_constant_targets(weight, rank):
    bound, K = cases.operator("rbf")
    y = np.column_stack([np.full(30, 0.1), np.zeros(30), cases.targets(cases.features())])
    basis = pivoted(K, rank) if rank else None
    for intercept in (True, False):
        problem = Problem(y, cases.weights(weight), Squared(), intercept)
        for result in agree(problem, bound, folds("unequal"), basis=basis):
            assert_array_equal(result.values[:, 1], 0.0)
            if intercept:
                assert_allclose(result.values[:, 0], 0.1, rtol=1e-14)


def test_nothing_to_solve_takes_no_product():
    problem = Problem(np.full((30, 2), 7.0), np.ones(30), Squared(), True)
    K = Counted(cases.operator("rbf")[1])
    (result,) = ConjugateGradient().evaluate(problem, K, [1.0], folds("equal"))
    assert not hasattr(K, "widths")
    assert_array_equal(result.values, 7.0)
    assert (result.iterations == 0).all()
    assert result.is_exact.all()


def test_a_fold_that_trains_on_rows_without_weight_knows_nothing():
    w = np.ones(30)
    w[:15] = 0.0
    problem = Problem(cases.targets(cases.features()), w, Squared(), True, "mean")
    split = Folds.from_splits([(np.arange(15), np.arange(15, 30)), (np.arange(30), [0])], 30)
    (result,) = ConjugateGradient().evaluate(problem, cases.operator("rbf")[0], [1.0], split)
    assert_array_equal(result.values[:15], 0.0)
    assert result.values[15] != 0.0


def test_duplicate_rows():
    X = np.repeat(cases.features(15), 2, axis=0)
    problem = cases.problem(1)
    agree(problem, Dense().bind(RBF(gamma=0.3), X), folds("unequal"), ridges=[1e-4, 1.0])


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
def test_targets_of_any_size(scale):
    problem, K, split = smooth(n=60, gamma=0.3)
    (plain,) = ConjugateGradient().evaluate(problem, K, [0.1], split)
    (scaled,) = ConjugateGradient().evaluate(
        Problem(scale * problem.y, problem.sample_weight, Squared(), True), K, [0.1], split
    )
    assert_array_equal(scaled.values / scale, plain.values)
    assert scaled.is_exact.all()


def test_an_offset_of_the_targets_costs_no_digits():
    problem, K, split = smooth(n=60, gamma=0.3)
    (plain,) = ConjugateGradient().evaluate(problem, K, [0.1], split)
    (moved,) = ConjugateGradient().evaluate(
        Problem(problem.y + 1e6, problem.sample_weight, Squared(), True), K, [0.1], split
    )
    assert_allclose(moved.values - 1e6, plain.values, atol=1e-7)
    assert_allclose(moved.iterations, plain.iterations, atol=2)


def test_an_indefinite_kernel_is_refused_or_lifted():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    K = DenseMatrix((Q * np.linspace(-0.5, 3.0, 30)) @ Q.T)
    problem = cases.problem(1)
    with pytest.raises(NotPositiveDefiniteError, match="increase alpha"):
        next(ConjugateGradient().evaluate(problem, K, [0.1], folds("equal")))
    agree(problem, K, folds("equal"), ridges=[0.7])
    # The smallest eigenvalue is now 1e-3 and not the ridge, which must not bound the errors.
    every = Folds.from_splits([(np.arange(30), np.arange(30))], 30)
    (result,) = agree(cases.problem(1, intercept=False), K, every, ridges=[0.501])
    assert result.condition > 1000.0


def test_a_basis_that_is_no_approximation_costs_iterations_only():
    problem = cases.problem(1)
    bound, K = cases.operator("rbf")
    agree(problem, bound, folds("equal"), ridges=[1.0], basis=1e12 * pivoted(K, 28))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan, np.inf])
def test_a_ridge_must_be_positive(ridge):
    bound, _ = cases.operator("rbf")
    advice = r"ridge=.*increase alpha.*ClosedFormCV or Refit"
    with pytest.raises(NotPositiveDefiniteError, match=advice):
        next(ConjugateGradient().evaluate(cases.problem(), bound, [1.0, ridge], folds("equal")))


def test_what_it_cannot_do_is_refused_with_advice():
    bound, _ = cases.operator("rbf")
    y = np.sign(cases.targets(cases.features()))
    with pytest.raises(ValueError, match="use Refit"):
        next(
            ConjugateGradient().evaluate(
                Problem(y, np.ones(30), Logistic(), True), bound, [1.0], folds("equal")
            )
        )
    moving = cases.Moving()
    with pytest.raises(StructureError, match="use Refit"):
        next(ConjugateGradient().evaluate(cases.problem(), moving, [1.0], folds("equal")))


# -- a matrix that is never held ------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [RBF(gamma=0.3), Laplacian(gamma=0.3), Linear(), Polynomial(2, 0.5, 1.0)], ids=repr
)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_blockwise_is_dense(kernel, is_sparse, monkeypatch):
    monkeypatch.setattr(blockwise, "CHUNK", 7 * 30)
    X = cases.sparse_features(cases.features()) if is_sparse else cases.features()
    block, dense = Blockwise().bind(kernel, X), Dense().bind(kernel, X)
    B = np.random.default_rng(0).normal(size=(30, 4))
    assert block.n == dense.n
    assert_allclose(block.matmat(B), dense.matmat(B), rtol=1e-10, atol=1e-12)
    assert_allclose(block.diagonal(), dense.diagonal(), rtol=1e-12)


def test_blockwise_folds_equal_refits_of_the_dense_kernel(monkeypatch):
    monkeypatch.setattr(blockwise, "CHUNK", 7 * 30)
    problem = cases.problem(2, "zeros")
    block = Blockwise().bind(RBF(gamma=0.3), cases.features())
    truth = Refit().evaluate(problem, cases.operator("rbf")[0], RIDGES, folds("unequal"))
    ours = ConjugateGradient().evaluate(problem, block, RIDGES, folds("unequal"))
    for one, other in zip(ours, truth, strict=True):
        assert_allclose(one.values, other.values, atol=1e-7)
        assert one.is_exact.all()


def test_blockwise_does_not_factorise():
    block = Blockwise().bind(RBF(gamma=0.3), cases.features())
    assert require(block, SupportsMatmul) is block
    for ability in (SupportsResponse, SupportsSplit):
        with pytest.raises(StructureError, match=r"cannot be factorised; use .*ConjugateGradient"):
            require(block, ability)
    model = KernelRegressor(gamma=0.3, operator=Iterative(5, is_in_memory=False))
    with pytest.raises(StructureError, match=r"30 rows .* cannot be factorised"):
        model.fit(cases.features(), np.zeros(30))
    with pytest.raises(ValueError, match=r"precomputed.*use operator=Dense\(\)"):
        Blockwise().bind(Precomputed(), np.eye(3))
