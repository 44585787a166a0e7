"""A journal of finished units, so that a search goes on after its process has died.

A file of lines. Each is a checksum and a JSON text: the first says which search it is, every other
has the outcomes of one unit, on disk before the next one counts. Nothing in it is executed when it
is read: a file that somebody else wrote can give wrong numbers, but run nothing.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from io import BufferedRandom
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from everyfold.criteria.base import Failure
from everyfold.evaluate.data import Data, Outcome
from everyfold.evaluate.digests import JournalError
from everyfold.evaluate.fingerprint import Fingerprint, difference, fingerprint, unit_key
from everyfold.evaluate.foldscores import FoldScores
from everyfold.evaluate.request import Request
from everyfold.evaluate.tiles import Unit
from everyfold.rows.disk import lock, sync_folder
from everyfold.rows.telling import warn
from everyfold.types import Splitter

_MAGIC = b"everyfold-journal-1 "


class Journal:
    """The finished units of one search in a file.

    Attributes
    ----------
    found : int
        How many finished units the file had.

    **Cost**: of a unit, its outcomes in JSON (arrays compressed) and one ``fsync``; they are read
    one by one when their turn comes.
    """

    def __init__(self, path: Path, file: BufferedRandom, *, keeps_failures: bool) -> None:
        self._path, self._file, self._keeps_failures = path, file, keeps_failures
        self._places: dict[str, int] = {}
        self.found = 0

    def start(self, asked: Fingerprint) -> None:
        """Read what there is; raise if it is of another search."""
        lines = self._lines()
        try:
            first, header = next(lines)
        except StopIteration:
            self._file.truncate(0)
            self._write(_MAGIC, {"fingerprint": asked})
            sync_folder(self._path.parent)
            return
        if first != 0 or header is None or "fingerprint" not in header:
            raise JournalError(
                f"journal={str(self._path)!r} is damaged in its first line, which identifies the "
                "search; remove the file, or choose another name"
            )
        self._compare(header["fingerprint"], asked)
        for place, record in lines:
            if record is None:
                self._warn_of_damage(place)
            else:
                self._places[record["unit"]] = place
        self.found = len(self._places)

    def find(self, unit: Unit) -> list[Outcome] | None:
        """The outcomes of a unit, if it was finished before."""
        return self.find_record(unit_key(unit))

    def find_record(self, key: str) -> list[Any] | None:
        """What was written under a key."""
        place = self._places.get(key)
        if place is None:
            return None
        self._file.seek(place)
        record = _checked(self._file.readline())
        assert record is not None
        return [_decoded(outcome) for outcome in record["outcomes"]]

    def append(self, unit: Unit, outcomes: Sequence[Outcome]) -> None:
        """Write a finished unit; one whose failure ends the search is not."""
        if not self._keeps_failures and any(outcome.failures for outcome in outcomes):
            return
        self.append_record(unit_key(unit), outcomes)

    def append_record(self, key: str, outcomes: Sequence[object]) -> None:
        """Write plain data, arrays or outcomes under a key."""
        self._write(b"", {"unit": key, "outcomes": [_encoded(o) for o in outcomes]})

    def _write(self, prefix: bytes, record: object) -> None:
        text = json.dumps(record, separators=(",", ":")).encode()
        self._file.seek(0, os.SEEK_END)
        self._file.write(prefix + b"%08x " % zlib.crc32(text) + text + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lines(self) -> Iterator[tuple[int, Any]]:
        """Where each record begins, and what it says, None if that is damaged; drops a torn end."""
        start = self._file.read(len(_MAGIC))
        if not _MAGIC.startswith(start):
            raise JournalError(
                f"journal={str(self._path)!r} exists and is not a journal; choose the name of a "
                "file that does not exist"
            )
        self._file.seek(0)
        place = 0
        while line := self._file.readline():
            is_whole = line.endswith(b"\n")
            record = _checked(line.removeprefix(_MAGIC) if place == 0 else line)
            following = place + len(line)
            is_last = not self._file.read(1)
            if not is_whole or (record is None and is_last):
                self._file.truncate(place)
                return
            self._file.seek(following)
            yield place, record
            self._file.seek(following)
            place = following

    def _compare(self, known: Any, asked: Fingerprint) -> None:
        words = difference(known, asked)
        if words:
            raise JournalError(
                f"journal={str(self._path)!r} belongs to another search: it differs in "
                f"{'; '.join(words)}. Call the search as before to continue it, or choose "
                "another file to start anew"
            )

    def _warn_of_damage(self, place: int) -> None:
        warn(
            f"journal={str(self._path)!r} is damaged at byte {place}: that unit is evaluated again"
        )


@contextmanager
def opened(
    path: str | os.PathLike[str] | None, request: Request, data: Data
) -> Iterator[Journal | None]:
    """The journal of a search, locked as long as it is open; None if there is no path.

    The lock is the operating system's and goes with the process, however that ends.
    """
    if path is None:
        yield None
        return
    _check_repeatable(request)
    keeps_failures = request.options.error_score != "raise"
    with opened_file(path, fingerprint(request, data), keeps_failures=keeps_failures) as journal:
        yield journal


@contextmanager
def opened_file(
    path: str | os.PathLike[str], asked: Fingerprint, *, keeps_failures: bool = True
) -> Iterator[Journal]:
    """The journal of whatever has this fingerprint, locked as long as it is open."""
    with _file(Path(path)) as file:
        _lock(file, path)
        journal = Journal(Path(path), file, keeps_failures=keeps_failures)
        journal.start(asked)
        yield journal


def _file(path: Path) -> BufferedRandom:
    if path.exists() and not path.is_file():
        raise JournalError(f"journal={str(path)!r} is not a regular file; choose another name")
    if not path.parent.is_dir():
        raise JournalError(
            f"journal={str(path)!r}: there is no folder {str(path.parent)!r}; create it first"
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    return os.fdopen(descriptor, "r+b")


def _lock(file: BufferedRandom, path: str | os.PathLike[str]) -> None:
    try:
        lock(file)
    except BlockingIOError as error:
        raise JournalError(
            f"journal={str(path)!r} is in use by another search; wait until it ends, or choose "
            "another file"
        ) from error


def _check_repeatable(request: Request) -> None:
    """Refuse what is drawn anew in every call, so that none would go on with another's journal."""
    check_folds_repeat(request.cv)
    seeds = request.options.seeds
    if request.options.random_state is None and seeds.are_drawn:
        raise JournalError(
            "random_state=None draws different landmarks in every call, so that a journal "
            "cannot be continued; pass an integer, such as random_state=0"
        )


