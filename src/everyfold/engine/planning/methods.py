"""How the folds of a group of candidates are evaluated: the choice of a method, and its cost.

A group has one kernel, loss, target and weights; only the ridges differ. The choice is made before
any kernel exists, from the outline of its structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from everyfold._sklearn_private import CompiledLibsvm
from everyfold._typing import Matrix, Order, Route
from everyfold.crossval.all_folds_newton import Together
from everyfold.crossval.base import Closed, CrossValMethod
from everyfold.crossval.closed_form import ClosedFormCV, InnerLeaveOneOut
from everyfold.crossval.gram_sums import GramCV
from everyfold.crossval.kernel_newton import AllFoldsKernel, FoldKernel
from everyfold.crossval.primal import AllFoldsPrimal, FoldPrimal
from everyfold.crossval.refit import FoldSolver, Refit
from everyfold.crossval.svm import (
    REFITTED,
    FoldPaths,
    SmoothedSVMSteps,
    SVMLooByRefit,
    SVMLooByStep,
)
from everyfold.engine.planning import costs
from everyfold.engine.planning.costs import Cost, Workload
from everyfold.engine.planning.pilot_fits import Pilot
from everyfold.engine.planning.squared_loss import METHODS, own_ridge, plan_exact
from everyfold.engine.records import Task
from everyfold.engine.request import is_finite
from everyfold.estimators.model import Model
from everyfold.losses import Multinomial
from everyfold.operators.base import OperatorSpec
from everyfold.solvers import Problem

# Beyond this number of folds nobody wants refits of the estimator itself, and sums over the rows
# of every fold cost more than one response.
MANY_FOLDS = 20

SERIES = (
    "Influence series of finite order under-estimate errors where the spectral radius of a fold "
    "is near 1"
)
STEP = (
    "One step may be far off for folds of several rows: in benchmarks/many_folds.py mean "
    "accuracies differed by up to 0.3, and mean squared errors by up to 144 %"
)
SINGLE = (
    "In benchmarks/many_folds.py mean accuracies by steps without single rows differed by up to "
    "0.04, and mean squared errors by up to 9 %"
)
RESPONSE = (
    "The error of a response of low rank depends on the columns that are drawn; there is none "
    "without operator=Nystrom(replaces='response')"
)
# How far approximations may be off; benchmarks/results has the figures.
SCREENED = (
    "Candidates that cannot win are solved to a tolerance of 0.05 only: in benchmarks/svm.py their "
    "mean scores differed by up to 0.004"
)

# Up to so many folds smooth losses of a full kernel matrix take Newton steps with a preconditioner
# of each fold. More folds share the factorisation of all rows, from which they differ by few rows.
# Fits of single folds with piecewise quadratic losses took as long as that with 20 folds.
FEW_FOLDS = 20

# The tolerance at which all Cs of a longer path are solved first.
COARSE = 0.05

# Cs on one kernel from which on they are solved coarsely first.
STAGED_FROM = 5


@dataclass(frozen=True)
class Method:
    """How a group is evaluated: executed as it stands, and printed.

    Attributes
    ----------
    criterion : CrossValMethod or Closed
    words : str
    seconds : float
        What it should cost.
    memory : int
        Bytes at work, the kernel matrix included.
    caveat : str
        How far values may be from those of refits, in words; empty if only by rounding or a
        solver's tolerance.
    by_steps : float, optional
        The seconds of one step from the fit on all rows, where that could be asked for instead.
    caveat_of_steps : str
        How far off these would be.
    is_of_another_model : bool
        Whether values belong to an approximate kernel, so that refits cannot confirm them.
    fallback : FoldSolver
        What fits folds one by one where the criterion fails as a whole.
    excludes_identity : bool
        Whether kernels near the identity get the worst score, as in finite influence series.
    """

    criterion: CrossValMethod | Closed
    words: str
    seconds: float
    memory: int
    caveat: str = ""
    by_steps: float | None = None
    caveat_of_steps: str = STEP
    is_of_another_model: bool = False
    fallback: FoldSolver[Any] = Refit()  # noqa: RUF009  # immutable
    excludes_identity: bool = False

    @property
    def is_approximate(self) -> bool:
        """Whether values differ from those of refits by more than rounding or a tolerance."""
        return bool(self.caveat)


def check_order(model: Model, order: Order) -> None:
    """Raise if a model's loss or kernel does not allow the order, or its ridges are too many."""
    if model.chooses_ridge and is_finite(order):
        raise ValueError(
            f"order={order!r} is not available for a model that chooses its own alpha; use "
            "method='auto'"
        )
    if len(model.ridges) > 1 and not model.loss.has_constant_curvature:
        raise ValueError(
            f"alpha has {len(model.ridges)} entries, but loss={model.loss} needs one number for "
            "all targets"
        )
    if order == "auto":  # every model allows it
        return
    model.structure_for_any().check_order(order)
    if is_finite(order) and model.choice.depends_on_rows:
        raise ValueError(
            f"order={order!r} needs one kernel for all folds, but gamma={model.choice.gamma!r} "
            "depends on the training rows; use method='auto' or a number for gamma"
        )


