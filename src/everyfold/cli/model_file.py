"""Model files: the fitted estimator and where its features are found, as skops keeps them.

Nothing is unpickled: skops builds objects of the types that it trusts and of those named here, and
refuses a file with any other. The contents are checked as well, as trusted types do not make a file
harmless: libsvm reads as many numbers as the file says there are, and a few wrong numbers would
give predictions that look right. The format is documented in ``docs/cli.md``.
"""

from __future__ import annotations

import io
import json
import shlex
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.gaussian_process.kernels import ConstantKernel, Product, Sum, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

import everyfold
from everyfold._typing import AnyArray, Estimator, Matrix, Params
from everyfold.cli.errors import BadInput, naming
from everyfold.cli.models import ChosenModel
from everyfold.cli.readers import check_archive, read_bytes
from everyfold.cli.study import check_level
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
from everyfold.kernel_ridge.kernel_ridge_cv import KernelRidgeClassifierCV, KernelRidgeCV
from everyfold.kernels import RBF, Cosine, Laplacian, Linear, Polynomial
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators.dense import KernelExpansion
from everyfold.operators.features import LinearExpansion, MapExpansion
from everyfold.operators.nystrom import Nystrom
from everyfold.operators.random_fourier import RandomFourier, WaveFeatures
from everyfold.search.calibration import FastCalibratedClassifierCV

FORMAT, VERSION = "everyfold model", 2

_OURS = (
    *(LSSVC, LSSVR, KernelLogisticClassifier, HuberSVC, QuadraticSVR),
    *(KernelRidgeCV, KernelRidgeClassifierCV),
    *(KernelClassifier, KernelRegressor),  # in the place of what takes no source of rows
    *(RBF, Laplacian, Polynomial, Linear, Cosine),
    *(Nystrom, RandomFourier, WaveFeatures, KernelExpansion, LinearExpansion, MapExpansion),
    *(FastCrossConformalRegressor, Shared, FoldRefits, Labels, FastCalibratedClassifierCV),
    *(csr_matrix, np.dtype),
)
_ENCODERS = (ColumnTransformer, OneHotEncoder, OrdinalEncoder)
_LINEAR = (LogisticRegression, Ridge, RidgeClassifier, LabelBinarizer, LinearSVC)
_PROCESS_KERNELS = (ProcessRBF, ConstantKernel, WhiteKernel, Sum, Product)
_STEPS = (Pipeline, StandardScaler, SimpleImputer, *_ENCODERS)
_SKLEARN = (SVC, SVR, KernelRidge, *_LINEAR, GaussianProcessRegressor, *_STEPS)


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# The types that a file may have besides those that skops itself trusts.
TRUSTED = [
    *map(_type_name, (*_OURS, *_PROCESS_KERNELS)),
    *(f"sklearn.calibration.{name}" for name in ("_CalibratedClassifier", "_SigmoidCalibration")),
]

