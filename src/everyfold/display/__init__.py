"""Plots of a finished search, in the style of scikit-learn's displays. They need matplotlib."""

from everyfold.display.curves import CVCurveDisplay
from everyfold.display.heldout import OutOfFoldDisplay
from everyfold.display.intervals import IntervalDisplay
from everyfold.display.ranks import RankCurveDisplay
from everyfold.display.surfaces import CVSurfaceDisplay
from everyfold.display.weights import FeatureWeightsDisplay

__all__ = [
    "CVCurveDisplay",
    "CVSurfaceDisplay",
    "FeatureWeightsDisplay",
    "IntervalDisplay",
    "OutOfFoldDisplay",
    "RankCurveDisplay",
]
