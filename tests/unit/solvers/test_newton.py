"""Losses without a closed form: fits by their optimality, folds by refits."""

import gc
import weakref

import numpy as np
import pytest
import sklearn.model_selection as refitting
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.svm import SVC, SVR

from everyfold import HuberSVC, KernelLogisticClassifier, KernelRegressor, cross_val_score
from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.kernels import RBF
from everyfold.losses import HuberHinge, Logistic, QuadraticEpsilon, SmoothEpsilon, SquaredHinge
from everyfold.operators import Dense, DenseMatrix, LowRank
from everyfold.operators.response import Solution
from everyfold.solvers import STATIONARITY, Problem, solve, solve_path
from tests import cases

LOSSES = [
    QuadraticEpsilon(0.1),
    SmoothEpsilon(0.1, 0.05),
    HuberHinge(0.3),
    HuberHinge(0.01),
    SquaredHinge(),
    Logistic(),
]
N = 40


def data(loss, n=N, seed=3):
    X = cases.features(n, 3, seed)
    rng = np.random.default_rng(seed)
    y = np.sin(X @ np.array([1.0, -1.0, 0.5])) + 0.4 * rng.normal(size=n)
    return X, np.where(y > 0, 1.0, -1.0) if loss.is_margin else y


def make(loss, weight="none", intercept=True, scaling="sum", n=N):
    X, y = data(loss, n)
    w = cases.weights(weight, n)
    return X, Problem(y[:, None], w, loss, intercept, scaling)


def objective(problem, K, rho):
    y, w = problem.y[:, 0], problem.w

    def value(parameters):
        a, b = parameters[:-1], parameters[-1] if problem.intercept else 0.0
        f = K @ a
        return float(w @ problem.loss.value(y, f + b) + rho * a @ f)

    def gradient(parameters):
        a, b = parameters[:-1], parameters[-1] if problem.intercept else 0.0
        f = K @ a
        g = w * problem.loss.slope(y, f + b)
        return np.append(K @ (g + 2.0 * rho * a), g.sum() if problem.intercept else 0.0)

    return value, gradient


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", cases.WEIGHTS)
@pytest.mark.parametrize("rho", [10.0, 0.3, 1e-3, 1e-6])
@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_fits_are_stationary(loss, intercept, weight, rho, gamma):
    X, problem = make(loss, weight, intercept)
    K = RBF(gamma)(X)
    fit = solve(problem, DenseMatrix(K), rho)
    assert fit.is_converged
    a, b = fit.solution.coef[:, 0], fit.solution.intercept[0]
    y, w = problem.y[:, 0], problem.w
    forces = np.abs(w * loss.slope(y, np.zeros(N)))
    g = w * loss.slope(y, K @ a + b)
    assert np.abs(2.0 * rho * a + g).max() <= STATIONARITY * forces.max()
    assert (a[w == 0] == 0).all()
    if intercept:
        assert abs(g.sum()) <= STATIONARITY * forces.sum()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_fits_are_minima(loss, intercept):
    X, problem = make(loss, "random", intercept)
    K = RBF(0.5)(X)
    fit = solve(problem, DenseMatrix(K), 0.2)
    value, gradient = objective(problem, K, 0.2)
    ours = np.append(fit.solution.coef[:, 0], fit.solution.intercept)
    other = minimize(value, np.zeros(N + 1), jac=gradient, method="BFGS", options={"gtol": 1e-9})
    assert value(ours) <= other.fun * (1 + 1e-9)
    u = K @ other.x[:-1] + (other.x[-1] if intercept else 0.0)
    assert_allclose(K @ ours[:-1] + ours[-1], u, atol=2e-4)


def test_the_huberised_hinge_tends_to_libsvm():
    X, problem = make(HuberHinge(1e-5))
    y = problem.y[:, 0]
    fit = solve(problem, DenseMatrix(RBF(0.5)(X)), 1 / (2 * 2.0))
    svc = SVC(C=2.0, gamma=0.5, tol=1e-9).fit(X, y)
    u = RBF(0.5)(X) @ fit.solution.coef[:, 0] + fit.solution.intercept
    assert_allclose(u, svc.decision_function(X), atol=1e-3)


