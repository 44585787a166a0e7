"""Searches that begin with low ranks: what they call certain is, and the winner is exact."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import loguniform
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_friedman1, make_friedman3, make_moons
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    HuberSVC,
    InexactWarning,
    KernelClassifier,
    KernelRegressor,
    Nystrom,
)
from everyfold.crossval import ConjugateGradient, Folds
from everyfold.engine.adaptive import candidate_state as standings
from everyfold.engine.adaptive import low_rank_first as ladder
from everyfold.engine.adaptive import pilot_splits as views
from everyfold.engine.execution import run
from everyfold.engine.execution.refits import ConfirmByRefit
from everyfold.engine.planning import squared_loss as exact
from everyfold.engine.planning.plan import SingleRound
from everyfold.engine.records import Outcome, mean_score
from tests import cases

GRID = {"gamma": np.logspace(-3, 1, 7), "alpha": np.logspace(-4, 1, 6)}
STATUSES = {"exact", "certified", "converged", "estimated"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A ladder for a few hundred rows."""
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 300)
    monkeypatch.setattr(ladder, "FIRST_RANK", 20)
    monkeypatch.setattr(ladder, "MOST_LARGE", standings.MOST_EXACT)


def data(n=400, seed=0):
    return make_friedman1(n, n_features=5, noise=1.0, random_state=seed)


def searches(model=None, grid=GRID, n=400, xy=None, **options):
    X, y = xy or data(n)
    model = KernelRidge(kernel="rbf") if model is None else model
    options = {"cv": KFold(5, shuffle=True, random_state=0), **options}
    climbing = FastGridSearchCV(model, grid, **options).fit(X, y)
    dense = FastGridSearchCV(model, grid, operator="dense", **options).fit(X, y)
    return climbing, dense


def check_choice(climbing, dense, key="mean_test_score"):
    """The choice is nearly the best of the exact table, its score that of the table.

    What is lost is measured in units of what choosing gains over the median candidate.
    """
    truth, i = dense.cv_results_[key], climbing.best_index_
    assert climbing.cv_results_["status"][i] == "exact"
    assert climbing.best_score_ == pytest.approx(truth[i], rel=1e-7, abs=1e-10)
    assert truth.max() - truth[i] <= 0.01 * (truth.max() - np.median(truth))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), KernelRegressor()], ids=str)
def test_the_winner_is_exact_and_near_the_best(seed, model):
    check_choice(*searches(model, xy=data(seed=seed), scoring="neg_mean_squared_error"))


def test_candidates_that_are_left_behind_are_worse_by_estimates():
    climbing, _ = searches()
    is_estimated = climbing.cv_results_["status"] == "estimated"
    assert 0 < is_estimated.sum() < len(is_estimated)
    count = f"{is_estimated.sum()} of {len(is_estimated)} candidates are only estimated"
    with pytest.warns(InexactWarning, match=count):
        is_worse = climbing.significantly_worse()
    for k in np.flatnonzero(is_estimated):
        found = climbing.compare(climbing.best_index_, k)
        assert (found.is_exact, found.status) == (False, ("exact", "estimated"))
    assert is_worse[is_estimated].any()


@pytest.mark.parametrize(
    ("rows", "seconds", "climbs"), [(400, 0.0, True), (400, np.inf, False), (401, 0.0, False)]
)
def test_fewer_rows_climb_if_they_are_costly(monkeypatch, rows, seconds, climbs):
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 1000)
    monkeypatch.setattr(ladder, "COSTLY_ROWS", rows)
    monkeypatch.setattr(ladder, "COSTLY_SECONDS", seconds)
    climbing, dense = searches()
    check_choice(climbing, dense)
    assert (set(climbing.cv_results_["status"]) == {"exact"}) is not climbs
    assert ("at low rank first" in str(climbing.plan_)) is climbs
    is_exact = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, order="exact").plan(*data())
    assert "at low rank first" not in str(is_exact)


def test_a_ladder_that_would_take_longer_is_not_climbed(monkeypatch):
    monkeypatch.setattr(ladder, "LOW_RANK_FIRST_ROWS", 1000)
    monkeypatch.setattr(ladder, "COSTLY_ROWS", 400)
    monkeypatch.setattr(ladder, "COSTLY_SECONDS", 0.0)
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID)
    assert "at low rank first" in str(search.plan(*data()))
    monkeypatch.setattr(ladder, "FIRST_RANK", 390)
    assert "at low rank first" not in str(search.plan(*data()))


@pytest.mark.parametrize(("n", "count", "climbs"), [(1600, 16, True), (1000, 8, False)])
def test_what_is_quick_stays_exact(monkeypatch, n, count, climbs):
    monkeypatch.undo()
    grid = {"gamma": np.logspace(-4, 1.5, count), "alpha": np.logspace(-4, 2, count)}
    plan = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=10).plan(*data(n))
    assert ("at low rank first" in str(plan)) is climbs


