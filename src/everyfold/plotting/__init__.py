"""Plots of a finished search, in the style of scikit-learn's displays. They need matplotlib."""

from everyfold.plotting.prediction_plots import (
    DistributionCalibrationDisplay,
    FeatureWeightsDisplay,
    InfluenceDisplay,
    IntervalDisplay,
    OutOfFoldDisplay,
)
from everyfold.plotting.score_curves import CVCurveDisplay, CVSurfaceDisplay, RankCurveDisplay

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
