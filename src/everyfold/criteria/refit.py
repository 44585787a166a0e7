"""Refitting: the criterion everything else is measured against, and at times the cheapest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import OutOfFold, Predictive, is_trusted
from everyfold.operators.base import Array, KernelOperator, Route, Rows, Solution
from everyfold.operators.dense import product
from everyfold.rows.folds import Fold, Folds
from everyfold.solve import Fit, Problem, solve_path


@dataclass(frozen=True)
class Refit(Predictive):
    """Fit every fold's training rows, for every ridge.

    ``route="cholesky"`` is brute force, one factorisation for each fold and ridge. With
    ``route="tridiagonal"`` (or "eigen") all ridges of a fold share one, which for a few folds is
    the fastest exact method there is. It serves any split, whether or not the training rows are
    the complement of the test rows.

    **Cost** with t folds of m rows: t · 4/3 (n−m)³ flops for any number of ridges.
    **Exact?** By definition.
    """

    route: Route = "cholesky"

    def evaluate(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """See base class."""
        values = np.empty((len(ridges), int(folds.bounds[-1]), problem.y.shape[1]))
        condition = np.empty((len(ridges), len(folds)))
        starts = self._starts(problem, operator, ridges)
        for i, fold in enumerate(folds):
            test = slice(folds.bounds[i], folds.bounds[i + 1])
            values[:, test], condition[:, i] = self._fold(problem, operator, (ridges, starts), fold)
        unknown = np.full(len(folds), np.nan)
        for k in range(len(ridges)):
            exact = np.array([is_trusted(c) for c in condition[k]])
            yield OutOfFold(values[k], exact, unknown, condition[k])

    def _starts(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float]
    ) -> list[Solution | None]:
        """Where Newton's method begins in every fold: the fits of all rows, if it is needed."""
        if problem.loss.has_constant_curvature or operator.depends_on_rows:
            return [None] * len(ridges)
        return [fit.solution for fit in solve_path(problem, operator, ridges)]

    def _fits(
        self,
        problem: Problem,
        operator: KernelOperator,
        path: tuple[Sequence[float], list[Solution | None]],
        train: Rows,
    ) -> list[Fit]:
        ridges, starts = path
        if starts[0] is None:
            return list(solve_path(problem, operator, ridges, self.route))
        fits: list[Fit] = []
        for ridge, start in zip(ridges, starts, strict=True):
            assert start is not None
            begin = Solution(operator.inherit(start.coef, train), start.intercept)
            fits.extend(solve_path(problem, operator, [ridge], start=begin))
        return fits

    def _fold(
        self,
        problem: Problem,
        operator: KernelOperator,
        path: tuple[Sequence[float], list[Solution | None]],
        fold: Fold,
    ) -> tuple[Array, Array]:
        """Predictions (ridges, test rows, targets) and condition numbers of one fold."""
        inside, cross = operator.split(fold.train, fold.test)
        fits = self._fits(problem.restrict(fold.train), inside, path, fold.train)
        coef = np.concatenate([fit.solution.coef for fit in fits], axis=1)
        intercept = np.concatenate([fit.solution.intercept for fit in fits])
        u = product(cross, coef) + intercept
        u = u.reshape(len(fold.test), len(fits), problem.y.shape[1]).transpose(1, 0, 2)
        condition = np.array([fit.condition for fit in fits])
        for k, fit in enumerate(fits):
            if not fit.is_converged:
                u[k], condition[k] = np.nan, np.inf
        return u, condition
