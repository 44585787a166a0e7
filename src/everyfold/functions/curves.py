"""Scores as a function of the number of training rows, or of a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, indexable

from everyfold._sklearn_private import translate_train_sizes
from everyfold._typing import (
    AnyArray,
    Array,
    ErrorScore,
    Estimator,
    Index,
    Matrix,
    Params,
    Preprocessing,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.engine.execution.executor import evaluate_request
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.records import Data
from everyfold.engine.request import MethodChoice, Options, Request, RequestedOutputs
from everyfold.engine.results import entries_of, warn_if_inexact, warn_of_failures
from everyfold.functions.cross_val import route
from everyfold.functions.fallback import check_sped_up, falls_back, planned
from everyfold.io.base import check_in_memory
from everyfold.operators.base import OperatorChoice

_WANTS = RequestedOutputs(train_scores=True, mean_scores=False, selects_by=None, refits=True)
_TENTHS = np.linspace(0.1, 1.0, 5)


@falls_back
def learning_curve(
    estimator: Estimator,
    X: Matrix,
    y: Targets,
    *,
    groups: ArrayLike | None = None,
    train_sizes: ArrayLike = _TENTHS,
    cv: Splitter = None,
    scoring: Scorer = None,
    exploit_incremental_learning: bool = False,
    n_jobs: int | None = None,
    pre_dispatch: int | str = "all",
    verbose: int = 0,
    shuffle: bool = False,
    random_state: RandomState = None,
    error_score: ErrorScore = np.nan,
    return_times: bool = False,
    params: Params | None = None,
    method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
) -> tuple[AnyArray, ...]:
    """Training and test scores for training sets of different sizes.

    It replaces :func:`sklearn.model_selection.learning_curve`. All sizes and folds share one kernel
    matrix; every training set is solved separately, because its own rows are scored as well. Where
    refits of the estimator itself should take less time, the call is left to scikit-learn.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, pre_dispatch
        As in :func:`cross_val_score`.
    train_sizes : array of shape (n_ticks,), default=linspace(0.1, 1.0, 5)
        Numbers of training rows, or shares of those of the first fold.
    scoring : str, callable or None, default=None
        One scorer of scikit-learn; None means the estimator's own ``score``.
    exploit_incremental_learning : bool, default=False
        True needs an estimator with ``partial_fit``, which no kernel machine has.
    shuffle : bool, default=False
        Whether to shuffle the training rows before the first of them are selected.
    random_state : int, RandomState or None, default=None
        Seed of the shuffling, and of landmarks without their own seed.
    error_score : "raise" or float, default=nan
        The score of a training set that cannot be fitted.
    return_times : bool, default=False
        Whether to return the times, which are shares of the shared work.
    method, operator, preprocessing
        As in :class:`FastGridSearchCV`.

    Returns
    -------
    train_sizes_abs : array of shape (n_unique_ticks,)
    train_scores, test_scores : arrays of shape (n_unique_ticks, n_splits)
    fit_times, score_times : arrays of shape (n_unique_ticks, n_splits)
        If ``return_times``.

    Notes
    -----
    **Cost** one kernel matrix, and one fit for every size and fold. **Exact?** Up to rounding, or
    to the solver's tolerance.

    Examples
    --------
    >>> from everyfold import learning_curve
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> sizes, train, test = learning_curve(KernelRidge(kernel="rbf", alpha=0.1), X, y - y.mean())
    >>> sizes, test.mean(axis=1).round(2)
    (array([ 35, 114, 194, 273, 353]), array([0.18, 0.3 , 0.41, 0.43, 0.45]))
    """
    check_in_memory(X, "a curve")
    scorer = check_scoring(estimator, scoring=scoring)
    seed = deepcopy(random_state)  # of landmarks; the generator itself is for scikit-learn's draws
    options = Options.of_method(
        method,
        operator,
        preprocessing=preprocessing,
        error_score=error_score,
        n_jobs=n_jobs,
        random_state=seed,
    )
    check_sped_up(Request(estimator, [{}], X, y, cv, scorer, options=options))
    if exploit_incremental_learning:
        raise ValueError(
            "An estimator must support the partial_fit interface to exploit incremental learning, "
            f"which {type(estimator).__name__} does not; use exploit_incremental_learning=False"
        )
    metadata = route("learning_curve", estimator, cv, scorer, groups, params)
    X, y = indexable(X, y)
    splitter = check_cv(cv, y, classifier=is_classifier(estimator))
    splits = list(splitter.split(X, y, **metadata.split))
    sizes = translate_train_sizes(train_sizes, len(splits[0][0]))
    subsets = _subsets(splits, sizes, check_random_state(random_state) if shuffle else None)
    request = Request(estimator, [{}], X, y, splits, scorer, metadata, options, _WANTS, cvs=subsets)
    data, made = planned(request)
    if verbose > 0:
        print(f"[learning_curve] Training set sizes: {sizes}")
    rows = _entries(request, data, made)
    warn_of_failures([entry for row in rows for entry in row], error_score)
    names = ["train_scores", "test_scores", *(["fit_time", "score_time"] if return_times else [])]
    return sizes, *(np.array([_column(row, name) for row in rows]) for name in names)


@falls_back
def validation_curve(
    estimator: Estimator,
    X: Matrix,
    y: Targets,
    *,
    param_name: str,
    param_range: Iterable[object],
    groups: ArrayLike | None = None,
    cv: Splitter = None,
    scoring: Scorer = None,
    n_jobs: int | None = None,
    pre_dispatch: int | str = "all",
    verbose: int = 0,
    error_score: ErrorScore = np.nan,
    params: Params | None = None,
    method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
    random_state: RandomState = None,
) -> tuple[Array, Array]:
    """Training and test scores for different values of a parameter.

    It replaces :func:`sklearn.model_selection.validation_curve`. Values that share a kernel are
    evaluated together, as in a search. Where refits of the estimator itself should take less time,
    the call is left to scikit-learn.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, pre_dispatch
        As in :func:`cross_val_score`.
    param_name : str
    param_range : array of shape (n_values,)
    scoring : str, callable or None, default=None
        One scorer of scikit-learn; None means the estimator's own ``score``.
    error_score : "raise" or float, default=nan
        The score of a fold that cannot be fitted.
    method, operator, preprocessing, random_state
        As in :class:`FastGridSearchCV`.

    Returns
    -------
    train_scores, test_scores : arrays of shape (n_values, n_splits)

    Notes
    -----
    **Cost** that of a search over the same values, with one factorisation per training set.
    **Exact?** Up to rounding, or to the solver's tolerance.

    Examples
    --------
    >>> from everyfold import validation_curve
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> train, test = validation_curve(
    ...     KernelRidge(kernel="rbf"), X, y - y.mean(), param_name="alpha", param_range=[0.01, 1.0]
    ... )
    >>> test.mean(axis=1).round(2)
    array([0.48, 0.23])
    """
    check_in_memory(X, "a curve")
    scorer = check_scoring(estimator, scoring=scoring)
    options = Options.of_method(
        method,
        operator,
        preprocessing=preprocessing,
        error_score=error_score,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    grid = [{param_name: value} for value in param_range]
    request = Request(estimator, grid, X, y, cv, scorer, options=options, wants=_WANTS)
    check_sped_up(request)
    metadata = route("validation_curve", estimator, cv, scorer, groups, params)
    request = replace(request, metadata=metadata)
    rows = _entries(request, *planned(request))
    train = np.array([_column(entries, "train_scores") for entries in rows])
    return train, np.array([_column(entries, "test_scores") for entries in rows])


def _subsets(
    splits: Sequence[tuple[Index, Index]], sizes: Index, rng: np.random.RandomState | None
) -> list[list[tuple[Index, Index]]]:
    """For every size, as many of the first rows of every training set."""
    if rng is not None:
        splits = [(rng.permutation(train), test) for train, test in splits]
    return [[(train[:size], test) for train, test in splits] for size in sizes]


def _entries(request: Request, data: Data, made: SearchPlan) -> list[list[Params]]:
    """What became of every fold of every candidate."""
    outcomes = evaluate_request(made, data, request)
    failed = [outcome.failure for outcome in outcomes.values() if outcome.failure is not None]
    if failed and request.options.error_score == "raise":
        raise failed[0].error
    warn_if_inexact(list(outcomes.values()))
    numbers = sorted({*outcomes, *data.refused})
    return [entries_of(request, data, outcomes.get(k), k, data.sizes) for k in numbers]


def _column(entries: Sequence[Params], name: str) -> Array:
    return np.array([entry[name] for entry in entries], dtype=np.float64)
