"""From outcomes to ``cv_results_``, by scikit-learn's own hand."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.evaluate.closed import AS_DEFINED
from everyfold.evaluate.data import REFITTED, Data, Outcome
from everyfold.evaluate.foldscores import MOST_COLUMNS
from everyfold.evaluate.inexact import ESTIMATED, NEAR_IDENTITY
from everyfold.evaluate.plan import SearchPlan
from everyfold.evaluate.request import Request
from everyfold.models.private import insert_error_scores
from everyfold.selection.manyfolds import (
    Condensed,
    condensed,
    failed_score,
    fit_errors,
    tell_failures,
)
from everyfold.types import Array, Mask, Params, Scorer, Search


@dataclass(frozen=True)
class Table:
    """``cv_results_`` of the finished candidates, and what is known from making it."""

    results: Params
    is_exact: Mask
    n_splits: int
    is_multimetric: bool
    names: Mapping[str, Scorer]
    by_fold: Mapping[str, Sequence[Array]]
    """The scores of folds that the results have no columns for, by name and candidate."""


def tabulate(
    search: Search, request: Request, data: Data, plan: SearchPlan, outcomes: Mapping[int, Outcome]
) -> Table:
    """The table of the finished candidates, made by scikit-learn's own ``_format_results``."""
    numbers = sorted({*outcomes, *data.refused})
    sizes = sizes_of(data, outcomes)
    params = [request.candidates[number] for number in numbers]
    found = [outcomes.get(number) for number in numbers]
    short = [condensed(request, data, outcomes.get(k), k, len(sizes)) for k in numbers]
    fits = fit_errors(found, list(data.refused.values()), len(sizes))
    out = [item.entry for item in short]
    tell_failures(fits, request.options.error_score)
    if callable(search.scoring):
        insert_error_scores(out, request.options.error_score)
    means = _formatted(search, params, out, found)
    results, by_fold = _with_folds(means, short, request, len(sizes))
    exact = np.array([_is_exact(outcome, plan) for outcome in found], dtype=bool)
    results["is_exact"] = exact
    results["status"] = np.array(
        [_status(outcome, is_exact) for outcome, is_exact in zip(found, exact, strict=True)],
        dtype=object,
    )
    results["is_identity"] = np.array([o is not None and o.is_identity for o in found])
    results["spectral_radius"] = np.array([_radius(outcome) for outcome in found])
    names = out[0]["test_scores"]
    is_multimetric = isinstance(names, dict)
    return Table(
        results, exact, len(sizes), is_multimetric, names if is_multimetric else {}, by_fold
    )


def _with_folds(
    means: Params, short: Sequence[Condensed], request: Request, size: int
) -> tuple[Params, dict[str, list[Array]]]:
    """The table of means with the deviations, and with the scores of folds or these beside it."""
    results: Params = {}
    by_fold: dict[str, list[Array]] = {}
    score = request.options.error_score
    missing = np.broadcast_to(np.nan if score == "raise" else np.float64(score), size)
    for key, column in means.items():
        side, _, name = key.partition("_")
        if side == "std":
            stds = _deviations([item.columns.get(name) for item in short])
            results[key] = np.where(np.isfinite(column), stds, np.nan)
        elif side == "split0":
            rows = [item.columns.get(name, missing) for item in short]
            if size > MOST_COLUMNS:
                by_fold[name] = rows
            else:
                by_column = np.stack(rows, axis=1, dtype=np.float64)
                results |= {f"split{i}_{name}": by_column[i] for i in range(size)}
        else:
            results[key] = column
    return results, by_fold


def _deviations(columns: Sequence[Array | None]) -> Array:
    """The standard deviations of scores over folds, those of many candidates at once."""
    with np.errstate(invalid="ignore"):
        known = [values for values in columns if values is not None]
        if len(known) == len(columns) and sum(map(len, known)) <= _AT_ONCE:
            together: Array = np.std(np.stack(known), axis=1)
            return together
        return np.array([0.0 if values is None else float(np.std(values)) for values in columns])


_AT_ONCE = 1_000_000
"""Scores that are put together at most."""


def _formatted(
    search: Search,
    params: list[Params],
    out: list[Params],
    found: Sequence[Outcome | None],
) -> Params:
    """Scikit-learn's own table; of scores that are -inf by a rule the search itself will tell."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        if any(outcome is not None and outcome.status == NEAR_IDENTITY for outcome in found):
            warnings.filterwarnings("ignore", message="One or more of the test scores")
        results: Params = search._format_results(params, 1, out)
    return results


def sizes_of(data: Data, outcomes: Mapping[int, Outcome]) -> list[int]:
    """How many test rows each fold has; of a source that is known after a pass."""
    if data.stream is None:
        return data.sizes
    return next(o.sizes for o in outcomes.values() if o.sizes is not None)


def entries_of(
    request: Request, data: Data, outcome: Outcome | None, number: int, sizes: list[int]
) -> list[Params]:
    """What scikit-learn's table wants to know of each fold of one candidate."""
    failed = failed_score(request)
    with_train = request.wants.train_scores
    if outcome is None:
        entry = {
            "fit_error": data.refused[number].trace,
            "test_scores": failed,
            "fit_time": 0.0,
            "score_time": 0.0,
        }
        if with_train:
            entry["train_scores"] = failed
        return [{**entry, "n_test_samples": size} for size in sizes]
    fit_time, score_time = (seconds / len(sizes) for seconds in outcome.seconds)
    shared = {"fit_error": None, "fit_time": fit_time, "score_time": score_time}
    pairs = list(zip(outcome.scores, sizes, strict=True))
    is_shared = outcome.times is None and not with_train and not outcome.failures
    if is_shared and isinstance(outcome.scores[0], float):
        # Thousands of folds of one row have few different scores, and nobody writes to these.
        known = {
            pair: {**shared, "test_scores": pair[0], "n_test_samples": pair[1]}
            for pair in set(pairs)
        }
        return [known[pair] for pair in pairs]
    entries = [{**shared, "test_scores": score, "n_test_samples": size} for score, size in pairs]
    for entry, (fit_time, score_time) in zip(entries, outcome.times or (), strict=False):
        entry |= {"fit_time": fit_time, "score_time": score_time}
    for entry, score in zip(entries, outcome.train_scores or (), strict=False):
        entry["train_scores"] = score
    for i, failure in outcome.failures.items():
        entries[i] |= {"fit_error": failure.trace, "test_scores": failed}
        if with_train:
            entries[i]["train_scores"] = failed
    return entries


def _is_exact(outcome: Outcome | None, plan: SearchPlan) -> bool:
    """Whether a candidate's every score is that of refitting its whole Pipeline."""
    if outcome is None or outcome.failures:
        return False
    if plan.kind == "once" and outcome.status != REFITTED:
        return False
    return bool(outcome.is_exact.all())


def _status(outcome: Outcome | None, is_exact: bool) -> str:
    """How certain a candidate's scores are."""
    if outcome is None or len(outcome.failures) == len(outcome.folds):
        return "failed"
    if is_exact and outcome.status not in (AS_DEFINED, REFITTED):
        return "exact"
    return outcome.status or ESTIMATED


def _radius(outcome: Outcome | None) -> float:
    if outcome is None or not np.isfinite(outcome.radius).any():
        return np.nan
    return float(np.nanmax(outcome.radius))
