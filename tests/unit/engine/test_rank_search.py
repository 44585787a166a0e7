"""``Nystrom(n_landmarks="auto")``: twice the landmarks until the best score has converged."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, KernelRegressor, Nystrom, cross_val_predict, cross_val_score
from everyfold.engine.adaptive import rank_search as rankcurve
from everyfold.io.arrays import ArrayRows

N = 240
X, Y = make_friedman1(N, n_features=5, noise=0.5, random_state=0)
GRID = {"gamma": [0.3, 1.0], "alpha": [1e-3, 1e-2]}
CV = KFold(4)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(rankcurve, "FIRST_LANDMARKS", 4)


def model(count):
    return KernelRegressor(operator=Nystrom(count, random_state=0))


def scores(found):
    keys = [f"split{i}_test_score" for i in range(found.n_splits_)]
    return np.array([found.cv_results_[key] for key in keys])


def by_hand(data, estimator=model, grid=GRID):
    """The number of landmarks that the rule stops at, by whole searches."""
    last, count = None, 4
    while True:
        found = FastGridSearchCV(estimator(count), grid, cv=CV).fit(*data)
        best = scores(found)[:, found.best_index_]
        error = 0.1 * best.std(ddof=1) / np.sqrt(len(best))
        if (last is not None and abs(best.mean() - last) <= error) or 2 * count > N:
            return count, found
        last, count = best.mean(), 2 * count


@pytest.mark.parametrize("make", [lambda: (X, Y), lambda: (ArrayRows(X, Y),)])
def test_the_rule_by_hand(make):
    count, expected = by_hand(make())
    found = FastGridSearchCV(model("auto"), GRID, cv=CV).fit(*make())
    assert 8 < count < N
    assert found.best_estimator_.operator.n_landmarks == count
    np.testing.assert_allclose(scores(found), scores(expected), rtol=1e-9)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-9)
    if len(make()) == 2:
        held = found.out_of_fold().values
        np.testing.assert_allclose(held, expected.out_of_fold().values, rtol=1e-9)
    before = scores(FastGridSearchCV(model(count // 2), GRID, cv=CV).fit(*make()))
    moved = np.abs(scores(found).mean(axis=0) - before.mean(axis=0))
    still = moved <= 0.1 * scores(found).std(axis=0, ddof=1) / 2.0
    statuses = np.where(still, "converged", "estimated")
    np.testing.assert_array_equal(found.cv_results_["status"], statuses)


def test_pipelines_and_one_model():
    pipeline = make_pipeline(StandardScaler(), model("auto"))
    grid = {f"kernelregressor__{name}": values for name, values in GRID.items()}
    count, expected = by_hand((X, Y), lambda c: make_pipeline(StandardScaler(), model(c)), grid)
    found = FastGridSearchCV(pipeline, grid, cv=CV).fit(X, Y)
    assert found.best_estimator_[-1].operator.n_landmarks == count
    np.testing.assert_allclose(scores(found), scores(expected), rtol=1e-9)
    assert cross_val_score(model("auto"), X, Y, cv=CV).mean() > 0.0


def test_a_number_beside_auto():
    grid = {"operator": [Nystrom("auto", random_state=0), Nystrom(6, random_state=0)]}
    found = FastGridSearchCV(KernelRegressor(gamma=0.5, alpha=0.01), grid, cv=CV).fit(X, Y)
    fixed = KernelRegressor(gamma=0.5, operator=grid["operator"][1])
    fixed = FastGridSearchCV(fixed, {"alpha": [0.01]}, cv=CV)
    np.testing.assert_allclose(scores(found)[:, 1], scores(fixed.fit(X, Y))[:, 0], rtol=1e-12)
    assert found.best_index_ == 0


def test_it_ends_with_the_rows():
    rng = np.random.default_rng(0)
    rough = np.where(rng.normal(size=(60, 5)) > 0, 1.0, -1.0) + 0.1 * rng.normal(size=(60, 5))
    options = {"cv": 3, "scoring": "neg_mean_squared_error"}
    search = FastGridSearchCV(model("auto"), {"gamma": [1.0]}, **options)
    search.fit(rough, rough.prod(axis=1))
    assert search.best_estimator_.operator.n_landmarks <= 60


def test_a_fit_by_itself_and_refusals():
    alone = model("auto").fit(X, Y)
    np.testing.assert_allclose(alone.predict(X), model(None).fit(X, Y).predict(X), rtol=1e-12)
    with pytest.raises(ValueError, match="n_landmarks='few' is not allowed"):
        Nystrom("few")
    with pytest.raises(ValueError, match="needs one score"):
        cross_val_predict(model("auto"), X, Y)
    two = {"scoring": ["r2", "neg_max_error"], "refit": False}
    for data in ((X, Y), (ArrayRows(X, Y),)):
        with pytest.raises(ValueError, match="needs one score"):
            FastGridSearchCV(model("auto"), GRID, **two).fit(*data)
