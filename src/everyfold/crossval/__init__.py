"""How held-out predictions are computed: one class for each method of cross-validation.

Methods ask a :class:`~everyfold.operators.response.Response` for what they need of the kernel; they
never factorise a matrix themselves.
"""

from everyfold.crossval.base import Closed, CrossValMethod, InexactWarning, OutOfFold
from everyfold.crossval.closed_criteria import (
    GACV,
    GCV,
    EigenvaluePerturbation,
    EigenvalueRatio,
    RadiusMargin,
    SpanRule,
)
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.crossval.conjugate_gradient import ConjugateGradient
from everyfold.crossval.error_gradient import ErrorSlopes, HeldOutError
from everyfold.crossval.gram_sums import GramCV
from everyfold.crossval.granularity import Granularity, choose_granularity, granularity_bound
from everyfold.crossval.refit import Refit
from everyfold.folds import Fold, Folds

__all__ = [
    "GACV",
    "GCV",
    "Closed",
    "ClosedFormCV",
    "ConjugateGradient",
    "CrossValMethod",
    "EigenvaluePerturbation",
    "EigenvalueRatio",
    "ErrorSlopes",
    "Fold",
    "Folds",
    "GramCV",
    "Granularity",
    "HeldOutError",
    "InexactWarning",
    "OutOfFold",
    "RadiusMargin",
    "Refit",
    "SpanRule",
    "choose_granularity",
    "granularity_bound",
]
