"""Models that know the answers: what a scorer gets in the place of a fitted estimator.

A scorer of scikit-learn's, or of the user's own, asks an estimator for predictions of rows. A
stand-in answers from held-out values, for the test rows of one fold and no others.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from everyfold._sklearn_private import BaseScorer
from everyfold._typing import AnyArray, Array, Estimator, Matrix, Params, Targets
from everyfold.estimators.targets import Target

# What scorers look for in turn; a stand-in has what its estimator has.
_RESPONSES = ("predict_proba", "predict_log_proba", "decision_function")


class HeldOut(BaseEstimator):  # type: ignore[misc]
    """A model of one fold that knows the answers for its test rows, and for no others."""

    was_asked_elsewhere = False
    missing_attribute = ""
    """What a scorer asked for that only the estimator itself has."""

    def __init__(self, X: Matrix, target: Target, values: Array) -> None:
        self.X = X
        self.target = target
        self.values = values

    def _answers(self, X: Matrix) -> Array:
        if X is not self.X:
            self.was_asked_elsewhere = True
            raise ValueError(
                "the scorer predicts rows other than the held-out ones, which needs fitted models"
            )
        return self.values

    def predict(self, X: Matrix) -> AnyArray:
        """Predict the test rows."""
        return self.target.predict(self._answers(X))

    def get_params(self, deep: bool = True) -> Params:
        """No parameters of the estimator that it stands for."""
        self.missing_attribute = self.missing_attribute or "get_params"
        return super().get_params(deep)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name not in _RESPONSES:
            self.__dict__["missing_attribute"] = name
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return True


class HeldOutRegressor(RegressorMixin, HeldOut):  # type: ignore[misc]
    """Stands in for the regressor of one fold."""


def _has_probabilities(model: Estimator) -> bool:
    return bool(model.target.has_probabilities)


class HeldOutClassifier(ClassifierMixin, HeldOut):  # type: ignore[misc]
    """Stands in for the classifier of one fold."""

    @property
    def classes_(self) -> AnyArray:
        """The labels of the fold's training rows."""
        assert self.target.classes is not None
        return self.target.classes

    def decision_function(self, X: Matrix) -> AnyArray:
        """Decide the test rows."""
        return self.target.decide(self._answers(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> Array:
        """Probabilities of the classes of the test rows."""
        return self.target.probabilities(self._answers(X))


class KnownAnswer(BaseScorer):  # type: ignore[misc]
    """Stands in for a scorer whose answer is known, among others that are asked.

    Scorers that are asked together share predictions, and only the first to need them says which
    label is the positive one: whether a later one fails depends on those before it.
    """

    def __init__(self, answer: AnyArray) -> None:
        super().__init__(None, 1, {}, "predict")
        self._answer = answer

    def _score(
        self, method_caller: Any, estimator: Estimator, X: Matrix, y_true: Targets, **_: object
    ) -> AnyArray:
        method_caller(estimator, "predict", X, pos_label=None)
        return self._answer


def stand_in(X: Matrix, target: Target, values: Array) -> HeldOut:
    """An estimator that answers for the test rows ``X`` with ``values``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics import get_scorer
    >>> from everyfold.estimators.targets import Numbers
    >>> X, y = np.ones((3, 1)), np.array([1.0, 2.0, 3.0])
    >>> get_scorer("r2")(stand_in(X, Numbers.read(y), y[:, None]), X, y)
    1.0
    """
    kind = HeldOutRegressor if target.classes is None else HeldOutClassifier
    return kind(X, target, values)
