"""Reading data files: CSV, Parquet, svmlight and NumPy, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from everyfold.cli.data import Apart, Column, Content, Table
from everyfold.cli.manners import BadInput, naming

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_PAIR = re.compile(rb"\d+:\S+")


def read_file(path: Path, has_header: bool | None = None) -> Content:
    """Read a data file by its name or, failing that, by how it begins.

    Parameters
    ----------
    path : Path
        "-" is standard input.
    has_header : bool, optional
        Whether a CSV file begins with names; by default that is found out.
    """
    raw = _bytes(path)
    kind = _kind(path, raw)
    with naming(path):
        return _read_csv(raw, path, has_header) if kind == "csv" else _READERS[kind](raw)


def _bytes(path: Path) -> bytes:
    if str(path) == "-":
        raw = sys.stdin.buffer.read()
    else:
        if path.is_dir():
            raise BadInput(f"{path} is a directory; give a file")
        try:
            raw = path.read_bytes()
        except FileNotFoundError as error:
            raise BadInput(f"{path}: there is no such file") from error
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{path}: the gzip file is damaged ({error})") from error
    if not raw.strip():
        raise BadInput(f"{path} is empty")
    return raw


_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npy": "npy",
    ".npz": "npz",
}
_BEGINNINGS = {b"PAR1": "parquet", b"\x93NUM": "npy", b"PK\x03\x04": "npz"}


def _kind(path: Path, raw: bytes) -> str:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in _SUFFIXES:
        return _SUFFIXES[suffix.lower()]
    if raw[:4] in _BEGINNINGS:
        return _BEGINNINGS[raw[:4]]
    words = raw.lstrip().split(b"\n", 1)[0].split()
    return "svmlight" if len(words) > 1 and _PAIR.fullmatch(words[1]) else "csv"


# -- CSV -----------------------------------------------------------------------------------------


def _read_csv(raw: bytes, path: Path, has_header: bool | None) -> Table:
    text = _decode(raw)
    rows = _split(text, path)
    if has_header is None:
        has_header = _has_header(rows)
    names = tuple(rows[0]) if has_header else None
    cells = rows[1:] if has_header else rows
    if not cells:
        raise BadInput("there is a header but no row of data")
    return Table(names, [_column(column) for column in zip(*cells, strict=True)])


def _decode(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(
            f"line {line} is not UTF-8 text (byte 0x{raw[error.start]:02x}); convert the file, for "
            "example with iconv -f latin1 -t utf-8"
        ) from error
    if "\0" in text:
        raise BadInput("this is not a text file (it has zero bytes)")
    return text


def _split(text: str, path: Path) -> list[list[str]]:
    """The cells of all rows, equally many in each."""
    delimiter = _delimiter(text, path)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row or row == [""]:
                continue
            if rows and len(row) != len(rows[0]):
                raise BadInput(
                    f"line {reader.line_num} has {len(row)} fields, but the first has "
                    f"{len(rows[0])} (delimiter {delimiter!r})"
                )
            rows.append([cell.strip() for cell in row])
    except csv.Error as error:
        raise BadInput(f"line {reader.line_num} is malformed: {error}") from error
    return rows


def _delimiter(text: str, path: Path) -> str:
    if ".tsv" in path.suffixes:
        return "\t"
    first = next(line for line in text.splitlines() if line.strip())
    best = max(",;\t", key=first.count)
    return best if first.count(best) else " " if " " in first.strip() else ","


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Names, not numbers: throughout, or positions and at least one name above numbers."""
    first, others = rows[0], rows[1:]
    numeric = [_is_number(cell) for cell in first]
    if not any(numeric):
        return True
    if any(numeric[i] and cell != str(i) for i, cell in enumerate(first)):
        return False
    named = [i for i, is_number in enumerate(numeric) if not is_number]
    return bool(others) and any(all(_is_number(row[i]) for row in others) for i in named)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(cells: Sequence[str]) -> Column:
    filled = ["nan" if cell.lower() in _MISSING else cell for cell in cells]
    try:
        return np.array(filled, dtype=np.float64)
    except ValueError:
        return np.array(["" if cell.lower() in _MISSING else cell for cell in cells])


# -- svmlight ------------------------------------------------------------------------------------


def _read_svmlight(raw: bytes) -> Apart:
    try:
        X, y = load_svmlight_file(io.BytesIO(raw), dtype=np.float64, zero_based=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(_wrong_line(raw) or f"malformed: {error}") from error
    if X.shape[0] == 0:
        raise BadInput("there are no rows")
    # Indices begin with 1 unless one is 0, as scikit-learn reads them.
    base = 0 if X.nnz == 0 or X.indices.min() == 0 else 1
    return Apart(X[:, base:], y, base)


def _wrong_line(raw: bytes) -> str:
    """Which line does not read as ``label index:value index:value``."""
    for number, line in enumerate(raw.splitlines(), start=1):
        words = line.split(b"#", 1)[0].split()
        if not words:
            continue
        if not _is_number(words[0].decode("latin1")):
            return f"line {number}: the label {words[0].decode('latin1')!r} is not a number"
        last = -1
        for word in words[1:]:
            index, _, value = word.partition(b":")
            if index == b"qid":
                continue
            if not index.isdigit() or not _is_number(value.decode("latin1")):
                return f"line {number}: {word.decode('latin1')!r} is not index:value"
            if int(index) <= last:
                return f"line {number}: index {int(index)} does not ascend"
            last = int(index)
    return ""


# -- NumPy ---------------------------------------------------------------------------------------

_NUMPY_ERRORS = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


def _read_npy(raw: bytes) -> Table:
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except _NUMPY_ERRORS as error:
        raise BadInput(f"this is not a NumPy file of numbers ({error})") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiubU":
        raise BadInput("the array must be a matrix of numbers, the target in its last column")
    if array.dtype.kind == "U":
        return Table(None, [_column(column.tolist()) for column in array.T])
    return Table(None, list(array.T))


def _read_npz(raw: bytes) -> Apart:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            if "X" not in file.files:
                raise BadInput(f"there is no array 'X', only {', '.join(file.files) or 'nothing'}")
            X = file["X"]
            y = file["y"] if "y" in file.files else None
    except _NUMPY_ERRORS as error:
        raise BadInput(f"this is not a NumPy archive of plain arrays ({error})") from error
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise BadInput(f"X must be a matrix of numbers, got shape {X.shape}, type {X.dtype}")
    return Apart(X.astype(np.float64), y)


# -- Parquet -------------------------------------------------------------------------------------


def _read_parquet(raw: bytes) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput(
            "Parquet files need pyarrow, which is not installed; run pip install "
            "'everyfold[parquet]'"
        ) from error
    try:
        table = pq.read_table(pa.BufferReader(raw))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"this is not a readable Parquet file ({error})") from error
    table = table.select([name for name in table.column_names if not _is_index(name)])
    if table.num_rows == 0 or table.num_columns == 0:
        raise BadInput("the table has no rows or no columns")
    columns = [_from_arrow(table.column(i)) for i in range(table.num_columns)]
    return Table(tuple(table.column_names), columns)


def _is_index(name: str) -> bool:
    """Whether pandas wrote the column for an index without a name."""
    return bool(re.fullmatch(r"__index_level_\d+__", name))


def _from_arrow(column: Any) -> Column:
    values = column.to_pylist()
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.array(["" if value is None else str(value) for value in values])


_READERS: dict[str, Callable[[bytes], Content]] = {
    "svmlight": _read_svmlight,
    "npy": _read_npy,
    "npz": _read_npz,
    "parquet": _read_parquet,
}
