"""What the cells do: select and test, time, compare held-out values. All by public calls."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from benchmarks.papers import data
from benchmarks.papers.study import Grid, Method, Result, Rows
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut
from sklearn.preprocessing import StandardScaler

from everyfold import Circulant, FastGridSearchCV, cross_val_predict
from everyfold.papers.published_metrics import huber_hinge_scorer

NEAR_ONE = 60
"""Rows of the sub-sample on which a search is run before it is timed, so that all is compiled."""


@dataclass(frozen=True)
class Split:
    """Training and test rows of one repetition."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def is_labelled(self) -> bool:
        """Whether y are labels."""
        return set(np.unique(self.y)) <= {-1.0, 1.0}


def split_rows(rows: Rows, number: int, share: float | None) -> Split:
    """The published partition, or a random one with a share of the rows for training."""
    numbers = data.load(rows.name)
    if share is None:
        assert numbers.train is not None
        assert numbers.test is not None
        train, test = numbers.train[number], numbers.test[number]
    else:
        order = np.random.default_rng([number, len(numbers.y)]).permutation(len(numbers.y))
        order = order[: rows.take]
        train, test = np.split(order, [round(share * len(order))])
    X, y = numbers.X, numbers.y
    if rows.is_scaled:
        X = StandardScaler().fit(X[train]).transform(X)
    return Split(X[train], y[train], X[test], y[test])


# -- select and test ------------------------------------------------------------------------------


def select(rows: Rows, number: int, share: float | None, grid: Grid, method: Method) -> Result:
    """Choose a candidate on the training rows, fit it there, and test it.

    ``error`` is the error rate in percent, or the mean squared error; ``reported`` is the criterion
    of the chosen candidate, ``ridge`` its λ or ρ as in the grid; ``seconds`` are those of the
    processor for choosing.
    """
    split = split_rows(rows, number, share)
    grid = method.grid or grid
    rng = np.random.default_rng([number, 1])
    start = time.process_time()
    search = search_for(method, grid, split, rng, number)
    seconds = time.process_time() - start
    i = search.best_index_
    value, ridge = candidates(grid)[i]
    machine = (method.final or method.machine).of(split.y)
    model = with_candidate(machine, grid, value, ridge, len(split.y)).fit(split.X, split.y)
    found = {"value": value, "ridge": ridge, "train": len(split.y), "seconds": round(seconds, 3)}
    found["reported"] = reported(search, method, split)[i]
    return {**found, **test(model, split)}


def reported(search: FastGridSearchCV, method: Method, split: Split) -> list[float]:
    """The criterion of every candidate; error rates in percent."""
    scores = search.cv_results_["mean_test_score"]
    if scorer(method, split) == "accuracy" and "criterion" not in method.options:
        return [100.0 * float(1.0 - score) for score in scores]
    return [float(-score) for score in scores]


def test(model: Any, split: Split) -> Result:
    """Errors on the test rows."""
    guess = model.predict(split.X_test)
    if split.is_labelled:
        return {"error": 100.0 * float(np.mean(guess != split.y_test))}
    off = guess - split.y_test
    return {
        "error": float(np.mean(off**2)),
        "cov": 100.0 * float(np.sqrt(np.mean(off**2)) / np.mean(split.y_test)),
        "mape": 100.0 * float(np.mean(np.abs(off / np.maximum(np.abs(split.y_test), 1e-12)))),
    }


def candidates(grid: Grid) -> list[tuple[float, float]]:
    """Kernel and ridge in the order of the search: the smoother candidate first, so in ties."""
    ridges = sorted(grid.ridges, reverse=True)
    return [(value, ridge) for ridge in ridges for value in sorted(grid.values)]


