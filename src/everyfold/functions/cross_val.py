"""Cross-validation and curves with scikit-learn's signatures and without its refits.

Each function reads its arguments into a ``Request``, and leaves the call to scikit-learn's function
of the same name where nothing speeds it up (``functions/fallback.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch, check_random_state, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import type_of_target

from everyfold._progress import pluralise, warn
from everyfold._sklearn_private import (
    BaseSearchCV,
    aggregate_score_dicts,
    insert_error_scores,
    normalize_score_results,
    translate_train_sizes,
)
from everyfold._typing import (
    AnyArray,
    Array,
    ErrorScore,
    Estimator,
    Index,
    Matrix,
    Method,
    Params,
    Preprocessing,
    RandomState,
    Scorer,
    Splitter,
    Targets,
)
from everyfold.adapters.pipelines import HELD_OUT, final_step
from everyfold.adapters.sklearn import read_estimator
from everyfold.engine.execution.executor import evaluate_request, execute
from everyfold.engine.kept_models import fit_to
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.planner import plan
from everyfold.engine.reading.reader import read
from everyfold.engine.records import Data, Outcome
from everyfold.engine.request import Metadata, MethodChoice, Options, Request, RequestedOutputs
from everyfold.engine.results import entries_of, sizes_of, warn_if_inexact, warn_of_failures
from everyfold.engine.scoring.pooled_scorer import read_pooled
from everyfold.estimators.targets import Target
from everyfold.folds import Folds
from everyfold.functions.fallback import (
    check_plan,
    check_read,
    check_sped_up,
    falls_back,
    leave_to_scikit_learn,
    planned,
)
from everyfold.functions.nested import is_search, nest
from everyfold.io.base import check_in_memory
from everyfold.io.conversion import as_rows
from everyfold.operators.base import OperatorChoice


@falls_back
def cross_val_predict(
    estimator: Estimator,
    X: Matrix,
    y: Targets = None,
    *,
    groups: ArrayLike | None = None,
    cv: Splitter = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: Params | None = None,
    pre_dispatch: int | str = "2*n_jobs",
    method: Method = "predict",
    cv_method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
    random_state: RandomState = None,
    return_std: bool = False,
    hyperparameters: Literal["of the full fit"] | None = None,
) -> AnyArray:
    """Out-of-fold predictions equal to those of refitting, from one factorisation.

    It replaces :func:`sklearn.model_selection.cross_val_predict`.

    Parameters
    ----------
    estimator : estimator
        As in :class:`FastGridSearchCV`: any estimator, of which those named there are not refitted.
    X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_targets)
    groups : array of shape (n_samples,), optional
        Passed to the splitter.
    cv : int, splitter or iterable of splits, default=None
        As in scikit-learn; the test sets must be a partition of the rows.
    n_jobs : int, default=None
        The number of threads that share the folds of SVC and SVR. Other models need one
        factorisation, for which BLAS uses its own threads.
    pre_dispatch
        Accepted for compatibility; has no effect.
    verbose : int, default=0
        Print the plan if positive.
    params : dict, optional
        ``sample_weight`` for fitting; also ``groups`` if metadata routing is enabled.
    method : {"predict", "decision_function", "predict_proba"}, default="predict"
        Probabilities are available for the logistic loss only.
    cv_method : {"auto", "exact", "screen", "fast"} or MethodOptions, default="auto"
        The ``method`` of :class:`FastGridSearchCV`, as the name is scikit-learn's own here.
    operator, preprocessing, random_state
        As in :class:`FastGridSearchCV`.
    return_std : bool, default=False
        Whether to return standard deviations as well, for estimators whose ``predict`` has
        ``return_std``. Those of a ``GaussianProcessRegressor(optimizer=None)`` come from one
        factorisation; its ``alpha`` may have a number for each row.
    hyperparameters : "of the full fit" or None, default=None
        For a ``GaussianProcessRegressor`` with an optimizer, which is fitted anew in every fold:
        "of the full fit" fits its kernel once, on all rows; a warning says that these
        hyper-parameters have seen the held-out rows.

    Returns
    -------
    predictions : array of shape (n_samples,), (n_samples, n_targets) or (n_samples, n_classes)
    std : array of the same shape
        With ``return_std=True``.

    Warns
    -----
    InexactWarning
        If rounding errors may exceed 1e-6, as with a ridge close to 0, or if ``cv_method`` asks for
        an approximation.

    Notes
    -----
    **Cost** for squared loss: one factorisation, n³ flops and 8 n² bytes, for any folds. For other
    losses: about one fit per fold with a shared kernel matrix; for leave-one-out of SVC and SVR a
    short one without each support vector. **Exact?** Squared loss: up to rounding. Other losses: to
    the solver's tolerance.

    Examples
    --------
    >>> from everyfold import cross_val_predict
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> cross_val_predict(KernelRidge(alpha=0.1, kernel="rbf"), X, y, cv=5).shape
    (442,)
    """
    if hyperparameters is not None:
        estimator = _with_shared_kernel(hyperparameters, estimator, X, y)
    if return_std:
        from everyfold.gaussian_process.held_out_gaussians import (
            DistributionFolds,
            predict_with_std,
        )

        folds = DistributionFolds(estimator, X, y, groups, cv, params)
        return predict_with_std(folds)  # type: ignore[return-value]  # a pair, if asked for one
    options = options_of(locals(), method=cv_method, error_score="raise")
    labels_only = method == "predict"
    wants = RequestedOutputs(partition=True, labels_only=labels_only, selects_by=None, refits=True)
    X, y = as_rows(X, y)
    request = Request(estimator, [{}], X, y, cv, None, options=options, wants=wants)
    if method != "predict":
        request = _numbered(request)
    check_sped_up(request)
    _check_method(request, method)
    metadata = route("cross_val_predict", estimator, cv, None, groups, params)
    request = replace(request, metadata=metadata)
    data, outcome = evaluate(request, verbose)
    if method != "predict" and any(task.lacks_classes for task in data.tasks):
        leave_to_scikit_learn(
            request,
            ValueError(f"cv: the training rows of a fold lack a class, which {method} needs"),
        )
    if outcome.failure is not None:
        raise outcome.failure.error
    target, values = _in_order_of_rows(data, outcome)
    if method == "predict_proba":
        return target.probabilities(values)
    return target.predict(values) if method == "predict" else target.decide(values)


@falls_back
def cross_val_score(
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
    error_score: ErrorScore = np.nan,
    method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
    random_state: RandomState = None,
    hyperparameters: Literal["of the full fit"] | None = None,
) -> Array:
    """The score of every fold, equal to that of refitting, from one factorisation.

    It replaces :func:`sklearn.model_selection.cross_val_score`.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, pre_dispatch
        As in :func:`cross_val_predict`, but the test sets may overlap or leave rows untested. If
        the estimator is a search (:class:`FastGridSearchCV`), this is nested cross-validation: the
        inner folds of all outer folds are evaluated together if they can share work, with the
        scores of scikit-learn's nested loops. As there, pass groups for the inner folds by
        ``params={"groups": groups}``.
    scoring : str, callable or None, default=None
        Any scorer of scikit-learn; None means the estimator's own ``score``.
    error_score : "raise" or float, default=nan
        The score of a fold that cannot be fitted or scored (for example because its training rows
        have one class only).
    method, operator, preprocessing, random_state
        As in :class:`FastGridSearchCV`.
    hyperparameters : "of the full fit" or None, default=None
        As in :func:`cross_val_predict`.

    Returns
    -------
    scores : array of shape (n_splits,)

    Notes
    -----
    **Cost** and **Exact?** As in :func:`cross_val_predict`.

    Examples
    --------
    >>> from everyfold import cross_val_score
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> cross_val_score(Ridge(alpha=0.1), X, y, cv=3).round(2)
    array([0.46, 0.5 , 0.51])
    """
    if hyperparameters is not None:
        estimator = _with_shared_kernel(hyperparameters, estimator, X, y)
    if hasattr(scoring, "of_folds"):  # a score of distributions, which values alone do not have
        from everyfold.gaussian_process.held_out_gaussians import DistributionFolds

        folds = DistributionFolds(estimator, X, y, groups, cv, params)
        return scoring.of_folds(folds)  # type: ignore[no-any-return]
    scoring, pools = read_pooled(scoring)
    scorer = check_scoring(estimator, scoring=scoring)
    options = options_of(locals())
    wants = RequestedOutputs(mean_scores=False, pools=pools, selects_by=None, refits=True)
    X, y = as_rows(X, y)
    request = Request(estimator, [{}], X, y, cv, scorer, options=options, wants=wants)
    request = routed("cross_val_score", request, groups, params)
    _, outcome = evaluate(request, verbose)
    scores = list(outcome.scores)
    if outcome.failure is not None and error_score == "raise":
        raise outcome.failure.error
    is_held_out = [HELD_OUT in failure.trace for failure in outcome.failures.values()]
    if len(is_held_out) == len(scores) and not any(is_held_out):
        raise ValueError(
            f"all {len(scores)} folds failed, so that there is no score; error_score='raise' shows "
            f"where. The first failure is:\n{outcome.failures[0].trace}"
        ) from outcome.failures[0].error
    for i, failure in sorted(outcome.failures.items()):
        is_fit = HELD_OUT not in failure.trace
        warn(
            f"Fold {i} could not be {'fitted' if is_fit else 'scored'} and gets "
            f"error_score={error_score}: {failure.trace}",
            FitFailedWarning if is_fit else UserWarning,
        )
        scores[i] = error_score
    return np.array(scores, dtype=np.float64)


def _numbered(request: Request) -> Request:
    """The request with the numbers of its classes for labels that no classifier takes.

    Fractions and objects of other types are labels of decision values to scikit-learn, which
    splits the rows by y as it was passed.
    """
    y = request.y
    if request.is_source or not is_classifier(request.estimator) or np.ndim(y) != 1:
        return request
    if type_of_target(y) not in ("continuous", "unknown"):
        return request
    codes = LabelEncoder().fit_transform(np.asarray(y))
    return replace(request, y=codes, cv=check_cv(request.cv, y, classifier=True))


def _check_method(request: Request, method: str) -> None:
    """Leave the call to scikit-learn if there are no values of the method."""
    final = final_step(request.estimator)
    model = read_estimator(final)
    allowed = ["predict"]
    if model.is_classifier:
        allowed.append("decision_function")
        if model.loss.has_log_odds and model.voting is None:
            allowed.append("predict_proba")
    if method not in allowed:
        words = f"method={method!r} is not available for {type(final).__name__}; use one of "
        leave_to_scikit_learn(request, ValueError(f"{words}{allowed}"))


def _in_order_of_rows(data: Data, outcome: Outcome) -> tuple[Target, Array]:
    """The target, and held-out values in the order of the rows, without unknown classes."""
    assert outcome.values is not None
    if outcome.target is not None:
        return outcome.target, outcome.values
    task = data.tasks[0]
    held = task.held_out(outcome.values)
    values = np.empty_like(held)
    values[task.whole.test.rows] = held
    return task.target, values


def evaluate(request: Request, verbose: int) -> tuple[Data, Outcome]:
    """One candidate is a search of its own; a search is nested."""
    if is_search(request.estimator):
        return nest(request)
    data = check_read(read(request), request)
    made = plan(data, request)
    check_plan(made, request)
    if verbose > 0 and made.hint:
        print(made.hint)
    *_, (outcome,) = execute(made, data, request.options.n_jobs)
    if verbose > 0 and outcome.method:
        certainty = "exact" if outcome.is_exact.all() else "not all exact"
        sizes = f"{pluralise(made.rows, 'row')}, {pluralise(len(outcome.folds), 'fold')}"
        print(f"{sizes}: {outcome.method}, {certainty}")
    warn_if_inexact([outcome])
    return data, outcome


def options_of(call: Params, **others: Any) -> Options:
    """The options of a call, by the names of its arguments; ``others`` replace some of them."""
    call = {**call, **others}
    names = ("preprocessing", "error_score", "n_jobs", "random_state")
    given = {name: call[name] for name in names}
    return Options.of_method(call["method"], call["operator"], **given)


def routed(caller: str, request: Request, groups: Targets, params: Params | None) -> Request:
    """The request with its metadata; it is left to scikit-learn if nothing speeds it up."""
    if not is_search(request.estimator):
        check_sped_up(request)
    metadata = route(caller, request.estimator, request.cv, request.scorer, groups, params)
    return replace(request, metadata=metadata)


def parted(estimator: Estimator, params: Params) -> Metadata:
    """What ``fit`` and ``split`` get of the parameters of a ``fit``, without metadata routing.

    Groups are for the folds: those of the caller, and those of an estimator that has its own.
    """
    rest = {name: value for name, value in params.items() if name != "groups"}
    if params.get("groups") is None:
        return Metadata(rest)
    groups = {"groups": params["groups"]}
    return Metadata(rest | groups if _takes_groups(estimator) else rest, groups)


def _takes_groups(estimator: Estimator) -> bool:
    is_named = "groups" in signature(estimator.fit).parameters
    return is_named or isinstance(estimator, BaseSearchCV)


def takes_groups(splitter: Splitter) -> bool:
    """Whether a splitter needs groups: others ignore them with a warning.

    Examples
    --------
    >>> from sklearn.model_selection import GroupKFold
    >>> takes_groups(GroupKFold(3)), takes_groups(3)
    (True, False)
    """
    if not hasattr(splitter, "get_metadata_routing"):
        return False
    return splitter.get_metadata_routing().split.requests.get("groups") is True


def route(
    caller: str,
    estimator: Estimator,
    cv: Splitter,
    scorer: Scorer,
    groups: Targets,
    params: Params | None,
) -> Metadata:
    """Who gets which of ``params``, by scikit-learn's rules with and without metadata routing."""
    params = {} if params is None else params
    if not get_config()["enable_metadata_routing"]:
        return Metadata(params, {} if groups is None else {"groups": groups})
    if groups is not None:
        raise ValueError(
            "`groups` can only be passed if metadata routing is not enabled; with metadata routing "
            "enabled, pass groups as params={'groups': groups}"
        )
    router = MetadataRouter(owner=caller)
    to = {"splitter": (cv, "split"), "estimator": (estimator, "fit"), "scorer": (scorer, "score")}
    for name, (obj, method) in to.items():
        if obj is not None:
            mapping = MethodMapping().add(caller="fit", callee=method)
            router.add(**{name: obj}, method_mapping=mapping)
    routed = process_routing(router, "fit", **params)
    return Metadata(
        routed.estimator.fit,
        routed.get("splitter", Bunch(split={})).split,
        routed.get("scorer", Bunch(score={})).score,
    )


