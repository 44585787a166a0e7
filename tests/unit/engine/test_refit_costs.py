"""Refits of the estimator itself where they cost least: scikit-learn's own numbers."""

import io
import pickle
import warnings
from contextlib import redirect_stdout
from itertools import count

import numpy as np
import pytest
import sklearn.model_selection as ms
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

from everyfold import (
    FastGridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from everyfold.engine.execution import refits
from everyfold.engine.planning import refit_costs as plainfits

LONG, SIDES = make_classification(900, 250, n_informative=9, flip_y=0.1, random_state=0)
CS = {"C": [0.01, 0.1, 1.0]}
X, two = make_classification(90, 5, n_informative=3, flip_y=0.1, random_state=0)
_, y = make_regression(90, 5, noise=20.0, random_state=1)
_, both = make_regression(90, 5, n_targets=2, noise=20.0, random_state=1)
FLOWERS, KINDS = load_iris(return_X_y=True)
WORDS = "refits of the estimator itself, the cheapest here"


@pytest.fixture
def cheap(monkeypatch):
    """Refits that seem to cost next to nothing."""
    monkeypatch.setattr(plainfits, "LEAST", 0.0)
    monkeypatch.setattr(plainfits, "CALLS", 0.0)
    monkeypatch.setattr(plainfits, "fit_seconds", lambda *_: 1e-9)


def silent(function):
    """The function, whose warnings are errors."""

    def call(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return function(*args, **kwargs)

    return call


def same(ours, theirs):
    for key, expected in theirs.cv_results_.items():
        if "_time" not in key and not key.startswith("param"):
            assert_allclose(ours.cv_results_[key], expected, rtol=1e-12, err_msg=key)
    assert ours.best_index_ == theirs.best_index_


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_search_gets_scikit_learns_numbers_without_a_warning(cheap, n_jobs):
    options = {"cv": 4, "return_train_score": True, "scoring": "neg_log_loss"}
    theirs = ms.GridSearchCV(LogisticRegression(), CS, **options).fit(LONG, SIDES)
    ours = FastGridSearchCV(LogisticRegression(), CS, n_jobs=n_jobs, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ours.fit(LONG, SIDES)
    same(ours, theirs)
    assert set(ours.cv_results_["status"]) == {"refitted"}
    assert ours.cv_results_["is_exact"].all()
    assert f"{WORDS} (3 candidates)" in str(ours.plan_)
    assert_array_equal(ours.predict(LONG), theirs.predict(LONG))


def test_the_plan_says_so_before(cheap):
    found = FastGridSearchCV(LogisticRegression(), CS).plan(LONG, SIDES)
    assert found.methods == ((WORDS, 3),)
    assert found.refitted == (0, 1, 2)
    assert found.estimate > 0.0


@pytest.mark.parametrize("options", [{"fallback": "refuse"}, {"n_confirm": 1}, {"pooled": True}])
def test_options_that_no_refit_has_keep_other_methods(options):
    found = FastGridSearchCV(LogisticRegression(), CS, **options).plan(LONG, SIDES)
    assert not found.plain


def test_a_few_rows_are_not_worth_it():
    assert not FastGridSearchCV(LogisticRegression(), CS).plan(X, two).plain


def test_held_out_values_are_those_of_the_refits(cheap):
    ours = FastGridSearchCV(LogisticRegression(), CS, cv=4, keep_predictions="all")
    ours.fit(LONG, SIDES)
    best = LogisticRegression(**ours.best_params_)
    for method in ("predict", "decision_function", "predict_proba"):
        known = ms.cross_val_predict(best, LONG, SIDES, cv=4, method=method)
        assert_allclose(ours.out_of_fold(method=method).values, known, rtol=1e-10)
    found = ours.honest_score(method="bbc", random_state=0)
    assert found is not None
    assert pickle.loads(pickle.dumps(ours)).plan_.plain.keys() == {0, 1, 2}


@pytest.mark.parametrize(
    ("estimator", "grid", "rows", "target"),
    [
        (Ridge(), {"alpha": [0.1, 1.0]}, X, both),
        (RidgeClassifier(), {"alpha": [0.1, 1.0]}, FLOWERS, KINDS),
        (RidgeClassifier(), {"alpha": [0.1, 1.0]}, X, two),
        (RidgeCV(), {"fit_intercept": [True, False]}, X, y),
        (KernelRidge(kernel="rbf"), {"gamma": [0.1, 1.0]}, X, y),
        (KernelRidge(kernel="precomputed"), {"alpha": [0.1, 1.0]}, X @ X.T, y),
        (SVC(), {"C": [0.1, 1.0]}, X, two),
        (SVC(), {"C": [0.1, 1.0]}, FLOWERS, KINDS),
        (SVC(decision_function_shape="ovo"), {"C": [0.1, 1.0]}, FLOWERS, KINDS),
        (make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0]}, FLOWERS, KINDS),
        (SVR(), {"C": [0.1, 1.0]}, X, y),
        (make_pipeline(StandardScaler(), LogisticRegression()), {}, X, two),
    ],
)
def test_every_estimator_can_be_refitted_and_keeps_its_values(cheap, estimator, grid, rows, target):
    ours = FastGridSearchCV(estimator, grid, cv=4).fit(rows, target)
    same(ours, ms.GridSearchCV(estimator, grid, cv=4).fit(rows, target))
    assert len(ours.plan_.plain) == len(ours.cv_results_["params"])
    shared = FastGridSearchCV(estimator, grid, cv=4, fallback="refuse").fit(rows, target)
    assert not shared.plan_.plain
    for method in ("predict", "decision_function")[: 1 + hasattr(ours, "classes_")]:
        known = shared.out_of_fold(shared.best_index_, method=method).values
        found = ours.out_of_fold(shared.best_index_, method=method).values
        if method == "predict" and hasattr(ours, "classes_"):
            assert_array_equal(found, known)
        else:
            assert_allclose(found, known, atol=5e-3 * np.abs(known).max())


def test_a_grid_of_two_estimators_is_refitted_in_part(monkeypatch):
    def seconds(estimator, *_):
        return 0.0 if isinstance(estimator, RidgeClassifier) else np.inf

    monkeypatch.setattr(plainfits, "LEAST", 0.0)
    monkeypatch.setattr(plainfits, "CALLS", 0.0)
    monkeypatch.setattr(plainfits, "fit_seconds", seconds)
    model = Pipeline([("scale", StandardScaler()), ("model", SVC())])
    grid = {"model": [SVC(C=0.1), RidgeClassifier(), SVC()]}
    ours = FastGridSearchCV(model, grid, cv=4).fit(X, two)
    assert ours.cv_results_["status"].tolist() == ["exact", "refitted", "exact"]
    theirs = ms.GridSearchCV(model, grid, cv=4).fit(X, two)
    assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


def test_failures_weights_and_words_are_scikit_learns(cheap):
    weight = np.linspace(0.5, 2.0, len(y))
    grid = {"alpha": [0.1, 1.0]}
    theirs = ms.GridSearchCV(Ridge(), grid, cv=3).fit(X, y, sample_weight=weight)
    ours = FastGridSearchCV(Ridge(), grid, cv=3, verbose=3)
    with redirect_stdout(io.StringIO()) as printed:
        ours.fit(X, y, sample_weight=weight)
    same(ours, theirs)
    assert "[CV 1/3] END" in printed.getvalue()
    model, grid = make_pipeline(PCA(), Ridge()), {"pca__n_components": [2, 9]}  # of 5 columns
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(model, grid, cv=3, error_score=-9.0).fit(X, y)
    with pytest.warns(FitFailedWarning):
        ours = FastGridSearchCV(model, grid, cv=3, error_score=-9.0).fit(X, y)
    same(ours, theirs)
    assert len(ours.plan_.plain) == 2


def test_functions_are_left_to_scikit_learn_without_a_word(cheap):
    model = LogisticRegression(C=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        folds = ms.RepeatedStratifiedKFold(n_splits=5, n_repeats=3, random_state=0)
        assert_array_equal(
            cross_val_score(model, LONG, SIDES, cv=folds),
            ms.cross_val_score(model, LONG, SIDES, cv=folds),
        )
        assert_array_equal(
            cross_val_predict(model, LONG, SIDES, cv=15, method="predict_proba"),
            ms.cross_val_predict(model, LONG, SIDES, cv=15, method="predict_proba"),
        )
        assert_array_equal(
            cross_validate(model, LONG, SIDES, cv=15)["test_score"],
            ms.cross_validate(model, LONG, SIDES, cv=15)["test_score"],
        )


def test_nested_searches_are_those_of_scikit_learn(cheap):
    ours = FastGridSearchCV(LogisticRegression(), CS, cv=3)
    theirs = ms.GridSearchCV(LogisticRegression(), CS, cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = cross_val_score(ours, LONG, SIDES, cv=3)
    assert_array_equal(found, ms.cross_val_score(theirs, LONG, SIDES, cv=3))


def test_logistic_regression_is_refitted_where_its_solver_stops_early():
    wide, labels = make_classification(60, 300, n_informative=5, flip_y=0.2, random_state=0)
    grid = {"C": [1.0, 1000.0]}
    ours = FastGridSearchCV(LogisticRegression(), grid, cv=4, scoring="neg_log_loss")
    theirs = ms.GridSearchCV(LogisticRegression(), grid, cv=4, scoring="neg_log_loss")
    same(ours.fit(wide, labels), theirs.fit(wide, labels))
    assert "stops before the minimum" in str(ours.plan_)


def test_a_journal_knows_refits(cheap, tmp_path):
    ours = FastGridSearchCV(LogisticRegression(), CS, cv=4, checkpoint=tmp_path / "kept")
    first = ours.fit(LONG, SIDES).cv_results_["mean_test_score"]
    again = ours.fit(LONG, SIDES)
    assert_array_equal(again.cv_results_["mean_test_score"], first)
    assert again.out_of_fold().values.shape == SIDES.shape


def test_a_rule_that_chooses_last_has_held_out_values_too(cheap):
    ours = FastGridSearchCV(LogisticRegression(), CS, cv=4, refit=lambda results: 1)
    ours.fit(LONG, SIDES)
    known = ms.cross_val_predict(
        LogisticRegression(C=0.1), LONG, SIDES, cv=4, method="decision_function"
    )
    found = ours.out_of_fold(method="decision_function")
    assert_allclose(found.values, known, rtol=1e-10)


def test_permutation_tests_are_left_to_scikit_learn_without_a_word(cheap):
    model, folds = LogisticRegression(C=0.5), ms.StratifiedKFold(3)
    options = {"cv": folds, "n_permutations": 3}
    ours, theirs = (
        function(model, LONG, SIDES, random_state=np.random.RandomState(7), **options)
        for function in (silent(permutation_test_score), ms.permutation_test_score)
    )
    assert_array_equal(ours[1], theirs[1])
    assert ours[::2] == theirs[::2]


def test_permutations_of_squared_loss_share_a_factorisation_whatever_a_refit_takes(cheap):
    model, options = KernelRidge(kernel="rbf"), {"cv": 4, "n_permutations": 5, "verbose": 1}
    with redirect_stdout(io.StringIO()) as printed:
        ours = permutation_test_score(model, X, y, **options)
    assert "5 permutations: " in printed.getvalue()
    options["verbose"] = 0
    assert_allclose(ours[1], ms.permutation_test_score(model, X, y, **options)[1], rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "train_sizes": [200, 400]}])
def test_learning_curves_are_left_to_scikit_learn_without_a_word(cheap, options):
    model, options = LogisticRegression(C=0.5), {"cv": 3, "verbose": 1, **options}
    with redirect_stdout(io.StringIO()) as printed:
        ours, theirs = (
            function(model, LONG, SIDES, random_state=np.random.RandomState(7), **options)
            for function in (silent(learning_curve), ms.learning_curve)
        )
    for found, known in zip(ours, theirs, strict=True):
        assert_array_equal(found, known)
    assert printed.getvalue().count("Training set sizes") == 2  # once each


def test_validation_curves_are_left_to_scikit_learn_without_a_word(cheap):
    options = {"param_name": "C", "param_range": [0.01, 1.0], "cv": 3, "scoring": "neg_log_loss"}
    ours, theirs = (
        function(LogisticRegression(), LONG, SIDES, **options)
        for function in (silent(validation_curve), ms.validation_curve)
    )
    for found, known in zip(ours, theirs, strict=True):
        assert_array_equal(found, known)


def test_a_curve_of_two_estimators_is_refitted_in_part(monkeypatch):
    def seconds(estimator, *_):
        return 0.0 if isinstance(estimator, RidgeClassifier) else np.inf

    monkeypatch.setattr(plainfits, "LEAST", 0.0)
    monkeypatch.setattr(plainfits, "CALLS", 0.0)
    monkeypatch.setattr(plainfits, "fit_seconds", seconds)
    model = Pipeline([("scale", StandardScaler()), ("model", SVC())])
    options = {"param_name": "model", "param_range": [SVC(C=0.1), RidgeClassifier()], "cv": 4}
    fitted = []
    monkeypatch.setattr(SVC, "fit", lambda self, *_, **__: fitted.append(self))
    ours = validation_curve(model, X, two, **options)
    assert not fitted
    monkeypatch.undo()
    for found, known in zip(ours, ms.validation_curve(model, X, two, **options), strict=True):
        assert_allclose(found, known)


@pytest.fixture(params=["refits", "shared"])
def timed(request, monkeypatch):
    """Searches are decided by timing a fold, whose refit seems to take no time, or very long."""
    monkeypatch.setattr(plainfits, "TIMED_FROM", 0.0)
    monkeypatch.setattr(plainfits, "LONG", 0.0)
    monkeypatch.setattr(plainfits, "WITHIN", 1e30)
    monkeypatch.setattr(plainfits, "TRIAL", np.inf)
    seconds, fit, calls = 0.0 if request.param == "refits" else 1e6, refits.fit_and_score, []

    def fit_and_score(*args, **kwargs):
        calls.append(kwargs["parameters"])
        return {**fit(*args, **kwargs), "fit_time": seconds, "score_time": 0.0}

    monkeypatch.setattr(refits, "fit_and_score", fit_and_score)
    monkeypatch.setattr(refits, "process_time", count(step=1e6).__next__)
    return request.param == "refits", calls


TIMED = [
    (LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, X, two),
    (RidgeClassifier(), {"alpha": [0.1, 1.0]}, FLOWERS, KINDS),
    (SVC(), {"C": [0.1, 1.0]}, FLOWERS, KINDS),
    (make_pipeline(StandardScaler(), SVR()), {"svr__C": [0.1, 1.0]}, X, y),
    (KernelRidge(kernel="rbf"), {"gamma": [0.1, 1.0]}, X, both),
]


@pytest.mark.parametrize(("estimator", "grid", "rows", "target"), TIMED)
@pytest.mark.parametrize("keeps", ["best", "all"])
def test_a_timed_fold_decides(timed, estimator, grid, rows, target, keeps):
    is_refitted, calls = timed
    options = {"cv": 4, "return_train_score": True}
    ours = FastGridSearchCV(estimator, grid, keep_predictions=keeps, **options).fit(rows, target)
    theirs = ms.GridSearchCV(estimator, grid, **options).fit(rows, target)
    n_fits = 4 * len(ours.cv_results_["params"])
    assert len(calls) == (n_fits if is_refitted else 1)
    assert set(ours.cv_results_["status"]) == {"refitted" if is_refitted else "exact"}
    assert ("the cheapest here" in str(ours.plan_)) is is_refitted
    for name in ("mean_test_score", "mean_train_score", "std_test_score"):
        tolerance = 1e-12 if is_refitted else 2e-3
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=tolerance)
    known = ms.cross_val_predict(ours.best_estimator_, rows, target, cv=4)
    assert_allclose(ours.out_of_fold().values, known, rtol=2e-3)


