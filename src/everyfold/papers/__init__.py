"""The methods of the five papers that everyfold is built on, by the names of the papers.

The core does not import this package. Its criteria, metrics and operators are entered in
``everyfold._extensions`` when it is imported, so that they can be asked for by name.
"""

from everyfold.engine.request import MethodOptions
from everyfold.estimators import HuberSVC, QuadraticSVR
from everyfold.papers.circulant import Circulant, CirculantMatrix, CirculantWarning
from everyfold.papers.closed_criteria import (
    GACV,
    GCV,
    EigenvaluePerturbation,
    EigenvalueRatio,
    RadiusMargin,
    SpanRule,
)
from everyfold.papers.influence import InfluenceMatrix
from everyfold.papers.published_methods import (
    Granularity,
    bif,
    choose_granularity,
    circulant,
    eigenvalue_perturbation,
    eigenvalue_ratio,
    expected_residual,
    gacv,
    gcv,
    granularity,
    granularity_bound,
    model_error_bound,
    nystrom_lssvm,
    radius_margin,
    span,
    t_bif,
    t_fbif,
)
from everyfold.papers.published_metrics import (
    coefficient_of_variation,
    huber_hinge_loss,
    huber_hinge_scorer,
    neg_coefficient_of_variation,
)

__all__ = [
    "GACV",
    "GCV",
    "Circulant",
    "CirculantMatrix",
    "CirculantWarning",
    "EigenvaluePerturbation",
    "EigenvalueRatio",
    "Granularity",
    "HuberSVC",
    "InfluenceMatrix",
    "MethodOptions",
    "QuadraticSVR",
    "RadiusMargin",
    "SpanRule",
    "bif",
    "choose_granularity",
    "circulant",
    "coefficient_of_variation",
    "eigenvalue_perturbation",
    "eigenvalue_ratio",
    "expected_residual",
    "gacv",
    "gcv",
    "granularity",
    "granularity_bound",
    "huber_hinge_loss",
    "huber_hinge_scorer",
    "model_error_bound",
    "neg_coefficient_of_variation",
    "nystrom_lssvm",
    "radius_margin",
    "span",
    "t_bif",
    "t_fbif",
]
