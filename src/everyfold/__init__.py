"""Every fold from one fit: cross-validation of kernel machines without refitting.

Plots, the papers and the gradient search are imported when one of their names is used, so that
``import everyfold`` loads only what every search needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from everyfold.conformal import FastCrossConformalRegressor
from everyfold.crossval import InexactWarning
from everyfold.engine.request import UnsupportedWarning
from everyfold.estimators import (
    LSSVC,
    LSSVR,
    HuberSVC,
    KernelClassifier,
    KernelLogisticClassifier,
    KernelRegressor,
    QuadraticSVR,
)
from everyfold.functions.cross_val import (
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from everyfold.functions.permutation import permutation_test_score
from everyfold.judge import (
    BufferedLeaveOneOut,
    LeavePairOut,
    PurgedTimeSeriesSplit,
    RebalancedLeaveOneOut,
    compare,
    influence,
    score_interval,
)
from everyfold.operators import Dense, Nystrom, RandomFourier
from everyfold.search import FastGridSearchCV, FastRandomizedSearchCV, SearchPlan
from everyfold.search.calibration import FastCalibratedClassifierCV

if TYPE_CHECKING:
    from everyfold.gradient.gradient_search import FastGradientSearchCV
    from everyfold.kernel_ridge.kernel_ridge_cv import KernelRidgeClassifierCV, KernelRidgeCV
    from everyfold.papers import Circulant, choose_granularity, granularity_bound
    from everyfold.plotting import (
        CVCurveDisplay,
        CVSurfaceDisplay,
        FeatureWeightsDisplay,
        IntervalDisplay,
        OutOfFoldDisplay,
        RankCurveDisplay,
    )

__all__ = [
    "LSSVC",
    "LSSVR",
    "BufferedLeaveOneOut",
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
    "KernelRidgeCV",
    "KernelRidgeClassifierCV",
    "LeavePairOut",
    "Nystrom",
    "OutOfFoldDisplay",
    "PurgedTimeSeriesSplit",
    "QuadraticSVR",
    "RandomFourier",
    "RankCurveDisplay",
    "RebalancedLeaveOneOut",
    "SearchPlan",
    "UnsupportedWarning",
    "choose_granularity",
    "compare",
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "granularity_bound",
    "influence",
    "learning_curve",
    "permutation_test_score",
    "score_interval",
    "validation_curve",
]
__version__ = "0.2.0"

# Where the names are that are imported on their first use, the same as for type checkers above.
_LAZY = {
    "FastGradientSearchCV": "everyfold.gradient.gradient_search",
    **dict.fromkeys(
        ("KernelRidgeCV", "KernelRidgeClassifierCV"), "everyfold.kernel_ridge.kernel_ridge_cv"
    ),
    **dict.fromkeys(("Circulant", "choose_granularity", "granularity_bound"), "everyfold.papers"),
    **{name: "everyfold.plotting" for name in __all__ if name.endswith("Display")},
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_LAZY[name]), name)
    globals()[name] = found  # found directly from now on
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
