"""Nested cross-validation: the folds of all inner searches from shared work.

A search that is scored on outer folds is one search for each of them. Here the inner folds of all
of these are folds of one request, and the winner of each outer fold is scored afterwards. Where
that would change a score, the call is left to scikit-learn's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from sklearn.base import clone
from sklearn.metrics import check_scoring

from everyfold._sklearn_private import (
    BaseSearchCV,
    MultimetricScorer,
    check_method_params,
    num_samples,
    safe_split,
)
from everyfold._typing import Estimator, Index, Params, Score, Scorer, Search
from everyfold.engine.adaptive.low_rank_first import LOW_RANK_FIRST_ROWS
from everyfold.engine.adaptive.racing import Racing, may_race
from everyfold.engine.execution.executor import execute
from everyfold.engine.planning.methods import MANY_FOLDS
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.planner import plan
from everyfold.engine.reading.reader import read, splits_of
from everyfold.engine.records import Data, Outcome, join
from everyfold.engine.request import Metadata, MethodOptions, Options, Request, RequestedOutputs
from everyfold.engine.results import PER_TARGET, best_index, entries_of, is_rule
from everyfold.engine.scoring.metrics import is_own_score
from everyfold.folds import Folds
from everyfold.functions.fallback import NotSpedUp, check_plan
from everyfold.operators import Structure

Split = tuple[Index, Index]

# How folds are evaluated whose scores are those of a search of their own.
_EXACT: Params = {"order": "exact", "granularity": None, "n_confirm": 0}
_EXACT["preprocessing"] = "per_fold"


def is_search(estimator: Estimator) -> bool:
    """Whether an estimator is one of the library's searches."""
    return isinstance(estimator, BaseSearchCV) and hasattr(estimator, "plan")


def nest(request: Request) -> tuple[Data, Outcome]:
    """The scores of a search on outer folds, equal to those of searching every training set.

    All inner folds of all outer ones are folds of one task on all rows: for squared loss, removals
    of outer and inner rows together from one factorisation, wherever that is cheaper than a
    reduction of every training set. Where that is costly, the searches begin at low rank, each on
    the rows of its outer fold. The winner of every outer fold is then evaluated there.

    **Exact?** Yes, as the searches themselves: of those that begin at low rank, the winners.
    Whatever would make their scores depend on more than their own folds is left to these searches,
    one for each outer fold (``NotSpedUp``).
    """
    search = request.estimator
    if request.wants.pools is True:
        raise ValueError(
            "pooled=True cannot be combined with a search as the estimator, because the winners "
            "differ between outer folds; use larger folds, or cross_val_predict"
        )
    _check(request, _reason(search, request))
    request = request.indexed()
    outer = [_rows(split, num_samples(request.X)) for split in splits_of(request)]
    inner = list(_inner(request, outer))
    asked, *_ = clone(search)._request(request.X, request.y, request.metadata.fit)
    if asked.options.n_jobs is None:
        asked = replace(asked, options=replace(asked.options, n_jobs=request.options.n_jobs))
    _check(request, _reason_of_folds(inner, asked))
    winners = _winners_from_low_rank(request, inner) or _winners(request, asked, inner)
    return _on_outer_folds(request, asked, outer, winners)


@dataclass(frozen=True)
class _Inner:
    """The search of one outer fold: what it asks for, and its folds as rows of all data."""

    asked: Request
    splits: Sequence[Split]

    @property
    def candidates(self) -> Sequence[Params]:
        """What it tries."""
        return self.asked.candidates


def _check(request: Request, reason: str) -> None:
    """Leave the outer folds to a search each, which is no slower way and needs no warning."""
    if reason:
        raise NotSpedUp(reason, replace(request, options=Options(fallback="refit")))


def _reason(search: Search, request: Request) -> str:
    """Why folds of several searches are not evaluated together; empty if they may be."""
    metadata, how = request.metadata, MethodOptions.of(search.method)
    scoring, pools = search._read_scoring()
    has_structure = any(isinstance(own, Structure) for own in (search.operator, how.operator))
    is_own_metric = is_own_score(request.scorer) and not isinstance(search.refit, bool | str)
    for is_so, words in (
        (request.is_source, "rows come from a source"),
        (not search.refit, "the search does not refit"),
        (how.criterion is not None, "the criterion has no folds"),
        (how.order not in ("auto", "exact", np.inf), "the order is an approximation"),
        (how.n_confirm not in ("auto", 0), "refits are to confirm scores"),
        (pools is True, "scores are pooled"),
        (how.ridge_scaling != "sum", "the ridge grows with the rows"),
        (search.preprocessing == "once", "steps are fitted on all rows of each search"),
        (has_structure, "the operator may depend on the rows"),
        (search.refit == PER_TARGET, "every target has a winner of its own"),
        (bool(metadata.score), "scorers get metadata"),
        (callable(scoring) and is_own_score(request.scorer), "a callable scores"),
        (is_own_metric and isinstance(scoring, list | tuple | dict | set), "refit is a rule"),
    ):
        if is_so:
            return words
    return ""


