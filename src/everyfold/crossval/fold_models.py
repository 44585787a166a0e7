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

from everyfold._typing import Array
from everyfold.crossval.base import OutOfFold
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.folds import Folds
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
    whole = response.solution()
    q = whole.coef.shape[1]
    coef = np.empty((len(whole.coef), q * (len(folds) + 1)))
    intercept = np.tile(whole.intercept, len(folds) + 1)
    coef[:, -q:] = whole.coef
    for k in range(q):
        _move(response, problem, held_out, folds, k, (coef[:, k::q], intercept[k::q]))
    return FoldModels(held_out, Solution(coef, intercept))


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
