"""What a method of cross-validation is, and the record of held-out predictions that it gives.

:class:`CrossValMethod` predicts every held-out row, so that any metric applies; :class:`Closed` is
one number without folds. :class:`OutOfFold` has the predictions of one ridge, with what is known of
their precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from traceback import format_exc
from typing import ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from everyfold import _extensions
from everyfold._typing import Array, ClosedName, Index, Route
from everyfold.folds import Folds, Merged
from everyfold.linalg.symmetric import are_trusted
from everyfold.losses import Loss
from everyfold.operators.base import SupportsResponse
from everyfold.operators.gram import FoldErrors
from everyfold.operators.response import StructureError
from everyfold.solvers import Problem


class InexactWarning(UserWarning):
    """A number is not known to equal that of a refit: ill-conditioned, or an approximation.

    Examples
    --------
    >>> import warnings
    >>> from everyfold import InexactWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InexactWarning)  # inexact results are errors now
    """


@dataclass(frozen=True)
class Failure:
    """Why a fold has no values: the error, and where it came from in words."""

    error: Exception
    trace: str

    @classmethod
    def caught(cls, error: Exception) -> Failure:
        """That of an error that is being handled, with its traceback."""
        return cls(error, format_exc())

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """That of an error that was not raised."""
        return cls(error, f"{type(error).__name__}: {error}\n")


@dataclass(frozen=True)
class OutOfFold:
    """The held-out predictions of one ridge.

    Attributes
    ----------
    values : array of shape (N, q)
        Predictions of the test rows of all folds, one fold after the other (``Folds.split``).
    is_exact : bool array of shape (t,)
        Whether each fold's values equal those of a model refitted on its training rows, up to
        rounding errors estimated below ``TRUSTED_ERROR``.
    spectral_radius : array of shape (t,)
        That of M_SS D_S, the rate of the influence series; NaN where it was not asked for.
    condition : array of shape (t,)
        Estimated condition number of the linear system behind each fold.
    failures : dict
        The folds without values, by number, and why.
    is_unique : bool array of shape (t,), optional
        Whether each fold has one solution. Without it, all have.
    words : str
        How the values came about, where that differs from what was planned.
    errors : FoldErrors, optional
        The sums of squared errors of the folds, where they were all that was asked for; there are
        no values then.
    whole : tuple, optional
        The model of all rows where it is known: coefficients of the features, and intercepts.
    """

    values: Array
    is_exact: NDArray[np.bool_]
    spectral_radius: Array
    condition: Array
    failures: dict[int, Failure] = field(default_factory=dict)
    is_unique: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    words: str = field(default="", kw_only=True)
    errors: FoldErrors | None = field(default=None, kw_only=True)
    whole: tuple[Array, Array] | None = field(default=None, kw_only=True)

    @classmethod
    def of_refits(cls, values: Array, condition: Array) -> OutOfFold:
        """What refits predict: exact where the condition number of the fold leaves digits."""
        return cls(values, are_trusted(condition), np.full(len(condition), np.nan), condition)

    @classmethod
    def beside(cls, parts: Sequence[OutOfFold], values: Array | None = None) -> OutOfFold:
        """Records of parts of a target as one, with their values side by side or those given."""
        failures: dict[int, Failure] = {}
        for part in parts:
            failures |= part.failures
        unique = [part.is_unique for part in parts if part.is_unique is not None]
        return cls(
            np.column_stack([part.values for part in parts]) if values is None else values,
            np.logical_and.reduce([part.is_exact for part in parts]),
            np.maximum.reduce([part.spectral_radius for part in parts]),
            np.maximum.reduce([part.condition for part in parts]),
            failures,
            is_unique=np.logical_and.reduce(unique) if unique else None,
            words=next((part.words for part in parts if part.words), ""),
        )

    @classmethod
    def joined(cls, folds: Folds, groups: Sequence[Index], parts: Sequence[OutOfFold]) -> OutOfFold:
        """Records of groups of folds, by their numbers, as one in the order of all folds."""
        if len(parts) == 1:
            return parts[0]
        values = np.empty((int(folds.bounds[-1]), parts[0].values.shape[1]))
        exact, radius, condition = (np.empty(len(folds), dtype) for dtype in (bool, float, float))
        for ids, part in zip(groups, parts, strict=True):
            exact[ids], radius[ids] = part.is_exact, part.spectral_radius
            condition[ids] = part.condition
            for i, own in zip(ids, folds.subset(ids).split(part.values), strict=True):
                values[folds.bounds[i] : folds.bounds[i + 1]] = own
        return cls(values, exact, radius, condition)

    def unmerge(self, merged: Merged) -> OutOfFold:
        """The record of the original folds, from that of folds merged by equal training sets."""
        of = merged.numbers
        return replace(
            self,
            values=self.values[merged.places],
            is_exact=self.is_exact[of],
            spectral_radius=self.spectral_radius[of],
            condition=self.condition[of],
            failures={i: self.failures[k] for i, k in enumerate(of) if k in self.failures},
            is_unique=None if self.is_unique is None else self.is_unique[of],
        )


class CrossValMethod(ABC):
    """A method of cross-validation that predicts every held-out row, so that any metric applies."""

    ability: ClassVar[type] = SupportsResponse
    """What an operator must be able to do."""
    uses_threads: ClassVar[bool] = False
    """Whether it runs without the interpreter, so that threads can share the folds out."""
    compiled: ClassVar[tuple[str, ...]] = ()
    """The modules of compiled code that it calls, which are loaded on their first use."""
    starts_from_all: ClassVar[bool] = False
    """Whether it does what refits do, each from the solution on all rows, so that it is quicker."""

    def with_threads(self, threads: int) -> Self:
        """The same method with this many threads, if it starts threads itself."""
        return self

    @property
    def may_merge(self) -> bool:
        """Whether, for squared loss, folds with equal training sets may be evaluated as one."""
        return False

    @abstractmethod
    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float], folds: Folds
    ) -> Iterator[OutOfFold]:
        """The held-out predictions of each ridge, in the order given."""


# The status of a number that is the criterion itself, up to rounding or a solver's tolerance.
AS_DEFINED = "as defined"


class Closed(ABC):
    """A criterion that is one number for each target, without folds; less is better."""

    uses_threads: ClassVar[bool] = False
    compiled: ClassVar[tuple[str, ...]] = ()
    starts_from_all: ClassVar[bool] = False
    needs_eigenvalues: ClassVar[bool] = False
    """Whether all eigenvalues of the kernel are computed, besides the fits."""

    @property
    def name(self) -> str:
        """What users call it: its name as ``criterion=``, or that of its class.

        Examples
        --------
        >>> from everyfold.papers import GCV
        >>> GCV(route="cholesky").name
        'gcv'
        """
        table = _extensions.CRITERIA
        names = [name for name, known in table.items() if type(known) is type(self)]
        return names[0] if names else type(self).__name__

    @property
    def words(self) -> str:
        """What is done, in words."""
        return f"criterion {self.name!r}: one fit on all rows for each candidate, no folds"

    def check(self, loss: Loss, *, chooses_ridge: bool) -> None:
        """Raise if it is not defined for a model with this loss, or that chooses its own ridge."""
        reason = self.reason_against(loss)
        if chooses_ridge:
            reason = "the model chooses its own alpha; search alpha with KernelRidge or Ridge"
        if reason:
            raise ValueError(f"criterion={self.name!r} is not available for loss={loss}: {reason}")

    def reason_against(self, loss: Loss) -> str:
        """Why the criterion is not defined for a loss, and what to use; empty if it is."""
        return ""

    def tuned(self, route: Route, tolerance: float) -> Closed:
        """The same criterion by a route for squared loss, or to a solver's tolerance."""
        return self

    @abstractmethod
    def evaluate(
        self, problem: Problem, operator: SupportsResponse, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """The values, of shape (q,), for each ridge."""

    def records(
        self, problems: Sequence[Problem], operator: SupportsResponse, ridges: Sequence[float]
    ) -> list[OutOfFold]:
        """The criterion of every ridge, as one row with a column for each target.

        All ridges together; if that fails, each alone, so that one ridge does not fail the others.
        """
        try:
            found = [list(self.evaluate(problem, operator, ridges)) for problem in problems]
        except (MemoryError, StructureError):
            raise
        except Exception as error:
            if len(ridges) > 1:
                return [self.records(problems, operator, [ridge])[0] for ridge in ridges]
            width = sum(problem.y.shape[1] for problem in problems)
            failures = {0: Failure.caught(error)}
            return [_of_all_rows(np.full(width, np.nan), failures)]
        return [_of_all_rows(np.concatenate(parts), {}) for parts in zip(*found, strict=True)]


def _of_all_rows(values: Array, failures: dict[int, Failure]) -> OutOfFold:
    unknown = np.full(1, np.nan)
    is_known = np.array([bool(np.isfinite(values).all())])
    return OutOfFold(values[None, :], is_known, unknown, unknown, failures)


def find_criterion(criterion: str | Closed) -> Closed:
    """The criterion of this name; an instance is given back as it is.

    Examples
    --------
    >>> find_criterion("span")
    SpanRule(tolerance=0.001, stiffness=10000.0)
    """
    if isinstance(criterion, Closed):
        return criterion
    known = _extensions.CRITERIA
    found: Closed | None = (
        _extensions.find(known, criterion) if isinstance(criterion, str) else None
    )
    if found is None:
        names = list(get_args(ClosedName))
        raise ValueError(
            f"criterion={criterion!r} is not known; use None for held-out scores, one of "
            f"{names}, or an instance of everyfold.crossval.Closed"
        )
    return found
