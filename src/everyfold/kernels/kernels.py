r"""Kernels: functions k(x, x') of two rows, and their matrices.

Every kernel is an elementwise map of a *base matrix* that is free of hyper-parameters,

.. math:: K_{ij} = \phi(B_{ij}),

so that a search computes squared distances once and pays one elementwise pass for every further
gamma: kernels with the same `Kernel.base` share one ``base_matrix``. Rows may be dense or CSR, in
float32 or float64; the arithmetic is float64 throughout. Inputs are expected to be validated.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from everyfold.kernels.distances import (
    Array,
    Rows,
    count_rows,
    decay,
    dense,
    in_double,
    is_sparse,
    manhattan_distances,
    normalised,
    operands,
    product,
    raise_to,
    room_for,
    row_blocks,
    squared_distances,
    squared_norms,
    variance,
)

__all__ = [
    "RBF",
    "Cosine",
    "Custom",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "check_precomputed",
    "depends_on_rows",
    "find_kernel",
    "resolve_gamma",
]

Gamma: TypeAlias = float | Literal["scale", "auto"] | None

# Largest asymmetry of a kernel matrix, relative to its largest entry, that passes for rounding.
SYMMETRY_TOLERANCE = 1e-8


class Kernel(ABC):
    r"""A kernel k(x, x'), as an elementwise map of a base matrix.

    Attributes
    ----------
    base : {"squared_distance", "manhattan", "inner", "cosine", "precomputed"} or None
        What `base_matrix` holds. Kernels of one base may share the matrix; None is never shared.
    """

    base: ClassVar[str | None]
    is_semidefinite: ClassVar[bool] = True
    """Whether every matrix of the kernel is known to be positive semi-definite."""

    @abstractmethod
    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """The matrix B between the rows of X and Y, exactly symmetric if Y is None."""

    @abstractmethod
    def base_diagonal(self, X: Rows) -> Array:
        """The diagonal of ``base_matrix(X)`` without the matrix."""

    @abstractmethod
    def from_base(self, B: Array, out: NDArray[Any] | None = None) -> Array:
        """The map φ(B), elementwise.

        Parameters
        ----------
        B : ndarray
            A base matrix, or any part of one.
        out : ndarray, optional
            Where to write, possibly B itself; its dtype is kept. By default a new float64 array.
        """

    def __call__(self, X: Rows, Y: Rows | None = None) -> Array:
        """The kernel matrix between the rows of X and Y, a new array."""
        B = self.base_matrix(X, Y)
        return self.from_base(B, out=B)

    def diagonal(self, X: Rows) -> Array:
        """The values k(x, x) for the rows x of X. Cost: O(n) memory."""
        return self.from_base(self.base_diagonal(X))

    def anchors(self, taken: Any, rows: NDArray[np.intp]) -> Any:
        """What to pass as Y for some of the training rows: the rows ``taken``, of numbers ``rows``.

        So ``kernel(X, kernel.anchors(X[rows], rows))`` is the kernel between all rows and these.
        """
        return taken


class _Plain(Kernel):
    """A kernel that is its own base matrix."""

    def from_base(self, B: Array, out: NDArray[Any] | None = None) -> Array:
        """B itself, copied unless ``out`` is B."""
        out = room_for(B, out)
        if out is not B:
            np.copyto(out, B, casting="same_kind")
        return out


@dataclass(frozen=True)
class RBF(Kernel):
    r"""The Gaussian kernel exp(−gamma ‖x − x'‖²).

    Parameters
    ----------
    gamma : float
        Inverse squared width, >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import RBF
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> RBF(gamma=0.5)(X).round(3)
    array([[1.   , 0.607, 0.011],
           [0.607, 1.   , 0.135],
           [0.011, 0.135, 1.   ]])

    One base matrix serves all gammas:

    >>> B = RBF(gamma=0.5).base_matrix(X)
    >>> RBF(gamma=2.0).from_base(B)[0].round(3)
    array([1.   , 0.135, 0.   ])
    """

    gamma: float

    base: ClassVar[str | None] = "squared_distance"

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """Squared Euclidean distances."""
        return squared_distances(*operands(X, Y))

    def base_diagonal(self, X: Rows) -> Array:
        """Zeros."""
        return np.zeros(np.shape(X)[0])

    def from_base(self, B: Array, out: NDArray[Any] | None = None) -> Array:
        """exp(−gamma B)."""
        return decay(B, self.gamma, out)


@dataclass(frozen=True)
class Laplacian(Kernel):
    r"""The Laplacian kernel exp(−gamma ‖x − x'‖₁).

    Parameters
    ----------
    gamma : float
        Inverse width, >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Laplacian
    >>> Laplacian(gamma=1.0)(np.array([[0.0, 0.0], [1.0, 1.0]]))[0].round(3)
    array([1.   , 0.135])
    """

    gamma: float

    base: ClassVar[str | None] = "manhattan"

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """Manhattan distances."""
        return manhattan_distances(*operands(X, Y))

    def base_diagonal(self, X: Rows) -> Array:
        """Zeros."""
        return np.zeros(np.shape(X)[0])

    def from_base(self, B: Array, out: NDArray[Any] | None = None) -> Array:
        """exp(−gamma B)."""
        return decay(B, self.gamma, out)


@dataclass(frozen=True)
class Polynomial(Kernel):
    r"""The polynomial kernel (gamma ⟨x, x'⟩ + coef0)^degree.

    Parameters
    ----------
    degree : int
        Power, >= 0.
    gamma : float
        Factor of the inner product, >= 0.
    coef0 : float
        Constant added to it, >= 0: with a negative one the kernel is not positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, coef0=1.0)(np.array([[1.0], [2.0]]))
    array([[ 4.,  9.],
           [ 9., 25.]])
    """

    degree: int
    gamma: float
    coef0: float

    base: ClassVar[str | None] = "inner"

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        _check_degree(self.degree)
        _check_coef0(self.coef0)

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """Inner products."""
        return product(*operands(X, Y))

    def base_diagonal(self, X: Rows) -> Array:
        """Squared norms."""
        return squared_norms(operands(X, None)[0])

    def from_base(self, B: Array, out: NDArray[Any] | None = None) -> Array:
        """(gamma B + coef0)^degree."""
        out = room_for(B, out)
        for rows in row_blocks(B):
            block = out[rows]
            np.multiply(B[rows], self.gamma, out=block)
            block += self.coef0
            raise_to(block, int(self.degree))
        return out


@dataclass(frozen=True)
class Linear(_Plain):
    """The linear kernel ⟨x, x'⟩.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Linear
    >>> Linear()(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 5., 11.],
           [11., 25.]])
    """

    base: ClassVar[str | None] = "inner"

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """Inner products."""
        return product(*operands(X, Y))

    def base_diagonal(self, X: Rows) -> Array:
        """Squared norms."""
        return squared_norms(operands(X, None)[0])


@dataclass(frozen=True)
class Cosine(_Plain):
    """The cosine kernel ⟨x, x'⟩ / (‖x‖ ‖x'‖), 0 for a row of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Cosine
    >>> Cosine()(np.array([[1.0, 0.0], [3.0, 4.0]]))
    array([[1. , 0.6],
           [0.6, 1. ]])
    """

    base: ClassVar[str | None] = "cosine"

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """Inner products of normalised rows."""
        rows, others = operands(X, Y)
        unit = normalised(rows)
        return product(unit, unit if others is rows else normalised(others))

    def base_diagonal(self, X: Rows) -> Array:
        """Ones, and zeros for rows of zeros."""
        return np.sign(squared_norms(operands(X, None)[0]))


@dataclass(frozen=True)
class Precomputed(_Plain):
    """A kernel whose matrix is given in place of the rows.

    X is K between the rows in question and the training rows, as in scikit-learn. Y is ignored,
    unless it is an array of the numbers of some training rows (`anchors`): then their columns are
    meant. Pass the training matrix through `check_precomputed` once; the methods here do not check
    it.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Precomputed
    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> Precomputed().diagonal(K)
    array([2., 3.])
    >>> Precomputed()(K, np.array([1]))
    array([[1.],
           [3.]])
    """

    base: ClassVar[str | None] = "precomputed"
    is_semidefinite: ClassVar[bool] = False

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """X, or some of its columns, as float64; without a copy where it is that already."""
        chosen: Any = X
        if isinstance(Y, np.ndarray) and Y.ndim == 1:
            chosen = chosen[:, Y]
        return np.asarray(dense(chosen), dtype=np.float64)

    def anchors(self, taken: Any, rows: NDArray[np.intp]) -> Any:
        """See base class: rows are known by their columns."""
        return rows

    def base_diagonal(self, X: Rows) -> Array:
        """The diagonal of X."""
        n_rows, n_columns = np.shape(X)
        if n_rows != n_columns:
            raise ValueError(
                f"X with kernel='precomputed' has shape {np.shape(X)} and so no k(x, x) on its "
                "diagonal; pass the square matrix between the rows and themselves."
            )
        return np.array(X.diagonal(), dtype=np.float64)

    def __call__(self, X: Rows, Y: Rows | None = None) -> Array:
        """A copy of X, so that what is done to it leaves the caller's matrix alone."""
        return self.from_base(self.base_matrix(X, Y))


