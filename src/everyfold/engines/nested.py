"""Models that choose their own ridge by leave-one-out, as scikit-learn's RidgeCV does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everyfold.criteria import Fold, Folds, HeldOut, OutOfFold
from everyfold.criteria.base import is_trusted
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite
from everyfold.model import Model
from everyfold.operators.base import Array, KernelOperator
from everyfold.solve import Problem, solve


class OwnChoice(Engine):
    """Squared loss with a list of ridges: in every fold the best of its training rows is taken.

    **Cost** a fold costs one factorisation of its training rows, whatever the number of ridges:
    leave-one-out of all of them follows from it.
    **Exact?** Yes.
    """

    def suits(self, model: Model) -> bool:
        """See base class."""
        return model.chooses_ridge

    def check(self, model: Model, order: Any) -> None:
        """See base class."""
        if is_finite(order):
            raise ValueError(
                f"order={order!r} is not available for a model that chooses its own alpha; use "
                "order='auto'"
            )

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class."""
        words = "leave-one-out of every alpha on the training rows of each fold, then the best"
        seconds = 1e-10 * len(bench.folds) * operator.n * float(operator.rank) ** 2
        return Method("own choice", words, seconds, 32 * operator.n * operator.rank)

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        method = self.plan(models, operator, bench)
        return Answer([self._record(model, operator, bench) for model in models], method)

    def _record(self, model: Model, operator: KernelOperator, bench: Bench) -> OutOfFold:
        problem, folds = bench.problem(model), bench.folds
        found = [_fold(problem, operator, model.ridges, fold) for fold in folds]
        condition = np.array([worst for _, worst in found])
        exact = np.array([is_trusted(worst) for worst in condition])
        values = np.concatenate([held for held, _ in found])
        return OutOfFold(values, exact, np.full(len(folds), np.nan), condition)


def _fold(
    problem: Problem, operator: KernelOperator, ridges: Sequence[float], fold: Fold
) -> tuple[Array, float]:
    inside, cross = operator.split(fold.train, fold.test)
    part = problem.restrict(fold.train)
    singles = Folds.leave_one_out(part.n)
    errors = [
        float(np.mean(part.w[:, None] * (part.y - record.values) ** 2))
        for record in HeldOut().evaluate(part, inside, ridges, singles)
    ]
    fit = solve(part, inside, ridges[int(np.argmin(errors))])
    return cross @ fit.solution.coef + fit.solution.intercept, fit.condition
