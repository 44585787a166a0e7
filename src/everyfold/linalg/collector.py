"""Python's garbage collector, paused where only lasting objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Do not collect garbage while numba is imported, compiles or reads its cache.

    It makes hundreds of thousands of objects, nearly all of which stay, and the collector would
    walk through those of the whole process again and again: a quarter of the time to read the
    cache.
    Threads may overlap: the one that paused it lets it go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
