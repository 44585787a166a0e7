"""Reading data files: CSV and Parquet by pyarrow, svmlight by scikit-learn, and NumPy's own.

The bytes are read first, from a file, a pipe or standard input, and are refused if they are more
than the memory allows, packed or unpacked. Then the reader for this kind of file makes columns or a
matrix of them.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import select
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv
from pyarrow.parquet import ParquetFile, read_table
from sklearn.datasets import load_svmlight_file

from everyfold._typing import AnyArray, Params
from everyfold.cli.errors import BadInput, naming
from everyfold.cli.table import Column, InputMatrix, InputTable, is_number, is_text
from everyfold.io.blocks import StreamError
from everyfold.io.svmlight import refuse_line
from everyfold.linalg.memory import available_memory

_MISSING = pa.array(["", "na", "n/a", "nan", "null", "none", "?"])
# What damaged files of NumPy, and pyarrow's own errors, are.
_DAMAGE = (
    *(ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, NotImplementedError),  # a size or a method that nobody wrote
)

# More columns than that are refused: each is a column of text first with its own buffers, however
# few the rows are.
MOST_COLUMNS = 100_000

# Of sparse rows, whose models have a number for each feature: a larger index is a typing error.
MOST_FEATURES = 100_000_000

_DELIMITERS = {",": "','", ";": "';'", "\t": "a tab", " ": "a space"}
_BEGINNINGS = {b"PAR1": "parquet", b"\x93NUM": "npy", b"PK\x03\x04": "npz"}


# -- bytes -----------------------------------------------------------------------------------------

# Bytes that are read at a time, between two checks of how many there are by now.
_PIECE = 1 << 20

# One part in so many of the free memory is what a file may take, unpacked: parsing it and the
# matrix of its numbers take the same again.
_SHARE = 4

# Seconds that a named pipe is waited for that nobody writes to.
_PATIENCE = 2.0

_DEVICE = "is a device, not a file; give a file, or - for standard input"
# What is refused, by the kind of file.
_KINDS = {
    stat.S_IFDIR: "is a directory; give a file",
    stat.S_IFSOCK: "is a socket, not a file; give a file",
    stat.S_IFCHR: _DEVICE,
    stat.S_IFBLK: _DEVICE,
}


def most_bytes() -> int:
    """What one file may take in memory."""
    return available_memory() // _SHARE


def check_size(size: int, what: str) -> None:
    """Raise if so many bytes are more than a file may take."""
    most = most_bytes()
    if size > most:
        words = f"{size / 1e9:.3g} GB, and a file may take {most / 1e9:.3g} GB"
        remedy = "take fewer rows or columns, or give a folder of files, which are read in blocks"
        raise BadInput(f"{what} more than the memory allows ({words}); {remedy}")


def read_bytes(path: Path) -> bytes:
    """What is in a file, a pipe that somebody writes to, or on standard input ("-")."""
    if str(path) == "-":
        return _whole(_pieces(sys.stdin.buffer), "standard input holds")
    try:
        found = path.stat()
        if stat.S_IFMT(found.st_mode) in _KINDS:
            raise BadInput(f"{path} {_KINDS[stat.S_IFMT(found.st_mode)]}")
        if stat.S_ISFIFO(found.st_mode):
            return _from_pipe(path)
        check_size(found.st_size, f"{path} holds")
        with path.open("rb") as file:
            return _whole(_pieces(file), f"{path} holds")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a zero byte in its name
        raise BadInput(f"{str(path)!r} is not a file name: {error}") from error


def unpacked(raw: bytes) -> bytes:
    """The content of a gzip file, or the bytes themselves if they are none."""
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            return _whole(_pieces(file), "unpacked, the file holds")
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"the gzip file is damaged ({error})") from error


def check_archive(raw: bytes) -> None:
    """Raise if the members of a ZIP archive say that they take more than a file may take."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        sizes = [member.file_size for member in archive.infolist()]
    check_size(sum(sizes), f"unpacked, the {len(sizes)} members of the archive hold")


