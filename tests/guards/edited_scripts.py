"""A script whose search has a journal, edited in every way.

Called as ``python -m tests.guards.edited_scripts DIR``.

The script is run to its end once. Then it is run again after each edit, with the same journal. Runs
are forks of this process, so that packages are imported once. Prints a line of JSON for each run:
the name of the edit, what was raised, and how many scores were made anew.
"""

import json
import os
import runpy
import shutil
import sys
import traceback
from pathlib import Path

FILES = {
    "script.py": '''
import functools
from collections import namedtuple
from enum import Enum

import numpy as np
from joblib import parallel_config
from numba import njit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import make_scorer, mean_squared_error as error
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import rules
from everyfold import FastGridSearchCV
from pack import inner
from rules import shifted

SIGN = 1.0
TABLE = {"a": 1.0, "b": [2.0, {3, 4}]}
KEPT = np.arange(3.0)
UNUSED = 1
Pair = namedtuple("Pair", "first second")
PAIR = Pair(1.0, 2.0)
RING = [1.0]
RING.append(RING)


class Kind(Enum):
    small = 1
    large = 2


class Meta(type):
    def factor(cls):
        return 1.5


class Base(metaclass=Meta):
    inherited = 0.25

    def scaled(self, X):
        return X * 0.5


class Scale(TransformerMixin, BaseEstimator, Base):
    """Scales."""

    offset = 0.125

    def __init__(self, by=1.0):
        self.by = by

    def fit(self, X, y=None):
        self.is_fitted_ = True
        return self

    @property
    def added(self):
        return 0.1

    @staticmethod
    def stretched(X):
        return X * 1.25

    @functools.cached_property
    def slow(self):
        return 0.5

    def transform(self, X):
        """Transforms."""
        self_ = super().scaled(X)
        return self.stretched(self_ * self.by) * type(self).factor() + self.added + self.slow


class Held:
    def __init__(self, value):
        self.value = value

    def __call__(self, p):
        return self.value * float(np.mean(p))


HELD = Held(0.0)


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args):
        return 2.0 * function(*args)

    return wrapper


@doubled
def helper(y, p):
    return SIGN * error(y, p)


@functools.lru_cache
def kept_value():
    return 0.3


@njit
def compiled(x):
    return x + 0.7


@functools.singledispatch
def dispatched(x):
    return 0.0


@dispatched.register
def _(x: float):
    return 0.9


def even(k):
    return 0.0 if k == 0 else odd(k - 1)


def odd(k):
    return 0.5 if k == 0 else even(k - 1)


def unused():
    return 1


def made(k):
    def inside(p, *, more=0.5):
        return k + more + (lambda: 0.11)()

    return inside


inside = made(2.0)
bound = functools.partial(rules.bound, 3.0)
plain = lambda p: [q * 0.01 for q in (1.0, 2.0)][0]


def score(y, p, extra=1.0):
    """Scores."""
    import late
    from pack.deep import deepest

    with open("calls", "a") as calls:
        calls.write("x")
    found = helper(y, p) + rules.penalty(p) + inner.small(p) + late.extra(p) + deepest(p) + extra
    found += TABLE["a"] + KEPT[0] + PAIR.first + HELD(p) + kept_value() + compiled(1.0)
    found += inside(p) + bound(p) + plain(p) + shifted(p) + dispatched(1.0) + Kind.small.value
    found += RING[1][0] + even(3)
    return -found


def kernel(a, b):
    return float(np.exp(-0.1 * ((a - b) ** 2).sum()))


def choose(results):
    return int(np.argmax(results["mean_test_score"]))


rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=30)
steps = [
    ("scale", Scale()),
    ("more", FunctionTransformer(lambda X: X * 1.01)),
    ("ridge", KernelRidge(kernel="rbf")),
]
made_search = FastGridSearchCV(
    Pipeline(steps),
    {"ridge__kernel": ["rbf", kernel], "ridge__alpha": [0.1, 1.0]},
    cv=3,
    scoring=make_scorer(score, extra=2.0),
    refit=choose,
    n_jobs=1,
    checkpoint="journal",
)
with parallel_config("threading"):
    made_search.fit(X, y)
''',
    "rules.py": """
import functools

LEVEL = 0.1


def penalty(p):
    return LEVEL * level_of(p)


def level_of(p):
    return 1.0


def bound(a, p):
    return a * 0.001


def shifted(p):
    return 0.001


def other(p):
    return 0.0
""",
    "late.py": "def extra(p):\n    return 0.02\n",
    "pack/__init__.py": "",
    "pack/inner.py": "from .deep import WEIGHT\n\n\ndef small(p):\n    return 0.03 * WEIGHT\n",
    "pack/deep.py": "WEIGHT = 2.0\n\n\ndef deepest(p):\n    return 0.04\n",
}

