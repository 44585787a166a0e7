"""What the commands print and write: a table, the plan, JSON, CSV, a plot, a report.

Files are checked before the work, so that a search of an hour does not end with one that cannot be
written.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import everyfold
from everyfold._progress import pluralise, printable, rounded
from everyfold._typing import AnyArray, Params
from everyfold.cli.errors import BadInput, in_options
from everyfold.cli.study import MOST_KEPT, Job, StudyResult
from everyfold.cli.table import is_number
from everyfold.engine.planning.costs import first_use
from everyfold.io.disk import is_special, partial_file, remove_dead, writing
from everyfold.judge.findings import findings_of, write_report
from everyfold.plotting import CVCurveDisplay, CVSurfaceDisplay
from everyfold.search import SearchPlan
from everyfold.search.hints import edge_words

_SCORES = ["mean_test_score", "standard_error", "is_exact", "spectral_radius"]
_SCORES += ["confirmed_test_score"]
# Seconds in which code is loaded that was compiled before.
SHORT = 1.0

# What is written, and how its name ends; and endings that promise something else.
_ENDINGS = {
    **{"save": ("a skops file, no pickle,", ".skops"), "report": ("an HTML page", ".html")},
    **dict.fromkeys(("out", "oof"), ("a CSV file", ".csv")),
}
_OTHERS = {".pkl", ".pickle", ".joblib", ".onnx", ".npz", ".npy", ".parquet", ".xlsx", ".json"}
_OTHERS |= {".pdf", ".docx", ".md", ".png", ".svg"}
# What a cell begins with that a spreadsheet computes.
_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


# -- before the work -------------------------------------------------------------------------------


def check_outputs(outputs: Mapping[str, Path | None], read: Path) -> None:
    """Raise now if a file could not be written after the work; remove what dead runs left."""
    taken = {Path(os.path.realpath(read)): "the file that is read"}
    for name, path in outputs.items():
        if path is None:
            continue
        option, target = f"--{name} {path}", Path(os.path.realpath(path))
        if path.suffix.lower() in _OTHERS and name in _ENDINGS:
            what, ending = _ENDINGS[name]
            raise BadInput(f"{option}: {what} is written; name it {path.stem}{ending}")
        try:
            if not is_special(path) and target in taken:
                raise BadInput(f"{option} is {taken[target]}; give another name")
            taken[target] = f"that of --{name}, too"
            if path.is_dir():
                raise BadInput(f"{option} is a directory; give the name of a file")
            if target.is_symlink():
                raise BadInput(f"{option} cannot be written: its symbolic links go in a circle")
            folder = target.parent if path.is_symlink() else path.parent
            if not folder.is_dir():
                raise BadInput(f"{option} cannot be written: there is no directory {folder}")
            if path.exists() and not os.access(path, os.W_OK):
                raise BadInput(f"{option} cannot be written: permission denied")
            if not is_special(path):
                remove_dead(target)
                with partial_file(target):  # it can be made, and goes at once
                    pass
        except OSError as error:
            raise BadInput(f"{option} cannot be written: {error.strerror}") from error


def check_plot(path: Path | None, job: Job) -> None:
    """Raise now if the picture could not be drawn after the work."""
    if path is None:
        return
    try:
        import matplotlib
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        remedy = "which is not installed; run pip install 'everyfold[plot]'"
        raise BadInput(f"--plot needs matplotlib, {remedy}") from error
    matplotlib.use("Agg")  # needs no display, as over ssh
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in known:
        raise BadInput(f"--plot {path}: the name must end in one of {', '.join(sorted(known))}")
    if not _numeric(job):
        raise BadInput("--plot needs a numeric parameter with several values in the grid")


def _numeric(job: Job) -> list[str]:
    several = {name: values for name, values in job.grid.items() if len(values) > 1}
    return [n for n, values in several.items() if all(isinstance(v, int | float) for v in values)]


# -- after it --------------------------------------------------------------------------------------


def records(outcome: StudyResult) -> list[Params]:
    """One record for each candidate: the winner first, then by rank."""
    results, folds = dict(outcome.search.cv_results_), outcome.search.n_splits_
    # std_test_score divides by the number of folds; a standard error does not. One number, of all
    # held-out rows together or of one fit, has none.
    is_one = folds < 2 or any(plan.pooled for plan in outcome.plans)
    results["standard_error"] = results["std_test_score"] / (
        math.nan if is_one else math.sqrt(folds - 1)
    )
    splits = [key for i in range(folds) if (key := f"split{i}_test_score") in results]
    place = results["rank_test_score"].astype(float)
    place[outcome.search.best_index_] = 0  # of ties the one that was taken
    return [
        {
            "rank": int(results["rank_test_score"][k]),
            "params": outcome.shorten(results["params"][k]),
            **{name: results[name][k].item() for name in _SCORES},
            "splits": [float(results[key][k]) for key in splits],
        }
        for k in np.argsort(place, kind="stable")
    ]


def show_table(outcome: StudyResult, top: int) -> None:
    """Print the best candidates."""
    rows = records(outcome)
    header = ["rank", *rows[0]["params"], outcome.job.judged_by, "std. error", "exact"]
    if not all(math.isnan(row["confirmed_test_score"]) for row in rows):
        header.append("refitted")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows[:top]:
        cells = [str(row["rank"]), *(_brief(value) for value in row["params"].values())]
        cells += [_score(row[name]) for name in ("mean_test_score", "standard_error")]
        cells += ["yes" if row["is_exact"] else "no", _score(row["confirmed_test_score"])]
        table.add_row(*(Text(cell) for cell in cells[: len(header)]))
    # A pipe has no width, and rich would break lines at 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    lines += [f"… and {len(rows) - top} more (--top, --out)"] if len(rows) > top else []
    sys.stdout.write("".join(f"{line}\n" for line in lines if line))


def _score(value: float) -> str:
    return "" if math.isnan(value) else rounded(value, 4)


def _brief(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_words(params: Params) -> str:
    """Parameters as a user would write them."""
    return " ".join(f"{name}={_brief(value)}" for name, value in params.items())


def show_plans(outcome: StudyResult) -> None:
    """Print what was done, round by round."""
    for k, plan in enumerate(outcome.plans):
        show(f"\nround {k + 1}" if len(outcome.plans) > 1 else "")
        show_plan(outcome.job, plan)


def show_plan(job: Job, plan: SearchPlan) -> None:
    """Print a plan, with the groups of the rows, and what is compiled before it can begin."""
    lines = plan.lines()
    if job.data.groups is not None:
        groups = pluralise(len(np.unique(job.data.groups)), "group")
        lines.insert(1, ("groups", f"{groups}; the rows of one are always held out together"))
    if job.choice.is_low_rank:
        of = f"; refits are those of the approximate model, {job.choice.operator}"
        lines = [(name, f"{words}{of}" if name == "exact" else words) for name, words in lines]
    modules = {name for u in plan.units for m in u.methods for name in m.criterion.compiled}
    if modules and plan.measured is None:
        seconds = first_use(modules)
        is_new = seconds > SHORT
        words = f"about {seconds:.0f} s, once on this machine" if is_new else "done on this machine"
        lines.append(("compilation", words))
    show_lines(lines)


def show_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and words side by side."""
    show(in_options("\n".join(f"{name:<14} {words}" for name, words in lines)))


