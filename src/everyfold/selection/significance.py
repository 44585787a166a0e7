"""Is one candidate better than another? Tests on the scores of the same folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

from everyfold.evaluate.data import Data
from everyfold.types import Array, Index, Mask

Unit = Literal["row", "group"]
"""What is drawn or held out as a whole."""

_ROUNDING = 1e-12
"""Differences of scores that are no larger, relative to the scores, say nothing."""


@dataclass(frozen=True)
class Comparison:
    """Two candidates on the same folds, by the corrected resampled t-test.

    Attributes
    ----------
    difference : float
        The mean over the folds of the first score minus the second.
    statistic : float
        The difference divided by its corrected standard error; infinite if all folds agree.
    pvalue : float
        Two-sided: the probability of such a large statistic if both candidates are equally good.
    interval : tuple (low, high)
        Of the difference.
    confidence : float
    is_exact : bool
        Whether the scores of both equal those of refits.
    status : tuple of str
        How certain the scores of the first and of the second are, in the words of
        ``cv_results_["status"]``.
    unit : {"row", "group"}
        What the folds hold out and the variance is corrected for: "group" if ``fit`` was given
        groups and no fold divides one of them.
    """

    difference: float
    statistic: float
    pvalue: float
    interval: tuple[float, float]
    confidence: float
    is_exact: bool = True
    status: tuple[str, str] = ("exact", "exact")
    unit: Unit = "row"


def check_confidence(confidence: float) -> None:
    """Refuse what is no probability."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence!r} is not between 0 and 1; use 0.95")


def test_ratio(data: Data, n_splits: int, groups: Index | None) -> tuple[float, Unit]:
    """How many test rows (or whole groups) a fold has for each of training, over all folds."""
    if groups is not None and data.stream is None:
        splits = data.splits
        if data.tasks:
            splits = [(fold.train, fold.test) for fold in data.tasks[0].folds]
        ratio = ratio_of_groups(splits, groups)
        if ratio is not None:
            return ratio, "group"
    return _ratio_of_rows(data, n_splits), "row"


def ratio_of_groups(splits: Sequence[tuple[Index, Index]], groups: Index) -> float | None:
    """How many test groups there are for each training group; None if a fold divides a group."""
    counts = np.zeros(2, dtype=np.intp)
    for train, test in splits:
        first, second = np.unique(groups[train]), np.unique(groups[test])
        if len(np.intersect1d(first, second, assume_unique=True)):
            return None
        counts += len(first), len(second)
    return float(counts[1] / counts[0])


def _ratio_of_rows(data: Data, n_splits: int) -> float:
    if data.stream is not None:  # every row is held out by one fold
        return 1.0 / max(1, n_splits - 1)
    if not data.tasks:
        return sum(data.sizes) / sum(len(train) for train, _ in data.splits)
    folds = data.tasks[0].folds
    trains = folds.n - folds.sizes
    for i, fold in folds.odd.items():
        trains[i] = len(fold.train)
    return float(folds.bounds[-1] / trains.sum())


def spread_of_mean(scores: Array, ratio: float) -> Array:
    """The standard error of a mean over folds, (t, ...), whose training sets overlap.

    Nadeau and Bengio (2003): s² (1/t + n_test/n_train) in place of s²/t.
    """
    spread: Array = np.sqrt(scores.var(axis=0, ddof=1) * (1.0 / len(scores) + ratio))
    return spread


def _differences(first: Array, second: Array) -> Array:
    """First − second, by folds: what is only rounding is 0, and what is the same for all is equal.

    Otherwise two candidates of the same model, computed in two ways, might differ significantly.
    """
    differences = first - second
    least = _ROUNDING * np.maximum(np.abs(first), np.abs(second)).max(axis=0)
    differences = np.where(np.abs(differences) <= least, 0.0, differences)
    return np.where(np.ptp(differences, axis=0) <= least, differences[0], differences)


def interval_of_mean(scores: Array, ratio: float, confidence: float) -> tuple[float, float]:
    """Student's interval of a mean over folds, with the corrected variance."""
    mean, error = float(scores.mean()), float(spread_of_mean(scores, ratio))
    error = 0.0 if np.ptp(scores) == 0.0 else error
    half = error * float(student.ppf(0.5 + confidence / 2.0, len(scores) - 1))
    return mean - half, mean + half


def compare(table: Array, i: int, j: int, ratio: float, confidence: float) -> Comparison:
    """The corrected resampled t-test of two columns of a table of folds and candidates."""
    check_confidence(confidence)
    for k in (i, j):
        if not np.isfinite(table[:, k]).all():
            fold = int(np.flatnonzero(~np.isfinite(table[:, k]))[0])
            raise ValueError(
                f"candidate {k} has the score {table[fold, k]} on fold {fold}, so that it cannot "
                "be compared; choose another candidate, or see the warnings of the search"
            )
    differences = _differences(table[:, i], table[:, j])
    mean, error = float(differences.mean()), float(spread_of_mean(differences, ratio))
    error = 0.0 if np.ptp(differences) == 0.0 else error
    statistic = mean / error if error > 0.0 else np.copysign(np.inf, mean) if mean else 0.0
    pvalue = 2.0 * float(student.sf(abs(statistic), len(table) - 1))
    interval = interval_of_mean(differences, ratio, confidence)
    return Comparison(mean, float(statistic), pvalue, interval, confidence)


def worse(table: Array, best: int, ratio: float, confidence: float) -> Mask:
    """Which candidates are worse than the best by a one-sided corrected t-test.

    Those without a score on every fold are.
    """
    check_confidence(confidence)
    if not np.isfinite(table[:, best]).all():
        raise ValueError(
            f"the best candidate, {best}, has no score on some folds, so that other candidates "
            "cannot be compared with it; see the warnings of the search"
        )
    is_known = np.isfinite(table).all(axis=0)
    differences = _differences(table[:, [best]], np.where(is_known, table, table[:, [best]]))
    bound = float(student.ppf(confidence, len(table) - 1))
    error = np.where(np.ptp(differences, axis=0) == 0.0, 0.0, spread_of_mean(differences, ratio))
    is_worse: Mask = (differences.mean(axis=0) > bound * error) | ~is_known
    return is_worse
