"""Low-rank cross-validation: passes over a source or an array, Nystroem pipelines, low rank first.

``python benchmarks/lowrank.py [--parts pass array pipeline growth first] [--threads 2]``. Both
sides of every ratio run in this process with the same BLAS threads; memory is that of a process of
its own. Low rank first reads real data from
``../shared/data`` beside the project and is skipped without them; its reference, GridSearchCV, is
timed on every nineteenth cell of the grid and scaled, which meets every gamma and every ridge.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.linalg import blas
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_svmlight_file
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV, KernelRegressor, Nystrom
from everyfold.io.arrays import ArrayRows
from everyfold.kernels import RBF

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
GAMMA = 0.1
RIDGES = np.logspace(-3, 3, 16)
PARTS = ["pass", "array", "pipeline", "growth", "first"]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rows(n: int, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)


class Resident:
    """The largest resident memory while a block of code runs, above what there was before."""

    def __enter__(self) -> Resident:
        self.before = self.peak = self._now()
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over:
            self.peak = max(self.peak, self._now())
            time.sleep(0.02)

    @staticmethod
    def _now() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()


def search_for(landmarks: int) -> FastGridSearchCV:
    operator = Nystrom(landmarks, sampling="uniform", random_state=0)
    model = KernelRegressor(gamma=GAMMA, operator=operator)
    return FastGridSearchCV(
        model, {"alpha": RIDGES}, cv=10, scoring="neg_mean_squared_error", refit=False
    )


def stream(X: np.ndarray, y: np.ndarray, landmarks: int) -> FastGridSearchCV:
    return search_for(landmarks).fit(ArrayRows(X, y))


def bare(X: np.ndarray, landmarks: int) -> None:
    """The kernel between all rows and the landmarks, and the Gram matrix of it: nothing else."""
    kernel, centres = RBF(GAMMA), X[np.random.RandomState(0).permutation(len(X))[:landmarks]]
    total = np.zeros((landmarks, landmarks), order="F")
    for i in range(0, len(X), 8000):
        C = kernel(X[i : i + 8000], centres)
        total = blas.dsyrk(1.0, C.T, beta=1.0, c=total, lower=1, overwrite_c=1)


def one_pass(n: int, repeats: int) -> None:
    X, y = rows(n)
    stream(X[:20_000], y[:20_000], 500)
    times = [
        (seconds(lambda: stream(X, y, 500)), seconds(lambda: bare(X, 500))) for _ in range(repeats)
    ]
    ours, least = np.median(times, axis=0)
    with Resident() as memory:
        stream(X, y, 500)
    print(
        f"(a) 10 folds x 16 ridges of {n} x 10 rows, 500 landmarks: {ours:.1f} s; kernel and syrk "
        f"alone {least:.1f} s; ratio {ours / least:.2f} (<= 1.6); peak resident memory "
        f"{memory.peak / 1e9:.2f} GB (<= 2)",
        flush=True,
    )


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def array(n: int, repeats: int) -> None:
    """The same rows as an array and as a source: time against the bare pass, and memory."""
    X, y = rows(n)
    search_for(400).fit(X[:20_000], y[:20_000])
    sides = [
        lambda: search_for(400).fit(X, y),
        lambda: stream(X, y, 400),
        lambda: bare(X, 400),
    ]
    clock = np.array([[seconds(side) for side in sides] for _ in range(repeats)])
    processor = np.array([[processor_seconds(side) for side in sides] for _ in range(repeats)])
    one, other, least = np.median(clock, axis=0)
    ratio = np.median(processor[:, 0] / processor[:, 2])
    peaks = [_peak_of(kind, n) for kind in ("array", "source")]
    print(
        f"(e) 10 folds x 16 ridges of {n} x 10 rows, 400 landmarks: as an array {one:.2f} s, as a "
        f"source {other:.2f} s, kernel and syrk alone {least:.2f} s; ratio {one / least:.2f}, by "
        f"processor time {ratio:.2f} (<= 1.5); peak memory {peaks[0] / 1e6:.0f} MB as an array, "
        f"{peaks[1] / 1e6:.0f} MB as a source, ratio {peaks[0] / peaks[1]:.2f} (<= 1.3)",
        flush=True,
    )


def _peak_of(kind: str, n: int) -> int:
    command = [sys.executable, __file__, "--peak", kind, "--rows", str(n)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak(kind: str, n: int) -> None:
    """Print the largest resident memory of one search, in bytes."""
    X, y = rows(n)
    search_for(400).fit(X, y) if kind == "array" else stream(X, y, 400)
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


class Landmarks(TransformerMixin, BaseEstimator):
    """scikit-learn's Nystroem with given landmarks, so that every fold has the same."""

    def __init__(self, centres: np.ndarray, gamma: float) -> None:
        self.centres = centres
        self.gamma = gamma

    def fit(self, X: np.ndarray, y: object = None) -> Landmarks:
        """Read the landmarks."""
        model = Nystroem(gamma=self.gamma, n_components=len(self.centres), random_state=0)
        self.model_ = model.fit(self.centres)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The features of the rows."""
        return self.model_.transform(X)


def pipelines(n: int, every: int) -> None:
    X, y = rows(n)
    nystroem = Nystroem(gamma=GAMMA, n_components=300, random_state=0)
    grid = {"ridge__alpha": RIDGES}
    options = {"cv": KFold(10), "scoring": "neg_mean_squared_error", "refit": False}
    centres = X[np.random.RandomState(0).permutation(n)[:300]]
    given = make_pipeline(Landmarks(centres, GAMMA), Ridge())
    plain = make_pipeline(nystroem, Ridge())
    sub = {"ridge__alpha": RIDGES[::every]}
    scale = len(RIDGES) / len(sub["ridge__alpha"])
    theirs = GridSearchCV(given, sub, **options)
    reference = scale * seconds(lambda: theirs.fit(X, y))
    once = FastGridSearchCV(given, grid, preprocessing="once", n_confirm=0, **options)
    ours = seconds(lambda: once.fit(X, y))
    gap = _gap(once, theirs, every)
    print(
        f"(b) Nystroem(300) + Ridge, {n} rows, 10 folds x 16 ridges, the same landmarks in every "
        f"fold: GridSearchCV {reference:.0f} s, everyfold {ours:.2f} s, ratio "
        f"{reference / ours:.0f} (>= 50), scores differ by {gap:.0e} (<= 1e-6)",
        flush=True,
    )
    theirs = GridSearchCV(plain, sub, **options)
    reference = scale * seconds(lambda: theirs.fit(X, y))
    apart = FastGridSearchCV(plain, grid, **options)
    ours = seconds(lambda: apart.fit(X, y))
    print(
        f"    landmarks of each fold's own rows, as Pipelines have them: GridSearchCV "
        f"{reference:.0f} s, everyfold {ours:.2f} s, ratio {reference / ours:.0f}, scores differ "
        f"by {_gap(apart, theirs, every):.0e}",
        flush=True,
    )


def _gap(ours: FastGridSearchCV, theirs: GridSearchCV, every: int) -> float:
    a, b = ours.cv_results_["mean_test_score"][::every], theirs.cv_results_["mean_test_score"]
    return float(np.abs(a / b - 1.0).max())


def growth(repeats: int) -> None:
    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]
    X, y = rows(sizes[-1])
    times = [
        np.median([seconds(lambda n=n: stream(X[:n], y[:n], 200)) for _ in range(repeats)])
        for n in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    detail = ", ".join(f"{n}: {t:.2f} s" for n, t in zip(sizes, times, strict=True))
    print(f"(c) 200 landmarks; {detail}; slope {slope:.2f} (<= 1.05)", flush=True)


def low_rank_first(names: list[str], seeds: int, every: int) -> None:
    grid = {"gamma": np.logspace(-4, 1.5, 16), "alpha": np.logspace(-4, 2, 16)}
    bounds = {"abalone": 40, "cpusmall": 25}
    print(
        "(d) 16 gammas x 16 ridges, 10 folds, operator='auto'; GridSearchCV on a sub-grid, scaled"
    )
    for name, seed in itertools.product(names, range(seeds)):
        X, y = load_svmlight_file(str(DATA / f"{name}.svm.gz"))
        X = StandardScaler().fit_transform(X.toarray())
        y = y - y.mean()
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
        cv = KFold(10, shuffle=True, random_state=seed)
        options = {"cv": cv, "scoring": "neg_mean_squared_error"}
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, **options)
        ours = seconds(partial(search.fit, X, y))
        detail = ""
        if seed == 0:
            points = list(itertools.product(grid["alpha"], grid["gamma"]))[seed::every]
            cells = [{"alpha": [a], "gamma": [g]} for a, g in points]
            theirs = GridSearchCV(KernelRidge(kernel="rbf"), cells, refit=False, **options)
            reference = seconds(partial(theirs.fit, X, y)) * 256 / len(cells)
            bound = f" (>= {bounds[name]})" if name in bounds else ""
            detail = (
                f"GridSearchCV {reference:.0f} s ({len(cells)} of 256 cells), ratio "
                f"{reference / ours:.0f}{bound}, "
            )
        print(f"    {name}, seed {seed}: {len(y)} rows, {detail}everyfold {ours:.1f} s", flush=True)
        _regret(search, grid, options, (X, y), (X_test, y_test))


def _regret(search: FastGridSearchCV, grid: dict, options: dict, train: tuple, test: tuple) -> None:
    """What the choice costs against the exact scores of all ridges of the gammas around it."""
    chosen = search.best_params_
    k = int(np.flatnonzero(grid["gamma"] == chosen["gamma"])[0])
    near = {**grid, "gamma": grid["gamma"][max(0, k - 2) : k + 3]}
    exact = FastGridSearchCV(KernelRidge(kernel="rbf"), near, operator="dense", **options)
    exact.fit(*train)
    scores = exact.cv_results_["mean_test_score"]
    regret = scores[exact.cv_results_["params"].index(chosen)] / scores.max() - 1.0
    errors = [np.mean((s.predict(test[0]) - test[1]) ** 2) for s in (search, exact)]
    status = search.cv_results_["status"].tolist()
    counts = ", ".join(f"{status.count(word)} {word}" for word in sorted(set(status)))
    print(
        f"        CV error of the choice {100 * regret:+.2f} % above the best within two gammas "
        f"(<= 0.5), test MSE {100 * (errors[0] / errors[1] - 1):+.2f} % (<= 1); {counts}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="BLAS threads of both sides")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=4, help="of the pipelines' reference ridges")
    parser.add_argument("--sets", nargs="*", default=["abalone", "cpusmall", "space_ga", "mg"])
    parser.add_argument("--parts", nargs="*", default=PARTS)
    parser.add_argument("--peak", choices=["array", "source"], help="memory of one search only")
    options = parser.parse_args()
    if options.peak:
        peak(options.peak, options.rows)
        return
    print(
        f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}, "
        f"{platform.machine()}, BLAS threads {options.threads}"
    )
    with threadpool_limits(options.threads):
        if "pass" in options.parts:
            one_pass(options.rows, options.repeats)
        if "array" in options.parts:
            array(min(300_000, options.rows), options.repeats)
        if "pipeline" in options.parts:
            pipelines(min(100_000, options.rows), options.every)
        if "growth" in options.parts:
            growth(options.repeats)
        if "first" in options.parts:
            if DATA.is_dir():
                low_rank_first(options.sets, options.seeds, 19)
            else:
                print("(d) needs the data sets beside the project; not found, skipped")


if __name__ == "__main__":
    main()
