"""Sources of rows that need not fit in memory: read in blocks, the same rows in every pass."""

from everyfold.io import (
    ArrayRows,
    Block,
    CsvRows,
    DaskRows,
    FolderRows,
    IteratedRows,
    ParquetRows,
    RowSource,
    StreamError,
    SvmlightRows,
    as_source,
)

__all__ = [
    "ArrayRows",
    "Block",
    "CsvRows",
    "DaskRows",
    "FolderRows",
    "IteratedRows",
    "ParquetRows",
    "RowSource",
    "StreamError",
    "SvmlightRows",
    "as_source",
]