@dataclass(frozen=True)
class Custom(_Plain):
    """Any function as a kernel.

    Parameters
    ----------
    function : callable
        ``function(x, x', **params)`` of two rows, a number, as `sklearn.kernel_ridge.KernelRidge`
        calls it.
    params : mapping, optional
        Keyword arguments of the function.
    on_matrices : bool, default=False
        The function takes two matrices of rows and returns the kernel matrix between them, as
        `sklearn.svm.SVC` calls it.

    Notes
    -----
    A function of two rows is called n(n + 1)/2 times from Python: about 1 µs times n² at the least.
    On matrices, the result for one set of rows must be symmetric to rounding; it is then made so
    exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Custom
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> Custom(np.dot)(X)
    array([[ 5., 11.],
           [11., 25.]])
    >>> Custom(lambda X, Y: X @ Y.T, on_matrices=True).diagonal(X)
    array([ 5., 25.])
    """

    # Neither a mapping nor every callable can be hashed; equality still compares both.
    function: Callable[..., Any] = field(hash=False)
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    on_matrices: bool = False

    base: ClassVar[str | None] = None
    is_semidefinite: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(
                f"function={self.function!r} is not callable; give a function k(x, x') of two "
                "rows, or of two matrices with on_matrices=True."
            )
        object.__setattr__(self, "params", dict(self.params))

    def base_matrix(self, X: Rows, Y: Rows | None = None) -> Array:
        """The kernel matrix itself."""
        X = in_double(X)
        if Y is None:
            return _symmetrised(self._evaluate(X, X), owner=self._owner)
        return _finite(self._evaluate(X, in_double(Y)), owner=self._owner)

    def base_diagonal(self, X: Rows) -> Array:
        """The values k(x, x), row by row."""
        if not self.on_matrices:
            X = in_double(X)
            pairs = (X[[i], :] if is_sparse(X) else X[i] for i in range(X.shape[0]))
            return np.array([self.function(x, x, **self.params) for x in pairs], dtype=np.float64)
        blocks = [in_double(X[i : i + 64]) for i in range(0, X.shape[0], 64)]
        return np.concatenate([self._evaluate(rows, rows).diagonal() for rows in blocks])

    def _evaluate(self, X: Any, Y: Any) -> Array:
        if self.on_matrices:
            K = self.function(X, Y, **self.params)
        else:
            K = pairwise_kernels(X, Y, metric=self.function, filter_params=True, **self.params)
        # A copy, since a function on matrices may hand out an array it keeps.
        K = np.array(dense(K), dtype=np.float64)
        n_rows, n_others = count_rows(X), count_rows(Y)
        if K.shape != (n_rows, n_others):
            raise ValueError(
                f"{self._owner} returned shape {K.shape} for {n_rows} and {n_others} rows; "
                "with on_matrices=True it must return one value per pair of rows."
            )
        return K

    @property
    def _owner(self) -> str:
        return f"kernel={self.function!r}"


