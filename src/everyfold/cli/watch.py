"""How far a search is: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich import progress
from rich.console import Console

from everyfold.cli.manners import say
from everyfold.selection.progress import Progress

MOST_LINES = 20


class Watcher(Progress):
    """Told of finished candidates, shows the number of kernels: those of a grid have equally many.

    A search makes its watcher when everything has been checked, and has it as ``search.watcher``:
    what goes wrong from then on is a failure of the work, not of the input.
    """

    def __init__(
        self, is_quiet: bool, search: Any, data: Any, n_kernels: int, n_candidates: int
    ) -> None:
        super().__init__(search, data, n_kernels, n_candidates)
        self.is_quiet, self.n_kernels, self.n_candidates = is_quiet, n_kernels, n_candidates
        self.done, self.start = 0, time.perf_counter()
        self.bar = None if is_quiet or not sys.stderr.isatty() else _bar(n_kernels, n_candidates)
        search.watcher = self

    def advance(self, n_finished: int) -> None:
        """See base class."""
        super().advance(n_finished)
        before, self.done = self.done, self.n_kernels * n_finished // self.n_candidates
        step = -(-self.n_kernels // MOST_LINES)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, refresh=True)
        elif not self.is_quiet and (self.done // step, self.done // self.n_kernels) > (
            before // step,
            before // self.n_kernels,
        ):
            seconds = time.perf_counter() - self.start
            candidates = f"{n_finished}/{self.n_candidates} candidates"
            say(f"kernel {self.done}/{self.n_kernels}, {candidates}, {seconds:.1f} s")

    def close(self) -> None:
        """Leave the terminal as it was, whatever happened."""
        if self.bar is not None:
            self.bar.stop()


def _bar(n_kernels: int, n_candidates: int) -> progress.Progress:
    """A live bar on stderr."""
    bar = progress.Progress(
        progress.SpinnerColumn(),
        *("{task.description}", progress.BarColumn(), progress.MofNCompleteColumn(), "kernels"),
        *(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()),
        console=Console(stderr=True),
    )
    bar.add_task(f"{n_candidates} candidates", total=n_kernels)
    bar.start()
    return bar
