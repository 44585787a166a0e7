"""Folders, patterns and lists of files as one source, and predictions for sources."""

import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.model_selection import KFold

from everyfold import LSSVC, FastGridSearchCV, KernelRegressor, Nystrom
from everyfold.io.arrays import ArrayRows
from everyfold.io.blocks import StreamError
from everyfold.io.conversion import as_source
from everyfold.io.tables import CsvRows, FolderRows, ParquetRows
from tests import cases

N = 97
CUTS = [0, 10, 11, 60, N]
NAMES = ["a", "b", "c"]
X = cases.features(N)[:, :3].round(6)
Y = cases.targets(X, 1)[:, 0].round(6)
LABELS = np.where(np.median(Y) < Y, "high", "low")
WEIGHTS = np.linspace(0.5, 2.0, N)
FOLD = np.arange(N) % 4


def frame(part=slice(None), target=Y):
    table = pd.DataFrame(X, columns=NAMES)
    table["t"], table["w"], table["f"] = target, WEIGHTS, FOLD
    return table[part]


def write(folder, kind, target=Y):
    """The rows in files whose names are not in the order of their letters."""
    for i, (a, b) in enumerate(pairwise(CUTS)):
        table = frame(slice(a, b), target)
        if i % 2:  # columns are found by name
            table = table[table.columns[::-1]]
        path = folder / f"part.{9 + i}.{kind}"
        if kind == "parquet":
            table.to_parquet(path, row_group_size=7, write_page_checksum=True)
        elif kind == "csv":
            table.to_csv(path, index=False)
        else:
            dump_svmlight_file(X[a:b], target[a:b], str(path), zero_based=i == 1)
    (folder / "_SUCCESS").touch()
    return folder


def options(kind, **more):
    return {"n_features": 3} if kind == "svm" else {"target": "t", **more}


KINDS = ["parquet", "csv", "svm"]


def rows_of(source, size=9):
    blocks = list(source.blocks(size))
    return np.concatenate([b.X for b in blocks]), np.concatenate([b.y for b in blocks])


class TestRows:
    @pytest.mark.parametrize("kind", ["parquet", "csv"])
    @pytest.mark.parametrize("given", ["folder", "pattern", "list"])
    def test_the_rows_of_all_files(self, kind, given, tmp_path):
        write(tmp_path, kind)
        paths = {
            "folder": tmp_path,
            "pattern": str(tmp_path / f"part.*.{kind}"),
            "list": [tmp_path / f"part.{9 + i}.{kind}" for i in range(4)],
        }[given]
        source = as_source(paths, **options(kind, sample_weight="w", fold="f"))
        assert isinstance(source, FolderRows)
        for size in (1, 9, 500):
            blocks = list(source.blocks(size))
            np.testing.assert_array_equal(np.concatenate([b.X for b in blocks]), X)
            np.testing.assert_array_equal(np.concatenate([b.y for b in blocks]), Y)
            weights = np.concatenate([b.sample_weight for b in blocks])
            np.testing.assert_array_equal(weights, WEIGHTS)
            np.testing.assert_array_equal(np.concatenate([b.fold for b in blocks]), FOLD)
        assert source.n_rows == N
        assert source.names == tuple(NAMES)

    def test_an_index_0_in_one_text_file_counts_for_all(self, tmp_path):
        folder = tmp_path / "rows"
        folder.mkdir()
        dump_svmlight_file(X[:50], Y[:50], str(folder / "1.svm"), zero_based=True)
        dump_svmlight_file(X[50:] * [0, 1, 1], Y[50:], str(folder / "2.svm"), zero_based=True)
        found, y = rows_of(as_source(folder, n_features=3))
        np.testing.assert_array_equal(found[50:], X[50:] * [0, 1, 1])
        np.testing.assert_array_equal(y, Y)

    @pytest.mark.parametrize("kind", ["parquet", "csv"])
    @pytest.mark.parametrize("is_known", [True, False])
    def test_take(self, kind, is_known, tmp_path):
        source = as_source(write(tmp_path, kind), target="t", sample_weight="w", fold="f")
        if is_known:
            rows_of(source)
        rows = [96, 0, 10, 11, 59, 10]
        np.testing.assert_array_equal(source.take(rows), X[rows])

    def test_labels_and_rows_without_target(self, tmp_path):
        source = FolderRows(write(tmp_path, "csv", LABELS), target="t", features=NAMES)
        np.testing.assert_array_equal(rows_of(source)[1], LABELS)
        source = FolderRows(tmp_path, target=None, features=NAMES)
        assert rows_of(source)[1].shape == (N, 0)
        with pytest.raises(ValueError, match="has no target to learn from"):
            KernelRegressor(operator=Nystrom(5)).fit(source)

    def test_packed_and_pickled(self, tmp_path):
        frame().to_csv(tmp_path / "all.csv.gz", index=False)
        source = CsvRows(tmp_path / "all.csv.gz", "t", features=NAMES)
        np.testing.assert_array_equal(rows_of(pickle.loads(pickle.dumps(source)))[0], X)
        assert source.identity() == CsvRows(tmp_path / "all.csv.gz", "t", features=NAMES).identity()

    def test_journals_know_a_folder_by_its_files(self, tmp_path):
        write(tmp_path, "parquet")
        one, two = (FolderRows(tmp_path, target="t") for _ in range(2))
        rows_of(one)
        assert one.identity() == two.identity()
        frame(slice(0, 5)).to_parquet(tmp_path / "part.20.parquet")
        assert FolderRows(tmp_path, target="t").identity() != two.identity()


