"""Scores over one parameter, and over the rank of the kernel matrix.

Both plots have one line for each candidate or combination of the other parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everyfold._typing import Array, Params, Search
from everyfold.plotting.score_table import (
    Axes,
    ScoreTable,
    is_log_spaced,
    new_axes,
    params_words,
    plain,
    pyplot,
    short,
)

# With more lines than that only the best has a band, and their names stand beside the picture.
MOST_BANDS = 6

# The axis ends so many standard errors below the best: far enough to see how scores fall, and near
# enough to see differences between good ones.
ERRORS_SHOWN = 20.0


@dataclass(kw_only=True, eq=False, repr=False)
class CVCurveDisplay:
    """Scores over one parameter, with bands of one standard error.

    There is one line for each combination of the other parameters. Create it with
    :meth:`from_search`.

    Parameters
    ----------
    lines : list of tuples (label, x, scores, errors)
    best : tuple (x, score), optional
        The winner.
    x_name, metric : str
    label : str, optional
        The name of the metric on the plot; ``metric`` if None.
    order : sequence of int, optional
        The rank of each line by the value of its parameter, which determines its colour.

    Attributes
    ----------
    ax_, figure_, lines_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import CVCurveDisplay, FastGridSearchCV, LSSVR
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"alpha": [0.01, 0.1, 1.0], "gamma": [1.0, 10.0]}
    >>> search = FastGridSearchCV(LSSVR(), grid).fit(X, y)
    >>> display = CVCurveDisplay.from_search(search, x="alpha")  # doctest: +SKIP
    """

    lines: list[tuple[str, Array, Array, Array]]
    best: tuple[float, float] | None
    x_name: str
    metric: str
    label: str | None = None
    order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        self.label = self.metric if self.label is None else self.label

    @classmethod
    def from_search(
        cls,
        search: Search,
        *,
        x: str | None = None,
        metric: str | None = None,
        max_lines: int = 16,
        ax: Axes = None,
    ) -> CVCurveDisplay:
        """Draw the curves of a fitted search.

        Parameters
        ----------
        search : fitted search
            A search of this library or of scikit-learn.
        x : str, optional
            The parameter on the x axis; by default the ridge.
        metric : str, optional
            Which score, if there are several; by default the one that ``refit`` names.
        max_lines : int, default=16
            The maximum number of combinations of the other parameters to show; the best are shown.
            If they differ in one number only, colours and labels are in the order of this number.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : CVCurveDisplay
        """
        table = ScoreTable.of(search, metric)
        numeric = table.numeric()
        if x is None and not numeric:
            raise ValueError(
                "a curve needs a numeric parameter with several values, but none was searched; "
                "search alpha or C, for example"
            )
        x = numeric[0] if x is None else x
        if x not in numeric:
            table.column(x)
            raise ValueError(
                f"x={x!r} is not a numeric parameter with several values; use one of {numeric}"
            )
        values = np.asarray(table.column(x), dtype=np.float64)
        best = None
        if table.best is not None:
            best = float(values[table.best]), float(table.mean[table.best])
        lines = _lines(table, x, values)[:max_lines]
        order = _order(table, x, [label for label, *_ in lines])
        names = {"x_name": x, "metric": table.metric, "label": table.label}
        display = cls(lines=lines, best=best, order=order, **names)
        return display.plot(ax=ax)

    def _show_the_best(self, ax: Axes) -> None:
        """Show what is near the best: hopeless scores must not flatten the lines of all others."""
        scores = np.concatenate([scores for _, _, scores, _ in self.lines])
        errors = np.concatenate([errors for *_, errors in self.lines])
        if not np.isfinite(scores).any():
            return
        top = int(np.nanargmax(scores))
        low = scores[top] - ERRORS_SHOWN * errors[top]
        lowest = np.nanmin(np.where(np.isfinite(scores), scores - errors, np.nan))
        if lowest < low < scores[top]:
            ax.set_ylim(low, scores[top] + 2.0 * errors[top])

    def plot(self, *, ax: Axes = None) -> CVCurveDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        order, colours = list(range(len(self.lines))), [None] * len(self.lines)
        if self.order is not None:
            order = list(self.order)
            steps = np.linspace(0.25, 0.92, max(len(self.lines), 2))
            colours = [pyplot().get_cmap("viridis")(steps[place]) for place in order]
        self.lines_ = []
        for k, (label, x, scores, errors) in enumerate(self.lines):
            how = {"marker": "o", "markersize": 3, "color": colours[k], "zorder": 3 - (k > 0)}
            (line,) = ax.plot(x, scores, label=label or None, **how)
            self.lines_.append(line)
            if k == 0 or len(self.lines) <= MOST_BANDS:
                colour = line.get_color()
                ax.fill_between(x, scores - errors, scores + errors, alpha=0.15, color=colour)
        if self.best is not None:
            ax.plot(*self.best, "*", markersize=14, color="red", markeredgecolor="white", zorder=5)
        everything = np.unique(np.concatenate([x for _, x, _, _ in self.lines]))
        ax.set_xscale("log" if is_log_spaced(everything) else "linear")
        has_errors = any(np.nanmax(errors, initial=0.0) > 0.0 for *_, errors in self.lines)
        bands = " ± one std. error" if has_errors else ""
        ax.set(xlabel=short(self.x_name), ylabel=f"mean test {self.label}{bands}")
        if any(label for label, *_ in self.lines):
            handles = [self.lines_[k] for k in np.argsort(order)]
            place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            place = place if len(handles) > MOST_BANDS else {"loc": "best"}
            ax.legend(handles=handles, frameon=False, fontsize="small", **place)
        self._show_the_best(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _order(table: ScoreTable, x: str, labels: Sequence[str]) -> list[int] | None:
    """The places of lines in the order of the one number they differ in, if they do."""
    others = [n for n in table.names if n != x and len(set(map(str, table.column(n)))) > 1]
    if len(others) != 1 or others[0] not in table.numeric():
        return None
    values = {_label_of(params, x): params[others[0]] for params in table.results["params"]}
    ranks = np.argsort(np.argsort([values[label] for label in labels]))
    return [int(rank) for rank in ranks]


def _label_of(params: Params, x: str) -> str:
    """A candidate's other parameters in words."""
    others = {short(name): value for name, value in params.items() if name != x}
    return ", ".join(f"{name}={_brief(value)}" for name, value in others.items())


