"""Sources of rows, and which rows are left out together.

A source gives rows in blocks, as often as asked and always the same: arrays, files, folders of
files, iterators and Dask collections all look alike to the rest of the package.
"""

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
