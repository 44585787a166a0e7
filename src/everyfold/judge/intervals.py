"""How certain a cross-validated score is: an interval by the method that suits the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from numpy.typing import ArrayLike

from everyfold._progress import warn
from everyfold._typing import Estimator, Matrix, Params, Scorer, Search, Splitter, Targets
from everyfold.judge.fitted import Unit, is_ours
from everyfold.judge.honest import honest_score
from everyfold.judge.interval_methods import check_level
from everyfold.judge.model_scores import ModelScores, RowMethod, choose, remarks_on

IntervalMethod = Literal["auto", "bbc"] | RowMethod

METHODS: tuple[str, ...] = ("auto", "bbc", *get_args(RowMethod))


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
    why = "as asked for"
    if method == "auto":
        method, why = choose(scores)
    found = scores.judge(method, level)
    remarks = remarks_on(scores, found)
    for words in remarks:
        warn(words)
    own = found.bounds if scores.metric is None else found.bounds.within(*scores.metric.ends)
    return ScoreInterval(
        own.estimate,
        own.low,
        own.high,
        method,
        f"{why}: {found.words}",
        level,
        own.error,
        scores.unit,
        found.is_exact,
        remarks,
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
