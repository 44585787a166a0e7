"""Means and variances of columns, added up over blocks and over folds.

They give the scaling of a `StandardScaler` for the training rows of every fold from one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from everyfold._typing import Array, Index, Matrix


@dataclass(frozen=True)
class Moments:
    """The number of some rows, the means of their columns, and sums of squares about these.

    ``+`` puts those of different rows together, without loss of digits.
    """

    count: int
    mean: Array
    squares: Array

    @classmethod
    def of(cls, X: Array) -> Moments:
        """Those of some rows."""
        mean = X.mean(axis=0)
        centred = X - mean
        # What rounding leaves in the mean is taken out of the squares again.
        lost = centred.sum(axis=0)
        return cls(len(X), mean, np.einsum("ij,ij->j", centred, centred) - lost**2 / len(X))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        # About the means of their own rows, sums of squares lose no digits; what the two means
        # differ by is added.
        step = other.mean - self.mean
        share = other.count / count
        return Moments(
            count,
            self.mean + share * step,
            self.squares + other.squares + self.count * share * step**2,
        )

    @property
    def variance(self) -> Array:
        """That of each column, divided by the number of rows."""
        return np.maximum(self.squares, 0.0) / self.count


@dataclass(frozen=True)
class FoldMoments:
    """The moments of the rows of every fold; −1 has the rows that none holds out."""

    parts: Mapping[int, Moments]

    @classmethod
    def of(cls, X: Array, numbers: Index) -> FoldMoments:
        """Those of some rows, by the number of the fold of each."""
        return cls({k: Moments.of(X[numbers == k]) for k in np.unique(numbers).tolist()})

    def __add__(self, other: FoldMoments) -> FoldMoments:
        parts = dict(self.parts)
        for number, moments in other.parts.items():
            parts[number] = parts[number] + moments if number in parts else moments
        return FoldMoments(parts)

    @property
    def folds(self) -> list[int]:
        """The numbers of the folds, ascending."""
        return sorted(number for number in self.parts if number >= 0)

    @property
    def total(self) -> Moments:
        """Of all rows."""
        return reduce(add, (self.parts[k] for k in sorted(self.parts)))

    def rest(self, fold: int) -> Moments:
        """Of all rows but those of a fold."""
        # Added up, and not subtracted from the total, which would lose digits; in a fixed order, so
        # that results do not depend on who was ready first.
        others = [self.parts[k] for k in sorted(self.parts) if k != fold]
        if not others:
            raise ValueError(f"cv: fold {fold} leaves no training rows; use smaller folds")
        return reduce(add, others)


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − shift) / scale, column by column."""

    shift: Array
    scale: Array

    @classmethod
    def standard(cls, moments: Moments, *, with_mean: bool, with_std: bool) -> Scaling:
        """What makes means 0 and variances 1; columns that are constant up to rounding stay."""
        mean, variance, n = moments.mean, moments.variance, moments.count
        eps = np.finfo(np.float64).eps
        # scikit-learn's bound on what rounding leaves of a constant column.
        is_constant = variance <= n * eps * variance + (n * mean * eps) ** 2
        scale = np.where(is_constant, 1.0, np.sqrt(variance))
        ones = np.ones_like(mean)
        return cls(mean if with_mean else np.zeros_like(mean), scale if with_std else ones)

    def __call__(self, X: Matrix) -> Array:
        """Scaled rows, a new array."""
        scaled: Array = np.subtract(X, self.shift)
        scaled /= self.scale
        return scaled

    def back(self, X: Array) -> Array:
        """Rows as they were before."""
        return X * self.scale + self.shift
