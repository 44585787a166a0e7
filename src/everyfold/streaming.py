"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from everyfold.engines import Method
from everyfold.metrics import Metric, Side, find_metric, from_sums, is_mean, is_of_sums
from everyfold.operators.base import Array
from everyfold.operators.moments import DISTINCT, FEW_RIDGES, Centred, RidgeModels
from everyfold.operators.nystrom import LandmarkFeatures
from everyfold.passes import (
    FoldModels,
    FoldRule,
    Reader,
    Request,
    Summed,
    block_height,
    check_model,
    choose_features,
    held_out_blocks,
    read_rule,
    read_source,
    sum_rows,
    width_of,
)
from everyfold.plan import COSTS, available_memory
from everyfold.preprocess import freeze
from everyfold.scoring import Judge
from everyfold.streams import RowSource
from everyfold.targets import Target
from everyfold.units import Candidate, Verdict

_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 1_000_000_000
_ASSUMED_FOLDS = 10


@dataclass
class Counts:
    """What the first pass tells of the rows: of each fold, and of positive weight in all."""

    sizes: list[int] = field(default_factory=list)
    n_weighted: int = 0


@dataclass(frozen=True)
class StreamTrial:
    """How candidates on a source are judged."""

    source: RowSource
    reader: Reader
    rule: FoldRule
    scorers: dict[str, Any]
    is_multimetric: bool
    error_score: Any
    counts: Counts = field(default_factory=Counts)

    @cached_property
    def n_folds(self) -> int:
        """How many folds to reckon with: as many as there are, or a usual number."""
        known = self.rule.n_folds
        return _ASSUMED_FOLDS if known is None else known

    @property
    def metrics(self) -> dict[str, Metric | None]:
        """The scorers as arithmetic on folds, None where scikit-learn must be asked."""
        target = self.reader.target(self.reader.sample)
        return {name: find_metric(scorer, target) for name, scorer in self.scorers.items()}


def set_up_stream(
    source: RowSource, cv: Any, candidates: Sequence[Candidate], judge: tuple[Any, bool, Any]
) -> StreamTrial:
    """Refuse what needs all rows at once; read what must be known before any kernel."""
    for candidate in candidates:
        if candidate.parts.steps:
            raise ValueError(
                "a Pipeline's steps need all rows of a fold at once; for a source of rows prepare "
                "them in the source, and pass the model alone"
            )
        check_model(candidate.model)
    if len({freeze(candidate.model.class_weight) for candidate in candidates}) > 1:
        raise ValueError(
            "class_weight differs between candidates, which a source of rows does not go with; "
            "search one at a time"
        )
    reader = read_source(source, candidates[0].model)
    return StreamTrial(source, reader, read_rule(cv, source), *judge)


def run_stream(trial: StreamTrial, candidates: Sequence[Candidate]) -> Iterator[list[Verdict]]:
    """The verdicts of all candidates, batch of kernels after batch."""
    kernels: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        key = candidate.kernel_key, candidate.model.intercept
        kernels.setdefault(key, []).append(candidate)
    batch: list[tuple[Request, list[Candidate]]] = []
    room = min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())
    for members in kernels.values():
        request = _request(trial, members)
        taken = sum(_bytes(other, trial) for other, _ in batch)
        if batch and taken + _bytes(request, trial) > room:
            yield _run_batch(trial, batch)
            batch = []
        batch.append((request, members))
    yield _run_batch(trial, batch)


def _request(trial: StreamTrial, members: Sequence[Candidate]) -> Request:
    model = members[0].model
    features = choose_features(model, trial.source)
    return Request(features, min(m.model.ridges[0] for m in members), model.intercept)


def _bytes(request: Request, trial: StreamTrial) -> int:
    width = width_of(request, trial.source.n_features)
    return 8 * width**2 * (2 * trial.n_folds + 4) + 96_000_000


def _estimate(trial: StreamTrial, batch: Sequence[tuple[Request, list[Candidate]]]) -> float:
    """The seconds that the linear algebra should take, by what is known before any of it."""
    n, total = float(trial.source.n_rows or 0), 0.0
    is_one_pass = trial.reader.classes is None and all(map(is_of_sums, trial.metrics.values()))
    for request, members in batch:
        c, k = float(width_of(request, trial.source.n_features)), len(members)
        solve = k * COSTS.cube_cholesky if k <= FEW_RIDGES else COSTS.cube_eigen
        total += 2 * COSTS.cube_gram * n * c**2 + COSTS.stream * n * c
        total += trial.n_folds * ((2 * COSTS.cube_gram + solve) * c**3 + k * COSTS.call)
        if not is_one_pass:
            total += 2 * COSTS.stream * n * c + COSTS.cube_gram * n * c * k
    return total


