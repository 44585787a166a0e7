"""Linear models of scikit-learn, read as a :class:`~everyfold.estimators.model.Model`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.class_weight import compute_class_weight

from everyfold._typing import Estimator
from everyfold.adapters.validity import refuse_extremes, refuse_odd_weights
from everyfold.estimators.model import (
    KernelChoice,
    Model,
    read_penalty,
    read_ridge,
)
from everyfold.kernels import Linear
from everyfold.losses import Logistic, QuadraticEpsilon, Squared, SquaredHinge

_LINEAR = KernelChoice("linear")

# Whether LogisticRegression balances classes by their weight, and liblinear's models: since 1.7,
# when this function could.
#
# RidgeClassifier and SVC count rows in every version.
_WEIGHS_BALANCE = "sample_weight" in signature(compute_class_weight).parameters


def _refuse_positive(estimator: Estimator) -> None:
    if estimator.positive:
        raise ValueError(
            f"{type(estimator).__name__}(positive=True) constrains the coefficients, so that "
            "folds cannot be computed from one fit; use positive=False, or scikit-learn's own "
            "functions"
        )


def _ridge(estimator: Estimator) -> Model:
    _refuse_positive(estimator)
    refuse_extremes(estimator, "alpha")
    ridges = read_ridge(estimator.alpha)
    intercept = bool(estimator.fit_intercept)
    return Model(_LINEAR, Squared(), ridges, intercept, False, flattens=True)


def _ridge_classifier(estimator: Estimator) -> Model:
    _refuse_positive(estimator)
    refuse_extremes(estimator, "alpha")
    refuse_odd_weights(estimator, lambda weight: False)
    return Model(
        _LINEAR,
        Squared(),
        read_ridge(estimator.alpha),
        bool(estimator.fit_intercept),
        True,
        class_weight=estimator.class_weight,
        takes_indicators=True,
    )


def _ridge_cv(estimator: Estimator) -> Model:
    name = type(estimator).__name__
    for parameter, usual in (("cv", None), ("scoring", None), ("alpha_per_target", False)):
        value = getattr(estimator, parameter)
        if value is not usual and value != usual:
            raise ValueError(
                f"{name}({parameter}={value!r}) chooses alpha in another way; use "
                f"{parameter}={usual}, which is leave-one-out, or search Ridge over alpha"
            )
    refuse_extremes(estimator, "alphas")
    return Model(
        _LINEAR,
        Squared(),
        read_ridge(estimator.alphas, "alphas"),
        bool(estimator.fit_intercept),
        False,
        chooses_ridge=True,
        flattens=True,
    )


# Of C times a class weight, where the solvers of LogisticRegression find the minimum.
#
# Beyond it lbfgs, newton-cg and newton-cholesky stop at different points with any ``tol``: on 150
# rows of breast cancer from C = 1e11 on, where classes are separable, and below C = 1e-14, where
# the penalty is all that is left of the objective. Their own refits decide there.
_LOGISTIC_RANGE = 1e-12, 1e10


# Weights of classes that differ by more: on 150 rows of breast cancer the minimum found here is
# that of newton-cholesky with tol=1e-10 up to 1e8, and it is not at 1e10 (.875 and .824).
_MOST_UNLIKE = 1e8


def _refuse_early_stops(estimator: Estimator) -> None:
    name = type(estimator).__name__
    given = estimator.class_weight
    weights = list(given.values()) if isinstance(given, dict) else []
    low, high = _LOGISTIC_RANGE
    if weights and max(1.0, *weights) > _MOST_UNLIKE * min(1.0, *weights):
        raise ValueError(
            f"{name}(class_weight={given!r}) weighs classes so differently that its "
            f"solvers stop before the minimum; use a ratio of weights up to {_MOST_UNLIKE:g}"
        )
    for weight in (1.0, *weights):
        if not low <= estimator.C * weight <= high:
            raise ValueError(
                f"{name}(C={estimator.C!r}, class_weight={given!r}) is so extreme that "
                f"its solvers stop before the minimum; use C times weights between {low:g} and "
                f"{high:g}"
            )


def _logistic(estimator: Estimator) -> Model:
    # A class without weight has an intercept that falls until the estimator's own solver stops.
    refuse_odd_weights(estimator, lambda weight: weight <= 0.0)
    refuse_extremes(estimator, "C")
    _refuse_early_stops(estimator)
    penalty, l1_ratio = estimator.penalty, getattr(estimator, "l1_ratio", None)
    if penalty not in ("l2", "deprecated") or l1_ratio not in (None, 0, 0.0, "deprecated"):
        raise ValueError(
            f"LogisticRegression(penalty={penalty!r}, l1_ratio={l1_ratio!r}) has no quadratic "
            "penalty, so that folds cannot be computed from one fit; use the l2 penalty"
        )
    is_liblinear = estimator.solver == "liblinear"
    choice, intercept = _penalised_intercept(estimator) if is_liblinear else (_LINEAR, None)
    return Model(
        choice,
        Logistic(),
        read_penalty(estimator.C),
        bool(estimator.fit_intercept) if intercept is None else intercept,
        True,
        class_weight=estimator.class_weight,
        is_joint=not is_liblinear,
        is_binary=is_liblinear,
        weighs_balance=_WEIGHS_BALANCE,
    )


# -- liblinear ---------------------------------------------------------------------------------


def _penalised_intercept(estimator: Estimator) -> tuple[KernelChoice, bool]:
    """The kernel of liblinear's models, whose intercept is the coefficient of one more column."""
    if not estimator.fit_intercept:
        return _LINEAR, False
    refuse_extremes(estimator, "intercept_scaling")
    scaling = float(estimator.intercept_scaling)
    if not scaling > 0.0:
        raise ValueError(
            f"{type(estimator).__name__}(intercept_scaling={scaling:g}) leaves no intercept; use "
            "intercept_scaling > 0, or fit_intercept=False"
        )
    return KernelChoice(Linear(constant=scaling**2)), False


