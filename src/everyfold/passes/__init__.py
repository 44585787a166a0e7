"""What passes over a source of rows give: sums by fold, models of them, values of the rows."""

from everyfold.passes.fit import SourceFit, fit_source
from everyfold.passes.folds import FoldRule, read_rule
from everyfold.passes.kernels import check_model, choose_features
from everyfold.passes.reader import Reader, read_source
from everyfold.passes.sums import Request, Summed, block_height, sum_rows, width_of
from everyfold.passes.values import FoldModels, held_out_blocks

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
