"""Preconditioners AᵀDA + P of tall matrices, made in single precision and kept for many uses."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import blas, lapack

from everyfold._typing import Array
from everyfold.linalg.symmetric import solve_cholesky

# What is added to a diagonal of ones where rounding in single precision has left no definite
# matrix; a preconditioner may be as far off.
_LIFT = 1e-6

# Entries that are weighted at a time, about 32 MB.
_BLOCK = 8_000_000


class TallPreconditioner(ABC):
    r"""Nearly the inverse of :math:`A^\top D A + P` for a diagonal P that may change."""

    @abstractmethod
    def add(self, penalty: Array) -> None:
        """Take this P, (c,)."""

    @abstractmethod
    def solve(self, B: Array) -> Array:
        """The inverse times B, (c, k)."""


class GramPreconditioner(TallPreconditioner):
    """From the Gram matrix.

    **Cost** n c² flops in single precision, and c³/3 for every other P.
    """

    def __init__(self, A: Array, D: Array) -> None:
        """From a C-ordered matrix in single precision, (n, c), and weights of its rows, (n,)."""
        root = np.sqrt(D, dtype=np.float32)[:, None]
        total = np.zeros((A.shape[1], A.shape[1]), dtype=np.float32, order="F")
        step = max(1, _BLOCK // A.shape[1])
        for i in range(0, len(A), step):
            Z = A[i : i + step] * root[i : i + step]
            total = blas.ssyrk(1.0, Z.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        self._gram = total

    def add(self, penalty: Array) -> None:
        """See base class; c³/3 flops."""
        system = self._gram.astype(np.float64)
        diagonal = system.diagonal() + penalty
        self._size = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        system /= self._size
        system /= self._size[:, None]
        lift = 0.0
        while True:
            np.fill_diagonal(system, 1.0 + lift)
            L, info = lapack.dpotrf(system, lower=1, clean=0)
            if not info:
                break
            lift = max(_LIFT, 10.0 * lift)
        self._L = L

    def solve(self, B: Array) -> Array:
        """See base class; 2 c² flops a column."""
        solved: Array = solve_cholesky(self._L, B / self._size[:, None]) / self._size[:, None]
        return solved


class DiagonalPreconditioner(TallPreconditioner):
    """The same of the diagonal alone: 2 n c flops."""

    def __init__(self, A: Array, D: Array) -> None:
        self._squares = np.einsum("ij,ij,i->j", A, A, D.astype(np.float32), dtype=np.float64)

    def add(self, penalty: Array) -> None:
        """See base class."""
        total = self._squares + penalty
        self._total = np.where(total > 0.0, total, 1.0)[:, None]

    def solve(self, B: Array) -> Array:
        """See base class."""
        solved: Array = B / self._total
        return solved
