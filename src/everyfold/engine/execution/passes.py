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
from operator import add

import numpy as np

from everyfold._progress import within
from everyfold._sklearn_private import MultimetricScorer
from everyfold._typing import AnyArray, Array, Index, Params, Score, Scorer
from everyfold.crossval.base import Failure
from everyfold.engine.planning.pass_sizes import block_height, pass_words, widest
from everyfold.engine.planning.units import Unit
from everyfold.engine.records import Candidate, Data, Outcome
from everyfold.engine.scoring.fold_scorers import FoldScorer
from everyfold.engine.scoring.metrics import Metric, ScoredRows, is_mean, score_errors
from everyfold.engine.stream import PassKernel, Predictor, Stream
from everyfold.estimators.model import Model
from everyfold.estimators.sources import Reader, Summing, View, reduced, structure_of, tell_block
from everyfold.estimators.targets import Target
from everyfold.io import Block, RowSource, StreamError
from everyfold.io.blocks import rows_at_a_time
from everyfold.io.cluster import ClusterError
from everyfold.io.fold_rules import FoldRule
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import available_memory
from everyfold.operators import FeatureMap, StructureError
from everyfold.operators.gram import FoldSums
from everyfold.operators.response import RidgeModels

# Why candidates have no models, by number.
Failures = dict[int, Failure]


def run_pass(data: Data, unit: Unit) -> list[Outcome]:
    """The outcomes of all candidates of a pass; a kernel or ridge that fails does so alone."""
    with blas_threads(widest(data)):  # what is factorised is of that size, whatever is summed
        return _run_pass(data, unit)


def _run_pass(data: Data, unit: Unit) -> list[Outcome]:
    stream, start = replace(data.stream, threads=unit.threads), time.perf_counter()
    members = [[data.candidates[k] for k in group.numbers] for (group,) in unit.groups]
    failures: Failures = {}
    with stream.source.remembering():
        tried = [(own, _views(stream, own, unit.drawn, failures)) for own in members]
    made = [(own, views) for own, views in tried if views]
    height = block_height(data)
    with within(0, 1 if stream.is_one_pass else 2):
        kernels, is_weighted = _summed(stream, made, height, failures)
    if not kernels:
        nobody = _nobody(stream, failures)
        return [_lost(nobody, number, failure) for number, failure in failures.items()]
    if not stream.scorers:
        return [_predicted(stream, kernels[0], height)]
    scores, passes = scores_from_sums(stream, kernels, is_weighted=is_weighted), 1
    if scores is None:
        with within(1, 2):
            scores, passes = score_values(stream, kernels, height, is_weighted=is_weighted), 2
    seconds = (time.perf_counter() - start) / len(unit.numbers)
    found = [
        _outcome(candidate.number, kernel, passes, seconds, [row[k] for row in of_kernel])
        for kernel, of_kernel in zip(kernels, scores, strict=True)
        for k, candidate in enumerate(kernel.members)
    ]
    return found + [_lost(found[0], number, failure) for number, failure in failures.items()]


def _lost(other: Outcome, number: int, failure: Failure) -> Outcome:
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


def _nobody(stream: Stream, failures: Failures) -> Outcome:
    """The outcome of a candidate without models, where no other tells what the folds are.

    **Cost**: one pass over the source, which counts the rows of every fold.
    """
    number, failure = next(iter(failures.items()))
    if not stream.scorers:
        raise failure.error
    found: Counter[int] = stream.source.reduce(_CountFolds(stream.rule), add)
    sizes = [found[fold] for fold in sorted(found) if fold >= 0]
    if not sizes:
        raise _BadFolds(_NO_FOLDS)
    unknown, scores = np.full(len(sizes), np.nan), [None] * len(sizes)
    is_exact, folds = np.zeros(len(sizes), dtype=bool), np.arange(len(sizes))
    return Outcome(number, folds, scores, None, is_exact, unknown, unknown, {}, sizes=sizes)


@dataclass(frozen=True)
class _CountFolds:
    """How many rows every fold has."""

    rule: FoldRule

    def __call__(self, source: RowSource) -> Counter[int]:
        found: Counter[int] = Counter()
        for block in source.blocks(rows_at_a_time(source.n_features)):
            found.update(self.rule.numbers(block).tolist())
        return found


@contextmanager
def _isolated(stream: Stream, members: Sequence[Candidate], failures: Failures) -> Iterator[None]:
    """Note an error as that of some candidates, unless it is everyone's or is to be raised."""
    try:
        yield
    except (MemoryError, StructureError, StreamError, ClusterError, _BadFolds):
        raise
    except Exception as error:
        if stream.error_score == "raise":
            raise
        failures |= dict.fromkeys((own.number for own in members), Failure.caught(error))


