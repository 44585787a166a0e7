"""Whole searches of support vector machines against GridSearchCV, same folds and grid, one run.

``python benchmarks/svm.py [--sets german.numer diabetes] [--jobs 1] [--parts folds loo]``. Data are
read from ``../shared/data`` beside the project. Where timing the whole grid with GridSearchCV takes
too long, every seventh or eleventh cell is timed and scaled; the table says so.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_svmlight_file
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV, LeaveOneOut, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV, InexactWarning
from everyfold.kernels import RBF
from everyfold.losses import HuberHinge
from everyfold.operators import DenseMatrix
from everyfold.papers import GACV
from everyfold.solvers import Problem

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
GAMMAS = np.logspace(-3.5, 1, 8)
CS = np.logspace(-2, 3, 10)
GRID = {"gamma": GAMMAS, "C": CS}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = None
    if name == "a9a/5000":
        name, rows = "a9a", 5000
    columns = 123 if name.startswith("a") and name.endswith("a") else None
    X, y = load_svmlight_file(str(DATA / f"{name}.svm.gz"), n_features=columns)
    X = X.toarray()
    if rows is not None:
        pick = np.random.default_rng(0).permutation(len(y))[:rows]
        X, y = X[pick], y[pick]
    return X, y


def timed(search: GridSearchCV, X: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    search.fit(X, y)
    return time.perf_counter() - start


def reference(
    model: SVC | SVR, X: np.ndarray, y: np.ndarray, cv: object, jobs: int, every: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Seconds of the whole grid, the cells that were run, and their mean scores."""
    cells = np.arange(len(GAMMAS) * len(CS))[::every]
    points = list(itertools.product(CS, GAMMAS))
    grids = [{"C": [points[i][0]], "gamma": [points[i][1]]} for i in cells]
    search = GridSearchCV(clone(model), grids, cv=cv, refit=False, n_jobs=jobs)
    seconds = timed(search, X, y) * len(points) / len(cells)
    return seconds, cells, search.cv_results_["mean_test_score"]


def fast(
    model: SVC | SVR,
    X: np.ndarray,
    y: np.ndarray,
    cv: object,
    jobs: int,
    order: object = "auto",
    repeats: int = 1,
) -> tuple[float, np.ndarray]:
    """Median seconds of the whole grid, and the mean scores."""
    search = FastGridSearchCV(
        clone(model), GRID, cv=cv, refit=False, n_jobs=jobs, n_confirm=0, order=order
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactWarning)
        seconds = [timed(search, X, y) for _ in range(repeats)]
    return float(np.median(seconds)), search.cv_results_["mean_test_score"]


