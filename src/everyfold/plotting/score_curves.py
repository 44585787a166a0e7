"""Scores over one parameter, over two, and over the rank of the kernel matrix.

Curves have one line for each candidate or combination of the other parameters. A grid of two
parameters is drawn as cells, a random search as points, in colours that resolve the scores near the
best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.cm import ScalarMappable

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


# -- The surface over two parameters ---------------------------------------------------------------

# The colours begin so many standard errors below the best, so that they resolve its neighbourhood;
# at this quantile of the scores where there are no errors.
ERRORS_COLOURED, LOWEST_QUANTILE = 10.0, 0.05


@dataclass(kw_only=True, eq=False, repr=False)
class CVSurfaceDisplay:
    """The cross-validation surface over two parameters.

    Create it with :meth:`from_search`.

    Parameters
    ----------
    x, y : arrays of shape (n_x,) and (n_y,)
        Values of the two parameters, ascending.
    scores, errors : arrays of shape (n_y, n_x)
        Mean test scores and their standard errors; NaN where there is no candidate. If most entries
        are NaN, as after a random search, candidates are drawn as points.
    best : tuple (column, row), optional
        The winner.
    x_name, y_name, metric : str
    label : str, optional
        The name of the metric on the plot; ``metric`` if None.

    Attributes
    ----------
    ax_, figure_, mesh_, colorbar_
        Objects of matplotlib, available after plotting.

    Examples
    --------
    >>> from everyfold import CVSurfaceDisplay, FastGridSearchCV, LSSVR
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"alpha": [0.01, 0.1, 1.0], "gamma": [1.0, 10.0]}
    >>> search = FastGridSearchCV(LSSVR(), grid).fit(X, y)
    >>> display = CVSurfaceDisplay.from_search(search)  # doctest: +SKIP
    """

    x: Array
    y: Array
    scores: Array
    errors: Array
    best: tuple[int, int] | None
    x_name: str
    y_name: str
    metric: str
    label: str | None = None

    def __post_init__(self) -> None:
        self.label = self.metric if self.label is None else self.label

    @classmethod
    def from_search(
        cls,
        search: Search,
        *,
        x: str | None = None,
        y: str | None = None,
        metric: str | None = None,
        ax: Axes = None,
        cmap: str = "viridis",
    ) -> CVSurfaceDisplay:
        """Draw the surface of a fitted search.

        Parameters
        ----------
        search : fitted search
            A search of this library or of scikit-learn.
        x, y : str, optional
            The two parameters; by default the two numeric parameters that were searched. Over all
            other parameters the best candidate is shown.
        metric : str, optional
            Which score, if there are several; by default the one that ``refit`` names.
        ax : matplotlib Axes, optional
        cmap : str, default="viridis"

        Returns
        -------
        display : CVSurfaceDisplay
        """
        table = ScoreTable.of(search, metric)
        x, y = _two_parameters(table, x, y)
        columns = [np.asarray(table.column(name), dtype=np.float64) for name in (x, y)]
        (xs, i), (ys, j) = (np.unique(column, return_inverse=True) for column in columns)
        scores = np.full((len(ys), len(xs)), np.nan)
        errors = np.full_like(scores, np.nan)
        for k in np.argsort(table.mean, kind="stable"):  # the best is written last
            if np.isfinite(table.mean[k]):
                scores[j[k], i[k]], errors[j[k], i[k]] = table.mean[k], table.error[k]
        best = None if table.best is None else (int(i[table.best]), int(j[table.best]))
        display = cls(
            x=xs,
            y=ys,
            scores=scores,
            errors=errors,
            best=best,
            x_name=x,
            y_name=y,
            metric=table.metric,
            label=table.label,
        )
        return display.plot(ax=ax, cmap=cmap)

    @property
    def near_best(self) -> NDArray[np.bool_]:
        """The candidates within one standard error of the winner's score."""
        if self.best is None:
            return np.zeros(self.scores.shape, dtype=bool)
        column, row = self.best
        limit = self.scores[row, column] - self.errors[row, column]
        near: NDArray[np.bool_] = np.nan_to_num(self.scores, nan=-np.inf) >= limit
        return near

    def plot(self, *, ax: Axes = None, cmap: str = "viridis") -> CVSurfaceDisplay:
        """Draw the plot and return the display."""
        ax = new_axes() if ax is None else ax
        for values, scale in ((self.x, ax.set_xscale), (self.y, ax.set_yscale)):
            scale("log" if is_log_spaced(values) else "linear")
        low, is_cut = self._lowest()
        mesh = (self._points if self.is_scattered else self._cells)(ax, cmap, low)
        handles = []
        if self.best is not None:
            region = [self._mark_near_best(ax)] if self.has_errors else []
            handles = [self._star(ax), *region]  # the star is drawn above the border
        ax.set(xlabel=short(self.x_name), ylabel=short(self.y_name))
        if handles:
            ax.figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
        self.colorbar_ = ax.figure.colorbar(
            mesh, ax=ax, label=f"mean test {self.label}", extend="min" if is_cut else "neither"
        )
        self.ax_, self.figure_, self.mesh_ = ax, ax.figure, mesh
        return self

    @property
    def has_errors(self) -> bool:
        """Whether scores vary over folds; not if there is one fit, or one score of all rows."""
        return bool(np.nanmax(self.errors, initial=0.0) > 0.0)

    @property
    def is_scattered(self) -> bool:
        """Whether candidates are points, as less than half of the table has one."""
        return bool(np.isfinite(self.scores).mean() < 0.5)

    def _lowest(self) -> tuple[float | None, bool]:
        """Where the colours begin, so that they resolve the region of the best.

        That is ten standard errors below it, or the lowest score; a failed or hopeless corner must
        not flatten the colours of all others.
        """
        if not np.isfinite(self.scores).any():
            return None, False
        lowest, top = (
            float(np.nanmin(self.scores)),
            np.unravel_index(int(np.nanargmax(self.scores)), self.scores.shape),
        )
        low = float(self.scores[top] - ERRORS_COLOURED * self.errors[top])
        if not low < self.scores[top]:
            low = float(np.nanquantile(self.scores, LOWEST_QUANTILE))
        return max(low, lowest), low > lowest

    def _points(self, ax: Axes, cmap: str, low: float | None) -> ScalarMappable:
        """Candidates of a random search."""
        order = np.argsort(self.scores, axis=None)  # NaN come last, and the best on top
        rows, columns = np.unravel_index(
            order[: int(np.isfinite(self.scores).sum())], self.scores.shape
        )
        near = self.near_best[rows, columns]
        points: ScalarMappable = ax.scatter(
            self.x[columns],
            self.y[rows],
            c=self.scores[rows, columns],
            s=np.where(near, 60.0, 36.0),
            cmap=cmap,
            vmin=low,
            edgecolors=np.where(near, "black", "0.7"),
        )
        ax.margins(0.08)
        return points

    def _cells(self, ax: Axes, cmap: str, low: float | None) -> ScalarMappable:
        """Candidates of a grid."""
        how = {"cmap": cmap, "vmin": low, "edgecolors": "face", "linewidth": 0.5}  # no seams
        mesh: ScalarMappable = ax.pcolormesh(_edges(self.x), _edges(self.y), self.scores, **how)
        ax.set_facecolor("0.85")
        return mesh

    def _mark_near_best(self, ax: Axes) -> Artist:
        """Draw the border of the one-standard-error region; its entry in the legend."""
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        label = "within one std. error"
        if self.is_scattered:  # points have black edges already
            ring: Artist = ax.scatter([], [], s=60.0, c="none", edgecolors="black", label=label)
            return ring
        lines = _border(self.near_best, _edges(self.x), _edges(self.y))
        # Black on white is seen on every colour; #010101 stays black in a dark report.
        ax.add_collection(LineCollection(lines, colors="white", linewidths=2.5))
        ax.add_collection(LineCollection(lines, colors="#010101", linewidths=1.0))
        return Line2D([], [], color="0.5", linewidth=1.5, label=label)

    def _star(self, ax: Axes) -> Artist:
        assert self.best is not None
        column, row = self.best
        star: Artist
        (star,) = ax.plot(
            self.x[column],
            self.y[row],
            marker="*",
            markersize=15,
            linestyle="none",
            color="red",
            markeredgecolor="white",
            label="winner",
        )
        return star


