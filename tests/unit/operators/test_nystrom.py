"""Low-rank kernels: landmarks, the response of V Vᵀ, folds by subtraction, bounds."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler

import everyfold
from everyfold import FastGridSearchCV, KernelRegressor, Nystrom
from everyfold.crossval import ClosedFormCV, GramCV
from everyfold.engine.planning.squared_loss import plan_exact
from everyfold.kernels import RBF, Linear
from everyfold.losses import (
    HuberHinge,
    Logistic,
    QuadraticEpsilon,
    SmoothEpsilon,
    Squared,
    SquaredHinge,
)
from everyfold.operators import DenseMatrix, LowRank, Quadratic, StructureError
from everyfold.operators.landmarks import rp_cholesky, uniform
from everyfold.papers import expected_residual, model_error_bound
from everyfold.solvers import Problem, solve
from tests import cases, reference

LOSSES = (Squared(), QuadraticEpsilon(0.1), SmoothEpsilon(0.1, 0.05), HuberHinge(0.3))
LOSSES += (SquaredHinge(), Logistic())


def bound(n=40, c=6, seed=0, gamma=0.4):
    X = cases.features(n, 3, seed)
    operator = Nystrom(c, random_state=seed).bind(RBF(gamma), X)
    return X, operator, DenseMatrix(operator.V @ operator.V.T)


def labels(X, loss):
    y = cases.targets(X)
    return np.sign(y - np.median(y)) if loss.is_margin else y


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
class TestResponse:
    def responses(self, loss, intercept, rho=0.3):
        X, low, dense = bound()
        y, u = labels(X, loss), 0.6 * cases.targets(X, seed=3) - 0.5
        D = cases.weights("random", 40) * loss.curvature(y, u)[:, 0]
        assert (D > 0.0).any()
        quadratic = Quadratic(np.sqrt(0.5 * D), u, intercept, 0.7 if intercept else 0.0)
        return low.respond(quadratic, rho), dense.respond(quadratic, rho), low, dense

    def test_equals_that_of_the_matrix(self, loss, intercept):
        a, b, low, dense = self.responses(loss, intercept)
        B = np.random.default_rng(0).normal(size=(40, 3))
        np.testing.assert_allclose(a.matmat(B), b.matmat(B), atol=1e-9)
        np.testing.assert_allclose(a.diagonal(), b.diagonal(), atol=1e-9)
        rows = np.arange(5, 25)
        np.testing.assert_allclose(a.block(rows, rows), b.block(rows, rows), atol=1e-9)
        values = [
            operator.evaluate(response.solution().coef) + response.solution().intercept
            for response, operator in ((a, low), (b, dense))
        ]
        np.testing.assert_allclose(*values, atol=1e-8)

    def test_sets_larger_than_the_rank_are_released_alike(self, loss, intercept):
        a, b, _, _ = self.responses(loss, intercept)
        rows, g = np.arange(3, 23), np.random.default_rng(1).normal(size=40)
        np.testing.assert_allclose(a.removal_forces(rows, g), b.removal_forces(rows, g), atol=1e-8)
        active = np.flatnonzero(a.curvature > 0.0)
        sets = active[: 2 * (len(active) // 2)].reshape(2, -1)
        B = np.random.default_rng(2).normal(size=(*sets.shape, 2))
        np.testing.assert_allclose(
            a.solve_residual_blocks(sets, B), b.solve_residual_blocks(sets, B) / b.scale, atol=1e-7
        )

    def test_fits_equal_those_of_the_matrix(self, loss, intercept):
        X, low, dense = bound()
        problem = Problem(labels(X, loss), cases.weights("random", 40), loss, intercept)
        u = []
        for operator in (low, dense):
            fit = solve(problem, operator, 0.2)
            assert fit.is_converged
            u.append(operator.evaluate(fit.solution.coef) + fit.solution.intercept)
        np.testing.assert_allclose(*u, atol=1e-7)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1e2, 1e5, 1e7])
def test_small_ridges_converge(C, intercept):
    """Rows at their bound have dual coefficients of size C, which must not cancel in f."""
    X, low, _ = bound(n=120, c=12)
    loss = HuberHinge(0.05)
    problem = Problem(labels(X, loss), np.ones(120), loss, intercept)
    fit = solve(problem, low, 0.5 / C)
    assert fit.is_converged
    u = low.evaluate(fit.solution.coef) + fit.solution.intercept
    g = loss.slope(problem.y, u)
    forces = low.V.T @ g + fit.solution.coef / C
    assert np.abs(forces).max() <= 1e-8 * np.abs(low.V.T @ problem.y).max()
    if intercept:
        assert abs(g.sum()) <= 1e-8 * 120


class TestFolds:
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("weight", cases.WEIGHTS)
    @pytest.mark.parametrize("scaling", ["sum", "mean"])
    @pytest.mark.parametrize("name", cases.FOLDS)
    @pytest.mark.parametrize("ridges", [[0.05], [1e-3, 0.05, 0.3, 2.0, 9.0]], ids=len)
    def test_equal_refits_with_the_same_landmarks(self, intercept, weight, scaling, name, ridges):
        operator, K = cases.operator("nystrom")
        problem = cases.problem(3, weight, intercept, scaling)
        folds = cases.folds(name)
        found = list(GramCV().evaluate(problem, operator, ridges, folds))
        for ridge, result in zip(ridges, found, strict=True):
            expected = reference.held_out(K, problem.y, problem.w, ridge, intercept, folds, scaling)
            np.testing.assert_allclose(result.values, expected, rtol=1e-8, atol=1e-8)
            assert result.is_exact.all()

    def test_features_far_from_the_origin_lose_no_digits(self):
        V = cases.features() + 1e5
        problem = cases.problem(1)
        folds = cases.folds("equal")
        (found,) = GramCV().evaluate(problem, LowRank(V), [1e-2], folds)
        (near,) = GramCV().evaluate(problem, LowRank(V - 1e5), [1e-2], folds)
        np.testing.assert_allclose(found.values, near.values, rtol=1e-7)

    def test_planner_takes_sums_for_few_folds_and_blocks_for_single_rows(self):
        V = np.random.default_rng(0).normal(size=(2000, 50))
        problem = Problem(np.zeros((2000, 1)), np.ones(2000), Squared(), intercept=True)
        folds = everyfold.crossval.Folds
        ten = folds.from_splits(KFold(10).split(V), 2000)
        assert plan_exact(problem, LowRank(V), 16, ten).method == "moments"
        assert plan_exact(problem, LowRank(V), 16, folds.leave_one_out(2000)).method == "eigen"

    def test_dense_kernels_have_no_sums(self):
        operator, _ = cases.operator("rbf")
        with pytest.raises(StructureError, match="low rank"):
            next(GramCV().evaluate(cases.problem(), operator, [1.0], cases.folds("equal")))

    def test_one_step_equals_that_of_the_matrix(self):
        X, low, dense = bound()
        loss = HuberHinge(0.3)
        problem = Problem(labels(X, loss), np.ones(40), loss, intercept=True)
        folds = everyfold.crossval.Folds.from_splits(KFold(3).split(X), 40)
        values = [
            next(ClosedFormCV().evaluate(problem, operator, [0.2], folds)).values
            for operator in (low, dense)
        ]
        np.testing.assert_allclose(*values, atol=1e-6)


class TestPapers:
    def test_algorithm_1_by_hand(self):
        X = cases.features(30, 2, 4)
        y = np.sign(X[:, 0] + 0.3)
        mu, c, k = 0.7, 10, 5
        rows = uniform(30, c, np.random.RandomState(3))
        K = RBF(0.5)(X)
        C, W = K[:, rows], K[np.ix_(rows, rows)]
        values, U = np.linalg.eigh(W)
        V = C @ U[:, -k:] @ np.diag(values[-k:] ** -0.5)
        z = np.column_stack([np.ones(30), y])
        t = np.linalg.solve(mu * np.eye(k) + V.T @ V, V.T @ z)
        r, v = ((z - V @ t) / mu).T
        b = v.sum() / r.sum()
        a = v - r * b
        structure = Nystrom(c, k, sampling="uniform", random_state=3)
        model = everyfold.LSSVC(gamma=0.5, alpha=mu, operator=structure).fit(X, y)
        assert model.intercept_[0] == pytest.approx(b, rel=1e-9)
        np.testing.assert_allclose(model.decision_function(X), V @ V.T @ a + b, rtol=1e-9)

    def test_shares_are_those_of_the_paper(self):
        operator = Nystrom(0.1, 0.5, sampling="uniform", random_state=0).bind(
            RBF(0.5), cases.features(200)
        )
        assert (operator.quality.landmarks, operator.quality.rank) == (20, 10)

    @pytest.mark.parametrize("seed", range(50))
    def test_error_bounds_hold(self, seed):
        rng = np.random.default_rng(seed)
        n, c = int(rng.integers(20, 60)), int(rng.integers(3, 15))
        X = rng.normal(size=(n, 2))
        y = np.sign(rng.normal(size=n))
        mu, kernel = 10.0 ** rng.uniform(-1, 1), RBF(10.0 ** rng.uniform(-1.5, 0.5))
        operator = Nystrom(c, sampling="uniform", random_state=seed).bind(kernel, X)
        K, low = kernel(X), operator.V @ operator.V.T
        gap = np.linalg.norm(K - low, 2)
        assert operator.residual_norm(X, 200) == pytest.approx(gap, rel=1e-2)
        assert gap <= operator.residual_trace * (1 + 1e-9)
        a = np.linalg.solve(K + mu * np.eye(n), y)
        a_low = np.linalg.solve(low + mu * np.eye(n), y)
        new = kernel(rng.normal(size=(20, 2)), X)
        difference = np.abs(new @ (a_low - a)).max()
        assert difference <= model_error_bound(gap, n, mu)
        tail = np.linalg.norm(np.linalg.eigvalsh(K)[:-c])
        assert gap <= expected_residual(K.diagonal(), tail, c, rank=c)


class TestLandmarks:
    def test_pivots_beat_uniform_rows_on_clusters(self):
        rng = np.random.default_rng(0)
        many = rng.normal(size=(900, 3))
        few, _ = make_blobs(100, 3, centers=10, center_box=(-30, 30), random_state=0)
        X = np.concatenate([many, few])
        traces = {
            sampling: np.mean(
                [
                    Nystrom(40, sampling=sampling, random_state=k).bind(RBF(0.05), X).residual_trace
                    for k in range(5)
                ]
            )
            for sampling in ("uniform", "rpcholesky", "kmeans")
        }
        assert traces["rpcholesky"] < 0.5 * traces["uniform"]

    def test_stops_at_the_residual_trace(self):
        X = cases.features(300)
        operator = Nystrom(250, tol=1e-2, random_state=0).bind(RBF(0.2), X)
        assert operator.quality.relative <= 1e-2
        assert operator.rank < 150
        finer = Nystrom(250, tol=1e-4, random_state=0).bind(RBF(0.2), X)
        assert finer.rank > operator.rank

    def test_partial_factor_is_exact_on_its_pivots(self):
        X = cases.features(80)
        found = rp_cholesky(RBF(0.3), X, 30, 0.0, np.random.RandomState(0))
        K = RBF(0.3)(X)
        residual = K - found.F @ found.F.T
        assert np.abs(residual[found.rows]).max() < 1e-10
        np.testing.assert_allclose(found.residual, residual.diagonal(), atol=1e-10)
        assert len(set(found.rows.tolist())) == len(found.rows) == 30

    @pytest.mark.parametrize("ridges", [[1.0], list(range(1, 12))], ids=len)
    def test_a_kernel_of_zeros_leaves_the_mean(self, ridges):
        X, y = np.zeros((20, 2)), np.arange(20.0)
        operator = Nystrom(5, random_state=0).bind(Linear(), X)
        assert operator.V.shape == (20, 0)
        problem = Problem(y[:, None], np.ones(20), Squared(), intercept=True)
        folds = everyfold.crossval.Folds.from_splits(KFold(4).split(X), 20)
        for found in GramCV().evaluate(problem, operator, ridges, folds):
            expected = [np.full(5, np.delete(y, fold.test).mean()) for fold in folds]
            np.testing.assert_allclose(found.values[:, 0], np.concatenate(expected))

    @pytest.mark.parametrize("sampling", ["uniform", "rpcholesky", "kmeans"])
    def test_duplicate_rows_and_rank_deficient_kernels(self, sampling):
        X = np.repeat(cases.features(5), 20, axis=0)
        operator = Nystrom(50, sampling=sampling, random_state=0).bind(RBF(0.3), X)
        K = RBF(0.3)(X)
        assert operator.V.shape[1] <= 50
        np.testing.assert_allclose(operator.V @ operator.V.T, K, atol=1e-6)
        linear = Nystrom(20, sampling=sampling, random_state=0).bind(Linear(), X)
        np.testing.assert_allclose(linear.V @ linear.V.T, X @ X.T, atol=1e-6)

    @pytest.mark.parametrize("sampling", ["uniform", "rpcholesky", "kmeans"])
    @pytest.mark.parametrize("rank", [None, 4])
    def test_map_gives_the_features_of_the_rows(self, sampling, rank):
        X = cases.features(60)
        operator = Nystrom(12, rank, sampling=sampling, random_state=0).bind(RBF(0.3), X)
        assert operator.V.shape[1] == (rank or 12)
        np.testing.assert_allclose(operator.features(X), operator.V, atol=1e-9)

    def test_truncation_of_pivots_is_that_of_their_kernel(self):
        X = cases.features(60)
        operator = Nystrom(12, 4, random_state=0).bind(RBF(0.3), X)
        rows = operator.pivots
        K = RBF(0.3)(X)
        values, U = np.linalg.eigh(K[np.ix_(rows, rows)])
        inverse = U[:, -4:] @ np.diag(1.0 / values[-4:]) @ U[:, -4:].T
        np.testing.assert_allclose(
            operator.V @ operator.V.T, K[:, rows] @ inverse @ K[rows], atol=1e-9
        )

    def test_sparse_rows(self):
        X = cases.sparse_features(cases.features(60))
        a = Nystrom(12, random_state=0).bind(RBF(0.3), csr_matrix(X))
        b = Nystrom(12, random_state=0).bind(RBF(0.3), X.toarray())
        np.testing.assert_allclose(a.V, b.V, atol=1e-9)


class TestBadInput:
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"n_landmarks": 0}, "n_landmarks=0"),
            ({"n_landmarks": -3}, "n_landmarks=-3"),
            ({"n_landmarks": 1.5}, "n_landmarks=1.5"),
            ({"n_landmarks": "many"}, "n_landmarks='many'"),
            ({"rank": 0}, "rank=0"),
            ({"n_landmarks": 5, "rank": 6}, "rank=6 is more than n_landmarks=5"),
            ({"sampling": "best"}, "sampling='best'"),
            ({"tol": -1.0}, "tol=-1.0"),
        ],
    )
    def test_refused(self, params, message):
        with pytest.raises(ValueError, match=message):
            Nystrom(**params)

    def test_more_landmarks_than_rows_are_all_rows_and_say_so(self):
        X = cases.features(20)
        with pytest.warns(UserWarning, match="more than the 20 rows"):
            operator = Nystrom(500, random_state=0).bind(RBF(0.3), X)
        np.testing.assert_allclose(operator.V @ operator.V.T, RBF(0.3)(X), atol=1e-6)

    def test_a_precomputed_kernel_has_no_centres(self):
        model = KernelRegressor(kernel="precomputed", operator=Nystrom(5, sampling="kmeans"))
        search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3)
        for run in (model.fit, search.fit):
            with pytest.raises(StructureError, match="use 'rpcholesky' or 'uniform'"):
                run(np.eye(20), np.arange(20.0))

    @pytest.mark.parametrize("sampling", ["uniform", "rpcholesky"])
    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_a_matrix_that_is_not_positive_semi_definite_is_refused(self, sampling, sign):
        K = RBF(0.3)(cases.features(20))
        values, U = np.linalg.eigh(K)
        values[-2] *= -1.0
        K = sign * (U * values) @ U.T
        model = KernelRegressor(kernel="precomputed", operator=Nystrom(15, sampling=sampling))
        with pytest.raises(ValueError, match="not positive semi-definite"):
            model.fit(0.5 * (K + K.T), np.arange(20.0))


@pytest.mark.parametrize("sampling", ["uniform", "rpcholesky"])
class TestPrecomputed:
    """Landmarks of a matrix are columns."""

    ROWS, NEW = cases.features(60), cases.features(7, seed=9)
    K, K_NEW = cases.rbf(ROWS, ROWS, 0.3), cases.rbf(NEW, ROWS, 0.3)
    Y = cases.targets(ROWS)[:, 0]

    def model(self, sampling, **params):
        operator = Nystrom(12, sampling=sampling, random_state=0)
        return KernelRegressor(kernel="precomputed", operator=operator, **params)

    def features(self, model):
        """The features of the model's landmarks, by hand, at the rows and at the new ones."""
        columns = model.fit(self.K, self.Y).expansion_.X
        assert len(set(columns.tolist())) == 12
        values, U = np.linalg.eigh(self.K[np.ix_(columns, columns)])
        T = U / np.sqrt(values)
        return self.K[:, columns] @ T, self.K_NEW[:, columns] @ T

    def test_fit_and_predict(self, sampling):
        model = self.model(sampling, alpha=0.5)
        V, V_new = self.features(model)
        twin = Ridge(0.5).fit(V, self.Y)
        np.testing.assert_allclose(model.predict(self.K_NEW), twin.predict(V_new), rtol=1e-7)
        assert model.expansion_(self.K_NEW).shape == (7, 1)

    def test_cross_validation(self, sampling):
        model = self.model(sampling, alpha=0.5)
        V, _ = self.features(model)
        cv = KFold(4)
        np.testing.assert_allclose(
            everyfold.cross_val_predict(model, self.K, self.Y, cv=cv),
            cross_val_predict(Ridge(0.5), V, self.Y, cv=cv),
            rtol=1e-7,
        )
        np.testing.assert_allclose(
            everyfold.cross_val_score(model, self.K, self.Y, cv=cv),
            cross_val_score(Ridge(0.5), V, self.Y, cv=cv),
            rtol=1e-7,
        )

    def test_search(self, sampling):
        grid = {"alpha": [0.01, 0.1, 1.0]}
        model = self.model(sampling)
        V, V_new = self.features(model)
        ours = FastGridSearchCV(model, grid, cv=4).fit(self.K, self.Y)
        theirs = GridSearchCV(Ridge(), grid, cv=4).fit(V, self.Y)
        np.testing.assert_allclose(
            ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-7
        )
        np.testing.assert_allclose(ours.predict(self.K_NEW), theirs.predict(V_new), rtol=1e-6)
        assert not ours.cv_results_["is_exact"].any()

    def test_any_estimator_of_a_search(self, sampling):
        grid = {"alpha": [0.01, 0.1, 1.0]}
        operator = Nystrom(12, sampling=sampling, random_state=0)
        model = KernelRidge(kernel="precomputed")
        ours = FastGridSearchCV(model, grid, cv=4, operator=operator).fit(self.K, self.Y)
        V, _ = self.features(self.model(sampling))
        theirs = GridSearchCV(Ridge(fit_intercept=False), grid, cv=4).fit(V, self.Y)
        np.testing.assert_allclose(
            ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-7
        )

    def test_landmarks_of_each_fold_with_steps_of_each_fold(self, sampling):
        model = make_pipeline(KernelCenterer(), self.model(sampling))
        grid = {"kernelregressor__alpha": [0.01, 0.1, 1.0]}
        ours = FastGridSearchCV(model, grid, cv=4).fit(self.K, self.Y)
        theirs = GridSearchCV(model, grid, cv=4).fit(self.K, self.Y)
        np.testing.assert_allclose(
            ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-7
        )


