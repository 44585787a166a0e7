"""The abilities of kernel operators: what linear algebra offers to what knows labels.

Everything below is linear algebra that knows no labels; everything above is statistics that
factorises nothing. The letters are those of ``docs/mathematics.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, TypeVar, cast

import numpy as np

from everyfold._typing import Array, Index, Matrix, Order, Params, Route
from everyfold.kernels import Kernel
from everyfold.linalg.symmetric import CHUNK
from everyfold.operators.response import Quadratic, Response, RidgeModels, StructureError

Ability = TypeVar("Ability")


@dataclass(frozen=True)
class OperatorSpec:
    """What the planner has to know of an operator, before it exists or after.

    Attributes
    ----------
    rank : int
        An upper bound.
    methods : tuple of str or None
        The only methods of the planner that suit it; None if it takes any.
    is_per_fold : bool
        Whether every training set has a kernel of its own, so that it can only be split.
    is_approximate : bool
        Whether it stands for another matrix, whose folds are not those of the kernel.
    is_held : bool
        Whether the matrix is in memory, and not computed anew for every product.
    is_long : bool
        Whether it has features that are too many to be held, and rows that can be summed over.
    response_rank : int or None
        The rank of what stands in for its responses; None where they are its own.
    has_columns : bool
        Whether it is made of the columns of a feature map, which models are linear in.
    only_splits : bool
        Whether models predict by another matrix than they are fitted with, so that held-out values
        follow from fits of the training rows alone.
    """

    rank: int
    methods: tuple[str, ...] | None = None
    is_per_fold: bool = False
    is_approximate: bool = False
    is_in_memory: bool = True
    needs_blocks: bool = False
    response_rank: int | None = None
    has_columns: bool = False
    predicts_by_split: bool = False


@dataclass(frozen=True)
class TrainTestKernel:
    """One training set with a kernel of its own, and the rows that its model predicts.

    Attributes
    ----------
    train, test : int arrays
        Numbers of the rows of a fold.
    operator : SupportsResponse
        The kernel of the training rows.
    cross : array of shape (test rows, coefficients)
        What turns coefficients fitted on the training rows into predictions of the test rows.
    parent : SupportsResponse or None
        The kernel of all rows, if this is a part of one.
    noise : float
        The relative error of the kernel, where it is known to be more than rounding.
    """

    train: Index
    test: Index
    operator: SupportsResponse
    cross: Array
    noise: float = 0.0
    parent: SupportsResponse | None = None


class Cut(TrainTestKernel):
    """A part of a kernel of all rows; nothing is copied before it is asked for."""

    parent: SupportsResponse

    def __init__(self, train: Index, test: Index, parent: SupportsResponse) -> None:
        self.__dict__.update(train=train, test=test, parent=parent)

    @cached_property
    def operator(self) -> SupportsResponse:
        """The kernel of the training rows."""
        return self.parent.restrict(self.train)

    @cached_property
    def cross(self) -> Array:
        """What predicts the test rows."""
        return self.parent.cross(self.test, self.train)


class Operator(ABC):
    """A kernel on n rows; what it can do with them is said by the abilities it derives from."""

    n: int
    words: str
    """What it is, for plans and results."""
    lacks: str
    """Why it has no further ability, and what to use instead."""
    residual_trace: float = 0.0
    """An upper bound of how far it is from the matrix it stands for."""
    is_identity: bool = False
    """Whether no row is like any other, to half of working precision: nothing can be learnt."""
    typical_similarity: float = np.inf
    """The median over the rows of their largest similarity to another row, where that is known."""

    @property
    def rank(self) -> int:
        """An upper bound of the rank that the structure guarantees; n if it has none."""
        return self.n

    @property
    def is_indefinite(self) -> bool:
        """Whether a matrix was given that has negative eigenvalues."""
        return False


class SupportsSplit(Operator):
    """An ability: to give the kernel of a training set and its test rows.

    All that a kernel can do which each training set has for itself (``gamma="scale"``, a Pipeline).
    """

    words = "a kernel for each fold"
    lacks = (
        "the kernel depends on the training rows of each fold, so that folds share no kernel "
        "matrix; use Refit"
    )

    @abstractmethod
    def split(self, train: Index, test: Index) -> TrainTestKernel:
        """The kernel of some rows, and what predicts others from them."""


class SupportsMatmul(Operator):
    """An ability: products with the matrix of all rows."""

    basis: Array | None = None
    """V with K ≈ V Vᵀ, if iterations are to begin from there."""

    @abstractmethod
    def matmat(self, B: Array) -> Array:
        """K B."""

    @abstractmethod
    def diagonal(self) -> Array:
        """The diagonal of K."""


class SupportsGradient(ABC):
    """An ability: how the matrix changes with the kernel's parameters."""

    @abstractmethod
    def slopes(self, left: Array, right: Array) -> Array:
        r"""The sums :math:`\langle B, \partial K/\partial\log\gamma_j\rangle` for all features j.

        B is the symmetric part of :math:`LR^\top`, for L and R of shape (n, k). A kernel with one
        gamma for all features has the sum of the d numbers.
        """


