"""A search along the gradient: its start, its optimum and its choice, against plain loops."""

import pickle

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from everyfold import (
    LSSVC,
    LSSVR,
    FastGradientSearchCV,
    FeatureWeightsDisplay,
    HuberSVC,
    KernelClassifier,
    KernelRegressor,
    Nystrom,
    RandomFourier,
)
from everyfold.gradient import descent
from everyfold.gradient import gradient_search as starts
from everyfold.gradient import outer_folds as scales
from everyfold.gradient.outer_folds import OuterDescents
from everyfold.kernels import resolve_gamma
from everyfold.linalg import memory

random = np.random.default_rng(1)
X = random.uniform(-1.5, 1.5, size=(120, 4))
y = np.sin(3.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * random.normal(size=120)
LABELS = np.where(y > 0.0, "up", "down")
NEW = random.uniform(-1.5, 1.5, size=(400, 4))
TRUTH = np.sin(3.0 * NEW[:, 0]) + 0.5 * NEW[:, 1]
START = {"gamma": 0.25, "alpha": 0.05}
STEEP = {"gamma": 1.0, "alpha": 0.05}
FOLDS = KFold(4, shuffle=True, random_state=0)


def quick(estimator=None, **params):
    usual = {"cv": FOLDS, "shrinkage": 0.01, "max_iter": 8, "start": START}
    return FastGradientSearchCV(estimator or LSSVR(), **{**usual, **params})


@pytest.fixture(scope="module", autouse=True)
def small_grid():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "START_GAMMAS", np.array([0.1, 0.3, 1.0]))
        patch.setattr(starts, "START_RIDGES", np.array([0.01, 0.1, 1.0]))
        yield


@pytest.fixture(scope="module")
def found():
    return FastGradientSearchCV(LSSVR(), cv=FOLDS, max_iter=20).fit(X, y)


def isotropic(X):
    gammas = resolve_gamma("scale", X) * starts.START_GAMMAS
    return {"gamma": gammas, "alpha": starts.START_RIDGES}


def test_finds_the_features_that_matter(found):
    start = LSSVR(gamma=found.path_[0]["gamma"], alpha=found.path_[0]["alpha"]).fit(X, y)
    errors = [np.mean((model.predict(NEW) - TRUTH) ** 2) for model in (start, found)]
    assert errors[1] < 0.2 * errors[0]
    weights = found.feature_weights_
    assert max(weights, key=weights.get) == 0
    assert weights[2] + weights[3] < 0.15  # half of all at the start
    assert sum(weights.values()) == pytest.approx(1.0)
    assert [entry["shrinkage"] for entry in found.path_] == [np.inf, 0.03, 0.003]
    assert "chosen" in found.summary_


def test_start_is_the_best_of_the_isotropic_grid(found):
    theirs = GridSearchCV(LSSVR(), isotropic(X), cv=FOLDS).fit(X, y)
    assert found.path_[0]["gamma"] == pytest.approx(theirs.best_params_["gamma"])
    assert found.path_[0]["alpha"] == pytest.approx(theirs.best_params_["alpha"])
    stay = quick(shrinkage=np.inf, start="auto").fit(X, y)
    assert stay.best_params_ == pytest.approx(theirs.best_params_)
    assert_allclose(stay.predict(NEW), theirs.predict(NEW), rtol=1e-6)
    assert len(stay.path_) == 1


def test_outer_scores_of_the_start_are_nested_ones(found):
    splits = list(FOLDS.split(X))
    for number, (train, test) in enumerate(splits):
        place = {row: i for i, row in enumerate(train)}
        others = [held for k, (_, held) in enumerate(splits) if k != number]
        helds = [np.array([place[row] for row in held]) for held in others]
        inner = [(np.setdiff1d(np.arange(len(train)), held), held) for held in helds]
        grid = isotropic(X)
        best = GridSearchCV(LSSVR(), grid, cv=inner).fit(X[train], y[train])
        score = best.score(X[test], y[test])
        assert found.path_[0]["outer_scores"][number] == pytest.approx(score, rel=1e-6)


