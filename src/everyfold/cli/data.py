"""What a data file holds: columns of a table, or features and a target that come apart."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from everyfold.cli.manners import BadInput, nearest
from everyfold.kernels.distances import is_sparse

Column = NDArray[Any]
"""One column: float64 with NaN for missing cells, or labels with "" for them."""


@dataclass(frozen=True)
class Layout:
    """Where the features of a model are found in a file.

    Attributes
    ----------
    n_features : int
    names : tuple of str, optional
        The features by name, where the file named its columns.
    positions : tuple of int, optional
        Their positions in a table, and the number of its columns.
    width : int
    target : str
        What the target was called.
    index_base : int
        The first index of svmlight files, 0 or 1.
    """

    n_features: int
    names: tuple[str, ...] | None = None
    positions: tuple[int, ...] | None = None
    width: int = 0
    target: str = "y"
    index_base: int = 1


@dataclass(frozen=True)
class Data:
    """Features, target and where they came from."""

    X: Any
    y: Column
    layout: Layout

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])


class Content(ABC):
    """What was read from a file."""

    @abstractmethod
    def training(self, target: str | None, drop: Sequence[str]) -> Data:
        """Features and target."""

    @abstractmethod
    def rows(self, layout: Layout) -> Any:
        """The features that a model wants, whether or not there is a target."""


@dataclass(frozen=True)
class Table(Content):
    """Columns, with names if the file has them."""

    names: tuple[str, ...] | None
    columns: Sequence[Column]

    def training(self, target: str | None, drop: Sequence[str]) -> Data:
        """See base class; the last column is the target unless another is named."""
        dropped = [self._find("--drop", name) for name in drop]
        left = [i for i in range(len(self.columns)) if i not in dropped]
        if not left:
            raise BadInput("no columns are left; give fewer --drop")
        goal = left[-1] if target is None else self._find("--target", target)
        positions = tuple(i for i in left if i != goal)
        if not positions:
            raise BadInput("there is a target but no feature; the file needs two columns or more")
        names = self._unique_names(positions)
        y = check_target(self.columns[goal], self._call(goal))
        called = self.names[goal] if self.names else str(goal)
        layout = Layout(len(positions), names, positions, len(self.columns), called)
        return Data(self._matrix(positions), y, layout)

    def rows(self, layout: Layout) -> Any:
        """See base class: by name where there are names, else by position."""
        if self.names is not None and layout.names is not None:
            missing = [name for name in layout.names if name not in self.names]
            if missing:
                raise BadInput(
                    f"the data have no column {missing[0]!r}, which the model needs "
                    f"({len(missing)} missing); {nearest(missing[0], self.names)}"
                )
            return self._matrix([self.names.index(name) for name in layout.names])
        if len(self.columns) == layout.n_features:
            return self._matrix(range(layout.n_features))
        if layout.positions is not None and len(self.columns) == layout.width:
            return self._matrix(layout.positions)
        raise BadInput(
            f"the data have {len(self.columns)} columns, but the model was fitted on "
            f"{layout.n_features} features"
        )

    def _find(self, option: str, name: str) -> int:
        """A column by its name or, failing that, by its position."""
        if self.names is not None and name in self.names:
            if self.names.count(name) > 1:
                raise BadInput(f"{option} {name!r} names {self.names.count(name)} columns")
            return self.names.index(name)
        n = len(self.columns)
        if name.lstrip("-").isdigit():
            if not -n <= int(name) < n:
                raise BadInput(f"{option} {name}: there are {n} columns, counted from 0")
            return int(name) % n
        if self.names is None:
            raise BadInput(
                f"{option} {name!r}: the columns have no names; give a position from 0 to {n - 1}"
            )
        raise BadInput(f"{option} {name!r} is no column; {nearest(name, self.names)}")

    def _unique_names(self, positions: Sequence[int]) -> tuple[str, ...] | None:
        """The names of columns, if they tell them apart."""
        if self.names is None:
            return None
        names = tuple(self.names[i] for i in positions)
        if "" in names:
            nameless = positions[names.index("")]
            warnings.warn(
                f"column {nameless} has no name and may be a mere row number; leave it out with "
                f"--drop {nameless}",
                stacklevel=2,
            )
        return names if len(set(names)) == len(names) else None

    def _call(self, i: int) -> str:
        return f"column {self.names[i]!r}" if self.names is not None else f"column {i}"

    def _matrix(self, positions: Sequence[int]) -> NDArray[np.float64]:
        for i in positions:
            _check_feature(self.columns[i], self._call(i))
        return np.column_stack([self.columns[i] for i in positions]).astype(np.float64)


def _check_feature(column: Column, called: str) -> None:
    if column.dtype.kind not in "fiub":
        word = next((str(cell) for cell in column if not _is_number(str(cell))), "")
        raise BadInput(
            f"{called} is not numeric (it has {word!r}); encode it as numbers, or leave it out "
            "with --drop"
        )
    _check_finite(column, called)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word == ""
    return True


def _check_finite(column: Column, called: str) -> None:
    values = column.astype(np.float64)
    missing = int(np.count_nonzero(np.isnan(values)))
    if missing:
        raise BadInput(
            f"{called} has {missing} missing {'cell' if missing == 1 else 'cells'} (empty or NaN) "
            f"of {len(values)}; fill them in, drop those rows, or leave the column out with --drop"
        )
    infinite = int(np.count_nonzero(np.isinf(values)))
    if infinite:
        raise BadInput(f"{called} has {infinite} infinite cells of {len(values)}")


def check_target(y: Column, called: str) -> Column:
    """The target without missing cells, labels as text."""
    if y.ndim != 1:
        raise BadInput(f"the target, {called}, has shape {y.shape}; it must be one column")
    if y.dtype.kind in "fiub":
        _check_finite(y, f"the target, {called},")
        return y
    missing = int(np.count_nonzero(y.astype(str) == ""))
    if missing:
        raise BadInput(
            f"the target, {called}, has {missing} missing cells (empty or NaN) of {len(y)}"
        )
    return y.astype(str)


@dataclass(frozen=True)
class Apart(Content):
    """Features and, perhaps, a target that the file itself keeps apart."""

    X: Any
    y: Column | None
    index_base: int | None = None
    """The first index if the file is one of indices and values, of which trailing ones may lack."""

    def training(self, target: str | None, drop: Sequence[str]) -> Data:
        """See base class."""
        if target is not None or drop:
            option = "--drop" if drop else "--target"
            raise BadInput(f"{option} does not apply: the file itself says what is the target")
        if self.y is None:
            raise BadInput("the file has no array 'y'; it needs X and y")
        y = check_target(self.y, "'y'")
        if len(y) != self.X.shape[0]:
            raise BadInput(f"X has {self.X.shape[0]} rows, but y has {len(y)}")
        X = self._checked(self.X)
        base = 1 if self.index_base is None else self.index_base
        return Data(_dense_if_small(X), y, Layout(int(X.shape[1]), index_base=base))

    def rows(self, layout: Layout) -> Any:
        """See base class."""
        X = self._checked(self.X)
        if self.index_base is not None:
            X = self._rebased(layout)
            if X.shape[1] < layout.n_features:
                X = csr_matrix((X.data, X.indices, X.indptr), (X.shape[0], layout.n_features))
        if X.shape[1] != layout.n_features:
            raise BadInput(
                f"the data have {X.shape[1]} features, but the model was fitted on "
                f"{layout.n_features}"
            )
        return X

    def _rebased(self, layout: Layout) -> Any:
        """The matrix with the first index of the training file, which this one may not show."""
        assert self.index_base is not None
        if self.index_base == layout.index_base:
            return self.X
        if self.index_base < layout.index_base:
            raise BadInput("the data have an index 0, but the model's training file began with 1")
        X = self.X
        return csr_matrix((X.data, X.indices + 1, X.indptr), (X.shape[0], X.shape[1] + 1))

    @staticmethod
    def _checked(X: Any) -> Any:
        if X.shape[1] == 0:
            raise BadInput("the data have no features")
        values = X.data if is_sparse(X) else X
        wrong = int(np.count_nonzero(~np.isfinite(values)))
        if not wrong:
            return X
        if is_sparse(X):
            raise BadInput(f"the features have {wrong} values that are NaN or infinite")
        column = int(np.argmin(np.isfinite(values).all(axis=0)))
        _check_finite(np.asarray(values[:, column]), f"column {column}")
        return X


_SMALL = 20_000_000


def _dense_if_small(X: Any) -> Any:
    """A dense matrix where that costs little: it can be centred, and is faster."""
    if is_sparse(X) and X.shape[0] * X.shape[1] <= _SMALL:
        return X.toarray()
    return X
