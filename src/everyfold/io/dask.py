"""Rows of Dask collections and of folders on a Dask cluster: passes run where the rows are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic

import numpy as np

from everyfold._typing import AnyArray, Lazy, Params, Targets
from everyfold.io.arrays import ArrayRows
from everyfold.io.base import Result, RowSource, Tally, naming
from everyfold.io.blocks import Piece, StreamError, rows_at_a_time
from everyfold.io.cluster import Cluster, Workers, active_client
from everyfold.io.tables import FolderRows

__all__ = ["DaskRows", "is_lazy", "lazily"]


def is_lazy(X: Lazy) -> bool:
    """Whether something is a collection of Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "__dask_keys__")


def lazily(work: Callable[[Lazy], AnyArray], X: Lazy) -> Lazy:
    """What ``work`` makes of the rows of a collection, as one that is still to be computed.

    A row or two of zeros are worked on to learn what comes out.
    """
    if hasattr(X, "columns"):
        sample = _as_frame(work, X._meta_nonempty)
        return X.map_partitions(partial(_as_frame, work), meta=sample[:0])
    X = X.rechunk({1: -1})
    sample = work(np.zeros((1, X.shape[1])))
    shape = {"drop_axis": 1} if sample.ndim == 1 else {"chunks": (X.chunks[0], sample.shape[1:])}
    return X.map_blocks(work, dtype=sample.dtype, meta=sample[:0], **shape)


def _as_frame(work: Callable[[Lazy], AnyArray], frame: Lazy) -> Lazy:
    import pandas as pd

    found = work(frame)
    return (pd.Series if found.ndim == 1 else pd.DataFrame)(found, index=frame.index)


