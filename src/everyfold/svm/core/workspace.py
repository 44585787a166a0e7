"""Memory that the compiled solver works in; made here, as compiled code for it takes long to make.

Needs no numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LANES = 32  # rows are padded to this many float32: four AVX2 or two AVX-512 registers
STAGGER = 144  # numbers that a vector of float32 is longer than a multiple of 4096 bytes
SIZE = 24  # numbers for the rows of a conjugate direction and two more, in whole vectors
FLOATS, DOUBLES, DIRECTION = 8, 5, 6  # vectors of a problem, and of a direction
G, UP = 0, 1  # where the gradient and one of the sides are among those of float32
BETA, LO, HI = 0, 1, 2  # where the coefficients and their bounds are among those of float64
PROBLEMS = 3  # on all rows, on the active ones, and what is kept of the former
ACTIVE = 0.7  # of all rows: fewer are worth a kernel of their own
_LINE = 64  # bytes that no vector should straddle needlessly


class Workspace(NamedTuple):
    """Arrays of one dimension, which start on a cache line.

    ``floats`` and ``doubles`` hold the vectors of three problems of the largest width,
    and ``doubles`` after them for a direction; ``integers`` for two lists of rows; ``kernel`` and
    ``active`` for the kernel of a problem and of its active rows.
    """

    floats: npt.NDArray[np.float32]
    doubles: npt.NDArray[np.float64]
    integers: npt.NDArray[np.int64]
    kernel: npt.NDArray[np.float32]
    active: npt.NDArray[np.float32]


def padded(n: int) -> int:
    """The length of a row of n numbers in whole vectors."""
    return -(-n // LANES) * LANES


def vector_stride(width: int) -> int:
    """The length of a float32 vector with which no two begin at a multiple of 4096 bytes.

    The processor takes such addresses for the same, and streams that it reads together for one.
    """
    return width + (STAGGER - width) % 1024


def aligned(count: int, kind: type[np.generic], *, is_zero: bool = False) -> npt.NDArray[Any]:
    """That many numbers from the start of a cache line on: zeros, or whatever they are."""
    size = np.dtype(kind).itemsize
    flat = (np.zeros if is_zero else np.empty)(count + _LINE // size, dtype=kind)
    first = -(flat.ctypes.data // size) % (_LINE // size)
    return flat[first : first + count]


def workspace(n: int, width: int, *, copies: bool = False, shrinks: bool = True) -> Workspace:
    """Memory for problems of up to n rows whose kernel has rows of up to this length.

    Parameters
    ----------
    n, width : int
    copies : bool, default=False
        Whether the kernel of a problem is copied from that of all rows.
    shrinks : bool, default=True
        Whether the kernel of active rows is copied from that of a problem.

    Notes
    -----
    **Cost** about half the kernel's memory, of which the system gives what is written to.
    """
    most = int(ACTIVE * n) if shrinks else 0
    return Workspace(
        aligned(PROBLEMS * FLOATS * vector_stride(width), np.float32),
        aligned(PROBLEMS * DOUBLES * width + DIRECTION * SIZE, np.float64),
        aligned(2 * n + 3, np.int64),
        aligned(n * width if copies else 0, np.float32),
        aligned(most * padded(most), np.float32),
    )
