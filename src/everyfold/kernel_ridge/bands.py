r"""Several kernels, each of some columns, with weights that held-out scores choose: banded ridge.

:math:`K = \sum_b \theta_b K_b` with weights :math:`\theta_b \ge 0` that sum up to 1, of kernels
whose diagonals have the mean 1. Weights come from draws of Dirichlet distributions, as in himalaya
(Dupré la Tour et al. 2022), of which each target or group of targets takes its best, or from a
descent along the exact gradient of the held-out squared error
(:mod:`everyfold.gradient.descent`), one for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from everyfold._typing import Array, Index, Matrix
from everyfold.estimators.base import fit_columns
from everyfold.estimators.model import KernelChoice, Model
from everyfold.estimators.targets import Numbers
from everyfold.folds import Folds
from everyfold.gradient.descent import HeldOutError
from everyfold.kernel_ridge.ridge_scores import Judge, score_ridges
from everyfold.kernel_ridge.selection import RIDGES, typical_gamma
from everyfold.kernels import Gamma, Kernel
from everyfold.linalg.blas import product
from everyfold.linalg.columns import compress_columns
from everyfold.operators.dense import DenseMatrix
from everyfold.solvers import Problem

# Concentrations of the Dirichlet distributions, in turn: mostly one band, and any mixture.
CONCENTRATIONS = (1.0, 0.1)

# A descent ends where the error falls by less than this share; weights of bands are few, so that
# there is little to over-fit; a smaller share costs more steps. Measured in benchmarks/bands.py,
# where descents ended after about ten steps.
TOLERANCE, MOST_STEPS = 1e-5, 30

# How far the logarithm of a weight may fall below that of equal weights: below e⁻¹², a band counts
# for less than rounding of scores.
_LEAST = -12.0

# Ridges, as shares of the trace, that a descent may begin from.
_START_RIDGES = RIDGES[::4]


class BandMatrix(DenseMatrix):
    """A sum of kernel matrices with weights, which knows how it changes with their logarithms."""

    def __init__(self, matrices: Array, weights: Array) -> None:
        self._matrices, self._weights = matrices, weights
        total = np.tensordot(weights, matrices, axes=1)
        super().__init__(total, is_semidefinite=True)

    def slopes(self, left: Array, right: Array) -> Array:
        """See base class: one derivative for each band."""
        B = product(left, right.T)
        each = [np.vdot(B, matrix) for matrix in self._matrices]
        return np.asarray(self._weights * np.array(each))


@dataclass(frozen=True)
class BandExpansion:
    """f(x) of several targets: the sums over bands and rows of weights, coefficients and kernels.

    Attributes
    ----------
    kernels : sequence of Kernel
    columns : sequence of index arrays
        Of X, those of each band.
    X : array
        The rows of the fit.
    weights : array of shape (n_bands, n_targets)
    coef : array of shape (n, n_targets)
    """

    kernels: Sequence[Kernel]
    columns: Sequence[Index]
    X: Matrix
    weights: Array
    coef: Array

    def __call__(self, X: Matrix) -> Array:
        """The values of new rows, (rows, targets), without an intercept."""
        total = np.zeros((X.shape[0], self.coef.shape[1]))
        for kernel, own, weight in zip(self.kernels, self.columns, self.weights, strict=True):
            total += kernel(X[:, own], self.X[:, own]) @ (self.coef * weight)
        return total


# Columns of X: numbers, names, a slice or a mask.
ColumnsOfBand = ArrayLike | slice


@dataclass(frozen=True)
class Bands:
    """Several kernels, each of some columns.

    Attributes
    ----------
    kernels : list of Kernel
    gammas : list of float or None
    columns : list of index arrays
    """

    kernels: list[Kernel]
    gammas: list[Gamma]
    columns: list[Index]

    def matrices(self, X: Matrix) -> tuple[Array, Array]:
        """Kernel matrices whose diagonals have the mean 1, and what they were divided by."""
        each = zip(self.kernels, self.columns, strict=True)
        found = np.stack([kernel(X[:, own]) for kernel, own in each])
        sizes = np.einsum("bii->b", found) / len(found[0])
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        found /= sizes[:, None, None]
        return found, sizes

    def expansion(self, X: Matrix, weights: Array, coef: Array) -> BandExpansion:
        """The model with these weights and coefficients."""
        return BandExpansion(self.kernels, self.columns, X, weights, coef)


def read_bands(
    choices: Sequence[tuple[KernelChoice, ColumnsOfBand]],
    X: Matrix,
    weights: Array,
    random: np.random.RandomState,
    names: Sequence[str],
) -> Bands:
    """The kernels for these rows; a gamma of "tune" becomes that of typical distances."""
    kernels, gammas, columns = [], [], []
    for choice, asked in choices:
        own = _columns(asked, X.shape[1], names)
        part, gamma = X[:, own], choice.gamma
        if gamma == "tune":
            gamma = typical_gamma(replace(choice, gamma=1.0).resolve(part), part, weights, random)
        kernels.append(replace(choice, gamma=gamma).resolve(part))
        gammas.append(gamma)
        columns.append(own)
    return Bands(kernels, gammas, columns)


def _columns(asked: ColumnsOfBand, count: int, names: Sequence[str]) -> Index:
    """The numbers of the columns of a band."""
    if isinstance(asked, slice):
        found = np.arange(count)[asked]
    else:
        wanted = np.atleast_1d(np.asarray(asked))
        if wanted.dtype.kind in "UO":
            unknown = [name for name in wanted.tolist() if name not in names]
            if unknown:
                raise ValueError(f"a band has the columns {unknown}, but X has {list(names)}")
            return np.array([names.index(name) for name in wanted], dtype=np.intp)
        try:
            found = np.arange(count)[wanted]
        except IndexError as error:
            raise ValueError(
                f"a band has the columns {wanted.tolist()}, but X has {count}: {error}"
            ) from error
    if not found.size:
        raise ValueError("a band has no columns; leave it out")
    return found


def groups_of_targets(asked: Literal["each"] | ArrayLike | None, count: int) -> Index:
    """The number of each target's group."""
    if asked is None:
        return np.zeros(count, dtype=np.intp)
    if isinstance(asked, str):
        if asked != "each":
            raise ValueError(f"target_groups={asked!r} is not known; use None, 'each' or an array")
        return np.arange(count)
    if np.shape(asked) != (count,):
        raise ValueError(
            f"target_groups has shape {np.shape(asked)}; use one entry for each of the {count} "
            "targets"
        )
    return np.asarray(np.unique(np.asarray(asked), return_inverse=True)[1], dtype=np.intp)


