"""Scores of a search that starts with low ranks, over the rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everyfold.display.candidates import params_words
from everyfold.display.table import Axes, Table, new_axes, plain, pyplot
from everyfold.types import Array, Search


@dataclass(kw_only=True, eq=False, repr=False)
class RankCurveDisplay:
    """Mean scores of candidates over the rank of their kernel matrix.

    For a search that starts with low ranks, this shows whether the last rank was enough: a line
    that is flat at its end has converged. Create it with :meth:`from_search`.

    Parameters
    ----------
    lines : list of tuples (label, ranks, scores)
        One line per candidate, the best first.
    metric : str
    n_rows : int
        The rank of the full matrix.

    Attributes
    ----------
    ax_, figure_, lines_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import FastGridSearchCV, LSSVR, RankCurveDisplay
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(3000, random_state=0)
    >>> search = FastGridSearchCV(LSSVR(), {"gamma": [0.1, 1.0]})
    >>> display = RankCurveDisplay.from_search(search.fit(X, y))  # doctest: +SKIP
    """

    lines: list[tuple[str, Array, Array]]
    metric: str
    n_rows: int

    @classmethod
    def from_search(
        cls, search: Search, *, max_lines: int = 8, ax: Axes = None
    ) -> RankCurveDisplay:
        """Draw the candidates that a fitted search evaluated at several ranks.

        Parameters
        ----------
        search : fitted FastGridSearchCV or FastRandomizedSearchCV
            Some of its candidates must have been evaluated at several ranks.
        max_lines : int, default=8
            The maximum number of candidates to show, those with the best last score.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : RankCurveDisplay
        """
        metric = search.refit if search.multimetric_ else None
        table, rungs = Table.of(search, metric), search.plan_.rungs
        found: dict[int, dict[int, float]] = {}
        for number, rank, score in rungs:
            found.setdefault(number, {})[rank] = score
        several = {k: own for k, own in found.items() if len(own) > 1}
        if not several:
            raise ValueError(
                "no candidate was evaluated at several ranks; only searches with squared loss "
                "and operator='auto' start with low ranks, if full kernel matrices would take "
                "long"
            )
        best = sorted(several, key=lambda k: -several[k][max(several[k])])[:max_lines]
        params = table.results["params"]
        lines = [(params_words(params[k]), *_path(several[k])) for k in best]
        display = cls(lines=lines, metric=table.label, n_rows=search.plan_.rows)
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> RankCurveDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        shades = np.linspace(0.25, 0.92, max(len(self.lines), 2))
        self.lines_ = []
        for k, (label, ranks, scores) in enumerate(self.lines):
            colour = pyplot().get_cmap("viridis")(shades[k])
            how = {"marker": "o", "markersize": 4, "color": colour, "zorder": 3 - (k > 0)}
            self.lines_ += ax.plot(ranks, scores, label=plain(label), **how)
        ax.axvline(self.n_rows, color="0.6", linestyle=":", linewidth=1.0)
        ax.set_xscale("log", base=2)
        ticks: list[int] = []
        for rank in sorted({int(rank) for _, ranks, _ in self.lines for rank in ranks}):
            if not ticks or rank > 1.2 * ticks[-1]:
                ticks.append(rank)
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        full = "; the dotted line is the full matrix"
        ax.set(xlabel=f"rank of the kernel matrix{full}", ylabel=f"mean test {self.metric}")
        ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _path(scores: dict[int, float]) -> tuple[Array, Array]:
    """Ranks in their order, and their scores."""
    ranks = np.array(sorted(scores), dtype=np.float64)
    return ranks, np.array([scores[int(rank)] for rank in ranks])