def choose_method(
    models: Sequence[Model],
    task: Task,
    outline: OperatorSpec,
    order: Order,
    rows: Callable[[], Matrix],
) -> Method:
    """The method for candidates that differ in their ridge only.

    ``rows`` are asked for where no size tells how long a method takes.
    """
    model = models[0]
    if model.loss.has_log_link:
        _check_literal(model, task, order)
    if outline.response_rank is not None:
        _check_responses(model, task, outline)
    if isinstance(model.loss, Multinomial):
        method = _several_classes(models, task, outline, order)
    elif task.criterion is not None:
        method = _by_criterion(models, task, outline, task.criterion)
    elif model.chooses_ridge:
        method = _own_ridge(model, task, outline)
    elif model.loss.has_constant_curvature:
        method = _closed_form(models, task, outline, order)
    elif model.loss.is_smooth:
        method = _newton(models, task, outline, order)
    else:
        method = _support_vectors(models, task, outline, order, rows)
    seconds = method.seconds + costs.overhead(len(models), len(task.whole.folds))
    return replace(
        method,
        seconds=seconds,
        is_of_another_model=outline.is_approximate or model.is_stand_in,
        excludes_identity=is_finite(order),
    )


def _check_literal(model: Model, task: Task, order: Order) -> None:
    """Refuse what is not known of a loss of logarithms, whose ridge goes with the weights."""
    if task.criterion is not None or is_finite(order) or order == math.inf:
        raise ValueError(
            f"loss={model.loss} has held-out values of every fold's own fit only; use "
            "method='exact' and no criterion"
        )


def _check_responses(model: Model, task: Task, outline: OperatorSpec) -> None:
    """Refuse what a response cannot tell of a fold, where a stand-in for it was asked for."""
    for is_wrong, what in (
        (task.criterion is not None, "criterion; leave it out"),
        (outline.is_per_fold, "a kernel of each fold; use preprocessing='once', a gamma"),
        (model.class_weight == "balanced", "class_weight='balanced'; pass a dict of weights"),
        (model.chooses_ridge, "a model that chooses its own alpha; use Ridge"),
        (not task.whole.folds.are_removable, "folds that do not just remove rows; use another cv"),
    ):
        if is_wrong:
            raise ValueError(
                f"operator=Nystrom(replaces='response') cannot be combined with {what} or "
                "replaces='kernel'"
            )


def _work(models: Sequence[Model], task: Task, outline: OperatorSpec) -> Workload:
    """The sizes that costs depend on, for losses with one ridge for all targets."""
    n, q = task.target.columns.shape
    ridges = len({model.ridges for model in models})
    is_margin = models[0].loss.is_margin
    return Workload(
        n, outline.rank, ridges, q, task.whole.folds.groups, outline.is_in_memory, is_margin
    )


def _method(
    criterion: CrossValMethod | Closed, words: str, cost: Cost, caveat: str = "", **more: Any
) -> Method:
    return Method(criterion, words, cost.seconds, cost.memory, caveat, **more)


def _by_criterion(
    models: Sequence[Model], task: Task, outline: OperatorSpec, criterion: Closed
) -> Method:
    """One fit on all rows for each ridge, and a number for it."""
    model, work = models[0], _work(models, task, outline)
    sizes = [int(np.count_nonzero(p.w)) for p in model.problems(task.target, task.weights)]
    route: Route = "cholesky"
    if model.loss.has_constant_curvature:
        rows = replace(work, groups=((1, work.n),))
        routes: tuple[Route, ...] = ("eigen", "cholesky")
        costed = [(METHODS[route].cost(rows), route) for route in routes]
        cost, route = min(costed, key=lambda pair: pair[0].seconds)
    elif model.loss.is_smooth:
        cost = costs.newton_fits(replace(work, groups=()))
    else:
        cost = costs.fold_paths(replace(work, groups=((0, 1),)), tuple(sizes), is_staged=False)
    seconds = cost.seconds
    if criterion.needs_eigenvalues:
        seconds += costs.COSTS.cube_eigen * float(work.rank) ** 3
    tuned = criterion.tuned(route, model.tolerance)
    return Method(tuned, criterion.words, seconds, cost.memory)


