"""The base class of sources of rows.

A source can be read in any number of passes, in blocks of any size. Every pass is compared with the
first one, so that rows that change between passes raise an error instead of giving wrong scores.
The module also has what several threads need to share one pass.
"""

from __future__ import annotations

import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from everyfold._typing import AnyArray, Lazy, Matrix, Params
from everyfold.io.blocks import (
    Block,
    Piece,
    StreamError,
    check,
    form,
    positive,
    row_numbers,
    rows_at_a_time,
    span,
)
from everyfold.io.cluster import Workers
from everyfold.io.samples import SAMPLE

Result = TypeVar("Result")

# Files are read in pieces of this many numbers at least, however small the blocks asked for, since
# every piece has its overhead; and of this many rows at most, so that large blocks, which are put
# together from pieces, do not exist twice.
_SMALLEST_PIECE = 2**16
_LONGEST_PIECE = 2**16
# Numbers that the memory of a block put together from pieces is for at first: 32 MB. A smaller
# number would copy large blocks more often, a larger one waste memory where there are few rows.
_FIRST_BUFFER = 2**22


def is_lazy(X: Lazy) -> bool:
    """Whether something is a collection of Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "__dask_keys__")


class RowSource(ABC):
    """Rows that can be read any number of times, always the same and in the same order.

    Every complete pass is compared with the first one, by the number of rows and a checksum of all
    values. Files must not change their size and modification time after they were first opened, so
    that no pass mixes two versions of a file. No file is open between passes.

    Attributes
    ----------
    n_features : int
    n_rows : int or None
        None as long as it is unknown, that is until the first complete pass over a text file or an
        iterator.
    names : tuple of str or None
        The names of the features, if the source has any.
    has_target : bool
        False for rows that can only be predicted; their y has no columns.
    first_row : int
        The number of the first row, if the source is a part of another source.
    most_rows : int
        The maximum number of rows in memory from which landmarks are drawn.
    """

    n_features: int
    n_rows: int | None = None
    names: tuple[str, ...] | None = None
    has_target: bool = True
    first_row: int = 0
    most_rows: int = SAMPLE
    watch: Callable[[int, int | None], None] | None = None
    """Called with how many rows of a pass are done, and of how many; not in other processes."""
    _first: Tally | None = None
    _stamps: dict[Path, Stamp] | None = None
    _taken: dict[bytes, AnyArray] | None = None

    @abstractmethod
    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        """One pass in unchecked pieces of any length, where ``size`` rows suit best."""

    def _files(self) -> list[Path]:
        """The files that the rows come from, as far as they are known."""
        return []

    def _where(self, row: int) -> str:
        """Where a row is kept, in words, if there is more to say than its number."""
        return ""

    def identity(self) -> Params:
        """What the same rows are known by in another process: files by size and time of writing."""
        # What a source learns or is given later does not say which rows it has.
        late = {"_first", "_stamps", "_taken", "n_rows", "first_row", "watch"}
        known = {name: value for name, value in vars(self).items() if name not in late}
        files = {str(path): Stamp.of(path) for path in self._files()}
        return {"kind": type(self).__name__, **known, "files": files}

    def __getstate__(self) -> Params:
        # Another machine may have another copy of a file; its rows are still compared.
        here = ("_stamps", "_taken", "watch")
        return {name: value for name, value in vars(self).items() if name not in here}

    @property
    def tally(self) -> Tally | None:
        """The checksums of the first complete pass, if there was one."""
        return self._first

    def workers(self) -> Workers | None:
        """Who works on the rows; None if they are worked on here."""
        return None

    def blocks(self, size: int) -> Iterator[Block]:
        """One pass in blocks of exactly ``size`` rows; the last block may be smaller.

        **Cost**: a row is copied at most once on its way from a piece of the storage to a block,
        and not at all where pieces are blocks. The checks read X twice, at the speed of memory.
        """
        return self._pass(positive(size, "the size of blocks"))

    def reduce(
        self,
        work: Callable[[RowSource], Result],
        merge: Callable[[Result, Result], Result],
        threads: int = 1,
    ) -> Result:
        """What ``work`` makes of one pass over the rows, where they are.

        A source whose rows are in several places has each of them worked on there, and the results
        put together by ``merge``, in the order of the rows. Here, ``threads`` have every so-manyth
        block each, in arrays of its own.
        """
        if threads < 2:
            return work(self)
        turns = Turns[Block](threads)
        shares = [_Share(self, turns, k) for k in range(threads)]
        return by_threads([partial(work, share) for share in shares], merge, turns)

    def take(self, rows: ArrayLike) -> AnyArray:
        """X of the given rows, in the given order; rows may repeat.

        **Cost**: random access to arrays, the row groups concerned of a Parquet file, one pass up
        to the last of the rows for other sources.
        """
        with naming(self), self._steady():
            numbers = row_numbers(rows, self.n_rows)
            if self._taken is None:
                return self._take(numbers)
            # Only the last rows are kept: kernels of a pass draw their landmarks from the same.
            key = numbers.tobytes()
            if key not in self._taken:
                self._taken = {key: self._take(numbers)}
            return self._taken[key]

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Read rows that are taken again, with no others in between, once; do not write to them."""
        self._taken = {}
        try:
            yield
        finally:
            self._taken = None

    def _take(self, rows: AnyArray) -> AnyArray:
        with closing(self._pass(rows_at_a_time(self.n_features))) as blocks, naming(self):
            pieces = ((block.start - self.first_row, block.X) for block in blocks)
            return gather(pieces, rows, self.n_features)

    def _pass(self, size: int) -> Generator[Block, None, None]:
        tally = Tally()
        with naming(self), self._steady(), closing(self._pieces(size)) as pieces:
            for block in _reblock(self._checked(pieces), size, self.n_rows):
                tally = tally.add(block)
                if self.n_rows is not None and tally.rows > self.n_rows:
                    raise StreamError(f"there are more rows than {self._promise()}")
                yield block
                if self.watch is not None:
                    self.watch(tally.rows, self.n_rows)
            self._conclude(tally)

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """Refuse files that changed since they were first seen, or that change meanwhile."""
        self._compare_files()
        try:
            yield
        except StreamError:
            self._compare_files()  # which may well be the reason
            raise
        self._compare_files()

    def _compare_files(self) -> None:
        now = {path: stamp for path in self._files() if (stamp := Stamp.of(path)) is not None}
        if self._stamps is None:
            self._stamps = now
        for path in now.keys() & self._stamps.keys():
            if now[path] != self._stamps[path]:
                raise StreamError(
                    f"{path} was written to since it was first read "
                    f"({self._stamps[path].difference(now[path])}), so that the results of "
                    "different passes do not match; wait until nothing writes to it, and create "
                    "a new source"
                )

    def _checked(self, pieces: Iterable[Piece]) -> Iterator[Block]:
        """The pieces as blocks, all of one form."""
        start, first = self.first_row, ""
        for piece in pieces:
            block = check(piece, start, self.n_features, self.names)
            if not len(block):
                continue
            # A piece of a column of floats may look whole by chance; the first piece decides.
            if first.startswith("y of numbers") and block.y.dtype.kind in "iu":
                block = replace(block, y=block.y.astype(np.float64))
            first = first or form(block)
            if form(block) != first:
                raise StreamError(
                    f"{span(range(start, start + len(block)))}: there is {form(block)}, but the "
                    f"first piece has {first}; give all pieces the same parts, and y the same "
                    "type (for numbers, y.astype(float))"
                )
            start += len(block)
            yield block

    def _conclude(self, tally: Tally) -> None:
        if tally.rows == 0 and not self.n_rows:
            raise StreamError(
                "there are no rows; give some (a callable must return a fresh iterator each time)"
            )
        if self.n_rows is not None and tally.rows < self.n_rows:
            raise StreamError(f"the rows end after {tally.rows}, fewer than {self._promise()}")
        changed = [] if self._first is None else self._first.differences(tally)
        if changed:
            raise StreamError(
                f"{' and '.join(changed)} changed since the first pass; every pass must give the "
                "same rows in the same order (fix random seeds, do not shuffle, do not write to "
                "the data meanwhile)"
            )
        self._first, self.n_rows = tally, tally.rows

    def _promise(self) -> str:
        if self._first is None:
            return f"the {self.n_rows} that were announced; correct n_rows or the source"
        return (
            f"the {self.n_rows} of the first pass; every pass must give the same rows in the same "
            "order (a callable must return a fresh iterator each time)"
        )


