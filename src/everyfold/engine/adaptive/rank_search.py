"""How many landmarks: twice as many in every round, until the best score stays where it is.

A user who passes ``n_landmarks="auto"`` leaves their number to the search. Only candidates with
such an operator are evaluated again; the others are done after the first round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from everyfold.engine.planning.plan import History, Strategy
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Outcome, mean_score, with_fields
from everyfold.engine.scoring.fold_scorers import column

# The number of landmarks to start from. A smaller start saves little: all rounds together cost a
# third more than the last one.
FIRST_LANDMARKS = 128

# The largest number of landmarks that a search tries.
MOST_LANDMARKS = 4096

# Scores have converged if doubling the landmarks changes the best one by less than this share of
# its error.
CONVERGED = 0.1


def with_rank(data: Data, landmarks: int) -> Data:
    """The same data, with so many landmarks where their number was left open."""
    if not landmarks:
        return data
    found = dict(data.candidates)
    for number in data.open_ranks:
        model = found[number].model
        operator = model.structure_for_any().with_params(n_landmarks=landmarks)
        found[number] = replace(found[number], model=replace(model, operator=operator))
    return replace(data, candidates=found)


@dataclass(frozen=True)
class RankSearch(Strategy):
    """All candidates with 128 landmarks, those whose number is open with 256, 512 and so on.

    Rounds end where the best mean score moves by less than a tenth of its standard error over the
    folds, or where there would be more landmarks than 4096 or rows. All rounds together cost a
    third more than the last.

    Attributes
    ----------
    metric : str
        The score that decides.
    cut : callable
        Cuts some candidates into units.
    first : sequence of Unit
    """

    metric: str
    cut: Callable[[Data], Sequence[Unit]]
    first: Sequence[Unit] = field(default=(), repr=False)

    @classmethod
    def of(cls, data: Data, metric: str, cut: Callable[[Data], Sequence[Unit]]) -> RankSearch:
        """The rounds of a search."""
        blank = cls(metric, cut)
        return replace(blank, first=blank._units(data, 0, list(data.candidates)))

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        is_at_end = FIRST_LANDMARKS * 2 ** len(history) > min(MOST_LANDMARKS, data.n)
        if is_at_end or (len(history) > 1 and self._has_converged(history)):
            return ()
        return self._units(data, len(history), data.open_ranks)

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class: three rounds."""
        more = (self._units(data, k, data.open_ranks) for k in (1, 2))
        return [*self.first, *(unit for units in more for unit in units)]

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """See base class: converged is what the last doubling moved by little."""
        before = {o.number: o for outcomes in history[:-1] for o in outcomes}
        return [
            with_fields(last, status="converged")
            for last in history[-1]
            if last.number in before and self._moved(before[last.number], last) <= self._error(last)
        ]

    def _units(self, data: Data, k: int, numbers: Sequence[int]) -> list[Unit]:
        """The units of some candidates in round k."""
        count = min(FIRST_LANDMARKS * 2**k, data.n)
        some = {number: data.candidates[number] for number in numbers}
        data = with_rank(replace(data, candidates=some), count)
        return [replace(unit, landmarks=count) for unit in self.cut(data)]

    def _has_converged(self, history: History) -> bool:
        before, last = (self._best(outcomes) for outcomes in history[-2:])
        return self._moved(before, last) <= self._error(last)

    def _best(self, outcomes: Sequence[Outcome]) -> Outcome:
        return max(outcomes, key=lambda o: (mean_score(o, self.metric), -o.number))

    def _moved(self, one: Outcome, two: Outcome) -> float:
        means = mean_score(one, self.metric), mean_score(two, self.metric)
        return abs(means[1] - means[0]) if np.isfinite(means).all() else np.inf

    def _error(self, outcome: Outcome) -> float:
        """A share of the standard error of a mean score; never nothing."""
        scores = column(outcome.scores, self.metric)
        error = float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0
        return max(CONVERGED * error, 1e-9 * abs(float(scores.mean())))
