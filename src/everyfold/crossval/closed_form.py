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

from everyfold._typing import Array, Index, Route
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.newton_step import (
    StepOptions,
    mean_series,
    newton_steps,
    rows_left,
    same_ridge,
    share_of_ridge,
)
from everyfold.crossval.refit import FoldAnswer, FoldSolver, Refit
from everyfold.folds import Folds, Stack
from everyfold.linalg.symmetric import are_trusted, is_trusted
from everyfold.operators.base import SupportsResponse, TrainTestKernel
from everyfold.operators.lowrank import LowRank
from everyfold.operators.response import Response, Solution, weights_of_sets
from everyfold.solvers import Problem, solve


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
        elif problem.ridge_scaling == "mean" and self._limit < math.inf:
            yield from self._mean_series(problem, operator, ridges, folds)
        else:
            yield from self._resummed(problem, operator, ridges, folds)

    def _without_closed_form(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        if self.order == "exact":
            yield from Refit().evaluate(problem, operator, ridges, folds)
        else:
            options = StepOptions(self._limit, self._wants_radius, self.certify, self.starts)
            yield from newton_steps(problem, operator, ridges, folds, options)

    @property
    def may_merge(self) -> bool:
        """See base class."""
        return self.owners is None

    @cached_property
    def _limit(self) -> float:
        """The order as a number: for squared loss "exact" is what infinity gives."""
        return math.inf if self.order == "exact" else float(self.order)

    @cached_property
    def _wants_radius(self) -> bool:
        return self._limit < math.inf if self.with_radius is None else self.with_radius

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
            if self._wants_radius:
                radius[stack.folds] = response.radius(stack.rows)
        if problem.n_active < problem.n:
            self._passive(problem, operator, response, folds, (stacks, removed), held)
        values = held[folds.pick]
        condition = np.full(len(folds), response.condition)
        is_exact = self._limit == math.inf and response.is_exact
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
        if self._limit == math.inf:
            e = response.solve_residual_blocks(stack.rows, reduced)
            return e, e
        residual = response.scale * reduced
        before = residual + response.hat_series(stack.rows, residual, int(self._limit) - 1)
        return residual + response.hat_series(stack.rows, residual, int(self._limit)), before

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
        """The form of the papers, as in :mod:`everyfold.crossval.newton_step`."""
        theta = weights_of_sets(folds.helds, share_of_ridge(problem, folds), problem.n)
        rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
        for response in operator.respond_path(problem.quadratic, rhos, self.route):
            solution, D = response.solution(), response.curvature[:, None]
            u = operator.evaluate(solution.coef) + solution.intercept
            g = -D * (problem.y - u)
            delta = mean_series(response, problem, folds, g, int(self._limit))
            values = np.concatenate(
                [u[rows] + delta[rows, i] for i, rows in enumerate(folds.tests)]
            )
            nothing = np.zeros(len(folds), dtype=bool)
            condition = np.full(len(folds), response.condition)
            radius = np.full(len(folds), np.nan)
            if self._wants_radius:
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
