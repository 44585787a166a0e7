"""The models of the command line, their parameters, and grids of them: given, usual or grown.

A ``ChosenModel`` is what ``--model``, ``--kernel`` and the target come to; it makes the estimator
and knows its parameters. The second half reads ``--grid``, and has default grids, half a decade
between two values, around what the data suggest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from everyfold._typing import Estimator, Matrix, Params
from everyfold.cli.encoding import Kind, bad_cell, encoder, is_text
from everyfold.cli.errors import BadInput, choose, nearest
from everyfold.cli.table import TableData
from everyfold.estimators import LSSVC, LSSVR, HuberSVC, KernelLogisticClassifier, QuadraticSVR
from everyfold.kernels import RBF, Laplacian
from everyfold.kernels.pairwise import is_sparse
from everyfold.operators import Nystrom, RandomFourier

Task = Literal["classification", "regression"]
# A value of an option: a number, a word or a structure.
Value: TypeAlias = Any

Grid: TypeAlias = dict[str, list[Value]]

MODELS = ("svc", "svr", "ridge", "lssvm", "logistic", "huber-svc", "quadratic-svr")
KERNELS = ("rbf", "laplacian", "polynomial", "linear", "cosine")
# What a typing error would exceed, of a parameter, of a grid, and of a polynomial: beyond a degree
# of 100 powers overflow.
MOST_VALUES, MOST_CANDIDATES, MOST_DEGREE = 10_000, 1_000_000, 100

# A whole-numbered target with more values than this is taken for a quantity, not for labels.
MANY_VALUES = 20

_TASKS: dict[str, Task] = {
    **dict.fromkeys(("svc", "logistic", "huber-svc"), "classification"),
    **dict.fromkeys(("svr", "quadratic-svr"), "regression"),
}
_LIBSVM_KERNELS = {"rbf": "rbf", "polynomial": "poly", "linear": "linear"}
_KERNEL_PARAMETERS = {
    **{"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
}
_OWN_PARAMETERS = {"svr": ("epsilon",), "quadratic-svr": ("epsilon",), "huber-svc": ("h",)}
_OWN: dict[str, type] = {
    **{"logistic": KernelLogisticClassifier, "huber-svc": HuberSVC, "quadratic-svr": QuadraticSVR}
}
# The structures of kernel matrices that make models of their own.
OF_LOW_RANK: dict[str, type] = {"nystrom": Nystrom, "fourier": RandomFourier}

_SPACINGS = ("logspace", "linspace", "geomspace")
_WORDS: dict[str, Params] = {
    "gamma": {"scale": "scale", "auto": "auto"},
    "class_weight": {"balanced": "balanced", "none": None},
}


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

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, the ridge first."""
        ridge = "alpha" if self.model in ("ridge", "lssvm") else "C"
        names = (ridge, *_KERNEL_PARAMETERS.get(self.kernel, ()))
        names += _OWN_PARAMETERS.get(self.model, ())
        return (*names, "class_weight") if self.task == "classification" else names

    def check_parameter(self, option: str, name: str) -> None:
        """Raise if the model has no such parameter, with the one that may be meant."""
        owner = f"--model {self.model} with --kernel {self.kernel}"
        if name in self.parameters:
            return
        if {name, self.parameters[0]} == {"C", "alpha"}:
            how = f"regularised by {self.parameters[0]}, alpha = 1/(2 C)"
            raise BadInput(f"{option}: {owner} is {how}")
        if name == "kernel":
            raise BadInput(f"{option}: the kernel cannot be searched; choose one with --kernel")
        hint = nearest(name, self.parameters)
        raise BadInput(f"{option}: {name!r} is not a parameter of {owner}; {hint}")

    def estimator(self) -> Estimator:
        """The model itself, without what comes before it."""
        if self.model in ("svc", "svr"):
            kind = SVC if self.model == "svc" else SVR
            return kind(kernel=_LIBSVM_KERNELS[self.kernel], coef0=1.0)
        if self.model in _OWN:
            return _OWN[self.model](kernel=self.kernel)
        if self.task == "classification":
            return LSSVC(kernel=self.kernel, fit_intercept=self.model == "lssvm")
        if self.model == "ridge" and (self.is_low_rank or self.in_blocks):
            # Predicts by its operator, and takes rows that are read in blocks.
            return LSSVR(kernel=self.kernel, fit_intercept=False)
        return (KernelRidge if self.model == "ridge" else LSSVR)(kernel=self.kernel)

    @property
    def is_low_rank(self) -> bool:
        """Whether the kernel matrix is one of low rank, which the model is of, too."""
        return self.operator.partition(":")[0] in OF_LOW_RANK

    def pipeline(self, X: Matrix) -> Estimator:
        """The estimator for these rows, after the steps that were asked for."""
        steps = self.steps(X)
        return Pipeline([*steps, ("model", self.estimator())]) if steps else self.estimator()

    def steps(self, X: Matrix) -> list[tuple[str, Any]]:
        """What is done to these rows before the model sees them."""
        steps: list[tuple[str, Any]] = []
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
        return f"{type(self.estimator()).__name__}, {self.kernel} kernel, {self.task}"


