"""Is a score better than chance? Permutation tests without refits.

Permuted targets are further columns of the same problem for squared loss, and share kernel matrices
for other losses. Rows, whole groups or signs are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import (
    check_scoring,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    root_mean_squared_error,
)
from sklearn.model_selection import check_cv
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
from everyfold.engine.records import Outcome, Task
from everyfold.engine.request import MethodChoice, Request, RequestedOutputs
from everyfold.engine.results import warn_if_inexact
from everyfold.engine.scoring.metrics import own_score
from everyfold.functions.cross_val import (
    cross_val_predict,
    cross_val_score,
    options_of,
    route,
    takes_groups,
)
from everyfold.functions.fallback import NotSpedUp, check_sped_up, falls_back, planned
from everyfold.io.base import check_in_memory
from everyfold.operators.base import OperatorChoice

# What is exchanged: rows, within groups if there are any; whole groups; or only signs change.
Exchange = Literal["within", "whole", "signs"]

# Arguments that the cross-validation of each target gets.
_OF_EACH = ("groups", "cv", "n_jobs", "params", "method", "operator", "preprocessing")

# A score, the scores of permutations, and p-values; arrays of several times or scorers.
Tested = tuple[float | Array, Array, float | Array]


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
    exchange: Exchange = "within",
    max_statistic: bool = True,
) -> Tested:
    """The score of a model, its scores for permuted targets, and a p-value.

    It replaces :func:`sklearn.model_selection.permutation_test_score`, with the same permutations
    for the same ``random_state``. For squared loss all permutations share one factorisation: each
    is one more right-hand side, at 2 n² flops, also with stratified folds, which differ from one
    permutation to the next. With other losses the permutations share the kernel matrix, and each is
    solved; where refits of the estimator itself should take less time, the call is left to
    scikit-learn.

    Parameters
    ----------
    estimator, y, cv, n_jobs, verbose, params
        As in :func:`cross_val_score`.
    X : array of shape (n_samples, n_features) or (n_samples, n_features, n_times)
        With a third axis, a model is evaluated at each time (or frequency, sensor, …), all of them
        for the same permutations.
    groups : array of shape (n_samples,), optional
        Labels are permuted within groups, or with them (``exchange``); the groups are also passed
        to the splitter.
    n_permutations : int, default=100
    random_state : int, RandomState or None, default=0
        Seed of the permutations, and of landmarks without their own seed.
    scoring : str, callable, list, tuple or None, default=None
        Scorers of scikit-learn, one or several; None means the estimator's own ``score``.
    method, operator, preprocessing
        As in :class:`FastGridSearchCV`.
    exchange : {"within", "whole", "signs"}, default="within"
        What is exchanged; if X tells nothing about y, the result must be as likely as y itself.
        "within": rows, within groups if there are any. "whole": whole groups, if the rows of a
        group depend on each other (groups of equal size, or of any size if y is constant in each).
        "signs": the signs of numbers that are symmetric around 0, those of a group together.
    max_statistic : bool, default=True
        With several times or scorers, compare each score with the largest of every permutation, so
        that the probability of any false discovery is bounded by the p-value (Westfall and Young
        1993). Scores of several scorers are standardised first. False compares each with its own.

    Returns
    -------
    score : float, or array of shape (n_times,), (n_scorers,) or (n_times, n_scorers)
        The mean score over the folds for the original y.
    permutation_scores : array of shape (n_permutations, ...)
        The mean scores for permuted y.
    pvalue : float, or array of the shape of the scores
        (C + 1) / (n_permutations + 1), where C is the number of permutations whose score, or
        largest score, is at least that of y.

    Notes
    -----
    **Cost** for squared loss: one factorisation, and 2 n² flops per permutation. Other losses: one
    shared kernel matrix, and one solution per permutation. Each time costs as much as one call; so
    does each scorer. **Exact?** As :func:`cross_val_score`, with scikit-learn's permutations.

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
    if exchange not in ("within", "whole", "signs"):
        raise ValueError(f"exchange={exchange!r} is not known; use 'within', 'whole' or 'signs'")
    call = locals()
    given: Params = {
        name: call[name] for name in (*_OF_EACH, "n_permutations", "verbose", "exchange")
    }
    if np.ndim(X) == 3 or isinstance(scoring, list | tuple):
        given["random_state"] = random_state
        if not isinstance(random_state, int):  # the same permutations for all
            given["random_state"] = check_random_state(random_state).randint(2**31 - 1)
        return _several(estimator, X, y, scoring, given, max_statistic=max_statistic)
    scorer = check_scoring(estimator, scoring=scoring)
    seed = deepcopy(random_state)  # of landmarks; the generator itself is for scikit-learn's draws
    options = options_of(locals(), error_score="raise", random_state=seed)
    labels = groups
    if exchange != "within" and not takes_groups(cv):  # others ignore them with a warning
        given["groups"] = labels = None
    if exchange == "signs":
        signs = _signs(y, groups, n_permutations, check_random_state(random_state))
        return _tested(_of_signs(estimator, X, y, scorer, signs, given))
    metadata = route("permutation_test_score", estimator, cv, scorer, labels, params)
    X, y, groups = indexable(X, y, groups)
    if exchange == "whole":
        orders = _whole(y, groups, n_permutations, check_random_state(random_state))
    else:
        orders = _orders(num_samples(X), groups, n_permutations, check_random_state(random_state))
    try:
        check_sped_up(Request(estimator, [{}], X, y, cv, scorer, options=options))
    except NotSpedUp:
        if exchange == "within":  # as in scikit-learn
            raise
        permuted = (safe_indexing(y, order) for order in orders)
        return _tested(_by_loop(estimator, X, permuted, scorer, given))
    wants = RequestedOutputs(mean_scores=False, selects_by=None, refits=True)
    request = Request(estimator, [{}], X, y, cv, scorer, metadata, options, wants)
    found = list(_outcomes(request, orders))
    _say([outcome for _, outcome in found], len(orders), verbose)
    return _tested(np.concatenate([_means(task, outcome) for task, outcome in found]))


