"""Preconditioners AᵀDA + P of tall matrices, made in single precision and kept for many uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from everyfold._typing import Array

# What is added to a diagonal of ones where rounding in single precision has left no definite
# matrix; a preconditioner may be as far off.
_LIFT = 1e-6

# What is tried in turn; the last is more than rounding can ask for. And the least share of the
# largest entry of a diagonal that an entry may have where it is not scaled.
_LIFTS, _FLOOR = (0.0, *(_LIFT * 10.0**k for k in range(12))), 1e-12

# The smallest pivot, of a diagonal of ones, that single precision is trusted with.
_FEW_DIGITS = 1e-5

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
        self._gram = _gram(A, D, np.float32)
        self._finer: Callable[[], Array] | None = lambda: _gram(A, D, np.float64)

    def copy(self) -> GramPreconditioner:
        """The same matrix, for another P."""
        found = self.__class__.__new__(self.__class__)
        found._gram, found._finer = self._gram, self._finer
        return found

    def add(self, penalty: Array) -> None:
        """See base class; c³/3 flops.

        Where single precision has too few digits, as errors would seem smaller than they are, the
        Gram matrix is made again in double precision.
        """
        self._size, L, is_lifted = _scaled_factor(self._gram.astype(np.float64), penalty)
        if self._finer is not None and (is_lifted or L.diagonal().min() ** 2 < _FEW_DIGITS):
            self._gram, self._finer = self._finer(), None
            self.add(penalty)
            return
        self._L = L if self._gram.dtype == np.float64 else L.astype(np.float32)

    def solve(self, B: Array) -> Array:
        """See base class; 2 c² flops a column."""
        size = self._size[:, None]
        solve = lapack.dpotrs if self._L.dtype == np.float64 else lapack.spotrs
        solved, _ = solve(self._L, (B / size).astype(self._L.dtype), lower=1)
        return np.asarray(solved / size, dtype=np.float64)

    def squares(self, B: Array) -> Array:
        """bᵀ (AᵀDA + P) b of every column b of B, (k,); c² flops a column."""
        turned = np.asarray(self._size[:, None] * B, dtype=self._L.dtype)
        trmm = blas.dtrmm if self._L.dtype == np.float64 else blas.strmm
        turned = trmm(1.0, self._L, turned, lower=1, trans_a=1)
        found: Array = np.einsum("ij,ij->j", turned, turned, dtype=np.float64)
        return found


def _gram(A: Array, D: Array, kind: type) -> Array:
    """The lower triangle of AᵀDA in single or double precision, in blocks of rows."""
    root: Array = np.sqrt(D)[:, None].astype(kind)
    total: Array = np.zeros((A.shape[1], A.shape[1]), dtype=kind, order="F")
    syrk = blas.ssyrk if kind is np.float32 else blas.dsyrk
    step = max(1, _BLOCK // A.shape[1])
    for i in range(0, len(A), step):
        Z = A[i : i + step] * root[i : i + step]
        summed = syrk(1.0, Z.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        total = np.asarray(summed, dtype=kind)
    return total


def _scaled_factor(system: Array, penalty: Array) -> tuple[Array, Array, bool]:
    """A Cholesky factor of A + diag(penalty) scaled to a diagonal of ones, which is overwritten.

    The scales come first; last whether the diagonal was raised, as rounding left no definite
    matrix.
    """
    diagonal = system.diagonal() + penalty
    size = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    system /= size
    system /= size[:, None]
    for lift in _LIFTS:
        np.fill_diagonal(system, 1.0 + lift)
        L, info = lapack.dpotrf(system, lower=1, clean=0)
        if not info:
            return size, L, lift > 0.0
    return size, np.eye(len(size), order="F"), True  # not finite: the diagonal is all that is known


class OwnSystems:
    """The inverses of AᵀDA + P for a D and P of each model, of rows of which few have weight.

    **Cost** m c² + c³/3 flops for each model with m such rows.
    """

    def __init__(self, rows: Callable[[NDArray[np.intp]], Array], D: Array, P: Array) -> None:
        """From a function that gives some of the rows of A, D of shape (n, t) and P (c, t)."""
        self._size = np.empty_like(P)
        self._factors = []
        for j in range(D.shape[1]):
            active = np.flatnonzero(D[:, j])
            Z = rows(active) * np.sqrt(D[active, j, None])
            self._size[:, j], L, _ = _scaled_factor(blas.dsyrk(1.0, Z.T, lower=1), P[:, j])
            self._factors.append(L)

    def solve(self, B: Array) -> Array:
        """The inverse of each model times its column of B, (c, t)."""
        solved = np.empty_like(B)
        for j, L in enumerate(self._factors):
            solved[:, j] = lapack.dpotrs(L, B[:, j] / self._size[:, j], lower=1)[0]
        return np.asarray(solved / self._size)


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


class CoupledPreconditioner(TallPreconditioner):
    """Of several columns of values for a row, which add up to 0: systems of all their coefficients.

    Models that leave out some parts of the rows have a system of their own each, made of the Gram
    matrices of these parts: where few rows have curvature, one for all serves none of them.

    **Cost** n c² (K - 1)² flops in single precision, and ((K - 1) c)³/3 for each system and other
    P; 2 ((K - 1) c)² for a model and a use.
    """

    def __init__(self, A: Array, D: Array, parts: NDArray[np.intp], outside: Array) -> None:
        """From the mean second derivatives D, (n, K, K), and the part that each row is in.

        ``outside``, (systems, parts), says which parts are left out of each system.
        """
        self._basis = _sum_zero(D.shape[1])
        D = np.einsum("ka,nkl,lb->nab", self._basis, D, self._basis, optimize=True)
        D = D.astype(np.float32)
        c, width = A.shape[1], D.shape[1]
        self._width = width
        total = np.zeros((width * c, width * c), dtype=np.float32, order="F")
        self._grams = [total.copy(order="F") for _ in outside] if len(outside) > 1 else [total]
        for part in range(outside.shape[1]):
            rows = np.flatnonzero(parts == part)
            own, bends = A[rows], D[rows]
            for k in range(width):
                for j in range(k + 1):
                    block = own.T @ (own * bends[:, k, j, None])
                    for gram, without in zip(self._grams, outside, strict=True):
                        if not without[part]:
                            gram[k * c : (k + 1) * c, j * c : (j + 1) * c] += block

    def add(self, penalty: Array) -> None:
        """See base class; P is that of every value."""
        self._factors = []
        for gram in self._grams:
            diagonal = gram.diagonal() + np.tile(penalty, self._width)
            # A class that a fold does not have, or that no row of it is uncertain of, has no
            # curvature, and its intercept no penalty.
            diagonal = np.maximum(diagonal, _FLOOR * max(diagonal.max(), _FLOOR))
            for lift in _LIFTS:
                L = gram.copy(order="F")
                np.fill_diagonal(L, diagonal * (1.0 + lift))
                L, info = lapack.spotrf(L, lower=1, clean=0, overwrite_a=1)
                if not info:
                    break
            else:  # numbers that single precision does not hold; the models end as not exact
                L = np.eye(len(diagonal), dtype=np.float32, order="F")
            self._factors.append(L)

    def solve(self, B: Array) -> Array:
        """See base class; B has a column for each model and value."""
        return self.of_models(B, np.arange(len(self._factors)))

    def of_models(self, B: Array, models: NDArray[np.intp]) -> Array:
        """The inverses of some of the models times their columns of B, (c, models · K)."""
        c, turned = len(B), B.reshape(len(B), len(models), -1) @ self._basis
        found = np.empty((len(models), self._width * c))
        for j, model in enumerate(models.tolist()):
            L = self._factors[model if len(self._factors) > 1 else 0]
            x = blas.strsv(L, turned[:, j].T.ravel().astype(np.float32), lower=1)
            found[j] = blas.strsv(L, x, lower=1, trans=1)
        back = found.reshape(len(models), self._width, c).transpose(2, 0, 1) @ self._basis.T
        return np.reshape(back, B.shape)


def _sum_zero(width: int) -> Array:
    """Orthonormal columns whose entries add up to 0, (width, width - 1)."""
    return np.linalg.qr(np.hstack([np.ones((width, 1)), np.eye(width)[:, :-1]]))[0][:, 1:]
