"""Whether files are still as they were: their sizes, and when they were last written to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from everyfold.types import Matrix


@dataclass(frozen=True)
class Stamp:
    """A file's size in bytes and its time of writing in nanoseconds."""

    size: int
    written: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """The stamp of a file as it is now; None if there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_size, found.st_mtime_ns)

    def difference(self, now: Stamp) -> str:
        """What became of the file, in words."""
        if self.size != now.size:
            return f"it had {self.size} bytes and has {now.size}"
        seconds = (now.written - self.written) / 1e9
        return f"it still has {now.size} bytes, but its time of writing moved by {seconds:.3g} s"


def maps_of(*parts: Matrix) -> Iterator[np.memmap[Any, Any]]:
    """The memory maps that arrays, or the arrays of sparse matrices, are views of."""
    for part in parts:
        is_sparse: bool = sparse.issparse(part)
        for array in (part.data, part.indices, part.indptr) if is_sparse else (part,):
            while isinstance(array, np.ndarray):
                if isinstance(array, np.memmap) and array.filename is not None:
                    yield array
                    break
                array = array.base
