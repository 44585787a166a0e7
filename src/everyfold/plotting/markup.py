"""HTML in which everything is escaped that is not HTML by its type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from everyfold._progress import printable

# Elements without an end.
_VOID = ("input", "meta")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def written(value: object) -> str:
    """Text of a page: no markup, and no control characters but the end of a line."""
    return escape(printable(str(value), keep="\n"))


def join(children: Iterable[object]) -> Markup:
    """Children one after the other; what is not markup is escaped."""
    return Markup("".join(c if isinstance(c, Markup) else written(c) for c in children))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; ``class_`` is its class, None leaves an attribute out.

    Examples
    --------
    >>> tag("b", "a < b", class_="x")
    '<b class="x">a &lt; b</b>'
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{written(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    end = "" if name in _VOID else f"</{name}>"
    return Markup(f"<{name}{named}>{join(children)}{end}")


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    marked: int | None = None,
    frame: str = "wide",
    **attributes: object,
) -> Markup:
    """A table that scrolls within its frame; the row ``marked`` is the best."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = [
        tag("tr", *(tag("td", cell) for cell in row), class_="best" if k == marked else None)
        for k, row in enumerate(rows)
    ]
    whole = tag("table", tag("thead", top), tag("tbody", *body), **attributes)
    return tag("div", whole, class_=frame, tabindex="0")
