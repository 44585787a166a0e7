"""What ``fit`` was given: names that a report shows, and what tells other rows from the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy import sparse

from everyfold._typing import AnyArray, Matrix, Params, Targets
from everyfold.io import RowSource
from everyfold.io.base import is_lazy

# Numbers that are copied at a time.
_BLOCK = 2**22
# Bytes up to which the rows themselves stay at hand: a search is repeated on them in seconds.
MOST_BYTES = 20_000_000
# Kinds of arrays that are known by their numbers.
_NUMBERS = "biuf"
# Types of objects that are known by their words.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


@dataclass(frozen=True)
class DataHash:
    """A digest of values, one a row or several, that does not depend on what holds them.

    Attributes
    ----------
    shape : tuple of int
        Without a last axis of length 1.
    kind : str
        What is comparable: "numbers", "sparse", "words", "frame"; "objects" is not.
    digest : str
        Of numbers as float32, so that a copy in single precision is the same.
    """

    shape: tuple[int, ...]
    kind: str
    digest: str = ""

    @classmethod
    def of(cls, values: Any) -> DataHash:
        """The contents of an array, a list, a sparse matrix or a data frame.

        **Cost** one reading of the values.
        """
        is_sparse: bool = sparse.issparse(values)
        if is_sparse:
            return cls(_short(values.shape), "sparse", _digest(_sparse_parts(values)))
        if hasattr(values, "columns") and hasattr(values, "dtypes"):
            columns = [np.asarray(values[name]) for name in values.columns]
            if not all(column.dtype.kind in _NUMBERS for column in columns):
                parts = (cls._of_array(column).digest.encode() for column in columns)
                return cls(_short(values.shape), "frame", _digest(parts))
        try:
            array = np.asarray(values)
        except ValueError:  # a list of objects of different lengths
            return cls((len(values),), "objects")
        return cls._of_array(array)

    @classmethod
    def _of_array(cls, array: AnyArray) -> DataHash:
        if array.dtype.kind in _NUMBERS:
            return cls(_short(array.shape), "numbers", _digest(_blocks(array)))
        flat = array.ravel().tolist()
        if not set(map(type, flat)) <= _PLAIN:
            return cls(array.shape[:1], "objects")
        return cls(_short(array.shape), "words", _digest(["\0".join(map(str, flat)).encode()]))

    def difference(self, other: DataHash) -> str:
        """In words, by what others are known to differ from these; empty if by nothing."""
        if self.kind == "objects" or other.kind == "objects":
            is_other = self.shape[:1] != other.shape[:1]
        else:
            is_other = self.shape != other.shape
        if is_other:
            return f"shape {other.shape}, not {self.shape}"
        is_other = self.kind == other.kind and self.digest != other.digest
        return "other values" if is_other else ""


def _short(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1] if len(shape) > 1 and shape[-1] == 1 else tuple(shape)


def _sparse_parts(values: Matrix) -> Iterator[bytes]:
    rows = values.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    yield rows.indptr.astype(np.int64).tobytes()
    yield rows.indices.astype(np.int64).tobytes()
    yield from _blocks(rows.data)


def _blocks(array: AnyArray) -> Iterator[bytes]:
    """The numbers in order, as bytes of float32 without negative zeros."""
    array = np.atleast_1d(array)
    step = max(1, _BLOCK // max(1, array[:1].size))
    with np.errstate(over="ignore"):
        for k in range(0, len(array), step):
            yield (array[k : k + step].astype(np.float32) + np.float32(0.0)).tobytes()


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    hasher = blake2b(digest_size=16)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


@dataclass(frozen=True)
class FitInputs:
    """What ``fit`` was called with.

    Attributes
    ----------
    ids : array or None
        Names of the rows: the index of a data frame.
    names : sequence of str
        Of the metadata.
    is_source : bool
    contents : dict or None
        Of the rows, targets and metadata by name; None of a source, whose rows are not all here.
    params : dict or None
        The metadata themselves (groups, weights, …), which honest scores and comparisons use; one
        value for each row is a copy.
    rows : tuple of X and y, or None
        The rows themselves (no copies) where they are small; they are not pickled.
    """

    ids: AnyArray | None
    names: Sequence[str]
    is_source: bool
    contents: Mapping[str, DataHash] | None = None
    params: Params | None = None
    rows: tuple[Matrix, Targets] | None = None

    def __getstate__(self) -> Params:
        return {**vars(self), "rows": None}

    @classmethod
    def of(cls, X: Matrix, y: Targets, params: Params, *, is_in_memory: bool) -> FitInputs:
        """What a report names, and what the rows are known by."""
        index: Any = getattr(X, "index", None) if hasattr(X, "iloc") else None
        if index is not None and getattr(index.dtype, "kind", "") == "M":
            index = index.astype(str)  # dates without their nanoseconds
        ids = None if index is None else np.asarray(index)
        is_source = isinstance(X, RowSource)
        known = {name: value for name, value in params.items() if value is not None}
        contents = None
        if is_in_memory:
            given = {"X": X, **({} if y is None else {"y": y}), **known}
            contents = {name: DataHash.of(value) for name, value in given.items()}
        kept = {name: _kept(value) for name, value in known.items()}
        is_small = contents is not None and 8 * getattr(X, "size", MOST_BYTES) < MOST_BYTES
        return cls(ids, list(known), is_source, contents, kept, (X, y) if is_small else None)

    @property
    def call(self) -> str:
        """The call of ``fit`` in words."""
        rows = ["source"] if self.is_source else ["X", "y"]
        return f"search.fit({', '.join([*rows, *(f'{name}={name}' for name in self.names)])})"

    def differences(self, X: Matrix, y: Targets, params: Params) -> list[str]:
        """In words, what differs from what ``fit`` was given, as far as that is known.

        Groups may be new, as outer folds may have some that the search has none of.
        """
        if self.contents is None:
            return []
        now, words = _contents({"X": X, "y": y, **params}), []
        for name, then in self.contents.items():
            other = then.difference(now[name]) if name in now else "not passed"
            words += [f"{name} ({other})"] if other else []
        new = [name for name in now if name not in self.contents and name != "groups"]
        return words + [f"{name} (not passed to fit)" for name in new]


def _kept(value: object) -> object:
    """A copy of values of rows, as the caller may change them after ``fit``; else the object."""
    is_column = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
    if is_lazy(value) or not is_column:
        return value
    try:
        return np.array(value)
    except ValueError:  # a list of objects of different lengths
        return value


def _contents(values: Params) -> dict[str, DataHash]:
    return {name: DataHash.of(value) for name, value in values.items() if value is not None}