class DaskRows(RowSource):
    """Rows of a ``dask.array``, a ``dask.dataframe`` or a folder, processed by a Dask cluster.

    In every pass each worker computes sums over the rows of its partitions, and only the sums are
    sent. Without a ``distributed.Client``, partitions are processed in this process, one by one.

    Parameters
    ----------
    X : dask.array.Array, dask.dataframe.DataFrame or FolderRows
        Every worker must find the files of a folder under the same path.
    y : dask.array.Array, dask.dataframe.Series or array, optional
        The targets of the rows of X. They are partitioned like X; a Series must already have the
        same partitions.
    sample_weight, fold : likewise, optional
    target : str, optional
        A column of a data frame, instead of y; ``sample_weight`` and ``fold`` may then be columns
        as well.
    client : distributed.Client, optional
        None means the current client.

    Notes
    -----
    **Cost**: a data frame needs one pass to find the lengths of its partitions.
    **Exact?** Results do not depend on the partitions, up to rounding.
    """

    def __init__(
        self,
        X: Lazy,
        y: Targets = None,
        *,
        sample_weight: Lazy = None,
        fold: Lazy = None,
        target: str | None = None,
        client: Lazy = None,
    ) -> None:
        _check_dask()
        self._client = client
        if isinstance(X, FolderRows):
            found = _of_folder(X, self)
        elif hasattr(X, "to_delayed") and hasattr(X, "partitions") and hasattr(X, "columns"):
            found = _of_frame(X, {"y": y, "sample_weight": sample_weight, "fold": fold}, target)
        else:
            found = _of_array(X, {"y": y, "sample_weight": sample_weight, "fold": fold})
        self._token, self.names, self.n_features, lazy = found
        with naming(self):
            self._partitions = self._numbered(lazy)
        self.n_rows = sum(part.n_rows for part in self._partitions)
        self._tallies: dict[int, Tally] = {}

    def __repr__(self) -> str:
        return f"DaskRows of {len(self._partitions)} partitions"

    def __getstate__(self) -> Params:
        return {**super().__getstate__(), "_client": None}

    def identity(self) -> Params:
        """See base class: the token by which Dask knows the collection."""
        return {"kind": type(self).__name__, "token": self._token}

    @property
    def cluster(self) -> Cluster | None:
        """Where passes run; None for here."""
        client = self._client or active_client()
        return None if client is None else Cluster(client)

    def workers(self) -> Workers | None:
        """See base class."""
        cluster = self.cluster
        if cluster is None:
            return None
        return replace(cluster.workers(), partitions=len(self._partitions))

    def _numbered(self, lazy: Sequence[_Lazy]) -> list[_Partition]:
        """The partitions with the numbers of their first rows; lengths may take a pass."""
        parts = [_Partition(k, item, 0, item.n_rows or 0) for k, item in enumerate(lazy)]
        if any(item.n_rows is None for item in lazy):
            lengths = self._each(_CountRows(), parts)
            parts = [_Partition(k, item, 0, lengths[k]) for k, item in enumerate(lazy)]
        parts = [part for part in parts if part.n_rows]
        starts = np.cumsum([0, *(part.n_rows for part in parts)]).tolist()
        if not parts:
            raise StreamError("there are no rows; give some")
        return [_Partition(k, part.lazy, starts[k], part.n_rows) for k, part in enumerate(parts)]

    def _each(self, work: Callable[[_Partition], Lazy], parts: Sequence[_Partition]) -> Lazy:
        """``work`` of some partitions, as dictionaries put together."""
        return self._run(work, _both, parts)

    def _run(
        self,
        work: Callable[[_Partition], Lazy],
        merge: Callable[[Lazy, Lazy], Lazy],
        parts: Sequence[_Partition],
    ) -> Lazy:
        cluster = self.cluster
        if cluster is not None:
            return cluster.reduce(work, merge, cluster.chains(parts), self._counted())
        found = work(parts[0])
        for part in parts[1:]:
            found = merge(found, work(part))
        return found

    def _counted(self) -> Callable[[_Partition], None] | None:
        """What tells of partitions that are done, if somebody wants to know."""
        watch, done = self.watch, [0]
        if watch is None:
            return None

        def tell(part: _Partition) -> None:
            done[0] += part.n_rows
            watch(done[0], self.n_rows)

        return tell

    def reduce(
        self,
        work: Callable[[RowSource], Result],
        merge: Callable[[Result, Result], Result],
        threads: int = 1,
    ) -> Result:
        """See base class: by the workers of the cluster; by threads only where there is none."""
        if threads > 1 and self.cluster is None:
            return super().reduce(work, merge, threads)
        found = self._run(_OnRows(work, self.names), _Merging(merge), self._partitions)
        self._compare(found.tallies)
        result: Result = found.result
        return result

    def _compare(self, tallies: dict[int, Tally]) -> None:
        """Refuse partitions that are not what they were in the first pass."""
        for k, tally in sorted(tallies.items()):
            changed = self._tallies.setdefault(k, tally).differences(tally)
            if changed:
                raise StreamError(
                    f"{self!r}: {' and '.join(changed)} of partition {k} changed since the first "
                    "pass; every pass must give the same rows (fix random seeds, or persist them)"
                )

    def _pieces(self, size: int) -> Generator[Piece, None, None]:
        for part in self._partitions:
            yield self._each(_Fetching(), [part])[part.number]

    def _take(self, rows: AnyArray) -> AnyArray:
        starts = np.array([part.first_row for part in self._partitions])
        owner = np.searchsorted(starts, rows, side="right") - 1
        asked = {int(k): rows[owner == k] - starts[k] for k in np.unique(owner)}
        found = self._each(_Taking(asked, self.names), [self._partitions[k] for k in asked])
        X = np.empty((len(rows), self.n_features))
        for k, taken in found.items():
            X[owner == k] = taken
        return X


def _both(one: dict[int, Lazy], two: dict[int, Lazy]) -> dict[int, Lazy]:
    return one | two


# -- partitions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lazy:
    """What a partition is made of: a source, or parts of collections that are still to be computed.

    ``graph`` is a graph of Dask and ``key`` the piece in it.
    """

    n_rows: int | None
    source: RowSource | None = None
    graph: Lazy = None
    key: Lazy = None
    needs: dict[Lazy, Lazy] = field(default_factory=dict)
    """What of the graph is on the cluster already, by key."""

    def rows(self, first_row: int, names: tuple[str, ...] | None) -> RowSource:
        """The rows, here."""
        if self.source is not None:
            rows = self.source
        else:
            piece = self.piece()
            weight, fold = piece.sample_weight, piece.fold
            rows = ArrayRows(piece.X, piece.y, sample_weight=weight, fold=fold)
        rows.first_row = first_row
        return rows

    def piece(self) -> Piece:
        """The arrays, computed here."""
        from dask.local import get_sync

        piece: Piece = get_sync(self.graph, self.key)
        return piece


