r"""Smooth losses: the minima of all folds at once, from the fit on all rows.

Every fold's problem differs from that of all rows by the rows it leaves out, and by what the others
do about it. The response M of the fit on all rows, less the rows of the fold,

.. math:: M_j = M + M_{:S}\,(D_S^{-1} - M_{SS})^{-1} M_{S:},

therefore nearly solves the Newton equations of fold j: the first step from the fit on all rows is
(★), and conjugate gradients with it solve those after that in a few products with M, in which all
folds are columns. One factorisation a ridge serves all folds, where refits take several each.

A function f + b is known by its values u on all rows and by φ = −2ρa, the forces that hold it where
it is; at a minimum they are the forces of the loss. :math:`e = g - \varphi` is what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from everyfold._typing import Array, Index, Mask
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.refit import refit_alone
from everyfold.folds import Folds, Stack
from everyfold.linalg.blas import dots, product
from everyfold.linalg.symmetric import EPS, FactoredStack
from everyfold.operators.base import SupportsResponse
from everyfold.operators.response import Response
from everyfold.solvers import (
    RESOLVED,
    STATIONARITY,
    Fit,
    Problem,
    has_flat_intercept,
    relative_forces,
    solve_path,
)
from everyfold.solvers.block_newton import share_of_steps

# Newton steps of a fold before it is refitted by itself; most need two to five.
_STEPS = 30

# How far the fit on all rows goes: folds need a start and a factorisation near to theirs, no more.
# Its last steps, of a factorisation each, took a seventh of a search of 800 rows.
_ROUGH = 1e-3

# Steps of conjugate gradients in a Newton step, of a product each; most need two or three.
_PRODUCTS = 40

# How far a Newton equation is solved at least, relative to what is left.
_FORCING = 1e-2

# A fold whose violation does not fall by half so many times is refitted by itself.
_STALLS = 5

# How often the interval of a step that goes too far is halved.
_HALVINGS = 12

# M is formed if there are more folds than n divided by this: 4 n³ flops for a fourth of those of
# every product.
_EXPLICIT = 20

# Entries of an array over rows and folds, 16 MB; up to ``ARRAYS`` exist at a time.
ENTRIES = 2_000_000

# 17 to 20 were measured (peak of traced memory, 800 and 1500 rows, 300 and 400 folds).
ARRAYS = 20

# The relative rounding of a term of f = K a.
_ROUNDING = 4.0 * EPS


@dataclass(frozen=True)
class Together(CrossValMethod):
    r"""The minima of all folds of a smooth loss by Newton's method, all folds at once.

    **Cost** the fit on all rows, and about ten products of M with a column for each fold; M is n×n,
    or has the rank of the kernel. **Exact?** Yes: every fold satisfies the conditions of a minimum
    as a fit of its training rows does, else it is fitted by itself.
    """

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class. Every fold must be a removal of rows, with the ridge of all rows."""
        # Forces of a function with a coefficient for each row are known, at a minimum or not.
        enough = _ROUGH if operator.rank >= operator.n else 0.0
        fits = solve_path(problem, operator, ridges, keep_responses=True, enough=enough)
        for ridge, fit in zip(ridges, fits, strict=True):
            targets = range(problem.y.shape[1])
            found = [_column(problem, operator, fit, k, folds) for k in targets]
            values = np.column_stack([values for values, _ in found])
            done = np.logical_and.reduce([done for _, done in found])
            condition = np.full(len(folds), fit.condition)
            for i in np.flatnonzero(~done).tolist():
                own = refit_alone(problem, operator, folds[i], ridge, fit.solution)
                values[folds.bounds[i] : folds.bounds[i + 1]] = own.values[0]
                condition[i] = own.condition[0]
            yield OutOfFold.of_refits(values, condition)


