"""Permutation tests against scikit-learn's: 1,000 permutations of kernel machines, 10 folds.

KernelRidge (rbf) on 500 rows with the same folds for every permutation, and LSSVC, whose stratified
folds differ from one permutation to the next. scikit-learn is timed on 20 of the same permutations
(``--sample``), and its time for all is that times their number; the scores of these are compared.

Run with ``python benchmarks/permutations.py [--permutations 1000] [--sample 20]``.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
import sklearn.model_selection as refitting
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from threadpoolctl import threadpool_limits

from everyfold import LSSVC, permutation_test_score

ROWS, FOLDS, NEEDED = 500, 10, 200.0


def timed(function: Callable[..., Any], count: int, *args: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    found = function(*args, cv=FOLDS, n_permutations=count, random_state=0)
    return time.perf_counter() - start, found


def compare(name: str, model: Any, X: np.ndarray, y: np.ndarray, counts: tuple[int, int]) -> float:
    many, few = counts
    permutation_test_score(model, X, y, cv=FOLDS, n_permutations=2)  # imports and compiles
    ours, (score, scores, pvalue) = timed(permutation_test_score, many, model, X, y)
    theirs, (true, truths, _) = timed(refitting.permutation_test_score, few, model, X, y)
    each = theirs / (few + 1)  # y itself is one more
    ratio = each * (many + 1) / ours
    gap = max(abs(score - true), np.abs(scores[:few] - truths).max())
    print(f"{name}: {many} permutations in {ours:.3f} s, p = {pvalue:.4f}")
    print(f"    scikit-learn {1e3 * each:.1f} ms a permutation ({few} timed), {ratio:.0f}x")
    print(f"    scores differ by at most {gap:.1e}")
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=20, help="permutations by scikit-learn")
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads of both")
    options = parser.parse_args()
    counts = options.permutations, options.sample
    X, y = make_friedman1(ROWS, 10, noise=1.0, random_state=0)
    y -= y.mean()
    print(
        f"permutation tests, {ROWS} rows, {FOLDS} folds, {options.threads} BLAS threads; "
        f"{platform.machine()}, Python {platform.python_version()}, scikit-learn "
        f"{sklearn.__version__}"
    )
    with threadpool_limits(options.threads):
        model = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5)
        ratio = compare("KernelRidge, R²", model, X, y, counts)
        compare("LSSVC, stratified, accuracy", LSSVC(alpha=0.1, gamma=0.5), X, y > 0.0, counts)
    print("met" if ratio >= NEEDED else "MISSED", f"(wanted {NEEDED:g}x for KernelRidge)")


if __name__ == "__main__":
    main()
