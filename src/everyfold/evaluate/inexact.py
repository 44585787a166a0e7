"""What is said of values that are not known to equal those of refits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from everyfold.criteria import InexactWarning
from everyfold.criteria.base import TRUSTED_ERROR
from everyfold.evaluate.data import Outcome

__all__ = ["warn_if_approximate", "warn_if_inexact"]


def warn_if_inexact(outcomes: Sequence[Outcome]) -> None:
    """Say so if rounding may have spoilt values."""
    inexact = [outcome for outcome in outcomes if not outcome.is_exact.all()]
    conditions = [float(np.nanmax(o.condition)) for o in inexact if np.isfinite(o.condition).any()]
    if not conditions or max(conditions) * np.finfo(np.float64).eps <= TRUSTED_ERROR:
        return
    folds = sum(int(np.count_nonzero(~outcome.is_exact)) for outcome in inexact)
    warnings.warn(
        f"{folds} folds of {len(inexact)} candidates are not known to equal a refit: the linear "
        f"systems have a condition number of up to about {max(conditions):.1g}, so that rounding "
        "may exceed 1e-6. A larger alpha (smaller C) is well determined.",
        InexactWarning,
        stacklevel=4,
    )


def warn_if_approximate(outcome: Outcome) -> None:
    """Say so if a method was taken that does not refit: many folds of losses with kinks."""
    if not outcome.is_approximate:
        return
    warnings.warn(
        f"the held-out values are an approximation: {outcome.method}. It is close for folds "
        "of single rows; up to 20 folds, or order='exact', give the refits' own values.",
        InexactWarning,
        stacklevel=4,
    )
