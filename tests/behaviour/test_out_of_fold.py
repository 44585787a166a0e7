"""Out-of-fold predictions that a search keeps, against refits of its candidates."""

import pickle

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1, make_regression
from sklearn.dummy import DummyRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVR,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    KernelLogisticClassifier,
    KernelRegressor,
    Nystrom,
    streams,
)
from everyfold.operators import lowrank
from everyfold.papers import MethodOptions

X, y = make_regression(n_samples=60, n_features=4, noise=5.0, random_state=0)
X, y = X / 2.0, y / 50.0
IRIS, KINDS = load_iris(return_X_y=True)
GRID = {"alpha": [0.01, 0.1, 1.0], "gamma": [0.1, 0.4]}
RIDGE = KernelRidge(kernel="rbf")


def held_out(model, X, target, cv, method="predict"):
    """Every prediction of every fold's own model: (row, prediction) pairs."""
    found = []
    for train, test in cv.split(X, target):
        fold = clone(model).fit(X[train], target[train])
        found += list(zip(test, getattr(fold, method)(X[test]), strict=True))
    return found


@pytest.mark.parametrize("return_train_score", [False, True])
def test_the_winners_predictions(return_train_score):
    search = FastGridSearchCV(RIDGE, GRID, cv=5, return_train_score=return_train_score)
    search.fit(X, y)
    found = search.out_of_fold()
    theirs = ms.cross_val_predict(clone(RIDGE).set_params(**search.best_params_), X, y, cv=5)
    assert_allclose(found.values, theirs, rtol=1e-8)
    assert found.is_exact
    assert found.status == "exact"
    assert_array_equal(found.spread, 0.0)
    assert_array_equal(found.repeats, 1)
    with pytest.raises(ValueError, match="keeps='all'"):
        search.out_of_fold(candidate=(search.best_index_ + 1) % 6)


@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_all_candidates_of_a_classifier(method):
    pipeline = make_pipeline(StandardScaler(), SVC(tol=1e-6))
    grid = {"svc__C": [0.1, 1.0], "svc__gamma": [0.1, 1.0]}
    search = FastGridSearchCV(pipeline, grid, cv=3, keep_predictions="all").fit(IRIS, KINDS)
    for k, params in enumerate(search.cv_results_["params"]):
        model = clone(pipeline).set_params(**params)
        theirs = ms.cross_val_predict(model, IRIS, KINDS, cv=3, method=method)
        assert_allclose(search.out_of_fold(k, method).values, theirs, atol=1e-4)


def test_probabilities():
    grid = {"C": [0.5, 5.0]}
    model = KernelLogisticClassifier(gamma=0.2)
    search = FastGridSearchCV(model, grid, cv=3).fit(IRIS, KINDS)
    found = search.out_of_fold(method="predict_proba")
    best = clone(model).set_params(**search.best_params_)
    theirs = ms.cross_val_predict(best, IRIS, KINDS, cv=3, method="predict_proba")
    assert_allclose(found.values, theirs, atol=1e-6)


def test_repeats_are_means_with_a_spread():
    cv = ms.RepeatedKFold(n_splits=3, n_repeats=4, random_state=0)
    search = FastGridSearchCV(RIDGE, GRID, cv=cv).fit(X, y)
    found = search.out_of_fold()
    pairs = held_out(clone(RIDGE).set_params(**search.best_params_), X, y, cv)
    for row in (0, 17, 59):
        values = [value for i, value in pairs if i == row]
        assert len(values) == found.repeats[row] == 4
        assert_allclose(found.values[row], np.mean(values), rtol=1e-8)
        assert_allclose(found.spread[row], np.std(values), rtol=1e-6)


