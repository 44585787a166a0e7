r"""Fold paths of the support vector machine: libsvm's own problems, every fold, every C.

The machines are those of ``SVC`` and ``SVR``: hinge or :math:`\varepsilon`-insensitive loss with
an unpenalised bias, in signed dual coefficients :math:`\beta`,

.. math:: \min_\beta \tfrac12 \beta^\top K \beta - y^\top\beta + \varepsilon\|\beta\|_1,
          \qquad \mathbf 1^\top\beta = 0, \qquad |\beta_i| \le C w_i ,

where for the hinge :math:`\varepsilon = 0` and :math:`y_i\beta_i \ge 0`. One kernel in memory
serves all folds and all C. A row with weight 0 is not part of the problem, but its decision value
is tracked with the others, so the held-out values cost nothing extra. Each fold goes up in C, the
next one starting from the scaled solution of the last.

References
----------
.. [1] Fan, Chen, Lin (2005). Working set selection using second order information for training
   support vector machines. JMLR 6, 1889-1918.
.. [2] Torres-Barrán, Alaíz, Dorronsoro (2021). Faster SVM training via conjugate SMO. Pattern
   Recognition 111, 107644.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everyfold.svm.kernel32 import Kernel32

__all__ = [
    "FoldPaths",
    "Leaving",
    "Left",
    "Refitted",
    "epsilon_paths",
    "epsilon_without",
    "hinge_paths",
    "hinge_refits",
    "hinge_without",
]

FloatArray = npt.NDArray[np.float64]
Kernel = npt.NDArray[np.floating] | Kernel32
Stop = npt.NDArray[np.int64]

LEAVING_TOLERANCES = tuple(2.0 * 0.7**k for k in range(18))
"""Falling tolerances. At each of them the solver checks whether the sign of the held-out value is
certain, and goes on to the next one only if it is not."""


@dataclass(frozen=True)
class FoldPaths:
    """Solutions of every fold at every C, in the caller's order of folds and Cs.

    Attributes
    ----------
    decision : ndarray of shape (n_folds, n_C, n)
        Decision value f(x_i) + b of **every** row i under the model trained on the fold's training
        rows. The entries of held-out rows are the held-out values. NaN where a fold cannot be
        trained (no row, or for the hinge a single class).
    intercept : ndarray of shape (n_folds, n_C)
        The bias b, with scikit-learn's sign of ``intercept_``.
    iterations : ndarray of int, shape (n_folds, n_C)
        Pair steps taken; 0 where the solution of a smaller C already was the solution.
    violation : ndarray of shape (n_folds, n_C)
        Largest violation of the optimality conditions, libsvm's stopping quantity.
    converged : ndarray of bool, shape (n_folds, n_C)
        Whether ``violation <= tol``.
    play : ndarray of shape (n_folds, n_C)
        The length of the interval of biases that are all solutions, where no support vector is
        free; 0 where there is one bias. ``intercept`` is the middle; libsvm's is that or an end, as
        rounding decides.
    coef : ndarray of shape (n_folds, n_C, n) or None
        Signed dual coefficients β, kept if asked for; what `start` takes.
    """

    decision: FloatArray
    intercept: FloatArray
    iterations: npt.NDArray[np.int64]
    violation: FloatArray
    converged: npt.NDArray[np.bool_]
    play: FloatArray
    coef: FloatArray | None = None


def hinge_paths(
    K: Kernel,
    y: npt.ArrayLike,
    Cs: npt.ArrayLike,
    bounds: npt.ArrayLike,
    *,
    tol: float = 1e-3,
    max_iter: int = 1_000_000,
    n_threads: int = 1,
    start: npt.ArrayLike | None = None,
    keep_coef: bool = False,
    stop: Stop | None = None,
) -> FoldPaths:
    r"""Decision values of ``SVC`` for every fold and every C.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows, used as float32, as in libsvm; or a :class:`Kernel32`,
        which saves the conversion where several calls use the same kernel.
    y : array-like of shape (n,) or (n_folds, n)
        Labels -1 and +1; one row per fold where the folds are different problems, as in
        one-versus-one. Labels of rows with bound 0 are not looked at.
    Cs : array-like of shape (n_C,)
        Values of C, in any order.
    bounds : array-like of shape (n_folds, n)
        Multipliers of C: 0 for a row that is held out of the fold, 1 for an ordinary training row,
        otherwise its sample weight times its class weight.
    tol : float, default=1e-3
        Largest violation accepted, in libsvm's meaning.
    max_iter : int, default=1000000
        Pair steps allowed for each fold and C. Running out is reported, not raised.
    n_threads : int, default=1
        Folds solved at a time; -1 for all processors. The result does not depend on it.
    start : array-like of shape (n_folds, n_C, n), optional
        Feasible coefficients to start each fold and C from, in place of going up in C: the `coef`
        of a former, looser call. Take ``coef[:, selected]`` to solve only some Cs again.
    keep_coef : bool, default=False
        Whether to return the dual coefficients.
    stop : int array of shape (1,), optional
        Set it to 1 from elsewhere and the work ends soon. With it, all folds are solved in the
        calling thread.

    Returns
    -------
    FoldPaths

    Notes
    -----
    **Cost**: about 1 ns·n for each pair step; memory 8·n bytes for each fold and C (twice that with
    `keep_coef`), and up to half of K for each thread while a long run works on its active rows.

    **Exact?** To `tol`, like libsvm itself. A search can use ``tol=0.05`` for the whole grid and
    solve the best candidates again at 1e-3.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.paths import hinge_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> held_out = np.array([[1.0, 0.0, 1.0, 1.0]])  # one fold, leaving the second row out
    >>> paths = hinge_paths(np.outer(x, x), np.sign(x), [10.0], held_out, tol=1e-6)
    >>> paths.decision.round(3)
    array([[[-1.   , -0.333,  1.   ,  1.667]]])
    """
    kernel = Kernel32.of(K)
    w = _weights(bounds, len(kernel))
    labels = _targets(y, w)
    if not np.isin(labels[w > 0], (-1.0, 1.0)).all():
        raise ValueError("y must be -1 or +1 wherever bounds > 0; encode the two classes so.")
    unit = np.stack([-w * (labels < 0), w * (labels > 0)], axis=1)
    control = _Control(tol, max_iter, n_threads, keep_coef, stop)
    return _solve_folds(kernel, _Duals(labels, unit, 0.0), _ridges(Cs), control, start)


def epsilon_paths(
    K: Kernel,
    y: npt.ArrayLike,
    Cs: npt.ArrayLike,
    bounds: npt.ArrayLike,
    *,
    epsilon: float = 0.1,
    tol: float = 1e-3,
    max_iter: int = 1_000_000,
    n_threads: int = 1,
    start: npt.ArrayLike | None = None,
    keep_coef: bool = False,
    stop: Stop | None = None,
) -> FoldPaths:
    r"""Predictions of ``SVR`` for every fold and every C.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows, used as float32.
    y : array-like of shape (n,) or (n_folds, n)
        Targets.
    Cs : array-like of shape (n_C,)
        Values of C, in any order.
    bounds : array-like of shape (n_folds, n)
        Multipliers of C: 0 for a row that is held out of the fold, otherwise its sample weight.
    epsilon : float, default=0.1
        Half width of the tube within which an error is free.
    tol, max_iter, n_threads, start, keep_coef, stop
        As in :func:`hinge_paths`; `tol` is absolute, so it has the unit of y.

    Returns
    -------
    FoldPaths
        ``decision`` holds the predictions.

    Notes
    -----
    **Cost** and **Exact?** as for :func:`hinge_paths`; libsvm solves the same problem in 2n
    variables, here it has n.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.paths import epsilon_paths
    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> held_out = np.array([[1.0, 1.0, 1.0, 0.0]])  # one fold, leaving the last row out
    >>> paths = epsilon_paths(np.outer(x, x), x, [10.0], held_out, epsilon=0.5, tol=1e-6)
    >>> paths.decision.round(3)
    array([[[0.5, 1. , 1.5, 2. ]]])
    """
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be finite and at least 0, got {epsilon!r}.")
    kernel = Kernel32.of(K)
    w = _weights(bounds, len(kernel))
    unit = np.stack([-w, w], axis=1)
    control = _Control(tol, max_iter, n_threads, keep_coef, stop)
    return _solve_folds(kernel, _Duals(_targets(y, w), unit, epsilon), _ridges(Cs), control, start)


@dataclass(frozen=True)
class Left:
    """Held-out values of the rows of one :class:`Leaving`.

    Attributes
    ----------
    values : ndarray
        The decision value of each row under the model fitted without it; NaN if there is no such
        model.
    is_sure : ndarray of bool
        Whether the sign was settled, or the last tolerance reached, within ``max_iter`` pair steps.
        If not, the value is where these ended. It starts on the side of the other class (or target)
        and moves towards its own, so that it has not moved far enough.
    """

    values: FloatArray
    is_sure: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Refitted:
    """The rows of a :class:`Leaving`, each under the machine that is fitted without it.

    Attributes
    ----------
    values : ndarray
        NaN where nothing can be fitted without the row.
    violation : ndarray
        As in :class:`FoldPaths`. Where it is negative no support vector is free, and any bias of an
        interval of that width is optimal.
    """

    values: FloatArray
    violation: FloatArray


@dataclass(frozen=True)
class Leaving:
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
        Rows that may change sides meanwhile; ``rows`` always may. :func:`hinge_refits` lets all.
    """

    C: float
    coef: FloatArray
    values: FloatArray
    rows: npt.NDArray[np.intp]
    near: npt.NDArray[np.intp]


