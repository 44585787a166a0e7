"""Rows of tables with named columns: Parquet and CSV files, and folders of any files.

pyarrow reads single files in small pieces, and only the columns asked for. `FolderRows` puts files
one after the other, so that they are as one file.
"""

from __future__ import annotations

import glob
import re
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from everyfold._typing import AnyArray, Index, Params
from everyfold.io.base import RowSource, gather, naming, piece_rows
from everyfold.io.blocks import Piece, StreamError, features, listed, rows_at_a_time
from everyfold.io.svmlight import SvmlightRows, reading

if TYPE_CHECKING:
    from pyarrow import DataType, RecordBatch
    from pyarrow.csv import CSVStreamingReader
    from pyarrow.parquet import ParquetFile

# Bytes that are read at a time, of a column of a Parquet file and of text: more take more memory,
# as every column has a buffer, and fewer take more calls.
_COLUMN_BYTES = 2**16
_TEXT_BYTES = 2**22


class TableRows(RowSource):
    """Rows of a file with named columns, of which only those asked for are read.

    Parameters
    ----------
    path : str or Path
    target : str, list of str or None
        A column of numbers or labels; a list gives y two axes, and None leaves y without columns:
        such rows can be predicted.
    features : list of str, optional
        By default all numeric and boolean columns without another role.
    sample_weight, fold : str, optional
        Columns.
    labels : bool or "text", default=False
        Whether numbers of the target are labels, of which whole ones stay whole, or the cells of
        a text file as they are written.
    """

    def __init__(
        self,
        path: str | Path,
        target: str | Sequence[str] | None,
        *,
        features: Sequence[str] | None = None,
        sample_weight: str | None = None,
        fold: str | None = None,
        labels: bool | Literal["text"] = False,
    ) -> None:
        self.path, self._has_labels = Path(path), labels
        self.has_target = target is not None
        self._target = target if isinstance(target, str) else list(target or ())
        self._weight, self._fold = sample_weight, fold
        targets = [self._target] if isinstance(self._target, str) else self._target
        others = [*targets, *(name for name in (sample_weight, fold) if name is not None)]
        with naming(self), self._steady():
            kinds, self.n_rows = self._read_schema()
            self.columns = tuple(name for name, _ in kinds)
            if features is None:
                features = [name for name, kind in kinds if kind == "number" and name not in others]
            self.names = (features,) if isinstance(features, str) else tuple(features)
            self._columns = [*self.names, *others]
            _check_columns(kinds, self._columns, target if isinstance(target, str) else None)
            if not self.names or (self.has_target and not targets) or self.n_rows == 0:
                raise StreamError(
                    "there are no rows, no features or no target; the file needs at least one "
                    "of each"
                )
        self.n_features = len(self.names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _files(self) -> list[Path]:
        return [self.path]

    @abstractmethod
    def _read_schema(self) -> tuple[list[tuple[str, str]], int | None]:
        """Names and kinds of all columns, and the number of rows if the file says so."""

    @abstractmethod
    def _batches(self, size: int) -> Generator[RecordBatch, None, None]:
        """The columns wanted, in Arrow's batches of about so many rows."""

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        start = self.first_row
        size = piece_rows(size, self.n_features)
        with reading(KeyError), closing(self._batches(size)) as batches:
            for batch in batches:
                y = self._matrix(batch, self._target, start)
                weight, fold = (
                    None if name is None else _values(batch, name, start)
                    for name in (self._weight, self._fold)
                )
                yield Piece(self._matrix(batch, list(self.names or ()), start), y, weight, fold)
                start += batch.num_rows

    def _matrix(self, batch: RecordBatch, names: str | list[str], start: int) -> AnyArray:
        if isinstance(names, str):
            return _values(batch, names, start)
        X = np.empty((batch.num_rows, len(names)))
        for j, name in enumerate(names):
            X[:, j] = _values(batch, name, start)
        return X


class ParquetRows(TableRows):
    """Rows of a Parquet file; only the named columns are read. Needs pyarrow.

    If the file has page checksums, they are verified (pyarrow writes them with
    ``write_page_checksum=True``); a file without checksums cannot be verified.

    Parameters
    ----------
    path : str or Path
    target : str, list of str or None
        A column of numbers or labels; with a list, y has two axes. None is for rows that are only
        predicted.
    features : list of str, optional
        By default all numeric and boolean columns without another role.
    sample_weight, fold : str, optional
        Columns.
    labels : bool, default=False
        For CSV files only.

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

    def _read_schema(self) -> tuple[list[tuple[str, str]], int | None]:
        with self._open() as file:
            kinds = [(field.name, _arrow_kind(field.type)) for field in file.schema_arrow]
            self._stops = _ends(file).tolist()
            return kinds, int(file.metadata.num_rows)

    @contextmanager
    def _open(self) -> Iterator[ParquetFile]:
        arrow = _arrow(self, "pyarrow.parquet")
        # By default, pyarrow reads row groups ahead, and columns of a row group as a whole, and
        # does not look at the checksums of pages. Not pyarrow.dataset: it keeps the order and
        # checks pages as well, but holds row groups as a whole even with reading ahead switched off
        # (pyarrow 26: 112 MB for a million rows of 24 columns in one row group, here 10 MB, both
        # in batches of 10,000 rows), and does not say which row group is damaged.
        with (
            reading(*_damage()),
            arrow.ParquetFile(
                self.path,
                pre_buffer=False,
                buffer_size=_COLUMN_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            yield file

    def _batches(self, size: int) -> Generator[RecordBatch, None, None]:
        with self._open() as file:
            for group in range(file.metadata.num_row_groups):
                yield from self._group(file, group, size, self._columns)

    def _group(
        self, file: ParquetFile, group: int, size: int, columns: list[str]
    ) -> Generator[RecordBatch, None, None]:
        smaller = "write the file with smaller row groups"
        with reading(*_damage(), what=f"row group {group}", instead=smaller):
            yield from file.iter_batches(size, row_groups=[group], columns=columns)

    def _where(self, row: int) -> str:
        local = row - self.first_row
        group = min(int(np.searchsorted(self._stops, local, side="right")), len(self._stops) - 1)
        start = self._stops[group - 1] if group else 0
        return f"row {local - start} of row group {group}"

    def _take(self, rows: AnyArray) -> AnyArray:
        with naming(self), self._open() as file, closing(self._near(file, rows)) as pieces:
            return gather(pieces, rows, self.n_features)

    def _near(
        self, file: ParquetFile, rows: AnyArray
    ) -> Generator[tuple[int, AnyArray], None, None]:
        """X of the row groups that have any of the rows."""
        names, stops = list(self.names or ()), _ends(file)
        for group in np.unique(np.searchsorted(stops, rows, side="right")).tolist():
            if group == len(stops):
                return
            start = int(stops[group - 1]) if group else 0
            for batch in self._group(file, group, rows_at_a_time(self.n_features), names):
                first = self.first_row + start
                X = self._matrix(batch, names, first)
                yield start, features(X, len(names), range(first, first + len(X)))
                start += batch.num_rows


def _ends(file: ParquetFile) -> Index:
    """The number of rows up to the end of each row group."""
    groups = range(file.metadata.num_row_groups)
    return np.cumsum([file.metadata.row_group(g).num_rows for g in groups], dtype=np.intp)


class CsvRows(TableRows):
    r"""Rows of a CSV file with a header, also compressed as .gz or .bz2. Needs pyarrow.

    The type of a column is determined from the beginning of the file; a later cell of another type
    raises an error. Numbers become float64.

    Parameters
    ----------
    path, target, features, sample_weight, fold
        As in :class:`ParquetRows`.
    labels : bool or "text", default=False
        Whether numbers of the target are labels: integers then stay integers; with "text" all cells
        are kept as text.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.csv"
    ...     _ = path.write_text("a,kind,b\n1,x,4\n2,y,5\n3,x,6\n")
    ...     source = CsvRows(path, target="kind")
    ...     (block,) = source.blocks(10)
    >>> source.names, block.X.tolist(), block.y.tolist()
    (('a', 'b'), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], ['x', 'y', 'x'])
    """

    def _read_schema(self) -> tuple[list[tuple[str, str]], int | None]:
        with self._open({}) as reader:
            kinds = [(field.name, _arrow_kind(field.type)) for field in reader.schema]
            self._kinds = dict(kinds)
            self._whole = {f.name for f in reader.schema if str(f.type) == "int64"}
            return kinds, None

    @contextmanager
    def _open(self, options: Params) -> Iterator[CSVStreamingReader]:
        arrow = _arrow(self, "pyarrow.csv")
        size = arrow.ReadOptions(block_size=_TEXT_BYTES, use_threads=False)
        with (
            reading(*_damage()),
            arrow.open_csv(
                self.path,
                read_options=size,
                convert_options=arrow.ConvertOptions(strings_can_be_null=True, **options),
            ) as reader,
        ):
            yield reader

    def _batches(self, size: int) -> Generator[RecordBatch, None, None]:
        import pyarrow as pa

        kinds = {name: self._kinds[name] for name in self._columns}
        types = {
            name: pa.float64() if kind == "number" else pa.string() for name, kind in kinds.items()
        }
        for name in [self._target] if isinstance(self._target, str) and self._has_labels else []:
            # Labels that are whole stay whole: 1, and not 1.0.
            types[name] = pa.int64() if name in self._whole else types[name]
            types[name] = pa.string() if self._has_labels == "text" else types[name]
        with self._open({"include_columns": self._columns, "column_types": types}) as reader:
            # Blocks of text have as many rows as fit into them, which may be too many.
            for batch in reader:
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)


def _arrow(source: RowSource, name: str) -> ModuleType:
    """A module of pyarrow, which need not be installed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{type(source).__name__} needs pyarrow, which is not installed; run "
            'pip install "everyfold[parquet]"'
        ) from error