def test_labels_of_repeats_are_voted_on():
    cv = ms.RepeatedStratifiedKFold(n_splits=3, n_repeats=3, random_state=0)
    hard, kinds = IRIS[:, :2], KINDS
    search = FastGridSearchCV(SVC(gamma=1.0, tol=1e-6), {"C": [1.0]}, cv=cv).fit(hard, kinds)
    found = search.out_of_fold()
    pairs = held_out(SVC(gamma=1.0, C=1.0, tol=1e-6), hard, kinds, cv)
    votes = np.zeros((150, 3))
    for row, label in pairs:
        votes[row, label] += 1
    assert (votes.max(axis=1) < 3).any()
    assert_array_equal(found.values, votes.argmax(axis=1))
    assert_allclose(found.spread, 1.0 - votes.max(axis=1) / 3)


def test_rows_that_no_fold_held_out():
    search = FastGridSearchCV(RIDGE, GRID, cv=ms.TimeSeriesSplit(4)).fit(X, y)
    found = search.out_of_fold()
    assert_array_equal(np.isnan(found.values), found.repeats == 0)
    assert found.repeats[:12].sum() == 0
    pairs = held_out(clone(RIDGE).set_params(**search.best_params_), X, y, ms.TimeSeriesSplit(4))
    rows, values = zip(*pairs, strict=True)
    assert_allclose(found.values[list(rows)], values, rtol=1e-7)
    cv = ms.StratifiedShuffleSplit(2, test_size=0.2, random_state=0)
    labels = FastGridSearchCV(SVC(), {"C": [1.0, 2.0]}, cv=cv).fit(IRIS, KINDS)
    decided = labels.out_of_fold(method="decision_function")
    assert_array_equal(np.isnan(decided.values).all(axis=1), decided.repeats == 0)


@pytest.mark.parametrize("kind", ["strings", "numbers"])
def test_labels_of_rows_that_no_fold_held_out_are_missing(kind):
    """One split alone: its test rows have the labels of a refit, all others NaN."""
    labels = np.array(["a", "b", "c"])[KINDS] if kind == "strings" else KINDS
    cv = ms.ShuffleSplit(1, test_size=0.3, random_state=0)
    search = FastGridSearchCV(SVC(), {"C": [1.0]}, cv=cv).fit(IRIS, labels)
    found = search.out_of_fold()
    ((train, test),) = cv.split(IRIS)
    assert_array_equal(
        found.values[test], SVC().fit(IRIS[train], labels[train]).predict(IRIS[test])
    )
    assert_array_equal(found.spread[test], 0.0)
    others = np.setdiff1d(np.arange(len(IRIS)), test)
    assert all(value != value for value in found.values[others])
    assert np.isnan(found.spread[others]).all()


def test_a_winner_that_is_known_last():
    """A callable chooses from the table: the winner is evaluated once more, on the same folds."""
    cv = ms.KFold(4, shuffle=True, random_state=np.random.RandomState(3))
    search = FastGridSearchCV(RIDGE, GRID, cv=cv, refit=lambda results: 4).fit(X, y)
    model = clone(RIDGE).set_params(**search.best_params_)
    same = ms.KFold(4, shuffle=True, random_state=np.random.RandomState(3))
    theirs = ms.cross_val_predict(model, X, y, cv=same)
    assert_allclose(search.out_of_fold().values, theirs, rtol=1e-8)


def test_a_winner_that_is_known_last_among_candidates_that_are_refitted():
    search = FastGridSearchCV(
        make_pipeline(RIDGE),
        {"kernelridge": [KernelRidge(kernel="rbf", gamma=0.1), DummyRegressor()]},
        cv=4,
        refit=lambda results: 0,
        fallback="refit",
    ).fit(X, y)
    assert list(search.cv_results_["status"]) == ["exact", "refitted"]
    theirs = ms.cross_val_predict(KernelRidge(kernel="rbf", gamma=0.1), X, y, cv=4)
    assert_allclose(search.out_of_fold().values, theirs, rtol=1e-8)


