"""Rows that are the same have the same held-out values, so that ties are ties as in refits."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import average_precision_score, make_scorer, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)
from everyfold.engine.scoring import ties as twins
from everyfold.engine.scoring.ties import first_duplicate

RNG = np.random.default_rng(0)
X = RNG.integers(0, 4, (150, 2)).astype(float)
Y = X[:, 0] + 2.0 * RNG.normal(size=len(X))
LABELS = np.median(Y) < Y
CV = ms.KFold(5, shuffle=True, random_state=0)
GRID = {"alpha": [0.1, 1.0, 100.0]}


def correlation(y, values):
    return spearmanr(y, values).statistic


def refitted(model, y, metric, rows=X):
    """The score of every fold by a loop; the last bits of refits, in which rows differ, are cut."""
    method = "decision_function" if hasattr(model, "decision_function") else "predict"
    scores = []
    for train, test in CV.split(X):
        values = getattr(clone(model).fit(rows[train], y[train]), method)(rows[test])
        scores.append(metric(y[test], np.round(values, 9)))
    return scores


@pytest.mark.parametrize(
    ("scoring", "metric"),
    [("roc_auc", roc_auc_score), ("average_precision", average_precision_score)],
)
@pytest.mark.parametrize("model", [LSSVC(gamma=0.1), RidgeClassifier()], ids=str)
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_ties_of_classifiers(model, scoring, metric, container):
    search = FastGridSearchCV(model, GRID, cv=CV, scoring=scoring).fit(container(X), LABELS)
    for k, alpha in enumerate(GRID["alpha"]):
        expected = refitted(clone(model).set_params(alpha=alpha), LABELS, metric)
        assert_allclose(search.fold_scores(k), expected, rtol=1e-12)


@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), Ridge()], ids=str)
def test_ties_of_regressors(model):
    found = cross_val_score(model, X, Y, cv=CV, scoring=make_scorer(correlation))
    assert_allclose(found, refitted(model, Y, correlation), rtol=1e-12)


def test_predictions_of_the_same_rows_are_the_same():
    K = rbf_kernel(X, gamma=0.1)
    K = K[np.ix_(first_duplicate(X), first_duplicate(X))]  # to the last bit
    for model, rows in (KernelRidge(kernel="rbf"), X), (KernelRidge(kernel="precomputed"), K):
        values = cross_val_predict(model, rows, Y, cv=CV)
        for _, test in CV.split(X):
            firsts = first_duplicate(X[test])
            assert_array_equal(values[test], values[test][firsts])


def test_permutations_have_their_ties():
    orders = [np.random.RandomState(0).permutation(len(X))]
    _, found, _ = permutation_test_score(
        LSSVC(gamma=0.1), X, LABELS, cv=CV, scoring="roc_auc", n_permutations=1, random_state=0
    )
    expected = refitted(LSSVC(gamma=0.1), LABELS[orders[0]], roc_auc_score)
    assert_allclose(found, np.mean(expected), rtol=1e-12)


def test_rows_that_are_the_same_are_found_in_any_form():
    rows = np.array([[0.0, 1.0], [2.0, 0.0], [-0.0, 1.0], [2.0, 1e-300]])
    explicit = sparse.csr_array(
        (np.array([1.0, 2.0, 0.0, 1.0, 2.0, 1e-300]), [1, 0, 0, 1, 0, 1], [0, 1, 2, 4, 6])
    )
    for form in rows, sparse.csr_array(rows), explicit:
        assert_array_equal(first_duplicate(form), [0, 1, 0, 3])
    assert_array_equal(first_duplicate(np.array(["a", "a"], dtype=object)), [0, 1])


@pytest.mark.parametrize("seed", range(20))
def test_equal_rows_are_found_as_by_a_loop(seed, monkeypatch):
    random = np.random.default_rng(seed)
    monkeypatch.setattr(twins, "_BLOCK", int(random.integers(1, 100)))
    rows = random.integers(-1, 2, size=random.integers(1, 60, size=2) // [1, 15] + [0, 1])
    expected = [int(np.argmax((rows == row).all(axis=1))) for row in rows]
    for form in rows, 1e-9 * rows, np.asfortranarray(rows), sparse.coo_array(0.5 * rows):
        assert first_duplicate(form).tolist() == expected


def test_rows_with_the_same_hash_are_compared(monkeypatch):
    monkeypatch.setattr(twins, "_mixed", np.zeros_like)
    rows = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0], [4.0, 5.0]])
    for form in rows, sparse.csr_array(rows):
        assert first_duplicate(form).tolist() == [0, 1, 0, 3]
