"""Which fold a row of a source belongs to, by its number or by a column: no shuffle needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from sklearn.model_selection import KFold, PredefinedSplit

from everyfold._typing import Index, Splitter
from everyfold.io.base import RowSource
from everyfold.io.blocks import Block

DEFAULT_FOLDS = 5


class FoldRule(ABC):
    """The fold of every row; −1 is a row that is never held out."""

    @property
    @abstractmethod
    def n_folds(self) -> int | None:
        """The number of folds, None if only the rows tell."""

    @abstractmethod
    def numbers(self, block: Block) -> Index:
        """The fold of each row of a block."""


@dataclass(frozen=True)
class Consecutive(FoldRule):
    """t runs of consecutive rows, as scikit-learn's ``KFold`` without shuffling."""

    n: int
    t: int

    @property
    def n_folds(self) -> int | None:
        """See base class."""
        return self.t

    def numbers(self, block: Block) -> Index:
        """See base class."""
        sizes = np.full(self.t, self.n // self.t, dtype=np.intp)
        sizes[: self.n % self.t] += 1
        rows = np.arange(block.start, block.start + len(block))
        return np.searchsorted(np.cumsum(sizes), rows, side="right")


@dataclass(frozen=True)
class GivenFolds(FoldRule):
    """A number for every row."""

    fold: Index

    @property
    def n_folds(self) -> int | None:
        """See base class."""
        return len(np.unique(self.fold[self.fold >= 0]))

    def numbers(self, block: Block) -> Index:
        """See base class."""
        return self.fold[block.start : block.start + len(block)]


class Column(FoldRule):
    """The fold column of the source."""

    @property
    def n_folds(self) -> int | None:
        """See base class."""
        return None

    def numbers(self, block: Block) -> Index:
        """See base class."""
        assert block.fold is not None
        return np.asarray(block.fold, dtype=np.intp)


class Everything(FoldRule):
    """No folds: a fit on all rows."""

    @property
    def n_folds(self) -> int | None:
        """See base class."""
        return 0

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
