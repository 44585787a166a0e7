"""How many BLAS threads a piece of work deserves.

NumPy and SciPy ship separate OpenBLAS pools whose idle threads spin; below a few hundred rows the
spinning costs far more than a second core gives. One place decides, everything else asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

SINGLE_THREAD_ROWS = 600
"""Below this size one BLAS thread is faster than two (measured by ``benchmarks/constants.py``)."""


@cache
def _controller() -> Any:
    # Listing the loaded libraries costs milliseconds; they do not change once SciPy is imported.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")


def thread_budget() -> int:
    """How many threads BLAS may use now: what other threaded work should keep to as well."""
    counts = (pool.get_num_threads() for pool in _controller().lib_controllers)
    return max((count for count in counts if count), default=1)


@contextmanager
def lone_blas(threads: int) -> Iterator[None]:
    """Limit BLAS to one thread in each of several threads of ours."""
    if threads < 2:
        yield
        return
    with _controller().limit(limits=1):
        yield


@contextmanager
def blas_threads(n_rows: int) -> Iterator[None]:
    """Limit BLAS to one thread while matrices of ``n_rows`` rows are at work, if they are small."""
    if n_rows >= SINGLE_THREAD_ROWS or thread_budget() == 1:
        yield
        return
    with _controller().limit(limits=1):
        yield
