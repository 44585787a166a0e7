"""Criteria without folds: one number from one fit on all rows.

Users pass them as ``criterion=``, by a name or as an instance. None of them is leave-one-out in
general, and each docstring says which definition is taken.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from everyfold._extensions import CRITERIA
from everyfold._typing import Array, Index, Route
from everyfold.crossval.base import Closed
from everyfold.crossval.svm import Libsvm
from everyfold.losses import EpsilonInsensitive, Hinge, HuberHinge, Loss, SquaredHinge
from everyfold.operators.base import SupportsResponse
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.response import Quadratic
from everyfold.solvers import Problem, solve_path

# -- Fits on all rows, of losses that are smooth and of those with a kink -------------------------


# What rows at a kink give way, as a share of the kernel's diagonal: enough for a system to be well
# posed, and too little to be seen.
PINNED = 1e-8

# libsvm's usual tolerance, of the fits of losses with a kink.
TOLERANCE = 1e-3

_HINT = "HuberHinge or SmoothEpsilon with a small h"


@dataclass(frozen=True)
class CriterionFit:
    """The fit of one ridge.

    Attributes
    ----------
    rho : float
    u : array of shape (n, q)
        Fitted values.
    a : array of shape (n, q)
        Dual coefficients, whatever the operator's own coordinates are.
    s : array of shape (n, q)
        How stiffly each row holds its value: the square root of half its curvature. Rows at a kink
        (libsvm's free support vectors) are pinned, rows on straight pieces have 0.
    is_converged : bool
    """

    rho: float
    u: Array
    a: Array
    s: Array
    is_converged: bool


def fit_all(
    problem: Problem,
    operator: SupportsResponse,
    ridges: Sequence[float],
    tolerance: float = TOLERANCE,
) -> Iterator[CriterionFit]:
    """The fits of all ridges, in the order given.

    Smooth losses by Newton's method. The hinge and the ε-insensitive loss by libsvm itself, to this
    tolerance: at a kink the slope of the loss says nothing of the force, libsvm's dual
    coefficients do.
    """
    if problem.loss.is_smooth:
        for fit in solve_path(problem, operator, ridges):
            u = operator.evaluate(fit.solution.coef) + fit.solution.intercept
            g, d = problem.loss.slope(problem.y, u), problem.loss.curvature(problem.y, u)
            w = problem.w[:, None]
            yield CriterionFit(
                fit.rho, u, -w * g / (2.0 * fit.rho), np.sqrt(0.5 * w * d), fit.is_converged
            )
        return
    K = operator.K if isinstance(operator, DenseMatrix) else operator.matmat(np.eye(problem.n))
    _check_libsvm(problem)
    for ridge in ridges:
        yield _by_libsvm(problem, K, ridge, tolerance)


def _by_libsvm(problem: Problem, K: Array, ridge: float, tolerance: float) -> CriterionFit:
    """One fit of libsvm's for every target."""
    rho, w = problem.rho(ridge, problem.n_counted), problem.w
    rows = np.flatnonzero(w)
    inside = K[np.ix_(rows, rows)]
    u, a = np.empty_like(problem.y), np.zeros_like(problem.y)
    is_converged = True
    for k in range(problem.y.shape[1]):
        column = replace(problem, y=problem.y[:, [k]])
        fit = Libsvm(tolerance).fit(column, rows, inside, 1.0 / (2.0 * ridge))
        a[rows, k] = fit.coef
        u[:, k] = K @ a[:, k] + fit.intercept
        is_converged &= fit.is_converged
    is_free = (a != 0.0) & (np.abs(a) < w[:, None] / (2.0 * rho) * (1.0 - 1e-12))
    pin = np.sqrt(rho / (PINNED * float(np.abs(K.diagonal()).max())))
    return CriterionFit(rho, u, a, np.where(is_free, pin, 0.0), is_converged)


def check_labels(problem: Problem, name: object) -> None:
    """Raise unless the targets of rows that count are labels."""
    if not np.isin(problem.y[problem.w > 0.0], (-1.0, 1.0)).all():
        raise ValueError(f"{name} is for classification: y must be -1 and +1")


def _check_libsvm(problem: Problem) -> None:
    loss = problem.loss
    if not problem.intercept:
        raise ValueError(
            f"intercept=False is not available with {loss}: libsvm's SVMs have an intercept; "
            f"use intercept=True, or a smooth loss such as {_HINT}"
        )
    if not isinstance(loss, Hinge | EpsilonInsensitive):
        raise ValueError(f"loss={loss} has a kink and no solver here; use {_HINT}")
    if loss.is_margin:
        check_labels(problem, loss)


@dataclass(frozen=True)
class GCV(Closed):
    r"""Generalised cross-validation: :math:`n\,\|\rho G y\|^2 / \mathrm{tr}(\rho G)^2`.

    This is leave-one-out with every leverage replaced by their mean (Golub, Heath & Wahba 1979);
    with an intercept or weights the residual maker R replaces G. It is *not* leave-one-out.

    **Cost** one factorisation for all ridges, and 2 n² flops per ridge. **Exact?** As defined.
    """

    route: Route = "eigen"

    def reason_against(self, loss: Loss) -> str:
        """See base class."""
        if loss.has_constant_curvature:
            return ""
        return "it needs the closed form of squared loss (KernelRidge, LSSVR, LSSVC, Ridge)"

    def tuned(self, route: Route, tolerance: float) -> Self:
        """See base class."""
        return replace(self, route=route)

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        active = problem.quadratic.active
        rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
        for response in operator.respond_path(problem.quadratic, rhos, self.route):
            trace = response.residual_trace(active)
            value: Array = problem.n_active * response.reduced_norm() / trace**2
            yield value


@dataclass(frozen=True)
class FromFit(Closed):
    """A criterion that is a function of the fit on all rows; ``tolerance`` is libsvm's."""

    tolerance: float = field(default=TOLERANCE, kw_only=True)

    def tuned(self, route: Route, tolerance: float) -> Self:
        """See base class."""
        return replace(self, tolerance=tolerance)

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        for fit in fit_all(problem, operator, ridges, self.tolerance):
            value = self._value(problem, operator, fit)
            yield value if fit.is_converged else np.full_like(value, np.inf)

    @abstractmethod
    def _value(self, problem: Problem, operator: SupportsResponse, fit: CriterionFit) -> Array:
        """The criterion of each target, given the fit."""


def _mean(problem: Problem, rows: Array) -> Array:
    average: Array = problem.w @ rows / problem.w.sum()
    return average


class _OfHinge(FromFit):
    """A criterion of SVMs, with a sharp hinge or a rounded one."""

    def reason_against(self, loss: Loss) -> str:
        """See base class."""
        if isinstance(loss, Hinge | HuberHinge):
            return ""
        if loss.has_constant_curvature:
            return (
                "it is for the hinge loss (SVC, HuberSVC); with squared loss leave-one-out itself "
                "costs no more: use cv=LeaveOneOut(), or criterion='gcv'"
            )
        return "it is for the hinge loss; use SVC or HuberSVC, or another criterion"


@dataclass(frozen=True)
class GACV(_OfHinge):
    r"""Generalised approximate cross-validation of a support vector machine (Wahba et al. 1999).

    .. math:: \tfrac1n\Bigl[\sum\max(0, 1-m_i) + 2\!\sum_{m_i<-1}\!|a_i|K_{ii}
              + \!\sum_{-1\le m_i\le 1}\!|a_i|K_{ii}\Bigr]

    It approximates an upper bound of the leave-one-out hinge loss. Rows beyond the margin have a =
    0 and contribute nothing; with a smoothed hinge, support vectors just beyond the kink are
    treated like those at the kink. The hinge itself is fitted by libsvm. **Cost** that of the fits.
    """

    def _value(self, problem: Problem, operator: SupportsResponse, fit: CriterionFit) -> Array:
        check_labels(problem, "GACV")
        m = problem.y * fit.u
        push = np.abs(fit.a) * operator.diagonal()[:, None]
        # Only rows with a force push. For the hinge those are m <= 1; rounding its kink moves some
        # of them just beyond 1, which must not make them free.
        penalty = np.where(m < -1.0, 2.0 * push, push)
        return _mean(problem, np.maximum(0.0, 1.0 - m) + penalty)


@dataclass(frozen=True)
class SpanRule(_OfHinge):
    r"""The span estimate of the leave-one-out error (Chapelle & Vapnik 2000).

    This is the limit h → 0 of the hold-out formula for single rows: :math:`\hat u_i = u_i - a_i
    S_i^2` with the span :math:`S_i^2 = 1/(\tilde K^{-1})_{ii}` of the other support vectors. It
    counts the rows with :math:`y_i \hat u_i \le 0`. Use it with the hinge itself, or with a small
    h, where the rows in the smoothed part of the hinge take the role of the free support vectors.
    It assumes, without a check, that the set of support vectors does not change when a row is left
    out.
    """

    stiffness: float = 1e4

    def _value(self, problem: Problem, operator: SupportsResponse, fit: CriterionFit) -> Array:
        check_labels(problem, "SpanRule")
        stiffness = self.stiffness if problem.loss.is_smooth else 1.0
        spans = [
            _span(problem, operator, fit.rho, stiffness * fit.s[:, k])
            for k in range(problem.y.shape[1])
        ]
        held = problem.y * (fit.u - np.column_stack(spans) * fit.a)
        return _mean(problem, np.where(held < 0.0, 1.0, np.where(held == 0.0, 0.5, 0.0)))


def _span(problem: Problem, operator: SupportsResponse, rho: float, s: Array) -> Array:
    """Squared distances of all rows from the span of those that hold their values."""
    response = operator.respond(Quadratic(s, np.zeros((len(s), 1)), problem.intercept), rho)
    span: Array = 2.0 * rho * response.diagonal()
    curved = s > 0.0
    inverse = response.scale * response.residual_diagonal()[curved]
    span[curved] = rho / (s[curved] ** 2 * inverse)
    return span


class _OfSpectrum(FromFit):
    """Training error plus ``eta`` times what the eigenvalues of the kernel say."""

    needs_eigenvalues = True
    eta: float

    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class; eigenvalues are computed once for all ridges."""
        rows = np.flatnonzero(problem.w)
        penalty = self.eta * self._penalty(operator, rows) if self.eta else 0.0
        for value in super().evaluate(problem, operator, ridges):
            yield value + penalty

    def _value(self, problem: Problem, operator: SupportsResponse, fit: CriterionFit) -> Array:
        return _mean(problem, problem.loss.value(problem.y, fit.u))

    @abstractmethod
    def _penalty(self, operator: SupportsResponse, rows: Index) -> float:
        """What the kernel of some rows costs."""


def _spectrum(operator: SupportsResponse, rows: Index) -> Array:
    """The eigenvalues of the kernel of some rows, the largest first."""
    part = operator if len(rows) == operator.n else operator.restrict(rows)
    return part.eigenvalues()[::-1]


@dataclass(frozen=True)
class EigenvalueRatio(_OfSpectrum):
    r"""Training error plus ``eta`` times the ratio of trailing to leading kernel eigenvalues.

    After the "eigenvalues ratio" (ER) of Liu & Liao (2015). The definition is this library's own,
    because the paper does not say how many eigenvalues are leading: the mean loss of the fit, plus
    :math:`\eta\,\sum_{j>k}\lambda_j / \sum_{j\le k}\lambda_j` with :math:`k` leading eigenvalues,
    ``leading`` as a share of the rows (with positive weight).

    **Cost** that of the fits, and 4/3 n³ flops per kernel. **Exact?** As defined.
    """

    eta: float = 1.0
    leading: float = 0.1

    def _penalty(self, operator: SupportsResponse, rows: Index) -> float:
        values = np.maximum(_spectrum(operator, rows), 0.0)
        k = max(1, round(self.leading * len(values)))
        head, tail = float(values[:k].sum()), float(values[k:].sum())
        return tail / head if head > 0.0 else np.inf


@dataclass(frozen=True)
class EigenvaluePerturbation(_OfSpectrum):
    r"""Training error plus ``eta`` times the difference of eigenvalues between half samples.

    After the "eigenvalues perturbation" (EP) of Liu, Jiang & Liao (2013), who compare the
    eigenvalues of K/n with those of the integral operator. As that operator is not known, the
    definition is this library's own: the Euclidean distance between the leading eigenvalues of K/n
    on the even rows and on the odd rows (of those with positive weight), which are two estimates of
    the same operator.

    **Cost** that of the fits, and 1/3 n³ flops per kernel. **Exact?** As defined.
    """

    eta: float = 1.0

    def _penalty(self, operator: SupportsResponse, rows: Index) -> float:
        halves = [rows[start::2] for start in (0, 1)]
        spectra = [_spectrum(operator, half) / len(half) for half in halves]
        size = min(len(spectrum) for spectrum in spectra)
        return float(np.linalg.norm(spectra[0][:size] - spectra[1][:size]))


# -- The radius-margin bound: the smallest sphere around the rows, and the norm of the model ------


# How far a radius may be from the smallest one, relative to it.
_GAP = 1e-9

# Steps after which the search for the sphere ends anyway; each takes 3 n flops.
_STEPS = 1_000_000


@dataclass(frozen=True)
class RadiusMargin(FromFit):
    r"""The radius-margin bound on the leave-one-out error (Vapnik 1998; Chapelle et al. 2002).

    .. math:: \frac1n R^2 \|\hat w\|^2, \qquad \hat K = K + \rho W^{-1}

    Here R is the radius of the smallest sphere around the rows in the space of :math:`\hat K`, in
    which a model with squared slack variables has a hard margin, and :math:`\|\hat w\|^2 =
    a^\top\hat K a`. This is a criterion of Algorithm 2 of Ding & Liao (2012) for LS-SVMs; with
    ``operator=Nystrom(0.1, 0.5, sampling="uniform")`` both factors are those of the low-rank
    kernel. (Their span criterion is leave-one-out itself for squared loss, because every row is a
    support vector. PRESS is ``cv=LeaveOneOut()``.)

    **Cost** that of the fits, 8 n² bytes, and for the sphere of every ridge some steps of 3 n flops
    each. **Exact?** As defined; R² to a relative 1e-9.
    """

    def reason_against(self, loss: Loss) -> str:
        """See base class."""
        if loss.has_constant_curvature or isinstance(loss, SquaredHinge):
            return ""
        return "its slack must be squared; use LSSVC or KernelClassifier(loss='squared_hinge')"

    def _value(self, problem: Problem, operator: SupportsResponse, fit: CriterionFit) -> Array:
        rows = np.flatnonzero(problem.w)
        check_labels(problem, "RadiusMargin")
        slack = fit.rho / problem.w[rows]
        K = operator.restrict(rows).matmat(np.eye(len(rows)))
        a, u = fit.a[rows], fit.u[rows]
        # Forces of an intercept balance, so that aᵀ K a = aᵀ u.
        norm = np.einsum("ij,ij->j", a, u) + slack @ a**2
        value: Array = squared_radius(K + np.diag(slack)) * norm / len(rows)
        return value


def squared_radius(K: Array) -> float:
    r"""R² of the smallest sphere around points with these inner products.

    :math:`\max_\beta \sum\beta_i K_{ii} - \beta^\top K\beta` over weights :math:`\beta \ge 0` that
    add up to 1, by steps that move weight between the two rows which violate the conditions most.

    Examples
    --------
    >>> round(squared_radius(np.eye(4)), 9)  # corners of a simplex: 1 − 1/4
    0.75
    """
    diagonal = K.diagonal()
    beta = np.full(len(K), 1.0 / len(K))
    K_beta = K @ beta
    for _ in range(_STEPS):
        slope = diagonal - 2.0 * K_beta
        radius = float(beta @ (diagonal - K_beta))
        up = int(np.argmax(slope))
        down = int(np.argmin(np.where(beta > 0.0, slope, np.inf)))
        gap = float(slope[up] - slope[down])
        bend = float(K[up, up] + K[down, down] - 2.0 * K[up, down])
        if gap <= _GAP * max(radius, float(diagonal.max()) * _GAP) or bend <= 0.0:
            break
        step = min(float(beta[down]), gap / (2.0 * bend))
        beta[up] += step
        beta[down] = 0.0 if step == beta[down] else beta[down] - step
        K_beta += step * (K[:, up] - K[:, down])
    return float(beta @ (diagonal - K @ beta))


CRITERIA.update(
    gcv=GCV(),
    gacv=GACV(),
    span=SpanRule(),
    radius_margin=RadiusMargin(),
    eigenvalue_ratio=EigenvalueRatio(),
    eigenvalue_perturbation=EigenvaluePerturbation(),
)
