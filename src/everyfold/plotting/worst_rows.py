"""The rows that a model is most wrong about, by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from everyfold._typing import AnyArray, Array, Index, Search
from everyfold.plotting.markup import Markup, table, tag
from everyfold.plotting.score_table import brief, number

MOST_ROWS = 50


def worst_rows(search: Search, ids: AnyArray | None) -> Iterator[Markup]:
    """Misclassified rows, the most certain first; of numbers, the largest errors."""
    yield from (_labels if is_classifier(search) else _numbers)(search, search.out_of_fold(), ids)


def _names(rows: Index, ids: AnyArray | None) -> list[str]:
    return [str(row) if ids is None else brief(ids[row]) for row in rows]


def _spread(held: Any, rows: Index) -> list[str] | None:
    """How much the folds disagree, where there are several for a row."""
    if held.repeats.max() <= 1:
        return None
    spread = held.spread[rows]
    return [number(float(value)) for value in spread.reshape(len(rows), -1).max(axis=1)]


def _shown(header: Sequence[str], columns: Sequence[Sequence[object] | None]) -> Markup:
    """A table of the columns that there are."""
    known = [(name, own) for name, own in zip(header, columns, strict=True) if own is not None]
    rows = zip(*(own for _, own in known), strict=True)
    return table([name for name, _ in known], rows, frame="wide tall")


def known_rows(spread: Array) -> Index:
    """The rows that have an out-of-fold prediction, by how much the folds of each disagree."""
    return np.flatnonzero(~np.isnan(spread).reshape(len(spread), -1).any(axis=1))


def _labels(search: Search, held: Any, ids: AnyArray | None) -> Iterator[Markup]:
    known = known_rows(held.spread)
    wrong, count = known[held.values[known] != held.truth[known]], len(known)
    if not len(wrong):
        yield tag("p", f"All {count} held-out rows have the right label.")
        return
    margin = _margins(search, held, wrong)
    order = np.argsort(-np.nan_to_num(margin), kind="stable")[:MOST_ROWS]
    rows = wrong[order]
    most = f" The {MOST_ROWS} most certain ones:" if len(wrong) > MOST_ROWS else ""
    yield tag("p", f"{len(wrong)} of {count} held-out rows have the wrong label.{most}")
    labels = [[brief(value) for value in part[rows]] for part in (held.truth, held.values)]
    margins = None if np.isnan(margin).all() else [number(m) for m in margin[order]]
    header = ["row" if ids is None else "id", "label", "predicted", "margin", "other folds"]
    yield _shown(header, [_names(rows, ids), *labels, margins, _spread(held, rows)])


def _margins(search: Search, held: Any, rows: Index) -> Array:
    """By how much the predicted label beats the right one; NaN where values are of pairs."""
    values = search.out_of_fold(method="decision_function").values[rows]
    if values.ndim == 1:
        return np.abs(np.asarray(values, dtype=np.float64))
    classes, every = np.unique(held.truth), np.arange(len(values))
    if values.shape[1] != len(classes):
        return np.full(len(values), np.nan)
    said, right = (
        np.searchsorted(classes, part[rows].astype(classes.dtype))
        for part in (held.values, held.truth)
    )
    margins: Array = values[every, said] - values[every, right]
    return margins


def _numbers(search: Search, held: Any, ids: AnyArray | None) -> Iterator[Markup]:
    truth, values = (part.reshape(len(part), -1) for part in (held.truth, held.values))
    errors = values - truth
    scale = np.nanstd(truth, axis=0)
    size = np.max(np.abs(errors) / np.where(scale > 0.0, scale, 1.0), axis=1)
    known = np.flatnonzero(np.isfinite(size))
    rows = known[np.argsort(-size[known], kind="stable")][:MOST_ROWS]
    yield tag("p", f"The {len(rows)} largest errors of {len(known)} held-out rows:")
    wide = truth.shape[1] > 1
    header, columns = ["row" if ids is None else "id"], [_names(rows, ids)]
    for k in range(truth.shape[1]):
        named = f" {k}" if wide else ""
        header += [f"measured{named}", f"predicted{named}", f"error{named}"]
        columns += [[number(v) for v in part[rows, k]] for part in (truth, values, errors)]
    yield _shown([*header, "spread"], [*columns, _spread(held, rows)])