PLAIN: dict[str, type[Kernel]] = {
    "linear": Linear,
    "cosine": Cosine,
    "precomputed": Precomputed,
}
WITH_GAMMA: dict[str, type[RBF] | type[Laplacian]] = {"rbf": RBF, "laplacian": Laplacian}
NAMES = ("rbf", "laplacian", "polynomial", "poly", *PLAIN)

REFUSED = {
    "sigmoid": (
        "tanh(gamma <x, x'> + coef0) is not positive semi-definite, and the criteria need a kernel "
        "that is. Use 'rbf', or 'polynomial' for inner products."
    ),
    "additive_chi2": (
        "it is only conditionally positive definite, and the criteria need a positive "
        "semi-definite kernel. Pass sklearn.metrics.pairwise.chi2_kernel(X) with "
        "kernel='precomputed' instead."
    ),
    "chi2": (
        "it is not built in, as it is defined for non-negative features only. Pass "
        "sklearn.metrics.pairwise.chi2_kernel(X) with kernel='precomputed', or a callable."
    ),
}


def find_kernel(
    kernel: str | Kernel | Callable[..., Any],
    *,
    gamma: Gamma = None,
    degree: int = 3,
    coef0: float = 1.0,
    kernel_params: Mapping[str, Any] | None = None,
    X: Rows | None = None,
    on_matrices: bool = False,
) -> Kernel:
    """The kernel of a name, with scikit-learn's parameters.

    Parameters
    ----------
    kernel : str, callable or Kernel
        One of "rbf", "laplacian", "polynomial" (or "poly"), "linear", "cosine" and "precomputed"; a
        function of two rows; or a `Kernel`, returned as it is.
    gamma : float, "scale", "auto" or None
        As in `resolve_gamma`; only kernels that have a gamma look at it.
    degree, coef0
        Of the polynomial kernel.
    kernel_params : mapping, optional
        Keyword arguments of a callable; ignored for a name, as in scikit-learn.
    X : {ndarray, CSR} of shape (n, n_features), optional
        The training rows, needed to resolve a gamma that is not a number.
    on_matrices : bool, default=False
        Whether a callable takes matrices of rows, as in `Custom`. scikit-learn's Gaussian process
        kernels are known to.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        If the kernel is unknown or not positive semi-definite, or a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import find_kernel
    >>> find_kernel("rbf", X=np.ones((10, 4)))
    RBF(gamma=0.25)
    >>> find_kernel("rfb")
    Traceback (most recent call last):
    ValueError: kernel='rfb' is not known; did you mean 'rbf'? ...
    """
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return Custom(kernel, kernel_params or {}, on_matrices or _takes_matrices(kernel))
    if kernel in PLAIN:
        return PLAIN[kernel]()
    if kernel in WITH_GAMMA:
        return WITH_GAMMA[kernel](resolve_gamma(gamma, X))
    if kernel in ("polynomial", "poly"):
        return Polynomial(degree, resolve_gamma(gamma, X), coef0)
    raise ValueError(f"kernel={kernel!r} {_objection(kernel)}")


