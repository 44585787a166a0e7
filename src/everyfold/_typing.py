"""The names of what is passed around: arrays, row numbers, and words with a few allowed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
"""Numbers in double precision."""

AnyArray: TypeAlias = NDArray[Any]
"""Numbers of any kind, labels or objects."""

Index: TypeAlias = NDArray[np.intp]
"""Row numbers."""

Mask: TypeAlias = NDArray[np.bool_]
"""True or false for each row."""

Matrix: TypeAlias = Any
"""Rows: an array, a CSR matrix, a data frame or a list, which have no common type."""

Lazy: TypeAlias = Any
"""What Dask holds elsewhere, which has no types: a collection, a future, a client, a result."""

Targets: TypeAlias = Any
"""A user's y: an array, a list, a column of a data frame, or None."""

Estimator: TypeAlias = Any
"""An estimator or transformer of scikit-learn's kind; it has no common base."""

Splitter: TypeAlias = Any
"""A ``cv`` argument: a number, a splitter, an iterable of splits, or None."""

Scorer: TypeAlias = Any
"""A ``scoring`` argument, or what scikit-learn makes of it."""

Score: TypeAlias = Any
"""The score of a fold: a number, a dictionary for several scorers, or None where it failed."""

Search: TypeAlias = Any
"""A fitted search, read by its attributes."""

Params: TypeAlias = dict[str, Any]
"""Parameters or metadata by name."""

Grid: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Values or distributions by the names of parameters; or several such sets."""

Label: TypeAlias = Hashable
"""The name of a class."""

Refit: TypeAlias = bool | str | Callable[[Params], int]
"""Whether the winner is fitted: yes or no, by which metric, or what chooses it from the results."""

RandomState: TypeAlias = int | np.random.RandomState | None
"""The seed of random choices."""

ErrorScore: TypeAlias = float | Literal["raise"]
"""The score of what cannot be fitted, or that it is an error."""

ClosedName = Literal[
    "gcv", "gacv", "span", "radius_margin", "eigenvalue_ratio", "eigenvalue_perturbation"
]
"""A criterion without folds."""

NumberLoss = Literal["squared", "quadratic_epsilon", "smooth_epsilon"]
"""A loss of numbers."""

LabelLoss = Literal["squared", "huber_hinge", "squared_hinge", "logistic"]
"""A loss of labels."""

Method = Literal["predict", "decision_function", "predict_proba", "predict_log_proba"]
"""What is asked of a model; the last by refits only."""

Fallback = Literal["warn", "refit", "refuse"]
"""What becomes of candidates that nothing speeds up."""

Preprocessing = Literal["auto", "per_fold", "once"]
"""How the steps of a Pipeline are fitted."""

Route = Literal["eigen", "explicit", "cholesky", "tridiagonal"]
"""How a ridge system is factorised."""

Pooled: TypeAlias = bool | Literal["auto"]
"""Whether a score is that of all held-out rows together; "auto" where single rows have none."""

RidgeScaling = Literal["sum", "mean"]
"""Whether a ridge stays what it is when rows are left out, or grows with their number."""

Order: TypeAlias = float | Literal["auto", "exact", "screen"]
"""How far the influence series of a fold goes, or whether to refit."""
