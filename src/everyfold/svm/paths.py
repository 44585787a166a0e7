r"""Fold paths of the support vector machine: libsvm's own problems, every fold, every C.

The problems are those of ``SVC`` and ``SVR``: hinge or :math:`\varepsilon`-insensitive loss with
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

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import numpy as np
import numpy.typing as npt

from everyfold.svm.core.workspace import padded, workspace
from everyfold.svm.kernel32 import Kernel32

FloatArray = npt.NDArray[np.float64]
Kernel = npt.NDArray[np.floating] | Kernel32
Stop = npt.NDArray[np.int64]


# Up to SHORT rows, and where C times the largest kernel entry is at most GENTLE, all pair steps
# together take some milliseconds: an interrupt may wait for them, and no thread is started. Above,
# Ctrl-C would have to wait too long for compiled code, which sees no signals but when it calls
# back: on SHORT rows that is every few milliseconds, whatever C.
SHORT, GENTLE = 500, 1e4


@dataclass(frozen=True)
class PathResults:
    """Solutions of one training set at every C, in the caller's order of Cs.

    Attributes
    ----------
    decision : ndarray of shape (n_C, n)
        Decision value f(x_i) + b of **every** row i under the model trained on the training rows.
        The entries of held-out rows are the held-out values. NaN where nothing can be trained (no
        row, or for the hinge a single class).
    intercept : ndarray of shape (n_C,)
        The bias b, with scikit-learn's sign of ``intercept_``.
    iterations : ndarray of int, shape (n_C,)
        Pair steps taken; 0 where the solution of a smaller C already was the solution.
    violation : ndarray of shape (n_C,)
        Largest violation of the optimality conditions, libsvm's stopping quantity.
    converged : ndarray of bool, shape (n_C,)
        Whether ``violation <= tol``.
    play : ndarray of shape (n_C,)
        The length of the interval of biases that are all solutions, where no support vector is
        free; 0 where there is one bias. ``intercept`` is the middle; libsvm's is that or an end, as
        rounding decides.
    spread : ndarray of shape (n_C,)
        Standard deviation of the decision values of training rows.
    coef : ndarray of shape (n_C, n)
        Signed dual coefficients β; what `start` takes.
    """

    decision: FloatArray
    intercept: FloatArray
    iterations: npt.NDArray[np.int64]
    violation: FloatArray
    converged: npt.NDArray[np.bool_]
    play: FloatArray
    spread: FloatArray
    coef: FloatArray


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

    def only(self, pair: int) -> PairProblems:
        """The problem of one pair."""
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
    pairs : PairProblems
    Cs, tol, max_iter, stop
        As in :func:`svm_paths`.

    Returns
    -------
    PairPaths

    Notes
    -----
    **Cost** and **Exact?** as for :func:`svm_paths`, and a copy of the kernel of each pair.

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
    checked, y = np.asarray(Cs, dtype=np.float64), pairs.y
    nothing = np.zeros((0, len(y)))
    coef = np.zeros((len(checked), len(y)))
    summary = np.full((len(pairs.starts) - 1, len(checked), 5), np.nan)
    order = np.argsort(checked, kind="stable")
    _run_compiled(
        K,
        pairs.rows,
        pairs.starts,
        y,
        unit_bounds(y, pairs.bounds, None),
        checked[order],
        0.0,
        tol,
        max_iter,
        np.zeros(1, dtype=np.int64) if stop is None else stop,
        (nothing, nothing, coef, summary),
    )
    back = np.argsort(order, kind="stable")
    coef, summary = coef[back], summary[:, back]
    intercept, _, violation, play, spread = np.moveaxis(summary, 2, 0)
    converged = violation <= tol
    return PairPaths(checked, coef, intercept, violation, converged, _play(play), spread)


def _run_compiled(
    kernel: Kernel32,
    rows: npt.NDArray[np.intp],
    starts: npt.NDArray[np.intp],
    p: FloatArray,
    unit: FloatArray,
    Cs: FloatArray,
    epsilon: float,
    tol: float,
    max_iter: int,
    stop: Stop,
    results: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
) -> None:
    """Run the compiled paths for ascending Cs.

    ``rows`` and ``starts`` are those of :class:`PairProblems`; without rows there is one problem,
    on all of them. ``p`` are linear terms, ``unit`` bounds for C = 1, and ``results`` the arrays
    start, decision, coef and summary.
    """
    from everyfold.svm.core.drivers import fold_paths
    from everyfold.svm.joint_steps import JointSteps

    n, width = int(np.diff(starts).max()), kernel.rows.shape[1]
    if len(rows):  # the problems have kernels of their own, copied from that of all rows
        width = padded(n)
    memory = workspace(n, width, copies=len(rows) > 0)
    steps = JointSteps(stop)
    while True:
        with _signals_that_stop(stop) as seen:
            fold_paths(
                kernel.rows,
                rows,
                starts,
                p,
                unit,
                Cs,
                epsilon,
                float(tol),
                int(max_iter),
                stop,
                *results,
                steps.address,
                width,
                *memory,
            )
        if not seen:
            break
        stop[0] = 0  # their handlers have not raised: the work is to be done, and begins anew
    # Compiled code cannot raise what its callback raised: it only stops.
    if steps.error is not None:
        raise steps.error


@contextmanager
def _signals_that_stop(stop: Stop) -> Iterator[list[int]]:
    """While this lasts, signals that may end a search set the flag; their handlers come after it.

    Python would call a handler as compiled code calls back, where what it raises is lost. Gives the
    signals that came. Only the main thread gets any.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, frame: FrameType | None) -> None:
        stop[0] = 1
        seen.append(number)

    asked: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    known = {number: signal.getsignal(number) for number in asked}
    handlers = {number: handler for number, handler in known.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield seen
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in seen:
        handlers[number](number, sys._getframe())


def _play(play: FloatArray) -> FloatArray:
    """The length of the interval of biases; 0 where there is no number, or a negative one."""
    return np.maximum(np.nan_to_num(play, posinf=np.inf), 0.0)


def svm_paths(
    K: Kernel,
    y: FloatArray,
    Cs: npt.ArrayLike,
    bounds: FloatArray,
    *,
    epsilon: float | None = None,
    tol: float = 1e-3,
    max_iter: int = 1_000_000,
    start: FloatArray | None = None,
    stop: Stop | None = None,
) -> PathResults:
    r"""Decision values of ``SVC``, or predictions of ``SVR``, for one training set and every C.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows, used as float32, as in libsvm; or a :class:`Kernel32`,
        which saves the conversion where several calls use the same kernel.
    y : ndarray of shape (n,)
        Labels -1 and +1, or the targets of a regression. Those of rows with bound 0 are not read.
    Cs : array-like of shape (n_C,)
        Values of C, in any order.
    bounds : ndarray of shape (n,)
        Multipliers of C: 0 for a row that is held out, 1 for an ordinary training row,
        otherwise its sample weight times its class weight.
    epsilon : float, optional
        The half width of SVR's tube, within which an error is free. Without it the loss is SVC's
        hinge.
    tol : float, default=1e-3
        Largest violation accepted, in libsvm's meaning; for SVR it has the unit of y.
    max_iter : int, default=1000000
        Pair steps allowed for each C. Running out is reported, not raised.
    start : ndarray of shape (n_C, n), optional
        Feasible coefficients to start each C from, in place of going up in C: the `coef` of a
        former, looser call. Take ``coef[selected]`` to solve only some Cs again.
    stop : int array of shape (1,), optional
        Set it to 1 from elsewhere and the work ends soon. With it, the work is done in the calling
        thread.

    Returns
    -------
    PathResults
        For SVR ``decision`` holds the predictions.

    Notes
    -----
    **Cost**: about 1 ns·n for each pair step; memory 16·n bytes for each C, and up to half of K
    while a long run works on its active rows.

    **Exact?** To `tol`, like libsvm itself. A search can use ``tol=0.05`` for the whole grid and
    solve the best candidates again at 1e-3. libsvm solves SVR in 2n variables, here it has n.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.svm.paths import svm_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> held_out = np.array([1.0, 0.0, 1.0, 1.0])  # the second row is left out
    >>> paths = svm_paths(np.outer(x, x), np.sign(x), [10.0], held_out, tol=1e-6)
    >>> paths.decision.round(3)
    array([[-1.   , -0.333,  1.   ,  1.667]])

    A regression on the same rows:

    >>> paths = svm_paths(np.outer(x, x), x, [10.0], held_out, epsilon=0.5, tol=1e-6)
    >>> paths.decision.round(3)
    array([[-1.5 , -0.75,  0.75,  1.5 ]])
    """
    kernel, w = Kernel32.of(K), np.asarray(bounds, dtype=np.float64)
    # Rows that the training set does not use have a target of 0.
    p = np.where(w > 0.0, y, 0.0).astype(np.float64)
    unit, checked = unit_bounds(p, w, epsilon), np.asarray(Cs, dtype=np.float64)
    order, n = np.argsort(checked, kind="stable"), len(w)
    nothing, shape = np.zeros((0, n)), (len(checked), n)
    begin = nothing
    if start is not None:  # rounding at the bounds is taken off
        begin = np.clip(start, *(side * checked[:, None] for side in unit))[order].copy(order="C")
    decision, coef = np.full(shape, np.nan), np.zeros(shape)
    summary = np.full((1, len(checked), 5), np.nan)
    # A flag of the caller's can only be set from outside this thread, which then may do the work.
    in_this_thread, stop = stop is not None, np.zeros(1, dtype=np.int64) if stop is None else stop

    def solve(_: int) -> None:
        results = begin, decision, coef, summary
        sizes = np.zeros(0, dtype=np.intp), np.array([0, n])
        tube = float(epsilon or 0.0)
        _run_compiled(kernel, *sizes, p, unit, checked[order], tube, tol, max_iter, stop, results)

    # Without a coefficient that may go down and one that may go up there is nothing to train.
    if (unit[0] < 0.0).any() and (unit[1] > 0.0).any():
        hardest = float(checked.max(initial=0.0) * kernel.diagonal.max(initial=0.0))
        if in_this_thread or (n <= SHORT and hardest <= GENTLE):
            solve(0)
        else:
            map_interruptibly(solve, [0], 1, stop)
    back = np.argsort(order, kind="stable")
    intercept, iterations, violation, play, spread = summary[0, back].T
    return PathResults(
        decision[back],
        intercept,
        np.nan_to_num(iterations).astype(np.int64),
        violation,
        violation <= tol,
        _play(play),
        spread,
        coef[back],
    )


def unit_bounds(y: FloatArray, w: FloatArray, epsilon: float | None) -> FloatArray:
    """The bounds of the coefficients for C = 1, lower and upper on the last axis but one.

    A coefficient of the hinge has the sign of its label; one of a tube may have either.
    """
    if epsilon is None:
        return np.stack([-w * (y < 0), w * (y > 0)], axis=-2)
    return np.stack([-w, w], axis=-2)


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
