"""Searches by a criterion of the fit on all rows, against the definitions written down naively."""

import gzip
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_svmlight_file
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    LSSVR,
    Circulant,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    HuberSVC,
    InexactWarning,
    KernelLogisticClassifier,
    Nystrom,
    QuadraticSVR,
    cross_val_predict,
    cross_val_score,
)
from everyfold._extensions import CRITERIA
from everyfold.io.arrays import ArrayRows
from everyfold.kernels import RBF
from everyfold.papers import EigenvalueRatio, SpanRule

N = 60
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 3))
SCORE = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.4 * RNG.normal(size=N)
LABELS = np.where(np.median(SCORE) < SCORE, "yes", "no")
SIGNS = np.where(LABELS == "yes", 1.0, -1.0)
THREE = np.digitize(SCORE, np.quantile(SCORE, [0.33, 0.66]))
GRID = {"gamma": [0.1, 1.0], "alpha": [0.05, 0.5]}
CS = {"gamma": [0.2, 1.0], "C": [0.5, 20.0]}


def fit(estimator, grid, criterion, y, X=X, **options):
    return FastGridSearchCV(estimator, grid, criterion=criterion, **options).fit(X, y)


def scores(estimator, grid, criterion, y, **options):
    return fit(estimator, grid, criterion, y, **options).cv_results_["mean_test_score"]


def gcv(K, y, alpha, intercept, w=None):
    """n ‖(I − H) y‖² / tr(I − H)² of a smoother H, by its columns; weighted rows are scaled."""
    n = len(y)
    s = np.ones(n) if w is None else np.sqrt(w)
    G = np.linalg.inv(s[:, None] * K * s + alpha * np.eye(n))
    if intercept:
        G -= np.outer(G @ s, s @ G) / (s @ G @ s)
    return n * np.sum((G @ (s * y)) ** 2) / np.trace(G) ** 2


def gacv(K, y, C, a, u):
    m = y * u
    total = 0.0
    for i in range(len(y)):
        total += max(0.0, 1.0 - m[i])
        total += (2.0 if m[i] < -1.0 else 1.0) * abs(a[i]) * K[i, i]
    return total / len(y)


def libsvm(K, y, C, **options):
    """Dual coefficients and values of scikit-learn's own machine on a kernel matrix."""
    machine = SVC(C=C, kernel="precomputed", **options).fit(K, y)
    a = np.zeros(len(y))
    a[machine.support_] = machine.dual_coef_[0]
    return a, K @ a + machine.intercept_[0]


def ratio(K):
    values = np.sort(np.linalg.eigvalsh(K))[::-1]
    k = round(0.1 * len(K))
    return values[k:].sum() / values[:k].sum()


