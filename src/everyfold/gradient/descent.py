r"""Descent on the exact cross-validation error in the logarithms of all gammas and the ridge.

:class:`HeldOutError` is the squared error of held-out predictions with its gradient. L-BFGS-B
minimises it plus a penalty that pulls the logarithms of the gammas together.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from everyfold._typing import Array, Index, Matrix, Route
from everyfold.estimators.model import Model
from everyfold.folds import Folds
from everyfold.kernels import Kernel, Scaled, factors_of
from everyfold.operators import Dense, FixedLandmarks, Nystrom, Structure
from everyfold.operators.base import SupportsGradient, SupportsResponse, require
from everyfold.solvers import Problem

# -- The held-out error and its gradient -----------------------------------------------------------


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
            raise ValueError("an approximate response has no gradient; use operator='dense'")
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
        squares = (share * (e / s[rows]) ** 2).sum(axis=1)
        errors = np.add.reduceat(squares, np.cumsum(folds.sizes) - folds.sizes) * len(folds)
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


# -- The way down ----------------------------------------------------------------------------------

# How far the logarithms of a gamma and of the ridge may go from where they start. A gamma may
# shrink further than it may grow: a feature that is only noise should be switched off.
GAMMA_BOUNDS = (-14.0, 6.0)
RIDGE_BOUNDS = (-9.0, 9.0)

# A descent ends where the objective falls by less than this share of the start's error. A smaller
# share costs more gradients, for differences that the choice by outer folds does not see.
TOLERANCE = 1e-3

# The error, relative to that of the start, where a fold breaks down numerically.
_HOPELESS = 1e6

# The smallest error, relative to the variance of y, that others are compared with.
_LEAST = 1e-12


@dataclass(frozen=True)
class Point:
    """Parameters, and the cross-validation error there.

    Attributes
    ----------
    gamma : array of shape (d,)
    ridge : float
    shrinkage : float
        How strongly the logarithms of gamma were pulled together; inf is the isotropic start.
    error : float
        The mean squared error of the folds, which was tuned: too good to be true.
    steps : int
        Iterations of the descent.
    slopes : ErrorSlopes, optional
        The error with its gradient, where they are known.
    """

    gamma: Array
    ridge: float
    shrinkage: float = math.inf
    error: float = math.nan
    steps: int = 0
    slopes: ErrorSlopes | None = field(default=None, repr=False, compare=False)

    @classmethod
    def amid(cls, points: Sequence[Point]) -> Point:
        """Between some points of the same shrinkage: the means of their logarithms."""
        gamma = np.exp(np.mean([np.log(point.gamma) for point in points], axis=0))
        ridge = math.exp(float(np.mean([math.log(point.ridge) for point in points])))
        return cls(gamma, ridge, points[0].shrinkage)


@dataclass(frozen=True)
class Descent:
    """The error of some rows as a function of gamma and ridge, and the way down.

    **Cost** of a step about that of one candidate: a factorisation of n rows, n² flops for each
    feature, fold and target.

    Attributes
    ----------
    model : Model
        Kernel, loss and operator; its gamma and its ridge are not used. Landmarks are drawn
        where a walk begins, and stay.
    problem : Problem
    X : {array, CSR matrix}
    folds : Folds
        Removals of rows.
    parameters : subset of {"gamma", "alpha"}
        What is tuned.
    is_tied : bool
        Whether all features have the same gamma.
    structure : Structure
        How kernel matrices are represented.
    """

    model: Model
    problem: Problem
    X: Matrix
    folds: Folds
    parameters: frozenset[str]
    is_tied: bool = False
    structure: Structure = Dense()  # noqa: RUF009  # immutable

    def restrict(self, rows: Index) -> Descent:
        """The same on some of the rows, with the folds that are left."""
        problem, folds = self.problem.restrict(rows), self.folds.restrict(rows)
        return replace(self, problem=problem, X=self.X[rows], folds=folds)

    def kernel(self, gamma: Array) -> Kernel:
        """The kernel with these gammas."""
        factors = factors_of(str(self.model.choice.kernel), gamma.tolist())
        return Scaled(self._unit_kernel, factors)

    @cached_property
    def _unit_kernel(self) -> Kernel:
        """The kernel with gamma 1."""
        return replace(self.model.choice, gamma=1.0).resolve(self.X)

    def anchored(self, start: Point) -> Descent:
        """The same with the landmarks that the operator draws at the start, if it draws any."""
        is_anchored = isinstance(self.structure, FixedLandmarks)
        if is_anchored or not isinstance(self.model.operator, Nystrom):
            return self
        drawn = self.model.operator.landmarks(self.kernel(start.gamma), self.X)
        return replace(self, structure=FixedLandmarks(drawn.features.landmarks))

    def at(self, gamma: Array, ridge: float) -> ErrorSlopes:
        """The error and its gradient."""
        operator = require(self.structure.bind(self.kernel(gamma), self.X), SupportsResponse)
        return self._error.evaluate(operator, ridge)

    @cached_property
    def _error(self) -> HeldOutError:
        return HeldOutError(self.problem, self.folds)

    def known(self, point: Point) -> Point:
        """A point with its error, and the gradient there; a start has to have one."""
        if point.slopes is not None:
            return point
        try:
            slopes = self.at(point.gamma, point.ridge)
        except ArithmeticError:  # not positive definite to working precision
            if point.shrinkage == math.inf:
                raise
            return point
        return replace(point, error=slopes.value, slopes=slopes)

    def walk(self, start: Point, begin: Point, shrinkage: float, max_iter: int) -> Point:
        """The optimum that a descent with this shrinkage finds, from where it has to begin.

        Bounds and the unit of the error are those of the start, whose error is known.
        """
        z = self._write(begin)
        objective = _Objective(self, start, shrinkage)
        if begin.slopes is not None:
            objective.seen[z.tobytes()] = begin.slopes
        best = minimize(
            objective,
            z,
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(start),
            options={"maxiter": max_iter, "ftol": TOLERANCE, "gtol": TOLERANCE},
        )
        slopes = objective.seen[best.x.tobytes()]
        gamma, ridge = self.read(best.x, start)
        return Point(gamma, ridge, shrinkage, slopes.value, int(best.nit), slopes)

    def variance(self) -> float:
        """The variance of y, so that shrinkage does not depend on the unit of y."""
        w = self.problem.w
        centred = self.problem.y - np.average(self.problem.y, axis=0, weights=w)
        return float(np.average(centred**2, axis=0, weights=w).mean()) or 1.0

    def _write(self, point: Point) -> Array:
        """The tuned parameters of a point as one vector of logarithms."""
        gamma = np.log(point.gamma[:1] if self.is_tied else point.gamma)
        parts = {"gamma": gamma, "alpha": np.log([point.ridge])}
        return np.concatenate([parts[name] for name in parts if name in self.parameters])

    def read(self, z: Array, start: Point) -> tuple[Array, float]:
        """Gamma of all features and ridge; what is not tuned stays as at the start."""
        gamma, ridge = start.gamma, start.ridge
        if "alpha" in self.parameters:
            ridge = float(np.exp(z[-1]))
            z = z[:-1]
        if "gamma" in self.parameters:
            gamma = np.exp(np.broadcast_to(z, gamma.shape))
        return gamma, ridge

    def gradient(self, log_gamma: Array, log_ridge: float) -> Array:
        """The derivatives in the order of the vector."""
        gamma = log_gamma.sum(keepdims=True) if self.is_tied else log_gamma
        parts = {"gamma": gamma, "alpha": np.array([log_ridge])}
        return np.concatenate([parts[name] for name in parts if name in self.parameters])

    def _bounds(self, start: Point) -> list[tuple[float, float]]:
        """How far each logarithm may go."""
        gamma = np.log(start.gamma[:1] if self.is_tied else start.gamma)
        bounds: list[tuple[float, float]] = []
        if "gamma" in self.parameters:
            bounds += [(value + GAMMA_BOUNDS[0], value + GAMMA_BOUNDS[1]) for value in gamma]
        if "alpha" in self.parameters:
            value = math.log(start.ridge)
            bounds.append((value + RIDGE_BOUNDS[0], value + RIDGE_BOUNDS[1]))
        return bounds


@dataclass(frozen=True)
class _Objective:
    """The error and the penalty at a vector of logarithms, as shares of the error of the start."""

    descent: Descent
    start: Point
    shrinkage: float
    seen: dict[bytes, ErrorSlopes] = field(default_factory=dict)
    """What was evaluated before: a descent begins where the last one ended."""

    def __call__(self, z: Array) -> tuple[float, Array]:
        gamma, ridge = self.descent.read(z, self.start)
        slopes = self._at(z, gamma, ridge)
        if not np.isfinite(slopes.value):
            return _HOPELESS, np.zeros_like(z)
        unit = max(self.start.error, _LEAST * self._variance)
        pull = self.shrinkage * self._variance
        spread = np.log(gamma) - np.log(gamma).mean()
        value = slopes.value + pull * float(np.mean(spread**2))
        log_gamma = slopes.log_gamma + 2.0 * pull * spread / len(spread)
        return value / unit, self.descent.gradient(log_gamma, slopes.log_ridge) / unit

    def _at(self, z: Array, gamma: Array, ridge: float) -> ErrorSlopes:
        key = z.tobytes()
        if key not in self.seen:
            try:
                self.seen[key] = self.descent.at(gamma, ridge)
            except ArithmeticError:  # not positive definite to working precision
                self.seen[key] = ErrorSlopes(math.nan, gamma, ridge, gamma)
        return self.seen[key]

    @cached_property
    def _variance(self) -> float:
        return self.descent.variance()