def check_names(model: str, kernel: str, task: str, impute: str | None) -> None:
    """Raise if there is no such model, or not with that kernel or for that task."""
    if impute is not None:
        choose("--impute", impute, ("median", "mean"))
    choose("--model", model, MODELS)
    choose("--kernel", kernel, KERNELS)
    choose("--task", task, ("auto", "classification", "regression"))
    if model in ("svc", "svr") and kernel not in _LIBSVM_KERNELS:
        known = f"--model {model} has {', '.join(_LIBSVM_KERNELS)}, and --model lssvm has them all"
        raise BadInput(f"--kernel {kernel} is not one of libsvm's; {known}")
    known = _TASKS.get(model, task)
    if task not in ("auto", known):
        raise BadInput(f"--task {task} does not suit --model {model}, which does {known}")


def decide_task(model: str, task: str, data: TableData) -> tuple[Task, TableData]:
    """What is to be predicted, and the target read accordingly: as numbers, or as labels."""
    y, target = data.y, f"the target {data.layout.target!r}"
    values, has_words = np.unique(y), is_text(y)
    fractions = values[values != np.round(values)] if y.dtype.kind == "f" else values[:0]
    is_quantity = y.dtype.kind in "fiu" and (len(values) > MANY_VALUES or fractions.size > 0)
    known = _TASKS.get(model, task)
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


# -- grids ---------------------------------------------------------------------------------------


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
    words = _WORDS.get(name, {})
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
    if name == "class_weight":
        raise BadInput(f"{where}: {name} takes {' or '.join(_WORDS[name])}")
    least, is_open = float(name == "degree"), name in ("C", "gamma", "h")
    if not math.isfinite(value) or value < least or (is_open and value == least):
        bound = f"{'greater than' if is_open else 'at least'} {least:g}"
        raise BadInput(f"{where}: {name} must be {bound}")
    if name == "degree" and (value > MOST_DEGREE or value != int(value)):
        raise BadInput(f"{where}: degree must be a whole number of at most {MOST_DEGREE}")
    return int(value) if name == "degree" else value


def read_grid(assignments: Sequence[str], choice: ChosenModel, data: TableData, seed: int) -> Grid:
    """The values of all parameters: those given, and sensible ones for the others."""
    given = dict(parse_assignment("--grid", text, choice) for text in assignments)
    names = [name for name in choice.parameters if name in given or name != "class_weight"]
    grid = {name: given.get(name) or _default(name, choice, data, seed) for name in names}
    size = math.prod(len(values) for values in grid.values())
    if size > MOST_CANDIDATES:
        raise BadInput(f"the grid has {size} candidates, and at most {MOST_CANDIDATES} are tried")
    return grid


def _default(name: str, choice: ChosenModel, data: TableData, seed: int) -> list[Value]:
    spread = _brief(float(np.std(data.y)) or 1.0) if choice.task == "regression" else 1.0
    others: Grid = {"degree": [2, 3], "coef0": [1.0], "epsilon": [_brief(0.1 * spread)]}
    others["h"] = [0.05]
    if name in others:
        return others[name]
    scale = spread if choice.model == "svr" else 1.0
    if choice.ridge_scaling == "mean":  # the same ridges
        n = data.shape[0]
        scale = scale * n if name == "C" else scale / n
    # Powers of ten from where to where.
    low, high = {"alpha": (-4, 2), "C": (-2, 3), "gamma": (-2, 1)}[name]
    if name == "gamma":
        scale = central_gamma(choice, data, seed)
        low, high = (-1, 0) if choice.kernel == "polynomial" else (low, high)
    half_decades = np.arange(2 * low, 2 * high + 1) / 2
    return [float(f"{scale * 10.0**exponent:.3g}") for exponent in half_decades]


def _brief(value: float) -> float:
    return float(f"{value:.2g}")


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


def _numbers(values: Sequence[Value]) -> list[Value]:
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
