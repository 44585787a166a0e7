"""libsvm's own machines: paths of C through every fold, on one kernel in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.svm import SVC, SVR

from everyfold.criteria import Folds, OutOfFold
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite
from everyfold.engines.newton import MANY_FOLDS, NewtonSteps
from everyfold.engines.single import check_fits, leave_each, refit_each
from everyfold.lanes import Lanes
from everyfold.losses import EpsilonInsensitive, Hinge
from everyfold.model import Model
from everyfold.operators import DenseMatrix, KernelOperator
from everyfold.operators.base import Array, Solution
from everyfold.smo import HAS_NUMBA, FoldPaths, epsilon_paths, hinge_paths
from everyfold.solve import Problem

COARSE = 0.05
"""The tolerance at which all candidates of a longer path are solved first."""

REFINED = 0.2
"""The share of them, by the error on the held-out rows, that is solved to libsvm's tolerance."""

STAGED_FROM = 5

SMOOTHING = 0.05
"""Width over which kinks are rounded for the one-step formula; it hardly depends on it."""

LOOSER = 10.0
"""How much looser than libsvm's the tolerance of a fit may be that rows are only left out of."""


class FoldPathsOfC(Engine):
    """The duals of SVC and SVR, every fold and every C, warm-started upwards in C.

    Up to ``MANY_FOLDS`` folds these are the solutions libsvm finds, to its own tolerance. A path of
    ``STAGED_FROM`` or more Cs is solved coarsely first and its best candidates again to libsvm's
    tolerance, the only ones called exact; ``order="exact"`` solves all of them to it. With more
    folds or ``order=inf`` one step holds out each fold, an approximation: single rows from libsvm's
    own solution (:mod:`everyfold.engines.single`), larger folds and finite orders from that of the
    smoothed loss. Where the bench needs more of an SVC than labels, single rows are refitted.
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

    def shares_out(self, model: Model, bench: Bench) -> bool:
        """See base class: the compiled paths of all folds on a kernel that they share."""
        if not HAS_NUMBA or model.choice.depends_on_rows:
            return False
        is_refitted = _are_single(model, bench) and _refits_each(model, bench)
        return is_refitted or not _may_take_steps(bench)

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class."""
        if _leaves_each(models[0], operator, bench):
            return _single_method(models, operator, bench)
        if _takes_steps(operator, bench):
            smooth = [replace(model, loss=_smoothed(model)) for model in models]
            return _of_smoothed(NewtonSteps().plan(smooth, operator, bench))
        return _method(operator, bench, is_staged=_is_staged(models, operator, bench))

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        problem = models[0].problem(bench.target, bench.weights)
        Cs = np.array([1.0 / (2.0 * model.ridges[0]) for model in models])
        if _leaves_each(models[0], operator, bench):
            return _one_by_one(models, operator, bench)
        if _takes_steps(operator, bench):
            smooth = [replace(model, loss=_smoothed(model)) for model in models]
            starts = _full_fits(problem, operator, Cs, models[0].tolerance)
            answer = NewtonSteps(starts).evaluate(smooth, operator, bench)
            # What may be exact for the smoothed loss is not so for libsvm's.
            records = [replace(r, is_exact=np.zeros_like(r.is_exact)) for r in answer.records]
            return replace(answer, records=records, method=_of_smoothed(answer.method))
        values = np.empty((len(models), int(bench.folds.bounds[-1])))
        converged = np.empty((len(models), len(bench.folds)), dtype=bool)
        tol = models[0].tolerance
        is_staged = _is_staged(models, operator, bench)
        if operator.depends_on_rows:
            _fold_by_fold(problem, operator, Cs, bench.folds, tol, values, converged)
        else:
            assert isinstance(operator, DenseMatrix)
            first = max(COARSE, tol) if is_staged else tol
            _together(problem, operator, Cs, bench, (first, tol), values, converged)
        unknown = np.full(len(bench.folds), np.nan)
        records = [
            OutOfFold(values[k][:, None], converged[k], unknown, unknown)
            for k in range(len(models))
        ]
        return Answer(records, _method(operator, bench, is_staged=is_staged))


def _is_staged(models: Sequence[Model], operator: KernelOperator, bench: Bench) -> bool:
    """Whether candidates are solved coarsely first: many of them, on a kernel all folds share."""
    is_long = bench.order == "auto" and len(models) >= STAGED_FROM
    return is_long and HAS_NUMBA and not operator.depends_on_rows


def _takes_steps(operator: KernelOperator, bench: Bench) -> bool:
    """Whether to hold out by Newton steps of the smoothed loss."""
    return _may_take_steps(bench) and not operator.depends_on_rows


def _may_take_steps(bench: Bench) -> bool:
    if bench.order == "exact" or not bench.folds.are_removable:
        return False
    return bench.order != "auto" or len(bench.folds) > MANY_FOLDS


def _leaves_each(model: Model, operator: KernelOperator, bench: Bench) -> bool:
    """Whether folds are single rows, left out of libsvm's own fit on all rows."""
    is_possible = _takes_steps(operator, bench) and isinstance(operator, DenseMatrix)
    return is_possible and _are_single(model, bench)


def _are_single(model: Model, bench: Bench) -> bool:
    """Whether folds remove a row each from what is otherwise the same problem."""
    if not _may_take_steps(bench) or bench.order not in ("auto", math.inf):
        return False
    if model.class_weight == "balanced":  # the weights of all rows depend on which one is left out
        return False
    return bool((bench.folds.sizes == 1).all())


def _refits_each(model: Model, bench: Bench) -> bool:
    """Whether the values of single rows must be those of refits, since more than signs is read."""
    return HAS_NUMBA and bench.needs_values and model.loss.is_margin


