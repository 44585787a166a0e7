"""scikit-learn's ``GaussianProcessRegressor`` with fixed hyper-parameters, read as a model.

Its mean is that of kernel ridge regression, with a ridge for the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Kernel,
    KernelOperator,
    Product,
    Sum,
    WhiteKernel,
)
from sklearn.preprocessing import StandardScaler

from everyfold._typing import Array, Estimator, Targets
from everyfold.estimators.model import KernelChoice, Model, original
from everyfold.estimators.targets import Warp
from everyfold.losses import Squared


@dataclass(frozen=True)
class Process:
    """A Gaussian process whose hyper-parameters are fixed.

    Attributes
    ----------
    kernel : Kernel
        scikit-learn's, with the noise of its ``WhiteKernel`` between a row and itself.
    alpha : float or array of shape (n,)
        What is added to the diagonal besides, for every row or each.
    normalises : bool
        Whether the mean and the deviation of the training targets are taken off first.
    """

    kernel: Kernel
    alpha: Targets
    normalises: bool

    def noise(self, n: int) -> Array:
        """What is added to the diagonal, (n,)."""
        noise = np.asarray(self.alpha, dtype=np.float64)
        if noise.ndim > 1 or (noise.ndim == 1 and len(noise) not in (1, n)):
            raise ValueError(
                f"alpha has shape {noise.shape}; use a number, or one for each of the {n} rows"
            )
        if not np.isfinite(noise).all() or (noise < 0.0).any():
            raise ValueError(f"alpha={self.alpha!r} is not allowed; use finite numbers >= 0")
        return np.array(np.broadcast_to(noise, (n,)))


def read_process(estimator: Estimator) -> Process:
    """The process of an estimator; raises why its folds cannot share one.

    Examples
    --------
    >>> read_process(GaussianProcessRegressor(RBF(2.0), optimizer=None)).kernel
    RBF(length_scale=2)
    """
    if original(type(estimator)) is not original(GaussianProcessRegressor):
        raise TypeError(
            f"{type(estimator).__name__} is not scikit-learn's GaussianProcessRegressor"
        )
    kernel = ConstantKernel() * RBF() if estimator.kernel is None else estimator.kernel
    if estimator.optimizer is not None and kernel.n_dims > 0:
        raise ValueError(
            "GaussianProcessRegressor fits the hyper-parameters of its kernel to every training "
            "set; use optimizer=None for folds that share those of the kernel that was passed "
            "(kernel_ of a fit on all rows, for example)"
        )
    if not kernel.requires_vector_input:
        raise ValueError(f"kernel={kernel} takes rows that are no arrays of numbers")
    return Process(kernel, estimator.alpha, bool(estimator.normalize_y))


def process_model(estimator: Estimator) -> Model:
    """The model of the mean: kernel ridge regression, whose ridge is all of the noise."""
    process = read_process(estimator)
    if not isinstance(process.alpha, Real):
        raise ValueError(
            "GaussianProcessRegressor(alpha=...) with a number for each row has no meaning for "
            "other rows; use cross_val_predict(..., return_std=True), whose folds take their own"
        )
    ridge = float(process.alpha) + _white_noise(process.kernel)
    choice = KernelChoice(process.kernel, on_matrices=True)
    warp = Warp(StandardScaler(), None, None, False) if process.normalises else None
    return Model(
        choice, Squared(), (ridge,), False, False, operator="dense", flattens=True, warp=warp
    )


def _white_noise(kernel: Kernel) -> float:
    """What a kernel adds between a row and itself, the same for all rows."""
    if isinstance(kernel, WhiteKernel):
        return float(kernel.noise_level)
    if isinstance(kernel, Sum):
        return _white_noise(kernel.k1) + _white_noise(kernel.k2)
    if isinstance(kernel, Product):
        for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
            if isinstance(constant, ConstantKernel):
                return float(constant.constant_value) * _white_noise(other)
    if _has_noise(kernel):
        raise ValueError(
            f"kernel={kernel} multiplies the noise of its WhiteKernel by another kernel; use a sum"
        )
    return 0.0


def _has_noise(kernel: Kernel) -> bool:
    """Whether a WhiteKernel is somewhere in a kernel."""
    if isinstance(kernel, KernelOperator):
        return _has_noise(kernel.k1) or _has_noise(kernel.k2)
    inner = getattr(kernel, "kernel", None)
    return isinstance(kernel, WhiteKernel) or (inner is not None and _has_noise(inner))
