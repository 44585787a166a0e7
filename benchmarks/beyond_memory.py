"""A folder larger than the memory of a process, searched from the shell, killed, gone on with.

Rows are made partition by partition (Parquet, 64-bit numbers). ``everyfold search`` then runs in
processes that may have less memory than the rows take (RLIMIT_DATA): one without a break, and one
that is killed (SIGKILL) when its journal has a finished kernel and is called again with --resume.
Both must end with the same scores in every digit, and no kernel of the journal may be worked on
twice. The model that was saved predicts the rows of another folder. (Arrow's own pool of memory
reserves a gigabyte at once, which counts as data; the system's does not.)

Run with ``python benchmarks/beyond_memory.py [--megabytes 1500] [--limit 1000]``.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

CALL = "from everyfold.cli import main; main()"
ONE_EACH = f"import everyfold.engine.planning.pass_sizes as passes; passes.LONGEST = 0.0; {CALL}"
"""The shell, and the same with a pass for every kernel, which small sets do not have."""


@dataclass(frozen=True)
class Study:
    """What is searched, where, and with how much memory (MB)."""

    folder: Path
    megabytes: float = 1500.0
    limit: float = 1000.0
    columns: int = 300
    landmarks: int = 300
    part: int = 10_000
    call: str = CALL

    @property
    def rows(self) -> int:
        """Their number."""
        return round(self.megabytes * 1e6 / (8 * (self.columns + 1)))

    def search(self, name: str) -> list[str]:
        """The arguments of a search whose files have this name."""
        gammas = ",".join(f"{g / self.columns:.4g}" for g in (0.1, 0.3, 1.0))
        grids = ["-g", f"gamma={gammas}", "-g", "alpha=logspace(-2,2,5)"]
        files = [f"--journal={name}.journal", f"--report={name}.html", f"--out={name}.csv"]
        how = ["--model=lssvm", "--cv=3", f"--operator=nystrom:{self.landmarks}"]
        return ["search", "rows", *how, *grids, *files, f"--save={name}.skops"]


@dataclass
class Ended:
    """A process that has ended: its exit code, seconds, peak of resident memory (MB) and words."""

    code: int
    seconds: float
    peak: float
    words: str


@dataclass
class Found:
    """What came out: processes by name, and what was compared."""

    ended: dict[str, Ended] = field(default_factory=dict)
    kept: int = 0
    kernels: int = 0
    is_repeated: bool = True
    is_equal: bool = False
    score: float = float("nan")


def make(study: Study, name: str, n: int, seed: int) -> int:
    """Write n rows, a partition at a time; bytes on disk."""
    folder = study.folder / name
    folder.mkdir()
    names = [f"x{j}" for j in range(study.columns)]
    for k, start in enumerate(range(0, n, study.part)):
        rng = np.random.default_rng((seed, k))
        X = rng.normal(size=(min(study.part, n - start), study.columns))
        y = np.sin(X[:, :40].sum(axis=1) / 6.0) + X[:, 40] + 0.1 * rng.normal(size=len(X))
        table = pa.table([*X.T.copy(), y], names=[*names, "y"])
        pq.write_table(table, folder / f"part.{k}.parquet", compression=None, use_dictionary=False)
    return sum(path.stat().st_size for path in folder.iterdir())


def records(study: Study, name: str) -> int:
    """How many kernels a journal has; the first line says which search it is of."""
    path = study.folder / f"{name}.journal"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def run(study: Study, *argv: str, kill_at: int | None = None, name: str = "") -> Ended:
    """Run the shell with a limit; kill it when its journal has so many records."""
    data = round(study.limit * 1e6)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))

    start, log = time.perf_counter(), study.folder / "log"
    with log.open("wb") as err:
        child = subprocess.Popen(
            [sys.executable, "-c", study.call, *argv],
            cwd=study.folder,
            stdout=err,
            stderr=err,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
            preexec_fn=limited,
        )
        while kill_at is not None and child.poll() is None:
            if records(study, name) >= kill_at:
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds, peak = time.perf_counter() - start, used.ru_maxrss * 1024 / 1e6
    return Ended(child.returncode, seconds, peak, log.read_text(errors="replace"))


def table_of(study: Study, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pyarrow.csv.read_csv(study.folder / name).to_pydict()
    return found


def execute(study: Study, new_rows: int) -> Found:
    """Search without a break, search with one, predict; stop where a command fails."""
    found = Found()

    def ran(name: str, ended: Ended, code: int = 0) -> None:
        found.ended[name] = ended
        if ended.code != code:
            raise RuntimeError(f"{name} ended with {ended.code}:\n{ended.words}")

    ran("searched", run(study, *study.search("whole")))
    found.kernels = records(study, "whole")
    ran("killed", run(study, *study.search("broken"), kill_at=1, name="broken"), -signal.SIGKILL)
    journal = study.folder / "broken.journal"
    found.kept, before = records(study, "broken"), journal.read_bytes()
    ran("resumed", run(study, *study.search("broken"), "--resume"))
    after = journal.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]  # a torn last line is dropped
    found.is_repeated = not after.startswith(whole) or records(study, "broken") != found.kernels
    found.is_equal = table_of(study, "whole.csv") == table_of(study, "broken.csv")
    make(study, "new", new_rows, seed=1)
    ran("predicted", run(study, "predict", "broken.skops", "new", "--out=new.csv"))
    predicted = np.array(table_of(study, "new.csv")["prediction"])
    parts = range(len(list((study.folder / "new").iterdir())))
    files = [study.folder / "new" / f"part.{k}.parquet" for k in parts]  # in the order of numbers
    y = np.concatenate([pq.read_table(file, columns=["y"])["y"].to_numpy() for file in files])
    found.score = float(1 - np.mean((y - predicted) ** 2) / y.var())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=1500.0, help="of rows, as numbers")
    parser.add_argument("--limit", type=float, default=1000.0, help="MB that a process may have")
    options = parser.parse_args()
    where = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), options.megabytes, options.limit)
        on_disk = make(study, "rows", study.rows, seed=0)
        size = f"{study.rows:,} rows of {study.columns} features: {study.megabytes:,.0f} MB"
        print(f"{size} as numbers, {on_disk / 1e6:,.0f} MB on disk; {where}", flush=True)
        print(f"memory of a process: {study.limit:,.0f} MB of data (RLIMIT_DATA)", flush=True)
        found = execute(study, new_rows=study.rows // 4)
        for name, ended in found.ended.items():
            print(f"{name:<10} {ended.seconds:6.1f} s, peak {ended.peak:5.0f} MB resident")
        print(f"kernels: {found.kernels}, of which {found.kept} were finished before the kill")
        print(f"finished work repeated: {found.is_repeated}; all scores equal: {found.is_equal}")
        print(f"R² of the predictions of another folder: {found.score:.4f}")
    if found.is_repeated or not found.is_equal:
        sys.exit("the search that was killed is not the one that was not")


if __name__ == "__main__":
    main()
