r"""Fold paths of the support vector machine: libsvm's own problems, every fold, every C.

The machines are those of ``SVC`` and ``SVR``: hinge or :math:`\varepsilon`-insensitive loss with
an unpenalised bias, in signed dual coefficients :math:`\beta`,

.. math:: \min_\beta \tfrac12 \beta^\top K \beta - y^\top\beta + \varepsilon\|\beta\|_1,
          \qquad \mathbf 1^\top\beta = 0, \qquad |\beta_i| \le C w_i ,

where for the hinge :math:`\varepsilon = 0` and :math:`y_i\beta_i \ge 0`. One kernel in memory serves
all folds and all C. A row with weight 0 is not part of the problem, but its decision value is
tracked with the others, so the held-out values cost nothing extra. Each fold goes up in C, the
next one starting from the scaled solution of the last.

References
----------
.. [1] Fan, Chen, Lin (2005). Working set selection using second order information for training
   support vector machines. JMLR 6, 1889-1918.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

__all__ = ["HAS_NUMBA", "FoldPaths", "epsilon_paths", "hinge_paths"]

HAS_NUMBA: bool = find_spec("numba") is not None

FloatArray = npt.NDArray[np.float64]

_PADDED_UP_TO = 4096  # rows; beyond, the scalar tail of a row costs less than a copy of the kernel


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
    coef : ndarray of shape (n_folds, n_C, n) or None
        Signed dual coefficients β, kept if asked for; what `start` takes.
    """

    decision: FloatArray
    intercept: FloatArray
    iterations: npt.NDArray[np.int64]
    violation: FloatArray
    converged: npt.NDArray[np.bool_]
    coef: FloatArray | None = None


def hinge_paths(
    K: npt.NDArray[np.floating],
    y: npt.ArrayLike,
    Cs: npt.ArrayLike,
    bounds: npt.ArrayLike,
    *,
    tol: float = 1e-3,
    max_iter: int = 1_000_000,
    n_threads: int = 1,
    start: npt.ArrayLike | None = None,
    keep_coef: bool = False,
) -> FoldPaths:
    r"""Decision values of ``SVC`` for every fold and every C.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric kernel matrix of all rows. Used as float32, as in libsvm; a C-contiguous float32
        matrix is not copied beyond a few thousand rows.
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

    Returns
    -------
    FoldPaths

    Notes
    -----
    **Cost**: about 1 ns·n for each pair step; memory 8·n bytes for each fold and C (twice that with
    `keep_coef`), and up to half of K for each thread while a long run works on its active rows.

    **Exact?** To `tol`, like libsvm itself. A search can use ``tol=0.1`` for the whole grid and
    solve the best candidates again at 1e-3.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.smo import hinge_paths
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> held_out = np.array([[1.0, 0.0, 1.0, 1.0]])  # one fold, leaving the second row out
    >>> paths = hinge_paths(np.outer(x, x), np.sign(x), [10.0], held_out, tol=1e-6)
    >>> paths.decision.round(3)
    array([[[-1.   , -0.333,  1.   ,  1.667]]])
    """
    labels = _targets(y, _weights(bounds, K))
    w = _weights(bounds, K)
    if not np.isin(labels[w > 0], (-1.0, 1.0)).all():
        raise ValueError("y must be -1 or +1 wherever bounds > 0; encode the two classes so.")
    unit = np.stack([-w * (labels < 0), w * (labels > 0)], axis=1)
    problem = _Problem(labels, unit, 0.0)
    return _run(K, problem, Cs, _Control(tol, max_iter, n_threads, keep_coef), start)
