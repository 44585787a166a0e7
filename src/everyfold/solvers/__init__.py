"""From a problem to its fit: in closed form, or by Newton's method."""

from everyfold._typing import RidgeScaling
from everyfold.solvers.newton import (
    RESOLVED,
    STATIONARITY,
    Fit,
    NewtonModel,
    has_flat_intercept,
    relative_forces,
    solve,
    solve_path,
)
from everyfold.solvers.problem import Classes, DidNotConvergeError, Problem

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
