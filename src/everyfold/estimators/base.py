"""What the regressors and the classifiers share: parameters, ``fit`` and predictions.

The functions below the class fit a model to rows in memory, or to a source of rows in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold._progress import reporting_share_of, warn
from everyfold._typing import Array, Estimator, Matrix, Params, Targets
from everyfold.estimators.model import (
    ClassWeight,
    KernelChoice,
    Model,
    read_penalty,
    read_ridge,
    read_weights,
)
from everyfold.estimators.newton_passes import (
    MapFit,
    Sampling,
    Setting,
    are_minima,
    choose_sample,
    holding,
    holds_features,
    minimise,
)
from everyfold.estimators.sources import (
    FoldedBlocks,
    Reader,
    Summing,
    View,
    check_model,
    choose_map,
    in_blocks,
    read_source,
)
from everyfold.estimators.targets import Target, Voting
from everyfold.io import RowSource
from everyfold.io.blocks import height_of
from everyfold.io.fold_rules import Everything
from everyfold.kernels import Gamma, Kernel, KernelLike, check_precomputed
from everyfold.linalg.blas import blas_threads, thread_budget
from everyfold.linalg.memory import batch_bytes, threads_that_fit
from everyfold.losses import LOSSES, Loss, find_loss
from everyfold.operators import (
    Expansion,
    FeatureMap,
    LowRank,
    Solution,
    Structure,
    SupportsResponse,
)
from everyfold.operators.base import OperatorChoice, require
from everyfold.operators.gram import Start, Sums
from everyfold.solvers import Fit, solve


def _suits(loss: Loss | type[Loss], is_classifier: bool) -> bool:
    """Whether a loss is one of labels -1 and +1, or of numbers; squared loss serves for both."""
    return loss.is_margin == is_classifier or (is_classifier and loss.has_constant_curvature)


def keep_parameters(estimator: Estimator, given: Params) -> None:
    """Set the attributes of an estimator to what ``__init__`` was given, by its ``locals()``.

    scikit-learn asks for an explicit signature and for attributes of the same names, unchanged.
    """
    for name, value in given.items():
        if name != "self":
            setattr(estimator, name, value)


class KernelMachine(BaseEstimator):  # type: ignore[misc]
    """What the regressors and the classifiers share."""

    kernel: KernelLike
    gamma: Gamma
    degree: int
    coef0: float
    kernel_params: Params | None
    operator: OperatorChoice
    alpha: ArrayLike | None
    C: float | None
    fit_intercept: bool
    loss: str | Loss
    class_weight: ClassWeight = None
    multi_class: Literal["ovr", "ovo"] = "ovr"

    def _model(self) -> Model:
        """The estimator in the library's own words; raises what is wrong with its parameters."""
        loss = self._loss()
        ridges = read_ridge(self.alpha) if self.C is None else read_penalty(self.C)
        choice = KernelChoice(self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params)
        return Model(
            choice,
            loss,
            ridges,
            bool(self.fit_intercept),
            isinstance(self, ClassifierMixin),
            self.operator,
            self.class_weight,
            voting=self._voting(),
        )

    def _loss(self) -> Loss:
        """The loss with those of the estimator's parameters that it takes."""
        found = find_loss(self.loss)
        is_classifier = isinstance(self, ClassifierMixin)
        if not _suits(found, is_classifier):
            allowed = [repr(name) for name, loss in LOSSES.items() if _suits(loss, is_classifier)]
            raise ValueError(
                f"loss={self.loss!r} is not available for {type(self).__name__}; use "
                f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            )
        if isinstance(self.loss, Loss):
            return found
        own = [name for name in found.parameters if hasattr(self, name)]
        return find_loss(self.loss, **{name: getattr(self, name) for name in own})

    def _voting(self) -> Voting | None:
        if self.multi_class not in ("ovr", "ovo"):
            raise ValueError(
                f"multi_class={self.multi_class!r} is not known; use 'ovr' (one versus rest) or "
                "'ovo' (one versus one)"
            )
        return Voting() if self.multi_class == "ovo" else None

    def _fit(self, X: Matrix, target: Target, sample_weight: ArrayLike | None) -> None:
        model = self._model()
        weights = read_weights(sample_weight, X.shape[0])
        if reason := target.why_no_model(weights):
            raise ValueError(reason)
        # A kernel chosen by the rows is, for a single fit, a kernel like any other.
        kernel = model.choice.resolve(X)
        if model.choice.is_precomputed:
            X = check_precomputed(X)
        with blas_threads(X.shape[0]):
            self._keep(fit_rows(model, kernel, X, target, weights), kernel)

    def _keep(self, fitted: Fitted, kernel: Kernel) -> None:
        self.expansion_ = fitted.expansion
        self.dual_coef_ = fitted.expansion.coef
        self.intercept_ = fitted.intercept
        self.kernel_ = kernel

    def _fit_source(self, source: RowSource, y: Targets, sample_weight: Targets) -> SourceFit:
        """Fit to rows that are read in blocks; they bring their targets and weights along."""
        if y is not None or sample_weight is not None:
            name = "y" if y is not None else "sample_weight"
            raise ValueError(f"a source of rows has {name} in it; leave {name} out of fit")
        fitted = fit_source(self._model(), source)
        self.keep_source_fit(source, fitted)
        return fitted

    def keep_source_fit(self, source: RowSource | Matrix, fitted: SourceFit) -> None:
        """Be the model of a fit to a source of rows, or to rows in memory."""
        if not isinstance(source, RowSource):
            X = validate_data(self, source, accept_sparse="csr", dtype=np.float64)
            self._keep(fitted, self._model().choice.resolve(X))
            return
        self._keep(fitted, self._model().choice.resolve(np.zeros((1, source.n_features))))
        self.n_features_in_ = source.n_features
        if source.names is not None:
            self.feature_names_in_ = np.array(source.names, dtype=object)

    def _values(self, X: Matrix) -> Array:
        check_is_fitted(self)
        if isinstance(X, RowSource):
            return in_blocks(self._values, X, self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.expansion_(X) + self.intercept_

    def set_params(self, **params: object) -> Self:
        """Set parameters, including those of a structure, such as ``operator__steps``.

        Structures are immutable; ``operator`` is replaced by a changed copy.
        """
        nested = {name: params.pop(name) for name in list(params) if name.startswith("operator__")}
        super().set_params(**params)
        if nested:
            changes = {name.removeprefix("operator__"): value for name, value in nested.items()}
            if not isinstance(self.operator, Structure):
                raise ValueError(f"operator={self.operator!r} has no parameters {sorted(changes)}")
            self.operator = self.operator.with_params(**changes)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


# -- Fits of a model: to rows in memory, or to those of a source in one pass ----------------------


@dataclass(frozen=True)
class Fitted:
    """A fitted function and its intercepts, one a column of the target."""

    expansion: Expansion
    intercept: Array


def fit_rows(model: Model, kernel: Kernel, X: Matrix, target: Target, weights: Array) -> Fitted:
    """Fit a model to rows in memory.

    **Cost** that of the structure; squared loss with features that are too many to be held takes
    sums over the rows, as for a source.
    """
    structure = model.structure_to_fit(kernel, X.shape)
    is_one = len(model.columns_of_ridges(target.columns.shape[1])) == 1 and not target.has_pairs
    if structure.needs_blocks(*X.shape) and is_one and model.loss.has_constant_curvature:
        (problem,) = model.problems(target, weights)
        rho = problem.rho(model.ridges[0], problem.n_counted)
        rows = require(structure.bind_rows(kernel, X), LowRank)
        fitted = _fitted(rows, rows.sums(problem.levelled.quadratic, [], rho).total, rho)
        return replace(fitted, intercept=fitted.intercept + problem.level)
    operator = require(structure.bind(kernel, X), SupportsResponse)
    solution = fit_columns(model, operator, target, weights)
    return Fitted(operator.expand(solution.coef), solution.intercept)


def _fitted(features: SupportsResponse | FeatureMap, total: Sums, rho: float) -> Fitted:
    models = total.solve([rho])
    return Fitted(features.expand(models.coef[0]), models.intercept[0])


def fit_columns(
    model: Model, operator: SupportsResponse, target: Target, weights: Array
) -> Solution:
    """Fit every column of a target, together where they share their rows and their ridge."""
    q = target.columns.shape[1]
    fits: list[tuple[list[int], Fit]] = []
    problems = model.problems(target, weights)
    if target.has_pairs:
        for k, problem in enumerate(problems):
            fits.append(([k], solve(problem, operator, model.ridges[0])))
    else:
        (problem,) = problems
        for ridge, columns in model.columns_of_ridges(q):
            own = problem if len(columns) == q else replace(problem, y=problem.y[:, columns])
            fits.append((columns, solve(own, operator, ridge)))
    _warn_unconverged([fit for _, fit in fits])
    coef, intercept = np.empty((len(fits[0][1].solution.coef), q)), np.empty(q)
    for columns, fit in fits:
        coef[:, columns] = fit.solution.coef
        intercept[columns] = fit.solution.intercept
    return Solution(coef, intercept)


def _warn_unconverged(fits: list[Fit]) -> None:
    worst = max(float(fit.stationarity.max(initial=0.0)) for fit in fits)
    if not all(fit.is_converged for fit in fits):
        warn(
            "Newton's method did not converge: the optimality conditions are violated by "
            f"{worst:.1g}. Use a larger alpha (smaller C) or a larger h.",
            ConvergenceWarning,
        )


@dataclass(frozen=True)
class SourceFit(Fitted):
    """A fit to a source: also how the targets were read, and if y has one axis."""

    reader: Reader
    is_flat: bool


def fit_source(model: Model, source: RowSource) -> SourceFit:
    """Fit a model; one pass for squared loss, and one more where classes must be found first.

    Other smooth losses take about nine, hinges twenty.
    """
    check_model(model)
    reader = read_source(source, model)
    features, ridge = choose_map(model, source), model.ridges[0]
    if not model.loss.has_constant_curvature:
        return _minimum(model, source, reader, features)
    start = Start.of(features, ridge, source.n_rows or 1, intercept=model.intercept)
    d, width = source.n_features, features.raw_width
    height = height_of(max(width, d))
    threads = max(1, min(thread_budget(), (source.n_rows or 0) // (2 * height)))
    threads = threads_that_fit(threads, batch_bytes(height, d, width) + 16 * width**2)
    found = Summing(reader, Everything(), height, [View(features, start)]).over(source, threads)
    total = found.sums[0].total
    rho = ridge * (total.count if model.ridge_scaling == "mean" else 1)
    fitted = _fitted(features, total, rho)
    return SourceFit(fitted.expansion, fitted.intercept, reader, found.is_flat)


def _minimum(model: Model, source: RowSource, reader: Reader, features: FeatureMap) -> SourceFit:
    """The minimum of a smooth loss over all rows of a source, by passes with gradients."""
    n, d, width = source.n_rows or 1, source.n_features, features.raw_width
    height, everything = height_of(max(width, d)), Everything()
    pattern = FoldedBlocks(reader, everything, height)
    threads = max(1, min(thread_budget(), n // (2 * height)))
    threads = threads_that_fit(threads, batch_bytes(height, d, width))
    setting = Setting(model.loss, model.intercept, model.ridge_scaling == "mean")
    share = 1.0 / setting.usual_passes
    with reporting_share_of(0.0, share):
        rows = choose_sample(n, width)
        first = Sampling(reader, everything, height, rows).over(source, threads)
    fit = MapFit.of(features, setting, first, model.ridges, [None])
    with reporting_share_of(share, 1.0):
        is_held = holds_features(source, n, width)
        held = holding(source, fit, pattern, threads) if is_held else None
        minimise(source, [fit], pattern, threads=threads, held=held)
    worst = float(fit.errors.max())
    if not are_minima(fit.errors):
        warn(
            f"the passes over the rows did not converge: the relative decrement is {worst:.1g}. "
            "Use a larger alpha (smaller C) or a larger h.",
            ConvergenceWarning,
        )
    found = fit.models()[None]
    expansion, intercept = features.expand(found.coef[0]), found.intercept[0]
    return SourceFit(expansion, intercept, reader, first.is_flat)
