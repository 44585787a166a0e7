"""Where the random choices of a search begin: whole numbers, fixed before the work."""

from __future__ import annotations

from functools import cached_property
from numbers import Integral
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from everyfold.models.adapters import is_ours, read_estimator
from everyfold.models.pipelines import final_step
from everyfold.operators import Nystrom, Structure
from everyfold.types import Estimator, RandomState

LARGEST_SEED = 2**31 - 1


class Seeds:
    """The seeds of one search, drawn once, so that it matters not who does the work in what order.

    Parameters
    ----------
    random_state : int, RandomState or None
        A whole number is the seed itself, so that a search draws what an operator with that seed
        would draw.
    """

    def __init__(self, random_state: RandomState) -> None:
        self._random_state = random_state

    @cached_property
    def of_operators(self) -> int:
        """For operators that have none; NumPy's own state gives it if nobody else does."""
        given = self._random_state
        if isinstance(given, Integral):
            return int(given)
        return int(check_random_state(given).randint(LARGEST_SEED))

    @property
    def are_drawn(self) -> bool:
        """Whether something needed the seed of operators."""
        return "of_operators" in vars(self)

    @cached_property
    def own(self) -> int:
        """For what the search chooses itself; 0 unless asked for."""
        return 0 if self._random_state is None else self.of_operators

    def plant(self, value: Any) -> Any:
        """A parameter, or a copy of it whose operator has a seed."""
        if isinstance(value, Structure):
            return value.seeded(lambda: self.of_operators)
        if isinstance(value, BaseEstimator) and not isinstance(value, type):
            value = clone(value)
            self.plant_in(value)
        return value

    def plant_in(self, estimator: Estimator) -> None:
        """Seed the operator of an estimator, or of the last step of a Pipeline."""
        final = final_step(estimator)
        if isinstance(getattr(final, "operator", None), Structure):
            final.set_params(operator=self.plant(final.operator))

    def plant_where_drawn(self, estimator: Estimator, n_rows: int | None) -> None:
        """Seed the operator; where "auto" draws landmarks, have it draw those that were scored.

        ``n_rows`` is None for rows that never fit in memory.
        """
        self.plant_in(estimator)
        final = final_step(estimator)
        if self.own != 0 and is_ours(final) and read_estimator(final).draws_landmarks(n_rows):
            final.set_params(operator=Nystrom(random_state=self.own))
