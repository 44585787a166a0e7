"""Searches on a Dask cluster: what they cost, a model of it, and what it foretells.

Constants are measured on this machine (sums, additions, solutions, tasks, the wire), put into the
model of docs/scaling.md, and checked by real searches on clusters of 1 and 2 worker processes. The
same search in this process, with as many BLAS threads as the cluster has workers, stands beside.
Rows are made where they are used, so that reading is no part of it. The peak of a worker's memory,
beyond what it had before, stands beside what was planned.

Run with ``python benchmarks/cluster.py [--rows 200000 1000000] [--landmarks 500] [--write]``, where
``--write`` puts the tables into docs/scaling.md. (A script called dask.py would hide the package.)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV, KernelRegressor, Nystrom
from everyfold.io.arrays import ArrayRows
from everyfold.io.blocks import array_batches
from everyfold.io.dask import DaskRows
from everyfold.io.samples import Held
from everyfold.kernels import RBF
from everyfold.operators.gram import FoldSums, Start, accumulate

FEATURES, FOLDS, KERNELS, RIDGES, PARTITION = 10, 5, 2, 8, 50_000
WANTED = 1.4
PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- measured by benchmarks/cluster.py -->", "<!-- end of what is measured -->"


@dataclass(frozen=True)
class Constants:
    """Seconds: of features and of their products a row, of sums a byte, of solutions, of tasks.

    ``feature`` is for each row and landmark, ``product`` for each row and pair of landmarks,
    ``addition`` and ``wire`` for each byte of sums, ``solution`` for each fold and cube of
    landmarks, ``task`` for each partition.
    """

    feature: float
    product: float
    addition: float
    wire: float
    solution: float
    task: float


@dataclass(frozen=True)
class Size:
    """What is searched: rows, landmarks, partitions, workers of one thread each."""

    rows: int
    landmarks: int
    workers: int

    @property
    def partitions(self) -> int:
        """Their number."""
        return max(1, -(-self.rows // PARTITION))

    @property
    def chains(self) -> int:
        """How many sums are brought together."""
        return min(self.partitions, 2 * self.workers)

    @property
    def sums(self) -> float:
        """Bytes of the sums of all kernels and folds."""
        return 8.0 * KERNELS * FOLDS * self.landmarks**2

    @property
    def traffic(self) -> float:
        """Bytes that move at most: maps, sums of every chain and of all (twice), a sample."""
        maps = 8.0 * KERNELS * self.landmarks * (self.landmarks + FEATURES)
        sample = 8.0 * FEATURES * min(20_000, self.rows)
        return self.workers * maps + (self.chains + 2) * self.sums + KERNELS * sample


def predicted(size: Size, known: Constants) -> float:
    """Seconds of a search with one pass."""
    c, share = size.landmarks, size.rows / size.workers
    each = -(-size.partitions // size.workers)
    work = KERNELS * share * (known.feature * c + known.product * c**2)
    additions = each * size.sums * known.addition
    levels = int(np.ceil(np.log(max(2, size.chains)) / np.log(8)))
    merged = levels * 8 * size.sums * (known.wire + known.addition)
    solved = KERNELS * FOLDS * known.solution * c**3
    return work + additions + merged + solved + size.partitions * known.task


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def sums_of(n: int, c: int) -> tuple[FoldSums, float]:
    """The sums of some rows in one thread, and the seconds that they take."""
    X, y = rows_of(n, 0)
    features = Nystrom(c, sampling="uniform", random_state=0).feature_map(RBF(0.3), Held(X))
    folds = np.array_split(np.arange(n), FOLDS)
    start = Start(True, True)
    found: list[FoldSums] = []

    def work() -> None:
        batches = array_batches(X, y[:, None], None, folds, 8192)
        found[:] = accumulate(batches, [features], [start])

    taken = seconds(work)
    return found[0], taken


def measure(client: Any) -> Constants:
    """The constants, in one thread and on the cluster at hand."""
    n, small, large = 20_000, 64, 512
    with threadpool_limits(1):
        (_, few), (sums, many) = sums_of(n, small), sums_of(n, large)
        product = (many / large - few / small) / (n * (large - small))
        feature = few / (n * small) - product * small
        size = sum(part.gram.nbytes for part in sums.parts.values())
        addition = seconds(lambda: sums + sums) / size
        total = sums.total
        solution = seconds(lambda: total.solve([0.1] * RIDGES)) / large**3
    block = np.zeros(4_000_000)
    there = client.submit(np.zeros, block.size, pure=False)
    there.result()
    wire = seconds(lambda: client.submit(np.zeros, block.size, pure=False).result()) / block.nbytes
    count = 200
    task = seconds(
        lambda: client.gather([client.submit(abs, -1, pure=False) for _ in range(count)])
    )
    return Constants(max(feature, 0.0), product, addition, wire, solution, task / count)


def rows_of(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, FEATURES))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def block_of(block_id: Any, part: int = 0, n: int = 0) -> np.ndarray:
    start = block_id[0] * PARTITION
    found = rows_of(min(PARTITION, n - start), int(block_id[0]))[part]
    return np.asarray(found)


def lazy_rows(n: int) -> DaskRows:
    """Rows that each worker makes for itself."""
    import dask.array as da

    lengths = tuple(min(PARTITION, n - i) for i in range(0, n, PARTITION))
    X = da.map_blocks(block_of, part=0, n=n, chunks=(lengths, (FEATURES,)), dtype=float)
    y = da.map_blocks(block_of, part=1, n=n, chunks=(lengths,), dtype=float)
    return DaskRows(X, y)


def search(c: int) -> FastGridSearchCV:
    model = KernelRegressor(operator=Nystrom(c, sampling="uniform", random_state=0))
    grid = {"gamma": [0.1, 0.3][:KERNELS], "alpha": np.logspace(-3, 1, RIDGES)}
    return FastGridSearchCV(model, grid, cv=FOLDS, refit=False)


def here(n: int, c: int, threads: int) -> tuple[float, Any]:
    """The same search in this process."""
    parts = [rows_of(min(PARTITION, n - i), i // PARTITION) for i in range(0, n, PARTITION)]
    source = ArrayRows(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    with threadpool_limits(threads):
        start = time.perf_counter()
        found = search(c).fit(source)
        return time.perf_counter() - start, found


def count_bytes() -> None:
    """Count what TCP connections of this process write from now on."""
    from distributed.comm.tcp import TCP

    write: Any = getattr(TCP.write, "original", TCP.write)

    async def counting(self: Any, *args: Any, **options: Any) -> int:
        size: int = await write(self, *args, **options)
        counting.total += size  # type: ignore[attr-defined]
        return size

    counting.total, counting.original = 0, write  # type: ignore[attr-defined]
    TCP.write = counting  # type: ignore[method-assign,assignment]


def bytes_sent() -> int:
    """What was counted."""
    from distributed.comm.tcp import TCP

    return int(getattr(TCP.write, "total", 0))


def memory(name: str) -> float:
    """A line of /proc/self/status in MB; NaN where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(name))


