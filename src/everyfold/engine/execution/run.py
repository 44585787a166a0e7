"""The pure function that evaluates a unit: from its numbers and the data to outcomes.

A unit is evaluated kernel by kernel. The candidates of a kernel that differ in the ridge only are
evaluated together; where that fails, each alone, and at last fold by fold, so that one absurd
candidate costs no other its score. Held-out values then become scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from everyfold._progress import reporting_to, subtask
from everyfold._typing import Array, Label, Score
from everyfold.crossval.base import AS_DEFINED, Closed, CrossValMethod, Failure, OutOfFold
from everyfold.crossval.refit import FoldSolver, Refit, fit_parts
from everyfold.engine.adaptive.pilot_splits import errors_of, on_pilot_split
from everyfold.engine.adaptive.rank_search import with_rank
from everyfold.engine.execution.kernel_builder import Bases, FoldRows, bind
from everyfold.engine.execution.passes import run_passes
from everyfold.engine.execution.refits import failed_refits, run_refits
from everyfold.engine.planning.methods import Method
from everyfold.engine.planning.units import Group, Unit
from everyfold.engine.records import (
    Candidate,
    Data,
    FoldSubset,
    Outcome,
    Task,
    exclude,
    mean_score,
    with_fields,
)
from everyfold.engine.scoring.fold_scorers import FoldScorer, FoldScores, masked, placed
from everyfold.engine.scoring.metrics import ScoredRows
from everyfold.engine.scoring.ties import duplicate_positions
from everyfold.estimators.targets import Warped
from everyfold.folds import Folds, chosen
from everyfold.linalg.symmetric import is_trusted
from everyfold.operators import Primal, StructureError, SupportsResponse
from everyfold.operators.base import Operator, SupportsSplit, require
from everyfold.solvers import DidNotConvergeError, Problem


def run(data: Data, unit: Unit) -> list[Outcome]:
    """Evaluate a unit: a pure function of its numbers and the data."""
    with reporting_to(data.watch.listener(unit) if data.watch.is_on else None):
        if unit.landmarks:
            found = _RUN[unit.order](with_rank(data, unit.landmarks), unit)
            return [with_fields(outcome, landmarks=unit.landmarks) for outcome in found]
        return _RUN[unit.order](data, unit)


def _run_kernels(data: Data, unit: Unit) -> list[Outcome]:
    """Kernel by kernel, on all folds or some."""
    if unit.pilot:
        return _on_pilot_split(data, unit)
    bases: Bases = {}
    outcomes: list[Outcome] = []
    for k, groups in enumerate(unit.groups):
        with subtask(k, len(unit.groups)):
            outcomes += _kernel(data, unit, groups, bases)
    return outcomes


def _on_pilot_split(data: Data, unit: Unit) -> list[Outcome]:
    """A unit on one split; warnings of scorers about its rows are silenced."""
    seen = on_pilot_split(data, unit.pilot)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _run_kernels(seen, replace(unit, pilot=0))
    return [
        with_fields(outcome, pilot=unit.pilot, errors=errors_of(outcome, seen), values=None)
        for outcome in found
    ]


def _kernel(data: Data, unit: Unit, groups: Sequence[Group], bases: Bases) -> list[Outcome]:
    """All groups of one kernel."""
    start = time.perf_counter()
    first = data.candidates[groups[0].numbers[0]]
    operator: Operator
    assert unit.structure is not None
    try:
        if unit.order == "fold":
            operator = FoldRows(data, first, unit.structure, unit.shared, bases)
            if data.tasks[first.task].criterion is not None:
                fold = data.tasks[first.task].folds[0]
                operator = operator.split(fold.train, fold.test).operator
        else:
            operator = bind(data, first, unit.structure, unit.shared, is_pass=unit.order == "pass")
    except (MemoryError, StructureError):
        raise
    except Exception as error:
        failure = Failure.caught(error)
        return list(_failed_groups(data, unit, groups, failure))
    shared = (time.perf_counter() - start) / sum(len(group.numbers) for group in groups)
    outcomes = []
    for k, group in enumerate(groups):
        with subtask(k, len(groups)):
            found = _group(data, unit, group, operator, shared)
        # Kernels of folds know these only once all folds are done.
        facts = {
            "operator": operator.words,
            "rank": operator.rank,
            "residual_trace": operator.residual_trace,
            "is_identity": operator.is_identity,
        }
        found = [with_fields(o, **facts) for o in found]
        limit = data.tasks[first.task].near_identity
        if group.method.excludes_identity and operator.typical_similarity <= limit:
            found = [exclude(o) for o in found]
        outcomes += found
    return outcomes


# What evaluates the units of each order.
_RUN: dict[str, Callable[[Data, Unit], list[Outcome]]] = {
    "kernel": _run_kernels,
    "fold": _run_kernels,
    "pass": _run_kernels,
    "blocks": run_passes,
    "refit": run_refits,
}


def failed_outcomes(data: Data, unit: Unit, error: Exception) -> list[Outcome]:
    """The outcomes of a unit that could not be evaluated: all its folds have failed."""
    if unit.order == "blocks":  # nobody knows the folds
        raise error
    failure = Failure.of(error)
    if unit.order == "refit":
        return failed_refits(data, unit, failure)
    found = [o for groups in unit.groups for o in _failed_groups(data, unit, groups, failure)]
    return [with_fields(outcome, pilot=unit.pilot) for outcome in found]


def _failed_groups(
    data: Data, unit: Unit, groups: Sequence[Group], failure: Failure
) -> Iterator[Outcome]:
    """The outcomes of candidates without a kernel."""
    for group in groups:
        tile = data.tasks[data.candidates[group.numbers[0]].task].tile(unit.folds)
        record = _nothing(tile, failure)
        yield from (_judge(number, record, tile, group.method, 0.0) for number in group.numbers)


# -- held-out values ---------------------------------------------------------------------------


def _group(
    data: Data, unit: Unit, group: Group, operator: Operator, shared: float
) -> list[Outcome]:
    start = time.perf_counter()
    candidates = [data.candidates[number] for number in group.numbers]
    task = data.tasks[candidates[0].task]
    tile = task.tile(unit.folds)
    records = _isolated(candidates, tile, operator, group.method, unit.threads)
    # What is known to equal refits has digits enough.
    if any(record.failures or not record.is_exact.all() for record in records):
        records = _from_columns(data, unit, group, tile, records)
    # Ties have to be ties where values are read, and not just their errors.
    are_read = task.criterion is None and all(record.errors is None for record in records)
    are_read = are_read and (task.judge is None or not task.judge.needs_errors_only)
    if are_read and unit.order != "fold":
        places = duplicate_positions(data, candidates[0], tile.folds)
        if places is not None:
            records = [replace(record, values=record.values[places]) for record in records]
    seconds = shared + (time.perf_counter() - start) / len(candidates)
    outcomes = [
        _judge(number, record, tile, group.method, seconds)
        for number, record in zip(group.numbers, records, strict=True)
    ]
    if tile.keeps_one and records[0].errors is None:
        means = [(-mean_score(own, str(task.best_by)), own.number) for own in outcomes]
        best = means.index(min(means))  # of equal ones the first candidate
        values, _ = tile.split(records[best].values)
        outcomes[best] = with_fields(outcomes[best], values=values)
    return outcomes


def _from_columns(
    data: Data, unit: Unit, group: Group, tile: FoldSubset, records: list[OutOfFold]
) -> list[OutOfFold]:
    """The records, anew for linear models whose kernel matrix has too few digits for their ridge.

    A matrix of products squares the condition number of the columns, and lost folds that
    scikit-learn, which takes a singular value decomposition then, does not lose.
    """
    lost = [
        k
        for k, record in enumerate(records)
        # A fold that failed for another reason than rounding fails again.
        if record.failures or not is_trusted(float(np.nanmax(record.condition, initial=1.0)))
    ]
    first = data.candidates[group.numbers[0]]
    task, choice = data.tasks[first.task], first.model.choice
    is_of_products = unit.structure is not None and unit.structure.needs_base
    if not lost or first.model.operator != "auto" or not is_of_products:
        return records
    if task.criterion is not None or group.method.is_approximate:
        return records
    if choice.is_precomputed or not choice.resolve_for_any().is_linear:
        return records
    some = [data.candidates[group.numbers[k]] for k in lost]
    operator: Operator
    if unit.order == "fold":
        operator = FoldRows(data, first, Primal())
    else:
        operator = bind(data, first, Primal(), frozenset())
    method = group.method
    if not first.model.chooses_ridge:
        method = replace(method, criterion=Refit(route="tridiagonal"))
    again = _isolated(some, tile, operator, method, unit.threads)
    for k, record in zip(lost, again, strict=True):
        records[k] = record
    return records


def _isolated(
    candidates: Sequence[Candidate],
    tile: FoldSubset,
    operator: Operator,
    method: Method,
    threads: int,
) -> list[OutOfFold]:
    """The held-out values of candidates: where they fail together, of each alone."""
    try:
        return _records(candidates, tile, operator, method, threads)
    except (MemoryError, StructureError):
        raise
    except Exception as error:
        if len(candidates) == 1:
            return [_nothing(tile, Failure.caught(error))]
    alone = [_isolated([one], tile, operator, method, threads) for one in candidates]
    return [record for records in alone for record in records]


def _nothing(tile: FoldSubset, failure: Failure) -> OutOfFold:
    """What is known of a candidate that failed on all folds."""
    unknown = np.full(len(tile.numbers), np.nan)
    values = np.full((tile.folds.bounds[-1], tile.task.width), np.nan)
    failures = dict.fromkeys(range(len(unknown)), failure)
    return OutOfFold(values, np.zeros(len(unknown), dtype=bool), unknown, unknown, failures)


def _records(
    candidates: Sequence[Candidate],
    tile: FoldSubset,
    operator: Operator,
    method: Method,
    threads: int,
) -> list[OutOfFold]:
    """The held-out values of every candidate; targets may have ridges of their own."""
    task = tile.task
    if len(tile.folds) == 0:
        return [OutOfFold.of_refits(np.empty((0, task.width)), np.empty(0))] * len(candidates)
    models = [candidate.model for candidate in candidates]
    warp, target = models[0].warp, task.target
    warped = None if warp is None else Warped(warp, target.columns, tile.folds)
    target = target if warped is None else warped.target
    q = target.columns.shape[1]
    problems = models[0].problems(target, task.weights)
    owners = [model.columns_of_ridges(q) for model in models]
    ridges = list(dict.fromkeys(ridge for owned in owners for ridge, _ in owned))
    found = _evaluate(method, problems, operator, ridges, tile.folds, threads)
    if task.criterion is None and not models[0].loss.has_constant_curvature:
        found = [_without_unconverged(record, tile.folds) for record in found]
    loss = models[0].loss
    if loss.has_log_link:
        found = [replace(record, values=loss.predicted(record.values)) for record in found]
    if warped is not None and task.criterion is None:
        found = [warped.back(record) for record in found]
    if method.is_of_another_model:
        found = [replace(r, is_exact=np.zeros_like(r.is_exact)) for r in found]
    by_ridge = dict(zip(ridges, found, strict=True))
    return [
        by_ridge[owned[0][0]] if len(owned) == 1 else _assemble(owned, by_ridge) for owned in owners
    ]


def _evaluate(
    method: Method,
    problems: Sequence[Problem],
    operator: Operator,
    ridges: Sequence[float],
    folds: Folds,
    threads: int,
) -> list[OutOfFold]:
    """All ridges together; if that fails, one by one, and the failing one fold by fold."""
    criterion = method.criterion
    if isinstance(criterion, Closed):
        return criterion.records(problems, require(operator, SupportsResponse), ridges)
    # A constant is fitted without rounding where there is an intercept for it.
    if problems[0].intercept and (level := problems[0].level).any():
        levelled = [problem.levelled for problem in problems]
        found = _evaluate(method, levelled, operator, ridges, folds, threads)
        # Permutations that have folds of their own give the columns of one of them, all alike.
        width = found[0].values.shape[1]
        return [replace(r, values=r.values + level[:width], whole=None) for r in found]
    is_squared = problems[0].loss.has_constant_curvature
    if is_squared and folds.merged is not None and criterion.may_merge:
        found = _evaluate(method, problems, operator, ridges, folds.merged.folds, threads)
        return [record.unmerge(folds.merged) for record in found]
    able = require(operator, criterion.ability)
    if isinstance(criterion, FoldSolver):
        return fit_parts(criterion, problems, able, ridges, folds, threads=threads)
    try:
        criterion = criterion.with_threads(threads) if threads > 1 else criterion
        return _whole(criterion, problems, able, ridges, folds)
    except (MemoryError, StructureError):
        raise
    except Exception:
        if len(ridges) == 1:
            return fit_parts(
                method.fallback, problems, require(operator, SupportsSplit), ridges, folds
            )
        alone = [_evaluate(method, problems, operator, [r], folds, threads) for r in ridges]
        return [record for records in alone for record in records]


def _whole(
    criterion: CrossValMethod,
    problems: Sequence[Problem],
    operator: SupportsResponse,
    ridges: Sequence[float],
    folds: Folds,
) -> list[OutOfFold]:
    """Every fold from a kernel of all rows, problem by problem."""
    found = [list(criterion.evaluate(problem, operator, ridges, folds)) for problem in problems]
    if not problems[0].loss.has_constant_curvature:
        for records in found:
            for ridge, record in zip(ridges, records, strict=True):
                if np.isnan(record.values).any():
                    raise _unconverged(ridge)
    each = zip(*found, strict=True)
    return [parts[0] if len(parts) == 1 else OutOfFold.beside(parts) for parts in each]


def _unconverged(ridge: float) -> DidNotConvergeError:
    return DidNotConvergeError(
        f"the fit of ridge {ridge:.3g} did not converge; use a larger alpha (smaller C) or a "
        "larger h"
    )


def _without_unconverged(record: OutOfFold, folds: Folds) -> OutOfFold:
    """Folds whose fit did not converge have failed."""
    if not np.isnan(record.values).all(axis=1).any():
        return record
    failures = dict(record.failures)
    for i, values in enumerate(folds.split(record.values)):
        if i not in failures and np.isnan(values).all():
            error = DidNotConvergeError(
                "the fit did not converge; use a larger alpha (smaller C) or a larger h"
            )
            failures[i] = Failure.of(error)
    return replace(record, failures=failures)


def _assemble(
    owned: Sequence[tuple[float, list[int]]], records: dict[float, OutOfFold]
) -> OutOfFold:
    """The record of one model, whose targets may have ridges of their own."""
    parts = [records[ridge] for ridge, _ in owned]
    values = np.empty_like(parts[0].values)
    for (_, columns), part in zip(owned, parts, strict=True):
        values[:, columns] = part.values[:, columns]
    return OutOfFold.beside(parts, values)


# -- scores ------------------------------------------------------------------------------------


def _judge(
    number: int, record: OutOfFold, tile: FoldSubset, method: Method, seconds: float
) -> Outcome:
    """The outcome of a candidate by its held-out values."""
    start, task = time.perf_counter(), tile.task
    failures = {int(tile.numbers[i]): failure for i, failure in record.failures.items()}
    for i, error in task.failing.items():
        if i in tile.asked:
            failures[i] = Failure.of(error)
    scores, train, kept = _scores(record, tile)
    if task.criterion is not None:
        scores = [None if failures else -float(np.mean(record.values))]
    # Some folds of an approximation are known to be exact all the same, and so are all where a
    # method stood in for the one that was planned.
    is_known = record.is_exact.copy()
    is_known[list(record.failures)] = True
    return Outcome(
        number,
        tile.asked,
        scores,
        train,
        tile.spread(record.is_exact, False),
        tile.spread(record.condition, np.nan),
        tile.spread(record.spectral_radius, np.nan),
        failures,
        kept,
        seconds=(seconds, time.perf_counter() - start),
        method=record.words or method.words,
        is_unique=record.is_unique is None or bool(record.is_unique.all()),
        only_label=None if task.target.classes is None else _only_label(record.values, tile),
        caveat="" if is_known.all() else method.caveat,
        is_of_another_model=method.is_of_another_model,
        status="" if task.criterion is None or not record.is_exact.all() else AS_DEFINED,
        whole=None if record.whole is None else (*record.whole, task.target.truth.ndim == 1),
    )


def _scores(
    record: OutOfFold, tile: FoldSubset
) -> tuple[Sequence[Score], Sequence[Score] | None, Array | None]:
    """The scores of test rows, of training rows if asked for, and the values to be kept."""
    task, scores = tile.task, cast(Sequence[Score], [None] * len(tile.asked))
    train = scores if task.with_train else None
    if task.criterion is not None:
        return scores, train, None
    if record.errors is not None and task.judge is not None:  # nothing but sums was taken
        errors = task.judge.score_errors(record.errors)
        return placed(errors, tile.places, len(tile.asked)), train, None
    values, inside = tile.split(record.values)
    # Pooled scores need all folds at once.
    waits = task.is_pooled and len(tile.numbers) < len(task.whole.numbers)
    keeps = waits or task.judge is None or (task.keeps_values and not tile.keeps_one)
    kept = values if keeps else None
    if task.judge is None or not len(tile.numbers):
        return scores, train, kept
    if not waits and not record.failures and len(tile.numbers) == len(tile.asked):
        scores = task.judge.score(values, tile.test, tile.lacking)
    elif not waits:
        scores = _scored(task.judge, values, tile.test, tile, record.failures)
    if tile.train is not None and inside is not None:
        train = _scored(task.judge.by_fold, inside, tile.train, tile, record.failures)
    return scores, train, kept


def score_together(outcome: Outcome, task: Task) -> Outcome:
    """An outcome on all folds with the scores that waited for the last of them."""
    if not task.is_pooled or outcome.values is None or not _is_unscored(outcome):
        return outcome
    assert task.judge is not None
    tile = task.whole
    known = enumerate(tile.numbers.tolist())
    failures = {i: outcome.failures[k] for i, k in known if k in outcome.failures}
    scores = _scored(task.judge, outcome.values, tile.test, tile, failures)
    return replace(outcome, scores=scores, values=outcome.values if task.keeps_values else None)


def _is_unscored(outcome: Outcome) -> bool:
    """Whether a fold that did not fail has no score."""
    if isinstance(outcome.scores, FoldScores) and outcome.scores.is_known is None:
        return False
    return [*outcome.scores].count(None) > len(outcome.failures)


def _only_label(values: Array, tile: FoldSubset) -> tuple[Label] | None:
    """The label of all test rows, if that is one and the rows of the task have several."""
    target = tile.task.target
    if not tile.task.has_several_classes:
        return None
    values, _ = tile.split(values)
    is_of_signs = values.shape[1] == 1 and target.predicts_by_sign and not tile.lacking
    if is_of_signs and values.min(initial=0.0) < 0.0 < values.max(initial=0.0):
        return None
    held = masked(target, values, tile.test, tile.lacking) if tile.lacking else values
    found: set[Label] = set()
    for part in held[:_FEW_ROWS], held[_FEW_ROWS:]:  # most candidates are done with the first
        if not len(part):
            continue
        found.update(target.predict(part[np.isfinite(part).all(axis=1)]).tolist())
        if len(found) > 1:
            return None
    return (found.pop(),) if found else None


# The rows that are predicted first: most candidates show two labels in them, so that the others
# need not be predicted.
_FEW_ROWS = 200


def _scored(
    judge: FoldScorer,
    values: Array,
    side: ScoredRows,
    tile: FoldSubset,
    failures: dict[int, Failure],
) -> Sequence[Score]:
    """The scores of all folds of a unit; None for those that failed."""
    where, lacking = tile.places, tile.lacking
    if failures:
        good = [i for i in range(len(side.parts)) if i not in failures]
        values = values[~np.isin(side.folds, list(failures))]
        side = ScoredRows(side.target, chosen(side.parts, good))
        lacking = {good.index(i): train for i, train in lacking.items() if i in good}
        where = where[good]
    if not len(where):
        return [None] * len(tile.asked)
    return placed(judge.score(values, side, lacking), where, len(tile.asked))