def resolve_gamma(gamma: Gamma, X: Rows | None = None) -> float:
    """The number a gamma stands for.

    Parameters
    ----------
    gamma : float, "scale", "auto" or None
        None and "auto" are 1/n_features; "scale" is 1/(n_features · var(X)) over all entries of X,
        or 1 if they are all equal, as in `sklearn.svm.SVC`.
    X : {ndarray, CSR} of shape (n, n_features), optional
        The training rows; not needed for a number.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import resolve_gamma
    >>> resolve_gamma("scale", np.array([[0.0, 4.0], [4.0, 0.0]]))
    0.125
    """
    if gamma is not None and not isinstance(gamma, str):
        _check_gamma(gamma)
        return float(gamma)
    if gamma not in (None, "scale", "auto"):
        raise ValueError(
            f"gamma={gamma!r} is not known; it must be 'scale', 'auto', None or a number >= 0."
        )
    if X is None:
        raise ValueError(
            f"gamma={gamma!r} depends on the data; pass the training rows as X, or a number."
        )
    n_features = np.shape(X)[1]
    spread = variance(X) if gamma == "scale" else 1.0
    return 1.0 / (n_features * spread) if spread > 0 else 1.0


def depends_on_rows(gamma: Gamma) -> bool:
    """Whether a gamma depends on which rows are trained on, so that every fold has its own kernel.

    Examples
    --------
    >>> from everyfold.kernels import depends_on_rows
    >>> depends_on_rows("scale"), depends_on_rows("auto"), depends_on_rows(0.1)
    (True, False, False)
    """
    return isinstance(gamma, str) and gamma == "scale"


