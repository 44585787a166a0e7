"""Measure the constants of the cost model in ``everyfold.engine.planning.costs`` on this machine.

Choices of the planner need only their ratios, estimates the constants themselves. Run it on a quiet
machine, compare with what is in use, and paste the last lines into ``CostModel``;
``benchmarks/plans.py`` says whether whole estimates got better.

Run with ``python benchmarks/constants.py [--rows 2000] [--threads 2] [--cpu]``. ``--cpu`` takes the
time of the processor, for a machine that is busy with other things (with ``--threads 1``).
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from dataclasses import fields

import numpy as np
from scipy.linalg import blas, lapack
from scipy.optimize import nnls
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.engine.planning.costs import COSTS, CostModel
from everyfold.folds import Folds
from everyfold.kernels import RBF
from everyfold.linalg.ridge_systems import Cholesky, Eigen, Tridiagonal
from everyfold.losses import Squared
from everyfold.operators import DenseMatrix
from everyfold.solvers import Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import svm_paths

SMALL = 40
"""Rows of the searches that fixed costs are read from."""


CLOCK = [time.perf_counter]


def median_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    clock, times = CLOCK[-1], []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return float(np.median(times))


def algebra(n: int, m: int) -> dict[str, float]:
    """Dense linear algebra on n rows, with folds of m."""
    X = np.random.default_rng(0).normal(size=(n, 10))
    K = RBF(0.1)(X)
    L = np.asfortranarray(np.linalg.cholesky(K + np.eye(n)))
    U = Eigen.of(K).U
    rows = np.sort(np.random.default_rng(1).permutation(n)[:m])
    block = np.asfortranarray(K[np.ix_(rows, rows)] + np.eye(m))
    right = np.asfortranarray(np.ones((m, 1)))
    wide = U[rows]
    vector = np.ones((n, 1), order="F")
    return {
        "cube_eigen": median_seconds(lambda: Eigen.of(K)) / n**3,
        "cube_tridiagonal": median_seconds(lambda: Tridiagonal.of(K)) / n**3,
        "cube_cholesky": median_seconds(lambda: Cholesky(K).at(1.0)) / n**3,
        "cube_inverse": median_seconds(lambda: lapack.dtrtri(L, lower=1)) / n**3,
        "cube_gram": median_seconds(lambda: blas.dsyrk(1.0, U.T)) / n**3,
        "block_gram": median_seconds(lambda: blas.dsyrk(1.0, wide.T, trans=1)) / (m * m * n),
        "block_cholesky": median_seconds(lambda: lapack.dposv(block, right, lower=1)) / m**3,
        "gather": median_seconds(lambda: K[np.ix_(rows, rows)]) / m**2,
        "stream": median_seconds(lambda: blas.dgemm(1.0, U.T, vector)) / n**2,
        "call": small_calls(),
    }


def small_calls() -> float:
    """A call for a fold of two rows, as folds are worked out: a block takes three of them."""
    X = np.random.default_rng(0).normal(size=(SMALL, 3))
    problem = Problem(X[:, :1], np.ones(SMALL), Squared(), intercept=True)
    folds = Folds.from_splits(KFold(SMALL // 2).split(X), SMALL)
    ridges, K = np.logspace(-2, 2, 20).tolist(), DenseMatrix(RBF(0.1)(X))
    method = ClosedFormCV(route="eigen")
    seconds = median_seconds(lambda: list(method.evaluate(problem, K, ridges, folds)))
    return seconds / (3 * len(folds) * len(ridges))


def kernels(n: int) -> dict[str, float]:
    """Entries of a kernel matrix and pair steps on it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = np.where(np.sin(X[:, 0]) + X[:, 1] + rng.normal(size=n) > 0.0, 1.0, -1.0)
    kernel = RBF(0.1)
    base = kernel.base_matrix(X, None)
    K = kernel.from_base(base)
    kernel32, Cs, weights = Kernel32(K), np.array([0.1, 1.0, 10.0]), np.ones(n)

    def paths() -> int:
        return int(svm_paths(kernel32, y, Cs, weights, tol=1e-3).iterations.sum())

    steps = paths()  # compiles, too
    return {
        "entry": median_seconds(lambda: kernel.from_base(base)) / n**2,
        "entry32": median_seconds(lambda: Kernel32(K)) / n**2,
        "pair": median_seconds(paths) / (steps * n),
    }


def fixed() -> dict[str, float]:
    """What searches of a few rows take beside their algebra: a kernel, a candidate, a score."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(SMALL, 3)), rng.normal(size=SMALL)
    sizes, seconds = [], []
    for k, c, f in itertools.product((1, 20), (1, 20), (2, 20)):
        grid = {"gamma": np.logspace(-2, 0, k), "alpha": np.logspace(-1, 1, c)}
        search = FastGridSearchCV(
            KernelRidge(kernel="rbf"), grid, cv=f, refit=False, scoring="neg_mean_squared_error"
        )
        taken = median_seconds(lambda search=search: search.fit(X, y))
        known = k * COSTS.kernel + k * c * (COSTS.candidate + f * COSTS.score)
        sizes.append([1.0, k, k * c, k * c * f])
        seconds.append(max(0.0, taken - (search.plan_.estimate - known)))
    scales = 1.0 / np.array(seconds).clip(1e-3)  # relative errors count
    found, _ = nnls(np.array(sizes) * scales[:, None], np.array(seconds) * scales)
    return dict(zip(("kernel", "candidate", "score"), found[1:].tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--cpu", action="store_true", help="time of the processor")
    options = parser.parse_args()
    if options.cpu:
        CLOCK.append(time.process_time)
    with threadpool_limits(options.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # grids whose best value is their last
        measured = algebra(options.rows, options.rows // 10) | kernels(options.rows)
        for name, value in measured.items():  # what is not algebra is what it leaves
            object.__setattr__(COSTS, name, value)
        measured |= fixed()
    assert set(measured) == {field.name for field in fields(CostModel)}
    print(f"n = {options.rows}, BLAS threads {options.threads}, median of 5")
    for name, value in measured.items():
        used = getattr(CostModel(), name)
        print(f"{name:<18} {value:9.2e}   in use {used:9.2e}   ratio {value / used:6.2f}")
    print("\n@dataclass(frozen=True)\nclass CostModel:")
    for field in fields(CostModel):
        print(f"    {field.name}: float = {measured[field.name]:.2g}")


if __name__ == "__main__":
    main()
