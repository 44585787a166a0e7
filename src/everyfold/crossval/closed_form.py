r"""Every fold from one fit: the hold-out formula and the influence series it resums.

Hold out the rows S. With M the response of the fit on all rows and D the curvature of the loss,

.. math:: \hat u_S = u_S + (I - M_{SS} D_S)^{-1} M_{SS}\, g_S \qquad (\bigstar)

are the predictions of the model fitted without S; exactly so for squared loss. In terms of the
residual maker R of the response it reads :math:`R_{SS}\,e_S = (R z)_S`, :math:`\hat u = z - e`
(in units of :math:`D^{1/2} u`), which loses no digits as the ridge goes to 0. For single rows and
squared loss it is the exact leave-one-out that the papers call PRESS, ELOO or E-LOO; for folds, the
block formula of An et al. (2007). A Bouligand influence function (BIF) of order r (Liu, Jiang &
Liao 2014) is the Neumann series of (★) cut after r terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index, Route
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.refit import FoldAnswer, FoldSolver, Refit
from everyfold.folds import Folds, Stack
from everyfold.linalg.symmetric import are_trusted, is_trusted
from everyfold.operators.base import SupportsResponse, TrainTestKernel
from everyfold.operators.lowrank import LowRank
from everyfold.operators.response import (
    DualModel,
    Response,
    Solution,
    influence_series,
    weights_of_sets,
)
from everyfold.solvers import Fit, NewtonModel, Problem, has_flat_intercept, solve, solve_path


@dataclass(frozen=True)
class ClosedFormCV(CrossValMethod):
    r"""Held-out predictions of all folds from the fit on all rows.

    Parameters
    ----------
    order : float or "exact", default=inf
        ``inf`` is (★); "exact" goes on to each fold's own minimum by further Newton steps (for
        squared loss (★) is there already); 1, 2, 3, … are the influence series of that order,
        which exist to reproduce the literature: where the ridge is small or the kernel narrow they
        collapse to the training error. The spectral radius says when: the error of the series
        decays like its r-th power.
    route : {"eigen", "explicit", "cholesky", "tridiagonal"}, default="eigen"
        How the response is factorised.
    with_radius : bool, optional
        Whether to report the spectral radius; by default for finite orders only, as (★) does
        not depend on it.

    certify : bool, optional
        For losses without a closed form: whether to find out which folds are exact all the same,
        at the cost of one product with M a fold; by default for up to 100 folds.
    starts : tuple of Solution, optional
        For losses without a closed form: a solution for each ridge to start Newton's method from.
    seed : int, default=0
        Where power iterations for the spectral radius start.
    owners : tuple of int, optional
        For squared loss in the "sum" convention: that targets come in groups of equal width, of
        which every fold has one of its own, by number; values are those of this group alone.

    Notes
    -----
    **Cost** one factorisation of n rows for all ridges, then for each ridge n Σ m² + Σ m³/3 flops
    over the folds' sizes m (order ∞); 2 n² a ridge for leave-one-out.
    **Exact?** For squared loss and order ∞: yes, with and without intercept and weights, in both
    conventions of the ridge. For other losses (★) is one Newton step of the fold's problem:
    exact for a piecewise quadratic loss if no remaining row leaves its piece (``is_exact``).
    """

    order: float | Literal["exact"] = math.inf
    route: Route = "eigen"
    with_radius: bool | None = None
    certify: bool | None = None
    starts: tuple[Solution, ...] | None = None
    seed: int = 0
    owners: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        order = self.order
        if order == "exact" or order == math.inf:
            return
        if isinstance(order, str) or not (order >= 1 and order == int(order)):
            raise ValueError(
                f"order={order!r} is not a positive integer, inf or 'exact'; use inf for the "
                "hold-out formula"
            )

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class. Every fold must be a removal of rows (``folds.are_removable``)."""
        if folds.odd:
            raise ValueError(
                f"cv: split {min(folds.odd)} is not a removal of rows (a test row is in the "
                "training set, or a training row repeats), so it cannot be computed from one fit; "
                "use Refit"
            )
        if operator.outline.predicts_by_split:
            raise ValueError(
                "models of this operator do not predict with the matrix that they are fitted with "
                "(predicts_with='kernel'), so a single fit has no held-out values; use Refit"
            )
        if not problem.loss.has_constant_curvature:
            yield from self._without_closed_form(problem, operator, ridges, folds)
        elif problem.ridge_scaling == "mean" and self.limit < math.inf:
            yield from self._mean_series(problem, operator, ridges, folds)
        else:
            yield from self._resummed(problem, operator, ridges, folds)

    def _without_closed_form(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        if self.order == "exact":
            yield from Refit().evaluate(problem, operator, ridges, folds)
        else:
            for fit in self._fits(problem, operator, ridges):
                targets = range(problem.y.shape[1])
                columns = [_column(problem, k, operator, fit, folds, self) for k in targets]
                yield OutOfFold.beside(columns)

    def _fits(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> Iterator[Fit]:
        """The fits on all rows, from the starts if there are some."""
        if self.starts is None:
            yield from solve_path(problem, operator, ridges, keep_responses=True)
            return
        for ridge, start in zip(ridges, self.starts, strict=True):
            yield from solve_path(problem, operator, [ridge], start=start, keep_responses=True)

    def certifies(self, problem: Problem, n_folds: int) -> bool:
        """Whether to check that no remaining row changes the piece of its loss."""
        if self.limit < math.inf or not problem.loss.is_piecewise_quadratic:
            return False
        return n_folds <= CERTIFIED_FOLDS if self.certify is None else self.certify

    @property
    def may_merge(self) -> bool:
        """See base class."""
        return self.owners is None

    @cached_property
    def limit(self) -> float:
        """The order as a number: for squared loss "exact" is what infinity gives."""
        return math.inf if self.order == "exact" else float(self.order)

    @cached_property
    def wants_radius(self) -> bool:
        """Whether spectral radii are reported."""
        return self.limit < math.inf if self.with_radius is None else self.with_radius

    # -- sets of rows: (★) in both conventions, the series in the "sum" convention -----------------

    def _resummed(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """Group the folds by the ridge they see; one factorisation serves all groups."""
        alike = [(problem.n, np.arange(len(folds)), folds)]
        if problem.ridge_scaling == "mean":
            alike = same_ridge(rows_left(problem, folds), folds)
        sizes, groups, parts = zip(*alike, strict=True)
        stacks = [list(part.stacks(problem.w > 0.0)) for part in parts]
        rhos = [problem.rho(ridge, size) for ridge in ridges for size in sizes]
        responses = operator.respond_path(problem.quadratic, rhos, self.route)
        for _ in ridges:
            scored = [
                self._ridge(problem, operator, next(responses), part, stack)
                for part, stack in zip(parts, stacks, strict=True)
            ]
            is_whole = len(scored) == 1
            yield scored[0] if is_whole else OutOfFold.joined(folds, groups, scored)

    def of_response(
        self, problem: Problem, operator: SupportsResponse, response: Response, folds: Folds
    ) -> OutOfFold:
        """Held-out values from a response that is there already, in the "sum" convention."""
        return self._ridge(problem, operator, response, folds, list(folds.stacks(problem.w > 0.0)))

    def _ridge(
        self,
        problem: Problem,
        operator: SupportsResponse,
        response: Response,
        folds: Folds,
        stacks: Sequence[Stack],
    ) -> OutOfFold:
        s = problem.quadratic.s
        reduced = response.reduced()
        own = None if self.owners is None else self._columns(problem.y.shape[1], self.owners)
        held = np.empty(
            (int(folds.sizes.sum()), problem.y.shape[1] if own is None else own.shape[1])
        )
        radius = np.full(len(folds), np.nan)
        removed: list[Array] = []
        for stack in stacks:
            e, force = self._left_out(response, stack, _take(reduced, stack, own))
            held[stack.slots] = _take(problem.y, stack, own) - e / s[stack.rows][:, :, None]
            removed.append(force)
            if self.wants_radius:
                radius[stack.folds] = response.radius(stack.rows)
        if problem.n_active < problem.n:
            self._passive(problem, operator, response, folds, (stacks, removed), held)
        values = held[folds.pick]
        condition = np.full(len(folds), response.condition)
        is_exact = self.limit == math.inf and response.is_exact
        exact = np.full(len(folds), is_exact and is_trusted(response.condition))
        if not np.isfinite(values).all():
            parts = enumerate(folds.split(values))
            broken = [i for i, part in parts if not np.isfinite(part).all()]
            self._repair(problem, operator, response.rho, folds, broken, values)
            exact[broken] = False
        return OutOfFold(values, exact, radius, condition)

    def _left_out(self, response: Response, stack: Stack, reduced: Array) -> tuple[Array, Array]:
        """Held-out residuals z - û of a stack, in units of D^{1/2} u, and those that act on others.

        The series applies M once more than it accumulates: what moves the rows outside S is the
        residual of the order before. In the limit the two are the same.
        """
        if self.limit == math.inf:
            e = response.solve_residual_blocks(stack.rows, reduced)
            return e, e
        residual = response.scale * reduced
        before = residual + response.hat_series(stack.rows, residual, int(self.limit) - 1)
        return residual + response.hat_series(stack.rows, residual, int(self.limit)), before

    def _passive(
        self,
        problem: Problem,
        operator: SupportsResponse,
        response: Response,
        folds: Folds,
        left: tuple[Sequence[Stack], Sequence[Array]],
        held: Array,
    ) -> None:
        """Predict held-out rows of weight 0: they follow what their fold's other rows change."""
        q = problem.y.shape[1]
        solution = response.solution()
        u = operator.evaluate(solution.coef) + solution.intercept
        push = np.zeros((problem.n, len(folds), q))
        for stack, force in zip(*left, strict=True):
            s = problem.quadratic.s[stack.rows][:, :, None]
            push[stack.rows, stack.folds[:, None]] = -2.0 * s * force
        change = response.matmat(push.reshape(problem.n, -1)).reshape(push.shape)
        for stack in folds.stacks(problem.w == 0.0):
            held[stack.slots] = u[stack.rows] + change[stack.rows, stack.folds[:, None]]

    def _repair(
        self,
        problem: Problem,
        operator: SupportsResponse,
        rho: float,
        folds: Folds,
        broken: Sequence[int],
        values: Array,
    ) -> None:
        """Refit the folds whose block was not positive definite in floating point."""
        part = folds.subset(broken)
        plain = Problem(problem.y, problem.w, problem.loss, problem.intercept)
        refitted = part.split(next(Refit().evaluate(plain, operator, [rho], part)).values)
        for i, fold_values in zip(broken, refitted, strict=True):
            chosen = fold_values
            if self.owners is not None:
                chosen = fold_values[:, self._columns(problem.y.shape[1], self.owners)[i]]
            values[folds.bounds[i] : folds.bounds[i + 1]] = chosen

    def _columns(self, width: int, owners: tuple[int, ...]) -> Index:
        """The columns of every fold, which has some of its own."""
        own = width // (max(owners) + 1)
        return np.array(owners, dtype=np.intp)[:, None] * own + np.arange(own)

    # -- the series in the "mean" convention -------------------------------------------------------

    def _mean_series(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """The form of the papers, as of :func:`mean_series`."""
        theta = weights_of_sets(folds.helds, share_of_ridge(problem, folds), problem.n)
        rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
        for response in operator.respond_path(problem.quadratic, rhos, self.route):
            solution, D = response.solution(), response.curvature[:, None]
            u = operator.evaluate(solution.coef) + solution.intercept
            g = -D * (problem.y - u)
            delta = mean_series(response, problem, folds, g, int(self.limit))
            values = np.concatenate(
                [u[rows] + delta[rows, i] for i, rows in enumerate(folds.tests)]
            )
            nothing = np.zeros(len(folds), dtype=bool)
            condition = np.full(len(folds), response.condition)
            radius = np.full(len(folds), np.nan)
            if self.wants_radius:
                radius = response.rates(theta, self.seed)
            yield OutOfFold(values, nothing, radius, condition)


def _take(columns: Array, stack: Stack, own: Index | None) -> Array:
    """Entries of the rows that each fold leaves out, (t, m, q), in its own columns or in all."""
    if own is None:
        return columns[stack.rows]
    return columns[stack.rows[:, :, None], own[stack.folds][:, None, :]]


# -- Models that choose their own ridge by leave-one-out, as scikit-learn's RidgeCV does ----------


@dataclass(frozen=True)
class InnerLeaveOneOut(FoldSolver[None]):
    """Squared loss: every training set takes the best of several ridges by leave-one-out.

    **Cost** one factorisation of its training rows a fold, whatever the number of ridges:
    leave-one-out of all of them follows from it.
    **Exact?** Yes.

    Parameters
    ----------
    choices : tuple of float
        The ridges to choose from; the ``ridges`` of ``solve`` are not used.
    """

    choices: tuple[float, ...]

    def solve(
        self,
        problems: Sequence[Problem],
        part: TrainTestKernel,
        ridges: Sequence[float],
        shared: None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class."""
        (problem,) = problems
        inside = problem.restrict(part.train)
        solution, reached = self._best(inside, part)
        values = part.cross @ solution.coef + solution.intercept
        condition = np.array([reached])
        return FoldAnswer(values[None], condition, are_trusted(condition))

    def _best(self, inside: Problem, part: TrainTestKernel) -> tuple[Solution, float]:
        """The fit by the best ridge, and its condition number."""
        operator = part.operator
        if (
            isinstance(operator, LowRank)
            and inside.ridge_scaling == "sum"
            and not inside.level.any()
        ):
            found = operator.leave_one_out(inside.quadratic, self.choices)
            if found is not None:
                _, solution, condition = found[self._choice(inside, [e for e, _, _ in found])]
                return solution, condition
        singles = Folds.leave_one_out(inside.n)
        records = ClosedFormCV().evaluate(inside, operator, self.choices, singles)
        best = self._choice(inside, [inside.y - record.values for record in records])
        fit = solve(inside, operator, self.choices[best])
        return fit.solution, fit.condition

    def _choice(self, inside: Problem, errors: Sequence[Array]) -> int:
        """The number of the ridge with the least squared error."""
        return int(np.argmin([np.mean(inside.w[:, None] * left**2) for left in errors]))


# -- The influence series where the ridge is a multiple of the number of rows ----------------------


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
    r"""How the values of all rows move in each fold, (n, t, q), for forces g of shape (n, q).

    Holding out m of n rows then lowers the ridge too, so that the force on every row changes: with
    :math:`\Theta = 1` on S and :math:`-m/(n-m)` elsewhere, :math:`\delta_1 = M\Theta g` and
    :math:`\delta_{j+1} = M\Theta D\,\delta_j` (the "mean" convention, that of the papers).

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


# -- Losses without a closed form: one Newton step of every fold -----------------------------------


# The certificate is computed by default for at most so many folds; it costs a product for each.
CERTIFIED_FOLDS = 100

# Forces that differ by less than this share of the largest are equal: the row is still on the piece
# of its loss that the step assumed.
_SAME_PIECE = 1e-9


def _column(
    problem: Problem,
    k: int,
    operator: SupportsResponse,
    fit: Fit,
    folds: Folds,
    criterion: ClosedFormCV,
) -> OutOfFold:
    """One target of one ridge, its folds grouped by the ridge that they see."""
    if not fit.converged[k]:
        nothing, none = np.full(len(folds), np.nan), np.zeros(len(folds), dtype=bool)
        values = np.full((int(folds.bounds[-1]), 1), np.nan)
        return OutOfFold(values, none, nothing, np.full(len(folds), np.inf))
    left = rows_left(problem, folds)
    ridge = fit.rho / (problem.n_counted if problem.ridge_scaling == "mean" else 1)
    if problem.ridge_scaling == "sum" or criterion.limit < math.inf:
        # The series expands around the full sample; only its limit knows the fold's own ridge.
        left = np.full(len(folds), problem.n_counted)
    sizes, groups, parts = zip(*same_ridge(left, folds), strict=True)
    steps = [_Step.at(problem, k, operator, fit, problem.rho(ridge, size)) for size in sizes]
    records = [step.hold_out(part, criterion) for step, part in zip(steps, parts, strict=True)]
    return OutOfFold.joined(folds, groups, records)


@dataclass(frozen=True)
class _Step:
    r"""The quadratic model of one target at the ridge of some folds, factorised.

    At the minimum of all rows the problem is a quadratic one to second order
    (:class:`~everyfold.solvers.NewtonModel`); leaving a set S out of *that* is exact and costs no
    further factorisation:

    .. math:: \hat u_S = u_S + (I - M_{SS}D_S)^{-1} M_{SS}\,g_S .

    For a piecewise quadratic loss the model is the truth as long as no remaining row changes its
    piece, and the held-out values are those of a refit; that is checked row by row.
    """

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
        # A response of an earlier step may not be that of the model at the minimum.
        curvature = 2.0 * newton.quadratic.s**2
        is_own = response is not None and np.array_equal(response.curvature, curvature)
        if response is None or rho != fit.rho or not is_own:
            response = operator.respond(newton.quadratic, rho)
        if rho == fit.rho or not newton.quadratic.s.any():
            at, force = u, newton.g
        else:
            minimum, b = newton.solve(operator, response)
            at = operator.evaluate(minimum[:, None])[:, 0] + b
            force = newton.g + curvature * (at - u)
        dual = DualModel(at, -force / (2.0 * rho), b)
        return cls(problem, k, response, u, newton.g, dual, force)

    def hold_out(self, folds: Folds, criterion: ClosedFormCV) -> OutOfFold:
        """Values of the test rows of some folds, which of these are exact, and spectral radii."""
        radius = np.full(len(folds), np.nan)
        exact = np.zeros(len(folds), dtype=bool)
        is_single = bool((folds.sizes == 1).all())
        if criterion.limit < math.inf:
            held = self._series(folds, int(criterion.limit), is_single)
        else:
            held, v = self._resummed(folds, is_single)
            is_sound = self.response.is_exact and is_trusted(self.response.condition)
            if is_sound and criterion.certifies(self.problem, len(folds)):
                exact = self._certificate(folds, v)
        if criterion.wants_radius:
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
