"""Candidates on a source of rows that never fits in memory: sums in one pass, scores from them.

One pass for each batch of kernels gives every fold's model for every ridge. Squared errors and R²
follow from the same sums; other scores take a second pass.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import add

import numpy as np

from everyfold._progress import subtask
from everyfold._sklearn_private import MultimetricScorer
from everyfold._typing import Array, Index, Params, Score, Scorer
from everyfold.crossval.base import Failure
from everyfold.engine.planning.pass_sizes import block_height, pass_words, widest
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Candidate, Data, Outcome
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import Metric, ScoredRows, is_mean, score_errors
from everyfold.engine.stream import PassKernel, Predictor, Stream
from everyfold.estimators.sources import Reader, Summing, View, reduced, structure_of, tell_block
from everyfold.estimators.targets import Target
from everyfold.io import Block, RowSource, StreamError
from everyfold.io.blocks import rows_at_a_time
from everyfold.io.cluster import ClusterError
from everyfold.io.fold_rules import FoldRule
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import available_memory
from everyfold.operators import StructureError
from everyfold.operators.gram import FoldSums
from everyfold.operators.response import RidgeModels

# Why candidates have no models, by number.
Failures = dict[int, Failure]


def run_pass(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass; a kernel or ridge that fails does so alone."""
    stream, start = replace(data.stream, threads=unit.threads), time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    height, failures = block_height(data), Failures()
    # BLAS gets the threads that suit what is factorised, whatever the number of rows.
    with blas_threads(widest(data)):
        made: list[tuple[Sequence[Candidate], list[View]]] = []
        with stream.source.remembering():
            for own in members:
                with _isolated(stream, own, failures):
                    if views := stream.views(own, unit.drawn):
                        made.append((own, views))
        with subtask(0, 1 if stream.is_one_pass else 2):
            kernels, is_weighted = _summed(stream, made, height, failures)
        if not kernels:
            other = _without_models(stream, failures)
            return [_failed(other, number, failure) for number, failure in failures.items()]
        if not stream.scorers:
            return [_predicted(stream, kernels[0], height)]
        scores, passes = scores_from_sums(stream, kernels, is_weighted=is_weighted), 1
        if scores is None:
            with subtask(1, 2):
                scores = score_values(stream, kernels, height, is_weighted=is_weighted)
            passes = 2
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    found = [
        _outcome(candidate.number, kernel, passes, seconds, [row[k] for row in of_kernel])
        for kernel, of_kernel in zip(kernels, scores, strict=True)
        for k, candidate in enumerate(kernel.members)
    ]
    return found + [_failed(found[0], number, failure) for number, failure in failures.items()]


def _failed(other: Outcome, number: int, failure: Failure) -> Outcome:
    """That of a candidate without models, with the folds of another outcome."""
    count = len(other.folds)
    failures = dict.fromkeys(range(count), failure)
    return replace(other, number=number, scores=[None] * count, failures=failures)


def _summed(
    stream: Stream,
    made: Sequence[tuple[Sequence[Candidate], Sequence[View]]],
    height: int,
    failures: Failures,
) -> tuple[list[PassKernel], bool]:
    """Kernels with the models of every fold, by one pass; and whether rows have weights."""
    every = [view for _, views in made for view in views]
    if not every:
        return [], False
    found = Summing(stream.reader, stream.rule, height, every).over(stream.source, stream.threads)
    left = iter(found.sums)
    kernels: list[PassKernel] = []
    for own, views in made:
        kernels += _kernels(stream, own, views, [next(left) for _ in views], failures)
    return kernels, found.is_weighted


class _BadFolds(ValueError):
    """Folds that no kernel can be fitted on."""


def _without_models(stream: Stream, failures: Failures) -> Outcome:
    """The outcome of a candidate without models, where no other says what the folds are.

    **Cost**: one pass over the source, which counts the rows of every fold.
    """
    number, failure = next(iter(failures.items()))
    if not stream.scorers:
        raise failure.error
    found: Counter[int] = stream.source.reduce(partial(_count_folds, stream.rule), add)
    sizes = [found[fold] for fold in sorted(found) if fold >= 0]
    if not sizes:
        raise _BadFolds(_NO_FOLDS)
    unknown, scores = np.full(len(sizes), np.nan), [None] * len(sizes)
    is_exact, folds = np.zeros(len(sizes), dtype=bool), np.arange(len(sizes))
    return Outcome(number, folds, scores, None, is_exact, unknown, unknown, {}, sizes=sizes)


def _count_folds(rule: FoldRule, source: RowSource) -> Counter[int]:
    """How many rows every fold has."""
    found: Counter[int] = Counter()
    for block in source.blocks(rows_at_a_time(source.n_features)):
        found.update(rule.numbers(block).tolist())
    return found