CHANGES = {
    "global": ("script.py", "SIGN = 1.0", "SIGN = -1.0", "global `SIGN` of module __main__"),
    "dict": ("script.py", "{3, 4}", "{3, 5}", "global `TABLE` of module __main__"),
    "array": ("script.py", "np.arange(3.0)", "np.arange(4.0)", "global `KEPT` of module __main__"),
    "pair": ("script.py", "Pair(1.0,", "Pair(1.5,", "global `PAIR` of module __main__"),
    "object": ("script.py", "Held(0.0)", "Held(1.0)", "global `HELD` of module __main__"),
    "import": (
        "script.py",
        "mean_squared_error as",
        "mean_absolute_error as",
        "global `error` of module __main__",
    ),
    "call": ("script.py", "self.value * float", "float", "function `Held.__call__` of module"),
    "ring": ("script.py", "RING = [1.0]", "RING = [2.0]", "global `RING` of module __main__"),
    "mutual": ("script.py", "0.5 if k == 0", "0.6 if k == 0", "function `odd` of module"),
    "enum": ("script.py", "small = 1", "small = 3", "class `Kind` of module __main__"),
    "method": ("script.py", "self_ * self.by", "self_ + self.by", "function `Scale.transform` of"),
    "attribute": ("script.py", "offset = 0.125", "offset = 1.0", "class `Scale` of module"),
    "property": ("script.py", "return 0.1\n", "return 0.2\n", "function `Scale.added` of module"),
    "static": ("script.py", "X * 1.25", "X * 2.25", "function `Scale.stretched` of module"),
    "cached": ("script.py", "return 0.5\n", "return 0.6\n", "function `Scale.slow` of module"),
    "base": ("script.py", "X * 0.5", "X * 0.6", "function `Base.scaled` of module __main__"),
    "of base": ("script.py", "inherited = 0.25", "inherited = 0.5", "class `Base` of module"),
    "metaclass": ("script.py", "return 1.5", "return 2.5", "function `Meta.factor` of module"),
    "bases": ("script.py", "BaseEstimator, Base)", "Base, BaseEstimator)", "class `Scale` of"),
    "helper": ("script.py", "return SIGN *", "return -SIGN *", "function `helper` of module"),
    "decorator": ("script.py", "return 2.0 * f", "return 3.0 * f", "function `helper` of module"),
    "lru_cache": ("script.py", "return 0.3", "return 0.4", "function `kept_value` of module"),
    "compiled": ("script.py", "x + 0.7", "x + 0.8", "function `compiled` of module __main__"),
    "dispatch": ("script.py", "return 0.9", "return 0.8", "function `_` of module __main__"),
    "closure": ("script.py", "made(2.0)", "made(3.0)", "function `made.<locals>.inside` of"),
    "default": ("script.py", "more=0.5", "more=0.6", "function `made.<locals>.inside` of module"),
    "nested": ("script.py", "0.11", "0.12", "function `made.<locals>.inside` of module"),
    "partial": ("script.py", "bound, 3.0", "bound, 4.0", "global `bound` of module __main__"),
    "lambda": ("script.py", "q * 0.01", "q * 0.02", "function `<lambda>` of module __main__"),
    "step": ("script.py", "X * 1.01", "X * 1.02", "function `<lambda>` of module __main__"),
    "kernel": ("script.py", "-0.1 *", "-0.2 *", "function `kernel` of module __main__"),
    "refit": ("script.py", "np.argmax", "np.argmin", "function `choose` of module __main__"),
    "scorer": ("script.py", "return -found", "return found", "function `score` of module"),
    "argument": ("script.py", "extra=2.0", "extra=3.0", "options (scoring)."),
    "parameter": ("script.py", "Scale()", "Scale(2.0)", "candidates (estimator)."),
    "module": ("rules.py", "return 1.0", "return 2.0", "function `level_of` of module rules"),
    "module global": ("rules.py", "LEVEL = 0.1", "LEVEL = 0.2", "global `LEVEL` of module rules"),
    "of partial": ("rules.py", "a * 0.001", "a * 0.002", "function `bound` of module rules"),
    "imported": ("rules.py", "return 0.001", "return 0.002", "function `shifted` of module rules"),
    "late import": ("late.py", "0.02", "0.03", "function `extra` of module late"),
    "package": ("pack/inner.py", "0.03", "0.04", "function `small` of module pack.inner"),
    "submodule": ("pack/deep.py", "0.04", "0.05", "function `deepest` of module pack.deep"),
    "relative": ("pack/deep.py", "2.0", "3.0", "global `WEIGHT` of module pack.inner"),
}
"""By name: a file, what is replaced in it by what, and what the message names."""

