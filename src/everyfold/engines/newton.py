"""Smooth losses without a closed form: Newton fits, and all folds by the hold-out formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold.criteria import HeldOut, Predictive, Refit
from everyfold.engines.base import Answer, Bench, Engine, Method, is_finite, join
from everyfold.model import Model
from everyfold.operators.base import KernelOperator, Solution
from everyfold.solve import Problem
from everyfold.targets import Labels, Pairs

MANY_FOLDS = 20
"""Beyond this number of folds one Newton step for each takes the place of fits of their own."""


class DidNotConvergeError(ArithmeticError):
    """Newton's method ended without a minimum, so that there is nothing to be scored."""


@dataclass(frozen=True)
class NewtonSteps(Engine):
    """One Newton fit a ridge on all rows; from there each fold's own minimum, or one step to it.

    ``order="exact"``, the choice of "auto" up to ``MANY_FOLDS`` folds, ends at each fold's minimum;
    ``order=inf`` takes one step for every fold. Where no fit on all rows exists to start from
    (kernels or class weights that depend on the training rows) folds are always exact. ``starts``
    are solutions near those of the models, if any are known.
    """

    starts: tuple[Solution, ...] | None = None

    def suits(self, model: Model) -> bool:
        """See base class."""
        return model.loss.is_smooth and not model.loss.has_constant_curvature

    def check(self, model: Model, order: Any) -> None:
        """See base class."""
        if len(model.ridges) > 1:
            raise ValueError(
                f"alpha has {len(model.ridges)} entries, but loss={model.loss} takes one number "
                "for all targets"
            )
        if is_finite(order) and model.choice.depends_on_rows:
            raise ValueError(
                f"order={order!r} needs one kernel for all folds, but gamma={model.choice.gamma!r} "
                "depends on the training rows; use order='auto' or a number for gamma"
            )

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class."""
        return _choose(bench.problem(models[0]), operator, bench)[1]

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        problem = bench.problem(models[0])
        ridges = [model.ridges[0] for model in models]
        # From strong to weak ridges each fit starts near its minimum.
        order = np.argsort(ridges)[::-1]
        criterion, method = _choose(problem, operator, bench)
        if self.starts is not None and isinstance(criterion, HeldOut):
            criterion = replace(criterion, starts=tuple(self.starts[i] for i in order))
        found = criterion.evaluate(problem, operator, [ridges[i] for i in order], bench.folds)
        records: list[Any] = [None] * len(models)
        for i, record in zip(order, found, strict=True):
            if np.isnan(record.values).any():
                raise DidNotConvergeError(
                    f"the fit of ridge {ridges[i]:.3g} did not converge; use a larger alpha "
                    "(smaller C) or a larger h"
                )
            records[i] = record
        return Answer(records, method)


def _choose(problem: Problem, operator: KernelOperator, bench: Bench) -> tuple[Predictive, Method]:
    order = bench.order
    if order == "auto":
        # One step is near-exact for single rows; for larger folds it can be points away.
        order = "exact" if len(bench.folds) <= MANY_FOLDS else math.inf
    bound = operator.depends_on_rows or problem.balance is not None
    if order == "exact" or bound or not bench.folds.are_removable:
        words = "Newton fits of every fold, each starting from the fit on all rows"
        return Refit(), _method("newton, exact", words, operator, len(bench.folds))
    if order == math.inf:
        words = "one Newton fit a ridge, then one step for every fold (★)"
        return HeldOut(), _method("newton, one step", words, operator, 1, is_approximate=True)
    words = f"influence series of order {order:g}, an approximation"
    name = f"order {order:g}"
    return HeldOut(order=order), _method(name, words, operator, 1, is_approximate=True)


def _method(
    name: str, words: str, operator: KernelOperator, fits: int, *, is_approximate: bool = False
) -> Method:
    seconds = 1e-10 * fits * operator.n * float(operator.rank) ** 2
    return Method(name, words, seconds, 24 * operator.n * operator.rank, is_approximate)


@dataclass(frozen=True)
class OneVersusOne(Engine):
    """More than two classes by pairs: each is a problem of its own on the same kernel."""

    engine: Engine

    def suits(self, model: Model) -> bool:
        """See base class."""
        return model.voting is not None and self.engine.suits(model)

    def check(self, model: Model, order: Any) -> None:
        """See base class."""
        self.engine.check(model, order)

    def shares_out(self, model: Model, bench: Bench) -> bool:
        """See base class."""
        return self.engine.shares_out(model, bench)

    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """See base class; all pairs go the same way."""
        return self.engine.plan(models, operator, bench)

    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """See base class."""
        target = bench.target
        if not isinstance(target, Pairs):
            return self.engine.evaluate(models, operator, bench)
        answers = []
        for k in range(target.columns.shape[1]):
            column: Labels = target.column(k)
            weights = bench.weights * target.takes_part[:, k]
            counts = bench.weights > 0.0
            pair = replace(bench, target=column, weights=weights, counts=counts)
            answers.append(self.engine.evaluate(models, operator, pair))
        records = [
            join(parts, np.column_stack([part.values for part in parts]))
            for parts in zip(*(answer.records for answer in answers), strict=True)
        ]
        return Answer(records, answers[0].method)
