"""Values of parameters: read from ``--grid`` and ``--param``, usual ones, and larger grids.

Default grids have half a decade between two values, around what the data suggest.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.pipeline import Pipeline

from everyfold._typing import Params
from everyfold.cli.errors import BadInput
from everyfold.cli.model_table import PARAMETERS, process_kernel
from everyfold.cli.models import ChosenModel
from everyfold.cli.table import TableData
from everyfold.kernels import RBF, Laplacian

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
    with warnings.catch_warnings():  # a parameter at its bounds is as good as any beyond them
        warnings.simplefilter("ignore", ConvergenceWarning)
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
