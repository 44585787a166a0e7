"""Calibrated probabilities equal scikit-learn's, of one classifier and of an ensemble."""

import pickle
import re
import warnings

import numpy as np
import pytest
import sklearn
from sklearn import metrics
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    fbeta_score,
    make_scorer,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import (
    LSSVC,
    LSSVR,
    FastCalibratedClassifierCV,
    FastGridSearchCV,
    InexactWarning,
    KernelLogisticClassifier,
)

HAS_TEMPERATURE = "temperature" in str(CalibratedClassifierCV._parameter_constraints["method"][0])
METHODS = ["sigmoid", "isotonic"] + ["temperature"] * HAS_TEMPERATURE
GRID = {"C": [0.1, 1.0, 10.0], "gamma": [0.02, 0.1]}


def two_classes(n=160, seed=0):
    X, y = make_classification(n, 6, n_informative=4, flip_y=0.15, random_state=seed)
    return X, np.array(["no", "yes"])[y]


def three_classes():
    X, y = load_iris(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=X.shape)
    return X + 0.5 * noise, y


def twin(calibrated):
    """Scikit-learn's own."""
    ours = calibrated.get_params(deep=False)
    kept = {name: ours[name] for name in ("estimator", "method", "cv", "ensemble")}
    return CalibratedClassifierCV(**kept)


def single(estimator, **how):
    """One classifier, calibrated by held-out values."""
    return FastCalibratedClassifierCV(estimator, ensemble=False, **how)


def compare(calibrated, X, y, atol, **params):
    ours, theirs = calibrated.fit(X, y, **params), twin(calibrated).fit(X, y, **params)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.n_features_in_ == theirs.n_features_in_
    new = X + 0.1 * np.random.default_rng(1).normal(size=X.shape)
    expected = theirs.predict_proba(new)
    np.testing.assert_allclose(ours.predict_proba(new), expected, atol=atol)
    sure = np.sort(expected, axis=1)[:, -1] - np.sort(expected, axis=1)[:, -2] > 2 * atol
    assert sure.mean() > 0.5
    np.testing.assert_array_equal(ours.predict(new)[sure], theirs.predict(new)[sure])
    return ours


def test_the_default_is_that_of_scikit_learn():
    ours, theirs = FastCalibratedClassifierCV(SVC()), CalibratedClassifierCV(SVC())
    assert ours.get_params()["ensemble"] == theirs.get_params()["ensemble"] == "auto"
    X, y = two_classes()
    assert len(ours.fit(X, y).calibrated_classifiers_) == 5
    assert len(single(SVC()).fit(X, y).calibrated_classifiers_) == 1
    frozen = FrozenEstimator(SVC(gamma=0.1).fit(X[:80], y[:80]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a frozen classifier is not refitted
        fitted = compare(FastCalibratedClassifierCV(frozen), X[80:], y[80:], 1e-9)
    assert len(fitted.calibrated_classifiers_) == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", [two_classes, three_classes])
@pytest.mark.parametrize(
    "estimator",
    [
        LSSVC(gamma=0.1, alpha=0.3),
        LSSVC(kernel="linear"),
        LSSVC(gamma=0.1, class_weight="balanced"),
        SVC(gamma=0.1),
        KernelLogisticClassifier(gamma=0.1),
        make_pipeline(StandardScaler(), LSSVC(gamma=0.1)),
        RandomForestClassifier(5, random_state=0),  # probabilities, and no decision values
    ],
    ids=lambda estimator: str(estimator)[:40],
)
def test_an_ensemble_equals_scikit_learn(estimator, data, method):
    X, y = data()
    ours = compare(FastCalibratedClassifierCV(estimator, method=method, cv=3), X, y, 1e-7)
    theirs = twin(ours).fit(X, y)
    assert len(ours.calibrated_classifiers_) == 3
    for own, other in zip(
        ours.calibrated_classifiers_, theirs.calibrated_classifiers_, strict=True
    ):
        ask = "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"
        values = getattr(other.estimator, ask)(X)
        np.testing.assert_allclose(getattr(own.estimator, ask)(X), values, atol=1e-8)
        assert len(own.calibrators) == len(other.calibrators)
        np.testing.assert_allclose(own.predict_proba(X), other.predict_proba(X), atol=1e-7)


class ReturnsNothing(RandomForestClassifier):
    """A classifier as scripts have it, whose ``fit`` forgets to return it."""

    def fit(self, X, y):
        super().fit(X, y)


def test_an_ensemble_of_classifiers_whose_fit_returns_nothing():
    X, y = two_classes(60)
    model = ReturnsNothing(n_estimators=3, random_state=0)
    ours = FastCalibratedClassifierCV(model, cv=3, fallback="refit").fit(X, y)
    theirs = CalibratedClassifierCV(model, cv=3).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    "estimator", [LSSVC(gamma=0.1), LSSVC(gamma=0.1, class_weight={"no": 3.0}), SVC(gamma=0.1)]
)
def test_an_ensemble_with_weights(estimator):
    X, y = two_classes()
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(y))
    weight[3] = 0.0
    calibrated = FastCalibratedClassifierCV(estimator, cv=4)
    weighted = compare(calibrated, X, y, 1e-7, sample_weight=weight)
    plain = clone(weighted).fit(X, y)
    assert np.abs(weighted.predict_proba(X) - plain.predict_proba(X)).max() > 0.01


