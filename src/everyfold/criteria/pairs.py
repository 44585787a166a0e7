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
from everyfold.svm.paths import Pair
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
    codes : int array
        The class of each training row.
    numbers : list of int
        Which of all pairs these are.
    problems : list of Problem
        On the training rows.
    rows : list of int array
        The training rows of each pair, by their place among all, one class after the other.
    """

    part: Part
    codes: Index
    numbers: list[int]
    problems: list[Problem]
    rows: list[Index]

    @classmethod
    def of(cls, problems: Sequence[Problem], part: Part) -> TrainingPairs:
        """The pairs of a training set."""
        assert problems[0].classes is not None
        codes = problems[0].classes.codes[part.train]
        order = np.argsort(codes, kind="stable")
        found = cls(part, codes, [], [], [])
        for number, problem in enumerate(problems):
            inside = problem.restrict(part.train)
            rows = order[inside.w[order] > 0.0]
            if len(rows) and codes[rows[0]] < codes[rows[-1]]:
                found.numbers.append(number)
                found.problems.append(inside)
                found.rows.append(rows)
        return found

    def places(self, kernel: ClassKernel, rows: Index) -> Index:
        """Where some of the training rows are in a kernel of these, or of all rows."""
        return kernel.place[rows if self.part.parent is None else self.part.train[rows]]

    def pairs(self, kernel: ClassKernel) -> list[Pair]:
        """What the solver is given."""
        return [
            Pair(self.places(kernel, rows), inside.y[rows, 0], multiples(inside)[rows])
            for inside, rows in zip(self.problems, self.rows, strict=True)
        ]

    def predict(self, coefs: Sequence[Array], n_ridges: int) -> Array:
        """Values of the test rows without intercepts, (pairs, ridges, test rows).

        A class has coefficients in the pairs that it is one of: a product for each class, instead
        of one that is mostly zeros.
        """
        link = _link(self.part)
        values = np.zeros((len(self.rows), n_ridges, len(self.part.test)))
        for code in np.unique(self.codes).tolist():
            which, parts, own = [], [], np.empty(0, dtype=np.intp)
            for pair, rows in enumerate(self.rows):
                first, last = np.searchsorted(self.codes[rows], [code, code + 1]).tolist()
                if first < last:
                    which.append(pair)
                    parts.append(coefs[pair][:, first:last])
                    own = rows[first:last]
            if which:
                columns = own if self.part.parent is None else self.part.train[own]
                found = product(link.take(columns, axis=1), np.concatenate(parts).T)
                values[which] += found.T.reshape(len(which), n_ridges, -1)
        return values


def multiples(problem: Problem) -> Array:
    """Each row's multiple of C."""
    return problem.w / problem.n_counted if problem.ridge_scaling == "mean" else problem.w


def _link(part: Part) -> Array:
    """The kernel of the test rows with all rows, or with the training rows."""
    if part.parent is None:
        return part.cross
    return having(part.parent, DenseMatrix).K[part.test]
