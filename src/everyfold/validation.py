"""Cross-validation with scikit-learn's signatures and without its refits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
from sklearn.utils.validation import _num_samples, check_consistent_length

from everyfold.adapters import read_estimator
from everyfold.criteria import Folds, InexactWarning
from everyfold.criteria.base import TRUSTED_ERROR
from everyfold.engines import Bench
from everyfold.execute import local_threads
from everyfold.losses import Logistic
from everyfold.model import read_weights
from everyfold.operators.base import Array
from everyfold.operators.threads import blas_threads
from everyfold.preprocess import Parts, read_rows, take_apart
from everyfold.scoring import Judge
from everyfold.streaming import StreamTrial, predict_stream, run_stream, set_up_stream
from everyfold.streams import RowSource
from everyfold.targets import Labels
from everyfold.units import (
    Candidate,
    Rawdata,
    Trial,
    Verdict,
    check,
    group,
    run,
    set_up,
    share_out,
)


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
        scikit-learn's ``SVC``, ``SVR``, ``KernelRidge``, ``Ridge``, ``RidgeClassifier``, one of the
        library's, or a ``Pipeline`` that ends in one of them. Any other is refused before any
        work, with advice.
    X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_targets)
    groups : array of shape (n_samples,), optional
        Passed to the splitter.
    cv : int, splitter or iterable of splits, default=None
        As in scikit-learn; the test sets must be a partition of the rows.
    n_jobs : int, default=None
        Threads for the folds of SVC and SVR. Other models are one factorisation, which BLAS shares
        out itself.
    pre_dispatch
        Accepted for compatibility.
    verbose : int, default=0
        Print the plan if positive.
    params : dict, optional
        ``sample_weight`` for fitting; ``groups`` too if metadata routing is enabled.
    method : {"predict", "decision_function", "predict_proba"}, default="predict"
        Probabilities for the logistic loss only.

    Returns
    -------
    predictions : array of shape (n_samples,), (n_samples, n_targets) or (n_samples, n_classes)

    Warns
    -----
    InexactWarning
        If rounding errors may exceed 1e-6, as with a ridge close to 0, or if the values are an
        approximation: more than 20 folds of a loss other than the squared one.

    Examples
    --------
    >>> from everyfold import cross_val_predict
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> cross_val_predict(KernelRidge(alpha=0.1, kernel="rbf"), X, y, cv=5).shape
    (442,)
    """
    parts = take_apart(estimator, {})
    model = read_estimator(parts.final)
    allowed = ["predict"]
    if model.is_classifier:
        allowed.append("decision_function")
        if isinstance(model.loss, Logistic) and model.voting is None:
            allowed.append("predict_proba")
    if method not in allowed:
        raise ValueError(
            f"method={method!r} is not available for {type(parts.final).__name__}; use one of "
            f"{allowed}"
        )
    if isinstance(X, RowSource):
        return _predict_source(estimator, X, y, cv, method)
    routed = _route("cross_val_predict", estimator, cv, None, groups, params)
    trial, verdict = _evaluate(estimator, (X, y), cv, routed, n_jobs=n_jobs, verbose=verbose)
    if verdict.exception is not None:
        raise verdict.exception
    folds, target = trial.bench.folds, trial.bench.target
    order = np.concatenate(folds.tests)
    if len(order) != folds.n or len(np.unique(order)) != folds.n:
        raise ValueError(
            f"cross_val_predict only works for partitions: cv={cv!r} does not test every row "
            "exactly once; use cross_val_score"
        )
    assert verdict.record is not None
    held = verdict.record.values.copy()
    for i, train in trial.lacking.items():
        part = slice(folds.bounds[i], folds.bounds[i + 1])
        held[part] = target.mask(held[part], train)
    values = np.empty_like(held)
    values[order] = held
    if method == "predict_proba":
        assert isinstance(target, Labels)
        return target.probabilities(values)
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
    array([0.46, 0.5 , 0.51])
    """
    read_estimator(take_apart(estimator, {}).final)
    scorer = check_scoring(estimator, scoring=scoring)
    if isinstance(X, RowSource):
        return _score_source(estimator, X, y, cv, scorer, error_score)
    routed = _route("cross_val_score", estimator, cv, scorer, groups, params)
    _, verdict = _evaluate(
        estimator,
        (X, y),
        cv,
        routed,
        scorer=scorer,
        error_score=error_score,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    if verdict.errors and error_score == "raise":
        assert verdict.exception is not None
        raise verdict.exception
    if len(verdict.errors) == len(verdict.test):
        raise ValueError(
            f"all {len(verdict.test)} folds failed, so that there is no score; error_score='raise' "
            f"shows where. The first of them:\n{verdict.errors[0]}"
        ) from verdict.exception
    for i, trace in sorted(verdict.errors.items()):
        warnings.warn(
            f"Fold {i} could not be fitted and gets error_score={error_score}: {trace}",
            FitFailedWarning,
            stacklevel=2,
        )
        verdict.test[i] = error_score
    return np.array(verdict.test, dtype=np.float64)


def _source_trial(
    estimator: Any, source: RowSource, y: Any, cv: Any, scorers: dict[str, Any], error_score: Any
) -> tuple[StreamTrial, Candidate]:
    if y is not None:
        raise ValueError("a source of rows has y in it; leave y out")
    parts = take_apart(estimator, {})
    candidate = Candidate(0, read_estimator(parts.final), parts)
    return set_up_stream(source, cv, [candidate], (scorers, False, error_score)), candidate


def _score_source(
    estimator: Any, source: RowSource, y: Any, cv: Any, scorer: Any, error_score: Any
) -> Array:
    """The scores of the folds of a source of rows."""
    trial, candidate = _source_trial(estimator, source, y, cv, {"score": scorer}, error_score)
    ((verdict,),) = run_stream(trial, [candidate])
    return np.array(verdict.test, dtype=np.float64)


def _predict_source(
    estimator: Any, source: RowSource, y: Any, cv: Any, method: str
) -> NDArray[Any]:
    """The held-out predictions of all rows of a source, in two passes."""
    trial, candidate = _source_trial(estimator, source, y, cv, {}, "raise")
    values, untested = predict_stream(trial, candidate)
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    target = trial.reader.target(trial.reader.sample)
    return target.predict(values) if method == "predict" else target.decide(values)


def _route(
    caller: str, estimator: Any, cv: Any, scorer: Any, groups: Any, params: dict[str, Any] | None
) -> Bunch:
    """Who gets which of ``params``, by scikit-learn's rules with and without metadata routing."""
    params = {} if params is None else params
    if not get_config()["enable_metadata_routing"]:
        read_fit_params(take_apart(estimator, params))
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


