"""Kernels by the names and parameters that users give, in scikit-learn's conventions.

:func:`find_kernel` makes a kernel of ``kernel=``, ``gamma=``, ``degree=`` and so on;
:func:`resolve_gamma` computes a gamma that depends on the rows.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from everyfold._typing import Array, Matrix
from everyfold.kernels.kernels import (
    RBF,
    Cosine,
    Custom,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Scaled,
    check_gamma,
    check_width,
)
from everyfold.kernels.pairwise import variance

# One number for all features, a rule that gives it, or a number for each.
Gamma: TypeAlias = float | Literal["scale", "auto"] | Sequence[float] | Array | None

# A kernel by its name, as an object, or as a function of two rows.
KernelLike: TypeAlias = str | Kernel | Callable[..., Matrix]

PLAIN: dict[str, type[Kernel]] = {"linear": Linear, "cosine": Cosine, "precomputed": Precomputed}
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
    kernel: str | Kernel | Callable[..., Matrix],
    *,
    gamma: Gamma = None,
    degree: int = 3,
    coef0: float = 1.0,
    kernel_params: Mapping[str, object] | None = None,
    X: Matrix | None = None,
    on_matrices: bool = False,
) -> Kernel:
    """The kernel of a name, with scikit-learn's parameters.

    Parameters
    ----------
    kernel : str, callable or Kernel
        One of "rbf", "laplacian", "polynomial" (or "poly"), "linear", "cosine" and "precomputed"; a
        function of two rows; or a `Kernel`, returned as it is.
    gamma : float, "scale", "auto", None or array of shape (n_features,)
        As in `resolve_gamma`; only kernels that have a gamma use it. An array has a number for
        each feature, and kernels without a gamma refuse it.
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
    >>> find_kernel("laplacian", gamma=[1.0, 0.5])
    Scaled(kernel=Laplacian(gamma=1.0), factors=(1.0, 0.5))
    >>> find_kernel("rfb")
    Traceback (most recent call last):
    ValueError: kernel='rfb' is not known; did you mean 'rbf'? ...
    """
    per_feature = gamma_of_features(gamma)
    if per_feature is not None:
        return _scaled(kernel, per_feature, X, degree, coef0)
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        from sklearn.gaussian_process.kernels import Kernel as GaussianProcessKernel

        return Custom(
            kernel, kernel_params or {}, on_matrices or isinstance(kernel, GaussianProcessKernel)
        )
    if kernel in PLAIN:
        return PLAIN[kernel]()
    if kernel in WITH_GAMMA:
        return WITH_GAMMA[kernel](resolve_gamma(gamma, X))
    if kernel in ("polynomial", "poly"):
        return Polynomial(degree, resolve_gamma(gamma, X), coef0)
    raise ValueError(f"kernel={kernel!r} {_objection(kernel)}")


def resolve_gamma(gamma: Gamma, X: Matrix | None = None) -> float:
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
        number: Any = gamma
        check_gamma(number)
        return float(number)
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


def gamma_of_features(gamma: Gamma) -> tuple[float, ...] | None:
    """The numbers of a gamma that has one for each feature; None for any other gamma.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.kernels import gamma_of_features
    >>> gamma_of_features(np.array([1.0, 0.5])), gamma_of_features(0.5)
    ((1.0, 0.5), None)
    """
    if gamma is None or isinstance(gamma, str) or np.ndim(gamma) == 0:
        return None
    if np.ndim(gamma) != 1 or np.size(gamma) == 0:
        raise ValueError(
            f"gamma has shape {np.shape(gamma)}; pass a number, or one for each feature: "
            "(n_features,)"
        )
    entries = np.asarray(gamma).tolist()
    for entry in entries:
        check_gamma(entry)
    return tuple(float(entry) for entry in entries)


def _scaled(
    kernel: KernelLike, gamma: tuple[float, ...], X: Matrix | None, degree: int, coef0: float
) -> Scaled:
    """The kernel of a name with a gamma for each feature: that of scaled columns, with gamma 1."""
    if not isinstance(kernel, str) or kernel in PLAIN:
        raise ValueError(
            f"gamma has {len(gamma)} entries, one for each feature, but kernel={kernel!r} has no "
            "gamma; use 'rbf', 'laplacian' or 'polynomial' (with degree=1 and coef0=0 it is the "
            "linear kernel), or scale the columns of X"
        )
    plain = find_kernel(kernel, gamma=1.0, degree=degree, coef0=coef0)
    if X is not None:
        check_width(len(gamma), X)
    return Scaled(plain, factors_of(kernel, gamma))


def factors_of(kernel: str, gamma: Sequence[float]) -> tuple[float, ...]:
    """What columns are multiplied by, so that a kernel of gamma 1 has these gammas.

    A distance grows with the factor of its columns; a product, or a square, with its square.

    Examples
    --------
    >>> factors_of("rbf", [4.0, 1.0]), factors_of("laplacian", [4.0, 1.0])
    ((2.0, 1.0), (4.0, 1.0))
    """
    return tuple(gamma) if kernel == "laplacian" else tuple(math.sqrt(entry) for entry in gamma)


def _objection(kernel: object) -> str:
    if isinstance(kernel, str) and kernel in REFUSED:
        return f"is not supported: {REFUSED[kernel]}"
    nearest = difflib.get_close_matches(str(kernel), NAMES, n=1)
    hint = f"did you mean {nearest[0]!r}? Use" if nearest else "use"
    names = ", ".join(map(repr, NAMES))
    return f"is not known; {hint} one of {names}, or a callable k(x, x') of two rows"
