"""Scorers that scikit-learn does not have: pass one as ``scoring=``."""

from everyfold.engine.scoring.pooled_scorer import pooled
from everyfold.papers.published_metrics import (
    coefficient_of_variation,
    huber_hinge_loss,
    huber_hinge_scorer,
    neg_coefficient_of_variation,
)

__all__ = [
    "coefficient_of_variation",
    "huber_hinge_loss",
    "huber_hinge_scorer",
    "neg_coefficient_of_variation",
    "pooled",
]