def hinge_without(
    K: Kernel,
    y: FloatArray,
    bounds: FloatArray,
    leavings: Sequence[Leaving],
    *,
    tolerances: Sequence[float] = LEAVING_TOLERANCES,
    max_iter: int = 1000,
) -> list[Left]:
    r"""Leave-one-out decision values of single rows of an ``SVC``, each by a short refit.

    A refit starts from the solution on all rows. The coefficient of the row that is left out moves
    to those rows where this raises the objective least, and pair steps minimise it from there. They
    stop at the first tolerance at which the violation is too small to change the sign of the value.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows, used as float32.
    y : ndarray of shape (n,)
        Labels -1 and +1.
    bounds : ndarray of shape (n,)
        Multipliers of C.
    leavings : sequence of Leaving
        The models and the rows to leave out of them.
    tolerances : sequence of float
        Falling.
    max_iter : int, default=1000
        Pair steps allowed for each row. A row that needs more gets the value reached by then.

    Returns
    -------
    list of Left
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
    >>> from everyfold.svm.paths import Leaving, hinge_paths, hinge_without
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> K, w, every = np.outer(x, x), np.ones(4), np.arange(4)
    >>> full = hinge_paths(K, np.sign(x), [10.0], w[None], tol=1e-6, keep_coef=True).coef[0, 0]
    >>> leaving = Leaving(10.0, full, K @ full, np.array([1]), every)
    >>> hinge_without(K, np.sign(x), w, [leaving], tolerances=[1e-6])[0].values.round(3)
    array([-0.333])
    """
    unit = np.stack([-bounds * (y < 0), bounds * (y > 0)])
    return _without(
        Kernel32.of(K), _Duals(y[None], unit[None], 0.0), leavings, tolerances, max_iter
    )


