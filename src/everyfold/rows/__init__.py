"""Where rows come from, and which of them are left out together."""

from everyfold.rows.arrays import ArrayRows, IteratedRows
from everyfold.rows.checks import Block, StreamError
from everyfold.rows.files import ParquetRows, SvmlightRows
from everyfold.rows.folds import Fold, Folds
from everyfold.rows.source import RowSource
from everyfold.rows.sources import as_source

__all__ = [
    "ArrayRows",
    "Block",
    "Fold",
    "Folds",
    "IteratedRows",
    "ParquetRows",
    "RowSource",
    "StreamError",
    "SvmlightRows",
    "as_source",
]