def perturbation(K):
    even, odd = (np.sort(np.linalg.eigvalsh(K[s::2, s::2]))[::-1] / (N // 2) for s in (0, 1))
    return np.linalg.norm(even - odd)


# -- the definitions -----------------------------------------------------------------------------


@pytest.mark.parametrize(("estimator", "has_intercept"), [(KernelRidge, False), (LSSVR, True)])
def test_gcv(estimator, has_intercept):
    model = estimator(kernel="rbf")
    expected = [
        -gcv(rbf_kernel(X, gamma=p["gamma"]), SCORE, p["alpha"], has_intercept)
        for p in ParameterGrid(GRID)
    ]
    assert_allclose(scores(model, GRID, "gcv", SCORE), expected, rtol=1e-10)


def test_gcv_of_many_ridges_of_a_linear_model_and_of_weights():
    alphas = {"alpha": np.logspace(-2, 2, 9)}
    C = X - X.mean(axis=0)
    expected = [-gcv(C @ C.T, SCORE, alpha, intercept=True) for alpha in alphas["alpha"]]
    assert_allclose(scores(Ridge(), alphas, "gcv", SCORE), expected, rtol=1e-9)
    w = np.random.default_rng(0).uniform(0.3, 2.0, N)
    search = FastGridSearchCV(KernelRidge(kernel="rbf", gamma=0.3), alphas, criterion="gcv")
    found = search.fit(X, SCORE, sample_weight=w).cv_results_["mean_test_score"]
    K = rbf_kernel(X, gamma=0.3)
    assert_allclose(found, [-gcv(K, SCORE, a, False, w) for a in alphas["alpha"]], rtol=1e-9)


def test_gcv_of_equal_leverages_is_leave_one_out():
    """All rows of a circulant have the same leverage: GCV and ELOO are one number."""
    model = LSSVR(gamma=200.0, operator=Circulant(factors=(10, 6), refit=None))
    grid = {"alpha": [0.1, 2.0]}
    times = np.linspace(0.0, 6.0, N)[:, None]
    found = scores(model, grid, "gcv", SCORE, X=times, refit=False)
    loo = FastGridSearchCV(
        model, grid, cv=LeaveOneOut(), scoring="neg_mean_squared_error", refit=False
    ).fit(times, SCORE)
    assert_allclose(found, loo.cv_results_["mean_test_score"], rtol=1e-10)


def test_exact_leave_one_out_is_its_formula_and_its_refits():
    """ELOO, the comparator of the papers: the residual over the diagonal of the inverse."""
    K, alpha = rbf_kernel(X, gamma=0.3), 0.2
    G = np.linalg.inv(K + alpha * np.eye(N))
    G -= np.outer(G.sum(axis=0), G.sum(axis=0)) / G.sum()
    model = LSSVR(gamma=0.3, alpha=alpha)
    held = cross_val_predict(model, X, SCORE, cv=LeaveOneOut())
    assert_allclose(held, SCORE - (G @ SCORE) / np.diag(G), rtol=1e-10)
    for i in (0, 17, 59):
        rest = np.delete(np.arange(N), i)
        alone = clone(model).fit(X[rest], SCORE[rest]).predict(X[[i]])
        assert_allclose(held[[i]], alone, rtol=1e-9)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_gacv_is_that_of_libsvms_own_solution(tol):
    expected = []
    for p in ParameterGrid(CS):
        K = rbf_kernel(X, gamma=p["gamma"])
        expected.append(-gacv(K, SIGNS, p["C"], *libsvm(K, SIGNS, p["C"], tol=tol)))
    assert_allclose(scores(SVC(tol=tol), CS, "gacv", LABELS), expected, rtol=1e-10)


def test_gacv_of_the_rounded_hinge():
    grid = {"gamma": [0.3], "C": [0.5, 5.0]}
    expected = []
    for C in grid["C"]:
        model = HuberSVC(C=C, gamma=0.3, h=0.01).fit(X, LABELS)
        u = model.decision_function(X)
        slope = np.clip((1.01 - SIGNS * u) / 0.02, 0.0, 1.0)
        expected.append(-gacv(rbf_kernel(X, gamma=0.3), SIGNS, C, C * slope, u))
    assert_allclose(scores(HuberSVC(h=0.01), grid, "gacv", LABELS), expected, rtol=1e-6)


def test_span():
    """Spans of the free support vectors, by the bordered kernel matrix."""
    expected = []
    for p in ParameterGrid(CS):
        K = rbf_kernel(X, gamma=p["gamma"])
        a, u = libsvm(K, SIGNS, p["C"])
        free = np.flatnonzero((a != 0.0) & (np.abs(a) < p["C"] * (1 - 1e-9)))
        ones = np.ones((len(free), 1))
        inverse = np.linalg.inv(np.block([[K[np.ix_(free, free)], ones], [ones.T, 0.0]]))
        V = np.column_stack([K[:, free], np.ones(N)])
        S = np.diag(K) - np.einsum("ij,jk,ik->i", V, inverse, V)
        S[free] = 1.0 / np.diag(inverse)[:-1]
        held = SIGNS * (u - a * S)
        assert np.abs(held).min() > 1e-3  # no sign hangs on rounding
        expected.append(-np.mean(held < 0))
    assert_allclose(scores(SVC(), CS, "span", LABELS), expected, atol=1e-12)


LOSSES = {
    "krr": (KernelRidge(kernel="rbf"), GRID, lambda u: (u - SCORE) ** 2),
    "svr": (SVR(epsilon=0.2), CS, lambda u: np.maximum(0.0, np.abs(u - SCORE) - 0.2)),
    "quadratic": (
        QuadraticSVR(epsilon=0.2),
        CS,
        lambda u: np.maximum(0.0, np.abs(u - SCORE) - 0.2) ** 2,
    ),
    "svc": (SVC(), CS, lambda u: np.maximum(0.0, 1.0 - SIGNS * u)),
    "lssvc": (LSSVC(), GRID, lambda u: (u - SIGNS) ** 2),
    "logistic": (KernelLogisticClassifier(), CS, lambda u: np.log1p(np.exp(-SIGNS * u))),
}


@pytest.mark.parametrize(
    ("criterion", "penalty"),
    [("eigenvalue_ratio", ratio), ("eigenvalue_perturbation", perturbation)],
)
@pytest.mark.parametrize("name", LOSSES)
def test_eigenvalue_criteria(name, criterion, penalty):
    estimator, grid, loss = LOSSES[name]
    is_classifier = hasattr(estimator, "decision_function")
    y = LABELS if is_classifier else SCORE
    expected = []
    for params in ParameterGrid(grid):
        model = clone(estimator).set_params(**params).fit(X, y)
        u = model.decision_function(X) if is_classifier else model.predict(X)
        expected.append(-loss(u).mean() - penalty(rbf_kernel(X, gamma=params["gamma"])))
    rtol = 2e-3 if name in ("svc", "svr") else 1e-7  # libsvm's tolerance
    assert_allclose(scores(estimator, grid, criterion, y), expected, rtol=rtol)


def test_an_instance_has_parameters_of_its_own():
    model, grid = LSSVR(), {"gamma": [0.5], "alpha": [0.1]}
    K, u = rbf_kernel(X, gamma=0.5), LSSVR(gamma=0.5, alpha=0.1).fit(X, SCORE).predict(X)
    found = scores(model, grid, EigenvalueRatio(eta=3.0), SCORE)
    assert_allclose(found, [-np.mean((u - SCORE) ** 2) - 3.0 * ratio(K)], rtol=1e-8)


# -- many classes, many targets --------------------------------------------------------------------


def test_pairs_of_classes_count_by_their_mean():
    grid, pairs = {"C": [2.0], "gamma": [0.5]}, []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        rows = np.isin(THREE, (i, j))
        signs, K = np.where(THREE[rows] == i, 1.0, -1.0), rbf_kernel(X[rows], gamma=0.5)
        pairs.append(gacv(K, signs, 2.0, *libsvm(K, signs, 2.0, tol=1e-8)))
    assert_allclose(scores(SVC(tol=1e-8), grid, "gacv", THREE), [-np.mean(pairs)], rtol=1e-6)


def test_one_versus_rest_and_several_targets_count_by_their_mean():
    K = rbf_kernel(X, gamma=0.5)
    grid = {"alpha": [0.3], "gamma": [0.5]}
    rest = [gcv(K, np.where(k == THREE, 1.0, -1.0), 0.3, intercept=True) for k in range(3)]
    assert_allclose(scores(LSSVC(), grid, "gcv", THREE), [-np.mean(rest)], rtol=1e-9)
    Y = np.column_stack([SCORE, X[:, 0] ** 2])
    both = [gcv(K, y, alpha, False) for y, alpha in zip(Y.T, (0.3, 2.0), strict=True)]
    grid = {"alpha": [[0.3, 2.0]], "gamma": [0.5]}
    found = scores(KernelRidge(kernel="rbf"), grid, "gcv", Y)
    assert_allclose(found, [-np.mean(both)], rtol=1e-9)


# -- the table, the winner, the plan ---------------------------------------------------------------


def test_the_table_has_scikit_learns_shape():
    search = fit(KernelRidge(kernel="rbf"), GRID, "gcv", SCORE)
    theirs = GridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=2).fit(X, SCORE)
    table = search.cv_results_
    assert set(theirs.cv_results_) - set(table) == {"split1_test_score"}
    assert search.n_splits_ == 1
    assert_array_equal(table["split0_test_score"], table["mean_test_score"])
    assert not table["std_test_score"].any()
    assert_array_equal(table["status"], "as defined")
    assert table["is_exact"].all()
    best = int(np.argmax(table["mean_test_score"]))
    assert (search.best_index_, search.best_params_) == (best, table["params"][best])
    refitted = KernelRidge(kernel="rbf", **search.best_params_).fit(X, SCORE)
    assert_allclose(search.predict(X), refitted.predict(X))
    assert_allclose(search.score(X, SCORE), refitted.score(X, SCORE))


def test_the_plan_says_what_is_done():
    search = FastGridSearchCV(SVC(), CS, criterion="gacv")
    words = "criterion 'gacv': one fit on all rows for each candidate, no folds"
    before = search.plan(X, LABELS)
    assert before.methods == ((words, 4),)
    assert "the criterion as defined" in str(before)
    after = str(search.fit(X, LABELS).plan_)
    assert "60 rows, no folds" in after
    assert "all 4 candidates have the criterion as defined" in after
    assert "equal refits" not in after
    pickle.loads(pickle.dumps(search.plan_))


class ByTarget(TransformerMixin, BaseEstimator):
    """A step that looks at y: it centres by the mean of the first class."""

    def fit(self, X, y):
        self.centre_ = X[y == "no"].mean(axis=0)
        return self

    def transform(self, X):
        return (X - self.centre_) ** 2


def test_steps_are_fitted_on_all_rows_as_those_of_the_winner_are():
    pipeline = make_pipeline(StandardScaler(), ByTarget(), LSSVC())
    grid = {"lssvc__gamma": [0.1, 1.0], "lssvc__alpha": [0.05, 0.5]}
    search = fit(pipeline, grid, "gcv", LABELS)
    rows = make_pipeline(StandardScaler(), ByTarget()).fit(X, LABELS).transform(X)
    assert_allclose(
        search.cv_results_["mean_test_score"],
        scores(LSSVC(), {key[7:]: values for key, values in grid.items()}, "gcv", LABELS, X=rows),
        rtol=1e-10,
    )
    assert "fitted on all rows, once" in str(search.plan_)
    assert search.plan_.operator == "dense"


def test_a_gamma_that_depends_on_the_rows_and_a_precomputed_kernel():
    scale = 1.0 / (3 * X.var())
    expected = scores(SVC(gamma=scale), {"C": [1.0, 9.0]}, "gacv", LABELS)
    found = scores(SVC(gamma="scale"), {"C": [1.0, 9.0]}, "gacv", LABELS)
    assert_allclose(found, expected, rtol=1e-2)  # libsvm's tolerance
    model = KernelRidge(kernel="precomputed")
    K = rbf_kernel(X, gamma=0.5)
    found = scores(model, {"alpha": [0.1]}, "gcv", SCORE, X=K)
    assert_allclose(found, [-gcv(K, SCORE, 0.1, intercept=False)], rtol=1e-9)


def test_low_rank_is_the_criterion_of_another_model():
    model = LSSVR(gamma=0.3)
    search = fit(model, {"alpha": [0.1, 1.0]}, "gcv", SCORE, operator=Nystrom(20, random_state=0))
    assert_array_equal(search.cv_results_["status"], "estimated")
    assert not search.cv_results_["is_exact"].any()
    V = Nystrom(20, random_state=0).bind(RBF(0.3), X).V
    expected = [-gcv(V @ V.T, SCORE, alpha, intercept=True) for alpha in (0.1, 1.0)]
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-8)


