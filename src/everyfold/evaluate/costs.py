r"""What every method costs, in seconds and bytes, and which exact one is cheapest.

Estimates count what a method does (flops, passes over memory, pair steps, calls) and multiply by
the constants of one :class:`CostModel`, measured by ``benchmarks/constants.py``;
``benchmarks/plans.py`` compares whole estimates with what was measured. Choices depend on the
ratios of the constants only, and those move little between machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from everyfold.criteria.base import Predictive
from everyfold.criteria.conjugate import ConjugateGradient
from everyfold.criteria.heldout import HeldOut
from everyfold.criteria.refit import Refit
from everyfold.criteria.sums import BySums
from everyfold.evaluate.foldscores import MOST_COLUMNS
from everyfold.operators.base import Outline, Responds, StructureError
from everyfold.operators.nystrom import SAMPLE
from everyfold.rows.folds import Folds
from everyfold.solve import Problem


@dataclass(frozen=True)
class CostModel:
    """Seconds for one unit of each kind of work (double precision, two BLAS threads).

    Attributes
    ----------
    cube_eigen, cube_tridiagonal, cube_cholesky, cube_inverse, cube_gram : float
        Factorisations and products of n×n matrices, by n³.
    block_gram, block_cholesky : float
        The same for the blocks of folds.
    gather, stream : float
        An entry of a matrix: indexed, or read in order.
    call : float
        A small call of LAPACK.
    entry, entry32 : float
        An entry of a kernel matrix: its elementwise function, and its copy in float32.
    pair : float
        A pair step of a support vector machine, by the rows it passes over.
    kernel, candidate, score : float
        Fixed costs: of a kernel, of a candidate, and of one score of a fold.
    """

    cube_eigen: float = 95e-12
    cube_tridiagonal: float = 40e-12
    cube_cholesky: float = 7e-12
    cube_inverse: float = 6e-12
    cube_gram: float = 8e-12
    block_gram: float = 18e-12
    block_cholesky: float = 20e-12
    gather: float = 4e-9
    stream: float = 1e-9
    call: float = 15e-6
    entry: float = 1.3e-9
    entry32: float = 0.7e-9
    pair: float = 0.9e-9
    kernel: float = 800e-6
    candidate: float = 100e-6
    score: float = 5e-6


COSTS = CostModel()

# Counts that depend on the data and not on the machine: typical ones.

_ITERATIONS = 50
"""Of conjugate gradients; they differ between 3 and 200 with the ridge."""

_NEWTON_STEPS, _FOLD_STEPS = 10, 5
"""Of Newton's method on all rows, and on a fold that starts from there."""

_PAIR_STEPS, _TUBE_STEPS = 1.2, 5.0
"""Pair steps for each training row and C on a path: of the hinge, and of a tube around numbers."""

_COARSE_SHARE = 0.7
"""What a path to the coarse tolerance costs, the best Cs to libsvm's included."""

_SUPPORT, _LEFT_STEPS = 0.5, 150
"""The share of support vectors, and the pair steps of a fit without one of them."""

_DOUBTFUL = 0.05
"""The share of rows that one step leaves in doubt, so that they are left out by pair steps."""


@dataclass(frozen=True)
class Workload:
    """The sizes that decide: rows, ridges, targets, and what each fold leaves out."""

    n: int
    rank: int
    ridges: int
    targets: int
    groups: tuple[tuple[int, int], ...]
    """Sizes of what folds leave out, each with the number of folds."""
    is_held: bool = True
    """Whether the kernel matrix is held in memory."""
    is_margin: bool = True
    """Whether a support vector machine tells classes apart; it fits numbers else."""

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        return sum(count for _, count in self.groups)

    @property
    def is_low_rank(self) -> bool:
        """Whether the operator is thinner than it is long."""
        return self.rank < self.n


@dataclass(frozen=True)
class Cost:
    """What work takes: seconds, and bytes at a time."""

    seconds: float
    memory: int


Estimate = Callable[[Workload, CostModel], float]


def _blocks(work: Workload, cost: CostModel, gram: float) -> float:
    """Blocks of all folds and their solution, for one ridge."""
    total = 0.0
    for m, count in work.groups:
        if m <= 1:  # the diagonal serves all of them
            total += work.n * work.rank * cost.stream
        else:
            # Sets larger than the rank are solved at its size.
            size, length = (m, work.rank) if m <= work.rank else (work.rank, m)
            made = gram * size**2 * length + cost.stream * m * work.rank
            total += count * (made + cost.block_cholesky * size**3 + 3 * cost.call)
    return total