# Attributes by the sign that every fit gives them.
_POSITIVE = {"C", "gamma", "_gamma", "h", "scale_", "tol", "degree", "n_features_in_"}
_MAY_BE_NAN = {"missing_values", "encoded_missing_value"}
_NOT_NEGATIVE = {"alpha", "epsilon", "var_", "conformity_scores_", "_fold_of", "_n_support"}


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A fitted estimator, what its intervals come from, and where its features are found.

    ``has_sparse_rows`` says whether it was fitted to a sparse matrix; ``model`` and ``parameters``
    are what it was fitted by.
    """

    estimator: Estimator
    intervals: FastCrossConformalRegressor | None
    layout: Layout
    has_sparse_rows: bool
    model: str = ""
    parameters: Params = field(default_factory=dict)

    @property
    def unfitted(self) -> Estimator:
        """The model as it was before it was fitted, without a calibration around it."""
        is_calibrated = isinstance(self.estimator, FastCalibratedClassifierCV)
        return clone(self.estimator.estimator if is_calibrated else self.estimator)

    def predict(self, X: Matrix) -> tuple[AnyArray, AnyArray]:
        """Predictions, and the values that they are decided by: for numbers the same."""
        X, estimator = self.as_fitted(X), self.estimator
        with warnings.catch_warnings():
            # Rows are arrays; the layout has found their columns by name.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            predicted = estimator.predict(X)
            if isinstance(estimator, FastCalibratedClassifierCV):
                estimator = estimator.calibrated_classifiers_[0].estimator
            has_values = hasattr(estimator, "decision_function")
            return predicted, estimator.decision_function(X) if has_values else predicted

    def deviations(self, X: Matrix) -> AnyArray:
        """The standard deviation of each prediction, as a Gaussian process has it."""
        if self.model != "gp":
            raise BadInput("--std: only a gp has standard deviations; fit one, or use --interval")
        found: AnyArray = self.estimator.predict(self.as_fitted(X), return_std=True)[1]
        return found

    def probabilities(self, X: Matrix) -> dict[str, list[float]]:
        """A column for each class."""
        if not hasattr(self.estimator, "predict_proba"):
            raise BadInput("--proba: the model has no probabilities; fit and save it with --proba")
        found = self.estimator.predict_proba(self.as_fitted(X)).T
        pairs = zip(self.estimator.classes_, found, strict=True)
        return {f"probability_{label}": column.tolist() for label, column in pairs}

    def bounds(self, X: Matrix, level: float) -> dict[str, list[float]]:
        """A column of lower and one of upper bounds, which cover that share of new rows."""
        if self.intervals is None:
            remedy = "fit and save it with --interval, for numbers"
            raise BadInput(f"--interval: the model has no intervals; {remedy}")
        check_level(level, len(self.intervals.conformity_scores_))
        self.intervals.confidence_level = level
        _, found = self.intervals.predict_interval(self.as_fitted(X))
        return {"lower": found[:, 0, 0].tolist(), "upper": found[:, 1, 0].tolist()}

    def as_fitted(self, X: Matrix) -> Matrix:
        """The rows as those of the fit, sparse or dense."""
        return csr_matrix(X) if self.has_sparse_rows else X.toarray() if is_sparse(X) else X


def save(
    path: Path,
    choice: ChosenModel,
    data: TableData,
    params: Params,
    estimator: Estimator,
    intervals: FastCrossConformalRegressor | None,
) -> None:
    """Write a model file."""
    from skops.io import dump

    record = {
        "format": FORMAT,
        "version": VERSION,
        "everyfold": everyfold.__version__,
        "model": choice.model,
        "kernel": choice.kernel,
        "parameters": params,
        "is_sparse": is_sparse(data.X),
        "layout": asdict(data.layout),
        "estimator": estimator,
        "intervals": intervals,
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
            words = f"this is not a model file of everyfold, or damaged ({error})"
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
        model = SavedModel(
            estimator=estimator,
            intervals=record.get("intervals"),
            layout=layout,
            has_sparse_rows=bool(record["is_sparse"]),
            model=str(record["model"]),
            parameters=dict(record["parameters"]),
        )
        _check_contents(record, layout)
        _try_out(model)
        return model
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # whatever a fit would not leave behind leads to
        raise BadInput(
            f"the model file is damaged ({type(error).__name__}: {error}); fit it again"
        ) from error


def _try_out(model: SavedModel) -> None:
    """Raise if the model cannot predict a row, or says nothing finite of it."""
    rows = model.layout.blank()
    with warnings.catch_warnings(action="ignore"):
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


# -- what a fit leaves behind ----------------------------------------------------------------------


def _check_contents(record: object, layout: Layout) -> None:
    """Raise ValueError, with the place, at the first thing that no fit would leave behind."""
    known = {*TRUSTED, *map(_type_name, _SKLEARN)}
    waiting, seen = [("", record)], set[int]()
    while waiting:
        place, value = waiting.pop()
        if id(value) in seen:
            continue
        try:
            parts = _parts(value, known)
            _check_numbers(place.rpartition(".")[2], value)
            _check_sizes(value, layout)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{place.lstrip('.') or 'the file'}: {error}") from error
        if parts is not None:  # numbers and texts are shared, and checked by the name of each place
            seen.add(id(value))
            waiting += reversed([(f"{place}{name}", part) for name, part in parts])


def _parts(value: Any, known: set[str]) -> Iterable[tuple[str, Any]] | None:
    """What a value consists of; None of a number, a text or an array."""
    numbers = (int, float, np.bool_, np.integer, np.floating)
    others = (str, np.str_, np.dtype, np.ndarray, np.random.RandomState, slice, type(None))
    # What encoders are to make is a type: that of numbers.
    if isinstance(value, (*numbers, *others)) or is_sparse(value) or value is np.float64:
        return None
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    if not isinstance(value, dict) and _type_name(type(value)) not in known:
        raise ValueError(f"no model has a {type(value).__name__}")
    fields = value if isinstance(value, dict) else vars(value)
    return [(f".{name}", part) for name, part in fields.items()]


def _check_numbers(name: str, value: Any) -> None:
    """Numbers are finite, of the sign that their name asks for, and matrices are what they say."""
    if is_sparse(value):
        value.check_format(full_check=True)
        value = value.data
    if isinstance(value, int) and not -(2**63) < value < 2**63:
        raise ValueError("has a number beyond 64 bits")
    if isinstance(value, np.ndarray):
        is_text = value.dtype.kind == "O" and all(isinstance(v, str) for v in value.ravel())
        if value.dtype.kind not in "fiubU" and not is_text:
            raise ValueError(f"has an array of type {value.dtype}")
        if value.dtype.kind not in "fiub":
            return
    elif not isinstance(value, int | float | np.number):
        return
    if not np.all(np.isfinite(value)) and name not in _MAY_BE_NAN:
        raise ValueError("has a number that is NaN or infinite")
    if name in _POSITIVE and not np.all(value > 0):
        raise ValueError("has a number that is not positive")
    if name in _NOT_NEGATIVE and not np.all(value >= 0):
        raise ValueError("has a negative number")


def _check_sizes(value: Any, layout: Layout) -> None:
    """The sizes of a fitted object agree with each other and with the number of features."""
    own = vars(value) if hasattr(value, "__dict__") else {}
    n_features = own.get("n_features_in_", layout.n_features)
    # An encoder has parts for some columns, and gives more of them to the model behind it: that
    # they fit together is seen when a row is predicted.
    if n_features != layout.n_features and not layout.kinds:
        raise ValueError(f"has {n_features} features, and the file {layout.n_features}")
    wanted: Params = {}
    for name in ("mean_", "scale_", "var_", "statistics_"):
        if isinstance(own.get(name), np.ndarray):
            wanted[name] = (n_features,)
    for rows, coef in (("X_fit_", "dual_coef_"), ("X", "coef")):
        if rows in own and coef in own:
            width = own[rows].shape[-1] if layout.kinds and rows == "X" else n_features
            wanted[rows] = (len(own[coef]), width)
    if "_fold_of" in own:
        wanted["_fold_of"] = own["conformity_scores_"].shape
    if isinstance(value, OneHotEncoder) and "categories_" in own:
        counts = [len(words) for words in value.categories_]
        if counts != value._n_features_outs:
            raise ValueError("has categories without their columns")
    if isinstance(value, SVC | SVR) and "support_" in own:
        counts, n = value._n_support, len(value.support_)
        m = len(counts)
        if m < 2 or value.kernel not in ("rbf", "poly", "linear"):
            raise ValueError("is not one of the SVMs of a model file")
        if isinstance(value, SVC) and (counts.sum() != n or len(value.classes_) != m):
            raise ValueError("has classes without their support vectors")
        wanted |= {
            "support_": (n,),
            "support_vectors_": (n, n_features),
            "_dual_coef_": (m - 1, n),
            "_intercept_": (m * (m - 1) // 2,),
            "_n_support": (m,),
        }
    for name, shape in wanted.items():
        if own[name].shape != shape:
            raise ValueError(f"{name} has shape {own[name].shape}, not {shape}")
