"""Searches that begin with low ranks: what they call certain is, and the winner is exact."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1, make_moons
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVC, FastGridSearchCV, HuberSVC, KernelRegressor, Nystrom, plan
from everyfold.criteria import ConjugateGradient
from everyfold.selection import ladder

GRID = {"gamma": np.logspace(-3, 1, 7), "alpha": np.logspace(-4, 1, 6)}
STATUSES = {"exact", "certified", "converged", "estimated"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A ladder for a few hundred rows."""
    monkeypatch.setattr(ladder, "LADDER_ROWS", 300)
    monkeypatch.setattr(ladder, "FIRST_RANK", 20)


def data(n=400, seed=0):
    return make_friedman1(n, n_features=5, noise=1.0, random_state=seed)


def searches(model=None, grid=GRID, n=400, xy=None, **options):
    X, y = xy or data(n)
    model = KernelRidge(kernel="rbf") if model is None else model
    options = {"cv": KFold(5, shuffle=True, random_state=0), **options}
    climbing = FastGridSearchCV(model, grid, **options).fit(X, y)
    dense = FastGridSearchCV(model, grid, operator="dense", **options).fit(X, y)
    return climbing, dense


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), KernelRegressor()], ids=str)
def test_the_winner_is_exact_and_near_the_best(seed, model):
    scoring = "neg_mean_squared_error"
    climbing, dense = searches(model, xy=data(seed=seed), scoring=scoring)
    i = climbing.best_index_
    assert climbing.cv_results_["status"][i] == "exact"
    assert climbing.best_score_ == pytest.approx(dense.cv_results_["mean_test_score"][i], rel=1e-8)
    assert dense.cv_results_["mean_test_score"][i] >= 1.005 * dense.best_score_


def test_statuses_mean_what_they_say():
    climbing, dense = searches(scoring="neg_mean_squared_error")
    status = climbing.cv_results_["status"]
    assert set(status) <= STATUSES
    assert {"exact", "certified", "estimated"} <= set(status)
    ours, truth = (s.cv_results_["mean_test_score"] for s in (climbing, dense))
    exact = status == "exact"
    np.testing.assert_allclose(ours[exact], truth[exact], rtol=1e-8)
    np.testing.assert_array_equal(climbing.cv_results_["is_exact"], exact)
    certified = status == "certified"
    np.testing.assert_allclose(ours[certified], truth[certified], rtol=5e-3)
    assert (dense.cv_results_["status"] == "exact").all()


def test_certificates_are_the_residual_trace(monkeypatch):
    monkeypatch.setattr(ladder, "CERTAIN", 1e-12)
    climbing, _ = searches()
    assert "certified" not in set(climbing.cv_results_["status"])


def test_the_plan_says_so():
    climbing, dense = searches()
    assert "operator='dense' evaluates all" in str(climbing.plan_)
    assert "low rank first" not in str(dense.plan_)


def test_few_rows_and_explicit_choices_stay_exact():
    climbing, _ = searches(n=200)
    assert climbing.cv_results_["is_exact"].all()
    for options in ({"order": "exact"}, {"return_train_score": True}):
        climbing, _ = searches(grid={"gamma": [0.1], "alpha": [0.1, 1.0]}, **options)
        assert climbing.cv_results_["is_exact"].all()


def test_what_has_no_ladder():
    X, y = data()
    grid = {"alpha": [0.1, 1.0]}
    for model in (KernelRidge(kernel="linear"), KernelRegressor(gamma="scale")):
        assert FastGridSearchCV(model, grid, cv=3).fit(X, y).cv_results_["is_exact"].all()
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    search = FastGridSearchCV(model, {"kernelridge__alpha": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.cv_results_["is_exact"].all()
    labels = y > y.mean()
    search = FastGridSearchCV(HuberSVC(), {"C": [0.1, 1.0]}, cv=3).fit(X, labels)
    assert search.cv_results_["is_exact"].all()
    operator = Nystrom(30, random_state=0)
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3, operator=operator).fit(X, y)
    assert set(search.cv_results_["status"]) == {"estimated"}


def test_a_few_candidates_or_no_ridge_need_no_ladder():
    X, y = data()
    model = KernelRidge(kernel="rbf", gamma=5.0)
    for alphas in ([0.1, 1.0, 10.0], [0.0, 0.01, 0.1, 1.0, 10.0]):
        search = FastGridSearchCV(model, {"alpha": alphas}, cv=3).fit(X, y)
        assert (search.cv_results_["status"] == "exact").sum() >= len(alphas) - 1
        assert "low rank first" not in str(search.plan_)


def test_classifiers_weights_and_single_rows():
    X, labels = make_moons(400, noise=0.3, random_state=0)
    grid = {"gamma": [0.1, 1.0, 10.0], "alpha": [0.01, 0.1, 1.0]}
    climbing, dense = searches(LSSVC(), grid, xy=(X, labels))
    assert climbing.best_score_ >= dense.best_score_ - 0.005
    climbing, dense = searches(LSSVC(), grid, xy=(X, labels), cv=LeaveOneOut())
    assert climbing.best_score_ >= dense.best_score_ - 0.005
    X, y = data()
    w = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5).fit(X, y, sample_weight=w)
    dense = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, operator="dense")
    dense.fit(X, y, sample_weight=w)
    assert search.best_score_ >= dense.best_score_ - 0.005


def test_several_scorers_climb_by_the_one_that_refits():
    climbing, dense = searches(scoring=["r2", "neg_mean_absolute_error"], refit="r2")
    i = climbing.best_index_
    assert climbing.cv_results_["status"][i] == "exact"
    assert climbing.best_score_ >= dense.best_score_ - 0.005


def test_workers_give_the_same():
    X, y = data()
    one, two = (
        FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, n_jobs=jobs).fit(X, y)
        for jobs in (1, 2)
    )
    np.testing.assert_allclose(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"], rtol=1e-7
    )
    assert one.cv_results_["status"].tolist() == two.cv_results_["status"].tolist()


def test_progress_counts_each_kernel_once(capsys):
    X, y = data()
    FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("kernel ") for line in lines) == 7
    assert any("more exactly" in line for line in lines)


def test_many_rows_are_iterated_with(monkeypatch):
    monkeypatch.setattr(ladder, "ITERATIVE_ROWS", 300)
    climbing, dense = searches(scoring="neg_mean_squared_error")
    exact = climbing.cv_results_["is_exact"]
    assert exact[climbing.best_index_]
    assert "conjugate gradients" in str(climbing.plan_)
    ours, truth = (s.cv_results_["mean_test_score"] for s in (climbing, dense))
    np.testing.assert_allclose(ours[exact], truth[exact], rtol=1e-6)
    monkeypatch.setattr(ladder, "available_memory", lambda: 1000)
    blockwise, _ = searches(scoring="neg_mean_squared_error")
    np.testing.assert_allclose(blockwise.best_score_, climbing.best_score_, rtol=1e-6)
    assert "BlockwiseMatrix" in str(blockwise.plan_)


def test_iterations_that_do_not_end_are_not_called_exact(monkeypatch):
    monkeypatch.setattr(ladder, "ITERATIVE_ROWS", 300)
    words, _, estimate = plan._METHODS["conjugate"]
    monkeypatch.setitem(
        plan._METHODS, "conjugate", (words, ConjugateGradient(max_iter=1), estimate)
    )
    X, y = data()
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, n_confirm=0).fit(X, y)
    full = [s for s in search.cv_results_["status"] if s == "exact"]
    assert len(full) < search.plan_.candidates
    assert not search.cv_results_["is_exact"][search.best_index_]