def _two_parameters(table: ScoreTable, x: str | None, y: str | None) -> tuple[str, str]:
    numeric = table.numeric()
    for name in (x, y):
        if name is not None and name not in numeric:
            table.column(name)
            raise ValueError(
                f"parameter {name!r} is not numeric with several values; use two of {numeric}"
            )
    free = [name for name in numeric if name not in (x, y)]
    needed = (x is None) + (y is None)
    if len(free) < needed:
        raise ValueError(
            f"a surface needs two numeric parameters with several values, but only {numeric} "
            "were searched; use CVCurveDisplay for one parameter"
        )
    first = x if x is not None else free.pop(0)
    return first, y if y is not None else free.pop(0)


def _edges(values: Array) -> Array:
    """Borders of cells around the values, in the middle on the axis they will be drawn on."""
    is_log = is_log_spaced(values)
    points = np.log(values) if is_log else values
    middle = 0.5 * (points[:-1] + points[1:])
    ends = [2 * points[0] - middle[0]], [2 * points[-1] - middle[-1]]
    edges = np.concatenate([ends[0], middle, ends[1]])
    return np.exp(edges) if is_log else edges


def _border(inside: NDArray[np.bool_], x: Array, y: Array) -> list[list[tuple[float, float]]]:
    """Line segments between cells that are inside a region and those that are not."""
    padded = np.pad(inside, 1)
    across = padded[1:-1, 1:] != padded[1:-1, :-1]
    along = padded[1:, 1:-1] != padded[:-1, 1:-1]
    vertical = [[(x[j], y[i]), (x[j], y[i + 1])] for i, j in np.argwhere(across)]
    horizontal = [[(x[j], y[i]), (x[j + 1], y[i])] for i, j in np.argwhere(along)]
    return vertical + horizontal
