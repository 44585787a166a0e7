"""Kernel ridge models that choose alpha and gamma themselves, against a grid and against himalaya.

``sets``: ``KernelRidgeCV()`` and ``KernelRidgeClassifierCV()`` as they are, and FastGridSearchCV of
LSSVR and LSSVC over a 6 x 6 grid of alpha and gamma with five folds, on rows whose columns are
standardised and divided by the root of their number: error on rows held out (squared error as a
share of the variance, or share of mistakes), and time. Means over random splits with 70 % of the
rows, at most 1200. The first sets were looked at while the defaults were chosen, those behind the
line were not. A set of ../shared/data that is not there is left out.

``targets``: one alpha for each of many targets, by five folds of a linear kernel; himalaya's
KernelRidgeCV (numpy backend) where it is installed. Both choose the same alphas.

Times are processor time, with one BLAS thread.

Run with ``python benchmarks/kernel_ridge_cv.py [sets | targets]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import sklearn.datasets as sets
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from threadpoolctl import threadpool_limits

from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    KernelRidgeClassifierCV,
    KernelRidgeCV,
)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SEEN = (
    *("abalone", "housing", "mpg", "cpusmall", "bundled diabetes"),
    *("german.numer", "ionosphere", "a1a", "sonar", "heart", "digits"),
)
UNSEEN = (
    *("bodyfat", "mg", "space_ga", "triazines", "pyrim", "eunite2001"),
    *("energy_heating", "friedman1", "friedman2", "friedman3"),
    *("australian", "breast-cancer", "diabetes", "liver-disorders", "fourclass", "wine"),
    *("banana", "image", "ringnorm", "splice", "thyroid", "titanic", "twonorm", "waveform"),
)
NUMBERS = {
    *("abalone", "housing", "mpg", "cpusmall", "bundled diabetes", *UNSEEN[:10]),
}
MADE: dict[str, Callable[[], tuple]] = {
    "bundled diabetes": lambda: sets.load_diabetes(return_X_y=True),
    "digits": lambda: sets.load_digits(return_X_y=True),
    "wine": lambda: sets.load_wine(return_X_y=True),
    "friedman1": lambda: sets.make_friedman1(1500, noise=1.0, random_state=0),
    "friedman2": lambda: sets.make_friedman2(1500, noise=50.0, random_state=0),
    "friedman3": lambda: sets.make_friedman3(1500, noise=0.1, random_state=0),
}


def load(name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and targets; None if the file is not there."""
    if name in MADE:
        return MADE[name]()
    path = DATA / "libsvm" / f"{name}.svm.gz"
    if path.exists():
        X, y = load_svmlight_file(str(path))
        return X.toarray(), y
    path = DATA / "raetsch" / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as found:
        return found["X"], found["y"].ravel()


def splits(name: str, count: int, most: int = 1200) -> Iterator[tuple]:
    """Random splits into rows to fit and rows held out."""
    found = load(name)
    assert found is not None
    X, y = found
    for seed in range(count):
        strata = None if name in NUMBERS else y
        Xs, Xt, ys, yt = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=strata)
        yield Xs[:most], Xt, ys[:most], yt


def grid(is_numbers: bool, X: np.ndarray) -> FastGridSearchCV:
    """The 6 x 6 grid."""
    axes = {"alpha": np.logspace(-4, 1, 6), "gamma": np.logspace(-3, 0.5, 6)}
    kind = KFold if is_numbers else StratifiedKFold
    model = LSSVR() if is_numbers else LSSVC()
    scoring = "neg_mean_squared_error" if is_numbers else "accuracy"
    return FastGridSearchCV(model, axes, cv=kind(5, shuffle=True, random_state=0), scoring=scoring)


def error(name: str, model: object, X: np.ndarray, y: np.ndarray) -> float:
    """Squared error as a share of the variance, or share of mistakes."""
    predicted = model.predict(X)
    if name in NUMBERS:
        return float(np.mean((predicted - y) ** 2) / np.var(y))
    return float(np.mean(predicted != y))


def compare_on_sets(count: int) -> None:
    """Error and time of both on all sets."""
    print(f"{'':18} {'rows':>5} {'columns':>7}   {'error':^19}   {'seconds':^15}")
    print(f"{'':18} {'':>5} {'':>7}   {'no grid':>9} {'6 x 6':>9}   {'no grid':>7} {'6 x 6':>7}")
    for group in (SEEN, UNSEEN):
        wins = ties = total = 0
        for name in group:
            if load(name) is None:
                print(f"{name:18} is not there")
                continue
            errors, seconds = np.zeros((count, 2)), np.zeros((count, 2))
            for i, (Xs, Xt, ys, yt) in enumerate(splits(name, count)):
                width = Xs.std(axis=0) * np.sqrt(Xs.shape[1])
                width[width == 0.0] = 1.0
                mean = Xs.mean(axis=0)
                is_numbers = name in NUMBERS
                kind = KernelRidgeCV if is_numbers else KernelRidgeClassifierCV
                begin = time.process_time()
                ours = kind(random_state=0).fit(Xs, ys)
                seconds[i, 0] = time.process_time() - begin
                begin = time.process_time()
                other = grid(is_numbers, Xs).fit((Xs - mean) / width, ys)
                seconds[i, 1] = time.process_time() - begin
                errors[i] = (
                    error(name, ours, Xt, yt),
                    error(name, other, (Xt - mean) / width, yt),
                )
            own, theirs = errors.mean(axis=0)
            times = np.median(seconds, axis=0)
            total += 1
            wins, ties = wins + (own < theirs), ties + (own == theirs)
            print(
                f"{name:18} {len(Xs):>5} {Xs.shape[1]:>7}   {own:9.4f} {theirs:9.4f}   "
                f"{times[0]:7.2f} {times[1]:7.2f}",
                flush=True,
            )
        print(f"mean rank of no grid: {2.0 - (wins + 0.5 * ties) / total:.2f} of 1 and 2\n")


def compare_on_targets(rows: int = 1000, targets: int = 20_000, columns: int = 2000) -> None:
    """One alpha for each target, against himalaya."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, columns)) / np.sqrt(columns)
    weights = random.normal(size=(columns, targets)) * np.logspace(-1.0, 1.0, targets)
    Y = X @ weights + random.normal(size=(rows, targets))
    alphas = np.logspace(-3, 3, 20)
    cv = KFold(5)

    def ours() -> np.ndarray:
        model = KernelRidgeCV(
            alphas,
            kernel="linear",
            cv=cv,
            scoring="neg_mean_squared_error",  # as himalaya
            fit_intercept=False,
            alpha_per_target=True,
        )
        return model.fit(X, Y).alpha_

    def theirs() -> np.ndarray:
        from himalaya.kernel_ridge import KernelRidgeCV as Himalaya

        model = Himalaya(alphas, kernel="linear", cv=cv)
        return np.asarray(model.fit(X, Y).best_alphas_)

    known = [("everyfold", ours)] + [("himalaya", theirs)] * bool(find_spec("himalaya"))
    chosen = {}
    print(f"{rows} rows, {targets} targets, {len(alphas)} alphas, 5 folds")
    for name, run in known:
        begin = time.process_time()
        chosen[name] = run()
        print(f"{name:12} {time.process_time() - begin:7.1f} s", flush=True)
    if len(chosen) > 1:
        same = np.isclose(chosen["everyfold"], chosen["himalaya"]).mean()
        print(f"{100 * same:.2f} % of the alphas are the same")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("sets", "targets"))
    parser.add_argument("--splits", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        if asked.part != "targets":
            compare_on_sets(asked.splits)
        if asked.part != "sets":
            compare_on_targets()
