"""Every fold of a low-rank kernel from sums over the rows that folds hold out.

The Gram matrix of a training set is that of all rows without those of its fold, so that no fold
reads the rows again, and the rows need not be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from everyfold._typing import Array
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.crossval.closed_form import rows_left
from everyfold.folds import Folds
from everyfold.io.blocks import height_of
from everyfold.linalg.symmetric import NotPositiveDefiniteError
from everyfold.operators.base import SupportsResponse
from everyfold.operators.gram import Sums
from everyfold.operators.lowrank import LowRank
from everyfold.operators.response import RidgeModels, StructureError
from everyfold.solvers import Problem


@dataclass(frozen=True)
class GramCV(CrossValMethod):
    r"""Fit every fold from the Gram matrices of the sets that stay, which add up.

    One c×c tridiagonal reduction a fold serves all ridges, and one product predicts its test rows
    for all of them. For squared loss, kernels of low rank and folds that remove rows.

    Attributes
    ----------
    is_enough : bool
        Whether the sums of squared errors of folds, which follow from the same sums, are all that
        is asked for. Values are then made only where these errors have too few digits left. The
        model of all rows comes with them.

    Notes
    -----
    **Cost** n c² + t (4/3 c³) flops for the whole path of all t folds: about one fit.
    **Exact?** Yes, for the low-rank kernel.
    """

    is_enough: bool = False

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        if not isinstance(operator, LowRank):
            raise StructureError("only a kernel of low rank is a sum over its rows")
        left = rows_left(problem, folds)
        rhos = [[problem.rho(ridge, int(m)) for ridge in ridges] for m in left]
        sums = operator.sums(problem.quadratic, folds.helds, min(map(min, rhos)))
        models: dict[int, RidgeModels] = {}
        is_ill = False
        for i, rest in sums.rests():
            models[i] = _solved(rest, rhos[i])
            if (models[i].condition > operator.limit).any():
                is_ill = True  # sums of squared errors lose their digits as well
                # From the features of the training rows, whose Gram matrix has too few digits.
                train = folds[i].train
                part, inside = operator.restrict(train), problem.restrict(train)
                models[i] = part.solutions(inside.quadratic, rhos[i], "tridiagonal")
        errors = sums.errors(models) if self.is_enough and not is_ill else None
        if errors is None or not errors.is_known:
            values = _values(operator, models, folds)
        else:
            whole = _solved(sums.total, [problem.rho(ridge, problem.n_counted) for ridge in ridges])
        for k in range(len(ridges)):
            condition = np.array([models[i].condition[k] for i in range(len(folds))])
            if errors is not None and errors.is_known:
                found = OutOfFold.of_refits(np.empty((0, problem.y.shape[1])), condition)
                own = whole.coef[k], whole.intercept[k]
                yield replace(found, errors=errors.of_ridge(k), whole=own)
            else:
                yield OutOfFold.of_refits(values[k], condition)


def _solved(rest: Sums, rhos: Sequence[float]) -> RidgeModels:
    """The models of the rows outside a fold, with infinite condition numbers if there are none."""
    try:
        return rest.solve(rhos)
    except NotPositiveDefiniteError:
        shape = (len(rhos), *rest.cross.shape)
        unknown = np.full(len(rhos), np.inf)
        return RidgeModels(np.full(shape, np.nan), np.full(shape[::2], np.nan), unknown)


def _values(operator: LowRank, models: dict[int, RidgeModels], folds: Folds) -> Array:
    """The values of all test rows, (ridges, rows, q), in pieces of about a batch."""
    k, c, q = models[0].coef.shape
    values = np.empty((k, int(folds.bounds[-1]), q))
    height = height_of(c)
    for i, test in enumerate(folds.tests):
        for start in range(0, len(test), height):
            rows, first = test[start : start + height], folds.bounds[i] + start
            values[:, first : first + len(rows)] = operator.predict(models[i], rows)
    return values
