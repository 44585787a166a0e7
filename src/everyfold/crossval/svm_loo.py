"""Leave-one-out of SVC and SVR: steps from the fit on all rows, and refits of some rows.

:func:`hold_out_by_steps` approximates every held-out value by one step from the solution on all
rows and refits the few rows whose sign that leaves in doubt. :func:`hold_out_by_refits` refits each
support vector to libsvm's tolerance. The functions between them say when values are precise enough
to be called exact; folds of several rows (:mod:`everyfold.crossval.svm`) use them as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index, Mask
from everyfold.crossval.base import OutOfFold
from everyfold.folds import Folds
from everyfold.linalg.spans import NestedSpans
from everyfold.operators import DenseMatrix
from everyfold.solvers import DidNotConvergeError, Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.leave_one_out import RowRemovals, held_out_values, refit_without_rows
from everyfold.svm.paths import PathResults, svm_paths

# -- Tuning: one step from the fit on all rows, as ``method="fast"`` asks for ---------------------
# These trade time for sign errors of an approximation: none of them touches a value that is called
# exact.

# The width h over which the kink of the loss is taken as rounded, in standard deviations of y. The
# wider, the more rows take part in the system of a step, and the more of those beyond the kink are
# treated as if they could move freely.
SMOOTHING = 0.1

# A held-out value may be wrong by this share of what the other rows made up for: what a change of
# their sides can spoil. A larger share refits more rows.
DOUBT = 0.6

# A margin y f(x) of at least this is never in doubt, whatever the share above says: every row in
# doubt costs a refit.
CLOSE = 0.1

# A regression refits rows whose value may be wrong by this share of its root mean square error:
# smaller errors are not seen beside those that the model makes anyway.
SEEN = 0.1

# Rows this near to their kink, in the unit of ``SMOOTHING``, may change sides when a row in doubt
# is left out. The refit copies the kernel of just these, and its pair steps cost as many numbers.
REACH = 0.5

# The tolerance of a regression fitted without a row, in standard deviations of y; far below
# ``SEEN``, and loose enough for a short refit.
PRECISION = 0.005

# Pair steps of a regression without a row. It goes on to the end, since it has no sign that could
# be certain before, and so is allowed three times as many as a classification.
_REGRESSION_STEPS = 3000

# Cs share a factorisation if this adds at most this share of rows to those at the kink of each:
# more would cost more in the larger system than the factorisation that is saved.
ALIKE = 0.1

# A row i is isolated if the sum of |K_ij| over all other rows is below this share of K_ii: nothing
# makes up for it, so that it takes no part in a system.
ISOLATED = 1e-3

# Cs share a system if δ = 2h/C, what the rounding of the kink adds to the diagonal of the kernel,
# differs by at most a factor of STRETCH, or is at most STRETCH · STIFF · max K_ii: where δ is small
# beside the kernel its size hardly matters.
STRETCH, STIFF = 20.0, 0.01

# Rows at a bound that are treated as free: at most max(FEW, SHARE · number of free rows). Where C
# is small nearly all rows of a class are within any width of the kink, and a system of all of them
# would cost the cube of their number.
FEW, SHARE = 30, 0.3

# The least δ, as a share of the largest K_ii: the system stays well conditioned where C is huge.
_LEAST_SOFTNESS = 1e-8

# -- Tuning: when values of refits and folds may be called exact ----------------------------------

# Values whose standard deviation is below FLAT tolerances are solved to FINER of it. libsvm's
# tolerance is absolute: scores of closer values would depend on where the solver started.
#
# Ten times as much still moves R² by 3e-4 (70 rows of diabetes, a linear kernel, y with a standard
# deviation of 77 tolerances). Each digit costs 10 to 30 % of the steps of the fit, and few at a
# small C (breast cancer, 569 rows).
#
# R² reads every digit of the values, unlike a count of labels: with 400 tolerances that of seven
# held-out rows was off by 3e-3. Values of regression are therefore close up to FLAT_VALUES.
FLAT, FLAT_VALUES, FINER = 100.0, 1000.0, 1e-4

# The share of that standard deviation, or of that of y in regression, by which such values may be
# off and are called exact.
DECIDED = 0.01

# Tolerances by which rounding may change other values that are called exact.
#
# At 0.05 of a margin labels begin to turn (iris, gamma = 0.01, C = 1e7), while linear kernels of
# unscaled columns, of which libsvm's rounding is the same, still agree with it.
NOISY = 50.0

# The relative rounding of an entry of the kernel in float32, as libsvm keeps it.
ROUNDING = 6e-8

# Sums of bounds that differ by less, relative to them, are equal: they are sums in floating point.
_EQUAL = 1e-9


@dataclass(frozen=True)
class _FullFit:
    """The SVM of one C, fitted to all rows."""

    problem: Problem
    C: float
    u: Array
    a: Array
    b: float
    width: float
    """Over which the kink is taken as rounded."""
    scale: float
    """The diagonal of the kernel."""

    @cached_property
    def distance(self) -> Array:
        """How far each row is from the kink of its loss; 1e-3 or so for free support vectors."""
        y, loss = self.problem.y[:, 0], self.problem.loss
        if loss.tube is None:
            return np.asarray(np.abs(1.0 - y * self.u))
        return np.asarray(np.abs(np.abs(y - self.u) - loss.tube))

    @cached_property
    def is_support(self) -> NDArray[np.bool_]:
        """The support vectors."""
        return np.asarray(self.a != 0.0)

    @cached_property
    def is_open(self) -> NDArray[np.bool_]:
        """The support vectors whose removal may matter: of labels, those whose sign may turn.

        Without row i its margin falls by :math:`|a_i|` times its squared distance, in feature
        space, from the others, which is at most four times the largest :math:`K_{jj}`.
        """
        if not self.problem.loss.is_margin:
            return self.is_support
        m = self.problem.y[:, 0] * self.u
        return np.asarray((m > 0.0) & (m < 4.0 * self.scale * np.abs(self.a)))

    @cached_property
    def is_free(self) -> NDArray[np.bool_]:
        """The support vectors below their bound: they stay at the kink, whatever moves."""
        return np.asarray(self.is_support & (np.abs(self.a) < self.C * self.problem.w))

    @property
    def softness(self) -> float:
        """δ = 2h/C, added to the diagonal of the kernel of rows at the kink."""
        # A kink rounded over h has the curvature 1/2h, which counts C times.
        # Where C is huge, δ is kept large enough for the system to stay well conditioned.
        return max(2.0 * self.width / self.C, _LEAST_SOFTNESS * self.scale)

    def is_as_soft_as(self, other: _FullFit) -> bool:
        """Whether both Cs may use one δ: it differs little between them, or is small."""
        return self.softness <= STRETCH * max(other.softness, STIFF * self.scale)

    @cached_property
    def bends(self) -> NDArray[np.bool_]:
        """The rows at the rounded kink.

        Where C is small all values are alike and most rows of a class are within any width. Only
        the nearest would change sides; the others cost time.
        """
        free = self.is_free
        others = np.where(free | (self.problem.w == 0.0), np.inf, self.distance)
        most = max(FEW, int(SHARE * np.count_nonzero(free)))
        near = others < self.width
        if np.count_nonzero(near) <= most:
            return free | near
        return free | (others < float(np.partition(others, most)[most]))


def hold_out_by_steps(
    problem: Problem,
    operator: DenseMatrix,
    Cs: Array,
    paths: PathResults,
    folds: Folds,
    kernel: Kernel32 | None,
    *,
    width: float = SMOOTHING,
) -> list[OutOfFold]:
    r"""Held-out values of every row at every C, from the solutions on all rows.

    At libsvm's solution free support vectors stand at the kink of their loss and the others on
    straight pieces. With the kink taken as rounded, leaving out a row is one step of a quadratic
    problem (★), whose forces are the dual coefficients, :math:`g = -2\rho a`: no Newton
    iterations, and one factorisation a C or less. Rows without a coefficient keep their values,
    which is exact; of labels, values whose sign cannot turn are good for nothing but their sign.
    The few rows for which one step is not good enough are refitted by pair steps, from the solution
    on all rows.

    Parameters
    ----------
    problem : Problem
    operator : DenseMatrix
    Cs : array of shape (n_C,)
    paths : PathResults
        One fold that holds nothing out, with its coefficients.
    folds : Folds
        Single rows.
    kernel : Kernel32, optional
        The kernel, for refits of rows in doubt. There are none without it.
    width : float
        Over which the kink is rounded, in standard deviations of y (1 for labels).

    Returns
    -------
    list of OutOfFold

    Notes
    -----
    **Cost** 2/3 |A|³ + 2 |A|² p flops a C for the |A| rows at the kink and p rows at their bound,
    and some hundred pair steps for each row in doubt. Cs at whose solutions almost the same rows
    are at the kink share a system, and once no row is at its bound, larger Cs cost nothing.

    **Exact?** No. As ``width`` goes to 0, for rows that make no other change sides, to the
    tolerance of ``paths``.
    """
    full = zip(paths.decision, paths.coef, paths.intercept, strict=True)
    width, scale = width * unit_of(problem), float(np.abs(operator.diagonal()).max())
    fits = [
        _FullFit(problem, C, u, a, float(b), width, scale)
        for C, (u, a, b) in zip(Cs, full, strict=True)
    ]
    # Where no row is at the kink, none makes up for the one that is held out; where the removal of
    # no row matters, neither does its span. Those keep K_ii.
    spans = {k: (operator.diagonal(), 1.0) for k in range(len(fits))}
    isolated = operator.isolated(ISOLATED)
    for chain in _chains(fits):
        members = [(k, fits[k], rows) for k, rows in chain]
        spans |= _spans_of_chain(members, operator, isolated)
    first = _first_alike(fits)
    held = {k: fits[k].u - fits[k].a * spans[k][0] for k in sorted(set(first))}
    if kernel is not None:
        _refit_doubtful(problem, kernel, {k: fits[k] for k in held}, held)
    rows, nothing = folds.test_rows, np.full(len(folds.test_rows), np.nan)
    conditions = {k: np.full(len(rows), spans[k][1]) for k in held}
    return [
        OutOfFold(held[k][rows][:, None], np.zeros(len(rows), bool), nothing, conditions[k])
        for k in first
    ]


def hold_out_by_refits(
    problem: Problem, kernel: Kernel32, Cs: Array, folds: Folds, *, tol: float, threads: int = 1
) -> tuple[list[OutOfFold], list[bool]]:
    """Held-out values to libsvm's tolerance, each support vector by a fit without it.

    :func:`hold_out_by_steps` is for labels: it spends nothing on values whose sign is sure. Here
    values may be compared with each other. Rows without a coefficient keep their values if a free
    support vector fixes the bias.

    Parameters
    ----------
    problem : Problem
        Of the hinge, or of a tube.
    kernel : Kernel32
        The kernel.
    Cs : array of shape (n_C,)
    folds : Folds
        Single rows.
    tol : float
        libsvm's tolerance.
    threads : int, default=1
        Rows left out at a time.

    Returns
    -------
    records : list of OutOfFold
    is_precise : list of bool
        Whether the rounding of the kernel to float32 leaves the values of each C their meaning.

    Notes
    -----
    **Cost** some hundred pair steps for each support vector at each C.

    **Exact?** To ``tol``, where the bias is known to within that; to ``FINER`` of the spread of
    the values where this is few tolerances (``are_close``), as it is for a small C.
    """
    y, w = problem.y[:, 0], problem.w
    rows = folds.test_rows
    tube = problem.loss.tube
    paths = svm_paths(kernel, y, Cs, w, epsilon=tube, tol=tol)
    check_fits(paths)
    records, is_precise = [], []
    for k in range(len(Cs)):
        C, spread = Cs[[k]], float(paths.spread[k])
        is_close = bool(are_close(problem, spread, tol))
        fine = finer(paths.decision[k], spread, tol) if is_close else tol
        start = paths.coef[[k]]
        full = svm_paths(kernel, y, C, w, epsilon=tube, tol=fine, start=start)
        # Only support vectors change the fit when they are left out. Where none of them is free,
        # the rows beyond the margin bound the interval of the bias, whose middle is taken.
        a = full.coef[0]
        is_free = (a != 0.0) & (np.abs(a) < C[0] * w)
        matters = np.flatnonzero(a if is_free.any() else w)
        without_bias = full.decision[0] - full.intercept[0]
        removal = RowRemovals(float(C[0]), a, without_bias, np.intersect1d(matters, rows), matters)
        left = refit_without_rows(kernel, y, w, removal, epsilon=tube, tol=fine, n_threads=threads)
        values, violation = full.decision[0].copy(), np.full(problem.n, full.violation[0])
        values[removal.rows], violation[removal.rows] = left.values, left.violation
        # Where no support vector is free, the violation is minus the length of the
        # interval that the bias may be anywhere in.
        is_exact = (violation <= fine) & (violation >= -tol)
        unknown = np.full(len(rows), np.nan)
        records.append(OutOfFold(values[rows][:, None], is_exact[rows], unknown, unknown))
        (noise,) = rounding(kernel.diagonal, full.coef)
        is_precise.append(
            is_decided(problem, values[rows], noise, float(full.spread[0]))
            if fine < tol
            else bool(noise <= most_noise(problem, tol))
        )
    return records, is_precise


def tips(problem: Problem, Cs: Array, paths: PathResults) -> NDArray[np.bool_]:
    r"""Whether the bias of each C jumps from one margin to the other when some row is left out.

    Where all rows of a class are at their bounds :math:`C w_i`, free support vectors of the other
    class fix the bias. That class has just as much in use, out of the sum of its own bounds. If
    this sum is no larger without some row, that class is at its bounds instead.
    """
    found = np.zeros(len(Cs), dtype=bool)
    for side in (-1.0, 1.0):
        is_own = problem.y[:, 0] * side > 0.0
        own, other = problem.w[is_own], problem.w[~is_own].sum()
        if own.sum() - own.max(initial=0.0) <= (1.0 + _EQUAL) * other:
            used = np.abs(paths.coef[:, ~is_own]).sum(axis=1)
            found |= used >= (1.0 - _EQUAL) * Cs * other
    return found


def check_fits(paths: PathResults) -> None:
    """Raise if there are no fits on all rows."""
    if np.isnan(paths.decision).any():
        raise DidNotConvergeError("there is no fit on all rows to leave rows out of")


def are_close(problem: Problem, spread: Array | float, tol: float) -> Mask:
    """Where values with that standard deviation differ so little that the tolerance is seen."""
    few = FLAT if problem.loss.is_margin else FLAT_VALUES
    return np.asarray(spread < few * tol)


def finer(values: Array, spread: float, tol: float) -> float:
    """The tolerance of values that are close, with that standard deviation."""
    finest = float(np.spacing(np.abs(values).max(initial=0.0))) / FINER
    return min(tol, max(FINER * spread, finest))


def rounding(diagonal: Array, coef: Array) -> Array:
    """What the rounding of a kernel to float32 changes in values, by C.

    Rounding errors of the entries have random signs, so that those of values grow with the length
    of the coefficients.
    """
    size = np.sqrt(np.abs(diagonal))
    noise: Array = ROUNDING * float(np.median(size)) * np.linalg.norm(coef * size, axis=1)
    return noise


def most_noise(problem: Problem, tol: float) -> float:
    """By how much values that differ by many tolerances may be off."""
    return max(NOISY * tol, 1e-3 * float(np.std(problem.y)))


def is_decided(
    problem: Problem, values: Array, error: float, spread: float, play: float = 0.0
) -> bool:
    """Whether values that differ by few tolerances are known well enough for comparisons.

    Those of regression are compared with y. Those of labels are compared with each other, and may
    all be equal, and with 0; held out on a kernel near the identity, they are as precise as the
    coefficients are. ``play`` is by how much all may be off alike.
    """
    if not problem.loss.is_margin:
        return max(error, play) <= DECIDED * float(np.std(problem.y))
    differ, size = float(np.ptp(values)), np.abs(values)
    is_ranked = differ == 0.0 or np.spacing(size.max()) <= DECIDED * differ
    has_signs = play == 0.0 or play < size.min()
    return bool(is_ranked and has_signs and error <= DECIDED * spread)


def _first_alike(fits: Sequence[_FullFit]) -> list[int]:
    """For each C the number of one with the very same solution, which no bound holds back."""
    order = np.argsort([fit.C for fit in fits], kind="stable")
    first = list(range(len(fits)))
    for k, after in pairwise(order):
        here, there = fits[k], fits[after]
        has_no_bound = np.array_equal(here.is_free, here.is_support)
        if has_no_bound and np.array_equal(here.a, there.a):
            first[after] = first[k]
    return first


_Chain = list[tuple[int, NDArray[np.bool_]]]


def _chains(fits: Sequence[_FullFit]) -> list[_Chain]:
    """Cs that share a system, falling, each with the rows that are taken to be at its kink.

    As C falls, rows come to their bounds and leave the kink. Almost the same rows remain, or some
    of those; the sets of larger Cs take in the few that come anew, so that they are nested.
    """
    chains: list[_Chain] = []
    for k in np.argsort([-fit.C for fit in fits], kind="stable"):
        if not (fits[k].is_open.any() and fits[k].bends.any()):
            continue
        bends = fits[k].bends
        if chains and fits[k].is_as_soft_as(fits[chains[-1][0][0]]):
            wider = [(j, rows | bends) for j, rows in chains[-1]]
            if all(
                np.count_nonzero(rows) <= (1.0 + ALIKE) * np.count_nonzero(fits[j].bends)
                for j, rows in wider
            ):
                chains[-1] = [*wider, (int(k), bends)]
                continue
        chains.append([(int(k), bends)])
    return chains


def _spans_of_chain(
    chain: Sequence[tuple[int, _FullFit, NDArray[np.bool_]]],
    operator: DenseMatrix,
    isolated: NDArray[np.bool_],
) -> dict[int, tuple[Array, float]]:
    """The spans of support vectors that matter, from one factorisation for the Cs of a chain."""
    is_open = np.logical_or.reduce([fit.is_open for _, fit, _ in chain])
    support = is_open.nonzero()[0]
    nested = chain[::-1]  # from the smallest set on
    known = nested[0][2]
    parts = [known.nonzero()[0]]
    for _, _, rows in nested[1:]:
        parts.append((rows & ~known).nonzero()[0])
        known = known | rows
    order = np.concatenate(parts)
    softness = math.sqrt(chain[0][1].softness * chain[-1][1].softness)
    counts = list(accumulate(len(part) for part in parts))
    w = chain[0][1].problem.w[order]
    system = NestedSpans(operator.K, order, softness / w, counts, isolated)
    spans = np.zeros((len(nested), operator.n))
    spans[:, support] = system.of(support)
    return {k: (found, system.condition) for (k, _, _), found in zip(nested, spans, strict=True)}


def unit_of(problem: Problem) -> float:
    """The unit of distances from the kink: the standard deviation of y, or 1 for labels."""
    if problem.loss.is_margin:
        return 1.0
    return max(float(np.std(problem.y[problem.w > 0.0])), float(np.finfo(float).tiny))


def _in_doubt(fit: _FullFit, held: Array, K_ii: Array) -> Index:
    """Support vectors whose value the step does not know well enough.

    Leaving row i out takes :math:`|a_i| K_{ii}` from its value, and the other rows give some of it
    back. That share is what a change of their sides can spoil. It matters where it could turn a
    sign, or be seen beside the errors of a regression.
    """
    rows = np.flatnonzero(fit.is_open)
    if not rows.size:
        return rows
    y, values = fit.problem.y[:, 0], held[rows]
    lost = np.abs(values - fit.u[rows])
    push = np.abs(fit.a[rows]) * K_ii[rows]
    share = np.maximum(push - lost, 0.0) / np.maximum(push, np.finfo(float).tiny)
    gap = DOUBT * share * lost
    if fit.problem.loss.is_margin:
        m = y[rows] * values
        return rows[(m < np.minimum(gap, CLOSE)) & (m > -gap)]
    error = float(np.sqrt(np.average((y - held) ** 2, weights=fit.problem.w)))
    return rows[gap > SEEN * error]


def _refit_doubtful(
    problem: Problem, kernel: Kernel32, fits: dict[int, _FullFit], held: dict[int, Array]
) -> None:
    """Put the values of models fitted without the row in the place of doubtful ones."""
    unit = unit_of(problem)
    cases: dict[int, RowRemovals] = {}
    for k, fit in fits.items():
        rows = _in_doubt(fit, held[k], kernel.diagonal)
        if rows.size:
            movable = fit.is_free | (fit.distance <= REACH * unit)
            near = np.flatnonzero(movable & (problem.w > 0.0))
            cases[k] = RowRemovals(fit.C, fit.a, fit.u - fit.b, rows, near)
    task = (kernel, problem.y[:, 0], problem.w, list(cases.values()))
    if problem.loss.tube is None:
        found = held_out_values(*task)
    else:
        found = held_out_values(
            *task,
            epsilon=problem.loss.tube,
            tolerances=[PRECISION * unit],
            max_iter=_REGRESSION_STEPS,
        )
    for (k, removal), left in zip(cases.items(), found, strict=True):
        step, side = held[k][removal.rows], np.sign(removal.coef[removal.rows])
        # A value whose steps ran out was still rising, and the one step may be the better guess.
        risen = side * np.maximum(side * left.values, side * step)
        values = np.where(left.is_sure, left.values, risen)
        held[k][removal.rows] = np.where(np.isfinite(left.values), values, step)