def waves(kind, seed, n=600):
    """Sums of waves: long ones, short ones or both; some noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (n, 1 + seed % 3))

    def some(frequency):
        phases = X @ rng.normal(size=(X.shape[1], 3)) * frequency + rng.uniform(0.0, 6.0, 3)
        return np.sin(phases).sum(axis=1)

    y = 0.1 * rng.normal(size=n)
    if kind in ("wide", "mixed"):
        y += some(2.0)
    if kind in ("narrow", "mixed"):
        y += rng.uniform(0.5, 1.5) * some(rng.uniform(15.0, 40.0))
    return X, y


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["wide", "narrow", "mixed"])
def test_narrow_wide_and_mixed_truths(kind, seed):
    grid = {"alpha": [1e-3, 1e-1], "gamma": np.logspace(-1, 4, 6)}
    check_choice(*searches(grid=grid, xy=waves(kind, seed), cv=5))


@pytest.mark.parametrize("seed", range(3))
def test_free_ridges_lose_no_winner(seed):
    wide = {"alpha": loguniform(1e-4, 100.0), "gamma": loguniform(1e-4, 1e3)}
    found = []
    for operator in ("auto", "dense"):
        search = FastRandomizedSearchCV(
            KernelRidge(kernel="rbf"), wide, n_iter=20, free_ridges=8, cv=KFold(5),
            refit=False, random_state=seed, operator=operator,
        )  # fmt: skip
        found.append(search.fit(*data(600, seed)))
    assert "estimated" in found[0].cv_results_["status"]
    check_choice(*found)


@pytest.mark.filterwarnings("ignore:the best gamma:UserWarning")
@pytest.mark.parametrize("seed", [3, 7])
def test_what_looks_better_on_the_same_rows_gets_a_chance(monkeypatch, seed):
    """Waves so short that half of the rows show next to nothing of them."""
    monkeypatch.setattr(ladder, "FIRST_RANK", 128)
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (1200, 3))
    y = np.sin(60.0 * X[:, 0]) + np.sin(50.0 * X[:, 1])
    grid = {"gamma": [0.1, 0.3, 0.54, 0.6, 0.8, 600.0], "alpha": [3e-4, 3e-3, 0.1, 5.0]}
    cv = KFold(5, shuffle=True, random_state=seed)
    climbing, dense = searches(grid=grid, xy=(X, y), cv=cv, refit=False)
    assert dense.best_params_["gamma"] == 600.0
    check_choice(climbing, dense)


def test_a_narrow_winner_among_many_rows(monkeypatch):
    monkeypatch.undo()
    X = np.random.default_rng(0).uniform(0.0, 1.0, (2600, 3))
    y = np.sin(60.0 * X[:, 0]) + np.sin(50.0 * X[:, 1])
    grid = {"alpha": [1e-3, 0.1], "gamma": [0.1, 1.0, 10.0, 1e3]}
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3).fit(X, y)
    assert "low rank first" in str(search.plan_)
    # Every other kernel of the grid scores below 0.02.
    assert search.best_params_ == {"alpha": 1e-3, "gamma": 1e3}
    scores = cross_val_score(KernelRidge(kernel="rbf", **search.best_params_), X, y, cv=3)
    assert search.best_score_ == pytest.approx(scores.mean(), rel=1e-8)
    assert search.best_score_ > 0.15


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "explained_variance"])
def test_other_scorers_and_the_mean_convention(scoring):
    grid = {"alpha": [1e-6, 1e-4], "gamma": np.logspace(-1, 4, 6)}
    check_choice(
        *searches(grid=grid, xy=waves("mixed", 1), ridge_scaling="mean", scoring=scoring, cv=4)
    )


def test_kernels_that_no_rank_captures_are_not_called_converged(monkeypatch):
    monkeypatch.setattr(standings, "CONVERGED", 10.0)
    X, y = waves("wide", 1)
    grid = {"alpha": [1e-3, 1e-1], "gamma": [1.0, 3e4]}
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3).fit(X, y)
    status = search.cv_results_["status"][search.cv_results_["param_gamma"] == 3e4]
    assert "converged" not in status


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


@pytest.mark.filterwarnings("ignore:the best candidate.*predicts (True|False) for every")
@pytest.mark.parametrize("seed", range(3))
def test_ridges_beyond_the_kernel_certify_no_score_of_order(seed):
    """All values are tiny then, and which is the largest depends on what a rank leaves out."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 6))
    labels = np.sin(2.5 * X[:, 0]) + np.cos(2.5 * X[:, 1]) + 0.5 * rng.normal(size=400) > 0.0
    grid = {"gamma": [0.02, 0.1, 0.5, 2.0], "alpha": [1e4, 1e5]}
    climbing, dense = searches(LSSVC(), grid, xy=(X, labels), scoring="roc_auc")
    ours, truth = (s.cv_results_["mean_test_score"] for s in (climbing, dense))
    certified = climbing.cv_results_["status"] == "certified"
    np.testing.assert_allclose(ours[certified], truth[certified], atol=0.01)
    assert climbing.best_score_ > truth.max() - 0.01


def test_certificates_are_the_residual_trace(monkeypatch):
    monkeypatch.setattr(standings, "CERTAIN", 1e-12)
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
    labels = y > y.mean()
    search = FastGridSearchCV(HuberSVC(), {"C": [0.1, 1.0]}, cv=3).fit(X, labels)
    assert search.cv_results_["is_exact"].all()
    operator = Nystrom(30, random_state=0)
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3, operator=operator).fit(X, y)
    assert set(search.cv_results_["status"]) == {"estimated"}


