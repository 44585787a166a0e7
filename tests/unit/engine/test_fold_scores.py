"""Many folds: the table has means, deviations and ranks, and the scores of folds are asked for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import mean_absolute_error, mean_squared_error
from sklearn.svm import SVC

from everyfold import LSSVR, Circulant, CVCurveDisplay, FastGridSearchCV, cross_val_score
from everyfold.crossval import Folds
from everyfold.engine.scoring.fold_scorers import FoldScores, column, placed

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
LABELS = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)
LOO = ms.LeaveOneOut()
RIDGE = KernelRidge(kernel="rbf", gamma=0.3)
ALPHAS = {"alpha": [0.01, 0.1, 1.0]}
CS = {"C": [0.5, 2.0, 8.0], "gamma": [0.3]}
SQUARED = "neg_mean_squared_error"


@pytest.fixture
def few_columns(monkeypatch):
    """Ten folds are too many for columns of their own."""
    monkeypatch.setattr("everyfold.engine.results.MOST_COLUMNS", 10)


def compare(ours, theirs, names=("score",), sides=("test",)):
    """All that is left of the table, and the scores of folds, against scikit-learn's."""
    table = ours.cv_results_
    assert not [key for key in table if key.startswith("split")]
    for name in (f"{side}_{name}" for name in names for side in sides):
        for kind in ("mean", "std"):
            expected = theirs.cv_results_[f"{kind}_{name}"]
            assert_allclose(table[f"{kind}_{name}"], expected, rtol=1e-9, atol=1e-12)
        for k in range(len(table["params"])):
            keys = [f"split{i}_{name}" for i in range(theirs.n_splits_)]
            expected = [theirs.cv_results_[key][k] for key in keys]
            assert_allclose(ours.fold_scores(k, name), expected, rtol=1e-7, atol=1e-9)
    for name in names:
        rank = theirs.cv_results_[f"rank_test_{name}"]
        assert_array_equal(table[f"rank_test_{name}"], rank)
    assert ours.n_splits_ == theirs.n_splits_
    assert ours.best_index_ == theirs.best_index_
    missing = {key for key in theirs.cv_results_ if not key.startswith("split")} - set(table)
    assert not missing


@pytest.mark.usefixtures("few_columns")
@pytest.mark.parametrize(
    ("estimator", "grid", "y", "scoring"),
    [(RIDGE, ALPHAS, Y, SQUARED), (SVC(), CS, LABELS, "accuracy"), (SVC(), CS, LABELS, None)],
)
def test_table_of_leave_one_out(estimator, grid, y, scoring):
    options = {"cv": LOO, "scoring": scoring}
    ours = FastGridSearchCV(estimator, grid, order="exact", **options).fit(X, y)
    compare(ours, ms.GridSearchCV(estimator, grid, **options).fit(X, y))


@pytest.mark.usefixtures("few_columns")
def test_several_scorers_and_training_scores():
    cv = ms.ShuffleSplit(n_splits=12, test_size=0.2, random_state=0)
    scoring = {"r2": "r2", "squared": SQUARED}
    options = {"cv": cv, "scoring": scoring, "refit": "squared", "return_train_score": True}
    ours = FastGridSearchCV(RIDGE, ALPHAS, **options).fit(X, Y)
    theirs = ms.GridSearchCV(RIDGE, ALPHAS, **options).fit(X, Y)
    compare(ours, theirs, scoring, ("test", "train"))
    assert_array_equal(ours.fold_scores(), ours.fold_scores(ours.best_index_, "test_squared"))


def both(estimator, X, y):
    """A scorer with names of its own, which no arithmetic is known for."""
    found = estimator.predict(X)
    return {"absolute": -mean_absolute_error(y, found), "squared": -mean_squared_error(y, found)}