def _views(
    stream: Stream, members: Sequence[Candidate], drawn: int, failures: Failures
) -> list[View] | None:
    with _isolated(stream, members, failures):
        return stream.views(members, drawn)
    return None


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
        return [_kernel(stream, members, views, sums)]
    if len(members) == 1:
        failures |= failed
        return []
    alone = [_kernels(stream, [one], views, sums, failures) for one in members]
    return [kernel for kernels in alone for kernel in kernels]


def _kernel(
    stream: Stream, members: Sequence[Candidate], views: Sequence[View], sums: Sequence[FoldSums]
) -> PassKernel:
    models: dict[int, RidgeModels] = {}
    for of_view in sums:
        models |= _fold_models(stream, members, of_view)
    return PassKernel(members, views, sums, models)


def _words(features: FeatureMap, model: Model) -> str:
    return f"{features.raw_width} {structure_of(model).kind}, rank {features.width}"


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


_NO_FOLDS = "cv has no folds: it holds out no row of the source; check the fold column"


def _check_training(sums: FoldSums) -> None:
    """Refuse folds that leave nothing to learn from."""
    if not sums.folds:
        raise _BadFolds(_NO_FOLDS)
    total = sum(part.count for part in sums.parts.values())
    for fold in sums.folds:
        if sums.parts[fold].count == total:
            raise _BadFolds(
                f"cv: fold {fold} leaves no training rows with positive weight; use smaller folds"
            )


def _lacks_a_class(mean: Array) -> bool:
    share = 0.5 * (1.0 + mean)
    return bool((share < 1e-12).any() or (len(share) == 1 and (share > 1 - 1e-12).any()))


def _predicted(stream: Stream, kernel: PassKernel, height: int) -> Outcome:
    """The held-out values of all rows, in a second pass."""
    start = time.perf_counter()
    held, y = held_out_values(stream, kernel, height)
    seconds, scores = time.perf_counter() - start, [None] * len(kernel.models)
    target = stream.reader.target(y)
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
            return None
        table = score_errors(stream.metrics, errors)
        if table is None:
            return None
        scores.append(
            [
                [stream.pack({name: float(s[i, k]) for name, s in table.items()}) for k in ks]
                for i, ks in enumerate([range(len(kernel.members))] * len(kernel.models))
            ]
        )
    return scores


def score_values(
    stream: Stream, kernels: Sequence[PassKernel], height: int, *, is_weighted: bool
) -> Table:
    """Scores from the values of all rows: added up block by block, or kept where they must be."""
    counts = [len(kernel.members) for kernel in kernels]
    metrics = {} if is_weighted else stream.metrics
    is_added = metrics and all(m is not None and is_mean(m) for m in metrics.values())
    values = _Values.of(stream, kernels, height)
    table = _added_up(stream, kernels, values) if is_added else _kept(stream, kernels, values)
    starts = np.cumsum([0, *counts])
    return [
        [[row[k] for k in range(starts[i], starts[i + 1])] for row in table]
        for i in range(len(kernels))
    ]


@dataclass(frozen=True)
class _Values:
    """Held-out values of rows, block by block: by all candidates of some kernels."""

    reader: Reader
    rule: FoldRule
    kernels: Sequence[tuple[int, Sequence[Predictor]]]
    height: int

    @classmethod
    def of(cls, stream: Stream, kernels: Sequence[PassKernel], height: int) -> _Values:
        found = [(len(kernel.members), kernel.predictors()) for kernel in kernels]
        return cls(stream.reader, stream.rule, found, height)

    @property
    def total(self) -> int:
        """The number of candidates."""
        return sum(count for count, _ in self.kernels)

    @property
    def q(self) -> int:
        """How many values a row has."""
        _, predictors = self.kernels[0]
        return int(next(iter(predictors[0].models.values())).coef.shape[2])

    def blocks(self, source: RowSource) -> Iterator[tuple[Block, Index, Array]]:
        """Every block with the folds of its rows and their values; NaN where no fold has them."""
        for block in source.blocks(self.height):
            numbers = self.rule.numbers(block)
            values = np.full((self.total, len(block), self.q), np.nan)
            start = 0
            for count, predictors in self.kernels:
                for predictor in predictors:
                    predictor.put(values[start : start + count], block.X, numbers)
                start += count
            yield block, numbers, values
            tell_block(block, source)


