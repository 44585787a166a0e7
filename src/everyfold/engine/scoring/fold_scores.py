"""The scores of folds as arrays: a million folds are not a million numbers or dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold._typing import Array, Index, Mask, Score

# With more folds, ``cv_results_`` has only means and standard deviations, no column for each fold.
MOST_COLUMNS = 1000


@dataclass(frozen=True)
class FoldScores(Sequence[Score]):
    """One score a fold, or one of every scorer by name; reads like a list of them.

    Attributes
    ----------
    columns : mapping
        By the name of the scorer, "score" if there is one, the scores of all folds.
    is_multimetric : bool
        Whether an entry is a dictionary.
    is_known : bool array, optional
        The folds that have scores; the entries of others are None. All have, if it is None.

    Examples
    --------
    >>> scores = FoldScores({"score": np.array([0.5, 0.75])}, False)
    >>> list(scores), scores[1]
    ([0.5, 0.75], 0.75)
    """

    columns: Mapping[str, Array]
    is_multimetric: bool
    is_known: Mask | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            columns = {name: scores[i] for name, scores in self.columns.items()}
            is_known = None if self.is_known is None else self.is_known[i]
            return FoldScores(columns, self.is_multimetric, is_known)
        if self.is_known is not None and not self.is_known[i]:
            return None
        found = {name: float(scores[i]) for name, scores in self.columns.items()}
        return found if self.is_multimetric else found["score"]

    def __iter__(self) -> Iterator[Score]:
        lists = [scores.tolist() for scores in self.columns.values()]
        rows: Iterator[Score] = iter(lists[0])
        if self.is_multimetric:
            rows = (
                dict(zip(self.columns, values, strict=True)) for values in zip(*lists, strict=True)
            )
        if self.is_known is None:
            return rows
        return (row if known else None for row, known in zip(rows, self.is_known, strict=True))

    def column(self, name: str) -> Array:
        """The scores of all folds by one scorer; NaN where there is none."""
        scores = self.columns.get(name if self.is_multimetric else "score")
        if scores is None:
            return np.full(len(self), np.nan)
        return scores if self.is_known is None else np.where(self.is_known, scores, np.nan)


def column(scores: Sequence[Score], name: str) -> Array:
    """The scores of all folds by one scorer; NaN where there is none.

    Examples
    --------
    >>> column([0.5, None], "score")
    array([0.5, nan])
    >>> column([{"r2": 0.5}], "r2")
    array([0.5])
    """
    if isinstance(scores, FoldScores):
        return scores.column(name)
    found = [score.get(name) if isinstance(score, dict) else score for score in scores]
    return np.array(found, dtype=np.float64)


def moved(scores: Sequence[Score], shifts: Mapping[str, float]) -> Sequence[Score]:
    """The scores of all folds with the same added to each, by scorer.

    Examples
    --------
    >>> list(moved([0.5, None], {"score": 0.25}))
    [0.75, None]
    >>> moved([{"r2": 0.5, "mse": -1.0}], {"r2": 0.25})[0]
    {'r2': 0.75, 'mse': -1.0}
    """
    if isinstance(scores, FoldScores):
        columns = {name: own + shifts.get(name, 0.0) for name, own in scores.columns.items()}
        return replace(scores, columns=columns)
    return [_moved(score, shifts) for score in scores]


def _moved(score: Score, shifts: Mapping[str, float]) -> Score:
    if isinstance(score, dict):
        return {name: own + shifts.get(name, 0.0) for name, own in score.items()}
    return None if score is None else score + shifts.get("score", 0.0)


def names_of(scores: Sequence[Score]) -> list[str]:
    """The names of the scorers, as far as one fold has them.

    A fold that fails before any has several scores may have the score of failures instead.
    """
    if isinstance(scores, FoldScores):
        return list(scores.columns)
    return next((list(score) for score in scores if isinstance(score, dict)), ["score"])


def placed(scores: Sequence[Score], where: Index, size: int) -> Sequence[Score]:
    """Scores of some folds among those of all, where the others have none."""
    if len(where) == size:
        return scores
    if not isinstance(scores, FoldScores):
        among_all: list[Score] = [None] * size
        for i, score in zip(where.tolist(), scores, strict=True):
            among_all[i] = score
        return among_all
    is_known = np.zeros(size, dtype=bool)
    is_known[where] = True if scores.is_known is None else scores.is_known
    columns = {name: np.full(size, np.nan) for name in scores.columns}
    for name, found in scores.columns.items():
        columns[name][where] = found
    return FoldScores(columns, scores.is_multimetric, is_known)
