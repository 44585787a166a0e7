"""Every fold from one fit: cross-validation of kernel machines without refitting."""

from everyfold.criteria import InexactWarning, choose_granularity, granularity_bound
from everyfold.display import (
    CVCurveDisplay,
    CVSurfaceDisplay,
    FeatureWeightsDisplay,
    IntervalDisplay,
    OutOfFoldDisplay,
    RankCurveDisplay,
)
from everyfold.models.estimators import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
)
from everyfold.operators import Circulant, Dense, Nystrom, RandomFourier
from everyfold.selection import FastGridSearchCV, FastRandomizedSearchCV, SearchPlan
from everyfold.selection.calibration import FastCalibratedClassifierCV
from everyfold.selection.curves import learning_curve, validation_curve
from everyfold.selection.functions import cross_val_predict, cross_val_score
from everyfold.selection.gradient import FastGradientSearchCV
from everyfold.selection.intervals import FastCrossConformalRegressor
from everyfold.selection.permutations import permutation_test_score
from everyfold.selection.validate import cross_validate

__all__ = [
    "LSSVC",
    "LSSVR",
    "CVCurveDisplay",
    "CVSurfaceDisplay",
    "Circulant",
    "Dense",
    "FastCalibratedClassifierCV",
    "FastCrossConformalRegressor",
    "FastGradientSearchCV",
    "FastGridSearchCV",
    "FastRandomizedSearchCV",
    "FeatureWeightsDisplay",
    "HuberSVC",
    "InexactWarning",
    "IntervalDisplay",
    "KernelClassifier",
    "KernelLogisticClassifier",
    "KernelRegressor",
    "Nystrom",
    "OutOfFoldDisplay",
    "QuadraticSVR",
    "RandomFourier",
    "RankCurveDisplay",
    "SearchPlan",
    "choose_granularity",
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "granularity_bound",
    "learning_curve",
    "permutation_test_score",
    "validation_curve",
]
__version__ = "0.2.0"
