"""The candidates of a search as a table of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from everyfold.display.markup import Markup, table, tag
from everyfold.display.table import Table, metrics_of, short
from everyfold.types import AnyArray, Index, Mask

MOST_CANDIDATES = 1000
"""So many, the best, are on a page."""

MOST_LETTERS = 80


def number(value: float) -> str:
    """A number in words that sort as numbers; nothing where there is none.

    Examples
    --------
    >>> number(0.987654321), number(float("nan"))
    ('0.98765', '')
    """
    return "" if np.isnan(value) else f"{value:.5g}"


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


def ranges(found: Table, chosen: Mask) -> str:
    """From where to where the numeric parameters of some candidates go."""
    spans = []
    for name in found.numeric():
        values = found.column(name)[chosen].astype(np.float64)
        spans.append(f"{short(name)} from {values.min():.4g} to {values.max():.4g}")
    return ", ".join(spans)


def _order(found: Table) -> Index:
    """The winner first, then by mean score; those without one last."""
    place = -np.where(np.isnan(found.mean), -np.inf, found.mean)
    if found.best is not None:
        place[found.best] = -np.inf
    return np.argsort(place, kind="stable")


def candidate_table(found: Table, is_worse: Mask | str) -> Iterator[Markup]:
    """All candidates, or the best of very many, to be sorted and filtered."""
    columns = _columns(found, is_worse)
    order = _order(found)
    if len(order) > MOST_CANDIDATES:
        yield tag("p", f"The best {MOST_CANDIDATES} of {len(order)}; cv_results_ has all.")
    order = order[:MOST_CANDIDATES]
    example = next((f"{short(name)}>1" for name in found.numeric()), "exact")
    field = tag("input", type="search", id="filter", placeholder=f"{example} or any word")
    label = tag("label", "Filter ", for_="filter")
    yield tag("div", label, field, tag("output"), class_="filter", id="f", hidden="hidden")
    rows = [[column[k] for column in columns.values()] for k in order]
    marked = None if found.best is None else 0
    how = {"frame": "wide tall", "class_": "sortable", "data_filter": "f"}
    yield table(list(columns), rows, marked=marked, **how)


def _columns(found: Table, is_worse: Mask | str) -> dict[str, list[str] | AnyArray]:
    """The cells of every column, by its name."""
    results, count = found.results, len(found.results["params"])
    columns: dict[str, list[str] | AnyArray] = {"candidate": [str(k) for k in range(count)]}
    rank = f"rank_test_{found.metric}"
    if rank in results:
        columns["rank"] = [str(place) for place in results[rank]]
    names = found.names
    brevity = {short(name) for name in names}
    for name in names:
        shown = short(name) if len(brevity) == len(names) else name
        columns[shown] = [brief(value) for value in results[f"param_{name}"]]
    for metric in metrics_of(results):
        shown = found.label if metric == found.metric else metric
        columns[shown] = [number(value) for value in results[f"mean_test_{metric}"]]
    if found.n_splits > 1:
        columns["std. error"] = [number(value) for value in found.error]
    refits = results.get(f"confirmed_test_{found.metric}", np.array([np.nan]))
    if np.isfinite(refits).any():
        columns["refitted"] = [number(value) for value in refits]
    if not isinstance(is_worse, str):
        columns["worse"] = ["yes" if worse else "no" for worse in is_worse]
    if "status" in results:
        columns["status"] = [str(status) for status in results["status"]]
    return columns
