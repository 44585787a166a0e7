"""A checkpoint of finished units, so that a search goes on after its process has died.

The checkpoint is a file of lines. Each is a checksum and a JSON text: the first says which search
it is, every other has the outcomes of one unit, on disk before the next one counts. Nothing in it
is executed when it is read: a file that somebody else wrote can give wrong numbers, but runs
nothing.

It is no SQLite database, because that is not safe on network drives, where the home folders of
clusters are: SQLite rewrites pages in place and depends on byte-range locks, which are unreliable
there. Lines are only appended. The worst that can happen to one is that it is torn, which its
checksum shows and which costs one unit; the lock of the file only keeps two searches from
appending at the same time.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader, FileIO
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from everyfold._progress import warn
from everyfold._typing import Array, Params, Score, Splitter
from everyfold.crossval.base import Failure
from everyfold.engine.code_digests import CheckpointError, Digests
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Outcome
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scorers import FoldScores
from everyfold.engine.source_data import PassNotes
from everyfold.io.disk import lock, sync_folder

Result = TypeVar("Result")

_NAME = b"everyfold-journal-"
_MAGIC = _NAME + b"3 "


class Checkpoint:
    """The checkpoint of one search: its finished units, in a file.

    Attributes
    ----------
    found : int
        How many finished units the file had.

    **Cost**: of a unit, its outcomes in JSON (arrays compressed) and one ``fsync``; they are read
    one by one when their turn comes.
    """

    def __init__(self, path: Path, file: FileIO, *, keeps_failures: bool) -> None:
        self._path, self._file, self._keeps_failures = path, file, keeps_failures
        self._places: dict[str, int] = {}
        self.found = 0

    def start(self, asked: Fingerprint) -> None:
        """Read what there is; raise if it is of another search."""
        with self._path.open("rb") as reader:
            lines = self._lines(reader)
            try:
                _, header = next(lines)
            except StopIteration:
                self._file.truncate(0)
                self._write(_MAGIC, {"fingerprint": asked})
                sync_folder(self._path.parent)
                return
            if not _is_header(header):
                raise CheckpointError(
                    f"checkpoint={str(self._path)!r} is damaged in its first line, which "
                    "identifies the search; remove the file, or choose another name"
                )
            words = difference(header["fingerprint"], asked)
            if words:
                raise CheckpointError(
                    f"checkpoint={str(self._path)!r} belongs to another search: it differs in "
                    f"{'; '.join(words)}. Call the search as before to continue it, or choose "
                    "another file to start anew"
                )
            damaged = []
            for place, record in lines:
                if record is None:
                    damaged.append(place)
                elif isinstance(record, dict) and isinstance(record.get("unit"), str):
                    self._places[record["unit"]] = place
                else:
                    raise self._forged(place)
        if damaged:
            more = f" and {len(damaged) - 1} more places" if len(damaged) > 1 else ""
            warn(
                f"checkpoint={str(self._path)!r} is damaged at byte {damaged[0]}{more}: what was "
                "written there is evaluated again"
            )
        self.found = len(self._places)

    def find(self, unit: Unit, folds_of: Callable[[int], int | None]) -> list[Outcome] | None:
        """The outcomes of a unit, if it was finished before; candidates have so many folds."""

        def read(outcomes: list[Outcome]) -> list[Outcome]:
            check_outcomes(outcomes, unit, folds_of)
            return outcomes

        return self.find_record(unit_key(unit), read)

    def find_record(self, key: str, read: Callable[[list[Json]], Result]) -> Result | None:
        """What was written under a key, as it is read; whatever that raises, it was forged."""
        place = self._places.get(key)
        if place is None:
            return None
        # Read again, and not kept: the outcomes of all units may be many.
        with self._path.open("rb") as reader:
            reader.seek(place)
            line = reader.readline()
        try:
            return read([decoded(outcome) for outcome in _parsed(line)["outcomes"]])
        except Exception as error:
            raise self._forged(place) from error

    def append(self, unit: Unit, outcomes: Sequence[Outcome]) -> None:
        """Write a finished unit; one whose failure ends the search is not."""
        if not self._keeps_failures and any(outcome.failures for outcome in outcomes):
            return
        self.append_record(unit_key(unit), outcomes)

    def append_record(self, key: str, outcomes: Sequence[object]) -> None:
        """Write plain data, arrays or outcomes under a key."""
        self._write(b"", {"unit": key, "outcomes": [encoded(o) for o in outcomes]})

    def notes(self) -> PassNotes:
        """Where units that take several passes over a source keep the finished ones."""
        return _WrittenNotes(self)

    def _write(self, prefix: bytes, record: object) -> None:
        """Add a line, which is on disk or, after an error, as if it had never begun."""
        text = json.dumps(record, separators=(",", ":")).encode()
        line = memoryview(prefix + b"%08x " % zlib.crc32(text) + text + b"\n")
        place = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            # An incomplete last line would spoil the line after it.
            with suppress(OSError):
                self._file.truncate(place)
            words = f"checkpoint={str(self._path)!r} cannot be written ({error.strerror or error})"
            raise OSError(
                error.errno,
                f"{words}; finished candidates are kept: free some space and repeat the call",
            ) from error

    def _lines(self, reader: BufferedReader) -> Iterator[tuple[int, Json]]:
        """Where each record begins, and what it says, None if that is damaged; drops a torn end."""
        start = reader.read(len(_MAGIC))
        if not _MAGIC.startswith(start):  # a shorter start is a header that was torn
            raise CheckpointError(
                f"checkpoint={str(self._path)!r} was written by another version of everyfold; "
                "choose another file to start anew"
                if start.startswith(_NAME)
                else f"checkpoint={str(self._path)!r} exists and is not a checkpoint; choose the "
                "name of a file that does not exist"
            )
        reader.seek(0)
        place, waiting = 0, None
        while line := reader.readline():
            if waiting is not None:
                yield waiting
            try:
                record = _parsed(line.removeprefix(_MAGIC) if place == 0 else line)
            except _Damage:
                record = None
            except (ValueError, RecursionError):
                raise self._forged(place) from None
            waiting = place, record
            if not line.endswith(b"\n"):  # the process died while it wrote this
                waiting = place, None
            place += len(line)
        if waiting is None:
            return
        if waiting[1] is None:
            self._file.truncate(waiting[0])
        else:
            yield waiting

    def _forged(self, place: int) -> CheckpointError:
        return CheckpointError(
            f"checkpoint={str(self._path)!r} has something at byte {place} that this search has "
            "not written; remove the file, or choose another name"
        )


@dataclass(frozen=True)
class _WrittenNotes(PassNotes):
    """Writes what every pass of a unit found into a checkpoint."""

    journal: Checkpoint
    key: str = ""

    def of_unit(self, key: str) -> PassNotes:
        """See base class."""
        return replace(self, key=key)

    def kept(self, number: int, work: Callable[[], list[list[Array]]]) -> list[list[Array]]:
        """See base class."""
        key = f"{self.key} pass {number}"
        found = self.journal.find_record(key, _arrays)
        if found is None:
            found = work()
            self.journal.append_record(key, found)
        return found

    def __reduce__(self) -> tuple[type[PassNotes], tuple[()]]:
        return PassNotes, ()


def _arrays(found: list[Json]) -> list[list[Array]]:
    """Lists of arrays of finite numbers, or an error."""
    for item in found:
        for array in item:
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError("these are not the sums of a pass")
    return found


@contextmanager
def opened(
    path: str | os.PathLike[str] | None, request: Request, data: Data
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a search, locked as long as it is open; None if there is no path.

    What is drawn anew in every call is refused: no call would go on with the outcomes of another.
    """
    if path is None:
        yield None
        return
    check_folds_repeat(request.cv)
    options = request.options
    if options.random_state is None and options.seeds.are_drawn:
        raise CheckpointError(
            "random_state=None draws different landmarks in every call, so that a checkpoint "
            "cannot be continued; pass an integer, such as random_state=0"
        )
    keeps_failures = options.error_score != "raise"
    with opened_file(path, fingerprint(request, data), keeps_failures=keeps_failures) as journal:
        yield journal


