"""Permutations of blocks, sign flips and several times or scorers, against loops."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.model_selection import cross_val_score as refitted
from sklearn.svm import SVR

from everyfold import LSSVC, permutation_test_score

pytestmark = pytest.mark.filterwarnings("ignore::everyfold.UnsupportedWarning")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 4))
Y = X[:, 0] + RNG.normal(size=60)
GROUPS = np.repeat(np.arange(15), 4)
TIMES = RNG.normal(size=(60, 4, 7))
TIMES[:, 0, 3] += Y


def largest(scores, null):
    return (1.0 + (null.max(axis=1)[:, None] >= scores).sum(axis=0)) / (len(null) + 1.0)


def test_times_are_tests_on_the_same_permutations():
    found = permutation_test_score(Ridge(), TIMES, Y, n_permutations=30, random_state=1)
    for t in range(7):
        alone = permutation_test_score(
            Ridge(), TIMES[:, :, t], Y, n_permutations=30, random_state=1
        )
        np.testing.assert_allclose(found[0][t], alone[0])
        np.testing.assert_allclose(found[1][:, t], alone[1])
    np.testing.assert_allclose(found[2], largest(found[0], found[1]))
    assert np.argmax(found[0]) == 3
    assert found[2][3] == 1 / 31
    alone = permutation_test_score(Ridge(), TIMES, Y, n_permutations=30, max_statistic=False)
    assert (alone[2] <= found[2]).mean() > 0.8


def test_times_of_classifiers():
    labels = Y > 0.0
    found = permutation_test_score(
        LSSVC(), TIMES, labels, cv=KFold(4), scoring="roc_auc", n_permutations=20
    )
    assert found[1].shape == (20, 7)
    score = refitted(LSSVC(), TIMES[:, :, 3], labels, cv=KFold(4), scoring="roc_auc").mean()
    np.testing.assert_allclose(found[0][3], score)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("cv", [KFold(4), 4])  # folds in common, and stratified ones of their own
@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "roc_auc", "f1"])
@pytest.mark.parametrize("labels", [Y > 0.0, np.digitize(Y, [-0.7, 0.7])])
def test_permuted_labels_are_scored_together_as_one_by_one(cv, scoring, labels):
    if len(np.unique(labels)) > 2 and scoring in ("roc_auc", "f1"):
        scoring = "f1_macro"
    count = 260 if scoring == "roc_auc" else 5  # so many folds that areas are computed here
    found = permutation_test_score(
        LSSVC(gamma=0.2), X, labels, cv=cv, scoring=scoring, n_permutations=count, random_state=3
    )
    random = np.random.RandomState(3)
    for i in range(3):
        y = labels[random.permutation(60)]
        scores = refitted(LSSVC(gamma=0.2), X, y, cv=cv, scoring=scoring)
        np.testing.assert_allclose(found[1][i], scores.mean())


def test_several_scorers_are_standardised():
    scoring = ["r2", "neg_mean_absolute_error"]
    found = permutation_test_score(Ridge(), X, Y, scoring=scoring, n_permutations=40)
    assert found[0].shape == found[2].shape == (2,)
    both = np.vstack([found[0], found[1]])
    both = (both - both.mean(axis=0)) / both.std(axis=0)
    np.testing.assert_allclose(found[2], largest(both[0], both[1:]))
    both = permutation_test_score(Ridge(), TIMES, Y, scoring=scoring, n_permutations=10)
    assert both[1].shape == (10, 7, 2)


def test_false_discoveries_are_bounded():
    """Of 20 times of noise, the smallest p-value is below 0.2 in a fifth of all cases."""
    rng, few = np.random.default_rng(0), 0
    for seed in range(60):
        noise = rng.normal(size=(30, 3, 20))
        found = permutation_test_score(
            Ridge(), noise, rng.normal(size=30), cv=3, n_permutations=19, random_state=seed
        )
        few += found[2].min() <= 0.2
    assert 4 <= few <= 21  # 12 of 60 expected


@pytest.mark.parametrize(
    "model", [KernelRidge(alpha=0.5), RandomForestRegressor(3, random_state=0)]
)
def test_whole_groups_are_exchanged(model):
    cv = GroupKFold(3)
    asked = {"groups": GROUPS, "cv": cv, "exchange": "whole"}
    score, null, pvalue = permutation_test_score(model, X, Y, n_permutations=6, **asked)
    random, members = np.random.RandomState(0), np.arange(60).reshape(15, 4)
    loop = [
        refitted(model, X, Y[members[random.permutation(15)].ravel()], cv=cv, groups=GROUPS).mean()
        for _ in range(6)
    ]
    np.testing.assert_allclose(null, loop, rtol=1e-7)
    np.testing.assert_allclose(score, refitted(model, X, Y, cv=cv, groups=GROUPS).mean())
    assert pvalue == (1 + np.sum(np.array(loop) >= score)) / 7


def test_groups_of_any_size_where_y_is_constant():
    sizes = np.repeat(np.arange(9), [3, 4, 5, 6, 7, 8, 9, 10, 8])
    labels = np.arange(9)[sizes] % 2
    _, null, _ = permutation_test_score(
        LSSVC(), X, labels, groups=sizes, cv=GroupKFold(3), exchange="whole", n_permutations=20
    )
    assert len(np.unique(null.round(10))) > 5
    with pytest.raises(ValueError, match="same number of rows"):
        permutation_test_score(
            Ridge(), X[:6], Y[:6], groups=[0, 1, 1, 2, 2, 2], cv=2, exchange="whole"
        )


@pytest.mark.parametrize("model", [Ridge(), SVR(), RandomForestRegressor(3, random_state=0)])
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error", "neg_median_absolute_error"])
def test_signs_are_flipped(model, scoring):
    found = permutation_test_score(
        model, X, Y, scoring=scoring, cv=4, exchange="signs", n_permutations=4, groups=GROUPS
    )
    random = np.random.RandomState(0)
    signs = 2.0 * random.randint(0, 2, (4, 15)) - 1.0
    loop = [refitted(model, X, Y * own[GROUPS], cv=4, scoring=scoring).mean() for own in signs]
    np.testing.assert_allclose(found[1], loop, rtol=1e-3 if isinstance(model, SVR) else 1e-7)
    np.testing.assert_allclose(
        found[0], refitted(model, X, Y, cv=4, scoring=scoring).mean(), rtol=1e-3
    )


def test_what_cannot_be_exchanged():
    with pytest.raises(ValueError, match="exchange='rows'"):
        permutation_test_score(Ridge(), X, Y, exchange="rows")
    with pytest.raises(ValueError, match="needs groups"):
        permutation_test_score(Ridge(), X, Y, exchange="whole")
    with pytest.raises(ValueError, match="one column of numbers"):
        permutation_test_score(LSSVC(), X, np.where(Y > 0, "a", "b"), exchange="signs")