def test_the_plan_says_that_a_fold_will_be_timed(timed):
    _, calls = timed
    found = FastGridSearchCV(LogisticRegression(), CS, cv=4).plan(X, two)
    assert not calls
    assert "one refit was timed to decide" in str(found)
    assert found.candidates == 3
    assert found.methods[0][1] == 3
    assert pickle.loads(pickle.dumps(found)).estimate == found.estimate


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_journal_keeps_what_a_timed_fold_decided(timed, tmp_path, n_jobs, monkeypatch):
    is_refitted, calls = timed
    search = FastGridSearchCV(SVC(), {"C": [0.1, 1.0, 9.0]}, cv=4, checkpoint=tmp_path / "kept")
    first = search.fit(FLOWERS, KINDS).cv_results_
    lines = (tmp_path / "kept").read_bytes().splitlines(keepends=True)
    (tmp_path / "kept").write_bytes(b"".join(lines[:3]))  # killed after the trial and one unit
    calls.clear()
    opposite = 1e6 if is_refitted else 0.0
    fit = refits.fit_and_score
    monkeypatch.setattr(
        refits, "fit_and_score", lambda *a, **k: {**fit(*a, **k), "fit_time": opposite}
    )
    again = search.set_params(n_jobs=n_jobs).fit(FLOWERS, KINDS).cv_results_
    if n_jobs == 1:
        assert len(calls) == (10 if is_refitted else 0)
    assert_array_equal(again["status"], first["status"])
    assert_array_equal(again["mean_test_score"], first["mean_test_score"])