def check_folds_repeat(cv: Splitter) -> None:
    """Refuse a splitter that draws other folds in every call."""
    is_drawn = getattr(cv, "random_state", 0) is None and getattr(cv, "shuffle", True)
    if is_drawn:
        raise JournalError(
            f"cv={cv!r} draws different folds in every call, so that a journal cannot be "
            "continued; give it a random_state"
        )


def _checked(line: bytes) -> Any:
    """The record of a line; None if it is not what was written."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        return json.loads(text)
    except ValueError:
        return None


# -- outcomes as JSON ------------------------------------------------------------------------------

_RECORDS: dict[str, type] = {"Outcome": Outcome, "FoldScores": FoldScores}


def _encoded(value: Any) -> Any:
    """Plain data, every number with all its bits."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__name__ in _RECORDS:
        own = {f.name: _encoded(getattr(value, f.name)) for f in fields(value) if f.init}
        return {type(value).__name__: own}
    if isinstance(value, Failure):
        return {"Failure": [f"{type(value.error).__name__}: {value.error}", value.trace]}
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        packed = base64.b64encode(zlib.compress(value.tobytes(), 1)).decode()
        return {"array": [value.dtype.str, list(value.shape), packed]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(k), _encoded(v)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encoded(item) for item in value]}
    return float(value) if isinstance(value, Real) else str(value)


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in _RECORDS:
        return _RECORDS[kind](**{name: _decoded(item) for name, item in content.items()})
    if kind == "Failure":
        return Failure(RuntimeError(content[0]), content[1])
    if kind == "array":
        return _array(*content)
    if kind == "dict":
        return {_decoded(k): _decoded(v) for k, v in content}
    items = [_decoded(item) for item in content]
    return tuple(items) if kind == "tuple" else items


def _array(name: str, shape: Sequence[int], packed: str) -> Any:
    """An array, or a number where there is no shape."""
    dtype = np.dtype(name)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    raw = zlib.decompressobj().decompress(base64.b64decode(packed), max(size, 1))
    found = np.frombuffer(bytearray(raw), dtype).reshape(shape)
    return found if shape else found[()]
