"""permutation_test_score against scikit-learn's."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_regression
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import LSSVC, LSSVR, KernelClassifier, permutation_test_score

X, Y = make_regression(n_samples=48, n_features=4, n_targets=2, noise=20.0, random_state=0)
X, y = X / 2.0, Y[:, 0] / 50.0
LABELS = np.where(y > np.median(y), "yes", "no")
GROUPS = np.arange(48) % 6
IRIS, KINDS = load_iris(return_X_y=True)
IRIS, KINDS = IRIS[::3], KINDS[::3]

SPLITTERS = [
    None,
    4,
    ms.KFold(3, shuffle=True, random_state=0),
    ms.KFold(3, shuffle=True, random_state=np.random.RandomState(0)),
    ms.GroupKFold(3),
    ms.RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    ms.ShuffleSplit(3, test_size=0.3, random_state=0),
    ms.TimeSeriesSplit(3),
    list(ms.KFold(5).split(X)),
]


def compare(model, X, target, tolerance=1e-8, n_permutations=3, **arguments):
    cv = arguments.pop("cv", None)
    found = []
    for function in (permutation_test_score, ms.permutation_test_score):
        if isinstance(getattr(cv, "random_state", None), np.random.RandomState):
            cv.random_state = np.random.RandomState(0)
        found.append(function(model, X, target, cv=cv, n_permutations=n_permutations, **arguments))
    for ours, theirs in zip(*found, strict=True):
        assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    return found[0]


@pytest.mark.parametrize("scoring", [None, "neg_max_error"])
@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
@pytest.mark.parametrize(
    "model",
    [
        KernelRidge(alpha=0.1, kernel="rbf", gamma=0.3),
        LSSVR(alpha=0.1, gamma="scale"),
        make_pipeline(StandardScaler(), Ridge(alpha=0.7)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_numbers(model, cv, scoring):
    groups = GROUPS if isinstance(cv, ms.GroupKFold) else None
    compare(model, X, y, cv=cv, scoring=scoring, groups=groups)


@pytest.mark.parametrize("scoring", [None, "f1_macro"])
@pytest.mark.parametrize("cv", [3, ms.KFold(4, shuffle=True, random_state=1)], ids=str)
@pytest.mark.parametrize(
    "model",
    [
        LSSVC(gamma=0.2),
        RidgeClassifier(),
        KernelClassifier(gamma=0.2, class_weight="balanced"),
        SVC(gamma=0.3, tol=1e-6),
        make_pipeline(StandardScaler(), SVC(tol=1e-6)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_labels(model, cv, scoring):
    """Stratified folds differ from one permutation to the next."""
    compare(model, IRIS, KINDS, cv=cv, scoring=scoring)


def test_two_classes_by_a_ranking():
    compare(LSSVC(gamma=0.2), X, LABELS, cv=ms.StratifiedKFold(3), scoring="roc_auc")


@pytest.mark.parametrize(
    "model", [SVR(gamma=0.2, tol=1e-8), LogisticRegression(tol=1e-10)], ids=str
)
def test_other_losses(model):
    target = LABELS if isinstance(model, LogisticRegression) else y
    compare(model, X, target, 1e-4, cv=3)


def test_several_targets():
    compare(KernelRidge(alpha=0.1, kernel="rbf"), X, Y, cv=4)


@pytest.mark.parametrize("model", [Ridge(), LSSVC(gamma=0.2)], ids=str)
def test_weights_and_groups(model):
    """Weights stay with their rows; labels move within their groups."""
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    weights[::7] = 0.0
    target = LABELS if isinstance(model, LSSVC) else y
    compare(model, X, target, params={"sample_weight": weights}, cv=4, random_state=7)
    compare(model, X, target, groups=GROUPS, cv=ms.GroupKFold(3), random_state=7)


def test_steps_that_look_at_y():
    compare(make_pipeline(SelectKBest(f_classif, k=2), LSSVC(gamma=0.2)), IRIS, KINDS, cv=3)


def test_a_class_that_some_permutations_lack():
    """Rare labels are absent from the training rows of some folds, and of other folds permuted."""
    target = np.repeat([0, 1, 2], [22, 23, 3])
    compare(RidgeClassifier(), X, target, cv=ms.KFold(16))


def test_many_permutations_are_cut(monkeypatch):
    monkeypatch.setattr("everyfold.engine.reading.permutations._MOST_VALUES", 150)
    compare(KernelRidge(alpha=0.1, kernel="rbf"), X, y, cv=4)
    compare(LSSVC(gamma=0.2), X, LABELS, cv=4)


def test_one_factorisation_serves_all_permutations(monkeypatch):
    from everyfold.operators import DenseMatrix

    calls = []
    respond_path = DenseMatrix.respond_path

    def counted(self, quadratic, *args):
        calls.append(quadratic.z.shape[1])
        return respond_path(self, quadratic, *args)

    monkeypatch.setattr(DenseMatrix, "respond_path", counted)
    for model, target in ((LSSVR(gamma=0.2), y), (LSSVC(gamma=0.2), LABELS)):
        permutation_test_score(model, X, target, cv=10, n_permutations=40)
    assert calls == [41, 41]


@pytest.mark.parametrize("cv", [4, ms.KFold(4)])
def test_folds_that_do_not_look_at_y_are_made_once(cv, monkeypatch):
    made, split = [], ms.KFold.split
    monkeypatch.setattr(ms.KFold, "split", lambda *args: made.append(cv) or split(*args))
    X, y = make_regression(40, 3, random_state=0)
    permutation_test_score(Ridge(), X, y, cv=cv, n_permutations=20)
    assert len(made) == 1


def test_what_fails_is_raised():
    target = np.where(np.arange(48) < 24, "no", "yes")
    halves = [(np.arange(24), np.arange(24, 48)), (np.arange(24, 48), np.arange(24))]
    with pytest.raises(ValueError, match="one class"):
        permutation_test_score(LSSVC(), X, target, cv=halves, n_permutations=2)