class TestErrors:
    def test_row_group_and_row_and_file(self, tmp_path):
        spoilt = Y.copy()
        spoilt[30] = np.nan
        source = FolderRows(write(tmp_path, "parquet", spoilt), target="t")
        words = r"part\.11.*row 30: the column 't' is null.* \(row 5 of row group 2\)"
        with pytest.raises(StreamError, match=words):
            rows_of(source)
        whole = frame()
        whole.loc[40, "b"] = np.inf
        whole.to_parquet(tmp_path / "one.parquet", row_group_size=16)
        with pytest.raises(StreamError, match=r"row 40: X is inf.*\(row 8 of row group 2\)"):
            rows_of(ParquetRows(tmp_path / "one.parquet", "t"))

    def test_a_row_that_is_wrong_in_the_folder_alone(self, tmp_path):
        folds = frame()
        folds.loc[70, "w"] = -1.0
        for i, (a, b) in enumerate([(0, 64), (64, N)]):
            folds[a:b].to_parquet(tmp_path / f"{i}.parquet", row_group_size=5)
        source = FolderRows(tmp_path, target="t", sample_weight="w")
        with pytest.raises(StreamError, match=r"row 70: .* \(row 1 of row group 1 of 1\.parquet\)"):
            rows_of(source)

    def test_damage_names_the_row_group(self, tmp_path):
        path = tmp_path / "rows.parquet"
        plain = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
        pq.write_table(pa.table({"a": X[:, 0], "t": Y}), path, row_group_size=20, **plain)
        raw = bytearray(path.read_bytes())
        where = raw.find(X[45, 0].tobytes())
        raw[where] ^= 1
        path.write_bytes(bytes(raw))
        with pytest.raises(StreamError, match=r"row group 2 cannot be read .* may be damaged"):
            rows_of(ParquetRows(path, "t"))

    def test_cells_of_text(self, tmp_path, monkeypatch):
        monkeypatch.setattr("everyfold.io.tables._TEXT_BYTES", 2**10)
        path = tmp_path / "rows.csv"
        path.write_text("a,t\n" + "1,2\n" * 5 + ",2\n")
        with pytest.raises(StreamError, match=r"row 5: the column 'a' is null"):
            rows_of(CsvRows(path, "t"))
        path.write_text("a,t\n" + "1,2\n" * 2_000 + "x,2\n")
        with pytest.raises(StreamError, match=r"invalid value 'x'"):
            rows_of(CsvRows(path, "t"), 100)

    def test_refused_folders(self, tmp_path):
        with pytest.raises(StreamError, match="there are no files"):
            FolderRows(tmp_path, target="t")
        with pytest.raises(StreamError, match=r"needs target .* or n_features"):
            as_source(tmp_path)
        write(tmp_path, "csv")
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(StreamError, match=r"notes\.txt is not a kind of file"):
            FolderRows(tmp_path, target="t")
        (tmp_path / "notes.txt").unlink()
        frame().to_parquet(tmp_path / "z.parquet")
        with pytest.raises(StreamError, match="are files of different kinds"):
            FolderRows(tmp_path, target="t")
        (tmp_path / "z.parquet").unlink()
        frame()[["a", "b", "t"]].to_csv(tmp_path / "z.csv", index=False)
        with pytest.raises(StreamError, match=r"z\.csv.*there is no column 'c'"):
            FolderRows(tmp_path, target="t")

    def test_a_file_that_is_written_to(self, tmp_path):
        source = FolderRows(write(tmp_path, "csv"), target="t")
        rows_of(source)
        with (tmp_path / "part.9.csv").open("a") as file:
            file.write("1,2,3,4,5,6\n")
        with pytest.raises(StreamError, match=r"part\.9\.csv was written to"):
            rows_of(source)


GRID = {"gamma": [0.1, 1.0], "alpha": [1e-2, 1.0]}
OPERATOR = Nystrom(12, sampling="uniform", random_state=0)


class TestModels:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_search_of_a_folder(self, kind, tmp_path):
        if kind == "svm":
            dump_svmlight_file(X[:40], Y[:40], str(tmp_path / "1.svm"), zero_based=False)
            dump_svmlight_file(X[40:], Y[40:], str(tmp_path / "2.svm"), zero_based=False)
            source = as_source(tmp_path, n_features=3)
        else:
            source = FolderRows(write(tmp_path, kind), target="t", features=NAMES)
        model = KernelRegressor(operator=OPERATOR)
        memory = FastGridSearchCV(model, GRID, cv=KFold(4)).fit(X, Y)
        found = FastGridSearchCV(model, GRID, cv=KFold(4)).fit(source)
        key = "mean_test_score"
        np.testing.assert_allclose(found.cv_results_[key], memory.cv_results_[key], rtol=1e-9)
        np.testing.assert_allclose(found.predict(source), memory.predict(X), rtol=1e-8)

    def test_predictions_of_a_source(self, tmp_path):
        source = FolderRows(write(tmp_path, "csv", LABELS), target="t", features=NAMES)
        search = FastGridSearchCV(LSSVC(operator=OPERATOR), GRID, cv=KFold(4))
        search.fit(source)
        best = search.best_estimator_
        table = frame()[NAMES]
        new = FolderRows(tmp_path, target=None, features=NAMES)
        for model in (search, best):
            np.testing.assert_array_equal(model.predict(new), best.predict(table))
            values = model.decision_function(new)
            np.testing.assert_allclose(values, best.decision_function(table), rtol=1e-12)
        with pytest.raises(ValueError, match="but the model was fitted to"):
            search.predict(FolderRows(tmp_path, target=None, features=["b", "a", "c"]))
        with pytest.raises(ValueError, match="expecting 3 features"):
            search.predict(ArrayRows(X[:, :2], Y))
