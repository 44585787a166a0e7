"""Fits on all rows as closed criteria read them, whether the loss is smooth or has a kink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from everyfold.criteria.libsvm import Libsvm
from everyfold.losses import EpsilonInsensitive, Hinge
from everyfold.operators.base import Responds
from everyfold.operators.dense import DenseMatrix
from everyfold.solve import Problem, solve_path
from everyfold.types import Array

PINNED = 1e-8
"""What rows at a kink give way, as a share of the kernel's diagonal: enough for a system to be well
posed, and too little to be seen."""

TOLERANCE = 1e-3
"""libsvm's usual one."""

_HINT = "HuberHinge or SmoothEpsilon with a small h"


@dataclass(frozen=True)
class Machine:
    """The fit of one ridge.

    Attributes
    ----------
    rho : float
    u : array of shape (n, q)
        Fitted values.
    a : array of shape (n, q)
        Dual coefficients, whatever the operator's own coordinates are.
    s : array of shape (n, q)
        How stiffly each row holds its value: the square root of half its curvature. Rows at a kink
        (libsvm's free support vectors) are pinned, rows on straight pieces have 0.
    is_converged : bool
    """

    rho: float
    u: Array
    a: Array
    s: Array
    is_converged: bool


def fit_all(
    problem: Problem, operator: Responds, ridges: Sequence[float], tolerance: float = TOLERANCE
) -> Iterator[Machine]:
    """The fits of all ridges, in the order given.

    Smooth losses by Newton's method. The hinge and the ε-insensitive loss by libsvm itself, to this
    tolerance: at a kink the slope of the loss says nothing of the force, libsvm's dual
    coefficients do.
    """
    if problem.loss.is_smooth:
        for fit in solve_path(problem, operator, ridges):
            u = operator.evaluate(fit.solution.coef) + fit.solution.intercept
            g, d = problem.loss.slope(problem.y, u), problem.loss.curvature(problem.y, u)
            w = problem.w[:, None]
            yield Machine(
                fit.rho, u, -w * g / (2.0 * fit.rho), np.sqrt(0.5 * w * d), fit.is_converged
            )
        return
    K = operator.K if isinstance(operator, DenseMatrix) else operator.matmat(np.eye(problem.n))
    _check_libsvm(problem)
    for ridge in ridges:
        yield _by_libsvm(problem, K, ridge, tolerance)


def _by_libsvm(problem: Problem, K: Array, ridge: float, tolerance: float) -> Machine:
    """One fit of libsvm's for every target."""
    rho, w = problem.rho(ridge, problem.n_counted), problem.w
    rows = np.flatnonzero(w)
    inside = K[np.ix_(rows, rows)]
    u, a = np.empty_like(problem.y), np.zeros_like(problem.y)
    is_converged = True
    for k in range(problem.y.shape[1]):
        column = replace(problem, y=problem.y[:, [k]])
        fit = Libsvm(tolerance).fit(column, rows, inside, 1.0 / (2.0 * ridge))
        a[rows, k] = fit.coef
        u[:, k] = K @ a[:, k] + fit.intercept
        is_converged &= fit.is_converged
    is_free = (a != 0.0) & (np.abs(a) < w[:, None] / (2.0 * rho) * (1.0 - 1e-12))
    pin = np.sqrt(rho / (PINNED * float(np.abs(K.diagonal()).max())))
    return Machine(rho, u, a, np.where(is_free, pin, 0.0), is_converged)


def check_labels(problem: Problem, name: object) -> None:
    """Raise unless the targets of rows that count are labels."""
    if not np.isin(problem.y[problem.w > 0.0], (-1.0, 1.0)).all():
        raise ValueError(f"{name} is for classification: y must be -1 and +1")


def _check_libsvm(problem: Problem) -> None:
    loss = problem.loss
    if not problem.intercept:
        raise ValueError(
            f"intercept=False is not available with {loss}: libsvm's machines have an intercept; "
            f"use intercept=True, or a smooth loss such as {_HINT}"
        )
    if not isinstance(loss, Hinge | EpsilonInsensitive):
        raise ValueError(f"loss={loss} has a kink and no solver here; use {_HINT}")
    if loss.is_margin:
        check_labels(problem, loss)
