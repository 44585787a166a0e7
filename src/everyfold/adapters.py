"""From estimators, scikit-learn's or ours, to the library's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier

from everyfold.estimators import KernelClassifier, KernelRegressor
from everyfold.losses import Squared
from everyfold.model import KernelChoice, Model, read_ridge

_LINEAR = KernelChoice("linear")


def _kernel_ridge(estimator: Any) -> Model:
    choice = KernelChoice(
        estimator.kernel,
        estimator.gamma,
        estimator.degree,
        estimator.coef0,
        estimator.kernel_params,
    )
    return Model(choice, Squared(), read_ridge(estimator.alpha), False, False)


def _ridge(estimator: Any) -> Model:
    _refuse_positive(estimator)
    ridges = read_ridge(estimator.alpha)
    return Model(_LINEAR, Squared(), ridges, bool(estimator.fit_intercept), False)


def _ridge_classifier(estimator: Any) -> Model:
    _refuse_positive(estimator)
    return Model(
        _LINEAR,
        Squared(),
        read_ridge(estimator.alpha),
        bool(estimator.fit_intercept),
        True,
        class_weight=estimator.class_weight,
    )


def _refuse_positive(estimator: Any) -> None:
    if estimator.positive:
        raise ValueError(
            f"{type(estimator).__name__}(positive=True) constrains the coefficients, so that no "
            "fold follows from another fit; use positive=False, or scikit-learn's own functions"
        )


def _ours(estimator: Any) -> Model:
    model: Model = estimator._model()
    return model


_READERS: dict[type, Callable[[Any], Model]] = {
    KernelRidge: _kernel_ridge,
    Ridge: _ridge,
    RidgeClassifier: _ridge_classifier,
    KernelRegressor: _ours,
    KernelClassifier: _ours,
}

_ADVICE = {
    "RidgeCV": "Ridge (RidgeCV selects alpha by itself: nested work that no single fit contains)",
    "RidgeClassifierCV": "RidgeClassifier",
    "SVC": "LSSVC, its least-squares sibling",
    "SVR": "LSSVR, its least-squares sibling",
    "NuSVC": "LSSVC, a least-squares sibling",
    "NuSVR": "LSSVR, a least-squares sibling",
    "LinearRegression": "Ridge with a small alpha",
    "Pipeline": "its last step on data transformed beforehand",
    "GaussianProcessRegressor": "KernelRidge with the same kernel",
}


def read_estimator(estimator: Any) -> Model:
    """What the estimator asks for, or an error that says what to use instead.

    Examples
    --------
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> read_estimator(KernelRidge(alpha=0.5)).ridges
    (0.5,)
    """
    for kind, read in _READERS.items():
        # A subclass of scikit-learn's may override anything: only the classes themselves are known.
        known = isinstance(estimator, kind) if read is _ours else type(estimator) is kind
        if known:
            return read(estimator)
    name = type(estimator).__name__
    supported = ", ".join(kind.__name__ for kind in _READERS)
    advice = f" Instead of {name}, try {_ADVICE[name]}." if name in _ADVICE else ""
    raise TypeError(
        f"estimator={name} is not supported: its folds do not follow from one fit that this "
        f"library knows. Supported are {supported}.{advice} For anything else, use the function "
        "of the same name in sklearn.model_selection."
    )
