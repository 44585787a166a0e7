"""Pipelines: the transformers before a model, and the rows that they make of each training set.

A Pipeline is split into its transformers and its last step. The transformers are fitted to the
training rows of each fold, or once to all rows where users ask for that; they never see y then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import FLOAT_DTYPES, check_array

from everyfold._sklearn_private import check_method_params, safe_split
from everyfold._typing import Array, Estimator, Index, Matrix, Params, Targets
from everyfold.estimators.targets import Warp
from everyfold.io.moments import Moments, Scaling
from everyfold.kernels.pairwise import Objects

# Types of parameters that are compared and hashed as they are.
_PLAIN = frozenset({type(None), bool, int, float, str, type})

# A note on errors that scikit-learn counts as failures of a score, not of a fit.
HELD_OUT = "The fit succeeded; only the rows that were held out could not be transformed."


class MetadataError(ValueError):
    """Metadata that an estimator's own ``fit`` would refuse: only its own candidates fail."""


def advice_on(names: Iterable[str]) -> str:
    """Where parameters belong that ``fit`` of a model does not take; empty if nothing is known."""
    return "; groups are for the folds, pass groups=groups" if "groups" in names else ""


def freeze(value: object) -> Hashable:
    """A hashable stand-in: equal for values that mean the same to an estimator.

    Examples
    --------
    >>> freeze({"a": [1, 2]}) == freeze({"a": [1, 2]})
    True
    """
    kind = type(value)
    if kind in _PLAIN:  # most values are, and a search freezes every parameter of every candidate
        return kind, value
    if isinstance(value, BaseEstimator):
        return kind, freeze(value.get_params(deep=False))
    if isinstance(value, Mapping):
        return "mapping", frozenset((freeze(k), freeze(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return kind, tuple([freeze(item) for item in value])
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if hasattr(kind, "__dataclass_fields__"):
        return kind, tuple([freeze(getattr(value, name)) for name in kind.__dataclass_fields__])
    try:
        hash(value)
    except TypeError:
        return id(value)
    return kind, value


@dataclass(frozen=True)
class Step:
    """A transformer and the metadata of its ``fit``."""

    transformer: Estimator
    params: Params = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """Equal for steps that transform rows alike: the same transformer with the same metadata.

        Metadata have a length of n; all candidates are handed the same objects.
        """
        metadata = sorted((name, id(value)) for name, value in self.params.items())
        return freeze(self.transformer), tuple(metadata)

    def fit(self, X: Matrix, y: Targets, params: Params) -> tuple[Matrix, Matrix]:
        """A fitted clone, and X transformed."""
        transformer = clone(self.transformer)
        if hasattr(transformer, "fit_transform"):
            return transformer, transformer.fit_transform(X, y, **params)
        transformer.fit(X, y, **params)
        return transformer, transformer.transform(X)


@dataclass(frozen=True)
class Parts:
    """The parts of a Pipeline: its transformers, its last step and the metadata that one gets."""

    steps: tuple[Step, ...]
    final: Estimator
    params: Params

    @property
    def key(self) -> Hashable:
        """Equal for parts that prepare the rows alike."""
        return tuple(step.key for step in self.steps)

    def without_y(self, X: Matrix) -> Matrix:
        """All rows by steps fitted on all of them, or None if some step looks at y.

        Its tags say so, or it cannot be fitted without.
        """
        if any(_needs_y(step.transformer) for step in self.steps):
            return None
        try:
            return prepare_once(self.steps, X)
        except (TypeError, ValueError):
            return None

    @property
    def lone_scaler(self) -> StandardScaler | None:
        """The StandardScaler that is all there is before the model, without metadata."""
        if len(self.steps) != 1 or self.steps[0].params:
            return None
        found = self.steps[0].transformer
        is_valid = type(found) is StandardScaler and {
            type(found.with_mean),
            type(found.with_std),
        } == {bool}
        return found if is_valid else None

    @property
    def ignores_y(self) -> bool:
        """Whether all steps are known not to use y, whatever it is."""
        return all(_is_blind(step.transformer) for step in self.steps)


# Packages of scikit-learn whose transformers do not use y.
_BLIND = ("preprocessing", "decomposition", "impute", "random_projection", "kernel_approximation")


def _is_blind(transformer: Estimator) -> bool:
    """Whether a transformer is one of scikit-learn's that do not use y."""
    library, _, module = type(transformer).__module__.partition(".")
    is_known = library == "sklearn" and module.split(".")[0] in _BLIND
    return is_known and not _needs_y(transformer)


def _needs_y(transformer: Estimator) -> bool:
    nested = transformer.get_params(deep=True).values() if _is_estimator(transformer) else ()
    found = [transformer, *(value for value in nested if _is_estimator(value))]
    return any(get_tags(item).target_tags.required for item in found)


def _is_estimator(value: object) -> bool:
    return isinstance(value, BaseEstimator) and not isinstance(value, type)


def final_step(estimator: Estimator) -> Estimator:
    """The model at the end of a Pipeline, nested or not, or in a TransformedTargetRegressor.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> final_step(make_pipeline("passthrough", Ridge()))
    Ridge()
    """
    while type(estimator) in (Pipeline, TransformedTargetRegressor):
        is_pipeline = type(estimator) is Pipeline
        estimator = estimator.steps[-1][1] if is_pipeline else _regressor(estimator)
    return estimator


def with_final_step(estimator: Estimator, final: Estimator) -> Estimator:
    """A Pipeline, nested or not, with another model at its end; that model where there is none."""
    if type(estimator) is not Pipeline:
        return final
    *before, (name, last) = estimator.steps
    return Pipeline([*before, (name, with_final_step(last, final))])


def _regressor(estimator: TransformedTargetRegressor) -> Estimator:
    return LinearRegression() if estimator.regressor is None else estimator.regressor


def warp_of(estimator: Estimator) -> Warp | None:
    """How an estimator transforms its targets, if it does; by scikit-learn's wrapper alone.

    It may stand around a Pipeline or at the end of one.
    """
    found = None
    while type(estimator) in (Pipeline, TransformedTargetRegressor):
        if type(estimator) is Pipeline:
            estimator = estimator.steps[-1][1]
            continue
        if found is not None:
            raise ValueError("TransformedTargetRegressor within another one is not supported")
        found, estimator = Warp.of(estimator), _regressor(estimator)
    return found


def split_steps(estimator: Estimator, params: Params) -> Parts:
    """Split a Pipeline, nested or not, into transformers and the model at its end.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> parts = split_steps(make_pipeline(StandardScaler(), Ridge()), {"ridge__sample_weight": [1]})
    >>> parts.final, parts.params
    (Ridge(), {'sample_weight': [1]})
    """
    steps: list[Step] = []
    while type(estimator) in (Pipeline, TransformedTargetRegressor):
        if type(estimator) is TransformedTargetRegressor:
            estimator = _unwrapped(estimator, params)
            continue
        if getattr(estimator, "transform_input", None) is not None:
            raise ValueError(
                "Pipeline(transform_input=...) is not supported; use transform_input=None, or "
                "scikit-learn's own search"
            )
        routed = _route_steps(estimator, params)
        *before, (last, final) = estimator.steps
        for name, transformer in before:
            if transformer is not None and not isinstance(transformer, str):
                steps.append(Step(transformer, routed[name]))
        estimator, params = final, routed[last]
    return Parts(tuple(steps), estimator, params)


def _unwrapped(estimator: TransformedTargetRegressor, params: Params) -> Estimator:
    """The regressor of a TransformedTargetRegressor, which gets the same metadata."""
    if params and get_config()["enable_metadata_routing"]:
        raise ValueError("metadata routed through TransformedTargetRegressor are not supported")
    regressor = _regressor(estimator)
    inside = split_steps(regressor, {}).steps if type(regressor) is Pipeline else ()
    if not all(_is_blind(step.transformer) for step in inside):
        raise ValueError("steps within TransformedTargetRegressor may use the transformed y")
    return regressor


def _route_steps(pipeline: Estimator, params: Params) -> dict[str, Params]:
    """What each step's ``fit`` gets of the parameters of the Pipeline's."""
    routed: dict[str, Params] = {name: {} for name, _ in pipeline.steps}
    if not get_config()["enable_metadata_routing"]:
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in routed or not rest:
                raise MetadataError(
                    f"fit parameter {key!r} does not name a step of the Pipeline; pass it as "
                    f"'step__parameter' with a step of {list(routed)}{advice_on([key])}"
                )
            routed[name][rest] = value
        return routed
    if not params:
        return routed
    requests = process_routing(pipeline, "fit", **params)
    for name, step in pipeline.steps:
        bunch = requests.get(name, {})
        if bunch.get("transform") and name != pipeline.steps[-1][0]:
            raise ValueError(
                f"step {name!r} asks for metadata in transform, which is not supported; use "
                "scikit-learn's own search"
            )
        is_last = name == pipeline.steps[-1][0]
        method = "fit_transform" if hasattr(step, "fit_transform") and not is_last else "fit"
        routed[name] = dict(bunch.get(method, {}))
    return routed


def read_rows(X: Matrix, estimator: Estimator = None, *, takes_any: bool = False) -> Matrix:
    """Check rows that go into a kernel: finite numbers in double precision, dense or CSR.

    With ``takes_any``, the kernel is a function that gets whatever the user has.
    """
    if takes_any:
        return Objects(X)
    return check_array(
        X, accept_sparse="csr", dtype=np.float64, input_name="X", estimator=estimator
    )


def prepare_once(steps: tuple[Step, ...], X: Matrix) -> Matrix:
    """Transform all rows by steps fitted on all rows, which never see y."""
    for step in steps:
        X = step.fit(X, None, check_method_params(X, params=step.params))[1]
    return X


def prepare_fold(
    steps: tuple[Step, ...],
    X: Matrix,
    y: Targets,
    train: Index,
    test: Index,
    *,
    takes_any: bool = False,
) -> tuple[Matrix, Matrix]:
    """Transform the rows of a fold by steps fitted on its training rows, as a Pipeline would."""
    whole = X
    first = steps[0].transformer
    X_train, y_train = safe_split(first, X, y, train)
    X_test, _ = safe_split(first, X, None, test, train)
    for step in steps:
        params = check_method_params(whole, params=step.params, indices=train)
        transformer, X_train = step.fit(X_train, y_train, params)
        if len(test):
            X_test = _held_out(transformer, X_test)
    X_train = read_rows(X_train, takes_any=takes_any)
    if not len(test):
        return X_train, X_train[:0]
    return X_train, read_rows(X_test, takes_any=takes_any)


def _held_out(transformer: Estimator, X: Matrix) -> Matrix:
    try:
        return transformer.transform(X)
    except Exception as error:
        error.add_note(HELD_OUT)
        raise


def plain_numbers(X: Matrix) -> Array | None:
    """All rows as finite numbers in double precision, as a scaler reads them; None otherwise."""
    try:
        found = check_array(X, dtype=FLOAT_DTYPES)
    except Exception:  # the fold that cannot be read says so
        return None
    return found if isinstance(found, np.ndarray) and found.dtype == np.float64 else None


def scale_fold(
    scaler: StandardScaler, X: Array, train: Index, test: Index
) -> tuple[Array, Array] | None:
    """What :func:`prepare_fold` gives for a StandardScaler alone, up to rounding.

    For a fold of a few hundred rows scikit-learn's checks take twenty times as long. The moments
    are those of the training rows, and no differences of sums: these save nothing beside making
    the scaled rows. None where numbers overflow.
    """
    rows = X[train]
    with np.errstate(over="ignore", invalid="ignore"):
        moments = Moments.of(rows)
        scaling = Scaling.standard(moments, with_mean=scaler.with_mean, with_std=scaler.with_std)
        made = scaling(rows), scaling(X[test])
    is_finite = all(np.isfinite(part.sum()) for part in (moments.squares, *made))
    return made if is_finite else None