def test_several_metrics():
    scoring = ["r2", "neg_max_error"]
    search = FastGridSearchCV(RIDGE, GRID, cv=3, scoring=scoring, refit="neg_max_error").fit(X, y)
    model = clone(RIDGE).set_params(**search.best_params_)
    assert_allclose(search.out_of_fold().values, ms.cross_val_predict(model, X, y, cv=3), rtol=1e-8)
    nobody = FastGridSearchCV(RIDGE, GRID, cv=3, scoring=scoring, refit=False).fit(X, y)
    with pytest.raises(ValueError, match="no best candidate"):
        nobody.out_of_fold()


def test_a_kernel_of_low_rank_says_so():
    model = KernelRegressor(gamma=0.2, operator=Nystrom(10, random_state=0))
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=4).fit(X, y)
    found = search.out_of_fold()
    assert not found.is_exact
    assert found.status == search.cv_results_["status"][search.best_index_]
    assert found.values.shape == y.shape


def test_a_ladder_keeps_the_values_of_the_last_look(monkeypatch):
    """The winner is evaluated on the full matrix at last, others only at low rank."""
    monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.LOW_RANK_FIRST_ROWS", 200)
    monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.FIRST_RANK", 20)
    rows, target = make_friedman1(250, n_features=5, noise=1.0, random_state=0)
    grid = {"gamma": np.logspace(-2, 1, 5), "alpha": np.logspace(-3, 1, 5)}
    search = FastGridSearchCV(RIDGE, grid, cv=5, keep_predictions="all").fit(rows, target)
    found = search.out_of_fold()
    best = clone(RIDGE).set_params(**search.best_params_)
    assert_allclose(found.values, ms.cross_val_predict(best, rows, target, cv=5), rtol=1e-6)
    assert found.is_exact
    rough = np.flatnonzero(search.cv_results_["status"] != "exact")
    assert len(rough)
    assert not search.out_of_fold(int(rough[0])).is_exact
    kept = FastGridSearchCV(RIDGE, grid, cv=5).fit(rows, target).out_of_fold()
    assert_allclose(kept.values, found.values, rtol=1e-12)


def test_sums_over_rows_keep_no_values(monkeypatch):
    """Long tables are scored by sums alone: the winner's values come from a pass of its own."""
    monkeypatch.setattr("everyfold.operators.lowrank.BLOCK", 100)
    monkeypatch.setattr("everyfold.engine.planning.units.ROWS_TO_SUM", 1)
    model = KernelRegressor(gamma=0.2, operator=Nystrom(10, random_state=0))
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3, refit=False)
    search.fit(X, y)
    assert "one pass" in search.plan_.methods[0][0]
    held = search.out_of_fold().values
    scores = [r2_score(y[test], held[test]) for _, test in ms.KFold(3).split(X)]
    assert_allclose(np.mean(scores), search.best_score_, rtol=1e-8)
    every = search.set_params(method=MethodOptions(keeps="all")).fit(X, y)
    assert "in two passes" in every.plan_.methods[0][0]
    assert_allclose(every.out_of_fold().values, held, rtol=1e-9)
    other = every.out_of_fold(1 - every.best_index_).values
    scores = [r2_score(y[test], other[test]) for _, test in ms.KFold(3).split(X)]
    expected = every.cv_results_["mean_test_score"][1 - every.best_index_]
    assert_allclose(np.mean(scores), expected, rtol=1e-8)


@pytest.fixture
def passes(monkeypatch):
    """Long tables are short; what is summed in each pass over the rows is counted."""
    monkeypatch.setattr("everyfold.operators.lowrank.BLOCK", 100)
    monkeypatch.setattr("everyfold.engine.planning.units.ROWS_TO_SUM", 1)
    found = []
    run = lowrank.accumulate
    monkeypatch.setattr(lowrank, "accumulate", lambda *own: (found.append(0), run(*own))[1])
    return found


