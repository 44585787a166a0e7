"""Leave-one-out of SVC and SVR by one step, against refits without each row."""

import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, load_wine, make_classification
from sklearn.metrics import average_precision_score, make_scorer, roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import FastGridSearchCV, InexactWarning, cross_val_predict
from everyfold.crossval import Folds
from everyfold.crossval import svm_loo as single
from everyfold.kernels import RBF
from everyfold.losses import EpsilonInsensitive, Hinge
from everyfold.operators import DenseMatrix
from everyfold.solvers import Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.leave_one_out import RowRemovals, held_out_values, refit_without_rows
from everyfold.svm.paths import svm_paths as one_path
from tests.cases import svm_paths_of_folds as svm_paths

pytestmark = [
    pytest.mark.xdist_group("numba"),
    pytest.mark.filterwarnings("ignore::everyfold.InexactWarning"),
    pytest.mark.filterwarnings("ignore:f1_score of single rows"),
]


X, LABELS = make_classification(90, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=3)
SIGNS = 2.0 * LABELS - 1.0
NUMBERS = np.tanh(X @ np.array([1.0, -0.5, 0.3, 0.2])) + 0.1 * np.sin(7 * X[:, 0])
WEIGHTS = np.random.default_rng(1).uniform(0.3, 2.0, len(X))


def refits(model, X, y, sample_weight=None, method="predict"):
    """Leave every row out and fit again."""
    w = np.ones(len(y)) if sample_weight is None else sample_weight
    found = []
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        fitted = model.fit(X[rest], y[rest], sample_weight=w[rest])
        found.append(getattr(fitted, method)(X[[i]])[0])
    return np.array(found)


