"""Symmetric matrices: the factorisations of small ones, and what all factorisations share.

Every c×c system of the package, of low rank or of sums over rows, is factorised here: by
:func:`spectrum` for any number of ridges, by :func:`cholesky` for one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.linalg import blas, eigvalsh, lapack

from everyfold._typing import Array, Mask

# Numbers in the blocks of folds that exist at a time.
CHUNK = 8_000_000

# Up to this size NumPy's batched solver beats one LAPACK call a block.
SMALL_BLOCK = 12

# The rounding of float64.
EPS = float(np.finfo(np.float64).eps)

# A value whose estimated relative rounding error exceeds this is not called exact: the condition
# number of its system times the rounding of float64.
TRUSTED_ERROR = 1e-6

# Entries of a tall matrix that are weighted at a time, about 32 MB.
_BLOCK = 4_000_000

# The reciprocal condition number above which LAPACK's estimate is good enough, and the power
# iterations that make a better one below: 2 n² flops each, for two eigenvalues.
_CLEAR, _ITERATIONS = 1e-8, 12

# Rows of a tile when a triangle is mirrored in place: two of them stay in the cache.
_TILE = 256

# Up to _LEAF rows LAPACK inverts a triangle as fast as halves do, and from _BLOCKED on it works in
# blocks itself.
_LEAF, _BLOCKED = 64, 1024


def is_trusted(condition: float) -> bool:
    """Whether rounding errors of a system with this condition number can be neglected."""
    return condition * EPS <= TRUSTED_ERROR


def are_trusted(conditions: Array) -> Mask:
    """The same of several systems."""
    return np.asarray(conditions * EPS <= TRUSTED_ERROR)


class NotPositiveDefiniteError(ValueError, ArithmeticError):
    """K + rho I has an eigenvalue that is not positive to working precision."""


def refuse(smallest: float, rho: float) -> NotPositiveDefiniteError:
    """The error for a system that cannot be factorised, with what to do about it."""
    return NotPositiveDefiniteError(
        f"the kernel matrix plus the ridge ({rho:.3g}) is not positive definite: its smallest "
        f"eigenvalue is about {smallest:.3g}. A singular kernel (duplicate rows, low rank) needs "
        "a ridge > 0: increase alpha (or lower C). An indefinite precomputed kernel must be made "
        "positive semi-definite first, e.g. by clipping its negative eigenvalues."
    )


def spectrum(A: Array, *, overwrite: bool = False) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors by the lower triangle of A; about 9 c³ flops."""
    values, U, info = lapack.dsyevd(A, lower=1, overwrite_a=overwrite)
    if info:
        raise np.linalg.LinAlgError(f"dsyevd did not converge (info={info})")
    return values, U


def eigenvalues(A: Array) -> Array:
    """All eigenvalues of a symmetric matrix, ascending; 4/3 n³ flops."""
    return np.asarray(eigvalsh(A), dtype=np.float64)


def largest_eigenvalues(A: Array) -> Array:
    """The largest eigenvalue of each of t symmetric matrices, (t, m, m)."""
    return np.asarray(np.linalg.eigvalsh(A)[:, -1], dtype=np.float64)


def condition_at(values: Array, rho: float, scale: float = 0.0) -> float:
    """The condition number of A + ρ I by the eigenvalues of A; raises if it is not definite.

    ``scale`` is the size of what was taken off A before, if that was more than its eigenvalues.
    """
    if not values.size:
        return 1.0
    smallest, largest = float(values[0]) + rho, float(values[-1]) + rho
    if smallest <= EPS * max(largest, scale):
        raise refuse(smallest, rho)
    return largest / smallest


def cholesky(A: Array, rho: float) -> tuple[Array, float]:
    """L with A + ρ I = L Lᵀ, and the condition number; c³/3 flops. Raises if it is not definite.

    The condition number is that of the system with a diagonal of ones: the errors of a Cholesky
    factor do not depend on the sizes of rows and columns.
    """
    system = A + rho * np.eye(len(A))
    if not system.size:
        return system, 1.0
    diagonal = system.diagonal()
    size = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    unit = system / size / size[:, None]
    norm = float(np.abs(unit).sum(axis=0).max())
    L, info = lapack.dpotrf(unit, lower=1, clean=1)
    rcond = reciprocal_condition(L, norm) if info == 0 else 0.0
    if rcond <= EPS:
        raise refuse(float(np.linalg.eigvalsh(system)[0]), rho)
    return L * size[:, None], 1.0 / rcond


