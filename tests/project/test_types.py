"""The types that users see: the guide passes ``mypy --strict``, and misspelt options do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.test_docs import ROOT, blocks

pytest.importorskip("mypy")
pytestmark = pytest.mark.xdist_group("mypy")  # one process reads the package, for all tests

WRONG = {
    'FastGridSearchCV(SVC(), {"C": [1.0]}, method="bif")': "method",
    'MethodOptions(ridge_scaling="men")': "ridge_scaling",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, preprocessing="never")': "preprocessing",
    'MethodOptions(keeps="some")': "keeps",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, operator="nystrom")': "operator",
    'MethodOptions(criterion="gcw")': "criterion",
    'MethodOptions(n_confirm="all")': "n_confirm",
    'FastRandomizedSearchCV(SVC(), {"C": [1.0]}, method="bif")': "method",
    'cross_val_score(SVC(), X, y, method="bif")': "method",
    'cross_val_predict(SVC(), X, y, method="probabilities")': "method",
    'cross_validate(SVC(), X, y, preprocessing="never")': "preprocessing",
    'permutation_test_score(SVC(), X, y, preprocessing="never")': "preprocessing",
    'FastCalibratedClassifierCV(SVC(), method="platt")': "method",
    'FastCrossConformalRegressor(SVC(), method="jackknife")': "method",
    'Nystrom(100, sampling="leverage")': "sampling",
    'Nystrom(100, replaces="fit")': "replaces",
    'KernelRegressor(loss="absolute")': "loss",
    'KernelClassifier(multi_class="all")': "multi_class",
    'choose_granularity(0.1, ridge=1.0, smoothing=0.1, rule="best")': "rule",
}


NAMES = {call.partition("(")[0] for call in WRONG}
HEAD = [
    "import numpy as np",
    "from sklearn.svm import SVC",
    f"from everyfold import {', '.join(sorted(NAMES - {'MethodOptions'}))}",
    "from everyfold.papers import MethodOptions",
    "X, y = np.zeros((2, 2)), np.zeros(2)",
]
PAGES = ("search", "judge", "models", "start", "coming-from")


def program(page: str) -> str:
    """The examples of a page as one file, with its line numbers."""
    source = ""
    for line, block in blocks((ROOT / "docs" / page).read_text("utf-8")):
        source += "\n" * (line - 1 - source.count("\n")) + block + "\n"
    return source


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What ``mypy --strict`` says of each file, line by line; without a cache, which may fail."""
    folder: Path = tmp_path_factory.mktemp("typed")
    sources = {f"{page.replace('-', '_')}.py": program(f"{page}.md") for page in PAGES}
    sources["misspelt.py"] = "\n".join([*HEAD, *WRONG, ""])
    for name, source in sources.items():
        (folder / name).write_text(source, "utf-8")
    (folder / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nallow_redefinition = true\nlocal_partial_types = true\n"
        "[mypy-sklearn.*,numba.*,joblib.*,pyarrow.*,threadpoolctl.*,skops.*]\n"
        "ignore_missing_imports = true\n",
        "utf-8",
    )
    how = ["--config-file", "mypy.ini", "--cache-dir", os.devnull, "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *how, "--no-pretty", "--show-traceback", *sources],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    said = [line for line in done.stdout.splitlines() if ": error:" in line]
    found = {name: [line for line in said if line.startswith(f"{name}:")] for name in sources}
    assert sum(map(len, found.values())) == len(said), said
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_guide_is_typed(errors, page):
    assert errors[f"{page.replace('-', '_')}.py"] == []


def test_misspelt_options_are_errors(errors):
    """Every call has one mistake, and mypy finds it in the argument that has it."""
    lines = {int(text.split(":")[1]): text for text in errors["misspelt.py"]}
    for number, (call, argument) in enumerate(WRONG.items(), start=len(HEAD) + 1):
        assert number in lines, f"{call} is accepted"
        assert f'"{argument}"' in lines[number], lines[number]
    assert len(lines) == len(WRONG)
