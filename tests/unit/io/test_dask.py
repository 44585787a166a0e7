"""A Dask cluster of two processes: the numbers of one process, and nothing lost or left behind."""

import os
import signal
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold import (
    LSSVC,
    FastGridSearchCV,
    KernelRegressor,
    Nystrom,
    cross_val_predict,
    cross_val_score,
)
from everyfold.engine.execution.executor import local_threads, map_unordered
from everyfold.io.arrays import ArrayRows
from everyfold.io.blocks import StreamError
from everyfold.io.cluster import Cluster, ClusterError
from everyfold.io.conversion import as_source
from everyfold.io.dask import DaskRows
from everyfold.io.tables import FolderRows
from everyfold.search.progress import Progress
from tests import cases

da = pytest.importorskip("dask.array", reason="dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

N = 203
X = cases.features(N)[:, :3]
Y = cases.targets(X, 1)[:, 0] + 10.0
LABELS = np.where(np.median(Y) < Y, "up", "down")
WEIGHTS = np.linspace(0.5, 2.0, N)
FOLD = np.random.default_rng(0).integers(4, size=N)
NAMES = ["a", "b", "c"]
OPERATOR = Nystrom(15, random_state=0)
GRID = {"gamma": [0.1, 1.0], "alpha": [1e-2, 1.0]}
CHUNKS = {"one": N, "some": 50, "many": 7, "uneven": (1, 100, 2, 100)}


def frame():
    return pd.DataFrame(X, columns=NAMES).assign(t=Y, w=WEIGHTS, f=FOLD, label=LABELS)


def lazy(chunks="some", y=Y, **more):
    """The rows in chunks, of columns too, with y in others."""
    rows = da.from_array(X, chunks=(CHUNKS[chunks], 2))
    return DaskRows(rows, da.from_array(y, chunks=64), **more)


def search(estimator=None, grid=GRID, **options):
    model = KernelRegressor(operator=OPERATOR) if estimator is None else estimator
    return FastGridSearchCV(model, grid, **{"cv": KFold(4), **options})


def table(found, name="score"):
    keys = [f"split{i}_test_{name}" for i in range(found.n_splits_)]
    return np.array([found.cv_results_[key] for key in keys])


@pytest.fixture(scope="module")
def cluster():
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
    with distributed.LocalCluster(n_workers=2, processes=True, **options) as found:
        yield found


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as found:
        yield found
        assert left_on(found) == []


def left_on(client):
    """The tasks that a cluster still knows, after a while."""
    for _ in range(50):
        found = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
        if not found:
            break
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def local():
    return search().fit(ArrayRows(X, Y))


class TestWithoutCluster:
    """Dask's collections, worked on here."""

    @pytest.mark.parametrize("chunks", CHUNKS)
    def test_any_chunks(self, chunks, local):
        found = search().fit(lazy(chunks))
        np.testing.assert_allclose(table(found), table(local), rtol=1e-9)

    def test_frames_and_columns(self, local):
        whole = dd.from_pandas(frame()[[*NAMES, "t", "w", "f"]], npartitions=3)
        found = search(cv=None).fit(DaskRows(whole, target="t", sample_weight="w", fold="f"))
        source = ArrayRows(frame()[NAMES], Y, sample_weight=WEIGHTS, fold=FOLD)
        expected = search(cv=None).fit(source)
        np.testing.assert_allclose(table(found), table(expected), rtol=1e-9)
        apart = search().fit(whole[NAMES], whole["t"])
        np.testing.assert_allclose(table(apart), table(local), rtol=1e-9)
        assert list(apart.feature_names_in_) == NAMES

    def test_lazy_predictions(self, local):
        rows = da.from_array(X, chunks=(40, 2))
        found = local.predict(rows)
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), local.predict(X), rtol=1e-12)
        table = dd.from_pandas(frame()[NAMES], npartitions=2)
        model = LSSVC(operator=OPERATOR).fit(frame()[NAMES], LABELS)
        labels, values = (getattr(model, m)(table) for m in ("predict", "decision_function"))
        np.testing.assert_array_equal(labels.compute().to_numpy(), model.predict(frame()[NAMES]))
        expected = model.decision_function(frame()[NAMES])
        np.testing.assert_allclose(values.compute().to_numpy(), expected, rtol=1e-12)
        three = np.searchsorted(np.quantile(Y, [0.3, 0.6]), Y)
        model.fit(X, three)
        later = model.decision_function(rows)
        assert later.shape == (N, 3)
        np.testing.assert_allclose(later.compute(), model.decision_function(X), rtol=1e-12)

    def test_take_and_blocks(self):
        source = lazy("many")
        rows = [202, 0, 7, 6, 100]
        np.testing.assert_array_equal(source.take(rows), X[rows])
        np.testing.assert_array_equal(np.concatenate([b.X for b in source.blocks(33)]), X)
        assert source.n_rows == N
        assert as_source(da.from_array(X), Y).n_rows == N

    def test_identity(self):
        assert lazy().identity() == lazy().identity()
        assert lazy().identity() != lazy("many").identity()
        assert lazy().identity() != lazy(y=Y + 1).identity()

    def test_refusals(self):
        rows = da.from_array(X, chunks=50)
        with pytest.raises(StreamError, match="needs y"):
            search().fit(rows)
        with pytest.raises(StreamError, match="X has 203 rows, but y has shape"):
            DaskRows(rows, Y[:-1])
        with pytest.raises(StreamError, match="two axes"):
            DaskRows(da.from_array(Y), Y)
        whole = dd.from_pandas(frame(), npartitions=3)
        with pytest.raises(StreamError, match="needs either y or target"):
            DaskRows(whole)
        with pytest.raises(StreamError, match="there is no column 'z'"):
            DaskRows(whole, target="z")
        with pytest.raises(StreamError, match="3 partitions, but y has 2"):
            DaskRows(whole[NAMES], whole["t"].repartition(npartitions=2))

    def test_partitions_that_change(self):
        rng = np.random.default_rng(0)
        rows = da.from_array(X, chunks=(50, 3)).map_blocks(lambda x: x + rng.normal(), meta=X[:0])
        with pytest.raises(StreamError, match="X of partition 0 changed since the first pass"):
            search(scoring="neg_mean_absolute_error").fit(DaskRows(rows, Y))


