"""random_state of a search reaches every random choice that has no seed of its own."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import loguniform
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVR,
    Circulant,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    Nystrom,
    learning_curve,
    permutation_test_score,
)
from everyfold.engine.adaptive import low_rank_first as ladder
from everyfold.io.arrays import ArrayRows
from everyfold.kernels import RBF
from tests.behaviour.test_search import compare

X, Y = make_friedman1(90, n_features=5, noise=0.5, random_state=0)
GRID = {"gamma": [0.3, 2.0], "alpha": [0.01, 0.5]}
FEW = Nystrom(12)


def scores(search):
    return search.cv_results_["mean_test_score"]


def search(random_state=None, model=None, grid=None, source=None, **options):
    model = LSSVR(operator=FEW) if model is None else model
    found = FastGridSearchCV(model, grid or GRID, cv=3, random_state=random_state, **options)
    return found.fit(X, Y) if source is None else found.fit(source)


def scores_of_landmarks(seed):
    """By refits of linear models on the features of the landmarks that a seed gives."""
    found = []
    for params in ms.ParameterGrid(GRID):
        V = Nystrom(12, random_state=seed).bind(RBF(params["gamma"]), X).V
        ridge = Ridge(alpha=params["alpha"])
        found.append(ms.cross_val_score(ridge, V, Y, cv=3).mean())
    return found


WHERE = {
    "model": {},
    "search": {"model": LSSVR(), "operator": FEW},
    "grid": {"model": LSSVR(), "grid": {**GRID, "operator": [FEW]}},
    "nested": {
        "model": LSSVR(operator=Nystrom(20)),
        "grid": {**GRID, "operator__n_landmarks": [12]},
    },
}


@pytest.mark.parametrize("where", WHERE)
def test_landmarks_are_those_of_the_seed(where):
    expected = scores_of_landmarks(3)
    assert_allclose(scores(search(3, **WHERE[where])), expected, rtol=1e-7)
    assert not np.isclose(scores(search(4, **WHERE[where])), expected, rtol=1e-4).any()


@pytest.mark.parametrize("gamma", [0.3, "scale"])
def test_landmarks_of_every_fold_are_those_of_a_refit_with_the_seed(gamma):
    def model(operator):
        steps = [("scaler", StandardScaler()), ("model", LSSVR(gamma=gamma, operator=operator))]
        return Pipeline(steps)

    grid = {"model__alpha": [0.01, 0.5]}
    slow = ms.GridSearchCV(model(Nystrom(12, random_state=3)), grid, cv=3).fit(X, Y)
    fast = search(3, model(FEW), grid)
    assert_allclose(scores(fast), scores(slow), rtol=1e-7)
    assert_allclose(fast.predict(X), slow.predict(X), rtol=1e-7)


@pytest.mark.parametrize("random_state", [3, "generator", None])
def test_workers_draw_the_same(random_state):
    found = []
    for n_jobs in (1, 2):
        np.random.seed(0)  # noqa: NPY002
        seed = np.random.RandomState(3) if random_state == "generator" else random_state
        found.append(search(seed, n_jobs=n_jobs))
    assert_array_equal(scores(found[0]), scores(found[1]))
    assert_array_equal(found[0].predict(X), found[1].predict(X))
    np.random.seed(1)  # noqa: NPY002
    other = search(np.random.RandomState(4) if random_state == "generator" else None)
    assert (scores(other) != scores(found[0])).all()


def test_a_seed_of_the_operators_own_comes_first():
    model = LSSVR(operator=Nystrom(12, random_state=3))
    for seed in (None, 8):
        assert_allclose(scores(search(seed, model)), scores_of_landmarks(3), rtol=1e-7)
    first, second = (
        search(
            seed, LSSVR(operator=Nystrom(12, random_state=np.random.RandomState(3))), n_jobs=jobs
        )
        for seed, jobs in ((8, 1), (9, 2))
    )
    assert_array_equal(scores(first), scores(second))


def test_the_model_that_is_kept_is_the_one_that_was_scored():
    found = search(3)
    best = LSSVR(operator=Nystrom(12, random_state=3), **found.best_params_).fit(X, Y)
    assert_array_equal(found.predict(X), best.predict(X))
    assert found.best_params_.keys() == GRID.keys()
    circulant = Circulant(factors=(9, 10), refit=FEW)
    rows = circulant.arrange(X)
    options = {"cv": ms.KFold(9), "random_state": 3, "operator": "auto"}
    model = LSSVR(gamma=2.0, operator=circulant)
    found = FastGridSearchCV(model, {"alpha": [0.5]}, **options)
    best = LSSVR(gamma=2.0, alpha=0.5, operator=Nystrom(12, random_state=3)).fit(X[rows], Y[rows])
    assert_array_equal(found.fit(X[rows], Y[rows]).predict(X), best.predict(X))


def test_confirmed_scores_are_those_of_refits_with_the_seed():
    found = search(3, n_confirm=4)
    slow = ms.GridSearchCV(LSSVR(operator=Nystrom(12, random_state=3)), GRID, cv=3).fit(X, Y)
    assert_allclose(found.cv_results_["confirmed_test_score"], scores(slow), rtol=1e-7)


def test_the_ladder_draws_by_the_seed(monkeypatch):
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 80)
    monkeypatch.setattr(ladder, "FIRST_RANK", 8)
    monkeypatch.setattr(ladder, "ITERATIVE_ROWS", 85)
    grid = {"gamma": [0.01, 0.1, 0.5, 2.0], "alpha": [0.01, 0.1, 1.0]}
    model = KernelRidge(kernel="rbf")
    first, again, other = (
        search(seed, model, grid, n_jobs=n_jobs) for seed, n_jobs in ((3, 1), (3, 2), (4, 1))
    )
    estimated = first.cv_results_["status"] == "estimated"
    assert estimated.any()
    assert_array_equal(scores(first), scores(again))
    assert (scores(first) != scores(other))[estimated].all()
    default, zero = search(None, model, grid), search(0, model, grid)
    assert_array_equal(scores(default), scores(zero))


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_power_iterations_start_from_the_seed():
    options = {"order": 1, "ridge_scaling": "mean", "n_confirm": 0, "model": LSSVR()}
    first, again, other = (search(seed, **options) for seed in (3, 3, 4))
    radii = [found.cv_results_["spectral_radius"] for found in (first, again, other)]
    assert_array_equal(radii[0], radii[1])
    assert (radii[0] != radii[2]).any()
    assert_allclose(radii[0], radii[2], rtol=0.05)
    assert_array_equal(scores(first), scores(other))


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
@pytest.mark.parametrize("where", ["memory", "source"])
def test_what_does_not_fit_in_memory_draws_by_the_seed(where, monkeypatch):
    monkeypatch.setattr("everyfold.estimators.model.fits", lambda n, rank: rank < n)
    monkeypatch.setattr("everyfold.operators.nystrom.DEFAULT_LANDMARKS", 12)
    source = ArrayRows(X, Y) if where == "source" else None
    found = search(3, LSSVR(), source=source)
    best = LSSVR(operator=Nystrom(random_state=3), **found.best_params_)
    best = best.fit(X, Y) if source is None else best.fit(source)
    assert_allclose(scores(found), scores_of_landmarks(3), rtol=1e-6)
    # From blocks the winner is solved from the sums of its folds, which adds them in another order.
    assert_allclose(found.predict(X), best.predict(X), rtol=1e-9)


@pytest.mark.parametrize("random_state", [5, "generator"])
def test_random_candidates_are_scikit_learns_whatever_else_is_drawn(random_state):
    def seed():
        return np.random.RandomState(5) if random_state == "generator" else random_state

    distributions = {"alpha": loguniform(1e-2, 1e1), "gamma": [0.1, 0.5, 2.0]}
    options = {"n_iter": 5, "cv": 3}
    slow = ms.RandomizedSearchCV(LSSVR(), distributions, random_state=seed(), **options)
    fast = FastRandomizedSearchCV(LSSVR(), distributions, random_state=seed(), **options)
    compare(fast.fit(X, Y), slow.fit(X, Y))
    model = LSSVR(operator=FEW)
    fast = FastRandomizedSearchCV(model, distributions, random_state=seed(), **options).fit(X, Y)
    assert fast.cv_results_["params"] == slow.cv_results_["params"]


def test_numpys_own_state_is_left_alone_where_nothing_is_drawn():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    search(None, LSSVR())
    search(3)
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_what_is_no_seed_is_refused():
    with pytest.raises(ValueError, match="random_state"):
        search("three")


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
@pytest.mark.parametrize("seed", [np.int64(1), 1, "generator"])
@pytest.mark.parametrize("function", [learning_curve, permutation_test_score])
def test_landmarks_of_curves_and_permutations(function, seed):
    options = {"n_permutations": 2} if function is permutation_test_score else {"shuffle": True}

    def call():
        random_state = np.random.RandomState(1) if seed == "generator" else seed
        return function(LSSVR(operator=FEW), X, Y, cv=3, random_state=random_state, **options)

    for found, again in zip(call(), call(), strict=True):
        assert_array_equal(found, again)
