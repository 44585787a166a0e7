"""How much memory there is, and what would not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np

UNKNOWN = 1 << 62
"""Bytes where nothing is known of a limit."""

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes this process can have without swapping, or a very large number where unknown."""
    return min(shared_memory(), process_memory())


def shared_memory() -> int:
    """Bytes that all workers can have together: of the machine and of their control group."""
    return min(_machine(), *_groups())


def process_memory() -> int:
    """Bytes that the limits of the address space and of data leave this process."""
    try:
        import resource  # not on Windows
    except ImportError:
        return UNKNOWN
    left = UNKNOWN
    for kind, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            left = min(left, max(0, limit - _named(PROC / "self" / "status", used, 1024)))
    return left


def _machine() -> int:
    found = _named(PROC / "meminfo", "MemAvailable:", 1024)
    if found:
        return found
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _groups() -> Iterator[int]:
    """What each limit of the control groups leaves (version 2 and 1), and of those above them."""
    yield UNKNOWN
    for line in _text(PROC / "self" / "cgroup").splitlines():
        _, kinds, name = line.split(":", 2)
        if not kinds:
            names, root = ("memory.max", "memory.current", "inactive_file"), GROUPS
        elif "memory" in kinds.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            root = GROUPS / "memory"
        else:
            continue
        group = PurePosixPath(name.lstrip("/"))
        for folder in (group, *group.parents):
            yield _left(root / folder, *names)


def _left(folder: Path, limit: str, usage: str, cached: str) -> int:
    """The limit of a control group less what is in use; cached files give way."""
    try:
        most = int(_text(folder / limit))
        used = int(_text(folder / usage))
    except ValueError:  # no such file, or "max"
        return UNKNOWN
    return max(0, most - max(0, used - _named(folder / "memory.stat", cached, 1)))


def _named(path: Path, name: str, unit: int) -> int:
    """The number after a name in a file of names and numbers; 0 if there is none."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1]) * unit
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


TRIFLE = 1 << 24
"""Bytes that are there if the interpreter is: no limit is looked up for them."""


def fits(n: int, rank: int) -> bool:
    """Whether an n×rank matrix fits in memory while it is at work."""
    needed = 8 * n * rank * 3
    return needed <= TRIFLE or needed <= available_memory()


LOW_RANK = "operator=Nystrom(...), or a linear kernel with fewer features than rows"


def check_memory(n: int, rank: int, instead: str = LOW_RANK) -> None:
    """Refuse an n×rank matrix that would not fit while it is at work, before it is started.

    ``instead`` names what needs no dense matrix.
    """
    if fits(n, rank):
        return
    needed, free = 8 * n * rank * 3, available_memory()
    if rank < n:
        raise MemoryError(
            f"a kernel of rank {rank} on n_samples={n} rows needs about {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB are free; use fewer landmarks (n_landmarks), or pass the rows as "
            "a source that is read in blocks (everyfold.streams)"
        )
    raise MemoryError(
        f"a dense kernel matrix of n_samples={n} rows needs about {needed / 1e9:.1f} GB while "
        f"it is at work, but {free / 1e9:.1f} GB are free; use fewer rows, {instead}"
    )


def check_workers(each: int, workers: int, n: int, instead: str = LOW_RANK) -> None:
    """Refuse work of so many bytes in each of several workers, if they cannot hold it together.

    ``instead`` names what needs less.

    A limit of the address space holds for each process by itself; the machine's and the control
    group's for all together.
    """
    free = available_memory()
    if each > free:
        raise MemoryError(
            f"evaluating n_samples={n} rows needs about {each / 1e9:.2g} GB at a time, but "
            f"{free / 1e9:.2g} GB are free; use fewer rows, fewer candidates at a time, {instead}"
        )
    if workers > 1 and workers * each > (together := shared_memory()):
        raise MemoryError(
            f"{workers} workers with about {each / 1e9:.2g} GB each for n_samples={n} rows need "
            f"{workers * each / 1e9:.2g} GB, but {together / 1e9:.2g} GB are free; use "
            f"n_jobs={max(1, together // each)}"
        )


def keep_pages() -> None:
    """Let freed matrices of up to 31 MB be used again instead of being given back and asked for.

    The C library of Linux learns from the largest block that was ever freed; other systems need no
    such lesson. Where matrices of a few hundred rows come and go, pages are a third of the time.
    Nothing is touched, and at most twice as much stays with the process.
    """
    with suppress(MemoryError):
        np.empty(_LESSON, dtype=np.uint8)


_LESSON = 31 * 2**20
"""Just below the largest block that the C library learns from."""
