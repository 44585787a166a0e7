"""How far a search is: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from everyfold.cli.manners import say
from everyfold.selection import FastGridSearchCV
from everyfold.selection.remarks import Remark

MOST_LINES = 20


class Watcher:
    """Told of every finished kernel. This one keeps silent."""

    has_begun = False
    """Whether any work was started, so that what goes wrong now is no matter of input."""

    def begin(self, n_kernels: int, n_candidates: int) -> None:
        """The work begins."""
        self.has_begun = True

    def advance(self, n_finished: int) -> None:
        """One more kernel is done, and with it ``n_finished`` candidates in all."""

    def end(self) -> None:
        """All kernels are done; some candidates may be refitted now."""

    def close(self) -> None:
        """Leave the terminal as it was, whatever happened."""


class Lines(Watcher):
    """A line for every kernel, or for some of them if they are many."""

    def begin(self, n_kernels: int, n_candidates: int) -> None:
        """See base class."""
        super().begin(n_kernels, n_candidates)
        self._total, self._candidates, self._done = n_kernels, n_candidates, 0
        self._start = time.perf_counter()
        self._step = -(-n_kernels // MOST_LINES)

    def advance(self, n_finished: int) -> None:
        """See base class."""
        self._done += 1
        if self._done % self._step == 0 or self._done == self._total:
            seconds = time.perf_counter() - self._start
            say(
                f"kernel {self._done}/{self._total}, {n_finished}/{self._candidates} candidates, "
                f"{seconds:.1f} s"
            )


class Bar(Watcher):
    """A live bar on stderr."""

    def __init__(self) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("kernels"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None

    def begin(self, n_kernels: int, n_candidates: int) -> None:
        """See base class."""
        super().begin(n_kernels, n_candidates)
        self._bar.start()
        self._task = self._bar.add_task(f"{n_candidates} candidates", total=n_kernels)

    def advance(self, n_finished: int) -> None:
        """See base class."""
        assert self._task is not None
        self._bar.advance(self._task)
        self._bar.refresh()

    def close(self) -> None:
        """See base class."""
        self._bar.stop()


def find_watcher(is_quiet: bool) -> Watcher:
    """The one that suits where stderr goes."""
    if is_quiet:
        return Watcher()
    return Bar() if sys.stderr.isatty() else Lines()


class _Relay:
    """Progress of a search, told to a watcher as well."""

    def __init__(self, progress: Any, watcher: Watcher) -> None:
        self._progress, self._watcher = progress, watcher

    def advance(self, n_finished: int) -> None:
        self._progress.advance(n_finished)
        self._watcher.advance(n_finished)

    def end_search(self) -> None:
        self._progress.end_search()
        self._watcher.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._progress, name)


class WatchedSearch(FastGridSearchCV):
    """A search that tells a watcher how far it is, and keeps what is to be said of its winner.

    Another round may find a better one, and knows more of the grid.
    """

    watcher = Watcher()
    remarks: Sequence[Remark] = ()

    def _grids(self) -> Sequence[Any]:
        return ()

    def _say(self, remarks: Sequence[Remark]) -> None:
        self.remarks = remarks

    def _evaluate(self, state: Any) -> None:
        state.progress = _Relay(state.progress, self.watcher)
        self.watcher.begin(state.setup.n_kernels, len(state.params))
        super()._evaluate(state)
