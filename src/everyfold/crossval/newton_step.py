r"""The hold-out formula for losses without a closed form: one Newton step of every fold's problem.

At the minimum of all rows the problem is a quadratic one to second order
(:class:`~everyfold.solvers.NewtonModel`); leaving a set S out of *that* is exact and costs no
further factorisation:

.. math:: \hat u_S = u_S + (I - M_{SS}D_S)^{-1} M_{SS}\,g_S .

For a piecewise quadratic loss the model is the truth as long as no remaining row changes its piece,
and the held-out values are those of a refit; that is checked row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index
from everyfold.crossval.base import OutOfFold
from everyfold.folds import Folds
from everyfold.linalg.symmetric import is_trusted
from everyfold.operators.base import SupportsResponse
from everyfold.operators.response import (
    DualModel,
    Response,
    Solution,
    influence_series,
    weights_of_sets,
)
from everyfold.solvers import Fit, NewtonModel, Problem, has_flat_intercept, solve_path


def rows_left(problem: Problem, folds: Folds) -> Index:
    """How many of the rows that count in the ridge each fold trains on."""
    if problem.n_counted == problem.n:
        return problem.n - folds.sizes
    counts = problem.w if problem.counts is None else problem.counts
    out = [np.count_nonzero(counts[held]) for held in folds.helds]
    return int(problem.n_counted) - np.array(out, dtype=np.intp)


def same_ridge(left: Index, folds: Folds) -> list[tuple[int, Index, Folds]]:
    """Folds that leave as many rows, and so have one ridge: rows left, numbers, and the folds."""
    groups = [(int(size), np.flatnonzero(left == size)) for size in np.unique(left)]
    return [(n, ids, folds if len(groups) == 1 else folds.subset(ids)) for n, ids in groups]


def share_of_ridge(problem: Problem, folds: Folds) -> Array:
    r"""What :math:`\Theta` is on the rows that a fold trains on, (t,): -m/(n-m)."""
    left = rows_left(problem, folds)
    return -(problem.n_counted - left) / left


def mean_series(response: Response, problem: Problem, folds: Folds, g: Array, order: int) -> Array:
    """How the values of all rows move in each fold, (n, t, q), for forces g of shape (n, q).

    **Cost** a product with M for each term, fold and target.
    """
    elsewhere = share_of_ridge(problem, folds)
    first = response.influence(folds.helds, elsewhere, g)
    if order == 1:
        return first
    theta = weights_of_sets(folds.helds, elsewhere, problem.n)
    weights = (response.curvature[:, None] * theta)[:, :, None]

    def step(delta: Array) -> Array:
        pushed = (weights * delta).reshape(problem.n, -1)
        return response.matmat(pushed).reshape(delta.shape)

    return influence_series(first, step, order)


# -- The influence series where the ridge is a multiple of the number of rows ----------------------


# The certificate is computed by default for at most so many folds; it costs a product for each.
CERTIFIED_FOLDS = 100

# Forces that differ by less than this share of the largest are equal: the row is still on the piece
# of its loss that the step assumed.
_SAME_PIECE = 1e-9


@dataclass(frozen=True)
class StepOptions:
    """How far the influence series goes, and what is reported with it."""

    order: float
    with_radius: bool
    certify: bool | None
    starts: tuple[Solution, ...] | None = None

    def certifies(self, problem: Problem, n_folds: int) -> bool:
        """Whether to check that no remaining row changes its piece."""
        if self.order < math.inf or not problem.loss.is_piecewise_quadratic:
            return False
        return n_folds <= CERTIFIED_FOLDS if self.certify is None else self.certify


def newton_steps(
    problem: Problem,
    operator: SupportsResponse,
    ridges: Sequence[float],
    folds: Folds,
    options: StepOptions,
) -> Iterator[OutOfFold]:
    """Held-out values of every ridge; fits that did not converge give NaN."""
    for fit in _fits(problem, operator, ridges, options.starts):
        targets = range(problem.y.shape[1])
        columns = [_column(problem, k, operator, fit, folds, options) for k in targets]
        yield OutOfFold.beside(columns)


def _fits(
    problem: Problem,
    operator: SupportsResponse,
    ridges: Sequence[float],
    starts: tuple[Solution, ...] | None,
) -> Iterator[Fit]:
    if starts is None:
        yield from solve_path(problem, operator, ridges, keep_responses=True)
        return
    for ridge, start in zip(ridges, starts, strict=True):
        yield from solve_path(problem, operator, [ridge], start=start, keep_responses=True)


def _column(
    problem: Problem,
    k: int,
    operator: SupportsResponse,
    fit: Fit,
    folds: Folds,
    options: StepOptions,
) -> OutOfFold:
    """One target of one ridge, its folds grouped by the ridge that they see."""
    if not fit.converged[k]:
        return _unusable(folds)
    left = rows_left(problem, folds)
    ridge = fit.rho / (problem.n_counted if problem.ridge_scaling == "mean" else 1)
    if problem.ridge_scaling == "sum" or options.order < math.inf:
        # The series expands around the full sample; only its limit knows the fold's own ridge.
        left = np.full(len(folds), problem.n_counted)
    sizes, groups, parts = zip(*same_ridge(left, folds), strict=True)
    steps = [_Step.at(problem, k, operator, fit, problem.rho(ridge, size)) for size in sizes]
    records = [step.hold_out(part, options) for step, part in zip(steps, parts, strict=True)]
    return OutOfFold.joined(folds, groups, records)


def _unusable(folds: Folds) -> OutOfFold:
    nothing = np.full(len(folds), np.nan)
    values = np.full((int(folds.bounds[-1]), 1), np.nan)
    return OutOfFold(values, np.zeros(len(folds), dtype=bool), nothing, np.full(len(folds), np.inf))


@dataclass(frozen=True)
class _Step:
    """The quadratic model of one target at the ridge of some folds, factorised."""

    problem: Problem
    k: int
    response: Response
    u: Array
    """Fitted values of all rows, around which the model was made."""
    g: Array
    model: DualModel
    force: Array
    """The forces at the minimum of the model: g itself where the ridge is that of the fit."""

    @classmethod
    def at(
        cls, problem: Problem, k: int, operator: SupportsResponse, fit: Fit, rho: float
    ) -> _Step:
        coef, b = fit.solution.coef[:, [k]], float(fit.solution.intercept[k])
        u = operator.evaluate(coef)[:, 0] + b
        newton = NewtonModel.at(problem, k, operator, u, rho)
        response = fit.responses[k]
        if response is None or rho != fit.rho or not _is_for(response, newton):
            response = operator.respond(newton.quadratic, rho)
        if rho == fit.rho or not newton.quadratic.s.any():
            at, force = u, newton.g
        else:
            minimum, b = newton.solve(operator, response)
            at = operator.evaluate(minimum[:, None])[:, 0] + b
            force = newton.g + 2.0 * newton.quadratic.s**2 * (at - u)
        dual = DualModel(at, -force / (2.0 * rho), b)
        return cls(problem, k, response, u, newton.g, dual, force)

    def hold_out(self, folds: Folds, options: StepOptions) -> OutOfFold:
        """Values of the test rows of some folds, which of these are exact, and spectral radii."""
        radius = np.full(len(folds), np.nan)
        exact = np.zeros(len(folds), dtype=bool)
        is_single = bool((folds.sizes == 1).all())
        if options.order < math.inf:
            held = self._series(folds, int(options.order), is_single)
        else:
            held, v = self._resummed(folds, is_single)
            is_sound = self.response.is_exact and is_trusted(self.response.condition)
            if is_sound and options.certifies(self.problem, len(folds)):
                exact = self._certificate(folds, v)
        if options.with_radius:
            radius = self._radius(folds, is_single)
        condition = np.full(len(folds), self.response.condition)
        return OutOfFold(held[folds.pick][:, None], exact, radius, condition)

    def _resummed(self, folds: Folds, is_single: bool) -> tuple[Array, list[Array]]:
        if is_single:
            rows = folds.held_rows
            v_all = self.response.removal_forces_each(self.force)
            held = self.response.held_out_values_each(v_all, self.model)[rows]
            return held, [v_all[row : row + 1] for row in rows]
        v = [self.response.removal_forces(held, self.force) for held in folds.helds]
        parts = [
            self.response.held_out_values(rows, v_S, self.model)
            for rows, v_S in zip(folds.helds, v, strict=True)
        ]
        return np.concatenate(parts), v

    def _series(self, folds: Folds, order: int, is_single: bool) -> Array:
        if self.problem.ridge_scaling == "mean":
            delta = mean_series(self.response, self.problem, folds, self.g[:, None], order)
            moved = [delta[S, i, 0] for i, S in enumerate(folds.helds)]
        else:
            sets = [folds.held_rows[:, None]] if is_single else [S[None] for S in folds.helds]
            moved = [self._own_series(rows, order).ravel() for rows in sets]
        values: Array = self.u[folds.held_rows] + np.concatenate(moved)
        return values

    def _own_series(self, rows: Index, order: int) -> Array:
        """How sets of rows of equal size move that answer to the forces on them alone."""
        D, step = self.response.curvature[rows][:, :, None], self.response.block_products(rows)
        first = step(self.g[rows][:, :, None])
        return influence_series(first, lambda delta: step(D * delta), order)

    def _certificate(self, folds: Folds, v: Sequence[Array]) -> NDArray[np.bool_]:
        """Whether every remaining row stays on the piece of the loss that the model assumed.

        That the set of curved rows is unchanged is not enough: a row may jump from one straight
        piece to another. On the same piece the force changes by exactly D δ. Nor is it enough if
        no remaining row has curvature to fix the intercept, which a refit would take elsewhere.
        """
        push = np.zeros((self.problem.n, len(folds)))
        for i, (rows, v_S) in enumerate(zip(folds.helds, v, strict=True)):
            push[rows, i] = v_S
        after = self.model.u[:, None] + self.response.matmat(push)
        y, w = self.problem.y[:, [self.k]], self.problem.w[:, None]
        actual = w * self.problem.loss.slope(y, after)
        assumed = self.g[:, None] + self.response.curvature[:, None] * (after - self.u[:, None])
        gap = np.abs(actual - assumed)
        left = np.repeat(w, len(folds), axis=1)
        for i, rows in enumerate(folds.helds):
            gap[rows, i], left[rows, i] = 0.0, 0.0
        same = gap.max(axis=0) <= _SAME_PIECE * max(float(np.abs(self.g).max()), 1e-3)
        if self.problem.intercept:
            same &= ~has_flat_intercept(self.problem.loss, y, after, left)
        return np.asarray(same)

    def _radius(self, folds: Folds, is_single: bool) -> Array:
        D = self.response.curvature
        if is_single:
            rows = folds.held_rows
            return np.asarray(self.response.diagonal()[rows] * D[rows])
        radii = np.zeros(len(folds))
        for i, rows in enumerate(folds.helds):
            curved = rows[D[rows] > 0.0]
            if curved.size:
                radii[i] = float(self.response.radius(curved[None])[0])
        return radii


def _is_for(response: Response, newton: NewtonModel) -> bool:
    """Whether a response of an earlier step is that of the model at the minimum."""
    return bool(np.array_equal(response.curvature, 2.0 * newton.quadratic.s**2))
