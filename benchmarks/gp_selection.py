"""The kernel of a Gaussian process by its likelihood, or by held-out density or squared error.

On each set a GaussianProcessRegressor with an anisotropic RBF kernel (a length scale for each
column) and noise is fitted to rows of a random split: by scikit-learn, which maximises the
likelihood, and by ``FastGradientSearchCV`` with ten folds, for the density of held-out
observations and for their squared error. All begin at the same kernel. Log density per row (of
targets with variance 1, more is better) and squared error as a share of the variance on rows held
out, and processor time. Means over the splits. A set of ../shared/data that is not there is left
out.

Run with ``python benchmarks/gp_selection.py [--rows 300] [--splits 3]``, with one BLAS thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, train_test_split
from threadpoolctl import threadpool_limits

from everyfold import FastGradientSearchCV
from everyfold.scorers import log_density_scorer
from kernel_ridge_cv import load

SETS = (
    *("abalone", "housing", "mpg", "cpusmall", "bundled diabetes", "bodyfat", "mg", "space_ga"),
    *("pyrim", "friedman1"),
)
NAMES = ("likelihood", "density", "error")


def models(width: int) -> dict[str, Callable[[], object]]:
    """What selects the kernel, by name."""
    kernel = ConstantKernel(1.0) * RBF(np.full(width, np.sqrt(width)), (1e-2, 1e4)) + WhiteKernel(
        0.1, (1e-6, 1e2)
    )
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    cv = KFold(10, shuffle=True, random_state=0)
    return {
        "likelihood": lambda: process,
        "density": lambda: FastGradientSearchCV(process, cv=cv),
        "error": lambda: FastGradientSearchCV(process, cv=cv, loss="squared"),
    }


def compare(rows: int, splits: int) -> None:
    """All sets, and how often each selection is the best."""
    print(f"{rows} rows, {splits} splits; likelihood, held-out density, held-out squared error")
    print(f"{'':18} {'log density':^23}   {'error':^23}   {'seconds':^20}")
    density, error, seconds = (np.full((len(SETS), 3), np.nan) for _ in range(3))
    for i, name in enumerate(SETS):
        found = load(name)
        if found is None:
            print(f"{name:18} is not there")
            continue
        X, y = found
        results = np.zeros((splits, 3, 3))
        for seed in range(splits):
            size = min(rows, int(0.7 * len(X)))
            Xs, Xt, ys, yt = train_test_split(X, y, train_size=size, random_state=seed)
            Xt, yt = Xt[:1000], yt[:1000]
            width = Xs.std(axis=0)
            mean, width = Xs.mean(axis=0), np.where(width > 0.0, width, 1.0)
            Xs, Xt, unit = (Xs - mean) / width, (Xt - mean) / width, ys.std()
            for k, make in enumerate(models(X.shape[1]).values()):
                begin = time.process_time()
                model = make().fit(Xs, ys)
                taken = time.process_time() - begin
                model = getattr(model, "best_estimator_", model)
                share = np.mean((model.predict(Xt) - yt) ** 2) / np.var(yt)
                gained = log_density_scorer(model, Xt, yt) + np.log(unit)
                results[seed, k] = gained, share, taken
        density[i], error[i], seconds[i] = results.mean(axis=0).T
        cells = [f"{v:7.3f}" for v in density[i]], [f"{v:7.4f}" for v in error[i]]
        times = [f"{v:6.2f}" for v in seconds[i]]
        print(
            f"{name:18} {' '.join(cells[0])}   {' '.join(cells[1])}   {' '.join(times)}", flush=True
        )
    known = ~np.isnan(density[:, 0])
    for words, table in (("log density", -density[known]), ("error", error[known])):
        ranks = table.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1.0
        print(f"mean rank by {words:11}: " + ", ".join(map("{} {:.2f}".format, NAMES, ranks)))
    ratio = np.exp(np.log(seconds[known] / seconds[known, :1]).mean(axis=0))
    print("time beside the likelihood: " + ", ".join(map("{} {:.2f}".format, NAMES, ratio)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--splits", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        compare(asked.rows, asked.splits)
