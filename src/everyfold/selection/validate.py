"""Several scores of every fold, with scikit-learn's signature and without its refits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import check_scoring

from everyfold.criteria.granularity import Granularity
from everyfold.evaluate.data import Data
from everyfold.evaluate.foldmodels import fit_to
from everyfold.evaluate.request import Options, Request, Wants
from everyfold.models.private import (
    aggregate_score_dicts,
    insert_error_scores,
    normalize_score_results,
)
from everyfold.operators.structure import OperatorChoice
from everyfold.rows import RowSource
from everyfold.rows.folds import Folds
from everyfold.rows.sources import as_rows
from everyfold.selection.fallback import falls_back
from everyfold.selection.functions import evaluate, routed
from everyfold.selection.manyfolds import tell_failures
from everyfold.selection.results import entries_of, sizes_of
from everyfold.types import (
    Array,
    ErrorScore,
    Estimator,
    Fallback,
    Index,
    Matrix,
    Order,
    Params,
    Pooled,
    Preprocessing,
    RandomState,
    RidgeScaling,
    Scorer,
    Splitter,
    Targets,
)


@falls_back
def cross_validate(
    estimator: Estimator,
    X: Matrix,
    y: Targets = None,
    *,
    groups: ArrayLike | None = None,
    scoring: Scorer = None,
    cv: Splitter = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: Params | None = None,
    pre_dispatch: int | str = "2*n_jobs",
    return_train_score: bool = False,
    return_estimator: bool = False,
    return_indices: bool = False,
    error_score: ErrorScore = np.nan,
    pooled: Pooled = "auto",
    order: Order | Granularity = "auto",
    operator: OperatorChoice = "auto",
    ridge_scaling: RidgeScaling = "sum",
    preprocessing: Preprocessing = "per_fold",
    fallback: Fallback = "warn",
    random_state: RandomState = None,
) -> Params:
    """Several scores of every fold, equal to those of refitting, from one factorisation.

    It replaces :func:`sklearn.model_selection.cross_validate`.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, pre_dispatch
        As in :func:`cross_val_score`.
    scoring : str, callable, list, tuple, dict or None, default=None
        As in scikit-learn: one scorer or several.
    return_train_score : bool, default=False
        Whether to compute training scores as well; each fold then needs its own factorisation.
    return_estimator : bool, default=False
        Whether to return an estimator for every fold. The scores do not need them: they are fitted
        only for this purpose, one after the other, which takes as long as in scikit-learn.
    return_indices : bool, default=False
        Whether to return the training and test indices of every split.
    error_score : "raise" or float, default=nan
        The score of a fold that cannot be fitted or scored.
    pooled : bool or "auto", default="auto"
        As in :func:`cross_val_score`; training scores are always computed per fold.
    order, operator, ridge_scaling, preprocessing, fallback, random_state
        As in :class:`FastGridSearchCV`.

    Returns
    -------
    scores : dict
        ``test_score`` (or ``test_<name>`` for each of several scorers), ``fit_time`` and
        ``score_time``, arrays of shape (n_splits,), and if requested ``train_score``, ``estimator``
        and ``indices``. Times are shares of the shared work.

    Notes
    -----
    **Cost** and **Exact?** As in :func:`cross_val_predict`; training scores need one factorisation
    per fold.

    Examples
    --------
    >>> from everyfold import cross_validate
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> scoring = ("r2", "neg_mean_absolute_error")
    >>> scores = cross_validate(KernelRidge(alpha=0.1, kernel="rbf"), X, y, scoring=scoring)
    >>> scores["test_neg_mean_absolute_error"].round(1)
    array([-45.6, -45.9, -50.3, -43.9, -47.3])
    """
    scorer = check_scoring(estimator, scoring=scoring, raise_exc=error_score == "raise")
    chosen = order, operator, ridge_scaling, 0, preprocessing, error_score, n_jobs, random_state
    options = Options(*chosen, fallback=fallback)
    wants = Wants(return_train_score, mean_scores=False, pools=pooled, selects_by=None, refits=True)
    X, y = as_rows(X, y)
    request = Request(estimator, [{}], X, y, cv, scorer, options=options, wants=wants)
    request = routed("cross_validate", request, groups, params)
    _check_source(X, return_estimator or return_indices)
    data, outcome = evaluate(request, verbose)
    if outcome.failure is not None and error_score == "raise":
        raise outcome.failure.error
    entries = entries_of(request, data, outcome, 0, sizes_of(data, {0: outcome}))
    results = _together(entries, error_score, is_callable=callable(scoring))
    if return_estimator:
        results["estimator"] = _fitted(request, data.tasks[0].folds)
    if return_indices:
        results["indices"] = _indices(data)
    return results | _scores(entries, with_train=return_train_score)


def _check_source(X: Matrix, needs_rows: bool) -> None:
    if needs_rows and isinstance(X, RowSource):
        raise ValueError(
            "return_estimator and return_indices need the rows of every split, which are not "
            "available for a source of rows; leave them out"
        )


def _together(entries: list[Params], error_score: ErrorScore, *, is_callable: bool) -> Params:
    """The times of all folds; failures are told, and get their score."""
    tell_failures(entries, error_score)
    if is_callable:
        insert_error_scores(entries, error_score)
    return {
        name: np.array([entry[name] for entry in entries]) for name in ("fit_time", "score_time")
    }


def _scores(entries: Sequence[Params], *, with_train: bool) -> dict[str, Array]:
    """The scores of all folds by their names in the answer."""
    found = aggregate_score_dicts(entries)
    sides = ("test", "train") if with_train else ("test",)
    scores = {side: normalize_score_results(found[f"{side}_scores"]) for side in sides}
    return {f"{side}_{name}": scores[side][name] for name in scores["test"] for side in sides}


def _indices(data: Data) -> dict[str, tuple[Index, ...]]:
    folds = list(data.tasks[0].folds)
    return {"train": tuple(f.train for f in folds), "test": tuple(f.test for f in folds)}


def _fitted(request: Request, folds: Folds) -> list[Estimator]:
    """The estimator fitted on the training rows of every fold; unfitted where that fails."""
    request = request.indexed()
    return [_fit(request, fold.train) for fold in folds]


def _fit(request: Request, train: Index) -> Estimator:
    estimator = clone(request.options.seeds.plant(request.estimator))
    try:
        return fit_to(estimator, request, train)
    except Exception:
        if request.options.error_score == "raise":
            raise
        return estimator
