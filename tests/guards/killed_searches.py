"""Searches that are killed at random moments, and go on.

Called as ``python -m tests.guards.killed_searches 50``.

Every search has a journal. It is a fork of this process, so that packages are imported once;
workers of joblib's are processes of their own. A kill (SIGKILL) comes when the journal has a random
number of records, and a random moment later. Then the same search is called again, and what it
evaluates and finds is compared with what is due. Prints a line of JSON for every kill.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, mean_squared_error

from everyfold import FastGridSearchCV

GRID = {"alpha": [0.1, 1.0], "gamma": [0.05 * 1.5**k for k in range(10)]}
UNITS, FOLDS = len(GRID["gamma"]), 5
PATIENCE = 120.0
"""Seconds that processes have to end with their parent."""


def slow_error(folder, y, predicted):
    """A score that takes a moment, and leaves a line in a file."""
    with open(f"{folder}/calls", "a") as calls:
        calls.write(f"{os.getpid()}\n")
    time.sleep(0.003)
    return -mean_squared_error(y, predicted)


def search(folder, n_jobs, journal=None):
    """Ten kernels of two ridges on five folds each; every score as text with all its bits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    made = FastGridSearchCV(
        KernelRidge(kernel="rbf"),
        GRID,
        cv=FOLDS,
        scoring=make_scorer(partial(slow_error, str(folder))),
        n_jobs=n_jobs,
        checkpoint=journal,
    ).fit(X, y)
    columns = sorted(name for name in made.cv_results_ if "_test_" in name)
    found = {name: [float(x).hex() for x in made.cv_results_[name]] for name in columns}
    (folder / "found").write_text(json.dumps(found))


def fork(work, *arguments):
    """The number of a child process that does some work."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def records(journal):
    """How many whole lines a journal has after the first."""
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def calls(folder):
    """How many scores were made; none are counted twice."""
    path = folder / "calls"
    found = len(path.read_text().split()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return found


def descendants(process):
    """The processes that a process has started, and theirs."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(word) for word in path.read_text().split()]
        except OSError:
            continue
        found += children + [n for child in children for n in descendants(child)]
    return found


def is_alive(process):
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def kill(folder, n_jobs, target, delay):
    """Kill a search once its journal has so many records; how many of its processes survive."""
    child = fork(search, folder, n_jobs, folder / "journal")
    is_over = False
    while not is_over and records(folder / "journal") < target:
        time.sleep(0.001)
        is_over = os.waitpid(child, os.WNOHANG)[0] != 0
    time.sleep(delay)
    workers = descendants(child)
    if not is_over:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    latest = time.monotonic() + PATIENCE
    while any(map(is_alive, workers)) and time.monotonic() < latest:
        time.sleep(0.01)
    return len(workers), [n for n in workers if is_alive(n)]


def study(folder, n_jobs, rng, expected):
    """Kill a search, call it again, and say what became of it."""
    target, delay = int(rng.integers(UNITS)), rng.uniform(0.0, 0.03)
    started, survivors = kill(folder, n_jobs[0], target, delay)
    calls(folder)
    written = records(folder / "journal")
    child = fork(search, folder, n_jobs[1], folder / "journal")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    per_unit = FOLDS * len(GRID["alpha"])
    files = {item.name for item in folder.iterdir()} - {"calls", "found"}
    return {
        "n_jobs": n_jobs,
        "written": written,
        "processes": started,
        "survivors": survivors,
        "code": code,
        "is_same": code == 0 and json.loads((folder / "found").read_text()) == expected,
        "repeated": calls(folder) / per_unit - (UNITS - written),
        "files": sorted(files),
    }


def is_good(told):
    """Whether nothing was lost, repeated or left behind."""
    clean = not told["survivors"] and told["files"] == ["journal"] and told["code"] == 0
    return told["is_same"] and told["repeated"] == 0 and clean


def main(kills, n_jobs, seed):
    """So many kills; with two workers every fifth search has two when it is called again, too."""
    rng, bad = np.random.default_rng(seed), 0
    with tempfile.TemporaryDirectory() as place:
        (first := Path(place) / "first").mkdir()
        os.waitpid(fork(search, first, 1), 0)
        expected = json.loads((first / "found").read_text())
        for k in range(kills):
            (folder := Path(place) / str(k)).mkdir()
            told = study(folder, (n_jobs, n_jobs if k % 5 == 0 else 1), rng, expected)
            bad += not is_good(told)
            print(json.dumps(told), flush=True)
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.exit(bool(main(options.kills, options.n_jobs, options.seed)))
