"""Nested cross-validation and the choice of a winner, against scikit-learn's loops."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification, make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.model_selection import cross_val_score as their_score
from sklearn.model_selection import cross_validate as their_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

import everyfold.functions.cross_val as functions
import everyfold.functions.nested as nested
from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    cross_val_score,
    cross_validate,
)
from everyfold.crossval.refit import Refit
from everyfold.engine.adaptive.racing import Racing
from everyfold.engine.planning import refit_costs as plainfits
from everyfold.engine.planning.units import Group, Unit
from everyfold.engine.records import Outcome

RIDGES = {"alpha": [1e-3, 1e-1, 1.0], "gamma": [0.3, 1.0]}
COSTS = {"C": [0.3, 3.0], "gamma": [0.03, 0.3]}


@pytest.fixture
def numbers():
    X, y = make_friedman1(70, noise=1.0, random_state=0)
    return X, y


@pytest.fixture
def labels():
    return make_classification(80, 6, n_informative=4, flip_y=0.15, random_state=1)


@pytest.fixture
def shared(monkeypatch):
    """What was done from shared work; empty if the outer folds were left to a search each."""
    found = []
    original = functions.nest

    def spy(request):
        answer = original(request)
        found.append(answer)
        return answer

    monkeypatch.setattr(functions, "nest", spy)
    return found


def both(estimator, grid, X, y, *, inner, scoring=None, refit=True, **how):
    """Our nested scores and scikit-learn's."""
    fast = FastGridSearchCV(estimator, grid, cv=inner, scoring=scoring, refit=refit)
    slow = GridSearchCV(estimator, grid, cv=inner, scoring=scoring, refit=refit)
    return cross_val_score(fast, X, y, **how), their_score(slow, X, y, **how)


@pytest.mark.parametrize(
    "outer", [3, KFold(4, shuffle=True, random_state=0), ShuffleSplit(3, random_state=5)]
)
@pytest.mark.parametrize("inner", [3, ShuffleSplit(4, test_size=0.3, random_state=2)])
def test_kernel_ridge(numbers, shared, outer, inner):
    ours, theirs = both(KernelRidge(kernel="rbf"), RIDGES, *numbers, inner=inner, cv=outer)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (SVC(), COSTS),
        (SVC(), {"C": [0.3, 3.0, 30.0]}),  # gamma="scale": every fold has a kernel of its own
        (LSSVC(), {"alpha": [0.1, 1.0, 10.0], "gamma": [0.03, 0.3]}),
        (make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.3, 3.0, 30.0]}),
    ],
    ids=["svc", "scale", "lssvc", "pipeline"],
)
def test_classifiers(labels, shared, estimator, grid):
    inner = StratifiedKFold(3, shuffle=True, random_state=np.random.RandomState(0))
    ours, theirs = both(estimator, grid, *labels, inner=inner, cv=4)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_three_classes_and_weights(shared):
    X, y = make_classification(90, 6, n_informative=4, n_classes=3, random_state=2)
    params = {"sample_weight": np.random.default_rng(0).uniform(0.5, 2.0, 90)}
    ours, theirs = both(SVC(), COSTS, X, y, inner=3, cv=3, params=params)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_candidates_that_are_better_refitted_leave_the_others_their_shared_work(
    labels, shared, monkeypatch
):
    X, y = labels
    monkeypatch.setattr(plainfits, "LEAST", 0.0)
    monkeypatch.setattr(plainfits, "CALLS", 0.0)
    monkeypatch.setattr(
        plainfits,
        "fit_seconds",
        lambda own, *_: 0.0 if isinstance(own, LogisticRegression) else np.inf,
    )
    grid = [
        {"m": [LogisticRegression()], "m__C": [0.1, 1.0]},
        {"m": [SVC()], "m__C": [0.1, 1.0, 10.0], "m__gamma": [0.03, 0.3]},
    ]
    model = Pipeline([("m", SVC())])
    ours, theirs = both(model, grid, X, y, inner=3, cv=4)
    np.testing.assert_array_equal(ours, theirs)
    assert shared
    ours, theirs = both(model, grid[:1], X, y, inner=3, cv=4)
    np.testing.assert_array_equal(ours, theirs)
    assert len(shared) == 1  # refits alone share nothing


