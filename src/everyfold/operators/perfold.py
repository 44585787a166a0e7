"""Kernels that are chosen by the training rows themselves, as ``gamma="scale"`` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

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


class PerFold(KernelOperator):
    """A kernel that differs from one training set to the next.

    It can only be restricted: each restriction is the operator of its own rows. There is no matrix
    of all rows for a shortcut to start from, and asking for one is an error.
    """

    depends_on_rows = True

    def __init__(self, X: Any, structure: Structure, kernel_of: Callable[[Any], Kernel]) -> None:
        self.n = X.shape[0]
        self._X = X
        self._structure = structure
        self._kernel_of = kernel_of

    def restrict(self, rows: Rows) -> KernelOperator:
        """See base class."""
        X = self._X[rows]
        return self._structure.bind(self._kernel_of(X), X)

    def cross(self, new: Rows, rows: Rows) -> Array:
        """See base class; the kernel is that of the training rows."""
        return self.split(rows, new)[1]

    def split(self, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        """See base class."""
        operator = self.restrict(train)
        return operator, operator.expand(np.empty((operator.n, 0))).link(self._X[test])

    @property
    def rank(self) -> int:
        """See base class."""
        return self._structure.rank(*self._X.shape)

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
