"""What is done next, given what is known: the only place where results decide about work.

A round is a list of units. What comes after it is a pure function of the outcomes so far, so that
the same outcomes lead the same way in one process, in several, and after an interruption.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Outcome
from everyfold.engine.scoring.fold_scores import column

# The outcomes of every round so far.
History = Sequence[Sequence[Outcome]]


class Strategy(ABC):
    """A first round, and a rule for those after it."""

    first: Sequence[Unit]
    """The units of the first round."""

    @property
    def planned(self) -> Sequence[Unit]:
        """The units that say what is going to be done; a trial before them does not."""
        return self.first

    @property
    def climbs(self) -> bool:
        """Whether candidates begin at low rank, and only the best get further."""
        return False

    @property
    def takes_parts(self) -> bool:
        """Whether what comes next depends on candidates that are known on some folds only."""
        return False

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """The units of the next round; none if there is nothing left to do."""
        return ()

    def expected(self, data: Data) -> Sequence[Unit]:
        """Units that are likely to be done in all rounds, for an estimate of their cost."""
        return self.first

    def status(self, outcome: Outcome) -> str:
        """How certain scores are, as far as they tell by themselves."""
        return outcome.status

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """Outcomes whose scores or status are to be stated anew in the end, when all is known."""
        return ()


@dataclass(frozen=True)
class SingleRound(Strategy):
    """One round."""

    first: Sequence[Unit]


def mean_score(outcome: Outcome, metric: str) -> float:
    """The mean over the folds, -inf where one of them has none."""
    if metric not in outcome.means:
        scores = column(outcome.scores, metric)
        mean = float(scores.mean()) if len(scores) else -np.inf
        outcome.means[metric] = mean if np.isfinite(mean) else -np.inf
    return outcome.means[metric]
