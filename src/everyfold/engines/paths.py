"""libsvm's own machines: paths of C through every fold, on one kernel in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.svm import SVC, SVR

from everyfold.criteria import Folds, OutOfFold
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite
from everyfold.engines.newton import MANY_FOLDS, NewtonSteps
from everyfold.losses import EpsilonInsensitive, Hinge
from everyfold.model import Model
from everyfold.operators import DenseMatrix, KernelOperator
from everyfold.operators.base import Array, Solution
from everyfold.smo import HAS_NUMBA, FoldPaths, epsilon_paths, hinge_paths
from everyfold.solve import Problem

SMOOTHING = 0.05
"""Width over which kinks are rounded for the one-step formula; it hardly depends on it."""


class FoldPathsOfC(Engine):
    """The duals of SVC and SVR, every fold and every C, warm-started upwards in C.

    Up to ``MANY_FOLDS`` folds these are the solutions libsvm finds, to its own tolerance. With
    more, leave-one-out above all, or with ``order=inf`` or a finite one, the loss is smoothed and
    one Newton step holds out each fold: an approximation, near-exact for single rows.
    """

    def suits(self, model: Model) -> bool:
        """See base class."""
        return not model.loss.is_smooth

    def check(self, model: Model, order: Any) -> None:
        """See base class."""
        if is_finite(order) and model.choice.depends_on_rows:
            raise ValueError(
                f"order={order!r} needs one kernel for all folds, but gamma={model.choice.gamma!r} "
                "depends on the training rows; use order='auto' or a number for gamma"
            )

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        problem = models[0].problem(bench.target, bench.weights)
        Cs = np.array([1.0 / (2.0 * model.ridges[0]) for model in models])
        if _takes_steps(operator, bench):
            smooth = [replace(model, loss=_smoothed(model)) for model in models]
            starts = _full_fits(problem, operator, Cs, models[0].tolerance)
            answer = NewtonSteps(starts).evaluate(smooth, operator, bench)
            # What may be exact for the smoothed loss is not so for libsvm's.
            records = [replace(r, is_exact=np.zeros_like(r.is_exact)) for r in answer.records]
            return replace(answer, records=records)
        values = np.empty((len(models), int(bench.folds.bounds[-1])))
        converged = np.empty((len(models), len(bench.folds)), dtype=bool)
        tol = models[0].tolerance
        if operator.depends_on_rows:
            _fold_by_fold(problem, operator, Cs, bench.folds, tol, values, converged)
        else:
            assert isinstance(operator, DenseMatrix)
            _together(problem, operator, Cs, bench.folds, tol, values, converged)
        unknown = np.full(len(bench.folds), np.nan)
        records = [
            OutOfFold(values[k][:, None], converged[k], unknown, unknown)
            for k in range(len(models))
        ]
        return Answer(records, _method(operator, bench))


def _takes_steps(operator: KernelOperator, bench: Bench) -> bool:
    """Whether to hold out by Newton steps of the smoothed loss."""
    if bench.order == "exact" or operator.depends_on_rows or not bench.folds.are_removable:
        return False
    return bench.order != "auto" or len(bench.folds) > MANY_FOLDS


def _full_fits(
    problem: Problem, operator: KernelOperator, Cs: Array, tol: float
) -> tuple[Solution, ...] | None:
    """Libsvm's solutions on all rows: Newton's method has little left to do from there."""
    if not isinstance(operator, DenseMatrix):
        return None
    paths = _solve(problem, operator.K, Cs, problem.w[None], tol, keep_coef=True)
    assert paths.coef is not None
    return tuple(
        Solution(paths.coef[0, k][:, None], paths.intercept[0, [k]]) for k in range(len(Cs))
    )


def _smoothed(model: Model) -> Any:
    assert isinstance(model.loss, Hinge | EpsilonInsensitive)
    return model.loss.smoothed(SMOOTHING)


def _method(operator: KernelOperator, bench: Bench) -> Method:
    words = "support vector paths in C of every fold, to libsvm's tolerance"
    name = "fold paths"
    if not HAS_NUMBA:
        name, words = "libsvm", "libsvm on the shared kernel, a fit each (numba is missing)"
    seconds = 1e-7 * len(bench.folds) * float(operator.n) ** 2
    return Method(name, words, seconds, 12 * operator.n**2)


def _bounds(problem: Problem, folds: Folds) -> Array:
    """Each row's multiple of C in each fold: its weight in the training rows, 0 outside."""
    bounds = np.zeros((len(folds), problem.n))
    for i, fold in enumerate(folds):
        w = problem.w[fold.train]
        if problem.balance is not None:
            w = problem.restrict(fold.train).w
        np.add.at(bounds[i], fold.train, w)
    return bounds