def test_optimum_is_one_of_refits(monkeypatch):
    monkeypatch.setattr(descent, "TOLERANCE", 1e-6)
    search = quick(shrinkage=0.05, max_iter=200).fit(X, y)
    point = search.path_[1]

    def objective(z):
        model = LSSVR(gamma=np.exp(z[:4]), alpha=np.exp(z[4]))
        errors = -cross_val_score(model, X, y, cv=FOLDS, scoring="neg_mean_squared_error")
        return errors.mean() / y.var() + 0.05 * np.var(z[:4])

    at = np.log(np.append(point["gamma"], point["alpha"]))
    assert objective(at) == pytest.approx(
        point["cv_error"] / y.var() + 0.05 * np.var(at[:4]), rel=1e-8
    )
    steps = 0.2 * np.vstack([np.eye(5), -np.eye(5)])
    assert min(objective(at + step) for step in steps) > objective(at)


@pytest.mark.parametrize("seed", range(3))
def test_chooses_by_one_standard_error_of_outer_scores(seed):
    local = np.random.default_rng(seed)
    rows = local.normal(size=(40, 3))
    noisy = np.exp(-(rows**2).sum(axis=1)) + 0.3 * local.normal(size=40)
    search = FastGradientSearchCV(LSSVR(), cv=4, max_iter=8, start=START).fit(rows, noisy)
    start, best = search.path_[0]["outer_scores"], search.path_[search.best_index_]["outer_scores"]
    chosen = [k for k, entry in enumerate(search.path_) if entry["is_chosen"]]
    assert chosen == [search.best_index_]
    assert best.mean() >= start.mean()
    assert search.best_score_ == pytest.approx(best.mean())
    allowed = {0: 0.0}
    for k, entry in enumerate(search.path_[1:], start=1):
        gain = entry["outer_scores"] - start
        if gain.mean() > np.std(gain, ddof=1) / np.sqrt(len(gain)):
            allowed[k] = gain.mean()
    assert search.best_index_ == max(allowed, key=allowed.get)


@pytest.mark.parametrize("seed", range(4))
def test_labels_need_better_values_too(seed):
    local = np.random.default_rng(seed)
    rows = local.normal(size=(60, 4))
    labels = np.where(rows[:, 0] * rows[:, 1] + 0.5 * local.normal(size=60) > 0.0, "b", "a")
    search = quick(LSSVC(), shrinkage="auto", start={"gamma": 0.5, "alpha": 0.1})
    search.fit(rows, labels)
    machine, code = LSSVC(gamma=0.5, alpha=0.1), np.where(labels == "b", 1.0, -1.0)
    for number, (train, test) in enumerate(FOLDS.split(rows)):
        values = machine.fit(rows[train], labels[train]).decision_function(rows[test])
        loss = np.mean((values - code[test]) ** 2)
        assert search.path_[0]["outer_losses"][number] == pytest.approx(loss)
    allowed = {0: 0.0}
    for k, entry in enumerate(search.path_[1:], start=1):
        gains = entry["outer_scores"] - search.path_[0]["outer_scores"]
        falls = search.path_[0]["outer_losses"] - entry["outer_losses"]
        if all(g.mean() > 1.000001 * np.std(g, ddof=1) / 2.0 for g in (gains, falls)):
            allowed[k] = gains.mean()
    assert search.best_index_ == max(allowed, key=allowed.get)


@pytest.mark.parametrize(
    ("machine", "target", "how"),
    [
        (LSSVR(), y, {}),
        (LSSVR(), np.column_stack([y, X[:, 2]]), {"scoring": "neg_mean_absolute_error"}),
        (KernelRegressor(kernel="laplacian", fit_intercept=False), y, {}),
        (LSSVC(), LABELS, {}),
        (LSSVC(), np.digitize(y, [-0.5, 0.5]), {"scoring": "balanced_accuracy"}),
    ],
    ids=["numbers", "targets", "laplacian", "labels", "classes"],
)
def test_scores_are_those_of_refits(machine, target, how):
    search = quick(machine, shrinkage="auto", max_iter=4, **how).fit(X, target)
    scorer = check_scoring(machine, scoring=how.get("scoring"))
    for entry in search.path_:
        for k, (train, test) in enumerate(FOLDS.split(X, target)):
            refitted = clone(machine).set_params(**entry["outer_params"][k])
            refitted.fit(X[train], target[train])
            score = scorer(refitted, X[test], target[test])
            assert entry["outer_scores"][k] == pytest.approx(score, rel=1e-7)
    best = search.path_[search.best_index_]
    assert search.best_score_ == pytest.approx(best["outer_scores"].mean())
    refitted = clone(machine).set_params(**search.best_params_).fit(X, target)
    values = "decision_function" if is_classifier(machine) else "predict"
    assert_allclose(getattr(search, values)(NEW), getattr(refitted, values)(NEW), rtol=1e-6)


