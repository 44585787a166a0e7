r"""Approximate inverses of :math:`S K S + \lambda I` for many S at once: those of Newton steps.

A partial Cholesky factor of K, with what it leaves of the diagonal, is made once for a kernel.
For every S, of which a fold has its own, it gives the inverse of
:math:`S (F F^\top + \Delta) S + \lambda I`; where S has few rows, the matrix itself is factorised.
Where S has most of the rows, and one value for all of them, as with hinges, its inverse follows
from that of all rows: for a set O of rows that are left out,

.. math:: A_{TT}^{-1} = G_{TT} - G_{TO} G_{OO}^{-1} G_{OT} , \qquad G = A^{-1} .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from everyfold._typing import AnyArray, Array, Index, Mask
from everyfold.linalg.symmetric import EPS, leading_cholesky, mirror

# Pivots that are drawn at a time, so that their columns are subtracted by products of matrices.
_AT_A_TIME = 64

# A matrix of so many ranks is factorised as it is: that takes no longer than its low-rank part.
_FEW_ROWS = 2.4

# The inverse of all rows is made where it saves so much of its own cost at once: it serves further
# steps. Huber's hinge, 10 folds of 1000 rows, 5 x 6 candidates: 2.7 s with it, 4.0 s without.
_SAVING = 0.5

# What the low-rank part leaves of a diagonal, beside the ridge, where it is enough.
_LITTLE = 0.25


class WholeInverse:
    """The last inverse of s² K + λ I that was made of a kernel, for columns of most rows."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._inverse: AnyArray | None = None

    def find(self, basis: KernelBasis, S: AnyArray, ridges: AnyArray) -> AnyArray | None:
        """That for some columns; None if it does not serve them, or not enough to be made.

        **Cost** n³ flops.
        """
        n, s, ridge = len(S), S.max(initial=0.0), ridges[0]
        is_alike = s > 0.0 and bool((ridges == ridge).all() and ((S == 0.0) | (s == S)).all())
        if not is_alike or basis.rest.max(initial=0.0) <= _LITTLE * ridge:
            return None
        key = basis.K.dtype, float(s), float(ridge)
        if key != self._key:
            m = np.count_nonzero(S, axis=0).astype(np.float64)
            if np.maximum(m**3 - (n - m) ** 3, 0.0).sum() / 3.0 < _SAVING * n**3:
                return None
            A = basis.K * (s * s)
            A[np.arange(n), np.arange(n)] += ridge
            invert = lapack.spotri if A.dtype == np.float32 else lapack.dpotri
            self._key, self._inverse = key, mirror(invert(_cholesky(A), lower=1)[0])
        return self._inverse


@dataclass(frozen=True)
class KernelBasis:
    """A kernel matrix K ≈ F Fᵀ + diag(rest), in the precision of what is made from it.

    Attributes
    ----------
    K : array of shape (n, n)
    F : array of shape (n, r)
    rest : array of shape (n,)
    shorter : tuple of pairs
        The rest of fewer columns, with their number, ascending.
    """

    K: AnyArray
    F: AnyArray
    rest: AnyArray
    shorter: tuple[tuple[int, AnyArray], ...] = ()

    @classmethod
    def of(cls, K: Array, most: int, enough: float, seed: int = 0) -> KernelBasis:
        """Draw pivots by what is left of the diagonal, until it is ``enough`` everywhere.

        **Cost** n r² flops for r pivots, ``most`` at the most.
        """
        n, random = len(K), np.random.default_rng(seed)
        rest = np.maximum(K.diagonal(), 0.0)
        F, rank = np.empty((n, min(most, n)), order="F"), 0
        shorter: list[tuple[int, Array]] = []
        while rank < F.shape[1] and rest.max(initial=0.0) > max(enough, n * EPS * K.max()):
            drawn = np.unique(random.choice(n, _AT_A_TIME, p=rest / rest.sum()))
            drawn = random.permutation(drawn)[: F.shape[1] - rank]
            new = K[:, drawn] - F[:, :rank] @ F[drawn, :rank].T
            L = leading_cholesky(new[drawn])
            if not len(L):
                break
            shorter.append((rank, rest.copy()))
            after = rank + len(L)
            F[:, rank:after] = blas.dtrsm(1.0, L, new[:, : len(L)], side=1, lower=1, trans_a=1)
            rest -= np.einsum("ij,ij->i", F[:, rank:after], F[:, rank:after])
            np.maximum(rest, 0.0, out=rest)
            rest[drawn[: len(L)]] = 0.0
            rank = after
        return cls(K, F[:, :rank], rest, tuple(shorter))

    def single(self) -> KernelBasis:
        """The same in single precision."""
        F = np.asfortranarray(self.F, dtype=np.float32)
        shorter = tuple((rank, rest.astype(np.float32)) for rank, rest in self.shorter)
        return KernelBasis(self.K.astype(np.float32), F, self.rest.astype(np.float32), shorter)

    def leading(self, enough: float) -> KernelBasis:
        """As few of the columns as leave no more than that, or all of them."""
        for rank, rest in self.shorter:
            if rest.max(initial=0.0) <= enough:
                return KernelBasis(self.K, self.F[:, :rank], rest)
        return self

    @property
    def rank(self) -> int:
        """The number of pivots."""
        return int(self.F.shape[1])

    @property
    def largest(self) -> float:
        """About the largest eigenvalue of K."""
        top = np.linalg.norm(self.F.T @ self.F, 2) if self.rank else 0.0
        return float(top) + float(self.rest.max(initial=0.0))


