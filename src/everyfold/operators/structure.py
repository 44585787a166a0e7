"""How kernel matrices are represented: what users pass as ``operator=``, and what it promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from everyfold.kernels import Kernel
from everyfold.operators.base import KernelOperator
from everyfold.types import Array, Index, Matrix, Order, Params


@dataclass(frozen=True)
class Outline:
    """What is known of an operator before it exists.

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
    needs_constant_curvature : bool
        Whether the structure is lost where the curvature of the loss differs between rows.
    is_held : bool
        Whether the matrix is in memory, and not computed anew for every product.
    is_long : bool
        Whether it has features that are too many to be held, and rows that can be summed over.
    response_rank : int or None
        The rank of what stands in for its responses; None where they are its own.
    only_splits : bool
        Whether models predict by another matrix than they are fitted with, so that held-out values
        follow from fits of the training rows alone.
    """

    rank: int
    methods: tuple[str, ...] | None = None
    is_per_fold: bool = False
    is_approximate: bool = False
    needs_constant_curvature: bool = False
    is_held: bool = True
    is_long: bool = False
    response_rank: int | None = None
    only_splits: bool = False


class Structure(ABC):
    """How to represent the kernel matrix of data: what users pass as ``operator=``."""

    methods: ClassVar[tuple[str, ...] | None] = None
    is_approximate: ClassVar[bool] = False
    needs_constant_curvature: ClassVar[bool] = False
    is_held: bool = True
    per_fold: bool = False
    """Whether every training set is to have an operator of its own."""

    def outline(self, n_rows: int, n_features: int, *, is_per_fold: bool = False) -> Outline:
        """What an operator bound to data of this shape will be."""
        return Outline(
            self.rank_for(n_rows, n_features),
            # A training set is fitted by itself, whatever suits the matrix of all rows.
            None if is_per_fold else self.methods,
            is_per_fold,
            # A kernel of each training set is that of a refit, approximate or not.
            self.is_approximate and not is_per_fold,
            self.needs_constant_curvature,
            self.is_held,
        )

    def check_order(self, order: Order) -> None:  # noqa: B027
        """Raise if the structure does not allow this order; most allow any."""

    def check(self, n: int, weights: Array, sets: Sequence[Index]) -> None:  # noqa: B027
        """Raise if the structure does not suit the weights or the sets to hold out.

        Called before any work; most structures suit any.
        """

    @abstractmethod
    def bind(self, kernel: Kernel, X: Matrix) -> KernelOperator:
        """The operator of ``kernel`` on the rows of ``X``."""

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> KernelOperator:
        """``bind``, given the base matrix of the kernel; most structures have no use for it."""
        return self.bind(kernel, X)

    needs_base: ClassVar[bool] = False
    """Whether the operator comes from the base matrix, which kernels may share."""

    @abstractmethod
    def rank_for(self, n_rows: int, n_features: int) -> int:
        """The rank of an operator bound to data of this shape."""

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


OperatorChoice: TypeAlias = Literal["auto", "dense"] | Structure
"""What ``operator=`` takes."""
