"""libsvm itself, for what no other solver can tell: its own choice among many solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.svm import SVC, SVR

from everyfold.criteria import Fold
from everyfold.engines.base import Bench
from everyfold.losses import EpsilonInsensitive
from everyfold.model import Model
from everyfold.operators.base import Array, Rows, Solution
from everyfold.targets import Labels


@dataclass(frozen=True)
class Refits:
    """Fits of ``SVC`` and ``SVR`` to the training rows of single folds.

    Where b is any point of an interval the last digit of a sum decides which one libsvm takes, and
    where the kernel is not positive semi-definite, which of many minima. So rows come in the order
    of the splitter, and C and the weights are multiplied as in a refit of the user's estimator.

    **Cost** a fit of libsvm's for each fold and C, on a kernel matrix that is there already.
    **Exact?** Yes, whatever the solution.
    """

    models: Sequence[Model]
    bench: Bench

    def active(self, train: Rows) -> Rows:
        """The positions of the training rows with positive weight: only they are fitted."""
        return np.flatnonzero(self.bench.weights[train] > 0.0)

    def held_out(self, which: Sequence[int], fold: Fold, K: Array, cross: Array) -> Array:
        """The values of the test rows under some of the models, (models, test rows).

        ``K`` is the kernel of the active training rows, ``cross`` that of the test rows with them.
        """
        fits = [self.fit(k, fold.train, K) for k in which]
        coef = np.column_stack([fit.coef[self.active(fold.train)] for fit in fits])
        values: Array = (cross @ coef + np.concatenate([fit.intercept for fit in fits])).T
        return values

    def fit(self, k: int, train: Rows, K: Array) -> Solution:
        """Coefficients of the training rows, and b; K is the kernel of the active ones."""
        target, w = self.bench.target, self.bench.weights
        part = self.active(train)
        rows, coef = train[part], np.zeros(len(train))
        options, sign = self._options(k, train), 1.0
        if isinstance(target, Labels):
            codes = np.unique(target.codes[rows]).tolist()
            if len(codes) < 2:  # a pair of classes, one of which the fold does not have
                return Solution(coef, np.array([np.nan]))
            factors = self.models[k].class_factors(target, train)
            machine = SVC(class_weight={code: factors[code] for code in codes}, **options)
            machine.fit(K, target.codes[rows], sample_weight=w[rows])
            # The larger of two codes is positive there, and the first of a pair of classes here.
            sign = float(target.columns[rows[np.argmax(target.codes[rows])], 0])
        else:
            machine = SVR(**options).fit(K, target.columns[rows, 0], sample_weight=w[rows])
        coef[part[machine.support_]] = sign * machine.dual_coef_[0]
        return Solution(coef, sign * machine.intercept_)

    def _options(self, k: int, train: Rows) -> dict[str, Any]:
        model, counts = self.models[k], self.bench.counts
        C = model.penalty
        if model.ridge_scaling == "mean":
            C /= np.count_nonzero((self.bench.weights if counts is None else counts)[train])
        options = {"C": C, "tol": model.tolerance, "shrinking": model.shrinking}
        if isinstance(model.loss, EpsilonInsensitive):
            options["epsilon"] = model.loss.epsilon
        return {"kernel": "precomputed", **options}
