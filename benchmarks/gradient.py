"""Test errors of one gamma for all features, of one for each, and of gradient boosting.

Twenty sets, ten with numbers and ten with labels. Five of them, marked *, were not looked at while
the search was made. On every random split four methods are tuned on the training rows
and judged on the others (mean squared error relative to the variance of y; share of wrong labels):

grid      FastGridSearchCV of an LS-SVM, 16 gammas x 16 ridges, the same gamma for all features
gradient  FastGradientSearchCV, the outer cross-validation included
random    FastRandomizedSearchCV, 256 draws with a gamma for each feature
boosting  HistGradientBoosting, 50 random draws by scikit-learn's RandomizedSearchCV

Five folds each. Seconds are those of the processor, with one thread. Run with
``python benchmarks/gradient.py [--splits 20] [--rows 300] [--methods ...]``; every finished cell is
a line of ``--cells``, and a later call goes on from there. ``--report`` only prints what is there.
Some sets are read from ``../shared/data`` beside the project, and are skipped without it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import loguniform, randint, rankdata, t, wilcoxon
from sklearn.datasets import (
    load_svmlight_file,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import RandomizedSearchCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from everyfold import LSSVC, LSSVR, FastGradientSearchCV, FastGridSearchCV, FastRandomizedSearchCV

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CELLS = Path(__file__).with_name("results") / "gradient.jsonl"
METHODS = ("grid", "gradient", "random", "boosting")
VERSIONS = {"gradient": 3}
"""Of methods that have changed; cells of former versions count no more."""


def of_libsvm(name):
    def load():
        X, y = load_svmlight_file(str(DATA / "libsvm" / f"{name}.svm.gz"))
        return X.toarray(), y

    return load


def of_raetsch(name):
    def load():
        with np.load(DATA / "raetsch" / f"{name}.npz") as found:
            return found["X"], found["y"]

    return load


NUMBERS = {
    "friedman1": lambda: make_friedman1(2000, noise=1.0, random_state=0),
    "friedman2": lambda: make_friedman2(2000, noise=100.0, random_state=0),
    "friedman3": lambda: make_friedman3(2000, noise=0.1, random_state=0),
    **{name: of_libsvm(name) for name in ("cpusmall", "mg", "housing")},
    **{name: of_libsvm(name) for name in ("energy_heating", "eunite2001")},
    **{f"{name}*": of_libsvm(name) for name in ("triazines", "pyrim")},
}
LABELS = {
    **{name: of_libsvm(name) for name in ("heart", "ionosphere", "sonar", "german.numer")},
    "diabetes": of_libsvm("diabetes"),
    **{name: of_raetsch(name) for name in ("image", "splice")},
    "australian*": of_libsvm("australian"),
    **{f"{name}*": of_raetsch(name) for name in ("thyroid", "twonorm")},
}
SETS = {**NUMBERS, **LABELS}


class OwnGammas:
    """A gamma for each feature, log-uniform around a common one, which is log-uniform itself."""

    def __init__(self, centre, features):
        self.centre, self.features = centre, features

    def rvs(self, random_state=None):
        """One draw."""
        common = random_state.uniform(-2.0, 1.0)
        return self.centre * 10.0 ** (common + random_state.uniform(-1.0, 1.0, self.features))


def grid(machine, X, y):
    gammas = np.logspace(-2.5, 1.25, 16) / X.shape[1]
    params = {"gamma": gammas, "alpha": np.logspace(-5.0, 2.5, 16)}
    return FastGridSearchCV(machine, params, cv=5).fit(X, y)


def gradient(machine, X, y):
    return FastGradientSearchCV(machine, cv=5, random_state=0).fit(X, y)


def random(machine, X, y):
    gammas = OwnGammas(1.0 / X.shape[1], X.shape[1])
    space = {"gamma": gammas, "alpha": loguniform(1e-5, 10.0**2.5)}
    return FastRandomizedSearchCV(machine, space, n_iter=256, cv=5, random_state=0).fit(X, y)


def boosting(machine, X, y):
    kinds = {LSSVR: HistGradientBoostingRegressor, LSSVC: HistGradientBoostingClassifier}
    trees = kinds[type(machine)](random_state=0, early_stopping=False)
    space = {
        "learning_rate": loguniform(0.02, 0.5),
        "max_iter": randint(20, 120),
        "max_leaf_nodes": randint(4, 32),
        "min_samples_leaf": randint(3, 30),
        "l2_regularization": loguniform(1e-3, 10.0),
    }
    return RandomizedSearchCV(trees, space, n_iter=50, cv=5, random_state=0).fit(X, y)


def cell(name, split, method, most_rows):
    """Error on rows that were not seen, and seconds of the processor."""
    X, y = SETS[name]()
    order = np.random.default_rng(split).permutation(len(y))
    n_train = min(most_rows, 2 * len(y) // 3)
    train, test = order[:n_train], order[n_train : n_train + 2000]
    X = StandardScaler().fit(X[train]).transform(X)
    if name in NUMBERS:
        y = (y - y[train].mean()) / y[train].std()
    machine = LSSVR() if name in NUMBERS else LSSVC()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        model = globals()[method](machine, X[train], y[train])
        seconds = time.process_time() - begin
        predicted = model.predict(X[test])
    wrong = (predicted - y[test]) ** 2 if name in NUMBERS else predicted != y[test]
    found = {"set": name, "split": split, "method": method, "rows": n_train}
    if method in VERSIONS:
        found["version"] = VERSIONS[method]
    return {**found, "error": float(np.mean(wrong)), "seconds": seconds}


def run(splits, methods, most_rows, path):
    """All cells that are not there yet, one split of all sets after the other."""
    done = {(c["set"], c["split"], c["method"]) for c in read(path)}
    jobs = [(n, s, m) for s in range(splits) for m in methods for n in SETS]
    for name, split, method in jobs:
        is_there = (name, split, method) in done
        if is_there or not (DATA.exists() or name.startswith("friedman")):
            continue
        made = cell(name, split, method, most_rows)
        with path.open("a") as file:
            file.write(json.dumps(made) + "\n")


def read(path):
    """The cells that are there; a line that was not finished is not."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    cells = [json.loads(line) for line in lines]
    return [c for c in cells if c.get("version") == VERSIONS.get(c["method"])]


