"""Refitting: the criterion everything else is measured against, and at times the cheapest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.criteria.base import OutOfFold, Predictive, is_trusted
from everyfold.criteria.folds import Fold, Folds
from everyfold.operators.base import KernelOperator, Route
from everyfold.operators.dense import product
from everyfold.solve import Problem, solve_path


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
        for i, fold in enumerate(folds):
            test = slice(folds.bounds[i], folds.bounds[i + 1])
            values[:, test], condition[:, i] = self._fold(problem, operator, ridges, fold)
        unknown = np.full(len(folds), np.nan)
        for k in range(len(ridges)):
            exact = np.array([is_trusted(c) for c in condition[k]])
            yield OutOfFold(values[k], exact, unknown, condition[k])

    def _fold(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float], fold: Fold
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predictions (ridges, test rows, targets) and condition numbers of one fold."""
        inside, cross = operator.split(fold.train, fold.test)
        fits = list(solve_path(problem.restrict(fold.train), inside, ridges, self.route))
        coef = np.concatenate([fit.solution.coef for fit in fits], axis=1)
        intercept = np.concatenate([fit.solution.intercept for fit in fits])
        u = product(cross, coef) + intercept
        shape = (len(fold.test), len(ridges), problem.y.shape[1])
        condition = np.array([fit.response.condition for fit in fits])
        return u.reshape(shape).transpose(1, 0, 2), condition