def test_a_timed_fold_beside_candidates_that_nothing_speeds_up(timed):
    is_refitted, _ = timed
    model = Pipeline([("model", SVC())])
    grid = {"model": [SVC(C=0.1), SVC(), DecisionTreeClassifier(random_state=0)]}
    ours = FastGridSearchCV(model, grid, cv=4, fallback="refit").fit(X, two)
    theirs = ms.GridSearchCV(model, grid, cv=4).fit(X, two)
    kinds = ["refitted" if is_refitted else "exact"] * 2
    assert ours.cv_results_["status"].tolist() == [*kinds, "refitted"]
    assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


def test_a_timed_fold_that_fails_decides_nothing(timed):
    grid = {"pca__n_components": [2, 9, 9]}  # of 5 columns
    options = {"cv": 3, "error_score": -9.0}
    model = make_pipeline(PCA(), Ridge())
    with pytest.warns(FitFailedWarning):
        theirs = ms.GridSearchCV(model, grid, **options).fit(X, y)
    with pytest.warns(FitFailedWarning):
        ours = FastGridSearchCV(model, grid, **options).fit(X, y)
    assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    ("seconds", "is_timed"), [(1e-5, True), (5e-4, True), (2e-3, False), (0.05, False)]
)
def test_a_long_search_is_decided_by_timing_a_fold(monkeypatch, seconds, is_timed):
    """200 refits of so many seconds each, beside work of about 0.05 s."""
    monkeypatch.setattr(plainfits, "fit_seconds", lambda *_: seconds)
    monkeypatch.setattr(plainfits, "TIMED_FROM", 0.0)
    monkeypatch.setattr(plainfits, "LONG", 0.0)
    model, grid = KernelRidge(kernel="rbf"), {"alpha": np.logspace(-2, 2, 20), "gamma": [0.1, 1.0]}
    search, rows, target = FastGridSearchCV(model, grid), np.tile(X, (5, 1)), np.tile(y, 5)
    assert ("was timed" in str(search.plan(rows, target))) is is_timed
    monkeypatch.setattr(plainfits, "TIMED_FROM", 60.0)
    monkeypatch.setattr(plainfits, "LONG", 60.0)
    assert "was timed" not in str(search.plan(rows, target))


