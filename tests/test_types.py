"""The types that users see: the guide passes ``mypy --strict``, and misspelt options do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

pytest.importorskip("mypy")
pytestmark = pytest.mark.xdist_group("mypy")  # one process at a time, so that they share a cache

WRONG = {
    'FastGridSearchCV(SVC(), {"C": [1.0]}, order="bif")': "order",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, fallback="fail")': "fallback",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, ridge_scaling="men")': "ridge_scaling",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, preprocessing="never")': "preprocessing",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, keep_predictions="some")': "keep_predictions",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, operator="nystrom")': "operator",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, criterion="gcw")': "criterion",
    'FastGridSearchCV(SVC(), {"C": [1.0]}, n_confirm="all")': "n_confirm",
    'FastRandomizedSearchCV(SVC(), {"C": [1.0]}, order="bif")': "order",
    'cross_val_score(SVC(), X, y, order="bif")': "order",
    'cross_val_predict(SVC(), X, y, method="probabilities")': "method",
    'cross_validate(SVC(), X, y, fallback="fail")': "fallback",
    'permutation_test_score(SVC(), X, y, preprocessing="never")': "preprocessing",
    'FastCalibratedClassifierCV(SVC(), method="platt")': "method",
    'FastCrossConformalRegressor(SVC(), method="jackknife")': "method",
    'Nystrom(100, sampling="leverage")': "sampling",
    'Nystrom(100, replaces="fit")': "replaces",
    'KernelRegressor(loss="absolute")': "loss",
    'KernelClassifier(multi_class="all")': "multi_class",
    'choose_granularity(0.1, ridge=1.0, smoothing=0.1, rule="best")': "rule",
}


def check(folder: Path, sources: dict[str, str]) -> list[str]:
    """What ``mypy --strict`` says of some files, line by line."""
    for name, source in sources.items():
        (folder / name).write_text(source, "utf-8")
    (folder / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nallow_redefinition = true\nlocal_partial_types = true\n"
        "[mypy-sklearn.*,numba.*,joblib.*,pyarrow.*,threadpoolctl.*,skops.*]\n"
        "ignore_missing_imports = true\n",
        "utf-8",
    )
    cache = str(ROOT / ".mypy_cache" / "examples")
    how = ["--config-file", "mypy.ini", "--cache-dir", cache, "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *how, "--no-pretty", *sources],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return [text for text in done.stdout.splitlines() if ": error:" in text]


def program(page: str) -> str:
    """The examples of a page as one file, with its line numbers."""
    source = ""
    for line, block in blocks((ROOT / "docs" / page).read_text("utf-8")):
        source += "\n" * (line - 1 - source.count("\n")) + block + "\n"
    return source


def test_the_guide_is_typed(tmp_path):
    pages = {name: program(f"{name}.md") for name in ("guide", "start", "coming-from")}
    files = {f"{name.replace('-', '_')}.py": source for name, source in pages.items()}
    assert check(tmp_path, files) == []


def test_misspelt_options_are_errors(tmp_path):
    """Every call has one mistake, and mypy finds it in the argument that has it."""
    names = sorted({call.partition("(")[0] for call in WRONG} - {"SVC"})
    head = [
        "import numpy as np",
        "from sklearn.svm import SVC",
        f"from everyfold import {', '.join(names)}",
        "X, y = np.zeros((2, 2)), np.zeros(2)",
    ]
    found = check(tmp_path, {"page.py": "\n".join([*head, *WRONG, ""])})
    lines = {int(text.split(":")[1]): text for text in found}
    for number, (call, argument) in enumerate(WRONG.items(), start=len(head) + 1):
        assert number in lines, f"{call} is accepted"
        assert f'"{argument}"' in lines[number], lines[number]
    assert len(lines) == len(WRONG)