class TestOnCluster:
    @pytest.mark.parametrize("kind", ["some", "many", "persisted", "frame", "folder", "csv"])
    def test_the_numbers_of_one_process(self, kind, client, local, tmp_path):
        if kind == "persisted":
            rows = da.from_array(X, chunks=(40, 2)).persist()
            source = DaskRows(rows, da.from_array(Y, chunks=64).persist())
        elif kind == "frame":
            source = DaskRows(dd.from_pandas(frame()[[*NAMES, "t"]], npartitions=3), target="t")
        elif kind in ("folder", "csv"):
            for i, part in enumerate(np.array_split(np.arange(N), 4)):
                rows = frame()[[*NAMES, "t"]].iloc[part]
                if kind == "csv":
                    rows.to_csv(tmp_path / f"{i}.csv", index=False)
                else:
                    rows.to_parquet(tmp_path / f"{i}.parquet")
            source = DaskRows(FolderRows(tmp_path, target="t"))
        else:
            source = lazy(kind)
        found = search().fit(source)
        np.testing.assert_allclose(table(found), table(local), rtol=1e-9)
        rows = X if kind in ("some", "many", "persisted") else frame()[NAMES]
        np.testing.assert_allclose(found.predict(rows), local.predict(X), rtol=1e-9)
        assert "partitions on 2 workers with 2 threads, 1 pass" in str(found.plan_)

    def test_scaled_rows_classes_and_second_passes(self, client):
        grid = {"lssvc__alpha": [1e-2, 1.0]}
        model = make_pipeline(StandardScaler(), LSSVC(operator=OPERATOR, gamma=0.3))
        options = {"cv": KFold(3, shuffle=True, random_state=0), "refit": "accuracy"}
        options["scoring"] = ["accuracy", "roc_auc"]
        here = search(model, grid, **options).fit(ArrayRows(X, LABELS))
        there = search(model, grid, **options).fit(lazy("many", LABELS))
        for name in ("accuracy", "roc_auc"):
            np.testing.assert_allclose(table(there, name), table(here, name), rtol=1e-9)
        np.testing.assert_array_equal(there.predict(X), here.predict(X))
        rows = da.from_array(X, chunks=(40, 3))
        np.testing.assert_array_equal(there.predict(rows).compute(), here.predict(X))

    def test_functions_and_weights(self, client):
        model = KernelRegressor(operator=OPERATOR)
        source = {"sample_weight": WEIGHTS, "fold": FOLD}
        here, there = ArrayRows(X, Y, **source), lazy("many", **source)
        expected = cross_val_score(model, here, scoring="neg_max_error")
        found = cross_val_score(model, there, scoring="neg_max_error")
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        rows, y = da.from_array(X, chunks=(40, 3)), da.from_array(Y, chunks=40)
        found = cross_val_predict(Ridge(), rows, y, cv=3)
        np.testing.assert_allclose(found, cross_val_predict(Ridge(), X, Y, cv=KFold(3)), rtol=1e-9)

    def test_errors_come_through(self, client):
        spoilt = X.copy()
        spoilt[60, 1] = np.nan
        source = DaskRows(da.from_array(spoilt, chunks=50), Y)
        with pytest.raises(StreamError, match="row 60: X is nan in column 1"):
            search().fit(source)

    def test_a_killed_worker_loses_time_only(self, client, local, tmp_path):
        flag = tmp_path / "killed"
        rows = da.from_array(X, chunks=(40, 3)).map_blocks(killing, str(flag), meta=X[:0])
        flag.touch()
        source = DaskRows(rows, Y)
        found = search().fit(source)
        assert not flag.exists()
        np.testing.assert_allclose(table(found), table(local), rtol=1e-9)

    def test_an_interrupted_search_leaves_nothing_behind(self, client, monkeypatch):
        monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
        found = search()
        found._progress_kind = Interrupting
        with (
            pytest.raises(KeyboardInterrupt),
            pytest.warns(UserWarning, match="2 of 4 candidates"),
        ):
            found.fit(lazy())
        assert len(found.cv_results_["params"]) == 2

    @pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peaks are Linux's")
    def test_workers_keep_to_the_plan(self, client):
        def found_of(n):
            rows = da.random.default_rng(0).normal(size=(n, 20), chunks=(20_000, 20))
            model = KernelRegressor(operator=Nystrom(100, sampling="uniform", random_state=0))
            return search(model, {"gamma": [0.01, 0.1]}, refit=False).fit(rows, rows[:, 0])

        found_of(1000)  # imports
        before = client.run(memory, "VmRSS:")
        found = found_of(100_000)
        peak = client.run(memory, "VmHWM:")
        planned = found.plan_.memory
        for worker, had in before.items():
            assert peak[worker] - had < 1.5 * planned
        assert planned < 300e6
        assert "MB per worker" in str(found.plan_)


