"""Whether a model file holds what a fit leaves behind: types, sizes, finite numbers, signs.

Types alone make no file harmless: libsvm trusts the sizes that it is given, and a few numbers that
are wrong would give predictions that nobody could tell from right ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold._typing import AnyArray
from everyfold.kernels.pairwise import is_sparse

_STEPS = (Pipeline, StandardScaler, SimpleImputer, SVC, SVR, KernelRidge)
_PLAIN = (str, bool, int, type(None), np.bool_, np.integer, np.dtype, np.str_)
_POSITIVE = {"C", "gamma", "_gamma", "h", "scale_", "tol", "degree", "n_features_in_"}
_NOT_NEGATIVE = {"alpha", "epsilon", "var_", "conformity_scores_", "_fold_of", "_n_support"}
_MAY_BE_NAN = {"missing_values"}
_LARGEST = 2**63 - 1


def check_contents(record: object, trusted: Sequence[str], n_features: int) -> None:
    """Raise ValueError, with the place, at the first thing that no fit would leave behind.

    ``trusted`` are the names of types that a file may have besides those of scikit-learn that the
    command line fits.
    """
    names = {*trusted, *(_type_name(kind) for kind in _STEPS)}
    for place, value in _walk("", record, set(), names):
        try:
            _check_value(place.rpartition(".")[2], value)
            for words in _wrong_sizes(value, n_features):
                raise ValueError(words)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{place.lstrip('.') or 'the file'}: {error}") from error


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _walk(place: str, value: Any, seen: set[int], names: set[str]) -> Iterator[tuple[str, Any]]:
    """Everything that a value consists of, each once, and where it is."""
    if id(value) in seen:
        return
    yield place, value
    if isinstance(value, (*_PLAIN, float, np.floating)) or _is_array(value):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        inside = [(f"{place}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = [(f"{place}[{i}]", item) for i, item in enumerate(value)]
    elif _type_name(type(value)) in names:
        inside = [(f"{place}.{key}", item) for key, item in vars(value).items()]
    else:
        raise ValueError(f"{place.lstrip('.')}: no model has a {type(value).__name__}")
    for name, item in inside:
        yield from _walk(name, item, seen, names)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_sparse(value)


def _check_value(name: str, value: Any) -> None:
    """Numbers are finite, of the sign that their name asks for, and matrices are what they say."""
    numbers = value
    if is_sparse(value):
        value.check_format(full_check=True)
        numbers = value.data
    if isinstance(numbers, np.ndarray):
        _check_array(numbers)
    if isinstance(numbers, str | bytes | np.str_) or not _is_numeric(numbers):
        return
    if not np.all(np.isfinite(numbers)) and name not in _MAY_BE_NAN:
        raise ValueError("has a number that is NaN or infinite")
    if name in _POSITIVE and not np.all(numbers > 0):
        raise ValueError("has a number that is not positive")
    if name in _NOT_NEGATIVE and not np.all(numbers >= 0):
        raise ValueError("has a negative number")


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiub"
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("has a number beyond 64 bits")
    return isinstance(value, int | float | np.number)


def _check_array(values: AnyArray) -> None:
    is_text = values.dtype.kind == "O" and all(isinstance(v, str) for v in values.ravel())
    if values.dtype.kind not in "fiubU" and not is_text:
        raise ValueError(f"has an array of type {values.dtype}")


# -- sizes -----------------------------------------------------------------------------------------


def _wrong_sizes(value: Any, n_features: int) -> Iterator[str]:
    """What is wrong with the sizes of a fitted object."""
    own = vars(value) if hasattr(value, "__dict__") else {}
    if own.get("n_features_in_", n_features) != n_features:
        yield f"has {own['n_features_in_']} features, and the file {n_features}"
    for name in ("mean_", "scale_", "var_", "statistics_"):
        if isinstance(own.get(name), np.ndarray) and own[name].shape != (n_features,):
            yield f"{name} has shape {own[name].shape}, and there are {n_features} features"
    for rows, coef in (("X_fit_", "dual_coef_"), ("X", "coef")):
        if rows in own and coef in own:
            yield from _differing(own[rows], own[coef], n_features)
    if isinstance(value, SVC | SVR) and "support_" in own:
        yield from _wrong_libsvm(value, n_features)
    if "_fold_of" in own and own["_fold_of"].shape != own["conformity_scores_"].shape:
        yield "has folds of other rows than residuals"


def _differing(rows: Any, coef: AnyArray, n_features: int) -> Iterator[str]:
    if rows.ndim != 2 or rows.shape != (len(coef), n_features):
        yield f"has rows of shape {rows.shape} for {len(coef)} coefficients"


def _wrong_libsvm(model: Any, n_features: int) -> Iterator[str]:
    """What libsvm would not notice: it reads as far as these sizes say."""
    counts, n = model._n_support, len(model.support_)
    m = len(counts)
    shapes = {
        "support_": (n,),
        "support_vectors_": (n, n_features),
        "_dual_coef_": (m - 1, n),
        "_intercept_": (m * (m - 1) // 2,),
        "_n_support": (m,),
    }
    if m < 2 or model.kernel not in ("rbf", "poly", "linear"):
        yield "is not one of the SVMs of a model file"
    for name, shape in shapes.items():
        if getattr(model, name).shape != shape:
            yield f"{name} has shape {getattr(model, name).shape}, not {shape}"
    if isinstance(model, SVC) and (counts.sum() != n or len(model.classes_) != m):
        yield "has classes without their support vectors"
