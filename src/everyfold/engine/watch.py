"""Who is told how far the work is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


class ProgressListener:
    """Told how far the units of a round are; this one, and any that was pickled, tells nobody."""

    is_on = False
    """Whether shares of units are worth telling."""

    def begin_round(self, units: Sequence[Any]) -> None:
        """Say what there is to do next."""

    def tell(self, unit: Any, share: float) -> None:
        """Say that this share of a unit is done."""

    def listener(self, unit: Any) -> Callable[[float], None] | None:
        """What loops inside a unit are to tell, if anything."""
        return partial(self.tell, unit) if self.is_on else None

    def __reduce__(self) -> tuple[type[ProgressListener], tuple[()]]:
        return ProgressListener, ()