def search_for(
    method: Method, grid: Grid, split: Split, rng: np.random.Generator, seed: int
) -> FastGridSearchCV:
    """The search of a method over a grid, fitted."""
    model = method.machine.of(split.y)
    options = dict(method.options)
    if callable(options.get("operator")):
        options["operator"] = options["operator"](rng)
    scaling = method.scaling or grid.scaling
    search = FastGridSearchCV(
        model,
        parameters(model, grid, scaling, len(split.y)),
        scoring=None if "criterion" in options else scorer(method, split),
        cv=folds(method, seed),
        refit=False,
        ridge_scaling=scaling,
        random_state=seed,
        **{"n_confirm": 0, **options},
    )
    order = Circulant().arrange(split.X) if method.is_arranged else slice(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is measured here
        return search.fit(split.X[order], split.y[order])


def folds(method: Method, seed: int) -> Any:
    """Random folds of equal size, or single rows."""
    if "criterion" in method.options:
        return None
    if method.folds is None:
        return LeaveOneOut()
    if isinstance(method.options.get("operator"), Circulant):
        return KFold(method.folds)
    return KFold(method.folds, shuffle=True, random_state=seed)


def scorer(method: Method, split: Split) -> Any:
    """The score by which candidates are compared."""
    if not split.is_labelled:
        return "neg_mean_squared_error"
    if method.scoring == "error":
        return "accuracy"
    return huber_hinge_scorer(method.machine.classifier.h)


def parameters(model: Any, grid: Grid, scaling: str, n: int) -> dict[str, Any]:
    """The grid in the parameters of an estimator, ordered as ``candidates``."""
    ridges = [_converted(ridge, grid.scaling, scaling, n) for ridge in grid.ridges]
    key = "gamma" if grid.kernel == "rbf" else "degree"
    values = sorted(grid.values) if key == "gamma" else [int(v) for v in sorted(grid.values)]
    fixed = {} if key == "gamma" else {"coef0": [1.0], "gamma": [1.0]}
    fixed["kernel"] = [grid.kernel]
    if "C" in model.get_params():
        return {"C": sorted(0.5 / ridge for ridge in ridges), key: values, **fixed}
    return {"alpha": sorted(ridges, reverse=True), key: values, **fixed}


def _converted(ridge: float, declared: str, wanted: str, n: int) -> float:
    """λ of a mean, or ρ of a sum over n rows, as the other."""
    if declared == wanted:
        return ridge
    return ridge * n if wanted == "sum" else ridge / n


def with_candidate(model: Any, grid: Grid, value: float, ridge: float, n: int) -> Any:
    """The estimator with one candidate's parameters, for a fit on n rows."""
    alone = Grid((value,), (ridge,), grid.scaling, grid.kernel)
    settings = {key: values[0] for key, values in parameters(model, alone, "sum", n).items()}
    return clone(model).set_params(**settings)


# -- time -----------------------------------------------------------------------------------------


def measure(
    rows: Rows,
    share: float | None,
    grid: Grid,
    methods: Sequence[Method],
    refits: Sequence[Method],
    thin: tuple[int, int],
) -> Result:
    """Seconds of each method, and of scikit-learn's refits, in one process.

    Refits are those of a sub-grid, every ``thin``-th kernel and ridge, times the candidates that it
    stands for. Medians of 3 runs in turn; of a single one where a round takes more than 20 seconds.
    """
    split = split_rows(rows, 0, share)
    sub = grid.thin(*thin)
    small = Split(split.X[:NEAR_ONE], split.y[:NEAR_ONE], split.X_test, split.y_test)
    works: dict[str, Callable[[Split], Any]] = {}
    for method in methods:
        works[method.name] = partial(_search_once, method, method.grid or grid)
    for method in refits:
        works[method.name] = partial(_refit_once, method, sub)
    for work in works.values():
        work(small)
    taken: dict[str, list[float]] = {name: [] for name in works}
    while len(next(iter(taken.values()))) < 3 and sum(t[0] for t in taken.values() if t) < 20.0:
        for name, work in works.items():
            start = time.perf_counter()
            work(split)
            taken[name].append(time.perf_counter() - start)
    seconds = {name: float(np.median(times)) for name, times in taken.items()}
    for method in refits:
        seconds[method.name] *= grid.size / sub.size
    runs = len(next(iter(taken.values())))
    return {"seconds": seconds, "train": len(split.y), "sub_grid": sub.size, "runs": runs}


def _search_once(method: Method, grid: Grid, split: Split) -> None:
    search_for(method, grid, split, np.random.default_rng(0), 0)


def _refit_once(method: Method, grid: Grid, split: Split) -> None:
    model = method.machine.of(split.y)
    GridSearchCV(
        model,
        parameters(model, grid, "sum", len(split.y)),
        scoring=scorer(method, split),
        cv=folds(method, 0),
        refit=False,
    ).fit(split.X, split.y)


# -- compare held-out values ----------------------------------------------------------------------


def discrepancy(
    rows: Rows, number: int, share: float, grid: Grid, method: Method, orders: Sequence[int]
) -> Result:
    """Mean squares of (held-out value of order r − that of a refit), for the candidate of k-CV.

    Relative to the mean square of the refits' values in ``relative``.
    """
    split = split_rows(rows, number, share)
    search = search_for(method, grid, split, np.random.default_rng(0), number)
    value, ridge = candidates(grid)[search.best_index_]
    model = with_candidate(method.machine.of(split.y), grid, value, ridge, 1)
    truth = held_out(model, split, method, number, "exact")
    squares = [
        float(np.mean((held_out(model, split, method, number, order) - truth) ** 2))
        for order in orders
    ]
    return {"value": value, "ridge": ridge, "squares": squares, "size": float(np.mean(truth**2))}


def held_out(model: Any, split: Split, method: Method, seed: int, order: Any) -> np.ndarray:
    """Held-out values of one model, whose ridge is that of a mean."""
    kind = "decision_function" if split.is_labelled else "predict"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = cross_val_predict(
            model,
            split.X,
            split.y,
            cv=folds(method, seed),
            method=kind,
            order=order,
            ridge_scaling="mean",
        )
    return np.asarray(values)


def curve(rows: Rows, share: float, grid: Grid, methods: Sequence[Method]) -> Result:
    """Reported errors of several methods over the ridges of the first kernel of a grid."""
    split = split_rows(rows, 0, share)
    found: Result = {"ridges": sorted(grid.ridges, reverse=True), "train": len(split.y)}
    for method in methods:
        search = search_for(method, grid, split, np.random.default_rng(0), 0)
        found[method.name] = reported(search, method, split)
    return found