@pytest.mark.parametrize("change", [{}, {"max_iter": np.int64(2)}, {"shrinkage": 0}])
@pytest.mark.parametrize(
    ("rows", "target", "cv"),
    [
        (X[:10], y[:10], 5),
        (X[:10], y[:10], LeaveOneOut()),
        (X[:6], y[:6], KFold(5)),
        (X[:30, :1], y[:30], 3),
        (np.column_stack([X[:30], X[:30]]), y[:30], 3),
        (np.repeat(X[:15], 2, axis=0), np.repeat(y[:15], 2), 3),
        (np.ones((30, 2)), y[:30], 3),
        (1e6 * X[:30], y[:30], 3),
        (X[:30], np.full(30, 3.0), 3),
    ],
    ids=["ten", "lone", "six", "one", "twins", "twice", "constant", "huge", "flat"],
)
def test_small_and_odd_data(rows, target, cv, change):
    search = FastGradientSearchCV(LSSVR(), cv=cv, random_state=0, **{"max_iter": 3, **change})
    search.fit(rows, target)
    assert np.isfinite(search.predict(rows)).all()
    assert np.isfinite(search.best_score_)
    for entry in search.path_:
        folds = check_cv(cv).split(rows)
        machine, errors = LSSVR(gamma=entry["gamma"], alpha=entry["alpha"]), []
        for train, test in folds:
            predicted = machine.fit(rows[train], target[train]).predict(rows[test])
            errors.append(np.mean((predicted - target[test]) ** 2))
        assert entry["cv_error"] == pytest.approx(np.mean(errors), rel=1e-6, abs=1e-20)


def test_weaker_shrinkage_is_tried_until_it_is_worse():
    lengths = set()
    for seed in range(6):
        local = np.random.default_rng(seed)
        rows = local.normal(size=(40, 3))
        noisy = np.sin(2.0 * rows[:, 0]) + 0.5 * local.normal(size=40)
        search = FastGradientSearchCV(LSSVR(), cv=4, max_iter=8, start=START).fit(rows, noisy)
        means = [entry["outer_scores"].mean() for entry in search.path_]
        assert (np.diff(means)[:-1] >= 0.0).all()
        assert len(means) == 3 or means[-1] < means[-2]
        lengths.add(len(means))
    assert lengths == {2, 3}


def test_noise_is_not_tuned():
    local = np.random.default_rng(0)
    search = FastGradientSearchCV(LSSVR(), cv=5, max_iter=8, start={"gamma": 0.2, "alpha": 1.0})
    search.fit(local.normal(size=(50, 5)), local.normal(size=50))
    assert search.best_index_ == 0
    assert search.path_[-1]["cv_error"] < search.path_[0]["cv_error"]  # which would over-fit


def test_kernel_ridge_becomes_its_twin_where_features_differ():
    search = quick(KernelRidge(kernel="rbf")).fit(X, y)
    assert type(search.best_estimator_) is KernelRegressor
    assert not search.best_estimator_.fit_intercept
    scaled = X * np.sqrt(search.best_params_["gamma"])
    plain = KernelRidge(kernel="rbf", gamma=1.0, alpha=search.best_params_["alpha"])
    expected = plain.fit(scaled, y).predict(NEW * np.sqrt(search.best_params_["gamma"]))
    assert_allclose(search.predict(NEW), expected, rtol=1e-6, atol=1e-9)
    stay = quick(KernelRidge(kernel="rbf"), shrinkage=np.inf).fit(X, y)
    assert type(stay.best_estimator_) is KernelRidge


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial"])
def test_other_kernels(kernel):
    search = quick(LSSVR(kernel=kernel, degree=2)).fit(X, y)
    assert search.path_[1]["cv_error"] < search.path_[0]["cv_error"]
    assert search.path_[1]["gamma"].shape == (4,)


def test_labels():
    search = quick(LSSVC()).fit(X, LABELS)
    assert list(search.classes_) == ["down", "up"]
    assert search.score(X, LABELS) == (search.predict(X) == LABELS).mean()
    assert search.decision_function(X).shape == (120,)
    flowers, species = load_iris(return_X_y=True)
    several = quick(LSSVC(), max_iter=3, cv=3).fit(flowers, species)
    assert several.decision_function(flowers).shape == (150, 3)
    assert several.score(flowers, species) > 0.9


