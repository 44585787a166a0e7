"""How kernel matrices are represented: what users pass as ``operator=``, and what it promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import fields
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from everyfold.kernels import Kernel
from everyfold.operators.base import Multiplies, Outline
from everyfold.types import Array, Index, Matrix, Order, Params


class Structure(ABC):
    """How to represent the kernel matrix of the rows: what users pass as ``operator=``."""

    methods: ClassVar[tuple[str, ...] | None] = None
    is_approximate: ClassVar[bool] = False
    is_held: bool = True
    reads_sources: bool = False
    """Whether rows may come from a source, of which a sample is looked at."""
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
            self.is_held,
        )

    def check_order(self, order: Order) -> None:  # noqa: B027
        """Raise if the structure does not allow this order; most allow any."""

    def check(self, n: int, weights: Array, sets: Sequence[Index]) -> None:  # noqa: B027
        """Raise if the structure does not suit the weights or the sets to hold out.

        Called before any work; most structures suit any.
        """

    @abstractmethod
    def bind(self, kernel: Kernel, X: Matrix) -> Multiplies:
        """The operator of ``kernel`` on the rows of ``X``."""

    def bind_shared(self, kernel: Kernel, X: Matrix, base: Array) -> Multiplies:
        """``bind``, given the base matrix of the kernel; most structures have no use for it."""
        return self.bind(kernel, X)

    def bind_rows(self, kernel: Kernel, X: Matrix) -> Multiplies:
        """``bind``, for what takes sums over the rows; features are then made batch by batch."""
        return self.bind(kernel, X)

    needs_base: ClassVar[bool] = False
    """Whether the operator comes from the base matrix, which kernels may share."""

    @abstractmethod
    def rank_for(self, n_rows: int, n_features: int) -> int:
        """The rank of an operator bound to data of this shape."""

    def is_long(self, n_rows: int, n_features: int) -> bool:
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


OperatorChoice: TypeAlias = Literal["auto", "dense"] | Structure
"""What ``operator=`` takes."""
