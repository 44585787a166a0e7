"""Leave-one-out values of single rows, each by a short refit from the solution on all rows.

Leaving one row out changes few coefficients of an SVM. The compiled solver starts from those of
the fit on all rows and needs some hundred pair steps: until a sign is certain
(:func:`held_out_values`), or to the same tolerance as a fold (:func:`refit_without_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everyfold.svm.core.workspace import padded, workspace
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import SHORT, FloatArray, Kernel, map_interruptibly, unit_bounds

# Falling tolerances. At each of them the solver checks whether the sign of the held-out value is
# certain, and goes on to the next one only if it is not.
SIGN_TOLERANCES = tuple(2.0 * 0.7**k for k in range(18))


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out values of the rows of one :class:`RowRemovals`.

    Attributes
    ----------
    values : ndarray
        The decision value of each row under the model fitted without it; NaN if there is no such
        model.
    is_sure : ndarray of bool
        Whether the sign was certain, or the last tolerance reached, within ``max_iter`` pair steps.
        If not, the value is where these ended. It starts on the side of the other class (or target)
        and moves towards its own, so that it has not moved far enough.
    """

    values: FloatArray
    is_sure: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowRefits:
    """The rows of a :class:`RowRemovals`, each under the model that is fitted without it.

    Attributes
    ----------
    values : ndarray
        NaN where nothing can be fitted without the row.
    violation : ndarray
        As in :class:`PathResults`. Where it is negative no support vector is free, and any bias of
        an interval of that width is optimal.
    """

    values: FloatArray
    violation: FloatArray


@dataclass(frozen=True)
class RowRemovals:
    """A model fitted on all rows, and the rows to leave out of it, one at a time.

    Attributes
    ----------
    C : float
        The C of the model.
    coef : ndarray of shape (n,)
        Its signed dual coefficients β.
    values : ndarray of shape (n,)
        K β, its decision values without the bias.
    rows : ndarray of int
        The rows to leave out.
    near : ndarray of int
        Rows that may change sides meanwhile; ``rows`` always may. :func:`refit_without_rows`
        lets all rows change.
    """

    C: float
    coef: FloatArray
    values: FloatArray
    rows: npt.NDArray[np.intp]
    near: npt.NDArray[np.intp]


def held_out_values(
    K: Kernel,
    y: FloatArray,
    bounds: FloatArray,
    removals: Sequence[RowRemovals],
    *,
    epsilon: float | None = None,
    tolerances: Sequence[float] = SIGN_TOLERANCES,
    max_iter: int = 1000,
) -> list[HeldOutRows]:
    r"""Leave-one-out values of single rows of an ``SVC`` or ``SVR``, each by a short refit.

    A refit starts from the solution on all rows. The coefficient of the row that is held out moves
    to those rows where this raises the objective least, and pair steps minimise it from there. They
    stop at the first tolerance at which the violation is too small to change the sign of the value.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows, used as float32.
    y : ndarray of shape (n,)
        Labels -1 and +1, or the targets of a regression.
    bounds : ndarray of shape (n,)
        Multipliers of C.
    removals : sequence of RowRemovals
        The models and the rows to leave out of them.
    epsilon : float, optional
        The half width of SVR's tube. Without it the loss is SVC's hinge.
    tolerances : sequence of float
        Falling. A regression has no sign to be sure of, so that one is enough, in the unit of y.
    max_iter : int, default=1000
        Pair steps allowed for each row. A row that needs more gets the value reached by then.

    Returns
    -------
    list of HeldOutRows
        One for each model.

    Notes
    -----
    **Cost** about 1 ns·m for a pair step, m the number of rows whose coefficients may change, and
    a copy of their part of K for each model.

    **Exact?** To the tolerance at which the solver stopped, if no coefficient outside ``rows`` and
    ``near`` would change.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.leave_one_out import RowRemovals, held_out_values
    >>> from everyfold.svm.paths import svm_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> K, w, every = np.outer(x, x), np.ones(4), np.arange(4)
    >>> full = svm_paths(K, np.sign(x), [10.0], w, tol=1e-6).coef[0]
    >>> removal = RowRemovals(10.0, full, K @ full, np.array([1]), every)
    >>> held_out_values(K, np.sign(x), w, [removal], tolerances=[1e-6])[0].values.round(3)
    array([-0.333])
    """
    if not removals:
        return []
    from everyfold.svm.core.drivers import hold_out_rows

    kernel, unit = Kernel32.of(K), unit_bounds(y, bounds, epsilon)
    stop = np.zeros(1, dtype=np.int64)
    without = (
        removal.values[removal.rows] - kernel.diagonal[removal.rows] * removal.coef[removal.rows]
        for removal in removals
    )
    found = [HeldOutRows(values, np.zeros(len(values), dtype=np.bool_)) for values in without]

    def solve(_: int) -> None:
        for removal, held in zip(removals, found, strict=True):
            is_near = np.zeros(len(kernel), dtype=bool)
            is_near[removal.near] = True
            is_near[removal.rows] = False
            near = np.concatenate([removal.rows, np.flatnonzero(is_near)])
            width = padded(len(near))
            hold_out_rows(
                kernel.rows,
                removal.C * unit,
                np.ascontiguousarray(removal.coef),
                removal.values - y,
                near,
                float(epsilon or 0.0),
                np.array(tolerances, dtype=np.float64),
                int(max_iter),
                stop,
                held.values,
                held.is_sure,
                width,
                *workspace(len(near), width, copies=True, shrinks=False),
            )

    if len(kernel) <= SHORT:
        solve(0)
    else:
        map_interruptibly(solve, [0], 1, stop)
    for held in found:
        is_finite = np.isfinite(held.values)
        held.values[~is_finite] = np.nan
        held.is_sure[~is_finite] = False
    return found