def test_logistic_regression_whose_solver_is_slow_is_not_refitted():
    rows, labels = make_classification(2000, 60, n_informative=9, flip_y=0.1, random_state=0)
    rows *= np.logspace(0.0, 2.0, 60)  # hundreds of iterations of lbfgs
    search = FastGridSearchCV(LogisticRegression(max_iter=3000), {"C": np.logspace(-2, 2, 12)})
    search.fit(rows, labels)
    assert set(search.cv_results_["status"]) == {"exact"}


@pytest.mark.parametrize(
    ("model", "grid", "rows", "target", "is_counted"),
    [
        (KernelRidge(kernel="rbf"), {"alpha": [0.1, 1.0], "gamma": [0.1, 1.0]}, X, y, False),
        (Ridge(), {"alpha": [0.1, 1.0]}, X, both, False),
        (SVC(), {"C": [0.1, 1.0], "gamma": [0.1, "scale"]}, X, two, False),
        (KernelRidge(kernel="rbf"), {"alpha": [0.1]}, LONG[:, :5], 1.0 * SIDES, True),
    ],
)
def test_work_that_takes_less_than_the_calls_of_refits_is_planned_as_if_all_were_counted(
    model, grid, rows, target, is_counted, monkeypatch
):
    search, counted, seconds = FastGridSearchCV(model, grid, cv=2), [], plainfits.fit_seconds

    def count(*asked):
        counted.append(asked)
        return seconds(*asked)

    monkeypatch.setattr(plainfits, "fit_seconds", count)
    monkeypatch.setattr(plainfits, "LEAST", 0.0)
    quick = search.plan(rows, target)
    assert bool(counted) is bool(quick.plain) is is_counted
    monkeypatch.setattr(plainfits, "LONG", 0.0)  # nothing is short then, and nothing is timed
    monkeypatch.setattr(plainfits, "WITHIN", 0.0)
    whole = search.plan(rows, target)
    assert counted
    assert (whole.methods, whole.plain) == (quick.methods, quick.plain)


