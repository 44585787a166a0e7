"""Scorers that scikit-learn does not have: pass one as ``scoring=``."""

from everyfold.engine.scoring.pooled_scorer import pooled
from everyfold.gaussian_process.held_out_gaussians import (
    coverage_scorer,
    crps,
    log_density,
    log_density_scorer,
    neg_crps_scorer,
    quantile_of,
)
from everyfold.papers.published_metrics import (
    coefficient_of_variation,
    huber_hinge_loss,
    huber_hinge_scorer,
    neg_coefficient_of_variation,
)

__all__ = [
    "coefficient_of_variation",
    "coverage_scorer",
    "crps",
    "huber_hinge_loss",
    "huber_hinge_scorer",
    "log_density",
    "log_density_scorer",
    "neg_coefficient_of_variation",
    "neg_crps_scorer",
    "pooled",
    "quantile_of",
]