@contextmanager
def opened_file(
    path: str | os.PathLike[str], asked: Fingerprint, *, keeps_failures: bool = True
) -> Iterator[Checkpoint]:
    """The checkpoint of whatever has this fingerprint, locked as long as it is open.

    The lock is the operating system's and goes with the process, however that ends.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CheckpointError(
            f"checkpoint={str(path)!r} is not a regular file; choose another name"
        )
    if not path.parent.is_dir():
        raise CheckpointError(
            f"checkpoint={str(path)!r}: there is no folder {str(path.parent)!r}; create it first"
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    # Unbuffered: after an error (a full disk) nothing is left to be written later.
    with FileIO(descriptor, "r+b") as file:
        try:
            lock(file)
        except BlockingIOError as error:
            raise CheckpointError(
                f"checkpoint={str(path)!r} is in use by another search; wait until it ends, or "
                "choose another file"
            ) from error
        journal = Checkpoint(path, file, keeps_failures=keeps_failures)
        journal.start(asked)
        yield journal


def check_folds_repeat(cv: Splitter) -> None:
    """Refuse a splitter that draws other folds in every call."""
    if getattr(cv, "random_state", 0) is None and getattr(cv, "shuffle", True):
        raise CheckpointError(
            f"cv={cv!r} draws different folds in every call, so that a checkpoint cannot be "
            "continued; give it a random_state"
        )


class _Damage(Exception):
    """A line that is not as it was written."""


def _parsed(line: bytes) -> Json:
    """What a line says; _Damage if its checksum is wrong, other errors if it is no JSON."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise _Damage
    return json.loads(text)


