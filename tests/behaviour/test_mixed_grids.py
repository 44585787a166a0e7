"""Grids whose candidates differ in more than numbers: how y is read, and what metadata they get."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import FitFailedWarning, UnsetMetadataPassedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelClassifier,
    KernelLogisticClassifier,
    Nystrom,
    cross_val_score,
)
from everyfold.io.arrays import ArrayRows
from tests.behaviour.test_search import both, compare

X, LABELS = make_classification(
    60, n_features=4, n_informative=3, n_redundant=0, class_sep=0.6, random_state=1
)
Y = X @ [1.0, -2.0, 0.5, 0.0] + np.sin(3.0 * X[:, 0])
W = np.random.default_rng(0).uniform(0.1, 4.0, len(Y))
FLOWERS, SPECIES = (data[::2] for data in load_iris(return_X_y=True))
EXACT = LogisticRegression(tol=1e-10, max_iter=1000)


def pipeline(model):
    return Pipeline([("scaler", StandardScaler()), ("model", model)])


def close_votes():
    """Rows of which many have as many votes for one class as for another."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(90, 2)), rng.integers(0, 5, size=90)


# -- how y is read -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_way_to_vote_keeps_its_own_with_threads(n_jobs):
    data, labels = close_votes()
    grid = {"break_ties": [False, True], "C": [0.3, 3.0]}
    svc, cv = SVC(gamma=0.5, tol=1e-9), ms.StratifiedKFold(3)
    slow = ms.GridSearchCV(svc, grid, cv=cv).fit(data, labels)
    compare(FastGridSearchCV(svc, grid, cv=cv, n_jobs=n_jobs).fit(data, labels), slow)
    truth = slow.cv_results_["mean_test_score"]
    assert (truth[:2] != truth[2:]).any()  # breaking ties makes a difference here


@pytest.mark.parametrize("first", [0, 1])
def test_probabilities_belong_to_the_models_that_have_them(first):
    models = [RidgeClassifier(), EXACT]
    models = models[first:] + models[:first]
    options = {"cv": ms.StratifiedKFold(3), "scoring": "neg_log_loss", "error_score": -9.0}
    with pytest.warns(UserWarning, match="Scoring failed"):
        slow = ms.GridSearchCV(pipeline(EXACT), {"model": models}, **options).fit(X, LABELS)
    with pytest.warns(UserWarning, match="Scoring failed"):
        fast = FastGridSearchCV(pipeline(EXACT), {"model": models}, **options).fit(X, LABELS)
    ours, theirs = (s.cv_results_["mean_test_score"] for s in (fast, slow))
    assert_allclose(ours, theirs, rtol=1e-6)
    assert_array_equal(ours == -9.0, [model is not EXACT for model in models])


def test_both_kinds_of_models_are_scored_as_refits_score_them():
    models = [RidgeClassifier(), EXACT, SVC(tol=1e-9), LSSVC(gamma=0.2)]
    both(pipeline(EXACT), {"model": models}, LABELS, X, cv=3, scoring="roc_auc")


@pytest.mark.parametrize("first", [0, 1])
def test_classes_that_are_fitted_together_beside_one_versus_rest(first):
    models = [RidgeClassifier(), LogisticRegression(tol=1e-8, max_iter=10_000)]
    grid = {"model": models[first:] + models[:first]}
    search = FastGridSearchCV(pipeline(RidgeClassifier()), grid, fallback="refuse")
    known = ms.GridSearchCV(pipeline(RidgeClassifier()), grid).fit(FLOWERS, SPECIES)
    found = search.fit(FLOWERS, SPECIES).cv_results_["mean_test_score"]
    assert_allclose(found, known.cv_results_["mean_test_score"])


def test_one_versus_rest_and_one_versus_one_logistic_models_have_their_own_probabilities():
    model = KernelLogisticClassifier(gamma=0.3)
    grid = {"multi_class": ["ovo", "ovr"]}
    options = {"scoring": "neg_log_loss", "cv": 3, "error_score": -9.0}
    with pytest.warns(UserWarning, match="Scoring failed"):
        slow = ms.GridSearchCV(model, grid, **options).fit(FLOWERS, SPECIES)
    with pytest.warns(UserWarning, match="Scoring failed"):
        fast = FastGridSearchCV(model, grid, **options).fit(FLOWERS, SPECIES)
    ours, theirs = (s.cv_results_["mean_test_score"] for s in (fast, slow))
    assert_array_equal(ours == -9.0, [True, False])
    assert_allclose(ours, theirs, rtol=1e-5)


def test_sources_refuse_votes_which_they_would_read_as_one_versus_rest():
    model = KernelClassifier(gamma=0.3, operator=Nystrom(20, random_state=0))
    source, grid = ArrayRows(FLOWERS, SPECIES), {"multi_class": ["ovr", "ovo"]}
    for act in (
        lambda: FastGridSearchCV(model, grid, cv=3).fit(source),
        lambda: cross_val_score(model.set_params(multi_class="ovo"), source, cv=3),
        lambda: model.set_params(multi_class="ovo").fit(source),
    ):
        with pytest.raises(ValueError, match="multi_class='ovo'"):
            act()


# -- metadata --------------------------------------------------------------------------------------


def weighted(model, takes=True):
    return model.set_fit_request(sample_weight=takes)


def unweighted_r2():
    return get_scorer("r2").set_score_request(sample_weight=False)


