"""SVC, SVR and the smooth machines without refits, against scikit-learn's refits."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from joblib import effective_n_jobs, parallel_config
from joblib.parallel import BACKENDS, SequentialBackend, ThreadingBackend
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_diabetes, load_iris, make_classification, make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, NuSVR

import everyfold
from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    InexactWarning,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)
from everyfold.crossval.svm import FoldPaths
from everyfold.engine.execution import run
from everyfold.engine.execution.executor import local_threads
from everyfold.kernels import RBF
from everyfold.operators import Dense

pytestmark = pytest.mark.xdist_group("numba")

X, LABELS = make_classification(160, 5, n_informative=4, n_redundant=0, flip_y=0.1, random_state=0)
_, NUMBERS = make_regression(160, 5, noise=5.0, random_state=0)
NUMBERS = np.tanh(X @ np.array([1.0, -0.5, 0.3, 0.2, 0.0])) + 0.1 * np.sin(NUMBERS)
IRIS = load_iris(return_X_y=True)


@pytest.fixture
def solver():
    return "numba"


@pytest.mark.parametrize(
    "model",
    [
        SVC(gamma=0.2, tol=1e-6),
        SVC(gamma=0.2, C=20.0, class_weight="balanced", tol=1e-6),
        SVC(gamma=0.2, C=0.1, class_weight={0: 3.0}, tol=1e-6),
        SVC(tol=1e-6),
        SVC(gamma="auto", tol=1e-6),
        SVC(kernel="linear", tol=1e-6),
        SVC(kernel="poly", degree=2, gamma=0.1, coef0=1.0, tol=1e-6),
    ],
    ids=str,
)
@pytest.mark.parametrize("cv", [5, ms.ShuffleSplit(3, test_size=0.2, random_state=0)], ids=str)
def test_decisions_of_svc(model, cv, solver):
    if not isinstance(cv, int):
        arguments = {"cv": cv, "scoring": "roc_auc"}
        ours = cross_val_score(model, X, LABELS, **arguments)
        assert_allclose(ours, ms.cross_val_score(model, X, LABELS, **arguments), atol=1e-12)
        return
    arguments = {"cv": cv, "method": "decision_function"}
    ours = cross_val_predict(model, X, LABELS, **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, X, LABELS, **arguments), atol=2e-5)


@pytest.mark.parametrize(
    "model",
    [
        SVC(gamma=0.3, tol=1e-6),
        SVC(gamma=0.3, break_ties=True, tol=1e-6),
        SVC(gamma=0.3, decision_function_shape="ovo", tol=1e-6),
        SVC(tol=1e-6, class_weight="balanced"),
    ],
    ids=str,
)
def test_many_classes_one_versus_one(model, solver):
    cv = ms.StratifiedKFold(5, shuffle=True, random_state=1)
    for method in ("predict", "decision_function"):
        ours = cross_val_predict(model, *IRIS, cv=cv, method=method)
        theirs = ms.cross_val_predict(model, *IRIS, cv=cv, method=method)
        assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_exact_ties_are_the_second_class_of_a_pair(n_classes):
    """Of a kernel that is the identity, and as many rows of each class, only the intercept is left.

    It is 0 of every pair. Two classes have the sign of libsvm's values turned round.
    """
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % n_classes
    model = SVC(gamma=1e5)
    expected = ms.cross_val_predict(model, X, y, cv=5)
    assert_array_equal(cross_val_predict(model, X, y, cv=5), expected)
    for cv in (5, ms.RepeatedStratifiedKFold(n_splits=5, n_repeats=5, random_state=0)):
        found = cross_val_score(model, X, y, cv=cv)
        assert_array_equal(found, ms.cross_val_score(model, X, y, cv=cv))


def test_a_class_that_a_fold_does_not_know_gets_no_vote():
    ours = cross_val_predict(SVC(gamma=0.3), *IRIS, cv=ms.KFold(3))
    assert_array_equal(ours, ms.cross_val_predict(SVC(gamma=0.3), *IRIS, cv=ms.KFold(3)))


def test_a_fold_of_one_class_fails_alone_where_folds_have_kernels_of_their_own():
    flowers, species = IRIS
    folds = ms.PredefinedSplit(np.where(species == 0, np.arange(150) % 2, 2))
    arguments = {"cv": folds, "error_score": 0.0, "scoring": "accuracy"}
    with pytest.warns(FitFailedWarning):
        ours = FastGridSearchCV(SVC(), {"C": [1.0, 2.0]}, **arguments).fit(flowers, species)
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(SVC(), {"C": [1.0, 2.0]}, **arguments).fit(flowers, species)
    for i in range(3):
        key = f"split{i}_test_score"
        assert_array_equal(ours.cv_results_[key], theirs.cv_results_[key])
    with pytest.raises(ValueError, match="have one class only"):
        cross_val_predict(SVC(), flowers, species, cv=folds)


@pytest.mark.parametrize("model", [SVC(gamma=0.3), SVC(class_weight="balanced")], ids=str)
def test_a_class_whose_training_rows_have_no_weight_gets_no_vote(model):
    flowers, species = IRIS
    first = np.arange(150) % 3 < 2  # the training rows of the last of three folds
    arguments = {"cv": ms.PredefinedSplit(np.arange(150) % 3)}
    arguments["params"] = {"sample_weight": np.where(first & (species == 2), 0.0, 1.0)}
    for name in ("cross_val_predict", "cross_val_score"):
        ours = getattr(everyfold, name)(model, flowers, species, **arguments)
        assert_array_equal(ours, getattr(ms, name)(model, flowers, species, **arguments))
    # Weights stay with their rows when labels are permuted.
    ours = permutation_test_score(model, flowers, species, n_permutations=5, **arguments)[1]
    theirs = ms.permutation_test_score(model, flowers, species, n_permutations=5, **arguments)[1]
    assert_allclose(ours, theirs, atol=0.02)
    arguments["params"] = {"sample_weight": np.where(first & (species > 0), 0.0, 1.0)}
    with pytest.raises(ValueError, match="positive sample_weight of a fold have one class"):
        cross_val_predict(model, flowers, species, **arguments)


@pytest.mark.parametrize(
    "model", [SVR(gamma=0.2, tol=1e-6), SVR(C=10.0, epsilon=0.3, tol=1e-6)], ids=str
)
def test_svr(model, solver):
    ours = cross_val_predict(model, X, NUMBERS, cv=5)
    assert_allclose(ours, ms.cross_val_predict(model, X, NUMBERS, cv=5), atol=1e-3)


def test_weights_of_svc_and_svr(solver):
    w = np.random.default_rng(0).uniform(0.2, 3.0, len(X))
    w[::9] = 0.0
    for model, y in ((SVC(gamma=0.2, tol=1e-6), LABELS), (SVR(gamma=0.2, tol=1e-6), NUMBERS)):
        arguments = {"cv": 5, "params": {"sample_weight": w}}
        if isinstance(model, SVC):
            arguments["method"] = "decision_function"
        ours = cross_val_predict(model, X, y, **arguments)
        assert_allclose(ours, ms.cross_val_predict(model, X, y, **arguments), atol=1e-3)


def test_a_callable_kernel_takes_matrices_as_in_libsvm():
    def kernel(A, B):
        return np.exp(-0.2 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    model = SVC(kernel=kernel, tol=1e-6)
    ours = cross_val_predict(model, X, LABELS, cv=5, method="decision_function")
    plain = cross_val_predict(SVC(gamma=0.2, tol=1e-6), X, LABELS, cv=5, method="decision_function")
    assert_allclose(ours, plain, atol=1e-5)


def fold_scores(search):
    keys = [f"split{i}_test_score" for i in range(search.n_splits_)]
    return np.array([search.cv_results_[key] for key in keys])


GRID = {"C": [0.01, 0.1, 1.0, 10.0, 100.0], "gamma": [0.01, 0.2, "scale"]}


@pytest.mark.parametrize("weight", [None, "balanced", {0: 0.2}], ids=str)
@pytest.mark.parametrize("data", [(X, LABELS), IRIS], ids=["two classes", "three classes"])
def test_the_exact_table_is_grid_searchs(weight, data, solver):
    """To the last digit: no decision value is as near to 0 as the tolerance."""
    model, options = SVC(tol=1e-6, class_weight=weight), {"cv": 4, "refit": False}
    ours = FastGridSearchCV(model, GRID, order="exact", **options).fit(*data)
    theirs = ms.GridSearchCV(model, GRID, **options).fit(*data)
    assert_array_equal(fold_scores(ours), fold_scores(theirs))
    assert ours.cv_results_["is_exact"].all()


def test_the_exact_table_of_svr_is_grid_searchs(solver):
    options = {"cv": 4, "refit": False, "scoring": "neg_mean_absolute_error"}
    ours = FastGridSearchCV(SVR(), GRID, order="exact", **options).fit(X, NUMBERS)
    theirs = ms.GridSearchCV(SVR(), GRID, **options).fit(X, NUMBERS)
    assert_allclose(fold_scores(ours), fold_scores(theirs), atol=1e-3)
    assert ours.cv_results_["is_exact"].all()


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_decision_values_differ_by_the_tolerance(C, solver):
    model = SVC(gamma=0.2, C=C)
    arguments = {"cv": 10, "method": "decision_function"}
    ours = cross_val_predict(model, X, LABELS, **arguments)
    theirs = ms.cross_val_predict(model, X, LABELS, **arguments)
    assert_allclose(ours, theirs, atol=5.0 * model.tol)
    clear = np.abs(theirs) > 5.0 * model.tol
    labels = cross_val_predict(model, X, LABELS, cv=10)
    assert_array_equal(labels[clear], (theirs > 0.0)[clear])


def test_leave_one_out_of_svc_is_near_the_real_one():
    rng = np.random.default_rng(0)
    rows = rng.permutation(160)[:100]
    for C in (0.3, 3.0, 100.0):
        model = SVC(gamma=0.3, C=C)
        with pytest.warns(InexactWarning, match="approximation"):
            ours = cross_val_predict(model, X, LABELS, cv=ms.LeaveOneOut(), order=np.inf)
        wrong = ours[rows] != LABELS[rows]
        true = [
            model.fit(np.delete(X, i, 0), np.delete(LABELS, i)).predict(X[[i]])[0] != LABELS[i]
            for i in rows
        ]
        assert abs(wrong.sum() - np.sum(true)) <= 2


@pytest.mark.parametrize(
    "model",
    [
        HuberSVC(gamma=0.2),
        KernelLogisticClassifier(gamma=0.2),
        KernelClassifier("squared_hinge", gamma=0.2, class_weight="balanced"),
        KernelClassifier("huber_hinge", gamma="scale"),
        KernelRegressor("smooth_epsilon", gamma=0.2),
        QuadraticSVR(gamma=0.2),
    ],
    ids=str,
)
def test_smooth_machines(model):
    y = LABELS if hasattr(model, "decision_function") else NUMBERS
    ours = cross_val_score(model, X, y, cv=5)
    theirs = ms.cross_val_score(model, X, y, cv=5)
    assert_allclose(ours, theirs, atol=1e-6)


def test_mean_scaling_of_pairs_counts_the_rows_of_all_classes():
    """One alpha serves all pairs of a refit, so that it cannot know how many rows each has."""
    model = KernelClassifier("huber_hinge", gamma=0.3, multi_class="ovo")
    cv = ms.StratifiedKFold(4, shuffle=True, random_state=0)
    grid = {"alpha": [1e-3, 0.1]}
    search = FastGridSearchCV(model, grid, cv=cv, ridge_scaling="mean", scoring=_sum_of_decisions)
    found = fold_scores(search.fit(*IRIS))
    rows, labels = IRIS
    for i, (train, test) in enumerate(cv.split(rows, labels)):
        for k, alpha in enumerate(grid["alpha"]):
            model.set_params(alpha=alpha * len(train)).fit(rows[train], labels[train])
            expected = _sum_of_decisions(model, rows[test], labels[test])
            assert_allclose(found[i, k], expected, rtol=1e-6)
    assert search.best_estimator_.alpha == search.best_params_["alpha"] * len(labels)


def _sum_of_decisions(model, X, y):
    return float((model.decision_function(X) * [1.0, 2.0, 4.0]).sum())


def test_smooth_machines_where_the_kernel_depends_on_the_rows_are_exact():
    model = KernelLogisticClassifier(gamma="scale")
    ours = cross_val_predict(model, X, LABELS, cv=5, method="decision_function")
    theirs = ms.cross_val_predict(model, X, LABELS, cv=5, method="decision_function")
    assert_allclose(ours, theirs, atol=1e-6)


def test_a_fold_with_one_class():
    labels, rows = np.repeat([0, 1], 80), np.arange(160)
    halves = [(rows[:80], rows[80:]), (rows[::2], rows[1::2])]
    with pytest.warns(FitFailedWarning, match="one class"):
        scores = cross_val_score(SVC(gamma=0.2), X, labels, cv=halves, error_score=-1.0)
    assert scores[0] == -1.0
    assert scores[1] == ms.cross_val_score(SVC(gamma=0.2), X, labels, cv=halves[1:])


def test_a_fit_that_does_not_converge_is_no_score(monkeypatch):
    monkeypatch.setattr("everyfold.solvers.newton.MAX_STEPS", 1)
    monkeypatch.setattr("everyfold.crossval.kernel_newton._STEPS", 1)
    with pytest.raises(ValueError, match=r"(?s)all 3 folds failed.*did not converge"):
        cross_val_score(HuberSVC(gamma=0.2), X, LABELS, cv=3, error_score=-5.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NuSVR(), "try SVR"),
        (SVC(max_iter=10), "max_iter=10"),
        (SVC(C=-1.0), "'C' parameter of SVC must be .*Got -1.0"),
        (SVR(epsilon=-0.1), "'epsilon' parameter of SVR must be .*Got -0.1"),
    ],
    ids=str,
)
def test_refusals(model, message):
    y = NUMBERS if isinstance(model, SVR | NuSVR) else LABELS
    with pytest.raises((TypeError, ValueError), match=message):
        cross_val_score(model, X, y, fallback="refuse")


def test_separable_data_with_a_huge_penalty():
    labels = np.where(X[:, 0] > 0, 1, 0)
    model = SVC(C=1e10, gamma=0.1)
    arguments = {"cv": 5, "method": "decision_function"}
    ours = cross_val_predict(model, X, labels, **arguments)
    theirs = ms.cross_val_predict(model, X, labels, **arguments)
    assert_allclose(ours, theirs, atol=5.0 * model.tol)
    assert_array_equal(
        cross_val_score(model, X, labels, cv=5), ms.cross_val_score(model, X, labels, cv=5)
    )


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_only_what_was_solved_to_libsvms_tolerance_is_called_exact():
    grid = {"C": np.logspace(-1, 2, 10), "gamma": [0.2]}
    staged = FastGridSearchCV(SVC(), grid, cv=5, refit=False, order="screen").fit(X, LABELS)
    assert 0 < staged.cv_results_["is_exact"].sum() < 10
    theirs = ms.GridSearchCV(SVC(), grid, cv=5, refit=False).fit(X, LABELS).cv_results_
    for order in ("auto", "exact"):
        whole = FastGridSearchCV(SVC(), grid, cv=5, refit=False, order=order).fit(X, LABELS)
        assert whole.cv_results_["is_exact"].all()
        assert_allclose(whole.cv_results_["mean_test_score"], theirs["mean_test_score"], atol=1e-3)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_steps_of_the_smoothed_loss_are_never_called_exact():
    grid = {"C": [0.1, 1.0], "gamma": [0.2]}
    options = {"cv": ms.KFold(40), "refit": False, "n_confirm": 0, "order": np.inf}
    search = FastGridSearchCV(SVC(), grid, **options)
    assert not search.fit(X, LABELS).cv_results_["is_exact"].any()


# -- threads -----------------------------------------------------------------------------------


def watch_threads(monkeypatch):
    """A list that fills with the numbers of threads that the compiled paths get."""
    seen, fit_parts = [], run.fit_parts

    def watched(*args, **kwargs):
        seen.append(kwargs.get("threads", 1))
        return fit_parts(*args, **kwargs)

    monkeypatch.setattr(run, "fit_parts", watched)
    return seen


def threads_of(monkeypatch, estimator, grid, data, **options):
    with monkeypatch.context() as patch:
        seen = watch_threads(patch)
        search = FastGridSearchCV(estimator, grid, refit=False, n_confirm=0, **options).fit(*data)
    return seen, search.cv_results_["mean_test_score"]


SVM_GRID = {"C": np.logspace(-1, 2, 6), "gamma": [0.1, 0.5]}


@pytest.mark.parametrize("data", [(X, LABELS), IRIS], ids=["two classes", "three classes"])
def test_jobs_are_threads_over_the_folds_of_one_kernel(monkeypatch, data):
    seen, threaded = threads_of(monkeypatch, SVC(), SVM_GRID, data, cv=4, n_jobs=2)
    assert set(seen) == {2}
    seen, alone = threads_of(monkeypatch, SVC(), SVM_GRID, data, cv=4, n_jobs=1)
    assert set(seen) == {1}
    assert_array_equal(threaded, alone)


@pytest.mark.parametrize("function", [cross_val_predict, cross_val_score])
def test_functions_share_the_folds_out(monkeypatch, function):
    seen = watch_threads(monkeypatch)
    model = SVC(gamma=0.3)
    assert_array_equal(function(model, X, LABELS, n_jobs=2), function(model, X, LABELS))
    assert seen == [2, 1]


def test_more_jobs_than_folds_but_not_kernels_are_workers(monkeypatch):
    grid = {"C": [1.0], "gamma": [0.1, 0.5, 1.0]}
    seen, scores = threads_of(monkeypatch, SVC(), grid, (X, LABELS), cv=2, n_jobs=3)
    assert seen == []  # they are in other processes
    _, alone = threads_of(monkeypatch, SVC(), grid, (X, LABELS), cv=2)
    assert_array_equal(scores, alone)


def test_a_backend_that_works_elsewhere_gets_kernels(monkeypatch):
    class Elsewhere(SequentialBackend):
        def effective_n_jobs(self, n_jobs):
            return 2

    monkeypatch.setitem(BACKENDS, "sequential", ThreadingBackend)
    monkeypatch.setitem(BACKENDS, "elsewhere", Elsewhere)
    with parallel_config(backend="elsewhere"):
        assert effective_n_jobs(2) == 2
        assert local_threads(2) == 1
    assert local_threads(2) == 2


def test_a_kernel_of_each_fold_is_not_shared_out(monkeypatch):
    grid = {"C": [0.1, 1.0], "gamma": ["scale"]}
    seen, _ = threads_of(monkeypatch, SVR(), grid, (X, NUMBERS), cv=3, n_jobs=2)
    assert set(seen) <= {1}


@pytest.mark.parametrize("C", [1e2, 1e5])
def test_large_costs_get_the_kernel_that_libsvm_rounds(C):
    """Functions of float32 are off by some units in the last place, which a large C shows."""
    rows = np.random.default_rng(0).normal(size=(60, 4))
    kernel = RBF(0.3)
    operator = Dense().bind_shared(kernel, rows, kernel.base_matrix(rows))
    made = FoldPaths(1e-3)._single(operator, [1.0 / (2.0 * C)]).rows[:, :60]
    rounded = kernel(rows).astype(np.float32)
    assert np.array_equal(made, rounded) is (C > 1e3)
    np.testing.assert_allclose(made, rounded, rtol=2e-6)


# -- kernels of which float32 keeps few digits ---------------------------------------------------


def lines(n_classes):
    """Rows of overlapping classes, that a linear kernel tells apart in part."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 5)) * np.linspace(1.0, 3.0, 5)
    score = rows @ np.array([1.0, -1.0, 0.5, 0.3, 0.2]) + rng.normal(size=120)
    return rows, np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("steps", [(), (StandardScaler(with_std=False),)], ids=["all", "per fold"])
