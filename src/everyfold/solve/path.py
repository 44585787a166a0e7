r"""From a :class:`Problem` to its :class:`Fit`.

.. math:: J(f, b) = \sum_i w_i V(y_i, u_i) + \rho \|f\|_H^2, \qquad u = f + b

Squared loss is solved in closed form, all ridges of a kernel from shared factorisations; every
other loss by a safeguarded Newton method whose linear systems have the size of the active set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from everyfold.operators.base import Responds, Solution
from everyfold.solve.newton import FLOOR, Fit, newton_all
from everyfold.solve.problem import Problem
from everyfold.types import Route


def solve_path(
    problem: Problem,
    operator: Responds,
    ridges: Sequence[float],
    route: Route = "cholesky",
    start: Solution | None = None,
    *,
    keep_responses: bool = False,
    enough: float = 0.0,
) -> Iterator[Fit]:
    """Fit all ridges of one kernel, in the order given.

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
        fit = newton_all(problem, operator, rho, start, max(enough, FLOOR))
        start = fit.solution
        yield fit if keep_responses else replace(fit, responses=())


def solve(problem: Problem, operator: Responds, ridge: float, route: Route = "cholesky") -> Fit:
    """Fit one ridge."""
    return next(solve_path(problem, operator, [ridge], route))
