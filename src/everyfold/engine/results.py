"""From outcomes to ``cv_results_``, by scikit-learn's own hand."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from everyfold._progress import warn
from everyfold._sklearn_private import (
    MultimetricScorer,
    insert_error_scores,
    warn_or_raise_about_fit_failures,
)
from everyfold._typing import Array, ErrorScore, Mask, Params, Score, Scorer, Search
from everyfold.adapters.pipelines import HELD_OUT
from everyfold.crossval.base import Failure
from everyfold.engine.planning.closed_costs import AS_DEFINED
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.records import REFITTED, Data, Outcome
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scores import MOST_COLUMNS, column, names_of
from everyfold.engine.status import ESTIMATED, NEAR_IDENTITY


@dataclass(frozen=True)
class ResultsTable:
    """``cv_results_`` of the finished candidates, and what is known from making it."""

    results: Params
    is_exact: Mask
    n_splits: int
    is_multimetric: bool
    names: Mapping[str, Scorer]
    by_fold: Mapping[str, Sequence[Array]]
    """The scores of folds that the results have no columns for, by name and candidate."""


def tabulate(
    search: Search,
    request: Request,
    data: Data,
    plan: SearchPlan,
    outcomes: Mapping[int, Outcome],
    scoring: Scorer = None,
) -> ResultsTable:
    """The table of the finished candidates, made by scikit-learn's own ``_format_results``."""
    numbers = sorted({*outcomes, *data.refused})
    sizes = sizes_of(data, outcomes)
    params = [request.candidates[number] for number in numbers]
    found = [outcomes.get(number) for number in numbers]
    short = [condensed(request, data, outcomes.get(k), k, len(sizes)) for k in numbers]
    fits = fit_errors(found, list(data.refused.values()), len(sizes))
    out = [item.entry for item in short]
    tell_failures(fits, request.options.error_score)
    if callable(scoring):
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
    return ResultsTable(
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
    for key, values in means.items():
        side, _, name = key.partition("_")
        if side == "std":
            stds = _deviations([item.columns.get(name) for item in short])
            results[key] = np.where(np.isfinite(values), stds, np.nan)
        elif side == "split0":
            rows = [item.columns.get(name, missing) for item in short]
            if size > MOST_COLUMNS:
                by_fold[name] = rows
            else:
                by_column = np.stack(rows, axis=1, dtype=np.float64)
                results |= {f"split{i}_{name}": by_column[i] for i in range(size)}
        else:
            results[key] = values
    return results, by_fold


def _deviations(columns: Sequence[Array | None]) -> Array:
    """The standard deviations of scores over folds, those of many candidates at once."""
    with np.errstate(invalid="ignore"):
        known = [values for values in columns if values is not None]
        if len(known) == len(columns) and sum(map(len, known)) <= _AT_ONCE:
            together: Array = np.std(np.stack(known), axis=1)
            return together
        return np.array([0.0 if values is None else float(np.std(values)) for values in columns])


# Scores that are put together at most.
_AT_ONCE = 1_000_000


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


# -- The folds of a candidate as one entry of the table, and as arrays beside it ------------------


@dataclass(frozen=True)
class Condensed:
    """The folds of one candidate as one entry of scikit-learn's table.

    Attributes
    ----------
    entry : dict
        What the table wants to know of a fold, with means over all folds.
    columns : dict
        What the means are of, by the name that it has in ``cv_results_`` after ``mean``.
    """

    entry: Params
    columns: dict[str, Array] = field(default_factory=dict)


def condensed(
    request: Request, data: Data, outcome: Outcome | None, number: int, size: int
) -> Condensed:
    """All folds of a candidate, ``size`` of them, as one entry."""
    failed = failed_score(request)
    sides = ("test", "train") if request.wants.train_scores else ("test",)
    if outcome is None:
        lost = {"fit_error": data.refused[number].trace, "fit_time": 0.0, "score_time": 0.0}
        return Condensed(lost | {f"{side}_scores": failed for side in sides})
    columns: dict[str, Array] = {}
    entry: Params = {}
    for k, name in enumerate(("fit_time", "score_time")):
        if outcome.times:
            columns[name] = np.array([taken[k] for taken in outcome.times])
        entry[name] = _mean(columns[name]) if outcome.times else outcome.seconds[k] / size
    all_failed = len(outcome.failures) == size
    entry["fit_error"] = next(iter(outcome.failures.values())).trace if all_failed else None
    for side in sides:
        scores = outcome.scores if side == "test" else outcome.train_scores or ()
        found = {} if all_failed else _columns(scores, outcome.failures, request)
        means: Score = {name: _mean(values) for name, values in found.items()}
        entry[f"{side}_scores"] = failed if all_failed else means.get("score", means)
        columns |= {f"{side}_{name}": values for name, values in found.items()}
    return Condensed(entry, columns)


def _mean(scores: Array) -> float:
    """The mean of scores, which may be infinite."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(scores))


def _columns(
    scores: Sequence[Score], failures: Mapping[int, Failure], request: Request
) -> dict[str, Array]:
    """By scorer, the scores of all folds; those that failed have the error score."""
    columns = {name: column(scores, name) for name in names_of(scores)}
    if failures:
        columns = {name: values.copy() for name, values in columns.items()}
        for values in columns.values():
            values[list(failures)] = request.options.error_score
    return columns


def read_fold(results: Params, kept: Mapping[str, Sequence[Array]], name: str, index: int) -> Array:
    """The scores of all folds of a candidate: from the table, or what is kept beside it."""
    if name in kept:
        return kept[name][index]
    keys = [f"split{i}_{name}" for i in range(MOST_COLUMNS)]
    found = np.array([results[key][index] for key in keys if key in results])
    if not len(found):
        names = [key.removeprefix("rank_") for key in results if key.startswith("rank_")]
        raise ValueError(f"name={name!r} is not in cv_results_; use one of {names}")
    return found


def fit_errors(
    outcomes: Sequence[Outcome | None], refused: Sequence[Failure], size: int
) -> list[Params]:
    """Why fits failed, as scikit-learn wants to know it; nothing if none has."""
    if not refused and not any(outcome is not None and outcome.failures for outcome in outcomes):
        return []
    fine: Params = {"fit_error": None}
    entries = [{"fit_error": failure.trace} for failure in refused for _ in range(size)]
    for outcome in outcomes:
        if outcome is not None:
            failures = outcome.failures.values()
            entries += [{"fit_error": failure.trace} for failure in failures]
            entries += [fine] * (size - len(failures))
    return entries


def tell_failures(entries: Sequence[Params], error_score: ErrorScore) -> None:
    """Warn of failed folds, or raise if all fits have failed, as scikit-learn does.

    A fold whose fit succeeded, but whose held-out rows could not be transformed, has no score and
    yet is no failed fit.
    """
    traces = [entry["fit_error"] for entry in entries]
    in_fit = [None if trace and HELD_OUT in trace else trace for trace in traces]
    unscored = [trace for trace, own in zip(traces, in_fit, strict=True) if trace and not own]
    if unscored:
        warn(
            f"Scoring failed in {len(unscored)} of {len(traces)} folds, whose scores will be set "
            f"to {error_score}. Details:\n{unscored[0]}",
            UserWarning,
        )
    warn_or_raise_about_fit_failures([{"fit_error": trace} for trace in in_fit], error_score)


def failed_score(request: Request) -> Score:
    """The score of a fold that failed."""
    if isinstance(request.scorer, MultimetricScorer):
        return dict.fromkeys(request.scorer._scorers, request.options.error_score)
    return request.options.error_score
