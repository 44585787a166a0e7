"""The library's own estimators: kernel machines with scikit-learn's manners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from everyfold.kernels import Kernel, Linear, check_precomputed, depends_on_rows, find_kernel
from everyfold.losses import Loss, find_loss
from everyfold.operators import Dense, KernelOperator, PerFold, Primal, Structure
from everyfold.operators.base import Array
from everyfold.operators.threads import blas_threads
from everyfold.plan import check_memory
from everyfold.solve import Problem, RidgeScaling, solve
from everyfold.targets import Labels, Numbers, Target, decode

ClassWeight = dict[Any, float] | Literal["balanced"] | None


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as users name it; resolved only when the training rows are known."""

    kernel: Any
    gamma: Any = None
    degree: Any = 3
    coef0: Any = 1.0
    params: Any = None
    on_matrices: bool = False

    def resolve(self, X: Any) -> Kernel:
        """The kernel for these training rows."""
        return find_kernel(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.params,
            X=X,
            on_matrices=self.on_matrices,
        )

    @property
    def depends_on_rows(self) -> bool:
        """Whether each training set has a kernel of its own."""
        return self.kernel in ("rbf", "laplacian", "poly", "polynomial") and depends_on_rows(
            self.gamma
        )

    @property
    def is_precomputed(self) -> bool:
        """Whether X is the kernel matrix itself."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"


@dataclass(frozen=True)
class Model:
    """What an estimator asks for, in the library's own words.

    ``ridges`` has one entry, or one a target. ``operator`` is "auto", "dense" or a structure.
    """

    choice: KernelChoice
    loss: Loss
    ridges: tuple[float, ...]
    intercept: bool
    is_classifier: bool
    operator: Any = "auto"
    class_weight: ClassWeight = None
    ridge_scaling: RidgeScaling = "sum"

    def target(self, y: Any) -> Target:
        """Read y."""
        return Labels.read(y) if self.is_classifier else Numbers.read(y)

    def problem(self, target: Target, sample_weight: Array) -> Problem:
        """The problem of these targets."""
        w, balance = sample_weight, None
        if self.class_weight is not None:
            assert isinstance(target, Labels)
            if self.class_weight == "balanced":
                balance = target.codes
            else:
                w = w * _class_factors(self.class_weight, target)[target.codes]
        return Problem(target.columns, w, self.loss, self.intercept, self.ridge_scaling, balance)

    def structure(self, kernel: Kernel, shape: tuple[int, int]) -> Structure:
        """The structure the kernel matrix gets: what was asked for, or the cheapest exact one."""
        if isinstance(self.operator, Structure):
            return self.operator
        if self.operator not in ("auto", "dense"):
            raise ValueError(
                f"operator={self.operator!r} is not known; use 'auto', 'dense' or Dense()"
            )
        n_rows, n_features = shape
        if self.operator == "auto" and isinstance(kernel, Linear) and n_features < n_rows:
            return Primal()
        check_memory(n_rows)
        return Dense()

    def structure_to_fit(self, kernel: Kernel, shape: tuple[int, int]) -> Structure:
        """The structure of the model that is kept: not every one can predict new rows."""
        asked = self.structure(kernel, shape)
        kept = asked.to_fit()
        if kept is not asked and kept.rank(*shape) == shape[0]:
            check_memory(shape[0])
        return kept

    def bind(self, X: Any) -> KernelOperator:
        """The operator of the rows of X, one for all folds or one for each."""
        if self.choice.is_precomputed:
            X = check_precomputed(X)
        kernel = self.choice.resolve(X)
        structure = self.structure(kernel, X.shape)
        if self.choice.depends_on_rows:
            return PerFold(X, structure, self.choice.resolve)
        return structure.bind(kernel, X)

    def columns_of_ridges(self, q: int) -> list[tuple[float, list[int]]]:
        """The distinct ridges, each with the target columns it belongs to."""
        ridges = self.ridges if len(self.ridges) > 1 else self.ridges * q
        if len(ridges) != q:
            raise ValueError(
                f"alpha has {len(ridges)} entries, but y has {q} targets; pass one number or one "
                "for each target"
            )
        groups: dict[float, list[int]] = {}
        for column, ridge in enumerate(ridges):
            groups.setdefault(ridge, []).append(column)
        return list(groups.items())


def _class_factors(class_weight: dict[Any, float], target: Labels) -> Array:
    unknown = [label for label in class_weight if label not in set(target.classes.tolist())]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown}, which are not labels of y ({target.classes.tolist()})"
        )
    return np.array([float(class_weight.get(label, 1.0)) for label in target.classes.tolist()])


def read_ridge(alpha: Any, name: str = "alpha") -> tuple[float, ...]:
    """Check ridges: finite numbers, not negative."""
    ridges = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if ridges.ndim > 1 or not np.isfinite(ridges).all() or (ridges < 0.0).any():
        raise ValueError(
            f"{name}={alpha!r} is not allowed: a ridge must be finite and >= 0 (and > 0 unless the "
            "kernel matrix is well conditioned)"
        )
    return tuple(float(ridge) for ridge in ridges)


def read_penalty(C: Any) -> tuple[float, ...]:
    """The ridge of a C: rho = 1/(2 C)."""
    if not (isinstance(C, Real) and 0.0 < float(C) < math.inf):
        raise ValueError(f"C={C!r} is not allowed: it must be a finite number > 0")
    return (1.0 / (2.0 * float(C)),)


def read_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Check sample weights: one a row, finite, not negative, not all 0."""
    if sample_weight is None:
        return np.ones(n)
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(f"sample_weight has shape {w.shape}, expected one weight a row: ({n},)")
    if not np.isfinite(w).all():
        raise ValueError("sample_weight contains NaN or infinity; every weight must be finite")
    if (w < 0.0).any():
        raise ValueError(
            f"sample_weight has negative entries (smallest {w.min():.3g}); use weights >= 0, where "
            "0 leaves a row out"
        )
    if not w.any():
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    return w