def test_weights_count_within_as_in_the_loop(numbers, shared):
    """Where fits get weights, scikit-learn's search scores its folds with them."""
    fine = {"alpha": np.logspace(-4, 1, 8), "gamma": [0.3, 1.0]}
    weights = np.random.default_rng(2).exponential(size=70) ** 2
    how = {"inner": 3, "cv": 4, "params": {"sample_weight": weights}}
    ours, theirs = both(KernelRidge(kernel="rbf"), fine, *numbers, **how)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [(SVC(), COSTS), (LSSVC(), {"alpha": [0.1, 1.0], "gamma": [0.03, 0.3]})],
)
def test_groups_of_both_loops(labels, shared, estimator, grid):
    groups = np.random.default_rng(3).integers(0, 12, 80)
    how = {"groups": groups, "params": {"groups": groups}, "cv": GroupKFold(4)}
    ours, theirs = both(estimator, grid, *labels, inner=GroupKFold(3), **how)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_groups_of_kernel_ridge(numbers, shared):
    groups = np.random.default_rng(3).integers(0, 12, 70)
    how = {"groups": groups, "params": {"groups": groups}, "cv": GroupKFold(4)}
    ours, theirs = both(KernelRidge(kernel="rbf"), RIDGES, *numbers, inner=GroupKFold(3), **how)
    assert shared
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


class TestCostly:
    """Searches that together are costly begin at low rank, each on the rows of its outer fold."""

    GRID = {"alpha": np.logspace(-3, 1, 5), "gamma": np.logspace(-2, 1, 4)}  # noqa: RUF012

    @pytest.fixture
    def rows(self):
        return make_friedman1(360, noise=1.0, random_state=3)

    @pytest.fixture
    def climbed(self, monkeypatch):
        """The winners of searches that began at low rank."""
        monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.COSTLY_ROWS", 200)
        monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.COSTLY_SECONDS", 0.0)
        monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.FIRST_RANK", 64)
        monkeypatch.setattr(
            "everyfold.engine.adaptive.low_rank_first.LowRankFirst.is_quicker", lambda *_: True
        )
        found, original = [], nested._winners_from_low_rank

        def spy(*args):
            winners = original(*args)
            found.extend(winners)
            return winners

        monkeypatch.setattr(nested, "_winners_from_low_rank", spy)
        return found

    @pytest.mark.parametrize("model", [KernelRidge(kernel="rbf"), LSSVR()], ids=str)
    @pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
    def test_scores_are_those_of_the_loop(self, rows, climbed, model, scoring):
        outer, inner = KFold(3, shuffle=True, random_state=0), KFold(4)
        how = {"inner": inner, "cv": outer, "scoring": scoring}
        ours, theirs = both(model, KERNELS, *rows, **how)
        assert len(climbed) == 3
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)

    def test_groups_and_weights(self, rows, climbed):
        X, y = rows
        groups = np.arange(len(y)) % 12
        fast = FastGridSearchCV(KernelRidge(kernel="rbf"), KERNELS, cv=GroupKFold(3))
        slow = GridSearchCV(KernelRidge(kernel="rbf"), KERNELS, cv=GroupKFold(3))
        how = {"cv": GroupKFold(4), "params": {"groups": groups}}
        with sklearn.config_context(enable_metadata_routing=True):
            ours, theirs = cross_val_score(fast, X, y, **how), their_score(slow, X, y, **how)
        assert len(climbed) == 4
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)

    @pytest.mark.parametrize("option", [{"order": "exact"}, {"operator": "dense"}])
    def test_exact_searches_do_not(self, rows, climbed, option):
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), KERNELS, cv=3, **option)
        assert len(cross_val_score(search, *rows, cv=3)) == 3
        assert not climbed

    def test_quick_searches_do_not(self, rows, climbed, monkeypatch):
        monkeypatch.setattr("everyfold.engine.adaptive.low_rank_first.COSTLY_SECONDS", 1e9)
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), KERNELS, cv=3)
        assert len(cross_val_score(search, *rows, cv=3)) == 3
        assert not climbed


