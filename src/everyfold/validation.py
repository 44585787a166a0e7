"""Cross-validation with scikit-learn's signatures and without its refits."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import Bunch, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_array, check_consistent_length

from everyfold.adapters import read_estimator
from everyfold.criteria import Folds, InexactWarning
from everyfold.estimators import Model, read_weights
from everyfold.operators.base import Array
from everyfold.operators.threads import blas_threads
from everyfold.plan import Plan, plan_exact
from everyfold.scoring import stand_in
from everyfold.targets import Target


@dataclass(frozen=True)
class Evaluation:
    """Held-out values of one model, fold after fold, and how they came about."""

    target: Target
    folds: Folds
    values: Array
    is_exact: NDArray[np.bool_]
    plan: Plan


def cross_val_predict(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    groups: ArrayLike | None = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    pre_dispatch: Any = "2*n_jobs",
    method: str = "predict",
) -> NDArray[Any]:
    """Out-of-fold predictions equal to those of refitting, from one factorisation.

    A twin of :func:`sklearn.model_selection.cross_val_predict`.

    Parameters
    ----------
    estimator : estimator
        scikit-learn's ``KernelRidge``, ``Ridge``, ``RidgeClassifier``, or one of this library's.
        Any other is refused before any work, with advice.
    X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_targets)
    groups : array of shape (n_samples,), optional
        Passed to the splitter.
    cv : int, splitter or iterable of splits, default=None
        As in scikit-learn; the test sets must be a partition of the rows.
    n_jobs, pre_dispatch
        Accepted for compatibility; the work is one factorisation and BLAS shares it out itself.
    verbose : int, default=0
        Print the plan if positive.
    params : dict, optional
        ``sample_weight`` for fitting; ``groups`` too if metadata routing is enabled.
    method : {"predict", "decision_function"}, default="predict"

    Returns
    -------
    predictions : array of shape (n_samples,), (n_samples, n_targets) or (n_samples, n_classes)

    Warns
    -----
    InexactWarning
        If rounding errors may exceed 1e-6, as with a ridge close to 0.

    Examples
    --------
    >>> from everyfold import cross_val_predict
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> cross_val_predict(KernelRidge(alpha=0.1, kernel="rbf"), X, y, cv=5).shape
    (442,)
    """
    model = read_estimator(estimator)
    allowed = ("predict", "decision_function") if model.is_classifier else ("predict",)
    if method not in allowed:
        raise ValueError(
            f"method={method!r} is not available for {type(estimator).__name__}; use one of "
            f"{allowed}"
        )
    routed = _route("cross_val_predict", estimator, cv, None, groups, params)
    evaluation = _evaluate(estimator, model, X, y, cv, routed, verbose)
    folds, target = evaluation.folds, evaluation.target
    order = np.concatenate(folds.tests)
    if len(order) != folds.n or len(np.unique(order)) != folds.n:
        raise ValueError(
            f"cross_val_predict only works for partitions: cv={cv!r} does not test every row "
            "exactly once; use cross_val_score"
        )
    values = np.empty_like(evaluation.values)
    parts = folds.split(evaluation.values)
    values[order] = np.concatenate(
        [target.mask(part, fold.train) for part, fold in zip(parts, folds, strict=True)]
    )
    return target.predict(values) if method == "predict" else target.decide(values)


def cross_val_score(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    groups: ArrayLike | None = None,
    scoring: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    pre_dispatch: Any = "2*n_jobs",
    error_score: Any = np.nan,
) -> Array:
    """The score of every fold, equal to that of refitting, from one factorisation.

    A twin of :func:`sklearn.model_selection.cross_val_score`.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, pre_dispatch
        As in :func:`cross_val_predict`; the test sets may overlap or leave rows untested.
    scoring : str, callable or None, default=None
        Any scorer of scikit-learn's; None is the estimator's own ``score``.
    error_score : "raise" or float, default=nan
        The score of a fold that cannot be fitted or scored (one class only in its training rows).

    Returns
    -------
    scores : array of shape (n_splits,)

    Examples
    --------
    >>> from everyfold import cross_val_score
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> cross_val_score(Ridge(alpha=0.1), X, y, cv=3).round(2)
    array([0.48, 0.52, 0.5 ])
    """
    model = read_estimator(estimator)
    scorer = check_scoring(estimator, scoring=scoring)
    routed = _route("cross_val_score", estimator, cv, scorer, groups, params)
    X, y = indexable(X, y)
    evaluation = _evaluate(estimator, model, X, y, cv, routed, verbose)
    folds = evaluation.folds
    parts = folds.split(evaluation.values)
    return np.array(
        [
            _score(scorer, evaluation, (X, y), (fold.train, fold.test, part), routed, error_score)
            for fold, part in zip(folds, parts, strict=True)
        ]
    )


def _score(
    scorer: Any, evaluation: Evaluation, data: Any, fold: Any, routed: Bunch, error_score: Any
) -> float:
    X, y = data
    train, test, values = fold
    try:
        X_test, y_test = _take(X, test), _take(y, test)
        model = stand_in(X_test, evaluation.target, evaluation.target.mask(values, train))
        weights = {name: _take(value, test) for name, value in routed.scorer.score.items()}
        return float(scorer(model, X_test, y_test, **weights))
    except Exception as error:
        if error_score == "raise":
            raise
        warnings.warn(
            f"A fold could not be scored and gets error_score={error_score}: {error}",
            FitFailedWarning,
            stacklevel=4,
        )
        return float(error_score)


def _take(rows: Any, index: NDArray[np.intp]) -> Any:
    """Rows of an array, a sparse matrix, a data frame or a list."""
    from sklearn.utils import _safe_indexing

    return rows if rows is None else _safe_indexing(rows, index)


def _route(
    caller: str, estimator: Any, cv: Any, scorer: Any, groups: Any, params: dict[str, Any] | None
) -> Bunch:
    """Who gets which of ``params``, by scikit-learn's rules with and without metadata routing."""
    params = {} if params is None else params
    if not get_config()["enable_metadata_routing"]:
        unknown = sorted(set(params) - {"sample_weight"})
        if unknown:
            raise ValueError(
                f"params has {unknown}, which {type(estimator).__name__}.fit does not take here; "
                "only 'sample_weight' is"
            )
        return Bunch(
            splitter=Bunch(split={} if groups is None else {"groups": groups}),
            estimator=Bunch(fit=params),
            scorer=Bunch(score={}),
        )
    if groups is not None:
        raise ValueError("with metadata routing enabled, pass groups as params={'groups': groups}")
    router = MetadataRouter(owner=caller)
    to = {"splitter": (cv, "split"), "estimator": (estimator, "fit"), "scorer": (scorer, "score")}
    for name, (obj, method) in to.items():
        if obj is not None:
            mapping = MethodMapping().add(caller="fit", callee=method)
            router.add(**{name: obj}, method_mapping=mapping)
    routed = process_routing(router, "fit", **params)
    return Bunch(
        splitter=Bunch(split=routed.get("splitter", Bunch(split={})).split),
        estimator=Bunch(fit=routed.estimator.fit),
        scorer=Bunch(score=routed.get("scorer", Bunch(score={})).score),
    )


