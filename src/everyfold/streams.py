"""Sources of rows that need not fit in memory, read in blocks, the same on every pass."""

from everyfold.rows import (
    ArrayRows,
    Block,
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
    "IteratedRows",
    "ParquetRows",
    "RowSource",
    "StreamError",
    "SvmlightRows",
    "as_source",
]
