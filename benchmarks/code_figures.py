"""How large the package is, and how much of it five searches enter.

Counts files, lines of code (without blanks, comments and docstrings), comments, modules of a
package, names that are used twice, public names and parameters; and, for a second call of five
searches, the modules and functions of the package that are entered, and how often the order of
first entry changes from one package to another.

Run with ``python benchmarks/code_figures.py``; it measures the everyfold that Python finds, so that
``PYTHONPATH=<another checkout>/src`` gives the figures of that one.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import everyfold
from everyfold import FastGridSearchCV, KernelRegressor, Nystrom

ROOT = Path(everyfold.__file__).parent
GRID = {"alpha": [0.01, 0.1, 1, 10], "gamma": [0.01, 0.03, 0.1, 0.3, 1]}
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def sizes() -> dict[str, int]:
    """The figures of the files."""
    files = sorted(ROOT.rglob("*.py"))
    code = comments = 0
    classes: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    packages: Counter[Path] = Counter()
    for file in files:
        text = file.read_text(encoding="utf-8")
        lines, docstrings = text.split("\n"), set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
        comments += sum(line.strip().startswith("#") for line in lines)
        code += sum(
            bool(line.strip()) and not line.strip().startswith("#") and i not in docstrings
            for i, line in enumerate(lines, start=1)
        )
        if file.stem not in ("__init__", "__main__", "base"):
            modules[file.stem] += 1
        packages[file.parent] += file.stem != "__init__"
    return {
        "files": len(files),
        "lines of code": code,
        "comment lines": comments,
        "most modules in a package": max(packages.values()),
        "names of classes used twice": sum(count > 1 for count in classes.values()),
        "names of modules used twice": sum(count > 1 for count in modules.values()),
        "public names at the top level": len(everyfold.__all__),
        "parameters of FastGridSearchCV": len(inspect.signature(FastGridSearchCV).parameters),
    }


def walk(search: Callable[[], object]) -> tuple[int, int, int]:
    """Modules, functions and changes of package of a second call."""
    search()  # compiles and imports
    entered: dict[tuple[Path, str], None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(ROOT)) and not code.co_name.startswith("<")
        if event == "call" and is_ours:
            entered[Path(code.co_filename), code.co_qualname] = None

    sys.setprofile(note)
    try:
        search()
    finally:
        sys.setprofile(None)
    places = [file.parent for file, _ in entered]
    changes = sum(one != other for one, other in pairwise(places))
    return len({file for file, _ in entered}), len(entered), changes


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((n, 5))
    return X, X[:, 0]


def ridge(n: int) -> Callable[[], object]:
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=5)
    return lambda: search.fit(*rows(n))


def machines() -> Callable[[], object]:
    X, y = rows(300)
    grid = {"svc__C": [0.1, 1.0, 10.0], "svc__gamma": [0.03, 0.1, 0.3]}
    model = make_pipeline(StandardScaler(), SVC())
    search = FastGridSearchCV(model, grid, cv=5)
    return lambda: search.fit(X, y > 0.0)


def leave_one_out() -> Callable[[], object]:
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, cv=LeaveOneOut())
    return lambda: search.fit(*rows(300))


def parquet() -> Callable[[], object]:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    from everyfold.streams import ParquetRows

    X, y = rows(2000)
    columns = {f"x{j}": column for j, column in enumerate(X.T)}
    search = FastGridSearchCV(
        KernelRegressor(operator=Nystrom(50)), {"alpha": [0.1, 1.0], "gamma": [0.1, 1.0]}, cv=5
    )

    def fit() -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rows.parquet"
            write_table(pa.table({**columns, "y": y}), path)
            return search.fit(ParquetRows(path, target="y"))

    return fit


WALKS = {
    "KernelRidge, 500 rows": ridge(500),
    "KernelRidge, 3000 rows": ridge(3000),
    "SVC in a Pipeline, 300 rows": machines(),
    "Parquet, 2000 rows": parquet(),
    "leave-one-out, 300 rows": leave_one_out(),
}


def main() -> None:
    for name, figure in sizes().items():
        print(f"{name:<34}{figure:>8,}")
    print(f"\n{'walk':<34}{'modules':>8}{'functions':>11}{'changes':>9}")
    for name, search in WALKS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            modules, functions, changes = walk(search)
        print(f"{name:<34}{modules:>8}{functions:>11}{changes:>9}", flush=True)


if __name__ == "__main__":
    main()