@pytest.fixture
def taken(monkeypatch):
    """The rows that refits take from X, each time they do."""
    split, found = refits.safe_split, []

    def safe_split(estimator, X, y, rows, *others):
        found.append(tuple(rows))
        return split(estimator, X, y, rows, *others)

    monkeypatch.setattr(refits, "safe_split", safe_split)
    return found


@pytest.mark.parametrize(
    ("model", "grid", "target", "scoring"),
    [
        (LogisticRegression(), CS, two, None),
        (
            LogisticRegression(),
            {"C": [0.1, 1.0]},
            np.arange(90) % 3,
            ["accuracy", "balanced_accuracy"],
        ),
        (RidgeClassifier(), {"alpha": [0.1, 9.0]}, two, "balanced_accuracy"),
        (Ridge(), {"alpha": [0.1, 9.0], "fit_intercept": [False, True]}, both, None),
        (Ridge(), {"alpha": [0.1, 9.0]}, y, "neg_mean_absolute_error"),
        (RidgeCV(), {"fit_intercept": [False, True]}, y, None),
    ],
)
def test_refits_share_the_rows_of_folds_and_are_scored_alike(
    cheap, taken, monkeypatch, model, grid, target, scoring
):
    monkeypatch.setattr(refits, "fit_and_score", None)
    options = {"scoring": scoring, "cv": ms.ShuffleSplit(4, random_state=0), "refit": False}
    ours = FastGridSearchCV(model, grid, **options).fit(X, target)
    theirs = ms.GridSearchCV(model, grid, **options).fit(X, target)
    assert set(ours.cv_results_["status"]) == {"refitted"}
    assert len(taken) == 8  # training and test rows of four folds, however many candidates
    for name in theirs.cv_results_:
        if "test" in name and "rank" not in name:
            assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-12)


