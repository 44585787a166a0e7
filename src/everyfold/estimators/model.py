"""What an estimator asks for, whichever library it is from: a :class:`Model`.

Kernel, loss, ridges, intercept and weights of classes are read once; all that evaluates folds knows
nothing else of an estimator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from everyfold._progress import warn
from everyfold._typing import AnyArray, Array, Label, Matrix, Targets
from everyfold.crossval import InexactWarning
from everyfold.estimators.targets import Labels, NotSpedUpError, Reading, Target, Voting, Warp
from everyfold.kernels import Gamma, Kernel, KernelLike, find_kernel, gamma_of_features
from everyfold.linalg.memory import LOW_RANK, check_memory, fits
from everyfold.losses import Loss, Multinomial
from everyfold.operators import Dense, Nystrom, Primal, Structure
from everyfold.operators.base import OperatorChoice
from everyfold.solvers import Classes, Problem, RidgeScaling

ClassWeight = dict[Label, float] | Literal["balanced"] | None


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as users name it; resolved only when the training rows are known."""

    kernel: KernelLike
    gamma: Gamma = None
    degree: int = 3
    coef0: float = 1.0
    params: Mapping[str, object] | None = None
    on_matrices: bool = False
    depends_on_rows: bool = field(init=False, repr=False, compare=False)
    """Whether each training set has a kernel of its own."""
    takes_any_rows: bool = field(init=False, repr=False, compare=False)
    """Whether only the user's own function looks at the rows, whatever they are."""
    is_precomputed: bool = field(init=False, repr=False, compare=False)
    """Whether X is the kernel matrix itself."""

    def __post_init__(self) -> None:
        # Arrays, lists and tuples of the same numbers are one kernel, and a tuple compares.
        gamma = gamma_of_features(self.gamma) or self.gamma
        name = self.kernel if isinstance(self.kernel, str) else ""
        is_scaled = isinstance(gamma, str) and gamma == "scale"
        facts = {
            "gamma": gamma,
            "depends_on_rows": is_scaled and name in ("rbf", "laplacian", "poly", "polynomial"),
            "takes_any_rows": self.on_matrices and not isinstance(self.kernel, Kernel),
            "is_precomputed": name == "precomputed",
        }
        for field_name, value in facts.items():
            object.__setattr__(self, field_name, value)

    def resolve_for_any(self) -> Kernel:
        """The kernel where nothing is known of the rows; raises what is wrong with its name."""
        return self.resolve(np.eye(len(self.gamma) if isinstance(self.gamma, tuple) else 2))

    def resolve(self, X: Matrix) -> Kernel:
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
    operator: OperatorChoice = "auto"
    class_weight: ClassWeight = None
    ridge_scaling: RidgeScaling = "sum"
    voting: Voting | None = None
    tolerance: float = 1e-3
    chooses_ridge: bool = False
    """Whether every training set takes the best of the ridges by leave-one-out."""
    is_stand_in: bool = False
    """Whether its operator makes another model of it than the estimator itself would fit."""
    is_joint: bool = False
    """Whether more than two classes are fitted together, by their probabilities."""
    is_binary: bool = False
    """Whether more than two classes are left to scikit-learn."""
    weighs_rest: bool = True
    """Whether weights of classes count for those that are the rest of a class, one versus rest."""
    weighs_balance: bool = False
    """Whether balanced class weights come from the sample weights, and not from counts of rows."""
    has_one_target: bool = False
    """Whether y has to be one column."""
    flattens: bool = False
    """Whether a single column of y is predicted without its second axis."""
    takes_indicators: bool = False
    """Whether y may be an indicator of several labels a row, which nothing here reads."""
    warp: Warp | None = None
    """How each training set transforms its targets, and values back."""
    C: float | None = None
    """The penalty as it was given, of which ``ridges`` keeps all but the last digit."""
    shrinking: bool = True
    """Whether libsvm leaves rows aside on its way."""
    calibrates: bool = False
    """Whether it has probabilities by a cross-validation of its own, beside the values here."""
    seed: int = 0
    """Of random choices that "auto" makes."""

    @cached_property
    def reading(self) -> Reading:
        """How y is read: models that share it share the target."""
        return Reading(
            self.is_classifier,
            self.voting,
            self.loss.has_log_odds,
            self.is_joint,
            self.has_one_target,
            self.flattens,
            self.takes_indicators,
            is_binary=self.is_binary,
            needs_contrast=self.loss.is_margin and self.intercept,
        )

    def __post_init__(self) -> None:
        given = self.class_weight
        if given is not None and given != "balanced" and not isinstance(given, Mapping):
            raise ValueError(
                f"class_weight={given!r} is not allowed; use a dict of weights by label, "
                "'balanced' or None"
            )

    @property
    def is_of_columns(self) -> bool:
        """Whether models have no other form than that of their columns."""
        return isinstance(self.loss, Multinomial) or self.loss.has_log_link

    def target(self, y: Targets) -> Target:
        """Read y."""
        return self.reading.read(y)

    def check_labels(self, target: Target) -> None:
        """Raise if class weights are negative, or y has labels or numbers that do not fit."""
        objection = self.loss.objection(target.columns) if self.loss.has_log_link else ""
        if objection:
            raise NotSpedUpError(objection)
        if isinstance(self.class_weight, Mapping) and target.classes is not None:
            check_class_weight(self.class_weight, target.classes)

    @property
    def penalty(self) -> float:
        """The C that stands for the ridge."""
        return 1.0 / (2.0 * self.ridges[0]) if self.C is None else self.C

    @property
    def loses_weightless_rows(self) -> bool:
        """Whether scikit-learn's own fit mistakes its support vectors if a weight is 0."""
        is_given = self.choice.is_precomputed or self.choice.takes_any_rows
        return is_given and not self.loss.is_smooth

    def problems(self, target: Target, sample_weight: Array) -> list[Problem]:
        """The problem of a target, or one for each pair of its classes on the rows of the two."""
        classes = None
        if isinstance(target, Labels):
            given = self.class_weight
            factors = None
            if isinstance(given, Mapping):
                check_class_weight(given, target.classes)
                factors = np.array([float(given.get(k, 1.0)) for k in target.classes.tolist()])
            by: Literal["rows", "weights"] = "weights" if self.weighs_balance else "rows"
            classes = Classes(target.codes, factors, by if given == "balanced" else None)
        loss = Multinomial() if target.is_joint else self.loss
        problem = Problem(
            target.columns, sample_weight, loss, self.intercept, self.ridge_scaling, classes
        )
        if not self.weighs_rest and self.class_weight is not None and problem.y.shape[1] > 1:
            assert classes is not None
            return [
                replace(problem, y=problem.y[:, [k]], classes=replace(classes, alone=k))
                for k in range(problem.y.shape[1])
            ]
        if not target.has_pairs:
            return [problem]
        counts = sample_weight > 0.0
        return [
            replace(problem, y=y, sample_weight=sample_weight * rows, counts=counts)
            for y, rows in target.pairs()
        ]

    @property
    def has_kernel_per_fold(self) -> bool:
        """Whether every training set has a kernel of its own, or an approximation of its own."""
        own = self.operator
        return self.choice.depends_on_rows or (isinstance(own, Structure) and own.per_fold)

    def structure_for_any(self) -> Structure:
        """The structure where nothing is known of the rows."""
        if self.operator == "auto" and isinstance(self.loss, Multinomial):
            return Primal()  # the only one that serves it
        return self.operator if isinstance(self.operator, Structure) else Dense()

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
        has_columns = n_features < n_rows or self.is_of_columns
        if self.operator == "auto" and kernel.is_linear and has_columns:
            return Primal()
        if self.operator == "auto" and not self.choice.is_precomputed:
            is_small = fits(n_rows, n_rows)
            return Dense() if is_small else _low_rank(n_rows, n_features, self.seed)
        check_memory(n_rows, n_rows, self.instead)
        return Dense()

    @property
    def instead(self) -> str:
        """What needs less memory than the full kernel matrix, in words."""
        return LOW_RANK if self.loss.is_smooth else _SMOOTH

    @property
    def has_full_matrix(self) -> bool:
        """Whether scikit-learn's own fit makes the full kernel matrix."""
        is_made = self.loss.has_constant_curvature and not self.choice.is_precomputed
        return is_made and not self.choice.resolve_for_any().is_linear

    def draws_landmarks(self, n_rows: int | None) -> bool:
        """Whether "auto" means random landmarks for this many rows, or for rows of a source."""
        if self.operator != "auto" or self.choice.is_precomputed:
            return False
        fits_whole = n_rows is not None and fits(n_rows, n_rows)
        return not fits_whole and not self.choice.resolve_for_any().is_linear

    def structure_to_fit(self, kernel: Kernel, shape: tuple[int, int]) -> Structure:
        """The structure of the model that is kept: not every one can predict new rows."""
        asked = self.structure(kernel, shape)
        kept = asked.to_fit()
        if kept is not asked and kept.rank_for(*shape) == shape[0]:
            check_memory(shape[0], shape[0])
        return kept

    def columns_of_ridges(self, q: int) -> list[tuple[float, list[int]]]:
        """The distinct ridges, each with the target columns it belongs to."""
        if self.chooses_ridge:
            return [(self.ridges[0], list(range(q)))]
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


