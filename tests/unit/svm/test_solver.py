"""Fold paths against libsvm's own solutions, and against the optimality conditions themselves."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification, make_regression
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.svm import SVC, SVR

from everyfold.svm.joint_steps import JointSteps
from tests.cases import svm_paths_of_folds as svm_paths

pytestmark = pytest.mark.xdist_group("numba")

TIGHT = 1e-6
CS = np.array([0.05, 1.0, 30.0])


def leave_out(n, n_folds):
    """Bounds of interleaved folds."""
    bounds = np.ones((n_folds, n))
    for fold in range(n_folds):
        bounds[fold, fold::n_folds] = 0.0
    return bounds


@pytest.fixture(scope="module")
def classes():
    X, y = make_classification(150, 6, n_informative=4, flip_y=0.15, random_state=3)
    return X, 2.0 * y - 1.0


@pytest.fixture(scope="module")
def numbers():
    X, y = make_regression(120, 5, noise=20.0, random_state=5)
    return X, y / y.std() + 3.0


def refit(model, X, y, w):
    rows = w > 0
    return model.fit(X[rows], y[rows], sample_weight=w[rows])


def violation(K, y, C, w, beta, epsilon, is_hinge):
    """Largest up score minus smallest down score, written out from the definition."""
    upper = C * w * ((y > 0) if is_hinge else 1.0)
    lower = -C * w * ((y < 0) if is_hinge else 1.0)
    residual = y - K.astype(np.float64) @ beta
    up = np.where(beta < upper, residual - np.where(beta < 0, -epsilon, epsilon), -np.inf)
    down = np.where(beta > lower, residual - np.where(beta > 0, epsilon, -epsilon), np.inf)
    assert (beta <= upper).all()
    assert (beta >= lower).all()
    assert abs(beta.sum()) <= 1e-9 * max(1.0, np.abs(beta).sum())
    return up.max() - down.min()


def assert_same_decisions(paths, models, X, atol):
    for fold, row in enumerate(models):
        for c, model in enumerate(row):
            expected = (
                model.decision_function(X)
                if hasattr(model, "decision_function")
                else model.predict(X)
            )
            assert_allclose(paths.decision[fold, c], expected, atol=atol)
            assert_allclose(paths.intercept[fold, c], model.intercept_[0], atol=atol)


# --- agreement with libsvm -----------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.02, 0.3, 10.0])
def test_hinge_equals_svc_on_every_fold_and_C(classes, gamma):
    X, y = classes
    bounds = leave_out(len(y), 3)
    paths = svm_paths(rbf_kernel(X, gamma=gamma), y, CS, bounds, tol=TIGHT)
    models = [[refit(SVC(C=C, gamma=gamma, tol=TIGHT), X, y, w) for C in CS] for w in bounds]
    assert paths.converged.all()
    assert paths.violation.max() <= TIGHT
    assert_same_decisions(paths, models, X, atol=1e-4)


def test_hinge_equals_svc_with_weights(classes):
    X, y = classes
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.2, 3.0, len(y)) * np.where(y > 0, 2.5, 0.7)
    bounds = leave_out(len(y), 2) * weight
    K = rbf_kernel(X, gamma=0.1)
    paths = svm_paths(K, y, CS, bounds, tol=TIGHT)
    models = [[refit(SVC(C=C, gamma=0.1, tol=TIGHT), X, y, w) for C in CS] for w in bounds]
    assert_same_decisions(paths, models, X, atol=1e-4)
    unweighted = svm_paths(K, y, CS, leave_out(len(y), 2), tol=TIGHT)
    assert np.abs(paths.decision - unweighted.decision).max() > 0.05


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.8])
def test_epsilon_equals_svr(numbers, epsilon):
    X, y = numbers
    bounds = leave_out(len(y), 2) * np.linspace(0.5, 2.0, len(y))
    paths = svm_paths(rbf_kernel(X, gamma=0.1), y, CS, bounds, epsilon=epsilon, tol=TIGHT)
    models = [
        [refit(SVR(C=C, gamma=0.1, epsilon=epsilon, tol=TIGHT), X, y, w) for C in CS]
        for w in bounds
    ]
    assert paths.converged.all()
    # Without a tube and free rows the bias is any point of an interval; libsvm's is its middle.
    assert_same_decisions(paths, models, X, atol=2e-4)


def test_problems_may_have_their_own_labels(classes):
    X, y = classes
    rng = np.random.default_rng(1)
    group = rng.integers(0, 3, len(y))
    K = rbf_kernel(X, gamma=0.1)
    pairs = [(0, 1), (0, 2), (1, 2)]
    labels = np.array([np.where(group == a, 1.0, -1.0) for a, _ in pairs])
    bounds = np.array([np.isin(group, pair).astype(float) for pair in pairs])
    labels[bounds == 0] = np.nan  # not looked at
    paths = svm_paths(K, labels, [1.0], bounds, tol=TIGHT)
    models = [
        [refit(SVC(gamma=0.1, tol=TIGHT), X, label, w)]
        for label, w in zip(labels, bounds, strict=True)
    ]
    assert_same_decisions(paths, models, X, atol=1e-4)


# --- the conditions themselves -------------------------------------------------------------


@pytest.mark.parametrize("tol", [0.1, 1e-3, 1e-5])
def test_reported_violation_is_the_true_one(classes, tol):
    X, y = classes
    bounds = leave_out(len(y), 3)
    K = rbf_kernel(X, gamma=0.2).astype(np.float32)
    paths = svm_paths(K, y, [0.1, 10.0, 1000.0], bounds, tol=tol)
    for fold, w in enumerate(bounds):
        for c, C in enumerate([0.1, 10.0, 1000.0]):
            beta = paths.coef[fold, c]
            true = violation(K, y, C, w, beta, 0.0, is_hinge=True)
            assert true <= 1.05 * tol
            assert_allclose(paths.violation[fold, c], true, atol=0.05 * tol)
            assert_array_equal(beta[w == 0], 0.0)
            f = K.astype(np.float64) @ beta + paths.intercept[fold, c]
            assert_allclose(paths.decision[fold, c], f, atol=0.05 * tol)


def test_epsilon_meets_its_conditions(numbers):
    X, y = numbers
    bounds = leave_out(len(y), 2)
    K = rbf_kernel(X, gamma=0.5).astype(np.float32)
    paths = svm_paths(K, y, CS, bounds, epsilon=0.2, tol=1e-4)
    for fold, w in enumerate(bounds):
        for c, C in enumerate(CS):
            true = violation(K, y, C, w, paths.coef[fold, c], 0.2, is_hinge=False)
            assert true <= 1.05e-4


def test_long_runs_on_active_rows_meet_the_conditions_of_all_rows():
    """Many pair steps, few active rows: the solver works on a part of the kernel here."""
    X, y = make_classification(600, 8, n_informative=4, flip_y=0.1, random_state=0)
    y = 2.0 * y - 1.0
    K = rbf_kernel(X, gamma=0.02).astype(np.float32)
    w = np.ones((1, len(y)))
    Cs = [10.0, 1000.0]
    paths = svm_paths(K, y, Cs, w, tol=1e-4)
    assert paths.iterations.max() > 5 * len(y)
    for c, C in enumerate(Cs):
        true = violation(K, y, C, w[0], paths.coef[0, c], 0.0, is_hinge=True)
        assert true <= 1.05e-4


def test_rounding_of_the_gradient_is_noticed(numbers):
    """Targets of 1e5 and all rows free: the float32 gradient alone is off by more than tol."""
    X, y = numbers
    y = 1e5 * y
    K = rbf_kernel(X, gamma=0.5).astype(np.float32)
    w = np.ones(len(y))
    paths = svm_paths(K, y, [1e7], w[None], epsilon=0.0, tol=1e-2)
    assert paths.converged.all()
    beta = paths.coef[0, 0]
    assert violation(K, y, 1e7, w, beta, 0.0, is_hinge=False) <= 1.05e-2
    f = K.astype(np.float64) @ beta + paths.intercept[0, 0]
    assert_allclose(paths.decision[0, 0], f, atol=1e-3)


def test_bias_is_the_mean_over_free_rows_or_the_middle(classes):
    """At a loose tolerance the two rules differ, and libsvm's is this one."""
    X, y = classes
    K = rbf_kernel(X, gamma=0.1).astype(np.float32)
    w = np.ones((1, len(y)))
    paths = svm_paths(K, y, [1.0, 1e-5], w, tol=0.3)
    residual = y - paths.coef[0].astype(np.float64) @ K
    size = np.abs(paths.coef[0])
    is_free = (size[0] > 0) & (size[0] < 1.0)
    assert is_free.sum() > 5
    assert_allclose(paths.intercept[0, 0], residual[0, is_free].mean(), atol=1e-5)
    at_zero, at_bound = size[1] == 0, size[1] == 1e-5
    assert (at_zero | at_bound).all()
    top = residual[1, (at_zero & (y > 0)) | (at_bound & (y < 0))].max()
    bottom = residual[1, (at_zero & (y < 0)) | (at_bound & (y > 0))].min()
    assert_allclose(paths.intercept[0, 1], 0.5 * (top + bottom), atol=1e-5)


