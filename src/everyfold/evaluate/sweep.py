"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from everyfold.criteria.base import Predictive
from everyfold.evaluate.costs import COSTS
from everyfold.evaluate.data import Candidate, Data, Outcome
from everyfold.evaluate.methods import Method
from everyfold.evaluate.metrics import Metric, Side, find_metric, from_sums, is_mean, is_of_sums
from everyfold.evaluate.plan import SearchPlan
from everyfold.evaluate.rounds import Once
from everyfold.evaluate.scores import Judge
from everyfold.evaluate.tiles import Group, Unit, gather
from everyfold.models.model import Model
from everyfold.models.passes import (
    FoldModels,
    FoldRule,
    Reader,
    Request,
    Summed,
    block_height,
    choose_features,
    held_out_blocks,
    sum_rows,
)
from everyfold.models.private import MultimetricScorer
from everyfold.models.targets import Target
from everyfold.operators import Nystrom
from everyfold.operators.memory import available_memory
from everyfold.operators.moments import DISTINCT, FEW_RIDGES, Centred, RidgeModels
from everyfold.operators.nystrom import LandmarkFeatures
from everyfold.rows import RowSource
from everyfold.types import Array

__all__ = ["Stream", "plan_passes", "run_pass"]

_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 1_000_000_000
_ASSUMED_FOLDS = 10


@dataclass(frozen=True)
class Stream:
    """A source of rows, how its targets and folds are read, and who judges.

    Attributes
    ----------
    source : RowSource
    reader : Reader
    rule : FoldRule
    scorers : dict
        By name; none if held-out values are asked for.
    is_multimetric : bool
    error_score : "raise" or float
    """

    source: RowSource
    reader: Reader
    rule: FoldRule
    scorers: dict[str, Any]
    is_multimetric: bool
    error_score: Any

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

    @property
    def is_one_pass(self) -> bool:
        """Whether scores should follow from sums alone."""
        is_of_numbers = self.reader.classes is None and bool(self.scorers)
        return is_of_numbers and all(map(is_of_sums, self.metrics.values()))


# -- the plan ----------------------------------------------------------------------------------


class BySums(Predictive):
    """Squared loss from sums over the rows of every fold; :func:`run_pass` works them out."""

    def evaluate(self, *args: Any) -> Any:
        """Not available: there is no matrix of all rows."""
        raise TypeError("sums over rows are taken by passes over a source")


def plan_passes(data: Data) -> SearchPlan:
    """Cut candidates on a source into passes: as many kernels each as memory allows."""
    stream = data.stream
    kernels = gather(data.candidates.values(), lambda c: (c.kernel_key, c.model.intercept))
    room = min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())
    batches: list[list[list[Candidate]]] = [[]]
    taken = 0
    for members in kernels:
        needed = _bytes(_width(members[0].model, stream.source), stream)
        if batches[-1] and taken + needed > room:
            batches.append([])
            taken = 0
        batches[-1].append(members)
        taken += needed
    units = [_unit(stream, batch) for batch in batches]
    methods = {id(method): method for unit in units for method in unit.methods}
    return SearchPlan(
        rows=stream.source.n_rows or 0,
        folds=stream.rule.n_folds or 0,
        kernels=len(kernels),
        ridges=max(len(members) for members in kernels),
        rounds=Once(units),
        kind="none",
        estimate=sum(method.seconds for method in methods.values()),
        memory=max(method.memory for method in methods.values()),
    )


def _unit(stream: Stream, batch: Sequence[Sequence[Candidate]]) -> Unit:
    widths = [_width(members[0].model, stream.source) for members in batch]
    method = Method(
        BySums(),
        _method_words(1 if stream.is_one_pass else 2),
        _estimate(stream, widths, [len(members) for members in batch]),
        sum(_bytes(width, stream) for width in widths),
        is_of_another_model=True,
    )
    groups = tuple((Group(tuple(c.number for c in members), method),) for members in batch)
    is_linear = not isinstance(_structure(batch[0][0].model), Nystrom)
    words = "the columns of the rows" if is_linear else f"up to {max(widths)} landmarks"
    return Unit(groups, None, None, frozenset(), words, order="pass")


def _structure(model: Model) -> Any:
    """Landmarks, or the columns themselves."""
    if model.operator == "auto" and model.choice.kernel == "linear":
        return None
    return Nystrom(random_state=model.seed) if model.operator == "auto" else model.operator


