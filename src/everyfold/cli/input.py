"""What is read: regular files and pipes, up to a share of the memory, unpacked or not."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from everyfold.cli.errors import BadInput
from everyfold.linalg.memory import available_memory

_PIECE = 1 << 20
# One part in so many of the free memory is what a file may take, unpacked.
_SHARE = 4

# Seconds that a named pipe is waited for that nobody writes to.
_PATIENCE = 2.0

_DEVICE = "is a device, not a file; give a file, or - for standard input"
# What is refused, by the kind of file.
_KINDS = {
    stat.S_IFDIR: "is a directory; give a file",
    stat.S_IFSOCK: "is a socket, not a file; give a file",
    stat.S_IFCHR: _DEVICE,
    stat.S_IFBLK: _DEVICE,
}


def most_bytes() -> int:
    """What one file may take in memory."""
    return available_memory() // _SHARE


def check_size(size: int, what: str) -> None:
    """Raise if so many bytes are more than a file may take."""
    most = most_bytes()
    if size > most:
        words = f"{size / 1e9:.3g} GB, and a file may take {most / 1e9:.3g} GB"
        remedy = "take fewer rows or columns, or read the file in blocks (everyfold.streams)"
        raise BadInput(f"{what} more than the memory allows ({words}); {remedy}")


def read_bytes(path: Path) -> bytes:
    """What is in a file, a pipe that somebody writes to, or on standard input ("-")."""
    if str(path) == "-":
        return _whole(_pieces(sys.stdin.buffer), "standard input holds")
    try:
        found = path.stat()
        if stat.S_IFMT(found.st_mode) in _KINDS:
            raise BadInput(f"{path} {_KINDS[stat.S_IFMT(found.st_mode)]}")
        if stat.S_ISFIFO(found.st_mode):
            return _from_pipe(path)
        check_size(found.st_size, f"{path} holds")
        with path.open("rb") as file:
            return _whole(_pieces(file), f"{path} holds")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a zero byte in its name
        raise BadInput(f"{str(path)!r} is not a file name: {error}") from error


def unpacked(raw: bytes) -> bytes:
    """The content of a gzip file, or the bytes themselves if they are none."""
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            return _whole(_pieces(file), "unpacked, the file holds")
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"the gzip file is damaged ({error})") from error


def check_archive(raw: bytes) -> None:
    """Raise if the members of a ZIP archive say that they take more than a file may take."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        sizes = [member.file_size for member in archive.infolist()]
    check_size(sum(sizes), f"unpacked, the {len(sizes)} members of the archive hold")


def _pieces(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    return iter(partial(file.read, _PIECE), b"")


def _whole(pieces: Iterable[bytes], what: str) -> bytes:
    """All pieces together, with room made for no more than comes."""
    parts, size, most = [], 0, most_bytes()
    for part in pieces:
        parts.append(part)
        size += len(part)
        if size > most:
            check_size(size, what)
    return b"".join(parts)


def _from_pipe(path: Path) -> bytes:
    """What comes through a named pipe; refused if nobody writes, as that might be for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = _whole(_through(descriptor), f"{path} holds")
    finally:
        os.close(descriptor)
    if not found:
        raise BadInput(f"{path} is a pipe without a writer; give a file")
    return found


def _through(descriptor: int) -> Iterator[bytes]:
    """The pieces that a pipe gives, which was opened without waiting for who writes to it."""
    latest, is_begun = time.monotonic() + _PATIENCE, False
    while True:
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:  # somebody writes, and has not yet
            select.select([descriptor], [], [])
            continue
        if not piece and (is_begun or time.monotonic() > latest):
            return
        if piece:
            is_begun = True
            yield piece
        else:
            time.sleep(0.05)
