"""The sets: what is searched, with which grid and folds, and which rows are held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "libsvm"
FOLDS = 5


@dataclass(frozen=True)
class Problem:
    """A set: what is searched, and how much of the grid refits are timed on."""

    label: str
    kind: str
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    share: int = 1  # refits see every k-th value of both axes, k = share
    folds: int = FOLDS  # and so many of the folds

    @property
    def is_regression(self) -> bool:
        """Whether the target is a number."""
        return self.kind == "regression"

    @property
    def has_true_score(self) -> bool:
        """Whether refits of a winner are affordable."""
        return self.share == 1

    def axes(self, share: int = 1) -> tuple[str, np.ndarray, np.ndarray]:
        """The ridge's name and its values, and those of gamma."""
        start = 0 if share == 1 else share // 2
        name, ridges = (
            ("alpha", np.logspace(-4, 1, 6)) if self.is_regression else ("C", np.logspace(-1, 4, 6))
        )
        return name, ridges[start::share], np.logspace(-3, 0.5, 6)[start::share]

    def grid(self, share: int = 1) -> dict[str, np.ndarray]:
        """The grid, or every ``share``-th value of it."""
        name, ridges, gammas = self.axes(share)
        return {name: ridges, "gamma": gammas}

    def estimator(self) -> Any:
        """What GridSearchCV would search."""
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.svm import SVC

        return KernelRidge(kernel="rbf") if self.is_regression else SVC()

    @property
    def scoring(self) -> str:
        """The scorer by its name in scikit-learn."""
        return "neg_mean_squared_error" if self.is_regression else "accuracy"

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Any]:
        """Rows searched and held out, scaled by the former; folds."""
        from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

        X, y = self.load()
        strata = None if self.is_regression else y
        Xs, Xt, ys, yt = train_test_split(X, y, test_size=0.25, random_state=0, stratify=strata)
        width = Xs.std(axis=0) + (Xs.std(axis=0) == 0)
        Xs, Xt = (Xs - Xs.mean(axis=0)) / width, (Xt - Xs.mean(axis=0)) / width
        Xs, Xt = Xs / np.sqrt(Xs.shape[1]), Xt / np.sqrt(Xs.shape[1])
        if self.is_regression:
            mean, spread = ys.mean(), ys.std()
            ys, yt = (ys - mean) / spread, (yt - mean) / spread
        kind = KFold if self.is_regression else StratifiedKFold
        return Xs, ys, Xt, yt, kind(FOLDS, shuffle=True, random_state=0)


def _libsvm(name: str, most: int | None = None) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    def load() -> tuple[np.ndarray, np.ndarray]:
        from sklearn.datasets import load_svmlight_file

        X, y = load_svmlight_file(str(DATA / f"{name}.svm.gz"))
        keep = np.random.default_rng(0).permutation(len(y))[:most]
        return X[keep].toarray(), y[keep]

    return load


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def _friedman() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_friedman1

    return make_friedman1(20_000, 10, noise=1.0, random_state=0)


PROBLEMS = {
    problem.label: problem
    for problem in (
        Problem("ionosphere", "two classes", _libsvm("ionosphere")),
        Problem("german", "two classes", _libsvm("german.numer")),
        Problem("digits", "ten classes", _digits),
        Problem("abalone", "regression", _libsvm("abalone")),
        Problem("a9a/5000", "two classes", _libsvm("a9a", 5000)),
        Problem("friedman1", "regression", _friedman, share=6, folds=1),
        Problem("mg", "regression", _libsvm("mg")),
        Problem("space_ga/2000", "regression", _libsvm("space_ga", 2000)),
        Problem("energy_heating", "regression", _libsvm("energy_heating")),
        Problem("australian", "two classes", _libsvm("australian")),
        Problem("diabetes", "two classes", _libsvm("diabetes")),
        Problem("fourclass", "two classes", _libsvm("fourclass")),
    )
}
