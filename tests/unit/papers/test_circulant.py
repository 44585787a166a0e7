"""Circulant matrices: against loops over multi-indices, and against dense algebra on the result."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, StratifiedKFold

from everyfold import LSSVC, LSSVR, Circulant, cross_val_predict, cross_val_score
from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.engine.planning.squared_loss import plan_exact
from everyfold.kernels import RBF, Laplacian, Linear, Polynomial
from everyfold.linalg.symmetric import NotPositiveDefiniteError
from everyfold.losses import Logistic, Squared
from everyfold.operators import Dense, DenseMatrix, Quadratic, StructureError
from everyfold.operators.response import Response
from everyfold.papers import GCV, CirculantMatrix, CirculantWarning
from everyfold.papers.circulant import Grid, balance, nearest_factors
from everyfold.solvers import Problem, solve
from tests import reference

SHAPES = [(12,), (7,), (4, 6), (6, 5), (3, 4, 2), (2, 3, 5)]
RIDGES = [0.05, 2.0]


def definition(factors, steps, kernel):
    """Algorithm 1 as printed, entry by entry; no eigenvalue is clipped."""
    indices = list(itertools.product(*(range(n_s) for n_s in factors)))
    T = {}
    for j in indices:
        x = np.array([[j_s * h for j_s, h in zip(j, steps, strict=True)]])
        T[j] = kernel(np.zeros_like(x), x)[0, 0]
    U = {}
    for j in indices:
        D = [{0} if j_s == 0 else {j_s, n_s - j_s} for j_s, n_s in zip(j, factors, strict=True)]
        U[j] = sum(T[l] for l in itertools.product(*D))
    K = np.empty((len(indices), len(indices)))
    for row, i in enumerate(indices):
        for column, j in enumerate(indices):
            difference = ((a - b) % n_s for a, b, n_s in zip(i, j, factors, strict=True))
            K[row, column] = U[tuple(difference)]
    return K


def bound(factors, steps=0.9, kernel=None):
    """A matrix with little to clip, on rows that do not matter."""
    kernel = RBF(gamma=1.0) if kernel is None else kernel
    return Circulant(factors=factors, steps=steps).bind(kernel, np.zeros((math.prod(factors), 2)))


def dense(matrix):
    return matrix.matmat(np.eye(matrix.n))


def targets(n, q=1, seed=0):
    rng = np.random.default_rng(seed)
    smooth = np.sin(np.arange(n)[:, None] / 3.0 + np.arange(q))
    return smooth + 0.3 * rng.normal(size=(n, q)) + 2.0


def problem(n, q=1, intercept=True, scaling="sum", weight=1.0):
    return Problem(targets(n, q), np.full(n, weight), Squared(), intercept, scaling)


def k_fold(n, count):
    return Folds.from_splits(KFold(count).split(np.empty(n)), n)


def close(actual, desired, tolerance=1e-9):
    scale = max(1.0, np.abs(desired).max())
    assert_allclose(actual, desired, rtol=tolerance, atol=tolerance * scale)


class TestMatrix:
    @pytest.mark.parametrize("factors", SHAPES)
    @pytest.mark.parametrize("kernel", [RBF(gamma=0.8), Laplacian(gamma=1.5)], ids=["rbf", "lap"])
    def test_is_algorithm_one(self, factors, kernel):
        steps = (1.3, 2.1, 1.7)[: len(factors)]
        K = definition(factors, steps, kernel)
        values, vectors = np.linalg.eigh(K)
        clipped = (vectors * np.maximum(values, 0.0)) @ vectors.T
        matrix = bound(factors, steps, kernel)
        close(dense(matrix), clipped, 1e-12)
        close(matrix.eigenvalues(), np.maximum(values, 0.0), 1e-12)
        share = np.abs(values[values < 0.0]).sum() / np.abs(values).sum()
        assert matrix.clipped_share == pytest.approx(share, rel=1e-6, abs=1e-12)

    @pytest.mark.parametrize("factors", SHAPES)
    def test_parts_are_those_of_the_whole(self, factors):
        matrix = bound(factors)
        K = dense(matrix)
        rows, others = np.array([0, 5, 3, 3]), np.array([6, 1])
        close(matrix.diagonal(), K.diagonal(), 1e-12)
        close(matrix.cross(others, rows), K[np.ix_(others, rows)], 1e-12)
        close(matrix.restrict(rows).K, K[np.ix_(rows, rows)], 1e-12)
        close(matrix.evaluate(targets(matrix.n, 2)), K @ targets(matrix.n, 2), 1e-12)
        assert matrix.rank == Circulant().rank_for(matrix.n, 3) == matrix.n

    def test_scaling_the_steps_is_scaling_gamma(self):
        narrow = bound((4, 6), (2.0, 3.0), RBF(gamma=0.5))
        wide = bound((4, 6), (1.0, 1.5), RBF(gamma=2.0))
        assert_allclose(narrow.values, wide.values, rtol=1e-13)

    def test_a_wide_kernel_is_clipped_and_says_so(self):
        with pytest.warns(CirculantWarning, match=r"\d+\.\d% of the spectrum .*RBF\(gamma=0.01\)"):
            matrix = bound((6, 6), 1.0, RBF(gamma=0.01))
        assert matrix.clipped_share > 0.05
        assert matrix.eigenvalues().min() == 0.0

    def test_a_narrow_kernel_is_not(self):
        assert bound((6, 6), 3.0).clipped_share < 1e-6

    def test_no_other_kernel_factorises(self):
        for kernel in (Linear(), Polynomial(degree=2, gamma=1.0, coef0=1.0)):
            with pytest.raises(ValueError, match=r"'rbf' or 'laplacian', not .*use Dense"):
                Circulant().bind(kernel, np.zeros((4, 1)))


class TestFactorsAndSteps:
    @pytest.mark.parametrize(
        ("n", "levels", "expected"),
        [(64, 2, (8, 8)), (64, 3, (4, 4, 4)), (1300, 2, (26, 50)), (30, 1, (30,)), (6, 2, (2, 3))],
    )
    def test_balanced(self, n, levels, expected):
        assert Circulant(levels=levels)._grid(n).factors == balance(n, levels) == expected

    def test_balance_is_the_best_of_two_factors(self):
        for n in range(4, 400):
            pairs = [(d, n // d) for d in range(2, n) if n % d == 0 and d * d <= n]
            assert balance(n, 2) == (pairs[-1] if pairs else (n,))

    @pytest.mark.parametrize(("n", "levels"), [(101, 2), (26, 3)])
    def test_too_few_factors_are_said_and_all_rows_kept(self, n, levels):
        with pytest.warns(
            CirculantWarning, match=rf"n_samples={n} is not a product of {levels} numbers.*sample"
        ):
            matrix = Circulant(levels=levels, steps=2.0).bind(RBF(gamma=2.0), np.zeros((n, 1)))
        assert matrix.n == n
        assert matrix.grid.levels == levels - 1

    def test_a_prime_number_of_rows_still_leaves_one_out(self):
        with pytest.warns(CirculantWarning, match="101"):
            matrix = Circulant(steps=1.0).bind(RBF(gamma=1.0), np.zeros((101, 1)))
        folds = Folds.leave_one_out(101)
        (result,) = ClosedFormCV().evaluate(problem(101), matrix, [0.1], folds)
        y = problem(101).y
        close(result.values, reference.held_out(dense(matrix), y, np.ones(101), 0.1, True, folds))

    @pytest.mark.parametrize(
        ("n", "folds", "kept"), [(1009, None, 1008), (1009, 8, 1008), (47, 5, 45)]
    )
    def test_a_sub_sample_factorises(self, n, folds, kept):
        rows, factors = Circulant().sample(n, n_folds=folds)
        assert len(rows) == math.prod(factors) == kept
        assert (np.diff(rows) > 0).all()
        assert rows.min() >= 0
        assert rows.max() < n
        assert folds is None or factors[0] == folds
        assert_array_equal(rows, Circulant().sample(n, n_folds=folds)[0])
        other = Circulant().sample(n, n_folds=folds, random_state=3)[0]
        assert not np.array_equal(rows, other)

    def test_a_sub_sample_is_the_nearest_balanced_one(self):
        for n in range(20, 200):
            factors = nearest_factors(n, 2)
            kept = math.prod(factors)
            assert factors == balance(kept, 2)
            for skipped in range(kept + 1, n + 1):
                pair = balance(skipped, 2)
                assert len(pair) < 2 or pair[1] > 4 * pair[0]

    def test_too_few_rows_for_a_sub_sample(self):
        with pytest.raises(ValueError, match="too small for 3 levels"):
            Circulant(levels=3).sample(7)

    def test_steps_are_measured_on_neighbours(self):
        axes = np.arange(6) * 0.5, np.arange(4) * 3.0
        X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(24, 2)
        for kernel in (RBF(gamma=9.0), Laplacian(gamma=9.0)):
            assert Circulant(factors=(6, 4)).bind(kernel, X).steps == (0.5, 3.0)
            assert Circulant(factors=(6, 4)).bind(kernel, csr_matrix(X)).steps == (0.5, 3.0)

    def test_the_metric_of_a_step_is_the_kernels(self):
        X = np.outer(np.arange(8.0), [3.0, 4.0])
        assert Circulant(levels=1).bind(RBF(gamma=1.0), X).steps == (5.0,)
        assert Circulant(levels=1).bind(Laplacian(gamma=1.0), X).steps == (7.0,)

    def test_steps_of_equal_rows_are_still_positive(self):
        half = np.repeat([0.0, 8.0], 4)[:, None]
        assert Circulant(levels=1).bind(RBF(gamma=1.0), half).steps == (8.0 / 7.0,)
        assert Circulant(factors=(1, 8)).bind(RBF(gamma=2.0), np.ones((8, 1))).steps == (1.0, 1.0)

    @pytest.mark.parametrize("steps", ["auto", 1.0])
    def test_rows_in_no_order_are_warned_of_and_arranged_ones_are_not(self, steps):
        X = np.random.default_rng(0).normal(size=(400, 3))
        structure = Circulant(steps=steps)
        with pytest.warns(CirculantWarning, match=r"as far apart as any.*arrange\(X\)"):
            structure.bind(RBF(gamma=5.0), X)
        structure.bind(RBF(gamma=5.0), X[structure.arrange(X)])

    def test_arranging_recovers_a_grid(self):
        axes = np.arange(6) * 3.0, np.arange(4) * 1.0
        X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(24, 2) + 100.0
        order = np.random.default_rng(0).permutation(24)
        structure = Circulant(factors=(6, 4))
        for rows in (X[order], csr_matrix(X[order])):
            arranged = rows[structure.arrange(rows)]
            arranged = arranged if isinstance(arranged, np.ndarray) else arranged.toarray()
            assert_array_equal(arranged, X)

    def test_arranging_is_a_permutation_for_any_number_of_features(self):
        for d in (1, 2, 5):
            X = np.random.default_rng(d).normal(size=(60, d))
            for levels in (1, 2, 3):
                rows = Circulant(levels=levels).arrange(X)
                assert_array_equal(np.sort(rows), np.arange(60))
        assert_array_equal(X[Circulant(levels=1).arrange(X[:, :1])][:, 0], np.sort(X[:, 0]))

    def test_one_step_serves_all_levels(self):
        assert bound((4, 6), 2).steps == (2.0, 2.0)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"levels": 0},
            {"factors": ()},
            {"factors": (2, 0)},
            {"factors": (2.0, 4.0)},
            {"factors": "all"},
            {"steps": 0.0},
            {"steps": (1.0, -1.0)},
            {"steps": (1.0, math.nan)},
            {"steps": ()},
            {"steps": "wide"},
        ],
    )
    def test_what_is_no_number_of_levels_factors_or_steps(self, wrong):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.* is not allowed; use"):
            Circulant(**wrong)

    def test_numbers_must_fit_the_rows(self):
        with pytest.raises(ValueError, match=r"product 20, but there are n_samples=24.*\(4, 6\)"):
            Circulant(factors=(4, 5)).bind(RBF(gamma=1.0), np.zeros((24, 1)))
        with pytest.raises(ValueError, match=r"are 3 numbers, .*\(4, 6\) make 2 levels"):
            Circulant(factors=(4, 6), steps=(1.0, 1.0, 1.0)).bind(RBF(1.0), np.zeros((24, 1)))


class TestResponse:
    @pytest.fixture(params=[(24,), (4, 6), (3, 4, 2)], ids=str)
    def matrix(self, request):
        return bound(request.param)

    @pytest.fixture(params=[True, False], ids=["intercept", "none"])
    def intercept(self, request):
        return request.param

    @pytest.fixture(params=[1.0, 2.5])
    def pair(self, request, matrix, intercept):
        """The response, and that of the dense matrix."""
        quadratic = Quadratic(np.full(24, math.sqrt(request.param)), targets(24, 3), intercept)
        twin = DenseMatrix(dense(matrix))
        return matrix.respond(quadratic, 0.3), twin.respond(quadratic, 0.3)

    def test_equals_the_dense_one(self, pair):
        response, twin = pair
        rows = np.array([[3, 1, 9], [0, 20, 23]])
        B = targets(24, 2, seed=4)
        close(response.matmat(B), twin.matmat(B))
        close(response.diagonal(), twin.diagonal())
        close(response.trace(), twin.trace())
        close(response.block(rows[0], rows[1, :2]), twin.block(rows[0], rows[1, :2]))
        close(response.reduced(), twin.reduced())
        close(response.residual_diagonal(), twin.residual_diagonal())
        close(response.residual_blocks(rows), twin.residual_blocks(rows))
        close(response.solution().coef, twin.solution().coef)
        close(response.solution().intercept, twin.solution().intercept)
        assert response.scale == twin.scale == response.rho == 0.3
        assert twin.condition / 5 < response.condition < 5 * twin.condition

    def test_sums_without_transforms_equal_the_generic_ones(self, pair, monkeypatch):
        response, twin = pair
        rows = np.arange(24)
        norm, trace = Response.reduced_norm(twin), Response.residual_trace(twin, rows)
        response.reduced_norm()  # transforms the targets, once for all ridges
        monkeypatch.setattr(Grid, "transform", None)
        monkeypatch.setattr(Grid, "invert", None)
        close(response.reduced_norm(), norm)
        close(response.residual_trace(rows), trace)
        close(response.residual_trace(rows[:5]), trace * 5 / 24)

    def test_blocks_are_left_out_as_by_the_dense_one(self, pair, matrix):
        response, twin = pair
        for count in matrix.grid.fold_counts:
            rows = np.arange(24).reshape(count, -1)[::-1]  # any order of the sets
            B = targets(24, 3)[rows]
            close(response.solve_residual_blocks(rows, B), twin.solve_residual_blocks(rows, B))
            close(response.hat_series(rows, B, 3), twin.hat_series(rows, B, 3))
            close(response.radius(rows), twin.radius(rows))
            close(
                response.solve_residual_blocks(rows[:1], B[:1]),
                twin.solve_residual_blocks(rows[:1], B[:1]),
            )

    def test_a_ridge_of_zero_needs_a_positive_spectrum(self):
        quadratic = Quadratic(np.ones(24), targets(24), False)
        close(bound((4, 6), 3.0).respond(quadratic, 0.0).reduced(), targets(24), 1e-3)
        with pytest.warns(CirculantWarning):
            singular = bound((4, 6), 0.3)
        with pytest.raises(NotPositiveDefiniteError, match="ridge"):
            singular.respond(quadratic, 0.0)

    @pytest.mark.parametrize("s", [np.r_[np.ones(23), 2.0], np.r_[np.ones(23), 0.0], np.zeros(24)])
    def test_weights_are_refused_before_work(self, matrix, s):
        with pytest.raises(ValueError, match="make rows differ; use squared loss without"):
            matrix.respond_path(Quadratic(s, targets(24), True), [1.0], "eigen")
        with pytest.raises(StructureError, match="make rows differ"):
            matrix.check(s**2, ())

    def test_other_losses_are_refused_before_work(self):
        task = Problem(np.sign(targets(24) - 2.0), np.ones(24), Logistic(), True)
        with pytest.raises(
            ValueError, match=r"Logistic.*not possible with a circulant matrix.*loss='squared'"
        ):
            solve(task, bound((4, 6)), 1.0)


class TestFolds:
    @pytest.mark.parametrize("factors", [(24,), (4, 6), (5, 4), (3, 2, 4), (2, 3, 5)], ids=str)
    @pytest.mark.parametrize("intercept", [True, False])
    @pytest.mark.parametrize("scaling", ["sum", "mean"])
    @pytest.mark.parametrize("q", [1, 3])
    @pytest.mark.parametrize("weight", [1.0, 0.4])
    def test_every_aligned_number_of_folds_equals_refits(
        self, factors, intercept, scaling, q, weight
    ):
        matrix = bound(factors)
        n, K = matrix.n, dense(matrix)
        task = problem(n, q, intercept, scaling, weight)
        assert matrix.grid.fold_counts == tuple(np.cumprod(factors))
        for count in matrix.grid.fold_counts:
            folds = k_fold(n, count)
            results = list(ClosedFormCV().evaluate(task, matrix, RIDGES, folds))
            twins = ClosedFormCV().evaluate(task, DenseMatrix(K), RIDGES, folds)
            for ridge, result, twin in zip(RIDGES, results, twins, strict=True):
                truth = reference.held_out(K, task.y, task.w, ridge, intercept, folds, scaling)
                close(result.values, truth)
                close(result.values, twin.values)
                assert result.is_exact.all()

    @pytest.mark.parametrize("scaling", ["sum", "mean"])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_finite_orders(self, scaling, intercept):
        matrix = bound((4, 6))
        task = problem(24, 2, intercept, scaling)
        for count in (4, 24):
            folds = k_fold(24, count)
            (result,) = ClosedFormCV(order=3).evaluate(task, matrix, [0.2], folds)
            truth = reference.series(
                dense(matrix), task.y, task.w, 0.2, intercept, folds, 3, scaling
            )
            close(result.values, truth)

    def test_refitting_agrees(self):
        matrix, folds = bound((4, 6)), k_fold(24, 4)
        (fast,) = ClosedFormCV().evaluate(problem(24, 2), matrix, [0.2], folds)
        (slow,) = Refit().evaluate(problem(24, 2), matrix, [0.2], folds)
        close(fast.values, slow.values)

    def test_some_of_the_blocks_are_folds_too(self):
        matrix = bound((4, 6))
        folds = k_fold(24, 4).subset([2, 0])
        (result,) = ClosedFormCV().evaluate(problem(24), matrix, [0.2], folds)
        y = problem(24).y
        close(result.values, reference.held_out(dense(matrix), y, np.ones(24), 0.2, True, folds))

    @pytest.mark.parametrize("intercept", [True, False])
    def test_gcv_is_leave_one_out(self, intercept):
        matrix, task = bound((4, 6)), problem(24, 3, intercept)
        folds = Folds.leave_one_out(24)
        values = GCV().evaluate(task, matrix, RIDGES)
        twins = GCV().evaluate(task, DenseMatrix(dense(matrix)), RIDGES)
        results = ClosedFormCV().evaluate(task, matrix, RIDGES, folds)
        for value, twin, result in zip(values, twins, results, strict=True):
            close(value, twin)
            close(value, ((task.y - result.values) ** 2).mean(axis=0))

    @pytest.mark.parametrize(
        ("splitter", "advice"),
        [
            (KFold(6), r"4 or 24 in number.*n_splits=4\).*factors=\(6, 4\).*n_splits=6\)"),
            (KFold(4, shuffle=True, random_state=0), r"consecutive rows.*n_splits=4\) without shu"),
            (KFold(5), r"for 5 folds drop rows: Circulant\(\).sample\(24, n_folds=5\)"),
            (KFold(2), r"Circulant\(factors=\(2, 12\)\) it is cv=KFold\(n_splits=2\)$"),
        ],
    )
    def test_other_folds_are_refused_with_the_nearest_that_are_not(self, splitter, advice):
        folds = Folds.from_splits(splitter.split(np.empty(24)), 24)
        matrix = bound((4, 6))
        with pytest.raises(ValueError, match=advice):
            next(ClosedFormCV().evaluate(problem(24), matrix, [1.0], folds))
        with pytest.raises(ValueError, match=advice):  # the planner does so before any work
            plan_exact(problem(24), matrix, 1, folds)

    def test_blocks_at_the_wrong_place_are_no_blocks(self):
        rows = np.arange(24)
        splits = [(np.r_[rows[:3], rows[9:]], rows[3:9])]
        with pytest.raises(ValueError, match="does not align"):
            bound((4, 6)).check(problem(24).w, Folds.from_splits(splits, 24).helds)

    def test_folds_that_do_not_just_remove_rows_are_refused(self):
        rows = np.arange(24)
        folds = Folds.from_splits([(np.r_[rows[6:], 6], rows[:6])], 24)
        with pytest.raises(ValueError, match=r"split 0 does not just remove rows.*operator='auto'"):
            plan_exact(problem(24), bound((4, 6)), 1, folds)

    def test_the_advice_works(self):
        for wanted, factors in ((6, (6, 4)), (2, (2, 12))):
            bound(factors).check(problem(24).w, k_fold(24, wanted).helds)
        rows, factors = Circulant().sample(24, n_folds=5)
        bound(factors).check(problem(20).w, k_fold(len(rows), 5).helds)

    def test_the_plan_is_fourier_and_says_what_is_exact(self):
        plan = plan_exact(problem(24), bound((4, 6)), 3, k_fold(24, 4))
        assert plan.method == "fourier"
        assert "exact for the circulant matrix, which approximates" in plan.words


class TestComplexity:
    N = 2**16

    def peak(self, work):
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / (8 * self.N)

    def test_no_array_is_larger_than_the_data(self):
        X = np.zeros((self.N, 1))
        task = problem(self.N)
        folds = {count: k_fold(self.N, count) for count in (16, 256)}
        for f in folds.values():
            _ = f.sizes, f.bounds, f.pick
        rows = np.arange(self.N)[:, None]

        def bind():
            return Circulant(factors=(16, 16, 256), steps=1.0).bind(RBF(gamma=2.0), X)

        matrix = bind()
        assert self.peak(bind) < 4
        for f in folds.values():
            assert (
                self.peak(lambda f=f: list(ClosedFormCV().evaluate(task, matrix, RIDGES, f))) < 16
            )
        response = matrix.respond(task.quadratic, 1.0)
        assert self.peak(lambda: response.solve_residual_blocks(rows, response.reduced()[rows])) < 8
        assert self.peak(lambda: list(GCV().evaluate(task, matrix, RIDGES))) < 8
        assert self.peak(lambda: solve(task, matrix, 1.0)) < 8

    def test_one_transform_of_the_targets_serves_all_ridges(self, monkeypatch):
        calls = []
        transform = Grid.transform
        monkeypatch.setattr(
            Grid, "transform", lambda grid, B: calls.append(B.size) or transform(grid, B)
        )
        matrix, task = bound((4, 6)), problem(24, 3)
        list(GCV().evaluate(task, matrix, RIDGES * 4))
        assert calls == [3 * 24]
        calls.clear()
        list(ClosedFormCV().evaluate(task, matrix, RIDGES * 4, Folds.leave_one_out(24)))
        assert calls == [3 * 24]

    def test_the_spectrum_takes_no_transform_of_n_points(self, monkeypatch):
        monkeypatch.setattr(Grid, "transform", None)
        monkeypatch.setattr(Grid, "invert", None)
        assert bound((8, 8)).eigenvalues().size == 64


class TestEstimators:
    @pytest.fixture
    def data(self):
        axes = np.arange(8.0), np.arange(6.0)
        X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(48, 2)
        return X, np.sin(X[:, 0] / 2) + np.cos(X[:, 1])

    def test_scores_are_those_of_the_circulant_model(self, data):
        X, y = data
        model = LSSVR(operator=Circulant(factors=(8, 6)), gamma=1.0, alpha=0.3)
        K = dense(Circulant(factors=(8, 6)).bind(RBF(gamma=1.0), X))
        folds = k_fold(48, 8)
        truth = reference.held_out(K, y[:, None], np.ones(48), 0.3, True, folds)
        close(cross_val_predict(model, X, y, cv=KFold(8)), truth[:, 0])
        scores = cross_val_score(model, X, y, cv=KFold(8), scoring="neg_mean_squared_error")
        close(scores, [-((y[f] - truth[f, 0]) ** 2).mean() for f in np.arange(48).reshape(8, 6)])
        loo = reference.held_out(K, y[:, None], np.ones(48), 0.3, True, Folds.leave_one_out(48))
        close(cross_val_predict(model, X, y, cv=LeaveOneOut()), loo[:, 0])

    def test_classification(self, data):
        X, y = data
        labels = np.where(y > 0, "high", "low")
        model = LSSVC(operator=Circulant(factors=(8, 6)), gamma=1.0, alpha=0.3)
        K = dense(Circulant(factors=(8, 6)).bind(RBF(gamma=1.0), X))
        sign = np.where(y > 0, -1.0, 1.0)[:, None]  # "low" is the second label
        truth = reference.held_out(K, sign, np.ones(48), 0.3, True, k_fold(48, 8))[:, 0]
        predicted = cross_val_predict(model, X, labels, cv=KFold(8))
        assert_array_equal(predicted, np.where(truth > 0, "low", "high"))
        decided = cross_val_predict(model, X, labels, cv=KFold(8), method="decision_function")
        close(decided, truth)
        with pytest.raises(ValueError, match="consecutive rows"):
            cross_val_predict(model, X, labels, cv=StratifiedKFold(4))

    @pytest.mark.parametrize("weight", [{"a": 2.0}, "balanced"])
    def test_class_weights_are_refused(self, data, weight):
        X, y = data
        labels = np.where(y > 0.5, "a", "b")
        model = LSSVC(operator=Circulant(factors=(8, 6)), gamma=1.0, class_weight=weight)
        with pytest.raises(ValueError, match=r"class_weight.*; use"):
            cross_val_predict(model, X, labels, cv=KFold(8))

    @pytest.mark.filterwarnings("ignore::everyfold.papers.CirculantWarning")
    def test_a_gamma_of_the_training_rows_is_refused(self, data):
        model = LSSVR(operator=Circulant(steps=3.0), gamma="scale")
        with pytest.raises(ValueError, match="gamma that is a number, not 'scale'"):
            cross_val_predict(model, *data, cv=KFold(8))

    def test_fit_is_the_exact_model(self, data):
        X, y = data
        exact = LSSVR(operator="dense", gamma=0.4, alpha=0.1).fit(X, y)
        model = LSSVR(operator=Circulant(), gamma=0.4, alpha=0.1).fit(X, y)
        assert_allclose(model.predict(X + 0.5), exact.predict(X + 0.5), rtol=1e-12)
        nested = Circulant(refit=Circulant(refit=Dense()))
        model = LSSVR(operator=nested, gamma=0.4, alpha=0.1).fit(X[:47], y[:47])  # prime: no matter
        exact.fit(X[:47], y[:47])
        assert_allclose(model.predict(X), exact.predict(X), rtol=1e-12)

    def test_fit_without_a_refit_is_refused(self, data):
        model = LSSVR(operator=Circulant(refit=None))
        with pytest.raises(ValueError, match=r"knows nothing about new ones.*refit=Dense\(\)"):
            model.fit(*data)
        with pytest.raises(ValueError, match="cannot predict"):
            bound((4, 6)).expand(np.zeros((24, 1)))

    def test_an_exact_fit_that_does_not_fit_in_memory_is_not_started(self, data, monkeypatch):
        monkeypatch.setattr("everyfold.linalg.memory.TRIFLE", 0)
        monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 1000)
        with pytest.raises(MemoryError, match="n_samples=48"):
            LSSVR(operator=Circulant()).fit(*data)

    def test_parameters_are_scikit_learns(self, data):
        model = LSSVR(operator=Circulant(steps=(1.0, 2.0)))
        twin = clone(model)
        assert twin.operator == model.operator
        assert model.get_params()["operator__steps"] == (1.0, 2.0)
        shared = model.operator
        model.set_params(operator__steps=3.0, alpha=0.5)
        assert model.operator == Circulant(steps=3.0)
        assert shared == twin.operator == Circulant(steps=(1.0, 2.0))
        model.set_params(operator=Circulant(levels=3), operator__steps=4.0)
        assert model.operator == Circulant(levels=3, steps=4.0)
        with pytest.raises(
            ValueError, match=r"no parameters \['step'\]; use \['factors', 'levels'"
        ):
            model.set_params(operator__step=3.0)
        with pytest.raises(ValueError, match=r"operator='auto' has no parameters \['steps'\]"):
            LSSVR().set_params(operator__steps=3.0)

    def test_steps_and_factors_are_hyper_parameters_of_a_search(self, data):
        X, y = data
        grid = {"operator__steps": [1.0, (2.0, 3.0)], "operator__factors": [(8, 6), (4, 12)]}
        search = GridSearchCV(
            LSSVR(operator=Circulant(), gamma=1.0), grid, cv=4, error_score="raise"
        )
        search.fit(X, y)
        assert {candidate["operator__steps"] for candidate in search.cv_results_["params"]} == {
            1.0,
            (2.0, 3.0),
        }
        assert isinstance(search.best_estimator_.operator, Circulant)

    def test_candidates_cover_the_default_ranges(self):
        candidates = Circulant.candidates(levels=(1, 2, 3), refit=None)
        assert len(set(candidates)) == 3 * (1 + len(Circulant.RANGE))
        assert {c.levels for c in candidates} == {1, 2, 3}
        assert {c.steps for c in candidates} == {"auto", *Circulant.RANGE}
        assert all(isinstance(c._grid(60), Grid) and c.refit is None for c in candidates)


def test_a_circulant_of_a_grid_is_close_to_the_exact_kernel():
    """Where rows lie on a grid and the kernel is narrow, only the edges differ."""
    X = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0), indexing="ij"), -1).reshape(144, 2)
    matrix = Circulant().bind(RBF(gamma=1.5), X)
    assert isinstance(matrix, CirculantMatrix)
    K = RBF(gamma=1.5)(X)
    inner = np.flatnonzero(((X > 2) & (X < 9)).all(axis=1))
    assert_allclose(matrix.cross(inner, np.arange(144)), K[inner], atol=1e-5)


def test_a_search_does_not_call_folds_of_another_matrix_exact():
    from everyfold import FastGridSearchCV

    X = np.linspace(0.0, 1.0, 64)[:, None]
    y = np.sin(7.0 * X[:, 0])
    model = LSSVR(operator=Circulant(factors=(8, 8), steps=(2.0, 2.0)), gamma=1.0)
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=KFold(8)).fit(X, y)
    assert not search.cv_results_["is_exact"].any()
    assert np.isnan(search.cv_results_["confirmed_test_score"]).all()
