"""The names of what is passed around: arrays, row numbers, and words with a few allowed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# Numbers in double precision.
Array: TypeAlias = NDArray[np.float64]

# Numbers of any kind, labels or objects.
AnyArray: TypeAlias = NDArray[Any]

# Row numbers.
Index: TypeAlias = NDArray[np.intp]

# True or false for each row.
Mask: TypeAlias = NDArray[np.bool_]

# Rows: an array, a CSR matrix, a data frame or a list, which have no common type.
Matrix: TypeAlias = Any

# What Dask holds elsewhere, which has no types: a collection, a future, a client, a result.
Lazy: TypeAlias = Any

# A user's y: an array, a list, a column of a data frame, or None.
Targets: TypeAlias = Any

# An estimator or transformer of scikit-learn's kind; it has no common base.
Estimator: TypeAlias = Any

# A ``cv`` argument: a number, a splitter, an iterable of splits, or None.
Splitter: TypeAlias = Any

# A ``scoring`` argument, or what scikit-learn makes of it.
Scorer: TypeAlias = Any

# The score of a fold: a number, a dictionary for several scorers, or None where it failed.
Score: TypeAlias = Any

# A fitted search, read by its attributes.
Search: TypeAlias = Any

# Parameters or metadata by name.
Params: TypeAlias = dict[str, Any]

# Values or distributions by the names of parameters; or several such sets.
Grid: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]

# The name of a class.
Label: TypeAlias = Hashable

# Whether the winner is fitted: yes or no, by which metric, or what chooses it from the results.
Refit: TypeAlias = bool | str | Callable[[Params], int]

# The seed of random choices.
RandomState: TypeAlias = int | np.random.RandomState | None

# The score of folds that cannot be fitted, or "raise".
ErrorScore: TypeAlias = float | Literal["raise"]

# A criterion without folds.
ClosedName = Literal[
    "gcv", "gacv", "span", "radius_margin", "eigenvalue_ratio", "eigenvalue_perturbation"
]

# A loss of numbers.
NumberLoss = Literal["squared", "quadratic_epsilon", "smooth_epsilon"]

# A loss of labels.
LabelLoss = Literal["squared", "huber_hinge", "squared_hinge", "logistic"]

# The methods of a model that may be called; the last one by refits only.
Method = Literal["predict", "decision_function", "predict_proba", "predict_log_proba"]

# What is done with candidates that cannot be sped up.
Fallback = Literal["warn", "refit", "refuse"]

# How the steps of a Pipeline are fitted.
Preprocessing = Literal["auto", "per_fold", "once"]

# How a ridge system is factorised.
Route = Literal["eigen", "explicit", "cholesky", "tridiagonal"]

# Whether a score is that of all held-out rows together; "auto" where single rows have none.
Pooled: TypeAlias = bool | Literal["auto"]

# Whether a ridge stays the same when rows are left out, or is proportional to their number.
RidgeScaling = Literal["sum", "mean", "weights"]

# The order of the influence series of a fold, or whether to refit.
Order: TypeAlias = float | Literal["auto", "exact", "screen"]


@runtime_checkable
class FoldsAndOrder(Protocol):
    """An ``order`` that sets the number of folds as well, such as a Granularity of the papers."""

    @property
    def folds(self) -> int:
        """The number of folds."""

    @property
    def order(self) -> int:
        """The order of the influence series."""
