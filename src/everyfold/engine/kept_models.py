"""The models of every fold, kept to predict new rows: from one factorisation, or fitted each.

Calibration and intervals predict new rows by the model of every fold. Models of squared loss come
from the factorisation of all rows; others are fitted one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data

from everyfold._sklearn_private import check_method_params, safe_split
from everyfold._typing import Array, Estimator, Index, Matrix, Targets
from everyfold.adapters.pipelines import read_rows
from everyfold.crossval.fold_models import FoldModels, are_complements, fold_models
from everyfold.engine.execution.kernel_builder import bind, rows_of
from everyfold.engine.planning.planner import choose_preprocessing
from everyfold.engine.reading.reader import check_partition, read
from everyfold.engine.records import Candidate, Data, Task
from everyfold.engine.request import Request
from everyfold.estimators.base import Fitted
from everyfold.estimators.classifiers import KernelClassifier, with_fit
from everyfold.estimators.model import Model
from everyfold.folds import Folds
from everyfold.kernels import Kernel
from everyfold.linalg.blas import blas_threads
from everyfold.operators import Expansion
from everyfold.operators.base import SupportsResponse, require


@dataclass(frozen=True)
class Shared:
    """Functions of the same kernel with coefficients of their own, after the same steps."""

    expansion: Expansion
    intercept: Array
    transformers: Sequence[Estimator] = ()

    @property
    def checks_rows(self) -> bool:
        """Whether new rows are checked here, and not by an estimator."""
        return not self.transformers

    def __call__(self, X: Matrix) -> Array:
        """What all models say of new rows, (rows, t + 1); that of all rows is the last.

        A product of the kernel with the coefficients of all models.
        """
        for transformer in self.transformers:
            X = transformer.transform(X)
        return self.expansion(read_rows(X)) + self.intercept


@dataclass(frozen=True)
class FoldRefits:
    """Estimators, fitted to the training rows of each fold and to all rows.

    With ``trains``, rows are those of a kernel matrix, of which each takes its own columns.
    """

    estimators: Sequence[Estimator]
    trains: Sequence[Index] | None
    checks_rows = False

    def __call__(self, X: Matrix) -> Array:
        """What all models say of new rows, as above."""
        rows = [X] * len(self.estimators)
        if self.trains is not None:
            rows = [X[:, train] for train in self.trains]
        pairs = zip(self.estimators, rows, strict=True)
        return np.column_stack([np.ravel(model.predict(own)) for model, own in pairs])


@dataclass(frozen=True)
class KeptFolds:
    """The models of every fold, and what they said of their test rows.

    Attributes
    ----------
    predictors : Shared or FoldRefits
    held_out : array of shape (n,)
        The value of each row by the model that was fitted without it.
    fold_of : int array of shape (n,)
        The number of that model.
    is_exact : bool
        Whether the models are those of refits, up to rounding.
    words : str
        How they came about.
    remark : str
        What users are to be warned of.
    """

    predictors: Shared | FoldRefits
    held_out: Array
    fold_of: Index
    is_exact: bool
    words: str
    remark: str = ""


def keep_folds(request: Request) -> KeptFolds:
    """Fit the models of all folds of a request for one regressor and one target.

    **Cost** for squared loss and a kernel that all folds share, one factorisation; else a fit for
    each fold. Steps of a Pipeline are fitted on each fold, or once, as in a search.
    """
    data = read(request)
    if not data.candidates:  # nothing here knows the estimator
        folds = Folds.from_splits(data.splits, data.n)
        check_partition(folds, request.cv)
        return _refitted(request, folds)
    (candidate,) = data.candidates.values()
    if follow_from_one(candidate.model):
        kind = choose_preprocessing(data, request.options)
        data = data.prepared(kind)
        if kind != "per_fold" and are_complements(data.tasks[0].folds):
            found = _shared(data, candidate, data.tasks[0])
            if found is not None:
                return found
    return _refitted(request, data.tasks[0].folds)


def follow_from_one(model: Model) -> bool:
    """Whether the models of all folds follow from one fit, if they have the same rows."""
    is_squared = model.loss.has_constant_curvature and not model.chooses_ridge
    if model.warp is not None:  # each fold's model has targets, and a way back, of its own
        return False
    return is_squared and not model.has_kernel_per_fold and not model.choice.takes_any_rows


def _from_one_fit(
    data: Data, candidate: Candidate, *, may_approximate: bool
) -> tuple[Kernel, SupportsResponse, FoldModels] | None:
    """The models of all folds; None if the structure does not say how its coefficients move."""
    model, X = candidate.model, rows_of(data, candidate)
    task, kernel = data.tasks[candidate.task], candidate.model.choice.resolve(X)
    structure = model.structure_to_fit(kernel, X.shape)
    (problem,) = model.problems(task.target, task.weights)
    ((ridge, _),) = model.columns_of_ridges(task.width)
    with blas_threads(data.n):
        operator = require(bind(data, candidate, structure, frozenset()), SupportsResponse)
        outline = operator.outline
        if outline.predicts_by_split or outline.response_rank is not None:
            return None
        if outline.is_approximate and not may_approximate:
            return None
        return kernel, operator, fold_models(problem, operator, ridge, task.folds)


def _shared(data: Data, candidate: Candidate, task: Task) -> KeptFolds | None:
    """From one factorisation, where that has the models of the folds."""
    transformers = _fit_steps(data, candidate)
    found = _from_one_fit(data, candidate, may_approximate=True)
    if found is None:
        return None
    _, operator, models = found
    remark = _ILL if not models.held_out.is_exact.all() else ""
    if operator.outline.is_approximate:
        remark = _APPROXIMATE
    return KeptFolds(
        Shared(operator.expand(models.solution.coef), models.solution.intercept, transformers),
        *_in_order(task.folds, models.held_out.values[:, 0]),
        not remark and not transformers,
        f"the models of {len(task.folds)} folds from one factorisation",
        remark,
    )


_ILL = "the system is so ill-conditioned that rounding errors may exceed 1e-6; use a larger ridge"
_APPROXIMATE = "the kernel is an approximation made of all rows, which refits would make of theirs"


def _fit_steps(data: Data, candidate: Candidate) -> list[Estimator]:
    """The steps of a Pipeline fitted to all rows without y; the rows they make are kept."""
    X, transformers = data.X, []
    for step in candidate.parts.steps:
        transformer, X = step.fit(X, None, check_method_params(X, params=step.params))
        transformers.append(transformer)
    if transformers:
        data.cache.put(("prepared", candidate.rows_key), X)
    return transformers


def fold_classifiers(request: Request, splits: Sequence[tuple[Index, Index]]) -> list[Estimator]:
    """A classifier of a request fitted to the training rows of every fold.

    **Cost** a fit for each fold; for squared loss and a kernel that all folds share, one
    factorisation. **Exact?** Refits, or equal to them up to rounding.
    """
    request = request.indexed()
    found = None
    if isinstance(request.estimator, KernelClassifier):
        found = _shared_classifiers(replace(request, cv=splits))
    if found is None:
        found = Parallel(n_jobs=request.options.n_jobs)(
            delayed(fit_to)(clone(request.estimator), request, train) for train, _ in splits
        )
    return list(found)


def _shared_classifiers(request: Request) -> list[Estimator] | None:
    """From one factorisation; None if refits differ in more than their rows."""
    data = read(request)
    if not data.candidates:  # a class that is derived from those known here
        return None
    (candidate,), task = data.candidates.values(), data.tasks[0]
    model, target, folds = candidate.model, task.target, task.folds
    ridges = model.columns_of_ridges(target.columns.shape[1])
    is_same = follow_from_one(model) and not target.has_pairs and len(ridges) == 1
    if not is_same or model.class_weight == "balanced" or model.choice.is_precomputed:
        return None
    if not are_complements(folds) or target.incomplete(folds):
        return None
    # Refits approximate the kernel of their own rows, and those of ill-conditioned ones may differ.
    shared = _from_one_fit(data, candidate, may_approximate=False)
    if shared is None or not shared[2].held_out.is_exact.all():
        return None
    kernel, operator, models = shared
    coef, intercept, q = models.solution.coef, models.solution.intercept, len(ridges[0][1])
    fits = [
        Fitted(operator.expand(coef[:, k : k + q]), intercept[k : k + q])
        for k in range(0, q * len(folds), q)
    ]
    found = [with_fit(request.estimator, fit, kernel, target) for fit in fits]
    for estimator in found:
        validate_data(estimator, request.X, skip_check_array=True)
    return found


def _in_order(folds: Folds, values: Array) -> tuple[Array, Index]:
    """Values of all test rows in the order of the rows, and the fold of each row."""
    rows = folds.test_rows
    held_out, fold_of = np.empty(folds.n), np.empty(folds.n, dtype=np.intp)
    held_out[rows] = values
    fold_of[rows] = np.repeat(np.arange(len(folds)), np.diff(folds.bounds))
    return held_out, fold_of


def _refitted(request: Request, folds: Folds) -> KeptFolds:
    """The estimator fitted to every training set, and to all rows."""
    request = request.indexed()
    everything = np.arange(folds.n)
    splits = [(fold.train, fold.test) for fold in folds] + [(everything, everything[:0])]
    fitted = Parallel(n_jobs=request.options.n_jobs)(
        delayed(_fit)(request, train, test) for train, test in splits
    )
    estimators, values = zip(*fitted, strict=True)
    trains = None
    if get_tags(request.estimator).input_tags.pairwise:
        trains = tuple(train for train, _ in splits)
    held_out, fold_of = _in_order(folds, np.concatenate(values))
    words = f"the models of {len(folds)} folds fitted one by one"
    return KeptFolds(FoldRefits(estimators, trains), held_out, fold_of, True, words)


def fit_to(estimator: Estimator, request: Request, train: Index) -> Estimator:
    """The estimator fitted to some rows of a request, with their share of its metadata."""
    rows: tuple[Matrix, Targets] = safe_split(estimator, request.X, request.y, train)
    params = check_method_params(request.X, params=request.metadata.fit, indices=train)
    estimator.fit(*rows, **params)
    return estimator  # not what fit returns: in users' classes that may be nothing


def _fit(request: Request, train: Index, test: Index) -> tuple[Estimator, Array]:
    """A clone of the estimator fitted to some rows, and its values of others."""
    estimator = fit_to(clone(request.estimator), request, train)
    if not len(test):
        return estimator, np.empty(0)
    X_test, _ = safe_split(estimator, request.X, None, test, train)
    return estimator, np.ravel(estimator.predict(X_test))
