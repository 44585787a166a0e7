"""The searches side by side with scikit-learn's own."""

import os
import pickle
import signal
import threading
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.stats import loguniform
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_iris, make_regression
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import FitFailedWarning, UndefinedMetricWarning
from sklearn.feature_selection import SelectKBest, f_classif, f_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import get_scorer, make_scorer, max_error, mean_squared_error
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

import everyfold.engine.execution.executor
from everyfold import (
    LSSVC,
    LSSVR,
    Dense,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    cross_val_score,
)
from everyfold.adapters.pipelines import freeze
from everyfold.engine.planning.costs import SEARCH
from everyfold.engine.scoring.metrics import ScoredRows, find_metric
from everyfold.estimators.targets import Labels, Numbers

EXTRA = {"is_exact", "status", "is_identity", "spectral_radius"}

X, Y = make_regression(n_samples=40, n_features=4, n_targets=2, noise=8.0, random_state=0)
X = X / 2.0 + np.arange(4)
y = Y[:, 0] / 50.0
LABELS = np.where(y > np.quantile(y, 0.6), "yes", "no")
GROUPS = np.arange(40) % 6
ALPHAS = [0.05, 0.7, 3.0]


def compare(fast, slow, *, rtol=1e-8):
    """All that two fitted searches have in common is the same."""
    ours, theirs = fast.cv_results_, slow.cv_results_
    means = [key.removeprefix("mean_test_") for key in theirs if key.startswith("mean_test_")]
    confirmed = {f"confirmed_test_{name}" for name in means}
    assert [key for key in ours if key not in EXTRA | confirmed] == list(theirs)
    assert set(ours) - set(theirs) == EXTRA | confirmed
    assert ours["params"] == theirs["params"]
    for key, expected in theirs.items():
        if key.startswith("param_"):
            assert_array_equal(ours[key].mask, expected.mask)
            assert ours[key].dtype == expected.dtype
            assert list(ours[key].compressed()) == list(expected.compressed())
        elif "rank" in key:
            assert ours[key].dtype == expected.dtype
            assert_array_equal(ours[key], expected, err_msg=key)
        elif "score" in key and "time" not in key:
            assert_allclose(ours[key], expected, rtol=rtol, atol=1e-10, err_msg=key)
        elif "time" in key:
            assert (ours[key] >= 0.0).all()
    for name in ("best_index_", "best_params_", "n_splits_", "multimetric_"):
        assert getattr(fast, name, None) == getattr(slow, name, None), name
    if hasattr(slow, "best_score_"):
        assert_allclose(fast.best_score_, slow.best_score_, rtol=rtol)


def both(estimator, grid, target=y, data=X, fit_params=None, **options):
    fit_params = fit_params or {}
    slow = ms.GridSearchCV(estimator, grid, **options).fit(data, target, **fit_params)
    fast = FastGridSearchCV(estimator, grid, **options).fit(data, target, **fit_params)
    compare(fast, slow)
    assert fast.cv_results_["is_exact"].all()
    return fast, slow


def columns():
    return ColumnTransformer([("scale", StandardScaler(), [0, 2]), ("range", MinMaxScaler(), [1])])


REGRESSORS = {
    "kernel_ridge": (KernelRidge(kernel="rbf"), {"alpha": ALPHAS, "gamma": [0.1, 0.6]}),
    "poly": (KernelRidge(kernel="poly", degree=2), {"alpha": ALPHAS, "coef0": [0.5, 1.0]}),
    "ridge": (Ridge(), {"alpha": ALPHAS, "fit_intercept": [True, False]}),
    "lssvr": (LSSVR(), {"alpha": ALPHAS, "gamma": [0.1, 0.6]}),
    "scale": (KernelRegressor(gamma="scale"), {"alpha": ALPHAS}),
    "scaled": (
        make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")),
        {"kernelridge__alpha": ALPHAS, "kernelridge__gamma": [0.05, 0.4]},
    ),
    "pca": (
        Pipeline([("scaler", StandardScaler()), ("pca", PCA()), ("model", Ridge())]),
        {"pca__n_components": [2, 3], "model__alpha": ALPHAS, "scaler__with_std": [True, False]},
    ),
    "columns": (
        Pipeline([("columns", columns()), ("model", LSSVR())]),
        {"model__alpha": ALPHAS, "model__gamma": [0.1, 0.6]},
    ),
    "supervised": (
        Pipeline([("select", SelectKBest(f_regression)), ("model", LSSVR())]),
        {"select__k": [1, 3], "model__alpha": ALPHAS},
    ),
}
SPLITTERS = {
    "default": None,
    "folds": ms.KFold(4, shuffle=True, random_state=0),
    "repeated": ms.RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    "shuffled": ms.ShuffleSplit(3, test_size=0.3, train_size=0.5, random_state=0),
    "groups": ms.GroupKFold(3),
    "time": ms.TimeSeriesSplit(3),
    "iterable": [(np.arange(20)[::-1], np.arange(20, 40)), (np.arange(15, 40), np.arange(15))],
}


@pytest.mark.parametrize("cv", SPLITTERS, ids=str)
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_and_splitters(name, cv):
    estimator, grid = REGRESSORS[name]
    fit_params = {"groups": GROUPS} if cv == "groups" else {}
    fast, slow = both(estimator, grid, cv=SPLITTERS[cv], fit_params=fit_params)
    assert_allclose(fast.predict(X), slow.predict(X), rtol=1e-8)
    assert fast.score(X, y) == pytest.approx(slow.score(X, y))


