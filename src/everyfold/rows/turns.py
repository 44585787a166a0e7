"""One iterator for several threads, which take its items in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns(Generic[Item]):
    """Items that so many threads take in turn: which has which depends on their number alone.

    Examples
    --------
    >>> turns = Turns[str](2)
    >>> letters = iter("abc")
    >>> one, two = (turns.of(k, lambda: letters) for k in range(2))
    >>> next(one), next(two), next(one), next(two, None)
    ('a', 'b', 'c', None)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._turn = 0
        self._items: Iterator[Item] | None = None
        self._is_over = False
        self._changed = threading.Condition()

    def of(self, number: int, begin: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """The items of a thread; whose turn is first begins the iterator."""
        while (item := self._next(number, begin)) is not None:
            yield item

    def _next(self, number: int, begin: Callable[[], Iterator[Item]]) -> Item | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._turn % self._count == number)
            if self._is_over:
                return None
            self._is_over = True  # unless there is another item
            try:
                self._items = begin() if self._items is None else self._items
                item = next(self._items, None)
                self._is_over = item is None
            finally:
                self._turn += 1
                self._changed.notify_all()
            return item

    def stop(self) -> None:
        """Have all threads come to an end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of the iterator."""
        self._items = None


def by_threads(
    works: Sequence[Callable[[], Result]],
    merge: Callable[[Result, Result], Result],
    turns: Turns[Item],
) -> Result:
    """What works on the items of some turns give, each in a thread, merged in their order.

    The first is done by the thread that asks, which is the one that progress is told in.
    """

    def guarded(work: Callable[[], Result]) -> Result:
        try:
            return work()
        except BaseException:
            turns.stop()
            raise

    with closing(turns), ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(guarded, work) for work in works[1:]]
        found = guarded(works[0])
        for other in others:
            found = merge(found, other.result())
    return found
