"""Plots as SVG text within a page.

A plot is drawn by matplotlib without pyplot's state, and its SVG text is changed so that several of
them fit into one page: ids of their own, the page's width, and the colour of its text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from everyfold._progress import printable
from everyfold.plotting.score_table import Axes

# With more points or cells than that, an artist is one image of pixels within the SVG: thousands of
# shapes would make the page slow to scroll and megabytes long.
MAX_SHAPES = 600

_RC: Any = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "font.size": 11.0,
}


def draw_svg(draw: Callable[..., object], name: str, caption: str) -> str:
    """What ``draw(ax=axes)`` draws, as an ``<svg>`` element whose ids begin with ``name``."""
    import matplotlib as mpl
    from markupsafe import Markup, escape
    from matplotlib.figure import Figure

    with mpl.rc_context({**_RC, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes = figure.subplots()
        draw(ax=axes)
        for artist in (*axes.collections, *axes.lines):
            artist.set_rasterized(_n_shapes(artist) > MAX_SHAPES)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=144, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    svg = printable(text[text.index("<svg") :], keep="\n")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Ids are of the whole page: each plot has a prefix of its own.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    # Black text and lines take the colour of the page's text, which is light in dark mode.
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    label = escape(printable(caption))
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))


def _n_shapes(artist: Axes) -> int:
    """How many shapes an artist would be."""
    if hasattr(artist, "get_offsets"):
        values = artist.get_array()
        return max(len(artist.get_offsets()), 0 if values is None else values.size)
    has_marker = artist.get_marker() not in (None, "", "None", "none")
    return len(artist.get_xydata()) if has_marker else 0
