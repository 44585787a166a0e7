"""Test errors of one gamma for all features, and of one for each, on generated and bundled sets.

Run ``python benchmarks/gradient.py [splits]``: a few minutes for 3 splits. For every set and split,
the start of `FastGradientSearchCV` (the best of an isotropic grid) and its winner are fitted to the
same training rows, and their error on the other rows is printed: the mean squared error relative to
the variance of y, or the share of wrong labels.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_wine,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.preprocessing import StandardScaler

from everyfold import LSSVC, LSSVR, FastGradientSearchCV

SETS = {
    "friedman1": (LSSVR(), lambda: make_friedman1(600, noise=1.0, random_state=0)),
    "friedman2": (LSSVR(), lambda: make_friedman2(600, noise=100.0, random_state=0)),
    "friedman3": (LSSVR(), lambda: make_friedman3(600, noise=0.1, random_state=0)),
    "diabetes": (LSSVR(), lambda: load_diabetes(return_X_y=True)),
    "breast cancer": (LSSVC(), lambda: load_breast_cancer(return_X_y=True)),
    "wine": (LSSVC(), lambda: load_wine(return_X_y=True)),
}
MOST_ROWS = 300


def errors(estimator, X, y, seed):
    """Errors of the start and of the winner on rows that neither has seen, and the seconds."""
    order = np.random.default_rng(seed).permutation(len(y))
    n_train = min(MOST_ROWS, 2 * len(y) // 3)
    train, test = order[:n_train], order[n_train:]
    X = StandardScaler().fit(X[train]).transform(X)
    begin = time.perf_counter()
    search = FastGradientSearchCV(estimator, cv=5, random_state=0).fit(X[train], y[train])
    seconds = time.perf_counter() - begin
    first = {name: search.path_[0][name] for name in ("gamma", "alpha")}
    start = clone(estimator).set_params(**first).fit(X[train], y[train])
    return [1.0 - model.score(X[test], y[test]) for model in (start, search)], seconds


def main(splits):
    print(f"{'set':<14} {'one gamma':>10} {'each its own':>13} {'seconds':>8}")
    for name, (estimator, load) in SETS.items():
        X, y = load()
        runs = [errors(estimator, X, y, seed) for seed in range(splits)]
        one, own = np.mean([pair for pair, _ in runs], axis=0)
        seconds = np.mean([seconds for _, seconds in runs])
        print(f"{name:<14} {one:>10.4f} {own:>13.4f} {seconds:>8.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
