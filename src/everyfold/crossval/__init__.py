"""How held-out predictions are computed: one class for each method of cross-validation.

Methods ask a :class:`~everyfold.operators.response.Response` for what they need of the kernel; they
never factorise a matrix themselves.
"""

from everyfold.crossval.base import Closed, CrossValMethod, InexactWarning, OutOfFold
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.crossval.conjugate_gradient import ConjugateGradient
from everyfold.crossval.gram_sums import GramCV
from everyfold.crossval.refit import Refit
from everyfold.folds import Fold, Folds

__all__ = [
    "Closed",
    "ClosedFormCV",
    "ConjugateGradient",
    "CrossValMethod",
    "Fold",
    "Folds",
    "GramCV",
    "InexactWarning",
    "OutOfFold",
    "Refit",
]
