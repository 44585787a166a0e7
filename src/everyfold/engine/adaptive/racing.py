"""A race: fold after fold, without the kernels that cannot win any more.

Where only winners are asked for, a kernel need not be evaluated on all folds. The mean score of a
candidate is at most that of its folds so far with perfect predictions on the others; once that is
below the mean of a candidate whose folds are all known, it has lost, whatever is still to come.

**Exact?** Yes: the winners are those of all candidates on all folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from everyfold._typing import Array, Mask
from everyfold.crossval.refit import Refit
from everyfold.engine.planning.plan import History, Strategy
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Task
from everyfold.engine.scoring.fold_scorers import column

# Means that differ by this share are a tie, in which all go on.
_ROUNDING = 1e-9


def may_race(task: Task, units: Sequence[Unit]) -> bool:
    """Whether perfect predictions bound the scores, and folds are evaluated one by one."""
    if task.judge is None or not task.judge.needs_errors_only or task.failing:
        return False
    return all(
        unit.order == "kernel" and isinstance(method.criterion, Refit)
        for unit in units
        for method in unit.methods
    )


@dataclass(frozen=True)
class Racing(Strategy):
    """One fold of every group after the other, for the kernels that may still win there.

    Attributes
    ----------
    units : sequence of Unit
        One for every kernel, on all folds.
    groups : sequence of tuple of int
        The folds that have a winner of their own.
    metric : str
        The score that decides.
    perfect : array
        What perfect predictions score on every fold.
    """

    units: Sequence[Unit] = field(repr=False)
    groups: Sequence[tuple[int, ...]]
    metric: str
    perfect: Array

    takes_parts = True

    @classmethod
    def of(
        cls, task: Task, units: Sequence[Unit], groups: Sequence[tuple[int, ...]], metric: str
    ) -> Racing:
        """The race for the winner of every group of folds."""
        assert task.judge is not None
        side = task.whole.test
        perfect = column(task.judge.score(side.y, side, task.whole.lacking), metric)
        return cls(units, groups, metric, perfect)

    @property
    def first(self) -> Sequence[Unit]:  # type: ignore[override]  # an attribute elsewhere
        """The first fold of every group, for all kernels."""
        folds = tuple(group[0] for group in self.groups)
        return [replace(unit, folds=folds) for unit in self.units]

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        scores = self._scores(history)
        wanted: list[set[int]] = [set() for _ in self.units]
        for group in self.groups:
            for k, folds in self._next(group, scores):
                wanted[k] |= set(folds)
        return [
            replace(unit, folds=tuple(sorted(folds)))
            for unit, folds in zip(self.units, wanted, strict=True)
            if folds
        ]

    def _scores(self, history: History) -> list[Array]:
        """The scores so far of every kernel, (candidates, folds); NaN where there is none."""
        places = {n: (k, i) for k, u in enumerate(self.units) for i, n in enumerate(u.numbers)}
        found = [np.full((len(u.numbers), len(self.perfect)), np.nan) for u in self.units]
        for outcome in (outcome for outcomes in history for outcome in outcomes):
            k, i = places[outcome.number]
            known = column(outcome.scores, self.metric)
            found[k][i, outcome.folds] = np.where(np.isnan(known), -np.inf, known)
        return found

    def _next(
        self, group: tuple[int, ...], scores: Sequence[Array]
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """The kernels that are still in the race for a group, and what they are evaluated on next.

        The best on the first fold runs through at once: it is what the others have to beat.
        """
        folds = np.array(group)
        bounds = [self._bound(own[:, folds], folds).max(initial=-np.inf) for own in scores]
        is_done = [_is_known(own[:, folds]).all() for own in scores]
        if not any(is_done):
            best = int(np.argmax(bounds))
            yield best, folds[~_is_known(scores[best][:, folds]).all(axis=0)].tolist()
            return
        bar = max(bound for bound, done in zip(bounds, is_done, strict=True) if done)
        bar -= _ROUNDING * max(1.0, abs(bar))
        for k, (bound, done) in enumerate(zip(bounds, is_done, strict=True)):
            if not done and bound >= bar:
                missing = folds[~_is_known(scores[k][:, folds]).all(axis=0)]
                yield k, missing[:1].tolist()

    def _bound(self, own: Array, folds: Array) -> Array:
        """What the mean of every candidate is at most."""
        bound: Array = np.where(_is_known(own), own, self.perfect[folds]).mean(axis=1)
        return bound


def _is_known(scores: Array) -> Mask:
    known: Mask = ~np.isnan(scores)
    return known
