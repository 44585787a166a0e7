"""A second pass: the values of held-out rows, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.operators.base import Array, Rows
from everyfold.operators.lowrank import Features
from everyfold.operators.moments import RidgeModels
from everyfold.rows import Block, RowSource
from everyfold.rows.rules import FoldRule


@dataclass(frozen=True)
class FoldModels:
    """The models of one kernel: by fold, those of all ridges on the rows outside it."""

    features: Features
    by_fold: dict[int, RidgeModels]

    def values(self, X: Array, numbers: Rows) -> Array:
        """The values of rows by the models of their folds, (ridges, rows, q); NaN for −1."""
        any_fold = next(iter(self.by_fold.values()))
        k, c, q = any_fold.coef.shape
        values = np.full((k, len(X), q), np.nan)
        linked: Array | None = None
        for fold in np.unique(numbers[numbers >= 0]).tolist():
            models, rows = self.by_fold[fold], np.flatnonzero(numbers == fold)
            flat = models.coef.transpose(1, 0, 2).reshape(c, k * q)
            expansion = self.features.expand(flat)
            if linked is None:
                linked = expansion.link(X)
            held = (linked[rows] @ expansion.coef).reshape(len(rows), k, q)
            values[:, rows] = held.transpose(1, 0, 2) + models.intercept[:, None, :]
        return values


def held_out_blocks(
    source: RowSource, rule: FoldRule, kernels: Sequence[FoldModels], block_rows: int
) -> Iterator[tuple[Block, Rows, list[Array]]]:
    """Every block with the folds of its rows and, for each kernel, their values (ridges, m, q)."""
    for block in source.blocks(block_rows):
        numbers = rule.numbers(block)
        yield block, numbers, [models.values(block.X, numbers) for models in kernels]
