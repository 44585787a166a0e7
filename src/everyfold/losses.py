"""Losses V(y, u): elementwise functions of a label and a fitted value.

A loss is a value, a slope and a curvature in u. It knows neither the kernel nor the ridge, so that
a new one is a class with three methods; see CONTRIBUTING.md.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp

from everyfold._typing import Array

# -- Losses V(y, u): elementwise functions of a label and a fitted value --------------------------
# A loss does not depend on the kernel or the ridge. It gives its value and its first two
# derivatives in the fitted value u,
#
# .. math:: V(y, u), \qquad g = V'(y, u), \qquad d = V''(y, u),
#
# which is all that fitting, the response operator and every criterion need. Every loss here is
# convex and, except for libsvm's own two, continuously differentiable in u. All except the logistic
# one are piecewise quadratic: :math:`g(u + \delta) = g(u) + d\,\delta` holds exactly as long as
# u + δ stays on the piece of u.
#
# To add a loss, derive from `Loss`, give the class-level facts and the three methods.


class Loss(ABC):
    """A convex, differentiable loss of a label y and a fitted value u.

    The methods are elementwise, broadcast y against u and return float64; a function of the margin
    may return float32 where y and u are both arrays of float32.

    Attributes
    ----------
    name : str
        The name by which `find_loss` knows it.
    is_margin : bool
        Whether it is a function of the margin m = y·u, so that labels are −1 and +1. Otherwise it
        is a function of the residual r = u − y.
    has_constant_curvature : bool
        Whether V'' is one number for all y and u, so that a fit has a closed form.
    is_piecewise_quadratic : bool
        Whether V'' is piecewise constant, so that a Newton step within one piece is exact.
    is_smooth : bool
        Whether V' is continuous. Newton's method and influence functions need that; libsvm's own
        losses are not and have a solver of their own.
    has_log_odds : bool
        Whether fitted values are log-odds, so that they have probabilities.
    has_log_link : bool
        Whether fitted values are logarithms of what is predicted, and not of the size of y.
    """

    name: ClassVar[str]
    is_margin: ClassVar[bool]
    has_constant_curvature: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool]
    is_smooth: ClassVar[bool] = True
    has_log_odds: ClassVar[bool] = False
    has_log_link: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(field.name for field in fields(self))  # type: ignore[arg-type]

    @property
    def tube(self) -> float | None:
        """The ε of libsvm's regression, which has a dual of its own; None of other losses."""
        return None

    def smoothed(self, h: float = 0.05) -> Loss:
        """The loss with its kinks rounded over h; a smooth one is itself."""
        return self

    def predicted(self, u: Array) -> Array:
        """What fitted values predict, in the terms of y."""
        return u

    def objection(self, y: Array) -> str:
        """Why the loss is not defined for these targets; empty if it is."""
        return ""

    @abstractmethod
    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """V(y, u)."""

    @abstractmethod
    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """The derivative g = V'(y, u) in u."""

    @abstractmethod
    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """The second derivative d = V''(y, u) in u; at a kink of V', one of its two limits."""


def residual(y: ArrayLike, u: ArrayLike) -> Array:
    """The residual r = u − y."""
    return np.subtract(u, y, dtype=np.float64)


def margin(y: ArrayLike, u: ArrayLike) -> Array:
    """The margin m = y·u, in single precision if both are."""
    is_single = all(getattr(own, "dtype", None) == np.float32 for own in (y, u))
    return np.multiply(y, u, dtype=np.float32 if is_single else np.float64)


def ramp(t: Array, h: float) -> Array:
    """max(0, t) with its corner smoothed over [−h, h]: h φ'(t)² inside, t itself above."""
    return np.where(t > h, t, h * np.square(ramp_slope(t, h)))


def ramp_slope(t: Array, h: float) -> Array:
    """The derivative of ``ramp``."""
    # Clipping before dividing keeps a tiny h from overflowing.
    return np.divide(np.clip(t + h, 0.0, 2.0 * h), 2.0 * h)


