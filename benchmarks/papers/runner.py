"""Compute the cells that are missing, and keep every one that is finished.

Results are lines of JSON that are only ever appended, each with its own checksum: after a kill the
last line may be broken and is ignored. Cells run one to a process and one thread to a process;
cells that are timed run alone.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from benchmarks.papers.study import Cell, Key, Result
from threadpoolctl import threadpool_limits

import everyfold

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMBA", "BLIS")
}


@dataclass
class Store:
    """Finished cells in a folder, one file a paper, and the sessions that computed them."""

    folder: Path
    _lines: dict[tuple[Key, str], Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            for entry in _entries(path):
                self._lines[tuple(entry["key"]), entry["digest"]] = entry["result"]

    def get(self, cell: Cell) -> Result | None:
        """The result of a cell as it is declared now."""
        return self._lines.get((cell.key, cell.digest))

    def put(self, cell: Cell, result: Result) -> None:
        """Keep a result for good."""
        self._append(cell.key[0], cell.key, cell.digest, result)

    def begin(self, profile: str, jobs: int) -> None:
        """Note where and with what the following cells are computed."""
        about = {**environment(), "profile": profile, "jobs": jobs}
        self._append("sessions", (str(len(self.sessions())),), "session", about)

    def sessions(self) -> list[Result]:
        """What ``begin`` noted."""
        return [result for (_, digest), result in self._lines.items() if digest == "session"]

    def _append(self, name: str, key: Key, digest: str, result: Result) -> None:
        result = _rounded(result)
        entry = {"key": list(key), "digest": digest, "result": result}
        line = json.dumps(entry, separators=(",", ":"))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.jsonl"
        start = "" if _ends_a_line(path) else "\n"  # behind what a kill has left
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{start}{_sum(line)} {line}\n")
            file.flush()
            os.fsync(file.fileno())
        self._lines[key, digest] = result


def _rounded(value: Any) -> Any:
    """Numbers with six significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _sum(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:12]


def _entries(path: Path) -> Iterator[Result]:
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        check, _, line = text.partition(" ")
        if check == _sum(line):
            yield json.loads(line)


def _ends_a_line(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def environment() -> Result:
    """Machine and versions."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "everyfold": everyfold.__version__,
        "threads": 1,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or "unknown processor"
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0].split(":")[1].strip() if names else "unknown processor"


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    jobs: int = 2,
    minutes: float = np.inf,
    profile: str = "",
) -> list[tuple[Cell, str]]:
    """Compute what is missing; the cells that failed, with the reason.

    Parameters
    ----------
    cells : sequence of Cell
        In the order in which they are computed, except that timed ones come first, alone.
    store : Store
    jobs : int
        Processes.
    minutes : float
        After so many no further cell is started.
    profile : str
        Noted with the session.
    """
    missing = [cell for cell in cells if store.get(cell) is None]
    print(f"{len(cells)} cells, {len(cells) - len(missing)} of them stored", flush=True)
    if not missing:
        return []
    store.begin(profile, jobs)
    os.environ.update(ONE_THREAD)  # read by the processes that are started
    progress = Progress(len(missing), time.monotonic() + 60.0 * minutes)
    timed = [cell for cell in missing if cell.is_timing]
    failed = _compute(timed, store, 1, progress)
    return failed + _compute(
        [cell for cell in missing if not cell.is_timing], store, jobs, progress
    )


@dataclass
class Progress:
    """A line for every finished cell."""

    total: int
    end: float
    done: int = 0
    start: float = field(default_factory=time.monotonic)

    def say(self, cell: Cell, outcome: str) -> None:
        """Print what became of a cell."""
        self.done += 1
        gone = time.monotonic() - self.start
        left = gone / self.done * (self.total - self.done)
        head = f"[{self.done}/{self.total} {gone / 60:.1f} min, about {left / 60:.1f} left]"
        print(head, " ".join(cell.key), outcome, flush=True)


def _compute(
    cells: Iterable[Cell], store: Store, jobs: int, progress: Progress
) -> list[tuple[Cell, str]]:
    queue, failed = deque(cells), []
    while queue and time.monotonic() < progress.end:
        failed += _in_processes(queue, store, jobs, progress)
    return failed


def _in_processes(
    queue: deque[Cell], store: Store, jobs: int, progress: Progress
) -> list[tuple[Cell, str]]:
    """Work off the queue, or until a process dies: the cells that were running then have failed."""
    running: dict[Future[Result], Cell] = {}
    failed: list[tuple[Cell, str]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_process) as pool:
        is_broken = False
        while True:
            may_start = not is_broken and time.monotonic() < progress.end
            while queue and may_start and len(running) < jobs:
                cell = queue.popleft()
                running[pool.submit(_work, cell)] = cell
            if not running:
                return failed
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                is_broken |= isinstance(future.exception(), BrokenExecutor)
                if reason := _settle(cell, future, store, progress):
                    failed.append((cell, reason))


def _settle(cell: Cell, future: Future[Result], store: Store, progress: Progress) -> str | None:
    try:
        result = future.result()
    except Exception as error:  # a cell may fail in any way; the others go on
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        progress.say(cell, f"FAILED {reason}")
        if os.environ.get("EVERYFOLD_TRACEBACK"):
            traceback.print_exception(error, file=sys.stderr)
        return reason
    store.put(cell, result)
    progress.say(cell, "")
    return None


def _begin_process() -> None:
    """One thread; and end with the process that started this one, however that ends."""
    threadpool_limits(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _work(cell: Cell) -> Result:
    return cell.work(*cell.arguments)
