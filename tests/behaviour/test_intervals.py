"""Prediction intervals equal those of a loop of refits, and of MAPIE where it is installed."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman3, make_regression
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import (
    LSSVR,
    FastCrossConformalRegressor,
    InexactWarning,
    KernelRegressor,
    Nystrom,
    QuadraticSVR,
    RandomFourier,
)

KRR = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.3)
METHODS = ("plus", "base", "minmax")
LEVELS = (0.5, 0.9, 0.95)


def data(n=60, seed=0):
    X, y = make_friedman1(n + 20, 5, noise=1.0, random_state=seed)
    return X[:n], y[:n], X[n:], y[n:]


def brute(estimator, X, y, new, cv, method, level, weights=None, groups=None):
    """MAPIE's definitions, one refit a fold, one new row at a time."""
    n = len(y)
    score, at_new, points = np.empty(n), np.empty((len(new), n)), np.empty(len(new))

    def fit(rows):
        given = {} if weights is None else {"sample_weight": weights[rows]}
        return clone(estimator).fit(X[rows], y[rows], **given)

    for train, test in cv.split(X, y, groups):
        fitted = fit(train)
        score[test] = np.abs(y[test] - fitted.predict(X[test]))
        at_new[:, test] = fitted.predict(new)[:, None]
    whole = fit(np.arange(n)).predict(new)
    place = int(np.ceil(round(level * (n + 1), 9)))  # no level here is hit by rounding
    bounds = np.empty((len(new), 2))
    for i in range(len(new)):
        points[i] = at_new[i].mean()
        if method == "plus":
            bounds[i, 0] = np.sort(at_new[i] - score)[n - place]
            bounds[i, 1] = np.sort(at_new[i] + score)[place - 1]
        else:
            margin = np.sort(score)[place - 1]
            ends = (whole[i],) if method == "base" else at_new[i]
            bounds[i] = min(ends) - margin, max(ends) + margin
    return points, bounds, whole


def compare(estimator, cv, method="plus", tolerance=1e-8, weights=None, groups=None):
    X, y, new, _ = data()
    fit_params = None if weights is None else {"sample_weight": weights}
    ours = FastCrossConformalRegressor(estimator, confidence_level=LEVELS, method=method, cv=cv)
    ours.fit_conformalize(X, y, groups, fit_params)
    points, intervals = ours.predict_interval(new)
    for k, level in enumerate(LEVELS):
        expected, bounds, whole = brute(estimator, X, y, new, cv, method, level, weights, groups)
        assert_allclose(intervals[:, :, k], bounds, rtol=0.0, atol=tolerance * np.abs(bounds).max())
    assert_allclose(points, whole if method == "base" else expected, rtol=tolerance)
    assert_allclose(ours.predict(new, None), whole, rtol=tolerance)
    return ours


SHARED = "from one factorisation"
REFITTED = "fitted one by one"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cv", [LeaveOneOut(), KFold(5), KFold(7, shuffle=True, random_state=0)])
def test_kernel_ridge_equals_a_loop_of_refits(method, cv):
    assert SHARED in compare(KRR, cv, method).how_


@pytest.mark.parametrize(
    "estimator",
    [
        LSSVR(gamma=0.3, alpha=0.1),
        Ridge(alpha=2.0),
        KernelRegressor(kernel="polynomial", degree=2, gamma=0.2, alpha=0.5),
        KernelRegressor(gamma=0.3, operator=RandomFourier(30, random_state=3)),
    ],
)
def test_squared_loss_equals_a_loop_of_refits(estimator):
    for cv in (LeaveOneOut(), KFold(4)):
        assert SHARED in compare(estimator, cv).how_


def test_weights_also_of_zero():
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 60)
    weights[[3, 10]] = 0.0
    for cv in (LeaveOneOut(), KFold(4)):
        assert SHARED in compare(LSSVR(gamma=0.3), cv, weights=weights).how_


