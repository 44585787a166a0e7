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

from everyfold.criteria.base import Failure
from everyfold.evaluate.data import Candidate, Data, Outcome
from everyfold.evaluate.passes import block_height, pass_words, widest
from everyfold.evaluate.secondpass import held_out_values, score_values, scores_from_sums
from everyfold.evaluate.stream import Kernel, Stream
from everyfold.evaluate.tiles import Unit
from everyfold.models.model import Model
from everyfold.models.sources import Summing, View, structure_of
from everyfold.models.targets import Target
from everyfold.operators import FeatureMap, StructureError
from everyfold.operators.response import RidgeModels
from everyfold.operators.sums import FoldSums
from everyfold.operators.threads import blas_threads
from everyfold.rows import RowSource, StreamError
from everyfold.rows.batches import rows_at_a_time
from everyfold.rows.cluster import ClusterError
from everyfold.rows.rules import FoldRule
from everyfold.rows.telling import within
from everyfold.types import Array, Score

Failures = dict[int, Failure]
"""Why candidates have no models, by number."""


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
) -> tuple[list[Kernel], bool]:
    """Kernels with the models of every fold, by one pass; and whether rows have weights."""
    every = [view for _, views in made for view in views]
    if not every:
        return [], False
    found = Summing(stream.reader, stream.rule, height, every).over(stream.source, stream.threads)
    left = iter(found.sums)
    kernels: list[Kernel] = []
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
    found: Counter[int] = stream.source.reduce(_Counting(stream.rule), add)
    sizes = [found[fold] for fold in sorted(found) if fold >= 0]
    if not sizes:
        raise _BadFolds(_NO_FOLDS)
    unknown, scores = np.full(len(sizes), np.nan), [None] * len(sizes)
    is_exact, folds = np.zeros(len(sizes), dtype=bool), np.arange(len(sizes))
    return Outcome(number, folds, scores, None, is_exact, unknown, unknown, {}, sizes=sizes)


@dataclass(frozen=True)
class _Counting:
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
) -> list[Kernel]:
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
) -> Kernel:
    models: dict[int, RidgeModels] = {}
    for of_view in sums:
        models |= _fold_models(stream, members, of_view)
    return Kernel(members, views, sums, models)


def _words(features: FeatureMap, model: Model) -> str:
    return f"{features.raw_width} {structure_of(model).kind}, rank {features.width}"


def _outcome(
    number: int,
    kernel: Kernel,
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


def _predicted(stream: Stream, kernel: Kernel, height: int) -> Outcome:
    """The held-out values of all rows, in a second pass."""
    start = time.perf_counter()
    held, y = held_out_values(stream, kernel, height)
    seconds, scores = time.perf_counter() - start, [None] * len(kernel.models)
    target = stream.reader.target(y)
    return _outcome(kernel.members[0].number, kernel, 2, seconds, scores, held, target)
