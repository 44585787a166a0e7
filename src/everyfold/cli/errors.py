"""Messages on stderr, exit codes as Unix tools have them, and never a traceback.

typer prints the errors below and ends the process with their exit codes.
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

from everyfold._progress import printable

# What typer raises of arguments that it cannot read.
UsageError: Any = typer.BadParameter.__base__


class BadInput(typer.BadParameter):
    """Something the user can put right: a file, an option, a value. Exit code 2."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message like all others of the command line."""
        say(f"error: {_one_line(self.message)}")


class CommandFailure(BadInput):
    """Something that went wrong during the work."""

    exit_code = 1


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file it is that something is wrong with."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def say(message: str) -> None:
    """Write a message to stderr, without any control characters."""
    print(f"everyfold: {printable(message)}", file=sys.stderr, flush=True)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is meant, and some of them.

    Examples
    --------
    >>> nearest("scv", ["svc", "svr"])
    "did you mean 'svc'? Known are svc, svr"
    """
    a, names = word.lower(), list(known)
    # How alike two words are, swapped letters ("scv") above wrong ones.
    alike = [
        difflib.SequenceMatcher(None, a, b.lower()).ratio() + 0.1 * (sorted(a) == sorted(b.lower()))
        for b in names
    ]
    hint = f"did you mean {names[alike.index(max(alike))]!r}? " if max(alike) >= 0.5 else ""
    return f"{hint}Known are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def choose(option: str, value: str, known: Iterable[str]) -> None:
    """Raise unless the value is one of those known to the option."""
    names = list(known)
    if value not in names:
        raise BadInput(f"{option} {value!r} is not known; {nearest(value, names)}")


@contextmanager
def guard(*, is_quiet: bool, debug: bool) -> Iterator[None]:
    """Turn whatever ends the work into an exit code and, but for a broken pipe, a message."""
    try:
        with warnings.catch_warnings():
            _speak_warnings(is_quiet)
            yield
            sys.stdout.flush()
    except BrokenPipeError as error:
        # The reader has gone, as `| head` does. What is still buffered goes nowhere, or Python
        # would complain at its end; 141 is what a shell reports of SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from error
    except KeyboardInterrupt as error:
        say("interrupted")
        raise typer.Exit(130) from error
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        if isinstance(error, BadInput):
            raise
        short = "not enough memory" if isinstance(error, MemoryError) else type(error).__name__
        raise CommandFailure(f"{short}: {error}") from error


def _one_line(message: str) -> str:
    """The words of a message, of a traceback that some libraries put into it only the last line."""
    head, traceback, tail = message.partition("Traceback (most recent")
    last = tail.strip().splitlines()[-1:] if traceback else []
    return " ".join([*head.split("\n-----")[0].split(), *last])


def _speak_warnings(is_quiet: bool) -> None:
    """Show each warning once, as a message."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        words = _one_line(str(message))
        if words not in said and not is_quiet:
            said.add(words)
            say(f"warning: {words}")

    warnings.simplefilter("default")
    # Who runs a command can change nothing about these: they are for who writes Python.
    for hidden in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
        warnings.simplefilter("ignore", hidden)
    warnings.showwarning = show  # type: ignore[assignment]