def test_nearly_constant_kernels_are_linear_in_the_limit(n_classes, steps):
    rows, labels = lines(n_classes)
    gamma, Cs = 1e-8, np.array([1e8, 1e10])
    narrow = make_pipeline(*steps, SVC(gamma=gamma, tol=1e-5))
    found = FastGridSearchCV(narrow, {"svc__C": Cs}, cv=4, n_confirm=0).fit(rows, labels)
    linear = make_pipeline(*steps, SVC(kernel="linear", tol=1e-5))
    limit = ms.GridSearchCV(linear, {"svc__C": 2.0 * Cs * gamma}, cv=4).fit(rows, labels)
    expected = limit.cv_results_["mean_test_score"]
    assert_allclose(found.cv_results_["mean_test_score"], expected, atol=1.01 / 120)


def test_nearly_constant_kernels_of_regression():
    rows, _ = lines(2)
    y = rows @ np.array([1.0, -1.0, 0.5, 0.3, 0.2])
    y += np.random.default_rng(1).normal(size=120)
    gamma, Cs = 1e-8, np.array([1e7, 1e9])
    narrow = FastGridSearchCV(SVR(gamma=gamma), {"C": Cs}, cv=4, n_confirm=0).fit(rows, y)
    linear = ms.GridSearchCV(SVR(kernel="linear"), {"C": 2.0 * Cs * gamma}, cv=4).fit(rows, y)
    expected = linear.cv_results_["mean_test_score"]
    assert_allclose(narrow.cv_results_["mean_test_score"], expected, atol=1e-3)


