"""Estimators, scikit-learn's or ours, read as a :class:`~everyfold.estimators.model.Model`.

:func:`read_estimator` finds loss, kernel, ridge and intercept that an estimator stands for. What
folds cannot be computed for without refits is refused here, with the parameter that is the reason.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache
from inspect import signature
from numbers import Real
from typing import TypeGuard

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils.class_weight import compute_class_weight

from everyfold._sklearn_private import validate_parameter_constraints
from everyfold._typing import Estimator, Matrix, Params
from everyfold.adapters.pipelines import freeze
from everyfold.adapters.process_kernels import process_model
from everyfold.estimators import KernelClassifier, KernelRegressor
from everyfold.estimators.base import KernelMachine
from everyfold.estimators.model import KernelChoice, Model, original, read_penalty, read_ridge
from everyfold.estimators.targets import Target, Voting
from everyfold.kernels import Linear, check_precomputed
from everyfold.losses import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
    QuadraticEpsilon,
    Squared,
    SquaredHinge,
    Tweedie,
)

_LINEAR = KernelChoice("linear")

# Whether LogisticRegression and LinearSVC balance classes by their weight: since 1.7, when this
# function could.
#
# RidgeClassifier and SVC count rows in every version.
_WEIGHS_BALANCE = "sample_weight" in signature(compute_class_weight).parameters


def _one_gamma(estimator: Estimator, instead: str) -> ValueError:
    """What scikit-learn's own ``fit`` would raise of several gammas: it knows one only."""
    return ValueError(
        f"{type(estimator).__name__}(gamma=...) with one number for each feature is not "
        f"supported by scikit-learn; use {instead}, or multiply the columns of X"
    )


def _kernel_ridge(estimator: Estimator) -> Model:
    if np.ndim(estimator.gamma):
        raise _one_gamma(estimator, "KernelRegressor(fit_intercept=False)")
    _refuse_extremes(estimator, "alpha", "gamma", "coef0")
    if estimator.kernel in ("poly", "polynomial"):
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
    gamma = estimator.gamma if isinstance(estimator.gamma, Real) else 1.0
    size = math.log(max(abs(estimator.coef0), abs(float(gamma)), 1.0))
    degree = estimator.degree
    if degree > _MOST_DEGREE or degree * size > math.log(_MOST_POWER):
        raise ValueError(
            f"{type(estimator).__name__}(kernel={estimator.kernel!r}, degree={degree!r}, "
            f"gamma={estimator.gamma!r}, coef0={estimator.coef0!r}) has entries of so different a "
            f"size that no fold can be computed from others; use a degree up to {_MOST_DEGREE:g}"
        )


def _ridge(estimator: Estimator) -> Model:
    _refuse_positive(estimator)
    _refuse_extremes(estimator, "alpha")
    ridges = read_ridge(estimator.alpha)
    intercept = bool(estimator.fit_intercept)
    return Model(_LINEAR, Squared(), ridges, intercept, False, flattens=True)


def _ridge_classifier(estimator: Estimator) -> Model:
    _refuse_positive(estimator)
    _refuse_extremes(estimator, "alpha")
    _refuse_odd_weights(estimator, lambda weight: False)
    return Model(
        _LINEAR,
        Squared(),
        read_ridge(estimator.alpha),
        bool(estimator.fit_intercept),
        True,
        class_weight=estimator.class_weight,
        takes_indicators=True,
    )


# Sizes of parameters that single precision holds together with their products.
#
# Beyond them scikit-learn's own refits decide, so that no other candidate of a common path
# suffers.
_ORDINARY = 1e-30, 1e30


def _is_extreme(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool) or value == 0.0:
        return False
    return not _ORDINARY[0] <= abs(float(value)) <= _ORDINARY[1]


def _refuse_extremes(estimator: Estimator, *names: str) -> None:
    """Leave numbers of an extreme size to scikit-learn."""
    for name in names:
        values = getattr(estimator, name)
        many = [values] if isinstance(values, float) else np.atleast_1d(values).tolist()
        if any(map(_is_extreme, many)):
            raise ValueError(
                f"{type(estimator).__name__}({name}={values!r}) is too extreme to be computed with "
                f"other candidates; use values between {_ORDINARY[0]:g} and {_ORDINARY[1]:g}"
            )


def _refuse_odd_weights(estimator: Estimator, is_odd: Callable[[float], bool]) -> None:
    """Refuse unusual class weights; scikit-learn itself accepts some of them."""
    given = estimator.class_weight
    for label, weight in given.items() if isinstance(given, dict) else ():
        is_number = isinstance(weight, Real) and not _is_extreme(weight)
        if not is_number or math.isnan(weight) or is_odd(float(weight)):
            raise ValueError(
                f"{type(estimator).__name__}(class_weight={{{label!r}: {weight!r}}}) "
                "is not a weight that can be sped up; use finite weights > 0"
            )


