"""Who asks for an approximation is told once how far off it may be, and what to pass instead."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    HuberSVC,
    InexactWarning,
    KernelLogisticClassifier,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)

pytestmark = pytest.mark.xdist_group("numba")

X, Y = make_classification(60, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=3)
NUMBERS = np.tanh(X @ np.array([1.0, -0.5, 0.3, 0.2])) + 0.1 * np.sin(7 * X[:, 0])
CS, LONG_PATH = {"C": [0.1, 1.0]}, {"C": np.logspace(-2, 2, 9)}
LOO, MANY = ms.LeaveOneOut(), ms.KFold(30)


def told(call, *args, **options):
    """The words of all warnings about exactness."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **options)
    return [str(w.message) for w in caught if issubclass(w.category, InexactWarning)]


def searched(model, grid, **options):
    """The words of a search."""
    return told(FastGridSearchCV(model, grid, refit=False, **options).fit, X, Y)


APPROXIMATIONS = {
    "step of folds": (SVC(gamma=0.3), CS, {"cv": MANY, "order": np.inf}),
    "step of rows": (SVC(gamma=0.3), CS, {"cv": LOO, "order": np.inf}),
    "step of a smooth loss": (HuberSVC(gamma=0.3), CS, {"cv": LOO, "order": np.inf}),
    "few folds": (KernelLogisticClassifier(gamma=0.3), CS, {"cv": 5, "order": np.inf}),
    "series": (LSSVC(gamma=0.3), {"alpha": [0.1, 1.0]}, {"cv": 5, "order": 1}),
    "series of a kink": (SVC(gamma=0.3), CS, {"cv": 5, "order": 2}),
    "screen": (SVC(gamma=0.3), LONG_PATH, {"cv": 5, "order": "screen"}),
    "screen of many folds": (SVC(gamma=0.3), LONG_PATH, {"cv": MANY, "order": "screen"}),
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_a_search_says_once_what_was_approximated(name):
    model, grid, options = APPROXIMATIONS[name]
    (words,) = searched(model, grid, **options)
    assert "are an approximation" in words
    assert "method='auto'" in words
    assert re.search(r"up to \d", words)
    assert not searched(model, grid, cv=options["cv"])


@pytest.mark.parametrize("name", [name for name in APPROXIMATIONS if "screen" not in name])
def test_functions_say_it_once(name):
    model, _, options = APPROXIMATIONS[name]
    calls = [
        (cross_val_score, {}),
        (permutation_test_score, {"n_permutations": 3}),
        (cross_val_predict, {}),
    ]
    for call, more in calls:
        (words,) = told(call, model, X, Y, **options, **more)
        assert "method='auto'" in words


def test_a_series_says_its_spectral_radius_and_not_that_it_is_accurate():
    model = LSSVC(gamma=3.0, alpha=1e-3)
    (words,) = told(cross_val_predict, model, X, Y, cv=LOO, order=1)
    assert "under-estimate errors where the spectral radius" in words
    radius = float(re.search(r"up to ([\d.]+) here", words).group(1))
    assert 0.9 < radius <= 1.0
    assert "accurate" not in words
    series = cross_val_score
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = series(model, X, Y, cv=LOO, order=1).mean(), series(model, X, Y, cv=LOO).mean()
    assert found[0] > found[1] + 0.1  # it is near the training error


def test_a_near_identity_is_part_of_the_same_warning():
    far = 100.0 * np.arange(20.0)[:, None]
    (words,) = told(cross_val_score, LSSVC(gamma=1.0), far, np.arange(20) % 2, cv=4, order=2)
    assert "is near the identity" in words


@pytest.mark.parametrize("order", [np.inf, 2])
@pytest.mark.parametrize("cv", [ms.KFold(25), LOO], ids=["folds", "rows"])
def test_steps_of_svr_do_not_depend_on_the_unit_of_y(order, cv):
    found = []
    for unit in (1.0, 1e3, 1e-3):
        model = SVR(C=10.0 * unit, epsilon=0.1 * unit, tol=1e-6 * unit, gamma=0.3)
        with pytest.warns(InexactWarning, match="standard deviations of y"):
            found.append(cross_val_predict(model, X, unit * NUMBERS, cv=cv, order=order) / unit)
    assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3)
    assert_allclose(found[2], found[0], rtol=1e-3, atol=1e-3)
    if order == np.inf:
        exact = cross_val_predict(SVR(C=10.0, gamma=0.3), X, NUMBERS, cv=cv)
        assert np.abs(found[0] - exact).mean() < 0.1


def test_a_long_exact_search_names_the_option_that_approximates():
    rows = np.random.default_rng(0).normal(size=(2500, 3))
    labels = (rows[:, 0] > 0).astype(int)
    grid = {"C": np.logspace(-2, 2, 10)}
    model = KernelLogisticClassifier(gamma=0.3)
    many = FastGridSearchCV(
        model, grid, cv=LOO, ridge_scaling="mean"
    )  # each fold has its own ridge
    long = many.plan(rows, labels)
    assert "method='fast' should take about" in str(long)
    assert "mean accuracies differed by up to" in str(long)
    short = FastGridSearchCV(model, grid, cv=5).plan(X, Y)
    assert "inf" not in str(short)
