"""What passes over a source of rows give: sums by fold, models of them, values of the rows."""

from everyfold.models.passes.fit import SourceFit, fit_source
from everyfold.models.passes.kernels import check_model, choose_features
from everyfold.models.passes.reader import Reader, read_source
from everyfold.models.passes.sums import Request, Summed, block_height, sum_rows, width_of
from everyfold.models.passes.values import FoldModels, held_out_blocks
from everyfold.rows.rules import FoldRule, read_rule

__all__ = [
    "FoldModels",
    "FoldRule",
    "Reader",
    "Request",
    "SourceFit",
    "Summed",
    "block_height",
    "check_model",
    "choose_features",
    "fit_source",
    "held_out_blocks",
    "read_rule",
    "read_source",
    "sum_rows",
    "width_of",
]
