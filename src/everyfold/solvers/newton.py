"""From a problem to its fit: in closed form for squared loss, by Newton's method for every other.

:func:`solve_path` fits all ridges of one kernel. Losses other than the squared one are minimised
target by target, by damped Newton steps whose linear systems have the size of the active set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from everyfold._typing import Array, Index, Route
from everyfold.losses import Loss
from everyfold.operators.base import SupportsResponse
from everyfold.operators.response import Quadratic, Response, Solution
from everyfold.solvers.problem import Problem

# The relative violation of the conditions of a minimum at which Newton's method has converged.
STATIONARITY = 1e-10

# The relative error of f at a minimum, a tenth of what is called exact. It counts where a small
# ridge leaves forces that are small beside those at u = 0.
RESOLVED = 1e-7

# Newton steps of a target; one that needs more has not converged and must not be used.
MAX_STEPS = 200

# A full step is kept if the slope beyond it is at most this share of the slope before it: no line
# search is worth its evaluations then.
_OVERSHOOT = 0.1

# A step that raises the objective by more than this share goes up; less may be rounding.
_RISE = 1e-9

# A start whose objective is more than this many times that of f = 0 is not used.
_FAR = 10.0

# The violation at which iterations end whatever is asked for: it is rounding.
MIN_VIOLATION = 1e-15

# Forces that sum up to this share of their sizes are balanced.
_BALANCE = 1e-13

# How far fitted values are moved, in units of their size, to see on which side a row has curvature.
_NUDGE = 1e-7

# How often the interval in which the intercept is searched is doubled before it is given up.
_DOUBLINGS = 60

# The relative rounding of a term of f = K a.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Fit:
    """The minimiser of a problem for one ridge.

    Attributes
    ----------
    rho : float
    solution : Solution
    condition : float
        Of the last linear system that was solved.
    iterations : int array of shape (q,)
        Newton steps for each target; 0 in closed form.
    stationarity : array of shape (q,)
        The largest violated condition of a minimum, relative to the forces at u = 0.
    converged : bool array of shape (q,)
        Whether each target is a minimum, to ``STATIONARITY`` or to the rounding of its own values
        where that is larger. One that is not must not be used.
    resolution : float
        The relative error of f, at most: the largest violation relative to the forces at the
        minimum, or how far another step would go.
    """

    rho: float
    solution: Solution
    condition: float
    iterations: Index
    stationarity: Array
    converged: NDArray[np.bool_]
    responses: tuple[Response | None, ...] = ()
    """Those of the last Newton step of each target, if they were to be kept."""
    resolution: float = 0.0

    @property
    def is_converged(self) -> bool:
        """Whether all targets are."""
        return bool(self.converged.all())


def relative_forces(
    operator: SupportsResponse, largest: float, rho: float, coef: Array, size: float
) -> Array:
    """The forces 2ρa that hold functions with these coefficients, of shape (p, t), by ``size``.

    Where a small ridge leaves a tiny part of the forces at u = 0, any function that separates the
    classes violates the conditions of a minimum by as little: a violation must be small beside
    these. Functions below 1 count as 1. ``largest`` is the largest k(x, x).
    """
    unit = 1.0 / (operator.size_of_sums(1.0, largest) or largest or 1.0)
    held: Array = 2.0 * rho * np.maximum(np.abs(coef).max(axis=0, initial=0.0), unit) / size
    return held


def has_flat_intercept(loss: Loss, y: Array, u: Array, w: Array) -> NDArray[np.bool_]:
    """Whether b may move up or down from fitted values without any force to answer it.

    A row at the very edge of a piece of its loss counts on the side on which it has curvature. One
    curved row alone often ends there: with weights of 1 the others leave it a whole force or none.

    Parameters
    ----------
    loss : Loss
    y : array of shape (n,) or (n, 1)
    u : array of shape (n,) or (n, t)
        Fitted values of one fit or several.
    w : array like u
        Weights, 0 for rows that take no part.

    Returns
    -------
    bool or bool array of shape (t,)
    """
    nudge = _NUDGE * max(1.0, float(np.abs(u).max(initial=0.0)))
    bends_above, bends_below = (
        np.asarray((w * loss.curvature(y, u + shift)).any(axis=0)) for shift in (nudge, -nudge)
    )
    return ~(bends_above & bends_below)


@dataclass(frozen=True)
class NewtonModel:
    r"""The problem of one target to second order around fitted values u.

    Rows with curvature are pulled to a working response :math:`z = u - g/D`; a row without it
    keeps its force g, that is its dual coefficient :math:`a = -g/2\rho`. What those rows do to the
    others is subtracted from z, so that what is left is a :class:`Quadratic` problem.
    """

    g: Array
    quadratic: Quadratic
    fixed: Array
    """Dual coefficients of the rows without curvature."""

    @classmethod
    def at(
        cls, problem: Problem, column: int, operator: SupportsResponse, u: Array, rho: float
    ) -> NewtonModel:
        """Expand target ``column`` around ``u``; one product with the kernel."""
        y, w = problem.y[:, column], problem.w
        g = w * problem.loss.slope(y, u)
        D = w * problem.loss.curvature(y, u)
        curved = D > 0.0
        fixed = np.where(curved, 0.0, -g / (2.0 * rho))
        z = np.zeros_like(u)
        z[curved] = u[curved] - g[curved] / D[curved]
        if fixed.any():
            z -= operator.matmat(fixed[:, None])[:, 0]
        pull = float(g[~curved].sum()) if problem.intercept else 0.0
        quadratic = Quadratic(np.sqrt(0.5 * D), z[:, None], problem.intercept, pull)
        return cls(g, quadratic, fixed)

    def solve(self, operator: SupportsResponse, response: Response) -> tuple[Array, float]:
        """The minimiser of the model: coefficients of f, and b."""
        solution = response.solution()
        coef = solution.coef[:, 0] + operator.coefficients(self.fixed[:, None])[:, 0]
        return coef, float(solution.intercept[0])


@dataclass
class _Iterate:
    """Where Newton's method stands: f by its coefficients and values, and b."""

    coef: Array
    f: Array
    b: float

    @property
    def u(self) -> Array:
        return self.f + self.b


