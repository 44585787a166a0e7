"""The models of every fold, kept to predict new rows: from one factorisation, or fitted each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed

from everyfold.criteria.foldmodels import are_complements, fold_models
from everyfold.evaluate.bind import bind, rows_of
from everyfold.evaluate.data import Candidate, Data, Task
from everyfold.evaluate.read import check_partition, read
from everyfold.evaluate.request import Request
from everyfold.models.private import check_method_params, safe_split
from everyfold.operators import Expansion
from everyfold.operators.threads import blas_threads
from everyfold.rows.folds import Folds
from everyfold.types import Array, Estimator, Index, Matrix, Targets

__all__ = ["KeptFolds", "keep_folds"]


class Predictors(ABC):
    """The models of t folds, and that of all rows."""

    checks_rows: bool
    """Whether new rows are checked here, and not by an estimator."""

    @abstractmethod
    def __call__(self, X: Matrix) -> Array:
        """What all of them say of new rows, (rows, t + 1); the model of all rows is the last."""


@dataclass(frozen=True)
class Shared(Predictors):
    """Functions of the same kernel with coefficients of their own."""

    expansion: Expansion
    intercept: Array
    checks_rows = True

    def __call__(self, X: Matrix) -> Array:
        """See base class; a product of the kernel with the coefficients of all models."""
        values: Array = self.expansion(X) + self.intercept
        return values


@dataclass(frozen=True)
class Refitted(Predictors):
    """Estimators, fitted to the training rows of each fold and to all rows.

    With ``trains``, rows are those of a kernel matrix, of which each takes its own columns.
    """

    estimators: Sequence[Estimator]
    trains: Sequence[Index] | None
    checks_rows = False

    def __call__(self, X: Matrix) -> Array:
        """See base class."""
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
    predictors : Predictors
    held_out : array of shape (n,)
        The value of each row by the model that was fitted without it.
    fold_of : int array of shape (n,)
        The number of that model.
    is_exact : bool
        Whether the models are those of refits, up to rounding.
    words : str
        How they came about.
    """

    predictors: Predictors
    held_out: Array
    fold_of: Index
    is_exact: bool
    words: str


def keep_folds(request: Request) -> KeptFolds:
    """Fit the models of all folds of a request for one regressor and one target.

    **Cost** for squared loss and a kernel that all folds share, one factorisation; else a fit for
    each fold.
    """
    data = read(request)
    if not data.candidates:  # nothing here knows the estimator
        assert data.own is not None
        assert data.own.splits is not None
        folds = Folds.from_splits(data.own.splits, data.n)
        check_partition(folds, request.cv)
        return _refitted(request, folds)
    (candidate,), task = data.candidates.values(), data.tasks[0]
    if _are_shared(candidate, task.folds):
        found = _shared(data, candidate, task)
        if found is not None:
            return found
    return _refitted(request, task.folds)


def _are_shared(candidate: Candidate, folds: Folds) -> bool:
    """Whether the models of all folds follow from one fit."""
    model = candidate.model
    is_squared = model.loss.has_constant_curvature and not model.chooses_ridge
    is_one_kernel = not (candidate.parts.steps or model.has_kernel_per_fold)
    is_plain = not model.choice.takes_any_rows
    return is_squared and is_one_kernel and is_plain and are_complements(folds)


def _shared(data: Data, candidate: Candidate, task: Task) -> KeptFolds | None:
    """From one factorisation; None if the structure does not say how its coefficients move."""
    model, X = candidate.model, rows_of(data, candidate)
    structure = model.structure_to_fit(model.choice.resolve(X), X.shape)
    (problem,) = model.problems(task.target, task.weights)
    with blas_threads(data.n):
        operator = bind(data, candidate, structure, frozenset())
        if operator.only_splits or operator.response_rank is not None:
            return None
        models = fold_models(problem, operator, model.ridges[0], task.folds)
    coef, intercept = models.solution.coef, models.solution.intercept
    held_out, fold_of = _in_order(task.folds, models.held_out.values[:, 0])
    return KeptFolds(
        Shared(operator.expand(coef), intercept),
        held_out,
        fold_of,
        bool(models.held_out.is_exact.all()) and not operator.is_approximation,
        f"the models of {len(task.folds)} folds from one factorisation",
    )


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
    return KeptFolds(Refitted(estimators, trains), held_out, fold_of, True, words)


def _fit(request: Request, train: Index, test: Index) -> tuple[Estimator, Array]:
    """A clone of the estimator fitted to some rows, and its values of others."""
    estimator, X, y = clone(request.estimator), request.X, request.y
    rows: tuple[Matrix, Targets] = safe_split(estimator, X, y, train)
    params = check_method_params(X, params=request.metadata.fit, indices=train)
    estimator.fit(*rows, **params)
    if not len(test):
        return estimator, np.empty(0)
    X_test, _ = safe_split(estimator, X, None, test, train)
    return estimator, np.ravel(estimator.predict(X_test))
