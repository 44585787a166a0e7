"""How far a search is: lines on the terminal, and scikit-learn's callbacks where it has them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from everyfold.evaluate.plan import SearchPlan
from everyfold.models.scaling import fit_to_source
from everyfold.rows import RowSource
from everyfold.types import Estimator, Params, Search


class _Printed(logging.Handler):
    """Prints what is logged, as the other lines are printed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message alone."""
        print(record.getMessage(), flush=True)


class Progress:
    """Told of every unit of work that is finished.

    scikit-learn 1.9 has callbacks, to which a kernel with all its candidates is one task; before,
    there are none to call.
    """

    def __init__(self, search: Search, data: Any, n_kernels: int, n_candidates: int) -> None:
        self._search = search
        self._data = {"X": data[0], "y": data[1], "metadata": data[2]}
        self._total, self._candidates = n_kernels, n_candidates
        self._done = 0
        self._start = time.perf_counter()
        self._root: Any = None
        self._tasks: Any = None
        if hasattr(search, "_init_callback_context"):
            self._open_callbacks()

    def _open_callbacks(self) -> None:
        search = self._search
        root = search._init_callback_context(max_subtasks=1 + (search.refit is not False))
        self._root = root.call_on_fit_task_begin(estimator=search, **self._data)

    def begin(self, plan: SearchPlan) -> dict[tuple[int, int], Any]:
        """Say what there is to do; what callbacks are called by, for each refit."""
        self._announce(plan)
        if self._root is None:
            return {}
        refits = [(n, i) for n in plan.refitted for i in range(plan.folds)]
        tasks = self._root.subcontext(
            task_name="search",
            max_subtasks=self._total + len(refits),
            sequential_subtasks=False,
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
            folds = f", {plan.folds} folds each" if plan.folds else ""
            print(f"{self._candidates} candidates on {self._total} kernels{folds}", flush=True)
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
        log, printed = logging.getLogger("everyfold"), _Printed()
        level = log.level
        log.addHandler(printed)
        log.setLevel(min(level, logging.INFO) if level else logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(printed)
            log.setLevel(level)

    def advance(self, n_finished: int) -> None:
        """One more unit is done, ``n_finished`` candidates in all."""
        if self._tasks is not None:
            task = self._tasks.subcontext(task_name="kernel", task_id=self._done)
            task.call_on_fit_task_begin(estimator=self._search)
            task.call_on_fit_task_end(estimator=self._search)
        self._done += 1
        if self._search.verbose > 0:
            seconds = time.perf_counter() - self._start
            print(
                f"kernel {self._done}/{self._total}, {n_finished}/{self._candidates} candidates, "
                f"{seconds:.1f} s",
                flush=True,
            )

    def refine(self, n_candidates: int) -> None:
        """Say that ``n_candidates`` were re-evaluated more exactly, as a later round does."""
        if self._search.verbose > 0:
            seconds = time.perf_counter() - self._start
            print(f"{n_candidates} candidates again, more exactly, {seconds:.1f} s", flush=True)

    def end_search(self) -> None:
        """All units are done."""
        if self._tasks is not None:
            self._tasks.call_on_fit_task_end(estimator=self._search)

    def refit(self, estimator: Estimator, fit_params: Params) -> None:
        """Fit the winner."""
        X, y = self._data["X"], self._data["y"]
        is_source = isinstance(X, RowSource)
        given = (X,) if y is None else (X, y)
        fit = partial(fit_to_source, estimator) if is_source else estimator.fit
        if self._root is None:
            fit(*given, **fit_params)
            return
        task = self._root.subcontext(task_name="refit-with-best-params")
        with task.propagate_callback_context(estimator):
            task.call_on_fit_task_begin(estimator=self._search, **self._data)
            fit(*given, **fit_params)
        task.call_on_fit_task_end(estimator=self._search, **self._data)

    def end(self) -> None:
        """Everything is done."""
        if self._root is not None:
            self._root.call_on_fit_task_end(estimator=self._search, **self._data)
