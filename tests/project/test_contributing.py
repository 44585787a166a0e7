"""CONTRIBUTING.md works to the letter: its steps are followed in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import everyfold

ROOT = Path(__file__).parents[2]
PACKAGE = Path(everyfold.__file__).parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def example(title, name):
    """The class or function of this name in a section of the page, as it would be copied."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    found = re.search(rf"^(@dataclass\S+\n)?(class|def) {name}\b.*?(?=\n\S|\Z)", code, re.M | re.S)
    return f"\n\n{found[0]}\n"


def edit(file, *changes, end=""):
    """Replace texts of a file that are there once, and add to its end."""
    text = file.read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, (file, old)
        text = text.replace(old, new)
    file.write_text(text + end, "utf-8")


USE = """
import warnings
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict as refits
from everyfold import FastGridSearchCV, KernelRegressor, cross_val_predict
from everyfold.papers import MethodOptions

warnings.simplefilter("error")
X, y = load_diabetes(return_X_y=True)
X, y = X[:150], y[:150] - y[:150].mean()
for model in (
    KernelRegressor(loss="expectile", gamma=2.0, alpha=0.5),
    KernelRegressor(kernel="rational_quadratic", gamma=2.0, alpha=0.5),
    LinearRegression(),
):
    np.testing.assert_allclose(cross_val_predict(model, X, y), refits(model, X, y), rtol=1e-6)
grid = {"alpha": [0.1, 1.0], "gamma": [1.0, 5.0]}
search = FastGridSearchCV(KernelRegressor(), grid, method=MethodOptions(criterion="aic")).fit(X, y)
assert search.plan_.is_closed
"""


def test_the_steps_make_a_loss_a_kernel_a_method_and_an_adapter(tmp_path):
    """Each under its own name, with refits or the page's own formula as truth."""
    copy = tmp_path / "everyfold"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    losses = copy / "losses.py"
    marker = "# -- Losses by name"
    edit(
        losses,
        (marker, f"{example('Add a loss', 'Expectile')}\n\n{marker}"),
        ("SquaredHinge, Logistic)\n}", "SquaredHinge, Logistic, Expectile)\n}"),
    )
    edit(copy / "kernels" / "kernels.py", end=example("Add a kernel", "RationalQuadratic"))
    edit(
        copy / "kernels" / "registry.py",
        ("    RBF,\n    Cosine,", "    RBF,\n    RationalQuadratic,\n    Cosine,"),
        (
            '"laplacian": Laplacian}',
            '"laplacian": Laplacian, "rational_quadratic": RationalQuadratic}',
        ),
        ('NAMES = ("rbf"', 'NAMES = ("rational_quadratic", "rbf"'),
    )
    edit(
        copy / "papers" / "closed_criteria.py",
        (
            "CRITERIA.update(",
            f"{example('Add a method', 'AIC')}\n\nCRITERIA.update(\n    aic=AIC(),",
        ),
    )
    reader = example("Add an adapter", "_linear_regression")
    names = "from sklearn.linear_model import LinearRegression\n"
    table = "_READERS: dict[type, Callable[[Estimator], Model]] = {"
    edit(
        copy / "adapters" / "sklearn.py",
        (table, f"{names}{reader}\n\n{table}\n    LinearRegression: _linear_regression,"),
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", USE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_page_exists():
    named = set(re.findall(r"`((?:src|tests|docs|examples)/[\w/.]+)`", PAGE))
    assert len(named) >= 20
    assert [name for name in named if not (ROOT / name).exists()] == []
    bare = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert {name for name in bare if name not in named} <= {"__init__.py"}


def test_every_name_of_the_page_is_in_the_code():
    """So that a table, class or test that was renamed is not looked for in vain."""
    code = "\n".join(
        file.read_text("utf-8")
        for folder in (PACKAGE, ROOT / "tests")
        for file in folder.rglob("*.py")
        if file != Path(__file__)
    )
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    names = set(re.findall(r"`(_?[A-Za-z]\w{2,})(?:\(\))?`", text))
    own = set(re.findall(r"\b\w+\b", "".join(re.findall(r"```python.*?```", PAGE, re.DOTALL))))
    assert [n for n in names - own if not re.search(rf"\b{n}\b", code)] == []
