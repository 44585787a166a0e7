"""Which candidate wins, and what its refit needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from everyfold._sklearn_private import BaseSearchCV
from everyfold._typing import Array, Estimator, Params, Refit, Scorer
from everyfold.adapters.pipelines import final_step
from everyfold.engine.records import Data
from everyfold.operators import Nystrom

ONE_STANDARD_ERROR = "one_standard_error"


def is_rule(refit: Refit) -> bool:
    """Whether something else than the best mean score of a metric decides."""
    return callable(refit) or refit == ONE_STANDARD_ERROR


def check_rule(refit: Refit, scoring: Scorer, *, has_folds: bool) -> None:
    """Refuse the rule of one standard error where no single metric has scores of folds."""
    if refit != ONE_STANDARD_ERROR:
        return
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError(
            f"refit={refit!r} needs one metric, but scoring has {list(scoring)}; pass one "
            "of them as scoring, or a callable as refit"
        )
    if not has_folds:
        raise ValueError(
            f"refit={refit!r} needs scores of folds, which a criterion without folds does not "
            "have; use refit=True, or criterion=None"
        )


def check_spread(refit: Refit, pooled: Sequence[str], data: Data) -> None:
    """Refuse the rule of one standard error where folds have one score, or nobody a ridge."""
    if refit != ONE_STANDARD_ERROR:
        return
    if pooled:
        raise ValueError(
            f"refit={refit!r} needs scores of single folds, but scores are pooled over all rows; "
            "use pooled=False, or folds of several rows"
        )
    if data.foreign and not data.candidates:
        raise ValueError(
            f"refit={refit!r} prefers larger ridges, but no candidate has a known ridge; pass a "
            "callable as refit"
        )


def best_index(
    refit: Refit, metric: str, results: Params, n_splits: int, ridges: Sequence[float]
) -> int:
    """The index of the winner in the table of results, which has a score at least.

    ``ridges`` are those of the candidates, in the order of the table.
    """
    if refit == ONE_STANDARD_ERROR:
        return _within_one_error(results, n_splits, np.asarray(ridges, dtype=np.float64))
    return int(BaseSearchCV._select_best_index(refit, metric, results))


def _within_one_error(results: Params, t: int, ridges: Array) -> int:
    """The largest ridge within one standard error of the best; of several, the best of them.

    The standard error is that of the mean over t folds: s/√t, with s² over t − 1.
    """
    if t < 2:
        raise ValueError(f"refit={ONE_STANDARD_ERROR!r} needs at least 2 folds, and there is {t}")
    means = np.where(np.isnan(results["mean_test_score"]), -np.inf, results["mean_test_score"])
    best = int(np.argmax(means))
    error = results["std_test_score"][best] / np.sqrt(t - 1.0)
    near = np.flatnonzero(means >= means[best] - error)
    if np.isnan(ridges[near]).any():
        raise ValueError(
            f"refit={ONE_STANDARD_ERROR!r} prefers larger ridges, but candidate "
            f"{near[np.isnan(ridges[near])][0]} has no known ridge; pass a callable as refit"
        )
    order = np.lexsort((near, -means[near], -ridges[near]))
    return int(near[order[0]])


def check_weightless(data: Data) -> None:
    """Refuse what the winner, refitted by scikit-learn, would predict wrongly with."""
    lost = [c for c in data.candidates.values() if c.model.loses_weightless_rows]
    if data.stream is None and lost and data.n_weighted < data.n:
        raise ValueError(
            f"sample_weight is 0 for {data.n - data.n_weighted} rows, and "
            f"kernel={lost[0].model.choice.kernel!r}: scikit-learn's fit then numbers its "
            "support vectors without these rows, but the kernel with them, so that "
            "best_estimator_ would predict with the wrong support vectors; leave these rows "
            "out, or pass refit=False"
        )


def scale_ridge(estimator: Estimator, n: int) -> None:
    """Multiply an estimator's ridge by n: the "mean" convention, which estimators do not know."""
    final = final_step(estimator)
    if getattr(final, "C", None) is not None:
        final.set_params(C=final.C / n)
    else:
        final.set_params(alpha=np.multiply(final.alpha, n))


def set_rank(estimator: Estimator, landmarks: int) -> None:
    """Give an estimator with ``n_landmarks="auto"`` the number that a search has found."""
    operator = getattr(estimator, "operator", None)
    if isinstance(operator, Nystrom) and operator.n_landmarks == "auto":
        estimator.set_params(operator=replace(operator, n_landmarks=landmarks))
