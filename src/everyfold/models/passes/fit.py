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
    """The fitted function, its intercepts, and how the targets were read."""

    expansion: Expansion
    intercept: Array
    reader: Reader


def fit_source(model: Model, source: RowSource) -> SourceFit:
    """Fit a model for squared loss; one pass, and one more where classes must be found first."""
    check_model(model)
    reader = read_source(source, model)
    request = Request(choose_features(model, source), model.ridges[0], model.intercept)
    (found,) = sum_rows(source, reader, Everything(), [request])
    total = found.moments.total
    rho = model.ridges[0] * (total.count if model.ridge_scaling == "mean" else 1)
    models = found.moments.original(total.solve([rho], intercept=model.intercept))
    return SourceFit(request.features.expand(models.coef[0]), models.intercept[0], reader)
