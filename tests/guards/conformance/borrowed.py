"""scikit-learn's own tests of its searches and validation functions, with our names in place.

The modules are those of the installed scikit-learn. They are imported while
``sklearn.model_selection`` has our classes and functions, so that every name they take from there,
parametrisations included, is ours.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from unittest.mock import patch

import pytest
import sklearn.experimental.enable_halving_search_cv  # noqa: F401  before names are replaced
from sklearn import model_selection

import everyfold

SEARCHES = {"GridSearchCV": "FastGridSearchCV", "RandomizedSearchCV": "FastRandomizedSearchCV"}
FUNCTIONS = (
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "learning_curve",
    "permutation_test_score",
    "validation_curve",
)


def replaced() -> dict[str, object]:
    """Our names by scikit-learn's."""
    named = SEARCHES | {name: name for name in FUNCTIONS}
    return {
        theirs: getattr(everyfold, ours)
        for theirs, ours in named.items()
        if hasattr(everyfold, ours)
    }


def borrow(name: str) -> ModuleType:
    """A module of ``sklearn.model_selection.tests`` that tests what is ours."""
    with patch.multiple(model_selection, **replaced()):
        return import_module(f"sklearn.model_selection.tests.{name}")


def borrowed(name: str) -> dict[str, object]:
    """The tests of such a module."""
    return collected(borrow(name))


def collected(module: ModuleType) -> dict[str, object]:
    """The tests of a module, such that pytest takes their parametrisations."""
    found = {key: value for key, value in vars(module).items() if key.startswith("test_")}
    for test in found.values():
        test.pytestmark = [_with_list(mark) for mark in getattr(test, "pytestmark", [])]
    return found


def _with_list(mark: pytest.Mark) -> pytest.Mark:
    """A parametrisation whose values are a list: pytest takes no generators any more."""
    if mark.name != "parametrize":
        return mark
    names, values, *rest = mark.args
    return getattr(pytest.mark, mark.name)(names, list(values), *rest, **mark.kwargs).mark