def epsilon_without(
    K: Kernel,
    y: FloatArray,
    bounds: FloatArray,
    leavings: Sequence[Leaving],
    *,
    epsilon: float = 0.1,
    tol: float = 1e-3,
    max_iter: int = 3000,
) -> list[Left]:
    """Leave-one-out predictions of single rows of an ``SVR``, each by a short refit.

    As :func:`hinge_without`, with a single tolerance in the unit of y.

    **Cost** and **Exact?** as there.
    """
    unit = np.stack([-bounds, bounds])
    return _without(Kernel32.of(K), _Duals(y[None], unit[None], epsilon), leavings, [tol], max_iter)


def hinge_refits(
    K: Kernel,
    y: FloatArray,
    bounds: FloatArray,
    leavings: Sequence[Leaving],
    *,
    tol: float = 1e-3,
    max_iter: int = 100_000,
    n_threads: int = 1,
) -> list[Refitted]:
    r"""Decision values of single rows under the ``SVC`` fitted without the row, to ``tol``.

    :func:`hinge_without` ends when a sign is sure; here a value is as good as that of a fold of
    :func:`hinge_paths`, so that values of different rows can be compared with each other.

    Parameters
    ----------
    K, y, bounds, leavings
        As in :func:`hinge_without`; every row of positive bound may move.
    tol, max_iter, n_threads
        As in :func:`hinge_paths`, for each row that is left out.

    Returns
    -------
    list of Refitted
        One for each machine.

    Notes
    -----
    **Cost** about 1 ns·n for a pair step and for each support vector, for every row.

    **Exact?** To `tol`, like libsvm itself.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.paths import Leaving, hinge_paths, hinge_refits
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> K, w, row = np.outer(x, x), np.ones(4), np.array([1])
    >>> full = hinge_paths(K, np.sign(x), [10.0], w[None], tol=1e-6, keep_coef=True).coef[0, 0]
    >>> leaving = Leaving(10.0, full, K @ full, row, row)
    >>> hinge_refits(K, np.sign(x), w, [leaving], tol=1e-6)[0].values.round(3)
    array([-0.333])
    """
    from everyfold.svm.core import refit_rows

    kernel, control = Kernel32.of(K), _Control(tol, max_iter, n_threads, keep_coef=False)
    unit = np.stack([-bounds * (y < 0), bounds * (y > 0)])
    targets = np.where(bounds > 0.0, y, 0.0)
    stop = np.zeros(1, dtype=np.int64)
    found = [
        Refitted(np.full(len(leaving.rows), np.nan), np.full(len(leaving.rows), np.inf))
        for leaving in leavings
    ]

    def solve(worker: int) -> None:
        share = slice(worker, None, control.workers)
        for leaving, left in zip(leavings, found, strict=True):
            values, violation = left.values[share].copy(), left.violation[share].copy()
            refit_rows(
                kernel.rows,
                leaving.C * unit,
                np.ascontiguousarray(leaving.coef),
                targets,
                leaving.rows[share].copy(),
                0.0,
                float(control.tol),
                int(control.max_iter),
                stop,
                values,
                violation,
            )
            left.values[share], left.violation[share] = values, violation

    _map_interruptibly(solve, list(range(control.workers)), control.workers, stop)
    return found