class SupportsResponse(SupportsSplit, SupportsMatmul):
    """A positive semi-definite n×n matrix with structure. It knows no labels and no loss."""

    lacks = (
        "this structure of the kernel matrix does not support the requested operation; use "
        "operator='dense'"
    )

    @property
    def outline(self) -> OperatorSpec:
        """What the planner has to know of it."""
        return OperatorSpec(self.rank)

    @property
    def words(self) -> str:  # type: ignore[override]  # a constant elsewhere
        """See base class."""
        return f"rank {self.rank}" if self.rank < self.n else type(self).__name__

    @abstractmethod
    def evaluate(self, coef: Array) -> Array:
        """The values f of all rows for coefficients as in :class:`Solution`."""

    def coefficients(self, a: Array) -> Array:
        """The operator's own coefficients of f = K a; by default a itself."""
        return a

    def inherit(self, coef: Array, rows: Index) -> Array:
        """Coefficients fitted on a larger sample, as a start for this operator on its ``rows``."""
        return coef[rows]

    def inner(self, coef: Array, other: Array, values: Array) -> float:
        """⟨f, f'⟩ of two functions by their coefficients, and the second one's values."""
        return float(np.vdot(coef, values))

    def drift(self, forces: Array, coef: Array, rho: float) -> Array | None:
        """What forces of rows and the ridge add up to in coordinates of f.

        None where coefficients are one a row, and no coordinates.
        """
        return None

    def size_of_sums(self, total: float, largest: float) -> float:
        """The size of the sums in ``drift``, for forces of this total and this largest k(x, x)."""
        return 0.0

    @abstractmethod
    def eigenvalues(self) -> Array:
        """All n eigenvalues, ascending."""

    @abstractmethod
    def respond_path(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route
    ) -> Iterator[Response]:
        """The responses of all ridges, from as few factorisations as the route allows."""

    def respond(self, quadratic: Quadratic, rho: float, route: Route = "cholesky") -> Response:
        """The response of one ridge."""
        return next(iter(self.respond_path(quadratic, [rho], route)))

    def solutions(
        self, quadratic: Quadratic, rhos: Sequence[float], route: Route, precision: float = 0.0
    ) -> RidgeModels:
        """The solutions of all ridges, where nothing else of their responses is asked for.

        By the tridiagonal route some operators end early where predictions may be off by a share
        ``precision`` of the root mean square of the targets; 0 asks for rounding.
        """
        found = [(r.solution(), r.condition) for r in self.respond_path(quadratic, rhos, route)]
        return RidgeModels(
            np.stack([solution.coef for solution, _ in found]),
            np.stack([solution.intercept for solution, _ in found]),
            np.array([condition for _, condition in found]),
        )

    def check(self, weights: Array, sets: Sequence[Index]) -> None:
        """Raise if the structure does not suit the weights or the sets to hold out; most do."""

    def check_varying(self, loss: str) -> None:
        """Raise if the structure needs a loss with the same curvature in all rows."""

    @abstractmethod
    def restrict(self, rows: Index) -> SupportsResponse:
        """The same kernel on some of the rows, which may repeat."""

    @abstractmethod
    def cross(self, new: Index, rows: Index) -> Array:
        """What turns coefficients fitted on ``rows`` into predictions of the rows ``new``."""

    def split(self, train: Index, test: Index) -> TrainTestKernel:
        """See base class: ``restrict(train)`` and ``cross(test, train)``, made when asked for."""
        return Cut(train, test, self)

    def expand(self, coef: Array) -> Expansion:
        """The function f of these coefficients, without the matrix; raises if there is none."""
        raise StructureError(self.lacks)

    def link(self, X: Matrix) -> Array:
        """What turns coefficients fitted on all rows into values at the rows of ``X``.

        It follows from ``expand``: the values of each coefficient alone. An operator with as many
        coefficients as rows has a cheaper way.
        """
        width = len(self.coefficients(np.zeros((self.n, 1))))
        return self.expand(np.eye(width))(X)


