"""Functions k(x, x') of two rows and their matrices.

Kernels that differ in gamma only are made from the same base matrix, of distances or inner
products, which is computed once.
"""

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
)
from everyfold.kernels.precomputed import check_precomputed
from everyfold.kernels.registry import (
    Gamma,
    KernelLike,
    factors_of,
    find_kernel,
    gamma_of_features,
    resolve_gamma,
)

__all__ = [
    "RBF",
    "Cosine",
    "Custom",
    "Gamma",
    "Kernel",
    "KernelLike",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Scaled",
    "check_precomputed",
    "factors_of",
    "find_kernel",
    "gamma_of_features",
    "resolve_gamma",
]