def memory(line):
    """Bytes of this process; a line of what it has now begins another peak."""
    if line == "VmRSS:":
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        return next(1024 * int(words.split()[1]) for words in file if words.startswith(line))


def killing(block, flag):
    """Kill the process that makes the block, the first time."""
    if block.size:
        with suppress(FileNotFoundError):  # one of two processes removes it, and only that dies
            os.remove(flag)
            os.kill(os.getpid(), signal.SIGKILL)
    return block


class Interrupting(Progress):
    def advance(self, n_finished):
        super().advance(n_finished)
        raise KeyboardInterrupt


class TestInMemory:
    """Arrays of this process, by a client in it or by joblib's Dask backend."""

    GRID = {"alpha": [0.1, 1.0], "gamma": [1e-6, 1e-5, 1e-4, 2e-4, 5e-4, 1e-3]}  # noqa: RUF012

    @pytest.mark.parametrize("by", ["backend", "client"])
    def test_data_are_sent_to_each_worker_once(self, by, client):
        wide = np.random.default_rng(0).normal(size=(200, 5000))
        here = FastGridSearchCV(KernelRidge(kernel="rbf"), self.GRID, cv=3).fit(wide, Y[:200])
        client.wait_for_workers(2)
        client.run(count_bytes)
        count_bytes()
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), self.GRID, cv=3)
        if by == "client":
            there = search.set_params(n_jobs=2).fit(wide, Y[:200])
        else:
            with parallel_config(backend="dask"):
                there = search.fit(wide, Y[:200])
        sent = sum(client.run(bytes_sent).values()) + bytes_sent()
        np.testing.assert_allclose(table(there), table(here), rtol=1e-9)
        assert wide.nbytes < sent / 2 < 1.2 * wide.nbytes

    def test_an_estimator_that_is_refitted(self, client):
        model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
        grid = {"kernelridge__gamma": [0.1, 1.0], "kernelridge__alpha": [0.1, 1.0]}
        here = FastGridSearchCV(model, grid, cv=3).fit(X, Y)
        with parallel_config(backend="dask"):
            there = FastGridSearchCV(model, grid, cv=3).fit(X, Y)
        np.testing.assert_allclose(table(there), table(here), rtol=1e-9)

    def test_jobs_decide_who_works(self, client):
        def workers(n_jobs):
            return {pid for _, pid in map_unordered(_pid, range(8), n_jobs=n_jobs)}

        assert workers(None) == workers(1) == {os.getpid()}
        there = set(client.run(os.getpid).values())
        assert workers(2) | workers(-1) <= there
        assert local_threads(2) == 1
        with parallel_config(backend="threading"):
            assert workers(2) == {os.getpid()}
        # A task that waited for the cluster would wait for its own worker.
        assert len(client.submit(_pids_of_two_jobs).result()) == 1

    def test_a_killed_worker_loses_time_only(self, client, tmp_path):
        grid = {"gamma": [0.1, 0.2, 0.5, 1.0]}
        here = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3).fit(X, Y)
        flag = tmp_path / "killed"
        flag.touch()
        scorer = make_scorer(partial(killing_score, str(flag)))
        options = {"cv": 3, "n_jobs": 2, "scoring": scorer}
        there = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, **options).fit(X, Y)
        assert not flag.exists()
        np.testing.assert_allclose(table(there), table(here), rtol=1e-9)

    def test_an_interrupted_search_leaves_nothing_behind(self, client):
        found = FastGridSearchCV(KernelRidge(kernel="rbf"), self.GRID, cv=3, n_jobs=2)
        found._progress_kind = Interrupting
        with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="of 12 candidates"):
            found.fit(X, Y)
        assert 0 < len(found.cv_results_["params"]) < 12


