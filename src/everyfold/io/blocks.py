"""Blocks of rows, the checks of what a storage gives, and batches with the folds of their rows.

A `Piece` is what a storage gives, unchecked; a `Block` is the same checked and in float64; a
`Batch` has its rows sorted by fold, ready to be added up.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from everyfold._progress import tracked
from everyfold._typing import AnyArray, Array, Index, Label, Matrix, Targets

# The set of rows that no fold holds out.
NEVER = -1

# The set of all rows, where sets overlap.
TOTAL = -2

# Of what is summed of a batch: one number for each of its rows and columns. Larger batches make the
# products of matrices a little faster; every thread holds one.
BLOCK_BYTES = 32_000_000

# Rows that are read at a time at most, however few columns they have.
MOST_ROWS = 65_536


@dataclass(frozen=True)
class Batch:
    """Some rows, what they are fitted to, and which of them belong to which set.

    Attributes
    ----------
    X : array or CSR matrix of shape (m, d)
    z : array of shape (m, q)
    w : array of shape (m,) or None
        Weights; None if all are 1.
    sets : list of (number, rows)
        The folds that hold rows of the batch out, each with a slice or the positions of its rows;
        ``TOTAL``, where there is one, comes last.
    """

    X: Matrix
    z: Array
    w: Array | None
    sets: list[tuple[int, slice | Index]]

    def seen_by(self, fold: int) -> Batch:
        """The same batch as one fold sees it: rows of other folds are held out by none."""
        sets = [(number if number == fold else NEVER, rows) for number, rows in self.sets]
        return Batch(self.X, self.z, self.w, sets)


def height_of(width: int) -> int:
    """How many rows to take at a time where so many numbers are summed of each."""
    return max(256, BLOCK_BYTES // (8 * max(1, width)))


def rows_at_a_time(n_features: int) -> int:
    """How many rows to read at a time where nothing but themselves is held."""
    return min(MOST_ROWS, height_of(n_features))


def by_fold(numbers: Index) -> tuple[Index | None, list[tuple[int, slice | Index]]]:
    """An order that puts the rows of a fold together, None if they are, and where each begins."""
    order = None
    if len(numbers) > 1 and (np.diff(numbers) < 0).any():
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    ends = [*starts[1:].tolist(), len(numbers)]
    return order, [
        (int(numbers[i]), slice(i, j)) for i, j in zip(starts.tolist(), ends, strict=True)
    ]


def array_batches(
    X: Matrix, z: Array, w: Array | None, sets: Sequence[Index], height: int
) -> Iterator[Batch]:
    """Batches of rows in memory: slices, in the order of the rows; CSR stays CSR.

    Rows of sets that overlap belong to each of them, and to ``TOTAL``.
    """
    n = len(z)
    fold = np.full(n, NEVER, dtype=np.intp)
    for k, rows in enumerate(sets):
        fold[rows] = k
    is_disjoint = sum(len(rows) for rows in sets) == np.count_nonzero(fold >= 0)
    ascending = () if is_disjoint else [np.sort(rows) for rows in sets]
    for start in tracked(range(0, n, height)):
        part = slice(start, min(n, start + height))
        weight = None if w is None else w[part]
        if not is_disjoint:  # no order puts the rows of every set together: positions instead
            yield Batch(X[part], z[part], weight, _overlapping(ascending, part))
            continue
        # Rows of a fold that are together need no copy; others are sorted once.
        order, found = by_fold(fold[part])
        if order is None:
            yield Batch(X[part], z[part], weight, found)
        else:
            rows = start + order
            yield Batch(X[rows], z[rows], None if w is None else w[rows], found)


def _overlapping(sets: Sequence[Index], part: slice) -> list[tuple[int, slice | Index]]:
    found: list[tuple[int, slice | Index]] = []
    for k, rows in enumerate(sets):
        first, last = np.searchsorted(rows, (part.start, part.stop))
        if last > first:
            found.append((k, rows[first:last] - part.start))
    return [*found, (TOTAL, slice(0, part.stop - part.start))]


# -- Rows as a storage gives them, rows as everything else gets them, and the checks between ------


class StreamError(ValueError):
    """A source cannot be read, or does not give the same rows again.

    ``row`` is the number of the wrong row, if a single row is wrong.
    """

    def __init__(self, words: str, row: int | None = None) -> None:
        super().__init__(words)
        self.row = row


class NoMemoryError(StreamError, MemoryError):
    """A part of a source does not fit into memory."""


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a source. Its arrays may be views of the source: do not modify them.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Finite numbers in float64, C-contiguous.
    y : ndarray of shape (m,) or (m, q)
        Numbers in float64, or labels (one-dimensional: strings, objects or integers) as read.
    sample_weight : ndarray of shape (m,), optional
        At least 0.
    fold : ndarray of shape (m,), optional
        Fold numbers from 0.
    start : int
        The number of the first row.
    """

    X: AnyArray
    y: AnyArray
    sample_weight: AnyArray | None = None
    fold: AnyArray | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.X)

    def copy(self) -> Block:
        """The same in arrays of its own, which no reader writes to."""
        weight, fold = (v if v is None else v.copy() for v in (self.sample_weight, self.fold))
        return Block(self.X.copy(), self.y.copy(), weight, fold, self.start)

    def part(self, start: int, stop: int) -> Block:
        """The block's rows from ``start`` to before ``stop``, as views."""
        weight, fold = (v if v is None else v[start:stop] for v in (self.sample_weight, self.fold))
        return Block(self.X[start:stop], self.y[start:stop], weight, fold, self.start + start)


