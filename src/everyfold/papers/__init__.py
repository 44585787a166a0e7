"""Methods of publications, by the names that their authors gave them."""

from everyfold.engine.method_options import MethodOptions
from everyfold.papers.published_methods import (
    bif,
    circulant,
    eigenvalue_perturbation,
    eigenvalue_ratio,
    gacv,
    gcv,
    granularity,
    nystrom_lssvm,
    radius_margin,
    span,
    t_bif,
    t_fbif,
)

__all__ = [
    "MethodOptions",
    "bif",
    "circulant",
    "eigenvalue_perturbation",
    "eigenvalue_ratio",
    "gacv",
    "gcv",
    "granularity",
    "nystrom_lssvm",
    "radius_margin",
    "span",
    "t_bif",
    "t_fbif",
]