def _one_by_one(models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
    """Leave-one-out from the fit on all rows: by one step, or a refit of every support vector."""
    assert isinstance(operator, DenseMatrix)
    problem = models[0].problem(bench.target, bench.weights)
    Cs = np.array([1.0 / (2.0 * model.ridges[0]) for model in models])
    K, tol, folds = _kernel(operator), models[0].tolerance, bench.folds
    method = _single_method(models, operator, bench)
    if isinstance(K, Lanes) and _refits_each(models[0], bench):
        records = refit_each(problem, K, Cs, folds, tol=tol, threads=bench.threads)
        return Answer(records, _with_doubts(method, records))
    paths = _solve(problem, K, Cs, problem.w[None], LOOSER * tol, keep_coef=True)
    check_fits(paths)
    lanes = K if isinstance(K, Lanes) else None
    return Answer(leave_each(problem, operator, Cs, paths, folds, lanes), method)


def _with_doubts(method: Method, records: Sequence[OutOfFold]) -> Method:
    """The same method; as an approximation, if some fits did not end or have any of many biases."""
    n_unsure = max(int(np.count_nonzero(~record.is_exact)) for record in records)
    if n_unsure == 0:
        return method
    words = (
        f"{method.words}; up to {n_unsure} rows of a candidate have a fit whose bias is not "
        "unique, since no support vector is free, or that did not reach the tolerance"
    )
    return replace(method, words=words, is_approximate=True)


def _single_method(models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
    memory = 24 * operator.n**2
    if _refits_each(models[0], bench):
        words = (
            "libsvm's fit on all rows, and one without each support vector, to libsvm's tolerance"
        )
        seconds = 1e-6 * len(models) * float(operator.n) ** 2
        return Method("svm, row by row", words, seconds, memory)
    words = (
        "libsvm's fit on all rows, then one step for every fold (★), and fits without the few rows "
        "that it leaves in doubt"
    )
    if models[0].loss.is_margin and bench.needs_values:
        words += "; the values are good for labels, and too rough to rank rows by"
    seconds = 3e-11 * float(operator.n) ** 3
    return Method("svm, one step", words, seconds, memory, is_approximate=True)


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


def _of_smoothed(method: Method) -> Method:
    """How folds of the smoothed loss were fitted: whatever the way, it is not libsvm's loss."""
    words = f"{method.words}, with the kinks of libsvm's loss rounded"
    return replace(method, words=words, is_approximate=True)


def _method(operator: KernelOperator, bench: Bench, *, is_staged: bool) -> Method:
    words = "support vector paths in C of every fold, to libsvm's tolerance"
    if is_staged:
        words = (
            "support vector paths in C of every fold, the best of each kernel to libsvm's tolerance"
        )
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
    bench: Bench,
    tolerances: tuple[float, float],
    values: Array,
    converged: Array,
) -> None:
    """All folds on one kernel: the held-out rows are part of it, with bounds of 0.

    If the first tolerance is coarser than the second, the best of the candidates are solved again
    to the second, from where they are.
    """
    coarse, fine = tolerances
    folds, threads = bench.folds, bench.threads
    K, bounds = _kernel(operator), _bounds(problem, folds)
    paths = _solve(problem, K, Cs, bounds, coarse, keep_coef=coarse > fine, threads=threads)
    _read(paths, folds, slice(None), values, converged)
    if coarse <= fine:
        return
    assert paths.coef is not None
    best = np.argsort(_errors(problem, folds, values))[: max(1, round(REFINED * len(Cs)))]
    again = _solve(problem, K, Cs[best], bounds, fine, start=paths.coef[:, best], threads=threads)
    converged[...] = False
    _read(again, folds, best, values, converged)


def _read(paths: FoldPaths, folds: Folds, which: Any, values: Array, converged: Array) -> None:
    """Take the held-out values of some candidates out of their paths."""
    for i, test in enumerate(folds.tests):
        values[which, folds.bounds[i] : folds.bounds[i + 1]] = paths.decision[i][:, test]
        converged[which, i] = paths.converged[i]


def _kernel(operator: DenseMatrix) -> Lanes | Array:
    """The kernel as the solver at hand reads it."""
    return Lanes(operator.K) if HAS_NUMBA else operator.K


def _errors(problem: Problem, folds: Folds, values: Array) -> Array:
    """A score of candidates that needs no scorer: wrong signs, or squared errors."""
    y = problem.y[np.concatenate(folds.tests), 0]
    with np.errstate(invalid="ignore"):
        if problem.loss.is_margin:
            errors = np.where(np.isnan(values), 1.0, values * y <= 0.0)
        else:
            errors = np.nan_to_num((values - y) ** 2, nan=np.inf)
    return np.asarray(errors.mean(axis=1), dtype=np.float64)


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
    problem: Problem,
    K: Any,
    Cs: Array,
    bounds: Array,
    tol: float,
    *,
    start: Array | None = None,
    keep_coef: bool = False,
    threads: int = 1,
) -> FoldPaths:
    y, loss = problem.y[:, 0], problem.loss
    if not HAS_NUMBA:
        return _libsvm(problem, np.asarray(K, dtype=np.float64), Cs, bounds, tol)
    options: dict[str, Any] = {
        "tol": tol,
        "start": start,
        "keep_coef": keep_coef,
        "n_threads": threads,
    }
    if isinstance(loss, EpsilonInsensitive):
        return epsilon_paths(K, y, Cs, bounds, epsilon=loss.epsilon, **options)
    return hinge_paths(K, y, Cs, bounds, **options)


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
