"""Parameters that scikit-learn's own ``fit`` would refuse, found before any work.

A search never calls ``fit`` for most candidates, so that nothing else would validate them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from functools import cache
from inspect import signature
from numbers import Real

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from everyfold._sklearn_private import validate_parameter_constraints
from everyfold._typing import Estimator, Matrix, Params
from everyfold.adapters.pipelines import freeze
from everyfold.estimators.model import original
from everyfold.estimators.targets import Target
from everyfold.kernels import check_precomputed

# Types of parameters that are compared as they are; of others only the number of dimensions is.
_SCALARS = (type(None), bool, int, float, str, np.generic)


# Values of parameters that have passed, by class and name. A check of all parameters of an
# estimator takes 0.2 to 0.5 ms, more than the evaluation of a small candidate; searches of random
# values would fill the memory without a limit.
VALID: set[Hashable] = set()
_MOST_VALID = 10_000


def check_parameters(estimator: Estimator) -> None:
    """Raise what ``fit`` says of the parameters of a model, or of a Pipeline around it.

    The constraints are scikit-learn's, checked once for each distinct value.
    """
    if get_config()["skip_parameter_validation"]:
        return
    # The Pipelines and wrappers around a model, and the model itself.
    parts = [estimator]
    while type(parts[-1]) in (Pipeline, TransformedTargetRegressor):
        last = parts[-1]
        parts.append(last.steps[-1][1] if type(last) is Pipeline else last.regressor)
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


# Sizes of parameters that single precision holds together with their products.
#
# Beyond them scikit-learn's own refits decide, so that no other candidate of a common path
# suffers.
_ORDINARY = 1e-30, 1e30


def _is_extreme(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool) or value == 0.0:
        return False
    return not _ORDINARY[0] <= abs(float(value)) <= _ORDINARY[1]


def refuse_extremes(estimator: Estimator, *names: str) -> None:
    """Leave numbers of an extreme size to scikit-learn."""
    for name in names:
        values = getattr(estimator, name)
        if any(_is_extreme(value) for value in np.atleast_1d(values).tolist()):
            raise ValueError(
                f"{type(estimator).__name__}({name}={values!r}) is too extreme to be computed with "
                f"other candidates; use values between {_ORDINARY[0]:g} and {_ORDINARY[1]:g}"
            )


def refuse_odd_weights(estimator: Estimator, is_odd: Callable[[float], bool]) -> None:
    """Refuse unusual class weights; scikit-learn itself accepts some of them."""
    given = estimator.class_weight
    for label, weight in given.items() if isinstance(given, dict) else ():
        is_number = isinstance(weight, Real) and not _is_extreme(weight)
        if not is_number or math.isnan(weight) or is_odd(float(weight)):
            raise ValueError(
                f"{type(estimator).__name__}(class_weight={{{label!r}: {weight!r}}}) "
                "is not a weight that can be sped up; use finite weights > 0"
            )
