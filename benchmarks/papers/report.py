"""The tables of all papers as one page of Markdown, from stored cells alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.papers import PAPERS
from benchmarks.papers.study import Found, Result


def write(folder: Path, found: Found, sessions: Sequence[Result], papers: Sequence[str]) -> None:
    """Write ``reproduction.md`` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reproduction.md"
    path.write_text(page(found, sessions, papers), encoding="utf-8")
    print(f"wrote {path}")


def page(found: Found, sessions: Sequence[Result], papers: Sequence[str]) -> str:
    """The whole page."""
    parts = ["# The papers, printed and reproduced"]
    for paper in papers:
        declared = PAPERS[paper]
        parts += [f"## {declared.TITLE}", *(table.markdown(found) for table in declared.TABLES)]
    return "\n\n".join(parts) + "\n"