@pytest.mark.parametrize("name", ["kernel_ridge", "scaled"])
def test_splits_that_can_be_read_only_once(name):
    estimator, grid = REGRESSORS[name]
    fast, slow = (
        search(estimator, grid, cv=ms.KFold(3).split(X), **options).fit(X, y)
        for search, options in (
            (FastGridSearchCV, {"n_confirm": 1}),
            (ms.GridSearchCV, {}),
        )
    )
    compare(fast, slow)


def test_several_labels_a_row_are_left_to_refits():
    labels = (Y > 0.0).astype(int)
    search = {"param_grid": {"alpha": ALPHAS}, "cv": 3}
    with pytest.warns(UserWarning, match="indicator matrix of 2 labels"):
        fast = FastGridSearchCV(RidgeClassifier(), **search).fit(X, labels)
    slow = ms.GridSearchCV(RidgeClassifier(), **search).fit(X, labels)
    compare(fast, slow)
    with pytest.raises(ValueError, match="1d array"):  # as SVC itself would
        FastGridSearchCV(SVC(), {"C": [1.0]}, cv=3).fit(X, labels)


@pytest.mark.parametrize("name", ["kernel_ridge", "ridge", "lssvr"])
def test_leave_one_out(name):
    both(*REGRESSORS[name], cv=ms.LeaveOneOut(), scoring="neg_mean_absolute_error")


CLASSIFIERS = {
    "ridge": (RidgeClassifier(), {"alpha": ALPHAS, "class_weight": [None, "balanced"]}),
    "lssvc": (LSSVC(), {"alpha": ALPHAS, "gamma": [0.05, 0.5]}),
    "weighted": (LSSVC(gamma=0.2), {"alpha": ALPHAS, "class_weight": ["balanced", {"yes": 3.0}]}),
    "scaled": (
        make_pipeline(StandardScaler(), LSSVC()),
        {"lssvc__alpha": ALPHAS, "lssvc__gamma": [0.05, 0.5, "scale"]},
    ),
    "selected": (
        make_pipeline(SelectKBest(f_classif), RidgeClassifier()),
        {"selectkbest__k": [1, 2], "ridgeclassifier__alpha": ALPHAS},
    ),
}


@pytest.mark.parametrize("scoring", [None, "balanced_accuracy", "roc_auc", "f1_macro"])
@pytest.mark.parametrize("cv", [ms.StratifiedKFold(4), ms.ShuffleSplit(3, random_state=0)])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_and_scorers(name, cv, scoring):
    estimator, grid = CLASSIFIERS[name]
    fast, slow = both(estimator, grid, LABELS, cv=cv, scoring=scoring)
    assert_array_equal(fast.predict(X), slow.predict(X))
    assert_allclose(fast.decision_function(X), slow.decision_function(X), rtol=1e-7, atol=1e-9)
    assert_array_equal(fast.classes_, slow.classes_)


@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error", "neg_max_error"])
@pytest.mark.parametrize("with_train", [True, False])
@pytest.mark.parametrize("name", ["kernel_ridge", "ridge", "scale", "pca"])
def test_train_scores_and_scorers(name, with_train, scoring):
    both(*REGRESSORS[name], scoring=scoring, return_train_score=with_train, cv=3)


def test_many_classes_and_votes():
    data, labels = load_iris(return_X_y=True)
    data, labels = data[::3], labels[::3]
    both(LSSVC(), {"alpha": ALPHAS, "gamma": [0.1, 1.0]}, labels, data, return_train_score=True)
    grid = {"alpha": [0.1, 1.0], "multi_class": ["ovr", "ovo"]}
    both(KernelClassifier(gamma=0.3), grid, labels, data)


def test_several_targets_with_ridges_of_their_own():
    grid = {"alpha": [0.1, [0.1, 2.0], [2.0, 0.3]], "gamma": [0.1, 0.5]}
    both(KernelRidge(kernel="rbf"), grid, Y / 50.0, scoring="neg_mean_squared_error")


def test_lists_of_grids_have_masked_parameters():
    grid = [
        {"kernel": ["rbf"], "gamma": [0.1, 0.5], "alpha": ALPHAS},
        {"kernel": ["polynomial"], "degree": [2], "alpha": [1.0, 4.0]},
        {"kernel": ["linear"]},
    ]
    fast, _ = both(KernelRidge(), grid)
    assert fast.cv_results_["param_degree"].mask.sum() == 7
    assert fast.plan_.kernels == 4


def test_steps_may_be_swapped_and_passed_through():
    pipeline = Pipeline([("scaler", StandardScaler()), ("nothing", None), ("model", Ridge())])
    grid = {"scaler": [StandardScaler(), MinMaxScaler(), "passthrough"], "model__alpha": ALPHAS}
    fast, _ = both(pipeline, grid)
    assert fast.plan_.kernels == 3
    both(pipeline, {"model": [Ridge(), KernelRidge(kernel="rbf"), LSSVR(gamma=0.3)]})


def test_nested_pipelines():
    inner = Pipeline([("pca", PCA(3)), ("model", KernelRidge(kernel="rbf"))])
    outer = Pipeline([("scaler", StandardScaler()), ("inner", inner)])
    grid = {"inner__model__alpha": ALPHAS, "inner__pca__n_components": [2, 3]}
    w = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    both(outer, grid, fit_params={"inner__model__sample_weight": w})


class FirstRow(TransformerMixin, BaseEstimator):
    """Scales by the first row and the first target it sees."""

    def fit(self, X, y):
        self.scale_ = X[0] * y[0]
        return self

    def transform(self, X):
        return X * self.scale_


