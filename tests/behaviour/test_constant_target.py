"""A constant target, which an intercept predicts without rounding."""

import numpy as np
import pytest
import sklearn.model_selection as refitting
from sklearn.base import clone
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVR,
    KernelRegressor,
    Nystrom,
    RandomFourier,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)

CONSTANT = {
    "dense": LSSVR(alpha=0.3, gamma=0.3),
    "linear": LSSVR(alpha=0.3, kernel="linear"),
    "scale": LSSVR(alpha=0.3, gamma="scale"),
    "narrow": LSSVR(alpha=1e-9, gamma=3.0),
    "tube": KernelRegressor(loss="quadratic_epsilon", gamma=0.3, alpha=0.3),
    "smooth tube": KernelRegressor(loss="smooth_epsilon", gamma=0.3, alpha=0.3),
    "landmarks": LSSVR(alpha=0.3, gamma=0.3, operator=Nystrom(10, random_state=0)),
    "waves": LSSVR(alpha=0.3, gamma=0.3, operator=RandomFourier(20, random_state=0)),
    "steps": make_pipeline(StandardScaler(), LSSVR(alpha=0.3, gamma=0.3)),
}


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_splits", [3, 25])
@pytest.mark.parametrize("level", [0.1, -3.7, 1e6 / 3.0])
@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_target_is_predicted_without_rounding(name, level, n_splits, weighted):
    model, rng = CONSTANT[name], np.random.default_rng(0)
    X, y, w = rng.normal(size=(75, 3)), np.full(75, level), rng.uniform(0.1, 2.0, 75)
    w[::7] = 0.0
    key = "lssvr__sample_weight" if name == "steps" else "sample_weight"
    splits = list(KFold(n_splits).split(X))
    params = [{key: w[train]} if weighted else {} for train, _ in splits]
    refitted = [
        clone(model).fit(X[train], y[train], **own).score(X[test], y[test])
        for (train, test), own in zip(splits, params, strict=True)
    ]
    assert refitted == [1.0] * n_splits
    params = {key: w} if weighted else {}
    found = cross_val_score(model, X, y, cv=n_splits, params=params, pooled=False)
    assert found.tolist() == refitted
    predicted = cross_val_predict(model, X, y, cv=KFold(n_splits), params=params)
    np.testing.assert_array_equal(predicted, y)


def test_only_the_constant_one_of_two_targets_is_exact():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    model = LSSVR(alpha=0.3, gamma=0.3)
    both = cross_val_predict(model, X, np.column_stack([np.full(40, 0.1), y]), cv=4)
    np.testing.assert_array_equal(both[:, 0], np.full(40, 0.1))
    np.testing.assert_allclose(both[:, 1], cross_val_predict(model, X, y, cv=4), rtol=1e-9)
    without = LSSVR(alpha=0.3, gamma=0.3, fit_intercept=False)
    alone = cross_val_predict(without, X, np.full(40, 0.1), cv=4)
    np.testing.assert_allclose(
        alone, refitting.cross_val_predict(without, X, np.full(40, 0.1), cv=4), rtol=1e-9
    )


def test_permutations_of_a_constant_are_all_alike():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.full(30, 0.1)
    for cv in (3, ShuffleSplit(3, random_state=0)):
        found = permutation_test_score(LSSVR(gamma=0.3), X, y, cv=cv, n_permutations=5)
        assert found[0] == 1.0
        assert found[1].tolist() == [1.0] * 5