def gacv(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """GACV of every cell, in the order of the grid (C outside, gamma inside)."""
    values = np.empty((len(CS), len(GAMMAS)))
    problem = Problem(y[:, None], np.ones(len(y)), HuberHinge(0.05), intercept=True)
    for j, gamma in enumerate(GAMMAS):
        ridges = [1.0 / (2.0 * C) for C in CS]
        found = GACV().evaluate(problem, DenseMatrix(RBF(gamma)(X)), ridges)
        values[:, j] = [float(value[0]) for value in found]
    return values.ravel()


def folds_table(names: list[str], jobs: int, every: dict[str, int], approximations: bool) -> None:
    print(
        f"\nWhole {len(GAMMAS)} x {len(CS)} search, n_jobs = {jobs} on both sides\n"
        f"{'set':<14}{'folds':>6}{'method':>12}{'GridSearchCV':>14}{'everyfold':>11}{'ratio':>8}"
        f"{'max diff':>10}{'regret':>8}"
    )
    for name, t in itertools.product(names, (10, 5)):
        X, y = load(name)
        cv = StratifiedKFold(t, shuffle=True, random_state=0)
        theirs, cells, truth = reference(SVC(), X, y, cv, jobs, every.get(name, 1))
        repeats = 5 if len(y) <= 1000 else 1
        rows: list[tuple[str, float, np.ndarray]] = [
            (label, *fast(SVC(), X, y, cv, jobs, order, repeats))
            for label, order in (("exact", "auto"), ("screen", "screen"))
        ]
        if approximations and t == 10 and len(y) <= 1000:
            rows += [
                (label, *fast(SVC(), X, y, cv, jobs, order))
                for label, order in (("step", np.inf), ("order 1", 1), ("order 3", 3))
            ]
            start = time.perf_counter()
            rows.append(("GACV", 0.0, -gacv(X, y)))
            rows[-1] = ("GACV", time.perf_counter() - start, rows[-1][2])
        for label, ours, scores in rows:
            chosen = int(np.argmax(scores[cells]))
            regret = 100 * (truth.max() - truth[chosen])
            gap = np.abs(scores[cells] - truth).max() if label != "GACV" else np.nan
            scaled = "" if len(cells) == 80 else f"  (reference: {len(cells)} of 80 cells, scaled)"
            print(
                f"{name:<14}{t:>6}{label:>12}{theirs:>12.1f} s{ours:>9.2f} s{theirs / ours:>8.1f}"
                f"{gap:>10.4f}{regret:>8.2f}{scaled}",
                flush=True,
            )


def regression(jobs: int) -> None:
    X, y = load_svmlight_file(str(DATA / "abalone.svm.gz"))
    X = StandardScaler().fit_transform(X.toarray())
    model = SVR(epsilon=0.1 * y.std())
    cv = 5
    theirs, cells, truth = reference(model, X, y, cv, jobs, 10)
    ours, scores = fast(model, X, y, cv, jobs)
    print(
        f"\nSVR on abalone, 5 folds: GridSearchCV {theirs:.0f} s ({len(cells)} of 80 cells, "
        f"scaled), everyfold {ours:.1f} s, ratio {theirs / ours:.1f}, R2 differs by at most "
        f"{np.abs(scores[cells] - truth).max():.4f}"
    )


def leave_one_out(names: list[str], jobs: int, splits: int) -> None:
    print(
        f"\nLeave-one-out by one step (★), n_jobs = {jobs}; ratio to GridSearchCV's 10-fold "
        f"search\n{'set':<14}{'10-fold':>10}{'LOO':>9}{'ratio':>8}{'rows of 100 off':>17}"
        f"{'test error, LOO':>17}{'10-fold':>9}"
    )
    for name in names:
        X, y = load(name)
        cv = StratifiedKFold(10, shuffle=True, random_state=0)
        theirs, _, _ = reference(SVC(), X, y, cv, jobs, 1)
        ours, _ = fast(SVC(), X, y, LeaveOneOut(), jobs, repeats=5)
        worst, mean = rows_off(X, y)
        loo, fold = test_errors(X, y, jobs, splits)
        print(
            f"{name:<14}{theirs:>8.1f} s{ours:>7.2f} s{theirs / ours:>8.1f}{worst:>10d}{mean:>7.2f}"
            f"{100 * loo:>15.2f} %{100 * fold:>7.2f} %",
            flush=True,
        )


def rows_off(X: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    """Largest and mean difference of estimated and true LOO errors on 100 rows, whole grid."""
    rows = np.random.default_rng(0).permutation(len(y))[:100]
    search = FastGridSearchCV(SVC(), GRID, cv=LeaveOneOut(), refit=False, n_confirm=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactWarning)
        search.fit(X, y)
    found = search.cv_results_
    wrong = 100 - np.sum([found[f"split{i}_test_score"] for i in rows], axis=0)
    true = np.zeros(len(found["params"]))
    squared = euclidean_distances(X, squared=True)
    for gamma in GAMMAS:
        K = np.exp(-gamma * squared)
        cells = [i for i, params in enumerate(found["params"]) if params["gamma"] == gamma]
        for i, row in itertools.product(cells, rows):
            rest = np.delete(np.arange(len(y)), row)
            model = SVC(kernel="precomputed", C=found["params"][i]["C"])
            model.fit(K[np.ix_(rest, rest)], y[rest])
            true[i] += model.predict(K[[row]][:, rest])[0] != y[row]
    off = np.abs(wrong - true)
    return int(off.max()), float(off.mean())


def equal_classes(names: list[str], count: int = 100) -> None:
    """The hardest labels: leaving a row out makes its class the smaller one."""
    print(
        f"\nLeave-one-out by one step (★), the first {count} rows of both classes: rows that "
        f"errors are off by, over the grid\n{'set':<14}{'largest':>12}{'mean':>8}"
    )
    for name in names:
        X, y = load(name)
        rows = np.concatenate([np.flatnonzero(y == label)[:count] for label in np.unique(y)])
        means = []
        for order in (np.inf, "exact"):
            options = {"cv": LeaveOneOut(), "refit": False, "n_confirm": 0, "order": order}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InexactWarning)
                search = FastGridSearchCV(SVC(), GRID, **options).fit(X[rows], y[rows])
            means.append(search.cv_results_["mean_test_score"])
        off = len(rows) * np.abs(means[0] - means[1])
        print(f"{name:<16}{off.max():>10.0f}{off.mean():>8.2f}", flush=True)


def test_errors(X: np.ndarray, y: np.ndarray, jobs: int, splits: int) -> tuple[float, float]:
    """Mean test errors of the winners of LOO and of 10-fold CV over random 70/30 splits."""
    errors = np.empty((splits, 2))
    for k in range(splits):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=0.3, random_state=k, stratify=y
        )
        ten = StratifiedKFold(10, shuffle=True, random_state=k)
        for j, cv in enumerate((LeaveOneOut(), ten)):
            search = FastGridSearchCV(SVC(), GRID, cv=cv, n_jobs=jobs, n_confirm=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InexactWarning)
                search.fit(X_train, y_train)
            errors[k, j] = np.mean(search.predict(X_test) != y_test)
    loo, fold = errors.mean(axis=0)
    return float(loo), float(fold)