@pytest.mark.parametrize("with_train", [True, False])
def test_transformers_see_the_rows_in_the_order_of_the_split(with_train):
    cv = ms.ShuffleSplit(3, test_size=0.3, random_state=0)
    pipeline = make_pipeline(FirstRow(), Ridge())
    both(pipeline, {"ridge__alpha": ALPHAS}, cv=cv, return_train_score=with_train)


class TwoFaced(FirstRow):
    """Transforms what it is fitted on in another way than what comes later, as encoders do."""

    def fit_transform(self, X, y):
        return self.fit(X, y).transform(X) + 0.5 * X**2


def test_training_scores_come_from_transform_not_from_fit_transform():
    pipeline = make_pipeline(TwoFaced(), Ridge())
    both(pipeline, {"ridge__alpha": ALPHAS}, return_train_score=True)


def test_precomputed_kernels():
    K = (X @ X.T + 1.0) ** 2
    both(KernelRidge(kernel="precomputed"), {"alpha": ALPHAS}, data=K)
    centred = make_pipeline(KernelCenterer(), KernelRidge(kernel="precomputed"))
    both(centred, {"kernelridge__alpha": ALPHAS}, data=K)


@pytest.mark.parametrize("container", [pd.DataFrame, csr_matrix, lambda data: data.tolist()])
def test_containers(container):
    both(LSSVR(), {"alpha": ALPHAS, "gamma": [0.1, 1.0]}, data=container(X))


def test_data_frames_keep_their_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = Pipeline(
        [("columns", ColumnTransformer([("scale", StandardScaler(), ["a", "c"])])), ("m", LSSVR())]
    ).set_output(transform="pandas")
    fast, slow = both(pipeline, {"m__alpha": ALPHAS}, data=frame)
    assert_array_equal(fast.feature_names_in_, slow.feature_names_in_)
    assert fast.n_features_in_ == 4


def test_several_scorers():
    scoring = {"r2": "r2", "worst": make_scorer(max_error, greater_is_better=False)}
    options = {"scoring": scoring, "refit": "worst", "return_train_score": True}
    fast, slow = both(*REGRESSORS["lssvr"], **options)
    assert fast.score(X, y) == pytest.approx(slow.score(X, y))
    both(*REGRESSORS["lssvr"], scoring=["neg_mean_squared_error", "r2"], refit=False)
    both(*REGRESSORS["lssvr"], scoring=["neg_mean_squared_error", "r2"], refit="r2")
    with pytest.raises(ValueError, match="refit must be set to a scorer key"):
        FastGridSearchCV(*REGRESSORS["lssvr"], scoring=["r2", "neg_max_error"]).fit(X, y)


def test_a_callable_scorer_may_return_several_scores():
    def scorer(estimator, X, y):
        predicted = estimator.predict(X)
        return {"mse": -mean_squared_error(y, predicted), "bias": float((predicted - y).mean())}

    both(*REGRESSORS["lssvr"], scoring=scorer, refit="mse")


def test_refit_may_be_a_callable_or_nothing():
    def strongest_ridge(results):
        return int(np.argmax(results["param_alpha"]))

    fast, _ = both(*REGRESSORS["ridge"], refit=strongest_ridge)
    assert fast.best_params_["alpha"] == 3.0
    fast, _ = both(*REGRESSORS["ridge"], refit=False)
    assert not hasattr(fast, "best_estimator_")
    with pytest.raises(AttributeError, match="predict"):
        fast.predict(X)


@pytest.mark.parametrize("name", ["kernel_ridge", "ridge", "lssvr"])
def test_sample_weights(name):
    w = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    w[::9] = 0.0
    both(*REGRESSORS[name], fit_params={"sample_weight": w}, return_train_score=True)
    both(*REGRESSORS[name], fit_params={"sample_weight": None})


@pytest.mark.parametrize("number", [2.0, 3, np.float64(0.5)])
@pytest.mark.parametrize(
    ("model", "grid", "prefix"),
    [
        (*REGRESSORS["kernel_ridge"], ""),
        (*REGRESSORS["lssvr"], ""),
        (*REGRESSORS["scaled"], "kernelridge__"),
        (SVR(gamma=0.1, tol=1e-8), {"C": [0.5, 2.0]}, ""),
    ],
    ids=["kernel_ridge", "lssvr", "scaled", "svr"],
)
def test_a_number_is_the_weight_of_every_row(model, grid, prefix, number):
    name = f"{prefix}sample_weight"
    ours = FastGridSearchCV(model, grid, cv=3).fit(X, y, **{name: number})
    theirs = ms.GridSearchCV(model, grid, cv=3).fit(X, y, **{name: np.full(len(y), number)})
    assert ours.best_params_ == theirs.best_params_
    for key in ("mean_test_score", "split1_test_score"):
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)
    assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)


def test_sample_weights_of_steps():
    w = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    fit_params = {"kernelridge__sample_weight": w, "standardscaler__sample_weight": w}
    both(*REGRESSORS["scaled"], fit_params=fit_params)
    with pytest.raises(ValueError, match="does not name a step"):
        FastGridSearchCV(*REGRESSORS["scaled"]).fit(X, y, sample_weight=w)
    with pytest.raises(ValueError, match="colour"):
        FastGridSearchCV(*REGRESSORS["lssvr"]).fit(X, y, colour=1)


def test_metadata_routing():
    w = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    with config_context(enable_metadata_routing=True):
        scorer = get_scorer("r2").set_score_request(sample_weight=True)
        cv = ms.GroupKFold(4).set_split_request(groups=True)
        options = {"scoring": scorer, "cv": cv}
        fit_params = {"sample_weight": w, "groups": GROUPS}
        ridge = KernelRidge(kernel="rbf").set_fit_request(sample_weight=True)
        both(ridge, {"alpha": ALPHAS}, fit_params=fit_params, **options)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, ridge)
        both(pipeline, {"kernelridge__alpha": ALPHAS}, fit_params=fit_params, **options)


