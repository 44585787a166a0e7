"""The twins of scikit-learn's functions against the originals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix
from sklearn import config_context
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, Ridge, RidgeClassifier, RidgeCV
from sklearn.metrics import make_scorer, mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, NuSVC

from everyfold import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    cross_val_predict,
    cross_val_score,
)

X, Y = make_regression(n_samples=48, n_features=5, n_targets=3, noise=5.0, random_state=0)
X /= 2.0
y = Y[:, 0] / 50.0
GROUPS = np.arange(48) % 6
LABELS = np.where(y > np.median(y), "yes", "no")


def splitters(kind):
    """Every splitter of sklearn.model_selection, those that partition or those that do not."""
    n_splits = {"n_splits": 4}
    partitions = [
        ms.KFold(**n_splits),
        ms.KFold(7, shuffle=True, random_state=0),
        ms.LeaveOneOut(),
        ms.GroupKFold(**n_splits),
        ms.LeaveOneGroupOut(),
        ms.PredefinedSplit(GROUPS),
        ms.StratifiedKFold(**n_splits),
        ms.StratifiedGroupKFold(n_splits=3),
    ]
    others = [
        ms.RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        ms.RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
        ms.ShuffleSplit(5, test_size=0.3, random_state=0),
        ms.ShuffleSplit(5, test_size=0.2, train_size=0.4, random_state=0),
        ms.StratifiedShuffleSplit(4, test_size=0.3, random_state=0),
        ms.GroupShuffleSplit(4, test_size=0.3, random_state=0),
        ms.LeavePOut(2),
        ms.LeavePGroupsOut(2),
        ms.TimeSeriesSplit(4),
        ms.TimeSeriesSplit(3, max_train_size=10, gap=2),
    ]
    return partitions if kind == "partitions" else others


def needs_labels(cv):
    return "Stratified" in type(cv).__name__


def needs_groups(cv):
    return "Group" in type(cv).__name__


def name(value):
    return type(value).__name__


def test_every_splitter_of_scikit_learn_is_covered():
    known = {name(cv) for kind in ("partitions", "others") for cv in splitters(kind)}
    public = {
        n
        for n in ms.__all__
        if "CV" not in n and not n.startswith("Base") and hasattr(getattr(ms, n), "split")
    }
    assert public <= known


REGRESSORS = [
    KernelRidge(alpha=0.3),
    KernelRidge(alpha=0.05, kernel="rbf", gamma=0.4),
    KernelRidge(alpha=1.0, kernel="polynomial", degree=2),
    KernelRidge(alpha=0.2, kernel="laplacian", gamma=0.1),
    KernelRidge(alpha=0.2, kernel="cosine"),
    Ridge(alpha=0.7),
    Ridge(alpha=0.7, fit_intercept=False),
    LSSVR(alpha=0.1, gamma=0.3),
    KernelRegressor(alpha=0.1, gamma="scale"),
]


def codes(labels):
    return (labels == "yes").astype(float)


@pytest.mark.parametrize("cv", splitters("partitions"), ids=name)
@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_predictions_of_every_partition(model, cv):
    target = codes(LABELS) if needs_labels(cv) else y
    groups = GROUPS if needs_groups(cv) else None
    ours = cross_val_predict(model, X, target, cv=cv, groups=groups)
    theirs = ms.cross_val_predict(model, X, target, cv=cv, groups=groups)
    assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("cv", splitters("others"), ids=name)
@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_scores_of_every_other_splitter(model, cv):
    target = codes(LABELS) if needs_labels(cv) else y
    groups = GROUPS if needs_groups(cv) else None
    arguments = {"cv": cv, "groups": groups, "scoring": "neg_mean_squared_error"}
    ours = cross_val_score(model, X, target, **arguments)
    theirs = ms.cross_val_score(model, X, target, **arguments)
    assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.parametrize("cv", splitters("others"), ids=name)
def test_predictions_need_a_partition(cv):
    target = codes(LABELS) if needs_labels(cv) else y
    groups = GROUPS if needs_groups(cv) else None
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict(KernelRidge(), X, target, cv=cv, groups=groups)


@pytest.mark.parametrize("cv", [None, 3, ms.KFold(3), [(np.arange(24), np.arange(24, 48))]])
@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), LSSVC(gamma=0.2)], ids=str)
def test_cv_argument(model, cv):
    target = LABELS if isinstance(model, LSSVC) else y
    ours = cross_val_score(model, X, target, cv=cv)
    assert_allclose(ours, ms.cross_val_score(model, X, target, cv=cv), rtol=1e-8)


@pytest.mark.parametrize(
    "scoring",
    [None, "r2", "neg_mean_absolute_error", "neg_max_error", make_scorer(mean_squared_error)],
)
def test_any_regression_scorer(scoring):
    model = KernelRidge(alpha=0.3, kernel="rbf")
    ours = cross_val_score(model, X, y, scoring=scoring, cv=4)
    theirs = ms.cross_val_score(model, X, y, scoring=scoring, cv=4)
    assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize("scoring", [None, "accuracy", "roc_auc", "f1_macro", "balanced_accuracy"])
@pytest.mark.parametrize("model", [RidgeClassifier(), LSSVC(gamma=0.2), LSSVC(kernel="linear")])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"yes": 3.0}])
def test_any_classification_scorer(scoring, model, class_weight):
    model = type(model)(**{**model.get_params(), "class_weight": class_weight})
    ours = cross_val_score(model, X, LABELS, scoring=scoring, cv=4)
    theirs = ms.cross_val_score(model, X, LABELS, scoring=scoring, cv=4)
    assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize("n_more", [0, 24])
@pytest.mark.parametrize(
    "model",
    [
        KernelLogisticClassifier(gamma=0.3),
        HuberSVC(gamma=0.3),
        HuberSVC(gamma="scale"),
        KernelClassifier(loss="squared_hinge", gamma=0.3, class_weight="balanced"),
        KernelClassifier(loss="squared_hinge", gamma=0.3, multi_class="ovo"),
        LSSVC(gamma=0.3),
        KernelLogisticClassifier(gamma=0.3, fit_intercept=False),
    ],
)
@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
def test_training_rows_whose_weights_leave_one_class(model, n_more):
    """A margin loss with an intercept has no minimum then; the others have one."""
    labels = np.where(np.arange(48) < 16, "no", "yes")
    w = np.where((np.arange(48) >= 8) & (np.arange(48) < 16), 0.0, 1.0)
    tests = [np.r_[:8, 16:24], np.r_[8:16], *np.arange(24, 24 + n_more)[:, None]]
    cv = [(np.setdiff1d(np.arange(48), test), test) for test in tests]
    arguments = {"cv": cv, "params": {"sample_weight": w}}
    if model.loss == "squared" or not model.fit_intercept:
        found = cross_val_score(model, X, labels, **arguments)
        assert_allclose(found, ms.cross_val_score(model, X, labels, **arguments))
        return
    with pytest.warns(FitFailedWarning, match="one class only"):
        found = cross_val_score(model, X, labels, **arguments)
    with pytest.warns(FitFailedWarning, match="one class only"):
        theirs = ms.cross_val_score(model, X, labels, **arguments)
    assert np.isnan(found[0])
    assert_allclose(found, theirs)
    with pytest.raises(ValueError, match="one class only"):
        cross_val_score(model, X, labels, error_score="raise", **arguments)


@pytest.mark.parametrize("method", ["decision_function", "predict_proba"])
@pytest.mark.parametrize(
    "classes",
    [[0.0, 1.0], [0.5, 1.5], [1.0, 2.0, 3.0], [-0.5, 0.0, 0.5], np.array([3, 1], dtype=object)],
    ids=str,
)
def test_values_of_labels_that_are_fractions_or_objects(classes, method):
    labels = np.asarray(classes)[np.argsort(np.argsort(y)) * len(classes) // len(y)]
    model = KernelLogisticClassifier(gamma=0.1)
    theirs = ms.cross_val_predict(model, X, labels, cv=3, method=method)
    assert_allclose(cross_val_predict(model, X, labels, cv=3, method=method), theirs, rtol=1e-5)


@pytest.mark.parametrize("model", [RidgeClassifier(alpha=2.0), LSSVC(gamma=0.5, alpha=0.1)])
@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_many_classes(model, method):
    X, y = load_iris(return_X_y=True)
    cv = ms.StratifiedKFold(5, shuffle=True, random_state=0)
    ours = cross_val_predict(model, X, y, cv=cv, method=method)
    theirs = ms.cross_val_predict(model, X, y, cv=cv, method=method)
    assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_a_class_that_a_fold_does_not_know_is_not_predicted():
    X, y = load_iris(return_X_y=True)
    model = LSSVC(gamma=0.5)
    ours = cross_val_predict(model, X, y, cv=ms.KFold(3))
    assert_array_equal(ours, ms.cross_val_predict(model, X, y, cv=ms.KFold(3)))
    assert (ours != y).all()


def first_label(estimator, X, y):
    """A scorer that looks at what the model of a fold knows."""
    return float(len(estimator.classes_) + np.ndim(estimator.decision_function(X)) / 10.0)


@pytest.mark.filterwarnings("ignore")  # scikit-learn says which scores it could not compute
@pytest.mark.parametrize("n_missing", [1, 2])
@pytest.mark.parametrize("scoring", [first_label, "f1_macro", "top_k_accuracy", "neg_log_loss"])
@pytest.mark.parametrize(
    "model",
    [
        LSSVC(gamma=0.1),
        SVC(gamma=0.1, tol=1e-6),
        SVC(gamma=0.1, tol=1e-6, decision_function_shape="ovo"),
        KernelLogisticClassifier(gamma=0.1),
        KernelClassifier("logistic", multi_class="ovo", gamma=0.1),
    ],
    ids=repr,
)
def test_scorers_see_a_model_of_the_classes_that_a_fold_knows(model, scoring, n_missing):
    labels = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    lacking = np.flatnonzero(labels >= n_missing)
    rows = np.arange(48)
    cv = [(lacking[::2], rows[1::2]), (rows[:32], rows[32:])]
    ours = cross_val_score(model, X, labels, cv=cv, scoring=scoring)
    theirs = ms.cross_val_score(model, X, labels, cv=cv, scoring=scoring)
    assert_allclose(ours, theirs, atol=1e-5)


def test_a_fold_with_one_class_gets_error_score():
    labels, rows = np.repeat([0, 1], 24), np.arange(48)
    halves = [(rows[:24], rows[24:]), (rows[::2], rows[1::2])]
    with pytest.warns(FitFailedWarning, match="one class only"):
        scores = cross_val_score(LSSVC(), X, labels, cv=halves, error_score=-7.0)
    assert scores[0] == -7.0
    assert scores[1] == ms.cross_val_score(LSSVC(), X, labels, cv=halves[1:])
    with pytest.raises(ValueError, match="one class only"):
        cross_val_score(LSSVC(), X, labels, cv=ms.KFold(2), error_score="raise")
    with pytest.raises(ValueError, match="one class only"):
        cross_val_predict(LSSVC(), X, labels, cv=ms.KFold(2))


@pytest.mark.parametrize("error_score", [np.nan, 0.0])
def test_scores_of_folds_that_all_fail_are_refused(error_score):
    """As in scikit-learn: an array of error_score would look like a result."""
    model = make_pipeline(SelectKBest(f_regression, k=2), KernelRidge())
    both = np.column_stack([y, y])
    for function in (ms.cross_val_score, cross_val_score):
        with pytest.raises(ValueError, match=r"(?i)all (the )?3 (fits|folds) failed"):
            function(model, X, both, cv=3, error_score=error_score)


@pytest.mark.parametrize(
    "model", [KernelRidge(alpha=[0.1, 1.0, 0.1]), Ridge(alpha=[0.1, 1.0, 3.0])]
)
def test_one_ridge_for_each_target(model):
    ours = cross_val_predict(model, X, Y, cv=4)
    assert_allclose(ours, ms.cross_val_predict(model, X, Y, cv=4), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="alpha has 3 entries, but y has 1 target"):
        cross_val_predict(model, X, y, cv=4)


@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), Ridge(), LSSVR(), LSSVC()], ids=str)
def test_sample_weights(model):
    w = np.random.default_rng(0).uniform(0, 2, len(y))
    w[::7] = 0.0
    target = LABELS if isinstance(model, LSSVC) else y
    for cv in (ms.KFold(5), ms.LeaveOneOut()):
        arguments = {"cv": cv, "params": {"sample_weight": w}}
        ours = cross_val_predict(model, X, target, **arguments)
        theirs = ms.cross_val_predict(model, X, target, **arguments)
        if isinstance(model, LSSVC):
            assert_array_equal(ours, theirs)
        else:
            assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame, csr_matrix, csr_array, list])
def test_containers(container):
    data = container(X.tolist() if container is list else X)
    expected = ms.cross_val_score(KernelRidge(kernel="rbf"), X, y, cv=4)
    assert_allclose(cross_val_score(KernelRidge(kernel="rbf"), data, y, cv=4), expected, rtol=1e-8)
    assert_allclose(cross_val_score(KernelRidge(kernel="rbf"), data, list(y), cv=4), expected)


def test_callable_and_precomputed_kernels():
    def kernel(a, b, power=1):
        return float(a @ b + 1.0) ** power

    model = KernelRidge(kernel=kernel, kernel_params={"power": 2}, alpha=1.0)
    expected = ms.cross_val_predict(model, X, y, cv=3)
    assert_allclose(cross_val_predict(model, X, y, cv=3), expected, rtol=1e-8)
    K = (X @ X.T + 1.0) ** 2
    model = KernelRidge(kernel="precomputed", alpha=1.0)
    assert_allclose(cross_val_predict(model, K, y, cv=3), expected, rtol=1e-8)


def test_float32_is_computed_in_double_precision():
    model = KernelRidge(kernel="rbf", alpha=1e-3)
    exact = cross_val_predict(model, X.astype(np.float32).astype(float), y, cv=4)
    assert_array_equal(cross_val_predict(model, X.astype(np.float32), y, cv=4), exact)


def test_noise_labels_score_one_half():
    """The leave-one-out accuracy of random labels is 0.5, not the 1.0 of rounding predictions."""
    rng = np.random.default_rng(0)
    noise, labels = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)
    for model in (LSSVC(gamma=0.1), RidgeClassifier(), LSSVC(gamma=5.0, alpha=1e-3)):
        accuracy = cross_val_score(model, noise, labels, cv=ms.LeaveOneOut()).mean()
        assert 0.4 < accuracy < 0.6


def test_metadata_routing():
    w = np.random.default_rng(0).uniform(0.1, 2, len(y))
    with config_context(enable_metadata_routing=True):
        model = KernelRidge(kernel="rbf").set_fit_request(sample_weight=True)
        scorer = make_scorer(mean_squared_error).set_score_request(sample_weight=True)
        cv = ms.GroupKFold(4).set_split_request(groups=True)
        arguments = {
            "cv": cv,
            "scoring": scorer,
            "params": {"sample_weight": w, "groups": GROUPS},
        }
        ours = cross_val_score(model, X, y, **arguments)
        assert_allclose(ours, ms.cross_val_score(model, X, y, **arguments), rtol=1e-8)
        with pytest.raises(ValueError, match=r"params=\{'groups'"):
            cross_val_score(model, X, y, groups=GROUPS, cv=cv)


def test_a_scorer_that_wants_other_rows_is_told_so():
    def shaky(estimator, X, y):
        return mean_squared_error(y, estimator.predict(X + 1e-3))

    with pytest.raises(ValueError, match="rows other than the held-out ones"):
        cross_val_score(KernelRidge(), X, y, scoring=shaky, error_score="raise", fallback="refuse")


@pytest.mark.parametrize(
    ("estimator", "advice"),
    [
        (Lasso(), "sklearn.model_selection"),
        (NuSVC(), "try SVC"),
        (GaussianProcessRegressor(RBF()), "optimizer=None"),
        (Ridge(positive=True), "positive=False"),
        (KernelRidge(kernel="sigmoid"), "sigmoid"),
    ],
    ids=str,
)
def test_unsupported_estimators_are_refused_before_work(estimator, advice):
    class Untouchable:
        shape = (3, 3)

        def __array__(self, *args, **kwargs):
            raise AssertionError("the data were touched")

    data = X if "sigmoid" in str(estimator) else Untouchable()
    with pytest.raises((TypeError, ValueError), match=advice):
        cross_val_predict(estimator, data, y, fallback="refuse")


def test_subclasses_of_scikit_learn_are_not_trusted():
    class Odd(KernelRidge):
        def predict(self, X):
            return super().predict(X) + 1.0

    with pytest.raises(TypeError, match="estimator=Odd is not supported"):
        cross_val_predict(Odd(), X, y, fallback="refuse")


def test_method_and_params_are_checked():
    with pytest.raises(ValueError, match="method='predict_proba' is not available"):
        cross_val_predict(LSSVC(), X, LABELS, method="predict_proba", fallback="refuse")
    with pytest.raises(ValueError, match=r"params has \['colour'\]"):
        cross_val_predict(LSSVR(), X, y, params={"colour": 1})


def test_verbose_prints_the_plan(capsys):
    cross_val_score(LSSVR(), X, y, verbose=1)
    printed = capsys.readouterr().out
    assert "48 rows" in printed
    assert "exact" in printed


def test_classification_data_of_many_rows_agree_with_scikit_learn():
    X, y = make_classification(400, 12, n_informative=6, n_classes=3, random_state=1)
    model = LSSVC(gamma=0.05, alpha=0.5)
    cv = ms.RepeatedStratifiedKFold(n_splits=10, n_repeats=2, random_state=0)
    assert_allclose(cross_val_score(model, X, y, cv=cv), ms.cross_val_score(model, X, y, cv=cv))


@pytest.mark.parametrize("model", [Ridge(), RidgeCV(), KernelRidge(), LSSVR()])
def test_a_single_column_of_targets_is_predicted_in_scikit_learns_shape(model):
    ours = cross_val_predict(model, X, Y[:, :1], cv=4)
    assert ours.shape == ms.cross_val_predict(model, X, Y[:, :1], cv=4).shape


@pytest.mark.parametrize("model", [LSSVC, RidgeClassifier, SVC])
def test_negative_class_weights_are_refused(model):
    with pytest.raises(ValueError, match=r"class_weight has {'no': -1.0}"):
        cross_val_score(model(class_weight={"no": -1.0}), X, LABELS, cv=4)
