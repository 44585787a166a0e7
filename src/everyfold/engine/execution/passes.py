"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add

import numpy as np

from everyfold._progress import subtask
from everyfold._typing import Array, Index, Score
from everyfold.crossval.base import Failure
from everyfold.engine.checkpoint import unit_key
from everyfold.engine.execution.block_methods import (
    NO_FOLDS,
    BadFoldsError,
    BlockMethod,
    BlockModels,
    Failures,
    MappedKernel,
    Predictor,
    block_method,
    isolated,
)
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Data, Outcome, mean_score
from everyfold.engine.scoring.fold_scorers import FoldScorer, FoldScores
from everyfold.engine.scoring.metrics import Metric, ScoredRows, is_mean
from everyfold.engine.source_data import SourceData
from everyfold.estimators.sources import FoldedBlocks, structure_of
from everyfold.io import Block, RowSource
from everyfold.io.blocks import rows_at_a_time
from everyfold.io.fold_rules import FoldRule
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import available_memory


def run_passes(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass; a kernel or ridge that fails does so alone."""
    assert isinstance(data, SourceData)
    data, start = replace(data, threads=unit.threads), time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    method, failures = block_method(members[0][0].model), Failures()
    # BLAS gets the threads that suit what is factorised, whatever the number of rows.
    with blas_threads(data.widest):
        mapped: list[MappedKernel] = []
        with data.source.remembering():
            for own in members:
                with isolated(data, own, failures):
                    if views := data.views(own, unit.drawn):
                        mapped.append((own, views))
        data = replace(data, notes=data.notes.of_unit(unit_key(unit)))
        with subtask(0, 1 if method.knows_scores(data) else 2):
            kernels = method.fit(data, mapped, failures) if mapped else []
        if not kernels:
            other = _without_models(data, failures)
            return [_failed(other, number, failure) for number, failure in failures.items()]
        if data.scorer is None:
            return [_predicted(data, kernels[0], method)]
        scores = _known_scores(data, kernels)
        words = method.words(knows_scores=scores is not None)
        if scores is None:
            with subtask(1, 2):
                scores = score_values(data, kernels)
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    found, left = [], iter(scores)
    for kernel in kernels:
        blank = _outcome(kernel, words + kernel.remark, seconds)
        outcomes = [replace(blank, number=m.number, scores=next(left)) for m in kernel.members]
        if data.best_by is not None:
            means = [(mean_score(outcome, data.best_by), -outcome.number) for outcome in outcomes]
            best = means.index(max(means))
            outcomes[best] = replace(outcomes[best], whole=kernel.whole(data, best))
        found += outcomes
    return found + [_failed(found[0], number, failure) for number, failure in failures.items()]


def _failed(other: Outcome, number: int, failure: Failure) -> Outcome:
    """That of a candidate without models, with the folds of another outcome."""
    count = len(other.folds)
    failures = dict.fromkeys(range(count), failure)
    return replace(other, number=number, scores=[None] * count, failures=failures)


def _without_models(data: SourceData, failures: Failures) -> Outcome:
    """The outcome of a candidate without models, where no other says what the folds are.

    **Cost**: one pass over the source, which counts the rows of every fold.
    """
    number, failure = next(iter(failures.items()))
    if data.scorer is None:
        raise failure.error
    found: Counter[int] = data.source.reduce(partial(_count_folds, data.rule), add)
    sizes = [found[fold] for fold in sorted(found) if fold >= 0]
    if not sizes:
        raise BadFoldsError(NO_FOLDS)
    return _blank(number, sizes)


def _count_folds(rule: FoldRule, source: RowSource) -> Counter[int]:
    """How many rows every fold has."""
    found: Counter[int] = Counter()
    for block in source.blocks(rows_at_a_time(source.n_features)):
        found.update(rule.numbers(block).tolist())
    return found


def _outcome(kernel: BlockModels, words: str, seconds: float) -> Outcome:
    """That of the first candidate of a kernel, without its scores."""
    first, features = kernel.members[0], kernel.features
    return replace(
        _blank(first.number, [kernel.rows[fold] for fold in sorted(kernel.models)]),
        n_weighted=kernel.count,
        seconds=(seconds, 0.0),
        method=words,
        operator=f"{features.raw_width} {structure_of(first.model).kind}, rank {features.width}",
        is_of_another_model=True,
    )


def _blank(number: int, sizes: list[int]) -> Outcome:
    """An outcome on folds of these sizes of which nothing else is known."""
    t = len(sizes)
    unknown, is_exact = np.full(t, np.nan), np.zeros(t, dtype=bool)
    nothing: list[Score] = [None] * t
    return Outcome(number, np.arange(t), nothing, None, is_exact, unknown, unknown, {}, sizes=sizes)


def _predicted(data: SourceData, kernel: BlockModels, method: BlockMethod) -> Outcome:
    """The held-out values of all rows, in a second pass."""
    start = time.perf_counter()
    kept = _all_values(data, _values_of(data, [kernel]))
    held = np.concatenate([values[0] for _, _, values in kept])
    untested = np.flatnonzero(np.isnan(held).any(axis=1))
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    last, _, _ = kept[-1]
    outcome = _outcome(kernel, method.words(knows_scores=False), time.perf_counter() - start)
    return replace(outcome, values=held, target=data.reader.target(last.y[-1:]))


# -- Scores of candidates that the passes of a method do not tell: from held-out values -----------
# Values are added up to scores where the rows are, or brought together where a scorer wants all of
# them.


def _known_scores(data: SourceData, kernels: Sequence[BlockModels]) -> list[Sequence[Score]] | None:
    """The scores of all candidates, unless some kernel does not know its own."""
    found: list[Sequence[Score]] = []
    for kernel in kernels:
        own = kernel.scores(data)
        if own is None:
            return None
        found += own
    return found


def score_values(data: SourceData, kernels: Sequence[BlockModels]) -> list[Sequence[Score]]:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    # With weights, scikit-learn's scorers decide what they do with them, from all values together.
    metrics = {} if kernels[0].is_weighted else data.metrics
    is_added = metrics and all(m is not None and is_mean(m) for m in metrics.values())
    values = _values_of(data, kernels)
    return _added_up(data, kernels, values) if is_added else _kept(data, kernels, values)


@dataclass(frozen=True)
class _Values(FoldedBlocks):
    """Held-out values of rows, block by block: ``q`` for each row, by ``total`` candidates.

    ``predictors`` come with the candidates that they predict for.
    """

    predictors: Sequence[tuple[slice, Predictor]]
    total: int
    q: int

    def blocks(self, source: RowSource) -> Iterator[tuple[Block, Index, Array]]:
        """Every block with the folds of its rows and their values; NaN where no fold has them."""
        for block, numbers in self.folded(source):
            values = np.full((self.total, len(block), self.q), np.nan)
            for candidates, predictor in self.predictors:
                predictor.put(values[candidates], block.X, numbers)
            yield block, numbers, values


def _values_of(data: SourceData, kernels: Sequence[BlockModels]) -> _Values:
    """The values of the candidates of some kernels, one kernel after the other."""
    found: list[tuple[slice, Predictor]] = []
    total = 0
    for kernel in kernels:
        candidates = slice(total, total + len(kernel.members))
        found += [(candidates, predictor) for predictor in kernel.predictors()]
        total = candidates.stop
    q = next(iter(found[0][1].models.values())).coef.shape[2]
    return _Values(data.reader, data.rule, data.height, found, total, q)


# -- added up ----------------------------------------------------------------------------------


def _added_up(
    data: SourceData, kernels: Sequence[BlockModels], values: _Values
) -> list[Sequence[Score]]:
    metrics = {name: metric for name, metric in data.metrics.items() if metric is not None}
    rows = kernels[0].rows
    folds = sorted(rows)
    sums = data.reduce(partial(_add_scores, values, list(metrics.values()), folds), add)
    means = sums / np.array([rows[fold] for fold in folds])[:, None]
    return [
        FoldScores(dict(zip(metrics, means[:, :, k], strict=True)), data.is_multimetric)
        for k in range(values.total)
    ]


def _add_scores(
    values: _Values, metrics: Sequence[Metric], folds: Sequence[int], source: RowSource
) -> Array:
    """Sums of the scores of rows by metric, fold and candidate."""
    sums = np.zeros((len(metrics), len(folds), values.total))
    for block, numbers, held in values.blocks(source):
        present = np.unique(numbers[numbers >= 0])
        if not len(present):
            continue
        parts = tuple(np.flatnonzero(numbers == fold) for fold in present)
        side = ScoredRows(values.reader.target(block.y), parts)
        where = np.searchsorted(folds, present)
        for k, of_candidate in enumerate(held):
            for m, metric in enumerate(metrics):
                sums[m, where, k] += metric(side, of_candidate[side.rows]).scores * side.sizes
    return sums


# -- brought together --------------------------------------------------------------------------

# Blocks of rows without their features, with the folds and the values of the rows.
_KeptBlocks = list[tuple[Block, Index, Array]]


def _keep(values: _Values, source: RowSource) -> _KeptBlocks:
    return [
        (replace(block, X=np.empty((len(block), 0))), numbers, held)
        for block, numbers, held in values.blocks(source)
    ]


def _all_values(data: SourceData, values: _Values) -> _KeptBlocks:
    """The values of all rows, in the order of the rows, wherever they come from."""
    found: _KeptBlocks = data.reduce(partial(_keep, values), add)
    return sorted(found, key=lambda item: item[0].start)


def _kept(
    data: SourceData, kernels: Sequence[BlockModels], values: _Values
) -> list[Sequence[Score]]:
    needed = 8 * data.n * values.q * (values.total + 2)
    if needed > 0.5 * available_memory():
        raise MemoryError(
            f"scoring {data.n} rows for {values.total} candidates needs {needed / 1e9:.1f} GB, as "
            "this scorer needs all predictions at once; use R², squared or absolute error or "
            "accuracy as scoring, or fewer candidates"
        )
    kept = _all_values(data, values)
    blocks = [block for block, _, _ in kept]
    fold_of = np.concatenate([numbers for _, numbers, _ in kept])
    y = np.concatenate([block.y for block in blocks])
    target = data.reader.target(y)
    params = {}
    if blocks[0].sample_weight is not None and data.takes_weights:
        params["sample_weight"] = np.concatenate([block.sample_weight for block in blocks])
    rows = np.empty((len(y), 0)), y
    judge = FoldScorer(data.scorer, target, rows, params, data.error_score)
    folds = sorted(kernels[0].rows)
    side = ScoredRows(target, tuple(np.flatnonzero(fold_of == fold) for fold in folds))
    # One candidate at a time, so that the values of all do not exist twice.
    return [
        judge.score(np.concatenate([held[k] for _, _, held in kept])[side.rows], side, {})
        for k in range(values.total)
    ]
