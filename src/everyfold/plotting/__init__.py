"""Plots of a finished search, in the style of scikit-learn's displays. They need matplotlib."""

from everyfold.plotting.prediction_plots import (
    DistributionCalibrationDisplay,
    FeatureWeightsDisplay,
    InfluenceDisplay,
    IntervalDisplay,
    OutOfFoldDisplay,
)
from everyfold.plotting.score_curves import CVCurveDisplay, RankCurveDisplay
from everyfold.plotting.surface import CVSurfaceDisplay

__all__ = [
    "CVCurveDisplay",
    "CVSurfaceDisplay",
    "DistributionCalibrationDisplay",
    "FeatureWeightsDisplay",
    "InfluenceDisplay",
    "IntervalDisplay",
    "OutOfFoldDisplay",
    "RankCurveDisplay",
]
