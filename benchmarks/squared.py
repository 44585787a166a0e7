"""Exact cross-validation for squared loss against what it replaces, as ratios in one run.

Run with ``make bench`` or ``python benchmarks/squared.py [--threads 2] [--quick]``. Every figure is
the median of several repetitions; both sides of a ratio run alternately in the same process with
the same number of BLAS threads.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.linalg
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, RepeatedKFold
from threadpoolctl import threadpool_limits

from everyfold.crossval import ClosedFormCV, Folds
from everyfold.engine.planning.squared_loss import plan_exact
from everyfold.kernels import RBF
from everyfold.linalg.blas import blas_threads
from everyfold.losses import Squared
from everyfold.operators import Dense
from everyfold.solvers import Problem

GAMMA = 0.5
RIDGES = np.logspace(-4, 2, 16)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(repeats: int, *works: Callable[[], object]) -> list[float]:
    """Median seconds of each piece of work, run in turns so that noise hits all alike."""
    works[0]()  # compile and load before anything is timed
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [float(np.median(column)) for column in zip(*times, strict=True)]


def search(X: np.ndarray, y: np.ndarray, folds: Folds, ridges: np.ndarray) -> np.ndarray:
    """Mean squared errors (ridges, folds) of one kernel, kernel and scoring included."""
    with blas_threads(len(X)):
        operator = Dense().bind(RBF(GAMMA), X)
        problem = Problem(y[:, None], np.ones(len(y)), Squared(), intercept=False)
        plan = plan_exact(problem, operator, len(ridges), folds)
        results = plan.criterion.evaluate(problem, operator, list(ridges), folds)
        truth = y[np.concatenate(folds.tests)]
        sums = [np.add.reduceat((r.values[:, 0] - truth) ** 2, folds.bounds[:-1]) for r in results]
        return np.array(sums) / np.diff(folds.bounds)


def grid_search(X: np.ndarray, y: np.ndarray, cv: KFold, ridges: np.ndarray) -> np.ndarray:
    model = GridSearchCV(
        KernelRidge(kernel="rbf", gamma=GAMMA),
        {"alpha": ridges},
        cv=cv,
        scoring="neg_mean_squared_error",
        refit=False,
    ).fit(X, y)
    keys = [f"split{k}_test_score" for k in range(cv.get_n_splits())]
    return -np.column_stack([model.cv_results_[key] for key in keys])


def report(name: str, ratio: float, bound: str, met: bool, detail: str) -> None:
    print(f"{name:<58} {ratio:8.2f}   {bound:<9} {'met' if met else 'MISSED':<7} {detail}")


def leave_one_out(n: int, repeats: int) -> None:
    X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
    K = RBF(GAMMA)(X)
    folds = Folds.leave_one_out(n)
    ridges = np.logspace(-4, 2, 20)
    ours, eigh = alternate(
        repeats, lambda: search(X, y, folds, ridges), lambda: scipy.linalg.eigh(K)
    )
    name = f"LOO of 20 ridges, n = {n}, over one scipy.linalg.eigh"
    report(name, ours / eigh, "<= 2", ours <= 2 * eigh, f"{ours:.2f} s / {eigh:.2f} s")


def against_grid_search(n: int, repeats: int) -> None:
    X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
    for t, bound in ((5, 4.0), (10, 8.0), (20, 15.0)):
        cv = KFold(t, shuffle=True, random_state=0)
        folds = Folds.from_splits(cv.split(X), n)
        ours_mse, theirs_mse = search(X, y, folds, RIDGES), grid_search(X, y, cv, RIDGES)
        gap = np.abs(ours_mse / theirs_mse - 1.0).max()
        ours, theirs = alternate(
            repeats, partial(search, X, y, folds, RIDGES), partial(grid_search, X, y, cv, RIDGES)
        )
        name = f"GridSearchCV(KernelRidge) over {t}-fold, 16 ridges, n = {n}"
        detail = f"{theirs:.2f} s / {ours:.2f} s, scores differ by {gap:.0e}"
        met = theirs >= bound * ours and gap < 1e-7
        report(name, theirs / ours, f">= {bound:.0f}", met, detail)


def repetitions(n: int, repeats: int) -> None:
    X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
    once = Folds.from_splits(KFold(10, shuffle=True, random_state=0).split(X), n)
    cv = RepeatedKFold(n_splits=10, n_repeats=100, random_state=0)
    often = Folds.from_splits(cv.split(X), n)
    search(X, y, often, RIDGES[:1])
    single, repeated = alternate(
        repeats, lambda: search(X, y, once, RIDGES), lambda: search(X, y, often, RIDGES)
    )
    name = f"100 x 10-fold over 10-fold, 16 ridges, n = {n}"
    met = repeated <= 3 * single
    report(name, repeated / single, "<= 3", met, f"{repeated:.2f} s / {single:.2f} s")


def small(repeats: int) -> None:
    n = 200
    X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
    folds = Folds.from_splits(KFold(10, shuffle=True, random_state=0).split(X), n)
    model = KernelRidge(kernel="rbf", gamma=GAMMA)
    ridge = np.array([0.1])
    ours, fit = alternate(50 * repeats, lambda: search(X, y, folds, ridge), lambda: model.fit(X, y))
    name = "one candidate, 10-fold, n = 200, over KernelRidge.fit"
    report(name, ours / fit, "<= 1", ours <= fit, f"{1e3 * ours:.2f} ms / {1e3 * fit:.2f} ms")


def check_against_naive_refits() -> None:
    """What is timed is right: 10-fold errors equal a loop of KernelRidge fits."""
    X, y = make_friedman1(300, n_features=10, noise=1.0, random_state=0)
    folds = Folds.from_splits(KFold(10).split(X), 300)
    ours = search(X, y, folds, np.array([0.1]))[0]
    for fold, value in zip(folds, ours, strict=True):
        model = KernelRidge(kernel="rbf", gamma=GAMMA, alpha=0.1).fit(X[fold.train], y[fold.train])
        np.testing.assert_allclose(
            value, mean_squared_error(y[fold.test], model.predict(X[fold.test])), rtol=1e-8
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="BLAS threads of both sides")
    parser.add_argument("--quick", action="store_true", help="n = 600, one repetition")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=["loo", "grid", "repeated", "small"])
    options = parser.parse_args()
    n, repeats = (600, 1) if options.quick else (2000, options.repeats)
    print(
        f"everyfold, squared loss; {platform.machine()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}, BLAS threads {options.threads}, "
        f"median of {repeats}"
    )
    check_against_naive_refits()
    assert ClosedFormCV().order == np.inf
    parts = {
        "loo": leave_one_out,
        "grid": against_grid_search,
        "repeated": repetitions,
        "small": lambda _, repeats: small(repeats),
    }
    with threadpool_limits(options.threads):
        for name in options.parts:
            parts[name](n, repeats)


if __name__ == "__main__":
    main()