def _svm_choice(estimator: Estimator) -> KernelChoice:
    if np.ndim(estimator.gamma):
        raise _one_gamma(estimator, "HuberSVC or KernelRegressor('smooth_epsilon')")
    _refuse_extremes(estimator, "C", "gamma", "coef0", "tol")
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
    _refuse_odd_weights(estimator, lambda weight: weight == 0.0)
    shape, break_ties = estimator.decision_function_shape, bool(estimator.break_ties)
    if break_ties and shape == "ovo":
        raise ValueError(
            "SVC(break_ties=True, decision_function_shape='ovo') predicts nothing; use "
            "decision_function_shape='ovr', which has values to break ties by"
        )
    voting = Voting(shape, break_ties, is_libsvm=True)
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
    _refuse_extremes(estimator, "epsilon")
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


def _ridge_cv(estimator: Estimator) -> Model:
    name = type(estimator).__name__
    for parameter, usual in (("cv", None), ("scoring", None), ("alpha_per_target", False)):
        value = getattr(estimator, parameter)
        if value is not usual and value != usual:
            raise ValueError(
                f"{name}({parameter}={value!r}) chooses alpha in another way; use "
                f"{parameter}={usual}, which is leave-one-out, or search Ridge over alpha"
            )
    _refuse_extremes(estimator, "alphas")
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
    _refuse_odd_weights(estimator, lambda weight: weight <= 0.0)
    _refuse_extremes(estimator, "C")
    _refuse_early_stops(estimator)
    penalty, l1_ratio = estimator.penalty, getattr(estimator, "l1_ratio", None)
    if penalty not in ("l2", "deprecated") or l1_ratio not in (None, 0, 0.0, "deprecated"):
        raise ValueError(
            f"LogisticRegression(penalty={penalty!r}, l1_ratio={l1_ratio!r}) has no quadratic "
            "penalty, so that folds cannot be computed from one fit; use the l2 penalty"
        )
    is_liblinear = estimator.solver == "liblinear"
    choice, intercept = _LINEAR, bool(estimator.fit_intercept)
    if is_liblinear:
        choice, intercept = _penalised_intercept(estimator)
    return Model(
        choice,
        Logistic(),
        read_penalty(estimator.C),
        intercept,
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
    _refuse_extremes(estimator, "intercept_scaling")
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
    _refuse_odd_weights(estimator, lambda weight: weight <= 0.0)
    _refuse_extremes(estimator, "C")
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
    _refuse_extremes(estimator, "C", "epsilon")
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


# -- one classifier for each class ---------------------------------------------------------------

_ALONE = (LogisticRegression, LinearSVC, RidgeClassifier)


def _one_vs_rest(estimator: Estimator) -> Model:
    inner = estimator.estimator
    if original(type(inner)) not in _ALONE or inner.class_weight is not None:
        known = ", ".join(kind.__name__ for kind in _ALONE)
        raise ValueError(
            f"OneVsRestClassifier(estimator={inner!r}) is refitted; use one of {known} without "
            "class_weight"
        )
    model = replace(read_estimator(inner), is_joint=False, is_binary=False)
    return replace(model, takes_indicators=True)


# -- generalised linear models -----------------------------------------------------------------


def _tweedie(estimator: Estimator, power: float) -> Model:
    name = type(estimator).__name__
    _refuse_extremes(estimator, "alpha")
    if not estimator.alpha > 0.0 or not 1.0 <= power <= 2.0:
        raise ValueError(
            f"{name}(alpha={estimator.alpha!r}) of power {power:g} may have many minima; use "
            "alpha > 0 and a power from 1 to 2"
        )
    return Model(
        _LINEAR,
        Tweedie(power),
        tuple(0.5 * ridge for ridge in read_ridge(estimator.alpha)),
        bool(estimator.fit_intercept),
        False,
        ridge_scaling="weights",
        has_one_target=True,
    )


def _poisson(estimator: Estimator) -> Model:
    return _tweedie(estimator, 1.0)


def _gamma(estimator: Estimator) -> Model:
    return _tweedie(estimator, 2.0)


def _any_tweedie(estimator: Estimator) -> Model:
    if estimator.link not in ("auto", "log"):
        raise ValueError(
            f"TweedieRegressor(link={estimator.link!r}) has an objective that is not convex; use "
            "link='auto' or 'log'"
        )
    return _tweedie(estimator, float(estimator.power))


def _refuse_positive(estimator: Estimator) -> None:
    if estimator.positive:
        raise ValueError(
            f"{type(estimator).__name__}(positive=True) constrains the coefficients, so that "
            "folds cannot be computed from one fit; use positive=False, or scikit-learn's own "
            "functions"
        )


_READERS: dict[type, Callable[[Estimator], Model]] = {
    KernelRidge: _kernel_ridge,
    Ridge: _ridge,
    RidgeClassifier: _ridge_classifier,
    RidgeCV: _ridge_cv,
    LogisticRegression: _logistic,
    LinearSVC: _linear_svc,
    LinearSVR: _linear_svr,
    OneVsRestClassifier: _one_vs_rest,
    PoissonRegressor: _poisson,
    GammaRegressor: _gamma,
    TweedieRegressor: _any_tweedie,
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
        self.reason = f"this library cannot compute the folds of {name} without refitting"
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
    kinds = KernelRidge, Ridge, RidgeClassifier, LogisticRegression
    return is_ours(estimator) or type(estimator) in kinds


def fast_version_of(model: Model) -> KernelRegressor | KernelClassifier:
    """The estimator of this library that asks for the same model.

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
    params["loss"] = "squared" if model.loss.has_constant_curvature else model.loss
    if model.is_classifier:
        return KernelClassifier(class_weight=model.class_weight, **params)
    return KernelRegressor(**params)


# -- Parameters that scikit-learn's own fit would refuse -------------------------------------------

# Types of parameters that are compared as they are; of others only the number of dimensions is.
_SCALARS = (type(None), bool, int, float, str, np.generic)


# Values of parameters that have passed, by class and name. A check of all parameters of an
# estimator takes 0.2 to 0.5 ms, more than the evaluation of a small candidate; searches of random
# values would fill the memory without a limit.
VALID: set[Hashable] = set()
_MOST_VALID = 10_000


# What holds a model, and the parameter that it is; of Pipelines it is the last step.
_INNER: dict[type, str] = {
    Pipeline: "",
    TransformedTargetRegressor: "regressor",
    OneVsRestClassifier: "estimator",
}


def check_parameters(estimator: Estimator) -> None:
    """Raise what ``fit`` says of the parameters of a model, or of a Pipeline around it.

    The constraints are scikit-learn's, checked once for each distinct value.
    """
    if get_config()["skip_parameter_validation"]:
        return
    # The Pipelines and wrappers around a model, and the model itself.
    parts = [estimator]
    while type(parts[-1]) in _INNER:
        last, name = parts[-1], _INNER[type(parts[-1])]
        parts.append(getattr(last, name) if name else last.steps[-1][1])
    for part in parts:
        kind = original(type(part))
        if kind.__module__.partition(".")[0] != "sklearn":
            continue
        constraints = getattr(kind, "_parameter_constraints", {})
        unknown = {}
        for name in constraints:
            value = getattr(part, name, None)
            # Nothing but the type and the number of axes of a larger value is constrained.
            content = value if isinstance(value, _SCALARS) else getattr(value, "ndim", 0)
            key = kind, name, type(value), content
            if key not in VALID:
                unknown[key] = value
        if unknown:
            # What an older estimator has in its constraints only is no parameter of it.
            given = {key[1]: value for key, value in unknown.items() if hasattr(part, key[1])}
            validate_parameter_constraints(constraints, given, caller_name=kind.__name__)
            if len(VALID) > _MOST_VALID:
                VALID.clear()
            VALID.update(unknown)


# Parameters that are valid one by one, but not with each other or with any kind of rows.
_COMBINED: dict[type, tuple[str, ...]] = {
    Ridge: ("solver", "positive", "fit_intercept"),
    RidgeClassifier: ("solver", "positive", "fit_intercept"),
    RidgeCV: ("alphas", "gcv_mode", "store_cv_results", "fit_intercept"),
    LogisticRegression: ("solver", "penalty", "dual", "l1_ratio"),
    LinearSVC: ("penalty", "loss", "dual", "multi_class"),
    LinearSVR: ("loss", "dual"),
}


def combination(estimator: Estimator) -> Hashable | None:
    """The values that ``fit`` may refuse together; None where all are defaults, which it takes."""
    kind = original(type(estimator))
    if kind is OneVsRestClassifier:
        return combination(estimator.estimator)
    names = _COMBINED.get(kind, ())
    defaults = _defaults(kind) if names else {}
    values = [(name, getattr(estimator, name)) for name in names if name in defaults]
    if all(_is_same(value, defaults[name]) for name, value in values):
        return None
    return kind, freeze(dict(values))


@cache
def _defaults(kind: type) -> Params:
    return {name: given.default for name, given in signature(kind).parameters.items()}


def _is_same(value: object, default: object) -> bool:
    return type(value) is type(default) and bool(np.all(value == default))


def objection(estimator: Estimator, target: Target, *, is_sparse: bool) -> Exception | None:
    """What ``fit`` raises for a combination of parameters, by fitting a dozen made-up rows.

    Which combinations are refused differs between solvers, sparse and dense rows, and versions of
    scikit-learn: its own words are always right.
    """
    n = 12
    X = np.random.default_rng(0).standard_normal((n, 2))
    y = X @ np.ones((2, target.columns.shape[1]))
    if target.classes is not None:
        y = np.resize(target.classes[:3], n)
    harmless = {"class_weight": None, "random_state": 0, "verbose": 0, "alpha": 1.0, "C": 1.0}
    tried = clone(estimator)
    tried.set_params(**{k: harmless[k] for k in harmless.keys() & tried.get_params(deep=False)})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tried.fit(csr_matrix(X) if is_sparse else X, y)
    except (TypeError, ValueError) as error:
        return error
    return None


def check_kernel_matrix(kind: type, K: Matrix) -> None:
    """Raise the error that ``fit`` of a class raises for a precomputed kernel matrix."""
    if issparse(K) and original(kind) in (SVC, SVR):
        raise TypeError("Sparse precomputed kernels are not supported.")
    check_precomputed(K)
