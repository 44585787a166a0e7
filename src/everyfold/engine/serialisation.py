"""Outcomes as JSON and back, with every bit of their numbers.

What is read from a checkpoint is checked against the annotations of the records, since somebody
else may have written it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

from everyfold._typing import Score
from everyfold.crossval.base import Failure
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Outcome
from everyfold.engine.scoring.fold_scorers import FoldScores

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
