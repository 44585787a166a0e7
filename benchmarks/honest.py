"""Whether what is said after a search can be believed.

Parts: ``coverage``, the share of new rows that lie in their 90 % intervals, on ten generated and
bundled sets. ``bias``: ten problems, each drawn several times with few rows; the score of the
refitted winner on many new rows is the truth, and ``best_score_``, BBC-CV and nested
cross-validation are compared with it (squared errors in units of the variance of y). ``ratios``:
what probabilities add to a search of SVC, what a jackknife+ at 1000 rows costs beside one fit and
beside MAPIE (a loop of refits, of which some are timed, where MAPIE is not installed), and nested 5
x 5 folds of a 16 x 16 grid, a line of ``everyday.py``; each with what is wanted. Times are those of
the processor, with one BLAS thread.

Run with ``python benchmarks/honest.py [part ...]``; all parts by default.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import sklearn.datasets as sets
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from everyday import HEAD, Line, Lines, Setup, nested, warm
from everyfold import (
    LSSVC,
    LSSVR,
    FastCalibratedClassifierCV,
    FastCrossConformalRegressor,
    FastGridSearchCV,
)


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


ROWS, NEW = 100, 4000
GAMMAS = np.logspace(-3, 1, 9)
RIDGES = {"alpha": np.logspace(-4, 2, 9), "gamma": GAMMAS}
COSTS = {"C": np.logspace(-2, 3, 9), "gamma": GAMMAS}

Problem = tuple[Any, dict[str, Any], Callable[[int, int], tuple[np.ndarray, np.ndarray]]]


def classes(**how: Any) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    return lambda n, seed: sets.make_classification(n, random_state=seed, **how)


def waves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.uniform(-1.0, 1.0, (n, 3))
    return X, np.sin(6.0 * X[:, 0]) * X[:, 1] + 0.5 * random.normal(size=n)


def nothing(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels that no column says anything about: every accuracy but one half is luck."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 8)), random.integers(0, 2, n)


PROBLEMS: dict[str, Problem] = {
    "friedman1": (
        KernelRidge(kernel="rbf"),
        RIDGES,
        lambda n, s: sets.make_friedman1(n, noise=2.0, random_state=s),
    ),
    "friedman2": (
        KernelRidge(kernel="rbf"),
        RIDGES,
        lambda n, s: sets.make_friedman2(n, noise=100.0, random_state=s),
    ),
    "friedman3": (
        KernelRidge(kernel="rbf"),
        RIDGES,
        lambda n, s: sets.make_friedman3(n, noise=0.2, random_state=s),
    ),
    "waves": (KernelRidge(kernel="rbf"), RIDGES, waves),
    "moons": (LSSVC(), RIDGES, lambda n, s: sets.make_moons(n, noise=0.35, random_state=s)),
    "circles": (
        LSSVC(),
        RIDGES,
        lambda n, s: sets.make_circles(n, noise=0.2, factor=0.6, random_state=s),
    ),
    "hastie": (LSSVC(), RIDGES, lambda n, s: sets.make_hastie_10_2(n, random_state=s)),
    "clusters": (SVC(), COSTS, classes(n_features=10, n_informative=5, n_clusters_per_class=3)),
    "flipped": (SVC(), COSTS, classes(n_features=10, n_informative=3, flip_y=0.3)),
    "no signal": (SVC(), COSTS, nothing),
}


def draw(problem: Problem, seed: int) -> tuple[np.ndarray, ...]:
    """Few rows to search on and many new ones, in units of the few."""
    X, y = problem[2](ROWS + NEW, seed)
    scaler = StandardScaler().fit(X[:ROWS])
    if isinstance(problem[0], KernelRidge):
        y = (y - y[:ROWS].mean()) / y[:ROWS].std()
    X = scaler.transform(X)
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def bias(draws: int = 20) -> None:
    """How much each estimate is above the score on new rows, on average over the draws."""
    print(f"bias: {ROWS} rows, {NEW} new ones, 9 x 9 candidates, 5 folds, {draws} draws")
    print(f"{'problem':10} {'truth':>7} {'best_score_':>16} {'bbc':>16} {'nested 5 x 5':>16}")
    everything = []
    for name, problem in PROBLEMS.items():
        found = np.array([estimates(problem, seed) for seed in range(draws)])
        gaps = found[:, 1:] - found[:, :1]
        everything.append(gaps.mean(axis=0))
        errors = gaps.std(axis=0, ddof=1) / np.sqrt(draws)
        words = [f"{m:+8.4f} ± {e:.4f}" for m, e in zip(everything[-1], errors, strict=True)]
        print(f"{name:10} {found[:, 0].mean():7.3f} " + " ".join(f"{w:>16}" for w in words))
    mean = np.mean(everything, axis=0)
    print(f"{'mean':18} " + " ".join(f"{gap:+16.4f}" for gap in mean))


def estimates(problem: Problem, seed: int) -> tuple[float, ...]:
    """The truth, best_score_, BBC and nested."""
    estimator, grid, _ = problem
    X, y, new_X, new_y = draw(problem, seed)
    scoring = "neg_mean_squared_error" if isinstance(estimator, KernelRidge) else "accuracy"
    cv = KFold(5, shuffle=True, random_state=seed)
    search = FastGridSearchCV(estimator, grid, scoring=scoring, cv=cv, keep_predictions="all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of winners at edges, and of one label for all
        search.fit(X, y)
        bbc, nested = search.honest_score(), search.honest_score("nested", X, y)
    return search.score(new_X, new_y), search.best_score_, bbc.estimate, nested.estimate


def ratios() -> None:
    """What is read off a search or a fit beside these, and nested cross-validation."""
    setup = Setup(quick=False, repeats=5, clock="process_time")
    warm()
    print(HEAD)
    for lines in (probabilities, jackknife, nested):
        for line in lines(setup):
            print(line.words(setup), flush=True)


def probabilities(setup: Setup) -> Lines:
    """A search of SVC with calibrated probabilities over the search alone."""
    X, y = sets.make_classification(1500, 12, n_informative=6, flip_y=0.1, random_state=0)
    grid = {"C": np.logspace(-1, 2, 6), "gamma": np.logspace(-3, 0, 6)}
    search = FastGridSearchCV(SVC(), grid, cv=5)
    alone, _ = setup.seconds(lambda: search.fit(X, y))
    calibrated = FastCalibratedClassifierCV(search, ensemble=False)
    ours, count = setup.seconds(lambda: calibrated.fit(X, y))
    remark = f"over the search alone; runs {count}"
    yield Line(
        "SVC, search and probabilities", len(y), "6 x 6", "5", alone, ours, 1.1, at_most=True,
        remark=remark,
    )  # fmt: skip


def jackknife(setup: Setup, sample: int = 40) -> Lines:
    """Jackknife+ over one fit, and MAPIE over it."""
    X, y = sets.make_friedman1(1100, noise=1.0, random_state=0)
    X, y, new = X[:1000], y[:1000], X[1000:]
    model = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.3)
    ours = FastCrossConformalRegressor(model, cv=-1)
    fit, _ = setup.seconds(lambda: model.fit(X, y), 15)
    fits, count = setup.seconds(lambda: ours.fit_conformalize(X, y), 15)
    each = setup.seconds(lambda: ours.predict_interval(new))[0] / len(new)
    remark = f"over one fit; {1e6 * each:.0f} µs a new row; runs {count}"
    name = "KernelRidge, jackknife+"
    yield Line(name, 1000, "1", "n", fit, fits, 2.0, at_most=True, remark=remark)
    if find_spec("mapie") is None:
        slow, _ = setup.seconds(lambda: [model.fit(X[1:], y[1:]) for _ in range(sample)], 1)
        slow, gap, remark = slow * len(y) / sample, np.nan, f"a loop of refits, {sample} timed"
    else:
        from mapie.regression import CrossConformalRegressor

        theirs = CrossConformalRegressor(model, cv=LeaveOneOut())
        slow, _ = setup.seconds(lambda: theirs.fit_conformalize(X, y), 1)
        gap = np.abs(theirs.predict_interval(new)[1] - ours.predict_interval(new)[1]).max()
        remark = "MAPIE"
    yield Line(name, 1000, "1", "n", slow, fits, 100.0, float(gap), remark=f"against {remark}")


PARTS = {"coverage": coverage, "bias": bias, "ratios": ratios}


def main() -> None:
    """Run the parts that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    with threadpool_limits(1):
        for part in parser.parse_args().parts or PARTS:
            PARTS[part]()


if __name__ == "__main__":
    main()
