"""The model that was chosen, and the values of its parameters.

A ``ChosenModel`` makes the estimator with the steps before it, and knows its parameters by the
names that they have in the shell. Values are read from ``--grid`` and ``--param``; default grids
have half a decade between two values, around what the data suggest.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from everyfold._typing import Estimator, Matrix, Params
from everyfold.cli.errors import BadInput, nearest
from everyfold.cli.model_table import (
    MODELS,
    PARAMETERS,
    ModelRow,
    Task,
    models_that,
    process_kernel,
)
from everyfold.cli.table import Kind, TableData, bad_cell, encoder, is_text
from everyfold.kernels import RBF, Laplacian
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators import Nystrom, RandomFourier

# A whole-numbered target with more values than this is taken for a quantity, not for labels.
MANY_VALUES = 20

# The structures of kernel matrices that make models of their own.
OF_LOW_RANK: dict[str, type] = {"nystrom": Nystrom, "fourier": RandomFourier}


@dataclass(frozen=True)
class ChosenModel:
    """A model that has been chosen, how its rows are prepared, and in which units its ridge is."""

    model: str
    kernel: str
    task: Task
    standardised: bool
    impute: str | None = None
    kinds: tuple[Kind, ...] = ()
    ridge_scaling: str = "sum"
    operator: str = "auto"
    in_blocks: bool = False
    tunes_itself: bool = False

    @property
    def row(self) -> ModelRow:
        """What the table of models says of it."""
        return MODELS[self.model]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, the ridge first; none if the model chooses them."""
        return () if self.tunes_itself else self.row.parameters(self.kernel, self.task)

    def check_parameter(self, option: str, name: str) -> None:
        """Raise if the model has no such parameter, with the one that may be meant."""
        owner = f"--model {self.model}"
        owner += f" with --kernel {self.kernel}" if self.row.kernels else ""
        if name in self.parameters:
            return
        if {name, self.parameters[0]} == {"C", "alpha"}:
            how = f"regularised by {self.parameters[0]}, alpha = 1/(2 C)"
            raise BadInput(f"{option}: {owner} is {how}")
        if name == "kernel":
            raise BadInput(f"{option}: the kernel cannot be searched; choose one with --kernel")
        hint = nearest(name, self.parameters)
        if not self.row.kernels and name in ("gamma", "degree", "coef0"):
            hint = f"for a kernel with one use --model {self.row.instead}"
        raise BadInput(f"{option}: {name!r} is not a parameter of {owner}; {hint}")

    def estimator(self) -> Estimator:
        """The model itself, without what comes before it."""
        row, is_special = self.row, self.in_blocks or self.is_low_rank
        # KernelRidge has no operator, and nothing of scikit-learn takes rows that are read in
        # blocks: others stand for them.
        special = row.without_grid if self.tunes_itself else row.in_blocks if is_special else None
        make = (special or (row.labels, row.numbers))[self.task == "regression"]
        assert make is not None  # or check_names had refused the task
        return make(kernel=row.kernels[self.kernel]) if row.kernels else make()

    @property
    def is_low_rank(self) -> bool:
        """Whether the kernel matrix is one of low rank, which the model is of, too."""
        return self.operator.partition(":")[0] in OF_LOW_RANK

    def pipeline(self, X: Matrix) -> Estimator:
        """The estimator for these rows, after the steps that were asked for."""
        steps = self.steps(X)
        return Pipeline([*steps, ("model", self.estimator())]) if steps else self.estimator()

    def steps(self, X: Matrix) -> list[tuple[str, Estimator]]:
        """What is done to these rows before the model sees them."""
        steps: list[tuple[str, Estimator]] = []
        if self.impute is not None:
            steps += [("imputer", SimpleImputer(strategy=self.impute, keep_empty_features=True))]
        if self.kinds:  # numbers among words are objects, until a scaler makes numbers of them
            scaler = StandardScaler(with_mean=self.standardised, with_std=self.standardised)
            return [("encoder", encoder(self.kinds, [*steps, ("scaler", scaler)], self.impute))]
        if self.standardised:
            steps += [("scaler", StandardScaler(with_mean=not is_sparse(X)))]
        return steps

    @property
    def prefix(self) -> str:
        """What comes before the names of parameters in the pipeline."""
        is_prepared = self.standardised or self.impute is not None or self.kinds
        return "model__" if is_prepared else ""

    def __str__(self) -> str:
        kernel = f", {self.kernel} kernel" if self.row.kernels else ""
        return f"{type(self.estimator()).__name__}{kernel}, {self.task}"


