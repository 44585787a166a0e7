"""More than twenty folds have the scores of refits, whatever the loss and the splitter."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    InexactWarning,
    KernelLogisticClassifier,
    QuadraticSVR,
)

pytestmark = pytest.mark.xdist_group("numba")

CANCER, IS_BENIGN = load_breast_cancer(return_X_y=True)
ROWS = np.random.default_rng(0).permutation(len(CANCER))[:120]
RAW, IS_BENIGN = CANCER[ROWS], IS_BENIGN[ROWS]
CANCER = StandardScaler().fit_transform(RAW)
FLOWERS, KINDS = load_iris(return_X_y=True)
SUGAR, PROGRESS = load_diabetes(return_X_y=True)
SUGAR, PROGRESS = StandardScaler().fit_transform(SUGAR)[:100], PROGRESS[:100] / 50.0
GROUPS = np.arange(120) % 25

CS = {"C": [0.1, 1.0, 10.0, 100.0]}
SPLITTERS = {
    "5x5": ms.RepeatedKFold(n_splits=5, n_repeats=5, random_state=0),
    "stratified 10x3": ms.RepeatedStratifiedKFold(n_splits=10, n_repeats=3, random_state=0),
    "shuffle": ms.ShuffleSplit(30, test_size=0.2, random_state=0),
    "groups": ms.LeaveOneGroupOut(),
    "pairs": ms.KFold(60),
    "loo": ms.LeaveOneOut(),
}


def search(kind, model, grid, X, y, cv, **options):
    """Fit without a word about exactness; groups are there for those who ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InexactWarning)
        made = kind(model, grid, cv=cv, refit=False, **options)
        groups = GROUPS[: len(y)] if isinstance(cv, ms.LeaveOneGroupOut) else None
        return made.fit(X, y, groups=groups).cv_results_


def compare(model, grid, X, y, cv, atol, **options):
    """The table of means against that of scikit-learn."""
    ours = search(FastGridSearchCV, model, grid, X, y, cv, **options)
    theirs = search(ms.GridSearchCV, model, grid, X, y, cv, **options)
    assert ours["is_exact"].all()
    assert_allclose(ours["mean_test_score"], theirs["mean_test_score"], atol=atol, rtol=0.0)


@pytest.mark.parametrize("name", SPLITTERS)
def test_linear_svc(name):
    compare(SVC(kernel="linear"), CS, CANCER, IS_BENIGN, SPLITTERS[name], 1e-3)


@pytest.mark.parametrize("name", SPLITTERS)
def test_rbf_svc_of_three_classes(name):
    some = slice(None, None, 2)
    compare(SVC(gamma=0.3), CS, FLOWERS[some], KINDS[some], SPLITTERS[name], 1e-3)


@pytest.mark.parametrize("name", [name for name in SPLITTERS if "stratified" not in name])
def test_svr(name):
    options = {"scoring": "neg_mean_absolute_error"}
    compare(SVR(gamma=0.05), CS, SUGAR, PROGRESS, SPLITTERS[name], 1e-3, **options)


@pytest.mark.parametrize("name", ["5x5", "shuffle", "groups"])
def test_scaled_svc(name):
    grid = {"svc__C": CS["C"]}
    model = make_pipeline(StandardScaler(), SVC(gamma=0.03))
    compare(model, grid, RAW, IS_BENIGN, SPLITTERS[name], 1e-3)


@pytest.mark.parametrize("name", ["5x5", "loo"])
@pytest.mark.parametrize(
    "model", [HuberSVC(gamma=0.03), KernelLogisticClassifier(gamma=0.03)], ids=str
)
def test_smooth_losses(name, model):
    some = slice(None, 60)
    grid = {"C": [0.1, 10.0]}
    compare(model, grid, CANCER[some], IS_BENIGN[some], SPLITTERS[name], 1e-9)


def test_smooth_losses_of_numbers():
    options = {"scoring": "neg_mean_squared_error"}
    grid = {"C": [0.1, 10.0]}
    compare(QuadraticSVR(gamma=0.05), grid, SUGAR, PROGRESS, SPLITTERS["shuffle"], 1e-7, **options)
