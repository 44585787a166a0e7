"""Bounds on the effect of a Nyström approximation: from a measured norm, and in advance.

Both are proven in the 2012 paper. Most are too loose to guarantee anything in practice.
"""

from __future__ import annotations

import math

import numpy as np

from everyfold._typing import Array


def model_error_bound(
    residual_norm: float, n: int, ridge: float, *, kappa: float = 1.0, offset: float = 0.0
) -> float:
    r"""Bound on the change of an LS-SVM's decision values if K̃ replaces K (2012 paper).

    .. math:: |f'(x) - f(x)| \le \frac{\kappa(1 + \zeta)}{n\mu_0^2}\|\tilde K - K\|_2,
              \qquad \mu_0 = \mu / n

    for labels ±1 and both models with the same offset ζ.

    Parameters
    ----------
    residual_norm : float
        The measured ‖K̃ − K‖₂, or the residual trace as an upper bound of it.
    n : int
    ridge : float
        μ, the ridge of (K + μ I).
    kappa : float, default=1
        An upper bound of k(x, x).
    offset : float, default=0
        :math:`|\zeta|`.

    Examples
    --------
    >>> model_error_bound(1e-3, n=100, ridge=10.0)
    0.001
    """
    return kappa * (1.0 + abs(offset)) * n * residual_norm / ridge**2


def expected_residual(
    diagonal: Array, tail: float, count: int, *, rank: int, confidence: float = 0.9
) -> float:
    r"""The a-priori bound on ‖K̃ − K‖₂ for uniform sampling (2012 paper, Theorem 2).

    .. math:: \|K - K_k\|_F + \epsilon\Bigl[\tfrac{n}{c}\sum_{i \in D(c)} K_{ii}
              \bigl(\sqrt{n {\textstyle\sum K_{ii}^2}} + \eta \max n K_{ii}\bigr)\Bigr]^{1/2}

    with :math:`\epsilon = (64 k / c)^{1/4}`, the smallest that the theorem allows.

    Parameters
    ----------
    diagonal : array of shape (n,)
    tail : float
        ‖K − K_k‖_F, the norm of the eigenvalues beyond the k-th.
    count, rank : int
        c and k.
    confidence : float, default=0.9
        1 − δ.
    """
    n, epsilon = len(diagonal), (64.0 * rank / count) ** 0.25
    rest = n - count
    g = count * rest / (n - 0.5) / (1.0 - 1.0 / (2.0 * max(count, rest)))
    eta = math.sqrt(max(math.log(2.0 / (1.0 - confidence)) * g, 0.0) / count)
    largest = float(np.sort(diagonal)[-count:].sum())
    spread = math.sqrt(n * float(diagonal @ diagonal)) + eta * n * float(diagonal.max())
    return float(tail + epsilon * math.sqrt(n / count * largest * spread))
