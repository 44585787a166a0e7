"""Functions compiled by numba, and their cache on disk, which may be damaged.

A cache that makes numba fail is deleted and the function compiled again. Compiling takes seconds,
which is logged when it begins.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

from numba import njit
from numba.core import event
from numba.core.errors import NumbaError

from everyfold._progress import warn
from everyfold._typing import Params
from everyfold.linalg.collector import paused_collector

_LIKE = (".nbi", ".nbc")
_LOG = logging.getLogger("everyfold")


class _Notice(event.Listener):
    """Logs that a function is being compiled, which a user could not know from a slow search."""

    def __init__(self, name: str, folder: Path | None) -> None:
        self._words = f"compiling {name}, once"
        if folder is not None:
            self._words += f"; it is kept in {folder}"
        self._is_said = False

    def on_start(self, event: object) -> None:
        """Called for the function itself and for each that it calls; the first is enough."""
        if not self._is_said:
            self._is_said = True
            _LOG.info(self._words)

    def on_end(self, event: object) -> None:
        """Nothing more to say."""


def stamp_of(folder: Traversable) -> str:
    """A word that changes with the name or the content of any source file in a folder.

    Programs that are packed into one file have no folders; numba looks at that file itself.
    """
    digest = hashlib.sha256()
    files = folder.iterdir() if folder.is_dir() else iter(())
    for file in sorted(files, key=lambda file: file.name):
        if file.name.endswith(".py"):
            source = file.read_bytes()
            digest.update(f"{file.name} {len(source)} ".encode() + source)
    return f"v{digest.hexdigest()[:12]}"


class Entry:
    """A function that is compiled on its first call, to the disk cache where there is one.

    numba takes its cache for valid until the file of the function changes. Where functions that it
    calls, or constants, stand in other files, a stamp of all of them keeps former versions apart.

    A cache that was cut off (a full disk, a killed process) or comes from elsewhere makes numba
    fail at every call from then on. Compiled code raises nothing itself, so that an error that is
    none of the compiler's is the cache's: it is deleted and the function compiled again, once, and
    without a cache if that does not help. Compiling takes seconds: it is logged when it begins.

    Parameters
    ----------
    function : callable
    options : dict
        Of numba's ``njit``.
    stamp : str, default=""
        Of all files that the function is compiled from, by :func:`stamp_of`; not needed for one.
    """

    def __init__(self, function: Callable[..., object], options: Params, stamp: str = "") -> None:
        self._function = _named(function, stamp) if stamp else function
        self._options = options
        self._lock = Lock()
        self._trials = 0
        self._is_ready = False
        try:
            self._run = self._compiled(cache=True)
        except RuntimeError:  # a read-only installation without a place for a cache
            self._run = self._compiled(cache=False)
            self._trials = 2

    def _compiled(self, *, cache: bool) -> Any:
        return njit(cache=cache, **self._options)(self._function)

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function."""
        trial = self._trials
        try:
            return self._run(*args) if self._is_ready else self._first(*args)
        except Exception as error:
            if not self._renew(error, trial):
                raise
        return self(*args)

    def _first(self, *args: Any) -> Any:
        """Call it for the first time, after it is compiled or read from the cache."""
        notice = _Notice(self._function.__name__, self.folder)
        with event.install_listener("numba:compile", notice), paused_collector():
            self._run.compile(tuple(self._run.typeof_pyval(arg) for arg in args))
        if self._run.stats.cache_misses:
            self._delete_former()
        found = self._run(*args)
        self._is_ready = True
        return found

    def _renew(self, error: Exception, trial: int) -> bool:
        """Prepare another trial after an error of the trial with this number, if there is one."""
        if isinstance(error, (NumbaError, MemoryError)) or trial > 1:
            return False
        with self._lock:  # of the threads that failed together, the first does it for all
            if self._trials == trial:
                self._trials += 1
                if trial == 0:
                    self._delete_cache(error)
                else:
                    self._run = self._compiled(cache=False)
        return True

    def _delete_cache(self, error: Exception) -> None:
        folder = self.folder
        assert folder is not None
        for path in self._files(self._function.__qualname__):
            _delete(path)
        warn(
            f"the cache of compiled code in {folder} could not be read "
            f"({type(error).__name__}: {error}); {self._function.__name__} was compiled again",
            RuntimeWarning,
        )

    def _delete_former(self) -> None:
        """Delete what was compiled from other versions of its files, as numba does for one file."""
        name, own = self._function.__name__, self._function.__qualname__
        if own != name:
            kept = set(self._files(own))
            for path in self._files(f"v*.{name}"):
                if path not in kept:
                    _delete(path)

    def _files(self, name: str) -> Iterator[Path]:
        """The files of the cache under this name."""
        if self.folder is not None:
            stem = Path(self._function.__code__.co_filename).stem
            paths = self.folder.glob(f"{stem}.{name}-*")
            yield from (path for path in paths if path.suffix in _LIKE)

    @property
    def folder(self) -> Path | None:
        """Where its cache is, if there is a place for one."""
        path = self._run.stats.cache_path
        return None if path is None else Path(path)

    @property
    def signatures(self) -> list[Any]:
        """The types it was compiled for."""
        found: list[Any] = self._run.signatures
        return found


def _named(function: Callable[..., object], stamp: str) -> Callable[..., object]:
    """The same function by another qualified name, which the files of numba's cache begin with."""
    parts = function.__code__, function.__globals__, function.__name__
    named = FunctionType(*parts, function.__defaults__, function.__closure__)
    named.__qualname__ = f"{stamp}.{function.__name__}"
    return named


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # not ours to delete: go on without
        return
