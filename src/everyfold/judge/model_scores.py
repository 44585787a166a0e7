"""The score of a model by cross-validation, or the difference of two, with an interval.

``ModelScores`` makes the folds that a method of ``interval_methods`` needs, has the models answer
for their test rows, and hands what rows and folds contribute to the method. A difference of two
models is treated like a score: what a row contributes to it is the difference of what it
contributes to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv

from everyfold._progress import warn
from everyfold._sklearn_private import num_samples
from everyfold._typing import (
    AnyArray,
    Array,
    Estimator,
    Index,
    Matrix,
    Params,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.adapters.pipelines import final_step
from everyfold.adapters.sklearn import read_estimator
from everyfold.functions.cross_val import cross_val_score, takes_groups
from everyfold.functions.nested import is_search
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.judge.fitted import Unit, groups_of, ratio_of_splits
from everyfold.judge.interval_methods import (
    Bounds,
    conservative_z,
    corrected_t,
    difference,
    error_of_mean,
    heaviest_share,
    nested_cv,
    of_pairs,
    plain_normal,
)
from everyfold.judge.responses import (
    FoldResponses,
    Split,
    fit_params,
    fold_responses,
    truth_of,
)
from everyfold.judge.row_scores import RowMetric, read_metric

RowMethod = Literal["corrected-t", "conservative-z", "nested", "normal", "delong", "pairs"]

# Repetitions of shuffled folds, where ``cv`` is a number.
REPEATS: dict[RowMethod, int] = {"corrected-t": 10, "nested": 5, "conservative-z": 10}
# Those of nested cross-validation where folds share their work: with 5 the error is so uncertain
# that its lower bound makes it a tenth too large on average. More rows need fewer: from 1000 on 25
# would take seconds.
_SHARED_REPEATS, _SHARED_ROWS = 25, 25_000
# Searches are repeated fewer times: each repetition is as many searches as there are folds.
_SEARCH_REPEATS = 3

# Leave-pair-out takes all pairs of a positive and a negative row, or as many as that, evenly: their
# folds are cheap, but not free (20 µs each for squared loss).
MOST_PAIRS = 10_000

# From so many rows on "auto" takes the plain interval, because many folds take too long. It is the
# narrowest, also there: at 2000 rows it contained the truth in 86 of 100 cases at nominal 90 %,
# corrected t in 88, nested in 91 (``benchmarks/interval_coverage.py --sizes 2000``).
MANY_ROWS = 5000


@dataclass(frozen=True)
class Judged:
    """A score, or a difference, with its interval by one method.

    Attributes
    ----------
    bounds : Bounds
    words : str
        What was done.
    is_exact : bool
        Whether all responses equal those of refits.
    rows : array of shape (n,) or None
        What each row contributes, where a method uses rows.
    method : str
    remarks : tuple of str
        What makes the interval doubtful.
    """

    bounds: Bounds
    words: str
    is_exact: bool
    rows: Array | None = None
    method: RowMethod = "corrected-t"
    remarks: tuple[str, ...] = ()


class ModelScores:
    """One model, or two on the same rows and folds.

    Parameters
    ----------
    models : sequence of one or two estimators or searches
    X, y, groups, scoring, cv
        As in :func:`score_interval`.
    random_state : int
        Seed of shuffled folds.
    params : dict, optional
        Passed to ``fit``.
    answer : callable
        What asks models for their responses; a study of one kind of models may know a faster way.
    """

    def __init__(
        self,
        models: Sequence[Estimator],
        X: Matrix,
        y: Targets,
        groups: Targets,
        scoring: Scorer,
        cv: Splitter,
        random_state: int,
        answer: Callable[..., FoldResponses] = fold_responses,
        params: Params | None = None,
    ) -> None:
        if isinstance(X, RowSource) or is_lazy(X):
            raise ValueError(
                "X: an interval needs single rows, which are not available for a source of rows; "
                "pass an array"
            )
        if y is None:
            raise ValueError("y=None: a score needs targets; pass y")
        self.models, self.X, self.y = list(models), X, y
        self.truth = truth_of(self.models[0], y)
        self.n = num_samples(X)
        if groups is not None and num_samples(groups) != self.n:
            raise ValueError(
                f"groups has {num_samples(groups)} labels for {self.n} rows; pass one for each row"
            )
        if isinstance(scoring, list | tuple | set | dict):
            raise ValueError(f"scoring={scoring!r} has several scorers; pass one at a time")
        self.labels = groups
        self.units = None if groups is None else groups_of(groups)
        if self.units is not None and self.units.max() == 0:
            raise ValueError(
                "groups has the same label for all rows; pass groups of several labels"
            )
        self.cv, self.seed, self.scoring, self._answer = cv, random_state, scoring, answer
        self.params = params
        self.is_classifier = is_classifier(self.models[0])
        found = [read_metric(model, scoring) for model in self.models]
        if len(found) > 1 and found[0] != found[1] and None not in found:
            raise ValueError(
                f"the models have different scores by default ({found[0].name}, {found[1].name}); "  # type: ignore[union-attr]
                "pass scoring"
            )
        self.metric: RowMetric | None = None if None in found else found[0]

    # -- what is known before any work ---------------------------------------------------------

    @property
    def unit(self) -> Unit:
        """What is independent of others."""
        return "row" if self.units is None else "group"

    @property
    def has_search(self) -> bool:
        """Whether a model is a search."""
        return any(hasattr(m, "refit") and hasattr(m, "estimator") for m in self.models)

    @cached_property
    def shares_folds(self) -> bool:
        """Whether all folds of all models follow from one fit each: squared loss."""
        return all(map(_is_linear, self.models))

    @property
    def is_area(self) -> bool:
        """Whether the score is the area under the ROC curve of two classes."""
        is_named = self.metric is not None and self.metric.name in ("roc_auc", "roc_auc_score")
        return bool(is_named) and len(np.unique(self.truth)) == 2

    @cached_property
    def given(self) -> list[list[Split]]:
        """The splits of a ``cv`` that is no number, cut into partitions; or as they are."""
        splitter = check_cv(self.cv, self.y, classifier=self.is_classifier)
        every = np.arange(self.n)
        labels = self.labels if takes_groups(splitter) else None
        splits = [
            (every[train], every[test]) for train, test in splitter.split(self.X, self.y, labels)
        ]
        parts: list[list[Split]] = [[]]
        for split in splits:
            if sum(len(test) for _, test in parts[-1]) >= self.n:
                parts.append([])
            parts[-1].append(split)
        return parts if all(map(self._is_partition, parts)) else [splits]

    @property
    def has_number(self) -> bool:
        """Whether ``cv`` is a number of folds, which are shuffled here."""
        return self.cv is None or isinstance(self.cv, int | np.integer)

    @cached_property
    def is_partition(self) -> bool:
        """Whether every row is tested once in each repetition."""
        return self.has_number or self._is_partition(self.given[0])

    @property
    def has_many_folds(self) -> bool:
        """Whether there are at least 3 folds of at least 2 rows or groups."""
        count = self.n if self.units is None else len(np.unique(self.units))
        folds = (5 if self.cv is None else int(self.cv)) if self.has_number else len(self.given[0])
        return folds >= 3 and count >= 2 * folds

    @cached_property
    def divides_groups(self) -> bool:
        """Whether a fold trains on rows of a group that it tests."""
        if self.units is None or self.has_number:
            return False
        own = self.units
        return any(
            np.isin(own[train], own[test]).any() for part in self.given for train, test in part
        )

    def _is_partition(self, splits: Sequence[Split]) -> bool:
        tests = np.concatenate([test for _, test in splits])
        return bool(len(tests) == self.n == len(np.unique(tests)))

    def repeats(self, method: RowMethod) -> int:
        """How often shuffled folds are repeated."""
        count = REPEATS.get(method, 1)
        if method == "nested" and self.shares_folds:
            return int(np.clip(_SHARED_ROWS // self.n, count, _SHARED_REPEATS))
        return min(count, _SEARCH_REPEATS) if self.has_search else count

    def partitions(self, count: int, rows: Index | None = None) -> list[list[Split]]:
        """Repetitions of the folds: shuffled anew, or those that were given."""
        if not self.has_number:
            return self.given
        k = 5 if self.cv is None else int(self.cv)
        kind = KFold if not self.is_classifier else StratifiedKFold
        if self.units is not None:
            kind = GroupKFold
        own = np.arange(self.n) if rows is None else rows
        labels = None if self.units is None else self.units[own]
        seeds = np.random.default_rng(self.seed).integers(0, 2**31 - 1, count)
        found = []
        for seed in seeds.tolist():
            folds = kind(k, shuffle=True, random_state=seed)
            split = folds.split(np.zeros((len(own), 1)), self.truth[own], labels)
            found.append([(own[train], own[test]) for train, test in split])
        return found

    # -- responses and scores ------------------------------------------------------------------

    def _ask(self, splits: Sequence[Split]) -> list[FoldResponses]:
        """What every model answers on the splits."""
        assert self.metric is not None
        asks, positive = self.metric.asks, self.metric.positive
        return [
            self._answer(model, self.X, self.y, splits, asks, positive, self.labels, self.params)
            for model in self.models
        ]

    def _minus(self, found: Sequence[Array]) -> Array:
        """The only one, or the first minus the second."""
        return found[0] if len(found) == 1 else difference(found[0], found[1])

    def _need(self, method: str) -> RowMetric:
        """The metric, if rows can be told apart by it and every row is tested once."""
        if self.metric is None or not self.metric.is_smooth:
            raise ValueError(
                f"method={method!r} needs a scoring that is a smooth function of predictions; use "
                "method='corrected-t' or another scoring"
            )
        if not self.is_partition:
            raise ValueError(
                f"method={method!r} needs folds that test every row once; use method='corrected-t' "
                f"or another cv than {self.cv!r}"
            )
        return self.metric

    def _rows_of(self, metric: RowMetric, folds: FoldResponses, bounds: Sequence[int]) -> Array:
        """What rows contribute to the score of each repetition, on average over all of them."""
        total = np.zeros(self.n)
        for start, end in pairwise(bounds):
            rows = folds.rows[start:end]
            total[rows] += metric.contributions(self.truth[rows], folds.values[start:end])
        return total / (len(bounds) - 1)

    def judge(self, method: RowMethod, level: float) -> Judged:
        """The interval by one method."""
        work: dict[str, Callable[[float], Judged]] = {
            "normal": self._normal,
            "delong": self._delong,
            "pairs": self._pairs,
            "nested": self._nested,
            "corrected-t": self._corrected_t,
            "conservative-z": self._conservative_z,
        }
        return work[method](level)

    def _normal(self, level: float) -> Judged:
        metric = self._need("normal")
        parts = self.partitions(1)
        splits = [split for part in parts for split in part]
        bounds = [self.n * k for k in range(len(parts) + 1)]
        answers = self._ask(splits)
        rows = self._minus([self._rows_of(metric, own, bounds) for own in answers])
        values = metric.values if len(self.models) == 1 and len(parts) == 1 else None
        found = plain_normal(rows, level, self.units, values)
        words = f"the standard error of {self._named_rows()} held out by {len(splits)} folds"
        return Judged(found, words, all(own.is_exact for own in answers), rows)

    def _delong(self, level: float) -> Judged:
        self._need("delong")
        self._check_area("delong")
        found = self._normal(level)
        words = f"DeLong's variance of {self._named_rows()}, pooled over the folds"
        return Judged(found.bounds, words, found.is_exact, found.rows)

    def _named_rows(self) -> str:
        if self.units is None:
            return f"{self.n} rows"
        return f"{len(np.unique(self.units))} groups of {self.n} rows"

    def _check_area(self, method: str) -> None:
        if not self.is_area:
            raise ValueError(
                f"method={method!r} is for scoring='roc_auc' of two classes; use method='auto'"
            )

    def _pairs(self, level: float) -> Judged:
        self._check_area("pairs")
        if self.units is not None:
            raise ValueError(
                "method='pairs' leaves out pairs of rows, and groups are to stay together; use "
                "method='delong'"
            )
        label = np.unique(self.truth)[1]
        positives = np.flatnonzero(self.truth == label)
        negatives = np.flatnonzero(self.truth != label)
        first, second = _pairs_of(len(positives), len(negatives), MOST_PAIRS)
        keep = np.ones(self.n, dtype=bool)
        splits = []
        for i, j in zip(positives[first], negatives[second], strict=True):
            keep[[i, j]] = False
            splits.append((np.flatnonzero(keep), np.array([i, j])))
            keep[[i, j]] = True
        answers = self._ask(splits)
        tables = []
        for own in answers:
            gaps = own.values[0::2] - own.values[1::2]
            wins = np.full((len(positives), len(negatives)), np.nan)
            wins[first, second] = 0.5 * (1.0 + np.sign(gaps))
            tables.append(wins)
        found = of_pairs(self._minus(tables), level)
        if len(self.models) == 1:
            found = found.within(0.0, 1.0)
        words = f"leave-pair-out of {len(first)} pairs, with DeLong's variance"
        return Judged(found, words, all(own.is_exact for own in answers))

    def _nested(self, level: float) -> Judged:
        metric = self._need("nested")
        parts = self.partitions(self.repeats("nested"))
        n_folds = len(parts[0])
        if n_folds < 3 or any(len(part) != n_folds for part in parts):
            raise ValueError(
                f"cv={self.cv!r}: method='nested' needs at least 3 folds, as many in each "
                "repetition; use cv=5"
            )
        outer = [split for part in parts for split in part]
        # The model without two folds is the inner one of either: it predicts the other fold.
        pairs = [
            (first, second)
            for start in range(0, len(outer), n_folds)
            for first, second in combinations(range(start, start + n_folds), 2)
        ]
        inner = [_without_both(outer[first], outer[second], self.n) for first, second in pairs]
        answers = self._ask([*outer, *inner])
        end = self.n * len(parts)
        table = [self._linearised(metric, own, end) for own in answers]
        found, rows = self._minus(table), np.zeros(self.n)
        np.add.at(rows, answers[0].rows[:end], found[:end] / len(parts))
        sizes = np.array([len(test) for _, test in outer])
        tested = np.array(pairs).ravel()  # the fold of each part of an inner test set
        held_by = np.array(pairs)[:, ::-1].ravel()  # the outer fold that it is an inner one of
        bounds = np.cumsum([0, *sizes, *sizes[tested]])
        sums = np.add.reduceat(found, bounds[:-1])
        of_outer = sums[: len(outer)] / sizes
        of_inner = np.bincount(held_by, sums[len(outer) :]) / np.bincount(held_by, sizes[tested])
        noise = np.empty(len(outer))
        for s, (_, test) in enumerate(outer):
            units = None if self.units is None else self.units[test]
            noise[s] = error_of_mean(found[bounds[s] : bounds[s + 1]], units) ** 2
        if not np.isfinite(noise).all():
            raise ValueError(
                f"cv={self.cv!r}: method='nested' needs at least 2 {self.unit}s in each fold; use "
                "fewer folds, or method='normal'"
            )
        values = metric.values if len(self.models) == 1 else None
        judged = nested_cv(rows, of_inner, of_outer, noise, n_folds, level, self.units, values)
        words = f"nested cross-validation, {len(parts)} times {n_folds} × {n_folds - 1} folds"
        return Judged(judged, words, all(own.is_exact for own in answers), rows)

    def _linearised(self, metric: RowMetric, own: FoldResponses, end: int) -> Array:
        """What every answer contributes, those before ``end`` being the reference."""
        truth = self.truth[own.rows]
        of_rows = metric.linearised(truth[:end], own.values[:end])
        if of_rows is None:
            raise ValueError(
                f"method='nested' does not know how rows contribute to {metric.name!r}; use "
                "method='corrected-t' or 'normal'"
            )
        return of_rows(truth, own.values)

    def _corrected_t(self, level: float) -> Judged:
        parts = self.partitions(self.repeats("corrected-t"))
        splits = [split for part in parts for split in part]
        if len(splits) < 2:
            raise ValueError(f"cv={self.cv!r} has one fold; an interval needs at least 2")
        rows, is_exact = None, True
        if self.metric is None:
            own = {"scoring": self.scoring, "cv": splits}
            table = [
                cross_val_score(m, self.X, self.y, params=fit_params(m, self.params), **own)
                for m in self.models
            ]
        else:
            answers = self._ask(splits)
            table = [self._scores_of(answer) for answer in answers]
            rows = self._rows_if_known(self.metric, answers, len(parts))
            is_exact = all(answer.is_exact for answer in answers)
        scores = self._finite(self._minus(table))
        ratio, _ = ratio_of_splits(splits, self.units)
        words = f"the corrected variance of the scores of {len(splits)} folds"
        words += f", {len(parts)} times {len(splits) // len(parts)}" if len(parts) > 1 else ""
        return Judged(corrected_t(scores, ratio, level), words, is_exact, rows)

    def _rows_if_known(
        self, metric: RowMetric, answers: Sequence[FoldResponses], count: int
    ) -> Array | None:
        """What rows contribute, if every row is tested as often and that takes no time."""
        if not self.is_partition or metric.linearised(self.truth, self.truth) is None:
            return None
        bounds = [self.n * k for k in range(count + 1)]
        return self._minus([self._rows_of(metric, own, bounds) for own in answers])

    def _scores_of(self, own: FoldResponses) -> Array:
        assert self.metric is not None
        return _scores_of_parts(self.metric, self.truth[own.rows], own.values, own.bounds)

    def _finite(self, scores: Array) -> Array:
        if np.isfinite(scores).all():
            return scores
        fold = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(
            f"fold {fold} has the score {scores[fold]}, so that folds have no mean; use larger or "
            "stratified folds, another scoring, or method='normal', which scores all rows together"
        )

    def _conservative_z(self, level: float) -> Judged:
        metric = self._need("conservative-z")
        if not self.has_number:
            raise ValueError(
                "method='conservative-z' makes folds of halves of the rows, so that cv is a number "
                f"of folds; got {self.cv!r}"
            )
        parts, count = self.partitions(1), self.repeats("conservative-z")
        halves = [
            own
            for k in range(count)
            for own in _halves(self.n, self.units, self.truth if self.is_classifier else None, k)
        ]
        parts += [self.partitions(1, own)[0] for own in halves]
        splits = [split for part in parts for split in part]
        answers = self._ask(splits)
        ends = np.cumsum([0, *(len(part) for part in parts)])
        found = self._minus(
            [
                _scores_of_parts(metric, self.truth[own.rows], own.values, own.bounds[ends])
                for own in answers
            ]
        )
        judged = conservative_z(float(found[0]), found[1:].reshape(-1, 2), level)
        words = f"the differences of {count} pairs of halves, each by its own folds"
        return Judged(judged, words, all(own.is_exact for own in answers))


def _scores_of_parts(metric: RowMetric, y: AnyArray, values: AnyArray, bounds: Index) -> Array:
    """The scores of consecutive parts of the rows."""
    of_rows = metric.linearised(y, values) if metric.is_mean else None
    if of_rows is not None:
        return np.add.reduceat(of_rows(y, values), bounds[:-1]) / np.diff(bounds)
    return np.array([metric.score(y[a:b], values[a:b]) for a, b in pairwise(bounds.tolist())])


def choose(scores: ModelScores) -> tuple[RowMethod, str]:
    """The method for a model or two, and why."""
    metric, n = scores.metric, scores.n
    if metric is None:
        return "corrected-t", "the scoring needs fitted models and tells nothing of single rows"
    if not metric.is_smooth:
        return "corrected-t", f"{metric.name} depends on one row or two"
    if not scores.is_partition:
        return "corrected-t", "the folds do not test every row once"
    if n >= MANY_ROWS:
        return (
            "normal",
            f"with {n} rows other methods would take long, and models of folds are much alike",
        )
    is_known = metric.linearised(scores.truth, scores.truth) is not None
    if scores.shares_folds and is_known and scores.has_many_folds:
        return "nested", "all its folds follow from one fit, and it is the most faithful"
    if scores.shares_folds:
        return "corrected-t", f"nested cross-validation is not known for {metric.name}"
    return "corrected-t", "each fold is a fit, and nested cross-validation needs many"


def _without_both(first: Split, second: Split, n: int) -> Split:
    """What trains in two folds, and what either tests."""
    is_common = np.zeros((2, n), dtype=bool)
    is_common[0, first[0]] = is_common[1, second[0]] = True
    return np.flatnonzero(is_common.all(axis=0)), np.concatenate([first[1], second[1]])


def _is_linear(model: Estimator) -> bool:
    """Whether folds follow from one fit, as those of squared loss do."""
    if is_search(model) or hasattr(model, "refit"):
        return False
    try:
        own = read_estimator(final_step(model))
    except (TypeError, ValueError):
        return False
    return bool(own.loss.has_constant_curvature)


def _pairs_of(n: int, m: int, most: int) -> tuple[Index, Index]:
    """All pairs of two sets, or some of them, such that all members are in as many."""
    if n * m <= most:
        first, second = np.divmod(np.arange(n * m), m)
        return first, second
    each = max(1, most // max(n, m))
    larger = np.repeat(np.arange(max(n, m)), each)
    smaller = (larger + np.tile(np.arange(each), max(n, m)) * max(1, min(n, m) // each)) % min(n, m)
    return (larger, smaller) if n >= m else (smaller, larger)


def _halves(n: int, units: Index | None, codes: AnyArray | None, seed: int) -> tuple[Index, Index]:
    """Two halves of the rows at random: of whole groups, or of each class."""
    random = np.random.default_rng(seed)
    if units is not None:
        order = random.permutation(np.unique(units))
        is_first = np.isin(units, order[: len(order) // 2])
        return np.flatnonzero(is_first), np.flatnonzero(~is_first)
    order = random.permutation(n)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    return np.sort(order[0::2]), np.sort(order[1::2])


def judge_scores(scores: ModelScores, method: Literal["auto"] | RowMethod, level: float) -> Judged:
    """The interval by a method, or by the one that suits; what makes it doubtful is warned of."""
    why = "as asked for"
    if method == "auto":
        method, why = choose(scores)
    found = scores.judge(method, level)
    remarks = _remarks_on(scores, found)
    for words in remarks:
        warn(words)
    return replace(found, method=method, words=f"{why}: {found.words}", remarks=remarks)


def _remarks_on(scores: ModelScores, found: Judged) -> tuple[str, ...]:
    """What makes an interval doubtful, in sentences."""
    said = [] if found.rows is None else [heavy_words(found.rows)]
    if scores.divides_groups:
        said.append(
            "folds divide groups, so that models know rows of the groups that they are scored on; "
            "pass cv as a number, or GroupKFold"
        )
    return tuple(filter(None, said))


def heavy_words(rows: Array) -> str:
    """That the errors have heavy tails, if they do; else nothing."""
    share = heaviest_share(rows)
    if share is None or len(np.unique(rows)) <= 3:
        return ""
    row = int(np.argmax(np.abs(rows - rows.mean())))
    return (
        f"row {row} alone has {share:.0%} of the variance of what rows contribute to the score: "
        "the errors have heavy tails, no interval of their mean can be trusted, and the score "
        "depends on few rows; look at them, or use a score that bounds errors, such as "
        "scoring='neg_mean_absolute_error' or 'neg_median_absolute_error'"
    )
