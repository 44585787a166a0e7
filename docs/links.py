"""Check that every link within a built site leads to a page, and to a place on it.

Nothing that a page loads (scripts, styles, pictures) may come from another site.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, the links from it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what can be linked to, and what links."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src", "xlink:href") and value:
                self.links.append(value)
                if name == "src" or tag == "link":
                    self.loads.append(value)


def dead_links(site: Path) -> list[str]:
    """A line for every link that leads nowhere, and for all that other sites would have to send.

    Links to other sites are not followed.
    """
    files = [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]
    pages = {file: Page(file.read_text("utf-8")) for file in files}
    dead = []
    for file, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    dead.append(f"{file.relative_to(site)}: {link} is loaded from another site")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            known = pages[target].anchors if target in pages else set()
            if not target.exists():
                dead.append(f"{file.relative_to(site)}: {link} does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in known:
                dead.append(f"{file.relative_to(site)}: {link} is not on that page")
    return dead


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]).resolve())
    print("\n".join(found) if found else "every link within the site leads somewhere")
    sys.exit(bool(found))
