"""libsvm itself, for what no other solver can tell: its own choice among many solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.svm import SVC, SVR

from everyfold.operators.base import Part, having
from everyfold.operators.dense import DenseMatrix
from everyfold.solve import Problem
from everyfold.types import Array, Index, Params


class RawLibsvm(Protocol):
    """libsvm without an estimator around it, whose checks take longer than a fit to few rows."""

    def classify(
        self, K: Array, y: Array, weights: Array, factors: Array, options: Params
    ) -> tuple[Index, Array, float, bool]:
        """Support vectors, their coefficients, b, and whether it came to its end.

        ``y`` is 0 or 1, ``factors`` what the two weigh; ``options`` has C, tol and shrinking.
        """


@dataclass(frozen=True)
class Libsvm:
    """Fits of ``SVC`` and ``SVR`` to single training sets.

    Where b is any point of an interval the last digit of a sum decides which one libsvm takes, and
    where the kernel is not positive semi-definite, which of many minima. So rows come in the order
    of the splitter, and C and the weights are multiplied as in a refit of the user's estimator.

    **Cost** a fit of libsvm's for each C, on a kernel matrix that is there already.
    **Exact?** Yes, whatever the solution.
    """

    tol: float
    shrinking: bool = True
    raw: RawLibsvm | None = None

    def held_out(self, problem: Problem, part: Part, Cs: Sequence[float]) -> Array:
        """The values of the test rows for some Cs, (Cs, test rows)."""
        active, fits = self.fits(problem, part, Cs)
        coef = np.column_stack([fit.coef for fit in fits])
        cross = _cross(part, active)
        values: Array = (cross @ coef + np.array([fit.intercept for fit in fits])).T
        return values

    def fits(
        self, problem: Problem, part: Part, Cs: Sequence[float]
    ) -> tuple[Index, list[LibsvmFit]]:
        """Which of the training rows have a positive weight, by position, and a fit for each C."""
        inside = problem.restrict(part.train)
        active = np.flatnonzero(inside.sample_weight > 0.0)
        K = _kernel(part, active)
        return active, [self.fit(inside, active, K, C) for C in Cs]

    def fit(self, problem: Problem, active: Index, K: Array, C: float) -> LibsvmFit:
        """Fit the active rows, whose kernel is K."""
        if problem.ridge_scaling == "mean":
            C /= problem.n_counted
        options = {"C": C, "tol": self.tol, "shrinking": self.shrinking}
        if problem.loss.tube is None:
            return self._classification(problem, active, K, options)
        options["epsilon"] = problem.loss.tube
        return self._regression(problem, active, K, options)

    def _regression(self, problem: Problem, active: Index, K: Array, options: Params) -> LibsvmFit:
        machine = SVR(kernel="precomputed", **options)
        machine.fit(K, problem.y[active, 0], sample_weight=problem.sample_weight[active])
        return _read(machine, len(active), 1.0)

    def _classification(
        self, problem: Problem, active: Index, K: Array, options: Params
    ) -> LibsvmFit:
        y = problem.y[active, 0]
        codes, factors = (y > 0.0).astype(np.intp), np.ones(2)
        if problem.classes is not None:
            codes = problem.classes.codes[active]
            factors = problem.classes.weights(problem.sample_weight)
        present = np.unique(codes).tolist()
        if len(present) < 2:  # a pair of classes, one of which the fold does not have
            return LibsvmFit(np.zeros(len(active)), np.nan, True)
        # The larger of two codes is positive there, and the first of a pair of classes here.
        sign, weights = float(y[np.argmax(codes)]), problem.sample_weight[active]
        if self.raw is not None:
            is_larger = (codes == present[1]).astype(np.float64)
            return _unpack(
                self.raw.classify(K, is_larger, weights, factors[present], options),
                len(active),
                sign,
            )
        by_class = {code: factors[code] for code in present}
        machine = SVC(class_weight=by_class, kernel="precomputed", **options)
        machine.fit(K, codes, sample_weight=weights)
        return _read(machine, len(active), sign)


@dataclass(frozen=True)
class LibsvmFit:
    """Signed dual coefficients of the fitted rows, b, and whether libsvm came to its end."""

    coef: Array
    intercept: float
    is_converged: bool


def _read(machine: Any, n: int, sign: float) -> LibsvmFit:
    found = machine.support_, machine.dual_coef_[0], float(machine.intercept_[0])
    return _unpack((*found, machine.fit_status_ == 0), n, sign)


def _unpack(found: tuple[Index, Array, float, bool], n: int, sign: float) -> LibsvmFit:
    support, own, b, is_converged = found
    coef = np.zeros(n)
    coef[support] = sign * own
    return LibsvmFit(coef, sign * b, is_converged)


def _kernel(part: Part, active: Index) -> Array:
    """The kernel of the active training rows."""
    if part.parent is not None:
        inside = part.parent.restrict(part.train[active])
    else:
        inside = part.operator if len(active) == part.operator.n else part.operator.restrict(active)
    return having(inside, DenseMatrix).K


def _cross(part: Part, active: Index) -> Array:
    """The kernel of the test rows with the active training rows."""
    if part.parent is not None:
        return part.parent.cross(part.test, part.train[active])
    return part.cross if len(active) == part.operator.n else part.cross[:, active]