@dataclass(frozen=True)
class ChosenBands:
    """What was chosen for every target.

    Attributes
    ----------
    weights : array of shape (n_bands, n_targets)
        What each band's kernel is multiplied by.
    ridges, scores : arrays of shape (n_targets,)
    is_exact : bool
        Whether the scores are those of refits, up to rounding.
    """

    weights: Array
    ridges: Array
    scores: Array
    is_exact: bool


@dataclass
class BandSelection:
    """What weights are chosen by.

    Attributes
    ----------
    matrices : array of shape (n_bands, n, n)
        Kernel matrices; their diagonals have the mean 1.
    problem : Problem
    judge : Judge
        Scores targets one by one.
    alphas : tuple of float or None
        None tunes the ridge.
    groups : int array of shape (n_targets,)
        Targets with the same number share their weights.
    per_target : bool
        Whether every target has a ridge of its own; else those of a group share it.
    """

    matrices: Array
    problem: Problem
    judge: Judge
    alphas: tuple[float, ...] | None
    groups: Index
    per_target: bool

    def by_draws(self, count: int, random: np.random.RandomState) -> ChosenBands:
        """The best of equal weights and of random ones, for each group.

        **Cost** one factorisation and the scores of all ridges for each draw.
        """
        n_bands = len(self.matrices)
        chosen: ChosenBands | None = None
        for k in range(count):
            concentration = np.full(n_bands, CONCENTRATIONS[k % len(CONCENTRATIONS)])
            weights = random.dirichlet(concentration) if k else np.full(n_bands, 1.0 / n_bands)
            found = self._scored(weights)
            chosen = found if chosen is None else self._better(chosen, found)
        assert chosen is not None
        return chosen

    def by_gradient(self) -> ChosenBands:
        """The weights that descents find, one for each group of targets.

        **Cost** a factorisation with its inverse and a product of n×n matrices for each step.
        """
        parts = [
            (members, replace_targets(self, members)._descent())
            for members in (np.flatnonzero(self.groups == g) for g in np.unique(self.groups))
        ]
        q = len(self.groups)
        weights, ridges, scores = np.empty((len(self.matrices), q)), np.empty(q), np.empty(q)
        for members, found in parts:
            weights[:, members], ridges[members] = found.weights, found.ridges
            scores[members] = found.scores
        return ChosenBands(weights, ridges, scores, all(f.is_exact for _, f in parts))

    def _descent(self) -> ChosenBands:
        """The optimum from equal weights; all targets count alike, whatever their units."""
        n_bands = len(self.matrices)
        equal = np.full(n_bands, 1.0 / n_bands)
        start = self._scored(equal)
        y, w = self.problem.y, self.problem.w
        centred = y - np.average(y, axis=0, weights=w) if self.problem.intercept else y
        unit = np.sqrt(np.average(centred**2, axis=0, weights=w))
        # The squared error is the same for any orthogonal mixture of targets: at most n count.
        scaled = compress_columns(centred / np.where(unit > 0.0, unit, 1.0))
        error = HeldOutError(replace(self.problem, y=scaled), self.judge.folds)
        ridge = float(np.exp(np.mean(np.log(np.maximum(start.ridges, 1e-300)))))
        first = error.evaluate(BandMatrix(self.matrices, equal), ridge).value

        def loss(z: Array) -> tuple[float, Array]:
            weights = np.exp(z[:-1]) / n_bands
            try:
                slopes = error.evaluate(BandMatrix(self.matrices, weights), float(np.exp(z[-1])))
            except ArithmeticError:  # not positive definite to working precision
                return 1e6, np.zeros_like(z)
            gradient = np.append(slopes.log_gamma, slopes.log_ridge)
            return slopes.value / first, gradient / first

        # Only ratios of weights to the ridge count: the sum of the weights is free.
        z = np.append(np.zeros(n_bands), np.log(ridge))
        bounds = [(_LEAST, -_LEAST)] * n_bands + [(z[-1] + _LEAST, z[-1] - _LEAST)]
        found = minimize(
            loss,
            z,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": MOST_STEPS, "ftol": TOLERANCE},
        )
        weights = np.exp(found.x[:-1])
        own = np.exp(found.x[-1]) * n_bands / weights.sum()
        best = self._scored(weights / weights.sum(), extra=own)
        return self._better(start, best)

    def _scored(self, weights: Array, extra: float | None = None) -> ChosenBands:
        """The best ridges of all targets with these weights."""
        operator = BandMatrix(self.matrices, weights)
        if self.alphas is None:
            ridges = RIDGES * (float(operator.diagonal() @ self.problem.w) or 1.0)
            ridges = ridges if extra is None else np.append(ridges, extra)
        else:
            ridges = np.array(self.alphas)
        table = score_ridges(self.problem, operator, ridges.tolist(), self.judge)
        if self.alphas is None and table.is_exact.any():
            scores = np.where(table.is_exact[:, None], table.scores, np.nan)
        else:
            scores = table.scores
        if np.isnan(scores).all(axis=0).any():
            raise ValueError(
                "no alpha has a score: the sum of the kernel matrices is not positive definite "
                "with any of them, or the scorer gave NaN; use larger alphas, or another scoring"
            )
        each = scores if self.per_target else self._means(scores)
        k = np.nanargmax(each, axis=0)
        q = len(self.groups)
        own: Array = scores[k, np.arange(q)]
        columns = np.repeat(weights[:, None], q, axis=1)
        return ChosenBands(columns, table.ridges[k], own, bool(table.is_exact[k].all()))

    def _means(self, scores: Array) -> Array:
        """The mean score of each target's group, for every target."""
        _, group = np.unique(self.groups, return_inverse=True)
        return np.stack([np.bincount(group, s)[group] / np.bincount(group)[group] for s in scores])

    def _better(self, one: ChosenBands, other: ChosenBands) -> ChosenBands:
        """The better of two for each group."""
        old, new = self._means(np.stack([one.scores, other.scores]))
        take = new > old
        return ChosenBands(
            np.where(take, other.weights, one.weights),
            np.where(take, other.ridges, one.ridges),
            np.where(take, other.scores, one.scores),
            one.is_exact and other.is_exact,
        )


