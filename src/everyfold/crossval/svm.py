"""Cross-validation of SVC and SVR: the path of C through every training set.

:class:`FoldPaths` solves libsvm's own problem for every fold and every C in compiled code, and asks
libsvm itself where it alone decides between many solutions. The other classes are leave-one-out and
approximations of it: :class:`SVMLooByStep`, :class:`SVMLooByRefit` and :class:`SmoothedSVMSteps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from sklearn.svm import SVR

from everyfold._sklearn_private import classify_by_libsvm
from everyfold._typing import AnyArray, Array, Index, Mask, Params
from everyfold.crossval import svm_loo as single
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.crossval.refit import FoldAnswer, FoldSolver, Stage, fit_parts
from everyfold.crossval.svm_loo import (
    FLAT,
    NOISY,
    ROUNDING,
    are_close,
    check_fits,
    finer,
    hold_out_by_refits,
    is_decided,
    most_noise,
    rounding,
    tips,
    unit_of,
)
from everyfold.folds import Folds
from everyfold.linalg.blas import product
from everyfold.operators.base import SupportsResponse, SupportsSplit, TrainTestKernel, require
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Solution
from everyfold.solvers import Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import PairPaths, PairProblems, PathResults, Stop, pair_paths, svm_paths

# Width over which kinks are rounded for steps of folds, in the unit of the loss: 1 for labels, the
# standard deviation of y for numbers (docs/mathematics.md, §7). What is found is an approximation
# by this width, and never called exact.
SMOOTHING = 0.05

# By how much the tolerance of a fit may exceed libsvm's, if rows are only left out of that fit.
LOOSER = 10.0

# Where C times the largest entry of the kernel is above this, its last digits turn labels: the
# kernel is made in float64 and rounded, as libsvm does, in place of being made in float32.
STEEP = 1e3

# Kernels whose smallest entry is above this share of the largest are read without a constant.
#
# In float32 the constant would take the digits that decide. Below, less than one digit is gained.
NEARLY_CONSTANT = 0.9

_INDEFINITE = "libsvm on the kernel, a fit each, since it is not positive semi-definite"
_COMPILED = ("everyfold.svm.core.drivers",)


class IndefiniteError(ValueError):
    """A kernel with negative eigenvalues: there may be many minima, and libsvm's is one of them."""


@dataclass(frozen=True)
class _Shared:
    """What all training sets use.

    Attributes
    ----------
    kernel : Kernel32, ClassKernel or None
        The kernel of all rows, if there is one: by classes where problems are pairs of them.
    is_indefinite : bool
        Whether that has negative eigenvalues.
    stop : int array of shape (1,)
        A flag that ends running work.
    """

    kernel: Kernel32 | ClassKernel | None
    is_indefinite: bool
    stop: Stop


