"""Estimates of plans against what was measured: seconds and peak memory of sixteen searches.

Every search runs in a process of its own, after a small one of the same kind that compiles and
loads what it needs. The last column has the constants of the cost model (``CostModel``) that make
up most of an estimate; the table below says, for each constant, by which factor the problems that
depend on it were off: a factor far from 1 there is a constant (or a count beside it) to correct.

Run with ``python benchmarks/plans.py [--only NAME ...] [--threads 2] [--scale 1.0] [--cpu]``. It
takes some minutes and 2 GB; ``--scale 0.2`` has a fifth of the rows, to try it. ``--cpu`` takes the
time of the processor, for a machine that is busy with other things (with ``--threads 1``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, LeaveOneOut, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV, KernelClassifier, KernelRegressor, Nystrom
from everyfold.engine.planning.costs import COSTS, CostModel
from everyfold.io.arrays import ArrayRows

RIDGES = np.logspace(-3, 1, 8).tolist()
CS = np.logspace(-1, 2, 8).tolist()
GAMMAS = [0.03, 0.1, 0.3]
WARM = 150
"""Rows of the search before the measured one."""

COMPILED = "everyfold.linalg.batched", "everyfold.svm.core.drivers", "everyfold.svm.core.drivers"
"""Modules that are loaded when they are first needed, with a compiler of 150 MB."""

SECONDS_WITHIN, MEMORY_WITHIN = 2.0, 1.5

Data = tuple[Any, Any]


def numbers(n: int) -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def classes(n: int, count: int = 2) -> Data:
    X, y = make_classification(
        n, 10, n_informative=6, n_classes=count, flip_y=0.1, class_sep=0.7, random_state=0
    )
    return X, y


def stream(n: int) -> Data:
    return ArrayRows(*numbers(n)), None


def five(n: int) -> Data:
    return classes(n, 5)


def named(step: str, **grid: Any) -> dict[str, Any]:
    return {f"{step}__{name}": values for name, values in grid.items()}


@dataclass(frozen=True)
class Case:
    """A search: its rows, how they are made, the estimator, its grid, and further options."""

    rows: int
    make: Callable[[int], Data]
    model: Any
    grid: dict[str, Any]
    cv: Any = 5
    options: tuple[tuple[str, Any], ...] = ()

    def search(self) -> FastGridSearchCV:
        """A new one."""
        return FastGridSearchCV(
            self.model, self.grid, cv=self.cv, refit=False, **dict(self.options)
        )


RBF = KernelRidge(kernel="rbf")
SHARED = {"gamma": GAMMAS, "alpha": RIDGES}
MACHINES = {"gamma": GAMMAS, "C": CS}
DENSE = (("operator", "dense"),)
MSE = (("scoring", "neg_mean_squared_error"),)
LANDMARKS = Nystrom(300, random_state=0)

CASES = {
    "dense 3000": Case(3000, numbers, RBF, SHARED, options=DENSE),
    "dense 6000": Case(6000, numbers, RBF, {"gamma": [0.1], "alpha": RIDGES}, options=DENSE),
    "low rank first": Case(4000, numbers, RBF, SHARED),
    "leave-one-out": Case(2000, numbers, RBF, SHARED, LeaveOneOut(), MSE),
    "100 x 10 folds": Case(
        1000, numbers, RBF, SHARED, RepeatedKFold(n_splits=10, n_repeats=100, random_state=0)
    ),
    "nystrom": Case(20_000, numbers, KernelRegressor(operator=LANDMARKS), SHARED, KFold(10)),
    "stream": Case(100_000, stream, KernelRegressor(operator=LANDMARKS), SHARED, 10),
    "svc 1000": Case(1000, classes, SVC(), MACHINES),
    "svc 5000": Case(5000, classes, SVC(), MACHINES),
    "svr": Case(2000, numbers, SVR(), MACHINES),
    "svc leave-one-out": Case(1000, classes, SVC(), MACHINES, LeaveOneOut()),
    "pipeline krr": Case(
        2000,
        numbers,
        make_pipeline(StandardScaler(), RBF),
        named("kernelridge", **SHARED),
    ),
    "pipeline svc": Case(
        2000, classes, make_pipeline(StandardScaler(), SVC()), named("svc", **MACHINES)
    ),
    "logistic": Case(
        1000, classes, KernelClassifier(loss="logistic"), {"gamma": GAMMAS, "alpha": RIDGES[::2]}
    ),
    "five classes": Case(2000, five, SVC(), MACHINES),
    "ridge": Case(20_000, numbers, Ridge(), {"alpha": RIDGES, "fit_intercept": [True, False]}, 10),
}


@dataclass(frozen=True)
class Result:
    """What one search was estimated to take, and what it took."""

    name: str
    estimate: float
    seconds: float
    memory: float
    peak: float
    shares: dict[str, float]
    """Of the estimate, by constant."""
    method: str

    @property
    def ratio(self) -> float:
        """Of seconds: measured by estimated."""
        return self.seconds / self.estimate

    @property
    def memory_ratio(self) -> float:
        """Of bytes: measured by estimated."""
        return self.peak / self.memory


def shares(search: FastGridSearchCV, X: Any, y: Any, estimate: float) -> dict[str, float]:
    """How much of the estimate is due to each constant: what 1 % more of it adds, times 100."""
    found = {}
    for field in fields(CostModel):
        value = getattr(COSTS, field.name)
        object.__setattr__(COSTS, field.name, 1.01 * value)
        found[field.name] = 100.0 * (search.plan(X, y).estimate / estimate - 1.0)
        object.__setattr__(COSTS, field.name, value)
    return {name: share for name, share in found.items() if share > 0.02}


def resident() -> float:
    """Bytes in use now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * resource.getpagesize()


