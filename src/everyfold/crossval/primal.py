r"""Smooth losses of linear models: the minima of all folds from the columns themselves.

The models of all folds are columns of one matrix, so that a product with the rows serves all of
them. Ridges come one after the other, from strong to weak, and each starts from the one before.
Newton's equation of every fold,

.. math:: (A^\top D_j A + 2\rho I)\, p_j = -G_j,

is solved by conjugate gradients with one preconditioner for all folds of a ridge, and for further
ridges as long as it serves: :math:`A^\top \bar D A + 2\rho I`, with the mean curvature of the
folds. Curvatures, equations and the preconditioner need few digits and are made of the columns in
single precision, centred and scaled; fitted values and gradients are sums in double precision.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, cast

import numpy as np
from sklearn.linear_model import LogisticRegression

from everyfold._typing import Array, Index, Mask
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.refit import FoldAnswer, FoldSolver, Refit, refit_alone
from everyfold.folds import Folds
from everyfold.linalg.blas import product
from everyfold.linalg.preconditioner import (
    CoupledPreconditioner,
    DiagonalPreconditioner,
    GramPreconditioner,
    OwnSystems,
    TallPreconditioner,
)
from everyfold.linalg.symmetric import EPS, TRUSTED_ERROR
from everyfold.losses import Loss, Multinomial
from everyfold.operators.base import SupportsResponse, TrainTestKernel
from everyfold.operators.lowrank import LowRank
from everyfold.solvers import Problem, has_flat_intercept
from everyfold.solvers.block_newton import share_of_steps

# The Newton decrement, relative to the norm of the model in the same metric, at which a fold is at
# its minimum: values differ from those of the minimum by no more, relative to their size.
STATIONARY = 1e-8

# What is accepted where rounding allows no more, and reported as an error of the values.
_ROUGH = 1e-5

# Newton steps of a fold and a ridge before it is fitted by itself; most need two to six.
_STEPS = 100

# Steps whose decrement does not fall by half before a fold is taken as it is, or given up. Those of
# systems of its own end at the minimum, however the rows that have curvature change on the way.
_STALLS = 6

# Steps of conjugate gradients in a Newton step.
_PRODUCTS = 400

# How far a Newton equation is solved at least, relative to its right-hand side.
_FORCING = 2e-2

# What a Gram matrix costs, in steps of conjugate gradients: by the number of columns, and how much
# a step takes more for another model. Measured for 3000 to 5000 rows of 256 to 768 columns, and 5
# to 35 models.
_GRAM, _MORE = 0.04, 0.1

# The curvature of rows where a loss with kinks has a slope and none, while a fold is far from its
# minimum: a step to where rows have some is not endless then. Rows without a slope keep theirs of
# 0: with more LinearSVC at weak ridges stopped at errors of 1e-2.
_FLAT = 1e-2

# Rows with curvature are few if they are less than this share of all. Each fold then has a system
# of its own if that costs less than so many steps of conjugate gradients, four times: the folds'
# few rows are not alike, so that no common preconditioner serves them. Measured with LinearSVC on
# digits and breast cancer, which took ten times as long without.
_FEW, _OWN = 0.5, 40.0

# Coefficients of several classes that are solved for together: more take long to factorise.
MOST_COUPLED = 4000

# Folds have systems of their own of these if all together are factorised in the time of two or
# three Gram matrices, and take 120 MB at most. Without, digits took 1.5 s instead of 0.6.
_SYSTEMS, _HELD = 9, 30_000_000

# Iterations of scikit-learn's solver for a fold that does not arrive: so many that only a fold that
# no solver can fit to the tolerance takes them all.
_ITERATIONS = 10_000

# The largest gradient of such a fold, beside that of the ridge at a coefficient of 1. An absolute
# 1e-8 in its place called an accuracy of .927 exact that was .992 at the minimum (C = 1e6).
_FLATTEST = 1e-4

# A column whose spread is less than this share of its mean is constant.
_CONSTANT = 1e-7

# Entries of an array over rows and folds, 16 MB; up to ``ARRAYS`` of them exist at a time.
ENTRIES, ARRAYS = 2_000_000, 12


@dataclass(frozen=True)
class AllFoldsPrimal(CrossValMethod):
    r"""The minima of all folds and ridges by Newton's method in the space of the columns.

    **Cost** one or two Gram matrices in single precision for all ridges, and some fifteen products
    of the rows a ridge, with a column for each fold. **Exact?** Yes: every fold ends with a
    gradient below ``STATIONARY``, measured as Newton's decrement relative to the size of the model;
    what is left counts in its condition number.
    """

    ability: ClassVar[type] = LowRank

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class. Folds may be any."""
        operator = cast("LowRank", operator)  # the planner asked for the ability
        columns, q = _Columns.of(operator.V, intercept=problem.intercept), problem.y.shape[1]
        values = np.full((len(ridges), int(folds.bounds[-1]), q), np.nan)
        errors = np.zeros((len(ridges), len(folds)))
        curves = _curves(problem)
        step = max(1, ENTRIES // (problem.n * curves[0].width))
        for first in range(0, len(folds), step):
            numbers = slice(first, min(first + step, len(folds)))
            some = folds if step >= len(folds) else folds.subset(range(len(folds))[numbers])
            slots = slice(folds.bounds[numbers.start], folds.bounds[numbers.stop])
            owner = np.repeat(np.arange(len(some)), np.diff(some.bounds))
            weights, counts = weights_of_folds(problem, some)
            for place, curve in enumerate(curves):
                batch = _FoldModels(columns, curve.weighted(weights))
                for j in from_strong(ridges):
                    rho = [problem.rho(ridges[j], float(count)) for count in counts]
                    left = batch.minimise(np.array(rho))
                    values[j, slots, place : place + curve.width] = batch.values[
                        some.test_rows, owner
                    ]
                    errors[j, numbers] = np.maximum(errors[j, numbers], left)
        condition, is_exact = _precision(errors)
        for j, ridge in enumerate(ridges):
            for i in np.flatnonzero(~(errors[j] <= _ROUGH)).tolist():
                slots, fold = slice(folds.bounds[i], folds.bounds[i + 1]), folds[i]
                if isinstance(problem.loss, Multinomial):
                    inside = problem.restrict(fold.train)
                    values[j, slots], is_exact[j, i] = _by_scikit_learn(
                        inside, operator.V[fold.train], operator.V[fold.test], ridge
                    )
                    condition[j, i] = 1.0
                    continue
                own = refit_alone(problem, operator, fold, ridge)
                values[j, slots], condition[j, i] = own.values[0], own.condition[0]
                is_exact[j, i] = own.is_exact[0]
            unknown = np.full(len(folds), np.nan)
            yield OutOfFold(values[j], is_exact[j], unknown, condition[j])


@dataclass(frozen=True)
class FoldPrimal(FoldSolver[None]):
    """The same for a training set with columns of its own, all ridges together.

    **Cost** that of one fold among all. **Exact?** As above.
    """

    def solve(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class."""
        operator = part.operator
        operator = cast("LowRank", operator)  # the planner asked for the ability
        inside = [problem.restrict(part.train) for problem in problems]
        columns = _Columns.of(operator.V, intercept=inside[0].intercept)
        q = sum(problem.y.shape[1] for problem in inside)
        values, place = np.empty((len(ridges), len(part.test), q)), 0
        errors = np.zeros(len(ridges))
        for problem in inside:
            for curve in _curves(problem):
                batch = _FoldModels(columns, curve.weighted(problem.w[:, None]))
                for j in from_strong(ridges):
                    rho = problem.rho(ridges[j], problem.n_counted)
                    errors[j] = max(errors[j], float(batch.minimise(np.array([rho]))[0]))
                    coef, intercept = columns.raw(batch.coef)
                    own = curve.centred(part.cross @ coef + intercept)
                    values[j, :, place : place + curve.width] = own
                place += curve.width
        is_known = errors <= _ROUGH
        if not is_known.all() and not isinstance(inside[0].loss, Multinomial):
            return Refit().solve(problems, part, ridges, None)
        condition, is_exact = _precision(errors)
        for j in np.flatnonzero(~is_known).tolist():
            answers = [_by_scikit_learn(own, operator.V, part.cross, ridges[j]) for own in inside]
            values[j] = np.hstack([found for found, _ in answers])
            condition[j], is_exact[j] = 1.0, all(is_sure for _, is_sure in answers)
        return FoldAnswer(values, condition, is_exact)


def _by_scikit_learn(problem: Problem, V: Array, test: Array, ridge: float) -> tuple[Array, bool]:
    """Values of test rows by several classes of a fold that do not arrive, and if they are exact.

    Where the classes can be separated and the ridge is weak, the minimum is far away and the
    objective nearly flat on the way: Newton steps for all folds together do not get there.
    """
    assert problem.classes is not None
    counts = problem.w > 0.0
    codes = np.asarray(problem.classes.codes)[counts]
    values = np.zeros((len(test), problem.y.shape[1]))
    rho = problem.rho(ridge, problem.n_counted)
    model = LogisticRegression(
        C=0.5 / rho,
        fit_intercept=problem.intercept,
        # Newton's own Hessian of all classes; beyond that size it takes longer than many steps.
        solver="newton-cholesky" if V.shape[1] * values.shape[1] <= MOST_COUPLED else "lbfgs",
        # Its gradient is that of a mean over rows, and to be small beside that of the ridge.
        tol=float(np.clip(_FLATTEST * rho / problem.w.sum(), EPS, STATIONARY)),
        max_iter=_ITERATIONS,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(V[counts], codes, sample_weight=problem.w[counts])
    found = model.decision_function(test)
    if found.ndim == 1:
        found = np.column_stack([-0.5 * found, 0.5 * found])
    values[:, model.classes_] = found - found.mean(axis=1, keepdims=True)
    return values, not caught


def from_strong(ridges: Sequence[float]) -> list[int]:
    """The positions of ridges from strong to weak: each minimum is near that of the one before."""
    return sorted(range(len(ridges)), key=lambda j: -ridges[j])


def _precision(errors: Array) -> tuple[Array, Mask]:
    """Relative errors as condition numbers that rounding would have them by, and if all is well."""
    condition = np.maximum(1.0, errors / EPS)
    return condition, condition * EPS <= TRUSTED_ERROR


def weights_of_folds(problem: Problem, folds: Folds) -> tuple[Array, Array]:
    """The weight of every row in every fold, (n, t), and what multiplies the ridge of each."""
    weights = np.zeros((problem.n, len(folds)))
    counts = np.zeros(len(folds))
    for j, fold in enumerate(folds):
        inside = problem.restrict(fold.train)
        weights[:, j] = np.bincount(fold.train, inside.w, minlength=problem.n)
        counts[j] = inside.n_counted
    return weights, counts


@dataclass(frozen=True)
class _Columns:
    """The columns of all rows, and the same centred and scaled in single precision: A.

    Coefficients are those of A, whose last column are ones if there is an intercept.
    """

    V: Array
    A: Array
    centre: Array
    scale: Array
    penalised: Array
    """How much of a ridge each coefficient has."""

    @classmethod
    def of(cls, V: Array, *, intercept: bool) -> _Columns:
        centre = V.mean(axis=0) if intercept else np.zeros(V.shape[1])
        Z = V - centre
        scale = np.sqrt(np.einsum("ij,ij->j", Z, Z) / len(V))
        # What rounding leaves of a constant column is as good as nothing.
        scale = np.where(scale > _CONSTANT * np.abs(centre), scale, 1.0)
        A = np.ones((len(V), V.shape[1] + intercept), dtype=np.float32)
        np.divide(Z, scale, out=A[:, : V.shape[1]], casting="same_kind")
        penalised = np.zeros(A.shape[1])
        penalised[: len(scale)] = scale**-2.0
        return cls(V, A, centre, scale, penalised)

    @property
    def has_intercept(self) -> bool:
        return len(self.penalised) > len(self.scale)

    def rows(self, some: Index) -> Array:
        """Some rows of A in double precision."""
        found = np.ones((len(some), len(self.penalised)))
        found[:, : len(self.scale)] = (self.V[some] - self.centre) / self.scale
        return found

    def raw(self, coef: Array) -> tuple[Array, Array]:
        """The coefficients of the columns as they are, and intercepts."""
        found = coef[: len(self.scale)] / self.scale[:, None]
        intercept = (
            coef[-1] - self.centre @ found if self.has_intercept else np.zeros(coef.shape[1])
        )
        return np.asfortranarray(found), intercept

    def values(self, coef: Array) -> Array:
        """A coef in double precision."""
        raw, intercept = self.raw(coef)
        return product(self.V, raw) + intercept

    def sums(self, L: Array) -> Array:
        """Aᵀ L in double precision."""
        total = L.sum(axis=0)
        found = product(self.V.T, L) - np.outer(self.centre, total)
        found /= self.scale[:, None]
        return np.vstack([found, total]) if self.has_intercept else found

    def bend(self, coef: Array, times: Callable[[Array], Array]) -> Array:
        """Aᵀ times(A coef) in single precision."""
        return (self.A.T @ times(self.A @ coef.astype(np.float32))).astype(np.float64)


class _Curve(ABC):
    """A loss for the rows and weights of every fold; a model has ``width`` columns of values."""

    width: int
    weights: Array
    """Of every row in every fold, (n, t)."""

    @abstractmethod
    def weighted(self, weights: Array) -> _Curve:
        """The same with these weights."""

    def subset(self, models: Index) -> _Curve:
        """The same for some of the folds."""
        return self.weighted(self.weights[:, models])

    @abstractmethod
    def slope(self, F: Array) -> Array:
        """The derivative in every value, (n, t · width)."""

    @abstractmethod
    def bends(self, F: Array, least: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The second derivatives: their diagonal, and what multiplies by them."""

    def coupling(self, F: Array) -> Array | None:
        """Their mean over the folds that have a row, (n, width, width), of several values."""
        return None

    @property
    def factor(self) -> Array | float:
        """What multiplies the ridge of every fold."""
        return 1.0

    def centred(self, values: Array) -> Array:
        """Values as a fit from 0 would give them."""
        return values

    def is_flat(self, F: Array) -> Mask:
        """The folds with many intercepts, among which a fit of the fold alone has to choose."""
        return np.zeros(self.weights.shape[1], dtype=bool)


@dataclass(frozen=True)
class _OneValue(_Curve):
    """A loss of one value a row."""

    loss: Loss
    y: Array
    weights: Array
    width: ClassVar[int] = 1  # type: ignore[misc]  # other losses know it from their data

    def weighted(self, weights: Array) -> _OneValue:
        return replace(self, weights=weights)

    def slope(self, F: Array) -> Array:
        return self.weights * self.loss.slope(self.y, F)

    def bends(self, F: Array, least: Array) -> tuple[Array, Callable[[Array], Array]]:
        found = self.loss.curvature(self.y, F)
        if self.loss.is_piecewise_quadratic and not self.loss.has_constant_curvature:
            is_pulled = self.loss.slope(self.y, F) != 0.0
            found = np.where(is_pulled, np.maximum(found, least), found)
        D = self.weights * found
        return D, partial(np.multiply, D.astype(np.float32))

    def is_flat(self, F: Array) -> Mask:
        if not self.loss.is_piecewise_quadratic:
            return super().is_flat(F)
        return has_flat_intercept(self.loss, self.y, F, self.weights)


@dataclass(frozen=True)
class _SeveralClasses(_Curve):
    """The multinomial loss; a class that the rows of a fold do not have is not there."""

    codes: Index
    width: int
    weights: Array
    known: list[tuple[Array, Array, Array]] = field(init=False, default_factory=list)
    """The last values, which may not change any more, their probabilities and slopes."""

    def weighted(self, weights: Array) -> _SeveralClasses:
        return replace(self, weights=weights)

    @cached_property
    def seen(self) -> Mask:
        """The classes of every fold, (t, width)."""
        of_class = np.eye(self.width)[self.codes]
        return np.asarray(self.weights.T @ of_class > 0.0)

    @property
    def factor(self) -> Array:
        """See base class: two values of ±f stand for one of 2f where two classes are left."""
        return np.where(self.seen.sum(axis=1) == 2, 2.0, 1.0)

    def _shares(self, F: Array) -> Array:
        """The probabilities of the classes in every fold, (n, t, width)."""
        if not self.known or self.known[0][0] is not F:
            U = np.where(self.seen, F.reshape(len(F), -1, self.width), -np.inf)
            U -= U.max(axis=2, keepdims=True)
            np.exp(U, out=U)
            U /= U.sum(axis=2, keepdims=True)
            slope = U * self.weights[:, :, None]
            slope[np.arange(len(F)), :, self.codes] -= self.weights
            self.known[:] = [(F, U, slope.reshape(F.shape))]
        return self.known[0][1]

    def slope(self, F: Array) -> Array:
        self._shares(F)
        return self.known[0][2]

    def bends(self, F: Array, least: Array) -> tuple[Array, Callable[[Array], Array]]:
        share = self._shares(F)
        held = share * self.weights[:, :, None]
        share32, held32 = share.astype(np.float32), held.astype(np.float32)

        def times(values: Array) -> Array:
            own = values.reshape(share32.shape)
            mean = np.einsum("ijk,ijk->ij", share32, own)
            return np.reshape(held32 * (own - mean[:, :, None]), values.shape)

        return (held * (1.0 - share)).reshape(F.shape), times

    def coupling(self, F: Array) -> Array:
        share = self._shares(F)
        held = share * self.weights[:, :, None]
        mean = -np.einsum("njk,njl->nkl", held, share)
        steps = np.arange(self.width)
        mean[:, steps, steps] += held.sum(axis=1)
        folds = np.count_nonzero(self.weights, axis=1)
        return np.asarray(mean / np.maximum(folds, 1)[:, None, None])

    def centred(self, values: Array) -> Array:
        own = values.reshape(len(values), -1, self.width)
        seen = self.seen.astype(np.float64)
        mean = np.einsum("ijk,jk->ij", own, seen) / seen.sum(axis=1)
        return np.reshape(own - mean[:, :, None], values.shape)


def _curves(problem: Problem) -> Sequence[_Curve]:
    """The loss of every target, or of all classes together; weights come later."""
    if isinstance(problem.loss, Multinomial):
        assert problem.classes is not None
        return [_SeveralClasses(problem.classes.codes, problem.y.shape[1], problem.w[:, None])]
    targets = range(problem.y.shape[1])
    return [_OneValue(problem.loss, problem.y[:, [k]], problem.w[:, None]) for k in targets]


class _FoldModels:
    """Newton's method for the models of some folds, all at once, from ridge to ridge."""

    def __init__(self, columns: _Columns, curve: _Curve) -> None:
        self.columns, self.curve = columns, curve
        n, self.t = len(columns.V), curve.weights.shape[1]
        self.coef = np.zeros((len(columns.penalised), self.t * curve.width))
        self.F = np.zeros((n, self.t * curve.width))
        self.system = _System(columns, curve)
        self.rho = np.full(self.t, np.nan)
        self.minima: tuple[Array, Array, Array] | None = None
        """The ridges, coefficients and values of the last minima but one."""

    def minimise(self, rho: Array) -> Array:
        """Go to the minimum at these ridges, one a model; the errors of values that are left."""
        rho = rho * self.curve.factor
        penalty = np.repeat(2.0 * np.outer(self.columns.penalised, rho), self.curve.width, axis=1)
        errors, best = np.full(self.t, np.inf), np.full(self.t, np.inf)
        stalls = np.zeros(self.t, dtype=np.intp)
        live = np.arange(self.t)
        self.system.penalise(penalty.mean(axis=1))
        self._extrapolate(rho, penalty)
        own, curve, F = self._subset(live)
        for _ in range(_STEPS):
            coef, P = self.coef[:, own], penalty[:, own]
            G = self.columns.sums(curve.slope(F)) + P * coef
            D, times = curve.bends(F, np.minimum(errors[live], _FLAT))
            self.system.prepare(D, P, lambda: self.curve.coupling(self.F.copy()))
            Z = self.system.solve(G)
            decrement = np.sqrt(np.maximum(self._dots(G, Z), 0.0))
            errors[live] = _ratio(decrement, self._norm(D, F, coef, P))
            stalls[live] += errors[live] > 0.5 * best[live]
            best[live] = np.minimum(best[live], errors[live])
            most = _STALLS if self.system.own is None else _STEPS
            is_open = (errors[live] > STATIONARY) & (stalls[live] < most)
            if not is_open.any():
                break
            if not is_open.all():
                live, some = live[is_open], self._own(np.flatnonzero(is_open))
                own, curve, F = self._subset(live)
                coef, P, G, Z = (part[:, some] for part in (coef, P, G, Z))
                _, times = curve.bends(F, np.minimum(errors[live], _FLAT))
            is_solved = self.system.own is not None
            step = -Z if is_solved else self._newton(times, P, G, Z, errors[live])
            ahead = self.columns.values(step)
            share, F = self._go(curve, F, ahead, P * coef, P * step, step)
            self.coef[:, own] = coef + share * step
            self.F[:, own] = F
        if self.columns.has_intercept:
            errors[self.curve.is_flat(self.F)] = np.inf
        return errors

    def _extrapolate(self, rho: Array, P: Array) -> None:
        """Start where a line through the last two minima leads, by the logarithms of ridges."""
        known, here = self.minima, (self.rho, self.coef.copy(), self.F.copy())
        self.minima, self.rho = here, rho
        if known is None or not (known[0] > here[0]).all() or not (rho > 0.0).all():
            return
        by = np.repeat(np.log(rho / here[0]) / np.log(here[0] / known[0]), self.curve.width)
        step, ahead = by * (self.coef - known[1]), by * (self.F - known[2])
        penalty = P * self.coef
        share, self.F = self._go(self.curve, here[2], ahead, penalty, P * step, step)
        self.coef += share * step

    @property
    def values(self) -> Array:
        """The values of all rows by every model, (n, t, width)."""
        return self.curve.centred(self.F).reshape(len(self.F), self.t, self.curve.width)

    def _subset(self, live: Index) -> tuple[Index, _Curve, Array]:
        """The columns, losses and values of the models that are worked on."""
        self.system.live = live
        own = self._own(live)
        return own, self.curve.subset(live), self.F[:, own]

    def _own(self, models: Index) -> Index:
        """The columns of some models."""
        width = self.curve.width
        return models if width == 1 else (models[:, None] * width + np.arange(width)).ravel()

    def _dots(self, B: Array, C: Array) -> Array:
        """The inner products of the columns of every model."""
        return _summed(np.einsum("ij,ij->j", B, C), self.curve.width)

    def _norm(self, D: Array, F: Array, coef: Array, P: Array) -> Array:
        """The norm of every model in the metric of its minimum, without its intercept."""
        f = F - coef[-1] if self.columns.has_intercept else F
        total = np.einsum("ij,ij,ij->j", D, f, f) + np.einsum("ij,ij,ij->j", P, coef, coef)
        return np.sqrt(_summed(total, self.curve.width))

    def _newton(
        self, times: Callable[[Array], Array], P: Array, G: Array, Z: Array, errors: Array
    ) -> Array:
        """The Newton step of every model, by conjugate gradients."""
        width = self.curve.width
        forcing = np.clip(errors, 1e-4, _FORCING)
        forcing = np.maximum(forcing, 0.1 * STATIONARY / errors)
        step, residual, p = np.zeros_like(G), -G, -Z
        first = slope = self._dots(G, Z)
        limit = forcing**2 * first
        for k in range(_PRODUCTS):
            H = self.columns.bend(p, times) + P * p
            alpha = np.repeat(_ratio(slope, self._dots(H, p)), width)
            step += alpha * p
            residual -= alpha * H
            Z = self.system.solve(residual)
            after = self._dots(residual, Z)
            is_open = after > limit
            if not is_open.any() or self.system.is_worn(k + 1, _decades(first, after)):
                break
            p = Z + np.repeat(np.where(is_open, _ratio(after, slope), 0.0), width) * p
            slope = np.where(is_open, after, 0.0)
            p[:, np.repeat(~is_open, width)] = 0.0
        self.system.note(k + 1, _decades(first, after))
        return step

    def _go(
        self, curve: _Curve, F: Array, ahead: Array, first: Array, more: Array, step: Array
    ) -> tuple[Array, Array]:
        """How far to go along each step, and the values there."""
        penalty, growth = self._dots(first, step), self._dots(more, step)
        full, width = F + ahead, curve.width

        def rise(at: Array, some: Index) -> Array:
            pulled: Array = penalty[some] + at * growth[some]
            if not at.any() or (at == 1.0).all():  # of all steps
                return pulled + self._dots(curve.slope(full if at.any() else F), ahead)
            own = self._own(some)
            values = F[:, own] + np.repeat(at, width) * ahead[:, own]
            return pulled + self._dots(curve.subset(some).slope(values), ahead[:, own])

        share = np.repeat(share_of_steps(rise, F.shape[1] // width), width)
        return share, full if (share == 1.0).all() else F + share * ahead


class _System:
    """The preconditioner of all models: made anew where that costs less than to keep the old one.

    A Gram matrix costs as much as some steps of conjugate gradients. Steps beyond those that a new
    one would take are counted, and when they have cost as much, it is made.
    """

    def __init__(self, columns: _Columns, curve: _Curve) -> None:
        self.columns, self.width = columns, curve.width
        self.weights = curve.weights
        (n, c), t = columns.A.shape, curve.weights.shape[1]
        size = (self.width - 1) * c
        self.is_coupled = self.width > 1 and self.width * c <= MOST_COUPLED
        grams = 0.3 * self.width**2 if self.is_coupled else float(self.width)
        self.price = grams * _GRAM * c / (1.0 + _MORE * self.width * t)
        """Of a Gram matrix, in steps of conjugate gradients."""
        self.has_own = self.is_coupled and has_own_systems(n, size, t)
        """Whether models that are coupled may have systems of their own."""
        self.parts: list[TallPreconditioner] = []
        self.own: OwnSystems | None = None
        """Those of every model, where they are worth it."""
        self.rate, self.spent, self.is_fresh = 1.0, 0.0, False
        self.live = np.arange(t)
        """The models that are worked on."""

    @cached_property
    def layout(self) -> tuple[Index, Array]:
        """The part of the rows that each row is in, and which parts every system leaves out."""
        is_out = self.weights == 0.0
        if self.has_own:
            patterns, parts = np.unique(is_out, axis=0, return_inverse=True)
            if len(patterns) <= is_out.shape[1] + 1:
                return parts.ravel(), patterns.T
        return np.zeros(len(is_out), dtype=np.intp), np.zeros((1, 1), dtype=bool)

    def penalise(self, penalty: Array) -> None:
        """Take another ridge."""
        self.penalty, self.is_behind = penalty, True

    def prepare(self, D: Array, P: Array, coupling: Callable[[], Array | None]) -> None:
        """Be ready for models of these curvatures and penalties."""
        self.is_fresh = False
        self.own = OwnSystems(self.columns.rows, D, P) if self._has_few(D) else None
        if self.own is not None:
            return
        if not self.parts or self.spent >= self.price:
            self._make(D, coupling)
        if self.is_behind:
            for part in self.parts:
                part.add(self.penalty)
            self.is_behind = False

    def _make(self, D: Array, coupling: Callable[[], Array | None]) -> None:
        """Make the preconditioner of these curvatures."""
        A, K = self.columns.A, self.width
        is_first, self.is_behind = not self.parts, True
        if is_first and K == 1:
            self.parts = [DiagonalPreconditioner(A, D.mean(axis=1))]
            return
        self.spent, self.is_fresh = 0.0, True
        if is_first:
            # Values that add up to 0 have this curvature each, while all classes are as probable.
            self.parts = [GramPreconditioner(A, D.mean(axis=1) * K / (K - 1))]
            return
        together = coupling() if self.is_coupled else None
        if together is None:
            means = [D[:, k::K].mean(axis=1) for k in range(K)]
            self.parts = [GramPreconditioner(A, mean) for mean in means]
            return
        parts, outside = self.layout
        if len(outside) == 1:
            together *= np.mean(self.weights > 0.0, axis=1)[:, None, None]
        self.parts = [CoupledPreconditioner(A, together, parts, outside)]

    def _has_few(self, D: Array) -> bool:
        """Whether so few rows have curvature that every model is worth a system of its own."""
        if self.width > 1:
            return False
        n, c = len(D), len(self.penalty)
        m = float(np.count_nonzero(D)) / D.shape[1]
        return bool(m < _FEW * n and m * c + c * c / 3.0 < _OWN * n)

    def solve(self, B: Array) -> Array:
        """An approximate solution for the columns of all models."""
        if self.own is not None:
            return self.own.solve(B)
        if isinstance(self.parts[0], CoupledPreconditioner):
            return self.parts[0].of_models(B, self.live)
        if len(self.parts) == 1:
            return self.parts[0].solve(B)
        solved = np.empty_like(B)
        for k, part in enumerate(self.parts):
            solved[:, k :: self.width] = part.solve(B[:, k :: self.width])
        return solved

    def is_worn(self, steps: int, decades: float) -> bool:
        """Whether so many steps, for so many digits, are enough to make a new one at once."""
        return not self.is_fresh and self.spent + steps - self.rate * decades >= self.price

    def note(self, steps: int, decades: float) -> None:
        """Count the steps that an equation took."""
        if self.is_fresh:
            self.rate = steps / max(decades, 0.1)
        else:
            self.spent += max(0.0, steps - self.rate * decades)


def has_own_systems(n: int, size: int, t: int) -> bool:
    """Whether so many models of n rows, coupled to so many coefficients, have systems each."""
    return t * size <= _SYSTEMS * n and t * size**2 <= _HELD


def _decades(first: Array, after: Array) -> float:
    """How many digits a residual has lost, in the mean over the models."""
    known = (first > 0.0) & (after > 0.0)
    return 0.5 * float(np.log10(first[known] / after[known]).mean()) if known.any() else 0.0


def _ratio(above: Array, below: Array) -> Array:
    """The quotients: 0 where there is nothing above and infinite where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(above > 0.0, above / below, 0.0)
    return found


def _summed(columns: Array, width: int) -> Array:
    """The sums over the columns of every model."""
    return columns if width == 1 else columns.reshape(-1, width).sum(axis=1)
