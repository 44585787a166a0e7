"""What a notebook shows of a fitted search below scikit-learn's own diagram."""

from __future__ import annotations

from everyfold.display.candidates import number, params_words
from everyfold.display.markup import Markup, tag
from everyfold.display.table import Table
from everyfold.types import Search

__all__ = ["result_view"]

_STYLE = "text-align: left; vertical-align: top"


def result_view(search: Search) -> Markup:
    """The winner, its score and the plan; nothing of a search that is not fitted."""
    if not hasattr(search, "cv_results_"):
        return Markup("")
    lines = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        metric = search.refit if search.multimetric_ else None
        label = Table.of(search, metric).label
        lines.append(("best_score_", f"{number(search.best_score_)} ({label})"))
    return view([*lines, *search.plan_.lines()])


def view(lines: list[tuple[str, str]]) -> Markup:
    """Names and words as a table."""
    rows = (
        tag("tr", tag("th", name, style=_STYLE), tag("td", words, style=_STYLE))
        for name, words in lines
    )
    return tag("table", *rows)
