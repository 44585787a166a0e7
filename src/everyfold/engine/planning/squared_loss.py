"""Squared loss: what its exact methods cost, and which one is the cheapest.

With squared loss every fold follows from a factorisation of all rows, by several routes that differ
in cost only: by eigenvalues, by Cholesky, by sums over folds, or fold by fold. `plan_exact` counts
the work of each and takes the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from everyfold.crossval.base import CrossValMethod
from everyfold.crossval.closed_form import ClosedFormCV
from everyfold.crossval.conjugate_gradient import ConjugateGradient
from everyfold.crossval.gram_sums import GramCV
from everyfold.crossval.refit import Refit
from everyfold.engine.planning.costs import COSTS, Cost, CostModel, Workload, blocks, newton_system
from everyfold.folds import Folds
from everyfold.linalg.symmetric import SMALL_BLOCK
from everyfold.operators.base import OperatorSpec, SupportsResponse
from everyfold.operators.gram import FEW_RIDGES
from everyfold.operators.response import StructureError
from everyfold.solvers import Problem

Estimate = Callable[[Workload, CostModel], float]

# The share of a reduction that one target needs, times the root of its size.
_REDUCED = 14.0

# A larger matrix is read from memory for every column, which then takes so much longer.
_CACHED_ROWS, _FROM_MEMORY = 2500, 1.5

# Iterations of conjugate gradients: a typical number; it is 3 to 200, depending on the ridge.
_ITERATIONS = 50


def _eigen(work: Workload, cost: CostModel) -> float:
    solve = 4 * cost.stream * work.n * work.rank * work.targets
    each = blocks(work, cost, cost.block_gram) + solve
    turned = 2 * cost.cube_gram * work.n * work.rank**2 if work.is_low_rank else 0.0
    return cost.cube_eigen * work.rank**3 + turned + work.ridges * each


def _gathered(work: Workload, cost: CostModel) -> float:
    """Blocks taken from an inverse, and their solution; small ones are solved all at once."""
    return sum(
        count
        * (
            cost.gather * m**2
            + cost.block_cholesky * m**3
            + (cost.call if m > SMALL_BLOCK else 0.0)
        )
        for m, count in work.groups
    )


def _explicit(work: Workload, cost: CostModel) -> float:
    once = cost.cube_eigen * work.n**3
    return once + work.ridges * (cost.cube_gram * work.n**3 + _gathered(work, cost))


def _cholesky(work: Workload, cost: CostModel) -> float:
    each = (cost.cube_cholesky + cost.cube_inverse) * work.n**3
    made = blocks(work, cost, 0.7 * cost.block_gram)
    if sum(m * count for m, count in work.groups if m > 1) > work.n:  # they overlap
        made = min(made, cost.cube_inverse * work.n**3 + _gathered(work, cost))
    return work.ridges * (each + made)


def reduction_seconds(size: int, targets: int, cost: CostModel = COSTS) -> float:
    """The tridiagonal reduction of a matrix, which ends early for a single target.

    How early depends on kernel and ridges. The share of the flops was measured over gammas from
    wide to narrow and ridges from 1e-4 on: about half at 640 rows, a third at 1600.
    """
    share = 1.0 if targets > 1 else min(1.0, _REDUCED / math.sqrt(max(1, size)))
    if size > _CACHED_ROWS:
        share *= _FROM_MEMORY
    return share * cost.cube_tridiagonal * size**3


def _refit(work: Workload, cost: CostModel) -> float:
    total = 0.0
    for m, count in work.groups:
        left, size = work.n - m, work.rank
        if work.is_low_rank:
            once = 2 * cost.cube_gram * left * size**2
            once += reduction_seconds(size, work.targets, cost)
            total += count * (once + 6 * cost.call * work.ridges)
            continue
        once = reduction_seconds(left, work.targets, cost) + cost.gather * left**2
        # All ridges are rotated back together, at the speed of matrix products.
        apply = 4 * cost.block_gram * work.ridges * work.targets * left**2
        total += count * (once + apply + 8 * cost.call * work.ridges)
    return total


def _moments(work: Workload, cost: CostModel) -> float:
    once = cost.block_gram * work.n * work.rank**2
    is_shared = work.ridges > FEW_RIDGES
    solve = 2 * work.ridges * cost.cube_cholesky * work.rank**3
    if is_shared:
        solve = reduction_seconds(work.rank, work.targets, cost)
    each = solve + 6 * cost.call * work.ridges
    values = cost.block_gram * work.n * work.rank * work.ridges * work.targets
    return once + values + work.n_folds * each


def _conjugate(work: Workload, cost: CostModel) -> float:
    columns = work.n_folds * work.ridges * work.targets
    return _ITERATIONS * (cost.block_gram * columns + cost.stream) * work.n**2


def _fourier(work: Workload, cost: CostModel) -> float:
    transforms = 4 * work.n * math.log2(work.n + 1) * work.targets
    return cost.stream * work.ridges * transforms


def _brute(work: Workload, cost: CostModel) -> float:
    total = 0.0
    for m, count in work.groups:
        left = work.n - m
        each = cost.cube_cholesky * left**3 + cost.stream * left**2 + 4 * cost.call
        total += count * (cost.gather * left**2 + work.ridges * each)
    return total


# Bytes of a kernel that is computed in blocks for every product.
_BLOCKS = 96_000_000


@dataclass(frozen=True)
class ExactMethod:
    """A way to the held-out values of squared loss: what it does, and what that takes."""

    words: str
    criterion: CrossValMethod
    seconds: Estimate
    memory: Callable[[Workload], int]

    def cost(self, work: Workload, cost: CostModel = COSTS) -> Cost:
        """What it takes for a workload."""
        return Cost(self.seconds(work, cost), self.memory(work))


def _matrices(work: Workload, copies: int) -> int:
    """So many matrices of all rows, with those that a kernel of each fold does not need."""
    held = sum(m * count for m, count in work.groups)
    # Held-out values of repeated folds; those of one partition are few beside the matrix.
    values = 100 * work.ridges * work.targets * max(0, held - work.n)
    return 8 * work.n * work.rank * (copies - work.is_per_fold) + values


def _eigen_memory(work: Workload) -> int:
    # 5.3 and 8.7 were measured: at low rank every ridge makes factors of all rows.
    of_low_rank = 6 if work.ridges == 1 else 9
    return _matrices(work, of_low_rank if work.is_low_rank else 4)


def _moments_memory(work: Workload) -> int:
    return 8 * (work.n * work.rank * 5 // 2 + work.rank**2 * (work.n_folds + 4))


def _conjugate_memory(work: Workload) -> int:
    matrix = 8 * work.n**2 if work.is_in_memory else _BLOCKS
    return matrix + 100 * work.n * work.n_folds * work.ridges * work.targets


METHODS = {
    "eigen": ExactMethod(
        "one eigendecomposition, then the blocks of the folds",
        ClosedFormCV(route="eigen"),
        _eigen,
        _eigen_memory,
    ),
    "explicit": ExactMethod(
        "one eigendecomposition, the inverse formed for each ridge, blocks gathered",
        ClosedFormCV(route="explicit"),
        _explicit,
        partial(_matrices, copies=6),
    ),
    "cholesky": ExactMethod(
        "one Cholesky factorisation per ridge, then the blocks of the folds",
        ClosedFormCV(route="cholesky"),
        _cholesky,
        partial(_matrices, copies=3),
    ),
    "tridiagonal": ExactMethod(
        "one tridiagonal reduction per fold for all ridges",
        Refit(route="tridiagonal"),
        _refit,
        partial(_matrices, copies=3),
    ),
    "moments": ExactMethod(
        "Gram matrices of the folds, added up, one tridiagonal reduction per fold",
        GramCV(),
        _moments,
        _moments_memory,
    ),
    "conjugate": ExactMethod(
        "conjugate gradients for all folds and ridges at once, preconditioned by a low-rank kernel",
        ConjugateGradient(),
        _conjugate,
        _conjugate_memory,
    ),
    "fourier": ExactMethod(
        "Fourier transforms; folds are exact for the circulant matrix, which approximates the "
        "kernel's",
        ClosedFormCV(),
        _fourier,
        lambda work: 8 * work.n * (4 + 4 * work.targets),
    ),
    "refit": ExactMethod(
        "one Cholesky factorisation for each fold and ridge",
        Refit(),
        _brute,
        partial(_matrices, copies=3),
    ),
}


@dataclass(frozen=True)
class ExactPlan:
    """The method for squared loss that was chosen, by its name, and what it should cost."""

    method: str
    words: str
    criterion: CrossValMethod
    seconds: float
    memory: int


def plan_exact(
    problem: Problem, operator: SupportsResponse | OperatorSpec, n_ridges: int, folds: Folds
) -> ExactPlan:
    """Choose the cheapest exact method for squared loss, given an operator or its outline.

    Examples
    --------
    >>> import numpy as np
    >>> from everyfold.losses import Squared
    >>> from everyfold.operators import DenseMatrix
    >>> problem = Problem(np.zeros((900, 1)), np.ones(900), Squared(), intercept=False)
    >>> K = DenseMatrix(np.eye(900))
    >>> plan_exact(problem, K, 20, Folds.leave_one_out(900)).method
    'eigen'
    >>> plan_exact(problem, K, 1, Folds.leave_one_out(900)).method
    'cholesky'
    """
    if isinstance(operator, SupportsResponse):
        operator.check(problem.w, folds.helds)
        operator = operator.outline
    q = problem.y.shape[1]
    merged = folds if folds.merged is None else folds.merged.folds
    work = Workload(problem.n, operator.rank, n_ridges, q, merged.groups, operator.is_in_memory)
    work = replace(work, is_per_fold=operator.is_per_fold)
    allowed = _allowed(problem, operator, folds, work)
    seconds, name = min((METHODS[name].seconds(work, COSTS), name) for name in allowed)
    chosen = METHODS[name]
    return ExactPlan(name, chosen.words, chosen.criterion, seconds, chosen.memory(work))


def _allowed(
    problem: Problem, outline: OperatorSpec, folds: Folds, work: Workload
) -> tuple[str, ...]:
    """The methods that give the exact answer here."""
    if outline.methods is not None:
        return _structured(problem, outline, folds)
    # One response of all rows says nothing of a fold with a kernel or weights of its own, or whose
    # training and test rows overlap.
    has_own = outline.is_per_fold or outline.predicts_by_split or problem.is_balanced
    if has_own or not folds.are_removable:
        return ("tridiagonal",) if work.is_low_rank else ("tridiagonal", "refit")
    if outline.needs_blocks:  # the features of all rows are too many to be held
        return ("moments",)
    if work.is_low_rank:
        return ("eigen", "moments")
    return ("eigen", "explicit", "cholesky", "tridiagonal", "refit")


def _structured(problem: Problem, outline: OperatorSpec, folds: Folds) -> tuple[str, ...]:
    """The methods of a structure that does not take any; refuses what it cannot hold out."""
    assert outline.methods is not None
    if problem.is_balanced:
        raise StructureError(
            "class_weight='balanced' depends on the training rows of each fold, which this "
            "operator does not allow; use operator='auto' or no class_weight"
        )
    if not folds.are_removable:
        raise StructureError(
            f"cv: split {min(folds.odd)} does not just remove rows (a test row is in the training "
            "set, or a training row repeats), which this operator needs; use operator='auto'"
        )
    return outline.methods


def own_ridge(work: Workload, choices: int, cost: CostModel = COSTS) -> Cost:
    """Leave-one-out of so many ridges on the training rows of every fold."""
    seconds = 0.0
    for m, count in work.groups:
        left = work.n - m
        rank = min(work.rank, left)
        made = cost.cube_gram * left * rank**2 + cost.gather * left * rank
        if work.is_low_rank and rank < left:  # one spectrum, the rows turned once, thin products
            passes = 4 + choices * (1 + work.targets)
            own = cost.cube_gram * left * rank**2 + cost.cube_eigen * rank**3
            own += passes * cost.stream * left * rank + cost.call
        else:
            inner = replace(work, n=left, rank=rank, ridges=choices, groups=((1, left),))
            own = _eigen(inner, cost) + newton_system(left, rank, cost)
        seconds += count * (made + own)
    return Cost(seconds * work.ridges, 32 * work.n * work.rank)
