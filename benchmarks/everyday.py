"""What users do every day, against scikit-learn: exact searches, Pipelines, draws, low rank first.

Every line is one comparison of the same candidates on the same folds with equal threads: seconds of
scikit-learn's search and of ours (medians), their ratio, the ratio that is wanted, and the largest
difference of the mean scores. Where scikit-learn would take minutes, some of its candidates are
timed and their time is scaled; the line says how many. Lines that need ``../shared/data`` beside
the project are left out where it is missing.

Run with ``python benchmarks/everyday.py [--only six digits] [--quick] [--clock processor]``;
``--list`` names the lines.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_svmlight_file,
    make_classification,
    make_friedman1,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    ParameterGrid,
    ParameterSampler,
    StratifiedKFold,
    train_test_split,
)
from sklearn.model_selection import cross_val_score as refitted_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from everyfold import (
    LSSVC,
    LSSVR,
    Circulant,
    FastGridSearchCV,
    FastRandomizedSearchCV,
    InexactWarning,
    cross_val_score,
)
from everyfold.crossval import ClosedFormCV, Folds
from everyfold.kernels import RBF
from everyfold.losses import Squared
from everyfold.papers import CirculantWarning
from everyfold.solvers import Problem

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
COSTS = {"C": np.logspace(-1, 3, 5), "gamma": np.logspace(-3, 0, 6)}
WIDE_COSTS = {"C": np.logspace(-2, 3, 10), "gamma": np.logspace(-3.5, 1, 8)}
RIDGES = {"alpha": np.logspace(-4, 2, 16), "gamma": np.logspace(-3, 0, 16)}
LOW_RANK_FIRST = {"alpha": np.logspace(-4, 2, 16), "gamma": np.logspace(-4, 1.5, 16)}
FIRST = """
import time, warnings
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC
from sklearn.model_selection import GridSearchCV
from everyfold import FastGridSearchCV
X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
for kind in (FastGridSearchCV, GridSearchCV):
    start = time.{clock}()
    kind(SVC(), {{"C": [0.1, 1.0, 10.0], "gamma": [0.01, 0.1]}}, cv=5).fit(X, y)
    print(time.{clock}() - start)
