"""Model files: the fitted estimator and where its features are found, as skops keeps them.

Nothing is unpickled: skops builds objects of the types it trusts and of those named here, and
refuses a file with any other. The format is documented in ``docs/cli.md``.
"""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import everyfold
from everyfold.cli.data import Data, Layout
from everyfold.cli.files import read_bytes, writing
from everyfold.cli.manners import BadInput, naming
from everyfold.cli.models import Choice
from everyfold.kernels import RBF, Cosine, Laplacian, Linear, Polynomial
from everyfold.kernels.distances import is_sparse
from everyfold.models.estimators import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelLogisticClassifier,
    QuadraticSVR,
)
from everyfold.models.targets import Labels
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.features import LinearExpansion, MapExpansion
from everyfold.operators.nystrom import Nystrom
from everyfold.operators.randomfourier import RandomFourier, WaveFeatures
from everyfold.selection.calibration import FastCalibratedClassifierCV
from everyfold.types import AnyArray, Estimator, Matrix, Params

FORMAT, VERSION = "everyfold model", 2
_ESTIMATORS = (LSSVC, LSSVR, KernelLogisticClassifier, HuberSVC, QuadraticSVR)
_KERNELS = (RBF, Laplacian, Polynomial, Linear, Cosine)
_OPERATORS = (Nystrom, RandomFourier, WaveFeatures, KernelExpansion, LinearExpansion, MapExpansion)
_OTHERS = (Labels, FastCalibratedClassifierCV, csr_matrix, np.dtype)
_TYPES = (*_ESTIMATORS, *_KERNELS, *_OPERATORS, *_OTHERS)
TRUSTED = [
    *(f"{t.__module__}.{t.__qualname__}" for t in _TYPES),
    *(f"sklearn.calibration.{name}" for name in ("_CalibratedClassifier", "_SigmoidCalibration")),
]
"""The types that a file may have besides those that skops itself trusts."""


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator, where its features are found, and whether its rows are sparse."""

    estimator: Estimator
    layout: Layout
    has_sparse_rows: bool

    def predict(self, X: Matrix) -> tuple[AnyArray, AnyArray]:
        """Predictions, and the values that they are decided by: for numbers the same."""
        X, estimator = self._rows(X), self.estimator
        predicted = estimator.predict(X)
        if isinstance(estimator, FastCalibratedClassifierCV):
            estimator = estimator.calibrated_classifiers_[0].estimator
        has_values = hasattr(estimator, "decision_function")
        return predicted, estimator.decision_function(X) if has_values else predicted

    def probabilities(self, X: Matrix) -> dict[str, list[float]]:
        """A column for each class."""
        if not hasattr(self.estimator, "predict_proba"):
            raise BadInput("--proba: the model has no probabilities; fit and save it with --proba")
        found = self.estimator.predict_proba(self._rows(X)).T
        pairs = zip(self.estimator.classes_, found, strict=True)
        return {f"probability_{label}": column.tolist() for label, column in pairs}

    def _rows(self, X: Matrix) -> Matrix:
        return csr_matrix(X) if self.has_sparse_rows else X.toarray() if is_sparse(X) else X


def save(path: Path, choice: Choice, data: Data, params: Params, fitted: Estimator) -> None:
    """Write a model file."""
    from skops.io import dump

    record = {
        **{"format": FORMAT, "version": VERSION, "everyfold": everyfold.__version__},
        **{"model": choice.model, "kernel": choice.kernel, "parameters": params},
        **{"is_sparse": is_sparse(data.X), "layout": asdict(data.layout), "estimator": fitted},
    }
    with writing(path) as file:
        dump(record, file, compression=zipfile.ZIP_DEFLATED)


def load(path: Path) -> SavedModel:
    """Read a model file, or say what is wrong with it."""
    from skops.io import loads

    raw = read_bytes(path)
    with naming(path):
        _refuse_arrays(raw, path)
        try:
            record = loads(raw, trusted=TRUSTED)
        except Exception as error:  # whatever a damaged file leads to, and types without trust
            words = f"this is not a model file of everyfold, or damaged ({error!r})"
            raise BadInput(words) from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise BadInput("this is not a model file of everyfold")
        if record.get("version") != VERSION:
            version, writer = record.get("version"), record.get("everyfold")
            remedy = f"this one ({everyfold.__version__}) reads version {VERSION}: fit again"
            words = f"the model file has format version {version}, written by everyfold {writer}"
            raise BadInput(f"{words}; {remedy}")
        return _build(record)


def _build(record: Params) -> SavedModel:
    try:
        layout, estimator = Layout(**record["layout"]), record["estimator"]
        if estimator.n_features_in_ != layout.n_features:
            counts = f"{estimator.n_features_in_} features, but {layout.n_features} in its layout"
            raise ValueError(f"the estimator has {counts}")
        return SavedModel(estimator, layout, bool(record["is_sparse"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"the model file is damaged ({error!r})") from error


def _refuse_arrays(raw: bytes, path: Path) -> None:
    """Refuse a file of the first format, arrays in an ``.npz``, with the command for a new one."""
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            meta, is_scaled = json.loads(str(file["meta"])), "scale" in file.files
        words = [f"--model {meta['model']} --kernel {meta['kernel']['name']}"]
        words += [f"--param {name}={value}" for name, value in meta["parameters"].items()]
        words += [] if is_scaled else ["--no-standardise"]
        words.append(f"--target {shlex.quote(meta['layout']['target'])}")
    except Exception:  # a file of another format
        return
    new = f"fit again by everyfold fit DATA {' '.join(words)} --save {path.stem}.skops"
    raise BadInput(f"the model file has format version 1, which is no longer read; {new}")
