"""Banded ridge with four kernels: our descent and our draws of weights, beside himalaya's draws.

Four bands of columns, linear kernels, targets that each depend on one to four of the bands with
noise. ``MultipleKernelRidgeCV(solver="random_search")`` of himalaya (numpy backend) draws weights
of Dirichlet distributions, and every target takes its best weights and alpha by five folds; ours
are ``KernelRidgeCV`` with a fifth of the draws, and with the gradient for groups of targets
that depend on the same bands. R² on rows held out, mean over the targets, and processor time; in
the first part all targets depend on the bands alike.

himalaya is measured in an environment of its own: ``python benchmarks/bands.py --himalaya PYTHON``
with a Python that has himalaya, or without it only ours. One BLAS thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

ROWS, TEST, WIDTH, FOLDS = 300, 500, 60, 5
ALPHAS = np.logspace(-3, 5, 17)
THEIRS = "--only-theirs"


def problem(targets: int, kinds: int) -> tuple[np.ndarray, ...]:
    """Rows, targets and the kind of each target: which bands it depends on, and how much."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS + TEST, 4 * WIDTH))
    X *= np.repeat([1.0, 3.0, 0.3, 1.0], WIDTH)
    shares = random.dirichlet(np.full(4, 0.5), size=kinds)
    kind = np.arange(targets) % kinds
    Y = np.zeros((ROWS + TEST, targets))
    for band in range(4):
        part = X[:, band * WIDTH : (band + 1) * WIDTH]
        signal = part @ random.normal(size=(WIDTH, targets))
        Y += signal / signal.std(axis=0) * np.sqrt(shares[kind, band])
    Y += 0.7 * random.normal(size=Y.shape)
    return X, Y, kind


def r2(Y: np.ndarray, found: np.ndarray) -> float:
    """The mean over targets."""
    return float(np.mean(1.0 - ((Y - found) ** 2).sum(axis=0) / ((Y - Y.mean(axis=0)) ** 2).sum(0)))


def theirs(targets: int, kinds: int, draws: int) -> tuple[float, float]:
    """Score and time of himalaya, on linear kernels with the same traces as ours."""
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    X, Y, _ = problem(targets, kinds)
    parts = np.split(X, 4, axis=1)
    sizes = [np.mean((part[:ROWS] ** 2).sum(axis=1)) for part in parts]
    level = Y[:ROWS].mean(axis=0)
    begin = time.process_time()
    train = np.stack([p[:ROWS] @ p[:ROWS].T / s for p, s in zip(parts, sizes, strict=True)])
    params = {"n_iter": draws, "alphas": ALPHAS / ROWS, "progress_bar": False}
    model = MultipleKernelRidgeCV(
        kernels="precomputed",
        solver="random_search",
        solver_params=params,
        cv=FOLDS,
        random_state=0,
    )
    model.fit(train, Y[:ROWS] - level)
    taken = time.process_time() - begin
    test = np.stack([p[ROWS:] @ p[:ROWS].T / s for p, s in zip(parts, sizes, strict=True)])
    return r2(Y[ROWS:], np.asarray(model.predict(test)) + level), taken


def ours(targets: int, kinds: int, search: object) -> tuple[float, float]:
    """Score and time of KernelRidgeCV."""
    from sklearn.model_selection import KFold

    from everyfold import KernelRidgeCV

    X, Y, kind = problem(targets, kinds)
    bands = [("linear", slice(k * WIDTH, (k + 1) * WIDTH)) for k in range(4)]
    begin = time.process_time()
    model = KernelRidgeCV(
        ALPHAS / ROWS,
        kernel=bands,
        cv=KFold(FOLDS),
        alpha_per_target=True,
        band_search=search,
        target_groups=kind if search == "gradient" else "each",
        random_state=0,
    ).fit(X[:ROWS], Y[:ROWS])
    taken = time.process_time() - begin
    return r2(Y[ROWS:], model.predict(X[ROWS:])), taken


def main() -> None:
    """Both problems, and what each search gives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--himalaya", help="a Python that has himalaya")
    parser.add_argument(THEIRS, nargs=3, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only_theirs:
        print(json.dumps(theirs(*asked.only_theirs)))
        return
    for targets, kinds, draws in ((300, 1, 100), (300, 4, 100)):
        print(f"{ROWS} rows, 4 bands, {targets} targets of {kinds} kinds, {len(ALPHAS)} alphas")
        if asked.himalaya:
            numbers = [str(number) for number in (targets, kinds, draws)]
            command = [asked.himalaya, __file__, THEIRS, *numbers]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            score, base = json.loads(printed.splitlines()[-1])
            print(f"himalaya, {draws} draws   R² {score:.4f}  {base:7.1f} s", flush=True)
        else:
            base = np.nan
        for name, search in ((f"{draws // 5} draws", draws // 5), ("gradient", "gradient")):
            score, taken = ours(targets, kinds, search)
            ratio = base / taken
            print(f"everyfold, {name:12} R² {score:.4f}  {taken:7.1f} s  {ratio:5.1f}x", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if os.environ["OPENBLAS_NUM_THREADS"] != "1":
        sys.exit("set OPENBLAS_NUM_THREADS=1")
    main()
