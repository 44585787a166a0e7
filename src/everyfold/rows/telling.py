"""Who is told how far a loop over rows or folds is: whoever listens around it, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Listener = Callable[[float], None]
Item = TypeVar("Item")

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Have loops inside tell the listener the share that is done, from 0 to 1."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def within(k: int, count: int) -> Iterator[None]:
    """The k-th of so many equal parts: shares inside are shares of it."""
    outer = _LISTENER.get()
    if outer is None or count == 1:
        yield
        return
    with listening(lambda share: outer((k + share) / count)):
        yield
    outer((k + 1) / count)


def tell(share: float) -> None:
    """Say that this share is done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(share)


def told(items: Sequence[Item]) -> Iterator[Item]:
    """Items one after the other; whoever listens is told after each.

    Examples
    --------
    >>> with listening(print):
    ...     found = list(told("ab"))
    0.5
    1.0
    """
    for k, item in enumerate(items, start=1):
        yield item
        tell(k / len(items))
