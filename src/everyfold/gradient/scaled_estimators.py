"""Estimators with the gammas that a descent has found.

Estimators of this library take one gamma per feature. SVC and SVR take one gamma for all features,
so that they become the last step of a Pipeline that multiplies the columns first.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold._typing import Array, Estimator, Index, Matrix, Params, Scorer, Splitter, Targets
from everyfold.adapters.sklearn import fast_version_of, is_ours, read_estimator
from everyfold.engine.request import MethodOptions
from everyfold.estimators.model import KernelChoice, Model
from everyfold.gradient.descent import Point
from everyfold.io import Folds
from everyfold.kernels import Linear, Scaled
from everyfold.losses import Squared
from everyfold.operators import Dense, Nystrom
from everyfold.search.grid import FastGridSearchCV

# The Cs that an SVM with new scales chooses from; of SVR, relative to the deviation of y. A wide
# range is cheap: all Cs of a fold are one path.
PENALTIES = np.logspace(-1.0, 3.0, 9)

_KERNELS = ("rbf", "laplacian", "polynomial", "poly", "linear")


class ScaledColumns(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Multiply every column by its factor.

    Parameters
    ----------
    factors : array of shape (n_features,)
    """

    def __init__(self, factors: Array) -> None:
        self.factors = factors

    def fit(self, X: Matrix, y: Targets = None) -> ScaledColumns:
        """Check the width of the rows."""
        scaled(validate_data(self, X, accept_sparse="csr", dtype=np.float64), self.factors)
        return self

    def transform(self, X: Matrix) -> Matrix:
        """The rows with scaled columns."""
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return scaled(rows, self.factors)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class FitRows:
    """Rows, targets, weights (None for equal ones) and folds of a fit."""

    X: Matrix
    y: Targets
    weights: Array | None
    folds: Folds

    @property
    def splits(self) -> list[tuple[Index, Index]]:
        """The folds as pairs of row numbers."""
        return [(fold.train, fold.test) for fold in self.folds]


@dataclass(frozen=True)
class ScaledModel:
    """An estimator, and the model of squared loss by which its scales are found.

    Attributes
    ----------
    estimator : Estimator
    model : Model
        Of squared loss, with a kernel that has a gamma: the estimator's own, or the LS-SVM with
        the kernel of an SVM.
    has_ridge : bool
        Whether the ridge of the descent is the estimator's. An SVM chooses its C afterwards.
    is_linear : bool
        Whether the kernel is a linear one, which has scales as a polynomial of degree 1 only.
    """

    estimator: Estimator
    model: Model
    has_ridge: bool
    is_linear: bool

    def configured(self, point: Point, rows: FitRows, scoring: Scorer) -> Estimator:
        """The estimator with the scales of a point; or ours, if its class takes one gamma.

        An SVM stands behind scaled columns, with the best C by the folds of these rows.
        """
        if not self.has_ridge:
            svm = self._bare.set_params(C=self._penalty(point, rows, scoring))
            return make_pipeline(ScaledColumns(np.sqrt(point.gamma)), svm)
        choice, params = self.model.choice, params_of(point)
        takes_arrays = is_ours(self.estimator)
        if self.is_linear:
            params |= {"kernel": choice.kernel, "degree": choice.degree, "coef0": choice.coef0}
        is_plain = not self.is_linear and not isinstance(params["gamma"], np.ndarray)
        made = clone(self.estimator) if takes_arrays or is_plain else fast_version_of(self.model)
        return made.set_params(**params)

    def fit(
        self, estimator: Estimator, X: Matrix, y: Targets, weights: ArrayLike | None
    ) -> Estimator:
        """Fit what was configured."""
        prefix = "" if self.has_ridge else f"{estimator.steps[-1][0]}__"
        given = {} if weights is None else {f"{prefix}sample_weight": weights}
        return estimator.fit(X, y, **given)

    def tuned(self, estimator: Estimator, point: Point) -> Params:
        """The parameters of what was configured: gamma, and alpha or C."""
        params = params_of(point)
        if self.has_ridge:
            return params
        return {"gamma": params["gamma"], "C": estimator.steps[-1][1].C}

    def _penalty(self, point: Point, rows: FitRows, scoring: Scorer) -> float:
        """The best C of an SVM on scaled columns, by the folds of these rows."""
        unit = 1.0 if self.model.is_classifier else float(np.std(rows.y)) or 1.0
        rows = replace(rows, X=scaled(rows.X, np.sqrt(point.gamma)))
        found = search_for(self._bare, {"C": unit * PENALTIES}, rows.splits, scoring, rows)
        return float(found.cv_results_["params"][best_of(found)]["C"])

    @property
    def _bare(self) -> Estimator:
        """The SVM with gamma 1, as the columns are scaled already."""
        return clone(self.estimator).set_params(gamma=1.0)