def _own_ridge(model: Model, task: Task, outline: OperatorSpec) -> Method:
    words = "leave-one-out for every alpha on the training rows of each fold, then the best alpha"
    cost = own_ridge(_work([model], task, outline), len(model.ridges))
    return _method(InnerLeaveOneOut(model.ridges), words, cost)


# -- squared loss ------------------------------------------------------------------------------


def _closed_form(
    models: Sequence[Model], task: Task, outline: OperatorSpec, order: Order
) -> Method:
    q = task.target.columns.shape[1]
    ridges = {ridge for model in models for ridge, _ in model.columns_of_ridges(q)}
    problem = models[0].problems(task.target, task.weights)[0]
    if task.owners is not None:
        return _owned(problem, task, outline, order)
    plan = plan_exact(problem, outline, len(ridges), task.whole.folds)
    if is_finite(order) or outline.response_rank is not None:
        limit = float(order) if is_finite(order) else math.inf
        by_ridge = costs.COSTS.cube_cholesky * len(ridges) < costs.COSTS.cube_eigen
        route: Route = "cholesky" if by_ridge else "eigen"
        criterion = ClosedFormCV(order=limit, route=route, seed=models[0].seed)
        words = _series_words(limit, outline)
        return Method(criterion, words, plan.seconds, plan.memory, _caveat(limit, outline))
    if outline.needs_blocks and isinstance(plan.criterion, GramCV):
        return _passes(models, task, outline, plan.seconds)
    return Method(plan.criterion, plan.words, plan.seconds, plan.memory)


def _series_words(order: float, outline: OperatorSpec) -> str:
    """What one fit and the influence of every fold are, in words."""
    words = f"influence series (BIF) of order {order:g}, an approximation"
    if order == math.inf:
        words = "one fit per ridge, then one step for every fold (★)"
    if outline.response_rank is not None:
        words += f", with a response of rank {outline.response_rank} (t-FBIF)"
    return words


def _caveat(order: float, outline: OperatorSpec) -> str:
    """How far off one step or a series may be, in words."""
    if outline.response_rank is not None:
        return RESPONSE if order == math.inf else f"{RESPONSE}. {SERIES}"
    return STEP if order == math.inf else SERIES


def _owned(problem: Problem, task: Task, outline: OperatorSpec, order: Order) -> Method:
    """Every fold for its own columns alone, from one response for all of them."""
    assert task.owners is not None
    width = task.width // (max(task.owners) + 1)
    alone = replace(problem, y=problem.y[:, :width])
    plan = plan_exact(alone, outline, 1, task.whole.folds)
    found = plan.criterion if isinstance(plan.criterion, ClosedFormCV) else ClosedFormCV()
    is_series = is_finite(order)
    criterion = replace(found, owners=task.owners, order=float(order) if is_series else found.order)
    words = f"{plan.words}; every permutation on folds of its own"
    caveat = SERIES if is_series else ""
    return Method(criterion, words, plan.seconds, plan.memory, caveat)


def _passes(models: Sequence[Model], task: Task, outline: OperatorSpec, seconds: float) -> Method:
    """Sums over rows whose features are never all in memory."""
    is_enough = _is_scored_by_errors(models, task)
    memory = costs.pass_bytes([outline.rank], len(task.folds))
    if not is_enough:
        memory += 8 * len(models) * task.target.columns.size
    words = "one pass over them" if is_enough else "two passes over them"
    words = f"sums over the rows of every fold in {words}, one factorisation per fold"
    return Method(GramCV(is_enough), words, seconds, memory)


def _is_scored_by_errors(models: Sequence[Model], task: Task) -> bool:
    """Whether the squared errors of every fold's held-out rows are all that is asked for."""
    if task.judge is None or task.with_train or not task.judge.needs_errors_only:
        return False
    if models[0].warp is not None:
        return False
    if task.keeps_values and task.best_by is None:
        return False
    q = task.target.columns.shape[1]
    if any(len(model.columns_of_ridges(q)) > 1 for model in models):
        return False
    folds = task.whole.folds
    is_in_memory = folds.tests is folds.helds or all(map(np.array_equal, folds.tests, folds.helds))
    return is_in_memory and bool((task.weights == 1.0).all()) and task.target.classes is None


# -- smooth losses -----------------------------------------------------------------------------


