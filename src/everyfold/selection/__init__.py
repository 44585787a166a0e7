"""Searches over hyper-parameters that change one import line and refit nothing but the winner."""

from everyfold.evaluate.plan import SearchPlan
from everyfold.selection.grid import FastGridSearchCV, FastRandomizedSearchCV

__all__ = ["FastGridSearchCV", "FastRandomizedSearchCV", "SearchPlan"]
