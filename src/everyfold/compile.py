"""Compile everything ahead of time: ``python -m everyfold.compile``.

The solvers of SVC and SVR, and that of many overlapping folds, are compiled by numba when they are
first used, and kept in a cache on disk. In an image or on a cluster, where every machine would
begin anew, run this once after installing.

The code is for the processor that it is compiled on, and another kind compiles again. Set
``NUMBA_CPU_NAME=generic`` where machines differ, and ``NUMBA_CACHE_DIR`` to say where the cache is;
both must be set where the searches run, too.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import numpy as np

__all__ = ["compile_all", "main"]


def compile_all() -> list[Path]:
    """Call every compiled function once, on a few rows; return the folders of their cache.

    **Cost** a quarter of a minute where nothing is compiled yet, otherwise a second.
    """
    from everyfold.linalg import batched as gathered
    from everyfold.linalg.jit import Entry
    from everyfold.svm.core import drivers as folds
    from everyfold.svm.core import drivers as singles
    from everyfold.svm.core import state as matrices
    from everyfold.svm.core.workspace import LANES
    from everyfold.svm.kernel32 import Kernel32
    from everyfold.svm.leave_one_out import RowRemovals, held_out_values, refit_without_rows
    from everyfold.svm.paths import svm_paths

    x, w, every = np.linspace(-1.0, 1.0, LANES), np.ones(LANES), np.arange(LANES)
    y, K = np.sign(x), np.outer(x, x)
    kernel = Kernel32(K).restrict(every)
    Kernel32(K.astype(np.float32))
    (coef,) = svm_paths(kernel, y, [1.0], w).coef
    removal = RowRemovals(1.0, coef, K @ coef, every[:1], every)
    held_out_values(kernel, y, w, [removal])
    refit_without_rows(kernel, y, w, removal)
    gathered.solve_sets(np.eye(4), np.zeros(4), np.array([[0, 1]]), np.ones((1, 2, 1)))
    found = (vars(module).values() for module in (gathered, matrices, folds, singles))
    entries = [value for values in found for value in values if type(value) is Entry]
    return sorted({entry.folder for entry in entries if entry.folder is not None})


def main() -> None:
    """Compile, and say where it is."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    start = time.perf_counter()
    folders = compile_all()
    if not folders:
        sys.exit("there is no folder for a cache; set NUMBA_CACHE_DIR to one that can be written")
    print(
        f"compiled in {time.perf_counter() - start:.1f} s; kept in {', '.join(map(str, folders))}"
    )


if __name__ == "__main__":
    main()
