r"""All ridges of one right-hand side, by a tridiagonal reduction that ends once they are solved.

Householder reflections turn a symmetric matrix K, one column after the other, into a tridiagonal T.
If a first reflection turns b into a multiple of the first unit vector, then k columns give

.. math:: x_k = Q_k\,y, \quad (T_k + \rho I)\,y = Q_k^\top b, \qquad
          |b - (K + \rho I)\,x_k| = |\beta_k\,y_k|

for every ridge: the iterates of Lanczos and of conjugate gradients, by reflections that stay
orthogonal. The reduction ends where these residuals are what rounding would leave of the exact
solutions. Kernel matrices have few large eigenvalues, or many that are alike, so that k is often a
small part of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_float, c_int

import numpy as np
from scipy.linalg import blas, get_blas_funcs, lapack

from everyfold._typing import AnyArray, Array
from everyfold.linalg.blas import by_address
from everyfold.linalg.ridge_systems import Tridiagonal
from everyfold.linalg.symmetric import EPS, refuse

# Columns that are reduced together, as many as LAPACK takes; at the end fewer.
PANEL = 32

# The fewest columns of a panel at the end.
FEWEST = 8

# Up to this many rows the whole reduction is as quick.
SMALLEST = 6 * PANEL

# From this share of |K| on ridges can do with single precision: values are then off by less than
# 0.01 of the spread of the targets, and squared errors by less than 0.003 of themselves.
SINGLE = 1e-6

# Below this share of |K| a ridge needs the whole spectrum, to know whether it can be trusted.
_ILL = 1e-8


def ridge_solutions(
    A: AnyArray, rhos: Sequence[float], B: Array, *, overwrite: bool = False, precision: float = 0.0
) -> tuple[Array, Array]:
    """(A + ρI)⁻¹ B of a positive semi-definite A, (ridges, n, q), and the condition numbers.

    A matrix in single precision is reduced in single precision, in little more than half the time.

    **Cost** 4/3 (n³ − (n−k)³) flops for k of n columns, and 4 n k a ridge, where there is one
    right-hand side; 4/3 n³ for several. **Exact?** Yes, to rounding. Condition numbers are upper
    bounds, made with a smallest eigenvalue of 0, where not all columns were needed.

    With a ``precision``, predictions of new rows may be off by that share of the root mean square
    of the right-hand side: the error of f(x) is at most |r| (k(x, x) / ρ)^½ for a residual r.

    ``A`` is symmetric. With ``overwrite`` it must be in Fortran order, is overwritten, and only its
    lower triangle is read.

    Examples
    --------
    >>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> solved, _ = ridge_solutions(A, [1.0], np.array([[3.0], [3.0]]))
    >>> solved[0, :, 0]
    array([0.75, 0.75])
    """
    is_small = len(A) <= SMALLEST or B.shape[1] != 1 or min(rhos, default=0.0) <= 0.0
    if is_small or by_address(_letter(A) + "latrd") is None or not B.any():
        return Tridiagonal.of(A.T if overwrite else A).solutions(rhos, B)
    own = A if overwrite else np.array(A.T, order="F")
    return _Reduction(own, B[:, 0], precision).solve(rhos)


def _letter(A: AnyArray) -> str:
    """What the names of functions for such numbers begin with."""
    return "s" if A.dtype == np.float32 else "d"


class _Reduction:
    """The first k columns of T, and the reflections that lead to them.

    ``_A`` has the reflections below its diagonal, and what is still to be reduced behind them.
    """

    def __init__(self, A: AnyArray, b: Array, precision: float = 0.0) -> None:
        n, kind = len(A), A.dtype
        largest = float(np.abs(A.diagonal()).max())
        self._turn = _Reflection(b)
        self._letter, self._rounding = _letter(A), float(np.finfo(kind).eps)
        """Of the functions; and the residual at which a solution is exact, relative to |K| |x|."""
        # What a residual may be at a ridge of 1.
        self._allowed = precision * abs(self._turn.length) / np.sqrt(n * max(largest, EPS))
        self._A = self._turn.on_both_sides(A)
        self.k = 0
        self._diagonal = np.empty(n)
        self._beside, self._tau = np.zeros(n, kind), np.zeros(n, kind)
        self._W = np.empty((n, PANEL), kind, order="F")

    def solve(self, rhos: Sequence[float]) -> tuple[Array, Array]:
        """The solutions of all ridges, (ridges, n, 1), and the condition numbers."""
        n, smallest = len(self._A), min(rhos)
        width, left = PANEL, np.inf
        while n - self.k > 2 * PANEL:
            self._reduce_panel(width)
            before, left = left, self._left([smallest], self._cores([smallest]))
            if left <= 1.0:
                cores = self._cores(rhos)
                if self._left(rhos, cores) <= 1.0:
                    bound = self._bound
                    return self._back(cores), np.array([(bound + rho) / rho for rho in rhos])
            self._update_rest(width)
            width = _columns_left(before, left, width)
        return self._whole(rhos)

    # -- columns -----------------------------------------------------------------------------------

    def _at(self, row: int, column: int) -> int:
        """The address of an entry of the matrix."""
        return int(self._A.ctypes.data) + self._A.itemsize * (column * len(self._A) + row)

    def _reduce_panel(self, width: int) -> None:
        """Reduce the next columns; what they do to all others is left in W."""
        latrd = by_address(self._letter + "latrd")
        assert latrd is not None
        k, n = self.k, len(self._A)
        places = (array[k:].ctypes.data for array in (self._beside, self._tau))
        latrd(
            b"L",
            c_int(n - k),
            c_int(width),
            self._at(k, k),
            c_int(n),
            *places,
            self._W.ctypes.data,
            c_int(n),
        )
        self.k = k + width
        self._diagonal[k : self.k] = self._A.diagonal()[k : self.k]

    def _update_rest(self, width: int) -> None:
        """A − V Wᵀ − W Vᵀ for the rows and columns that are still to be reduced."""
        syr2k = by_address(self._letter + "syr2k")
        assert syr2k is not None
        k, n = self.k, len(self._A)
        number, stride = c_float if self._letter == "s" else c_double, c_int(n)
        syr2k(
            b"L",
            b"N",
            c_int(n - k),
            c_int(width),
            number(-1.0),
            self._at(k, k - width),
            stride,
            self._W[width:].ctypes.data,
            stride,
            number(1.0),
            self._at(k, k),
            stride,
        )

    # -- solutions ---------------------------------------------------------------------------------

    @property
    def _bound(self) -> float:
        """An upper bound of the eigenvalues of T."""
        beside = np.abs(self._beside[: self.k]).astype(np.float64)
        rows = np.abs(self._diagonal[: self.k]) + beside
        rows[1:] += beside[:-1]
        return float(rows.max())

    def _cores(self, rhos: Sequence[float]) -> Array:
        """The solutions in the columns of Q, (k, ridges)."""
        Y = np.zeros((self.k, len(rhos)), order="F")
        Y[0] = self._turn.length
        for i, rho in enumerate(rhos):
            d, e = self._diagonal[: self.k] + rho, self._beside[: self.k - 1]
            _, _, Y[:, i], failed = lapack.dptsv(d, e, Y[:, i])
            if failed:
                raise refuse(float(self._diagonal[: self.k].min()), rho)
        return Y

    def _left(self, rhos: Sequence[float], cores: Array) -> float:
        """The largest residual as a multiple of what it may be; at most 1 if all are solved.

        Infinite where a ridge is too small to be trusted without the whole spectrum.
        """
        size = float(np.abs(self._diagonal[: self.k]).max())
        if min(rhos) < _ILL * size:
            return np.inf
        last = abs(float(self._beside[self.k - 1]))
        limits = (
            self._rounding * (size + np.array(rhos)) * np.sqrt(np.einsum("ij,ij->j", cores, cores))
        )
        limits = np.maximum(limits, self._allowed * np.sqrt(rhos))
        return float(np.max(last * np.abs(cores[-1]) / limits))

    def _back(self, cores: Array) -> Array:
        """The solutions in the rows of K, (ridges, n, 1)."""
        X = np.zeros((len(self._A), cores.shape[1]), order="F")
        X[: self.k] = cores
        reflectors = np.asfortranarray(self._A[1:, : self.k])
        tail = np.asfortranarray(X[1:], dtype=self._A.dtype)
        work = 64 * cores.shape[1]
        apply = lapack.sormqr if self._letter == "s" else lapack.dormqr
        X[1:], _, _ = apply("L", "N", reflectors, self._tau[: self.k], tail, work, overwrite_c=1)
        return self._turn.of(X).T[:, :, None]

    def _whole(self, rhos: Sequence[float]) -> tuple[Array, Array]:
        """The last columns too: T is whole, and its spectrum is known."""
        k, n = self.k, len(self._A)
        last = Tridiagonal.of(self._A[k:, k:].T)
        self._A[k + 1 :, k : n - 1] = last.reflectors
        self._diagonal[k:] = last.diagonal
        self._beside[k : n - 1], self._tau[k : n - 1] = last.off_diagonal, last.tau
        reflectors = np.asfortranarray(self._A[1:, : n - 1], dtype=np.float64)
        beside, tau = (part[:-1].astype(np.float64) for part in (self._beside, self._tau))
        whole = Tridiagonal(self._diagonal, beside, reflectors, tau)
        right = np.zeros((n, 1))
        right[0] = self._turn.length
        solved, condition = whole.solutions(rhos, right)
        return self._turn.of(solved[:, :, 0].T).T[:, :, None], condition


def _columns_left(before: float, left: float, width: int) -> int:
    """How many columns are likely to do, going by what the last ones did to the residual."""
    if not 1.0 < left < before < np.inf:
        return PANEL
    needed = width * np.log(left) / np.log(before / left)
    return int(min(PANEL, max(FEWEST, np.ceil(needed))))


class _Reflection:
    """H = I − τ v vᵀ with H b = |b| e₁, but for the sign."""

    def __init__(self, b: Array) -> None:
        size = float(blas.dnrm2(b))
        sign = -1.0 if b[0] < 0.0 else 1.0
        self._v = np.array(b) / size
        self._v[0] += sign
        self._tau = 2.0 / float(self._v @ self._v)
        self.length = -sign * size
        """The first entry of H b; all others are 0."""

    def of(self, X: Array) -> Array:
        """H X."""
        turned: Array = X - np.outer(self._tau * self._v, self._v @ X)
        return turned

    def on_both_sides(self, A: AnyArray) -> AnyArray:
        """H A H by the lower triangle of A, which is overwritten; 4 n² flops."""
        symv, syr2 = get_blas_funcs(("symv", "syr2"), dtype=A.dtype)
        w = symv(self._tau, A, self._v, lower=1)
        w -= (0.5 * self._tau * float(w @ self._v)) * self._v
        turned: AnyArray = syr2(-1.0, self._v, w, a=A, lower=1, overwrite_a=1)
        return turned