# -- Several scores of every fold, with scikit-learn's signature and without its refits -----------


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
    method: MethodChoice = "auto",
    operator: OperatorChoice = "auto",
    preprocessing: Preprocessing = "per_fold",
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
    method, operator, preprocessing, random_state
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
    scoring, pools = read_pooled(scoring)
    scorer = check_scoring(estimator, scoring=scoring, raise_exc=error_score == "raise")
    options = options_of(locals())
    wants = RequestedOutputs(
        return_train_score, mean_scores=False, pools=pools, selects_by=None, refits=True
    )
    X, y = as_rows(X, y)
    request = Request(estimator, [{}], X, y, cv, scorer, options=options, wants=wants)
    request = routed("cross_validate", request, groups, params)
    if return_estimator or return_indices:
        asked = "return_estimator" if return_estimator else "return_indices"
        check_in_memory(X, f"{asked}=True", "leave it out")
    data, outcome = evaluate(request, verbose)
    if outcome.failure is not None and error_score == "raise":
        raise outcome.failure.error
    entries = entries_of(request, data, outcome, 0, sizes_of(data, {0: outcome}))
    results = _together(entries, error_score, is_callable=callable(scoring))
    if return_estimator:
        results["estimator"] = _fitted(request, data.tasks[0].folds)
    if return_indices:
        own = list(data.tasks[0].folds)
        results["indices"] = {
            "train": tuple(fold.train for fold in own),
            "test": tuple(fold.test for fold in own),
        }
    return results | _scores(entries, with_train=return_train_score)


def _together(entries: list[Params], error_score: ErrorScore, *, is_callable: bool) -> Params:
    """The times of all folds; failures are told, and get their score."""
    warn_of_failures(entries, error_score)
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


def _with_shared_kernel(
    hyperparameters: str, estimator: Estimator, X: Matrix, y: Targets
) -> Estimator:
    """A Gaussian process whose folds share the hyper-parameters of one fit."""
    from everyfold.gaussian_process.held_out_gaussians import with_shared_kernel

    if hyperparameters != "of the full fit":
        raise ValueError(
            f"hyperparameters={hyperparameters!r} is not known; use None or 'of the full fit'"
        )
    return with_shared_kernel(estimator, X, y)


# -- Scores as a function of the number of training rows, or of a parameter ------------------------

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
    options = options_of(locals(), random_state=seed)
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
    options = options_of(locals())
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
