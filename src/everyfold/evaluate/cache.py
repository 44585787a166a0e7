"""Rows and base matrices that units of one process share."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

from everyfold.operators.memory import TRIFLE, available_memory
from everyfold.types import Matrix

_SHARE_OF_MEMORY = 0.25
_MOST_BYTES = 2_000_000_000


class Cache:
    """Things worth keeping for other units, within a share of the memory.

    A pickled cache is empty: a worker process fills its own.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Matrix, ...]] = {}
        self._bytes = 0

    def get(self, key: Hashable) -> tuple[Matrix, ...] | None:
        """What is kept under the key, if anything."""
        return self._kept.get(key)

    def put(self, key: Hashable, *items: Matrix) -> None:
        """Keep the items, if there is room."""
        size = self._bytes + sum(_bytes(item) for item in items)
        if size <= TRIFLE or size <= self._room:
            self._bytes = size
            self._kept[key] = items

    @cached_property
    def _room(self) -> float:
        return min(_MOST_BYTES, _SHARE_OF_MEMORY * available_memory())

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        return Cache, ()


def _bytes(item: object) -> int:
    return int(getattr(item, "nbytes", 0) or getattr(getattr(item, "data", None), "nbytes", 0))
