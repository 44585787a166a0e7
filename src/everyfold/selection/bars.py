"""A bar that says how far work is, where somebody looks: on a terminal, or in a notebook."""

from __future__ import annotations

import shutil
import sys
from html import escape
from importlib import import_module
from typing import Any, Protocol, TextIO


class Bar(Protocol):
    """Shows a share and words."""

    def show(self, share: float, words: str) -> None:
        """Take the place of what was shown before."""

    def close(self) -> None:
        """Leave the last state behind."""


def find_bar() -> Bar | None:
    """The bar of this place; None where lines are all that can be read."""
    if _notebook() is not None:
        return NotebookBar()
    return TerminalBar(sys.stdout) if sys.stdout.isatty() else None


def _notebook() -> Any:
    """The module that shows things in a notebook's cell, if this is one."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return import_module("IPython.display")


class TerminalBar:
    """One line that is written again and again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_open = False

    def show(self, share: float, words: str) -> None:
        """See base class."""
        room = shutil.get_terminal_size().columns - 1
        size = max(8, min(30, room - len(words) - 8))
        full = round(size * share)
        line = f"{'█' * full}{'░' * (size - full)} {share:4.0%} {words}"[:room]
        encoding = self._stream.encoding or "ascii"
        line = line.encode(encoding, "replace").decode(encoding)
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()
        self._is_open = True

    def close(self) -> None:
        """See base class."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
        self._is_open = False


class NotebookBar:
    """An element of a page, updated in its place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, share: float, words: str) -> None:
        """See base class."""
        display = _notebook()
        element = f'<progress value="{share:.4f}" max="1"></progress> {share:.0%} {escape(words)}'
        view = display.HTML(element)
        if self._handle is None:
            self._handle = display.display(view, display_id=True)
        else:
            self._handle.update(view)

    def close(self) -> None:
        """See base class."""
        self._handle = None