def solve_cholesky(L: Array, B: Array) -> Array:
    """(L Lᵀ)⁻¹ B for the lower Cholesky factor L; 2 c² flops a column."""
    return np.asarray(lapack.dpotrs(L, B, lower=1)[0])


def leading_cholesky(A: Array) -> Array:
    """The Cholesky factor of the largest leading block of A that is definite to working precision.

    It has 0 rows where not even the first diagonal entry is positive.
    """
    L, info = lapack.dpotrf(A, lower=1, clean=1)
    definite = info - 1 if info else len(A)
    return np.asarray(L[:definite, :definite])


def is_definite(A: Array) -> bool:
    """Whether a symmetric C-ordered matrix, which is overwritten, is positive definite; n³/3."""
    _, failed = lapack.dpotrf(A.T, lower=1, overwrite_a=1, clean=0)
    return not failed


def reciprocal_condition(L: Array, norm: float) -> float:
    """The smallest over the largest eigenvalue of L Lᵀ, whose largest sum over a row is ``norm``.

    LAPACK compares such sums instead, which may differ n times as much. Where that would decide
    between good systems and bad ones, power iterations of n² flops give a better estimate.
    """
    reciprocal = float(lapack.dpocon(L, norm, uplo="L")[0])
    if reciprocal > _CLEAR:
        return reciprocal
    start = np.random.default_rng(0).normal(size=len(L))
    largest = _growth(start, lambda v: blas.dtrmv(L, blas.dtrmv(L, v, lower=1, trans=1), lower=1))
    inverse = _growth(start, lambda v: solve_cholesky(L, v))
    return max(reciprocal, 1.0 / (largest * inverse))


def _growth(v: Array, times: Callable[[Array], Array]) -> float:
    """The largest eigenvalue, or hardly less, of what vectors are multiplied by."""
    for _ in range(_ITERATIONS):
        v = times(v / np.linalg.norm(v))
    return float(np.linalg.norm(v))


def gram_of_rows(A: Array) -> Array:
    """A Aᵀ for a C-ordered (m, n) matrix; where it is large, at half the flops of a product."""
    if len(A) <= _LEAF:  # filling the other triangle would cost more than computing it
        return np.asarray(blas.dgemm(1.0, A.T, A.T, trans_a=1))
    half = blas.dsyrk(1.0, A.T, trans=1, lower=1)
    return mirror(half)


def invert_lower(L: Array) -> Array:
    """The inverse of a lower triangle in Fortran order.

    LAPACK's own takes the triangle column by column; halves joined by products are twice as fast
    at 200 rows, and no slower where LAPACK is blocked.
    """
    n = len(L)
    if n <= _LEAF or n > _BLOCKED:
        inverse, _ = lapack.dtrtri(L, lower=1)
        return np.asarray(inverse)
    k = n // 2
    inverse = np.zeros((n, n), order="F")
    first = invert_lower(np.asfortranarray(L[:k, :k]))
    last = invert_lower(np.asfortranarray(L[k:, k:]))
    inverse[:k, :k], inverse[k:, k:] = first, last
    inner = np.array(L[k:, :k], order="F")
    inner = blas.dtrmm(1.0, first, inner, side=1, lower=1, overwrite_b=1)
    inverse[k:, :k] = blas.dtrmm(-1.0, last, inner, lower=1, overwrite_b=1)
    return inverse


def gram(Z: Array) -> Array:
    """ZᵀZ of a C-ordered matrix, both triangles filled, at half the flops of a product."""
    return weighted_gram(np.ascontiguousarray(Z), np.ones(len(Z)), np.zeros(Z.shape[1]))