HARMLESS = {
    "nothing": ("script.py", "", ""),
    "comments": ("script.py", "def score(", "# A comment.\n\n\ndef score("),
    "comment inside": ("script.py", "    found += TABLE", "    # More.\n\n    found += TABLE"),
    "docstrings": ("script.py", '"""Scores."""', '"""Scores by several rules."""'),
    "class docstring": ("script.py", '"""Scales."""', '"""Scales and shifts."""'),
    "unused": ("script.py", "UNUSED = 1", "UNUSED = 2"),
    "unused function": ("script.py", "    return 1\n", "    return 2\n"),
    "of module": ("rules.py", "return 0.0\n", "return 1.0\n"),
    "jobs": ("script.py", "n_jobs=1", "n_jobs=2"),
    "comment of module": ("rules.py", "LEVEL", "# A comment.\nLEVEL"),
}

REFUSED = {
    "file": ("script.py", "HELD = Held(0.0)", "HELD = Held(open('script.py'))", "global `HELD`"),
    "generator": ("script.py", "KEPT = np.arange(3.0)", "KEPT = (k for k in 'ab')", "`KEPT`"),
}


def as_script(path):
    """Run a script from its file."""
    runpy.run_path(path, run_name="__main__")


def run(folder, work=as_script):
    """Run the script in a fork of this process; what it raised, and how many scores it made."""
    (folder / "calls").unlink(missing_ok=True)
    child = os.fork()
    if not child:
        raised = ""
        try:
            os.chdir(folder)
            sys.path.insert(0, str(folder))
            work("script.py")
        except BaseException as error:
            traceback.print_exc()
            raised = f"{type(error).__name__}: {error}"
        finally:
            (folder / "raised").write_text(raised)
            os._exit(0)
    os.waitpid(child, 0)
    calls = folder / "calls"
    return (folder / "raised").read_text(), len(calls.read_text()) if calls.exists() else 0


def in_cells(path):
    """Run a script as a notebook does: piece by piece, each from a file of some other name."""
    names = {"__name__": "__main__"}
    for k, cell in enumerate(Path(path).read_text().split("\n\n\n")):
        exec(compile(cell, f"<cell {k} of {os.getpid()}>", "exec"), names)


def edited(origin, name, file, old, new):
    """A copy of the folder with one edit."""
    folder = origin.parent / name.replace(" ", "_")
    shutil.copytree(origin, folder)
    source = (folder / file).read_text()
    assert old in source, (name, old)
    (folder / file).write_text(source.replace(old, new, 1))
    return folder


def write(folder):
    """The script and its modules, unedited."""
    for file, text in FILES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


def tell(name, found):
    print(json.dumps([name, *found]), flush=True)


def main(place):
    sys.dont_write_bytecode = True
    origin = Path(place) / "origin"
    if origin.exists():  # written by another process
        tell("again", run(origin))
        return
    write(origin)
    tell("first", run(origin))
    notebook = edited(origin, "notebook", "script.py", "", "")
    (notebook / "journal").unlink()
    tell("first in cells", run(notebook, in_cells))
    tell("cells", run(notebook, in_cells))
    for name, change in {**CHANGES, **HARMLESS}.items():
        tell(name, run(edited(origin, name, *change[:3])))
    for name, change in REFUSED.items():
        folder = edited(origin, name, *change[:3])
        (folder / "journal").unlink()
        tell(name, run(folder))


if __name__ == "__main__":
    import everyfold  # noqa: F401  # once, for all forks

    main(sys.argv[1])
