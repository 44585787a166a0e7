"""Scores of a search: of every fold, of the winner without selection bias, and comparisons."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.stats import t as student
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from everyfold._progress import warn
from everyfold._sklearn_private import MultimetricScorer, num_samples
from everyfold._typing import Array, Index, Mask, Matrix, Params, Refit, Scorer, Splitter, Targets
from everyfold.crossval import InexactWarning
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.reading.reader import splits_of
from everyfold.engine.records import ESTIMATED, Data
from everyfold.engine.results import is_rule, read_fold
from everyfold.functions.cross_val import cross_val_score
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.search.bootstrap import bootstrap, together
from everyfold.search.fit_inputs import FitInputs, groups_of
from everyfold.search.predictions import PredictionStore


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


class HonestSearch:
    """The part of a search that evaluates its own results."""

    _given: FitInputs
    _keeper: PredictionStore
    _numbers: list[int]
    _ratio: float
    _unit: Unit = "row"
    _by_fold: Mapping[str, Sequence[Array]]
    cv: Splitter
    refit: Refit
    multimetric_: bool
    cv_results_: Params
    scorer_: Scorer
    best_score_: float
    best_index_: int
    n_splits_: int
    plan_: SearchPlan
    _get_routed_params_for_fit: Callable[[Params], Bunch]  # scikit-learn's

    @abstractmethod
    def _index(self, candidate: int | None) -> int:
        """A candidate's place in the table; the best by default."""

    def honest_score(
        self,
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
        """
        check_is_fitted(self, "cv_results_")
        self._check_honest(method, confidence, params.get("groups"))
        passed = {name: value for name, value in params.items() if value is not None}
        params = {**(self._given.params or {}), **passed}
        if method == "bbc":
            best, scores, n_groups = self._bootstrapped(params, n_bootstraps, random_state)
            drawn = f"{n_groups} whole groups of held-out rows" if n_groups else "held-out rows"
            words = f"BBC-CV: {n_bootstraps} bootstraps of {drawn}, scored outside the bag"
            inexact = np.count_nonzero(self._have_scores() & ~self.cv_results_["is_exact"])
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
        self._check_rows(X, y, params)
        repeats = n_repeats if method == "repeated" else None
        splits = self._outer(X, y, params, outer, repeats, random_state)
        search = clone(self)
        search.refit = self.refit or True  # every outer fold needs its winner
        scores = cross_val_score(search, X, y, cv=splits, params=params)
        if np.isnan(scores).any():
            raise ValueError(
                f"outer fold {int(np.argmax(np.isnan(scores)))} has no score; use other outer "
                "folds, or another scoring"
            )
        ratio, unit = self._outer_ratio(splits, params)
        words = f"nested cross-validation on {len(splits)} outer folds"
        words += " of whole groups" if unit == "group" else ""
        if method == "repeated":
            words += f", {n_repeats} times {len(splits) // n_repeats}"
        interval = interval_of_mean(scores, ratio, confidence)
        found = _record(scores, interval, confidence, self._score_of_winner, words)
        return replace(found, unit=unit)

    def fold_scores(self, candidate: int | None = None, name: str | None = None) -> Array:
        """The scores of all folds of a candidate.

        With up to 1,000 folds these are also columns of ``cv_results_``; with more they are only
        available here.

        Parameters
        ----------
        candidate : int, optional
            Its index in ``cv_results_``; the best if None.
        name : str, optional
            The name of a column of ``cv_results_`` without the split: "test_score", "train_score",
            "test_r2". None means the score that decided.

        Returns
        -------
        scores : array of shape (n_splits,)

        Examples
        --------
        >>> from everyfold import FastGridSearchCV, LSSVR
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> search = FastGridSearchCV(LSSVR(gamma=1.0), {"alpha": [0.1, 1.0]}, cv=5).fit(X, y)
        >>> search.fold_scores().round(2), round(float(search.fold_scores(1).mean()), 2)
        (array([0.42, 0.53, 0.5 , 0.44, 0.55]), 0.45)
        """
        index = self._index(candidate)
        if name is None:
            is_named = self.multimetric_ and isinstance(self.refit, str)
            name = f"test_{self.refit if is_named else 'score'}"
        return read_fold(self.cv_results_, self._by_fold, name, index)

    def compare(
        self, i: int, j: int, *, metric: str | None = None, confidence: float = 0.95
    ) -> Comparison:
        """Compare two candidates by the corrected resampled t-test (Nadeau and Bengio 2003).

        Parameters
        ----------
        i, j : int
            Indices in ``cv_results_``.
        metric : str, optional
            Which metric, if there are several; by default the one that ``refit`` names.
        confidence : float, default=0.95
            Of the interval.

        Returns
        -------
        comparison : Comparison
            ``difference`` of the mean scores, ``statistic``, ``pvalue`` and ``interval``;
            ``is_exact`` and ``status`` say whether they rest on scores that are only estimated.
        """
        table = self._table(metric)
        i, j = self._index(i), self._index(j)
        if i == j:
            raise ValueError(f"candidate {i} cannot be compared with itself; pass another j")
        found = compare(table, i, j, self._ratio, confidence)
        is_exact = bool(self.cv_results_["is_exact"][[i, j]].all())
        first, second = map(str, self.cv_results_["status"][[i, j]])
        return replace(found, is_exact=is_exact, status=(first, second), unit=self._unit)

    def significantly_worse(self, confidence: float = 0.95, *, metric: str | None = None) -> Mask:
        """Which candidates are significantly worse than the best, by one-sided corrected t-tests.

        Candidates without a score on every fold count as worse. There is no correction for multiple
        testing.

        Returns
        -------
        is_worse : bool array of shape (n_candidates,)

        Warns
        -----
        InexactWarning
            If scores of some candidates are only estimated, as those that a search leaves behind
            at low rank: whether they are worse is then estimated, too.
        """
        is_worse = self._worse(confidence, metric)
        is_estimated = self.cv_results_["status"] == ESTIMATED
        if is_estimated.any():
            warn(
                f"the scores of {np.count_nonzero(is_estimated)} of {len(is_worse)} candidates are "
                f"only estimated (cv_results_['status']), and by these "
                f"{np.count_nonzero(is_estimated & is_worse)} of them are worse than the best; "
                "method='exact' evaluates every candidate on its folds",
                InexactWarning,
            )
        return is_worse

    def _worse(self, confidence: float = 0.95, metric: str | None = None) -> Mask:
        """The same without a word about scores that are only estimated."""
        table = self._table(metric)
        means = table.mean(axis=0)
        if not np.isfinite(means).any():
            raise ValueError(_NO_SCORE)
        best = int(np.argmax(np.where(np.isfinite(means), means, -np.inf)))
        return worse(table, best, self._ratio, confidence)

    def _table(self, metric: str | None) -> Array:
        """The scores of folds and candidates by one metric."""
        check_is_fitted(self, "cv_results_")
        if metric is None:
            metric = self.refit if self.multimetric_ and isinstance(self.refit, str) else "score"
        prefix = "mean_test_"
        known = [key.removeprefix(prefix) for key in self.cv_results_ if key.startswith(prefix)]
        if metric not in known:
            raise ValueError(f"metric={metric!r} is not one of the search; use one of {known}")
        if self.plan_.pooled:
            raise ValueError(
                "scores are pooled over all rows, so that their variation over folds is not "
                "known; use folds of several rows, or scoring=everyfold.scorers.pooled(..., False)"
            )
        if self.n_splits_ < 2:
            raise ValueError(
                "a test of candidates needs scores of at least 2 folds; use another cv"
            )
        count = len(self.cv_results_["params"])
        return np.stack([self.fold_scores(k, f"test_{metric}") for k in range(count)], axis=1)

    @property
    def _score_of_winner(self) -> float:
        """The mean score of what was selected; NaN if no single metric says how good that is."""
        if callable(self.refit) and not self.multimetric_:  # scikit-learn has no best_score_ then
            return float(self.cv_results_["mean_test_score"][self.best_index_])
        return float(getattr(self, "best_score_", np.nan))

    def _check_honest(self, method: str, confidence: float, groups: Targets) -> None:
        check_confidence(confidence)
        if method not in ("bbc", "nested", "repeated"):
            raise ValueError(f"method={method!r} is not known; use 'bbc', 'nested' or 'repeated'")
        if np.isnan(self._score_of_winner):
            if not self.multimetric_:
                raise ValueError(_NO_SCORE)
            raise ValueError(
                "the search has no best_score_, as no single metric decides; use refit=True, or "
                "refit='<metric>'"
            )
        if method == "bbc" and is_rule(self.refit):
            raise ValueError(
                f"method='bbc' selects by the best score, but refit={self.refit!r} is another "
                "rule; use method='nested'"
            )
        if groups is not None and groups_of({"groups": groups}, {}) is None:
            raise ValueError(
                "groups has a different label for every row, so that there are no groups; leave "
                "it out"
            )

    def _check_rows(self, X: Matrix, y: Targets, params: Params) -> None:
        """Refuse other rows than those of ``fit``: their score is not that of this search."""
        differences = self._given.differences(X, y, params)
        if differences:
            raise ValueError(
                f"not what fit was given: {', '.join(differences)}; pass the same rows and "
                "parameters, or nest the search on others by cross_val_score(search, X, y)"
            )

    def _have_scores(self) -> Mask:
        """Which candidates were selected from."""
        name = self.refit if self.multimetric_ else "score"
        is_known: Mask = np.isfinite(self.cv_results_[f"mean_test_{name}"])
        return is_known

    def _check_kept(self) -> None:
        """Refuse to leave candidates out of the selection that have scores and no values."""
        lacks = np.array([self._keeper.lacks(number) for number in self._numbers])
        lost = np.flatnonzero(self._have_scores() & lacks)
        if len(lost):
            raise ValueError(
                f"{len(lost)} candidates (number {lost[0]} is the first) were refitted as "
                "scikit-learn does, so that they have no held-out values; use method='nested'"
            )

    def _bootstrapped(
        self, params: Params, n_bootstraps: int, random_state: int | None
    ) -> tuple[float, Array, int]:
        """The best score of all rows together, the scores of bootstraps, the number of groups."""
        if n_bootstraps < 2:
            raise ValueError(f"n_bootstraps={n_bootstraps} is too few; use 1000")
        table = self._keeper.table(self._numbers)
        self._check_kept()
        _check_params(params, len(table.target.truth))
        routed = self._get_routed_params_for_fit(params)
        rest = dict(routed.scorer.score)
        groups = groups_of(routed.splitter.split, params)
        labels = None if groups is None else groups[table.rows]
        n_groups = 0 if labels is None else len(np.unique(labels))
        if n_groups == 1:
            raise ValueError(
                "groups has the same label for all held-out rows, so that no sample of groups "
                "leaves rows out; pass groups of several labels"
            )
        scorer = self.scorer_
        if self.multimetric_:
            scorer = _one_metric(scorer, str(self.refit), has_params=bool(rest))
        judge = table.judge(scorer, rest)
        scores = bootstrap(table, judge, labels, n_bootstraps, random_state)
        if np.isnan(scores).all():
            raise ValueError(
                "no bootstrap sample has a score; the metric needs more rows or more classes"
            )
        return float(np.nanmax(together(table, judge))), scores[~np.isnan(scores)], n_groups

    def _outer_ratio(
        self, splits: Sequence[tuple[Index, Index]], params: Params
    ) -> tuple[float, Unit]:
        """Test rows for each training row of the outer folds; whole groups if they divide none."""
        groups = groups_of(self._get_routed_params_for_fit(params).splitter.split, params)
        ratio = None if groups is None else ratio_of_groups(splits, groups)
        if ratio is not None:
            return ratio, "group"
        rows = sum(len(test) for _, test in splits), sum(len(train) for train, _ in splits)
        return rows[0] / rows[1], "row"

    def _outer(
        self,
        X: Matrix,
        y: Targets,
        params: Params,
        outer: Splitter,
        n_repeats: int | None,
        random_state: int | None,
    ) -> list[tuple[Index, Index]]:
        """The outer folds; refuses classes that some of them would lack."""
        asked, _ = clone(self)._request(X, y, params)
        asked = asked.indexed()
        cvs = [asked.cv if outer is None else outer]
        if n_repeats is not None:
            has_groups = asked.metadata.split.get("groups") is not None
            cvs = _shuffled(self, outer, n_repeats, random_state, has_groups=has_groups)
        if is_classifier(self):
            _check_classes(y, cvs[0] if outer is not None else self.n_splits_, self.n_splits_)
        splits = [split for cv in cvs for split in splits_of(replace(asked, cv=cv))]
        if len(splits) < 2:
            raise ValueError(
                f"outer={outer!r} has one fold, but an interval needs at least 2; use outer=5, "
                "for example"
            )
        everything = np.arange(num_samples(X))
        return [(everything[train], everything[test]) for train, test in splits]


_NO_SCORE = (
    "no candidate has a score on every fold, so that none is the best; the warnings of the search "
    "say why: use another scoring, other folds, or other parameters"
)


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
    search: HonestSearch, outer: Splitter, n_repeats: int, seed: int | None, *, has_groups: bool
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


def _check_classes(y: Targets, outer: Splitter, inner: int) -> None:
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


# -- Is one candidate better than another? Tests on the scores of the same folds ------------------


# What is drawn or held out as a whole.
Unit = Literal["row", "group"]

# Differences of scores that are no larger, relative to the scores, say nothing.
_ROUNDING = 1e-12


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
