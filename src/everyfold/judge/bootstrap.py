"""BBC-CV: what selecting the best of many candidates adds to its score, by the bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold._typing import Array, Index, Params, Scorer
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.targets import Target

# Rows of bags that are scored at a time.
_MOST_VALUES = 1 << 22


@dataclass(frozen=True)
class HeldOutTable:
    """Held-out values of candidates for the same rows, each held out once.

    Attributes
    ----------
    target : Target
        Of all rows.
    rows : int array of shape (m,)
    values : sequence of arrays of shape (n, q)
        By candidate, in the order of all rows; NaN for others than ``rows``.
    """

    target: Target
    rows: Index
    values: Sequence[Array]

    def judge(self, scorer: Scorer, params: Params) -> FoldScorer:
        """Scores values of any rows; the scorer gets what ``params`` has of them, and no X."""
        y = self.target.truth
        return FoldScorer(scorer, self.target, (np.zeros((len(y), 1)), y), params, np.nan)


def bootstrap(
    table: HeldOutTable,
    judge: FoldScorer,
    groups: Index | None,
    count: int,
    random_state: int | None,
) -> Array:
    """The scores of ``count`` bootstraps, (count,).

    Rows (or groups of them) are drawn with replacement; the candidate with the best score on the
    bag is scored on the rows outside it. Tsamardinos, Greasidou and Borboudakis (2018).

    **Cost** for accuracy, squared and absolute errors and R² a product of (count × m) and
    (m × candidates) matrices; for other scorers a call for each bag and candidate.
    """
    counts = np.stack(list(_draws(table.rows, groups, count, np.random.default_rng(random_state))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bag of one class has no score, and does not count
        winners = np.argmax(_in_bags(judge, table, counts), axis=1)
        return _outside(judge, table, counts, winners)


def together(table: HeldOutTable, judge: FoldScorer) -> Array:
    """The scores of all candidates on all held-out rows together."""
    parts = [table.rows]
    return np.array([_scores(judge, table.target, own, parts)[0] for own in table.values])


def _draws(
    rows: Index, groups: Index | None, count: int, random: np.random.Generator
) -> Iterator[Index]:
    """How often each row is in each bag; some rows are outside of every one."""
    units, of_row = np.unique(rows if groups is None else groups, return_inverse=True)
    drawn = 0
    while drawn < count:
        times = np.bincount(random.integers(0, len(units), len(units)), minlength=len(units))
        if np.count_nonzero(times[of_row] == 0) > 1:
            drawn += 1
            yield times[of_row]


def _in_bags(judge: FoldScorer, table: HeldOutTable, counts: Index) -> Array:
    """What candidates are ranked by within bags, (bags, candidates)."""
    side = ScoredRows(table.target, (table.rows,))
    by_row = [judge.by_row(values[table.rows], side) for values in table.values]
    known = [own for own in by_row if own is not None]
    if len(known) == len(by_row):
        return np.asarray(counts @ np.stack(known, axis=1))
    parts = [np.repeat(table.rows, own) for own in counts]
    scores = [_scores(judge, table.target, values, parts) for values in table.values]
    return np.where(np.isnan(scores), -np.inf, scores).T


def _outside(judge: FoldScorer, table: HeldOutTable, counts: Index, winners: Index) -> Array:
    """The score of every bag's winner on the rows outside the bag."""
    scores = np.empty(len(counts))
    for winner in np.unique(winners).tolist():
        bags = np.flatnonzero(winners == winner)
        parts = [table.rows[counts[bag] == 0] for bag in bags]
        scores[bags] = _scores(judge, table.target, table.values[winner], parts)
    return scores


def _scores(judge: FoldScorer, target: Target, values: Array, parts: Sequence[Index]) -> Array:
    """The scores of one candidate on several sets of rows, as many at a time as memory allows."""
    step = max(1, _MOST_VALUES // max(len(part) for part in parts))
    found: list[float] = []
    for start in range(0, len(parts), step):
        side = ScoredRows(target, tuple(parts[start : start + step]))
        found += [float(score) for score in judge.score(values[side.rows], side, {})]
    return np.array(found)