def _damage() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return pa.ArrowException, KeyError


def _arrow_kind(kind: DataType) -> str:
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


def _values(batch: RecordBatch, name: str, start: int) -> AnyArray:
    column = batch.column(name)
    if column.null_count:
        row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise StreamError(
            f"row {row}: the column {name!r} is null; fill in such values or leave such rows out",
            row,
        )
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))


# -- Rows of several files, one after the other: a folder, a pattern of names, or a list ----------


Paths: TypeAlias = str | Path | Sequence[str | Path]

_KINDS: dict[type[RowSource], tuple[str, ...]] = {
    ParquetRows: (".parquet", ".pq"),
    CsvRows: (".csv",),
    SvmlightRows: (".svm", ".libsvm", ".svmlight"),
}
# The endings of the names of files that can be read in blocks.
ENDINGS = tuple(ending for endings in _KINDS.values() for ending in endings)

_PACKED = (".gz", ".bz2", ".xz")


def kind_of(path: Path) -> type[RowSource] | None:
    """What reads a file, by its name; None if nothing does."""
    name = path.name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    found = (kind for kind, endings in _KINDS.items() if name.endswith(endings))
    return next(found, None)


def is_many(paths: Any) -> bool:
    """Whether files are meant: a list of them, a folder, or a pattern of names."""
    if isinstance(paths, list | tuple):
        return bool(paths) and all(isinstance(path, str | Path) for path in paths)
    if not isinstance(paths, str | Path):
        return False
    return Path(paths).is_dir() or (glob.has_magic(str(paths)) and not Path(paths).exists())


