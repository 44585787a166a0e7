"""The everyday metrics on all folds at once: scikit-learn's numbers without its calls.

A metric of :mod:`sklearn.metrics` costs a few tenths of a millisecond whatever the size of the
data, most of it checks; a search makes thousands of such calls on data that were checked long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import unwrap

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor

from everyfold._extensions import METRICS
from everyfold._progress import warn
from everyfold._sklearn_private import BaseScorer
from everyfold._typing import AnyArray, Array, Estimator, Index, Label, Mask, Scorer
from everyfold.adapters.pipelines import final_step
from everyfold.estimators.model import original
from everyfold.estimators.targets import Labels, Target
from everyfold.folds import joined, lengths
from everyfold.operators.gram import FoldErrors


@dataclass(frozen=True)
class ScoredRows:
    """The rows each fold is scored on, its test rows or its training rows, and what is true there.

    Whatever does not depend on predictions is computed once for all candidates.
    """

    target: Target
    parts: Sequence[Index]

    @cached_property
    def rows(self) -> Index:
        """All of them, fold after fold."""
        return joined(self.parts)

    @cached_property
    def together(self) -> ScoredRows:
        """The same rows as those of one fold."""
        return ScoredRows(self.target, (self.rows,))

    @cached_property
    def sizes(self) -> Index:
        """The number of rows of each fold."""
        return lengths(self.parts)

    @cached_property
    def bounds(self) -> Index:
        """Where each fold begins, and where the last one ends."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.intp)

    @cached_property
    def folds(self) -> Index:
        """The fold of each row."""
        return np.repeat(np.arange(len(self.parts)), self.sizes)

    @cached_property
    def y(self) -> Array:
        """The target columns of the rows."""
        return self.target.columns[self.rows]

    @cached_property
    def codes(self) -> Index:
        """The class numbers of the rows."""
        assert isinstance(self.target, Labels)
        return self.target.codes[self.rows]

    @cached_property
    def labels(self) -> AnyArray:
        """The labels of the rows."""
        return self.classes[self.codes]

    @property
    def classes(self) -> AnyArray:
        """All labels there are."""
        assert self.target.classes is not None
        return self.target.classes

    @cached_property
    def spread(self) -> Array:
        """The sum of squares of each fold's targets around their mean, (t, q)."""
        # Fold by fold, in the order of operations of ``r2_score``: whether the spread of constant
        # targets is 0 or a rounding error decides between a score of 0 and one of -1e30.
        # Parts may be the same array again and again.
        parts, known = list(self.parts), {}
        for part in parts:
            if id(part) not in known:
                y = self.target.columns[part]
                known[id(part)] = ((y - np.average(y, axis=0)) ** 2).sum(axis=0)
        return np.array([known[id(part)] for part in parts])

    @cached_property
    def class_counts(self) -> Index:
        """How many rows of each class each fold has, (t, classes)."""
        return self.count(self.codes)

    def count(self, codes: Index, keep: NDArray[np.bool_] | None = None) -> Index:
        """How many of the rows have each code, fold by fold."""
        size = len(self.classes)
        index = self.folds * size + codes
        if keep is not None:
            index = index[keep]
        return np.bincount(index, minlength=len(self.parts) * size).reshape(-1, size)

    def sum(self, values: Array) -> Array:
        """Sums over each fold's rows."""
        return np.add.reduceat(values, self.bounds[:-1], axis=0)

    def mean(self, values: Array) -> Array:
        """Means over each fold's rows."""
        return self.sum(values) / self.sizes.reshape(-1, *[1] * (values.ndim - 1))


@dataclass(frozen=True)
class Scored:
    """The scores of all folds, and which of them are known."""

    scores: Array
    is_known: NDArray[np.bool_]

    @classmethod
    def all(cls, scores: Array) -> Scored:
        """Every fold is known."""
        return cls(scores, np.ones(len(scores), dtype=bool))


Metric = Callable[[ScoredRows, Array], Scored]


def _explained(errors: Array, spread: Array) -> Array:
    """The share of the spread that is explained, by scikit-learn's rules where there is none."""
    scores = np.ones_like(errors)
    valid = (errors != 0.0) & (spread != 0.0)
    scores[valid] = 1.0 - errors[valid] / spread[valid]
    scores[(errors != 0.0) & (spread == 0.0)] = 0.0
    return scores


@dataclass(frozen=True)
class OfColumns:
    """A metric of numbers that is the mean over those of their columns, (t, q)."""

    by_column: Callable[[ScoredRows, Array], Array]

    def __call__(self, side: ScoredRows, values: Array) -> Scored:
        """The scores of all folds."""
        return Scored.all(self.by_column(side, values).mean(axis=1))


