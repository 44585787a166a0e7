"""A StandardScaler in front of a model on a source of rows: its means and variances from sums."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from operator import add
from typing import Any, Generic

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from everyfold._typing import Array, Estimator
from everyfold.adapters.pipelines import Parts
from everyfold.io import Block, RowSource
from everyfold.io.base import Result
from everyfold.io.blocks import Piece, check, rows_at_a_time
from everyfold.io.fold_rules import Everything, FoldRule
from everyfold.io.moments import FoldMoments, Moments, Scaling


def scaler_of(parts: Parts) -> StandardScaler | None:
    """The scaler in front of a model; None if there is none, refused if it is something else."""
    if not parts.steps:
        return None
    first = parts.steps[0]
    if len(parts.steps) > 1 or type(first.transformer) is not StandardScaler or first.params:
        names = ", ".join(type(step.transformer).__name__ for step in parts.steps)
        raise ValueError(
            "for a source of rows, the only possible step of a Pipeline is one StandardScaler "
            f"without sample_weight (got {names}); prepare the rows in the source instead"
        )
    return first.transformer


def scaling_of(scaler: StandardScaler, moments: Moments) -> Scaling:
    """What the scaler does to rows, fitted to rows of these moments."""
    return Scaling.standard(moments, with_mean=scaler.with_mean, with_std=scaler.with_std)


@dataclass(frozen=True)
class _Measuring:
    rule: FoldRule

    def __call__(self, source: RowSource) -> FoldMoments:
        found: FoldMoments | None = None
        for block in source.blocks(rows_at_a_time(source.n_features)):
            more = FoldMoments.of(block.X, self.rule.numbers(block))
            found = more if found is None else found + more
        assert found is not None
        return found


def find_moments(source: RowSource, rule: FoldRule) -> FoldMoments:
    """Means and variances of the columns of every fold's rows, from one pass."""
    found: FoldMoments = source.reduce(_Measuring(rule), add)
    return found


@dataclass(frozen=True)
class _Scaled(Generic[Result]):
    """Work on rows after they have been scaled."""

    work: Callable[[RowSource], Result]
    scaling: Scaling

    def __call__(self, source: RowSource) -> Result:
        return self.work(ScaledRows(source, self.scaling))


class ScaledRows(RowSource):
    """The rows of a source, scaled; as those that a scaler gives, they have no names."""

    def __init__(self, source: RowSource, scaling: Scaling) -> None:
        self.source, self.scaling = source, scaling
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.first_row, self.has_target = source.first_row, source.has_target

    def __repr__(self) -> str:
        return f"ScaledRows({self.source!r})"

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        for block in self.source.blocks(size):
            yield Piece(self.scaling(block.X), block.y, block.sample_weight, block.fold)

    def _take(self, rows: Array) -> Array:
        return self.scaling(self.source.take(rows))

    def blocks(self, size: int) -> Iterator[Block]:
        """See base class: those of the source, whatever part of its rows they are."""
        for block in self.source.blocks(size):
            piece = Piece(self.scaling(block.X), block.y, block.sample_weight, block.fold)
            yield check(piece, block.start, self.n_features, None)

    def reduce(
        self,
        work: Callable[[RowSource], Result],
        merge: Callable[[Result, Result], Result],
        threads: int = 1,
    ) -> Result:
        """See base class: where the rows are."""
        return self.source.reduce(_Scaled(work, self.scaling), merge, threads)


def fit_to_source(estimator: Estimator, source: RowSource, **params: Any) -> Estimator:
    """Fit an estimator, or a Pipeline of a StandardScaler and one, to a source of rows.

    **Cost**: that of the estimator, and one more pass for the scaler.
    """
    if type(estimator) is not Pipeline:
        return estimator.fit(source, **params)
    for k, (name, step) in enumerate(estimator.steps[:-1]):
        if isinstance(step, StandardScaler):
            moments = find_moments(source, Everything()).total
            fitted = _fitted(clone(step), moments, source)
            estimator.steps[k] = (name, fitted)
            source = ScaledRows(source, scaling_of(step, moments))
    fit_to_source(estimator.steps[-1][1], source, **params)
    return estimator


def _fitted(scaler: StandardScaler, moments: Moments, source: RowSource) -> StandardScaler:
    """The scaler as its own ``fit`` would leave it."""
    scaling = scaling_of(scaler, moments)
    scaler.n_samples_seen_ = np.int64(moments.count)
    scaler.mean_ = moments.mean if scaler.with_mean or scaler.with_std else None
    scaler.var_ = moments.variance if scaler.with_std else None
    scaler.scale_ = scaling.scale if scaler.with_std else None
    scaler.n_features_in_ = source.n_features
    if source.names is not None:
        scaler.feature_names_in_ = np.array(source.names, dtype=object)
    return scaler
