"""Rows of several files, one after the other: a folder, a pattern of names, or a list."""

from __future__ import annotations

import glob
import re
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from everyfold.rows.checks import Array, Piece, StreamError
from everyfold.rows.files import SvmlightRows
from everyfold.rows.source import RowSource, naming
from everyfold.rows.tables import CsvRows, ParquetRows
from everyfold.types import Params

Paths: TypeAlias = str | Path | Sequence[str | Path]

_KINDS: dict[type[RowSource], tuple[str, ...]] = {
    ParquetRows: (".parquet", ".pq"),
    CsvRows: (".csv",),
    SvmlightRows: (".svm", ".libsvm", ".svmlight"),
}
ENDINGS = tuple(ending for endings in _KINDS.values() for ending in endings)
"""The endings of the names of files that can be read in blocks."""

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
            if first.names is not None:
                options["features"] = list(first.names)
            others = [kind(path, **options) for path in found[1:]]  # type: ignore[call-arg]
            self.parts: list[RowSource] = [first, *others]
            _agree_on_base(self.parts)
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
                self._count(part, start - part.first_row)

    def _count(self, part: RowSource, rows: int) -> None:
        """Note how many rows a file has, which must stay so."""
        if part.n_rows not in (None, rows):
            raise StreamError(
                f"there are {rows} rows, but there were {part.n_rows} before; do not change the "
                "files while they are read"
            )
        part.n_rows = rows

    def _where(self, row: int) -> str:
        part = next(part for part in reversed(self.parts) if part.first_row <= row)
        name = part._files()[0].name
        return f"{part._where(row) or f'row {row - part.first_row}'} of {name}"

    def _take(self, rows: Array) -> Array:
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


def _agree_on_base(parts: Sequence[RowSource]) -> None:
    """Let an index 0 in one LIBSVM file count for all."""
    files = [part for part in parts if isinstance(part, SvmlightRows)]
    if files and any(part.find_base() == 0 for part in files):
        for part in files:
            part.begin_with(0)
