"""Minima of quadratics over coefficients of a given sum, each within bounds.

A joint step of the SVM solver is one: its free coefficients stay within their bounds and keep their
sum, which the unpenalised intercept fixes.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from everyfold._typing import Array, Index

# The share of rows at their bounds above which a system of the others costs less.
FEW = 1 / 6

Bounds = tuple[Array, Array]


def boxed_step(
    K: Array, slope: Array, bounds: Bounds, total: float = 0.0, least: int = 1
) -> Array | None:
    r"""The step d of sum ``total`` that makes ½ dᵀK d + slopeᵀd small, within bounds.

    The minimum without bounds comes first. Coefficients that would leave their bounds stay there,
    and the others are minimised again, until none leaves. That is the minimum with bounds unless
    some would come back, which is not checked.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Symmetric.
    slope : ndarray of shape (m,)
    bounds : tuple of two ndarray of shape (m,)
        The least and the largest steps.
    total : float
    least : int
        Coefficients that a system must have.

    Returns
    -------
    ndarray of shape (m,) or None
        None where fewer are left for one, and where K is not positive definite.

    Notes
    -----
    **Cost** m³/3 for a factorisation. It serves while few coefficients are at a bound, since those
    are further conditions on its solution; then there is one of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.linalg.box_constrained import boxed_step
    >>> bounds = np.array([-1.0, -1.0, -1.0]), np.array([0.5, 1.0, 1.0])
    >>> boxed_step(np.eye(3), np.array([-1.0, 0.0, 0.0]), bounds)
    array([ 0.5 , -0.25, -0.25])
    """
    m, (low, high) = len(slope), bounds
    factor, info = (K, 1) if m < least else lapack.dpotrf(K.T, lower=1, clean=0)
    if info != 0:
        return None
    sides = np.ones((m, 2), order="F")
    sides[:, 0] = slope
    found, _ = lapack.dpotrs(factor, sides, lower=1, overwrite_b=1)
    bare, ones = -found[:, 0], found[:, 1]
    step = bare + (total - bare.sum()) / ones.sum() * ones
    at = np.flatnonzero((step < low) | (step > high))
    ends, columns, new = np.clip(step[at], low[at], high[at]), ones[:, None], at
    while new.size and len(at) <= FEW * m:
        columns = np.hstack([columns, _columns_of_inverse(factor, new)])
        system = np.vstack([columns.sum(axis=0), columns[at]])
        wanted = np.append(total - bare.sum(), ends - bare[at])
        _, weights, info = lapack.dposv(system, wanted)
        if info != 0:
            return None
        step = bare + columns @ weights
        step[at] = ends
        new = np.flatnonzero((step < low) | (step > high))
        at = np.append(at, new)
        ends = np.append(ends, np.clip(step[new], low[new], high[new]))
    return _step_of_others(K, slope, bounds, total, least, at, ends) if new.size else step


def _columns_of_inverse(factor: Array, which: Index) -> Array:
    units = np.zeros((len(factor), len(which)), order="F")
    units[which, np.arange(len(which))] = 1.0
    return np.asarray(lapack.dpotrs(factor, units, lower=1, overwrite_b=1)[0])


def _step_of_others(
    K: Array, slope: Array, bounds: Bounds, total: float, least: int, at: Index, ends: Array
) -> Array | None:
    """As :func:`boxed_step`, with some coefficients at their bounds from the beginning."""
    step = np.zeros(len(slope))
    step[at] = ends
    kept = np.delete(np.arange(len(slope)), at)
    rows = K.take(kept, axis=0)
    inner = bounds[0][kept], bounds[1][kept]
    left = total - float(ends.sum())
    rest = boxed_step(rows.take(kept, axis=1), slope[kept] + rows @ step, inner, left, least)
    if rest is None:
        return None
    step[kept] = rest
    return step