"""


@dataclass(frozen=True)
class Setup:
    """How everything is measured."""

    quick: bool
    repeats: int
    clock: str

    def seconds(self, work: Callable[[], object], repeats: int | None = None) -> tuple[float, int]:
        """The median seconds of some work, and how often it was done: less often if it is long."""
        now = getattr(time, self.clock)
        taken: list[float] = []
        while len(taken) < (repeats or self.repeats) and sum(taken) < 20.0:
            start = now()
            work()
            taken.append(now() - start)
        return float(np.median(taken)), len(taken)

    def size(self, n: int) -> int:
        """The number of rows: fewer where it has to be quick."""
        return max(300, n // 5) if self.quick else n

    def grid(self, values: dict[str, Any]) -> dict[str, Any]:
        """The grid: every other value of it where it has to be quick."""
        return {name: v[::2] for name, v in values.items()} if self.quick else values


@dataclass(frozen=True)
class Line:
    """One comparison.

    ``wanted`` is the least ratio, or the largest if ``at_most``; of lines without a ratio it is the
    largest number of seconds.
    """

    name: str
    n: int
    grid: str
    folds: str
    theirs: float
    ours: float
    wanted: float
    gap: float = np.nan
    at_most: bool = False
    remark: str = ""

    @property
    def ratio(self) -> float:
        """Theirs over ours; of upper limits ours over theirs, or the seconds themselves."""
        if not self.at_most:
            return self.theirs / self.ours
        return self.ours if np.isnan(self.theirs) else self.ours / self.theirs

    def words(self, setup: Setup) -> str:
        """The line as it is printed."""
        is_met = self.ratio <= self.wanted if self.at_most else self.ratio >= self.wanted
        verdict = "-" if setup.quick else "met" if is_met else "MISSED"
        sign = "<=" if self.at_most else ">="
        theirs = "-" if np.isnan(self.theirs) else f"{self.theirs:.2f}"
        gap = "-" if np.isnan(self.gap) else f"{self.gap:.0e}"
        return (
            f"{self.name:<34} {self.n:>7} {self.grid:>8} {self.folds:>6} {theirs:>9} "
            f"{self.ours:>8.2f} {self.ratio:>7.1f} {sign} {self.wanted:<4g} {verdict:<6} {gap:>6}  "
            f"{self.remark}"
        ).rstrip()


HEAD = (
    f"{'':<34} {'rows':>7} {'grid':>8} {'folds':>6} {'sklearn':>9} {'ours':>8} {'ratio':>7} "
    f"{'wanted':<7} {'':<6} {'differ':>6}"
)


@dataclass(frozen=True)
class Case:
    """A search of both sides: a model, candidates, rows and folds."""

    name: str
    model: Any
    candidates: Any
    X: np.ndarray
    y: np.ndarray
    cv: Any
    wanted: float
    every: int = 1
    draws: int = 0
    options: dict[str, Any] | None = None

    def __call__(self, setup: Setup) -> Line:
        """Measure it."""
        ours = self._ours(setup)
        seconds, count = setup.seconds(lambda: ours.fit(self.X, self.y))
        cells = self._cells(setup)
        numbers = list(range(len(cells)))[:: self.every]
        # The winner of ours is among them.
        numbers = sorted({*numbers, int(np.argmax(ours.cv_results_["mean_test_score"]))})
        theirs = GridSearchCV(
            clone(self.model), [_alone(cells[i]) for i in numbers], cv=self.cv, refit=False
        )
        slow, times = setup.seconds(lambda: theirs.fit(self.X, self.y), 1 if len(cells) > 1 else 3)
        gap = _gap(ours.cv_results_, theirs.cv_results_["mean_test_score"], numbers)
        part = f"{len(numbers)} of {len(cells)} by scikit-learn, scaled; "
        remark = (part if len(numbers) < len(cells) else "") + f"runs {times} and {count}"
        return Line(
            self.name, len(self.y), self._shape(setup), str(self.cv.get_n_splits(self.X)),
            slow * len(cells) / len(numbers), seconds, self.wanted, gap, remark=remark,
        )  # fmt: skip

    def _ours(self, setup: Setup) -> Any:
        options = {"cv": self.cv, "refit": False, **(self.options or {})}
        if self.draws:
            count = self.draws // 2 if setup.quick else self.draws
            return FastRandomizedSearchCV(
                clone(self.model), self.candidates, n_iter=count, random_state=0, **options
            )
        return FastGridSearchCV(clone(self.model), setup.grid(self.candidates), **options)

    def _cells(self, setup: Setup) -> list[dict[str, Any]]:
        if not self.draws:
            return list(ParameterGrid(setup.grid(self.candidates)))
        count = self.draws // 2 if setup.quick else self.draws
        return list(ParameterSampler(self.candidates, count, random_state=0))

    def _shape(self, setup: Setup) -> str:
        if self.draws:
            return f"{len(self._cells(setup))} draws"
        return " x ".join(str(len(v)) for v in setup.grid(self.candidates).values())


def _alone(params: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in params.items()}


def _gap(results: dict[str, Any], truth: np.ndarray, numbers: list[int]) -> float:
    """The largest difference of mean scores, of low rank first among those called exact."""
    ours = results["mean_test_score"][numbers]
    is_known = np.asarray(results["is_exact"], dtype=bool)[numbers]
    chosen = is_known if is_known.any() else np.ones(len(numbers), dtype=bool)
    return float(np.abs(ours - truth)[chosen].max())


# -- data ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def six_classes(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        n, 20, n_informative=8, n_classes=6, flip_y=0.05, class_sep=1.2, random_state=0
    )
    return X * np.linspace(0.5, 3.0, 20), y


def scaled(X: np.ndarray) -> np.ndarray:
    return StandardScaler().fit_transform(X)


def numbers(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_friedman1(n, 10, noise=1.0, random_state=0)
    return scaled(X), y - y.mean()


def shared(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_svmlight_file(str(DATA / f"{name}.svm.gz"))
    return scaled(X.toarray()), y


def piped(model: Any, grid: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model behind a scaler, and the grid with the names that it has there."""
    pipeline = Pipeline([("scale", StandardScaler()), ("model", model)])
    return pipeline, {f"model__{name}": values for name, values in grid.items()}


def folds(count: int) -> Any:
    return StratifiedKFold(count, shuffle=True, random_state=0)


# -- lines -----------------------------------------------------------------------------------------

Lines = Iterator[Line]


def two(setup: Setup) -> Lines:
    X, y = six_classes(setup.size(2000))
    t = (y < 3).astype(int)
    yield Case("SVC, two classes", SVC(), COSTS, scaled(X), t, folds(5), 15.0)(setup)
    pipe, grid = piped(SVC(), COSTS)
    yield Case("SVC, two classes, Pipeline", pipe, grid, X, t, folds(5), 15.0)(setup)


