"""The loop over folds: one training set after the other, or several at a time in threads.

Whatever fits training sets one by one is a :class:`FoldSolver`. The loop is the same for all of
them: it isolates failures, fold by fold and ridge by ridge, and can be interrupted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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


@dataclass
class _Answers:
    """The answers of all folds, as they come."""

    folds: Folds
    n_ridges: int
    q: int
    values: list[Array] = field(init=False)
    condition: Array = field(init=False)
    is_exact: Mask = field(init=False)
    is_unique: Mask = field(init=False)
    failures: list[dict[int, Failure]] = field(init=False)
    words: str = ""
    coefs: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (self.n_ridges, len(self.folds))
        total = int(self.folds.bounds[-1])
        self.values = [np.full((total, self.q), np.nan) for _ in range(self.n_ridges)]
        self.condition = np.full(shape, np.nan)
        self.is_exact = np.zeros(shape, dtype=bool)
        self.is_unique = np.ones(shape, dtype=bool)
        self.failures = [{} for _ in range(self.n_ridges)]

    def put(self, fold: int, ridge: int, answer: FoldAnswer, j: int, noise: float) -> None:
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
            for k in range(self.n_ridges)
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
    table = _Answers(folds, len(ridges), sum(problem.y.shape[1] for problem in problems))
    shared = solver.begin(problems, operator, ridges)
    everything = list(range(len(ridges)))
    _run_stage(solver, problems, operator, ridges, shared, everything, table, threads)
    stage = solver.next_stage(problems, folds, table.records())
    if stage is not None:
        chosen = list(stage.chosen)
        table.is_exact &= ~table.is_unique  # one of many solutions was chosen, whatever the stage
        some = [ridges[k] for k in chosen]
        _run_stage(stage.solver, problems, operator, some, shared, chosen, table, threads)
    return table.records()


def _run_stage(
    solver: FoldSolver[Shared],
    problems: Sequence[Problem],
    operator: SupportsSplit,
    ridges: Sequence[float],
    shared: Shared,
    numbers: Sequence[int],
    table: _Answers,
    threads: int,
) -> None:
    """Fit some ridges, which have these ``numbers`` in the table, in all folds."""

    def fit_fold(i: int) -> None:
        """All ridges of a fold together; if that fails, each alone."""
        fold, known = table.folds[i], table.coefs.get(i)
        start = None if known is None else known[list(numbers)]
        part: TrainTestKernel | None = None
        pending = [list(range(len(ridges)))]
        while pending:
            some = pending.pop()
            try:
                part = part or operator.split(fold.train, fold.test)
                begin = None if start is None else start[some]
                answer = solver.solve(problems, part, [ridges[j] for j in some], shared, begin)
            except (MemoryError, StructureError):
                raise  # these concern all folds
            except Exception as error:
                if len(some) > 1:
                    pending += [[j] for j in some]
                else:
                    table.failures[numbers[some[0]]][i] = Failure.caught(error)
                continue
            for entry, j in enumerate(some):
                table.put(i, numbers[j], answer, entry, part.noise)
            if answer.coef is not None and len(some) == len(ridges):
                table.coefs[i] = answer.coef

    folds = range(len(table.folds))
    # A compiled solver of few rows calls back often enough to see signals in this thread.
    if not solver.uses_threads or (threads == 1 and table.folds.n <= SHORT):
        for i in tracked(folds):
            fit_fold(i)
        return
    # Else it works in threads, while this one waits for signals.
    with ThreadPoolExecutor(max_workers=threads) as pool:
        futures = [pool.submit(fit_fold, i) for i in folds]
        try:
            for future in tracked(futures):
                future.result()
        except BaseException:
            solver.cancel(shared)
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
