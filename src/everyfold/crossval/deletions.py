r"""Held-out values of every fold after deleting further rows, for squared loss.

Deleting rows G from the training set of a fold that leaves out S is leaving out both. With
:math:`W = R_{SS}^{-1} R_{SG}` the held-out residuals of S follow from those of the fold itself by a
system of the size of G:

.. math:: e_S^{(G)} = e_S - W\,(R_{GG} - R_{GS} W)^{-1}\,(a_G - R_{GS}\,e_S), \qquad a = R z .

So all single deletions in all folds cost one inverse and n² m flops for folds of m rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold._typing import Array, Index, Mask
from everyfold.folds import EqualSets, Folds, lengths, positions
from everyfold.linalg.symmetric import solve_rows, solve_stack
from everyfold.operators.response import Response
from everyfold.solvers import Problem

# Rows of the matrix that are worked on at a time, as numbers: their copies stay in the processor's
# cache. With 64 MB instead of 4, ten folds of 2000 rows took 1.7 times as long.
_NUMBERS = 500_000


@dataclass(frozen=True)
class FoldDeletions:
    """The held-out values of one fold for every set of rows that is deleted from its training rows.

    Attributes
    ----------
    fold : int
        Its number.
    values : array of shape (g + 1, m, q)
        Values of its test rows without each of the g sets, and last with all training rows.
    """

    fold: int
    values: Array


def deletions(
    problem: Problem, response: Response, folds: Folds, sets: Sequence[Index]
) -> Iterator[FoldDeletions]:
    """The held-out values of all folds without each of several sets of rows.

    Parameters
    ----------
    problem : Problem
        With squared loss and ``ridge_scaling="sum"``; all weights are positive.
    response : Response
        Of the problem on all rows.
    folds : Folds
        Removals of rows, which may leave out more than they test.
    sets : sequence of int arrays
        What is deleted, one set at a time. Rows that a fold leaves out anyway change nothing there.

    Notes
    -----
    **Cost** one inverse, and 2 n m² flops a fold of m rows; 8 n² bytes. **Exact?** Yes, up to
    rounding; values are NaN where what is left is singular.
    """
    R, reduced, s = response.residual_matrix(), response.reduced(), problem.quadratic.s
    by_size = _by_size(sets)
    everything = np.ones(problem.n, dtype=bool)
    for stack in folds.stacks(everything):
        step = max(1, _NUMBERS // max(1, stack.rows.shape[1] * problem.n))
        for i in range(0, len(stack.folds), step):
            rows, numbers = stack.rows[i : i + step], stack.folds[i : i + step]
            e = _left_out(R, reduced, rows, by_size, len(sets))
            for own, number, residuals in zip(rows, numbers.tolist(), e, strict=True):
                values = problem.y[own] - residuals / s[own, None]
                yield FoldDeletions(number, values[:, positions(own, folds.tests[number])])


def _by_size(sets: Sequence[Index]) -> list[tuple[Index, Index]]:
    """The numbers of the sets of each size, and their rows as one array."""
    if isinstance(sets, EqualSets):
        return [(np.arange(len(sets)), sets.rows)]
    sizes = lengths(sets)
    groups = (np.flatnonzero(sizes == size) for size in np.unique(sizes))
    return [(numbers, np.stack([sets[k] for k in numbers.tolist()])) for numbers in groups]


def _left_out(
    R: Array, reduced: Array, rows: Index, by_size: Sequence[tuple[Index, Index]], count: int
) -> Array:
    """Residuals of the rows of t folds without each set and, last, with all: (t, g + 1, m, q)."""
    R_S = np.ascontiguousarray(R[rows].transpose(0, 2, 1))  # (t, n, m)
    t, n, m = R_S.shape
    blocks = R[rows[:, :, None], rows[:, None, :]]
    both = solve_rows(blocks, np.concatenate([R_S, reduced[rows].transpose(0, 2, 1)], axis=1))
    W, e = both[:, :n], both[:, n:].transpose(0, 2, 1)
    found = np.empty((t, count + 1, m, e.shape[2]))
    found[:, count] = e
    is_out = np.zeros((t, n), dtype=bool)
    is_out[np.arange(t)[:, None], rows] = True
    rest = reduced - R_S @ e  # a - R_{:S} e, (t, n, q)
    for numbers, own in by_size:
        if own.shape[1] == 1:
            # The diagonal is all that single rows need.
            left = R.diagonal() - np.einsum("tnm,tnm->tn", R_S, W)
            x = _solve_rest(left[:, :, None, None], rest[:, :, None], is_out[:, :, None])[:, :, 0]
            single = own[:, 0]
            for k in range(e.shape[2]):
                found[..., k][:, numbers] = e[:, None, :, k] - W[:, single] * x[:, single, k, None]
            continue
        W_G = W[:, own].transpose(0, 1, 3, 2)  # (t, g, m, k)
        left = R[own[:, :, None], own[:, None, :]] - R_S[:, own] @ W_G
        x = _solve_rest(left, rest[:, own], is_out[:, own])
        found[:, numbers] = e[:, None] - W_G @ x
    return found


def _solve_rest(left: Array, rest: Array, is_out: Mask) -> Array:
    """The residuals of deleted rows (t, g, k, q); 0 of those that the fold leaves out anyway."""
    t, g, k, q = rest.shape
    k_range = np.arange(k)
    left = np.where(is_out[..., None] | is_out[..., None, :], 0.0, left)
    left[..., k_range, k_range] += is_out
    rest = np.where(is_out[..., None], 0.0, rest)
    solved = solve_stack(left.reshape(t * g, k, k), rest.reshape(t * g, k, q))
    return solved.reshape(t, g, k, q)
