"""Passes over a source by several threads: the same sums, scores and models, errors and memory."""

import threading
from dataclasses import dataclass
from operator import add

import numpy as np
import pytest
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVC, FastGridSearchCV, KernelRegressor, Nystrom, cross_val_predict
from everyfold.estimators.sources import Summing
from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.base import Turns, by_threads
from everyfold.io.blocks import StreamError
from everyfold.linalg.blas import add_gram, thread_budget
from tests import cases

N = 256 * 9 + 17
X = cases.features(N) + 3.0
Y = cases.targets(X, 1)[:, 0]
WEIGHTS = np.linspace(0.2, 2.0, N)
MODEL = KernelRegressor(operator=Nystrom(12, random_state=0))
GRID = {"gamma": [0.05, 0.4], "alpha": [1e-3, 0.1, 1.0]}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("everyfold.io.blocks.BLOCK_BYTES", 1)  # blocks of 256 rows
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.cpu_count", lambda: 4)


def overwritten():
    """Pieces in one array, which every next piece is written to."""
    piece = np.empty((100, X.shape[1]))
    for i in range(0, N, 100):
        rows = piece[: min(100, N - i)]
        rows[:] = X[i : i + 100]
        yield rows, Y[i : i + 100]


def search(source, model=MODEL, grid=GRID, **options):
    options = {"cv": KFold(4, shuffle=True, random_state=1), "random_state": 0, **options}
    return FastGridSearchCV(model, grid, **options).fit(source)


def assert_alike(one, other):
    for key in one.cv_results_:
        if key.endswith("_score"):
            there, here = other.cv_results_[key], one.cv_results_[key]
            np.testing.assert_allclose(there, here, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "neg_max_error"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("is_scaled", [True, False])
def test_the_number_of_threads_does_not_matter(scoring, weights, is_scaled):
    model = make_pipeline(StandardScaler(), MODEL) if is_scaled else MODEL
    grid = {f"kernelregressor__{k}": v for k, v in GRID.items()} if is_scaled else GRID
    found = {}
    for n_jobs in (1, 2, 3):
        source = ArrayRows(X, Y, sample_weight=weights)
        found[n_jobs] = search(source, model, grid, scoring=scoring, n_jobs=n_jobs)
        assert [unit.threads for unit in found[n_jobs].plan_.units] == [n_jobs]
        assert_alike(found[1], found[n_jobs])
    assert found[1].plan_.memory < found[2].plan_.memory < found[3].plan_.memory


def test_scores_are_those_of_rows_in_memory():
    whole = FastGridSearchCV(MODEL, GRID, cv=KFold(4)).fit(X, Y)
    assert_alike(whole, search(ArrayRows(X, Y), cv=KFold(4), n_jobs=3))


def test_pieces_that_are_overwritten():
    source = IteratedRows(overwritten, n_features=X.shape[1])
    assert_alike(search(ArrayRows(X, Y)), search(source, n_jobs=3))


@pytest.mark.parametrize("k", [2, 3])
def test_classes(k):
    y = np.searchsorted(np.quantile(Y, np.linspace(0, 1, k + 1)[1:-1]), Y)
    model = LSSVC(operator=Nystrom(12, random_state=0))
    one, other = (search(ArrayRows(X, y), model, n_jobs=jobs) for jobs in (1, 2))
    assert_alike(one, other)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


def test_held_out_values_are_in_the_order_of_the_rows():
    one, other = (cross_val_predict(MODEL, ArrayRows(X, Y), cv=4, n_jobs=j) for j in (1, 3))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_a_fit_by_threads(monkeypatch):
    plain = MODEL.fit(ArrayRows(X, Y)).predict(X[:50])
    monkeypatch.setattr("everyfold.estimators.base.thread_budget", lambda: 3)
    seen = []
    over = Summing.over

    def spy(self, source, threads=1):
        seen.append(threads)
        return over(self, source, threads)

    monkeypatch.setattr(Summing, "over", spy)
    np.testing.assert_allclose(MODEL.fit(ArrayRows(X, Y)).predict(X[:50]), plain, rtol=1e-9)
    monkeypatch.setattr("everyfold.linalg.memory.available_memory", lambda: 10**5)
    MODEL.fit(ArrayRows(X, Y))
    assert seen == [3, 1]  # as many as half of the free memory holds


@dataclass
class Starts:
    """The first rows of blocks, by the thread that had them; wrong ones are refused."""

    bad: int = -1

    def __call__(self, source):
        found = []
        for block in source.blocks(100):
            if block.start == self.bad:
                raise ZeroDivisionError("a bad block")
            found.append((block.start, threading.get_ident(), thread_budget()))
        return found


def test_blocks_are_taken_in_turn():
    found = ArrayRows(X, Y).reduce(Starts(), add, threads=3)
    starts = [start for start, *_ in found]
    every = range(0, N, 100)
    assert starts == [*every[::3], *every[1::3], *every[2::3]]
    assert found[0][1] == threading.get_ident()
    assert len({thread for _, thread, _ in found}) == 3
    more = ArrayRows(X[:50], Y[:50]).reduce(Starts(), add, threads=3)  # fewer blocks than threads
    assert [start for start, *_ in more] == [0]


@pytest.mark.parametrize("bad", [0, 100, 2300])
def test_an_error_of_a_thread_ends_all(bad):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="a bad block"):
        ArrayRows(X, Y).reduce(Starts(bad), add, threads=3)
    assert threading.active_count() == before


