"""Remarks on the winner of a search: at the edge of its grid, constant, or without similar rows.

The same sentences are notes of the plan and warnings in Python, and messages in the shell. A remark
is a warning only where ignoring it would very probably cost something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

import numpy as np

from everyfold._typing import Array, Label, Params
from everyfold.adapters.pipelines import freeze
from everyfold.engine.records import ESTIMATED

# From this many values on, an end of them is worth a warning: somebody meant to cover a range.
WORTH_VALUES = 5

# What the last step to the edge must gain for a warning: so many standard errors of the difference,
# and this share of the range of all scores. Lower values would warn of plateaus and of noise.
WORTH_ERRORS, WORTH_SHARE = 2.0, 0.05

# Parameters that have further values beyond most ends.
_GOING_ON = frozenset({"alpha", "C", "gamma", "epsilon", "degree", "coef0", "h"})

# Where there is nothing below, if that is not 0.
_LOWEST = {"degree": 1.0}


@dataclass(frozen=True)
class Remark:
    """A sentence for the plan, and whether it is worth a warning."""

    words: str
    is_warning: bool = True


# -- the edge of the grid --------------------------------------------------------------------------


def edges(grid: Mapping[str, Sequence[object]], best: Mapping[str, object]) -> dict[str, str]:
    """The parameters whose best value is at an end of the grid: "smallest" or "largest".

    A 0 at the lower end is none: there is nothing beyond.

    Examples
    --------
    >>> edges({"C": [1.0, 10.0, 100.0], "gamma": [0.1]}, {"C": 100.0, "gamma": 0.1})
    {'C': 'largest'}
    """
    found = {}
    for name, values in grid.items():
        numbers = _numbers(values)
        value = best.get(name)
        if len(numbers) < 2 or not _is_real(value):
            continue
        if value == numbers[-1]:
            found[name] = "largest"
        elif value == numbers[0] and value != _LOWEST.get(name.rpartition("__")[2], 0.0):
            found[name] = "smallest"
    return found


def edge_words(name: str, value: object, side: str) -> str:
    """That a value is at an end of its grid.

    Examples
    --------
    >>> edge_words("C", 100.0, "largest")
    'the best C=100 is the largest of its grid'
    """
    return f"the best {name}={value:.6g} is the {side} of its grid"


def _numbers(values: Sequence[object]) -> list[float]:
    return sorted({value for value in values if _is_real(value)})


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def edge_remarks(
    grids: Sequence[Mapping[str, Sequence[object]]],
    results: Params,
    best: int,
    metric: str,
    by_fold: Callable[[int], Array],
) -> list[Remark]:
    """What is to be said of a winner at the edge: a note, and a warning where it is worth one.

    That is where five values or more were tried, and the last of them still gains much over the one
    before it: two standard errors of the difference over the folds, and a twentieth of the range of
    all scores. Plateaus and ties gain nothing, small grids are meant to be small, and a score that
    is only estimated is compared with none. ``by_fold`` gives the scores of a candidate by fold.
    """
    params = results["params"][best]
    grid = grids[0] if len(grids) == 1 else _around(grids, params)
    remarks = []
    for name, side in edges(grid, params).items():
        words = edge_words(name, params[name], side)
        further = "larger" if side == "largest" else "smaller"
        numbers = _numbers(grid[name])
        rises = False
        if len(numbers) >= WORTH_VALUES and name.rpartition("__")[2] in _GOING_ON:
            inside = {**params, name: numbers[-2] if side == "largest" else numbers[1]}
            wanted = freeze(inside)
            same = (k for k, found in enumerate(results["params"]) if freeze(found) == wanted)
            other = next(same, None)
            if other is not None and results["status"][other] != ESTIMATED:
                rises = _rises(by_fold(other), by_fold(best), results[f"mean_test_{metric}"])
        better = ", where the score still improves" if rises else ""
        remarks.append(Remark(f"{words}{better}; try {further} values", rises))
    return remarks


def _around(
    grids: Sequence[Mapping[str, Sequence[object]]], params: Mapping[str, object]
) -> dict[str, list[object]]:
    """All values of the grids that the parameters are a point of."""
    merged: dict[str, list[object]] = {}
    for grid in grids:
        is_point = set(grid) == set(params) and all(
            not _is_real(value) or value in _numbers(grid[name]) for name, value in params.items()
        )
        for name, values in grid.items() if is_point else ():
            merged.setdefault(name, []).extend(values)
    return merged


def _rises(before: Array, after: Array, whole: Array) -> bool:
    """Whether the edge is much better than the next value inside, beside all mean scores."""
    gain = after - before
    error = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else 0.0
    spread = np.nanmax(whole) - np.nanmin(whole)
    return bool(gain.mean() > max(WORTH_ERRORS * error, WORTH_SHARE * spread))


# -- what the winner says --------------------------------------------------------------------------


def constant_remark(label: Label, params: Params) -> Remark:
    """What is to be said of a classifier that gives held-out rows of every class the same label."""
    return Remark(
        f"the best candidate, {params}, predicts {label!r} for every held-out row, which needs no "
        "model. Search other values, standardise the features, or use class_weight='balanced' or a "
        "scorer that takes every class into account, such as 'balanced_accuracy'"
    )


def identity_remark(params: Params) -> Remark:
    """What is to be said of a kernel that knows each row only."""
    return Remark(
        f"the kernel of the best candidate, {params}, is numerically the identity: no two rows are "
        "similar, and all new rows get the same prediction. The kernel is too narrow for the data: "
        "search smaller values of gamma, or standardise the features."
    )