def _width(model: Model, source: RowSource) -> int:
    """How many numbers are summed of a row."""
    structure = _structure(model)
    return source.n_features if structure is None else structure.count(source.n_rows or 0)


def _bytes(width: int, stream: Stream) -> int:
    return 8 * width**2 * (2 * stream.n_folds + 4) + 96_000_000


def _estimate(stream: Stream, widths: Sequence[int], ridges: Sequence[int]) -> float:
    """The seconds that the linear algebra should take, by what is known before any of it."""
    n, total = float(stream.source.n_rows or 0), 0.0
    for c, k in zip(map(float, widths), ridges, strict=True):
        solve = k * COSTS.cube_cholesky if k <= FEW_RIDGES else COSTS.cube_eigen
        total += 2 * COSTS.cube_gram * n * c**2 + COSTS.stream * n * c
        total += stream.n_folds * ((2 * COSTS.cube_gram + solve) * c**3 + k * COSTS.call)
        if not stream.is_one_pass:
            total += 2 * COSTS.stream * n * c + COSTS.cube_gram * n * c * k
    return total


def _method_words(passes: int) -> str:
    times = "one pass" if passes == 1 else "two passes"
    return (
        f"sums over the rows of every fold in {times} over the source, one eigendecomposition a "
        "fold; folds are exact for the low-rank kernel"
    )


# -- a pass ------------------------------------------------------------------------------------


def _request(stream: Stream, members: Sequence[Candidate]) -> Request:
    model = members[0].model
    features = choose_features(model, stream.source)
    return Request(features, min(m.model.ridges[0] for m in members), model.intercept)


