"""Scorers of any kind, alone and together, on any container: scikit-learn's numbers, or its NaN."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, get_scorer, jaccard_score, make_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC

from everyfold import FastGridSearchCV, KernelLogisticClassifier, cross_val_predict, cross_val_score
from everyfold.engine.scoring.metrics import find_metric, is_of_sums
from everyfold.estimators.targets import Numbers

RNG = np.random.default_rng(0)
X = np.where(RNG.random((60, 5)) < 0.4, 0.0, RNG.normal(size=(60, 5)))
LABELS = (X[:, 0] + 0.4 * RNG.normal(size=60) > 0.0).astype(int)
NAMES = np.array(["no", "yes"])[LABELS]
FORMATS = ["coo", "csc", "csr", "dok", "lil", "bsr", "dia"]
MACHINE = SVC(kernel="linear", tol=1e-6)
STEPS = make_pipeline(MaxAbsScaler(), LogisticRegression(C=2.0, tol=1e-9))


def sparse(name, kind):
    return getattr(sp, f"{name}_{kind}")(X)


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("name", FORMATS)
class TestSparse:
    @pytest.mark.parametrize("scoring", [None, "f1"])
    def test_scores(self, name, kind, scoring):
        rows = sparse(name, kind)
        ours = cross_val_score(MACHINE, rows, LABELS, scoring=scoring, cv=4)
        theirs = ms.cross_val_score(MACHINE, rows, LABELS, scoring=scoring, cv=4)
        assert_allclose(ours, theirs, rtol=1e-6)

    @pytest.mark.parametrize("model", [MACHINE, STEPS], ids=["machine", "steps"])
    def test_predictions(self, name, kind, model):
        rows = sparse(name, kind)
        arguments = {"cv": 4, "method": "decision_function"}
        ours = cross_val_predict(model, rows, LABELS, **arguments)
        assert_allclose(ours, ms.cross_val_predict(model, rows, LABELS, **arguments), atol=1e-4)

    def test_searches(self, name, kind):
        rows = sparse(name, kind)
        arguments = {"scoring": ["f1", "accuracy"], "refit": False, "cv": 4}
        ours, theirs = (
            search(STEPS, {"logisticregression__C": [0.1, 1.0]}, **arguments).fit(rows, LABELS)
            for search in (FastGridSearchCV, ms.GridSearchCV)
        )
        for key in ("mean_test_f1", "mean_test_accuracy"):
            assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)


@pytest.mark.parametrize("name", FORMATS)
def test_a_scorer_of_rows_in_any_format(name):
    def weighty(estimator, X, y):
        return -float(np.abs((y - estimator.predict(X)) * (1.0 + X.sum(axis=1))).mean())

    rows, y = sparse(name, "array"), X @ np.arange(5.0)
    ours = cross_val_score(Ridge(), rows, y, scoring=weighty)
    assert_allclose(ours, ms.cross_val_score(Ridge(), rows, y, scoring=weighty), rtol=1e-8)


# Both functions have a pos_label of 1 that these averages do not look at.
MACRO = make_scorer(f1_score, average="macro")
MICRO = make_scorer(jaccard_score, average="micro")
TOGETHER = {
    "known first": {"accuracy": "accuracy", "macro": MACRO},
    "known last": {"macro": MACRO, "accuracy": "accuracy"},
    "two": {"balanced": "balanced_accuracy", "micro": MICRO, "macro": MACRO},
    "rank first": {"auc": "roc_auc", "macro": MACRO, "accuracy": "accuracy"},
    "alone": {"macro": MACRO},
    "by decisions": {"auc": "roc_auc", "precision": "average_precision"},
    "plain": {"accuracy": "accuracy", "f1": "f1"},
}


@pytest.mark.parametrize("labels", [NAMES, LABELS], ids=["names", "numbers"])
@pytest.mark.parametrize("scoring", TOGETHER.values(), ids=TOGETHER)
def test_several_scorers_fail_where_they_do_in_scikit_learn(scoring, labels):
    ours, theirs = (
        _quietly(kind(SVC(tol=1e-6), {"C": [0.1, 5.0]}, scoring=scoring, refit=False, cv=4), labels)
        for kind in (FastGridSearchCV, ms.GridSearchCV)
    )
    for name in scoring:
        for i in range(4):
            key = f"split{i}_test_{name}"
            assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-8, err_msg=key)


def _quietly(search, labels):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Scoring failed", UserWarning)
        warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
        return search.fit(X, labels)


def test_votes_of_pairs_have_no_probabilities():
    X, y = load_iris(return_X_y=True)
    model = KernelLogisticClassifier(gamma=0.1, multi_class="ovo")
    assert not hasattr(model, "predict_proba")
    options = {"cv": 3, "scoring": "roc_auc_ovr", "error_score": "raise"}
    for scores in (cross_val_score, ms.cross_val_score):
        with pytest.raises(AttributeError, match="predict_proba"):
            scores(model, X, y, **options)


@pytest.mark.parametrize(
    "name",
    ["r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error"],
)
def test_metrics_that_travel_to_workers_stay_what_they_are(name):
    """Sums over rows look metrics up, in worker processes, too."""
    metric = find_metric(get_scorer(name), Numbers.read([1.0, 2.0]))
    again = pickle.loads(pickle.dumps(metric))
    assert again == metric
    assert is_of_sums(again) == is_of_sums(metric) == ("absolute" not in name)