def test_names_formats_and_targets():
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    search = quick().fit(frame, y)
    assert list(search.feature_weights_) == ["a", "b", "c", "d"]
    assert_allclose(search.predict(frame), quick().fit(X, y).predict(X), rtol=1e-6)
    few = quick(shrinkage=np.inf).fit(sparse.csr_array(X), y)
    assert_allclose(few.path_[0]["cv_error"], search.path_[0]["cv_error"], rtol=1e-8)
    both = quick().fit(X, np.column_stack([y, X[:, 2]]))
    assert both.predict(NEW).shape == (400, 2)
    assert both.feature_weights_[2] > search.feature_weights_["c"]


def test_what_is_tuned():
    given = {"gamma": 0.3, "alpha": 0.05}
    ridge = quick(start=given, parameters=("alpha",)).fit(X, y)
    assert [entry["gamma"] for entry in ridge.path_] == pytest.approx([0.3, 0.3])
    assert ridge.path_[1]["alpha"] != 0.05
    gamma = quick(start=given, parameters=("gamma",)).fit(X, y)
    assert [entry["alpha"] for entry in gamma.path_] == [0.05, 0.05]
    tied = quick(start=given, per_feature=False).fit(X, y)
    assert isinstance(tied.path_[1]["gamma"], float)
    assert tied.path_[1]["cv_error"] < tied.path_[0]["cv_error"]
    array = quick(start={"gamma": [1.0, 0.1, 0.1, 0.1], "alpha": 0.05}).fit(X, y)
    assert_allclose(array.path_[0]["gamma"], [1.0, 0.1, 0.1, 0.1])


def test_weights_and_groups():
    groups, weights = np.arange(120) // 3, random.uniform(0.0, 2.0, 120)
    search = quick(cv=GroupKFold(4), start={"gamma": 0.3, "alpha": 0.05})
    search.fit(X, y, groups=groups, sample_weight=weights)
    errors = []
    for train, test in GroupKFold(4).split(X, y, groups):
        model = LSSVR(gamma=0.3, alpha=0.05).fit(X[train], y[train], weights[train])
        errors.append(np.mean((model.predict(X[test]) - y[test]) ** 2))
    assert search.path_[0]["cv_error"] == pytest.approx(np.mean(errors), rel=1e-8)
    model = LSSVR(**search.best_params_).fit(X, y, weights)
    assert_allclose(search.predict(NEW), model.predict(NEW), rtol=1e-8)


@pytest.mark.parametrize(
    "cv", [LeaveOneOut(), RepeatedKFold(n_splits=3, n_repeats=4, random_state=0)]
)
def test_many_folds_are_left_out_in_five_sets(cv):
    one, other = (quick(cv=cv, max_iter=2, random_state=0).fit(X[:30], y[:30]) for _ in range(2))
    assert len(one.path_[0]["outer_scores"]) == 5
    assert_allclose(one.path_[1]["outer_scores"], other.path_[1]["outer_scores"], rtol=1e-12)


def test_time_series():
    search = quick(cv=TimeSeriesSplit(4)).fit(X, y)
    assert len(search.path_[0]["outer_scores"]) == 3  # nothing is tested before the first fold
    for number, (train, test) in enumerate(list(TimeSeriesSplit(4).split(X))[1:]):
        score = LSSVR(**START).fit(X[train], y[train]).score(X[test], y[test])
        assert search.path_[0]["outer_scores"][number] == pytest.approx(score)
    with pytest.raises(ValueError, match="only 1 of 2 leave training and test rows"):
        quick(cv=TimeSeriesSplit(2)).fit(X, y)