def test_low_rank_of_the_estimator_itself_is_its_own_model():
    """The 2012 paper's Algorithm 2 with a criterion of the fit: K̃ of k of c columns."""
    low = Nystrom(0.3, 0.5, sampling="uniform", per_fold=True, predicts_with="kernel")
    low = low.with_params(random_state=0)
    search = fit(LSSVC(gamma=0.3, operator=low), {"alpha": [0.1, 1.0]}, "gcv", LABELS)
    assert_array_equal(search.cv_results_["status"], "as defined")
    columns = np.random.RandomState(0).permutation(N)[:18]
    K = rbf_kernel(X, gamma=0.3)
    values, U = np.linalg.eigh(K[np.ix_(columns, columns)])
    V = K[:, columns] @ U[:, -9:] / np.sqrt(values[-9:])
    expected = [-gcv(V @ V.T, SIGNS, alpha, intercept=True) for alpha in (0.1, 1.0)]
    assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-7)


def test_workers_and_random_search_give_the_same():
    alone = scores(SVC(), CS, "span", LABELS)
    assert_array_equal(scores(SVC(), CS, "span", LABELS, n_jobs=2), alone)
    search = FastRandomizedSearchCV(
        KernelRidge(kernel="rbf"), GRID, n_iter=3, criterion="gcv", random_state=0
    ).fit(X, SCORE)
    for params, found in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        K = rbf_kernel(X, gamma=params["gamma"])
        assert_allclose(found, -gcv(K, SCORE, params["alpha"], intercept=False), rtol=1e-10)