@pytest.mark.parametrize("n_iter", [5, 8])
def test_randomised_search_tries_the_same_candidates(n_iter):
    distributions = {"alpha": loguniform(1e-2, 1e1), "gamma": [0.1, 0.5, "scale"]}
    options = {"n_iter": n_iter, "random_state": 3, "cv": 4}
    slow = ms.RandomizedSearchCV(KernelRegressor(), distributions, **options).fit(X, y)
    compare(FastRandomizedSearchCV(KernelRegressor(), distributions, **options).fit(X, y), slow)


def test_support_vector_machines():
    # A tolerance far below libsvm's default leaves no room for another solution.
    svr = make_pipeline(StandardScaler(), SVR(tol=1e-9))
    grid = {"svr__C": [0.3, 3.0], "svr__gamma": [0.1, "scale"], "svr__epsilon": [0.05, 0.2]}
    slow = ms.GridSearchCV(svr, grid, cv=4, return_train_score=True).fit(X, y)
    fast = FastGridSearchCV(svr, grid, cv=4, return_train_score=True).fit(X, y)
    compare(fast, slow, rtol=1e-4)
    data, labels = load_iris(return_X_y=True)
    data, labels = data[::3, :2], labels[::3]
    svc = make_pipeline(StandardScaler(), SVC(tol=1e-9))
    grid = {"svc__C": [0.7, 2.0, 9.0], "svc__class_weight": [None, "balanced"]}
    slow = ms.GridSearchCV(svc, grid, cv=3).fit(data, labels)
    compare(FastGridSearchCV(svc, grid, cv=3).fit(data, labels), slow)


def test_smooth_losses_are_confirmed_where_they_are_not_exact():
    grid = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.1, 1.0]}
    options = {"cv": 4, "scoring": "roc_auc"}
    slow = ms.GridSearchCV(KernelLogisticClassifier(), grid, **options).fit(X, LABELS)
    fast = FastGridSearchCV(KernelLogisticClassifier(), grid, **options).fit(X, LABELS)
    k = fast.best_index_
    truth = slow.cv_results_["mean_test_score"]
    assert truth[k] >= slow.best_score_ - 0.005
    if not fast.cv_results_["is_exact"][k]:
        assert fast.cv_results_["confirmed_test_score"][k] == pytest.approx(truth[k])
    exact = fast.cv_results_["is_exact"]
    assert_allclose(fast.cv_results_["mean_test_score"][exact], truth[exact], rtol=1e-6)


@pytest.mark.parametrize("estimator", ["kernel_ridge", "scaled"])
def test_workers_change_nothing(estimator):
    serial = FastGridSearchCV(*REGRESSORS[estimator], cv=4).fit(X, y)
    parallel = FastGridSearchCV(*REGRESSORS[estimator], cv=4, n_jobs=2).fit(X, y)
    compare(parallel, serial_as_theirs(serial), rtol=1e-12)


