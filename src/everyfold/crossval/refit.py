"""The loop over folds: one training set after the other, or several at a time in threads.

Whatever fits training sets one by one is a :class:`FoldSolver`. The loop is the same for all of
them: it isolates failures, fold by fold and ridge by ridge, and can be interrupted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np

from everyfold._progress import tracked
from everyfold._typing import Array, Mask, Route
from everyfold.crossval.base import CrossValMethod, Failure, OutOfFold
from everyfold.folds import Fold, Folds
from everyfold.linalg.symmetric import EPS, are_trusted, is_trusted
from everyfold.operators.base import SupportsResponse, SupportsSplit, TrainTestKernel
from everyfold.operators.response import RidgeModels, Solution, StructureError
from everyfold.solvers import Problem, solve_path
from everyfold.svm.paths import SHORT

# What a solver makes once for all training sets.
Shared = TypeVar("Shared")


@dataclass(frozen=True)
class FoldAnswer:
    """What the models of one training set say of its test rows, for each of k ridges.

    Attributes
    ----------
    values : array of shape (k, test rows, q)
    condition : array of shape (k,)
        Condition number of the system behind each; NaN where there is none.
    is_exact : bool array of shape (k,)
    coef : array, optional
        Coefficients, if a later stage is to start from them.
    is_unique : bool array of shape (k,), optional
        Whether there is one solution; without it there is.
    words : str
        How it was done, where that differs from what was planned.
    """

    values: Array
    condition: Array
    is_exact: Mask
    coef: Array | None = None
    is_unique: Mask | None = None
    words: str = ""


@dataclass(frozen=True)
class Stage(Generic[Shared]):
    """Some of the ridges again, by a more exact solver that starts from the known solutions."""

    solver: FoldSolver[Shared]
    chosen: Sequence[int]


class FoldSolver(CrossValMethod, Generic[Shared]):
    """A criterion that fits every training set by itself, all ridges of it together."""

    ability: ClassVar[type] = SupportsSplit

    @abstractmethod
    def solve(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: Shared,
        start: Array | None = None,
    ) -> FoldAnswer:
        """Fit one training set for all ridges.

        Parameters
        ----------
        problems : sequence of Problem
            Over all rows: one, or one for each pair of classes; their columns follow one another.
        part : TrainTestKernel
        ridges : sequence of float
        shared : object
            What ``begin`` gave.
        start : array, optional
            The ``coef`` of a former stage for these ridges.
        """

    def begin(
        self, problems: Sequence[Problem], operator: SupportsSplit, ridges: Sequence[float]
    ) -> Shared:
        """What is worth making once for all training sets; by default nothing."""
        return None  # type: ignore[return-value]  # what a solver that overrides nothing shares

    def cancel(self, shared: Shared) -> None:
        """Make running calls of ``solve`` end soon; those that only call libraries end anyway."""

    def next_stage(
        self, problems: Sequence[Problem], folds: Folds, records: Sequence[OutOfFold]
    ) -> Stage[Shared] | None:
        """The ridges to solve again better, given the results of all folds; by default none."""
        return None

    def evaluate(
        self, problem: Problem, operator: SupportsSplit, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class; a training set that cannot be fitted is an error."""
        records = fit_parts(self, [problem], operator, ridges, folds)
        for record in records:
            for failure in record.failures.values():
                raise failure.error
        yield from records


