"""Folds that train on the same rows are evaluated once: values, scores and the way back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut

from everyfold import LSSVC, LSSVR, FastGridSearchCV, KernelRegressor
from everyfold.crossval import ClosedFormCV, Folds, Refit
from everyfold.crossval.base import Failure
from everyfold.engine.execution import run
from everyfold.kernels import RBF
from everyfold.losses import Squared
from everyfold.operators import Dense
from everyfold.solvers import Problem

N = 41
random = np.random.default_rng(0)
X = random.normal(size=(N, 3))
Y = np.column_stack([np.sin(2.0 * X[:, 0]), X[:, 1] + 0.1 * random.normal(size=N)])
PARTS = [test for _, test in KFold(4, shuffle=True, random_state=0).split(X)]


def nested():
    """All folds, and all inner folds of every outer one: each pair is left out twice."""
    rows = np.arange(N)
    splits = [(np.setdiff1d(rows, part), part) for part in PARTS]
    for i, outer in enumerate(PARTS):
        for j, inner in enumerate(PARTS):
            if i != j:
                splits.append((np.setdiff1d(rows, [*outer, *inner]), inner[::-1]))
    return splits


FOLDS = Folds.from_splits(nested(), N)


def test_pairs_are_one():
    assert len(FOLDS) == 4 + 12
    assert len(FOLDS.merged.folds) == 4 + 6
    assert FOLDS.merged.folds.merged is None
    tests = [FOLDS.merged.folds.tests[k] for k in FOLDS.merged.numbers]
    assert all(np.isin(own, more).all() for own, more in zip(FOLDS.tests, tests, strict=True))
    assert_allclose(FOLDS.merged.folds.test_rows[FOLDS.merged.places], FOLDS.test_rows)


@pytest.mark.parametrize("cv", [KFold(5), LeaveOneOut()])
def test_others_stay(cv):
    assert Folds.from_splits(cv.split(X), N).merged is None
    assert Folds.leave_one_out(N).merged is None


@pytest.mark.parametrize("criterion", [ClosedFormCV(), ClosedFormCV(route="explicit"), Refit()])
@pytest.mark.parametrize("weights", [np.ones(N), np.where(np.arange(N) % 5 == 0, 0.0, 1.5)])
def test_values_are_those_of_every_fold(criterion, weights):
    problem, operator = Problem(Y, weights, Squared(), True), Dense().bind(RBF(0.3), X)
    (plain,) = criterion.evaluate(problem, operator, [0.1], FOLDS)
    (few,) = criterion.evaluate(problem, operator, [0.1], FOLDS.merged.folds)
    found = few.unmerge(FOLDS.merged)
    assert_allclose(found.values, plain.values, rtol=1e-9)
    assert_allclose(found.is_exact, plain.is_exact)
    assert found.condition.shape == plain.condition.shape == (16,)


@pytest.mark.parametrize("estimator", [LSSVR(), KernelRegressor(fit_intercept=False), LSSVC()])
def test_scores_of_a_search(estimator, monkeypatch):
    whole, done = run._whole, []
    fit_parts = run.fit_parts
    monkeypatch.setattr(run, "_whole", lambda *args: (done.append(args[-1]), whole(*args))[1])
    monkeypatch.setattr(
        run, "fit_parts", lambda *args, **how: (done.append(args[4]), fit_parts(*args, **how))[1]
    )
    y = np.where(Y[:, 0] > 0.0, "a", "b") if isinstance(estimator, LSSVC) else Y[:, 0]
    grid = {"gamma": [0.1, 1.0], "alpha": [0.01, 1.0]}
    ours = FastGridSearchCV(estimator, grid, cv=nested(), n_confirm=0).fit(X, y)
    theirs = GridSearchCV(estimator, grid, cv=nested()).fit(X, y)
    for k in range(len(FOLDS)):
        name = f"split{k}_test_score"
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-8)
    assert {len(folds) for folds in done} == {10}


def test_failures_are_those_of_every_fold():
    problem, operator = Problem(Y, np.ones(N), Squared(), True), Dense().bind(RBF(0.3), X)
    (record,) = Refit().evaluate(problem, operator, [0.1], FOLDS.merged.folds)
    record.failures[5] = Failure(ValueError("singular"), "")
    assert (
        sorted(record.unmerge(FOLDS.merged).failures)
        == np.flatnonzero(FOLDS.merged.numbers == 5).tolist()
    )