def test_an_ensemble_of_overlapping_and_of_grouped_folds():
    X, y, groups = grouped()
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    repeated = compare(FastCalibratedClassifierCV(LSSVC(), cv=folds), X, y, 1e-7)
    assert len(repeated.calibrated_classifiers_) == 6
    ours = FastCalibratedClassifierCV(LSSVC(), cv=GroupKFold(3)).fit(X, y, groups=groups)
    splits = list(GroupKFold(3).split(X, y, groups))
    theirs = CalibratedClassifierCV(LSSVC(), cv=splits).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-7)


def test_a_fold_without_rows_of_a_class():
    X, y = three_classes()
    splits = list(KFold(3).split(X))  # iris is sorted: each training set lacks a class
    compare(FastCalibratedClassifierCV(LSSVC(), cv=splits), X, y, 1e-7)


def test_an_ensemble_of_squared_loss_is_one_factorisation(monkeypatch):
    X, y = two_classes()

    def refit(*args, **kwargs):
        raise AssertionError("a fold was refitted")

    monkeypatch.setattr("everyfold.engine.kept_models.fit_to", refit)
    with pytest.raises(AssertionError, match="refitted"):
        FastCalibratedClassifierCV(SVC(), cv=4).fit(X, y)  # has no models of folds at hand
    fitted = FastCalibratedClassifierCV(LSSVC(), cv=4).fit(X, y)
    assert len(fitted.calibrated_classifiers_) == 4


def test_an_ensemble_of_the_winner_of_a_search():
    X, y, groups = grouped()
    for estimator, grid in (
        (LSSVC(), {"alpha": [0.1, 1.0]}),
        (make_pipeline(StandardScaler(), SVC()), {"svc__C": [1.0, 10.0]}),
    ):
        search = FastGridSearchCV(estimator, grid, cv=GroupKFold(3))
        ours = FastCalibratedClassifierCV(search).fit(X, y, groups=groups)
        splits = list(GroupKFold(3).split(X, y, groups))
        winner = clone(search).fit(X, y, groups=groups).best_estimator_
        theirs = CalibratedClassifierCV(winner, cv=splits).fit(X, y)
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-7)
        assert type(ours.calibrated_classifiers_[1].estimator) is type(winner)
    shuffled = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=KFold(3, shuffle=True))
    assert len(FastCalibratedClassifierCV(shuffled).fit(X, y).calibrated_classifiers_) == 3


def test_precomputed_kernels_have_no_ensemble():
    X, y = two_classes(80)
    model = SVC(kernel="precomputed")
    fitted = FastCalibratedClassifierCV(model).fit(X @ X.T, y)
    assert len(fitted.calibrated_classifiers_) == 1
    with pytest.raises(ValueError, match=r"ensemble=True: .*use ensemble=False"):
        FastCalibratedClassifierCV(model, ensemble=True).fit(X @ X.T, y)


# tol=1e-6 brings libsvm and the fold paths to one solution; isotonic steps are not continuous.
EXACT_SVC = SVC(gamma=0.1, tol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_svc_equals_scikit_learn(method, data):
    atol = 0.02 if method == "isotonic" else 1e-4
    compare(single(EXACT_SVC, method=method, cv=4), *data(), atol)


@pytest.mark.parametrize("method", METHODS)
def test_squared_loss_equals_scikit_learn(method):
    compare(single(LSSVC(gamma=0.1), method=method), *two_classes(), 1e-6)


def test_pipeline_and_shuffled_folds():
    pipeline = make_pipeline(StandardScaler(), EXACT_SVC)
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    compare(single(pipeline, cv=folds), *two_classes(), 1e-4)


def test_default_tolerance_of_svc():
    compare(single(SVC()), *two_classes(), 5e-3)


def test_sample_weight_reaches_classifier_and_calibrator():
    X, y = two_classes()
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(y))
    weighted = compare(single(LSSVC()), X, y, 1e-6, sample_weight=weight)
    plain = clone(weighted).fit(X, y)
    assert np.abs(weighted.predict_proba(X) - plain.predict_proba(X)).max() > 0.01


