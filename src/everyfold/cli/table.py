"""What a data file holds: columns of a table, or a matrix of features and a target.

``training`` gives the features, the target and what else is known of the rows, by the columns that
the options name; ``rows`` gives the features that a saved model wants, by the ``Layout`` that is
saved with it. What cannot be used is refused with the column, the row and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from everyfold._progress import warn
from everyfold._typing import AnyArray, Matrix, Params
from everyfold.cli.errors import BadInput, nearest
from everyfold.io import RowSource
from everyfold.kernels.pairwise import is_sparse

# One column: numbers with NaN for missing cells, or text with "" for them.
Column: TypeAlias = AnyArray

# Names of columns whose equal cells may mean rows of one person, plot or machine.
_LIKE_AN_ID = re.compile(
    r"(?i)(?<![a-z])(id|patient|subject|person|participant|user|customer|group|family)s?(?![a-z])"
    r"|[a-z]I[dD]$"
)

# Entries up to which a sparse matrix becomes dense, which is faster and can be centred; 160 MB.
_SMALL = 20_000_000


@dataclass(frozen=True)
class Layout:
    """Where the features of a model are found in a file.

    By ``names``, where the file had some, or by ``positions`` in a table of ``width`` columns.
    ``target`` and ``id`` are what those columns were called, ``index_base`` the first index of
    svmlight files, 0 or 1. Cells may be missing if the model fills them in.
    """

    n_features: int
    names: tuple[str, ...] | None = None
    positions: tuple[int, ...] | None = None
    width: int = 0
    target: str = "y"
    index_base: int = 1
    id: str | None = None
    may_miss: bool = False

    def __post_init__(self) -> None:
        if any(len(each) != self.n_features for each in (self.names, self.positions) if each):
            raise ValueError(f"names or positions are not those of {self.n_features} features")
        if not all(0 <= i < self.width for i in self.positions or ()):
            raise ValueError(f"positions lie outside of a table of {self.width} columns")
        if self.index_base not in (0, 1):
            raise ValueError(f"indices begin with 0 or 1, not with {self.index_base}")


@dataclass(frozen=True)
class Roles:
    """The columns that are no features, by name or position; the target is the last if None."""

    target: str | None = None
    groups: str | None = None
    weights: str | None = None
    id: str | None = None
    drop: Sequence[str] = ()


@dataclass(frozen=True)
class TableData:
    """Features, target and where they came from; groups, weights and ids of rows, if any.

    ``repeating`` says of columns that are called like ids, and are no groups, what they hold. Where
    rows are read in blocks, from a ``source``, X and y are a sample of them.
    """

    X: Matrix
    y: Column
    layout: Layout
    groups: Column | None = None
    weights: Column | None = None
    id: Column | None = None
    repeating: Sequence[str] = ()
    source: RowSource | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, as far as it is known, and of features."""
        n, d = self.X.shape
        return (n if self.source is None else self.source.n_rows or 0), d


