"""Pictures of a finished search, in scikit-learn's Display style. matplotlib is needed to draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from everyfold.types import AnyArray, Array, Params, Search

_RIDGES = ("alpha", "C")


Axes: TypeAlias = Any
"""Axes of matplotlib, which need not be installed."""


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays need matplotlib, which is not installed; run pip install 'everyfold[plot]'"
        ) from error
    return plt


@dataclass(frozen=True)
class _Table:
    """The numbers of a search that are worth a picture."""

    results: Params
    metric: str
    best: int | None
    n_splits: int

    @classmethod
    def of(cls, search: Search, metric: str | None) -> _Table:
        check_is_fitted(search, "cv_results_")
        results = search.cv_results_
        if metric is None:
            chosen = search.refit if isinstance(search.refit, str) else None
            metric = chosen if search.multimetric_ else "score"
        if f"mean_test_{metric}" not in results:
            names = [key.removeprefix("mean_test_") for key in results if "mean_test_" in key]
            raise ValueError(f"metric={metric!r} is not in cv_results_; use one of {names}")
        best = getattr(search, "best_index_", None)
        return cls(results, str(metric), best, search.n_splits_)

    @property
    def mean(self) -> Array:
        mean: Array = self.results[f"mean_test_{self.metric}"]
        return mean

    @property
    def error(self) -> Array:
        """Standard errors of the means over the folds."""
        spread: Array = self.results[f"std_test_{self.metric}"]
        # std_test_score divides by the number of folds; a standard error of a mean does not.
        error: Array = spread / np.sqrt(max(self.n_splits - 1, 1))
        return error

    def column(self, name: str) -> AnyArray:
        if f"param_{name}" not in self.results:
            known = [key.removeprefix("param_") for key in self.results if key.startswith("param_")]
            raise ValueError(f"parameter {name!r} was not searched; use one of {known}")
        column: AnyArray = np.ma.filled(self.results[f"param_{name}"].astype(object), np.nan)
        return column

    def numeric(self) -> list[str]:
        """The searched parameters that are numbers throughout and take several values."""
        names = [key.removeprefix("param_") for key in self.results if key.startswith("param_")]
        return [name for name in names if _is_numeric(self.column(name))]


def _is_numeric(values: AnyArray) -> bool:
    if any(isinstance(value, bool | np.bool_) for value in values):
        return False
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite(numbers).all()) and len(np.unique(numbers)) > 1


def _is_log_spaced(values: Array) -> bool:
    """Whether values are more evenly spread by their logarithms than as they are."""
    if (values <= 0.0).any() or len(values) < 3:
        return bool((values > 0.0).all() and values.max() / values.min() >= 10.0)
    steps, ratios = np.diff(values), np.diff(np.log(values))
    return bool(ratios.std() / ratios.mean() < steps.std() / steps.mean())


def _short(name: str) -> str:
    return name.rsplit("__", 1)[-1]


class CVSurfaceDisplay:
    """The cross-validation surface over two parameters.

    Create it with :meth:`from_search`.

    Parameters
    ----------
    x, y : arrays of shape (n_x,) and (n_y,)
        Values of the two parameters, ascending.
    scores, errors : arrays of shape (n_y, n_x)
        Mean test scores and their standard errors; NaN where there is no candidate.
    best : tuple (column, row), optional
        The winner.
    x_name, y_name, metric : str

    Attributes
    ----------
    ax_, figure_, mesh_, colorbar_
        Of matplotlib, once plotted.

    Examples
    --------
    >>> from everyfold import CVSurfaceDisplay, FastGridSearchCV, LSSVR
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"alpha": [0.01, 0.1, 1.0], "gamma": [1.0, 10.0]}
    >>> search = FastGridSearchCV(LSSVR(), grid).fit(X, y)
    >>> display = CVSurfaceDisplay.from_search(search)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        x: Array,
        y: Array,
        scores: Array,
        errors: Array,
        best: tuple[int, int] | None,
        x_name: str,
        y_name: str,
        metric: str,
    ) -> None:
        self.x = x
        self.y = y
        self.scores = scores
        self.errors = errors
        self.best = best
        self.x_name = x_name
        self.y_name = y_name
        self.metric = metric

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
            This library's or scikit-learn's.
        x, y : str, optional
            The two parameters; by default the two numeric ones that were searched. Over any
            others, the best candidate is shown.
        metric : str, optional
            Which of several scores; by default the one ``refit`` names.
        ax : matplotlib Axes, optional
        cmap : str, default="viridis"

        Returns
        -------
        display : CVSurfaceDisplay
        """
        table = _Table.of(search, metric)
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
        """Draw; returns itself."""
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        edges_x, edges_y = _edges(self.x), _edges(self.y)
        # A failed or hopeless corner must not flatten the colours of all others.
        low = np.nanquantile(self.scores, 0.05) if np.isfinite(self.scores).any() else None
        mesh = ax.pcolormesh(edges_x, edges_y, self.scores, cmap=cmap, vmin=low)
        ax.set_facecolor("0.85")
        for values, scale in ((self.x, ax.set_xscale), (self.y, ax.set_yscale)):
            scale("log" if _is_log_spaced(values) else "linear")
        handles = self._outline(ax, edges_x, edges_y)
        ax.set(xlabel=_short(self.x_name), ylabel=_short(self.y_name))
        if handles:
            ax.figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
        self.colorbar_ = ax.figure.colorbar(mesh, ax=ax, label=f"mean test {self.metric}")
        self.ax_, self.figure_, self.mesh_ = ax, ax.figure, mesh
        return self

    def _outline(self, ax: Axes, edges_x: Array, edges_y: Array) -> list[Any]:
        """Mark the winner and the border of the one-standard-error region."""
        if self.best is None:
            return []
        from matplotlib.collections import LineCollection

        lines = _border(self.near_best, edges_x, edges_y)
        border = LineCollection(lines, colors="white", linewidths=2.5)
        ax.add_collection(border)
        inner = LineCollection(lines, colors="black", linewidths=1.0, label="within one std. error")
        ax.add_collection(inner)
        column, row = self.best
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
        return [star, inner]


def _two_parameters(table: _Table, x: str | None, y: str | None) -> tuple[str, str]:
    numeric = table.numeric()
    # The ridge comes first, as the parameter along which a curve is read.
    numeric.sort(key=lambda name: _short(name) not in _RIDGES)
    for name in (x, y):
        if name is not None and name not in numeric:
            table.column(name)
            raise ValueError(f"parameter {name!r} is not numeric with several values")
    free = [name for name in numeric if name not in (x, y)]
    needed = (x is None) + (y is None)
    if len(free) < needed:
        raise ValueError(
            f"a surface needs two numeric parameters with several values, found {numeric}; use "
            "CVCurveDisplay for one"
        )
    first = x if x is not None else free.pop(0)
    return first, y if y is not None else free.pop(0)


def _edges(values: Array) -> Array:
    """Borders of cells around the values, in the middle on the axis they will be drawn on."""
    is_log = _is_log_spaced(values)
    points = np.log(values) if is_log else values
    middle = 0.5 * (points[:-1] + points[1:])
    ends = [2 * points[0] - middle[0]], [2 * points[-1] - middle[-1]]
    edges = np.concatenate([ends[0], middle, ends[1]])
    return np.exp(edges) if is_log else edges


def _border(inside: NDArray[np.bool_], x: Array, y: Array) -> list[Any]:
    """Line segments between cells that are inside a region and those that are not."""
    padded = np.pad(inside, 1)
    across = padded[1:-1, 1:] != padded[1:-1, :-1]
    along = padded[1:, 1:-1] != padded[:-1, 1:-1]
    vertical = [[(x[j], y[i]), (x[j], y[i + 1])] for i, j in np.argwhere(across)]
    horizontal = [[(x[j], y[i]), (x[j + 1], y[i])] for i, j in np.argwhere(along)]
    return vertical + horizontal


class CVCurveDisplay:
    """Scores over one parameter, with bands of one standard error; one line for all the others.

    Create it with :meth:`from_search`.

    Parameters
    ----------
    lines : list of tuples (label, x, scores, errors)
    best : tuple (x, score), optional
        The winner.
    x_name, metric : str

    Attributes
    ----------
    ax_, figure_, lines_
        Of matplotlib, once plotted.
    """

    def __init__(
        self,
        *,
        lines: list[tuple[str, Array, Array, Array]],
        best: tuple[float, float] | None,
        x_name: str,
        metric: str,
    ) -> None:
        self.lines = lines
        self.best = best
        self.x_name = x_name
        self.metric = metric

    @classmethod
    def from_search(
        cls,
        search: Search,
        *,
        x: str | None = None,
        metric: str | None = None,
        max_lines: int = 6,
        ax: Axes = None,
    ) -> CVCurveDisplay:
        """Draw the curves of a fitted search.

        Parameters
        ----------
        search : fitted search
            This library's or scikit-learn's.
        x : str, optional
            The parameter along the axis; by default the ridge.
        metric : str, optional
            Which of several scores; by default the one ``refit`` names.
        max_lines : int, default=6
            Combinations of the other parameters to show, the best ones.
        ax : matplotlib Axes, optional

        Returns
        -------
        display : CVCurveDisplay
        """
        table = _Table.of(search, metric)
        numeric = sorted(table.numeric(), key=lambda name: _short(name) not in _RIDGES)
        if x is None and not numeric:
            raise ValueError(
                "a curve needs a numeric parameter with several values; none was found"
            )
        x = numeric[0] if x is None else x
        if x not in numeric:
            table.column(x)
            raise ValueError(f"parameter {x!r} is not numeric with several values")
        values = np.asarray(table.column(x), dtype=np.float64)
        best = None
        if table.best is not None:
            best = float(values[table.best]), float(table.mean[table.best])
        lines = _lines(table, x, values)[:max_lines]
        display = cls(lines=lines, best=best, x_name=x, metric=table.metric)
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes = None) -> CVCurveDisplay:
        """Draw; returns itself."""
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        self.lines_ = []
        for label, x, scores, errors in self.lines:
            (line,) = ax.plot(x, scores, marker="o", markersize=3, label=label or None)
            ax.fill_between(x, scores - errors, scores + errors, alpha=0.15, color=line.get_color())
            self.lines_.append(line)
        if self.best is not None:
            ax.plot(*self.best, "*", markersize=14, color="red", markeredgecolor="white", zorder=5)
        everything = np.unique(np.concatenate([x for _, x, _, _ in self.lines]))
        ax.set_xscale("log" if _is_log_spaced(everything) else "linear")
        ax.set(xlabel=_short(self.x_name), ylabel=f"mean test {self.metric} ± one std. error")
        if any(label for label, *_ in self.lines):
            ax.legend(frameon=False, fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _lines(table: _Table, x: str, values: Array) -> list[tuple[str, Array, Array, Array]]:
    """One line for each combination of the other parameters, the best first."""
    groups: dict[str, list[int]] = {}
    for k, params in enumerate(table.results["params"]):
        others = {_short(name): value for name, value in params.items() if name != x}
        groups.setdefault(", ".join(f"{n}={_brief(v)}" for n, v in others.items()), []).append(k)
    lines = []
    for label, members in groups.items():
        chosen = np.array(members)[np.argsort(values[members])]
        lines.append((label, values[chosen], table.mean[chosen], table.error[chosen]))

    def best_score(line: tuple[str, Array, Array, Array]) -> float:
        return float(np.max(np.nan_to_num(line[2], nan=-np.inf)))

    return sorted(lines, key=best_score, reverse=True)


def _brief(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