def test_groups():
    compare(KRR, GroupKFold(4), groups=np.arange(60) // 4)


@pytest.mark.parametrize("is_routed", [False, True])
def test_groups_of_fit_and_of_fit_conformalize_go_to_the_splitter(is_routed):
    X, y, new, _ = data()
    groups = np.arange(60) // 4
    ours = FastCrossConformalRegressor(KRR, cv=GroupKFold(4))
    expected = brute(KRR, X, y, new, GroupKFold(4), "plus", 0.9, groups=groups)[1]
    with config_context(enable_metadata_routing=is_routed):
        for fit in (clone(ours).fit, clone(ours).fit_conformalize):
            _, bounds = fit(X, y, groups=groups).predict_interval(new)
            assert_allclose(bounds[:, :, 0], expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:the estimator is refitted")
def test_groups_go_to_the_folds_of_a_search_too():
    X, y, *_ = data()
    groups = np.arange(60) // 4
    search = GridSearchCV(KRR, {"alpha": [1e-3, 0.3]}, cv=GroupKFold(3))
    ours = FastCrossConformalRegressor(search, cv=GroupKFold(4)).fit(X, y, groups=groups)
    for train, test in GroupKFold(4).split(X, y, groups):
        fitted = clone(search).fit(X[train], y[train], groups=groups[train])
        residuals = np.abs(y[test] - fitted.predict(X[test]))
        assert_allclose(ours.conformity_scores_[test], residuals, rtol=1e-8)


@pytest.mark.parametrize("estimator", [KRR, make_pipeline(StandardScaler(), KRR)])
def test_groups_among_the_parameters_of_fit_are_refused_with_the_remedy(estimator):
    X, y, *_ = data()
    conformal = FastCrossConformalRegressor(estimator, cv=GroupKFold(4))
    groups = np.arange(60) // 4
    with pytest.raises(ValueError, match=r"'groups'.* pass groups=groups"):
        conformal.fit_conformalize(X, y, groups, fit_params={"groups": groups})


@pytest.mark.parametrize(
    "estimator",
    [
        SVR(C=5.0),
        QuadraticSVR(C=5.0, gamma=0.3),
        make_pipeline(StandardScaler(), KRR),
        LSSVR(gamma="scale"),
        RidgeCV([0.1, 1.0]),
    ],
)
def test_others_by_their_fold_models(estimator):
    assert REFITTED in compare(estimator, KFold(4)).how_


def test_steps_of_a_pipeline_fitted_once():
    """On request, as in a search: the same as with rows that were transformed before."""
    X, y, new, _ = data()
    scaler = StandardScaler().fit(X)
    pipeline = make_pipeline(StandardScaler(), KRR)
    ours = FastCrossConformalRegressor(pipeline, cv=-1, preprocessing="once")
    ours.fit_conformalize(X, y)
    assert SHARED in ours.how_
    assert not ours.is_exact_
    before = FastCrossConformalRegressor(KRR, cv=-1).fit_conformalize(scaler.transform(X), y)
    theirs = before.predict_interval(scaler.transform(new))
    for a, b in zip(ours.predict_interval(new), theirs, strict=True):
        assert_allclose(a, b, rtol=1e-10)
    literal = FastCrossConformalRegressor(pipeline, cv=-1)
    literal.fit_conformalize(X, y)
    bounds = brute(pipeline, X, y, new, LeaveOneOut(), "plus", 0.9)[1]
    assert_allclose(literal.predict_interval(new)[1][:, :, 0], bounds, rtol=1e-8)
    assert REFITTED in literal.how_


def test_precomputed_kernels():
    X, y, new, _ = data()
    K, K_new = rbf_kernel(X, X, 0.3), rbf_kernel(new, X, 0.3)
    for kernel, alike in (
        (KernelRidge(alpha=0.3, kernel="precomputed"), KRR),
        (SVR(kernel="precomputed"), SVR(gamma=0.3)),
    ):
        ours = FastCrossConformalRegressor(kernel, cv=KFold(4)).fit_conformalize(K, y)
        theirs = FastCrossConformalRegressor(alike, cv=KFold(4)).fit_conformalize(X, y)
        pairs = zip(ours.predict_interval(K_new), theirs.predict_interval(new), strict=True)
        for a, b in pairs:
            assert_allclose(a, b, rtol=1e-8)


def test_blocks_of_new_rows(monkeypatch):
    X, y, new, _ = data()
    ours = FastCrossConformalRegressor(KRR, cv=-1).fit_conformalize(X, y)
    whole = ours.predict_interval(new, "median")
    monkeypatch.setattr("everyfold.conformal._BLOCK", 7 * len(y))
    for a, b in zip(ours.predict_interval(new, "median"), whole, strict=True):
        assert_allclose(a, b, rtol=1e-12)


def test_median_and_all_rows():
    X, y, new, _ = data()
    ours = FastCrossConformalRegressor(KRR, cv=-1).fit_conformalize(X, y)
    models = [clone(KRR).fit(np.delete(X, i, 0), np.delete(y, i)) for i in range(len(y))]
    median = np.median([model.predict(new) for model in models], axis=0)
    assert_allclose(ours.predict(new, "median"), median, rtol=1e-8)
    assert_allclose(ours.predict(new, None), clone(KRR).fit(X, y).predict(new), rtol=1e-8)
    residuals = [abs(y[i] - models[i].predict(X[i : i + 1])[0]) for i in range(len(y))]
    assert_allclose(ours.conformity_scores, residuals, rtol=1e-8)


def test_shuffled_folds_by_number_and_seed():
    X, y, new, _ = data()
    ours = FastCrossConformalRegressor(KRR, cv=4, random_state=7).fit_conformalize(X, y)
    folds = KFold(4, shuffle=True, random_state=7)
    theirs = FastCrossConformalRegressor(KRR, cv=folds).fit_conformalize(X, y)
    assert_allclose(ours.predict_interval(new)[1], theirs.predict_interval(new)[1])


@pytest.mark.parametrize("cv", [4, -1])
def test_a_number_of_folds_may_be_numpys(cv):
    X, y = make_friedman1(40, random_state=0)
    plain, numpys = (
        FastCrossConformalRegressor(LSSVR(), cv=number, random_state=0).fit(X, y)
        for number in (cv, np.int64(cv))
    )
    assert_allclose(numpys.conformity_scores_, plain.conformity_scores_, rtol=0)


@pytest.mark.parametrize(
    "estimator", [SVR(), make_pipeline(StandardScaler(with_mean=False), SVR())]
)
def test_new_rows_in_any_sparse_format(estimator):
    X, y = make_friedman1(40, random_state=0)
    rows = sparse.coo_matrix(X)
    conformal = FastCrossConformalRegressor(estimator, cv=3, random_state=0).fit(rows, y)
    assert_allclose(conformal.predict(rows), conformal.predict(rows.tocsr()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [39, 60])
def test_equals_mapie(method, n):
    mapie = pytest.importorskip("mapie.regression", reason="MAPIE is not installed")
    X, y, new, _ = data(n)
    for cv in (5, LeaveOneOut()):
        for estimator in (KRR, Ridge(), SVR()):
            asked = {"confidence_level": list(LEVELS), "method": method, "cv": cv}
            theirs = mapie.CrossConformalRegressor(estimator, **asked, random_state=3)
            ours = FastCrossConformalRegressor(estimator, **asked, random_state=3)
            theirs.fit_conformalize(X, y)
            ours.fit_conformalize(X, y)
            for aggregate in ("mean", None):  # its "median" is the mean
                pairs = zip(
                    ours.predict_interval(new, aggregate),
                    theirs.predict_interval(new, aggregate),
                    strict=True,
                )
                for a, b in pairs:
                    assert_allclose(a, b, rtol=1e-8, atol=1e-8)
            assert_allclose(ours.conformity_scores, theirs.conformity_scores, rtol=1e-8)


# -- coverage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["plus", "base"])
@pytest.mark.parametrize("make", [make_friedman1, make_friedman3, make_regression])
def test_coverage(make, method):
    """Over 30 sets of 100 rows: 90 % up to three standard errors and what n = 100 adds."""
    covered = []
    for seed in range(30):
        X, y = make(600, random_state=seed, noise=1.0)
        X, y = X[:, :10], (y - y.mean()) / y.std()
        ours = FastCrossConformalRegressor(LSSVR(alpha=0.3), method=method, cv=-1)
        ours.fit_conformalize(X[:100], y[:100])
        low, high = ours.predict_interval(X[100:])[1][:, :, 0].T
        covered.append(np.mean((low <= y[100:]) & (y[100:] <= high)))
    error = np.std(covered) / np.sqrt(len(covered))
    assert 0.9 - 3 * error - 0.01 <= np.mean(covered) <= 0.9 + 3 * error + 0.02
    assert error < 0.01


# -- manners ---------------------------------------------------------------------------------------


def test_infinite_bounds_only_if_asked_for():
    X, y, new, _ = data(30)
    ours = FastCrossConformalRegressor(KRR, confidence_level=[0.9, 0.99]).fit_conformalize(X, y)
    with pytest.raises(ValueError, match="needs at least 100 rows, and there are 30"):
        ours.predict_interval(new)
    _, intervals = ours.predict_interval(new, allow_infinite_bounds=True)
    assert np.isfinite(intervals[:, :, 0]).all()
    assert (intervals[:, 0, 1] == -np.inf).all()
    assert (intervals[:, 1, 1] == np.inf).all()


def test_clone_pickle_and_data_frame():
    pandas = pytest.importorskip("pandas")
    X, y, new, _ = data()
    frame, new = (pandas.DataFrame(rows, columns=list("abcde")) for rows in (X, new))
    for estimator in (KRR, make_pipeline(StandardScaler(), KRR)):
        ours = FastCrossConformalRegressor(estimator, cv=KFold(3)).fit_conformalize(frame, y)
        copied = pickle.loads(pickle.dumps(ours))
        assert_allclose(copied.predict_interval(new)[1], ours.predict_interval(new)[1])
        assert clone(ours).get_params(deep=False).keys() == ours.get_params(deep=False).keys()
    with pytest.raises(ValueError, match="features"):
        FastCrossConformalRegressor(KRR).fit_conformalize(X, y).predict(new.to_numpy()[:, :2])


def test_landmarks_are_not_those_of_refits():
    X, y, new, _ = data()
    ours = FastCrossConformalRegressor(
        KernelRegressor(gamma=0.3, operator=Nystrom(60, random_state=0)), cv=KFold(3)
    )
    with pytest.warns(InexactWarning, match="approximation"):
        ours.fit_conformalize(X, y)
    assert not ours.is_exact_
    dense = FastCrossConformalRegressor(KernelRegressor(gamma=0.3), cv=KFold(3))
    dense.fit_conformalize(X, y)  # as many landmarks as rows are no approximation in truth
    assert_allclose(ours.predict(new), dense.predict(new), rtol=1e-4)


def test_foreign_regressors_fall_back():
    X, y, _, _ = data()
    forest = RandomForestRegressor(3, random_state=0)
    with pytest.warns(UserWarning, match="refitted on every fold"):
        FastCrossConformalRegressor(forest, cv=3).fit_conformalize(X, y)
    compare_forest = FastCrossConformalRegressor(forest, cv=KFold(3), fallback="refit")
    compare_forest.fit_conformalize(X, y)
    expected = brute(forest, X, y, X, KFold(3), "plus", 0.9)[1]
    assert_allclose(compare_forest.predict_interval(X)[1][:, :, 0], expected)
    with pytest.raises(TypeError, match="RandomForestRegressor is not supported"):
        FastCrossConformalRegressor(forest, fallback="refuse").fit_conformalize(X, y)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"confidence_level": 90}, "between 0 and 1"),
        ({"confidence_level": [0.9, 1.0]}, "between 0 and 1"),
        ({"confidence_level": []}, "empty"),
        ({"method": "naive"}, "method='naive'"),
        ({"cv": 1}, "cv=1"),
        ({"cv": RepeatedKFold(n_splits=3)}, "partition"),
        ({"cv": TimeSeriesSplit(3)}, "partition"),
        ({"estimator": SVC()}, "is a classifier"),
        ({"estimator": KernelRidge(kernel=RBF(), alpha=-1.0)}, "alpha"),
        ({"estimator": Ridge(alpha=[0.1, 1.0])}, "alpha has 2 entries, but y has 1 targets"),
        ({"estimator": RandomForestRegressor(), "cv": TimeSeriesSplit(3)}, "partition"),
    ],
)
def test_bad_input_is_refused(params, words, monkeypatch):
    def work(*args, **kwargs):
        raise AssertionError("work began")

    for name in ("fold_models", "_fit"):
        monkeypatch.setattr(f"everyfold.engine.kept_models.{name}", work)
    X, y, _, _ = data()
    ours = FastCrossConformalRegressor(**{"estimator": KRR, "fallback": "refit", **params})
    with pytest.raises(ValueError, match=words):
        ours.fit_conformalize(X, y)


