"""Searches over hyper-parameters that change one import line and refit nothing but the winner."""

from everyfold.search.grid import FastGridSearchCV, FastRandomizedSearchCV
from everyfold.search.record import SearchPlan

__all__ = ["FastGridSearchCV", "FastRandomizedSearchCV", "SearchPlan"]
