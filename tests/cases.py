"""The market: kernels, operators, folds and problems, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from scipy.linalg import circulant
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    LeavePGroupsOut,
    LeavePOut,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everyfold.adapters.pipelines import split_steps
from everyfold.adapters.sklearn import read_estimator
from everyfold.crossval import Folds
from everyfold.engine.execution.kernel_builder import FoldRows
from everyfold.engine.records import Candidate, Data
from everyfold.estimators import LSSVR
from everyfold.kernel_ridge.bands import BandMatrix
from everyfold.kernels import RBF, Linear, Polynomial, Precomputed
from everyfold.losses import Squared
from everyfold.operators import (
    Dense,
    Expansion,
    Iterative,
    LowRank,
    Nystrom,
    Primal,
    RandomFourier,
    SupportsResponse,
)
from everyfold.operators.base import SupportsSplit, TrainTestKernel
from everyfold.papers import Circulant
from everyfold.solvers import Problem
from everyfold.svm.kernel32 import Kernel32
from everyfold.svm.paths import PathResults, svm_paths

N, D = 30, 3


def features(n=N, d=D, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def targets(X, q=1, seed=1):
    rng = np.random.default_rng(seed)
    Y = np.sin(X @ rng.normal(size=(X.shape[1], q))) + 0.1 * rng.normal(size=(len(X), q))
    return Y + np.arange(1, q + 1)


def sparse_features(X):
    return csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))


def rbf(A, B, gamma):
    """The kernel between the rows of A and of B, entry by entry."""
    return np.exp(-gamma * cdist(A, B, "sqeuclidean"))


@dataclass(frozen=True)
class Item:
    """An operator of the market and, for the oracle, what it stands for.

    ``fold(train, test)`` gives the matrix of a fold's training rows and that between its test rows
    and them. ``new`` are rows for ``link`` and ``expand``, and ``K_new`` is the matrix between
    these and all rows; None where the operator cannot predict.
    """

    operator: SupportsResponse | SupportsSplit
    fold: Callable
    K: np.ndarray | None = None
    new: object = None
    K_new: np.ndarray | None = None


def _cut(K):
    return lambda train, test: (K[np.ix_(train, train)], K[np.ix_(test, train)])


def _item(bound, K, new=None, K_new=None):
    return Item(bound, _cut(K), K, new, K_new)


def _landmarks(rows, K, K_new):
    """K̃ = C W⁻¹ Cᵀ and its continuation to new rows."""
    inverse = np.linalg.pinv(K[np.ix_(rows, rows)], hermitian=True)
    mixed = inverse @ K[rows]
    return K[:, rows] @ mixed, K_new[:, rows] @ mixed


class Waves(LowRank):
    """An operator that says by ``expand`` alone what it does with new rows."""

    def __init__(self, X, directions):
        super().__init__(waves(X, directions))
        self._directions = directions

    def expand(self, coef):
        return WavesExpansion(self._directions, coef)


@dataclass(frozen=True)
class WavesExpansion(Expansion):
    directions: np.ndarray
    coef: np.ndarray

    def link(self, X):
        return waves(X, self.directions)

    @property
    def width(self):
        return len(self.coef)


def waves(X, directions):
    phases = X @ directions
    return np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(directions.shape[1])


def _circulant(factors, step, gamma):
    """A Kronecker product of circulants, clipped to be positive semi-definite."""
    K = np.ones((1, 1))
    for n in factors:
        sets = [{0} if j == 0 else {j, n - j} for j in range(n)]
        column = [sum(np.exp(-gamma * (step * l) ** 2) for l in points) for points in sets]
        K = np.kron(K, circulant(column))
    values, U = np.linalg.eigh(K)
    return U @ np.diag(np.maximum(values, 0.0)) @ U.T


def _per_fold(X):
    """A kernel whose gamma is that of its training rows."""

    def fold(train, test):
        gamma = 1.0 / X[train].var()
        return rbf(X[train], X[train], gamma), rbf(X[test], X[train], gamma)

    return Item(Moving(), fold)


def _per_split(X):
    """A kernel on rows that are scaled by their training rows."""
    pipeline = make_pipeline(StandardScaler(with_std=False), LSSVR(gamma=0.3))
    parts = split_steps(pipeline, {})
    candidate = Candidate(0, read_estimator(parts.final), parts)
    data = Data(X, np.zeros(len(X)), len(X), (), {0: candidate})

    def fold(train, test):
        return rbf(X[train], X[train], 0.3), rbf(X[test], X[train], 0.3)

    return Item(FoldRows(data, candidate, Dense()), fold)


def _bands(X):
    """Two kernels, each of some columns, with weights."""
    weights = np.array([0.7, 0.3])
    each = np.array([rbf(X[:, own], X[:, own], 0.3) for own in ([0, 2], [1])])
    return _item(BandMatrix(each, weights), 0.7 * each[0] + 0.3 * each[1])


def item(name):
    """An operator by its name in the market."""
    X, new = features(), features(5, seed=9)
    K, K_new = rbf(X, X, 0.3), rbf(new, X, 0.3)
    linear = X @ X.T, new, new @ X.T
    if name == "rbf":
        return _item(Dense().bind(RBF(gamma=0.3), X), K, new, K_new)
    if name == "iterative":
        return _item(Iterative(rank=5).bind(RBF(gamma=0.3), X), K, new, K_new)
    if name == "linear":
        return _item(Dense().bind(Linear(), X), *linear)
    if name == "primal":
        return _item(Primal().bind(Linear(), X), *linear)
    if name == "polynomial":
        bound = Dense().bind(Polynomial(degree=2, gamma=0.5, coef0=1.0), X)
        return _item(bound, (0.5 * X @ X.T + 1.0) ** 2, new, (0.5 * new @ X.T + 1.0) ** 2)
    if name == "precomputed":
        return _item(Dense().bind(Precomputed(), K), K, K_new, K_new)
    if name == "sparse":
        X, new = sparse_features(X), sparse_features(new)
        bound = Dense().bind(RBF(gamma=0.3), X)
        A, B = X.toarray(), new.toarray()
        return _item(bound, rbf(A, A, 0.3), new, rbf(B, A, 0.3))
    if name == "nystrom":
        bound = Nystrom(9, random_state=0).bind(RBF(gamma=0.3), X)
        low, low_new = _landmarks(bound.pivots, K, K_new)
        return _item(bound, low, new, low_new)
    if name == "nystrom_precomputed":
        bound = Nystrom(9, random_state=0).bind(Precomputed(), K)
        low, low_new = _landmarks(bound.pivots, K, K_new)
        return _item(bound, low, K_new, low_new)
    if name == "influence":
        bound = Nystrom(9, random_state=0, replaces="response").bind(RBF(gamma=0.3), X)
        return _item(bound, K, new, K_new)
    if name in ("dual", "dual_precomputed"):
        kernel, rows = (RBF(gamma=0.3), X) if name == "dual" else (Precomputed(), K)
        structure = Nystrom(9, random_state=0, predicts_with="kernel")
        low, _ = _landmarks(structure.landmarks(kernel, rows).pivots, K, K_new)

        def fold(train, test):
            return low[np.ix_(train, train)], K[np.ix_(test, train)]

        found = new if name == "dual" else K_new
        return Item(structure.bind(kernel, rows), fold, low, found, K_new)
    if name == "fourier":
        directions = np.random.RandomState(3).standard_normal((D, 4)) * np.sqrt(0.6)
        V, V_new = waves(X, directions), waves(new, directions)
        bound = RandomFourier(8, random_state=3).bind(RBF(gamma=0.3), X)
        return _item(bound, V @ V.T, new, V_new @ V.T)
    if name == "waves":
        directions = np.random.default_rng(3).normal(size=(D, 4))
        V, V_new = waves(X, directions), waves(new, directions)
        return _item(Waves(X, directions), V @ V.T, new, V_new @ V.T)
    if name == "circulant":
        bound = Circulant(factors=(5, 6), steps=0.9).bind(RBF(1.0), np.zeros((N, 2)))
        return _item(bound, _circulant((5, 6), 0.9, 1.0))
    if name == "bands":
        return _bands(X)
    if name == "per_fold":
        return _per_fold(X)
    if name == "per_split":
        return _per_split(X)
    raise KeyError(name)


def operator(name):
    """A bound operator and the dense matrix it stands for."""
    found = item(name)
    return found.operator, found.K


# Those that can be factorised with any weights, and so go with every criterion.
OPERATORS = ("rbf", "linear", "primal", "nystrom", "fourier", "polynomial", "precomputed", "sparse")

WITH_MATRIX = (
    *OPERATORS,
    "nystrom_precomputed",
    "waves",
    "iterative",
    "circulant",
    "influence",
    "dual",
    "dual_precomputed",
    "bands",
)

EVERY = (*WITH_MATRIX, "per_fold", "per_split")

GROUPS = np.repeat(np.arange(7), [2, 5, 4, 3, 6, 7, 3])


def folds(name, n=N):
    splitters = {
        "equal": KFold(5),
        "unequal": KFold(7, shuffle=True, random_state=0),
        "loo": LeaveOneOut(),
        "groups": GroupKFold(4),
        "p_groups": LeavePGroupsOut(2),
        "repeated": RepeatedKFold(n_splits=5, n_repeats=3, random_state=0),
        "shuffle": ShuffleSplit(4, test_size=0.2, train_size=0.5, random_state=0),
        "pairs": LeavePOut(2),
    }
    if name == "loo":
        return Folds.leave_one_out(n)
    groups = GROUPS[:n] if "groups" in name else None
    return Folds.from_splits(splitters[name].split(np.empty(n), groups=groups), n)


FOLDS = ("equal", "unequal", "loo", "groups", "p_groups", "repeated", "shuffle")

WEIGHTS = ("none", "random", "zeros")


def weights(name, n=N):
    if name == "none":
        return np.ones(n)
    w = np.random.default_rng(5).uniform(0.2, 3.0, size=n)
    if name == "zeros":
        w[[1, 8, 9, 20]] = 0.0
    return w


def problem(q=1, weight="none", intercept=True, scaling="sum"):
    Y = targets(features(), q)
    return Problem(Y, weights(weight), Squared(), intercept, scaling)


class Moving(SupportsSplit):
    """A kernel that is chosen by the training rows: it can only be split."""

    n = N

    def split(self, train, test):
        X = features()
        operator = Dense().bind(RBF(gamma=1.0 / X[train].var()), X[train])
        return TrainTestKernel(train, test, operator, operator.link(X[test]))


# -- paths of C through several training sets -----------------------------------------------------


def svm_paths_of_folds(K, y, Cs, bounds, *, start=None, **options):
    """`svm_paths` of every fold, a row of ``bounds`` each, as one record with folds first."""
    kernel, y = Kernel32.of(K), np.asarray(y)
    found = [
        svm_paths(
            kernel,
            y if y.ndim == 1 else y[i],
            Cs,
            own,
            start=None if start is None else start[i],
            **options,
        )
        for i, own in enumerate(np.asarray(bounds))
    ]
    names = [field.name for field in fields(PathResults)]
    return PathResults(*(np.stack([getattr(one, name) for one in found]) for name in names))
