r"""From a :class:`Problem` to its :class:`Fit`.

.. math:: J(f, b) = \sum_i w_i V(y_i, u_i) + \rho \|f\|_H^2, \qquad u = f + b

Squared loss is solved in closed form, all ridges of a kernel from shared factorisations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from everyfold.losses import Loss
from everyfold.operators.base import (
    Array,
    KernelOperator,
    Quadratic,
    Response,
    Route,
    Rows,
    Solution,
)

RidgeScaling = Literal["sum", "mean"]


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, without the kernel and the ridge.

    Attributes
    ----------
    y : array of shape (n, q)
        One column a target; all targets share every factorisation.
    sample_weight : array of shape (n,)
        Weight 0 is the same as leaving the row out.
    loss : Loss
    intercept : bool
    ridge_scaling : {"sum", "mean"}
        What a ridge means when rows are left out. "sum" keeps it (scikit-learn), "mean" multiplies
        it by the number of rows with positive weight (the influence-function papers).
    balance : int array of shape (n,), optional
        Class numbers; if given, the weights are divided by the relative frequency of each row's
        class (``class_weight="balanced"``), anew on every subset of the rows.
    """

    y: Array
    sample_weight: Array
    loss: Loss
    intercept: bool
    ridge_scaling: RidgeScaling = "sum"
    balance: Rows | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)

    @cached_property
    def w(self) -> Array:
        """The weights of MATH §1: sample weights times balancing class weights."""
        if self.balance is None:
            return self.sample_weight
        count = np.bincount(self.balance)
        present = np.count_nonzero(count)
        w: Array = self.sample_weight * (self.n / (present * count[self.balance]))
        return w

    def rho(self, ridge: float, n_active: int) -> float:
        """The rho of MATH §1 for a public ridge and a sample of ``n_active`` rows."""
        return ridge * n_active if self.ridge_scaling == "mean" else ridge

    @cached_property
    def n_active(self) -> int:
        """The number of rows with positive weight."""
        return int(np.count_nonzero(self.w))

    @cached_property
    def quadratic(self) -> Quadratic:
        """The quadratic problem of squared loss."""
        if not self.loss.has_constant_curvature:
            raise ValueError(f"{self.loss} has no closed form; it needs a Newton solver")
        return Quadratic(np.sqrt(self.w), self.y, self.intercept)

    def restrict(self, rows: Rows) -> Problem:
        """The same problem on some of the rows."""
        balance = None if self.balance is None else self.balance[rows]
        return replace(
            self, y=self.y[rows], sample_weight=self.sample_weight[rows], balance=balance
        )


@dataclass(frozen=True)
class Fit:
    """The minimiser of a problem for one ridge, with the response at it."""

    rho: float
    solution: Solution
    response: Response


def solve_path(
    problem: Problem, operator: KernelOperator, ridges: Sequence[float], route: Route = "cholesky"
) -> Iterator[Fit]:
    """Fit all ridges of one kernel, in the order given.

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
    rhos = [problem.rho(ridge, problem.n_active) for ridge in ridges]
    for response in operator.respond_path(problem.quadratic, rhos, route):
        yield Fit(response.rho, response.solution(), response)


def solve(
    problem: Problem, operator: KernelOperator, ridge: float, route: Route = "cholesky"
) -> Fit:
    """Fit one ridge."""
    return next(solve_path(problem, operator, [ridge], route))
