"""The library's own estimators: kernel regressors and classifiers with scikit-learn's interface."""

from everyfold.estimators.classifiers import (
    LSSVC,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
)
from everyfold.estimators.regressors import LSSVR, KernelRegressor, QuadraticSVR

__all__ = [
    "LSSVC",
    "LSSVR",
    "HuberSVC",
    "KernelClassifier",
    "KernelLogisticClassifier",
    "KernelRegressor",
    "QuadraticSVR",
]
