"""The options of the commands, one record for each command.

A field is an option, and its default describes it to typer. ``as_command`` makes the function that
typer calls out of such a record and the function that does the work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import typer

from everyfold.cli.errors import BadInput, guard
from everyfold.cli.model_table import KERNELS, MODELS

# ruff: noqa: RUF009  (typer only reads these defaults: it gives a command all values)


def _option(default: Any, flags: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(default, *flags.split(), help=help, metavar=metavar)


def _seed(help: str) -> Any:
    return typer.Option(0, "--seed", help=help, metavar="N", callback=_check_seed)


def _check_seed(seed: int) -> int:
    """Raise if NumPy knows no such seed."""
    if not 0 <= seed < 2**32:
        raise BadInput(f"--seed {seed} is not a whole number from 0 to {2**32 - 1}")
    return seed


_FILES = "CSV, Parquet, svmlight or NumPy file (also gzipped), or a folder; - reads CSV from stdin."
_DATA = typer.Argument(..., metavar="DATA", help=_FILES)
_MODEL = typer.Argument(..., metavar="MODEL", help="A file written by fit or search --save.")
_SCORING = "A scorer of scikit-learn; by default accuracy or r2."
_SAVED_TARGET = "Name or position of the target, or several; by default those of the training."
_HEADER = "Whether a CSV file has a header; detected by default."
_SCALE = "Scale features to mean 0 and variance 1."
_GROUPS = "Rows with the same value are held out together."
_CV = "Folds: 10 (default), 10x5 (ten repetitions of five), group:5, time:5, loo (leave-one-out)."
_CRITERION = "A criterion instead of folds: gcv, gacv, span, … (see the docs)."
_OPERATOR = (
    "Kernel matrices: auto, dense, nystrom:500 (landmarks) or fourier:500 (random features)."
)
_SCALING = "mean multiplies the ridge by the number of rows of each fit, sum does not."
_IMPUTE = (
    "Fill missing cells by the median or the mean of the training rows, text by the most frequent."
)
_ONE_HOT = "Take the values of a column for categories, as those of text are; may repeat."
_ORDINAL = "Encode categories as 0, 1, … in this order; may repeat."
_DATES = "Turn dates into days since 1970: iso, or a format such as %d.%m.%Y."
_PROBA = "Save the model with probabilities, calibrated on held-out rows."
_INTERVAL = "Save the model with prediction intervals; 0.9 covers nine of ten new rows."
_JOURNAL = "Write every finished kernel to a file, to resume the search after a kill."
_TARGET = "Name or position of the target, or several: a,b; by default the last column."
_KERNEL = f"One of {', '.join(KERNELS)}; the first by default. Linear models have none."
_TASK = "classification or regression; models that do both decide by the target (auto)."
_GRID = (
    'For example "C=1,10,100" or "gamma=logspace(-3,1,9)"; may repeat. Other parameters get '
    "default grids."
)


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes."""

    header: bool | None = _option(None, "--header/--no-header", _HEADER)
    quiet: bool = _option(False, "--quiet -q", "No messages, no progress.")
    debug: bool = _option(False, "--debug", "Show tracebacks of errors.")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Common):
    """What the commands that fit take."""

    data: Path = _DATA
    model: str = _option("", "--model -m", f"One of {', '.join(MODELS)}.", "NAME")
    kernel: str | None = _option(None, "--kernel -k", _KERNEL, "NAME")
    target: list[str] = _option([], "--target -t", _TARGET, "COLUMN")
    drop: list[str] = _option([], "--drop", "Leave a column out, or several: a,b.", "COLUMN")
    groups: str | None = _option(None, "--groups", _GROUPS, "COLUMN")
    weights: str | None = _option(None, "--weights", "Weights of the rows in every fit.", "COLUMN")
    id: str | None = _option(None, "--id", "Names of the rows, for predictions.", "COLUMN")
    task: str = _option("auto", "--task", _TASK, "TASK")
    standardise: bool = _option(True, "--standardise/--no-standardise", _SCALE)
    impute: str | None = _option(None, "--impute", _IMPUTE, "HOW")
    one_hot: list[str] = _option([], "--one-hot", _ONE_HOT, "COLUMN")
    ordinal: list[str] = _option([], "--ordinal", _ORDINAL, "COLUMN=A,B,…")
    dates: str | None = _option(None, "--dates", _DATES, "FORMAT")
    seed: int = _seed("Seed of the shuffled folds and of sampling.")
    proba: bool = _option(False, "--proba", _PROBA)
    interval: float | None = _option(None, "--interval", _INTERVAL, "SHARE")
    save: Path | None = _option(None, "--save", "Write the fitted model.", "MODEL.skops")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions):
    """What ``search`` and ``plan`` take."""

    cv: str | None = _option(None, "--cv", _CV, "FOLDS")
    grid: list[str] = _option([], "--grid -g", _GRID, "NAME=VALUES")
    scoring: str | None = _option(None, "--scoring", _SCORING, "NAME")
    criterion: str | None = _option(None, "--criterion", _CRITERION, "NAME")
    operator: str = _option("auto", "--operator", _OPERATOR, "KIND")
    ridge_scaling: str = _option("sum", "--ridge-scaling", _SCALING, "HOW")
    order: str = _option(
        "auto", "--order", "auto, exact, screen, inf, or 1, 2, … (see the docs).", "ORDER"
    )
    preprocessing: str = _option(
        "per_fold", "--preprocessing", "per_fold or once: how to fit the scaler.", "HOW"
    )
    confirm: str = _option(
        "auto", "--confirm", "Score the best K again by real refits, or auto.", "K"
    )
    expand: bool = _option(False, "--expand", "Extend the grid while its best value is at an edge.")
    n_jobs: int = _option(1, "--n-jobs -j", "Kernels at a time; -1 for all processors.", "N")
    top: int = _option(10, "--top", "Candidates to show.", "N")
    json: bool = _option(False, "--json", "Print JSON instead of a table.")
    journal: Path | None = _option(None, "--journal", _JOURNAL, "FILE")
    resume: bool = _option(False, "--resume", "Continue the --journal, if it exists.")
    out: Path | None = _option(None, "--out -o", "Write all candidates.", "FILE.csv")
    oof: Path | None = _option(
        None, "--oof", "Write the winner's held-out predictions.", "FILE.csv"
    )
    plot: Path | None = _option(None, "--plot", "Plot the scores over two parameters.", "FILE.png")
    report: Path | None = _option(None, "--report", "Write a report of the search.", "FILE.html")