def _pid(item):
    return os.getpid()


def _pids_of_two_jobs():
    return {pid for _, pid in map_unordered(_pid, range(2), n_jobs=2)}


def killing_score(flag, y, predicted):
    """R² of a process that is killed the first time."""
    killing(y, flag)
    return r2_score(y, predicted)


def count_bytes():
    """Count what TCP connections of this process write from now on."""
    from distributed.comm.tcp import TCP

    write = getattr(TCP.write, "original", TCP.write)

    async def counting(self, *args, **kwargs):
        size = await write(self, *args, **kwargs)
        counting.total += size
        return size

    counting.total, counting.original = 0, write
    TCP.write = counting


def bytes_sent():
    """What was counted; counting ends."""
    from distributed.comm.tcp import TCP

    found, TCP.write = TCP.write, TCP.write.original
    return found.total


class LosingScheduler(Progress):
    def advance(self, n_finished):
        super().advance(n_finished)
        self._search.cluster.close()


@pytest.mark.parametrize("kind", ["source", "array"])
def test_a_lost_scheduler_leaves_what_is_finished(kind, monkeypatch):
    monkeypatch.setattr("everyfold.engine.planning.pass_sizes.MOST_BYTES", 1)
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=1, processes=False, **options) as found:
        client = distributed.Client(found)
        rows = (lazy("some", client=client),) if kind == "source" else (X, Y)
        lost = search(KernelRidge(kernel="rbf") if kind == "array" else None, n_jobs=2)
        lost.cluster, lost._progress_kind = found, LosingScheduler
        # Arrays are here, and of a source the sums were, so that the best of what is finished can
        # still be refitted.
        with (
            pytest.warns(UserWarning, match="2 of 4"),
            pytest.raises(
                ClusterError,
                match="Dask cluster was closed during the work, or the connection",
            ),
        ):
            lost.fit(*rows)
        assert len(lost.cv_results_["params"]) == 2
        assert np.isfinite(lost.cv_results_["mean_test_score"]).all()
        client.close()


@pytest.mark.parametrize(
    ("error", "status", "raised"),
    [
        (distributed.core.RPCClosed("before comm was established"), "running", ClusterError),
        (distributed.comm.CommClosedError("in <TCP (closed)>"), "running", ClusterError),
        (RuntimeError("cannot schedule new futures after shutdown"), "closed", ClusterError),
        (FileNotFoundError("of a scorer"), "running", FileNotFoundError),
    ],
)
def test_whatever_a_closed_cluster_raises_is_said_in_words(error, status, raised):
    class Closing:
        def scheduler_info(self, **options):
            self.status = status
            raise error

    client = Closing()
    client.status = "running"
    with pytest.raises(raised) as caught:
        Cluster(client).workers()
    assert raised is not ClusterError or "cluster was closed during the work" in str(caught.value)


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr("everyfold.io.cluster._PATIENCE", 0.2)
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=0, **options) as found,
        distributed.Client(found) as client,
        pytest.raises(ClusterError, match="has no workers"),
    ):
        search().fit(lazy("some", client=client))
