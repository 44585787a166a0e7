"""What is predicted, numbers or labels: from a user's y to columns of numbers and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from everyfold.operators.base import Array, Rows


def decode(classes: NDArray[Any], values: Array) -> NDArray[Any]:
    """The label of each row of values: by sign for two classes, by the largest for more."""
    chosen = values.argmax(axis=1) if values.shape[1] > 1 else (values[:, 0] > 0.0).astype(np.intp)
    labels: NDArray[Any] = classes[chosen]
    return labels


class Target(ABC):
    """A user's y as an (n, q) matrix, and the way back from fitted values to predictions."""

    columns: Array

    @abstractmethod
    def predict(self, values: Array) -> NDArray[Any]:
        """Predictions in the user's own terms from values (rows, q)."""

    @abstractmethod
    def decide(self, values: Array) -> NDArray[Any]:
        """The values in the shape scikit-learn gives ``decision_function`` or ``predict``."""

    def mask(self, values: Array, train: Rows) -> Array:
        """Values of a fold without what its training rows cannot know; here, all are known."""
        return values


@dataclass(frozen=True)
class Numbers(Target):
    """Real targets, one column each."""

    columns: Array
    is_flat: bool

    @classmethod
    def read(cls, y: Any) -> Numbers:
        """Check and read a regression target.

        Examples
        --------
        >>> Numbers.read([1, 2, 3]).columns.shape
        (3, 1)
        """
        if y is None:
            raise ValueError("y is None, but this estimator requires y to be passed")
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if y.ndim == 0 or y.ndim > 2:
            raise ValueError(f"y must have one or two dimensions, got shape {y.shape}")
        return cls(y.reshape(len(y), -1), y.ndim == 1)

    def predict(self, values: Array) -> Array:
        """See base class."""
        return values[:, 0] if self.is_flat else values

    decide = predict


@dataclass(frozen=True)
class Labels(Target):
    """Class labels: ±1 in one column for two classes, one column a class (+1, else −1) for more."""

    classes: NDArray[Any]
    codes: Rows
    columns: Array

    @classmethod
    def read(cls, y: Any) -> Labels:
        """Check and read class labels.

        Examples
        --------
        >>> labels = Labels.read(["b", "a", "b"])
        >>> labels.columns[:, 0], labels.predict(np.array([[0.3], [-2.0]]))
        (array([ 1., -1.,  1.]), array(['b', 'a'], dtype='<U1'))
        """
        if y is None:
            raise ValueError("y is None, but this estimator requires y to be passed")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only ({classes.tolist()}); a classifier needs at least two "
                "different labels"
            )
        columns = 2.0 * (codes[:, None] == np.arange(len(classes))) - 1.0
        return cls(classes, codes, columns[:, 1:] if len(classes) == 2 else columns)

    def predict(self, values: Array) -> NDArray[Any]:
        """See base class."""
        return decode(self.classes, values)

    def decide(self, values: Array) -> Array:
        """See base class."""
        return values[:, 0] if values.shape[1] == 1 else values

    def mask(self, values: Array, train: Rows) -> Array:
        """A class that the training rows do not have cannot be predicted."""
        seen = np.bincount(self.codes[train], minlength=len(self.classes)) > 0
        if seen.sum() < 2:
            raise ValueError(
                "the training rows of a fold have one class only; use a stratified cv, fewer "
                "folds, or more rows of the rare class"
            )
        if seen.all():
            return values
        masked = values.copy()
        masked[:, ~seen] = np.finfo(np.float64).min
        return masked
