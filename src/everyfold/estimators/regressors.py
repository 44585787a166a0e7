"""Kernel regression: the general estimator and its named special cases.

:class:`KernelRegressor` takes any loss of numbers. The others fix the loss, so that they have no
parameters that do not concern them; scikit-learn asks for a full signature in each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from everyfold._typing import Array, Matrix, NumberLoss, Params, Targets
from everyfold.estimators.base import KernelMachine, SourceFit, keep_parameters
from everyfold.estimators.targets import Numbers
from everyfold.io import RowSource
from everyfold.io.base import is_lazy
from everyfold.io.conversion import as_rows
from everyfold.io.dask import lazily
from everyfold.kernels import Gamma, KernelLike
from everyfold.losses import Loss
from everyfold.operators.base import OperatorChoice


class KernelRegressor(RegressorMixin, KernelMachine):  # type: ignore[misc]
    r"""Kernel regression: minimise :math:`\sum_i w_i V(y_i, f(x_i) + b) + \rho\|f\|^2`.

    Parameters
    ----------
    loss : {"squared", "quadratic_epsilon", "smooth_epsilon"} or Loss, default="squared"
        The loss V. "squared" is kernel ridge regression (with an intercept: LS-SVM regression);
        "quadratic_epsilon" ignores residuals up to ``epsilon`` and squares the excess;
        "smooth_epsilon" is the loss of the SVR, smoothed over a width ``h`` at its kinks.
    kernel : {"rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed"} or callable
        The kernel, named as in scikit-learn; with ``kernel="precomputed"`` X is the kernel matrix.
    gamma : float, "scale", "auto", None or array of shape (n_features,), default=None
        The inverse width of the rbf and laplacian kernels, and the factor of the polynomial kernel;
        None means 1/n_features. "scale" depends on the training rows, so that every fold of a
        cross-validation has its own kernel. An array has one number for each feature.
    degree, coef0 : int and float
        Parameters of the polynomial kernel.
    kernel_params : dict, optional
        Keyword arguments of a callable kernel.
    operator : {"auto", "dense"} or Structure, default="auto"
        How the kernel matrix is represented. "auto" is exact: it uses the matrix itself, or the
        features if the kernel is linear and there are fewer features than rows. If the matrix does
        not fit in memory, it is replaced by a low-rank approximation, with a warning.
    alpha : float or array of shape (n_targets,), default=1.0
        The ridge rho, as in :class:`sklearn.kernel_ridge.KernelRidge`.
    C : float, optional
        The inverse of the ridge, as in :class:`sklearn.svm.SVR`: rho = 1/(2 C). It overrides
        ``alpha``.
    fit_intercept : bool, default=True
        Whether to add a free constant b.
    epsilon, h : float, default=0.1 and 0.05
        Parameters of the losses that have them.

    Attributes
    ----------
    dual_coef_ : array of shape (n_samples, n_targets)
        Coefficients of the kernel expansion; with ``operator=Nystrom(...)`` one per landmark, and
        one per feature if the kernel is linear and the primal form was used.
    intercept_ : array of shape (n_targets,)
    kernel_ : Kernel
        The kernel with the values of its parameters.
    expansion_ : Expansion
        The fitted function without the intercept.
    n_features_in_ : int
    feature_names_in_ : array of str
        Present if X has string column names.

    Notes
    -----
    **Cost** n³ flops and 8 n² bytes for squared loss, a few times that for other losses; n c² flops
    and 8 n c bytes with c landmarks. **Exact?** The minimum is reached up to rounding or the
    tolerance of Newton's method; if ``operator`` is an approximation, it is the minimum for the
    approximate kernel.

    Examples
    --------
    >>> from everyfold import KernelRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(KernelRegressor(gamma=10.0, alpha=0.1).fit(X, y).score(X, y), 2)
    0.61
    """

    def __init__(
        self,
        loss: NumberLoss | Loss = "squared",
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
        epsilon: float = 0.1,
        h: float = 0.05,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self, X: Matrix, y: Targets = None, sample_weight: ArrayLike | None = None
    ) -> KernelRegressor:
        """Fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            For ``kernel="precomputed"`` the kernel matrix of shape (n_samples, n_samples). Or a
            source of rows (:mod:`everyfold.streams`), which has its own targets; then omit ``y``.
        y : array of shape (n_samples,) or (n_samples, n_targets)
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
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True
        )
        self._is_flat = np.ndim(y) == 1
        self._fit(X, Numbers.read(y), sample_weight)
        return self

    def keep_source_fit(self, source: RowSource | Matrix, fitted: SourceFit) -> None:
        """See base class."""
        super().keep_source_fit(source, fitted)
        self._is_flat = fitted.is_flat

    def predict(self, X: Matrix) -> Array:
        """Predict the rows of X, which may be a source of rows that is read in blocks.

        For ``kernel="precomputed"``, X is the kernel between the new rows and the training rows.
        """
        if is_lazy(X):
            return lazily(self.predict, X)  # type: ignore[no-any-return]
        values = self._values(X)
        return values[:, 0] if self._is_flat else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class LSSVR(KernelRegressor):
    """Least-squares support vector regression: kernel ridge regression with an intercept.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, fit_intercept
        As in :class:`KernelRegressor`. ``alpha`` is mu in the dual system of Suykens & Vandewalle,
        the inverse of their gamma.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelRegressor`.

    Examples
    --------
    >>> from everyfold import LSSVR
    >>> line = LSSVR(kernel="linear", alpha=1e-8).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> line.predict([[3.0]]).round(6)
    array([7.])
    """

    loss = "squared"
    C = None

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
    ) -> None:
        keep_parameters(self, locals())


class QuadraticSVR(KernelRegressor):
    """Support vector regression with a squared ε-insensitive loss.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, fit_intercept
        As in :class:`KernelRegressor`.
    C : float, default=1.0
        The penalty, as in :class:`sklearn.svm.SVR`: rho = 1/(2 C).
    epsilon : float, default=0.1
        Residuals up to this size have no loss.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`KernelRegressor`.

    Examples
    --------
    >>> from everyfold import QuadraticSVR
    >>> model = QuadraticSVR(kernel="linear", C=1e6, epsilon=0.0)
    >>> model.fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).predict([[3.0]]).round(3)
    array([7.])
    """

    loss = "quadratic_epsilon"
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
        epsilon: float = 0.1,
        fit_intercept: bool = True,
    ) -> None:
        keep_parameters(self, locals())
