"""Models of every fold from rows in blocks, against a method that takes fold by fold."""

from collections import Counter

import numpy as np
import pytest
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import FastGridSearchCV, KernelRegressor, Nystrom, cross_val_predict
from everyfold.engine.execution import block_methods
from everyfold.engine.execution.block_methods import BlockModels, SumsOverBlocks, isolated
from everyfold.io.arrays import ArrayRows
from everyfold.operators.response import RidgeModels
from tests import cases

N = 120
GRID = {"gamma": [0.05, 0.4], "alpha": [0.1, 1.0]}


class FoldByFold(SumsOverBlocks):
    """A least-squares fit of every fold and ridge to the features of its training rows.

    Its passes tell no scores, as those for other losses, so that these take one of their own.
    """

    def knows_scores(self, data):
        return False

    def words(self, *, knows_scores):
        return f"fold by fold, {knows_scores}"

    def fit(self, data, kernels, failures):
        fitted = []
        for members, views in kernels:
            with isolated(data, members, failures):
                fitted.append(self.models(data, members, views))
        return fitted

    def models(self, data, members, views):
        blocks = list(data.source.blocks(data.height))
        X = np.concatenate([block.X for block in blocks])
        y = np.concatenate([block.y for block in blocks])
        numbers = np.concatenate([data.rule.numbers(block) for block in blocks])
        models = {}
        for view in views:
            V = view.features(X)
            for fold in np.unique(numbers).tolist() if view.fold is None else [view.fold]:
                train = numbers != fold
                models[fold] = self.ridge(V[train], y[train], [m.model.ridges[0] for m in members])
        return BlockModels(members, views, models, Counter(numbers.tolist()), len(y), False)

    @staticmethod
    def ridge(V, y, ridges):
        """Each ridge by the normal equations of its centred rows, one after the other."""
        middle, mean = V.mean(axis=0), y.mean()
        A, b = V - middle, y - mean
        coef = [np.linalg.solve(A.T @ A + rho * np.eye(A.shape[1]), A.T @ b) for rho in ridges]
        coef = np.array(coef)[:, :, None]
        return RidgeModels(coef, mean - np.einsum("c,kcq->kq", middle, coef), np.ones(len(ridges)))


class Others(FoldByFold):
    """The same for models without an intercept, of which it is asked first."""

    def takes(self, model):
        return not model.intercept

    @staticmethod
    def ridge(V, y, ridges):
        found = [np.linalg.solve(V.T @ V + rho * np.eye(V.shape[1]), V.T @ y) for rho in ridges]
        coef = np.array(found)[:, :, None]
        return RidgeModels(coef, np.zeros(coef.shape[::2]), np.ones(len(ridges)))


def rows():
    X = cases.features(N)
    return ArrayRows(X, cases.targets(X, 1)[:, 0])


def scores(search):
    return np.array([search.cv_results_[f"split{i}_test_score"] for i in range(search.n_splits_)])


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "neg_max_error"])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_sums_are_fits_fold_by_fold(monkeypatch, scoring, is_scaled):
    model, grid = KernelRegressor(operator=Nystrom(12, random_state=0)), GRID
    if is_scaled:
        model = make_pipeline(StandardScaler(), model)
        grid = {f"kernelregressor__{name}": values for name, values in GRID.items()}
    search = FastGridSearchCV(model, grid, cv=KFold(4), scoring=scoring, refit=False)
    sums = scores(search.fit(rows()))
    monkeypatch.setattr(block_methods, "BLOCK_METHODS", (FoldByFold(),))
    np.testing.assert_allclose(scores(search.fit(rows())), sums, rtol=1e-7)
    assert "fold by fold, False" in str(search.plan_)


def test_held_out_values_of_another_method(monkeypatch):
    model = KernelRegressor(gamma=0.4, operator=Nystrom(12, random_state=0))
    sums = cross_val_predict(model, rows(), cv=4)
    monkeypatch.setattr(block_methods, "BLOCK_METHODS", (FoldByFold(),))
    np.testing.assert_allclose(cross_val_predict(model, rows(), cv=4), sums, rtol=1e-7)


def test_every_model_goes_to_the_first_method_that_takes_it(monkeypatch):
    grid = {"fit_intercept": [True, False], **GRID}
    model = KernelRegressor(operator=Nystrom(12, random_state=0))
    search = FastGridSearchCV(model, grid, cv=KFold(4), refit=False)
    sums = scores(search.fit(rows()))
    assert len(search.plan_.units) == 1
    monkeypatch.setattr(block_methods, "BLOCK_METHODS", (Others(), SumsOverBlocks()))
    np.testing.assert_allclose(scores(search.fit(rows())), sums, rtol=1e-7)
    assert len(search.plan_.units) > 1
    assert {words.split(" ")[0] for words, _ in search.plan_.methods} == {"fold", "sums"}
