"""The everyday case against GridSearchCV: a scaled kernel machine on a bundled data set.

``Pipeline(StandardScaler, model)`` on breast cancer (569 × 30), a grid of 8 gammas × 10 ridges, 10
folds. Prints the ratio of times, the largest difference of the mean scores, and what the winner of
each search scores by real refits.

Run with ``python benchmarks/everyday.py [--model svc|lssvc] [--jobs 1] [--quick]``.
"""

from __future__ import annotations

import argparse
import platform
import time
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from everyfold import LSSVC, FastGridSearchCV

GAMMAS = np.logspace(-4, 0, 8)
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "svc": (SVC(), {"model__C": np.logspace(-2, 3, 10), "model__gamma": GAMMAS}),
    "lssvc": (LSSVC(), {"model__alpha": np.logspace(-3, 2, 10), "model__gamma": GAMMAS}),
}
NEEDED = {"svc": 8.0, "lssvc": 1.0}
TOLERANCE = 0.005


def timed(search: Any, X: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    search.fit(X, y)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="svc")
    parser.add_argument("--jobs", type=int, default=1, help="n_jobs of both searches")
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of both searches")
    parser.add_argument("--quick", action="store_true", help="a quarter of the grid")
    options = parser.parse_args()
    X, y = load_breast_cancer(return_X_y=True)
    model, grid = MODELS[options.model]
    if options.quick:
        grid = {name: values[::2] for name, values in grid.items()}
    pipeline = Pipeline([("scaler", StandardScaler()), ("model", model)])
    cv = StratifiedKFold(10, shuffle=True, random_state=0)
    fast = FastGridSearchCV(pipeline, grid, cv=cv, n_jobs=options.jobs)
    slow = GridSearchCV(pipeline, grid, cv=cv, n_jobs=options.jobs)
    with threadpool_limits(options.threads):
        FastGridSearchCV(pipeline, {"model__gamma": [0.01]}, cv=cv).fit(X, y)  # compiles
        times = [timed(search, X, y) for search in (fast, slow)]
        truths = [
            cross_val_score(search.best_estimator_, X, y, cv=cv).mean() for search in (fast, slow)
        ]
    report(options.model, times, truths, fast, slow)


def report(name: str, times: list[float], truths: list[float], fast: Any, slow: Any) -> None:
    ours, theirs = times
    key = "mean_test_score"
    gap = np.abs(fast.cv_results_[key] - slow.cv_results_[key]).max()
    ratio, regret = theirs / ours, truths[1] - truths[0]
    is_met = ratio >= NEEDED[name] and regret <= TOLERANCE
    print(
        f"everyday case, {name}; {platform.machine()}, Python {platform.python_version()}, "
        f"scikit-learn {sklearn.__version__}"
    )
    print(f"time          {theirs:.2f} s / {ours:.2f} s = {ratio:.1f}x (wanted {NEEDED[name]:g}x)")
    print(f"winners       {fast.best_params_} and {slow.best_params_}")
    print(f"true accuracy {truths[0]:.4f} and {truths[1]:.4f}, regret {regret:.4f}")
    print(f"scores        differ by at most {gap:.1e}")
    print(fast.plan_)
    print("met" if is_met else "MISSED")


if __name__ == "__main__":
    main()
