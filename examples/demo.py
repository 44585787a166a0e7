"""Cross-validation with and without refitting, side by side, on data that ships with scikit-learn.

Run with ``make demo`` or ``python examples/demo.py [--quick]``. Both sides use the same rows, the
same folds and one BLAS thread; the times are measured in this run.
"""

from __future__ import annotations

import argparse
import platform
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
import sklearn.model_selection as refitting
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import everyfold
from everyfold import LSSVC, Dense, FastGridSearchCV
from everyfold.crossval import Folds
from everyfold.engine.planning.squared_loss import plan_exact
from everyfold.kernels import RBF
from everyfold.losses import Squared
from everyfold.solvers import Problem

AGREEMENT = 1e-6
"""Largest relative difference between the two sides that passes for rounding."""

ROWS_OFF = 3
"""Rows that libsvm's own tolerance may decide either way, in one candidate."""

MODEL = KernelRidge(kernel="rbf", gamma=0.02, alpha=0.5)
ALPHAS = (0.001, 0.01, 0.1, 1.0)
PIPELINE = Pipeline([("scaler", StandardScaler()), ("svc", SVC())])

Score = Callable[[Any], np.ndarray]
"""What to compute with a module that has cross_val_predict and cross_val_score."""


@dataclass(frozen=True)
class Comparison:
    """The numbers of both sides and the seconds each took."""

    ours: np.ndarray
    theirs: np.ndarray
    our_seconds: float
    their_seconds: float

    @property
    def difference(self) -> float:
        """The largest difference between two numbers, relative to the largest number."""
        largest = max(float(np.abs(self.theirs).max()), np.finfo(float).tiny)
        return float(np.abs(self.ours - self.theirs).max()) / largest

    @property
    def agrees(self) -> bool:
        """Whether both sides say the same up to rounding."""
        return self.difference <= AGREEMENT


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, max(time.perf_counter() - start, 1e-9)


def compare(score: Score) -> Comparison:
    """Compute the same numbers with our functions and with scikit-learn's."""
    ours, our_seconds = timed(lambda: score(everyfold))
    theirs, their_seconds = timed(lambda: score(refitting))
    return Comparison(ours, theirs, our_seconds, their_seconds)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column aligned to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in (head, ["-" * width for width in widths], *rows):
        first, *others = cells
        aligned = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  " + "   ".join([first.ljust(widths[0]), *aligned]).rstrip())
    print()


HEAD = ("", "scikit-learn", "everyfold", "differ by", "refitting", "one fit", "ratio")


def row(name: str, shown: Callable[[np.ndarray], Any], result: Comparison) -> list[str]:
    return [
        name,
        f"{shown(result.theirs):.6g}",
        f"{shown(result.ours):.6g}",
        f"{result.difference:.0e}",
        f"{result.their_seconds:.3f} s",
        f"{result.our_seconds:.3f} s",
        f"{result.their_seconds / result.our_seconds:.1f}x",
    ]


def one_model(X: np.ndarray, y: np.ndarray) -> list[Comparison]:
    """One KernelRidge: 10-fold and leave-one-out."""
    print(f"1. One model: {MODEL}")
    print(f"   Mean squared errors on the diabetes data, {len(X)} rows, y centred.\n")

    def scores(cv: Any) -> Score:
        error = "neg_mean_squared_error"
        return lambda side: -side.cross_val_score(MODEL, X, y, cv=cv, scoring=error)

    works: dict[str, Score] = {
        "scores, 10-fold": scores(KFold(10, shuffle=True, random_state=0)),
        "scores, leave-one-out": scores(LeaveOneOut()),
        "predictions, leave-one-out": lambda side: (
            (y - side.cross_val_predict(MODEL, X, y, cv=LeaveOneOut())) ** 2
        ),
    }
    results = [compare(work) for work in works.values()]
    table(HEAD, [row(name, np.mean, result) for name, result in zip(works, results, strict=True)])
    return results


def selection(X: np.ndarray, y: np.ndarray, gammas: Sequence[float]) -> Comparison:
    """LSSVC over alphas and gammas: the same accuracies, the same winner."""
    cv = StratifiedKFold(10, shuffle=True, random_state=0)
    print(f"2. A selection: LSSVC over {len(gammas)} gammas x {len(ALPHAS)} alphas, 10-fold")
    print(f"   Accuracy on the breast cancer data, {len(X)} rows, features standardised.\n")

    def accuracies(side: Any) -> np.ndarray:
        models = [[LSSVC(gamma=g, alpha=a) for a in ALPHAS] for g in gammas]
        return np.array(
            [[side.cross_val_score(m, X, y, cv=cv).mean() for m in line] for line in models]
        )

    result = compare(accuracies)
    table(
        ["accuracy (everyfold)", *(f"alpha={alpha:g}" for alpha in ALPHAS)],
        [
            [f"gamma={gamma:g}", *(f"{value:.4f}" for value in values)]
            for gamma, values in zip(gammas, result.ours, strict=True)
        ],
    )
    table(HEAD, [row(f"the best of {result.ours.size}", np.max, result)])
    for side, scores in (("scikit-learn", result.theirs), ("everyfold", result.ours)):
        g, a = np.unravel_index(scores.argmax(), scores.shape)
        print(f"   {side:<12} selects gamma={gammas[g]:g}, alpha={ALPHAS[a]:g}")
    print()
    return result