def test_another_metric_outside_and_several_inside(numbers, shared):
    names = ["r2", "neg_mean_absolute_error"]
    how = {"inner": 3, "scoring": names, "refit": names[1], "cv": 3}
    ours, theirs = both(KernelRidge(kernel="rbf"), RIDGES, *numbers, **how)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    fast = FastGridSearchCV(KernelRidge(kernel="rbf"), RIDGES, cv=3)
    ours = cross_val_score(fast, *numbers, cv=3, scoring="neg_median_absolute_error")
    slow = GridSearchCV(KernelRidge(kernel="rbf"), RIDGES, cv=3)
    theirs = their_score(slow, *numbers, cv=3, scoring="neg_median_absolute_error")
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    assert len(shared) == 2


def test_cross_validate(labels):
    how = {"scoring": ["accuracy", "roc_auc"], "cv": 3, "return_train_score": True}
    ours = cross_validate(FastGridSearchCV(SVC(), COSTS, cv=3), *labels, **how)
    theirs = their_validate(GridSearchCV(SVC(), COSTS, cv=3), *labels, **how)
    assert set(ours) == set(theirs)
    for name in ("test_accuracy", "test_roc_auc", "train_accuracy", "train_roc_auc"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=2e-3)
    fitted = cross_validate(
        FastGridSearchCV(SVC(), COSTS, cv=3), *labels, cv=3, return_estimator=True
    )
    assert [search.best_params_ for search in fitted["estimator"]] == [
        GridSearchCV(SVC(), COSTS, cv=3).fit(labels[0][train], labels[1][train]).best_params_
        for train, _ in StratifiedKFold(3).split(*labels)
    ]


@pytest.mark.parametrize(
    "how",
    [
        {"cv": LeaveOneOut(), "scoring": "neg_mean_squared_error"},
        {"scoring": lambda model, X, y: -np.max(np.abs(model.predict(X) - y))},
        {"refit": lambda results: int(np.argmin(results["mean_test_score"]))},
        {"cv": ShuffleSplit(21, random_state=0)},
    ],
    ids=["single rows", "callable", "rule", "many folds"],
)
def test_what_searches_of_their_own_do(numbers, how):
    """Where folds are not shared, every outer fold is an ordinary search, with the same scores."""
    numbers, how = [part[:24] for part in numbers], {"cv": 3, **how}
    fast = FastGridSearchCV(KernelRidge(kernel="rbf"), {"alpha": [0.1, 1.0]}, **how)
    slow = GridSearchCV(KernelRidge(kernel="rbf"), {"alpha": [0.1, 1.0]}, **how)
    np.testing.assert_allclose(
        cross_val_score(fast, *numbers, cv=3), their_score(slow, *numbers, cv=3), rtol=1e-7
    )


def test_randomised_search(numbers, shared):
    lists = {"alpha": [1e-3, 1e-1, 1.0, 10.0], "gamma": [0.3, 1.0]}
    search = FastRandomizedSearchCV(KernelRidge(kernel="rbf"), lists, n_iter=4, random_state=0)
    ours = cross_val_score(search, *numbers, cv=3)
    assert shared
    np.testing.assert_allclose(ours, their_score(search, *numbers, cv=3), rtol=1e-8)


