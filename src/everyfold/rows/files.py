"""Rows of Parquet and LIBSVM files, read piece by piece."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from everyfold.rows.checks import Array, Piece, StreamError, features, listed, positive
from everyfold.rows.source import RowSource, gather, naming, piece_rows

# Bytes that are read at a time: of a column of a Parquet file, and of text.
_COLUMN_BYTES = 2**16
_TEXT_BYTES = 2**20


class ParquetRows(RowSource):
    """Rows of a Parquet file, of which only the columns named are read. Needs pyarrow.

    Pages are compared with their checksums where the file has them (pyarrow writes them with
    ``write_page_checksum=True``); a file without any can only be trusted.

    Parameters
    ----------
    path : str or Path
    target : str or list of str
        A column of numbers or labels; a list gives y two axes.
    features : list of str, optional
        By default all numeric and boolean columns that have no other part to play.
    sample_weight, fold : str, optional
        Columns.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet
    >>> table = pyarrow.table({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6], "kind": ["x", "y", "x"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.parquet"
    ...     pyarrow.parquet.write_table(table, path)
    ...     source = ParquetRows(path, target="kind")
    ...     first, last = source.blocks(2)
    >>> source.names, source.n_rows
    (('a', 'b'), 3)
    >>> first.X, last.y
    (array([[1., 4.],
           [2., 5.]]), array(['x'], dtype=object))
    """

    def __init__(
        self,
        path: str | Path,
        target: str | Sequence[str],
        *,
        features: Sequence[str] | None = None,
        sample_weight: str | None = None,
        fold: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._target = target if isinstance(target, str) else list(target)
        self._weight, self._fold = sample_weight, fold
        targets = [target] if isinstance(target, str) else list(target)
        others = [*targets, *(name for name in (sample_weight, fold) if name is not None)]
        with naming(self), self._steady(), self._open() as file:
            schema, self.n_rows = file.schema_arrow, file.metadata.num_rows
            kinds = [(field.name, _arrow_kind(field.type)) for field in schema]
            if features is None:
                features = [name for name, kind in kinds if kind == "number" and name not in others]
            self.names = (features,) if isinstance(features, str) else tuple(features)
            self._columns = [*self.names, *others]
            _check_columns(kinds, self._columns, target if isinstance(target, str) else None)
            if not self.names or not targets or self.n_rows == 0:
                raise StreamError("there are no rows, no features or no target; give some of each")
        self.n_features = len(self.names)

    def __repr__(self) -> str:
        return f"ParquetRows({str(self.path)!r})"

    def _files(self) -> list[Path]:
        return [self.path]

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise ImportError(
                "ParquetRows needs pyarrow, which is not installed; run "
                'pip install "everyfold[parquet]"'
            ) from error
        # By default, pyarrow reads row groups ahead, and columns of a row group as a whole, and
        # does not look at the checksums of pages.
        with (
            _reading(pa.ArrowException, KeyError),
            pq.ParquetFile(
                self.path,
                pre_buffer=False,
                buffer_size=_COLUMN_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            yield file

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        start, batch_size = 0, piece_rows(size, self.n_features)
        with self._open() as file:
            for batch in file.iter_batches(batch_size, columns=self._columns):
                y = self._matrix(batch, self._target, start)
                weight, fold = (
                    None if name is None else _values(batch, name, start)
                    for name in (self._weight, self._fold)
                )
                yield Piece(self._matrix(batch, list(self.names or ()), start), y, weight, fold)
                start += batch.num_rows

    def _matrix(self, batch: Any, names: str | list[str], start: int) -> Array:
        if isinstance(names, str):
            return _values(batch, names, start)
        X = np.empty((batch.num_rows, len(names)))
        for j, name in enumerate(names):
            X[:, j] = _values(batch, name, start)
        return X

    def _take(self, rows: Array) -> Array:
        with naming(self), self._open() as file, closing(self._near(file, rows)) as pieces:
            return gather(pieces, rows, self.n_features)

    def _near(self, file: Any, rows: Array) -> Generator[tuple[int, Array], None, None]:
        """X of the row groups that have any of the rows."""
        names, n_groups = list(self.names or ()), file.metadata.num_row_groups
        stops = np.cumsum([file.metadata.row_group(g).num_rows for g in range(n_groups)])
        for group in np.unique(np.searchsorted(stops, rows, side="right")):
            if group == n_groups:
                return
            start = int(stops[group - 1]) if group else 0
            batch_size = piece_rows(1, self.n_features)
            for batch in file.iter_batches(batch_size, row_groups=[int(group)], columns=names):
                X = self._matrix(batch, names, start)
                yield start, features(X, len(names), range(start, start + len(X)))
                start += batch.num_rows


def _arrow_kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    is_label = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
    return "label" if is_label else str(kind)


def _check_columns(kinds: list[tuple[str, str]], wanted: list[str], label: str | None) -> None:
    """Refuse columns that are not there, not numeric (but for labels) or in two parts at once."""
    names = [name for name, _ in kinds]
    for name in wanted:
        if names.count(name) != 1:
            there = "no column" if name not in names else "more than one column"
            raise StreamError(f"there is {there} {name!r}; the columns are {listed(names)}")
        if wanted.count(name) != 1:
            raise StreamError(
                f"the column {name!r} is asked for more than once; a column is one feature, or the "
                "target, or sample_weight, or fold"
            )
        kind = dict(kinds)[name]
        if kind != "number" and not (kind == "label" and name == label):
            raise StreamError(
                f"the column {name!r} is not numeric but of type {kind}; encode it as numbers, or "
                "leave it out of features"
            )


def _values(batch: Any, name: str, start: int) -> Array:
    column = batch.column(name)
    if column.null_count:
        row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise StreamError(
            f"row {row}: the column {name!r} is null; fill in such values or leave such rows out"
        )
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


# -- LIBSVM --------------------------------------------------------------------------------------

_OPENERS: dict[str, Callable[[Path, Literal["rb"]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


class SvmlightRows(RowSource):
    r"""Rows of a text file in the format of LIBSVM and SVMlight, plain or as .gz, .bz2 or .xz.

    A line is ``label index:value index:value …``; ``qid:…`` and comments (``#``) are ignored. The
    labels are numbers, and blocks are dense.

    **Cost**: memory for the text and the rows of one block, or of 65536 rows if that is less.

    Parameters
    ----------
    path : str or Path
    n_features : int
    zero_based : bool or "auto", optional
        Whether indices begin with 0. With "auto" they begin with 1 unless an index 0 occurs
        anywhere in the file; the first pass then begins with a search of the text for one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.svm"
    ...     _ = path.write_text("1 1:0.5 3:2\n-1 2:1\n")
    ...     (block,) = SvmlightRows(path, n_features=3).blocks(10)
    >>> block.X
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]])
    >>> block.y
    array([ 1., -1.])
    """

    def __init__(
        self, path: str | Path, n_features: int, *, zero_based: bool | Literal["auto"] = "auto"
    ) -> None:
        if not (zero_based == "auto" or isinstance(zero_based, bool)):
            raise StreamError(f'zero_based must be True, False or "auto", got {zero_based!r}')
        self.path = Path(path)
        self.n_features = positive(n_features, "n_features")
        self._base = None if zero_based == "auto" else 1 - zero_based
        with naming(self), self._steady(), self._open():
            pass  # Only to say now that the file cannot be opened.

    def __repr__(self) -> str:
        return f"SvmlightRows({str(self.path)!r})"

    def _files(self) -> list[Path]:
        return [self.path]

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with (
            _reading(zlib.error, lzma.LZMAError),
            _OPENERS.get(self.path.suffix.lower(), open)(self.path, "rb") as file,
        ):
            yield file

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        if self._base is None:
            self._base = self._find_base()
        start, n_lines = 1, piece_rows(size, self.n_features)
        with self._open() as file:
            while lines := list(islice(file, n_lines)):
                yield _parse(lines, start, self.n_features, self._base)
                start += len(lines)

    def _find_base(self) -> int:
        with self._open() as file:
            while lines := file.readlines(_TEXT_BYTES):
                text = b"".join(lines)
                # Searching the text is fast; only where that hits, comments have to be told apart.
                if (b" 0:" in text or b"\t0:" in text) and any(map(_has_index_0, lines)):
                    return 0
        return 1


def _has_index_0(line: bytes) -> bool:
    return any(word.startswith(b"0:") for word in line.partition(b"#")[0].split())


def _parse(lines: list[bytes], start: int, n_features: int, base: int) -> Piece:
    try:
        X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float64, zero_based=True)
    except (ValueError, TypeError, OverflowError) as error:
        refuse_line(lines, start, n_features, base)
        stop = start + len(lines) - 1
        raise StreamError(f"lines {start} to {stop} are malformed ({error})") from error
    if X.shape[1] > n_features + base or X.indices.min(initial=base) < base:
        refuse_line(lines, start, n_features, base)
    shape = (len(y), n_features)
    return Piece(sparse.csr_array((X.data, X.indices - base, X.indptr), shape=shape), y)


def refuse_line(lines: list[bytes], start: int, n_features: int, base: int) -> None:
    """Say which line does not read as ``label index:value index:value …``, and why."""
    for number, line in enumerate(lines, start=start):
        label, *words = line.partition(b"#")[0].decode("latin1").split() or ["0"]
        if not _is_number(label):
            raise StreamError(
                f"line {number}: the label {label!r} is not a number; encode it as one"
            )
        last = -1
        for word in words:
            index, _, value = word.partition(":")
            if index == "qid":
                continue
            if not (index.isdecimal() and _is_number(value)):
                raise StreamError(f"line {number}: {word!r} is not index:value; correct the line")
            if not base <= int(index) < n_features + base:
                raise StreamError(
                    f"line {number}: index {index} is not among {base} to {n_features + base - 1}; "
                    f"correct n_features={n_features}, or zero_based={base == 0}"
                )
            if int(index) <= last:
                raise StreamError(f"line {number}: index {index} does not ascend; sort the line")
            last = int(index)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# -- Opening -------------------------------------------------------------------------------------


@contextmanager
def _reading(*errors: type[Exception]) -> Iterator[None]:
    """What goes wrong in reading a file, in words."""
    damage: tuple[type[Exception], ...] = (OSError, EOFError, *errors)
    try:
        yield
    except StreamError:
        raise
    except FileNotFoundError as error:
        raise StreamError("there is no such file; check the path") from error
    except IsADirectoryError as error:
        raise StreamError("this is a directory; give one file") from error
    except damage as error:
        raise StreamError(f"the file cannot be read ({error}); it may be damaged") from error