@dataclass(frozen=True)
class KernelSystems:
    """Approximate inverses of S K S + λ I, one for each column of S."""

    basis: KernelBasis
    S: AnyArray
    inverse: AnyArray
    """Of the diagonal part, for the low-rank ones; λ⁻¹ where S is 0."""
    factors: tuple[tuple[Index | None, AnyArray], ...]
    """Of each column: its rows and the factor of their matrix, or None and that of low rank; with
    the inverse of all rows, those that are left out and the factor of their part of it."""
    whole: AnyArray | None = None
    """The inverse of all rows, where columns are made of it."""

    @classmethod
    def of(
        cls,
        basis: KernelBasis,
        S: AnyArray,
        ridges: AnyArray,
        is_whole: Mask,
        known: WholeInverse | None = None,
    ) -> KernelSystems:
        """Factorise them, some of them as they are.

        **Cost** of a column m r² flops for the m rows of its S, or m³/3 if that is less; from the
        inverse of all rows (n − m)³/3.
        """
        if known is not None and not is_whole.any() and 2 * np.count_nonzero(S) > S.size:
            found = known.find(basis, S, ridges)
            if found is not None:
                left = [np.flatnonzero(s == 0.0) for s in S.T]
                parts = tuple((rows, _cholesky(found.take(rows, 0).take(rows, 1))) for rows in left)
                return cls(basis, S, np.broadcast_to(1.0 / ridges, S.shape), parts, found)
        inverse = 1.0 / (S * S * basis.rest[:, None] + ridges)
        factors: list[tuple[Index | None, AnyArray]] = []
        for s, own, ridge, whole in zip(S.T, inverse.T, ridges, is_whole, strict=True):
            rows = np.flatnonzero(s)
            if whole or len(rows) <= _FEW_ROWS * basis.rank:
                factors.append((rows, _factor(basis, rows, s[rows], ridge)))
            else:
                factors.append((None, _low_rank_factor(basis, rows, s * np.sqrt(own))))
        return cls(basis, S, inverse, tuple(factors))

    @property
    def is_exact(self) -> bool:
        """Whether nothing but rounding is left of their equations."""
        return self.whole is None and all(rows is not None for rows, _ in self.factors)

    def subset(self, columns: Index) -> KernelSystems:
        """Some of them."""
        factors = tuple(self.factors[j] for j in columns)
        S, inverse = self.S[:, columns], self.inverse[:, columns]
        return KernelSystems(self.basis, S, inverse, factors, self.whole)

    def solve(self, B: AnyArray) -> AnyArray:
        """The inverses times the columns of B; 4 n r flops a column, or 2 m², or 4 n²."""
        X = self.inverse * B
        if self.whole is not None:
            return self._from_whole(B, X)
        is_low = np.array([rows is None for rows, _ in self.factors])
        potrs = lapack.spotrs if X.dtype == np.float32 else lapack.dpotrs
        if is_low.any() and self.basis.rank:
            S_X = self.S * X if is_low.all() else (self.S * X)[:, is_low]
            V = self.basis.F.T @ S_X
            lows = [L for rows, L in self.factors if rows is None]
            for j, L in enumerate(lows):
                V[:, j] = potrs(L, V[:, j], lower=1)[0]
            X[:, is_low] -= (self.inverse * self.S)[:, is_low] * (self.basis.F @ V)
        for j, (rows, L) in enumerate(self.factors):
            if rows is not None and len(rows):
                X[rows, j] = potrs(L, B[rows, j], lower=1)[0]
        return X

    def _from_whole(self, B: AnyArray, X: AnyArray) -> AnyArray:
        """The same by the inverse of all rows; X has what it is to be where S is 0."""
        is_in, potrs = self.S != 0.0, lapack.spotrs if X.dtype == np.float32 else lapack.dpotrs
        found, pushed = self.whole @ np.where(is_in, B, 0.0), np.zeros_like(X)
        for j, (rows, L) in enumerate(self.factors):
            if rows is not None and len(rows):
                pushed[rows, j] = potrs(L, found[rows, j], lower=1)[0]
        return np.where(is_in, found - self.whole @ pushed, X)


def _factor(basis: KernelBasis, rows: Index, s: AnyArray, ridge: float) -> AnyArray:
    """The Cholesky factor of S K S + λ I on the rows of S."""
    A = basis.K.take(rows, 0).take(rows, 1)
    A *= s
    A *= s[:, None]
    A[np.arange(len(A)), np.arange(len(A))] += ridge
    return _cholesky(A)


def _low_rank_factor(basis: KernelBasis, rows: Index, w: AnyArray) -> AnyArray:
    """That of I + Fᵀ W F."""
    if not basis.rank:
        return basis.F[:0]
    Z = basis.F if len(rows) == len(w) else basis.F.take(rows, 0)
    Z = np.multiply(Z, w[rows, None], order="C")
    syrk = blas.ssyrk if Z.dtype == np.float32 else blas.dsyrk
    gram = syrk(1.0, Z.T, lower=1)
    gram[np.arange(len(gram)), np.arange(len(gram))] += 1.0
    return _cholesky(gram)


def _cholesky(A: AnyArray) -> AnyArray:
    """A factor; of rounding, a diagonal that is raised as far as it takes."""
    potrf = lapack.spotrf if A.dtype == np.float32 else lapack.dpotrf
    lift = 0.0
    while True:
        L, failed = potrf(A.T if A.flags.c_contiguous else A, lower=1, clean=0)
        if not failed or not np.isfinite(lift):
            return np.asarray(L)
        size = float(np.abs(A.diagonal()).max(initial=1.0)) * float(np.finfo(A.dtype).eps)
        lift = max(10.0 * lift, size)
        A[np.arange(len(A)), np.arange(len(A))] += lift