@dataclass(frozen=True)
class _Partition:
    number: int
    lazy: _Lazy
    first_row: int
    n_rows: int

    @property
    def needs(self) -> dict[Lazy, Lazy]:
        """Futures that the partition is computed from."""
        return self.lazy.needs

    def having(self, found: dict[Lazy, Lazy]) -> _Partition:
        """The same with the results of these futures."""
        from dask.task_spec import DataNode

        graph = {**self.lazy.graph, **{key: DataNode(key, v) for key, v in found.items()}}
        return replace(self, lazy=replace(self.lazy, graph=graph))

    def __getstate__(self) -> Params:
        return {**vars(self), "lazy": replace(self.lazy, needs={})}


@dataclass(frozen=True)
class _Seen(Generic[Result]):
    """A result, and the checksums of the partitions that it is of."""

    result: Result
    tallies: dict[int, Tally]


@dataclass(frozen=True)
class _OnRows(Generic[Result]):
    """Work on the rows of a partition."""

    work: Callable[[RowSource], Result]
    names: tuple[str, ...] | None

    def __call__(self, part: _Partition) -> _Seen[Result]:
        rows = part.lazy.rows(part.first_row, self.names)
        result = self.work(rows)
        tally = rows.tally
        return _Seen(result, {} if tally is None else {part.number: tally})


@dataclass(frozen=True)
class _Merging(Generic[Result]):
    merge: Callable[[Result, Result], Result]

    def __call__(self, one: _Seen[Result], two: _Seen[Result]) -> _Seen[Result]:
        return _Seen(self.merge(one.result, two.result), one.tallies | two.tallies)


class _CountRows:
    def __call__(self, part: _Partition) -> dict[int, int]:
        source = part.lazy.source
        if source is not None:
            return {part.number: sum(map(len, source.blocks(rows_at_a_time(source.n_features))))}
        return {part.number: int(np.shape(part.lazy.piece().X)[0])}


class _Fetching:
    def __call__(self, part: _Partition) -> dict[int, Piece]:
        rows = part.lazy.rows(part.first_row, None)
        blocks = list(rows.blocks(part.n_rows))
        block = blocks[0]
        return {part.number: Piece(block.X, block.y, block.sample_weight, block.fold)}


@dataclass(frozen=True)
class _Taking:
    rows: dict[int, AnyArray]
    names: tuple[str, ...] | None

    def __call__(self, part: _Partition) -> dict[int, AnyArray]:
        source = part.lazy.rows(part.first_row, self.names)
        return {part.number: source.take(self.rows[part.number])}


# -- collections -------------------------------------------------------------------------------

# The token of a collection, the names and the number of its features, and its partitions.
_Found = tuple[str, tuple[str, ...] | None, int, list[_Lazy]]


def _check_dask() -> None:
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'DaskRows needs dask, which is not installed; run pip install "everyfold[dask]"'
        ) from error


def _of_folder(folder: FolderRows, source: RowSource) -> _Found:
    from dask.base import tokenize

    source.has_target = folder.has_target
    parts = [_Lazy(part.n_rows, part) for part in folder.parts]
    return tokenize(repr(folder.identity())), folder.names, folder.n_features, parts


def _of_array(X: Lazy, columns: dict[str, Lazy]) -> _Found:
    import dask.array as da
    from dask.base import tokenize

    if not isinstance(X, da.Array) or X.ndim != 2:
        raise StreamError(
            f"X is {type(X).__name__}; give a dask.array of two axes, a dask.dataframe, or "
            "FolderRows"
        )
    if columns["y"] is None:
        raise StreamError("a dask.array needs y; give DaskRows(X, y)")
    known = _futures(X, *columns.values())
    X = X.rechunk({1: -1})
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    lengths = [int(n) for n in X.chunks[0]]
    token = tokenize(X, *columns.values())
    others = {
        name: None if column is None else _aligned(column, lengths, name)
        for name, column in columns.items()
    }
    blocks = X.to_delayed().ravel()
    return token, None, int(X.shape[1]), _bundled(blocks, others, lengths, known)


