"""Where only libsvm gives libsvm's numbers: intercepts that are not unique, indefinite kernels."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV, cross_val_predict, cross_val_score
from everyfold._sklearn_private import classify_by_libsvm
from everyfold.crossval import svm as libsvm
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import PairProblems, pair_paths

pytestmark = [
    pytest.mark.xdist_group("numba"),
    pytest.mark.filterwarnings("ignore:the best candidate:UserWarning"),  # tiny Cs
]

CELLS = load_breast_cancer(return_X_y=True)
CELLS = scale(CELLS[0]), CELLS[1]
WINE = load_wine(return_X_y=True)
WINE = scale(WINE[0]), WINE[1]
IRIS = load_iris(return_X_y=True)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
LABELS = (X[:, 0] + 0.8 * RNG.normal(size=90) > 0.6).astype(int)
NUMBERS = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=90)
SCORE = "mean_test_score"


@pytest.fixture
def solver():
    return "numba"


@pytest.fixture
def fits(monkeypatch):
    """A list of the folds and Cs that libsvm was asked for."""
    seen, fit = [], libsvm.Libsvm.fit

    def watched(self, problem, active, K, C):
        seen.append(C)
        return fit(self, problem, active, K, C)

    monkeypatch.setattr(libsvm.Libsvm, "fit", watched)
    return seen


def tables(estimator, grid, data, *, params=None, **options):
    """Scores of ours and of GridSearchCV's, fold by fold."""
    params = params or {}
    own = {"order": options.pop("order", "exact"), "verbose": 1}  # which notes the intercepts
    ours = FastGridSearchCV(estimator, grid, refit=False, **own, **options).fit(*data, **params)
    theirs = ms.GridSearchCV(estimator, grid, refit=False, **options).fit(*data, **params)
    keys = [f"split{i}_test_score" for i in range(theirs.n_splits_)]
    found = [np.array([search.cv_results_[key] for key in keys]) for search in (ours, theirs)]
    return ours, *found


def spread(model, X, y, sample_weight=None):
    """A score that sees every digit of the values."""
    values = getattr(model, "decision_function", model.predict)(X)
    return float((values * np.linspace(1.0, 2.0, values.size).reshape(values.shape)).sum())


# -- an intercept that is not unique ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"), [(CELLS, [0.529, 0.902, 0.939]), (WINE, [0.492, 0.350, 0.933])]
)
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_no_free_support_vector_has_libsvms_intercept(data, expected, n_jobs, solver):
    """Class totals of C are equal to rounding, which decides: libsvm's b is mostly an end."""
    grid = {"C": [0.001, 0.01, 0.1], "gamma": [0.01]}
    model = SVC(class_weight="balanced")
    search, ours, theirs = tables(model, grid, data, cv=5, n_jobs=n_jobs)
    assert_array_equal(ours, theirs)
    assert_allclose(theirs.mean(axis=0), expected, atol=5e-4)
    assert search.cv_results_["is_exact"].all()