def test_weights_that_a_pipeline_does_not_take_are_told_of():
    X, y = two_classes()
    calibrated = single(make_pipeline(StandardScaler(), SVC()))
    with pytest.warns(UserWarning, match="step__sample_weight"):
        calibrated.fit(X, y, sample_weight=np.ones(len(y)))


def test_metadata_routing():
    X, y = two_classes()
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = LSSVC().set_fit_request(sample_weight=True)
        compare(single(estimator), X, y, 1e-6, sample_weight=weight)


def grouped():
    """Rows of two classes in groups of four."""
    X, y = two_classes()
    return X, y, np.arange(len(y)) // 4


def of_splits(calibrated, X, y, groups):
    """Scikit-learn's own with the splits of the groups, which its ``fit`` does not take."""
    theirs = twin(calibrated)
    return theirs.set_params(cv=list(theirs.cv.split(X, y, groups))).fit(X, y)


@pytest.mark.parametrize("estimator", [LSSVC(), make_pipeline(StandardScaler(), LSSVC())])
def test_groups_go_to_the_splitter(estimator):
    X, y, groups = grouped()
    ours = single(estimator, cv=GroupKFold(3))
    theirs = of_splits(ours, X, y, groups).predict_proba(X)
    np.testing.assert_allclose(ours.fit(X, y, groups=groups).predict_proba(X), theirs, atol=1e-6)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(ours).fit(X, y, groups=groups).predict_proba(X)
    np.testing.assert_allclose(routed, theirs, atol=1e-6)
    assert np.abs(clone(ours).set_params(cv=3).fit(X, y).predict_proba(X) - theirs).max() > 1e-3


@pytest.mark.filterwarnings("ignore:the estimator is refitted")
@pytest.mark.parametrize("kind", [FastGridSearchCV, GridSearchCV])
def test_groups_go_to_the_folds_of_a_search_too(kind):
    X, y, groups = grouped()
    search = kind(LSSVC(), {"alpha": [0.1, 1.0]}, cv=GroupKFold(2))
    ours = single(search, cv=GroupKFold(3)).fit(X, y, groups=groups)
    splits = list(GroupKFold(3).split(X, y, groups))
    theirs = CalibratedClassifierCV(search, cv=splits, ensemble=False).fit(X, y, groups=groups)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)


def test_groups_of_a_search_that_is_cross_validated_once():
    X, y, groups = grouped()
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=GroupKFold(3))
    ours = single(search).fit(X, y, groups=groups)
    plain = single(LSSVC(alpha=0.1), cv=GroupKFold(3))
    theirs = plain.fit(X, y, groups=groups).predict_proba(X)
    np.testing.assert_allclose(ours.predict_proba(X), theirs, atol=1e-9)


def test_search_is_cross_validated_once():
    """Its winner's held-out values are those that cross_val_predict gives on the same folds."""
    X, y = two_classes()
    search = FastGridSearchCV(SVC(tol=1e-6), GRID, cv=4)
    ours = single(search).fit(X, y)
    winner = ours.calibrated_classifiers_[0].estimator.best_estimator_
    theirs = CalibratedClassifierCV(clone(winner), cv=4, ensemble=False).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    values = cross_val_predict(winner, X, y, cv=4, method="decision_function")
    kept = ours.calibrated_classifiers_[0].estimator.out_of_fold(method="decision_function")
    np.testing.assert_allclose(kept.values, values, atol=1e-4)


def test_search_of_three_classes_with_weights_and_without_kept_predictions():
    X, y = three_classes()
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(y))
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1, 1.0]}, cv=3, keep_predictions=None)
    ours = single(search).fit(X, y, sample_weight=weight)
    winner = clone(ours.calibrated_classifiers_[0].estimator.best_estimator_)
    theirs = CalibratedClassifierCV(winner, cv=3, ensemble=False).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    assert search.method.keeps is None


