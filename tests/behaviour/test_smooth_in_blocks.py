"""Smooth losses on rows in blocks: the scores of the same search in memory, pass by pass."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import everyfold.estimators.newton_passes as newton_passes
from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    Nystrom,
    RandomFourier,
    cross_val_predict,
    cross_val_score,
)
from everyfold.engine.source_data import PassNotes
from everyfold.estimators.sources import Summing
from everyfold.streams import ArrayRows, DaskRows, as_source

N, T = 240, 3
GRID = {"gamma": [0.05, 0.4], "C": [0.1, 1.0, 10.0]}
CV = KFold(T, shuffle=True, random_state=0)
LANDMARKS = Nystrom(10, sampling="uniform", random_state=0)


def rows(k=2, n=N):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3)) + np.array([0.0, 5.0, 0.0])
    value = np.sin(2.0 * X[:, 0]) + X[:, 1] - 5.0 + 0.7 * rng.normal(size=n)
    if k == 0:
        return X, value
    cuts = np.quantile(value, np.linspace(0, 1, k + 1)[1:-1])
    return X, np.array(["red", "green", "blue"])[np.searchsorted(cuts, value)]


def pair(model, grid=GRID, data=None, source=None, **options):
    X, y = data or rows()
    options = {"cv": CV, "scoring": "neg_log_loss", **options}
    memory = FastGridSearchCV(clone(model), grid, **options).fit(X, y)
    blocks = FastGridSearchCV(clone(model), grid, **options)
    return memory, blocks.fit(ArrayRows(X, y) if source is None else source)


@pytest.fixture(params=["held", "made in every pass"])
def features(request, monkeypatch):
    """Features of all rows that are held between passes, or not."""
    if request.param != "held":
        monkeypatch.setattr(newton_passes, "_HELD_SHARE", 0.0)


def assert_same(memory, blocks, atol=1e-6):
    for i in range(memory.n_splits_):
        key = f"split{i}_test_score"
        np.testing.assert_allclose(blocks.cv_results_[key], memory.cv_results_[key], atol=atol)
    assert blocks.best_params_ == memory.best_params_


@pytest.mark.parametrize("operator", [LANDMARKS, RandomFourier(10, random_state=0)], ids=repr)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_logistic_loss_equals_memory(operator, k, scoring):
    model = KernelLogisticClassifier(operator=operator)
    memory, blocks = pair(model, data=rows(k), scoring=scoring)
    assert_same(memory, blocks)
    X, _ = rows(k)
    proba = blocks.best_estimator_.predict_proba(ArrayRows(X, np.zeros(N)))
    np.testing.assert_allclose(proba, memory.predict_proba(X), atol=1e-5)
    assert blocks.classes_.tolist() == memory.classes_.tolist()


@pytest.mark.parametrize("loss", ["huber_hinge", "squared_hinge"])
@pytest.mark.usefixtures("features")
def test_hinges_equal_memory(loss):
    model = KernelClassifier(loss, operator=LANDMARKS, h=0.2)
    memory, blocks = pair(model, {"alpha": [0.05, 5.0]}, scoring="roc_auc")
    assert_same(memory, blocks)
    X, _ = rows()
    values = blocks.decision_function(X)
    np.testing.assert_allclose(values, memory.decision_function(X), atol=1e-4)


@pytest.mark.usefixtures("features")
def test_smooth_losses_of_numbers_equal_memory():
    model = KernelRegressor("smooth_epsilon", operator=LANDMARKS, h=0.3)
    data, grid = rows(0), {"alpha": [0.01, 1.0]}
    memory, blocks = pair(model, grid, data, scoring="neg_mean_absolute_error")
    assert_same(memory, blocks)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scaler", [False, True])
@pytest.mark.usefixtures("features")
def test_logistic_regression_equals_memory(intercept, scaler):
    model, grid = LogisticRegression(fit_intercept=intercept, tol=1e-9), {"C": [0.01, 1.0, 100.0]}
    if scaler:
        model = make_pipeline(StandardScaler(), model)
        grid = {f"logisticregression__{name}": values for name, values in grid.items()}
    memory, blocks = pair(model, grid)
    assert_same(memory, blocks)
    X, _ = rows()
    values = blocks.decision_function(X)
    np.testing.assert_allclose(values, memory.decision_function(X), atol=1e-5)


@pytest.mark.usefixtures("features")
def test_weights_of_rows_and_classes():
    X, y = rows()
    w = np.where(np.arange(N) % 5 == 0, 0.0, 1.0 + np.arange(N) % 3)
    fold = np.arange(N) % T
    source = ArrayRows(X, y, sample_weight=w, fold=fold)
    model = KernelLogisticClassifier(operator=LANDMARKS, class_weight={"green": 3.0})
    for C in (0.1, 10.0):
        own = clone(model).set_params(C=C)
        kept = w > 0.0  # in memory the same landmarks, which are drawn from all rows
        memory = cross_val_predict(
            own,
            X,
            y,
            cv=PredefinedSplit(fold),
            method="decision_function",
            params={"sample_weight": w},
        )
        blocks = cross_val_predict(own, source, cv=None, method="decision_function")
        np.testing.assert_allclose(blocks[kept], memory[kept], atol=1e-4)


@pytest.mark.usefixtures("features")
def test_blocks_and_samples_of_any_size(monkeypatch):
    model = KernelLogisticClassifier(operator=LANDMARKS)
    X, y = rows(n=700)
    expected = cross_val_score(model, X, y, cv=CV, scoring="neg_log_loss")
    monkeypatch.setattr(newton_passes, "LEAST_SAMPLED", 100)
    monkeypatch.setattr(newton_passes, "SAMPLED", 20)
    monkeypatch.setattr(newton_passes, "VALUES_AT_A_TIME", 1000)
    for height in (7, 300, 5000):
        monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda _, h=height: h)
        found = cross_val_score(model, ArrayRows(X, y), cv=CV, scoring="neg_log_loss")
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_features_that_are_held_take_one_pass_over_the_rows(monkeypatch):
    X, y = rows(n=700)
    model, grid = KernelLogisticClassifier(operator=LANDMARKS), {"C": [0.1, 10.0]}
    starts, passes = [], []
    read, run = ArrayRows.blocks, newton_passes.SlopePass.__call__

    def counted(self, size):
        starts.append(0)
        return read(self, size)

    monkeypatch.setattr(ArrayRows, "blocks", counted)
    monkeypatch.setattr("everyfold.engine.source_data.height_of", lambda _: 50)
    monkeypatch.setattr(
        newton_passes.SlopePass, "__call__", lambda *own: (passes.append(0), run(*own))[1]
    )
    counts, tables = [], []
    for share in (newton_passes._HELD_SHARE, 0.0):
        monkeypatch.setattr(newton_passes, "_HELD_SHARE", share)
        starts.clear(), passes.clear()
        search = FastGridSearchCV(model, grid, cv=CV, scoring="neg_log_loss")
        tables.append(search.fit(ArrayRows(X, y)).cv_results_["mean_test_score"])
        counts.append((len(starts), len(passes)))
    (held, of_held), (made, of_made) = counts
    assert of_held > 5
    assert made - of_made == held - 1  # features are made in a pass of their own
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-6)
    # Threads have every so-manyth block each.
    works = newton_passes.HeldRows.reduce
    monkeypatch.setattr(newton_passes, "_HELD_SHARE", 0.25)
    monkeypatch.setattr(
        newton_passes.HeldRows, "reduce", lambda self, work, _: works(self, work, 3)
    )
    search.fit(ArrayRows(X, y))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], tables[0], atol=1e-7)


def test_features_that_are_held_serve_numbers_far_from_zero():
    X, y = rows(0)
    model = KernelRegressor("smooth_epsilon", operator=LANDMARKS, h=0.3)
    data, grid = (X, y + 1e6), {"alpha": [0.01, 1.0]}
    memory, blocks = pair(model, grid, data, scoring="neg_mean_absolute_error")
    assert_same(memory, blocks)


def test_the_rows_themselves_follow_features_that_are_held(monkeypatch):
    """Single precision may not be enough; the last passes have the digits of the rows."""
    monkeypatch.setattr(newton_passes, "_HELD_PASSES", 0.2)
    read = []
    run = newton_passes.reduced
    monkeypatch.setattr(newton_passes, "reduced", lambda *own: (read.append(0), run(*own))[1])
    memory, blocks = pair(KernelLogisticClassifier(operator=LANDMARKS, gamma=0.4), {"C": [1.0]})
    assert len(read) > 3
    assert_same(memory, blocks)


@pytest.mark.parametrize("kind", ["parquet", "csv", "svm"])
def test_folders_of_files(tmp_path, kind):
    X, y = rows()
    codes = np.searchsorted(np.unique(y), y)
    for k, part in enumerate(np.array_split(np.arange(N), 3)):
        path = tmp_path / f"part.{k}.{kind}"
        frame = pd.DataFrame(X[part], columns=list("abc")).assign(label=codes[part])
        if kind == "parquet":
            frame.to_parquet(path)
        elif kind == "csv":
            frame.to_csv(path, index=False)
        else:
            lines = [
                f"{code} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row))
                for code, row in zip(codes[part], X[part], strict=True)
            ]
            path.write_text("\n".join(lines) + "\n")
    source = as_source(tmp_path, **({"n_features": 3} if kind == "svm" else {"target": "label"}))
    model = KernelLogisticClassifier(operator=LANDMARKS, gamma=0.1)
    memory, blocks = pair(model, {"C": [0.1, 10.0]}, (X, codes), source, cv=KFold(T))
    assert_same(memory, blocks)


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.filterwarnings("ignore:the search was interrupted")
def test_a_killed_search_goes_on_from_its_last_pass(tmp_path, monkeypatch):
    X, y = rows()
    model, path = KernelLogisticClassifier(operator=LANDMARKS), tmp_path / "checkpoint"
    search = FastGridSearchCV(model, GRID, cv=CV, scoring="neg_log_loss", refit=False)
    whole = search.fit(ArrayRows(X, y)).cv_results_
    search.set_params(checkpoint=path)
    done = []
    run = newton_passes.SlopePass.__call__

    def counted(self, source):
        done.append(0)
        if len(done) == 11:
            raise Killed
        return run(self, source)

    monkeypatch.setattr(newton_passes.SlopePass, "__call__", counted)
    with pytest.raises(Killed):
        search.fit(ArrayRows(X, y))
    first = len(done)
    found = search.fit(ArrayRows(X, y)).cv_results_
    for key in (f"split{i}_test_score" for i in range(T)):
        np.testing.assert_array_equal(found[key], whole[key])
    more = len(done) - first
    before = len(done)
    search.set_params(checkpoint=tmp_path / "another").fit(ArrayRows(X, y))
    assert more == len(done) - before - (first - 1)


def test_notes_do_not_travel():
    import pickle

    assert type(pickle.loads(pickle.dumps(PassNotes()))) is PassNotes


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_candidates_that_do_not_converge_fail_alone(monkeypatch):
    X, y = rows()
    monkeypatch.setattr(newton_passes, "MOST_PASSES", 16)
    model = KernelClassifier("huber_hinge", operator=LANDMARKS, gamma=0.4, h=0.5)
    search = FastGridSearchCV(model, {"alpha": [1e-6, 5.0]}, cv=CV, refit=False)
    with pytest.warns(FitFailedWarning, match="decrement"):
        search.fit(ArrayRows(X, y))
    scores = search.cv_results_["mean_test_score"]
    assert np.isnan(scores[0])
    assert np.isfinite(scores[1])
    with pytest.raises(ArithmeticError, match="smaller C"):
        search.set_params(error_score="raise").fit(ArrayRows(X, y))
    monkeypatch.setattr(newton_passes, "MOST_PASSES", 2)
    with pytest.warns(ConvergenceWarning, match="larger alpha"):
        model.set_params(alpha=1e-6).fit(ArrayRows(X, y))


def test_folds_that_lack_a_class_are_refused():
    X, y = rows()
    order = np.argsort(y)
    model = HuberSVC(operator=LANDMARKS)
    with pytest.raises(ValueError, match="sorted by label"):
        cross_val_score(model, ArrayRows(X[order], y[order]), cv=2)
    with pytest.raises(ValueError, match="against the rest"):
        cross_val_score(LogisticRegression(), ArrayRows(*rows(3)), cv=3)


def test_the_winner_needs_no_pass_of_its_own_for_squared_loss(monkeypatch):
    X, y = rows(0)
    calls = []
    run = Summing.__call__
    monkeypatch.setattr(
        Summing, "__call__", lambda self, source: (calls.append(0), run(self, source))[1]
    )
    model = KernelRegressor(operator=LANDMARKS)
    grid = {"gamma": [0.05, 0.4], "alpha": [0.1, 1.0, 10.0]}
    for target in (y, y[:, None], np.column_stack([y, -y])):
        calls.clear()
        search = FastGridSearchCV(model, grid, cv=CV).fit(ArrayRows(X, target))
        assert len(calls) == 1
        alone = clone(model).set_params(**search.best_params_).fit(ArrayRows(X, target))
        assert len(calls) == 2
        np.testing.assert_allclose(search.predict(X), alone.predict(X), rtol=1e-9)
        assert search.predict(X).shape == target.shape
        assert search.n_features_in_ == 3


@pytest.mark.parametrize("k", [2, 3])
def test_the_winner_of_a_smooth_loss_starts_at_the_models_of_the_folds(k, monkeypatch):
    X, y = rows(k)
    model = KernelLogisticClassifier(operator=LANDMARKS)
    sampled = []
    run = newton_passes.Sampling.__call__
    monkeypatch.setattr(
        newton_passes.Sampling,
        "__call__",
        lambda self, source: (sampled.append(0), run(self, source))[1],
    )
    search = FastGridSearchCV(model, GRID, cv=CV, scoring="accuracy").fit(ArrayRows(X, y))
    assert len(sampled) == 2  # one for each kernel, and none for the refit
    alone = clone(model).set_params(**search.best_params_).fit(ArrayRows(X, y))
    values = search.decision_function(X)
    np.testing.assert_allclose(values, alone.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(search.classes_, alone.classes_)
    chosen = FastGridSearchCV(model, GRID, cv=CV, refit=lambda table: 0).fit(ArrayRows(X, y))
    assert chosen.best_params_ == {"gamma": 0.05, "C": 0.1}


def test_partitions_of_dask_equal_memory():
    da = pytest.importorskip("dask.array")
    X, y = rows()
    parts = DaskRows(da.from_array(X, chunks=(90, 3)), da.from_array(y == "red", chunks=90))
    model = KernelLogisticClassifier(operator=LANDMARKS, gamma=0.1)
    options = {"source": parts, "cv": KFold(T), "scoring": "accuracy"}
    memory, blocks = pair(model, {"C": [0.1, 10.0]}, (X, y == "red"), **options)
    assert_same(memory, blocks)
