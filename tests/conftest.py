"""Properties are tried on the same examples every time, and BLAS has one thread.

Tests compare digits, and count threads and steps of progress. NumPy reads the variable as it is
imported, which comes after this; workers and shells that tests start have it as well.
"""

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def fresh_warnings():
    """Every test is told of refits as a process of its own would be."""
    from everyfold.engine.reading.reader import forget_warnings

    forget_warnings()
