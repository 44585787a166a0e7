"""Splitters that leave out more than they test: against loops, scikit-learn, and noise."""

import inspect
import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    LSSVR,
    BufferedLeaveOneOut,
    FastGridSearchCV,
    LeavePairOut,
    PurgedTimeSeriesSplit,
    RebalancedLeaveOneOut,
    cross_val_predict,
    cross_val_score,
)
from everyfold.crossval import Folds
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.losses import Squared
from everyfold.operators import DenseMatrix
from everyfold.scorers import pooled
from everyfold.solvers import Problem
from tests import reference

N = 24
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 3))
NUMBERS = X[:, 0] + 0.5 * RNG.normal(size=N)
LABELS = np.where(np.median(NUMBERS) < NUMBERS, "yes", "no")
THREE = np.digitize(NUMBERS, [-0.5, 0.5])
WEIGHTS = RNG.integers(0, 3, N).astype(float)
PLACES = RNG.uniform(size=(N, 2))
DAYS = np.datetime64("2020-01-01") + RNG.permutation(N).astype("timedelta64[D]")
LONG = np.timedelta64(2, "D")
MSE = "neg_mean_squared_error"

SPLITTERS = {
    "pairs": (LeavePairOut(), LABELS),
    "pairs of three": (LeavePairOut(), THREE),
    "some pairs": (LeavePairOut(40, random_state=0), LABELS),
    "rebalanced": (RebalancedLeaveOneOut(random_state=0), LABELS),
    "rebalanced three": (RebalancedLeaveOneOut(2, random_state=0), THREE),
    "rebalanced numbers": (RebalancedLeaveOneOut(3), NUMBERS),
    "buffered": (BufferedLeaveOneOut(PLACES, 0.2), NUMBERS),
    "purged": (PurgedTimeSeriesSplit(4, purge=1, embargo=2), NUMBERS),
    "purged days": (PurgedTimeSeriesSplit(3, purge=LONG, embargo=LONG, times=DAYS), NUMBERS),
}
EACH = pytest.mark.parametrize(("cv", "y"), SPLITTERS.values(), ids=SPLITTERS.keys())


# -- as scikit-learn's own -------------------------------------------------------------------------


@EACH
def test_conventions_of_splitters(cv, y):
    splits = list(cv.split(X, y))
    assert cv.get_n_splits(X, y) == len(splits)
    for train, test in splits:
        assert train.dtype.kind == test.dtype.kind == "i"
        assert len(test)
        assert len(train)
        assert not set(train) & set(test)
        assert (np.diff(train) > 0).all()
    again = list(cv.split(X.tolist(), y.tolist()))
    for one, other in zip(splits, again, strict=True):
        assert_array_equal(one[0], other[0])
        assert_array_equal(one[1], other[1])
    assert type(cv).__name__ in repr(cv)
    assert ms.check_cv(cv) is cv
    with pytest.warns(UserWarning, match="groups parameter is ignored"):
        next(cv.split(X, y, groups=np.arange(N)))


@EACH
@pytest.mark.parametrize("estimator", [LSSVC(gamma=0.3), SVC(), LSSVR(gamma=0.3)], ids=str)
def test_scores_are_those_of_refits(cv, y, estimator):
    if isinstance(estimator, LSSVR) == (y is not NUMBERS):
        return
    scoring = "neg_mean_squared_error" if y is NUMBERS else "accuracy"
    scoring = "roc_auc" if y is LABELS and isinstance(cv, LeavePairOut) else scoring
    ours = cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
    theirs = ms.cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
    assert_allclose(ours, theirs, rtol=1e-7)


@EACH
@pytest.mark.parametrize("intercept", [False, True])
def test_values_are_those_of_a_loop_with_weights(cv, y, intercept):
    columns = np.column_stack([NUMBERS, np.sin(NUMBERS)])
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2))
    plain = Folds.from_splits(cv.split(X, y), N)
    expected = reference.held_out(K, columns, WEIGHTS, 0.2, intercept, plain)
    folds = Folds(N, *cv.held_out_sets(X, y))
    problem = Problem(columns, WEIGHTS, Squared(), intercept)
    for route in ("eigen", "explicit", "cholesky"):
        (found,) = ClosedFormCV(route=route).evaluate(problem, DenseMatrix(K), [0.2], folds)
        assert_allclose(found.values, expected, rtol=1e-8, atol=1e-10)
        assert found.is_exact.all()