def replace_targets(selection: BandSelection, members: Index) -> BandSelection:
    """The same for some of the targets."""
    problem = replace(selection.problem, y=selection.problem.y[:, members])
    judge, groups = selection.judge.among(members), selection.groups[members]
    asked = selection.matrices, problem, judge, selection.alphas, groups
    return BandSelection(*asked, selection.per_target)


@dataclass(frozen=True)
class BandFit:
    """The fit to all rows, and what each band explains of rows that were left out.

    Attributes
    ----------
    coef : array of shape (n, n_targets)
    intercept : array of shape (n_targets,)
    explained : array of shape (n_bands, n_targets)
        What bands add to R² of the held-out rows; their sum is that R², with the means of the
        training rows.
    """

    coef: Array
    intercept: Array
    explained: Array


def fit_bands(
    model: Model, selection: BandSelection, chosen: ChosenBands, target: Numbers
) -> BandFit:
    """Fit targets together that have the same weights."""
    q = len(chosen.ridges)
    coef, intercept = np.empty((len(target.columns), q)), np.empty(q)
    explained = np.empty(chosen.weights.shape)
    w, folds = selection.problem.w, selection.judge.folds
    _, group = np.unique(chosen.weights, axis=1, return_inverse=True)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        weights = chosen.weights[:, members[0]]
        operator = BandMatrix(selection.matrices, weights)
        own = Numbers(target.columns[:, members], is_flat=False)
        final = replace(model, ridges=tuple(chosen.ridges[members].tolist()))
        solution = fit_columns(final, operator, own, w)
        coef[:, members], intercept[members] = solution.coef, solution.intercept
        for ridge in np.unique(chosen.ridges[members]):
            alike = members[chosen.ridges[members] == ridge]
            problem = replace(selection.problem, y=target.columns[:, alike])
            parts = weights[:, None, None] * selection.matrices
            explained[:, alike] = _explained(problem, operator, parts, float(ridge), folds)
    return BandFit(coef, intercept, explained)


