"""A study of one bundled set and two methods, run like the papers' in a process of its own.

``python -m tests.project.tiny_reproduction STORE LOG`` computes what is missing, notes every cell
that is begun in LOG, and prints the table.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.papers import data, work
from benchmarks.papers.runner import Store, run
from benchmarks.papers.study import Cell, Grid, Machine, Method, Profile, Rows, powers, widths
from benchmarks.papers.tables import ErrorTable
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from everyfold import LSSVC

LSSVM = Machine(LSSVC())
TABLE = ErrorTable(
    paper="tiny",
    name="table",
    title="A tiny table",
    rows=(Rows("bundled/cells", 120),),
    grid=Grid(widths((3, 5)), powers((-6, -3))),
    share=0.5,
    methods=(Method("5CV", LSSVM, 5), Method("BIF-5CV", LSSVM, 5, {"order": 1})),
    splits=6,
    printed={"cells": {"5CV": (4.0, 1.0)}},
    references={"BIF-5CV": "5CV"},
)


def bundled(name: str) -> data.Numbers:
    X, y = load_breast_cancer(return_X_y=True)
    return data.Numbers(scale(X[:120, :5]), 2.0 * y[:120] - 1.0)


def select(*arguments: object) -> dict[str, object]:
    data.load = bundled
    time.sleep(float(os.environ.get("TINY_PAUSE", "0")))
    found = work.select(*arguments)
    return {key: value for key, value in found.items() if key != "seconds"}


def select_and_note(*arguments: object) -> dict[str, object]:
    _rows, split, _, _, method = arguments
    with Path(os.environ["TINY_LOG"]).open("a") as log:
        log.write(f"{method.name} {split}\n")
    return select(*arguments)


def fail(manner: str) -> dict[str, object]:
    if manner == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if manner == "raises":
        raise ValueError("no such candidate\nmore of it")
    return {"manner": manner}


def cells() -> list[Cell]:
    every = TABLE.cells(Profile("tiny", ((1000, 6),)))
    return [replace(cell, work=select_and_note) for cell in every]


def main() -> None:
    store = Store(Path(sys.argv[1]))
    failed = run(cells(), store, jobs=2)
    assert not failed, failed
    print(TABLE.markdown({cell.key: store.get(cell) for cell in cells()}))


if __name__ == "__main__":
    main()