def _eigen(work: Workload, cost: CostModel) -> float:
    solve = 4 * cost.stream * work.n * work.rank * work.targets
    each = _blocks(work, cost, cost.block_gram) + solve
    return cost.cube_eigen * work.rank**3 + work.ridges * each


def _explicit(work: Workload, cost: CostModel) -> float:
    folds = sum(
        count * (cost.gather * m**2 + cost.block_cholesky * m**3 + cost.call)
        for m, count in work.groups
    )
    once = cost.cube_eigen * work.n**3
    return once + work.ridges * (cost.cube_gram * work.n**3 + folds)


def _cholesky(work: Workload, cost: CostModel) -> float:
    each = (cost.cube_cholesky + cost.cube_inverse) * work.n**3
    return work.ridges * (each + _blocks(work, cost, 0.7 * cost.block_gram))


def _refit(work: Workload, cost: CostModel) -> float:
    total = 0.0
    for m, count in work.groups:
        left, size = work.n - m, work.rank
        if work.is_low_rank:
            once = 2 * cost.cube_gram * left * size**2 + cost.cube_eigen * size**3
            total += count * (once + 6 * cost.call * work.ridges)
            continue
        once = cost.cube_tridiagonal * left**3 + cost.gather * left**2
        # All ridges are rotated back together, at the speed of matrix products.
        apply = 4 * cost.block_gram * work.ridges * work.targets * left**2
        total += count * (once + apply + 8 * cost.call * work.ridges)
    return total


def _moments(work: Workload, cost: CostModel) -> float:
    once = cost.block_gram * work.n * work.rank**2
    each = cost.cube_eigen * work.rank**3 + 6 * cost.call * work.ridges
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


_BLOCKS = 96_000_000
"""Bytes of a kernel that is computed in blocks for every product."""

_METHODS: dict[str, tuple[str, Predictive, Estimate]] = {
    "eigen": (
        "one eigendecomposition, then the blocks of the folds",
        HeldOut(route="eigen"),
        _eigen,
    ),
    "explicit": (
        "one eigendecomposition, the inverse formed for each ridge, blocks gathered",
        HeldOut(route="explicit"),
        _explicit,
    ),
    "cholesky": (
        "one Cholesky factorisation a ridge, then the blocks of the folds",
        HeldOut(route="cholesky"),
        _cholesky,
    ),
    "tridiagonal": (
        "one tridiagonal reduction a fold for all ridges",
        Refit(route="tridiagonal"),
        _refit,
    ),
    "moments": (
        "Gram matrices of the folds, added up, one eigendecomposition a fold",
        BySums(),
        _moments,
    ),
    "conjugate": (
        "conjugate gradients for all folds and ridges at once, preconditioned by a low-rank kernel",
        ConjugateGradient(),
        _conjugate,
    ),
    "fourier": (
        "Fourier transforms; folds are exact for the circulant matrix, which approximates the "
        "kernel's",
        HeldOut(),
        _fourier,
    ),
    "refit": ("one Cholesky factorisation for each fold and ridge", Refit(), _brute),
}


@dataclass(frozen=True)
class Plan:
    """What will be done, what it should cost, and what the alternatives would have cost."""

    method: str
    words: str
    criterion: Predictive
    workload: Workload
    seconds: float
    memory: int
    alternatives: tuple[tuple[str, float], ...]
    reason: str

    def __str__(self) -> str:
        work = self.workload
        shape = f"{work.n} rows"
        if work.is_low_rank:
            shape += f", rank {work.rank}"
        others = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.alternatives)
        lines = [
            f"problem    {shape}, {work.n_folds} folds, {work.ridges} ridges, "
            f"{work.targets} targets",
            f"method     {self.method}: {self.words}",
            f"why        {self.reason}",
            f"estimate   {self.seconds:.3g} s, {self.memory / 1e6:.0f} MB",
            "exact      yes: every fold equals a refit up to rounding",
        ]
        if others:
            lines.insert(3, f"instead    {others}")
        return "\n".join(lines)


