"""Refitting: the criterion everything else is measured against, and at times the cheapest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import is_trusted
from everyfold.criteria.loop import FoldAnswer, FoldSolver
from everyfold.operators.base import (
    Part,
    Responds,
    RidgeModels,
    Solution,
    Splits,
    StructureError,
)
from everyfold.operators.symmetric import EPS
from everyfold.solve import Fit, Problem, solve_path
from everyfold.types import Array, Route

Starts = list[dict[float, Solution]]
"""By problem and ridge."""


@dataclass(frozen=True)
class Refit(FoldSolver[Starts | None]):
    """Fit every fold's training rows, for every ridge.

    ``route="cholesky"`` is brute force, one factorisation for each fold and ridge. With
    ``route="tridiagonal"`` (or "eigen") all ridges of a fold share one, which for a few folds is
    the fastest exact method there is. It serves any split, whether or not the training rows are
    the complement of the test rows. Newton's method starts from the fit on all rows where there is
    a kernel of all rows.

    With a ``precision``, held-out values of squared loss may be off by that share of the root mean
    square of the targets, by the tridiagonal route; none is then called exact.

    **Cost** with t folds of m rows: t · 4/3 (n−m)³ flops for any number of ridges.
    **Exact?** By definition.
    """

    route: Route = "cholesky"
    precision: float = 0.0

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
        try:
            return [
                {
                    ridge: fit.solution
                    for ridge, fit in zip(
                        ridges, solve_path(problem, operator, ridges), strict=True
                    )
                }
                for problem in problems
            ]
        except (MemoryError, StructureError):
            raise
        except Exception:  # of one ridge, which fails in the folds as well, and alone there
            return None

    def solve(
        self,
        problems: Sequence[Problem],
        part: Part,
        ridges: Sequence[float],
        shared: Starts | None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class; a fit that did not converge has no values."""
        begins: Sequence[Mapping[float, Solution] | None] = shared or [None] * len(problems)
        found = [
            self._solutions(problem.restrict(part.train), part, ridges, own)
            for problem, own in zip(problems, begins, strict=True)
        ]
        values = np.concatenate([own.values(part.cross) for own in found], axis=2)
        condition = np.max([own.condition for own in found], axis=0)
        if not problems[0].loss.has_constant_curvature:
            values[condition == np.inf] = np.nan
        exact = [self.precision == 0.0 and is_trusted(c) for c in condition]
        return FoldAnswer(values, condition, np.array(exact))

    def _solutions(
        self,
        problem: Problem,
        part: Part,
        ridges: Sequence[float],
        starts: Mapping[float, Solution] | None,
    ) -> RidgeModels:
        if problem.loss.has_constant_curvature:
            rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
            return part.operator.solutions(problem.quadratic, rhos, self.route, self.precision)
        return _side_by_side(list(self._fits(problem, part, ridges, starts)))

    def _fits(
        self,
        problem: Problem,
        part: Part,
        ridges: Sequence[float],
        starts: Mapping[float, Solution] | None,
    ) -> Iterator[Fit]:
        if starts is None:
            yield from solve_path(problem, part.operator, ridges, self.route)
            return
        for ridge in ridges:
            start = starts[ridge]
            coef = part.operator.inherit(start.coef, part.train)
            begin = Solution(coef, start.intercept)
            yield from solve_path(problem, part.operator, [ridge], start=begin)


def _side_by_side(fits: Sequence[Fit]) -> RidgeModels:
    """The solutions of fits, with an infinite condition number where one did not converge.

    What rounding leaves of tiny forces counts as if it came from a system as ill-conditioned.
    """
    conditions = [max(fit.condition, fit.resolution / EPS) for fit in fits]
    return RidgeModels(
        np.stack([fit.solution.coef for fit in fits]),
        np.stack([fit.solution.intercept for fit in fits]),
        np.array(
            [
                condition if fit.is_converged else np.inf
                for condition, fit in zip(conditions, fits, strict=True)
            ]
        ),
    )
