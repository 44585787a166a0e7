"""What an experiment is made of: sets, grids, methods, and the cells that are computed.

Everything is a frozen record with a readable ``repr``: the sha256 of a cell's record tells whether
a stored result still belongs to what is declared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Key = tuple[str, ...]
Result = dict[str, Any]
Found = Mapping[Key, Result]


@dataclass(frozen=True)
class Rows:
    """A data set as a paper uses it.

    Attributes
    ----------
    name : str
        As in ``data.load``.
    size : int
        Its rows, or those of a published training set.
    take : int or None
        The size of the sub-sample that is drawn first, with the split's own seed.
    is_scaled : bool
        Whether columns are standardised by the training rows.
    """

    name: str
    size: int
    take: int | None = None
    is_scaled: bool = False

    @property
    def label(self) -> str:
        """The name without its collection."""
        return self.name.split("/")[-1]


def libsvm(sizes: str) -> tuple[Rows, ...]:
    """Sets of the LIBSVM page from ``"heart 270, cpusmall 8192 2560"`` (rows, sub-sample)."""
    entries = [entry.split() for entry in sizes.split(",")]
    return tuple(Rows(f"libsvm/{name}", *map(int, numbers)) for name, *numbers in entries)


def raetsch(sizes: str) -> tuple[Rows, ...]:
    """Sets of Rätsch et al. from ``"thyroid 140"`` (training rows of a partition)."""
    entries = [entry.split() for entry in sizes.split(",")]
    return tuple(Rows(f"raetsch/{name}", int(size)) for name, size in entries)


@dataclass(frozen=True)
class Grid:
    """Kernels times ridges: gammas of the rbf kernel, or degrees of (⟨x, x'⟩ + 1)^d.

    ``ridges`` are λ of (1/n) Σ V + λ‖f‖² if ``scaling`` is "mean", ρ of Σ V + ρ‖f‖² if "sum".
    """

    values: tuple[float, ...]
    ridges: tuple[float, ...]
    scaling: Literal["mean", "sum"] = "mean"
    kernel: Literal["rbf", "poly"] = "rbf"

    def thin(self, values: int, ridges: int) -> Grid:
        """Every so many kernels and ridges, from half a step on."""
        kept = self.values[values // 2 :: values], self.ridges[ridges // 2 :: ridges]
        return Grid(*kept, self.scaling, self.kernel)

    @property
    def size(self) -> int:
        """The number of candidates."""
        return len(self.values) * len(self.ridges)


def powers(exponents: Iterable[int]) -> tuple[float, ...]:
    """Powers of two."""
    return tuple(2.0**e for e in exponents)


def widths(exponents: Iterable[int]) -> tuple[float, ...]:
    """Gammas of exp(−‖x − x'‖² / 2σ) for σ = 2^e, from wide kernels to narrow ones."""
    return tuple(sorted(0.5 / 2.0**e for e in exponents))


@dataclass(frozen=True)
class Machine:
    """The estimators of a learning algorithm for labels and for numbers."""

    classifier: Any
    regressor: Any = None

    def of(self, y: np.ndarray) -> Any:
        """The one that y asks for."""
        return self.classifier if set(np.unique(y)) <= {-1.0, 1.0} else self.regressor


@dataclass(frozen=True)
class Method:
    """A column of a table: what selects a candidate.

    Attributes
    ----------
    name : str
        The heading; that of the paper for its own columns.
    machine : Machine
        What is cross-validated.
    folds : int or None
        Random folds of equal size; None leaves single rows out.
    options : mapping
        Further arguments of FastGridSearchCV. A callable ``operator`` is given a random generator.
    scaling : {"mean", "sum"} or None
        What happens to the ridge in a fold; None is the convention of the grid.
    scoring : {"error", "loss"}
        Error rate (squared error for numbers), or the loss that is minimised.
    is_arranged : bool
        Whether rows are put in order before.
    final : Machine or None
        What is fitted with the chosen candidate and tested, if not ``machine``.
    grid : Grid or None
        A grid of its own.
    """

    name: str
    machine: Machine
    folds: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    scaling: Literal["mean", "sum"] | None = None
    scoring: Literal["error", "loss"] = "error"
    is_arranged: bool = False
    final: Machine | None = None
    grid: Grid | None = None


@dataclass(frozen=True)
class Cell:
    """One piece of work, stored under its key and the sha256 of what it does."""

    key: Key
    work: Callable[..., Result]
    arguments: tuple[Any, ...]
    is_timing: bool = False

    @property
    def digest(self) -> str:
        """What a stored result is checked against."""
        declared = re.sub(r"\s+", " ", repr((self.work.__qualname__, self.arguments)))
        return hashlib.sha256(declared.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Profile:
    """How much is computed.

    Attributes
    ----------
    name : str
    splits : tuple of (rows, splits)
        The number of splits of training sets of up to so many rows; larger ones are left out.
    largest : int or None
        Larger sets are sub-sampled to so many rows before they are split, except for timing.
    timed : float
        Sets of up to so many training rows are timed.
    most : float
        No set has more splits.
    """

    name: str
    splits: tuple[tuple[float, int], ...]
    largest: int | None = None
    timed: float = np.inf
    most: float = np.inf

    def splits_of(self, train: float, generosity: int = 1) -> float:
        """The number of splits of a set with so many training rows."""
        allowed = next((splits for rows, splits in self.splits if train <= rows), 0)
        return min(generosity * allowed, self.most)


def printed(table: str, columns: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Figures of a paper, one line a set: mean±deviation for each column, – where there is none."""
    names = columns.split()
    found = {}
    for line in table.strip().splitlines():
        label, *figures = line.split()
        pairs = [(*figure.split("±"), "nan")[:2] for figure in figures]
        found[label] = {
            name: (float(mean), float(spread))
            for name, (mean, spread) in zip(names, pairs, strict=True)
            if mean != "–"
        }
    return found