def _without(
    kernel: Kernel32,
    dual: _Duals,
    leavings: Sequence[Leaving],
    tolerances: Sequence[float],
    max_iter: int,
) -> list[Left]:
    """Leave rows out of models that share one problem and one kernel."""
    if not leavings:
        return []
    from everyfold.svm.core import leave_rows

    stop = np.zeros(1, dtype=np.int64)
    without = (
        leaving.values[leaving.rows] - kernel.diagonal[leaving.rows] * leaving.coef[leaving.rows]
        for leaving in leavings
    )
    found = [Left(values, np.zeros(len(values), dtype=np.bool_)) for values in without]

    def solve(_: int) -> None:
        for leaving, left in zip(leavings, found, strict=True):
            is_near = np.zeros(len(kernel), dtype=bool)
            is_near[leaving.near] = True
            is_near[leaving.rows] = False
            leave_rows(
                kernel.rows,
                leaving.C * dual.unit[0],
                np.ascontiguousarray(leaving.coef),
                leaving.values - dual.p[0],
                np.concatenate([leaving.rows, np.flatnonzero(is_near)]),
                float(dual.epsilon),
                np.array(tolerances, dtype=np.float64),
                int(max_iter),
                stop,
                left.values,
                left.is_sure,
            )

    _map_interruptibly(solve, [0], 1, stop)
    return [_finite(left) for left in found]


def _finite(left: Left) -> Left:
    is_finite = np.isfinite(left.values)
    return Left(np.where(is_finite, left.values, np.nan), left.is_sure & is_finite)


@dataclass(frozen=True)
class _Duals:
    """The problems of all folds: linear term, bounds for C = 1, weight of the one-norm."""

    p: FloatArray  # (n_folds, n)
    unit: FloatArray  # (n_folds, 2, n)
    epsilon: float

    def is_trainable(self, fold: int) -> bool:
        """Whether some coefficient may go down and some may go up."""
        lower, upper = self.unit[fold]
        return bool((lower < 0).any() and (upper > 0).any())


@dataclass(frozen=True)
class _Control:
    tol: float
    max_iter: int
    n_threads: int
    keep_coef: bool
    stop: Stop | None = None

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, got {self.tol!r}.")
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter!r}.")
        if self.n_threads == 0:
            raise ValueError("n_threads must be a positive number, or -1 for all processors.")

    @property
    def workers(self) -> int:
        return self.n_threads if self.n_threads > 0 else os.cpu_count() or 1