def cancer(setup: Setup) -> Lines:
    X, y = load_breast_cancer(return_X_y=True)
    pipe, grid = piped(SVC(), {"C": np.logspace(-2, 3, 10), "gamma": np.logspace(-4, 0, 8)})
    yield Case("SVC, breast cancer, Pipeline", pipe, grid, X, y, folds(10), 8.0)(setup)
    ridges = {"alpha": np.logspace(-3, 2, 10), "gamma": np.logspace(-4, 0, 8)}
    pipe, grid = piped(LSSVC(), ridges)
    yield Case("LSSVC, breast cancer, Pipeline", pipe, grid, X, y, folds(10), 1.0)(setup)


def exact(setup: Setup) -> Lines:
    for name in ("german.numer", "diabetes"):
        X, y = shared(name)
        every = 3
        for count, wanted in ((10, 20.0), (5, 15.0)):
            label = f"SVC, {name}, {count} folds"
            yield Case(label, SVC(), WIDE_COSTS, X, y, folds(count), wanted, every)(setup)
    X, y = shared("german.numer")
    screen = {"order": "screen", "n_confirm": 0}
    label = "SVC, german.numer, screen"
    yield Case(label, SVC(), WIDE_COSTS, X, y, folds(10), 30.0, 3, options=screen)(setup)


def six(setup: Setup) -> Lines:
    X, y = six_classes(setup.size(2000))
    yield Case("SVC, six classes", SVC(), COSTS, scaled(X), y, folds(5), 10.0)(setup)
    pipe, grid = piped(SVC(), COSTS)
    yield Case("SVC, six classes, Pipeline", pipe, grid, X, y, folds(5), 8.0)(setup)


def digits(setup: Setup) -> Lines:
    X, y = load_digits(return_X_y=True)
    X, y = X[: setup.size(len(y))] / 16.0, y[: setup.size(len(y))]
    yield Case("SVC, digits", SVC(), COSTS, X, y, folds(5), 8.0)(setup)
    pipe, grid = piped(SVC(), {"C": COSTS["C"], "gamma": np.logspace(-4, -1, 6)})
    yield Case("SVC, digits, Pipeline", pipe, grid, X, y, folds(5), 8.0)(setup)


def draws(setup: Setup) -> Lines:
    X, y = six_classes(setup.size(2000))
    X, t = scaled(X), (y < 3).astype(int)
    wide = {"C": loguniform(0.1, 1e3), "gamma": loguniform(1e-3, 1.0)}
    yield Case("SVC, random search", SVC(), wide, X, t, folds(5), 7.0, draws=40)(setup)
    screen = {"order": "screen", "n_confirm": 0}
    label = "SVC, random search, screen"
    yield Case(label, SVC(), wide, X, t, folds(5), 9.0, draws=40, options=screen)(setup)


def random_ridges(setup: Setup) -> Lines:
    X, y = numbers(setup.size(2000))
    model = KernelRidge(kernel="rbf")
    wide = {"alpha": loguniform(1e-3, 10.0), "gamma": loguniform(1e-3, 1.0)}
    case = Case("KernelRidge, random search", model, wide, X, y, KFold(5), 14.0, 3, draws=40)
    line = case(setup)
    yield line
    more = FastRandomizedSearchCV(
        model, wide, n_iter=len(case._cells(setup)), cv=KFold(5), refit=False, random_state=0,
        free_ridges=8,
    )  # fmt: skip
    seconds, count = setup.seconds(lambda: more.fit(X, y))
    shape, remark = f"{line.grid.split()[0]} x 9", f"over the search without them; runs {count}"
    yield Line(
        "KernelRidge, free_ridges=8", len(y), shape, "5", line.ours, seconds, 1.5, at_most=True,
        remark=remark,
    )  # fmt: skip


def ridge_pipe(setup: Setup) -> Lines:
    X, y = numbers(setup.size(2000))
    X = X * np.linspace(0.5, 3.0, X.shape[1])
    pipe, grid = piped(KernelRidge(kernel="rbf"), RIDGES)
    yield Case("KernelRidge, Pipeline", pipe, grid, X, y, KFold(10), 8.0, 17)(setup)


