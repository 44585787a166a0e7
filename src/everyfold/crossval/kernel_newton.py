r"""Smooth losses with a full kernel matrix: the minima of a few folds by iterations.

The folds of a ridge are columns that take Newton steps together, and ridges come one after the
other, from strong to weak, each starting from the one before. With the roots :math:`S_j` of the
curvature of the training rows of fold j, the change of its coefficients is
:math:`\delta a = S_j x - r / 2\rho`, where r is what is missing in :math:`2\rho a = -g`, and

.. math:: (S_j K S_j + 2\rho I)\,x + S_j \delta b = S_j K r / 2\rho , \qquad
    s_j^\top x = \textstyle\sum g / 2\rho ,

which conjugate gradients solve as far as the step is worth: nothing of the size of K is factorised.
A low-rank part of the kernel, and what that leaves of its diagonal, precondition every fold with
its own curvature, so that the rows that it holds out are out of that as well. Steps need few digits
and are made in single precision; what is missing is measured in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from everyfold._typing import AnyArray, Array, Index, Mask
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.primal import from_strong, weights_of_folds
from everyfold.crossval.refit import FoldAnswer, FoldSolver, Refit, refit_alone
from everyfold.folds import Folds
from everyfold.linalg.blas import dots
from everyfold.linalg.kernel_systems import KernelBasis, KernelSystems, WholeInverse
from everyfold.linalg.symmetric import EPS, are_trusted
from everyfold.operators.base import SupportsResponse, TrainTestKernel
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Solution
from everyfold.solvers import (
    RESOLVED,
    STATIONARITY,
    Problem,
    has_flat_intercept,
    relative_forces,
)
from everyfold.solvers.block_newton import share_of_steps

# Newton steps of a fold before it is refitted by itself; most need three to seven.
_STEPS = 100

# A fold whose violation does not fall by half so many times is refitted by itself.
_STALLS = 60

# Steps of conjugate gradients in a Newton step; most need two to ten.
_PRODUCTS = 150

# How far a Newton equation is solved at least, relative to the length of the step; and how far it
# is beside how much the last step moved the values.
_FORCING, _CLOSER = 0.1, 0.3

# The rank of the preconditioner, by the number of rows and at most: a higher one saves iterations
# where kernels are narrow and ridges small, and takes n r² flops a fold and step.
RANK_SHARE, MOST_RANK = 0.25, 400

# What the low-rank part may leave of the diagonal beside the smallest ridge.
_ENOUGH = 0.5

# Curvatures may move by this factor before the preconditioner is made anew.
_MOVED = 2.0

# Products in a Newton step, by the number of rows, from which on the matrix of a fold itself is
# factorised: it costs as much. A product costs as much for so many folds as for none. Measured with
# 5 and 10 folds of 1000 rows.
_SLOW, _TOGETHER = 0.04, 5.0

# How far a Newton equation can be solved beside the rounding of its matrix.
_DIGITS = 4.0

# The curvature of rows where a loss with kinks has none, while a fold is far from its minimum and
# fewer rows than this share have some: a step to where they have is not endless then.
_FLAT, _FEW_CURVED = 1e-2, 0.02

# How exactly steps are shortened: more halvings save no steps (10 folds of 1000 rows).
_HALVINGS = 8

# The relative rounding of a term of f = K a.
_ROUNDING = 4.0 * EPS


@dataclass(frozen=True)
class AllFoldsKernel(CrossValMethod):
    r"""The minima of all folds and ridges of a full kernel matrix, by Newton's method.

    **Cost** a partial Cholesky factor of K, and for each ridge some five Newton steps of n r² flops
    a fold and a few products of K with a column for each fold. **Exact?** Yes: every fold satisfies
    the conditions of a minimum as a fit of its training rows does, else it is fitted by itself.
    """

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class. Folds may be any."""
        operator = cast("DenseMatrix", operator)  # the planner asks for no other
        operator.check_varying(str(problem.loss))
        kernel = _Kernel(operator, min(problem.rho(r, problem.n_counted) for r in ridges))
        weights, counts = weights_of_folds(problem, folds)
        owner = np.repeat(np.arange(len(folds)), np.diff(folds.bounds))
        t, q = len(folds), problem.y.shape[1]
        values = np.full((len(ridges), int(folds.bounds[-1]), q), np.nan)
        condition = np.ones((len(ridges), t))
        done = np.ones((len(ridges), t), dtype=bool)
        starts = np.zeros((len(ridges), t, problem.n + 1, q))
        for k in range(q):
            models = _KernelModels(kernel, problem, k, weights)
            for j in from_strong(ridges):
                rho = np.array([problem.rho(ridges[j], int(count)) for count in counts])
                is_done, own = models.minimise(rho)
                values[j, :, k] = models.U[folds.test_rows, owner]
                done[j] &= is_done
                condition[j] = np.maximum(condition[j], own)
                starts[j, :, :-1, k], starts[j, :, -1, k] = models.A.T, models.b
        for j, ridge in enumerate(ridges):
            for i in np.flatnonzero(~done[j]).tolist():
                start = Solution(starts[j, i, :-1], starts[j, i, -1])
                alone = refit_alone(problem, operator, folds[i], ridge, start)
                values[j, folds.bounds[i] : folds.bounds[i + 1]] = alone.values[0]
                condition[j, i] = alone.condition[0]
            yield OutOfFold.of_refits(values[j], condition[j])


