"""learning_curve and validation_curve against scikit-learn's."""

import matplotlib as mpl
import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    LSSVR,
    KernelLogisticClassifier,
    learning_curve,
    streams,
    validation_curve,
)

mpl.use("Agg")

X, y = make_regression(n_samples=60, n_features=4, noise=10.0, random_state=0)
X, y = X / 2.0, y / 50.0
GROUPS = np.arange(60) % 6
IRIS, KINDS = load_iris(return_X_y=True)
MIXED = np.random.default_rng(0).permutation(150)
IRIS, KINDS = IRIS[MIXED], KINDS[MIXED]
WEIGHTS = np.random.default_rng(0).uniform(0.2, 2.0, 60)

SPLITTERS = [
    None,
    ms.KFold(3, shuffle=True, random_state=0),
    ms.GroupKFold(3),
    ms.ShuffleSplit(3, test_size=0.3, random_state=0),
    ms.TimeSeriesSplit(3),
]
REGRESSORS = [
    KernelRidge(alpha=0.1, kernel="rbf", gamma=0.3),
    LSSVR(alpha=0.1, gamma="scale"),
    make_pipeline(StandardScaler(), Ridge(alpha=0.7)),
    SVR(gamma=0.2, C=2.0, tol=1e-8),
]
CLASSIFIERS = [
    LSSVC(gamma=0.2),
    SVC(tol=1e-6),
    KernelLogisticClassifier(gamma=0.1),
    make_pipeline(SelectKBest(f_classif, k=2), LSSVC(gamma=0.2)),
]


def name(value):
    return type(value).__name__


def compare(ours, theirs, tolerance=1e-7):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


def tolerance(model):
    return 1e-4 if isinstance(model, SVR) else 1e-6


@pytest.mark.parametrize("scoring", [None, "neg_max_error"])
@pytest.mark.parametrize("cv", SPLITTERS, ids=name)
@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_learning_curves_of_regressors(model, cv, scoring):
    groups = GROUPS if isinstance(cv, ms.GroupKFold) else None
    shares = [0.5, 1.0] if isinstance(cv, ms.TimeSeriesSplit) else [0.2, 0.6, 1.0]
    arguments = {"cv": cv, "scoring": scoring, "groups": groups, "train_sizes": shares}
    theirs = ms.learning_curve(model, X, y, **arguments)
    compare(learning_curve(model, X, y, **arguments), theirs, tolerance(model))


@pytest.mark.parametrize("cv", [3, ms.ShuffleSplit(3, random_state=0)], ids=name)
@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_learning_curves_of_classifiers(model, cv):
    arguments = {"cv": cv, "train_sizes": [20, 40, 95], "shuffle": True, "random_state": 3}
    theirs = ms.learning_curve(model, IRIS, KINDS, **arguments)
    compare(learning_curve(model, IRIS, KINDS, **arguments), theirs, 1e-6)


def test_more_folds_and_sizes_than_twenty():
    """What is done once or by a step for many folds of one model is none of that here."""
    model = make_pipeline(StandardScaler(), KernelLogisticClassifier(gamma=0.1))
    arguments = {"cv": 5, "train_sizes": np.linspace(0.2, 1.0, 6)}
    theirs = ms.learning_curve(model, IRIS, KINDS, **arguments)
    compare(learning_curve(model, IRIS, KINDS, **arguments), theirs, 1e-6)


def test_weights_and_times():
    arguments = {"cv": 3, "params": {"sample_weight": WEIGHTS}, "return_times": True}
    ours, theirs = (f(Ridge(), X, y, **arguments) for f in (learning_curve, ms.learning_curve))
    compare(ours[:3], theirs[:3])
    assert [times.shape for times in ours[3:]] == [times.shape for times in theirs[3:]]


def test_a_training_set_that_fails():
    """The first rows have one class only."""
    order = np.argsort(KINDS, kind="stable")
    arguments = {"cv": ms.KFold(3), "train_sizes": [30, 100], "error_score": -2.0}
    with pytest.warns(FitFailedWarning, match="3 fits failed out of a total of 6"):
        ours = learning_curve(SVC(), IRIS[order], KINDS[order], **arguments)
    with pytest.warns(FitFailedWarning):
        theirs = ms.learning_curve(SVC(), IRIS[order], KINDS[order], **arguments)
    compare(ours, theirs)


