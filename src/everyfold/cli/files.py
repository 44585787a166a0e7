"""Whether files can be written after the work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from everyfold.cli.errors import BadInput
from everyfold.io.disk import is_special, partial_file, remove_dead


def check_outputs(outputs: Mapping[str, Path | None], read: Path) -> None:
    """Raise now if a file could not be written after the work; remove what dead runs left."""
    taken = {Path(os.path.realpath(read)): "the file that is read"}
    for name, path in outputs.items():
        if path is None:
            continue
        option, target = f"--{name} {path}", Path(os.path.realpath(path))
        try:
            if not is_special(path) and target in taken:
                raise BadInput(f"{option} is {taken[target]}; give another name")
            taken[target] = f"that of --{name}, too"
            _check_writable(option, path, target)
        except OSError as error:
            raise BadInput(f"{option} cannot be written: {error.strerror}") from error


def _check_writable(option: str, path: Path, target: Path) -> None:
    if path.is_dir():
        raise BadInput(f"{option} is a directory; give the name of a file")
    if target.is_symlink():
        raise BadInput(f"{option} cannot be written: its symbolic links go in a circle")
    folder = target.parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise BadInput(f"{option} cannot be written: there is no directory {folder}")
    if path.exists() and not os.access(path, os.W_OK):
        raise BadInput(f"{option} cannot be written: permission denied")
    if not is_special(path):
        remove_dead(target)
        with partial_file(target):
            pass