PIPED = {"kernelridge__gamma": np.logspace(-3, 1, 5), "kernelridge__alpha": np.logspace(-4, 1, 4)}


def check_against_refits(search, X, y):
    """The winner is exact, and no candidate that was left at low rank is much better."""
    results, i = search.cv_results_, search.best_index_
    assert set(results["status"]) <= STATUSES
    assert "at low rank first" in str(search.plan_)
    assert results["status"][i] == "exact"
    assert not results["is_exact"].all()
    theirs = GridSearchCV(search.estimator, search.param_grid, cv=search.cv).fit(X, y)
    truth = theirs.cv_results_["mean_test_score"]
    exact = results["status"] == "exact"
    np.testing.assert_allclose(results["mean_test_score"][exact], truth[exact], rtol=1e-7)
    certified = results["status"] == "certified"
    assert certified.any()
    np.testing.assert_allclose(results["mean_test_score"][certified], truth[certified], atol=0.01)
    assert truth.max() - truth[i] <= 0.01 * (truth.max() - np.median(truth))


@pytest.mark.parametrize(
    "step", [StandardScaler(), SelectKBest(f_regression, k=3)], ids=["scaler", "selection"]
)
def test_pipelines_climb_with_the_rows_of_every_fold(step):
    X, y = data()
    X = X * [1.0, 5.0, 0.2, 1.0, 2.0]
    model = make_pipeline(step, StandardScaler(), KernelRidge(kernel="rbf"))
    search = FastGridSearchCV(model, PIPED, cv=KFold(5, shuffle=True, random_state=0))
    check_against_refits(search.fit(X, y), X, y)
    shared = FastGridSearchCV(model, PIPED, cv=search.cv, n_jobs=2).fit(X, y)
    for key in ("mean_test_score", "status"):
        np.testing.assert_array_equal(shared.cv_results_[key], search.cv_results_[key])


def test_pipelines_of_data_frames_and_other_steps_climb():
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    columns = ColumnTransformer([("some", StandardScaler(), ["a", "b", "d"])])
    model = Pipeline([("columns", columns), ("kernelridge", KernelRidge(kernel="rbf"))])
    grid = {**PIPED, "columns": [columns, "passthrough"]}
    search = FastGridSearchCV(model, grid, cv=KFold(3, shuffle=True, random_state=0))
    check_against_refits(search.fit(frame, y), frame, y)


def test_a_narrow_winner_in_a_pipeline():
    X, y = waves("narrow", 1)
    grid = {"kernelridge__alpha": [1e-3, 1e-1], "kernelridge__gamma": np.logspace(-2, 3, 6)}
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    search = FastGridSearchCV(model, grid, cv=KFold(4, shuffle=True, random_state=0)).fit(X, y)
    truth = GridSearchCV(model, grid, cv=search.cv).fit(X, y).cv_results_["mean_test_score"]
    assert truth.max() - truth[search.best_index_] <= 0.01 * (truth.max() - np.median(truth))


def test_steps_that_fail_or_get_metadata_have_no_ladder():
    X, y = data()
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    search = FastGridSearchCV(model, PIPED, cv=3)
    weights = {"standardscaler__sample_weight": np.ones(len(y))}
    assert search.fit(X, y, **weights).cv_results_["is_exact"].all()
    failing = make_pipeline(FunctionTransformer(_fail), KernelRidge(kernel="rbf"))
    with pytest.raises(ValueError, match="fits failed"):
        FastGridSearchCV(failing, PIPED, cv=3).fit(X, y)


def _fail(X):
    raise ValueError("no rows today")


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
    check_choice(*searches(LSSVC(), grid, xy=(X, labels)))
    check_choice(*searches(LSSVC(), grid, xy=(X, labels), cv=LeaveOneOut()))
    X, y = data()
    w = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5).fit(X, y, sample_weight=w)
    dense = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, operator="dense")
    dense.fit(X, y, sample_weight=w)
    check_choice(search, dense)


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
@pytest.mark.parametrize("cv", [4, 100, LeaveOneOut()], ids=["4", "100", "loo"])
def test_checkers_of_several_classes(multi_class, cv):
    """Squares of a board, too small for low rank, with a class that few rows have."""
    X = np.random.default_rng(0).uniform(0.0, 1.0, (600, 2))
    squares = np.floor(9.0 * X).astype(int).sum(axis=1) % 3
    labels = np.array(["a", "b", "c"])[squares]
    labels[:9] = "rare"
    cv = StratifiedKFold(4) if cv == 4 else cv if cv != 100 else KFold(100)
    model = KernelClassifier(loss="squared", multi_class=multi_class)
    grid = {"gamma": [0.1, 1.0, 300.0], "alpha": [0.01, 0.1]}
    check_choice(*searches(model, grid, xy=(X, labels), cv=cv))


def test_several_scorers_climb_by_the_one_that_refits():
    climbing, dense = searches(scoring=["r2", "neg_mean_absolute_error"], refit="r2")
    check_choice(climbing, dense, "mean_test_r2")


