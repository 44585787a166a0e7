"""Criteria in closed form: one number from one fit, no folds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from everyfold.criteria.base import Closed
from everyfold.operators.base import Array, KernelOperator, Route
from everyfold.solve import Fit, NewtonModel, Problem, solve_path


@dataclass(frozen=True)
class GCV(Closed):
    r"""Generalised cross-validation: :math:`n\,\|\rho G y\|^2 / \mathrm{tr}(\rho G)^2`.

    Leave-one-out with every leverage replaced by their mean (Golub, Heath & Wahba 1979); with an
    intercept or weights the residual maker R takes the place of G. It is *not* leave-one-out.

    **Cost** one factorisation for all ridges, 2 n² flops a ridge. **Exact?** As defined.
    """

    route: Route = "eigen"

    def evaluate(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        active = problem.quadratic.active
        rhos = [problem.rho(ridge, problem.n_counted) for ridge in ridges]
        for response in operator.respond_path(problem.quadratic, rhos, self.route):
            trace = response.residual_trace(active)
            value: Array = problem.n_active * response.reduced_norm() / trace**2
            yield value


class _FromFit(Closed):
    """A criterion that is a function of the fit on all rows."""

    def evaluate(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        for fit in solve_path(problem, operator, ridges):
            u = operator.evaluate(fit.solution.coef) + fit.solution.intercept
            value = self._value(problem, operator, fit, u)
            yield value if fit.is_converged else np.full_like(value, np.inf)

    @abstractmethod
    def _value(self, problem: Problem, operator: KernelOperator, fit: Fit, u: Array) -> Array:
        """The criterion of each target, given fitted values u (n, q)."""


def _margins(problem: Problem, u: Array, name: str) -> Array:
    if not np.isin(problem.y, (-1.0, 1.0)).all():
        raise ValueError(f"{name} is for classification: y must be -1 and +1")
    margins: Array = problem.y * u
    return margins


def _dual(problem: Problem, fit: Fit, u: Array) -> Array:
    """Dual coefficients a = -w g / 2 rho, whatever the operator's own coordinates are."""
    g = problem.w[:, None] * problem.loss.slope(problem.y, u)
    a: Array = -g / (2.0 * fit.rho)
    return a


def _mean(problem: Problem, rows: Array) -> Array:
    average: Array = problem.w @ rows / problem.w.sum()
    return average


@dataclass(frozen=True)
class GACV(_FromFit):
    r"""Generalised approximate cross-validation of a support vector machine (Wahba et al. 1999).

    .. math:: \tfrac1n\Bigl[\sum\max(0, 1-m_i) + 2\!\sum_{m_i<-1}\!|a_i|K_{ii}
              + \!\sum_{-1\le m_i\le 1}\!|a_i|K_{ii}\Bigr]

    An upper bound in spirit of the leave-one-out hinge loss. Rows beyond the margin have a = 0 and
    cost nothing; with a rounded kink, support vectors just beyond it count with those at it.
    **Cost** that of the fits.
    """

    def _value(self, problem: Problem, operator: KernelOperator, fit: Fit, u: Array) -> Array:
        m = _margins(problem, u, "GACV")
        push = np.abs(_dual(problem, fit, u)) * operator.diagonal()[:, None]
        # Only rows with a force push. For the hinge those are m <= 1; rounding its kink moves some
        # of them just beyond 1, which must not make them free.
        penalty = np.where(m < -1.0, 2.0 * push, push)
        return _mean(problem, np.maximum(0.0, 1.0 - m) + penalty)


@dataclass(frozen=True)
class SpanRule(_FromFit):
    r"""The span estimate of the leave-one-out error (Chapelle & Vapnik 2000).

    The limit h → 0 of the hold-out formula for single rows: rows in the bend of the Huberised
    hinge are interpolated rather than attracted, :math:`\hat u_i = u_i - a_i S_i^2` with
    :math:`S_i^2 = 1/(\tilde K^{-1})_{ii}`, the span of the other support vectors. It counts the
    rows with :math:`y_i \hat u_i \le 0`. Use it with a small h; it assumes, and does not check,
    that no row changes sides.
    """

    stiffness: float = 1e4

    def _value(self, problem: Problem, operator: KernelOperator, fit: Fit, u: Array) -> Array:
        _margins(problem, u, "SpanRule")
        errors = []
        for k in range(problem.y.shape[1]):
            newton = NewtonModel.at(problem, k, operator, u[:, k], fit.rho)
            stiff = replace(newton.quadratic, s=self.stiffness * newton.quadratic.s)
            response = operator.respond(stiff, fit.rho)
            span = 2.0 * fit.rho * response.diagonal()
            curved = stiff.s > 0.0
            inverse = response.scale * response.residual_diagonal()[curved]
            span[curved] = fit.rho / (stiff.s[curved] ** 2 * inverse)
            held = u[:, k] + span * newton.g / (2.0 * fit.rho)
            y = problem.y[:, k]
            errors.append(np.where(y * held < 0.0, 1.0, np.where(y * held == 0.0, 0.5, 0.0)))
        return _mean(problem, np.column_stack(errors))


@dataclass(frozen=True)
class EigenvalueRatio(_FromFit):
    r"""Training error plus ``eta`` times the ratio of trailing to leading kernel eigenvalues.

    After Liu & Liao (2015). Taken as definition: the mean loss of the fit, plus
    :math:`\eta\,\sum_{j>k}\lambda_j / \sum_{j\le k}\lambda_j` with :math:`k` leading eigenvalues,
    ``leading`` as a share of the rows.
    """

    eta: float = 1.0
    leading: float = 0.1

    def _value(self, problem: Problem, operator: KernelOperator, fit: Fit, u: Array) -> Array:
        values = np.maximum(operator.eigenvalues()[::-1], 0.0)
        k = max(1, round(self.leading * len(values)))
        head, tail = float(values[:k].sum()), float(values[k:].sum())
        ratio = tail / head if head > 0.0 else np.inf
        return _mean(problem, problem.loss.value(problem.y, u)) + self.eta * ratio


@dataclass(frozen=True)
class EigenvaluePerturbation(_FromFit):
    r"""Training error plus ``eta`` times how far eigenvalues move between half samples.

    After Liu, Jiang & Liao (2013), who compare the eigenvalues of K/n with those of the integral
    operator. The operator is not known; taken as definition here: the Euclidean distance between
    the leading eigenvalues of K/n on the even rows and on the odd rows, the two estimates of the
    same operator that a sample offers.
    """

    eta: float = 1.0

    def _value(self, problem: Problem, operator: KernelOperator, fit: Fit, u: Array) -> Array:
        halves = [np.arange(problem.n)[start::2] for start in (0, 1)]
        spectra = [operator.restrict(half).eigenvalues()[::-1] / len(half) for half in halves]
        size = min(len(spectrum) for spectrum in spectra)
        moved = float(np.linalg.norm(spectra[0][:size] - spectra[1][:size]))
        return _mean(problem, problem.loss.value(problem.y, u)) + self.eta * moved