def _rows(split: Split, n: int) -> Split:
    """The rows of a split by number."""
    train, test = (np.arange(n)[np.asarray(part)] for part in split)
    return train, test


def _inner(request: Request, outer: Sequence[Split]) -> Iterator[_Inner]:
    """What a search of every outer training set would try, on which folds."""
    for train, _ in outer:
        search = clone(request.estimator)
        X, y = safe_split(search, request.X, request.y, train)
        params = check_method_params(request.X, params=request.metadata.fit, indices=train)
        asked, *_ = search._request(X, y, params)
        try:
            splits = [_rows(split, len(train)) for split in splits_of(asked.indexed())]
        except ValueError as error:  # the search of this fold fails, and error_score counts
            _check(request, str(error))
        own = replace(asked, cv=splits)
        yield _Inner(own, [(train[a], train[b]) for a, b in splits])


def _reason_of_folds(inner: Sequence[_Inner], asked: Request) -> str:
    first = inner[0]
    sizes = [len(test) for own in inner for _, test in own.splits]
    for is_so, words in (
        (any(_differ(own.candidates, first.candidates) for own in inner), "candidates differ"),
        (_differ(asked.candidates, first.candidates), "candidates are drawn anew"),
        (any(len(own.splits) > MANY_FOLDS for own in inner), "there are many folds"),
        (min(sizes) < 2, "folds of one row may be pooled"),
        (num_samples(asked.X) >= LOW_RANK_FIRST_ROWS, "large searches begin at low rank"),
    ):
        if is_so:
            return words
    return ""


def _differ(some: Sequence[Params], others: Sequence[Params]) -> bool:
    return [repr(sorted(p.items(), key=str)) for p in some] != [
        repr(sorted(p.items(), key=str)) for p in others
    ]


def _winners_from_low_rank(request: Request, inner: Sequence[_Inner]) -> list[int]:
    """The best candidate of every outer fold by a search of its rows that begins at low rank.

    Empty if such searches would not, all of them together being quick enough.
    """
    winners = []
    for own in inner:
        options = replace(own.asked.options, fallback="refit", repeats=len(inner))
        wants = replace(own.asked.wants, keeps=None, train_scores=False)
        metadata = Metadata(own.asked.metadata.fit, score=own.asked.metadata.score)
        asked = replace(own.asked, options=options, wants=wants, metadata=metadata)
        try:
            data = read(asked)
            made = plan(data, asked)
        except ValueError:  # a search that fails, which the folds of all of them report
            return []
        if made.plain.keys() == data.candidates.keys():  # refits alone share nothing
            check_plan(made, request)
        if data.foreign or data.refused or not made.rounds.begins_at_low_rank:
            return []
        parts = _parts(execute(made, data, options.n_jobs), asked, data)
        if parts is None:
            return []
        table = _InnerScores(request.estimator, asked, data, parts)
        best, is_exact = table.best(range(data.n_folds))
        _check(request, "" if is_exact else "a winner is not exact")
        winners.append(best)
    return winners


def _winners(request: Request, asked: Request, inner: Sequence[_Inner]) -> list[int]:
    """The best candidate of every outer fold by its inner folds."""
    splits = [split for own in inner for split in own.splits]
    options = replace(asked.options, **_EXACT, fallback="refit")
    wants = RequestedOutputs(mean_scores=False, pools=False, selects_by=None, refits=True)
    metadata = Metadata(asked.metadata.fit, score=asked.metadata.score)
    asked = replace(asked, cv=splits, options=options, wants=wants, metadata=metadata)
    data = read(asked)
    _check(request, "candidates are refitted" if data.foreign or data.refused else "")
    # Other models of some rows are not those of a search of these rows.
    are_plain = all(c.model.operator in ("auto", "dense") for c in data.candidates.values())
    _check(request, "" if are_plain else "the operator may depend on the rows")
    bounds = np.cumsum([0, *(len(own.splits) for own in inner)])
    groups = [tuple(range(a, b)) for a, b in pairwise(bounds)]
    made = plan(data, asked)
    if made.plain.keys() == data.candidates.keys():  # not in a search alone, which is quick
        made = plan(data, replace(asked, wants=replace(wants, refits=False)))
    made = _raced(made, data, groups, request.estimator)
    parts = _parts(execute(made, data, options.n_jobs), asked, data)
    _check(request, "folds fail" if parts is None else "")
    table = _InnerScores(request.estimator, asked, data, parts or {})
    found = [table.best(group) for group in groups]
    _check(request, "" if all(is_exact for _, is_exact in found) else "a winner is not exact")
    return [best for best, _ in found]


def _raced(
    made: SearchPlan, data: Data, groups: Sequence[tuple[int, ...]], search: Search
) -> SearchPlan:
    """The plan without kernels that cannot win any more, where the best mean score decides."""
    units = made.rounds.first
    if is_rule(search.refit) or not may_race(data.tasks[0], units):
        return made
    metric = search.refit if isinstance(search.refit, str) else "score"
    return replace(made, rounds=Racing.of(data.tasks[0], units, groups, metric))


