"""Kernel matrices in float32, as the compiled solver reads them.

libsvm computes with float32 as well. Making a :class:`Kernel32` imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from everyfold.linalg.collector import paused_collector
from everyfold.svm.core.workspace import LANES, aligned, padded

# Rows; beyond, the scalar tail of a row costs less than a copy of the kernel.
_PADDED_UP_TO = 4096

# Entries written at a time, which stay in the second-level cache.
_BLOCK = 2**15

_NOT_FINITE = "K must be finite; it has NaN or infinite entries."


class Kernel32:
    """A symmetric kernel matrix in float32, each row padded with zeros to a multiple of 32 numbers.

    The solver's loops then have no remainder. Make one where several calls use the same kernel, and
    pass it as their K: they need not convert it again.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        A C-contiguous float32 matrix of more than a few thousand rows is not copied.

    Attributes
    ----------
    rows : ndarray of float32, shape (n, width)
        K and the zeros after each row, width ≥ n.
    diagonal : ndarray of shape (n,)
        The diagonal of K in float64.

    Notes
    -----
    **Cost** 4 n² bytes and one pass over K, unless K can be used as it is.
    **Exact?** To float32, which is what libsvm computes with.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.kernel32 import Kernel32
    >>> Kernel32(np.eye(3)).rows.shape
    (3, 32)
    """

    diagonal: npt.NDArray[np.float64]
    rows: npt.NDArray[np.float32]

    def __init__(self, K: npt.NDArray[np.floating]) -> None:
        if not np.isfinite(K.sum(axis=1)).all():
            raise ValueError(_NOT_FINITE)
        self.diagonal = np.array(K.diagonal(), dtype=np.float64)
        self.rows = _padded(K, 1e-30 * float(np.abs(self.diagonal).max()))

    @classmethod
    def filled(
        cls,
        diagonal: npt.NDArray[np.float64],
        write_rows: Callable[[slice, npt.NDArray[np.float32]], None],
    ) -> Kernel32:
        """The kernel whose rows ``write_rows`` writes into the array it gets, some at a time.

        No other copy of K is needed then.
        """
        from everyfold.svm.core.state import flush

        kernel = object.__new__(Kernel32)
        kernel.diagonal = np.array(diagonal, dtype=np.float64)
        n, tiny = len(diagonal), 1e-30 * float(np.abs(diagonal).max())
        kernel.rows = _empty_rows(n, is_zero=False)
        height = max(_BLOCK // n, 1)
        piece = np.empty((height, n), dtype=np.float32)
        for start in range(0, n, height):
            block = kernel.rows[start : start + height]
            made = piece[: len(block)]
            write_rows(slice(start, start + height), made)
            if not (np.isfinite(made.min()) and np.isfinite(made.max())):
                raise ValueError(_NOT_FINITE)
            block[:, :n] = made
            block[:, n:] = 0.0
            flush(block, tiny)
        return kernel

    @classmethod
    def of(cls, K: npt.NDArray[np.floating] | Kernel32) -> Kernel32:
        """K, converted unless it is one already."""
        return K if isinstance(K, Kernel32) else cls(K)

    def restrict(self, rows: npt.NDArray[np.intp]) -> Kernel32:
        """The kernel of some of the rows, which may repeat; a copy."""
        from everyfold.svm.core.state import gather

        part = object.__new__(Kernel32)
        part.diagonal = self.diagonal[rows]
        part.rows = _empty_rows(len(rows))
        gather(self.rows, rows, part.rows)
        return part

    def double(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """The same in float64, its diagonal as it was: what libsvm, which rounds it, is given."""
        part = self.restrict(rows)
        K = part.rows[:, : len(rows)].astype(np.float64)
        np.fill_diagonal(K, part.diagonal)
        return K

    def __len__(self) -> int:
        return len(self.rows)


def _padded(K: npt.NDArray[np.floating], tiny: float) -> npt.NDArray[np.float32]:
    """K as float32 with rows padded to whole vectors, copied only where it is worth it.

    Entries below ``tiny`` become zero: they change no sum in float32, and the subnormal numbers
    which narrow kernels are full of, would slow every pass tenfold.
    """
    with paused_collector():
        from everyfold.svm.core.state import flush, smallest_magnitude

    n = len(K)
    is_ready = K.dtype == np.float32 and bool(K.flags.c_contiguous)
    if is_ready and (n > _PADDED_UP_TO or n % LANES == 0):
        kernel: Any = K if K.flags.writeable else _as_writeable(K)
        if smallest_magnitude(kernel) >= tiny:
            return np.asarray(kernel)
    padded_rows = _empty_rows(n)
    padded_rows[:, :n] = K
    flush(padded_rows, tiny)
    return padded_rows


def _empty_rows(n: int, *, is_zero: bool = True) -> npt.NDArray[np.float32]:
    """Zeros for n rows of whole vectors, on cache lines, which no row straddles needlessly.

    Memory that need not be zero is used again, and not cleared by the system first.
    """
    width = padded(n)
    return aligned(n * width, np.float32, is_zero=is_zero).reshape(n, width)


def _as_writeable(K: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """The same memory under the type of a writeable array: one compiled version serves both.

    Nothing writes to the kernel; a memory map stays protected by its pages.
    """
    owner = type("_Owner", (), {})()
    owner.__array_interface__ = {**K.__array_interface__, "data": (K.ctypes.data, False)}
    owner.kernel = K
    return np.asarray(owner)