@dataclass(frozen=True)
class FoldKernel(FoldSolver[None]):
    """The same for a training set with a kernel of its own, all ridges together.

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
        operator = cast("DenseMatrix", part.operator)
        inside = [problem.restrict(part.train) for problem in problems]
        rhos = [[own.rho(ridge, own.n_counted) for ridge in ridges] for own in inside]
        kernel = _Kernel(operator, min(min(own) for own in rhos))
        shape = len(ridges), operator.n, sum(problem.y.shape[1] for problem in problems)
        coef, intercept = np.zeros(shape), np.zeros((shape[0], 1, shape[2]))
        condition, done = np.ones(len(ridges)), np.ones(len(ridges), dtype=bool)
        place = 0
        for problem, rho in zip(inside, rhos, strict=True):
            for k in range(problem.y.shape[1]):
                models = _KernelModels(kernel, problem, k, problem.w[:, None])
                for j in from_strong(ridges):
                    is_done, own = models.minimise(np.array([rho[j]]))
                    coef[j, :, place], intercept[j, 0, place] = models.A[:, 0], models.b[0]
                    done[j] &= is_done[0]
                    condition[j] = max(condition[j], own[0])
                place += 1
        values = part.cross @ coef + intercept
        for j in np.flatnonzero(~done).tolist():
            again = Refit().solve(problems, part, [ridges[j]], None)
            values[j], condition[j] = again.values[0], again.condition[0]
        return FoldAnswer(values, condition, are_trusted(condition))


class _Kernel:
    """A kernel matrix, and its low-rank part for ridges down to the smallest."""

    def __init__(self, operator: DenseMatrix, smallest: float) -> None:
        self.operator = operator
        most = min(MOST_RANK, int(RANK_SHARE * operator.n))
        self.basis = KernelBasis.of(operator.K, most, _ENOUGH * smallest)
        self.whole = WholeInverse()

    @cached_property
    def single(self) -> KernelBasis:
        """The same in single precision."""
        return self.basis.single()

    @cached_property
    def largest(self) -> float:
        """About the largest eigenvalue."""
        return self.basis.largest

    @cached_property
    def widest(self) -> float:
        """The largest k(x, x)."""
        return float(np.abs(self.operator.diagonal()).max(initial=0.0))


class _KernelModels:
    """Newton's method for one target in some folds, a column each, from ridge to ridge."""

    def __init__(self, kernel: _Kernel, problem: Problem, k: int, weights: Array) -> None:
        self.kernel, self.loss, self.intercept = kernel, problem.loss, problem.intercept
        self.y, self.w = problem.y[:, [k]], weights
        n, t = weights.shape
        self.A, self.b, self.f = np.zeros((n, t)), np.zeros(t), np.zeros((n, t))
        self.slow = np.zeros(t, dtype=bool)
        """Those whose own matrix is factorised: weaker ridges take even more products."""
        first = weights * problem.loss.slope(self.y, np.zeros((n, 1)))
        self.size = np.abs(first).max(axis=0, initial=0.0)
        self.size = np.where(self.size > 0.0, self.size, 1.0)
        self.total = np.maximum(np.abs(first).sum(axis=0), self.size)

    @property
    def U(self) -> Array:
        """The values of all rows by every model."""
        return self.f + self.b

    def minimise(self, rho: Array) -> tuple[Mask, Array]:
        """Go to the minimum at these ridges: which models are there, and condition numbers."""
        t = len(rho)
        done, condition = np.zeros(t, dtype=bool), np.ones(t)
        if not ((rho > 0.0) & np.isfinite(rho)).all():
            return done, condition
        live, before = np.arange(t), np.full(t, np.inf)
        stalls, moved = np.zeros(t, dtype=np.intp), np.full(t, np.inf)
        systems: _NewtonEquations | None = None
        for _ in range(_STEPS):
            G = self.w[:, live] * self.loss.slope(self.y, self.U[:, live])
            R = 2.0 * rho[live] * self.A[:, live] + G
            D = self.w[:, live] * self.loss.curvature(self.y, self.U[:, live])
            violation = self._violation(R, G, live)
            bend = D.max(axis=0, initial=0.0)
            condition[live] = 1.0 + bend * self.kernel.largest / (2.0 * rho[live])
            is_done, resolution = self._is_done(live, rho, violation, bend, moved)
            done[live] = is_done
            condition[live] = np.maximum(condition[live], resolution / EPS)
            stalls[live] += violation > 0.5 * before[live]
            before[live] = np.minimum(before[live], violation)
            kept = ~is_done & (stalls[live] < _STALLS) & np.isfinite(violation) & (bend >= 0.0)
            if not kept.any():
                break
            if not kept.all():
                live, G, R, D = live[kept], G[:, kept], R[:, kept], D[:, kept]
                violation = violation[kept]
                systems = None if systems is None else systems.subset(np.flatnonzero(kept))
            if self.loss.is_piecewise_quadratic:
                D = self._lifted(D, live, violation)
            spread = 1.0 + bend[kept] * self.kernel.largest / (2.0 * rho[live])
            systems = self._systems(
                systems, np.sqrt(D), rho[live], float(spread.max()), self.slow[live]
            )
            forcing = np.maximum(_CLOSER * moved[live], 0.1 * STATIONARITY / violation)
            forcing = np.maximum(forcing, _DIGITS * spread * np.finfo(systems.basis.K.dtype).eps)
            d_a, d_b, products = systems.step(R, G, np.minimum(forcing, _FORCING))
            self.slow[live] |= products > _SLOW * len(R) / (1.0 + _TOGETHER / len(live))
            moved[live] = self._take(live, rho[live], d_a, d_b)
        self.f = self.kernel.operator.matmat(self.A)
        if self.intercept and self.loss.is_piecewise_quadratic:
            # Which of many intercepts is taken is for a fit of the fold alone to say.
            done &= ~has_flat_intercept(self.loss, self.y, self.U, self.w)
        return done, condition

    def _violation(self, R: Array, G: Array, live: Index) -> Array:
        """How far models are from a minimum, as of a fit: see ``solve.newton``."""
        worst = np.abs(R).max(axis=0, initial=0.0) / self.size[live]
        if self.intercept:
            worst = np.maximum(worst, np.abs(G.sum(axis=0)) / self.total[live])
        return np.asarray(worst)

    def _is_done(
        self, live: Index, rho: Array, violation: Array, bend: Array, moved: Array
    ) -> tuple[Mask, Array]:
        """Which models are at their minimum, and the relative errors of their values."""
        A, widest = self.A[:, live], self.kernel.widest
        forces = np.array(
            [
                relative_forces(self.kernel.operator, widest, own, A[:, [j]], size)[0]
                for j, (own, size) in enumerate(zip(rho[live], self.size[live], strict=True))
            ]
        )
        terms = bend * np.abs(A).sum(axis=0) * widest
        resolution = np.minimum(violation / forces, moved[live])
        limit = np.maximum(STATIONARITY, _ROUNDING * terms / self.size[live])
        return (resolution <= RESOLVED) & (violation <= limit), resolution

    def _lifted(self, D: Array, live: Index, violation: Array) -> Array:
        """Curvatures, with some for all rows where too few have any for a step to end."""
        w = self.w[:, live]
        is_few = np.count_nonzero(D, axis=0) <= _FEW_CURVED * np.count_nonzero(w, axis=0)
        return np.maximum(D, np.where(is_few, np.minimum(_FLAT, violation), 0.0) * w)

    def _systems(
        self, known: _NewtonEquations | None, S: Array, rho: Array, condition: float, slow: Mask
    ) -> _NewtonEquations:
        """The Newton equations; preconditioned as before while curvatures hardly move."""
        is_single = _DIGITS * condition * float(np.finfo(np.float32).eps) <= _FORCING
        basis = self.kernel.single if is_single else self.kernel.basis
        if known is not None and known.basis.K is basis.K and not slow.any():
            again = known.moved(S)
            if again is not None:
                return again
        basis = basis.leading(_ENOUGH * float(rho.min()))
        whole = self.kernel.whole
        return _NewtonEquations.of(basis, S, rho, slow, whole, intercept=self.intercept)

    def _take(self, live: Index, rho: Array, d_a: Array, d_b: Array) -> Array:
        """Go along a step as far as the objective falls; how far values move, relatively."""
        d_f = self.kernel.operator.matmat(d_a)
        d_u = d_f + d_b
        share = self._share(live, rho, d_a, d_f, d_u)
        self.A[:, live] += share * d_a
        self.b[live] += share * d_b
        self.f[:, live] += share * d_f
        size = np.maximum(1.0, np.abs(self.U[:, live]).max(axis=0, initial=0.0))
        return np.asarray(np.abs(d_u).max(axis=0, initial=0.0) / size)

    def _share(self, live: Index, rho: Array, d_a: Array, d_f: Array, d_u: Array) -> Array:
        """How far to go along each step."""
        first = 2.0 * rho * dots(self.A[:, live], d_f)
        more = 2.0 * rho * dots(d_a, d_f)

        def rise(at: Array, some: Index) -> Array:
            own = live[some]
            slope = self.loss.slope(self.y, self.U[:, own] + at * d_u[:, some])
            forces = np.einsum("ij,ij,ij->j", self.w[:, own], slope, d_u[:, some])
            return np.asarray(forces + first[some] + at * more[some])

        return share_of_steps(rise, len(live), _HALVINGS)