def show(text: str) -> None:
    """Print lines, without any control characters."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in text.split("\n")))


def show_json(job: Job, record: Params) -> None:
    """Print what a program may want to know: the job, and what came of it."""
    known = {
        "everyfold": everyfold.__version__,
        "estimator": type(job.choice.estimator()).__name__,
        **asdict(job.choice),
        "rows": job.data.shape[0],
        "features": job.data.shape[1],
        "target": ", ".join(job.data.layout.targets),
        "scoring": job.judged_by,
    }
    show_record({**known, **record})


def show_record(record: Params) -> None:
    """Print a record as JSON."""
    text = json.dumps(_plain(record), allow_nan=False, indent=2)
    sys.stdout.write(f"{text}\n")


def describe(outcome: StudyResult, top: int, *, is_complete: bool) -> Params:
    """What came out, for JSON."""
    rows = records(outcome)
    return {
        "folds": outcome.search.n_splits_,
        "is_complete": is_complete,
        "grid": outcome.grid,
        "candidates": len(rows),
        "best": rows[0],
        "top": rows[:top],
        "chosen": outcome.chosen,
        "edges": outcome.edges,
        "plans": [plan.as_dict() for plan in outcome.plans],
    }


def _plain(value: object) -> object:
    """The value without NaN and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(path: Path | None, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table to a file or, if there is none, to stdout."""
    table = ([_harmless(cell) for cell in row] for row in chain([header], rows))
    if path is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(table)
        return
    with writing(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        csv.writer(text, lineterminator="\n").writerows(table)
        text.detach()  # closing it would close the file before it is on the disk


def _harmless(cell: object) -> object:
    """A text without control characters that no spreadsheet takes for a formula."""
    if not isinstance(cell, str):
        return cell
    words = printable(cell)
    return f"'{words}" if words.startswith(_FORMULAS) and not is_number(words) else words


def write_results(path: Path, outcome: StudyResult) -> str:
    """All candidates, the best first, with the score of every fold."""
    rows = records(outcome)
    splits = [f"split{i}_test_score" for i in range(len(rows[0]["splits"]))]
    cells = [
        [row["rank"], *row["params"].values(), *(row[name] for name in _SCORES), *row["splits"]]
        for row in rows
    ]
    header = ["rank", *rows[0]["params"], *_SCORES, *splits]
    write_csv(path, header, [[_cell(value) for value in row] for row in cells])
    return pluralise(len(rows), "candidate")


def write_out_of_fold(path: Path, outcome: StudyResult) -> str:
    """What the winner says of every row that it was not fitted on; how exact that is."""
    data, search = outcome.job.data, outcome.winner
    found = search.out_of_fold()
    name, ids = data.layout.id or "row", range(len(data.y)) if data.id is None else data.id.tolist()
    targets = data.layout.targets
    columns = {name: ids, **by_target("target", data.y, targets)}
    columns |= by_target("prediction", found.values, targets)
    if outcome.job.choice.task == "classification":
        decided = search.out_of_fold(method="decision_function").values
        columns |= decisions(decided, np.unique(data.y))
    if found.repeats.max() > 1:
        columns |= by_target("spread", found.spread, targets) | {"folds": found.repeats.tolist()}
    rows = zip(*columns.values(), strict=True)
    write_csv(path, list(columns), [[_cell(value) for value in row] for row in rows])
    return f"out-of-fold predictions of {as_words(outcome.best_params)}: {found.status}"


def write_page(path: Path, outcome: StudyResult) -> str:
    """A page about the search, of all its rounds."""
    job = outcome.job
    title = f"Search of {', '.join(job.data.layout.targets)}"
    found = findings_of(outcome.search, job.data.id, title=title)
    edges = [
        edge_words(name, outcome.best_params[name], side) for name, side in outcome.edges.items()
    ]
    call = shlex.join(["everyfold", *sys.argv[1:]])
    remarks = [*found.remarks, *edges]
    found = replace(found, call=call, remarks=remarks, plans=outcome.plans)
    if len(outcome.plans) > 1:
        found = replace(found, honest="the grid grew as it was searched")
    elif len(job.data.y) > MOST_KEPT:
        found = replace(found, honest=f"it is computed for up to {MOST_KEPT} rows")
    write_report(path, outcome.search, found)
    return pluralise(len(outcome.search.cv_results_["params"]), "candidate")


def by_target(name: str, values: AnyArray, targets: Sequence[str]) -> dict[str, list[float]]:
    """A column for the target, or one for each of several."""
    if values.ndim == 1:
        return {name: values.tolist()}
    return {f"{name}_{t}": v.tolist() for t, v in zip(targets, values.T, strict=True)}


def decisions(decided: AnyArray, classes: AnyArray) -> dict[str, list[float]]:
    """Columns of the values that labels are decided by: one, or one for each class."""
    if decided.ndim == 1:
        return {"decision": decided.tolist()}
    return {f"decision_{c}": v.tolist() for c, v in zip(classes, decided.T, strict=True)}


def _cell(value: object) -> object:
    return "none" if value is None else "" if value != value else value  # NaN is not itself


def write_plot(path: Path, outcome: StudyResult) -> str:
    """Draw the surface over two parameters, or the curve over one."""
    kind = CVSurfaceDisplay if len(_numeric(outcome.job)) > 1 else CVCurveDisplay
    display: Any = kind.from_search(outcome.search)
    with writing(path) as file:
        display.figure_.savefig(file, format=path.suffix.lstrip(".").lower(), dpi=150)
    return outcome.job.judged_by
