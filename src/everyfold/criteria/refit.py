"""Refitting: the criterion everything else is measured against, and at times the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import is_trusted
from everyfold.criteria.loop import FoldAnswer, FoldSolver
from everyfold.operators.base import Part, Responds, Solution, Splits
from everyfold.operators.products import product
from everyfold.solve import Fit, Problem, solve_path
from everyfold.types import Array, Route

Starts = list[list[Solution]]
"""By problem and ridge."""


@dataclass(frozen=True)
class Refit(FoldSolver[Starts | None]):
    """Fit every fold's training rows, for every ridge.

    ``route="cholesky"`` is brute force, one factorisation for each fold and ridge. With
    ``route="tridiagonal"`` (or "eigen") all ridges of a fold share one, which for a few folds is
    the fastest exact method there is. It serves any split, whether or not the training rows are
    the complement of the test rows. Newton's method starts from the fit on all rows where there is
    a kernel of all rows.

    **Cost** with t folds of m rows: t · 4/3 (n−m)³ flops for any number of ridges.
    **Exact?** By definition.
    """

    route: Route = "cholesky"

    @property
    def may_merge(self) -> bool:
        """See base class."""
        return True

    def begin(
        self, problems: Sequence[Problem], operator: Splits, ridges: Sequence[float]
    ) -> Starts | None:
        """See base class: the fits on all rows, for losses that are iterated on."""
        if problems[0].loss.has_constant_curvature or not isinstance(operator, Responds):
            return None
        return [
            [fit.solution for fit in solve_path(problem, operator, ridges)] for problem in problems
        ]

    def solve(
        self,
        problems: Sequence[Problem],
        part: Part,
        ridges: Sequence[float],
        shared: Starts | None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class; a fit that did not converge has no values."""
        begins: Sequence[Sequence[Solution] | None] = shared or [None] * len(problems)
        fits = [
            self._fits(problem.restrict(part.train), part, ridges, own)
            for problem, own in zip(problems, begins, strict=True)
        ]
        values = np.concatenate([_predict(part, own) for own in fits], axis=2)
        condition = np.max([[fit.condition for fit in own] for own in fits], axis=0)
        for k, of_ridge in enumerate(zip(*fits, strict=True)):
            if not all(fit.is_converged for fit in of_ridge):
                values[k], condition[k] = np.nan, np.inf
        return FoldAnswer(values, condition, np.array([is_trusted(c) for c in condition]))

    def _fits(
        self,
        problem: Problem,
        part: Part,
        ridges: Sequence[float],
        starts: Sequence[Solution] | None,
    ) -> list[Fit]:
        if starts is None:
            return list(solve_path(problem, part.operator, ridges, self.route))
        fits: list[Fit] = []
        for ridge, start in zip(ridges, starts, strict=True):
            coef = part.operator.inherit(start.coef, part.train)
            begin = Solution(coef, start.intercept)
            fits.extend(solve_path(problem, part.operator, [ridge], start=begin))
        return fits


def _predict(part: Part, fits: Sequence[Fit]) -> Array:
    """Values (ridges, test rows, targets) by one product."""
    coef = np.concatenate([fit.solution.coef for fit in fits], axis=1)
    intercept = np.concatenate([fit.solution.intercept for fit in fits])
    u = product(part.cross, coef) + intercept
    values: Array = u.reshape(len(part.test), len(fits), -1).transpose(1, 0, 2)
    return values