def read_folds(cv: Any, X: Any, y: Any, classifier: bool, split_params: dict[str, Any]) -> Folds:
    """The folds of any cv that scikit-learn accepts; leave-one-out without n arrays of n rows."""
    n = X.shape[0]
    splitter = check_cv(cv, y, classifier=classifier)
    if type(splitter) is LeaveOneOut:
        return Folds.leave_one_out(n)
    return Folds.from_splits(splitter.split(X, y, **split_params), n)


def _evaluate(
    estimator: Any, model: Model, X: Any, y: Any, cv: Any, routed: Bunch, verbose: int
) -> Evaluation:
    target = model.target(y)
    X = check_array(X, accept_sparse="csr", dtype=np.float64, input_name="X", estimator=estimator)
    check_consistent_length(X, target.columns)
    weights = read_weights(routed.estimator.fit.get("sample_weight"), X.shape[0])
    folds = read_folds(cv, X, y, is_classifier(estimator), routed.splitter.split)
    with blas_threads(X.shape[0]):
        return evaluate(model, X, target, weights, folds, verbose)


def evaluate(
    model: Model, X: Any, target: Target, weights: Array, folds: Folds, verbose: int = 0
) -> Evaluation:
    """Held-out values of one model: plan, factorise once, hold out every fold."""
    problem = model.problem(target, weights)
    for i, test in enumerate(folds.helds):
        _check_fold_weights(problem.w, test, i)
    groups = model.columns_of_ridges(target.columns.shape[1])
    operator = model.bind(X)
    plan = plan_exact(problem, operator, len(groups), folds)
    if verbose > 0:
        print(plan)
    results = plan.criterion.evaluate(problem, operator, [ridge for ridge, _ in groups], folds)
    values = np.empty((int(folds.bounds[-1]), target.columns.shape[1]))
    exact = np.ones(len(folds), dtype=bool)
    for (_, columns), result in zip(groups, results, strict=True):
        values[:, columns] = result.values[:, columns]
        exact &= result.is_exact
        worst = float(result.condition.max())
    if not exact.all():
        warnings.warn(
            f"{np.count_nonzero(~exact)} of {len(folds)} folds are not known to equal a refit: the "
            f"linear systems have a condition number of about {worst:.1g}, so that rounding may "
            "exceed 1e-6. A larger alpha (smaller C) is well determined.",
            InexactWarning,
            stacklevel=4,
        )
    return Evaluation(target, folds, values, exact, plan)


def _check_fold_weights(w: Array, held: NDArray[np.intp], number: int) -> None:
    # O(rows of the fold) unless everything else might be weightless.
    if w.sum() - w[held].sum() <= 0.0 and not np.delete(w, held).any():
        raise ValueError(f"cv: split {number} leaves no training rows with positive sample_weight")
