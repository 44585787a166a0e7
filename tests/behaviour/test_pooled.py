"""Scores of all held-out rows together, against scikit-learn's metrics of its own predictions."""

import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn import metrics
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelRegressor,
    Nystrom,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    streams,
    validation_curve,
)

X, y = make_regression(n_samples=40, n_features=3, noise=20.0, random_state=0)
X, y = X / 2.0, y / 50.0
LABELS = (y > 0.1).astype(int)
LOO = ms.LeaveOneOut()
ALPHAS = [0.01, 0.1, 1.0, 10.0]
RIDGE = KernelRidge(kernel="rbf", gamma=0.2)
PIPELINE = make_pipeline(StandardScaler(), Ridge())
ROOT = "neg_root_mean_squared_error"


def said(words="pooled"):
    return pytest.warns(UserWarning, match=words)


@pytest.mark.parametrize(
    ("scoring", "metric"),
    [
        (None, metrics.r2_score),
        ("explained_variance", metrics.explained_variance_score),
        (ROOT, lambda *args: -metrics.root_mean_squared_error(*args)),
        ("neg_median_absolute_error", lambda *args: -metrics.median_absolute_error(*args)),
    ],
)
def test_numbers_of_single_rows(scoring, metric):
    expected = metric(y, ms.cross_val_predict(RIDGE, X, y, cv=LOO))
    with said():
        assert_allclose(cross_val_score(RIDGE, X, y, cv=LOO, scoring=scoring), expected, rtol=1e-9)
    grid = {"alpha": ALPHAS}
    with said():
        search = FastGridSearchCV(RIDGE, grid, cv=LOO, scoring=scoring).fit(X, y)
    models = [clone(RIDGE).set_params(alpha=alpha) for alpha in ALPHAS]
    truths = [metric(y, ms.cross_val_predict(model, X, y, cv=LOO)) for model in models]
    assert_allclose(search.cv_results_["mean_test_score"], truths, rtol=1e-9)
    assert search.best_index_ == int(np.argmax(truths))
    assert_allclose(search.cv_results_["std_test_score"], 0.0, atol=1e-12)
    assert any("pooled" in note for note in search.plan_.notes)
    assert search.plan_.pooled == ("score",)


@pytest.mark.parametrize("scoring", ["roc_auc", "average_precision", "balanced_accuracy", "f1"])
@pytest.mark.parametrize("model", [LSSVC(gamma=0.2), SVC(gamma=0.2, tol=1e-8)], ids=str)
def test_classes_of_single_rows(model, scoring):
    with said():
        ours = cross_val_score(model, X, LABELS, cv=LOO, scoring=scoring, order="exact")
    decided = ms.cross_val_predict(model, X, LABELS, cv=LOO, method="decision_function")
    metric = metrics.get_scorer(scoring)._score_func
    held = decided if scoring in ("roc_auc", "average_precision") else (decided > 0).astype(int)
    assert_allclose(ours, metric(LABELS, held), rtol=1e-6)


def test_a_fold_of_one_row_among_others():
    """The mean of a search would be NaN; that of single scores is the user's own affair."""
    cv = ms.KFold(30)  # ten folds of two rows, twenty of one
    with said():
        search = FastGridSearchCV(RIDGE, {"alpha": [0.1]}, cv=cv).fit(X, y)
    model = clone(RIDGE).set_params(alpha=0.1)
    expected = metrics.r2_score(y, ms.cross_val_predict(model, X, y, cv=cv))
    assert_allclose(search.best_score_, expected, rtol=1e-9)


@pytest.mark.parametrize("model", [RIDGE, PIPELINE], ids=["kernel", "pipeline"])
@pytest.mark.parametrize("return_train_score", [False, True])
def test_as_asked_for(model, return_train_score):
    """Folds of a Pipeline are evaluated one by one, and scored when the last is done."""
    cv = ms.RepeatedKFold(n_splits=4, n_repeats=2, random_state=0)
    splits = list(cv.split(X))
    held = [clone(model).fit(X[train], y[train]).predict(X[test]) for train, test in splits]
    truth = np.concatenate([y[test] for _, test in splits])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ours = cross_validate(
            model,
            X,
            y,
            cv=cv,
            scoring=["r2", "neg_max_error"],
            return_train_score=return_train_score,
            pooled=True,
        )
    assert ours["test_r2"].shape == (8,)
    assert_allclose(ours["test_r2"], metrics.r2_score(truth, np.concatenate(held)), rtol=1e-8)
    worst = -metrics.max_error(truth, np.concatenate(held))
    assert_allclose(ours["test_neg_max_error"], worst, rtol=1e-8)
    if return_train_score:
        theirs = ms.cross_validate(model, X, y, cv=cv, return_train_score=True)
        assert_allclose(ours["train_r2"], theirs["train_score"], rtol=1e-8)


