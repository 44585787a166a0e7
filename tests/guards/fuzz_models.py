"""Random estimators of every supported kind, their grids, and Pipelines around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_classif, f_regression
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    mean_absolute_error,
    mean_squared_error,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KernelCenterer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC, SVR

from everyfold import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
)

REGRESSORS = (SVR, KernelRidge, Ridge, RidgeCV, LSSVR, QuadraticSVR, KernelRegressor)
CLASSIFIERS = (
    SVC,
    RidgeClassifier,
    LogisticRegression,
    LSSVC,
    HuberSVC,
    KernelLogisticClassifier,
    KernelClassifier,
)
KINDS = (*(kind for pair in zip(REGRESSORS, CLASSIFIERS, strict=True) for kind in pair), SVC)


# -- kernels and scorers that are callables ----------------------------------------------------


def rational_rows(x, z, scale=1.0):
    """A kernel of two rows, as KernelRidge calls it."""
    return 1.0 / (1.0 + scale * np.sum((x - z) ** 2))


def rational(X, Z):
    """A kernel of two matrices, as SVC calls it."""
    X, Z = np.asarray(X, dtype=float), np.asarray(Z, dtype=float)
    return 1.0 / (1.0 + 0.3 * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2))


def tanh_kernel(X, Z):
    """No kernel: indefinite."""
    return np.tanh(0.5 * np.asarray(X, dtype=float) @ np.asarray(Z, dtype=float).T - 0.5)


def mean_error(estimator, X, y):
    """A scorer without make_scorer."""
    if hasattr(estimator, "classes_"):
        return float(np.mean(estimator.predict(X) == np.asarray(y)))
    return -float(np.mean(np.abs(estimator.predict(X) - np.asarray(y))))


def two_scores(estimator, X, y):
    """A scorer that returns a dict."""
    guess = estimator.predict(X)
    if hasattr(estimator, "classes_"):
        return {"hits": accuracy_score(y, guess), "f1": f1_score(y, guess, average="macro")}
    return {
        "hits": -mean_squared_error(y, guess),
        "f1": -mean_absolute_error(y, guess),
    }


def margin(estimator, X, y):
    """A scorer of decision values."""
    values = np.asarray(estimator.decision_function(X))
    return float(np.mean(np.abs(np.clip(values, -1e6, 1e6))))


def shifted(X):
    """What a FunctionTransformer does."""
    return np.asarray(X, dtype=float) * 0.5 + 0.1


# -- transformers that users write ---------------------------------------------------------------


def plain(X):
    """Any container as an array of numbers."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)


class Remembering(TransformerMixin, BaseEstimator):
    """Depends on how many rows it was fitted on and on which: fitted elsewhere, it shows."""

    def __init__(self, power=1.0):
        self.power = power

    def fit(self, X, y=None):
        rows = plain(X)
        self.n_fits_ = getattr(self, "n_fits_", 0) + 1  # a clone begins with none
        self.centre_ = np.median(rows, axis=0)
        self.scale_ = (1.0 + len(rows) / 10.0) ** self.power * self.n_fits_
        return self

    def transform(self, X):
        return (plain(X) - self.centre_) / self.scale_


class Supervised(TransformerMixin, BaseEstimator):
    """Columns weighted by how they go with y: y is needed, and leaks if it is not of the fold."""

    def fit(self, X, y):
        target = np.asarray(y)
        if target.dtype.kind not in "fi":
            target = np.unique(target, return_inverse=True)[1]
        target = target.reshape(len(target), -1)[:, 0].astype(float)
        rows = plain(X)
        self.weights_ = 0.1 + np.abs((target - target.mean()) @ (rows - rows.mean(axis=0)))
        self.weights_ /= self.weights_.max()
        return self

    def transform(self, X):
        return plain(X) * self.weights_


class Sparsified(TransformerMixin, BaseEstimator):
    """Gives a sparse matrix, without the entries that are small among the rows of the fit."""

    def fit(self, X, y=None):
        self.least_ = np.quantile(np.abs(plain(X)), 0.3)
        return self

    def transform(self, X):
        rows = plain(X)
        return sparse.csr_matrix(np.where(np.abs(rows) < self.least_, 0.0, rows))


class Framed(TransformerMixin, BaseEstimator):
    """Gives a data frame with names and an index of its own."""

    def fit(self, X, y=None):
        self.largest_ = np.abs(plain(X)).max() + 1.0
        return self

    def transform(self, X):
        rows = plain(X) / self.largest_
        index = [f"row {i}" for i in range(len(rows), 0, -1)]
        return pd.DataFrame(rows, index=index, columns=[f"f{j}" for j in range(rows.shape[1])])