def _resolved(order: Order, outline: OperatorSpec) -> Order:
    """The order that "auto" and "screen" stand for: the values of refits, for any number of folds.

    A response of low rank is asked for by name, and says nothing but one step.
    """
    if order not in ("auto", "screen"):
        return order
    return "exact" if outline.response_rank is None else math.inf


def _newton(models: Sequence[Model], task: Task, outline: OperatorSpec, order: Order) -> Method:
    folds, work = task.whole.folds, _work(models, task, outline)
    order = _resolved(order, outline)
    is_literal = (
        outline.is_per_fold or outline.predicts_by_split or models[0].class_weight == "balanced"
    )
    is_removal = folds.are_removable and not is_literal
    if order == "exact" and _has_columns(models[0], outline):
        return _primal(models, outline, work)
    if order == "exact" and _has_matrix(outline) and len(folds) <= FEW_FOLDS:
        return _kernel_newton(models, outline, work, is_removal=is_removal)
    if order == "exact" and is_removal and _shares_steps(models[0], len(folds)):
        words = "a Newton fit of all rows, then of all folds at once with its factorisation"
        cost = costs.newton_together(work, is_piecewise=models[0].loss.is_piecewise_quadratic)
        return _method(Together(), words, cost, by_steps=costs.newton_steps(work).seconds)
    if order == "exact" or not is_removal:
        words = "Newton fits of every fold, each starting from the fit on all rows"
        by_steps = costs.newton_steps(work).seconds if is_removal else None
        return _method(Refit(), words, costs.newton_fits(work), by_steps=by_steps)
    words = _series_words(float(order), outline)
    criterion = ClosedFormCV(order=float(order))
    return _method(criterion, words, costs.newton_steps(work), _caveat(float(order), outline))


def _has_columns(model: Model, outline: OperatorSpec) -> bool:
    """Whether models are linear in columns that all folds, or the rows of each, have in memory."""
    return outline.has_columns and outline.response_rank is None and not outline.predicts_by_split


def _has_matrix(outline: OperatorSpec) -> bool:
    """Whether all folds, or the rows of each, have a full kernel matrix in memory."""
    is_literal = outline.predicts_by_split or outline.response_rank is not None
    return (
        outline.methods is None
        and outline.is_in_memory
        and not (is_literal or outline.has_columns or outline.is_approximate)
    )


def _kernel_newton(
    models: Sequence[Model], outline: OperatorSpec, work: Workload, *, is_removal: bool
) -> Method:
    """Newton's method on a full kernel matrix."""
    if outline.is_per_fold:
        words = "Newton's method on the kernel of every fold by iterations, from ridge to ridge"
        cost = costs.kernel_newton(replace(work, groups=((0, 1),)))
        return _method(FoldKernel(), words, replace(cost, seconds=work.n_folds * cost.seconds))
    words = "Newton's method on the kernel by iterations, all folds at once, from ridge to ridge"
    by_steps = costs.newton_steps(work).seconds if is_removal else None
    return _method(AllFoldsKernel(), words, costs.kernel_newton(work), by_steps=by_steps)


def _several_classes(
    models: Sequence[Model], task: Task, outline: OperatorSpec, order: Order
) -> Method:
    """Classes that are fitted together, for which there is one method."""
    for is_wrong, what in (
        (task.criterion is not None, "criterion; use held-out scores (criterion=None)"),
        (is_finite(order) or order == math.inf, "method='fast' or order; use method='exact'"),
        (not outline.has_columns, f"operator={models[0].operator!r}; use operator='auto'"),
    ):
        if is_wrong:
            raise ValueError(
                f"{task.target.columns.shape[1]} classes that are "
                f"fitted together cannot be combined with {what}, or one classifier a class: "
                "KernelLogisticClassifier(kernel='linear')"
            )
    return replace(_primal(models, outline, _work(models, task, outline)), fallback=FoldPrimal())


def _primal(models: Sequence[Model], outline: OperatorSpec, work: Workload) -> Method:
    """Newton's method in the space of the columns."""
    steps = costs.newton_steps(work).seconds
    is_joint = isinstance(models[0].loss, Multinomial)
    cost_of = partial(costs.primal, is_joint=is_joint)
    if outline.is_per_fold:
        words = "Newton's method on the columns of every fold, from ridge to ridge"
        cost = cost_of(replace(work, groups=((0, 1),)))
        cost = replace(cost, seconds=work.n_folds * cost.seconds)
        return _method(FoldPrimal(), words, cost)
    words = "Newton's method on the columns, all folds at once, from ridge to ridge"
    return _method(
        AllFoldsPrimal(),
        words,
        cost_of(work),
        by_steps=None if is_joint else steps,
    )


