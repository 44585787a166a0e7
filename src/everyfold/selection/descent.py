"""Descent on the exact cross-validation error in the logarithms of all gammas and the ridge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from everyfold.criteria import ErrorSlopes, HeldOutError
from everyfold.models.model import Model
from everyfold.operators import Dense
from everyfold.rows import Folds
from everyfold.solve import Problem
from everyfold.types import Array, Index, Matrix

__all__ = ["Descent", "Point"]

GAMMA_BOUNDS = (-14.0, 6.0)
RIDGE_BOUNDS = (-9.0, 9.0)
"""How far the logarithms of a gamma and of the ridge may go from where they start."""

_HOPELESS = 1e6
"""The error, relative to the variance of y, where a fold breaks down numerically."""


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
    """

    gamma: Array
    ridge: float
    shrinkage: float = math.inf
    error: float = math.nan
    steps: int = 0


@dataclass(frozen=True)
class Descent:
    """The error of some rows as a function of gamma and ridge, and the way down.

    **Cost** of a step about that of one candidate: a factorisation of n rows, n² flops for each
    feature, fold and target.

    Attributes
    ----------
    model : Model
        Kernel and loss; its gamma and its ridge are not looked at.
    problem : Problem
    X : {array, CSR matrix}
    folds : Folds
        Removals of rows.
    parameters : subset of {"gamma", "alpha"}
        What is tuned.
    is_tied : bool
        Whether all features have the same gamma.
    """

    model: Model
    problem: Problem
    X: Matrix
    folds: Folds
    parameters: frozenset[str]
    is_tied: bool = False

    def restrict(self, rows: Index) -> Descent:
        """The same on some of the rows, with the folds that are left."""
        problem, folds = self.problem.restrict(rows), self.folds.among(rows)
        return replace(self, problem=problem, X=self.X[rows], folds=folds)

    def at(self, gamma: Array, ridge: float) -> ErrorSlopes:
        """The error and its gradient."""
        choice = replace(self.model.choice, gamma=tuple(gamma.tolist()))
        operator = Dense().bind(choice.resolve(self.X), self.X)
        return HeldOutError().evaluate(self.problem, operator, ridge, self.folds)

    def walk(self, start: Point, shrinkages: Sequence[float], max_iter: int) -> list[Point]:
        """The start, and an optimum for each strength of shrinkage, each from the one before."""
        found = [replace(start, error=self.at(start.gamma, start.ridge).value)]
        for shrinkage in shrinkages:
            found.append(self._descend(start, found[-1], shrinkage, max_iter))
        return found

    def _descend(self, start: Point, previous: Point, shrinkage: float, max_iter: int) -> Point:
        variance = self._variance()

        def objective(z: Array) -> tuple[float, Array]:
            gamma, ridge = self._read(z, start)
            slopes = self.at(gamma, ridge)
            if not np.isfinite(slopes.value):
                return _HOPELESS, np.zeros_like(z)
            apart = np.log(gamma) - np.log(gamma).mean()
            value = slopes.value / variance + shrinkage * float(np.mean(apart**2))
            pull = 2.0 * shrinkage * apart / len(apart)
            return value, self._gradient(slopes.log_gamma / variance + pull, slopes, variance)

        found = minimize(
            objective,
            self._write(previous),
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(start),
            options={"maxiter": max_iter, "ftol": 1e-7},
        )
        gamma, ridge = self._read(found.x, start)
        error = self.at(gamma, ridge).value
        return Point(gamma, ridge, shrinkage, error, int(found.nit))

    def _variance(self) -> float:
        """The variance of y, so that shrinkage does not depend on the unit of y."""
        w = self.problem.w
        centred = self.problem.y - np.average(self.problem.y, axis=0, weights=w)
        return float(np.average(centred**2, axis=0, weights=w).mean()) or 1.0

    def _write(self, point: Point) -> Array:
        """The tuned parameters of a point as one vector of logarithms."""
        gamma = np.log(point.gamma[:1] if self.is_tied else point.gamma)
        parts = {"gamma": gamma, "alpha": np.log([point.ridge])}
        return np.concatenate([parts[name] for name in parts if name in self.parameters])

    def _read(self, z: Array, start: Point) -> tuple[Array, float]:
        """Gamma of all features and ridge; what is not tuned stays as at the start."""
        gamma, ridge = start.gamma, start.ridge
        if "alpha" in self.parameters:
            ridge = float(np.exp(z[-1]))
            z = z[:-1]
        if "gamma" in self.parameters:
            gamma = np.exp(np.broadcast_to(z, gamma.shape))
        return gamma, ridge

    def _gradient(self, log_gamma: Array, slopes: ErrorSlopes, variance: float) -> Array:
        """The derivatives in the order of the vector."""
        gamma = log_gamma.sum(keepdims=True) if self.is_tied else log_gamma
        parts = {"gamma": gamma, "alpha": np.array([slopes.log_ridge / variance])}
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