def _pieces(file: IO[bytes] | io.RawIOBase | gzip.GzipFile) -> Iterator[bytes]:
    return iter(partial(file.read, _PIECE), b"")


def _whole(pieces: Iterable[bytes], what: str) -> bytes:
    """All pieces together, with room made for no more than comes."""
    parts, size, most = [], 0, most_bytes()
    for part in pieces:
        parts.append(part)
        size += len(part)
        if size > most:
            check_size(size, what)
    return b"".join(parts)


def _from_pipe(path: Path) -> bytes:
    """What comes through a named pipe; refused if nobody writes, as that might be for ever."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        select.select([file], [], [], _PATIENCE)
        begin = file.read(_PIECE)  # None if somebody will write, and nothing if nobody
        if begin == b"":
            raise BadInput(f"{path} is a pipe without a writer; give a file")
        os.set_blocking(file.fileno(), True)
        return _whole(chain([begin or b""], _pieces(file)), f"{path} holds")


# -- tables ----------------------------------------------------------------------------------------


def read_file(path: Path, has_header: bool | None = None) -> InputTable | InputMatrix:
    """Read a data file, "-" for standard input, by its name or else by how it begins.

    Whether a CSV file begins with names is found out unless ``has_header`` says so.
    """
    raw = read_bytes(path)
    with naming(path):
        raw = unpacked(raw)
        if not raw.strip():
            raise BadInput("the file is empty")
        kind = _kind(path, raw)
        return _READERS[kind](raw) if kind in _READERS else _read_text(raw, kind, has_header)


def _kind(path: Path, raw: bytes) -> str:
    named = path.with_suffix("") if path.suffix == ".gz" else path
    kind = named.suffix[1:].lower()
    kind = {"pq": "parquet", "libsvm": "svm", "svmlight": "svm"}.get(kind, kind)
    if kind in (*_READERS, "csv", "tsv"):
        return kind
    looks_sparse = re.match(rb"\s*\S+[ \t]+\d+:\S", raw[:1000])
    return _BEGINNINGS.get(raw[:4], "svm" if looks_sparse else "csv")


def _copied(raw: bytes) -> pa.Buffer:
    """The bytes in memory of Arrow's own.

    One of Arrow's threads may be the last to let go of what it has read. Memory of Python's needs
    the interpreter for that, and ends the process with an abort if the interpreter has just ended.
    """
    memory = pa.allocate_buffer(len(raw))
    pa.FixedSizeBufferWriter(memory).write(raw)
    return memory


# -- CSV -----------------------------------------------------------------------------------------


def _read_text(raw: bytes, kind: str, has_header: bool | None) -> InputTable:
    text = _decode(raw)
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    # The delimiter that is most frequent in the first line; a space only if none of the three is.
    best = max(",;\t", key=first_line.count)
    delimiter = best if best in first_line else " " if " " in first_line.strip() else ","
    delimiter = "\t" if kind == "tsv" else delimiter
    if delimiter == " ":  # any number of spaces is one delimiter, as in columns that are aligned
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    check_width(first_line.count(delimiter) + 1)
    cells = _split(text, delimiter, first_line.count(delimiter) + 1)
    first = [column[0].as_py().strip() for column in cells]
    with_commas = [] if delimiter == "," else [i for i, c in enumerate(cells) if _has_commas(c)]
    read = [_with_points(c) if i in with_commas else c for i, c in enumerate(cells)]
    if has_header is None:
        has_header = _is_header(read)
    columns = [_from_text(column[int(has_header) :]) for column in read]
    if len(columns[0]) == 0:
        raise BadInput("there is a header but no row of data")
    below = [column[int(has_header) :] for column in cells]
    notes = []
    if delimiter != ("\t" if kind == "tsv" else ","):
        notes = [f"the delimiter is {_DELIMITERS[delimiter]}"]
    if with_commas:
        which = ", ".join(repr(first[i]) if has_header else str(i) for i in with_commas[:10])
        more = ", …" if len(with_commas) > 10 else ""
        plural = "" if len(with_commas) == 1 else "s"
        notes.append(f"read decimal commas in column{plural} {which}{more}")
    return InputTable(tuple(first) if has_header else None, columns, below, notes)


def _decode(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = raw[: error.start].count(b"\n") + 1, raw[error.start]
        raise BadInput(
            f"line {line} is not UTF-8 text (byte 0x{byte:02x}); convert the file, for example "
            "with iconv -f latin1 -t utf-8"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise BadInput(f"this is not a text file (line {line} has a zero byte); export it as CSV")
    return text


def _split(text: str, delimiter: str, most: int) -> list[pa.ChunkedArray]:
    """The cells of at most so many columns, as text; equally many in each row."""
    if '"' in text:  # pyarrow reads on where quotes do not match
        _check_rows(text, delimiter)
    # Lines of spaces are blank, and a quote may follow a space.
    plain = re.sub(f'{delimiter} +"', f'{delimiter}"', re.sub(r"(?m)^ +(?=\r?$)", "", text))
    try:
        table = read_csv(
            pa.BufferReader(_copied(f"{plain}\n".encode())),
            ReadOptions(autogenerate_column_names=True),
            ParseOptions(delimiter=delimiter, newlines_in_values='"' in text),
            ConvertOptions(column_types={f"f{i}": pa.string() for i in range(most)}),
        )
    except pa.ArrowInvalid as error:
        _check_rows(text, delimiter)
        raise BadInput(f"malformed: {error}") from error
    return list(table.columns)


def _check_rows(text: str, delimiter: str) -> None:
    """Say which line has more or fewer fields than the first, or quotes that do not match."""
    lines = io.StringIO(text, newline="")
    rows, width = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True), 0
    try:
        for row in rows:
            n_fields = 0 if row == [""] else len(row)
            width = width or n_fields
            if n_fields not in (0, width):
                counts = f"{n_fields} fields, but the first has {width} (delimiter {delimiter!r})"
                raise BadInput(f"line {rows.line_num} has {counts}")
    except csv.Error as error:
        raise BadInput(f"line {rows.line_num} is malformed: {error}") from error


def _with_points(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring(cells, ",", ".")


def _has_commas(cells: pa.ChunkedArray) -> bool:
    """Whether all cells below the first are numbers, if commas are decimal points."""
    below = cells[1:]
    return is_text(_from_text(below)) and not is_text(_from_text(_with_points(below)))


def _is_header(cells: list[pa.ChunkedArray]) -> bool:
    """Names, not numbers: throughout, or positions and at least one name above numbers."""
    first = [column[0].as_py().strip() for column in cells]
    numbers = [i for i, cell in enumerate(first) if is_number(cell)]
    if any(first[i] != str(i) for i in numbers):
        return False
    named = [_from_text(cells[i][1:]) for i in range(len(first)) if i not in numbers]
    return not numbers or any(column.dtype.kind == "f" for column in named if len(column))


def _from_text(cells: pa.ChunkedArray) -> Column:
    cells = pc.utf8_trim_whitespace(cells)
    is_missing = pc.is_in(pc.utf8_lower(cells), _MISSING)
    cells = pc.if_else(is_missing, pa.scalar(None, pa.string()), cells)
    with suppress(pa.ArrowInvalid):
        cells = cells.cast(pa.float64())
    return _from_arrow(cells)


def _from_arrow(cells: pa.ChunkedArray) -> Column:
    if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
        cells = cells.cast(pa.timestamp("us")).cast(pa.string())
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    if any(is_kind(cells.type) for is_kind in kinds):
        return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy())
    return np.array(["" if cell is None else str(cell) for cell in cells.to_pylist()])


# -- Parquet, svmlight, NumPy --------------------------------------------------------------------


def _read_parquet(raw: bytes) -> InputTable:
    try:
        memory = _copied(raw)
        _check_parquet(ParquetFile(pa.BufferReader(memory)).metadata)
        table = read_table(pa.BufferReader(memory))
    except (*_DAMAGE, pa.ArrowException) as error:
        raise BadInput(f"this is not a readable Parquet file ({error})") from error
    # Pandas writes such columns for an index without a name.
    index = re.compile(r"__index_level_\d+__")
    kept = [i for i, name in enumerate(table.column_names) if not index.fullmatch(name)]
    if table.num_rows == 0 or not kept:
        raise BadInput("the table has no rows or no columns")
    names = tuple(table.column_names[i] for i in kept)
    columns = [table.column(i) for i in kept]
    return InputTable(names, [_from_arrow(column) for column in columns], columns)


def _check_parquet(metadata: Any) -> None:
    """Raise if a Parquet file has, by its own metadata, more than the memory allows."""
    check_width(metadata.num_columns)
    # What it holds unpacked by its own words; and as numbers, if dictionaries make it small.
    packed = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    check_size(
        max(packed, 8 * metadata.num_rows * metadata.num_columns), "unpacked, the table holds"
    )


def check_width(n_columns: int) -> None:
    """Raise if a file has more columns than a table can have."""
    if n_columns > MOST_COLUMNS:
        words = f"{n_columns} columns, and at most {MOST_COLUMNS} are read"
        raise BadInput(f"the table has {words}; leave some out, or use svmlight for sparse rows")


def _read_svmlight(raw: bytes) -> InputMatrix:
    try:
        X, y = load_svmlight_file(io.BytesIO(raw), dtype=np.float64, zero_based=True)
    except (ValueError, TypeError, OverflowError) as error:
        try:
            refuse_line(raw.splitlines(), 1, sys.maxsize, 0)
        except StreamError as found:
            raise BadInput(str(found)) from error
        raise BadInput(f"malformed: {error}") from error
    if X.shape[0] == 0:
        raise BadInput("there are no rows")
    # Indices begin with 1 unless one is 0, as scikit-learn reads them.
    base = 0 if X.nnz == 0 or X.indices.min() == 0 else 1
    if X.shape[1] > MOST_FEATURES:
        row = int(np.searchsorted(X.indptr, int(X.indices.argmax()), side="right"))
        words = f"the index {X.shape[1] - 1} in row {row}"
        raise BadInput(f"{words} is beyond {MOST_FEATURES}; number the features from 1 on")
    return InputMatrix(X[:, base:], y, base)


def _read_numpy(raw: bytes, what: str) -> dict[str, AnyArray]:
    """The arrays of a NumPy file by name, X first of all; a single one is X."""
    try:
        if zipfile.is_zipfile(io.BytesIO(raw)):
            check_archive(raw)
        loaded = np.load(io.BytesIO(raw), allow_pickle=False)
        arrays = {"X": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except _DAMAGE as error:
        raise BadInput(f"this is not a NumPy {what} ({error})") from error
    if "X" not in arrays:
        raise BadInput(f"there is no array 'X', only {', '.join(arrays) or 'nothing'}")
    if arrays["X"].ndim != 2 or arrays["X"].dtype.kind not in "fiubU":
        found = f"got shape {arrays['X'].shape}, type {arrays['X'].dtype}"
        raise BadInput(f"X must be a matrix of numbers, {found}")
    return arrays


def _read_npy(raw: bytes) -> InputTable:
    columns = _read_numpy(raw, "file of numbers")["X"].T
    if columns.dtype.kind != "U":
        return InputTable(None, list(columns))
    return InputTable(None, [_from_text(pa.chunked_array([column])) for column in columns.tolist()])


def _read_npz(raw: bytes) -> InputMatrix:
    arrays = _read_numpy(raw, "archive of plain arrays")
    try:
        return InputMatrix(arrays["X"].astype(np.float64), arrays.get("y"))
    except ValueError as error:
        raise BadInput(f"X must be a matrix of numbers: {error}") from error


_READERS: Params = {"svm": _read_svmlight, "npy": _read_npy, "npz": _read_npz}
_READERS["parquet"] = _read_parquet
