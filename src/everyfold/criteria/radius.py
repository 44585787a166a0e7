"""The radius-margin bound: the smallest sphere around the rows, and the norm of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everyfold.criteria.closed import FromFit
from everyfold.criteria.machines import Machine, check_labels
from everyfold.losses import Loss, SquaredHinge
from everyfold.operators.base import Responds
from everyfold.solve import Problem
from everyfold.types import Array

_GAP = 1e-9
"""How far a radius may be from the smallest one, relative to it."""

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

    def _value(self, problem: Problem, operator: Responds, machine: Machine) -> Array:
        rows = np.flatnonzero(problem.w)
        check_labels(problem, "RadiusMargin")
        slack = machine.rho / problem.w[rows]
        K = operator.restrict(rows).matmat(np.eye(len(rows)))
        a, u = machine.a[rows], machine.u[rows]
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
