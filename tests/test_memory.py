"""Large problems under a memory cap that a dense kernel matrix would break."""

import platform
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from everyfold.operators import memory

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