# What to use instead of SVC and SVR, whose duals are solved on the full kernel matrix.
_SMOOTH = (
    "or a model with a smooth loss and a low-rank kernel, with the same grid: "
    "HuberSVC(operator=Nystrom(1000)), or QuadraticSVR(operator=Nystrom(1000)) for regression"
)


def _low_rank(n_rows: int, n_features: int, seed: int) -> Structure:
    """What "auto" takes where the full matrix does not fit; says so."""
    structure = Nystrom(random_state=seed)
    rank = structure.rank_for(n_rows, n_features)
    check_memory(n_rows, rank)
    warn(
        f"the kernel matrix of {n_rows} rows does not fit in memory and was replaced by an "
        f"approximation of rank {rank} at most; pass operator=Nystrom(...) to choose it, or "
        "operator='dense' to raise an error instead",
        InexactWarning,
    )
    return structure


def check_class_weight(class_weight: Mapping[Label, float], classes: AnyArray) -> None:
    """Raise if a class weight is negative, or names a label that is not there by a slip.

    It is one if another label has none; else the rest may well be those of other training sets.
    """
    negative = {label: weight for label, weight in class_weight.items() if not weight >= 0.0}
    if negative:
        raise ValueError(f"class_weight has {negative}; weights of classes must be at least 0")
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown and any(label not in class_weight for label in labels):
        raise ValueError(
            f"class_weight names {unknown}, which are not labels of y ({labels}); name labels of y"
        )