def _tested(scores: Array) -> Tested:
    """The score of y itself, those of its permutations, and the p-value."""
    pvalue = (np.count_nonzero(scores[1:] >= scores[0]) + 1.0) / len(scores)
    return float(scores[0]), scores[1:], float(pvalue)


# -- several times or scorers ----------------------------------------------------------------------


def _several(
    estimator: Estimator,
    X: Matrix,
    y: Targets,
    scoring: Scorer,
    given: Params,
    *,
    max_statistic: bool,
) -> Tested:
    """One test for each time and scorer, on the same permutations."""
    has_times, has_scorers = np.ndim(X) == 3, isinstance(scoring, list | tuple)
    parts = np.ascontiguousarray(np.moveaxis(np.asarray(X), 2, 0)) if has_times else [X]
    scorers = list(scoring) if has_scorers else [scoring]
    if not len(parts) or not scorers:
        raise ValueError("X has no times, or scoring no scorers; pass at least one of each")
    tests = [
        permutation_test_score(estimator, part, y, scoring=own, **given)
        for part, own in product(parts, scorers)
    ]
    shape = (len(parts),) * has_times + (len(scorers),) * has_scorers
    scores = np.array([test[0] for test in tests], dtype=np.float64)
    null = np.stack([test[1] for test in tests], axis=1)
    pvalues = _largest(scores, null, len(scorers)) if max_statistic else [t[2] for t in tests]
    return (
        scores.reshape(shape),
        null.reshape(len(null), *shape),
        np.asarray(pvalues, dtype=np.float64).reshape(shape),
    )


