"""Smooth kernel losses with few folds: iterations on all folds at once equal a loop of refits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, RepeatedKFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, HuberSVC, KernelLogisticClassifier, QuadraticSVR
from everyfold.crossval import Folds
from everyfold.crossval import kernel_newton as module
from everyfold.crossval.kernel_newton import AllFoldsKernel
from everyfold.crossval.refit import Refit, fit_parts
from everyfold.kernels import RBF
from everyfold.linalg.kernel_systems import KernelBasis, KernelSystems, WholeInverse
from everyfold.losses import HuberHinge, Logistic, SquaredHinge
from everyfold.operators import Dense
from everyfold.solvers import Classes, Problem

RIDGES = [50.0, 0.5, 0.005]


def rows(n=90, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def compare(problem, X, gamma, folds, ridges=RIDGES):
    """Both by one kernel; all folds of ours must be known to be exact where refits are."""
    operator = Dense().bind(RBF(gamma=gamma), X)
    found = list(AllFoldsKernel().evaluate(problem, operator, ridges, folds))
    wanted = fit_parts(Refit(), [problem], operator, ridges, folds)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_allclose(ours.values, theirs.values, rtol=1e-7, atol=1e-7)
        assert (ours.is_exact | ~theirs.is_exact).all()


@pytest.fixture
def no_refits(monkeypatch):
    def solve(*args, **more):
        raise AssertionError("a fold was fitted by itself")

    monkeypatch.setattr(module.Refit, "solve", solve)


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 0.3, 10.0, 1e4])
@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), HuberHinge(0.3)])
def test_any_width_and_ridge(loss, gamma):
    X, y = rows()
    folds = Folds.from_splits(list(KFold(4).split(X)), len(X))
    compare(Problem(y[:, None], np.ones(len(y)), loss, True), X, gamma, folds)


def test_weights_duplicates_and_folds_that_do_not_only_remove():
    X, y = rows()
    X[:20], y[:10], y[10:20] = X[20:40], y[20:30], -y[30:40]
    w = np.random.default_rng(0).uniform(0.0, 3.0, len(y))
    w[::7] = 0.0
    rng = np.random.default_rng(1)
    splits = [*RepeatedKFold(n_splits=3, n_repeats=2, random_state=0).split(X)]
    splits += [(rng.integers(0, 90, 70), rng.integers(0, 90, 20)) for _ in range(2)]
    folds = Folds.from_splits(splits, len(X))
    for intercept in (True, False):
        compare(Problem(y[:, None], w, Logistic(), intercept), X, 0.2, folds)


def test_balanced_classes_and_ridges_by_the_mean():
    X, y = rows()
    folds = Folds.from_splits(list(ShuffleSplit(3, random_state=0).split(X)), len(X))
    classes = Classes((y > 0).astype(int), balance="rows")
    weights = np.ones(len(y))
    compare(Problem(y[:, None], weights, Logistic(), True, classes=classes), X, 0.2, folds)
    problem = Problem(y[:, None], weights, Logistic(), True, ridge_scaling="mean")
    compare(problem, X, 0.2, folds, [0.1, 0.001])


def test_separable_classes_need_no_refit_and_several_targets_neither(no_refits):
    X, _ = rows()
    y = np.sign(X[:, :3])
    folds = Folds.from_splits(list(KFold(5).split(X)), len(X))
    operator = Dense().bind(RBF(gamma=0.1), X)
    problem = Problem(y, np.ones(len(y)), Logistic(), True)
    for record in AllFoldsKernel().evaluate(problem, operator, [1.0, 1e-4], folds):
        assert record.is_exact.all()
        assert np.isfinite(record.values).all()


def test_a_fold_of_one_class_is_fitted_as_a_refit_is():
    X, y = rows()
    order = np.argsort(y)
    folds = Folds.from_splits([(order[:30], order[60:]), (order[20:], order[:20])], len(X))
    compare(Problem(y[:, None], np.ones(len(y)), Logistic(), False), X, 0.2, folds)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("most", [0, 30, 200])
def test_systems_are_those_of_the_low_rank_part_or_the_matrix(most, kind):
    X, _ = rows()
    K = np.asfortranarray(RBF(gamma=0.3)(X))
    basis = KernelBasis.of(K, most, 1e-9)
    basis = basis if kind is np.float64 else basis.single()
    S = np.abs(np.random.default_rng(0).normal(size=(90, 3))).astype(kind)
    S[:40, 1] = 0.0
    B = np.random.default_rng(1).normal(size=(90, 3)).astype(kind)
    whole = np.array([False, False, True])
    found = KernelSystems.of(basis, S, np.full(3, 0.5, dtype=kind), whole).solve(B)
    low = basis.F @ basis.F.T + np.diag(basis.rest)
    for j in range(3):
        is_whole = whole[j] or np.count_nonzero(S[:, j]) <= 2.4 * basis.rank
        A = S[:, [j]] * (K if is_whole else low) * S[:, j] + 0.5 * np.eye(90)
        assert_allclose(
            found[:, j], np.linalg.solve(A, B[:, j]), atol=1e-9 if kind is np.float64 else 1e-3
        )


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_systems_of_most_rows_come_from_the_inverse_of_all(kind):
    X, _ = rows()
    K = RBF(gamma=2.0)(X, X)
    basis = KernelBasis.of(K, 10, 0.1)
    basis = basis.single() if kind == np.float32 else basis
    S = np.full((len(X), 3), 1.5, dtype=kind)
    S[:9, 0] = S[9:30, 1] = 0.0
    B = np.random.default_rng(0).normal(size=S.shape).astype(kind)
    ridges, known = np.full(3, 0.5, dtype=kind), WholeInverse()
    none = np.zeros(3, dtype=bool)
    for kept in ([0, 1, 2], [2, 1]):  # no new inverse for some of the columns, however few
        systems = KernelSystems.of(basis, S[:, kept], ridges[kept], none[kept], known)
        assert systems.whole is not None
        assert not systems.is_exact
        turned = np.arange(len(kept))[::-1]
        found = systems.subset(turned).solve(B[:, kept][:, ::-1])[:, ::-1]
        for j, k in enumerate(kept):
            A = K * np.outer(S[:, k], S[:, k]) + 0.5 * np.eye(len(X))
            expected = np.linalg.solve(A, B[:, k])
            assert_allclose(found[:, j], expected, atol=1e-4 if kind == np.float32 else 1e-12)
    uneven = S * np.linspace(1.0, 2.0, len(X), dtype=kind)[:, None]
    assert KernelSystems.of(basis, uneven, ridges, none, known).whole is None
    assert KernelSystems.of(basis, S, ridges * [1, 2, 3], none, known).whole is None
    assert KernelSystems.of(basis, S[:, :1], ridges[:1] * 3, none[:1], known).whole is None
    enough = KernelBasis.of(K, len(X), 1e-9)
    assert KernelSystems.of(enough, S, ridges, none, WholeInverse()).whole is None


def test_hinges_of_narrow_kernels_share_an_inverse(monkeypatch):
    X, y = rows(160)
    made = []
    run = WholeInverse.find

    def counted(self, *own):
        found = run(self, *own)
        made.append(found is not None)
        return found

    monkeypatch.setattr(WholeInverse, "find", counted)
    folds = Folds.from_splits(list(KFold(8).split(X)), len(X))
    problem = Problem(y[:, None], np.ones(len(y)), HuberHinge(0.3), True)
    compare(problem, X, 3.0, folds, [0.5, 0.02, 1e-3])
    assert any(made)


def test_fewer_columns_leave_more():
    X, _ = rows(300)
    basis = KernelBasis.of(np.asfortranarray(RBF(gamma=0.05)(X)), 200, 1e-9)
    some = basis.leading(0.1)
    assert 0 < some.rank < basis.rank
    assert some.rest.max() <= 0.1
    wanted = 1.0 - np.einsum("ij,ij->i", some.F, some.F)
    assert_allclose(some.rest, wanted, atol=1e-9)


@pytest.mark.parametrize(
    "estimator", [KernelLogisticClassifier(), HuberSVC(h=0.2), QuadraticSVR(epsilon=0.1)]
)
def test_searches_of_pipelines_groups_and_classes_equal_those_of_refits(estimator):
    X, f = rows(100)[0], rows(100)[0][:, 0] ** 2
    y = np.digitize(f, [0.3, 1.2]) if is_classifier(estimator) else f
    name = type(estimator).__name__.lower()
    groups = np.arange(100) % 9
    for model, prefix in (
        (estimator, ""),
        (make_pipeline(StandardScaler(), clone(estimator)), f"{name}__"),
    ):
        grid = {f"{prefix}C": [0.1, 100.0], f"{prefix}gamma": [0.01, 0.5]}
        options = {"cv": GroupKFold(4), "refit": False}
        ours = FastGridSearchCV(model, grid, **options).fit(X, y, groups=groups)
        theirs = GridSearchCV(model, grid, **options).fit(X, y, groups=groups)
        assert all("iterations" in words for words, _ in ours.plan_.methods)
        key = "mean_test_score"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-7)
