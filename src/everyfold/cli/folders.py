"""A folder, or a pattern of names, as data: rows that are read in blocks, and a sample of them.

The rows themselves are a ``FolderRows``; options that need all rows at once are refused. Default
grids and the kind of the target are taken from the sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from everyfold._typing import AnyArray, Array, Params
from everyfold.cli.errors import BadInput
from everyfold.cli.model_table import MODELS, models_that
from everyfold.cli.models import ChosenModel, decide_task
from everyfold.cli.options import ModelOptions
from everyfold.cli.table import Layout, TableData, assign_columns, find_column
from everyfold.io import FolderRows, StreamError
from everyfold.io.blocks import rows_at_a_time
from everyfold.io.svmlight import SvmlightRows
from everyfold.io.tables import ENDINGS, find_files, is_many, kind_of, one_kind

# Rows that default grids and the kind of the target are taken from: at least the first number, at
# most twice as many; fewer where they are wide, but not below the second.
SAMPLE, LEAST = 20_000, 1000

# Of svmlight files in a folder: their blocks are dense, 0.8 MB a row at this width.
MOST_FEATURES = 100_000


def is_folder(path: Path) -> bool:
    """Whether rows are to be read in blocks, from several files."""
    return is_many(str(path))


def read_folder(options: ModelOptions) -> tuple[TableData, ChosenModel]:
    """The rows of a folder with a sample of them, and what is to be predicted."""
    with as_bad_input(options.data):
        is_sparse = _is_sparse(options.data)
        roles, layout = (_sparse_roles if is_sparse else _roles)(options)
        _refuse(options)
        source = FolderRows(str(options.data), **roles)
        X, y = _sample(source)
        task, data = decide_task(options.model, options.task, TableData(X, y, layout))
        if task == "classification" and y.dtype.kind == "f" and not is_sparse:
            source = FolderRows(str(options.data), labels=True, **roles)
    kernel = options.kernel or MODELS[options.model].kernel
    choice = ChosenModel(options.model, kernel, task, options.standardise, in_blocks=True)
    return replace(data, source=source), choice


def rows_of(path: Path, layout: Layout, row_id: str | None) -> tuple[str | None, FolderRows]:
    """The name of the column of ids, if there is one, and the rows that a model is to predict.

    Ids are the target of the rows: the column named, or that of the training.
    """
    with as_bad_input(path):
        if _is_sparse(path):
            return None, _sparse_rows(path, layout, row_id)
        if layout.names is None:
            raise BadInput(
                "the model knows its features by position, and files of a folder have "
                "named columns; fit it to a table with names"
            )
        wanted: Params = {"features": list(layout.names)}
        names = FolderRows(str(path), target=None, **wanted).columns
        if row_id is not None:
            row_id = names[find_column(names, len(names), "--id", row_id)]
        elif layout.id in names:
            row_id = layout.id
        return row_id, FolderRows(str(path), target=row_id, labels="text", **wanted)


def _is_sparse(path: Path) -> bool:
    return one_kind(find_files(str(path))) is SvmlightRows


def _sparse_rows(path: Path, layout: Layout, row_id: str | None) -> FolderRows:
    if layout.names is not None or row_id is not None:
        what = "--id" if row_id is not None else "a model that knows its features by name"
        raise BadInput(
            f"{what} cannot be combined with svmlight files, which have no column names; use tables"
        )
    wanted = {"n_features": layout.n_features, "zero_based": layout.index_base == 0}
    return FolderRows(str(path), **wanted)


def _sparse_roles(options: ModelOptions) -> tuple[Params, Layout]:
    """The same of svmlight files, which say themselves what is the target."""
    given = {name: getattr(options, name) for name in ("target", "drop", "weights", "id")}
    for name in (name for name, value in given.items() if value):
        raise BadInput(f"--{name} does not apply: svmlight files have no columns; use tables")
    spans = [SvmlightRows(file, 1).span() for file in find_files(str(options.data))]
    base = min(1, *(lowest for lowest, _ in spans))
    d = max(highest for _, highest in spans) + 1 - base
    if not 1 <= d <= MOST_FEATURES:
        why = f"rows have {d} features, and 1 to {MOST_FEATURES} can be read in blocks"
        raise BadInput(f"{options.data}: {why}, which are dense; give one file")
    return {"n_features": d, "zero_based": base == 0}, Layout(d, index_base=base)


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Raise what is wrong with files of rows as bad input."""
    try:
        yield
    except StreamError as error:
        if path.is_dir() and not any(kind_of(inside) for inside in path.rglob("*")):
            known = ", ".join(ENDINGS[:3])
            raise BadInput(f"{path} is a directory without files of rows ({known})") from error
        raise BadInput(str(error)) from error


def _refuse(options: ModelOptions) -> None:
    """Refuse what needs all rows at once."""
    asked = {name: getattr(options, name, None) for name in ("groups", "impute", "interval", "oof")}
    asked |= {name: getattr(options, name) for name in ("one_hot", "ordinal", "dates", "proba")}
    if options.header is False:
        raise BadInput(f"--no-header: files of {options.data} must begin with names; add them")
    for name in (name.replace("_", "-") for name, value in asked.items() if value):
        instead = "leave it out, or give one file"
        if name == "groups":  # without it scores promise too much
            instead = "give one file, or in Python FolderRows(..., fold=COLUMN) with whole groups"
        raise BadInput(
            f"--{name} needs all rows at once, and those of {options.data} are read in blocks; "
            f"{instead}"
        )
    if MODELS[options.model].in_blocks is None:
        able = models_that(lambda row: row.in_blocks)
        raise BadInput(
            f"--model {options.model} needs all rows at once, and those of {options.data} are read "
            f"in blocks; use --model {able}"
        )


def _roles(options: ModelOptions) -> tuple[Params, Layout]:
    """Which column is what, for the source, and where a model finds its features."""
    names = list(FolderRows(str(options.data), target=None, features=None).columns)
    positions, goals, beside = assign_columns(names, len(names), options)
    targets = [names[i] for i in goals]
    features = tuple(names[i] for i in positions)
    row_id = names[beside["id"]] if "id" in beside else None
    layout = Layout(
        len(features),
        features,
        positions,
        len(names),
        targets[0],
        id=row_id,
        more_targets=tuple(targets[1:]),
    )
    weights = {"sample_weight": names[beside["weights"]]} if "weights" in beside else {}
    target = targets if len(targets) > 1 else targets[0]
    return {"target": target, "features": list(features), **weights}, layout


def _sample(source: FolderRows) -> tuple[Array, AnyArray]:
    """Some rows at equal distances, from one pass over a number of rows that may be unknown."""
    parts: list[tuple[Array, AnyArray]] = []
    step, taken = 1, 0
    height = rows_at_a_time(source.n_features)
    most = 2 * min(SAMPLE, max(LEAST, height // 4))
    for block in source.blocks(height):
        rows = slice(-block.start % step, None, step)
        parts.append((block.X[rows].copy(), block.y[rows].copy()))
        taken += len(parts[-1][1])
        while taken > most:
            X, y = (np.concatenate(part)[::2].copy() for part in zip(*parts, strict=True))
            parts, step, taken = [(X, y)], 2 * step, len(y)
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return X, y.astype(str) if y.dtype.kind == "O" else y
