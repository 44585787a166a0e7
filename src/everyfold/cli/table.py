"""What a data file contains: columns of a table, or a matrix of features and a target.

``training`` gives the features, the target and what else is known of the rows, by the columns that
the options name; ``rows`` gives the features that a saved model needs, by the ``Layout`` that is
saved with it. A column is numbers, dates, or words that are encoded (``kind_of``). What cannot be
used is refused with the column, the row and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from everyfold._progress import warn
from everyfold._typing import AnyArray, Array, Matrix, Params
from everyfold.cli.errors import BadInput, nearest
from everyfold.cli.options import Judging, ModelOptions
from everyfold.io import RowSource
from everyfold.kernels.pairwise import is_sparse

# -- What a column is ------------------------------------------------------------------------------

# One column: numbers with NaN for missing cells, or text with "" for them.
Column: TypeAlias = AnyArray

NUMBER, DATE, ONE_HOT = "number", "date", "one-hot"
# What a feature is: one of these three words, or the categories of an ordinal column in order.
Kind: TypeAlias = str | tuple[str, ...]

# A text column with more values than the first number, each in fewer rows than the second on
# average, holds names or free text: one-hot columns of it would make every row unlike all others.
MOST_VALUES, LEAST_ROWS = 20, 5

# From so many numbers on, a column with a single other cell is one with a bad cell.
MANY_NUMBERS = 3

_DROP = "or leave the column out with --drop"
_FORMATS = ("iso", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
_DATE = r"^\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?$|^\d{1,2}([./-])\d{1,2}[./-]\d{2,4}( .*)?$"


class Fault(NamedTuple):
    """What is wrong with a column, and what to do about it."""

    words: str
    remedy: str


def is_number(word: str) -> bool:
    """Whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def is_text(column: Column) -> bool:
    """Whether the cells are words."""
    return column.dtype.kind not in "fiub"


def fault_of(column: Column, most_missing: int = 0) -> Fault | None:
    """What is wrong with numbers, or with words: infinite cells, and more missing than that."""
    if is_text(column):
        is_missing, is_infinite = column == "", np.zeros(len(column), dtype=bool)
    else:
        values = column.astype(np.float64)
        is_missing, is_infinite = np.isnan(values), np.isinf(values)
    missing, n = int(is_missing.sum()), len(column)
    if missing > most_missing:
        cells = f"{missing} missing {'cell' if missing == 1 else 'cells'} (empty or NaN) of {n}"
        fill = f"fill them in (features by --impute median), drop those rows, {_DROP}"
        return Fault(f"{cells}, first in row {1 + int(np.argmax(is_missing))}", fill)
    if is_infinite.any():
        cells = f"{is_infinite.sum()} infinite cells of {n}"
        words = f"{cells}, first in row {1 + int(np.argmax(is_infinite))}"
        return Fault(words, f"write finite numbers, {_DROP}")
    return None