@pytest.mark.filterwarnings("ignore:the estimator is refitted")
def test_search_with_a_cv_is_repeated_on_each_training_set():
    X, y = two_classes(80)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1, 1.0]}, cv=3)
    compare(FastCalibratedClassifierCV(search, cv=2), X, y, 1e-6)


@pytest.mark.filterwarnings("ignore:the estimator is refitted")
def test_foreign_classifier_falls_back():
    X, y = two_classes(80)
    forest = RandomForestClassifier(5, random_state=0)
    compare(FastCalibratedClassifierCV(forest, cv=2), X, y, 1e-12)


def test_pickle_clone_and_data_frame():
    pandas = pytest.importorskip("pandas")
    X, y = two_classes()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    fitted = FastCalibratedClassifierCV(SVC(), method="isotonic").fit(frame, pandas.Series(y))
    assert list(fitted.feature_names_in_) == list("abcdef")
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_proba(frame), fitted.predict_proba(frame))
    assert clone(fitted).get_params(deep=False).keys() == fitted.get_params(deep=False).keys()


def rare(n_rare=3):
    X, y = two_classes()
    y = np.where(np.arange(len(y)) < n_rare, "yes", "no")
    return X, y


@pytest.mark.parametrize(
    ("calibrated", "data", "words"),
    [
        (FastCalibratedClassifierCV(SVC(), cv=5), rare, "examples for at least one class"),
        (
            FastCalibratedClassifierCV(FastGridSearchCV(SVC(), GRID, cv=5)),
            rare,
            "examples for at least one class",
        ),
        (FastCalibratedClassifierCV(SVC(), cv=LeaveOneOut()), two_classes, "LeaveOneOut"),
        (
            single(SVC(), cv=RepeatedStratifiedKFold(n_splits=3)),
            two_classes,
            "partition",
        ),
        (
            single(FastGridSearchCV(SVC(), GRID, cv=RepeatedStratifiedKFold(n_splits=3))),
            two_classes,
            "partition",
        ),
        (
            FastCalibratedClassifierCV(FastGridSearchCV(SVC(), GRID, refit=False)),
            two_classes,
            "refit=False",
        ),
        (
            FastCalibratedClassifierCV(FastGridSearchCV(LSSVC(), {"alpha": [1]}, criterion="gcv")),
            two_classes,
            "criterion",
        ),
        (
            single(
                FastGridSearchCV(RandomForestClassifier(), {"n_estimators": [2]}, fallback="refit")
            ),
            two_classes,
            "pass a cv",
        ),
        (FastCalibratedClassifierCV(SVC(), method="platt"), two_classes, "method"),
        (FastCalibratedClassifierCV(StandardScaler()), two_classes, "estimator"),
    ],
)
def test_bad_input_is_refused(calibrated, data, words, monkeypatch):
    def work(*args, **kwargs):
        raise AssertionError("work began")

    monkeypatch.setattr("everyfold.functions.cross_val.execute", work)
    monkeypatch.setattr("everyfold.search.base.execute", work)
    with pytest.raises(ValueError, match=words):
        calibrated.fit(*data())


def test_inexact_values_are_told_of():
    X, y = two_classes(60)
    search = FastGridSearchCV(
        KernelLogisticClassifier(), {"C": [0.1, 1.0]}, cv=KFold(3), order=1, n_confirm=0
    )
    with pytest.warns(InexactWarning, match="calibration uses the held-out values of the winner"):
        single(search).fit(X, y)


def test_svc_with_probabilities_is_told_the_way_out():
    X, y = load_breast_cancer(return_X_y=True)
    options = {"scoring": "neg_log_loss", "fallback": "refuse"}
    search = FastGridSearchCV(SVC(probability=True), GRID, **options)
    with pytest.raises(ValueError, match="FastCalibratedClassifierCV"):
        search.fit(X, y)


@parametrize_with_checks([FastCalibratedClassifierCV(LSSVC(), cv=3)])
def test_conventions(estimator, check):
    check(estimator)


# -- thresholds --------------------------------------------------------------------------------


def best_of_all(values, is_second, score, count=100):
    """Every threshold tried in a loop."""
    tried = np.linspace(values.min(), values.max(), count)
    scores = [score(is_second, values >= threshold) for threshold in tried]
    return tried[int(np.argmax(scores))], max(scores)