class _Loop(Generic[Shared]):
    """Training sets one after the other, and the answers of all of them as they come."""

    def __init__(
        self,
        problems: Sequence[Problem],
        operator: SupportsSplit,
        ridges: Sequence[float],
        folds: Folds,
        shared: Shared,
    ) -> None:
        self.problems, self.operator, self.ridges = problems, operator, ridges
        self.folds, self.shared, self.words = folds, shared, ""
        shape, q = (len(ridges), len(folds)), sum(problem.y.shape[1] for problem in problems)
        self.values = [np.full((int(folds.bounds[-1]), q), np.nan) for _ in ridges]
        self.condition = np.full(shape, np.nan)
        self.is_exact, self.is_unique = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
        self.failures: list[dict[int, Failure]] = [{} for _ in ridges]
        self.coefs: dict[int, Array] = {}

    def run(self, solver: FoldSolver[Shared], numbers: Sequence[int], threads: int) -> None:
        """Fit some ridges, by number, in all folds."""
        fit = partial(self._fit, solver, list(numbers))
        # A compiled solver of few rows calls back often enough to see signals in this thread.
        if not solver.uses_threads or (threads == 1 and self.folds.n <= SHORT):
            for i in tracked(range(len(self.folds))):
                fit(i)
            return
        # Else it works in threads, while this one waits for signals.
        with ThreadPoolExecutor(max_workers=threads) as pool:
            futures = [pool.submit(fit, i) for i in range(len(self.folds))]
            try:
                for future in tracked(futures):
                    future.result()
            except BaseException:
                solver.cancel(self.shared)
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _fit(self, solver: FoldSolver[Shared], numbers: list[int], i: int) -> None:
        """All ridges of a fold together; if that fails, each alone."""
        fold, known = self.folds[i], self.coefs.get(i)
        part: TrainTestKernel | None = None
        pending = [numbers]
        while pending:
            some = pending.pop()
            ridges, start = [self.ridges[k] for k in some], None if known is None else known[some]
            try:
                part = part or self.operator.split(fold.train, fold.test)
                answer = solver.solve(self.problems, part, ridges, self.shared, start)
            except (MemoryError, StructureError):
                raise  # these concern all folds
            except Exception as error:
                if len(some) > 1:
                    pending += [[k] for k in some]
                else:
                    self.failures[some[0]][i] = Failure.caught(error)
                continue
            for j, k in enumerate(some):
                self._put(i, k, answer, j, part.noise)
            if answer.coef is not None and len(some) == len(self.ridges):
                self.coefs[i] = answer.coef

    def _put(self, fold: int, ridge: int, answer: FoldAnswer, j: int, noise: float) -> None:
        """Write what entry j of an answer says of a fold and a ridge.

        The relative error of values is that of rounding times the condition number; a kernel that
        is itself known to ``noise`` only is as one with a larger condition number.
        """
        rows = slice(self.folds.bounds[fold], self.folds.bounds[fold + 1])
        self.values[ridge][rows] = answer.values[j]
        self.condition[ridge, fold] = answer.condition[j]
        self.is_exact[ridge, fold] = answer.is_exact[j]
        if noise:
            condition = np.nan_to_num(answer.condition[j], nan=1.0) * noise / EPS
            self.condition[ridge, fold] = condition
            self.is_exact[ridge, fold] &= is_trusted(condition)
        if answer.is_unique is not None:
            self.is_unique[ridge, fold] = answer.is_unique[j]
        self.words = answer.words or self.words

    def records(self) -> list[OutOfFold]:
        """Those of every ridge."""
        unknown = np.full(len(self.folds), np.nan)
        return [
            OutOfFold(
                self.values[k],
                self.is_exact[k],
                unknown,
                self.condition[k],
                self.failures[k],
                is_unique=None if self.is_unique[k].all() else self.is_unique[k],
                words=self.words,
            )
            for k in range(len(self.ridges))
        ]


def fit_parts(
    solver: FoldSolver[Shared],
    problems: Sequence[Problem],
    operator: SupportsSplit,
    ridges: Sequence[float],
    folds: Folds,
    *,
    threads: int = 1,
) -> list[OutOfFold]:
    """Held-out values of every ridge, one training set at a time.

    Parameters
    ----------
    solver : FoldSolver
    problems : sequence of Problem
    operator : SupportsSplit
    ridges : sequence of float
    folds : Folds
    threads : int, default=1
        Training sets at a time; worth more than 1 where the solver is compiled.

    Returns
    -------
    list of OutOfFold
        One for each ridge. A fold that fails takes no other with it (``failures``).
    """
    loop = _Loop(problems, operator, ridges, folds, solver.begin(problems, operator, ridges))
    loop.run(solver, range(len(ridges)), threads)
    stage = solver.next_stage(problems, folds, loop.records())
    if stage is not None:
        loop.is_exact &= ~loop.is_unique  # one of many solutions was chosen, whatever the stage
        loop.run(stage.solver, stage.chosen, threads)
    return loop.records()


