"""Every fold of a low-rank kernel from sums over the rows that folds hold out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import OutOfFold, Predictive, is_trusted
from everyfold.criteria.newtonstep import active_left
from everyfold.operators.base import KernelOperator, Quadratic, StructureError
from everyfold.operators.features import Plain
from everyfold.operators.lowrank import LowRank
from everyfold.operators.sums import FoldSums, Start, accumulate
from everyfold.rows.batches import array_batches, height_of
from everyfold.rows.folds import Folds
from everyfold.solve import Problem


@dataclass(frozen=True)
class BySums(Predictive):
    r"""Fit every fold from the Gram matrices of the sets that stay, which add up.

    One c×c eigendecomposition a fold serves all ridges, and one product predicts its test rows
    for all of them. For squared loss, kernels of low rank and folds that remove rows.

    **Cost** n c² + t (9 c³) flops for the whole path of all t folds: about one fit.
    **Exact?** Yes, for the low-rank kernel.
    """

    def evaluate(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        if not isinstance(operator, LowRank):
            raise StructureError("only a kernel of low rank is a sum over its rows")
        sums = _sums(operator, problem.quadratic, folds)
        values = np.empty((len(ridges), int(folds.bounds[-1]), problem.y.shape[1]))
        condition = np.empty((len(ridges), len(folds)))
        left = active_left(problem, folds)
        for i, rest in sums.rests():
            models = rest.solve([problem.rho(ridge, int(left[i])) for ridge in ridges])
            part, test = slice(folds.bounds[i], folds.bounds[i + 1]), folds.tests[i]
            values[:, part] = models.values(operator.cross(test, test))
            condition[:, i] = models.condition
        unknown = np.full(len(folds), np.nan)
        for k in range(len(ridges)):
            exact = np.array([is_trusted(c) for c in condition[k]])
            yield OutOfFold(values[k], exact, unknown, condition[k])


def _sums(operator: LowRank, quadratic: Quadratic, folds: Folds) -> FoldSums:
    c = operator.V.shape[1]
    w = None if (quadratic.s == 1.0).all() else quadratic.s**2
    batches = array_batches(operator.V, quadratic.z, w, folds.helds, height_of(c))
    (sums,) = accumulate(batches, [Plain(c)], [Start(True, quadratic.intercept)])
    return sums
