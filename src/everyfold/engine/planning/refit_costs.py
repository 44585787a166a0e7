"""What refits of scikit-learn's own estimators cost, and where they are done instead of all else.

A refit is a method like any other: its flops are counted, and where that is less than what every
other method here takes, the estimator is refitted on every fold, which gives scikit-learn's own
numbers. Only the ratio to the costs of other methods matters, so that constants are chosen for
these ratios to be those of ``benchmarks/never_slower.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from everyfold._typing import Estimator
from everyfold.engine.planning.costs import COSTS
from everyfold.engine.planning.units import KernelPlan, Unit, gather
from everyfold.engine.reading.permutations import PermutedTarget
from everyfold.engine.records import Candidate, Data
from everyfold.engine.request import Request
from everyfold.estimators.model import original
from everyfold.operators import Structure

# The method of candidates that are refitted because nothing else takes less time.
CHEAPEST = "refits of the estimator itself, the cheapest here"

# The method of candidates that are refitted for their scores to be those of scikit-learn.
STOPPED = (
    "refits of the estimator itself, whose solver stops before the minimum where features "
    "outnumber rows"
)

# Refits are considered only if the other work should take at least so many seconds.
#
# Below that, estimates are mostly fixed costs, and the difference is too short to notice.
LEAST = 0.025

# Refits of LogisticRegression are avoided if they should take more than so many times as long.
#
# Estimates of Newton fits are too small by this factor or more where penalties are weak (C = 100
# with 900 to 1000 rows and 200 to 500 columns).
CLEARLY = 1.5

# Of several classes they are avoided even if they should take a quarter less time.
#
# The other work ends at the minimum, which refits with the default tolerance miss by 0.1 in log
# loss on digits; its estimates are within a quarter there and with 10 classes of 256 columns.
JOINT = 0.75

# If the other work should take at least so many seconds, one refit is timed, and its time decides
# whether the others are done.
#
# Estimates do not know how many iterations a solver takes: those of LogisticRegression were 15
# times too small on columns of different size (2000 to 6000 rows, 60 to 150 columns). Where refits
# are done, the timed one is among them; below, the first call may take longer than the work that it
# is to predict.
TIMED_FROM = 0.3

# If the other work should be faster than refits, one refit is timed only if the work takes at least
# LONG seconds, and refits should take at most WITHIN times as long.
LONG, WITHIN = 2.0, 5.0

# The share of the other work that a timed refit may take; it is lost if refits are not chosen.
TRIAL = 0.1

# Seconds of a fit and its score that do not depend on its rows: clones, checks, calls.
CALLS = 1.5e-3

# Seconds of a transformer: per call, and per entry of its rows.
_STEP, _PASS = 0.5e-3, 10e-9

# How much longer a product with a stored entry of a sparse matrix takes than with a dense one.
_SPARSE = 4.0

# Iterations of conjugate gradients to Ridge's tolerance.
_CONJUGATE = 7

# Iterations of lbfgs to its tolerance; between 5 and 30 for columns of similar size.
_QUASI_NEWTON = 15


@dataclass(frozen=True)
class FitSizes:
    """Sizes of a fit: training rows, columns, stored entries of a row, targets, rows scored."""

    rows: float
    features: int
    row_entries: float
    targets: int
    tests: float = 0.0

    @property
    def is_sparse(self) -> bool:
        """Whether few of the entries are stored."""
        return self.row_entries < self.features

    @property
    def entries(self) -> float:
        """Stored entries of all training rows."""
        return self.rows * self.row_entries

    @property
    def product(self) -> float:
        """Seconds of one product of the rows with a vector."""
        return self.entries * COSTS.stream * (_SPARSE if self.is_sparse else 1.0)


def _ridge(estimator: Estimator, size: FitSizes) -> float:
    if estimator.solver not in ("auto", "cholesky", "sparse_cg"):
        return math.inf
    is_direct = estimator.solver == "cholesky" or not size.is_sparse
    if not is_direct:
        return 2 * _CONJUGATE * size.targets * size.product
    small, large = sorted((size.rows, float(size.features)))
    return COSTS.cube_gram * large * small**2 + COSTS.cube_cholesky * small**3 + 4 * size.product


def _ridge_cv(estimator: Estimator, size: FitSizes) -> float:
    small, large = sorted((size.rows, float(size.features)))
    made = COSTS.cube_gram * large * small**2
    # The diagonal of the hat matrix of every alpha: from the columns, or from n x n eigenvectors.
    each = made if size.rows > size.features else 2 * COSTS.stream * size.rows**2
    count = np.size(estimator.alphas)
    return made + COSTS.cube_eigen * small**3 + count * each + 4 * (1 + count) * size.product


def _kernel_ridge(estimator: Estimator, size: FitSizes) -> float:
    n = size.rows
    pairs = n**2 + n * size.tests
    made = pairs * (COSTS.entry + 3 * COSTS.stream + COSTS.cube_gram * size.features)
    return made + COSTS.cube_cholesky * n**3


# What lbfgs takes for itself in an iteration, and for each row of it.
_ITERATION, _ROW = 40e-6, 30e-9


# Passes over the rows of the solvers of LogisticRegression, in iterations of lbfgs.
_ROUNDS = {"lbfgs": 1.0, "newton-cg": 2.0, "liblinear": 2.0, "sag": 8.0, "saga": 8.0}


def _logistic(estimator: Estimator, size: FitSizes) -> float:
    rounds = _ROUNDS.get(estimator.solver, math.inf)
    iterations = rounds * min(_QUASI_NEWTON, int(estimator.max_iter))
    # Products with a column for each class take less than one after the other.
    columns = 1.0 if size.targets == 1 else 0.3 * size.targets
    return iterations * (_ITERATION + size.targets * _ROW * size.rows + columns * size.product)


# Steps of newton-cholesky.
_NEWTON = 6


def _generalised(estimator: Estimator, size: FitSizes) -> float:
    columns = size.product + _ROW * size.rows
    if estimator.solver == "lbfgs":
        return min(_QUASI_NEWTON, int(estimator.max_iter)) * (_ITERATION + columns)
    made = COSTS.cube_gram * size.rows * size.features**2
    return _NEWTON * (made + COSTS.cube_cholesky * float(size.features) ** 3 + columns)


# Passes of liblinear over the rows, and seconds of each for a stored entry. Measured with LinearSVC
# on whitened columns; where columns hang together it takes ten times as many, and C = 1000 more.
_SWEEPS, _SWEPT = 20.0, 2e-9


def _liblinear(estimator: Estimator, size: FitSizes) -> float:
    return _SWEEPS * _SWEPT * size.targets * size.entries


# libsvm's kernel entries: by the entries of a row, for itself, the share of them that is needed,
# and how many times that for a tube around numbers, which takes more steps.
_EVALUATED, _EXPONENTIAL, _SHARE, _TUBE = 0.5e-9, 10e-9, 0.4, 4.0

# How much longer than a product libsvm takes to merge the entries of two sparse rows.
_MERGED = 3.0


def _libsvm(estimator: Estimator, size: FitSizes) -> float:
    per_entry = _EVALUATED * size.row_entries * (_SPARSE * _MERGED if size.is_sparse else 1.0)
    made = (size.rows**2 + size.rows * size.tests) * _SHARE * (per_entry + _EXPONENTIAL)
    return made + COSTS.pair * size.rows**2


def _libsvm_tube(estimator: Estimator, size: FitSizes) -> float:
    return _TUBE * _libsvm(estimator, size)


_KINDS: Mapping[type, Callable[[Estimator, FitSizes], float]] = {
    Ridge: _ridge,
    RidgeClassifier: _ridge,
    RidgeCV: _ridge_cv,
    KernelRidge: _kernel_ridge,
    LogisticRegression: _logistic,
    PoissonRegressor: _generalised,
    GammaRegressor: _generalised,
    TweedieRegressor: _generalised,
    LinearSVC: _liblinear,
    LinearSVR: _liblinear,
    SVC: _libsvm,
    SVR: _libsvm_tube,
}


def fit_seconds(estimator: Estimator, size: FitSizes, n_steps: int = 0) -> float:
    """Seconds of one fit and its score; infinite for an estimator without a model of them.

    Examples
    --------
    >>> size = FitSizes(rows=2400, features=384, row_entries=384, targets=1)
    >>> 0.01 < fit_seconds(LogisticRegression(), size) < 0.2
    True
    """
    calls = CALLS
    if original(type(estimator)) is OneVsRestClassifier:
        estimator, calls = estimator.estimator, CALLS * (1 + size.targets)
    found = _KINDS.get(original(type(estimator)))
    if found is None:
        return math.inf
    steps = n_steps * (_STEP + _PASS * size.entries)
    return calls + steps + found(estimator, size)


@dataclass(frozen=True)
class PlainFits:
    """Refits of a candidate on all folds: what they take, and why they are done, in words."""

    seconds: float
    words: str


@dataclass(frozen=True)
class Doubt:
    """Refits of all candidates, done if the time of one says that all take less than a limit."""

    fits: Mapping[int, PlainFits]
    limit: float


@dataclass(frozen=True)
class RefitChoice:
    """The candidates that are to be refitted, and what a timed refit should decide instead."""

    fits: Mapping[int, PlainFits] = field(default_factory=dict)
    doubt: Doubt | None = None


def plain_fits(
    data: Data, kernels: Sequence[KernelPlan], units: Sequence[Unit], request: Request
) -> RefitChoice:
    """The candidates that are to be refitted on all folds instead of what ``units`` do.

    All candidates of one estimator go the same way: where that takes the least time, or where its
    solver is known to stop so far from the minimum that scores differ from those of the minimum.
    """
    planned = sum(unit.seconds for unit in units)
    # Solvers of linear models with a coefficient for each row may stop far from the minimum, as
    # most penalties are weak.
    loose = [kernel for kernel in kernels if kernel.features >= data.n]
    if not _may_refit(data, request):
        return RefitChoice()
    ours = _seconds_of(units)
    theirs = {
        candidate.number: _on_all_folds(data, candidate, kernel)
        for kernel in kernels
        for candidate in kernel.candidates
    }
    stopped = {c.number for kernel in loose for c in kernel.candidates if _is_logistic(c)}
    # The candidates whose folds start from what all rows say, which takes less than refits do.
    all_groups = [group for unit in units for own in unit.groups for group in own]
    warm = {k for g in all_groups if g.method.criterion.starts_from_all for k in g.numbers}
    # A fold may be timed where the work of one search is to be done, by held-out scores.
    may_time = request.wants.selects_by is not None and request.options.repeats == 1
    may_time = may_time and request.scorer is not None and data.n_folds > 1
    found: dict[int, PlainFits] = {}
    doubt = None
    by_class = gather(data.candidates.values(), lambda c: str(type(c.parts.final)))
    for own in by_class:
        numbers = [candidate.number for candidate in own]
        if stopped.issuperset(numbers):
            found |= {k: PlainFits(theirs[k], STOPPED) for k in numbers}
            continue
        if not warm.isdisjoint(numbers):
            continue
        margin = 1.0
        if _is_logistic(own[0]):
            margin = JOINT if data.tasks[own[0].task].target.is_joint else CLEARLY
        limit = margin * sum(ours[k] for k in numbers)
        total = sum(theirs[k] for k in numbers)
        fits = {k: PlainFits(theirs[k], CHEAPEST) for k in numbers}
        if planned >= LEAST and total < limit:
            found |= fits
        # Is the time of one refit worth knowing, by the estimates of refits and other work?
        trial = total / (len(data.candidates) * data.n_folds)
        is_doubtful = limit > LONG and total < WITHIN * limit and trial < TRIAL * limit
        if total < limit:
            is_doubtful = limit > TIMED_FROM
        if len(by_class) == 1 and may_time and is_doubtful:
            doubt = Doubt(fits, limit)
    return RefitChoice(found, doubt)


def _is_logistic(candidate: Candidate) -> bool:
    final = candidate.parts.final
    return original(type(final)) is LogisticRegression and final.solver in _ROUNDS


def _may_refit(data: Data, request: Request) -> bool:
    """Whether refits give what was asked for: every option that only other methods have is off."""
    options, wants = request.options, request.wants
    return (
        wants.refits
        and options.fallback != "refuse"
        and options.order in ("auto", "exact")
        and not isinstance(options.operator, Structure)
        and options.operator == "auto"
        and options.ridge_scaling == "sum"
        and options.preprocessing != "once"
        and options.n_confirm in ("auto", 0)
        and options.closed is None
        and not any(task.is_pooled or task.lacks_classes for task in data.tasks)
        # One factorisation for all orders of y: each is one more right-hand side.
        and not any(isinstance(task.target, PermutedTarget) for task in data.tasks)
        and not any(c.model.is_stand_in or c.model.warp for c in data.candidates.values())
    )


def _seconds_of(units: Sequence[Unit]) -> dict[int, float]:
    """The share of every candidate in what units should take."""
    found: dict[int, float] = {}
    for unit in units:
        groups = [group for own in unit.groups for group in own]
        total = sum(group.method.seconds for group in groups)
        for group in groups:
            share = unit.seconds * group.method.seconds / total / len(group.numbers)
            for number in group.numbers:
                found[number] = found.get(number, 0.0) + share
    return found


def _on_all_folds(data: Data, candidate: Candidate, kernel: KernelPlan) -> float:
    """Seconds of the refits of one candidate."""
    task = data.tasks[candidate.task]
    classes = task.target.classes
    targets = task.width if classes is None or candidate.model.voting is None else 1
    tests = float(np.mean(data.sizes))
    n_steps = len(candidate.parts.steps)
    total = 0.0
    for held, count in task.whole.folds.groups:
        rows = data.n - held
        scored = tests + (rows if task.with_train else 0)
        size = FitSizes(rows, kernel.features, kernel.row_entries, targets, scored)
        total += count * fit_seconds(candidate.parts.final, size, n_steps)
    return total