def serial_as_theirs(search):
    search = pickle.loads(pickle.dumps(search))
    for key in [*EXTRA, "confirmed_test_score"]:
        del search.cv_results_[key]
    return search


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_failing_candidate_takes_no_other_with_it():
    doubled = np.vstack([X, X[:2]])
    target = np.append(y, y[:2])
    grid = {"alpha": [0.0, 1.0], "gamma": [0.5]}
    with (
        pytest.warns(FitFailedWarning, match="not positive definite"),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        search = FastGridSearchCV(LSSVR(), grid, error_score=np.nan, cv=3).fit(doubled, target)
    results = search.cv_results_
    assert np.isnan(results["mean_test_score"][0])
    assert search.best_params_["alpha"] == 1.0
    assert_array_equal(results["is_exact"], [False, True])
    expected = ms.cross_val_score(LSSVR(gamma=0.5), doubled, target, cv=3)
    assert_allclose(results["mean_test_score"][1], expected.mean())
    with pytest.raises(ValueError, match="not positive definite"):
        FastGridSearchCV(LSSVR(), grid, error_score="raise").fit(doubled, target)


def test_a_fold_with_one_class_gets_error_score():
    labels = np.repeat([0, 1], [14, 26])
    cv = [(np.arange(10), np.arange(20, 30)), (np.arange(5, 40), np.arange(5))]
    grid = {"alpha": ALPHAS}
    with pytest.warns(FitFailedWarning, match="one class only"):
        search = FastGridSearchCV(LSSVC(), grid, cv=cv, error_score=-1.0).fit(X, labels)
    with pytest.warns(FitFailedWarning):
        slow = ms.GridSearchCV(LSSVC(), grid, cv=cv, error_score=-1.0).fit(X, labels)
    compare(search, slow)
    assert_array_equal(search.cv_results_["split0_test_score"], [-1.0] * 3)


def test_a_step_that_fails_in_one_fold():
    class Picky(StandardScaler):
        def fit(self, X, y=None, sample_weight=None):
            if (X[:, 0] == X_odd[0, 0]).any():
                raise ValueError("too odd a row")
            return super().fit(X, y, sample_weight)

    X_odd = X.copy()
    X_odd[0, 0] = 99.0
    pipeline = Pipeline([("scaler", Picky()), ("model", Ridge())])
    options = {"cv": ms.KFold(4), "error_score": -5.0, "refit": False}
    grid = {"model__alpha": ALPHAS}
    with pytest.warns(FitFailedWarning, match="too odd a row"):
        fast = FastGridSearchCV(pipeline, grid, **options).fit(X_odd, y)
    with pytest.warns(FitFailedWarning, match="too odd a row"):
        slow = ms.GridSearchCV(pipeline, grid, **options).fit(X_odd, y)
    compare(fast, slow)


class Unwilling(StandardScaler):
    """Scales no rows but those it was fitted on, as encoders that meet unknown categories."""

    def transform(self, X, copy=None):
        if X.shape[0] != self.n_samples_seen_:
            raise ValueError("unknown rows")
        return super().transform(X, copy)


def test_held_out_rows_that_a_step_does_not_take_are_no_failed_fits():
    pipeline = Pipeline([("scaler", Unwilling()), ("model", Ridge())])
    grid, options = {"model__alpha": ALPHAS}, {"cv": ms.KFold(4), "error_score": -5.0}
    with pytest.warns(UserWarning, match="Scoring failed"):
        slow = ms.GridSearchCV(pipeline, grid, **options).fit(X, y)
    with pytest.warns(UserWarning, match="Scoring failed in 12 of 12 folds"):
        fast = FastGridSearchCV(pipeline, grid, **options).fit(X, y)
    compare(fast, slow)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        scores = cross_val_score(pipeline, X, y, **options)
    assert_array_equal(scores, [-5.0] * 4)
    assert all("could not be scored" in str(warning.message) for warning in said)
    with pytest.raises(ValueError, match="unknown rows"):
        cross_val_score(pipeline, X, y, error_score="raise")


def test_invalid_values_fail_as_in_scikit_learn():
    grid = {"alpha": [-1.0, 1.0]}
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        slow = ms.GridSearchCV(KernelRidge(), grid).fit(X, y)
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        fast = FastGridSearchCV(KernelRidge(), grid).fit(X, y)
    compare(fast, slow)
    with pytest.raises(ValueError, match="'alpha' parameter of KernelRidge must be"):
        FastGridSearchCV(KernelRidge(), {"alpha": [-1.0, -2.0]}).fit(X, y)


class Untouchable:
    shape = (3, 3)

    def __array__(self, *args, **kwargs):
        raise AssertionError("the data were touched")


@pytest.mark.parametrize(
    ("estimator", "grid", "advice"),
    [
        (RandomForestClassifier(), {"max_depth": [1, 2]}, "sklearn.model_selection"),
        (make_pipeline(StandardScaler(), RandomForestClassifier()), {}, "RandomForestClassifier"),
        (TransformedTargetRegressor(SVR(), transformer=StandardScaler()), {}, "squared loss"),
        (Ridge(), {"positive": [False, True]}, "positive=False"),
        (KernelRidge(), {"kernel": ["rbf", "sigmoid"]}, "sigmoid"),
        (Ridge(), {"colour": [1]}, "colour"),
    ],
    ids=str,
)
def test_unsupported_estimators_are_refused_before_work(estimator, grid, advice):
    with pytest.raises((TypeError, ValueError), match=advice):
        FastGridSearchCV(estimator, grid, fallback="refuse").fit(Untouchable(), Untouchable())


@pytest.mark.parametrize(
    "options",
    [
        {"order": 0},
        {"order": 1.5},
        {"order": "second"},
        {"operator": "sparse"},
        {"ridge_scaling": "median"},
        {"n_confirm": -1},
        {"n_confirm": 2, "ridge_scaling": "mean"},
        {"preprocessing": "never"},
        {"error_score": "ignore"},
        {"cv": 1},
        {"refit": 3},
    ],
    ids=str,
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FastGridSearchCV(LSSVR(), {"alpha": ALPHAS}, **options).fit(X, y)


def test_a_scorer_that_wants_other_rows_is_told_so():
    def shaky(estimator, X, y):
        return mean_squared_error(y, estimator.predict(X + 1e-3))

    search = FastGridSearchCV(LSSVR(), {"alpha": ALPHAS}, scoring=shaky, fallback="refuse")
    with (
        pytest.raises(ValueError, match="rows other than the held-out ones"),
        pytest.warns(UserWarning, match="Scoring failed"),
    ):
        search.fit(X, y)


def test_an_estimator_with_a_score_of_its_own_needs_scoring():
    class Own(LSSVR):
        def score(self, X, y, sample_weight=None):
            return 42.0

    with pytest.raises(ValueError, match="pass scoring by name"):
        FastGridSearchCV(Own(), {"alpha": ALPHAS}, fallback="refuse").fit(X, y)
    both(Own(), {"alpha": ALPHAS}, scoring="r2")


@pytest.mark.parametrize("estimator", [KernelRidge(kernel="rbf"), SVC()], ids=["ridge", "svc"])
def test_kernels_that_are_the_identity_are_flagged(estimator):
    target = y if isinstance(estimator, KernelRidge) else LABELS
    gammas = [0.1, 1e6]
    search = FastGridSearchCV(estimator, {"gamma": gammas}, cv=3).fit(X, target)
    assert search.best_params_["gamma"] == 0.1
    assert_array_equal(search.cv_results_["is_identity"], [False, True])
    with pytest.warns(UserWarning, match=r"'gamma': 1000000.0.* is numerically the identity"):
        FastGridSearchCV(estimator, {"gamma": gammas[1:]}, cv=3).fit(X, target)


@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), SVC()], ids=["ridge", "svc"])
@pytest.mark.parametrize("cv", [3, 30])
@pytest.mark.filterwarnings("ignore:the best candidate:UserWarning")
def test_kernels_of_folds_that_are_the_identity_are_flagged(model, cv):
    """In a Pipeline every fold has a kernel of its own, and all have to be the identity."""
    rows = np.random.default_rng(0).normal(size=(100, 4))
    target = rows[:, 0] + rows[:, 1] ** 2
    target = target if isinstance(model, KernelRidge) else np.where(target > 1.0, "a", "b")
    name = f"{type(model).__name__.lower()}__gamma"
    options = {"cv": cv, "scoring": None if cv == 3 else _first_row, "refit": False}
    pipeline = make_pipeline(StandardScaler(), model)
    search = FastGridSearchCV(pipeline, {name: [0.1, 1e6]}, **options).fit(rows, target)
    assert_array_equal(search.cv_results_["is_identity"], [False, True])
    # In folds without the first two rows, which are equal, no two rows are.
    rows[1] = rows[0]
    twice = FastGridSearchCV(pipeline, {name: [1e6]}, **options).fit(rows, target)
    assert_array_equal(twice.cv_results_["is_identity"], [False])


