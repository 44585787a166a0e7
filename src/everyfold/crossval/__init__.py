"""How candidates are judged. Criteria ask a Response; they never factorise."""

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
