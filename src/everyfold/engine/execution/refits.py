"""Refits of the user's own estimators: to confirm what was found without, and where nothing is.

Refits are done by scikit-learn's own functions, so that their scores are those of ``GridSearchCV``.
The strategies here put them around other rounds: after these for the best candidates, beside them
for candidates that nothing speeds up, or instead of them where one timed fold says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from time import process_time, time

import numpy as np
from sklearn.base import clone

from everyfold._sklearn_private import HAS_CALLBACKS, MultimetricScorer, fit_and_score, safe_split
from everyfold._typing import Array, Estimator, Matrix, Params
from everyfold.adapters.pipelines import final_step
from everyfold.crossval.base import Failure
from everyfold.crossval.refit import Refit
from everyfold.engine.planning.methods import MANY_FOLDS, Method
from everyfold.engine.planning.plan import History, Strategy
from everyfold.engine.planning.refit_costs import PlainFits
from everyfold.engine.planning.units import Group, Unit
from everyfold.engine.reading.reader import shares_distributions
from everyfold.engine.records import REFITTED, Candidate, Data, Outcome, mean_score, with_fields
from everyfold.engine.scoring.fold_scorers import FoldScores, by_name
from everyfold.estimators.targets import Target

# How many candidates are refitted by default if the winner's score is not exact.
AUTO_CONFIRM = 3

_WORDS = "refits of the estimator itself on every fold"
_OF_DISTRIBUTIONS = "held-out distributions of all folds, one factorisation"


@dataclass(frozen=True)
class _Around(Strategy):
    """Other rounds, and refits of estimators beside them, of which nobody knows what they take."""

    inner: Strategy

    @property
    def first(self) -> Sequence[Unit]:  # type: ignore[override]
        """See base class."""
        return self.inner.first

    @property
    def planned(self) -> Sequence[Unit]:
        """See base class."""
        return self.inner.planned

    @property
    def begins_at_low_rank(self) -> bool:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        return self.inner.begins_at_low_rank

    def expected(self, data: Data) -> Sequence[Unit]:
        """See base class; without the refits."""
        return self.inner.expected(data)

    def status(self, outcome: Outcome) -> str:
        """See base class; what was refitted says so itself."""
        is_inner = not outcome.is_refit and outcome.status != REFITTED
        return self.inner.status(outcome) if is_inner else outcome.status


@dataclass(frozen=True)
class ConfirmByRefit(_Around):
    """Other rounds, and then refits of the best, which decide between them.

    Attributes
    ----------
    inner : Strategy
    count : int or None
        How many of the best are refitted; None for as many as seem needed: none if the winner's
        score is exact or belongs to an approximate kernel.
    metric : str
        The score that decides.
    """

    count: int | None
    metric: str

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        if any(outcome.is_refit for outcome in history[-1]):
            return ()
        return self.inner.after(history, data) or self._refits(history, data)

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """See base class; what was refitted is known."""
        known = {outcome.number for round_ in history for outcome in round_ if outcome.is_refit}
        found = self.inner.restated(_before_refits(history), data)
        return [outcome for outcome in found if outcome.number not in known]

    def _refits(self, history: History, data: Data) -> list[Unit]:
        all_of_them = (outcome for outcomes in history for outcome in outcomes)
        latest = {outcome.number: outcome for outcome in all_of_them if not outcome.pilot}
        scores = {number: mean_score(outcome, self.metric) for number, outcome in latest.items()}
        order = sorted(scores, key=lambda number: (-scores[number], number))
        if not order or not math.isfinite(scores[order[0]]):
            return []
        count = self._needed(latest, order[0], data) if self.count is None else self.count
        numbers = [number for number in order[:count] if math.isfinite(scores[number])]
        return [_unit(number) for number in numbers]

    def _needed(self, latest: dict[int, Outcome], winner: int, data: Data) -> int:
        best = latest[winner]
        is_exact = bool(best.is_exact.all()) and not best.failures
        is_settled = is_exact or any(outcome.is_of_another_model for outcome in latest.values())
        return 0 if is_settled or data.n_folds > MANY_FOLDS else AUTO_CONFIRM


@dataclass(frozen=True)
class WithRefits(_Around):
    """Other rounds, and in the first of them refits of the candidates that nothing speeds up.

    Attributes
    ----------
    inner : Strategy
    units : sequence of Unit
        One for every such candidate and fold.
    """

    units: Sequence[Unit]

    @property
    def first(self) -> Sequence[Unit]:  # type: ignore[override]
        """See base class."""
        return [*self.inner.first, *self.units]

    @property
    def planned(self) -> Sequence[Unit]:
        """See base class."""
        return [*self.inner.planned, *self.units]

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        return self.inner.after(_without_refitted(history), data)

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """See base class."""
        return self.inner.restated(_without_refitted(history), data)


@dataclass(frozen=True)
class Timed(_Around):
    """One refit of a fold, whose time decides between other rounds and refits of all candidates.

    Attributes
    ----------
    inner : Strategy
    units : sequence of Unit
        The refits: one for every candidate and fold.
    limit : float
        The seconds of all other refits below which they are done.
    """

    units: Sequence[Unit]
    limit: float

    @cached_property
    def trial(self) -> Unit:
        """The first fold of a candidate in the middle of the grid, whose penalty is no extreme."""
        firsts = [unit for unit in self.units if unit.folds == (0,)]
        return replace(firsts[len(firsts) // 2], pilot=1)

    @property
    def first(self) -> Sequence[Unit]:  # type: ignore[override]
        """See base class."""
        return [self.trial]

    def after(self, history: History, data: Data) -> Sequence[Unit]:
        """See base class."""
        if not self._refits(history):
            later = history[1:]
            return self.inner.after(later, data) if later else self.inner.first
        known = replace(self.trial, pilot=0)
        return [unit for unit in self.units if unit != known] if len(history) == 1 else ()

    def restated(self, history: History, data: Data) -> Sequence[Outcome]:
        """See base class."""
        return () if self._refits(history) else self.inner.restated(history[1:], data)

    def _refits(self, history: History) -> bool:
        """Whether the other refits should take less than the limit, by the seconds of the trial."""
        (trial,) = (outcome for outcome in history[0] if outcome.pilot)
        factor = 1.0  # a fit that fails tells nothing of the others
        if not trial.failures:
            factor = sum(trial.seconds) / self.trial.seconds
        left = sum(unit.seconds for unit in self.units) - self.trial.seconds
        return factor * left < self.limit


def _before_refits(history: History) -> History:
    return [round_ for round_ in history if not any(outcome.is_refit for outcome in round_)]


def _without_refitted(history: History) -> History:
    return [[o for o in outcomes if o.pilot or o.status != REFITTED] for outcomes in history]


def refit_units(data: Data) -> list[Unit]:
    """The candidates that nothing speeds up, fold by fold as scikit-learn would take them.

    Those whose folds share their distributions are evaluated on all of them at once.
    """
    shared = with_distributions(data)
    return [_unit(number, _OF_DISTRIBUTIONS) for number in shared] + [
        replace(_unit(number), folds=(fold,))
        for number in data.foreign
        if number not in shared
        for fold in range(data.n_folds)
    ]


def with_distributions(data: Data) -> list[int]:
    """The candidates left to refits whose folds share the distributions that are scored."""
    own = data.own
    return [] if own is None else [k for k in data.foreign if shares_distributions(own, k)]


def plain_units(data: Data, fits: Mapping[int, PlainFits]) -> list[Unit]:
    """The same of candidates that might be sped up, but are better refitted."""
    return [
        replace(_unit(number, own.words, own.seconds / data.n_folds), folds=(fold,))
        for number, own in fits.items()
        for fold in range(data.n_folds)
    ]


def _unit(number: int, words: str = _WORDS, seconds: float = 0.0) -> Unit:
    groups = ((Group((number,), Method(Refit(), words, seconds, 0)),),)
    return Unit(groups, None, None, frozenset(), "", order="refit", seconds=seconds)


def run_refits(data: Data, unit: Unit) -> list[Outcome]:
    """Fit and score the estimators of a unit on its folds, as scikit-learn would."""
    folds = range(data.n_folds) if unit.folds is None else unit.folds
    words, start = unit.methods[0].words, process_time()
    if words == _OF_DISTRIBUTIONS:
        with suppress(Exception):  # what fails is done again, and told, as scikit-learn does it
            return [_of_distributions(data, number) for number in unit.numbers]
    found = [
        _outcome(data, number, folds, [_fit(data, number, fold) for fold in folds], words)
        for number in unit.numbers
    ]
    if not unit.pilot:
        return found
    # Processor time, not wall time: other programs must not count.
    used = process_time() - start
    return [
        with_fields(o, pilot=unit.pilot, seconds=(min(sum(o.seconds), used), 0.0)) for o in found
    ]


def _of_distributions(data: Data, number: int) -> Outcome:
    """The scores of a candidate whose folds share distributions; raises if they do not."""
    own, start = data.own, time()
    assert own is not None
    estimator = clone(own.estimator).set_params(**clone(own.candidates[number], safe=False))
    scorers = by_name(own.scorer)
    splits = [data.split(fold) for fold in range(data.n_folds)]
    folds = next(iter(scorers.values())).distributions(estimator, own.X, own.y, splits)
    fitted = time()
    scores = FoldScores(
        {name: scorer.of_folds(folds) for name, scorer in scorers.items()},
        isinstance(own.scorer, MultimetricScorer),
    )
    each = (fitted - start) / len(splits), (time() - fitted) / len(splits)
    unknown = np.full(len(splits), np.nan)
    return Outcome(
        number,
        np.arange(len(splits)),
        scores,
        None,
        np.ones(len(splits), dtype=bool),
        *(unknown, unknown, {}),
        seconds=(fitted - start, time() - fitted),
        times=[each] * len(splits),
        method=_OF_DISTRIBUTIONS,
    )


def failed_refits(data: Data, unit: Unit, failure: Failure) -> list[Outcome]:
    """The outcomes of refits that could not be done."""
    folds = range(data.n_folds) if unit.folds is None else unit.folds
    nothing: Params = {"fit_error": failure.trace, "test_scores": None, "train_scores": None}
    results = [{**nothing, "fit_time": 0.0, "score_time": 0.0}] * len(folds)
    words = unit.methods[0].words
    found = [_outcome(data, number, folds, results, words) for number in unit.numbers]
    return [with_fields(o, failures=dict.fromkeys(folds, failure), pilot=unit.pilot) for o in found]


def _outcome(
    data: Data, number: int, folds: Sequence[int], results: Sequence[Params], words: str
) -> Outcome:
    is_foreign = number in data.foreign
    unknown = np.full(len(folds), np.nan)
    failures = {
        fold: Failure(RuntimeError("the refit failed"), result["fit_error"])
        for fold, result in zip(folds, results, strict=True)
        if result["fit_error"] is not None
    }
    times = [(result["fit_time"], result["score_time"]) for result in results]
    assert data.own is not None
    with_train = is_foreign and data.own.wants.train_scores
    outcome = Outcome(
        number,
        np.array(folds, dtype=np.intp),
        [result["test_scores"] for result in results],
        [result["train_scores"] for result in results] if with_train else None,
        np.ones(len(folds), dtype=bool),
        unknown,
        unknown,
        failures,
        seconds=(sum(fit for fit, _ in times), sum(score for _, score in times)),
        times=times,
        method=words,
        is_refit=not is_foreign,
        status=REFITTED if is_foreign else "",
    )
    if not _keeps_values(data, number):
        return outcome
    if all("values" in result for result in results):
        return with_fields(outcome, values=np.concatenate([r["values"] for r in results]))
    outcome = with_fields(outcome, fitted=[result.get("estimator") for result in results])
    return outcome if _waits(data, number) else with_values(outcome, data)


def _fit(data: Data, number: int, fold: int) -> Params:
    """One fit and its scores."""
    if _needs_values_only(data, number, fold):
        with suppress(Exception):  # what fails is done again, and told, as scikit-learn does it
            return _fit_for_values(data, number, fold)
    return _fit_and_score(data, number, fold)


def _needs_values_only(data: Data, number: int, fold: int) -> bool:
    """Whether the scores of a refit are known by the held-out values, and nobody watches it.

    Scikit-learn scores a fold in 0.3 ms, of which our own arithmetic takes a tenth, and takes the
    rows of a fold anew for each candidate: together 5 to 20 % of short fits.
    """
    own, candidate = data.own, data.candidates.get(number)
    if own is None or candidate is None or number not in data.foreign:
        return False
    task, wants = data.tasks[candidate.task], own.wants
    return (
        _is_linear(candidate)
        and not candidate.parts.steps
        and task.judge is not None
        and task.judge.knows_predictions
        and fold not in task.failing
        and not (wants.train_scores or own.metadata.fit or own.metadata.score)
        and not (data.contexts or own.verbose > 1)
    )


def _fit_for_values(data: Data, number: int, fold: int) -> Params:
    """One fit and its scores, which are those of its held-out values."""
    own, candidate = data.own, data.candidates[number]
    assert own is not None
    task = data.tasks[candidate.task]
    assert task.judge is not None
    estimator = clone(own.estimator).set_params(**clone(own.candidates[number], safe=False))
    start = time()
    # A fit that may write on its rows gets some of its own.
    is_shared, key = getattr(estimator, "copy_X", True), ("refit", candidate.task, fold)
    known = data.cache.get(key) if is_shared else None
    if known is None:
        train, test = data.split(fold)
        X, y = safe_split(estimator, own.X, own.y, train)
        known = X, y, safe_split(estimator, own.X, None, test, train)[0], task.tile((fold,)).test
        if is_shared:
            data.cache.put(key, *known)
    X, y, held, side = known
    estimator.fit(X, y)
    fitted = time()
    values = _answers(estimator, held, task.target)
    (score,) = task.judge.score(values, side, {})
    return {
        "fit_error": None,
        "fit_time": fitted - start,
        "score_time": time() - fitted,
        "test_scores": score,
        "train_scores": None,
        "values": values,
    }


def _fit_and_score(data: Data, number: int, fold: int) -> Params:
    """The same by scikit-learn; a fit that confirms others prints nothing, calls no callbacks."""
    own, is_foreign = data.own, number in data.foreign
    assert own is not None
    train, test = data.split(fold)
    told: Params = {}
    if is_foreign:
        told = {
            "return_estimator": _keeps_values(data, number),
            "return_train_score": own.wants.train_scores,
            "split_progress": (fold, data.n_folds),
            "candidate_progress": (number, len(own.candidates)),
        }
        if HAS_CALLBACKS:
            told |= {"caller": data.caller, "callback_ctx": data.contexts.get((number, fold))}
    return fit_and_score(  # type: ignore[no-any-return]
        clone(own.estimator),
        own.X,
        own.y,
        scorer=own.scorer,
        train=train,
        test=test,
        verbose=own.verbose if is_foreign else 0,
        parameters=own.candidates[number],
        fit_params=own.metadata.fit,
        score_params=own.metadata.score,
        return_times=True,
        error_score=own.options.error_score,
        **told,
    )


# -- held-out values ---------------------------------------------------------------------------


def _keeps_values(data: Data, number: int) -> bool:
    """Whether held-out values of a refitted candidate are wanted, and can be read."""
    assert data.own is not None
    is_known = number in data.foreign and number in data.candidates
    return is_known and data.own.wants.keeps is not None


def _waits(data: Data, number: int) -> bool:
    """Whether the fitted estimators themselves are kept until it is known whose values are wanted.

    Those of linear models are small, and predicting again takes a few percent of the time.
    """
    assert data.own is not None
    wants = data.own.wants
    return _is_linear(data.candidates[number]) and wants.keeps == "best" and not wants.journal


def _is_linear(candidate: Candidate) -> bool:
    model = candidate.model
    return bool(model.loss.is_smooth and model.choice.resolve_for_any().is_linear)


def refitted_again(data: Data, number: int) -> Outcome:
    """A candidate refitted once more, for the held-out values that were not kept."""
    assert data.own is not None
    own = replace(data.own, verbose=0, wants=replace(data.own.wants, keeps="all"))
    return run_refits(replace(data.refitting({number: ""}), own=own), _unit(number))[0]


def with_values(outcome: Outcome, data: Data) -> Outcome:
    """The outcome with the values that its fitted estimators predict, if it has such."""
    if outcome.fitted is None:
        return outcome
    values = _values(data, outcome.number, outcome.folds.tolist(), outcome.fitted)
    return with_fields(outcome, values=values, fitted=None)


def _values(
    data: Data, number: int, folds: Sequence[int], fitted: Sequence[Estimator | None]
) -> Array:
    """What fitted estimators say of their test rows, of the folds that may have a model."""
    task = data.tasks[data.candidates[number].task]
    found = [np.empty((0, task.width))]
    for fold, estimator in zip(folds, fitted, strict=True):
        if fold in task.failing:
            continue
        values = np.full((len(data.split(fold)[1]), task.width), np.nan)
        if estimator is not None:
            values = _held_out(data, fold, estimator, task.target)
        found.append(values)
    return np.concatenate(found)


def _held_out(data: Data, fold: int, estimator: Estimator, target: Target) -> Array:
    """The values of a fold's test rows as the target codes them."""
    own, (train, test) = data.own, data.split(fold)
    assert own is not None
    X, _ = safe_split(estimator, own.X, own.y, test, train)
    return _answers(estimator, X, target)


def _answers(estimator: Estimator, X: Matrix, target: Target) -> Array:
    """What a fitted estimator says of some rows, as the target codes it."""
    if target.classes is None:
        found = estimator.predict(X)
    else:
        if target.has_pairs:
            final_step(estimator).decision_function_shape = "ovo"
        found = estimator.decision_function(X)
    return np.asarray(found, dtype=np.float64).reshape(len(found), -1)
