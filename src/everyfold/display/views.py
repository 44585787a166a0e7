"""What a notebook shows of a fitted search below scikit-learn's own diagram."""

from __future__ import annotations

from everyfold.display.candidates import number, params_words
from everyfold.display.markup import Markup, tag
from everyfold.display.table import label_of
from everyfold.types import Search

_STYLE = "text-align: left; vertical-align: top"


def result_view(search: Search) -> Markup:
    """The winner, its score and the plan; nothing of a search that is not fitted."""
    lines = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        lines.append(("best_score_", f"{number(search.best_score_)} ({label_of(search)})"))
    if hasattr(search, "cv_results_"):
        lines += search.plan_.lines()
    lines += [("path_", line) for line in getattr(search, "summary_", "").splitlines()]
    return view(lines) if lines else Markup("")


def view(lines: list[tuple[str, str]]) -> Markup:
    """Names and words as a table."""
    rows = (
        tag("tr", tag("th", name, style=_STYLE), tag("td", words, style=_STYLE))
        for name, words in lines
    )
    return tag("table", *rows)
