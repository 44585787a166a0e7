"""Large arrays: sums over rows without the features of all, and the scores of the other route."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import make_scorer, max_error
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    HuberSVC,
    KernelRegressor,
    Nystrom,
    RandomFourier,
    cross_val_predict,
    cross_val_score,
)
from everyfold.operators.features import FeatureMap
from tests import cases

N = 203
GRID = {"gamma": [0.05, 0.4], "alpha": [1e-3, 0.1, 1.0, 10.0]}
OPERATORS = [
    Nystrom(12, sampling="uniform", random_state=0),
    Nystrom(12, random_state=0),
    RandomFourier(12, random_state=0),
]


def regression(q=1):
    X = cases.features(N)
    y = cases.targets(X, q) + 1000.0
    return X, y[:, 0] if q == 1 else y


@pytest.fixture
def both(monkeypatch):
    """The same work with features in memory and by passes, in batches of few rows."""

    def run(work):
        held = work()
        with monkeypatch.context() as patch:
            patch.setattr("everyfold.operators.lowrank.BLOCK", 100)
            patch.setattr("everyfold.engine.planning.units.ROWS_TO_SUM", 1)
            patch.setattr("everyfold.operators.lowrank.height_of", lambda _: 37)
            patch.setattr("everyfold.crossval.gram_sums.height_of", lambda _: 23)
            return held, work()

    return run


def searches(both, model, grid, data, **options):
    fit_params = options.pop("fit_params", {})
    search = FastGridSearchCV(model, grid, **{"cv": KFold(4), **options})
    return both(lambda: clone(search).fit(*data, **fit_params))


def assert_same(held, passed, rtol=1e-9):
    for name in held.cv_results_:
        if name.startswith(("split", "mean_test")):
            np.testing.assert_allclose(
                passed.cv_results_[name], held.cv_results_[name], rtol=rtol, err_msg=name
            )
    assert "pass" in str(passed.plan_)
    assert "pass" not in str(held.plan_)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error", "neg_max_error"])
def test_scores_are_those_of_the_other_route(both, operator, intercept, scoring):
    model = KernelRegressor(operator=operator, fit_intercept=intercept)
    data = regression(2) if scoring == "r2" else regression()
    held, passed = searches(both, model, GRID, data, scoring=scoring)
    assert_same(held, passed, 1e-9 if intercept else 1e-8)
    np.testing.assert_array_equal(passed.cv_results_["is_exact"], held.cv_results_["is_exact"])
    X = data[0]
    np.testing.assert_allclose(passed.predict(X), held.predict(X), rtol=1e-9)
    is_one = "two passes" not in str(passed.plan_)
    assert is_one == (scoring != "neg_max_error")


@pytest.mark.parametrize("scoring", [["r2", "neg_max_error"], make_scorer(max_error), None])
def test_other_scorers(both, scoring):
    refit = "r2" if isinstance(scoring, list) else True
    model = KernelRegressor(operator=OPERATORS[0])
    assert_same(*searches(both, model, GRID, regression(), scoring=scoring, refit=refit))


@pytest.mark.parametrize(
    "cv",
    [
        KFold(4, shuffle=True, random_state=0),
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        ShuffleSplit(4, test_size=0.2, train_size=0.5, random_state=0),
        TimeSeriesSplit(4),
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [True, False])
def test_folds_and_weights(both, cv, weighted):
    params = {"sample_weight": cases.weights("zeros", N)} if weighted else {}
    model = KernelRegressor(operator=OPERATORS[0])
    held, passed = searches(both, model, GRID, regression(), cv=cv, fit_params=params)
    assert_same(held, passed)


def test_linear_models_of_scikit_learn(both):
    X, y = regression()
    held, passed = searches(both, Ridge(), {"alpha": [1e-3, 1.0]}, (X, y))
    assert_same(held, passed)
    theirs = GridSearchCV(Ridge(), {"alpha": [1e-3, 1.0]}, cv=KFold(4)).fit(X, y)
    np.testing.assert_allclose(
        passed.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-9
    )
    assert passed.cv_results_["is_exact"].all()


def test_sparse_rows_and_pipelines_fitted_once(both):
    X, y = regression()
    sparse = csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    model = KernelRegressor(operator=OPERATORS[0])
    assert_same(*searches(both, model, GRID, (sparse, y)), rtol=1e-8)
    pipeline = make_pipeline(StandardScaler(with_mean=False), model)
    grid = {f"kernelregressor__{name}": values for name, values in GRID.items()}
    options = {"preprocessing": "once", "n_confirm": 0}
    assert_same(*searches(both, pipeline, grid, (sparse, y), **options), rtol=1e-8)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("class_weight", [None, {"red": 3.0}])
def test_classification(both, k, class_weight):
    X, y = regression()
    cuts = np.quantile(y, np.linspace(0, 1, k + 1)[1:-1])
    labels = np.array(["red", "green", "blue"])[np.searchsorted(cuts, y)]
    model = LSSVC(operator=OPERATORS[0], class_weight=class_weight)
    held, passed = searches(both, model, GRID, (X, labels))
    assert_same(held, passed)
    np.testing.assert_array_equal(passed.predict(X), held.predict(X))


def test_a_ridge_for_each_target(both):
    X, Y = regression(2)
    model = KernelRegressor(gamma=0.4, alpha=[0.1, 2.0], operator=OPERATORS[0])
    held, passed = both(lambda: cross_val_predict(model, X, Y, cv=4))
    np.testing.assert_allclose(passed, held, rtol=1e-9)
    held, passed = both(lambda: clone(model).fit(X, Y).predict(X))
    np.testing.assert_allclose(passed, held, rtol=1e-9)


def test_cross_val_functions(both):
    X, y = regression()
    model = KernelRegressor(gamma=0.4, operator=OPERATORS[1])
    for work in (
        lambda: cross_val_predict(model, X, y, cv=5),
        lambda: cross_val_score(model, X, y, cv=5),
        lambda: cross_val_score(model, X, y, cv=5, scoring="neg_median_absolute_error"),
        lambda: cross_val_predict(KernelRidge(alpha=0.3), X, y, cv=5),
    ):
        held, passed = both(work)
        np.testing.assert_allclose(passed, held, rtol=1e-9)


def test_errors_that_are_small_differences_take_values(both):
    X = cases.features(N)
    y = X @ [3.0, -1.0, 2.0] + 1e-7 * np.sin(np.arange(N))
    model, grid = KernelRegressor(kernel="linear", fit_intercept=False), {"alpha": [1e-9]}
    held, passed = searches(both, model, grid, (X, y), scoring="neg_mean_squared_error")
    assert_same(held, passed, rtol=1e-6)


def test_constant_targets_of_a_fold(both):
    X, y = regression()
    y[51:102] = 1000.1
    model = KernelRegressor(operator=OPERATORS[0])
    for scoring in ("r2", "neg_mean_squared_error"):
        assert_same(*searches(both, model, GRID, (X, y), scoring=scoring), rtol=1e-8)


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
def test_dependent_columns_without_a_ridge(both):
    alone, y = regression()
    X = np.column_stack([alone, alone[:, 0]])  # the same predictions as without the last column
    grid = {"alpha": [0.0, 1.0]}
    fits = (LinearRegression(), alone), (Ridge(1.0), X)
    found = [GridSearchCV(model, {}, cv=KFold(4)).fit(rows, y) for model, rows in fits]
    expected = [search.best_score_ for search in found]
    for search in searches(both, Ridge(), grid, (X, y), n_confirm=0):
        np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_what_has_no_sums_holds_the_features(both):
    X, y = regression()
    model = KernelRegressor(gamma=0.4, operator=OPERATORS[0])
    sign = np.where(y > np.median(y), 1, -1)
    many = {"cv": LeaveOneOut(), "scoring": "neg_mean_squared_error"}
    for search, labels in (
        (FastGridSearchCV(model, {"alpha": [1.0]}, **many), y),
        (FastGridSearchCV(model, {"alpha": [1.0]}, cv=4, order=1), y),
        (FastGridSearchCV(HuberSVC(operator=OPERATORS[0]), {"C": [1.0]}, cv=4), sign),
        (FastGridSearchCV(model, {"alpha": [1.0]}, cv=4, return_train_score=True), y),
    ):
        held, passed = both(lambda s=search, t=labels: clone(s).fit(X, t))
        assert str(held.plan_).count("pass") == str(passed.plan_).count("pass")
        name = "mean_test_score"
        np.testing.assert_allclose(passed.cv_results_[name], held.cv_results_[name], rtol=1e-9)


def test_features_of_all_rows_are_never_made(both, monkeypatch):
    X, y = regression()
    search = FastGridSearchCV(KernelRegressor(operator=OPERATORS[0]), GRID, cv=4)
    whole, sizes = FeatureMap.raw, []

    def counted(self, rows):
        sizes.append(rows.shape[0])
        return whole(self, rows)

    monkeypatch.setattr(FeatureMap, "raw", counted)
    both(lambda: sizes.clear() or clone(search).fit(X, y))
    probe = N - 12
    assert max(size for size in sizes if size != probe) == 37