def test_sizes_are_read_as_scikit_learn_does():
    with pytest.raises(ValueError, match="must be within"):
        learning_curve(Ridge(), X, y, train_sizes=[0.5, 1.5])
    with pytest.warns(RuntimeWarning, match="duplicate"):
        sizes = learning_curve(Ridge(), X, y, train_sizes=[0.5, 0.5, 1.0])[0]
    assert_array_equal(sizes, [24, 48])
    with pytest.raises(ValueError, match="partial_fit"):
        learning_curve(Ridge(), X, y, exploit_incremental_learning=True)


@pytest.mark.parametrize("cv", SPLITTERS, ids=name)
@pytest.mark.parametrize(
    ("model", "parameter", "values"),
    [
        (REGRESSORS[0], "alpha", [0.01, 0.1, 1.0]),
        (REGRESSORS[0], "gamma", np.array([0.1, 0.5])),
        (REGRESSORS[2], "ridge__alpha", [0.1, 1.0]),
        (REGRESSORS[3], "C", [0.5, 5.0]),
    ],
    ids=str,
)
def test_validation_curves_of_regressors(model, parameter, values, cv):
    groups = GROUPS if isinstance(cv, ms.GroupKFold) else None
    arguments = {"param_name": parameter, "param_range": values, "cv": cv, "groups": groups}
    theirs = ms.validation_curve(model, X, y, **arguments)
    compare(validation_curve(model, X, y, **arguments), theirs, tolerance(model))


@pytest.mark.parametrize("scoring", [None, "f1_macro"])
def test_validation_curves_of_classifiers(scoring):
    arguments = {"cv": 3, "scoring": scoring}
    for model, parameter, values in (
        (SVC(tol=1e-6), "gamma", [0.01, "scale", 1.0]),
        (SVC(tol=1e-6), "kernel", ["rbf", "linear"]),
        (LSSVC(gamma=0.1), "alpha", [0.1, 1.0]),
    ):
        arguments |= {"param_name": parameter, "param_range": values}
        theirs = ms.validation_curve(model, IRIS, KINDS, **arguments)
        compare(validation_curve(model, IRIS, KINDS, **arguments), theirs, 1e-6)


def test_values_that_no_fit_takes():
    arguments = {"param_name": "alpha", "param_range": [-1.0, 1.0], "cv": 3, "error_score": -3.0}
    ours = validation_curve(Ridge(), X, y, **arguments)
    compare(ours, ms.validation_curve(Ridge(), X, y, **arguments))
    assert_array_equal(ours[1][0], -3.0)
    with pytest.raises(ValueError, match="alpha"):
        validation_curve(Ridge(), X, y, **{**arguments, "error_score": "raise"})


def test_displays(monkeypatch):
    """scikit-learn's pictures take the numbers, and the functions where it calls its own."""
    model = KernelRidge(kernel="rbf")
    sizes, train, test = learning_curve(model, X, y, cv=3)
    display = ms.LearningCurveDisplay(train_sizes=sizes, train_scores=train, test_scores=test)
    assert_allclose(display.plot().lines_[1].get_ydata(), test.mean(axis=1))
    alphas = np.array([0.1, 1.0, 10.0])
    train, test = validation_curve(model, X, y, param_name="alpha", param_range=alphas)
    display = ms.ValidationCurveDisplay(
        param_name="alpha", param_range=alphas, train_scores=train, test_scores=test
    )
    assert_allclose(display.plot().lines_[1].get_ydata(), test.mean(axis=1))
    monkeypatch.setattr("sklearn.model_selection._plot.learning_curve", learning_curve)
    monkeypatch.setattr("sklearn.model_selection._plot.validation_curve", validation_curve)
    drawn = ms.LearningCurveDisplay.from_estimator(model, X, y, cv=3)
    assert_array_equal(drawn.train_sizes, sizes)
    drawn = ms.ValidationCurveDisplay.from_estimator(
        model, X, y, param_name="alpha", param_range=alphas
    )
    assert_array_equal(drawn.test_scores, test)


def test_sources_have_no_curves():
    with pytest.raises(ValueError, match="read in blocks"):
        learning_curve(Ridge(), streams.ArrayRows(X, y), None)
