"""The rows kernels are computed from, and what kernels on the same rows share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from everyfold.criteria import Folds
from everyfold.kernels import Kernel, check_precomputed
from everyfold.model import Model
from everyfold.operators import KernelOperator, PerFold, PerSplit
from everyfold.operators.base import Array, Rows
from everyfold.plan import available_memory
from everyfold.preprocess import Step, prepare_fold

_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 2_000_000_000


class Shelf:
    """Things worth keeping while other kernels may want them, within a share of the memory.

    A pickled shelf is empty: a worker process fills its own.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Any, ...]] = {}
        self._left = min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())

    def get(self, key: Any) -> tuple[Any, ...] | None:
        """What is kept under the key, if anything."""
        return self._kept.get(key)

    def put(self, key: Any, *items: Any) -> None:
        """Keep the items, if there is room."""
        size = sum(_bytes(item) for item in items)
        if size <= self._left:
            self._left -= size
            self._kept[key] = items

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _bytes(item: Any) -> int:
    return int(getattr(item, "nbytes", 0) or getattr(getattr(item, "data", None), "nbytes", 0))


class Material(ABC):
    """Rows that any number of kernels are put on."""

    n: int

    def __init__(self, n: int, shared: Iterable[str] = ()) -> None:
        self.n = n
        self._shared = frozenset(shared)
        self._shelf = Shelf()

    @abstractmethod
    def bind(self, model: Model) -> KernelOperator:
        """The operator of a model's kernel on these rows."""

    def trace(self, model: Model) -> float:
        """The trace of a model's kernel matrix, where the rows are the same for every fold."""
        raise TypeError("these rows differ from fold to fold")

    def among(self, rows: Rows) -> Material:
        """Some of the rows, where they are the same for every fold."""
        raise TypeError("these rows differ from fold to fold")

    def _operator(self, model: Model, kernel: Kernel, X: Any, key: Any) -> KernelOperator:
        """Bind through the base matrix where several kernels share it."""
        structure = model.structure(kernel, X.shape)
        if not self._shares(model, kernel, X):
            return structure.bind(kernel, X)
        return structure.bind_shared(kernel, X, self._base(kernel, X, None, key))

    def _shares(self, model: Model, kernel: Kernel, X: Any) -> bool:
        return kernel.base in self._shared and model.structure(kernel, X.shape).needs_base

    def _base(self, kernel: Kernel, X: Any, Y: Any, key: Any) -> Array:
        kept = self._shelf.get((kernel.base, key))
        if kept is None:
            kept = (kernel.base_matrix(X, Y),)
            self._shelf.put((kernel.base, key), *kept)
        base: Array = kept[0]
        return base


class Whole(Material):
    """The same rows for every fold."""

    def __init__(self, X: Any, shared: Iterable[str] = ()) -> None:
        super().__init__(X.shape[0], shared)
        self._X = X

    def bind(self, model: Model) -> KernelOperator:
        """See base class."""
        X = check_precomputed(self._X) if model.choice.is_precomputed else self._X
        kernel = model.choice.resolve(X)
        if model.choice.depends_on_rows:
            return PerFold(X, model.structure(kernel, X.shape), model.choice.resolve)
        return self._operator(model, kernel, X, None)

    def trace(self, model: Model) -> float:
        """See base class."""
        return float(model.choice.resolve(self._X).diagonal(self._X).sum())

    def among(self, rows: Rows) -> Whole:
        """See base class."""
        return Whole(self._X[rows], self._shared)


@dataclass(frozen=True)
class Source:
    """What the steps of a Pipeline are fitted on."""

    steps: tuple[Step, ...]
    X: Any
    y: Any
    takes_any: bool = False
    """Whether the kernel is a function that gets what the steps make, whatever it is."""


class Folded(Material):
    """Rows that every fold transforms in its own way, by steps fitted on its training rows."""

    def __init__(self, source: Source, folds: Folds, shared: Iterable[str] = ()) -> None:
        super().__init__(folds.n, shared)
        self._source = source
        self._folds = folds

    def bind(self, model: Model) -> KernelOperator:
        """See base class."""

        def split(train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
            return self._split(model, train, test)

        return PerSplit(self.n, self._rank(model), split)

    def _rows(self, train: Rows, test: Rows) -> tuple[Any, Any, Any]:
        key = ("rows", train.tobytes(), test.tobytes())
        kept = self._shelf.get(key)
        if kept is None:
            source = self._source
            data = source.X, source.y
            kept = prepare_fold(source.steps, *data, train, test, takes_any=source.takes_any)
            self._shelf.put(key, *kept)
        return kept[0], kept[1], key[1:]

    def _rank(self, model: Model) -> int:
        """The rank to plan with: that of the first fold if it can be prepared, else the rows."""
        try:
            fold = self._folds[0]
            X, _, _ = self._rows(fold.train, fold.test)
            structure = model.structure(model.choice.resolve(X), X.shape)
        except MemoryError:
            raise
        except Exception:
            # The fold's own evaluation meets the same error and reports it.
            return self.n
        return min(self.n, structure.rank_for(self.n, X.shape[1]))

    def _split(self, model: Model, train: Rows, test: Rows) -> tuple[KernelOperator, Array]:
        X_train, X_test, key = self._rows(train, test)
        if model.choice.is_precomputed:
            X_train = check_precomputed(X_train)
        kernel = model.choice.resolve(X_train)
        operator = self._operator(model, kernel, X_train, key[0])
        if not len(test):
            return operator, np.empty((0, operator.n))
        if self._shares(model, kernel, X_train):
            return operator, kernel.from_base(self._base(kernel, X_test, X_train, key))
        return operator, operator.link(X_test)
