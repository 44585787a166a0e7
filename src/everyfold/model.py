"""What an estimator asks for, in the library's own words."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from everyfold.criteria import InexactWarning
from everyfold.kernels import Kernel, Linear, check_precomputed, depends_on_rows, find_kernel
from everyfold.losses import Logistic, Loss
from everyfold.operators import Dense, KernelOperator, Nystrom, PerFold, Primal, Structure
from everyfold.operators.base import Array
from everyfold.plan import check_memory, fits
from everyfold.solve import Problem, RidgeScaling
from everyfold.targets import Labels, Numbers, Pairs, Target, Voting

ClassWeight = dict[Any, float] | Literal["balanced"] | None


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as users name it; resolved only when the training rows are known."""

    kernel: Any
    gamma: Any = None
    degree: Any = 3
    coef0: Any = 1.0
    params: Any = None
    on_matrices: bool = False

    def resolve(self, X: Any) -> Kernel:
        """The kernel for these training rows."""
        return find_kernel(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.params,
            X=X,
            on_matrices=self.on_matrices,
        )

    @property
    def depends_on_rows(self) -> bool:
        """Whether each training set has a kernel of its own."""
        return self.kernel in ("rbf", "laplacian", "poly", "polynomial") and depends_on_rows(
            self.gamma
        )

    @property
    def takes_any_rows(self) -> bool:
        """Whether only the user's own function looks at the rows, whatever they are."""
        return self.on_matrices and not isinstance(self.kernel, Kernel)

    @property
    def is_precomputed(self) -> bool:
        """Whether X is the kernel matrix itself."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"


@dataclass(frozen=True)
class Model:
    """What an estimator asks for, in the library's own words.

    ``ridges`` has one entry, or one a target. ``operator`` is "auto", "dense" or a structure. With
    ``voting`` more than two classes are decided one versus one, without it one versus rest.
    """

    choice: KernelChoice
    loss: Loss
    ridges: tuple[float, ...]
    intercept: bool
    is_classifier: bool
    operator: Any = "auto"
    class_weight: ClassWeight = None
    ridge_scaling: RidgeScaling = "sum"
    voting: Voting | None = None
    tolerance: float = 1e-3
    chooses_ridge: bool = False
    """Whether every training set takes the best of the ridges by leave-one-out."""
    is_joint: bool = False
    """Whether more than two classes would be fitted together, which no loss here does."""

    def target(self, y: Any) -> Target:
        """Read y."""
        if not self.is_classifier:
            return Numbers.read(y)
        labels = Labels.read(y)
        if self.is_joint and len(labels.classes) > 2:
            raise ValueError(
                f"y has {len(labels.classes)} classes, which LogisticRegression fits together; for "
                "one versus rest use KernelLogisticClassifier(kernel='linear')"
            )
        if isinstance(self.loss, Logistic):
            labels = replace(labels, has_probabilities=self.voting is None)
        if self.voting is None or len(labels.classes) == 2:
            return labels
        return Pairs.of(labels, self.voting)

    def problem(self, target: Target, sample_weight: Array) -> Problem:
        """The problem of these targets."""
        w, balance = sample_weight, None
        if self.class_weight is not None:
            assert isinstance(target, Labels)
            if self.class_weight == "balanced":
                balance = target.codes
            else:
                w = w * _class_factors(self.class_weight, target)[target.codes]
        return Problem(target.columns, w, self.loss, self.intercept, self.ridge_scaling, balance)

    def structure(self, kernel: Kernel, shape: tuple[int, int]) -> Structure:
        """The structure the kernel matrix gets: what was asked for, or the cheapest exact one."""
        if isinstance(self.operator, Structure):
            rank = self.operator.rank_for(*shape)
            if rank < shape[0]:
                check_memory(shape[0], rank)
            return self.operator
        if self.operator not in ("auto", "dense"):
            raise ValueError(
                f"operator={self.operator!r} is not known; use 'auto', 'dense' or Dense()"
            )
        n_rows, n_features = shape
        if self.operator == "auto" and isinstance(kernel, Linear) and n_features < n_rows:
            return Primal()
        if self.operator == "auto" and not self.choice.is_precomputed and not fits(n_rows, n_rows):
            return _low_rank(n_rows, n_features)
        check_memory(n_rows, n_rows)
        return Dense()

    def structure_to_fit(self, kernel: Kernel, shape: tuple[int, int]) -> Structure:
        """The structure of the model that is kept: not every one can predict new rows."""
        asked = self.structure(kernel, shape)
        kept = asked.to_fit()
        if kept is not asked and kept.rank_for(*shape) == shape[0]:
            check_memory(shape[0], shape[0])
        return kept

    def bind(self, X: Any) -> KernelOperator:
        """The operator of the rows of X, one for all folds or one for each."""
        if self.choice.is_precomputed:
            X = check_precomputed(X)
        kernel = self.choice.resolve(X)
        structure = self.structure(kernel, X.shape)
        if self.choice.depends_on_rows:
            return PerFold(X, structure, self.choice.resolve)
        return structure.bind(kernel, X)

    def columns_of_ridges(self, q: int) -> list[tuple[float, list[int]]]:
        """The distinct ridges, each with the target columns it belongs to."""
        ridges = self.ridges if len(self.ridges) > 1 else self.ridges * q
        if len(ridges) != q:
            raise ValueError(
                f"alpha has {len(ridges)} entries, but y has {q} targets; pass one number or one "
                "for each target"
            )
        groups: dict[float, list[int]] = {}
        for column, ridge in enumerate(ridges):
            groups.setdefault(ridge, []).append(column)
        return list(groups.items())


def _low_rank(n_rows: int, n_features: int) -> Structure:
    """What "auto" takes where the full matrix does not fit; says so."""
    structure = Nystrom(random_state=0)
    rank = structure.rank_for(n_rows, n_features)
    check_memory(n_rows, rank)
    warnings.warn(
        f"the kernel matrix of {n_rows} rows does not fit in memory and was replaced by one of "
        f"rank {rank} at most; pass operator=Nystrom(...) to choose it, or operator='dense' to "
        "insist",
        InexactWarning,
        stacklevel=2,
    )
    return structure


def _class_factors(class_weight: dict[Any, float], target: Labels) -> Array:
    unknown = [label for label in class_weight if label not in set(target.classes.tolist())]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown}, which are not labels of y ({target.classes.tolist()})"
        )
    return np.array([float(class_weight.get(label, 1.0)) for label in target.classes.tolist()])


def read_ridge(alpha: Any, name: str = "alpha") -> tuple[float, ...]:
    """Check ridges: finite numbers, not negative."""
    ridges = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if ridges.ndim > 1 or not np.isfinite(ridges).all() or (ridges < 0.0).any():
        raise ValueError(
            f"{name}={alpha!r} is not allowed: a ridge must be finite and >= 0 (and > 0 unless the "
            "kernel matrix is well conditioned)"
        )
    return tuple(float(ridge) for ridge in ridges)


def read_penalty(C: Any) -> tuple[float, ...]:
    """The ridge of a C: rho = 1/(2 C)."""
    if not (isinstance(C, Real) and 0.0 < float(C) < math.inf):
        raise ValueError(f"C={C!r} is not allowed: it must be a finite number > 0")
    return (1.0 / (2.0 * float(C)),)


def read_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Check sample weights: one a row, finite, not negative, not all 0."""
    if sample_weight is None:
        return np.ones(n)
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(f"sample_weight has shape {w.shape}, expected one weight a row: ({n},)")
    if not np.isfinite(w).all():
        raise ValueError("sample_weight contains NaN or infinity; every weight must be finite")
    if (w < 0.0).any():
        raise ValueError(
            f"sample_weight has negative entries (smallest {w.min():.3g}); use weights >= 0, where "
            "0 leaves a row out"
        )
    if not w.any():
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    return w