def test_refits_that_write_on_their_rows_do_not_share_them(cheap, taken):
    grid, rows = {"alpha": [0.1, 1.0, 10.0]}, 100.0 + X
    model = Ridge(copy_X=False, fit_intercept=True)
    ours = FastGridSearchCV(model, grid, cv=4, refit=False).fit(rows, y)
    assert len(taken) == 24
    theirs = ms.GridSearchCV(Ridge(), grid, cv=4, refit=False).fit(rows, y)
    known = theirs.cv_results_["mean_test_score"]
    assert_allclose(ours.cv_results_["mean_test_score"], known, rtol=1e-12)


def test_a_refit_that_fails_is_told_as_scikit_learn_does(cheap, monkeypatch):
    fit = Ridge.fit

    def failing(self, rows, target, **_):
        if self.alpha == 5.0 and len(rows) == 67:
            raise FloatingPointError("no such fit")
        return fit(self, rows, target)

    monkeypatch.setattr(Ridge, "fit", failing)
    options = {"param_grid": {"alpha": [1.0, 5.0]}, "cv": 4, "error_score": -9.0}
    with pytest.warns(FitFailedWarning, match="2 fits failed out of a total of 8"):
        theirs = ms.GridSearchCV(Ridge(), **options).fit(X, y)
    with pytest.warns(FitFailedWarning, match="no such fit"):
        ours = FastGridSearchCV(Ridge(), **options).fit(X, y)
    for k in range(4):
        name = f"split{k}_test_score"
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-12)
    raised = pytest.raises(FloatingPointError, match="no such fit")
    with raised, pytest.warns(UserWarning, match="was interrupted"):
        FastGridSearchCV(Ridge(), **{**options, "error_score": "raise"}).fit(X, y)


@pytest.mark.parametrize("n", [120, 1200])
def test_classes_that_can_be_separated_are_fitted_to_the_minimum(n):
    """Where the minimum is far away, refits stop before it, and take longer."""
    rows = np.random.default_rng(0).normal(size=(n, 12))
    labels = np.argmax(rows[:, :4], axis=1)
    model = LogisticRegression(max_iter=1000)
    cv = ms.RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=0)
    search = FastGridSearchCV(model, {"C": [0.1, 1.0, 10.0, 100.0]}, cv=cv, refit=False)
    assert set(search.fit(rows, labels).cv_results_["status"]) == {"exact"}