def test_outer_folds_of_one_row(numbers, labels):
    X, y = labels[0][:30], labels[1][:30]
    grid = {"alpha": [0.1, 1.0]}
    fast, slow = FastGridSearchCV(LSSVC(), grid, cv=3), GridSearchCV(LSSVC(), grid, cv=3)
    ours = cross_val_score(fast, X, y, cv=LeaveOneOut())
    np.testing.assert_array_equal(ours, their_score(slow, X, y, cv=LeaveOneOut()))
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3)
    X, y = [part[:12] for part in numbers]
    with pytest.warns(UserWarning, match="not well-defined"):
        assert np.isnan(cross_val_score(search, X, y, cv=LeaveOneOut())).all()
    with pytest.raises(ValueError, match="pooled=True cannot be combined with a search"):
        cross_val_score(search, X, y, cv=LeaveOneOut(), pooled=True)


def test_failing_folds_count_as_in_the_loop(labels):
    X, y = labels[0], np.repeat([0, 1], 40)
    with pytest.raises(ValueError, match="fits failed"):
        their_score(GridSearchCV(SVC(), COSTS, cv=3), X, y, cv=KFold(2))
    with pytest.raises(ValueError, match="fits failed"):
        cross_val_score(FastGridSearchCV(SVC(), COSTS, cv=3), X, y, cv=KFold(2))


# -- one standard error ------------------------------------------------------------------------


def by_hand(results, ridge):
    """The rule in plain words: the largest ridge whose mean is within one standard error."""
    names = [name for name in results if name.startswith("split") and "_test_" in name]
    table = np.array([results[name] for name in names])
    means = table.mean(axis=0)
    best = int(np.argmax(means))
    bound = means[best] - table[:, best].std(ddof=1) / np.sqrt(len(table))
    near = [i for i in range(len(means)) if means[i] >= bound]
    return max(near, key=lambda i: (ridge(results["params"][i]), means[i]))


def test_one_standard_error(numbers, labels):
    fine = {"alpha": np.logspace(-3, 2, 12), "gamma": [0.3, 1.0]}
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), fine, refit="one_standard_error")
    search.fit(*numbers)
    expected = by_hand(search.cv_results_, lambda params: params["alpha"])
    assert search.best_index_ == expected != np.argmax(search.cv_results_["mean_test_score"])
    assert search.best_estimator_.alpha == search.best_params_["alpha"]
    assert search.best_score_ == search.cv_results_["mean_test_score"][expected]
    fine = {"C": np.logspace(-2, 2, 9), "gamma": [0.1, 0.3]}
    search = FastGridSearchCV(SVC(), fine, refit="one_standard_error").fit(*labels)
    assert search.best_index_ == by_hand(search.cv_results_, lambda params: -params["C"])


def test_one_standard_error_within_outer_folds(numbers, shared):
    fine = {"alpha": np.logspace(-3, 2, 12), "gamma": [0.3, 1.0]}

    def rule(results):
        return by_hand(results, lambda params: params["alpha"])

    search = FastGridSearchCV(KernelRidge(kernel="rbf"), fine, refit="one_standard_error", cv=3)
    slow = GridSearchCV(KernelRidge(kernel="rbf"), fine, refit=rule, cv=3)
    ours = cross_val_score(search, *numbers, cv=3)
    assert shared
    np.testing.assert_allclose(ours, their_score(slow, *numbers, cv=3), rtol=1e-8)


def test_one_standard_error_needs_one_metric_and_folds(numbers):
    search = FastGridSearchCV(
        KernelRidge(kernel="rbf"),
        RIDGES,
        scoring=["r2", "neg_max_error"],
        refit="one_standard_error",
    )
    with pytest.raises(ValueError, match="needs one metric"):
        search.fit(*numbers)
    search = FastGridSearchCV(
        KernelRidge(kernel="rbf"), RIDGES, criterion="gcv", refit="one_standard_error"
    )
    with pytest.raises(ValueError, match="needs scores of folds"):
        search.fit(*numbers)


def test_one_standard_error_needs_a_ridge_before_any_work(numbers, monkeypatch):
    fits = []
    monkeypatch.setattr(DecisionTreeRegressor, "fit", lambda self, *rows: fits.append(1) or self)
    search = FastGridSearchCV(
        DecisionTreeRegressor(), {"max_depth": [2, 3]}, refit="one_standard_error", fallback="refit"
    )
    with pytest.raises(ValueError, match="prefers larger ridges"):
        search.fit(*numbers)
    assert not fits


