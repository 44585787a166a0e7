"""SIGTERM as an exception, so that what asks a search to end finds its work kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """While this lasts, SIGTERM raises ``SystemExit(143)``, where it would end the process at once.

    Only in the main thread, as Python asks for, and only where nobody has a handler of their own.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