def low_rank_first(setup: Setup) -> Lines:
    for name, wanted, every in (("abalone", 100.0, 51), ("cpusmall", 150.0, 129)):
        X, y = shared(name)
        X, _, y, _ = train_test_split(X, y - y.mean(), test_size=0.2, random_state=0)
        size = setup.size(len(y))
        cv, model = KFold(10, shuffle=True, random_state=0), KernelRidge(kernel="rbf")
        label = f"KernelRidge, {name}, low rank first"
        case = Case(label, model, LOW_RANK_FIRST, X[:size], y[:size], cv, wanted, every)
        yield case(setup)


def growth(setup: Setup) -> Lines:
    """Generated rows: more of them never take less time than fewer."""
    cv, times = KFold(10, shuffle=True, random_state=0), []
    sizes = [setup.size(n) for n in (1000, 1500, 2000, 2500, 3000, 4000)]
    for n in sizes:
        X, y = numbers(n)
        grid = setup.grid(LOW_RANK_FIRST)
        search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=cv, refit=False)
        times.append(setup.seconds(lambda search=search, X=X, y=y: search.fit(X, y), 1)[0])
    worst = max(a / b for i, a in enumerate(times) for b in times[i:])
    detail = ", ".join(f"{n}: {t:.1f} s" for n, t in zip(sizes, times, strict=True))
    remark = f"the largest factor by which fewer rows take longer; {detail}"
    yield Line(
        "KernelRidge, 1000 to 4000 rows", sizes[-1], "16 x 16", "10", 1.0, worst, 1.1, at_most=True,
        remark=remark,
    )  # fmt: skip


def first(setup: Setup) -> Lines:
    """A search of SVC in new processes, without and with compiled code on the disk."""
    code = FIRST.format(clock=setup.clock)
    with tempfile.TemporaryDirectory() as folder:
        empty = [_in_a_process(code, f"{folder}/{run}") for run in range(setup.repeats)]
        filled = [_in_a_process(code, f"{folder}/0") for _ in range(setup.repeats)]
    wanted = {"first call, nothing compiled": (empty, 4.0), "from the cache": (filled, 0.3)}
    for name, (runs, seconds) in wanted.items():
        ours, theirs = np.median(runs, axis=0)
        remark = f"seconds; scikit-learn {theirs:.2f} s; runs {len(runs)}"
        yield Line(
            f"SVC, {name}", 569, "3 x 2", "5", np.nan, ours, seconds, at_most=True, remark=remark
        )


def _in_a_process(code: str, folder: str) -> list[float]:
    """The numbers that code prints, whose compiled functions are stored in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "OPENBLAS_NUM_THREADS": "1"}
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [float(word) for word in made.stdout.split()]


def single(setup: Setup) -> Lines:
    """Leave-one-out of SVC over scikit-learn's 10 folds."""
    X, y = load_breast_cancer(return_X_y=True)
    sets = {"breast cancer": (scaled(X), y)}
    if DATA.is_dir():
        known = ("heart", "german.numer", "diabetes", "australian")
        unseen = ("ionosphere", "liver-disorders")  # added after the solver was tuned, as they came
        sets |= {name: shared(name) for name in (*known, *unseen)}
    for name, (X, y) in sets.items():
        grid = setup.grid(WIDE_COSTS)
        search = FastGridSearchCV(SVC(), grid, cv=LeaveOneOut(), refit=False, n_confirm=0)
        ours, count = setup.seconds(lambda search=search, X=X, y=y: search.fit(X, y))
        cells = list(ParameterGrid(grid))
        theirs = GridSearchCV(SVC(), [_alone(c) for c in cells[::3]], cv=folds(10), refit=False)
        slow, _ = setup.seconds(lambda theirs=theirs, X=X, y=y: theirs.fit(X, y), 1)
        remark = f"{len(cells[::3])} of {len(cells)} by scikit-learn, scaled; runs 1 and {count}"
        shape = " x ".join(str(len(v)) for v in grid.values())
        slow *= len(cells) / len(cells[::3])
        yield Line(f"SVC, LOO, {name}", len(y), shape, "n", slow, ours, 40.0, remark=remark)


