"""The answers of the models of all folds for their test rows: by the engine, or by refits.

Unlike ``cross_val_predict`` this takes any splits: repeated ones, those of nested
cross-validation, pairs of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone, is_classifier

from everyfold._sklearn_private import safe_split
from everyfold._typing import AnyArray, Estimator, Index, Label, Matrix, Params, Targets
from everyfold.adapters.pipelines import final_step
from everyfold.adapters.sklearn import read_estimator
from everyfold.engine.kept_models import fit_to
from everyfold.engine.reading.reader import not_sped_up
from everyfold.engine.request import Options, Request, RequestedOutputs
from everyfold.functions.cross_val import evaluate, parted, takes_groups
from everyfold.functions.fallback import NotSpedUp
from everyfold.functions.nested import is_search

Split = tuple[Index, Index]


@dataclass(frozen=True)
class FoldResponses:
    """Responses of models to the test rows of their folds.

    Attributes
    ----------
    rows : int array of shape (N,)
        The test rows, fold after fold.
    bounds : int array of shape (t + 1,)
        Where each fold begins.
    values : array of shape (N,) or (N, classes)
        Predictions; of two classes the values of the positive one.
    is_exact : bool
        Whether all equal those of refits.
    """

    rows: Index
    bounds: Index
    values: AnyArray
    is_exact: bool


def fold_responses(
    estimator: Estimator,
    X: Matrix,
    y: Targets,
    splits: Sequence[Split],
    asks: Sequence[str] = ("predict",),
    positive: Label | None = None,
    groups: Targets = None,
    params: Params | None = None,
) -> FoldResponses:
    """The responses of models of all splits to their test rows.

    Parameters
    ----------
    estimator : estimator or search
        A search is repeated on the training rows of every split.
    X, y
    splits : sequence of (train, test)
        Rows by number.
    asks : sequence of str
        Methods; the first that the estimator has is asked.
    positive : label, optional
        The class whose values are returned if there are two; the second by default.
    groups : array, optional
        Passed to ``fit`` of a search whose own folds need them.
    params : dict, optional
        Passed to ``fit``, with what belongs to the rows of a fold.

    Returns
    -------
    responses : FoldResponses

    Notes
    -----
    **Cost** As :func:`cross_val_score`: one factorisation for squared loss. Splits with the same
    training rows share a model.
    """
    method = next((name for name in asks if hasattr(estimator, name)), None)
    if method is None:
        raise ValueError(
            f"scoring needs {' or '.join(asks)}, which {type(estimator).__name__} does not have; "
            "use another scoring, or calibrate the classifier (FastCalibratedClassifierCV)"
        )
    options = Options(error_score="raise", fallback="refit")
    wants = RequestedOutputs(labels_only=method == "predict", selects_by=None, refits=True)
    needs_groups = groups is not None and takes_groups(getattr(estimator, "cv", None))
    given = fit_params(estimator, params) | ({"groups": groups} if needs_groups else {})
    metadata = parted(estimator, given)
    request = Request(estimator, [{}], X, y, list(splits), None, metadata, options, wants)
    bounds = np.cumsum([0, *(len(test) for _, test in splits)])
    rows = np.concatenate([test for _, test in splits])
    try:
        values, is_exact = _from_engine(request, method)
    except NotSpedUp:
        values, is_exact = _by_refits(request.indexed(), method), True
    if positive is not None and values.ndim == 1 and method != "predict":
        is_first = positive == np.unique(np.asarray(y))[0]
        if is_first:
            values = 1.0 - values if method == "predict_proba" else -values
    return FoldResponses(rows, bounds, values, is_exact)


def fit_params(estimator: Estimator, params: Params | None) -> Params:
    """Parameters of ``fit`` by the names an estimator has for them.

    Weights of rows are those of the last step of a Pipeline, so that two models can have the same.
    """
    given = dict(params or {})
    model = getattr(estimator, "estimator", estimator) if is_search(estimator) else estimator
    steps = getattr(model, "steps", None)
    if "sample_weight" in given and steps:
        given[f"{steps[-1][0]}__sample_weight"] = given.pop("sample_weight")
    return given


def _from_engine(request: Request, method: str) -> tuple[AnyArray, bool]:
    """Those of folds that share work."""
    if not is_search(request.estimator):
        reason = not_sped_up(request)
        if reason:
            raise NotSpedUp(reason, request)
        model = read_estimator(final_step(request.estimator))
        has_odds = model.is_classifier and model.loss.has_log_odds and model.voting is None
        if method == "predict_proba" and not has_odds:
            raise NotSpedUp("probabilities are refitted", request)
    data, outcome = evaluate(request, 0)
    if outcome.failure is not None:
        raise outcome.failure.error
    if outcome.values is None:
        raise NotSpedUp("nothing keeps values", request)
    task = data.tasks[0]
    held = task.held_out(outcome.values)
    if method == "predict":
        found = task.target.predict(held)
    elif method == "decision_function":
        found = task.target.decide(held)
    elif task.target.has_probabilities:
        found = _of_positive(task.target.probabilities(held))
    else:
        raise NotSpedUp("a search of models without probabilities", request)
    return found, bool(outcome.is_exact.all())


def _by_refits(request: Request, method: str) -> AnyArray:
    """Those of refits, one for each set of training rows."""
    models: dict[bytes, Estimator] = {}
    found = []
    for train, test in request.cv:
        key = train.tobytes()
        if key not in models:
            estimator = request.options.seeds.plant(clone(request.estimator))
            models[key] = fit_to(estimator, request, train)
        model = models[key]
        held, _ = safe_split(model, request.X, request.y, test, train)
        answer = np.asarray(getattr(model, method)(held))
        found.append(_of_positive(answer) if method == "predict_proba" else answer)
    return np.concatenate(found)


def _of_positive(shares: AnyArray) -> AnyArray:
    """Of two classes the probabilities of the second, as scorers get them."""
    return shares[:, 1] if shares.ndim == 2 and shares.shape[1] == 2 else shares


def truth_of(estimator: Estimator, y: Targets) -> AnyArray:
    """The targets as responses are compared with them."""
    found = np.asarray(y)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found.ravel()
    is_number = not is_classifier(estimator) and found.dtype.kind in "biuf"
    return found.astype(np.float64) if is_number else found
