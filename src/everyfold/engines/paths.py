"""libsvm's own machines: paths of C through every fold, on one kernel in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everyfold.criteria import Folds, OutOfFold
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite
from everyfold.engines.libsvm import Refits
from everyfold.engines.newton import MANY_FOLDS, DidNotConvergeError, NewtonSteps
from everyfold.engines.single import leave_each
from everyfold.lanes import Lanes
from everyfold.losses import EpsilonInsensitive, Hinge
from everyfold.model import Model
from everyfold.operators import DenseMatrix, KernelOperator
from everyfold.operators.base import Array, Rows, Solution
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
    tolerance, the only ones called exact; ``order="exact"`` solves all of them to it. Where no
    support vector is free, so that the intercept may be any point of an interval, and where the
    kernel is not positive semi-definite, libsvm itself fits the fold. With more
    folds or ``order=inf`` one step holds out each fold, an approximation: single rows from libsvm's
    own solution (:mod:`everyfold.engines.single`), larger folds and finite orders from that of the
    smoothed loss.
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
        return HAS_NUMBA and not model.choice.depends_on_rows and not _may_take_steps(bench)

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class."""
        if _leaves_each(models[0], operator, bench):
            return _single_method(operator)
        if _takes_steps(operator, bench):
            smooth = [replace(model, loss=_smoothed(model)) for model in models]
            return NewtonSteps().plan(smooth, operator, bench)
        return _method(operator, bench, is_staged=_is_staged(models, operator, bench))

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        problem = bench.problem(models[0])
        if isinstance(operator, DenseMatrix) and operator.is_indefinite:
            return _tabulate(problem, operator, models, bench, is_convex=False)
        if _leaves_each(models[0], operator, bench):
            assert isinstance(operator, DenseMatrix)
            return _one_by_one(problem, operator, models, bench)
        if _takes_steps(operator, bench):
            smooth = [replace(model, loss=_smoothed(model)) for model in models]
            starts = _full_fits(problem, operator, models, bench)
            answer = NewtonSteps(starts).evaluate(smooth, operator, bench)
            # What may be exact for the smoothed loss is not so for libsvm's.
            records = [replace(r, is_exact=np.zeros_like(r.is_exact)) for r in answer.records]
            return replace(answer, records=records)
        return _tabulate(problem, operator, models, bench, is_convex=True)


@dataclass(frozen=True)
class Table:
    """Held-out values of every C and fold, as they come in.

    Attributes
    ----------
    folds : Folds
    values : array of shape (n_C, N)
    is_exact : bool array of shape (n_C, t)
        Whether each cell was solved to libsvm's tolerance.
    is_unique : bool array of shape (n_C, t)
        Whether each cell has one intercept. Those that have not are libsvm's own.
    """

    folds: Folds
    values: Array
    is_exact: NDArray[np.bool_]
    is_unique: NDArray[np.bool_]

    @classmethod
    def empty(cls, n_C: int, folds: Folds) -> Table:
        """A table without entries."""
        values, shape = np.empty((n_C, int(folds.bounds[-1]))), (n_C, len(folds))
        return cls(folds, values, np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool))

    def put(self, i: int, which: Any, held: Array) -> None:
        """The values of fold i of some candidates."""
        self.values[which, self.folds.bounds[i] : self.folds.bounds[i + 1]] = held

    def refit(self, i: int, which: Any, held: Array) -> None:
        """Those that libsvm found."""
        self.put(i, which, held)
        self.is_exact[which, i] = True

    def records(self) -> list[OutOfFold]:
        """One for each candidate."""
        unknown = np.full(len(self.folds), np.nan)
        cells = zip(self.values, self.is_exact, self.is_unique, strict=True)
        return [
            OutOfFold(held[:, None], exact, unknown, unknown, is_unique=unique)
            for held, exact, unique in cells
        ]


def _tabulate(
    problem: Problem,
    operator: KernelOperator,
    models: Sequence[Model],
    bench: Bench,
    *,
    is_convex: bool,
) -> Answer:
    """Solve every fold and every C, by paths where the problem has one solution."""
    table = Table.empty(len(models), bench.folds)
    refits = Refits(models, bench)
    if not (HAS_NUMBA and is_convex):
        for i in range(len(bench.folds)):
            _hand_over(i, np.arange(len(models)), operator, refits, table)
    elif operator.depends_on_rows:
        is_convex = _fold_by_fold(problem, operator, refits, table)
    else:
        assert isinstance(operator, DenseMatrix)
        _together(problem, operator, refits, table)
    is_staged = _is_staged(models, operator, bench)
    method = _method(operator, bench, is_staged=is_staged, is_convex=is_convex)
    return Answer(table.records(), method)


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
    if not _takes_steps(operator, bench) or bench.order not in ("auto", math.inf):
        return False
    if model.class_weight == "balanced":  # the weights of all rows depend on which one is left out
        return False
    return isinstance(operator, DenseMatrix) and bool((bench.folds.sizes == 1).all())