def _together(
    problem: Problem,
    operator: DenseMatrix,
    Cs: Array,
    folds: Folds,
    tol: float,
    values: Array,
    converged: Array,
) -> None:
    """All folds on one kernel: the held-out rows are part of it, with bounds of 0."""
    paths = _solve(problem, operator.K, Cs, _bounds(problem, folds), tol)
    for i, test in enumerate(folds.tests):
        values[:, folds.bounds[i] : folds.bounds[i + 1]] = paths.decision[i][:, test]
        converged[:, i] = paths.converged[i]


def _fold_by_fold(
    problem: Problem,
    operator: KernelOperator,
    Cs: Array,
    folds: Folds,
    tol: float,
    values: Array,
    converged: Array,
) -> None:
    """A kernel for each fold: its training rows alone, predictions from the coefficients."""
    for i, fold in enumerate(folds):
        inside, cross = operator.split(fold.train, fold.test)
        assert isinstance(inside, DenseMatrix)
        part = problem.restrict(fold.train)
        paths = _solve(part, inside.K, Cs, part.w[None], tol, keep_coef=True)
        assert paths.coef is not None
        held = cross @ paths.coef[0].T + paths.intercept[0]
        values[:, folds.bounds[i] : folds.bounds[i + 1]] = held.T
        converged[:, i] = paths.converged[0]


def _solve(
    problem: Problem, K: Array, Cs: Array, bounds: Array, tol: float, *, keep_coef: bool = False
) -> FoldPaths:
    y, loss = problem.y[:, 0], problem.loss
    if not HAS_NUMBA:
        return _libsvm(problem, K, Cs, bounds, tol)
    single = K.astype(np.float32)
    if isinstance(loss, EpsilonInsensitive):
        return epsilon_paths(
            single, y, Cs, bounds, epsilon=loss.epsilon, tol=tol, keep_coef=keep_coef
        )
    return hinge_paths(single, y, Cs, bounds, tol=tol, keep_coef=keep_coef)


def _libsvm(problem: Problem, K: Array, Cs: Array, bounds: Array, tol: float) -> FoldPaths:
    """The same by libsvm itself, one fit for each fold and C."""
    loss, y = problem.loss, problem.y[:, 0]
    shape = (len(bounds), len(Cs))
    decision, coef = np.empty((*shape, len(y))), np.zeros((*shape, len(y)))
    intercept = np.empty(shape)
    for i, bound in enumerate(bounds):
        rows = np.flatnonzero(bound)
        part = K[np.ix_(rows, rows)]
        for k, C in enumerate(Cs):
            if isinstance(loss, EpsilonInsensitive):
                model = SVR(kernel="precomputed", C=C, epsilon=loss.epsilon, tol=tol)
            else:
                model = SVC(kernel="precomputed", C=C, tol=tol)
            model.fit(part, y[rows], sample_weight=bound[rows])
            coef[i, k, rows[model.support_]] = model.dual_coef_[0]
            intercept[i, k] = model.intercept_[0]
            decision[i, k] = K @ coef[i, k] + intercept[i, k]
    done = np.ones(shape, dtype=bool)
    return FoldPaths(decision, intercept, done.astype(np.int64), np.zeros(shape), done, coef)