def check_epsilon(epsilon: float) -> None:
    """Refuse what is no half-width of a tube."""
    if not isinstance(epsilon, Real) or not 0.0 <= epsilon < math.inf:
        raise ValueError(
            f"epsilon={epsilon!r} is not allowed: the half-width of the tube must be a finite "
            "number >= 0 in the units of y; use 0 for no tube, or a fraction of the noise in y."
        )


def check_width(h: float) -> None:
    """Refuse what is no width of a smoothed corner."""
    if not isinstance(h, Real) or not 0.0 < h < math.inf:
        raise ValueError(
            f"h={h!r} is not allowed: the half-width of the smoothed corner must be a finite "
            "number > 0; use a small one such as 0.05 to stay close to the unsmoothed loss."
        )


# -- Losses of the margin m = y·u, for labels −1 and +1 -------------------------------------------


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


def _shares(u: ArrayLike) -> Array:
    """The probabilities of classes by their log-odds, along the last axis."""
    shifted = np.subtract(u, np.max(u, axis=-1, keepdims=True), dtype=np.float64)
    odds = np.exp(shifted)
    shares: Array = odds / odds.sum(axis=-1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Multinomial(Loss):
    r"""Minus the log-likelihood of a class with log-odds u, a column for each class.

    Unlike other losses it is one of whole rows: y and u have a column for each class, of which y
    is +1 in that of the row. With the probabilities :math:`\pi_k = e^{u_k} / \sum_l e^{u_l}`,

    .. math:: V = -\log \pi_y, \qquad \partial_k V = \pi_k - [k = y],
        \qquad \partial_k^2 V = \pi_k (1 - \pi_k).

    Only models that are linear in columns are fitted with it.

    Examples
    --------
    >>> from everyfold.losses import Multinomial
    >>> y, u = [[1.0, -1.0, -1.0]], [[0.0, 0.0, 0.0]]
    >>> Multinomial().value(y, u).round(4), Multinomial().slope(y, u).round(4)
    (array([1.0986]), array([[-0.6667,  0.3333,  0.3333]]))
    """

    name: ClassVar[str] = "multinomial"
    is_margin: ClassVar[bool] = True
    has_log_odds: ClassVar[bool] = True
    is_piecewise_quadratic: ClassVar[bool] = False

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """−log π_y, one number a row."""
        own = np.where(self._is_own(y), u, 0.0).sum(axis=-1)
        return np.asarray(logsumexp(u, axis=-1) - own)

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """π − [class]."""
        return np.subtract(_shares(u), self._is_own(y))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """π (1 − π), the diagonal of the matrix of second derivatives."""
        share = _shares(u)
        return share * (1.0 - share)

    def _is_own(self, y: ArrayLike) -> NDArray[np.bool_]:
        found = np.greater(y, 0.0)
        if found.ndim < 2 or found.shape[-1] < 3:
            raise ValueError(
                f"loss={self} needs a column for each of three or more classes, not labels of "
                f"shape {found.shape}; use Logistic for two"
            )
        return found


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


# -- Losses of the residual r = u − y -------------------------------------------------------------


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


# -- Losses of a logarithm u, for targets that are not negative -----------------------------------

# Logarithms of predictions are kept within this: beyond it exp(u) is of no use, and sums of it
# overflow. A line search that strays so far comes back.
_FARTHEST = 300.0


@dataclass(frozen=True)
class Tweedie(Loss):
    r"""Half the deviance of a Tweedie distribution with mean exp(u), up to a constant.

    .. math:: V = \frac{e^{(2-p)u}}{2-p} - y\,\frac{e^{(1-p)u}}{1-p}, \qquad
        V' = e^{(2-p)u} - y\,e^{(1-p)u}.

    It is Poisson's for p = 1, V = exp(u) − y u, and that of the gamma distribution for p = 2,
    V = u + y exp(−u). Between the two, and nowhere else, it is convex for all y ≥ 0.

    Parameters
    ----------
    power : float, default=1.0
        p, between 1 and 2.

    Examples
    --------
    >>> from everyfold.losses import Tweedie
    >>> Tweedie(power=2.0).slope(3.0, np.log([1.0, 3.0, 6.0])).round(2).tolist()
    [-2.0, 0.0, 0.5]
    """

    power: float = 1.0

    name: ClassVar[str] = "tweedie"
    is_margin: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool] = False
    has_log_link: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1.0 <= self.power <= 2.0:
            raise ValueError(
                f"power={self.power!r} has a deviance that is not convex in the logarithm of the "
                "mean; use a power from 1 (Poisson) to 2 (gamma)"
            )

    def _powers(self, u: ArrayLike) -> tuple[Array, Array]:
        """exp((2 − p) u) and exp((1 − p) u)."""
        near = np.clip(np.asarray(u, dtype=np.float64), -_FARTHEST, _FARTHEST)
        return np.exp((2.0 - self.power) * near), np.exp((1.0 - self.power) * near)

    def value(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        p, (up, down) = self.power, self._powers(u)
        first = up / (2.0 - p) if p < 2.0 else np.asarray(u, dtype=np.float64)
        second = down / (p - 1.0) if p > 1.0 else np.negative(u, dtype=np.float64)
        return np.asarray(first + np.multiply(y, second))

    def slope(self, y: ArrayLike, u: ArrayLike) -> Array:
        """See base class."""
        up, down = self._powers(u)
        return np.asarray(up - np.multiply(y, down))

    def curvature(self, y: ArrayLike, u: ArrayLike) -> Array:
        """(2 − p) exp((2 − p) u) + (p − 1) y exp((1 − p) u)."""
        up, down = self._powers(u)
        return np.asarray((2.0 - self.power) * up + (self.power - 1.0) * np.multiply(y, down))

    def predicted(self, u: Array) -> Array:
        """See base class: exp(u)."""
        return np.asarray(np.exp(u))

    def objection(self, y: Array) -> str:
        """See base class."""
        is_wrong = (y <= 0.0).any() if self.power == 2.0 else (y < 0.0).any()
        least = "> 0" if self.power == 2.0 else ">= 0"
        return f"y must be {least} for a Tweedie power of {self.power:g}" if is_wrong else ""


# -- Losses by name -------------------------------------------------------------------------------


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (Squared, QuadraticEpsilon, SmoothEpsilon, HuberHinge, SquaredHinge, Logistic)
}