def _one_by_one(
    problem: Problem, operator: DenseMatrix, models: Sequence[Model], bench: Bench
) -> Answer:
    """Leave-one-out by one step for each row."""
    Cs = np.array([model.penalty for model in models])
    if problem.ridge_scaling == "mean":  # the C of those that are left
        Cs /= max(problem.n_counted - 1, 1)
    K = _kernel(operator)
    paths = _fit_all(problem, K, Cs, models, bench, LOOSER)
    if np.isnan(paths.decision).any():
        raise DidNotConvergeError("there is no fit on all rows to leave rows out of")
    lanes = K if isinstance(K, Lanes) else None
    records = leave_each(problem, operator, Cs, paths, bench.folds, lanes)
    return Answer(records, _single_method(operator))


def _single_method(operator: KernelOperator) -> Method:
    words = (
        "libsvm's fit on all rows, then one step for every fold (★), and fits without the few rows "
        "that it leaves in doubt"
    )
    seconds = 3e-11 * float(operator.n) ** 3
    return Method("svm, one step", words, seconds, 24 * operator.n**2, is_approximate=True)


def _full_fits(
    problem: Problem, operator: KernelOperator, models: Sequence[Model], bench: Bench
) -> tuple[Solution, ...] | None:
    """Libsvm's solutions on all rows: Newton's method has little left to do from there."""
    if not isinstance(operator, DenseMatrix):
        return None
    Cs = np.array([model.penalty for model in models])
    if problem.ridge_scaling == "mean":
        Cs /= problem.n_counted
    paths = _fit_all(problem, operator.K, Cs, models, bench)
    assert paths.coef is not None
    return tuple(
        Solution(paths.coef[0, k][:, None], paths.intercept[0, [k]]) for k in range(len(Cs))
    )


def _fit_all(
    problem: Problem, K: Any, Cs: Array, models: Sequence[Model], bench: Bench, looser: float = 1.0
) -> FoldPaths:
    """The fits of all rows, by the solver at hand."""
    tol = looser * models[0].tolerance
    if HAS_NUMBA:
        return _solve(problem, K, Cs, problem.w[None], tol, keep_coef=True)
    plain = [
        replace(model, C=float(C), ridge_scaling="sum", tolerance=tol)
        for model, C in zip(models, Cs, strict=True)
    ]
    every, active = np.arange(problem.n), np.flatnonzero(bench.weights > 0.0)
    part = K[np.ix_(active, active)]
    fits = [Refits(plain, bench).fit(k, every, part) for k in range(len(plain))]
    coef = np.stack([fit.coef for fit in fits])
    intercept = np.concatenate([fit.intercept for fit in fits])
    done, nothing = np.ones((1, len(Cs)), dtype=bool), np.zeros((1, len(Cs)))
    return FoldPaths(
        decision=(coef @ K + intercept[:, None])[None],
        intercept=intercept[None],
        iterations=done.astype(np.int64),
        violation=nothing,
        converged=done,
        play=nothing,
        coef=coef[None],
    )


def _smoothed(model: Model) -> Any:
    assert isinstance(model.loss, Hinge | EpsilonInsensitive)
    return model.loss.smoothed(SMOOTHING)


def _method(
    operator: KernelOperator, bench: Bench, *, is_staged: bool, is_convex: bool = True
) -> Method:
    words = "support vector paths in C of every fold, to libsvm's tolerance"
    if is_staged:
        words = (
            "support vector paths in C of every fold, the best of each kernel to libsvm's tolerance"
        )
    name = "fold paths"
    if not HAS_NUMBA:
        name, words = "libsvm", "libsvm on the shared kernel, a fit each (numba is missing)"
    if not is_convex:
        name = "libsvm"
        words = "libsvm on the kernel, a fit each, since it is not positive semi-definite"
    seconds = 1e-7 * len(bench.folds) * float(operator.n) ** 2
    return Method(name, words, seconds, 12 * operator.n**2)


def _weights(problem: Problem) -> Array:
    """Each row's multiple of C."""
    return problem.w / problem.n_counted if problem.ridge_scaling == "mean" else problem.w


def _bounds(problem: Problem, folds: Folds) -> Array:
    """Each row's multiple of C in each fold: its weight in the training rows, 0 outside."""
    bounds = np.zeros((len(folds), problem.n))
    for i, fold in enumerate(folds):
        np.add.at(bounds[i], fold.train, _weights(problem.restrict(fold.train)))
    return bounds


