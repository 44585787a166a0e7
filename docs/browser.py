"""Open every page of a built site in a browser, wide and narrow, and say what looks wrong.

Nothing may stick out of a page. On a wide screen nothing may be cut off either: no table, formula
or line of code may need a scroll bar of its own there. No page may write errors to the console.

    python docs/browser.py build/docs/html [--pictures folder]
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

WIDE, NARROW, HEIGHT = 1280, 390, 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Two kinds of mistakes: what reaches beyond the right edge and is in no box that scrolls (the whole
# article does, by the theme, and should not have to); boxes of the text that hide a part of what is
# in them. Only the innermost elements are named.
MISTAKES = """
({isWide}) => {
  const found = [], out = [];
  const edge = document.documentElement.clientWidth;
  const overflow = node => getComputedStyle(node).overflowX;
  const words = node => `<${node.localName} class="${node.getAttribute('class') || ''}"> `
    + (node.textContent || '').trim().replace(/\\s+/g, ' ').slice(0, 60);
  const isInBox = node => {
    for (let up = node.parentElement; up && up !== document.body; up = up.parentElement)
      if (overflow(up) !== 'visible' && !up.matches('.bd-article-container')) return true;
    return false;
  };
  for (const node of [...document.body.querySelectorAll('*')].reverse()) {
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height || !node.checkVisibility({visibilityProperty: true})) continue;
    const kind = overflow(node), hidden = node.scrollWidth - node.clientWidth;
    const beyond = (kind === 'visible' ? Math.max(box.right, box.left + node.scrollWidth)
      : box.right) - edge;
    if (beyond > 1 && box.left < edge && !out.some(o => node.contains(o)) && !isInBox(node)) {
      out.push(node);
      found.push(`sticks out by ${Math.round(beyond)} px: ${words(node)}`);
    }
    const isText = node.closest('article, .bd-sidebar-secondary')
      && !node.closest('.visually-hidden, .sr-only');
    const hides = kind === 'hidden' || kind === 'clip' || isWide && kind !== 'visible';
    if (isText && hides && hidden > 1 && node.clientWidth > 1)
      found.push(`cut off by ${hidden} px: ${words(node)}`);
  }
  return found;
}
"""


def find_browser() -> str | None:
    """A Chromium or Chrome of this machine."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def mistakes(site: Path, browser: str, pictures: Path | None = None) -> Iterator[str]:
    """A line for everything that sticks out, is cut off, or is written to the console as an error.

    ``pictures`` is a folder for pictures of all pages, wide and narrow, light and dark.
    """
    from playwright.sync_api import sync_playwright

    files = [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]
    pages = [file for file in files if 'http-equiv="refresh"' not in file.read_text("utf-8")]
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = playwright.chromium.launch(executable_path=browser, args=options)
        tab, errors = chromium.new_page(), []
        tab.on("console", lambda line: line.type == "error" and errors.append(line.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        for page in pages:
            name = page.relative_to(site).as_posix()
            tab.set_viewport_size({"width": WIDE, "height": HEIGHT})
            tab.goto(page.resolve().as_uri())
            for width in (WIDE, NARROW):
                tab.set_viewport_size({"width": width, "height": HEIGHT})
                found = tab.evaluate(MISTAKES, {"isWide": width == WIDE})
                yield from (f"{name}, {width} px: {what}" for what in found)
                for scheme in ("light", "dark") if pictures else ():
                    tab.emulate_media(color_scheme=scheme)
                    file = f"{name.replace('/', '_')[:-5]}-{width}-{scheme}.png"
                    tab.screenshot(path=str(pictures / file), full_page=True)
            yield from (f"{name}: {error}" for error in errors)
            errors.clear()
        chromium.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of every page")
    given = parser.parse_args()
    if (browser := find_browser()) is None:
        print(f"not looked at: none of {', '.join(BROWSERS)} is installed")
        sys.exit(0)
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    found = list(mistakes(given.site, browser, given.pictures))
    print("\n".join(found) if found else "nothing sticks out of a page, or is cut off")
    sys.exit(bool(found))
