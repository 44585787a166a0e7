"""What a search that begins at low rank loses: its winner against the best of the exact table.

Every set is searched twice, 16 × 16 candidates of ``KernelRidge`` and five folds: on the full
matrices (``operator="dense"``), and by the ladder that ``operator="auto"`` climbs.
The regret is the difference of the winner's exact score from the best one, as a share of the error
of the best (1 - R²). Sets that need ``../shared/data`` beside the project are left out where it is
missing.

Run with ``python benchmarks/regret.py [--rows 1000 1500] [--only digits]``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_digits,
    load_svmlight_file,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import everyfold.evaluate.ladder as ladder
from everyfold import FastGridSearchCV

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
GRID = {"alpha": np.logspace(-4, 2, 16), "gamma": np.logspace(-3, 1, 16)}
FOLDS = KFold(5, shuffle=True, random_state=0)
MOST = 3000
Rows = tuple[np.ndarray, np.ndarray]


def generated() -> Iterator[tuple[str, Rows]]:
    """Friedman's functions with and without noise, waves, steps, a line, nothing at all."""
    random = np.random.default_rng(0)
    for make, noise in ((make_friedman1, 1.0), (make_friedman2, 50.0), (make_friedman3, 0.3)):
        for level in (0.0, noise):
            yield f"{make.__name__[5:]}, noise {level}", make(MOST, noise=level, random_state=7)
    for d, frequency in ((1, 40.0), (2, 8.0), (3, 4.0), (5, 2.0)):
        X = random.uniform(size=(MOST, d))
        y = np.sin(frequency * X.sum(axis=1)) + 0.3 * random.normal(size=MOST)
        yield f"waves in {d} dimensions", (X, y)
    X = random.uniform(size=(MOST, 3))
    steps = np.floor(4.0 * X[:, 0]) + (X[:, 1] > 0.5)
    yield "steps", (X, steps + 0.1 * random.normal(size=MOST))
    X = random.normal(size=(MOST, 20))
    yield "a line", (X, X[:, 0] + 0.5 * random.normal(size=MOST))
    yield "noise", (random.normal(size=(MOST, 8)), random.normal(size=MOST))


def real() -> Iterator[tuple[str, Rows]]:
    """Digits, and what the folder of shared data has."""
    yield "digits", load_digits(return_X_y=True)
    for name in ("mg", "space_ga", "abalone", "cpusmall", "a2a", "german.numer"):
        path = DATA / f"{name}.svm.gz"
        if path.exists():
            X, y = load_svmlight_file(str(path))
            yield name, (X.toarray(), y)


def some(rows: Rows, count: int) -> Rows:
    """At most so many rows, standardised."""
    X, y = rows
    chosen = np.random.default_rng(1).permutation(len(y))[:count]
    X, y = StandardScaler().fit_transform(X[chosen]), y[chosen].astype(np.float64)
    return X, (y - y.mean()) / y.std()


def measure(X: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float, int]:
    """The best exact score, the regret in percent, both times, exact evaluations of the ladder."""
    model, how = KernelRidge(kernel="rbf"), {"cv": FOLDS, "refit": False}
    start = time.perf_counter()
    dense = FastGridSearchCV(model, GRID, operator="dense", **how).fit(X, y)
    between = time.perf_counter()
    climbed = FastGridSearchCV(model, GRID, **how).fit(X, y)
    end = time.perf_counter()
    scores = dense.cv_results_["mean_test_score"]
    best, found = scores.max(), scores[climbed.best_index_]
    n_exact = int((climbed.cv_results_["status"] == "exact").sum())
    regret = 100.0 * (best - found) / (1.0 - best)
    return float(best), float(regret), between - start, end - between, n_exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 1500])
    parser.add_argument("--only", nargs="+")
    parser.add_argument(
        "--threads", type=int, default=int(os.environ.get("OPENBLAS_NUM_THREADS", "1"))
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    ladder.COSTLY_SECONDS = 0.0  # climb even where full matrices would be quick
    print(f"regret of the ladder in % of the best error; BLAS threads {args.threads}")
    print(
        f"{'':26} {'rows':>5} {'best':>8} {'regret':>8} {'dense s':>8} {'ladder s':>9} {'exact':>6}"
    )
    regrets: dict[int, list[float]] = {count: [] for count in args.rows}
    with threadpool_limits(args.threads):
        for name, rows in (*generated(), *real()):
            if args.only and name not in args.only:
                continue
            for count in args.rows:
                if len(rows[1]) < count:
                    continue
                best, regret, slow, fast, n_exact = measure(*some(rows, count))
                regrets[count].append(regret)
                line = f"{name:26} {count:5d} {best:8.4f} {regret:8.3f} {slow:8.2f} {fast:9.2f}"
                print(f"{line} {n_exact:6d}", flush=True)
    for count, found in regrets.items():
        if found:
            share = np.mean(np.array(found) < 5e-4)
            print(
                f"{count} rows, {len(found)} sets: mean {np.mean(found):.3f} %, largest "
                f"{np.max(found):.3f} %, the best candidate itself on {100 * share:.0f} % of them"
            )


if __name__ == "__main__":
    main()
