"""Circulant kernels: how they scale, what a path of ridges costs, and what their scores are worth.

Run from the root of the project with ``python benchmarks/circulant.py``; the tables are printed.
The benchmark sets of the third table are read from ``../shared/data/raetsch``.
"""

from __future__ import annotations

import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy import fft
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut
from sklearn.svm import SVC
from threadpoolctl import threadpool_info, threadpool_limits

from everyfold import LSSVR, FastGridSearchCV
from everyfold.crossval import ClosedFormCV, Folds
from everyfold.crossval.svm import SVMLooByStep
from everyfold.kernels import RBF
from everyfold.losses import Hinge, Squared
from everyfold.operators import Dense, Structure
from everyfold.papers import GCV, Circulant, CirculantWarning
from everyfold.solvers import Problem

RAETSCH = Path(__file__).resolve().parents[2] / "shared" / "data" / "raetsch"
REPEATS = 9
GAMMAS = 2.0 ** np.arange(-11, 4)
RIDGES = 2.0 ** np.arange(-9, 6)


def median_seconds(*works: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Medians of the wall times of some works, taken in turn so that noise hits all alike."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def environment() -> None:
    pools = {f"{p['internal_api']} {p['num_threads']}" for p in threadpool_info()}
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    print(f"one CPU: threads {', '.join(sorted(pools))}; FFT workers {fft.get_workers()}")
    print(f"times are medians of {REPEATS} runs (exact: 3) after a first one that is not counted\n")


# -- 1: scaling -----------------------------------------------------------------------------------

PRINTED_TIMES = {
    "E-LOO": {13: 4.43, 14: 35.25, 15: 281.11},
    "A-LOO-LSSVM": {
        13: 1.3, 14: 2.6, 15: 5.32, 16: 10.88, 17: 22.45, 18: 47.41, 19: 101.36, 20: 235.83,
    },
    "A-LOO-KRR": {
        13: 0.54, 14: 1.06, 15: 2.14, 16: 4.3, 17: 8.55, 18: 17.28, 19: 35.39, 20: 68.22,
    },
}  # fmt: skip
EXACT_UP_TO = 13


def leave_one_out(structure: Any, X: np.ndarray, intercept: bool, folds: Folds, route: Any) -> None:
    """All held-out predictions of one candidate, from the data on."""
    task = Problem(X[:, :1], np.ones(len(X)), Squared(), intercept)
    operator = structure.bind(RBF(gamma=2.0), X)
    list(ClosedFormCV(route=route).evaluate(task, operator, [1.0], folds))


def exact_seconds(e: int) -> str:
    """Exact leave-one-out by a Cholesky factorisation, where it is feasible."""
    if e > EXACT_UP_TO:
        return "-"
    X = np.random.default_rng(e).normal(size=(2**e, 2))
    folds = Folds.leave_one_out(len(X))
    work = partial(leave_one_out, Dense(), X, False, folds, "cholesky")
    return f"{median_seconds(work, repeats=3)[0]:.2f}"


def circulant_seconds(e: int) -> list[float]:
    """Circulant leave-one-out without and with an intercept."""
    X = np.random.default_rng(e).normal(size=(2**e, 2))
    folds = Folds.leave_one_out(len(X))
    works = [
        partial(leave_one_out, Circulant(steps=1.0), X, intercept, folds, "eigen")
        for intercept in (False, True)
    ]
    return median_seconds(*works)


def scaling() -> None:
    print("1. Leave-one-out of one candidate (all n held-out predictions), seconds")
    print("   random data, 2 features, 2 levels, steps 1; the folds themselves are made once\n")
    print(f"{'n':>6} {'exact KRR':>10} {'circ. KRR':>10} {'circ. LSSVM':>11}   printed (2013):")
    print(f"{'':>6} {'':>10} {'':>10} {'':>11}   {'E-LOO':>8} {'KRR':>8} {'LSSVM':>8}")
    taken = {}
    for e in range(11, 21):
        taken[e] = circulant_seconds(e)
        printed = [PRINTED_TIMES[name].get(e) for name in ("E-LOO", "A-LOO-KRR", "A-LOO-LSSVM")]
        shown = " ".join(f"{'-' if p is None else p:>8}" for p in printed)
        krr, lssvm = taken[e]
        print(f"  2^{e} {exact_seconds(e):>10} {krr:>10.4f} {lssvm:>11.4f}   {shown}", flush=True)
    sizes = np.arange(13, 21)
    for column, name in enumerate(("KRR", "LSSVM")):
        ours = [taken[e][column] for e in sizes]
        printed = list(PRINTED_TIMES[f"A-LOO-{name}"].values())
        slope, theirs = (np.polyfit(sizes, np.log2(t), 1)[0] for t in (ours, printed))
        verdict = "met" if slope <= 1.1 else "MISSED"
        print(f"  slope of log time over log n, 2^13 … 2^20, {name}: {slope:.2f}", end=" ")
        print(f"(target <= 1.1: {verdict}; printed {theirs:.2f})")
    print()


# -- 2: a path of ridges --------------------------------------------------------------------------


def ridge_path() -> None:
    n, ridges = 2**20, np.logspace(-4, 4, 16)
    X = np.random.default_rng(0).normal(size=(n, 2))
    y = X[:, :1].copy()
    square = y.reshape(1024, 1024)

    def path() -> list[Any]:
        task = Problem(y, np.ones(n), Squared(), True)
        return list(GCV().evaluate(task, Circulant(steps=1.0).bind(RBF(gamma=2.0), X), ridges))

    line, plane, all_ridges = median_seconds(
        lambda: fft.rfft(y[:, 0]), lambda: fft.rfftn(square), path, repeats=15
    )
    print("2. Leave-one-out MSE of 16 ridges, 2^20 rows, with an intercept, from the data on\n")
    print(f"  one real FFT of 2^20 points, 1 level     {1e3 * line:8.1f} ms")
    print(f"  one real FFT of 1024 x 1024 points       {1e3 * plane:8.1f} ms")
    print(f"  16 ridges                                {1e3 * all_ridges:8.1f} ms")
    for name, bare in (("1 level", line), ("1024 x 1024", plane)):
        ratio = all_ridges / bare
        print(f"  = {ratio:.1f} FFTs ({name}); target <= 12: {'met' if ratio <= 12 else 'MISSED'}")
    print()


# -- the public search ----------------------------------------------------------------------------


def processor_seconds(*works: Callable[[], object]) -> list[float]:
    """Medians of the processor times of some works, taken in turn after a first one."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(4):
        for work, taken in zip(works, times, strict=True):
            start = time.process_time()
            work()
            taken.append(time.process_time() - start)
    return [statistics.median(taken[1:]) for taken in times]


def search_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two features, and a smooth target with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2 / 2 + 0.3 * rng.normal(size=n)


def public_search() -> None:
    print(
        "6. Leave-one-out by FastGridSearchCV (without its refit), 16 ridges, against the operator"
    )
    print("   and the criterion alone: processor seconds, medians of 3\n")
    print(f"{'':>28} {'alone':>10} {'search':>10} {'ratio':>7}")
    ridges = [float(2.0**e) for e in range(-8, 8)]
    circulant = Circulant(steps=1.0)
    ridge, svc = KernelRidge(kernel="rbf", gamma=2.0), SVC(gamma=2.0)
    for name, model, structure, n in [
        ("circulant LSSVR, 2^18 rows", LSSVR(gamma=2.0), circulant, 2**18),
        ("circulant LSSVR, 2^20 rows", LSSVR(gamma=2.0), circulant, 2**20),
        ("KernelRidge, 2000 rows", ridge, Dense(), 2000),
        ("SVC, 2000 rows", svc, Dense(), 2000),
    ]:
        X, y = search_rows(n)
        is_svc = model is svc
        y = np.where(y > 0.5, 1.0, -1.0) if is_svc else y
        loss, criterion = (Hinge(), SVMLooByStep(1e-3)) if is_svc else (Squared(), ClosedFormCV())
        problem = Problem(y[:, None], np.ones(n), loss, model is not ridge)
        folds = Folds.leave_one_out(n)
        grid = {"C": [1 / (2 * r) for r in ridges]} if is_svc else {"alpha": ridges}
        scoring = "accuracy" if is_svc else "neg_mean_squared_error"
        search = FastGridSearchCV(
            model, grid, cv=LeaveOneOut(), operator=structure, refit=False, scoring=scoring
        )

        def alone(problem=problem, X=X, folds=folds, way=(criterion, structure)) -> None:  # type: ignore[no-untyped-def]
            list(way[0].evaluate(problem, way[1].bind(RBF(2.0), X), ridges, folds))

        bare, whole = processor_seconds(alone, partial(search.fit, X, y))
        verdict = "met" if whole <= 5 * bare else "MISSED"
        print(
            f"{name:>28} {bare:>10.3f} {whole:>10.3f} {whole / bare:>7.1f}  target <= 5: {verdict}"
        )
    print()


# -- selecting with one matrix, judging with the exact model --------------------------------------


@dataclass
class Judged:
    """Leave-one-out of every candidate (gamma, ridge), and the exact model's test error."""

    wrong: np.ndarray
    squared: np.ndarray
    test: np.ndarray

    def choose(self, classify: bool) -> tuple[int, int]:
        """The candidate with the least error rate, ties by squared error; or the latter alone."""
        first = self.wrong if classify else self.squared
        order = np.lexsort((self.squared.ravel(), first.ravel()))
        i, j = np.unravel_index(order[0], first.shape)
        return int(i), int(j)


Rows = tuple[np.ndarray, np.ndarray]


def judge(structure: Structure, train: Rows, test: Rows | None = None) -> Judged:
    """All candidates by the closed form of leave-one-out, one factorisation a gamma."""
    X, y = train
    task = Problem(y[:, None], np.ones(len(y)), Squared(), True)
    judged = Judged(*np.full((3, len(GAMMAS), len(RIDGES)), np.nan))
    distances = None if test is None else RBF(1.0).base_matrix(test[0], X)
    for i, gamma in enumerate(GAMMAS):
        cross = None if distances is None else RBF(gamma).from_base(distances)
        operator = structure.bind(RBF(gamma), X)
        responses = operator.respond_path(task.quadratic, list(RIDGES), "eigen")
        for j, response in enumerate(responses):
            residual = response.reduced()[:, 0] / response.residual_diagonal()
            judged.wrong[i, j] = np.mean(np.sign(y - residual) != np.sign(y))
            judged.squared[i, j] = np.mean(residual**2)
            if test is not None:
                solution = response.solution()
                u = cross @ solution.coef[:, 0] + solution.intercept[0]
                judged.test[i, j] = _test_error(u, test[1])
    return judged


def _test_error(u: np.ndarray, y: np.ndarray) -> float:
    """The error rate for labels, else the mean squared error."""
    is_label = set(np.unique(y)) == {-1.0, 1.0}
    return float(np.mean(np.sign(u) != y) if is_label else np.mean((u - y) ** 2))


# -- 3: the benchmark sets ------------------------------------------------------------------------

PARTITIONS = 10
PRINTED_ERRORS = {  # set: (steps in (1, 2), steps in (10, 11), exact)
    "titanic": ("23.82±1.44", "22.80±0.68", "22.92±0.43"),
    "breast-cancer": ("29.87±5.59", "26.75±5.92", "25.97±4.40"),
    "diabetes": ("25.67±1.13", "25.27±2.07", "23.00±1.27"),
    "flare-solar": ("35.65±2.78", "36.65±2.47", "33.75±1.44"),
    "banana": ("14.10±1.74", "18.98±1.76", "10.97±0.57"),
    "image": ("17.64±1.52", "6.89±0.73", "2.47±0.53"),
    "twonorm": ("15.64±25.71", "6.85±8.86", "2.35±0.07"),
    "german": ("29.93±1.61", "27.40±1.79", "21.87±1.77"),
    "waveform": ("19.85±3.87", "17.57±1.93", "9.77±0.31"),
    "thyroid": ("29.33±4.07", "17.33±3.89", "4.17±3.23"),
}
COLUMNS = ("exact", "(1,2)", "(10,11)", "auto", "arranged", "median")


def one_partition(data: Any, k: int) -> list[float]:
    """Test error in % of the exact model, selected by each column's criterion."""
    train, test = (
        (data["X"][rows].astype(float), data["y"][rows].astype(float))
        for rows in (data["train_idx"][k], data["test_idx"][k])
    )
    exact = judge(Dense(), train, test)
    rng = np.random.default_rng(k)
    drawn = [tuple(float(h) for h in rng.uniform(low, low + 1, 2)) for low in (1.0, 10.0)]
    rows = Circulant().arrange(train[0])
    others = [
        *(judge(Circulant(steps=steps), train) for steps in drawn),
        judge(Circulant(), train),
        judge(Circulant(), (train[0][rows], train[1][rows])),
    ]
    chosen = [exact.test[judged.choose(True)] for judged in (exact, *others)]
    return [100 * float(error) for error in (*chosen, np.median(exact.test))]


def benchmark_sets() -> None:
    print("3. Test error in % of the exact LS-SVM refitted with the selected gamma and ridge")
    print(f"   {PARTITIONS} partitions, mean±standard deviation; {len(GAMMAS)} gammas x", end=" ")
    print(f"{len(RIDGES)} ridges, selected by leave-one-out error:")
    print("   of the exact model; of the circulant one with 2 levels and steps drawn from (1,2) or")
    print("   (10,11) for each partition, or measured (auto), rows as in the files; with measured")
    print("   steps and rows arranged. 'median' is that of all candidates: no selection at all\n")
    if not RAETSCH.is_dir():
        print("  skipped: no benchmark sets at ../shared/data/raetsch\n")
        return
    print(
        f"{'':>14}" + "".join(f"{name:>13}" for name in COLUMNS) + "   printed: E, (1,2), (10,11)"
    )
    ours = []
    for name, (first, second, exact) in PRINTED_ERRORS.items():
        path = RAETSCH / f"{name}.npz"
        if not path.exists():
            print(f"{name:>14}  skipped: {path.name} is missing")
            continue
        with np.load(path) as data:
            table = np.array([one_partition(data, k) for k in range(PARTITIONS)])
        ours.append(table.mean(axis=0))
        cells = zip(ours[-1], table.std(axis=0, ddof=1), strict=True)
        shown = "".join(f"{f'{m:.2f}±{s:.2f}':>13}" for m, s in cells)
        print(f"{name:>14}{shown}   {exact}, {first}, {second}", flush=True)
    if ours:
        print(f"{'mean':>14}" + "".join(f"{m:>13.2f}" for m in np.mean(ours, axis=0)))
    print()


# -- 4: rows that are a grid ----------------------------------------------------------------------


def field(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """A smooth random function of two coordinates."""
    waves = rng.normal(size=(40, 2)) * 0.35
    phase, size = rng.uniform(0, 2 * np.pi, 40), rng.normal(size=40) / np.sqrt(20)
    return lambda X: np.cos(X @ waves.T + phase) @ size


def one_field(seed: int) -> dict[str, tuple[float, float, float]]:
    """Regret, distance from the exact scores and seconds, by what selects."""
    rng = np.random.default_rng(seed)
    X = np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0), indexing="ij"), -1).reshape(-1, 2)
    truth = field(rng)
    y = truth(X) + 0.3 * rng.normal(size=len(X))
    X_test = rng.uniform(0, 39, size=(2000, 2))
    exact = judge(Dense(), (X, y), (X_test, truth(X_test)))
    shuffled = rng.permutation(len(X))
    arranged = shuffled[Circulant().arrange(X[shuffled])]
    cases = {
        "exact": (Dense(), np.arange(len(X))),
        "circulant, in order": (Circulant(), np.arange(len(X))),
        "circulant, shuffled": (Circulant(), shuffled),
        "circulant, arranged": (Circulant(), arranged),
    }
    found = {}
    near_best = exact.squared <= 2 * exact.squared.min()
    for name, (structure, rows) in cases.items():
        start = time.perf_counter()
        judged = judge(structure, (X[rows], y[rows]))
        seconds = time.perf_counter() - start
        regret = exact.test[judged.choose(False)] / exact.test.min()
        far = np.abs(np.log(judged.squared / exact.squared))[near_best]
        found[name] = (float(regret), float(np.median(far)), seconds)
    return found