def _lines(table: ScoreTable, x: str, values: Array) -> list[tuple[str, Array, Array, Array]]:
    """One line for each combination of the other parameters, the best first."""
    groups: dict[str, list[int]] = {}
    for k, params in enumerate(table.results["params"]):
        groups.setdefault(_label_of(params, x), []).append(k)
    lines = []
    for label, members in groups.items():
        chosen = np.array(members)[np.argsort(values[members])]
        lines.append((label, values[chosen], table.mean[chosen], table.error[chosen]))

    def best_score(line: tuple[str, Array, Array, Array]) -> float:
        return float(np.max(np.nan_to_num(line[2], nan=-np.inf)))

    return sorted(lines, key=best_score, reverse=True)


def _brief(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# -- Scores of a search that starts with low ranks, over the rank ---------------------------------


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
        table, rungs = ScoreTable.of(search, metric), search.plan_.rungs
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
        lines = []
        for k in best:
            ranks = sorted(several[k])
            scores = np.array([several[k][rank] for rank in ranks])
            lines.append((params_words(params[k]), np.array(ranks, dtype=np.float64), scores))
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
            if not ticks or rank > 1.2 * ticks[-1]:  # labels of nearer ranks would overlap
                ticks.append(rank)
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        full = "; the dotted line is the full matrix"
        ax.set(xlabel=f"rank of the kernel matrix{full}", ylabel=f"mean test {self.metric}")
        ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        self.ax_, self.figure_ = ax, ax.figure
        return self
