"""Sources of rows that Python holds: arrays, memory maps, data frames and iterators.

Arrays give blocks that are views where they can be; an iterator is started again for every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from everyfold._typing import AnyArray, Matrix, Params, Targets
from everyfold.io.base import RowSource, maps_of, naming
from everyfold.io.blocks import (
    Block,
    Piece,
    StreamError,
    check_lengths,
    column_names,
    features,
    positive,
)

_PARTS = {"X", "y", "sample_weight", "fold"}


class ArrayRows(RowSource):
    """Rows of an array, a memory map, a sparse matrix or a data frame.

    **Cost**: blocks of a C-contiguous float64 array are views. Any other array is converted one
    block at a time, so that memory maps are never read as a whole.

    Parameters
    ----------
    X : ndarray, memmap, sparse matrix or data frame of shape (n, d)
        A CSR matrix is read in blocks; other sparse formats are first converted to CSR.
    y : array-like of shape (n,) or (n, q)
    sample_weight, fold : array-like of shape (n,), optional

    Examples
    --------
    >>> import numpy as np
    >>> source = ArrayRows(np.arange(10.0).reshape(5, 2), np.arange(5))
    >>> [len(block) for block in source.blocks(2)]
    [2, 2, 1]
    >>> source.take([4, 0])
    array([[8., 9.],
           [0., 1.]])
    """

    def __init__(
        self,
        X: Matrix,
        y: Targets,
        *,
        sample_weight: ArrayLike | None = None,
        fold: ArrayLike | None = None,
    ) -> None:
        is_sparse: bool = sparse.issparse(X)
        if is_sparse:
            X = X.tocsr()
        elif not hasattr(X, "shape"):
            X = np.asarray(X)
        # X stays as it is, memory maps above all: every block is converted when it is read.
        columns = [c if c is None else np.asarray(c) for c in (y, sample_weight, fold)]
        self._data = Piece(X, *columns)
        shape = tuple(np.shape(X))
        with naming(self):
            if len(shape) != 2 or 0 in shape:
                raise StreamError(f"X has shape {shape}; it must have rows and columns")
            check_lengths(self._data, range(shape[0]))
        self.n_rows, self.n_features = shape
        self.names = column_names(X)

    def __repr__(self) -> str:
        return f"ArrayRows of shape {tuple(np.shape(self._data.X))}"

    def _files(self) -> list[Path]:
        data = self._data
        maps = list(maps_of(data.X, data.y, data.sample_weight, data.fold))
        for part in maps:
            if part.mode in ("r+", "w+"):
                part.flush()  # or the system writes it, and moves its time of writing, whenever
        return [Path(str(part.filename)) for part in maps]

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        X, columns = self._data.X, (self._data.y, self._data.sample_weight, self._data.fold)
        for start in range(0, np.shape(X)[0], size):
            rows = slice(start, start + size)
            yield Piece(_select(X, rows), *(c if c is None else c[rows] for c in columns))

    def _take(self, rows: AnyArray) -> AnyArray:
        with naming(self):
            named = self.first_row + rows
            return features(_select(self._data.X, rows), self.n_features, named)


class IteratedRows(RowSource):
    """Rows from an iterator that can be started again.

    Parameters
    ----------
    make : callable or iterable
        A callable without arguments, such as a generator function, that returns a fresh iterator
        for every pass; or an object that can be iterated several times, such as a list. The
        iterator yields pieces of any length: ``(X, y)``, ``(X, y, sample_weight)`` or a dictionary
        with the keys ``X``, ``y`` and optionally ``sample_weight`` and ``fold``. An iterator itself
        can be used for one pass only.
    n_features : int, optional
        By default the first piece is read, and discarded, to find it.
    n_rows : int, optional
        The number of rows, if it is known; a pass with another number raises an error.

    Examples
    --------
    >>> import numpy as np
    >>> def thirds():
    ...     for i in range(3):
    ...         yield np.full((2, 4), i), np.array([i, -i])
    >>> source = IteratedRows(thirds)
    >>> source.n_features, source.n_rows
    (4, None)
    >>> [block.y.tolist() for block in source.blocks(5)]
    [[0, 0, 1, -1, 2], [-2]]
    >>> source.n_rows
    6
    """

    def __init__(
        self,
        make: Callable[[], Iterable[object]] | Iterable[object],
        *,
        n_features: int | None = None,
        n_rows: int | None = None,
    ) -> None:
        self._make = make
        self._peeked: list[object] = []
        self._is_spent = False
        self.n_rows = None if n_rows is None else positive(n_rows, "n_rows")
        with naming(self):
            self._is_once = not callable(make) and _iterate(make) is make
            first = self._peek() if n_features is None else None
        self.names = None if first is None else column_names(first.X)
        self.n_features = positive(
            np.shape(first.X)[1] if first is not None else n_features, "n_features"
        )

    def __repr__(self) -> str:
        name = getattr(self._make, "__qualname__", type(self._make).__name__)
        return f"IteratedRows({name})"

    def identity(self) -> Params:
        """See base class."""
        raise StreamError(
            f"{self!r} cannot be recognised in another process, as a checkpoint must; write the "
            "rows to a Parquet file, or leave checkpoint out"
        )

    def _peek(self) -> Piece:
        pieces = self._start()
        try:
            first = next(pieces, None)
        finally:
            # What the generator has open is closed now, and not when it is garbage collected.
            if not self._is_once:
                _close(pieces)
        if first is None:
            raise StreamError("there are no rows; the iterator ends at once")
        # An iterator does not give its first piece again, so that it is kept for the only pass.
        self._peeked = [first] if self._is_once else []
        piece = _as_piece(first)
        if len(np.shape(piece.X)) != 2:
            raise StreamError(
                f"X of the first piece has shape {np.shape(piece.X)}; it must be (rows, features)"
            )
        return piece

    def _start(self) -> Iterator[object]:
        return _iterate(self._make() if callable(self._make) else self._make)

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        if self._is_spent:
            raise StreamError(
                "an iterator can be read only once and this is another pass; give a callable that "
                "returns a fresh one, IteratedRows(chunks) instead of IteratedRows(chunks())"
            )
        self._is_spent = self._is_once
        pieces = self._start()
        peeked, self._peeked = self._peeked, []
        try:
            for piece in chain(peeked, pieces):
                yield _as_piece(piece)
        finally:
            _close(pieces)


def _select(X: Matrix, rows: slice | AnyArray) -> Matrix:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _iterate(pieces: Iterable[object]) -> Iterator[object]:
    try:
        return iter(pieces)
    except TypeError as error:
        raise StreamError(
            f"{type(pieces).__name__} cannot be iterated; give a callable without arguments that "
            "returns an iterator of pieces (X, y)"
        ) from error


def _close(pieces: Iterator[object]) -> None:
    if isinstance(pieces, Generator):
        pieces.close()


def _as_piece(piece: object) -> Piece:
    if isinstance(piece, Block):
        return Piece(piece.X, piece.y, piece.sample_weight, piece.fold)
    if isinstance(piece, Mapping) and {"X", "y"} <= set(piece) <= _PARTS:
        return Piece(**piece)
    if isinstance(piece, tuple | list) and len(piece) in (2, 3):
        return Piece(*piece)
    found = f"the keys {sorted(map(str, piece))}" if isinstance(piece, Mapping) else type(piece)
    raise StreamError(
        f"a piece must be (X, y), (X, y, sample_weight) or a dictionary with the keys X, y and "
        f"optionally sample_weight and fold, got {found}"
    )
