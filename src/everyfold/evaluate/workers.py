"""Who does the work: this process, or joblib's workers. Only a map, finished pieces first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

from joblib import cpu_count, effective_n_jobs
from joblib.parallel import BACKENDS, get_active_backend
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from everyfold.operators.threads import SINGLE_THREAD_ROWS, blas_threads

Item = TypeVar("Item")
Result = TypeVar("Result")

_PIECES_A_WORKER = 2


def local_threads(n_jobs: int | None = None) -> int:
    """How many threads of this process ``n_jobs`` allows: 1 if joblib would send work elsewhere.

    Examples
    --------
    >>> local_threads(2)
    2
    """
    backend, _ = get_active_backend()
    # Backends of clusters derive from these, so that only the classes themselves work here.
    here = [BACKENDS.get(k) for k in ("loky", "threading", "multiprocessing", "sequential")]
    return effective_n_jobs(n_jobs) if type(backend) in here else 1


def map_unordered(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int | None = None,
    n_rows: int = SINGLE_THREAD_ROWS,
    pieces: int | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Every item with ``work`` of it, in the order in which they get done.

    Neighbouring items travel to a worker together, so that they can share what they have in
    common. Each worker gets its share of the processors for BLAS. Worker processes that have been
    at work end with the process that started them.

    Parameters
    ----------
    work : callable
        A pure function.
    items : sequence
    n_jobs : int, optional
        As in joblib; None is 1 unless a ``joblib.parallel_config`` says otherwise.
    n_rows : int, optional
        The size of the matrices at work: small ones deserve one thread each.
    pieces : int, optional
        How many times work is handed out; a few for each worker if not given.

    Examples
    --------
    >>> sorted(map_unordered(abs, [-2, 1]))
    [(-2, 2), (1, 1)]
    """
    jobs = min(effective_n_jobs(n_jobs), len(items))
    if jobs <= 1:
        with blas_threads(n_rows):
            for item in items:
                yield item, work(item)
        return
    threads = 1 if n_rows < SINGLE_THREAD_ROWS else max(1, cpu_count() // jobs)
    chunks = _chunks(items, pieces or jobs * _PIECES_A_WORKER)
    task = partial(_run, work, threads, os.getpid())
    # Worker threads share this process's BLAS, so that its limit is set here, and only once.
    with threadpool_limits(threads, user_api="blas"):
        for i, results in _pool(partial(_numbered, task), enumerate(chunks), n_jobs):
            yield from zip(chunks[i], results, strict=True)


def _numbered(
    task: Callable[[Sequence[Item]], list[Result]], chunk: tuple[int, Sequence[Item]]
) -> tuple[int, list[Result]]:
    return chunk[0], task(chunk[1])


def _pool(task: Callable[[Any], Result], chunks: Iterable[Any], n_jobs: int | None) -> Any:
    try:
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except (TypeError, ValueError):  # joblib before 1.4
        pool = Parallel(n_jobs=n_jobs)
    return pool(delayed(task)(chunk) for chunk in chunks)


def _run(
    work: Callable[[Item], Result], threads: int, parent: int, items: Sequence[Item]
) -> list[Result]:
    if threading.current_thread() is not threading.main_thread():
        return [work(item) for item in items]
    if os.getppid() == parent:
        _end_with(parent)
    with threadpool_limits(threads, user_api="blas"):
        return [work(item) for item in items]


@cache
def _end_with(parent: int) -> None:
    """End this process soon after its parent, even one that was killed; asked once a process."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_GLANCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_GLANCE = 0.5
"""Seconds between two looks at whether the parent is alive."""


def _chunks(items: Sequence[Any], pieces: int | None = None) -> list[Sequence[Any]]:
    """Items in so many pieces of neighbours; one each if not given."""
    pieces = min(pieces or len(items), len(items))
    cuts = [len(items) * i // pieces for i in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(cuts)]
