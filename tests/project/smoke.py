"""What must work in an environment where only the wheel is installed: the library and the shell.

Run by ``make dist``: ``python smoke.py`` in a folder that is not the repository.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.model_selection import cross_val_predict as by_refits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import everyfold


def library() -> None:
    """A search of SVC, leave-one-out of KernelRidge, and the marker of types."""
    assert (Path(everyfold.__file__).parent / "py.typed").exists()
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), SVC())
    grid = {"svc__C": [0.1, 1.0, 10.0], "svc__gamma": [0.1, 1.0]}
    ours = everyfold.FastGridSearchCV(pipeline, grid, cv=5).fit(X, y)
    theirs = GridSearchCV(pipeline, grid, cv=5).fit(X, y)
    key = "mean_test_score"
    np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], atol=0.01)
    X, y = load_diabetes(return_X_y=True)
    model = KernelRidge(kernel="rbf", gamma=10.0, alpha=0.1)
    held = everyfold.cross_val_predict(model, X[:100], y[:100], cv=LeaveOneOut())
    truth = by_refits(model, X[:100], y[:100], cv=LeaveOneOut())
    np.testing.assert_allclose(held, truth, rtol=1e-8)


def shell(folder: Path) -> None:
    """A search that saves its winner, and predictions with it."""
    X, y = load_iris(return_X_y=True)
    header = "a,b,c,d,species"
    np.savetxt(
        folder / "iris.csv", np.column_stack([X, y]), delimiter=",", header=header, comments=""
    )
    command = str(Path(sys.executable).with_name("everyfold"))
    for arguments in (
        ["--help"],
        ["search", "iris.csv", "--model", "svc", "--cv", "3", "--save", "best.skops"],
        ["predict", "best.skops", "iris.csv", "--out", "labels.csv"],
    ):
        subprocess.run([command, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    assert len((folder / "labels.csv").read_text().splitlines()) == len(y) + 1


if __name__ == "__main__":
    library()
    with tempfile.TemporaryDirectory() as folder:
        shell(Path(folder))
    print(f"everyfold {everyfold.__version__} of {Path(everyfold.__file__).parent} works")
