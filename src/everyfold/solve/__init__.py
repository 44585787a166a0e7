"""From a problem to its fit: closed form, or Newton's method."""

from everyfold.solve.newton import (
    RESOLVED,
    STATIONARITY,
    Fit,
    NewtonModel,
    has_flat_intercept,
    relative_forces,
)
from everyfold.solve.path import solve, solve_path
from everyfold.solve.problem import Classes, DidNotConvergeError, Problem
from everyfold.types import RidgeScaling

__all__ = [
    "RESOLVED",
    "STATIONARITY",
    "Classes",
    "DidNotConvergeError",
    "Fit",
    "NewtonModel",
    "Problem",
    "RidgeScaling",
    "has_flat_intercept",
    "relative_forces",
    "solve",
    "solve_path",
]
