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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from everyfold.svm.core.workspace import padded, workspace
from everyfold.svm.kernel32 import Kernel32

__all__ = [
    "PairPaths",
    "PairProblems",
    "PathResults",
    "epsilon_paths",
    "hinge_paths",
    "pair_paths",
]

FloatArray = npt.NDArray[np.float64]
Kernel = npt.NDArray[np.floating] | Kernel32
Stop = npt.NDArray[np.int64]


# Up to that many rows an interrupt may wait for the steps of all, and no thread is started.
#
# While C times the kernel is not larger, they take some milliseconds.
SHORT, GENTLE = 500, 1e4


@dataclass(frozen=True)
class PathResults:
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
    spread : ndarray of shape (n_folds, n_C)
        Standard deviation of the decision values of training rows.
    coef : ndarray of shape (n_folds, n_C, n) or None
        Signed dual coefficients β, kept if asked for; what `start` takes.
    """

    decision: FloatArray
    intercept: FloatArray
    iterations: npt.NDArray[np.int64]
    violation: FloatArray
    converged: npt.NDArray[np.bool_]
    play: FloatArray
    spread: FloatArray
    coef: FloatArray | None = None


@dataclass(frozen=True)
class PairProblems:
    """Problems of two classes on rows of one kernel, one after the other in each array.

    Attributes
    ----------
    starts : int array of shape (n_pairs + 1,)
        Pair s has the entries from ``starts[s]`` to ``starts[s + 1]`` of the other arrays.
    rows : int array
        Numbers of rows of the kernel.
    y : ndarray
        Labels -1 and +1; each pair has both.
    bounds : ndarray
        Multipliers of C.
    """

    starts: npt.NDArray[np.intp]
    rows: npt.NDArray[np.intp]
    y: FloatArray
    bounds: FloatArray

    def alone(self, pair: int) -> PairProblems:
        """One of them."""
        first, last = self.starts[pair : pair + 2].tolist()
        own = slice(first, last)
        return PairProblems(
            np.array([0, last - first]), self.rows[own], self.y[own], self.bounds[own]
        )


@dataclass(frozen=True)
class PairPaths:
    """Solutions of every pair at every C, in the caller's order of pairs and Cs.

    Attributes
    ----------
    Cs : ndarray of shape (n_C,)
    coef : ndarray of shape (n_C, rows of all pairs)
        As in :class:`PairProblems` one pair after the other.
    intercept, violation, converged, play, spread : ndarray of shape (n_pairs, n_C)
        As in :class:`PathResults`.
    """

    Cs: FloatArray
    coef: FloatArray
    intercept: FloatArray
    violation: FloatArray
    converged: npt.NDArray[np.bool_]
    play: FloatArray
    spread: FloatArray


def pair_paths(
    K: Kernel32,
    pairs: PairProblems,
    Cs: npt.ArrayLike,
    *,
    tol: float = 1e-3,
    max_iter: int = 1_000_000,
    stop: Stop | None = None,
) -> PairPaths:
    """Solutions of ``SVC`` for pairs of classes, each on the kernel of its own rows, and every C.

    One call of compiled code: many pairs are small, and as many calls would cost more than they.

    Parameters
    ----------
    K : Kernel32
    pairs : Pairs
    Cs, tol, max_iter, stop
        As in :func:`hinge_paths`.

    Returns
    -------
    PairPaths

    Notes
    -----
    **Cost** and **Exact?** as for :func:`hinge_paths`, and a copy of the kernel of each pair.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.kernel32 import Kernel32
    >>> from everyfold.svm.paths import PairProblems, pair_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> rows, labels = np.array([0, 2, 3]), np.array([-1.0, 1.0, 1.0])
    >>> pair = PairProblems(np.array([0, 3]), rows, labels, np.ones(3))
    >>> paths = pair_paths(Kernel32(np.outer(x, x)), pair, [10.0], tol=1e-6)
    >>> paths.coef.round(3), paths.intercept.round(3)
    (array([[-0.222,  0.222,  0.   ]]), array([[0.333]]))
    """
    ridges, y, w = _ridges(Cs), pairs.y, pairs.bounds
    control = Control(tol, max_iter, 1, keep_coef=True, stop=stop)
    sets = _Sets(pairs.rows, pairs.starts, y, np.stack([-w * (y < 0), w * (y > 0)]), 0.0)
    nothing = np.zeros((0, len(y)))
    coef = np.zeros((len(ridges), len(y)))
    summary = np.full((len(pairs.starts) - 1, len(ridges), 5), np.nan)
    order = np.argsort(ridges, kind="stable")
    _call(K, sets, ridges[order], control, (nothing, nothing, coef, summary))
    back = np.argsort(order, kind="stable")
    coef, summary = coef[back], summary[:, back]
    intercept, _, violation, play, spread = np.moveaxis(summary, 2, 0)
    converged = violation <= tol
    return PairPaths(ridges, coef, intercept, violation, converged, _positive(play), spread)


@dataclass(frozen=True)
class _Sets:
    """Problems on one kernel, one after the other in each array."""

    rows: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    p: FloatArray
    unit: FloatArray  # (2, n)
    epsilon: float


def _call(
    kernel: Kernel32,
    sets: _Sets,
    Cs: FloatArray,
    control: Control,
    arrays: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
) -> None:
    """Run the compiled paths for ascending Cs on start, decision, coef and summary."""
    from everyfold.svm.core.drivers import fold_paths
    from everyfold.svm.joint_steps import JointSteps

    n, width = int(np.diff(sets.starts).max()), kernel.rows.shape[1]
    if len(sets.rows):
        width = padded(n)
    memory = workspace(n, width, copies=len(sets.rows) > 0)
    stop = np.zeros(1, dtype=np.int64) if control.stop is None else control.stop
    tol, most = float(control.tol), int(control.max_iter)
    numbers = sets.rows, sets.starts, sets.p, sets.unit, Cs, float(sets.epsilon)
    leaps = JointSteps(stop)
    fold_paths(kernel.rows, *numbers, tol, most, stop, *arrays, leaps.address, width, *memory)
    if leaps.error is not None:
        raise leaps.error


def _positive(play: FloatArray) -> FloatArray:
    """The room of a bias; none where there is no number, or a negative one."""
    return np.maximum(np.nan_to_num(play, posinf=np.inf), 0.0)


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
) -> PathResults:
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
    control = Control(tol, max_iter, n_threads, keep_coef, stop)
    return _solve_folds(kernel, Duals(labels, unit, 0.0), _ridges(Cs), control, start)


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
) -> PathResults:
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
    control = Control(tol, max_iter, n_threads, keep_coef, stop)
    return _solve_folds(kernel, Duals(_targets(y, w), unit, epsilon), _ridges(Cs), control, start)


@dataclass(frozen=True)
class Duals:
    """The problems of all folds: linear term, bounds for C = 1, weight of the one-norm."""

    p: FloatArray  # (n_folds, n)
    unit: FloatArray  # (n_folds, 2, n)
    epsilon: float

    def is_trainable(self, fold: int) -> bool:
        """Whether some coefficient may go down and some may go up."""
        lower, upper = self.unit[fold]
        return bool((lower < 0).any() and (upper > 0).any())


@dataclass(frozen=True)
class Control:
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
    duals: Duals,
    Cs: FloatArray,
    control: Control,
    start: npt.ArrayLike | None,
) -> PathResults:
    """Run the compiled path of every fold and put the Cs back into the caller's order."""
    order = np.argsort(Cs, kind="stable")
    shape = (len(duals.p), len(Cs), len(kernel))
    starts = None if start is None else _starts(start, duals, Cs, shape)[:, order].copy(order="C")
    decision = np.full(shape, np.nan)
    coef = np.zeros(shape if control.keep_coef else (shape[0], 0, shape[2]))
    summary = np.full((*shape[:2], 5), np.nan)
    stop = np.zeros(1, dtype=np.int64) if control.stop is None else control.stop
    nothing, none = np.zeros((0, shape[2])), np.zeros(0, dtype=np.intp)
    running, whole = replace(control, stop=stop), np.array([0, shape[2]])

    def solve(fold: int) -> None:
        begin = nothing if starts is None else starts[fold]
        arrays = begin, decision[fold], coef[fold], summary[fold : fold + 1]
        sets = _Sets(none, whole, duals.p[fold], duals.unit[fold], duals.epsilon)
        _call(kernel, sets, Cs[order], running, arrays)

    folds = [fold for fold in range(shape[0]) if duals.is_trainable(fold)]
    is_short = len(folds) == 1 and shape[2] <= SHORT
    is_short &= float(Cs.max(initial=0.0) * kernel.diagonal.max(initial=0.0)) <= GENTLE
    if control.stop is None and not is_short:
        map_interruptibly(solve, folds, control.workers, stop)
    else:
        for fold in folds:
            solve(fold)
    back = np.argsort(order, kind="stable")
    summary = summary[:, back]
    violation = summary[..., 2]
    return PathResults(
        decision=decision[:, back],
        intercept=summary[..., 0],
        iterations=np.nan_to_num(summary[..., 1]).astype(np.int64),
        violation=violation,
        converged=violation <= control.tol,
        play=_positive(summary[..., 3]),
        spread=summary[..., 4],
        coef=coef[:, back] if control.keep_coef else None,
    )


def _starts(
    start: npt.ArrayLike, duals: Duals, Cs: FloatArray, shape: tuple[int, int, int]
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


def map_interruptibly(
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
