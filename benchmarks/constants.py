"""Measure the constants of the cost model in ``everyfold.evaluate.costs`` on this machine.

The planner needs only their ratios. Run it, compare with ``CostModel``, and change that class if a
ratio moved by more than a factor of two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits

from everyfold.evaluate.costs import CostModel
from everyfold.kernels import RBF
from everyfold.operators.systems import Cholesky, Eigen, Tridiagonal


def median_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(n: int, m: int) -> dict[str, float]:
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
        "call": median_seconds(lambda: lapack.dposv(block[:2, :2], right[:2], lower=1)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    with threadpool_limits(options.threads):
        measured = measure(options.rows, options.rows // 10)
    print(f"n = {options.rows}, BLAS threads {options.threads}, median of 5")
    for name, value in measured.items():
        print(f"{name:<18} {value:9.2e}   in use {getattr(CostModel(), name):9.2e}")


if __name__ == "__main__":
    main()