def newton_all(
    problem: Problem,
    operator: SupportsResponse,
    rho: float,
    start: Solution | None,
    enough: float = MIN_VIOLATION,
) -> Fit:
    """Fit every target, one after the other: each has an active set of its own.

    A violation that is ``enough`` ends the iteration before its last steps.
    """
    parts = [
        _Newton(problem, k, operator, rho, enough).run(
            None if start is None else (start.coef[:, k], float(start.intercept[k]))
        )
        for k in range(problem.y.shape[1])
    ]
    solution = Solution(
        np.column_stack([part.point.coef for part in parts]), np.array([p.point.b for p in parts])
    )
    return Fit(
        rho,
        solution,
        max(part.condition for part in parts),
        np.array([part.steps for part in parts], dtype=np.intp),
        np.array([part.violation for part in parts]),
        np.array([part.is_converged for part in parts]),
        tuple(part.response for part in parts),
        max(part.resolution for part in parts),
    )


@dataclass(frozen=True)
class _Outcome:
    """Where Newton's method ended for one target."""

    point: _Iterate
    steps: int
    violation: float
    condition: float
    is_converged: bool
    response: Response | None
    resolution: float


@dataclass(frozen=True)
class _Newton:
    """Damped Newton for one target and one ridge, with an exact line search.

    The loss is convex and its curvature may vanish, so that full steps can cycle between active
    sets; along each step the objective is minimised exactly (a monotone root in one dimension),
    which makes it decrease until the active set is right and the next full step ends at the
    minimum. Cost: per step one system of the size of the active set and three products with K.
    """

    problem: Problem
    column: int
    operator: SupportsResponse
    rho: float
    enough: float = MIN_VIOLATION

    def run(self, start: tuple[Array, float] | None) -> _Outcome:
        """The minimiser, and how it was found; a start that leads nowhere is forgotten."""
        outcome = self._run(start)
        is_done = outcome.is_converged and outcome.resolution <= RESOLVED
        return outcome if is_done or start is None else self._run(None)

    def _run(self, start: tuple[Array, float] | None) -> _Outcome:
        point = self._start(start)
        condition = 1.0
        response: Response | None = None
        violation = self._violation(point)
        for step in range(MAX_STEPS):  # noqa: B007  # it is read after the loop
            forces = self._forces(point)
            if violation <= self.enough * min(1.0, RESOLVED * forces / STATIONARITY):
                resolution = violation / forces
                break
            model = NewtonModel.at(self.problem, self.column, self.operator, point.u, self.rho)
            if not model.quadratic.s.any():
                target = self._flat(model, point)
            else:
                target, response = self._step(model, point)
                condition = response.condition
            moved, after = target, self._violation(target)
            if after > 0.5 * violation or self._rises(point, target):
                resolution = min(violation / forces, self._distance(point, target))
                if violation <= self._limit(point, resolution):  # rounding is all that is left
                    break
                moved = self._search(point, target)
                after = self._violation(moved)
            point, violation = moved, after
        else:
            resolution = violation / self._forces(point)
            is_converged = violation <= self._limit(point, resolution)
            return _Outcome(
                point, MAX_STEPS, violation, condition, is_converged, response, resolution
            )
        minimum = self._with_middle_intercept(point)
        return _Outcome(minimum, step, violation, condition, True, response, resolution)

    def _distance(self, point: _Iterate, target: _Iterate) -> float:
        """How far f and b would move at most, at any row, relative to the fitted values."""
        coef, f = target.coef - point.coef, target.f - point.f
        norm = max(self.operator.inner(coef, coef, f), 0.0)
        size = max(1.0, float(np.abs(point.u).max(initial=0.0)))
        return float(np.sqrt(norm * self.largest) + abs(target.b - point.b)) / size

    def _forces(self, point: _Iterate) -> float:
        """Those at the minimum, if this is it, relative to those at u = 0."""
        coef = point.coef[:, None]
        return float(relative_forces(self.operator, self.largest, self.rho, coef, self.size)[0])

    @cached_property
    def largest(self) -> float:
        """The largest k(x, x)."""
        return float(np.abs(self.operator.diagonal()).max())

    def _step(self, model: NewtonModel, point: _Iterate) -> tuple[_Iterate, Response]:
        """The minimum of the Newton model; where f has coordinates, as a change of these.

        Forces of the rows without curvature add up to what is left of them in c coordinates; as
        dual coefficients of size 1/rho they would cancel in f, where no small ridge leaves digits.
        """
        s, g = model.quadratic.s, model.g
        curved = s > 0.0
        rest = np.where(curved, 0.0, g)
        drift = self.operator.drift(rest, point.coef, self.rho)
        if drift is None:
            response = self.operator.respond(model.quadratic, self.rho)
            coef, b = model.solve(self.operator, response)
            return _Iterate(coef, self.operator.evaluate(coef[:, None])[:, 0], b), response
        z = np.zeros_like(g)
        z[curved] = -g[curved] / (2.0 * s[curved] ** 2)
        pull = float(rest.sum()) if self.problem.intercept else 0.0
        quadratic = Quadratic(s, z[:, None], self.problem.intercept, pull, drift)
        response = self.operator.respond(quadratic, self.rho)
        change = response.solution()
        coef = point.coef + change.coef[:, 0]
        f = self.operator.evaluate(coef[:, None])[:, 0]
        return _Iterate(coef, f, point.b + float(change.intercept[0])), response

    def _limit(self, point: _Iterate, resolution: float) -> float:
        """``STATIONARITY``, or what rounding in f = K a can do to the forces if that is more.

        A point whose values are not known to be those of the minimum is none at ``STATIONARITY``.

        Coordinates of forces are sums, of which symmetry may leave nothing but their rounding.
        """
        y, w = self.problem.y[:, self.column], self.problem.w
        stiffest = float((w * self.problem.loss.curvature(y, point.u)).max(initial=0.0))
        terms = stiffest * float(np.abs(point.coef).sum()) * self.largest
        total = float(np.abs(self._slope(point.u)).sum())
        terms = max(terms, self.operator.size_of_sums(total, self.largest))
        enough = STATIONARITY if resolution <= RESOLVED else 0.0
        return max(enough, _ROUNDING * terms / self.size)

    def _with_middle_intercept(self, point: _Iterate) -> _Iterate:
        """Where a whole interval of b is optimal, also from one of its ends: take its middle.

        So does libsvm, and so the answer does not depend on where the search began.
        """
        y, w = self.problem.y[:, self.column], self.problem.w
        if not self.problem.intercept or not has_flat_intercept(self.problem.loss, y, point.u, w):
            return point
        return _Iterate(point.coef, point.f, self._best_intercept(point.f, point.b))

    def _start(self, start: tuple[Array, float] | None) -> _Iterate:
        """The solution that is at hand, unless f = 0 is far better.

        Without the rows that balanced it, what is left of an unbounded kernel's solution can be so
        far out that the loss has no curvature there, and no step leads back.
        """
        zero = np.zeros(self.problem.n)
        nothing = _Iterate(self.operator.coefficients(zero[:, None])[:, 0], zero, 0.0)
        if start is not None:
            coef, b = start
            near = _Iterate(coef, self.operator.evaluate(coef[:, None])[:, 0], b)
            if self._objective(near) <= _FAR * self._objective(nothing):
                return near
        return replace(nothing, b=self._best_intercept(zero, 0.0))

    def _rises(self, point: _Iterate, target: _Iterate) -> bool:
        """Whether a step leads up, by more than rounding: full steps that do can go in circles."""
        return self._objective(target) > (1.0 + _RISE) * self._objective(point)

    def _objective(self, point: _Iterate) -> float:
        """What is minimised."""
        y, w = self.problem.y[:, self.column], self.problem.w
        norm = self.operator.inner(point.coef, point.coef, point.f)
        return float(w @ self.problem.loss.value(y, point.u)) + self.rho * norm

    def _slope(self, u: Array) -> Array:
        return self.problem.w * self.problem.loss.slope(self.problem.y[:, self.column], u)

    def _violation(self, point: _Iterate) -> float:
        """How far the point is from 2 rho f = -K g and (with intercept) sum g = 0, relatively."""
        g = self._slope(point.u)
        wanted = self.operator.coefficients(g[:, None])[:, 0]
        worst = float(np.abs(2.0 * self.rho * point.coef + wanted).max(initial=0.0)) / self.size
        if self.problem.intercept:
            worst = max(worst, abs(float(g.sum())) / self.total)
        return worst

    @cached_property
    def _first_forces(self) -> Array:
        """The forces at u = 0, to which the violation is relative: they do not vanish."""
        return self._slope(np.zeros(self.problem.n))

    @cached_property
    def size(self) -> float:
        """The largest of them, in the operator's coordinates."""
        wanted = self.operator.coefficients(self._first_forces[:, None])
        return float(np.abs(wanted).max(initial=0.0)) or 1.0

    @cached_property
    def total(self) -> float:
        """Their sum."""
        return float(np.abs(self._first_forces).sum()) or 1.0

    def _flat(self, model: NewtonModel, point: _Iterate) -> _Iterate:
        """The step where no row has curvature: first b alone, and f alone once it is balanced.

        Moving both at once need not lower the objective, as nothing ties b to f here.
        """
        if self.problem.intercept and abs(float(model.g.sum())) > _BALANCE * self.total:
            return _Iterate(point.coef, point.f, self._best_intercept(point.f, point.b))
        coef = self.operator.coefficients(model.fixed[:, None])[:, 0]
        return _Iterate(coef, self.operator.evaluate(coef[:, None])[:, 0], point.b)

    def _best_intercept(self, f: Array, b: float) -> float:
        """The b that balances the forces for given f, or the middle of all that do."""
        if not self.problem.intercept:
            return 0.0
        y = self.problem.y[:, self.column]
        slack = _BALANCE * self.total

        def force(shift: float) -> float:
            return float(self._slope(f + shift).sum())

        first = float(np.abs(f).max() + np.abs(y).max() + 10.0)
        # A wide tube reaches further than y does; forces of one class alone never turn.
        reaches = (first * 2.0**k for k in range(_DOUBLINGS))
        turning = (r for r in reaches if force(b - r) < -slack and force(b + r) > slack)
        reach = next(turning, first)
        low = _root(lambda shift: force(shift) + slack, b - reach, b + reach)
        high = _root(lambda shift: force(shift) - slack, b - reach, b + reach)
        return 0.5 * (low + high)

    def _search(self, point: _Iterate, target: _Iterate) -> _Iterate:
        """The minimum of the objective between two points; not beyond the second."""
        d_coef, d_f, d_b = target.coef - point.coef, target.f - point.f, target.b - point.b
        inner = self.operator.inner
        first = inner(point.coef, d_coef, d_f)
        second = inner(d_coef, d_coef, d_f)
        d_u = d_f + d_b

        def derivative(t: float) -> float:
            return float(self._slope(point.u + t * d_u) @ d_u) + 2.0 * self.rho * (
                first + t * second
            )

        ahead = derivative(1.0)
        if ahead <= _OVERSHOOT * abs(derivative(0.0)):
            return target
        t = _root(derivative, 0.0, 1.0)
        return _Iterate(point.coef + t * d_coef, point.f + t * d_f, point.b + t * d_b)


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """A zero of a non-decreasing function, or the end of the interval that is nearest to one."""
    at_low, at_high = increasing(low), increasing(high)
    if at_low >= 0.0:
        return low
    if at_high <= 0.0:
        return high
    held = [increasing]  # brentq's wrapper refers to itself: it would keep a fold's kernel alive
    try:
        return float(brentq(lambda at: held[0](at), low, high, xtol=1e-14, rtol=1e-12))
    finally:
        held.clear()