def one_candidate() -> None:
    """One 10-fold candidate of a grid over one SVC fit on all rows, german, one thread."""
    X, y = load("german.numer")
    cv = StratifiedKFold(10, shuffle=True, random_state=0)
    ours, _ = fast(SVC(), X, y, cv, 1)
    start = time.perf_counter()
    for C, gamma in itertools.product(CS, GAMMAS):
        SVC(C=C, gamma=gamma).fit(X, y)
    fits = time.perf_counter() - start
    print(f"\nOne 10-fold candidate over one SVC().fit, german, one thread: {ours / fits:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sets", nargs="*", default=["german.numer", "diabetes", "a2a", "a9a/5000"]
    )
    parser.add_argument(
        "--loo-sets", nargs="*", default=["german.numer", "diabetes", "heart", "australian"]
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--parts", nargs="*", default=["folds", "svr", "loo", "equal", "candidate"])
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"needs the data sets of {DATA.name} beside the project; not found")
    print(
        f"scikit-learn {sklearn.__version__}, {platform.machine()}, BLAS threads 1, "
        f"n_jobs {options.jobs}"
    )
    with threadpool_limits(1):
        X, y = load("heart")
        fast(SVC(), X, y, 3, 1)  # compile before anything is timed
        fast(SVC(), X, y, LeaveOneOut(), 1)
        if "folds" in options.parts:
            folds_table(options.sets, options.jobs, {"a2a": 7, "a9a/5000": 11}, options.jobs == 1)
        if "svr" in options.parts:
            regression(options.jobs)
        if "loo" in options.parts:
            leave_one_out(options.loo_sets, options.jobs, options.splits)
        if "equal" in options.parts:
            equal_classes([*options.loo_sets, "liver-disorders"])
        if "candidate" in options.parts:
            one_candidate()


if __name__ == "__main__":
    main()
