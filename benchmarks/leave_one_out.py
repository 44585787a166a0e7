"""What leave-one-out says of pure noise, and what splitters say that avoid its bias.

Rows, balanced labels and numbers are independent draws, so that the truth is an area under the ROC
curve and an accuracy of 0.5, and a correlation of 0. A linear LS-SVM is scored by leave-one-out,
leave-pair-out and rebalanced leave-one-out, with every held-out value (``pooled``) or pair. Means
over the draws (fewer of more than 40 rows), with the standard error of the mean.

``partners``: why rebalancing leaves a bias where a single slope is fitted. The area over all pairs
of a positive and a negative row compares two models, each of which was fitted to the other row of
the pair. With T the sum of y x over all other rows it is P(T (a - b) > 2 a b) for a and b the
values of the two rows; which further rows are left out, and whether values are averaged over all
partners, hardly matters.

Run with ``python benchmarks/leave_one_out.py [study|partners] [--draws 1000]``.
"""

from __future__ import annotations

import argparse
import platform

import numpy as np
import sklearn
from scipy.stats import norm
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold

from everyfold import (
    LSSVC,
    LSSVR,
    LeavePairOut,
    RebalancedLeaveOneOut,
    cross_val_predict,
    cross_val_score,
)

SIZES = (20, 40, 80, 160, 320)
SETTINGS = ((10, 300.0), (1, 1.0))  # columns and ridge: mostly intercept, and a single slope


def of_labels(n: int, setting: tuple[int, float], rng: np.random.Generator) -> dict[str, float]:
    columns, alpha = setting
    X, y = rng.standard_normal((n, columns)), np.arange(n) % 2
    model, seed = LSSVC(kernel="linear", alpha=alpha), int(rng.integers(2**31))
    found = {}
    for name, cv in {
        "leave-one-out": LeaveOneOut(),
        "rebalanced": RebalancedLeaveOneOut(random_state=seed),
        "10 folds": StratifiedKFold(10, shuffle=True, random_state=seed),
    }.items():
        values = cross_val_predict(model, X, y, cv=cv, method="decision_function")
        found[f"AUC, {name}"] = roc_auc_score(y, values)
        found[f"accuracy, {name}"] = accuracy_score(y, values > 0)
    pairs = cross_val_score(model, X, y, cv=LeavePairOut(), scoring="roc_auc")
    found["AUC, leave-pair-out"] = pairs.mean()
    return found


def of_numbers(n: int, setting: tuple[int, float], rng: np.random.Generator) -> dict[str, float]:
    columns, alpha = setting
    X, y = rng.standard_normal((n, columns)), rng.standard_normal(n)
    model, found = LSSVR(kernel="linear", alpha=alpha), {}
    for name, cv in {
        "leave-one-out": LeaveOneOut(),
        "rebalanced": RebalancedLeaveOneOut(),
        "10 folds": KFold(10),
    }.items():
        values = cross_val_predict(model, X, y, cv=cv)
        found[f"r, {name}"] = np.corrcoef(y, values)[0, 1]
        found[f"R², {name}"] = r2_score(y, values)
    return found


def study(n: int, setting: tuple[int, float], draws: int) -> dict[str, tuple[float, float]]:
    """The mean of every score over the draws, and its standard error."""
    rng = np.random.default_rng([setting[0], n])
    count = max(2, draws * 40 // max(n, 40))
    rows = [of_labels(n, setting, rng) | of_numbers(n, setting, rng) for _ in range(count)]
    return {
        name: (
            float(np.mean([row[name] for row in rows])),
            float(np.std([row[name] for row in rows], ddof=1) / np.sqrt(count)),
        )
        for name in rows[0]
    }


def without_pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The value of row i by the slope that is fitted without rows i and k, (n, n)."""
    n = len(x) - 2
    targets = np.where(y > 0, 1.0, -1.0)
    u, v, uu, uv = (
        column.sum() - np.add.outer(column, column) for column in (x, targets, x * x, x * targets)
    )
    slope = (uv - u * v / n) / (uu - u * u / n + 1.0)  # alpha=1
    return v / n + slope * (x[:, None] - u / n)


def partners(draws: int) -> None:
    """The areas of one column of noise: one partner, all partners, the same model for both rows."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(40), np.arange(40) % 2
    cv = RebalancedLeaveOneOut(random_state=0)
    model = LSSVC(kernel="linear", alpha=1.0)
    ours = cross_val_predict(model, x[:, None], y, cv=cv, method="decision_function")
    others = np.array([held[held != i][0] for i, held in enumerate(cv.held_out_sets(x, y)[1])])
    np.testing.assert_allclose(ours, without_pairs(x, y)[np.arange(40), others])
    print(f"area under the ROC curve of noise, a single slope, {draws} draws")
    print(f"{'rows':>6}{'one partner':>16}{'all partners':>16}{'both left out':>16}{'theory':>9}")
    for n in SIZES:
        y = np.arange(n) % 2
        positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        found = []
        for _ in range(draws):
            x = rng.standard_normal(n)
            values = without_pairs(x, y)
            first, second = rng.permutation(positive), rng.permutation(negative)
            one = np.empty(n)
            one[first], one[second] = values[first, second], values[second, first]
            every = np.empty(n)
            every[positive] = values[np.ix_(positive, negative)].mean(axis=1)
            every[negative] = values[np.ix_(negative, positive)].mean(axis=1)
            wins = values[np.ix_(positive, negative)] > values[np.ix_(negative, positive)].T
            found.append((roc_auc_score(y, one), roc_auc_score(y, every), wins.mean()))
        a, b = rng.standard_normal((2, 1_000_000))
        theory = norm.cdf(-2.0 * a * b / (np.abs(a - b) * np.sqrt(n - 2))).mean()
        line = f"{n:>6}"
        for column in np.transpose(found):
            line += f"{column.mean():>9.3f} ±{column.std(ddof=1) / np.sqrt(draws):.3f}"
        print(line + f"{theory:>9.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["study", "partners"], default="study")
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    draws = options.draws
    if options.part == "partners":
        partners(draws)
        return
    print(
        f"scores of noise, linear LS-SVM, {draws} draws; Python {platform.python_version()}, "
        f"scikit-learn {sklearn.__version__}"
    )
    errors = []
    for columns, alpha in SETTINGS:
        tables = {n: study(n, (columns, alpha), draws) for n in SIZES}
        print(f"\n{f'{columns} columns, alpha={alpha:g}; rows':26}", end="")
        print("".join(f"{n:>14}" for n in SIZES))
        for name in sorted(tables[SIZES[0]]):
            cells = (tables[n][name] for n in SIZES)
            print(f"{name:26}" + "".join(f"{mean:8.3f} ±{se:.3f}" for mean, se in cells))
        errors += [tables[40][f"AUC, {name}"][0] - 0.5 for name in ("leave-pair-out", "rebalanced")]
    is_met = max(np.abs(errors[:2])) <= 0.02
    print("\nmet" if is_met else "\nMISSED", "(wanted 0.50 ± 0.02 of 40 rows and 10 columns)")


if __name__ == "__main__":
    main()
