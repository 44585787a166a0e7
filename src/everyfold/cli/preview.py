"""The plan of a search that is not run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold.cli.job import Job
from everyfold.cli.manners import BadInput
from everyfold.evaluate.engines import Method, find_engine
from everyfold.evaluate.record import summarise
from everyfold.evaluate.units import Unit, Verdict
from everyfold.models.model import Model
from everyfold.operators.base import Array, KernelOperator, Rows
from everyfold.operators.perfold import SplitOnly
from everyfold.selection import FastGridSearchCV, SearchPlan


class _Planned(Exception):
    """Thrown where the work would begin, with all that was decided before."""

    def __init__(self, setup: Any) -> None:
        self.setup = setup


class _Unrun(FastGridSearchCV):
    """A search that stops before the first kernel."""

    def _evaluate(self, state: Any) -> None:
        raise _Planned(state.setup)


class _Outline(SplitOnly):
    """What is known of an operator before it exists: its size."""

    def __init__(self, n: int, rank: int, depends_on_rows: bool) -> None:
        self.n = n
        self._rank = rank
        self.depends_on_rows = depends_on_rows

    @property
    def rank(self) -> int:
        """See base class."""
        return self._rank

    def split(self, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        """Not available."""
        self._no_matrix()

    def __str__(self) -> str:
        if self.depends_on_rows:
            return "a kernel for each fold"
        return "dense" if self.rank == self.n else f"rank {self.rank}"


@dataclass(frozen=True)
class Preview:
    """A plan with estimates in place of results."""

    plan: SearchPlan
    exactness: str

    def __str__(self) -> str:
        """The lines of the plan that can be known before the work."""
        plan = self.plan
        known = [line for line in str(plan).splitlines() if line.split()[0] not in _RESULTS]
        cost = f"{plan.estimate:.3g} s of linear algebra, {plan.memory / 1e6:.3g} MB a worker"
        return "\n".join([*known, f"exact          {self.exactness}", f"estimate       {cost}"])


_RESULTS = ("exact", "cost", "confirmed")


def preview(job: Job) -> Preview:
    """Everything ``search`` decides before its first kernel, and what that should cost."""
    try:
        job.search(_Unrun, [job.grid]).fit(job.data.X, job.data.y)
    except _Planned as planned:
        setup = planned.setup
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error
    is_apart = setup.is_per_fold and setup.has_steps
    verdicts = [
        verdict for unit in setup.units for verdict in _verdicts(unit, job.data.X.shape, is_apart)
    ]
    is_exact = all(_is_exact(verdict.method) for verdict in verdicts)
    plan = summarise(
        setup,
        verdicts,
        exact=len(verdicts) if is_exact else 0,
        seconds=0.0,
        notes=setup.notes,
    )
    return Preview(plan, _exactness(is_exact, is_apart or not setup.has_steps))


def _exactness(is_exact: bool, is_prepared: bool) -> str:
    if not is_exact:
        return "no, an approximation; search may confirm the best candidates by refits"
    if not is_prepared:
        return "no: equal to refits, but on rows whose scaling has seen the test rows"
    return "yes: equal to refits, to rounding or the solver's own tolerance"


def _is_exact(method: Method | None) -> bool:
    return method is not None and not method.is_approximate


def _verdicts(unit: Unit, shape: tuple[int, int], is_apart: bool) -> list[Verdict]:
    found = []
    for group in unit.groups:
        models = [candidate.model for candidate in group]
        bound = is_apart or models[0].choice.depends_on_rows
        operator = _Outline(shape[0], _rank(models[0], shape), bound)
        method = find_engine(models[0]).plan(models, operator, unit.trial.bench)
        verdict = Verdict(0, None, {}, [], None, 0.0, 0.0, method, operator=str(operator))
        found += [replace(verdict, number=item.number) for item in group]
    return found


def _rank(model: Model, shape: tuple[int, int]) -> int:
    if model.choice.kernel == "linear" and model.operator == "auto":
        return min(shape)
    kernel = model.choice.resolve(np.eye(2))
    model.structure(kernel, shape)  # refuses what does not fit into memory
    return shape[0]
