"""Large problems under a memory cap that a dense kernel matrix would break."""

import os
import platform
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from everyfold.linalg import memory

CAP = 2_500_000_000
"""Bytes of address space; the full matrix of 20,000 rows alone takes 3.2 GB."""


def run_capped(code):
    pytest.importorskip("resource")
    capped = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, ({CAP}, {CAP}))
    """
    script = textwrap.dedent(capped) + textwrap.dedent(code)
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )


DATA = """
    import numpy as np
    from sklearn.datasets import make_moons
    X, y = make_moons(20_000, noise=0.3, random_state=0)
"""


def test_a_huber_svm_search_of_20000_rows_in_little_memory():
    found = run_capped(
        DATA
        + """
    from everyfold import FastGridSearchCV, HuberSVC, Nystrom
    model = HuberSVC(operator=Nystrom(60, random_state=0))
    search = FastGridSearchCV(model, {"gamma": [0.01, 2.0], "C": [0.1, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_["gamma"] == 2.0, search.best_params_
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    print(f"{search.best_score_:.3f} {search.score(X, y):.3f}")
    """
    )
    assert found.returncode == 0, found.stderr
    cross_validated, fitted = map(float, found.stdout.split())
    assert 0.9 < cross_validated <= fitted + 0.01 < 0.95


def test_the_cap_is_one_that_a_dense_matrix_breaks():
    found = run_capped(
        DATA
        + """
    from everyfold import HuberSVC
    HuberSVC(operator="dense").fit(X, y)
    """
    )
    assert found.returncode != 0
    assert "MemoryError" in found.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a lesson for one C library")
def test_freed_pages_are_used_again():
    resource = pytest.importorskip("resource")
    memory.keep_pages()
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):
        np.ones(2**19)  # 4 MB, of 1024 pages
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin < 10 * 1024


def test_no_lesson_where_memory_is_scarce(monkeypatch):
    def empty(*args, **how):
        raise MemoryError

    monkeypatch.setattr(memory.np, "empty", empty)
    memory.keep_pages()


WIDE = """
    import resource
    import numpy as np
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from everyfold import FastGridSearchCV, KernelRegressor, Nystrom
    from everyfold.linalg.memory import PROC, _named
    from everyfold.streams import IteratedRows

    n, d = 22_000, 500
    first = np.random.default_rng(0).random((1000, d))

    def rows():
        for i in range(0, n, 1000):
            X = first + i / n
            yield X, X[:, 0] + X[:, 1] ** 2

    model = make_pipeline(StandardScaler(), KernelRegressor(operator=Nystrom(40, random_state=0)))
    grid = {"kernelregressor__gamma": [1e-3, 1e-2], "kernelregressor__alpha": [1.0, 10.0]}
    search = FastGridSearchCV(model, grid, cv=3, random_state=0)
    most = _named(PROC / "self" / "status", "VmData:", 1024) + 220_000_000
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    search.fit(IteratedRows(rows, n_features=d, n_rows=n))
    print(len(search.best_estimator_[-1].predict(np.zeros((1, d)))), search.plan_)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="limits of data are those of Linux")
def test_landmarks_of_wide_rows_are_drawn_from_as_many_as_memory_allows():
    """The usual 20,000 rows would take 240 MB, of 220 MB that there are."""
    found = run_capped(WIDE)
    assert found.returncode == 0, found.stderr
    assert "landmarks are drawn from 2500 rows, and not from 20000" in found.stdout


@pytest.mark.parametrize(("free", "rows"), [(2 * 10**9, 20_000), (10**9, 10_000), (1000, 1250)])
def test_a_sample_takes_an_eighth_of_the_memory(free, rows, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: free)
    assert memory.sample_rows(400, 50) == rows
    assert memory.sample_rows(400, 1300) >= 1300
    if rows > 1250:
        assert memory.sample_bytes(rows, 400, 50) <= 0.125 * free