@pytest.mark.parametrize("target", [y, y[:, None], np.column_stack([y, -y])], ids=["1", "n1", "n2"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_one_pass_gives_scores_and_the_winner(passes, target, scaling):
    """Values that nobody has asked for take no pass, and neither does the refit."""
    target = target + 100.0
    operator = Nystrom(10, sampling="uniform", random_state=0)
    grid = {"alpha": [0.01, 0.1], "gamma": [0.1, 0.2]}
    search = FastGridSearchCV(KernelRegressor(operator=operator), grid, cv=3)
    search.set_params(method=MethodOptions(ridge_scaling=scaling)).fit(X, target)
    assert len(passes) == 2  # one for each kernel
    best = search.best_estimator_
    alone = clone(best).fit(X, target)
    assert len(passes) == 3
    assert_allclose(search.predict(X), alone.predict(X), rtol=1e-9)
    assert search.predict(X).shape == target.shape
    assert_allclose(best.intercept_, alone.intercept_, rtol=1e-9)
    assert (search.n_features_in_, str(best.kernel_)) == (4, str(alone.kernel_))
    assert not search._keeper.lacks(search._numbers[search.best_index_])
    assert len(passes) == 3
    found = search.out_of_fold()
    assert len(passes) == 4
    scores = [r2_score(target[t], found.values[t]) for _, t in ms.KFold(3).split(X)]
    assert_allclose(np.mean(scores), search.best_score_, rtol=1e-8)
    search.out_of_fold()
    assert len(passes) == 4


def test_values_that_wait_for_the_rows(passes):
    operator = Nystrom(10, random_state=0)
    search = FastGridSearchCV(KernelRegressor(operator=operator), {"alpha": [0.1, 1.0]}, cv=3)
    rows = X.copy()
    search.fit(rows, y)
    first = len(passes)
    copy = pickle.loads(pickle.dumps(search))
    assert len(passes) == first + 1
    rows *= 2.0
    assert_array_equal(copy.out_of_fold().values, search.out_of_fold().values)
    search.fit(rows, y)
    rows *= 0.5
    with pytest.raises(ValueError, match=r"have changed: X \(other values\); fit the search again"):
        search.out_of_fold()
    assert_allclose(pickle.loads(pickle.dumps(search)).predict(X), search.predict(X))


def test_what_is_kept_is_planned_and_survives_pickling():
    search = FastGridSearchCV(RIDGE, GRID, cv=5)
    one = search.plan(X, y).memory
    every = search.set_params(method=MethodOptions(keeps="all")).plan(X, y).memory
    none = search.set_params(keep_predictions=None).plan(X, y).memory
    assert (one - none, every - none) == (0, 6 * 8 * 60)
    search.fit(X, y)
    with pytest.raises(ValueError, match="keeps=None"):
        search.out_of_fold()
    drawn = FastRandomizedSearchCV(RIDGE, GRID, n_iter=3, random_state=0).fit(X, y)
    copy = pickle.loads(pickle.dumps(drawn))
    assert_array_equal(copy.out_of_fold().values, drawn.out_of_fold().values)


def test_refusals():
    with pytest.raises(ValueError, match="keeps='some'"):
        FastGridSearchCV(RIDGE, GRID, keep_predictions="some").fit(X, y)
    search = FastGridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match="method='predict'"):
        search.out_of_fold(method="decision_function")
    labels = FastGridSearchCV(SVC(), {"C": [1.0]}, cv=3).fit(IRIS, KINDS)
    with pytest.raises(ValueError, match="logistic"):
        labels.out_of_fold(method="predict_proba")
    with pytest.raises(ValueError, match="'transform'"):
        labels.out_of_fold(method="transform")


def test_criteria_without_folds_keep_nothing():
    search = FastGridSearchCV(LSSVR(), GRID, criterion="gcv").fit(X, y)
    with pytest.raises(ValueError, match="cross_val_predict"):
        search.out_of_fold()


def test_sources_keep_nothing():
    model = KernelRegressor(gamma=0.2, operator=Nystrom(10, random_state=0))
    source = streams.ArrayRows(X, y)
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3).fit(source)
    with pytest.raises(ValueError, match="cross_val_predict"):
        search.out_of_fold()