def many(setup: Setup) -> Lines:
    """Leave-one-out by the public search over the operator and the criterion alone."""
    n = 2**14 if setup.quick else 2**18
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 / 2 + 0.3 * rng.normal(size=n)
    ridges = [float(2.0**e) for e in range(-8, 8)]
    problem = Problem(y[:, None], np.ones(n), Squared(), intercept=True)
    sets, structure = Folds.leave_one_out(n), Circulant(steps=1.0)
    search = FastGridSearchCV(
        LSSVR(gamma=2.0), {"alpha": ridges}, cv=LeaveOneOut(), operator=structure, refit=False,
        scoring="neg_mean_squared_error",
    )  # fmt: skip

    def alone() -> None:
        operator = structure.bind(RBF(2.0), X)
        list(ClosedFormCV().evaluate(problem, operator, ridges, sets))

    alone()
    bare, _ = setup.seconds(alone)
    ours, count = setup.seconds(lambda: search.fit(X, y))
    yield Line(
        "LSSVR, LOO, circulant", n, "16", "n", bare, ours, 5.0, at_most=True,
        remark=f"over the operator alone; runs {count}",
    )  # fmt: skip


def nested(setup: Setup) -> Lines:
    X, y = numbers(setup.size(1000))
    inner, outer = KFold(5, shuffle=True, random_state=1), KFold(5, shuffle=True, random_state=0)
    model, grid = KernelRidge(kernel="rbf"), setup.grid(RIDGES)
    search = FastGridSearchCV(model, grid, cv=inner)
    found: list[np.ndarray] = []
    ours, count = setup.seconds(lambda: found.append(cross_val_score(search, X, y, cv=outer)))
    # The winners of the outer folds differ, so that a part of the grid is timed on its own.
    cells = list(ParameterGrid(grid))
    some = GridSearchCV(model, [_alone(c) for c in cells[::17]], cv=inner)
    slow, _ = setup.seconds(lambda: refitted_score(some, X, y, cv=outer), 1)
    same = FastGridSearchCV(model, [_alone(c) for c in cells[::17]], cv=inner)
    gap = np.abs(cross_val_score(same, X, y, cv=outer) - refitted_score(some, X, y, cv=outer)).max()
    remark = f"{len(cells[::17])} of {len(cells)} by scikit-learn, scaled; runs 1 and {count}"
    slow *= len(cells) / len(cells[::17])
    shape = " x ".join(str(len(v)) for v in grid.values())
    yield Line(
        "KernelRidge, nested", len(y), shape, "5 x 5", slow, ours, 20.0, float(gap), remark=remark
    )


LINES: dict[str, Callable[[Setup], Lines]] = {
    "two": two,
    "cancer": cancer,
    "exact": exact,
    "six": six,
    "digits": digits,
    "draws": draws,
    "ridges": random_ridges,
    "pipe": ridge_pipe,
    "growth": growth,
    "low-rank-first": low_rank_first,
    "nested": nested,
    "single": single,
    "many": many,
    "first": first,
}
NEEDS_DATA = ("exact", "low-rank-first")


def warm() -> None:
    """Import and compile what the lines need, so that no line pays for it."""
    X, y = six_classes(300)
    grid = {"C": [1.0, 10.0], "gamma": [0.01, 0.1]}
    for target, cv in ((y, 3), (y < 3, 3), (y < 3, LeaveOneOut())):
        FastGridSearchCV(SVC(), grid, cv=cv, refit=False, n_confirm=0).fit(X, target)
    X, t = numbers(300)
    FastGridSearchCV(KernelRidge(kernel="rbf"), {"alpha": [0.1, 1.0]}, cv=5).fit(X, t)
    six_classes.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted(LINES), default=list(LINES))
    parser.add_argument("--list", action="store_true", help="name the lines and end")
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of both sides")
    parser.add_argument("--repeats", type=int, default=3, help="of ours, where it is short")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--quick", action="store_true", help="fewer rows and candidates")
    options = parser.parse_args()
    if options.list:
        print("\n".join(LINES))
        return
    clock = {"wall": "perf_counter", "processor": "process_time"}[options.clock]
    setup = Setup(options.quick, 1 if options.quick else options.repeats, clock)
    print(
        f"everyday searches; {platform.machine()}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}, BLAS "
        f"threads {options.threads}, n_jobs 1, {options.clock} seconds, medians\n{HEAD}",
        flush=True,
    )
    for kind in (InexactWarning, CirculantWarning):
        warnings.simplefilter("ignore", kind)
    with threadpool_limits(options.threads):
        warm()
        for name in options.only:
            if name in NEEDS_DATA and not DATA.is_dir():
                print(f"{name}: left out, as there is no ../shared/data beside the project")
                continue
            for line in LINES[name](setup):
                print(line.words(setup), flush=True)


if __name__ == "__main__":
    main()