def worse(own, other, share):
    """The corrected resampled t-test of paired errors (Nadeau and Bengio): t, p of two sides."""
    apart = np.asarray(own) - np.asarray(other)
    if len(apart) < 2 or not apart.std():
        return 0.0, 1.0
    error = np.sqrt((1.0 / len(apart) + share) * apart.var(ddof=1))
    value = apart.mean() / error
    return value, 2.0 * t.sf(abs(value), len(apart) - 1)


def report(path):
    """Grid and gradient on all their splits, then with random search and with boosting."""
    cells = defaultdict(dict)
    for c in read(path):
        cells[c["set"], c["split"]][c["method"]] = c
    compare(cells)
    for methods in (METHODS[:3], METHODS):
        rank(cells, methods)


def compare(cells):
    """One gamma against one for each, in pairs."""
    print(
        "set              rows splits      grid  gradient  gradient/grid     p   processor seconds"
    )
    means, ratios = [], []
    for name in SETS:
        own = [c for key, c in cells.items() if key[0] == name and {"grid", "gradient"} <= set(c)]
        if not own:
            continue
        one, each = ([c[m]["error"] for c in own] for m in ("grid", "gradient"))
        seconds = [np.mean([c[m]["seconds"] for c in own]) for m in ("grid", "gradient")]
        means.append((np.mean(each), np.mean(one)))
        ratios.append(seconds[1] / seconds[0])
        change, (_, p) = np.mean(each) / max(np.mean(one), 1e-12), worse(each, one, 0.5)
        line = f"{name:<16}{own[0]['grid']['rows']:>5}{len(own):>7}{shown(one)}{shown(each)}"
        print(f"{line}{change:>15.2f}{p:>6.2f}{seconds[0]:>10.2f}{seconds[1]:>10.2f}")
    each, one = np.array(means).T
    print(
        f"better on {np.sum(each < one)}, worse on {np.sum(each > one)} of {len(one)} sets; ",
        end="",
    )
    print(f"Wilcoxon over the sets: p = {wilcoxon(each, one).pvalue:.3f}")
    print(f"seconds, gradient/grid: median {np.median(ratios):.2f}, largest {max(ratios):.2f}")
    ranks = np.mean([rankdata(pair) for pair in zip(one, each, strict=True)], axis=0)
    print(f"mean rank: grid {ranks[0]:.2f}, gradient {ranks[1]:.2f}")
    lower = np.sum((each <= 0.8 * one)[: len(NUMBERS)])
    print(f"at least 20 % lower on {lower} of {len(NUMBERS)} sets with numbers")


def rank(cells, methods):
    """Several methods on the splits that they share."""
    shared = {key: c for key, c in cells.items() if set(methods) <= set(c)}
    names = [name for name in SETS if any(key[0] == name for key in shared)]
    if not names:
        return
    print("\n" + f"{'set':<16}{'splits':>7}" + "".join(f"{m:>10}" for m in methods), end="")
    print("   processor seconds")
    means = []
    for name in names:
        own = [c for key, c in shared.items() if key[0] == name]
        errors = {m: [c[m]["error"] for c in own] for m in methods}
        seconds = {m: [c[m]["seconds"] for c in own] for m in methods}
        means.append([np.mean(errors[m]) for m in methods])
        line = f"{name:<16}{len(own):>7}" + "".join(shown(errors[m]) for m in methods)
        print(line + "".join(shown(seconds[m], 2) for m in methods))
    ranks = np.mean([rankdata(mean) for mean in means], axis=0)
    words = ", ".join(f"{m} {r:.2f}" for m, r in zip(methods, ranks, strict=True))
    print(f"mean rank over {len(names)} sets: {words}")


def shown(values, digits=4):
    """The mean."""
    return f"{np.mean(values):>10.{digits}f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.splits, asked.methods, asked.rows, asked.cells)
    report(asked.cells)