def test_scorers_get_the_metadata_of_their_rows():
    """A scorer that is no known metric is asked in a look, too."""

    def loss(y_true, y_pred, level):
        np.testing.assert_array_equal(y_true, level)
        return np.mean(np.abs(y_true - y_pred) ** 1.5)

    X, y = waves("mixed", 2)
    grid = {"alpha": [1e-3, 1e-1], "gamma": np.logspace(-1, 4, 6)}
    with sklearn.config_context(enable_metadata_routing=True):
        scoring = make_scorer(loss, greater_is_better=False).set_score_request(level=True)
        model = KernelRidge(kernel="rbf")
        climbing, dense = (
            FastGridSearchCV(model, grid, cv=3, scoring=scoring, operator=operator)
            for operator in ("auto", "dense")
        )
        check_choice(climbing.fit(X, y, level=y), dense.fit(X, y, level=y))


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


@pytest.mark.parametrize("easy", [1e9, 0.0])
def test_few_rows_are_iterated_with_where_ridges_leave_little_to_do(monkeypatch, easy):
    monkeypatch.setattr(ladder, "ROWS_A_COLUMN", 50)
    monkeypatch.setattr(ladder, "EASY_RANK", 60)
    monkeypatch.setattr(ladder, "EASY", easy)
    climbing, dense = searches(scoring="neg_mean_squared_error")
    assert ("conjugate gradients" in str(climbing.plan_)) == (easy > 0.0)
    assert climbing.best_params_ == dense.best_params_
    exact = climbing.cv_results_["is_exact"]
    assert exact[climbing.best_index_]
    ours, truth = (s.cv_results_["mean_test_score"] for s in (climbing, dense))
    np.testing.assert_allclose(ours[exact], truth[exact], rtol=1e-7)
    many, _ = searches(scoring="neg_mean_squared_error", cv=KFold(9))
    assert "conjugate gradients" not in str(many.plan_)


@pytest.mark.filterwarnings("ignore:the best:UserWarning", "ignore:the kernel matrix")
@pytest.mark.parametrize("operator", ["auto", Nystrom(20, random_state=0)], ids=["auto", "asked"])
@pytest.mark.parametrize("is_piped", [False, True])
def test_what_does_not_fit_is_neither_climbed_to_nor_refitted(monkeypatch, operator, is_piped):
    """The kernel of low rank that was scored is the one that predicts."""
    X, y = data()
    monkeypatch.setattr("everyfold.operators.nystrom.DEFAULT_LANDMARKS", 20)
    monkeypatch.setattr("everyfold.linalg.memory.TRIFLE", 0)
    for name in ("available_memory", "shared_memory"):
        monkeypatch.setattr(f"everyfold.linalg.memory.{name}", lambda: 24 * len(y) ** 2 - 1)
    model, grid = KernelRidge(kernel="rbf"), GRID
    if is_piped:
        model, grid = make_pipeline(StandardScaler(), model), PIPED
    search = FastGridSearchCV(model, grid, cv=3, operator=operator, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    said = any("does not fit in memory" in str(warning.message) for warning in caught)
    assert said is (operator == "auto")
    assert "best_estimator_ is the KernelRegressor of the same model" in str(search.plan_)
    assert "exact" not in search.cv_results_["status"] or is_piped  # landmarks of each fold
    best = search.best_estimator_[-1] if is_piped else search.best_estimator_
    assert isinstance(best, KernelRegressor)
    assert best.dual_coef_.shape == (20, 1)
    assert best.alpha == search.best_params_["kernelridge__alpha" if is_piped else "alpha"]
    again = FastGridSearchCV(model, grid, cv=3, operator=operator, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert search.score(X, y) > search.best_score_ - 0.05


def test_iterations_that_do_not_end_are_not_called_exact(monkeypatch):
    monkeypatch.setattr(ladder, "ITERATIVE_ROWS", 300)
    short = replace(exact.METHODS["conjugate"], criterion=ConjugateGradient(max_iter=1))
    monkeypatch.setitem(exact.METHODS, "conjugate", short)
    X, y = data()
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, n_confirm=0).fit(X, y)
    dense = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5, operator="dense").fit(X, y)
    ours, truth = (s.cv_results_["mean_test_score"] for s in (search, dense))
    is_exact = search.cv_results_["is_exact"]
    assert not is_exact[search.best_index_]
    assert search.cv_results_["status"][search.best_index_] == "estimated"
    np.testing.assert_allclose(ours[is_exact], truth[is_exact], rtol=1e-6)
    assert search.best_score_ != pytest.approx(truth[search.best_index_], rel=1e-6)


