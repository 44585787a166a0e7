"""The folds of a candidate as one entry of the table, and as arrays beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from everyfold.criteria.base import Failure
from everyfold.evaluate.data import Data, Outcome
from everyfold.evaluate.foldscores import MOST_COLUMNS, column, names_of
from everyfold.evaluate.request import Request
from everyfold.models.pipelines import HELD_OUT
from everyfold.models.private import MultimetricScorer, warn_or_raise_about_fit_failures
from everyfold.rows.telling import warn
from everyfold.types import Array, ErrorScore, Params, Score


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