@dataclass(frozen=True)
class InputTable:
    """Columns, with names if the file has them; ``raw`` are their cells as they were read."""

    names: tuple[str, ...] | None
    columns: Sequence[Column]
    raw: Sequence[Any] | None = None

    def training(self, roles: Roles, *, may_miss: bool) -> TableData:
        """Features, target, and what is known of rows besides."""
        width = len(self.columns)
        positions, goal, beside = assign_columns(self.names or (), width, roles)
        y = _check_complete(self.columns[goal], f"the target, {self._call(goal)},")
        layout = Layout(
            len(positions),
            self._unique_names(positions),
            positions,
            width,
            self._name(goal),
            id=self._name(beside["id"]) if "id" in beside else None,
            may_miss=may_miss,
        )
        columns: Params = {role: self._beside(role, i) for role, i in beside.items()}
        others = [i for i in range(width) if i != goal and i != beside.get("groups")]
        return TableData(
            self._matrix(positions, may_miss),
            y,
            layout,
            **columns,
            repeating=self._repeating(others),
        )

    def _beside(self, role: str, i: int) -> Column:
        """A column that says something of the rows, which it must do of all."""
        column = _check_complete(self.columns[i], f"--{role}, {self._call(i)},")
        if role == "weights":
            _check_feature(column, f"--weights, {self._call(i)},")
            if (row := _first(column < 0)) is not None or not column.any():
                wrong = "is 0 everywhere" if row is None else f"is {column[row]:g} in row {row + 1}"
                raise BadInput(f"--weights, {self._call(i)}, {wrong}; weights are 0 or more")
            return column
        return self._words(i)

    def _repeating(self, positions: Sequence[int]) -> list[str]:
        """Columns that are called like ids and have values that several rows share."""
        found = []
        for i in positions if self.names is not None else ():
            n, n_values = len(self.columns[i]), len(np.unique(self.columns[i]))
            if _LIKE_AN_ID.search(self._name(i)) and 1 < n_values < n:
                found.append(f"{self._call(i)} has {n_values} values in {n} rows")
        return found

    def ids(self, layout: Layout, name: str | None) -> tuple[str, Column] | None:
        """The name and the cells of the column of ids: the one named, or that of the training."""
        known = layout.id if layout.id in (self.names or ()) else None
        if name is None and known is None:
            return None
        wanted = known if name is None else name
        i = find_column(self.names or (), len(self.columns), "--id", str(wanted))
        return self._name(i), self._words(i)

    def _words(self, i: int) -> Column:
        """The cells as text: a number with a leading 0 or 18 digits is a name, too."""
        column = self.columns[i]
        if self.raw is not None:
            cells = self.raw[i].to_pylist()
            return np.array(["" if cell is None else str(cell).strip() for cell in cells])
        is_whole = column.dtype.kind == "f" and bool(np.all(column == np.round(column)))
        return (column.astype(np.int64) if is_whole else column).astype(str)

    def rows(self, layout: Layout) -> NDArray[np.float64]:
        """The features that a model wants: by name where there are names, else by position."""
        if self.names is not None and layout.names is not None:
            missing = [name for name in layout.names if name not in self.names]
            if missing:
                raise BadInput(
                    f"the data have no column {missing[0]!r}, which the model needs "
                    f"({len(missing)} missing); {nearest(missing[0], self.names)}"
                )
            found = [self.names.index(name) for name in layout.names]
            return self._matrix(found, layout.may_miss)
        width = len(self.columns)
        if width not in (layout.n_features, layout.width):
            was = f"the model was fitted on {layout.n_features} features"
            raise BadInput(f"the data have {width} columns, but {was}")
        # A file without the target has exactly the features, in their order; one with it has the
        # columns of the training file.
        every = range(layout.n_features)
        places = every if width == layout.n_features else layout.positions or every
        return self._matrix(places, layout.may_miss)

    def _unique_names(self, positions: Sequence[int]) -> tuple[str, ...] | None:
        """The names of columns; None if two are equal, so that only positions are unique."""
        if self.names is None:
            return None
        names = tuple(self.names[i] for i in positions)
        if "" in names:
            i = positions[names.index("")]
            advice = f"leave it out with --drop {i}"
            words = f"column {i} has no name and may be a mere row number; {advice}"
            warn(words)
        return names if len(set(names)) == len(names) else None

    def _name(self, i: int) -> str:
        return self.names[i] if self.names is not None else str(i)

    def _call(self, i: int) -> str:
        return f"column {self.names[i]!r}" if self.names is not None else f"column {i}"

    def _matrix(self, positions: Sequence[int], may_miss: bool) -> NDArray[np.float64]:
        for i in positions:
            _check_feature(self.columns[i], self._call(i), may_miss=may_miss)
        return np.column_stack([self.columns[i] for i in positions]).astype(np.float64)


def find_column(names: Sequence[str], n: int, option: str, name: str) -> int:
    """One of n columns by its name or, failing that, by its position."""
    if names.count(name) > 1:
        raise BadInput(f"{option} {name!r} names {names.count(name)} columns")
    if name in names:
        return names.index(name)
    if re.fullmatch(r"-?[0-9]{1,9}", name) and -n <= int(name) < n:
        return int(name) % n
    if re.fullmatch(r"-?[0-9]+", name):
        raise BadInput(f"{option} {name}: there are {n} columns, counted from 0")
    if names:
        raise BadInput(f"{option} {name!r} is not a column; {nearest(name, names)}")
    advice = f"the columns have no names; give a position from 0 to {n - 1}"
    raise BadInput(f"{option} {name!r}: {advice}")


def assign_columns(
    names: Sequence[str], n: int, roles: Roles
) -> tuple[tuple[int, ...], int, dict[str, int]]:
    """The positions of features and target among n columns, and of the others by their role."""
    dropped = [find_column(names, n, "--drop", name) for name in roles.drop]
    named = {"groups": roles.groups, "weights": roles.weights, "id": roles.id}
    beside = {
        role: find_column(names, n, f"--{role}", name)
        for role, name in named.items()
        if name is not None
    }
    left = [i for i in range(n) if i not in (*dropped, *beside.values())]
    if not left:
        raise BadInput("no columns are left; give fewer --drop")
    goal = left[-1]
    if roles.target is not None:
        goal = find_column(names, n, "--target", roles.target)
    for role in (role for role, i in beside.items() if i == goal):
        raise BadInput(f"--{role} {named[role]!r} is the target; name another column")
    features = tuple(i for i in left if i != goal)
    if not features:
        raise BadInput("there is a target but no feature; the file needs two columns or more")
    return features, goal, beside


