"""Who does the work: this process, or joblib's workers. Only a map, finished pieces first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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
) -> Iterator[Result]:
    """``work`` of every item, in the order in which they get done.

    Neighbouring items travel to a worker together, so that they can share what they have in
    common. Each worker gets its share of the processors for BLAS.

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
    [1, 2]
    """
    jobs = min(effective_n_jobs(n_jobs), len(items))
    if jobs <= 1:
        with blas_threads(n_rows):
            for item in items:
                yield work(item)
        return
    threads = 1 if n_rows < SINGLE_THREAD_ROWS else max(1, cpu_count() // jobs)
    chunks = _chunks(items, pieces or jobs * _PIECES_A_WORKER)
    # Worker threads share this process's BLAS, so that its limit is set here, and only once.
    with threadpool_limits(threads, user_api="blas"):
        for results in _pool(partial(_run, work, threads), chunks, n_jobs):
            yield from results


def _pool(task: Callable[[Any], Result], chunks: Iterable[Any], n_jobs: int | None) -> Any:
    try:
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except (TypeError, ValueError):  # joblib before 1.4
        pool = Parallel(n_jobs=n_jobs)
    return pool(delayed(task)(chunk) for chunk in chunks)


def _run(work: Callable[[Item], Result], threads: int, items: Sequence[Item]) -> list[Result]:
    if threading.current_thread() is not threading.main_thread():
        return [work(item) for item in items]
    with threadpool_limits(threads, user_api="blas"):
        return [work(item) for item in items]


def _chunks(items: Sequence[Any], pieces: int) -> list[Sequence[Any]]:
    pieces = min(pieces, len(items))
    cuts = [len(items) * i // pieces for i in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(cuts)]
