"""How candidates are judged. Criteria ask a Response; they never factorise."""

from everyfold.criteria.base import Closed, InexactWarning, OutOfFold, Predictive
from everyfold.criteria.closed import GACV, GCV, EigenvaluePerturbation, EigenvalueRatio, SpanRule
from everyfold.criteria.conjugate import ConjugateGradient
from everyfold.criteria.gradient import ErrorSlopes, HeldOutError
from everyfold.criteria.granularity import Granularity, choose_granularity, granularity_bound
from everyfold.criteria.heldout import HeldOut
from everyfold.criteria.radius import RadiusMargin
from everyfold.criteria.refit import Refit
from everyfold.criteria.sums import BySums
from everyfold.rows.folds import Fold, Folds

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