@dataclass(frozen=True, eq=False)
class Piece:
    """What a storage gives at a time, unchecked; the parts are those of a `Block`."""

    X: Matrix
    y: Targets
    sample_weight: Targets = None
    fold: Targets = None


def check(piece: Piece, start: int, n_features: int, names: tuple[str, ...] | None) -> Block:
    """A piece as a block, if nothing is wrong with it."""
    shape = np.shape(piece.X)
    rows = range(start, start + (shape[0] if shape else 0))
    found = column_names(piece.X)
    if names is not None and found is not None and found != names:
        raise StreamError(
            f"{span(rows)}: the columns of X are {listed(found)} instead of {listed(names)}; "
            "give them in the same order"
        )
    X = features(piece.X, n_features, rows)
    check_lengths(piece, rows)
    y = _target(np.asarray(piece.y), rows)
    weight = None if piece.sample_weight is None else _weights(piece.sample_weight, rows)
    fold = None if piece.fold is None else _folds(piece.fold, rows)
    return Block(X, y, weight, fold, start)


def check_lengths(piece: Piece, rows: range) -> None:
    """Refuse parts that have not as many rows as X."""
    for name in ("y", "sample_weight", "fold"):
        part = getattr(piece, name)
        if part is None and name != "y":
            continue
        shape = np.shape(part)
        if not shape or shape[0] != len(rows) or len(shape) > (2 if name == "y" else 1):
            raise StreamError(
                f"{span(rows)}: X has {len(rows)} rows, but {name} has shape {shape}; give "
                f"{name} an entry for every row of X"
            )


def features(X: Matrix, n_features: int, rows: Sequence[int] | AnyArray) -> AnyArray:
    """X dense, finite, in float64 and C order; a view where it is all that already.

    Parameters
    ----------
    X : array, sparse matrix or data frame
    n_features : int
    rows : sequence of int
        The numbers of the rows, for messages.
    """
    shape = np.shape(X)
    if len(shape) != 2 or shape[1] != n_features:
        raise StreamError(
            f"{span(rows)}: X has shape {shape}, but the source has {n_features} features; give "
            f"X two axes, (rows, {n_features})"
        )
    is_sparse: bool = sparse.issparse(X)
    dense = _floats(X.toarray() if is_sparse else np.asarray(X), "X", rows)
    _check_finite(dense, "X", rows)
    return dense