@contextmanager
def _isolated(stream: Stream, members: Sequence[Candidate], failures: Failures) -> Iterator[None]:
    """Keep an error as that of some candidates, unless it is of all or is to be raised."""
    try:
        yield
    except (MemoryError, StructureError, StreamError, ClusterError, _BadFolds):
        raise
    except Exception as error:
        if stream.error_score == "raise":
            raise
        failures |= dict.fromkeys((own.number for own in members), Failure.caught(error))


def _kernels(
    stream: Stream,
    members: Sequence[Candidate],
    views: Sequence[View],
    sums: Sequence[FoldSums],
    failures: Failures,
) -> list[PassKernel]:
    """The models of a kernel; if a ridge has none, those of the other ridges one by one."""
    failed: Failures = {}
    with _isolated(stream, members, failed):
        models: dict[int, RidgeModels] = {}
        for of_view in sums:
            models |= _fold_models(stream, members, of_view)
        return [PassKernel(members, views, sums, models)]
    # One ridge of several failed, and it is not known which.
    if len(members) == 1:
        failures |= failed
        return []
    alone = [_kernels(stream, [one], views, sums, failures) for one in members]
    return [kernel for kernels in alone for kernel in kernels]


def _outcome(
    number: int,
    kernel: PassKernel,
    passes: int,
    seconds: float,
    scores: list[Score],
    values: Array | None = None,
    target: Target | None = None,
) -> Outcome:
    parts = [kernel.parts[fold] for fold in sorted(kernel.models)]
    unknown = np.full(len(parts), np.nan)
    features, structure = kernel.features, structure_of(kernel.members[0].model)
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
        kernel.count,
        (seconds, 0.0),
        pass_words(passes),
        f"{features.raw_width} {structure.kind}, rank {features.width}",
        is_of_another_model=True,
    )


_NO_FOLDS = "cv has no folds: it holds out no row of the source; check the fold column"


