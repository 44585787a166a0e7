"""Whether what is said after a search can be believed.

Parts: ``coverage``, the share of new rows that lie in their 90 % intervals, on ten generated and
bundled sets.

Run with ``python benchmarks/honest.py [part ...]``; all parts by default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import sklearn.datasets as sets

from everyfold import LSSVR, FastCrossConformalRegressor


def coverage(repeats: int = 40, rows: int = 150) -> None:
    """90 % intervals of LSSVR with a fixed kernel: coverage and mean width, over random splits."""

    def sine(noise: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> tuple:
        rng = np.random.default_rng(0)
        X = rng.uniform(-2.0, 2.0, (2000, 2))
        return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + noise(rng, X)

    def bundled(load: Callable[..., tuple], column: int) -> tuple:
        X, _ = load(return_X_y=True)
        return np.delete(X, column, axis=1), X[:, column]

    data = {
        "friedman1": sets.make_friedman1(2000, noise=1.0, random_state=0),
        "friedman2": sets.make_friedman2(2000, noise=50.0, random_state=0),
        "friedman3": sets.make_friedman3(2000, noise=0.1, random_state=0),
        "linear": sets.make_regression(2000, 8, noise=20.0, random_state=0),
        "uncorrelated": sets.make_sparse_uncorrelated(2000, 6, random_state=0),
        "wide tails": sine(lambda rng, X: 0.2 * rng.standard_t(2, len(X))),
        "uneven noise": sine(lambda rng, X: 0.5 * np.abs(X[:, 1]) * rng.normal(size=len(X))),
        "diabetes": sets.load_diabetes(return_X_y=True),
        "wine, alcohol": bundled(sets.load_wine, 0),
        "cancer, texture": bundled(sets.load_breast_cancer, 1),
    }
    kinds = {
        "jackknife+": {"method": "plus", "cv": -1},
        "CV+ (10)": {"method": "plus", "cv": 10, "random_state": 0},
        "jackknife": {"method": "base", "cv": -1},
        "minmax": {"method": "minmax", "cv": -1},
    }
    print(f"coverage of 90 % intervals in %, {repeats} random splits (mean width / deviation of y)")
    print(f"{'':18}{'rows':>5}" + "".join(f"{kind:>17}" for kind in kinds))
    totals = dict.fromkeys(kinds, 0.0)
    for name, (X, y) in data.items():
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
        n = min(rows, len(y) // 2)
        line = f"{name:18}{n:>5}"
        for kind, params in kinds.items():
            inside, width = [], []
            for seed in range(repeats):
                order = np.random.default_rng(seed).permutation(len(y))
                train, test = order[:n], order[n:]
                model = FastCrossConformalRegressor(LSSVR(gamma=0.3 / X.shape[1]), **params)
                model.fit_conformalize(X[train], y[train])
                low, high = model.predict_interval(X[test])[1][:, :, 0].T
                inside.append(np.mean((low <= y[test]) & (y[test] <= high)))
                width.append(np.mean(high - low))
            totals[kind] += np.mean(inside) / len(data)
            line += f"{100 * np.mean(inside):>10.1f} ({np.mean(width):.2f})"
        print(line)
    print(f"{'mean':23}" + "".join(f"{100 * total:>10.1f}{'':7}" for total in totals.values()))


PARTS = {"coverage": coverage}


def main() -> None:
    """Run the parts that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
