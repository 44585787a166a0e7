r"""Kernels: functions k(x, x') of two rows, and their matrices.

Every kernel is an elementwise map of a *base matrix* that is free of hyper-parameters,

.. math:: K_{ij} = \phi(B_{ij}),

so that a search computes squared distances once and pays one elementwise pass for every further
gamma: kernels with the same `Kernel.base` share one ``base_matrix``. Rows may be dense or CSR, in
float32 or float64; the arithmetic is float64 throughout. Inputs are expected to be validated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from everyfold._typing import AnyArray, Array, Matrix
from everyfold.kernels.pairwise import (
    BLOCK_SIZE,
    count_rows,
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
)
from everyfold.kernels.precomputed import finite, symmetrised


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
    is_linear: ClassVar[bool] = False
    """Whether the columns of the rows are its features."""
    constant: float = 0.0
    """What a linear kernel adds to all products."""

    @abstractmethod
    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """The matrix B between the rows of X and Y, exactly symmetric if Y is None."""

    @abstractmethod
    def base_diagonal(self, X: Matrix) -> Array:
        """The diagonal of ``base_matrix(X)`` without the matrix."""

    @abstractmethod
    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """The map φ(B), elementwise.

        Parameters
        ----------
        B : ndarray
            A base matrix, or any part of one.
        out : ndarray, optional
            Where to write, possibly B itself; its dtype is kept. By default a new float64 array.
        """

    def __call__(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """The kernel matrix between the rows of X and Y, a new array."""
        B = self.base_matrix(X, Y)
        return self.from_base(B, out=B)

    def diagonal(self, X: Matrix) -> Array:
        """The values k(x, x) for the rows x of X. Cost: O(n) memory."""
        return self.from_base(self.base_diagonal(X))

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        r"""The sums :math:`\sum_{ik} w_{ik}\,\partial k(x_i, y_k)/\partial\log\gamma_j`, (d,).

        :math:`\gamma_j` is the gamma of feature j; a single gamma has the sum of all. ``K`` is the
        matrix of the kernel between the rows, which is at hand wherever its slopes are asked for.
        The weights may be overwritten: fresh memory would cost as much as the sums.
        """
        raise ValueError(
            f"{self} has no gamma for each feature; use 'rbf', 'laplacian' or 'polynomial'"
        )

    def waves(self, random: RandomState, size: tuple[int, int]) -> tuple[Array, float] | None:
        r"""Directions ω and a scale s with :math:`k(x, x') = E\cos(s\,\omega^\top(x - x'))`.

        Only kernels of differences are such means. ``size`` is (features, directions).
        """
        return None

    def anchors(self, taken: Matrix, rows: NDArray[np.intp]) -> Matrix:
        """What to pass as Y for some of the training rows: the rows ``taken``, of numbers ``rows``.

        So ``kernel(X, kernel.anchors(X[rows], rows))`` is the kernel between all rows and these.
        """
        return taken


class _Plain(Kernel):
    """A kernel that is its own base matrix."""

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """B itself, copied unless ``out`` is B."""
        out = room_for(B, out)
        if out is not B:
            np.copyto(out, B, casting="same_kind")
        return out


class _OfProducts(Kernel):
    """A function of inner products."""

    base: ClassVar[str | None] = "inner"

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """Inner products."""
        return product(*operands(X, Y))

    def base_diagonal(self, X: Matrix) -> Array:
        """Squared norms."""
        return squared_norms(operands(X, None)[0])


def check_gamma(gamma: float) -> None:
    """Refuse a gamma that no kernel takes."""
    if not isinstance(gamma, Real) or not 0.0 <= gamma < math.inf:
        raise ValueError(
            f"gamma={gamma!r} is not allowed: it must be a finite number >= 0; "
            "1 / n_features is a good start for standardised features."
        )


def check_degree(degree: int) -> None:
    """Refuse a degree that no polynomial kernel takes."""
    if not isinstance(degree, Real) or not float(degree).is_integer() or degree < 0:
        raise ValueError(
            f"degree={degree!r} is not allowed: it must be a whole number >= 0, as a polynomial "
            "kernel is positive semi-definite for no other; use 2 or 3."
        )


def check_coef0(coef0: float) -> None:
    """Refuse a coef0 that no polynomial kernel takes."""
    if not isinstance(coef0, Real) or not 0.0 <= coef0 < math.inf:
        raise ValueError(
            f"coef0={coef0!r} is not allowed: it must be a finite number >= 0, as the polynomial "
            "kernel is not positive semi-definite otherwise; use 0 or 1."
        )


# exp of less is a subnormal number in float32, which takes a hundred times as long.
_LEAST_EXPONENT = np.float32(-80.0)


@dataclass(frozen=True)
class _Decaying(Kernel):
    """exp(−gamma B) of a distance B that is a sum over the features."""

    gamma: float

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def base_diagonal(self, X: Matrix) -> Array:
        """Zeros."""
        return np.zeros(np.shape(X)[0])

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """exp(−gamma B)."""
        out = np.empty(B.shape) if out is None else out
        if out.dtype == np.float32:  # rounding B first is quicker, and the error of exp as small
            np.copyto(out, B, casting="same_kind")
            out *= np.float32(-self.gamma)
            if out.min(initial=0.0) < _LEAST_EXPONENT:  # looking is far cheaper than clipping
                np.maximum(out, _LEAST_EXPONENT, out=out)
        else:
            np.multiply(B, -self.gamma, out=out)
        np.exp(out, out=out)
        return out

    def _slopes(
        self, total: Callable[[Array, Array, Array], Array], X: Matrix, Y: Matrix | None, H: Array
    ) -> Array:
        """−gamma times the distance along each feature, weighted by H and summed by ``total``."""
        rows, others = operands(X, Y)
        return -self.gamma * total(H, dense(rows), dense(others))


@dataclass(frozen=True)
class RBF(_Decaying):
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

    base: ClassVar[str | None] = "squared_distance"

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """Squared Euclidean distances."""
        return squared_distances(*operands(X, Y))

    def waves(self, random: RandomState, size: tuple[int, int]) -> tuple[Array, float]:
        """See base class: normal directions."""
        return random.standard_normal(size), float(np.sqrt(2.0 * self.gamma))

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        """See base class: −gamma (x_j − y_j)² k."""
        return self._slopes(sum_squares, X, Y, np.multiply(weights, K, out=weights))


@dataclass(frozen=True)
class Laplacian(_Decaying):
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

    base: ClassVar[str | None] = "manhattan"

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """Manhattan distances."""
        return manhattan_distances(*operands(X, Y))

    def waves(self, random: RandomState, size: tuple[int, int]) -> tuple[Array, float]:
        """See base class: Cauchy directions."""
        return random.standard_cauchy(size), float(self.gamma)

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        """See base class: −gamma |x_j − y_j| k."""
        return self._slopes(sum_manhattan, X, Y, np.multiply(weights, K, out=weights))


@dataclass(frozen=True)
class Polynomial(_OfProducts):
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

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_degree(self.degree)
        check_coef0(self.coef0)

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """(gamma B + coef0)^degree."""
        out = room_for(B, out)
        for rows in row_blocks(B):
            # In float64 whatever the type of out: powers would raise the error of a float32.
            block = out[rows] if out.dtype == np.float64 else np.empty(B[rows].shape)
            np.multiply(B[rows], self.gamma, out=block)
            block += self.coef0
            raise_to(block, int(self.degree))
            if out.dtype != np.float64:
                out[rows] = block
        return out

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        """See base class: gamma x_j y_j times the derivative of the power."""
        rows, others = operands(X, Y)
        lower = Polynomial(max(self.degree - 1, 0), self.gamma, self.coef0)
        H = self.degree * weights * lower(rows, others)
        return self.gamma * sum_products(H, dense(rows), dense(others))


@dataclass(frozen=True)
class Linear(_OfProducts, _Plain):
    """The linear kernel ⟨x, x'⟩.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import Linear
    >>> Linear()(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 5., 11.],
           [11., 25.]])
    """

    is_linear: ClassVar[bool] = True
    constant: float = field(default=0.0, kw_only=True, repr=False)
    """What is added to all products, as by a column of its root: an intercept with a penalty."""

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """B plus the constant."""
        out = super().from_base(B, out)
        if self.constant:
            out += self.constant
        return out


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

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """Inner products of normalised rows."""
        rows, others = operands(X, Y)
        unit = normalised(rows)
        return product(unit, unit if others is rows else normalised(others))

    def base_diagonal(self, X: Matrix) -> Array:
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

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """X, or some of its columns, as float64; without a copy where it is that already."""
        chosen: Matrix = X
        if isinstance(Y, np.ndarray) and Y.ndim == 1:
            chosen = chosen[:, Y]
        return np.asarray(dense(chosen), dtype=np.float64)

    def anchors(self, taken: Matrix, rows: NDArray[np.intp]) -> Matrix:
        """See base class: rows are known by their columns."""
        return rows

    def base_diagonal(self, X: Matrix) -> Array:
        """The diagonal of X."""
        n_rows, n_columns = np.shape(X)
        if n_rows != n_columns:
            raise ValueError(
                f"X with kernel='precomputed' has shape {np.shape(X)} and so no k(x, x) on its "
                "diagonal; pass the square matrix between the rows and themselves."
            )
        return np.array(X.diagonal(), dtype=np.float64)

    def __call__(self, X: Matrix, Y: Matrix | None = None) -> Array:
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
    function: Callable[..., Matrix] = field(hash=False)
    params: Mapping[str, object] = field(default_factory=dict, hash=False)
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

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """The kernel matrix itself."""
        X = in_double(X)
        if Y is None:
            return symmetrised(self._evaluate(X, X), owner=self._owner)
        return finite(self._evaluate(X, in_double(Y)), owner=self._owner)

    def base_diagonal(self, X: Matrix) -> Array:
        """The values k(x, x), row by row."""
        if not self.on_matrices:
            X = in_double(X)
            pairs = (X[[i], :] if is_sparse(X) else X[i] for i in range(X.shape[0]))
            return np.array([self.function(x, x, **self.params) for x in pairs], dtype=np.float64)
        blocks = [in_double(X[i : i + 64]) for i in range(0, X.shape[0], 64)]
        return np.concatenate([self._evaluate(rows, rows).diagonal() for rows in blocks])

    def _evaluate(self, X: Matrix, Y: Matrix) -> Array:
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


# -- Kernels with a gamma for every feature: columns are multiplied before an ordinary kernel -----


@dataclass(frozen=True)
class Scaled(Kernel):
    """A kernel of rows whose columns are multiplied by a factor each: k(f ∘ x, f ∘ x').

    An rbf or polynomial kernel with gamma_j for feature j has the factors √gamma_j, a Laplacian one
    gamma_j itself.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the scaled rows.
    factors : tuple of float
        One for each column, >= 0; 0 leaves the column out.

    Notes
    -----
    **Cost** a scaled copy of the rows for each matrix. Other factors have other distances, so that
    no base matrix is shared.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import RBF, Scaled
    >>> X = np.array([[0.0, 5.0], [1.0, 9.0]])
    >>> Scaled(RBF(0.5), (1.0, 0.0))(X).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    kernel: Kernel
    factors: tuple[float, ...]

    base: ClassVar[str | None] = None

    def base_matrix(self, X: Matrix, Y: Matrix | None = None) -> Array:
        """That of the kernel, between scaled rows."""
        return self.kernel.base_matrix(self.scale(X), None if Y is None else self.scale(Y))

    def base_diagonal(self, X: Matrix) -> Array:
        """See base class."""
        return self.kernel.base_diagonal(self.scale(X))

    def from_base(self, B: Array, out: AnyArray | None = None) -> Array:
        """See base class: the kernel's own."""
        return self.kernel.from_base(B, out)

    def slopes(self, X: Matrix, Y: Matrix | None, weights: Array, K: Array) -> Array:
        """See base class."""
        rows, others = self.scale(X), None if Y is None else self.scale(Y)
        return self.kernel.slopes(rows, others, weights, K)

    def waves(self, random: RandomState, size: tuple[int, int]) -> tuple[Array, float] | None:
        """See base class: directions are scaled as rows are."""
        found = self.kernel.waves(random, size)
        return None if found is None else (found[0] * np.array(self.factors)[:, None], found[1])

    def scale(self, X: Matrix) -> Matrix:
        """A copy of the rows with scaled columns."""
        factors = np.array(self.factors)
        check_width(len(factors), X)
        if not is_sparse(X):
            return np.asarray(X, dtype=np.float64) * factors
        scaled = X.tocsr().astype(np.float64)
        scaled.data *= factors[scaled.indices]
        return scaled


def check_width(n_gammas: int, X: Matrix) -> None:
    """Raise unless there is a gamma for each column."""
    n_features = np.shape(X)[1]
    if n_gammas != n_features:
        raise ValueError(
            f"gamma has {n_gammas} entries, but X has {n_features} features; pass one for each "
            "feature, in the order of the columns, or one number"
        )


# -- Derivatives of kernels in the logarithm of each feature's gamma, summed with given weights ---
# With :math:`\gamma_j` the gamma of feature j, each function gives the numbers :math:`\sum_{ik}
# H_{ik}\,t_j(x_i, y_k)` for all features j, where :math:`t_j` is the share of feature j in a
# distance or an inner product. H need not be symmetric. **Cost** 2 n m d flops for n and m rows, in
# matrix products; Manhattan distances are taken in blocks of rows.


def sum_products(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik x_ij y_kj for all j.

    Examples
    --------
    >>> sum_products(np.ones((1, 2)), np.array([[2.0]]), np.array([[3.0], [4.0]]))
    array([14.])
    """
    return np.asarray(np.einsum("ij,ij->j", X, H @ Y), dtype=np.float64)


def sum_squares(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik (x_ij − y_kj)² for all j."""
    centre = Y.mean(axis=0)  # differences do not change, and less cancels
    X, Y = X - centre, Y - centre
    squares: Array = H.sum(axis=1) @ X**2 + H.sum(axis=0) @ Y**2
    return squares - 2.0 * sum_products(H, X, Y)


def sum_manhattan(H: Array, X: Array, Y: Array) -> Array:
    """Σ H_ik |x_ij − y_kj| for all j, in blocks of rows that fit the second-level cache."""
    step = max(1, BLOCK_SIZE // max(1, Y.size))
    sums = np.zeros(X.shape[1])
    for i in range(0, len(X), step):
        gaps = X[i : i + step, None, :] - Y
        np.abs(gaps, out=gaps)
        sums += H[i : i + step].reshape(-1) @ gaps.reshape(-1, X.shape[1])
    return sums
