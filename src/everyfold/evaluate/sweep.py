"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.base import is_classifier

from everyfold.criteria import BySums
from everyfold.evaluate.costs import COSTS, feature_seconds, landmark_seconds
from everyfold.evaluate.data import Candidate, Data, Outcome
from everyfold.evaluate.methods import Method, pass_bytes, sums_bytes
from everyfold.evaluate.metrics import (
    Metric,
    Side,
    find_metric,
    is_mean,
    is_of_sums,
    score_errors,
)
from everyfold.evaluate.plan import SearchPlan
from everyfold.evaluate.rounds import Once
from everyfold.evaluate.scores import Judge
from everyfold.evaluate.tiles import Group, Unit, gather
from everyfold.models.model import Model
from everyfold.models.private import MultimetricScorer
from everyfold.models.sources import Reader, SourceBatches, choose_map, structure_of
from everyfold.models.targets import Target
from everyfold.operators import FeatureMap
from everyfold.operators.memory import available_memory
from everyfold.operators.sums import FEW_RIDGES, FoldSums, RidgeModels, Start
from everyfold.rows import Block, RowSource
from everyfold.rows.batches import height_of
from everyfold.rows.rules import FoldRule
from everyfold.types import Array, ErrorScore, Index, Params, Score, Scorer

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
    scorers: Params
    is_multimetric: bool
    error_score: ErrorScore

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


def plan_passes(data: Data) -> SearchPlan:
    """Cut candidates on a source into passes: as many kernels each as memory allows."""
    stream = data.stream
    kernels = gather(data.candidates.values(), lambda c: (c.kernel_key, c.model.intercept))
    room = min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())
    batches: list[list[list[Candidate]]] = [[]]
    taken = 0
    for members in kernels:
        needed = sums_bytes(_width(members[0].model, stream.source), stream.n_folds)
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
        notes=_notes(data),
    )


def _notes(data: Data) -> tuple[str, ...]:
    """Say what is fitted in place of an estimator whose ``fit`` takes no source."""
    estimator = next(iter(data.candidates.values())).parts.final
    if hasattr(estimator, "_model"):
        return ()
    kind = "KernelClassifier" if is_classifier(estimator) else "KernelRegressor"
    return (
        f"{type(estimator).__name__} cannot be fitted to a source of rows; best_estimator_ is the "
        f"{kind} of the same model",
    )


def _unit(stream: Stream, batch: Sequence[Sequence[Candidate]]) -> Unit:
    widths = [_width(members[0].model, stream.source) for members in batch]
    method = Method(
        BySums(),
        _method_words(1 if stream.is_one_pass else 2),
        _estimate(stream, widths, [len(members) for members in batch]),
        pass_bytes(widths, stream.n_folds),
        is_of_another_model=True,
    )
    groups = tuple((Group(tuple(c.number for c in members), method),) for members in batch)
    words = f"up to {max(widths)} {structure_of(batch[0][0].model).kind}"
    return Unit(groups, None, None, frozenset(), words, order="pass")


def _width(model: Model, source: RowSource) -> int:
    """How many numbers are summed of a row."""
    return structure_of(model).raw_width_for(source.n_rows or 0, source.n_features)


def _estimate(stream: Stream, widths: Sequence[int], ridges: Sequence[int]) -> float:
    """The seconds that the linear algebra should take, by what is known before any of it."""
    n, total = float(stream.source.n_rows or 0), 0.0
    for c, k in zip(widths, ridges, strict=True):
        solve = k * COSTS.block_cholesky if k <= FEW_RIDGES else COSTS.cube_eigen
        total += landmark_seconds(n, c) + feature_seconds(n, c, stream.source.n_features)
        total += 2 * COSTS.block_gram * n * c**2
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


@dataclass(frozen=True)
class _Kernel:
    """A kernel in a pass: its candidates, its map, its sums, and the models of every fold."""

    members: Sequence[Candidate]
    features: FeatureMap
    sums: FoldSums
    models: dict[int, RidgeModels]

    def values(self, X: Array, numbers: Index) -> Array:
        """The values of rows by the models of their folds, (ridges, rows, q); NaN for −1."""
        k, _, q = next(iter(self.models.values())).coef.shape
        values, C = np.full((k, len(X), q), np.nan), self.features.raw(X)
        for fold in np.unique(numbers[numbers >= 0]).tolist():
            rows = np.flatnonzero(numbers == fold)
            values[:, rows] = self.models[fold].of_raw(self.features.T).values(C[rows])
        return values


def block_height(maps: Sequence[FeatureMap]) -> int:
    """How many rows to read at a time."""
    return height_of(max(features.raw_width for features in maps))