@dataclass(frozen=True)
class InputMatrix:
    """Features and, perhaps, a target, from a file that says itself which is which.

    ``index_base`` is the first index of an svmlight file, which need not have the last ones.
    """

    X: Matrix
    y: Column | None
    index_base: int | None = None

    def training(self, roles: Roles, *, may_miss: bool) -> TableData:
        """Features and target."""
        for option in (option for option, value in vars(roles).items() if value):
            raise BadInput(
                f"--{option} does not apply: this kind of file has a fixed target and no other "
                "columns; use a table (CSV, Parquet)"
            )
        if self.y is None:
            raise BadInput("the file has no array 'y'; it needs X and y")
        y = _check_complete(self.y, "the target, 'y',")
        n, d = self.X.shape
        if len(y) != n:
            raise BadInput(f"X has {n} rows, but y has {len(y)}")
        # Sparse rows that fit are faster and can be centred as a dense matrix.
        X = self.X.toarray() if is_sparse(self.X) and n * d <= _SMALL else self.X
        _check_matrix(X, may_miss)
        base = 1 if self.index_base is None else self.index_base
        return TableData(X, y, Layout(d, index_base=base, may_miss=may_miss))

    def rows(self, layout: Layout) -> Matrix:
        """The features that a model wants, whether or not there is a target."""
        _check_matrix(self.X, layout.may_miss)
        X = self.X if self.index_base is None else self._aligned(layout)
        if X.shape[1] != layout.n_features:
            was = f"the model was fitted on {layout.n_features}"
            raise BadInput(f"the data have {X.shape[1]} features, but {was}")
        return X

    def ids(self, layout: Layout, name: str | None) -> None:
        """There are none."""
        if name is not None:
            raise BadInput(f"--id {name!r} does not apply: the file has no columns but features")

    def _aligned(self, layout: Layout) -> csr_matrix:
        """The matrix by the indices of the training file, of which this one may lack some."""
        # Files whose first index is 1 are shifted by one where the training file began with 0.
        shift = (self.index_base or 0) - layout.index_base
        if shift < 0:
            raise BadInput("the data have an index 0, but the model's training file began with 1")
        n, d = self.X.shape
        shape = n, max(d + shift, layout.n_features)
        return csr_matrix((self.X.data, self.X.indices + shift, self.X.indptr), shape)


def _check_matrix(X: Matrix, may_miss: bool) -> None:
    if X.shape[1] == 0:
        raise BadInput("the data have no features")
    wrong = ~np.isfinite(X.data if is_sparse(X) else X)
    if is_sparse(X) and wrong.any():
        raise BadInput(f"the features have {wrong.sum()} values that are NaN or infinite")
    for i in np.flatnonzero(wrong.any(axis=0)):
        _check_feature(X[:, i], f"column {i}", may_miss=may_miss)


def _check_feature(column: Column, called: str, *, may_miss: bool = False) -> None:
    remedy = "or leave the column out with --drop"
    if column.dtype.kind not in "fiub":
        words = [str(cell) for cell in column]
        row = next((i for i, word in enumerate(words) if word and not is_number(word)), 0)
        cell = f"it has {words[row]!r} in row {row + 1}"
        raise BadInput(f"{called} is not numeric ({cell}); encode it as numbers, {remedy}")
    values = column.astype(np.float64)
    missing, infinite = (int(np.count_nonzero(f(values))) for f in (np.isnan, np.isinf))
    row = 1 + int(np.argmax(np.isnan(values)))
    if missing and not (may_miss and missing < len(values)):
        cells = f"{missing} missing {'cell' if missing == 1 else 'cells'} (empty or NaN)"
        advice = f"fill them in (features by --impute median), drop those rows, {remedy}"
        raise BadInput(f"{called} has {cells} of {len(values)}, first in row {row}; {advice}")
    if infinite:
        row = 1 + int(np.argmax(np.isinf(values)))
        cells = f"{infinite} infinite cells of {len(values)}, first in row {row}"
        raise BadInput(f"{called} has {cells}; write finite numbers, {remedy}")


def is_number(word: str) -> bool:
    """Whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def _first(mask: AnyArray) -> int | None:
    """Where it is true for the first time."""
    return int(np.argmax(mask)) if mask.any() else None


def _check_complete(column: Column, called: str) -> Column:
    """The column without missing cells, labels as text."""
    if column.ndim != 1:
        raise BadInput(f"{called} has shape {column.shape}; it must be one column")
    if column.dtype.kind in "fiub":
        _check_feature(column, called)
        return column
    words = column.astype(str)
    missing = int(np.count_nonzero(words == ""))
    if missing:
        cells = f"{missing} missing cells (empty or NaN) of {len(words)}"
        row = 1 + int(np.argmax(words == ""))
        raise BadInput(f"{called} has {cells}, first in row {row}; drop those rows")
    return words