def test_an_error_of_the_source_keeps_its_words():
    spoilt = X.copy()
    spoilt[700, 1] = np.nan
    with pytest.raises(StreamError, match="row 700"):
        search(ArrayRows(spoilt, Y), n_jobs=3)


def test_a_pass_that_changes_is_noticed():
    rows = X.copy()
    source = ArrayRows(rows, Y)
    source.reduce(Starts(), add, threads=2)
    rows[5, 0] += 1.0
    with pytest.raises(StreamError, match="changed since the first pass"):
        source.reduce(Starts(), add, threads=2)


def test_an_interrupt_reaches_all_threads():
    def ends(turns, k):
        for item in turns.of(k, lambda: iter(range(1, 100))):
            if k == 0 and item > 20:
                raise KeyboardInterrupt
        return [k]

    turns = Turns(3)
    works = [lambda k=k: ends(turns, k) for k in range(3)]
    with pytest.raises(KeyboardInterrupt):
        by_threads(works, add, turns)


def test_as_many_threads_as_memory_allows(monkeypatch):
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.available_memory", lambda: 10**6)
    found = search(ArrayRows(X, Y), n_jobs=4)
    assert found.plan_.units[0].threads < 4
    assert found.plan_.memory <= 0.5e6 or found.plan_.units[0].threads == 1


def test_a_journal_has_the_digits_of_one_thread(tmp_path):
    one = search(ArrayRows(X, Y), n_jobs=1)
    kept = search(ArrayRows(X, Y), n_jobs=4, checkpoint=tmp_path / "kept.journal")
    assert [unit.threads for unit in kept.plan_.units] == [1]
    np.testing.assert_array_equal(
        kept.cv_results_["mean_test_score"], one.cv_results_["mean_test_score"]
    )


def test_workers_take_whole_passes_where_there_are_enough(monkeypatch):
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
    plan = FastGridSearchCV(MODEL, GRID, cv=4, n_jobs=2).plan(ArrayRows(X, Y))
    assert [unit.threads for unit in plan.units] == [1, 1]


@pytest.mark.parametrize("m", [1, 40])
@pytest.mark.parametrize("step", [1, 2])
def test_grams_are_sums_of_products(m, step):
    V = np.random.default_rng(0).normal(size=(m, 10))[:, ::step]
    gram = np.asfortranarray(np.tril(np.arange(V.shape[1] ** 2.0).reshape(V.shape[1], -1)))
    truth = np.tril(gram + V.T @ V)
    for rows in (V, np.repeat(V, 2, axis=0)[::2]):
        np.testing.assert_allclose(np.tril(add_gram(rows, gram.copy(order="F"))), truth, rtol=1e-12)
