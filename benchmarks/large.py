"""Hundreds of thousands of rows and landmarks: searches in passes beside bare work and refits.

``python benchmarks/large.py [--rows squared logistic parquet dask million abalone] [--write]`` runs
each row in a process of its own, with one BLAS thread, and prints processor seconds (of all
processes that belong to it), the peak of resident memory, and ratios within the row. ``million``
takes about a minute of processor time; the others less.

* ``squared``: 10 folds x 16 ridges of squared loss, winner refitted, beside the kernel between all
  rows and the landmarks and one Gram matrix of it.
* ``logistic``: 10 folds x 16 C of the logistic loss, winner refitted, beside Nystroem once and 160
  fits of LogisticRegression, of which four (one fold, four C of the grid) are timed and scaled, at
  the default tolerance and at 1e-6.
* ``parquet``, ``dask``: the same search from files in a process limited to 1 GB of data, and on two
  workers, beside the rows in memory.
* ``million``: a million rows and 500 landmarks.
* ``abalone``: KernelRidge with the full kernel of 3132 rows, 6 x 6 candidates, 5 folds, winner
  refitted, beside GridSearchCV, of which four cells are timed and scaled; it needs
  ``../shared/data`` beside the project.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn
from scipy.linalg import blas
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from everyfold import FastGridSearchCV, KernelLogisticClassifier, KernelRegressor, Nystrom
from everyfold.kernels import RBF
from everyfold.streams import ArrayRows, DaskRows, FolderRows, as_source
from peers.problems import PROBLEMS

RESULTS = Path(__file__).resolve().parent / "results" / "large.txt"
ROWS = ("squared", "logistic", "parquet", "dask", "million", "abalone")
GAMMA, FOLDS = 0.02, 10
C = np.logspace(-2, 4, 16)
TIMED = (0, 5, 10, 15)


def spent() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    own, others = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    start = spent()
    found = work()
    return spent() - start, found


def peak() -> float:
    """Gigabytes of resident memory, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    value = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 - 1.0 + 0.5 * X[:, 2] * X[:, 3]
    return X, value + 0.5 * rng.normal(size=n)


