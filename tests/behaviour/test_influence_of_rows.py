"""The effect of deleting rows, groups and columns: against refitting without them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import check_scoring, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    LSSVR,
    BufferedLeaveOneOut,
    FastGridSearchCV,
    KernelLogisticClassifier,
    influence,
)
from everyfold.plotting import InfluenceDisplay

N, NEW = 30, 11
RNG = np.random.default_rng(0)
ALL = RNG.normal(size=(N + NEW, 3))
NUMBERS = ALL[:, 0] + 0.5 * RNG.normal(size=N + NEW)
LABELS = np.where(NUMBERS > 0.0, "yes", "no")
THREE = np.digitize(NUMBERS, [-0.5, 0.5])
BOTH = np.column_stack([NUMBERS, np.sin(ALL[:, 1])])
GROUPS = np.array(list("abcdefghij"))[RNG.integers(0, 10, N)]
WEIGHTS = RNG.uniform(0.5, 2.0, N)
X, X_NEW = ALL[:N], ALL[N:]
FOLDS = KFold(4, shuffle=True, random_state=0)

SQUARED = {
    "r2": (LSSVR(gamma=0.2), NUMBERS, "r2"),
    "no intercept": (KernelRidge(kernel="rbf", gamma=0.2), NUMBERS, "neg_mean_absolute_error"),
    "linear": (Ridge(alpha=0.3), NUMBERS, None),
    "two columns": (LSSVR(gamma=0.2), BOTH, "neg_mean_squared_error"),
    "area": (LSSVC(gamma=0.2), LABELS, "roc_auc"),
    "weights of classes": (LSSVC(gamma=0.2, class_weight={"yes": 3.0}), LABELS, "accuracy"),
    "three classes": (LSSVC(gamma=0.2), THREE, "balanced_accuracy"),
}
OTHERS = {
    "svc": (SVC(gamma=0.3, C=0.5, tol=1e-8), LABELS, "roc_auc"),
    "svc of its own gamma": (SVC(tol=1e-8), LABELS, "accuracy"),
    "svr": (SVR(gamma=0.3, epsilon=0.4, tol=1e-8), NUMBERS, "r2"),
    "smooth": (KernelLogisticClassifier(gamma=0.3), LABELS, "neg_log_loss"),
    "steps": (make_pipeline(StandardScaler(), LSSVR(gamma=0.2)), NUMBERS, "r2"),
    "gamma of the rows": (LSSVR(gamma="scale"), NUMBERS, "r2"),
    "balanced": (LSSVC(gamma=0.2, class_weight="balanced"), LABELS, "roc_auc"),
}
PLANS = {"folds": FOLDS, "overlapping": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)}


def sets_of(groups):
    if groups is None:
        return [np.array([i]) for i in range(N)]
    return [np.flatnonzero(groups == label) for label in np.unique(groups)]


def brute(estimator, y, sets, splits, scoring, weights=None):
    """Fit without each set, fold by fold; the effects and the score."""
    scorer = check_scoring(estimator, scoring=scoring)

    def score(left_out):
        found = []
        for train, test in splits:
            rows = np.setdiff1d(train, left_out)
            params = {} if weights is None else {"sample_weight": weights[rows]}
            model = clone(estimator).fit(ALL[rows], y[rows], **params)
            found.append(scorer(model, ALL[test], y[test]))
        return np.mean(found)

    base = score([])
    return np.array([score(own) for own in sets]) - base, base


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
@pytest.mark.parametrize("name", SQUARED)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
class TestSquaredLoss:
    @pytest.mark.parametrize("plan", PLANS)
    def test_in_folds(self, name, groups, weights, plan):
        estimator, y, scoring = SQUARED[name]
        params = None if weights is None else {"sample_weight": weights}
        options = {"groups": groups, "scoring": scoring, "cv": PLANS[plan], "params": params}
        found = influence(estimator, X, y[:N], **options)
        splits = list(PLANS[plan].split(X))
        effect, score = brute(estimator, y, sets_of(groups), splits, scoring, weights)
        assert_allclose(found.effect, effect, atol=1e-10)
        assert_allclose(found.score, score)
        assert found.is_exact
        assert "from one factorisation" in found.how
        assert np.abs(effect).max() > 1e-3  # else nothing is tested

    def test_on_new_rows(self, name, groups, weights):
        estimator, y, scoring = SQUARED[name]
        params = None if weights is None else {"sample_weight": weights}
        new = {"X_eval": X_NEW, "y_eval": y[N:]}
        options = {"groups": groups, "scoring": scoring, "params": params, **new}
        found = influence(estimator, X, y[:N], **options)
        splits = [(np.arange(N), np.arange(N, N + NEW))]
        effect, score = brute(estimator, y, sets_of(groups), splits, scoring, weights)
        assert_allclose(found.effect, effect, atol=1e-10)
        assert_allclose(found.score, score)
        assert "from one factorisation" in found.how
        assert len(found.changes) == len(effect)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_fitted_again(name, groups):
    estimator, y, scoring = OTHERS[name]
    splits = list(FOLDS.split(X))
    options = {"groups": groups, "scoring": scoring}
    found = influence(estimator, X, y[:N], cv=FOLDS, **options)
    effect, score = brute(estimator, y, sets_of(groups), splits, scoring)
    assert_allclose(found.effect, effect, atol=1e-8)
    assert_allclose(found.score, score, atol=1e-8)
    found = influence(estimator, X, y[:N], X_eval=X_NEW, y_eval=y[N:], **options)
    splits = [(np.arange(N), np.arange(N, N + NEW))]
    effect, score = brute(estimator, y, sets_of(groups), splits, scoring)
    assert_allclose(found.effect, effect, atol=1e-8)
    assert_allclose(found.score, score, atol=1e-8)


@pytest.mark.parametrize(
    ("model", "y"), [(SVR(gamma=0.3, epsilon=0.6), NUMBERS), (SVC(gamma=0.1), LABELS)]
)
def test_rows_that_are_no_support_vectors_are_not_fitted_without(model, y):
    found = influence(model, X, y[:N], X_eval=X_NEW)
    support = model.fit(X, y[:N]).support_
    assert len(support) < N
    assert found.how.startswith(f"{len(support)} fits")
    assert set(np.flatnonzero(found.changes.any(axis=1))) <= set(support)


def test_changes_of_predictions():
    model = LSSVR(gamma=0.2)
    found = influence(model, X, NUMBERS[:N], X_eval=X_NEW)
    assert np.isnan(found.effect).all()
    whole = model.fit(X, NUMBERS[:N]).predict(X_NEW)
    for i in range(N):
        rest = np.delete(np.arange(N), i)
        assert_allclose(found.changes[i], model.fit(X[rest], NUMBERS[rest]).predict(X_NEW) - whole)
    by_hand = influence(make_pipeline(LSSVR(gamma=0.2)), X, NUMBERS[:N], X_eval=X_NEW)
    assert_allclose(by_hand.changes, found.changes, atol=1e-10)


def test_rows_of_weight_0():
    weights = WEIGHTS * (np.arange(N) % 4 > 0)
    for options in ({"cv": FOLDS}, {"X_eval": X_NEW, "y_eval": NUMBERS[N:]}):
        params = {"sample_weight": weights}
        found = influence(LSSVR(gamma=0.2), X, NUMBERS[:N], params=params, **options)
        new = [(np.arange(N), np.arange(N, N + NEW))]
        splits = list(FOLDS.split(X)) if "cv" in options else new
        effect, _ = brute(LSSVR(gamma=0.2), NUMBERS, sets_of(None), splits, None, weights)
        assert_allclose(found.effect, effect, atol=1e-10)
        assert_allclose(found.effect[weights == 0.0], 0.0, atol=1e-10)


def test_single_rows_are_scored_together():
    model, y = LSSVC(gamma=0.2), LABELS[:N]
    found = influence(model, X, y, cv=LeaveOneOut(), scoring="roc_auc")

    def area(left_out):
        values = [
            model.fit(*(part[np.setdiff1d(np.arange(N), [i, left_out])] for part in (X, y)))
            .decision_function(X[[i]])
            .item()
            for i in range(N)
        ]
        return roc_auc_score(y, values)

    assert_allclose(found.score, area(-1))
    for row in (0, 7, 20):
        assert_allclose(found.effect[row], area(row) - found.score, atol=1e-12)


@pytest.mark.filterwarnings("ignore:roc_auc_score of one row")
@pytest.mark.parametrize("model", [SVC(gamma=0.3), make_pipeline(StandardScaler(), LSSVC())])
def test_single_rows_are_scored_together_without_each_row_of_other_models(model):
    rows, y = X[:16], LABELS[:16]
    found = influence(model, rows, y, cv=LeaveOneOut(), scoring="roc_auc")

    def area(deleted):
        values = []
        for i in range(16):
            train = np.setdiff1d(np.arange(16), [i, *deleted])
            values.append(clone(model).fit(rows[train], y[train]).decision_function(rows[[i]])[0])
        return roc_auc_score(y, values)

    assert_allclose(found.score, area([]))
    assert_allclose(found.effect, [area([k]) - area([]) for k in range(16)], atol=1e-12)
    assert np.ptp(found.effect) > 0.0


def test_folds_that_leave_out_more_than_they_test():
    model, y = LSSVR(gamma=0.2), NUMBERS
    cv = BufferedLeaveOneOut(X[:, :2], 0.5)
    found = influence(model, X, y[:N], cv=cv, scoring="neg_mean_squared_error")
    splits = list(cv.split(X))
    effect, score = brute(model, y, sets_of(None), splits, "neg_mean_squared_error")
    assert_allclose(found.effect, effect, atol=1e-10)
    assert_allclose(found.score, score)
    series = TimeSeriesSplit(3)
    found = influence(model, X, y[:N], cv=series)
    effect, _ = brute(model, y, sets_of(None), list(series.split(X)), None)
    assert_allclose(found.effect, effect, atol=1e-10)


@pytest.mark.parametrize("kind", ["sparse", "frame", "list"])
def test_kinds_of_rows(kind):
    made = {"sparse": sparse.csr_matrix, "frame": pd.DataFrame, "list": np.ndarray.tolist}[kind]
    model, y = Ridge(), NUMBERS[:N]
    for options in ({"cv": FOLDS}, {"y_eval": NUMBERS[N:]}):
        new = {"X_eval": made(X_NEW)} if "y_eval" in options else {}
        found = influence(model, made(X), y, **options, **new)
        new = {"X_eval": X_NEW} if new else {}
        expected = influence(model, X, y, **options, **new)
        assert_allclose(found.effect, expected.effect, atol=1e-10)


def test_deletions_without_a_model_have_no_effect():
    y = np.repeat(["a", "b", "c"], 10)
    found = influence(LSSVC(gamma=0.2), X, y, groups=y, X_eval=X_NEW, y_eval=y[:NEW])
    assert np.isnan(found.effect).all()
    assert np.isnan(found.changes).all()
    assert not len(found.harmful)


# -- what follows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [LSSVC(gamma=0.1), SVC(gamma=0.1)], ids=str)
@pytest.mark.parametrize("way", ["folds", "new rows"])
def test_wrong_labels_are_suspected_and_harmful(model, way):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(120, 2)) + 3.5 * (np.arange(120) % 2)[:, None]
    y, wrong = np.arange(120) % 2, [5, 40, 77]
    options = {"cv": StratifiedKFold(5), "scoring": "accuracy"}
    if way == "new rows":
        options = {"X_eval": rows[80:], "y_eval": y[80:], "scoring": "roc_auc"}
        rows, y = rows[:80], y[:80].copy()
    y = y.copy()
    y[wrong] = 1 - y[wrong]
    found = influence(model, rows, y, **options)
    # As sure as usual of the other class: of three wrong labels two are.
    assert set(found.suspects.tolist()) == {5, 40}


def test_far_targets_are_suspected():
    y = NUMBERS[:N].copy()
    y[4] += 30.0
    found = influence(LSSVR(gamma=0.2), X, y, cv=FOLDS)
    assert found.suspects[0] == 4
    assert found.harmful[0] == 4
    assert_array_equal(found.values, -found.effect)
    assert (np.diff(found.effect[found.harmful]) <= 0.0).all()


def test_a_search_has_its_winner_folds_and_scorer():
    grid = {"alpha": [0.1, 1.0]}
    for kind in (FastGridSearchCV, GridSearchCV):
        search = kind(LSSVR(gamma=0.2), grid, cv=FOLDS, scoring="neg_mean_squared_error")
        search.fit(X, NUMBERS[:N])
        found = influence(search, X, NUMBERS[:N])
        model, scoring = search.best_estimator_, "neg_mean_squared_error"
        expected = influence(model, X, NUMBERS[:N], cv=FOLDS, scoring=scoring)
        assert_allclose(found.effect, expected.effect)
        assert_allclose(found.score, search.best_score_)


def test_groups_are_for_the_splitter_as_well():
    found = influence(LSSVR(gamma=0.2), X, NUMBERS[:N], groups=GROUPS, cv=GroupKFold(3))
    splits = list(GroupKFold(3).split(X, groups=GROUPS))
    effect, _ = brute(LSSVR(gamma=0.2), NUMBERS, sets_of(GROUPS), splits, None)
    assert_allclose(found.effect, effect, atol=1e-10)
    assert_array_equal(found.labels, np.unique(GROUPS))


# -- columns ---------------------------------------------------------------------------------------


def test_columns_left_out():
    model, y = LSSVR(gamma=0.2), NUMBERS[:N]
    found = influence(model, X, y, cv=FOLDS, of="columns")
    base = influence(model, X, y, cv=FOLDS).score
    for k in range(3):
        rest = influence(model, np.delete(X, k, axis=1), y, cv=FOLDS).score
        assert_allclose(found.effect[k], rest - base)
    assert np.argmin(found.effect) == 0
    new = {"X_eval": X_NEW, "y_eval": NUMBERS[N:]}
    pairs = influence(model, X, y, groups=["first", "rest", "rest"], of="columns", **new)
    alone = model.fit(X[:, :1], y).score(X_NEW[:, :1], NUMBERS[N:])
    assert_array_equal(pairs.labels, ["first", "rest"])
    assert_allclose(pairs.effect[1], alone - model.fit(X, y).score(X_NEW, NUMBERS[N:]))


@pytest.mark.parametrize("made", [np.asarray, pd.DataFrame, sparse.csr_matrix])
def test_columns_permuted(made):
    rows = np.column_stack([X, X[:, 0], np.ones(N)])  # a copy of the first, and a constant
    options = {"cv": FOLDS, "of": "permutations", "groups": [0, 1, 2, 0, 3]}
    found = influence(Ridge(), made(rows), NUMBERS[:N], **options)
    assert np.argmin(found.effect) == 0
    assert abs(found.effect[3]) < 1e-12
    again = influence(Ridge(), made(rows), NUMBERS[:N], **options)
    assert_array_equal(found.effect, again.effect)
    other = influence(Ridge(), made(rows), NUMBERS[:N], random_state=1, **options)
    assert (other.effect != found.effect).any()
    model = RandomForestClassifier(5, random_state=0)
    forest = influence(model, X, LABELS[:N], cv=FOLDS, of="permutations")
    assert len(forest.effect) == 3


# -- pictures, errors ------------------------------------------------------------------------------


def test_picture():
    plt = pytest.importorskip("matplotlib.pyplot")
    found = influence(LSSVR(gamma=0.2), X, NUMBERS[:N], cv=FOLDS)
    display = found.plot(n_shown=5)
    assert isinstance(display, InfluenceDisplay)
    assert len(display.ax_.patches) == 5
    widths = [bar.get_width() for bar in display.ax_.patches]
    assert_allclose(np.sort(np.abs(widths)), np.sort(np.abs(found.effect))[-5:])
    with pytest.raises(ValueError, match="n_shown=0"):
        found.plot(n_shown=0)
    plt.close("all")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of": "cells"}, "of='cells'"),
        ({"y_eval": NUMBERS[N:]}, "without X_eval"),
        ({"X_eval": X_NEW, "cv": 5}, "leave one out"),
        ({"X_eval": X_NEW, "of": "columns"}, "pass y_eval"),
        ({"X_eval": X_NEW, "y_eval": NUMBERS}, "inconsistent numbers"),
        ({"groups": GROUPS[:5]}, r"groups has shape \(5,\)"),
        ({"groups": GROUPS, "of": "columns"}, "3 columns"),
        ({"X_eval": X_NEW[:, :2], "y_eval": NUMBERS[N:]}, "X_eval has 2 columns"),
        ({"groups": [0, 0, 0], "of": "columns"}, "none would be left"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        influence(LSSVR(gamma=0.2), X, NUMBERS[:N], **options)


def test_what_is_refused_of_searches_and_labels():
    search = FastGridSearchCV(LSSVR(), {"alpha": [1.0]}, refit=False)
    with pytest.raises(ValueError, match="refit=True"):
        influence(search, X, NUMBERS[:N])
    with pytest.raises(ValueError, match="labels that y does not have"):
        influence(LSSVC(gamma=0.2), X, LABELS[:N], X_eval=X_NEW, y_eval=["maybe"] * NEW)
    repeated = [(np.array([0, 0, 1, 2, 3]), np.array([4, 5]))]
    with pytest.raises(ValueError, match="repeat"):
        influence(LSSVR(gamma=0.2), X, NUMBERS[:N], cv=repeated)
    kernel = KernelRidge(kernel="precomputed")
    with pytest.raises(ValueError, match="kernel matrix"):
        influence(kernel, X @ X.T, NUMBERS[:N], of="columns")
