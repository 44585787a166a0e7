"""Every fold from one fit: cross-validation of kernel machines without refitting."""

from everyfold.conformal import FastCrossConformalRegressor
from everyfold.crossval import InexactWarning, choose_granularity, granularity_bound
from everyfold.engine.method_options import UnsupportedWarning
from everyfold.estimators import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
)
from everyfold.functions.cross_val import cross_val_predict, cross_val_score, cross_validate
from everyfold.functions.curves import learning_curve, validation_curve
from everyfold.functions.permutation import permutation_test_score
from everyfold.gradient.gradient_search import FastGradientSearchCV
from everyfold.operators import Circulant, Dense, Nystrom, RandomFourier
from everyfold.plotting import (
    CVCurveDisplay,
    CVSurfaceDisplay,
    FeatureWeightsDisplay,
    IntervalDisplay,
    OutOfFoldDisplay,
    RankCurveDisplay,
)
from everyfold.search import FastGridSearchCV, FastRandomizedSearchCV, SearchPlan
from everyfold.search.calibration import FastCalibratedClassifierCV

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
    "UnsupportedWarning",
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
