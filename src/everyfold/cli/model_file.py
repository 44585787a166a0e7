"""Model files: the fitted estimator and where its features are found, as skops keeps them.

Nothing is unpickled: skops builds objects of the types it trusts and of those named here, and
refuses a file with any other. The format is documented in ``docs/cli.md``.
"""

from __future__ import annotations

import io
import json
import shlex
import warnings
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import everyfold
from everyfold._typing import AnyArray, Estimator, Matrix, Params
from everyfold.cli.errors import BadInput, naming
from everyfold.cli.input import check_archive, read_bytes
from everyfold.cli.model_checks import check_contents
from everyfold.cli.models import ChosenModel
from everyfold.cli.settings import check_level
from everyfold.cli.table import Layout, TableData
from everyfold.conformal import FastCrossConformalRegressor
from everyfold.engine.kept_models import FoldRefits, Shared
from everyfold.estimators import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
)
from everyfold.estimators.targets import Labels
from everyfold.io.disk import writing
from everyfold.kernels import RBF, Cosine, Laplacian, Linear, Polynomial
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.features import LinearExpansion, MapExpansion
from everyfold.operators.nystrom import Nystrom
from everyfold.operators.random_fourier import RandomFourier, WaveFeatures
from everyfold.search.calibration import FastCalibratedClassifierCV

FORMAT, VERSION = "everyfold model", 2
_GENERAL = (KernelClassifier, KernelRegressor)  # in the place of what takes no source of rows
_ESTIMATORS = (LSSVC, LSSVR, KernelLogisticClassifier, HuberSVC, QuadraticSVR, *_GENERAL)
_KERNELS = (RBF, Laplacian, Polynomial, Linear, Cosine)
_OPERATORS = (Nystrom, RandomFourier, WaveFeatures, KernelExpansion, LinearExpansion, MapExpansion)
_FOLDS = (FastCrossConformalRegressor, Shared, FoldRefits)
_OTHERS = (Labels, FastCalibratedClassifierCV, csr_matrix, np.dtype, *_FOLDS)
_TYPES = (*_ESTIMATORS, *_KERNELS, *_OPERATORS, *_OTHERS)
# The types that a file may have besides those that skops itself trusts.
TRUSTED = [
    *(f"{t.__module__}.{t.__qualname__}" for t in _TYPES),
    *(f"sklearn.calibration.{name}" for name in ("_CalibratedClassifier", "_SigmoidCalibration")),
]


@dataclass(frozen=True)
class StoredModel:
    """A fitted estimator, and what its intervals come from if there are any."""

    estimator: Estimator
    intervals: FastCrossConformalRegressor | None = None


@dataclass(frozen=True, kw_only=True)
class SavedModel(StoredModel):
    """A fitted estimator, where its features are found, and whether its rows are sparse."""

    layout: Layout
    has_sparse_rows: bool

    def predict(self, X: Matrix) -> tuple[AnyArray, AnyArray]:
        """Predictions, and the values that they are decided by: for numbers the same."""
        X, estimator = self._rows(X), self.estimator
        with warnings.catch_warnings():
            # Rows are arrays; the layout has found their columns by name.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
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

    def bounds(self, X: Matrix, level: float) -> dict[str, list[float]]:
        """A column of lower and one of upper bounds, which cover that share of new rows."""
        if self.intervals is None:
            remedy = "fit and save it with --interval, for numbers"
            raise BadInput(f"--interval: the model has no intervals; {remedy}")
        check_level(level, len(self.intervals.conformity_scores_))
        self.intervals.confidence_level = level
        _, found = self.intervals.predict_interval(self._rows(X))
        return {"lower": found[:, 0, 0].tolist(), "upper": found[:, 1, 0].tolist()}

    def _rows(self, X: Matrix) -> Matrix:
        return csr_matrix(X) if self.has_sparse_rows else X.toarray() if is_sparse(X) else X


def save(
    path: Path, choice: ChosenModel, data: TableData, params: Params, fitted: StoredModel
) -> None:
    """Write a model file."""
    from skops.io import dump

    record = {
        **{"format": FORMAT, "version": VERSION, "everyfold": everyfold.__version__},
        **{"model": choice.model, "kernel": choice.kernel, "parameters": params},
        **{"is_sparse": is_sparse(data.X), "layout": asdict(data.layout)},
        **{"estimator": fitted.estimator, "intervals": fitted.intervals},
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
            check_archive(raw)
            record = loads(raw, trusted=TRUSTED)
        except BadInput:
            raise
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
        is_sparse = bool(record["is_sparse"])
        found = estimator, record.get("intervals")
        model = SavedModel(*found, layout=layout, has_sparse_rows=is_sparse)
        check_contents(record, TRUSTED, layout.n_features)
        _try_out(model)
        return model
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # whatever a fit would not leave behind leads to
        raise BadInput(f"the model file is damaged ({error!r}); fit it again") from error


def _try_out(model: SavedModel) -> None:
    """Raise if the model cannot predict a row, or says nothing finite of it."""
    rows = csr_matrix((1, model.layout.n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, decided = model.predict(rows)
        found = [*np.ravel(decided)]
        if model.intervals is not None:
            found += model.bounds(rows, 0.5).values()
    if not np.isfinite(np.concatenate([np.ravel(each) for each in found])).all():
        raise ValueError("what it predicts is not finite")


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
