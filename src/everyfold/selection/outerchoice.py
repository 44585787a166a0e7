"""Which point of a path is chosen by the scores of outer folds, and the path in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.kernels.distances import dense
from everyfold.selection.descent import Descent, Point
from everyfold.selection.scales import params_of
from everyfold.selection.walks import Walked
from everyfold.types import Array, Params

MARGIN = 1.0 + 1e-9
"""Standard errors by which a point has to be better; if one fold alone differs, it is just one."""


@dataclass(frozen=True)
class OuterChoice:
    """The walks of all outer folds, and the point that they speak for; 0 is the start."""

    walks: Sequence[Walked]
    scores: Array
    losses: Array
    gain: Array
    error: Array
    best: int

    @classmethod
    def of(cls, walks: Sequence[Walked]) -> OuterChoice:
        """The best mean score, if it and the losses are better by more than a standard error."""
        scores = np.array([walked.scores for walked in walks])
        losses = np.array([walked.losses for walked in walks])
        gain, error = _gains(scores)
        is_better = gain > MARGIN * error
        if losses.size:
            fall, its_error = _gains(-losses)
            is_better &= fall > MARGIN * its_error
        best = int(np.argmax(np.where(is_better, gain, 0.0)))
        return cls(walks, scores, losses, gain, error, best)

    def path(self, points: Sequence[Point]) -> list[Params]:
        """All that is known of the points of all rows."""
        return [
            {
                **{"shrinkage": point.shrinkage, **params_of(point), "cv_error": point.error},
                **{"outer_scores": self.scores[:, k], "gain": self.gain[k]},
                **{"standard_error": self.error[k], "is_chosen": k == self.best},
                "outer_params": [params_of(walked.points[k]) for walked in self.walks],
                **({"outer_losses": self.losses[:, k]} if self.losses.size else {}),
            }
            for k, point in enumerate(points)
        ]


def _gains(scores: Array) -> tuple[Array, Array]:
    """By how much points are better than the start, (folds, points), and the standard error."""
    gains = scores - scores[:, :1]
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / math.sqrt(len(gains))


def shares_of(descent: Descent, gamma: Array) -> Array:
    """The share of each feature: its gamma times its spread."""
    X = dense(descent.X)
    spread = X.std(axis=0) if descent.model.choice.kernel == "laplacian" else X.var(axis=0)
    share: Array = gamma * spread
    return share / (float(share.sum()) or 1.0)


def summary_of(path: Sequence[Params], n_outer: int) -> str:
    """The path as a table in words."""
    lines = [f"{'shrinkage':>10} {'CV error':>10} {'outer score':>12} {'gain':>10} {'error':>9}"]
    for k, entry in enumerate(path):
        name = "start" if k == 0 else f"{entry['shrinkage']:g}"
        mark = "  <- chosen" if entry["is_chosen"] else ""
        lines.append(
            f"{name:>10} {entry['cv_error']:>10.4g} {entry['outer_scores'].mean():>12.4g} "
            f"{entry['gain']:>10.3g} {entry['standard_error']:>9.3g}{mark}"
        )
    return "\n".join([*lines, f"{n_outer} outer folds; gain and its standard error in pairs"])
