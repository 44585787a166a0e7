"""How candidates are judged. Criteria ask a Response; they never factorise."""

from everyfold.criteria.base import Closed, InexactWarning, OutOfFold, Predictive
from everyfold.criteria.closed import GCV
from everyfold.criteria.folds import Fold, Folds
from everyfold.criteria.heldout import HeldOut
from everyfold.criteria.refit import Refit

__all__ = [
    "GCV",
    "Closed",
    "Fold",
    "Folds",
    "HeldOut",
    "InexactWarning",
    "OutOfFold",
    "Predictive",
    "Refit",
]