def find_loss(name: str | Loss, **parameters: float) -> Loss:
    """The loss of a name, with its parameters.

    Parameters
    ----------
    name : str or Loss
        One of "squared", "quadratic_epsilon", "smooth_epsilon", "huber_hinge", "squared_hinge" and
        "logistic". A `Loss` is returned as it is.
    **parameters : float
        What the loss takes: ``epsilon`` and ``h``, or nothing.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If the name is unknown, or a parameter is not one of the loss or out of range.

    Examples
    --------
    >>> from everyfold.losses import find_loss
    >>> find_loss("huber_hinge", h=0.1)
    HuberHinge(h=0.1)
    >>> find_loss("hubber_hinge")
    Traceback (most recent call last):
    ValueError: loss='hubber_hinge' is not known; did you mean 'huber_hinge'? ...
    """
    if isinstance(name, Loss):
        if parameters:
            raise ValueError(
                f"loss={name!r} already carries its parameters, so {_listed(parameters)} cannot be "
                f"given as well; give the name {name.name!r} instead, or set them on the loss."
            )
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(
            f"loss={name!r} is not known;{_suggestion(name)} It must be one of "
            f"{_listed(LOSSES)}, or a Loss."
        )
    _check_parameters(LOSSES[name], parameters)
    return LOSSES[name](**parameters)


def _check_parameters(loss: type[Loss], parameters: dict[str, float]) -> None:
    known = [field.name for field in fields(loss)]  # type: ignore[arg-type]
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ValueError(
            f"loss={loss.name!r} has no parameter {_listed(unknown)}; "
            f"{f'it takes {_listed(known)}' if known else 'it takes none'}: leave the others out."
        )


def _suggestion(name: object) -> str:
    nearest = difflib.get_close_matches(str(name), LOSSES, n=1)
    return f" did you mean {nearest[0]!r}?" if nearest else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
