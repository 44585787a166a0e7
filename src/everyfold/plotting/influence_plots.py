"""The largest effects of deleting rows, groups or columns, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from everyfold._typing import AnyArray, Array
from everyfold.plotting.score_table import Axes, new_axes, plain

_NAMES = {"rows": "row", "columns": "column", "permutations": "permuted column"}


class Influences(Protocol):
    """What is read of the result of :func:`everyfold.influence`."""

    @property
    def effect(self) -> Array:
        """The effects."""

    @property
    def labels(self) -> AnyArray:
        """What each is of."""

    @property
    def of(self) -> str:
        """What was deleted."""


@dataclass(kw_only=True, eq=False, repr=False)
class InfluenceDisplay:
    """The rows, groups or columns whose deletion changes the score most.

    Create it with :meth:`from_influence`.

    Parameters
    ----------
    effect : array of shape (n_units,)
    labels : array of shape (n_units,)
    name : str
        What is deleted.
    n_shown : int

    Attributes
    ----------
    ax_, figure_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import LSSVR, influence
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> display = influence(LSSVR(gamma=1.0), X, y).plot()  # doctest: +SKIP
    """

    effect: Array
    labels: AnyArray
    name: str
    n_shown: int = 20

    @classmethod
    def from_influence(
        cls, influence: Influences, *, n_shown: int = 20, ax: Axes = None
    ) -> InfluenceDisplay:
        """Draw the result of :func:`everyfold.influence`.

        Parameters
        ----------
        influence : Influence
        n_shown : int, default=20
            The largest number of bars, which are those of the largest effects in either direction.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : InfluenceDisplay
        """
        if n_shown < 1:
            raise ValueError(f"n_shown={n_shown} is not allowed; use a number from 1 on")
        effect, labels = influence.effect, influence.labels
        name = _NAMES[influence.of]
        return cls(effect=effect, labels=labels, name=name, n_shown=n_shown).plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> InfluenceDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        known = np.flatnonzero(np.nan_to_num(self.effect))  # no bars of what changes nothing
        largest = known[np.argsort(-np.abs(self.effect[known]), kind="stable")[: self.n_shown]]
        shown = largest[np.argsort(self.effect[largest], kind="stable")]
        effect = self.effect[shown]
        colours = np.where(effect > 0.0, "C3", "C0")
        ax.barh(np.arange(len(shown)), effect, color=colours.tolist())
        ax.set_yticks(np.arange(len(shown)), [plain(label, 20) for label in self.labels[shown]])
        ax.axvline(0.0, color="black", linewidth=1.0)
        ax.set(xlabel=f"score without the {self.name} - score with it", ylabel=self.name)
        self.ax_, self.figure_ = ax, ax.figure
        return self