def _first_row(estimator, rows, target):
    return float(estimator.predict(rows)[0] == target[0])


def test_the_identity_in_a_pipeline_is_noted_in_the_plan():
    pipeline = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    with pytest.warns(UserWarning, match="is numerically the identity"):
        search = FastGridSearchCV(pipeline, {"kernelridge__gamma": [1e6]}, cv=3).fit(X, y)
    assert any("identity" in note for note in search.plan_.notes)


def test_the_identity_of_two_equal_rows_is_none():
    doubled, target = np.vstack([X, X[:1]]), np.append(y, y[0])
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), {"gamma": [1e6]}, cv=3)
    assert_array_equal(search.fit(doubled, target).cv_results_["is_identity"], [False])


# -- interruption, progress, confirmation --------------------------------------------------------


def interrupted(monkeypatch, after, send):
    run = everyfold.engine.execution.executor.run
    calls = []

    def slow_run(data, unit):
        calls.append(unit)
        if len(calls) > after:
            send()
        return run(data, unit)

    monkeypatch.setattr("everyfold.engine.execution.executor.run", slow_run)
    return FastGridSearchCV(LSSVR(), {"gamma": [0.1, 0.2, 0.4, 0.8], "alpha": ALPHAS})


def signal_self():
    done = threading.Event()
    os.kill(os.getpid(), signal.SIGINT)
    done.wait(5.0)


def test_an_interrupt_leaves_what_is_finished(monkeypatch):
    expected = FastGridSearchCV(LSSVR(), {"gamma": [0.1, 0.2], "alpha": ALPHAS}).fit(X, y)
    search = interrupted(monkeypatch, 2, signal_self)
    with pytest.warns(UserWarning, match="6 of 12 candidates"), pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    finished = search.cv_results_["params"]
    assert len(finished) == 6
    assert search.best_params_ == expected.best_params_
    assert_allclose(search.predict(X), expected.predict(X))
    for params, score in zip(finished, search.cv_results_["mean_test_score"], strict=True):
        k = expected.cv_results_["params"].index(params)
        assert score == pytest.approx(expected.cv_results_["mean_test_score"][k])
    assert "interrupted" in str(search.plan_)


def test_an_interrupt_before_anything_is_finished(monkeypatch):
    search = interrupted(monkeypatch, 0, signal_self)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    assert not hasattr(search, "cv_results_")


def test_progress_is_silent_unless_asked_for(capsys):
    search = FastGridSearchCV(LSSVR(), {"gamma": [0.1, 0.2], "alpha": ALPHAS}).fit(X, y)
    assert capsys.readouterr().out == ""
    clone(search).set_params(verbose=1).fit(X, y)
    printed = capsys.readouterr().out
    assert "6 candidates on 2 kernels" in printed
    assert "kernel 2/2, 6/6 candidates" in printed


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_confirmation_decides():
    grid = {"alpha": [1e-3, 0.1, 3.0], "gamma": [0.5, 2.0]}
    options = {"cv": 4, "order": 1}
    rough = FastGridSearchCV(LSSVR(), grid, n_confirm=0, **options).fit(X, y)
    assert not rough.cv_results_["is_exact"].any()
    assert np.isfinite(rough.cv_results_["spectral_radius"]).all()
    assert np.isnan(rough.cv_results_["confirmed_test_score"]).all()
    truth = ms.GridSearchCV(LSSVR(), grid, cv=4).fit(X, y)
    assert rough.best_params_ != truth.best_params_  # the series collapses to the training error
    search = FastGridSearchCV(LSSVR(), grid, n_confirm=6, **options).fit(X, y)
    assert_allclose(
        search.cv_results_["confirmed_test_score"], truth.cv_results_["mean_test_score"]
    )
    assert search.best_params_ == truth.best_params_
    assert search.best_score_ == pytest.approx(truth.best_score_)
    some = FastGridSearchCV(LSSVR(), grid, **options).fit(X, y)
    assert np.isfinite(some.cv_results_["confirmed_test_score"]).sum() == 3
    assert "confirmed      3 candidates" in str(some.plan_)


def test_the_mean_convention_reaches_the_refitted_model():
    options = {"ridge_scaling": "mean", "cv": ms.KFold(4)}
    search = FastGridSearchCV(LSSVR(gamma=0.3), {"alpha": [0.01]}, **options).fit(X, y)
    expected = ms.cross_val_score(LSSVR(gamma=0.3, alpha=0.01 * 30), X, y, cv=ms.KFold(4))
    assert_allclose(search.best_score_, expected.mean())
    assert_allclose(search.predict(X), LSSVR(gamma=0.3, alpha=0.4).fit(X, y).predict(X))