def decide_task(model: str, task: str, data: TableData) -> tuple[Task, TableData]:
    """What is to be predicted, and the target read accordingly: as numbers, or as labels."""
    if data.y.ndim > 1:
        if not MODELS[model].takes_several or task == "classification":
            able = models_that(lambda row: row.takes_several)
            how = f"--model {model}" + (" for labels" if MODELS[model].takes_several else "")
            raise BadInput(
                f"--target names {data.y.shape[1]} columns, and {how} predicts one; give one, or "
                f"use --model {able} for numbers"
            )
        return "regression", data
    y, target = data.y, f"the target {data.layout.target!r}"
    values, has_words = np.unique(y), is_text(y)
    fractions = values[values != np.round(values)] if y.dtype.kind == "f" else values[:0]
    # Labels repeat: whole numbers of which most stand once are quantities, however few rows.
    is_varied = len(values) > MANY_VALUES or 2 * len(values) > max(len(y), 4)
    is_quantity = y.dtype.kind in "fiu" and (is_varied or fractions.size > 0)
    known = MODELS[model].task or task
    is_regression = known == "regression"
    bad = bad_cell(y, len(y) if is_regression else None) if has_words else None
    if bad is not None and task != "classification":
        advice = "or leave the row out" + (
            "" if is_regression else "; --task classification for labels"
        )
        raise BadInput(f"{target} has {bad.words}; {bad.remedy} {advice}")
    if is_regression or (known == "auto" and is_quantity):
        if has_words:
            advice = "for classification use --model svc, lssvm or logistic"
            labels = f"has labels such as {str(y[0])!r}"
            raise BadInput(f"{target} {labels}, but --model {model} predicts numbers; {advice}")
        return "regression", replace(data, y=y.astype(np.float64))
    if len(values) < 2:
        advice = "a classifier needs two; check --target"
        raise BadInput(f"{target} has one class only ({values[0]}); {advice}")
    if fractions.size:
        advice = "for regression use --model svr, ridge or lssvm"
        values_are = f"values such as {fractions[0]:g}, which are no class labels"
        raise BadInput(f"{target} has {values_are}; {advice}")
    return "classification", replace(data, y=y.astype(np.int64) if y.dtype.kind == "f" else y)


# -- Values of parameters: given, usual ones, and larger grids -------------------------------------

# A value of a parameter: a number or a word.
Value: TypeAlias = float | str | None
Grid: TypeAlias = dict[str, list[Value]]

# What a typing error would exceed, of a parameter and of a grid.
MOST_VALUES, MOST_CANDIDATES = 10_000, 1_000_000

# Rows that the parameters of a Gaussian process are fitted to; 1000 take some three seconds.
PROCESS_ROWS = 1000

_SPACINGS = ("logspace", "linspace", "geomspace")
# Of gamma around its central value, in powers of ten; inner products grow with their power.
_DECADES = {"polynomial": (-1, 0)}


