"""Criteria without folds in place of held-out scores: one fit on all rows, one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from everyfold._typing import Array, Route
from everyfold.crossval.base import Closed, Failure, OutOfFold
from everyfold.crossval.closed_criteria import name_of
from everyfold.engine.planning import costs
from everyfold.engine.planning.costs import COSTS, Cost, Workload
from everyfold.engine.planning.squared_loss import squared
from everyfold.estimators.model import Model
from everyfold.losses import Loss
from everyfold.operators import StructureError, SupportsResponse
from everyfold.solvers import Problem

# The status of a number that is the criterion itself, up to rounding or a solver's tolerance.
AS_DEFINED = "as defined"


def check_criterion(model: Model, criterion: Closed | None) -> None:
    """Raise if a criterion is not defined for a model."""
    if criterion is None:
        return
    name, reason = name_of(criterion), criterion.reason_against(model.loss)
    if model.chooses_ridge:
        reason = "the model chooses its own alpha; search alpha with KernelRidge or Ridge"
    if reason:
        raise ValueError(f"criterion={name!r} is not available for loss={model.loss}: {reason}")


def closed_words(criterion: Closed) -> str:
    """What is done, in words."""
    return f"criterion {name_of(criterion)!r}: one fit on all rows for each candidate, no folds"


def closed_cost(
    criterion: Closed, loss: Loss, work: Workload, sizes: Sequence[int]
) -> tuple[Cost, Route]:
    """What the fits on all rows cost, and the cheaper route for squared loss.

    ``sizes`` are the rows of each problem: of all rows, or of each pair of classes.
    """
    spectrum = COSTS.cube_eigen * float(work.rank) ** 3
    if loss.has_constant_curvature:
        rows = replace(work, groups=((1, work.n),))
        routes: tuple[Route, ...] = ("eigen", "cholesky")
        costed = [(squared(rows, route), route) for route in routes]
        cost, route = min(costed, key=lambda pair: pair[0].seconds)
    elif loss.is_smooth:
        cost, route = costs.newton_fits(replace(work, groups=())), "cholesky"
    else:
        one = replace(work, groups=((0, 1),))
        cost, route = costs.fold_paths(one, tuple(sizes), is_staged=False), "cholesky"
    extra = spectrum if criterion.needs_eigenvalues else 0.0
    return replace(cost, seconds=cost.seconds + extra), route


def by_criterion(
    criterion: Closed,
    problems: Sequence[Problem],
    operator: SupportsResponse,
    ridges: Sequence[float],
) -> list[OutOfFold]:
    """The criterion of every ridge, as one row with a column for each target.

    All ridges together; if that fails, each alone.
    """
    try:
        found = [list(criterion.evaluate(problem, operator, ridges)) for problem in problems]
    except (MemoryError, StructureError):
        raise
    except Exception as error:
        if len(ridges) == 1:
            width = sum(problem.y.shape[1] for problem in problems)
            failure = Failure.caught(error)
            return [replace(_record(np.full(width, np.nan)), failures={0: failure})]
        alone = [by_criterion(criterion, problems, operator, [ridge]) for ridge in ridges]
        return [record for records in alone for record in records]
    return [_record(np.concatenate(parts)) for parts in zip(*found, strict=True)]


def _record(values: Array) -> OutOfFold:
    unknown = np.full(1, np.nan)
    is_known = np.array([bool(np.isfinite(values).all())])
    return OutOfFold(values[None, :], is_known, unknown, unknown)