def _weights(bounds: npt.ArrayLike, n: int) -> FloatArray:
    w = np.ascontiguousarray(bounds, dtype=np.float64)
    if w.ndim != 2 or w.shape[1] != n:
        raise ValueError(f"bounds must have shape (n_folds, {n}), got {w.shape}.")
    if not np.isfinite(w).all() or (w < 0).any():
        raise ValueError("bounds must be finite and not negative; use 0 to hold a row out.")
    return w


def _targets(y: npt.ArrayLike, w: FloatArray) -> FloatArray:
    """Targets of each fold, with 0 where the fold does not look."""
    targets = np.asarray(y, dtype=np.float64)
    if targets.shape not in (w.shape, w.shape[1:]):
        raise ValueError(f"y must have shape {w.shape[1:]} or {w.shape}, got {targets.shape}.")
    targets = np.ascontiguousarray(np.where(w > 0, targets, 0.0))
    if not np.isfinite(targets).all():
        raise ValueError("y must be finite wherever bounds > 0.")
    return targets


def _ridges(Cs: npt.ArrayLike) -> FloatArray:
    values = np.asarray(Cs, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or not (values > 0).all():
        raise ValueError("Cs must be a one-dimensional array of positive, finite numbers.")
    return values


def _solve_folds(
    kernel: Kernel32,
    duals: _Duals,
    Cs: FloatArray,
    control: _Control,
    start: npt.ArrayLike | None,
) -> FoldPaths:
    """Run the compiled path of every fold and put the Cs back into the caller's order."""
    from everyfold.svm.core import fold_path

    order = np.argsort(Cs, kind="stable")
    shape = (len(duals.p), len(Cs), len(kernel))
    starts = None if start is None else _starts(start, duals, Cs, shape)[:, order].copy(order="C")
    decision = np.full(shape, np.nan)
    coef = np.zeros(shape if control.keep_coef else (shape[0], 0, shape[2]))
    summary = np.full((*shape[:2], 4), np.nan)
    stop = np.zeros(1, dtype=np.int64) if control.stop is None else control.stop
    nothing = np.zeros((0, shape[2]))

    def solve(fold: int) -> None:
        fold_path(
            kernel.rows,
            duals.p[fold],
            duals.unit[fold],
            Cs[order],
            float(duals.epsilon),
            float(control.tol),
            int(control.max_iter),
            stop,
            nothing if starts is None else starts[fold],
            decision[fold],
            coef[fold],
            summary[fold],
        )

    folds = [fold for fold in range(shape[0]) if duals.is_trainable(fold)]
    if control.stop is None:
        _map_interruptibly(solve, folds, control.workers, stop)
    else:
        for fold in folds:
            solve(fold)
    back = np.argsort(order, kind="stable")
    summary = summary[:, back]
    violation = summary[..., 2]
    return FoldPaths(
        decision=decision[:, back],
        intercept=summary[..., 0],
        iterations=np.nan_to_num(summary[..., 1]).astype(np.int64),
        violation=violation,
        converged=violation <= control.tol,
        play=np.maximum(np.nan_to_num(summary[..., 3], posinf=np.inf), 0.0),
        coef=coef[:, back] if control.keep_coef else None,
    )


def _starts(
    start: npt.ArrayLike, duals: _Duals, Cs: FloatArray, shape: tuple[int, int, int]
) -> FloatArray:
    """Check that coefficients are feasible; rounding at the bounds is taken off."""
    beta = np.array(start, dtype=np.float64)
    if beta.shape != shape:
        raise ValueError(f"start must have shape {shape}, got {beta.shape}.")
    lower, upper = (duals.unit[:, None, side] * Cs[:, None] for side in (0, 1))
    clipped = np.clip(beta, lower, upper)
    slack = 1e-9 * np.maximum(upper, -lower).sum(axis=2)
    is_outside = np.abs(beta - clipped).sum(axis=2) > slack
    if not (np.abs(clipped.sum(axis=2)) <= slack).all() or is_outside.any():
        raise ValueError(
            "start must be feasible: within the bounds of its fold and C, summing to zero. "
            "Pass the coef of a former call with the same bounds and Cs."
        )
    return clipped


def _map_interruptibly(
    solve: Callable[[int], None], folds: list[int], workers: int, stop: npt.NDArray[np.int64]
) -> None:
    """Map over folds in threads while this one waits, since compiled code sees no signals."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(solve, fold) for fold in folds]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop[0] = 1
            pool.shutdown(wait=False, cancel_futures=True)
            raise
