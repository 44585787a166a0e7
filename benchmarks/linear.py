"""Linear models of smooth losses, as on embeddings: all folds and penalties at once.

Columns with a spectrum that falls as k to a power stand for embeddings: rotated, so that no column
is a direction of its own. Every line is the same candidates on the same folds, one BLAS thread:
seconds of ours, how many times as long references take (one after the other in this process), and
the largest differences of mean accuracy and mean log loss from refits that are converged tightly
(newton-cholesky, or liblinear's primal solver, with ``tol=1e-8`` and as many iterations as it
takes); of ``LinearSVC`` that of the mean accuracy, of ``PoissonRegressor`` that of the mean
deviance. Of sparse text, whose estimator is refitted, and of the nested search they are those from
the reference itself. Of ``GridSearchCV`` the largest difference of its last score from these is
said as well.

Lines with a star are of rows that were never looked at while anything was measured or chosen; they
need ``../shared/data`` beside the project, and are left out where it is missing.

Run with ``python benchmarks/linear.py [--only 768 digits] [--clock processor]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut, StratifiedKFold
from sklearn.model_selection import cross_validate as sklearn_cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize, scale
from sklearn.svm import LinearSVC

from comparing import SHARED, Rows, seconds, shared, use_one_thread
from everyfold import FastGridSearchCV, cross_validate

PENALTIES = np.logspace(-3, 3, 7)
FOLDS = StratifiedKFold(5)
TIGHT = {"tol": 1e-8, "max_iter": 100_000}


def spectrum(n: int, d: int, power: float, k: int = 2) -> Callable[[], Rows]:
    """Rows whose covariance has eigenvalues k^(-2 power) in random directions, and their classes.

    Classes depend on the 20 largest directions; entries are of about size 1.
    """

    def rows() -> Rows:
        rng = np.random.default_rng(0)
        rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
        size = np.arange(1.0, d + 1.0) ** -power
        parts = rng.standard_normal((n, d))
        X = (parts * size) @ rotation.T * np.sqrt(d / np.square(size).sum())
        values = 0.34 * parts[:, :20] @ rng.standard_normal((20, k - 1 + (k > 2)))
        if k == 2:
            return X, (values[:, 0] + rng.logistic(size=n) > 0.0).astype(int)
        return X, (1.5 * values + rng.gumbel(size=(n, k))).argmax(axis=1)

    return rows


def counts(n: int, d: int, power: float) -> Callable[[], Rows]:
    """The same rows, and counts whose logarithms depend on the largest directions."""

    def rows() -> Rows:
        X, _ = spectrum(n, d, power)()
        rng = np.random.default_rng(1)
        values = X @ rng.standard_normal(d)
        return X, rng.poisson(np.exp(1.0 + 0.5 * values / values.std())).astype(float)

    return rows


def text(n: int, d: int) -> Callable[[], Rows]:
    """Rows as of texts, sparse and of length 1: 100 of d words, of which five tell classes."""

    def rows() -> Rows:
        rng = np.random.default_rng(0)
        y = np.arange(n) % 2
        words = (rng.pareto(0.6, (n, 100)) * 40.0).astype(int) % d
        words[:, :5] = 2 * rng.integers(0, d // 20, (n, 5)) + y[:, None]
        X = sparse.csr_matrix((np.ones(n * 100), words.ravel(), np.arange(0, n * 100 + 1, 100)))
        X.sum_duplicates()
        X.resize(n, d)
        return normalize(X), y

    return rows


def scaled(load: Callable[..., Rows]) -> Callable[[], Rows]:
    """Rows of a set with columns of mean 0 and variance 1."""

    def rows() -> Rows:
        X, y = load(return_X_y=True)
        return scale(X), y

    return rows


@dataclass(frozen=True)
class Case:
    """A search, and the references that it is compared with."""

    name: str
    rows: Callable[[], Rows]
    references: dict[str, Any]
    model: Any = field(default_factory=LogisticRegression)
    parameter: str = "C"
    tight: dict[str, Any] = field(default_factory=lambda: {"solver": "newton-cholesky", **TIGHT})
    is_fresh: bool = False
    scores: tuple[str, ...] = ("accuracy", "neg_log_loss")
    values: Any = field(default_factory=lambda: PENALTIES)
    folds: Any = FOLDS


def by_grid(**params: Any) -> Callable[[Case], Any]:
    """``GridSearchCV`` of the model with some of its parameters set."""

    def search(case: Case) -> Any:
        prefix = case.parameter.rpartition("__")[0]
        own = {f"{prefix}__{name}" if prefix else name: value for name, value in params.items()}
        model = clone(case.model).set_params(**own)
        options = {"cv": case.folds, "scoring": case.scores, "refit": False}
        return GridSearchCV(model, {case.parameter: case.values}, **options)

    return search


def by_path(**params: Any) -> Callable[[Case], Any]:
    """``LogisticRegressionCV``, which starts each penalty from the one before."""
    return lambda case: LogisticRegressionCV(Cs=PENALTIES, cv=FOLDS, refit=False, **params)


DEFAULT = {"default tol": by_grid()}
CLOSE = {"tol 1e-6": by_grid(tol=1e-6, max_iter=100_000)}
BOTH = {**DEFAULT, **CLOSE}
ALL = {**BOTH, "RegressionCV 1e-6": by_path(tol=1e-6, max_iter=100_000)}
NESTED = "22 groups left out, 2000 x 256, k^-1, nested"
MARGINS = {"scores": ("accuracy",), "tight": {"dual": False, **TIGHT}}
CASES = [
    Case("2 classes, 5000 x 768, k^-1", spectrum(5000, 768, 1.0), ALL),
    Case("2 classes, 3000 x 384, k^-1", spectrum(3000, 384, 1.0), ALL),
    Case("2 classes, 5000 x 768, k^-0.5", spectrum(5000, 768, 0.5), ALL),
    Case("2 classes, 4000 x 512, whitened", spectrum(4000, 512, 0.0), DEFAULT),
    Case("2 classes, sparse text 4000 x 20000", text(4000, 20_000), DEFAULT, tight={}),
    Case("2 classes, sparse text 200 x 20000", text(200, 20_000), DEFAULT, tight={}),
    Case("the same scaled in every fold, 3000 x 384, k^-1", spectrum(3000, 384, 1.0), BOTH,
         make_pipeline(StandardScaler(), LogisticRegression()), "logisticregression__C"),
    Case("4 classes, 2000 x 128, k^-1", spectrum(2000, 128, 1.0, 4), BOTH),
    Case("10 classes, digits", scaled(load_digits), BOTH),
    Case("10 classes, 3000 x 256, k^-1", spectrum(3000, 256, 1.0, 10), BOTH),
    Case("LinearSVC 5000 x 300, k^-1", spectrum(5000, 300, 1.0), BOTH, LinearSVC(), **MARGINS),
    Case("LinearSVC, 4 classes 3000 x 100, k^-1", spectrum(3000, 100, 1.0, 4), BOTH, LinearSVC(),
         **MARGINS),
    Case("LinearSVC, digits", scaled(load_digits), DEFAULT, LinearSVC(), **MARGINS),
    Case("PoissonRegressor 3000 x 100, k^-1", counts(3000, 100, 1.0), BOTH, PoissonRegressor(),
         "alpha", scores=("neg_mean_poisson_deviance",), folds=KFold(5)),
    Case("* LinearSVC, a2a", scaled(shared("a2a")), DEFAULT, LinearSVC(), is_fresh=True, **MARGINS),
    Case("* LinearSVC, ionosphere", scaled(shared("ionosphere")), DEFAULT, LinearSVC(),
         is_fresh=True, **MARGINS),
    Case("* a2a", scaled(shared("a2a")), DEFAULT, is_fresh=True),
    Case("* ionosphere", scaled(shared("ionosphere")), DEFAULT, is_fresh=True),
]  # fmt: skip


def differences(ours: Any, theirs: Any, names: tuple[str, ...]) -> str:
    """The largest differences of mean scores."""
    found = []
    for name in names:
        key = f"mean_test_{name}"
        found.append(float(np.abs(ours.cv_results_[key] - theirs.cv_results_[key]).max()))
    return "  ".join(f"{value:.0e}" for value in found)


def measure(case: Case, clock: Callable[[], float]) -> str:
    """A line of the table."""
    X, y = case.rows()
    grid = {case.parameter: case.values}
    options = {"cv": case.folds, "scoring": case.scores, "refit": False}
    ours = FastGridSearchCV(clone(case.model), grid, **options)
    first = seconds(ours, X, y, clock)
    taken = float(np.median([first, *(seconds(ours, X, y, clock) for _ in range(2))]))
    tight = by_grid(**case.tight)(case)
    seconds(tight, X, y)
    found = []
    for name, make in case.references.items():
        theirs = make(case)
        times = seconds(theirs, X, y, clock) / taken
        line = f"{name} {times:.{1 if times >= 2.0 else 2}f}x"
        if isinstance(theirs, GridSearchCV):  # how far it is from the minimum itself
            line += f" (off by {differences(theirs, tight, case.scores).split()[-1]})"
        found.append(line)
    how = "; ".join(words for words, _ in ours.plan_.methods)
    off = differences(ours, tight, case.scores)
    return f"{case.name:<48} {taken:>7.2f}  {off}  {', '.join(found)}  ({how})"


def measure_nested(clock: Callable[[], float]) -> str:
    """A line of a search inside of each of 22 groups that are left out."""
    X, y = spectrum(2000, 256, 1.0)()
    groups = np.random.default_rng(1).integers(0, 22, len(y))
    times, scores = [], []
    for validate, search, tol in (
        (cross_validate, FastGridSearchCV, 1e-4),
        (sklearn_cross_validate, GridSearchCV, 1e-6),
    ):
        model = LogisticRegression(tol=tol, max_iter=100_000)
        inner = search(model, {"C": PENALTIES}, cv=FOLDS, scoring="neg_log_loss")
        options = {"cv": LeaveOneGroupOut(), "scoring": ("accuracy", "neg_log_loss")}
        start = clock()
        found = validate(inner, X, y, groups=groups, **options)
        times.append(clock() - start)
        scores.append([found[f"test_{name}"].mean() for name in options["scoring"]])
    off = "  ".join(f"{value:.0e}" for value in np.abs(np.subtract(*scores)))
    return f"{NESTED:<48} {times[0]:>7.2f}  {off}  tol 1e-6 {times[1] / times[0]:.1f}x"


def main() -> None:
    """Print a line for each case as it is measured."""
    clocks = {"processor": time.process_time, "wall": time.perf_counter}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of cases")
    parser.add_argument("--clock", choices=sorted(clocks), default="processor")
    asked = parser.parse_args()
    use_one_thread()
    print(f"{'':<48} {'seconds':>7}  accuracy, log loss: differences; times as long")
    for case in CASES:
        if case.is_fresh and not SHARED.exists():
            continue
        if not asked.only or any(part.lower() in case.name.lower() for part in asked.only):
            print(measure(case, clocks[asked.clock]), flush=True)
    if not asked.only or any(part.lower() in NESTED.lower() for part in asked.only):
        print(measure_nested(clocks[asked.clock]), flush=True)


if __name__ == "__main__":
    main()