GAMMA = {"gamma": 0.05}
KINDS = {
    "rbf": GAMMA,
    "linear": {},
    "poly": {"degree": 2, "coef0": 1.0, **GAMMA},
    "scale": {"gamma": "scale"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["balanced", "dict", "rows", "both", "zeros"])
def test_decision_values_with_no_free_support_vector(kind, weights, solver):
    """To the last digits, not to a tolerance: the interval of b is of the order of 1 here."""
    train, test = np.arange(70), np.arange(70, 90)
    is_used = np.arange(90) % 4 > 0 if weights == "zeros" else np.ones(90, dtype=bool)
    count = np.bincount(LABELS[train], weights=is_used[train])
    model = SVC(kernel="rbf" if kind == "scale" else kind, C=0.0003, **KINDS[kind])
    w = np.ones(90)
    if weights == "balanced":
        model.set_params(class_weight="balanced")
    if weights == "dict":
        model.set_params(class_weight={0: 0.3, 1: 0.3 * count[0] / count[1]})
    if weights == "both":
        model.set_params(class_weight={0: 0.3, 1: 7.0})
        w = 1.0 / (count * [0.3, 7.0])[LABELS]
    if weights in ("rows", "zeros"):
        w = is_used / (count / 11.0)[LABELS]
    search, ours, theirs = tables(
        model,
        {"C": [0.0003, 0.0007]},
        (X, LABELS),
        cv=[(train, test)],
        scoring=spread,
        params={"sample_weight": w},
    )
    assert_allclose(ours, theirs, rtol=1e-7)
    if solver == "numba":
        assert "2 candidates" in str(search.plan_.notes)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_pairs_of_classes_with_no_free_support_vector(shape, solver):
    model = SVC(C=0.002, gamma=0.02, class_weight="balanced", decision_function_shape=shape)
    arguments = {"cv": ms.ShuffleSplit(1, test_size=0.3, random_state=0), "scoring": spread}
    ours = cross_val_score(model, *IRIS, **arguments)
    assert_allclose(ours, ms.cross_val_score(model, *IRIS, **arguments), atol=1e-6)


@pytest.mark.parametrize(
    "cv",
    [
        ms.ShuffleSplit(8, test_size=0.3, random_state=1),
        ms.StratifiedKFold(4, shuffle=True, random_state=3),
        [(np.r_[0:60, 0:30], np.arange(60, 90)), (np.arange(89, 19, -1), np.arange(20))],
    ],
    ids=["shuffled rows", "folds", "repeated and reversed rows"],
)
def test_rows_come_in_the_order_of_the_splitter(cv, solver):
    """What rounding decides depends on the order of the training rows."""
    grid = {"C": [0.0005, 0.003, 0.02, 0.05], "gamma": [0.02, 0.3]}
    model = SVC(class_weight="balanced")
    _, ours, theirs = tables(model, grid, (X, LABELS), cv=cv, scoring=spread)
    assert_allclose(ours, theirs, atol=0.02, rtol=1e-3)


def test_steps_before_the_kernel():
    model = make_pipeline(StandardScaler(), SVC(gamma=0.01, class_weight="balanced"))
    grid = {"svc__C": [0.001, 0.01]}
    for data, jobs in ((CELLS, None), (WINE, 2)):
        search, ours, theirs = tables(model, grid, data, cv=3, n_jobs=jobs)
        assert_array_equal(ours, theirs)
        assert "not unique" in str(search.plan_)


def test_a_precomputed_kernel():
    K = rbf_kernel(CELLS[0], gamma=0.01)
    model = SVC(kernel="precomputed", class_weight="balanced")
    _, ours, theirs = tables(model, {"C": [0.001, 0.01]}, (K, CELLS[1]), cv=5)
    assert_array_equal(ours, theirs)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_svr_with_no_free_support_vector(epsilon, is_weighted, solver):
    """An even number of rows, all at their bounds: b is any point between two targets."""
    rows = np.r_[:45, 46:89]
    w = np.tile([3.0, 3.0, 0.7, 0.7], 22) if is_weighted else np.ones(88)
    model = SVR(C=1e-4, gamma=0.2, epsilon=epsilon)
    data = X[rows], np.sort(NUMBERS[rows])
    arguments = {"cv": ms.KFold(4), "params": {"sample_weight": w}}
    ours = cross_val_predict(model, *data, **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, *data, **arguments), atol=1e-6)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_coarsely_solved_candidates_have_libsvms_intercept_too():
    """A path of five or more Cs: most are not solved to tolerance, and none may be far off."""
    grid = {"C": [0.0005, 0.001, 0.002, 0.01, 0.02, 1.0, 3.0], "gamma": [0.01]}
    model = SVC(class_weight="balanced")
    search, ours, theirs = tables(model, grid, CELLS, cv=5, order="screen")
    assert_allclose(ours, theirs, atol=0.03)
    assert_array_equal(ours[:, :4], theirs[:, :4])
    assert search.cv_results_["is_exact"][:4].all()


def test_only_cells_without_a_free_support_vector_are_libsvms(fits):
    grid = {"C": [0.001, 0.01, 1.0, 10.0], "gamma": [0.01]}
    model = SVC(class_weight="balanced")
    options = {"cv": 5, "refit": False, "order": "exact", "verbose": 1}
    search = FastGridSearchCV(model, grid, **options).fit(*CELLS)
    assert sorted(fits) == [0.001] * 5 + [0.01] * 5
    assert "2 candidates" in next(note for note in search.plan_.notes if "not unique" in note)
    fits.clear()
    search = FastGridSearchCV(SVC(), grid, **options).fit(*CELLS)
    assert fits == []
    assert "not unique" not in str(search.plan_)


