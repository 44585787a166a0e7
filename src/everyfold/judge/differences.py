"""Is one candidate, model or search better than another? Tests on the scores of the same folds.

Training sets of different folds overlap, so that their scores are correlated and Student's t-test
finds differences where there are none. The corrected tests here allow for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from everyfold._progress import warn
from everyfold._typing import Array, Mask, Matrix, Search, Targets
from everyfold.crossval import InexactWarning
from everyfold.engine.records import ESTIMATED
from everyfold.judge.fitted import (
    NO_SCORE,
    Unit,
    index_of,
    ratio_of,
    score_table,
    statuses,
)
from everyfold.judge.interval_methods import check_level, interval_of_mean, spread_of_mean

# Differences of scores that are no larger, relative to the scores, say nothing.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Comparison:
    """Two candidates, models or searches on the same folds, by the corrected resampled t-test.

    Attributes
    ----------
    difference : float
        The mean over the folds of the first score minus the second.
    statistic : float
        The difference divided by its corrected standard error; infinite if all folds agree.
    pvalue : float
        Two-sided: the probability of such a large statistic if both are equally good.
    interval : tuple (low, high)
        Of the difference.
    confidence : float
    is_exact : bool
        Whether the scores of both equal those of refits.
    status : tuple of str
        How certain the scores of the first and of the second are, in the words of
        ``cv_results_["status"]``.
    unit : {"row", "group"}
        What the folds hold out and the variance is corrected for: "group" if there are groups and
        no fold divides one of them.
    margin : float
        Differences up to this count as none in the three probabilities.
    p_better, p_equal, p_worse : float
        The probabilities that the first is better than the second by more than ``margin``, that
        they differ by no more, and that it is worse by more: the correlated Bayesian t-test
        (Benavoli et al. 2017), whose posterior is Student's with the same corrected error.
    """

    difference: float
    statistic: float
    pvalue: float
    interval: tuple[float, float]
    confidence: float
    is_exact: bool = True
    status: tuple[str, str] = ("exact", "exact")
    unit: Unit = "row"
    margin: float = 0.0
    p_better: float = 0.5
    p_equal: float = 0.0
    p_worse: float = 0.5


def compare(
    a: int,
    b: int,
    X: Matrix = None,
    y: Targets = None,
    *,
    search: Search,
    groups: Targets = None,
    metric: str | None = None,
    level: float = 0.95,
    margin: float = 0.0,
) -> Comparison:
    """Compare two candidates by the corrected resampled t-test (Nadeau and Bengio 2003).

    Parameters
    ----------
    a, b : int
        Indices in ``cv_results_``.
    X, y, groups
        The data of ``fit``, which scikit-learn's own searches need if their splitter does not tell
        the sizes of its folds.
    search : fitted search
        One of this library, or scikit-learn's own.
    metric : str, optional
        Which metric, if there are several; by default the one that ``refit`` names.
    level : float, default=0.95
        The probability with which the interval is to contain the difference.
    margin : float, default=0.0
        Differences up to this are none in ``p_better``, ``p_equal`` and ``p_worse``.

    Returns
    -------
    comparison : Comparison

    Examples
    --------
    >>> from everyfold import compare
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = GridSearchCV(KernelRidge(), {"alpha": [0.1, 10.0]}).fit(X, y - y.mean())
    >>> found = compare(0, 1, search=search)
    >>> round(found.difference, 2), found.p_better > 0.99
    (0.34, True)
    """
    table = score_table(search, metric)
    a, b = index_of(search, a), index_of(search, b)
    if a == b:
        raise ValueError(f"candidate {a} cannot be compared with itself; pass another one")
    for k in (a, b):
        if not np.isfinite(table[:, k]).all():
            fold = int(np.flatnonzero(~np.isfinite(table[:, k]))[0])
            raise ValueError(
                f"candidate {k} has the score {table[fold, k]} on fold {fold}, so that it cannot "
                "be compared; choose another candidate, or see the warnings of the search"
            )
    ratio, unit = ratio_of(search, X, y, groups)
    found = corrected_test(table[:, a], table[:, b], ratio, level, margin)
    is_exact, status = statuses(search)
    both = str(status[a]), str(status[b])
    return replace(found, is_exact=bool(is_exact[[a, b]].all()), status=both, unit=unit)


def significantly_worse(
    search: Search,
    confidence: float = 0.95,
    X: Matrix = None,
    y: Targets = None,
    *,
    groups: Targets = None,
    metric: str | None = None,
) -> Mask:
    """Which candidates are significantly worse than the best, by one-sided corrected t-tests.

    Candidates without a score on every fold count as worse. There is no correction for multiple
    testing.

    Parameters
    ----------
    search : fitted search
        One of this library, or scikit-learn's own.
    confidence : float, default=0.95
    X, y, groups, metric
        As in :func:`compare`.

    Returns
    -------
    is_worse : bool array of shape (n_candidates,)

    Warns
    -----
    InexactWarning
        If scores of some candidates are only estimated, as those that a search leaves behind
        at low rank: whether they are worse is then estimated, too.
    """
    is_worse = worse_candidates(search, confidence, X, y, groups=groups, metric=metric)
    is_estimated = statuses(search)[1] == ESTIMATED
    if is_estimated.any():
        warn(
            f"the scores of {np.count_nonzero(is_estimated)} of {len(is_worse)} candidates are "
            f"only estimated (cv_results_['status']), and by these "
            f"{np.count_nonzero(is_estimated & is_worse)} of them are worse than the best; "
            "method='exact' evaluates every candidate on its folds",
            InexactWarning,
        )
    return is_worse


def worse_candidates(
    search: Search,
    confidence: float = 0.95,
    X: Matrix = None,
    y: Targets = None,
    *,
    groups: Targets = None,
    metric: str | None = None,
) -> Mask:
    """As ``significantly_worse``, without a warning of scores that are only estimated."""
    check_level(confidence, "confidence")
    table = score_table(search, metric)
    means = table.mean(axis=0)
    if not np.isfinite(means).any():
        raise ValueError(NO_SCORE)
    best = int(np.argmax(np.where(np.isfinite(means), means, -np.inf)))
    is_known = np.isfinite(table).all(axis=0)
    differences = _differences(table[:, [best]], np.where(is_known, table, table[:, [best]]))
    bound = float(student.ppf(confidence, len(table) - 1))
    ratio, _ = ratio_of(search, X, y, groups)
    is_worse: Mask = (differences.mean(axis=0) > bound * spread_of_mean(differences, ratio)) | (
        ~is_known
    )
    return is_worse


def corrected_test(
    first: Array, second: Array, ratio: float, level: float, margin: float
) -> Comparison:
    """The corrected resampled t-test of two columns of scores, and its Bayesian reading."""
    check_level(level)
    if not margin >= 0.0:
        raise ValueError(f"margin={margin!r} is negative; use 0 or the smallest gain that matters")
    differences = _differences(first, second)
    mean, error = float(differences.mean()), float(spread_of_mean(differences, ratio))
    freedom = len(differences) - 1
    statistic = mean / error if error > 0.0 else np.copysign(np.inf, mean) if mean else 0.0
    pvalue = 2.0 * float(student.sf(abs(statistic), freedom))
    interval = interval_of_mean(differences, ratio, level)
    if error > 0.0:
        p_better = float(student.sf((margin - mean) / error, freedom))
        p_worse = float(student.cdf((-margin - mean) / error, freedom))
    else:  # nothing varies, so that nothing is uncertain, unless both are the same
        p_better, p_worse = float(mean > margin), float(mean < -margin)
        if mean == margin == 0.0:
            p_better = p_worse = 0.5
    p_equal = max(0.0, 1.0 - p_better - p_worse)
    return Comparison(
        mean,
        float(statistic),
        pvalue,
        interval,
        level,
        margin=margin,
        p_better=p_better,
        p_equal=p_equal,
        p_worse=p_worse,
    )


def _differences(first: Array, second: Array) -> Array:
    """First − second, by folds: what is only rounding is 0, and what is the same for all is equal.

    Otherwise two candidates of the same model, computed in two ways, might differ significantly.
    """
    differences = first - second
    least = _ROUNDING * np.maximum(np.abs(first), np.abs(second)).max(axis=0)
    differences = np.where(np.abs(differences) <= least, 0.0, differences)
    return np.where(np.ptp(differences, axis=0) <= least, differences[0], differences)