class _Share(RowSource):
    """The blocks of a source that one of several threads works on, for one pass."""

    def __init__(self, source: RowSource, turns: Turns[Block], number: int) -> None:
        self.n_features, self.n_rows, self.names = source.n_features, source.n_rows, source.names
        self.has_target, self.first_row = source.has_target, source.first_row
        self._source, self._number = source, number
        self._turns: Turns[Block] | None = turns

    def blocks(self, size: int) -> Iterator[Block]:
        """See base class: those whose turn it is."""
        turns, self._turns = self._turns, None
        assert turns is not None, "there is one pass"
        # Copies: a reader may use the memory of a block again while another thread works on it.
        return turns.of(self._number, lambda: (block.copy() for block in self._source.blocks(size)))

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        raise NotImplementedError


def piece_rows(size: int, n_features: int) -> int:
    """How many rows of a file to read at a time for blocks of ``size`` rows."""
    return min(max(size, _SMALLEST_PIECE // n_features, 1), _LONGEST_PIECE)


def gather(pieces: Iterable[tuple[int, AnyArray]], rows: AnyArray, n_features: int) -> AnyArray:
    """Some rows of X, in the order asked, from pieces that come with their start, ascending."""
    X = np.empty((len(rows), n_features))
    order = np.argsort(rows, kind="stable")
    ascending, done = rows[order], 0
    if not len(rows):
        return X
    # Pieces come in the order of the rows, so that each needs only the rows sorted up to its end.
    for start, piece in pieces:
        stop = int(np.searchsorted(ascending, start + len(piece)))
        X[order[done:stop]] = piece[ascending[done:stop] - start]
        done = stop
        if done == len(rows):
            return X
    raise StreamError(f"row {ascending[done]} was asked for, but the rows end before it")


# -- Passes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """The number of rows of a pass and checksums that do not depend on how they were cut."""

    rows: int = 0
    X: int = 0
    y: int = 0
    sample_weight: int = 0
    fold: int = 0

    def add(self, block: Block) -> Tally:
        """The same with the rows of one more block."""
        # Whole numbers modulo 2⁶⁴ have no rounding, so that any blocks give the same checksum;
        # one product with the bits of X is three times as fast as a CRC of all its bytes.
        bits = np.einsum("ij,j->i", block.X.view(np.uint64), _multipliers(block.X.shape[1]))
        weight, fold = block.sample_weight, block.fold
        return Tally(
            self.rows + len(block),
            zlib.crc32(bits.data, self.X),
            zlib.crc32(_bytes(block.y), self.y),
            self.sample_weight if weight is None else zlib.crc32(weight.data, self.sample_weight),
            self.fold if fold is None else zlib.crc32(fold.data, self.fold),
        )

    def differences(self, other: Tally) -> list[str]:
        """The parts that differ."""
        parts = ("X", "y", "sample_weight", "fold")
        return [name for name in parts if getattr(self, name) != getattr(other, name)]


@cache
def _multipliers(n_features: int) -> NDArray[np.uint64]:
    # Odd, so that a change of a single bit is never multiplied away.
    return np.random.default_rng(0).integers(2**63, size=n_features, dtype=np.uint64) * 2 + 1


def _bytes(y: AnyArray) -> bytes | memoryview:
    if y.dtype.kind in "biuf":
        return np.ascontiguousarray(y, dtype=np.float64).data
    return "".join(f"{label}\0" for label in y).encode("utf-8", "surrogatepass")


def _reblock(pieces: Iterable[Block], size: int, n_rows: int | None) -> Iterator[Block]:
    """Blocks of ``size`` rows from checked pieces of any length."""
    partial, done = _Partial(_length(size, 0, n_rows)), 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            part = piece.part(start, min(len(piece), start + partial.size - partial.rows))
            start += len(part)
            if len(part) < partial.size:
                partial.add(part)
                if partial.rows < partial.size:
                    continue
                part = partial.block()
            yield part
            done += len(part)
            partial = _Partial(_length(size, done, n_rows))
    if partial.rows:
        yield partial.block()


def _length(size: int, start: int, n_rows: int | None) -> int:
    """The length of a block: with the end known, even the last need not be copied."""
    return size if n_rows is None or start >= n_rows else min(size, n_rows - start)


class _Partial:
    """The beginning of a block, copied: whoever made a piece may use its memory again."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._X = np.empty((0, 0))
        self._columns: list[tuple[Any, ...]] = []
        self._start = 0
        self.rows = 0

    def add(self, part: Block) -> None:
        """Append rows, at most as many as the block lacks."""
        rows = self.rows + len(part)
        if not self.rows:
            self._start = part.start
        if rows > len(self._X):
            self._grow(max(rows, 2 * len(self._X)), part.X.shape[1])
        self._X[self.rows : rows] = part.X
        columns = (part.y, part.sample_weight, part.fold)
        self._columns.append(tuple(None if c is None else c.copy() for c in columns))
        self.rows = rows

    def _grow(self, rows: int, n_features: int) -> None:
        # Not the whole block at once: its size may be far beyond the number of rows there are.
        grown = np.empty((min(self.size, max(rows, _FIRST_BUFFER // n_features)), n_features))
        if self.rows:
            grown[: self.rows] = self._X[: self.rows]
        self._X = grown

    def block(self) -> Block:
        """The rows so far."""
        columns: list[Any] = [
            None if parts[0] is None else np.concatenate(parts)
            for parts in zip(*self._columns, strict=True)
        ]
        y, weight, fold = columns
        return Block(self._X[: self.rows], y, weight, fold, self._start)


def check_in_memory(X: Matrix, what: str, instead: str = "pass an array for X") -> None:
    """Refuse a source of rows where all rows are needed at once."""
    if isinstance(X, RowSource):
        raise ValueError(
            f"{what} needs all rows at once, and those of {X!r} are read in blocks; {instead}"
        )


@contextmanager
def naming(source: RowSource) -> Iterator[None]:
    """Say which source it is that something is wrong with, and where in it."""
    try:
        yield
    except StreamError as error:
        if str(error).startswith(repr(source)):
            raise
        where = "" if error.row is None else source._where(error.row)
        words = f"{error} ({where})" if where else str(error)
        raise type(error)(f"{source!r}: {words}") from error


# -- Whether files are still as they were: their sizes, and when they were last written to --------


@dataclass(frozen=True)
class Stamp:
    """A file's size in bytes and its time of writing in nanoseconds."""

    size: int
    written: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """The stamp of a file as it is now; None if there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_size, found.st_mtime_ns)

    def difference(self, now: Stamp) -> str:
        """What became of the file, in words."""
        if self.size != now.size:
            return f"it had {self.size} bytes and has {now.size}"
        seconds = (now.written - self.written) / 1e9
        return f"it still has {now.size} bytes, but its time of writing moved by {seconds:.3g} s"


def maps_of(*parts: Matrix) -> Iterator[np.memmap[Any, Any]]:
    """The memory maps that arrays, or the arrays of sparse matrices, are views of."""
    for part in parts:
        is_sparse: bool = sparse.issparse(part)
        for array in (part.data, part.indices, part.indptr) if is_sparse else (part,):
            while isinstance(array, np.ndarray):
                if isinstance(array, np.memmap) and array.filename is not None:
                    yield array
                    break
                array = array.base


# -- One iterator for several threads, which take its items in turn -------------------------------


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Turns(Generic[Item]):
    """Items that so many threads take in turn: which has which depends on their number alone.

    Examples
    --------
    >>> turns = Turns[str](2)
    >>> letters = iter("abc")
    >>> one, two = (turns.of(k, lambda: letters) for k in range(2))
    >>> next(one), next(two), next(one), next(two, None)
    ('a', 'b', 'c', None)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._turn = 0
        self._items: Iterator[Item] | None = None
        self._is_over = False
        self._changed = threading.Condition()

    def of(self, number: int, begin: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """The items of a thread; whose turn is first begins the iterator."""
        item: Item | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._turn % self._count == number)
                if self._is_over:
                    return
                self._is_over = True  # unless there is another item
                try:
                    self._items = begin() if self._items is None else self._items
                    item = next(self._items, None)
                    self._is_over = item is None
                finally:
                    self._turn += 1
                    self._changed.notify_all()
            if item is not None:
                yield item

    def stop(self) -> None:
        """Have all threads come to an end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of the iterator."""
        self._items = None


def by_threads(
    works: Sequence[Callable[[], Answer]],
    merge: Callable[[Answer, Answer], Answer],
    turns: Turns[Item],
) -> Answer:
    """What works on the items of some turns give, each in a thread, merged in their order.

    The first is done by the calling thread, which is the one that reports progress.
    """

    def guarded(work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except BaseException:
            turns.stop()
            raise

    # A thread that fails stops the others: they would wait forever for its turn to pass.
    with closing(turns), ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(guarded, work) for work in works[1:]]
        found = guarded(works[0])
        for other in others:
            found = merge(found, other.result())
    return found