def plan_exact(problem: Problem, operator: Responds | Outline, n_ridges: int, folds: Folds) -> Plan:
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
    if isinstance(operator, Responds):
        operator.check(problem.w, folds.helds)
        operator = operator.outline
    q = problem.y.shape[1]
    work = Workload(problem.n, operator.rank, n_ridges, q, folds.groups, operator.is_held)
    allowed, reason = _allowed(problem, operator, folds, work)
    estimates = sorted((squared(work, name).seconds, name) for name in allowed)
    seconds, method = estimates[0]
    words, criterion, _ = _METHODS[method]
    others = tuple((name, cost) for cost, name in estimates[1:])
    if others:
        reason = reason or "the cheapest by the cost model"
    memory = squared(work, method).memory
    return Plan(method, words, criterion, work, seconds, memory, others, reason)


def squared(work: Workload, method: str, cost: CostModel = COSTS) -> Cost:
    """One of the exact methods for squared loss."""
    return Cost(_METHODS[method][2](work, cost), _memory(work, method))


def _allowed(
    problem: Problem, outline: Outline, folds: Folds, work: Workload
) -> tuple[tuple[str, ...], str]:
    """The methods that give the exact answer here, and the reason if some do not."""
    if outline.methods is not None:
        return _structured(problem, outline, folds)
    refits = ("tridiagonal",) if work.is_low_rank else ("tridiagonal", "refit")
    if outline.is_per_fold or outline.only_splits:
        return refits, "every fold has a kernel, or predicts by a kernel, that no other fold has"
    if problem.is_balanced:
        return refits, "balanced class weights depend on the training rows of each fold"
    if not folds.are_removable:
        return refits, "some folds do not just remove rows (training and test rows overlap)"
    if outline.is_long:
        return ("moments",), "the features of all rows are too many to be held"
    if work.is_low_rank:
        return ("eigen", "moments"), ""
    return ("eigen", "explicit", "cholesky", "tridiagonal", "refit"), ""


def _structured(problem: Problem, outline: Outline, folds: Folds) -> tuple[tuple[str, ...], str]:
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
    return outline.methods, "the only method for this structure"


def _memory(work: Workload, method: str) -> int:
    if method == "fourier":
        return 8 * work.n * (4 + 4 * work.targets)
    if method == "conjugate":
        matrix = 8 * work.n**2 if work.is_held else _BLOCKS
        return matrix + 100 * work.n * work.n_folds * work.ridges * work.targets
    if method == "moments":
        return 8 * (work.n * work.rank * 2 + work.rank**2 * (work.n_folds + 4))
    copies = {"eigen": 4, "explicit": 6, "cholesky": 5, "tridiagonal": 3, "refit": 3}[method]
    held = sum(m * count for m, count in work.groups)
    # Held-out values of repeated folds; those of one partition are few beside the matrix.
    values = 100 * work.ridges * work.targets * max(0, held - work.n)
    return 8 * work.n * work.rank * copies + values


# -- other losses ------------------------------------------------------------------------------


def _system(rows: float, rank: float, cost: CostModel) -> float:
    """One Newton step: a weighted system, factorised and solved."""
    if rank < rows:
        return (
            cost.cube_gram * rows * rank**2
            + cost.cube_cholesky * rank**3
            + 6 * cost.stream * rows * rank
            + 4 * cost.call
        )
    return cost.cube_cholesky * rows**3 + 4 * cost.stream * rows**2 + 4 * cost.call


