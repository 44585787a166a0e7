"""Every fold of a low-rank kernel by subtraction: what a fold adds to sums over the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import OutOfFold, Predictive, is_trusted
from everyfold.criteria.newtonstep import active_left
from everyfold.operators.base import KernelOperator, StructureError
from everyfold.operators.lowrank import LowRank
from everyfold.rows.folds import Folds
from everyfold.solve import Problem


@dataclass(frozen=True)
class Downdate(Predictive):
    r"""Fit every fold from :math:`A - A_k`, the Gram matrix of all rows without the fold's.

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
        moments = operator.moments(problem.quadratic, folds.helds)
        left = active_left(problem, folds)
        values = np.empty((len(ridges), int(folds.bounds[-1]), problem.y.shape[1]))
        condition = np.empty((len(ridges), len(folds)))
        for i, test in enumerate(folds.tests):
            rhos = [problem.rho(ridge, int(left[i])) for ridge in ridges]
            models = moments.original(moments.without(i, rhos))
            part = slice(folds.bounds[i], folds.bounds[i + 1])
            values[:, part] = models.values(operator.cross(test, test))
            condition[:, i] = models.condition
        unknown = np.full(len(folds), np.nan)
        for k in range(len(ridges)):
            exact = np.array([is_trusted(c) for c in condition[k]])
            yield OutOfFold(values[k], exact, unknown, condition[k])
