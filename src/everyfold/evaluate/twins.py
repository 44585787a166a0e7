"""Rows that are alike: one model says the same of them, to the last bit.

Held-out values that come from one fit of all rows are rounded row by row. Rows that are the same,
as they often are where features are categories or counts, would then differ by a last bit, and
scores that compare values (the area under the ROC curve, rank correlations) would see an order
where a refit has a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from scipy import sparse

from everyfold.evaluate.bind import rows_of
from everyfold.evaluate.data import Candidate, Data
from everyfold.rows.folds import Folds
from everyfold.types import Index, Matrix


def firsts_of(X: Matrix) -> Index:
    """The number of the first row that is the same, for every row.

    Examples
    --------
    >>> firsts_of(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])).tolist()
    [0, 1, 0]
    """
    seen: dict[bytes, int] = {}
    found = [seen.setdefault(_digest(key), i) for i, key in enumerate(_keys(X))]
    return np.array(found, dtype=np.intp)


def _digest(key: bytes) -> bytes:
    """A few bytes in the place of a row, which may be long."""
    return blake2b(key, digest_size=16).digest()


def _keys(X: Matrix) -> Iterator[bytes]:
    """What only rows that are the same have in common; rows that are no numbers stand alone."""
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        for low, high in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            yield rows.indices[low:high].tobytes() + rows.data[low:high].tobytes()
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "fiub":
        for row in X:
            yield (row + 0).tobytes()  # -0.0 is 0.0
    else:
        for i in range(X.shape[0]):
            yield i.to_bytes(8, "little")


def same_places(data: Data, candidate: Candidate, folds: Folds) -> Index | None:
    """For every held-out value the place of the first that is the same; None if none are."""
    key = "firsts", candidate.rows_key
    kept = data.cache.get(key)
    if kept is None:
        kept = (firsts_of(rows_of(data, candidate)),)
        data.cache.put(key, *kept)
    firsts: Index = kept[0]
    if (firsts == np.arange(len(firsts))).all():
        return None
    fold = np.repeat(np.arange(len(folds)), np.diff(folds.bounds))
    labels = fold * len(firsts) + firsts[folds.test_rows]
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(first[inverse])
