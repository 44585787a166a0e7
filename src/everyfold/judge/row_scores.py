"""What each held-out row contributes to a score: the score is the mean of the contributions.

Many scores are such means: accuracy, squared and absolute errors, log loss. Others are linear in
what rows contribute up to terms that vanish with many rows (R², RMSE, the area under the ROC curve,
balanced accuracy); the contributions give their variance by the delta method, which for the area
under the curve is that of DeLong et al. (1988). Of any other smooth score the contributions are
found by leaving out each row of it (the jackknife).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn import metrics
from sklearn.metrics import check_scoring, get_scorer

from everyfold._typing import AnyArray, Array, Estimator, Label, Params, Scorer
from everyfold.engine.scoring.metrics import is_own_score, own_score
from everyfold.engine.scoring.pooled_scorer import read_pooled

# Contributions of rows with these targets and responses.
Rows = Callable[[AnyArray, AnyArray], Array]


@dataclass(frozen=True)
class RowMetric:
    """A scorer that is a function of targets and responses, row by row.

    Attributes
    ----------
    name : str
    function : callable
        Of y and the responses, as in ``sklearn.metrics``.
    sign : float
        -1 for losses.
    params : dict
        Of the function.
    asks : tuple of str
        Methods of a model; the responses are those of the first one that it has.
    """

    name: str
    function: Callable[..., float]
    sign: float = 1.0
    params: Params = field(default_factory=dict)
    asks: tuple[str, ...] = ("predict",)

    @property
    def _known(self) -> KnownMetric:
        """What is known of the function."""
        return _KNOWN.get(self.function, KnownMetric())

    @property
    def positive(self) -> Label | None:
        """The label whose values the function gets, if it is named."""
        found: Label | None = self.params.get("pos_label")
        return found

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean over rows of what depends on no other row."""
        is_shaped = set(self.params) & {"multioutput", "normalize", "sample_weight"}
        return self._known.is_mean and not is_shaped

    @property
    def is_smooth(self) -> bool:
        """Whether rows contribute so little each that their contributions give the variance."""
        return self._known.is_smooth

    @property
    def values(self) -> tuple[float, float] | None:
        """The two contributions that a row can make, if there are only two."""
        return self._known.values

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest score that there may be."""
        low, high = self._known.ends
        if self.params.get("adjusted"):  # balanced accuracy, with 0 for guesses
            low = -np.inf
        return (low, high) if self.sign > 0.0 else (-high, -low)

    def score(self, y: AnyArray, responses: AnyArray) -> float:
        """The score of some rows, more being better."""
        return self.sign * float(self.function(y, responses, **self.params))

    def linearised(self, y: AnyArray, responses: AnyArray) -> Rows | None:
        """The contributions of any rows, those of these reference rows having the score as mean.

        None if the score is neither a mean over rows nor known to be nearly one.
        """
        make = self._known.of_rows
        of_rows = None if make is None else make(self, y, responses)
        return None if of_rows is None else lambda y, r: self.sign * of_rows(y, r)

    def contributions(self, y: AnyArray, responses: AnyArray) -> Array:
        """Those of the rows to their own score, (n,).

        **Cost** a few passes over the rows where ``linearised`` knows them; otherwise a call of the
        function for each row that differs from others in its target or its response.
        """
        of_rows = self.linearised(y, responses)
        return self._jackknife(y, responses) if of_rows is None else of_rows(y, responses)

    def _jackknife(self, y: AnyArray, responses: AnyArray) -> Array:
        """Pseudo-values: n score − (n − 1) score without the row; equal rows have equal ones."""
        n = len(y)
        both = np.column_stack([_codes(y), _codes(responses)])
        _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
        keep = np.ones(n, dtype=bool)
        without = np.empty(len(first))
        for k, row in enumerate(first.tolist()):
            keep[row] = False
            without[k] = self.score(y[keep], responses[keep])
            keep[row] = True
        whole = self.score(y, responses)
        found = n * whole - (n - 1) * without[which.reshape(-1)]
        # Pseudo-values of a curved score have another mean; the score itself is the estimate.
        return np.asarray(found + (whole - found.mean()))


def read_metric(estimator: Estimator, scoring: Scorer) -> RowMetric | None:
    """The scorer of a model or search as a function of responses; None if it needs fitted models.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> read_metric(Ridge(), None).name, read_metric(Ridge(), "neg_mean_squared_error").sign
    ('r2', -1)
    """
    estimator, scoring = _deciding(estimator, scoring)
    scorer = check_scoring(estimator, scoring=scoring)
    if is_own_score(scorer):
        own = own_score(scorer)
        if own is None:
            return None
        scorer = get_scorer("r2" if own is metrics.r2_score else "accuracy")
    function = getattr(scorer, "_score_func", None)
    if function is None:
        return None
    asked = scorer._response_method
    asks = (asked,) if isinstance(asked, str) else tuple(asked)
    name = scoring if isinstance(scoring, str) else function.__name__.removesuffix("_score")
    return RowMetric(name, function, scorer._sign, dict(scorer._kwargs), asks)


def _deciding(estimator: Estimator, scoring: Scorer) -> tuple[Estimator, Scorer]:
    """The scoring by which a search selects, and the estimator that it is of."""
    scoring, _ = read_pooled(scoring)
    is_search = hasattr(estimator, "refit") and hasattr(estimator, "estimator")
    if scoring is not None or not is_search:
        return estimator, scoring
    own, _ = read_pooled(estimator.scoring)
    if isinstance(own, dict):
        own = own.get(estimator.refit)
    elif isinstance(own, list | tuple | set):
        own = estimator.refit if estimator.refit in own else None
    return _deciding(estimator.estimator, own)


def _codes(values: AnyArray) -> Array:
    """Numbers that are equal where rows are, (n, q)."""
    values = values.reshape(len(values), -1)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    codes = np.unique(values, return_inverse=True)[1]
    return codes.reshape(values.shape).astype(np.float64)


# -- contributions of rows, by what is known of reference rows -------------------------------------

_Maker = Callable[[RowMetric, AnyArray, AnyArray], Rows | None]


def _of_numbers(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    """Means of errors: the function itself, with the rows as targets of a single row."""
    if "multioutput" in metric.params:
        return None

    def rows(y: AnyArray, r: AnyArray) -> Array:
        flat = y.reshape(1, -1), r.reshape(1, -1)
        found = metric.function(*flat, multioutput="raw_values", **metric.params)
        means: Array = np.asarray(found).reshape(len(y), -1).mean(axis=1)
        return means

    return rows


def _hits(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    return None if metric.params else lambda y, r: np.asarray(y == r, dtype=np.float64)


def _misses(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    return None if metric.params else lambda y, r: np.asarray(y != r, dtype=np.float64)


def _log_loss(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    classes = np.unique(y)
    if metric.params:
        return None

    def rows(y: AnyArray, r: AnyArray) -> Array:
        shares = np.column_stack([1.0 - r, r]) if r.ndim == 1 else r
        least = np.finfo(shares.dtype).eps
        shares = np.clip(shares, least, 1.0 - least)
        own = shares[np.arange(len(y)), np.searchsorted(classes, y)]
        return np.asarray(-np.log(own / shares.sum(axis=1)))

    return rows


def _brier(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    label = np.unique(y)[-1] if metric.positive is None else metric.positive
    if r.ndim > 1 or set(metric.params) - {"pos_label"}:
        return None
    return lambda y, r: np.asarray(((y == label) - r) ** 2)


def _r2(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    centre = y.mean(axis=0)
    spread = np.mean((y - centre) ** 2, axis=0)
    if metric.params or np.any(spread == 0.0):
        return None
    missed = np.mean((y - r) ** 2, axis=0) / spread

    def rows(y: AnyArray, r: AnyArray) -> Array:
        found = 1.0 - ((y - r) ** 2 - missed * ((y - centre) ** 2 - spread)) / spread
        return np.asarray(found.reshape(len(y), -1).mean(axis=1))

    return rows


def _root_of_squares(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    square = np.mean((y - r) ** 2, axis=0)
    root = np.sqrt(square)
    if metric.params or np.any(root == 0.0):
        return None

    def rows(y: AnyArray, r: AnyArray) -> Array:
        found = root + ((y - r) ** 2 - square) / (2.0 * root)
        return np.asarray(found.reshape(len(y), -1).mean(axis=1))

    return rows


def _balanced_accuracy(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    if metric.params:
        return None
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    recalls = np.bincount(codes, y == r) / counts
    weights = len(y) / (len(classes) * counts)
    whole = recalls.mean()

    def rows(y: AnyArray, r: AnyArray) -> Array:
        own = np.searchsorted(classes, y)
        return np.asarray(whole + weights[own] * ((y == r) - recalls[own]))

    return rows


def _area(metric: RowMetric, y: AnyArray, r: AnyArray) -> Rows | None:
    """DeLong's: how many of the other class a row is on the right side of, ties being a half."""
    classes = np.unique(y)
    if r.ndim > 1 or metric.params or len(classes) != 2:
        return None
    label = classes[1]
    positives, negatives = np.sort(r[y == label]), np.sort(r[y != label])
    shares = len(positives) / len(y), len(negatives) / len(y)
    whole = float(_shares_below(positives, negatives).mean())

    def rows(y: AnyArray, r: AnyArray) -> Array:
        of_positives = (_shares_below(r, negatives) - whole) / shares[0]
        of_negatives = (1.0 - _shares_below(r, positives) - whole) / shares[1]
        return np.asarray(whole + np.where(y == label, of_positives, of_negatives))

    return rows