def require(operator: Operator, ability: Callable[..., Ability]) -> Ability:
    """The operator, if it has an ability; else an error that says what to use instead."""
    if isinstance(operator, cast(type, ability)):
        return cast(Ability, operator)
    raise StructureError(operator.lacks)


class Expansion(ABC):
    """A fitted function f, small enough to keep and to pickle."""

    coef: Array

    @abstractmethod
    def link(self, X: Matrix) -> Array:
        """What turns the coefficients into values at the rows of ``X``."""

    def __call__(self, X: Matrix) -> Array:
        """F at the rows of ``X``, (rows, q), in blocks of at most about 64 MB."""
        step = max(1, CHUNK // max(1, len(self.coef)))
        starts = range(0, X.shape[0], step)
        return np.concatenate([self.link(X[i : i + step]) @ self.coef for i in starts])


# -- How kernel matrices are represented: what users pass as ``operator=``, and what it promises --


class Structure(ABC):
    """How to represent the kernel matrix of the rows: what users pass as ``operator=``."""

    methods: ClassVar[tuple[str, ...] | None] = None
    is_approximate: ClassVar[bool] = False
    is_in_memory: bool = True
    reads_sources: bool = False
    """Whether rows may come from a source, of which a sample is read."""
    per_fold: bool = False
    """Whether every training set is to have an operator of its own."""

    def outline(self, n_rows: int, n_features: int, *, is_per_fold: bool = False) -> OperatorSpec:
        """What an operator bound to data of this shape will be."""
        return OperatorSpec(
            self.rank_for(n_rows, n_features),
            # A training set is fitted by itself, whatever suits the matrix of all rows.
            None if is_per_fold else self.methods,
            is_per_fold,
            # A kernel of each training set is that of a refit, approximate or not.
            self.is_approximate and not is_per_fold,
            self.is_in_memory,
        )

    def check_order(self, order: Order) -> None:  # noqa: B027
        """Raise if the structure does not allow this order; most allow any."""

    def check(self, n: int, weights: Array, sets: Sequence[Index]) -> None:  # noqa: B027
        """Raise if the structure does not suit the weights or the sets to hold out.

        Called before any work; most structures suit any.
        """

    @abstractmethod
    def bind(self, kernel: Kernel, X: Matrix) -> SupportsMatmul:
        """The operator of ``kernel`` on the rows of ``X``."""

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> SupportsMatmul:
        """``bind``, given the base matrix of the kernel; most structures have no use for it."""
        return self.bind(kernel, X)

    def bind_rows(self, kernel: Kernel, X: Matrix) -> SupportsMatmul:
        """``bind``, for what takes sums over the rows; features are then made batch by batch."""
        return self.bind(kernel, X)

    needs_base: ClassVar[bool] = False
    """Whether the operator comes from the base matrix, which kernels may share."""

    @abstractmethod
    def rank_for(self, n_rows: int, n_features: int) -> int:
        """The rank of an operator bound to data of this shape."""

    def needs_blocks(self, n_rows: int, n_features: int) -> bool:
        """Whether features are more than a batch of rows, so that sums over them save memory."""
        return False

    def to_fit(self) -> Structure:
        """The structure of the model that is kept and predicts; by default this one."""
        return self

    def get_params(self, deep: bool = True) -> Params:
        """The parameters by name, so that scikit-learn sees them as nested ones."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def with_params(self, **params: object) -> Structure:
        """The same structure with some parameters changed."""
        unknown = sorted(set(params) - set(self.get_params()))
        if unknown:
            raise ValueError(f"{self} has no parameters {unknown}; use {sorted(self.get_params())}")
        return type(self)(**{**self.get_params(), **params})

    def seeded(self, draw: Callable[[], int]) -> Structure:
        """The same structure with a number for its seed, drawn unless it has one of its own.

        The number of a generator is drawn from a copy: with the generator itself every kernel and
        every worker would find another state.
        """
        changes: Params = {}
        for name, value in self.get_params().items():
            if isinstance(value, Structure):
                changes[name] = value.seeded(draw)
            elif name == "random_state" and value is None:
                changes[name] = draw()
            elif isinstance(value, np.random.RandomState):
                changes[name] = int(deepcopy(value).randint(2**31 - 1))
        return self.with_params(**changes) if changes else self


# What ``operator=`` takes.
OperatorChoice: TypeAlias = Literal["auto", "dense"] | Structure
