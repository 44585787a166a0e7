"""What is said of values that are not known to equal those of refits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from everyfold._progress import pluralise, warn
from everyfold._typing import Mask, Score
from everyfold.crossval import InexactWarning
from everyfold.crossval.base import TRUSTED_ERROR
from everyfold.engine.records import Outcome

# The status of a candidate whose scores are an approximation of unknown error.
ESTIMATED = "estimated"
# The status of a candidate that an influence series says nothing of.
NEAR_IDENTITY = "near identity"


def exclude(outcome: Outcome) -> Outcome:
    """The outcome with the worst of all scores.

    The rule of Liu, Jiang & Liao (2014, footnote 2) for finite orders: where the kernel matrix is
    near the identity, the series is near the training error, and the criterion is set to infinity.
    """
    is_exact = np.zeros_like(outcome.is_exact)
    scores = [_worst(score) for score in outcome.scores]
    return replace(outcome, scores=scores, is_exact=is_exact, status=NEAR_IDENTITY)


def _worst(score: Score) -> Score:
    if isinstance(score, dict):
        return dict.fromkeys(score, -np.inf)
    return None if score is None else -np.inf


def warn_if_inexact(outcomes: Sequence[Outcome]) -> None:
    """Say once what is not known to equal refits: approximations, and what rounding has spoilt."""
    words = [*_approximated(outcomes), *_excluded(outcomes), *_spoilt(outcomes)]
    if words:
        warn(" ".join(words), InexactWarning)


def _approximated(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What was asked for by name and does not refit, how far off that may be, and what does."""
    found = [outcome for outcome in outcomes if outcome.caveat]
    if not found:
        return
    methods = ", ".join(dict.fromkeys(outcome.method for outcome in found))
    caveats = ". ".join(dict.fromkeys(outcome.caveat for outcome in found))
    radii = np.concatenate([outcome.radius for outcome in found])
    radii = radii[np.isfinite(radii)]
    if radii.size:
        caveats += f" (it is up to {radii.max():.3g} here)"
    whose = "" if len(outcomes) == 1 else f" of {_share(found, outcomes)}"
    yield (
        f"the held-out values{whose} are an approximation: {methods}. {caveats}. Use method='auto' "
        "to get the values of refits."
    )


def _share(found: Sequence[Outcome], outcomes: Sequence[Outcome]) -> str:
    return f"{len(found)} of {len(outcomes)} candidates"


def _excluded(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Whose kernel is near the identity, where a series of finite order was asked for."""
    found = [outcome for outcome in outcomes if outcome.status == NEAR_IDENTITY]
    if found:
        yield (
            f"The kernel of {_share(found, outcomes)} is near the identity (for half of the rows "
            "the kernel value with any other row is negligible). An influence series of finite "
            "order then only repeats the training error, so they get the score -inf. Use "
            "method='auto', or leave out such large values of gamma."
        )


def _spoilt(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Where rounding may have spoilt values; those that are inexact otherwise do not count."""
    found = [outcome.condition[_are_spoilt(outcome)] for outcome in outcomes]
    spoilt = [conditions for conditions in found if len(conditions)]
    if not spoilt:
        return
    folds, worst = sum(map(len, spoilt)), max(float(conditions.max()) for conditions in spoilt)
    yield (
        f"{pluralise(folds, 'fold')} of {pluralise(len(spoilt), 'candidate')} are not known to "
        "equal a "
        f"refit: rounding errors are multiplied by up to about {worst:.1g} (the condition number "
        "of the linear systems, or what centring leaves of a nearly constant kernel), and may "
        "exceed 1e-6. Use a larger alpha (smaller C)."
    )


def _are_spoilt(outcome: Outcome) -> Mask:
    """Which folds have systems that are too ill-conditioned; those of fits that failed are not."""
    error = np.nan_to_num(outcome.condition, posinf=0.0) * np.finfo(np.float64).eps
    spoilt: Mask = ~outcome.is_exact & (error > TRUSTED_ERROR)
    return spoilt