@dataclass(frozen=True, kw_only=True)
class FitOptions(ModelOptions):
    """What ``fit`` takes."""

    param: list[str] = _option([], "--param -p", "A parameter; may repeat.", "NAME=VALUE")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Common):
    """What ``predict`` takes."""

    model_file: Path = _MODEL
    data: Path = _DATA
    out: Path | None = _option(
        None, "--out -o", "Write predictions to a file instead of stdout.", "FILE.csv"
    )
    id: str | None = _option(
        None, "--id", "Names of the rows; by default the id column of the training.", "COLUMN"
    )
    proba: bool = _option(False, "--proba", "Add the probabilities of the classes.")
    interval: float | None = _option(
        None, "--interval", "Add bounds that cover this share of new rows, such as 0.9.", "SHARE"
    )
    std: bool = _option(False, "--std", "Add the standard deviations of a gp.")
    decision: bool = _option(False, "--decision", "Add the decision values.")


@dataclass(frozen=True, kw_only=True)
class Judging(Common):
    """What the commands that judge saved models take."""

    target: list[str] = _option([], "--target -t", _SAVED_TARGET, "COLUMN")
    groups: str | None = _option(None, "--groups", _GROUPS, "COLUMN")
    scoring: str | None = _option(None, "--scoring", _SCORING, "NAME")
    cv: int = _option(5, "--cv", "Number of folds, repeated where that helps.", "K")
    level: float = _option(0.95, "--level", "Of the intervals.", "SHARE")
    json: bool = _option(False, "--json", "Print JSON instead of words.")


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Judging):
    """What ``judge`` takes."""

    model_file: Path = _MODEL
    data: Path = _DATA
    report: Path | None = _option(None, "--report", "Write a report of the model.", "FILE.html")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Judging):
    """What ``compare`` takes."""

    first: Path = typer.Argument(..., metavar="MODEL", help="A file written by --save.")
    second: Path = typer.Argument(..., metavar="OTHER", help="Another one.")
    data: Path = _DATA
    seed: int = _seed("Seed of the shuffled folds.")
    margin: float = _option(0.0, "--margin", "Differences up to this count as none.", "DIFFERENCE")


Options = TypeVar("Options", bound=Common)


def as_command(kind: type[Options], work: Callable[[Options], None]) -> Callable[..., None]:
    """A function with one parameter for each option, for typer to read."""

    def command(**values: Any) -> None:
        options = kind(**values)
        with guard(is_quiet=options.quiet, debug=options.debug):
            work(options)

    last = {item.name for item in fields(Common)}
    parameters = inspect.signature(kind).parameters.values()
    ordered = sorted(parameters, key=lambda parameter: parameter.name in last)
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = get_type_hints(kind)
    command.__doc__ = as_help(work)
    return command


def as_help(work: Callable[..., None]) -> str:
    """A docstring whose lines below a backslash-b stay as they are."""
    return (work.__doc__ or "").replace(r"\b", "\b")
