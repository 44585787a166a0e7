"""Packages in layers: imports go one way, in no circle, and few factorise."""

import ast
import collections
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import everyfold

ROOT = Path(everyfold.__file__).parent
LAYERS = [
    {"_typing"},
    {"_extensions", "_progress", "_sklearn_private"},
    {"losses", "kernels", "folds"},
    {"io"},
    {"linalg"},
    {"operators"},
    {"solvers", "svm"},
    {"crossval"},
    {"estimators"},
    {"adapters"},
    {"engine"},
    {"papers"},
    {"plotting"},
    {"report"},
    {"gaussian_process"},
    {"functions"},
    {"judge"},
    {"search"},
    {"gradient", "conformal"},
    {"kernel_ridge"},
    {"cli"},
]
FACADES = {"__init__", "bounds", "compile", "criteria", "scorers", "streams"}
"""Modules that only give what is in other packages to users."""

MODULES = sorted(ROOT.rglob("*.py"))
FACTORISING = {"scipy.linalg", "numpy.linalg"}
FACTORISATIONS = {
    *("solve_triangular", "cholesky", "eigh", "eigvalsh", "inv", "pinv", "lstsq", "svd", "qr"),
    "solve",
}


@cache
def tree(path):
    return ast.parse(path.read_text())


def package(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def layer(name):
    return next(i for i, packages in enumerate(LAYERS) if name in packages)


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def factorises(node):
    """Whether NumPy's or SciPy's factorisations are imported or called, products of BLAS aside."""
    if isinstance(node, ast.ImportFrom) and node.module in FACTORISING:
        return bool({alias.name for alias in node.names} - {"blas", "get_blas_funcs"})
    if isinstance(node, ast.ImportFrom) and node.module in ("numpy", "scipy"):
        return "linalg" in {alias.name for alias in node.names}
    if isinstance(node, ast.Import):
        return bool({alias.name for alias in node.names} & FACTORISING)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in FACTORISATIONS
        and ast.unparse(node.value) in {"np.linalg", "numpy.linalg", "scipy.linalg"}
    )


def test_every_package_has_a_layer():
    packages = {package(path) for path in MODULES} - FACADES - {"__main__"}
    assert packages == set().union(*LAYERS)


def test_imports_go_one_way():
    wrong = []
    for path in MODULES:
        if package(path) in FACADES:
            continue
        for module in imported(path):
            if module.startswith("everyfold."):
                other = module.split(".")[1]
                if other != package(path) and layer(other) >= layer(package(path)):
                    wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_a_package_can_be_overseen():
    sizes = collections.Counter(path.parent for path in MODULES if path.stem != "__init__")
    assert not {str(parent.relative_to(ROOT)): n for parent, n in sizes.items() if n > 15}


def test_no_two_modules_have_the_same_name():
    names = collections.Counter(path.stem for path in MODULES)
    assert {name for name, n in names.items() if n > 1} <= {"__init__", "base"}


def test_no_two_classes_have_the_same_name():
    names = collections.Counter(
        node.name
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name: n for name, n in names.items() if n > 1}