def _column(
    problem: Problem, operator: SupportsResponse, fit: Fit, k: int, folds: Folds
) -> tuple[Array, Mask]:
    """The held-out values of one target, and the folds that have them."""
    values = np.full(int(folds.sizes.sum()), np.nan)
    done = np.zeros(len(folds), dtype=bool)
    response = fit.responses[k]
    if response is None or not fit.converged[k]:
        return values[folds.pick], done
    start = _Start.of(problem, operator, fit, k, response, len(folds))
    bounds = np.concatenate([[0], np.cumsum(folds.sizes)])
    step = max(1, ENTRIES // problem.n)
    for i in range(0, len(folds), step):
        numbers = range(i, min(i + step, len(folds)))
        some = folds if len(numbers) == len(folds) else folds.subset(numbers)
        slots = slice(bounds[numbers[0]], bounds[numbers[-1] + 1])
        values[slots], done[numbers[0] : numbers[-1] + 1] = _Batch(start, some).run()
    return values[folds.pick], done


@dataclass(frozen=True)
class _Start:
    """The fit on all rows of one target, and its response."""

    problem: Problem
    y: Array
    """Of shape (n, 1)."""
    operator: SupportsResponse
    rho: float
    response: Response
    D: Array
    """The curvature of the response, of shape (n, 1)."""
    M: Array | None
    u: Array
    phi: Array
    size: float
    total: float
    """Of the forces at u = 0, to which violations are relative: see ``solve.newton``."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        operator: SupportsResponse,
        fit: Fit,
        k: int,
        response: Response,
        t: int,
    ) -> _Start:
        y, n = problem.y[:, [k]], problem.n
        u = operator.evaluate(fit.solution.coef[:, [k]]) + fit.solution.intercept[k]
        w, coef = problem.w[:, None], fit.solution.coef[:, [k]]
        first = w * problem.loss.slope(y, np.zeros((n, 1)))
        size = float(np.abs(operator.coefficients(first)).max(initial=0.0)) or 1.0
        is_explicit = operator.rank >= n and t * _EXPLICIT > n
        return cls(
            problem,
            y,
            operator,
            fit.rho,
            response,
            response.curvature[:, None],
            response.matmat(np.eye(n)) if is_explicit else None,
            u,
            -2.0 * fit.rho * coef if operator.rank >= n else w * problem.loss.slope(y, u),
            size,
            float(np.abs(first).sum()) or 1.0,
        )

    def times(self, B: Array) -> Array:
        """M B."""
        return self.response.matmat(B) if self.M is None else product(self.M, B)

    @cached_property
    def largest(self) -> float:
        """The largest k(x, x)."""
        return float(np.abs(self.operator.diagonal()).max())


@dataclass(frozen=True)
class _Held:
    """The held-out rows with curvature of folds of equal size: what takes them out of M."""

    stack: Stack
    system: FactoredStack | Array
    """R_SS, or its diagonal for single rows."""
    root: Array
    """The roots of their curvature, (t, m)."""

    @classmethod
    def of(cls, response: Response, stack: Stack) -> _Held:
        root = np.sqrt(response.curvature[stack.rows])
        if stack.rows.shape[1] == 1:
            return cls(stack, response.residual_diagonal()[stack.rows], root)
        return cls(stack, response.factored_residual_blocks(stack.rows), root)

    def removal(self, u: Array, scale: float) -> Array:
        """(D⁻¹ − M_SS)⁻¹ u_S of every fold, (t, m)."""
        wanted = self.root * u
        if isinstance(self.system, np.ndarray):
            solved = wanted / self.system
        else:
            solved = self.system.solve(wanted[:, :, None])[:, :, 0]
        removal: Array = self.root * solved / scale
        return removal


class _Batch:
    """Newton's method for some folds, a column each."""

    def __init__(self, start: _Start, folds: Folds) -> None:
        self.start, self.folds = start, folds
        t = len(folds)
        self.w = np.repeat(start.problem.w[:, None], t, axis=1)
        self.owner = np.repeat(np.arange(t), folds.sizes)
        """The fold of every held-out row."""
        self.w[folds.held_rows, self.owner] = 0.0
        is_curved = start.D[:, 0] > 0.0
        self.held = [
            _Held.of(start.response, stack)
            for stack in folds.stacks(is_curved)
            if stack.rows.shape[1]
        ]
        self.values = np.full(int(folds.sizes.sum()), np.nan)
        self.done = np.zeros(t, dtype=bool)
        self.is_out = np.zeros(t, dtype=bool)
        """The folds in which no row left out acts any more."""
        self.moved = np.full(t, np.inf)
        """How far each fold has moved in its last step, relative to its values."""
        self.U, self.phi = np.repeat(start.u, t, axis=1), np.repeat(start.phi, t, axis=1)

    def run(self) -> tuple[Array, Mask]:
        """The values of all held-out rows, and the folds that have reached their minimum."""
        start, t = self.start, len(self.folds)
        live = np.arange(t)
        before, stalls = np.full(t, np.inf), np.zeros(t, dtype=np.intp)
        loss, y = start.problem.loss, start.y
        for step in range(_STEPS):
            if step:
                self._refresh(live)
            U, w = self.U[:, live], self.w[:, live]
            g = w * loss.slope(y, U)
            E = g - self.phi[:, live]
            violation = self._violation(E, g)
            D = w * loss.curvature(y, U)
            if step:  # before the first step the rows left out still act
                is_done = self._finish(live, violation, np.abs(g).sum(axis=0), D)
                stalls[live] += violation > 0.5 * before[live]
                kept = ~is_done & (stalls[live] < _STALLS) & np.isfinite(violation)
                live, E, D, violation = live[kept], E[:, kept], D[:, kept], violation[kept]
            if not live.size:
                break
            before[live] = violation
            del U, w, g  # arrays over rows and folds, which a step takes many of
            self._newton(live, E, D, violation)
        return self.values, self.done

    def _violation(self, E: Array, g: Array) -> Array:
        """How far folds are from a minimum, as of a fit: see ``solve.newton``."""
        worst = np.abs(self.start.operator.coefficients(E)).max(axis=0) / self.start.size
        if self.start.problem.intercept:
            worst = np.maximum(worst, np.abs(g.sum(axis=0)) / self.start.total)
        return np.asarray(worst)

    def _refresh(self, live: Index) -> None:
        """Values from the coefficients, which products with M have left behind by rounding."""
        start, phi = self.start, self.phi[:, live]
        # A whole step takes all force off the rows left out; rounding may leave some.
        phi[(self.w[:, live] == 0.0) & self.is_out[live]] = 0.0
        if start.problem.intercept:  # forces that hold a function add up to nothing
            share = np.where(self.w[:, live] > 0.0, start.D, 0.0)
            total = share.sum(axis=0)
            phi -= share * (phi.sum(axis=0) / np.where(total > 0.0, total, 1.0))
        coef = start.operator.coefficients(phi / (-2.0 * start.rho))
        F = start.operator.evaluate(coef)
        if start.problem.intercept:
            F += (self.U[:, live] - F).mean(axis=0)
        self.phi[:, live], self.U[:, live] = phi, F

    def _finish(self, live: Index, violation: Array, total: Array, D: Array) -> Mask:
        """Keep the values of the folds that are at their minimum."""
        start = self.start
        U, w = self.U[:, live], self.w[:, live]
        coef = start.operator.coefficients(self.phi[:, live]) / (2.0 * start.rho)
        terms = D.max(axis=0, initial=0.0) * np.abs(coef).sum(axis=0) * start.largest
        terms = np.maximum(terms, start.operator.size_of_sums(1.0, start.largest) * total)
        forces = relative_forces(start.operator, start.largest, start.rho, coef, start.size)
        is_resolved = (violation <= RESOLVED * forces) | (self.moved[live] <= RESOLVED)
        limit = np.maximum(STATIONARITY, _ROUNDING * terms / start.size)
        is_done: Mask = is_resolved & (violation <= limit)
        if start.problem.intercept and start.problem.loss.is_piecewise_quadratic:
            # Which of many intercepts is taken is for a fit of the fold alone to say.
            is_done &= ~has_flat_intercept(start.problem.loss, start.y, U, w)
        self.done[live[is_done]] = True
        is_kept = self.done[self.owner] & np.isnan(self.values)
        self.values[is_kept] = self.U[self.folds.held_rows[is_kept], self.owner[is_kept]]
        return is_done

    def _solve(self, live: Index, E: Array) -> tuple[Array, Array]:
        """What M_j makes of missing forces: values, and the forces that hold them."""
        start, pushed = self.start, E
        if self.held:
            pushed = E.copy()
            position = np.full(len(self.folds), -1)
            position[live] = np.arange(len(live))
            M_E = start.times(E) if start.M is None else None
            for held in self.held:
                rows, columns = held.stack.rows, position[held.stack.folds]
                some = columns[:, None] * np.ones(rows.shape[1], dtype=np.intp)
                if M_E is not None:
                    u = M_E[rows, some]
                elif rows.shape[1] == 1:
                    assert start.M is not None
                    u = np.einsum("ij,ji->i", start.M[rows[:, 0]], E[:, columns])[:, None]
                else:
                    assert start.M is not None
                    u = np.stack([start.M[S] @ E[:, j] for S, j in zip(rows, columns, strict=True)])
                removal = held.removal(u, start.response.scale)
                is_live = columns >= 0
                pushed[rows[is_live], some[is_live]] += removal[is_live]
        values = -start.times(pushed)
        # The curvature of a row left out is that of all rows less itself: none.
        D = np.where(self.w[:, live] > 0.0, start.D, 0.0)
        return values, E + D * values

    def _newton(self, live: Index, E: Array, D: Array, violation: Array) -> None:
        """Solve the Newton equations of folds by conjugate gradients, and take the step."""
        limit = np.minimum(_FORCING, np.maximum(violation, 0.1 * STATIONARITY / violation))
        limit = limit * np.abs(E).max(axis=0)
        u, phi = self._solve(live, E)
        step_u, step_phi = np.zeros_like(E), np.zeros_like(E)
        p_u, p_phi = u, phi
        slope = dots(E, u)
        for _ in range(_PRODUCTS):
            H = D * p_u - p_phi
            bend = dots(H, p_u)
            with np.errstate(divide="ignore", invalid="ignore"):
                alpha = np.where(bend > 0.0, -slope / bend, 0.0)
            step_u += alpha * p_u
            step_phi += alpha * p_phi
            E = E + alpha * H
            is_open = (np.abs(E).max(axis=0) > limit) & (alpha != 0.0)
            if not is_open.any():
                break
            u, phi = self._solve(live, E)
            after = dots(E, u)
            with np.errstate(divide="ignore", invalid="ignore"):
                beta = np.where(is_open, after / slope, 0.0)
            slope = np.where(is_open, after, 0.0)
            p_u, p_phi = u + beta * p_u, phi + beta * p_phi
            p_u[:, ~is_open], p_phi[:, ~is_open] = 0.0, 0.0
        share = self._share(live, step_u, step_phi)
        self.is_out[live] |= share == 1.0
        self.U[:, live] += share * step_u
        size = np.maximum(1.0, np.abs(self.U[:, live]).max(axis=0))
        self.moved[live] = np.abs(step_u).max(axis=0) / size
        self.phi[:, live] += share * step_phi

    def _share(self, live: Index, step_u: Array, step_phi: Array) -> Array:
        """How far to go along each step."""

        def rise(at: Array, some: Index) -> Array:
            own = live[some]
            U, d = self.U[:, own] + at * step_u[:, some], step_u[:, some]
            forces = self.w[:, own] * self.start.problem.loss.slope(self.start.y, U)
            forces -= self.phi[:, own] + at * step_phi[:, some]
            return dots(forces, d)

        return share_of_steps(rise, len(live), _HALVINGS)