class TestUse:
    def data(self, n=200):
        X = cases.features(n)
        return X, cases.targets(X)[:, 0]

    def test_predicts_from_the_landmarks_alone(self):
        X, y = self.data()
        model = KernelRegressor(gamma=0.3, operator=Nystrom(15, random_state=0)).fit(X, y)
        assert model.dual_coef_.shape == (15, 1)
        assert model.expansion_.X.shape == (15, 3)
        assert model.score(X, y) > 0.9

    def test_parameters_are_nested_ones(self):
        model = KernelRegressor(operator=Nystrom(15))
        assert clone(model).set_params(operator__n_landmarks=7).operator == Nystrom(7)

    def test_search_equals_a_loop_over_the_same_features(self):
        X, y = self.data()
        operator = Nystrom(15, random_state=0)
        grid = {"gamma": [0.1, 0.5], "alpha": [0.01, 1.0]}
        search = FastGridSearchCV(KernelRegressor(operator=operator), grid, cv=KFold(4)).fit(X, y)
        for params, score in zip(
            search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
        ):
            V = operator.bind(RBF(params["gamma"]), X).V
            scores = []
            for train, test in KFold(4).split(X):
                model = Ridge(params["alpha"]).fit(V[train], y[train])
                scores.append(model.score(V[test], y[test]))
            assert score == pytest.approx(np.mean(scores), rel=1e-8)
        assert not search.cv_results_["is_exact"].any()
        assert search.best_estimator_.operator == operator

    def test_landmarks_of_each_fold_with_steps_of_each_fold(self):
        X, y = self.data()
        model = make_pipeline(
            StandardScaler(), KernelRegressor(operator=Nystrom(15, random_state=0))
        )
        grid = {"kernelregressor__gamma": [0.1, 0.5], "kernelregressor__alpha": [0.01, 1.0]}
        ours = FastGridSearchCV(model, grid, cv=4).fit(X, y)
        theirs = GridSearchCV(model, grid, cv=4).fit(X, y)
        np.testing.assert_allclose(
            ours.cv_results_["mean_test_score"],
            theirs.cv_results_["mean_test_score"],
            rtol=1e-8,
        )
        assert ours.cv_results_["is_exact"].all()

    @pytest.mark.parametrize("preprocessing", ["per_fold", "once"])
    def test_pipelines_of_scikit_learns_nystroem(self, preprocessing):
        X, y = self.data()
        model = make_pipeline(Nystroem(n_components=20, gamma=0.3, random_state=0), Ridge())
        grid = {"ridge__alpha": np.logspace(-3, 1, 5)}
        ours = FastGridSearchCV(model, grid, cv=5, preprocessing=preprocessing).fit(X, y)
        if preprocessing == "per_fold":
            theirs = GridSearchCV(model, grid, cv=5).fit(X, y)
        else:
            V = model[0].fit_transform(X)
            theirs = GridSearchCV(Ridge(), {"alpha": grid["ridge__alpha"]}, cv=5).fit(V, y)
        np.testing.assert_allclose(
            ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-7
        )

    def test_too_little_memory_is_said_before_any_work(self, monkeypatch):
        monkeypatch.setattr("everyfold.linalg.memory.TRIFLE", 0)
        monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 10_000)
        X, y = self.data()
        with pytest.raises(MemoryError, match="n_landmarks"):
            KernelRegressor(operator=Nystrom(100)).fit(X, y)

    def test_auto_takes_low_rank_where_the_matrix_does_not_fit(self, monkeypatch):
        X, y = self.data()
        monkeypatch.setattr("everyfold.operators.nystrom.DEFAULT_LANDMARKS", 20)
        monkeypatch.setattr("everyfold.linalg.memory.TRIFLE", 0)
        monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 200_000)
        with pytest.warns(everyfold.InexactWarning, match="does not fit in memory"):
            model = KernelRegressor(gamma=0.3).fit(X, y)
        assert model.dual_coef_.shape == (20, 1)
        with pytest.raises(MemoryError, match="Nystrom"):
            KernelRegressor(gamma=0.3, operator="dense").fit(X, y)

    def test_searches_take_it_for_any_estimator(self):
        X, y = self.data()
        grid = {"gamma": [0.1, 0.5], "alpha": [0.01, 1.0]}
        search = FastGridSearchCV(
            KernelRidge(kernel="rbf"), grid, cv=4, operator=Nystrom(30, random_state=0)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            search.fit(X, y)
        assert "rank 30" in str(search.plan_)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (KernelRegressor(), "yes: equal to refits"),
        (KernelRegressor(operator=Nystrom(9, random_state=0)), "no: equal to refits of a model"),
        (KernelRegressor(operator=Nystrom(9, per_fold=True, random_state=0)), "yes: equal"),
    ],
)
def test_a_plan_says_before_the_work_whether_scores_will_be_exact(model, words):
    X = cases.features(60, 3)
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3)
    assert search.plan(X, X[:, 0]).exactness.startswith(words)
    is_exact = search.fit(X, X[:, 0]).cv_results_["is_exact"]
    assert is_exact.all() == words.startswith("yes")
    assert is_exact.any() == words.startswith("yes")