def _explained(
    problem: Problem, operator: BandMatrix, parts: Array, ridge: float, folds: Folds
) -> Array:
    r"""What bands add to the R² of held-out rows, by the product measure.

    With the values f = Σ f_b of the models of the folds, centred on their training rows as y is:
    :math:`\sum f_b (2 y - f) / \sum y^2`, whose sum over the bands is 1 − Σ(y − f)²/Σ y².
    """
    quadratic = problem.quadratic
    response = operator.respond(quadratic, ridge)
    s, w, y = quadratic.s[:, None], problem.w, problem.y
    reduced = response.reduced()
    top, bottom = np.zeros((len(parts), y.shape[1])), np.zeros(y.shape[1])
    for stack in folds.stacks(np.ones(folds.n, dtype=bool)):
        each = response.solve_residual_blocks(stack.rows, reduced[stack.rows])
        for fold, rows, e in zip(stack.folds, stack.rows, each, strict=True):
            columns = np.zeros((folds.n, e.shape[1]))
            columns[rows] = e
            dual = s * (reduced - response.residual_matmat(columns))
            dual[rows] = 0.0  # up to rounding
            test, train = folds.tests[fold], w.copy()
            train[rows] = 0.0
            train /= train.sum()
            values = parts[:, test] @ dual
            truth = y[test]
            if problem.intercept:
                values -= (train @ parts @ dual)[:, None, :]
                truth = truth - train @ y
            own = w[test][:, None]
            top += (own * values * (2.0 * truth - values.sum(axis=0))).sum(axis=1)
            bottom += (own * truth**2).sum(axis=0)
    return np.asarray(top / np.where(bottom > 0.0, bottom, 1.0))
