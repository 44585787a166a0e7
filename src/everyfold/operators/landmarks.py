r"""Which rows stand for all: landmarks of a low-rank kernel.

With C the kernel between all rows and c landmarks and W that between the landmarks,
:math:`\tilde K = C W^+ C^\top` is the Nyström approximation; its quality is their choice.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from scipy.linalg import blas
from sklearn.exceptions import ConvergenceWarning

from everyfold._typing import Array, Index, Matrix
from everyfold.kernels import Kernel
from everyfold.linalg.symmetric import EPS, NotPositiveDefiniteError, leading_cholesky

# Pivots proposed at a time, so that columns are computed and subtracted by matrix products.
PROPOSALS = 64

# Iterations of k-means: its centres are landmarks, which need not be optimal clusters.
_KMEANS_STEPS = 20

# What is below 0 by this share of the largest value is not so by rounding.
_ROUNDING = 1e-6


def refuse_indefinite(values: Array, scale: float) -> None:
    """Raise if numbers that a positive semi-definite matrix keeps above 0 are far below it."""
    lowest = float(values.min(initial=0.0))
    if lowest < -_ROUNDING * scale:
        raise NotPositiveDefiniteError(
            "the kernel matrix is not positive semi-definite (landmarks leave a variance or an "
            f"eigenvalue of {lowest:.3g}, with values up to {scale:.3g}), so that it has no "
            "low-rank approximation of the form V Vᵀ; clip its negative eigenvalues first"
        )


def uniform(n: int, count: int, random: RandomState) -> Index:
    """Rows drawn uniformly without replacement."""
    return np.asarray(random.permutation(n)[:count], dtype=np.intp)


def centres(X: Matrix, count: int, random: RandomState) -> Array:
    """Centres of k-means clusters: landmarks that are not rows."""
    from sklearn.cluster import KMeans  # late: slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        model = KMeans(count, n_init=1, max_iter=_KMEANS_STEPS, random_state=random).fit(X)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


@dataclass(frozen=True)
class Pivots:
    """A partial Cholesky factorisation: K ≈ F Fᵀ with the residual 0 in the rows ``rows``."""

    rows: Index
    F: Array
    residual: Array
    """The diagonal of K − F Fᵀ."""


def rp_cholesky(kernel: Kernel, X: Matrix, count: int, tol: float, random: RandomState) -> Pivots:
    """Randomly pivoted Cholesky factorisation: pivots drawn by what is not yet explained.

    Pivots are proposed ``PROPOSALS`` at a time and accepted one by one with the share of their
    residual that the others left, which draws them as one at a time would (Chen, Epperly, Tropp &
    Webber 2023; Epperly, Tropp & Webber 2024).

    Parameters
    ----------
    kernel, X
        The matrix; only its diagonal and the columns of the pivots are computed.
    count : int
        The largest number of pivots.
    tol : float
        Stop when the residual trace falls to this share of the trace of K.
    random : RandomState

    Notes
    -----
    **Cost** n r kernel evaluations and n r² flops for r pivots.
    """
    diagonal = kernel.diagonal(X)
    n, total = len(diagonal), float(diagonal.sum())
    if not np.isfinite(total):
        raise ValueError(
            f"{kernel} overflows on these rows, so that none of them can be a landmark; scale the "
            "features, or use a smaller gamma or degree"
        )
    columns = np.empty((count, n))
    rows: list[int] = []
    residual = diagonal.copy()
    largest = float(np.abs(diagonal).max(initial=0.0))
    refuse_indefinite(residual, largest)
    negligible = max(tol, n * EPS) * total
    while len(rows) < count and residual.sum() > negligible:
        found = _accepted(kernel, X, columns[: len(rows)], residual, random)[: count - len(rows)]
        if not len(found):
            break
        k = len(rows)
        rows.extend(found.tolist())
        new = kernel(X[found], X) - columns[:k, found].T @ columns[:k]
        # Where the block is singular to working precision, only what comes before is kept.
        L = leading_cholesky(new[:, found])
        new, rows = new[: len(L)], rows[: k + len(L)]
        if not len(L):
            break
        # X Lᵀ = newᵀ, which is in the order that LAPACK wants.
        columns[k : len(rows)] = blas.dtrsm(1.0, L, new.T, side=1, lower=1, trans_a=1).T
        residual -= np.einsum("ij,ij->j", columns[k : len(rows)], columns[k : len(rows)])
        refuse_indefinite(residual, largest)
        np.maximum(residual, 0.0, out=residual)
        residual[rows] = 0.0
    r = len(rows)
    return Pivots(np.array(rows, dtype=np.intp), columns[:r].T.copy(), residual)


def _accepted(
    kernel: Kernel, X: Matrix, columns: Array, residual: Array, random: RandomState
) -> Index:
    """Pivots drawn in proportion to the residual, each given those before it."""
    drawn = random.choice(len(residual), PROPOSALS, p=residual / residual.sum())
    taken = X[drawn]
    block = kernel(taken, kernel.anchors(taken, drawn)) - columns[:, drawn].T @ columns[:, drawn]
    first = block.diagonal().copy()
    left, chances = first.copy(), (random.uniform(size=PROPOSALS) * first).tolist()
    # The Cholesky factor of the accepted ones, column by column: only the diagonal of what they
    # leave is kept up to date.
    factor = np.empty((PROPOSALS, PROPOSALS))
    accepted: list[int] = []
    for i, chance in enumerate(chances):
        if first[i] <= 0.0 or chance >= left[i]:
            continue
        k = len(accepted)
        column = block[:, i] - factor[:k, i] @ factor[:k] if k else block[:, i].copy()
        column /= math.sqrt(left[i])
        factor[k] = column
        column *= column
        left -= column
        accepted.append(i)
    return np.asarray(drawn[accepted], dtype=np.intp)