# Solutions on all rows, by problem and ridge.
Starts = list[dict[float, Solution]]


@dataclass(frozen=True)
class Refit(FoldSolver[Starts | None]):
    """Fit every fold's training rows, for every ridge.

    ``route="cholesky"`` is brute force, one factorisation for each fold and ridge. With
    ``route="tridiagonal"`` (or "eigen") all ridges of a fold share one, which for a few folds is
    the fastest exact method there is. It serves any split, whether or not the training rows are
    the complement of the test rows. Newton's method starts from the fit on all rows where there is
    a kernel of all rows.

    With a ``precision``, held-out values of squared loss may be off by that share of the root mean
    square of the targets, by the tridiagonal route; none is then called exact.

    **Cost** with t folds of m rows: t · 4/3 (n−m)³ flops for any number of ridges.
    **Exact?** By definition.
    """

    route: Route = "cholesky"
    precision: float = 0.0

    @property
    def may_merge(self) -> bool:
        """See base class."""
        return True

    def begin(
        self, problems: Sequence[Problem], operator: SupportsSplit, ridges: Sequence[float]
    ) -> Starts | None:
        """See base class: the fits on all rows, for losses that are iterated on."""
        if problems[0].loss.has_constant_curvature or not isinstance(operator, SupportsResponse):
            return None
        try:
            return [
                {
                    ridge: fit.solution
                    for ridge, fit in zip(
                        ridges, solve_path(problem, operator, ridges), strict=True
                    )
                }
                for problem in problems
            ]
        except (MemoryError, StructureError):
            raise
        except Exception:  # of one ridge, which fails in the folds as well, and alone there
            return None

    def solve(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: Starts | None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class; a fit that did not converge has no values."""
        begins: Sequence[Mapping[float, Solution] | None] = shared or [None] * len(problems)
        found = [
            self._solutions(problem.restrict(part.train), part, ridges, own)
            for problem, own in zip(problems, begins, strict=True)
        ]
        values = np.concatenate([own.values(part.cross) for own in found], axis=2)
        condition = np.max([own.condition for own in found], axis=0)
        if not problems[0].loss.has_constant_curvature:
            values[condition == np.inf] = np.nan
        return FoldAnswer(values, condition, are_trusted(condition) & (self.precision == 0.0))

    def _solutions(
        self,
        problem: Problem,
        part: TrainTestKernel,
        ridges: Sequence[float],
        starts: Mapping[float, Solution] | None,
    ) -> RidgeModels:
        if problem.loss.has_constant_curvature:
            rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
            return part.operator.solutions(problem.quadratic, rhos, self.route, self.precision)
        if starts is None:
            fits = list(solve_path(problem, part.operator, ridges, self.route))
        else:
            begins = [
                Solution(part.operator.inherit(own.coef, part.train), own.intercept)
                for own in (starts[ridge] for ridge in ridges)
            ]
            fits = [
                next(solve_path(problem, part.operator, [ridge], start=begin))
                for ridge, begin in zip(ridges, begins, strict=True)
            ]
        # What rounding leaves of tiny forces counts as if it came from a system as
        # ill-conditioned; a fit that did not converge has an infinite condition number.
        conditions = [max(fit.condition, fit.resolution / EPS) for fit in fits]
        return RidgeModels(
            np.stack([fit.solution.coef for fit in fits]),
            np.stack([fit.solution.intercept for fit in fits]),
            np.array(
                [
                    condition if fit.is_converged else np.inf
                    for condition, fit in zip(conditions, fits, strict=True)
                ]
            ),
        )


def refit_alone(
    problem: Problem,
    operator: SupportsResponse,
    fold: Fold,
    ridge: float,
    start: Solution | None = None,
) -> FoldAnswer:
    """One fold and ridge that a method for all folds at once gave up."""
    part = operator.split(fold.train, fold.test)
    return Refit().solve([problem], part, [ridge], None if start is None else [{ridge: start}])