class OtherwiseInTraining(TransformerMixin, BaseEstimator):
    """Transforms the rows of the fit otherwise than new rows, as encoders of targets do."""

    def fit(self, X, y=None):
        self.mean_ = plain(X).mean(axis=0)
        return self

    def fit_transform(self, X, y=None):
        self.fit(X, y)
        rows = plain(X)
        return rows - (rows.sum(axis=0) - rows) / (len(rows) - 1.0)

    def transform(self, X):
        return plain(X) - self.mean_


class Failing(TransformerMixin, BaseEstimator):
    """Fails on some training sets: these folds have ``error_score``, the others a score."""

    def fit(self, X, y=None):
        if plain(X)[0, 0] < 0.0:
            raise ValueError("the first value is negative")
        return self

    def transform(self, X):
        return plain(X)


class Selected(TransformerMixin, BaseEstimator):
    """Keeps the columns that vary more than the median column: others in every fold."""

    def fit(self, X, y=None):
        spread = plain(X).std(axis=0)
        self.kept_ = spread >= np.median(spread)
        return self

    def transform(self, X):
        return plain(X)[:, self.kept_]


USER_STEPS = (
    Remembering,
    Supervised,
    Sparsified,
    Framed,
    OtherwiseInTraining,
    Selected,
)


# -- values that fits do not take, or hardly ---------------------------------------------------

EXTREME = {
    "C": [1e-310, 1e-30, 0.0, -1.0, None, "1.0", np.nan],
    "gamma": [1e39, 1e-39, 0.0, -1.0, None, "wide", np.nan],
    "alpha": [1e-310, 1e300, -1.0, None, "1.0", np.nan],
    "epsilon": [-0.1, None, "0.1"],
    "degree": [-1, "3", None],
    "coef0": [None, "1.0"],
    "kernel": ["precomputed", "no such kernel", None],
    "class_weight": ["unbalanced", 3],
    "fit_intercept": ["yes", None],
    "tol": [None, -1.0, "small"],
    "decision_function_shape": ["ova"],
    "break_ties": ["no"],
    "multi_class": ["one"],
    "loss": ["no such loss"],
    "solver": ["no such solver"],
    "with_mean": ["no"],
    "n_components": [-1, "many", 10_000],
    "k": [-1, "few"],
}
"""By the name of a parameter: at the edge of the numbers, out of range, of a wrong type."""


class Draws:
    """Random choices, and what has been chosen so far."""

    def __init__(self, rng: np.random.Generator, kind: type, call: str) -> None:
        self.rng = rng
        self.kind = kind
        self.call = call
        self.is_classifier = kind in CLASSIFIERS
        self.facts: dict[str, Any] = {}

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def some(self, values: Any, most: int = 3) -> list[Any]:
        """A few of the values, at least one, in any order."""
        size = int(self.rng.integers(1, min(most, len(values)) + 1))
        return [values[i] for i in self.rng.choice(len(values), size, replace=False)]


