"""Kernel classification: the general estimator and its named special cases.

:class:`KernelClassifier` takes any loss of labels. The others fix the loss, so that they have no
parameters that do not concern them; scikit-learn asks for a full signature in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from everyfold._typing import AnyArray, Array, LabelLoss, Matrix, Params, Targets
from everyfold.estimators.base import Fitted, KernelMachine, SourceFit, keep_parameters
from everyfold.estimators.model import ClassWeight
from everyfold.estimators.targets import Target
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.io.conversion import as_rows
from everyfold.io.dask import lazily
from everyfold.kernels import Gamma, Kernel, KernelLike
from everyfold.losses import Loss, find_loss
from everyfold.operators.base import OperatorChoice
from everyfold.operators.dense import KernelExpansion


def _has_probabilities(model: KernelClassifier) -> bool:
    """Votes of pairs of classes have none."""
    return find_loss(model.loss).has_log_odds and model.multi_class == "ovr"


class KernelClassifier(ClassifierMixin, KernelMachine):  # type: ignore[misc]
    r"""Kernel classification: minimise :math:`\sum_i w_i V(y_i, f(x_i) + b) + \rho\|f\|^2`, y = ±1.

    More than two classes are handled one versus rest (with squared loss, all classes share one
    factorisation), or one versus one.

    Parameters
    ----------
    loss : {"squared", "huber_hinge", "squared_hinge", "logistic"} or Loss, default="squared"
        The loss V. "squared" is the loss of the least-squares SVM, "huber_hinge" that of the SVM,
        smoothed over ``h`` on both sides of its kink, "squared_hinge" that of the L2-SVM.
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, C, fit_intercept
        As in :class:`KernelRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class; "balanced" means inverse to the class frequencies.
    multi_class : {"ovr", "ovo"}, default="ovr"
        How more than two classes are handled: one versus rest, or one versus one with votes as in
        :class:`sklearn.svm.SVC`.
    h : float, default=0.05
        Half the width over which "huber_hinge" is smoothed at its kink.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    dual_coef_, intercept_, kernel_, expansion_, n_features_in_, feature_names_in_
        As in :class:`KernelRegressor`.

    Notes
    -----
    **Cost** n³ flops and 8 n² bytes for squared loss and all classes together, a few times that per
    class for other losses; n c² flops and 8 n c bytes with c landmarks. **Exact?** The minimum is
    reached up to rounding or the tolerance of Newton's method; if ``operator`` is an approximation,
    it is the minimum for the approximate kernel.

    Examples
    --------
    >>> from everyfold import KernelClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(KernelClassifier(gamma=0.5, alpha=0.1).fit(X, y).score(X, y), 2)
    0.99
    """

    def __init__(
        self,
        loss: LabelLoss | Loss = "squared",
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        alpha: ArrayLike = 1.0,
        C: float | None = None,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        multi_class: Literal["ovr", "ovo"] = "ovr",
        h: float = 0.05,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self, X: Matrix, y: Targets = None, sample_weight: ArrayLike | None = None
    ) -> KernelClassifier:
        """Fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            For ``kernel="precomputed"`` the kernel matrix of shape (n_samples, n_samples). Or a
            source of rows (:mod:`everyfold.streams`), which has its own targets; then omit ``y``.
        y : array of shape (n_samples,)
            Class labels, at least two different ones.
        sample_weight : array of shape (n_samples,), optional
            A row with weight 0 is left out.

        Returns
        -------
        self
        """
        X, y = as_rows(X, y)
        if isinstance(X, RowSource):
            self._fit_source(X, y, sample_weight)
            return self
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        labels = self._model().target(y)
        self._fit(X, labels, sample_weight)
        self._decide_by(labels)
        return self

    def keep_source_fit(self, source: RowSource | Matrix, fitted: SourceFit) -> None:
        """See base class."""
        super().keep_source_fit(source, fitted)
        reader = fitted.reader
        assert reader.classes is not None
        self._decide_by(reader.target(reader.classes[:0]))

    def _decide_by(self, labels: Target) -> None:
        assert labels.classes is not None
        self.classes_ = labels.classes
        # A target knows how to decide; its rows are not needed for that.
        self._decoder = labels.emptied()

    def decision_function(self, X: Matrix) -> Array:
        """Decision values f(x) + b.

        One per row for two classes, positive for the second; otherwise one per row and class.
        """
        if is_lazy(X):
            return lazily(self.decision_function, X)  # type: ignore[no-any-return]
        values = self._values(X)
        return self._decoder.decide(values)

    def predict(self, X: Matrix) -> AnyArray:
        """Predict the label of each row of X, which may be a source of rows."""
        if is_lazy(X):
            return lazily(self.predict, X)  # type: ignore[no-any-return]
        values = self._values(X)
        return self._decoder.predict(values)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> Array:
        """Probabilities of the classes, for the logistic loss and ``multi_class="ovr"``.

        For more than two classes, one-versus-rest probabilities are scaled to sum up to 1.
        """
        if is_lazy(X):
            return lazily(self.predict_proba, X)  # type: ignore[no-any-return]
        values = self._values(X)
        return self._decoder.probabilities(values)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Matrix) -> Array:
        """Logarithms of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


def with_fit(
    like: KernelClassifier, fitted: Fitted, kernel: Kernel, labels: Target
) -> KernelClassifier:
    """A classifier with the parameters of another and a fit that was computed elsewhere."""
    new: KernelClassifier = clone(like)
    new._keep(fitted, kernel)
    new._decide_by(labels)
    return new


def decide_together(models: Sequence[object], X: Matrix) -> list[Array] | None:
    """The decision values of classifiers whose fits are kernel expansions on the same rows.

    **Cost** one kernel between the new rows and those of the fits. None if they do not share it.
    """
    fits = [getattr(model, "expansion_", None) for model in models]
    known = [fit for fit in fits if isinstance(fit, KernelExpansion)]
    own = [model for model in models if isinstance(model, KernelClassifier)]
    is_shared = len(known) == len(own) == len(fits) and all(fit.X is known[0].X for fit in known)
    if not is_shared or isinstance(X, RowSource) or is_lazy(X):
        return None
    X = validate_data(own[0], X, accept_sparse="csr", dtype=np.float64, reset=False)
    values = replace(known[0], coef=np.hstack([fit.coef for fit in known]))(X)
    parts = np.split(values, len(known), axis=1)
    pairs = zip(own, parts, strict=True)
    return [model._decoder.decide(part + model.intercept_) for model, part in pairs]


class LSSVC(KernelClassifier):
    """Least-squares support vector classification (Suykens & Vandewalle 1999).

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, fit_intercept, class_weight
        As in :class:`KernelClassifier`; ``alpha`` as in :class:`LSSVR`.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelClassifier`.

    Examples
    --------
    >>> from everyfold import LSSVC
    >>> LSSVC().fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"]).predict([[0.5], [2.5]])
    array(['a', 'b'], dtype='<U1')
    """

    loss = "squared"
    C = None
    multi_class = "ovr"

    def __init__(
        self,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        alpha: ArrayLike = 1.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
    ) -> None:
        keep_parameters(self, locals())


class HuberSVC(KernelClassifier):
    """Support vector classification with the Huberised hinge, a smooth version of the hinge loss.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, fit_intercept, class_weight, multi_class
        As in :class:`KernelClassifier`.
    C : float, default=1.0
        The penalty, as in :class:`sklearn.svm.SVC`: rho = 1/(2 C).
    h : float, default=0.05
        Half the width over which the hinge is smoothed at its kink.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelClassifier`.

    Examples
    --------
    >>> from everyfold import HuberSVC
    >>> HuberSVC().fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"]).predict([[0.5], [2.5]])
    array(['a', 'b'], dtype='<U1')
    """

    loss = "huber_hinge"
    alpha = None

    def __init__(
        self,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        C: float = 1.0,
        h: float = 0.05,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        multi_class: Literal["ovr", "ovo"] = "ovr",
    ) -> None:
        keep_parameters(self, locals())


class KernelLogisticClassifier(KernelClassifier):
    """Kernel logistic regression, with probabilities.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, fit_intercept, class_weight, multi_class
        As in :class:`KernelClassifier`.
    C : float, default=1.0
        The penalty, as in :class:`sklearn.svm.SVC`: rho = 1/(2 C).

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelClassifier`.

    Examples
    --------
    >>> from everyfold import KernelLogisticClassifier
    >>> model = KernelLogisticClassifier(C=10.0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> model.predict_proba([[0.0], [3.0]]).round(1)
    array([[0.9, 0.1],
           [0.1, 0.9]])
    """

    loss = "logistic"
    alpha = None

    def __init__(
        self,
        *,
        kernel: KernelLike = "rbf",
        gamma: Gamma = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: Params | None = None,
        operator: OperatorChoice = "auto",
        C: float = 1.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        multi_class: Literal["ovr", "ovo"] = "ovr",
    ) -> None:
        keep_parameters(self, locals())