class TestPromises:
    """What a look says of candidates, given what is known of others."""

    @staticmethod
    def state(pilots, full=(), certified=(), best=1.0, rows=400):
        """A kernel for each candidate; ``full`` and ``certified`` are scores by number."""
        found = [
            standings.CandidateState(
                i, 1e-3, i, 1.0, score=0.5, residual=0.5, pilots={1: standings.PilotScore(pilot)}
            )
            for i, pilot in enumerate(pilots)
        ]
        for number, score in dict(full).items():
            found[number].score, found[number].is_full = score, True
        for number, score in dict(certified).items():
            found[number].score, found[number].residual = score, 0.0
        return standings.SearchState(found, "score", views.Scale(best, rows)).predict()

    def test_errors_are_compared_with_that_of_the_best_that_is_known(self):
        state = self.state([0.6, 0.8, 0.7], full={0: 0.5, 2: 0.4})
        share = 1.0 - views.ROUGH - views.DOUBT / 20.0
        assert state.states[1].upper == pytest.approx(1.0 - share * 0.5 * 0.2 / 0.4)
        assert state.states[1].predicted == pytest.approx(1.0 - 0.5 * 0.2 / 0.4)

    def test_full_matrices_tell_more_than_low_ranks(self):
        state = self.state([0.6, 0.8, 0.7], full={0: 0.5}, certified={2: 0.9})
        assert state.states[1].predicted == pytest.approx(1.0 - 0.5 * 0.2 / 0.4)

    def test_without_a_perfect_score_differences_count(self):
        state = self.state([0.6, 0.8], full={0: 0.5}, best=np.nan)
        assert state.states[1].upper == pytest.approx(0.7)

    def test_nothing_known_leaves_the_look_alone(self):
        assert self.state([0.6, 0.8]).states[1].upper == 0.8

    def test_few_rows_leave_more_possible(self):
        few, many = (self.state([0.6, 0.5], {0: 0.6}, rows=m).states[1] for m in (50, 5000))
        assert few.upper > many.upper

    @staticmethod
    def paired(errors, pilots=1, folds=0):
        """Candidates by the errors of the parts of every look; the first is known."""
        found = [
            standings.CandidateState(
                i, 1e-3, i, 1.0, score=0.5, residual=0.5,
                pilots={k: standings.PilotScore(-own.mean(), own) for k in range(1, pilots + 1)},
            )
            for i, own in enumerate(errors)
        ]  # fmt: skip
        found[0].score, found[0].is_full = -float(errors[0].mean()), True
        return standings.SearchState(found, "score", views.Scale(0.0, 400, folds))

    def test_errors_that_go_together_leave_less_possible(self):
        noise = np.random.default_rng(0).uniform(0.5, 1.5, (2, views.PARTS))
        alike, apart = 1.1 * noise[0], 1.1 * noise[1] / noise[1].mean() * noise[0].mean()
        state = self.paired([noise[0], alike, apart]).predict()
        here, there = (state.states[i] for i in (1, 2))
        assert here.predicted == pytest.approx(there.predicted)
        assert here.upper < state.states[0].score < there.upper

    def test_of_neighbours_more_is_held_possible(self):
        scale, errors = views.Scale(0.0, 400), np.random.default_rng(0).uniform(0.5, 1.5, (2, 20))
        for known in ((None, None), tuple(errors)):
            assert scale.doubt(*known, is_wide=True) > 1.5 * scale.doubt(*known)
        assert scale.doubt(errors[0], errors[0]) == views.ROUGH

    def test_rivals_are_those_that_chance_may_have_kept_from_leading(self):
        noise = np.random.default_rng(1).uniform(0.5, 1.5, views.PARTS)
        other = np.random.default_rng(2).uniform(0.5, 1.5, views.PARTS)
        state = self.paired([noise, noise * 1.002, noise * 1.01, other * 1.05, other * 3.0])
        assert state.rivals() == [0, 1, 3]

    def test_all_folds_leave_nothing_to_chance(self):
        noise = np.random.default_rng(1).uniform(0.5, 1.5, views.PARTS)
        other = np.random.default_rng(2).uniform(0.5, 1.5, views.PARTS)
        other *= 1.05 * noise.mean() / other.mean()
        for pilots, rivals in ((1, [0, 1]), (4, [0, 1]), (5, [0])):
            assert self.paired([noise, other], pilots, folds=5).rivals() == rivals

    def test_only_splits_that_both_were_looked_at_on_are_compared(self):
        state = self.state([0.6, 0.8], full={0: 0.5})
        for number, score in ((0, 0.6), (1, 0.1)):
            state.states[number].pilots[2] = standings.PilotScore(score)
        both = state.predict().states[1].predicted
        assert both == pytest.approx(1.0 - 0.5 * 0.55 / 0.4)
        del state.states[0].pilots[2]
        assert state.predict().states[1].predicted == pytest.approx(1.0 - 0.5 * 0.2 / 0.4)

    def test_those_with_most_looks_lead(self):
        state = self.state([0.9, 0.6, 0.58])
        for number in (1, 2):
            state.states[number].pilots[2] = standings.PilotScore(0.6)
        assert state.rivals() == [1, 2]

    def test_the_most_promising_come_first_until_none_is_left(self):
        state = self.state([0.6, 0.9, 0.55, 0.1], full={0: 0.6})
        assert state.next_full()[:2] == [1, 2]
        assert 3 not in state.next_full()