def grid_search(
    estimator: Estimator, grid: Params, splits: Splitter, scoring: Scorer
) -> FastGridSearchCV:
    """A grid search on given splits, without a refit of the winner."""
    return FastGridSearchCV(
        estimator,
        grid,
        cv=splits,
        scoring=scoring,
        refit=False,
        error_score="raise",
        method=MethodOptions(n_confirm=0, keeps=None),
    )


def search_for(
    estimator: Estimator, grid: Params, splits: Splitter, scoring: Scorer, rows: FitRows
) -> FastGridSearchCV:
    """The same, fitted; its remarks on the grid are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an edge of the grid is left behind
        found = grid_search(estimator, grid, splits, scoring)
        found.fit(rows.X, rows.y, sample_weight=rows.weights)
    return found


def best_of(found: FastGridSearchCV) -> int:
    """The number of the best candidate; the first of equals."""
    return int(np.argmin(found.cv_results_["rank_test_score"]))


def scaled(X: Matrix, factors: Array) -> Matrix:
    """A copy of the rows with scaled columns; raises unless there is a factor for each."""
    return Scaled(Linear(), tuple(np.asarray(factors, dtype=np.float64).tolist())).scale(X)


def params_of(point: Point) -> Params:
    """The parameters of a point: one gamma if all features have the same."""
    is_one = bool((point.gamma == point.gamma[0]).all())
    gamma = float(point.gamma[0]) if is_one else point.gamma.copy()
    return {"gamma": gamma, "alpha": point.ridge}


def read_scaled_model(estimator: Estimator) -> ScaledModel:
    """How an estimator is tuned; says what to use instead of one that cannot be."""
    name = type(estimator).__name__
    for attribute, words in _WRAPPED.items():
        if hasattr(estimator, attribute):
            raise ValueError(f"FastGradientSearchCV: {name} {words}")
    model = read_estimator(estimator)
    is_svm = not model.loss.is_smooth
    if is_svm:
        model = _squared(model)
    for is_so, words in _objections(estimator, model):
        if is_so:
            raise ValueError(f"FastGradientSearchCV: {name} {words}")
    is_linear = model.choice.kernel == "linear"
    if is_linear:
        model = replace(model, choice=KernelChoice("polynomial", 1.0, 1, 0.0))
    return ScaledModel(estimator, model, not is_svm, is_linear)


_WRAPPED = {
    "steps": (
        "has steps before the kernel; put them before the search: "
        "make_pipeline(StandardScaler(), FastGradientSearchCV(...))"
    ),
    "transformer": (
        "transforms y; put the search inside: "
        "TransformedTargetRegressor(FastGradientSearchCV(...), ...)"
    ),
}


def _squared(model: Model) -> Model:
    """The LS-SVM with the kernel of an SVM; its labels are read one versus rest."""
    weights = None if model.class_weight == "balanced" else model.class_weight
    choice = replace(model.choice, on_matrices=False)
    return Model(choice, Squared(), (1.0,), True, model.is_classifier, class_weight=weights)


def _objections(estimator: Estimator, model: Model) -> list[tuple[bool, str]]:
    """What a model may have that no scales are found for, and what to use instead."""
    operator = model.operator
    takes_operator = isinstance(operator, Nystrom | Dense) or operator in ("auto", "dense")
    return [
        (
            not model.loss.has_constant_curvature,
            "does not have squared loss; use LSSVC, LSSVR, SVC or SVR",
        ),
        (
            model.choice.kernel not in _KERNELS,
            f"has kernel={model.choice.kernel!r}, which has no gamma; use one of {_KERNELS}",
        ),
        (model.chooses_ridge, "chooses its own alpha; use Ridge"),
        (model.voting is not None, "has multi_class='ovo'; use multi_class='ovr'"),
        (model.class_weight == "balanced", "has class_weight='balanced'; pass a dict of weights"),
        # C is the ridge by another name, which "alpha" would not replace.
        (
            is_ours(estimator) and getattr(estimator, "C", None) is not None,
            "has C; use alpha = 1 / (2 C)",
        ),
        (len(model.ridges) > 1, "has several ridges; use one alpha"),
        (
            not takes_operator,
            f"has operator={operator!r}, which has no gradient; use 'auto', 'dense' or Nystrom",
        ),
        (
            isinstance(operator, Nystrom) and not _is_plain(operator),
            f"has operator={operator!r}, which has no gradient; use Nystrom(n_landmarks) alone",
        ),
    ]


def _is_plain(operator: Nystrom) -> bool:
    """Whether landmarks serve all folds, with all eigenvectors, to fit and to predict."""
    is_usual = operator.replaces == "kernel" and operator.predicts_with == "features"
    return is_usual and not operator.per_fold and operator.rank is None