# -- C by the number of rows -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (SVC(tol=1e-5), (X, LABELS)),
        (SVC(tol=1e-5, gamma=0.1, class_weight="balanced"), (X, LABELS)),
        (SVC(tol=1e-5, gamma=0.1), IRIS),
        (SVR(tol=1e-5, gamma=0.1, epsilon=0.05), (X, NUMBERS)),
        (make_pipeline(StandardScaler(), SVC(tol=1e-5)), WINE),
    ],
    ids=["rows", "balanced", "pairs", "regression", "steps"],
)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_mean_scaling_divides_C_by_the_training_rows(model, data, is_weighted, solver):
    rows, y = data
    name = "C" if isinstance(model, SVC | SVR) else "svc__C"
    key = name.replace("C", "sample_weight")
    w = np.random.default_rng(1).integers(0, 3, len(y)) * 1.0 if is_weighted else np.ones(len(y))
    cv = ms.ShuffleSplit(3, test_size=0.25, random_state=0)
    grid = {name: [2.0, 300.0, 4000.0]}
    search = FastGridSearchCV(
        model, grid, cv=cv, scoring=spread, ridge_scaling="mean", order="exact"
    ).fit(rows, y, **{key: w})
    for i, (train, test) in enumerate(cv.split(rows, y)):
        for k, C in enumerate(grid[name]):
            model.set_params(**{name: C / np.count_nonzero(w[train])})
            model.fit(rows[train], y[train], **{key: w[train]})
            found = search.cv_results_[f"split{i}_test_score"][k]
            assert_allclose(found, spread(model, rows[test], y[test]), rtol=1e-3, atol=1e-2)
    final = search.best_estimator_ if name == "C" else search.best_estimator_[-1]
    assert search.best_params_[name] / np.count_nonzero(w) == final.C


@pytest.mark.parametrize("cv", [ms.LeaveOneOut(), ms.KFold(30)], ids=str)
@pytest.mark.parametrize("data", [(X, LABELS), IRIS], ids=["two classes", "pairs"])
def test_mean_scaling_of_many_folds_is_that_of_a_scaled_C(cv, data):
    """Folds of one size: C by their rows in the other convention gives the same table."""
    left = len(data[1]) - len(data[1]) // cv.get_n_splits(data[0])
    Cs = np.array([3.0, 100.0, 2000.0])
    cv = ms.KFold(30, shuffle=True, random_state=0) if isinstance(cv, ms.KFold) else cv
    options = {"cv": cv, "refit": False, "n_confirm": 0, "scoring": spread}
    model = SVC(gamma=0.1, decision_function_shape="ovo")
    mean = FastGridSearchCV(model, {"C": Cs}, ridge_scaling="mean", **options)
    plain = FastGridSearchCV(model, {"C": Cs / left}, **options)
    found, expected = (search.fit(*data).cv_results_[SCORE] for search in (mean, plain))
    # One step to a fold's own ridge begins at another fit on all rows.
    assert_allclose(found, expected, rtol=1e-3 if isinstance(cv, ms.LeaveOneOut) else 0.02)
    assert np.ptp(expected) > 0.01 * np.abs(expected).max()  # C is seen


# -- what libsvm alone can solve, and what nobody does ---------------------------------------------


def tanh(A, B):
    return np.tanh(0.3 * A @ B.T - 0.5)


@pytest.mark.parametrize("kernel", ["callable", "precomputed", "steps"])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_an_indefinite_kernel_is_solved_by_libsvm(kernel, n_jobs):
    grid = {"C": [0.1, 10.0, 1000.0]}
    rows, model = CELLS[0][::3], SVC(kernel=tanh)
    if kernel == "precomputed":
        rows, model = tanh(rows, rows), SVC(kernel="precomputed")
    if kernel == "steps":
        grid, model = {"svc__C": grid["C"]}, make_pipeline(StandardScaler(), model)
    data = rows, CELLS[1][::3]
    search, ours, theirs = tables(model, grid, data, cv=4, n_jobs=n_jobs, scoring=spread)
    assert_allclose(ours, theirs, rtol=1e-7)
    assert search.cv_results_["is_exact"].all()
    assert "positive semi-definite" in str(search.plan_)


def test_an_indefinite_kernel_in_svr_and_in_pairs():
    K = tanh(X, X)
    model = SVR(kernel="precomputed", C=10.0)
    ours = cross_val_predict(model, K, NUMBERS, cv=4)
    assert_allclose(ours, ms.cross_val_predict(model, K, NUMBERS, cv=4), rtol=1e-7)
    model = SVC(kernel=tanh, C=10.0)
    arguments = {"method": "decision_function", "cv": 4}
    ours = cross_val_predict(model, *IRIS, **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, *IRIS, **arguments), rtol=1e-5)


