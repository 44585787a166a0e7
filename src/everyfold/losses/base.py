r"""Losses V(y, u): elementwise functions of a label and a fitted value.

A loss knows no kernel and no ridge. It gives its value and its first two derivatives in the fitted
value u,

.. math:: V(y, u), \qquad g = V'(y, u), \qquad d = V''(y, u),

which is all that fitting, the response operator and every criterion ask of it. Every loss here is
convex and, but for libsvm's own two, continuously differentiable in u. All but the logistic one are
piecewise quadratic: there :math:`g(u + \delta) = g(u) + d\,\delta` holds exactly as long as u + δ
stays on the piece of u.

To add a loss, derive from `Loss`, give the class-level facts and the three methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import fields
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from everyfold.types import Array


class Loss(ABC):
    """A convex, differentiable loss of a label y and a fitted value u.

    The methods are elementwise, broadcast y against u and return float64.

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
    """

    name: ClassVar[str]
    is_margin: ClassVar[bool]
    has_constant_curvature: ClassVar[bool] = False
    is_piecewise_quadratic: ClassVar[bool]
    is_smooth: ClassVar[bool] = True
    has_log_odds: ClassVar[bool] = False

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
    """The margin m = y·u."""
    return np.multiply(y, u, dtype=np.float64)


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
