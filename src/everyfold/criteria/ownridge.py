"""Models that choose their own ridge by leave-one-out, as scikit-learn's RidgeCV does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import is_trusted
from everyfold.criteria.heldout import HeldOut
from everyfold.criteria.loop import FoldAnswer, FoldSolver
from everyfold.operators.base import Part
from everyfold.rows.folds import Folds
from everyfold.solve import Problem, solve
from everyfold.types import Array


@dataclass(frozen=True)
class OwnRidge(FoldSolver[None]):
    """Squared loss: every training set takes the best of several ridges by leave-one-out.

    **Cost** one factorisation of its training rows a fold, whatever the number of ridges:
    leave-one-out of all of them follows from it.
    **Exact?** Yes.

    Parameters
    ----------
    choices : tuple of float
        The ridges to choose from; the ``ridges`` of ``solve`` are not looked at.
    """

    choices: tuple[float, ...]

    def solve(
        self,
        problems: Sequence[Problem],
        part: Part,
        ridges: Sequence[float],
        shared: None,
        start: Array | None = None,
    ) -> FoldAnswer:
        """See base class."""
        (problem,) = problems
        inside = problem.restrict(part.train)
        singles = Folds.leave_one_out(inside.n)
        errors = [
            float(np.mean(inside.w[:, None] * (inside.y - record.values) ** 2))
            for record in HeldOut().evaluate(inside, part.operator, self.choices, singles)
        ]
        fit = solve(inside, part.operator, self.choices[int(np.argmin(errors))])
        values = part.cross @ fit.solution.coef + fit.solution.intercept
        condition = np.array([fit.condition])
        return FoldAnswer(values[None], condition, np.array([is_trusted(fit.condition)]))