def refit_without_rows(
    K: Kernel,
    y: FloatArray,
    bounds: FloatArray,
    removal: RowRemovals,
    *,
    epsilon: float | None = None,
    tol: float = 1e-3,
    max_iter: int = 100_000,
    n_threads: int = 1,
) -> RowRefits:
    r"""Values of single rows under the ``SVC`` or ``SVR`` fitted without the row, to ``tol``.

    :func:`held_out_values` ends when a sign is sure; here a value is as good as that of a fold of
    :func:`svm_paths`, so that values of different rows can be compared with each other.

    Parameters
    ----------
    K, y, bounds, removal, epsilon
        As in :func:`held_out_values`; every row of positive bound may move.
    tol, max_iter
        As in :func:`svm_paths`, for each row that is held out.
    n_threads : int, default=1
        Rows that are left out at a time. The result does not depend on it.

    Returns
    -------
    RowRefits

    Notes
    -----
    **Cost** about 1 ns·n for a pair step and for each support vector, for every row.

    **Exact?** To `tol`, like libsvm itself.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.leave_one_out import RowRemovals, refit_without_rows
    >>> from everyfold.svm.paths import svm_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> K, w, row = np.outer(x, x), np.ones(4), np.array([1])
    >>> full = svm_paths(K, np.sign(x), [10.0], w, tol=1e-6).coef[0]
    >>> removal = RowRemovals(10.0, full, K @ full, row, row)
    >>> refit_without_rows(K, np.sign(x), w, removal, tol=1e-6).values.round(3)
    array([-0.333])
    """
    from everyfold.svm.core.drivers import refit_rows

    kernel, unit = Kernel32.of(K), unit_bounds(y, bounds, epsilon)
    p, stop = np.where(bounds > 0.0, y, 0.0), np.zeros(1, dtype=np.int64)
    held = RowRefits(np.full(len(removal.rows), np.nan), np.full(len(removal.rows), np.inf))

    def solve(worker: int) -> None:
        share, width = slice(worker, None, n_threads), kernel.rows.shape[1]
        values, violation = held.values[share].copy(), held.violation[share].copy()
        refit_rows(
            kernel.rows,
            removal.C * unit,
            np.ascontiguousarray(removal.coef),
            p,
            removal.rows[share].copy(),
            float(epsilon or 0.0),
            float(tol),
            int(max_iter),
            stop,
            values,
            violation,
            width,
            *workspace(len(kernel), width),
        )
        held.values[share], held.violation[share] = values, violation

    map_interruptibly(solve, list(range(n_threads)), n_threads, stop)
    return held
