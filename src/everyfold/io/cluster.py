"""Work on a Dask cluster: maps over items, and sums over partitions that stay where they are.

Data that all tasks need are sent to each worker once. What a worker had when it died is computed
again by the others, and errors of the connection are raised as `ClusterError`, with the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import cycle, pairwise
from operator import call
from typing import TypeVar

from everyfold._typing import Lazy

Item = TypeVar("Item")
Result = TypeVar("Result")

# Chains of tasks for each thread: with more than one, a thread that is done early finds more work;
# every chain holds one result.
_CHAINS_A_THREAD = 2
# Results that one task merges, which are all on its worker meanwhile.
_FAN_IN = 8
# How often data are sent again after all workers that had them died. The scheduler itself computes
# the results of dead workers again, but not what was sent to them, whose tasks it cancels; and
# submit(retries=...) would repeat the errors of users' functions, which are not a matter of luck.
_TRIES = 3
# Seconds that a cluster without workers is waited for: batch systems take a while to start some.
_PATIENCE = 60.0


class ClusterError(RuntimeError):
    """A cluster that lost its scheduler, or a worker too often."""


def active_client() -> Lazy:
    """The ``distributed.Client`` of this process or of the task that runs here, if there is one."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client(timeout=5)
    except ValueError:
        return None