def labelled(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, value = rows(n)
    return X, np.where(value > 0.0, 1, 0)


def logistic(landmarks: int) -> FastGridSearchCV:
    operator = Nystrom(landmarks, sampling="uniform", random_state=0)
    model = KernelLogisticClassifier(gamma=GAMMA, operator=operator)
    return FastGridSearchCV(model, {"C": C}, cv=FOLDS, scoring="accuracy")


def said(search: FastGridSearchCV) -> str:
    """How a search was done, in its own words."""
    (words, _), *_ = search.plan_.methods
    return f"best C {search.best_params_['C']:.3g}, accuracy {search.best_score_:.5f}; {words}"


def squared() -> None:
    n, landmarks = 300_000, 500
    X, y = rows(n)
    operator = Nystrom(landmarks, sampling="uniform", random_state=0)
    model = KernelRegressor(gamma=GAMMA, operator=operator)
    grid = {"alpha": np.logspace(-3, 3, 16)}
    search = FastGridSearchCV(model, grid, cv=FOLDS, scoring="neg_mean_squared_error")

    def bare() -> None:
        kernel, centres = RBF(GAMMA), X[np.random.RandomState(0).permutation(n)[:landmarks]]
        total = np.zeros((landmarks, landmarks), order="F")
        for i in range(0, n, 8000):
            block = kernel(X[i : i + 8000], centres)
            total = blas.dsyrk(1.0, block.T, beta=1.0, c=total, lower=1, overwrite_c=1)

    found = []
    for _ in range(3):
        least, _ = seconds(bare)
        blocks, _ = seconds(lambda: search.fit(ArrayRows(X, y)))
        array, _ = seconds(lambda: search.fit(X, y))
        found.append((least, blocks, array, blocks / least, array / least))
    least, blocks, array, ratio, of_array = np.median(found, axis=0)
    print(
        f"squared: {n} x 20 rows, {landmarks} landmarks, {FOLDS} folds x 16 ridges, refit included:"
        f" {blocks:.1f} s as a source, {array:.1f} s as an array; kernel and syrk alone "
        f"{least:.1f} s; ratios {ratio:.2f} and {of_array:.2f}; peak {peak():.2f} GB"
    )


def logistic_row() -> None:
    n, landmarks = 200_000, 300
    X, y = labelled(n)
    ours, search = seconds(lambda: logistic(landmarks).fit(ArrayRows(X, y)))
    memory = peak()
    print(
        f"logistic: {n} x 20 rows, {landmarks} landmarks, {FOLDS} folds x 16 C, refit included: "
        f"{ours:.1f} s; {said(search)}; peak {memory:.2f} GB",
        flush=True,
    )
    features = Nystroem(gamma=GAMMA, n_components=landmarks, random_state=0)
    made, V = seconds(lambda: features.fit_transform(X))
    train = slice(n // FOLDS, None)
    for tol in (1e-4, 1e-6):
        times = []
        for k in TIMED:
            model = LogisticRegression(C=C[k], max_iter=10_000, tol=tol)
            times.append(seconds(lambda own=model: own.fit(V[train], y[train]))[0])
        theirs = made + FOLDS * len(C) * float(np.mean(times))
        words = ", ".join(f"{own:.1f}" for own in times)
        print(
            f"  Nystroem once ({made:.1f} s) and 160 fits at tol={tol:g}, of which {len(TIMED)} "
            f"were timed ({words} s): {theirs:.0f} s; ratio {theirs / ours:.0f}",
            flush=True,
        )


def files(folder: str, n: int) -> None:
    """Write the rows, in a process of its own: memory is limited where they are read."""
    command = [sys.executable, __file__, "--files", folder, str(n)]
    subprocess.run(command, check=True)


def _write(folder: Path, n: int) -> None:
    X, y = labelled(n)
    for k, part in enumerate(np.array_split(np.arange(n), 16)):
        frame = pd.DataFrame(X[part], columns=[f"x{j}" for j in range(X.shape[1])])
        frame.assign(label=y[part]).to_parquet(folder / f"part.{k}.parquet", row_group_size=4096)


def _beside(name: str, n: int, ours: float, search: FastGridSearchCV, memory: float) -> None:
    """The same rows in memory, in this process, after what is measured."""
    X, y = labelled(n)
    held, other = seconds(lambda: logistic(300).fit(ArrayRows(X, y)))
    keys = [f"split{i}_test_score" for i in range(FOLDS)]
    largest = max(np.abs(search.cv_results_[k] - other.cv_results_[k]).max() for k in keys)
    print(
        f"{name}: {n} x 20 rows, 300 landmarks, {FOLDS} folds x 16 C, refit included: {ours:.1f} "
        f"s, in memory {held:.1f} s; ratio {ours / held:.2f}; scores differ by {largest:.1g}; peak "
        f"{memory:.2f} GB; {said(search)}"
    )


def parquet() -> None:
    n = 200_000
    with tempfile.TemporaryDirectory() as name:
        files(name, n)
        before = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (1_000_000_000, before[1]))
        source = as_source(name, target="label")
        ours, search = seconds(lambda: logistic(300).fit(source))
        resource.setrlimit(resource.RLIMIT_DATA, before)
    _beside("parquet, 1 GB of data at most", n, ours, search, peak())


def dask() -> None:
    from dask.distributed import Client

    n = 200_000
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as scratch:
        files(name, n)
        start, clock = spent(), time.perf_counter()
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with Client(**options, local_directory=scratch):
            begun = time.perf_counter() - clock
            source = DaskRows(FolderRows(name, target="label"))
            search = logistic(300).fit(source)
        # Workers are counted once they have ended; starting them is part of that.
        ours = spent() - start
    _beside(f"dask, two workers (started in {begun:.0f} s)", n, ours, search, peak())


def million() -> None:
    n = 1_000_000
    X, y = labelled(n)
    before = peak()
    ours, search = seconds(lambda: logistic(500).fit(ArrayRows(X, y)))
    print(
        f"million: {n} x 20 rows, 500 landmarks, {FOLDS} folds x 16 C, refit included: {ours:.0f} "
        f"s; peak {peak():.2f} GB, of which {before:.2f} before the search; {said(search)}"
    )


def abalone() -> None:
    problem = PROBLEMS["abalone"]
    X, y, _, _, folds = problem.rows()
    grid, options = problem.grid(), {"cv": folds, "scoring": problem.scoring}
    search = FastGridSearchCV(problem.estimator(), grid, **options)
    ours = np.median([seconds(lambda: search.fit(X, y))[0] for _ in range(3)])
    some = {"alpha": grid["alpha"][[1, 3]], "gamma": grid["gamma"][[2, 4]]}
    other = GridSearchCV(problem.estimator(), some, refit=False, **options)
    theirs = 9.0 * seconds(lambda: other.fit(X, y))[0]
    best = search.best_index_
    print(
        f"abalone: {len(y)} rows, 6 x 6 candidates of KernelRidge, 5 folds, refit included: "
        f"{ours:.1f} s; GridSearchCV {theirs:.0f} s (4 of 36 cells, no refit); ratio "
        f"{theirs / ours:.0f}; the winner is {search.cv_results_['status'][best]}"
    )


WORK = {
    "squared": squared,
    "logistic": logistic_row,
    "parquet": parquet,
    "dask": dask,
    "million": million,
    "abalone": abalone,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=ROWS, choices=ROWS)
    parser.add_argument("--write", action="store_true", help="add what is printed to the results")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.files:
        _write(Path(asked.files[0]), int(asked.files[1]))
        return
    if asked.alone:
        WORK[asked.rows[0]]()
        return
    for name in asked.rows:
        command = [sys.executable, __file__, "--alone", "--rows", name]
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=alone)
        print(done.stdout, end="", flush=True)
        if asked.write:
            old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
            where = (
                f"{platform.machine()}, {os.cpu_count()} processors, one BLAS thread, Python "
                f"{platform.python_version()}, NumPy {np.__version__}, scikit-learn "
                f"{sklearn.__version__}"
            )
            RESULTS.write_text(f"{old}# {where}\n{done.stdout}", encoding="utf-8")


if __name__ == "__main__":
    main()
