"""libsvm itself, for what no other solver can tell: its own choice among many solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.svm import SVC, SVR

from everyfold.losses import EpsilonInsensitive
from everyfold.operators.base import Array, Part, Solution
from everyfold.operators.dense import DenseMatrix
from everyfold.solve import Problem

__all__ = ["Libsvm"]


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

    def held_out(self, problem: Problem, part: Part, Cs: Sequence[float]) -> Array:
        """The values of the test rows for some Cs, (Cs, test rows)."""
        inside = problem.restrict(part.train)
        active = np.flatnonzero(inside.sample_weight > 0.0)
        K, cross = _kernels(part, active)
        fits = [self.fit(inside, active, K, C) for C in Cs]
        coef = np.column_stack([fit.coef for fit in fits])
        values: Array = (cross @ coef + np.concatenate([fit.intercept for fit in fits])).T
        return values

    def fit(self, problem: Problem, active: Any, K: Array, C: float) -> Solution:
        """Coefficients of the active rows and b; K is their kernel."""
        y, w = problem.y[active, 0], problem.sample_weight[active]
        if problem.ridge_scaling == "mean":
            C /= problem.n_counted
        options: dict[str, Any] = {"C": C, "tol": self.tol, "shrinking": self.shrinking}
        coef, sign = np.zeros(len(active)), 1.0
        if isinstance(problem.loss, EpsilonInsensitive):
            machine = SVR(kernel="precomputed", epsilon=problem.loss.epsilon, **options)
            machine.fit(K, y, sample_weight=w)
        else:
            codes = (y > 0).astype(np.intp)
            factors = np.ones(2)
            if problem.classes is not None:
                codes = problem.classes.codes[active]
                factors = problem.classes.weights(problem.sample_weight)
            present = np.unique(codes).tolist()
            if len(present) < 2:  # a pair of classes, one of which the fold does not have
                return Solution(coef, np.array([np.nan]))
            machine = SVC(
                kernel="precomputed",
                class_weight={code: factors[code] for code in present},
                **options,
            ).fit(K, codes, sample_weight=w)
            # The larger of two codes is positive there, and the first of a pair of classes here.
            sign = float(y[np.argmax(codes)])
        coef[machine.support_] = sign * machine.dual_coef_[0]
        return Solution(coef, sign * machine.intercept_)


def _kernels(part: Part, active: Any) -> tuple[Array, Array]:
    """The kernel of the active training rows, and that of the test rows with them."""
    if part.parent is not None:
        chosen = part.parent.split(part.train[active], part.test)
        assert isinstance(chosen.operator, DenseMatrix)
        return chosen.operator.K, chosen.cross
    assert isinstance(part.operator, DenseMatrix)
    if len(active) == part.operator.n:
        return part.operator.K, part.cross
    return part.operator.restrict(active).K, part.cross[:, active]
