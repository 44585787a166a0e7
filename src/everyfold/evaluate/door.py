"""The door: every public function builds a request, reads it, plans it, and has it carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from everyfold.evaluate.data import Data, Outcome, join, without_values
from everyfold.evaluate.plan import SearchPlan
from everyfold.evaluate.run import run, score_together
from everyfold.evaluate.tiles import Unit
from everyfold.evaluate.workers import map_unordered

__all__ = ["carry_out"]


def carry_out(plan: SearchPlan, data: Data, n_jobs: int | None = None) -> Iterator[list[Outcome]]:
    """The outcomes of all candidates as they get complete, round after round.

    A later outcome of a candidate takes the place of an earlier one.
    """
    data = data.prepared(plan.kind, plan.pooled)
    history: list[list[Outcome]] = []
    units = plan.rounds.first
    while units:
        history.append([])
        work: Callable[[Unit], list[Outcome]] = partial(run, data)
        jobs = 1 if units[0].threads > 1 else n_jobs
        waiting: dict[int, list[Outcome]] = {}
        for outcomes in map_unordered(work, units, jobs, data.n):
            complete = list(_complete(outcomes, waiting, data))
            if complete:
                history[-1] += [without_values(outcome) for outcome in complete]
                statuses = plan.rounds.statuses(history)
                whole = [outcome for outcome in complete if not outcome.sample]
                if whole:
                    yield [replace(o, status=statuses.get(o.number, o.status)) for o in whole]
        units = plan.rounds.after(history, data)


def _complete(
    outcomes: list[Outcome], waiting: dict[int, list[Outcome]], data: Data
) -> Iterator[Outcome]:
    """Candidates whose last folds have come; a pass over a source has all of them."""
    if data.stream is not None:
        yield from outcomes
        return
    yield from (outcome for outcome in outcomes if outcome.sample)
    for outcome in outcomes:
        if outcome.sample:
            continue
        parts = waiting.setdefault(outcome.number, [])
        parts.append(outcome)
        task = data.tasks[data.candidates[outcome.number].task]
        if sum(len(part.folds) for part in parts) == len(task.folds):
            yield score_together(join(waiting.pop(outcome.number)), task)
