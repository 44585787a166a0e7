"""Searches over hyper-parameters that change one import line and refit nothing but the winner."""

from everyfold.engine.planning.plan import SearchPlan
from everyfold.search.grid import FastGridSearchCV, FastRandomizedSearchCV

__all__ = ["FastGridSearchCV", "FastRandomizedSearchCV", "SearchPlan"]
