"""What any module may report: how far a loop is, a warning, and words for counts and names.

A loop calls ``report_share`` or iterates over ``tracked(items)`` without knowing whether anything
shows it; ``reporting_to`` sets a listener for the loops inside, and a search has a
``ProgressListener`` that gets the shares of its units.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, TypeVar
from unicodedata import category

Listener = Callable[[float], None]
Item = TypeVar("Item")

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reporting_to(listener: Listener | None) -> Iterator[None]:
    """Have loops inside tell the listener the share that is done, from 0 to 1."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def subtask(k: int, count: int) -> Iterator[None]:
    """The k-th of so many equal parts: shares inside are shares of it."""
    if _LISTENER.get() is None or count == 1:
        yield
        return
    with reporting_share_of(k / count, (k + 1) / count):
        yield


@contextmanager
def reporting_share_of(low: float, high: float) -> Iterator[None]:
    """What is between two shares of the work: shares inside are shares of it."""
    outer = _LISTENER.get()
    if outer is None or high - low == 1.0:
        yield
        return
    with reporting_to(lambda share: outer(low + (high - low) * share)):
        yield
    outer(high)


def report_share(share: float) -> None:
    """Say that this share is done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(share)


def tracked(items: Sequence[Item]) -> Iterator[Item]:
    """Items one after the other; whoever listens is told after each.

    Examples
    --------
    >>> with reporting_to(print):
    ...     found = list(tracked("ab"))
    0.5
    1.0
    """
    for k, item in enumerate(items, start=1):
        yield item
        report_share(k / len(items))


class ProgressListener:
    """Gets how far the units of a round are; this one, and any after unpickling, ignores it."""

    is_on = False
    """Whether shares of units are wanted."""

    def begin_round(self, units: Sequence[Any]) -> None:
        """The next units are these."""

    def report_share(self, unit: Any, share: float) -> None:
        """A share of a unit is done."""

    def listener(self, unit: Any) -> Listener | None:
        """What loops inside a unit report to, if anything."""
        return partial(self.report_share, unit) if self.is_on else None

    def __reduce__(self) -> tuple[type[ProgressListener], tuple[()]]:
        # Worker processes show no progress.
        return ProgressListener, ()


# Frames of these packages stand between a warning and the user's line.
_BETWEEN = ("everyfold", "sklearn")


def warn(words: str, category: type[Warning] = UserWarning) -> None:
    """Warn in the name of the line that called this library, or scikit-learn around it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _package(frame) in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(words, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuse a value of a parameter that is none of those there are.

    Examples
    --------
    >>> check_choice("scale", "log", ("auto", "robust", None))
    Traceback (most recent call last):
        ...
    ValueError: scale='log' is not known; use 'auto', 'robust' or None
    """
    if value not in allowed:
        *others, last = map(repr, allowed)
        raise ValueError(f"{name}={value!r} is not known; use {', '.join(others)} or {last}")


def pluralise(count: int, noun: str) -> str:
    """So many of something, in words.

    Examples
    --------
    >>> pluralise(1, "candidate"), pluralise(0, "row"), pluralise(3, "class")
    ('1 candidate', '0 rows', '3 classes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def printable(text: str, keep: str = "") -> str:
    r"""The text with control characters, and what else nobody sees, written out but for ``keep``.

    Examples
    --------
    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(
        c if c.isprintable() or c in keep or category(c) == "Zs" else ascii(c)[1:-1] for c in text
    )


def rounded(value: float, digits: int, kind: str = "f") -> str:
    """The value as ``format`` writes it, with more digits where it would look like 1 and is less.

    Examples
    --------
    >>> rounded(0.5, 2), rounded(0.996, 2), rounded(1.0, 2), rounded(0.997, 0, "%")
    ('0.50', '0.996', '1.00', '99.7%')
    """
    one = 1.0
    while value < one and digits < 17 and f"{value:.{digits}{kind}}" == f"{one:.{digits}{kind}}":
        digits += 1
    return f"{value:.{digits}{kind}}"