# -- preprocessing, grouping, plan -----------------------------------------------------------------


def test_preprocessing_once():
    estimator, grid = REGRESSORS["scaled"]
    search = FastGridSearchCV(estimator, grid, cv=4, preprocessing="once").fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    inner = {name.removeprefix("kernelridge__"): values for name, values in grid.items()}
    expected = ms.GridSearchCV(KernelRidge(kernel="rbf"), inner, cv=4).fit(scaled, y)
    keys = "mean_test_score"
    assert_allclose(search.cv_results_[keys], expected.cv_results_[keys], rtol=1e-8)
    assert not search.cv_results_["is_exact"].any()
    assert "once, on all rows" in str(search.plan_)
    with pytest.raises(ValueError, match="some of them use y"):
        FastGridSearchCV(*REGRESSORS["supervised"], preprocessing="once").fit(X, y)


@pytest.mark.parametrize("options", [{}, {"preprocessing": "auto"}], ids=["default", "auto"])
def test_many_folds_prepare_their_own_rows(options):
    """Steps that had seen the held-out row would be a leak, however many folds there are."""
    how = {"cv": ms.LeaveOneOut(), "scoring": "neg_mean_squared_error"}
    search = FastGridSearchCV(*REGRESSORS["scaled"], **how, **options).fit(X, y)
    compare(search, ms.GridSearchCV(*REGRESSORS["scaled"], **how).fit(X, y))
    assert search.cv_results_["is_exact"].all()


def test_transformers_are_fitted_once_a_fold_for_all_candidates():
    class Counting(StandardScaler):
        fits = 0

        def fit(self, X, y=None, sample_weight=None):
            Counting.fits += 1
            return super().fit(X, y, sample_weight)

    pipeline = Pipeline([("scaler", Counting()), ("model", LSSVR())])
    grid = {"model__alpha": ALPHAS, "model__gamma": [0.1, 0.2, 0.4]}
    FastGridSearchCV(pipeline, grid, cv=4, refit=False).fit(X, y)
    assert Counting.fits == 4


def test_distances_are_computed_once_for_all_gammas(monkeypatch):
    from everyfold.kernels import RBF

    calls = []
    base_matrix = RBF.base_matrix
    monkeypatch.setattr(
        RBF, "base_matrix", lambda self, *args: calls.append(1) or base_matrix(self, *args)
    )
    grid = {"gamma": [0.1, 0.2, 0.4], "alpha": ALPHAS, "fit_intercept": [True, False]}
    FastGridSearchCV(LSSVR(), grid, refit=False).fit(X, y)
    assert len(calls) == 1


def test_the_plan_reads_well():
    search = FastGridSearchCV(LSSVR(), {"gamma": [0.1, 0.2], "alpha": ALPHAS}, cv=4).fit(X, y)
    lines = str(search.plan_).splitlines()
    assert "6 candidates = 2 kernels with up to 3 ridges each, 40 rows, 4 folds" in lines[0]
    assert any(line.startswith("exact          all 6 candidates") for line in lines)


