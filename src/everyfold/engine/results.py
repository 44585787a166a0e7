"""From outcomes to what a search shows: ``cv_results_``, warnings, and the winner.

The table is made by scikit-learn's own ``_format_results``. What is not known to equal a refit is
said once, for all candidates together. The winner is that of scikit-learn's ``refit``, or of the
rule of one standard error.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from everyfold._progress import pluralise, warn
from everyfold._sklearn_private import (
    BaseSearchCV,
    MultimetricScorer,
    insert_error_scores,
    warn_or_raise_about_fit_failures,
)
from everyfold._typing import (
    Array,
    ErrorScore,
    Estimator,
    Mask,
    Params,
    Refit,
    Score,
    Scorer,
    Search,
)
from everyfold.adapters.pipelines import HELD_OUT, final_step
from everyfold.crossval import InexactWarning
from everyfold.crossval.base import AS_DEFINED, Failure
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.records import ESTIMATED, NEAR_IDENTITY, REFITTED, Data, Outcome
from everyfold.engine.request import Request
from everyfold.engine.scoring.fold_scorers import MOST_COLUMNS, column, names_of
from everyfold.linalg.symmetric import TRUSTED_ERROR
from everyfold.operators import Nystrom


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
    out = [item.entry for item in short]
    if data.refused or any(outcome is not None and outcome.failures for outcome in found):
        fits = fit_errors(found, list(data.refused.values()), len(sizes))
        warn_of_failures(fits, request.options.error_score)
    if callable(scoring):
        insert_error_scores(out, request.options.error_score)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # Scores that are -inf by a rule the search itself tells of.
        if any(outcome is not None and outcome.status == NEAR_IDENTITY for outcome in found):
            warnings.filterwarnings("ignore", message="One or more of the test scores")
        means: Params = search._format_results(params, 1, out)
    results, by_fold = _with_folds(means, short, request, len(sizes))
    known = [_certainty(outcome, plan) for outcome in found]
    exact = np.array([is_exact for is_exact, _ in known], dtype=bool)
    results["is_exact"] = exact
    results["status"] = np.array([status for _, status in known], dtype=object)
    results["is_identity"] = np.array([o is not None and o.is_identity for o in found])
    results["spectral_radius"] = np.array(
        [
            np.nan if o is None or not np.isfinite(o.radius).any() else float(np.nanmax(o.radius))
            for o in found
        ]
    )
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


def sizes_of(data: Data, outcomes: Mapping[int, Outcome]) -> list[int]:
    """How many test rows each fold has; outcomes say it where only a pass over the rows tells."""
    found = (outcome.sizes for outcome in outcomes.values() if outcome.sizes is not None)
    return next(found, None) or data.sizes


def entries_of(
    request: Request, data: Data, outcome: Outcome | None, number: int, sizes: list[int]
) -> list[Params]:
    """What scikit-learn's table needs for each fold of one candidate."""
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


def _certainty(outcome: Outcome | None, plan: SearchPlan) -> tuple[bool, str]:
    """Whether all scores are those of refits of the whole Pipeline, and how certain they are."""
    if outcome is None or len(outcome.failures) == len(outcome.folds):
        return False, "failed"
    is_of_refits = plan.kind != "once" or outcome.status == REFITTED
    is_exact = is_of_refits and not outcome.failures and bool(outcome.is_exact.all())
    if is_exact and outcome.status not in (AS_DEFINED, REFITTED):
        return True, "exact"
    return is_exact, outcome.status or ESTIMATED


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
    sides = ("test", "train") if request.wants.train_scores else ("test",)
    if outcome is None:
        nothing = {"fit_error": data.refused[number].trace, "fit_time": 0.0, "score_time": 0.0}
        return Condensed(nothing | {f"{side}_scores": failed_score(request) for side in sides})
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
        names = () if all_failed else names_of(scores)
        found = {name: column(scores, name) for name in names}
        if outcome.failures:
            found = {name: values.copy() for name, values in found.items()}
            for values in found.values():
                values[list(outcome.failures)] = request.options.error_score
        means: Score = {name: _mean(values) for name, values in found.items()}
        entry[f"{side}_scores"] = failed_score(request) if all_failed else means.get("score", means)
        columns |= {f"{side}_{name}": values for name, values in found.items()}
    return Condensed(entry, columns)


