"""Writing files: what was there is kept until what takes its place is complete."""

from __future__ import annotations

import glob
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from everyfold.cli.manners import BadInput

try:
    import fcntl
except ImportError:  # a system without such locks, where partial files of dead runs stay
    fcntl = None  # type: ignore[assignment]


def check_outputs(outputs: Mapping[str, Path | None], read: Path) -> None:
    """Raise now if a file could not be written after the work; remove what dead runs left."""
    taken = {Path(os.path.realpath(read)): "the file that is read"}
    for name, path in outputs.items():
        if path is None:
            continue
        option, target = f"--{name} {path}", Path(os.path.realpath(path))
        try:
            if not _is_special(path) and target in taken:
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
    if not _is_special(path):
        _remove_dead(target)
        with _partial(target):
            pass


def _is_special(path: Path) -> bool:
    """Whether it is a device, a pipe or the like, which nothing may take the place of."""
    is_stream = path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",))
    return is_stream or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name, through symbolic links, only once it is complete.

    It is on the disk by then and has the mode of the file in its place. To devices and pipes all is
    written at once, at the end.
    """
    if _is_special(path):
        whole = io.BytesIO()
        yield whole
        with path.open("ab") as stream:
            stream.write(whole.getvalue())
        return
    target = path.resolve()
    with _partial(target) as partial:
        with partial.open("r+b") as file:
            if target.exists():
                partial.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    with suppress(OSError):  # not every system can do that with a directory
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# -- partial files ---------------------------------------------------------------------------------


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """An empty file beside the target, locked as long as its process lives, and gone afterwards."""
    partial = target.with_name(f"{_beginning(target)}{os.getpid()}.partial")
    try:
        with partial.open("xb"), _locked(partial):
            yield partial
    finally:
        partial.unlink(missing_ok=True)


def _beginning(target: Path) -> str:
    return f".{target.name[:40]}."


def _remove_dead(target: Path) -> None:
    """Remove partial files of the target whose processes have ended."""
    for old in target.parent.glob(f"{glob.escape(_beginning(target))}*.partial"):
        is_ours = re.fullmatch(r"\d+\.partial", old.name.removeprefix(_beginning(target)))
        if fcntl is not None and is_ours and old.is_file() and not old.is_symlink():
            with suppress(OSError), _locked(old):
                old.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which ends with the process; OSError if another one has it."""
    with path.open("rb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
