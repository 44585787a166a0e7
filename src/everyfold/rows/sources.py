"""Sources of rows that need not fit in memory, read in blocks, the same on every pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from everyfold.rows.arrays import ArrayRows, IteratedRows
from everyfold.rows.checks import StreamError
from everyfold.rows.files import ParquetRows, SvmlightRows
from everyfold.rows.source import RowSource
from everyfold.types import Matrix, Params, Targets

__all__ = ["as_source"]

_PARQUET = (".parquet", ".pq")
_SVMLIGHT = (".svm", ".libsvm", ".svmlight")


def as_source(
    X: Matrix,
    y: Targets = None,
    *,
    sample_weight: Targets = None,
    fold: Targets = None,
    target: str | Sequence[str] | None = None,
    n_features: int | None = None,
) -> RowSource:
    """A source of rows from whatever can be one.

    Parameters
    ----------
    X : RowSource, str, Path, callable, iterator or array-like
        A source is returned as it is. A path is a Parquet file (.parquet, .pq), which needs
        ``target``, or a LIBSVM file (.svm, .libsvm, .svmlight, also with .gz, .bz2 or .xz after
        it), which needs ``n_features``. Callables and iterators become `IteratedRows`, anything
        else `ArrayRows`, which needs ``y``.
    y : array-like of shape (n,) or (n, q), optional
    sample_weight, fold : array-like of shape (n,), optional
        Names of columns for a Parquet file.
    target : str or list of str, optional
        Names of columns of a Parquet file.
    n_features : int, optional
        The number of features of a LIBSVM file, or of the pieces of an iterator.

    Examples
    --------
    >>> import numpy as np
    >>> as_source(np.eye(3), [0.5, 1.5, 2.5])
    ArrayRows of shape (3, 3)
    """
    options = {
        "y": y,
        "sample_weight": sample_weight,
        "fold": fold,
        "target": target,
        "n_features": n_features,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(X, RowSource):
        _allow(given, "a RowSource")
        return X
    if isinstance(X, str | Path):
        return _file(Path(X), given)
    if callable(X) or isinstance(X, Iterator):
        _allow(given, "an iterator", "n_features")
        return IteratedRows(X, **given)
    _allow(given, "an array", "y", "sample_weight", "fold", needs="y")
    return ArrayRows(X, **given)


def _file(path: Path, given: Params) -> RowSource:
    name = path.name.lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")
    if path.name.lower().endswith(_PARQUET):
        _allow(given, f"{path}", "target", "sample_weight", "fold", needs="target")
        return ParquetRows(path, **given)
    if name.endswith(_SVMLIGHT):
        _allow(given, f"{path}", "n_features", needs="n_features")
        return SvmlightRows(path, **given)
    raise StreamError(
        f"{path} is not a kind of file that can be read in blocks: its name must end in "
        f"{', '.join(_PARQUET + _SVMLIGHT)}; of a .npy file, give np.load(path, mmap_mode='r')"
    )


def _allow(given: Params, what: str, *allowed: str, needs: str | None = None) -> None:
    if needs is not None and needs not in given:
        raise StreamError(f"{what} needs {needs}; give as_source(…, {needs}=…)")
    refused = sorted(set(given) - set(allowed))
    if refused:
        raise StreamError(
            f"{what} cannot be combined with {', '.join(refused)}; leave {refused[0]} out"
        )
