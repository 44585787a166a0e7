r"""Refits by conjugate gradients: every fold, ridge and target is a column of one iteration.

The fold that trains with weights :math:`s^2` (0 for the rows it holds out) asks for

.. math:: (S K S + \rho I)\,x = S y, \qquad a = S x, \qquad f = K a .

Systems that differ in S, :math:`\rho` and y only share the matrix K, so that one product of K with
a block serves them all, and nothing is factorised. The held-out rows of f come with the product
that measures the residual.

With an intercept, x is orthogonal to :math:`s`: the iteration runs in that subspace, where the
constant direction, which is often the one of the largest eigenvalue, is absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Index
from everyfold.crossval.base import CrossValMethod, OutOfFold
from everyfold.folds import Folds
from everyfold.linalg.blas import dots
from everyfold.linalg.symmetric import (
    EPS,
    TRUSTED_ERROR,
    NotPositiveDefiniteError,
    are_trusted,
    refuse,
)
from everyfold.operators.base import SupportsMatmul, require
from everyfold.operators.iterative import Preconditioner
from everyfold.solvers import Problem

# Bytes that all blocks of an iteration may take together. More columns at a time make better use of
# each product with the kernel.
MEMORY = 512e6

# Arrays of the size of the solutions that exist during an iteration.
_BLOCKS = 12


@dataclass(frozen=True, kw_only=True)
class Iterated(OutOfFold):
    """Held-out predictions of an iteration, and how far it came.

    Attributes
    ----------
    residual : array of shape (t,)
        ‖r‖ / ‖rhs‖ of each fold's worst target, from a product with the solution itself.
    error : array of shape (t,)
        An upper bound of the relative error of the coefficients, ‖r‖ / (ρ ‖x‖).
    iterations : int array of shape (t,)
        Products with the kernel that each fold took part in.
    """

    residual: Array
    error: Array
    iterations: Index


@dataclass(frozen=True)
class ConjugateGradient(CrossValMethod):
    r"""Refits of all folds and ridges by block conjugate gradients, for squared loss.

    For many rows and a spectrum without a tail that low rank could use: K is only multiplied, and
    need not be held (:class:`~everyfold.operators.iterative.Blockwise`). Any split will do, as with
    :class:`~everyfold.crossval.refit.Refit`. Smooth kernels with tiny ridges take many iterations,
    unless a ``basis`` is given; the first step with one is the low-rank solution already.

    Parameters
    ----------
    tol : float, default=1e-8
        A column is done when :math:`\|r\| \le` tol · :math:`\|rhs\|`, and when the error of its
        coefficients, at most :math:`\|r\| / (\rho\|x\|)` of them, is below 5e-7 (or tol, if that is
        larger).
    max_iter : int, default=1000
        Columns that are not done after so many products are given as they are, and not called
        exact.

    Notes
    -----
    **Cost** a product of K with t · ridges · targets columns an iteration, 2 n² flops a column;
    columns that are done take part no longer. About 100 n bytes a column; what would exceed
    ``MEMORY`` is done in groups of folds and ridges.
    **Exact?** Where ``is_exact`` says so: the measured residual is below tol and bounds the error
    of the coefficients by 1e-6.

    Examples
    --------
    >>> from everyfold.kernels import RBF
    >>> from everyfold.losses import Squared
    >>> from everyfold.operators import Dense
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> problem = Problem(np.sin(X), np.ones(30), Squared(), intercept=True)
    >>> folds = Folds.from_splits([(np.arange(0, 30, 2), np.arange(1, 30, 2))], n=30)
    >>> K = Dense().bind(RBF(gamma=1.0), X)
    >>> (result,) = ConjugateGradient().evaluate(problem, K, [0.1], folds)
    >>> bool(result.is_exact.all()), bool(abs(result.values - np.sin(X[1::2])).max() < 0.2)
    (True, True)
    """

    ability: ClassVar[type] = SupportsMatmul

    tol: float = 1e-8
    max_iter: int = 1000

    def evaluate(
        self, problem: Problem, operator: SupportsMatmul, ridges: Sequence[float], folds: Folds
    ) -> Iterator[Iterated]:
        """See base class."""
        if not problem.loss.has_constant_curvature:
            raise ValueError(f"{problem.loss} has no linear system to iterate on; use Refit")
        require(operator, SupportsMatmul)
        for ridge in ridges:
            if not 0.0 < ridge < math.inf:
                raise NotPositiveDefiniteError(
                    f"ridge={ridge!r} is not a positive number, without which conjugate gradients "
                    "do not converge; increase alpha (or lower C), or use ClosedFormCV or Refit"
                )
        record = _Record.blank(len(ridges), folds, problem.y.shape[1])
        for group in _groups(len(folds), len(ridges), problem):
            systems = _Systems.of(problem, ridges, folds, group)
            inverse = None
            if operator.basis is not None:
                inverse = Preconditioner.of(operator.basis, systems.s, operator.diagonal())
            _Block(systems, operator, inverse, record, self.tol).run(self.max_iter)
        for k in range(len(ridges)):
            yield record.ridge(k, self.tol)


def _groups(t: int, n_ridges: int, problem: Problem) -> Iterator[Index]:
    """Pairs of a fold and a ridge whose columns fit in memory together, (pairs, 2)."""
    # All ridges of a fold stay together where they can: its preconditioner serves them all.
    pairs = np.stack(np.divmod(np.arange(t * n_ridges), max(1, n_ridges)), axis=1)
    step = max(1, int(MEMORY / (8.0 * _BLOCKS * problem.n * problem.y.shape[1])))
    return (pairs[i : i + step] for i in range(0, len(pairs), step))


# -- what is to be solved, and what has been ------------------------------------------------------


@dataclass(frozen=True)
class _Systems:
    """The systems of a group, one column for each fold, ridge and target, folds ascending.

    ``fold``, ``ridge``, ``target`` and ``rho`` are the columns'; ``s`` and ``centre`` the folds',
    whose numbers are ``first`` and on. Blocks have Fortran order: columns are contiguous.
    """

    y: Array
    intercept: bool
    first: int
    s: Array
    centre: Array
    fold: Index
    ridge: Index
    target: Index
    rho: Array

    @classmethod
    def of(cls, problem: Problem, ridges: Sequence[float], folds: Folds, group: Index) -> _Systems:
        """Read the training rows of the folds of ``group``; a row that repeats adds its weight."""
        first, last = int(group[0, 0]), int(group[-1, 0])
        s = np.zeros((problem.n, last - first + 1), order="F")
        rhos = np.empty((s.shape[1], len(ridges)))
        for k in range(s.shape[1]):
            train = folds[first + k].train
            part = problem.restrict(train)
            np.add.at(s[:, k], train, part.w)
            rhos[k] = [problem.rho(ridge, part.n_counted) for ridge in ridges]
        centre = np.zeros((s.shape[1], problem.y.shape[1]))
        if problem.intercept:
            total = s.sum(axis=0)
            centre = (s.T @ problem.y) / np.where(total > 0.0, total, 1.0)[:, None]
        q = problem.y.shape[1]
        fold, ridge = np.repeat(group - [first, 0], q, axis=0).T
        return cls(
            problem.y,
            problem.intercept,
            first,
            np.sqrt(s, out=s),
            centre,
            fold,
            ridge,
            np.tile(np.arange(q), len(group)),
            rhos[fold, ridge],
        )

    def right(self, columns: Index) -> Array:
        """The right-hand sides S (y − centre) of some columns."""
        fold, target = self.fold[columns], self.target[columns]
        B: Array = self.y.T[target].T - self.centre[fold, target]
        B *= self.s.T[fold].T
        return B

    def sizes(self) -> Array:
        """The largest entry of each right-hand side; 0 if it is only rounding, as for constant y.

        Columns are divided by it, so that no square of a target can over- or underflow.
        """
        fold, target = self.fold, self.target
        terms = np.abs(self.y).max(axis=0, initial=0.0)[target]
        terms = terms * self.s.max(axis=0, initial=0.0)[fold]
        sizes = np.abs(self.right(np.arange(len(fold)))).max(axis=0, initial=0.0)
        return np.where(sizes <= 4.0 * EPS * terms, 0.0, sizes)


@dataclass(frozen=True)
class _Record:
    """What columns leave behind when they are done, by ridge, fold (or test row) and target."""

    folds: Folds
    values: Array
    residual: Array
    error: Array
    condition: Array
    iterations: Index

    @classmethod
    def blank(cls, n_ridges: int, folds: Folds, q: int) -> _Record:
        """Room for all columns. One whose right-hand side is 0 leaves nothing but its centre."""
        shape = (n_ridges, len(folds), q)
        values = np.empty((n_ridges, int(folds.bounds[-1]), q))
        zero, none = np.zeros(shape), np.zeros(shape, dtype=np.intp)
        return cls(folds, values, zero, zero.copy(), np.ones(shape), none)

    def write(self, systems: _Systems, columns: Index, u: Array) -> None:
        """Keep the test rows of the values ``u`` of some columns."""
        for k in np.unique(systems.fold[columns]):
            number = systems.first + int(k)
            own = np.flatnonzero(systems.fold[columns] == k)
            rows = slice(self.folds.bounds[number], self.folds.bounds[number + 1])
            ridge, target = systems.ridge[columns[own]], systems.target[columns[own]]
            self.values[ridge, rows, target] = u.T[own][:, self.folds.tests[number]]

    def ridge(self, k: int, tol: float) -> Iterated:
        """The result of one ridge."""
        residual, error, condition = (
            part[k].max(axis=1) for part in (self.residual, self.error, self.condition)
        )
        exact = (residual <= tol) & (error <= TRUSTED_ERROR) & are_trusted(condition)
        unknown = np.full(len(self.folds), np.nan)
        steps = self.iterations[k].max(axis=1)
        return Iterated(
            self.values[k],
            exact,
            unknown,
            condition,
            residual=residual,
            error=error,
            iterations=steps,
        )


# -- the iteration --------------------------------------------------------------------------------


class _Block:
    """The columns that are still running: solutions X, residuals R and directions P.

    A column whose updated residual is small enough is checked: in the next product its direction
    is replaced by its solution, which gives the true residual and the values of f at once. It then
    leaves the block, or starts again from where it is.
    """

    def __init__(
        self,
        systems: _Systems,
        operator: SupportsMatmul,
        inverse: Preconditioner | None,
        record: _Record,
        tol: float,
    ) -> None:
        self._systems = systems
        self._operator = operator
        self._inverse = inverse
        self._record = record
        self._tol = tol
        self._sizes = systems.sizes()
        self._settle_constants()
        self.columns = np.flatnonzero(self._sizes)
        self._fold, self._rho = systems.fold[self.columns], systems.rho[self.columns]
        self.s = systems.s.T[self._fold].T
        self._weight = dots(self.s, self.s)
        self.R = self._project(self._right(self.columns))  # the centre is rounded
        self._norm = np.sqrt(dots(self.R, self.R))
        self.X = np.zeros_like(self.R)
        self.P = self._precondition()
        self._rz = dots(self.R, self.P)
        self._is_checked = np.zeros(len(self.columns), dtype=bool)
        self._best = np.full(len(self.columns), np.inf)
        self._smallest = self._rho.copy()
        self._largest = self._rho.copy()
        if inverse is not None:
            self._largest += inverse.largest[self._fold]

    def _settle_constants(self) -> None:
        """Columns without a right-hand side: f = 0 and u is the centre."""
        systems = self._systems
        columns = np.flatnonzero(self._sizes == 0.0)
        b = systems.centre[systems.fold[columns], systems.target[columns]]
        self._record.write(systems, columns, np.broadcast_to(b, (len(systems.y), len(columns))))

    def run(self, max_iter: int) -> None:
        """Iterate until all columns are done, at most ``max_iter`` times."""
        with np.errstate(all="ignore"):  # what is not a number leaves the block as such
            for step in range(1, max_iter + 1):
                if not self.columns.size:
                    return
                self._advance(step, step == max_iter)

    def _advance(self, step: int, is_last: bool) -> None:
        """One product with K, and what follows from it."""
        self._is_checked |= is_last
        K_P, Q = self._multiply()
        self._watch(Q)
        begun_again = np.zeros(len(self.columns), dtype=bool)
        if self._is_checked.any():
            left = self._check(K_P, Q, step, is_last)
            begun_again = self._is_checked & ~left
            if left.any():
                Q, begun_again = Q.T[~left].T, begun_again[~left]
                self._keep(~left)
        if self.columns.size:
            self._descend(Q, begun_again)

    def _multiply(self) -> tuple[Array, Array]:
        """K S P, and A P = S K S P + ρ P without its part along s if there is an intercept."""
        self.P.T[self._is_checked] = self.X.T[self._is_checked]
        Q = self.s * self.P
        K_P = self._operator.matmat(Q)
        np.multiply(self.s, K_P, out=Q)
        Q += self._rho * self.P
        return K_P, self._project(Q)

    def _project(self, B: Array) -> Array:
        """B without its part along s, in place; B itself if there is no intercept."""
        if self._systems.intercept:
            B -= self.s * (dots(self.s, B) / self._weight)
        return B

    def _right(self, columns: Index) -> Array:
        B: Array = self._systems.right(columns)
        B /= self._sizes[columns]
        return B

    def _precondition(self) -> Array:
        if self._inverse is None:
            return self.R.copy(order="F")
        return self._project(self._inverse.apply(self.R, self.s, self._fold, self._rho))

    def _watch(self, Q: Array) -> None:
        """Bound the spectrum by what it did to the directions; refuse an indefinite system."""
        length = dots(self.P, self.P)
        is_set = length > 0.0
        curvature = np.divide(dots(self.P, Q), length, out=self._rho.copy(), where=is_set)
        stretch = np.divide(dots(Q, Q), length, out=self._rho**2, where=is_set)
        if (curvature <= 0.0).any():
            worst = int(np.nanargmin(curvature))
            raise refuse(float(curvature[worst]), float(self._rho[worst]))
        self._smallest = np.minimum(self._smallest, curvature)
        self._largest = np.maximum(self._largest, np.sqrt(stretch))

    def _limit(self, columns: NDArray[np.bool_]) -> Array:
        """The norms of residuals at which these columns of the block are done."""
        X = self.X.T[columns].T
        error = max(self._tol, 0.5 * TRUSTED_ERROR) * np.sqrt(dots(X, X))
        return np.minimum(self._tol * self._norm[columns], error * self._smallest[columns])

    def _check(self, K_P: Array, Q: Array, step: int, is_last: bool) -> NDArray[np.bool_]:
        """Measure the columns whose product was that of their solution; which of them leave.

        One that must go on has its true residual in R.
        """
        checked = self._is_checked
        columns = self.columns[checked]
        r = self._right(columns)
        if self._systems.intercept:
            s = self.s.T[checked].T
            r -= s * (dots(s, r) / self._weight[checked])
        r -= Q.T[checked].T
        norm = np.sqrt(dots(r, r))
        # If a restart no longer halves the residual, rounding errors prevent further progress.
        leaves = (norm <= self._limit(checked)) | ~(norm <= 0.5 * self._best[checked]) | is_last
        self._best[checked] = norm
        self.R.T[checked] = r.T
        left = checked.copy()
        left[checked] = leaves
        self._retire(left, K_P.T[left].T, norm[leaves], step)
        return left

    def _retire(self, left: NDArray[np.bool_], f: Array, norm: Array, step: int) -> None:
        """Write down what the columns ``left`` found; ``norm`` are their true residuals."""
        systems, record, columns = self._systems, self._record, self.columns[left]
        b = np.zeros(len(columns))
        if systems.intercept:
            s = self.s.T[left].T
            b = -np.einsum("ij,ij,ij->j", s, s, f) / self._weight[left]
        centre = systems.centre[systems.fold[columns], systems.target[columns]]
        record.write(systems, columns, (f + b) * self._sizes[columns] + centre)
        X = self.X.T[left].T
        own = systems.ridge[columns], systems.first + systems.fold[columns], systems.target[columns]
        record.residual[own] = norm / self._norm[left]
        record.error[own] = norm / (self._smallest[left] * np.sqrt(dots(X, X)))
        record.condition[own] = self._largest[left] / self._smallest[left]
        record.iterations[own] = step

    def _keep(self, stays: NDArray[np.bool_]) -> None:
        """Drop all other columns from the block."""
        self.columns, self._fold = self.columns[stays], self._fold[stays]
        self.s, self.X, self.R, self.P = (B.T[stays].T for B in (self.s, self.X, self.R, self.P))
        self._rho, self._weight, self._norm = (
            v[stays] for v in (self._rho, self._weight, self._norm)
        )
        self._rz, self._best, self._is_checked = (
            v[stays] for v in (self._rz, self._best, self._is_checked)
        )
        self._smallest, self._largest = self._smallest[stays], self._largest[stays]

    def _descend(self, Q: Array, begun_again: NDArray[np.bool_]) -> None:
        """One step of every column along its direction, and the next direction.

        Columns that begin again stay where they are, and follow their preconditioned residual.
        """
        bend = dots(self.P, Q)
        moves = (bend > 0.0) & ~begun_again
        alpha = np.divide(self._rz, bend, out=np.zeros_like(bend), where=moves)
        scratch = self.P * alpha
        self.X += scratch
        np.multiply(Q, alpha, out=scratch)
        self.R -= scratch
        self._project(self.R)  # the rounding of many steps would lead out of the subspace
        Z = self._precondition()
        rz, rr = dots(self.R, Z), dots(self.R, self.R)
        # A preconditioner that rounding has made indefinite does not lead downhill.
        failed = ~(rz > 0.0)
        Z.T[failed], rz[failed] = self.R.T[failed], rr[failed]
        moves &= ~failed
        beta = np.divide(rz, self._rz, out=np.zeros_like(rz), where=moves)
        self.P *= beta
        self.P += Z
        self._rz = rz
        self._mark(np.sqrt(rr))

    def _mark(self, norm: Array) -> None:
        """Which columns are to be checked: those that seem done, and those that are not numbers."""
        near = norm <= self._tol * self._norm
        near[near] = norm[near] <= self._limit(near)
        self._is_checked = near | ~np.isfinite(norm)
