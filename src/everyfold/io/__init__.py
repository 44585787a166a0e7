"""Where rows come from, and which of them are left out together."""

from everyfold.folds import Fold, Folds
from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.base import RowSource
from everyfold.io.blocks import Block, StreamError
from everyfold.io.conversion import as_source
from everyfold.io.dask import DaskRows
from everyfold.io.svmlight import SvmlightRows
from everyfold.io.tables import CsvRows, FolderRows, ParquetRows

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