def test_workers_of_their_own():
    one, other = (quick(max_iter=2, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    assert_allclose(one.path_[1]["outer_scores"], other.path_[1]["outer_scores"], rtol=1e-8)


def test_conventions(capsys):
    search = quick(n_jobs=2, verbose=1, max_iter=5)
    with parallel_config("threading"):
        parallel = clone(search).fit(X, y)
    assert parallel.summary_ in capsys.readouterr().out
    serial = quick(max_iter=5).fit(X, y)
    assert_allclose(parallel.best_params_["gamma"], serial.best_params_["gamma"], rtol=1e-6)
    assert_allclose(pickle.loads(pickle.dumps(serial)).predict(X), serial.predict(X))
    table = quick(refit=False, max_iter=2).fit(X, y)
    assert "gamma" in table.best_params_
    with pytest.raises(AttributeError, match="refit=False"):
        table.predict(X)
    scored = quick(scoring="neg_mean_absolute_error", max_iter=5).fit(X, y)
    assert scored.score(X, y) == pytest.approx(-np.abs(scored.predict(X) - y).mean())
    pipeline = make_pipeline(StandardScaler(), quick(max_iter=2)).fit(X, y)
    assert pipeline.predict(NEW).shape == (400,)


def test_error_of_labels_is_that_of_one_versus_rest():
    flowers, species = load_iris(return_X_y=True)
    folds = StratifiedKFold(3)
    search = quick(LSSVC(), cv=folds, shrinkage=np.inf).fit(flowers, species)
    codes, errors = 2.0 * (species[:, None] == np.arange(3)) - 1.0, []
    for train, test in folds.split(flowers, species):
        machine = LSSVC(**START).fit(flowers[train], species[train])
        errors.append(np.mean((machine.decision_function(flowers[test]) - codes[test]) ** 2))
    assert search.path_[0]["cv_error"] == pytest.approx(np.mean(errors), rel=1e-8)


@pytest.mark.parametrize(
    ("machine", "target"), [(SVC(class_weight="balanced"), LABELS), (SVR(epsilon=0.05), y)]
)
def test_svms_choose_their_penalty_on_scaled_columns(machine, target):
    search = quick(machine, start=STEEP).fit(X, target)
    assert search.best_index_ == 1
    factors = np.sqrt(search.best_params_["gamma"])
    unit = y.std() if machine.__class__ is SVR else 1.0
    plain = clone(machine).set_params(gamma=1.0)
    theirs = GridSearchCV(plain, {"C": unit * scales.PENALTIES}, cv=FOLDS).fit(X * factors, target)
    assert search.best_params_["C"] == pytest.approx(theirs.best_params_["C"])
    expected = theirs.best_estimator_.predict(NEW * factors)
    np.testing.assert_array_equal(search.predict(NEW), expected)
    params = {**machine.get_params(), "gamma": 1.0, "C": search.best_params_["C"]}
    assert search.best_estimator_[-1].get_params() == params


def test_outer_scores_of_svms_are_theirs():
    search = quick(SVC(), shrinkage=np.inf).fit(X, LABELS)
    splits = list(FOLDS.split(X))
    scores = []
    for number, (train, test) in enumerate(splits):
        place = np.full(120, -1)
        place[train] = np.arange(len(train))
        helds = [place[held] for k, (_, held) in enumerate(splits) if k != number]
        inner = [(np.setdiff1d(np.arange(len(train)), held), held) for held in helds]
        own = SVC(gamma=START["gamma"])
        grid = GridSearchCV(own, {"C": scales.PENALTIES}, cv=inner).fit(X[train], LABELS[train])
        scores.append(grid.score(X[test], LABELS[test]))
    assert_allclose(search.path_[0]["outer_scores"], scores)


def test_linear_kernel_with_weights():
    search = quick(LSSVR(kernel="linear"), start="auto").fit(X, X[:, 0] + 0.1 * y)
    best = search.best_estimator_
    assert (best.kernel, best.degree, best.coef0) == ("polynomial", 1, 0.0)
    gamma = np.broadcast_to(search.best_params_["gamma"], 4)
    ridge = Ridge(alpha=search.best_params_["alpha"]).fit(X * np.sqrt(gamma), X[:, 0] + 0.1 * y)
    assert_allclose(search.predict(NEW), ridge.predict(NEW * np.sqrt(gamma)), rtol=1e-6, atol=1e-8)
    assert type(quick(Ridge(), max_iter=2).fit(X, y).best_estimator_) is KernelRegressor


def test_landmarks():
    search = quick(LSSVR(operator=Nystrom(40)), random_state=0).fit(X, y)
    assert search.path_[1]["cv_error"] < 0.7 * search.path_[0]["cv_error"]
    again = quick(LSSVR(operator=Nystrom(40)), random_state=0).fit(X, y)
    assert_allclose(again.path_[1]["gamma"], search.path_[1]["gamma"], rtol=1e-12)
    full = quick(LSSVR(operator=Nystrom(0.999, tol=0.0, random_state=0))).fit(X, y)
    dense = quick(LSSVR()).fit(X, y)
    assert_allclose(full.path_[0]["cv_error"], dense.path_[0]["cv_error"], rtol=1e-4)
    assert_allclose(full.path_[0]["outer_scores"], dense.path_[0]["outer_scores"], rtol=1e-3)


def test_plan_is_made_before_the_work():
    search = quick()
    made, done = search.plan(X, y), search.fit(X, y).plan_
    assert not hasattr(quick(), "plan_")
    assert "1 descents along the gradient on each of 5 sets of rows" in str(made)
    assert made.estimate == done.estimate > 0.0
    assert made.memory == done.memory >= 8 * 4 * 120**2
    assert done.seconds > 0.0
    assert pickle.loads(pickle.dumps(done)).rows == 120


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**5)
    with pytest.raises(MemoryError, match="n_samples=120"):
        quick().fit(X, y)


def test_what_is_advised_instead_fits(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 7 * 10**5)
    machines = [(SVC(), y > 0.0, LSSVC), (SVR(), y, LSSVR), (KernelRidge(kernel="rbf"), y, LSSVR)]
    for machine, target, instead in machines:
        with pytest.raises(MemoryError, match="n_samples=120") as refused:
            FastGradientSearchCV(machine, max_iter=1).fit(X, target)
        words = str(refused.value).replace("operator=Nystrom(1000)", "")
        assert f"{instead.__name__}()" in words
        assert "operator" not in words
        advised = instead(operator=Nystrom(8, random_state=0))
        FastGradientSearchCV(advised, max_iter=1).fit(X, target)


def test_journal(tmp_path, monkeypatch):
    path = tmp_path / "walks"
    whole = quick().fit(X, y)
    walk, done = OuterDescents.walk, []

    def dies(self, *args):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(args)
        return walk(self, *args)

    monkeypatch.setattr(OuterDescents, "walk", dies)
    with pytest.raises(KeyboardInterrupt):
        quick(checkpoint=path).fit(X, y)
    done.clear()
    monkeypatch.setattr(
        OuterDescents, "walk", lambda self, *args: (done.append(args), walk(self, *args))[1]
    )
    search = quick(checkpoint=path).fit(X, y)
    assert len(done) == 2  # of four outer folds
    assert_allclose(search.best_params_["gamma"], whole.best_params_["gamma"], rtol=1e-12)
    with monkeypatch.context() as patch:
        patch.setattr(descent.Descent, "walk", None)  # nothing is left to be done
        again = quick(checkpoint=path).fit(X, y)
    assert_allclose(again.best_params_["gamma"], whole.best_params_["gamma"], rtol=1e-12)
    assert_allclose(again.path_[1]["outer_scores"], whole.path_[1]["outer_scores"], rtol=1e-12)
    with pytest.raises(ValueError, match=r"another search.*options .shrinkage"):
        quick(checkpoint=path, shrinkage=0.1).fit(X, y)
    with pytest.raises(ValueError, match=r"another search.*data .y"):
        quick(checkpoint=path).fit(X, y + 1.0)
    with pytest.raises(ValueError, match="random_state"):
        quick(checkpoint=path, cv=KFold(3, shuffle=True)).fit(X, y)
    with pytest.raises(ValueError, match="random_state=None"):
        quick(checkpoint=path, cv=LeaveOneOut()).fit(X, y)


def test_weights_of_features_are_drawn(found):
    display = found.plot(most=3)
    assert isinstance(display, FeatureWeightsDisplay)
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names[0] == "0"
    assert [bar.get_width() for bar in display.bars_] == sorted(found.feature_weights_.values())[
        :0:-1
    ]
    assert display.points_.get_offsets().shape == (12, 2)
    assert found.fold_weights_.shape == (4, 4)
    assert_allclose(found.fold_weights_.sum(axis=1), 1.0)
    assert "1 smaller ones left out" in display.ax_.get_xlabel()
    with pytest.raises(ValueError, match="feature_weights_"):
        FeatureWeightsDisplay.from_search(LSSVR())


def test_constant_and_missing_features():
    wide = np.column_stack([X, np.full(120, 3.0)])
    search, plain = (quick(start=STEEP).fit(rows, y) for rows in (wide, X))
    assert search.feature_weights_[4] == 0.0
    assert np.isfinite(search.best_params_["gamma"]).all()
    assert search.path_[0]["cv_error"] == pytest.approx(plain.path_[0]["cv_error"])
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(holes, y)
    filled = make_pipeline(SimpleImputer(), StandardScaler(), quick(max_iter=2))
    assert np.isfinite(filled.fit(holes, y).predict(NEW)).all()


def test_inside_a_transformed_target():
    outer = TransformedTargetRegressor(quick(start=STEEP), func=np.log, inverse_func=np.exp)
    outer.fit(X, np.exp(y))
    inner = quick(start=STEEP).fit(X, y)
    assert_allclose(outer.predict(NEW), np.exp(inner.predict(NEW)), rtol=1e-6)


def test_more_features_than_rows():
    local = np.random.default_rng(0)
    rows = local.normal(size=(40, 100))
    search = quick(cv=3, start={"gamma": 0.01, "alpha": 0.1}).fit(rows, rows[:, 0])
    assert search.path_[1]["cv_error"] < search.path_[0]["cv_error"]
    assert max(search.feature_weights_, key=search.feature_weights_.get) == 0


def test_weights_count_in_outer_scores_as_in_searches():
    weights = np.random.default_rng(5).uniform(0.2, 2.0, 120)
    search = quick(shrinkage=0.01).fit(X, y, sample_weight=weights)
    theirs = GridSearchCV(LSSVR(), {k: [v] for k, v in START.items()}, cv=FOLDS)
    theirs.fit(X, y, sample_weight=weights)
    expected = [theirs.cv_results_[f"split{k}_test_score"][0] for k in range(4)]
    assert_allclose(search.path_[0]["outer_scores"], expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (quick(HuberSVC()), "does not have squared loss; use LSSVC"),
        (quick(LSSVR(kernel="cosine")), "which has no gamma"),
        (quick(SVC(kernel="precomputed")), "which has no gamma"),
        (quick(RidgeCV()), "chooses its own alpha"),
        (quick(LSSVR(operator=Nystrom(5, 3))), r"Nystrom\(n_landmarks\) alone"),
        (quick(LSSVR(operator=Nystrom(5, per_fold=True))), r"Nystrom\(n_landmarks\) alone"),
        (quick(LSSVR(operator=RandomFourier(5))), "has no gradient"),
        (quick(TransformedTargetRegressor(LSSVR(), func=np.exp)), "put the search inside"),
        (quick(start={"alpha": 0.0}), "pass a number > 0"),
        (quick(KernelRegressor(C=1.0)), "alpha = 1"),
        (quick(KernelClassifier(multi_class="ovo")), "multi_class='ovr'"),
        (quick(LSSVC(class_weight="balanced")), "class_weight='balanced'; pass a dict"),
        (quick(LSSVR(alpha=[1.0, 2.0])), "several ridges"),
        (quick(make_pipeline(StandardScaler(), LSSVR())), "put them before the search"),
        (quick(parameters=("C",)), "parameters="),
        (quick(parameters="gamma"), "parameters="),
        (quick(loss="logistic"), "loss='logistic'"),
        (quick(shrinkage=-1.0), "shrinkage=-1.0"),
        (quick(shrinkage="some"), "shrinkage='some'"),
        (quick(max_iter=0), "max_iter=0"),
        (quick(max_iter=True), "max_iter=True"),
        (quick(scoring="unknown"), "'unknown' is not a valid scoring"),
        (quick(cv=2), "only 0 of 2 leave training and test rows"),
        (quick(start="best"), "start='best'"),
        (quick(start={"C": 1.0}), "only 'gamma' and 'alpha'"),
        (quick(start={"gamma": 0.0}), "pass a number > 0"),
        (quick(start={"gamma": [1.0, 1.0]}), "one for each of the 4 features"),
        (quick(scoring=["r2"]), "is not a single scorer"),
        (quick(cv=[(np.arange(60), np.arange(50, 120))]), "no test row in the training set"),
        (quick(cv=[(np.arange(60), np.arange(60, 120))]), "two or more splits"),
    ],
)
def test_refusals(search, words):
    with pytest.raises(ValueError, match=words):
        search.fit(X, LABELS if is_classifier(search.estimator) else y)


WEIGHTS = "held-out errors are not weighted, as in scikit-learn's searches"


@parametrize_with_checks(
    [FastGradientSearchCV(LSSVR(), cv=3, shrinkage=0.1, max_iter=1, start=START)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
        "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
    },
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