class FolderRows(RowSource):
    r"""Rows of several files, as if they were one file: a folder, a pattern of names, or a list.

    All files must be of the same kind: Parquet, CSV or LIBSVM. They are read in the order of their
    names, in which numbers are compared as numbers (part.9 before part.10); a list is read in its
    own order. Folders are searched recursively, except for names that begin with "." or "_".

    Parameters
    ----------
    paths : str, Path or list
        A folder, a pattern such as ``"data/2024-*.parquet"``, or a list of files.
    **options
        Options of :class:`ParquetRows`, :class:`CsvRows` or :class:`SvmlightRows`, for every file.
        Columns are found by their names, in any order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in (1, 2, 10):
    ...         _ = (Path(folder) / f"part.{i}.csv").write_text(f"a,t\n{i},0.5\n")
    ...     source = FolderRows(folder, target="t")
    ...     (block,) = source.blocks(10)
    >>> block.X.ravel().tolist()
    [1.0, 2.0, 10.0]
    """

    def __init__(self, paths: Paths, **options: Any) -> None:
        self._called = str(paths) if isinstance(paths, str | Path) else f"{len(paths)} files"
        with naming(self):
            found = find_files(paths)
            kind = one_kind(found)
            first = kind(found[0], **options)  # type: ignore[call-arg]
            # The other files must have the columns of the first, in any order.
            if first.names is not None:
                options["features"] = list(first.names)
            others = [kind(path, **options) for path in found[1:]]  # type: ignore[call-arg]
            self.parts: list[RowSource] = [first, *others]
            files = [part for part in self.parts if isinstance(part, SvmlightRows)]
            # An index 0 in one LIBSVM file counts for all of them.
            if any(part.find_base() == 0 for part in files):
                for part in files:
                    part.begin_with(0)
        self.n_features, self.names = first.n_features, first.names
        self.has_target = first.has_target
        self.columns: tuple[str, ...] = getattr(first, "columns", ())
        self._number()

    def __repr__(self) -> str:
        return f"FolderRows({self._called!r})"

    def _files(self) -> list[Path]:
        return [path for part in self.parts for path in part._files()]

    def identity(self) -> Params:
        """See base class: those of its files."""
        return {"kind": type(self).__name__, "parts": [part.identity() for part in self.parts]}

    def _number(self) -> None:
        """Say where each file begins, as far as the numbers of their rows are known."""
        start = 0
        for part in self.parts:
            part.first_row = start
            if part.n_rows is None:
                return
            start += part.n_rows
        self.n_rows = start

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        start = 0
        for part in self.parts:
            part.first_row = start
            with naming(part):
                for piece in part._pieces(size):
                    start += int(np.shape(piece.X)[0])
                    yield piece
                rows = start - part.first_row
                if part.n_rows not in (None, rows):
                    raise StreamError(
                        f"there are {rows} rows, but there were {part.n_rows} before; do not "
                        "change the files while they are read"
                    )
                part.n_rows = rows

    def _where(self, row: int) -> str:
        part = next(part for part in reversed(self.parts) if part.first_row <= row)
        name = part._files()[0].name
        return f"{part._where(row) or f'row {row - part.first_row}'} of {name}"

    def _take(self, rows: AnyArray) -> AnyArray:
        # Where a file begins is known only after all before it were read once.
        if any(part.n_rows is None for part in self.parts):
            return super()._take(rows)
        self._number()
        starts = np.array([part.first_row for part in self.parts])
        owner = np.searchsorted(starts, rows, side="right") - 1
        X = np.empty((len(rows), self.n_features))
        for k in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == k)
            X[mine] = self.parts[k].take(rows[mine] - starts[k])
        return X


