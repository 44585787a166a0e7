"""What a search shows of itself in notebooks, and printed."""

from __future__ import annotations

from html import escape

from everyfold._progress import printable
from everyfold._typing import Search


class ResultView:
    """Shows the results below scikit-learn's own diagram in notebooks, and the verdict in print."""

    def __str__(self) -> str:
        if not hasattr(self, "cv_results_"):
            return repr(self)
        from everyfold.judge.verdicts import verdict

        return f"{self!r}\n{verdict(self)}"

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + result_view(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def result_view(search: Search) -> str:
    """The winner, its score and the plan as a table; nothing of a search that is not fitted."""
    # Most searches are neither shown in a notebook nor reported: what reads their tables is
    # imported where it is needed.
    from everyfold.judge.verdicts import verdict
    from everyfold.plotting.score_table import label_of, number, params_words

    lines: list[tuple[str, str]] = []
    if hasattr(search, "best_params_"):
        lines.append(("best_params_", params_words(search.best_params_)))
    if hasattr(search, "best_score_"):
        lines.append(("best_score_", f"{number(search.best_score_)} ({label_of(search)})"))
    if hasattr(search, "cv_results_"):
        lines += search.plan_.lines()
        lines += [(line.topic, str(line)) for line in verdict(search).lines]
    lines += [("path_", line) for line in getattr(search, "summary_", "").splitlines()]
    style = "text-align: left; vertical-align: top"
    rows = (
        f'<tr><th style="{style}">{escape(printable(name))}</th>'
        f'<td style="{style}">{escape(printable(words))}</td></tr>'
        for name, words in lines
    )
    return f"<table>{''.join(rows)}</table>" if lines else ""