def test_bad_targets_and_points():
    X, y, new, _ = data()
    with pytest.raises(ValueError, match="1d array"):
        FastCrossConformalRegressor(KRR).fit_conformalize(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="NaN"):
        FastCrossConformalRegressor(KRR).fit_conformalize(X, np.where(y > 20, np.nan, y))
    ours = FastCrossConformalRegressor(KRR).fit_conformalize(X, y)
    with pytest.raises(ValueError, match="'mean', 'median' or None"):
        ours.predict(new, "mode")
    with pytest.raises(ValueError, match="not fitted"):
        FastCrossConformalRegressor(KRR).predict(new)


def test_constant_targets_have_intervals_of_no_width():
    X, _, new, _ = data()
    ours = FastCrossConformalRegressor(LSSVR(gamma=0.3)).fit_conformalize(X, np.full(len(X), 3.0))
    assert_allclose(ours.predict_interval(new)[1], 3.0, rtol=1e-10)


def test_bundled_data_are_covered():
    X, y = load_diabetes(return_X_y=True)
    train, test = np.arange(len(y)) % 2 == 0, np.arange(len(y)) % 2 == 1
    ours = FastCrossConformalRegressor(KernelRegressor(gamma=5.0, alpha=0.3), cv=-1)
    low, high = ours.fit_conformalize(X[train], y[train]).predict_interval(X[test])[1][:, :, 0].T
    assert 0.84 <= np.mean((low <= y[test]) & (y[test] <= high)) <= 0.96


@parametrize_with_checks([FastCrossConformalRegressor(LSSVR(), cv=3, random_state=0)])
def test_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "rule", [{"func": np.log, "inverse_func": np.exp}, {"transformer": PowerTransformer()}]
)
def test_transformed_targets_are_those_of_fold_models(rule):
    X, y = load_diabetes(return_X_y=True)
    X, y = 20.0 * X[:90], y[:90]
    model = TransformedTargetRegressor(KernelRidge(kernel="rbf", gamma=0.1), **rule)
    ours = FastCrossConformalRegressor(model, cv=KFold(5)).fit_conformalize(X, y)
    errors, values = np.empty(90), np.empty((90, 4))
    for train, test in KFold(5).split(X):
        fitted = clone(model).fit(X[train], y[train])
        errors[test] = np.abs(y[test] - fitted.predict(X[test]))
        values[test] = fitted.predict(X[:4])
    upper = np.sort(values + errors[:, None], axis=0)[int(np.ceil(0.9 * 91)) - 1]
    assert_allclose(ours.predict_interval(X[:4])[1][:, 1, 0], upper)
