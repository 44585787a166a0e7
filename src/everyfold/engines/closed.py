"""Squared loss: every fold of every ridge in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everyfold.criteria import HeldOut, OutOfFold
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite, join
from everyfold.model import Model
from everyfold.operators.base import KernelOperator
from everyfold.plan import Plan, plan_exact


class ClosedForm(Engine):
    """Squared loss: all ridges of a kernel from the cheapest exact factorisation.

    **Exact?** Every fold equals a refit up to rounding; a finite order does not.
    """

    def suits(self, model: Model) -> bool:
        """See base class."""
        return model.loss.has_constant_curvature and not model.chooses_ridge

    def check(self, model: Model, order: Any) -> None:
        """See base class."""
        if is_finite(order) and model.choice.depends_on_rows:
            raise ValueError(
                f"order={order!r} needs one kernel for all folds, but gamma={model.choice.gamma!r} "
                "depends on the training rows; use order='auto' or a number for gamma"
            )

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class."""
        problem = models[0].problem(bench.target, bench.weights)
        plan = plan_exact(problem, operator, len(models), bench.folds)
        return _describe(plan, bench.order)

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        q = bench.target.columns.shape[1]
        owners = [model.columns_of_ridges(q) for model in models]
        ridges = list(dict.fromkeys(ridge for owned in owners for ridge, _ in owned))
        problem = models[0].problem(bench.target, bench.weights)
        plan = plan_exact(problem, operator, len(ridges), bench.folds)
        criterion = plan.criterion
        if is_finite(bench.order):
            criterion = HeldOut(order=bench.order, seed=bench.seed)
        found = criterion.evaluate(problem, operator, ridges, bench.folds)
        records = dict(zip(ridges, found, strict=True))
        answers = [_assemble(owned, records) for owned in owners]
        return Answer(answers, _describe(plan, bench.order))


def _describe(plan: Plan, order: Any) -> Method:
    if is_finite(order):
        words = f"influence series of order {order:g}, an approximation"
        return Method(f"order {order:g}", words, plan.seconds, plan.memory, is_approximate=True)
    return Method(plan.method, plan.words, plan.seconds, plan.memory)


def _assemble(
    owned: Sequence[tuple[float, list[int]]], records: dict[float, OutOfFold]
) -> OutOfFold:
    """The record of one model, whose targets may have ridges of their own."""
    if len(owned) == 1:
        return records[owned[0][0]]
    parts = [records[ridge] for ridge, _ in owned]
    values = np.empty_like(parts[0].values)
    for (_, columns), part in zip(owned, parts, strict=True):
        values[:, columns] = part.values[:, columns]
    return join(parts, values)
