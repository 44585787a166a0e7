"""Kernel matrices in float32 with padded rows: parts of them, and their smallest numbers."""

from __future__ import annotations

import numpy as np

from everyfold.svm.core.compiling import HIGHEST, ZERO, Array, Pointer, compiled, entry
from everyfold.svm.core.intrinsics import minimum, onward, pointer
from everyfold.svm.core.workspace import LANES


@compiled
def submatrix(
    K: Pointer, width: int, rows: Pointer, count: int, small: Pointer, narrow: int
) -> None:
    """Copy the kernel of some rows from a matrix of one row length to a matrix of another."""
    for a in range(count):
        Ka, row = onward(K, rows[a] * width), onward(small, a * narrow)
        end = onward(row, narrow - LANES)
        for c in range(LANES):  # with all of the padding; a fixed number makes short code
            end[c] = ZERO
        for c in range(count):
            row[c] = Ka[rows[c]]


@entry
def gather(K: Array, rows: Array, small: Array) -> None:
    """Copy the kernel of some rows into a padded matrix."""
    count, narrow = rows.shape[0], small.shape[1]
    submatrix(pointer(K), K.shape[1], pointer(rows), count, pointer(small), narrow)


@entry
def smallest_magnitude(K: Array) -> float:
    """The smallest nonzero magnitude in K, to tell whether :func:`flush` has anything to do."""
    lowest, entries = HIGHEST, pointer(K)
    for k in range(K.shape[0] * K.shape[1]):
        lowest = minimum(lowest, abs(entries[k]) if entries[k] != ZERO else HIGHEST)
    return np.float64(lowest)


@entry
def flush(K: Array, tiny: float) -> None:
    """Set to zero what is below `tiny`: subnormal numbers cost ten times the arithmetic."""
    threshold, entries = np.float32(tiny), pointer(K)
    for k in range(K.shape[0] * K.shape[1]):
        entries[k] = entries[k] if abs(entries[k]) >= threshold else ZERO
