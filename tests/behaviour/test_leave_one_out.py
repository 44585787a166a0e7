"""Scores that mean something else, or nothing, on test sets of one row."""

import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn import metrics
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import make_scorer

from everyfold import LSSVC, FastGridSearchCV, cross_val_predict, cross_val_score

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 3))
y = X[:, 0] + 0.3 * RNG.normal(size=N)
LABELS = (y > 0.0).astype(int)
LOO = ms.LeaveOneOut()
GRID = {"alpha": [0.1, 1.0]}

LABELLED = make_scorer(
    metrics.log_loss,
    labels=np.unique(LABELS),
    response_method="predict_proba",
    greater_is_better=False,
)


# -- refused before work, where nothing is pooled --------------------------------------------------


@pytest.mark.parametrize(
    "scoring", ["r2", None, "explained_variance", make_scorer(metrics.d2_absolute_error_score)]
)
def test_numbers_that_single_rows_do_not_have(scoring):
    remedy = "neg_mean_(squared|absolute)_error"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(ValueError, match=remedy):
            cross_val_score(Ridge(), X, y, cv=LOO, scoring=scoring, pooled=False)
        with pytest.raises(ValueError, match=remedy):
            FastGridSearchCV(Ridge(), GRID, cv=LOO, scoring=scoring, pooled=False).fit(X, y)


@pytest.mark.parametrize("scoring", ["roc_auc", "average_precision", "matthews_corrcoef"])
def test_rankings_that_single_rows_do_not_have(scoring):
    with pytest.raises(ValueError, match=r"pooled\(\.\.\.\)"):
        cross_val_score(LSSVC(), X, LABELS, cv=LOO, scoring=scoring, pooled=False)
    with pytest.raises(ValueError, match=r"pooled\(\.\.\.\)"):
        FastGridSearchCV(LSSVC(), GRID, cv=LOO, scoring=scoring, pooled=False).fit(X, LABELS)


def test_losses_that_need_all_labels():
    model = LogisticRegression(tol=1e-8)
    with pytest.raises(ValueError, match=r"labels=np.unique\(y\)"):
        cross_val_score(model, X, LABELS, cv=LOO, scoring="neg_log_loss", pooled=False)
    scoring = LABELLED
    ours = cross_val_score(model, X, LABELS, cv=LOO, scoring=scoring)
    assert_allclose(ours, ms.cross_val_score(model, X, LABELS, cv=LOO, scoring=scoring), atol=1e-4)


def test_the_remedy_ranks_as_the_whole_would():
    grid = {"alpha": np.logspace(-2, 2, 5)}
    search = FastGridSearchCV(Ridge(), grid, cv=LOO, scoring="neg_mean_squared_error").fit(X, y)
    whole = [ms.cross_val_predict(Ridge(alpha), X, y, cv=LOO) for alpha in grid["alpha"]]
    assert search.best_index_ == int(np.argmax([metrics.r2_score(y, held) for held in whole]))


def test_one_fold_without_a_score_spoils_a_search():
    cv = ms.KFold(20)  # ten folds of two rows, ten of one
    with pytest.raises(ValueError, match="split 10"):
        FastGridSearchCV(Ridge(), GRID, cv=cv, pooled=False).fit(X, y)
    with pytest.warns(UndefinedMetricWarning):
        ours = cross_val_score(Ridge(), X, y, cv=cv)
    with pytest.warns(UndefinedMetricWarning):
        assert_allclose(ours, ms.cross_val_score(Ridge(), X, y, cv=cv), rtol=1e-8)