# -- added up ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Adding:
    """Sums of the scores of rows by metric, fold and candidate."""

    values: _Values
    metrics: dict[str, Metric]
    folds: Sequence[int]

    def __call__(self, source: RowSource) -> Array:
        sums = np.zeros((len(self.metrics), len(self.folds), self.values.total))
        for block, numbers, values in self.values.blocks(source):
            present = np.unique(numbers[numbers >= 0])
            if not len(present):
                continue
            parts = tuple(np.flatnonzero(numbers == fold) for fold in present)
            side = ScoredRows(self.values.reader.target(block.y), parts)
            where = np.searchsorted(self.folds, present)
            for k, of_candidate in enumerate(values):
                for m, metric in enumerate(self.metrics.values()):
                    scored = metric(side, of_candidate[side.rows]).scores
                    sums[m, where, k] += scored * side.sizes
        return sums


def _added_up(stream: Stream, kernels: Sequence[PassKernel], values: _Values) -> list[list[Score]]:
    metrics = {name: metric for name, metric in stream.metrics.items() if metric is not None}
    folds = sorted(kernels[0].models)
    sums = reduced(stream.source, _Adding(values, metrics, folds), add, stream.threads)
    parts = kernels[0].parts
    means = sums / np.array([parts[fold].rows for fold in folds])[:, None]
    return [
        [
            stream.pack({name: float(means[m, i, k]) for m, name in enumerate(metrics)})
            for k in range(values.total)
        ]
        for i in range(len(folds))
    ]


# -- brought together --------------------------------------------------------------------------


@dataclass(frozen=True)
class _KeptBlocks:
    """Blocks of rows with their values and folds, without their features."""

    blocks: list[tuple[Block, Index, Array]]

    def __add__(self, other: _KeptBlocks) -> _KeptBlocks:
        return _KeptBlocks(self.blocks + other.blocks)

    def in_order(self) -> _KeptBlocks:
        """The blocks in the order of their rows, wherever they come from."""
        return _KeptBlocks(sorted(self.blocks, key=lambda item: item[0].start))

    @property
    def numbers(self) -> Index:
        """The folds of all rows."""
        return np.concatenate([numbers for _, numbers, _ in self.blocks])

    @property
    def y(self) -> AnyArray:
        """The targets of all rows."""
        return np.concatenate([block.y for block, _, _ in self.blocks])

    @property
    def weights(self) -> Array | None:
        """The weights of all rows, if they have any."""
        found = [block.sample_weight for block, _, _ in self.blocks]
        return None if found[0] is None else np.concatenate([w for w in found if w is not None])

    def values(self, k: int) -> Array:
        """The values of all rows by one candidate."""
        return np.concatenate([values[k] for _, _, values in self.blocks])


@dataclass(frozen=True)
class _Keeping:
    """All values."""

    values: _Values

    def __call__(self, source: RowSource) -> _KeptBlocks:
        found = []
        for block, numbers, values in self.values.blocks(source):
            bare = replace(block, X=np.empty((len(block), 0)))
            found.append((bare, numbers, values))
        return _KeptBlocks(found)


def _all_values(stream: Stream, values: _Values) -> _KeptBlocks:
    found: _KeptBlocks = reduced(stream.source, _Keeping(values), add, stream.threads)
    return found.in_order()


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
    fold_of, y, weights = kept.numbers, kept.y, kept.weights
    target = stream.reader.target(y)
    params = {}
    if weights is not None and _take_weights(stream.scorers):
        params["sample_weight"] = weights
    judge = FoldScorer(_scorer(stream), target, (np.empty((n, 0)), y), params, stream.error_score)
    folds = sorted(kernels[0].models)
    side = ScoredRows(target, tuple(np.flatnonzero(fold_of == fold) for fold in folds))
    columns = [judge.score(kept.values(k)[side.rows], side, {}) for k in range(total)]
    return [[column[i] for column in columns] for i in range(len(folds))]


def _take_weights(scorers: Params) -> bool:
    """Whether scikit-learn would hand the weights on: if any scorer takes them."""
    asked = [getattr(scorer, "_accept_sample_weight", None) for scorer in scorers.values()]
    return any(accepts is not None and accepts() for accepts in asked)


def _scorer(stream: Stream) -> Scorer:
    if not stream.is_multimetric:
        return stream.scorers["score"]
    return MultimetricScorer(scorers=stream.scorers, raise_exc=stream.error_score == "raise")


def held_out_values(stream: Stream, kernel: PassKernel, height: int) -> tuple[Array, AnyArray]:
    """The held-out values of all rows, (n, q), in a second pass, and the last rows' targets."""
    values = _Values.of(stream, [kernel], height)
    kept = _all_values(stream, values)
    held = kept.values(0)
    untested = np.flatnonzero(np.isnan(held).any(axis=1))
    if len(untested):
        raise ValueError(
            f"cross_val_predict only works for partitions: row {untested[0]} is in no fold; use "
            "cross_val_score"
        )
    return held, kept.y[-1:]
