"""How certain a score is, and whether one model or candidate is better than another.

``score_interval`` bootstraps a fitted search that kept its held-out values (``honest``) and
cross-validates any other model or search by the method that suits the data (``model_scores``).
``compare`` treats the difference of two models in the same way; candidates of a search are compared
by the scores of its folds. Training sets of different folds overlap, so that their scores are
correlated and Student's t-test finds differences where there are none: the tests here allow for
that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from everyfold._progress import warn
from everyfold._typing import (
    Array,
    Estimator,
    Mask,
    Matrix,
    Params,
    Scorer,
    Search,
    Splitter,
    Targets,
)
from everyfold.crossval import InexactWarning
from everyfold.engine.records import ESTIMATED
from everyfold.judge.fitted import (
    NO_SCORE,
    Unit,
    index_of,
    is_ours,
    ratio_of,
    score_table,
    statuses,
)
from everyfold.judge.honest import honest_score
from everyfold.judge.interval_methods import (
    check_level,
    corrected_t,
    difference,
    rounding_of,
    spread_of_mean,
)
from everyfold.judge.model_scores import ModelScores, RowMethod, judge_scores

IntervalMethod = Literal["auto", "bbc"] | RowMethod

METHODS: tuple[str, ...] = ("auto", "bbc", *get_args(RowMethod))


# -- The score of one model ------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreInterval:
    """A score with the interval that contains the true one with the probability ``level``.

    The true score is that of the model fitted to all rows, on new rows of the same kind.

    Attributes
    ----------
    estimate, low, high : float
    method : str
        The method that was used.
    why : str
        Why that one, and what it did.
    level : float
    error : float
        The standard error; NaN for "bbc", whose interval is made of percentiles.
    unit : {"row", "group"}
        What is taken to be independent.
    is_exact : bool
        Whether all held-out values equal those of refits.
    remarks : tuple of str
        What makes the interval doubtful, in sentences; empty if nothing is known to.
    """

    estimate: float
    low: float
    high: float
    method: str
    why: str
    level: float
    error: float
    unit: Unit = "row"
    is_exact: bool = True
    remarks: Sequence[str] = ()

    def __str__(self) -> str:
        share = f"{100.0 * self.level:g} %"
        return f"{self.estimate:.4g} ({share}: {self.low:.4g} to {self.high:.4g}), {self.method}"

    def _repr_html_(self) -> str:
        return escape(str(self))


def score_interval(
    search_or_estimator: Estimator,
    X: Matrix,
    y: Targets,
    *,
    cv: Splitter = 5,
    groups: ArrayLike | None = None,
    scoring: Scorer = None,
    method: IntervalMethod = "auto",
    level: float = 0.95,
    params: Params | None = None,
    random_state: int = 0,
) -> ScoreInterval:
    """The score of a model or search on new rows, with an interval.

    The usual interval, the mean ± its standard error over rows or folds, is too narrow for small
    samples, because models of different folds share their training rows. The methods here allow for
    that, and need many more folds, which for squared loss all follow from one fit.

    Parameters
    ----------
    search_or_estimator : estimator or search
        With scikit-learn's interface. A search is repeated on the training rows of every fold, so
        that the score is that of selecting and refitting. This is not needed if it is fitted to the
        same rows and kept all held-out values (``MethodOptions(keeps="all")``).
    X, y
    cv : int, splitter or iterable of splits, default=5
        A number means shuffled folds, repeated where that helps; stratified for classifiers, and
        with whole groups if there are any. Other folds are used as they are.
    groups : array of shape (n_samples,), optional
        Rows of a group depend on each other. They are held out together, and the sample size is the
        number of groups, not of rows.
    scoring : str, callable or None, default=None
        One scorer; None means the estimator's own score, or that by which a search selects.
    method : str, default="auto"
        "normal": the standard error of the rows (Bayle et al. 2020), for the area under the ROC
        curve that of DeLong et al. (1988), which is also called "delong". "corrected-t": the
        variance of repeated folds, corrected for their overlap (Nadeau and Bengio 2003).
        "conservative-z": from scores of disjoint halves (the same paper). "nested": nested
        cross-validation (Bates, Hastie and Tibshirani 2023). "pairs": the area under the ROC curve
        by leaving out pairs of rows (Airola et al. 2011). "bbc": bootstrap of a fitted search's
        held-out rows (:func:`everyfold.judge.honest_score`). "auto" chooses, and ``why`` says why.
    level : float, default=0.95
    params : dict, optional
        Passed to ``fit``: ``sample_weight``, which is for the last step of a Pipeline. As in
        :func:`cross_val_score`, scores do not weight rows.
    random_state : int, default=0
        Seed of shuffled folds, halves and bootstrap samples.

    Returns
    -------
    interval : ScoreInterval

    Warns
    -----
    UserWarning
        If errors have such heavy tails that no interval of their mean is right.

    Notes
    -----
    **Cost** with k folds: "normal" k fits, "corrected-t" 10 k, "conservative-z" 21 k, "nested" 5 k
    (k + 1) / 2, "pairs" as many as there are pairs (10,000 at most). For squared loss all of them
    follow from one factorisation, and "nested" is repeated up to 25 times instead of 5. Searches
    are repeated 3 times where models are repeated 5 or 10 times. Ends that no score can have, such
    as an accuracy above 1, are cut off. **Exact?** The held-out values are those of refits; how
    often the intervals contain the truth is measured by ``benchmarks/interval_coverage.py``.

    Examples
    --------
    >>> from everyfold import score_interval
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> found = score_interval(Ridge(alpha=0.1), X, y)
    >>> found.method, round(found.estimate, 2), found.low < 0.48 < found.high
    ('nested', 0.49, True)
    """
    check_level(level)
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known; use one of {list(METHODS)}")
    model = search_or_estimator
    if method == "bbc" or (
        method == "auto" and params is None and _can_bootstrap(model, scoring, groups)
    ):
        return _by_bootstrap(model, groups, level, random_state)
    scores = ModelScores([model], X, y, groups, scoring, cv, random_state, params=params)
    found = judge_scores(scores, method, level)
    own = found.bounds if scores.metric is None else found.bounds.within(*scores.metric.ends)
    return ScoreInterval(
        own.estimate,
        own.low,
        own.high,
        found.method,
        found.words,
        level,
        own.error,
        scores.unit,
        found.is_exact,
        found.remarks,
    )


def _can_bootstrap(search: Search, scoring: Scorer, groups: ArrayLike | None) -> bool:
    """Whether a fitted search has all that BBC needs, and nothing else was asked for."""
    if scoring is not None or not is_ours(search):
        return False
    is_other = groups is not None and "groups" not in (search._given.params or {})
    return search._keeper.keeps == "all" and isinstance(search.refit, bool) and not is_other


def _by_bootstrap(
    search: Search, groups: ArrayLike | None, level: float, random_state: int
) -> ScoreInterval:
    """The interval of ``honest_score``."""
    given: Params = {} if groups is None else {"groups": groups}
    found = honest_score(search, "bbc", confidence=level, random_state=random_state, **given)
    why = "the search kept the held-out values of all candidates, so that nothing need be fitted"
    return ScoreInterval(
        found.estimate,
        *found.interval,
        "bbc",
        f"{why}: {found.method}",
        level,
        float("nan"),
        found.unit,
        found.is_exact,
    )


# -- The difference of two -------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Two candidates, models or searches on the same rows and folds.

    Attributes
    ----------
    difference : float
        The first score minus the second.
    statistic : float
        The difference divided by its standard error; infinite if all folds or rows agree.
    pvalue : float
        Two-sided: the probability of such a large statistic if both are equally good.
    interval : tuple (low, high)
        Of the difference.
    confidence : float
    is_exact : bool
        Whether the scores of both equal those of refits.
    status : tuple of str
        How certain the scores of both candidates are, in the words of ``cv_results_["status"]``;
        of models whether all of their held-out values are exact.
    unit : {"row", "group"}
        What is taken to be independent: "group" if there are groups and no fold of the search
        divides one of them.
    margin : float
        Differences up to this count as none in the three probabilities.
    p_better, p_equal, p_worse : float
        The probabilities that the first is better than the second by more than ``margin``, that
        they differ by no more, and that it is worse by more: the correlated Bayesian t-test
        (Benavoli et al. 2017), whose posterior is Student's with the same error.
    method : str
        "corrected-t", or another method of :func:`score_interval`.
    why : str
        Why that one, and what it did.
    remarks : tuple of str
        What makes the comparison doubtful, in sentences.
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
    method: str = "corrected-t"
    why: str = ""
    remarks: Sequence[str] = ()

    def __str__(self) -> str:
        low, high = self.interval
        share = f"{100.0 * self.confidence:g} %: {low:.4g} to {high:.4g}"
        return (
            f"difference {self.difference:.4g} ({share}), p-value {self.pvalue:.2g}, {self.method}"
        )

    def _repr_html_(self) -> str:
        return escape(str(self))


def compare(
    a: int | Estimator,
    b: int | Estimator,
    X: Matrix = None,
    y: Targets = None,
    *,
    search: Search | None = None,
    cv: Splitter = 5,
    groups: Targets = None,
    scoring: Scorer = None,
    metric: str | None = None,
    method: Literal["auto"] | RowMethod = "auto",
    level: float = 0.95,
    margin: float = 0.0,
    params: Params | None = None,
    random_state: int = 0,
) -> Comparison:
    """Compare two models or searches on the same rows, or two candidates of a fitted search.

    Parameters
    ----------
    a, b : estimators or searches, or int
        With ``search``, indices in its ``cv_results_``.
    X, y
        The rows; with ``search`` those of its ``fit``, which scikit-learn's own searches need if
        their splitter does not tell the sizes of its folds.
    search : fitted search, optional
        One of this library, or scikit-learn's own. Its candidates are compared by the scores of
        its folds with the corrected resampled t-test (Nadeau and Bengio 2003).
    cv, scoring, params, random_state
        As in :func:`score_interval`, for models: both are evaluated on the same folds.
    groups : array of shape (n_samples,), optional
    metric : str, optional
        Which metric of a search, if there are several; by default the one that ``refit`` names.
    method : str, default="auto"
        For models, a method of :func:`score_interval`. It is applied to the contributions of the
        rows or folds to the difference of the scores.
    level : float, default=0.95
        The probability with which the interval is to contain the difference.
    margin : float, default=0.0
        Differences up to this size count as equal in ``p_better``, ``p_equal`` and ``p_worse``.

    Returns
    -------
    comparison : Comparison

    Notes
    -----
    **Cost** and **Exact?** As in :func:`score_interval`, for both models; nothing is fitted for
    candidates of a search.

    Examples
    --------
    >>> from everyfold import compare
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> found = compare(Ridge(alpha=0.1), Ridge(alpha=10.0), X, y)
    >>> round(found.difference, 2), found.p_better > 0.99
    (0.32, True)
    >>> search = GridSearchCV(KernelRidge(), {"alpha": [0.1, 10.0]}).fit(X, y - y.mean())
    >>> found = compare(0, 1, search=search)
    >>> round(found.difference, 2), found.p_better > 0.99
    (0.34, True)
    """
    if search is None:
        _check_asked(level, margin)
        _check_models(a, b, X, y, method)
        scores = ModelScores([a, b], X, y, groups, scoring, cv, random_state, params=params)
        return _of_models(scores, method, level, margin)
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


def _check_models(a: Estimator, b: Estimator, X: Matrix, y: Targets, method: str) -> None:
    if not (hasattr(a, "fit") and hasattr(b, "fit")):
        raise ValueError(
            f"a={a!r} and b={b!r} are no estimators; pass two estimators or searches with X and y, "
            "or two indices of candidates with search="
        )
    if method not in ("auto", *get_args(RowMethod)):
        raise ValueError(
            f"method={method!r} is not known; use one of {['auto', *get_args(RowMethod)]}"
        )
    if X is None or y is None:
        raise ValueError("models are compared on rows; pass the data: X=..., y=...")


def _of_models(
    scores: ModelScores, method: Literal["auto"] | RowMethod, level: float, margin: float
) -> Comparison:
    """Two models or searches by the methods of ``score_interval``."""
    found = judge_scores(scores, method, level)
    own, status = found.bounds, "exact" if found.is_exact else "inexact"
    return replace(
        _tested(own.estimate, own.error, own.freedom, (own.low, own.high), level, margin),
        is_exact=found.is_exact,
        status=(status, status),
        unit=scores.unit,
        method=found.method,
        why=found.words,
        remarks=found.remarks,
    )


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
    is_worse = worse_candidates(search, confidence, ratio_of(search, X, y, groups)[0], metric)
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
    search: Search, confidence: float, ratio: float, metric: str | None = None
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
    is_worse: Mask = (differences.mean(axis=0) > bound * spread_of_mean(differences, ratio)) | (
        ~is_known
    )
    return is_worse


def _check_asked(level: float, margin: float) -> None:
    check_level(level)
    if not margin >= 0.0:
        raise ValueError(f"margin={margin!r} is negative; use 0 or the smallest gain that matters")


def corrected_test(
    first: Array, second: Array, ratio: float, level: float, margin: float
) -> Comparison:
    """The corrected resampled t-test of two columns of scores, and its Bayesian reading."""
    _check_asked(level, margin)
    found = corrected_t(_differences(first, second), ratio, level)
    interval = found.low, found.high
    return _tested(found.estimate, found.error, found.freedom, interval, level, margin)


def _tested(
    mean: float,
    error: float,
    freedom: float,
    interval: tuple[float, float],
    level: float,
    margin: float,
) -> Comparison:
    """A difference with its test, and with the probabilities of Student's posterior."""
    statistic = mean / error if error > 0.0 else np.copysign(np.inf, mean) if mean else 0.0
    pvalue = 2.0 * float(student.sf(abs(statistic), freedom))
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
    """First − second, by folds: without rounding, and equal where it is the same for all."""
    found = difference(first, second)
    least = rounding_of(first, second)
    return np.where(np.ptp(found, axis=0) <= least, found[0], found)
