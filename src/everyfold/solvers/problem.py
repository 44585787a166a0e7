r"""What is to be fitted, without the kernel and the ridge.

.. math:: J(f, b) = \sum_i w_i V(y_i, u_i) + \rho \|f\|_H^2, \qquad u = f + b
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index, RidgeScaling
from everyfold.losses import Loss
from everyfold.operators.response import Quadratic


class DidNotConvergeError(ArithmeticError):
    """An iteration ended without a minimum, so that there is nothing to be scored."""


@dataclass(frozen=True)
class Classes:
    """The classes of rows, and what each of them weighs.

    Attributes
    ----------
    codes : int array of shape (n,)
        The class of each row.
    factors : array of shape (classes,), optional
        Weights by class; all 1 without.
    balance : {"rows", "weights"}, optional
        If given, weights are inverse to how often a class occurs among the rows at hand
        (``class_weight="balanced"``), or to the sample weight it has among them.
    alone : int, optional
        The only one of more than two classes that has its weight; the rest together have 1.
    """

    codes: Index
    factors: Array | None = None
    balance: Literal["rows", "weights"] | None = None
    alone: int | None = None

    def weights(self, sample_weight: Array) -> Array:
        """What each class weighs among these rows."""
        weights = self._of_all(sample_weight)
        if self.alone is None or len(np.unique(self.codes)) < 3:
            return weights
        return np.where(np.arange(len(weights)) == self.alone, weights, 1.0)

    def _of_all(self, sample_weight: Array) -> Array:
        size = int(self.codes.max(initial=-1)) + 1 if self.factors is None else len(self.factors)
        if self.balance is None:
            return np.ones(size) if self.factors is None else self.factors
        count = np.bincount(self.codes, minlength=size).astype(np.float64)
        present = count > 0
        if self.balance == "weights":
            count = np.bincount(self.codes, sample_weight, minlength=size).astype(np.float64)
            if not count[present].all():
                raise ValueError(
                    "class_weight='balanced' divides by the weight of each class, but "
                    "sample_weight is 0 for all training rows of one class; leave the rows of "
                    "this class out, or give one of them a positive weight"
                )
        weights = np.ones(size)
        weights[present] = count.sum() / (np.count_nonzero(present) * count[present])
        return weights

    def restrict(self, rows: Index) -> Classes:
        """Those of some of the rows."""
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, without the kernel and the ridge.

    Attributes
    ----------
    y : array of shape (n, q)
        One column a target; all targets share every factorisation.
    sample_weight : array of shape (n,)
        Weight 0 is the same as leaving the row out.
    loss : Loss
    intercept : bool
    ridge_scaling : {"sum", "mean", "weights"}
        What a ridge means when rows are left out. "sum" keeps it (scikit-learn), "mean" multiplies
        it by the number of rows with positive weight (the influence-function papers), and
        "weights" by the sum of their weights (scikit-learn's generalised linear models).
    classes : Classes, optional
        Those of the rows, and their weights; balanced ones are anew on every subset of the rows.
    counts : bool array of shape (n,), optional
        The rows whose number multiplies a ridge in the "mean" convention, if these are not the
        rows with positive weight: a pair of classes has the ridge of all rows.
    """

    y: Array
    sample_weight: Array
    loss: Loss
    intercept: bool
    ridge_scaling: RidgeScaling = "sum"
    classes: Classes | None = None
    counts: NDArray[np.bool_] | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)

    @cached_property
    def w(self) -> Array:
        """Sample weights times class weights."""
        classes = self.classes
        if classes is None or (classes.factors is None and not self.is_balanced):
            return self.sample_weight
        return self.sample_weight * classes.weights(self.sample_weight)[classes.codes]

    @property
    def is_balanced(self) -> bool:
        """Whether weights depend on which rows are at hand."""
        return self.classes is not None and self.classes.balance is not None

    def rho(self, ridge: float, n_counted: float) -> float:
        """The rho for a public ridge and a sample of ``n_counted`` rows."""
        return ridge if self.ridge_scaling == "sum" else ridge * n_counted

    @cached_property
    def n_active(self) -> int:
        """The number of rows with positive weight."""
        return int(np.count_nonzero(self.w))

    @cached_property
    def n_counted(self) -> float:
        """What a ridge that is not in the "sum" convention is multiplied by."""
        if self.ridge_scaling == "weights":
            return float(self.w.sum())
        return self.n_active if self.counts is None else int(np.count_nonzero(self.counts))

    @cached_property
    def level(self) -> Array:
        """The value of each target that has one value only, which an intercept predicts; else 0."""
        seen = self.y[self.sample_weight > 0.0]
        has_residuals = not (self.loss.is_margin or self.loss.has_log_link)
        if not self.intercept or not has_residuals or not len(seen):
            return np.zeros(self.y.shape[1])
        return np.where((seen == seen[0]).all(axis=0), seen[0], 0.0)

    @property
    def levelled(self) -> Problem:
        """The same with targets less their level: a constant is fitted without rounding."""
        return replace(self, y=self.y - self.level)

    @cached_property
    def quadratic(self) -> Quadratic:
        """The quadratic problem of squared loss."""
        if not self.loss.has_constant_curvature:
            raise ValueError(f"{self.loss} has no closed form; it needs a Newton solver")
        return Quadratic(np.sqrt(self.w), self.y, self.intercept)

    def restrict(self, rows: Index) -> Problem:
        """The same problem on some of the rows."""
        classes = None if self.classes is None else self.classes.restrict(rows)
        counts = None if self.counts is None else self.counts[rows]
        w = self.sample_weight[rows]
        return replace(self, y=self.y[rows], sample_weight=w, classes=classes, counts=counts)