def test_a_test_set_of_one_class_has_no_ranking():
    order = np.argsort(LABELS, kind="stable")
    cv = ms.KFold(5)
    with pytest.raises(ValueError, match=r"one class, as split \d has; use StratifiedKFold"):
        FastGridSearchCV(LSSVC(), GRID, cv=cv, scoring="roc_auc").fit(X[order], LABELS[order])
    search = FastGridSearchCV(LSSVC(), GRID, cv=cv, scoring="accuracy").fit(X[order], LABELS[order])
    assert np.isfinite(search.best_score_)


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_several_scorers_need_one_that_decides():
    both = {"r2": "r2", "mse": "neg_mean_squared_error"}
    with pytest.raises(ValueError, match="r2_score"):
        FastGridSearchCV(Ridge(), GRID, cv=LOO, scoring=both, refit="r2", pooled=False).fit(X, y)
    with pytest.raises(ValueError, match="r2_score"):
        FastGridSearchCV(Ridge(), GRID, cv=LOO, scoring=["r2"], refit=False, pooled=False).fit(X, y)
    for refit in ("mse", False):
        search = FastGridSearchCV(Ridge(), GRID, cv=LOO, scoring=both, refit=refit, pooled=False)
        with pytest.warns(UndefinedMetricWarning):
            search.fit(X, y)
        assert np.isfinite(search.cv_results_["mean_test_mse"]).all()


def test_a_score_that_does_not_decide_and_says_nothing_is_called_so():
    both = ["explained_variance", "neg_mean_squared_error"]
    search = FastGridSearchCV(
        Ridge(), GRID, cv=LOO, scoring=both, refit="neg_mean_squared_error", pooled=False
    )
    saying = "explained_variance_score of one row is the same whatever is predicted"
    with pytest.warns(UserWarning, match=saying):
        search.fit(X, y)
    assert any(saying in note for note in search.plan_.notes)


# -- said with a warning -------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["neg_root_mean_squared_error", "neg_median_absolute_error"])
def test_errors_that_become_another(scoring):
    saying = "of single rows is the mean absolute error"
    with pytest.warns(UserWarning, match=saying):
        ours = cross_val_score(Ridge(), X, y, cv=LOO, scoring=scoring, pooled=False)
    assert_allclose(ours, ms.cross_val_score(Ridge(), X, y, cv=LOO, scoring=scoring), rtol=1e-8)
    with pytest.warns(UserWarning, match=saying):
        search = FastGridSearchCV(Ridge(), GRID, cv=LOO, scoring=scoring, pooled=False).fit(X, y)
    assert any(saying in note for note in search.plan_.notes)
    assert saying in str(search.plan_)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        cross_val_score(Ridge(), X, y, cv=10, scoring=scoring)


@pytest.mark.filterwarnings("ignore:A single label was found", "ignore:y_pred contains classes")
def test_balanced_accuracy_becomes_the_plain_one():
    arguments = {"cv": LOO, "scoring": "balanced_accuracy", "pooled": False}
    with pytest.warns(UserWarning, match="balanced_accuracy_score of single rows is the accuracy"):
        ours = cross_val_score(LSSVC(), X, LABELS, **arguments)
    hits = cross_val_predict(LSSVC(), X, LABELS, cv=LOO) == LABELS
    assert_allclose(ours, hits)


# -- and if nothing was known beforehand ---------------------------------------------------------


def nothing(estimator, X, y):
    return np.nan


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
@pytest.mark.parametrize("scoring", [nothing, {"a": nothing, "b": "r2"}])
def test_no_candidate_is_the_best_of_none(scoring):
    refit = True if callable(scoring) else "a"
    search = FastGridSearchCV(Ridge(), GRID, scoring=scoring, refit=refit)
    with pytest.raises(ValueError, match="no candidate has a score"):
        search.fit(X, y)
    key = "mean_test_score" if callable(scoring) else "mean_test_a"
    assert np.isnan(search.cv_results_[key]).all()
    assert not hasattr(search, "best_index_")
    assert not hasattr(search, "best_estimator_")


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_a_table_of_nothing_has_no_best():
    search = FastGridSearchCV(Ridge(), GRID, refit=False).fit(X, y)
    assert search.best_index_ in (0, 1)
    search.set_params(scoring=nothing).fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    assert not hasattr(search, "best_params_")
