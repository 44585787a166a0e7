"""Kernels that differ from one training set to the next: each fold has an operator of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from everyfold.kernels import Kernel
from everyfold.operators.base import (
    Array,
    Expansion,
    KernelOperator,
    Quadratic,
    Response,
    Route,
    Rows,
    Structure,
)


class SplitOnly(KernelOperator):
    """A kernel that exists for one training set at a time.

    It can only be split: each split is an operator of its own rows. There is no matrix of all rows
    for a shortcut to start from, and asking for one is an error.
    """

    depends_on_rows = True

    @abstractmethod
    def split(self, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        """See base class."""

    def restrict(self, rows: Rows) -> KernelOperator:
        """See base class."""
        return self.split(rows, rows[:0])[0]

    def cross(self, new: Rows, rows: Rows) -> Array:
        """See base class; the kernel is that of the training rows."""
        return self.split(rows, new)[1]

    def _no_matrix(self) -> NoReturn:
        raise TypeError("this kernel depends on the training rows; restrict it to some first")

    def matmat(self, B: Array) -> Array:
        """Not available."""
        self._no_matrix()

    def evaluate(self, coef: Array) -> Array:
        """Not available."""
        self._no_matrix()

    def diagonal(self) -> Array:
        """Not available."""
        self._no_matrix()

    def eigenvalues(self) -> Array:
        """Not available."""
        self._no_matrix()

    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[Response]:
        """Not available."""
        self._no_matrix()

    def expand(self, coef: Array) -> Expansion:
        """Not available."""
        self._no_matrix()

    def link(self, X: Any) -> Array:
        """Not available."""
        self._no_matrix()


class PerFold(SplitOnly):
    """A kernel that is chosen by the training rows themselves, as ``gamma="scale"`` is."""

    def __init__(self, X: Any, structure: Structure, kernel_of: Callable[[Any], Kernel]) -> None:
        self.n = X.shape[0]
        self._X = X
        self._structure = structure
        self._kernel_of = kernel_of

    @property
    def rank(self) -> int:
        """See base class."""
        return self._structure.rank_for(*self._X.shape)

    def restrict(self, rows: Rows) -> KernelOperator:
        """See base class."""
        X = self._X[rows]
        return self._structure.bind(self._kernel_of(X), X)

    def split(self, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        """See base class."""
        operator = self.restrict(train)
        return operator, operator.link(self._X[test])


class PerSplit(SplitOnly):
    """A kernel on rows that each training set transforms in its own way, as a scaler does."""

    def __init__(
        self, n: int, rank: int, split: Callable[[Rows, Rows], tuple[KernelOperator, Array]]
    ) -> None:
        self.n = n
        self._rank = rank
        self._split = split

    @property
    def rank(self) -> int:
        """See base class."""
        return self._rank

    def split(self, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        """See base class."""
        return self._split(train, test)