def _fold_models(
    stream: Stream, members: Sequence[Candidate], sums: FoldSums
) -> dict[int, RidgeModels]:
    """The models of every fold for the candidates' ridges; refuses folds nothing is learnt from."""
    if not sums.folds:
        raise _BadFolds(_NO_FOLDS)
    total = sum(part.count for part in sums.parts.values())
    for fold in sums.folds:
        if sums.parts[fold].count == total:
            raise _BadFolds(
                f"cv: fold {fold} leaves no training rows with positive weight; use smaller folds"
            )
    models = {}
    for fold, rest in sums.rests():
        if stream.reader.classes is not None and _lacks_a_class(rest.middle):
            raise _BadFolds(
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


def _lacks_a_class(mean: Array) -> bool:
    """Whether a class has no weight, given the mean of its targets of -1 and 1."""
    share = 0.5 * (1.0 + mean)
    # Two classes have one column, in which the second may be missing as well.
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


def _predicted(stream: Stream, kernel: PassKernel, height: int) -> Outcome:
    """The held-out values of all rows, in a second pass."""
    start = time.perf_counter()
    kept = _all_values(stream, _values_of(stream, [kernel], height))
    held = np.concatenate([values[0] for _, _, values in kept])
    untested = np.flatnonzero(np.isnan(held).any(axis=1))
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    seconds, scores = time.perf_counter() - start, [None] * len(kernel.models)
    last, _, _ = kept[-1]
    target = stream.reader.target(last.y[-1:])
    return _outcome(kernel.members[0].number, kernel, 2, seconds, scores, held, target)


# -- Scores of candidates on a source of rows: from the sums of a pass, or from values in a second
# Values of held-out rows are added up to scores where the rows are, or brought together where a
# scorer wants all of them.


# Scores by kernel, fold and candidate.
Table = list[list[list[Score]]]


def scores_from_sums(
    stream: Stream, kernels: Sequence[PassKernel], *, is_weighted: bool
) -> Table | None:
    """The scores, if sums are all they need."""
    if stream.reader.classes is not None or (is_weighted and not _take_weights(stream.scorers)):
        return None
    scores = []
    for kernel in kernels:
        errors = kernel.errors()
        if errors is None or not errors.weight.all():  # scikit-learn knows what weight 0 is worth
            return None  # a second pass has the values themselves
        table = score_errors(stream.metrics, errors)
        if table is None:
            return None
        scores.append(
            [
                [
                    stream.pack({name: float(s[i, k]) for name, s in table.items()})
                    for k in range(len(kernel.members))
                ]
                for i in range(len(kernel.models))
            ]
        )
    return scores


def score_values(
    stream: Stream, kernels: Sequence[PassKernel], height: int, *, is_weighted: bool
) -> Table:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    # With weights, scikit-learn's scorers decide what they do with them, from all values together.
    metrics = {} if is_weighted else stream.metrics
    is_added = metrics and all(m is not None and is_mean(m) for m in metrics.values())
    values = _values_of(stream, kernels, height)
    table = _added_up(stream, kernels, values) if is_added else _kept(stream, kernels, values)
    ends = np.cumsum([0, *(len(kernel.members) for kernel in kernels)]).tolist()
    return [[row[first:last] for row in table] for first, last in pairwise(ends)]


@dataclass(frozen=True)
class _Values:
    """Held-out values of rows, block by block: ``q`` for each row, by ``total`` candidates.

    ``predictors`` come with the candidates that they predict for.
    """

    reader: Reader
    rule: FoldRule
    predictors: Sequence[tuple[slice, Predictor]]
    total: int
    q: int
    height: int

    def blocks(self, source: RowSource) -> Iterator[tuple[Block, Index, Array]]:
        """Every block with the folds of its rows and their values; NaN where no fold has them."""
        for block in source.blocks(self.height):
            numbers = self.rule.numbers(block)
            values = np.full((self.total, len(block), self.q), np.nan)
            for candidates, predictor in self.predictors:
                predictor.put(values[candidates], block.X, numbers)
            yield block, numbers, values
            tell_block(block, source)


def _values_of(stream: Stream, kernels: Sequence[PassKernel], height: int) -> _Values:
    """The values of the candidates of some kernels, one kernel after the other."""
    found: list[tuple[slice, Predictor]] = []
    total = 0
    for kernel in kernels:
        candidates = slice(total, total + len(kernel.members))
        found += [(candidates, predictor) for predictor in kernel.predictors()]
        total = candidates.stop
    q = next(iter(found[0][1].models.values())).coef.shape[2]
    return _Values(stream.reader, stream.rule, found, total, q, height)


# -- added up ----------------------------------------------------------------------------------


def _added_up(stream: Stream, kernels: Sequence[PassKernel], values: _Values) -> list[list[Score]]:
    metrics = {name: metric for name, metric in stream.metrics.items() if metric is not None}
    folds = sorted(kernels[0].models)
    work = partial(_add_scores, values, list(metrics.values()), folds)
    sums = reduced(stream.source, work, add, stream.threads)
    parts = kernels[0].parts
    means = sums / np.array([parts[fold].rows for fold in folds])[:, None]
    return [
        [
            stream.pack({name: float(means[m, i, k]) for m, name in enumerate(metrics)})
            for k in range(values.total)
        ]
        for i in range(len(folds))
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


def _all_values(stream: Stream, values: _Values) -> _KeptBlocks:
    """The values of all rows, in the order of the rows, wherever they come from."""
    found: _KeptBlocks = reduced(stream.source, partial(_keep, values), add, stream.threads)
    return sorted(found, key=lambda item: item[0].start)


def _kept(stream: Stream, kernels: Sequence[PassKernel], values: _Values) -> list[list[Score]]:
    n, total = stream.source.n_rows or 0, values.total
    needed = 8 * n * values.q * (total + 2)
    if needed > 0.5 * available_memory():
        raise MemoryError(
            f"scoring {n} rows for {total} candidates needs {needed / 1e9:.1f} GB, as "
            "this scorer needs all predictions at once; use R², squared or absolute error or "
            "accuracy as scoring, or fewer candidates"
        )
    kept = _all_values(stream, values)
    blocks = [block for block, _, _ in kept]
    fold_of = np.concatenate([numbers for _, numbers, _ in kept])
    y = np.concatenate([block.y for block in blocks])
    target = stream.reader.target(y)
    params = {}
    if blocks[0].sample_weight is not None and _take_weights(stream.scorers):
        params["sample_weight"] = np.concatenate([block.sample_weight for block in blocks])
    scorer: Scorer = stream.scorers.get("score")
    if stream.is_multimetric:
        is_raised = stream.error_score == "raise"
        scorer = MultimetricScorer(scorers=stream.scorers, raise_exc=is_raised)
    judge = FoldScorer(scorer, target, (np.empty((n, 0)), y), params, stream.error_score)
    folds = sorted(kernels[0].models)
    side = ScoredRows(target, tuple(np.flatnonzero(fold_of == fold) for fold in folds))
    # One candidate at a time, so that the values of all do not exist twice.
    columns = [
        judge.score(np.concatenate([held[k] for _, _, held in kept])[side.rows], side, {})
        for k in range(total)
    ]
    return [[column[i] for column in columns] for i in range(len(folds))]


def _take_weights(scorers: Params) -> bool:
    """Whether scikit-learn would hand the weights on: if any scorer takes them."""
    asked = [getattr(scorer, "_accept_sample_weight", None) for scorer in scorers.values()]
    return any(accepts is not None and accepts() for accepts in asked)
