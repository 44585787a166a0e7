"""What a search prints and writes: a table, the plan, JSON, CSV, a picture."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import everyfold
from everyfold.cli.job import Job, Outcome
from everyfold.cli.manners import BadInput, writing
from everyfold.display import CVCurveDisplay, CVSurfaceDisplay
from everyfold.selection import SearchPlan

_WIDE = 200


def records(outcome: Outcome) -> list[dict[str, Any]]:
    """One record for each candidate, the best first."""
    results = outcome.results
    folds = outcome.n_folds
    return [
        {
            "rank": int(results["rank_test_score"][k]),
            "params": outcome.shorten(results["params"][k]),
            "mean_test_score": float(results["mean_test_score"][k]),
            # std_test_score divides by the number of folds; a standard error does not.
            "standard_error": float(results["std_test_score"][k]) / math.sqrt(folds - 1),
            "is_exact": bool(results["is_exact"][k]),
            "spectral_radius": float(results["spectral_radius"][k]),
            "confirmed_test_score": float(results["confirmed_test_score"][k]),
            "splits": [float(results[f"split{i}_test_score"][k]) for i in range(folds)],
        }
        for k in outcome.order()
    ]


def show_table(outcome: Outcome, top: int) -> None:
    """Print the best candidates."""
    rows = records(outcome)
    has_confirmed = any(not math.isnan(row["confirmed_test_score"]) for row in rows)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = list(rows[0]["params"])
    last = ["refitted"] if has_confirmed else []
    for name in ["rank", *names, outcome.job.scoring, "std. error", "exact", *last]:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows[:top]:
        cells = [str(row["rank"]), *(_brief(row["params"][name]) for name in names)]
        cells += [f"{row['mean_test_score']:.4f}", f"{row['standard_error']:.4f}"]
        cells.append("yes" if row["is_exact"] else "no")
        if has_confirmed:
            refitted = row["confirmed_test_score"]
            cells.append("" if math.isnan(refitted) else f"{refitted:.4f}")
        table.add_row(*(Text(cell) for cell in cells))
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("".join(f"{line}\n" for line in lines if line))
    if len(rows) > top:
        sys.stdout.write(f"… and {len(rows) - top} more (--top, --out)\n")


def _brief(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_words(params: dict[str, Any]) -> str:
    """Parameters as a user would write them."""
    return " ".join(f"{name}={_brief(value)}" for name, value in params.items())


def show_plans(outcome: Outcome) -> None:
    """Print what was done, round by round."""
    for k, plan in enumerate(outcome.plans):
        heading = f"round {k + 1}\n" if len(outcome.plans) > 1 else ""
        sys.stdout.write(f"\n{heading}{plan}\n")


def describe(job: Job) -> dict[str, Any]:
    """The job in words and numbers that JSON can hold."""
    data = job.data
    return {
        "everyfold": everyfold.__version__,
        "model": job.choice.model,
        "estimator": type(job.choice.estimator()).__name__,
        "kernel": job.choice.kernel,
        "task": job.choice.task,
        "standardised": job.choice.is_standardised,
        "rows": data.n_rows,
        "features": int(data.X.shape[1]),
        "target": data.layout.target,
        "scoring": job.scoring,
    }


def show_json(outcome: Outcome, top: int, *, is_complete: bool) -> None:
    """Print everything that a program may want to know."""
    rows = records(outcome)
    record = {
        **describe(outcome.job),
        "folds": outcome.n_folds,
        "is_complete": is_complete,
        "grid": outcome.grid,
        "candidates": len(rows),
        "best": rows[0],
        "top": rows[:top],
        "edges": outcome.edges,
        "plans": [plan.as_dict() for plan in outcome.plans],
    }
    print_json(record)


def show_json_plan(job: Job, plan: SearchPlan) -> None:
    """Print a plan that was not run."""
    record = {"grid": job.grid, "plan": plan.as_dict(), "exact": plan.exactness}
    print_json({**describe(job), **record})


def print_json(record: Any) -> None:
    """JSON without NaN, which JSON does not know."""
    sys.stdout.write(json.dumps(_plain(record), allow_nan=False, indent=2) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- files ---------------------------------------------------------------------------------------


def write_csv(path: Path | None, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table to a file or, if there is none, to stdout."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    if path is None:
        sys.stdout.write(text.getvalue())
        return
    with writing(path) as file:
        file.write(text.getvalue().encode())


def write_results(path: Path, outcome: Outcome) -> None:
    """All candidates, the best first, with the score of every fold."""
    rows = records(outcome)
    names = list(rows[0]["params"])
    plain = ["mean_test_score", "standard_error", "is_exact", "spectral_radius"]
    plain.append("confirmed_test_score")
    splits = [f"split{i}_test_score" for i in range(outcome.n_folds)]
    cells = [
        [
            row["rank"],
            *(_cell(row["params"][name]) for name in names),
            *(_cell(row[key]) for key in plain),
            *(_cell(score) for score in row["splits"]),
        ]
        for row in rows
    ]
    write_csv(path, ["rank", *names, *plain, *splits], cells)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return "none" if value is None else value


def check_plot(path: Path | None, job: Job) -> None:
    """Raise now if the picture could not be drawn after the work."""
    if path is None:
        return
    try:
        import matplotlib
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise BadInput(
            "--plot needs matplotlib, which is not installed; run pip install 'everyfold[plot]'"
        ) from error
    matplotlib.use("Agg")
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in known:
        raise BadInput(f"--plot {path}: the name must end in one of {', '.join(sorted(known))}")
    if not _numeric(job):
        raise BadInput("--plot needs a numeric parameter with several values in the grid")


def _numeric(job: Job) -> list[str]:
    return [
        name
        for name, values in job.grid.items()
        if len(values) > 1 and all(isinstance(value, int | float) for value in values)
    ]


def write_plot(path: Path, outcome: Outcome) -> None:
    """Draw the surface over two parameters, or the curve over one."""
    # The displays read a fitted search: this one takes in the other rounds.
    search = copy.copy(outcome.rounds[outcome.winner])
    search.cv_results_, search.best_index_ = outcome.results, outcome.best
    kind = CVSurfaceDisplay if len(_numeric(outcome.job)) > 1 else CVCurveDisplay
    display: Any = kind.from_search(search)
    with writing(path) as file:
        display.figure_.savefig(file, format=path.suffix.lstrip(".").lower(), dpi=150)
