"""A `StandardScaler` in front of a model on a source of rows.

Its means and variances come from one pass, for the training rows of every fold; the rows are then
scaled block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial, reduce
from operator import add
from typing import Any

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


def find_moments(source: RowSource, rule: FoldRule) -> FoldMoments:
    """Means and variances of the columns of every fold's rows, from one pass."""
    found: FoldMoments = source.reduce(partial(_measure, rule), add)
    return found


def _measure(rule: FoldRule, source: RowSource) -> FoldMoments:
    blocks = source.blocks(rows_at_a_time(source.n_features))
    return reduce(add, (FoldMoments.of(block.X, rule.numbers(block)) for block in blocks))


def _work_scaled(
    work: Callable[[RowSource], Result], scaling: Scaling, source: RowSource
) -> Result:
    return work(ScaledRows(source, scaling))


class ScaledRows(RowSource):
    """The rows of a source, scaled; as those that a scaler gives, they have no names."""

    def __init__(self, source: RowSource, scaling: Scaling) -> None:
        self.source, self.scaling = source, scaling
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.first_row, self.has_target = source.first_row, source.has_target

    def __repr__(self) -> str:
        return f"ScaledRows({self.source!r})"

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        raise NotImplementedError("rows are scaled block by block")

    def _take(self, rows: Array) -> Array:
        return self.scaling(self.source.take(rows))

    def blocks(self, size: int) -> Iterator[Block]:
        """See base class: those of the source, which may be every so-manyth of its blocks only."""
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
        return self.source.reduce(partial(_work_scaled, work, self.scaling), merge, threads)


def fit_to_source(estimator: Estimator, source: RowSource, **params: Any) -> Estimator:
    """Fit an estimator, or a Pipeline of a StandardScaler and one, to a source of rows.

    **Cost**: that of the estimator, and one more pass for the scaler.
    """
    # Subclasses of Pipeline may do anything in fit.
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
