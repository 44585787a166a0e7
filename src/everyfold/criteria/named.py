"""Closed criteria by the names that users pass as ``criterion=``."""

from __future__ import annotations

from everyfold.criteria.base import Closed
from everyfold.criteria.closed import GACV, GCV, EigenvaluePerturbation, EigenvalueRatio, SpanRule
from everyfold.criteria.radius import RadiusMargin

CLOSED: dict[str, Closed] = {
    "gcv": GCV(),
    "gacv": GACV(),
    "span": SpanRule(),
    "radius_margin": RadiusMargin(),
    "eigenvalue_ratio": EigenvalueRatio(),
    "eigenvalue_perturbation": EigenvaluePerturbation(),
}


def find_closed(criterion: str | Closed) -> Closed:
    """The criterion of this name; an instance is given back as it is.

    Examples
    --------
    >>> find_closed("span")
    SpanRule(tolerance=0.001, stiffness=10000.0)
    """
    if isinstance(criterion, Closed):
        return criterion
    if not isinstance(criterion, str) or criterion not in CLOSED:
        raise ValueError(
            f"criterion={criterion!r} is not known; use None for held-out scores, one of "
            f"{list(CLOSED)}, or an instance of everyfold.criteria.Closed"
        )
    return CLOSED[criterion]


def name_of(criterion: Closed) -> str:
    """What users call a criterion.

    Examples
    --------
    >>> name_of(GCV(route="cholesky"))
    'gcv'
    """
    names = [name for name, known in CLOSED.items() if type(known) is type(criterion)]
    return names[0] if names else type(criterion).__name__
