"""Where rows come from, and which of them are left out together."""

from everyfold.rows.arrays import ArrayRows, IteratedRows
from everyfold.rows.checks import Block, StreamError
from everyfold.rows.dasks import DaskRows
from everyfold.rows.files import SvmlightRows
from everyfold.rows.folders import FolderRows
from everyfold.rows.folds import Fold, Folds
from everyfold.rows.source import RowSource
from everyfold.rows.sources import as_source
from everyfold.rows.tables import CsvRows, ParquetRows

__all__ = [
    "ArrayRows",
    "Block",
    "CsvRows",
    "DaskRows",
    "Fold",
    "FolderRows",
    "Folds",
    "IteratedRows",
    "ParquetRows",
    "RowSource",
    "StreamError",
    "SvmlightRows",
    "as_source",
]
