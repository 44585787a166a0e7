"""Smooth losses of kernels: a grid of widths and penalties by us and by ``GridSearchCV``.

Every line is 5 widths by 6 penalties of the same class on the same folds, one BLAS thread: seconds
of processor time of ours, how many times as long ``GridSearchCV`` takes (one after the other in
this process), and the largest differences of mean scores. Fits of ``GridSearchCV`` are converged:
they are Newton's method to its rounding.

Lines with a star are of rows that were never looked at while anything was measured or chosen; they
need ``../shared/data`` beside the project, and are left out where it is missing.

Run with ``python benchmarks/smooth.py [--only Huber]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.preprocessing import scale

from comparing import SHARED, Rows, seconds, shared, use_one_thread
from everyfold import FastGridSearchCV, HuberSVC, KernelLogisticClassifier
from everyfold.papers import QuadraticSVR

GRID = {"gamma": np.logspace(-3, 0, 5), "C": np.logspace(-2, 3, 6)}
PROBABLE = ["accuracy", "neg_log_loss"]


def classes(n: int) -> Callable[[], Rows]:
    """Rows of two classes in ten directions, a tenth of the labels at random."""

    def rows() -> Rows:
        X, y = make_classification(
            n, 10, n_informative=10, n_redundant=0, flip_y=0.1, random_state=0
        )
        return scale(X), y

    return rows


def numbers() -> Rows:
    """Friedman's first function of ten columns with noise."""
    X, y = make_friedman1(1000, 10, noise=1.0, random_state=0)
    return scale(X), y


def scaled(name: str) -> Callable[[], Rows]:
    """Rows of a set with columns of mean 0 and variance 1, widths as for ten columns."""

    def rows() -> Rows:
        X, y = shared(name)(return_X_y=True)
        return scale(X) * np.sqrt(10.0 / X.shape[1]), y

    return rows


@dataclass(frozen=True)
class Case:
    """A search by both."""

    name: str
    rows: Callable[[], Rows]
    model: Any
    folds: int
    scores: list[str]
    is_fresh: bool = False


LOGISTIC, HUBER = KernelLogisticClassifier(), HuberSVC()
CASES = [
    Case("logistic, n = 1000", classes(1000), LOGISTIC, 5, PROBABLE),
    Case("logistic, n = 1000", classes(1000), LOGISTIC, 10, PROBABLE),
    Case("logistic, n = 2000", classes(2000), LOGISTIC, 5, PROBABLE),
    Case("Huberised hinge, n = 1000", classes(1000), HUBER, 5, ["accuracy"]),
    Case("Huberised hinge, n = 1000", classes(1000), HUBER, 10, ["accuracy"]),
    Case("Huberised hinge, n = 2000", classes(2000), HUBER, 5, ["accuracy"]),
    Case("quadratic tube, n = 1000", numbers, QuadraticSVR(), 5, ["r2"]),
    Case("* logistic, german.numer", scaled("german.numer"), LOGISTIC, 5, PROBABLE, True),
    Case("* Huberised hinge, german.numer", scaled("german.numer"), HUBER, 5, ["accuracy"], True),
]


def measure(case: Case) -> str:
    """A line of the table."""
    X, y = case.rows()
    folds = KFold(case.folds) if case.scores == ["r2"] else StratifiedKFold(case.folds)
    options = {"cv": folds, "scoring": case.scores, "refit": False}
    ours = FastGridSearchCV(clone(case.model), GRID, **options)
    taken = float(np.median([seconds(ours, X, y) for _ in range(2)]))
    theirs = GridSearchCV(clone(case.model), GRID, **options)
    ratio = seconds(theirs, X, y) / taken
    keys = [f"mean_test_{name}" for name in case.scores]
    gaps = (np.abs(ours.cv_results_[key] - theirs.cv_results_[key]).max() for key in keys)
    found = ", ".join(f"{name} {gap:.0e}" for name, gap in zip(case.scores, gaps, strict=True))
    return f"{case.name:<34} {case.folds:>5} {taken:>8.2f} {ratio:>8.1f}x  {found}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of lines")
    only = parser.parse_args().only
    use_one_thread()
    print(f"{'':<34} {'folds':>5} {'seconds':>8} {'times':>9}  largest difference of a mean score")
    for case in CASES:
        if any(part in case.name for part in only) and (SHARED.exists() or not case.is_fresh):
            print(measure(case), flush=True)


if __name__ == "__main__":
    main()
