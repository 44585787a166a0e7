"""What methods cost, in seconds and bytes; those of squared loss are in ``squared_loss.py``.

Estimates count what a method does (flops, passes over memory, pair steps, calls) and multiply by
the constants of one :class:`CostModel`, measured by ``benchmarks/constants.py``;
``benchmarks/plans.py`` compares whole estimates with what was measured. Choices depend on the
ratios of the constants only, and those move little between machines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from everyfold.crossval.all_folds_newton import ARRAYS, ENTRIES
from everyfold.crossval.kernel_newton import MOST_RANK, RANK_SHARE
from everyfold.crossval.primal import MOST_COUPLED, has_own_systems
from everyfold.engine.scoring.fold_scorers import MOST_COLUMNS
from everyfold.estimators.newton_passes import VALUES_AT_A_TIME, held_bytes, sampled_rows
from everyfold.io.blocks import height_of
from everyfold.io.samples import SAMPLE
from everyfold.linalg.memory import COPIES, batch_bytes, sample_bytes
from everyfold.operators.base import OperatorSpec
from everyfold.operators.gram import FEW_RIDGES
from everyfold.solvers.block_newton import MEMORY


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

# Typical values of counts that depend on the data, not on the machine.

# Of Newton's method on all rows, and on a fold that starts from there.
_NEWTON_STEPS, _FOLD_STEPS = 10, 5

# With the response of all rows, for folds of a smooth loss and of a piecewise quadratic one.
_SMOOTH_PRODUCTS, _PIECEWISE_PRODUCTS = 15, 35

# Of the folds of a smooth loss taken together: seconds for themselves, passes over their rows in
# an iteration, and how much longer than estimated Newton's method takes at low rank. Measured with
# LogisticRegression (300 to 20,000 rows, 5 to 500 columns, 4 to 50 folds, C = 1): estimates were 2
# to 10 times too small without, and are within a factor of 3.
_TOGETHER, _ELEMENTWISE, _THIN = 5e-3, 50, 2.5

# Of models of columns, in seconds with one thread: a Gram matrix in single precision by n c², a
# product with an entry of the columns, for itself and for each fold, and the loss of an entry of
# rows and folds. Measured with 3000 to 5000 rows of 256 to 768 columns, 5 to 35 folds.
_SINGLE_GRAM, _SINGLE_PRODUCT, _SINGLE_MODEL, _MODEL_ENTRY = 16e-12, 0.2e-9, 0.02e-9, 4e-9

# Of classes that are fitted together: their Gram matrices by n and the square of all coefficients,
# a Cholesky factorisation, and its use for a fold. Measured with 10 classes of 64 and 256 columns.
_COUPLED_GRAM, _COUPLED_CUBE, _COUPLED_USE = 30e-12, 5e-12, 0.12e-9

# A Cholesky factorisation likewise, by the third power of its size.
_SINGLE_CUBE = 12e-12

# Gram matrices of a path, products of a ridge with two of them for a step of conjugate gradients,
# and what a ridge takes for itself.
_GRAMS, _PRODUCTS, _PATH_STEP = 2.5, 50, 1.5e-3

# Of a full kernel matrix, with one thread: a product in single precision with an entry, for itself
# and for each fold, preconditioners and products of a ridge, and what a ridge takes for itself.
_KERNEL_PRODUCT, _KERNEL_MODEL = 0.3e-9, 0.02e-9
_KERNEL_MADE, _KERNEL_PRODUCTS, _KERNEL_RIDGE = 2.5, 40, 15e-3

# Pair steps for each training row and C on a path: of the hinge, and of a tube around numbers.
_PAIR_STEPS, _TUBE_STEPS = 1.2, 5.0

# The kernel of more rows is read from memory in pair steps, which then take so much longer.
_CACHED_ROWS, _FROM_MEMORY = 3000, 1.5

# What a path to the coarse tolerance costs, the best Cs to libsvm's included.
_COARSE_SHARE = 0.7

# The share of support vectors, and the pair steps of a fit without one of them, at the least.
SUPPORT, LEFT_STEPS = 0.5, 150.0

# The share of rows that one step leaves in doubt, so that they are left out by pair steps.
_DOUBTFUL = 0.05


# Matrices of n rows and the rank at a time as landmarks are chosen and features made: 2.1 to 3.1
# were measured (peak memory of 5,000 to 20,000 rows and ranks of 200 to 500).
_FEATURE_COPIES = 3.3

# The same for Newton steps of folds at low rank; 5.7 were measured.
_STEP_COPIES = 6


@dataclass(frozen=True)
class Workload:
    """The sizes that decide: rows, ridges, targets, and what each fold leaves out."""

    n: int
    rank: int
    ridges: int
    targets: int
    groups: tuple[tuple[int, int], ...]
    """Sizes of what folds leave out, each with the number of folds."""
    is_in_memory: bool = True
    """Whether the kernel matrix is held in memory."""
    is_margin: bool = True
    """Whether a support vector machine tells classes apart; it fits numbers else."""
    is_per_fold: bool = False
    """Whether every fold has a kernel of its own, and there is none of all rows."""
    support: float = SUPPORT
    """Support vectors of all machines at one C, by the number of rows."""
    left_steps: float = LEFT_STEPS
    """Pair steps of a fit without one of them."""

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


def blocks(work: Workload, cost: CostModel, per_entry: float) -> float:
    """Blocks of all folds and their solution, for one ridge."""
    total = 0.0
    for m, count in work.groups:
        if m <= 1:  # the diagonal serves all of them
            total += work.n * work.rank * cost.stream
        else:
            # Sets larger than the rank are solved at its size.
            size, length = (m, work.rank) if m <= work.rank else (work.rank, m)
            gram = (2 if work.is_low_rank else 1) * per_entry  # low rank: no use of symmetry
            made = gram * size**2 * length + cost.stream * m * work.rank
            total += count * (made + cost.block_cholesky * size**3 + 3 * cost.call)
    return total


# -- other losses ------------------------------------------------------------------------------


def newton_system(rows: float, rank: float, cost: CostModel) -> float:
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
    seconds = fits * _NEWTON_STEPS * newton_system(work.n, work.rank, cost)
    for m, count in work.groups:
        left = work.n - m
        copied = cost.gather * left * min(work.rank, left)
        step = newton_system(left, min(work.rank, left), cost)
        seconds += count * (copied + fits * _FOLD_STEPS * step)
    return Cost(seconds, 48 * work.n * work.rank)


def newton_together(work: Workload, *, is_piecewise: bool, cost: CostModel = COSTS) -> Cost:
    """Newton's method on all rows, then on all folds at once with the last factorisation."""
    products = _PIECEWISE_PRODUCTS if is_piecewise else _SMOOTH_PRODUCTS
    steps = newton_steps(work, cost)
    held = work.n * (work.rank if work.is_low_rank else work.n)
    each = (
        products * work.n_folds * (4 * cost.cube_gram * held + _ELEMENTWISE * cost.stream * work.n)
    )
    formed = 0.0 if work.is_low_rank else 4 * cost.cube_gram * work.n**3
    each = min(each, formed + 0.25 * each)
    at_a_time = min(work.n_folds, ENTRIES // work.n + 1)
    columns = ARRAYS * work.n * at_a_time
    columns += sum(min(count, at_a_time) * m * min(m, work.rank) for m, count in work.groups)
    M = 0 if work.is_low_rank else work.n**2
    seconds = (_THIN if work.is_low_rank else 1.0) * steps.seconds
    seconds += work.ridges * work.targets * (_TOGETHER + each)
    return Cost(seconds, steps.memory + 8 * (columns + M))


def primal(work: Workload, *, is_joint: bool = False) -> Cost:
    """Newton's method on all folds at once in the space of the columns, ridge by ridge.

    ``is_joint`` says that targets are classes which are fitted together.
    """
    entries, folds, classes = float(work.n) * work.rank, work.n_folds, work.targets
    at_a_time = min(folds, ENTRIES // (work.n * (classes if is_joint else 1)) + 1)
    batches = folds / at_a_time
    gram = _SINGLE_GRAM * entries * work.rank
    product = entries * (_SINGLE_PRODUCT + _SINGLE_MODEL * at_a_time)
    product += _MODEL_ENTRY * work.n * at_a_time
    memory = 4 * int(entries) + 8 * (2 * int(entries) + ARRAYS * work.n * at_a_time)
    seconds = classes * batches * (_GRAMS * gram + _PRODUCTS * work.ridges * product)
    if is_joint and classes * work.rank <= MOST_COUPLED:
        size = (classes - 1) * work.rank
        systems = at_a_time if has_own_systems(work.n, size, at_a_time) else 1
        made = _COUPLED_GRAM * work.n * size**2
        each = systems * _COUPLED_CUBE * float(size) ** 3
        each += _PRODUCTS * _COUPLED_USE * at_a_time * float(size) ** 2
        each += classes * _PRODUCTS * product
        seconds = batches * ((1.0 + 0.5 * work.ridges) * made + work.ridges * each)
        memory += 8 * (systems + 1) * size**2
    if is_joint:
        memory += 8 * ARRAYS * work.n * at_a_time * classes
    return Cost(seconds + classes * work.ridges * _PATH_STEP, memory + 16 * work.rank**2)


def kernel_newton(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Newton's method on a full kernel matrix by iterations, all folds at once, ridge by ridge."""
    n, folds = float(work.n), work.n_folds
    rank = min(MOST_RANK, RANK_SHARE * n)
    made = _SINGLE_GRAM * n * rank**2 + _SINGLE_CUBE * rank**3
    product = (n + 2.0 * rank) * n * (_KERNEL_PRODUCT + _KERNEL_MODEL * folds)
    each = _KERNEL_MADE * folds * made + _KERNEL_PRODUCTS * (product + _MODEL_ENTRY * n * folds)
    seconds = work.targets * work.ridges * (_KERNEL_RIDGE + each) + cost.cube_gram * n * rank**2
    return Cost(seconds, int(20 * n * n + 12 * n * rank + 4 * folds * rank**2 + 200 * n * folds))


def newton_steps(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Newton's method on all rows, then one step for every fold."""
    inverse = cost.cube_inverse * work.n * work.rank**2
    fit = _NEWTON_STEPS * newton_system(work.n, work.rank, cost) + inverse
    each = fit + blocks(work, cost, cost.block_gram)
    copies = _STEP_COPIES if work.is_low_rank else 3
    return Cost(work.ridges * work.targets * each, 8 * copies * work.n * work.rank)


def _path(work: Workload, rows: float, width: float, cost: CostModel) -> float:
    """A path of all Cs through a training set, in a kernel of so many rows."""
    steps = rows * (_PAIR_STEPS if work.is_margin else _TUBE_STEPS)
    pair = cost.pair * (_FROM_MEMORY if width > _CACHED_ROWS else 1.0)
    return work.ridges * (steps * width * pair + cost.call)


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
    # In float32 for the solver; pairs of classes also hold it in float64, to predict by.
    return Cost(seconds, (16 if is_of_pairs else 8) * work.n**2)


def refitted_rows(work: Workload, cost: CostModel = COSTS) -> Cost:
    """A fit on all rows, and one without each support vector, for every C."""
    n = float(work.n)
    each = work.support * n * (work.left_steps * n * cost.pair + cost.call)
    seconds = cost.entry32 * n**2 + _path(work, n, n, cost) + work.ridges * each
    return Cost(seconds, 24 * work.n**2)


def single_rows(work: Workload, cost: CostModel = COSTS) -> Cost:
    """A fit on all rows, a step for each row, and pair steps for the few in doubt."""
    n = float(work.n)
    free = SUPPORT * n
    step = (cost.cube_cholesky + cost.cube_inverse) * free**3 + cost.block_gram * n * free**2
    doubtful = _DOUBTFUL * n * LEFT_STEPS * n * cost.pair
    seconds = cost.entry32 * n**2 + _path(work, n, n, cost)
    return Cost(seconds + work.ridges * (step + doubtful), 32 * work.n**2)


def smoothed_steps(work: Workload, cost: CostModel = COSTS) -> Cost:
    """Support vector fits on all rows, then Newton steps of the rounded loss."""
    steps = newton_steps(work, cost)
    path = _path(work, work.n, work.n, cost)
    return replace(steps, seconds=steps.seconds + path)


# -- sums over rows ----------------------------------------------------------------------------


def sums_bytes(width: int, n_folds: int, threads: int = 1, maps: int = 1) -> int:
    """The sums over the rows of every fold, and over the rows outside it; threads have their own.

    Those of threads are added up into a copy. With a map for every fold each of these has the sums
    over its rows and over the others.
    """
    of_thread = n_folds + 1 if maps == 1 else 2 * maps
    return 8 * width**2 * max(2 * n_folds + 4, (threads > 1) * (threads + 1) * of_thread)


def source_bytes(
    shape: tuple[int, int], width: int, sample: int, threads: int, *, is_scaled: bool
) -> int:
    """What is held of a source beside sums: batches, or the rows that landmarks are drawn from."""
    n, d = shape
    height = height_of(max(d, width))
    height = min(n or height, height)
    batches = threads * batch_bytes(height, d, width, is_scaled=is_scaled)
    read = (sample * (1 + is_scaled) + height * (COPIES - 1)) * d
    return max(batches, 8 * read, sample_bytes(sample, d, width, 2 + is_scaled))


@dataclass(frozen=True)
class SummedKernel:
    """A kernel in a pass over a source: numbers summed of a row, ridges, and maps of the rows."""

    width: int
    ridges: int
    maps: int = 1


def source_pass(
    shape: tuple[int, int],
    kernels: Sequence[SummedKernel],
    n_folds: int,
    passes: int,
    sample: int = 0,
    threads: int = 1,
    cost: CostModel = COSTS,
) -> Cost:
    """A pass over a source of rows and features for some kernels, and perhaps a second one.

    ``sample`` rows are held to choose landmarks from, and ``threads`` work on a batch of rows each,
    with sums of their own. Reading is not counted: what a row takes to
    read is known to its source alone.
    """
    n, total = float(shape[0]), 0.0
    for kernel in kernels:
        c, k = kernel.width, kernel.ridges
        solve = k * cost.block_cholesky if k <= FEW_RIDGES else cost.cube_tridiagonal
        total += landmark_seconds(n, c, cost)
        total += kernel.maps * feature_seconds(n, c, shape[1], cost)
        total += kernel.maps * 2 * cost.block_gram * n * c**2
        total += n_folds * ((2 * cost.cube_gram + solve) * c**3 + k * cost.call)
        if passes > 1:
            total += 2 * cost.stream * n * c + cost.cube_gram * n * c * k
    widest, is_scaled = max(k.width for k in kernels), any(k.maps > 1 for k in kernels)
    memory = sum(sums_bytes(kernel.width, n_folds, threads, kernel.maps) for kernel in kernels)
    held = source_bytes(shape, widest, sample, threads, is_scaled=is_scaled)
    return Cost(total, memory + held)


# Passes' entries of rows and models: loss, slope and what is held out of them. Measured with
# 200,000 rows, 160 models of the logistic loss.
_SLOPE_ENTRY = 12e-9

# Gram matrices of a sample for each ridge: on the way to its minimum, and there.
_SAMPLE_GRAMS = 4


def newton_bytes(
    n: int, kernel: SummedKernel, n_folds: int, q: int, *, is_held: bool = False
) -> int:
    """What is held of a smooth loss throughout its passes, for q columns of values a model.

    The features of the sample while they are made, in double and single precision, and its Hessians
    with their factors; of every coefficient a pair for each step that is kept, and some more; and
    perhaps the features of all rows.
    """
    c, ridges = kernel.width + 1, kernel.ridges * q
    sample = (
        12 * sampled_rows(n, kernel.width) * c + 8 * _MODEL_COPIES * sampled_rows(n, c) * ridges
    )
    hessians = 12 * c**2 * ridges * kernel.maps
    coefficients = 8 * (2 * MEMORY + _MODEL_COPIES) * c * ridges * n_folds
    return sample + hessians + coefficients + is_held * held_bytes(n, kernel.width)


# Arrays of the size of all coefficients, or of the values of a sample, at a time.
_MODEL_COPIES = 8


def newton_passes(
    shape: tuple[int, int],
    kernels: Sequence[SummedKernel],
    sizes: tuple[int, int, int],
    sample: int = 0,
    threads: int = 1,
    cost: CostModel = COSTS,
    *,
    is_held: bool = False,
) -> Cost:
    """Passes with the gradients of a smooth loss; ``sizes`` are folds, columns, and passes.

    Features that are held are made once, in double precision, and multiplied in single precision.
    """
    (n, d), (n_folds, q, passes), total = shape, sizes, 0.0
    for kernel in kernels:
        c, models = kernel.width, n_folds * kernel.ridges * q
        m = sampled_rows(n, c)
        made = kernel.maps * feature_seconds(n, c, d, cost) / (passes if is_held else 1)
        made += is_held * 2 * cost.cube_gram * float(n) * c**2 / passes
        each = made + _SLOPE_ENTRY * n * models
        each += (2 if is_held else 4) * cost.cube_gram * float(n) * c * models
        grams = kernel.maps * kernel.ridges * q * _SAMPLE_GRAMS * _SINGLE_GRAM * m * c**2
        total += landmark_seconds(n, c, cost) + passes * each + grams
    widest, is_scaled = max(k.width for k in kernels), any(k.maps > 1 for k in kernels)
    memory = sum(newton_bytes(n, kernel, n_folds, q, is_held=is_held) for kernel in kernels)
    entries = 8 * _MODEL_COPIES * threads * VALUES_AT_A_TIME
    held = source_bytes(shape, widest, sample, threads, is_scaled=is_scaled)
    return Cost(total, memory + entries + held)


# -- what all methods share --------------------------------------------------------------------


def overhead(candidates: int, folds: int, cost: CostModel = COSTS) -> float:
    """Seconds for the records and scores of candidates; of very many folds they are arrays."""
    written = min(folds, MOST_COLUMNS) * cost.score + 20.0 * folds * cost.stream
    return candidates * (cost.candidate + written)


def kernel_cost(
    n: int, outline: OperatorSpec, features: int, *, is_low_rank: bool, cost: CostModel = COSTS
) -> Cost:
    """One kernel on n rows: base matrix, elementwise function, and the factor of a low rank.

    The base matrix is counted for every kernel, though kernels may share it: it is a product with
    as many columns as there are features, and small beside all else.
    """
    if outline.methods == ("fourier",) or not outline.is_in_memory:
        return Cost(cost.kernel + cost.entry * n, 8 * n)
    rank = outline.rank
    if outline.rank >= n:
        entries = float(n) ** 2
        seconds = entries * (cost.entry + 3 * cost.stream + cost.cube_gram * features)
        return Cost(cost.kernel + seconds, 8 * n**2)
    if not is_low_rank:
        return Cost(cost.kernel + 2 * cost.cube_gram * n * float(rank) ** 2, 16 * n * rank)
    made = feature_seconds(n, rank, features, cost) + landmark_seconds(n, rank, cost)
    return Cost(cost.kernel + made, int(8 * _FEATURE_COPIES * n * rank))


def feature_seconds(n: float, rank: int, features: int, cost: CostModel = COSTS) -> float:
    """The kernel between n rows and ``rank`` others."""
    return n * rank * (cost.entry + 3 * cost.stream + cost.cube_gram * features)


def landmark_seconds(n: float, rank: int, cost: CostModel = COSTS) -> float:
    """Choosing ``rank`` landmarks among n rows, or a sample of them, and the factor on them."""
    return 8 * cost.block_gram * min(n, SAMPLE) * float(rank) ** 2


# -- beside the units: a fixed time, and compiled code on its first use ------------------

# Seconds for reading, planning and tables; searches of 150 rows took 0.012 to 0.02 (processor
# time, one thread), of which 0.003 to 0.006 are counted by their units.
SEARCH = 0.012

# Seconds for a module of compiled code: read from numba's cache with numba itself, or compiled.
# 0.47, and 5.1 to 6.7, were measured in processes of their own.
_LOADING, _COMPILING = 0.45, 5.5


def first_use(modules: Iterable[str]) -> float:
    """Seconds until modules of compiled code are ready in this process."""
    missing = [name for name in set(modules) if name not in sys.modules]
    if not missing:
        return 0.0
    return _LOADING + sum(_COMPILING for name in missing if not _is_cached(name))


def _is_cached(module: str) -> bool:
    """Whether numba has kept what it compiled of a module, in one of the places it uses."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin)
    places = [source.parent / "__pycache__"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        places = [Path(os.environ["NUMBA_CACHE_DIR"])]
    return any(next(place.rglob(f"{source.stem}.*.nbi"), None) for place in places)
