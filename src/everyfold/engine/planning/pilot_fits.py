"""How hard a support vector machine is to fit: a few hundred rows of it, fitted by libsvm.

Pair steps grow with C times the spread of the kernel, which is large for a linear kernel of many
columns, and shrink as far as classes stand apart. No size of the data tells either.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from everyfold._typing import Array, Index, Matrix
from everyfold.engine.planning.costs import COSTS, LEFT_STEPS, Workload
from everyfold.estimators.model import Model
from everyfold.solvers import Problem

# Seconds of the refits at one C from which on a sample is fitted, which takes 2 to 20 ms.
WORTHWHILE = 0.05

# Rows of a sample, those by which its spread is known, and libsvm's steps in it.
SAMPLE, FEW, MOST = 400, 64, 50_000

# Pair steps without a row, as a power of C times the spread of the kernel, and by the root of the
# steps that libsvm takes on all rows. Measured with a linear kernel (C = 0.01 to 10, 208 to 1605
# rows, 13 to 113 columns): estimates are within a factor of 3 of what leave-one-out takes, except
# where few rows in many columns can be told apart by large coefficients (5 to 8 times too small).
_GROWTH, _BY_ROOT = 0.65, 20.0


@dataclass(frozen=True)
class Pilot:
    """What fits of machines without single rows should take, from a few rows of them."""

    models: Sequence[Model]
    problems: Sequence[Problem]
    rows: Callable[[], Matrix]

    def refine(self, work: Workload) -> Workload:
        """The workload with the support vectors of all machines and the steps without each."""
        n = float(work.n)
        counts = [np.count_nonzero(problem.w) for problem in self.problems]
        largest = self.problems[int(np.argmax(counts))]
        found: list[tuple[float, float]] = []
        try:
            X = self.rows()
            spread = self._spread(X, largest)
            for model in self.models:
                C = 1.0 / (2.0 * largest.rho(model.ridges[0], max(largest.n_counted - 1, 1)))
                steps = LEFT_STEPS * (1.0 + C * spread) ** _GROWTH
                share = work.support
                if share * n * steps * n * COSTS.pair > WORTHWHILE:
                    share, steps = self._fitted(X, largest, C)
                found.append((share, share * steps))
        except Exception:  # whatever is wrong with the rows, the evaluation itself reports
            return work
        share, total = np.mean(found, axis=0).tolist()
        machines = sum(counts) / n  # of pairs of classes, by how many of the rows they are made of
        return replace(work, support=share * machines, left_steps=total / share)

    def _spread(self, X: Matrix, problem: Problem) -> float:
        """How far rows are from one another in the features of the kernel."""
        K = self._kernel(X, _sample(problem, FEW))
        return float(np.mean(np.diagonal(K)) - np.mean(K))

    def _kernel(self, X: Matrix, rows: Index) -> Array:
        choice = self.models[0].choice
        K = X[np.ix_(rows, rows)] if choice.is_precomputed else choice.resolve(X)(X[rows])
        return np.asarray(K, dtype=np.float64)

    def _fitted(self, X: Matrix, problem: Problem, C: float) -> tuple[float, float]:
        """The share of support vectors, and the pair steps of a fit without one of them."""
        rows = _sample(problem, SAMPLE)
        tube, tol = problem.loss.tube, self.models[0].tolerance
        options = {"C": C, "tol": tol, "kernel": "precomputed", "max_iter": MOST}
        machine = SVC(**options) if tube is None else SVR(epsilon=tube, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(self._kernel(X, rows), problem.y[rows, 0], sample_weight=problem.w[rows])
        taken = float(np.sum(machine.n_iter_)) * problem.n_active / len(rows)
        steps = max(LEFT_STEPS, _BY_ROOT * math.sqrt(taken))
        return max(len(machine.support_), 1) / len(rows), steps


def _sample(problem: Problem, count: int) -> Index:
    """Some of the rows that take part, in their order."""
    active = np.flatnonzero(problem.w)
    if len(active) <= count:
        return active
    return np.sort(np.random.default_rng(0).choice(active, count, replace=False))
