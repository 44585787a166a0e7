"""Pairs of classes: each on the rows of its two classes, all of a training set together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold.operators.base import Part, having
from everyfold.operators.dense import DenseMatrix
from everyfold.operators.products import product
from everyfold.solve import Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import Pairs
from everyfold.types import Array, Index


@dataclass(frozen=True)
class ClassKernel:
    """A kernel in which the rows of a class stand together, so that a pair is read in two runs.

    Attributes
    ----------
    kernel : Kernel32
    place : int array
        Where each of the rows that the kernel was made of is in it.
    """

    kernel: Kernel32
    place: Index

    @classmethod
    def of(cls, kernel: Kernel32, codes: Index) -> ClassKernel:
        """Sort the rows of a kernel by their classes."""
        order = np.argsort(codes, kind="stable")
        return cls(kernel.among(order), np.argsort(order))


@dataclass(frozen=True)
class TrainingPairs:
    """The pairs of classes that have rows of both in one training set.

    Attributes
    ----------
    part : Part
    problems : sequence of Problem
        Those of all pairs, on all rows.
    codes : int array
        The class of each training row.
    numbers : int array
        Which of all pairs these are.
    pairs : Pairs
        Their training rows, by their place among all, one class after the other.
    """

    part: Part
    problems: Sequence[Problem]
    codes: Index
    numbers: Index
    pairs: Pairs

    @classmethod
    def of(cls, problems: Sequence[Problem], part: Part) -> TrainingPairs:
        """The pairs of a training set.

        All of them together: a few calls of NumPy for each would take longer than their solutions.
        """
        assert problems[0].classes is not None
        codes = problems[0].classes.codes[part.train]
        order = np.argsort(codes, kind="stable")
        weights, bounds = _weights(problems, part.train[order])
        labels = np.stack([problem.y[:, 0] for problem in problems])[:, part.train[order]]
        inside = weights > 0.0
        has_both = np.all(
            [(inside & (labels * sign > 0.0)).any(axis=1) for sign in (-1, 1)], axis=0
        )
        inside &= has_both[:, None]
        starts = np.append(0, np.cumsum(np.count_nonzero(inside[has_both], axis=1)))
        pairs = Pairs(starts, order[np.nonzero(inside)[1]], labels[inside], bounds[inside])
        return cls(part, problems, codes, np.flatnonzero(has_both), pairs)

    def entries(self, pair: int) -> slice:
        """Where the rows of a pair are."""
        first, last = self.pairs.starts[pair : pair + 2].tolist()
        return slice(first, last)

    def problem(self, pair: int) -> Problem:
        """The problem of a pair on the training rows."""
        problem: Problem = self.problems[self.numbers[pair]]
        return problem.restrict(self.part.train)

    def places(self, kernel: ClassKernel, rows: Index) -> Index:
        """Where some of the training rows are in a kernel of these, or of all rows."""
        return kernel.place[rows if self.part.parent is None else self.part.train[rows]]

    def predict(self, coef: Array) -> Array:
        """Values of the test rows without intercepts, (pairs, ridges, test rows).

        A class has coefficients in the pairs that it is one of: a product for each class, instead
        of one that is mostly zeros.
        """
        link, n_ridges, rows = _link(self.part), len(coef), self.pairs.rows
        values = np.zeros((len(self.numbers), n_ridges, len(self.part.test)))
        owners = np.repeat(np.arange(len(self.numbers)), np.diff(self.pairs.starts))
        for code in np.unique(self.codes[rows]).tolist():
            entries = np.flatnonzero(self.codes[rows] == code)
            which = np.flatnonzero(np.bincount(owners[entries]))
            own = entries.reshape(len(which), -1)  # the same rows in each of its pairs
            columns = rows[own[0]] if self.part.parent is None else self.part.train[rows[own[0]]]
            parts = coef[:, own].reshape(-1, own.shape[1])
            found = product(link.take(columns, axis=1), parts.T)
            values[which] += found.T.reshape(n_ridges, len(which), -1).transpose(1, 0, 2)
        return values


def _weights(problems: Sequence[Problem], rows: Index) -> tuple[Array, Array]:
    """Weights of the rows of a training set in every problem, and their multiples of C."""
    if problems[0].is_balanced or problems[0].ridge_scaling == "mean":
        inside = [problem.restrict(rows) for problem in problems]
        return np.stack([some.w for some in inside]), np.stack([multiples(some) for some in inside])
    weights = np.stack([problem.w for problem in problems])[:, rows]
    return weights, weights


def multiples(problem: Problem) -> Array:
    """Each row's multiple of C."""
    return problem.w / problem.n_counted if problem.ridge_scaling == "mean" else problem.w


def _link(part: Part) -> Array:
    """The kernel of the test rows with all rows, or with the training rows."""
    if part.parent is None:
        return part.cross
    return having(part.parent, DenseMatrix).K[part.test]