def weighted_gram(V: Array, s: Array, centre: Array) -> Array:
    """ZᵀZ of Z = s (V − 1 centreᵀ), in blocks so that no second V is made."""
    total = np.zeros((V.shape[1], V.shape[1]), order="F")
    step = max(1, _BLOCK // max(1, V.shape[1]))
    is_plain = bool(np.all(s == 1.0)) and not centre.any()
    for i in range(0, len(V) if V.size else 0, step):
        block = V[i : i + step]
        Z = block if is_plain else (block - centre) * s[i : i + step, None]
        total = blas.dsyrk(1.0, Z.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    return mirror(total)


@lru_cache(maxsize=8)
def _is_below(n: int) -> Mask:
    """The lower triangle of an n×n matrix, with the diagonal."""
    return np.tri(n, dtype=bool)


def mirror(lower: Array) -> Array:
    """The symmetric matrix with this lower triangle, in place where it is large."""
    n = len(lower)
    if n <= _TILE:
        return np.where(_is_below(n), lower, lower.T)
    for i in range(0, n, _TILE):
        end = min(i + _TILE, n)
        lower[i:end, i:end] = mirror(lower[i:end, i:end])
        lower[i:end, end:] = lower[end:, i:end].T
    return lower


def solve_stack(A: Array, B: Array) -> Array:
    """Solve t symmetric positive definite systems, (t, m, m) and (t, m, k).

    A system that is not positive definite to working precision gives NaN: the caller decides.
    """
    m = A.shape[1]
    if m == 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(A > 0.0, B / A, np.nan)
    if m == 2:
        return _solve_pairs(A, B)
    if m <= SMALL_BLOCK:
        try:
            np.linalg.cholesky(A)
            return np.asarray(np.linalg.solve(A, B), dtype=np.float64)
        except np.linalg.LinAlgError:
            pass  # one of them is not definite: find out which below
    solved = np.empty_like(B)
    for k, (A_k, B_k) in enumerate(zip(A, B, strict=True)):
        _, x, info = lapack.dposv(A_k.T, B_k, lower=1)
        solved[k] = np.nan if info else x
    return solved


def solve_rows(A: Array, B: Array) -> Array:
    """Solve X A = B for t symmetric positive definite systems, (t, m, m) and (t, k, m).

    As ``solve_stack``, for right-hand sides that are rows, as LAPACK keeps them.
    """
    if A.shape[1] <= SMALL_BLOCK:
        return solve_stack(A, B.transpose(0, 2, 1)).transpose(0, 2, 1)
    solved = np.empty_like(B)
    for k, (A_k, B_k) in enumerate(zip(A, B, strict=True)):
        _, x, info = lapack.dposv(A_k.T, B_k.T, lower=1)
        solved[k] = np.nan if info else x.T
    return solved


def _solve_pairs(A: Array, B: Array) -> Array:
    """``solve_stack`` for m = 2, where a million pairs are a few passes over arrays."""
    a, b, d = A[:, 0, 0, None], A[:, 0, 1, None], A[:, 1, 1, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        left = d - b * (b / a)
        second = (B[:, 1] - (b / a) * B[:, 0]) / left
        first = (B[:, 0] - b * second) / a
        solved = np.stack([first, second], axis=1)
        is_definite = (a > 0.0) & (left > 0.0)
        return np.where(is_definite[:, :, None], solved, np.nan)


def solve_general(A: Array, B: Array) -> Array:
    """A⁻¹ B for matrices that need not be symmetric, one or a stack; 2 m³/3 flops each."""
    return np.asarray(np.linalg.solve(A, B), dtype=np.float64)


class FactoredStack:
    """t symmetric positive definite systems, (t, m, m), for several right-hand sides in turn.

    One that is not positive definite to working precision gives NaN. The factors take the place of
    the systems, which are large where folds are.
    """

    def __init__(self, A: Array) -> None:
        self._A = A
        self._factors = [
            lapack.dpotrf(A_k.T, lower=1, clean=0, overwrite_a=1) for A_k in A if A.shape[1] > 1
        ]

    def solve(self, B: Array) -> Array:
        """The solutions for (t, m, k) right-hand sides."""
        if self._A.shape[1] <= 1:
            return solve_stack(self._A, B)
        solved = np.empty_like(B)
        for k, (L, info) in enumerate(self._factors):
            solved[k] = np.nan if info else solve_cholesky(L, B[k])
        return solved


class DeflatedStack(FactoredStack):
    """t systems I − Q Qᵀ of tall Q, (t, m, c), solved through the c×c matrices I − QᵀQ."""

    def __init__(self, Q: Array) -> None:
        self._Q = Q
        super().__init__(np.stack([np.eye(Q.shape[2]) - gram(Q_k) for Q_k in Q]))

    def solve(self, B: Array) -> Array:
        """See base class."""
        deflated: Array = B + self._Q @ super().solve(self._Q.transpose(0, 2, 1) @ B)
        return deflated
