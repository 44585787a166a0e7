"""Pictures as text within a page: black becomes the colour of its text, in light and in dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from everyfold.display.markup import Markup, tag, written
from everyfold.display.table import Axes
from everyfold.rows.telling import printable

MOST_SHAPES = 600
"""More points or cells than that are one image of pixels within the picture."""

_LOOK: Any = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "font.size": 11.0,
}


def figure(draw: Callable[[Axes], object], caption: str, name: str) -> Markup:
    """A figure of a page, drawn on axes.

    ``name`` keeps the ids of several figures of a page apart. Nothing of pyplot's state changes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**_LOOK, "svg.hashsalt": name}):
        canvas = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes = canvas.subplots()
        draw(axes)
        for artist in (*axes.collections, *axes.lines):
            artist.set_rasterized(_count(artist) > MOST_SHAPES)
        file = io.StringIO()
        canvas.savefig(file, format="svg", dpi=144, metadata={"Date": None, "Creator": None})
    return tag("figure", _inline(file.getvalue(), name, caption), tag("figcaption", caption))


def _count(artist: Axes) -> int:
    """How many shapes an artist would be."""
    if hasattr(artist, "get_offsets"):
        values = artist.get_array()
        return max(len(artist.get_offsets()), 0 if values is None else values.size)
    has_marker = artist.get_marker() not in (None, "", "None", "none")
    return len(artist.get_xydata()) if has_marker else 0


def _inline(text: str, name: str, words: str) -> Markup:
    """The element of a file, its ids its own, as wide as there is room."""
    svg = printable(text[text.index("<svg") :], keep="\n")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{written(words)}"', 1))