def parse_assignment(option: str, text: str, choice: ChosenModel) -> tuple[str, list[Value]]:
    """A parameter and its values from ``name=values``.

    Examples
    --------
    >>> svc = ChosenModel("svc", "rbf", "classification", True)
    >>> parse_assignment("--grid", "C=1, 10, logspace(2, 3, 2)", svc)
    ('C', [1.0, 10.0, 100.0, 1000.0])
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not values:
        raise BadInput(f"{option} {text!r} is not of the form name=value,value,…")
    choice.check_parameter(option, name)
    found: list[Value] = []
    for word in re.split(r",(?![^()]*\))", values):
        found += _values(f"{option} {text!r}", name, word.strip())
    if len(found) > MOST_VALUES:
        raise BadInput(f"{option} {name}: a parameter may have at most {MOST_VALUES} values")
    return name, list(dict.fromkeys(found))


def _values(where: str, name: str, word: str) -> list[Value]:
    words = PARAMETERS[name].words
    if word.lower() in words:
        return [words[word.lower()]]
    spacing = re.fullmatch(r"(\w+)\(([^()]*)\)", word)
    try:
        numbers = _spaced(where, *spacing.groups()) if spacing else [float(word)]
    except ValueError:
        also = f" or one of {', '.join(words)}" if words else ""
        raise BadInput(f"{where}: {word!r} is not a number{also}") from None
    return [_checked(where, name, number) for number in numbers]


def _spaced(where: str, function: str, arguments: str) -> list[float]:
    if function not in _SPACINGS:
        raise BadInput(f"{where}: {function!r} is not one of {', '.join(_SPACINGS)}")
    try:
        low, high, count = arguments.split(",")
        if int(count) > MOST_VALUES:
            raise BadInput(f"{where}: a parameter may have at most {MOST_VALUES} values")
        values = getattr(np, function)(float(low), float(high), int(count))
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{where}: {function} takes (from, to, number of values)") from error
    if len(values) == 0 or not np.isfinite(values).all():
        raise BadInput(f"{where}: {function}({arguments}) gives no finite values")
    # Rounded so that logspace(-2, 3, 6) has 0.1 and not 0.1 with a tail.
    return [float(f"{value:.12g}") for value in values]


def _checked(where: str, name: str, value: float) -> Value:
    """A value that the parameter can take."""
    row = PARAMETERS[name]
    if not row.has_numbers:
        raise BadInput(f"{where}: {name} takes {' or '.join(row.words)}")
    if not math.isfinite(value) or value < row.least or (row.is_open and value == row.least):
        bound = f"{'greater than' if row.is_open else 'at least'} {row.least:g}"
        raise BadInput(f"{where}: {name} must be {bound}")
    if value > row.most or (row.is_whole and value != int(value)):
        raise BadInput(f"{where}: {name} must be a whole number of at most {row.most}")
    return int(value) if row.is_whole else value


def read_grid(assignments: Sequence[str], choice: ChosenModel, data: TableData, seed: int) -> Grid:
    """The values of all parameters: those given, and sensible ones for the others."""
    given = dict(parse_assignment("--grid", text, choice) for text in assignments)
    if choice.model == "gp":
        single = {name: values[0] for name, values in given.items() if len(values) == 1}
        others = suited(choice, data, seed, single)
        given = {name: given.get(name, [others[name]]) for name in choice.parameters}
    names = [name for name in choice.parameters if name in given or name != "class_weight"]
    grid = {name: given.get(name) or _default(name, choice, data, seed) for name in names}
    size = math.prod(len(values) for values in grid.values())
    if size > MOST_CANDIDATES:
        raise BadInput(f"the grid has {size} candidates, and at most {MOST_CANDIDATES} are tried")
    return grid


def _default(name: str, choice: ChosenModel, data: TableData, seed: int) -> list[Value]:
    if PARAMETERS[name].usual:
        return list(PARAMETERS[name].usual)
    spread = _brief(float(np.std(data.y)) or 1.0) if choice.task == "regression" else 1.0
    if name == "epsilon":
        return [_brief(0.1 * spread)]
    scale, (low, high) = spread if choice.row.follows_spread else 1.0, choice.row.decades
    if name == "gamma":
        scale = central_gamma(choice, data, seed)
        low, high = _DECADES.get(choice.kernel, (-2, 1))
    elif choice.ridge_scaling == "mean":  # the same ridges
        n = data.shape[0]
        scale = scale * n if name == "C" else scale / n
    half_decades = np.arange(2 * low, 2 * high + 1) / 2
    return [float(f"{scale * 10.0**exponent:.3g}") for exponent in half_decades]


def _brief(value: float) -> float:
    return float(f"{value:.2g}")


def suited(choice: ChosenModel, data: TableData, seed: int, given: Params) -> Params:
    """The parameters with those that can be read from the rows, where they are not given."""
    if "gamma" in choice.parameters and "gamma" not in given:
        return {**given, "gamma": central_gamma(choice, data, seed)}
    return {**_of_process(choice, data, seed, given), **given} if choice.model == "gp" else given


def _of_process(choice: ChosenModel, data: TableData, seed: int, given: Params) -> Params:
    """The noise, signal and length scale of a Gaussian process that suit the rows best.

    Beside those that are given they have the largest marginal likelihood, on at most
    ``PROCESS_ROWS`` rows: each step of the search factorises the kernel matrix.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.y))[:PROCESS_ROWS])
    X, y = data.X[rows], data.y[rows]
    if steps := choice.steps(X):
        X = Pipeline(steps).fit_transform(X)
    start = {"signal": 1.0, "noise": 0.5, "length_scale": _brief(math.sqrt(X.shape[1]))}
    kernel = process_kernel(**{**start, **given})
    own = {name: PARAMETERS[name].path.removeprefix("kernel__") for name in start}
    kernel.set_params(**{f"{own[name]}_bounds": "fixed" for name in given})
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    # A parameter at its bounds is as good as any beyond them.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = process.fit(X, y).kernel_.get_params()
    return {name: float(f"{found[own[name]]:.3g}") for name in start}


