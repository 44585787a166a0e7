"""Time-resolved permutation tests against a loop: 300 times, 1,000 permutations, 200 rows, 5 folds.

Ridge regression of 30 features by R², and LSSVC with a linear kernel by accuracy, on the
same folds for all permutations. The loop is scikit-learn's permutation test at each
time. Both are timed on a part (``--times`` of the library, ``--sample`` permutations of one time of
the loop) in processor time and extrapolated to all: times and permutations cost the same each.

Run with ``python benchmarks/times.py [--times 300] [--permutations 1000] [--sample 20]``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import sklearn.model_selection as refitting
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from everyfold import LSSVC, permutation_test_score

ROWS, FEATURES, TIMES, NEEDED = 200, 30, 300, 100.0


def compare(name: str, model: Any, y: np.ndarray, scoring: str, options: Any) -> float:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES, options.times))
    asked = {"cv": KFold(5), "scoring": scoring, "random_state": 0}
    permutation_test_score(model, X[:, :, :1], y, n_permutations=3, **asked)
    start = time.process_time()
    score, chance, _ = permutation_test_score(
        model, X, y, n_permutations=options.permutations, **asked
    )
    ours = (time.process_time() - start) * TIMES / options.times
    start = time.process_time()
    true, truths, _ = refitting.permutation_test_score(
        model, X[:, :, 0], y, n_permutations=options.sample, **asked
    )
    each = (time.process_time() - start) / (options.sample + 1)
    theirs = each * (options.permutations + 1) * TIMES
    gap = max(abs(score[0] - true), np.abs(chance[: options.sample, 0] - truths).max())
    print(f"{name}: {TIMES} times, {options.permutations} permutations in {ours:.1f} s")
    print(f"    ({options.times} times were timed); a loop of refits {theirs:.0f} s")
    print(f"    ({options.sample} permutations of one time were timed), {theirs / ours:.0f}x")
    print(f"    scores differ by at most {gap:.1e}")
    return theirs / ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=20)
    options = parser.parse_args()
    y = np.random.default_rng(1).normal(size=ROWS)
    with threadpool_limits(1):
        ratio = compare("Ridge, R²", Ridge(alpha=10.0), y, "r2", options)
        labels = (y > 0.0).astype(int)
        model = LSSVC(kernel="linear", alpha=10.0)
        compare("LSSVC, accuracy", model, labels, "accuracy", options)
    print("met" if ratio >= NEEDED else "MISSED", f"(wanted {NEEDED:g}x for Ridge)")


if __name__ == "__main__":
    main()