@pytest.mark.parametrize("first", [0, 1])
def test_a_candidate_that_asks_for_no_weights_fails_alone(first):
    with config_context(enable_metadata_routing=True):
        models = [weighted(Ridge()), KernelRidge(kernel="rbf")]
        estimator = Pipeline([("model", weighted(Ridge()))])
        grid = {"model": models[first:] + models[:first], "model__alpha": [0.1, 2.0]}
        options = {"cv": 3, "error_score": -9.0, "scoring": unweighted_r2()}
        with pytest.warns(FitFailedWarning, match="sample_weight"):
            slow = ms.GridSearchCV(estimator, grid, **options).fit(X, Y, sample_weight=W)
        with pytest.warns(FitFailedWarning, match="sample_weight"):
            fast = FastGridSearchCV(estimator, grid, **options).fit(X, Y, sample_weight=W)
        compare(fast, slow)
        assert (fast.cv_results_["status"] == "failed").sum() == 2
        options["error_score"] = "raise"
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            FastGridSearchCV(estimator, grid, **options).fit(X, Y, sample_weight=W)
        options["error_score"], grid = np.nan, {"model": models[1:]}
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            FastGridSearchCV(estimator, grid, **options).fit(X, Y, sample_weight=W)


def test_a_candidate_without_the_step_that_metadata_name_fails_alone():
    estimator = Pipeline([("scaler", StandardScaler()), ("model", Ridge())])
    renamed = [("scaler", StandardScaler()), ("other", Ridge())]
    grid = {"steps": [renamed, estimator.steps]}
    options = {"cv": 3, "error_score": -9.0}
    with pytest.warns(FitFailedWarning):
        slow = ms.GridSearchCV(estimator, grid, **options).fit(X, Y, model__sample_weight=W)
    with pytest.warns(FitFailedWarning, match="does not name a step"):
        fast = FastGridSearchCV(estimator, grid, **options).fit(X, Y, model__sample_weight=W)
    for key in ("mean_test_score", "rank_test_score"):
        assert_allclose(fast.cv_results_[key], slow.cv_results_[key], rtol=1e-8)


@pytest.mark.parametrize("first", [0, 1])
def test_weights_reach_the_candidates_that_ask_for_them_and_no_others(first):
    with config_context(enable_metadata_routing=True):
        models = [weighted(Ridge()), weighted(Ridge(), takes=False)]
        scalers = [weighted(StandardScaler()), weighted(StandardScaler(), takes=False)]
        estimator = Pipeline([("scaler", scalers[0]), ("model", models[0])])
        grid = [
            {"scaler": scalers, "model": models[:1]},
            {"scaler": scalers[:1], "model": models[1:]},
        ]
        grid = grid[first:] + grid[:first]
        fast, slow = both(
            estimator, grid, Y, X, {"sample_weight": W}, cv=3, scoring=unweighted_r2()
        )
        assert len(np.unique(slow.cv_results_["mean_test_score"])) == 3
        assert_allclose(fast.predict(X), slow.predict(X), rtol=1e-8)


def test_the_mean_convention_counts_one_number_of_rows():
    with config_context(enable_metadata_routing=True):
        estimator = Pipeline([("scaler", weighted(StandardScaler())), ("model", weighted(Ridge()))])
        grid = {"model": [weighted(Ridge()), weighted(Ridge(), takes=False)]}
        options = {"ridge_scaling": "mean", "scoring": unweighted_r2()}
        search = FastGridSearchCV(estimator, grid, **options)
        assert search.fit(X, Y, sample_weight=W).best_score_ > 0.0
        with pytest.raises(ValueError, match="ridge_scaling='mean'"):
            search.fit(X, Y, sample_weight=np.where(W > 1.0, W, 0.0))


# -- class weights ---------------------------------------------------------------------------------


def no_work(data, unit):
    raise AssertionError("the work has begun")


@pytest.mark.parametrize(
    "model", [LSSVC(), SVC(), RidgeClassifier(), EXACT], ids=lambda m: type(m).__name__
)
def test_class_weights_of_absent_labels_are_refused_before_work(model, monkeypatch):
    refusal = r"class_weight names \['yes'\], which are not labels of y \(\[0, 1\]\)"
    grid = {"class_weight": [None, {1: 2.0}, {1: 2.0, "yes": 3.0}]}
    with (
        pytest.warns(FitFailedWarning, match=refusal),
        pytest.warns(UserWarning, match="One or more of the test scores are non-finite"),
    ):
        search = FastGridSearchCV(model, grid).fit(X, LABELS)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, False, True]
    monkeypatch.setattr("everyfold.engine.execution.executor.run", no_work)
    with pytest.raises(ValueError, match=refusal):
        FastGridSearchCV(pipeline(model), {"model__class_weight": [{"yes": 3.0}]}).fit(X, LABELS)
    with pytest.raises(ValueError, match=refusal):
        cross_val_score(model.set_params(class_weight={"yes": 3.0}), X, LABELS)


def test_class_weights_of_absent_labels_are_refused_in_sources():
    source = ArrayRows(X, LABELS)
    model = LSSVC(operator=Nystrom(20, random_state=0), class_weight={"yes": 3.0})
    for act in (
        lambda: FastGridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3).fit(source),
        lambda: cross_val_score(model, source, cv=3),
        lambda: model.fit(source),
    ):
        with pytest.raises(ValueError, match=r"class_weight names \['yes'\]"):
            act()
