"""How candidates are judged. Criteria ask a Response; they never factorise."""

from everyfold.crossval.base import Closed, InexactWarning, OutOfFold, Predictive
from everyfold.crossval.closed_criteria import (
    GACV,
    GCV,
    EigenvaluePerturbation,
    EigenvalueRatio,
    RadiusMargin,
    SpanRule,
)
from everyfold.crossval.closed_form import HeldOut
from everyfold.crossval.conjugate_gradient import ConjugateGradient
from everyfold.crossval.error_gradient import ErrorSlopes, HeldOutError
from everyfold.crossval.gram_sums import BySums
from everyfold.crossval.granularity import Granularity, choose_granularity, granularity_bound
from everyfold.crossval.refit import Refit
from everyfold.folds import Fold, Folds

__all__ = [
    "GACV",
    "GCV",
    "BySums",
    "Closed",
    "ConjugateGradient",
    "EigenvaluePerturbation",
    "EigenvalueRatio",
    "ErrorSlopes",
    "Fold",
    "Folds",
    "Granularity",
    "HeldOut",
    "HeldOutError",
    "InexactWarning",
    "OutOfFold",
    "Predictive",
    "RadiusMargin",
    "Refit",
    "SpanRule",
    "choose_granularity",
    "granularity_bound",
]
