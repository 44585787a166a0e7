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

from everyfold.criteria.base import OutOfFold
from everyfold.criteria.heldout import HeldOut
from everyfold.operators.base import Responds, Solution
from everyfold.rows.folds import Folds
from everyfold.solve import Problem


@dataclass(frozen=True)
class FoldModels:
    """The models of t folds and that of all rows, in the operator's own coordinates.

    Attributes
    ----------
    held_out : OutOfFold
        What the model of each fold says of its test rows.
    solution : Solution
        A column for each fold, and a last one for all rows.
    """

    held_out: OutOfFold
    solution: Solution


def are_complements(folds: Folds) -> bool:
    """Whether every fold trains on all rows but its test rows."""
    return folds.are_removable and bool(np.array_equal(np.diff(folds.bounds), folds.sizes))


def fold_models(problem: Problem, operator: Responds, ridge: float, folds: Folds) -> FoldModels:
    """The models of all folds from one factorisation, for squared loss and one target.

    Parameters
    ----------
    problem : Problem
        With squared loss, one column and ``ridge_scaling="sum"``.
    operator : Responds
        The kernel of all rows.
    ridge : float
    folds : Folds
        Each of them the complement of its test rows (``are_complements``).

    Notes
    -----
    **Cost** that of the held-out values, and 2 n² flops for each of few folds or 2/3 n³ for any
    number of them; n numbers a fold, or c of a kernel of rank c. **Exact?** Yes, up to rounding.
    """
    response = operator.respond(problem.quadratic, ridge)
    held_out = HeldOut(route="cholesky").of_response(problem, operator, response, folds)
    whole = response.solution()
    coef = np.empty((len(whole.coef), len(folds) + 1))
    intercept = np.repeat(whole.intercept, len(folds) + 1)
    coef[:, -1] = whole.coef[:, 0]
    values = np.empty(int(folds.sizes.sum()))
    values[folds.pick] = held_out.values[:, 0]
    for stack in folds.stacks(problem.w > 0.0):
        if not stack.rows.size:  # rows of weight 0 alone: the model of all rows
            coef[:, stack.folds] = whole.coef
            continue
        change = response.moved(stack.rows, values[stack.slots] - problem.y[stack.rows, 0])
        if len(stack.folds) == len(folds):  # in one pass: for single rows these are n² numbers
            np.add(change.coef, whole.coef, out=coef[:, :-1])
        else:
            coef[:, stack.folds] = change.coef + whole.coef
        intercept[stack.folds] += change.intercept
    return FoldModels(held_out, Solution(coef, intercept))