@dataclass(frozen=True)
class _Part:
    """A candidate on one fold: what scikit-learn's table wants to know, and whether it is exact."""

    entry: Params
    is_exact: bool


# By candidate and fold.
Parts = dict[int, dict[int, _Part]]


def _parts(done: Iterable[Sequence[Outcome]], asked: Request, data: Data) -> Parts | None:
    """What became of every candidate on every fold that it was evaluated on; None if some fail."""
    found: Parts = {}
    for outcome in (outcome for some in done for outcome in some):
        if outcome.failures:
            return None
        folds = outcome.folds.tolist()
        sizes = [data.sizes[fold] for fold in folds]
        entries = entries_of(asked, data, outcome, outcome.number, sizes)
        parts = map(_Part, entries, outcome.is_exact.tolist())
        found.setdefault(outcome.number, {}).update(zip(folds, parts, strict=True))
    return found


@dataclass(frozen=True)
class _InnerScores:
    """The scores of candidates on inner folds, by number and fold."""

    search: Search
    request: Request
    data: Data
    parts: Parts

    def best(self, folds: Sequence[int]) -> tuple[int, bool]:
        """The candidate that a search with these folds chooses, and whether its scores are exact.

        The table is made by scikit-learn's own hand, so that ties are broken as there. Candidates
        that were not evaluated on all of the folds have lost already.
        """
        whole = {k: own for k, own in self.parts.items() if all(fold in own for fold in folds)}
        numbers = sorted(whole)
        out = [whole[number][fold].entry for number in numbers for fold in folds]
        search = clone(self.search).set_params(return_train_score=False)
        params = [self.request.candidates[number] for number in numbers]
        results = search._format_results(params, len(folds), out)
        metric = self.search.refit if isinstance(out[0]["test_scores"], dict) else "score"
        ridges = [max(self.data.candidates[number].model.ridges) for number in numbers]
        best = numbers[best_index(self.search.refit, metric, results, len(folds), ridges)]
        return best, all(whole[best][fold].is_exact for fold in folds)


def _on_outer_folds(
    request: Request, asked: Request, outer: Sequence[Split], winners: Sequence[int]
) -> tuple[Data, Outcome]:
    """The scores of every outer fold's winner there, as those of one candidate."""
    parts, data = [], None
    for winner in sorted(set(winners)):
        folds = [i for i, own in enumerate(winners) if own == winner]
        own = _for_winner(request, asked, winner, [outer[i] for i in folds])
        data = read(own)
        _check(request, next(iter(data.foreign.values()), ""))
        try:
            made = plan(data, own)
        except ValueError as error:  # a score that single rows do not have is NaN in the loop
            _check(request, str(error))
        ((outcome,),) = execute(made, data, own.options.n_jobs)
        _check(request, "an outer fold fails" if outcome.failures else "")
        parts += list(_by_fold(outcome, folds, [len(outer[i][1]) for i in folds]))
    assert data is not None
    task = replace(data.tasks[0], folds=Folds.from_splits(outer, data.n))
    return replace(data, tasks=(task,)), join(parts)


def _for_winner(request: Request, asked: Request, winner: int, splits: Sequence[Split]) -> Request:
    estimator = clone(asked.estimator).set_params(**clone(asked.candidates[winner], safe=False))
    options = replace(asked.options, **_EXACT, error_score=request.options.error_score)
    wants = replace(request.wants, pools=False)
    scorer = _outer_scorer(request, asked, estimator)
    fit = Metadata(asked.metadata.fit)
    return Request(estimator, [{}], request.X, request.y, splits, scorer, fit, options, wants)


def _outer_scorer(request: Request, asked: Request, estimator: Estimator) -> Scorer:
    """What outer folds are scored by: as asked for, or by what the search selects by."""
    if not is_own_score(request.scorer):
        return request.scorer
    if isinstance(asked.scorer, MultimetricScorer):
        return asked.scorer._scorers[request.estimator.refit]
    return check_scoring(estimator) if is_own_score(asked.scorer) else asked.scorer


def _by_fold(outcome: Outcome, folds: Sequence[int], sizes: Sequence[int]) -> Iterator[Outcome]:
    """The outcome cut into folds of these sizes, which get their numbers among the outer ones."""
    ends = np.cumsum(sizes)
    for i, fold in enumerate(folds):
        own = slice(ends[i] - sizes[i], ends[i])
        train: Sequence[Score] | None = outcome.train_scores and outcome.train_scores[i : i + 1]
        yield replace(
            outcome,
            folds=np.array([fold]),
            scores=outcome.scores[i : i + 1],
            train_scores=train,
            is_exact=outcome.is_exact[i : i + 1],
            values=None if outcome.values is None else outcome.values[own],
            condition=outcome.condition[i : i + 1],
            radius=outcome.radius[i : i + 1],
            times=outcome.times and outcome.times[i : i + 1],
            seconds=(outcome.seconds[0] / len(folds), outcome.seconds[1] / len(folds)),
        )
