"""Targets that are transformed before the fit and back after it, by a rule of each training set.

That is scikit-learn's ``TransformedTargetRegressor``: a model is fitted to transformed targets, and
its predictions are transformed back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array

from everyfold._typing import Array, Estimator
from everyfold.crossval.base import Failure, OutOfFold
from everyfold.estimators.targets import Numbers
from everyfold.folds import Folds


@dataclass(frozen=True)
class Warp:
    """The rule of a :class:`~sklearn.compose.TransformedTargetRegressor`."""

    transformer: Estimator
    func: Callable[[Array], Array] | None
    inverse_func: Callable[[Array], Array] | None
    check_inverse: bool

    @classmethod
    def of(cls, estimator: TransformedTargetRegressor) -> Warp:
        """The rule of an estimator; raises what is wrong with it."""
        warp = cls(
            estimator.transformer, estimator.func, estimator.inverse_func, estimator.check_inverse
        )
        if warp.transformer is not None and (warp.func or warp.inverse_func):
            raise ValueError("'transformer' and functions 'func'/'inverse_func' cannot both be set")
        if warp.transformer is None and (warp.func is None) != (warp.inverse_func is None):
            raise ValueError("func and inverse_func have to be given together")
        return warp

    @property
    def is_fixed(self) -> bool:
        """Whether all training sets have the same rule: a function, which learns nothing."""
        return self.transformer is None

    def fit(self, y: Array) -> Estimator:
        """The transformer of a training set with these targets, (rows, targets)."""
        if self.transformer is not None:
            return clone(self.transformer).fit(y)
        return FunctionTransformer(
            func=self.func,
            inverse_func=self.inverse_func,
            validate=True,
            check_inverse=self.check_inverse,
        ).fit(y)


@dataclass
class Warped:
    """A target as every fold's training set would have it, and the way back.

    Attributes
    ----------
    target : Numbers
        Side by side, the targets of all rows under the rule of each fold; one block where all folds
        have the same rule. For squared loss more columns cost n² flops each.
    """

    warp: Warp
    y: Array
    folds: Folds
    target: Numbers = field(init=False)
    failures: dict[int, Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = 1 if self.warp.is_fixed else len(self.folds)
        self._rules: list[Estimator] = [None] * count
        blocks: list[Array | None] = [self._block(k) for k in range(count)]
        if self.warp.is_fixed and self.failures:
            self.failures = dict.fromkeys(range(len(self.folds)), self.failures[0])
        width = next((block.shape[1] for block in blocks if block is not None), 1)
        blank = np.zeros((len(self.y), width))
        columns = np.hstack([blank if block is None else block for block in blocks])
        self.target = Numbers(columns, False)
        self._width = width

    def _block(self, k: int) -> Array | None:
        try:
            train = np.arange(len(self.y)) if self.warp.is_fixed else self.folds[k].train
            self._rules[k] = self.warp.fit(self.y[train])
            found = np.asarray(self._rules[k].transform(self.y[train]), dtype=np.float64)
            found = check_array(found.reshape(len(train), -1), input_name="y")
            # Other rows take no part in the fold's fit; what they have only has to be near.
            block = np.tile(found.mean(axis=0), (len(self.y), 1))
            block[train] = found
            return block
        except Exception as error:
            self.failures[k] = Failure.caught(error)
            return None

    def back(self, record: OutOfFold) -> OutOfFold:
        """Held-out values as they were asked for, each fold by its own rule."""
        values = np.full((len(record.values), self.y.shape[1]), np.nan)
        failures = {**record.failures, **self.failures}
        for k in range(len(self.folds)):
            if k in failures:
                continue
            part = slice(self.folds.bounds[k], self.folds.bounds[k + 1])
            at = 0 if self.warp.is_fixed else k
            block = record.values[part, at * self._width : (at + 1) * self._width]
            try:
                found = np.asarray(self._rules[at].inverse_transform(block), dtype=np.float64)
                values[part] = found.reshape(len(block), -1)
            except Exception as error:
                failures[k] = Failure.caught(error)
        return replace(record, values=values, failures=failures)