KERNELS = {"alpha": np.logspace(-3, 1, 8), "gamma": np.logspace(-3, 2, 6)}


class TestRace:
    """Kernels that cannot win any more are left out of further folds, and nothing else changes."""

    @staticmethod
    def counted(monkeypatch):
        """How many training sets are fitted."""
        counts = []
        solve = Refit.solve

        def counting(self, problems, part, *rest, **more):
            counts.append(len(part.train))
            return solve(self, problems, part, *rest, **more)

        monkeypatch.setattr(Refit, "solve", counting)
        return counts

    @pytest.mark.parametrize("scoring", [None, "r2", "neg_mean_squared_error"])
    def test_winners_are_those_of_all_folds_from_fewer_fits(self, monkeypatch, scoring):
        X, y = make_friedman1(300, noise=0.5, random_state=0)
        outer, inner = KFold(3), KFold(4, shuffle=True, random_state=1)
        counts = self.counted(monkeypatch)
        ours, theirs = (
            function(kind(KernelRidge(kernel="rbf"), KERNELS, cv=inner, scoring=scoring), X, y,
                     cv=outer, scoring=scoring)
            for function, kind in (
                (cross_val_score, FastGridSearchCV), (their_score, GridSearchCV)
            )
        )  # fmt: skip
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        assert 3 * 6 + 3 * 3 <= len(counts) <= 0.75 * 3 * 4 * 6

    @pytest.mark.parametrize(
        "refit", ["one_standard_error", lambda results: 3], ids=["error", "own"]
    )
    def test_rules_that_look_at_all_candidates_get_all(self, monkeypatch, refit):
        X, y = make_friedman1(300, noise=0.5, random_state=0)
        counts = self.counted(monkeypatch)
        search = FastGridSearchCV(
            KernelRidge(kernel="rbf"), KERNELS, cv=KFold(4), refit=refit, scoring="r2"
        )
        cross_val_score(search, X, y, cv=KFold(3), scoring="r2")
        assert len(counts) >= 3 * 4 * 6

    def test_the_one_of_several_metrics_that_decides(self, monkeypatch):
        X, y = make_friedman1(300, noise=0.5, random_state=1)
        metrics = {"scoring": ["r2", "neg_mean_squared_error"], "refit": "neg_mean_squared_error"}
        counts = self.counted(monkeypatch)
        found = [
            function(kind(KernelRidge(kernel="rbf"), KERNELS, cv=KFold(4), **metrics), X, y,
                     cv=KFold(3), scoring="r2")
            for function, kind in (
                (cross_val_score, FastGridSearchCV), (their_score, GridSearchCV)
            )
        ]  # fmt: skip
        np.testing.assert_allclose(*found, rtol=1e-9)
        assert 0 < len(counts) < 3 * 4 * 6

    def test_candidates_that_tie_all_go_on(self):
        """The first of equal candidates wins, as in scikit-learn, whichever ran through first."""
        units = [Unit(((Group((k,), None),),), None, None, frozenset(), "") for k in range(3)]
        race = Racing(units, [(0, 1)], "score", np.ones(2))

        def known(number, folds, score):
            n = len(folds)
            empty = np.full(n, np.nan)
            return Outcome(
                number, np.array(folds), [score] * n, None, np.ones(n, bool), empty, empty, {}
            )

        first = [known(0, [0], 0.5), known(1, [0], 0.5), known(2, [0], -0.5)]
        (unit,) = race.after([first], None)
        assert (unit.numbers, unit.folds) == ([0], (1,))
        history = [first, [known(0, [1], 0.5)]]
        assert [(u.numbers, u.folds) for u in race.after(history, None)] == [([1], (1,))]
        lost = [first, [known(0, [1], 0.9)], [known(1, [1], 0.5)]]
        assert race.after(lost, None) == []
        assert [u.numbers for u in race.after([first, [known(0, [1], -1.5)]], None)] == [[1], [2]]
