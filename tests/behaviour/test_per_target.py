"""``refit="per_target"``: the best candidate of each target, as searches of one target find."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    FastGridSearchCV,
    FastRandomizedSearchCV,
    papers,
)
from everyfold.judge import honest_score

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(60, 4))
Y = np.column_stack(
    [np.sin(3.0 * X[:, 0]), X @ [1.0, 2.0, 0.0, -1.0], RANDOM.normal(size=60), X[:, 1] ** 2]
) + 0.2 * RANDOM.normal(size=(60, 4))
GRID = {"alpha": [1e-3, 0.1], "gamma": [0.01, 0.3, 3.0]}
RBF = KernelRidge(kernel="rbf")
CV = KFold(3, shuffle=True, random_state=0)


def alone(model, grid, target, **given):
    return GridSearchCV(model, grid, **given).fit(X, Y[:, target])


@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error", "neg_median_absolute_error"])
@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (RBF, GRID),
        (make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1e-3, 1.0, 100.0]}),
    ],
    ids=["kernel", "pipeline"],
)
def test_every_target_has_the_winner_of_a_search_of_its_own(model, grid, scoring):
    search = FastGridSearchCV(model, grid, cv=CV, scoring=scoring, refit="per_target").fit(X, Y)
    predicted, held_out = search.predict(X), search.out_of_fold()
    for j in range(Y.shape[1]):
        one = alone(model, grid, j, cv=CV, scoring=scoring)
        assert search.best_index_per_target_[j] == one.best_index_
        assert_allclose(search.best_score_per_target_[j], one.best_score_, atol=1e-9)
        assert_allclose(search.scores_per_target_[:, j], one.cv_results_["mean_test_score"])
        assert_allclose(predicted[:, j], one.predict(X), atol=1e-9)
        for train, test in CV.split(X):
            refit = clone(one.best_estimator_).fit(X[train], Y[train, j])
            assert_allclose(held_out.values[test, j], refit.predict(X[test]), atol=1e-9)
    assert held_out.is_exact
    assert len(set(search.best_index_per_target_)) > 1  # else the test tells nothing


def test_the_winner_of_all_targets_together_is_as_without():
    plain = FastGridSearchCV(RBF, GRID, cv=CV).fit(X, Y)
    search = FastGridSearchCV(RBF, GRID, cv=CV, refit="per_target").fit(X, Y)
    assert search.best_index_ == plain.best_index_
    assert search.best_params_ == plain.best_params_
    assert_allclose(
        search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], atol=1e-12
    )
    assert not hasattr(plain, "best_index_per_target_")


def test_of_equal_candidates_the_first_wins():
    grid = [{"gamma": [3.0], "alpha": [1e8]}, {"alpha": [0.1, 0.1], "gamma": [0.3, 0.3]}]
    search = FastGridSearchCV(RBF, grid, cv=CV, refit="per_target").fit(X, Y)
    assert set(search.best_index_per_target_) <= {0, 1}
    refits = search.out_of_fold()
    assert refits.values.shape == Y.shape


def test_weights_of_rows_reach_every_model():
    weights = RANDOM.uniform(0.1, 3.0, size=60)
    search = FastGridSearchCV(RBF, GRID, cv=CV, refit="per_target")
    search.fit(X, Y, sample_weight=weights)
    for j in range(Y.shape[1]):
        one = GridSearchCV(RBF, GRID, cv=CV).fit(X, Y[:, j], sample_weight=weights)
        assert search.best_index_per_target_[j] == one.best_index_
        assert_allclose(search.predict(X)[:, j], one.predict(X), atol=1e-8)


def test_repeated_and_partial_folds():
    cv = ShuffleSplit(4, random_state=1)
    search = FastGridSearchCV(RBF, GRID, cv=cv, refit="per_target").fit(X, Y)
    for j in range(Y.shape[1]):
        assert search.best_index_per_target_[j] == alone(RBF, GRID, j, cv=cv).best_index_


def test_a_random_search_and_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    targets = pandas.DataFrame(Y, columns=list("wxyz"))
    given = {"alpha": [1e-3, 0.1, 10.0], "gamma": [0.01, 0.3, 3.0]}
    search = FastRandomizedSearchCV(
        RBF,
        given,
        n_iter=5,
        random_state=0,
        cv=CV,
        refit="per_target",
        scoring="neg_mean_absolute_error",
    ).fit(frame, targets)
    assert search.feature_names_in_.tolist() == list("abcd")
    assert search.predict(frame).shape == Y.shape
    assert search.best_index_per_target_.shape == (4,)


def test_large_searches_evaluate_every_candidate_exactly():
    rows = RANDOM.normal(size=(6000, 2))
    targets = np.column_stack([np.sin(rows[:, 0]), rows[:, 1]])
    plans = [
        str(FastGridSearchCV(RBF, GRID, cv=3, refit=refit).plan(rows, targets))
        for refit in (True, "per_target")
    ]
    assert ["estimated at low rank" in plan for plan in plans] == [True, False]


def test_a_resumed_search_has_the_same_winners(tmp_path):
    path = tmp_path / "search.checkpoint"
    asked = FastGridSearchCV(RBF, GRID, cv=CV, refit="per_target", checkpoint=path)
    first, again = clone(asked).fit(X, Y), clone(asked).fit(X, Y)
    assert_array_equal(first.scores_per_target_, again.scores_per_target_)
    assert_array_equal(first.predict(X), again.predict(X))


def test_the_honest_score_is_that_of_the_whole_search():
    search = FastGridSearchCV(RBF, GRID, cv=CV, refit="per_target").fit(X, Y)
    found = honest_score(search, X=X, y=Y, method="nested", outer=KFold(3))
    scores = [
        search.__class__(RBF, GRID, cv=CV, refit="per_target")
        .fit(X[train], Y[train])
        .score(X[test], Y[test])
        for train, test in KFold(3).split(X)
    ]
    assert_allclose(found.estimate, np.mean(scores), atol=1e-9)


@pytest.mark.parametrize(
    ("given", "y", "words"),
    [
        ({"scoring": ["r2", "neg_max_error"]}, Y, "needs one metric, but scoring has"),
        ({"method": papers.gcv()}, Y, "a criterion without folds does not give"),
        ({}, Y[:, 0], "y has one column; use refit=True"),
        ({"estimator": DummyRegressor(), "param_grid": {}}, Y, "candidate 0 has to be refitted"),
    ],
)
def test_what_has_no_winner_for_each_target_is_refused(given, y, words):
    asked = {"estimator": RBF, "param_grid": {"alpha": [1.0]}, "refit": "per_target"} | given
    with pytest.raises(ValueError, match=words):
        FastGridSearchCV(**asked).fit(X, y)
