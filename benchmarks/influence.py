"""All single deletions of 2,000 rows against one fit, and against retraining.

The effect of deleting each row on a score: on 400 evaluation rows, in 10 folds, and of every row
on the area of leave-one-out, beside one fit of the same model to all rows. The effects of some rows
(``--sample``) are compared with those of models that are fitted again without them; n times the
time of a fit is what a loop over all rows would take.

Run with ``python benchmarks/influence.py [--rows 2000] [--sample 20]``.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, LeaveOneOut
from threadpoolctl import threadpool_limits

from everyfold import LSSVC, influence

EVALUATION, NEEDED, REPEATS = 400, 2.5, 5


def timed(function: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """The shortest of several processor times, and what comes out."""
    seconds, found = [], None
    for _ in range(repeats):
        start = time.process_time()
        found = function()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def gap(
    model: Any, data: tuple[Any, ...], splits: list[Any], found: Any, scoring: str, some: Any
) -> float:
    """How far the effects of some rows are from those of models fitted again."""
    X, y = data
    scorer, worst = get_scorer(scoring), 0.0

    def score(row: int) -> float:
        scores = []
        for train, test in splits:
            rest = train[train != row]
            scores.append(scorer(clone(model).fit(X[rest], y[rest]), X[test], y[test]))
        return float(np.mean(scores))

    base = score(-1)
    for row in some:
        worst = max(worst, abs(score(int(row)) - base - found.effect[row]))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument(
        "--sample", type=int, default=20, help="rows that models are refitted without"
    )
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of both")
    options = parser.parse_args()
    n = options.rows
    X_all, y_all = make_friedman1(n + EVALUATION, 10, noise=1.0, random_state=0)
    y_all -= y_all.mean()
    X, everything = X_all[:n], np.arange(n)
    some = np.random.default_rng(0).choice(n, options.sample, replace=False)
    print(
        f"all single deletions of {n} rows, {options.threads} BLAS threads; {platform.machine()}, "
        f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}"
    )
    ratios, gaps = [], []
    with threadpool_limits(options.threads):
        for name, model, truth, scoring in (
            ("KernelRidge, R²", KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5), y_all, "r2"),
            ("LSSVC, area", LSSVC(alpha=0.1, gamma=0.5), (y_all > 0).astype(int), "roc_auc"),
        ):
            own = truth[:n]
            fit, _ = timed(lambda model=model, own=own: clone(model).fit(X, own))
            print(f"{name}: a fit {1e3 * fit:.0f} ms, {n} of them {n * fit:.0f} s")
            folds = KFold(10, shuffle=True, random_state=0)
            new = {"X_eval": X_all[n:], "y_eval": truth[n:]}
            ways = {
                f"{EVALUATION} evaluation rows": (new, [(everything, np.arange(n, len(truth)))]),
                "10 folds": ({"cv": folds}, list(folds.split(X))),
                "leave-one-out": ({"cv": LeaveOneOut()}, None),
            }
            for way, (given, splits) in ways.items():
                seconds, found = timed(
                    lambda model=model, own=own, given=given, scoring=scoring: influence(
                        model, X, own, scoring=scoring, **given
                    )
                )
                words = f"    {way:20} {1e3 * seconds:6.0f} ms, {seconds / fit:5.2f} fits"
                if splits is not None:
                    gaps.append(gap(model, (X_all, truth), splits, found, scoring, some))
                    words += f"; effects of {len(some)} rows differ by at most {gaps[-1]:.1e}"
                if way.endswith("rows") and scoring == "r2":
                    ratios.append(seconds / fit)
                print(words)
    is_met = max(ratios) <= NEEDED and max(gaps) <= 1e-8
    print(
        "met" if is_met else "MISSED",
        f"(wanted {NEEDED:g} fits for R² of evaluation rows, and 1e-8)",
    )


if __name__ == "__main__":
    main()
