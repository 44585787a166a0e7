"""What a search is known by in another process: digests of data, folds, candidates and options."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from everyfold.evaluate.data import Data
from everyfold.evaluate.request import Request
from everyfold.evaluate.tiles import Unit
from everyfold.types import AnyArray, Matrix, Params

Fingerprint = dict[str, dict[str, str]]
"""Of every part of a search, what belongs to it by name: a digest, or a version."""

_PACKAGES = ("everyfold", "numpy", "scipy", "scikit-learn", "numba")
_PUBLIC = {
    "asked": "order",
    "train_scores": "return_train_score",
    "keeps": "keep_predictions",
    "pools": "pooled",
    "selects_by": "refit",
}
"""The names of options that users know by others."""


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
    rows = X.identity() if request.is_source else X
    parts: dict[str, Params] = {
        "data": {"X": rows, "y": request.y, **more},
        "folds": {"cv": _folds(data)},
        "candidates": {"estimator": request.estimator, "parameters": list(request.candidates)},
        "options": asked,
    }
    return fingerprint_of(parts)


def fingerprint_of(parts: Mapping[str, Mapping[str, object]]) -> Fingerprint:
    """The digests of what belongs to every part of a search, and the versions of the packages."""
    found = {part: _digests(values) for part, values in parts.items()}
    return {**found, "versions": versions()}


def difference(one: Fingerprint, other: Fingerprint) -> list[str]:
    """The parts that differ, and in brackets what of them does."""
    words = []
    for part in dict.fromkeys([*one, *other]):
        a, b = one.get(part, {}), other.get(part, {})
        names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
        if part == "versions":
            names = [f"{name} {a.get(name)}, now {b.get(name)}" for name in names]
        if names:
            words.append(f"{part} ({', '.join(names)})")
    return words


def unit_key(unit: Unit) -> str:
    """What the outcomes of a unit depend on, besides the search; not what it costs."""
    groups = [
        (g.numbers, g.method.criterion, g.method.fallback, g.method.words)
        for kernel in unit.groups
        for g in kernel
    ]
    shape = [len(kernel) for kernel in unit.groups]
    how = unit.structure, unit.shared, unit.order, unit.look, unit.landmarks, unit.drawn
    return digest((groups, shape, unit.folds, *how))


def digest(value: object) -> str:
    """Equal for values that mean the same, in this process and in others.

    Examples
    --------
    >>> digest({"a": [1, 2.0]}) == digest({"a": [1, 2.0]}) != digest({"a": [1, 3.0]})
    True
    """
    hasher = blake2b(digest_size=16)
    try:
        _feed(hasher, value)
    except Exception as error:
        raise ValueError(
            f"a journal cannot recognise this {type(value).__name__} again in another process "
            f"({error}); leave journal out, or pass functions and objects that can be pickled"
        ) from error
    return hasher.hexdigest()


def _digests(values: Mapping[str, object]) -> dict[str, str]:
    return {name: digest(value) for name, value in values.items() if value is not None}


def versions() -> dict[str, str]:
    """Of Python and the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _folds(data: Data) -> object:
    """All that says which rows are fitted and predicted."""
    if data.stream is not None:
        return data.stream.rule
    if not data.tasks:
        return list(data.splits)
    return list({id(task.folds): task.folds for task in data.tasks}.values())


# -- one value of any kind -------------------------------------------------------------------------

_BLOCK = 2**24
"""Numbers of an array that is not contiguous that are copied at a time."""


def _feed(hasher: blake2b, value: Any) -> None:
    """Add a value to what is hashed: its kind, and then what it consists of."""
    kind = type(value)
    hasher.update(f"{kind.__module__}.{kind.__qualname__}:".encode())
    if value is None or kind in (bool, int, float, complex, str, bytes):
        hasher.update(repr(value).encode())
    elif isinstance(value, np.ndarray):
        _feed_array(hasher, value)
    elif isinstance(value, Mapping):
        _feed_all(hasher, [(str(k), value[k]) for k in sorted(value, key=str)])
    elif isinstance(value, Set):
        _feed_all(hasher, sorted(digest(item) for item in value))
    elif isinstance(value, list | tuple | range):
        _feed_all(hasher, value)
    else:
        _feed(hasher, _contents(value))


def _feed_all(hasher: blake2b, items: Iterable[object]) -> None:
    found = list(items)
    hasher.update(f"{len(found)};".encode())
    for item in found:
        _feed(hasher, item)


def _feed_array(hasher: blake2b, array: AnyArray) -> None:
    hasher.update(f"{array.dtype.str}{array.shape}".encode())
    if array.dtype.hasobject:
        _feed_all(hasher, array.ravel().tolist())
    elif array.flags.c_contiguous or array.ndim < 2:
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    else:
        step = max(1, _BLOCK // max(1, array[0].size)) if len(array) else 1
        for k in range(0, len(array), step):
            block = np.ascontiguousarray(array[k : k + step])
            hasher.update(block.reshape(-1).view(np.uint8).data)


def _contents(value: Any) -> object:
    """Simpler values that a value consists of; a pickle of what is not known."""
    if isinstance(value, type | BuiltinFunctionType | np.ufunc):
        return getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, FunctionType):
        return _function(value)
    if isinstance(value, MethodType):
        return value.__func__.__qualname__, value.__self__
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=True)
    if isinstance(value, np.generic):
        return np.asarray(value)
    if sparse.issparse(value):
        table: Matrix = value
        rows = table.tocsr()
        return rows.shape, rows.data, rows.indices, rows.indptr
    if hasattr(value, "columns") and hasattr(value, "dtypes"):  # a data frame of any library
        return [(name, str(value[name].dtype), np.asarray(value[name])) for name in value.columns]
    if hasattr(value, "to_numpy"):
        return str(value.dtype), value.to_numpy()
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    state = getattr(value, "__dict__", None)
    return state if state else joblib.hash(value)


def _function(value: FunctionType) -> object:
    """A function by its name and its code, as two lambdas have the same name."""
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    return value.__module__, value.__qualname__, _code(value.__code__), value.__defaults__, cells


def _code(code: CodeType) -> object:
    constants = [_code(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.co_code, constants, code.co_names
