"""A plain search passes through few modules, and through none of features that it does not use."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import everyfold
from everyfold import FastGridSearchCV

ROOT = Path(everyfold.__file__).parent

MOST_MODULES = 38
MOST_FUNCTIONS = 280
# Of the order of first entry: from package to package, with and without those inside packages.
MOST_CHANGES, MOST_CHANGES_OF_LAYERS = 134, 99

# What a search of kernel ridge regression on 500 rows has nothing to do with.
FEATURES = {
    "engine/adaptive/candidate_state",
    "engine/adaptive/low_rank_first",
    "engine/adaptive/pilot_splits",
    "engine/adaptive/racing",
    "engine/adaptive/rank_search",
    "engine/execution/passes",
    "engine/reading/permutations",
    "engine/execution/block_methods",
    "engine/source_data",
    "engine/checkpoint",
    "io/cluster",
    "io/dask",
}
PACKAGES = {"cli", "gradient", "papers", "plotting", "report"}


@pytest.fixture(scope="module")
def walk():
    """Module and function in the order in which a second search first enters them."""
    X = np.random.default_rng(0).standard_normal((500, 5))
    grid = {"alpha": [0.01, 0.1, 1, 10], "gamma": [0.01, 0.03, 0.1, 0.3, 1]}
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=5).fit(X, X[:, 0])
    entered: dict[tuple[str, str], None] = {}

    def note(frame, event, arg):
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(ROOT)) and not code.co_name.startswith("<")
        if event == "call" and is_ours:
            module = Path(code.co_filename).relative_to(ROOT).with_suffix("").as_posix()
            entered[module, code.co_qualname] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        search.fit(X, X[:, 0])
    finally:
        sys.setprofile(before)
    return list(entered)


def changes(places):
    return sum(one != other for one, other in pairwise(places))


def test_few_modules_and_functions(walk):
    assert len({module for module, _ in walk}) <= MOST_MODULES
    assert len(walk) <= MOST_FUNCTIONS


def test_few_changes_of_package(walk):
    modules = [module for module, _ in walk]
    assert changes([module.rpartition("/")[0] for module in modules]) <= MOST_CHANGES
    assert changes([module.partition("/")[0] for module in modules]) <= MOST_CHANGES_OF_LAYERS


def test_no_feature_is_asked_whether_it_is_wanted(walk):
    modules = {module for module, _ in walk}
    assert not FEATURES & modules
    assert not {("linalg/memory", "available_memory")} & set(walk)
    assert not {module for module in modules if module.split("/")[0] in PACKAGES}
