r"""The squared error of held-out predictions, and its gradient in every gamma and the ridge.

With R the residual maker of the fit on all rows, the held-out residuals of a fold S are
:math:`R_{SS}\,e_S = (Rz)_S` (``crossval/closed_form.py``). R is an inverse of
:math:`K + \rho I`, but for weights, the intercept and a factor, so that
:math:`dR = -R\,dK\,R`. For any smooth function L of the residuals with
:math:`R_{SS}\,w_S = \partial L/\partial e_S`,

.. math:: dL = \langle B, dK + d\rho\,I\rangle, \qquad
          B = \mathrm{sym} \sum_S R_{:S} w_S\,(R_{:S} e_S - R z)^\top .

The second factor is, but for its sign, the dual coefficients of the model without S. All gammas and
the ridge together therefore cost about what one candidate does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from everyfold._typing import Array, Route
from everyfold.folds import Folds
from everyfold.operators.base import SupportsGradient, SupportsResponse
from everyfold.solvers import Problem


@dataclass(frozen=True)
class ErrorSlopes:
    """The error of held-out predictions, and how it changes.

    Attributes
    ----------
    value : float
        The mean over the folds of their mean squared errors, averaged over targets; NaN where a
        block was not positive definite to working precision.
    log_gamma : array of shape (d,)
        Derivatives in the logarithm of each feature's gamma; of a single gamma, their sum.
    log_ridge : float
        The derivative in the logarithm of the ridge.
    fold_errors : array of shape (folds,)
        The mean squared error of each fold.
    """

    value: float
    log_gamma: Array
    log_ridge: float
    fold_errors: Array


class HeldOutError:
    r"""The mean squared error of a cross-validation with its gradient, from one fit on all rows.

    What does not depend on the kernel and the ridge is computed once, as a descent asks for many.

    Parameters
    ----------
    problem : Problem
        Of squared loss.
    folds : Folds
        Removals of rows.
    route : {"eigen", "explicit", "cholesky", "tridiagonal"}, default="cholesky"
        How the response is factorised.

    Notes
    -----
    **Cost** one factorisation of n rows, n Σ m² flops over the folds' sizes m as for the error
    itself, and n² (t q + d) flops for t folds, q targets and d features: the gradient in all gammas
    costs about as much as one candidate. Memory: four n×n matrices, and as many of n×(t q).
    **Exact?** Yes: value and gradient are those of refitting every fold, for squared loss, with and
    without intercept, with any weights. A row of weight 0 is left out of every fold, and tested.

    Examples
    --------
    >>> from everyfold.kernels import find_kernel
    >>> from everyfold.losses import Squared
    >>> from everyfold.operators import Dense
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = np.sin(2.0 * X[:, :1])
    >>> problem = Problem(y, np.ones(40), Squared(), intercept=True)
    >>> operator = Dense().bind(find_kernel("rbf", gamma=[0.5, 0.5]), X)
    >>> slopes = HeldOutError(problem, Folds.leave_one_out(40)).evaluate(operator, 0.1)
    >>> (slopes.log_gamma > 0).tolist()  # the second feature only disturbs: less gamma is better
    [False, True]
    """

    def __init__(self, problem: Problem, folds: Folds, route: Route = "cholesky") -> None:
        _refuse(
            {
                f"{problem.loss} has no closed form; use squared loss": (
                    not problem.loss.has_constant_curvature
                ),
                "balanced class weights differ between folds; use fixed ones": problem.is_balanced,
                "ridge_scaling='mean' has another ridge in every fold; use 'sum'": (
                    problem.ridge_scaling == "mean"
                ),
                "cv has a split with a test row in the training set, or with a repeated "
                "training row; use KFold, for example": bool(folds.odd),
            }
        )
        self._problem, folds = _all_active(problem, folds)
        self._folds, self._route = folds, route
        self._stacks = list(folds.stacks(np.ones(folds.n, dtype=bool)))
        self._share: Array = folds.shares[:, None] / problem.y.shape[1]

    def evaluate(self, operator: SupportsResponse, ridge: float) -> ErrorSlopes:
        """The error of all folds, and its gradient."""
        _refuse(
            {
                f"the ridge is {ridge:g}; its logarithm needs a number > 0": ridge <= 0.0,
                f"{type(operator).__name__} does not say how it changes with gamma; use Dense()": (
                    not isinstance(operator, SupportsGradient)
                ),
                "predicts_with='kernel' fits and predicts by two matrices; use 'features'": (
                    operator.outline.predicts_by_split
                ),
            }
        )
        assert isinstance(operator, SupportsGradient)
        quadratic, folds, share = self._problem.quadratic, self._folds, self._share
        response = operator.respond(quadratic, ridge, self._route)
        if not response.is_exact:
            raise ValueError("a response that stands in for another has no gradient; use Dense()")
        rows, s, reduced = folds.held_rows, quadratic.s[:, None], response.reduced()
        systems = [(k.slots, response.factored_residual_blocks(k.rows)) for k in self._stacks]

        def solve(B: Array) -> Array:
            """The solutions of R_SS x = B_S of all folds, over the concatenated held-out rows."""
            solved = np.empty_like(B)
            for slots, system in systems:
                solved[slots] = system.solve(B[slots])
            return solved

        e = solve(reduced[rows])
        w = solve(2.0 * share * e / s[rows] ** 2)
        # One column for each fold and target: the products with R of all of them are one product.
        columns = np.zeros((folds.n, 2, len(folds), e.shape[1]))
        numbers = np.repeat(np.arange(len(folds)), folds.sizes)
        columns[rows, 0, numbers], columns[rows, 1, numbers] = w, e
        both = response.residual_matmat(columns.reshape(folds.n, -1))
        left, right = np.hsplit(both, 2)
        right = (right - np.tile(reduced, len(folds))) * (response.scale / ridge)
        errors = _fold_sums(share * (e / s[rows]) ** 2, folds) * len(folds)
        log_gamma = operator.slopes(s * left, s * right)
        log_ridge = ridge * float(np.vdot(left, right))
        return ErrorSlopes(float(errors.mean()), log_gamma, log_ridge, errors)


def _refuse(reasons: dict[str, bool]) -> None:
    """Raise the first reason that holds."""
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"no gradient of the cross-validation error: {reason}")


def _all_active(problem: Problem, folds: Folds) -> tuple[Problem, Folds]:
    """The same problem without rows of weight 0: they get weight 1, and every fold leaves them out.

    Rows that no fold trains on have no say, whatever their weight, and are predicted like others.
    """
    passive = np.flatnonzero(problem.w == 0.0)
    if passive.size:
        helds = tuple(np.union1d(held, passive) for held in folds.helds)
        folds = Folds(folds.n, folds.tests, helds)
    weights = np.where(problem.w > 0.0, problem.w, 1.0)
    return replace(problem, sample_weight=weights, classes=None), folds


def _fold_sums(squares: Array, folds: Folds) -> Array:
    """Sums over the held-out rows and targets of each fold."""
    starts = np.cumsum(folds.sizes) - folds.sizes
    return np.add.reduceat(squares.sum(axis=1), starts)