def find_files(paths: Paths) -> list[Path]:
    """The files that are meant, in their order."""
    if isinstance(paths, list | tuple):
        return [Path(path) for path in paths]
    where = str(paths)
    folder = Path(where)
    if folder.is_dir():
        inside = (path for path in folder.rglob("*") if path.is_file())
        hidden = (".", "_")
        found = [
            path
            for path in inside
            if not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
        ]
    else:
        found = [path for path in map(Path, glob.glob(where, recursive=True)) if path.is_file()]
    if not found:
        raise StreamError("there are no files; check the path")
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A name as its numbers and the words between them."""
    words = re.split(r"(\d+)", str(path))
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def one_kind(found: Sequence[Path]) -> type[RowSource]:
    """What reads all of them."""
    kinds = {path: kind_of(path) for path in found}
    for path, kind in kinds.items():
        if kind is None:
            raise StreamError(
                f"{path} is not a kind of file that can be read in blocks: its name must end in "
                f"{', '.join(ENDINGS)}; move it away, or give a pattern such as '*.parquet'"
            )
        if kind is not kinds[found[0]]:
            raise StreamError(
                f"{path} and {found[0]} are files of different kinds; use a pattern, such as "
                "'*.parquet'"
            )
    first = kinds[found[0]]
    assert first is not None
    return first
