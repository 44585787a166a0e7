"""Scorers of the papers: the formulas, scikit-learn's loop, and the arithmetic on all folds."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.svm import SVC

from everyfold import LSSVC, FastGridSearchCV, HuberSVC, cross_val_predict, cross_val_score
from everyfold.engine.scoring.metrics import find_metric
from everyfold.estimators.targets import Numbers
from everyfold.papers.published_metrics import (
    coefficient_of_variation,
    huber_hinge_loss,
    huber_hinge_scorer,
    neg_coefficient_of_variation,
)

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 3))
Y = 20.0 + 5.0 * np.sin(X[:, 0]) + RNG.normal(size=60)
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=60) > 0.2, "a", "b")
SIGNS = np.where(LABELS == "b", 1, -1)


def by_hand(signs, u, h):
    total = 0.0
    for y, value in zip(signs, u, strict=True):
        m = y * value
        if m < 1 - h:
            total += 1 - m
        elif m <= 1 + h:
            total += (1 + h - m) ** 2 / (4 * h)
    return total / len(u)


def test_the_huber_hinge_is_its_formula():
    u = np.linspace(-2.0, 2.0, 41)
    for h in (0.05, 0.5, 1.0):
        signs = np.where(np.arange(41) % 2, 1, -1)
        assert_allclose(huber_hinge_loss(signs, u, h=h), by_hand(signs, u, h), rtol=1e-13)
        hinge = np.maximum(0.0, 1.0 - signs * u).mean()
        assert hinge <= huber_hinge_loss(signs, u, h=h) <= hinge + h / 4
    w = RNG.uniform(size=41)
    each = [by_hand([y], [value], 0.3) for y, value in zip(signs, u, strict=True)]
    found = huber_hinge_loss(signs, u, h=0.3, sample_weight=w)
    assert_allclose(found, np.average(each, weights=w), rtol=1e-13)


def test_the_positive_label():
    u = np.array([0.3, -2.0, 0.9])
    assert_allclose(huber_hinge_loss(["a", "b", "b"], u), by_hand([-1, 1, 1], u, 0.05))
    assert_allclose(huber_hinge_loss([0, 0, 0], u), by_hand([-1, -1, -1], u, 0.05))
    assert_allclose(huber_hinge_loss(["b"] * 3, u, pos_label="b"), by_hand([1, 1, 1], u, 0.05))
    for labels in (["b", "b", "b"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="pos_label names one of them"):
            huber_hinge_loss(labels, u)


def test_the_coefficient_of_variation_is_its_formula():
    held = Y + RNG.normal(size=60)
    expected = np.sqrt(np.mean((Y - held) ** 2)) / np.mean(Y)
    assert_allclose(coefficient_of_variation(Y, held), expected, rtol=1e-14)
    assert_allclose(coefficient_of_variation(-Y, -held), expected, rtol=1e-14)
    both = coefficient_of_variation(np.column_stack([Y, 2.0 * Y]), np.column_stack([held, held]))
    second = np.sqrt(np.mean((2.0 * Y - held) ** 2)) / np.mean(2.0 * Y)
    assert_allclose(both, (expected + second) / 2.0, rtol=1e-14)
    with pytest.raises(ValueError, match="which is 0 here; use root_mean_squared_error"):
        coefficient_of_variation([-1.0, 1.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="has shape"):
        coefficient_of_variation(Y, held[:, None])


def spied(monkeypatch):
    """How often scikit-learn's own scoring is asked."""
    calls = []
    original = ms._validation._score
    monkeypatch.setattr(
        "everyfold.engine.scoring.fold_scorers.score_estimator",
        lambda *a: calls.append(1) or original(*a),
    )
    return calls