def solve_path(
    problem: Problem,
    operator: SupportsResponse,
    ridges: Sequence[float],
    route: Route = "cholesky",
    start: Solution | None = None,
    *,
    keep_responses: bool = False,
    enough: float = 0.0,
) -> Iterator[Fit]:
    r"""Fit all ridges of one kernel, in the order given.

    .. math:: J(f, b) = \sum_i w_i V(y_i, u_i) + \rho \|f\|_H^2, \qquad u = f + b

    Squared loss shares factorisations between the ridges; any other loss takes Newton steps, each
    ridge starting from the solution of the one before, the first from ``start``. They end where the
    conditions of a minimum are violated by no more than ``enough``, or as far as rounding allows.

    Examples
    --------
    >>> from everyfold.kernels import Linear
    >>> from everyfold.losses import Squared
    >>> from everyfold.operators import Dense
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> problem = Problem(y, np.ones(3), Squared(), intercept=True)
    >>> fit = solve(problem, Dense().bind(Linear(), X), 1e-9)
    >>> fit.solution.intercept.round(6)
    array([1.])
    """
    if problem.level.any():
        fits = solve_path(
            problem.levelled,
            operator,
            ridges,
            route,
            start,
            keep_responses=keep_responses,
            enough=enough,
        )
        for fit in fits:
            yield replace(fit, solution=fit.solution.raised(problem.level))
        return
    rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
    if problem.loss.has_constant_curvature:
        exact = np.zeros(problem.y.shape[1])
        steps, done = exact.astype(np.intp), np.ones(len(exact), dtype=bool)
        for response in operator.respond_path(problem.quadratic, rhos, route):
            yield Fit(response.rho, response.solution(), response.condition, steps, exact, done)
        return
    operator.check_varying(str(problem.loss))
    for rho in rhos:
        fit = newton_all(problem, operator, rho, start, max(enough, MIN_VIOLATION))
        start = fit.solution
        yield fit if keep_responses else replace(fit, responses=())


def solve(
    problem: Problem, operator: SupportsResponse, ridge: float, route: Route = "cholesky"
) -> Fit:
    """Fit one ridge."""
    return next(solve_path(problem, operator, [ridge], route))
