"""What a column of a table is to a model: numbers, dates, or words that are encoded.

``kind_of`` decides it, or says what is wrong with the column and what to do about it, so that all
such columns can be listed at once. ``encoder`` makes the step of a Pipeline that encodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from everyfold._typing import AnyArray, Array

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


@dataclass(frozen=True)
class Encoding:
    """What the options say of columns that are not plain numbers.

    ``one_hot`` and ``ordinal`` name columns, the latter with their order as ``name=a,b,c``;
    ``dates`` is the format of dates, "iso" or one of ``strftime``; ``impute`` a statistic.
    """

    one_hot: Sequence[str] = ()
    ordinal: Sequence[str] = ()
    dates: str | None = None
    impute: str | None = None

    def most_missing(self, column: Column) -> int:
        """How many cells of a column may be missing: with a statistic to put there, all but one."""
        return 0 if self.impute is None else len(column) - 1


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


def kind_of(column: Column, encoding: Encoding) -> Kind | Fault:
    """What a column is, if the options do not say it; or why it cannot be used as it is."""
    fault = fault_of(column, encoding.most_missing(column))
    if fault is not None:
        return fault
    if not is_text(column):
        return NUMBER
    if bad := bad_cell(column):
        return Fault(bad.words, f"{bad.remedy}, or take the cells for categories with --one-hot")
    example, known = str(column[np.argmax(column != "")]), column[column != ""]
    if pc.all(pc.match_substring_regex(pa.array(known), _DATE)).as_py():
        if encoding.dates is not None and days(column, encoding.dates) is not None:
            return DATE
        form = "" if encoding.dates is None else f", which are not of the format {encoding.dates}"
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