def test_the_smoothed_tube_tends_to_libsvm():
    X, problem = make(SmoothEpsilon(0.1, 1e-5))
    fit = solve(problem, DenseMatrix(RBF(0.5)(X)), 1 / (2 * 2.0))
    svr = SVR(C=2.0, gamma=0.5, epsilon=0.1, tol=1e-9).fit(X, problem.y[:, 0])
    u = RBF(0.5)(X) @ fit.solution.coef[:, 0] + fit.solution.intercept
    assert_allclose(u, svr.predict(X), atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_path_gives_what_single_fits_give(loss):
    X, problem = make(loss)
    operator = Dense().bind(RBF(0.5), X)
    ridges = [10.0, 1.0, 0.01, 3.0]
    for ridge, fit in zip(ridges, solve_path(problem, operator, ridges), strict=True):
        alone = solve(problem, operator, ridge)
        assert_allclose(fit.solution.coef, alone.solution.coef, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_low_rank_equals_the_dense_matrix_of_its_product(loss, intercept):
    X, problem = make(loss, "random", intercept)
    dense = solve(problem, DenseMatrix(X @ X.T), 0.5)
    low = solve(problem, LowRank(X), 0.5)
    assert dense.is_converged
    assert low.is_converged
    u = X @ X.T @ dense.solution.coef + dense.solution.intercept
    assert_allclose(X @ low.solution.coef + low.solution.intercept, u, atol=1e-7)


def test_separable_data_with_a_huge_penalty_stay_finite():
    X = np.linspace(-1, 1, 20)[:, None]
    y = np.sign(X)
    for loss in (HuberHinge(0.05), SquaredHinge(), Logistic()):
        problem = Problem(y, np.ones(20), loss, intercept=True)
        fit = solve(problem, Dense().bind(RBF(1.0), X), 1e-9)
        assert np.isfinite(fit.solution.coef).all()


def test_a_fit_that_does_not_converge_says_so(monkeypatch):
    monkeypatch.setattr("everyfold.solvers.newton.MAX_STEPS", 1)
    X, problem = make(HuberHinge(0.01))
    operator = Dense().bind(RBF(0.5), X)
    fit = solve(problem, operator, 1e-3)
    assert not fit.is_converged
    (result,) = ClosedFormCV().evaluate(problem, operator, [1e-3], Folds.leave_one_out(N))
    assert np.isnan(result.values).all()
    assert not result.is_exact.any()
    (result,) = Refit().evaluate(problem, operator, [1e-3], fold_set("equal"))
    assert np.isnan(result.values).all()
    assert not result.is_exact.any()


def fold_set(name, n=N):
    from sklearn.model_selection import KFold, RepeatedKFold

    if name == "loo":
        return Folds.leave_one_out(n)
    splitter = {
        "equal": KFold(5),
        "unequal": KFold(7, shuffle=True, random_state=0),
        "repeated": RepeatedKFold(n_splits=4, n_repeats=2, random_state=0),
    }[name]
    return Folds.from_splits(splitter.split(np.empty(n)), n)


def refits(problem, K, ridge, folds):
    """Every fold by a fit of its own training rows, from scratch."""
    values = []
    for fold in folds:
        T = fold.train
        part = Problem(
            problem.y[T], problem.w[T], problem.loss, problem.intercept, problem.ridge_scaling
        )
        fit = solve(part, DenseMatrix(K[np.ix_(T, T)]), ridge)
        assert fit.is_converged
        values.append(K[np.ix_(fold.test, T)] @ fit.solution.coef + fit.solution.intercept)
    return np.concatenate(values)


CASES = pytest.mark.parametrize(
    ("loss", "intercept", "weight", "scaling"),
    [
        (loss, intercept, weight, scaling)
        for loss in LOSSES
        for intercept in (True, False)
        for weight in ("none", "zeros")
        for scaling in ("sum", "mean")
    ],
    ids=str,
)


@CASES
def test_order_exact_equals_refitting(loss, intercept, weight, scaling):
    X, problem = make(loss, weight, intercept, scaling)
    K = RBF(0.5)(X)
    ridges = [0.05, 2.0] if scaling == "sum" else [0.05 / N, 2.0 / N]
    folds = fold_set("unequal")
    results = ClosedFormCV(order="exact").evaluate(problem, DenseMatrix(K), ridges, folds)
    for ridge, result in zip(ridges, results, strict=True):
        assert_allclose(result.values, refits(problem, K, ridge, folds), atol=1e-6)
        assert result.is_exact.all()


def optimal_intercepts(problem, f):
    """The ends of the interval of b at which the forces add up to 0 for given f, by bisection."""
    y, w = problem.y[:, 0], problem.w

    def end(is_beyond):
        inside, outside = -1e6, 1e6
        for _ in range(200):
            middle = 0.5 * (inside + outside)
            force = float(w @ problem.loss.slope(y, f + middle))
            inside, outside = (inside, middle) if is_beyond(force) else (middle, outside)
        return inside

    return end(lambda force: force >= -1e-9), end(lambda force: force > 1e-9)


def loose(loss, seed, n=20):
    """A problem whose rows are likely to leave the intercept some room: few, of balanced labels."""
    X, y = data(loss, n, seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if loss.is_margin else y
    return RBF(0.5)(X), Problem(y[:, None], np.ones(n), loss, intercept=True)


FLAT = pytest.mark.parametrize(
    ("loss", "ridge"),
    [
        (SmoothEpsilon(0.1, 0.02), 50.0),
        (SmoothEpsilon(0.5, 0.02), 500.0),
        (SmoothEpsilon(100.0, 0.02), 0.5),
        (QuadraticEpsilon(3.0), 0.5),
        (HuberHinge(0.05), 500.0),
    ],
    ids=str,
)


@FLAT
def test_a_flat_intercept_is_the_middle_wherever_the_search_began(loss, ridge):
    n_flat = 0
    for seed in range(10):
        K, problem = loose(loss, seed)
        operator = DenseMatrix(K)
        first = solve(problem, operator, ridge)
        low, high = optimal_intercepts(problem, K @ first.solution.coef[:, 0])
        n_flat += high - low > 1e-3
        for b in (None, -2.0, low, high, 5.0):
            start = None if b is None else Solution(first.solution.coef, np.array([b]))
            (fit,) = solve_path(problem, operator, [ridge], start=start)
            assert fit.is_converged
            assert_allclose(fit.solution.intercept, [0.5 * (low + high)], atol=1e-7)
    assert n_flat >= 3


def test_a_tube_wider_than_the_targets_has_the_intercept_of_libsvm():
    X, y = data(SmoothEpsilon())
    wide = KernelRegressor("smooth_epsilon", C=1.0, epsilon=100.0, h=1e-6, gamma=0.5)
    theirs = SVR(C=1.0, epsilon=100.0, gamma=0.5).fit(X, y + 7.0).predict(X)
    assert_allclose(wide.fit(X, y + 7.0).predict(X), theirs, atol=1e-5)


@FLAT
@pytest.mark.parametrize("order", ["exact", np.inf])
def test_folds_with_a_flat_intercept_are_refits_or_not_called_exact(loss, ridge, order):
    n_flat = 0
    for seed in range(6):
        K, problem = loose(loss, seed)
        folds = fold_set("equal", problem.n)
        (result,) = ClosedFormCV(order=order).evaluate(problem, DenseMatrix(K), [ridge], folds)
        ours = folds.split(result.values)
        truth = folds.split(refits(problem, K, ridge, folds))
        for fold, held, true, is_exact in zip(folds, ours, truth, result.is_exact, strict=True):
            part = problem.restrict(fold.train)
            inside = K[np.ix_(fold.train, fold.train)]
            fit = solve(part, DenseMatrix(inside), ridge)
            low, high = optimal_intercepts(part, inside @ fit.solution.coef[:, 0])
            n_flat += high - low > 1e-3
            if is_exact:
                assert_allclose(held, true, atol=1e-7)
        assert order == np.inf or result.is_exact.all()
    assert n_flat >= 3


def test_the_certificate_finds_exact_folds_and_others_and_is_right():
    right, wrong = 0, 0
    for loss in LOSSES:
        for intercept in (True, False):
            for scaling in ("sum", "mean"):
                X, problem = make(loss, "random", intercept, scaling)
                K = RBF(0.5)(X)
                for fold in ("unequal", "loo"):
                    folds = fold_set(fold)
                    for ridge in (0.02, 1.0, 30.0):
                        ridge = ridge if scaling == "sum" else ridge / N
                        (result,) = ClosedFormCV().evaluate(problem, DenseMatrix(K), [ridge], folds)
                        truth = folds.split(refits(problem, K, ridge, folds))
                        ours = folds.split(result.values)
                        for a, b, exact in zip(ours, truth, result.is_exact, strict=True):
                            if exact:
                                assert_allclose(a, b, atol=1e-6)
                                right += 1
                            elif np.abs(a - b).max() > 1e-3:
                                wrong += 1
    assert right > 50
    assert wrong > 50


@CASES
@pytest.mark.parametrize("fold", ["unequal", "loo"])
def test_the_step_is_the_formula(loss, intercept, weight, scaling, fold):
    """u + (I - M D)^-1 (M g + q) by its definition, dense and with plain NumPy."""
    X, problem = make(loss, weight, intercept, scaling)
    K = RBF(0.5)(X)
    folds = fold_set(fold)
    ridge = 0.3 if scaling == "sum" else 0.3 / N
    (result,) = ClosedFormCV(with_radius=True).evaluate(problem, DenseMatrix(K), [ridge], folds)
    fit = solve(problem, DenseMatrix(K), ridge)
    u = K @ fit.solution.coef[:, 0] + fit.solution.intercept[0]
    y, w = problem.y[:, 0], problem.w
    g, D = w * loss.slope(y, u), w * loss.curvature(y, u)
    expected = []
    for S in folds.helds:
        left = problem.n_active - np.count_nonzero(w[S])
        rho = problem.rho(ridge, left)
        M = naive_response(K, D, rho, intercept)
        q = (rho / fit.rho - 1.0) * (M @ g)
        M_SS = M[np.ix_(S, S)]
        system = np.eye(len(S)) - M_SS * D[S]
        expected.append(u[S] + np.linalg.solve(system, M_SS @ g[S] + q[S]))
    assert_allclose(result.values[:, 0], np.concatenate(expected), atol=1e-7)
    assert (result.spectral_radius >= 0).all()
    assert (result.spectral_radius < 1).all()


def naive_response(K, D, rho, intercept):
    n = len(K)
    M = np.linalg.solve(K * D + 2.0 * rho * np.eye(n), K)
    one = np.ones(n)
    s = D.sum() - D @ M @ D
    if intercept and D.any():
        z = one - M @ D
        M = M + np.outer(z, z) / s
    return M


@CASES
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("fold", ["unequal", "loo"])
def test_finite_orders_are_the_naive_series(loss, intercept, weight, scaling, order, fold):
    X, problem = make(loss, weight, intercept, scaling)
    K = RBF(0.5)(X)
    folds = fold_set(fold)
    ridge = 0.3 if scaling == "sum" else 0.3 / N
    (result,) = ClosedFormCV(order=order).evaluate(problem, DenseMatrix(K), [ridge], folds)
    fit = solve(problem, DenseMatrix(K), ridge)
    u = K @ fit.solution.coef[:, 0] + fit.solution.intercept[0]
    y, w = problem.y[:, 0], problem.w
    g, D = w * loss.slope(y, u), w * loss.curvature(y, u)
    M = naive_response(K, D, fit.rho, intercept)
    n = problem.n_active
    expected = []
    for S in folds.helds:
        m = np.count_nonzero(w[S])
        if scaling == "sum":
            term = M[np.ix_(S, S)] @ g[S]
            total = term.copy()
            for _ in range(order - 1):
                term = M[np.ix_(S, S)] @ (D[S] * term)
                total = total + term
            expected.append(u[S] + total)
            continue
        theta = np.full(N, -m / (n - m))
        theta[S] = 1.0
        term = M @ (theta * g)
        total = term.copy()
        for _ in range(order - 1):
            term = M @ (theta * D * term)
            total = total + term
        expected.append((u + total)[S])
    assert_allclose(result.values[:, 0], np.concatenate(expected), atol=1e-7)
    assert not result.is_exact.any()


def test_low_rank_folds_equal_those_of_the_dense_matrix():
    for loss in LOSSES:
        X, problem = make(loss, "random")
        for fold in ("unequal", "loo"):
            folds = fold_set(fold)
            (dense,) = ClosedFormCV().evaluate(problem, DenseMatrix(X @ X.T), [0.5], folds)
            (low,) = ClosedFormCV().evaluate(problem, LowRank(X), [0.5], folds)
            assert_allclose(low.values, dense.values, atol=1e-6)


def test_leave_one_out_of_narrow_kernels_keeps_the_sign():
    """Held-out values of 1e-7 and less beside fitted values near 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = np.where(rng.random(60) > 0.5, 1.0, -1.0)
    K = RBF(8.0)(X)
    problem = Problem(y[:, None], np.ones(60), HuberHinge(0.05), intercept=False)
    folds = Folds.leave_one_out(60)
    (result,) = ClosedFormCV().evaluate(problem, DenseMatrix(K), [0.05], folds)
    truth = refits(problem, K, 0.05, folds)[:, 0]
    small = np.abs(truth) < 1e-6
    assert small.sum() > 5
    assert (np.sign(result.values[:, 0]) == np.sign(truth))[np.abs(truth) > 1e-25].all()


def test_many_targets_are_fitted_one_by_one():
    X, problem = make(HuberHinge(0.1))
    both = np.column_stack([problem.y[:, 0], -problem.y[:, 0]])
    joint = Problem(both, problem.w, problem.loss, True)
    folds = fold_set("unequal")
    operator = Dense().bind(RBF(0.5), X)
    (result,) = ClosedFormCV().evaluate(joint, operator, [0.3], folds)
    (single,) = ClosedFormCV().evaluate(problem, operator, [0.3], folds)
    assert_allclose(result.values[:, 0], single.values[:, 0], atol=1e-8)
    assert_allclose(result.values[:, 1], -single.values[:, 0], atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_folds_that_start_far_from_their_minimum_converge(seed):
    """The fit on all rows, cut to half of them, is no near start for an unbounded kernel."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2)) + 3.0
    y = X[:, 0] + 0.5 * rng.normal(size=30) > 3.0
    cv = refitting.ShuffleSplit(4, test_size=0.3, train_size=0.5, random_state=seed)
    machine = KernelLogisticClassifier(kernel="polynomial", gamma=0.5, C=5.0)
    ours = cross_val_score(machine, X, y, cv=cv, scoring="roc_auc", error_score="raise")
    assert_allclose(ours, refitting.cross_val_score(machine, X, y, cv=cv, scoring="roc_auc"))


def test_forces_that_cancel_are_a_minimum():
    """In coordinates the forces of two balanced classes on one constant column add up to 0."""
    y = np.repeat([0, 1], [24, 13])
    machine = KernelLogisticClassifier(kernel="linear", class_weight="balanced")
    assert_allclose(machine.fit(np.ones((37, 1)), y).decision_function([[1.0]]), 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 24])
def test_a_start_that_leads_nowhere_is_forgotten(seed):
    """Where all rows of a fold lie beyond the curvature of the loss no step leads back."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 3)), rng.permutation(np.repeat([0, 1], [26, 4]))
    cv = [(rng.permutation(30)[:24], np.arange(30)) for _ in range(4)]
    machine = KernelLogisticClassifier(gamma=0.02, C=50.0)
    options = {"cv": cv, "scoring": "neg_brier_score", "error_score": "raise"}
    ours = cross_val_score(machine, X, y, **options)
    assert_allclose(ours, refitting.cross_val_score(machine, X, y, **options))


@pytest.mark.parametrize(("seed", "C"), [(21, 1.0), (92, 60.0)])
def test_steps_do_not_go_in_circles(seed, C):
    """Full steps that lower the violation of the optimality may raise the objective."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(30, 2)) + rng.uniform(-4, 4, 2)) * 10 ** rng.uniform(-1, 0.4)
    y = X[:, 0] + 0.5 * X[:, 0].std() * rng.normal(size=30) > np.median(X[:, 0])
    machine = HuberSVC(kernel="polynomial", gamma=0.7, coef0=0.0, C=C, class_weight="balanced")
    machine.fit(X, y)  # warns if it does not converge, and warnings are errors
    sign, w = np.where(y, 1.0, -1.0), 15.0 / np.where(y, y.sum(), (~y).sum())
    forces = w * HuberHinge(machine.h).slope(sign, machine.decision_function(X))
    assert_allclose(machine.dual_coef_[:, 0], -C * forces, atol=1e-6)
    assert_allclose(forces.sum(), 0.0, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_kernel_is_freed_with_its_fit(loss):
    """No cycle of references keeps the matrix of a fold until garbage is collected."""
    X, problem = make(loss, cases.WEIGHTS[0], intercept=True)
    gc.disable()
    try:
        operator = DenseMatrix(RBF(0.3)(X))
        watch = weakref.ref(operator)
        for rho in (10.0, 1e-6):
            solve(problem, operator, rho)
        del operator
        assert watch() is None
    finally:
        gc.enable()
