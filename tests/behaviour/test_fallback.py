"""What nothing speeds up is evaluated as scikit-learn would, beside what is."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import KFold
from sklearn.neighbors import KernelDensity, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import everyfold
from everyfold import (
    LSSVR,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    Nystrom,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    permutation_test_score,
)
from everyfold.engine.reading.reader import forget_warnings
from everyfold.io.arrays import ArrayRows

X, SIDES = make_classification(90, 5, n_informative=3, flip_y=0.1, random_state=0)
_, y = make_regression(90, 5, noise=20.0, random_state=1)
FLOWERS, KINDS = load_iris(return_X_y=True)
MODEL = Pipeline([("scale", StandardScaler()), ("model", SVC())])
MIXED = {"model": [SVC(C=0.5), DecisionTreeClassifier(random_state=0), SVC(C=5.0)]}


def same(ours, theirs, rtol=1e-10):
    for key, expected in theirs.cv_results_.items():
        if "_time" not in key and not key.startswith("param"):
            assert_allclose(ours.cv_results_[key], expected, rtol=rtol, err_msg=key)
    assert ours.best_index_ == theirs.best_index_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)


@pytest.mark.parametrize(
    ("estimator", "grid", "target", "options"),
    [
        (DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, SIDES, {}),
        (SVC(random_state=0), {"max_iter": [3, -1]}, SIDES, {}),
        (SVC(decision_function_shape="ovo"), {"break_ties": [False, True]}, KINDS, {}),
        (LinearSVC(loss="hinge", random_state=0), {"C": [0.1, 1.0]}, SIDES, {}),
        (TransformedTargetRegressor(SVR(), transformer=StandardScaler()), {}, y, {}),
        (KernelDensity(), {"bandwidth": [0.5, 2.0]}, None, {}),
        (KMeans(2, n_init=1, random_state=0), {"max_iter": [1, 9]}, None, {}),
        (KernelRidge(), {"kernel": ["rbf", "sigmoid"], "gamma": [0.01]}, y, {}),
        (make_pipeline(StandardScaler(), Ridge()), {"ridge__positive": [True, False]}, y, {}),
        (DecisionTreeRegressor(max_depth=3), {"random_state": [0, 1]}, y, {"refit": False}),
    ],
)
def test_searches_are_those_of_scikit_learn(estimator, grid, target, options):
    rows = FLOWERS if target is KINDS else X
    options = {"cv": 4, "return_train_score": True, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ms.GridSearchCV(estimator, grid, **options).fit(rows, target)
        ours = FastGridSearchCV(estimator, grid, fallback="refit", **options).fit(rows, target)
    same(ours, theirs)
    assert "refitted" in ours.cv_results_["status"].tolist()
    assert ours.cv_results_["is_exact"].all()


def test_supported_candidates_stay_what_they_are_beside_others():
    alone = FastGridSearchCV(MODEL, {"model": MIXED["model"][::2]}, cv=5).fit(X, SIDES)
    with pytest.warns(UserWarning, match=r"1 of 3 candidates are refitted .* \(number 1\)") as told:
        mixed = FastGridSearchCV(MODEL, MIXED, cv=5).fit(X, SIDES)
    assert len(told) == 1
    assert "DecisionTreeClassifier" in str(told[0].message)
    assert told[0].filename == __file__
    same(mixed, ms.GridSearchCV(MODEL, MIXED, cv=5).fit(X, SIDES), rtol=0.02)
    for key in ("mean_test_score", "split3_test_score", "status"):
        assert_array_equal(mixed.cv_results_[key][::2], alone.cv_results_[key])
    assert_array_equal(mixed.cv_results_["status"], ["exact", "refitted", "exact"])
    assert mixed.plan_.refitted == (1,)
    assert mixed.plan_.kernels == alone.plan_.kernels
    ours = [unit for unit in mixed.plan_.units if unit.order != "refit"]
    assert [unit.order for unit in ours] == [unit.order for unit in alone.plan_.units]
    assert dict(alone.plan_.methods).items() <= dict(mixed.plan_.methods).items()
    assert "1 kernel with up to 2 ridges, and 1 that is refitted" in str(mixed.plan_)
    assert (
        "not sped up 1 candidate (number 1): this library cannot compute the folds of Dec"
        in str(mixed.plan_)
    )


def test_refit_is_silent_and_refuse_raises():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        search = FastGridSearchCV(MODEL, MIXED, fallback="refit").fit(X, SIDES)
    assert any("not sped up" in note for note in search.plan_.notes)
    with pytest.raises(TypeError, match="estimator=DecisionTreeClassifier is not supported"):
        FastGridSearchCV(MODEL, MIXED, fallback="refuse").fit(X, SIDES)
    with pytest.raises(ValueError, match="fallback='never' is not known"):
        FastGridSearchCV(MODEL, MIXED, fallback="never").fit(X, SIDES)


@pytest.mark.parametrize(
    "options",
    [{"order": 2}, {"operator": Nystrom(9)}, {"ridge_scaling": "mean"}, {"preprocessing": "once"}],
    ids=str,
)
def test_options_that_no_refit_has_are_not_dropped(options):
    search = FastGridSearchCV(DecisionTreeRegressor(), {"max_depth": [1]}, **options)
    with pytest.raises(TypeError, match="not supported") as told:
        search.fit(X, y)
    assert "no fallback" in told.value.__notes__[0]


def test_sources_of_rows_have_no_fallback():
    with pytest.raises(TypeError, match="estimator=DecisionTreeRegressor is not supported"):
        FastGridSearchCV(DecisionTreeRegressor(), {"max_depth": [1]}).fit(ArrayRows(X, y))


def test_a_confirmed_winner_is_compared_with_refitted_candidates():
    models = [everyfold.HuberSVC(gamma=0.1), DecisionTreeClassifier(max_depth=2, random_state=0)]
    search = FastGridSearchCV(MODEL, {"model": models}, n_confirm=1, cv=4, fallback="refit")
    search.fit(X, SIDES)
    truth = ms.GridSearchCV(MODEL, {"model": models}, cv=4).fit(X, SIDES)
    means = truth.cv_results_["mean_test_score"]
    assert_allclose(search.cv_results_["confirmed_test_score"], means)
    assert search.best_index_ == np.argmax(means)


def test_jobs_change_nothing_and_searches_can_be_stored():
    serial = FastGridSearchCV(MODEL, MIXED, fallback="refit", cv=3).fit(X, SIDES)
    parallel = FastGridSearchCV(MODEL, MIXED, fallback="refit", cv=3, n_jobs=2).fit(X, SIDES)
    stored = pickle.loads(pickle.dumps(parallel))
    for key in ("mean_test_score", "status"):
        assert_array_equal(stored.cv_results_[key], serial.cv_results_[key])
    assert_array_equal(stored.predict(X), serial.predict(X))


class Fails(RegressorMixin, BaseEstimator):
    """Fits some rows only."""

    def __init__(self, limit=0.0):
        self.limit = limit

    def fit(self, X, y):
        """Fail if the first row is beyond the limit."""
        if X[0, 0] > self.limit:
            raise ValueError("beyond the limit")
        return self

    def predict(self, X):
        """Predict zeros."""
        return np.zeros(len(X))


class FailsOnce(StandardScaler):
    """Fails where the first row is not among those of the fit."""

    def fit(self, X, y=None):
        """Raise or fit."""
        if not (X[0] == FIRST).all():
            raise ValueError("the first row is missing")
        return super().fit(X, y)


FIRST = X[0]


def _several(estimator, X, y):
    return {"a": 1.0, "b": estimator.score(X, y)}


def test_failures_are_those_of_scikit_learn():
    grid = {"limit": [-9.0, 9.0]}
    options = {"cv": 3, "error_score": -7.0}
    with pytest.warns(FitFailedWarning, match="3 fits failed out of a total of 6"):
        ours = FastGridSearchCV(Fails(), grid, fallback="refit", **options).fit(X, y)
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(Fails(), grid, **options).fit(X, y)
    same(ours, theirs)
    assert_array_equal(ours.cv_results_["status"], ["failed", "refitted"])
    # The first fold fails before anybody knows that the scorer gives several scores.
    options |= {"cv": 2, "scoring": _several, "refit": False}
    model = make_pipeline(FailsOnce(), DecisionTreeRegressor(random_state=0))
    with pytest.warns(FitFailedWarning), pytest.warns(everyfold.UnsupportedWarning):
        ours = FastGridSearchCV(model, {}, **options).fit(X, y)
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(model, {}, **options).fit(X, y)
    assert ours.cv_results_["split1_test_b"] == theirs.cv_results_["split1_test_b"] != -7.0
    assert ours.cv_results_["mean_test_a"] == theirs.cv_results_["mean_test_a"] == -3.0
    search = FastGridSearchCV(Fails(), grid, fallback="refit", error_score="raise")
    with pytest.raises(ValueError, match="beyond the limit"):
        search.fit(X, y)


def test_classifiers_and_regressors_in_one_grid():
    grid = {"model": [SVR(), SVC(), DecisionTreeRegressor(random_state=0)]}
    theirs = ms.GridSearchCV(MODEL, grid, cv=3).fit(X, SIDES)
    ours = FastGridSearchCV(MODEL, grid, cv=3, fallback="refit").fit(X, SIDES)
    same(ours, theirs, rtol=0.01)
    assert_array_equal(ours.cv_results_["status"], ["exact", "refitted", "refitted"])


def test_the_score_of_the_candidate_counts_and_not_that_of_what_it_replaces():
    pipeline = Pipeline([("scale", StandardScaler()), ("model", DecisionTreeRegressor())])
    grid = {"model": [SVC(C=0.1), SVC(C=3.0)]}
    theirs = ms.GridSearchCV(pipeline, grid, cv=ms.StratifiedKFold(3)).fit(X, SIDES)
    ours = FastGridSearchCV(pipeline, grid, cv=ms.StratifiedKFold(3)).fit(X, SIDES)
    same(ours, theirs)
    assert ours.plan_.refitted == ()


def test_texts_without_rows_of_numbers():
    texts = ["a fold", "a kernel", "one fold", "one kernel"] * 10
    pipeline = Pipeline([("count", CountVectorizer()), ("model", SGDClassifier(random_state=0))])
    target = [text.endswith("kernel") for text in texts]
    grid = {"model__alpha": [1e-4, 1.0], "count__binary": [True, False]}
    theirs = ms.GridSearchCV(pipeline, grid, cv=4).fit(texts, target)
    same(FastGridSearchCV(pipeline, grid, cv=4, fallback="refit").fit(texts, target), theirs)


def test_random_search():
    options = {"n_iter": 4, "random_state": 3, "cv": 3}
    grid = {"max_depth": [1, 2, 3], "min_samples_leaf": range(1, 9)}
    model = DecisionTreeRegressor(random_state=0)
    ours = FastRandomizedSearchCV(model, grid, fallback="refit", **options).fit(X, y)
    same(ours, ms.RandomizedSearchCV(model, grid, **options).fit(X, y))


def test_a_splitter_is_asked_once():
    class OneTime:
        """Splits that are used up."""

        def __init__(self):
            self.splits = ms.KFold(4).split(X)

        def split(self, X, y=None, groups=None):
            """Yield what is left."""
            yield from self.splits

        def get_n_splits(self, X=None, y=None, groups=None):
            """How many there are."""
            return 4

    search = FastGridSearchCV(MODEL, MIXED, cv=OneTime(), fallback="refit").fit(X, SIDES)
    assert search.n_splits_ == 4


@pytest.mark.parametrize("fallback", ["warn", "refit"])
def test_functions_are_those_of_scikit_learn(fallback):
    tree = DecisionTreeClassifier(random_state=0)
    splits = list(ms.StratifiedKFold(3).split(X, SIDES))
    calls = (
        (cross_val_predict, ms.cross_val_predict, {"method": "predict_proba"}),
        (cross_val_score, ms.cross_val_score, {"scoring": "roc_auc"}),
    )
    for ours, theirs, options in calls:
        forget_warnings()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "fallback=", DeprecationWarning)
            found = ours(tree, X, SIDES, cv=iter(splits), fallback=fallback, **options)
        assert [w.filename for w in told] == ([__file__] if fallback == "warn" else [])
        assert_array_equal(found, theirs(tree, X, SIDES, cv=splits, **options))
    found = cross_validate(tree, X, SIDES, fallback="refit", scoring=["accuracy", "f1"])
    assert_array_equal(found["test_f1"], ms.cross_val_score(tree, X, SIDES, scoring="f1"))
    for function in (cross_val_predict, cross_val_score, cross_validate):
        with pytest.raises(TypeError, match="DecisionTreeClassifier is not supported"):
            function(tree, X, SIDES, fallback="refuse")


@pytest.mark.parametrize("name", ["learning_curve", "permutation_test_score", "cross_val_score"])
def test_generators_are_drawn_from_as_by_scikit_learn(name):
    # A scorer that nothing but the fitted estimator answers is noticed after shuffling.
    def call(module, generator):
        options = {"cv": ms.KFold(3, shuffle=True, random_state=generator), "scoring": alphas}
        if name != "cross_val_score":
            options["random_state"] = generator
        if name == "learning_curve":
            options["shuffle"] = True
        return getattr(module, name)(KernelRidge(kernel="rbf"), X, y, **options)

    def alphas(model, X, y):
        return float(np.sum(model.X_fit_[:3]))

    ours, theirs = np.random.RandomState(0), np.random.RandomState(0)
    with pytest.warns(UserWarning, match="refitted on every fold"):
        found = call(everyfold, ours)
    for value, expected in zip(found, call(ms, theirs), strict=True):
        assert_array_equal(value, expected)
    assert ours.randint(10**9) == theirs.randint(10**9)


def test_methods_that_only_the_estimator_has():
    model = LogisticRegression()
    found = cross_val_predict(model, X, SIDES, method="predict_log_proba", fallback="refit")
    expected = ms.cross_val_predict(model, X, SIDES, method="predict_log_proba")
    assert_array_equal(found, expected)
    with pytest.raises(AttributeError, match="predict_proba"):
        cross_val_predict(SVR(), X, y, method="predict_proba", fallback="refit")


def test_what_is_sped_up_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        search = FastGridSearchCV(LSSVR(), {"alpha": [0.1, 1.0]}).fit(X, y)
        cross_val_score(LSSVR(), X, y)
    assert search.plan_.refitted == ()
    assert search.plan_.notes == () or "not sped up" not in str(search.plan_)


def test_pooled_scores_need_held_out_values():
    search = FastGridSearchCV(MODEL, MIXED, pooled=True)
    with pytest.raises(TypeError, match="DecisionTreeClassifier is not supported") as told:
        search.fit(X, SIDES)
    assert "pooled=True" in told.value.__notes__[0]
    with pytest.raises(TypeError, match="not supported"):
        cross_val_score(DecisionTreeClassifier(), X, SIDES, pooled=True)


def n_support(estimator, X, y):
    """The share of rows that are no support vectors."""
    return 1.0 - len(estimator.support_) / 72.0


def error_of_mean(estimator, X, y):
    """Something that predictions of other rows say."""
    return -abs(estimator.predict(X[:5]).mean() - y.mean())


def weighs_parameter(estimator, X, y):
    """The accuracy, less for a large C."""
    return estimator.score(X, y) - 0.01 * estimator.get_params()["C"]


def plain(estimator, X, y):
    """The accuracy."""
    return np.mean(estimator.predict(X) == y)


@pytest.mark.parametrize("scoring", [n_support, error_of_mean, weighs_parameter])
def test_scorers_that_need_the_estimator_get_it(scoring):
    grid = {"C": [0.1, 1.0, 10.0]}
    with pytest.warns(UserWarning, match="held-out predictions are not enough for this scorer"):
        ours = FastGridSearchCV(SVC(), grid, scoring=scoring, cv=5).fit(X, SIDES)
    same(ours, ms.GridSearchCV(SVC(), grid, scoring=scoring, cv=5).fit(X, SIDES))
    assert set(ours.cv_results_["status"]) == {"refitted"}
    for name in ("cross_val_score", "cross_validate"):
        call = getattr(everyfold, name)
        found = call(SVC(), X, SIDES, scoring=scoring, cv=5, fallback="refit")
        expected = getattr(ms, name)(SVC(), X, SIDES, scoring=scoring, cv=5)
        if name == "cross_validate":
            found, expected = found["test_score"], expected["test_score"]
        assert_array_equal(found, expected)


def test_scorers_of_predictions_leave_nothing():
    search = FastGridSearchCV(SVC(), {"C": [0.1, 1.0]}, scoring=plain).fit(X, SIDES)
    assert search.plan_.refitted == ()
    several = {"plain": plain, "auc": "roc_auc"}
    search = FastGridSearchCV(SVC(), {"C": [0.1, 1.0]}, scoring=several, refit="auc").fit(X, SIDES)
    assert search.plan_.refitted == ()


def test_a_score_that_is_wrapped_is_what_it_wraps(monkeypatch):
    """As trackers of experiments do while they log."""
    from functools import wraps

    from sklearn.kernel_ridge import KernelRidge

    from everyfold import FastGridSearchCV

    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(40, 2)), rng.normal(size=40)
    usual = KernelRidge.score

    @wraps(usual)
    def logged(self, *args, **kwargs):
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(KernelRidge, "score", logged, raising=False)
    search = FastGridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}, cv=3).fit(rows, target)
    assert search.plan_.refitted == ()
    monkeypatch.setattr(KernelRidge, "score", lambda self, X, y: 0.0)
    other = FastGridSearchCV(KernelRidge(), {"alpha": [0.1]}, cv=3, fallback="refit")
    assert other.fit(rows, target).plan_.refitted == (0,)


def refit_warnings(*calls):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls:
            call()
    return sum("refitted on every fold" in str(one.message) for one in caught)


def test_one_warning_for_each_class_in_a_process():
    def tree(**params):
        return DecisionTreeRegressor(random_state=0, **params)

    calls = [
        lambda: cross_val_score(tree(), X, y, cv=2),
        lambda: cross_val_predict(tree(), X, y, cv=2),
        lambda: FastGridSearchCV(tree(), {"max_depth": [1, 2]}, cv=2).fit(X, y),
        lambda: cross_val_score(make_pipeline(StandardScaler(), tree()), X, y, cv=2),
    ]
    assert refit_warnings(*calls) == 1
    assert refit_warnings(*calls) == 0
    assert refit_warnings(lambda: cross_val_score(KNeighborsRegressor(), X, y, cv=2)) == 1
    forget_warnings()
    assert refit_warnings(*calls[::-1]) == 1


@pytest.mark.parametrize(
    "model",
    [
        DummyRegressor(),
        make_pipeline(StandardScaler(), DummyRegressor()),
        FrozenEstimator(LinearRegression().fit(X, y)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_no_warning_of_what_needs_no_fit(model):
    assert refit_warnings(lambda: cross_val_score(model, X, y, cv=2)) == 0
    if isinstance(model, FrozenEstimator):
        return  # scikit-learn's searches cannot set its parameters
    search = FastGridSearchCV(model, {}, cv=2)
    assert refit_warnings(lambda: search.fit(X, y)) == 0
    assert "not sped up" in str(search.plan_)


def _idle(labels):
    """Weights of 0 for a class, except in the first third of the rows."""
    weights = np.ones(len(labels))
    weights[(labels == labels.max()) & (np.arange(len(labels)) >= len(labels) // 3)] = 0.0
    return weights


@pytest.mark.parametrize("is_in_pipeline", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("labels", [SIDES, np.arange(90) % 3], ids=["two", "three"])
def test_logistic_regression_learns_classes_without_weight(labels, fit_intercept, is_in_pipeline):
    model = LogisticRegression(fit_intercept=fit_intercept)
    name = "sample_weight"
    if is_in_pipeline:
        model = make_pipeline(StandardScaler(), model)
        name = "logisticregression__sample_weight"
    options = {"cv": KFold(3), "scoring": "neg_log_loss", "params": {name: _idle(labels)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", everyfold.UnsupportedWarning)
        ours = cross_val_score(model, X, labels, **options)
    assert_allclose(ours, ms.cross_val_score(model, X, labels, **options), rtol=1e-10)


def test_classes_without_weight_leave_other_candidates_alone():
    """Of two candidates only LogisticRegression is refitted, on the same folds."""
    grid = {"model": [LogisticRegression(), RidgeClassifier()]}
    options, labels = {"cv": KFold(3), "scoring": "accuracy"}, np.arange(90) % 3
    pipeline = Pipeline([("scale", StandardScaler()), ("model", SVC())])
    fit = {"model__sample_weight": _idle(labels)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", everyfold.UnsupportedWarning)
        ours = FastGridSearchCV(pipeline, grid, **options).fit(X, labels, **fit)
    same(ours, ms.GridSearchCV(pipeline, grid, **options).fit(X, labels, **fit))
    assert ours.cv_results_["status"].tolist() == ["refitted", "exact"]


@pytest.mark.parametrize("labels", [SIDES, np.arange(90) % 3], ids=["two", "three"])
def test_class_weights_of_zero_are_those_of_logistic_regression(labels):
    model = LogisticRegression(class_weight={0: 0.0}, fit_intercept=False)
    options = {"cv": 3, "scoring": "neg_log_loss"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", everyfold.UnsupportedWarning)
        ours = cross_val_score(model, X, labels, **options)
    assert_allclose(ours, ms.cross_val_score(model, X, labels, **options), rtol=1e-10)


def test_orders_of_y_that_leave_a_class_without_weight_are_refused():
    with pytest.raises(ValueError, match="no training row of class 1 has weight"):
        permutation_test_score(
            LogisticRegression(),
            X,
            SIDES,
            cv=KFold(2),
            n_permutations=5,
            random_state=0,
            params={"sample_weight": np.where(np.arange(90) % 45 < 2, 1.0, 0.0)},
        )


def test_steps_that_fail_before_several_classes_fail_alone():
    pipeline = make_pipeline(SelectKBest(k=2), LogisticRegression(tol=1e-9))
    grid = {"selectkbest__k": [2, -1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ms.GridSearchCV(pipeline, grid, cv=3).fit(FLOWERS, KINDS)
        ours = FastGridSearchCV(pipeline, grid, cv=3).fit(FLOWERS, KINDS)
    assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=1e-9
    )
    assert ours.cv_results_["status"][1] == "failed"
