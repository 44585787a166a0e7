"""The command line: ``everyfold search``, ``plan``, ``fit`` and ``predict``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the ``everyfold`` command."""
    try:
        from everyfold.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f"everyfold: error: the command line needs {error.name}, which is not installed; run "
            "pip install 'everyfold[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    run()
