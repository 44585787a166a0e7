"""A fit to all rows of a source, in one pass."""

from __future__ import annotations

from dataclasses import dataclass

from everyfold.models.model import Model
from everyfold.models.passes.kernels import check_model, choose_features
from everyfold.models.passes.reader import Reader, read_source
from everyfold.models.passes.sums import Request, sum_rows
from everyfold.operators.base import Array, Expansion
from everyfold.rows import RowSource
from everyfold.rows.rules import Everything


@dataclass(frozen=True)
class SourceFit:
    """The fitted function, its intercepts, how the targets were read, and if y has one axis."""

    expansion: Expansion
    intercept: Array
    reader: Reader
    is_flat: bool


def fit_source(model: Model, source: RowSource) -> SourceFit:
    """Fit a model for squared loss; one pass, and one more where classes must be found first."""
    check_model(model)
    reader = read_source(source, model)
    request = Request(choose_features(model, source), model.ridges[0], model.intercept)
    (found,) = sum_rows(source, reader, Everything(), [request])
    rho = model.ridges[0] * (found.total.sums.count if model.ridge_scaling == "mean" else 1)
    models = found.total.solve([rho], intercept=model.intercept)
    expansion = request.features.expand(models.coef[0])
    return SourceFit(expansion, models.intercept[0], reader, found.is_flat)
