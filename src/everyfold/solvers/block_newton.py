r"""Smooth losses where only passes over the rows give gradients: many models at once.

Models are columns of coefficients of features that are centred and scaled. A pass gives the
gradients of all of them where they stand; nothing else is asked of the rows. Steps are those of
L-BFGS, which begins with the Hessian of a sample of the rows, shared by the folds of a ridge,

.. math:: P = \kappa\, A_s^\top \bar D A_s + 2 \rho I,

with κ rows in a training set for each of the sample. The eigenvalues of :math:`P^{-1} H` are within
:math:`1 \pm 2 \sqrt{c/m}` of a sample of m rows, so that some six passes give six digits. The
objective is convex, so that its derivative at the end of a step, which the next pass gives, says
whether the step was too long; it is shortened by the secant rule then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from everyfold._typing import Array, Index, Mask
from everyfold.linalg.blas import dots

# The Newton decrement, relative to the size of the model in the same metric, at which a model is at
# its minimum: held-out values are off by about that share of their size, and scores by less. A
# decade more takes one more pass over the rows.
STATIONARY = 1e-6

# What is accepted of a model whose gradient falls no further; others have failed.
ROUGH = 1e-4

# Passes in which the decrement did not fall by half before a model is taken as it is. Models of a
# hinge, whose Hessian changes with the rows at its kink, have many on their way where these are few
# (500 rows, 20 landmarks, C = 1e4: 54 to 100 passes).
_STALLS = 250

# Steps that directions are made of: more take memory for twice as many copies of all coefficients.
# Huber's hinge took 25 passes with 20 and 37 with 8 (4000 rows, 40 landmarks, C up to 1e4), the
# logistic loss as many with either.
MEMORY = 20

# A step is too long if the slope at its end is more than this share of what it was before.
_OVERSHOOT = 0.5

# A step is shortened to no less than this share at a time.
_SHORTEST = 0.05


@dataclass
class _TakenStep:
    """A step that was taken, and what it did to the gradient; a quotient of 0 is of no use."""

    s: Array
    y: Array
    quotient: Array
    """1 / sᵀy."""


class Metric(Protocol):
    """An approximate Hessian of every model."""

    def solve(self, B: Array, models: Index) -> Array:
        """Its inverse times the columns of some models."""

    def squares(self, B: Array, models: Index) -> Array:
        """bᵀ P b of every column, without the intercepts."""


class BlockNewton:
    """Models on their way to the minimum, which passes give gradients of.

    A model has ``width`` columns, problems of their own, which are done together.

    Parameters
    ----------
    start : array of shape (c, models · width)
    penalty : array of the same shape
        What multiplies a coefficient in the gradient of the penalty.
    metric : Metric
    width : int
    enough : float
        The relative decrement at which a model is at its minimum.
    """

    def __init__(
        self,
        start: Array,
        penalty: Array,
        metric: Metric,
        width: int = 1,
        enough: float = STATIONARY,
    ) -> None:
        self.width = width
        self.models = start.shape[1] // width
        self.live = np.arange(self.models)
        self.errors = np.full(self.models, np.inf)
        """The relative decrement of every model."""
        self.coef = start.copy()
        """The coefficients of all models: those of the live ones are where to go next."""
        self._penalty, self._metric, self._enough = penalty, metric, enough
        self._best = np.full(self.models, np.inf)
        self._stalls = np.zeros(self.models, dtype=np.intp)
        self._base: Array | None = None
        self._gradient = self._seen = self._ahead = np.empty((0, 0))
        self._share = self._slope = np.empty(0)
        self._steps: list[_TakenStep] = []

    @property
    def is_done(self) -> bool:
        """Whether no model needs another gradient."""
        return not len(self.live)

    def columns(self, models: Index) -> Index:
        """The columns of some models."""
        if self.width == 1:
            return models
        found: Index = (models[:, None] * self.width + np.arange(self.width)).ravel()
        return found

    def take(self, slopes: Array, may_end: Mask | None = None) -> Index:
        """Go on from the gradients of the loss of the live models; those that are done now.

        Those that may not end yet get another gradient, however near they are.
        """
        own = self.columns(self.live)
        G = slopes + self._penalty[:, own] * self.coef[:, own]
        Z = self._metric.solve(G, self.live)
        decrement = np.sqrt(np.maximum(dots(G, Z), 0.0))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            errors = np.where(decrement > 0.0, decrement / self._norms(own), 0.0)
        errors = errors.reshape(-1, self.width).max(axis=1)
        self.errors[self.live] = errors
        self._stalls[self.live] += errors > 0.5 * self._best[self.live]
        self._best[self.live] = np.minimum(self._best[self.live], errors)
        is_open = (errors > self._enough) & (self._stalls[self.live] < _STALLS)
        is_open &= ~np.isnan(errors)
        if may_end is not None:
            is_open |= ~may_end & (errors <= ROUGH)
        done: Index = self.live[~is_open]
        self._move(own, G)
        self._keep(is_open)
        return done

    @property
    def reached(self) -> Array:
        """The coefficients of all models where they were last known to be well."""
        if self._base is None:
            return self.coef
        found = self.coef.copy()
        found[:, self.columns(self.live)] = self._base
        return found

    def restart(self, metric: Metric) -> None:
        """Go on from there with another Hessian, of which the steps so far tell nothing."""
        self._metric, self._steps = metric, []
        self._stalls[:] = 0
        if self._base is not None and len(self.live):
            self._ahead = -metric.solve(self._gradient, self.live)
            self._slope = dots(self._gradient, self._ahead)
            self._share = np.ones(len(self._slope))
            self.coef[:, self.columns(self.live)] = self._base + self._ahead

    # -- steps -------------------------------------------------------------------------------------

    def _move(self, own: Index, G: Array) -> None:
        """Say where the next gradients are to be taken."""
        point = self.coef[:, own]
        is_taken = np.ones(len(own), dtype=bool)
        if self._base is not None:
            slope = dots(G, self._ahead)
            is_taken = slope <= _OVERSHOOT * np.abs(self._slope)
            self._note(point, G, is_taken)
        if self._base is None:
            self._base, self._gradient = point, G
            self._ahead, self._share = np.zeros_like(G), np.ones(len(own))
            self._slope = np.zeros(len(own))
        else:
            self._base = np.where(is_taken, point, self._base)
            self._gradient = np.where(is_taken, G, self._gradient)
            fall = np.abs(self._slope)
            shorter = np.maximum(fall / np.maximum(fall + slope, 1e-300), _SHORTEST)
            self._share = np.where(is_taken, 1.0, self._share * np.minimum(shorter, 0.9))
        if is_taken.any():
            ahead = -self._direction(self._gradient)
            descent = dots(self._gradient, ahead)
            # Rounding may leave a direction that leads upwards: the Hessian's own never does.
            is_wrong = ~(descent < 0.0)
            if is_wrong.any():
                plain = -self._metric.solve(self._gradient, self.live)
                ahead = np.where(is_wrong, plain, ahead)
                descent = dots(self._gradient, ahead)
            self._ahead = np.where(is_taken, ahead, self._ahead)
            self._slope = np.where(is_taken, descent, self._slope)
        self.coef[:, own] = self._base + self._share * self._ahead

    def _note(self, point: Array, G: Array, is_taken: Mask) -> None:
        """Keep steps that were taken."""
        assert self._base is not None
        s, y = point - self._base, G - self._gradient
        product = dots(s, y)
        is_known = is_taken & (product > 1e-12 * np.sqrt(dots(s, s) * dots(y, y)))
        quotient = np.zeros(len(product))
        quotient[is_known] = 1.0 / product[is_known]
        self._steps.append(_TakenStep(s, y, quotient))
        del self._steps[:-MEMORY]

    def _direction(self, G: Array) -> Array:
        """The inverse Hessian times gradients, with what the last steps have shown of it."""
        q, shares = G.copy(), []
        for step in reversed(self._steps):
            share = step.quotient * dots(step.s, q)
            q -= share * step.y
            shares.append(share)
        found = self._metric.solve(q, self.live)
        for step, share in zip(self._steps, reversed(shares), strict=True):
            back = step.quotient * dots(step.y, found)
            found += (share - back) * step.s
        return found

    def _keep(self, is_open: Mask) -> None:
        """Go on with some of the models; the others stay where they are."""
        if is_open.all():
            return
        assert self._base is not None
        done = np.repeat(~is_open, self.width)
        # Where their gradient was taken, and not where the next one would have been.
        own = self.columns(self.live)
        self.coef[:, own[done]] = self._seen[:, done]
        kept = ~done
        self.live = self.live[is_open]
        self._base, self._gradient = self._base[:, kept], self._gradient[:, kept]
        self._ahead, self._share = self._ahead[:, kept], self._share[kept]
        self._slope = self._slope[kept]
        self._steps = [
            _TakenStep(step.s[:, kept], step.y[:, kept], step.quotient[kept])
            for step in self._steps
        ]

    def _norms(self, own: Index) -> Array:
        """The sizes of the live models in the metric of the Hessian."""
        self._seen = self.coef[:, own].copy()
        return np.sqrt(self._metric.squares(self._seen, self.live))


# A step is shortened if the objective rises at its end, by this share of what it falls first.
_TOO_FAR = 0.1


def share_of_steps(rise: Callable[[Array, Index], Array], count: int, halvings: int = 20) -> Array:
    """How far to go along each step: all the way, or to where the objective is least before.

    ``rise`` gives the derivatives of the objective at some share of some of the steps. They rise
    along a step, so that halving intervals finds their zero.
    """
    share, some = np.ones(count), np.arange(count)
    before = np.abs(rise(np.zeros(count), some))
    # What is no number has grown beyond all numbers.
    some = some[~(rise(share, some) <= _TOO_FAR * before)]
    if some.size:
        low, high = np.zeros(len(some)), np.ones(len(some))
        for _ in range(halvings):
            middle = 0.5 * (low + high)
            is_beyond = ~(rise(middle, some) <= 0.0)
            high, low = np.where(is_beyond, middle, high), np.where(is_beyond, low, middle)
        share[some] = 0.5 * (low + high)
    return share