def _run_batch(
    trial: StreamTrial, batch: Sequence[tuple[Request, list[Candidate]]]
) -> list[Verdict]:
    start, estimate = time.perf_counter(), _estimate(trial, batch)
    requests = [request for request, _ in batch]
    height = block_height(requests, trial.source.n_features)
    summed = sum_rows(trial.source, trial.reader, trial.rule, requests, height)
    _check_training(trial.reader, summed[0])
    trial.counts.sizes = summed[0].rows.tolist()
    trial.counts.n_weighted = summed[0].total.sums.count
    models = [
        _fold_models(found, members) for found, (_, members) in zip(summed, batch, strict=True)
    ]
    scores = _scores_from_sums(trial, summed, models)
    passes = 1
    if scores is None:
        passes = 2
        kernels = [
            FoldModels(request.features, dict(zip(found.folds, by_fold, strict=True)))
            for request, found, by_fold in zip(requests, summed, models, strict=True)
        ]
        scores = _second_pass(trial, summed[0], kernels, height)
    seconds = (time.perf_counter() - start) / sum(len(members) for _, members in batch)
    method = _method(trial, requests, passes, estimate)
    verdicts = []
    for (request, members), of_kernel, found in zip(batch, scores, summed, strict=True):
        for k, candidate in enumerate(members):
            by_fold = [of_kernel[i][k] for i in range(len(found.folds))]
            verdicts.append(
                Verdict(
                    candidate.number,
                    None,
                    {},
                    by_fold,
                    None,
                    seconds,
                    0.0,
                    method,
                    operator=_words(request),
                )
            )
    return verdicts


def _method(
    trial: StreamTrial, requests: Sequence[Request], passes: int, estimate: float
) -> Method:
    times = "one pass" if passes == 1 else "two passes"
    words = (
        f"sums over the rows of every fold in {times} over the source, one eigendecomposition a "
        "fold; folds are exact for the low-rank kernel"
    )
    memory = sum(_bytes(request, trial) for request in requests)
    return Method("stream", words, estimate, memory, is_of_another_model=True)


def _words(request: Request) -> str:
    features = request.features
    if isinstance(features, LandmarkFeatures):
        return f"{len(features.T)} landmarks, rank {features.width}"
    return "the columns of the rows"


def _fold_models(found: Summed, members: Sequence[Candidate]) -> list[RidgeModels]:
    """The models of every fold for the candidates' ridges."""
    models = []
    for k, part in enumerate(found.parts):
        left = found.total.sums.count - part.sums.count
        rhos = [
            m.model.ridges[0] * (left if m.model.ridge_scaling == "mean" else 1) for m in members
        ]
        models.append(found.without(k, rhos))
    return models


def _check_training(reader: Reader, found: Summed) -> None:
    """Refuse folds that leave nothing to learn from, or not from every class."""
    if not found.folds:
        raise ValueError("cv has no folds: it holds out no row of the source")
    for k, (fold, part) in enumerate(zip(found.folds, found.parts, strict=True)):
        if found.total.sums.count == part.sums.count:
            raise ValueError(
                f"cv: fold {fold} leaves no training rows of positive weight; use folds that share "
                "the rows out"
            )
        if reader.classes is not None and _lacks_a_class(found.rest(k)):
            raise ValueError(
                f"cv: the training rows of fold {fold} lack a class (rows sorted by label?), or "
                "have it with weight 0 only; give the source a fold column that mixes them, or use "
                "KFold(shuffle=True)"
            )


def _lacks_a_class(rest: Centred) -> bool:
    share = 0.5 * (1.0 + rest.target_mean)
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


# -- scores ------------------------------------------------------------------------------------


def _scores_from_sums(
    trial: StreamTrial, summed: Sequence[Summed], models: Sequence[list[RidgeModels]]
) -> list[list[list[Any]]] | None:
    """Scores by kernel, fold and candidate, if sums are all they need."""
    is_weighted = summed[0].is_weighted
    if trial.reader.classes is not None or (is_weighted and not _take_weights(trial.scorers)):
        return None
    if not summed[0].weights.all():  # scikit-learn's scorers say what a fold of weight 0 is worth
        return None
    scores = []
    for found, by_fold in zip(summed, models, strict=True):
        sse = [part.residual(m) for part, m in zip(found.parts, by_fold, strict=True)]
        squares = [part.sums.squares for part in found.parts]
        if any((e < DISTINCT * whole).any() for e, whole in zip(sse, squares, strict=True)):
            return None
        table: dict[str, list[Array]] = {}
        for name, metric in trial.metrics.items():
            if metric is None:
                return None
            columns = [
                from_sums(metric, np.stack([e[k] for e in sse]), found.spreads, found.weights)
                for k in range(len(sse[0]))
            ]
            if any(column is None for column in columns):
                return None
            table[name] = columns  # type: ignore[assignment]
        folds, candidates = range(len(found.folds)), range(len(sse[0]))
        scores.append(
            [
                [_pack(trial, {n: float(c[k][i]) for n, c in table.items()}) for k in candidates]
                for i in folds
            ]
        )
    return scores


