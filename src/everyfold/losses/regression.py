"""Losses of the residual r = u − y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from everyfold.losses.base import Loss, check_epsilon, check_width, ramp, ramp_slope, residual
from everyfold.types import Array


@dataclass(frozen=True)
class Squared(Loss):
    r"""The squared loss of kernel ridge regression and the LS-SVM.

    .. math:: V = (y - u)^2, \qquad V' = 2(u - y), \qquad V'' = 2.

    With labels ±1 it is the LS-SVM classifier's loss as well, since (y − u)² = (1 − m)².

    Examples
    --------
    >>> from everyfold.losses import Squared
    >>> Squared().value([0.0, 1.0], [0.5, 3.0]).tolist()
    [0.25, 4.0]
    """

    name: ClassVar[str] = "squared"
    is_margin: ClassVar[bool] = False
    has_constant_curvature: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = True

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """(y − u)²."""
        return np.square(residual(y, u))

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """2(u − y)."""
        return 2.0 * residual(y, u)

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """2 everywhere."""
        return np.full(np.broadcast_shapes(np.shape(y), np.shape(u)), 2.0)


@dataclass(frozen=True)
class QuadraticEpsilon(Loss):
    r"""The quadratic ε-insensitive loss.

    With r = u − y and e = max(0, \|r\| − ε),

    .. math:: V = e^2, \qquad V' = 2\,\mathrm{sign}(r)\,e, \qquad V'' = 2\,[|r| > \varepsilon].

    Parameters
    ----------
    epsilon : float, default=0.1
        Residuals up to it cost nothing; ``epsilon=0`` is the squared loss.

    Examples
    --------
    >>> from everyfold.losses import QuadraticEpsilon
    >>> loss = QuadraticEpsilon(epsilon=0.5)
    >>> loss.value(0.0, [-2.5, 0.25, 1.5]).tolist()
    [4.0, 0.0, 1.0]
    >>> loss.slope(0.0, [-2.5, 0.25, 1.5]).tolist()
    [-4.0, 0.0, 2.0]
    """

    epsilon: float = 0.1

    name: ClassVar[str] = "quadratic_epsilon"
    is_margin: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """The squared excess of the residual over ε."""
        return np.square(np.maximum(np.abs(residual(y, u)) - self.epsilon, 0.0))

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """Twice the excess, with the residual's sign."""
        r = residual(y, u)
        return 2.0 * (r - np.clip(r, -self.epsilon, self.epsilon))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """2 outside the ε-tube, 0 in it."""
        r = residual(y, u)
        # Without a tube there is no kink: a residual of exactly 0 is as active as any other.
        is_active = np.abs(r) > self.epsilon if self.epsilon > 0 else np.full(np.shape(r), True)
        return np.multiply(2.0, is_active)


@dataclass(frozen=True)
class SmoothEpsilon(Loss):
    r"""The ε-insensitive loss with its corners smoothed over a width h.

    With r = u − y and the Huberised ramp φ (0 below −h, (t + h)²/4h for \|t\| ≤ h, t above h),

    .. math:: V = \varphi(|r| - \varepsilon) + \varphi(-|r| - \varepsilon).

    For h ≤ ε the second term is zero, and with e = \|r\| − ε this reads: V = 0 if e < −h,
    (e + h)²/4h if \|e\| ≤ h, e if e > h; V'' = 1/2h in the zone \|e\| ≤ h.

    Parameters
    ----------
    epsilon : float, default=0.1
        Half the width of the tube. 0 gives a smoothed absolute loss.
    h : float, default=0.05
        Half the width of the zone around \|r\| = ε in which the loss is quadratic.

    Notes
    -----
    For h > ε the first term alone would have the slopes ±(h − ε)/2h on the two sides of r = 0, a
    kink. The second term removes it: as :math:`|r|` and :math:`-|r|` are r and −r in some order,
    V = φ(r − ε) + φ(−r − ε), a sum of convex and continuously differentiable functions of affine
    arguments, hence convex and continuously differentiable for **every** ε ≥ 0 and h > 0. Where the
    two zones overlap, \|r\| < h − ε, the curvature is 1/h. V exceeds the ε-insensitive loss by at
    most h/4 if h ≤ ε and h/2 otherwise. h = ε gives Huber's loss, r²/4h up to \|r\| = 2h.

    Examples
    --------
    >>> from everyfold.losses import SmoothEpsilon
    >>> loss = SmoothEpsilon(epsilon=1.0, h=0.5)
    >>> loss.value(0.0, [0.25, 1.0, -3.0]).tolist()
    [0.0, 0.125, 2.0]
    >>> loss.slope(0.0, [0.25, 1.0, -3.0]).tolist()
    [0.0, 0.5, -1.0]
    """

    epsilon: float = 0.1
    h: float = 0.05

    name: ClassVar[str] = "smooth_epsilon"
    is_margin: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_width(self.h)

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """φ(|r| − ε) + φ(−|r| − ε)."""
        size = np.abs(residual(y, u))
        return ramp(size - self.epsilon, self.h) + ramp(-size - self.epsilon, self.h)

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """φ'(r − ε) − φ'(−r − ε)."""
        r = residual(y, u)
        return ramp_slope(r - self.epsilon, self.h) - ramp_slope(-r - self.epsilon, self.h)

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """1/2h in the zone around |r| = ε, 1/h where the two zones overlap."""
        size = np.abs(residual(y, u))
        near = np.abs(size - self.epsilon) <= self.h
        # Strict, so that h = ε has the one zone |r| ≤ 2h and not a doubled curvature at r = 0.
        overlap = size + self.epsilon < self.h
        return np.divide(np.add(near, overlap, dtype=np.float64), 2.0 * self.h)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    r"""The loss of :class:`sklearn.svm.SVR`: :math:`V = \max(0, |r| - \varepsilon)`, not smooth.

    Examples
    --------
    >>> from everyfold.losses import EpsilonInsensitive
    >>> EpsilonInsensitive(0.5).value([0.0, 1.0], [0.25, 3.0]).tolist()
    [0.0, 1.5]
    """

    epsilon: float = 0.1

    name: ClassVar[str] = "epsilon_insensitive"
    is_margin: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        return np.maximum(np.abs(residual(y, u)) - self.epsilon, 0.0)

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        r = residual(y, u)
        return np.where(np.abs(r) > self.epsilon, np.sign(r), 0.0)

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """Zero: the loss has no curvature but at its kinks."""
        return np.zeros(np.broadcast(y, u).shape)

    @property
    def tube(self) -> float:
        """See base class."""
        return self.epsilon

    def smoothed(self, h: float = 0.05) -> SmoothEpsilon:
        """The tube with rounded kinks, which tends to this loss as h goes to 0."""
        return SmoothEpsilon(self.epsilon, h)
