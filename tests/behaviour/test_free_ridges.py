"""Further ridges for every kernel that a random search draws, against scikit-learn's own scores."""

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose
from scipy.stats import loguniform
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everyfold import FastRandomizedSearchCV

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)
LABELS = (Y > 0).astype(int)
ALPHA, GAMMA = loguniform(1e-4, 10.0), loguniform(1e-2, 3.0)
RIDGE = KernelRidge(kernel="rbf")
PIPELINE = make_pipeline(StandardScaler(), SVC())


def search(estimator, distributions, free_ridges=4, **options):
    options = {"n_iter": 3, "random_state": 0, "cv": 3, **options}
    return FastRandomizedSearchCV(estimator, distributions, free_ridges=free_ridges, **options)


@pytest.mark.parametrize(
    ("estimator", "distributions", "y"),
    [
        (RIDGE, {"alpha": ALPHA, "gamma": GAMMA}, Y),
        (SVC(), {"C": loguniform(1e-2, 100.0), "gamma": GAMMA}, LABELS),
        (PIPELINE, {"svc__C": loguniform(1e-2, 100.0), "svc__gamma": GAMMA}, LABELS),
    ],
)
def test_further_candidates(estimator, distributions, y):
    """The first are scikit-learn's, and all scores are those of refits."""
    found = search(estimator, distributions).fit(X, y)
    theirs = ms.RandomizedSearchCV(estimator, distributions, n_iter=3, random_state=0, cv=3)
    first = theirs.fit(X, y).cv_results_
    table = found.cv_results_
    assert table["params"][:3] == first["params"]
    assert len(table["params"]) == 3 + 3 * 4
    grid = [{name: [value] for name, value in params.items()} for params in table["params"]]
    all_of_them = ms.GridSearchCV(estimator, grid, cv=3).fit(X, y).cv_results_
    assert_allclose(table["mean_test_score"], all_of_them["mean_test_score"], atol=1e-8)
    assert found.best_score_ == table["mean_test_score"].max()
    assert table["params"] == search(estimator, distributions).fit(X, y).cv_results_["params"]


def test_one_of_each_part_of_the_distribution():
    table = search(RIDGE, {"alpha": ALPHA, "gamma": GAMMA}, 8).fit(X, Y).cv_results_
    gammas = [params["gamma"] for params in table["params"]]
    assert gammas[3:] == np.repeat(gammas[:3], 8).tolist()
    alphas = np.array([params["alpha"] for params in table["params"][3:]]).reshape(3, 8)
    parts = np.floor(8 * ALPHA.cdf(alphas)).astype(int)
    assert parts.tolist() == [list(range(8))] * 3


def test_a_kernel_that_is_drawn_twice_has_one_path():
    found = search(RIDGE, {"alpha": ALPHA, "gamma": [0.1, 1.0]}, n_iter=6).fit(X, Y)
    params = found.cv_results_["params"]
    assert len({p["gamma"] for p in params[:6]}) == 2
    assert len(params) == 6 + 2 * 4
    assert found.plan_.kernels == 2


def test_lists_have_as_many_as_they_have():
    alphas = [0.01, 0.1, 1.0]
    found = search(RIDGE, {"alpha": alphas, "gamma": GAMMA}, 8).fit(X, Y)
    params = found.cv_results_["params"]
    assert len(params) == 9
    for gamma in {p["gamma"] for p in params}:
        assert sorted(p["alpha"] for p in params if p["gamma"] == gamma) == alphas


class OnlyDraws:
    """A distribution of the user's own."""

    def rvs(self, random_state=None):
        return float(random_state.uniform(0.1, 1.0))


def test_distributions_of_the_user_and_lists_of_them():
    both = [{"alpha": OnlyDraws(), "gamma": [0.1]}, {"alpha": ALPHA, "kernel": ["linear"]}]
    found = search(RIDGE, both, n_iter=8).fit(X, Y)
    params = found.cv_results_["params"]
    assert {tuple(p) for p in params[:8]} == {("alpha", "gamma"), ("alpha", "kernel")}
    assert len(params) == 8 + 2 * 4
    assert all(0.1 <= p["alpha"] <= 1.0 for p in params if "gamma" in p)


def test_none_by_default():
    options = {"n_iter": 3, "random_state": np.random.RandomState(0), "cv": 3}
    distributions = {"alpha": ALPHA, "gamma": GAMMA}
    found = FastRandomizedSearchCV(RIDGE, distributions, **options).fit(X, Y)
    sampler = ms.ParameterSampler(distributions, 3, random_state=0)
    assert found.cv_results_["params"] == list(sampler)


@pytest.mark.parametrize(
    ("estimator", "distributions", "count", "words"),
    [
        (RIDGE, {"gamma": GAMMA}, 2, r"alpha or C, but \['gamma'\] has none; add one"),
        (RIDGE, {"gamma": GAMMA, "alpha": [1.0]}, 2, "has none"),
        (PIPELINE, {"svc__gamma": GAMMA}, 2, "svc__alpha or svc__C"),
        (RIDGE, [{"alpha": ALPHA}, {"gamma": GAMMA}], 2, "has none"),
        (Lasso(), {"alpha": ALPHA}, 2, "Lasso is refitted for every ridge"),
        (RandomForestRegressor(), {"max_depth": [1, 2]}, 1, "RandomForestRegressor"),
        (Ridge(), {"alpha": ALPHA}, -1, "free_ridges=-1 is not a number"),
        (Ridge(), {"alpha": ALPHA}, 1.5, "free_ridges=1.5 is not a number"),
    ],
)
def test_refused(estimator, distributions, count, words):
    with pytest.raises(ValueError, match=words):
        search(estimator, distributions, count).fit(X, Y)
