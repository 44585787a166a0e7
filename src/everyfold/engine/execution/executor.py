"""Carry out a plan: round after round of units, and their outcomes as candidates get complete.

Every public function builds a request, reads it, plans it, and has the plan carried out here.
Units that a checkpoint knows are not done again; who does the others is up to ``workers``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from everyfold.engine.checkpoint import Checkpoint
from everyfold.engine.execution.run import failed_outcomes, run, score_together
from everyfold.engine.execution.workers import WorkerDiedError, map_unordered
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.units import Unit, gather
from everyfold.engine.records import REFITTED, Data, Outcome, drop_values, join, with_fields
from everyfold.engine.request import Request
from everyfold.engine.source_data import SourceData
from everyfold.linalg.blas import SINGLE_THREAD_ROWS


def evaluate_request(made: SearchPlan, data: Data, request: Request) -> dict[int, Outcome]:
    """The last outcome of every candidate by number, once a plan is carried out."""
    done = execute(made, data, request.options.n_jobs)
    return {outcome.number: outcome for some in done for outcome in some}


def execute(
    plan: SearchPlan, data: Data, n_jobs: int | None = None, journal: Checkpoint | None = None
) -> Generator[list[Outcome], None, None]:
    """The outcomes of all candidates as they get complete, round after round.

    Rounds that go by parts of candidates get, and give, the folds of candidates as they come.
    A later outcome of a candidate takes the place of an earlier one. The last ones may only restate
    scores, or how certain they are. Units that the journal has are not repeated, and all others are
    written to it.
    """
    data = data.prepared(plan.kind, plan.pooled).refitting(plan.plain)
    if journal is not None and isinstance(data, SourceData):
        data = replace(data, notes=journal.notes())
    history: list[list[Outcome]] = []
    units, waiting = plan.rounds.first, _Waiting(data)
    while units:
        history.append([])
        data.watch.begin_round(units)
        for outcomes in _mapped(units, data, n_jobs, journal):
            complete = outcomes
            if not plan.rounds.takes_parts:
                complete = list(waiting.complete(outcomes))
            if complete:
                history[-1] += [drop_values(outcome) for outcome in complete]
                whole = [outcome for outcome in complete if not outcome.pilot]
                if whole:
                    yield [with_fields(o, status=plan.rounds.status(o)) for o in whole]
        units = plan.rounds.after(history, data)
    restated = plan.rounds.restated(history, data)
    if restated:
        yield [with_fields(outcome, is_restated=True) for outcome in restated]


def _mapped(
    units: Sequence[Unit], data: Data, n_jobs: int | None, journal: Checkpoint | None
) -> Iterator[list[Outcome]]:
    """The outcomes of units: those that a journal has, and the others as they get done."""
    if journal is None:
        for unit, outcomes in _done(units, data, n_jobs, is_single=False):
            data.watch.report_share(unit, 1.0)
            yield outcomes
        return
    left = []
    for unit in units:
        known, rest = _remembered(unit, data, journal)
        if known:
            yield known
        if rest is None:
            data.watch.report_share(unit, 1.0)
        else:
            left.append(rest)
    for unit, outcomes in _done(left, data, n_jobs, is_single=True):
        if not _is_of_dead_workers(outcomes):  # to be tried again by the next call
            for part in unit.by_kernel():
                journal.append(part, [o for o in outcomes if o.number in part.numbers])
        data.watch.report_share(unit, 1.0)
        yield outcomes


def _remembered(unit: Unit, data: Data, journal: Checkpoint) -> tuple[list[Outcome], Unit | None]:
    """The outcomes that a journal has of a unit, and what is left of it; None if nothing is."""
    found: list[Outcome] = []
    left: list[Unit] = []
    for part in unit.by_kernel():
        known = journal.find(part, data.folds_of)
        if known is None:
            left.append(part)
        else:
            found += known
    if not found:
        return [], unit
    groups = tuple(groups for part in left for groups in part.groups)
    return found, replace(unit, groups=groups) if groups else None


def _is_of_dead_workers(outcomes: Sequence[Outcome]) -> bool:
    failures = [outcome.failure for outcome in outcomes]
    return any(f is not None and isinstance(f.error, WorkerDiedError) for f in failures)


def _done(
    units: Sequence[Unit], data: Data, n_jobs: int | None, *, is_single: bool
) -> Iterator[tuple[Unit, list[Outcome]]]:
    """Units and their outcomes as they get done; ``is_single`` hands them out one by one.

    Units with threads of their own come one after the other; refits share nothing with each other,
    and are not ours to limit.
    """
    work: Callable[[Unit], list[Outcome]] = partial(run, data)
    for alike in gather(units, lambda unit: (unit.threads > 1, unit.order == "refit")):
        jobs = 1 if alike[0].threads > 1 else data.jobs or n_jobs
        is_refit = alike[0].order == "refit"
        yield from map_unordered(
            work,
            alike,
            jobs,
            SINGLE_THREAD_ROWS if is_refit else data.n,
            pieces=len(alike) if is_refit or is_single else None,
            lost=partial(failed_outcomes, data),
            is_watched=is_single,
        )


class _Waiting:
    """The folds of candidates that have come, until their last ones have."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._parts: dict[int, list[Outcome]] = {}
        self._trials: dict[int, Outcome] = {}
        """Folds that were refitted to see how long that takes: other refits go on from there."""

    def complete(self, outcomes: list[Outcome]) -> Iterator[Outcome]:
        """Candidates whose last folds are among these."""
        yield from (outcome for outcome in outcomes if outcome.pilot)
        for outcome in outcomes:
            is_refitted, number = outcome.status == REFITTED, outcome.number
            if outcome.pilot and is_refitted:
                self._trials[number] = with_fields(outcome, pilot=0)
            if outcome.pilot:
                continue
            count = self._data.folds_of(number)
            if count is None:
                yield outcome
                continue
            parts = self._parts.setdefault(number, [])
            parts.append(outcome)
            if is_refitted and number in self._trials:
                parts.append(self._trials.pop(number))
            if sum(len(part.folds) for part in parts) < count:
                continue
            whole = join(self._parts.pop(number))
            candidate = self._data.candidates.get(number)
            if candidate is not None and self._data.tasks[candidate.task].is_pooled:
                whole = score_together(whole, self._data.tasks[candidate.task])
            yield whole