def grid_rows() -> None:
    print("4. Rows that are the points of a 40 x 40 grid: a smooth field + noise (sd 0.3)")
    print("   selected by leave-one-out MSE; 'regret' is the MSE at 2000 other points, against the")
    print(
        "   field, of the exact model refitted with the selected candidate over that of the best;"
    )
    print(
        "   'distance' is the median |log(LOO MSE / exact LOO MSE)| of the candidates within twice"
    )
    print("   the best exact LOO MSE; medians over 5 fields\n")
    found = [one_field(seed) for seed in range(5)]
    print(f"{'selected by':>22} {'regret':>10} {'distance':>10} {'seconds':>10}")
    for name in found[0]:
        regret, far, seconds = np.median([row[name] for row in found], axis=0)
        print(f"{name:>22} {regret:>10.2f} {far:>10.3f} {seconds:>10.2f}")
    print()


def clipped() -> None:
    print("5. Share of the spectrum that is negative and clipped: 40 x 40 rows, steps 1, rbf\n")
    print("  gamma      " + "".join(f"{gamma:>9.4g}" for gamma in GAMMAS[::2]))
    bound = [Circulant(steps=1.0).bind(RBF(gamma), np.zeros((1600, 1))) for gamma in GAMMAS[::2]]
    print("  clipped    " + "".join(f"{matrix.clipped_share:>9.2%}" for matrix in bound))


if __name__ == "__main__":
    warnings.simplefilter("ignore", CirculantWarning)
    with threadpool_limits(1):  # the printed times are those of a single CPU
        environment()
        scaling()
        ridge_path()
        benchmark_sets()
        grid_rows()
        clipped()
        public_search()
