"""Folds of a Gaussian process with fixed hyper-parameters, beside fits and refits of scikit-learn.

For leave-one-out and ten folds: the time of ``cross_val_predict(..., return_std=True)``, as a ratio
to one factorisation (kernel and Cholesky factors of all rows), to one fit of
``GaussianProcessRegressor(optimizer=None)``, and of refits of all folds to it (of leave-one-out ten
are timed), with the largest difference of the standard deviations. Medians of seven, processor
time.

Run with ``python benchmarks/gaussian_process.py [rows]``, with one BLAS thread; 2000 rows by
default.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import cholesky
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, LeaveOneOut
from threadpoolctl import threadpool_limits

from everyfold import cross_val_predict


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """The median processor time of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return float(np.median(times))


def compare(n: int) -> None:
    """Both kinds of folds."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 5))
    y = np.sin(X[:, 0]) + 0.1 * random.normal(size=n)
    kernel = ConstantKernel(2.0) * RBF([1.0, 2.0, 3.0, 4.0, 5.0]) + WhiteKernel(0.01)
    model = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None, normalize_y=True)

    def factorise() -> np.ndarray:
        K = kernel(X)
        K.flat[:: n + 1] += 0.01
        return cholesky(K, lower=True, check_finite=False, overwrite_a=True)

    once, fit = seconds(factorise), seconds(lambda: model.fit(X, y))
    print(f"{n} rows: kernel and Cholesky factors {once:.2f} s, a fit {fit:.2f} s")
    for name, cv in (("leave-one-out", LeaveOneOut()), ("10 folds", KFold(10))):
        splits = list(cv.split(X))
        own = seconds(lambda cv=cv: cross_val_predict(model, X, y, cv=cv, return_std=True))
        _, std = cross_val_predict(model, X, y, cv=splits, return_std=True)
        begin, gap = time.process_time(), 0.0
        for train, test in splits[:10]:
            _, theirs = model.fit(X[train], y[train]).predict(X[test], return_std=True)
            gap = max(gap, float(np.abs(std[test] / theirs - 1.0).max()))
        refits = (time.process_time() - begin) * len(splits) / 10
        print(
            f"{name:14} {own:.2f} s: {own / once:.2f} factorisations, {own / fit:.2f} fits; refits "
            f"take {refits / own:.0f} times as long; standard deviations differ by {gap:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        compare(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
