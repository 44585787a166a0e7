"""``python -m benchmarks.papers run`` and ``report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.papers import report
from benchmarks.papers.papers import PAPERS
from benchmarks.papers.profiles import PROFILES
from benchmarks.papers.runner import Store, run
from benchmarks.papers.study import Cell, Profile
from benchmarks.papers.tables import Table

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"all": (True, False), "timed": (True,), "untimed": (False,)}
KEPT = ROOT / "benchmarks" / "results" / "papers"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, or both; the exit status says whether a cell failed."""
    options = _read(arguments)
    profile = replace(PROFILES[options.profile], most=options.splits)
    tables = [t for paper in options.papers for t in PAPERS[paper].TABLES]
    cells = in_turn(tables, profile)
    failed = []
    store = Store(options.store)
    if "run" in options.command:
        wanted = [cell for cell in cells if cell.is_timing in KINDS[options.only]]
        failed = run(
            wanted, store, jobs=options.jobs, minutes=options.minutes, profile=profile.name
        )
        for cell, reason in failed:
            print(f"failed: {' '.join(cell.key)}: {reason}", file=sys.stderr)
    if "report" in options.command:
        found = {cell.key: result for cell in cells if (result := store.get(cell)) is not None}
        report.write(options.output or options.store, found, store.sessions(), options.papers)
    return 1 if failed else 0


def in_turn(tables: Sequence[Table], profile: Profile) -> list[Cell]:
    """The first split of all tables, then the second, and so on."""
    cells = {cell.key: cell for table in tables for cell in table.cells(profile)}
    return sorted(cells.values(), key=lambda cell: int(cell.key[-1]))


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("command", nargs="+", choices=["run", "report"])
    parser.add_argument("--profile", choices=PROFILES, default="hour")
    parser.add_argument(
        "--splits", type=int, default=1000, help="at most so many splits of every set"
    )
    parser.add_argument("--papers", nargs="*", choices=PAPERS, default=list(PAPERS))
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--minutes", type=float, default=np.inf, help="then start nothing new")
    parser.add_argument("--only", choices=KINDS, default="all", help="timed cells need peace")
    parser.add_argument("--store", type=Path, default=KEPT, help="where finished cells are kept")
    parser.add_argument("--output", type=Path, help="the folder of the report; that of the store")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