def test_the_estimate_of_a_plan_is_the_sum_over_kernels_and_each_is_counted_once():
    def plan(gammas, alphas=ALPHAS, rows=40, **options):
        grid = {"gamma": gammas, "alpha": alphas}
        found = FastGridSearchCV(LSSVR(), grid, cv=4, **options)
        made = found.fit(np.tile(X, (rows // 40, 1)), np.tile(y, rows // 40)).plan_
        return replace(made, estimate=made.estimate - SEARCH)  # what every search takes

    one, two = plan([0.1]), plan([0.1, 0.2])
    assert two.estimate == pytest.approx(2.0 * one.estimate)
    assert plan([0.1, 0.2], n_jobs=2).estimate == pytest.approx(two.estimate)
    # The ridges of a kernel share its factorisation: twice as many cost less than twice as much.
    some, many = (plan([0.1], alphas, rows=160) for alphas in (ALPHAS, [*ALPHAS, 5.0, 7.0, 9.0]))
    assert some.estimate < many.estimate < 1.8 * some.estimate
    # Factorisations take n³ flops, a kernel matrix 8 n² bytes.
    small, large = plan([0.1], rows=320), plan([0.1], rows=640)
    assert 4.0 < large.estimate / small.estimate <= 8.0
    assert 1 <= large.memory / (8 * 640**2) <= 8
    assert large.memory == 4 * small.memory


def test_operators_reach_the_models():
    grid = {"alpha": ALPHAS}
    primal = FastGridSearchCV(Ridge(), grid).fit(X, y)
    for operator in ("dense", Dense()):
        dense = FastGridSearchCV(Ridge(), grid, operator=operator).fit(X, y)
        assert dense.plan_.memory > primal.plan_.memory
        assert_allclose(
            dense.cv_results_["mean_test_score"], primal.cv_results_["mean_test_score"], rtol=1e-9
        )


# -- the object ------------------------------------------------------------------------------------


def test_pickling_cloning_and_representation():
    search = FastGridSearchCV(*REGRESSORS["scaled"], cv=3).fit(X, y)
    again = pickle.loads(pickle.dumps(search))
    assert_array_equal(again.predict(X), search.predict(X))
    assert str(again.plan_) == str(search.plan_)
    fresh = clone(search)
    assert not hasattr(fresh, "cv_results_")
    assert fresh.get_params()["param_grid"] == search.param_grid
    assert "FastGridSearchCV" in search._repr_html_()
    assert search.refit_time_ >= 0.0
    assert search.n_features_in_ == 4


@parametrize_with_checks(
    [
        FastGridSearchCV(LSSVR(), {"alpha": [0.1, 1.0]}),
        FastGridSearchCV(LSSVC(), {"alpha": [0.1, 1.0]}),
        FastRandomizedSearchCV(LSSVR(), {"alpha": [0.1, 1.0]}, n_iter=2, random_state=0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_callbacks_are_called_where_scikit_learn_has_them():
    callback = pytest.importorskip("sklearn.callback")
    search = FastGridSearchCV(LSSVR(), {"gamma": [0.1, 0.2], "alpha": ALPHAS})
    events = []

    class Listener:
        def setup(self, estimator, context):
            events.append("setup")

        def on_fit_task_begin(self, estimator, context):
            events.append(context.task_name)

        def on_fit_task_end(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            events.append("teardown")

    if not isinstance(Listener(), callback.FitCallback):
        pytest.skip("another callback protocol")
    search.set_callbacks(Listener()).fit(X, y)
    expected = ["setup", "fit", "search", "kernel", "kernel", "refit-with-best-params", "teardown"]
    assert events == expected


# -- metrics and keys ------------------------------------------------------------------------------

NUMBER_SCORERS = [
    "r2",
    "neg_mean_squared_error",
    "neg_root_mean_squared_error",
    "neg_mean_absolute_error",
]


class Fixed(RegressorMixin, BaseEstimator):
    """Predicts what it was told."""

    def __init__(self, predicted):
        self.predicted = predicted

    def predict(self, X):
        return self.predicted

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.parametrize("scoring", NUMBER_SCORERS)
@pytest.mark.parametrize("q", [1, 2])
def test_fast_metrics_of_numbers_are_scikit_learns(scoring, q):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(60, q))
    truth[10:20] = 0.1  # constant: whether its spread is 0 or a rounding error decides
    truth[20:30] = 3.0
    truth[30:40] = 1e8 + 1e-7 * truth[30:40]
    values = truth + rng.normal(size=truth.shape)
    values[20:25] = truth[20:25]
    values[50:53] = truth[50:53]
    parts = [*np.split(np.arange(50), 5), np.arange(50, 53), np.arange(53, 60)]
    parts += [np.arange(20, 25), np.arange(10, 13), np.array([5, 5, 7])]
    target = Numbers.read(truth[:, 0] if q == 1 else truth)
    scorer = get_scorer(scoring)
    metric = find_metric(scorer, target)
    side = ScoredRows(target, tuple(parts))
    scored = metric(side, values[side.rows])
    assert scored.is_known.all()
    y_true = target.predict(truth)
    y_pred = target.predict(values)
    expected = [scorer(Fixed(y_pred[p]), X[: len(p)], y_true[p]) for p in parts]
    assert_allclose(scored.scores, expected, rtol=1e-11, atol=1e-15)


def test_r2_of_one_row_is_not_defined():
    target = Numbers.read(y)
    side = ScoredRows(target, (np.array([3]), np.array([1, 2])))
    metric = find_metric(get_scorer("r2"), target)
    with pytest.warns(UndefinedMetricWarning, match="less than two samples"):
        scores = metric(side, np.zeros((3, 1))).scores
    assert np.isnan(scores[0])
    assert np.isfinite(scores[1])


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
@pytest.mark.parametrize("classes", [["a", "b"], [3, 1, 2]])
def test_fast_metrics_of_labels_are_scikit_learns(scoring, classes):
    rng = np.random.default_rng(0)
    labels = np.concatenate([classes, rng.choice(classes, size=60)])
    target = Labels.read(labels)
    values = rng.normal(size=target.columns.shape)
    parts = [*np.split(np.arange(60), 6), np.array([4]), np.flatnonzero(labels == classes[0])]
    side = ScoredRows(target, tuple(parts))
    scorer = get_scorer(scoring)
    scored = find_metric(scorer, target)(side, values[side.rows])
    predicted = target.predict(values)
    for part, score, is_known in zip(parts, scored.scores, scored.is_known, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            expected = scorer(Fixed(predicted[part]), X[: len(part)], labels[part])
        assert is_known == (not caught)
        if is_known:
            assert score == pytest.approx(expected, rel=1e-14)
    assert scored.is_known[:6].all()


def test_unknown_scorers_are_left_to_scikit_learn():
    target = Numbers.read(y)
    for scorer in (
        make_scorer(mean_squared_error, squared_by="nobody"),
        get_scorer("neg_max_error"),
        get_scorer("accuracy"),
        lambda estimator, X, y: 0.0,
    ):
        assert find_metric(scorer, target) is None


def test_keys_of_parameters():
    assert freeze(Ridge(alpha=1.0)) == freeze(Ridge(alpha=1.0))
    assert freeze(Ridge(alpha=1.0)) != freeze(Ridge(alpha=2.0))
    assert freeze({"a": [1, {"b": np.arange(3)}]}) == freeze({"a": [1, {"b": np.arange(3)}]})
    assert freeze(np.arange(3)) != freeze(np.arange(3.0))
    assert freeze(True) != freeze(1)
    assert freeze(columns()) == freeze(columns())


def test_parameters_of_a_step_that_the_grid_also_sets():
    """Each candidate has a step of its own, and the user's grid stays as it is."""
    pipeline = Pipeline([("step", PCA()), ("model", KernelRidge(kernel="rbf", gamma=0.1))])
    step = PCA(n_components=3)
    grid = {"step": [step], "step__n_components": [1, 2, 4]}
    fast = FastGridSearchCV(pipeline, grid, cv=4).fit(X, y)
    assert step.n_components == 3
    compare(fast, ms.GridSearchCV(pipeline, grid, cv=4).fit(X, y))
