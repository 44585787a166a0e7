"""The command line: ``everyfold search``, ``plan``, ``fit`` and ``predict``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the ``everyfold`` command."""
    for name in ("typer", "rich", "pyarrow", "skops"):
        if find_spec(name) is None:
            remedy = "which is not installed; run pip install 'everyfold[cli]'"
            sys.exit(f"everyfold: error: the command line needs {name}, {remedy}")
    try:
        from everyfold.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
