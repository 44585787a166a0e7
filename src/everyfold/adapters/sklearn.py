"""Estimators, scikit-learn's or ours, read as a :class:`~everyfold.estimators.model.Model`.

:func:`read_estimator` finds loss, kernel, ridge and intercept that an estimator stands for. What
folds cannot be computed for without refits is refused here, with the parameter that is the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TypeGuard

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.svm import SVC, SVR

from everyfold._typing import Estimator, Params
from everyfold.adapters.linear_models import LINEAR
from everyfold.adapters.process_kernels import process_model
from everyfold.adapters.validity import refuse_extremes, refuse_odd_weights
from everyfold.estimators import KernelClassifier, KernelRegressor
from everyfold.estimators.base import KernelMachine
from everyfold.estimators.model import (
    KernelChoice,
    Model,
    original,
    read_penalty,
    read_ridge,
)
from everyfold.estimators.targets import Voting
from everyfold.losses import EpsilonInsensitive, Hinge, Squared


def _refuse_gammas(estimator: Estimator, instead: str) -> None:
    """Raise what scikit-learn's own ``fit`` would: it knows one gamma only."""
    if np.ndim(estimator.gamma) > 0:
        raise ValueError(
            f"{type(estimator).__name__}(gamma=...) with one number for each feature is not "
            f"supported by scikit-learn; use {instead}, or multiply the columns of X"
        )


def _kernel_ridge(estimator: Estimator) -> Model:
    _refuse_gammas(estimator, "KernelRegressor(fit_intercept=False)")
    refuse_extremes(estimator, "alpha", "gamma", "coef0")
    _refuse_steep_powers(estimator)
    choice = KernelChoice(
        estimator.kernel,
        estimator.gamma,
        estimator.degree,
        estimator.coef0,
        estimator.kernel_params,
    )
    return Model(choice, Squared(), read_ridge(estimator.alpha), False, False)


# Beyond either, (gamma x·x' + coef0)^degree leaves no digits beside its largest eigenvalue, and the
# folds fail where scikit-learn's least squares still give a score: on 60 rows of a regression at
# degree 60 or coef0 1e6, on 80 rows of breast cancer at degree 30.
_MOST_DEGREE, _MOST_POWER = 20.0, 1e12


def _refuse_steep_powers(estimator: Estimator) -> None:
    """Leave polynomial kernels with very large entries to scikit-learn."""
    if estimator.kernel not in ("poly", "polynomial"):
        return
    gamma = estimator.gamma if isinstance(estimator.gamma, Real) else 1.0
    size = math.log(max(abs(estimator.coef0), abs(float(gamma)), 1.0))
    degree = estimator.degree
    if degree > _MOST_DEGREE or degree * size > math.log(_MOST_POWER):
        raise ValueError(
            f"{type(estimator).__name__}(kernel={estimator.kernel!r}, degree={degree!r}, "
            f"gamma={estimator.gamma!r}, coef0={estimator.coef0!r}) has entries of so different a "
            f"size that no fold can be computed from others; use a degree up to {_MOST_DEGREE:g}"
        )


def _svm_choice(estimator: Estimator) -> KernelChoice:
    _refuse_gammas(estimator, "HuberSVC or KernelRegressor('smooth_epsilon')")
    refuse_extremes(estimator, "C", "gamma", "coef0", "tol")
    return KernelChoice(
        estimator.kernel,
        estimator.gamma,
        estimator.degree,
        estimator.coef0,
        on_matrices=callable(estimator.kernel),
    )


def _refuse_iteration_limit(estimator: Estimator) -> None:
    if estimator.max_iter != -1:
        raise ValueError(
            f"{type(estimator).__name__}(max_iter={estimator.max_iter}) stops libsvm at a point "
            "that no other solver reproduces; use max_iter=-1, or scikit-learn's own functions"
        )