@pytest.mark.parametrize("first", [0, 50], ids=["three classes", "two"])
def test_what_the_rounding_of_the_kernel_decides_is_not_called_exact(first):
    flowers, kinds = load_iris(return_X_y=True)
    grid = {"C": [1.0, 1e3, 1e9]}
    search = FastGridSearchCV(SVC(gamma=0.01), grid, cv=3, n_confirm=0)
    search.fit(flowers[first:], kinds[first:])
    assert search.cv_results_["is_exact"].tolist() == [True, True, False]


# -- values that differ by few tolerances --------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("steps", [(), (StandardScaler(with_std=False),)], ids=["all", "per fold"])
def test_small_targets_are_solved_as_finely_as_they_need(kernel, steps):
    """The tolerance has the unit of y: libsvm's own R² is off by up to 0.02 here."""
    rows, y = load_diabetes(return_X_y=True)
    some = np.random.default_rng(3).permutation(len(y))[:70]
    rows, y = 100.0 * rows[some], 1e-3 * y[some]
    machine = make_pipeline(*steps, SVR(kernel=kernel, gamma=1e-3, epsilon=0.02))
    grid = {"svr__C": [0.1, 1.0]}
    found = FastGridSearchCV(machine, grid, cv=4, n_confirm=0).fit(rows, y).cv_results_
    machine.set_params(svr__tol=1e-8)
    truth = ms.GridSearchCV(machine, grid, cv=4).fit(rows, y).cv_results_
    assert_allclose(found["mean_test_score"], truth["mean_test_score"], atol=3e-4)
    assert found["is_exact"].all()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("steps", [(), (StandardScaler(with_std=False),)], ids=["all", "per fold"])