def _refuse_other_losses(estimator: Estimator, loss: str) -> None:
    if estimator.loss != loss:
        raise ValueError(
            f"{type(estimator).__name__}(loss={estimator.loss!r}) has a kink, which takes a solver "
            f"of its own; use loss={loss!r}"
        )


def _linear_svc(estimator: Estimator) -> Model:
    if estimator.penalty != "l2" or estimator.multi_class != "ovr":
        raise ValueError(
            f"LinearSVC(penalty={estimator.penalty!r}, multi_class={estimator.multi_class!r}) is "
            "not a sum of smooth losses of each class; use penalty='l2' and multi_class='ovr'"
        )
    _refuse_other_losses(estimator, "squared_hinge")
    refuse_odd_weights(estimator, lambda weight: weight <= 0.0)
    refuse_extremes(estimator, "C")
    _refuse_early_stops(estimator)
    choice, intercept = _penalised_intercept(estimator)
    return Model(
        choice,
        SquaredHinge(),
        read_penalty(estimator.C),
        intercept,
        True,
        class_weight=estimator.class_weight,
        weighs_rest=False,
        weighs_balance=_WEIGHS_BALANCE,
    )


def _linear_svr(estimator: Estimator) -> Model:
    _refuse_other_losses(estimator, "squared_epsilon_insensitive")
    refuse_extremes(estimator, "C", "epsilon")
    choice, intercept = _penalised_intercept(estimator)
    epsilon = float(estimator.epsilon)
    return Model(
        choice,
        QuadraticEpsilon(epsilon) if epsilon != 0.0 else Squared(),
        read_penalty(estimator.C),
        intercept,
        False,
        has_one_target=True,
    )


LINEAR: dict[type, Callable[[Estimator], Model]] = {
    Ridge: _ridge,
    RidgeClassifier: _ridge_classifier,
    RidgeCV: _ridge_cv,
    LogisticRegression: _logistic,
    LinearSVC: _linear_svc,
    LinearSVR: _linear_svr,
}