def _together(problem: Problem, operator: DenseMatrix, refits: Refits, table: Table) -> None:
    """All folds on one kernel: the held-out rows are part of it, with bounds of 0.

    If there are many candidates, the best of them are solved again to libsvm's tolerance, from
    where a coarser one has left them.
    """
    models, bench = refits.models, refits.bench
    Cs = np.array([model.penalty for model in models])
    fine = models[0].tolerance
    coarse = max(COARSE, fine) if _is_staged(models, operator, bench) else fine
    K, bounds, threads = _kernel(operator), _bounds(problem, bench.folds), bench.threads
    paths = _solve(problem, K, Cs, bounds, coarse, keep_coef=coarse > fine, threads=threads)
    _read(paths, np.arange(len(Cs)), table)
    _settle(paths.play > coarse, np.arange(len(Cs)), operator, refits, table)
    if coarse <= fine:
        return
    assert paths.coef is not None
    errors = _errors(problem, bench.folds, table.values)
    best = np.argsort(errors)[: max(1, round(REFINED * len(Cs)))]
    again = _solve(problem, K, Cs[best], bounds, fine, start=paths.coef[:, best], threads=threads)
    table.is_exact[...] = ~table.is_unique
    _read(again, best, table)
    _settle(again.play > fine, best, operator, refits, table)


def _read(paths: FoldPaths, which: Rows, table: Table) -> None:
    """Take the held-out values of some candidates out of their paths, but not what is libsvm's."""
    for i, test in enumerate(table.folds.tests):
        unique = table.is_unique[which, i]
        table.put(i, which[unique], paths.decision[i][unique][:, test])
        table.is_exact[which[unique], i] = paths.converged[i][unique]


def _settle(
    is_loose: NDArray[np.bool_], which: Rows, operator: KernelOperator, refits: Refits, table: Table
) -> None:
    """Put libsvm's own values where no support vector is free, so that b may be many things."""
    for i in np.flatnonzero(is_loose.any(axis=1)).tolist():
        _settle_fold(i, which[is_loose[i] & table.is_unique[which, i]], operator, refits, table)


def _settle_fold(
    i: int, loose: Rows, operator: KernelOperator, refits: Refits, table: Table
) -> None:
    if loose.size:
        _hand_over(i, loose, operator, refits, table)
        table.is_unique[loose, i] = False


def _hand_over(i: int, which: Rows, operator: KernelOperator, refits: Refits, table: Table) -> None:
    """Let libsvm fit some candidates in fold i."""
    fold = table.folds[i]
    part = refits.active(fold.train)
    if operator.depends_on_rows:
        inside, cross = operator.split(fold.train, fold.test)
        inside, cross = inside.restrict(part), cross[:, part]
    else:
        inside, cross = operator.split(fold.train[part], fold.test)
    assert isinstance(inside, DenseMatrix)
    table.refit(i, which, refits.held_out(which.tolist(), fold, inside.K, cross))


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


def _fold_by_fold(problem: Problem, operator: KernelOperator, refits: Refits, table: Table) -> bool:
    """A kernel for each fold: its training rows alone, predictions from the coefficients.

    Returns whether all kernels are positive semi-definite; libsvm fits those that are not.
    """
    models = refits.models
    Cs, tol = np.array([model.penalty for model in models]), models[0].tolerance
    every, is_convex = np.arange(len(Cs)), True
    for i, fold in enumerate(table.folds):
        inside, cross = operator.split(fold.train, fold.test)
        assert isinstance(inside, DenseMatrix)
        if _is_indefinite(inside, refits.active(fold.train)):
            _hand_over(i, every, operator, refits, table)
            is_convex = False
            continue
        part = problem.restrict(fold.train)
        paths = _solve(part, inside.K, Cs, _weights(part)[None], tol, keep_coef=True)
        assert paths.coef is not None
        table.put(i, every, (cross @ paths.coef[0].T + paths.intercept[0]).T)
        table.is_exact[:, i] = paths.converged[0]
        _settle_fold(i, every[paths.play[0] > tol], operator, refits, table)
    return is_convex


def _is_indefinite(inside: DenseMatrix, rows: Rows) -> bool:
    """Whether the kernel of the rows that are fitted has a negative eigenvalue."""
    if inside.is_semidefinite:
        return False
    return (inside if len(rows) == inside.n else inside.restrict(rows)).is_indefinite


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
    options: dict[str, Any] = {
        "tol": tol,
        "start": start,
        "keep_coef": keep_coef,
        "n_threads": threads,
    }
    if isinstance(loss, EpsilonInsensitive):
        return epsilon_paths(K, y, Cs, bounds, epsilon=loss.epsilon, **options)
    return hinge_paths(K, y, Cs, bounds, **options)