def test_an_indefinite_kernel_of_many_folds():
    """There is no minimum on all rows to step from, so that every fold is fitted."""
    K, cv = tanh(X, X), ms.KFold(30)
    model = SVC(kernel="precomputed", C=10.0)
    arguments = {"cv": cv, "method": "decision_function"}
    ours = cross_val_predict(model, K, LABELS, **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, K, LABELS, **arguments), rtol=1e-7)


def test_a_kernel_that_is_semidefinite_to_rounding_is_not_libsvms(fits):
    K = rbf_kernel(X, gamma=0.01).astype(np.float32)  # its smallest eigenvalues are rounding
    assert np.linalg.eigvalsh(K.astype(np.float64)).min() < -1e-9
    for model, rows in (
        (SVC(kernel="precomputed"), K),
        (SVC(kernel=lambda A, B: A @ B.T), X),
    ):
        cross_val_score(model, rows, LABELS, cv=3)
    assert fits == []


def test_svr_takes_one_target():
    Y = np.column_stack([NUMBERS, NUMBERS])
    for function in (cross_val_predict, cross_val_score):
        with pytest.raises(ValueError, match=r"\(90, 2\).*MultiOutputRegressor"):
            function(SVR(gamma=0.1), X, Y)
    with pytest.raises(ValueError, match=r"\(90, 2\).*MultiOutputRegressor"):
        FastGridSearchCV(SVR(gamma=0.1), {"C": [1.0]}).fit(X, Y)
    with pytest.warns(DataConversionWarning):
        ours = cross_val_predict(SVR(gamma=0.1), X, NUMBERS[:, None], cv=3)
    assert_array_equal(ours, cross_val_predict(SVR(gamma=0.1), X, NUMBERS, cv=3))


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_a_kernel_near_the_identity_has_libsvms_signs(C):
    # Every support vector is free and every held-out value is b, whose last digits say its sign.
    rng = np.random.default_rng(3)
    X = rng.normal(size=(160, 6))
    y = (X[:, 0] + 0.3 * rng.normal(size=160) > 0).astype(int)
    model = SVC(C=C, gamma=100.0)
    assert_array_equal(cross_val_score(model, X, y, cv=5), ms.cross_val_score(model, X, y, cv=5))


@pytest.mark.parametrize("kernel", ["precomputed", rbf_kernel])
def test_rows_of_weight_0_are_refused_where_scikit_learns_winner_would_mistake_them(kernel):
    K = rbf_kernel(X) if kernel == "precomputed" else X
    weights = np.ones(len(X))
    weights[[0, 5]] = 0.0
    # The fit that a winner would be: its support vectors are those of other rows.
    slow = SVC(kernel=kernel).fit(K, LABELS, sample_weight=weights)
    right = SVC(gamma=1.0 / X.shape[1]).fit(X, LABELS, sample_weight=weights)
    assert np.abs(slow.decision_function(K) - right.decision_function(X)).max() > 0.1
    search = FastGridSearchCV(SVC(kernel=kernel), {"C": [1.0]})
    with pytest.raises(ValueError, match=r"sample_weight is 0 for 2 rows.*refit=False"):
        search.fit(K, LABELS, sample_weight=weights)
    search = FastGridSearchCV(SVC(kernel=kernel), {"C": [1.0]}, refit=False)
    search.fit(K, LABELS, sample_weight=weights)
    plain = FastGridSearchCV(SVC(gamma=1.0 / X.shape[1]), {"C": [1.0]})
    plain.fit(X, LABELS, sample_weight=weights)
    assert search.cv_results_["mean_test_score"] == plain.cv_results_["mean_test_score"]


# -- libsvm without its estimator, and pairs of classes in one call --------------------------------


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("shrinking", [True, False])
def test_raw_libsvm_is_svcs_own_fit_to_the_last_digit(C, shrinking):
    K, weights = rbf_kernel(X, gamma=0.05), np.linspace(0.5, 2.0, 90)
    factors = {0: 0.7, 1: 1.9}
    fitted = SVC(kernel="precomputed", C=C, shrinking=shrinking, class_weight=factors)
    fitted.fit(K, LABELS, sample_weight=weights)
    options = {"C": C, "tol": 1e-3, "shrinking": shrinking}
    support, coef, b, is_converged = classify_by_libsvm(
        K, LABELS.astype(float), weights, np.array([0.7, 1.9]), options
    )
    assert_array_equal(support, fitted.support_)
    assert_array_equal(coef, fitted.dual_coef_[0])
    assert b == fitted.intercept_[0]
    assert is_converged