def run_pass(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass."""
    stream, start = data.stream, time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    requests = [_request(stream, own) for own in members]
    height = block_height(requests, stream.source.n_features)
    summed = sum_rows(stream.source, stream.reader, stream.rule, requests, height)
    _check_training(stream.reader, summed[0])
    models = [_fold_models(found, own) for found, own in zip(summed, members, strict=True)]
    if not stream.scorers:
        return [_predicted(stream, members[0][0], requests[0], summed[0], models[0], height)]
    scores, passes = _scores_from_sums(stream, summed, models), 1
    if scores is None:
        passes = 2
        kernels = [
            FoldModels(request.features, dict(zip(found.folds, by_fold, strict=True)))
            for request, found, by_fold in zip(requests, summed, models, strict=True)
        ]
        scores = _second_pass(stream, summed[0], kernels, height)
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    return [
        _outcome(candidate.number, found, request, passes, seconds, [row[k] for row in of_kernel])
        for own, request, found, of_kernel in zip(members, requests, summed, scores, strict=True)
        for k, candidate in enumerate(own)
    ]


def _outcome(
    number: int,
    found: Summed,
    request: Request,
    passes: int,
    seconds: float,
    scores: list[Any],
    values: Array | None = None,
    target: Target | None = None,
) -> Outcome:
    count = len(found.folds)
    unknown = np.full(count, np.nan)
    return Outcome(
        number,
        np.arange(count),
        scores,
        None,
        np.zeros(count, dtype=bool),
        unknown,
        unknown,
        {},
        values,
        target,
        found.rows.tolist(),
        found.total.sums.count,
        (seconds, 0.0),
        _method_words(passes),
        _words(request),
        is_of_another_model=True,
    )


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
    stream: Stream, summed: Sequence[Summed], models: Sequence[list[RidgeModels]]
) -> list[list[list[Any]]] | None:
    """Scores by kernel, fold and candidate, if sums are all they need."""
    is_weighted = summed[0].is_weighted
    if stream.reader.classes is not None or (is_weighted and not _take_weights(stream.scorers)):
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
        for name, metric in stream.metrics.items():
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
                [_pack(stream, {n: float(c[k][i]) for n, c in table.items()}) for k in candidates]
                for i in folds
            ]
        )
    return scores


def _pack(stream: Stream, scores: dict[str, float]) -> Any:
    return scores if stream.is_multimetric else scores["score"]


def _second_pass(
    stream: Stream, found: Summed, kernels: Sequence[FoldModels], height: int
) -> list[list[list[Any]]]:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    counts = [len(next(iter(k.by_fold.values())).coef) for k in kernels]
    metrics = {} if found.is_weighted else stream.metrics
    if metrics and all(metric is not None and is_mean(metric) for metric in metrics.values()):
        table = _added_up(stream, found, kernels, sum(counts), height)
    else:
        table = _kept(stream, found, kernels, sum(counts), height)
    starts = np.cumsum([0, *counts])
    return [
        [[row[k] for k in range(starts[i], starts[i + 1])] for row in table]
        for i in range(len(kernels))
    ]


def _added_up(
    stream: Stream, found: Summed, kernels: Sequence[FoldModels], total: int, height: int
) -> list[list[Any]]:
    metrics = {name: metric for name, metric in stream.metrics.items() if metric is not None}
    sums = {name: np.zeros((len(found.folds), total)) for name in metrics}
    for block, numbers, values in held_out_blocks(stream.source, stream.rule, kernels, height):
        present = np.unique(numbers[numbers >= 0])
        if not len(present):
            continue
        parts = tuple(np.flatnonzero(numbers == fold) for fold in present)
        side = Side(stream.reader.target(block.y), parts)
        where = np.searchsorted(found.folds, present)
        for k, of_candidate in enumerate(np.concatenate(values)):
            for name, metric in metrics.items():
                scored = metric(side, of_candidate[side.rows]).scores
                sums[name][where, k] += scored * side.sizes
    return [
        [
            _pack(stream, {name: float(s[i, k] / found.rows[i]) for name, s in sums.items()})
            for k in range(total)
        ]
        for i in range(len(found.folds))
    ]


def _kept(
    stream: Stream, found: Summed, kernels: Sequence[FoldModels], total: int, height: int
) -> list[list[Any]]:
    n, q = stream.source.n_rows or int(found.rows.sum()), len(found.total.target_origin)
    needed = 8 * n * q * (total + 2)
    if needed > 0.5 * available_memory():
        raise MemoryError(
            f"scoring {n} rows for {total} candidates needs {needed / 1e9:.1f} GB, as this scorer "
            "wants all predictions at once; use r2, mean squared or absolute error, or accuracy, "
            "or fewer candidates"
        )
    values, folds = np.empty((total, n, q)), np.empty(n, dtype=np.intp)
    ys, weights = [], []
    for block, numbers, found_values in held_out_blocks(
        stream.source, stream.rule, kernels, height
    ):
        rows = slice(block.start, block.start + len(block))
        values[:, rows], folds[rows] = np.concatenate(found_values), numbers
        ys.append(block.y)
        weights.append(block.sample_weight)
    y = np.concatenate(ys)
    target = stream.reader.target(y)
    params = {}
    if weights[0] is not None and _take_weights(stream.scorers):
        params["sample_weight"] = np.concatenate([w for w in weights if w is not None])
    judge = Judge(_scorer(stream), target, (np.empty((n, 0)), y), params, stream.error_score)
    side = Side(target, tuple(np.flatnonzero(folds == fold) for fold in found.folds))
    columns = [judge.score(of_candidate[side.rows], side, {}) for of_candidate in values]
    return [[column[i] for column in columns] for i in range(len(found.folds))]


def _take_weights(scorers: dict[str, Any]) -> bool:
    """Whether scikit-learn would hand the weights on: if any scorer takes them."""
    asked = [getattr(scorer, "_accept_sample_weight", None) for scorer in scorers.values()]
    return any(accepts is not None and accepts() for accepts in asked)


def _scorer(stream: Stream) -> Any:
    if not stream.is_multimetric:
        return stream.scorers["score"]
    return MultimetricScorer(scorers=stream.scorers, raise_exc=stream.error_score == "raise")


# -- predictions -------------------------------------------------------------------------------


def _predicted(
    stream: Stream,
    candidate: Candidate,
    request: Request,
    found: Summed,
    by_fold: list[RidgeModels],
    height: int,
) -> Outcome:
    """The held-out values of all rows, (n, q), in a second pass."""
    start = time.perf_counter()
    models = FoldModels(request.features, dict(zip(found.folds, by_fold, strict=True)))
    parts: list[Array] = []
    for block, _, values in held_out_blocks(stream.source, stream.rule, [models], height):
        parts.append(values[0][0])
        target = stream.reader.target(block.y)
    held = np.concatenate(parts)
    untested = np.flatnonzero(np.isnan(held).any(axis=1))
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    seconds, scores = time.perf_counter() - start, [None] * len(found.folds)
    return _outcome(candidate.number, found, request, 2, seconds, scores, held, target)
