"""Rows in batches, each with the sets of rows that are left out together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.rows.telling import told
from everyfold.types import Array, Index, Matrix

NEVER = -1
"""The set of rows that no fold holds out."""

TOTAL = -2
"""The set of all rows, where sets overlap."""

BLOCK_BYTES = 32_000_000
"""Of what is summed of a batch: one number for each of its rows and columns."""

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
    for start in told(range(0, n, height)):
        part = slice(start, min(n, start + height))
        weight = None if w is None else w[part]
        if not is_disjoint:
            yield Batch(X[part], z[part], weight, _overlapping(ascending, part))
            continue
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
