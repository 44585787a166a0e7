"""Random waves: they become the kernel, and do whatever a feature map does."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn import model_selection as refitting
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    HuberSVC,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
    RandomFourier,
    cross_val_predict,
)
from everyfold.io.arrays import ArrayRows
from everyfold.io.samples import Held
from everyfold.kernels import RBF, Laplacian, Polynomial
from everyfold.operators import StructureError
from tests import cases

N = 120
WAVES = RandomFourier(30, random_state=0)
GRID = {"gamma": [0.05, 0.4], "alpha": [1e-2, 1.0]}


def regression():
    X = cases.features(N)
    return X, cases.targets(X)[:, 0]


def scores(search):
    return search.cv_results_["mean_test_score"]


class TestKernel:
    @pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.2)], ids=repr)
    def test_becomes_the_kernel_as_components_grow(self, kernel):
        X = cases.features(40)
        gaps = []
        for c in (100, 10_000):
            V = RandomFourier(c, random_state=0).bind(kernel, X).V
            assert V.shape == (40, c)
            gaps.append(np.sqrt(np.mean((V @ V.T - kernel(X)) ** 2)))
        assert gaps[1] < 0.2 * gaps[0] < 0.05

    def test_gammas_share_their_directions(self):
        X = cases.features()
        one, two = (WAVES.feature_map(RBF(g), Held(X)) for g in (0.1, 0.4))
        other = RandomFourier(30, random_state=1).feature_map(RBF(0.1), Held(X))
        assert one.base_key == two.base_key != other.base_key
        B = one.base(X)
        kept = B.copy()
        np.testing.assert_allclose(two.columns(B), two(X), rtol=1e-14)
        np.testing.assert_array_equal(B, kept)

    def test_an_odd_number_is_rounded_up(self):
        assert RandomFourier(7).rank_for(100, 3) == 8

    def test_sparse_rows(self):
        X = cases.sparse_features(cases.features())
        dense, sparse = (WAVES.bind(RBF(0.3), rows).V for rows in (X.toarray(), csr_matrix(X)))
        np.testing.assert_allclose(sparse, dense, atol=1e-14)

    def test_other_kernels_are_refused(self):
        X, y = regression()
        with pytest.raises(StructureError, match="rbf and laplacian"):
            WAVES.bind(Polynomial(2, 1.0, 1.0), X)
        with pytest.raises(ValueError, match="rbf and laplacian"):
            KernelRegressor(kernel="linear", operator=WAVES).fit(X, y)

    @pytest.mark.parametrize("wrong", [0, -3, 1.5, "many", True])
    def test_wrong_numbers_are_refused(self, wrong):
        with pytest.raises(ValueError, match="n_components"):
            RandomFourier(wrong)


class TestFolds:
    @pytest.mark.parametrize(
        "model",
        [
            KernelRegressor(gamma=0.2, alpha=0.3),
            KernelRegressor(kernel="laplacian", gamma=0.2, alpha=0.3, fit_intercept=False),
            KernelRegressor(gamma="scale", alpha=0.3),
            make_pipeline(StandardScaler(), KernelRegressor(gamma="scale", alpha=0.3)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("cv", [5, 40])
    def test_equal_refits(self, model, cv):
        X, y = regression()
        model = clone(model)
        final = model[-1] if hasattr(model, "steps") else model
        final.set_params(operator=WAVES)
        options = {} if cv == 5 or final is model else {"preprocessing": "per_fold"}
        ours = cross_val_predict(model, X, y, cv=cv, **options)
        theirs = refitting.cross_val_predict(model, X, y, cv=cv)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)

    def test_newton_losses(self):
        X, y = regression()
        model = QuadraticSVR(gamma=0.2, operator=WAVES)
        theirs = refitting.cross_val_predict(model, X, y, cv=5)
        np.testing.assert_allclose(cross_val_predict(model, X, y, cv=5), theirs, rtol=1e-6)

    @pytest.mark.parametrize("kind", [LSSVC, HuberSVC, KernelLogisticClassifier])
    def test_classifiers(self, kind):
        X, y = regression()
        y = np.where(y > np.median(y), "a", "b")
        model = kind(gamma=0.2, operator=WAVES)
        ours = cross_val_predict(model, X, y, cv=5, method="decision_function")
        theirs = refitting.cross_val_predict(model, X, y, cv=5, method="decision_function")
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class TestSearch:
    def test_equals_a_loop(self):
        X, y = regression()
        ours = FastGridSearchCV(KernelRegressor(operator=WAVES), GRID, cv=5).fit(X, y)
        theirs = GridSearchCV(KernelRegressor(operator=WAVES), GRID, cv=5).fit(X, y)
        np.testing.assert_allclose(scores(ours), scores(theirs), rtol=1e-8)
        assert ours.best_estimator_.operator == WAVES
        kept = pickle.loads(pickle.dumps(ours.best_estimator_))
        np.testing.assert_allclose(kept.predict(X), theirs.predict(X), rtol=1e-8)

    @pytest.mark.parametrize("scoring", ["r2", "neg_max_error"])
    def test_streams_equal_memory(self, scoring):
        X, y = regression()
        options = {"cv": KFold(4), "scoring": scoring}
        search = FastGridSearchCV(KernelRegressor(operator=WAVES), GRID, **options)
        memory, source = clone(search).fit(X, y), clone(search).fit(ArrayRows(X, y))
        np.testing.assert_allclose(scores(source), scores(memory), rtol=1e-9)
        np.testing.assert_allclose(source.predict(X), memory.predict(X), rtol=1e-9)
        assert "30 random waves" in source.plan_.operator

    def test_the_seed_of_the_search_reaches_it(self):
        X, y = regression()
        model = KernelRegressor(operator=RandomFourier(30))
        first, again, other = (
            FastGridSearchCV(clone(model), GRID, cv=4, random_state=seed).fit(X, y)
            for seed in (5, 5, 6)
        )
        np.testing.assert_array_equal(scores(first), scores(again))
        assert not np.allclose(scores(first), scores(other))
        assert first.best_estimator_.operator == RandomFourier(30, random_state=5)

    def test_it_climbs_no_ladder(self, monkeypatch):
        monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.LOW_RANK_FIRST_ROWS", 50)
        X, y = regression()
        search = FastGridSearchCV(KernelRegressor(operator=WAVES), GRID, cv=4).fit(X, y)
        assert "rank 30" in search.plan_.operator
        assert "low rank first" not in str(search.plan_)
