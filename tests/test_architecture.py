"""The house: imports go one way, and only operators factorise."""

import ast
from pathlib import Path

import pytest

import everyfold

ROOT = Path(everyfold.__file__).parent
FLOORS = [
    {"losses", "pairwise", "streams"},
    {"kernels"},
    {"operators"},
    {"_smo_core", "solve"},
    {"lanes"},
    {"smo"},
    {"criteria"},
    {"plan"},
    {"targets"},
    {"model"},
    {"passes"},
    {"estimators"},
    {"adapters", "execute", "metrics", "preprocess"},
    {"engines", "material", "meaning", "scoring"},
    {"units"},
    {"streaming"},
    {"validation"},
    {"search"},
    {"display"},
    {"cli"},
]
MODULES = sorted(ROOT.rglob("*.py"))
FACTORISING = {"scipy.linalg", "numpy.linalg"}


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def floor(name):
    return next(i for i, rooms in enumerate(FLOORS) if name in rooms)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    if path == ROOT / "__init__.py":
        return
    for module in imported(path):
        if module.startswith("everyfold."):
            other = module.split(".")[1]
            assert other == room(path) or floor(other) < floor(room(path)), module


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_operators_factorise(path):
    if room(path) == "operators":
        return
    assert not FACTORISING & set(imported(path))
    names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    assert not names & {"solve_triangular", "cholesky", "eigh", "eigvalsh", "inv", "lstsq", "svd"}


def test_public_names_are_sorted_and_exist():
    assert sorted(everyfold.__all__) == sorted(set(everyfold.__all__))
    for name in everyfold.__all__:
        assert getattr(everyfold, name).__doc__