def _r2_by_column(side: ScoredRows, values: Array) -> Array:
    scores = _explained(side.sum((side.y - values) ** 2), side.spread)
    if side.sizes.min() < 2:
        message = "R^2 score is not well-defined with less than two samples."
        warn(message, UndefinedMetricWarning)
        scores[side.sizes < 2] = np.nan
    return scores


def _squares_by_column(side: ScoredRows, values: Array) -> Array:
    return side.mean((side.y - values) ** 2)


def _roots_by_column(side: ScoredRows, values: Array) -> Array:
    return np.sqrt(side.mean((side.y - values) ** 2))


def _absolutes_by_column(side: ScoredRows, values: Array) -> Array:
    return side.mean(np.abs(side.y - values))


_r2 = OfColumns(_r2_by_column)
_squared_error = OfColumns(_squares_by_column)
_root_squared_error = OfColumns(_roots_by_column)
_absolute_error = OfColumns(_absolutes_by_column)


def _accuracy(side: ScoredRows, values: Array) -> Scored:
    hits = side.target.predict(values) == side.labels
    return Scored.all(side.mean(hits.astype(np.float64)))


def _balanced_accuracy(side: ScoredRows, values: Array) -> Scored:
    guess = np.searchsorted(side.classes, side.target.predict(values))
    present = side.class_counts > 0
    hits = side.count(side.codes, guess == side.codes)
    recall = np.where(present, hits / np.maximum(side.class_counts, 1), 0.0)
    scores = recall.sum(axis=1) / present.sum(axis=1)
    # scikit-learn warns if a class occurs only in predictions, or if there is only one class.
    odd = ((side.count(guess) > 0) & ~present).any(axis=1) | (present.sum(axis=1) < 2)
    return Scored(scores, ~odd)


# From so many folds on areas under ROC curves are computed here. Below, scikit-learn is asked: its
# sums round in their own way, which may decide between candidates whose areas are equal.
_MANY_FOLDS = 1000


