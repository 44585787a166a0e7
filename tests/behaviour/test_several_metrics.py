"""Searches that begin with low ranks, where it is not plain which metric decides."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import get_scorer, max_error, mean_squared_error
from sklearn.model_selection import GridSearchCV

from everyfold import FastGridSearchCV
from everyfold.engine.adaptive import low_rank_first as ladder
from tests.behaviour.test_search import compare

X, Y = make_friedman1(240, n_features=5, noise=1.0, random_state=0)
GRID = {"gamma": [0.01, 0.1, 1.0], "alpha": [1e-3, 0.1, 1.0]}
METRICS = ["neg_mean_squared_error", "neg_max_error"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A ladder for a few hundred rows."""
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 200)
    monkeypatch.setattr(ladder, "FIRST_RANK", 10)


def two_scores(estimator, X, y):
    predicted = estimator.predict(X)
    return {"mse": -mean_squared_error(y, predicted), "worst": -max_error(y, predicted)}


def one_score(estimator, X, y):
    return -mean_squared_error(y, estimator.predict(X))


def best_of(metric):
    def choose(results):
        return int(np.argmax(results[f"mean_test_{metric}"]))

    return choose


def both(**options):
    slow = GridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=3, **options).fit(X, Y)
    fast = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=3, **options).fit(X, Y)
    return fast, slow


@pytest.mark.parametrize(
    "options",
    [
        {"scoring": METRICS, "refit": False},
        {"scoring": METRICS, "refit": best_of("neg_max_error")},
        {"scoring": two_scores, "refit": False},
        {"scoring": two_scores, "refit": best_of("worst")},
    ],
    ids=["names-none", "names-callable", "callable-none", "callable-callable"],
)
def test_where_no_metric_decides_all_candidates_are_exact_and_the_plan_says_why(options):
    fast, slow = both(**options)
    compare(fast, slow)
    assert fast.cv_results_["is_exact"].all()
    assert "no single metric decides" in str(fast.plan_)
    assert "low rank first" not in str(fast.plan_)


@pytest.mark.parametrize(
    ("options", "metric"),
    [
        ({"scoring": METRICS, "refit": "neg_max_error"}, "neg_max_error"),
        ({"scoring": two_scores, "refit": "worst"}, "worst"),
        ({"scoring": one_score, "refit": True}, "score"),
        ({"scoring": one_score, "refit": False}, "score"),
        ({"scoring": one_score, "refit": best_of("score")}, "score"),
        ({"scoring": get_scorer("neg_max_error"), "refit": False}, "score"),
    ],
    ids=["names", "callable", "number", "number-none", "number-callable", "scorer"],
)
def test_the_ladder_goes_by_the_metric_that_decides(options, metric):
    fast, slow = both(**options)
    assert "low rank first" in str(fast.plan_)
    truth = slow.cv_results_[f"mean_test_{metric}"]
    best = int(np.argmax(truth))
    assert fast.cv_results_["status"][best] == "exact"
    assert fast.cv_results_[f"rank_test_{metric}"][best] == 1
    exact = fast.cv_results_["is_exact"]
    assert not exact.all()
    assert_allclose(fast.cv_results_[f"mean_test_{metric}"][exact], truth[exact], rtol=1e-7)


@pytest.mark.parametrize("refit", [True, "unknown"])
def test_a_callable_with_several_scores_needs_the_name_of_one(refit):
    search = FastGridSearchCV(
        KernelRidge(kernel="rbf"), GRID, cv=3, scoring=two_scores, refit=refit
    )
    with pytest.raises(ValueError, match="refit must be set to a scorer key"):
        search.fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [{"scoring": METRICS}, {"scoring": two_scores}],
    ids=["names", "callable"],
)
def test_refits_need_a_metric_to_say_which_candidates_are_the_best(options):
    refit = best_of("neg_max_error" if options["scoring"] is METRICS else "worst")
    for choice in (False, refit):
        search = FastGridSearchCV(
            KernelRidge(kernel="rbf"), GRID, cv=3, refit=choice, n_confirm=2, **options
        )
        with pytest.raises(ValueError, match="n_confirm=2"):
            search.fit(X, Y)