def newton_fits(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Newton's method on all rows, then on every fold from there."""
    fits = work.ridges * work.targets
    seconds = fits * _NEWTON_STEPS * _system(work.n, work.rank, cost)
    for m, count in work.groups:
        left = work.n - m
        copied = cost.gather * left * min(work.rank, left)
        step = _system(left, min(work.rank, left), cost)
        seconds += count * (copied + fits * _FOLD_STEPS * step)
    return Cost(seconds, 48 * work.n * work.rank)


def newton_steps(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Newton's method on all rows, then one step for every fold."""
    inverse = cost.cube_inverse * work.n * work.rank**2
    fit = _NEWTON_STEPS * _system(work.n, work.rank, cost) + inverse
    each = fit + _blocks(work, cost, cost.block_gram)
    return Cost(work.ridges * work.targets * each, 24 * work.n * work.rank)


def own_ridge(work: Workload, choices: int, cost: CostModel = COSTS) -> Cost:
    """Leave-one-out of so many ridges on the training rows of every fold."""
    seconds = 0.0
    for m, count in work.groups:
        left = work.n - m
        rank = min(work.rank, left)
        inner = replace(work, n=left, rank=rank, ridges=choices, groups=((1, left),))
        made = cost.cube_gram * left * rank**2 + cost.gather * left * rank
        seconds += count * (made + _eigen(inner, cost) + _system(left, rank, cost))
    return Cost(seconds * work.ridges, 32 * work.n * work.rank)


def _path(work: Workload, rows: float, width: float, cost: CostModel) -> float:
    """A path of all Cs through a training set, in a kernel of so many rows."""
    steps = rows * (_PAIR_STEPS if work.is_margin else _TUBE_STEPS)
    return work.ridges * (steps * width * cost.pair + cost.call)


def fold_paths(
    work: Workload, sizes: tuple[int, ...], *, is_staged: bool, cost: CostModel = COSTS
) -> Cost:
    """Support vector paths of every fold.

    ``sizes`` are the rows of each problem: of all rows, or of each pair of classes.
    """
    seconds = cost.entry32 * float(work.n) ** 2
    is_of_pairs = len(sizes) > 1
    for m, count in work.groups:
        share = (work.n - m) / work.n
        for size in sizes:
            rows = share * size
            path = _path(work, rows, rows if is_of_pairs else work.n, cost)
            copied = cost.gather * rows**2 if is_of_pairs else 0.0
            seconds += count * (path * (_COARSE_SHARE if is_staged else 1.0) + copied)
    return Cost(seconds, 16 * work.n**2)


def refitted_rows(work: Workload, cost: CostModel = COSTS) -> Cost:
    """A fit on all rows, and one without each support vector, for every C."""
    n = float(work.n)
    each = _SUPPORT * n * (_LEFT_STEPS * n * cost.pair + cost.call)
    seconds = cost.entry32 * n**2 + _path(work, n, n, cost) + work.ridges * each
    return Cost(seconds, 24 * work.n**2)


def single_rows(work: Workload, cost: CostModel = COSTS) -> Cost:
    """A fit on all rows, a step for each row, and pair steps for the few in doubt."""
    n = float(work.n)
    free = _SUPPORT * n
    step = (cost.cube_cholesky + cost.cube_inverse) * free**3 + cost.block_gram * n * free**2
    doubtful = _DOUBTFUL * n * _LEFT_STEPS * n * cost.pair
    seconds = cost.entry32 * n**2 + _path(work, n, n, cost)
    return Cost(seconds + work.ridges * (step + doubtful), 24 * work.n**2)


def smoothed_steps(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Support vector fits on all rows, then Newton steps of the rounded loss."""
    steps = newton_steps(work, cost)
    path = _path(work, work.n, work.n, cost)
    return replace(steps, seconds=steps.seconds + path)


# -- what all methods share --------------------------------------------------------------------


def overhead(candidates: int, folds: int, cost: CostModel = COSTS) -> float:
    """Seconds for the records and scores of candidates; of very many folds they are arrays."""
    written = min(folds, MOST_COLUMNS) * cost.score + 20.0 * folds * cost.stream
    return candidates * (cost.candidate + written)


def kernel_cost(
    n: int, outline: Outline, features: int, *, is_low_rank: bool, cost: CostModel = COSTS
) -> Cost:
    """One kernel on n rows: base matrix, elementwise function, and the factor of a low rank.

    The base matrix is counted for every kernel, though kernels may share it: it is a product with
    as many columns as there are features, and small beside all else.
    """
    if outline.methods == ("fourier",) or not outline.is_held:
        return Cost(cost.kernel + cost.entry * n, 8 * n)
    rank = outline.rank
    if outline.rank >= n:
        entries = float(n) ** 2
        seconds = entries * (cost.entry + 3 * cost.stream + cost.cube_gram * features)
        return Cost(cost.kernel + seconds, 16 * n**2)
    if not is_low_rank:
        return Cost(cost.kernel + 2 * cost.cube_gram * n * float(rank) ** 2, 16 * n * rank)
    made = feature_seconds(n, rank, features, cost) + landmark_seconds(n, rank, cost)
    return Cost(cost.kernel + made, 16 * n * rank)


def feature_seconds(n: float, rank: int, features: int, cost: CostModel = COSTS) -> float:
    """The kernel between n rows and ``rank`` others."""
    return n * rank * (cost.entry + 3 * cost.stream + cost.cube_gram * features)


def landmark_seconds(n: float, rank: int, cost: CostModel = COSTS) -> float:
    """Choosing ``rank`` landmarks among n rows, or a sample of them, and the factor on them."""
    return 8 * cost.block_gram * min(n, SAMPLE) * float(rank) ** 2
