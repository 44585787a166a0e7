r"""The models of all folds themselves, to predict new rows with each of them.

Leaving the rows S out is the same as fitting all rows with :math:`y_S` replaced by its held-out
value. So, for squared loss, the coefficients of a fold's model are those of the fit on all rows,
moved by what the held-out residuals :math:`e_S` of the fold push, and at a new row x with
:math:`s_x` the row of the smoother

.. math:: f_{-S}(x) = f(x) - s_{x,S} \cdot e_S .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.crossval.base import OutOfFold
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.folds import Folds
from everyfold.linalg.symmetric import CHUNK
from everyfold.operators.base import SupportsResponse
from everyfold.operators.response import Response, Solution
from everyfold.solvers import Problem


@dataclass(frozen=True)
class FoldModels:
    """The models of t folds and that of all rows, in the operator's own coordinates.

    Attributes
    ----------
    held_out : OutOfFold
        What the model of each fold says of its test rows.
    solution : Solution
        The q columns of each fold, one fold after the other, and last those of all rows.
    """

    held_out: OutOfFold
    solution: Solution


def are_complements(folds: Folds) -> bool:
    """Whether every fold trains on all rows but its test rows."""
    return folds.are_removable and bool(np.array_equal(np.diff(folds.bounds), folds.sizes))


def fold_models(
    problem: Problem, operator: SupportsResponse, ridge: float, folds: Folds
) -> FoldModels:
    """The models of all folds from one factorisation, for squared loss.

    Parameters
    ----------
    problem : Problem
        With squared loss and ``ridge_scaling="sum"``; q columns.
    operator : SupportsResponse
        The kernel of all rows.
    ridge : float
    folds : Folds
        Each of them the complement of its test rows (``are_complements``).

    Notes
    -----
    **Cost** that of the held-out values, and for each column 2 n² flops for each of few folds or
    2/3 n³ for any number of them; n numbers a fold, or c of a kernel of rank c. **Exact?** Yes, up
    to rounding.
    """
    response = operator.respond(problem.quadratic, ridge)
    held_out = ClosedFormCV(route="cholesky").of_response(problem, operator, response, folds)
    return FoldModels(held_out, _solutions(problem, response, folds, held_out))


def fold_predictions(
    problem: Problem, operator: SupportsResponse, ridge: float, folds: Folds, X_new: Matrix
) -> tuple[OutOfFold, Array]:
    """Held-out values, and those of new rows by the model of each fold and last by that of all.

    The parameters are those of ``fold_models``. The values are (t + 1, m, q).

    Notes
    -----
    **Cost** that of the held-out values, and 2 n² flops for each of m new rows, however many folds
    there are; n numbers a new row. An operator that does not know how values of new rows answer to
    the targets has the cost of ``fold_models``.
    """
    response = operator.respond(problem.quadratic, ridge)
    held_out = ClosedFormCV(route="cholesky").of_response(problem, operator, response, folds)
    whole, q = response.solution(), problem.y.shape[1]
    expansion = operator.expand(whole.coef)
    step = max(1, CHUNK // problem.n)
    found = np.empty((len(folds) + 1, X_new.shape[0], q))
    rows, starts = folds.test_rows, folds.bounds[:-1]
    moved = held_out.values - problem.y[rows]
    for i in range(0, X_new.shape[0], step):
        own = slice(i, i + step)
        link = expansion.link(X_new[own])
        slopes = response.slopes(link)
        if slopes is None:
            solution = _solutions(problem, response, folds, held_out)
            values = operator.expand(solution.coef)(X_new) + solution.intercept
            return held_out, values.reshape(len(values), -1, q).transpose(1, 0, 2)
        found[:, own] = link @ whole.coef + whole.intercept
        for k in range(q):
            changes = slopes[:, rows] * moved[:, k]
            if len(folds) < len(rows):
                changes = np.add.reduceat(changes, starts, axis=1)
            found[:-1, own, k] += changes.T
    return held_out, found


def _solutions(problem: Problem, response: Response, folds: Folds, held_out: OutOfFold) -> Solution:
    """The coefficients of all folds, and last those of all rows."""
    whole = response.solution()
    q = whole.coef.shape[1]
    coef = np.empty((len(whole.coef), q * (len(folds) + 1)))
    intercept = np.tile(whole.intercept, len(folds) + 1)
    coef[:, -q:] = whole.coef
    for k in range(q):
        _move(response, problem, held_out, folds, k, (coef[:, k::q], intercept[k::q]))
    return Solution(coef, intercept)


def _move(
    response: Response,
    problem: Problem,
    held_out: OutOfFold,
    folds: Folds,
    column: int,
    out: tuple[Array, Array],
) -> None:
    """Put one column of the solutions of all folds in its place; that of all rows is there."""
    coef, intercept = out
    values = np.empty(int(folds.sizes.sum()))
    values[folds.pick] = held_out.values[:, column]
    for stack in folds.stacks(problem.w > 0.0):
        if not stack.rows.size:  # rows of weight 0 alone: the model of all rows
            coef[:, stack.folds] = coef[:, -1:]
            continue
        change = response.moved(stack.rows, values[stack.slots] - problem.y[stack.rows, column])
        if len(stack.folds) == len(folds):  # in one pass: for single rows these are n² numbers
            np.add(change.coef, coef[:, -1:], out=coef[:, :-1])
        else:
            coef[:, stack.folds] = change.coef + coef[:, -1:]
        intercept[stack.folds] += change.intercept
