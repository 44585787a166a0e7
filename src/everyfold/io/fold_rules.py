"""Which fold each row of a source belongs to.

The fold follows from the number of the row or from a column, block by block, so that no list of all
rows is needed and nothing is shuffled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from sklearn.model_selection import KFold, PredefinedSplit

from everyfold._typing import Index, Splitter
from everyfold.io.base import RowSource
from everyfold.io.blocks import Block

# The same as scikit-learn's.
DEFAULT_FOLDS = 5


class FoldRule(ABC):
    """The fold of every row; −1 is a row that is never held out.

    ``n_folds`` is the number of folds, None if only the rows show it.
    """

    n_folds: int | None

    @abstractmethod
    def numbers(self, block: Block) -> Index:
        """The fold of each row of a block."""


@dataclass(frozen=True)
class Consecutive(FoldRule):
    """Runs of consecutive rows, as scikit-learn's ``KFold`` without shuffling."""

    n: int
    n_folds: int

    def numbers(self, block: Block) -> Index:
        """See base class."""
        sizes = np.full(self.n_folds, self.n // self.n_folds, dtype=np.intp)
        sizes[: self.n % self.n_folds] += 1
        rows = np.arange(block.start, block.start + len(block))
        return np.searchsorted(np.cumsum(sizes), rows, side="right")


class GivenFolds(FoldRule):
    """A number for every row."""

    def __init__(self, fold: Index) -> None:
        self.fold, self.n_folds = fold, len(np.unique(fold[fold >= 0]))

    def numbers(self, block: Block) -> Index:
        """See base class."""
        return self.fold[block.start : block.start + len(block)]


class Column(FoldRule):
    """The fold column of the source."""

    n_folds = None

    def numbers(self, block: Block) -> Index:
        """See base class."""
        assert block.fold is not None
        return np.asarray(block.fold, dtype=np.intp)


class Everything(FoldRule):
    """No folds: a fit on all rows."""

    n_folds = 0

    def numbers(self, block: Block) -> Index:
        """See base class."""
        return np.full(len(block), -1, dtype=np.intp)


def read_rule(cv: Splitter, source: RowSource) -> FoldRule:
    """The rule of a ``cv`` argument.

    None is the fold column of the source if it has one and 5 folds if not; a number of folds cuts
    the rows, whose number must be known, into runs.
    """
    if cv is None:
        first = next(iter(source.blocks(1)))
        return _cut(DEFAULT_FOLDS, source) if first.fold is None else Column()
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        return _cut(int(cv), source)
    if type(cv) is KFold and not cv.shuffle:
        return _cut(cv.n_splits, source)
    if source.n_rows is not None and type(cv) is KFold:
        fold = np.empty(source.n_rows, dtype=np.intp)
        for k, (_, test) in enumerate(cv.split(np.empty((source.n_rows, 0)))):
            fold[test] = k
        return GivenFolds(fold)
    if type(cv) is PredefinedSplit:
        if source.n_rows is not None and len(cv.test_fold) != source.n_rows:
            raise ValueError(
                f"cv=PredefinedSplit names folds of {len(cv.test_fold)} rows, but the source has "
                f"{source.n_rows}"
            )
        return GivenFolds(np.asarray(cv.test_fold, dtype=np.intp))
    raise ValueError(
        f"cv={cv!r} needs all rows at once; for a source of rows use a number of folds, KFold, "
        "PredefinedSplit, or None and a fold column in the source"
    )


def _cut(t: int, source: RowSource) -> FoldRule:
    if t < 2:
        raise ValueError(f"cv={t} is not allowed; use at least 2 folds")
    assert source.n_rows is not None
    if source.n_rows < t:
        raise ValueError(f"cv={t} is more than the {source.n_rows} rows of the source")
    return Consecutive(source.n_rows, t)
