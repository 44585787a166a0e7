"""Carry out a plan: round after round of units, and their outcomes as candidates get complete.

Every public function builds a request, reads it, plans it, and has the plan carried out here.
Units that a checkpoint knows are not done again; who does the others is up to ``workers``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

from joblib import cpu_count, effective_n_jobs
from joblib.parallel import BACKENDS, get_active_backend
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from everyfold._progress import warn
from everyfold._typing import Params
from everyfold.engine.checkpoint import Checkpoint
from everyfold.engine.execution.run import failed_outcomes, run, score_together
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.units import Unit, gather
from everyfold.engine.records import REFITTED, Data, Outcome, drop_values, join, with_fields
from everyfold.engine.request import Request
from everyfold.engine.source_data import SourceData
from everyfold.io.cluster import Cluster, own_client
from everyfold.linalg.blas import SINGLE_THREAD_ROWS, blas_threads


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
    if plan.pooled or plan.kind != "none":  # sources scale the rows of each fold themselves
        data = data.prepared(plan.kind, plan.pooled)
    if plan.plain:
        data = data.refitting(plan.plain)
    if journal is not None and isinstance(data, SourceData):
        data = replace(data, notes=journal.notes())
    history: list[list[Outcome]] = []
    units, waiting = plan.rounds.first, _Waiting(data)
    while units:
        history.append([])
        if data.watch.is_on:
            data.watch.begin_round(units)
        # The folds of a candidate wait for each other, unless the next round goes by them.
        waits = not plan.rounds.takes_parts and any(unit.folds is not None for unit in units)
        done = _done if journal is None else partial(_remembered, journal=journal)
        for _, outcomes in done(units, data, n_jobs):
            complete = list(waiting.complete(outcomes)) if waits else outcomes
            if complete:
                history[-1] += [drop_values(outcome) for outcome in complete]
                whole = [outcome for outcome in complete if not outcome.pilot]
                if whole and plan.rounds.begins_at_low_rank:
                    whole = [with_fields(o, status=plan.rounds.status(o)) for o in whole]
                if whole:
                    yield whole
        units = plan.rounds.after(history, data)
    restated = plan.rounds.restated(history, data)
    if restated:
        yield [with_fields(outcome, is_restated=True) for outcome in restated]


def _remembered(
    units: Sequence[Unit], data: Data, n_jobs: int | None, *, journal: Checkpoint
) -> Iterator[tuple[Unit, list[Outcome]]]:
    """Units and their outcomes: those that a journal has, and the others as they get done."""
    left = []
    for unit in units:
        known: list[Outcome] = []
        new: list[Unit] = []
        for part in unit.by_kernel():
            found = journal.find(part, data.folds_of)
            if found is None:
                new.append(part)
            else:
                known += found
        if known:
            yield unit, known
        if new:
            groups = tuple(groups for part in new for groups in part.groups)
            left.append(replace(unit, groups=groups) if known else unit)
        else:
            data.watch.report_share(unit, 1.0)
    for unit, outcomes in _done(left, data, n_jobs, is_single=True):
        if not _is_of_dead_workers(outcomes):  # to be tried again by the next call
            for part in unit.by_kernel():
                journal.append(part, [o for o in outcomes if o.number in part.numbers])
        yield unit, outcomes


def _is_of_dead_workers(outcomes: Sequence[Outcome]) -> bool:
    failures = [outcome.failure for outcome in outcomes]
    return any(f is not None and isinstance(f.error, WorkerDiedError) for f in failures)


def _done(
    units: Sequence[Unit], data: Data, n_jobs: int | None, *, is_single: bool = False
) -> Iterator[tuple[Unit, list[Outcome]]]:
    """Units and their outcomes as they get done; ``is_single`` hands them out one by one.

    Units with threads of their own come one after the other; refits share nothing with each other,
    and are not ours to limit.
    """
    work: Callable[[Unit], list[Outcome]] = partial(run, data)
    for alike in gather(units, lambda unit: (unit.threads > 1, unit.order == "refit")):
        jobs = 1 if alike[0].threads > 1 else data.jobs or n_jobs
        is_refit = alike[0].order == "refit"
        for unit, outcomes in map_unordered(
            work,
            alike,
            jobs,
            SINGLE_THREAD_ROWS if is_refit else data.n,
            pieces=len(alike) if is_refit or is_single else None,
            lost=partial(failed_outcomes, data),
            is_watched=is_single,
        ):
            yield unit, outcomes
            if data.watch.is_on:
                data.watch.report_share(unit, 1.0)


@dataclass
class _Waiting:
    """The folds of candidates that have come, until their last ones have."""

    data: Data
    parts: dict[int, list[Outcome]] = field(default_factory=dict)
    trials: dict[int, Outcome] = field(default_factory=dict)
    """Folds that were refitted to see how long that takes: other refits go on from there."""

    def complete(self, outcomes: list[Outcome]) -> Iterator[Outcome]:
        """Candidates whose last folds are among these."""
        yield from (outcome for outcome in outcomes if outcome.pilot)
        for outcome in outcomes:
            is_refitted, number = outcome.status == REFITTED, outcome.number
            if outcome.pilot and is_refitted:
                self.trials[number] = with_fields(outcome, pilot=0)
            if outcome.pilot:
                continue
            count = self.data.folds_of(number)
            if count is None:
                yield outcome
                continue
            parts = self.parts.setdefault(number, [])
            parts.append(outcome)
            if is_refitted and number in self.trials:
                parts.append(self.trials.pop(number))
            if sum(len(part.folds) for part in parts) < count:
                continue
            whole = join(self.parts.pop(number))
            candidate = self.data.candidates.get(number)
            if candidate is not None and self.data.tasks[candidate.task].is_pooled:
                whole = score_together(whole, self.data.tasks[candidate.task])
            yield whole


# -- Who does the work: this process, joblib's workers, or those of a Dask cluster -----------------

Item = TypeVar("Item")
Result = TypeVar("Result")

# How many times each worker is given work: more pieces keep all busy to the end, fewer share more
# of what neighbouring items have in common.
_PIECES_A_WORKER = 2


class WorkerDiedError(RuntimeError):
    """That worker processes died while they were at work on something."""


def local_threads(n_jobs: int | None = None) -> int:
    """How many threads of this process ``n_jobs`` allows: 1 if joblib would send work elsewhere.

    Examples
    --------
    >>> local_threads(2)
    2
    """
    is_here = _is_backend("loky", "threading", "multiprocessing", "sequential")
    return effective_n_jobs(n_jobs) if is_here and _dask_client(n_jobs) is None else 1


def _is_backend(*names: str) -> bool:
    """Whether joblib works by one of these, and not by what a cluster derives from them."""
    return type(get_active_backend()[0]) in [BACKENDS.get(name) for name in names]


def map_unordered(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int | None = None,
    n_rows: int = SINGLE_THREAD_ROWS,
    pieces: int | None = None,
    lost: Callable[[Item, WorkerDiedError], Result] | None = None,
    is_watched: bool = False,
) -> Iterator[tuple[Item, Result]]:
    """Every item with ``work`` of it, in the order in which they get done.

    Neighbouring items travel to a worker together, so that they can share what they have in
    common. Each worker gets its share of the processors for BLAS. Worker processes that were given
    work end with the process that started them. What was at work when one of them died is tried
    again, and at last alone; an item that ends its worker then, too, is lost, and no other.

    Parameters
    ----------
    work : callable
        A pure function.
    items : sequence
    n_jobs : int, optional
        As in joblib; None is 1 unless a ``joblib.parallel_config`` says otherwise. Several jobs
        are all workers of a Dask cluster where this process has a ``distributed.Client``.
    n_rows : int, optional
        The size of the matrices at work: small ones deserve one thread each.
    pieces : int, optional
        How many times work is handed out; a few for each worker if not given.
    lost : callable, optional
        What stands for the result of a lost item; if not given, the error is raised.
    is_watched : bool, optional
        Whether processes end with this one even before they are given work. Joblib makes a pool
        of their own for that, and has to begin anew where others were used before.

    Examples
    --------
    >>> sorted(map_unordered(abs, [-2, 1]))
    [(-2, 2), (1, 1)]
    """
    # A process that has not imported it has no client.
    client = _dask_client(n_jobs) if "distributed" in sys.modules else None
    if client is not None and len(items) > 1:
        yield from _on_cluster(client, work, items, pieces)
        return
    jobs = min(effective_n_jobs(n_jobs), len(items))
    if jobs <= 1:
        with blas_threads(n_rows):
            for item in items:
                yield item, work(item)
        return
    threads = 1 if n_rows < SINGLE_THREAD_ROWS else max(1, cpu_count() // jobs)
    chunks = _chunks(items, pieces or jobs * _PIECES_A_WORKER)
    parent = os.getpid() if _is_backend("loky") else None  # children of this one
    task = partial(_run, work, threads, parent)
    # Worker threads share this process's BLAS, so that its limit is set here, and only once.
    with threadpool_limits(threads, user_api="blas"):
        pool = partial(_pool, n_jobs, parent if is_watched else None)
        yield from _surviving(task, chunks, pool, lost or _raise)


Task = Callable[[Sequence[Item]], list[Result]]
# What maps a function over pieces of work.
Pool = partial[Any]


def _surviving(
    task: Task[Item, Result],
    chunks: Sequence[Sequence[Item]],
    pool: Pool,
    lost: Callable[[Item, WorkerDiedError], Result],
) -> Iterator[tuple[Item, Result]]:
    """Every item with its result, even if workers die.

    Work is taken in its order, so that what was at work is among the first that are not done: as
    many as there are workers. These go on alone, the others in a new pool.
    """
    left, jobs = dict(enumerate(chunks)), effective_n_jobs(pool.args[0])
    while left:
        try:
            for i, results in pool(partial(_numbered, task), left.items()):
                yield from zip(left.pop(i), results, strict=True)
        except BrokenProcessPool as error:
            words = "a worker process died; its work is tried again"
            warn(f"{words} ({type(error).__name__})")
        doubtful = [item for i in list(left)[:jobs] for item in left.pop(i)]
        if len(doubtful) > jobs:
            yield from _surviving(task, [[item] for item in doubtful], pool, lost)
            continue
        for item in doubtful:
            yield item, _alone(task, item, pool, lost)


def _alone(
    task: Task[Item, Result],
    item: Item,
    pool: Pool,
    lost: Callable[[Item, WorkerDiedError], Result],
) -> Result:
    """The result of one item while no other is at work."""
    try:
        for _, results in pool(partial(_numbered, task), [(0, [item])]):
            found: Result = results[0]
            return found
        raise BrokenProcessPool("no result")
    except BrokenProcessPool as error:
        words = (
            "this work ended a worker process more than once, finally without other work beside "
            f"it ({error})"
        )
        return lost(item, WorkerDiedError(f"{words}; it may have taken too much memory"))


def _raise(item: object, error: WorkerDiedError) -> NoReturn:
    raise error


def _dask_client(n_jobs: int | None) -> Any:
    """The client that work goes to: of joblib's Dask backend, or of this process.

    The latter if several jobs are asked for, and no other backend is; however many, all workers of
    the cluster are used.
    """
    if n_jobs == 1:
        return None
    backend, _ = get_active_backend()
    if type(backend).__name__ == "DaskDistributedBackend":
        return backend.client
    is_asked = n_jobs is not None or effective_n_jobs(n_jobs) > 1
    return own_client() if is_asked and _is_backend("loky") else None


def _on_cluster(
    client: Any, work: Callable[[Item], Result], items: Sequence[Item], pieces: int | None
) -> Iterator[tuple[Item, Result]]:
    """The same by the workers of a Dask cluster: ``work`` and its data are sent to each once."""
    cluster = Cluster(client)
    chunks = _chunks(items, pieces or cluster.workers().threads * _PIECES_A_WORKER)
    for i, results in cluster.map_unordered(partial(_each, work), chunks):
        yield from zip(chunks[i], results, strict=True)


def _each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [work(item) for item in items]


def _numbered(task: Task[Item, Result], chunk: tuple[int, Sequence[Item]]) -> Any:
    return chunk[0], task(chunk[1])


def _pool(
    n_jobs: int | None, parent: int | None, task: Callable[[Item], Result], chunks: Iterable[Item]
) -> Iterable[Result]:
    """The results as they come; all is submitted at once, since a pool may break in between.

    Joblib's pool, with as much of what is wanted as its version knows.
    """
    unordered: Params = {"return_as": "generator_unordered"}  # from 1.4 on
    watched = {} if parent is None else {"initializer": _end_with, "initargs": (parent,)}
    for known in ({**unordered, **watched}, unordered, {}):
        with suppress(TypeError, ValueError):
            pool = Parallel(n_jobs=n_jobs, pre_dispatch="all", **known)
            break
    found: Iterable[Result] = pool([delayed(task)(chunk) for chunk in chunks])
    return found


def _run(
    work: Callable[[Item], Result], threads: int, parent: int | None, items: Sequence[Item]
) -> list[Result]:
    if threading.current_thread() is not threading.main_thread():
        return _each(work, items)
    if parent is not None:
        _end_with(parent)
    with threadpool_limits(threads, user_api="blas"):
        return _each(work, items)


@cache
def _end_with(parent: int) -> None:
    """End this process soon after its parent, even one that was killed; asked once a process."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_GLANCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# Seconds between two looks at whether the parent is alive.
_GLANCE = 0.5


def _chunks(items: Sequence[Item], pieces: int | None = None) -> list[Sequence[Item]]:
    """Items in so many pieces of neighbours; one each if not given."""
    pieces = min(pieces or len(items), len(items))
    cuts = [len(items) * i // pieces for i in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(cuts)]
