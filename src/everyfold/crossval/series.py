r"""The influence series of all folds where the ridge is a multiple of the number of rows.

Holding out m of n rows then lowers the ridge too, so that the force on every row changes: with
:math:`\Theta = 1` on S and :math:`-m/(n-m)` elsewhere, :math:`\delta_1 = M\Theta g` and
:math:`\delta_{j+1} = M\Theta D\,\delta_j` (the "mean" convention, that of the papers).
"""

from __future__ import annotations

import numpy as np

from everyfold._typing import Array, Index
from everyfold.folds import Folds
from everyfold.operators.response import Response, influence_series, weights_of_sets
from everyfold.solvers import Problem


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
    """How the values of all rows move in each fold, (n, t, q), for forces g of shape (n, q).

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
