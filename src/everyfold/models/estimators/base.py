"""What the regressors and the classifiers share."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold.kernels import Gamma, Kernel, KernelLike, check_precomputed
from everyfold.losses import LOSSES, Loss, find_loss
from everyfold.models.fit import Fitted, SourceFit, fit_rows, fit_source
from everyfold.models.model import (
    ClassWeight,
    KernelChoice,
    Model,
    read_penalty,
    read_ridge,
    read_weights,
)
from everyfold.models.sources import in_blocks
from everyfold.models.targets import Target, Voting
from everyfold.operators import Structure
from everyfold.operators.structure import OperatorChoice
from everyfold.operators.threads import blas_threads
from everyfold.rows import RowSource
from everyfold.types import Array, Estimator, Matrix, Params, Targets


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
        return find_loss(self.loss, **{name: getattr(self, name) for name in found.parameters})

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
        model = self._model()
        fitted = fit_source(model, source)
        self._keep(fitted, model.choice.resolve(np.zeros((1, source.n_features))))
        self.n_features_in_ = source.n_features
        if source.names is not None:
            self.feature_names_in_ = np.array(source.names, dtype=object)
        return fitted

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