def central_gamma(choice: ChosenModel, data: TableData, seed: int) -> float:
    """1 / the median distance (squared, for rbf) of 1000 rows; 1 / features for inner products."""
    n, d = data.X.shape
    if choice.kernel == "polynomial":
        return _brief(1.0 / d)
    X = data.X[np.sort(np.random.default_rng(seed).permutation(n)[:1000])]
    if steps := choice.steps(X):
        X = Pipeline(steps).fit_transform(X)
    kernel = RBF(1.0) if choice.kernel == "rbf" else Laplacian(1.0)
    distances = kernel.base_matrix(X)
    apart = distances[distances > 0.0]
    return _brief(1.0 / float(np.median(apart))) if apart.size else 1.0


def _numbers(values: Sequence[Value]) -> list[float]:
    return sorted(value for value in values if isinstance(value, int | float))


def grow(grid: Grid, at: dict[str, str]) -> tuple[Grid, list[Grid]]:
    """The grid extended beyond the edges, and what is new of it as grids that do not overlap.

    Examples
    --------
    >>> whole, new = grow({"C": [1.0, 10.0], "gamma": [0.1, 1.0]}, {"C": "largest"})
    >>> whole["C"], new
    ([1.0, 10.0, 100.0, 1000.0, 10000.0], [{'C': [100.0, 1000.0, 10000.0], 'gamma': [0.1, 1.0]}])
    """
    added = {name: _beyond(grid[name], side) for name, side in at.items()}
    fresh = [name for name, values in added.items() if values]
    whole = {name: [*values, *added.get(name, [])] for name, values in grid.items()}
    new: list[Grid] = []
    for k, name in enumerate(fresh):
        part = {other: grid[other] if other in fresh[:k] else whole[other] for other in grid}
        new.append({**part, name: added[name]})
    return whole, new


def _beyond(values: Sequence[Value], side: str) -> list[Value]:
    """Three values further at the same ratio, or none if the values are not of that kind."""
    numbers = _numbers(values)
    # Zero and negative values have no ratio, and degrees no values between.
    if numbers[0] <= 0 or isinstance(numbers[0], int):
        return []
    near, end = (numbers[1], numbers[0]) if side == "smallest" else (numbers[-2], numbers[-1])
    further = [float(f"{end * (end / near) ** k:.3g}") for k in (1, 2, 3)]
    return [value for value in further if 1e-12 < value < 1e12]
