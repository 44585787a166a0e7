"""The score of the winner of a search without the bias of selecting it.

BBC-CV bootstraps the held-out rows: in each bag the best candidate is selected, and scored by the
rows outside. Nested cross-validation repeats the search on the training rows of outer folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Literal

import numpy as np
from sklearn import get_config, model_selection
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, StratifiedKFold

from everyfold._sklearn_private import MultimetricScorer, num_samples
from everyfold._typing import Array, Index, Mask, Matrix, Params, Scorer, Search, Splitter, Targets
from everyfold.engine.reading.reader import splits_of
from everyfold.engine.request import Metadata, Request
from everyfold.engine.results import is_rule
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.estimators.targets import Target
from everyfold.functions.cross_val import cross_val_score
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.judge.fitted import (
    NO_SCORE,
    Unit,
    check_table,
    given_params,
    groups_of,
    is_ours,
    ratio_of_splits,
)
from everyfold.judge.interval_methods import check_level, interval_of_mean
from everyfold.judge.row_scores import read_metric

# Rows of bags that are scored at a time.
_MOST_VALUES = 1 << 22


# -- BBC-CV: the bootstrap of held-out rows --------------------------------------------------------


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
    # A bag of one class has no score, and does not count.
    with warnings.catch_warnings(action="ignore"):
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


# -- The score without selection bias --------------------------------------------------------------


@dataclass(frozen=True)
class HonestScore:
    """An estimate of what selecting and refitting achieves on new rows.

    Attributes
    ----------
    estimate : float
    interval : tuple (low, high)
    confidence : float
        Of the interval.
    bias : float
        By how much the winner's score is too optimistic: ``best_score_`` − estimate; for "bbc" the
        best score of all held-out rows together − estimate, because both score the rows together.
    method : str
        How the estimate was computed, in words.
    unit : {"row", "group"}
        What was resampled: single rows, or whole groups of rows. Groups are drawn by "bbc" if
        ``fit`` was given any, and held out by outer folds that divide none of them.
    scores : array
        The scores of the bootstrap samples or outer folds; the estimate is their mean.
    is_exact : bool
        Whether all values that were used equal those of refits; for "bbc" those of all candidates.
    """

    estimate: float
    interval: tuple[float, float]
    confidence: float
    bias: float
    method: str
    scores: Array = field(repr=False)
    is_exact: bool = True
    unit: Unit = "row"

    def __str__(self) -> str:
        low, high = self.interval
        share = f"{100.0 * self.confidence:g} %: {low:.4g} to {high:.4g}"
        return f"{self.estimate:.4g} ({share}), {self.method}, selection bias {self.bias:.2g}"

    def _repr_html_(self) -> str:
        return escape(str(self))


def honest_score(
    search: Search,
    method: Literal["bbc", "nested", "repeated"] = "bbc",
    X: Matrix = None,
    y: Targets = None,
    *,
    confidence: float = 0.95,
    outer: Splitter = None,
    n_repeats: int = 5,
    n_bootstraps: int = 1000,
    random_state: int | None = 0,
    **params: object,
) -> HonestScore:
    """Estimate the score of the selected model on new rows, without selection bias.

    Parameters
    ----------
    search : fitted search
        One of this library, or scikit-learn's own, for which "bbc" is not possible.
    method : {"bbc", "nested", "repeated"}, default="bbc"
        "bbc" draws bootstrap samples of the held-out rows, selects the best candidate on each
        sample and scores it on the rows that were not drawn (BBC-CV, Tsamardinos et al. 2018).
        It fits nothing, and needs ``MethodOptions(keeps="all")`` and folds that hold no row out
        twice. Scores are computed for all rows together, not as means over folds. The interval
        consists of percentiles. "nested" repeats the search on the training rows of every outer
        fold, with shared work (:func:`cross_val_score`). "repeated" does so on ``n_repeats``
        repetitions of shuffled outer folds. Both return means over outer folds; their interval
        is Student's, with a variance corrected for overlapping training sets (Nadeau and Bengio
        2003).
    X, y
        The data passed to ``fit``, for "nested" and "repeated"; other rows raise an error.
    confidence : float, default=0.95
        Of the interval.
    outer : int, splitter or None, default=None
        Outer folds; None means the ``cv`` of the search. "repeated" needs a number of folds.
    n_repeats, n_bootstraps : int
    random_state : int or None, default=0
        Seed of the bootstrap samples, and of the folds of "repeated".
    **params
        ``sample_weight``, ``groups``, …; by default those of ``fit``. "bbc" draws whole
        ``groups``, and scores rows with their weights, as scikit-learn's searches do; the outer
        folds of the other methods get the groups.

    Returns
    -------
    score : HonestScore

    Examples
    --------
    >>> from everyfold.judge import honest_score
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> y = y - y.mean()
    >>> search = GridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}).fit(X, y)
    >>> found = honest_score(search, "nested", X, y, outer=5)
    >>> round(found.estimate, 2), found.interval[0] < found.estimate
    (0.48, True)
    """
    check_table(search)
    _check_asked(search, method, confidence, params.get("groups"))
    passed = {name: value for name, value in params.items() if value is not None}
    params = {**given_params(search), **passed}
    if method == "bbc":
        best, scores, n_groups = _bootstrapped(search, params, n_bootstraps, random_state)
        drawn = f"{n_groups} whole groups of held-out rows" if n_groups else "held-out rows"
        words = f"BBC-CV: {n_bootstraps} bootstraps of {drawn}, scored outside the bag"
        inexact = np.count_nonzero(_have_scores(search) & ~search.cv_results_["is_exact"])
        if inexact:
            words += f"; of {inexact} candidates by approximate values"
        tails = (1.0 - confidence) / 2.0
        low, high = np.quantile(scores, [tails, 1.0 - tails]).tolist()
        found = _record(scores, (low, high), confidence, best, words)
        return replace(found, is_exact=not inexact, unit="group" if n_groups else "row")
    if isinstance(X, RowSource) or is_lazy(X):
        raise ValueError(
            f"method={method!r} needs single rows of X, which are not available for a source "
            "of rows; pass an array"
        )
    if X is None or y is None:
        raise ValueError(f"method={method!r} repeats the search; pass the data: X=..., y=...")
    _check_rows(search, X, y, params)
    repeats = n_repeats if method == "repeated" else None
    splits = _outer(search, X, y, params, outer, repeats, random_state)
    again = clone(search)
    again.refit = search.refit or True  # every outer fold needs its winner
    score = cross_val_score if is_ours(search) else model_selection.cross_val_score
    scores = score(again, X, y, cv=splits, params=params)
    if np.isnan(scores).any():
        raise ValueError(
            f"outer fold {int(np.argmax(np.isnan(scores)))} has no score; use other outer "
            "folds, or another scoring"
        )
    split = search._get_routed_params_for_fit(params).splitter.split
    ratio, unit = ratio_of_splits(splits, groups_of(split.get("groups", params.get("groups"))))
    words = f"nested cross-validation on {len(splits)} outer folds"
    words += " of whole groups" if unit == "group" else ""
    if method == "repeated":
        words += f", {n_repeats} times {len(splits) // n_repeats}"
    interval = interval_of_mean(scores, ratio, confidence)
    metric = read_metric(search, None)
    # Student's interval knows nothing of ends that no score can have. What a rule of the user's own
    # selects by may be another score.
    if metric is not None and np.array_equal(np.clip(scores, *metric.ends), scores):
        low, high = np.clip(interval, *metric.ends).tolist()
        interval = low, high
    found = _record(scores, interval, confidence, _score_of_winner(search), words)
    return replace(found, unit=unit)


def _score_of_winner(search: Search) -> float:
    """The mean score of what was selected; NaN if no single metric says how good that is."""
    if callable(search.refit) and not search.multimetric_:  # scikit-learn has no best_score_ then
        return float(search.cv_results_["mean_test_score"][search.best_index_])
    return float(getattr(search, "best_score_", np.nan))


def _check_asked(search: Search, method: str, confidence: float, groups: Targets) -> None:
    check_level(confidence, "confidence")
    if method not in ("bbc", "nested", "repeated"):
        raise ValueError(f"method={method!r} is not known; use 'bbc', 'nested' or 'repeated'")
    if np.isnan(_score_of_winner(search)):
        if not search.multimetric_:
            raise ValueError(NO_SCORE)
        raise ValueError(
            "the search has no best_score_, as no single metric decides; use refit=True, or "
            "refit='<metric>'"
        )
    if method == "bbc" and not is_ours(search):
        raise ValueError(
            "method='bbc' needs the held-out values of all candidates, and "
            f"{type(search).__name__} keeps scores only; use method='nested' with X and y, or "
            "everyfold.FastGridSearchCV with the same arguments and "
            "method=everyfold.papers.MethodOptions(keeps='all')"
        )
    if method == "bbc" and is_rule(search.refit):
        raise ValueError(
            f"method='bbc' selects by the best score, but refit={search.refit!r} is another "
            "rule; use method='nested'"
        )
    if groups is not None and groups_of(groups) is None:
        raise ValueError(
            "groups has a different label for every row, so that there are no groups; leave it out"
        )


def _check_rows(search: Search, X: Matrix, y: Targets, params: Params) -> None:
    """Refuse other rows than those of ``fit``: their score is not that of this search."""
    differences = search._given.differences(X, y, params) if is_ours(search) else ()
    if differences:
        raise ValueError(
            f"this differs from what fit was given: {', '.join(differences)}; pass the same rows "
            "and parameters, or nest the search on others by cross_val_score(search, X, y)"
        )


def _have_scores(search: Search) -> Mask:
    """Which candidates were selected from."""
    name = search.refit if search.multimetric_ else "score"
    is_known: Mask = np.isfinite(search.cv_results_[f"mean_test_{name}"])
    return is_known


def _check_kept(search: Search) -> None:
    """Refuse to leave candidates out of the selection that have scores and no values."""
    lacks = np.array([search._keeper.lacks(number) for number in search._numbers])
    lost = np.flatnonzero(_have_scores(search) & lacks)
    if len(lost):
        raise ValueError(
            f"{len(lost)} candidates (number {lost[0]} is the first) were refitted as "
            "scikit-learn does, so that they have no held-out values; use method='nested'"
        )


def _bootstrapped(
    search: Search, params: Params, n_bootstraps: int, random_state: int | None
) -> tuple[float, Array, int]:
    """The best score of all rows together, the scores of bootstraps, the number of groups."""
    if n_bootstraps < 2:
        raise ValueError(f"n_bootstraps={n_bootstraps} is too few; use 1000")
    table = search._keeper.table(search._numbers)
    _check_kept(search)
    _check_params(params, len(table.target.truth))
    routed = search._get_routed_params_for_fit(params)
    rest = dict(routed.scorer.score)
    groups = groups_of(routed.splitter.split.get("groups", params.get("groups")))
    labels = None if groups is None else groups[table.rows]
    n_groups = 0 if labels is None else len(np.unique(labels))
    if n_groups == 1:
        raise ValueError(
            "groups has the same label for all held-out rows, so that no sample of groups "
            "leaves rows out; pass groups of several labels"
        )
    scorer = search.scorer_
    if search.multimetric_:
        scorer = _one_metric(scorer, str(search.refit), has_params=bool(rest))
    judge = table.judge(scorer, rest)
    scores = bootstrap(table, judge, labels, n_bootstraps, random_state)
    if np.isnan(scores).all():
        raise ValueError(
            "no bootstrap sample has a score; the metric needs more rows or more classes"
        )
    return float(np.nanmax(together(table, judge))), scores[~np.isnan(scores)], n_groups


def _outer(
    search: Search,
    X: Matrix,
    y: Targets,
    params: Params,
    outer: Splitter,
    n_repeats: int | None,
    random_state: int | None,
) -> list[tuple[Index, Index]]:
    """The outer folds; refuses classes that some of them would lack."""
    if is_ours(search):
        asked, *_ = clone(search)._request(X, y, params)
    else:
        split = Metadata(split=search._get_routed_params_for_fit(params).splitter.split)
        asked = Request(search.estimator, [{}], X, y, search.cv, None, split)
    asked = asked.indexed()
    cvs = [asked.cv if outer is None else outer]
    if n_repeats is not None:
        has_groups = asked.metadata.split.get("groups") is not None
        cvs = _shuffled(search, outer, n_repeats, random_state, has_groups=has_groups)
    if is_classifier(search):
        # Folds of single rows take a row of each class, however many there are.
        are_single = isinstance(search.cv, LeaveOneOut)
        usual = None if are_single else search.n_splits_
        _check_classes(y, usual if outer is None else outer, 2 if are_single else search.n_splits_)
    splits = [split for cv in cvs for split in splits_of(replace(asked, cv=cv))]
    if len(splits) < 2:
        raise ValueError(
            f"outer={outer!r} has one fold, but an interval needs at least 2; use outer=5, "
            "for example"
        )
    everything = np.arange(num_samples(X))
    return [(everything[train], everything[test]) for train, test in splits]


def _check_params(params: Params, n: int) -> None:
    """Refuse what no ``fit`` takes, and values of other rows than those that were held out."""
    unknown = [name for name in params if name not in ("groups", "sample_weight")]
    unknown = [name for name in unknown if "__" not in name]
    if unknown and not get_config()["enable_metadata_routing"]:
        raise ValueError(
            f"{unknown[0]} is not known; pass the same parameters as to fit: sample_weight (for "
            "a Pipeline step__sample_weight) and groups"
        )
    for name in ("groups", "sample_weight"):
        count = n if params.get(name) is None else num_samples(params[name])
        if count != n:
            raise ValueError(
                f"{name} has {count} entries, and the search was fitted to {n} rows; pass it as to "
                "fit"
            )


def _one_metric(scorer: Scorer, name: str, *, has_params: bool) -> Scorer:
    """The scorer of one of several metrics; a user's function may give all of them at once.

    Weights are for those of several that take them, which scikit-learn's scorer of several knows.
    """
    if isinstance(scorer, Mapping):
        if not has_params:
            return scorer[name]
        scorer = MultimetricScorer(scorers={name: scorer[name]})
    return lambda *rows, **params: scorer(*rows, **params)[name]


def _record(
    scores: Array, interval: tuple[float, float], confidence: float, best: float, words: str
) -> HonestScore:
    estimate = float(scores.mean())
    return HonestScore(estimate, interval, confidence, best - estimate, words, scores)


def _shuffled(
    search: Search, outer: Splitter, n_repeats: int, seed: int | None, *, has_groups: bool
) -> list[Splitter]:
    """Folds of the same number, shuffled anew each time."""
    count = search.n_splits_ if outer is None else outer
    if not isinstance(count, int | np.integer) or n_repeats < 2:
        raise ValueError(
            "method='repeated' needs a number of folds as outer and n_repeats >= 2, got "
            f"outer={outer!r} and n_repeats={n_repeats}; use outer=5, or method='nested' for a "
            "splitter"
        )
    kind = GroupKFold if has_groups else StratifiedKFold if is_classifier(search) else KFold
    seeds = np.random.default_rng(seed).integers(0, 2**31 - 1, n_repeats)
    return [kind(int(count), shuffle=True, random_state=int(s)) for s in seeds]


def _check_classes(y: Targets, outer: Splitter | None, inner: int) -> None:
    """Refuse a class that has too few rows for every fold of both loops to have one."""
    n_outer = outer if isinstance(outer, int) else getattr(outer, "n_splits", None)
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    rare, count = classes.tolist()[int(np.argmin(counts))], int(counts.min())
    if n_outer is None:
        return
    left = count - -(-count // n_outer)
    if count < n_outer or left < inner:
        raise ValueError(
            f"class {rare!r} has {count} rows, too few for {n_outer} outer folds with {inner} "
            "inner folds each; use fewer folds (outer=, cv=), or leave the class out"
        )