def _largest(scores: Array, null: Array, n_scorers: int) -> Array:
    """P-values by the largest score of each permutation, (columns,)."""
    both = np.vstack([scores, null])
    if n_scorers > 1:  # those of one scorer are comparable as they are
        spread = both.std(axis=0)
        both = (both - both.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    most = both[1:].max(axis=1)
    return np.asarray((np.sum(most[:, None] >= both[0], axis=0) + 1.0) / len(both))


# -- other exchanges -------------------------------------------------------------------------------


def _whole(
    y: Targets, groups: Targets, n_permutations: int, random_state: np.random.RandomState
) -> list[Index]:
    """Orders of y that exchange whole groups."""
    if groups is None:
        raise ValueError("exchange='whole' needs groups; pass groups, or use exchange='within'")
    labels, targets = np.asarray(groups), np.asarray(y)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    is_constant = all((targets[own] == targets[own[0]]).all() for own in members)
    sizes = np.array([len(own) for own in members])
    alike = [np.arange(len(members))]
    if not is_constant:
        alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    if max(len(own) for own in alike) < 2:
        raise ValueError(
            "exchange='whole': no two groups have the same number of rows, so that none can be "
            "exchanged; use exchange='within', or groups of equal size"
        )
    orders = [np.arange(len(labels))]
    for _ in range(n_permutations):
        order = np.arange(len(labels))
        for some in alike:
            for own, other in zip(some, random_state.permutation(some), strict=True):
                # Rows of a group with a constant y are as good as its first.
                order[members[own]] = members[other][0] if is_constant else members[other]
        orders.append(order)
    return orders


def _signs(
    y: Targets, groups: Targets, n_permutations: int, random_state: np.random.RandomState
) -> Array:
    """1, and then signs at random, one for each group or row, (permutations + 1, n)."""
    targets = np.asarray(y)
    if targets.ndim != 1 or targets.dtype.kind not in "iuf":
        raise ValueError(
            "exchange='signs' needs one column of numbers as y; for labels use exchange='within', "
            "with pairs as groups"
        )
    units = np.arange(len(targets))
    if groups is not None:
        units = np.unique(np.asarray(groups), return_inverse=True)[1]
    drawn = 2.0 * random_state.randint(0, 2, (n_permutations, int(units.max()) + 1)) - 1.0
    return np.vstack([np.ones(len(targets)), drawn[:, units]])


def _of_signs(
    estimator: Estimator, X: Matrix, y: Targets, scorer: Scorer, signs: Array, given: Params
) -> Array:
    """The scores of y with these signs: as columns of one problem, or one after the other."""
    columns = signs * np.asarray(y, dtype=np.float64)
    metric = getattr(scorer, "_score_func", None)
    if metric is None and own_score(scorer) is not None:
        metric = r2_score
    if metric not in _OF_COLUMNS or getattr(scorer, "_kwargs", {}):
        return _by_loop(estimator, X, columns, scorer, given)
    splitter = check_cv(given["cv"])
    is_plain = given["params"] is None and not hasattr(estimator, "plan")
    splits = list(splitter.split(X, y, given["groups"])) if is_plain else []
    tests = [test for _, test in splits]
    is_partition = is_plain and len(np.unique(np.concatenate(tests))) == sum(map(len, tests))
    if not is_partition or sum(map(len, tests)) < len(columns[0]):
        return _by_loop(estimator, X, columns, scorer, given)
    options = {name: given[name] for name in ("n_jobs", "operator", "preprocessing")}
    try:
        check_sped_up(Request(estimator, [{}], X, columns.T, splits))
        values = cross_val_predict(
            estimator, X, columns.T, cv=splits, cv_method=given["method"], **options
        )
    except (NotSpedUp, ValueError):  # a model of one target, or one that fits all of them jointly
        return _by_loop(estimator, X, columns, scorer, given)
    sign = getattr(scorer, "_sign", 1.0)
    scores = [
        sign * metric(columns.T[test], values[test], multioutput="raw_values") for test in tests
    ]
    return np.asarray(np.mean(scores, axis=0))


_OF_COLUMNS = (r2_score, mean_squared_error, mean_absolute_error, root_mean_squared_error)


def _by_loop(
    estimator: Estimator,
    X: Matrix,
    targets: Iterator[Targets] | Sequence[Targets] | Array,
    scorer: Scorer,
    given: Params,
) -> Array:
    """The mean score of each target by itself."""
    options = {name: given[name] for name in _OF_EACH}
    return np.array(
        [np.mean(cross_val_score(estimator, X, y, scoring=scorer, **options)) for y in targets]
    )


# -- permutations of rows --------------------------------------------------------------------------


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