@pytest.mark.parametrize("gamma", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("weighting", ["none", "samples", "classes"])
def test_labels_of_svc_are_nearly_all_those_of_refits(gamma, weighting):
    class_weight = {0: 2.5, 1: 0.7} if weighting == "classes" else None
    w = WEIGHTS if weighting == "samples" else None
    params = {} if w is None else {"sample_weight": w}
    n_wrong, n_moved = 0, 0
    for C in (0.01, 0.3, 3.0, 100.0, 1e4):
        model = SVC(C=C, gamma=gamma, class_weight=class_weight, tol=1e-5)
        loo = ms.LeaveOneOut()
        exact = cross_val_predict(model, X, LABELS, cv=loo, params=params)
        ours = cross_val_predict(model, X, LABELS, cv=loo, params=params, order=np.inf)
        true = refits(model, X, LABELS, w)
        assert_array_equal(exact, true)
        # A wide kernel with a huge C has some rows of which the step is sure and wrong.
        assert np.count_nonzero(ours != true) <= 3
        assert abs(np.count_nonzero(ours != LABELS) - np.count_nonzero(true != LABELS)) <= 2
        n_wrong += np.count_nonzero(ours != true)
        training = model.fit(X, LABELS, sample_weight=w).predict(X)
        n_moved += np.count_nonzero(training != true)
    # At a small C the labels of the training rows would do; over all Cs they must not.
    assert n_moved >= max(2 * n_wrong, 10)


@pytest.mark.parametrize("C", [0.01, 3.0, 100.0])
@pytest.mark.parametrize("gamma", [0.3, 5.0])
@pytest.mark.parametrize("weighting", ["none", "samples", "classes"])
def test_decision_values_of_svc_rank_rows_as_refits_do(C, gamma, weighting):
    class_weight = {0: 2.5, 1: 0.7} if weighting == "classes" else None
    w = WEIGHTS if weighting == "samples" else None
    model = SVC(C=C, gamma=gamma, class_weight=class_weight, tol=1e-4)
    params = {} if w is None else {"sample_weight": w}
    loo, method = ms.LeaveOneOut(), "decision_function"
    ours = cross_val_predict(model, X, LABELS, cv=loo, params=params, method=method)
    true = refits(model, X, LABELS, w, method)
    assert_allclose(ours, true, atol=1e-3)
    for measure in (roc_auc_score, average_precision_score):
        assert abs(measure(LABELS, ours) - measure(LABELS, true)) < 0.01
    training = model.fit(X, LABELS, sample_weight=w).decision_function(X)
    assert abs(roc_auc_score(LABELS, training) - roc_auc_score(LABELS, true)) > 0.01


def margin(model, X, y):
    """A scorer of which nothing is known; it reads values."""
    return float(model.decision_function(X)[0])


@pytest.mark.parametrize(
    ("scoring", "is_refitted"),
    [
        (margin, True),
        (make_scorer(lambda y, u: float(u[0]), response_method="decision_function"), True),
        ({"label": "accuracy", "value": margin}, True),
        ({"label": "accuracy", "other": "f1"}, False),
        (make_scorer(lambda y, u: float(u[0]), response_method="predict"), False),
        (None, False),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_scorers_that_read_values_get_those_of_refits_even_if_steps_are_asked_for(
    scoring, is_refitted
):
    rows = np.random.default_rng(0).permutation(len(X))[:40]
    splits = [(np.delete(np.arange(len(X)), i), np.array([i])) for i in rows]
    options = {"scoring": scoring, "refit": False, "n_confirm": 0, "cv": splits, "order": np.inf}
    search = FastGridSearchCV(SVC(tol=1e-4), {"C": [0.5, 20.0], "gamma": [0.3]}, **options)
    found = search.fit(X, LABELS).cv_results_
    assert found["is_exact"].all() == found["is_exact"].any() == is_refitted
    assert ("without each support vector" in str(search.plan_)) == is_refitted
    if is_refitted:
        name = "value" if isinstance(scoring, dict) else "score"
        for k, C in enumerate([0.5, 20.0]):
            true = refits(SVC(C=C, gamma=0.3, tol=1e-4), X, LABELS, method="decision_function")
            ours = [found[f"split{i}_test_{name}"][k] for i in range(40)]
            assert_allclose(ours, true[rows], atol=1e-3)


def test_values_of_five_classes_and_labels_by_broken_ties_are_those_of_refits():
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(90, 6)), np.arange(90) % 5
    loo = ms.LeaveOneOut()
    model = SVC(C=2.0, gamma=0.05, tol=1e-5)
    values = cross_val_predict(model, points, y, cv=loo, method="decision_function")
    true = ms.cross_val_predict(model, points, y, cv=loo, method="decision_function")
    assert_allclose(values, true, atol=1e-3)
    model.set_params(break_ties=True)
    labels = cross_val_predict(model, points, y, cv=loo)
    by_values = true.argmax(axis=1)
    by_votes = ms.cross_val_predict(SVC(C=2.0, gamma=0.05), points, y, cv=loo)
    assert np.array_equal(labels, by_values)
    assert np.count_nonzero(by_values != by_votes) >= 2  # otherwise votes would have passed


def test_rows_shared_out_over_threads_have_the_same_values():
    model, loo = SVC(C=3.0, gamma=0.3), ms.LeaveOneOut()
    one, two = (
        cross_val_predict(model, X, LABELS, cv=loo, n_jobs=n, method="decision_function")
        for n in (1, 2)
    )
    assert np.array_equal(one, two)
    assert_allclose(two, refits(model, X, LABELS, method="decision_function"), atol=5e-3)


@pytest.mark.parametrize(("n", "is_loose"), [(90, False), (91, True)])
def test_a_bias_that_is_not_unique_is_libsvms_own(n, is_loose):
    """Without one of 46 rows against 45 all others are at their bound; else a free one is left."""
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    points = np.random.default_rng(0).normal(size=(n, 2))
    model, loo = SVC(C=1e-3, gamma=0.1), ms.LeaveOneOut()
    ours = cross_val_predict(model, points, y, cv=loo, method="decision_function")
    assert_allclose(ours, refits(model, points, y, method="decision_function"), atol=2e-3)
    options = {"cv": loo, "refit": False}
    search = FastGridSearchCV(model, {"C": [1e-3]}, verbose=1, **options).fit(points, y)
    theirs = ms.GridSearchCV(model, {"C": [1e-3]}, **options).fit(points, y)
    for key in ("mean_test_score", "rank_test_score"):
        assert_array_equal(search.cv_results_[key], theirs.cv_results_[key])
    assert search.cv_results_["is_exact"].all()
    assert ("is not unique in some folds" in str(search.plan_)) == is_loose


def test_refits_that_run_out_of_steps_are_not_called_exact():
    K, rows = RBF(0.3)(X), np.arange(0, len(X), 3)
    full = svm_paths(K, SIGNS, [10.0], WEIGHTS[None], tol=1e-6)
    removal = RowRemovals(
        10.0, full.coef[0, 0], full.decision[0, 0] - full.intercept[0, 0], rows, rows
    )
    few = refit_without_rows(K, SIGNS, WEIGHTS, removal, tol=1e-6, max_iter=3)
    many = refit_without_rows(K, SIGNS, WEIGHTS, removal, tol=1e-6)
    held = np.tile(WEIGHTS, (len(rows), 1))
    held[np.arange(len(rows)), rows] = 0.0
    true = svm_paths(K, SIGNS, [10.0], held, tol=1e-6).decision[np.arange(len(rows)), 0, rows]
    assert (many.violation <= 1e-6).all()
    assert_allclose(many.values, true, atol=1e-4)
    is_off = np.abs(few.values - true) > 1e-3
    assert np.count_nonzero(is_off) > 5
    assert (few.violation[is_off] > 1e-6).all()


def test_balanced_classes_are_refitted():
    """The weights of all rows depend on which one is left out, so that no step leads there."""
    model = SVC(gamma=0.3, class_weight="balanced", tol=1e-5)
    arguments = {"cv": ms.LeaveOneOut(), "method": "decision_function"}
    ours = cross_val_predict(model, X[:40], LABELS[:40], **arguments)
    assert_allclose(ours, ms.cross_val_predict(model, X[:40], LABELS[:40], **arguments), atol=1e-4)


def test_labels_of_three_classes_are_those_of_refits():
    wine, y = load_wine(return_X_y=True)
    rows = np.arange(0, len(y), 2)
    wine, y = StandardScaler().fit_transform(wine[rows]), y[rows]
    for gamma, C in ((0.02, 0.5), (0.1, 10.0), (0.5, 1.0)):
        model = SVC(C=C, gamma=gamma)
        ours = cross_val_predict(model, wine, y, cv=ms.LeaveOneOut())
        assert np.count_nonzero(ours != refits(model, wine, y)) <= 2


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("gamma", [0.03, 0.3, 3.0])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_numbers_of_svr_are_those_of_refits_and_steps_are_near(C, gamma, scale):
    # Scaling y, epsilon and C alike scales the predictions, so they must be as near as before.
    y = scale * NUMBERS
    model = SVR(C=scale * C, gamma=gamma, epsilon=0.1 * scale, tol=1e-5 * scale)
    options = {"cv": ms.LeaveOneOut(), "params": {"sample_weight": WEIGHTS}}
    true = refits(model, X, y, WEIGHTS)
    exact = cross_val_predict(model, X, y, **options)
    assert_allclose(exact, true, atol=2e-3 * scale)
    ours = cross_val_predict(model, X, y, order=np.inf, **options)
    assert np.sqrt(np.mean((ours - true) ** 2)) < 0.08 * np.std(y - true)
    assert abs(np.mean((y - ours) ** 2) / np.mean((y - true) ** 2) - 1.0) < 0.06


def is_steady(before, after, limit, i):
    """Whether leaving row i out moved no other row between zero, inside and bound."""
    sides = [
        np.where(a == 0.0, 0, np.where(np.abs(a) >= limit, 2, 1)) * np.sign(a)
        for a in (before, after)
    ]
    return np.array_equal(np.delete(sides[0], i), np.delete(sides[1], i))


@pytest.mark.parametrize("kind", ["hinge", "epsilon"])
@pytest.mark.parametrize("C", [0.05, 0.5, 5.0])
def test_the_step_is_exact_where_no_row_changes_sides(kind, C):
    K = RBF(0.5)(X)
    if kind == "hinge":
        y, loss = SIGNS, Hinge()
    else:
        y, loss = NUMBERS, EpsilonInsensitive(0.1)
    options = {"tol": 1e-7} | ({"epsilon": 0.1} if kind == "epsilon" else {})
    K = K.astype(np.float32).astype(np.float64)
    problem = Problem(y[:, None], WEIGHTS, loss, intercept=True)
    full = one_path(K, y, [C], WEIGHTS, **options)
    ours = single.hold_out_by_steps(
        problem,
        DenseMatrix(K),
        np.array([C]),
        full,
        Folds.leave_one_out(len(y)),
        None,
        width=1e-7,
    )[0]
    held = np.tile(WEIGHTS, (len(y), 1))
    np.fill_diagonal(held, 0.0)
    each = svm_paths(K, y, [C], held, **options)
    limit = C * WEIGHTS
    steady = [i for i in range(len(y)) if is_steady(full.coef[0], each.coef[i, 0], limit, i)]
    a = full.coef[0][steady]
    true = each.decision[steady, 0, steady]
    # Free and bounded support vectors have to be among them, and their values have to move.
    assert np.count_nonzero(a) >= 3
    assert np.abs(true - full.decision[0][steady]).max() > 1e-2
    found, before = ours.values[steady, 0], full.decision[0][steady]
    # Of labels nothing is spent on a sign that cannot turn.
    margin = y[steady] * before
    is_open = (kind == "epsilon") | ((margin > 0.0) & (margin < 4.0 * np.abs(a)))
    assert is_open.any() or C < 0.5
    assert_allclose(found[is_open], true[is_open], atol=2e-5)
    np.testing.assert_array_equal(np.sign(found), np.sign(true))


def test_steady_rows_are_free_and_bounded_over_the_cases_above():
    K, kinds = RBF(0.5)(X), set()
    for C in (0.05, 0.5, 5.0):
        held = np.tile(WEIGHTS, (len(X), 1))
        np.fill_diagonal(held, 0.0)
        full = svm_paths(K, SIGNS, [C], WEIGHTS[None], tol=1e-7).coef[0, 0]
        each = svm_paths(K, SIGNS, [C], held, tol=1e-7).coef[:, 0]
        for i in range(len(X)):
            if full[i] != 0.0 and is_steady(full, each[i], C * WEIGHTS, i):
                kinds.add(abs(full[i]) < C * WEIGHTS[i])
    assert kinds == {True, False}


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_leaving_a_row_out_of_svr_is_the_fit_without_it(C):
    K, rows = RBF(0.3)(X), np.arange(0, len(X), 3)
    held = np.tile(WEIGHTS, (len(rows), 1))
    held[np.arange(len(rows)), rows] = 0.0
    full = svm_paths(K, NUMBERS, [C], WEIGHTS[None], epsilon=0.1, tol=1e-6)
    values = full.decision[0, 0] - full.intercept[0, 0]
    removal = RowRemovals(C, full.coef[0, 0], values, rows, np.arange(90))
    ours = held_out_values(
        K, NUMBERS, WEIGHTS, [removal], epsilon=0.1, tolerances=[1e-6], max_iter=100_000
    )[0].values
    true = svm_paths(K, NUMBERS, [C], held, epsilon=0.1, tol=1e-6).decision[
        np.arange(len(rows)), 0, rows
    ]
    assert_allclose(ours, true, atol=1e-3)
    assert np.abs(ours - full.decision[0, 0][rows]).max() > 0.02


def test_leaving_a_row_out_is_the_fit_without_it():
    K, rows = RBF(0.3)(X), np.arange(0, len(X), 3)
    held = np.tile(WEIGHTS, (len(rows), 1))
    held[np.arange(len(rows)), rows] = 0.0
    for C in (0.1, 10.0):
        full = svm_paths(K, SIGNS, [C], WEIGHTS[None], tol=1e-6)
        coef = full.coef[0, 0]
        removal = RowRemovals(
            C, coef, full.decision[0, 0] - full.intercept[0, 0], rows, np.arange(90)
        )
        ours = held_out_values(
            K, SIGNS, WEIGHTS, [removal], tolerances=[1e-5, 1e-6], max_iter=100_000
        )[0].values
        true = svm_paths(K, SIGNS, [C], held, tol=1e-6).decision[np.arange(len(rows)), 0, rows]
        assert_allclose(ours, true, atol=1e-3)
        assert np.abs(ours - full.decision[0, 0][rows]).max() > 0.05


def test_a_row_that_nobody_can_stand_in_for_has_no_value():
    K, y, w = np.eye(3), np.array([1.0, -1.0, -1.0]), np.ones(3)
    full = svm_paths(K, y, [0.1], w[None]).coef[0, 0]
    removal = RowRemovals(0.1, full, K @ full, np.array([0]), np.arange(3))
    (left,) = held_out_values(K, y, w, [removal])
    assert np.isnan(left.values).all()
    assert not left.is_sure.any()


def test_values_whose_steps_ran_out_say_so_and_are_no_higher_than_the_refits():
    K, rows, C = RBF(0.3)(X), np.arange(len(X)), 100.0
    full = svm_paths(K, SIGNS, [C], np.ones((1, 90)), tol=1e-6)
    is_support = full.coef[0, 0] != 0.0
    rows = rows[is_support & (SIGNS * full.decision[0, 0] > 0.0)]
    values = full.decision[0, 0] - full.intercept[0, 0]
    removal = RowRemovals(C, full.coef[0, 0], values, rows, np.arange(90))
    few, many = (
        held_out_values(K, SIGNS, np.ones(90), [removal], tolerances=[1e-6], max_iter=steps)[0]
        for steps in (5, 100_000)
    )
    assert many.is_sure.all()
    assert np.count_nonzero(~few.is_sure) > len(rows) / 4
    gap = (SIGNS[rows] * (many.values - few.values))[~few.is_sure]
    assert np.mean(gap > -0.01) > 0.8
    assert gap.max() > 0.1


def test_a_value_whose_steps_ran_out_is_not_put_below_the_step(monkeypatch):
    K, C = RBF(0.3)(X), np.array([100.0])
    problem = Problem(SIGNS[:, None], np.ones(90), Hinge(), intercept=True)
    full = one_path(K, SIGNS, C, np.ones(90))
    folds = Folds.leave_one_out(90)

    def leave(kernel):
        return single.hold_out_by_steps(problem, DenseMatrix(K), C, full, folds, kernel)[0].values[
            :, 0
        ]

    solve, step = single.held_out_values, leave(None)
    monkeypatch.setattr(single, "held_out_values", lambda *task: solve(*task, max_iter=1))
    assert np.all(SIGNS * leave(Kernel32(K)) >= SIGNS * step - 1e-12)


def test_larger_cs_that_change_nothing_share_their_record():
    problem = Problem(SIGNS[:, None], np.ones(len(X)), Hinge(), intercept=True)
    K, Cs = RBF(20.0)(X), np.array([100.0, 0.1, 1e4])
    full = one_path(K, SIGNS, Cs, np.ones(len(X)))
    folds = Folds.leave_one_out(len(X))
    records = single.hold_out_by_steps(problem, DenseMatrix(K), Cs, full, folds, Kernel32(K))
    assert_allclose(records[0].values, records[2].values, rtol=0.0, atol=0.0)
    assert np.abs(records[0].values - records[1].values).max() > 0.1


def test_some_rows_and_any_order_of_folds():
    rows = np.random.default_rng(0).permutation(len(X))[:40]
    splits = [(np.delete(np.arange(len(X)), i), np.array([i])) for i in rows]
    arguments = {"scoring": "accuracy", "refit": False, "n_confirm": 0}
    grid = {"C": [10.0], "gamma": [0.3]}
    some = FastGridSearchCV(SVC(), grid, cv=splits, **arguments).fit(X, LABELS).cv_results_
    ours = np.array([some[f"split{k}_test_score"][0] for k in range(40)])
    model = SVC(C=10.0, gamma=0.3)
    true = refits(model, X, LABELS)[rows] == LABELS[rows]
    training = model.fit(X, LABELS).predict(X[rows]) == LABELS[rows]
    assert np.count_nonzero(ours != true) <= 1
    assert np.count_nonzero(training != true) >= 3


def test_the_plan_says_one_step_and_nothing_is_called_exact():
    grid = {"C": [0.1, 1.0], "gamma": [0.2]}
    options = {"cv": ms.LeaveOneOut(), "order": np.inf}
    search = FastGridSearchCV(SVC(), grid, refit=False, n_confirm=0, **options)
    with pytest.warns(InexactWarning):
        cross_val_predict(SVC(gamma=0.2), X, LABELS, **options)
    search.fit(X, LABELS)
    assert not search.cv_results_["is_exact"].any()
    assert "one step for every fold" in str(search.plan_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_tables_are_those_of_grid_search(n_classes):
    points = np.random.default_rng(0).normal(size=(60, 3))
    # As many rows of each class: at a small C every row that is left out is called another.
    kinds = np.arange(60) % n_classes
    grid = {"C": [1e-3, 0.3, 10.0], "gamma": [0.1, 1.0]}
    loo = ms.LeaveOneOut()
    with warnings.catch_warnings():
        warnings.simplefilter("error", InexactWarning)
        ours = FastGridSearchCV(SVC(), grid, cv=loo, refit=False).fit(points, kinds)
    theirs = ms.GridSearchCV(SVC(), grid, cv=loo, refit=False).fit(points, kinds)
    assert ours.cv_results_["is_exact"].all()
    assert "without each support vector" in str(ours.plan_)
    for name in ("mean_test_score", "rank_test_score"):
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], atol=1e-12)
    assert ours.cv_results_["mean_test_score"].min() == 0.0
    asked = FastGridSearchCV(SVC(), grid, cv=loo, refit=False, order=np.inf).fit(points, kinds)
    assert "without each support vector" not in str(asked.plan_)


def test_huge_Cs_on_repeated_rows_have_the_scores_of_refits():
    points = np.random.default_rng(1).normal(size=(40, 3))
    points = np.repeat(points, np.where(np.arange(40) < 20, 2, 1), axis=0)
    labels = np.where(points[:, 0] > 0.0, 1, -1)
    grid = {"C": [1.0, 1e10, 1e14], "gamma": [1e-3, 1.0]}
    search = FastGridSearchCV(SVC(), grid, cv=ms.LeaveOneOut(), refit=False, n_confirm=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InexactWarning)
        found = search.fit(points, labels).cv_results_
    for params, score in zip(found["params"], found["mean_test_score"], strict=True):
        true = np.mean(refits(SVC(**params), points, labels) == labels)
        assert abs(score - true) < 1.5 / len(labels)
        if params["gamma"] == 1.0:  # not one of the rows would be wrong in training
            assert SVC(**params).fit(points, labels).score(points, labels) > true + 2.5 / 60


def test_classes_of_equal_size_at_a_small_C_are_refitted():
    """All support vectors are at their bound, and each row that is left out turns the bias."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(32, 3)), np.repeat([0, 1], 16)
    for C in (0.01, 0.03):
        machine = SVC(C=C, gamma=0.5)
        found = cross_val_predict(machine, X, y, cv=ms.LeaveOneOut())
        assert_array_equal(found, refits(machine, X, y))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_classes_whose_sizes_differ_by_one_at_a_small_C_are_refitted(is_weighted):
    """All rows of the smaller class are at their bound, so that the larger class fixes the bias.

    Without one of its rows, it is at its bound, too, or instead, and the bias is another.
    """
    rng = np.random.default_rng(2)
    points, labels = rng.normal(size=(35, 3)), np.arange(35) % 2
    w = np.where(labels == 1, 1.0 + 0.5 / 17.0, 1.0) if is_weighted else np.ones(35)
    params = {"sample_weight": w} if is_weighted else {}
    for C in (0.001, 0.01, 0.1):
        machine = SVC(C=C, gamma=0.3, tol=1e-6)
        found = cross_val_predict(machine, points, labels, cv=ms.LeaveOneOut(), params=params)
        true = refits(machine, points, labels, w)
        assert_array_equal(found, true)
        on_all = machine.fit(points, labels, sample_weight=w).predict(points)
        assert np.count_nonzero(true != on_all) > 5


def test_three_classes_of_which_two_differ_by_one_row():
    rng = np.random.default_rng(10)
    points, labels = rng.normal(size=(26, 1)), np.repeat([0, 1, 2], [10, 11, 5])
    machine = SVC(C=0.3, gamma=0.3, tol=1e-6)
    found = cross_val_predict(machine, points, labels, cv=ms.LeaveOneOut())
    assert_array_equal(found, refits(machine, points, labels))


@pytest.mark.parametrize("seed", [7, 32, 40, 56])
def test_rounding_frees_no_support_vector_that_takes_over_a_coefficient(seed):
    """Without a row of the larger class all others are at their bound, up to a last digit."""
    rng = np.random.default_rng(seed)
    K, y = RBF(0.3)(rng.normal(size=(21, 1))), np.where(np.arange(21) % 2 == 0, 1.0, -1.0)
    for C in rng.uniform(0.05, 0.6, 6):
        coef = svm_paths(K, y, [C], np.ones((1, 21)), tol=1e-6).coef[0, 0]
        rows = np.flatnonzero((y > 0.0) & (coef != 0.0))
        removal = RowRemovals(C, coef, K @ coef, rows, rows)
        left = refit_without_rows(K, y, np.ones(21), removal, tol=1e-6)
        held = 1.0 - np.eye(21)[rows]
        true = svm_paths(K, y, [C], held, tol=1e-6).decision[np.arange(len(rows)), 0, rows]
        assert_allclose(left.values, true, atol=1e-3)
        assert (left.violation < -1e-3).all()  # the bias has room, which is said


# -- kernels of which float32 keeps few digits ---------------------------------------------------


@pytest.mark.parametrize("C", [1e-2, 1e8])
def test_nearly_constant_kernels_are_linear_in_the_limit(C):
    """In float32 all entries of such a kernel are 1, unless this is taken off first."""
    rows, labels, gamma = X[:60], np.arange(60) % 3 == 0, 1e-8
    labels ^= rows[:, 0] > 0.5
    options = {"cv": ms.LeaveOneOut(), "method": "decision_function"}
    ours = cross_val_predict(SVC(C=C, gamma=gamma), rows, labels, **options)
    linear = SVC(C=2.0 * C * gamma, kernel="linear", tol=1e-12)
    true = refits(linear, rows, labels, method="decision_function")
    assert roc_auc_score(labels, ours) == pytest.approx(roc_auc_score(labels, true), abs=5e-3)
    assert_allclose(ours, true, atol=5e-3 * np.std(true))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_the_rounding_of_the_kernel_decides_is_not_called_exact(n_classes):
    flowers, kinds = load_iris(return_X_y=True)
    some = np.flatnonzero(kinds >= 3 - n_classes)
    options = {"scoring": margin, "cv": ms.LeaveOneOut(), "n_confirm": 0, "refit": False}
    if n_classes > 2:
        options["scoring"] = make_scorer(
            lambda y, u: float(u[0, 0]), response_method="decision_function"
        )
    search = FastGridSearchCV(SVC(gamma=0.01), {"C": [1.0, 1e3, 1e9]}, **options)
    search.fit(flowers[some], kinds[some])
    assert search.cv_results_["is_exact"].tolist() == [True, True, False]
