"""Intervals of a cross-validated score from what rows and folds contribute to it.

Nothing here knows models: all functions take arrays. Rows of held-out losses are not independent,
as models of different folds share most of their training rows, and the usual interval, the mean of
the rows' losses ± their standard error, is too narrow for small samples. The other methods allow
for that in different ways.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from everyfold._typing import Array, Index

# Differences of scores that are no larger, relative to the scores, say nothing.
_ROUNDING = 1e-12

# How much of the excess variance that nested cross-validation finds is added to that of the rows.
# As it is never subtracted, errors of the excess widen intervals on average. More is wider, less
# misses the truth more often where models of folds differ much. At 90 %, of four of the processes
# of ``benchmarks/interval_coverage.py`` ("linear", "20 columns", "two classes", "labels of noise"),
# 0.5, 0.75 and 1 covered 89, 91 and 92 in 150 draws; the other four were not looked at.
_EXCESS = 0.75

# The share of the variance of the rows' losses that the most extreme row has: squared errors of a
# normal distribution exceed it once in 50 samples of so many rows (``tails`` of
# ``benchmarks/interval_coverage.py``). Lower values would call more harmless samples heavy-tailed.
# Beyond 1000 rows the share stays, as a row with an eighth of the variance matters there too.
_ROWS = (30, 50, 100, 200, 500, 1000)
_LARGEST_SHARES = (0.79, 0.65, 0.50, 0.36, 0.21, 0.13)


@dataclass(frozen=True)
class Bounds:
    """An estimate with its interval.

    Attributes
    ----------
    estimate, low, high : float
    error : float
        The standard error that the interval is made of.
    freedom : float
        The degrees of freedom of its Student distribution.
    """

    estimate: float
    low: float
    high: float
    error: float
    freedom: float

    def within(self, least: float, most: float) -> Bounds:
        """The same, with ends that a score can have.

        The true score is between them, so that no interval contains it less often for that. Unlike
        a transformation it does nothing to intervals away from the ends, and needs no two of them.
        """
        low, estimate, high = np.clip([self.low, self.estimate, self.high], least, most).tolist()
        return replace(self, low=low, estimate=estimate, high=high)


def check_level(level: float, name: str = "level") -> None:
    """Refuse what is no probability."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"{name}={level!r} is not between 0 and 1; use 0.95")


def difference(first: Array, second: Array) -> Array:
    """First − second, where what is only rounding is 0.

    Otherwise two models that are the same, computed in two ways, might differ significantly.
    """
    found = first - second
    return np.where(np.abs(found) <= rounding_of(first, second), 0.0, found)


def rounding_of(first: Array, second: Array) -> Array:
    """How large differences of two scores may be and mean nothing, for each column."""
    size = np.fmax(np.abs(first), np.abs(second))
    return np.asarray(_ROUNDING * np.fmax.reduce(size, axis=0))


# -- by folds --------------------------------------------------------------------------------------


def spread_of_mean(scores: Array, ratio: float) -> Array:
    """The standard error of a mean over folds, (t, ...), whose training sets overlap.

    Nadeau and Bengio (2003): s² (1/t + n_test/n_train) in place of s²/t; 0 if all are the same.
    """
    spread = np.sqrt(scores.var(axis=0, ddof=1) * (1.0 / len(scores) + ratio))
    return np.where(np.ptp(scores, axis=0) == 0.0, 0.0, spread)


def corrected_t(scores: Array, ratio: float, level: float) -> Bounds:
    """Student's interval of a mean over folds, with the corrected variance.

    Parameters
    ----------
    scores : array of shape (t,)
    ratio : float
        Test rows for each training row.
    level : float
    """
    return student_bounds(
        float(scores.mean()), float(spread_of_mean(scores, ratio)), len(scores) - 1, level
    )


def interval_of_mean(scores: Array, ratio: float, level: float) -> tuple[float, float]:
    """The ends of ``corrected_t``."""
    found = corrected_t(scores, ratio, level)
    return found.low, found.high


def conservative_z(estimate: float, halves: Array, level: float) -> Bounds:
    """The conservative z interval of Nadeau and Bengio (2003).

    Parameters
    ----------
    estimate : float
        The score by cross-validation of all rows.
    halves : array of shape (m, 2)
        Scores by cross-validation of the two halves of the rows, for m random halvings. Both of
        a pair are independent of each other, so that half the mean square of their difference is
        the variance of a score of n/2 rows without bias. That of n rows is smaller.
    level : float
    """
    error = float(np.sqrt(0.5 * np.mean((halves[:, 0] - halves[:, 1]) ** 2)))
    return student_bounds(estimate, error, np.inf, level)


# -- by rows ---------------------------------------------------------------------------------------


def error_of_mean(rows: Array, units: Index | None = None) -> float:
    """The standard error of the mean of independent rows; of whole groups, if there are any.

    Examples
    --------
    >>> round(error_of_mean(np.array([1.0, 2.0, 3.0, 4.0])), 4)
    0.6455
    >>> round(error_of_mean(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])), 4)
    1.0
    """
    centred = rows - rows.mean()
    if units is not None:
        centred = np.bincount(units, centred)
        centred = centred[np.bincount(units) > 0]
    count = len(centred)
    if count < 2:
        return np.inf
    return float(np.sqrt(count / (count - 1) * np.sum(centred**2)) / len(rows))


