"""All folds of a smooth loss in the space of the columns: the minima that tight refits find."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.fixes import parse_version

from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    KernelLogisticClassifier,
    Nystrom,
    UnsupportedWarning,
)
from everyfold import cross_val_predict as everyfold_predict
from everyfold.crossval import Folds, Refit, primal
from everyfold.crossval.primal import AllFoldsPrimal
from everyfold.losses import (
    HuberHinge,
    Logistic,
    QuadraticEpsilon,
    SmoothEpsilon,
    Squared,
    SquaredHinge,
)
from everyfold.operators import LowRank
from everyfold.solvers import Classes, Problem

RNG = np.random.default_rng(0)
N, D = 150, 12
ROTATION = np.linalg.qr(RNG.standard_normal((D, D)))[0]
V = (RNG.standard_normal((N, D)) * np.arange(1.0, D + 1.0) ** -1.5) @ ROTATION + 0.3
U = 3.0 * V[:, 0] - 2.0 * V[:, 1] + RNG.logistic(size=N)
SIGNS = np.where(U > 0.0, 1.0, -1.0)
RIDGES = [5.0, 0.005, 0.05]
SPLITTERS = {
    "k-fold": KFold(5),
    "repeated": RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
    "shuffled": ShuffleSplit(3, test_size=0.3, random_state=0),
    "in time": TimeSeriesSplit(3),
    "one row": LeaveOneOut(),
}
LOSSES = [
    Logistic(),
    SquaredHinge(),
    HuberHinge(0.3),
    SmoothEpsilon(0.2, 0.3),
    QuadraticEpsilon(0.2),
    Squared(),
]


def folds_of(name):
    return Folds.from_splits(SPLITTERS[name].split(V, SIGNS), N)


def problem_of(loss, **more):
    y = SIGNS if loss.is_margin else U
    given = {"sample_weight": np.ones(N), "intercept": True, **more}
    return Problem(y[:, None], loss=loss, **given)


def check(problem, folds, rows=V, tolerance=1e-6, *, is_exact=True):
    """Held-out values of all ridges, beside those of fits of every fold by another solver."""
    ours = list(AllFoldsPrimal().evaluate(problem, LowRank(rows), RIDGES, folds))
    theirs = list(Refit().evaluate(problem, LowRank(rows), RIDGES, folds))
    for found, known in zip(ours, theirs, strict=True):
        assert_allclose(found.values, known.values, rtol=tolerance, atol=tolerance)
        assert found.is_exact.all() or not is_exact
    return ours


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("splitter", list(SPLITTERS))
def test_every_loss_on_any_folds(loss, intercept, splitter):
    if splitter == "one row" and not isinstance(loss, Logistic):
        pytest.skip("many fits of the other solver")
    check(problem_of(loss, intercept=intercept), folds_of(splitter))


@pytest.mark.parametrize("balance", [None, "rows", "weights"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_weights_of_rows_and_classes(balance, scaling):
    codes = (SIGNS > 0.0).astype(np.intp)
    classes = Classes(codes, None if balance else np.array([1.0, 4.0]), balance)
    weight = RNG.uniform(0.0, 3.0, N) * (RNG.uniform(size=N) > 0.2)
    problem = problem_of(Logistic(), sample_weight=weight, classes=classes, ridge_scaling=scaling)
    check(problem, folds_of("k-fold"))


def test_rows_that_are_drawn_several_times():
    draws = [RNG.integers(0, N, N) for _ in range(3)]
    outside = [np.setdiff1d(np.arange(N), drawn) for drawn in draws]
    folds = Folds.from_splits(zip(draws, outside, strict=True), N)
    check(problem_of(Logistic()), folds)
    ours, once = (
        list(AllFoldsPrimal().evaluate(problem_of(Logistic()), LowRank(V), RIDGES, own))
        for own in (
            folds,
            Folds.from_splits(zip(map(np.unique, draws), outside, strict=True), N),
        )
    )
    assert not np.allclose(ours[0].values, once[0].values, rtol=1e-3)


@pytest.mark.parametrize(
    "rows",
    [
        np.column_stack([V, np.full(N, 7.0), V[:, 0]]),
        V * np.logspace(-5.0, 5.0, D),
        V + 1e5,
        np.column_stack([V, np.zeros(N)]),
    ],
    ids=["constant and equal columns", "scales", "offset", "zeros"],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_columns_of_any_kind(rows, intercept):
    problem = problem_of(Logistic(), intercept=intercept)
    # Columns that are all alike, and that no intercept centres, have too few digits for any method.
    is_exact = intercept or abs(rows).min() < 1e4
    check(problem, folds_of("k-fold"), rows, 1e-5, is_exact=is_exact)


def test_several_targets():
    y = np.column_stack([SIGNS, np.where(V[:, 2] > 0.3, 1.0, -1.0)])
    check(Problem(y, np.ones(N), Logistic(), intercept=True), folds_of("k-fold"))


def test_batches_of_folds_change_nothing(monkeypatch):
    problem, folds = problem_of(Logistic()), folds_of("repeated")
    whole = check(problem, folds)
    monkeypatch.setattr(primal, "ENTRIES", 2 * N)
    for found, known in zip(check(problem, folds), whole, strict=True):
        assert_allclose(found.values, known.values, rtol=1e-6, atol=1e-6)


def test_what_is_left_is_reported(monkeypatch):
    monkeypatch.setattr(primal, "STATIONARY", 1e-4)
    problem, folds = problem_of(Logistic()), folds_of("k-fold")
    (rough,) = AllFoldsPrimal().evaluate(problem, LowRank(V), [0.005], folds)
    assert not rough.is_exact.all()


def test_folds_that_do_not_arrive_are_fitted_alone(monkeypatch):
    monkeypatch.setattr(primal, "_STEPS", 1)
    check(problem_of(Logistic()), folds_of("k-fold"))
    search = FastGridSearchCV(_scaled(), {"logisticregression__C": CS}, fallback="refuse")
    again = FastGridSearchCV(_scaled(), {"logisticregression__C": CS}, fallback="refuse")
    search.fit(ROWS, LABELS)
    monkeypatch.undo()
    again.fit(ROWS, LABELS)
    assert_allclose(
        search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"], rtol=1e-6
    )


def _scaled():
    return make_pipeline(StandardScaler(), LogisticRegression(**TIGHT))


def test_a_gram_matrix_is_made_where_columns_are_alike(monkeypatch):
    made = []
    monkeypatch.setattr(primal, "_GRAM", 1.0)  # as of many columns
    kind = primal.GramPreconditioner
    monkeypatch.setattr(primal, "GramPreconditioner", lambda *a: made.append(1) or kind(*a))
    alike = V + 30.0 * V[:, [0]]
    list(
        AllFoldsPrimal().evaluate(
            problem_of(Logistic()), LowRank(alike), RIDGES, folds_of("k-fold")
        )
    )
    assert made
    made.clear()
    unlike = np.linalg.qr(V)[0] * np.sqrt(N)
    list(
        AllFoldsPrimal().evaluate(
            problem_of(Logistic()), LowRank(unlike), [5.0], folds_of("k-fold")
        )
    )
    assert not made


# -- by public calls --------------------------------------------------------------------------


ROWS, LABELS = make_classification(260, 9, n_informative=4, flip_y=0.15, random_state=3)
GROUPS = np.arange(260) % 7
CS = [0.001, 0.1, 10.0, 1000.0]
TIGHT = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 5.0}])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("cv", [KFold(4), LeaveOneGroupOut(), ShuffleSplit(3, random_state=0)])
def test_logistic_regression_is_that_of_tight_refits(class_weight, fit_intercept, has_weights, cv):
    model = LogisticRegression(class_weight=class_weight, fit_intercept=fit_intercept)
    weight = np.linspace(0.2, 3.0, len(LABELS)) if has_weights else None
    params = {} if weight is None else {"sample_weight": weight}
    scoring = ["accuracy", "neg_log_loss", "roc_auc"]
    search = FastGridSearchCV(model, {"C": CS}, cv=cv, scoring=scoring, refit="neg_log_loss")
    grouped = {"groups": GROUPS} if isinstance(cv, LeaveOneGroupOut) else {}
    search.fit(ROWS, LABELS, **grouped, **params)
    assert "columns" in str(search.plan_)
    asked = {"class_weight": class_weight, "fit_intercept": fit_intercept}
    tight = GridSearchCV(
        LogisticRegression(**TIGHT, **asked), {"C": CS}, cv=cv, scoring=scoring, refit=False
    )
    tight.fit(ROWS, LABELS, **grouped, **params)
    for name in scoring:
        key = f"mean_test_{name}"
        assert_allclose(search.cv_results_[key], tight.cv_results_[key], rtol=1e-6)


def test_the_winner_is_the_users_own_class():
    search = FastGridSearchCV(LogisticRegression(max_iter=500), {"C": CS}, cv=4)
    search.fit(ROWS, LABELS)
    assert type(search.best_estimator_) is LogisticRegression
    assert search.best_params_["C"] == search.best_estimator_.C
    known = cross_val_predict(
        LogisticRegression(C=search.best_params_["C"], **TIGHT),
        ROWS,
        LABELS,
        cv=4,
        method="decision_function",
    )
    assert_allclose(search.out_of_fold(method="decision_function").values, known, rtol=1e-5)


def test_steps_are_fitted_in_every_fold():
    model = _scaled()
    grid = {"logisticregression__C": CS}
    search = FastGridSearchCV(model, grid, cv=4, scoring="neg_log_loss", fallback="refuse")
    search.fit(ROWS, LABELS)
    assert "columns of every fold" in str(search.plan_)
    for k, C in enumerate(CS):
        model.set_params(logisticregression__C=C)
        known = cross_validate(model, ROWS, LABELS, cv=4, scoring="neg_log_loss")["test_score"]
        assert_allclose(search.cv_results_["mean_test_score"][k], known.mean(), rtol=1e-6)


@pytest.mark.parametrize("kind", [KernelLogisticClassifier, HuberSVC])
def test_features_of_a_kernel_are_columns_too(kind):
    model = kind(operator=Nystrom(30, random_state=0), gamma=0.2)
    search = FastGridSearchCV(model, {"C": CS}, cv=4).fit(ROWS, LABELS)
    assert "columns" in str(search.plan_)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# -- liblinear's models -----------------------------------------------------------------------


EXACT = {"tol": 1e-12, "max_iter": 1_000_000}
THIRDS = np.digitize(ROWS[:, 0] + 0.7 * ROWS[:, 1], [-0.5, 1.0])
RATES = ROWS @ np.linspace(-1.0, 1.0, 9) + 3.0


def check_liblinear(model, y, scoring, rows=ROWS, cv=4, grid=None, **fit):
    """Scores beside those of refits that are converged, and values of the winner."""
    grid = {"C": CS} if grid is None else grid
    ours = FastGridSearchCV(model, grid, cv=cv, scoring=scoring, fallback="refuse")
    theirs = GridSearchCV(clone(model).set_params(**EXACT), grid, cv=cv, scoring=scoring)
    ours.fit(rows, y, **fit)
    theirs.fit(rows, y, **fit)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-6)
    assert ours.cv_results_["is_exact"].all()
    return ours


@pytest.mark.parametrize("y", [LABELS, THIRDS], ids=["two classes", "three"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("has_weights", [False, True])
def test_linear_svc(y, class_weight, fit_intercept, has_weights):
    asked = {"class_weight": class_weight, "fit_intercept": fit_intercept, "dual": False}
    fit = {"sample_weight": np.linspace(0.2, 3.0, len(y))} if has_weights else {}
    scoring = "roc_auc" if y is LABELS else "balanced_accuracy"
    search = check_liblinear(LinearSVC(intercept_scaling=3.0, **asked), y, scoring, **fit)
    assert "columns" in str(search.plan_)
    best = LinearSVC(intercept_scaling=3.0, **asked, **EXACT, **search.best_params_)
    weights = fit.get("sample_weight")
    found = search.out_of_fold(method="decision_function").values
    for train, test in StratifiedKFold(4).split(ROWS, y):
        best.fit(ROWS[train], y[train], None if weights is None else weights[train])
        assert_allclose(found[test], best.decision_function(ROWS[test]), rtol=1e-5, atol=1e-6)


def test_the_dual_of_liblinear_has_the_same_minimum():
    known = LinearSVC(C=0.01, dual=True, tol=1e-8, max_iter=100_000, random_state=0)
    found = everyfold_predict(LinearSVC(C=0.01), ROWS, LABELS, cv=3, method="decision_function")
    refits = cross_val_predict(known, ROWS, LABELS, cv=3, method="decision_function")
    assert_allclose(found, refits, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_linear_svr(epsilon, fit_intercept):
    loss = "squared_epsilon_insensitive"
    model = LinearSVR(epsilon=epsilon, loss=loss, fit_intercept=fit_intercept, dual=False)
    search = check_liblinear(model, RATES, "r2", sample_weight=np.linspace(0.2, 3.0, 260))
    assert type(search.best_estimator_) is LinearSVR


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_the_intercept_of_liblinear_has_a_penalty(class_weight):
    model = LogisticRegression(solver="liblinear", class_weight=class_weight)
    grid = {"C": [0.01, 1.0], "intercept_scaling": [1.0, 10.0], "fit_intercept": [True, False]}
    check_liblinear(model, LABELS, "neg_log_loss", rows=ROWS + 1.0, grid=grid)


@pytest.mark.parametrize("cv", [LeaveOneGroupOut(), ShuffleSplit(3, random_state=0), KFold(8)])
def test_linear_svc_on_other_folds_and_after_steps(cv):
    model, values = LinearSVC(dual=False, **EXACT), [0.01, 1.0]
    fit = {"groups": GROUPS} if isinstance(cv, LeaveOneGroupOut) else {}
    check_liblinear(model, LABELS, "accuracy", cv=cv, grid={"C": values}, **fit)
    pipeline = make_pipeline(StandardScaler(), model)
    options = {"cv": cv, "scoring": "accuracy"}
    grid = {"linearsvc__C": values}
    ours = FastGridSearchCV(pipeline, grid, fallback="refuse", **options).fit(ROWS, LABELS, **fit)
    theirs = GridSearchCV(pipeline, grid, **options).fit(ROWS, LABELS, **fit)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key])


def test_linear_svc_of_separable_classes_and_weak_penalties():
    # Few rows have curvature, and other ones in every fold: there is no common preconditioner.
    rng = np.random.default_rng(7)
    rows = np.vstack([rng.standard_normal((60, 8)) + 2.0, rng.standard_normal((60, 8)) - 2.0])
    y = np.repeat([0, 1], 60)
    model = LinearSVC(dual=False)
    search = FastGridSearchCV(model, {"C": [1.0, 1e3, 1e6]}, cv=4, refit=False)
    search.fit(rows, y)
    assert search.cv_results_["is_exact"].all()
    for C in (1.0, 1e3, 1e6):
        tight = LinearSVC(dual=False, C=C, **EXACT)
        known = cross_val_predict(tight, rows, y, cv=4, method="decision_function")
        found = everyfold_predict(
            LinearSVC(C=C), rows, y, cv=4, cv_method="exact", method="decision_function"
        )
        assert_allclose(found, known, rtol=1e-4, atol=1e-4)


def test_linear_svc_of_more_columns_than_rows():
    wide = np.random.default_rng(5).standard_normal((60, 90))
    check_liblinear(LinearSVC(dual=False), LABELS[:60], "accuracy", wide, grid={"C": [1e-3, 0.1]})


def test_a_class_that_a_fold_lacks_is_not_predicted():
    y = np.where(np.arange(260) < 20, 2, LABELS)  # all rows of class 2 are in the first fold
    model = LinearSVC(dual=False, class_weight={0: 2.0, 1: 1.0, 2: 5.0})
    check_liblinear(model, y, "accuracy", cv=KFold(4), grid={"C": [0.001, 0.1]})


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"), reason="fits one versus rest there"
)
def test_more_than_two_classes_are_left_to_liblinear():
    model = LogisticRegression(solver="liblinear")
    with (
        pytest.warns(UnsupportedWarning, match="3 classes"),
        pytest.raises(ValueError, match="multiclass"),
    ):
        FastGridSearchCV(model, {"C": CS}, error_score="raise").fit(ROWS, THIRDS)


@pytest.mark.parametrize(
    "model",
    [LinearSVC(loss="hinge"), LinearSVC(penalty="l1", dual=False), LinearSVR()],
    ids=["hinge", "l1", "absolute"],
)
def test_what_has_a_kink_is_refitted(model):
    y = LABELS if isinstance(model, LinearSVC) else RATES
    model = clone(model).set_params(max_iter=100_000)
    with pytest.warns(UnsupportedWarning, match="penalty|kink"):
        FastGridSearchCV(model, {"C": [0.01]}, cv=3).fit(ROWS, y)


# -- several classes --------------------------------------------------------------------------


LEVELS = 4.0 * V[:, 0] - 3.0 * V[:, 1] + 0.3 * RNG.standard_normal(N)
KINDS = np.digitize(LEVELS, np.quantile(LEVELS, [0.25, 0.5, 0.75]))
GRID = {"C": [0.01, 1.0, 100.0]}


def check_classes(cv, kinds=KINDS, rows=V, **params):
    asked = {"cv": cv, "scoring": ["accuracy", "neg_log_loss"], "refit": "neg_log_loss"}
    fit = {name: params.pop(name) for name in ("sample_weight", "groups") if name in params}
    model = LogisticRegression(max_iter=5000, **params)
    ours = FastGridSearchCV(model, GRID, fallback="refuse", **asked)
    theirs = GridSearchCV(LogisticRegression(**TIGHT, **params), GRID, **asked)
    ours.fit(rows, kinds, **fit)
    theirs.fit(rows, kinds, **fit)
    assert "columns" in str(ours.plan_)
    for name in asked["scoring"]:
        key = f"mean_test_{name}"
        assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=2e-6, atol=1e-9)
    assert type(ours.best_estimator_) is LogisticRegression
    return ours


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 2: 0.5}])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2.0, N)])
def test_several_classes_together(class_weight, fit_intercept, weight):
    fit = {} if weight is None else {"sample_weight": weight}
    check_classes(KFold(4), class_weight=class_weight, fit_intercept=fit_intercept, **fit)


def test_several_classes_on_other_folds():
    check_classes(LeaveOneGroupOut(), groups=np.arange(N) % 6)
    check_classes(ShuffleSplit(3, test_size=0.4, random_state=1))


def test_values_of_several_classes_are_those_of_refits():
    search = check_classes(KFold(4))
    best = LogisticRegression(**TIGHT, **search.best_params_)
    for method in ("decision_function", "predict_proba", "predict"):
        known = cross_val_predict(best, V, KINDS, cv=KFold(4), method=method)
        assert_allclose(search.out_of_fold(method=method).values, known, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*classes.*:UserWarning")
@pytest.mark.parametrize("left", [2, 3])
def test_folds_whose_training_rows_lack_a_class(left):
    kinds = np.where(left <= KINDS, left, KINDS)  # the last of left + 1 classes is in one fold only
    order = np.argsort(kinds != left, kind="stable")
    rows, kinds = V[order], kinds[order]
    count = int((kinds == left).sum())
    kinds[count:][kinds[count:] == left] = 0
    first = np.arange(count + 20)
    rest = np.array_split(np.arange(count + 20, N), 2)
    cv = [(np.setdiff1d(np.arange(N), test), test) for test in (first, *rest)]
    ours = FastGridSearchCV(LogisticRegression(), GRID, cv=cv, fallback="refuse", refit=False)
    theirs = GridSearchCV(LogisticRegression(**TIGHT), GRID, cv=cv, refit=False)
    ours.fit(rows, kinds)
    theirs.fit(rows, kinds)
    key = "mean_test_score"
    assert_allclose(ours.cv_results_[key], theirs.cv_results_[key])


def test_several_classes_after_steps_of_every_fold():
    search = FastGridSearchCV(
        _scaled(), {"logisticregression__C": CS}, cv=4, scoring="neg_log_loss", fallback="refuse"
    )
    known = GridSearchCV(_scaled(), {"logisticregression__C": CS}, cv=4, scoring="neg_log_loss")
    key = "mean_test_score"
    found = search.fit(V, KINDS).cv_results_[key]
    assert_allclose(found, known.fit(V, KINDS).cv_results_[key], rtol=1e-6)


def test_more_columns_than_rows_of_several_classes():
    wide = np.column_stack([V, np.random.default_rng(5).standard_normal((N, N))])
    check_classes(KFold(4), rows=wide)


@pytest.mark.parametrize("options", [{"method": "fast"}, {"criterion": "gcv"}])
def test_what_classes_together_have_not(options):
    search = FastGridSearchCV(LogisticRegression(), GRID, **options)
    with pytest.raises(ValueError, match=r"4 classes|criterion"):
        search.fit(V, KINDS)


@pytest.mark.parametrize("scaled", [False, True])
def test_classes_that_can_be_separated_are_fitted_one_fold_at_a_time(scaled):
    # Newton steps for all folds together do not arrive at minima this far away.
    rng = np.random.default_rng(21)
    y = np.arange(120) % 3
    X = 100.0 * rng.normal(size=(120, 20))
    X[:, 0] += 500.0 * y
    model = LogisticRegression(solver="newton-cholesky", max_iter=10_000, tol=1e-10)
    estimator = make_pipeline(StandardScaler(), model) if scaled else model
    name = "logisticregression__C" if scaled else "C"
    grid = {name: [1e4, 1e7] if scaled else [1.0, 1e3]}
    options = {"cv": 4, "scoring": "neg_log_loss"}
    ours = FastGridSearchCV(estimator, grid, **options).fit(X, y).cv_results_
    theirs = GridSearchCV(estimator, grid, **options).fit(X, y).cv_results_
    assert_allclose(ours["mean_test_score"], theirs["mean_test_score"], atol=2e-3)


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.3)])
def test_each_ridge_starts_where_the_last_two_lead(loss, monkeypatch):
    ridges, folds = list(np.logspace(1, -4, 6)), folds_of("k-fold")
    steps, newton = [], primal._FoldModels._newton
    monkeypatch.setattr(
        primal._FoldModels, "_newton", lambda *args: steps.append(1) or newton(*args)
    )

    def values():
        steps.clear()
        operator = LowRank(V)
        found = AllFoldsPrimal().evaluate(problem_of(loss), operator, ridges, folds)
        return np.array([own.values for own in found]), len(steps)

    led, few = values()
    monkeypatch.setattr(primal._FoldModels, "_extrapolate", lambda *args: None)
    plain, many = values()
    assert few < many
    assert_allclose(led, plain, atol=1e-6)