def _shares_below(values: Array, others: Array) -> Array:
    """The share of others, which are sorted, that are below each value; ties count a half."""
    below = np.searchsorted(others, values, side="left")
    up_to = np.searchsorted(others, values, side="right")
    return np.asarray((below + up_to) / (2.0 * len(others)))


# Scores between 0 and 1, and errors.
_SHARE, _ERROR = (0.0, 1.0), (0.0, np.inf)


@dataclass(frozen=True)
class KnownMetric:
    """What is known of a metric: the ends of its values, and what rows contribute to it.

    The jackknife of a metric that is not ``is_smooth`` is wrong however many rows there are: it
    depends on one row or two. ``is_mean`` says that no row's contribution depends on others,
    ``values`` are the two contributions of a row if there are only two.
    """

    ends: tuple[float, float] = (-np.inf, np.inf)
    of_rows: _Maker | None = None
    is_mean: bool = False
    is_smooth: bool = True
    values: tuple[float, float] | None = None


_KNOWN: dict[Callable[..., object], KnownMetric] = {
    metrics.accuracy_score: KnownMetric(_SHARE, _hits, is_mean=True, values=(0.0, 1.0)),
    metrics.zero_one_loss: KnownMetric(_SHARE, _misses, is_mean=True, values=(-1.0, 0.0)),
    metrics.balanced_accuracy_score: KnownMetric(_SHARE, _balanced_accuracy),
    metrics.brier_score_loss: KnownMetric(_SHARE, _brier),
    metrics.roc_auc_score: KnownMetric(_SHARE, _area),
    metrics.log_loss: KnownMetric(_ERROR, _log_loss),
    metrics.root_mean_squared_error: KnownMetric(_ERROR, _root_of_squares),
    metrics.r2_score: KnownMetric((-np.inf, 1.0), _r2),
    metrics.explained_variance_score: KnownMetric((-np.inf, 1.0)),
}
for _name in ("average_precision", "f1", "jaccard", "precision", "recall"):
    _KNOWN[getattr(metrics, f"{_name}_score")] = KnownMetric(_SHARE)
for _name in ("squared_error", "absolute_error", "absolute_percentage_error", "squared_log_error"):
    _KNOWN[getattr(metrics, f"mean_{_name}")] = KnownMetric(_ERROR, _of_numbers, is_mean=True)
_KNOWN[metrics.mean_pinball_loss] = KnownMetric(_ERROR, _of_numbers, is_mean=True)
_KNOWN |= dict.fromkeys(
    (metrics.max_error, metrics.median_absolute_error), KnownMetric(_ERROR, is_smooth=False)
)
_KNOWN |= dict.fromkeys(
    (metrics.matthews_corrcoef, metrics.cohen_kappa_score), KnownMetric((-1.0, 1.0))
)
