"""What feature maps see of the rows they are chosen from: their number, and some of them.

Landmarks are drawn from arrays, and from sources, by the same code through this protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Matrix

# Rows, drawn uniformly, that landmarks of more rows than that are chosen from: more of them make
# better landmarks, and take more memory and time.
SAMPLE = 20_000


class Sampled(Protocol):
    """Rows of which some can be taken by their numbers: those of a source, or of an array."""

    @property
    def most_rows(self) -> int: ...  # noqa: D102

    @property
    def n_rows(self) -> int | None: ...  # noqa: D102

    @property
    def n_features(self) -> int: ...  # noqa: D102

    def take(self, rows: NDArray[np.intp]) -> Matrix: ...  # noqa: D102


@dataclass(frozen=True)
class Held:
    """The rows of an array or a CSR matrix, as they are: no copies, no checks."""

    X: Matrix
    most_rows: int = SAMPLE

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return int(self.X.shape[1])

    def take(self, rows: NDArray[np.intp]) -> Matrix:
        """Some of the rows."""
        return self.X[rows]


@dataclass(frozen=True)
class Few:
    """The same rows, of which no more than so many are to be held at a time."""

    rows: Sampled
    most_rows: int

    @property
    def n_rows(self) -> int | None:
        """The number of rows."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return self.rows.n_features

    def take(self, rows: NDArray[np.intp]) -> Matrix:
        """Some of the rows."""
        return self.rows.take(rows)