def begin_peak() -> float:
    """The memory of this process, from which on its peak is measured."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS:")


def end_peak() -> float:
    """The peak since then."""
    return memory("VmHWM:")


def compare(rows: Sequence[int], c: int) -> tuple[Constants, list[str]]:
    """Constants, and a table of real searches beside the model."""
    from distributed import Client, LocalCluster

    names = ("rows", "workers", "seconds", "model", "in one process", "ratio", "MB moved", "model")
    more = ("MB a worker", "planned", "scores differ by")
    lines = [f"| {' | '.join([*names, *more])} |", "|" + "---|" * 11]
    known: Constants | None = None
    for workers in (1, 2):
        options = {"threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
        with (
            LocalCluster(n_workers=workers, processes=True, **options) as cluster,
            Client(cluster) as client,
        ):
            search(10).fit(lazy_rows(2 * PARTITION))  # imports
            known = known or measure(client)
            for n in rows:
                size = Size(n, c, workers)
                client.run(count_bytes)
                count_bytes()
                before = client.run(begin_peak)
                start = time.perf_counter()
                there = search(c).fit(lazy_rows(n))
                taken = time.perf_counter() - start
                peak = client.run(end_peak)
                grown = max(peak[worker] - before[worker] for worker in before)
                moved = (sum(client.run(bytes_sent).values()) + bytes_sent()) / 1e6
                alone, local = here(n, c, workers)
                key = "mean_test_score"
                gap = np.abs(there.cv_results_[key] - local.cv_results_[key]).max()
                found = (taken, predicted(size, known), alone)
                cells = [f"{n:,}", f"{workers}", *(f"{s:.1f}" for s in found)]
                cells += [f"{taken / alone:.2f}", f"{moved:.1f}", f"{size.traffic / 1e6:.1f}"]
                cells += [f"{grown:.0f}", f"{there.plan_.memory / 1e6:.0f}", f"{gap:.0e}"]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
                if workers == 2:
                    met = "met" if taken <= WANTED * alone else "not met"
                    words = "2 workers of 1 thread take {:.2f} times what 2 threads take here"
                    print(f"{n:,} rows: {words.format(taken / alone)} (wanted {WANTED}, {met})")
    assert known is not None
    return known, lines


def foretell(known: Constants, c: int) -> list[str]:
    """Tables for clusters that are not here."""
    workers = (1, 2, 10, 30, 100)
    lines = [f"Time of one pass, {c} landmarks:", ""]
    lines.append("| rows | " + " | ".join(f"{w} workers" for w in workers) + " |")
    lines.append("|" + "---|" * (len(workers) + 1))
    for n in (10**6, 10**7, 10**8, 10**9):
        cells = [span(predicted(Size(n, c, w), known)) for w in workers]
        lines.append(f"| {n:.0e} | " + " | ".join(cells) + " |")
    lines += ["", "Bytes that move at most:", "", *lines[2:4]]
    for n in (10**6, 10**7, 10**8, 10**9):
        cells = [f"{Size(n, c, w).traffic / 1e6:,.0f} MB" for w in workers]
        lines.append(f"| {n:.0e} | " + " | ".join(cells) + " |")
    return lines


def span(value: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    known, checked = compare(options.rows, options.landmarks)
    constants = [f"| {name} | {value:.2e} |" for name, value in asdict(known).items()]
    where = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    head = f"{where}; {load:.0f} processes were at work when this began."
    sizes = f"{FEATURES} features, {KERNELS} kernels, {RIDGES} ridges, {FOLDS} folds"
    lines = [head, "", "| constant | seconds |", "|---|---|", *constants, ""]
    lines += [f"Searches with {options.landmarks} landmarks, {sizes}:", "", *checked, ""]
    lines += foretell(known, options.landmarks)
    text = "\n".join(lines)
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
