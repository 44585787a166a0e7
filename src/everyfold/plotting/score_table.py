"""The scores and parameters of ``cv_results_``, as plots and reports read them.

``ScoreTable`` works with every fitted search, also scikit-learn's own. The rest of the module turns
numbers, parameters and names into short words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from everyfold._progress import printable, rounded
from everyfold._typing import AnyArray, Array, Mask, Params, Search
from everyfold.engine.request import MethodOptions

# Parameters that come first, as the one along which a curve is read.
RIDGES = ("alpha", "C")

# Axes of matplotlib, which need not be installed.
Axes: TypeAlias = Any


def pyplot() -> Any:
    """Matplotlib, or how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays need matplotlib, which is not installed; run pip install 'everyfold[plot]'"
        ) from error
    return plt


def new_axes() -> Axes:
    """Axes in a figure of their own."""
    return pyplot().subplots(layout="constrained")[1]


@dataclass(frozen=True)
class ScoreTable:
    """The scores of a search by one metric, and the parameters of its candidates."""

    results: Params
    metric: str
    best: int | None
    n_splits: int
    label: str
    """What the metric is called."""

    @classmethod
    def of(cls, search: Search, metric: str | None) -> ScoreTable:
        """Those of a fitted search; refuses a metric that it has not."""
        check_is_fitted(search, "cv_results_")
        results = search.cv_results_
        if metric is None:
            chosen = search.refit if isinstance(search.refit, str) else None
            metric = chosen if search.multimetric_ else "score"
        if metric not in metrics_of(results):
            known = metrics_of(results)
            raise ValueError(f"metric={metric!r} is not in cv_results_; use one of {known}")
        best = getattr(search, "best_index_", None)
        return cls(results, str(metric), best, search.n_splits_, label_of(search, str(metric)))

    @property
    def mean(self) -> Array:
        """Mean test scores."""
        mean: Array = self.results[f"mean_test_{self.metric}"]
        return mean

    @property
    def error(self) -> Array:
        """Standard errors of the means over the folds."""
        spread: Array = self.results[f"std_test_{self.metric}"]
        # std_test_score divides by the number of folds; a standard error of a mean does not.
        error: Array = spread / np.sqrt(max(self.n_splits - 1, 1))
        return error

    @property
    def names(self) -> list[str]:
        """The searched parameters."""
        return [key.removeprefix("param_") for key in self.results if key.startswith("param_")]

    def column(self, name: str) -> AnyArray:
        """The values of a searched parameter."""
        if name not in self.names:
            raise ValueError(f"parameter {name!r} was not searched; use one of {self.names}")
        return np.ma.filled(self.results[f"param_{name}"].astype(object), np.nan)

    def numeric(self) -> list[str]:
        """The searched parameters that are numbers and take several values, the ridge first."""
        found = [name for name in self.names if is_numeric(self.column(name))]
        return sorted(found, key=lambda name: short(name) not in RIDGES)


def metrics_of(results: Params) -> list[str]:
    """The metrics that a table of results has mean scores of."""
    return [key.removeprefix("mean_test_") for key in results if key.startswith("mean_test_")]


def label_of(search: Search, metric: str | None = None) -> str:
    """The name of a metric, the deciding one by default; that of a single one is in no table."""
    if metric is None:
        metric = str(search.refit) if getattr(search, "multimetric_", False) else "score"
    scoring = getattr(search, "scoring", None)
    # scikit-learn's own searches have no ``method``, and other objects may have one of their own.
    method = getattr(search, "method", None)
    criterion = method.criterion if isinstance(method, MethodOptions) else None
    if metric != "score" or criterion is not None:
        return f"-{criterion}" if isinstance(criterion, str) else metric
    if scoring is None:
        return "accuracy" if is_classifier(search) else "R²"
    function = getattr(scoring, "_score_func", scoring)
    return scoring if isinstance(scoring, str) else getattr(function, "__name__", metric)


def is_numeric(values: AnyArray) -> bool:
    """Whether values are numbers, and not all the same."""
    # True and False are numbers to NumPy, and have no axis.
    if any(isinstance(value, bool | np.bool_) for value in values):
        return False
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite(numbers).all()) and len(np.unique(numbers)) > 1


def is_log_spaced(values: Array) -> bool:
    """Whether values are more evenly spread by their logarithms than as they are."""
    if (values <= 0.0).any() or len(values) < 3:
        return bool((values > 0.0).all() and values.max() / values.min() >= 10.0)
    steps, ratios = np.diff(values), np.diff(np.log(values))
    if values.max() / values.min() >= 1000.0:  # a linear axis would show the largest only
        return True
    return bool(ratios.std() / ratios.mean() < steps.std() / steps.mean())


def plain(name: object, most: int = 40) -> str:
    r"""A name as matplotlib shows it letter by letter, shortened: a dollar begins no formula.

    Examples
    --------
    >>> print(plain("5 $ or 6 $"))
    5 \$ or 6 \$
    """
    words = printable(str(name))
    words = words if len(words) <= most else f"{words[: most - 1]}…"
    return words.replace("$", r"\$")


def short(name: str) -> str:
    """The name of a parameter without the step of a Pipeline."""
    return name.rsplit("__", 1)[-1]


# -- numbers and parameters in words -------------------------------------------------------------

# Values of parameters are cut there, so that an array or an estimator does not fill a table.
MOST_LETTERS = 80


def number(value: float) -> str:
    """A number with five digits, more if it would look like 1 otherwise; "" for NaN.

    Examples
    --------
    >>> number(0.987654321), number(0.9999987), number(float("nan"))
    ('0.98765', '0.999999', '')
    """
    return "" if np.isnan(value) else rounded(value, 5, "g")


def brief(value: object) -> str:
    """A value of a parameter, shortened."""
    if value is np.ma.masked:
        return ""
    words = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return words if len(words) <= MOST_LETTERS else f"{words[: MOST_LETTERS - 1]}…"


def params_words(params: Mapping[str, object]) -> str:
    """Parameters by their short names.

    Examples
    --------
    >>> params_words({"svc__C": 10.0, "svc__gamma": 0.1})
    'C = 10, gamma = 0.1'
    """
    return ", ".join(f"{short(name)} = {brief(value)}" for name, value in params.items()) or "none"


def ranges(found: ScoreTable, chosen: Mask) -> str:
    """From where to where the numeric parameters of some candidates go, or their one value."""
    spans = []
    for name in found.numeric():
        values = found.column(name)[chosen].astype(np.float64)
        low, high = f"{values.min():.4g}", f"{values.max():.4g}"
        spans.append(
            f"{short(name)} = {low}" if low == high else f"{short(name)} from {low} to {high}"
        )
    return ", ".join(spans)