def _mean(scores: Array) -> float:
    """The mean of scores, which may be infinite."""
    with np.errstate(invalid="ignore"):
        return float(np.mean(scores))


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
    """Why fits failed, in the form that scikit-learn reports; empty if none failed."""
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


def warn_of_failures(entries: Sequence[Params], error_score: ErrorScore) -> None:
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


# -- What is said of values that are not known to equal those of refits ----------------------------


def warn_if_inexact(outcomes: Sequence[Outcome]) -> None:
    """Say once what is not known to equal refits: approximations, and what rounding has spoilt."""
    words = [*_approximated(outcomes), *_excluded(outcomes), *_spoilt(outcomes)]
    if words:
        warn(" ".join(words), InexactWarning)


def _approximated(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What was asked for by name and does not refit, how far off that may be, and what does."""
    found = [outcome for outcome in outcomes if outcome.caveat]
    if not found:
        return
    methods = ", ".join(dict.fromkeys(outcome.method for outcome in found))
    caveats = ". ".join(dict.fromkeys(outcome.caveat for outcome in found))
    radii = np.concatenate([outcome.radius for outcome in found])
    radii = radii[np.isfinite(radii)]
    if radii.size:
        caveats += f" (it is up to {radii.max():.3g} here)"
    whose = "" if len(outcomes) == 1 else f" of {_share(found, outcomes)}"
    yield (
        f"the held-out values{whose} are an approximation: {methods}. {caveats}. Use method='auto' "
        "to get the values of refits."
    )


def _share(found: Sequence[Outcome], outcomes: Sequence[Outcome]) -> str:
    return f"{len(found)} of {len(outcomes)} candidates"


def _excluded(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Whose kernel is near the identity, where a series of finite order was asked for."""
    found = [outcome for outcome in outcomes if outcome.status == NEAR_IDENTITY]
    if found:
        yield (
            f"The kernel of {_share(found, outcomes)} is near the identity (for half of the rows "
            "the kernel value with any other row is negligible). An influence series of finite "
            "order then only repeats the training error, so they get the score -inf. Use "
            "method='auto', or leave out such large values of gamma."
        )


def _spoilt(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Where rounding may have spoilt values; those that are inexact otherwise do not count."""
    found = []
    for outcome in outcomes:
        # Systems that are too ill-conditioned; those of fits that failed are not.
        error = np.nan_to_num(outcome.condition, posinf=0.0) * np.finfo(np.float64).eps
        found.append(outcome.condition[~outcome.is_exact & (error > TRUSTED_ERROR)])
    spoilt = [conditions for conditions in found if len(conditions)]
    if not spoilt:
        return
    folds, worst = sum(map(len, spoilt)), max(float(conditions.max()) for conditions in spoilt)
    yield (
        f"{pluralise(folds, 'fold')} of {pluralise(len(spoilt), 'candidate')} are not known to "
        "equal a "
        f"refit: rounding errors are multiplied by up to about {worst:.1g} (the condition number "
        "of the linear systems, or what centring leaves of a nearly constant kernel), and may "
        "exceed 1e-6. Use a larger alpha (smaller C)."
    )


# -- Which candidate wins, and what its refit needs ------------------------------------------------


ONE_STANDARD_ERROR = "one_standard_error"
PER_TARGET = "per_target"
# Values of refit that choose by the scores of one metric, but not by its best mean alone.
RULES = (ONE_STANDARD_ERROR, PER_TARGET)


def is_rule(refit: Refit) -> bool:
    """Whether something else than the best mean score of a metric decides."""
    return callable(refit) or refit in RULES


def check_rule(refit: Refit, scoring: Scorer, *, has_folds: bool) -> None:
    """Refuse the rule of one standard error where no single metric has scores of folds."""
    if refit != ONE_STANDARD_ERROR:
        return
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError(
            f"refit={refit!r} needs one metric, but scoring has {list(scoring)}; pass one "
            "of them as scoring, or a callable as refit"
        )
    if not has_folds:
        raise ValueError(
            f"refit={refit!r} needs scores of folds, which a criterion without folds does not "
            "have; use refit=True, or a method with folds"
        )


def check_spread(refit: Refit, pooled: Sequence[str], data: Data) -> None:
    """Refuse the rule of one standard error if scores are pooled, or a ridge is not known."""
    if refit != ONE_STANDARD_ERROR:
        return
    if pooled:
        raise ValueError(
            f"refit={refit!r} needs scores of single folds, but scores are pooled over all rows; "
            "use scoring=everyfold.scorers.pooled(..., False), or folds of several rows"
        )
    if data.foreign and not data.candidates:
        raise ValueError(
            f"refit={refit!r} prefers larger ridges, but no candidate has a known ridge; pass a "
            "callable as refit"
        )


def best_index(
    refit: Refit, metric: str, results: Params, n_splits: int, ridges: Sequence[float]
) -> int:
    """The index of the best candidate in the table of results, which has at least one score.

    ``ridges`` are those of the candidates, in the order of the table.
    """
    if refit == ONE_STANDARD_ERROR:
        return _within_one_error(results, n_splits, np.asarray(ridges, dtype=np.float64))
    return int(BaseSearchCV._select_best_index(refit, metric, results))


def _within_one_error(results: Params, t: int, ridges: Array) -> int:
    """The largest ridge within one standard error of the best; of several, the best of them.

    The standard error is that of the mean over t folds: s/√t, with s² over t − 1.
    """
    if t < 2:
        raise ValueError(f"refit={ONE_STANDARD_ERROR!r} needs at least 2 folds, and there is {t}")
    means = np.where(np.isnan(results["mean_test_score"]), -np.inf, results["mean_test_score"])
    best = int(np.argmax(means))
    error = results["std_test_score"][best] / np.sqrt(t - 1.0)
    near = np.flatnonzero(means >= means[best] - error)
    if np.isnan(ridges[near]).any():
        raise ValueError(
            f"refit={ONE_STANDARD_ERROR!r} prefers larger ridges, but candidate "
            f"{near[np.isnan(ridges[near])][0]} has no known ridge; pass a callable as refit"
        )
    order = np.lexsort((near, -means[near], -ridges[near]))
    return int(near[order[0]])


def check_weightless(data: Data) -> None:
    """Refuse what the winner, refitted by scikit-learn, would predict wrongly with."""
    lost = [c for c in data.candidates.values() if c.model.loses_weightless_rows]
    if lost and data.n_weighted < data.n:
        raise ValueError(
            f"sample_weight is 0 for {data.n - data.n_weighted} rows, and "
            f"kernel={lost[0].model.choice.kernel!r}: scikit-learn's fit then numbers its "
            "support vectors without these rows, but the kernel with them, so that "
            "best_estimator_ would predict with the wrong support vectors; leave these rows "
            "out, or pass refit=False"
        )


def scale_ridge(estimator: Estimator, n: int) -> None:
    """Multiply an estimator's ridge by n: the "mean" convention, which estimators do not know."""
    final = final_step(estimator)
    if getattr(final, "C", None) is not None:
        final.set_params(C=final.C / n)
    else:
        final.set_params(alpha=np.multiply(final.alpha, n))


def set_rank(estimator: Estimator, landmarks: int) -> None:
    """Give an estimator with ``n_landmarks="auto"`` the number that a search has found."""
    operator = getattr(estimator, "operator", None)
    if isinstance(operator, Nystrom) and operator.n_landmarks == "auto":
        estimator.set_params(operator=replace(operator, n_landmarks=landmarks))