def run_pass(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass."""
    stream, start = data.stream, time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    maps = [choose_map(own[0].model, stream.source) for own in members]
    batches = SourceBatches(stream.source, stream.reader, stream.rule, block_height(maps))
    sums = batches.sums(maps, [_start(stream, *pair) for pair in zip(maps, members, strict=True)])
    kernels = [
        _Kernel(own, features, found, _fold_models(stream, own, found))
        for own, features, found in zip(members, maps, sums, strict=True)
    ]
    if not stream.scorers:
        return [_predicted(stream, kernels[0], batches.height)]
    scores, passes = _scores_from_sums(stream, kernels, batches.is_weighted), 1
    if scores is None:
        scores, passes = _second_pass(stream, kernels, batches), 2
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    return [
        _outcome(candidate.number, kernel, passes, seconds, [row[k] for row in of_kernel])
        for kernel, of_kernel in zip(kernels, scores, strict=True)
        for k, candidate in enumerate(kernel.members)
    ]


def _start(stream: Stream, features: FeatureMap, members: Sequence[Candidate]) -> Start:
    rho, n = min(m.model.ridges[0] for m in members), stream.source.n_rows or 1
    return Start.of(features, rho, n, intercept=members[0].model.intercept)


def _words(features: FeatureMap, model: Model) -> str:
    return f"{features.raw_width} {structure_of(model).kind}, rank {features.width}"


def _outcome(
    number: int,
    kernel: _Kernel,
    passes: int,
    seconds: float,
    scores: list[Score],
    values: Array | None = None,
    target: Target | None = None,
) -> Outcome:
    parts = [kernel.sums.parts[fold] for fold in kernel.models]
    unknown = np.full(len(parts), np.nan)
    return Outcome(
        number,
        np.arange(len(parts)),
        scores,
        None,
        np.zeros(len(parts), dtype=bool),
        unknown,
        unknown,
        {},
        values,
        target,
        [part.rows for part in parts],
        sum(part.count for part in kernel.sums.parts.values()),
        (seconds, 0.0),
        _method_words(passes),
        _words(kernel.features, kernel.members[0].model),
        is_of_another_model=True,
    )


def _fold_models(
    stream: Stream, members: Sequence[Candidate], sums: FoldSums
) -> dict[int, RidgeModels]:
    """The models of every fold for the candidates' ridges."""
    _check_training(sums)
    models = {}
    for fold, rest in sums.rests():
        if stream.reader.classes is not None and _lacks_a_class(rest.middle):
            raise ValueError(
                f"cv: the training rows of fold {fold} lack a class (rows sorted by label?), or "
                "have it with weight 0 only; give the source a fold column that mixes them, or use "
                "KFold(shuffle=True)"
            )
        models[fold] = rest.solve(
            [
                m.model.ridges[0] * (rest.count if m.model.ridge_scaling == "mean" else 1)
                for m in members
            ]
        )
    return models


def _check_training(sums: FoldSums) -> None:
    """Refuse folds that leave nothing to learn from."""
    if not sums.folds:
        raise ValueError("cv has no folds: it holds out no row of the source")
    total = sum(part.count for part in sums.parts.values())
    for fold in sums.folds:
        if sums.parts[fold].count == total:
            raise ValueError(
                f"cv: fold {fold} leaves no training rows of positive weight; use folds that share "
                "the rows out"
            )


def _lacks_a_class(mean: Array) -> bool:
    share = 0.5 * (1.0 + mean)
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


# -- scores ------------------------------------------------------------------------------------


def _scores_from_sums(
    stream: Stream, kernels: Sequence[_Kernel], is_weighted: bool
) -> list[list[list[Score]]] | None:
    """Scores by kernel, fold and candidate, if sums are all they need."""
    if stream.reader.classes is not None or (is_weighted and not _take_weights(stream.scorers)):
        return None
    scores = []
    for kernel in kernels:
        errors = kernel.sums.errors(kernel.models)
        if errors is None or not errors.weight.all():  # scikit-learn knows what weight 0 is worth
            return None
        table = score_errors(stream.metrics, errors)
        if table is None:
            return None
        scores.append(
            [
                [_pack(stream, {name: float(s[i, k]) for name, s in table.items()}) for k in ks]
                for i, ks in enumerate([range(len(kernel.members))] * len(kernel.models))
            ]
        )
    return scores


def _pack(stream: Stream, scores: dict[str, float]) -> Score:
    return scores if stream.is_multimetric else scores["score"]


def _second_pass(
    stream: Stream, kernels: Sequence[_Kernel], batches: SourceBatches
) -> list[list[list[Score]]]:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    counts = [len(kernel.members) for kernel in kernels]
    metrics = {} if batches.is_weighted else stream.metrics
    is_added = metrics and all(m is not None and is_mean(m) for m in metrics.values())
    score = _added_up if is_added else _kept
    table = score(stream, kernels, sum(counts), batches.height)
    starts = np.cumsum([0, *counts])
    return [
        [[row[k] for k in range(starts[i], starts[i + 1])] for row in table]
        for i in range(len(kernels))
    ]


def _held_out_blocks(
    stream: Stream, kernels: Sequence[_Kernel], height: int
) -> Iterator[tuple[Block, Index, Array]]:
    """Every block with the folds of its rows and their values by all candidates."""
    for block in stream.source.blocks(height):
        numbers = stream.rule.numbers(block)
        yield block, numbers, np.concatenate([k.values(block.X, numbers) for k in kernels])


def _added_up(
    stream: Stream, kernels: Sequence[_Kernel], total: int, height: int
) -> list[list[Score]]:
    metrics = {name: metric for name, metric in stream.metrics.items() if metric is not None}
    folds = list(kernels[0].models)
    sums = {name: np.zeros((len(folds), total)) for name in metrics}
    for block, numbers, values in _held_out_blocks(stream, kernels, height):
        present = np.unique(numbers[numbers >= 0])
        if not len(present):
            continue
        parts = tuple(np.flatnonzero(numbers == fold) for fold in present)
        side = Side(stream.reader.target(block.y), parts)
        where = np.searchsorted(folds, present)
        for k, of_candidate in enumerate(values):
            for name, metric in metrics.items():
                scored = metric(side, of_candidate[side.rows]).scores
                sums[name][where, k] += scored * side.sizes
    rows = [kernels[0].sums.parts[fold].rows for fold in folds]
    return [
        [
            _pack(stream, {name: float(s[i, k] / rows[i]) for name, s in sums.items()})
            for k in range(total)
        ]
        for i in range(len(folds))
    ]


def _kept(stream: Stream, kernels: Sequence[_Kernel], total: int, height: int) -> list[list[Score]]:
    folds = list(kernels[0].models)
    n, q = stream.source.n_rows or 0, next(iter(kernels[0].models.values())).coef.shape[2]
    needed = 8 * n * q * (total + 2)
    if needed > 0.5 * available_memory():
        raise MemoryError(
            f"scoring {n} rows for {total} candidates needs {needed / 1e9:.1f} GB, as this scorer "
            "wants all predictions at once; use r2, mean squared or absolute error, or accuracy, "
            "or fewer candidates"
        )
    values, fold_of = np.empty((total, n, q)), np.empty(n, dtype=np.intp)
    ys, weights = [], []
    for block, numbers, found in _held_out_blocks(stream, kernels, height):
        rows = slice(block.start, block.start + len(block))
        values[:, rows], fold_of[rows] = found, numbers
        ys.append(block.y)
        weights.append(block.sample_weight)
    y = np.concatenate(ys)
    target = stream.reader.target(y)
    params = {}
    if weights[0] is not None and _take_weights(stream.scorers):
        params["sample_weight"] = np.concatenate([w for w in weights if w is not None])
    judge = Judge(_scorer(stream), target, (np.empty((n, 0)), y), params, stream.error_score)
    side = Side(target, tuple(np.flatnonzero(fold_of == fold) for fold in folds))
    columns = [judge.score(of_candidate[side.rows], side, {}) for of_candidate in values]
    return [[column[i] for column in columns] for i in range(len(folds))]


def _take_weights(scorers: Params) -> bool:
    """Whether scikit-learn would hand the weights on: if any scorer takes them."""
    asked = [getattr(scorer, "_accept_sample_weight", None) for scorer in scorers.values()]
    return any(accepts is not None and accepts() for accepts in asked)


def _scorer(stream: Stream) -> Scorer:
    if not stream.is_multimetric:
        return stream.scorers["score"]
    return MultimetricScorer(scorers=stream.scorers, raise_exc=stream.error_score == "raise")


# -- predictions -------------------------------------------------------------------------------


def _predicted(stream: Stream, kernel: _Kernel, height: int) -> Outcome:
    """The held-out values of all rows, (n, q), in a second pass."""
    start = time.perf_counter()
    parts: list[Array] = []
    for block, _, values in _held_out_blocks(stream, [kernel], height):
        parts.append(values[0])
        target = stream.reader.target(block.y)
    held = np.concatenate(parts)
    untested = np.flatnonzero(np.isnan(held).any(axis=1))
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    seconds, scores = time.perf_counter() - start, [None] * len(kernel.models)
    return _outcome(kernel.members[0].number, kernel, 2, seconds, scores, held, target)