def plan(X: np.ndarray, y: np.ndarray) -> None:
    """Which method is chosen, and what it should cost."""
    print("3. The plan: how leave-one-out of the first model is computed\n")
    problem = Problem(y[:, None], np.ones(len(y)), Squared(), intercept=False)
    operator = Dense().bind(RBF(MODEL.gamma), X)
    chosen = plan_exact(problem, operator, 1, Folds.leave_one_out(len(y)))
    print(f"   problem    {len(y)} rows, {len(y)} folds")
    print(f"   method     {chosen.method}: {chosen.words}")
    print(f"   estimate   {chosen.seconds:.3g} s, {chosen.memory / 1e6:.0f} MB\n")


def search(X: np.ndarray, y: np.ndarray, grid: dict[str, Any]) -> bool:
    """A Pipeline with SVC over C and gamma: FastGridSearchCV against GridSearchCV."""
    cv = StratifiedKFold(10, shuffle=True, random_state=0)
    size = " x ".join(f"{len(values)} values of {_short(name)}" for name, values in grid.items())
    print(f"4. A grid search: StandardScaler and SVC over {size}, 10-fold")
    print(f"   Accuracy on the breast cancer data, {len(X)} rows, scaled within each fold.\n")
    ours, our_seconds = timed(lambda: FastGridSearchCV(PIPELINE, grid, cv=cv).fit(X, y))
    theirs, their_seconds = timed(lambda: GridSearchCV(PIPELINE, grid, cv=cv).fit(X, y))
    fast, slow = (found.cv_results_["mean_test_score"] for found in (ours, theirs))
    best = np.argsort(ours.cv_results_["rank_test_score"], kind="stable")[:5]
    table(
        ["best candidates", "GridSearchCV", "FastGridSearchCV"],
        [[_spell(ours.cv_results_["params"][i]), f"{slow[i]:.4f}", f"{fast[i]:.4f}"] for i in best],
    )
    ratio = their_seconds / our_seconds
    print(f"   GridSearchCV      {their_seconds:.3f} s, selects {_spell(theirs.best_params_)}")
    print(f"   FastGridSearchCV  {our_seconds:.3f} s, selects {_spell(ours.best_params_)}")
    print(f"   ratio {ratio:.1f}x, mean scores differ by at most {np.abs(fast - slow).max():.0e}\n")
    print(textwrap.indent(str(ours.plan_), "   "))
    print()
    return bool(np.abs(fast - slow).max() * len(y) < ROWS_OFF + 0.5)


def _short(name: str) -> str:
    return name.rpartition("__")[2]


def _spell(params: dict[str, float]) -> str:
    return ", ".join(f"{_short(name)}={value:g}" for name, value in params.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="120 rows and a smaller grid")
    options = parser.parse_args()
    rows = slice(0, 120 if options.quick else None)
    gammas = (0.01, 0.1) if options.quick else (0.003, 0.01, 0.03, 0.1)
    steps = (4, 2) if options.quick else (9, 6)
    grid = {
        "svc__C": np.logspace(-1, 3, steps[0]),
        "svc__gamma": np.logspace(-3.5, -1, steps[1]),
    }
    print(
        f"everyfold {everyfold.__version__} and scikit-learn {sklearn.__version__}, "
        f"Python {platform.python_version()}, one BLAS thread on both sides\n"
    )
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X)[rows], (y - y.mean())[rows]
    cells, labels = load_breast_cancer(return_X_y=True)
    cancer, cells, labels = scale(cells)[rows], cells[rows], labels[rows]
    with threadpool_limits(1):
        # Run once without measuring: imports, set-up and compilation should count for neither side.
        compare(lambda side: side.cross_val_score(MODEL, X[:30], y[:30], cv=3))
        compare(lambda side: side.cross_val_score(PIPELINE, cells[:60], labels[:60], cv=3))
        results = [*one_model(X, y), selection(cancer, labels, gammas)]
        plan(X, y)
        is_same_search = search(cells, labels, grid)
    if not all(result.agrees for result in results) or not is_same_search:
        print("The results differ by more than they should: please report this output.")
        return 1
    print(
        "Both sides agree in every comparison, up to rounding or (SVC) to libsvm's own tolerance;\n"
        "only the times differ."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
