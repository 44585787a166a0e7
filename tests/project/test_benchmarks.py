"""Every script in ``benchmarks`` finds what it imports; none is run here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported(script, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    name = f"imported_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    assert module.__doc__


def test_no_benchmark_hides_a_package():
    # The folder of a script comes first on its path; numba imports coverage where it finds one.
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert not names & {"coverage", *sys.stdlib_module_names}
    specs = filter(None, map(importlib.util.find_spec, names))
    assert {Path(spec.origin).parent for spec in specs if spec.origin} <= {FOLDER}
