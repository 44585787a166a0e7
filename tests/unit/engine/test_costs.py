"""What methods should cost: positive, growing with the problem, refused where it does not fit."""

import subprocess
import sys
import textwrap
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold import (
    FastGridSearchCV,
    HuberSVC,
    KernelClassifier,
    KernelRegressor,
    Nystrom,
    QuadraticSVR,
)
from everyfold.engine.planning import costs
from everyfold.engine.planning.costs import COSTS, SEARCH, CostModel, Workload
from everyfold.engine.planning.squared_loss import METHODS, own_ridge
from everyfold.linalg import memory
from everyfold.operators.base import OperatorSpec

WORK = Workload(400, 400, 4, 1, ((40, 10),))
THIN = replace(WORK, rank=30)
ALL = {
    **{
        name: (lambda work, name=name: METHODS[name].cost(work))
        for name in ("eigen", "explicit", "cholesky", "tridiagonal", "refit", "conjugate")
    },
    "newton fits": costs.newton_fits,
    "newton steps": costs.newton_steps,
    "newton together": lambda work: costs.newton_together(work, is_piecewise=False),
    "pieces together": lambda work: costs.newton_together(work, is_piecewise=True),
    "own ridge": lambda work: own_ridge(work, 5),
    "paths": lambda work: costs.fold_paths(work, (work.n,), is_staged=False),
    "staged paths": lambda work: costs.fold_paths(work, (work.n,), is_staged=True),
    "pairs": lambda work: costs.fold_paths(work, (work.n // 2,) * 3, is_staged=False),
    "tube": lambda work: costs.fold_paths(
        replace(work, is_margin=False), (work.n,), is_staged=False
    ),
    "refitted rows": costs.refitted_rows,
    "single rows": costs.single_rows,
    "smoothed steps": costs.smoothed_steps,
}
OF_ALL_ROWS = {"refitted rows", "single rows"}
"""Methods of leave-one-out, which have as many folds as rows."""


@pytest.mark.parametrize("name", ALL)
class TestEstimates:
    def test_they_grow_with_rows(self, name):
        large = replace(WORK, n=800, rank=800, groups=((80, 10),))
        small, double = ALL[name](WORK), ALL[name](large)
        assert 2.0 < double.seconds / small.seconds <= 8.1
        assert double.memory > small.memory > 0

    def test_they_grow_with_ridges(self, name):
        more = ALL[name](replace(WORK, ridges=8)).seconds
        assert ALL[name](WORK).seconds < more <= 2.0 * ALL[name](WORK).seconds

    def test_they_grow_with_folds(self, name):
        if name in OF_ALL_ROWS:
            return
        more = ALL[name](replace(WORK, groups=((40, 20),))).seconds
        assert ALL[name](WORK).seconds < more <= 2.0 * ALL[name](WORK).seconds


@pytest.mark.parametrize("name", ["newton fits", "newton steps", "newton together"])
def test_low_rank_costs_less(name):
    cost = ALL[name]
    assert cost(THIN).seconds < cost(WORK).seconds
    assert cost(THIN).memory < cost(WORK).memory


def test_kernels_cost_what_they_hold():
    def kernel(n, rank, features=5, **outline):
        found = OperatorSpec(rank, **outline)
        return costs.kernel_cost(n, found, features, is_low_rank=rank < n)

    assert kernel(800, 800).seconds > kernel(400, 400).seconds > kernel(400, 40).seconds
    assert kernel(400, 400, features=500).seconds > kernel(400, 400).seconds
    assert kernel(400, 400, methods=("fourier",)).memory < kernel(400, 40).memory
    assert costs.overhead(4, 10) < costs.overhead(8, 10) < costs.overhead(8, 20)


def test_every_constant_matters():
    def total(cost):
        plans = [METHODS[m].cost(work, cost).seconds for work, m in ROUTES]
        more = [
            costs.fold_paths(WORK, (200, 200), is_staged=False, cost=cost).seconds,
            costs.kernel_cost(400, OperatorSpec(400), 5, is_low_rank=False, cost=cost).seconds,
            costs.overhead(4, 10, cost),
        ]
        return sum(plans) + sum(more)

    for field in fields(CostModel):
        dearer = replace(COSTS, **{field.name: 2.0 * getattr(COSTS, field.name)})
        assert total(dearer) > total(COSTS), field.name


ROUTES = [(WORK, m) for m in ("eigen", "explicit", "cholesky", "tridiagonal", "refit")] + [
    (THIN, "moments")
]

X = np.random.default_rng(0).normal(size=(48, 3))
y = np.sin(X[:, 0]) + X[:, 1]
labels = (y > 0.0).astype(int)
GAMMAS = {"gamma": [0.1, 0.4]}
SEARCHES = {
    "kernel ridge": (KernelRidge(kernel="rbf"), GAMMAS, y, 4),
    "nystrom": (KernelRegressor(operator=Nystrom(10, random_state=0)), GAMMAS, y, 4),
    "own ridge": (RidgeCV(), {"fit_intercept": [True]}, y, 4),
    "newton": (HuberSVC(), GAMMAS, labels, 4),
    "newton steps": (KernelClassifier(loss="logistic"), GAMMAS, labels, KFold(24)),
    "svc": (SVC(), GAMMAS, labels, 4),
    "svc, five classes": (SVC(), GAMMAS, np.arange(48) % 5, 4),
    "svr": (SVR(), GAMMAS, y, 4),
    "svc, single rows": (SVC(), GAMMAS, labels, LeaveOneOut()),
    "svr, single rows": (SVR(), GAMMAS, y, LeaveOneOut()),
    "svr, many folds": (SVR(), GAMMAS, y, KFold(24)),
    "pipeline": (
        make_pipeline(StandardScaler(), SVC()),
        {"svc__gamma": [0.1, 0.4]},
        labels,
        4,
    ),
}


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
@pytest.mark.parametrize("name", SEARCHES)
def test_every_unit_has_seconds_and_bytes(name):
    model, grid, target, cv = SEARCHES[name]
    scoring = "neg_mean_squared_error" if target is y else "accuracy"
    plan = FastGridSearchCV(model, grid, cv=cv, refit=False, scoring=scoring).fit(X, target).plan_
    assert all(unit.seconds > 0.0 and unit.memory > 0 for unit in plan.units)
    assert all(m.seconds > 0.0 and m.memory > 0 for unit in plan.units for m in unit.methods)
    beside = plan.estimate - sum(unit.seconds for unit in plan.units)
    # Compiled code of support vector machines may have to be loaded.
    assert pytest.approx(beside) == SEARCH or name.startswith("sv")
    assert plan.memory == max(unit.memory for unit in plan.units)


def test_the_first_search_counts_the_loading_of_compiled_code():
    """In a process of its own: not before it is loaded, with or without a cache of numba's."""
    code = """
        import os, sys, tempfile
        import numpy as np
        from pathlib import Path
        from sklearn.svm import SVC
        from everyfold import FastGridSearchCV
        X = np.random.default_rng(0).normal(size=(60, 3))
        y = (X[:, 0] > 0.0).astype(int)
        search = FastGridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=3, refit=False)
        os.environ["NUMBA_CACHE_DIR"] = folder = tempfile.mkdtemp()
        compiling = search.plan(X, y).estimate
        Path(folder, "drivers.fold_paths-1.py311.nbi").touch()
        loading = search.plan(X, y).estimate
        import everyfold.svm.core.drivers
        ready = search.plan(X, y).estimate
        print(compiling, loading, ready)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    compiling, loading, ready = map(float, found.stdout.split())
    assert compiling > 3.0 > loading > 0.3 > ready > 0.01


class TestLeavingOutRows:
    """Of support vector machines: what it takes depends on the rows, not on their number alone."""

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 20))
    mixed = (rows[:, 0] + 2.0 * rng.normal(size=500) > 0.0).astype(int)
    apart = (rows[:, 0] > 0.0).astype(int)

    def seconds(self, model, target, rows=rows, **grid):
        plan = self.plan(model, target, rows, **grid)
        (unit,) = plan.units
        return unit.methods[0].seconds

    def plan(self, model, target, rows=rows, **grid):
        scoring = "neg_mean_squared_error" if isinstance(model, SVR) else "accuracy"
        search = FastGridSearchCV(model, grid, cv=LeaveOneOut(), scoring=scoring)
        return search.plan(rows, target)

    @pytest.mark.parametrize("machine", [SVC, SVR])
    def test_linear_kernels_take_more_at_a_large_penalty(self, machine):
        small, large = (
            self.seconds(machine(kernel="linear", C=C), self.mixed) for C in (0.001, 10.0)
        )
        assert large > 10.0 * small
        at_both = self.seconds(machine(kernel="linear"), self.mixed, C=[0.001, 10.0])
        assert at_both == pytest.approx(small + large, rel=0.2)

    def test_classes_that_stand_apart_take_less(self):
        model = SVC(kernel="linear")
        far = self.rows + 3.0 * np.outer(2 * self.apart - 1, np.eye(20)[0])
        mixed, apart = self.seconds(model, self.mixed), self.seconds(model, self.apart, far)
        assert mixed > 5.0 * apart

    def test_what_is_known_of_the_rows_is_the_same_for_a_matrix_of_products(self):
        models = (SVC(kernel=kernel, C=10.0) for kernel in ("linear", "precomputed"))
        known = self.rows, self.rows @ self.rows.T
        one, other = (
            self.seconds(m, self.mixed, rows) for m, rows in zip(models, known, strict=True)
        )
        assert one == pytest.approx(other, rel=0.01)

    def test_a_kernel_that_fails_is_left_to_the_evaluation(self):
        assert self.seconds(SVC(kernel=lambda A, B: 1 / 0), self.mixed) > 0.0

    @pytest.mark.parametrize(("C", "is_told"), [(0.001, False), (10.0, True)])
    def test_a_long_plan_names_the_step(self, C, is_told, monkeypatch):
        """Its share of the time is what decides, whatever is long."""
        monkeypatch.setattr("everyfold.engine.planning.planner.LONG", 0.0)
        plan = self.plan(SVC(kernel="linear", C=C), self.mixed)
        assert ("method='fast' should" in str(plan)) is is_told

    def test_refits_never_take_less_than_those_that_start_from_all_rows(self, monkeypatch):
        monkeypatch.setattr("everyfold.engine.planning.refit_costs.fit_seconds", lambda *_: 0.0)
        monkeypatch.setattr("everyfold.engine.planning.refit_costs.LEAST", 0.0)
        monkeypatch.setattr("everyfold.engine.planning.refit_costs.CALLS", 0.0)
        assert not self.plan(SVC(kernel="linear", C=10.0), self.mixed).plain
        assert self.plan(KernelRidge(kernel="rbf"), self.mixed).plain


NYSTROM = {
    "squared, 5 folds": ("KernelRegressor('squared'", 8000, "KFold(5)"),
    "squared, 200 folds": ("KernelRegressor('squared'", 8000, "KFold(200)"),
    "logistic, 5 folds": ("KernelClassifier('logistic'", 6000, "KFold(5)"),
    "logistic, 100 folds": ("KernelClassifier('logistic'", 1500, "KFold(100)"),
}


@pytest.mark.parametrize("name", NYSTROM)
def test_nystrom_searches_stay_within_the_planned_memory(name):
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    model, rows, cv = NYSTROM[name]
    code = f"""
        import warnings
        from pathlib import Path
        import numpy as np
        from sklearn.model_selection import KFold
        from everyfold import FastGridSearchCV, KernelClassifier, KernelRegressor, Nystrom
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        def used(line):
            # Not ru_maxrss, which begins at the size of the process that started this one.
            lines = Path("/proc/self/status").read_text().splitlines()
            return 1024 * int(next(text for text in lines if text.startswith(line)).split()[1])
        def made(n, rank):
            model = {model}, operator=Nystrom(rank, random_state=0))
            grid = {{"gamma": [0.03, 0.1], "alpha": [0.01, 0.1, 1.0]}}
            X = rng.normal(size=(n, 10))
            y = X[:, 0] > 0.0 if "Classifier" in type(model).__name__ else X[:, 0]
            return FastGridSearchCV(model, grid, cv={cv}, refit=False), X, y
        search, X, y = made(250, 20)
        search.fit(X, y)
        search, X, y = made({rows}, 200)
        before = used("VmRSS")
        search.fit(X, y)
        print((used("VmHWM") - before) / search.plan_.memory)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert 0.6 < float(found.stdout) <= 1.0


# -- memory ------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Fake files of a machine with 8 GB free, and a function that writes more of them."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    return write


class TestAvailableMemory:
    def test_of_the_machine(self, machine):
        assert memory.shared_memory() == 8_000_000 * 1024

    def test_of_a_group_of_version_2(self, machine):
        machine("proc/self/cgroup", "0::/jobs/mine\n")
        machine("groups/jobs/mine/memory.max", "3000\n")
        machine("groups/jobs/mine/memory.current", "1000\n")
        assert memory.shared_memory() == 2000
        machine("groups/jobs/mine/memory.stat", "anon 600\ninactive_file 400\n")
        assert memory.shared_memory() == 2400

    def test_of_the_groups_above(self, machine):
        machine("proc/self/cgroup", "0::/jobs/mine\n")
        machine("groups/jobs/mine/memory.max", "max\n")
        machine("groups/jobs/mine/memory.current", "1000\n")
        machine("groups/jobs/memory.max", "5000\n")
        machine("groups/jobs/memory.current", "1000\n")
        assert memory.shared_memory() == 4000

    def test_of_a_group_of_version_1(self, machine):
        machine("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/mine\n0::/\n")
        machine("groups/memory/mine/memory.limit_in_bytes", "7000\n")
        machine("groups/memory/mine/memory.usage_in_bytes", "2000\n")
        machine("groups/memory/memory.limit_in_bytes", "9223372036854771712\n")
        machine("groups/memory/memory.usage_in_bytes", "2000\n")
        assert memory.shared_memory() == 5000

    def test_what_is_used_up_is_nothing(self, machine):
        machine("proc/self/cgroup", "0::/\n")
        machine("groups/memory.max", "1000\n")
        machine("groups/memory.current", "3000\n")
        assert memory.available_memory() == 0


def test_a_limit_of_the_address_space_is_seen_before_any_kernel():
    pytest.importorskip("resource")
    code = """
        import resource
        import numpy as np
        from sklearn.svm import SVC
        from everyfold import FastGridSearchCV
        from everyfold.kernels import RBF
        from everyfold.linalg.memory import available_memory, process_memory
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        limit = used + 100_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        assert 50_000_000 < process_memory() <= 100_000_000, process_memory()
        assert available_memory() <= process_memory()
        def never(*args):
            raise AssertionError("a kernel was made")
        RBF.base_matrix = RBF.__call__ = never
        X = np.random.default_rng(0).normal(size=(2600, 2))
        try:
            search = FastGridSearchCV(SVC(), {"C": [1.0]}, operator="dense")
            search.fit(X, (X[:, 0] > 0).astype(int))
        except MemoryError as error:
            print(error)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "n_samples=2600" in found.stdout


@pytest.mark.parametrize(("model", "target"), [(SVC(), "labels"), (SVR(), "y")])
def test_machines_that_need_the_full_matrix_name_those_that_do_not(model, target, monkeypatch):
    monkeypatch.setattr(memory, "TRIFLE", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 48**2)
    with pytest.raises(MemoryError, match=r"HuberSVC\(operator=Nystrom.*or QuadraticSVR"):
        FastGridSearchCV(model, {"gamma": [0.1]}).plan(X, {"labels": labels, "y": y}[target])
    with pytest.raises(MemoryError, match=r"operator=Nystrom\(\.\.\.\), or a linear kernel"):
        FastGridSearchCV(KernelRidge(kernel="rbf"), {"gamma": [0.1]}, operator="dense").plan(X, y)
    # Of so few rows what methods hold beside the matrix counts as well.
    monkeypatch.setattr(memory, "available_memory", lambda: 32 * 48**2)
    twin = HuberSVC(operator=Nystrom(8))
    plan = FastGridSearchCV(twin, {"C": [0.5], "gamma": [0.1]}).plan(X, labels)
    assert "rank 8" in str(plan)


class TestWorkers:
    def test_they_need_memory_together(self, monkeypatch):
        grid = {"gamma": [0.1, 0.2, 0.4]}
        free = 3 * 8 * 48**2 * 3
        monkeypatch.setattr(memory, "TRIFLE", 0)
        for name in ("available_memory", "shared_memory"):
            monkeypatch.setattr(memory, name, lambda: free)
        FastGridSearchCV(KernelRidge(kernel="rbf"), grid, n_jobs=1).fit(X, y)
        with pytest.raises(MemoryError, match=r"3 workers .*n_samples=48 .*use n_jobs=[12]"):
            FastGridSearchCV(KernelRidge(kernel="rbf"), grid, n_jobs=3).fit(X, y)

    def test_threads_that_share_a_kernel_need_it_once(self, monkeypatch):
        search, free = FastGridSearchCV(SVC(), {"gamma": [0.1, 1.0]}, n_jobs=4), [2**30]
        monkeypatch.setattr(memory, "TRIFLE", 0)
        for name in ("available_memory", "shared_memory"):
            monkeypatch.setattr(memory, name, lambda: free[0])
        needed = search.plan(X, labels).memory
        free[0] = 3 * needed // 2  # one kernel at a time fits, one for each of two workers does not
        assert search.fit(X, labels).best_score_ > 0.0
        free[0] = needed // 2
        with pytest.raises(MemoryError):
            search.fit(X, labels)

    @pytest.mark.parametrize(
        ("machine", "target", "instead"),
        [(SVC(), labels, HuberSVC), (SVR(), y, QuadraticSVR)],
        ids=["labels", "numbers"],
    )
    @pytest.mark.filterwarnings("ignore:the held-out values:everyfold.InexactWarning")
    def test_what_is_advised_to_machines_takes_the_same_grid(
        self, machine, target, instead, monkeypatch
    ):
        monkeypatch.setattr(memory, "TRIFLE", 0)
        for name in ("available_memory", "shared_memory"):
            monkeypatch.setattr(memory, name, lambda: 8 * 48**2 * 3)  # the kernel, and no more
        grid, how = {"C": [0.5, 2.0], "gamma": [0.1, 0.2]}, {"cv": 4, "order": np.inf}
        with pytest.raises(MemoryError, match="at a time, but") as refused:
            FastGridSearchCV(machine, grid, **how).fit(X, target)
        assert f"{instead.__name__}(operator=Nystrom(1000))" in str(refused.value)
        assert "linear" not in str(refused.value)  # of which SVC has the full kernel, too
        advised = instead(operator=Nystrom(8, random_state=0))
        FastGridSearchCV(advised, grid, **how).fit(X, target)

    def test_a_limit_of_one_process_is_not_shared(self, monkeypatch):
        monkeypatch.setattr(memory, "process_memory", lambda: 1000)
        memory.check_workers(900, 4, 10)
        with pytest.raises(MemoryError, match="fewer rows"):
            memory.check_workers(1100, 1, 10)
