r"""Held-out means and variances of a Gaussian process, all folds from one factorisation.

With A the kernel matrix of all rows plus the noise, :math:`G = A^{-1}` and the rows S of a fold,
the rows outside S predict

.. math:: \hat y_S = y_S - (G_{SS})^{-1} (G y)_S, \qquad \mathrm{Cov}(y_S) = (G_{SS})^{-1},

the noise of the rows included. Where targets are normalised, each training set has a mean of its
own: the residual of a constant is one more column.

Scores of these distributions have a gradient in all hyper-parameters of the kernel. With
:math:`C_S = (G_{SS})^{-1}`, :math:`U_S = G_{:S} C_S` and the residuals :math:`e_S = C_S r_S` with
:math:`r_S = (G z)_S`,

.. math:: dC_S = U_S^\top dA\, U_S, \qquad de_S = U_S^\top dA\, (U_S r_S - G z).

A function of residuals and variances with the derivatives f in e and g in the diagonal of C
therefore changes by :math:`\langle B, dA\rangle` with

.. math:: B = \sum_S U_S\,\bigl(f_S r_S^\top + \mathrm{diag}\,g_S\bigr)\,U_S^\top
              - U_S f_S\,(G z)^\top .

The gradient costs one product of n×n matrices more than the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import check_X_y

from everyfold._progress import warn
from everyfold._sklearn_private import check_method_params, safe_indexing
from everyfold._typing import Array, Estimator, Index, Matrix, Params, Splitter, Targets
from everyfold.adapters.pipelines import final_step
from everyfold.adapters.process_kernels import Process, read_process
from everyfold.crossval import InexactWarning
from everyfold.engine.reading.reader import warn_of_refits
from everyfold.engine.request import HOW_TO_FILTER
from everyfold.estimators.model import original
from everyfold.folds import Folds, joined
from everyfold.linalg.blas import blas_threads
from everyfold.linalg.memory import check_memory
from everyfold.linalg.symmetric import CHUNK, FactoredStack, refuse
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Quadratic


@dataclass(frozen=True)
class Gaussians:
    """The distributions of all held-out values.

    Attributes
    ----------
    mean : array of shape (N, q)
        Of the test rows of all folds, one fold after the other.
    std : array of shape (N, q)
        As scikit-learn's ``predict(return_std=True)``: with the noise of a ``WhiteKernel``, without
        ``alpha``.
    noise : array of shape (N, q)
        The variance of the noise ``alpha``, in the units of y.
    folds : Folds
    """

    mean: Array
    std: Array
    noise: Array
    folds: Folds

    @property
    def spread(self) -> Array:
        """The standard deviations of the targets themselves, all noise included."""
        return np.asarray(np.sqrt(self.std**2 + self.noise))


def held_out_gaussians(process: Process, X: Matrix, Y: Array, folds: Folds) -> Gaussians:
    """The distributions of all folds, equal to those of refits.

    **Cost** one Cholesky factorisation and its inverse, 2/3 n³ flops, and n Σ m² + Σ m³ over the
    folds' sizes m, whatever their number. Memory: three n×n matrices.
    **Exact?** Yes, up to rounding.

    Parameters
    ----------
    process : Process
    X : array of shape (n, d)
    Y : array of shape (n, q)
    folds : Folds
        Removals of rows.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> found = held_out_gaussians(
    ...     Process(RBF(), 0.1, False), X, np.ones((3, 1)), Folds.leave_one_out(3)
    ... )
    >>> found.mean.round(2).ravel(), found.std.round(2).ravel()
    (array([0.43, 0.98, 0.43]), array([0.78, 0.64, 0.78]))
    """
    n, q = Y.shape
    check_memory(n, n, "or fewer rows")
    noise = process.noise(n)
    A = np.array(process.kernel(X), dtype=np.float64)
    A.flat[:: n + 1] += noise
    level = Y.mean(axis=0) if process.normalises else np.zeros(q)
    centred = Y - level
    columns = np.column_stack([centred, np.ones(n)]) if process.normalises else centred
    with blas_threads(n):
        e, variance = _residuals(A, columns, folds)
    counts = np.diff(folds.bounds)
    shift, unit = (
        np.repeat(rule, counts, axis=0) for rule in training_rules(process, centred, folds)
    )
    if process.normalises:
        e = e[:, :q] - shift * e[:, q:]
    tested = folds.held_rows[folds.pick]
    mean = Y[tested] - e
    own = np.maximum(variance - noise[tested], 0.0)
    return Gaussians(mean, np.sqrt(own)[:, None] * unit, noise[tested, None] * unit**2, folds)


def _residuals(A: Array, columns: Array, folds: Folds) -> tuple[Array, Array]:
    """What the other rows leave of each column, and the variances, of all test rows."""
    n, k = columns.shape
    quadratic = Quadratic(np.ones(n), columns, intercept=False)
    response = DenseMatrix(A, is_semidefinite=True).respond(quadratic, 0.0)
    reduced = response.reduced()
    e, variance = np.empty((int(folds.sizes.sum()), k)), np.empty(int(folds.sizes.sum()))
    for stack in folds.stacks(np.ones(n, dtype=bool)):
        m = stack.rows.shape[1]
        if m == 1:
            variance[stack.slots[:, 0]] = 1.0 / response.residual_diagonal()[stack.rows[:, 0]]
            e[stack.slots[:, 0]] = reduced[stack.rows[:, 0]]
            e[stack.slots[:, 0]] *= variance[stack.slots[:, 0], None]
            continue
        step = max(1, CHUNK // m**2)
        for part in (slice(i, i + step) for i in range(0, len(stack.rows), step)):
            rows, slots = stack.rows[part], stack.slots[part]
            system = FactoredStack(response.residual_blocks(rows))
            e[slots] = system.solve(reduced[rows])
            each = system.solve(np.broadcast_to(np.eye(m), (len(rows), m, m)))
            variance[slots] = np.einsum("tii->ti", each)
    if not (np.isfinite(e).all() and np.isfinite(variance).all()):
        raise refuse(0.0, 0.0)
    return e[folds.pick], variance[folds.pick]


def training_rules(process: Process, Y: Array, folds: Folds) -> tuple[Array, Array]:
    """The mean and the deviation of the training targets, (folds, q); 0 and 1 if not asked for."""
    if not process.normalises:
        return np.zeros((len(folds), 1)), np.ones((len(folds), Y.shape[1]))
    starts = np.cumsum(folds.sizes) - folds.sizes
    held, left = Y[folds.held_rows], (len(Y) - folds.sizes)[:, None]
    mean = (Y.sum(axis=0) - np.add.reduceat(held, starts, axis=0)) / left
    square = ((Y**2).sum(axis=0) - np.add.reduceat(held**2, starts, axis=0)) / left
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    # Targets that are all the same, but for the rounding of these sums, keep their unit.
    is_constant = deviation**2 <= _ROUNDING * (Y**2).mean(axis=0)
    deviation[is_constant | (deviation == 0.0)] = 1.0
    return mean, deviation


# Of sums of squares, relative to the largest.
_ROUNDING = 1e-13


# -- What functions ask for -----------------------------------------------------------------------


class UnsharedError(ValueError):
    """Folds that share no factorisation, and why."""


def is_shared(estimator: Estimator) -> bool:
    """Whether folds share the distributions of an estimator."""
    try:
        read_process(estimator)
    except (TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class DistributionFolds:
    """An estimator with a distribution for every row, on the folds of a cross-validation.

    Gaussian processes with fixed hyper-parameters share a factorisation; anything else is refitted
    on every fold, and a warning says so.
    """

    estimator: Estimator
    X: Matrix
    y: Targets
    groups: ArrayLike | None
    cv: Splitter
    params: Params | None

    @cached_property
    def splits(self) -> list[tuple[Index, Index]]:
        """The training and the test rows of all folds."""
        return list(check_cv(self.cv, self.y).split(self.X, self.y, self.groups))

    @cached_property
    def shared(self) -> Gaussians | None:
        """The held-out distributions of all folds; None, with a warning, if they need refits."""
        try:
            return self._found
        except UnsharedError as error:
            self._say(str(error))
            return None

    def check_shared(self) -> None:
        """Raise why folds need refits, if they do."""
        assert self._found

    @cached_property
    def _found(self) -> Gaussians:
        try:
            process = read_process(self.estimator)
        except (TypeError, ValueError) as error:
            _check_distribution(self.estimator)
            raise UnsharedError(str(error)) from error
        X, y = check_X_y(self.X, self.y, multi_output=True, y_numeric=True)
        is_each = isinstance(self.cv, LeaveOneOut)  # a million folds need no million arrays
        folds = Folds.leave_one_out(len(X)) if is_each else Folds.from_splits(self.splits, len(X))
        if not folds.are_removable:
            raise UnsharedError("a split tests rows of its training set, or repeats some")
        return held_out_gaussians(process, X, np.reshape(y, (len(X), -1)).astype(float), folds)

    def _say(self, reason: str) -> None:
        warn_of_refits(
            [self.estimator],
            f"the estimator is refitted on every fold, as scikit-learn does: {reason}. "
            f"{HOW_TO_FILTER}",
        )

    def refits(self) -> Iterator[tuple[Estimator, Index]]:
        """The estimator fitted to the training rows of each fold, and its test rows."""
        for train, test in self.splits:
            given = check_method_params(self.X, params=self.params or {}, indices=train)
            model = clone(self.estimator)
            alpha = getattr(model, "alpha", None)
            if isinstance(alpha, np.ndarray) and alpha.shape == (len(self.y),):
                model.set_params(alpha=alpha[train])  # rows keep their noise
            model.fit(safe_indexing(self.X, train), safe_indexing(self.y, train), **given)
            yield model, test

    def predictions(self) -> tuple[Array, Array, Index]:
        """Means and standard deviations as ``predict`` returns them, fold by fold, and the rows."""
        found = self.shared
        if found is not None:
            is_one = found.mean.shape[1] == 1
            mean, std = (v[:, 0] if is_one else v for v in (found.mean, found.std))
            return mean, std, found.folds.test_rows
        parts = [
            model.predict(safe_indexing(self.X, test), return_std=True)
            for model, test in self.refits()
        ]
        mean, std = (np.concatenate(both) for both in zip(*parts, strict=True))
        return mean, std, joined([test for _, test in self.splits])


def with_shared_kernel(estimator: Estimator, X: Matrix, y: Targets) -> Estimator:
    """The estimator with the hyper-parameters of its fit on all rows, which folds then share.

    ``estimator`` is a Gaussian process with an optimizer, or a Pipeline that ends in one.
    """
    final = final_step(estimator)
    if original(type(final)) is not original(GaussianProcessRegressor):
        raise ValueError(
            "hyperparameters='of the full fit' is for GaussianProcessRegressor, not "
            f"{type(final).__name__}; leave it out"
        )
    if final.optimizer is None:
        return estimator
    kernel = final_step(clone(estimator).fit(X, y)).kernel_
    warn(
        "hyperparameters='of the full fit': all folds share the hyper-parameters of the fit on all "
        "rows, which has seen the held-out rows; leave it out for a fit of each fold",
        InexactWarning,
    )
    shared = clone(estimator)
    final_step(shared).set_params(kernel=kernel, optimizer=None)
    return shared


def _check_distribution(estimator: Estimator) -> None:
    """Raise if the predictions of an estimator have no standard deviations."""
    model = final_step(estimator)
    known = signature(model.predict).parameters.values()
    if not any(each.name == "return_std" or each.kind is each.VAR_KEYWORD for each in known):
        raise ValueError(
            f"{type(model).__name__} predicts no standard deviations; use a "
            "GaussianProcessRegressor, or FastCrossConformalRegressor for prediction intervals"
        )


def predict_with_std(folds: DistributionFolds) -> tuple[Array, Array]:
    """The held-out means and standard deviations of all rows, in their order."""
    *values, tests = folds.predictions()
    if not np.array_equal(np.sort(tests), np.arange(len(folds.y))):
        raise ValueError(
            "cross_val_predict only works for partitions: the test sets of cv must contain every "
            "row once; use KFold, for example"
        )
    mean, std = (np.empty_like(part) for part in values)
    mean[tests], std[tests] = values
    return mean, std


# -- Scores of distributions -----------------------------------------------------------------------


def log_density(y: Array, mean: Array, std: Array) -> Array:
    """The logarithm of the density of each observation under its normal distribution.

    Examples
    --------
    >>> log_density(np.array([0.0]), np.array([0.0]), np.array([1.0])).round(3)
    array([-0.919])
    """
    return _log_density(y - mean, std)[0]


def crps(y: Array, mean: Array, std: Array) -> Array:
    r"""The continuous ranked probability score of normal distributions, in the unit of y.

    :math:`\int (F(t) - 1[t \ge y])^2\,dt`, the absolute error of a distribution: less is better.

    Examples
    --------
    >>> crps(np.array([0.0, 3.0]), np.zeros(2), np.ones(2)).round(3)
    array([0.234, 2.437])
    """
    return -_neg_crps(y - mean, std)[0]


def quantile_of(y: Array, mean: Array, std: Array) -> Array:
    """The share of each predicted distribution below its observation: uniform if calibrated.

    Examples
    --------
    >>> quantile_of(np.array([0.0, 1.0]), np.zeros(2), np.ones(2)).round(2)
    array([0.5 , 0.84])
    """
    return np.asarray(norm.cdf(y, mean, std))


@dataclass(frozen=True)
class DensityScorer:
    """A scorer of predicted normal distributions; more is better.

    Attributes
    ----------
    metric : callable
        ``metric(y, mean, std)``, a number for each observation.
    sign : float
    """

    metric: Callable[[Array, Array, Array], Array]
    sign: float = 1.0

    def __call__(self, estimator: Estimator, X: Matrix, y: Targets) -> float:
        """The score of a fitted estimator.

        The noise ``alpha`` of a Gaussian process is part of what is predicted of observations.
        """
        mean, std = estimator.predict(X, return_std=True)
        estimator = final_step(estimator)
        noise = getattr(estimator, "alpha", 0.0)
        if hasattr(estimator, "X_train_"):
            if not isinstance(noise, Real):
                raise ValueError(
                    "alpha with a number for each training row says nothing of the noise of new "
                    "rows; use a WhiteKernel, or cross_val_score on the rows themselves"
                )
            std = np.sqrt(std**2 + noise * np.square(np.ravel(estimator._y_train_std)))
        return self._of(np.asarray(y), mean, std)

    def shares_folds(self, estimator: Estimator) -> bool:
        """Whether folds that leave rows out need no refits of an estimator."""
        return is_shared(estimator)

    def distributions(
        self, estimator: Estimator, X: Matrix, y: Targets, splits: Sequence[tuple[Index, Index]]
    ) -> DistributionFolds:
        """What :meth:`of_folds` of any such scorer takes; raises if folds share nothing."""
        folds = DistributionFolds(estimator, X, y, None, splits, None)
        folds.check_shared()
        return folds

    def of_folds(self, folds: DistributionFolds) -> Array:
        """The scores of all folds."""
        found, scores = folds.shared, []
        if found is None:
            for model, test in folds.refits():
                rows, truth = safe_indexing(folds.X, test), safe_indexing(folds.y, test)
                scores.append(self(model, rows, truth))
            return np.array(scores)
        y = np.reshape(folds.y, (len(folds.y), -1))[found.folds.test_rows]
        each = self.metric(y, found.mean, found.spread).mean(axis=1)
        bounds = found.folds.bounds
        return self.sign * np.add.reduceat(each, bounds[:-1]) / np.diff(bounds)

    def _of(self, y: Array, mean: Array, std: Array) -> float:
        return self.sign * float(np.mean(self.metric(y, mean, std)))


@dataclass(frozen=True)
class IntervalCoverage:
    """The share of observations in their central intervals of this level."""

    level: float

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level!r} is not allowed; use a number between 0 and 1")

    def __call__(self, y: Array, mean: Array, std: Array) -> Array:
        """1 for observations inside, 0 for those outside."""
        half = float(norm.ppf(0.5 + 0.5 * self.level))
        return (np.abs(y - mean) <= half * std).astype(np.float64)


log_density_scorer = DensityScorer(log_density)
neg_crps_scorer = DensityScorer(crps, -1.0)


def coverage_scorer(level: float = 0.9) -> DensityScorer:
    """A scorer for the share of observations in their central intervals of a level.

    It is to be near the level, so that it says how well intervals are calibrated, and is no score
    to select by.

    Examples
    --------
    >>> coverage_scorer(0.5).metric(np.array([0.1, 2.0]), np.zeros(2), np.ones(2))
    array([1., 0.])
    """
    return DensityScorer(IntervalCoverage(level))


# -- Scores of held-out distributions, and their gradient in the kernel's parameters ---------------

# A score of residuals and standard deviations, with its derivatives in both; more is better.
DistributionScore = Callable[[Array, Array], tuple[Array, Array, Array]]


def _log_density(e: Array, std: Array) -> tuple[Array, Array, Array]:
    z = e / std
    return np.asarray(norm.logpdf(z)) - np.log(std), -z / std, (z**2 - 1.0) / std


def _neg_squared_error(e: Array, std: Array) -> tuple[Array, Array, Array]:
    return -(e**2), -2.0 * e, np.zeros_like(std)


def _neg_crps(e: Array, std: Array) -> tuple[Array, Array, Array]:
    z = e / std
    above, height = 2.0 * norm.cdf(z) - 1.0, 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi)
    return -std * (z * above + height), -above, -height


SCORES: dict[str, DistributionScore] = {
    "log_density": _log_density,
    "squared": _neg_squared_error,
    "crps": _neg_crps,
}


@dataclass(frozen=True)
class HeldOutScore:
    """The mean score of held-out distributions as a function of the kernel's hyper-parameters.

    **Cost** of the score and all derivatives: one Cholesky factorisation with its inverse, a
    product of n×n matrices, and n² for each hyper-parameter, whose derivative of the kernel
    matrix scikit-learn makes. Memory: five n×n matrices and one for each hyper-parameter.
    **Exact?** Yes: those of refits of every fold with these hyper-parameters.

    Attributes
    ----------
    process : Process
        The kernel and the noise; the hyper-parameters of its kernel are not used.
    X : array of shape (n, d)
    Y : array of shape (n, q)
    folds : Folds
        Removals of rows.
    name : {"log_density", "squared", "crps"}
        What is scored; the latter two are negative, so that more is better.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.linspace(0.0, 3.0, 12)[:, None]
    >>> score = HeldOutScore(Process(RBF(), 1e-3, False), X, np.sin(X), Folds.leave_one_out(12))
    >>> value, gradient = score(np.log([0.1]))
    >>> bool(gradient[0] > 0.0)  # a longer scale is better
    True
    """

    process: Process
    X: Matrix
    Y: Array
    folds: Folds
    name: str = "log_density"

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """The score with these logarithms of the hyper-parameters, and its gradient in them.

        Raises NotPositiveDefiniteError where the kernel matrix is not definite.
        """
        n = len(self.Y)
        check_memory(n, max(n, n * (5 + len(theta)) // 3), "or fewer rows")
        kernel = self.process.kernel.clone_with_theta(theta)
        K, slopes = kernel(self.X, eval_gradient=True)
        value, B = self._slopes_of_matrix(np.array(K, dtype=np.float64))
        return value, np.einsum("ij,ijk->k", B, slopes)

    def _slopes_of_matrix(self, A: Array) -> tuple[float, Array]:
        """The score of a kernel matrix, and its derivative in every entry; overwrites A."""
        n, q = self.Y.shape
        process, folds = self.process, self.folds
        A.flat[:: n + 1] += process.noise(n)
        level = self.Y.mean(axis=0) if process.normalises else np.zeros(q)
        centred = self.Y - level
        columns = np.column_stack([centred, np.ones(n)]) if process.normalises else centred
        quadratic = Quadratic(np.ones(n), columns, intercept=False)
        response = DenseMatrix(A, is_semidefinite=True).respond(quadratic, 0.0)
        reduced, G = response.reduced(), response.residual_matrix()
        shift, unit = training_rules(process, centred, folds)

        value, B = 0.0, np.zeros((n, n))
        left, right = np.zeros((n, q)), np.zeros(n)  # what multiplies (G z)ᵀ and (G 1)ᵀ
        for stack in folds.stacks(np.ones(n, dtype=bool)):
            m = stack.rows.shape[1]
            blocks = G[stack.rows[:, :, None], stack.rows[:, None, :]]
            C = FactoredStack(blocks).solve(np.broadcast_to(np.eye(m), blocks.shape))
            variance = np.einsum("tii->ti", C)
            if not (variance > 0.0).all():  # NaN where a block is not definite
                raise refuse(0.0, 0.0)
            r = reduced[stack.rows]  # t × m × q
            own, scale = shift[stack.folds][:, None, :], unit[stack.folds][:, None, :]
            if process.normalises:
                r = r[:, :, :q] - own * r[:, :, q:]
            e = C @ r
            std = np.sqrt(variance)[:, :, None] * scale
            score, by_e, by_std = self._scored(e, std, stack.slots)
            value += score
            by_variance = (by_std * scale).sum(axis=2) / (2.0 * np.sqrt(variance))
            inner = by_e @ r.transpose(0, 2, 1)
            inner[:, np.arange(m), np.arange(m)] += by_variance
            # U = G_:S C_S and U (f rᵀ + diag g) of all folds of this size, side by side.
            U = G[:, stack.rows].transpose(1, 0, 2) @ C
            B += _side_by_side(U @ inner) @ _side_by_side(U).T
            pulled = U @ by_e
            left += pulled.sum(axis=0)
            right += (pulled * own).sum(axis=(0, 2))
        B -= left @ reduced[:, :q].T
        if process.normalises:
            B += np.outer(right, reduced[:, q])
        return value, B

    def _scored(self, e: Array, std: Array, slots: Index) -> tuple[float, Array, Array]:
        """The share of some folds in the score, with its derivatives: (t, m, q) each."""
        share = self.folds.shares[slots][:, :, None] / e.shape[2]
        score, by_e, by_std = SCORES[self.name](e, std)
        return float((share * score).sum()), share * by_e, share * by_std


def _side_by_side(each: Array) -> Array:
    """Matrices (t, n, m) as one of n rows."""
    return each.transpose(1, 0, 2).reshape(each.shape[1], -1)