@pytest.mark.filterwarnings("ignore:the best candidate")
def test_values_that_differ_by_few_tolerances_rank_rows(n_classes, steps):
    """A small C, alone, in a grid, and solved to the last digits."""
    rows, labels = lines(n_classes)
    unequal = np.flatnonzero((labels > 0) | (np.arange(120) % 3 > 0))
    rows, labels = rows[unequal], labels[unequal]
    Cs, options = [1e-5, 1e-4, 1e-3], {"cv": 4, "scoring": "roc_auc"}
    if n_classes > 2:
        options["scoring"] = share_in_order
    machine = make_pipeline(*steps, SVC(gamma=0.02))
    grid = FastGridSearchCV(machine, {"svc__C": Cs}, n_confirm=0, **options).fit(rows, labels)
    scores = grid.cv_results_["mean_test_score"]
    machine.set_params(svc__tol=1e-10)
    truth = ms.GridSearchCV(machine, {"svc__C": Cs}, **options).fit(rows, labels)
    assert_allclose(scores, truth.cv_results_["mean_test_score"], atol=1e-6)
    machine.set_params(svc__tol=1e-3)
    for C, score in zip(Cs, scores, strict=True):
        alone = FastGridSearchCV(machine, {"svc__C": [C]}, n_confirm=0, **options)
        alone.fit(rows, labels)
        assert_allclose(alone.cv_results_["mean_test_score"], [score], atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("steps", [(), (StandardScaler(with_std=False),)], ids=["all", "per fold"])
@pytest.mark.filterwarnings("ignore:the best candidate")
def test_nearly_constant_kernels_rank_rows_at_a_small_cost(n_classes, steps):
    """Rounded to float32 all entries are alike; without what they have in common they differ."""
    rows, labels = lines(n_classes)
    unequal = np.flatnonzero(np.arange(120) % 5 >= n_classes - labels - 1)
    rows, labels = rows[unequal], labels[unequal]
    gamma, Cs = 1e-8, np.array([1e-2, 1.0])
    scoring = "roc_auc" if n_classes == 2 else share_in_order
    narrow = make_pipeline(*steps, SVC(gamma=gamma))
    found = FastGridSearchCV(narrow, {"svc__C": Cs}, cv=4, n_confirm=0, scoring=scoring)
    found.fit(rows, labels)
    linear = make_pipeline(*steps, SVC(kernel="linear", tol=1e-12))
    limit = ms.GridSearchCV(linear, {"svc__C": 2.0 * Cs * gamma}, cv=4, scoring=scoring)
    expected = limit.fit(rows, labels).cv_results_["mean_test_score"]
    assert_allclose(found.cv_results_["mean_test_score"], expected, atol=2e-3)


def share_in_order(machine, rows, labels):
    """The share of pairs of rows that decision values put in the order of their labels."""
    values = machine.decision_function(rows)
    values = values[:, -1] - values[:, 0]
    pairs = labels[:, None] > labels
    return float((values[:, None] > values)[pairs].mean())


def test_r2_of_few_rows_does_not_show_the_tolerance():
    # libsvm's tolerance of 1e-3 is 1/400 of the spread of y here and moves R² by up to 5e-3.
    differences = []
    for seed in (5, 12, 28):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(24, 4))
        y = 0.4 * (X[:, 0] + rng.normal(size=24))
        cv = ms.ShuffleSplit(4, test_size=7, random_state=seed)
        precise = ms.cross_val_score(SVR(epsilon=0.0, tol=1e-9), X, y, cv=cv)
        differences.append(cross_val_score(SVR(epsilon=0.0), X, y, cv=cv) - precise)
    assert np.abs(differences).max() < 1e-3