def _is_header(header: Json) -> bool:
    parts = header.get("fingerprint") if isinstance(header, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        return False
    return all(isinstance(own, str) for part in parts.values() for own in part.values())


# -- What a search is known by in another process: digests of data, folds, candidates and options -


# Of every part of a search, what belongs to it by name: a digest, or a version.
Fingerprint = dict[str, dict[str, str]]

_PACKAGES = ("everyfold", "numpy", "scipy", "scikit-learn", "numba")
# The names of options that users know by others.
_PUBLIC = {
    "train_scores": "return_train_score",
    "keeps": "keep_predictions",
    "pools": "pooled",
    "selects_by": "refit",
}


def fingerprint(request: Request, data: Data) -> Fingerprint:
    """What the outcomes of a search depend on.

    ``n_jobs``, ``verbose`` and whether the best is refitted are no part of it.

    **Cost**: one reading of all rows and folds.
    """
    X, metadata = request.X, request.metadata
    more = {**metadata.split, **metadata.score, **metadata.fit}
    asked = {f.name: getattr(request.options, f.name) for f in fields(request.options)}
    asked |= {f.name: getattr(request.wants, f.name) for f in fields(request.wants)}
    asked |= {own: asked.pop(name) for name, own in _PUBLIC.items()}
    asked |= {"scoring": request.scorer, "refit": asked["refit"] or True}
    del asked["n_jobs"]
    rows = (type(X), X.identity()) if request.is_source else X
    parts: dict[str, Params] = {
        "data": {"X": rows, "y": request.y, **more},
        "folds": {"cv": data.folding},
        "candidates": {"estimator": request.estimator, "parameters": list(request.candidates)},
        "options": asked,
    }
    return fingerprint_of(parts)


def fingerprint_of(parts: Mapping[str, Mapping[str, object]]) -> Fingerprint:
    """The digests of what belongs to every part of a search, and the versions of the packages."""
    digests = Digests()
    found = {
        part: {name: digests.of(value, name) for name, value in values.items() if value is not None}
        for part, values in parts.items()
    }
    code = digests.code()
    others = {name: own for name, own in digests.packages.items() if name != "sklearn"}
    return {**found, "code": code, "versions": {**others, **versions()}}


def difference(one: Fingerprint, other: Fingerprint) -> list[str]:
    """The parts that differ, and in brackets what of them does.

    Code that only one of them has is named if nothing else differs. Another version of Python
    compiles all code to something else.
    """
    pythons = [each.get("versions", {}).get("python") for each in (one, other)]
    words, alone = [], []
    for part in dict.fromkeys([*one, *other]):
        a, b = one.get(part, {}), other.get(part, {})
        names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
        if part in ("code", "versions"):
            alone += [name for name in names if (name in a) != (name in b)]
            names = [name for name in names if name not in alone]
        if part == "versions":
            names = [f"{name} {a[name]}, now {b[name]}" for name in names]
        if part == "code":
            if pythons[0] != pythons[1]:
                continue
            # A module is not named beside something in it that has changed.
            modules = {f"the module `{name.rpartition(' of module ')[2]}`" for name in names}
            names = [f"{name} has changed since" for name in names if name not in modules]
        if names:
            words.append(f"{part} ({', '.join(names)})")
    return words or ([f"code ({', '.join(alone)})"] if alone else [])


def unit_key(unit: Unit) -> str:
    """What the outcomes of a unit depend on, besides the search; not what it costs."""
    groups = [
        (g.numbers, g.method.criterion, g.method.fallback, g.method.words)
        for kernel in unit.groups
        for g in kernel
    ]
    shape = [len(kernel) for kernel in unit.groups]
    how = unit.structure, unit.shared, unit.order, unit.pilot, unit.landmarks, unit.drawn
    return Digests().of((groups, shape, unit.folds, *how))


def versions() -> dict[str, str]:
    """Of Python and the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


# -- Outcomes as JSON and back, with every bit of their numbers ------------------------------------


# What json reads: dictionaries, lists, texts, numbers and None.
Json: TypeAlias = Any

_RECORDS: dict[str, type] = {"Outcome": Outcome, "FoldScores": FoldScores}


def encoded(value: Json) -> Json:
    """Plain data, every number with all its bits."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__name__ in _RECORDS:
        own = {f.name: encoded(getattr(value, f.name)) for f in fields(value) if f.init}
        return {type(value).__name__: own}
    # Only the message of an error is stored: unpickling the error itself would run code.
    if isinstance(value, Failure):
        return {"Failure": [f"{type(value.error).__name__}: {value.error}", value.trace]}
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        packed = base64.b64encode(zlib.compress(value.tobytes(), 1)).decode()
        return {"array": [value.dtype.str, list(value.shape), packed]}
    if isinstance(value, dict):
        return {"dict": [[encoded(k), encoded(v)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [encoded(item) for item in value]}
    return float(value) if isinstance(value, Real) else str(value)


def decoded(value: Json) -> Json:
    """What was encoded; any error if nothing was."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in _RECORDS:
        return _RECORDS[kind](**{name: decoded(item) for name, item in content.items()})
    if kind == "Failure":
        words, trace = content
        return Failure(RuntimeError(words), trace)
    if kind == "array":
        name, shape, packed = content
        dtype = np.dtype(name)
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        # No more is unpacked than the array has, whatever somebody else wrote.
        raw = zlib.decompressobj().decompress(base64.b64decode(packed), max(size, 1))
        found = np.frombuffer(bytearray(raw), dtype).reshape(shape)
        return found if shape else found[()]  # a number has no shape
    if kind == "dict":
        return {decoded(k): decoded(v) for k, v in content}
    return {"list": list, "tuple": tuple}[kind](decoded(item) for item in content)


def check_outcomes(
    outcomes: Sequence[object], unit: Unit, folds_of: Callable[[int], int | None]
) -> None:
    """Raise ValueError unless these can be the outcomes of a unit.

    ``folds_of`` says how many folds a candidate has, None where only a pass over rows shows it.
    """
    found = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    if len(found) < len(outcomes) or sorted(o.number for o in found) != sorted(unit.numbers):
        raise ValueError("these are not the outcomes of the candidates")
    for outcome in found:
        for name, hint in _hints(Outcome).items():
            if not _is_of(getattr(outcome, name), hint):
                raise ValueError(f"{name} is of another type")
        count = len(unit.folds) if unit.folds is not None else folds_of(outcome.number)
        if unit.pilot or count is None:
            count = len(outcome.folds)
        # There is one of everything for every fold.
        own = outcome.folds, outcome.scores, outcome.is_exact, outcome.condition, outcome.radius
        some = [each for each in (outcome.train_scores, outcome.times) if each is not None]
        if outcome.folds.ndim != 1 or any(len(each) != count for each in (*own, *some)):
            raise ValueError(f"these are not the outcomes of {count} folds")
        for scores in (outcome.scores, outcome.train_scores):
            if isinstance(scores, FoldScores):
                columns = *scores.columns.values(), scores.is_known
                if any(column is not None and column.shape != (count,) for column in columns):
                    raise ValueError(f"these are not the scores of {count} folds")


@cache
def _hints(record: type) -> dict[str, Json]:
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record) if field.init}


def _is_of(value: Json, hint: Json) -> bool:
    """Whether a value is what an annotation says, as far as outcomes have such."""
    origin: Json = get_origin(hint)
    inner: Json = get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in inner)
    if origin is np.ndarray:
        (number,) = get_args(inner[1])
        is_known = isinstance(number, type)
        return isinstance(value, np.ndarray) and (
            not is_known or np.issubdtype(value.dtype, number)
        )
    if isinstance(value, FoldScores):
        return origin is Sequence and all(
            _is_of(getattr(value, name), own) for name, own in _hints(FoldScores).items()
        )
    if origin is tuple:
        return (
            isinstance(value, tuple) and len(value) == len(inner) and all(map(_is_of, value, inner))
        )
    if origin in (Sequence, list):
        return isinstance(value, list) and all(_is_of(item, inner[0]) for item in value)
    if origin in (Mapping, dict):
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(_is_of(k, inner[0]) and _is_of(v, inner[1]) for k, v in pairs)
    return _is_plain(value, hint)


def _is_plain(value: Json, hint: Json) -> bool:
    if hint is Score:
        scores = value.values() if isinstance(value, dict) else [value]
        return all(_is_plain(score, float) for score in scores if score is not None)
    if hint in (None, NoneType):
        return value is None
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint in (int, float):
        is_number = isinstance(value, int | np.integer) or (
            hint is float and isinstance(value, float | np.floating)
        )
        return is_number and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)
