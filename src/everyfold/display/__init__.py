"""Pictures of a finished search, in scikit-learn's Display style. matplotlib is needed to draw."""

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
