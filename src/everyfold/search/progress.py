"""How far a search is: a bar or lines, and scikit-learn's callbacks where it has them.

With ``verbose=1`` a search shows one bar for each round of units, on a terminal or in a notebook,
if tqdm is installed. Otherwise it prints a line for each finished kernel.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias

from everyfold._progress import ProgressListener, pluralise
from everyfold._typing import Estimator, Matrix, Params, Search, Targets
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.units import Unit
from everyfold.io import RowSource

# What callbacks of refits are called by: a context for each candidate and fold.
Contexts: TypeAlias = dict[tuple[int, int], Any]

# What ``fit`` was given: rows, targets and metadata.
Given: TypeAlias = tuple[Matrix, Targets, Params | None]

# Seconds between two lines about the rows of one pass: more would only scroll.
_SECONDS_BETWEEN_LINES = 1.0

# Seconds between two states of a bar: smooth to look at, and drawing takes no part of the time.
_SECONDS_BETWEEN_STATES = 0.1


class Kernels:
    """Which kernels have all their candidates: each is counted once, however it is evaluated."""

    def __init__(self, units: Iterable[Unit]) -> None:
        found = {
            tuple(number for group in groups for number in group.numbers)
            for unit in units
            if unit.order != "refit"
            for groups in unit.groups
        }
        self._left = {k: set(numbers) for k, numbers in enumerate(found)}
        self._of = {number: k for k, numbers in enumerate(found) for number in numbers}
        self._total, self.n_candidates = len(found), 0

    def __len__(self) -> int:
        return self._total

    @property
    def done(self) -> int:
        """The number of kernels that are done."""
        return self._total - len(self._left)

    def take(self, numbers: Iterable[int]) -> None:
        """Candidates are done."""
        for number in numbers:
            self.n_candidates += 1
            # A candidate that is refitted belongs to no kernel: {number, -1} never gets empty.
            left = self._left.get(self._of.get(number, -1), {number, -1})
            left.discard(number)
            if not left:
                del self._left[self._of[number]]


class Round:
    """The units of a round by what they should cost, and the share of each that is done."""

    def __init__(self, units: Sequence[Unit]) -> None:
        # A unit that should cost nothing counts a thousandth of the longest, or the bar would not
        # move for it.
        least = max((unit.seconds for unit in units), default=0.0) / 1000.0 or 1.0
        self._costs = {id(unit): max(unit.seconds, least) for unit in units}
        self._shares: dict[int, float] = {}

    def report_share(self, unit: Unit, share: float) -> None:
        """So much of a unit is done."""
        if id(unit) in self._costs:
            self._shares[id(unit)] = share

    @property
    def share(self) -> float:
        """So much of the round."""
        # A copy, as other threads report meanwhile.
        done = sum(self._costs[key] * share for key, share in list(self._shares.items()))
        return float(done / sum(self._costs.values())) if self._costs else 0.0


class Progress(ProgressListener):
    """Gets every unit of work that is finished, and shares of units where a bar shows them.

    scikit-learn 1.9 has callbacks, to which a kernel with all its candidates is one task; before,
    there are none to call.
    """

    def __init__(self, search: Search, data: Given, n_kernels: int, n_candidates: int) -> None:
        self._X, self._y, self._metadata = data
        self._search = search
        self._total, self._candidates = n_kernels, n_candidates
        self._kernels = Kernels(())
        self._round = Round(())
        self._n_rounds, self._shown, self._drawn = 0, 0.0, -math.inf
        self._start = time.perf_counter()
        self._last_line = (-1, 0.0)
        self._root: Any = None
        self._tasks: Any = None
        self._bar = self.find_bar()
        self.is_on = self._bar is not None
        if hasattr(search, "_init_callback_context"):
            self._open_callbacks()

    def find_bar(self) -> Bar | None:
        """What shows how far the work is; None for lines, or for silence."""
        return find_bar() if self._search.verbose > 0 else None

    def _open_callbacks(self) -> None:
        search = self._search
        root = search._init_callback_context(max_subtasks=1 + (search.refit is not False))
        self._root = root.call_on_fit_task_begin(estimator=search, **self._data)

    @property
    def _data(self) -> Params:
        """What ``fit`` was given, as callbacks get it."""
        return {"X": self._X, "y": self._y, "metadata": self._metadata}

    @contextmanager
    def working(self, plan: SearchPlan) -> Iterator[Contexts]:
        """While units are done; gives what callbacks are called by, for each refit."""
        with self.printing(), _watched(self._X, self):
            try:
                yield self._begin(plan)
            finally:
                self.close()
        if self._tasks is not None:
            self._tasks.call_on_fit_task_end(estimator=self._search)

    def _begin(self, plan: SearchPlan) -> Contexts:
        """Say what there is to do."""
        self._kernels = Kernels(plan.units)
        self._total = len(self._kernels)
        self._announce(plan)
        if self._root is None:
            return {}
        refits = [(n, i) for n in plan.refitted for i in range(plan.folds)]
        tasks = self._root.subcontext(
            task_name="search", max_subtasks=self._total + len(refits), sequential_subtasks=False
        )
        self._tasks = tasks.call_on_fit_task_begin(estimator=self._search)
        name = "candidate-split-evaluation"
        return {
            refit: self._tasks.subcontext(task_name=name, task_id=self._total + k)
            for k, refit in enumerate(refits)
        }

    def _announce(self, plan: SearchPlan) -> None:
        if self._search.verbose <= 0:
            return
        if self._total:
            folds = f", {pluralise(plan.folds, 'fold')} each" if plan.folds else ""
            words = pluralise(self._candidates, "candidate")
            print(f"{words} on {pluralise(self._total, 'kernel')}{folds}", flush=True)
        if plan.hint:
            print(plan.hint, flush=True)
        if plan.refitted:
            count = len(plan.refitted)
            print(
                f"Fitting {plan.folds} folds for each of {count} candidates, totalling "
                f"{count * plan.folds} fits",
                flush=True,
            )

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Print what the package logs meanwhile, such as that it compiles, if asked for lines."""
        if self._search.verbose <= 0:
            yield
            return
        log, printed = logging.getLogger("everyfold"), logging.StreamHandler(sys.stdout)
        level = log.level
        log.addHandler(printed)
        log.setLevel(min(level, logging.INFO) if level else logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(printed)
            log.setLevel(level)

    def begin_round(self, units: Sequence[Unit]) -> None:
        """See base class."""
        self._round, self._shown = Round(units), 0.0
        self._n_rounds += 1

    def report_share(self, unit: Unit, share: float) -> None:
        """See base class."""
        if not self.is_on:
            return
        self._round.report_share(unit, share)
        now = time.perf_counter()
        if now - self._drawn >= _SECONDS_BETWEEN_STATES:
            self._drawn = now
            self._draw()

    def _draw(self) -> None:
        """Show how far the round is; never less than before."""
        assert self._bar is not None
        self._shown = max(self._shown, self._round.share)
        again = "" if self._n_rounds <= 1 else f", round {self._n_rounds}"
        self._bar.show(self._shown, self._words() + again)

    def _words(self) -> str:
        seconds = time.perf_counter() - self._start
        every = pluralise(self._candidates, "candidate")
        words = f"{self._kernels.n_candidates}/{every}, {seconds:.1f} s"
        return f"kernel {self._kernels.done}/{self._total}, {words}" if self._total else words

    def advance(self, numbers: Sequence[int]) -> None:
        """Candidates have got complete for the first time, and with them perhaps some kernels."""
        before = self._kernels.done
        # To the callbacks a kernel begins and ends at once: its candidates come in any order.
        self._kernels.take(numbers)
        for k in range(before, self._kernels.done) if self._tasks is not None else ():
            task = self._tasks.subcontext(task_name="kernel", task_id=k)
            task.call_on_fit_task_begin(estimator=self._search)
            task.call_on_fit_task_end(estimator=self._search)
        if self._search.verbose > 0 and self._bar is None and self._kernels.done > before:
            print(self._words(), flush=True)

    def report_rows(self, done: int, total: int | None) -> None:
        """Say how many rows a pass over a source has read; ``total`` may be unknown."""
        if self._search.verbose > 0 and self._bar is None:
            self._say_rows(done, total, partial(print, flush=True))

    def _say_rows(self, done: int, total: int | None, say: Callable[[str], None]) -> None:
        """Say it at every tenth of the rows, or million of them, and not more than once a second.

        What is quick needs no words.
        """
        # A source need not know its number of rows before the end of its first pass.
        part, now = 10 * done // total if total else done // 1_000_000, time.perf_counter()
        last, when = self._last_line
        if part == last or now - max(when, self._start) < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = part, now
        share = f"{100 * done // total} % of {total} rows" if total else f"{done} rows"
        say(f"{share} of a pass, {now - self._start:.1f} s")

    def refine(self, n_candidates: int) -> None:
        """So many candidates were evaluated again, more exactly, as a later round does."""
        if self._search.verbose > 0 and self._bar is None:
            seconds = time.perf_counter() - self._start
            words = pluralise(n_candidates, "candidate")
            print(f"{words} again, more exactly, {seconds:.1f} s", flush=True)

    def close(self) -> None:
        """Leave the terminal as it was, whatever happened."""
        if self._bar is not None:
            if self._n_rounds:
                self._draw()
            self._bar.close()
        self._bar, self.is_on = None, False

    @contextmanager
    def refitting(self, estimator: Estimator) -> Iterator[None]:
        """While the winner is fitted."""
        with _watched(self._X, self):
            if self._root is None:
                yield
                return
            task = self._root.subcontext(task_name="refit-with-best-params")
            with task.propagate_callback_context(estimator):
                task.call_on_fit_task_begin(estimator=self._search, **self._data)
                yield
            task.call_on_fit_task_end(estimator=self._search, **self._data)

    def end(self) -> None:
        """Everything is done."""
        if self._root is not None:
            self._root.call_on_fit_task_end(estimator=self._search, **self._data)


@contextmanager
def _watched(X: Matrix, progress: Progress) -> Iterator[None]:
    """Let a source of rows report how far its passes are."""
    if not isinstance(X, RowSource):
        yield
        return
    X.watch = progress.report_rows
    try:
        yield
    finally:
        X.watch = None


# -- bars ------------------------------------------------------------------------------------------


class Bar(Protocol):
    """Shows a share and words."""

    def show(self, share: float, words: str) -> None:
        """Replace what was shown before."""

    def close(self) -> None:
        """Leave the last state on the screen."""


class TqdmBar:
    """A bar of tqdm, on a terminal or in a notebook; it appears with the first share."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._kind = kind
        self._bar: Any = None

    def show(self, share: float, words: str) -> None:
        """See base class."""
        if self._bar is None:
            shape = "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = self._kind(total=1.0, file=sys.stdout, dynamic_ncols=True, bar_format=shape)
        self._bar.n = share
        self._bar.set_description_str(words)

    def close(self) -> None:
        """See base class."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def find_bar() -> Bar | None:
    """A bar where somebody can see one and tqdm is installed; None where lines are printed."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if not (sys.stdout.isatty() or hasattr(shell, "kernel")):
        return None  # a file or a pipe, where each state of a bar would be a line
    try:
        # Without ipywidgets tqdm shows a bar of text.
        with warnings.catch_warnings(action="ignore"):
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return TqdmBar(tqdm)
