"""Several kernels with weights of their own, against explicit sums of kernels and refits."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, ShuffleSplit

from everyfold import KernelRidgeClassifierCV, KernelRidgeCV
from everyfold.folds import Folds
from everyfold.gradient.descent import HeldOutError
from everyfold.kernel_ridge.bands import BandMatrix
from everyfold.losses import Squared
from everyfold.solvers import Problem

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 12))
Y = np.column_stack([X[:, :4] @ RANDOM.normal(size=4), X[:, 4:8] @ RANDOM.normal(size=4)])
Y = np.column_stack([Y, Y.sum(axis=1), RANDOM.normal(size=60)]) + 5.0
Y += 0.3 * RANDOM.normal(size=Y.shape)
BANDS = [("linear", slice(0, 4)), ("linear", [4, 5, 6, 7]), ("rbf", np.arange(12) >= 8)]
CV = KFold(4, shuffle=True, random_state=0)
ALPHAS = [0.01, 0.1, 1.0, 10.0]


def banded(**given):
    return KernelRidgeCV(**{"alphas": ALPHAS, "kernel": BANDS, "gamma": 0.2, "cv": CV} | given)


def explicit(weights, X=X, other=X):
    own = linear_kernel(X[:, :4], other[:, :4]), linear_kernel(X[:, 4:8], other[:, 4:8])
    return np.tensordot(weights, [*own, rbf_kernel(X[:, 8:], other[:, 8:], 0.2)], axes=1)


def by_refits(weights, alpha, y, splits, intercept, sample_weight=None):
    """Held-out values and their scores, by KernelRidge on an explicit sum of kernels."""
    K, w = explicit(weights), np.ones(len(y)) if sample_weight is None else sample_weight
    values, scores = np.full(len(y), np.nan), []
    for train, test in splits:
        if intercept:  # an unpenalised constant: the limit of a large constant in the kernel
            A = K[np.ix_(train, train)] + np.diag(alpha / w[train])
            system = np.block([[A, np.ones((len(train), 1))], [np.ones(len(train)), np.zeros(1)]])
            solved = np.linalg.solve(system, np.append(y[train], 0.0))
            values[test] = K[np.ix_(test, train)] @ solved[:-1] + solved[-1]
        else:
            model = KernelRidge(alpha=alpha, kernel="precomputed")
            model.fit(K[np.ix_(train, train)], y[train], sample_weight=w[train])
            values[test] = model.predict(K[np.ix_(test, train)])
        scores.append(r2_score(y[test], values[test]) if len(test) > 1 else np.nan)
    return values, np.mean(scores)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("search", ["gradient", 6])
@pytest.mark.parametrize("groups", [None, "each", ["a", "b", "a", "b"]], ids=str)
def test_scores_and_models_are_those_of_explicit_sums(search, groups, intercept):
    model = banded(
        alpha_per_target=True,
        band_search=search,
        target_groups=groups,
        fit_intercept=intercept,
        random_state=0,
    ).fit(X, Y)
    new = RANDOM.normal(size=(5, 12))
    predicted = model.predict(new)
    for j in range(4):
        weights, alpha = model.band_weights_[:, j], model.alpha_[j]
        _, score = by_refits(weights, alpha, Y[:, j], CV.split(X), intercept)
        assert_allclose(model.best_score_[j], score, atol=1e-8)
        others = [by_refits(weights, a, Y[:, j], CV.split(X), intercept)[1] for a in ALPHAS]
        assert model.best_score_[j] == pytest.approx(max(others))
        if not intercept:
            whole = KernelRidge(alpha=alpha, kernel="precomputed").fit(explicit(weights), Y[:, j])
            assert_allclose(predicted[:, j], whole.predict(explicit(weights, new)), atol=1e-8)
    distinct = len(np.unique(model.band_weights_, axis=1).T)
    assert distinct <= (1 if groups is None else len(set(groups)))


def test_a_model_with_an_intercept_by_its_equations():
    model = banded(random_state=0).fit(X, Y[:, 0])
    weights = model.band_weights_[:, 0]
    A = explicit(weights) + model.alpha_ * np.eye(60)
    system = np.block([[A, np.ones((60, 1))], [np.ones(60), np.zeros(1)]])
    solved = np.linalg.solve(system, np.append(Y[:, 0], 0.0))
    new = RANDOM.normal(size=(5, 12))
    expected = explicit(weights, new) @ solved[:-1] + solved[-1]
    assert_allclose(model.predict(new), expected, atol=1e-8)
    assert model.dual_coef_.shape == (60,)
    assert isinstance(model.alpha_, float)


@pytest.mark.parametrize("cv", [CV, LeaveOneOut(), KFold(7)])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_gradient_in_the_weights_is_that_of_differences(cv, intercept):
    K = np.stack([explicit(unit) for unit in np.eye(3)])
    w = RANDOM.uniform(0.5, 2.0, 60)
    problem = Problem(Y, w, Squared(), intercept=intercept)
    error = HeldOutError(problem, Folds.from_splits(cv.split(X), 60))
    z = np.log([0.2, 0.5, 0.3])
    slopes = error.evaluate(BandMatrix(K, np.exp(z)), 0.3)
    step = 1e-5 * np.eye(3)
    differences = [
        error.evaluate(BandMatrix(K, np.exp(z + s)), 0.3).value
        - error.evaluate(BandMatrix(K, np.exp(z - s)), 0.3).value
        for s in step
    ]
    assert_allclose(slopes.log_gamma, np.array(differences) / 2e-5, rtol=1e-6, atol=1e-9)


def test_the_descent_ends_at_an_optimum_and_finds_the_bands():
    model = banded(alphas="tune", target_groups="each").fit(X, Y)
    sizes = [np.mean(np.diag(explicit(unit))) for unit in np.eye(3)]
    shares = model.band_weights_ * np.array(sizes)[:, None]
    assert shares[0, 0] > 0.9
    assert shares[1, 1] > 0.9
    assert shares[2].max() < 0.1 or shares[2, 3] == shares[2].max()
    draws = banded(alphas="tune", target_groups="each", band_search=20, random_state=0).fit(X, Y)
    assert (model.best_score_[:3] >= draws.best_score_[:3] - 1e-3).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("cv", [CV, None])
def test_what_bands_explain_adds_up_to_the_held_out_variance(cv, intercept, weighted):
    w = np.random.default_rng(1).uniform(0.5, 2.0, 60) if weighted else None
    model = banded(cv=cv, fit_intercept=intercept, alphas=[0.5]).fit(X, Y, sample_weight=w)
    splits = list((cv or LeaveOneOut()).split(X))
    own = np.ones(60) if w is None else w
    for j in range(4):
        values, _ = by_refits(model.band_weights_[:, j], 0.5, Y[:, j], splits, intercept, w)
        level = np.zeros(60)
        for train, test in splits if intercept else ():
            level[test] = np.average(Y[train, j], weights=own[train])
        share = 1.0 - own @ (Y[:, j] - values) ** 2 / (own @ (Y[:, j] - level) ** 2)
        assert_allclose(model.explained_by_band_[:, j].sum(), share, atol=1e-8)
    if intercept:
        assert model.explained_by_band_[0, 0] > 0.8
        assert abs(model.explained_by_band_[1, 0]) < 0.2


def test_more_targets_than_rows_share_the_same_weights():
    many = Y[:, :2] @ RANDOM.normal(size=(2, 150)) + RANDOM.normal(size=(60, 150))
    model = banded(alpha_per_target=True).fit(X, many)
    assert len(np.unique(model.band_weights_, axis=1).T) == 1
    _, score = by_refits(model.band_weights_[:, 7], model.alpha_[7], many[:, 7], CV.split(X), True)
    assert_allclose(model.best_score_[7], score, atol=1e-8)
    assert model.predict(X).shape == (60, 150)


def test_names_sparse_rows_groups_and_scorers():
    names = [f"x{k}" for k in range(12)]
    named = [("linear", names[:4]), ("linear", names[4:8]), ("rbf", names[8:])]
    expected = banded(random_state=0).fit(X, Y)
    frame = banded(kernel=named, random_state=0).fit(pd.DataFrame(X, columns=names), Y)
    assert_allclose(frame.band_weights_, expected.band_weights_)
    few = banded(random_state=0).fit(sparse.csr_matrix(X), Y)
    assert_allclose(few.predict(sparse.csr_matrix(X)), expected.predict(X), atol=1e-8)
    groups = np.arange(60) // 4
    grouped = banded(cv=GroupKFold(3), scoring="neg_median_absolute_error", band_search=3)
    grouped.fit(X, Y[:, 0], groups=groups)
    assert grouped.best_score_ < 0.0
    overlapping = banded(cv=ShuffleSplit(3, random_state=0)).fit(X, Y[:, 0])
    assert np.isfinite(overlapping.best_score_)


def test_tuned_gamma_and_robust_columns():
    model = banded(gamma="tune", alphas="tune", scale="robust", cv=None).fit(X, Y[:, 2])
    assert model.gamma_[0] is None
    assert model.gamma_[2] > 0.0
    assert model.best_score_ < 0.0  # the squared error of leave-one-out
    assert clone(model).kernel[2][0] == "rbf"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kernel": [("linear", [99])]}, "but X has 12"),
        ({"kernel": [("linear", ["a"])]}, "a band has the columns \\['a'\\]"),
        ({"kernel": [("linear", [])]}, "a band has no columns|has the columns"),
        ({"kernel": ["linear", "rbf"]}, "a list of pairs"),
        ({"kernel": [("precomputed", [1])]}, "not allowed in a band"),
        ({"band_search": 0}, "use 'gradient' or a number"),
        ({"target_groups": [1, 2]}, "one entry for each of the 4 targets"),
        ({"target_groups": "all"}, "use None, 'each' or an array"),
        ({"operator": "nystrom"}, "is not for several kernels"),
        ({"gamma": [0.1, 1.0]}, "is not for several kernels"),
        ({"cv": [(np.arange(60), np.arange(5))]}, "folds that leave rows out"),
        ({"alphas": [0.0], "kernel": [("linear", [0, 1])]}, "use larger alphas"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        banded(**given).fit(X, Y)


def test_labels_and_weights_of_zero_are_refused():
    with pytest.raises(ValueError, match="several kernels are for numbers"):
        KernelRidgeClassifierCV(kernel=BANDS).fit(X, np.arange(60) % 2)
    with pytest.raises(ValueError, match="no sample_weight of 0"):
        banded().fit(X, Y, sample_weight=np.arange(60.0))