def own_client() -> Lazy:
    """The same for work that is sent off: None in a task, whose worker would wait for itself."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return active_client()
    return None


@dataclass(frozen=True)
class Workers:
    """How many workers there are, and how many threads they have in all.

    ``memory`` is the least that a thread has, None where no worker has a limit, and ``partitions``
    the number of parts that the rows are in.
    """

    count: int
    threads: int
    memory: int | None
    partitions: int = 0

    @property
    def chains(self) -> int:
        """How many results of a pass have to be brought together."""
        return min(self.partitions, _CHAINS_A_THREAD * self.threads)


class Cluster:
    """The workers of a ``distributed.Client``.

    What all tasks need is sent to every worker once. Results of a worker that dies are computed
    again by the others.
    """

    def __init__(self, client: Lazy) -> None:
        self._client = client

    def workers(self) -> Workers:
        """What there is now."""
        if self._client.status != "running":
            raise ClusterError(_LOST)
        with self._speaking():
            info = self._info()
        threads = [int(worker["nthreads"]) for worker in info.values()]
        limits = [int(w["memory_limit"] or 0) // max(1, int(w["nthreads"])) for w in info.values()]
        known = [limit for limit in limits if limit > 0]
        return Workers(len(info), max(1, sum(threads)), min(known) if known else None)

    def _info(self) -> Lazy:
        """The workers by address; a cluster that is about to have some is waited for."""
        found = self._client.scheduler_info(n_workers=-1).get("workers")
        if found:
            return found
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ClusterError(
                f"the Dask cluster has no workers, after {_PATIENCE:.0f} s of waiting; add some "
                "(cluster.scale(2))"
            ) from error
        return self._client.scheduler_info(n_workers=-1).get("workers")

    @contextmanager
    def sent(self, item: object, broadcast: bool = True) -> Iterator[Lazy]:
        """Something that every worker has a copy of, as long as it is used.

        Without ``broadcast`` one worker has it, and the others ask for it with their first task.
        """
        options = {"broadcast": broadcast, "hash": False}
        with self._speaking():
            try:  # straight to a worker, and from there to the others: one copy for each
                (future,) = self._client.scatter([item], direct=True, **options)
            except OSError:  # workers that this process cannot reach
                (future,) = self._client.scatter([item], direct=False, **options)
        try:
            yield future
        finally:
            future.release()

    def map_unordered(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Every item's number with ``work`` of it, in the order in which they get done.

        Every worker gets ``work`` and its data with its first item. Sent to all beforehand, the
        copies would have no task that waits for them, and the memory manager of the scheduler
        drops those. What was sent is sent again if all workers that had it died.
        """
        from distributed import as_completed

        left = dict(enumerate(items))
        for tries in reversed(range(_TRIES)):
            try:
                with self.sent(work, broadcast=False) as function, self._speaking():
                    futures = {
                        self._client.submit(
                            call, function, item, pure=False, workers=home, allow_other_workers=True
                        ): k
                        for (k, item), home in zip(
                            left.items(), cycle(self._threads()), strict=False
                        )
                    }
                    try:
                        for future in as_completed(list(futures)):
                            result = future.result()
                            del left[futures[future]]
                            yield futures[future], result
                            future.release()
                    finally:
                        self._cancel(list(futures))
                return
            except CancelledError:
                if not tries:
                    raise ClusterError(_LOST) from None

    def _threads(self) -> list[str]:
        """The address of the worker of each thread, one thread of every worker first."""
        info = self._info()
        counts = {address: int(worker["nthreads"]) for address, worker in info.items()}
        most = max(counts.values())
        return [address for i in range(most) for address, count in counts.items() if i < count]

    def _cancel(self, futures: list[Lazy]) -> None:
        """Stop all work on these, if the cluster is still there."""
        if self._client.status == "running":
            self._client.cancel(futures, force=True)

    def chains(self, items: Sequence[Item]) -> list[list[Item]]:
        """Items in as many groups as keep all threads at work: neighbours, and of one worker.

        Items that need something are with those whose needs are on the same worker.
        """
        needs = [next(iter(getattr(item, "needs", {}).values()), None) for item in items]
        asked = [future for future in needs if future is not None]
        places = self._client.who_has(asked) if asked else {}
        homes = ["" if f is None else min(places.get(f.key, ("",)), default="") for f in needs]
        threads = self.workers().threads
        found: list[list[Item]] = []
        for home in dict.fromkeys(homes):
            mine = [item for item, other in zip(items, homes, strict=True) if other == home]
            share = max(1, round(_CHAINS_A_THREAD * threads * len(mine) / len(items)))
            count = min(len(mine), share)
            cuts = [len(mine) * i // count for i in range(count + 1)]
            found += [list(mine[a:b]) for a, b in pairwise(cuts)]
        return found

    def reduce(
        self,
        work: Callable[[Item], Result],
        merge: Callable[[Result, Result], Result],
        groups: Sequence[Sequence[Item]],
        report: Callable[[Item], None] | None = None,
    ) -> Result:
        """``work`` of all items, put together by ``merge``.

        Items of a group are worked on one after the other, each result added to what is there, so
        that few of them are held at a time and none travels; groups are then merged as a tree.
        Futures that an item ``needs`` come to its worker and are handed to ``item.having``.
        ``report`` is called with every item that got done.
        """
        for tries in reversed(range(_TRIES)):
            try:
                with self.sent((work, merge)) as functions, self._speaking():
                    found: Result = self._reduced(functions, groups, report)
                    return found
            except CancelledError:
                if not tries or self._client.status != "running":
                    raise ClusterError(_LOST) from None
        raise AssertionError

    def _reduced(
        self,
        functions: Lazy,
        groups: Sequence[Sequence[Item]],
        report: Callable[[Item], None] | None,
    ) -> Lazy:
        every: list[Lazy] = []

        def submit(work: Callable[..., Lazy], *args: Lazy) -> Lazy:
            every.append(self._client.submit(work, functions, *args, pure=False))
            return every[-1]

        try:
            ends: list[Lazy] = []
            for group in groups:
                found: Lazy = None
                for item in group:
                    found = submit(_step, item, getattr(item, "needs", {}), found)
                    if report is not None:
                        found.add_done_callback(partial(_report_done, report, item))
                ends.append(found)
            while len(ends) > 1:
                parts = [ends[i : i + _FAN_IN] for i in range(0, len(ends), _FAN_IN)]
                ends = [submit(_merged, part) for part in parts]
            return ends[0].result()
        except BaseException:
            self._cancel(every)
            raise
        finally:
            for future in every:
                future.release()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """What goes wrong between here and the cluster, in words."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError
        from distributed.core import RPCClosed

        try:
            yield
        except KilledWorker as error:
            raise ClusterError(
                f"a task ended several workers one after the other ({error}); they may have too "
                "little memory: give them more, or use fewer landmarks or smaller partitions"
            ) from error
        except (CommClosedError, RPCClosed, TimeoutError) as error:
            raise ClusterError(_LOST) from error
        except (Exception, CancelledError) as error:
            # A closed client raises whatever its threads were at.
            if self._client.status == "running":
                raise
            raise ClusterError(_LOST) from error


_LOST = (
    "the Dask cluster was closed during the work, or the connection to its scheduler, or to all "
    "workers with their data, is lost; finished work is kept. Connect to a cluster and search "
    "again; with checkpoint=... finished work is not repeated"
)


def _report_done(report: Callable[[Item], None], item: Item, future: Lazy) -> None:
    if future.status == "finished":
        report(item)


def _step(functions: tuple[Lazy, Lazy], item: Lazy, needs: dict[Lazy, Lazy], before: Lazy) -> Lazy:
    # The result so far is an argument, so that the scheduler runs a chain where its result is.
    work, merge = functions
    found = work(item.having(needs) if needs else item)
    return found if before is None else merge(before, found)


def _merged(functions: tuple[Lazy, Lazy], parts: Sequence[Lazy]) -> Lazy:
    return reduce(functions[1], parts)