@dataclass(frozen=True)
class FoldPaths(FoldSolver[_Shared]):
    """The duals of SVC and SVR for every training set and every C, warm-started upwards in C.

    Training sets of a kernel of all rows are solved on that kernel, in which held-out rows have a
    bound of 0; their decision values come along. A pair of classes is solved on its own rows. Where
    held-out values differ by few tolerances, they are solved finer, so that they do
    not depend on where the solver started. Where no support vector is free, so that the intercept
    may be any point of an interval, where most held-out values are within the tolerance of 0, and
    where the kernel is not positive semi-definite, libsvm itself fits the training set.

    Parameters
    ----------
    tol : float
        libsvm's tolerance.
    coarse : float, optional
        A looser tolerance for a first stage; the best of the ridges are then solved to ``tol``.
    refined : float, default=0.2
        Their share.
    penalties : tuple of (ridge, C)
        The C of each ridge as it was given, to the last digit; 1/(2 ridge) for others.
    shrinking : bool, default=True
        As in libsvm.
    reads_signs : bool, default=False
        Whether nothing but the signs of held-out values is asked for.

    Notes
    -----
    **Cost** about 1 ns a pair step and row; some thousand steps a fold.
    **Exact?** To ``tol``, like libsvm itself, or finer; after a coarse stage only what was solved
    again.
    """

    tol: float
    coarse: float | None = None
    refined: float = 0.2
    penalties: tuple[tuple[float, float], ...] = ()
    shrinking: bool = True
    reads_signs: bool = False

    uses_threads: ClassVar[bool] = True
    compiled: ClassVar[tuple[str, ...]] = _COMPILED

    def begin(
        self, problems: Sequence[Problem], operator: SupportsSplit, ridges: Sequence[float]
    ) -> _Shared:
        """See base class."""
        stop = np.zeros(1, dtype=np.int64)
        if operator.is_indefinite or not isinstance(operator, DenseMatrix):
            return _Shared(None, operator.is_indefinite, stop)
        if len(problems) == 1 or problems[0].classes is None:
            return _Shared(self._single(operator, ridges), False, stop)
        # Pairs of classes predict test rows by K itself, so that it is made in any case.
        own = self._single(operator, ridges, is_made=True)
        kernel = ClassKernel.of(own, problems[0].classes.codes)
        return _Shared(kernel, False, stop)

    def cancel(self, shared: _Shared) -> None:
        """See base class."""
        shared.stop[0] = 1

    def next_stage(
        self, problems: Sequence[Problem], folds: Folds, records: Sequence[OutOfFold]
    ) -> Stage[_Shared] | None:
        """See base class: the ridges with the smallest errors on held-out rows."""
        if self.coarse is None or self.coarse <= self.tol:
            return None
        errors = _errors(problems[0], folds, records)
        best = np.argsort(errors, kind="stable")[: max(1, round(self.refined * len(records)))]
        return Stage(replace(self, coarse=None), best.tolist())

    def solve(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: _Shared,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class."""
        if shared.is_indefinite or _is_indefinite(problems, part):
            values = [self._libsvm(problem, part, ridges) for problem in problems]
            exact = np.ones(len(ridges), dtype=bool)
            unknown = np.full(len(ridges), np.nan)
            return FoldAnswer(np.stack(values, axis=2), unknown, exact, words=_INDEFINITE)
        if len(problems) > 1:
            return self._pairs(problems, part, ridges, shared)
        return self._one_problem(problems[0], part, ridges, shared, start)

    def _one_problem(
        self,
        problem: Problem,
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: _Shared,
        start: Array | None,
    ) -> FoldAnswer:
        """Solve a training set, and have libsvm's own values where b may be many things.

        That is where no support vector is free, and where most held-out values are within the
        tolerance of 0, as on a kernel near the identity: their signs are those of b's last digits.
        """
        inside, kernel = problem.restrict(part.train), shared.kernel
        assert not isinstance(kernel, ClassKernel)
        is_whole = kernel is not None
        if kernel is not None:
            # Rows outside the training set take part with a bound of 0: their values come along.
            y, bounds = problem.y[:, 0], np.zeros(problem.n)
            np.add.at(bounds, part.train, multiples(inside))
        else:
            # The training set has a kernel of its own; a product predicts its test rows.
            y, bounds, start = inside.y[:, 0], multiples(inside), None
            kernel = self._single(require(part.operator, DenseMatrix), ridges)

        def solve(Cs: Array, tol: float, start: Array | None) -> tuple[PathResults, Array, Array]:
            """The paths, their coefficients, (Cs, rows), and the values of test rows."""
            paths = svm_paths(
                kernel,
                y,
                Cs,
                bounds,
                epsilon=problem.loss.tube,
                tol=tol,
                start=start,
                stop=shared.stop,
            )
            if is_whole:
                return paths, paths.coef, paths.decision[:, part.test]
            values = product(part.cross, paths.coef.T).T + paths.intercept[:, None]
            return paths, paths.coef, values

        Cs = np.array([self._C(ridge) for ridge in ridges])
        paths, coef, values = solve(Cs, self._tolerance, start)
        sure = paths.converged
        loose: Mask = paths.play > self._tolerance
        undecided = _is_undecided(problem, values, self.tol)
        if self._is_steep(ridges, kernel.diagonal):
            sure &= rounding(kernel.diagonal, coef) <= most_noise(inside, self.tol)
        for (k,) in self._close(problem, values, paths.spread).tolist():
            if not paths.converged[k] or loose[k] or undecided[k]:
                continue  # more steps would not decide these
            own, tol = slice(k, k + 1), finer(values[k], paths.spread[k], self.tol)
            found, fine_coef, values[own] = solve(Cs[own], tol, coef[own])
            error = max(found.violation[0], rounding(kernel.diagonal, fine_coef)[0])
            spread, play = found.spread[0], found.play[0]
            sure[k] = is_decided(inside, values[k], error, spread, play)
            loose[k] = play > self.tol
        which = np.flatnonzero(loose | undecided)
        if which.size:
            some = [ridges[j] for j in which.tolist()]
            values[which] = self._libsvm(problem, part, some)
        kept, unknown = None if self.coarse is None else coef, np.full(len(Cs), np.nan)
        return FoldAnswer(values[:, :, None], unknown, sure | loose, kept, ~loose)

    def _pairs(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: _Shared,
    ) -> FoldAnswer:
        """Every pair of classes on its own rows."""
        pairs, kernel = TrainingPairs.of(problems, part), shared.kernel
        if kernel is None:
            made = self._single(require(part.operator, DenseMatrix), ridges)
            kernel = ClassKernel.of(made, pairs.codes)
        assert isinstance(kernel, ClassKernel)
        k, Cs = len(ridges), [self._C(ridge) for ridge in ridges]
        values = np.full((k, len(part.test), len(problems)), np.nan)
        if not pairs.numbers.size:
            return FoldAnswer(values, np.full(k, np.nan), np.ones(k, dtype=bool))
        tol, stop = self._tolerance, shared.stop
        places = pairs.places(kernel, pairs.pairs.rows)
        placed = replace(pairs.pairs, rows=places)
        paths = pair_paths(kernel.kernel, placed, Cs, tol=tol, stop=stop)
        loose: Mask = paths.play > tol
        for pair in np.flatnonzero(loose.any(axis=1)).tolist():
            self._put_libsvms(pairs, pair, kernel, paths, loose[pair])
        held = pairs.predict(paths.coef) + paths.intercept[:, :, None]
        undecided = _is_undecided(
            problems[0], held.reshape(paths.play.size, len(part.test)), self.tol
        )
        undecided = undecided.reshape(paths.play.shape)
        diagonal, sure = kernel.kernel.diagonal[places], paths.converged
        if self._is_steep(ridges, diagonal):
            sure &= self._are_precise(pairs, diagonal, paths.coef)
        refined = {}
        for pair, j in self._close(problems[0], held, paths.spread).tolist():
            if sure[pair, j] and not (loose[pair, j] or undecided[pair, j]):
                tol, own = finer(held[pair, j], paths.spread[pair, j], self.tol), placed.only(pair)
                found = pair_paths(kernel.kernel, own, [Cs[j]], tol=tol, stop=stop)
                refined[pair, j], paths.coef[j, pairs.entries(pair)] = found, found.coef[0]
                paths.intercept[pair, j] = found.intercept[0, 0]
                loose[pair, j] = found.play[0, 0] > self.tol
                if loose[pair, j]:
                    self._put_libsvms(pairs, pair, kernel, paths, np.arange(k) == j)
        if refined:
            held = pairs.predict(paths.coef) + paths.intercept[:, :, None]
        for (pair, j), found in refined.items():
            noise = rounding(diagonal[pairs.entries(pair)], found.coef)[0]
            error = max(found.violation[0, 0], noise)
            about = found.spread[0, 0], found.play[0, 0]
            sure[pair, j] = is_decided(pairs.problem(pair), held[pair, j], error, *about)
        for pair in np.flatnonzero(undecided.any(axis=1)).tolist():
            which = np.flatnonzero(undecided[pair])
            some = [ridges[j] for j in which.tolist()]
            held[pair, which] = self._libsvm(problems[pairs.numbers[pair]], part, some)
        values[:, :, pairs.numbers] = held.transpose(1, 2, 0)
        exact = np.all(sure | loose, axis=0)
        return FoldAnswer(values, np.full(k, np.nan), exact, None, ~np.any(loose, axis=0))

    def _are_precise(self, pairs: TrainingPairs, diagonal: Array, coef: Array) -> Mask:
        """Whether values of each pair are, (pairs, Cs): one bound for all serves nearly every."""
        size, starts = np.sqrt(np.abs(diagonal)), pairs.pairs.starts
        norms = np.sqrt(np.add.reduceat((coef * size) ** 2, starts[:-1], axis=1))
        precise: Mask = ROUNDING * float(size.max()) * norms.T <= NOISY * self.tol
        for pair in np.flatnonzero(~precise.all(axis=1)).tolist():
            own = pairs.entries(pair)
            noise = rounding(diagonal[own], coef[:, own])
            precise[pair] = noise <= most_noise(pairs.problem(pair), self.tol)
        return precise

    def _put_libsvms(
        self, pairs: TrainingPairs, pair: int, kernel: ClassKernel, paths: PairPaths, loose: Mask
    ) -> None:
        """Libsvm's own coefficients and intercepts of a pair where the latter may be many."""
        own, libsvm = pairs.entries(pair), Libsvm(self.tol, self.shrinking)
        rows, problem = pairs.pairs.rows[own], pairs.problem(pair)
        active = np.sort(rows)  # as the splitter has them
        K = kernel.kernel.double(pairs.places(kernel, active))
        for j in np.flatnonzero(loose).tolist():
            fit = libsvm.fit(problem, active, K, paths.Cs[j])
            paths.coef[j, own] = fit.coef[np.searchsorted(active, rows)]
            paths.intercept[pair, j] = fit.intercept

    def _libsvm(self, problem: Problem, part: TrainTestKernel, ridges: Sequence[float]) -> Array:
        """The values of test rows by libsvm itself, (ridges, test rows)."""
        libsvm = Libsvm(self.tol, self.shrinking)
        return libsvm.held_out(problem, part, [self._C(ridge) for ridge in ridges])

    @property
    def _tolerance(self) -> float:
        return self.tol if self.coarse is None else self.coarse

    def _C(self, ridge: float) -> float:
        return next((C for given, C in self.penalties if given == ridge), 1.0 / (2.0 * ridge))

    def _single(
        self, operator: DenseMatrix, ridges: Sequence[float], *, is_made: bool = False
    ) -> Kernel32:
        is_steep = self._is_steep(ridges, operator.diagonal())
        return _kernel32(operator, is_steep, is_made=is_made or operator.is_made)

    def _is_steep(self, ridges: Sequence[float], diagonal: Array) -> bool:
        return max(self._C(ridge) for ridge in ridges) * float(np.abs(diagonal).max()) > STEEP

    def _close(self, problem: Problem, values: Array, spread: Array) -> Index:
        """Where values differ so little that the tolerance is seen in what is asked for.

        ``values`` has an axis more than ``spread``, the last, of test rows.
        """
        is_close = are_close(problem, spread, self.tol)
        if self.coarse is not None or not is_close.any():
            return np.empty((0, spread.ndim), dtype=np.intp)
        if self.reads_signs and problem.loss.is_margin:
            is_close &= np.abs(values).min(axis=-1, initial=np.inf) < FLAT * self.tol
        return np.argwhere(is_close)


def _kernel32(operator: DenseMatrix, is_steep: bool, *, is_made: bool) -> Kernel32:
    """The kernel as the solver reads it; one that is only to be made is made in float32.

    An exponential in float32 is off by some units in the last place. Where C is large that changes
    labels, so that the kernel is made in float64 and rounded, as libsvm does. A constant that is
    common to all entries is taken off before: coefficients sum up to 0, so that it changes no
    solution.
    """
    diagonal = operator.diagonal()
    constant = _constant(operator, diagonal)
    if is_made:
        return Kernel32(operator.K - constant if constant else operator.K)
    if not (is_steep or constant):
        return Kernel32.filled(diagonal, operator.write_rows)

    def write(rows: slice, out: AnyArray) -> None:
        made = np.empty(out.shape)
        operator.write_rows(rows, made)
        made -= constant
        np.copyto(out, made, casting="same_kind")

    return Kernel32.filled(diagonal - constant, write)


def _constant(operator: DenseMatrix, diagonal: Array) -> float:
    """What nearly all entries of a kernel consist of, by its first rows; 0 if they differ."""
    least = 0.0
    for count in (1, min(operator.n, 32)):  # the first row nearly always says that they differ
        some = np.empty((count, operator.n))
        operator.write_rows(slice(0, count), some)
        least = float(some.min())
        if not least > NEARLY_CONSTANT * float(diagonal.max()):
            return 0.0
    return least


def _is_indefinite(problems: Sequence[Problem], part: TrainTestKernel) -> bool:
    """Whether the kernel that a training set has for itself has negative eigenvalues."""
    if part.parent is not None:
        return False
    inside = require(part.operator, DenseMatrix)
    if inside.is_semidefinite:
        return False
    active = np.any([problem.sample_weight[part.train] > 0.0 for problem in problems], axis=0)
    rows = np.flatnonzero(active)
    return (inside if len(rows) == inside.n else inside.restrict(rows)).is_indefinite


def _is_undecided(problem: Problem, values: Array, tolerance: float) -> Mask:
    """Whether most signs are within the tolerance of the solver, by C: (Cs, test rows)."""
    if not problem.loss.is_margin or values.shape[1] == 0:
        return np.zeros(len(values), dtype=bool)
    size = np.abs(values)
    # Counting is mostly enough, and takes a fifth of the time of a median.
    is_undecided: Mask = 2 * np.count_nonzero(size <= tolerance, axis=1) >= values.shape[1]
    if is_undecided.any():
        is_undecided[is_undecided] = np.median(size[is_undecided], axis=1) <= tolerance
    return is_undecided


def _errors(problem: Problem, folds: Folds, records: Sequence[OutOfFold]) -> Array:
    """A score of candidates that needs no scorer: wrong signs, or squared errors."""
    y = problem.y[folds.test_rows, 0]
    values = np.stack([record.values[:, 0] for record in records])
    with np.errstate(invalid="ignore"):
        if problem.loss.is_margin:
            errors = np.where(np.isnan(values), 1.0, values * y <= 0.0)
        else:
            errors = np.nan_to_num((values - y) ** 2, nan=np.inf)
    return np.asarray(errors.mean(axis=1), dtype=np.float64)


def _check_convex(operator: SupportsResponse) -> None:
    if operator.is_indefinite:
        raise IndefiniteError("there is no single minimum on all rows to step from")


def _penalties(problem: Problem, ridges: Sequence[float], left_out: int = 0) -> Array:
    """The C of each ridge on all rows, or on those that are left."""
    count = max(problem.n_counted - left_out, 1)
    return np.array([1.0 / (2.0 * problem.rho(ridge, count)) for ridge in ridges])


@dataclass(frozen=True)
class SVMLooByStep(CrossValMethod):
    """Leave-one-out of SVC and SVR: one step from libsvm's fit on all rows, and a few refits.

    A fit of SVC without a free support vector is nothing to step from: leaving one row out of two
    classes of equal size turns the sign of the bias. Nor is one that has none without some row, as
    of two classes whose sizes differ by one. There each row has a fit of its own.

    **Cost** one fit a C, and what :func:`~everyfold.crossval.svm_loo.hold_out_by_steps` says.
    **Exact?** No.
    """

    tol: float
    width: float = single.SMOOTHING
    """Over which the kink of the loss is smoothed, in standard deviations of y (1 for labels)."""
    compiled: ClassVar[tuple[str, ...]] = _COMPILED

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        matrix = require(operator, DenseMatrix)
        _check_convex(matrix)
        Cs = _penalties(problem, ridges, left_out=1)
        kernel = _kernel32(matrix, is_steep=True, is_made=True)
        y, bounds = problem.y[:, 0], problem.w
        tol, tube = LOOSER * self.tol, problem.loss.tube
        paths = svm_paths(kernel, y, Cs, bounds, epsilon=tube, tol=tol)
        check_fits(paths)
        records = single.hold_out_by_steps(
            problem, matrix, Cs, paths, folds, kernel, width=self.width
        )
        loose = np.empty(0, dtype=np.intp)
        if problem.loss.is_margin:
            is_loose = paths.play > LOOSER * self.tol
            loose = np.flatnonzero(is_loose | tips(problem, Cs, paths))
        if loose.size:
            fitted = hold_out_by_refits(problem, kernel, Cs[loose], folds, tol=self.tol)
            for k, record, is_precise in zip(loose.tolist(), *fitted, strict=True):
                records[k] = replace(record, is_exact=record.is_exact & is_precise)
        yield from records


@dataclass(frozen=True)
class SVMLooByRefit(CrossValMethod):
    """Leave-one-out of SVC and SVR: libsvm's fit on all rows, and one without each support vector.

    Values are as good as those of folds, so that rows can be ranked by them. Rows without which
    the intercept is not unique, or whose fit did not end, are left to ``solver``.

    **Cost** some hundred pair steps for every support vector and C.
    **Exact?** To ``tol``.
    """

    tol: float
    solver: FoldPaths
    threads: int = 1

    uses_threads: ClassVar[bool] = True
    compiled: ClassVar[tuple[str, ...]] = _COMPILED
    starts_from_all: ClassVar[bool] = True

    def with_threads(self, threads: int) -> SVMLooByRefit:
        """See base class."""
        return replace(self, threads=threads)

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        matrix = require(operator, DenseMatrix)
        _check_convex(matrix)
        Cs = _penalties(problem, ridges, left_out=1)
        kernel = _kernel32(matrix, is_steep=True, is_made=True)
        found = hold_out_by_refits(problem, kernel, Cs, folds, tol=self.tol, threads=self.threads)
        for ridge, record, is_precise in zip(ridges, *found, strict=True):
            exact = self._with_unsure_rows_refitted(problem, matrix, ridge, folds, record)
            yield replace(exact, is_exact=exact.is_exact & is_precise)

    def _with_unsure_rows_refitted(
        self, problem: Problem, matrix: DenseMatrix, ridge: float, folds: Folds, record: OutOfFold
    ) -> OutOfFold:
        """The record with unsure rows fitted as folds are, by libsvm itself where it has to be.

        Rows without weight, as those of the other classes, are all left out of the same model.
        """
        is_idle = ~record.is_exact & (problem.w[folds.test_rows] == 0.0)
        alone = [np.array([i]) for i in np.flatnonzero(~record.is_exact & ~is_idle)]
        groups = [*alone, np.flatnonzero(is_idle)] if is_idle.any() else alone
        if not groups:
            return record
        splits = ((folds[own[0]].train, folds.test_rows[own]) for own in groups)
        own = Folds.from_splits(splits, folds.n, literal=True)
        (found,) = fit_parts(self.solver, [problem], matrix, [ridge], own, threads=self.threads)
        for failure in found.failures.values():
            raise failure.error
        sizes, order = [len(own) for own in groups], np.concatenate(groups)
        values, is_exact = record.values.copy(), record.is_exact.copy()
        values[order], is_exact[order] = found.values, np.repeat(found.is_exact, sizes)
        is_unique = np.ones(len(folds), dtype=bool)
        if found.is_unique is not None:
            is_unique[order] = np.repeat(found.is_unique, sizes)
        return replace(record, values=values, is_exact=is_exact, is_unique=is_unique)


REFITTED = "libsvm's fit on all rows, and one without each support vector, to libsvm's tolerance"


@dataclass(frozen=True)
class SmoothedSVMSteps(CrossValMethod):
    """Folds of SVC and SVR by steps of the loss with its kinks rounded.

    Newton's method for the rounded loss starts from libsvm's solutions on all rows and has little
    left to do.

    **Exact?** No: what may be so for the rounded loss is not for libsvm's.
    """

    tol: float
    order: float
    width: float = SMOOTHING
    """Over which the kinks are smoothed, in standard deviations of y (1 for labels)."""
    compiled: ClassVar[tuple[str, ...]] = _COMPILED

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        _check_convex(operator)
        smooth = replace(problem, loss=problem.loss.smoothed(self.width * unit_of(problem)))
        criterion = ClosedFormCV(order=self.order, starts=self._starts(problem, operator, ridges))
        for record in criterion.evaluate(smooth, operator, ridges, folds):
            yield replace(record, is_exact=np.zeros_like(record.is_exact))

    def _starts(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> tuple[Solution, ...] | None:
        if not isinstance(operator, DenseMatrix):
            return None
        Cs = _penalties(problem, ridges)
        y, tube = problem.y[:, 0], problem.loss.tube
        paths = svm_paths(operator.K, y, Cs, problem.w, epsilon=tube, tol=self.tol)
        return tuple(Solution(paths.coef[k][:, None], paths.intercept[[k]]) for k in range(len(Cs)))


# -- Pairs of classes: each on the rows of its two classes, all of a training set together --------


@dataclass(frozen=True)
class ClassKernel:
    """A kernel in which the rows of a class stand together, so that a pair is read in two runs.

    Attributes
    ----------
    kernel : Kernel32
    place : int array
        Where each of the rows that the kernel was made of is in it.
    """

    kernel: Kernel32
    place: Index

    @classmethod
    def of(cls, kernel: Kernel32, codes: Index) -> ClassKernel:
        """Sort the rows of a kernel by their classes."""
        order = np.argsort(codes, kind="stable")
        return cls(kernel.restrict(order), np.argsort(order))


@dataclass(frozen=True)
class TrainingPairs:
    """The pairs of classes that have rows of both in one training set.

    Attributes
    ----------
    part : TrainTestKernel
    problems : sequence of Problem
        Those of all pairs, on all rows.
    codes : int array
        The class of each training row.
    numbers : int array
        Which of all pairs these are.
    pairs : PairProblems
        Their training rows, by their place among all, one class after the other.
    """

    part: TrainTestKernel
    problems: Sequence[Problem]
    codes: Index
    numbers: Index
    pairs: PairProblems

    @classmethod
    def of(cls, problems: Sequence[Problem], part: TrainTestKernel) -> TrainingPairs:
        """The pairs of a training set.

        All of them together: a few calls of NumPy for each would take longer than their solutions.
        """
        assert problems[0].classes is not None
        codes = problems[0].classes.codes[part.train]
        order = np.argsort(codes, kind="stable")
        weights, bounds = _weights(problems, part.train[order])
        labels = np.stack([problem.y[:, 0] for problem in problems])[:, part.train[order]]
        inside = weights > 0.0
        has_both = np.all(
            [(inside & (labels * sign > 0.0)).any(axis=1) for sign in (-1, 1)], axis=0
        )
        inside &= has_both[:, None]
        starts = np.append(0, np.cumsum(np.count_nonzero(inside[has_both], axis=1)))
        pairs = PairProblems(starts, order[np.nonzero(inside)[1]], labels[inside], bounds[inside])
        return cls(part, problems, codes, np.flatnonzero(has_both), pairs)

    def entries(self, pair: int) -> slice:
        """Where the rows of a pair are."""
        first, last = self.pairs.starts[pair : pair + 2].tolist()
        return slice(first, last)

    def problem(self, pair: int) -> Problem:
        """The problem of a pair on the training rows."""
        problem: Problem = self.problems[self.numbers[pair]]
        return problem.restrict(self.part.train)

    def places(self, kernel: ClassKernel, rows: Index) -> Index:
        """Where some of the training rows are in a kernel of these, or of all rows."""
        return kernel.place[rows if self.part.parent is None else self.part.train[rows]]

    def predict(self, coef: Array) -> Array:
        """Values of the test rows without intercepts, (pairs, ridges, test rows).

        A class has coefficients in the pairs that it is one of: a product for each class, instead
        of one that is mostly zeros.
        """
        n_ridges, rows, parent = len(coef), self.pairs.rows, self.part.parent
        link = self.part.cross
        if parent is not None:
            link = require(parent, DenseMatrix).K[self.part.test]
        values = np.zeros((len(self.numbers), n_ridges, len(self.part.test)))
        owners = np.repeat(np.arange(len(self.numbers)), np.diff(self.pairs.starts))
        for code in np.unique(self.codes[rows]).tolist():
            entries = np.flatnonzero(self.codes[rows] == code)
            which = np.flatnonzero(np.bincount(owners[entries]))
            own = entries.reshape(len(which), -1)  # the same rows in each of its pairs
            columns = rows[own[0]] if parent is None else self.part.train[rows[own[0]]]
            parts = coef[:, own].reshape(-1, own.shape[1])
            found = product(link.take(columns, axis=1), parts.T)
            values[which] += found.T.reshape(n_ridges, len(which), -1).transpose(1, 0, 2)
        return values


def _weights(problems: Sequence[Problem], rows: Index) -> tuple[Array, Array]:
    """Weights of the rows of a training set in every problem, and their multiples of C."""
    if problems[0].is_balanced or problems[0].ridge_scaling == "mean":
        inside = [problem.restrict(rows) for problem in problems]
        return np.stack([some.w for some in inside]), np.stack([multiples(some) for some in inside])
    weights = np.stack([problem.w for problem in problems])[:, rows]
    return weights, weights


def multiples(problem: Problem) -> Array:
    """Each row's multiple of C."""
    return problem.w / problem.n_counted if problem.ridge_scaling == "mean" else problem.w


# -- libsvm itself, where one of many solutions is its own choice ---------------------------------


@dataclass(frozen=True)
class Libsvm:
    """Fits of ``SVC`` and ``SVR`` to single training sets.

    Where b is any point of an interval the last digit of a sum decides which one libsvm takes, and
    where the kernel is not positive semi-definite, which of many minima. So rows come in the order
    of the splitter, and C and the weights are multiplied as in a refit of the user's estimator.

    **Cost** a fit of libsvm's for each C, on a kernel matrix that is there already.
    **Exact?** Yes, whatever the solution.
    """

    tol: float
    shrinking: bool = True

    def held_out(self, problem: Problem, part: TrainTestKernel, Cs: Sequence[float]) -> Array:
        """The values of the test rows for some Cs, (Cs, test rows)."""
        active, fits = self.fits(problem, part, Cs)
        coef = np.column_stack([fit.coef for fit in fits])
        cross = _cross(part, active)
        values: Array = (cross @ coef + np.array([fit.intercept for fit in fits])).T
        return values

    def fits(
        self, problem: Problem, part: TrainTestKernel, Cs: Sequence[float]
    ) -> tuple[Index, list[LibsvmFit]]:
        """Which of the training rows have a positive weight, by position, and a fit for each C."""
        inside = problem.restrict(part.train)
        active = np.flatnonzero(inside.sample_weight > 0.0)
        K = _kernel(part, active)
        return active, [self.fit(inside, active, K, C) for C in Cs]

    def fit(self, problem: Problem, active: Index, K: Array, C: float) -> LibsvmFit:
        """Fit the active rows, whose kernel is K."""
        if problem.ridge_scaling == "mean":
            C /= problem.n_counted
        options = {"C": C, "tol": self.tol, "shrinking": self.shrinking}
        if problem.loss.tube is None:
            return self._classification(problem, active, K, options)
        svr = SVR(kernel="precomputed", epsilon=problem.loss.tube, **options)
        svr.fit(K, problem.y[active, 0], sample_weight=problem.sample_weight[active])
        end = float(svr.intercept_[0]), svr.fit_status_ == 0
        return LibsvmFit.of(len(active), 1.0, svr.support_, svr.dual_coef_[0], *end)

    def _classification(
        self, problem: Problem, active: Index, K: Array, options: Params
    ) -> LibsvmFit:
        y = problem.y[active, 0]
        codes, factors = (y > 0.0).astype(np.intp), np.ones(2)
        if problem.classes is not None:
            codes = problem.classes.codes[active]
            factors = problem.classes.weights(problem.sample_weight)
        present = np.unique(codes).tolist()
        if len(present) < 2:  # a pair of classes, one of which the fold does not have
            return LibsvmFit(np.zeros(len(active)), np.nan, True)
        # The larger of two codes is positive there, and the first of a pair of classes here.
        sign, weights = float(y[np.argmax(codes)]), problem.sample_weight[active]
        is_larger = (codes == present[1]).astype(np.float64)
        return LibsvmFit.of(
            len(active), sign, *classify_by_libsvm(K, is_larger, weights, factors[present], options)
        )


@dataclass(frozen=True)
class LibsvmFit:
    """Signed dual coefficients of the fitted rows, b, and whether libsvm came to its end."""

    coef: Array
    intercept: float
    is_converged: bool

    @classmethod
    def of(
        cls, n: int, sign: float, support: Index, own: Array, b: float, is_converged: bool
    ) -> LibsvmFit:
        """From support vectors among n rows and their coefficients; ``sign`` times libsvm's."""
        coef = np.zeros(n)
        coef[support] = sign * own
        return cls(coef, sign * b, is_converged)


def _kernel(part: TrainTestKernel, active: Index) -> Array:
    """The kernel of the active training rows."""
    if part.parent is not None:
        inside = part.parent.restrict(part.train[active])
    else:
        inside = part.operator if len(active) == part.operator.n else part.operator.restrict(active)
    return require(inside, DenseMatrix).K


def _cross(part: TrainTestKernel, active: Index) -> Array:
    """The kernel of the test rows with the active training rows."""
    if part.parent is not None:
        return part.parent.cross(part.test, part.train[active])
    return part.cross if len(active) == part.operator.n else part.cross[:, active]
