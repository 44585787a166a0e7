"""How much memory there is, and what would not fit."""

from __future__ import annotations

import os


def available_memory() -> int:
    """Bytes that can be had without swapping, or a very large number where unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line for line in lines if line.startswith("MemAvailable"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def fits(n: int, rank: int) -> bool:
    """Whether an n×rank matrix fits in memory while it is at work."""
    return 8 * n * rank * 3 <= available_memory()


def check_memory(n: int, rank: int) -> None:
    """Refuse an n×rank matrix that would not fit while it is at work, before it is started."""
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
        f"it is factorised, but {free / 1e9:.1f} GB are free; use fewer rows, "
        "operator=Nystrom(...), or a linear kernel with fewer features than rows"
    )
