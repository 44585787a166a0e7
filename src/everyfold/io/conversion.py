"""From what users pass to a source of rows: `as_source`.

It chooses the class by the type of the argument or the ending of the file name, and refuses options
that do not apply to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from everyfold._typing import Matrix, Params, Targets
from everyfold.io.arrays import ArrayRows, IteratedRows
from everyfold.io.base import RowSource, is_lazy
from everyfold.io.blocks import StreamError
from everyfold.io.dask import DaskRows
from everyfold.io.svmlight import SvmlightRows
from everyfold.io.tables import ENDINGS, FolderRows, Paths, is_many, kind_of


def as_source(
    X: Matrix,
    y: Targets = None,
    *,
    sample_weight: Targets = None,
    fold: Targets = None,
    target: str | Sequence[str] | None = None,
    n_features: int | None = None,
) -> RowSource:
    """Make a source of rows from files, arrays, iterators or Dask collections.

    Parameters
    ----------
    X : RowSource, str, Path, callable, iterator or array-like
        A source is returned unchanged. A path is a Parquet file (.parquet, .pq) or a CSV file
        (.csv), which need ``target``, or a LIBSVM file (.svm, .libsvm, .svmlight, also followed by
        .gz, .bz2 or .xz), which needs ``n_features``. A folder, a pattern such as ``"data/*.csv"``
        or a list of paths becomes `FolderRows`, a Dask collection `DaskRows`. A callable or
        iterator becomes `IteratedRows`, anything else `ArrayRows`, which needs ``y``.
    y : array-like of shape (n,) or (n, q), optional
    sample_weight, fold : array-like of shape (n,), optional
        For Parquet and CSV files the names of columns.
    target : str or list of str, optional
        Names of the target columns of Parquet and CSV files.
    n_features : int, optional
        The number of features of a LIBSVM file or of an iterator.

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
    if is_lazy(X):
        _allow(given, "a collection of Dask", "y", "sample_weight", "fold", "target")
        return DaskRows(X, **given)
    if is_many(X):
        return _folder(X, given)
    if isinstance(X, str | Path):
        return _file(Path(X), given)
    if callable(X) or isinstance(X, Iterator):
        _allow(given, "an iterator", "n_features")
        return IteratedRows(X, **given)
    _allow(given, "an array", "y", "sample_weight", "fold", needs="y")
    return ArrayRows(X, **given)


def as_rows(X: Matrix, y: Targets) -> tuple[Matrix, Targets]:
    """A collection of Dask as a source with its targets in it; anything else as it is."""
    return (as_source(X, y), None) if hasattr(X, "__dask_graph__") and is_lazy(X) else (X, y)


def _file(path: Path, given: Params) -> RowSource:
    kind = kind_of(path)
    if kind is None:
        raise StreamError(
            f"{path} is not a kind of file that can be read in blocks: its name must end in "
            f"{', '.join(ENDINGS)}; of a .npy file, give np.load(path, mmap_mode='r')"
        )
    if kind is SvmlightRows:
        _allow(given, f"{path}", "n_features", needs="n_features")
    else:
        _allow(given, f"{path}", "target", "sample_weight", "fold", needs="target")
    return kind(path, **given)  # type: ignore[call-arg]


def _folder(paths: Paths, given: Params) -> RowSource:
    called = f"{paths}" if isinstance(paths, str | Path) else "a list of files"
    # The files are not listed here, so that their kind follows from the options.
    if "n_features" in given:
        _allow(given, called, "n_features")
    elif "target" not in given:
        raise StreamError(
            f"{called} needs target (Parquet, CSV) or n_features (LIBSVM); give as_source(…, "
            "target=…)"
        )
    return FolderRows(paths, **given)


def _allow(given: Params, what: str, *allowed: str, needs: str | None = None) -> None:
    if needs is not None and needs not in given:
        raise StreamError(f"{what} needs {needs}; give as_source(…, {needs}=…)")
    refused = sorted(set(given) - set(allowed))
    if refused:
        raise StreamError(
            f"{what} cannot be combined with {', '.join(refused)}; leave {refused[0]} out"
        )