def _svc(estimator: Estimator) -> Model:
    _refuse_iteration_limit(estimator)
    refuse_odd_weights(estimator, lambda weight: weight == 0.0)
    shape, break_ties = estimator.decision_function_shape, bool(estimator.break_ties)
    if break_ties and shape == "ovo":
        raise ValueError(
            "SVC(break_ties=True, decision_function_shape='ovo') predicts nothing; use "
            "decision_function_shape='ovr', which has values to break ties by"
        )
    voting = Voting(shape, break_ties, needs_weight=True)
    return Model(
        _svm_choice(estimator),
        Hinge(),
        read_penalty(estimator.C),
        True,
        True,
        operator="dense",
        class_weight=estimator.class_weight,
        voting=voting,
        tolerance=float(estimator.tol),
        C=float(estimator.C),
        shrinking=bool(estimator.shrinking),
        calibrates=estimator.probability not in (False, "deprecated"),
    )


def _svr(estimator: Estimator) -> Model:
    _refuse_iteration_limit(estimator)
    refuse_extremes(estimator, "epsilon")
    return Model(
        _svm_choice(estimator),
        EpsilonInsensitive(float(estimator.epsilon)),
        read_penalty(estimator.C),
        True,
        False,
        operator="dense",
        tolerance=float(estimator.tol),
        has_one_target=True,
        C=float(estimator.C),
        shrinking=bool(estimator.shrinking),
    )


_READERS: dict[type, Callable[[Estimator], Model]] = {
    KernelRidge: _kernel_ridge,
    **LINEAR,
    SVC: _svc,
    SVR: _svr,
    GaussianProcessRegressor: process_model,
}

_ADVICE = {
    "RidgeClassifierCV": "RidgeClassifier",
    "NuSVC": "SVC: nu and C are two names of one path, and nu has no warm start along it",
    "NuSVR": "SVR: nu and C are two names of one path, and nu has no warm start along it",
    "LogisticRegressionCV": "LogisticRegression",
    "LinearRegression": "Ridge with a small alpha",
}


class UnknownEstimatorError(TypeError):
    """An estimator that nothing here speeds up.

    Attributes
    ----------
    reason : str
        Why, in short.
    """

    def __init__(self, name: str) -> None:
        self.reason = f"{name} has folds that this library cannot compute without refitting"
        kinds = (*_READERS, KernelRegressor, KernelClassifier)
        supported = ", ".join(kind.__name__ for kind in kinds)
        advice = f" Instead of {name}, try {_ADVICE[name]}." if name in _ADVICE else ""
        super().__init__(
            f"estimator={name} is not supported: this library cannot compute its folds without "
            f"refitting. Supported are {supported}.{advice} For other estimators, use the "
            "function of the same name in sklearn.model_selection."
        )

    def __reduce__(self) -> tuple[type[TypeError], tuple[object, ...]]:
        return TypeError, self.args


def is_ours(estimator: Estimator) -> TypeGuard[KernelMachine]:
    """Whether an estimator is one of this library's, or derives from one."""
    return isinstance(estimator, KernelRegressor | KernelClassifier)


def read_estimator(estimator: Estimator) -> Model:
    """What the estimator asks for, or an error that says what to use instead.

    Examples
    --------
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> read_estimator(KernelRidge(alpha=0.5)).ridges
    (0.5,)
    """
    if is_ours(estimator):
        return estimator._model()
    # A subclass of scikit-learn's may override anything: only the classes themselves are known,
    # and the patches that stand for them (on either side: a patch may have come first).
    asked = original(type(estimator))
    for kind, read in _READERS.items():
        if asked is original(kind):
            return read(estimator)
    raise UnknownEstimatorError(type(estimator).__name__)


def takes_sources(estimator: Estimator) -> bool:
    """Whether an estimator, or ours with the same model, can be fitted to a source of rows."""
    return is_ours(estimator) or type(estimator) in (KernelRidge, Ridge, RidgeClassifier)


def fast_version_of(model: Model) -> KernelRegressor | KernelClassifier:
    """The estimator of this library that asks for the same model, for squared loss.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> fast_version_of(read_estimator(Ridge(alpha=0.5)))
    KernelRegressor(alpha=0.5, kernel='linear')
    """
    choice = model.choice
    params: Params = {
        "alpha": model.ridges[0],
        "kernel": choice.kernel,
        "gamma": choice.gamma,
        "degree": choice.degree,
        "coef0": choice.coef0,
        "kernel_params": choice.params,
        "fit_intercept": model.intercept,
        "operator": model.operator,
    }
    if model.is_classifier:
        return KernelClassifier(loss="squared", class_weight=model.class_weight, **params)
    return KernelRegressor(loss="squared", **params)
