"""SVC where the kernel matrix is large: a9a, 3 gammas × 4 Cs, 5 folds, one thread.

``python benchmarks/large_svc.py [--rows 20000] [--jobs 1]``. Data are read from ``../shared/data``
beside the project. 20,000 rows have a kernel of 1.6 GB in float32 beside the distances and the
kernel in float64, 8 GB in all. GridSearchCV is timed on a sub-grid, the middle gamma with the first
and the third C, and its time scaled to all twelve candidates. Prints the plan with its estimates
before anything is computed, progress, the memory that the search took beside what was planned, and
the ratio. ``--rows 6000`` takes half a minute.

Beyond the memory there is, the plan says how to go on with a kernel of low rank, as it does with
``--rows 32561`` on a small machine.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
GRID = {"gamma": [0.003, 0.01, 0.03], "C": [0.1, 1.0, 10.0, 100.0]}
SUB_GRID = {"gamma": GRID["gamma"][1:2], "C": GRID["C"][::2]}


def load(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_svmlight_file(str(DATA / "a9a.svm.gz"), n_features=123)
    pick = np.random.default_rng(0).permutation(len(y))[:rows]
    return X[pick].toarray(), y[pick]


def timed(search: Any, X: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    search.fit(X, y)
    return time.perf_counter() - start


def peak() -> float:
    """The most memory this process had so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def compare(fast: Any, slow: Any) -> float:
    """The largest difference of mean scores on the sub-grid."""
    found = {tuple(sorted(p.items())): k for k, p in enumerate(fast.cv_results_["params"])}
    where = [found[tuple(sorted(p.items()))] for p in slow.cv_results_["params"]]
    scores = fast.cv_results_["mean_test_score"][where]
    return float(np.abs(scores - slow.cv_results_["mean_test_score"]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--jobs", type=int, default=1, help="n_jobs of both searches")
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"needs the data sets of {DATA.name} beside the project; not found")
    X, y = load(options.rows)
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    fast = FastGridSearchCV(SVC(), GRID, cv=cv, refit=False, n_jobs=options.jobs, verbose=1)
    slow = GridSearchCV(SVC(), SUB_GRID, cv=cv, refit=False, n_jobs=options.jobs)
    print(f"scikit-learn {sklearn.__version__}, {platform.machine()}, n_jobs {options.jobs}")
    try:
        plan = fast.plan(X, y)
    except MemoryError as error:
        raise SystemExit(str(error)) from error
    print(plan, flush=True)
    with threadpool_limits(1):
        FastGridSearchCV(SVC(), {"C": [1.0]}, cv=cv, refit=False).fit(X[:500], y[:500])  # compiles
        before = peak()
        ours = timed(fast, X, y)
        taken, planned = peak() - before, plan.memory / 1e9
        print(f"everyfold     {ours:.1f} s, {taken:.2f} GB at its peak ({planned:.2f} GB planned)")
        theirs = timed(slow, X, y)
    n_cells, n_timed = (np.prod([len(v) for v in grid.values()]) for grid in (GRID, SUB_GRID))
    scaled = theirs * n_cells / n_timed
    print(f"GridSearchCV  {theirs:.0f} s for {n_timed} of {n_cells} candidates, {scaled:.0f} s all")
    print(f"ratio         {scaled / ours:.1f}, scores differ by at most {compare(fast, slow):.1e}")


if __name__ == "__main__":
    main()
