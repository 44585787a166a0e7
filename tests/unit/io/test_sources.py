"""Sources of rows: the same rows in blocks of any size, on every pass, or an error that helps."""

import bz2
import gzip
import lzma
import os
import pickle
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.base import RowSource
from everyfold.io.blocks import StreamError
from everyfold.io.conversion import as_source
from everyfold.io.svmlight import SvmlightRows
from everyfold.io.tables import ParquetRows

N, D = 23, 4
NAMES = ("a", "b", "c", "d")
SIZES = [1, 2, 5, 7, N - 1, N, N + 1, 10**12]


def table(seed=0):
    """Numbers that float32 and text hold exactly, so that every source can give the same."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 8, (N, D)) / 4.0
    X[rng.random((N, D)) < 0.4] = 0.0
    return X, rng.integers(-8, 8, N) / 2.0, rng.integers(0, 5, N) / 2.0, rng.integers(0, 3, N)


X, Y, W, F = table()


def odd_pieces(X=X, y=Y, w=W, fold=F):
    """Pieces of 3, 0, 1, 10 and the remaining rows."""
    cuts = [0, 3, 3, 4, 14, N]
    for a, b in pairwise(cuts):
        yield {"X": X[a:b], "y": y[a:b], "sample_weight": w[a:b], "fold": fold[a:b]}


def memmap(folder):
    path = folder / "X.npy"
    np.save(path, X.astype(np.float32))
    return ArrayRows(np.load(path, mmap_mode="r"), Y, sample_weight=W, fold=F)


def parquet(folder, columns=None, target="t", **options):
    path = folder / "rows.parquet"
    if columns is None:
        columns = {**dict(zip(NAMES, X.T, strict=True)), "t": Y, "w": W, "f": F}
    pq.write_table(pa.table(columns), path, row_group_size=6)
    return ParquetRows(path, target, **options)


def svmlight(folder, name="rows.svm", zero_based=False, **options):
    plain = folder / "plain.svm"
    dump_svmlight_file(X, Y, str(plain), zero_based=zero_based, comment="with 0:1 in a comment")
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(
        name[name.rfind(".") :], open
    )
    with opener(folder / name, "wb") as file:
        file.write(plain.read_bytes())
    return SvmlightRows(folder / name, D, **options)


SOURCES = {
    "array": lambda folder: ArrayRows(X, Y, sample_weight=W, fold=F),
    "fortran": lambda folder: ArrayRows(np.asfortranarray(X), Y, sample_weight=W, fold=F),
    "lists": lambda folder: ArrayRows(X.tolist(), Y.tolist(), sample_weight=W.tolist(), fold=F),
    "memmap of float32": memmap,
    "csr": lambda folder: ArrayRows(sparse.csr_array(X), Y, sample_weight=W, fold=F),
    "csc": lambda folder: ArrayRows(sparse.csc_matrix(X), Y, sample_weight=W, fold=F),
    "pandas": lambda folder: ArrayRows(
        pd.DataFrame(X, columns=NAMES, index=range(5, 5 + N)), pd.Series(Y), sample_weight=W, fold=F
    ),
    "polars": lambda folder: ArrayRows(
        pl.DataFrame(X, schema=NAMES), pl.Series(Y), sample_weight=pl.Series(W), fold=F
    ),
    "iterated": lambda folder: IteratedRows(odd_pieces),
    "list of pieces": lambda folder: IteratedRows(list(odd_pieces())),
    "iterated, sparse": lambda folder: IteratedRows(lambda: odd_pieces(X=sparse.csr_array(X))),
    "iterated blocks": lambda folder: IteratedRows(
        lambda: ArrayRows(X, Y, sample_weight=W, fold=F).blocks(4), n_features=D, n_rows=N
    ),
    "parquet": lambda folder: parquet(folder, sample_weight="w", fold="f"),
    "svmlight": svmlight,
    "svmlight, zero-based": lambda folder: svmlight(folder, zero_based=True),
    "svmlight, gz": lambda folder: svmlight(folder, "rows.svm.gz", zero_based=False),
    "svmlight, bz2": lambda folder: svmlight(folder, "rows.svm.bz2"),
    "svmlight, xz": lambda folder: svmlight(folder, "rows.xz"),
}
on_every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


def has_columns(source):
    return not isinstance(source, SvmlightRows)


def assert_pass(source, size):
    start = 0
    for block in source.blocks(size):
        rows = slice(start, start + size)
        assert block.start == start
        assert len(block) == min(size, N - start)
        assert block.X.dtype == np.float64
        assert block.X.flags.c_contiguous
        np.testing.assert_array_equal(block.X, X[rows], strict=True)
        np.testing.assert_array_equal(block.y, Y[rows], strict=True)
        if has_columns(source):
            np.testing.assert_array_equal(block.sample_weight, W[rows], strict=True)
            np.testing.assert_array_equal(block.fold, F[rows].astype(np.intp), strict=True)
        else:
            assert block.sample_weight is None
            assert block.fold is None
        start += len(block)
    assert start == N


# -- The same rows -------------------------------------------------------------------------------


@on_every_source
def test_the_same_rows_in_blocks_of_any_size(make, tmp_path):
    source = make(tmp_path)
    assert source.n_features == D
    for size in SIZES:  # checksums of different sizes are compared with each other, too
        assert_pass(source, size)
        assert source.n_rows == N


@on_every_source
def test_small_pieces_of_files(make, tmp_path, monkeypatch):
    monkeypatch.setattr("everyfold.io.base._SMALLEST_PIECE", 1)
    monkeypatch.setattr("everyfold.io.base._LONGEST_PIECE", 4)
    monkeypatch.setattr("everyfold.io.base._FIRST_BUFFER", 2 * D)
    source = make(tmp_path)
    for size in SIZES:
        assert_pass(source, size)
    np.testing.assert_array_equal(source.take([20, 3, 3]), X[[20, 3, 3]])


@on_every_source
@pytest.mark.parametrize("is_known", [False, True], ids=["before", "after a pass"])
def test_take_in_any_order_with_repeats(make, is_known, tmp_path):
    source = make(tmp_path)
    if is_known:
        assert_pass(source, 4)
    for rows in ([0], [N - 1], [5, 2, 2, 22, 0, 5], np.arange(N)[::-1], []):
        taken = source.take(rows)
        np.testing.assert_array_equal(taken, X[np.asarray(rows, dtype=int)], strict=True)
        assert taken.flags.c_contiguous
    assert_pass(source, 4)


@on_every_source
def test_two_passes_at_a_time(make, tmp_path):
    source = make(tmp_path)
    pairs = zip(source.blocks(3), source.blocks(3), strict=True)
    assert sum(len(one) for one, other in pairs if (one.X == other.X).all()) == N


@on_every_source
def test_a_pass_left_early_changes_nothing(make, tmp_path):
    source = make(tmp_path)
    for _ in source.blocks(2):
        break
    assert_pass(source, 3)


@pytest.mark.parametrize("name", ["array", "csr", "pandas", "parquet", "svmlight"])
def test_pickle(name, tmp_path):
    source = SOURCES[name](tmp_path)
    assert_pass(pickle.loads(pickle.dumps(source)), 5)
    assert_pass(source, 5)
    assert_pass(pickle.loads(pickle.dumps(source)), 4)


@pytest.mark.parametrize("name", ["pandas", "polars", "parquet"])
def test_names(name, tmp_path):
    assert SOURCES[name](tmp_path).names == NAMES
    assert ArrayRows(X, Y).names is None


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_an_array_are_views(size):
    for block in ArrayRows(X, Y, sample_weight=W).blocks(size):
        assert np.shares_memory(block.X, X)
        assert np.shares_memory(block.y, Y)


def test_only_rows_of_two_pieces_are_copied():
    pieces = [(X[:8], Y[:8]), (X[8:], Y[8:])]
    source = IteratedRows(pieces, n_rows=N)
    shared = [np.shares_memory(block.X, X) for block in source.blocks(5)]
    assert shared == [True, False, True, True, True]


def test_a_piece_may_be_overwritten_by_the_next():
    rooms = np.empty((3, D)), np.empty(3), np.empty(3)

    def pieces():
        for start in range(0, N, 3):
            parts = [room[: min(3, N - start)] for room in rooms]
            for part, values in zip(parts, (X, Y, W), strict=True):
                part[:] = values[start : start + 3]
            yield tuple(parts)

    for size in (1, 2, 3, 7):
        found = [
            np.column_stack([block.X, block.y, block.sample_weight])
            for block in IteratedRows(pieces).blocks(size)
        ]
        np.testing.assert_array_equal(np.vstack(found), np.column_stack([X, Y, W]))


LABELS = {
    "strings": np.array(["no", "yes", "perhaps", "no", "yes"]),
    "objects": np.array(["no", "yes", "perhaps", "no", "yes"], dtype=object),
    "integers": np.array([3, 1, 2, 1, 3], dtype=np.int32),
    "truth": np.array([True, False, False, True, True]),
    "two columns": np.arange(10.0).reshape(5, 2),
    "one column": np.arange(5.0)[:, None],
}


@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
def test_targets_keep_their_form(y):
    def pieces():
        for a, b in ((0, 1), (1, 2), (2, 5)):
            yield X[a:b], y[a:b].copy()

    for source in (ArrayRows(X[:5], y), IteratedRows(pieces)):
        for size in (1, 2, 3, 5):
            found = np.concatenate([block.y for block in source.blocks(size)])
            np.testing.assert_array_equal(found, y, strict=True)


def test_float32_and_whole_numbers_become_float64_in_a_stream_of_numbers():
    source = IteratedRows([(X[:2], Y[:2].astype(np.float32)), (X[2:4], np.array([1, 2]))])
    (block,) = source.blocks(9)
    np.testing.assert_array_equal(block.y, [*Y[:2], 1.0, 2.0], strict=True)


def test_labels_of_parquet(tmp_path):
    words = ["no", "yes", "perhaps"] * 7 + ["no", "yes"]
    columns = {"a": X[:, 0], "flag": X[:, 1] > 0, "date": pa.array([0] * N, pa.timestamp("s"))}
    for target in (pa.array(words), pa.array(words).dictionary_encode()):
        source = parquet(tmp_path, {**columns, "t": target})
        assert source.names == ("a", "flag")
        assert [label for block in source.blocks(4) for label in block.y] == words
    source = parquet(tmp_path, {**columns, "t": np.arange(N)}, features="flag")
    assert {block.y.dtype.kind for block in source.blocks(4)} == {"i"}
    np.testing.assert_array_equal(source.take([3, 1])[:, 0], X[[3, 1], 1] > 0)
    source = parquet(tmp_path, {**columns, "t": Y}, target=["t", "a"])
    (block,) = source.blocks(99)
    np.testing.assert_array_equal(block.y, np.column_stack([Y, X[:, 0]]), strict=True)


def test_parquet_takes_rows_from_their_row_groups_only(tmp_path):
    source = parquet(tmp_path, features=NAMES)
    read = []
    matrix = source._matrix
    source._matrix = lambda batch, names, start: read.append(start) or matrix(batch, names, start)
    source.take([13, 1, 12])
    assert read == [0, 12]  # of 0, 6, 12 and 18


# -- Memory and files ----------------------------------------------------------------------------


def test_memory_stays_bounded(tmp_path):
    n, d, size = 40_000, 50, 500
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (n, d))
    big[:] = np.arange(d)
    y = np.zeros(n)

    def uneven():
        for start in range(0, n, 700):
            yield np.asarray(big[start : start + 700], dtype=np.float64), y[start : start + 700]

    for source in (ArrayRows(big, y), IteratedRows(uneven)):
        list(ArrayRows(X, Y).blocks(4))  # whatever is imported or cached by the first pass
        tracemalloc.start()
        try:
            rows = sum(len(block) for block in source.blocks(size))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert rows == n
        assert peak < 6 * 8 * d * size  # of 80 blocks


def test_text_and_parquet_are_not_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("everyfold.io.base._LONGEST_PIECE", 100)
    n, d = 20_000, 20
    wide = np.random.default_rng(0).standard_normal((n, d))
    dump_svmlight_file(wide, wide[:, 0], str(tmp_path / "big.svm"), zero_based=False)
    pq.write_table(pa.table({**{str(j): wide[:, j] for j in range(d)}}), tmp_path / "big.parquet")
    for source in (
        SvmlightRows(tmp_path / "big.svm", d, zero_based=False),
        ParquetRows(tmp_path / "big.parquet", "0"),
    ):
        tracemalloc.start()
        try:
            assert sum(len(block) for block in source.blocks(100)) == n
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * n * d / 8


def open_files(folder):
    """Whatever in a folder this process has open."""
    import os

    here = "/proc/self/fd"
    links = []
    for number in os.listdir(here):
        try:
            links.append(os.readlink(f"{here}/{number}"))
        except FileNotFoundError:  # the listing's own
            continue
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["parquet", "svmlight", "svmlight, gz"])
def test_no_file_stays_open(name, tmp_path, monkeypatch):
    monkeypatch.setattr("everyfold.io.base._SMALLEST_PIECE", 1)
    source = SOURCES[name](tmp_path)
    assert open_files(tmp_path) == []
    blocks = source.blocks(2)
    next(blocks)
    assert len(open_files(tmp_path)) == 1
    blocks.close()
    assert open_files(tmp_path) == []
    source.take([3])
    assert open_files(tmp_path) == []
    assert_pass(source, 4)
    assert open_files(tmp_path) == []


def test_a_generator_is_closed_with_its_pass():
    closed, made = [], []

    def pieces():
        try:
            yield X[:3], Y[:3]
            yield X[3:], Y[3:]
        finally:
            closed.append(True)

    def make():
        made.append(pieces())  # a reference, so that nothing but an explicit close will do
        return made[-1]

    source = IteratedRows(make)
    assert len(closed) == 1  # of the look at the first piece
    blocks = source.blocks(2)
    next(blocks)
    blocks.close()
    assert len(closed) == 2
    source.take([1])
    assert len(closed) == 3


def test_errors_of_the_generator_come_through():
    def pieces():
        yield X[:3], Y[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(IteratedRows(pieces).blocks(2))


# -- Passes that differ --------------------------------------------------------------------------


def changing(*passes):
    """A source whose first look and passes give these, one after the other."""
    passes = [passes[0], *passes]
    return IteratedRows(lambda: iter(passes.pop(0)))


FULL = [(X, Y, W)]
SWAPPED = np.r_[1, 0, 2:N]
OTHERS = {
    "fewer": ([(X[:9], Y[:9], W[:9])], "the rows end after 9, fewer than the 23 of the first pass"),
    "none": ([], "the rows end after 0, .*fresh iterator"),
    "more": ([*FULL, (X[:1], Y[:1], W[:1])], "more rows than the 23 of the first pass"),
    "X": ([(np.where(np.arange(N * D).reshape(N, D) == 40, 9.0, X), Y, W)], "X changed since the"),
    "order": ([(X[SWAPPED], Y[SWAPPED], W[SWAPPED])], "X and y and sample_weight changed"),
    "columns": ([(X[:, ::-1], Y, W)], "X changed since the first pass; .* same order"),
    "y": ([(X, -Y, W)], ": y changed"),
    "weights": ([(X, Y, W + 1)], "sample_weight changed"),
    "no weights": ([(X, Y)], "sample_weight changed"),
}


@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("size", [4, 50])
def test_a_changed_second_pass(other, message, size):
    source = changing(FULL, other)
    list(source.blocks(5))
    with pytest.raises(StreamError, match=message) as caught:
        list(source.blocks(size))
    assert "IteratedRows" in str(caught.value)
    same = changing(FULL, [(X[:7], Y[:7], W[:7]), (X[7:], Y[7:], W[7:])])
    list(same.blocks(5))
    list(same.blocks(size))


def test_changed_labels_and_folds():
    words = np.array(["a", "b"] * 3)
    source = changing([(X[:6], words)], [(X[:6], words[::-1])])
    list(source.blocks(4))
    with pytest.raises(StreamError, match="y changed"):
        list(source.blocks(4))
    fold = F.copy()
    source = ArrayRows(X, Y, fold=fold)
    list(source.blocks(4))
    fold[3] += 1
    with pytest.raises(StreamError, match=r"ArrayRows of shape \(23, 4\): fold changed"):
        list(source.blocks(4))


def memmaps(folder, mode="r"):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", Y)
    maps = [np.load(folder / name, mmap_mode=mode) for name in ("X.npy", "y.npy")]
    return ArrayRows(maps[0][:20], maps[1][:20])


def sparse_memmap(folder):
    matrix = sparse.csr_array(X)
    np.save(folder / "data.npy", matrix.data)
    data = np.load(folder / "data.npy", mmap_mode="r")
    return ArrayRows(sparse.csr_array((data, matrix.indices, matrix.indptr), X.shape), Y)


FILES = {
    "parquet": (lambda folder: parquet(folder, features=NAMES), "rows.parquet"),
    "svmlight": (svmlight, "rows.svm"),
    "svmlight, gz": (lambda folder: svmlight(folder, "rows.svm.gz"), "rows.svm.gz"),
    "memmap": (memmaps, "X.npy"),
    "memmap of y": (memmaps, "y.npy"),
    "memmap to write": (lambda folder: memmaps(folder, "r+"), "X.npy"),
    "memmap in CSR": (sparse_memmap, "data.npy"),
}


def rewrite(path, change=True, seconds=1):
    """The same number of bytes, the last of them changed, later by the clock."""
    before = path.stat()
    with path.open("r+b") as file:
        text = file.read()
        file.seek(0)
        file.write(text[:-1] + bytes([text[-1] ^ 1]) if change else text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + seconds * 10**9))


@pytest.mark.parametrize(("make", "name"), FILES.values(), ids=FILES)
def test_a_file_rewritten_during_the_first_pass(make, name, tmp_path):
    source = make(tmp_path)
    blocks = source.blocks(4)
    next(blocks)
    rewrite(tmp_path / name)
    with pytest.raises(StreamError, match=rf"{name} was written to .*create a new source"):
        list(blocks)


@pytest.mark.parametrize(("make", "name"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("seconds", [1, -1])
def test_a_file_rewritten_after_rows_were_taken(make, name, seconds, tmp_path):
    source = make(tmp_path)
    assert source.take([3]).shape == (1, D)
    rewrite(tmp_path / name, seconds=seconds)
    for work in (lambda: list(source.blocks(4)), lambda: source.take([3])):
        with pytest.raises(StreamError, match=rf"{name} was written to"):
            work()


def test_a_rewritten_file(tmp_path):
    source = svmlight(tmp_path)
    list(source.blocks(4))
    text = source.path.read_text()
    for other in (text + "1 1:2\n", text.replace("1.5", "2.5"), "nonsense"):
        source.path.write_text(other)
        rewrite(source.path, change=False)
        with pytest.raises(StreamError, match=r"rows\.svm'\): .*rows\.svm was written to"):
            list(source.blocks(4))
    source = parquet(tmp_path)
    parquet(tmp_path, {name: np.ones(5) for name in (*NAMES, "t", "w", "f")})
    with pytest.raises(StreamError, match=r"rows\.parquet was written to"):
        list(source.blocks(4))


def test_what_is_wrong_with_a_file_being_written_is_that(tmp_path, monkeypatch):
    monkeypatch.setattr("everyfold.io.base._LONGEST_PIECE", 100)
    path = tmp_path / "rows.svm"
    path.write_text("1 1:2\n" * 10_000)
    blocks = SvmlightRows(path, D).blocks(10)
    next(blocks)
    path.write_text("1 9:2\n" * 10_001)
    with pytest.raises(StreamError, match=r"was written to .*had 60000 bytes and has 60006"):
        list(blocks)


def test_sums_tell_where_the_clock_does_not(tmp_path):
    source = svmlight(tmp_path)
    list(source.blocks(4))
    before = source.path.stat()
    text = source.path.read_text()
    source.path.write_text(text.replace("1.5", "2.5"))
    os.utime(source.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.path.stat().st_size == before.st_size
    with pytest.raises(StreamError, match="changed since the first pass"):
        list(source.blocks(4))


def test_a_pickled_source_may_find_a_copy_of_its_file(tmp_path):
    source = parquet(tmp_path, sample_weight="w", features=NAMES)
    list(source.blocks(4))
    rewrite(source.path, change=False)
    again = pickle.loads(pickle.dumps(source))
    assert sum(map(len, again.blocks(4))) == N
    columns = {**dict(zip(NAMES, X.T, strict=True)), "t": -Y, "w": W}
    less = {"a": Y, "b": Y}
    for wrong, message in ((columns, "y changed since the first"), (less, "cannot be read")):
        parquet(tmp_path, wrong, "a")
        with pytest.raises(StreamError, match="was written to"):
            list(again.blocks(4))
        with pytest.raises(StreamError, match=message):
            list(pickle.loads(pickle.dumps(source)).blocks(4))


def test_a_map_may_be_written_to_before_it_is_read(tmp_path):
    source = memmaps(tmp_path, "r+")
    source._data.X[3] = 7.0
    found = np.vstack([block.X for block in source.blocks(4)])
    np.testing.assert_array_equal(found[3], 7.0)
    assert sum(map(len, source.blocks(6))) == 20
    (tmp_path / "X.npy").unlink()  # the map outlives it
    assert sum(map(len, source.blocks(6))) == 20


@pytest.mark.parametrize(
    ("n_rows", "message"), [(22, "more rows than the 22"), (24, "end after 23")]
)
def test_a_declared_number_of_rows(n_rows, message):
    with pytest.raises(StreamError, match=f"{message}.* announced; correct n_rows"):
        list(IteratedRows(odd_pieces, n_rows=n_rows).blocks(5))


def test_an_iterator_is_good_for_one_pass():
    for options in ({}, {"n_features": D}):
        source = IteratedRows(odd_pieces(), **options)
        assert_pass(source, 5)
        with pytest.raises(StreamError, match=r"only once .* IteratedRows\(chunks\) instead of"):
            list(source.blocks(5))
        with pytest.raises(StreamError, match="only once"):
            source.take([1])


def test_a_callable_that_returns_one_iterator_twice():
    pieces = odd_pieces()
    with pytest.raises(StreamError, match=r"no rows; .*a callable must return a fresh iterator"):
        list(IteratedRows(lambda: pieces).blocks(5))


# -- Refusals ------------------------------------------------------------------------------------


def spoilt(row, value, what=X):
    what = what.astype(np.float64).copy()
    what[row] = value
    return what


BAD_ARRAYS = {
    "nan": ((spoilt((17, 2), np.nan), Y), "row 17: X is nan in column 2; fill in"),
    "inf": ((spoilt((17, 2), -np.inf), Y), "row 17: X is -inf in column 2"),
    "both": ((spoilt(17, [np.inf, -np.inf, 0, 0]), Y), "row 17: X is inf in column 0"),
    "nan in y": ((X, spoilt(9, np.nan, Y)), "row 9: y is nan; fill in"),
    "nan in Y": ((X, spoilt((9, 1), np.inf, X)), "row 9: y is inf in column 1"),
    "no label": ((X, np.array(["a"] * 8 + [None] * 15, dtype=object)), "row 8: y has no label"),
    "NA": ((X, pd.array(["a"] * 8 + [pd.NA] * 15, dtype="string")), "row 8: y has no label"),
    "negative weight": ((X, Y, spoilt(4, -1, W)), "row 4: sample_weight is -1.0; it must be at"),
    "nan weight": ((X, Y, spoilt(4, np.nan, W)), "row 4: sample_weight is nan"),
    "negative fold": ((X, Y, None, spoilt(4, -1, F)), "row 4: fold is -1.0; it must be a whole"),
    "fold 0.5": ((X, Y, None, spoilt(4, 0.5, F)), "row 4: fold is 0.5"),
    "fold nan": ((X, Y, None, spoilt(4, np.nan, F)), "row 4: fold is nan"),
    "words": ((np.full((N, D), "a"), Y), r"rows 0 to \d+: X is not numeric .* encode it"),
    "objects": ((np.full((N, D), "a", object), Y), r"rows 0 to \d+: X is not numeric .* encode"),
    "complex": ((X + 1j, Y), "X is not numeric"),
    "dates": ((X, np.full(N, "2020-01-01", "datetime64[D]")), "y has type datetime64"),
    "2-D labels": ((X, np.full((N, 1), "a")), "one-dimensional labels"),
}


@pytest.mark.parametrize(("parts", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
@pytest.mark.parametrize("size", [1, 6, 40])
def test_bad_values(parts, message, size):
    names = ("X", "y", "sample_weight", "fold")
    piece = {name: part for name, part in zip(names, parts, strict=False) if part is not None}
    sources = [
        ArrayRows(**piece),
        IteratedRows(lambda: ({k: v[a : a + 5] for k, v in piece.items()} for a in range(0, N, 5))),
    ]
    for source in sources:
        with pytest.raises(StreamError, match=message) as caught:
            list(source.blocks(size))
        assert str(caught.value).startswith(repr(source) + ": r")


def test_take_refuses_bad_values_too(tmp_path):
    with pytest.raises(StreamError, match="row 17: X is nan in column 2"):
        ArrayRows(spoilt((17, 2), np.nan), Y).take([3, 17])
    columns = {"a": spoilt(17, np.nan, Y), "t": Y}
    with pytest.raises(StreamError, match="row 17: X is nan in column 0"):
        parquet(tmp_path, columns).take([16])


@pytest.mark.parametrize("scale", [1e308, -1e308])
def test_huge_values_are_finite(scale):
    (block,) = ArrayRows(np.full((9, 4), scale), np.full(9, scale)).blocks(9)
    np.testing.assert_array_equal(block.X, np.full((9, 4), scale))


BAD_PIECES = {
    "width": ((X[:2, :3], Y[:2]), r"rows 3 to 4: X has shape \(2, 3\), but the source has 4 feat"),
    "axes": ((X[0], Y[:4]), r"rows 3 to 6: X has shape \(4,\)"),
    "length": ((X[:5], Y[:4]), r"rows 3 to 7: X has 5 rows, but y has shape \(4,\); give y"),
    "weights": ((X[:5], Y[:5], W[:6]), r"sample_weight has shape \(6,\); give sample_weight"),
    "no weights": ((X[:5], Y[:5]), "rows 3 to 7: there is y of numbers, but the first piece has y"),
    "labels": ((X[:1], np.array(["a"]), W[:1]), "there is y of labels and sample_weight, but"),
    "columns": ((X[:2], X[:2], W[:2]), "y of 4 columns"),
    "not a piece": (X[:5], "a piece must be .* got <class 'numpy.ndarray'>"),
    "four": ((X[:5], Y[:5], W[:5], F[:5]), "a piece must be"),
    "keys": ({"X": X[:5], "Y": Y[:5]}, r"a piece must be .* the keys \['X', 'Y'\]"),
    "no y": ({"X": X[:5], "y": None, "sample_weight": W[:5]}, r"y has shape \(\)"),
}


@pytest.mark.parametrize(("piece", "message"), BAD_PIECES.values(), ids=BAD_PIECES)
def test_bad_pieces(piece, message):
    source = IteratedRows([(X[:3], Y[:3], W[:3]), piece])
    with pytest.raises(StreamError, match=message):
        list(source.blocks(2))


def test_whole_numbers_do_not_turn_into_others_on_the_way():
    source = IteratedRows([(X[:2], np.array([1, 2])), (X[:1], np.array([0.5]))])
    with pytest.raises(StreamError, match=r"rows 2 to 2: .* y of whole numbers; .*astype\(float\)"):
        list(source.blocks(1))


def test_columns_of_frames_keep_their_order():
    frame = pd.DataFrame(X, columns=NAMES)
    source = IteratedRows([(frame, Y), (frame[["b", "a", "c", "d"]], Y)])
    assert source.names == NAMES
    with pytest.raises(
        StreamError, match="columns of X are 'b', 'a', 'c', 'd' instead of 'a', 'b'"
    ):
        list(source.blocks(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArrayRows(X[0], Y), r"X has shape \(4,\); it must have rows and columns"),
        (lambda: ArrayRows(X[:0], Y[:0]), r"X has shape \(0, 4\)"),
        (lambda: ArrayRows(X, Y[:3]), r"X has 23 rows, but y has shape \(3,\)"),
        (lambda: ArrayRows(X, Y, fold=F[:3]), r"fold has shape \(3,\)"),
        (lambda: ArrayRows(X, Y, sample_weight=X), r"sample_weight has shape \(23, 4\)"),
        (lambda: IteratedRows(3), "int cannot be iterated; give a callable"),
        (lambda: IteratedRows(lambda: None), "NoneType cannot be iterated"),
        (lambda: IteratedRows([]), "there are no rows"),
        (lambda: IteratedRows([(Y, Y)]), r"first piece has shape \(23,\)"),
        (lambda: list(IteratedRows([(X[:0], Y[:0])]).blocks(1)), "there are no rows"),
        (lambda: IteratedRows(odd_pieces, n_rows=0), "n_rows must be a whole number .* got 0"),
        (lambda: IteratedRows(odd_pieces, n_features=1.5), "n_features must be .* got 1.5"),
    ],
)
def test_refused_sources(make, message):
    with pytest.raises(StreamError, match=message):
        make()


@on_every_source
def test_refused_sizes_and_rows(make, tmp_path):
    source = make(tmp_path)
    for size in (0, -3, 2.5, None, True):
        with pytest.raises(StreamError, match="the size of blocks must be a whole number of at le"):
            source.blocks(size)
    for rows, message in (
        ([-1, 3], "rows must be numbers from 0 (on|to 22), got -1 to 3"),
        ([0.5], "whole numbers, got shape"),
        (np.ones(N, bool), "flatnonzero"),
        ([[1, 2]], r"got shape \(1, 2\)"),
        ([2, N], "got 2 to 23|row 23 was asked for, but the rows end before it"),
    ):
        with pytest.raises(StreamError, match=message) as caught:
            source.take(rows)
        assert str(caught.value).count(repr(source)) == 1


# -- Parquet -------------------------------------------------------------------------------------

PLAIN = {"a": Y, "t": W, "word": ["x"] * N, "list": [[1]] * N}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "u"}, "there is no column 'u'; the columns are 'a', 't', 'word', 'list'"),
        ({"features": ["a", "b"]}, "there is no column 'b'"),
        ({"sample_weight": "w"}, "there is no column 'w'"),
        ({"features": ["a", "word"]}, "column 'word' is not numeric but of type label; encode it"),
        ({"features": ["list"]}, "'list' is not numeric but of type list"),
        ({"target": "list"}, "'list' is not numeric"),
        ({"target": ["t", "word"]}, "'word' is not numeric"),
        ({"fold": "word"}, "'word' is not numeric"),
        ({"features": ["a", "t"]}, "'t' is asked for more than once"),
        ({"features": ["a", "a"]}, "'a' is asked for more than once"),
        ({"features": []}, "no features"),
        ({"target": []}, "no target"),
    ],
)
def test_refused_columns(options, message, tmp_path):
    with pytest.raises(StreamError, match=message) as caught:
        parquet(tmp_path, PLAIN, **options)
    assert "rows.parquet" in str(caught.value)


def test_nulls_and_bad_numbers_of_parquet(tmp_path):
    holes = pa.array([1.0] * 15 + [None] * 8)
    for name in ("a", "t"):
        source = parquet(tmp_path, {**PLAIN, name: holes})
        with pytest.raises(StreamError, match=f"row 15: the column '{name}' is null"):
            list(source.blocks(4))
    source = parquet(tmp_path, {**PLAIN, "t": pa.array(["u"] * 15 + [None] * 8)})
    with pytest.raises(StreamError, match="row 15: the column 't' is null"):
        list(source.blocks(4))
    source = parquet(tmp_path, {**PLAIN, "f": spoilt(7, -1, F)}, fold="f")
    with pytest.raises(StreamError, match="row 7: fold is -1"):
        list(source.blocks(4))


def test_parquet_files_that_cannot_be_read(tmp_path):
    with pytest.raises(StreamError, match=r"none\.parquet'\): there is no such file"):
        ParquetRows(tmp_path / "none.parquet", "t")
    with pytest.raises(StreamError, match=r"this is a directory|cannot be read"):
        ParquetRows(tmp_path, "t")
    (tmp_path / "text.parquet").write_text("a,t\n1,2\n" * 9)
    with pytest.raises(StreamError, match="the file cannot be read"):
        ParquetRows(tmp_path / "text.parquet", "t")
    with pytest.raises(StreamError, match="there are no rows"):
        parquet(tmp_path, {"a": Y[:0], "t": Y[:0]})
    pq.write_table(pa.table([Y, Y, Y], names=["a", "a", "t"]), tmp_path / "twice.parquet")
    with pytest.raises(StreamError, match="more than one column 'a'"):
        ParquetRows(tmp_path / "twice.parquet", "t")
    source = parquet(tmp_path)
    source.path.unlink()
    with pytest.raises(StreamError, match="no such file"):
        list(source.blocks(4))


def damaged_parquet(path, **options):
    """Row 13 of a file without compression has 9.0 in place of what was written."""
    mark = 0.1234567
    columns = {"a": spoilt(13, mark, X[:, 0]), "b": X[:, 1], "t": Y}
    pq.write_table(pa.table(columns), path, compression="none", **options)
    text = path.read_bytes()
    assert text.count(np.float64(mark).tobytes()) >= 1
    np.testing.assert_array_equal(ParquetRows(path, "t").take([13]), [[mark, X[13, 1]]])
    path.write_bytes(text.replace(np.float64(mark).tobytes(), np.float64(9.0).tobytes()))
    return ParquetRows(path, "t")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_damage_under_a_checksum_of_parquet(version, dictionary, tmp_path):
    options = {"data_page_version": version, "use_dictionary": dictionary}
    source = damaged_parquet(tmp_path / "rows.parquet", write_page_checksum=True, **options)
    for work in (lambda: list(source.blocks(4)), lambda: source.take([13])):
        with pytest.raises(StreamError, match=r"rows\.parquet'\): .* may be damaged"):
            work()


def test_a_row_group_that_does_not_fit_into_memory_is_not_called_damaged(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise pa.ArrowMemoryError("malloc of size 2147483648 failed")

    source = parquet(tmp_path)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    words = (
        r"parquet'\): there is not enough memory to read row group \d \(malloc of size 2147483648"
    )
    for work in (lambda: list(source.blocks(4)), lambda: source.take([13])):
        with pytest.raises(MemoryError, match=words) as caught:
            work()
        assert "smaller row groups or give the process more memory" in str(caught.value)
        assert "damaged" not in str(caught.value)


def test_parquet_without_checksums_can_only_be_trusted(tmp_path):
    source = damaged_parquet(tmp_path / "rows.parquet", write_page_checksum=False)
    found = np.concatenate([block.X[:, 0] for block in source.blocks(4)])
    np.testing.assert_array_equal(found, spoilt(13, 9.0, X[:, 0]))


def test_without_pyarrow(tmp_path, monkeypatch):
    source = parquet(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for work in (lambda: ParquetRows(source.path, "t"), lambda: list(source.blocks(3))):
        with pytest.raises(ImportError, match=r'pip install "everyfold\[parquet\]"'):
            work()


# -- LIBSVM --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 1:2 5:1", "line 9: index 5 is not among 1 to 4; correct n_features=4"),
        ("1 1:2 3", "line 9: '3' is not index:value"),
        ("1 1:2 x:3", "line 9: 'x:3' is not index:value"),
        ("1 1:2 2:x", "line 9: '2:x' is not index:value"),
        ("1 -1:2", "line 9: '-1:2' is not index:value"),
        ("1 3:2 2:1", "line 9: index 2 does not ascend"),
        ("1 2:2 2:1", "line 9: index 2 does not ascend"),
        ("yes 1:2", "line 9: the label 'yes' is not a number"),
        ("1,2 1:2", "line 9: the label '1,2' is not a number"),
        ("1 1:nan", "row 6: X is nan in column 0"),
        ("inf 1:2", "row 6: y is inf"),
        ("1 99999999999999999999:2", "line 9: index 99999999999999999999 is not among"),
    ],
)
@pytest.mark.parametrize("longest", [1, 5, 1000])
def test_malformed_lines(line, message, longest, tmp_path, monkeypatch):
    monkeypatch.setattr("everyfold.io.base._LONGEST_PIECE", longest)
    good = "# a comment\n\n" + "1 qid:3 1:2 4:1 # another\n" * 6
    path = tmp_path / "bad.svm"
    path.write_text(good + line + "\n1 2:3\n")
    with pytest.raises(StreamError, match=message) as caught:
        list(SvmlightRows(path, D).blocks(3))
    assert "bad.svm" in str(caught.value)


def test_where_indices_begin(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1 2:2\n2 2:3\n" * 4 + "3\t0:5\n")
    found = np.vstack([block.X for block in SvmlightRows(path, 3).blocks(2)])
    np.testing.assert_array_equal(found[[0, 1, 8]], [[0, 1, 2], [0, 0, 3], [5, 0, 0]])
    with pytest.raises(
        StreamError, match=r"line 9: index 0 is not among 1 to 3; .*zero_based=False"
    ):
        list(SvmlightRows(path, 3, zero_based=False).blocks(2))
    path.write_text("1 1:1 2:2 # 0:5\n")
    for zero_based, row in (("auto", [1, 2, 0]), (False, [1, 2, 0]), (True, [0, 1, 2])):
        (block,) = SvmlightRows(path, 3, zero_based=zero_based).blocks(2)
        np.testing.assert_array_equal(block.X, [row])
    with pytest.raises(StreamError, match="zero_based must be True, False"):
        SvmlightRows(path, 3, zero_based="no")


def test_text_files_that_cannot_be_read(tmp_path):
    with pytest.raises(StreamError, match=r"none\.svm'\): there is no such file"):
        SvmlightRows(tmp_path / "none.svm", 3)
    with pytest.raises(StreamError, match=r"this is a directory|cannot be read"):
        SvmlightRows(tmp_path, 3)
    with pytest.raises(StreamError, match="n_features must be a whole number"):
        SvmlightRows(tmp_path / "none.svm", 0)
    for text in ("", "\n\n# nothing\n"):
        (tmp_path / "empty.svm").write_text(text)
        with pytest.raises(StreamError, match="there are no rows"):
            list(SvmlightRows(tmp_path / "empty.svm", 3).blocks(2))
    for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        path = tmp_path / f"cut.svm{suffix}"
        path.write_bytes(pack(b"1 1:2\n" * 10_000)[:-20])
        with pytest.raises(StreamError, match=r"the file cannot be read .* damaged"):
            list(SvmlightRows(path, 3).blocks(1000))
        path.write_bytes(b"1 1:2\n" * 10)
        with pytest.raises(StreamError, match="the file cannot be read"):
            list(SvmlightRows(path, 3).blocks(1000))


# -- as_source -----------------------------------------------------------------------------------


def test_as_source(tmp_path):
    source = as_source(X, Y, sample_weight=W, fold=F)
    assert isinstance(source, ArrayRows)
    assert_pass(source, 5)
    assert as_source(source) is source
    assert_pass(as_source(odd_pieces), 5)
    assert_pass(as_source(odd_pieces(), n_features=D), 5)
    path = parquet(tmp_path).path
    assert_pass(as_source(str(path), target="t", sample_weight="w", fold="f"), 5)
    for name in ("rows.libsvm", "rows.SVM", "rows.svmlight.gz"):
        assert_pass(as_source(svmlight(tmp_path, name).path, n_features=D), 5)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X,), {}, r"an array needs y; give as_source\(…, y=…\)"),
        ((X, Y), {"target": "t"}, "an array cannot be combined with target"),
        (("rows.parquet",), {}, "rows.parquet needs target"),
        (("rows.pq", Y), {"target": "t"}, "cannot be combined with y"),
        (("rows.svm.gz",), {}, "rows.svm.gz needs n_features"),
        (("rows.tsv",), {}, r"rows.tsv is not a kind of file .* end in \.parquet"),
        ((odd_pieces, Y), {}, "an iterator cannot be combined with y"),
        ((ArrayRows(X, Y), Y), {}, "a RowSource cannot be combined with y; leave y out"),
    ],
)
def test_as_source_refuses(arguments, options, message):
    with pytest.raises(StreamError, match=message):
        as_source(*arguments, **options)


def test_a_source_has_to_say_how_it_is_read():
    with pytest.raises(TypeError, match="abstract"):
        RowSource()
