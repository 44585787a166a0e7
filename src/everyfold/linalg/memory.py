"""How much memory there is, and what would not fit.

Limits are those of the computer, of control groups (containers) and of the process; the smallest
counts. What would not fit is refused before it is started, with the numbers and a remedy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np

from everyfold.io.samples import SAMPLE

# Bytes where nothing is known of a limit.
UNKNOWN = 1 << 62

# Where Linux says how much memory there is, and where control groups are.
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
    left = UNKNOWN
    for limit, used in _process_limits():
        left = min(left, max(0, limit - _named(PROC / "self" / "status", used, 1024)))
    return left


def memory_limit() -> int:
    """Bytes this process could have if nothing were in use: the same for every call."""
    physical = _named(PROC / "meminfo", "MemTotal:", 1024) or UNKNOWN
    of_groups = (_number(folder / names[0]) for folder, names in _folders())
    return min(physical, *of_groups, *(limit for limit, _ in _process_limits()), UNKNOWN)


def _process_limits() -> Iterator[tuple[int, str]]:
    """Limits of the address space and of data, and the names of what is in use of each."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    for kind, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit, used


def _machine() -> int:
    found = _named(PROC / "meminfo", "MemAvailable:", 1024)
    if found:
        return found
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _groups() -> Iterator[int]:
    """What each limit of the control groups leaves, and of those above them."""
    yield UNKNOWN
    for folder, names in _folders():
        yield _left(folder, *names)


def _folders() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Control groups (version 2 and 1), and the names of limit, usage and cached files there."""
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
            yield root / folder, names


def _left(folder: Path, limit: str, usage: str, cached: str) -> int:
    """The limit of a control group less what is in use; cached files give way."""
    most, used = _number(folder / limit), _number(folder / usage)
    if UNKNOWN in (most, used):
        return UNKNOWN
    return max(0, most - max(0, used - _named(folder / "memory.stat", cached, 1)))


def _number(path: Path) -> int:
    try:
        return int(_text(path))
    except ValueError:  # no such file, or "max"
        return UNKNOWN


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


# Bytes that are there if the interpreter is: no limit is read for them.
TRIFLE = 1 << 24


def fits(n: int, rank: int) -> bool:
    """Whether an n×rank matrix fits in memory while it is at work."""
    needed = 8 * n * rank * 3
    return needed <= TRIFLE or needed <= available_memory()


# What a single use of memory may take of what is free: the sums of a pass.
SHARE_OF_MEMORY = 0.25

# What a sample of rows may take of all memory that there could be.
SHARE_OF_LIMIT = 0.125

# Rows below which a sample is not halved any more, however little memory there is.
LEAST_SAMPLE = 1250


def sample_bytes(rows: int, n_features: int, width: int, copies: int = 3) -> int:
    """What it takes to choose so many landmarks from rows: these as read, scaled and centred."""
    return 8 * rows * (copies * n_features + 2 * width)


def sample_rows(n_features: int, width: int) -> int:
    """How many rows landmarks are chosen from: halves of the usual number, until they are small.

    They then take an eighth of the memory that there could be, not of what is free: a search that
    goes on later, and the fit of its best model, are to have the same landmarks.
    """
    rows, allowed = SAMPLE, SHARE_OF_LIMIT * memory_limit()
    while rows // 2 >= max(LEAST_SAMPLE, width) and sample_bytes(rows, n_features, width) > allowed:
        rows //= 2
    return rows


# How often the rows of a batch exist on their way into sums, see `batch_bytes`.
COPIES = 4


def batch_bytes(height: int, n_features: int, width: int, *, is_scaled: bool = True) -> int:
    """So many rows of a source on their way into sums of ``width`` columns.

    They exist several times: as they were read, as an array, put together, sorted by fold, scaled;
    so do the columns that are made of them.
    """
    return 8 * height * (COPIES * (n_features + width) + is_scaled * n_features)


def threads_that_fit(threads: int, needed: int) -> int:
    """As many of these threads, with so many bytes each, as half of the free memory holds."""
    if threads == 1:
        return 1
    return max(1, min(threads, int(2 * SHARE_OF_MEMORY * available_memory()) // max(1, needed)))


# What needs no dense matrix, in messages.
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
        f"a dense kernel matrix of n_samples={n} rows needs about {needed / 1e9:.1f} GB "
        f"including its factorisation, but {free / 1e9:.1f} GB are free; use fewer "
        f"rows, {instead}"
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


# Just below the largest block that the C library learns from.
_LESSON = 31 * 2**20