def measure(name: str, options: argparse.Namespace) -> Result:
    case, threads, scale = CASES[name], options.threads, options.scale
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in COMPILED:
            importlib.import_module(module)
        case.search().fit(*case.make(WARM))
        X, y = case.make(max(WARM, int(scale * case.rows)))
        before, start = resident(), time.process_time()
        search = case.search().fit(X, y)
        taken = time.process_time() - start if options.cpu else search.plan_.seconds
        peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        plan = search.plan_
        made = shares(search, X, y, plan.estimate)
    words = ", ".join(words for words, _ in plan.methods)
    return Result(name, plan.estimate, taken, float(plan.memory), peak, made, words)


def in_process(name: str, options: argparse.Namespace) -> Result | None:
    command = [sys.executable, __file__, "--child", name, "--threads", str(options.threads)]
    command += ["--scale", str(options.scale), *(["--cpu"] if options.cpu else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name:<18} failed: {done.stderr.strip().splitlines()[-1]}")
        return None
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def within(ratio: float, limit: float) -> str:
    return "yes" if 1.0 / limit <= ratio <= limit else "NO"


def show(result: Result) -> None:
    top = sorted(result.shares.items(), key=lambda item: -item[1])[:4]
    words = ", ".join(f"{name} {share:.0%}" for name, share in top)
    print(
        f"{result.name:<18} {result.estimate:9.3g} {result.seconds:9.3g} {result.ratio:7.2f} "
        f"{within(result.ratio, SECONDS_WITHIN):>4} {result.memory / 1e6:9.0f} "
        f"{result.peak / 1e6:9.0f} {result.memory_ratio:7.2f} "
        f"{within(result.memory_ratio, MEMORY_WITHIN):>4}   {words}",
        flush=True,
    )


def blame(results: list[Result]) -> None:
    """By which factor the problems that depend on a constant were off, weighted by its share."""
    print(f"\n{'constant':<18} {'in use':>9} {'off by':>7} {'weight':>7}   mostly seen in")
    for field in fields(CostModel):
        seen = [(r.shares.get(field.name, 0.0), r) for r in results]
        weight = sum(share for share, _ in seen)
        if weight == 0.0:
            continue
        off = math.exp(sum(share * math.log(r.ratio) for share, r in seen) / weight)
        top = sorted(seen, key=lambda item: -item[0])[:3]
        where = ", ".join(f"{r.name} ({share:.0%})" for share, r in top if share > 0.1)
        value = getattr(COSTS, field.name)
        print(f"{field.name:<18} {value:9.2g} {off:7.2f} {weight:7.2f}   {where}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="NAME")
    parser.add_argument("--threads", type=int, default=2, help="BLAS threads")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--cpu", action="store_true", help="time of the processor")
    parser.add_argument("--words", action="store_true", help="print the methods, too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asdict(measure(options.child, options))))
        return
    print(f"{platform.machine()}, BLAS threads {options.threads}, rows × {options.scale:g}")
    print(
        f"{'problem':<18} {'estimate':>9} {'seconds':>9} {'ratio':>7} {'2x':>4} {'MB':>9} "
        f"{'peak MB':>9} {'ratio':>7} {'1.5x':>4}   made of"
    )
    results = []
    for name in options.only or CASES:
        result = in_process(name, options)
        if result is not None:
            results.append(result)
            show(result)
            if options.words:
                print(f"{'':<18} {result.method}")
    if results:
        blame(results)


if __name__ == "__main__":
    main()
