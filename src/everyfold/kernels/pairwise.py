"""Matrices between rows: inner products and distances, dense or CSR.

A pass over an n×n matrix takes as long as much arithmetic, so that everything elementwise works in
blocks that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise as sklearn_pairwise

from everyfold._typing import AnyArray, Array, Matrix

# Elements handled at a time by passes over a matrix: 256 KB stay in the second-level cache.
BLOCK_SIZE = 2**15

# Above this density, BLAS on a dense copy beats a product of CSR matrices.
DENSE_FROM = 0.05

# Rows whose mean carries more than this share of their mean square are centred first: distances are
# differences of squares, which would lose the digits of what is left.
CENTRE_FROM = 0.9


# Rows


def is_sparse(X: object) -> bool:
    """Whether X is a sparse matrix or array."""
    return bool(sparse.issparse(X))


def dense(X: Matrix) -> Matrix:
    """X as a dense array."""
    return X.toarray() if is_sparse(X) else X


def count_rows(rows: Matrix) -> int:
    """The number of rows of an array, a data frame or a list."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


class Objects:
    """Rows of any kind: strings, graphs, a list, a data frame. Only the user's function knows them.

    Examples
    --------
    >>> rows = Objects(["one", "two", "three"])
    >>> rows.shape, rows[np.array([2, 0])].rows
    ((3, 1), ['three', 'one'])
    """

    def __init__(self, rows: Matrix) -> None:
        self.rows = rows
        self.shape = (count_rows(rows), 1)

    def __getitem__(self, chosen: Any) -> Objects:
        if hasattr(self.rows, "iloc"):
            return Objects(self.rows.iloc[chosen])
        if hasattr(self.rows, "shape"):
            return Objects(self.rows[chosen])
        numbers = np.arange(len(self.rows))[chosen]
        return Objects([self.rows[i] for i in numbers.tolist()])


def in_double(X: Matrix) -> Matrix:
    """Rows for a function of the user's: what is not a float is left as it is."""
    if isinstance(X, Objects):
        return X.rows
    X = X if is_sparse(X) else np.asarray(X)
    return X.astype(np.float64, copy=False) if X.dtype.kind == "f" else X


def operands(X: Matrix, Y: Matrix | None) -> tuple[Matrix, Matrix]:
    """X and Y in float64, contiguous or canonical CSR; one object twice if Y is None."""
    most_rows = max(np.shape(X)[0], 0 if Y is None else np.shape(Y)[0])
    first = _operand(X, most_rows)
    return first, first if Y is None or Y is X else _operand(Y, most_rows)


def _operand(X: Matrix, most_rows: int) -> Matrix:
    if not is_sparse(X):
        return np.ascontiguousarray(X, dtype=np.float64)
    n_rows, n_features = X.shape
    # No wider than the result is long, so that the copy is not what fills the memory.
    if n_features <= most_rows and X.nnz > DENSE_FROM * n_rows * n_features:
        return X.toarray().astype(np.float64, copy=False)
    return _canonical(X.tocsr().astype(np.float64, copy=False))


def _canonical(X: Matrix) -> Matrix:
    """Sorted column indices make products of CSR rows exactly symmetric."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def squared_norms(X: Matrix) -> Array:
    """The squared Euclidean norm of every row."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X), dtype=np.float64)


def normalised(X: Matrix) -> Matrix:
    """Rows scaled to norm 1; rows of zeros stay."""
    norms = np.sqrt(squared_norms(X))
    norms[norms == 0.0] = 1.0
    if not is_sparse(X):
        return X / norms[:, None]
    X = X.copy()
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return X


def variance(X: Matrix) -> float:
    """The variance of all entries; for CSR in two passes too, since E x² − (E x)² cancels."""
    if not is_sparse(X):
        return float(np.var(X, dtype=np.float64))
    data = _canonical(X.tocsr()).data.astype(np.float64, copy=False)
    n_entries = math.prod(X.shape)
    mean = data.sum() / n_entries
    n_zeros = n_entries - data.size
    return float((np.square(data - mean).sum() + n_zeros * mean**2) / n_entries)


# Matrices


def row_blocks(B: AnyArray) -> Iterator[slice]:
    """Slices of rows that fit the second-level cache."""
    n_rows, height = B.shape[0], _block_height(B)
    return (slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height))


def _block_height(B: AnyArray) -> int:
    n_rows = int(B.shape[0])
    return min(max(BLOCK_SIZE * n_rows // max(B.size, 1), 1), max(n_rows, 1))


def room_for(B: Array, out: AnyArray | None) -> AnyArray:
    """The array to write a function of B into."""
    return np.empty(B.shape) if out is None else out


def product(X: Matrix, Y: Matrix) -> Array:
    """X Yᵀ; numpy computes one triangle and mirrors it where Y is X, so it is symmetric exactly."""
    return np.ascontiguousarray(dense(X @ Y.T))


def squared_distances(X: Matrix, Y: Matrix) -> Array:
    """Squared Euclidean distances between the rows of X and of Y."""
    X, Y = _centred(X, Y)
    B = product(X, Y)
    if Y is X:
        # Norms off the product's diagonal, so that the distance of a row to itself is exactly 0.
        y = B.diagonal().copy()
        return _to_distances(B, y, y)
    return _to_distances(B, squared_norms(X), squared_norms(Y))


def _to_distances(B: Array, x: Array, y: Array) -> Array:
    """Inner products to squared distances (x_i + y_j) − 2 B_ij in place."""
    # Adding the norms to each other first keeps the rounding, too, symmetric in i and j. Copying
    # and then adding in place is twice as fast as one addition of two broadcast vectors.
    sums = np.empty((_block_height(B), B.shape[1]))
    for rows in row_blocks(B):
        block, norms = B[rows], sums[: rows.stop - rows.start]
        norms[:] = y
        norms += x[rows, None]
        block *= -2.0
        block += norms
        # Only rounding makes a distance negative, and looking is far cheaper than clipping.
        if block.min(initial=0.0) < 0.0:
            np.maximum(block, 0.0, out=block)
    return B


def manhattan_distances(X: Matrix, Y: Matrix) -> Array:
    """Manhattan distances between the rows of X and of Y."""
    if is_sparse(X) or is_sparse(Y):
        X, Y = _short_indices(X), _short_indices(Y)
        return np.asarray(sklearn_pairwise.manhattan_distances(X, Y), dtype=np.float64)
    return np.asarray(cdist(X, Y, "cityblock"))


def _short_indices(X: Matrix) -> Matrix:
    """CSR with 32-bit indices, the only ones scikit-learn's Manhattan distances take."""
    if not is_sparse(X):
        return X
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return sparse.csr_array(parts, shape=X.shape)


def _centred(X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
    """The rows moved to the mean of Y if they are far from 0, where distances would cancel.

    Rows that are near 0 stay, since whole numbers then have exact distances.
    """
    if is_sparse(X) or is_sparse(Y):
        return X, Y
    mean = Y.mean(axis=0)
    if mean @ mean * len(Y) <= CENTRE_FROM * np.einsum("ij,ij->", Y, Y):
        return X, Y
    moved = Y - mean
    return moved if X is Y else X - mean, moved


def raise_to(block: AnyArray, degree: int) -> None:
    """Powers in place by repeated squaring, several times faster than a general power."""
    factor = block.copy()
    block.fill(1.0)
    while degree:
        if degree % 2:
            block *= factor
        degree //= 2
        if degree:
            factor *= factor