def _area(side: ScoredRows, values: Array) -> Scored:
    """The area under the ROC curve: the share of pairs in the right order, ties counting half."""
    count = side.class_counts
    has_both = count.min(axis=1) > 0
    if len(side.sizes) < _MANY_FOLDS:
        has_both &= side.sizes == 2
        if not has_both.any():
            return Scored(np.full(len(count), np.nan), has_both)
    value = values[:, 0]
    if np.ptp(side.sizes) == 0:
        return Scored(_areas_of_equal(value, side.codes, count), has_both)
    order = np.lexsort((value, side.folds))
    # Ranks within all rows, those of equal values of a fold averaged.
    fold, value = side.folds[order], value[order]
    is_new = np.append(True, (np.diff(value) != 0.0) | (np.diff(fold) != 0))
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(value))
    rank = ((starts + ends - 1) / 2.0)[np.cumsum(is_new) - 1]
    # The larger label is the positive one.
    is_positive = side.codes[order] == 1
    ranks = np.bincount(fold, (rank - side.bounds[fold]) * is_positive, minlength=len(count))
    positive = count[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (ranks - positive * (positive - 1) / 2.0) / (positive * count[:, 0])
    return Scored(scores, has_both)


def _areas_of_equal(value: Array, codes: Index, count: Index) -> Array:
    """The areas of folds of equal size, for which many short sorts are quicker than one long one.

    Without ties the rank of a row is its place, so that little is done with every value.
    """
    value = value.reshape(len(count), -1)
    m = value.shape[1]
    order = np.argsort(value, axis=1)
    ordered = np.take_along_axis(value, order, axis=1)
    is_positive = np.take_along_axis(codes.reshape(value.shape) == 1, order, axis=1)
    ranks = is_positive.astype(np.float64) @ np.arange(m, dtype=np.float64)
    is_tie = ordered[:, 1:] == ordered[:, :-1]
    for k in np.flatnonzero(is_tie.any(axis=1)).tolist():  # ranks of equal values are averaged
        starts = np.flatnonzero(np.append(True, ~is_tie[k]))
        sizes = np.diff(starts, append=m)
        ranks[k] = np.repeat(starts + (sizes - 1) / 2.0, sizes) @ is_positive[k]
    positive = count[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        areas = (ranks - positive * (positive - 1) / 2.0) / (positive * count[:, 0])
    return np.asarray(areas)


_OF_NUMBERS: dict[Callable[..., object], Metric] = {
    metrics.r2_score: _r2,
    metrics.mean_squared_error: _squared_error,
    metrics.root_mean_squared_error: _root_squared_error,
    metrics.mean_absolute_error: _absolute_error,
}
_OF_LABELS: dict[Callable[..., object], Metric] = {
    metrics.accuracy_score: _accuracy,
    metrics.balanced_accuracy_score: _balanced_accuracy,
}


def find_metric(scorer: Scorer, target: Target) -> Metric | None:
    """The fast form of a scorer, if it has one that gives the same numbers.

    Examples
    --------
    >>> from everyfold.estimators.targets import Labels, Numbers
    >>> find_metric(metrics.get_scorer("neg_max_error"), Numbers.read([1.0, 2.0])) is None
    True
    """
    known = _OF_NUMBERS if target.classes is None else _OF_LABELS
    if is_own_score(scorer):
        own = usual_score(scorer._estimator)
        return None if own is None else known.get(own)
    function = getattr(scorer, "_score_func", None)
    added = METRICS.get(function) if callable(function) else None
    if added is not None:
        fast = added.fast(scorer, target)
        return None if fast is None else Signed(AddedMetric(fast), scorer._sign)
    if getattr(scorer, "_kwargs", None) != {}:
        return None
    asked = getattr(scorer, "_response_method", None)
    is_ranking = asked == ("decision_function", "predict_proba")
    is_binary = target.classes is not None and len(target.classes) == 2
    if function is metrics.roc_auc_score and is_ranking and is_binary:
        return Signed(_area, scorer._sign)
    if function is None or function not in known or asked != "predict":
        return None
    return Signed(known[function], scorer._sign)


@dataclass(frozen=True)
class AddedMetric:
    """The fast form of a metric that a package above adds."""

    fast: Callable[[ScoredRows, Array], tuple[Array, Mask]]

    def __call__(self, side: ScoredRows, values: Array) -> Scored:
        """The scores of all folds."""
        return Scored(*self.fast(side, values))


@dataclass(frozen=True)
class Signed:
    """A metric times 1 or -1, so that more is better."""

    metric: Metric
    sign: float

    def __call__(self, side: ScoredRows, values: Array) -> Scored:
        """The scores of all folds."""
        scored = self.metric(side, values)
        return Scored(self.sign * scored.scores, scored.is_known)


def _unsigned(metric: Metric | None) -> tuple[Metric | None, float]:
    """A metric without its sign, and the sign."""
    return (metric.metric, metric.sign) if isinstance(metric, Signed) else (metric, 1.0)


def by_column(metric: Metric | None, side: ScoredRows, values: Array) -> Array | None:
    """The scores of folds and columns, (t, q), of a metric that is their mean; else None."""
    plain, sign = _unsigned(metric)
    return sign * plain.by_column(side, values) if isinstance(plain, OfColumns) else None


_OF_SUMS: dict[Metric, Callable[[Array, Array, Array], Array]] = {
    _r2: lambda sse, spread, n: _explained(sse, spread).mean(axis=1),
    _squared_error: lambda sse, spread, n: (sse / n).mean(axis=1),
    _root_squared_error: lambda sse, spread, n: np.sqrt(sse / n).mean(axis=1),
}

_MEANS = (_squared_error, _absolute_error, _accuracy)


def from_sums(metric: Metric, sse: Array, spread: Array, weights: Array) -> Array | None:
    """The scores of folds by their sums of squared errors and spreads, (t, q), if that is enough.

    ``weights`` are those of the folds: their sizes, if all rows count alike. A spread of NaN is not
    known.

    Examples
    --------
    >>> from everyfold.estimators.targets import Labels, Numbers
    >>> r2 = find_metric(metrics.get_scorer("r2"), Numbers.read([1.0, 2.0]))
    >>> from_sums(r2, np.array([[1.0]]), np.array([[4.0]]), np.array([10.0]))
    array([0.75])
    """
    plain, sign = _unsigned(metric)
    found = None if plain is None else _OF_SUMS.get(plain)
    scores = None if found is None else sign * found(sse, spread, weights[:, None])
    return None if scores is None or np.isnan(scores).any() else scores


def score_errors(
    metrics: Mapping[str, Metric | None], errors: FoldErrors
) -> dict[str, Array] | None:
    """The scores of folds and candidates, (t, ridges) by name, if sums are all they need."""
    table = {}
    for name, metric in metrics.items():
        if metric is None:
            return None
        columns = [
            from_sums(metric, squared, errors.spread, errors.weight)
            for squared in errors.squared.transpose(1, 0, 2)
        ]
        found = [column for column in columns if column is not None]
        if len(found) < len(columns):
            return None
        table[name] = np.stack(found, axis=1)
    return table


def is_of_sums(metric: Metric | None) -> bool:
    """Whether ``from_sums`` knows the metric."""
    return _unsigned(metric)[0] in _OF_SUMS


def is_mean(metric: Metric) -> bool:
    """Whether the score of a fold is the mean of those of its parts, by their sizes."""
    return _unsigned(metric)[0] in _MEANS


def by_row(metric: Metric, side: ScoredRows, values: Array) -> Array | None:
    """A number for each row, whose sums over some rows rank candidates as the metric of them does.

    None where there is no such number.
    """
    plain, sign = _unsigned(metric)
    if plain == _accuracy:
        return np.asarray(sign * (side.target.predict(values) == side.labels))
    if plain == _absolute_error:
        return np.asarray(sign * np.abs(side.y - values).mean(axis=1))
    if plain == _squared_error or (plain in _OF_SUMS and values.shape[1] == 1):
        sign = -sign if plain == _r2 else sign
        return np.asarray(sign * ((side.y - values) ** 2).mean(axis=1))
    return None


def asks_for_predictions(scorer: Scorer) -> bool:
    """Whether a scorer is known to call ``predict`` and nothing else.

    Examples
    --------
    >>> [asks_for_predictions(metrics.get_scorer(name)) for name in ("f1", "roc_auc")]
    [True, False]
    """
    if own_score(scorer) is not None:
        return True
    return isinstance(scorer, BaseScorer) and scorer._response_method == "predict"


def may_ask_for_probabilities(scorer: Scorer) -> bool:
    """Whether a scorer calls ``predict_proba`` of a classifier that has all methods, or may do so.

    Examples
    --------
    >>> names = "accuracy", "roc_auc", "roc_auc_ovr", "neg_log_loss"
    >>> [may_ask_for_probabilities(metrics.get_scorer(name)) for name in names]
    [False, False, True, True]
    """
    if scorer is None or own_score(scorer) is not None:
        return False
    if not isinstance(scorer, BaseScorer):
        return True  # a function of the user's own may look for anything
    asked = scorer._response_method
    first = asked if isinstance(asked, str) else asked[0]
    return first not in ("predict", "decision_function")


def positive_label(scorer: Scorer) -> Label | None:
    """The label of the class that a scorer looks at; None if it looks at all of them.

    Examples
    --------
    >>> [positive_label(metrics.get_scorer(name)) for name in ("f1", "f1_macro", "accuracy")]
    [1, None, None]
    """
    label: Label | None = scorer._get_pos_label() if isinstance(scorer, BaseScorer) else None
    return label


def is_own_score(scorer: Scorer) -> bool:
    """Whether a scorer is the estimator's own ``score``."""
    return type(scorer).__name__ == "_PassthroughScorer"


def unusual_score(estimator: Estimator) -> ValueError:
    """The message about an estimator that overrides ``score``."""
    return ValueError(
        f"scoring=None means {type(final_step(estimator)).__name__}.score, which is not "
        "scikit-learn's usual score and may need a fitted model; pass scoring by name or as a "
        "callable"
    )


def own_score(scorer: Scorer) -> Scorer:
    """The metric of an estimator's own ``score``, if the scorer is that and it is the usual one."""
    return usual_score(scorer._estimator) if is_own_score(scorer) else None


@dataclass(frozen=True)
class ExplainedDeviance:
    """The ``score`` of scikit-learn's generalised linear models: the share of the deviance."""

    power: float

    @property
    def scorer(self) -> Scorer:
        """The same as a scorer of predictions."""
        return metrics.make_scorer(metrics.d2_tweedie_score, power=self.power)


_DEVIANCES: dict[type, Callable[[Estimator], float]] = {
    PoissonRegressor: lambda estimator: 1.0,
    GammaRegressor: lambda estimator: 2.0,
    TweedieRegressor: lambda estimator: float(estimator.power),
}


def usual_score(estimator: Estimator) -> Scorer:
    """The metric of an estimator's ``score``; None if that is not scikit-learn's usual one.

    One that is wrapped, as experiment trackers do while they log, is what it wraps.
    """
    final = final_step(estimator)
    power = _DEVIANCES.get(original(type(final)))
    if power is not None:
        return ExplainedDeviance(power(final))
    usual = {RegressorMixin: metrics.r2_score, ClassifierMixin: metrics.accuracy_score}
    own = getattr(original(type(final_step(estimator))), "score", None)
    own = None if own is None else unwrap(own)
    return next((metric for kind, metric in usual.items() if own is unwrap(kind.score)), None)
