"""Files that count only once they are complete and on disk, and locks of files.

A file is written under another name and renamed at the end, so that a process that dies or a full
disk never leaves half of one.
"""

from __future__ import annotations

import glob
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no POSIX system: partial files of dead runs stay, and nothing is locked
    fcntl = None  # type: ignore[assignment]


def is_special(path: Path) -> bool:
    """Whether it is a device, a pipe or the like, which nothing may take the place of."""
    # Names such as /dev/stdout may be links to regular files, and are no less streams for that.
    is_stream = path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",))
    return is_stream or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name, through symbolic links, only once it is complete.

    It is on the disk by then and has the mode of the file in its place. To devices and pipes all is
    written at once, at the end.
    """
    if is_special(path):
        whole = io.BytesIO()
        yield whole
        with path.open("ab") as stream:
            stream.write(whole.getvalue())
        return
    target = path.resolve()
    with partial_file(target) as partial:
        try:
            with partial.open("r+b") as file:
                if target.exists():
                    partial.chmod(stat.S_IMODE(target.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            # That of a full disk does not name the file.
            raise OSError(error.errno, error.strerror, str(path)) from error
        partial.replace(target)
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """Have the names of new files on disk, where the system can do that with a folder."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def lock(file: IO[bytes]) -> None:
    """Lock an open file until it is closed or the process ends; OSError if another one has it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- partial files ---------------------------------------------------------------------------------


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """An empty file beside the target, locked as long as its process lives, and gone afterwards."""
    partial = target.with_name(f"{_beginning(target)}{os.getpid()}.partial")
    try:
        with partial.open("xb"), _locked(partial):
            yield partial
    finally:
        partial.unlink(missing_ok=True)


def _beginning(target: Path) -> str:
    return f".{target.name[:40]}."


def remove_dead(target: Path) -> None:
    """Remove partial files of the target whose processes have ended."""
    for old in target.parent.glob(f"{glob.escape(_beginning(target))}*.partial"):
        is_ours = re.fullmatch(r"\d+\.partial", old.name.removeprefix(_beginning(target)))
        # The lock of a living process cannot be had, and its file stays.
        if fcntl is not None and is_ours and old.is_file() and not old.is_symlink():
            with suppress(OSError), _locked(old):
                old.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file."""
    with path.open("rb") as file:
        lock(file)
        yield
