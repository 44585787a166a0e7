"""What scikit-learn's tests need of their own configuration, and the list of exceptions."""

import inspect

import pytest

from everyfold.papers import MethodOptions
from tests.guards.conformance.borrowed import replaced
from tests.guards.conformance.exceptions import EXCEPTIONS, LOOSE, SILENT


def pytest_configure(config):
    config.addinivalue_line("markers", "thread_unsafe: a mark of scikit-learn's")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "conformance":
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.xdist_group("numba"))
            reason = EXCEPTIONS.get(item.name) or EXCEPTIONS.get(item.originalname)
            if reason:
                is_strict = item.originalname not in LOOSE
                item.add_marker(pytest.mark.xfail(reason=reason, strict=is_strict))


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(autouse=True)
def _silent_where_warnings_are_counted(request, monkeypatch):
    if request.node.originalname in SILENT:
        for ours in replaced().values():
            function = ours.__init__ if inspect.isclass(ours) else inspect.unwrap(ours)
            defaults = function.__kwdefaults__
            name = "cv_method" if "cv_method" in defaults else "method"
            monkeypatch.setitem(defaults, name, MethodOptions(fallback="refit"))
