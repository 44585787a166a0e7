"""Hostile input: a clear error that names the argument and the remedy, or the correct answer."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.model_selection import cross_val_predict as refit_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer

from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    InexactWarning,
    KernelClassifier,
    KernelRegressor,
    cross_val_predict,
    cross_val_score,
)
from everyfold.crossval import Folds
from tests import cases, reference

X = cases.features(24)
y = cases.targets(X)[:, 0]
LABELS = np.arange(24) % 2


def with_entry(array, value):
    changed = np.array(array, dtype=float)
    changed.flat[3] = value
    return changed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("run", [cross_val_predict, lambda m, X, y: m.fit(X, y)])
def test_nan_and_infinity(run, value):
    with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
        run(LSSVR(), with_entry(X, value), y)
    with pytest.raises(ValueError, match=r"y contains (NaN|infinity)"):
        run(LSSVR(), X, with_entry(y, value))


@pytest.mark.parametrize("run", [cross_val_predict, lambda m, X, y: m.fit(X, y)])
def test_shapes(run):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        run(LSSVR(), X, y[:-1])
    with pytest.raises(ValueError, match="0 sample"):
        run(LSSVR(), X[:0], y[:0])
    with pytest.raises(ValueError, match=r"y is None|requires y"):
        run(LSSVR(), X, None)


def test_one_row():
    model = LSSVR().fit(X[:1], y[:1])
    assert_allclose(model.predict(X[1:3]), y[0])
    with pytest.raises(ValueError, match="at least 2 rows"):
        cross_val_predict(LSSVR(), X[:1], y[:1], cv=LeaveOneOut())
    with pytest.raises(ValueError, match="n_splits=5 greater than the number of samples"):
        cross_val_predict(LSSVR(), X[:1], y[:1], cv=5)


def test_two_rows_leave_one_out():
    expected = refit_predict(LSSVR(), X[:2], y[:2], cv=LeaveOneOut())
    assert_allclose(cross_val_predict(LSSVR(), X[:2], y[:2], cv=LeaveOneOut()), expected)
    assert_allclose(expected, y[1::-1])


def test_folds_without_rows():
    with pytest.raises(ValueError, match="split 0 leaves no training rows"):
        cross_val_predict(LSSVR(), X, y, cv=[([], np.arange(24))])
    with pytest.raises(ValueError, match="split 0 has no test rows"):
        cross_val_predict(LSSVR(), X, y, cv=[(np.arange(24), [])])
    with pytest.raises(ValueError, match="yields no split"):
        cross_val_score(LSSVR(), X, y, cv=[])
    with pytest.raises(ValueError, match="names test row 99, but there are n_samples=24"):
        cross_val_score(LSSVR(), X, y, cv=[(np.arange(20), [99])])
    with pytest.raises(ValueError, match="not an array of row numbers"):
        cross_val_score(LSSVR(), X, y, cv=[(np.arange(20), [0.5])])


def test_boolean_masks_and_negative_rows_are_row_numbers_too():
    test = np.arange(24) < 5
    ours = cross_val_score(LSSVR(), X, y, cv=[(~test, test)])
    assert_allclose(ours, cross_val_score(LSSVR(), X, y, cv=[(np.arange(5, 24), np.arange(5))]))
    negative = cross_val_score(LSSVR(), X, y, cv=[(np.arange(-19, 0), np.arange(5))])
    assert_allclose(ours, negative)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(24), "sample_weight is zero for every row"),
        (np.r_[-1.0, np.ones(23)], "sample_weight has negative entries"),
        (np.r_[np.nan, np.ones(23)], "sample_weight contains NaN"),
        (np.ones(23), r"sample_weight has shape \(23,\)"),
    ],
)
def test_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        LSSVR().fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match=message):
        cross_val_predict(LSSVR(), X, y, params={"sample_weight": weight})


def test_a_fold_whose_training_rows_weigh_nothing():
    w = np.zeros(24)
    w[:3] = 1.0
    with pytest.raises(ValueError, match="split 0 leaves no training rows with positive"):
        cross_val_predict(LSSVR(), X, y, cv=KFold(4), params={"sample_weight": w})


@pytest.mark.parametrize("model", [LSSVR(), KernelRidge(kernel="rbf"), LSSVR(kernel="linear")])
def test_constant_y(model):
    constant = np.full(24, 3.0)
    expected = refit_predict(model, X, constant, cv=5)
    assert_allclose(cross_val_predict(model, X, constant, cv=5), expected, rtol=1e-10)


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, [[1.0]]])
def test_ridges(alpha):
    with pytest.raises(ValueError, match=r"alpha=.* is not allowed"):
        LSSVR(alpha=alpha).fit(X, y)
    with pytest.raises(ValueError, match=r"alpha=.* is not allowed|The 'alpha' parameter of Kern"):
        cross_val_predict(KernelRidge(alpha=alpha), X, y, fallback="refuse")


@pytest.mark.parametrize("C", [0.0, -2.0, np.inf, "1"])
def test_penalties(C):
    with pytest.raises(ValueError, match=r"C=.* is not allowed"):
        KernelRegressor(C=C).fit(X, y)


def test_ridge_zero():
    # Without operator="dense" columns decide, whose smallest coefficients are taken.
    model = LSSVR(kernel="linear", alpha=0.0, operator="dense")
    singular = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match=r"not positive definite.*increase alpha"):
        cross_val_predict(model, singular, y)
    with pytest.raises(ValueError, match=r"not positive definite.*increase alpha"):
        model.fit(singular, y)
    # A kernel of full rank needs no ridge: interpolation on the training rows of each fold.
    K = np.exp(-5.0 * (X[:, None] - X[None]) ** 2).prod(axis=2)
    model = LSSVR(kernel="precomputed", alpha=0.0)
    folds = Folds.from_splits(KFold(4).split(X), 24)
    expected = reference.held_out(K, y[:, None], np.ones(24), 0.0, True, folds)[:, 0]
    assert_allclose(cross_val_predict(model, K, y, cv=KFold(4)), expected, rtol=1e-7)


def test_least_squares_is_ridge_zero_in_the_primal():
    model = LSSVR(kernel="linear", alpha=0.0)
    from sklearn.linear_model import LinearRegression

    expected = refit_predict(LinearRegression(), X, y, cv=LeaveOneOut())
    assert_allclose(cross_val_predict(model, X, y, cv=LeaveOneOut()), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.ones((24, 3)), r"shape \(24, 3\)"),
        (np.triu(np.ones((24, 24))) + np.eye(24), "not symmetric"),
        (np.diag(np.r_[-3.0, np.ones(23)]), "not positive definite.*clipping"),
    ],
)
def test_precomputed_kernels(K, message):
    for run in (cross_val_predict, lambda m, X, y: m.fit(X, y)):
        with pytest.raises(ValueError, match=message):
            run(LSSVR(kernel="precomputed"), K, y)


def test_a_slightly_indefinite_kernel_gives_the_refits_answer():
    K = np.diag(np.r_[-0.3, np.ones(23)]) + 0.1
    model = KernelRidge(kernel="precomputed", alpha=1.0)
    expected = refit_predict(model, K, y, cv=4)
    assert_allclose(cross_val_predict(model, K, y, cv=4), expected, rtol=1e-8)


@pytest.mark.parametrize("model", [LSSVC(), KernelClassifier()])
def test_one_class(model):
    with pytest.raises(ValueError, match="y has one class only"):
        model.fit(X, np.zeros(24))
    with pytest.raises(ValueError, match="y has one class only"):
        cross_val_predict(model, X, np.zeros(24), cv=3)


def test_classification_targets():
    with pytest.raises(ValueError, match=r"Unknown label type|continuous"):
        LSSVC().fit(X, y)
    with pytest.raises(ValueError, match="class_weight names"):
        LSSVC(class_weight={5: 1.0}).fit(X, LABELS)


def test_parameters_are_named():
    with pytest.raises(ValueError, match="kernel='rfb' is not known; did you mean 'rbf'"):
        LSSVR(kernel="rfb").fit(X, y)
    with pytest.raises(ValueError, match="operator='dens' is not known"):
        LSSVR(operator="dens").fit(X, y)
    with pytest.raises(ValueError, match="loss='sqared'"):
        KernelRegressor(loss="sqared").fit(X, y)
    with pytest.raises(ValueError, match="gamma"):
        LSSVR(gamma=-1.0).fit(X, y)


def test_duplicate_rows_give_the_refits_answer():
    doubled, labels = np.vstack([X, X]), np.r_[y, y + 0.1]
    for model in (LSSVR(alpha=1e-3), KernelRidge(kernel="rbf", alpha=1e-3)):
        for cv in (KFold(6, shuffle=True, random_state=0), LeaveOneOut()):
            expected = refit_predict(model, doubled, labels, cv=cv)
            assert_allclose(cross_val_predict(model, doubled, labels, cv=cv), expected, rtol=1e-8)


def test_rank_one_kernels_give_the_refits_answer():
    for model in (LSSVR(gamma=0.0), LSSVR(gamma=1e-14), KernelRidge(kernel="rbf", gamma=0.0)):
        expected = refit_predict(model, X, y, cv=6)
        assert_allclose(cross_val_predict(model, X, y, cv=6), expected, rtol=1e-8)


def test_memory_is_refused_before_work(monkeypatch):
    monkeypatch.setattr("everyfold.linalg.memory.TRIFLE", 0)
    monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="n_samples=24 rows needs about"):
        cross_val_predict(LSSVR(), X, y)


def test_inexact_results_are_flagged():
    doubled, labels = np.vstack([X, X]), np.r_[y, y + 0.1]
    with pytest.warns(InexactWarning, match="not known to equal a refit"):
        cross_val_predict(LSSVR(alpha=1e-13), doubled, labels, cv=5)


def test_only_folds_that_rounding_spoils_are_blamed_on_it():
    doubled, labels = np.vstack([X, X]), np.r_[y, y + 0.1]
    search = FastGridSearchCV(LSSVR(gamma=0.1), {"alpha": [1e-13, 1.0]}, cv=5, order=1, n_confirm=0)
    with pytest.warns(InexactWarning, match="5 folds of 1 candidate are not known"):
        search.fit(doubled, labels)
    assert not search.cv_results_["is_exact"].any()


# -- kernels that centring leaves little of -------------------------------------------------------


def nearly_constant(gamma, scale=1.0):
    """A kernel whose rows are almost the same to it."""
    return scale * rbf_kernel(X, gamma=gamma)


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_a_nearly_constant_kernel_that_is_centred(scale):
    """The centred matrix is symmetric to the rounding of 1, not to 1e-8 of its own entries."""
    K = nearly_constant(1e-9, scale)
    left = KernelCenterer().fit_transform(K.copy())
    assert np.abs(left - left.T).max() > 1e-8 * np.abs(left).max()
    machine = make_pipeline(KernelCenterer(), KernelRidge(alpha=1e-7 * scale, kernel="precomputed"))
    ours = cross_val_predict(machine, K, y, cv=KFold(4), fallback="refuse")
    theirs = refit_predict(machine, K, y, cv=KFold(4))
    assert_allclose(ours, theirs, atol=1e-6 * np.ptp(theirs))


def test_a_kernel_of_which_centring_leaves_rounding_is_flagged():
    machine = make_pipeline(KernelCenterer(), KernelRidge(alpha=1e-12, kernel="precomputed"))
    with pytest.warns(InexactWarning, match="what centring leaves of a nearly constant kernel"):
        ours = cross_val_predict(machine, nearly_constant(1e-12), y, cv=KFold(4))
    theirs = refit_predict(machine, nearly_constant(1e-12), y, cv=KFold(4))
    assert_allclose(ours, theirs, atol=0.1)
    assert np.abs(ours - theirs).max() > 1e-6


def test_an_asymmetric_kernel_is_refused_before_and_after_centring():
    K = nearly_constant(0.1)
    K[0, 5] += 1e-6
    for steps in ((), (KernelCenterer(),)):
        machine = make_pipeline(*steps, KernelRidge(kernel="precomputed"))
        with pytest.raises(ValueError, match="not symmetric"):
            cross_val_predict(machine, K, y, cv=3)


def test_only_candidates_that_refuse_a_centred_kernel_fail():
    """The library's own machines check their kernel, in a search as when they are fitted."""
    K = nearly_constant(1e-9)
    grid = {"model": [LSSVR(kernel="precomputed"), KernelRidge(kernel="precomputed")]}
    pipeline = Pipeline([("centre", KernelCenterer()), ("model", KernelRidge())])
    with (
        pytest.warns(UserWarning, match="non-finite"),
        pytest.warns(FitFailedWarning, match="not symmetric"),
    ):
        search = FastGridSearchCV(pipeline, grid, cv=KFold(4), fallback="refuse").fit(K, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).tolist() == [False, True]
    with pytest.raises(ValueError, match="not symmetric"):
        pipeline.set_params(model=LSSVR(kernel="precomputed")).fit(K, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores")
@pytest.mark.parametrize("weight", [3, "unbalanced"])
def test_class_weights_that_are_none(weight):
    X, labels = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(ValueError, match="class_weight="):
        LSSVC(class_weight=weight).fit(X, labels)
    with pytest.raises(ValueError, match="class_weight="):
        FastGridSearchCV(LSSVC(), {"class_weight": [weight]}, cv=4).fit(X, labels)
    grid = {"class_weight": [None, weight]}
    search = FastGridSearchCV(LSSVC(), grid, cv=4).fit(X, labels)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]