def _target(y: AnyArray, rows: range) -> AnyArray:
    if y.dtype.kind == "f" or (y.ndim == 2 and y.dtype.kind in "biu"):
        y = _floats(y, "y", rows)
        _check_finite(y, "y", rows)
    elif y.dtype.kind not in "biuOUS" or y.ndim != 1:
        raise StreamError(
            f"{span(rows)}: y has type {y.dtype} and shape {y.shape}; it must be numbers, or "
            "one-dimensional labels"
        )
    elif y.dtype.kind == "O":  # only objects can be None, NA or NaN beside labels
        missing = [i for i, label in enumerate(y) if _is_missing(label)]
        if missing:
            row = rows[missing[0]]
            raise StreamError(f"row {row}: y has no label; leave such rows out", row)
    return y


def _is_missing(label: Label) -> bool:
    # NaN alone is unequal to itself; NA of pandas, which need not be installed, refuses to compare.
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def _weights(sample_weight: Targets, rows: range) -> AnyArray:
    weights = _floats(np.asarray(sample_weight), "sample_weight", rows)
    _check_finite(weights, "sample_weight", rows)
    if weights.min(initial=0.0) < 0.0:
        i = int(np.argmax(weights < 0.0))
        words = f"row {rows[i]}: sample_weight is {weights[i]}; it must be at least 0"
        raise StreamError(words, rows[i])
    return weights


def _folds(fold: Targets, rows: range) -> AnyArray:
    numbers = _floats(np.asarray(fold), "fold", rows)
    is_bad = ~((numbers >= 0.0) & (numbers == np.floor(numbers)) & (numbers < 2.0**53))
    if is_bad.any():
        i = int(np.argmax(is_bad))
        raise StreamError(
            f"row {rows[i]}: fold is {numbers[i]}; it must be a whole number of at least 0", rows[i]
        )
    return numbers.astype(np.intp)


def _floats(values: AnyArray, name: str, rows: Sequence[int] | AnyArray) -> AnyArray:
    try:
        if values.dtype.kind not in "biufO":
            raise TypeError(f"type {values.dtype}")
        floats: AnyArray = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise StreamError(
            f"{span(rows)}: {name} is not numeric ({error}); encode it as numbers first"
        ) from error
    return floats


def _check_finite(values: AnyArray, name: str, rows: Sequence[int] | AnyArray) -> None:
    # A sum is finite only if its terms are; it needs no memory, and is nearly always enough.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        i, *j = (int(k) for k in wrong[0])
        where = f" in column {j[0]}" if j else ""
        raise StreamError(
            f"row {rows[i]}: {name} is {values[tuple(wrong[0])]}{where}; fill in such values or "
            "leave such rows out",
            int(rows[i]),
        )


def column_names(X: Matrix) -> tuple[str, ...] | None:
    """The names of a data frame's columns, if they are strings."""
    columns = tuple(getattr(X, "columns", ()))
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def form(block: Block) -> str:
    """What a block has besides its rows."""
    kinds = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "truth values"}
    y = (
        f"{block.y.shape[1]} columns"
        if block.y.ndim == 2
        else kinds.get(block.y.dtype.kind, "labels")
    )
    others = [name for name in ("sample_weight", "fold") if getattr(block, name) is not None]
    return " and ".join([f"y of {y}", *others])


def span(rows: Sequence[int] | AnyArray) -> str:
    """Which rows, in words."""
    return f"rows {rows[0]} to {rows[-1]}" if len(rows) else "a piece without rows"


def listed(names: Sequence[str]) -> str:
    """The first of some names."""
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown}, …"


def positive(value: SupportsIndex | None, name: str) -> int:
    """A whole number above 0."""
    try:
        number = 0 if value is None else operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise StreamError(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def row_numbers(rows: ArrayLike, n_rows: int | None) -> AnyArray:
    """Check that numbers of rows are whole and within the source."""
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise StreamError(
            f"rows must be one-dimensional and whole numbers, got shape {numbers.shape} and type "
            f"{numbers.dtype}; of a mask, give np.flatnonzero(mask)"
        )
    numbers = numbers.astype(np.intp)
    if numbers.min(initial=0) < 0 or (n_rows is not None and numbers.max(initial=0) >= n_rows):
        last = "on" if n_rows is None else f"to {n_rows - 1}"
        raise StreamError(
            f"rows must be numbers from 0 {last}, got {numbers.min()} to {numbers.max()}"
        )
    return numbers
