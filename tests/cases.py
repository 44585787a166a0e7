"""The market: kernels, operators, folds and problems, and which of them go together."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    LeavePGroupsOut,
    LeavePOut,
    RepeatedKFold,
    ShuffleSplit,
)

from everyfold.criteria import Folds
from everyfold.kernels import RBF, Linear, Polynomial, Precomputed
from everyfold.losses import Squared
from everyfold.operators import Dense, LowRank, Nystrom, Primal
from everyfold.solve import Problem

N, D = 30, 3


def features(n=N, d=D, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def targets(X, q=1, seed=1):
    rng = np.random.default_rng(seed)
    Y = np.sin(X @ rng.normal(size=(X.shape[1], q))) + 0.1 * rng.normal(size=(len(X), q))
    return Y + np.arange(1, q + 1)


def sparse_features(X):
    return csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))


def operator(name):
    """A bound operator and, for the oracle, the dense matrix it stands for."""
    X = features()
    if name == "rbf":
        bound = Dense().bind(RBF(gamma=0.3), X)
    elif name == "linear":
        bound = Dense().bind(Linear(), X)
    elif name == "primal":
        bound = Primal().bind(Linear(), X)
    elif name == "nystrom":
        bound = Nystrom(9, random_state=0).bind(RBF(gamma=0.3), X)
    elif name == "polynomial":
        bound = Dense().bind(Polynomial(degree=2, gamma=0.5, coef0=1.0), X)
    elif name == "precomputed":
        bound = Dense().bind(Precomputed(), RBF(gamma=0.5)(X))
    elif name == "sparse":
        bound = Dense().bind(RBF(gamma=0.3), sparse_features(X))
    else:
        raise KeyError(name)
    dense = bound.V @ bound.V.T if isinstance(bound, LowRank) else bound.K
    return bound, dense


OPERATORS = ("rbf", "linear", "primal", "nystrom", "polynomial", "precomputed", "sparse")

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