@pytest.mark.usefixtures("few_columns")
@pytest.mark.parametrize("pooled", [False, True])
def test_scorer_of_the_user(pooled):
    options = {"cv": LOO, "scoring": both, "refit": "absolute"}
    ours = FastGridSearchCV(RIDGE, ALPHAS, pooled=pooled, **options).fit(X, Y)
    if pooled:
        held = ms.cross_val_predict(ours.best_estimator_, X, Y, cv=LOO)
        assert_allclose(ours.fold_scores(), -mean_absolute_error(Y, held), rtol=1e-9)
        assert_allclose(ours.cv_results_["std_test_squared"], 0.0, atol=1e-12)
        return
    theirs = ms.GridSearchCV(RIDGE, ALPHAS, **options).fit(X, Y)
    compare(ours, theirs, ("absolute", "squared"))


@pytest.mark.usefixtures("few_columns")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
@pytest.mark.parametrize("error_score", [np.nan, -3.0])
@pytest.mark.parametrize("scoring", [SQUARED, both])
def test_candidate_that_no_fit_takes(error_score, scoring):
    refit = "squared" if callable(scoring) else True
    options = {"cv": LOO, "scoring": scoring, "error_score": error_score, "refit": refit}
    grid = {"alpha": [-1.0, 0.1, 1.0]}
    names = ("absolute", "squared") if callable(scoring) else ("score",)
    with pytest.warns(FitFailedWarning, match="60 fits failed out of a total of 180"):
        ours = FastGridSearchCV(RIDGE, grid, fallback="refit", **options).fit(X, Y)
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(RIDGE, grid, **options).fit(X, Y)
    compare(ours, theirs, names)


@pytest.mark.usefixtures("few_columns")
def test_folds_that_fail():
    """One row of a class: without it there is nothing to fit."""
    labels = np.zeros(60, dtype=int)
    labels[7] = 1
    options = {"cv": LOO, "error_score": 0.25}
    with pytest.warns(FitFailedWarning, match="3 fits failed out of a total of 180"):
        ours = FastGridSearchCV(SVC(), CS, order="exact", **options).fit(X, labels)
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(SVC(), CS, **options).fit(X, labels)
    compare(ours, theirs)
    assert ours.fold_scores(0)[7] == 0.25


@pytest.mark.usefixtures("few_columns")
def test_readers_of_the_table():
    """Pictures, warnings at the edge, out-of-fold values and refits that confirm."""
    pytest.importorskip("matplotlib").use("Agg")
    options = {"cv": LOO, "scoring": SQUARED, "n_confirm": 1}
    grid = {"alpha": [3.0, 10.0, 30.0, 100.0, 300.0]}
    with pytest.warns(UserWarning, match="best alpha=3 is the smallest .* still improves"):
        search = FastGridSearchCV(RIDGE, grid, **options).fit(X, Y)
    scores, model = search.fold_scores(), clone(RIDGE).set_params(alpha=3.0)
    assert_allclose(scores, -((search.out_of_fold().values - Y) ** 2))
    confirmed = search.cv_results_["confirmed_test_score"][search.best_index_]
    assert_allclose(confirmed, -np.mean((ms.cross_val_predict(model, X, Y, cv=LOO) - Y) ** 2))
    display = CVCurveDisplay.from_search(search, x="alpha")
    expected = search.cv_results_["std_test_score"] / np.sqrt(len(X) - 1)
    assert_allclose(display.lines[0][3], expected)
    assert_array_equal(pickle.loads(pickle.dumps(search)).fold_scores(), scores)