def test_a_candidate_that_fails_fails_alone():
    grid = {"alpha": [0.0, 0.1]}
    doubled, y = np.vstack([X, X]), np.append(SCORE, SCORE)
    K = doubled @ doubled.T
    search = FastGridSearchCV(KernelRidge(kernel="precomputed"), grid, criterion="gcv")
    with pytest.warns(Warning, match="fits failed|non-finite"):
        search.fit(K, y)
    table = search.cv_results_
    assert not np.isfinite(table["mean_test_score"][0])
    assert_allclose(table["mean_test_score"][1], -gcv(K, y, 0.1, intercept=False), rtol=1e-8)
    assert search.best_params_ == {"alpha": 0.1}


# -- refusals ----------------------------------------------------------------------------------


REFUSED = [
    ({"scoring": "r2"}, "scoring; leave scoring=None"),
    ({"cv": 5}, "cv=5, as it has no folds"),
    ({"cv": KFold(3)}, "as it has no folds"),
    ({"order": 3}, "order=3, which needs folds; use method='auto'"),
    ({"n_confirm": 2}, "n_confirm=2, which refits folds; use n_confirm=0"),
    ({"preprocessing": "once"}, "always fitted on all rows then; leave it out"),
    ({"return_train_score": True}, "return_train_score=True; use False"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_of_folds_is_refused_before_work(options, message):
    search = FastGridSearchCV(KernelRidge(), GRID, criterion="gcv", **options)
    with pytest.raises(ValueError, match=message) as caught:
        search.fit(X, SCORE)
    assert "criterion='gcv' cannot be combined with" in str(caught.value)


def test_groups_and_sources_are_refused():
    search = FastGridSearchCV(LSSVR(), GRID, criterion="gcv")
    with pytest.raises(ValueError, match="groups, as it has no folds"):
        search.fit(X, SCORE, groups=np.arange(N) % 3)
    with pytest.raises(ValueError, match="criterion='gcv'; use scoring"):
        search.fit(ArrayRows(X, SCORE))


def test_unknown_criteria_are_refused():
    for wrong in ("loo", 3, GridSearchCV):
        with pytest.raises(ValueError, match="is not known; use None for held-out scores"):
            fit(LSSVR(), GRID, wrong, SCORE)


@pytest.mark.parametrize(
    ("estimator", "y", "criterion", "message"),
    [
        (SVC(), LABELS, "gcv", "needs the closed form of squared loss"),
        (SVR(), SCORE, "gcv", "needs the closed form of squared loss"),
        (SVR(), SCORE, "gacv", "is for the hinge loss"),
        (QuadraticSVR(), SCORE, "span", "is for the hinge loss"),
        (KernelLogisticClassifier(), LABELS, "gacv", "use SVC or HuberSVC"),
        (LSSVC(), LABELS, "span", r"use cv=LeaveOneOut\(\), or criterion='gcv'"),
        (RidgeCV(), SCORE, "gcv", "chooses its own alpha"),
    ],
)
def test_a_criterion_that_is_not_defined_is_refused_with_the_reason(
    estimator, y, criterion, message
):
    with pytest.raises(ValueError, match=message) as caught:
        fit(estimator, {}, criterion, y)
    assert f"criterion={criterion!r} is not available for loss=" in str(caught.value)


def test_every_name_is_an_instance_without_arguments():
    assert {type(known)() for known in CRITERIA.values()} == set(CRITERIA.values())
    assert CRITERIA["span"] == SpanRule()


# -- kernels near the identity, for finite orders --------------------------------------------


DATA = Path(__file__).parents[3] / "shared" / "data" / "libsvm"


@pytest.mark.skipif(not DATA.exists(), reason="the data sets are not here")
def test_the_failing_case_of_the_2014_paper_is_excluded():
    """Sonar, τ = 2⁻⁶: one pair of rows is alike, all others are like themselves only."""
    with gzip.open(DATA / "sonar.svm.gz") as file:
        rows, y = load_svmlight_file(file)
    grid = {"gamma": [1 / (2 * 2.0**-6), 1 / (2 * 2.0**2)], "alpha": [2.0**-7]}
    search = FastGridSearchCV(LSSVC(), grid, cv=5, order=3, ridge_scaling="mean")
    with pytest.warns(InexactWarning, match="1 of 2 candidates is near the identity"):
        search.fit(rows.toarray(), y)
    table = search.cv_results_
    assert_array_equal(table["mean_test_score"] == -np.inf, [True, False])
    assert_array_equal(table["status"], ["near identity", "estimated"])
    assert_array_equal(table["is_identity"], [False, False])
    assert search.best_params_["gamma"] == 1 / 8
    assert_array_equal(table["rank_test_score"], [2, 1])


def test_how_near_the_identity_is_a_parameter():
    """The rule as it is written: the median over the rows of their largest similarity."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    gammas = [0.1, 3.0, 20.0]
    typical = []
    for gamma in gammas:
        K = rbf_kernel(X, gamma=gamma)
        np.fill_diagonal(K, 0.0)
        typical.append(np.median(K.max(axis=1)))
    assert 1.5e-8 < typical[2] < typical[1] < typical[0]
    for limit, excluded in ((None, 0), (1.0001 * typical[2], 1), (1.0001 * typical[1], 2)):
        options = {} if limit is None else {"near_identity": limit}
        grid = {"gamma": gammas}
        search = FastGridSearchCV(LSSVC(), grid, cv=5, order=1, n_confirm=0, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InexactWarning)
            search.fit(X, y)
        near = search.cv_results_["status"] == "near identity"
        assert_array_equal(near, [False] * (3 - excluded) + [True] * excluded)
    with pytest.raises(ValueError, match="near_identity=2 is not allowed"):
        FastGridSearchCV(LSSVC(), {"gamma": [1.0]}, near_identity=2).fit(X, y)


@pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
def test_identity_is_judged_row_by_row():
    """Near the identity by half of the rows, whatever a few pairs of rows are like."""
    far = 100.0 * np.arange(20.0)[:, None]
    for pairs, is_near in ((4, True), (12, False)):
        rows = np.vstack([far, far[:pairs] + 0.1])
        y = np.where(np.arange(len(rows)) % 2, 1.0, -1.0)
        search = FastGridSearchCV(LSSVC(gamma=1.0), {"alpha": [1.0]}, cv=4, order=1, refit=False)
        if is_near:
            with pytest.warns(InexactWarning, match="is near the identity"):
                search.fit(rows, y)
        else:
            search.fit(rows, y)
        assert np.isneginf(search.cv_results_["mean_test_score"][0]) == is_near


def test_the_rule_is_for_finite_orders_only():
    rows = 100.0 * np.arange(20.0)[:, None]
    y = np.where(np.arange(20) % 2, 1.0, -1.0)
    with pytest.warns(InexactWarning) as caught:
        found = cross_val_score(LSSVC(gamma=1.0), rows, y, cv=4, order=2)
    assert any("is near the identity" in str(warning.message) for warning in caught)
    assert np.isneginf(found).all()
    for order in ("auto", np.inf):
        assert np.isfinite(cross_val_score(LSSVC(gamma=1.0), rows, y, cv=4, order=order)).all()


def test_where_all_are_excluded_there_is_no_best():
    rows = 100.0 * np.arange(20.0)[:, None]
    y = np.where(np.arange(20) % 2, 1.0, -1.0)
    search = FastGridSearchCV(LSSVC(gamma=1.0), {"alpha": [0.1, 1.0]}, cv=4, order=1)
    with (
        pytest.warns(InexactWarning, match="2 of 2 candidates"),
        pytest.raises(ValueError, match="is NaN or -inf for all"),
    ):
        search.fit(rows, y)
