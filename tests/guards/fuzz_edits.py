"""Journals across edits: two runs with one journal, and user code edited in between.

A search must not replay what other code has computed. Its second run either raises the journal's
error, or gives what a search without a journal gives; after no edit it replays.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVR

from everyfold import FastGridSearchCV
from everyfold.engine.code_digests import CheckpointError

HELPERS = "fuzz_helpers"
MODULE = "fuzz_user_code"

HELPERS_SOURCE = """
def rounded(values, digits={digits}):
    return values.round(digits)
"""

SOURCE = """
from functools import partial, wraps

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

import fuzz_helpers

POWER = {power}
WEIGHTS = {{"first": np.array([{weight}, 1.0])}}


def traced(function):
    @wraps(function)
    def inside(*arguments):
        return {traced} * function(*arguments)
    return inside


class Base(TransformerMixin, BaseEstimator):
    factor = {attribute}

    def transform(self, X):
        return (np.asarray(X) - self.mean_) * {inherited} * self.factor


class Step(Base):
    def fit(self, X, y=None):
        self.mean_ = {own} * np.asarray(X).mean(axis=0)
        return self


class Scale:
    def __init__(self):
        self.size = 1.0

    def __call__(self, values):
        return values * {method} * self.size


SCALE = Scale()


def size(values, shift={default}):
    return np.abs(values) + shift


@traced
def loss(values):
    return SCALE(size(values)) ** POWER * WEIGHTS["first"][0]


def score(estimator, X, y):
    errors = fuzz_helpers.rounded(np.asarray(estimator.predict(X) - y))
    return -float(np.mean(loss(errors)))


def powered(power):
    def by_power(estimator, X, y):
        return -float(np.mean(np.abs(estimator.predict(X) - y) ** power))
    return by_power


closed = powered({closed})
bound = partial(lambda estimator, X, y, power: score(estimator, X, y) * power, power={bound})


def kernel(x, z):
    return 1.0 / (1.0 + {kernel} * np.sum((x - z) ** 2))


def stretched(X):
    return np.asarray(X) * {stretched} + (lambda values: {nested} * values)(np.asarray(X)) ** 2
"""

USUAL: dict[str, Any] = {
    "digits": 6,
    "power": 1.0,
    "weight": 1.0,
    "traced": 1.0,
    "attribute": 1.0,
    "inherited": 1.0,
    "own": 1.0,
    "method": 1.0,
    "default": 0.0,
    "closed": 2.0,
    "bound": 1.0,
    "kernel": 0.3,
    "stretched": 1.0,
    "nested": 0.1,
}
EDITS = {name: value + 0.5 for name, value in USUAL.items()} | {"digits": 1}


def written(folder: Path, values: dict[str, Any], comment: str = "") -> ModuleType:
    """The user's modules as a new process would import them."""
    (folder / f"{HELPERS}.py").write_text(HELPERS_SOURCE.format(**values))
    (folder / f"{MODULE}.py").write_text(SOURCE.format(**values) + comment)
    for name in (HELPERS, MODULE):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    linecache.clearcache()
    return importlib.import_module(MODULE)


def searched(code: ModuleType, style: str, data: Any, journal: Path | None) -> Any:
    """A search that uses the user's code, and all of it for a style that is edited."""
    model, grid = Ridge(), {"model__alpha": [0.1, 1.0, 10.0]}
    scoring = {"closed": code.closed, "bound": code.bound}.get(style, code.score)
    if style == "kernel":
        model = KernelRidge(kernel=code.kernel)
    elif data[0][0, 0] > 0.5:  # three cases of ten
        model, grid = SVR(), {"model__C": [0.1, 1.0]}
    step = FunctionTransformer(code.stretched) if style in ("stretched", "nested") else code.Step()
    estimator = Pipeline([("step", step), ("model", model)])
    search = FastGridSearchCV(estimator, grid, cv=4, scoring=scoring, checkpoint=journal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return search.fit(*data).cv_results_["mean_test_score"]


def examine_edit(seed: int) -> str:
    """What is wrong with the second run, in words; none if nothing is."""
    rng = np.random.default_rng([seed, 29])
    X = rng.normal(size=(40, 3))
    data = X, X[:, 0] + 0.3 * rng.normal(size=40)
    style = str(rng.choice([*USUAL, "nothing", "comment"]))
    values = USUAL | ({style: EDITS[style]} if style in USUAL else {})
    caching, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sys.path.insert(0, name)
        try:
            journal = folder / "search.journal"
            searched(written(folder, USUAL), style, data, journal)
            comment = "\n# a comment\n" if style == "comment" else ""
            code = written(folder, values, comment)
            fresh = searched(code, style, data, None)
            try:
                again = searched(code, style, data, journal)
            except CheckpointError as error:
                return f"refused after {style}: {error}" if style == "nothing" else ""
            same = np.array_equal(again, fresh)
            return "" if same else f"edit of {style!r} replayed: {again}, fresh {fresh}"
        finally:
            sys.path.remove(name)
            sys.dont_write_bytecode = caching
            for module in (HELPERS, MODULE):
                sys.modules.pop(module, None)
