"""The features of a kernel on a source of rows: landmarks, or the columns themselves."""

from __future__ import annotations

import numpy as np

from everyfold.kernels import Linear
from everyfold.models.model import Model
from everyfold.operators.lowrank import Features, Plain
from everyfold.operators.nystrom import Nystrom
from everyfold.rows import RowSource


def check_model(model: Model) -> None:
    """Refuse what needs all rows at once."""
    if not model.loss.has_constant_curvature:
        raise ValueError(
            f"loss={model.loss} needs many passes over the rows; for a source of rows use "
            "loss='squared' (LSSVC for classification), or rows in memory with operator=Nystrom()"
        )
    if model.voting is not None:
        raise ValueError(
            "multi_class='ovo' fits each pair of classes to rows of its own; for a source of rows "
            "use 'ovr'"
        )
    if model.choice.depends_on_rows:
        raise ValueError(
            f"gamma={model.choice.gamma!r} depends on the training rows of each fold; for a source "
            "of rows use a number"
        )
    if len(model.ridges) > 1:
        raise ValueError("alpha has several entries; for a source of rows use one number")
    if model.ridges[0] <= 0.0:
        raise ValueError(
            f"alpha={model.ridges[0]:g} leaves sums over rows singular; for a source of rows use a "
            "number > 0"
        )
    if model.choice.is_precomputed:
        raise ValueError("kernel='precomputed' has no rows to read; use another kernel")
    if not isinstance(model.operator, Nystrom) and model.operator != "auto":
        raise ValueError(
            f"operator={model.operator!r} needs all rows at once; for a source of rows use "
            "operator=Nystrom(...)"
        )


def choose_features(model: Model, source: RowSource) -> Features:
    """The map from rows to features; ``source.n_rows`` must be known."""
    kernel = model.choice.resolve(np.zeros((1, source.n_features)))
    if model.operator == "auto" and isinstance(kernel, Linear):
        return Plain()
    structure = Nystrom(random_state=model.seed) if model.operator == "auto" else model.operator
    assert isinstance(structure, Nystrom)
    assert source.n_rows is not None
    return structure.features_of(kernel, source.n_rows, source.take)