class Models(Draws):
    """Estimators with the values that their parameters may take in a grid."""

    def model(self, kind: type) -> tuple[Any, dict[str, list[Any]]]:
        """An estimator and the values its parameters may take in a grid."""
        if kind in (SVC, SVR):
            return self.svm(kind)
        if kind in (Ridge, RidgeClassifier, RidgeCV, LogisticRegression):
            return self.linear(kind)
        params, axes = self.kernel(kind)
        if kind is KernelRidge:
            axes["alpha"] = self.ridges()
            return KernelRidge(**params, alpha=axes["alpha"][0]), axes
        params["fit_intercept"] = not self.chance(0.2)
        if kind in (LSSVR, LSSVC):
            axes["alpha"] = self.ridges()
        else:
            axes["C"] = self.penalties()
        if kind is KernelRegressor:
            params["loss"] = self.pick("squared", "quadratic_epsilon", "smooth_epsilon")
            axes["epsilon"] = [0.05, 0.2]
        if kind is KernelClassifier:
            losses = ("squared", "huber_hinge", "squared_hinge", "logistic")
            params["loss"] = self.pick(*losses)
        if kind in (KernelClassifier, HuberSVC, KernelLogisticClassifier):
            params["multi_class"] = self.pick("ovr", "ovr", "ovo")
        if self.is_classifier:
            self.class_weight(params, axes)
        return kind(**params), axes

    def ridges(self) -> list[float]:
        return [float(f"{10.0**power:.3g}") for power in self.rng.uniform(-3.0, 1.5, 6)]

    def penalties(self) -> list[float]:
        return [float(f"{10.0**power:.3g}") for power in self.rng.uniform(-2.0, 2.0, 6)]

    def class_weight(self, params: dict[str, Any], axes: dict[str, Any]) -> None:
        classes = self.facts["names"].tolist()
        named = dict(zip(classes, self.rng.uniform(0.3, 3.0, len(classes)).tolist(), strict=True))
        if self.chance(0.3):
            params["class_weight"] = self.pick("balanced", named)
        if self.chance(0.1):
            axes["class_weight"] = [None, "balanced", named]

    def kernel(self, kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of KernelRidge and the library's own estimators."""
        names = ("rbf", "rbf", "rbf", "laplacian", "poly", "linear", "cosine", "precomputed")
        name = self.pick(*names, "polynomial", "function")
        own = kind is not KernelRidge
        if own and name == "poly":
            name = "polynomial"
        params: dict[str, Any] = {"kernel": name}
        axes: dict[str, Any] = {}
        if name in ("rbf", "laplacian", "poly", "polynomial"):
            numbers = self.widths()
            axes["gamma"] = numbers
            usual = ("scale", "auto", None) if own else (None,)
            params["gamma"] = self.pick(numbers[0], numbers[0], numbers[0], *usual)
            if self.chance(0.15):
                axes["gamma"] = [numbers[0], *usual]
        if "poly" in name:
            params |= {"degree": self.pick(2, 3), "coef0": self.pick(0.0, 1.0, 0.5)}
            axes["degree"] = [1, 2, 3]
        if name == "function":
            params |= {"kernel": rational_rows, "kernel_params": self.pick(None, {"scale": 0.4})}
        elif name != "precomputed" and self.chance(0.15):
            axes["kernel"] = ["rbf", "linear", "laplacian"]
        return params, axes

    def widths(self) -> list[float]:
        return [float(f"{10.0**power:.3g}") for power in self.rng.uniform(-2.0, 0.3, 4)]

    def svm(self, kind: type) -> tuple[Any, dict[str, Any]]:
        name = self.pick("rbf", "rbf", "rbf", "poly", "linear", "precomputed", "function")
        numbers = self.widths()
        axes: dict[str, Any] = {"C": self.penalties(), "gamma": numbers}
        params: dict[str, Any] = {
            "kernel": name,
            "gamma": self.pick(numbers[0], numbers[0], "scale", "auto"),
            "tol": self.pick(1e-3, 1e-5, 1e-6, 1e-6),
        }
        if name == "poly":
            params |= {"degree": self.pick(2, 3), "coef0": self.pick(0.0, 1.0), "gamma": "scale"}
        if name == "function":
            params["kernel"] = tanh_kernel if self.chance(0.1) else rational
            self.facts["indefinite"] = params["kernel"] is tanh_kernel
        if params["kernel"] not in ("rbf", "poly"):
            axes.pop("gamma")
        elif name == "poly":
            axes["gamma"] = ["scale", "auto"]
        elif self.chance(0.15):
            axes["gamma"] = [numbers[0], "scale", "auto"]
        if name in ("rbf", "linear") and self.chance(0.15):
            axes["kernel"] = ["rbf", "linear"]
        if kind is SVR:
            params["epsilon"] = self.pick(0.0, 0.1, 0.1, 0.3)
            axes["epsilon"] = [0.02, 0.1, 0.4]
            return SVR(**params), axes
        self.class_weight(params, axes)
        params["decision_function_shape"] = self.pick("ovr", "ovr", "ovr", "ovo")
        if params["decision_function_shape"] == "ovr":
            params["break_ties"] = self.chance(0.2)
            if self.chance(0.1):
                axes["break_ties"] = [False, True]
        if self.chance(0.12):
            # With a seed, as libsvm draws the folds that its probabilities come from.
            params |= {"probability": True, "random_state": 3}
        return SVC(**params), axes

    def linear(self, kind: type) -> tuple[Any, dict[str, Any]]:
        params: dict[str, Any] = {"fit_intercept": not self.chance(0.2)}
        axes: dict[str, Any] = {"fit_intercept": [True, False]}
        if kind is RidgeCV:
            params["alphas"] = tuple(sorted(self.ridges())[:4])
            axes["alphas"] = [(0.1, 1.0, 10.0), params["alphas"]]
            return RidgeCV(**params), axes
        if kind is LogisticRegression:
            axes["C"] = self.penalties()
            solver = self.pick("lbfgs", "lbfgs", "newton-cholesky", "newton-cg")
            tol = self.pick(1e-4, 1e-10, 1e-10)
            self.class_weight(params, axes)
            return LogisticRegression(solver=solver, tol=tol, max_iter=5000, **params), axes
        axes["alpha"] = self.ridges()
        if kind is RidgeClassifier:
            self.class_weight(params, axes)
        return kind(alpha=axes["alpha"][0], **params), axes

    @staticmethod
    def is_precomputed(model: Any) -> bool:
        return isinstance(getattr(model, "kernel", None), str) and model.kernel == "precomputed"

    # -- Pipelines --

    def pipeline(self, model: Any, axes: Any, container: str) -> tuple[Any, Any]:
        if not self.chance(0.4):
            return model, axes
        axes = {f"model__{name}": values for name, values in axes.items()}
        steps: list[tuple[str, Any]] = []
        for position in range(self.pick(1, 1, 2)):
            name, step, own = self.step(container)
            steps.append((f"{name}{position}", step))
            axes |= {f"{name}{position}__{key}": value for key, value in own.items()}
            if self.chance(0.1):
                axes[f"{name}{position}"] = [step, "passthrough"]
        if self.chance(0.08) and container != "kernel":
            self.replaced(axes, model)
        if self.chance(0.1):
            inner = Pipeline(steps)
            return Pipeline([("first", inner), ("model", model)]), {
                key if key.startswith("model") else f"first__{key}": value
                for key, value in axes.items()
            }
        return Pipeline([*steps, ("model", model)]), axes

    def replaced(self, axes: dict[str, Any], model: Any) -> None:
        """A grid over the final step, whose parameters then are its own."""
        kinds = CLASSIFIERS if self.is_classifier else REGRESSORS
        others = [self.model(self.pick(*kinds))[0] for _ in range(2)]
        others = [other for other in others if not self.is_precomputed(other)]
        for name in [name for name in axes if name.startswith("model__")]:
            del axes[name]
        axes["model"] = [model, *others]

    def step(self, container: str) -> tuple[str, Any, dict[str, Any]]:
        if container == "kernel":
            return ("kernel", self.pick(KernelCenterer(), "passthrough"), {})
        if self.chance(0.3):
            return self.user_step()
        few = max(1, self.d - 1)
        score = f_classif if self.is_classifier else f_regression
        dense = [
            ("scale", StandardScaler(), {"with_mean": [True, False]}),
            ("scale", StandardScaler(), {}),
            ("range", MinMaxScaler(), {}),
            ("pca", PCA(n_components=few, random_state=0), {"n_components": [1, few]}),
            ("whiten", PCA(n_components=1, whiten=True, random_state=0), {}),
            ("nystroem", Nystroem(gamma=0.2, n_components=8, random_state=0), {}),
            ("shift", FunctionTransformer(shifted), {}),
        ]
        any_rows = [
            ("powers", PolynomialFeatures(2, include_bias=False), {"degree": [1, 2]}),
            ("best", SelectKBest(score, k=few), {"k": [1, few]}),
            ("largest", MaxAbsScaler(), {}),
            ("unit", Normalizer(), {}),
            ("varied", VarianceThreshold(), {}),
            ("pass", "passthrough", {}),
        ]
        if container in ("pandas", "polars"):
            columns = ColumnTransformer([("s", StandardScaler(), ["c0"])], remainder="passthrough")
            dense.append(("columns", columns, {}))
        if container in ("csr", "csc", "coo", "csr_array"):
            scaler = ("scale", StandardScaler(with_mean=False), {})
            svd = ("svd", TruncatedSVD(n_components=few, random_state=0), {})
            return self.pick(scaler, svd, *any_rows)
        return self.pick(*dense, *any_rows)

    def user_step(self) -> tuple[str, Any, dict[str, Any]]:
        """A transformer of a class that no package has."""
        if self.chance(0.08):
            return "failing", Failing(), {}
        kind = self.pick(*USER_STEPS)
        self.facts["user"] = kind.__name__
        return kind.__name__.lower(), kind(), {"power": [0.5, 1.0]} if kind is Remembering else {}