def test_a_pipeline_and_a_search():
    model = make_pipeline(StandardScaler(), LSSVC(gamma=0.3))
    cv, grid = LeavePairOut(30, random_state=1), {"lssvc__alpha": [0.1, 10.0]}
    ours = FastGridSearchCV(model, grid, cv=cv, scoring="roc_auc").fit(X, LABELS)
    theirs = ms.GridSearchCV(model, grid, cv=cv, scoring="roc_auc").fit(X, LABELS)
    assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])
    assert ours.n_splits_ == 30


def test_rebalanced_predictions_are_a_partition():
    cv = RebalancedLeaveOneOut(random_state=5)
    options = {"cv": cv, "method": "decision_function"}
    ours = cross_val_predict(LSSVC(), X, LABELS, **options)
    assert_allclose(ours, ms.cross_val_predict(LSSVC(), X, LABELS, **options), rtol=1e-7)


# -- which rows are left out -----------------------------------------------------------------------


def test_pairs_are_all_pairs_of_unlike_class():
    pairs = {tuple(sorted(test)) for _, test in LeavePairOut().split(X, THREE)}
    assert pairs == {(j, i) for i in range(N) for j in range(i) if THREE[i] != THREE[j]}
    some = [tuple(test) for _, test in LeavePairOut(50, random_state=2).split(X, THREE)]
    assert len(set(some)) == 50
    assert {tuple(sorted(pair)) for pair in some} <= pairs
    others = [tuple(test) for _, test in LeavePairOut(50, random_state=3).split(X, THREE)]
    assert some != others
    assert LeavePairOut(10**6).get_n_splits(X, THREE) == len(pairs)


@pytest.mark.parametrize("y", [LABELS, THREE], ids=["two", "three"])
def test_rebalanced_training_sets_have_the_same_counts(y):
    splits = list(RebalancedLeaveOneOut(3, random_state=0).split(X, y))
    expected = np.unique(y, return_counts=True)[1] - 1
    left_out = np.zeros(N)
    for train, test in splits:
        assert_array_equal(np.unique(y[train], return_counts=True)[1], expected)
        left_out += 1
        left_out[train] -= 1
        left_out[test] -= 1
    for label in np.unique(y):  # all rows of a class equally often, up to the last turn
        assert np.ptp(left_out[y == label]) <= 3
    held = {(int(test[0]), *np.setdiff1d(np.arange(N), [*train, *test])) for train, test in splits}
    assert len(held) == 3 * N  # other rows in every repetition