def test_pairs_in_one_call_are_those_of_libsvm():
    """Rows in any order and of any number, some shared by pairs; Cs in any order."""
    K, weights, Cs = rbf_kernel(X, gamma=0.5), np.linspace(0.5, 2.0, 90), [10.0, 0.5, 2.0]
    chosen = [RNG.permutation(90)[:n] for n in (90, 41, 64)]
    every, starts = np.concatenate(chosen), np.cumsum([0, 90, 41, 64])
    pairs = PairProblems(starts, every, 2.0 * LABELS[every] - 1.0, weights[every])
    found = pair_paths(Kernel32(K), pairs, Cs, tol=1e-7)
    assert found.converged.all()
    for pair, rows in enumerate(chosen):
        for k, C in enumerate(Cs):
            fitted = SVC(kernel="precomputed", C=C, tol=1e-7)
            fitted.fit(K[np.ix_(rows, rows)], LABELS[rows], sample_weight=weights[rows])
            coef = np.zeros(len(rows))
            coef[fitted.support_] = fitted.dual_coef_[0]
            own = found.coef[k, starts[pair] : starts[pair + 1]]
            assert_allclose(own, coef, atol=1e-4 * C)
            assert_allclose(found.intercept[pair, k], fitted.intercept_[0], atol=1e-4)


@pytest.mark.parametrize("steps", [True, False])
def test_folds_without_a_class_have_the_pairs_of_the_others(steps, solver):
    """Classes of which a training set has no row, or no row with a weight."""
    y = np.repeat([0, 1, 2, 3], [12, 30, 30, 18])
    weights = np.ones(90)
    weights[np.flatnonzero(y == 3)[:9]] = 0.0
    splits = [(np.r_[12:90], np.r_[0:12, 20:25]), (np.r_[0:72], np.r_[70:90])]
    splits.append((RNG.permutation(90)[:60], np.arange(90)))
    model = make_pipeline(StandardScaler(), SVC()) if steps else SVC()
    prefix = "svc__" if steps else ""
    grid = {f"{prefix}C": [0.01, 1.0, 30.0], f"{prefix}gamma": [0.01, 0.5]}
    params = {f"{prefix}sample_weight": weights}
    _, ours, theirs = tables(model, grid, (X, y), params=params, cv=splits)
    assert_array_equal(ours, theirs)


# -- scikit-learn's examples in which scores differ ------------------------------------------------


@pytest.mark.parametrize("seed", [1, 24])
def test_labels_differ_where_the_tolerance_decides(seed):
    """Plot_nested_cross_validation_iris: a value that libsvm, solving finer, has on our side."""
    (rows, y), options = IRIS, {"C": 100.0, "gamma": 0.01, "decision_function_shape": "ovo"}
    cv, found = ms.KFold(4, shuffle=True, random_state=seed), []
    for own, tol in ((cross_val_predict, 1e-3), *((ms.cross_val_predict, t) for t in (1e-3, 1e-9))):
        model = SVC(tol=tol, **options)
        found.append(own(model, rows, y, cv=cv, method="decision_function"))
    ours, theirs, fine = found
    turned = (ours > 0.0) != (theirs > 0.0)
    assert np.all(np.abs(fine[turned]) < 5e-3)
    assert_allclose(ours, fine, atol=0.015)


@pytest.mark.parametrize("gamma", [1e-4, 1e-5, 1e-6])
def test_a_nearly_constant_kernel_is_solved_without_the_constant(gamma):
    """Plot_successive_halving_heatmap: float32 takes the digits of libsvm's kernel.

    A constant added to the kernel changes no solution, so that the truth is libsvm's without it.
    """
    rows, y = make_classification(n_samples=1000, random_state=np.random.RandomState(0))
    C, cv, options = 1e5, ms.StratifiedKFold(5), {"method": "decision_function"}
    K = np.expm1(-gamma * euclidean_distances(rows, squared=True)) / gamma
    model = SVC(kernel="precomputed", C=C * gamma, tol=1e-6)
    truth = ms.cross_val_predict(model, K, y, cv=cv, **options)
    ours = cross_val_predict(SVC(C=C, gamma=gamma), rows, y, cv=cv, **options)
    theirs = ms.cross_val_predict(SVC(C=C, gamma=gamma), rows, y, cv=cv, **options)
    assert_allclose(ours, truth, atol=0.015)
    assert np.abs(theirs - truth).max() > 0.03