def read_folds(
    splitter: Any, X: Any, y: Any, split_params: dict[str, Any], *, literal: bool = False
) -> Folds:
    """The folds of a splitter; leave-one-out without n arrays of n rows.

    ``literal`` keeps the order of the training rows, which transformers may depend on.
    """
    n = _num_samples(X)
    if type(splitter) is LeaveOneOut and not literal:
        return Folds.leave_one_out(n)
    return Folds.from_splits(splitter.split(X, y, **split_params), n, literal=literal)


def _evaluate(
    estimator: Any,
    data: Any,
    cv: Any,
    routed: Bunch,
    *,
    scorer: Any = None,
    error_score: Any = "raise",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> tuple[Trial, Verdict]:
    """One candidate is a search of its own: the same unit of work does it."""
    X, y = indexable(*data)
    parts = take_apart(estimator, routed.estimator.fit)
    candidate = Candidate(0, read_estimator(parts.final), parts)
    check(candidate, "auto")
    target = candidate.model.target(y)
    if not parts.steps:
        X = read_rows(X, estimator)
    n = _num_samples(X)
    check_consistent_length(X, target.columns)
    weights = read_weights(read_fit_params(parts).get("sample_weight"), n)
    splitter = check_cv(cv, y, classifier=is_classifier(estimator))
    folds = read_folds(splitter, X, y, routed.splitter.split, literal=bool(parts.steps))
    judge = None
    if scorer is not None:
        judge = Judge(scorer, target, data, routed.scorer.score, error_score)
    trial = set_up(Bench(target, weights, folds), judge)
    units = group([candidate], Rawdata(X, y, n, is_per_fold=True), trial)
    units = share_out(units, local_threads(n_jobs)) or units
    with blas_threads(n):
        (verdict,) = run(units[0])
    if verbose > 0 and verdict.method is not None:
        certainty = "exact" if _is_exact(verdict) else "not all exact"
        print(f"{n} rows, {len(folds)} folds: {verdict.method.words}, {certainty}")
    warn_if_inexact([verdict])
    _warn_if_approximate(verdict)
    return trial, verdict


def _is_exact(verdict: Verdict) -> bool:
    return verdict.record is not None and bool(verdict.record.is_exact.all())


def _warn_if_approximate(verdict: Verdict) -> None:
    """Say so if a method was taken that does not refit: only many folds of losses with kinks."""
    if verdict.record is None or verdict.method is None or not verdict.method.is_approximate:
        return
    warnings.warn(
        f"the held-out values are an approximation: {verdict.method.words}. It is close for folds "
        "of single rows; use up to 20 folds for the refits' own values.",
        InexactWarning,
        stacklevel=4,
    )


def read_fit_params(parts: Parts) -> dict[str, Any]:
    """What the model's ``fit`` gets besides X and y; refuses all but sample weights."""
    unknown = sorted(set(parts.params) - {"sample_weight"})
    if unknown:
        raise ValueError(
            f"params has {unknown}, which {type(parts.final).__name__}.fit does not take here; "
            "only 'sample_weight' is"
        )
    return parts.params


def warn_if_inexact(verdicts: Sequence[Verdict]) -> None:
    """Say so if values are not known to equal those of refits."""
    records = [v.record for v in verdicts if v.record is not None and not v.record.is_exact.all()]
    conditions = [float(np.nanmax(r.condition)) for r in records if np.isfinite(r.condition).any()]
    if not conditions or max(conditions) * np.finfo(np.float64).eps <= TRUSTED_ERROR:
        return
    folds = sum(int(np.count_nonzero(~record.is_exact)) for record in records)
    warnings.warn(
        f"{folds} folds of {len(records)} candidates are not known to equal a refit: the linear "
        f"systems have a condition number of up to about {max(conditions):.1g}, so that rounding "
        "may exceed 1e-6. A larger alpha (smaller C) is well determined.",
        InexactWarning,
        stacklevel=4,
    )
