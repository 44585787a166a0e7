"""The cross-validation surface over two parameters.

A grid is drawn as cells, a random search as points. Colours resolve the scores near the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from everyfold._typing import Array, Search
from everyfold.plotting.score_table import Axes, ScoreTable, is_log_spaced, new_axes, short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.cm import ScalarMappable


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