class _KernelMachine(BaseEstimator):  # type: ignore[misc]
    """What the regressors and the classifiers share."""

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    kernel_params: Any
    operator: Any
    alpha: Any
    C: Any
    fit_intercept: bool
    loss: Any
    class_weight: ClassWeight = None

    def _model(self) -> Model:
        """The estimator in the library's own words; raises what is wrong with its parameters."""
        loss = find_loss(self.loss)
        if not loss.has_constant_curvature:
            raise ValueError(
                f"loss={self.loss!r} has no closed form and is not available; use loss='squared'"
            )
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
        )

    def _fit(self, X: Any, target: Target, sample_weight: ArrayLike | None) -> None:
        model = self._model()
        problem = model.problem(target, read_weights(sample_weight, X.shape[0]))
        # A kernel chosen by the rows is, for a single fit, a kernel like any other.
        kernel = model.choice.resolve(X)
        if model.choice.is_precomputed:
            X = check_precomputed(X)
        q = target.columns.shape[1]
        with blas_threads(X.shape[0]):
            operator = model.structure_to_fit(kernel, X.shape).bind(kernel, X)
            fits = [
                (columns, solve(problem, operator, ridge))
                for ridge, columns in model.columns_of_ridges(q)
            ]
        coef = np.empty((fits[0][1].solution.coef.shape[0], q))
        intercept = np.empty(q)
        for columns, fit in fits:
            coef[:, columns] = fit.solution.coef[:, columns]
            intercept[columns] = fit.solution.intercept[columns]
        self.expansion_ = operator.expand(coef)
        self.dual_coef_ = coef
        self.intercept_ = intercept
        self.kernel_ = kernel

    def _values(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        values: Array = self.expansion_(X) + self.intercept_
        return values

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of a structure as ``operator__steps`` and the like.

        Structures are immutable, so that ``operator`` is replaced.
        """
        nested = {name: params.pop(name) for name in list(params) if name.startswith("operator__")}
        super().set_params(**params)
        if nested:
            changes = {name.removeprefix("operator__"): value for name, value in nested.items()}
            if not isinstance(self.operator, Structure):
                raise ValueError(f"operator={self.operator!r} has no parameters {sorted(changes)}")
            self.operator = self.operator.with_params(**changes)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


class KernelRegressor(RegressorMixin, _KernelMachine):  # type: ignore[misc]
    r"""Kernel regression: minimise :math:`\sum_i w_i V(y_i, f(x_i) + b) + \rho\|f\|^2`.

    Parameters
    ----------
    loss : {"squared"} or Loss, default="squared"
        The loss V. "squared" is kernel ridge regression (with an intercept, LS-SVM regression).
    kernel : {"rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed"} or callable
        The kernel, named as in scikit-learn; ``kernel="precomputed"`` takes the kernel matrix as X.
    gamma : float, "scale", "auto" or None, default=None
        Width of the rbf, laplacian and polynomial kernels; None is 1/n_features. "scale" depends on
        the training rows, so that every fold of a cross-validation has a kernel of its own.
    degree, coef0 : int and float
        Of the polynomial kernel.
    kernel_params : dict, optional
        Keyword arguments of a callable kernel.
    operator : {"auto", "dense"} or Structure, default="auto"
        How the kernel matrix is represented; "auto" is exact: the matrix itself, or the features
        where the kernel is linear and they are fewer than the rows.
    alpha : float or array of shape (n_targets,), default=1.0
        The ridge rho, as in :class:`sklearn.kernel_ridge.KernelRidge`.
    C : float, optional
        The ridge the other way round, as in :class:`sklearn.svm.SVR`: rho = 1/(2 C). Overrides
        ``alpha``.
    fit_intercept : bool, default=True
        Whether to add a free constant b.

    Attributes
    ----------
    dual_coef_ : array of shape (n_samples, n_targets)
        Coefficients of the kernel expansion, or of the features where the kernel is linear and the
        primal form was taken.
    intercept_ : array of shape (n_targets,)
    kernel_ : Kernel
        The kernel with its parameters resolved.
    expansion_ : Expansion
        The fitted function without the intercept.
    n_features_in_ : int
    feature_names_in_ : array of str
        Present when X has string column names.

    Examples
    --------
    >>> from everyfold import KernelRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(KernelRegressor(gamma=10.0, alpha=0.1).fit(X, y).score(X, y), 2)
    0.58
    """

    def __init__(
        self,
        loss: Any = "squared",
        *,
        kernel: Any = "rbf",
        gamma: Any = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: dict[str, Any] | None = None,
        operator: Any = "auto",
        alpha: Any = 1.0,
        C: float | None = None,
        fit_intercept: bool = True,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.operator = operator
        self.alpha = alpha
        self.C = C
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> KernelRegressor:
        """Fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            Or the kernel matrix, (n_samples, n_samples), for ``kernel="precomputed"``.
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional
            Weight 0 is the same as leaving the row out.

        Returns
        -------
        self
        """
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True, y_numeric=True
        )
        self._is_flat = np.ndim(y) == 1
        self._fit(X, Numbers.read(y), sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """Predict the rows of X (or, precomputed, from the kernel with the training rows)."""
        values = self._values(X)
        return values[:, 0] if self._is_flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class KernelClassifier(ClassifierMixin, _KernelMachine):  # type: ignore[misc]
    r"""Kernel classification: minimise :math:`\sum_i w_i V(y_i, f(x_i) + b) + \rho\|f\|^2`, y = ±1.

    More than two classes are one-versus-rest columns that share one factorisation.

    Parameters
    ----------
    loss : {"squared"} or Loss, default="squared"
        The loss V. "squared" is the least-squares SVM.
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, C, fit_intercept
        As in :class:`KernelRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class; "balanced" is inverse to the class frequencies.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    dual_coef_, intercept_, kernel_, expansion_, n_features_in_, feature_names_in_
        As in :class:`KernelRegressor`.

    Examples
    --------
    >>> from everyfold import KernelClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(KernelClassifier(gamma=0.5, alpha=0.1).fit(X, y).score(X, y), 2)
    0.98
    """

    def __init__(
        self,
        loss: Any = "squared",
        *,
        kernel: Any = "rbf",
        gamma: Any = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: dict[str, Any] | None = None,
        operator: Any = "auto",
        alpha: Any = 1.0,
        C: float | None = None,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.operator = operator
        self.alpha = alpha
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> KernelClassifier:
        """Fit.

        Parameters
        ----------
        X : {array, CSR matrix, data frame} of shape (n_samples, n_features)
            Or the kernel matrix, (n_samples, n_samples), for ``kernel="precomputed"``.
        y : array of shape (n_samples,)
            Class labels, at least two different ones.
        sample_weight : array of shape (n_samples,), optional
            Weight 0 is the same as leaving the row out.

        Returns
        -------
        self
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        labels = Labels.read(y)
        self._fit(X, labels, sample_weight)
        self.classes_ = labels.classes
        return self

    def decision_function(self, X: Any) -> Array:
        """Values f(x) + b: (rows,) for two classes (positive is the second), else one a class."""
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the label of each row of X."""
        values = self._values(X)
        return decode(self.classes_, values)


class LSSVR(KernelRegressor):
    """Least-squares support vector regression: kernel ridge regression with an intercept.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, fit_intercept
        As in :class:`KernelRegressor`. ``alpha`` is the mu of Suykens & Vandewalle's dual system,
        the inverse of their gamma.

    Examples
    --------
    >>> from everyfold import LSSVR
    >>> line = LSSVR(kernel="linear", alpha=1e-8).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> line.predict([[3.0]])
    array([7.])
    """

    loss = "squared"
    C = None

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        gamma: Any = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: dict[str, Any] | None = None,
        operator: Any = "auto",
        alpha: Any = 1.0,
        fit_intercept: bool = True,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.operator = operator
        self.alpha = alpha
        self.fit_intercept = fit_intercept


class LSSVC(KernelClassifier):
    """Least-squares support vector classification (Suykens & Vandewalle 1999).

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params, operator, alpha, fit_intercept, class_weight
        As in :class:`KernelClassifier`; ``alpha`` as in :class:`LSSVR`.

    Examples
    --------
    >>> from everyfold import LSSVC
    >>> LSSVC().fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"]).predict([[0.5], [2.5]])
    array(['a', 'b'], dtype='<U1')
    """

    loss = "squared"
    C = None

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        gamma: Any = None,
        degree: int = 3,
        coef0: float = 1.0,
        kernel_params: dict[str, Any] | None = None,
        operator: Any = "auto",
        alpha: Any = 1.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.operator = operator
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
