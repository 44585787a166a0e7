"""Equal rows: one model predicts the same for them, to the last bit.

Held-out values that come from one fit of all rows are rounded row by row. Equal rows, which are
common if features are categories or counts, would then differ in the last bit, and scores that
compare values (the area under the ROC curve, rank correlations) would see an order where a refit
has a tie.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import sparse

from everyfold._typing import AnyArray, Index, Matrix
from everyfold.engine.execution.kernel_builder import rows_of
from everyfold.engine.records import Candidate, Data
from everyfold.folds import Folds

_Hashes = npt.NDArray[np.uint64]

# Numbers that are hashed or compared at a time.
_BLOCK = 1 << 20

# An odd constant and half the bits of a word: a product mixes bits upwards, a shift downwards.
_MIX, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def first_duplicate(X: Matrix) -> Index:
    """The number of the first row that is equal, for every row.

    **Cost** some operations per number, and one sort of n hashes. Rows that are no numbers are
    taken to be different.

    Examples
    --------
    >>> first_duplicate(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])).tolist()
    [0, 1, 0]
    """
    every = np.arange(X.shape[0])
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
    elif not (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "fiub"):
        return every
    hashes = _hashes_of_sparse(X) if is_sparse else _hashes_of_dense(X)
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    firsts: Index = first[inverse]
    for rows in _blocks(np.flatnonzero(firsts != every), X.shape[1]):
        is_other = _differ(X[rows], X[firsts[rows]])
        firsts[rows[is_other]] = rows[is_other]  # hashes that are equal by chance
    return firsts


def _blocks(rows: Index, width: int) -> Iterator[Index]:
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _mixed(words: _Hashes) -> _Hashes:
    words = words * _MIX
    words ^= words >> _HALF
    return words


def _hashes(values: AnyArray, columns: Index) -> _Hashes:
    """A hash of each value in its column; 0 for the value 0, so that zeros need not be stored."""
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 is 0.0
    own = _mixed(columns.astype(np.uint64) + np.uint64(1)) | np.uint64(1)
    return _mixed(_mixed(bits) * own)


def _hashes_of_dense(X: AnyArray) -> _Hashes:
    columns, found = np.arange(X.shape[1]), np.empty(len(X), dtype=np.uint64)
    for rows in _blocks(np.arange(len(X)), X.shape[1]):
        found[rows] = np.add.reduce(_hashes(X[rows], columns), axis=1)
    return found


def _hashes_of_sparse(X: Matrix) -> _Hashes:
    starts = X.indptr[:-1]
    has_any, found = starts < X.indptr[1:], np.zeros(X.shape[0], dtype=np.uint64)
    if has_any.any():
        found[has_any] = np.add.reduceat(_hashes(X.data, X.indices), starts[has_any])
    return found


def _differ(A: Matrix, B: Matrix) -> AnyArray:
    """Which rows of two matrices are different."""
    unequal = A != B
    return np.asarray(unequal.sum(axis=1)).ravel() > 0


def duplicate_positions(data: Data, candidate: Candidate, folds: Folds) -> Index | None:
    """For every held-out value the place of the first that is the same; None if all differ."""
    key = "firsts", candidate.rows_key
    kept = data.cache.get(key)
    if kept is None:
        kept = (first_duplicate(rows_of(data, candidate)),)
        data.cache.put(key, *kept)
    firsts: Index = kept[0]
    if (firsts == np.arange(len(firsts))).all():
        return None
    fold = np.repeat(np.arange(len(folds)), np.diff(folds.bounds))
    labels = fold * len(firsts) + firsts[folds.test_rows]
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(first[inverse])