@pytest.mark.parametrize(
    ("model", "y", "scorer"),
    [
        (KernelRidge(kernel="rbf", gamma=0.3), Y, neg_coefficient_of_variation),
        (LSSVC(gamma=0.3), LABELS, huber_hinge_scorer(0.3)),
        (HuberSVC(gamma=0.3), SIGNS, huber_hinge_scorer()),
        (SVC(gamma=0.3, tol=1e-8), LABELS, huber_hinge_scorer(0.1, pos_label="a")),
    ],
    ids=["cov", "lssvc", "huber", "svc"],
)
def test_scores_are_scikit_learns_without_asking_it(model, y, scorer, monkeypatch):
    calls = spied(monkeypatch)
    ours = cross_val_score(model, X, y, cv=4, scoring=scorer)
    assert not calls
    assert_allclose(ours, ms.cross_val_score(model, X, y, cv=4, scoring=scorer), rtol=1e-5)
    assert np.unique(ours).size == 4


def test_a_search_by_both():
    grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.1, 1.0]}
    scoring = {"loss": huber_hinge_scorer(0.05), "accuracy": "accuracy"}
    ours, theirs = (
        search(HuberSVC(), grid, scoring=scoring, refit="loss", cv=3).fit(X, SIGNS)
        for search in (FastGridSearchCV, ms.GridSearchCV)
    )
    assert ours.best_params_ == theirs.best_params_
    for name in ("mean_test_loss", "mean_test_accuracy"):
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-5)


def test_a_test_set_of_one_class_needs_the_positive_label(monkeypatch):
    calls = spied(monkeypatch)
    order = np.argsort(LABELS, kind="stable")
    rows, labels = X[order], LABELS[order]
    model, halves = LSSVC(gamma=0.3), KFold(6)
    arguments = {"cv": halves, "scoring": huber_hinge_scorer(0.1, pos_label="b")}
    ours = cross_val_score(model, rows, labels, **arguments)
    assert_allclose(ours, ms.cross_val_score(model, rows, labels, **arguments), rtol=1e-8)
    assert calls
    with pytest.raises(ValueError, match="pos_label names one of them"):
        cross_val_score(
            model, rows, labels, cv=halves, scoring=huber_hinge_scorer(), error_score="raise"
        )


def test_leave_one_out_is_the_mean_loss_of_the_held_out_values():
    model = HuberSVC(gamma=0.3, h=0.2)
    u = cross_val_predict(model, X, SIGNS, cv=LeaveOneOut(), method="decision_function")
    found = cross_val_score(model, X, SIGNS, cv=LeaveOneOut(), scoring=huber_hinge_scorer(0.2))
    assert_allclose(-found.mean(), by_hand(SIGNS, u, 0.2), rtol=1e-10)


def test_the_coefficient_of_single_rows_is_another_number():
    with pytest.warns(UserWarning, match="the mean absolute percentage error"):
        found = cross_val_score(
            KernelRidge(kernel="rbf"),
            X,
            Y,
            cv=LeaveOneOut(),
            scoring=neg_coefficient_of_variation,
            pooled=False,
        )
    held = cross_val_predict(KernelRidge(kernel="rbf"), X, Y, cv=LeaveOneOut())
    assert_allclose(-found.mean(), np.mean(np.abs(Y - held) / Y), rtol=1e-10)


def test_what_has_no_fast_form():
    flowers, species = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="two classes"):
        cross_val_score(
            LSSVC(), flowers, species, cv=3, scoring=huber_hinge_scorer(), error_score="raise"
        )
    by_prediction = make_scorer(huber_hinge_loss, greater_is_better=False)
    model = HuberSVC(gamma=0.3)
    ours = cross_val_score(model, X, SIGNS, cv=3, scoring=by_prediction)
    theirs = ms.cross_val_score(model, X, SIGNS, cv=3, scoring=by_prediction)
    assert_allclose(ours, theirs, rtol=1e-8)
    for h in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="h="):
            huber_hinge_scorer(h)
    assert find_metric(huber_hinge_scorer(), Numbers.read(Y)) is None
    assert find_metric(get_scorer("neg_max_error"), Numbers.read(Y)) is None
