"""Searches that are killed again and again, and go on: ``python -m tests.killed_searches``.

Prints, as JSON, what a search without a journal and one that was killed found. Each search is a
fork of this process, so that packages are imported once; workers of joblib's are processes of their
own. A kill comes when the journal has a random number of records, and a moment later.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, mean_squared_error

from everyfold import FastGridSearchCV

GRID = {"alpha": [0.1, 1.0], "gamma": [0.05 * 1.5**k for k in range(10)]}


def slow_error(y, predicted):
    """A score that takes a moment, and leaves a line with the number of its process."""
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{os.getpid()}\n")
    time.sleep(0.003)
    return -mean_squared_error(y, predicted)


def search(n_jobs, journal=None):
    """Ten kernels of two ridges on five folds each; every score as text with all its bits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    scoring = make_scorer(slow_error)
    made = FastGridSearchCV(
        KernelRidge(kernel="rbf"), GRID, cv=5, scoring=scoring, n_jobs=n_jobs, journal=journal
    ).fit(X, y)
    columns = sorted(name for name in made.cv_results_ if "_test_" in name)
    return {name: [float(x).hex() for x in made.cv_results_[name]] for name in columns}


def fork(work, *arguments):
    """The number of a child process that does some work."""
    child = os.fork()
    if child:
        return child
    try:
        work(*arguments)
    finally:
        os._exit(0)


def records(journal):
    """How many whole lines a journal has after the first."""
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def calls(path):
    """The processes that scored, one entry a call."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_alive(process):
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def kill(folder, n_jobs, target, delay):
    """Kill a search once its journal has so many records; how many of its workers survive."""
    journal, path = folder / "journal", Path(os.environ["CALLS"])
    path.unlink(missing_ok=True)
    child = fork(search, n_jobs, journal)
    is_over = False
    while not is_over and (records(journal) < target or len(set(calls(path))) < n_jobs):
        time.sleep(0.001)
        is_over = os.waitpid(child, os.WNOHANG)[0] != 0
    time.sleep(delay)
    if not is_over:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    workers, deadline = set(calls(path)), time.monotonic() + 30.0
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sum(map(is_alive, workers))


def main(folder, n_jobs, kills, seed):
    """Kill one search again and again, and then let it end."""
    rng = np.random.default_rng(seed)
    path = Path(os.environ["CALLS"])
    expected = search(1)  # no worker may exist before a fork
    of_all = len(calls(path))
    targets = np.sort(rng.integers(1, len(GRID["gamma"]), kills))
    survivors = [kill(folder, n_jobs, k, rng.uniform(0.0, 0.02)) for k in targets]
    written = records(folder / "journal")
    path.unlink(missing_ok=True)
    found = search(n_jobs, folder / "journal")
    return {
        "expected": expected,
        "found": found,
        "calls": of_all,
        "written": written,
        "calls_after": len(calls(path)),
        "survivors": survivors,
        "files": sorted(item.name for item in folder.iterdir()),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