def bad_cell(words: Column, most: int | None = None) -> Fault | None:
    """The first cell that is no number, where all but a few are numbers: one in a hundred."""
    is_bad = np.array([word != "" and not is_number(str(word)) for word in words], dtype=bool)
    n_bad, n = int(is_bad.sum()), int(np.count_nonzero(words != ""))
    most = max(1, n // 100) if most is None else most
    if not n_bad or n - n_bad < MANY_NUMBERS or n_bad > most:
        return None
    row = int(np.argmax(is_bad))
    cells = f"{n - n_bad} numbers of {n}, but {str(words[row])!r} in row {row + 1}"
    return Fault(cells, "correct the cell")


def most_missing(options: ModelOptions, column: Column) -> int:
    """How many cells of a column may be missing: with a statistic to put there, all but one."""
    return 0 if options.impute is None else len(column) - 1


def kind_of(column: Column, options: ModelOptions) -> Kind | Fault:
    """What a column is, if the options do not say it; or why it cannot be used as it is."""
    fault = fault_of(column, most_missing(options, column))
    if fault is not None:
        return fault
    if not is_text(column):
        return NUMBER
    if bad := bad_cell(column):
        return Fault(bad.words, f"{bad.remedy}, or take the cells for categories with --one-hot")
    example, known = str(column[np.argmax(column != "")]), column[column != ""]
    if pc.all(pc.match_substring_regex(pa.array(known), _DATE)).as_py():
        if options.dates is not None and days(column, options.dates) is not None:
            return DATE
        form = "" if options.dates is None else f", which are not of the format {options.dates}"
        form_of_all = next((f for f in _FORMATS if days(column, f) is not None), "FORMAT")
        ask = f"turn them into days with --dates {form_of_all}"
        return Fault(f"dates such as {example!r}{form}", f"{ask}, {_DROP}")
    n_values = len(np.unique(known))
    if n_values > MOST_VALUES and n_values * LEAST_ROWS > len(known):
        many = f"{n_values} different texts in {len(known)} rows, such as {example!r}"
        return Fault(many, f"take them for categories with --one-hot, {_DROP}")
    return ONE_HOT


def days(column: Column, form: str) -> Array | None:
    """Days since 1970 of dates in text, NaN where there is none; None if some are no dates."""
    cells = pa.array(column)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    try:
        if form == "iso":
            stamps = cells.cast(pa.timestamp("us"))
        else:
            stamps = pc.strptime(cells, format=form, unit="us")
    except pa.ArrowInvalid:
        return None
    micros = stamps.cast(pa.int64()).cast(pa.float64(), safe=False)
    found: Array = micros.to_numpy(zero_copy_only=False) / 86_400e6
    return found


def encoder(
    kinds: Sequence[Kind], numbers: Sequence[tuple[str, Any]], impute: str | None
) -> ColumnTransformer:
    """The step that encodes words, and does with the numbers what comes before a model else.

    A category that the training rows have not is no category: all its one-hot columns are 0.
    """
    fill = SimpleImputer(missing_values=None, strategy="most_frequent")
    before = [] if impute is None else [("imputer", fill)]
    orders = [list(kind) for kind in kinds if isinstance(kind, tuple)]
    unordered = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = {
        "numbers": [*numbers],
        ONE_HOT: [*before, ("encoder", unordered)],
        "ordinal": [*before, ("encoder", OrdinalEncoder(categories=orders)), *numbers[-1:]],
    }
    names = [
        "ordinal" if isinstance(kind, tuple) else kind if kind == ONE_HOT else "numbers"
        for kind in kinds
    ]
    parts = {name: [i for i, other in enumerate(names) if other == name] for name in steps}
    return ColumnTransformer(
        [(name, Pipeline(steps[name]), places) for name, places in parts.items() if places]
    )


def described(called: Sequence[str], kinds: Sequence[Kind], columns: Sequence[Column]) -> list[str]:
    """What is done with columns that are not plain numbers, in sentences."""
    said = []
    for kind, words in ((ONE_HOT, "one-hot encoded"), (DATE, "turned into days since 1970")):
        names = [
            f"{name} ({len(set(column.tolist()) - {''})} values)" if kind == ONE_HOT else name
            for name, other, column in zip(called, kinds, columns, strict=True)
            if other == kind
        ]
        said += [f"{words}: {', '.join(names)}"] if names else []
    orders = [
        f"{name} ({' < '.join(kind)})"
        for name, kind in zip(called, kinds, strict=True)
        if isinstance(kind, tuple)
    ]
    said += [f"encoded in order: {', '.join(orders)}"] if orders else []
    return said


# -- Columns of a file, and the rows that a model needs --------------------------------------------

# Names of columns whose equal cells may mean rows of one person, plot or machine.
_LIKE_AN_ID = re.compile(
    r"(?i)(?<![a-z])(id|patient|subject|person|participant|user|customer|group|family)s?(?![a-z])"
    r"|[a-z]I[dD]$"
)

# Entries up to which a sparse matrix becomes dense, which is faster and can be centred; 160 MB.
_SMALL = 20_000_000

# Columns that a message lists, and how many more there are.
MOST_LISTED = 10


@dataclass(frozen=True)
class Layout:
    """Where the features of a model are found in a file.

    By ``names``, where the file had some, or by ``positions`` in a table of ``width`` columns.
    ``target``, ``more_targets`` and ``id`` are what those columns were called, ``index_base`` the
    first index of svmlight files, 0 or 1. Cells may be missing if the model fills them in.
    ``kinds`` says what each feature is if some are not plain numbers, ``dates`` in which format
    dates are written.
    """

    n_features: int
    names: tuple[str, ...] | None = None
    positions: tuple[int, ...] | None = None
    width: int = 0
    target: str = "y"
    index_base: int = 1
    id: str | None = None
    may_miss: bool = False
    kinds: tuple[Kind, ...] = ()
    dates: str = "iso"
    more_targets: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """What the columns of the target were called."""
        return self.target, *self.more_targets

    def __post_init__(self) -> None:
        known = self.names, self.positions, self.kinds
        if any(len(each) != self.n_features for each in known if each):
            raise ValueError(f"names or positions are not those of {self.n_features} features")
        if not all(0 <= i < self.width for i in self.positions or ()):
            raise ValueError(f"positions lie outside of a table of {self.width} columns")
        if self.index_base not in (0, 1):
            raise ValueError(f"indices begin with 0 or 1, not with {self.index_base}")

    def blank(self) -> Matrix:
        """A row without anything in it, as the model takes it."""
        if not self.kinds:
            return csr_matrix((1, self.n_features))
        cells = [
            kind[0] if isinstance(kind, tuple) else "" if kind == ONE_HOT else 0.0
            for kind in self.kinds
        ]
        return np.array([cells], dtype=object)


@dataclass(frozen=True)
class TableData:
    """Features, target and where they came from; groups, weights and ids of rows, if any.

    ``repeating`` says of columns that are called like ids, and are no groups, what they hold;
    ``notes`` how the file was read and its columns encoded. Where rows are read in blocks, from a
    ``source``, X and y are a sample of them.
    """

    X: Matrix
    y: Column
    layout: Layout
    groups: Column | None = None
    weights: Column | None = None
    id: Column | None = None
    repeating: Sequence[str] = ()
    notes: Sequence[str] = ()
    source: RowSource | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, as far as it is known, and of features."""
        n, d = self.X.shape
        return (n if self.source is None else self.source.n_rows or 0), d


@dataclass(frozen=True)
class InputTable:
    """Columns, with names if the file has them; ``raw`` are their cells as they were read.

    ``notes`` say what was found out about how the file is written.
    """

    names: tuple[str, ...] | None
    columns: Sequence[Column]
    raw: Sequence[Any] | None = None
    notes: Sequence[str] = ()

    def training(self, options: ModelOptions) -> TableData:
        """Features, target, and what is known of rows besides."""
        width = len(self.columns)
        positions, goals, beside = assign_columns(self.names or (), width, options)
        kinds = self._kinds(positions, options)
        is_encoded = any(kind != NUMBER for kind in kinds)
        layout = Layout(
            len(positions),
            self._unique_names(positions),
            positions,
            width,
            self._name(goals[0]),
            id=self._name(beside["id"]) if "id" in beside else None,
            may_miss=options.impute is not None,
            kinds=kinds if is_encoded else (),
            dates=options.dates or "iso",
            more_targets=tuple(map(self._name, goals[1:])),
        )
        columns: Params = {role: self._beside(role, i) for role, i in beside.items()}
        others = [i for i in range(width) if i not in (*goals, beside.get("groups"))]
        called = [self._call(i) for i in positions]
        return TableData(
            self._matrix(positions, layout),
            self._target(goals),
            layout,
            **columns,
            repeating=self._repeating(others),
            notes=[*self.notes, *described(called, kinds, [self.columns[i] for i in positions])],
        )

    def _target(self, goals: Sequence[int]) -> Column:
        """The column of the target; of several a matrix of numbers."""
        called = [f"the target, {self._call(i)}," for i in goals]
        found = [
            _check_complete(self.columns[i], words) for i, words in zip(goals, called, strict=True)
        ]
        if len(goals) == 1:
            return found[0]
        for column, words in zip(found, called, strict=True):
            if is_text(column):
                has = f"has text, such as {str(column[0])!r}"
                raise BadInput(f"{words} {has}; several targets must be numbers")
        return np.column_stack(found).astype(np.float64)

    def _kinds(self, positions: Sequence[int], options: ModelOptions) -> tuple[Kind, ...]:
        """What the features are; all that cannot be used are named at once."""
        wanted: dict[int, Kind] = {}
        wanted |= dict.fromkeys(self._named("--one-hot", options.one_hot, positions), ONE_HOT)
        for text in options.ordinal:
            name, _, order = text.partition("=")
            (i,) = self._named("--ordinal", [name], positions)
            wanted[i] = self._order(i, tuple(word.strip() for word in order.split(",") if word))
        kinds: list[Kind] = []
        faults: dict[str, list[str]] = {}
        for i in positions:
            found: Kind | Fault
            if i in wanted:
                column = self._text(i)
                found = fault_of(column, most_missing(options, column)) or wanted[i]
            else:
                found = kind_of(self.columns[i], options)
            if isinstance(found, Fault):
                faults.setdefault(found.remedy, []).append(f"{self._call(i)} has {found.words}")
            else:
                kinds.append(found)
        if faults:
            raise BadInput(". ".join(f"{_listed(w)}; {remedy}" for remedy, w in faults.items()))
        if options.dates is not None and DATE not in kinds:
            raise BadInput(f"--dates {options.dates}: no column has dates; leave it out")
        return tuple(kinds)

    def _named(self, option: str, names: Sequence[str], features: Sequence[int]) -> list[int]:
        """The positions of features that an option names."""
        found = [find_column(self.names or (), len(self.columns), option, n) for n in names]
        for i in (i for i in found if i not in features):
            raise BadInput(f"{option}: {self._call(i)} is no feature; name another column")
        return found

    def _order(self, i: int, order: tuple[str, ...]) -> tuple[str, ...]:
        """The categories of a column in the order given, else in that of the alphabet."""
        words = self._text(i)
        known = [str(word) for word in np.unique(words[words != ""])]
        left_out = [word for word in known if word not in order]
        if order and left_out:
            given = f"{left_out[0]!r}, which --ordinal {self._name(i)}={','.join(order)} has not"
            raise BadInput(f"{self._call(i)} has {given}; list all of its values, in their order")
        return order or tuple(known)

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

    def _text(self, i: int) -> Column:
        """The cells as text, "" where they are missing."""
        column = self.columns[i]
        return column if is_text(column) else np.where(np.isnan(column), "", self._words(i))

    def rows(self, layout: Layout) -> Matrix:
        """The features that a model wants: by name where there are names, else by position."""
        if self.names is not None and layout.names is not None:
            missing = [name for name in layout.names if name not in self.names]
            if missing:
                raise BadInput(
                    f"the data have no column {missing[0]!r}, which the model needs "
                    f"({len(missing)} missing); {nearest(missing[0], self.names)}"
                )
            found = [self.names.index(name) for name in layout.names]
            return self._matrix(found, layout)
        width = len(self.columns)
        if width not in (layout.n_features, layout.width):
            was = f"the model was fitted on {layout.n_features} features"
            raise BadInput(f"the data have {width} columns, but {was}")
        # A file without the target has exactly the features, in their order; one with it has the
        # columns of the training file.
        every = range(layout.n_features)
        places = every if width == layout.n_features else layout.positions or every
        return self._matrix(places, layout)

    def judged(self, layout: Layout, options: Judging) -> TableData:
        """Rows as a model takes them, and the target and groups to judge it by."""
        names, n = self.names or (), len(self.columns)
        goals = find_columns(names, n, "--target", options.target or layout.targets)
        if len(goals) != len(layout.targets):
            counts = f"{len(goals)} columns, and the model predicts {len(layout.targets)}"
            raise BadInput(f"--target names {counts}; name as many")
        groups = None
        if options.groups is not None:
            groups = self._beside("groups", find_column(names, n, "--groups", options.groups))
        first, *more = map(self._name, goals)
        named = replace(layout, target=first, more_targets=tuple(more))
        return TableData(self.rows(layout), self._target(goals), named, groups=groups)

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

    def _matrix(self, positions: Sequence[int], layout: Layout) -> AnyArray:
        """The features as a model takes them: numbers, or objects if some of them are words."""
        kinds = layout.kinds or (NUMBER,) * len(positions)
        features = [
            self._feature(i, kind, layout) for i, kind in zip(positions, kinds, strict=True)
        ]
        return np.column_stack(features)

    def _feature(self, i: int, kind: Kind, layout: Layout) -> Column:
        """A column as the model takes it: numbers, or words with None for missing cells."""
        column, called = self.columns[i] if kind == NUMBER else self._text(i), self._call(i)
        _check_feature(column, called, kind == NUMBER, len(column) if layout.may_miss else 0)
        if kind == NUMBER:
            return column.astype(np.float64)
        if kind == DATE:
            found = days(column, layout.dates)
            if found is None:
                raise BadInput(f"{called} has cells that are no dates of the format {layout.dates}")
            return found
        unknown = np.isin(column, ("", *kind), invert=True) if isinstance(kind, tuple) else ()
        for row in np.flatnonzero(unknown)[:1]:
            cell, order = f"{str(column[row])!r} in row {row + 1}", " < ".join(kind)
            raise BadInput(f"{called} has {cell}, not one of {order}")
        words = column.astype(object)
        words[column == ""] = None
        return words


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


def find_columns(names: Sequence[str], n: int, option: str, texts: Sequence[str]) -> list[int]:
    """Columns that are given one by one or as a list; a name may have a comma."""
    words = [
        word.strip() for text in texts for word in ([text] if text in names else text.split(","))
    ]
    found = [find_column(names, n, option, word) for word in words]
    for word in (word for word, i in zip(words, found, strict=True) if found.count(i) > 1):
        raise BadInput(f"{option} names {word!r} more than once; name every column once")
    return found


def assign_columns(
    names: Sequence[str], n: int, options: ModelOptions
) -> tuple[tuple[int, ...], list[int], dict[str, int]]:
    """The positions of features and target among n columns, and of the others by their role."""
    dropped = find_columns(names, n, "--drop", options.drop)
    named = {"groups": options.groups, "weights": options.weights, "id": options.id}
    beside = {
        role: find_column(names, n, f"--{role}", name)
        for role, name in named.items()
        if name is not None
    }
    left = [i for i in range(n) if i not in (*dropped, *beside.values())]
    if not left:
        raise BadInput("no columns are left; give fewer --drop")
    goals = left[-1:]
    last = max(i for i in range(n) if i not in dropped)
    for role in (role for role, i in beside.items() if i == last and not options.target):
        words = "is the last column, which is the target unless --target names another"
        raise BadInput(f"--{role} {named[role]!r} {words}; give --target")
    if options.target:
        goals = find_columns(names, n, "--target", options.target)
    for role in (role for role, i in beside.items() if i in goals):
        raise BadInput(f"--{role} {named[role]!r} is the target; name another column")
    features = tuple(i for i in left if i not in goals)
    if not features:
        raise BadInput("there is a target but no feature; the file needs two columns or more")
    return features, goals, beside


# Options that name columns of a table, or say what is in them.
_OF_COLUMNS = ("target", "groups", "weights", "id", "drop", "one_hot", "ordinal", "dates")


@dataclass(frozen=True)
class InputMatrix:
    """Features and, perhaps, a target, from a file that says itself which is which.

    ``index_base`` is the first index of an svmlight file, which need not have the last ones.
    """

    X: Matrix
    y: Column | None
    index_base: int | None = None

    def training(self, options: ModelOptions) -> TableData:
        """Features and target."""
        y, (n, d) = self._target(options), self.X.shape
        # Sparse rows that fit are faster and can be centred as a dense matrix.
        X = self.X.toarray() if is_sparse(self.X) and n * d <= _SMALL else self.X
        _check_matrix(X, most_missing(options, y))
        base = 1 if self.index_base is None else self.index_base
        may_miss = options.impute is not None
        return TableData(X, y, Layout(d, index_base=base, may_miss=may_miss))

    def rows(self, layout: Layout) -> Matrix:
        """The features that a model wants, whether or not there is a target."""
        _check_matrix(self.X, self.X.shape[0] if layout.may_miss else 0)
        X = self.X if self.index_base is None else self._aligned(layout)
        if X.shape[1] != layout.n_features:
            was = f"the model was fitted on {layout.n_features}"
            raise BadInput(f"the data have {X.shape[1]} features, but {was}")
        return X

    def judged(self, layout: Layout, options: Judging) -> TableData:
        """Rows as a model takes them, and their target."""
        return TableData(self.rows(layout), self._target(options), layout)

    def _target(self, options: ModelOptions | Judging) -> Column:
        """The target, which is there; no option may ask for columns, which are not."""
        for name in (name for name in _OF_COLUMNS if getattr(options, name, None)):
            raise BadInput(
                f"--{name.replace('_', '-')} does not apply: this kind of file has a fixed target "
                "and no other columns; use a table (CSV, Parquet)"
            )
        if self.y is None:
            raise BadInput("the file has no array 'y'; it needs X and y")
        y = _check_complete(self.y, "the target, 'y',")
        if len(y) != self.X.shape[0]:
            raise BadInput(f"X has {self.X.shape[0]} rows, but y has {len(y)}")
        return y

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


def _check_matrix(X: Matrix, most_missing: int) -> None:
    if X.shape[1] == 0:
        raise BadInput("the data have no features")
    wrong = ~np.isfinite(X.data if is_sparse(X) else X)
    if is_sparse(X) and wrong.any():
        raise BadInput(f"the features have {wrong.sum()} values that are NaN or infinite")
    for i in np.flatnonzero(wrong.any(axis=0)):
        _check_feature(X[:, i], f"column {i}", most_missing=most_missing)


def _check_feature(
    column: Column, called: str, is_numeric: bool = True, most_missing: int = 0
) -> None:
    if is_numeric and is_text(column):
        words = [str(cell) for cell in column]
        row = next((i for i, word in enumerate(words) if word and not is_number(word)), 0)
        cell = f"it has {words[row]!r} in row {row + 1}"
        raise BadInput(f"{called} is not numeric ({cell}); correct the cell")
    if fault := fault_of(column, most_missing):
        raise BadInput(f"{called} has {fault.words}; {fault.remedy}")


def _first(mask: AnyArray) -> int | None:
    """Where it is true for the first time."""
    return int(np.argmax(mask)) if mask.any() else None


def _check_complete(column: Column, called: str) -> Column:
    """The column without missing cells, labels as text."""
    if column.ndim != 1:
        raise BadInput(f"{called} has shape {column.shape}; it must be one column")
    found = column.astype(str) if is_text(column) else column
    _check_feature(found, called, is_numeric=False)
    return found


def _listed(faults: Sequence[str]) -> str:
    """The first of many, and how many more there are."""
    more = f", and {len(faults) - MOST_LISTED} more" if len(faults) > MOST_LISTED else ""
    return f"{', '.join(faults[:MOST_LISTED])}{more}"
