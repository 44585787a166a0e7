"""How many folds, and how many terms of the influence series, a tolerance asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Granularity:
    """A number of folds and an order of the series, with the bound they give."""

    folds: int
    order: int
    bound: float


def choose_granularity(
    tolerance: float, *, ridge: float, smoothing: float, kappa: float = 1.0
) -> Granularity:
    r"""The coarsest cross-validation whose series is within a tolerance of the real one.

    For the Huberised hinge of width ``smoothing`` and ridge λ ("mean" convention),

    .. math:: |t\text{-CV} - \text{series}| \le \frac{\delta}{2} + \frac{\kappa}{\lambda(r+1)(t-1)},

    which is met with :math:`t - 1 = r + 1 = \lceil\sqrt{\kappa/(\lambda(\varepsilon -
    \delta/2))}\rceil` (Liu, Liao et al. 2016).

    Parameters
    ----------
    tolerance : float
        ε, the difference allowed; more than half the smoothing.
    ridge : float
        λ > 0.
    smoothing : float
        δ, the width h of the Huberised hinge, > 0.
    kappa : float, default=1
        The largest diagonal entry of the kernel; 1 for the rbf kernel.

    Returns
    -------
    Granularity
        The bound is that of the paper. For a small ridge it exceeds 1, or asks for more folds
        than there are rows: it is a rule for choosing, not a certificate.

    Examples
    --------
    >>> choose_granularity(0.1, ridge=1.0, smoothing=0.01)
    Granularity(folds=5, order=3, bound=0.0675)
    """
    given = {"tolerance": tolerance, "ridge": ridge, "smoothing": smoothing, "kappa": kappa}
    for name, value in given.items():
        if not (0.0 < value < math.inf):
            raise ValueError(f"{name}={value!r} is not allowed: it must be a finite number > 0")
    if tolerance <= smoothing / 2.0:
        raise ValueError(
            f"tolerance={tolerance!r} cannot be reached: the smoothing alone costs "
            f"{smoothing / 2.0:g}; use a tolerance above that or a smaller smoothing"
        )
    steps = math.ceil(math.sqrt(kappa / (ridge * (tolerance - smoothing / 2.0))))
    folds, order = max(steps, 1) + 1, max(steps - 1, 1)
    bound = smoothing / 2.0 + kappa / (ridge * (order + 1) * (folds - 1))
    return Granularity(folds, order, bound)
