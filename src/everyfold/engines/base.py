"""Engines: how held-out values of models that differ in their ridge only come about.

An engine is the seam between a search and the mathematics. It gets a bound kernel, the models that
share everything but the ridge, and the folds; it gives one record of held-out values for each
model. To add one, derive from :class:`Engine` and put it into ``ENGINES``
(``engines/__init__.py``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everyfold.criteria import Folds, OutOfFold
from everyfold.model import Model
from everyfold.operators.base import Array, KernelOperator
from everyfold.targets import Target


@dataclass(frozen=True)
class Bench:
    """What all models of a search are judged on.

    Attributes
    ----------
    target : Target
    weights : array of shape (n,)
        Sample weights.
    folds : Folds
    order : float or {"auto", "exact"}
        As in :class:`everyfold.FastGridSearchCV`.
    threads : int
        How many an engine may use that shares the folds out (:meth:`Engine.shares_out`).
    needs_values : bool
        Whether held-out values are read as such, or compared with each other. If not, only the
        labels they predict are, for which their signs are enough.
    """

    target: Target
    weights: Array
    folds: Folds
    order: Any = "auto"
    threads: int = 1
    needs_values: bool = True


@dataclass(frozen=True)
class Method:
    """How an engine went about its work, for the plan.

    Attributes
    ----------
    name : str
    words : str
        The same as a phrase.
    seconds : float
        What it should have cost.
    memory : int
        Bytes at work.
    is_approximate : bool
        Whether the values differ from those of refits by more than rounding or a solver's
        tolerance.
    is_of_another_model : bool
        Whether they are, as was asked for, those of another model than the one that is refitted,
        so that refits cannot confirm them.
    """

    name: str
    words: str
    seconds: float
    memory: int
    is_approximate: bool = False
    is_of_another_model: bool = False


@dataclass(frozen=True)
class Answer:
    """One record for each model, and the method they came by."""

    records: Sequence[OutOfFold]
    method: Method


class Engine(ABC):
    """Held-out values of models that share everything but the ridge."""

    @abstractmethod
    def suits(self, model: Model) -> bool:
        """Whether the engine knows the model's loss."""

    @abstractmethod
    def check(self, model: Model, order: Any) -> None:
        """Raise if the engine cannot do what is asked; called before any work."""

    def shares_out(self, model: Model, bench: Bench) -> bool:
        """Whether the folds of one kernel are shared out over the threads of the bench."""
        return False

    @abstractmethod
    def plan(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Method:
        """How ``evaluate`` would go about it, without doing it."""

    @abstractmethod
    def evaluate(self, models: Sequence[Model], operator: KernelOperator, bench: Bench) -> Answer:
        """The held-out values of every model, in the order given."""


def evaluate(
    engine: Engine, models: Sequence[Model], operator: KernelOperator, bench: Bench
) -> Answer:
    """The held-out values of every model; those of an approximate kernel are never called exact."""
    answer = engine.evaluate(models, operator, bench)
    if not operator.is_approximation:
        return answer
    records = [replace(r, is_exact=np.zeros_like(r.is_exact)) for r in answer.records]
    return Answer(records, replace(answer.method, is_of_another_model=True))


def is_finite(order: Any) -> bool:
    """Whether an order is one of the finite influence series."""
    return not isinstance(order, str) and float(order) < math.inf


def join(parts: Sequence[OutOfFold], values: Array) -> OutOfFold:
    """Records of parts of a target as one, with these values."""
    return OutOfFold(
        values,
        np.logical_and.reduce([part.is_exact for part in parts]),
        np.maximum.reduce([part.spectral_radius for part in parts]),
        np.maximum.reduce([part.condition for part in parts]),
    )