def test_a_thousand_folds_have_columns_and_more_have_none():
    x = np.linspace(0, 9, 1001)[:, None]
    y = np.sin(x[:, 0])
    options = {"cv": LOO, "scoring": SQUARED, "operator": Circulant(factors=(1001,))}
    model, grid = LSSVR(gamma=50.0), {"alpha": [0.1]}
    many = FastGridSearchCV(model, grid, refit=False, **options).fit(x, y)
    assert not [key for key in many.cv_results_ if key.startswith("split")]
    single = cross_val_score(model.set_params(alpha=0.1), x, y, **options)
    assert_allclose(many.fold_scores(0), single, rtol=1e-9)
    assert_allclose(many.cv_results_["std_test_score"], single.std(), rtol=1e-9)
    options["operator"] = Circulant(factors=(10, 100))
    few = FastGridSearchCV(model, grid, refit=False, **options).fit(x[:1000], y[:1000])
    columns = [few.cv_results_[f"split{i}_test_score"][0] for i in range(1000)]
    assert_array_equal(few.fold_scores(0), columns)


@pytest.mark.usefixtures("few_columns")
def test_one_standard_error():
    options = {"cv": LOO, "scoring": SQUARED}
    grid = {"alpha": [0.01, 0.03, 0.1, 0.3, 1.0]}
    search = FastGridSearchCV(RIDGE, grid, refit="one_standard_error", **options).fit(X, Y)
    table = ms.GridSearchCV(RIDGE, grid, **options).fit(X, Y).cv_results_
    best = table["mean_test_score"].argmax()
    error = table["std_test_score"][best] / np.sqrt(len(X) - 1)
    near = table["mean_test_score"] >= table["mean_test_score"][best] - error
    assert search.best_index_ == np.flatnonzero(near).max() > best


def test_a_name_that_is_none():
    search = FastGridSearchCV(RIDGE, ALPHAS, cv=3).fit(X, Y)
    with pytest.raises(ValueError, match=r"name='test_r2' .* use one of \['test_score'\]"):
        search.fold_scores(0, "test_r2")


def test_scores_read_like_a_list():
    scores = FoldScores({"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}, True)
    entries = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 4.0}]
    assert list(scores) == entries == [scores[0], scores[1]] == [*scores[:1], *scores[1:]]
    spread = placed(scores, np.array([0, 2]), 3)
    assert list(spread) == [entries[0], None, entries[1]] == [spread[i] for i in range(3)]
    assert_array_equal(column(spread, "b"), [3.0, np.nan, 4.0])
    assert_array_equal(column(list(spread), "b"), column(spread, "b"))
    assert np.isnan(column(spread, "c")).all()
    numbers = placed(FoldScores({"score": np.array([1.0])}, False), np.array([1]), 2)
    assert list(numbers) == [None, 1.0]


def test_single_rows_are_the_folds_of_the_splitter():
    lazy, plain = Folds.leave_one_out(7), Folds.from_splits(LOO.split(np.zeros((7, 1))), 7)
    for ours, theirs in ((lazy, plain), (lazy.subset([5, 2]), plain.subset([5, 2]))):
        assert len(ours) == len(theirs)
        for name in ("sizes", "bounds", "pick", "test_rows", "held_rows"):
            assert_array_equal(getattr(ours, name), getattr(theirs, name))
        for mine, other in zip(ours, theirs, strict=True):
            assert_array_equal(mine.train, other.train)
            assert_array_equal(mine.test, other.test)
    assert_array_equal(lazy.tests[-1], [6])
    assert_array_equal(list(lazy.tests[2:4]), [[2], [3]])


@pytest.mark.parametrize("error_score", ["raise", np.nan])
@pytest.mark.parametrize("cv", [3, LOO])
def test_columns_of_folds_are_scikit_learns_whatever_the_error_score(cv, error_score):
    options = {"cv": cv, "scoring": SQUARED, "error_score": error_score}
    ours = FastGridSearchCV(RIDGE, ALPHAS, **options).fit(X, Y).cv_results_
    theirs = ms.GridSearchCV(RIDGE, ALPHAS, **options).fit(X, Y).cv_results_
    assert [key for key in ours if key in theirs] == list(theirs)
    for key in theirs:
        if "score" in key and "time" not in key:
            assert_allclose(ours[key], theirs[key], rtol=1e-7, atol=1e-9)
