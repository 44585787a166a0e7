"""The end of a process: no thread of ours is left, and no other needs the interpreter."""

import re
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table
from sklearn.datasets import load_breast_cancer
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut
from sklearn.svm import SVC, SVR

from everyfold import (
    FastCalibratedClassifierCV,
    FastGradientSearchCV,
    FastGridSearchCV,
    KernelRegressor,
    Nystrom,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)
from everyfold.cli import readers
from everyfold.io.arrays import ArrayRows
from everyfold.io.tables import CsvRows

READS = 100
"""Of a file; 3 to 70 in 100 were let go by a thread of Arrow's."""

X, y = load_breast_cancer(return_X_y=True)
X = X[:200, :4] / X[:200, :4].std(axis=0)
y = y[:200]


def written(folder, kind):
    path, columns = folder / f"rows.{kind}", {"a": X[:40, 0], "b": X[:40, 1], "y": y[:40]}
    if kind == "parquet":
        write_table(pa.table(columns), path)
    else:
        rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(["a,b,y", *rows]))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_no_thread_of_arrow_lets_go_of_memory_of_python(tmp_path, monkeypatch, kind):
    """Such a thread would abort the process if it came just after the end of the interpreter."""
    path, here, elsewhere = written(tmp_path, kind), threading.get_ident(), []

    def gone():
        if threading.get_ident() != here:
            elsewhere.append(threading.get_ident())

    def watched(memory):
        if isinstance(memory, bytes):
            memory = np.frombuffer(memory, np.uint8).copy()
            weakref.finalize(memory, gone).atexit = False
        return pa.BufferReader(memory)

    shown = type(pa)("pyarrow")
    shown.__dict__.update(pa.__dict__, BufferReader=watched)
    monkeypatch.setattr(readers, "pa", shown)
    for _ in range(READS):
        assert len(readers.read_file(path).columns) == 3
    time.sleep(0.2)
    assert elsewhere == []


def sources():
    return FastGridSearchCV(
        KernelRegressor(operator=Nystrom(12, random_state=0)), {"alpha": [0.1, 1.0]}, cv=3, n_jobs=2
    ).fit(ArrayRows(X, y))


CALLS = {
    "search": lambda: FastGridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=3, n_jobs=2).fit(X, y),
    "ridge": lambda: FastGridSearchCV(KernelRidge(), {"alpha": [0.1, 1.0]}, cv=3).fit(X, y),
    "gradient": lambda: FastGradientSearchCV(KernelRegressor(), max_iter=3, cv=3).fit(X, y),
    "leave_one_out": lambda: cross_val_score(SVC(kernel="linear"), X, y, cv=LeaveOneOut()),
    "score": lambda: cross_val_score(SVR(), X, y, cv=3),
    "predict": lambda: cross_val_predict(SVC(), X, y, cv=3),
    "permutations": lambda: permutation_test_score(SVC(), X, y, cv=3, n_permutations=5),
    "calibration": lambda: FastCalibratedClassifierCV(SVC(), cv=3).fit(X, y),
    "source": sources,
}


@pytest.mark.parametrize("name", CALLS)
def test_no_thread_is_left(name):
    before = set(threading.enumerate())
    CALLS[name]()
    left = set(threading.enumerate()) - before
    # Joblib keeps its workers for the next call, and ends them itself.
    assert [t for t in left if not re.search("Executor|QueueFeeder", f"{type(t)} {t.name}")] == []


def test_no_thread_is_left_by_a_reader_that_is_given_up(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "1,2\n" * 500_000)
    before = set(threading.enumerate())
    blocks = CsvRows(path, target="y").blocks(10)
    next(blocks)
    blocks.close()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("arguments", [["--proba"], ["--proba", "--save", "model.skops"]])
def test_the_command_line_ends_without_a_word(tmp_path, arguments):
    path = written(tmp_path, "csv")
    command = [sys.executable, "-c", "from everyfold.cli import main; main()", "search", path]
    options = ["--model", "svc", "--grid", "C=1", "--grid", "gamma=0.1", "--cv", "3", *arguments]
    done = subprocess.run(
        [*map(str, command), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 2), done.stderr
    assert all(line.startswith("everyfold: ") for line in done.stderr.splitlines())