# Packages that replace scikit-learn's estimators by faster ones of the same name.
_PATCHES = ("sklearnex", "daal4py")


def original(kind: type) -> type:
    """The class of scikit-learn's that a patched one stands for; any other class is itself.

    Examples
    --------
    >>> original(dict)
    <class 'dict'>
    """
    if kind.__module__.partition(".")[0] not in _PATCHES:
        return kind
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "sklearn" and base.__name__ == kind.__name__:
            return base
    return kind


def read_ridge(alpha: ArrayLike | None, name: str = "alpha") -> tuple[float, ...]:
    """Check ridges: finite numbers, not negative."""
    ridges = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if ridges.ndim > 1 or not np.isfinite(ridges).all() or (ridges < 0.0).any():
        raise ValueError(
            f"{name}={alpha!r} is not allowed: a ridge must be finite and >= 0 (and > 0 unless the "
            "kernel matrix is well conditioned)"
        )
    return tuple(float(ridge) for ridge in ridges)


def read_penalty(C: object) -> tuple[float, ...]:
    """The ridge of a C: rho = 1/(2 C)."""
    number = float(C) if isinstance(C, Real) else 0.0
    if not 0.0 < number < math.inf or math.isinf(0.5 / number):
        raise ValueError(
            f"C={C!r} is not allowed: C and 1/(2 C) must be finite and > 0; use 1.0, for example"
        )
    return (1.0 / (2.0 * number),)


def read_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Check sample weights: one a row, finite, not negative, not all 0."""
    if sample_weight is None:
        return np.ones(n)
    w = np.asarray(sample_weight, dtype=np.float64)
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(f"sample_weight has shape {w.shape}, expected one weight per row: ({n},)")
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
