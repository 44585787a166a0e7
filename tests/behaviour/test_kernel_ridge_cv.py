"""KernelRidgeCV and KernelRidgeClassifierCV against refits of every fold, alpha and gamma."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import accuracy_score, get_scorer, make_scorer, max_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import (
    LSSVC,
    LSSVR,
    InexactWarning,
    KernelRidgeClassifierCV,
    KernelRidgeCV,
    Nystrom,
    cross_val_predict,
)
from everyfold.kernel_ridge import ridge_scores
from everyfold.kernel_ridge.selection import best_gamma
from everyfold.operators import FixedLandmarks

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3))
Y = np.column_stack(
    [np.sin(2.0 * X[:, 0]), X[:, 1] + 0.3 * RANDOM.normal(size=60), RANDOM.normal(size=60)]
)
ALPHAS, GAMMAS = [0.01, 0.3, 3.0, 40.0], [0.05, 0.4, 1.5]
GROUPS = np.arange(60) // 7


def refitted(alphas, gammas, folds, metric, y=Y, kernel="rbf"):
    """The score of every gamma, alpha and target by refits, (gammas, alphas, targets)."""
    table = np.empty((len(gammas), len(alphas), y.shape[1]))
    for i, gamma in enumerate(gammas):
        for j, alpha in enumerate(alphas):
            scores = []
            for train, test in folds:
                model = KernelRidge(kernel=kernel, alpha=alpha, gamma=gamma, coef0=1.0)
                values = model.fit(X[train], y[train]).predict(X[test])
                scores.append([metric(y[test, k], values[:, k]) for k in range(y.shape[1])])
            table[i, j] = np.mean(scores, axis=0)
    return table


def r2(y, values):
    return 1.0 - ((y - values) ** 2).sum() / ((y - y.mean()) ** 2).sum()


def loss(y, values):
    return -((y - values) ** 2).mean()


FOLDS = {
    "4-fold": KFold(4),
    "shuffled": KFold(5, shuffle=True, random_state=0),
    "repeated": ShuffleSplit(4, test_size=0.3, random_state=0),
    "series": TimeSeriesSplit(4),
    "groups": GroupKFold(3),
}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_scores_are_those_of_refits(name, kernel):
    cv, groups = FOLDS[name], GROUPS if name == "groups" else None
    table = refitted(ALPHAS, GAMMAS, list(cv.split(X, Y, groups)), r2, kernel=kernel)
    model = KernelRidgeCV(
        ALPHAS, kernel=kernel, gamma=GAMMAS, cv=cv, fit_intercept=False, alpha_per_target=True
    ).fit(X, Y, groups=groups)
    np.testing.assert_allclose(model.scores_, table, rtol=1e-8, atol=1e-10)
    i = int(np.argmax(table.max(axis=1).mean(axis=1)))
    assert model.gamma_ == GAMMAS[i]
    np.testing.assert_array_equal(model.alpha_, np.array(ALPHAS)[table[i].argmax(axis=0)])
    np.testing.assert_allclose(model.best_score_, table[i].max(axis=0), rtol=1e-8)
    winner = KernelRidge(kernel=kernel, alpha=model.alpha_, gamma=model.gamma_).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), winner.predict(X), rtol=1e-7, atol=1e-9)
    assert model.is_exact_


def test_leave_one_out_is_that_of_refits_and_shares_an_alpha():
    table = refitted(ALPHAS, GAMMAS, list(LeaveOneOut().split(X)), loss).mean(axis=2)
    model = KernelRidgeCV(ALPHAS, gamma=GAMMAS, fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(model.scores_.mean(axis=2), table, rtol=1e-8)
    i, j = np.unravel_index(table.argmax(), table.shape)
    assert (model.gamma_, model.alpha_) == (GAMMAS[i], ALPHAS[j])
    assert model.best_score_ == pytest.approx(table.max(), rel=1e-8)


@pytest.mark.parametrize("scoring", ["neg_mean_absolute_error", make_scorer(max_error)])
@pytest.mark.parametrize("per_target", [True, False])
def test_any_scorer(scoring, per_target):
    scorer = get_scorer(scoring)
    y = Y if scoring == "neg_mean_absolute_error" or per_target else Y[:, 0]
    model = KernelRidgeCV(
        ALPHAS, gamma=0.4, cv=3, scoring=scoring, alpha_per_target=per_target, fit_intercept=False
    ).fit(X, y)
    metric = scorer._score_func
    table = refitted(
        ALPHAS,
        [0.4],
        list(KFold(3).split(X)),
        lambda y, values: scorer._sign * metric(y, values),
        y.reshape(60, -1),
    )
    best = table[0].max(axis=0) if per_target else table[0].mean(axis=1).max()
    np.testing.assert_allclose(model.best_score_, best, rtol=1e-8)


def test_intercept_and_weights_as_in_the_estimator_itself():
    weights = np.where(np.arange(60) % 9 == 0, 0.0, RANDOM.uniform(0.5, 2.0, 60))
    model = KernelRidgeCV([0.3], gamma=0.4).fit(X, Y[:, 0], weights)
    squares = []
    for train, test in LeaveOneOut().split(X):
        own = LSSVR(gamma=0.4, alpha=0.3).fit(X[train], Y[train, 0], weights[train])
        squares.append(weights[test] * (own.predict(X[test]) - Y[test, 0]) ** 2)
    assert model.best_score_ == pytest.approx(-np.mean(squares), rel=1e-9)
    own = LSSVR(gamma=0.4, alpha=0.3).fit(X, Y[:, 0], weights)
    np.testing.assert_allclose(model.predict(X), own.predict(X), rtol=1e-10)


@pytest.mark.parametrize("width", [2, 90])
@pytest.mark.parametrize("cv", [None, 4])
@pytest.mark.parametrize("intercept", [True, False])
def test_more_targets_than_rows_are_scored_as_each_alone(width, cv, intercept, monkeypatch):
    monkeypatch.setattr(ridge_scores, "CHUNK", 60 * 7)  # seven targets at a time
    alphas = np.logspace(-4, 3, 12)
    many = X @ RANDOM.normal(size=(3, width)) + RANDOM.normal(size=(60, width)) + 100.0
    given = {"gamma": 0.3, "cv": cv, "alpha_per_target": True, "fit_intercept": intercept}
    model = KernelRidgeCV(alphas, **given).fit(X, many)
    for k in range(0, width, 13):
        alone = KernelRidgeCV(alphas, **given).fit(X, many[:, k])
        assert alone.alpha_ == model.alpha_[k]
        assert alone.best_score_ == pytest.approx(model.best_score_[k], rel=1e-8)
        np.testing.assert_allclose(alone.predict(X[:5]), model.predict(X[:5])[:, k], rtol=1e-7)
    shared = KernelRidgeCV(alphas, **given | {"alpha_per_target": False}).fit(X, many)
    np.testing.assert_allclose(shared.scores_, model.scores_, rtol=1e-9)


@pytest.mark.parametrize("columns", [3, 80])
@pytest.mark.parametrize("scoring", [None, "r2"])
def test_a_linear_kernel_is_ridge_cv(columns, scoring):
    rows = np.hstack([X, RANDOM.normal(size=(60, columns - 3))])
    weights = RANDOM.uniform(0.5, 2.0, 60)
    given = {"alpha_per_target": True, "store_cv_results": True, "scoring": scoring}
    theirs = RidgeCV(ALPHAS, **given).fit(rows, Y, weights)
    ours = KernelRidgeCV(ALPHAS, kernel="linear", **given).fit(rows, Y, weights)
    np.testing.assert_array_equal(ours.alpha_, theirs.alpha_)
    np.testing.assert_allclose(ours.best_score_, theirs.best_score_, rtol=1e-9)
    np.testing.assert_allclose(ours.cv_results_, theirs.cv_results_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(rows), rtol=1e-8, atol=1e-10)


def test_folds_that_are_no_removals_are_refitted():
    splits = [(RANDOM.integers(0, 60, 50), np.arange(i, 60, 3)) for i in range(3)]
    table = refitted(ALPHAS, [0.4], splits, r2)
    model = KernelRidgeCV(
        ALPHAS, gamma=0.4, cv=splits, fit_intercept=False, alpha_per_target=True
    ).fit(X, Y)
    np.testing.assert_allclose(model.scores_, table, rtol=1e-7)


# -- gamma="tune" ----------------------------------------------------------------------------------


def test_a_tuned_gamma_is_as_good_as_a_grid_and_its_score_is_that_of_refits():
    rows, y = load_diabetes(return_X_y=True)
    model = KernelRidgeCV(random_state=0).fit(rows, y)
    scaled = rows * model.scale_
    own = LSSVR(gamma=model.gamma_, alpha=model.alpha_)
    held = cross_val_predict(own, scaled, y, cv=len(y))
    assert model.best_score_ == pytest.approx(-np.mean((held - y) ** 2), rel=1e-9)
    np.testing.assert_allclose(model.predict(rows), own.fit(scaled, y).predict(scaled), rtol=1e-8)
    grid = KernelRidgeCV(np.logspace(-4, 2, 13), gamma=np.logspace(-4, 1, 11), scale="robust")
    assert model.best_score_ > grid.fit(rows, y).best_score_ * 1.002  # scores are negative


@pytest.mark.parametrize("power", [-5.3, -2.0, -0.4, 0.0, 1.2, 2.7])
def test_the_search_of_gamma_ends_at_the_peak(power):
    tried = []

    def score(gamma):
        tried.append(gamma)
        return -1.0 - (np.log10(gamma / 7.0) - power) ** 2

    assert np.log10(best_gamma(score, score, 7.0) / 7.0) == pytest.approx(power, abs=1e-6)
    assert len(tried) < 17


def test_the_search_of_gamma_stays_where_wider_kernels_are_no_better():
    noise = np.random.default_rng(0)
    gamma = best_gamma(*[lambda g: -max(1.0, g) - 1e-4 * noise.uniform()] * 2, 1.0)
    assert 0.1 < gamma <= 1.0
    assert best_gamma(*[lambda g: np.nan] * 2, 3.0) == 3.0


def test_leave_one_out_by_landmarks_is_that_of_refits():
    operator, y = FixedLandmarks(X[:15]), Y[:, :2]
    model = KernelRidgeCV(ALPHAS, gamma=0.4, operator=operator).fit(X, y)
    squares = np.empty((len(ALPHAS), *y.shape))
    for train, test in LeaveOneOut().split(X):
        for k, alpha in enumerate(ALPHAS):
            own = LSSVR(gamma=0.4, alpha=alpha, operator=operator).fit(X[train], y[train])
            squares[k, test] = (own.predict(X[test]) - y[test]) ** 2
    np.testing.assert_allclose(model.scores_[0], -squares.mean(axis=1), rtol=1e-8)
    own = LSSVR(gamma=0.4, alpha=model.alpha_, operator=operator).fit(X, y)
    np.testing.assert_allclose(model.predict(X), own.predict(X), rtol=1e-9)


def test_a_tuned_model_does_not_depend_on_units():
    units = np.array([1e-3, 10.0, 1e6])
    first = KernelRidgeCV(random_state=0).fit(X, Y[:, 0])
    second = KernelRidgeCV(random_state=0).fit(X * units, 7.0 * Y[:, 0] + 1e3)
    np.testing.assert_allclose(7.0 * first.predict(X) + 1e3, second.predict(X * units), rtol=1e-6)


def test_many_rows_are_tuned_by_landmarks_and_scored_exactly():
    rows, y = make_friedman1(700, random_state=0)
    model = KernelRidgeCV(random_state=0).fit(rows, y)
    own = LSSVR(gamma=model.gamma_, alpha=model.alpha_)
    held = cross_val_predict(own, rows * model.scale_, y, cv=len(y))
    assert model.best_score_ == pytest.approx(-np.mean((held - y) ** 2), rel=1e-7)
    again = clone(model).fit(rows, y)
    np.testing.assert_array_equal(model.predict(rows), again.predict(rows))


def test_some_of_many_targets_tune_gamma():
    many = np.sin(X @ RANDOM.normal(size=(3, 400))) + 0.1 * RANDOM.normal(size=(60, 400))
    model = KernelRidgeCV(alpha_per_target=True, random_state=0).fit(X, many)
    assert model.alpha_.shape == model.best_score_.shape == (400,)
    assert model.score(X, many) > 0.8


@pytest.mark.parametrize("kernel", ["laplacian", "poly"])
def test_other_kernels_are_tuned(kernel):
    fixed = KernelRidgeCV(kernel=kernel, gamma=None, scale="robust").fit(X, Y[:, 0])
    model = KernelRidgeCV(kernel=kernel, random_state=0).fit(X, Y[:, 0])
    assert model.best_score_ > fixed.best_score_


def test_a_length_scale_for_every_feature():
    rows, y = make_friedman1(150, noise=0.5, random_state=0)
    new, truth = make_friedman1(500, random_state=1)
    shared = KernelRidgeCV(random_state=0).fit(rows, y)
    model = KernelRidgeCV(length_scales="per_feature", random_state=0).fit(rows, y)
    assert model.score(new, truth) > shared.score(new, truth) + 0.02
    weights = model.scale_ / shared.scale_
    assert weights[[0, 1, 3]].mean() > 1.4 * weights[5:].mean()
    own = LSSVR(gamma=model.gamma_, alpha=model.alpha_)
    held = cross_val_predict(own, rows * model.scale_, y, cv=len(y))
    assert model.best_score_ == pytest.approx(-np.mean((held - y) ** 2), rel=1e-9)


def test_sparse_rows_and_rows_in_a_frame():
    rows = np.where(RANDOM.uniform(size=X.shape) < 0.4, X, 0.0)
    sparse = KernelRidgeCV(gamma=0.5).fit(sp.csr_matrix(rows), Y)
    dense = KernelRidgeCV(gamma=0.5).fit(rows, Y)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(rows)), dense.predict(rows))
    tuned = KernelRidgeCV(random_state=0).fit(sp.csr_matrix(rows), Y[:, 1])
    np.testing.assert_allclose(tuned.scale_, 1.0 / np.ptp(rows, axis=0))


def test_a_given_matrix_and_landmarks():
    K = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    given = KernelRidgeCV(ALPHAS, kernel="precomputed").fit(K, Y)
    named = KernelRidgeCV(ALPHAS, gamma=0.4).fit(X, Y)
    np.testing.assert_allclose(given.scores_, named.scores_, rtol=1e-9)
    np.testing.assert_allclose(given.predict(K), named.predict(X), rtol=1e-9)
    few = Nystrom(20, random_state=0)
    low = KernelRidgeCV(ALPHAS, gamma=0.4, operator=few).fit(X, Y[:, 0])
    own = LSSVR(gamma=0.4, alpha=low.alpha_, operator=few).fit(X, Y[:, 0])
    np.testing.assert_allclose(low.predict(X), own.predict(X), rtol=1e-9)


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weight", [None, "balanced", {0: 2.0}])
def test_a_linear_classifier_is_ridge_classifier_cv(n_classes, weight):
    rows, y = load_iris(return_X_y=True)
    rows, y = rows[y < n_classes][::2], y[y < n_classes][::2]
    theirs = RidgeClassifierCV(ALPHAS, class_weight=weight).fit(rows, y)
    ours = KernelRidgeClassifierCV(ALPHAS, kernel="linear", class_weight=weight).fit(rows, y)
    assert ours.alpha_ == theirs.alpha_
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-9)
    np.testing.assert_allclose(
        ours.decision_function(rows), theirs.decision_function(rows), rtol=1e-8, atol=1e-10
    )


def test_accuracy_of_folds_is_that_of_refits():
    rows, y = load_iris(return_X_y=True)
    rows = rows + RANDOM.normal(size=rows.shape)
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    model = KernelRidgeClassifierCV(ALPHAS, gamma=GAMMAS, cv=cv).fit(rows, y)
    grid = GridSearchCV(LSSVC(), {"gamma": GAMMAS, "alpha": ALPHAS}, cv=cv).fit(rows, y)
    assert {"gamma": model.gamma_, "alpha": model.alpha_} == grid.best_params_
    assert model.best_score_ == pytest.approx(grid.best_score_)
    np.testing.assert_array_equal(model.predict(rows), grid.predict(rows))
    lone = KernelRidgeClassifierCV(ALPHAS, gamma=0.4, scoring="accuracy").fit(rows, y)
    held = cross_val_predict(LSSVC(gamma=0.4, alpha=lone.alpha_), rows, y, cv=LeaveOneOut())
    assert lone.best_score_ == pytest.approx(accuracy_score(y, held))


def test_a_tuned_classifier():
    rows, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = KernelRidgeClassifierCV(random_state=0).fit(rows, names)
    assert model.score(rows, names) > 0.95
    assert model.decision_function(rows[:2]).shape == (2, 3)
    two = KernelRidgeClassifierCV(length_scales="per_feature", random_state=0)
    two.fit(rows[50:], names[50:])
    assert two.decision_function(rows[:2]).shape == (2,)
    assert set(two.predict(rows)) == {"b", "c"}


def test_a_fold_without_a_class_is_scored_as_a_refit_of_it():
    y = np.r_[np.zeros(20), np.ones(20), np.full(20, 2)].astype(int)
    cv = KFold(3)  # each fold lacks the class that it tests
    model = KernelRidgeClassifierCV([1.0], gamma=0.4, cv=cv).fit(X, y)
    assert model.best_score_ == 0.0


# -- what is refused, and what has no score --------------------------------------------------------


def test_an_alpha_that_is_too_small_spoils_no_other():
    rows = np.repeat(X[:20], 2, axis=0)
    y = np.repeat(Y[:20, 0], 2) + 0.1 * RANDOM.normal(size=40)
    given = {"gamma": 0.4, "cv": KFold(4, shuffle=True, random_state=0)}
    model = KernelRidgeCV([0.0, 0.1, 1.0], **given).fit(rows, y)
    assert np.isnan(model.scores_[0, 0]).all()
    alone = KernelRidgeCV([0.1, 1.0], **given).fit(rows, y)
    np.testing.assert_allclose(model.scores_[0, 1:], alone.scores_[0], rtol=1e-12)
    with pytest.raises(ValueError, match="no alpha has a score"):
        KernelRidgeCV([0.0], **given).fit(rows, y)


def test_a_score_that_is_mostly_rounding_is_said_to_be():
    with pytest.warns(InexactWarning, match="use larger alphas"):
        model = KernelRidgeCV([1e-12], gamma=1e-3).fit(X, X[:, 0])
    assert not model.is_exact_


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alphas": "grid"}, "alphas='grid' is not allowed"),
        ({"alphas": []}, r"alphas=\[\] is not allowed"),
        ({"alphas": [0.1, -1.0]}, r"alphas\[1\] == -1.0, must be > 0"),
        ({"gamma": "scale"}, "gamma='scale' is not allowed; use 'tune'"),
        ({"gamma": [0.1, -1.0]}, "gamma"),
        ({"scale": "standard"}, "scale='standard' is not known"),
        ({"length_scales": "each"}, "length_scales='each' is not known"),
        ({"length_scales": "per_feature", "gamma": 0.1}, "needs gamma='tune'"),
        ({"kernel": "precomputed", "scale": "robust"}, "needs columns"),
        ({"scoring": ["r2"], "cv": 3}, "not a single scorer"),
        ({"cv": 3, "store_cv_results": True}, "incompatible"),
        ({"cv": LeaveOneOut(), "gamma": 0.1}, "no alpha has a score"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    rows = X @ X.T if given.get("kernel") == "precomputed" else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(ValueError, match=words):
            KernelRidgeCV(**given).fit(rows, Y)


def test_wrong_parameters_are_named_before_wrong_labels():
    with pytest.raises(ValueError, match=r"alphas\[0\] == -1.0"):
        KernelRidgeClassifierCV(alphas=[-1.0]).fit(np.eye(5), np.zeros(5))


@parametrize_with_checks(
    [
        KernelRidgeCV(),
        KernelRidgeCV([0.1, 1.0], gamma=[0.1, 1.0], cv=3),
        KernelRidgeClassifierCV(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
