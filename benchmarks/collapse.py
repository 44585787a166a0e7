"""What influence series of finite order select, and what the resummed formula does instead.

For six data sets, 70/30 splits, rbf kernels exp(-d^2 / 2 sigma) with sigma = 2^-5 ... 2^10 and
lambda = 2^1 ... 2^-15 ("mean" convention, 10 folds): the reported cross-validation error of the
candidate that each criterion chooses, its true cross-validation error and its test error. Data are
read from ``../shared/data`` beside the project. ``--plot FILE`` draws the reported against the true
errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from everyfold import FastGridSearchCV
from everyfold.crossval import ClosedFormCV, Folds
from everyfold.kernels import RBF
from everyfold.losses import HuberHinge
from everyfold.operators import DenseMatrix
from everyfold.papers import GACV
from everyfold.solvers import Problem

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "libsvm"
SETS = ["heart", "ionosphere", "diabetes", "german.numer", "liver-disorders", "sonar"]
CRITERIA: dict[str, float | str] = {
    "order 1": 1,
    "order 3": 3,
    "infinity": np.inf,
    "exact": "exact",
    "GACV": "GACV",
}


class Split:
    """One random 70/30 split of one data set, and everything computed on it."""

    def __init__(self, name: str, seed: int, step: int) -> None:
        X, y = load_svmlight_file(str(DATA / f"{name}.svm.gz"))
        self.X, self.X_test, self.y, self.y_test = train_test_split(
            X.toarray(), y, test_size=0.3, random_state=seed, stratify=y
        )
        cv = StratifiedKFold(10, shuffle=True, random_state=seed)
        self.folds = Folds.from_splits(cv.split(self.X, self.y), len(self.y))
        self.cv = cv
        self.gammas = 1.0 / (2.0 * 2.0 ** np.arange(-5.0, 11.0, step))
        self.lambdas = 2.0 ** np.arange(1.0, -16.0, -step)

    def surface(self, order: float | str) -> np.ndarray:
        """Reported criterion, (gammas, lambdas)."""
        problem = Problem(self.y[:, None], np.ones(len(self.y)), HuberHinge(0.05), True, "mean")
        reported = np.empty((len(self.gammas), len(self.lambdas)))
        for i, gamma in enumerate(self.gammas):
            operator = DenseMatrix(RBF(gamma)(self.X))
            if order == "GACV":
                found = GACV().evaluate(problem, operator, list(self.lambdas))
                reported[i] = [float(value[0]) for value in found]
                continue
            criterion = ClosedFormCV(order=order, certify=False, with_radius=False)
            results = criterion.evaluate(problem, operator, list(self.lambdas), self.folds)
            reported[i] = [record.mistakes(self.y, self.folds).mean() for record in results]
        return reported

    def true_surface(self) -> np.ndarray:
        """Errors of real cross-validation of SVC with C = 1/(2 n lambda), (gammas, lambdas)."""
        n = len(self.y)
        grid = {"gamma": self.gammas, "C": 1.0 / (2.0 * n * self.lambdas)}
        search = FastGridSearchCV(SVC(), grid, cv=self.cv, refit=False).fit(self.X, self.y)
        errors = 1.0 - search.cv_results_["mean_test_score"]
        return errors.reshape(len(self.lambdas), len(self.gammas)).T

    def test_error(self, i: int, j: int) -> float:
        """The error of the SVC with one candidate's parameters on the rows held back."""
        C = 1.0 / (2.0 * len(self.y) * self.lambdas[j])
        model = SVC(gamma=self.gammas[i], C=C).fit(self.X, self.y)
        return float(np.mean(model.predict(self.X_test) != self.y_test))


def run(name: str, splits: int, step: int) -> dict[str, np.ndarray]:
    """Mean (reported, true CV, test) errors of each criterion's choice."""
    rows: dict[str, list[tuple[float, float, float]]] = {key: [] for key in [*CRITERIA, "true CV"]}
    for seed in range(splits):
        split = Split(name, seed, step)
        truth = split.true_surface()
        for label, order in CRITERIA.items():
            surface = split.surface(order)
            i, j = np.unravel_index(np.argmin(surface), surface.shape)
            rows[label].append((surface[i, j], truth[i, j], split.test_error(int(i), int(j))))
        i, j = np.unravel_index(np.argmin(truth), truth.shape)
        rows["true CV"].append((truth[i, j], truth[i, j], split.test_error(int(i), int(j))))
    return {label: 100 * np.mean(values, axis=0) for label, values in rows.items()}


def draw(path: str, name: str, step: int) -> None:
    """Reported against true errors of all candidates, one panel a criterion."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    split = Split(name, 0, step)
    truth = split.true_surface().ravel()
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharex=True, sharey=True)
    for ax, label in zip(axes, ("order 1", "order 3", "infinity", "exact"), strict=True):
        surface = split.surface(CRITERIA[label]).ravel()
        ax.plot([0, 60], [0, 60], color="0.7", lw=1)
        ax.scatter(100 * truth, 100 * surface, s=10, alpha=0.5)
        best = int(np.argmin(surface))
        ax.scatter(100 * truth[best], 100 * surface[best], s=70, marker="*", color="C3")
        ax.set(title=label, xlabel="true 10-fold error (%)")
    axes[0].set_ylabel("reported error (%)")
    figure.suptitle(f"{name}: every candidate, the chosen one starred")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--step", type=int, default=1, help="every k-th power of two of the grid")
    parser.add_argument("--plot", help="draw reported against true errors of the first set")
    options = parser.parse_args(arguments)
    if not DATA.is_dir():
        raise SystemExit("needs the data sets beside the project (../shared/data); not found")
    print(
        f"mean over {options.splits} splits 70/30, every {options.step}. power of two of the grid; "
        "errors in %"
    )
    print(f"{'set':<17}{'criterion':<12}{'reported':>9}{'true CV':>9}{'test':>8}")
    test: dict[str, list[float]] = {}
    with threadpool_limits(1):
        for name in options.sets:
            for label, (reported, true, error) in run(name, options.splits, options.step).items():
                print(f"{name:<17}{label:<12}{reported:>9.2f}{true:>9.2f}{error:>8.2f}", flush=True)
                test.setdefault(label, []).append(error)
        for label, errors in test.items():
            print(f"{'mean':<17}{label:<12}{'':>18}{np.mean(errors):>8.2f}")
        if options.plot:
            draw(options.plot, options.sets[0], options.step)


if __name__ == "__main__":
    main()
