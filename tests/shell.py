"""The command line in this process: arguments in, exit code and texts out, never for ever."""

import io
import os
import signal
import sys
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from everyfold.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Hanging(BaseException):
    """That a command takes too long; nothing in it can catch this by mistake."""


@contextmanager
def alarm(seconds):
    """Raise Hanging after so many seconds, where there is such a signal."""

    def ring(number, frame):
        raise Hanging

    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def run(folder, *argv, stdin=b"", seconds=60):
    """Run a command in a folder."""
    given = stdin, b"", b""
    streams = [io.TextIOWrapper(io.BytesIO(content), "utf-8", "replace") for content in given]
    before = os.getcwd()
    os.chdir(folder)
    try:
        with (
            patch.object(sys, "argv", ["everyfold", *map(str, argv)]),
            patch.object(sys, "stdin", streams[0]),
            patch.object(sys, "stdout", streams[1]),
            patch.object(sys, "stderr", streams[2]),
            alarm(seconds),
        ):
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
    finally:
        os.chdir(before)
    for stream in streams[1:]:
        stream.flush()
    texts = [stream.buffer.getvalue().decode() for stream in streams[1:]]
    return Done(code, *texts)
