"""Every fold from one fit: cross-validation of kernel machines without refitting."""

from everyfold.criteria import InexactWarning, choose_granularity
from everyfold.estimators import LSSVC, LSSVR, KernelClassifier, KernelRegressor
from everyfold.operators import Circulant, Dense
from everyfold.validation import cross_val_predict, cross_val_score

__all__ = [
    "LSSVC",
    "LSSVR",
    "Circulant",
    "Dense",
    "InexactWarning",
    "KernelClassifier",
    "KernelRegressor",
    "choose_granularity",
    "cross_val_predict",
    "cross_val_score",
]
__version__ = "0.1.0"
