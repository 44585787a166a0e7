"""OneVsRestClassifier around linear models: the same scores as tight refits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, PredefinedSplit, RepeatedKFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from everyfold import FastGridSearchCV, UnsupportedWarning
from everyfold.engine.planning import refit_costs

RNG = np.random.default_rng(0)
N = 120
KINDS = np.arange(N) % 4
X = RNG.standard_normal((N, 6)) + 0.8 * RNG.standard_normal((4, 6))[KINDS]
NAMES = np.array(["a", "b", "c", "d"])[KINDS]
TIGHT = {"tol": 1e-9, "max_iter": 100_000}
MODELS = {
    "logistic": LogisticRegression(**TIGHT),
    "liblinear": LogisticRegression(solver="liblinear", **TIGHT),
    "no intercept": LogisticRegression(fit_intercept=False, **TIGHT),
    "margins": LinearSVC(dual=False, **TIGHT),
}
# The last class has its rows in one fold alone, so that its training rows have three classes.
LACKING = PredefinedSplit(np.where(KINDS == 3, 0, np.arange(N) // 4 % 3))
FOLDS = {"stratified": StratifiedKFold(4), "repeated": RepeatedKFold(n_splits=3, n_repeats=2)}


@pytest.fixture(autouse=True)
def _never_cheaper(monkeypatch):
    monkeypatch.setattr(refit_costs, "CALLS", 60.0)


def compare(model, y, cv, scoring, name="estimator__C", values=(0.01, 1.0, 100.0), atol=1e-6):
    cv = list(cv.split(X, y))
    found = []
    for search in (FastGridSearchCV, GridSearchCV):
        fitted = search(model, {name: values}, cv=cv, scoring=scoring, refit=False).fit(X, y)
        found.append(fitted.cv_results_)
    assert set(found[0]["status"]) == {"exact"}
    for k in range(len(cv)):
        keys = [f"split{k}_test_score"]
        assert_allclose(*([own[key] for key in keys] for own in found), atol=atol)


@pytest.mark.parametrize("scoring", ["accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr"])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("folds", FOLDS)
def test_scores_are_those_of_tight_refits(kind, scoring, folds):
    if kind == "margins" and scoring in ("neg_log_loss", "roc_auc_ovr"):
        return
    compare(OneVsRestClassifier(MODELS[kind]), NAMES, FOLDS[folds], scoring)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("y", [NAMES == "a", KINDS])
def test_two_classes_and_a_class_that_a_fold_lacks(kind, y):
    compare(OneVsRestClassifier(MODELS[kind]), y, LACKING, "accuracy")


def test_ridges_and_steps():
    values = (0.1, 10.0, 1000.0)
    compare(
        OneVsRestClassifier(RidgeClassifier()),
        NAMES,
        FOLDS["stratified"],
        "accuracy",
        "estimator__alpha",
        values,
    )
    pipeline = make_pipeline(StandardScaler(), OneVsRestClassifier(MODELS["logistic"]))
    name = "onevsrestclassifier__estimator__C"
    compare(pipeline, NAMES, FOLDS["stratified"], "neg_log_loss", name)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LogisticRegression(class_weight="balanced"), NAMES),
        (LogisticRegression(), np.column_stack([KINDS > 0, KINDS > 1]).astype(int)),
        (Ridge(), KINDS),
    ],
)
def test_what_is_refitted(model, y):
    name = "estimator__alpha" if isinstance(model, Ridge) else "estimator__C"
    search = FastGridSearchCV(OneVsRestClassifier(model), {name: [0.1, 1.0]}, cv=3, refit=False)
    with pytest.warns(UnsupportedWarning):
        ours = search.fit(X, y).cv_results_
    theirs = GridSearchCV(search.estimator, search.param_grid, cv=3, refit=False).fit(X, y)
    assert_allclose(ours["mean_test_score"], theirs.cv_results_["mean_test_score"])


@pytest.mark.filterwarnings("ignore")
def test_weights_of_rows_fail_as_they_do_there():
    search = FastGridSearchCV(OneVsRestClassifier(LogisticRegression()), {"estimator__C": [1.0]})
    for own in (search, GridSearchCV(search.estimator, search.param_grid)):
        with pytest.raises((TypeError, ValueError)):
            own.fit(X, NAMES, sample_weight=np.ones(N))


def test_parameters_that_the_inner_model_refuses():
    inner = LogisticRegression(dual=True)
    search = FastGridSearchCV(OneVsRestClassifier(inner), {"estimator__C": [1.0]}, refit=False)
    with pytest.raises(ValueError, match="dual"):
        search.fit(X, NAMES)
    bad = OneVsRestClassifier(LogisticRegression(C=-1.0))
    with pytest.raises(ValueError, match="'C' parameter"):
        FastGridSearchCV(bad, {"estimator__tol": [1e-3]}, refit=False).fit(X, NAMES)