def test_no_files_import_each_other_in_a_circle():
    names = {name_of(path): path for path in MODULES if path.stem != "__init__"}
    graph = {name: {m for m in imported(path) if m in names} for name, path in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_only_linalg_factorises():
    wrong = [
        (str(path.relative_to(ROOT)), ast.unparse(node))
        for path in MODULES
        if package(path) != "linalg"
        for node in ast.walk(tree(path))
        if factorises(node)
    ]
    assert not wrong


def test_private_names_stay_in_their_module():
    """``_typing``, ``_extensions``, ``_progress`` and ``_sklearn_private`` serve all packages."""
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            theirs, *inner = node.module.split(".")
            names = [*inner, *(alias.name for alias in node.names)]
            private = {name for name in names if name.startswith("_")}
            if theirs == "everyfold":
                private -= {"_typing", "_extensions", "_progress", "_sklearn_private"}
            if theirs in ("everyfold", "sklearn") and private and path.stem != "_sklearn_private":
                wrong.append((str(path.relative_to(ROOT)), *private))
    assert not wrong


def test_types_say_what_is_passed():
    assert sum(len(re.findall(r"\bAny\b", path.read_text())) for path in MODULES) < 250


AXES = ("losses", "kernels", "operators", "criteria", "estimators/targets.py")
ASKED = {
    "Loss",
    "Kernel",
    "Structure",
    "Operator",
    "SupportsMatmul",
    "SupportsResponse",
    "SupportsSplit",
    "SupportsGradient",
    "Failure",
}
"""What arguments of users are told from others by, abilities, and what is plain data."""


def classes(path):
    return {node.name for node in tree(path).body if isinstance(node, ast.ClassDef)}


def test_axes_ask_each_other_for_facts_and_not_for_classes():
    """A new loss, kernel, operator or target should meet no list of the others."""
    homes = {
        name: package(path)
        for path in MODULES
        if str(path.relative_to(ROOT)).startswith(AXES)
        for name in classes(path) - ASKED
    }
    found = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                if {homes[name] for name in names & homes.keys()} - {package(path)}:
                    found.append(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    # The planner knows its own criteria, a few criteria are defined for a few losses, and options
    # for landmarks or granularities are read from what users pass.
    assert len(found) <= 30, found


def test_public_names_are_sorted_and_exist():
    assert sorted(everyfold.__all__) == sorted(set(everyfold.__all__))
    for name in everyfold.__all__:
        assert getattr(everyfold, name).__doc__


SEARCH = """
import numpy as np
from sklearn.kernel_ridge import KernelRidge
from everyfold import FastGridSearchCV, cross_val_predict

X = np.random.default_rng(0).normal(size=(120, 4))
y = np.sin(X[:, 0])
FastGridSearchCV(KernelRidge(kernel="rbf"), {"alpha": [0.1, 1.0], "gamma": [0.1, 1.0]}).fit(X, y)
cross_val_predict(KernelRidge(kernel="rbf", alpha=0.1), X, y, cv=120)
"""


@pytest.mark.parametrize(
    "code",
    ["import everyfold, everyfold.streams, everyfold.svm.paths, everyfold.search.grid", SEARCH],
    ids=["import", "squared loss"],
)
def test_what_is_slow_to_import_is_imported_where_it_is_used(code):
    slow = {"numba", "sklearn.cluster", "sklearn.datasets"}
    code += f"\nimport sys; sys.exit(', '.join({slow} & set(sys.modules)) or None)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FEATURES = tuple(
    f"everyfold.{name}"
    for name in (
        "papers",
        "gradient",
        "gaussian_process",
        "kernel_ridge",
        "plotting",
        "report",
        "cli",
    )
)
"""Packages above the search that register what they add; a plain search is to load none of them."""


@pytest.mark.parametrize("code", ["import everyfold", SEARCH], ids=["import", "search"])
def test_a_plain_search_loads_no_features(code):
    loaded = f"[m for m in sys.modules if m.startswith({FEATURES})]"
    code += f"\nimport sys; sys.exit(', '.join({loaded}) or None)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BY_NAME = {
    "criterion": """
FastGridSearchCV(LSSVR(gamma=0.1), {"alpha": [0.1, 1.0]}, criterion="gcv").fit(X, y)
""",
    "operator": """
fast = Nystrom(10, replaces="response")
FastGridSearchCV(LSSVR(gamma=0.1, operator=fast), {"alpha": [0.1, 1.0]}, order=1).fit(X, y)
""",
}


@pytest.mark.parametrize("code", BY_NAME.values(), ids=BY_NAME.keys())
def test_a_method_of_a_paper_is_found_by_its_name(code):
    """In a process that has not imported the papers."""
    code = f"""
import sys
import numpy as np
from everyfold import LSSVR, FastGridSearchCV, Nystrom

X = np.random.default_rng(0).normal(size=(60, 2))
y = np.sin(X[:, 0])
assert "everyfold.papers" not in sys.modules
{code}
assert "everyfold.papers" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_that_are_imported_on_first_use_are_listed_and_the_same():
    code = """
import everyfold
from everyfold import *

assert set(everyfold.__all__) <= set(dir(everyfold)) and "__version__" in dir(everyfold)
from everyfold.papers import Circulant as same
assert Circulant is everyfold.Circulant is same
assert not hasattr(everyfold, "NoSuchName")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