def _aligned(column: Lazy, lengths: list[int], name: str) -> list[Lazy]:
    """The parts of a column that belong to the partitions."""
    import dask.array as da

    if hasattr(column, "to_dask_array"):
        column = column.to_dask_array(lengths=True)
    if not isinstance(column, da.Array):
        column = da.from_array(np.asarray(column), chunks=-1)
    if column.shape[0] != sum(lengths):
        raise StreamError(
            f"X has {sum(lengths)} rows, but {name} has shape {column.shape}; give {name} an entry "
            "for every row of X"
        )
    column = column.rechunk((tuple(lengths), *[-1] * (column.ndim - 1)))
    return list(column.to_delayed().ravel())


def _of_frame(X: Lazy, columns: dict[str, Lazy], target: str | None) -> _Found:
    from dask.base import tokenize

    token = tokenize(X, target, *columns.values())
    named = {"y": target, **{k: v for k, v in columns.items() if isinstance(v, str)}}
    named = {role: name for role, name in named.items() if name is not None}
    if ("y" in named) == (columns["y"] is not None):
        raise StreamError(
            "a data frame needs either y or target; use DaskRows(X, y) or DaskRows(X, "
            "target='name')"
        )
    missing = [name for name in named.values() if name not in X.columns]
    if missing:
        raise StreamError(f"there is no column {missing[0]!r}; the columns are {list(X.columns)}")
    features = [name for name in X.columns if name not in named.values()]
    known = _futures(X, *columns.values())
    parts = X.to_delayed()
    apart = {
        role: column if column is None or role in named else column.to_delayed()
        for role, column in columns.items()
    }
    for role, delayed in apart.items():
        if delayed is not None and role not in named and len(delayed) != len(parts):
            raise StreamError(
                f"X has {len(parts)} partitions, but {role} has {len(delayed)}; use the same "
                "partitions (X.repartition), or pass the column by its name"
            )
    lazy = []
    for k, frame in enumerate(parts):
        own = {role: d[k] for role, d in apart.items() if d is not None and role not in named}
        lazy.append(_culled(_of_columns, None, known, frame, features, named, own))
    return token, tuple(map(str, features)), len(features), lazy


def _of_columns(
    frame: Lazy, features: list[str], named: dict[str, str], apart: dict[str, Lazy]
) -> Piece:
    columns = {role: frame[name].to_numpy() for role, name in named.items()}
    columns |= {role: np.asarray(column) for role, column in apart.items()}
    return Piece(frame[features], **columns)


def _bundled(
    blocks: Sequence[Lazy],
    others: dict[str, list[Lazy] | None],
    lengths: list[int],
    known: dict[Lazy, Lazy],
) -> list[_Lazy]:
    return [
        _culled(
            _of_parts,
            lengths[k],
            known,
            block,
            {name: parts[k] for name, parts in others.items() if parts is not None},
        )
        for k, block in enumerate(blocks)
    ]


def _of_parts(X: Lazy, columns: dict[str, Lazy]) -> Piece:
    return Piece(X, **columns)


def _culled(
    make: Callable[..., Piece], n_rows: int | None, known: dict[Lazy, Lazy], *parts: Lazy
) -> _Lazy:
    """A partition with the part of the graph that it takes, and no more.

    ``known`` are the futures of collections that were persisted, whose graphs end with them.
    """
    from dask.delayed import delayed

    piece = delayed(make, pure=False)(*parts)
    graph = dict(piece.__dask_graph__().cull({piece.key}))
    graph = {key: node for key, node in graph.items() if key not in known}
    wanted = {key for node in graph.values() for key in node.dependencies}
    needs = {key: known[key] for key in wanted - graph.keys() if key in known}
    return _Lazy(n_rows, graph=graph, key=piece.key, needs=needs)


def _futures(*collections: Lazy) -> dict[Lazy, Lazy]:
    """The futures of what was persisted, by their keys."""
    if "distributed" not in sys.modules:
        return {}
    from distributed import futures_of

    lazy = [item for item in collections if is_lazy(item)]
    return {future.key: future for item in lazy for future in futures_of(item)}
