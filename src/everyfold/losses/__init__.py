"""Losses V(y, u): elementwise functions of a label and a fitted value."""

from everyfold.losses.base import Loss
from everyfold.losses.margins import Hinge, HuberHinge, Logistic, SquaredHinge
from everyfold.losses.names import LOSSES, find_loss
from everyfold.losses.regression import (
    EpsilonInsensitive,
    QuadraticEpsilon,
    SmoothEpsilon,
    Squared,
)

__all__ = [
    "LOSSES",
    "EpsilonInsensitive",
    "Hinge",
    "HuberHinge",
    "Logistic",
    "Loss",
    "QuadraticEpsilon",
    "SmoothEpsilon",
    "Squared",
    "SquaredHinge",
    "find_loss",
]
