"""The options of the commands, as records. A field is an option; its annotation is its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from everyfold.cli.models import KERNELS, MODELS


def _help(*flags: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*flags, help=help, metavar=metavar)


_FILES = "CSV, Parquet, svmlight or NumPy file, gzipped or not; - is CSV on standard input."


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes."""

    header: Annotated[
        bool | None,
        _help("--header/--no-header", help="Whether a CSV file begins with names; found out."),
    ] = None
    quiet: Annotated[bool, _help("--quiet", "-q", help="No messages, no progress.")] = False
    debug: Annotated[bool, _help("--debug", help="Show tracebacks of errors.")] = False


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Common):
    """What the commands that fit take."""

    data: Annotated[Path, typer.Argument(metavar="DATA", help=_FILES)]
    model: Annotated[
        str, _help("--model", "-m", metavar="NAME", help=f"One of {', '.join(MODELS)}.")
    ]
    kernel: Annotated[
        str, _help("--kernel", "-k", metavar="NAME", help=f"One of {', '.join(KERNELS)}.")
    ] = "rbf"
    target: Annotated[
        str | None,
        _help("--target", "-t", metavar="COLUMN", help="Name or position; else the last column."),
    ] = None
    drop: Annotated[
        list[str], _help("--drop", metavar="COLUMN", help="Leave a column out; may repeat.")
    ] = field(default_factory=list)
    task: Annotated[
        str,
        _help(
            "--task",
            metavar="TASK",
            help="classification or regression; ridge and lssvm decide by the target (auto).",
        ),
    ] = "auto"
    standardise: Annotated[
        bool,
        _help(
            "--standardise/--no-standardise",
            help="Scale features to mean 0 and variance 1.",
        ),
    ] = True
    seed: Annotated[
        int, _help("--seed", metavar="N", help="Of the shuffled folds and of sampling.")
    ] = 0
    save: Annotated[
        Path | None, _help("--save", metavar="MODEL.npz", help="Write the fitted model.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions):
    """What ``search`` and ``plan`` take."""

    cv: Annotated[str, _help("--cv", metavar="N|loo", help="Folds; loo leaves one out.")] = "10"
    grid: Annotated[
        list[str],
        _help(
            "--grid",
            "-g",
            metavar="NAME=VALUES",
            help='Such as "C=1,10,100" or "gamma=logspace(-3,1,9)"; may repeat. Others get '
            "default grids.",
        ),
    ] = field(default_factory=list)
    scoring: Annotated[
        str | None,
        _help("--scoring", metavar="NAME", help="A scorer of scikit-learn; accuracy or r2."),
    ] = None
    order: Annotated[
        str,
        _help("--order", metavar="ORDER", help="auto, exact, inf, or 1, 2, … (see the docs)."),
    ] = "auto"
    preprocessing: Annotated[
        str,
        _help("--preprocessing", metavar="HOW", help="auto, per_fold or once: when to scale."),
    ] = "auto"
    confirm: Annotated[
        str,
        _help("--confirm", metavar="K", help="Score the best K again by real refits, or auto."),
    ] = "auto"
    expand: Annotated[
        bool, _help("--expand", help="Let the grid grow while its best is on an edge.")
    ] = False
    n_jobs: Annotated[
        int, _help("--n-jobs", "-j", metavar="N", help="Kernels at a time; -1 for all processors.")
    ] = 1
    top: Annotated[int, _help("--top", metavar="N", help="Candidates to show.")] = 10
    json: Annotated[bool, _help("--json", help="Print JSON instead of a table.")] = False
    out: Annotated[
        Path | None, _help("--out", "-o", metavar="FILE.csv", help="Write all candidates.")
    ] = None
    plot: Annotated[
        Path | None, _help("--plot", metavar="FILE.png", help="Draw the cross-validation surface.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class FitOptions(ModelOptions):
    """What ``fit`` takes."""

    param: Annotated[
        list[str],
        _help("--param", "-p", metavar="NAME=VALUE", help="A parameter; may repeat."),
    ] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Common):
    """What ``predict`` takes."""

    model_file: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A file written by fit or search --save.")
    ]
    data: Annotated[Path, typer.Argument(metavar="DATA", help=_FILES)]
    out: Annotated[
        Path | None, _help("--out", "-o", metavar="FILE.csv", help="Write there, not to stdout.")
    ] = None
    decision: Annotated[
        bool, _help("--decision", help="Add the values that the labels are decided by.")
    ] = False


Options = TypeVar("Options", bound=Common)


def as_command(kind: type[Options], work: Callable[[Options], None]) -> Callable[..., None]:
    """A function with one parameter for each option, for typer to read."""

    def command(**values: Any) -> None:
        work(kind(**values))

    hints = get_type_hints(kind, include_extras=True)
    common = {item.name for item in fields(Common)}
    ordered = sorted(fields(kind), key=lambda item: item.name in common)
    parameters = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(item),
            annotation=hints[item.name],
        )
        for item in ordered
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: hints[item.name] for item in ordered}
    command.__doc__ = as_help(work)
    return command


def as_help(work: Callable[..., None]) -> str:
    """A docstring whose lines below a backslash-b stay as they are."""
    return (work.__doc__ or "").replace(r"\b", "\b")


def _default(item: Any) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return inspect.Parameter.empty if item.default is MISSING else item.default
