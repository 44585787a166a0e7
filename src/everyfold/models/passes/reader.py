"""What a source's rows are to be fitted to: targets and weights, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everyfold.models.model import Model
from everyfold.models.targets import Labels, Numbers, Target
from everyfold.operators.base import Array
from everyfold.rows import Block, RowSource

ROWS_AT_A_TIME = 65536


@dataclass(frozen=True)
class Reader:
    """From blocks to targets: numbers, or the labels of ``classes``.

    Attributes
    ----------
    classes : array of shape (k,) or None
    factors : array of shape (k,) or None
        Weights of the classes.
    """

    classes: NDArray[Any] | None = None
    factors: Array | None = None

    @property
    def sample(self) -> NDArray[Any]:
        """Dummy targets of the right kind, used to look up metrics before any row is read."""
        return np.zeros(2) if self.classes is None else self.classes

    def target(self, y: Any) -> Target:
        """The target of some rows."""
        if self.classes is None:
            return Numbers.read(y)
        codes = np.searchsorted(self.classes, y)
        columns = 2.0 * (codes[:, None] == np.arange(len(self.classes))) - 1.0
        return Labels(self.classes, codes, columns[:, 1:] if len(self.classes) == 2 else columns)

    def weights(self, block: Block, target: Target) -> Array | None:
        """The weights of a block's rows; None if all are 1."""
        if self.factors is None or not isinstance(target, Labels):
            return block.sample_weight
        factors: Array = self.factors[target.codes]
        return factors if block.sample_weight is None else factors * block.sample_weight


def read_source(source: RowSource, model: Model) -> Reader:
    """A reader of the source's targets; classes take a pass, as do rows of an unknown number."""
    if not model.is_classifier:
        if source.n_rows is None:
            for _ in source.blocks(ROWS_AT_A_TIME):
                pass
        return Reader()
    if model.class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' depends on the training rows of each fold, which a source of "
            "rows does not keep; pass a dict of weights"
        )
    found: set[Any] = set()
    for block in source.blocks(ROWS_AT_A_TIME):
        if np.ndim(block.y) != 1:
            raise ValueError("y of a classifier must be one column of labels")
        found.update(np.unique(block.y).tolist())
    classes = np.array(sorted(found))
    each = Labels.read(classes)  # raises what is wrong with them
    factors = None
    if model.class_weight is not None:
        factors = model.problems(each, np.ones(len(classes)))[0].w
        if (factors < 0.0).any():
            raise ValueError(f"class_weight={model.class_weight!r}: weights must be at least 0")
    return Reader(classes, factors)
