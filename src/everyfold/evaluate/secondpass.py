"""Scores of candidates on a source of rows: from the sums of a pass, or from values in a second.

Values of held-out rows are added up to scores where the rows are, or brought together where a
scorer wants all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add

import numpy as np

from everyfold.evaluate.metrics import Metric, Side, is_mean, score_errors
from everyfold.evaluate.scores import Judge
from everyfold.evaluate.stream import Kernel, Predictor, Stream
from everyfold.models.private import MultimetricScorer
from everyfold.models.sources import Reader, reduced, tell_block
from everyfold.operators.memory import available_memory
from everyfold.rows import Block, RowSource
from everyfold.rows.rules import FoldRule
from everyfold.types import AnyArray, Array, Index, Params, Score, Scorer

Table = list[list[list[Score]]]
"""Scores by kernel, fold and candidate."""


def scores_from_sums(
    stream: Stream, kernels: Sequence[Kernel], *, is_weighted: bool
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
    stream: Stream, kernels: Sequence[Kernel], height: int, *, is_weighted: bool
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
    def of(cls, stream: Stream, kernels: Sequence[Kernel], height: int) -> _Values:
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
            side = Side(self.values.reader.target(block.y), parts)
            where = np.searchsorted(self.folds, present)
            for k, of_candidate in enumerate(values):
                for m, metric in enumerate(self.metrics.values()):
                    scored = metric(side, of_candidate[side.rows]).scores
                    sums[m, where, k] += scored * side.sizes
        return sums


def _added_up(stream: Stream, kernels: Sequence[Kernel], values: _Values) -> list[list[Score]]:
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
class _Kept:
    """Blocks of rows with their values and folds, without their features."""

    blocks: list[tuple[Block, Index, Array]]

    def __add__(self, other: _Kept) -> _Kept:
        return _Kept(self.blocks + other.blocks)

    def in_order(self) -> _Kept:
        """The blocks in the order of their rows, wherever they come from."""
        return _Kept(sorted(self.blocks, key=lambda item: item[0].start))

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

    def __call__(self, source: RowSource) -> _Kept:
        found = []
        for block, numbers, values in self.values.blocks(source):
            bare = replace(block, X=np.empty((len(block), 0)))
            found.append((bare, numbers, values))
        return _Kept(found)


def _all_values(stream: Stream, values: _Values) -> _Kept:
    found: _Kept = reduced(stream.source, _Keeping(values), add, stream.threads)
    return found.in_order()


def _kept(stream: Stream, kernels: Sequence[Kernel], values: _Values) -> list[list[Score]]:
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
    judge = Judge(_scorer(stream), target, (np.empty((n, 0)), y), params, stream.error_score)
    folds = sorted(kernels[0].models)
    side = Side(target, tuple(np.flatnonzero(fold_of == fold) for fold in folds))
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


def held_out_values(stream: Stream, kernel: Kernel, height: int) -> tuple[Array, AnyArray]:
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
