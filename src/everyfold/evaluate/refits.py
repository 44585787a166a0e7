"""Refits of the user's own estimators, to confirm what was found without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from everyfold.criteria.base import Failure
from everyfold.criteria.refit import Refit
from everyfold.evaluate.data import Data, Outcome
from everyfold.evaluate.methods import MANY_FOLDS, Method
from everyfold.evaluate.rounds import History, Rounds, mean_score
from everyfold.evaluate.tiles import Group, Unit
from everyfold.models.private import fit_and_score
from everyfold.types import Params

__all__ = ["Confirm", "run_refits"]

AUTO_CONFIRM = 3
"""How many candidates are refitted by default if the winner's score is not exact."""

_WORDS = "refits of the estimator itself on every fold"


@dataclass(frozen=True)
class Confirm(Rounds):
    """Other rounds, and then refits of the best, which decide between them.

    Attributes
    ----------
    inner : Rounds
    count : int or None
        How many of the best are refitted; None for as many as seem needed: none if the winner's
        score is exact or belongs to an approximate kernel.
    metric : str
        The score that decides.
    """

    inner: Rounds
    count: int | None
    metric: str

    @property
    def first(self) -> Sequence[Unit]:  # type: ignore[override]
        """See base class."""
        return self.inner.first

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class; what refits by the estimator itself take is not known."""
        return self.inner.expected(data)

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        if any(outcome.is_refit for outcome in history[-1]):
            return ()
        return self.inner.after(history, data) or self._refits(history, data)

    def statuses(self, history: History) -> dict[int, str]:
        """See base class."""
        done = [round_ for round_ in history if not any(outcome.is_refit for outcome in round_)]
        return self.inner.statuses(done)

    def _refits(self, history: History, data: Data) -> list[Unit]:
        latest = {outcome.number: outcome for outcomes in history for outcome in outcomes}
        scores = {number: mean_score(outcome, self.metric) for number, outcome in latest.items()}
        order = sorted(scores, key=lambda number: (-scores[number], number))
        if not order or not math.isfinite(scores[order[0]]):
            return []
        count = self._needed(latest, order[0], data) if self.count is None else self.count
        method = Method(Refit(), _WORDS, 0.0, 0)
        return [
            Unit(((Group((number,), method),),), None, None, frozenset(), "", order="refit")
            for number in order[:count]
            if math.isfinite(scores[number])
        ]

    def _needed(self, latest: dict[int, Outcome], winner: int, data: Data) -> int:
        best = latest[winner]
        is_exact = bool(best.is_exact.all()) and not best.failures
        is_settled = is_exact or any(outcome.is_of_another_model for outcome in latest.values())
        return 0 if is_settled or data.n_folds > MANY_FOLDS else AUTO_CONFIRM


def run_refits(data: Data, unit: Unit) -> list[Outcome]:
    """Fit and score the estimators of a unit on every fold, as scikit-learn would."""
    return [_refit(data, number) for number in unit.numbers]


def _refit(data: Data, number: int) -> Outcome:
    folds = data.tasks[data.candidates[number].task].folds
    results = list(_results(data, number))
    unknown = np.full(len(folds), np.nan)
    failures = {
        i: Failure(RuntimeError("the refit failed"), result["fit_error"])
        for i, result in enumerate(results)
        if result["fit_error"] is not None
    }
    return Outcome(
        number,
        np.arange(len(folds)),
        [result["test_scores"] for result in results],
        None,
        np.ones(len(folds), dtype=bool),
        unknown,
        unknown,
        failures,
        seconds=(sum(r["fit_time"] for r in results), sum(r["score_time"] for r in results)),
        method=_WORDS,
        is_refit=True,
    )


def _results(data: Data, number: int) -> Iterator[Params]:
    own = data.own
    assert own is not None
    for fold in data.tasks[data.candidates[number].task].folds:
        yield fit_and_score(
            clone(own.estimator),
            own.X,
            own.y,
            scorer=own.scorer,
            train=fold.train,
            test=fold.test,
            verbose=0,
            parameters=clone(own.candidates[number], safe=False),
            fit_params=own.fit,
            score_params=own.score,
            return_times=True,
            error_score=own.error_score,
        )
