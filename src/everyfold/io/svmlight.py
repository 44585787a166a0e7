"""Rows of files in the format of LIBSVM and SVMlight, read in pieces.

scikit-learn parses the lines; this module cuts the file, finds out whether indices start at 0 or 1,
and says which line is wrong.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy import sparse

from everyfold.io.base import RowSource, naming, piece_rows
from everyfold.io.blocks import NoMemoryError, Piece, StreamError, positive

# Bytes that are read at a time where the text is searched.
_TEXT_BYTES = 2**20

_OPENERS: dict[str, Callable[[Path, Literal["rb"]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


class SvmlightRows(RowSource):
    r"""Rows of a text file in the format of LIBSVM and SVMlight, plain or as .gz, .bz2 or .xz.

    A line is ``label index:value index:value …``; ``qid:…`` and comments (``#``) are ignored. The
    labels are numbers, and blocks are dense.

    **Cost**: memory for the text and the rows of one block, or of 65536 rows if that is less.

    Parameters
    ----------
    path : str or Path
    n_features : int
    zero_based : bool or "auto", optional
        Whether indices start at 0. With "auto" they start at 1 unless an index 0 occurs anywhere in
        the file; the file is searched for one before the first pass.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.svm"
    ...     _ = path.write_text("1 1:0.5 3:2\n-1 2:1\n")
    ...     (block,) = SvmlightRows(path, n_features=3).blocks(10)
    >>> block.X
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]])
    >>> block.y
    array([ 1., -1.])
    """

    def __init__(
        self, path: str | Path, n_features: int, *, zero_based: bool | Literal["auto"] = "auto"
    ) -> None:
        if not (zero_based == "auto" or isinstance(zero_based, bool)):
            raise StreamError(f'zero_based must be True, False or "auto", got {zero_based!r}')
        self.path = Path(path)
        self.n_features = positive(n_features, "n_features")
        self._is_open = zero_based == "auto"
        self._base = None if zero_based == "auto" else 1 - zero_based
        with naming(self), self._steady(), self._open():
            pass  # Only to say now that the file cannot be opened.

    def __repr__(self) -> str:
        return f"SvmlightRows({str(self.path)!r})"

    def _files(self) -> list[Path]:
        return [self.path]

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with (
            reading(zlib.error, lzma.LZMAError),
            _OPENERS.get(self.path.suffix.lower(), open)(self.path, "rb") as file,
        ):
            yield file

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        base = self.find_base()
        start, n_lines = 1, piece_rows(size, self.n_features)
        with self._open() as file:
            while lines := list(islice(file, n_lines)):
                yield _parse(lines, start, self.n_features, base)
                start += len(lines)

    def find_base(self) -> int:
        """The first index, 0 or 1; the text is searched for it once."""
        if self._base is None:
            with self._open() as file:
                while lines := file.readlines(_TEXT_BYTES):
                    text = b"".join(lines)
                    # Searching the text is fast; only where that finds something, comments have
                    # to be left out.
                    if (b" 0:" in text or b"\t0:" in text) and any(map(_has_index_0, lines)):
                        self._base = 0
                        return 0
            self._base = 1
        return self._base

    def begin_with(self, base: int) -> None:
        """Let the first index be this, unless zero_based says what it is."""
        self._base = base if self._is_open else self._base

    def span(self) -> tuple[int, int]:
        """The smallest and the largest index of all rows; (1, 0) if there is none.

        **Cost**: one reading of the text.
        """
        lowest, highest = 1, 0
        with naming(self), self._steady(), self._open() as file:
            for line in file:
                words = line.partition(b"#")[0].split()[1:]
                found = [int(i) for i in (w.partition(b":")[0] for w in words) if i.isdigit()]
                lowest, highest = min([lowest, *found[:1]]), max([highest, *found[-1:]])
        return lowest, highest


def _has_index_0(line: bytes) -> bool:
    return any(word.startswith(b"0:") for word in line.partition(b"#")[0].split())


def _parse(lines: list[bytes], start: int, n_features: int, base: int) -> Piece:
    from sklearn.datasets import load_svmlight_file  # late: slow to import

    try:
        X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float64, zero_based=True)
    except (ValueError, TypeError, OverflowError) as error:
        refuse_line(lines, start, n_features, base)
        stop = start + len(lines) - 1
        raise StreamError(f"lines {start} to {stop} are malformed ({error})") from error
    # The parser reads on where an index is out of range, so that this is checked afterwards.
    if X.shape[1] > n_features + base or X.indices.min(initial=base) < base:
        refuse_line(lines, start, n_features, base)
    shape = (len(y), n_features)
    return Piece(sparse.csr_array((X.data, X.indices - base, X.indptr), shape=shape), y)


def refuse_line(lines: list[bytes], start: int, n_features: int, base: int) -> None:
    """Say which line does not read as ``label index:value index:value …``, and why."""
    for number, line in enumerate(lines, start=start):
        label, *words = line.partition(b"#")[0].decode("latin1").split() or ["0"]
        if not _is_number(label):
            raise StreamError(
                f"line {number}: the label {label!r} is not a number; encode it as one"
            )
        last = -1
        for word in words:
            index, _, value = word.partition(":")
            if index == "qid":
                continue
            if not (index.isdecimal() and _is_number(value)):
                raise StreamError(f"line {number}: {word!r} is not index:value; correct the line")
            if not base <= int(index) < n_features + base:
                raise StreamError(
                    f"line {number}: index {index} is not among {base} to {n_features + base - 1}; "
                    f"correct n_features={n_features}, or zero_based={base == 0}"
                )
            if int(index) <= last:
                raise StreamError(f"line {number}: index {index} does not ascend; sort the line")
            last = int(index)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# -- Opening -------------------------------------------------------------------------------------


@contextmanager
def reading(*errors: type[Exception], what: str = "the file", instead: str = "") -> Iterator[None]:
    """What goes wrong in reading a file, or a part of it, in words.

    ``instead`` is what takes less memory.
    """
    damage: tuple[type[Exception], ...] = (OSError, EOFError, *errors)
    try:
        yield
    except StreamError:
        raise
    except FileNotFoundError as error:
        raise StreamError("there is no such file; check the path") from error
    except IsADirectoryError as error:
        raise StreamError("this is a directory; give one file") from error
    except MemoryError as error:  # pyarrow's is one of its other errors, too
        advice = " or ".join(word for word in (instead, "give the process more memory") if word)
        words = f"there is not enough memory to read {what} ({error}); {advice}"
        raise NoMemoryError(words) from error
    except damage as error:
        raise StreamError(f"{what} cannot be read ({error}); it may be damaged") from error
