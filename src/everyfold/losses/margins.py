"""Losses of the margin m = y·u, for labels −1 and +1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from everyfold.losses.base import Loss, check_width, margin, ramp, ramp_slope
from everyfold.types import Array


@dataclass(frozen=True)
class HuberHinge(Loss):
    r"""The hinge loss with its corner smoothed over a width h.

    With m = y·u,

    .. math::

        V = \begin{cases} 0 & m > 1 + h \\ (1 + h - m)^2 / 4h & |1 - m| \le h \\
        1 - m & m < 1 - h \end{cases}
        \qquad V'' = [|1 - m| \le h] / 2h.

    It exceeds the hinge by at most h/4, which it reaches at m = 1.

    Parameters
    ----------
    h : float, default=0.05
        Half the width of the zone around m = 1 in which the loss is quadratic.

    Examples
    --------
    >>> from everyfold.losses import HuberHinge
    >>> loss = HuberHinge(h=0.5)
    >>> loss.value(1.0, [-1.0, 1.0, 2.0]).tolist()
    [2.0, 0.125, 0.0]
    >>> loss.curvature(1.0, [-1.0, 1.0, 2.0]).tolist()
    [0.0, 1.0, 0.0]
    """

    h: float = 0.05

    name: ClassVar[str] = "huber_hinge"
    is_margin: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_width(self.h)

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """φ(1 − m), the hinge with a rounded corner."""
        return ramp(1.0 - margin(y, u), self.h)

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """−y times 0, (1 + h − m)/2h or 1."""
        return np.multiply(np.negative(y), ramp_slope(1.0 - margin(y, u), self.h))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """1/2h where |1 − m| ≤ h, else 0."""
        return np.divide(np.abs(1.0 - margin(y, u)) <= self.h, 2.0 * self.h)


@dataclass(frozen=True)
class SquaredHinge(Loss):
    r"""The squared hinge loss of the L2-SVM.

    With m = y·u and e = max(0, 1 − m),

    .. math:: V = e^2, \qquad V' = -2 y\,e, \qquad V'' = 2\,[m < 1].

    Examples
    --------
    >>> from everyfold.losses import SquaredHinge
    >>> SquaredHinge().value(-1.0, [-2.0, 0.0, 1.0]).tolist()
    [0.0, 1.0, 4.0]
    """

    name: ClassVar[str] = "squared_hinge"
    is_margin: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = True

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """max(0, 1 − m)²."""
        return np.square(np.maximum(1.0 - margin(y, u), 0.0))

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """−2y max(0, 1 − m)."""
        return np.multiply(y, -2.0 * np.maximum(1.0 - margin(y, u), 0.0))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """2 where m < 1, else 0."""
        return np.multiply(2.0, margin(y, u) < 1.0)


@dataclass(frozen=True)
class Logistic(Loss):
    r"""The logistic loss, minus the log-likelihood of a ±1 label with log-odds u.

    With m = y·u and σ(m) = 1/(1 + exp(−m)),

    .. math:: V = \log(1 + e^{-m}), \qquad V' = -y\,\sigma(-m), \qquad V'' = \sigma(m)\sigma(-m).

    Neither a large margin nor a large negative one overflows.

    Examples
    --------
    >>> from everyfold.losses import Logistic
    >>> Logistic().value(1.0, [-1e4, 0.0, 1e4]).round(4).tolist()
    [10000.0, 0.6931, 0.0]
    >>> Logistic().curvature(1.0, 0.0).tolist()
    0.25
    """

    name: ClassVar[str] = "logistic"
    is_margin: ClassVar[bool] = True
    has_log_odds: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = False

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """log(1 + exp(−m))."""
        return np.logaddexp(0.0, -margin(y, u))

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """−y σ(−m)."""
        return np.multiply(np.negative(y), expit(-margin(y, u)))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """σ(m) σ(−m)."""
        m = margin(y, u)
        return np.multiply(expit(m), expit(-m))


@dataclass(frozen=True)
class Hinge(Loss):
    r"""The hinge loss of :class:`sklearn.svm.SVC`: :math:`V = \max(0, 1 - m)`, not smooth at m = 1.

    Examples
    --------
    >>> from everyfold.losses import Hinge
    >>> Hinge().value([1.0, -1.0], [0.5, 3.0]).tolist()
    [0.5, 4.0]
    """

    name: ClassVar[str] = "hinge"
    is_margin: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = False

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        return np.maximum(1.0 - margin(y, u), 0.0)

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        return np.where(margin(y, u) < 1.0, np.negative(y, dtype=np.float64), 0.0)

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """Zero: the loss has no curvature but at its kink."""
        return np.zeros(np.broadcast(y, u).shape)

    def smoothed(self, h: float = 0.05) -> HuberHinge:
        """The Huberised hinge, which tends to this loss as h goes to 0."""
        return HuberHinge(h)
