"""What a score means on test sets of one row: less than its name says, or nothing.

The mean over single rows of a metric that is itself a mean over rows is that metric. The root of a
squared error is the absolute error there, and R² compares with a spread that one row does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from sklearn import metrics

from everyfold._extensions import METRICS, MetricFacts
from everyfold._typing import Params, Scorer
from everyfold.engine.scoring.metrics import ScoredRows, own_score
from everyfold.estimators.targets import Target

_TOGETHER = (
    "larger folds, or scoring=everyfold.scorers.pooled(...), which scores all held-out rows "
    "together"
)
_WITH_LABELS = "make_scorer({}, labels=np.unique(y), {})"
_Function = Callable[..., object] | None

# What to score by instead, where there is something.
_OTHERS: dict[_Function, str] = {
    metrics.r2_score: "'neg_mean_squared_error', which orders candidates as R² of all rows would",
    metrics.explained_variance_score: "'neg_mean_squared_error'",
    metrics.d2_tweedie_score: "'neg_mean_squared_error'",
    metrics.d2_absolute_error_score: "'neg_mean_absolute_error'",
    metrics.d2_pinball_score: "make_scorer(mean_pinball_loss, greater_is_better=False)",
    metrics.matthews_corrcoef: "'accuracy'",
    metrics.cohen_kappa_score: "'accuracy'",
    metrics.log_loss: _WITH_LABELS.format(
        "log_loss", "response_method='predict_proba', greater_is_better=False"
    ),
    metrics.top_k_accuracy_score: _WITH_LABELS.format(
        "top_k_accuracy_score", "response_method='decision_function'"
    ),
    metrics.root_mean_squared_error: (
        "'neg_mean_squared_error', which orders candidates as the root of all rows would"
    ),
    metrics.root_mean_squared_log_error: "'neg_mean_squared_log_error'",
}

_NAN_ALONE: set[_Function] = {
    metrics.r2_score,
    metrics.d2_tweedie_score,
    metrics.d2_absolute_error_score,
    metrics.d2_pinball_score,
    metrics.cohen_kappa_score,
    metrics.roc_auc_score,
    *(getattr(metrics, name, None) for name in ("d2_log_loss_score", "d2_brier_score")),
} - {None}

# Whatever is predicted.
_SAME_ALONE: set[_Function] = {
    metrics.explained_variance_score,
    metrics.average_precision_score,
    metrics.matthews_corrcoef,
    metrics.adjusted_mutual_info_score,
    metrics.adjusted_rand_score,
    metrics.completeness_score,
    metrics.fowlkes_mallows_score,
    metrics.homogeneity_score,
    metrics.mutual_info_score,
    metrics.normalized_mutual_info_score,
    metrics.rand_score,
    metrics.v_measure_score,
}

_NEEDING_LABELS = {metrics.log_loss, metrics.top_k_accuracy_score}

_ELSE_ALONE: dict[_Function, str] = {
    metrics.root_mean_squared_error: "the mean absolute error",
    metrics.max_error: "the mean absolute error",
    metrics.median_absolute_error: "the mean absolute error",
    metrics.root_mean_squared_log_error: "the mean absolute error of logarithms",
    metrics.balanced_accuracy_score: "the accuracy",
}

_NOTHING_ADDED = MetricFacts(lambda scorer, target: None)

_OF_POSITIVES = {
    metrics.f1_score,
    metrics.fbeta_score,
    metrics.precision_score,
    metrics.recall_score,
    metrics.jaccard_score,
}


@dataclass(frozen=True)
class Alone:
    """What a metric is on test sets of one row, where that is not what its name says.

    Attributes
    ----------
    metric : str
    instead : str or None
        What the mean over single rows is; None if one row says nothing of the model.
    why : str
    remedy : str
    is_nan : bool
        Whether a fold of one row has no number, so that the mean of the folds has none.
    """

    metric: str
    instead: str | None
    why: str
    remedy: str
    is_nan: bool = False

    def __str__(self) -> str:
        if self.instead is not None:
            return f"{self.metric} of single rows is {self.instead}; use {self.remedy}"
        return f"{self.metric} {self.why}; use {self.remedy}"


def alone(scorer: Scorer) -> Alone | None:
    """What a scorer is on single rows; None if it means there what it always does.

    Examples
    --------
    >>> alone(metrics.get_scorer("neg_max_error")).instead
    'the mean absolute error'
    """
    function = _function(scorer)
    kwargs = getattr(scorer, "_kwargs", {})
    name = getattr(function, "__name__", "")
    added = METRICS.get(function, _NOTHING_ADDED)
    other = _OTHERS.get(function) or added.instead or None
    remedy = _TOGETHER if other is None else f"scoring={other}, {_TOGETHER}"
    if function in _NAN_ALONE:
        return Alone(name, None, "of one row is NaN", remedy, is_nan=True)
    if function in _SAME_ALONE:
        return Alone(name, None, "of one row is the same whatever is predicted", remedy)
    if function in _NEEDING_LABELS and kwargs.get("labels") is None:
        return Alone(name, None, "fails where a test set has one class", remedy)
    instead = added.alone or _instead(function, kwargs)
    return None if instead is None else Alone(name, instead, "", remedy)


def _instead(function: _Function, kwargs: Params) -> str | None:
    if function not in _OF_POSITIVES:
        return None if kwargs.get("adjusted") else _ELSE_ALONE.get(function)
    average = kwargs.get("average", "binary")
    if average == "binary":
        return "the share of rows that are true positives"
    is_always_accuracy = average == "micro" and function is not metrics.jaccard_score
    is_always_accuracy |= average == "weighted" and function is metrics.recall_score
    return None if is_always_accuracy or average in (None, "samples") else "the accuracy"


def _function(scorer: Scorer) -> _Function:
    return own_score(scorer) or getattr(scorer, "_score_func", None)


POOLED = "{} of all held-out rows together (pooled), the same number in every split"


def reasons_to_pool(
    scorers: Mapping[str, Scorer], side: ScoredRows, *, needs_all: bool
) -> dict[str, str]:
    """The scorers that single rows say nothing of, or something else, and what is done about it.

    ``needs_all`` if one fold without a number leaves nothing, as in the mean of a search.

    Examples
    --------
    >>> from everyfold.estimators.targets import Numbers
    >>> side = ScoredRows(Numbers.read([1.0, 2.0]), (np.array([0]), np.array([1])))
    >>> list(reasons_to_pool({"r2": metrics.get_scorer("r2")}, side, needs_all=False))
    ['r2']
    """
    found = {}
    is_single = side.sizes == 1
    for name, scorer in scorers.items():
        known = alone(scorer)
        if known is None or not len(side.parts):
            continue
        if is_single.any() if needs_all and known.is_nan else is_single.all():
            why = known.why or f"of single rows is {known.instead}"
            found[name] = POOLED.format(f"{known.metric} {why}, so that scores are those")
    return found


def check_folds(scorers: Mapping[str, Scorer], side: ScoredRows, *, needs_all: bool) -> None:
    """Refuse scorers that are undefined on every fold.

    ``needs_all`` if one fold without a number leaves nothing, as in the mean of a search.
    """
    found = [_without_score(scorer, side, needs_all) for scorer in scorers.values()]
    if found and all(found):
        raise ValueError(f"scoring: {found[0]}")


def _without_score(scorer: Scorer, side: ScoredRows, needs_all: bool) -> str:
    """Why a scorer says nothing of these folds; empty if it does."""
    known = alone(scorer)
    if known is None or known.instead is not None or not len(side.parts):
        return ""
    is_ranking = _function(scorer) is metrics.roc_auc_score and _is_binary(side.target)
    void = (side.class_counts > 0).sum(axis=1) < 2 if is_ranking else side.sizes == 1
    if not (void.any() if needs_all and known.is_nan else void.all()):
        return ""
    i = int(np.flatnonzero(void)[0])
    if is_ranking:
        advice = (
            "use StratifiedKFold, or scoring=everyfold.scorers.pooled(...), which scores all "
            "held-out rows together"
        )
        return f"{known.metric} is NaN where a test set has one class, as split {i} has; {advice}"
    return f"{known}" if void.all() else f"{known} (split {i} has one row)"


def _is_binary(target: Target) -> bool:
    return target.classes is not None and len(target.classes) == 2


def meanings(scorers: Mapping[str, Scorer], side: ScoredRows) -> list[str]:
    """What is to be said of scorers that are something else on single rows, if all folds are.

    Or nothing, where that is a number: scikit-learn itself warns of NaN.
    """
    if not len(side.parts) or side.sizes.max() > 1:
        return []
    found = [alone(scorer) for scorer in scorers.values()]
    return [str(known) for known in found if known is not None and not known.is_nan]


# Up to so many rows leave-one-out is warned of where its bias vanishes with their number: the
# accuracy of noise was 0.32 for 40 rows, 0.43 for 80 and 0.47 for 160.
_FEW_ROWS = 100
# The largest share of a class in labels that count as balanced: where one is larger, a model that
# has learnt nothing predicts it for every row.
_BALANCED = 0.6

_RANKING = {metrics.roc_auc_score, metrics.average_precision_score}
_CORRELATING = ("corr", "pearson", "spearman", "kendall")


def leave_one_out_bias(
    scorers: Mapping[str, Scorer], pooled: Collection[str], side: ScoredRows
) -> dict[str, str]:
    """What is to be said of scores of leave-one-out that its own training sets make worse.

    For models with an intercept: it leans towards the other classes, or away from the tested
    number. What the warning says was measured by ``benchmarks/leave_one_out.py``.
    """
    n, found = len(side.rows), {}
    for key, scorer in scorers.items():
        if key not in pooled and alone(scorer) is not None:
            continue  # it means something else than its name says, or nothing
        function = _function(scorer)
        name = getattr(function, "__name__", "")
        if side.target.classes is not None:
            is_few = n <= _FEW_ROWS and side.together.class_counts.max() <= _BALANCED * n
            if function in _RANKING:
                remedy = "cv=everyfold.LeavePairOut(), or everyfold.RebalancedLeaveOneOut()"
            elif function in (metrics.accuracy_score, metrics.balanced_accuracy_score) and is_few:
                remedy = "cv=everyfold.RebalancedLeaveOneOut(), or StratifiedKFold"
            else:
                continue
            why = "a model that lacks one row of a class leans towards the others"
        elif any(part in name for part in _CORRELATING) or (
            function is metrics.r2_score and n <= _FEW_ROWS
        ):
            why = "the mean of the training rows moves away from the row that is left out"
            remedy = "cv=everyfold.RebalancedLeaveOneOut(), or a squared error"
        else:
            continue
        found[key] = f"leave-one-out makes {name} too small, because {why}; use {remedy}"
    return found