def test_play_is_how_far_the_bias_may_move(classes):
    """With equal totals of C every row of two small classes is at its bound."""
    X, y = classes
    K = rbf_kernel(X, gamma=0.1).astype(np.float32)
    w = np.where(y > 0, 1.0 / (y > 0).sum(), 1.0 / (y < 0).sum())
    paths = svm_paths(K, y, [1e-3, 1e4], w[None])
    residual = y - paths.coef[0, 0] @ K.astype(np.float64)
    width = residual[y > 0].min() - residual[y < 0].max()
    assert width > 1.0
    assert_allclose(paths.play, [[width, 0.0]], atol=1e-5)
    # Unequal totals: the larger class has a free row, and its end of the interval is the bias.
    uneven = svm_paths(K, y, [1e-3], (w * np.where(y > 0, 1.0, 1.1))[None])
    assert_array_equal(uneven.play, 0.0)


def test_play_of_the_bias_of_a_regression(numbers):
    X, y = numbers
    y = np.sort(y)
    K = rbf_kernel(X, gamma=0.1).astype(np.float32)
    w = np.ones(len(y))
    paths = svm_paths(K, y, [1e-6], w[None], epsilon=0.0, tol=1e-6)
    assert_allclose(paths.play[0, 0], y[len(y) // 2] - y[len(y) // 2 - 1], atol=1e-3)
    w[0] = 0.0  # an odd number of rows: the middle one is free
    assert svm_paths(K, y, [1e-6], w[None], epsilon=0.0, tol=1e-6).play[0, 0] == 0.0


# --- paths, starts, order, threads ---------------------------------------------------------


def test_weight_zero_is_removal(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=0.1)
    bounds = leave_out(len(y), 4)[:1]
    rows = bounds[0] > 0
    with_row = svm_paths(K, y, CS, bounds, tol=TIGHT)
    without = svm_paths(K[np.ix_(rows, rows)], y[rows], CS, bounds[:, rows], tol=TIGHT)
    assert_allclose(with_row.decision[:, :, rows], without.decision, atol=1e-5)
    flipped = np.where(rows, y, -y)
    assert_array_equal(svm_paths(K, flipped, CS, bounds, tol=TIGHT).decision, with_row.decision)


def test_path_equals_cold_starts(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=0.1)
    bounds = leave_out(len(y), 2)
    path = svm_paths(K, y, CS, bounds, tol=TIGHT)
    for c, C in enumerate(CS):
        cold = svm_paths(K, y, [C], bounds, tol=TIGHT)
        assert_allclose(path.decision[:, c], cold.decision[:, 0], atol=1e-5)


def test_order_of_Cs_does_not_matter(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=0.1)
    bounds = leave_out(len(y), 2)
    Cs = np.array([0.05, 1.0, 1.0, 30.0, 400.0])
    shuffle = np.array([3, 1, 4, 0, 2])
    sorted_ = svm_paths(K, y, Cs, bounds)
    shuffled = svm_paths(K, y, Cs[shuffle], bounds)
    for name in ("decision", "coef", "intercept", "violation", "converged"):
        assert_array_equal(getattr(shuffled, name), getattr(sorted_, name)[:, shuffle])


def test_solving_selected_Cs_again_from_a_loose_pass(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=0.1)
    bounds = leave_out(len(y), 3)
    loose = svm_paths(K, y, CS, bounds, tol=0.3)
    selected = [2, 0]
    again = svm_paths(K, y, CS[selected], bounds, tol=TIGHT, start=loose.coef[:, selected])
    cold = svm_paths(K, y, CS[selected], bounds, tol=TIGHT)
    assert np.abs(loose.decision[:, selected] - cold.decision).max() > 1e-3
    assert_allclose(again.decision, cold.decision, atol=1e-5)
    assert again.iterations.sum() < cold.iterations.sum()
    solved = svm_paths(K, y, CS, bounds, tol=TIGHT)
    resumed = svm_paths(K, y, CS, bounds, tol=1.1 * TIGHT, start=solved.coef)
    assert resumed.iterations.sum() == 0


def test_larger_C_changes_nothing_once_no_bound_is_reached(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=10.0)
    bounds = leave_out(len(y), 2)
    paths = svm_paths(K, y, [100.0, 1e4], bounds, tol=TIGHT)
    assert np.abs(paths.coef).max() < 100.0
    assert_array_equal(paths.iterations[:, 1], 0)
    assert_array_equal(paths.decision[:, 1], paths.decision[:, 0])
    assert_array_equal(paths.coef[:, 1], paths.coef[:, 0])


def test_kernel_may_be_float32_read_only_or_fortran(classes):
    X, y = classes
    X, y = X[:128], y[:128]  # a whole number of vectors: used without a copy
    K = rbf_kernel(X, gamma=0.1).astype(np.float32)
    bounds = leave_out(len(y), 2)
    expected = svm_paths(K, y, CS, bounds).decision
    read_only = K.copy()
    read_only.flags.writeable = False
    for same in (read_only, np.asfortranarray(K), K.astype(np.float64)):
        before = same.copy()
        assert_array_equal(svm_paths(same, y, CS, bounds).decision, expected)
        assert_array_equal(same, before)


def test_subnormal_entries_are_not_needed(classes):
    X, y = classes
    X, y = X[:128], y[:128]
    K = rbf_kernel(X, gamma=20.0).astype(np.float32)
    assert ((K > 0) & (K < 1e-37)).any()
    paths = svm_paths(K, y, [1.0], np.ones((1, 128)), tol=TIGHT)
    cleared = svm_paths(np.where(K < 1e-30, 0, K), y, [1.0], np.ones((1, 128)), tol=TIGHT)
    assert_array_equal(paths.decision, cleared.decision)


# --- corners -------------------------------------------------------------------------------


def test_huge_C_on_separable_data_is_finite():
    x = np.r_[np.linspace(-3, -1, 20), np.linspace(1, 3, 20)]
    paths = svm_paths(np.outer(x, x), np.sign(x), [1e8], np.ones((1, 40)), tol=1e-5)
    assert paths.converged.all()
    assert_allclose(paths.decision[0, 0], x, atol=1e-4)  # margin -1 ... 1


def test_fold_of_one_class_is_nan_and_not_converged(classes):
    X, y = classes
    bounds = np.array([np.ones(len(y)), (y > 0) * 1.0, (y < 0) * 1.0, np.zeros(len(y))])
    paths = svm_paths(rbf_kernel(X), y, [1.0, 2.0], bounds)
    assert np.isfinite(paths.decision[0]).all()
    assert np.isnan(paths.decision[1:]).all()
    assert np.isnan(paths.intercept[1:]).all()
    assert_array_equal(paths.converged, [[True, True], [False] * 2, [False] * 2, [False] * 2])
    assert_array_equal(paths.iterations[1:], 0)


def test_tube_wider_than_the_data_has_no_support_vectors(numbers):
    X, y = numbers
    bounds = leave_out(len(y), 2)
    paths = svm_paths(rbf_kernel(X), y, [1.0, 10.0], bounds, epsilon=50.0)
    assert_array_equal(paths.coef, 0.0)
    for fold, w in enumerate(bounds):
        seen = y[w > 0]
        assert_allclose(paths.decision[fold], 0.5 * (seen.min() + seen.max()))
    assert paths.converged.all()


def test_single_training_row_predicts_its_target():
    paths = svm_paths(np.eye(3), [4.0, 9.0, 1.0], [1.0], [[0.0, 1.0, 0.0]], epsilon=0.1)
    assert_allclose(paths.decision, 9.0)


@pytest.mark.parametrize("kind", ["duplicates", "indefinite", "constant"])
def test_kernels_without_curvature(classes, kind):
    X, y = classes
    X, y = X[:60], y[:60].copy()
    if kind == "duplicates":
        X = np.repeat(X[::3], 3, axis=0)  # equal rows with different labels
        K = rbf_kernel(X, gamma=0.1)
    elif kind == "indefinite":
        K = np.tanh(0.5 * linear_kernel(X) - 1.0)
        assert np.linalg.eigvalsh(K).min() < -0.1
    else:
        K = np.ones((60, 60))
    Cs = [0.1, 10.0]
    paths = svm_paths(K, y, Cs, np.ones((1, 60)), tol=1e-3)
    assert np.isfinite(paths.decision).all()
    assert paths.converged.all()
    K32 = K.astype(np.float32)
    for c, C in enumerate(Cs):
        true = violation(K32, y, C, np.ones(60), paths.coef[0, c], 0.0, is_hinge=True)
        assert true <= 1.05e-3
    if kind == "duplicates":
        model = refit(SVC(C=10.0, gamma=0.1, tol=1e-5), X, y, np.ones(60))
        assert_allclose(paths.decision[0, 1], model.decision_function(X), atol=5e-3)


def test_running_out_of_iterations_is_reported(classes):
    X, y = classes
    paths = svm_paths(rbf_kernel(X), y, CS, leave_out(len(y), 2), max_iter=1)
    assert not paths.converged.any()
    assert_array_equal(paths.iterations, 1)
    assert (paths.violation > 1e-3).all()
    assert np.isfinite(paths.decision).all()


def test_tolerance_below_rounding_ends_and_is_reported(classes):
    X, y = classes
    K = rbf_kernel(X, gamma=0.3)
    paths = svm_paths(K, y, [1.0], np.ones((1, len(y))), tol=1e-18, max_iter=200_000)
    assert_array_equal(paths.converged, paths.violation <= 1e-18)
    assert paths.violation.max() < 1e-6


def test_kernel_with_nan_is_refused(classes):
    X, y = classes
    K = rbf_kernel(X)
    K[3, 5] = K[5, 3] = np.nan
    with pytest.raises(ValueError, match="K must be finite"):
        svm_paths(K, y, [1.0], np.ones((1, len(y))))


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to a child there")
def test_interrupt_ends_the_work_quickly():
    """A problem that would run for minutes: wide kernel, huge C, tolerance below rounding."""
    code = textwrap.dedent("""
        import os, signal, threading, time
        import numpy as np
        from everyfold.svm.paths import svm_paths
        rng = np.random.default_rng(0)
        X = rng.standard_normal((700, 3))
        K = np.exp(-0.01 * ((X[:, None] - X) ** 2).sum(-1))
        y = np.where(rng.random(700) < 0.5, -1.0, 1.0)
        svm_paths(K[:20, :20], y[:20], [1.0], np.ones(20))
        spent = []

        def interrupt():
            spent.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.5, interrupt).start()
        try:
            svm_paths(K, y, [1e9], np.ones(700), tol=1e-12, max_iter=10**12)
        except KeyboardInterrupt:
            print(time.process_time() - spent[0])
    """)
    # Work that does not end takes minutes of a processor, however many others want it.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert float(done.stdout) < 2.0


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to this process there")
class TestSignalsInThisThread:
    """Python handles them as compiled code calls back, where what a handler raises is lost."""

    @pytest.fixture
    def solve(self, monkeypatch):
        """Solve a problem in this thread, with a signal at the first call back."""
        rng = np.random.default_rng(0)
        K = np.exp(-0.01 * np.subtract.outer(X := rng.standard_normal(300), X) ** 2)
        y = np.where(rng.random(300) < 0.5, -1.0, 1.0)
        seen = []

        class Interrupted(JointSteps):
            def _answer(self, *numbers):
                if not seen:
                    seen.append(True)
                    os.kill(os.getpid(), signal.SIGINT)
                return super()._answer(*numbers)

        def run():
            stop = np.zeros(1, dtype=np.int64)
            return svm_paths(K, y, [1e3], np.ones((1, 300)), max_iter=100_000, stop=stop)

        monkeypatch.setattr("everyfold.svm.joint_steps.JointSteps", Interrupted)
        return run

    def test_an_interrupt_is_raised_after_compiled_code(self, solve):
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            solve()
        assert signal.getsignal(signal.SIGINT) is before

    def test_a_handler_that_goes_on_changes_no_result(self, solve):
        seen = []
        before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        try:
            found = solve()
        finally:
            signal.signal(signal.SIGINT, before)
        assert seen == [signal.SIGINT]
        assert_array_equal(found.decision, solve().decision)
        assert np.isfinite(found.decision).all()


def test_one_compiled_version_serves_every_call(classes, numbers):
    """A second version would cost the user another wait for the compiler."""
    X, y = classes
    K = rbf_kernel(X[:64])
    read_only = K.astype(np.float32)
    read_only.flags.writeable = False
    bounds = leave_out(64, 2)
    first = svm_paths(K, y[:64], [2.0, 1.0], bounds)
    svm_paths(read_only, y[:64].astype(int), [2, 1], bounds.astype(int), start=first.coef)
    svm_paths(np.asfortranarray(K), y[:64], [1.0], np.asfortranarray(bounds))
    svm_paths(K, numbers[1][:64], [1.0], bounds, epsilon=0, tol=1)
    from everyfold.svm.core.drivers import fold_paths
    from everyfold.svm.core.state import flush, smallest_magnitude

    for entry in (flush, fold_paths, smallest_magnitude):
        assert len(entry.signatures) == 1


@pytest.mark.parametrize("kind", ["hinge", "epsilon"])
def test_coefficients_sum_to_zero_on_a_kernel_of_whole_numbers(kind):
    """Directions cancel exactly there: a row that stands still must not join one again."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        X = rng.integers(-3, 4, size=(24, 2)).astype(float)
        y = X[:, 0] + rng.normal(size=24)
        K = (X @ X.T / 2.0 + 1.0) ** 3
        options = {"tol": TIGHT}
        if kind == "hinge":
            y = np.where(y > 0.0, 1.0, -1.0)
            paths = svm_paths(K, y, CS, np.ones((1, 24)), **options)
        else:
            paths = svm_paths(K, y, CS, np.ones((1, 24)), epsilon=0.1, **options)
        sums = np.abs(paths.coef[0].sum(axis=1))
        assert (sums <= 1e-9 * np.abs(paths.coef[0]).sum(axis=1)).all()