def _shares_steps(model: Model, n_folds: int) -> bool:
    """Whether the folds of a smooth loss are quicker together than one by one."""
    if model.ridge_scaling == "mean":  # each fold has a ridge of its own
        return False
    return n_folds > FEW_FOLDS or not model.loss.is_piecewise_quadratic


# -- support vector machines -------------------------------------------------------------------


def _support_vectors(
    models: Sequence[Model],
    task: Task,
    outline: OperatorSpec,
    order: Order,
    rows: Callable[[], Matrix],
) -> Method:
    model, folds, work = models[0], task.whole.folds, _work(models, task, outline)
    resolved = _resolved(order, outline)
    is_split = outline.is_per_fold or outline.predicts_by_split
    is_staged = order == "screen" and len(models) >= STAGED_FROM and not outline.is_per_fold
    # Balanced weights of all rows depend on those left out.
    if is_split or not folds.are_removable or model.class_weight == "balanced":
        return _paths(models, task, work, is_staged=is_staged)
    is_single = bool((folds.sizes == 1).all()) and len(folds.test_rows) == len(folds)
    is_single &= outline.response_rank is None
    # Steps find signs. Where values are compared with each other they are of no use.
    needs_refits = resolved == "exact" or (model.loss.is_margin and task.needs_values)
    if needs_refits and is_single and not _changes_ridge(model, task):
        _check_full(work)
        criterion = SVMLooByRefit(model.tolerance, _solver(models, task))
        by_steps = None if task.needs_values else costs.single_rows(work).seconds
        pilot = Pilot(models, model.problems(task.target, task.weights), rows)
        cost = costs.refitted_rows(pilot.refine(work))
        method = _method(criterion, REFITTED, cost, by_steps=by_steps, caveat_of_steps=SINGLE)
    elif resolved == "exact":
        method = _paths(models, task, work, is_staged=is_staged)
        return replace(method, by_steps=costs.smoothed_steps(work).seconds)
    elif resolved == math.inf and is_single:
        _check_full(work)
        words = (
            "libsvm's fit on all rows, then one step for every fold (★), and fits without the few "
            "rows that it leaves in doubt"
        )
        single = SVMLooByStep(model.tolerance)
        words += _smoothed_words(model, single.width)
        method = _method(single, words, costs.single_rows(work), SINGLE)
    else:
        steps = SmoothedSVMSteps(model.tolerance, float(resolved))
        words = _series_words(float(resolved), outline) + _smoothed_words(model, steps.width)
        caveat = _caveat(float(resolved), outline)
        method = _method(steps, words, costs.smoothed_steps(work), caveat)
    return replace(method, fallback=_solver(models, task))


def _smoothed_words(model: Model, width: float) -> str:
    """Over which width kinks are smoothed, in words."""
    unit = "" if model.loss.is_margin else " standard deviations of y"
    return f", with libsvm's loss smoothed at its kinks over a width of {width:g}{unit}"


def _changes_ridge(model: Model, task: Task) -> bool:
    """Whether the ridge without a row depends on which one: rows without weight do not count."""
    return model.ridge_scaling == "mean" and not task.weights.all()


def _solver(models: Sequence[Model], task: Task, coarse: float | None = None) -> FoldPaths:
    penalties = tuple((model.ridges[0], model.penalty) for model in models)
    model = models[0]
    return FoldPaths(
        model.tolerance,
        coarse,
        penalties=penalties,
        shrinking=model.shrinking,
        raw=CompiledLibsvm(),
        reads_signs=not task.needs_values,
    )


def _check_full(work: Workload) -> None:
    if work.is_low_rank:
        raise ValueError(
            "operator: SVC and SVR need the full kernel matrix and cannot use one of rank "
            f"{work.rank}; use operator='dense', or HuberSVC or QuadraticSVR with this operator"
        )


def _paths(models: Sequence[Model], task: Task, work: Workload, *, is_staged: bool) -> Method:
    _check_full(work)
    words = "support vector paths in C of every fold, to libsvm's tolerance"
    criterion, caveat = _solver(models, task), ""
    is_staged = is_staged and not task.target.has_pairs
    if is_staged:
        caveat = SCREENED
        words = (
            "support vector paths in C of every fold, the best of each kernel to libsvm's tolerance"
        )
        criterion = _solver(models, task, max(COARSE, models[0].tolerance))
    problems = models[0].problems(task.target, task.weights)
    sizes = tuple(int(np.count_nonzero(problem.w)) for problem in problems)
    cost = costs.fold_paths(work, sizes, is_staged=is_staged)
    return _method(criterion, words, cost, caveat, fallback=_solver(models, task))