@pytest.mark.parametrize(
    ("name", "score"), [("balanced_accuracy", balanced_accuracy_score), ("accuracy", None)]
)
def test_threshold_is_the_best_of_a_loop(name, score):
    X, y = two_classes(200, seed=3)
    keep = (y == "no") | (np.arange(len(y)) % 3 == 0)  # one class is three times the other
    X, y = X[keep], y[keep]
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1, 1.0]}, cv=4).fit(X, y)
    values = cross_val_predict(search.best_estimator_, X, y, cv=4, method="decision_function")
    loop = best_of_all(values, y == "yes", score or accuracy_score)
    np.testing.assert_allclose(search.tune_threshold(name), loop, rtol=1e-6)
    threshold, _ = search.tune_threshold(name)
    assert abs(threshold) > 0.05  # the usual threshold, 0, is another one


def test_threshold_for_another_positive_label():
    X, y = two_classes(200, seed=3)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=4).fit(X, y)
    values = cross_val_predict(search.best_estimator_, X, y, cv=4, method="decision_function")
    scorer = make_scorer(f1_score, pos_label="no")
    threshold, score = search.tune_threshold(scorer)
    expected, best = best_of_all(-values, y == "no", f1_score)
    np.testing.assert_allclose((threshold, score), (expected, best), rtol=1e-6)
    fixed = FixedThresholdClassifier(
        FrozenEstimator(search.best_estimator_),
        threshold=threshold,
        pos_label="no",
        response_method="decision_function",
    ).fit(X, y)
    is_no = -search.decision_function(X) >= threshold
    np.testing.assert_array_equal(fixed.predict(X) == "no", is_no)


@pytest.mark.parametrize(
    ("scoring", "remedy"),
    [
        ("f1", "make_scorer(f1_score, average='binary', pos_label='yes')"),
        ("recall", "make_scorer(recall_score, average='binary', pos_label='yes')"),
        (make_scorer(fbeta_score, beta=2), "make_scorer(fbeta_score, beta=2, pos_label='yes')"),
        (make_scorer(f1_score, pos_label="Yes"), "make_scorer(f1_score, pos_label='yes')"),
    ],
)
def test_threshold_says_how_the_positive_label_is_named(scoring, remedy):
    X, y = two_classes(60)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match=re.escape(remedy)) as refusal:
        search.tune_threshold(scoring)
    assert "y has ['no', 'yes']" in str(refusal.value)
    search.tune_threshold(eval(remedy, dict(vars(metrics))))  # the remedy is one
    search.tune_threshold("f1_macro")  # looks at both classes


def test_threshold_of_repeated_folds_pools_every_value():
    X, y = two_classes(120)
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=folds).fit(X, y)
    pooled, labels = [], []
    for train, test in folds.split(X, y):
        fitted = clone(search.best_estimator_).fit(X[train], y[train])
        pooled.append(fitted.decision_function(X[test]))
        labels.append(y[test])
    loop = best_of_all(
        np.concatenate(pooled), np.concatenate(labels) == "yes", balanced_accuracy_score
    )
    np.testing.assert_allclose(search.tune_threshold(), loop, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_threshold_refuses_what_it_cannot_tune():
    X, y = three_classes()
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match="two classes, but y has 3"):
        search.tune_threshold()
    with pytest.raises(ValueError, match="tune_threshold is for classifiers"):
        FastGridSearchCV(LSSVR(), {"alpha": [0.1]}, cv=3).fit(X, y).tune_threshold()
    X, y = two_classes(60)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=3).fit(X, y)
    for scoring in ("roc_auc", "neg_brier_score", lambda estimator, X, y: 1.0):
        with pytest.raises(ValueError, match="does not score predicted labels"):
            search.tune_threshold(scoring)
    search = FastGridSearchCV(LSSVC(), {"alpha": [0.1]}, cv=3, keep_predictions=None).fit(X, y)
    with pytest.raises(ValueError, match="keeps=None"):
        search.tune_threshold()
    grid, lone = {"C": [1.0, 2.0]}, LeaveOneOut()
    signs = FastGridSearchCV(SVC(gamma=0.1), grid, cv=lone, n_confirm=0, order=np.inf).fit(X, y)
    with pytest.raises(ValueError, match="method='exact'"):
        signs.tune_threshold()
    flat = FastGridSearchCV(LSSVC(kernel="linear", fit_intercept=False), {"alpha": [1.0]}, cv=3)
    with pytest.warns(UserWarning, match="every held-out row"):
        flat.fit(np.zeros_like(X), y)
    with pytest.raises(ValueError, match="all held-out values are the same"):
        flat.tune_threshold()
