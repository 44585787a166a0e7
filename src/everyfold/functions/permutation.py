"""Is a score better than chance? Permutation tests without refits."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import check_scoring
from sklearn.utils import check_random_state, indexable

from everyfold._sklearn_private import num_samples, safe_indexing
from everyfold._typing import (
    Array,
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
from everyfold.adapters.pipelines import split_steps
from everyfold.engine.execution.executor import evaluate_request
from everyfold.engine.method_options import MethodChoice
from everyfold.engine.records import Outcome, Task
from everyfold.engine.request import Options, Request, RequestedOutputs
from everyfold.engine.results import warn_if_inexact
from everyfold.functions.cross_val import route
from everyfold.functions.fallback import check_sped_up, falls_back, planned
from everyfold.io.base import check_in_memory
from everyfold.operators.base import OperatorChoice


@falls_back
def permutation_test_score(
    estimator: Estimator,
    X: Matrix,
    y: Targets,
    *,
    groups: ArrayLike | None = None,
    cv: Splitter = None,
    n_permutations: int = 100,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
    scoring: Scorer = None,
    params: Params | None = None,
    method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
) -> tuple[float, Array, float]:
    """The score of a model, its scores for permuted targets, and a p-value.

    It replaces :func:`sklearn.model_selection.permutation_test_score`, with the same permutations
    for the same ``random_state``. For squared loss all permutations share one factorisation: each
    is one more right-hand side, at 2 n² flops, also with stratified folds, which differ from one
    permutation to the next. With other losses the permutations share the kernel matrix, and each is
    solved; where refits of the estimator itself should take less time, the call is left to
    scikit-learn.

    Parameters
    ----------
    estimator, X, y, cv, n_jobs, verbose, params
        As in :func:`cross_val_score`.
    groups : array of shape (n_samples,), optional
        Labels are permuted within groups; the groups are also passed to the splitter.
    n_permutations : int, default=100
    random_state : int, RandomState or None, default=0
        Seed of the permutations, and of landmarks without their own seed.
    scoring : str, callable or None, default=None
        One scorer of scikit-learn; None means the estimator's own ``score``.
    method, operator, preprocessing
        As in :class:`FastGridSearchCV`.

    Returns
    -------
    score : float
        The mean score over the folds for the original y.
    permutation_scores : array of shape (n_permutations,)
        The mean scores for permuted y.
    pvalue : float
        (C + 1) / (n_permutations + 1), where C is the number of permutations whose score is at
        least that of y.

    Notes
    -----
    **Cost** for squared loss: one factorisation, and 2 n² flops per permutation. Other losses: one
    shared kernel matrix, and one solution per permutation. **Exact?** As :func:`cross_val_score`,
    with scikit-learn's permutations.

    Examples
    --------
    >>> from everyfold import permutation_test_score
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidge(alpha=0.1, kernel="rbf")
    >>> score, permuted, pvalue = permutation_test_score(model, X, y - y.mean(), n_permutations=999)
    >>> round(score, 2), pvalue
    (0.45, 0.001)
    """
    check_in_memory(X, "a permutation test")
    scorer = check_scoring(estimator, scoring=scoring)
    seed = deepcopy(random_state)  # of landmarks; the generator itself is for scikit-learn's draws
    options = Options.of_method(
        method,
        operator,
        preprocessing=preprocessing,
        error_score="raise",
        n_jobs=n_jobs,
        random_state=seed,
    )
    check_sped_up(Request(estimator, [{}], X, y, cv, scorer, options=options))
    metadata = route("permutation_test_score", estimator, cv, scorer, groups, params)
    X, y, groups = indexable(X, y, groups)
    orders = _orders(num_samples(X), groups, n_permutations, check_random_state(random_state))
    wants = RequestedOutputs(mean_scores=False, selects_by=None, refits=True)
    request = Request(estimator, [{}], X, y, cv, scorer, metadata, options, wants)
    found = list(_outcomes(request, orders))
    _say([outcome for _, outcome in found], len(orders), verbose)
    scores = np.concatenate([_means(task, outcome) for task, outcome in found])
    pvalue = (np.count_nonzero(scores[1:] >= scores[0]) + 1.0) / (n_permutations + 1)
    return float(scores[0]), scores[1:], float(pvalue)


def _orders(
    n: int, groups: Targets, n_permutations: int, random_state: np.random.RandomState
) -> list[Index]:
    """Y as it is, and the permutations that scikit-learn draws, within groups if there are any."""
    rows = np.arange(n)
    if groups is None:
        return [rows, *(random_state.permutation(n) for _ in range(n_permutations))]
    labels = np.asarray(groups)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    orders = [rows]
    for _ in range(n_permutations):
        order = rows.copy()
        for own in members:
            order[own] = random_state.permutation(own)
        orders.append(order)
    return orders


def _outcomes(request: Request, orders: list[Index]) -> Iterator[tuple[Task, Outcome]]:
    """Those of all orders in turn: together, or one request each if a step may look at y."""
    requests: Iterator[Request] = iter([replace(request, orders=orders)])
    if not split_steps(request.estimator, {}).ignores_y:
        requests = (replace(request, y=safe_indexing(request.y, order)) for order in orders)
    for own in requests:
        data, made = planned(own)
        for number, outcome in sorted(evaluate_request(made, data, own).items()):
            yield data.tasks[data.candidates[number].task], outcome


def _means(task: Task, outcome: Outcome) -> Array:
    """The mean over the folds for every order of y that is part of a task."""
    if outcome.failure is not None:
        raise outcome.failure.error
    scores = np.array(outcome.scores, dtype=np.float64)
    if task.owners is not None:  # the folds of all orders, one order after the other
        scores = scores.reshape(max(task.owners) + 1, -1).T
    means: Array = scores.reshape(len(scores), -1).mean(axis=0)
    return means


def _say(outcomes: list[Outcome], count: int, verbose: int) -> None:
    """What was done, and whether it is exact."""
    if verbose > 0:
        certainty = "exact" if all(o.is_exact.all() for o in outcomes) else "not all exact"
        print(f"{count - 1} permutations: {outcomes[0].method}, {certainty}")
    warn_if_inexact(outcomes)