def test_some_of_several_scores():
    scoring = {"r2": "r2", "error": "neg_mean_squared_error", "own": one_of_each}
    with said("r2_score"):
        ours = cross_validate(RIDGE, X, y, cv=LOO, scoring=scoring)
    held = ms.cross_val_predict(RIDGE, X, y, cv=LOO)
    assert_allclose(ours["test_r2"], metrics.r2_score(y, held))
    assert_allclose(ours["test_error"], -((y - held) ** 2), rtol=1e-6)
    assert_allclose(ours["test_own"], held, rtol=1e-7)


def one_of_each(model, X, y):
    return float(model.predict(X)[0])


def test_a_fold_that_fails_is_left_out():
    labels = np.where(np.arange(40) < 10, 0, 1)
    cv = [(np.arange(10, 30), np.arange(5)), *ms.KFold(4, shuffle=True, random_state=0).split(X)]
    model = make_pipeline(StandardScaler(), LSSVC(gamma=0.2))
    with pytest.warns(FitFailedWarning, match="Fold 0"):
        ours = cross_val_score(model, X, labels, cv=cv, scoring="roc_auc", pooled=True)
    decided = ms.cross_val_predict(model, X, labels, cv=cv[1:], method="decision_function")
    assert np.isnan(ours[0])
    assert_allclose(ours[1:], metrics.roc_auc_score(labels, decided))


@pytest.mark.parametrize("model", [RIDGE, LSSVC(gamma=0.2)], ids=str)
def test_permutations(model):
    target = y if model is RIDGE else LABELS
    scoring = None if model is RIDGE else "roc_auc"
    method, metric = "predict", metrics.r2_score
    if model is not RIDGE:
        method, metric = "decision_function", metrics.roc_auc_score
    with said():
        score, chance, _ = permutation_test_score(
            model, X, target, cv=LOO, scoring=scoring, n_permutations=3
        )
    rng = np.random.RandomState(0)
    for found, rows in zip([score, *chance], [np.arange(40), *orders(rng, 3)], strict=True):
        held = ms.cross_val_predict(model, X, target[rows], cv=LOO, method=method)
        assert_allclose(found, metric(target[rows], held), rtol=1e-9)


def orders(rng, count):
    return [rng.permutation(40) for _ in range(count)]


def test_curves():
    with said():
        _, ours = validation_curve(RIDGE, X, y, param_name="alpha", param_range=ALPHAS, cv=LOO)
    assert ours.shape == (4, 40)
    model = clone(RIDGE).set_params(alpha=10.0)
    expected = metrics.r2_score(y, ms.cross_val_predict(model, X, y, cv=LOO))
    assert_allclose(ours[3], expected, rtol=1e-9)
    with said():
        _, _, ours = learning_curve(RIDGE, X, y, cv=LOO, train_sizes=[20, 39])
    splits = [(train[:20], test) for train, test in LOO.split(X)]
    held = [clone(RIDGE).fit(X[a], y[a]).predict(X[b])[0] for a, b in splits]
    assert_allclose(ours[0], metrics.r2_score(y, held), rtol=1e-9)


def test_low_rank_on_samples_and_passes(monkeypatch):
    """Sums of squared errors by fold do not give the spread of all rows."""
    monkeypatch.setattr("everyfold.operators.lowrank.BLOCK", 50)
    monkeypatch.setattr("everyfold.engine.planning.units.ROWS_TO_SUM", 1)
    model = KernelRegressor(gamma=0.2, operator=Nystrom(8, random_state=0))
    search = FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=4, pooled=True).fit(X, y)
    expected = metrics.r2_score(y, search.out_of_fold().values)
    assert_allclose(search.best_score_, expected, rtol=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match="pooled"):
        cross_val_score(RIDGE, X, y, pooled="yes")
    with pytest.raises(ValueError, match="pooled"):
        FastGridSearchCV(RIDGE, {"alpha": ALPHAS}, pooled="yes").fit(X, y)
    with pytest.raises(ValueError, match="n_confirm=2"):
        FastGridSearchCV(RIDGE, {"alpha": ALPHAS}, pooled=True, n_confirm=2).fit(X, y)
    with pytest.raises(ValueError, match="source"):
        cross_val_score(KernelRegressor(), streams.ArrayRows(X, y), cv=3, pooled=True)
