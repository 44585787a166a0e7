"""How the folds of a group of candidates are evaluated: the choice of a method, and its cost.

A group has one kernel, loss, target and weights; only the ridges differ. The choice is made before
any kernel exists, from the outline of its structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

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
from everyfold.io.blocks import BLOCK_BYTES
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


@dataclass(frozen=True)
class RidgePath:
    """Candidates that differ in their ridge only, for which a method is chosen.

    Attributes
    ----------
    models : sequence of Model
    task : Task
    outline : OperatorSpec
        What is known of their kernel matrix.
    order : Order
        What was asked for.
    rows : callable
        Gives the rows, where no size tells how long a method takes.
    """

    models: Sequence[Model]
    task: Task
    outline: OperatorSpec
    order: Order
    rows: Callable[[], Matrix]

    def choose(self) -> Method:
        """The method, with its cost."""
        model, outline, task = self.models[0], self.outline, self.task
        if model.loss.has_log_link and (task.criterion is not None or self._is_step):
            raise ValueError(  # a loss of logarithms, whose ridge goes with the weights
                f"loss={model.loss} has held-out values of every fold's own fit only; use "
                "method='exact' and no criterion"
            )
        if outline.response_rank is not None:
            self._check_responses()
        if isinstance(model.loss, Multinomial):
            found = self._several_classes()
        elif task.criterion is not None:
            found = self._by_criterion(task.criterion)
        elif model.chooses_ridge:
            words = (
                "leave-one-out for every alpha on the training rows of each fold, then the best "
                "alpha"
            )
            cost = own_ridge(replace(self.work, ridges=1), len(model.ridges))
            found = _method(InnerLeaveOneOut(model.ridges), words, cost)
        elif model.loss.has_constant_curvature:
            found = self._closed_form()
        elif model.loss.is_smooth:
            found = self._newton()
        else:
            found = self._support_vectors()
        return replace(
            found,
            seconds=found.seconds + costs.overhead(len(self.models), len(task.whole.folds)),
            is_of_another_model=outline.is_approximate or model.is_stand_in,
            excludes_identity=is_finite(self.order),
        )

    @property
    def _is_step(self) -> bool:
        """Whether one step or a series was asked for, and not the values of refits."""
        return is_finite(self.order) or self.order == math.inf

    def _check_responses(self) -> None:
        """Refuse what a response cannot tell of a fold, where a stand-in for it was asked for."""
        model, task, folds = self.models[0], self.task, self.task.whole.folds
        _refuse(
            "operator=Nystrom(replaces='response') cannot be combined with {} or replaces='kernel'",
            (task.criterion is not None, "criterion; leave it out"),
            (self.outline.is_per_fold, "a kernel of each fold; use preprocessing='once', a gamma"),
            (model.class_weight == "balanced", "class_weight='balanced'; pass a dict of weights"),
            (model.chooses_ridge, "a model that chooses its own alpha; use Ridge"),
            (not folds.are_removable, "folds that do not just remove rows; use another cv"),
        )

    @cached_property
    def work(self) -> Workload:
        """The sizes that costs depend on, for losses with one ridge for all targets."""
        n, q = self.task.target.columns.shape
        ridges = len({model.ridges for model in self.models})
        sizes = self.outline.rank, ridges, q, self.task.whole.folds.groups
        is_margin = self.models[0].loss.is_margin
        return Workload(n, *sizes, self.outline.is_in_memory, is_margin)

    @cached_property
    def problems(self) -> list[Problem]:
        """Those of the first model, whose rows and targets all have."""
        return self.models[0].problems(self.task.target, self.task.weights)

    def _by_criterion(self, criterion: Closed) -> Method:
        """One fit on all rows for each ridge, and a number for it."""
        model, work = self.models[0], self.work
        sizes = [int(np.count_nonzero(problem.w)) for problem in self.problems]
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

    # -- squared loss ------------------------------------------------------------------------------

    def _closed_form(self) -> Method:
        task, outline, order = self.task, self.outline, self.order
        q = task.target.columns.shape[1]
        ridges = {ridge for model in self.models for ridge, _ in model.columns_of_ridges(q)}
        problem = self.models[0].problems(task.target, task.weights)[0]
        if task.owners is not None:
            return self._owned(problem, task.owners)
        plan = plan_exact(problem, outline, len(ridges), task.whole.folds)
        if is_finite(order) or outline.response_rank is not None:
            limit = float(order) if is_finite(order) else math.inf
            by_ridge = costs.COSTS.cube_cholesky * len(ridges) < costs.COSTS.cube_eigen
            route: Route = "cholesky" if by_ridge else "eigen"
            criterion = ClosedFormCV(order=limit, route=route, seed=self.models[0].seed)
            words, caveat = self._series_words(limit), self._caveat(limit)
            return Method(criterion, words, plan.seconds, plan.memory, caveat)
        if outline.needs_blocks and isinstance(plan.criterion, GramCV):
            return self._passes(plan.seconds)
        return Method(plan.criterion, plan.words, plan.seconds, plan.memory)

    def _series_words(self, order: float) -> str:
        """What one fit and the influence of every fold are, in words."""
        words = f"influence series (BIF) of order {order:g}, an approximation"
        if order == math.inf:
            words = "one fit per ridge, then one step for every fold (★)"
        if self.outline.response_rank is not None:
            words += f", with a response of rank {self.outline.response_rank} (t-FBIF)"
        return words

    def _caveat(self, order: float) -> str:
        """How far off one step or a series may be, in words."""
        if self.outline.response_rank is not None:
            return RESPONSE if order == math.inf else f"{RESPONSE}. {SERIES}"
        return STEP if order == math.inf else SERIES

    def _owned(self, problem: Problem, owners: tuple[int, ...]) -> Method:
        """Every fold for its own columns alone, from one response for all of them."""
        alone = replace(problem, y=problem.y[:, : self.task.width // (max(owners) + 1)])
        plan = plan_exact(alone, self.outline, 1, self.task.whole.folds)
        found = plan.criterion if isinstance(plan.criterion, ClosedFormCV) else ClosedFormCV()
        is_series = is_finite(self.order)
        criterion = replace(
            found, owners=owners, order=float(self.order) if is_series else found.order
        )
        words = f"{plan.words}; every permutation on folds of its own"
        return Method(criterion, words, plan.seconds, plan.memory, SERIES if is_series else "")

    def _passes(self, seconds: float) -> Method:
        """Sums over rows whose features are never all in memory."""
        is_enough = self._is_scored_by_errors()
        memory = costs.sums_bytes(self.outline.rank, len(self.task.folds)) + 3 * BLOCK_BYTES
        if not is_enough:
            memory += 8 * len(self.models) * self.task.target.columns.size
        words = "one pass over them" if is_enough else "two passes over them"
        words = f"sums over the rows of every fold in {words}, one factorisation per fold"
        return Method(GramCV(is_enough), words, seconds, memory)

    def _is_scored_by_errors(self) -> bool:
        """Whether the squared errors of every fold's held-out rows are all that is asked for."""
        task, folds = self.task, self.task.whole.folds
        if task.judge is None or task.with_train or not task.judge.needs_errors_only:
            return False
        if self.models[0].warp is not None or (task.keeps_values and task.best_by is None):
            return False
        q = task.target.columns.shape[1]
        if any(len(model.columns_of_ridges(q)) > 1 for model in self.models):
            return False
        is_same = folds.tests is folds.helds or all(map(np.array_equal, folds.tests, folds.helds))
        return is_same and bool((task.weights == 1.0).all()) and task.target.classes is None

    # -- smooth losses -----------------------------------------------------------------------------

    @property
    def _resolved(self) -> Order:
        """The order that "auto" and "screen" stand for: the values of refits.

        A response of low rank is asked for by name, and says nothing but one step.
        """
        if self.order not in ("auto", "screen"):
            return self.order
        return "exact" if self.outline.response_rank is None else math.inf

    @property
    def _is_literal(self) -> bool:
        """Whether folds have kernels or weights that do not follow from those of all rows."""
        is_split = self.outline.is_per_fold or self.outline.predicts_by_split
        return is_split or self.models[0].class_weight == "balanced"

    def _newton(self) -> Method:
        folds, work, model, outline = self.task.whole.folds, self.work, self.models[0], self.outline
        order, is_removal = self._resolved, folds.are_removable and not self._is_literal
        by_steps = costs.newton_steps(work).seconds if is_removal else None
        # Whether all folds, or the rows of each, have columns or a full kernel matrix in memory.
        is_plain = outline.response_rank is None and not outline.predicts_by_split
        has_matrix = outline.methods is None and outline.is_in_memory and not outline.is_approximate
        if order == "exact" and is_plain and outline.has_columns:
            return self._primal()
        if order == "exact" and is_plain and has_matrix and len(folds) <= FEW_FOLDS:
            return self._kernel_newton(by_steps)
        # A ridge of its own for each fold, or few folds and kinks, are quicker one by one.
        is_shared = len(folds) > FEW_FOLDS or not model.loss.is_piecewise_quadratic
        if order == "exact" and is_removal and is_shared and model.ridge_scaling != "mean":
            words = "a Newton fit of all rows, then of all folds at once with its factorisation"
            cost = costs.newton_together(work, is_piecewise=model.loss.is_piecewise_quadratic)
            return _method(Together(), words, cost, by_steps=by_steps)
        if order == "exact" or not is_removal:
            words = "Newton fits of every fold, each starting from the fit on all rows"
            return _method(Refit(), words, costs.newton_fits(work), by_steps=by_steps)
        words, caveat = self._series_words(float(order)), self._caveat(float(order))
        return _method(ClosedFormCV(order=float(order)), words, costs.newton_steps(work), caveat)

    def _kernel_newton(self, by_steps: float | None) -> Method:
        """Newton's method on a full kernel matrix."""
        if self.outline.is_per_fold:
            words = "Newton's method on the kernel of every fold by iterations, from ridge to ridge"
            return _method(FoldKernel(), words, self._fold_by_fold(costs.kernel_newton))
        words = (
            "Newton's method on the kernel by iterations, all folds at once, from ridge to ridge"
        )
        return _method(AllFoldsKernel(), words, costs.kernel_newton(self.work), by_steps=by_steps)

    def _fold_by_fold(self, cost_of: Callable[[Workload], Cost]) -> Cost:
        """What folds cost that have kernels of their own, one after the other."""
        each = cost_of(replace(self.work, groups=((0, 1),)))
        return replace(each, seconds=self.work.n_folds * each.seconds)

    def _several_classes(self) -> Method:
        """Classes that are fitted together, for which there is one method."""
        _refuse(
            f"{self.task.target.columns.shape[1]} classes that are fitted together cannot be "
            "combined with {}, or one classifier a class: "
            "KernelLogisticClassifier(kernel='linear')",
            (self.task.criterion is not None, "criterion; use held-out scores (criterion=None)"),
            (self._is_step, "method='fast' or order; use method='exact'"),
            (
                not self.outline.has_columns,
                f"operator={self.models[0].operator!r}; use operator='auto'",
            ),
        )
        return replace(self._primal(), fallback=FoldPrimal())

    def _primal(self) -> Method:
        """Newton's method in the space of the columns."""
        work, is_joint = self.work, isinstance(self.models[0].loss, Multinomial)
        cost_of = partial(costs.primal, is_joint=is_joint)
        if self.outline.is_per_fold:
            words = "Newton's method on the columns of every fold, from ridge to ridge"
            return _method(FoldPrimal(), words, self._fold_by_fold(cost_of))
        words = "Newton's method on the columns, all folds at once, from ridge to ridge"
        by_steps = None if is_joint else costs.newton_steps(work).seconds
        return _method(AllFoldsPrimal(), words, cost_of(work), by_steps=by_steps)

    # -- support vector machines -------------------------------------------------------------------

    def _support_vectors(self) -> Method:
        model, task, work, resolved = self.models[0], self.task, self.work, self._resolved
        folds = task.whole.folds
        # Balanced weights of all rows depend on those left out.
        if self._is_literal or not folds.are_removable:
            return self._paths()
        is_single = bool((folds.sizes == 1).all()) and len(folds.test_rows) == len(folds)
        is_single &= self.outline.response_rank is None
        # Steps find signs. Where values are compared with each other they are of no use.
        needs_refits = resolved == "exact" or (model.loss.is_margin and task.needs_values)
        # The ridge without a row depends on which one where rows without weight do not count.
        changes_ridge = model.ridge_scaling == "mean" and not task.weights.all()
        if needs_refits and is_single and not changes_ridge:
            self._check_full()
            criterion = SVMLooByRefit(model.tolerance, self._solver())
            by_steps = None if task.needs_values else costs.single_rows(work).seconds
            pilot = Pilot(self.models, self.problems, self.rows)
            cost = costs.refitted_rows(pilot.refine(work))
            found = _method(criterion, REFITTED, cost, by_steps=by_steps, caveat_of_steps=SINGLE)
        elif resolved == "exact":
            return replace(self._paths(), by_steps=costs.smoothed_steps(work).seconds)
        elif resolved == math.inf and is_single:
            self._check_full()
            single = SVMLooByStep(model.tolerance)
            words = (
                "libsvm's fit on all rows, then one step for every fold (★), and fits without the "
                f"few rows that it leaves in doubt{self._smoothed_words(single.width)}"
            )
            found = _method(single, words, costs.single_rows(work), SINGLE)
        else:
            steps = SmoothedSVMSteps(model.tolerance, float(resolved))
            words = self._series_words(float(resolved)) + self._smoothed_words(steps.width)
            caveat = self._caveat(float(resolved))
            found = _method(steps, words, costs.smoothed_steps(work), caveat)
        return replace(found, fallback=self._solver())

    def _smoothed_words(self, width: float) -> str:
        """Over which width kinks are smoothed, in words."""
        unit = "" if self.models[0].loss.is_margin else " standard deviations of y"
        return f", with libsvm's loss smoothed at its kinks over a width of {width:g}{unit}"

    def _solver(self, coarse: float | None = None) -> FoldPaths:
        model = self.models[0]
        return FoldPaths(
            model.tolerance,
            coarse,
            penalties=tuple((own.ridges[0], own.penalty) for own in self.models),
            shrinking=model.shrinking,
            reads_signs=not self.task.needs_values,
        )

    def _check_full(self) -> None:
        if self.work.is_low_rank:
            raise ValueError(
                "operator: SVC and SVR need the full kernel matrix and cannot use one of rank "
                f"{self.work.rank}; use operator='dense', or HuberSVC or QuadraticSVR with this "
                "operator"
            )

    def _paths(self) -> Method:
        self._check_full()
        words = "support vector paths in C of every fold, to libsvm's tolerance"
        criterion, caveat = self._solver(), ""
        is_staged = self.order == "screen" and len(self.models) >= STAGED_FROM
        is_staged &= not (self.outline.is_per_fold or self.task.target.has_pairs)
        if is_staged:
            caveat = SCREENED
            words = (
                "support vector paths in C of every fold, the best of each kernel to libsvm's "
                "tolerance"
            )
            criterion = self._solver(max(COARSE, self.models[0].tolerance))
        sizes = tuple(int(np.count_nonzero(problem.w)) for problem in self.problems)
        cost = costs.fold_paths(self.work, sizes, is_staged=is_staged)
        return _method(criterion, words, cost, caveat, fallback=self._solver())


def _refuse(words: str, *objections: tuple[bool, str]) -> None:
    """Raise the first objection that holds, in the place of {} in the words."""
    for holds, what in objections:
        if holds:
            raise ValueError(words.format(what))


def _method(
    criterion: CrossValMethod | Closed, words: str, cost: Cost, caveat: str = "", **more: Any
) -> Method:
    return Method(criterion, words, cost.seconds, cost.memory, caveat, **more)
