"""The former name of what is in ``everyfold.papers``; it works for one release.

Criteria without folds (GCV, GACV, span, …) and granularities were documented here.
"""

from __future__ import annotations

import warnings

from everyfold import papers

_NAMES = [
    "GACV",
    "GCV",
    "EigenvaluePerturbation",
    "EigenvalueRatio",
    "Granularity",
    "RadiusMargin",
    "SpanRule",
    "choose_granularity",
    "granularity_bound",
]


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'everyfold.criteria' has no attribute {name!r}")
    warnings.warn(
        f"everyfold.criteria is now everyfold.papers; use from everyfold.papers import {name}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(papers, name)