def test_rebalanced_numbers_leave_out_the_opposite_deviation():
    for repeats in (1, 3):
        splits = list(RebalancedLeaveOneOut(repeats).split(X, NUMBERS))
        for number, (train, test) in enumerate(splits):
            (other,) = np.setdiff1d(np.arange(N), [*train, *test])
            distance = np.abs(NUMBERS + NUMBERS[test[0]] - 2.0 * NUMBERS.mean())
            distance[test] = np.inf
            assert distance[other] == np.sort(distance)[number // N]


def test_buffers_are_rows_within_the_radius():
    distance = np.sqrt(((PLACES[:, None] - PLACES) ** 2).sum(axis=2))
    for train, test in BufferedLeaveOneOut(PLACES, 0.2).split(X):
        assert_array_equal(train, np.flatnonzero(distance[test[0]] > 0.2))
    lone = list(BufferedLeaveOneOut(np.arange(N), 0).split(X))
    for one, other in zip(lone, ms.LeaveOneOut().split(X), strict=True):
        assert_array_equal(one[0], other[0])


def test_purged_blocks_by_time():
    day = (DAYS - DAYS.min()).astype(int)
    tested = []
    for train, test in PurgedTimeSeriesSplit(3, purge=LONG, embargo=LONG, times=DAYS).split(X):
        first, last = day[test].min(), day[test].max()
        assert_array_equal(train, np.flatnonzero((day < first - 2) | (day > last + 4)))
        tested += test.tolist()
    assert sorted(tested) == list(range(N))
    for one, other in zip(PurgedTimeSeriesSplit(4).split(X), ms.KFold(4).split(X), strict=True):
        assert_array_equal(one[0], other[0])


# -- noise -----------------------------------------------------------------------------------------


def test_noise_has_no_area_below_one_half():
    """Of 40 rows; the means over 60 draws, whose standard errors are 0.015."""
    rng = np.random.default_rng(2)
    y, model = np.arange(40) % 2, LSSVC(kernel="linear", alpha=300.0)
    areas = []
    for seed in range(60):
        noise = rng.normal(size=(40, 10))
        lone, rebalanced = (
            roc_auc_score(y, cross_val_predict(model, noise, y, cv=cv, method="decision_function"))
            for cv in (ms.LeaveOneOut(), RebalancedLeaveOneOut(random_state=seed))
        )
        pairs = cross_val_score(model, noise, y, cv=LeavePairOut(), scoring="roc_auc").mean()
        areas.append([lone, rebalanced, pairs])
    lone, rebalanced, pairs = np.mean(areas, axis=0)
    assert lone < 0.3
    assert abs(rebalanced - 0.5) < 0.05
    assert abs(pairs - 0.5) < 0.05


@pytest.mark.parametrize(
    ("estimator", "y", "scoring", "remedy"),
    [
        (LSSVC(), LABELS, "roc_auc", "LeavePairOut"),
        (SVC(), LABELS == "yes", "average_precision", "LeavePairOut"),
        (LSSVC(), LABELS, "accuracy", "RebalancedLeaveOneOut"),
        (LSSVC(), LABELS, None, "RebalancedLeaveOneOut"),
        (LSSVR(), NUMBERS, "r2", "RebalancedLeaveOneOut"),
    ],
)
def test_leave_one_out_names_its_bias(estimator, y, scoring, remedy):
    with pytest.warns(UserWarning, match=f"leave-one-out makes .* too small.*{remedy}"):
        cross_val_score(estimator, X, y, cv=ms.LeaveOneOut(), scoring=scoring)
    search = FastGridSearchCV(estimator, {"gamma": [0.1]}, cv=ms.LeaveOneOut(), scoring=scoring)
    with pytest.warns(UserWarning, match="leave-one-out"):
        search.fit(X, y)
    assert any("leave-one-out makes" in note for note in search.plan_.notes)


def correlation(truth, values):
    return np.corrcoef(truth, values)[0, 1]


def test_leave_one_out_names_the_bias_of_correlations():
    scorer = pooled(make_scorer(correlation))
    with pytest.warns(UserWarning, match="leave-one-out makes correlation too small"):
        cross_val_score(LSSVR(), X, NUMBERS, cv=ms.LeaveOneOut(), scoring=scorer)


@pytest.mark.parametrize(
    ("estimator", "y", "scoring", "cv"),
    [
        (KernelRidge(), NUMBERS, "r2", ms.LeaveOneOut()),  # no intercept
        (LSSVR(), NUMBERS, "neg_mean_squared_error", ms.LeaveOneOut()),
        (LSSVC(), LABELS, "accuracy", RebalancedLeaveOneOut()),
        (LSSVC(), LABELS, "roc_auc", RebalancedLeaveOneOut()),
        (LSSVC(), LABELS, "accuracy", BufferedLeaveOneOut(PLACES, 0.2)),
        (LSSVC(), np.arange(N) % 5 == 0, "accuracy", ms.LeaveOneOut()),  # not balanced
        (LSSVC(), LABELS, "roc_auc", 5),
    ],
)
def test_there_is_no_warning_where_it_does_not_apply(estimator, y, scoring, cv):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
    assert not [w for w in caught if "leave-one-out makes" in str(w.message)]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cv", "y", "words"),
    [
        (LeavePairOut(), None, "pass y"),
        (LeavePairOut(), NUMBERS, "use RebalancedLeaveOneOut for numbers"),
        (LeavePairOut(), np.zeros(N, int), "one class only"),
        (LeavePairOut(0), LABELS, "n_pairs=0"),
        (RebalancedLeaveOneOut(), None, "pass y"),
        (RebalancedLeaveOneOut(0), LABELS, "n_repeats=0"),
        (RebalancedLeaveOneOut(20), LABELS, "or LeavePairOut"),
        (RebalancedLeaveOneOut(N), NUMBERS, "use a smaller number"),
        (BufferedLeaveOneOut(PLACES, -1.0), None, "radius=-1.0"),
        (BufferedLeaveOneOut(PLACES, 9.0), None, "no training rows"),
        (BufferedLeaveOneOut(PLACES[:5], 0.1), None, "coords has 5 entries"),
        (PurgedTimeSeriesSplit(1), None, "n_splits=1"),
        (PurgedTimeSeriesSplit(N + 1), None, "more than the 24 rows"),
        (PurgedTimeSeriesSplit(purge=-1), None, "purge=-1"),
        (PurgedTimeSeriesSplit(purge=-LONG, times=DAYS), None, "negative"),
        (PurgedTimeSeriesSplit(2, purge=40), None, "no training rows"),
        (PurgedTimeSeriesSplit(times=DAYS[:3]), None, "times has 3 entries"),
    ],
)
def test_what_is_refused(cv, y, words):
    with pytest.raises(ValueError, match=words):
        list(cv.split(X, y))


