"""Rows of Dask collections, and of folders that the workers of a Dask cluster read.

A pass runs where the rows are: every worker adds up its own partitions, and only the sums are sent.
Without a cluster, partitions are computed in this process, one after the other.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import or_

import numpy as np

from everyfold._typing import AnyArray, Lazy, Params, Targets
from everyfold.io.arrays import ArrayRows
from everyfold.io.base import Result, RowSource, Tally, is_lazy, naming
from everyfold.io.blocks import Piece, StreamError, rows_at_a_time
from everyfold.io.cluster import Cluster, Workers, active_client
from everyfold.io.tables import FolderRows


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
        self._token, self.names, self.n_features, partitions = found
        with naming(self):
            self._partitions = self._numbered(partitions)
        self.n_rows = sum(part.n_rows or 0 for part in self._partitions)
        # Of every partition that was read, the checksums of the first time.
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

    def _numbered(self, parts: Sequence[_Partition]) -> list[_Partition]:
        """The partitions with the numbers of their first rows; lengths may take a pass."""
        parts = [replace(part, number=k) for k, part in enumerate(parts)]
        if any(part.n_rows is None for part in parts):
            lengths = self._each(_count_rows, parts)
            parts = [replace(part, n_rows=lengths[part.number]) for part in parts]
        parts = [part for part in parts if part.n_rows]
        starts = np.cumsum([0, *(part.n_rows or 0 for part in parts)]).tolist()
        if not parts:
            raise StreamError("there are no rows; give some")
        return [replace(part, number=k, first_row=starts[k]) for k, part in enumerate(parts)]

    def _each(
        self, work: Callable[[_Partition], Lazy], parts: Sequence[_Partition]
    ) -> dict[int, Lazy]:
        """``work`` of each partition, by its number."""
        found: dict[int, Lazy] = self._run(partial(_by_number, work), or_, parts)
        return found

    def _run(
        self,
        work: Callable[[_Partition], Lazy],
        merge: Callable[[Lazy, Lazy], Lazy],
        parts: Sequence[_Partition],
    ) -> Lazy:
        """``work`` of all partitions, merged: on the cluster, or here where there is none."""
        cluster = self.cluster
        if cluster is None:
            return functools.reduce(merge, map(work, parts))
        return cluster.reduce(work, merge, cluster.chains(parts), self._counted())

    def _counted(self) -> Callable[[_Partition], None] | None:
        """What reports the partitions that are done, if progress is watched."""
        watch, done = self.watch, [0]
        if watch is None:
            return None

        def report(part: _Partition) -> None:
            done[0] += part.n_rows or 0
            watch(done[0], self.n_rows)

        return report

    def reduce(
        self,
        work: Callable[[RowSource], Result],
        merge: Callable[[Result, Result], Result],
        threads: int = 1,
    ) -> Result:
        """See base class: by the workers of the cluster; by threads only where there is none."""
        # Workers have threads of their own, each with a partition.
        if threads > 1 and self.cluster is None:
            return super().reduce(work, merge, threads)
        result: Result
        result, tallies = self._run(
            partial(_with_tally, work), partial(_merge_with_tallies, merge), self._partitions
        )
        self._compare(tallies)
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
            yield self._each(_fetch, [part])[part.number]

    def _take(self, rows: AnyArray) -> AnyArray:
        starts = np.array([part.first_row for part in self._partitions])
        owner = np.searchsorted(starts, rows, side="right") - 1
        asked = {int(k): rows[owner == k] - starts[k] for k in np.unique(owner)}
        found = self._each(partial(_take_rows, asked), [self._partitions[k] for k in asked])
        X = np.empty((len(rows), self.n_features))
        for k, taken in found.items():
            X[owner == k] = taken
        return X


# -- partitions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Partition:
    """Rows that are still to be read: a source, or the piece ``key`` of a graph of Dask."""

    n_rows: int | None
    source: RowSource | None = None
    graph: Lazy = None
    key: Lazy = None
    needs: dict[Lazy, Lazy] = field(default_factory=dict)
    """The futures that the graph ends with, by key: they are on the cluster already."""
    number: int = 0
    first_row: int = 0

    def rows(self) -> RowSource:
        """The rows, here."""
        rows = self.source
        if rows is None:
            piece = self.piece()
            weight, fold = piece.sample_weight, piece.fold
            rows = ArrayRows(piece.X, piece.y, sample_weight=weight, fold=fold)
        rows.first_row = self.first_row
        return rows

    def piece(self) -> Piece:
        """The arrays, computed here."""
        from dask.local import get_sync

        piece: Piece = get_sync(self.graph, self.key)
        return piece

    def having(self, found: dict[Lazy, Lazy]) -> _Partition:
        """The same with the results of the futures that it needs."""
        from dask.task_spec import DataNode

        return replace(
            self, graph={**self.graph, **{key: DataNode(key, v) for key, v in found.items()}}
        )

    def __getstate__(self) -> Params:
        # Futures are arguments of the task: the scheduler has to see them to bring their results.
        return {**vars(self), "needs": {}}


# What is done with a partition on its worker: functions of modules, which can be pickled.


def _by_number(work: Callable[[_Partition], Lazy], part: _Partition) -> dict[int, Lazy]:
    return {part.number: work(part)}


def _with_tally(
    work: Callable[[RowSource], Result], part: _Partition
) -> tuple[Result, dict[int, Tally]]:
    """What ``work`` makes of the rows, and their checksums if it read them to the end."""
    rows = part.rows()
    result = work(rows)
    return result, {} if rows.tally is None else {part.number: rows.tally}


def _merge_with_tallies(
    merge: Callable[[Result, Result], Result],
    one: tuple[Result, dict[int, Tally]],
    two: tuple[Result, dict[int, Tally]],
) -> tuple[Result, dict[int, Tally]]:
    return merge(one[0], two[0]), one[1] | two[1]


def _count_rows(part: _Partition) -> int:
    source = part.source
    if source is not None:
        return sum(map(len, source.blocks(rows_at_a_time(source.n_features))))
    return int(np.shape(part.piece().X)[0])


def _fetch(part: _Partition) -> Piece:
    block, *_ = part.rows().blocks(part.n_rows or 1)
    return Piece(block.X, block.y, block.sample_weight, block.fold)


def _take_rows(asked: dict[int, AnyArray], part: _Partition) -> AnyArray:
    return part.rows().take(asked[part.number])


# -- collections -------------------------------------------------------------------------------

# The token of a collection, the names and the number of its features, and its partitions.
_Found = tuple[str, tuple[str, ...] | None, int, list[_Partition]]


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
    parts = [_Partition(part.n_rows, part) for part in folder.parts]
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
        name: _aligned(column, lengths, name)
        for name, column in columns.items()
        if column is not None
    }
    parts = [
        _culled(Piece, lengths[k], known, block, **{name: own[k] for name, own in others.items()})
        for k, block in enumerate(X.to_delayed().ravel())
    ]
    return token, None, int(X.shape[1]), parts


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
    separate = {
        role: column.to_delayed()
        for role, column in columns.items()
        if column is not None and role not in named
    }
    for role, delayed in separate.items():
        if len(delayed) != len(parts):
            raise StreamError(
                f"X has {len(parts)} partitions, but {role} has {len(delayed)}; use the same "
                "partitions (X.repartition), or pass the column by its name"
            )
    found = [
        _culled(
            _of_columns, None, known, frame, features, named, {r: d[k] for r, d in separate.items()}
        )
        for k, frame in enumerate(parts)
    ]
    return token, tuple(map(str, features)), len(features), found


def _of_columns(
    frame: Lazy, features: list[str], named: dict[str, str], separate: dict[str, Lazy]
) -> Piece:
    columns = {role: frame[name].to_numpy() for role, name in named.items()}
    columns |= {role: np.asarray(column) for role, column in separate.items()}
    return Piece(frame[features], **columns)


def _culled(
    make: Callable[..., Piece],
    n_rows: int | None,
    known: dict[Lazy, Lazy],
    *parts: Lazy,
    **columns: Lazy,
) -> _Partition:
    """A partition with the part of the graph that it takes, and no more.

    ``known`` are the futures of collections that were persisted, whose graphs end with them.
    """
    from dask.delayed import delayed

    piece = delayed(make, pure=False)(*parts, **columns)
    # The graph of one partition alone: tasks are sent one by one.
    graph = dict(piece.__dask_graph__().cull({piece.key}))
    graph = {key: node for key, node in graph.items() if key not in known}
    wanted = {key for node in graph.values() for key in node.dependencies}
    needs = {key: known[key] for key in wanted - graph.keys() if key in known}
    return _Partition(n_rows, graph=graph, key=piece.key, needs=needs)


def _futures(*collections: Lazy) -> dict[Lazy, Lazy]:
    """The futures of what was persisted, by their keys."""
    if "distributed" not in sys.modules:
        return {}
    from distributed import futures_of

    lazy = [item for item in collections if is_lazy(item)]
    return {future.key: future for item in lazy for future in futures_of(item)}
