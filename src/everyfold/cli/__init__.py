"""The command line: ``everyfold search``, ``plan``, ``fit``, ``predict``, ``judge``, ``compare``.

``main`` is the entry point, which names a missing package before it imports any; ``load_model``
reads in Python what ``--save`` has written.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everyfold.cli.model_file import SavedModel

_NEEDED = ("typer", "rich", "pyarrow", "skops", "jinja2")


def main() -> None:
    """Run the command line; the entry point of the ``everyfold`` command."""
    for name in _NEEDED:
        if find_spec(name) is None:
            remedy = "which is not installed; run pip install 'everyfold[cli]'"
            sys.exit(f"everyfold: error: the command line needs {name}, {remedy}")
    try:
        from everyfold.cli.commands import run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a model file that the command line has saved, as safely as ``everyfold predict`` does.

    Nothing is unpickled. Only objects of a fixed list of types are created, and their contents are
    checked: sizes that do not agree, NaN, infinities and wrong signs are errors. Needs the packages
    of ``pip install 'everyfold[cli]'``.

    Parameters
    ----------
    path : str or path
        A file of ``--save``.

    Returns
    -------
    model : SavedModel
        ``estimator`` is the fitted estimator, in a Pipeline with its scaler; ``intervals`` a fitted
        :class:`FastCrossConformalRegressor`, or None; ``layout`` says where the features are found
        in a table.

    Raises
    ------
    ValueError
        If the file is not a model file of everyfold, is damaged, or contains anything else than
        what a fit leaves behind.
    """
    from everyfold.cli.errors import BadInput
    from everyfold.cli.model_file import load

    try:
        return load(Path(path))
    except BadInput as error:
        raise ValueError(f"load_model: {error}") from error