def plain_normal(
    rows: Array,
    level: float,
    units: Index | None = None,
    values: tuple[float, float] | None = None,
) -> Bounds:
    """The mean of the rows ± its standard error (Bayle, Bayle, Janson and Mackey 2020).

    It is right for many rows and stable models. Student's quantile takes the place of the normal
    one, with as many degrees of freedom as there are rows or groups, less one. ``values`` are the
    two that a row can have, if there are only two.
    """
    count = len(rows) if units is None else len(np.unique(units))
    error = error_of_mean(rows, units)
    return _bounds(rows, float(rows.mean()), error, count - 1, level, values)


def nested_cv(
    rows: Array,
    inner: Array,
    outer: Array,
    noise: Array,
    n_folds: int,
    level: float,
    units: Index | None = None,
    values: tuple[float, float] | None = None,
) -> Bounds:
    """The interval by nested cross-validation of Bates, Hastie and Tibshirani (2023).

    Parameters
    ----------
    rows : array of shape (n,)
        What each row contributes to the score by cross-validation: its mean is the score.
    inner : array of shape (s,)
        The score by cross-validation of all rows but those of a fold, for all folds of all
        repetitions.
    outer : array of shape (s,)
        The score of the same fold by the model of all other rows.
    noise : array of shape (s,)
        The variance of each ``outer`` by its rows alone.
    n_folds : int
        How many folds there are in a repetition.
    level : float
    units : int array of shape (n,), optional
        The groups of the rows.
    values : tuple of two float, optional
        The two that a row can have, if there are only two.

    Notes
    -----
    The variance of inner − outer is that of the inner score around the truth plus the noise, which
    is known and is subtracted. What this is above the variance of ``plain_normal`` is added to it
    by three quarters. Otherwise it is as in the paper: the error is at most √n_folds times as large
    as that of ``plain_normal``, and the bias of training on fewer rows is removed. (There the mean
    square takes the place of the variance, which counts that bias once more.)
    """
    least = error_of_mean(rows, units)
    square = float(np.var(inner - outer) - np.mean(noise))
    excess = (n_folds - 1) / n_folds * square - least**2
    error = float(np.sqrt(least**2 + _EXCESS * np.clip(excess, 0.0, (n_folds - 1) * least**2)))
    plain = float(rows.mean())
    bias = (1.0 + (n_folds - 2) / n_folds) * (float(inner.mean()) - plain)
    count = len(rows) if units is None else len(np.unique(units))
    return _bounds(rows, float(inner.mean()) - bias, error, count - 1, level, values)


def of_pairs(wins: Array, level: float) -> Bounds:
    """The area under the ROC curve from leave-pair-out, with DeLong's variance.

    Parameters
    ----------
    wins : array of shape (positives, negatives)
        1 where the positive row of the pair has the larger value, 0.5 for ties, NaN for pairs that
        were not left out.
    level : float
    """
    of_positives, of_negatives = np.nanmean(wins, axis=1), np.nanmean(wins, axis=0)
    error = np.sqrt(
        of_positives.var(ddof=1) / len(of_positives) + of_negatives.var(ddof=1) / len(of_negatives)
    )
    freedom = min(wins.shape) - 1
    return student_bounds(float(np.nanmean(wins)), float(error), freedom, level)


def student_bounds(estimate: float, error: float, freedom: float, level: float) -> Bounds:
    """Estimate ± Student's quantile times its error."""
    half = error * float(student.ppf(0.5 + level / 2.0, freedom)) if error > 0.0 else 0.0
    return Bounds(estimate, estimate - half, estimate + half, error, freedom)


def _bounds(
    rows: Array,
    estimate: float,
    error: float,
    freedom: float,
    level: float,
    values: tuple[float, float] | None,
) -> Bounds:
    """Student's interval; Wilson's if a row can have one of two values only.

    Wilson's stays between the two, and is no point where all rows are alike. It counts as many
    independent rows as have the same error.
    """
    if values is None:
        return student_bounds(estimate, error, freedom, level)
    low, width, count = values[0], values[1] - values[0], float(len(rows))
    share = float(np.clip((estimate - low) / width, 0.0, 1.0))
    plain = float(rows.std()) / (width * np.sqrt(count))
    if error > 0.0:
        count *= min(1.0, (plain * width / error) ** 2)
    square = float(student.ppf(0.5 + level / 2.0, freedom)) ** 2 / count
    middle = (share + square / 2.0) / (1.0 + square)
    half = np.sqrt(share * (1.0 - share) * square + square**2 / 4.0) / (1.0 + square)
    ends = low + width * (middle - half), low + width * (middle + half)
    return Bounds(estimate, min(estimate, ends[0]), max(estimate, ends[1]), error, freedom)


def heaviest_share(rows: Array) -> float | None:
    """The share that one row has of the variance, if that tells of heavy tails; else None.

    A squared error of noise with fewer than four moments has no variance, so that no interval
    around its mean is right. Then one row has most of what is taken for the variance.

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_t(2, 300)
    >>> heaviest_share(noise**2) is None, heaviest_share(np.sin(noise)) is None
    (False, True)
    """
    squares = (rows - rows.mean()) ** 2
    total = float(squares.sum())
    if total == 0.0:
        return None
    share = float(squares.max() / total)
    most = float(np.interp(np.log(len(rows)), np.log(_ROWS), _LARGEST_SHARES))
    return share if share > most else None
