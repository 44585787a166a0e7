"""Model files: plain arrays and JSON in an ``.npz``, which nothing is ever unpickled from.

The format is documented in ``docs/cli.md``. A file is untrusted input: everything in it is checked
before it is used.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import everyfold
from everyfold.cli.data import Data, Layout
from everyfold.cli.manners import BadInput, naming, writing
from everyfold.cli.models import KERNELS, MODELS, Choice
from everyfold.kernels import Kernel, Linear, Polynomial, find_kernel
from everyfold.kernels.distances import is_sparse
from everyfold.models.targets import Labels, Numbers, Pairs, Target, Voting
from everyfold.operators.base import Array, Expansion
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.lowrank import LinearExpansion

FORMAT = "everyfold model"
VERSION = 1


@dataclass(frozen=True)
class SavedModel:
    """A fitted function: standardise, expand in kernels of rows, add the intercept, decide.

    Attributes
    ----------
    meta : dict
        What the JSON of the file says.
    expansion : Expansion
    intercept : array of shape (q,)
    classes : array, optional
        Labels; without them the model predicts numbers.
    mean, scale : arrays of shape (n_features,), optional
        Of the standardised features; no mean if rows are sparse.
    """

    meta: dict[str, Any]
    expansion: Expansion
    intercept: Array
    classes: NDArray[Any] | None
    mean: Array | None
    scale: Array | None

    @property
    def layout(self) -> Layout:
        """Where the features are found in a file."""
        known = dict(self.meta["layout"])
        for name in ("names", "positions"):
            known[name] = None if known[name] is None else tuple(known[name])
        return Layout(**known)

    def values(self, X: Any) -> Array:
        """The values f(x) + b, (rows, q)."""
        X = csr_matrix(X) if self.meta["is_sparse"] else _plain(X)
        if self.scale is not None:
            X = X @ _diagonal(1.0 / self.scale) if is_sparse(X) else _scaled(X, self)
        values: Array = self.expansion(X) + self.intercept
        return values

    @property
    def target(self) -> Target:
        """How values become predictions."""
        if self.classes is None:
            return Numbers(np.empty((0, 1)), True)
        codes = np.empty(0, dtype=np.intp)
        labels = Labels(self.classes, codes, np.empty((0, 1)))
        if self.meta["multi_class"] == "ovo" and len(self.classes) > 2:
            return Pairs.of(labels, Voting()).emptied()
        return labels


def _scaled(X: Array, model: SavedModel) -> Array:
    assert model.scale is not None
    shifted = X if model.mean is None else X - model.mean
    return np.asarray(shifted / model.scale)


def _diagonal(values: Array) -> Any:
    from scipy.sparse import diags

    return diags(values, format="csr")


# -- from a fitted estimator ---------------------------------------------------------------------


def export(choice: Choice, data: Data, params: dict[str, Any], fitted: Any) -> SavedModel:
    """What a fitted estimator knows, in the terms of the file."""
    scaler: StandardScaler | None = fitted.named_steps["scaler"] if choice.prefix else None
    model = fitted.named_steps["model"] if choice.prefix else fitted
    expansion, intercept = _expand(model, choice)
    has_sparse_rows = is_sparse(data.X)
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "everyfold": everyfold.__version__,
        "model": choice.model,
        "estimator": type(model).__name__,
        "task": choice.task,
        "parameters": params,
        "kernel": _kernel_record(expansion, choice),
        "multi_class": _multi_class(choice),
        "is_sparse": has_sparse_rows,
        "layout": asdict(data.layout),
    }
    classes = np.asarray(model.classes_) if choice.task == "classification" else None
    mean = None if scaler is None or scaler.mean_ is None or has_sparse_rows else scaler.mean_
    scale = None if scaler is None else scaler.scale_
    return SavedModel(meta, expansion, intercept, classes, mean, scale)


def _multi_class(choice: Choice) -> str | None:
    if choice.task == "regression":
        return None
    return "ovo" if choice.model == "svc" else "ovr"


def _expand(model: Any, choice: Choice) -> tuple[Expansion, Array]:
    if hasattr(model, "expansion_"):
        return model.expansion_, np.asarray(model.intercept_, dtype=np.float64)
    if isinstance(model, SVC | SVR):
        kernel = find_kernel(
            choice.kernel, gamma=float(model._gamma), degree=model.degree, coef0=model.coef0
        )
        coef = _pairs_of(model) if isinstance(model, SVC) else _plain(model.dual_coef_).T
        intercept = np.asarray(model.intercept_, dtype=np.float64)
        return KernelExpansion(kernel, model.support_vectors_, coef), intercept
    kernel = find_kernel(
        choice.kernel, gamma=model.gamma, degree=model.degree, coef0=model.coef0, X=model.X_fit_
    )
    return KernelExpansion(kernel, model.X_fit_, model.dual_coef_.reshape(-1, 1)), np.zeros(1)


def _plain(matrix: Any) -> Array:
    """A dense array that is nobody else's."""
    return np.array(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def _pairs_of(model: SVC) -> Array:
    """Libsvm's coefficients as one column a pair of classes.

    A support vector of class i has its coefficient against class j in row j - 1 (j > i) or row j
    (j < i) of ``dual_coef_``.
    """
    dual = _plain(model.dual_coef_)
    n_classes = len(model.classes_)
    if n_classes == 2:
        return dual.T
    owner = np.repeat(np.arange(n_classes), model.n_support_)
    first, second = np.triu_indices(n_classes, 1)
    columns = np.zeros((dual.shape[1], len(first)))
    for k, (i, j) in enumerate(zip(first, second, strict=True)):
        columns[owner == i, k] = dual[j - 1, owner == i]
        columns[owner == j, k] = dual[i, owner == j]
    return columns


def _kernel_record(expansion: Expansion, choice: Choice) -> dict[str, Any]:
    record: dict[str, Any] = {"name": choice.kernel}
    kernel = expansion.kernel if isinstance(expansion, KernelExpansion) else Linear()
    if hasattr(kernel, "gamma"):
        record["gamma"] = float(kernel.gamma)
    if isinstance(kernel, Polynomial):
        record |= {"degree": int(kernel.degree), "coef0": float(kernel.coef0)}
    return record


def save(path: Path, model: SavedModel) -> None:
    """Write a model file."""
    arrays: dict[str, Any] = {
        "meta": np.array(json.dumps(model.meta, allow_nan=False)),
        "coef": model.expansion.coef,
        "intercept": model.intercept,
    }
    if isinstance(model.expansion, KernelExpansion):
        rows = model.expansion.X
        if model.meta["is_sparse"]:
            rows = csr_matrix(rows)
            arrays |= {f"rows_{part}": getattr(rows, part) for part in _CSR}
        else:
            arrays["rows"] = np.asarray(rows, dtype=np.float64)
    for name in ("classes", "mean", "scale"):
        value = getattr(model, name)
        if value is not None:
            arrays[name] = value
    with writing(path) as file:
        np.savez_compressed(file, **arrays)


_CSR = ("data", "indices", "indptr")


# -- from a file ---------------------------------------------------------------------------------


def load(path: Path) -> SavedModel:
    """Read a model file, or say what is wrong with it."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory; give a model file")
    if not path.exists():
        raise BadInput(f"{path}: there is no such file")
    with naming(path):
        return _build(_arrays(path))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile) or "meta" not in file.files:
                raise BadInput("this is not a model file of everyfold")
            arrays = {name: file[name] for name in file.files}
    except MemoryError as error:
        raise BadInput("the model file asks for more memory than there is") from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        if "pickle" in str(error).lower():
            raise BadInput(
                "this is not a model file of everyfold: it has pickled objects, which are never "
                "loaded since they can run any code"
            ) from error
        raise BadInput(f"the model file is damaged ({error})") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise BadInput(f"the model file cannot be read ({error})") from error
    for name, array in arrays.items():
        _demand(isinstance(array, np.ndarray), f"{name} is no array")
    return arrays


def _build(arrays: dict[str, NDArray[Any]]) -> SavedModel:
    meta = _read_meta(arrays["meta"])
    layout = meta["layout"]
    d = layout["n_features"]
    coef = _numbers(arrays, "coef", 2)
    intercept = _numbers(arrays, "intercept", 1)
    _demand(coef.shape[1] == len(intercept), "coef and intercept differ in their columns")
    expansion: Expansion = LinearExpansion(coef)
    is_linear = not any(name.startswith("rows") for name in arrays)
    if is_linear:
        _demand(meta["kernel"]["name"] == "linear" and len(coef) == d, "the rows are missing")
    else:
        rows = _read_rows(arrays, meta, (len(coef), d))
        expansion = KernelExpansion(_read_kernel(meta["kernel"]), rows, coef)
    mean, scale = (_optional(arrays, name, d) for name in ("mean", "scale"))
    _demand(scale is None or bool((scale > 0.0).all()), "scale has entries that are not positive")
    _demand(mean is None or (scale is not None and not meta["is_sparse"]), "mean without scale")
    classes = _read_classes(arrays, meta, len(intercept))
    return SavedModel(meta, expansion, intercept, classes, mean, scale)


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise BadInput(f"the model file is damaged: {what}")


_META: dict[str, type | tuple[type, ...]] = {
    "everyfold": str,
    "model": str,
    "estimator": str,
    "task": str,
    "parameters": dict,
    "kernel": dict,
    "multi_class": (str, type(None)),
    "is_sparse": bool,
    "layout": dict,
}


def _read_meta(array: NDArray[Any]) -> dict[str, Any]:
    _demand(array.ndim == 0 and array.dtype.kind == "U", "meta is no text")
    try:
        meta = json.loads(str(array))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the model file is damaged: meta is no JSON ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise BadInput("this is not a model file of everyfold")
    version = meta.get("version", 0)
    _demand(isinstance(version, int) and version >= 1, f"version {version!r}")
    if version > VERSION:
        raise BadInput(
            f"the model file has format version {version}, written by everyfold "
            f"{meta.get('everyfold')}; this one ({everyfold.__version__}) reads up to version "
            f"{VERSION}: install a newer one"
        )
    for name, kind in _META.items():
        _demand(isinstance(meta.get(name, ...), kind), f"meta has no valid {name!r}")
    _demand(meta["model"] in MODELS, f"model {meta['model']!r} is not known")
    _demand(meta["task"] in ("classification", "regression"), "task is not known")
    _demand(meta["multi_class"] in (None, "ovr", "ovo"), "multi_class is not known")
    _check_layout(meta["layout"])
    return meta


def _check_layout(layout: Mapping[str, Any]) -> None:
    _demand(set(layout) == set(Layout.__dataclass_fields__), "layout has other fields")
    d, width = layout["n_features"], layout["width"]
    _demand(all(type(value) is int for value in (d, width)) and d >= 1, "layout is no numbers")
    _demand(isinstance(layout["target"], str), "the target has no name")
    _demand(type(layout["index_base"]) is int and layout["index_base"] in (0, 1), "index_base")
    for name, kind in (("names", str), ("positions", int)):
        items = layout[name]
        is_right = isinstance(items, list) and len(items) == d
        is_right = is_right and all(type(item) is kind for item in items)
        _demand(items is None or is_right, f"layout has no valid {name}")
    positions = layout["positions"] or []
    _demand(all(0 <= i < width for i in positions), "positions lie outside of the table")


def _numbers(arrays: Mapping[str, NDArray[Any]], name: str, ndim: int) -> Array:
    _demand(name in arrays, f"{name} is missing")
    array = arrays[name]
    _demand(array.dtype == np.float64 and array.ndim == ndim, f"{name} is no array of numbers")
    _demand(array.size > 0 or name.startswith("rows"), f"{name} is empty")
    _demand(bool(np.isfinite(array).all()), f"{name} has entries that are not finite")
    return array


def _optional(arrays: Mapping[str, NDArray[Any]], name: str, d: int) -> Array | None:
    if name not in arrays:
        return None
    array = _numbers(arrays, name, 1)
    _demand(len(array) == d, f"{name} has {len(array)} entries for {d} features")
    return array


def _read_rows(
    arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], shape: tuple[int, int]
) -> Any:
    if not meta["is_sparse"]:
        rows = _numbers(arrays, "rows", 2)
        _demand(rows.shape == shape, f"rows have shape {rows.shape}, expected {shape}")
        return rows
    data = _numbers(arrays, "rows_data", 1)
    for name in ("rows_indices", "rows_indptr"):
        _demand(name in arrays and arrays[name].dtype.kind == "i", f"{name} is no array of indices")
    try:
        matrix = csr_matrix((data, arrays["rows_indices"], arrays["rows_indptr"]), shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise BadInput(f"the model file is damaged: sparse rows ({error})") from error
    return matrix


def _read_kernel(record: Mapping[str, Any]) -> Kernel:
    name = record.get("name")
    _demand(isinstance(name, str) and name in KERNELS, f"kernel {name!r} is not known")
    known = {key: record[key] for key in ("gamma", "degree", "coef0") if key in record}
    for key, value in known.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        _demand(is_number and math.isfinite(value), f"the kernel has {key}={value!r}")
    _demand("gamma" in known or name in ("linear", "cosine"), "the kernel has no gamma")
    try:
        return find_kernel(str(name), **known)
    except ValueError as error:
        raise BadInput(f"the model file is damaged: {error}") from error


def _read_classes(
    arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], n_columns: int
) -> NDArray[Any] | None:
    if meta["task"] == "regression":
        _demand(n_columns == 1 and "classes" not in arrays, "a regression has one column")
        return None
    _demand("classes" in arrays and meta["multi_class"] is not None, "classes are missing")
    classes = arrays["classes"]
    k = len(classes) if classes.ndim == 1 else 0
    _demand(k >= 2 and classes.dtype.kind in "Uifb", "classes are no labels")
    pairs = k * (k - 1) // 2 if meta["multi_class"] == "ovo" else k
    _demand(n_columns == (1 if k == 2 else pairs), f"{n_columns} columns for {k} classes")
    return classes