def check_precomputed(K: Rows) -> Array:
    """A kernel matrix given by the user, checked and exactly symmetric.

    Parameters
    ----------
    K : {ndarray, CSR} of shape (n, n)
        Kernel matrix of the training rows.

    Returns
    -------
    ndarray of shape (n, n)
        K itself where it is exactly symmetric and float64 already, else (K + Kᵀ)/2.

    Raises
    ------
    ValueError
        If K is not square, not finite, or asymmetric by more than 1e-8 of its largest entry.

    Notes
    -----
    Negative eigenvalues are not looked for here. Cost: O(n²) time, no further n × n memory where
    nothing is to be averaged.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import check_precomputed
    >>> check_precomputed(np.array([[1.0, 2.0], [0.0, 1.0]]))
    Traceback (most recent call last):
    ValueError: X with kernel='precomputed' is not symmetric: ...
    """
    owner = "X with kernel='precomputed'"
    K = np.asarray(dense(K), dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or K.size == 0:
        raise ValueError(
            f"{owner} must be the square matrix of all pairs of training rows, got shape "
            f"{K.shape}; pass k(X, X), or choose a kernel by name to pass features."
        )
    return _symmetrised(K, owner)


# Arguments


def _takes_matrices(function: Callable[..., Any]) -> bool:
    from sklearn.gaussian_process.kernels import Kernel as GaussianProcessKernel

    return isinstance(function, GaussianProcessKernel)


def _objection(kernel: object) -> str:
    if isinstance(kernel, str) and kernel in REFUSED:
        return f"is not supported: {REFUSED[kernel]}"
    nearest = difflib.get_close_matches(str(kernel), NAMES, n=1)
    hint = f" did you mean {nearest[0]!r}?" if nearest else ""
    return (
        f"is not known;{hint} It must be one of {', '.join(map(repr, NAMES))}, or a callable "
        "k(x, x') of two rows."
    )


def _check_gamma(gamma: float) -> None:
    if not isinstance(gamma, Real) or not 0.0 <= gamma < math.inf:
        raise ValueError(
            f"gamma={gamma!r} is not allowed: it must be a finite number >= 0; "
            "1 / n_features is a good start for standardised features."
        )


def _check_degree(degree: int) -> None:
    if not isinstance(degree, Real) or not float(degree).is_integer() or degree < 0:
        raise ValueError(
            f"degree={degree!r} is not allowed: it must be a whole number >= 0, as a polynomial "
            "kernel is positive semi-definite for no other; use 2 or 3."
        )


def _check_coef0(coef0: float) -> None:
    if not isinstance(coef0, Real) or not 0.0 <= coef0 < math.inf:
        raise ValueError(
            f"coef0={coef0!r} is not allowed: it must be a finite number >= 0, as the polynomial "
            "kernel is not positive semi-definite otherwise; use 0 or 1."
        )


def _finite(K: Array, owner: str) -> Array:
    if K.size and not math.isfinite(_largest(K)):
        raise ValueError(
            f"{owner} has entries that are NaN or infinite; check the features it was computed "
            "from, and that it does not overflow on them."
        )
    return K


def _symmetrised(K: Array, owner: str) -> Array:
    _finite(K, owner)
    asymmetry = _asymmetry(K)
    if asymmetry == 0.0:
        return K
    if asymmetry > SYMMETRY_TOLERANCE * _largest(K):
        raise ValueError(
            f"{owner} is not symmetric: the largest |K[i, j] - K[j, i]| is {asymmetry:.3g}, with "
            f"entries up to {_largest(K):.3g}. A kernel needs k(x, x') = k(x', x); if the "
            "difference is meant to be ignored, pass (K + K.T) / 2."
        )
    return 0.5 * K + 0.5 * K.T


def _asymmetry(K: Array) -> float:
    blocks = (K[rows, rows.start :] - K[rows.start :, rows].T for rows in row_blocks(K))
    return max((float(np.abs(block).max()) for block in blocks), default=0.0)


def _largest(K: Array) -> float:
    # Extremes instead of an n × n array of absolute values; NaN shows in both.
    return max(float(K.max()), -float(K.min())) if K.size else 0.0
