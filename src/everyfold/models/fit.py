"""Fits of a model: to rows in memory, or to those of a source in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from everyfold.kernels import Kernel
from everyfold.models.model import Model
from everyfold.models.sources import Reader, Summing, View, check_model, choose_map, read_source
from everyfold.models.targets import Target
from everyfold.operators import Expansion, FeatureMap, LowRank, Responds, Solution
from everyfold.operators.base import having
from everyfold.operators.memory import batch_bytes, threads_that_fit
from everyfold.operators.sums import Start, Sums
from everyfold.operators.threads import thread_budget
from everyfold.rows import RowSource
from everyfold.rows.batches import height_of
from everyfold.rows.rules import Everything
from everyfold.rows.telling import warn
from everyfold.solve import Fit, solve
from everyfold.types import Array, Matrix


@dataclass(frozen=True)
class Fitted:
    """A fitted function and its intercepts, one a column of the target."""

    expansion: Expansion
    intercept: Array


def fit_rows(model: Model, kernel: Kernel, X: Matrix, target: Target, weights: Array) -> Fitted:
    """Fit a model to rows in memory.

    **Cost** that of the structure; squared loss with features that are too many to be held takes
    sums over the rows, as for a source.
    """
    structure = model.structure_to_fit(kernel, X.shape)
    is_one = len(model.columns_of_ridges(target.columns.shape[1])) == 1 and not target.has_pairs
    if structure.is_long(*X.shape) and is_one and model.loss.has_constant_curvature:
        (problem,) = model.problems(target, weights)
        rho = problem.rho(model.ridges[0], problem.n_counted)
        rows = having(structure.bind_rows(kernel, X), LowRank)
        fitted = _fitted(rows, rows.sums(problem.levelled.quadratic, [], rho).total, rho)
        return replace(fitted, intercept=fitted.intercept + problem.level)
    operator = having(structure.bind(kernel, X), Responds)
    solution = fit_columns(model, operator, target, weights)
    return Fitted(operator.expand(solution.coef), solution.intercept)


def _fitted(features: Responds | FeatureMap, total: Sums, rho: float) -> Fitted:
    models = total.solve([rho])
    return Fitted(features.expand(models.coef[0]), models.intercept[0])


def fit_columns(model: Model, operator: Responds, target: Target, weights: Array) -> Solution:
    """Fit every column of a target, together where they share their rows and their ridge."""
    q = target.columns.shape[1]
    fits: list[tuple[list[int], Fit]] = []
    problems = model.problems(target, weights)
    if target.has_pairs:
        for k, problem in enumerate(problems):
            fits.append(([k], solve(problem, operator, model.ridges[0])))
    else:
        (problem,) = problems
        for ridge, columns in model.columns_of_ridges(q):
            fits.append((columns, solve(problem, operator, ridge)))
    _warn_unconverged([fit for _, fit in fits])
    coef, intercept = np.empty((len(fits[0][1].solution.coef), q)), np.empty(q)
    for columns, fit in fits:
        own = columns if fit.solution.coef.shape[1] == q else [0]
        coef[:, columns] = fit.solution.coef[:, own]
        intercept[columns] = fit.solution.intercept[own]
    return Solution(coef, intercept)


def _warn_unconverged(fits: list[Fit]) -> None:
    worst = max(float(fit.stationarity.max(initial=0.0)) for fit in fits)
    if not all(fit.is_converged for fit in fits):
        warn(
            "Newton's method did not converge: the optimality conditions are violated by "
            f"{worst:.1g}. Use a larger alpha (smaller C) or a larger h.",
            ConvergenceWarning,
        )


@dataclass(frozen=True)
class SourceFit(Fitted):
    """A fit to a source: also how the targets were read, and if y has one axis."""

    reader: Reader
    is_flat: bool


def fit_source(model: Model, source: RowSource) -> SourceFit:
    """Fit a model for squared loss; one pass, and one more where classes must be found first."""
    check_model(model)
    reader = read_source(source, model)
    features, ridge = choose_map(model, source), model.ridges[0]
    start = Start.of(features, ridge, source.n_rows or 1, intercept=model.intercept)
    d, width = source.n_features, features.raw_width
    height = height_of(max(width, d))
    threads = max(1, min(thread_budget(), (source.n_rows or 0) // (2 * height)))
    threads = threads_that_fit(threads, batch_bytes(height, d, width) + 16 * width**2)
    found = Summing(reader, Everything(), height, [View(features, start)]).over(source, threads)
    total = found.sums[0].total
    rho = ridge * (total.count if model.ridge_scaling == "mean" else 1)
    fitted = _fitted(features, total, rho)
    return SourceFit(fitted.expansion, fitted.intercept, reader, found.is_flat)
