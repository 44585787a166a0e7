"""Scikit-learn's scorers on predictions that already exist."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from everyfold.operators.base import Array
from everyfold.targets import Labels, Target


class _HeldOut(BaseEstimator):  # type: ignore[misc]
    """A model of one fold that knows the answers for its test rows, and for no others."""

    def __init__(self, X: Any, target: Target, values: Array) -> None:
        self.X = X
        self.target = target
        self.values = values

    def _answers(self, X: Any) -> Array:
        if X is not self.X:
            raise ValueError(
                "the scorer asks for predictions of rows other than the held-out ones; such a "
                "scorer needs real refits: use the function of the same name in scikit-learn"
            )
        return self.values

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the test rows."""
        return self.target.predict(self._answers(X))

    def __sklearn_is_fitted__(self) -> bool:
        return True


class HeldOutRegressor(RegressorMixin, _HeldOut):  # type: ignore[misc]
    """Stands in for the regressor of one fold."""


class HeldOutClassifier(ClassifierMixin, _HeldOut):  # type: ignore[misc]
    """Stands in for the classifier of one fold."""

    @property
    def classes_(self) -> NDArray[Any]:
        """All labels, known to the fold's training rows or not."""
        assert isinstance(self.target, Labels)
        return self.target.classes

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Decide the test rows."""
        return self.target.decide(self._answers(X))


def stand_in(X: Any, target: Target, values: Array) -> _HeldOut:
    """An estimator that answers for the test rows ``X`` with ``values``.

    Examples
    --------
    >>> from sklearn.metrics import get_scorer
    >>> from everyfold.targets import Numbers
    >>> X, y = np.ones((3, 1)), np.array([1.0, 2.0, 3.0])
    >>> get_scorer("r2")(stand_in(X, Numbers.read(y), y[:, None]), X, y)
    1.0
    """
    kind = HeldOutClassifier if isinstance(target, Labels) else HeldOutRegressor
    return kind(X, target, values)