def test_numbers_of_splits_without_rows():
    with pytest.raises(ValueError, match="'X' parameter"):
        RebalancedLeaveOneOut().get_n_splits()
    assert PurgedTimeSeriesSplit(7).get_n_splits() == 7


@pytest.mark.parametrize(
    "kind",
    [LeavePairOut, RebalancedLeaveOneOut, BufferedLeaveOneOut, PurgedTimeSeriesSplit],
)
def test_parameters_are_attributes(kind):
    names = list(inspect.signature(kind).parameters)
    cv = kind(*([PLACES, 0.1] if kind is BufferedLeaveOneOut else []))
    assert all(hasattr(cv, name) for name in names)
    assert clone(cv, safe=False) is not cv


@pytest.mark.parametrize(
    "cv",
    [BufferedLeaveOneOut(["u", "v"], 0.2), PurgedTimeSeriesSplit(3, purge=LONG, times="day")],
    ids=["buffered", "purged"],
)
def test_columns_that_are_named_make_inner_folds(cv):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=list("abc")).assign(u=PLACES[:, 0], v=PLACES[:, 1], day=DAYS)
    columns = make_column_transformer(("passthrough", ["a", "b", "c"]))
    model = make_pipeline(columns, KernelRidge(kernel="rbf", gamma=0.3))
    asked = {"param_grid": {"kernelridge__alpha": [0.01, 10.0]}, "cv": cv, "scoring": MSE}
    theirs = ms.cross_val_score(ms.GridSearchCV(model, **asked), table, NUMBERS, cv=3, scoring=MSE)
    ours = cross_val_score(FastGridSearchCV(model, **asked), table, NUMBERS, cv=3, scoring=MSE)
    assert_allclose(ours, theirs, rtol=1e-7)
    if isinstance(cv, BufferedLeaveOneOut):
        given = BufferedLeaveOneOut(PLACES, 0.2)
        plain, kernel = table[["a", "u", "v"]], KernelRidge(kernel="rbf", gamma=0.3)
        for own, other in zip(cv.split(plain), given.split(plain), strict=True):
            assert_array_equal(own[0], other[0])
        scores = [cross_val_score(kernel, plain, NUMBERS, cv=k, scoring=MSE) for k in (cv, given)]
        assert_allclose(*scores)
    with pytest.raises(ValueError, match="has no column"):
        next(cv.split(X))
