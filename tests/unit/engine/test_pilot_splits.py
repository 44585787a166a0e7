"""What notebooks show: scikit-learn's diagram, and the result of a fitted search below it."""

import re

import numpy as np
import pytest
from sklearn import config_context

from everyfold import (
    LSSVC,
    LSSVR,
    FastCalibratedClassifierCV,
    FastCrossConformalRegressor,
    FastGradientSearchCV,
    FastGridSearchCV,
    KernelLogisticClassifier,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=60)
GRID = {"alpha": [0.1, 1.0], "gamma": [0.1, 1.0]}
DIAGRAM = "sk-top-container"


def test_a_fitted_search_shows_its_winner_and_plan():
    search = FastGridSearchCV(LSSVR(), GRID, cv=3)
    assert "4 candidates" not in search._repr_html_()
    search.fit(X, y)
    shown = search._repr_html_()
    assert shown.index(DIAGRAM) < shown.index("4 candidates = 2 kernels")
    best = search.best_params_
    assert f"alpha = {best['alpha']:g}, gamma = {best['gamma']:g}" in shown
    assert f"{search.best_score_:.5g} (R²)" in shown
    bundle = search._repr_mimebundle_()
    assert "4 candidates = 2 kernels" in bundle["text/html"]
    assert bundle["text/plain"] == repr(search)
    with config_context(display="text"):
        assert not hasattr(search, "_repr_html_")
        assert "text/html" not in search._repr_mimebundle_()


def test_searches_without_a_winner_or_with_several_metrics():
    scoring = ["r2", "neg_mean_absolute_error"]
    search = FastGridSearchCV(LSSVR(), GRID, scoring=scoring, refit="r2", cv=3).fit(X, y)
    assert "(r2)" in search._repr_html_()
    search = FastGridSearchCV(LSSVR(), GRID, scoring=scoring, refit=False, cv=3).fit(X, y)
    assert "4 candidates" in search._repr_html_()
    assert "(r2)" not in search._repr_html_()


def test_labels_are_escaped():
    target = np.where(y > 0.0, "<script>", "no")
    grid = {"class_weight": [{"<script>": 2.0, "no": 1.0}]}
    search = FastGridSearchCV(LSSVC(), grid, cv=3).fit(X, target)
    result = search._repr_html_().rpartition("best_params_")[2]
    assert "&lt;script&gt;" in result
    assert "<script>" not in result


def test_the_plan_is_a_table():
    search = FastGridSearchCV(LSSVR(), GRID, cv=3)
    for plan in (search.plan(X, y), search.fit(X, y).plan_):
        shown = plan._repr_mimebundle_()
        assert shown["text/plain"] == str(plan)
        assert shown["text/html"] == plan._repr_html_()
        assert shown["text/html"].count("<tr>") == len(str(plan).splitlines())
        assert "4 candidates = 2 kernels" in shown["text/html"]


@pytest.mark.parametrize(
    "model",
    [
        LSSVR(),
        KernelLogisticClassifier(),
        FastCalibratedClassifierCV(LSSVC()),
        FastCrossConformalRegressor(LSSVR()),
        FastGradientSearchCV(LSSVR()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_have_scikit_learns_diagram(model):
    assert type(model).__name__ in model._repr_html_()
    assert DIAGRAM in model._repr_html_()


def test_a_gradient_search_shows_its_path():
    start = {"gamma": 1.0, "alpha": 0.1}
    search = FastGradientSearchCV(LSSVR(), start=start, shrinkage=0.1, cv=3, max_iter=3).fit(X, y)
    shown = search._repr_html_()
    assert shown.count(">path_</th>") == len(search.summary_.splitlines()) > 0


def test_one_of_something_is_not_several():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0)
    search = FastGridSearchCV(LSSVR(gamma=0.1), {"alpha": [1.0]}, cv=2)
    words = f"{search.plan(X, y)} {search.fit(X, y).plan_}"
    assert words.count("1 candidate = 1 kernel with up to 1 ridge, 20 rows, 2 folds") == 2
    assert "(1 candidate)" in words
    assert "the candidate equals refits" in words
    assert not re.search(r"\b1 \w+s\b", words)
