"""The manners of a Unix tool: messages on stderr, exit codes, and never a traceback."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

FAILURE, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""Exit codes besides 0. The last two are what a shell reports for these signals."""


MOST_NAMES = 12
"""How many known names a message lists."""


class BadInput(Exception):
    """Something the user can put right: a file, an option, a value."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file it is that something is wrong with."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def say(message: str) -> None:
    """Write a message to stderr."""
    print(f"everyfold: {message}", file=sys.stderr, flush=True)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is meant, and all of them.

    Examples
    --------
    >>> nearest("scv", ["svc", "svr"])
    "did you mean 'svc'? Known are svc, svr"
    """
    names = list(known)
    best = max(names, key=lambda name: _likeness(word, name), default="")
    hint = f"did you mean {best!r}? " if _likeness(word, best) >= 0.5 else ""
    more = ", …" if len(names) > MOST_NAMES else ""
    return f"{hint}Known are {', '.join(names[:MOST_NAMES])}{more}"


def _likeness(word: str, name: str) -> float:
    """How alike two words are, swapped letters above wrong ones."""
    a, b = word.lower(), name.lower()
    return difflib.SequenceMatcher(None, a, b).ratio() + 0.1 * (sorted(a) == sorted(b))


def choose(option: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is one of those known to the option."""
    names = list(known)
    if value not in names:
        raise BadInput(f"{option} {value!r} is not known; {nearest(value, names)}")
    return value


def check_writable(option: str, path: Path | None) -> None:
    """Raise now if a file could not be written after the work."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir():
        raise BadInput(f"{option} {path} is a directory; give the name of a file")
    if not folder.is_dir():
        raise BadInput(f"{option} {path} cannot be written: there is no directory {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{option} {path} cannot be written: permission denied")


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name only once it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def guard(work: Callable[[], None], *, is_quiet: bool, debug: bool) -> int:
    """Do the work and return the exit code, with a message if there is something wrong."""
    try:
        with warnings.catch_warnings():
            _speak_warnings(is_quiet)
            work()
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _forget_stdout_if_broken()
        say("interrupted")
        return INTERRUPTED
    except BadInput as error:
        return _fail(error, str(error), USAGE, debug)
    except MemoryError as error:
        return _fail(error, f"not enough memory: {error}", FAILURE, debug)
    except Exception as error:
        known = error.__class__.__module__.startswith("everyfold.cli")
        words = str(error) if known else f"{type(error).__name__}: {error}"
        return _fail(error, words, FAILURE, debug)
    return 0


def _fail(error: BaseException, message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    say(f"error: {_one_line(message)}")
    return code


def _one_line(message: str) -> str:
    """The words of a message, of a traceback that some libraries put into it only the last line."""
    head, traceback, tail = message.partition("Traceback (most recent")
    last = tail.strip().splitlines()[-1:] if traceback else []
    return " ".join([*head.split("\n-----")[0].split(), *last])


def _speak_warnings(is_quiet: bool) -> None:
    """Show each warning once, as a message."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        words = _one_line(str(message))
        if words not in said and not is_quiet:
            said.add(words)
            say(f"warning: {words}")

    warnings.simplefilter("default")
    for hidden in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
        warnings.simplefilter("ignore", hidden)
    warnings.showwarning = show  # type: ignore[assignment]


def _forget_stdout() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, and nobody complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forget_stdout_if_broken() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()


def leave(code: int) -> NoReturn:
    """End the process."""
    sys.exit(code)