def _pack(trial: StreamTrial, scores: dict[str, float]) -> Any:
    return scores if trial.is_multimetric else scores["score"]


def _second_pass(
    trial: StreamTrial, found: Summed, kernels: Sequence[FoldModels], height: int
) -> list[list[list[Any]]]:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    counts = [len(next(iter(k.by_fold.values())).coef) for k in kernels]
    metrics = {} if found.is_weighted else trial.metrics
    if metrics and all(metric is not None and is_mean(metric) for metric in metrics.values()):
        table = _added_up(trial, found, kernels, sum(counts), height)
    else:
        table = _kept(trial, found, kernels, sum(counts), height)
    starts = np.cumsum([0, *counts])
    return [
        [[row[k] for k in range(starts[i], starts[i + 1])] for row in table]
        for i in range(len(kernels))
    ]


def _added_up(
    trial: StreamTrial, found: Summed, kernels: Sequence[FoldModels], total: int, height: int
) -> list[list[Any]]:
    metrics = {name: metric for name, metric in trial.metrics.items() if metric is not None}
    sums = {name: np.zeros((len(found.folds), total)) for name in metrics}
    for block, numbers, values in held_out_blocks(trial.source, trial.rule, kernels, height):
        present = np.unique(numbers[numbers >= 0])
        if not len(present):
            continue
        parts = tuple(np.flatnonzero(numbers == fold) for fold in present)
        side = Side(trial.reader.target(block.y), parts)
        where = np.searchsorted(found.folds, present)
        for k, of_candidate in enumerate(np.concatenate(values)):
            for name, metric in metrics.items():
                scored = metric(side, of_candidate[side.rows]).scores
                sums[name][where, k] += scored * side.sizes
    return [
        [
            _pack(trial, {name: float(s[i, k] / found.rows[i]) for name, s in sums.items()})
            for k in range(total)
        ]
        for i in range(len(found.folds))
    ]


def _kept(
    trial: StreamTrial, found: Summed, kernels: Sequence[FoldModels], total: int, height: int
) -> list[list[Any]]:
    n, q = trial.source.n_rows or int(found.rows.sum()), len(found.total.target_origin)
    needed = 8 * n * q * (total + 2)
    if needed > 0.5 * available_memory():
        raise MemoryError(
            f"scoring {n} rows for {total} candidates needs {needed / 1e9:.1f} GB, as this scorer "
            "wants all predictions at once; use r2, mean squared or absolute error, or accuracy, "
            "or fewer candidates"
        )
    values, folds = np.empty((total, n, q)), np.empty(n, dtype=np.intp)
    ys, weights = [], []
    for block, numbers, found_values in held_out_blocks(trial.source, trial.rule, kernels, height):
        rows = slice(block.start, block.start + len(block))
        values[:, rows], folds[rows] = np.concatenate(found_values), numbers
        ys.append(block.y)
        weights.append(block.sample_weight)
    y = np.concatenate(ys)
    target = trial.reader.target(y)
    params = {}
    if weights[0] is not None and _take_weights(trial.scorers):
        params["sample_weight"] = np.concatenate([w for w in weights if w is not None])
    judge = Judge(_scorer(trial), target, (np.empty((n, 0)), y), params, trial.error_score)
    side = Side(target, tuple(np.flatnonzero(folds == fold) for fold in found.folds))
    columns = [judge.score(of_candidate[side.rows], side, {}) for of_candidate in values]
    return [[column[i] for column in columns] for i in range(len(found.folds))]


def _take_weights(scorers: dict[str, Any]) -> bool:
    """Whether scikit-learn would hand the weights on: if any scorer takes them."""
    asked = [getattr(scorer, "_accept_sample_weight", None) for scorer in scorers.values()]
    return any(accepts is not None and accepts() for accepts in asked)


def _scorer(trial: StreamTrial) -> Any:
    if not trial.is_multimetric:
        return trial.scorers["score"]
    from sklearn.metrics._scorer import _MultimetricScorer

    return _MultimetricScorer(scorers=trial.scorers, raise_exc=trial.error_score == "raise")


# -- predictions and fits ----------------------------------------------------------------------


def predict_stream(trial: StreamTrial, candidate: Candidate) -> tuple[Array, Target]:
    """The held-out values of all rows in two passes, (n, q), NaN without any; and a target."""
    request = _request(trial, [candidate])
    height = block_height([request], trial.source.n_features)
    (found,) = sum_rows(trial.source, trial.reader, trial.rule, [request], height)
    _check_training(trial.reader, found)
    by_fold = zip(found.folds, _fold_models(found, [candidate]), strict=True)
    models = FoldModels(request.features, dict(by_fold))
    parts: list[Array] = []
    for block, _, values in held_out_blocks(trial.source, trial.rule, [models], height):
        parts.append(values[0][0])
        target = trial.reader.target(block.y)
    return np.concatenate(parts), target