class TestLooks:
    """The split that candidates are looked at on."""

    @pytest.mark.parametrize("name", ["equal", "unequal", "loo", "groups", "repeated"])
    def test_whole_folds_are_held_out_together(self, name):
        folds = cases.folds(name)
        train, test = views.pilot_split(folds, 0)
        held = np.setdiff1d(np.arange(folds.n), train)
        inside = [i for i, rows in enumerate(folds.helds) if np.isin(rows, held).all()]
        assert inside
        np.testing.assert_array_equal(np.unique(test), test)
        assert set(test) <= set(np.concatenate([folds.tests[i] for i in inside]))
        assert not set(train) & set(test)

    def test_so_many_rows_are_tested(self):
        tested = {
            n: len(views.pilot_split(Folds.from_splits(KFold(10).split(np.empty(n)), n), 0)[1])
            for n in (500, 1500, 20_000)
        }
        assert tested == {500: 100, 1500: 300, 20_000: 2000}
        assert len(views.pilot_split(Folds.leave_one_out(900), 0)[1]) == 180

    def test_of_many_rows_some_are_trained_on(self):
        folds = Folds.from_splits(KFold(5).split(np.empty(9000)), 9000)
        train, test = views.pilot_split(folds, 3)
        assert len(train) == len(np.unique(train)) == views.MOST_ROWS
        assert not np.isin(train, test).any()
        np.testing.assert_array_equal(train, views.pilot_split(folds, 3)[0])
        assert not np.array_equal(train, views.pilot_split(folds, 4)[0])

    @pytest.mark.parametrize("name", ["equal", "unequal", "loo", "groups"])
    def test_further_looks_test_other_rows(self, name):
        folds = cases.folds(name)
        count = views.number_of_pilots(folds)
        tests = [views.pilot_split(folds, 0, k)[1] for k in range(1, count + 1)]
        assert 2 <= count <= views.MOST_PILOTS
        assert len(np.unique(np.concatenate(tests))) == sum(map(len, tests))

    def test_looks_are_folds_where_each_is_held_out_alone(self):
        five, ten = (Folds.from_splits(KFold(k).split(np.empty(1000)), 1000) for k in (5, 10))
        many = Folds.from_splits(KFold(5).split(np.empty(4000)), 4000)  # some rows are drawn
        assert [views.pilots_are_folds(folds) for folds in (five, ten, many)] == [
            True,
            False,
            False,
        ]
        for k in range(1, 6):
            train, test = views.pilot_split(five, 0, k)
            assert any(np.array_equal(test, fold.test) for fold in five)
            assert len(train) == 800

    def test_parts_add_up_to_the_error_of_all_rows(self, monkeypatch):
        seen = []
        errors_of = run.errors_of

        def note(outcome, data):
            errors = errors_of(outcome, data)
            seen.append((mean_score(outcome, "score"), errors, data.tasks[0].whole.test.y))
            return errors

        monkeypatch.setattr(run, "errors_of", note)
        X, y = data()
        FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5).fit(X, y)
        assert len(seen) > 20
        for score, errors, truth in seen:
            assert len(errors) == views.PARTS
            assert 1.0 - errors.sum() / np.sum((truth - truth.mean()) ** 2) == pytest.approx(score)

    def test_folds_in_order_are_looked_at_apart(self):
        folds = Folds.from_splits(KFold(40).split(np.empty(4000)), 4000)
        _, test = views.pilot_split(folds, 0)
        assert len(np.unique(test // 1000)) == 4

    def test_refits_confirm_nothing_by_a_look(self):
        """A look is neither exact nor what a candidate scores on its folds."""

        def known(number, score, *, is_look):
            no = np.full(1, np.nan)
            exact = np.array([not is_look])
            found = Outcome(number, np.arange(1), [score], None, exact, no, no, {})
            return replace(found, pilot=int(is_look))

        history = [[known(0, 0.5, is_look=False)], [known(1, 0.9, is_look=True)]]
        confirm = ConfirmByRefit(SingleRound([]), None, "score")
        assert confirm.after(history, SimpleNamespace(n_folds=5)) == []
        inexact = [[known(0, 0.5, is_look=False)], [replace(history[1][0], pilot=0)]]
        assert len(confirm.after(inexact, SimpleNamespace(n_folds=5))) == 2

    def test_scores_are_those_of_refits_on_the_split(self, monkeypatch):
        """What the ladder reads is what a fit on the training rows of the look scores."""
        seen = {}
        predict = standings.SearchState.predict

        def note(state):
            seen.update(state.states)
            return predict(state)

        monkeypatch.setattr(standings.SearchState, "predict", note)
        X, y = data()
        cv = KFold(5, shuffle=True, random_state=0)
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=cv).fit(X, y)
        train, test = views.pilot_split(Folds.from_splits(cv.split(X), len(y)), 0)
        pilots = {number: s.pilots[1].score for number, s in seen.items() if s.pilots}
        assert len(pilots) > 20
        for number, pilot in list(pilots.items())[::5]:
            model = KernelRidge(kernel="rbf", **search.cv_results_["params"][number])
            score = model.fit(X[train], y[train]).score(X[test], y[test])
            assert pilot == pytest.approx(score, abs=2.0 * ladder.PILOT_PRECISION)


class TestEstimates:
    """What the table says of candidates that were looked at and went no further."""

    GRID = {"gamma": np.logspace(-3, 1.5, 8), "alpha": np.logspace(-4, 1, 5)}  # noqa: RUF012

    @pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_looks_tell_more_than_ranks_that_leave_much_out(self, scoring, seed, monkeypatch):
        options = {"grid": self.GRID, "xy": data(500, seed), "scoring": scoring, "refit": False}
        climbing, dense = searches(**options)
        monkeypatch.setattr(ladder.LowRankFirst, "_shifts", lambda *_: {})
        unsettled, _ = searches(**options)
        truth = dense.cv_results_["mean_test_score"]
        error = (1.0 if scoring == "r2" else 0.0) - truth
        ours, before = (
            np.abs(s.cv_results_["mean_test_score"] - truth) / error for s in (climbing, unsettled)
        )
        is_estimated = climbing.cv_results_["status"] == "estimated"
        assert is_estimated.sum() > 10
        np.testing.assert_array_equal(
            climbing.cv_results_["status"], unsettled.cv_results_["status"]
        )
        np.testing.assert_array_equal(ours[~is_estimated], before[~is_estimated])
        assert ours.max() < 0.6 < before.max()
        assert np.median(ours) <= np.median(before)
        # What is exact leads, and folds still add up to their mean.
        assert climbing.best_index_ == unsettled.best_index_
        assert climbing.cv_results_["is_exact"][climbing.best_index_]
        assert climbing.cv_results_["mean_test_score"].max() == pytest.approx(truth.max())
        by_fold = [climbing.cv_results_[f"split{i}_test_score"] for i in range(5)]
        np.testing.assert_allclose(np.mean(by_fold, 0), climbing.cv_results_["mean_test_score"])

    def test_held_out_values_of_all_are_kept(self):
        climbing, _ = searches(grid=self.GRID, keep_predictions="all")
        y = data()[1]
        for number, score in enumerate(climbing.cv_results_["mean_test_score"]):
            values = climbing.out_of_fold(number).values
            if climbing.cv_results_["status"][number] in ("exact", "certified"):
                folds = climbing.cv.split(y)
                scores = [r2_score(y[test], values[test]) for _, test in folds]
                assert np.mean(scores) == pytest.approx(score, abs=1e-10)
            assert np.isfinite(values).all()

    def test_standings_are_made_once_a_round_and_once_in_the_end(self, monkeypatch):
        """Not after every kernel: of thousands of candidates that would take longest of all."""
        made, rounds, replay, after = (
            [],
            [],
            standings.SearchState.replay,
            ladder.LowRankFirst.after,
        )
        monkeypatch.setattr(
            standings.SearchState, "replay", lambda *a: made.append(1) or replay(*a)
        )
        monkeypatch.setattr(ladder.LowRankFirst, "after", lambda *a: rounds.append(1) or after(*a))
        X, y = data()
        FastGridSearchCV(KernelRidge(kernel="rbf"), self.GRID, cv=5, refit=False).fit(X, y)
        assert len(made) == len(rounds) + 2

    def test_every_metric_is_told_by_its_own_looks(self):
        scoring = {"r2": "r2", "mse": "neg_mean_squared_error"}
        options = {"grid": self.GRID, "scoring": scoring, "refit": "r2"}
        climbing, dense = searches(**options)
        for name, perfect in (("r2", 1.0), ("mse", 0.0)):
            truth = dense.cv_results_[f"mean_test_{name}"]
            apart = np.abs(climbing.cv_results_[f"mean_test_{name}"] - truth)
            assert (apart / (perfect - truth)).max() < 0.6

    def test_nothing_estimated_gets_ahead_of_the_best(self):
        found = [
            standings.CandidateState(
                i, 1e-3, i, 1.0, score=0.2, residual=0.5, pilots={1: standings.PilotScore(pilot)}
            )
            for i, pilot in enumerate((0.6, 0.9, 0.1))
        ]
        found[0].score, found[0].is_full = 0.5, True
        state = standings.SearchState(found, "score", views.Scale(1.0, 400)).predict()
        shifts = state.corrections(0.5)
        assert set(shifts) == {1, 2}
        assert 0.2 + shifts[1] < 0.5
        assert shifts[2] < 0.0
        found[2].residual = 0.0  # certified
        assert set(state.corrections(0.5)) == {1}

    @pytest.mark.filterwarnings("ignore:.*pooled")
    @pytest.mark.parametrize("cv", [5, LeaveOneOut()])
    @pytest.mark.parametrize("scoring", ["neg_mean_squared_error", "neg_root_mean_squared_error"])
    def test_the_best_leads_whatever_looks_say_of_the_others(self, cv, scoring, monkeypatch):
        options = {"cv": cv, "scoring": scoring, "grid": self.GRID, "refit": False}
        monkeypatch.setattr(ladder.LowRankFirst, "_shifts", lambda *_: {})
        expected, _ = searches(**options)
        monkeypatch.undo()
        small.__wrapped__(monkeypatch)
        monkeypatch.setattr(views.Scale, "blended", lambda *_: 1e9)
        found, _ = searches(**options)
        assert found.best_index_ == expected.best_index_
        assert found.best_score_ == expected.best_score_
        assert found.cv_results_["is_exact"][found.best_index_]
        ranks = found.cv_results_["rank_test_score"]
        assert np.count_nonzero(ranks == 1) == 1

    def test_a_look_that_tells_little_of_another_is_taken_as_it_is(self):
        noise = np.random.default_rng(3).uniform(0.5, 1.5, (2, views.PARTS))
        alike = standings.Pair(0.5, 0.8, 2.0 * noise[0], noise[0])
        other = standings.Pair(0.5, 0.8, noise[1], noise[0])
        nothing = standings.Pair(0.5, 0.8, None, None)
        flat = standings.Pair(0.5, 0.8, noise[1], np.ones(views.PARTS))
        assert alike.likeness == pytest.approx(1.0)
        assert 0.0 <= other.likeness < 0.6
        assert nothing.likeness == flat.likeness == 1.0

    def test_what_was_refitted_stays(self):
        class Estimated(SingleRound):
            def restated(self, history, data):
                assert not any(outcome.is_refit for outcomes in history for outcome in outcomes)
                return [known(0), known(1)]

        def known(number, **facts):
            no = np.full(1, np.nan)
            found = Outcome(number, np.arange(1), [0.5], None, np.ones(1, dtype=bool), no, no, {})
            return replace(found, **facts)

        confirm = ConfirmByRefit(Estimated([]), None, "score")
        history = [[known(0), known(1)], [known(0, is_refit=True)]]
        assert [outcome.number for outcome in confirm.restated(history, None)] == [1]


class TestNeighbours:
    """The winner is compared with the candidates around it on the full matrix."""

    RIDGES = (0.1, 1.0, 10.0)

    def state(self, *, gain):
        """Four kernels, from narrow to wide, which ranks captured; (2, 1.0) is done and leads."""
        found = [
            standings.CandidateState(3 * k + i, rho, k, 100.0, 0.8, gain, 0.5, upper=0.85)
            for k in range(4)
            for i, rho in enumerate(self.RIDGES)
        ]
        for standing in found:
            standing.width = 0.4 - 0.1 * standing.kernel
        leader = found[7]
        leader.score, leader.is_full = 0.9, True
        return standings.SearchState(found, "score", views.Scale(1.0, 200))

    def test_ridges_beside_it_and_the_next_kernels(self):
        # A look promises 0.85 at most, which settles it, but ranks may still rise to 1.
        assert sorted(self.state(gain=0.1).possible_winners()) == [4, 6, 8, 10]

    def test_what_a_look_excludes_is_left_out(self):
        state = self.state(gain=0.1)
        for number, hope in ((4, 0.89), (6, 0.91), (8, 0.5)):
            state.states[number].wide_upper = hope
        assert sorted(state.possible_winners()) == [6, 10]

    def test_what_ranks_exclude_is_left_out(self):
        assert self.state(gain=0.01).possible_winners() == []

    def test_scores_that_fall_exclude_nothing_far_above_the_ridge(self):
        state = self.state(gain=-0.01)
        state.states[6].rho = 1e-5
        assert state.possible_winners() == [6]

    def test_what_is_certain_is_left_out(self):
        state = self.state(gain=0.1)
        state.states[4].residual = 0.0
        assert sorted(state.possible_winners()) == [6, 8, 10]

    def test_a_kernel_that_no_rank_captures_is_looked_at(self):
        state = self.state(gain=0.01)
        state.states[10].residual = 20.0
        assert state.possible_winners() == [10]

    def test_far_ridges_are_no_neighbours(self):
        state = self.state(gain=0.1)
        for number in (9, 10, 11):
            state.states[number].rho = 1e-3
        assert sorted(state.possible_winners()) == [4, 6, 8]

    def test_a_better_neighbour_leads_on(self):
        state = self.state(gain=0.1)
        for number, score in ((4, 0.89), (6, 0.89), (8, 0.88), (10, 0.92)):
            state.states[number].score, state.states[number].is_full = score, True
        # The kernel of 10 is the last one; those around it that are not done.
        assert sorted(state.possible_winners()) == [9, 11]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_only_many_rows_show(monkeypatch, seed):
    """A sum of squares in 30 dimensions: neither a low rank nor half of the rows can tell it."""
    monkeypatch.setattr(ladder, "FIRST_RANK", 128)
    X = np.random.default_rng(seed).normal(size=(900, 30))
    y = X[:, :3].sum(axis=1) ** 2
    grid = {"alpha": np.logspace(-4, 2, 7), "gamma": np.logspace(-4, 0, 9)}
    climbing, dense = searches(grid=grid, xy=(X, y), refit=False)
    scores = dense.cv_results_["mean_test_score"]
    assert scores.max() - scores[climbing.best_index_] <= 5e-3 * (1.0 - scores.max())
    assert not climbing.cv_results_["is_exact"].all()


def test_what_looks_better_by_chance_hides_no_winner(monkeypatch):
    """The error of the best kernel hardly falls between two samples, and does on all rows."""
    monkeypatch.setattr(ladder, "FIRST_RANK", 128)
    X, y = make_friedman3(1600, noise=0.0, random_state=7)
    chosen = np.random.default_rng(3).permutation(1600)[:700]
    X, y = StandardScaler().fit_transform(X[chosen]), y[chosen]
    y = (y - y.mean()) / y.std()
    grid = {"alpha": np.logspace(-4, 2, 7), "gamma": np.logspace(-3, 1, 10)}
    climbing, dense = searches(grid=grid, xy=(X, y), refit=False)
    scores = dense.cv_results_["mean_test_score"]
    assert scores.max() - scores[climbing.best_index_] <= 5e-3 * (1.0 - scores.max())
