"""Criteria without folds: one number from one fit on all rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from everyfold.criteria.base import Closed
from everyfold.criteria.machines import TOLERANCE, Machine, check_labels, fit_all
from everyfold.losses import Hinge, HuberHinge, Loss
from everyfold.operators.base import Quadratic, Responds
from everyfold.solve import Problem
from everyfold.types import Array, Index, Route


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
        self, problem: Problem, operator: Responds, ridges: Sequence[float]
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
        self, problem: Problem, operator: Responds, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        for machine in fit_all(problem, operator, ridges, self.tolerance):
            value = self._value(problem, operator, machine)
            yield value if machine.is_converged else np.full_like(value, np.inf)

    @abstractmethod
    def _value(self, problem: Problem, operator: Responds, machine: Machine) -> Array:
        """The criterion of each target, given the fit."""


def _mean(problem: Problem, rows: Array) -> Array:
    average: Array = problem.w @ rows / problem.w.sum()
    return average


class _OfHinge(FromFit):
    """A criterion of support vector machines, with a sharp hinge or a rounded one."""

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

    def _value(self, problem: Problem, operator: Responds, machine: Machine) -> Array:
        check_labels(problem, "GACV")
        m = problem.y * machine.u
        push = np.abs(machine.a) * operator.diagonal()[:, None]
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

    def _value(self, problem: Problem, operator: Responds, machine: Machine) -> Array:
        check_labels(problem, "SpanRule")
        stiffness = self.stiffness if problem.loss.is_smooth else 1.0
        spans = [
            _span(problem, operator, machine.rho, stiffness * machine.s[:, k])
            for k in range(problem.y.shape[1])
        ]
        held = problem.y * (machine.u - np.column_stack(spans) * machine.a)
        return _mean(problem, np.where(held < 0.0, 1.0, np.where(held == 0.0, 0.5, 0.0)))


def _span(problem: Problem, operator: Responds, rho: float, s: Array) -> Array:
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
        self, problem: Problem, operator: Responds, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class; eigenvalues are computed once for all ridges."""
        rows = np.flatnonzero(problem.w)
        penalty = self.eta * self._penalty(operator, rows) if self.eta else 0.0
        for value in super().evaluate(problem, operator, ridges):
            yield value + penalty

    def _value(self, problem: Problem, operator: Responds, machine: Machine) -> Array:
        return _mean(problem, problem.loss.value(problem.y, machine.u))

    @abstractmethod
    def _penalty(self, operator: Responds, rows: Index) -> float:
        """What the kernel of some rows costs."""


def _spectrum(operator: Responds, rows: Index) -> Array:
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

    def _penalty(self, operator: Responds, rows: Index) -> float:
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

    def _penalty(self, operator: Responds, rows: Index) -> float:
        halves = [rows[start::2] for start in (0, 1)]
        spectra = [_spectrum(operator, half) / len(half) for half in halves]
        size = min(len(spectrum) for spectrum in spectra)
        return float(np.linalg.norm(spectra[0][:size] - spectra[1][:size]))