@dataclass(frozen=True)
class _NewtonEquations:
    """The Newton equations of some models, and what preconditions them."""

    basis: KernelBasis
    S: Array
    rho: Array
    inverse: KernelSystems
    ratio: AnyArray | None
    """S by that of the preconditioner, where these are not the same."""
    intercept: bool

    @classmethod
    def of(
        cls,
        basis: KernelBasis,
        S: Array,
        rho: Array,
        slow: Mask,
        whole: WholeInverse,
        *,
        intercept: bool,
    ) -> _NewtonEquations:
        kind = basis.K.dtype
        inverse = KernelSystems.of(basis, S.astype(kind), (2.0 * rho).astype(kind), slow, whole)
        return cls(basis, S, rho, inverse, None, intercept)

    def subset(self, columns: Index) -> _NewtonEquations:
        """Those of some models."""
        ratio = None if self.ratio is None else self.ratio[:, columns]
        return replace(
            self,
            S=self.S[:, columns],
            rho=self.rho[columns],
            inverse=self.inverse.subset(columns),
            ratio=ratio,
        )

    def moved(self, S: Array) -> _NewtonEquations | None:
        """The equations of other curvatures; None if these are too far for the preconditioner."""
        old, new = self.inverse.S, S.astype(self.basis.K.dtype)
        is_out = old == 0.0
        if ((new == 0.0) != is_out).any():
            return None
        ratio = new / np.where(is_out, 1.0, old)
        ratio[is_out] = 1.0
        if max(float(ratio.max()), 1.0 / float(ratio.min())) ** 2 > _MOVED:
            return None
        return replace(self, S=S, ratio=ratio)

    def step(self, R: Array, G: Array, forcing: Array) -> tuple[Array, Array, Index]:
        """The changes of coefficients and intercepts, to a share of the length of the step."""
        kind, ridge = self.basis.K.dtype, 2.0 * self.rho
        s = self.S.astype(kind)
        # R is all that is left of a minimum, and loses no digits by itself.
        wanted = s * (self.basis.K @ R.astype(kind)) / ridge.astype(kind)
        x, d_b, products = self._solve(wanted), np.zeros(len(ridge)), np.zeros(len(ridge), np.intp)
        pull = self._solve(s) if self.intercept else s
        weight = dots(s, pull)
        weight = np.where(weight > 0.0, weight, 1.0)
        if self.intercept:
            d_b = (dots(s, x) - G.sum(axis=0) / ridge) / weight
            x = x - pull * d_b.astype(kind)
        if self.inverse.is_exact and self.ratio is None:
            return self.S * x - R / ridge, d_b, products
        residual = wanted - self._times(x, s) - s * d_b.astype(kind)

        def precondition(residual: AnyArray) -> tuple[AnyArray, AnyArray]:
            z = self._solve(residual)
            if not self.intercept:
                return z, residual
            b = (dots(s, z) / weight).astype(kind)
            d_b[:] += b
            return z - pull * b, residual - s * b

        z, residual = precondition(residual)
        p, slope = z, dots(residual, z)
        open_ = np.ones(len(ridge), dtype=bool)
        for _ in range(_PRODUCTS):
            length = _norms(ridge.astype(kind) * x + residual)
            open_ &= _norms(residual) > forcing * length
            if not open_.any():
                break
            products += open_
            H_p = self._times(p, s)
            bend = dots(p, H_p)
            open_ &= (bend > 0.0) & (slope > 0.0)
            alpha = np.where(open_, slope / np.where(bend > 0.0, bend, 1.0), 0.0).astype(kind)
            x = x + alpha * p
            residual = residual - alpha * H_p
            z, residual = precondition(residual)
            after = dots(residual, z)
            beta = np.where(open_, after / np.where(slope > 0.0, slope, 1.0), 0.0).astype(kind)
            p, slope = z + beta * p, after
        return self.S * x - R / ridge, d_b, products

    def _times(self, p: AnyArray, s: AnyArray) -> AnyArray:
        """(S K S + 2ρ I) p."""
        found: AnyArray = s * (self.basis.K @ (s * p)) + (2.0 * self.rho).astype(p.dtype) * p
        return found

    def _solve(self, B: AnyArray) -> AnyArray:
        if self.ratio is None:
            return self.inverse.solve(B)
        return np.asarray(self.inverse.solve(B / self.ratio) / self.ratio)


def _norms(A: AnyArray) -> Array:
    return np.sqrt(dots(A, A))
